//! Sends the number to the target.

use std::fmt::Display;
use std::time::Duration;

use kube::{Resource, ResourceExt};
use pacer_cluster::events::Reason;
use pacer_core::autoscale::sending::{Number, Sending, SentNumber, effective_time};
use serde_json::json;

use super::memo::{AutoscalerMemo, Effective, Sent};
use super::observe::Fleet;
use super::{Autoscalers, Subject};
use crate::error::Error;
use crate::refusal::Refusal;
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
            sent: sent.as_ref().is_some_and(|sent| sent.version == version && sent.number.desired == desired),
            finished,
            last: sent.as_ref().map(|sent| sent.number),
            since_last: effective.map(|effective| of.clock.instant.saturating_duration_since(effective.sent)),
        };
        match number.sending() {
            Sending::Settled => {
                // The number that was refused is not asked for any more, or has not been for so long that it may be accepted by now.
                return Ok(self.memory.memos.change(of.uid, |memo| {
                    let lasts = memo.refused.as_ref().and_then(|refusal| refusal.lasts(&desired, of.clock.instant));
                    memo.refused = memo.refused.take().filter(|_| lasts.is_some());
                    lasts
                }));
            }
            Sending::Later(wait) => return Ok(Some(wait)),
            Sending::Now => {}
        }
        let pause = |memo: &AutoscalerMemo| memo.refused.as_ref()?.pause(&desired, of.clock.instant);
        // Its own time goes with each number: runners that finish later are not part of it.
        let announced = || {
            let before = target.effective_time().map(|time| time.0).max(effective.map(|effective| effective.time));
            let time = effective_time(before, of.clock.now);
            self.announce(fleet, time);
            self.memory.memos.change(of.uid, |memo| memo.effective = Some(Effective { time, sent: of.clock.instant }));
            time
        };
        if let Some(wait) = self.memory.memos.read(of.uid, pause).flatten() {
            // The set replaces the finished runners of numbers that it is told of and that are not accepted, and it must not wait for the next try.
            let is_due = number.since_last.is_none_or(|ago| ago >= SCALING_PAUSE);
            if is_due && target.config().is_ephemeral() && fleet.finished_unaccounted > 0 {
                announced();
            }
            return Ok(Some(wait.min(SCALING_PAUSE)));
        }
        let mut fields = json!({"replicas": desired});
        if target.config().is_ephemeral() {
            let time = announced();
            if let Some(fields) = fields.as_object_mut() {
                fields.insert("effectiveTime".to_owned(), json!(time.to_string()));
            }
        }
        if let Err(error) = target.patch(&self.cluster.client, &json!({"spec": fields})).await.map_err(Error::from) {
            let Some(words) = error.refusal() else { return Err(error) };
            return Ok(self.tell_refusal(of, target, desired, words).await);
        }
        self.memory.memos.change(of.uid, |memo| {
            let number = SentNumber::new(memo.sent.as_ref().map(|sent| &sent.number), desired, finished);
            memo.sent = Some(Sent { version, number });
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

    /// Remembers that the API server refuses the number, for the status, and says so once for each text. Returns how long it is not
    /// sent again.
    async fn tell_refusal(&self, of: Subject<'_>, target: &Target, desired: u32, words: &str) -> Option<Duration> {
        let why = format!(
            "the API server refuses to set the {} to {desired} replicas: {words}; the target keeps {}, and the autoscaler tries again: change the admission \
             policy, quota or role that refuses it, or minReplicas and maxReplicas",
            target.reference(),
            target.replicas()
        );
        let (before, pause) = self.memory.memos.change(of.uid, |memo| {
            let refusal = Refusal::new(memo.refused.as_ref(), desired, why.clone(), of.clock.instant);
            let pause = refusal.pause(&desired, of.clock.instant);
            (memo.refused.replace(refusal), pause)
        });
        if before.is_none_or(|before| before.why() != why) {
            tracing::warn!(autoscaler = of.object.name_any(), namespace = of.object.namespace(), %why, "replicas refused");
            self.cluster.events.publish(Reason::ScalingRefused, &of.object.object_ref(&()), None, &why).await;
        }
        pause
    }
}
