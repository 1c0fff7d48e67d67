//! How each decision is put to a component.

use pacer_core::gate::{self, GateError};
use pacer_core::policy::{CapacityPlan, CapacityRequest, Choice, RestartRequest, ScaleDownRequest, Verdict};
use pacer_policy::call::Called;
use pacer_policy::{Decision, Fault, Limits};
use serde::Serialize;
use serde::de::DeserializeOwned;
use wasmtime::Store;
use wasmtime::component::Instance;

use crate::call::call;
use crate::engine::Engine;
use crate::guest::Guest;
use crate::linked::Linked;
use crate::wire;

/// A request that knows how to be put to a component.
pub(crate) trait Question: DeserializeOwned {
    /// What is answered.
    type Answer: Serialize + Clone + PartialEq;
    const DECISION: Decision;

    /// How many things are decided about; the budget grows with it.
    fn items(&self) -> usize;

    fn put(
        &self,
        settings: &str,
        linked: &Linked,
        store: &mut Store<Guest>,
        instance: &Instance,
    ) -> wasmtime::Result<Result<Self::Answer, Fault>>;

    /// Voids structural lies; the operator does it again with what it gets.
    fn gate(&self, answer: Self::Answer) -> Result<Self::Answer, GateError>;
}

/// One call, whose answer is not checked yet.
pub(crate) fn ask<Q: Question>(
    engine: &Engine,
    linked: &Linked,
    request: &Q,
    settings: &str,
    limits: &Limits,
) -> Called<Q::Answer> {
    call(engine, &linked.pre, limits, request.items(), |store, instance| request.put(settings, linked, store, instance))
}

fn unanswered(decision: Decision) -> Fault {
    Fault::Load(format!("it does not export {decision}"))
}

impl Question for ScaleDownRequest {
    type Answer = Vec<Choice>;
    const DECISION: Decision = Decision::ScaleDown;

    fn items(&self) -> usize {
        self.candidates.len()
    }

    fn put(
        &self,
        settings: &str,
        linked: &Linked,
        store: &mut Store<Guest>,
        instance: &Instance,
    ) -> wasmtime::Result<Result<Self::Answer, Fault>> {
        let Some(indices) = &linked.scale_down else { return Ok(Err(unanswered(Self::DECISION))) };
        let request = wire::scale_down_request(self, settings);
        let answer = indices.load(&mut *store, instance)?.call_select(store, &request)?;
        Ok(answer.map(wire::choices).map_err(|text| Fault::declined(&text)))
    }

    fn gate(&self, answer: Self::Answer) -> Result<Self::Answer, GateError> {
        gate::choices(self, answer)
    }
}

impl Question for RestartRequest {
    type Answer = Vec<Verdict>;
    const DECISION: Decision = Decision::Restart;

    fn items(&self) -> usize {
        self.subjects.len()
    }

    fn put(
        &self,
        settings: &str,
        linked: &Linked,
        store: &mut Store<Guest>,
        instance: &Instance,
    ) -> wasmtime::Result<Result<Self::Answer, Fault>> {
        let Some(indices) = &linked.restart else { return Ok(Err(unanswered(Self::DECISION))) };
        let request = wire::restart_request(self, settings);
        let answer = indices.load(&mut *store, instance)?.call_decide(store, &request)?;
        Ok(answer.map(wire::verdicts).map_err(|text| Fault::declined(&text)))
    }

    fn gate(&self, answer: Self::Answer) -> Result<Self::Answer, GateError> {
        gate::verdicts(self, answer)
    }
}

impl Question for CapacityRequest {
    type Answer = CapacityPlan;
    const DECISION: Decision = Decision::Capacity;

    fn items(&self) -> usize {
        self.jobs.len().saturating_add(self.reservations.len())
    }

    fn put(
        &self,
        settings: &str,
        linked: &Linked,
        store: &mut Store<Guest>,
        instance: &Instance,
    ) -> wasmtime::Result<Result<Self::Answer, Fault>> {
        let Some(indices) = &linked.capacity else { return Ok(Err(unanswered(Self::DECISION))) };
        let request = wire::capacity_request(self, settings);
        let answer = indices.load(&mut *store, instance)?.call_plan(store, &request)?;
        Ok(answer.map(wire::plan).map_err(|text| Fault::declined(&text)))
    }

    fn gate(&self, answer: Self::Answer) -> Result<Self::Answer, GateError> {
        gate::plan(self, answer)
    }
}
