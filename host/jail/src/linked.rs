//! A component linked to this host.

use std::sync::Arc;

use pacer_policy::{Decision, PerDecision};
use wasmtime::component::{Component, InstancePre};

use crate::bindings::exports::pacer::policy::{capacity, lifecycle, restart, scale_down};
use crate::engine::Engine;
use crate::guest::Guest;

/// A component linked to this host, with the places of its functions.
#[derive(Clone)]
pub(crate) struct Linked {
    pub(crate) pre: InstancePre<Guest>,
    pub(crate) lifecycle: lifecycle::GuestIndices,
    pub(crate) scale_down: Option<scale_down::GuestIndices>,
    pub(crate) restart: Option<restart::GuestIndices>,
    pub(crate) capacity: Option<capacity::GuestIndices>,
    /// What it runs, where it is an interpreter.
    pub(crate) text: Option<Arc<str>>,
}

impl Linked {
    /// A component that passed every check in another process.
    pub(crate) fn adopt(engine: &Engine, component: &Component) -> wasmtime::Result<Self> {
        let pre = engine.link(component)?;
        Ok(Self {
            lifecycle: lifecycle::GuestIndices::new(&pre)?,
            // It takes those that it has; that these are of the right types was checked when it was compiled.
            scale_down: scale_down::GuestIndices::new(&pre).ok(),
            restart: restart::GuestIndices::new(&pre).ok(),
            capacity: capacity::GuestIndices::new(&pre).ok(),
            pre,
            text: None,
        })
    }

    /// The same component with a text to run.
    pub(crate) fn with_text(&self, text: &str) -> Self {
        Self { text: Some(Arc::from(text)), ..self.clone() }
    }

    /// The decisions it takes.
    pub(crate) fn takes(&self) -> PerDecision<bool> {
        PerDecision::from_fn(|decision| match decision {
            Decision::ScaleDown => self.scale_down.is_some(),
            Decision::Restart => self.restart.is_some(),
            Decision::Capacity => self.capacity.is_some(),
        })
    }
}
