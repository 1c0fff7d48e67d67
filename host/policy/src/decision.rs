//! The four questions a policy may answer.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// One of the contract's decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    /// Which idle runners go first.
    ScaleDown,
    /// What to do about a runner that is not well.
    Restart,
    /// How much capacity to hold.
    Capacity,
    /// Whether jobs that died with their runners run again.
    Recover,
}

impl Decision {
    /// All of them, in the contract's order.
    pub const ALL: [Self; 4] = [Self::ScaleDown, Self::Restart, Self::Capacity, Self::Recover];

    /// The contract's name of the interface.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ScaleDown => "scale-down",
            Self::Restart => "restart",
            Self::Capacity => "capacity",
            Self::Recover => "recover",
        }
    }
}

/// One thing for each decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PerDecision<T> {
    /// Which idle runners go first.
    pub scale_down: T,
    /// What to do about runners that are not well.
    pub restart: T,
    /// How much capacity to hold.
    pub capacity: T,
    /// Whether jobs that died with their runners run again.
    #[serde(default)]
    pub recover: T,
}

impl<T> PerDecision<T> {
    /// The one of this decision.
    #[must_use]
    pub fn get(&self, decision: Decision) -> &T {
        match decision {
            Decision::ScaleDown => &self.scale_down,
            Decision::Restart => &self.restart,
            Decision::Capacity => &self.capacity,
            Decision::Recover => &self.recover,
        }
    }

    /// The one of this decision, to be changed.
    pub fn get_mut(&mut self, decision: Decision) -> &mut T {
        match decision {
            Decision::ScaleDown => &mut self.scale_down,
            Decision::Restart => &mut self.restart,
            Decision::Capacity => &mut self.capacity,
            Decision::Recover => &mut self.recover,
        }
    }

    /// Makes each from its decision.
    pub fn from_fn(mut make: impl FnMut(Decision) -> T) -> Self {
        Self {
            scale_down: make(Decision::ScaleDown),
            restart: make(Decision::Restart),
            capacity: make(Decision::Capacity),
            recover: make(Decision::Recover),
        }
    }

    /// Each with its decision, in the contract's order.
    pub fn iter(&self) -> impl Iterator<Item = (Decision, &T)> {
        Decision::ALL.into_iter().map(|decision| (decision, self.get(decision)))
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that is the name of no decision.
#[derive(Debug, thiserror::Error)]
#[error("use scale-down, restart, capacity or recover")]
pub struct UnknownDecision;

impl FromStr for Decision {
    type Err = UnknownDecision;

    fn from_str(name: &str) -> Result<Self, UnknownDecision> {
        Self::ALL.into_iter().find(|decision| decision.as_str() == name).ok_or(UnknownDecision)
    }
}
