//! How each decision is put to a component.

use pacer_core::gate::{self, GateError};
use pacer_core::policy::{
    CapacityPlan, CapacityRequest, Choice, RecoverRequest, Recovery, RestartRequest, ScaleDownRequest, Verdict,
};
use pacer_policy::call::Called;
use pacer_policy::{Decision, Fault, Limits};
use serde::Serialize;
use serde::de::DeserializeOwned;
use wasmtime::Store;
use wasmtime::component::Instance;

use crate::call::call;
use crate::engine::Engine;
use crate::guest::Guest;
use crate::linked::{Linked, Version};
use crate::wire::{self, next};

/// An instance of a component that nobody has called yet.
pub(crate) struct Fresh<'a> {
    linked: &'a Linked,
    store: &'a mut Store<Guest>,
    instance: &'a Instance,
}

/// A request that knows how to be put to a component.
pub(crate) trait Question: DeserializeOwned {
    /// The answer of the policy: choices, verdicts, a capacity plan or recoveries.
    type Answer: Serialize + Clone + PartialEq;
    const DECISION: Decision;

    /// How many things are decided about; the budget grows with it.
    fn items(&self) -> usize;

    /// What the component says, which is not checked yet; none when it does not export the decision.
    fn put(&self, settings: &str, to: Fresh<'_>) -> wasmtime::Result<Option<Result<Self::Answer, String>>>;

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
    call(engine, linked, limits, request.items(), |store, instance| {
        Ok(match request.put(settings, Fresh { linked, store, instance })? {
            Some(answer) => answer.map_err(|text| Fault::declined(&text)),
            None => Err(Fault::Load(format!("it does not export {}", Q::DECISION))),
        })
    })
}

impl Question for ScaleDownRequest {
    type Answer = Vec<Choice>;
    const DECISION: Decision = Decision::ScaleDown;

    fn items(&self) -> usize {
        self.candidates.len()
    }

    fn put(&self, settings: &str, to: Fresh<'_>) -> wasmtime::Result<Option<Result<Self::Answer, String>>> {
        Ok(Some(match &to.linked.scale_down {
            None => return Ok(None),
            Some(Version::First(indices)) => {
                let guest = indices.load(&mut *to.store, to.instance)?;
                guest.call_select(to.store, &wire::scale_down_request(self, settings))?.map(wire::choices)
            }
            Some(Version::Next(indices)) => {
                let guest = indices.load(&mut *to.store, to.instance)?;
                guest.call_select(to.store, &next::scale_down_request(self, settings))?.map(next::choices)
            }
        }))
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

    fn put(&self, settings: &str, to: Fresh<'_>) -> wasmtime::Result<Option<Result<Self::Answer, String>>> {
        Ok(Some(match &to.linked.restart {
            None => return Ok(None),
            Some(Version::First(indices)) => {
                let guest = indices.load(&mut *to.store, to.instance)?;
                guest.call_decide(to.store, &wire::restart_request(self, settings))?.map(wire::verdicts)
            }
            Some(Version::Next(indices)) => {
                let guest = indices.load(&mut *to.store, to.instance)?;
                guest.call_decide(to.store, &next::restart_request(self, settings))?.map(next::verdicts)
            }
        }))
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

    fn put(&self, settings: &str, to: Fresh<'_>) -> wasmtime::Result<Option<Result<Self::Answer, String>>> {
        Ok(Some(match &to.linked.capacity {
            None => return Ok(None),
            Some(Version::First(indices)) => {
                let guest = indices.load(&mut *to.store, to.instance)?;
                guest.call_plan(to.store, &wire::capacity_request(self, settings))?.map(wire::plan)
            }
            Some(Version::Next(indices)) => {
                let guest = indices.load(&mut *to.store, to.instance)?;
                guest.call_plan(to.store, &next::capacity_request(self, settings))?.map(next::plan)
            }
        }))
    }

    fn gate(&self, answer: Self::Answer) -> Result<Self::Answer, GateError> {
        gate::plan(self, answer)
    }
}

impl Question for RecoverRequest {
    type Answer = Vec<Recovery>;
    const DECISION: Decision = Decision::Recover;

    fn items(&self) -> usize {
        self.jobs.len()
    }

    fn put(&self, settings: &str, to: Fresh<'_>) -> wasmtime::Result<Option<Result<Self::Answer, String>>> {
        let Some(indices) = &to.linked.recover else { return Ok(None) };
        let guest = indices.load(&mut *to.store, to.instance)?;
        Ok(Some(guest.call_decide(to.store, &next::recover_request(self, settings))?.map(next::recoveries)))
    }

    fn gate(&self, answer: Self::Answer) -> Result<Self::Answer, GateError> {
        gate::recoveries(self, answer)
    }
}
