//! The status of a set.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::PatchParams;
use kube::core::Status;
use kube::{Resource, ResourceExt};
use pacer_api::condition::{self, ConditionType, Statement, Verdict};
use pacer_api::names::label;
use pacer_api::{RunnerReplicaSet, RunnerReplicaSetStatus};
use pacer_cluster::answer::status;
use pacer_cluster::events::Reason;
use pacer_cluster::status::{Turn, Weight, merge_patch};
use pacer_core::phase::Phase;
use pacer_core::tenancy::Refusal;

use super::observe::Fleet;
use super::{Memo, ReplicaSets, Subject};
use crate::access::Access;
use crate::error::Error;
use crate::pool::Replicas;
use crate::template;

/// Reasons of the condition Ready of a set that does what it is there for.
const ROUTINE: [&str; 2] = ["AllOnline", "Starting"];

/// Why a RunnerReplicaSet can't have the runners that are wanted.
pub(super) struct Trouble {
    reason: &'static str,
    message: String,
    event: Reason,
}

impl Trouble {
    pub(super) fn of(access: &Result<Access, Error>) -> Option<Self> {
        match access {
            Err(error) => Some(Self { reason: error.reason(), message: error.to_string(), event: error.event() }),
            Ok(access) => access.outage().map(|outage| Self {
                reason: if outage.refused { "CredentialsRefused" } else { "GitHubUnavailable" },
                message: outage.message,
                event: Reason::GitHubUnavailable,
            }),
        }
    }

    /// The tenancy does not allow more runners.
    pub(super) fn refused(refusal: &Refusal) -> Self {
        Self { reason: refusal.reason(), message: refusal.to_string(), event: Reason::NotAllowed }
    }

    /// The API server does not let runners be made: a quota, an admission policy, or a name or label that is not valid. None for an error that
    /// is none of these, and may pass by itself.
    pub(super) fn not_created(error: &Error) -> Option<Self> {
        let message = format!("the API server refuses new Runners: {}", error.refusal()?);
        Some(Self { reason: Reason::CreationRefused.as_str(), message, event: Reason::CreationRefused })
    }

    /// Whether it is the tenancy that stands in the way.
    pub(super) fn forbids(&self) -> bool {
        self.event == Reason::NotAllowed
    }
}

impl ReplicaSets {
    /// Writes the status if it differs and its [turn](Turn) has come. Returns when to go on with one that waits.
    pub(super) async fn write_status(
        &self,
        of: Subject<'_>,
        fleet: &Fleet,
        trouble: Option<&Trouble>,
    ) -> Result<Duration, Error> {
        let old = of.set.status.clone().unwrap_or_default();
        let new = compute(of, fleet, trouble, &old);
        // Back-off goes on from there after a restart.
        let weight = match new.failed_attempts == old.failed_attempts {
            true => Weight::of(&old.conditions, &new.conditions, &ROUTINE),
            false => Weight::News,
        };
        let version = of.set.resource_version();
        let stored = serde_json::to_value(&old).unwrap_or_default();
        let value = serde_json::to_value(&new).unwrap_or_default();
        let turn = |memo: &mut Memo| memo.status.turn(version.as_deref(), &stored, value, weight, of.clock.instant);
        let value = match self.memory.memos.change(of.uid, turn) {
            Turn::Settled => return Ok(self.settings.sync_period),
            Turn::Later(wait) => return Ok(wait),
            Turn::Write(value) => value,
        };
        if let Some(trouble) = trouble.filter(|_| new.conditions != old.conditions) {
            self.cluster.events.publish(trouble.event, &of.set.object_ref(&()), None, &trouble.message).await;
        }
        let patch = merge_patch(&value, &stored);
        let api = self.cluster.beside::<RunnerReplicaSet>(of.set);
        let gone = match api.patch_status(&of.set.name_any(), &PatchParams::default(), &patch).await {
            Ok(_) => false,
            Err(error) if status(&error).is_some_and(Status::is_not_found) => true,
            Err(error) => return Err(error.into()),
        };
        self.memory.memos.change(of.uid, |memo| {
            memo.gone = gone;
            memo.status.written(version, value, of.clock.instant);
        });
        Ok(self.settings.sync_period)
    }
}

fn compute(of: Subject<'_>, fleet: &Fleet, trouble: Option<&Trouble>, old: &RunnerReplicaSetStatus) -> RunnerReplicaSetStatus {
    let (set, now) = (of.set, of.clock.now);
    let counts = fleet.told(now);
    let dead = fleet.members.iter().filter(|(_, assessment)| assessment.phase == Phase::Dead).count();
    let i32_of = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
    let Replicas { total, running } = Replicas::of(&counts, u32::try_from(dead).unwrap_or(u32::MAX));
    let attempts = Some(fleet.attempts).filter(|attempts| *attempts > 0);
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
    new.last_scale_up_time = fleet.scaled.up.map(whole_seconds);
    new.last_scale_down_time = fleet.scaled.down.map(whole_seconds);
    new.backoff_until = fleet.next_attempt.map(whole_seconds);
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
