//! Jobs that were cut short: the harm that the operator must never do.

use jiff::Timestamp;

use crate::github::JobId;

/// Why a job's pod ended before the job did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The pod was deleted and its grace period ran out.
    Deleted,
    /// The pod was deleted without a grace period.
    ForceDeleted,
    /// The pod was deleted by an eviction or another disruption, whose reason its `DisruptionTarget` condition gives.
    Disrupted(String),
    /// A test made the agent crash.
    Crashed,
    /// A test made the kernel kill the container.
    OutOfMemory,
    /// A test made the kubelet evict the pod.
    Evicted,
    /// A test made the node disappear.
    NodeLost,
}

impl Cause {
    /// Whether somebody deleted a pod that ran a job, as opposed to a fault that the test injected.
    #[must_use]
    pub fn is_deletion(&self) -> bool {
        matches!(self, Self::Deleted | Self::ForceDeleted)
    }
}

/// One job that its pod's end cut short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusyKill {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// UID of the pod.
    pub uid: String,
    /// Node of the pod.
    pub node: String,
    /// Job that was cut short.
    pub job: JobId,
    /// Why the pod ended.
    pub cause: Cause,
    /// When the job was cut short.
    pub at: Timestamp,
}
