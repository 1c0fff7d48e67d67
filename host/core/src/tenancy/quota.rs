//! How much a namespace may have.

use std::fmt;

/// Most of each; without a limit where it is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quotas {
    /// Runners, those that are on their way out included.
    pub runners: Option<u32>,
    /// RunnerDeployments, RunnerSets, and RunnerReplicaSets that stand alone.
    pub fleets: Option<u32>,
    /// Policy sets that are staged or in force.
    pub policy_sets: Option<u32>,
    /// GitHub calls in a minute, with whatever credentials; at least 1. See [`super::Calls`].
    pub calls_per_minute: Option<u32>,
}

/// What a quota is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    /// See [`Quotas::runners`].
    Runners,
    /// See [`Quotas::fleets`].
    Fleets,
    /// See [`Quotas::policy_sets`].
    PolicySets,
}

impl Quota {
    /// The key in the tenancy file.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Runners => "runners",
            Self::Fleets => "fleets",
            Self::PolicySets => "policySets",
        }
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Runners => "runners",
            Self::Fleets => "fleets (RunnerDeployments, RunnerSets and stand-alone RunnerReplicaSets)",
            Self::PolicySets => "policy sets",
        })
    }
}

impl Quotas {
    /// How many runners more a namespace may have; none without a limit.
    #[must_use]
    pub fn more_runners(&self, present: u32) -> Option<u32> {
        self.runners.map(|most| most.saturating_sub(present))
    }

    /// Whether the fleet at this place, by age from 0, is one too many.
    #[must_use]
    pub fn exceeds_fleets(&self, place: usize) -> bool {
        self.fleets.is_some_and(|most| u32::try_from(place).unwrap_or(u32::MAX) >= most)
    }
}
