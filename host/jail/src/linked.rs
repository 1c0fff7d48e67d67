//! A component linked to this host.

use std::sync::Arc;

use pacer_policy::{Decision, PerDecision};
use wasmtime::component::{Component, InstancePre};

use crate::bindings::exports::pacer::policy as first;
use crate::bindings::next::exports::pacer::policy as next;
use crate::engine::Engine;
use crate::guest::Guest;

/// What a component exports of one version of the contract or of the other. A component may mix them.
#[derive(Clone)]
pub(crate) enum Version<A, B> {
    /// Of 0.1.0.
    First(A),
    /// Of 0.2.0.
    Next(B),
}

/// The places of the functions of an interface that both versions have; the newer one counts where a component has both.
fn either<A, B>(
    next: impl FnOnce(&InstancePre<Guest>) -> wasmtime::Result<B>,
    first: impl FnOnce(&InstancePre<Guest>) -> wasmtime::Result<A>,
    pre: &InstancePre<Guest>,
) -> wasmtime::Result<Version<A, B>> {
    next(pre).map(Version::Next).or_else(|_| first(pre).map(Version::First))
}

/// A component linked to this host, with the places of its functions.
#[derive(Clone)]
pub(crate) struct Linked {
    pub(crate) pre: InstancePre<Guest>,
    pub(crate) lifecycle: Version<first::lifecycle::GuestIndices, next::lifecycle::GuestIndices>,
    pub(crate) scale_down: Option<Version<first::scale_down::GuestIndices, next::scale_down::GuestIndices>>,
    pub(crate) restart: Option<Version<first::restart::GuestIndices, next::restart::GuestIndices>>,
    pub(crate) capacity: Option<Version<first::capacity::GuestIndices, next::capacity::GuestIndices>>,
    pub(crate) recover: Option<next::recover::GuestIndices>,
    /// What it runs, where it is an interpreter.
    pub(crate) text: Option<Arc<str>>,
}

impl Linked {
    /// With the places of everything that it has under the contract's names.
    ///
    /// # Errors
    ///
    /// When it has no lifecycle.
    pub(crate) fn find(pre: InstancePre<Guest>) -> wasmtime::Result<Self> {
        Ok(Self {
            lifecycle: either(next::lifecycle::GuestIndices::new, first::lifecycle::GuestIndices::new, &pre)?,
            scale_down: either(next::scale_down::GuestIndices::new, first::scale_down::GuestIndices::new, &pre).ok(),
            restart: either(next::restart::GuestIndices::new, first::restart::GuestIndices::new, &pre).ok(),
            capacity: either(next::capacity::GuestIndices::new, first::capacity::GuestIndices::new, &pre).ok(),
            recover: next::recover::GuestIndices::new(&pre).ok(),
            pre,
            text: None,
        })
    }

    /// A component that passed every check in another process. It takes those decisions that it has; that these are of the right types was checked
    /// when it was compiled.
    pub(crate) fn adopt(engine: &Engine, component: &Component) -> wasmtime::Result<Self> {
        Self::find(engine.link(component)?)
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
            Decision::Recover => self.recover.is_some(),
        })
    }
}
