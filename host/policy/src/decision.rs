//! The three questions a policy may answer.

use std::fmt;

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
}

impl Decision {
    /// All of them, in the contract's order.
    pub const ALL: [Self; 3] = [Self::ScaleDown, Self::Restart, Self::Capacity];

    /// The contract's name of the interface.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ScaleDown => "scale-down",
            Self::Restart => "restart",
            Self::Capacity => "capacity",
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
