//! The status of a RunnerDeployment or a RunnerSet.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use pacer_api::condition::{self, ConditionType, Statement, Verdict};
use pacer_api::{RunnerDeploymentStatus, RunnerReplicaSet, RunnerReplicaSetStatus, RunnerSet, RunnerSetStatus};
use pacer_core::rollout::Rollout;
use serde_json::Value;

use crate::context::Context;
use crate::error::Error;
use crate::memory::Said;
use crate::observe::Clock;
use crate::target::Target;
use crate::{policies, template};

/// How far a target is.
pub(super) struct Progress {
    /// What was carried out.
    pub(super) rollout: Rollout,
    /// Runners that GitHub can hand a job to.
    pub(super) online: u32,
    /// The last runner has to stay until the registration-only one is registered.
    pub(super) hold_last: bool,
}

/// Writes the status if it differs, at most once a second. Returns when to look again for a write that is held back.
pub(super) async fn write(
    target: &Target,
    ctx: &Context,
    newest: &RunnerReplicaSet,
    old: &[Arc<RunnerReplicaSet>],
    progress: &Progress,
    clock: Clock,
) -> Result<Duration, Error> {
    let sets: Vec<&RunnerReplicaSet> = std::iter::once(newest).chain(old.iter().map(Arc::as_ref)).collect();
    let conditions = |before: &[Condition]| {
        let mut conditions = before.to_vec();
        let (verdict, reason, message) = readiness(target, newest, progress);
        say(&mut conditions, target, ConditionType::Ready, verdict, reason, &message, clock);
        if let Target::Set(set) = target {
            accept(&mut conditions, target, set, clock);
        }
        let asked = target.policies().map(String::as_str);
        let generation = target.meta().generation;
        policies::condition::put(&mut conditions, &ctx.policies, target.namespace(), asked, generation, clock.now);
        conditions
    };
    let (before, after) = match target {
        Target::Deployment(deployment) => {
            let before = deployment.status.clone().unwrap_or_default();
            let after = of_deployment(target, newest, &sets, conditions(&before.conditions));
            (serde_json::to_value(before), serde_json::to_value(after))
        }
        Target::Set(set) => {
            let before = set.status.clone().unwrap_or_default();
            let after = of_runner_set(target, newest, &sets, conditions(&before.conditions));
            (serde_json::to_value(before), serde_json::to_value(after))
        }
    };
    let (before, value) = (before.unwrap_or_default(), after.unwrap_or_default());
    if value == before {
        return Ok(ctx.settings.sync_period);
    }
    let version = target.meta().resource_version.clone();
    let hold = |said: &Said| said.hold(version.as_deref(), &value, clock.instant, ctx.settings.sync_period);
    if let Some(wait) = ctx.memory.target(target.uid(), |memo| memo.status.as_ref().and_then(hold)) {
        return Ok(wait);
    }
    let mut body = value.clone();
    if let (Some(fields), Value::Object(before)) = (body.as_object_mut(), before) {
        // What is gone has to be named in a merge patch.
        for key in before.keys() {
            fields.entry(key.clone()).or_insert(Value::Null);
        }
    }
    target.patch_status(&ctx.client, &body).await?;
    ctx.memory.target(target.uid(), |memo| memo.status = Some(Said { version, value, at: clock.instant }));
    Ok(ctx.settings.sync_period)
}

fn say(
    conditions: &mut Vec<Condition>,
    target: &Target,
    type_: ConditionType,
    verdict: bool,
    reason: &str,
    message: &str,
    clock: Clock,
) {
    let generation = target.meta().generation;
    condition::put(conditions, &Statement { type_, verdict: Verdict::from(verdict), reason, message, generation }, clock.now);
}

fn readiness<'a>(target: &Target, newest: &'a RunnerReplicaSet, progress: &Progress) -> (bool, &'a str, String) {
    match (github_trouble(newest), progress.rollout.complete, progress.online >= target.replicas()) {
        (Some(trouble), ..) => (false, trouble.reason.as_str(), trouble.message.clone()),
        _ if progress.hold_last => {
            (false, "Registering", "the last runner stays until the registration-only runner is registered".to_owned())
        }
        (None, true, true) => (true, "AllOnline", "as many runners as wanted are registered".to_owned()),
        (None, true, false) => {
            (false, "Starting", "runners are starting; see the RunnerReplicaSet's conditions if this does not end".to_owned())
        }
        (None, false, _) => (
            false,
            "RollingOut",
            format!("moving to revision {}; runners that are busy finish their jobs", template::revision(newest)),
        ),
    }
}

/// What a set says about GitHub, when it can't use it: the owner of a target looks at the target first.
fn github_trouble(set: &RunnerReplicaSet) -> Option<&Condition> {
    let conditions = set.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    conditions.iter().find(|condition| {
        condition.type_ == ConditionType::Ready.as_str()
            && matches!(condition.reason.as_str(), "SettingsRefused" | "CredentialsRefused" | "GitHubUnavailable")
    })
}

/// Says which fields of a StatefulSet are there in vain.
fn accept(conditions: &mut Vec<Condition>, target: &Target, set: &RunnerSet, clock: Clock) {
    let in_vain = set.spec.without_effect();
    let (reason, message) = if in_vain.is_empty() {
        ("Accepted", "every field has an effect".to_owned())
    } else {
        ("FieldsWithoutEffect", format!("without effect: {}", in_vain.join("; ")))
    };
    say(conditions, target, ConditionType::Accepted, true, reason, &message, clock);
}

fn sum(sets: &[&RunnerReplicaSet], count: fn(&RunnerReplicaSetStatus) -> i32) -> i32 {
    sets.iter().filter_map(|set| set.status.as_ref()).map(count).fold(0, i32::saturating_add)
}

fn selector(target: &Target) -> String {
    format!("{}={}", target.name_label(), target.name())
}

fn of_deployment(
    target: &Target,
    newest: &RunnerReplicaSet,
    sets: &[&RunnerReplicaSet],
    conditions: Vec<Condition>,
) -> RunnerDeploymentStatus {
    let available = Some(sum(sets, |status| status.available_replicas));
    RunnerDeploymentStatus {
        available_replicas: available,
        // ARC reports the same number twice.
        ready_replicas: available,
        updated_replicas: newest.status.as_ref().and_then(|status| status.replicas).or(Some(0)),
        desired_replicas: i32::try_from(target.replicas()).ok(),
        replicas: Some(sum(sets, |status| status.replicas.unwrap_or_default())),
        observed_generation: target.meta().generation,
        selector: Some(selector(target)),
        revision: Some(template::revision(newest)),
        conditions,
    }
}

fn of_runner_set(
    target: &Target,
    newest: &RunnerReplicaSet,
    sets: &[&RunnerReplicaSet],
    conditions: Vec<Condition>,
) -> RunnerSetStatus {
    let RunnerDeploymentStatus {
        available_replicas,
        ready_replicas,
        updated_replicas,
        desired_replicas,
        replicas,
        observed_generation,
        selector,
        revision,
        conditions,
    } = of_deployment(target, newest, sets, conditions);
    let latest = |time: fn(&RunnerReplicaSetStatus) -> Option<&Time>| {
        let times = sets.iter().filter_map(|set| set.status.as_ref()).filter_map(time);
        times.max_by_key(|time| time.0).cloned()
    };
    let status = newest.status.as_ref();
    RunnerSetStatus {
        available_replicas,
        ready_replicas,
        updated_replicas,
        desired_replicas,
        replicas,
        observed_generation,
        selector,
        revision,
        pending_replicas: Some(sum(sets, |status| status.pending_replicas.unwrap_or_default())),
        busy_replicas: Some(sum(sets, |status| status.busy_replicas.unwrap_or_default())),
        idle_replicas: Some(sum(sets, |status| status.idle_replicas.unwrap_or_default())),
        failed_attempts: status.and_then(|status| status.failed_attempts),
        last_scale_up_time: latest(|status| status.last_scale_up_time.as_ref()),
        last_scale_down_time: latest(|status| status.last_scale_down_time.as_ref()),
        backoff_until: status.and_then(|status| status.backoff_until.clone()),
        conditions,
    }
}
