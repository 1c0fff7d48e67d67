//! The policies of a run.

use std::cell::Cell;
use std::sync::Arc;

use pacer_core::policy::{CapacityPlan, CapacityRequest, Choice, RestartRequest, ScaleDownRequest, Verdict};
use pacer_policy::{
    Answer, Assignment, Chosen, Counters, DecidedBy, Decision, Digest, Evaluation, Generation, Inquiry, NO_SETTINGS, NOBODY,
    PolicyHost, SHIPPED,
};
use pacer_trace::History;
use tokio::runtime::Runtime;

/// Decisions that a simulation asks for; jobs that died with their runners are not played again.
const ASKED: [Decision; 3] = [Decision::ScaleDown, Decision::Restart, Decision::Capacity];

/// Asks policies as the operator does, one question at a time.
#[derive(Debug)]
pub struct Policies {
    name: String,
    runtime: Runtime,
    generation: Arc<Generation>,
    faults: Cell<u64>,
    /// The capacity policy is the shipped one, which goes by jobs, reservations and bounds alone, so its answer holds until one of them changes.
    by_jobs_alone: bool,
}

impl Policies {
    /// The shipped policy as it is linked into this program.
    ///
    /// # Errors
    ///
    /// When no runtime can be started.
    pub fn builtin() -> std::io::Result<Self> {
        let host = PolicyHost::new(Arc::new(Counters::default()));
        Self::of("builtin".to_owned(), host.generation())
    }

    /// Those of a generation. Must not be made or asked within a runtime.
    ///
    /// # Errors
    ///
    /// When no runtime can be started.
    pub fn of(name: String, generation: Arc<Generation>) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let capacity = generation.assignment(Decision::Capacity);
        let is_shipped = matches!(capacity.chosen, Chosen::Shipped | Chosen::Native);
        let by_jobs_alone = is_shipped && capacity.settings.as_ref() == NO_SETTINGS;
        Ok(Self { name, runtime, generation, faults: Cell::new(0), by_jobs_alone })
    }

    /// What they are called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Questions that another policy than the one in force had to answer. Those make a run depend on the machine that it ran on.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.faults.get()
    }

    /// Whether this is the policy that planned capacity. Where none is told, it is.
    pub(crate) fn planned(&self, recorded: Option<&str>) -> bool {
        recorded.is_none_or(|recorded| *recorded == self.generation.assignment(Decision::Capacity).policy())
    }

    /// Receipts of a trace that name another policy than these for their decision: which decision, which policy, and how many.
    #[must_use]
    pub fn others<'a>(&self, history: &'a History) -> Vec<(Decision, &'a str, u64)> {
        let shipped = Digest::of(SHIPPED).short();
        let told = ASKED.into_iter().filter_map(|decision| Some((decision, history.deciders.get(decision.as_str())?)));
        told.flat_map(|(decision, deciders)| deciders.iter().map(move |(policy, count)| (decision, policy.as_ref(), *count)))
            .filter(|(decision, policy, _)| {
                *policy != NOBODY && !is_named(self.generation.assignment(*decision), &shipped, policy)
            })
            .collect()
    }

    /// What they answer to a recorded question, with their own settings.
    #[must_use]
    pub fn answer_to(&self, inquiry: Inquiry) -> Answer {
        match inquiry {
            Inquiry::ScaleDown(request) => Answer::ScaleDown(self.scale_down(request)),
            Inquiry::Restart(request) => Answer::Restart(self.restart(request)),
            Inquiry::Capacity(request) => Answer::Capacity(self.capacity(request)),
            Inquiry::Recover(request) => {
                let evaluation = self.runtime.block_on(self.generation.recover(request));
                Answer::Recover(self.answer(evaluation))
            }
        }
    }

    pub(crate) fn go_by_jobs_alone(&self) -> bool {
        self.by_jobs_alone
    }

    pub(crate) fn capacity(&self, request: CapacityRequest) -> CapacityPlan {
        let evaluation = self.runtime.block_on(self.generation.capacity(request));
        self.answer(evaluation)
    }

    pub(crate) fn scale_down(&self, request: ScaleDownRequest) -> Vec<Choice> {
        let evaluation = self.runtime.block_on(self.generation.scale_down(request));
        self.answer(evaluation)
    }

    pub(crate) fn restart(&self, request: RestartRequest) -> Vec<Verdict> {
        let evaluation = self.runtime.block_on(self.generation.restart(request));
        self.answer(evaluation)
    }

    fn answer<T>(&self, evaluation: Evaluation<T>) -> T {
        if evaluation.fault.is_some() {
            self.faults.set(self.faults.get().saturating_add(1));
        }
        evaluation.answer
    }
}

/// Whether a receipt that names its policy so is of this one. The shipped policy, which has this digest, is the same natively and as a component.
fn is_named(assignment: &Assignment, shipped: &str, policy: &str) -> bool {
    match &assignment.chosen {
        Chosen::Shipped | Chosen::Native => {
            let digest = policy.rsplit_once('@').map(|(_, digest)| digest);
            policy == DecidedBy::Native.to_string() || digest == Some(shipped)
        }
        Chosen::Policy(chosen) => policy == chosen.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_policy_is_named_by_its_digest_or_natively() {
        let digest = Digest::of(SHIPPED).short();
        let shipped = format!("default@{digest}");
        for assignment in [Assignment::default(), Assignment { chosen: Chosen::Native, ..Assignment::default() }] {
            let named = ["native", shipped.as_str(), "default@sha256:0123456789ab", "default", "none"];
            assert_eq!(named.map(|policy| is_named(&assignment, &digest, policy)), [true, true, false, false, false]);
        }
    }
}
