//! One question put to one policy, without a generation, a fallback or a queue: what authors try their policies with.

use std::time::Duration;

use crate::call::Called;
use crate::fault::Fault;
use crate::inquiry::{Answer, Inquiry, each};
use crate::jail::Jail;
use crate::limits::Limits;
use crate::log::LogLine;
use crate::policy::Policy;
use crate::question::{Question, natively};

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
    /// Log lines of the policy that are kept.
    pub log: Vec<LogLine>,
    /// Lines beyond those that are kept.
    pub log_dropped: u32,
}

impl Inquiry {
    /// How many things it is about; the budget of instructions grows with it.
    #[must_use]
    pub fn items(&self) -> usize {
        each!(self, request => request.items())
    }

    /// Asks the shipped policy as it is linked into this program.
    ///
    /// # Errors
    ///
    /// What the policy says, or that it panicked or broke the contract.
    pub fn natively(&self, settings: &str) -> Result<Answer, Fault> {
        each!(self, request => natively(request, settings).map(Answer::from))
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
