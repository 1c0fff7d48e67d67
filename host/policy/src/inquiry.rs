//! A request of any of the three decisions, and its answer.

use pacer_core::policy::{CapacityPlan, CapacityRequest, Choice, Pool, RestartRequest, ScaleDownRequest, Verdict};
use serde::Serialize;
use serde_json::Value;

use crate::component::Digest;
use crate::decision::Decision;
use crate::rehearsal;

/// The same about whichever of the three requests it is.
macro_rules! each {
    ($inquiry:expr, $request:ident => $said:expr) => {
        match $inquiry {
            Inquiry::ScaleDown($request) => $said,
            Inquiry::Restart($request) => $said,
            Inquiry::Capacity($request) => $said,
        }
    };
}

pub(crate) use each;

/// A request of any of the three decisions.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Inquiry {
    /// Which idle runners go first?
    ScaleDown(ScaleDownRequest),
    /// What to do about runners that are not well?
    Restart(RestartRequest),
    /// Which reservations should exist?
    Capacity(CapacityRequest),
}

/// An answer that passed [`pacer_core::gate`]; as JSON in the contract's terms.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Answer {
    /// Who goes, in this order.
    ScaleDown(Vec<Choice>),
    /// What happens to whom.
    Restart(Vec<Verdict>),
    /// What is held for which jobs.
    Capacity(CapacityPlan),
}

impl Inquiry {
    /// An ordinary request about so many things, like those that policies are rehearsed with.
    #[must_use]
    pub fn typical(decision: Decision, items: u32) -> Self {
        match decision {
            Decision::ScaleDown => Self::ScaleDown(rehearsal::scale_down_of(items)),
            Decision::Restart => Self::Restart(rehearsal::restart_of(items)),
            Decision::Capacity => Self::Capacity(rehearsal::capacity_of(items)),
        }
    }

    /// Which decision it is about.
    #[must_use]
    pub fn decision(&self) -> Decision {
        match self {
            Self::ScaleDown(_) => Decision::ScaleDown,
            Self::Restart(_) => Decision::Restart,
            Self::Capacity(_) => Decision::Capacity,
        }
    }

    /// SHA-256 of the request as JSON, as receipts have it.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of_json(self)
    }

    /// Reads what [`Inquiry`] writes, whose JSON does not say which decision it is about.
    ///
    /// # Errors
    ///
    /// The field that is wrong, or that this version does not know.
    pub fn read(decision: Decision, json: Value) -> Result<Self, serde_json::Error> {
        Ok(match decision {
            Decision::ScaleDown => Self::ScaleDown(serde_json::from_value(json)?),
            Decision::Restart => Self::Restart(serde_json::from_value(json)?),
            Decision::Capacity => Self::Capacity(serde_json::from_value(json)?),
        })
    }

    /// What the request tells about the pool.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        each!(self, request => &request.pool)
    }

    /// Names of the runners it is about, in the order of their indices; none for capacity.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        match self {
            Self::ScaleDown(request) => request.candidates.iter().map(|candidate| candidate.name.as_str()).collect(),
            Self::Restart(request) => request.subjects.iter().map(|subject| subject.name.as_str()).collect(),
            Self::Capacity(_) => Vec::new(),
        }
    }

    /// The settings in the request itself.
    #[must_use]
    pub fn settings(&self) -> &str {
        each!(self, request => &request.settings)
    }
}

impl Answer {
    /// SHA-256 of the answer as JSON, as receipts have it.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of_json(self)
    }

    /// Reads what [`Answer`] writes, whose JSON does not say which decision it belongs to.
    ///
    /// # Errors
    ///
    /// The field that is wrong, or that this version does not know.
    pub fn read(decision: Decision, json: Value) -> Result<Self, serde_json::Error> {
        Ok(match decision {
            Decision::ScaleDown => Self::ScaleDown(serde_json::from_value(json)?),
            Decision::Restart => Self::Restart(serde_json::from_value(json)?),
            Decision::Capacity => Self::Capacity(serde_json::from_value(json)?),
        })
    }
}

impl From<Vec<Choice>> for Answer {
    fn from(choices: Vec<Choice>) -> Self {
        Self::ScaleDown(choices)
    }
}

impl From<Vec<Verdict>> for Answer {
    fn from(verdicts: Vec<Verdict>) -> Self {
        Self::Restart(verdicts)
    }
}

impl From<CapacityPlan> for Answer {
    fn from(plan: CapacityPlan) -> Self {
        Self::Capacity(plan)
    }
}
