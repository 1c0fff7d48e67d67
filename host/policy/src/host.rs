//! The policies of a process: loads them, puts sets into force, hands out the current one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::decision::Decision;
use crate::engine::Engine;
use crate::generation::{Chosen, Generation, PolicySet};
use crate::load::{LoadError, Refusal};
use crate::observer::Observer;
use crate::policy::Policy;
use crate::sandbox::Sandbox;

/// The policy pacer ships, as a component.
pub const SHIPPED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/default.wasm"));

/// How long a policy may take to load. Compilation can't be interrupted; past this it counts as failed, whenever it ends.
const PATIENCE: Duration = Duration::from_secs(30);

/// Loads policies and holds the generation in force.
pub struct PolicyHost {
    sandbox: Arc<Sandbox>,
    /// Why there are no components here, when there are none.
    broken: Option<String>,
    numbers: AtomicU64,
    current: RwLock<Arc<Generation>>,
}

impl PolicyHost {
    /// Starts the engine, tests that it stops runaway policies, and loads the shipped one. Blocks for some 200 ms.
    ///
    /// Always succeeds: where WebAssembly does not work, the linked policy decides and [`PolicyHost::broken`] says why.
    #[must_use]
    pub fn new(observer: Arc<dyn Observer>) -> Self {
        let (engine, shipped, broken) = match start() {
            Ok((engine, shipped)) => (Some(Arc::new(engine)), Some(Arc::new(shipped)), None),
            Err(reason) => {
                tracing::error!(reason, "policies can't run in the sandbox here; the linked default decides");
                (None, None, Some(reason))
            }
        };
        let sandbox = Arc::new(Sandbox::new(engine, shipped, observer));
        let first = Arc::new(Generation { number: 0, set: PolicySet::default(), sandbox: Arc::clone(&sandbox) });
        Self { sandbox, broken, numbers: AtomicU64::new(0), current: RwLock::new(first) }
    }

    /// Why policies of users are refused and the linked default decides; none when all is well.
    #[must_use]
    pub fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// The shipped policy as a component, where components work.
    #[must_use]
    pub fn shipped(&self) -> Option<&Arc<Policy>> {
        self.sandbox.shipped.as_ref()
    }

    /// The generation in force. Take it once per reconcile and ask it everything.
    #[must_use]
    pub fn generation(&self) -> Arc<Generation> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Loads a policy on the blocking pool; see [`Policy::load`].
    ///
    /// # Errors
    ///
    /// The check it failed, [`Refusal::CompileTimeout`] after 30 seconds.
    pub async fn load(&self, bytes: Vec<u8>) -> Result<Arc<Policy>, LoadError> {
        self.patiently(move |engine| Policy::load(engine, &bytes).map(Arc::new)).await
    }

    /// Checks a set, settings and rehearsal included, and makes it a generation without putting it into force.
    ///
    /// # Errors
    ///
    /// The first check that an assignment failed, with the decision in the message.
    pub async fn prepare(&self, set: PolicySet) -> Result<Arc<Generation>, LoadError> {
        let shipped = self.sandbox.shipped.clone();
        let custom = Decision::ALL.into_iter().any(|decision| matches!(set.assignment(decision).chosen, Chosen::Policy(_)));
        // Without an engine the linked policy decides, which needs no rehearsal.
        if custom || shipped.is_some() {
            let checked = set.clone();
            self.patiently(move |engine| {
                Decision::ALL.into_iter().try_for_each(|decision| check(engine, &checked, decision, shipped.as_deref()))
            })
            .await?;
        }
        let number = self.numbers.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        Ok(Arc::new(Generation { number, set, sandbox: Arc::clone(&self.sandbox) }))
    }

    /// Puts a generation into force. Calls in flight finish on the one they began with.
    pub fn publish(&self, generation: Arc<Generation>) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = generation;
    }

    async fn patiently<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Engine) -> Result<T, LoadError> + Send + 'static,
    ) -> Result<T, LoadError> {
        let Some(engine) = self.sandbox.engine.clone() else {
            let reason = self.broken.as_deref().unwrap_or("WebAssembly is switched off");
            return Err(LoadError::new(Refusal::SelfTest, reason));
        };
        match timeout(PATIENCE, spawn_blocking(move || work(&engine))).await {
            Ok(Ok(done)) => done,
            Ok(Err(_)) => Err(LoadError::new(Refusal::Compile, "the host failed while it loaded the policy")),
            Err(_) => {
                let message = format!("loading it took longer than {} s", PATIENCE.as_secs());
                Err(LoadError::new(Refusal::CompileTimeout, message))
            }
        }
    }
}

fn start() -> Result<(Engine, Policy), String> {
    let engine = Engine::new().map_err(|error| error.to_string())?;
    engine.self_test().map_err(|error| error.to_string())?;
    let shipped = Policy::load(&engine, SHIPPED).map_err(|error| format!("the shipped policy does not load: {error}"))?;
    Ok((engine, shipped))
}

fn check(engine: &Engine, set: &PolicySet, decision: Decision, shipped: Option<&Policy>) -> Result<(), LoadError> {
    let assignment = set.assignment(decision);
    let policy = match &assignment.chosen {
        Chosen::Policy(policy) => policy,
        Chosen::Shipped | Chosen::Native => match shipped {
            Some(shipped) => shipped,
            None => return Ok(()),
        },
    };
    if !policy.takes(decision) {
        let takes: Vec<&str> = policy.decisions().into_iter().map(Decision::as_str).collect();
        let message = format!("{policy} does not take the decision {decision}: it takes {}", takes.join(", "));
        return Err(LoadError::new(Refusal::Exports, message));
    }
    let named = |error: LoadError| LoadError::new(error.code, format!("{decision}: {}", error.message));
    policy.validate_settings(engine, &assignment.settings, &assignment.limits).map_err(named)?;
    policy.rehearse(engine, decision, &assignment.settings, &assignment.limits).map_err(named)
}
