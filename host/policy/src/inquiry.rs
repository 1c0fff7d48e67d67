//! One question put to one policy, without a generation, a fallback or a queue: what authors try their policies with.

use std::time::Duration;

use pacer_core::policy::{CapacityPlan, CapacityRequest, Choice, Pool, RestartRequest, ScaleDownRequest, Verdict};
use serde::Serialize;
use serde_json::Value;

use crate::call::Called;
use crate::component::Digest;
use crate::decision::Decision;
use crate::fault::Fault;
use crate::jail::Jail;
use crate::limits::Limits;
use crate::log::LogLine;
use crate::policy::Policy;
use crate::question::{Question, digest};
use crate::{rehearsal, sandbox};

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

/// What came of an [`Inquiry`], and what it took.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The checked answer, or why there is none.
    pub answer: Result<Answer, Fault>,
    /// Instructions executed, in wasmtime's units of fuel.
    pub fuel: u64,
    /// Time from question to answer, with the way to the process that runs the policy and back.
    pub duration: Duration,
    /// Of that, the time from store to answer in the process that runs the policy.
    pub inside: Duration,
    /// Most linear memory held at once, in bytes.
    pub peak_memory: usize,
    /// What it said.
    pub log: Vec<LogLine>,
    /// Lines beyond those that are kept.
    pub log_dropped: u32,
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
        each!(self, request => decision_of(request))
    }

    /// How many things it is about; the budget of instructions grows with it.
    #[must_use]
    pub fn items(&self) -> usize {
        each!(self, request => request.items())
    }

    /// SHA-256 of the request as JSON, as receipts have it.
    #[must_use]
    pub fn digest(&self) -> Digest {
        digest(self)
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

    /// Asks the shipped policy as it is linked into this program.
    ///
    /// # Errors
    ///
    /// What the policy says, or that it panicked or broke the contract.
    pub fn natively(&self, settings: &str) -> Result<Answer, Fault> {
        each!(self, request => sandbox::natively(request, settings).map(Answer::from))
    }
}

fn decision_of<Q: Question>(_: &Q) -> Decision {
    Q::DECISION
}

impl Answer {
    /// SHA-256 of the answer as JSON, as receipts have it.
    #[must_use]
    pub fn digest(&self) -> Digest {
        digest(self)
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

impl Policy {
    /// Puts one question, with these settings instead of the request's. Blocks for at most the deadline.
    #[must_use]
    pub fn answer(&self, jail: &Jail, inquiry: &Inquiry, settings: &str, limits: &Limits) -> Outcome {
        each!(inquiry, request => Outcome::of(self.ask(jail, request, settings, limits, || {})))
    }
}

impl Outcome {
    fn of<T: Into<Answer>>((answer, usage): Called<T>) -> Self {
        Self {
            answer: answer.map(T::into),
            fuel: usage.fuel,
            duration: usage.duration,
            inside: usage.inside,
            peak_memory: usage.peak_memory,
            log: usage.lines,
            log_dropped: usage.dropped,
        }
    }
}
