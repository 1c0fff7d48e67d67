//! The status of a RunnerDeployment or a RunnerSet.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use pacer_api::condition::{self, ConditionType, Statement, Verdict};
use pacer_api::{RunnerDeploymentStatus, RunnerReplicaSet, RunnerReplicaSetStatus, RunnerSet, RunnerSetStatus};
use pacer_cluster::clock::Clock;
use pacer_cluster::events::Reason;
use pacer_cluster::status::{Turn, Weight, merge_patch};
use pacer_core::rollout::Rollout;
use pacer_policyset::condition as policy_condition;
use serde_json::Value;

use super::{Memo, Sets, Targets};
use crate::error::Error;
use crate::pool::Replicas;
use crate::published::FleetSummary;
use crate::target::Target;
use crate::template;

/// Reasons of the condition Ready of a target that does what it is there for. That a rollout begins or ends is news.
const ROUTINE: [&str; 2] = ["AllOnline", "Starting"];

/// How far a target is.
pub(super) struct Progress {
    /// What was carried out.
    pub(super) rollout: Rollout,
    /// Why the API server refuses a number of it.
    pub(super) refused: Option<String>,
    /// Runners that GitHub can hand a job to.
    pub(super) online: u32,
    /// The last runner has to stay until the registration-only one is registered.
    pub(super) hold_last: bool,
    /// Pods that should be gone and are not.
    pub(super) hanging: u32,
}

impl Targets {
    /// Writes the status if it differs and its [turn](Turn) has come. Returns when to go on with one that waits.
    pub(super) async fn write_status(
        &self,
        target: &Target,
        sets: &Sets,
        progress: &Progress,
        clock: Clock,
    ) -> Result<Duration, Error> {
        let conditions = self.conditions(target, sets, progress, clock);
        let weight = Weight::of(target.conditions(), &conditions, &ROUTINE);
        let tally = self.tally(sets);
        let value = match target {
            Target::Deployment(_) => serde_json::to_value(of_deployment(target, sets, &tally, conditions)),
            Target::Set(_) => serde_json::to_value(of_runner_set(target, sets, &tally, conditions)),
        };
        self.send_status(target, value.unwrap_or_default(), weight, clock).await
    }

    /// Says in the status and in an Event why there is no RunnerReplicaSet for the template; the other fields stay as they are.
    pub(super) async fn write_refusal(&self, target: &Target, why: &str, clock: Clock) -> Result<(), Error> {
        let generation = target.meta().generation;
        let mut conditions = target.conditions().to_vec();
        let reason = Reason::CreationRefused;
        let statement =
            Statement { type_: ConditionType::Ready, verdict: Verdict::False, reason: reason.as_str(), message: why, generation };
        if condition::put(&mut conditions, &statement, clock.now) {
            self.cluster.events.publish(reason, &target.object_ref(), None, why).await;
        }
        let value = match target {
            Target::Deployment(deployment) => {
                let status = deployment.status.clone().unwrap_or_default();
                serde_json::to_value(RunnerDeploymentStatus { conditions, observed_generation: generation, ..status })
            }
            Target::Set(set) => {
                let status = set.status.clone().unwrap_or_default();
                serde_json::to_value(RunnerSetStatus { conditions, observed_generation: generation, ..status })
            }
        };
        self.send_status(target, value.unwrap_or_default(), Weight::News, clock).await.map(drop)
    }

    async fn send_status(&self, target: &Target, value: Value, weight: Weight, clock: Clock) -> Result<Duration, Error> {
        let Some(uid) = target.uid() else { return Ok(self.settings.sync_period) };
        let stored = match target {
            Target::Deployment(deployment) => serde_json::to_value(deployment.status.clone().unwrap_or_default()),
            Target::Set(set) => serde_json::to_value(set.status.clone().unwrap_or_default()),
        };
        let stored = stored.unwrap_or_default();
        let version = target.meta().resource_version.clone();
        let turn = |memo: &mut Memo| memo.status.turn(version.as_deref(), &stored, value, weight, clock.instant);
        let value = match self.memory.memos.change(&uid, turn) {
            Turn::Settled => return Ok(self.settings.sync_period),
            Turn::Later(wait) => return Ok(wait),
            Turn::Write(value) => value,
        };
        target.patch_status(&self.cluster.client, &merge_patch(&value, &stored)).await?;
        self.memory.memos.change(&uid, |memo| memo.status.written(version, value, clock.instant));
        Ok(self.settings.sync_period)
    }

    /// Counts the runners of all sets.
    fn tally(&self, sets: &Sets) -> Tally {
        let of = |set: &RunnerReplicaSet| self.summary(set).as_ref().map_or_else(|| Runners::said_by(set), Runners::counted);
        let all = sets.all().map(of).fold(Runners::default(), Runners::and);
        Tally { all, newest: of(&sets.newest) }
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
    if let Some(why) = &progress.refused {
        return (false, Reason::ScalingRefused.as_str(), why.clone());
    }
    match (trouble(newest), progress.rollout.complete, progress.online >= target.replicas()) {
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
            match progress.hanging {
                0 => format!("moving to revision {}; runners that are busy finish their jobs", template::revision(newest)),
                hanging => format!(
                    "moving to revision {}; runners that are busy finish their jobs; pods that should be gone and are not waited for any more: {hanging}, see the condition Stopping of their Runners",
                    template::revision(newest)
                ),
            },
        ),
    }
}

/// Reasons of a RunnerReplicaSet that its owner repeats.
const REASONS_OF_SETS: [&str; 7] = [
    "SettingsRefused",
    "CredentialsRefused",
    "GitHubUnavailable",
    "NotAllowed",
    "QuotaExceeded",
    "TenancyUnknown",
    Reason::CreationRefused.as_str(),
];

/// Why a set can't have the runners that are wanted, as it says: the owner of a target looks at the target first.
fn trouble(set: &RunnerReplicaSet) -> Option<&Condition> {
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

/// How many runners there are.
#[derive(Clone, Copy, Debug, Default)]
struct Runners {
    total: i32,
    running: i32,
    pending: i32,
    busy: i32,
    idle: i32,
}

/// Runners of all sets, and of the newest one.
struct Tally {
    all: Runners,
    newest: Runners,
}

impl Runners {
    /// As the controller of the set counts them now; its status says so a while later.
    fn counted(summary: &FleetSummary) -> Self {
        let i32_of = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
        let (Replicas { total, running }, counts) = (Replicas::of(&summary.told, summary.dead), &summary.told);
        Self {
            total: i32_of(total),
            running: i32_of(running),
            pending: i32_of(counts.pending),
            busy: i32_of(counts.busy),
            idle: i32_of(counts.idle),
        }
    }

    /// As the status of the set last said: nobody has counted them since the start.
    fn said_by(set: &RunnerReplicaSet) -> Self {
        let Some(status) = &set.status else { return Self::default() };
        Self {
            total: status.replicas.unwrap_or_default(),
            running: status.available_replicas,
            pending: status.pending_replicas.unwrap_or_default(),
            busy: status.busy_replicas.unwrap_or_default(),
            idle: status.idle_replicas.unwrap_or_default(),
        }
    }

    fn and(self, more: Self) -> Self {
        Self {
            total: self.total.saturating_add(more.total),
            running: self.running.saturating_add(more.running),
            pending: self.pending.saturating_add(more.pending),
            busy: self.busy.saturating_add(more.busy),
            idle: self.idle.saturating_add(more.idle),
        }
    }
}

fn selector(target: &Target) -> String {
    format!("{}={}", target.name_label(), target.name())
}

fn of_deployment(target: &Target, sets: &Sets, tally: &Tally, conditions: Vec<Condition>) -> RunnerDeploymentStatus {
    let available = Some(tally.all.running);
    RunnerDeploymentStatus {
        available_replicas: available,
        // ARC reports the same number twice.
        ready_replicas: available,
        updated_replicas: Some(tally.newest.total),
        desired_replicas: i32::try_from(target.replicas()).ok(),
        replicas: Some(tally.all.total),
        observed_generation: target.meta().generation,
        selector: Some(selector(target)),
        revision: Some(template::revision(&sets.newest)),
        conditions,
    }
}

fn of_runner_set(target: &Target, sets: &Sets, tally: &Tally, conditions: Vec<Condition>) -> RunnerSetStatus {
    let common = of_deployment(target, sets, tally, conditions);
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
        pending_replicas: Some(tally.all.pending),
        busy_replicas: Some(tally.all.busy),
        idle_replicas: Some(tally.all.idle),
        failed_attempts: status.and_then(|status| status.failed_attempts),
        last_scale_up_time: latest(|status| status.last_scale_up_time.as_ref()),
        last_scale_down_time: latest(|status| status.last_scale_down_time.as_ref()),
        backoff_until: status.and_then(|status| status.backoff_until.clone()),
        conditions: common.conditions,
    }
}
