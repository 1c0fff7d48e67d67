//! Sends the number to the target.

use std::fmt::Display;
use std::time::Duration;

use kube::ResourceExt;
use pacer_core::autoscale::sending::{Number, Sending, effective_time};
use serde_json::json;

use super::memo::{Effective, Sent};
use super::observe::Fleet;
use super::{Autoscalers, Subject};
use crate::error::Error;
use crate::target::Target;

impl Autoscalers {
    /// Sets the target's number, if it is due. With it goes `effectiveTime`: runners that finish later were part of the number, and are
    /// replaced only when it is set again. Returns how long it waits, where it does.
    pub(super) async fn apply(
        &self,
        of: Subject<'_>,
        target: &Target,
        fleet: &Fleet,
        desired: u32,
        reason: &(dyn Display + Sync),
    ) -> Result<Option<Duration>, Error> {
        let version = target.meta().resource_version.clone();
        let finished = fleet.finished();
        let (sent, effective) = self.memory.memos.read(of.uid, |memo| (memo.sent.clone(), memo.effective)).unwrap_or_default();
        let number = Number {
            desired,
            current: target.replicas(),
            live: fleet.live,
            unaccounted: fleet.finished_unaccounted,
            sent: sent.as_ref().is_some_and(|sent| sent.version == version && sent.desired == desired),
            accounted: sent.as_ref().is_some_and(|sent| sent.finished == finished),
            since_last: effective.map(|effective| of.clock.instant.saturating_duration_since(effective.sent)),
        };
        match number.sending() {
            Sending::Settled => return Ok(None),
            Sending::Later(wait) => return Ok(Some(wait)),
            Sending::Now => {}
        }
        let mut fields = json!({"replicas": desired});
        if target.config().is_ephemeral() {
            let before = target.effective_time().map(|time| time.0).max(effective.map(|effective| effective.time));
            let time = effective_time(before, of.clock.now);
            self.announce(fleet, time);
            self.memory.memos.change(of.uid, |memo| memo.effective = Some(Effective { time, sent: of.clock.instant }));
            if let Some(fields) = fields.as_object_mut() {
                fields.insert("effectiveTime".to_owned(), json!(time.to_string()));
            }
        }
        target.patch(&self.cluster.client, &json!({"spec": fields})).await?;
        self.memory.memos.change(of.uid, |memo| memo.sent = Some(Sent { version, desired, finished }));
        tracing::info!(
            autoscaler = of.object.name_any(),
            namespace = of.object.namespace(),
            target = %target.reference(),
            replicas = desired,
            %reason,
            "replicas set"
        );
        Ok(None)
    }
}
