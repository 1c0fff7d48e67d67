//! The status of a RunnerDeployment or a RunnerSet.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use pacer_api::condition::{self, ConditionType, Statement, Verdict};
use pacer_api::{RunnerDeploymentStatus, RunnerReplicaSet, RunnerReplicaSetStatus, RunnerSet, RunnerSetStatus};
use pacer_cluster::clock::Clock;
use pacer_core::rollout::Rollout;
use pacer_policyset::condition as policy_condition;

use super::{Sets, Targets};
use crate::error::Error;
use crate::target::Target;
use crate::template;
use crate::written::{Written, merge_patch};

/// How far a target is.
pub(super) struct Progress {
    /// What was carried out.
    pub(super) rollout: Rollout,
    /// Runners that GitHub can hand a job to.
    pub(super) online: u32,
    /// The last runner has to stay until the registration-only one is registered.
    pub(super) hold_last: bool,
}

impl Targets {
    /// Writes the status if it differs, at most once a second. Returns when to go on with a write that is held back.
    pub(super) async fn write_status(
        &self,
        target: &Target,
        sets: &Sets,
        progress: &Progress,
        clock: Clock,
    ) -> Result<Duration, Error> {
        let (before, value) = match target {
            Target::Deployment(deployment) => {
                let before = deployment.status.clone().unwrap_or_default();
                let conditions = self.conditions(target, sets, progress, clock);
                let after = of_deployment(target, sets, conditions);
                (serde_json::to_value(before), serde_json::to_value(after))
            }
            Target::Set(set) => {
                let before = set.status.clone().unwrap_or_default();
                let conditions = self.conditions(target, sets, progress, clock);
                let after = of_runner_set(target, sets, conditions);
                (serde_json::to_value(before), serde_json::to_value(after))
            }
        };
        let (before, value) = (before.unwrap_or_default(), value.unwrap_or_default());
        let Some(uid) = target.uid().filter(|_| value != before) else { return Ok(self.settings.sync_period) };
        let version = target.meta().resource_version.clone();
        let hold = |written: &Written| written.hold(version.as_deref(), &value, clock.instant, self.settings.sync_period);
        if let Some(wait) = self.memory.memos.read(&uid, |memo| memo.status.as_ref().and_then(hold)).flatten() {
            return Ok(wait);
        }
        target.patch_status(&self.cluster.client, &merge_patch(&value, Some(before))).await?;
        self.memory.memos.change(&uid, |memo| memo.status = Some(Written { version, value, at: clock.instant }));
        Ok(self.settings.sync_period)
    }

    fn conditions(&self, target: &Target, sets: &Sets, progress: &Progress, clock: Clock) -> Vec<Condition> {
        let mut conditions = target.conditions().to_vec();
        let mut put = |type_, holds, reason: &str, message: &str| {
            let generation = target.meta().generation;
            let statement = Statement { type_, verdict: Verdict::from(holds), reason, message, generation };
            condition::put(&mut conditions, &statement, clock.now);
        };
        let (ready, reason, message) = readiness(target, &sets.newest, progress);
        put(ConditionType::Ready, ready, reason, &message);
        if let Target::Set(set) = target {
            let (reason, message) = acceptance(set);
            put(ConditionType::Accepted, true, reason, &message);
        }
        let asked = target.policies().map(String::as_str);
        let generation = target.meta().generation;
        policy_condition::put(&mut conditions, &self.policies, target.namespace(), asked, generation, clock.now);
        conditions
    }
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

/// Reasons of a RunnerReplicaSet that its owner repeats.
const REASONS_OF_SETS: [&str; 6] =
    ["SettingsRefused", "CredentialsRefused", "GitHubUnavailable", "NotAllowed", "QuotaExceeded", "TenancyUnknown"];

/// What a set says about GitHub, when it can't use it: the owner of a target looks at the target first.
fn github_trouble(set: &RunnerReplicaSet) -> Option<&Condition> {
    let conditions = set.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    conditions.iter().find(|condition| {
        condition.type_ == ConditionType::Ready.as_str() && REASONS_OF_SETS.contains(&condition.reason.as_str())
    })
}

/// Which fields of a StatefulSet are ignored.
fn acceptance(set: &RunnerSet) -> (&'static str, String) {
    let ignored = set.spec.without_effect();
    if ignored.is_empty() {
        ("Accepted", "every field has an effect".to_owned())
    } else {
        ("FieldsWithoutEffect", format!("without effect: {}", ignored.join("; ")))
    }
}

fn sum(sets: &Sets, count: fn(&RunnerReplicaSetStatus) -> i32) -> i32 {
    sets.all().filter_map(|set| set.status.as_ref()).map(count).fold(0, i32::saturating_add)
}

fn selector(target: &Target) -> String {
    format!("{}={}", target.name_label(), target.name())
}

fn of_deployment(target: &Target, sets: &Sets, conditions: Vec<Condition>) -> RunnerDeploymentStatus {
    let available = Some(sum(sets, |status| status.available_replicas));
    RunnerDeploymentStatus {
        available_replicas: available,
        // ARC reports the same number twice.
        ready_replicas: available,
        updated_replicas: sets.newest.status.as_ref().and_then(|status| status.replicas).or(Some(0)),
        desired_replicas: i32::try_from(target.replicas()).ok(),
        replicas: Some(sum(sets, |status| status.replicas.unwrap_or_default())),
        observed_generation: target.meta().generation,
        selector: Some(selector(target)),
        revision: Some(template::revision(&sets.newest)),
        conditions,
    }
}

fn of_runner_set(target: &Target, sets: &Sets, conditions: Vec<Condition>) -> RunnerSetStatus {
    let common = of_deployment(target, sets, conditions);
    let latest = |time: fn(&RunnerReplicaSetStatus) -> Option<&Time>| {
        let times = sets.all().filter_map(|set| set.status.as_ref()).filter_map(time);
        times.max_by_key(|time| time.0).cloned()
    };
    let status = sets.newest.status.as_ref();
    RunnerSetStatus {
        available_replicas: common.available_replicas,
        ready_replicas: common.ready_replicas,
        updated_replicas: common.updated_replicas,
        desired_replicas: common.desired_replicas,
        replicas: common.replicas,
        observed_generation: common.observed_generation,
        selector: common.selector,
        revision: common.revision,
        pending_replicas: Some(sum(sets, |status| status.pending_replicas.unwrap_or_default())),
        busy_replicas: Some(sum(sets, |status| status.busy_replicas.unwrap_or_default())),
        idle_replicas: Some(sum(sets, |status| status.idle_replicas.unwrap_or_default())),
        failed_attempts: status.and_then(|status| status.failed_attempts),
        last_scale_up_time: latest(|status| status.last_scale_up_time.as_ref()),
        last_scale_down_time: latest(|status| status.last_scale_down_time.as_ref()),
        backoff_until: status.and_then(|status| status.backoff_until.clone()),
        conditions: common.conditions,
    }
}
