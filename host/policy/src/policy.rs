//! A compiled policy and how it is asked.

use std::fmt;

use serde::{Deserialize, Serialize};
use wasmtime::component::InstancePre;

use crate::bindings::exports::pacer::policy::{capacity, lifecycle, restart, scale_down};
use crate::call::{Called, call};
use crate::component::Digest;
use crate::decision::Decision;
use crate::engine::Engine;
use crate::limits::Limits;
use crate::log::Guest;
use crate::question::Question;

/// What a policy says about itself; every text scrubbed and shortened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Description {
    /// Its name, at most 63 bytes; never empty.
    pub name: String,
    /// Its version, at most 63 bytes.
    pub version: String,
    /// One line, at most 256 bytes.
    pub summary: String,
    /// JSON Schema of its settings.
    pub settings_schema: Option<String>,
}

/// A component linked to this host, with the places of its functions.
pub(crate) struct Linked {
    pub(crate) pre: InstancePre<Guest>,
    pub(crate) lifecycle: lifecycle::GuestIndices,
    pub(crate) scale_down: Option<scale_down::GuestIndices>,
    pub(crate) restart: Option<restart::GuestIndices>,
    pub(crate) capacity: Option<capacity::GuestIndices>,
}

/// A policy that passed every check of [`Policy::load`]. Immutable; calls share nothing.
pub struct Policy {
    pub(crate) linked: Linked,
    pub(crate) description: Description,
    pub(crate) digest: Digest,
    pub(crate) size: usize,
}

impl Policy {
    /// What it says about itself.
    #[must_use]
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// SHA-256 of the component.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Size of the component in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// The decisions it takes.
    #[must_use]
    pub fn decisions(&self) -> Vec<Decision> {
        Decision::ALL.into_iter().filter(|&decision| self.takes(decision)).collect()
    }

    /// Whether it takes this decision.
    #[must_use]
    pub fn takes(&self, decision: Decision) -> bool {
        match decision {
            Decision::ScaleDown => self.linked.scale_down.is_some(),
            Decision::Restart => self.linked.restart.is_some(),
            Decision::Capacity => self.linked.capacity.is_some(),
        }
    }

    /// One call, with its answer checked by the gate.
    pub(crate) fn ask<Q: Question>(&self, engine: &Engine, request: &Q, settings: &str, limits: &Limits) -> Called<Q::Answer> {
        let (answer, usage) = call(engine, &self.linked.pre, limits, request.items(), |store, instance| {
            request.ask(settings, &self.linked, store, instance)
        });
        (answer.and_then(|answer| Ok(request.gate(answer)?)), usage)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.description.name, self.digest.short())
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Policy({self})")
    }
}
