//! The policies of a process: loads them, puts sets into force, hands out the current one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;

use pacer_compiler::Compiler;
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::bundle::Mode;
use crate::component::Digest;
use crate::decision::{Decision, PerDecision};
use crate::engine::Engine;
use crate::generation::{Assignment, Chosen, Generation, PolicySet, StagedSet};
use crate::lane::{Candidate, Lane};
use crate::load::{LoadError, Refusal};
use crate::observer::Observer;
use crate::policy::Policy;
use crate::sandbox::Sandbox;

/// The policy pacer ships, as a component.
pub const SHIPPED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/default.wasm"));

/// How long a policy may take to load. Past this it counts as failed; compilation goes on where it is not in a process of its own.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Loads policies and holds the generation in force.
pub struct PolicyHost {
    sandbox: Arc<Sandbox>,
    /// Why there are no components here, when there are none.
    broken: Option<String>,
    numbers: AtomicU64,
    current: RwLock<Arc<Generation>>,
    /// Policies that somebody still holds: the same component is compiled once, however many sets name it.
    loaded: Mutex<HashMap<Digest, Weak<Policy>>>,
}

impl PolicyHost {
    /// Starts the engine, tests that it stops runaway policies, and loads the shipped one. Blocks for some 200 ms.
    ///
    /// Always succeeds: where WebAssembly does not work, the linked policy decides and [`PolicyHost::broken`] says why.
    #[must_use]
    pub fn new(observer: Arc<dyn Observer>) -> Self {
        Self::compiling_in(None, observer)
    }

    /// The same; policies are compiled in a process of their own. See [`Engine::compiling_in`].
    #[must_use]
    pub fn compiling_in(compiler: impl Into<Option<Compiler>>, observer: Arc<dyn Observer>) -> Self {
        let (engine, shipped, broken) = match start(compiler.into()) {
            Ok((engine, shipped)) => (Some(Arc::new(engine)), Some(Arc::new(shipped)), None),
            Err(reason) => {
                tracing::error!(reason, "policies can't run in the sandbox here; the linked default decides");
                (None, None, Some(reason))
            }
        };
        let sandbox = Arc::new(Sandbox::new(engine, shipped, observer));
        let first = Generation {
            number: 0,
            lanes: PerDecision::from_fn(Lane::shipped),
            shadows: PerDecision::default(),
            sandbox: Arc::clone(&sandbox),
        };
        Self { sandbox, broken, numbers: AtomicU64::new(0), current: RwLock::new(Arc::new(first)), loaded: Mutex::default() }
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

    /// Loads a policy on the blocking pool; see [`Policy::load`]. One that is still in use is not loaded again.
    ///
    /// # Errors
    ///
    /// The check it failed, [`Refusal::CompileTimeout`] after 30 seconds.
    pub async fn load(&self, bytes: Vec<u8>) -> Result<Arc<Policy>, LoadError> {
        let digest = Digest::of(&bytes);
        if let Some(policy) = self.loaded.lock().unwrap_or_else(PoisonError::into_inner).get(&digest).and_then(Weak::upgrade) {
            return Ok(policy);
        }
        let policy = self.patiently(move |engine| Policy::load(engine, &bytes).map(Arc::new)).await?;
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        loaded.retain(|_, policy| policy.strong_count() > 0);
        loaded.insert(digest, Arc::downgrade(&policy));
        Ok(policy)
    }

    /// Checks a set, settings and rehearsal included, and makes it a generation without putting it into force.
    ///
    /// # Errors
    ///
    /// The first check that an assignment failed, with the decision in the message.
    pub async fn prepare(&self, set: PolicySet) -> Result<Arc<Generation>, LoadError> {
        for (decision, assignment) in set.iter() {
            self.check(decision, assignment.clone()).await?;
        }
        let lanes = PerDecision::from_fn(|decision| Arc::new(Lane::new(decision, set.get(decision).clone(), Arc::default())));
        Ok(self.generation_of(lanes, PerDecision::default()))
    }

    /// Checks who decides and who is compared with that, where anything is said about a decision.
    ///
    /// # Errors
    ///
    /// The decision, the mode, and the check that the policy failed.
    pub(crate) async fn stage(
        &self,
        digest: Digest,
        enforced: PerDecision<Option<Assignment>>,
        shadows: PerDecision<Option<Assignment>>,
    ) -> Result<StagedSet, (Decision, Mode, LoadError)> {
        for (mode, assignments) in [(Mode::Enforce, &enforced), (Mode::Shadow, &shadows)] {
            for (decision, assignment) in assignments.iter() {
                let Some(assignment) = assignment else { continue };
                self.check(decision, assignment.clone()).await.map_err(|error| (decision, mode, error))?;
            }
        }
        let news = Arc::new(Notify::new());
        let lane = |decision, assignments: &PerDecision<Option<Assignment>>| {
            assignments.get(decision).clone().map(|assignment| Lane::new(decision, assignment, Arc::clone(&news)))
        };
        Ok(StagedSet {
            digest,
            enforced: PerDecision::from_fn(|decision| lane(decision, &enforced).map(Arc::new)),
            shadows: PerDecision::from_fn(|decision| lane(decision, &shadows).map(Candidate::new).map(Arc::new)),
            news: Arc::clone(&news),
        })
    }

    /// A generation of sets, the most specific one first. A decision that a set says nothing about is that of the next one, and in the end
    /// the shipped policy's. A set that only has a policy in shadow for a decision compares it with whoever decides.
    #[must_use]
    pub fn compose(&self, sets: &[&StagedSet]) -> Arc<Generation> {
        let lanes = PerDecision::from_fn(|decision| {
            let enforced = sets.iter().find_map(|set| set.enforced.get(decision).clone());
            enforced.unwrap_or_else(|| Lane::shipped(decision))
        });
        let shadows = PerDecision::from_fn(|decision| {
            let says = |set: &&&StagedSet| set.enforced.get(decision).is_some() || set.shadows.get(decision).is_some();
            sets.iter().find(says).and_then(|set| set.shadows.get(decision).clone())
        });
        self.generation_of(lanes, shadows)
    }

    fn generation_of(&self, lanes: PerDecision<Arc<Lane>>, shadows: PerDecision<Option<Arc<Candidate>>>) -> Arc<Generation> {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        Arc::new(Generation { number, lanes, shadows, sandbox: Arc::clone(&self.sandbox) })
    }

    async fn check(&self, decision: Decision, assignment: Assignment) -> Result<(), LoadError> {
        let policy = match &assignment.chosen {
            Chosen::Policy(policy) => Arc::clone(policy),
            Chosen::Shipped | Chosen::Native => match &self.sandbox.shipped {
                Some(shipped) => Arc::clone(shipped),
                // Without an engine the linked policy decides, which needs no rehearsal.
                None => return Ok(()),
            },
        };
        self.patiently(move |engine| check(engine, &policy, decision, &assignment)).await
    }

    /// Waits for the comparisons and probes that are under way; for the end of the process.
    pub async fn join(&self) {
        self.sandbox.aside.join().await;
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

fn start(compiler: Option<Compiler>) -> Result<(Engine, Policy), String> {
    let engine = Engine::compiling_in(compiler).map_err(|error| error.to_string())?;
    engine.self_test().map_err(|error| error.to_string())?;
    let shipped = Policy::load(&engine, SHIPPED).map_err(|error| format!("the shipped policy does not load: {error}"))?;
    Ok((engine, shipped))
}

fn check(engine: &Engine, policy: &Policy, decision: Decision, assignment: &Assignment) -> Result<(), LoadError> {
    if !policy.takes(decision) {
        let takes: Vec<&str> = policy.decisions().into_iter().map(Decision::as_str).collect();
        let message = format!("{policy} does not take the decision {decision}: it takes {}", takes.join(", "));
        return Err(LoadError::new(Refusal::Exports, message));
    }
    let named = |error: LoadError| LoadError::new(error.code, format!("{decision}: {}", error.message));
    policy.validate_settings(engine, &assignment.settings, &assignment.limits).map_err(named)?;
    policy.rehearse(engine, decision, &assignment.settings, &assignment.limits).map_err(named)
}
