//! What the four decisions have in common, so that everything above is written once.

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use pacer_core::gate::{self, GateError};
use pacer_core::policy::{
    CapacityPlan, CapacityRequest, Choice, RecoverRequest, Recovery, Reservation, RestartRequest, ScaleDownRequest, Verdict,
};
use pacer_policy_default::Default as Shipped;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::component::Digest;
use crate::decision::Decision;
use crate::fault::{Fault, PANIC};
use crate::inquiry::{Answer, Inquiry};
use crate::wire;

/// A request that knows how to be put to a component and to the linked policy.
pub(crate) trait Question: Serialize + Send + Sync + 'static {
    /// The answer to the request: choices, verdicts, a capacity plan or recoveries.
    type Answer: Serialize + DeserializeOwned + Clone + Debug + PartialEq + Into<Answer> + Send + 'static;
    /// Which decision this is.
    const DECISION: Decision;

    /// How many things are decided about; the budget grows with it.
    fn items(&self) -> usize;

    /// Puts the settings into the request, where they belong for whoever replays it.
    fn set_settings(&mut self, settings: &str);

    /// The same as one of all four, for whoever writes it down.
    fn inquiry(&self) -> Inquiry;

    /// Asks the shipped policy as it is linked into this program.
    fn ask_natively(&self, settings: &str) -> Result<Self::Answer, String>;

    /// Voids structural lies, clamps numbers and scrubs texts.
    fn gate(&self, answer: Self::Answer) -> Result<Self::Answer, GateError>;

    /// The answer that changes nothing.
    fn nothing() -> Self::Answer;

    /// How many things an answer names.
    fn named(answer: &Self::Answer) -> usize;

    /// Whether two answers would have the same effect, whatever reasons they give.
    fn same(one: &Self::Answer, other: &Self::Answer) -> bool;
}

/// A question on its way: shared by the attempts to answer it.
#[derive(Debug)]
pub(crate) struct Asked<Q> {
    pub(crate) request: Q,
    input: OnceLock<Digest>,
}

impl<Q: Question> Asked<Q> {
    pub(crate) fn new(request: Q) -> Arc<Self> {
        Arc::new(Self { request, input: OnceLock::new() })
    }

    /// SHA-256 of the request as JSON, whose fields have one order. Computed where it is first asked for, because it takes as long as a
    /// call.
    pub(crate) fn input(&self) -> Digest {
        *self.input.get_or_init(|| Digest::of_json(&self.request))
    }
}

/// The request of a decision, shared with whoever still answers it.
#[derive(Clone)]
pub struct Input(Arc<dyn Written>);

impl Input {
    /// A copy of the request, with the settings that the policy in force has. Takes as long as there are things in it.
    #[must_use]
    pub fn inquiry(&self) -> Inquiry {
        self.0.inquiry()
    }
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Input(..)")
    }
}

impl<Q: Question> From<Arc<Asked<Q>>> for Input {
    fn from(asked: Arc<Asked<Q>>) -> Self {
        Self(asked)
    }
}

trait Written: Send + Sync {
    fn inquiry(&self) -> Inquiry;
}

impl<Q: Question> Written for Asked<Q> {
    fn inquiry(&self) -> Inquiry {
        self.request.inquiry()
    }
}

/// Asks the shipped policy as it is linked. It is our own code, and still no bug in it may stop the operator.
pub(crate) fn natively<Q: Question>(request: &Q, settings: &str) -> Result<Q::Answer, Fault> {
    let answer = catch_unwind(AssertUnwindSafe(|| request.ask_natively(settings))).map_err(|payload| panicked(&*payload))?;
    let answer = answer.map_err(|text| Fault::declined(&text))?;
    Ok(request.gate(answer)?)
}

/// The fault of a panic with this payload.
fn panicked(payload: &(dyn Any + Send)) -> Fault {
    let text = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    Fault::of_kind("panic", &text.map(|text| format!("{PANIC}{text}")).unwrap_or_default())
}

impl Question for ScaleDownRequest {
    type Answer = Vec<Choice>;
    const DECISION: Decision = Decision::ScaleDown;

    fn items(&self) -> usize {
        self.candidates.len()
    }

    fn set_settings(&mut self, settings: &str) {
        settings.clone_into(&mut self.settings);
    }

    fn inquiry(&self) -> Inquiry {
        Inquiry::ScaleDown(self.clone())
    }

    fn ask_natively(&self, settings: &str) -> Result<Self::Answer, String> {
        pacer_policy_sdk::scale_down::answer::<Shipped>(&wire::sdk::scale_down_request(self, settings)).map(wire::sdk::choices)
    }

    fn gate(&self, answer: Self::Answer) -> Result<Self::Answer, GateError> {
        gate::choices(self, answer)
    }

    fn nothing() -> Self::Answer {
        Vec::new()
    }

    fn named(answer: &Self::Answer) -> usize {
        answer.len()
    }

    fn same(one: &Self::Answer, other: &Self::Answer) -> bool {
        let chosen = |answer: &[Choice]| answer.iter().map(|choice| choice.index).collect::<BTreeSet<_>>();
        chosen(one) == chosen(other)
    }
}

impl Question for RestartRequest {
    type Answer = Vec<Verdict>;
    const DECISION: Decision = Decision::Restart;

    fn items(&self) -> usize {
        self.subjects.len()
    }

    fn set_settings(&mut self, settings: &str) {
        settings.clone_into(&mut self.settings);
    }

    fn inquiry(&self) -> Inquiry {
        Inquiry::Restart(self.clone())
    }

    fn ask_natively(&self, settings: &str) -> Result<Self::Answer, String> {
        pacer_policy_sdk::restart::answer::<Shipped>(&wire::sdk::restart_request(self, settings)).map(wire::sdk::verdicts)
    }

    fn gate(&self, answer: Self::Answer) -> Result<Self::Answer, GateError> {
        gate::verdicts(self, answer)
    }

    fn nothing() -> Self::Answer {
        Vec::new()
    }

    fn named(answer: &Self::Answer) -> usize {
        answer.len()
    }

    fn same(one: &Self::Answer, other: &Self::Answer) -> bool {
        fn effects(answer: &[Verdict]) -> BTreeSet<(u32, &str, Option<u32>)> {
            answer.iter().map(|verdict| (verdict.index, verdict.action.as_str(), verdict.after)).collect()
        }
        effects(one) == effects(other)
    }
}

impl Question for CapacityRequest {
    type Answer = CapacityPlan;
    const DECISION: Decision = Decision::Capacity;

    fn items(&self) -> usize {
        self.jobs.len().saturating_add(self.reservations.len())
    }

    fn set_settings(&mut self, settings: &str) {
        settings.clone_into(&mut self.settings);
    }

    fn inquiry(&self) -> Inquiry {
        Inquiry::Capacity(self.clone())
    }

    fn ask_natively(&self, settings: &str) -> Result<Self::Answer, String> {
        pacer_policy_sdk::capacity::answer::<Shipped>(&wire::sdk::capacity_request(self, settings)).map(wire::sdk::plan)
    }

    fn gate(&self, answer: Self::Answer) -> Result<Self::Answer, GateError> {
        gate::plan(self, answer)
    }

    fn nothing() -> Self::Answer {
        CapacityPlan::default()
    }

    fn named(answer: &Self::Answer) -> usize {
        answer.reservations.len()
    }

    fn same(one: &Self::Answer, other: &Self::Answer) -> bool {
        fn effects(plan: &CapacityPlan) -> Vec<(BTreeSet<u64>, u32, i32, u32)> {
            let effect = |held: &Reservation| (held.jobs.iter().copied().collect(), held.replicas, held.effective, held.expires);
            let mut effects: Vec<_> = plan.reservations.iter().map(effect).collect();
            effects.sort();
            effects
        }
        one.ceiling == other.ceiling && effects(one) == effects(other)
    }
}

impl Question for RecoverRequest {
    type Answer = Vec<Recovery>;
    const DECISION: Decision = Decision::Recover;

    fn items(&self) -> usize {
        self.jobs.len()
    }

    fn set_settings(&mut self, settings: &str) {
        settings.clone_into(&mut self.settings);
    }

    fn inquiry(&self) -> Inquiry {
        Inquiry::Recover(self.clone())
    }

    fn ask_natively(&self, settings: &str) -> Result<Self::Answer, String> {
        pacer_policy_sdk::recover::answer::<Shipped>(&wire::sdk::recover_request(self, settings)).map(wire::sdk::recoveries)
    }

    fn gate(&self, answer: Self::Answer) -> Result<Self::Answer, GateError> {
        gate::recoveries(self, answer)
    }

    fn nothing() -> Self::Answer {
        Vec::new()
    }

    fn named(answer: &Self::Answer) -> usize {
        answer.len()
    }

    fn same(one: &Self::Answer, other: &Self::Answer) -> bool {
        // To leave a job and to say nothing about it is the same.
        fn effects(answer: &[Recovery]) -> BTreeSet<(u32, Option<u32>)> {
            answer.iter().filter(|verdict| verdict.action == "rerun").map(|verdict| (verdict.index, verdict.after)).collect()
        }
        effects(one) == effects(other)
    }
}
