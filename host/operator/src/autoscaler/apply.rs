//! Sends the number to the target.

use std::fmt::Display;
use std::time::Duration;

use kube::{Resource, ResourceExt};
use pacer_cluster::events::Reason;
use pacer_core::autoscale::sending::{Number, Sending, effective_time};
use serde_json::json;

use super::memo::{AutoscalerMemo, Effective, Refused, Sent};
use super::observe::Fleet;
use super::{Autoscalers, Subject, left};
use crate::error::Error;
use crate::settings::SCALING_PAUSE;
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
            Sending::Settled => {
                self.memory.memos.change(of.uid, |memo| memo.refused = None);
                return Ok(None);
            }
            Sending::Later(wait) => return Ok(Some(wait)),
            Sending::Now => {}
        }
        let refused =
            |memo: &AutoscalerMemo| left(SCALING_PAUSE, memo.refused.as_ref().map(|refused| refused.at), of.clock.instant);
        if let Some(wait) = self.memory.memos.read(of.uid, refused).flatten() {
            return Ok(Some(wait));
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
        if let Err(error) = target.patch(&self.cluster.client, &json!({"spec": fields})).await.map_err(Error::from) {
            let Some(words) = error.refusal() else { return Err(error) };
            self.tell_refusal(of, target, desired, words).await;
            return Ok(Some(SCALING_PAUSE));
        }
        self.memory.memos.change(of.uid, |memo| {
            memo.sent = Some(Sent { version, desired, finished });
            memo.refused = None;
        });
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

    /// Remembers that the API server refuses the number, for the status, and says so once for each text.
    async fn tell_refusal(&self, of: Subject<'_>, target: &Target, desired: u32, words: &str) {
        let why = format!(
            "the API server refuses to set the {} to {desired} replicas: {words}; it keeps {}, and the autoscaler tries again: change the admission \
             policy, quota or role that refuses it, or minReplicas and maxReplicas",
            target.reference(),
            target.replicas()
        );
        let refused = Refused { why: why.clone(), at: of.clock.instant };
        let before = self.memory.memos.change(of.uid, |memo| memo.refused.replace(refused));
        if before.is_none_or(|before| before.why != why) {
            tracing::warn!(autoscaler = of.object.name_any(), namespace = of.object.namespace(), %why, "replicas refused");
            self.cluster.events.publish(Reason::ScalingRefused, &of.object.object_ref(&()), None, &why).await;
        }
    }
}
