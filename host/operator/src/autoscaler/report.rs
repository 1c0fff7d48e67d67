//! The status of an autoscaler: the number, and why it is this one.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource, ResourceExt};
use pacer_api::condition::{self, ConditionType, Statement, Verdict};
use pacer_api::names::annotation;
use pacer_api::{HorizontalRunnerAutoscaler, HorizontalRunnerAutoscalerStatus};
use pacer_core::autoscale::{Decision, Reason as Why};
use serde_json::json;

use super::{Problem, left};
use crate::context::Context;
use crate::error::{Error, gone_is_fine};
use crate::events::Reason;
use crate::observe::Clock;
use crate::policies;
use crate::settings::STATUS_PACE;

/// Events about an autoscaler come at most this often: a burst is one story.
const EVENT_PACE: Duration = Duration::from_secs(10);

/// What a pass came to.
pub(super) enum Outcome {
    /// A number.
    Decided {
        decision: Decision,
        /// When the answer changes by itself.
        next: Option<Timestamp>,
        /// For the Schedule column.
        summary: Option<String>,
        /// What was missing to decide it.
        trouble: Option<String>,
    },
    /// None.
    Problem(Problem),
}

impl Outcome {
    /// How long until the answer changes by itself.
    pub(super) fn next(&self, now: Timestamp) -> Option<Duration> {
        match self {
            Self::Decided { next, .. } => {
                // Past the moment, not just before it.
                next.map(|at| {
                    at.duration_since(now).saturating_add(SignedDuration::from_millis(1)).max(SignedDuration::ZERO).unsigned_abs()
                })
            }
            Self::Problem(_) => None,
        }
    }
}

/// Writes the status if it differs: at once when the number does, else at most once a second. Returns when to look again for a write that is
/// held back.
pub(super) async fn write(
    autoscaler: &HorizontalRunnerAutoscaler,
    ctx: &Context,
    outcome: &Outcome,
    clock: Clock,
) -> Result<Duration, Error> {
    let old = autoscaler.status.clone().unwrap_or_default();
    let mut new = compute(autoscaler, outcome, &old, clock.now);
    let asked = autoscaler.annotations().get(annotation::POLICIES).map(String::as_str);
    let (namespace, generation) = (autoscaler.namespace().unwrap_or_default(), autoscaler.metadata.generation);
    policies::condition::put(&mut new.conditions, &ctx.policies, &namespace, asked, generation, clock.now);
    note_change(autoscaler, ctx, outcome, &old, &new, clock).await;
    if new == old {
        return Ok(ctx.settings.sync_period);
    }
    let uid = autoscaler.uid().unwrap_or_default();
    let version = autoscaler.resource_version();
    // The ledger is written by whoever hears of a job; see `crate::ledger`.
    let body = json!({
        "observedGeneration": new.observed_generation,
        "desiredReplicas": new.desired_replicas,
        "lastSuccessfulScaleOutTime": new.last_successful_scale_out_time,
        "scheduledOverridesSummary": new.scheduled_overrides_summary,
        "conditions": new.conditions,
    });
    let urgent = new.desired_replicas != old.desired_replicas;
    let wait = ctx.memory.autoscaler(&uid, |memo| match &memo.status {
        Some((seen, said, _)) if *seen == version && *said == body => Some(ctx.settings.sync_period),
        Some((_, _, at)) if !urgent => left(STATUS_PACE, Some(*at), clock.instant),
        Some(_) | None => None,
    });
    if let Some(wait) = wait {
        return Ok(wait);
    }
    let api: Api<HorizontalRunnerAutoscaler> = Api::namespaced(ctx.client.clone(), &autoscaler.namespace().unwrap_or_default());
    let patch = Patch::Merge(json!({ "status": body }));
    gone_is_fine(api.patch_status(&autoscaler.name_any(), &PatchParams::default(), &patch).await)?;
    ctx.memory.autoscaler(&uid, |memo| memo.status = Some((version, body, clock.instant)));
    Ok(ctx.settings.sync_period)
}

fn compute(
    autoscaler: &HorizontalRunnerAutoscaler,
    outcome: &Outcome,
    old: &HorizontalRunnerAutoscalerStatus,
    now: Timestamp,
) -> HorizontalRunnerAutoscalerStatus {
    let mut new = old.clone();
    let generation = autoscaler.metadata.generation;
    new.observed_generation = generation;
    let mut say = |type_, verdict: bool, reason: &str, message: &str| {
        let statement = Statement { type_, verdict: Verdict::from(verdict), reason, message, generation };
        condition::put(&mut new.conditions, &statement, now);
    };
    match outcome {
        Outcome::Problem(problem) => {
            say(ConditionType::Accepted, false, problem.reason(), &problem.to_string());
            say(ConditionType::Scaling, false, problem.reason(), "the target keeps its number; see the condition Accepted");
        }
        Outcome::Decided { decision, summary, trouble, .. } => {
            say(ConditionType::Accepted, true, "Accepted", "the spec makes sense and the target exists");
            match trouble {
                Some(trouble) => say(
                    ConditionType::Scaling,
                    false,
                    "MetricUnavailable",
                    &format!("{}; not lowered: {trouble}", decision.reason),
                ),
                None => say(ConditionType::Scaling, true, word(&decision.reason), &decision.reason.to_string()),
            }
            let desired = i32::try_from(decision.desired).unwrap_or(i32::MAX);
            // ARC's rule: without a number before, more than one runner counts as an increase.
            if desired > old.desired_replicas.unwrap_or(1) {
                new.last_successful_scale_out_time = Timestamp::from_second(now.as_second()).ok().map(Time);
            }
            new.desired_replicas = Some(desired);
            new.scheduled_overrides_summary.clone_from(summary);
        }
    }
    new
}

/// The reason of the condition.
fn word(reason: &Why) -> &'static str {
    match reason {
        Why::Minimum { scheduled: false } => "MinReplicas",
        Why::Minimum { scheduled: true } => "ScheduledOverride",
        Why::Metric(_) => "Metric",
        Why::Reserved { .. } => "Reserved",
        Why::Maximum { .. } => "MaxReplicas",
        Why::Ceiling { .. } => "PolicyCeiling",
        Why::Held { .. } => "ScaleDownDelay",
        Why::Ramp { .. } => "RampLimit",
    }
}

async fn note_change(
    autoscaler: &HorizontalRunnerAutoscaler,
    ctx: &Context,
    outcome: &Outcome,
    old: &HorizontalRunnerAutoscalerStatus,
    new: &HorizontalRunnerAutoscalerStatus,
    clock: Clock,
) {
    let uid = autoscaler.uid().unwrap_or_default();
    let (reason, note) = match outcome {
        Outcome::Problem(problem) if new.conditions != old.conditions => (Reason::RunnerAutoscalingFailure, problem.to_string()),
        Outcome::Decided { decision, .. } if new.desired_replicas != old.desired_replicas => {
            let up = new.desired_replicas > old.desired_replicas;
            ctx.memory.autoscaler(&uid, |memo| {
                let side = if up { &mut memo.scaled.0 } else { &mut memo.scaled.1 };
                *side = Some(clock.now);
            });
            let before = old.desired_replicas.map_or_else(|| "no number".to_owned(), |before| before.to_string());
            (Reason::Scaled, format!("from {before} to {} runners: {}", decision.desired, decision.reason))
        }
        Outcome::Problem(_) | Outcome::Decided { .. } => return,
    };
    let told = ctx.memory.autoscaler(&uid, |memo| {
        let told = left(EVENT_PACE, memo.told, clock.instant).is_some();
        if !told {
            memo.told = Some(clock.instant);
        }
        told
    });
    if !told {
        ctx.events.publish(reason, &autoscaler.object_ref(&()), None, &note).await;
    }
}
