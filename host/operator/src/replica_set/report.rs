//! The status of a set.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::core::Status;
use kube::{Resource, ResourceExt};
use pacer_api::condition::{self, ConditionType, Statement, Verdict};
use pacer_api::names::label;
use pacer_api::{RunnerReplicaSet, RunnerReplicaSetStatus};
use pacer_core::phase::Phase;
use pacer_core::restart;
use serde_json::json;

use super::{GitHubTrouble, Survey};
use crate::context::Context;
use crate::error::{Error, status};
use crate::events::Reason;
use crate::memory::Said;
use crate::observe::Clock;
use crate::{pool, template};

/// Writes the status if it differs, at most once a second. Returns when to look again for a write that is held back.
pub(super) async fn write(
    set: &RunnerReplicaSet,
    ctx: &Context,
    survey: &Survey,
    trouble: Option<&GitHubTrouble>,
    clock: Clock,
) -> Result<Duration, Error> {
    let old = set.status.clone().unwrap_or_default();
    let new = compute(set, ctx, survey, trouble, &old, clock.now);
    if new == old {
        return Ok(ctx.settings.sync_period);
    }
    let uid = set.uid().unwrap_or_default();
    let version = set.resource_version();
    let value = serde_json::to_value(&new).unwrap_or_default();
    let hold = |said: &Said| said.hold(version.as_deref(), &value, clock.instant, ctx.settings.sync_period);
    if let Some(wait) = ctx.memory.set(&uid, |memo| memo.status.as_ref().and_then(hold)) {
        return Ok(wait);
    }
    let mut body = value.clone();
    if let (Some(fields), Ok(serde_json::Value::Object(before))) = (body.as_object_mut(), serde_json::to_value(&old)) {
        // What is gone has to be named in a merge patch.
        for key in before.keys() {
            fields.entry(key.clone()).or_insert(serde_json::Value::Null);
        }
    }
    if let Some(trouble) = trouble.filter(|_| new.conditions != old.conditions) {
        ctx.events.publish(Reason::GitHubUnavailable, &set.object_ref(&()), None, &trouble.message).await;
    }
    let patch = Patch::Merge(json!({ "status": body }));
    let gone = match ctx.sets(set).patch_status(&set.name_any(), &PatchParams::default(), &patch).await {
        Ok(_) => false,
        Err(error) if status(&error).is_some_and(Status::is_not_found) => true,
        Err(error) => return Err(error.into()),
    };
    ctx.memory.set(&uid, |memo| {
        memo.gone = gone;
        memo.status = Some(Said { version, value, at: clock.instant });
    });
    Ok(ctx.settings.sync_period)
}

fn compute(
    set: &RunnerReplicaSet,
    ctx: &Context,
    survey: &Survey,
    trouble: Option<&GitHubTrouble>,
    old: &RunnerReplicaSetStatus,
    now: Timestamp,
) -> RunnerReplicaSetStatus {
    let phases = || survey.members.iter().map(|(_, assessment)| assessment.phase);
    let counts = pool::counts(phases());
    let dead = phases().filter(|phase| *phase == Phase::Dead).count();
    let i32_of = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
    let running = counts.starting.saturating_add(counts.idle).saturating_add(counts.busy);
    let total = counts.pending.saturating_add(running).saturating_add(u32::try_from(dead).unwrap_or(u32::MAX));
    let attempts = Some(survey.attempts).filter(|attempts| *attempts > 0);
    let mut new = old.clone();
    new.replicas = Some(i32_of(total));
    new.ready_replicas = i32_of(running);
    new.available_replicas = i32_of(running);
    new.pending_replicas = Some(i32_of(counts.pending));
    new.busy_replicas = Some(i32_of(counts.busy));
    new.idle_replicas = Some(i32_of(counts.idle));
    new.observed_generation = set.metadata.generation;
    new.selector = Some(format!("{}={}", label::RUNNER_TEMPLATE_HASH, template::revision(set)));
    new.failed_attempts = attempts;
    new.last_scale_up_time = survey.scaled.0.map(whole_seconds);
    new.last_scale_down_time = survey.scaled.1.map(whole_seconds);
    new.backoff_until = attempts.and_then(|attempts| {
        let since =
            survey.members.iter().filter_map(|(_, assessment)| assessment.trouble.as_ref()).map(|trouble| trouble.since).max()?;
        Some(whole_seconds(restart::due(since, attempts, &ctx.settings.restart)))
    });
    let desired = set.spec.replicas_or_default();
    let online = counts.idle.saturating_add(counts.busy);
    let (verdict, reason, message) = match (trouble, attempts) {
        (Some(trouble), _) => (false, trouble.reason, trouble.message.clone()),
        (None, Some(attempts)) => {
            (false, "BackingOff", format!("the last {attempts} attempts to start a runner failed; see the Runners' conditions"))
        }
        (None, None) if online >= desired => (true, "AllOnline", "as many runners as wanted are registered".to_owned()),
        (None, None) => (false, "Starting", "runners are starting".to_owned()),
    };
    let statement = Statement {
        type_: ConditionType::Ready,
        verdict: Verdict::from(verdict),
        reason,
        message: &message,
        generation: set.metadata.generation,
    };
    condition::put(&mut new.conditions, &statement, now);
    new
}

/// Kubernetes keeps whole seconds; comparing anything finer with what was stored would differ for ever.
fn whole_seconds(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}
