//! The invariants, and violations of them that were found.

use std::fmt;

use crate::clock::At;

/// What must hold after each step, and once everything has settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// No registration is removed of a runner that works, as the operator could have known.
    BusyUnregistered,
    /// No pod is deleted under a job, as the operator could have known.
    BusyPodDeleted,
    /// No job that is not over counts as over.
    JobDeclaredOver,
    /// No credentials exceed what GitHub allows in a minute.
    Limits,
    /// No more runners than the maximum and the surge.
    TooManyRunners,
    /// `min <= desired <= max`.
    OutOfBounds,
    /// No Runner has two agents, and none is made or removed twice.
    Twice,
    /// No start counts as failed that did not fail.
    FailureInvented,
    /// One runner for a job: no more are made than there are jobs and reasons.
    Surplus,
    /// Nothing is looked at without pause.
    HotLoop,
    /// When the faults are over, everything comes to rest: as many runners as desired, all jobs done.
    Convergence,
    /// When the fleet is deleted, nothing of it is left in the cluster or at GitHub.
    Leak,
}

impl Invariant {
    /// Stable word for scripts and tables.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BusyUnregistered => "busy-unregistered",
            Self::BusyPodDeleted => "busy-pod-deleted",
            Self::JobDeclaredOver => "job-declared-over",
            Self::Limits => "limits",
            Self::TooManyRunners => "too-many-runners",
            Self::OutOfBounds => "out-of-bounds",
            Self::Twice => "twice",
            Self::FailureInvented => "failure-invented",
            Self::Surplus => "surplus",
            Self::HotLoop => "hot-loop",
            Self::Convergence => "convergence",
            Self::Leak => "leak",
        }
    }
}

/// An invariant that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant that did not hold.
    pub invariant: Invariant,
    /// When in the run the check found it.
    pub at: At,
    /// What the check found, in words.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}.{:03} s: {}", self.invariant.as_str(), self.at / 1_000, self.at % 1_000, self.what)
    }
}
