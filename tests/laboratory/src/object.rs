//! Objects at the API server, as far as the rules look at them.

use jiff::Timestamp;
use pacer_core::facts::{Container, PodFacts, PodPhase, Worker};
use pacer_core::ledger::Ledger;

use crate::clock::{At, wall};

/// Number of a Runner object. Its name, and that of its pod and of its registration, is made from it and never used twice.
pub type RunnerId = u32;

/// Name of a Runner, of its pod and at GitHub.
#[must_use]
pub fn name_of(runner: RunnerId) -> String {
    format!("r{runner}")
}

/// Whose name it is.
#[must_use]
pub fn runner_of(name: &str) -> Option<RunnerId> {
    name.strip_prefix('r').and_then(|number| number.parse().ok())
}

/// A RunnerDeployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// `spec.replicas`.
    pub replicas: u32,
    /// Which template it has.
    pub revision: u32,
    /// `spec.effectiveTime`.
    pub effective: Option<Timestamp>,
    /// Changes with each write.
    pub version: u64,
}

/// A RunnerReplicaSet; its number is its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Set {
    /// Which template it has.
    pub revision: u32,
    /// `spec.replicas`.
    pub replicas: u32,
    /// `spec.effectiveTime`.
    pub effective: Option<Timestamp>,
    /// Changes with each change of the spec.
    pub generation: i64,
    /// `status.failedAttempts`.
    pub attempts: u32,
    /// `status.lastScaleUpTime`.
    pub scaled_up: Option<Timestamp>,
    /// Changes with each write.
    pub version: u64,
}

/// A Runner; its name is made from its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runner {
    /// Number of its RunnerReplicaSet.
    pub set: u32,
    /// When it was made.
    pub created: At,
    /// Since when it is to go; the operator's finalizer holds it.
    pub deleting: Option<At>,
    /// `status.runnerId`.
    pub known_id: Option<u64>,
    /// Its status says that it had a pod.
    pub had_pod: bool,
    /// Changes with each write.
    pub version: u64,
}

/// A pod; it has the name of its Runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// UID of the pod: a number that no other pod of the run has.
    pub uid: u32,
    /// When it was made.
    pub created: At,
    /// Number of its node; none until it is scheduled.
    pub node: Option<u32>,
    /// When its container started.
    pub started: Option<At>,
    /// When its container ended, and with which code.
    pub ended: Option<(At, i32)>,
    /// `status.reason`.
    pub reason: &'static str,
    /// Since when it is, or was, ready.
    pub ready: Option<At>,
    /// What the kubelet's probe found last, and since when.
    pub worker: Option<(bool, At)>,
    /// Since when its node does not report.
    pub silent: Option<At>,
    /// Deletion timestamp: until when it may go on.
    pub deleting: Option<At>,
    /// Changes with each write.
    pub version: u64,
}

/// A HorizontalRunnerAutoscaler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scaler {
    /// Its spec makes sense.
    pub valid: bool,
    /// `status.desiredReplicas`.
    pub desired: Option<u32>,
    /// `status.lastSuccessfulScaleOutTime`.
    pub last_scale_out: Option<Timestamp>,
    /// Changes with each write.
    pub version: u64,
}

/// The JobLedgers of the autoscaler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Jobs {
    /// All jobs in them.
    pub ledger: Ledger,
    /// Changes with each write.
    pub version: u64,
}

impl Pod {
    /// What the rules are told of it, as `host/operator/src/observe.rs` reads it from the object.
    #[must_use]
    pub fn facts(&self, node_gone: bool) -> PodFacts {
        let container = match (self.started, self.ended) {
            (started, Some((ended, exit_code))) => Container::Terminated {
                exit_code,
                reason: if exit_code == 0 { "Completed" } else { "Error" }.to_owned(),
                message: String::new(),
                started: started.map(wall),
                finished: Some(wall(ended)),
            },
            (Some(started), None) => Container::Running { since: Some(wall(started)) },
            (None, None) => Container::Unreported,
        };
        let phase = match self.ended {
            Some((_, 0)) => PodPhase::Succeeded,
            Some(_) => PodPhase::Failed,
            None if self.reason == "Evicted" => PodPhase::Failed,
            None if self.started.is_some() => PodPhase::Running,
            None => PodPhase::Pending,
        };
        let worker = match self.worker {
            _ if self.silent.is_some() || self.ended.is_some() => Worker::Unknown,
            None => Worker::Unknown,
            Some((true, _)) => Worker::Running,
            Some((false, since)) => Worker::Absent { since: Some(wall(since)) },
        };
        PodFacts {
            uid: Some(self.uid.to_string()),
            resource_version: self.version.to_string(),
            created: wall(self.created),
            phase,
            node: self.node.map(|node| format!("n{node}")),
            node_gone,
            deleting: self.deleting.map(wall),
            ready_since: self.ready.filter(|_| self.silent.is_none()).map(wall),
            silent_since: self.silent.map(wall),
            container,
            worker,
            reason: self.reason.to_owned(),
            ..PodFacts::default()
        }
    }
}
