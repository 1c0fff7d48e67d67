//! The policies of a process: loads them, puts sets into force, hands out the current one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tokio::sync::Notify;
use tokio::task::spawn_blocking;

use crate::assignment::{Assignment, Chosen, PolicySet};
use crate::comparisons::Comparisons;
use crate::component::Digest;
use crate::decision::{Decision, PerDecision};
use crate::entry::{Entry, Mode, Module, Place};
use crate::generation::Generation;
use crate::jail::{Ending, Isolation, Jail, Launcher, Stager};
use crate::lane::{Candidate, Lane};
use crate::load::{LoadError, Refusal};
use crate::loaded::{Holding, Loaded};
use crate::observer::Observer;
use crate::policy::Policy;
use crate::queue::{Permit, Queue};
use crate::sandbox::Sandbox;
use crate::staged::StagedSet;
use crate::text;

/// The policy pacer ships, as a component.
pub const SHIPPED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/default.wasm"));

/// Loads policies and holds the generation in force.
pub struct PolicyHost {
    sandbox: Arc<Sandbox>,
    /// Why there are no components here, when there are none.
    broken: Option<String>,
    numbers: AtomicU64,
    current: RwLock<Arc<Generation>>,
    loaded: Loaded,
    /// Who may stage a set now.
    queue: Queue,
}

impl PolicyHost {
    /// Without a process that runs policies: the linked policy decides, and no other is accepted.
    #[must_use]
    pub fn new(observer: Arc<dyn Observer>) -> Self {
        Self::of(Err("no process for policies was asked for".to_owned()), observer)
    }

    /// Starts a process that tries out its locks and that runaway policies are stopped, and loads the shipped policy in another one. Blocks for
    /// some 400 ms.
    ///
    /// Always succeeds: where policies can't be run, the linked policy decides and [`PolicyHost::broken`] says why.
    #[must_use]
    pub fn jailed(launcher: Launcher, observer: Arc<dyn Observer>) -> Self {
        let started = start(launcher);
        if let Err(reason) = &started {
            tracing::error!(reason, "policies can't run in the sandbox here; the linked default decides");
        }
        Self::of(started, observer)
    }

    fn of(started: Result<(Jail, Policy), String>, observer: Arc<dyn Observer>) -> Self {
        let (jail, shipped, broken) = match started {
            Ok((jail, shipped)) => (Some(Arc::new(jail)), Some(Arc::new(shipped)), None),
            Err(reason) => (None, None, Some(reason)),
        };
        let sandbox = Arc::new(Sandbox::new(jail, shipped, observer));
        let first = Generation {
            number: 0,
            lanes: PerDecision::from_fn(Lane::shipped),
            shadows: PerDecision::default(),
            recovery: None,
            sandbox: Arc::clone(&sandbox),
        };
        Self {
            sandbox,
            broken,
            numbers: AtomicU64::new(0),
            current: RwLock::new(Arc::new(first)),
            loaded: Loaded::default(),
            queue: Queue::default(),
        }
    }

    /// How well the processes that run policies are locked in; none where there are no such processes.
    #[must_use]
    pub fn isolation(&self) -> Option<&Isolation> {
        self.jail().map(Jail::isolation)
    }

    /// Where policies run; none where they can't.
    #[must_use]
    pub fn jail(&self) -> Option<&Jail> {
        self.sandbox.jail.as_deref()
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

    /// What policies in shadow answered of late, beside what was decided.
    #[must_use]
    pub fn comparisons(&self) -> &Comparisons {
        &self.sandbox.comparisons
    }

    /// The generation in force. Take it once per reconcile and ask it everything.
    #[must_use]
    pub fn generation(&self) -> Arc<Generation> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Keeps room for the policies of this namespace, that of the cluster's default set: those of others do not take all there is.
    pub fn reserve_for(&self, namespace: &str) {
        self.loaded.reserve_for(namespace);
    }

    /// Loads a policy in a process of its own; see [`Policy::load`]. One that is still in use is not loaded again.
    ///
    /// # Errors
    ///
    /// The check it failed, or the part of its budget that was used up.
    pub async fn load(&self, bytes: Vec<u8>) -> Result<Arc<Policy>, LoadError> {
        let digest = text::identity(&bytes);
        if let Some(policy) = self.loaded.known(digest) {
            return Ok(policy);
        }
        let loaded = self.loaded.clone();
        let turn = self.turn("").await;
        let mut holding = Holding::of(Arc::clone(&turn.owner));
        self.staging(&turn, move |stager| loaded.load(stager, &mut holding, digest, &bytes)).await?
    }

    /// Checks a set, settings and rehearsal included, and makes it a generation without putting it into force.
    ///
    /// # Errors
    ///
    /// The first check that an assignment failed, with the decision in the message.
    pub async fn prepare(&self, set: PolicySet) -> Result<Arc<Generation>, LoadError> {
        let lanes = PerDecision::from_fn(|decision| Arc::new(Lane::new(decision, set.get(decision).clone(), Arc::default())));
        if let Some(shipped) = self.shipped().cloned() {
            let checked = move |stager: &mut Stager| {
                set.iter().try_for_each(|(decision, assignment)| check(stager, &shipped, decision, assignment))
            };
            let turn = self.turn("").await;
            self.staging(&turn, checked).await??;
        }
        Ok(self.generation_of(lanes, PerDecision::default(), None))
    }

    /// Loads the components that are not loaded yet, and checks who decides and who is compared with that, where anything is said about a
    /// decision: all in one process with one budget.
    ///
    /// # Errors
    ///
    /// Which of the assignments failed which check.
    pub(crate) async fn stage(
        &self,
        turn: &Turn,
        digest: Digest,
        entries: Vec<(Place, Entry)>,
    ) -> Result<StagedSet, (Decision, Mode, LoadError)> {
        let mut holding = Holding::of(Arc::clone(&turn.owner));
        let (assignments, holding) = match self.shipped().cloned() {
            Some(shipped) => {
                let loaded = self.loaded.clone();
                let work = move |stager: &mut Stager| {
                    let assignments = stage(&loaded, stager, &mut holding, &shipped, entries);
                    assignments.map(|assignments| (assignments, holding))
                };
                let staged = self.staging(turn, work).await;
                staged.map_err(|error| (Decision::ScaleDown, Mode::Enforce, error))??
            }
            // The linked policy decides, which needs no rehearsal.
            None => {
                let assignments = entries.into_iter().map(|entry| self.unjailed(entry)).collect::<Result<Vec<_>, _>>()?;
                (assignments, holding)
            }
        };
        let mut enforced = PerDecision::<Option<Assignment>>::default();
        let mut shadows = PerDecision::<Option<Assignment>>::default();
        for ((decision, mode), assignment) in assignments {
            let place = match mode {
                Mode::Enforce => &mut enforced,
                Mode::Shadow => &mut shadows,
            };
            *place.get_mut(decision) = Some(assignment);
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
            _holding: self.loaded.keep(holding),
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
        let recovery = match sets.iter().any(|set| set.enforced.recover.is_some()) {
            true => Some(Mode::Enforce),
            false => shadows.recover.as_ref().map(|_| Mode::Shadow),
        };
        self.generation_of(lanes, shadows, recovery)
    }

    fn generation_of(
        &self,
        lanes: PerDecision<Arc<Lane>>,
        shadows: PerDecision<Option<Arc<Candidate>>>,
        recovery: Option<Mode>,
    ) -> Arc<Generation> {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        Arc::new(Generation { number, lanes, shadows, recovery, sandbox: Arc::clone(&self.sandbox) })
    }

    /// An entry as it counts where no process runs policies.
    fn unjailed(&self, (place, entry): (Place, Entry)) -> Result<(Place, Assignment), (Decision, Mode, LoadError)> {
        match entry.module {
            Module::Builtin => {
                Ok((place, Assignment { chosen: Chosen::Shipped, settings: entry.settings, limits: entry.limits }))
            }
            Module::Component { .. } => Err((place.0, place.1, self.unavailable())),
        }
    }

    fn unavailable(&self) -> LoadError {
        LoadError::new(Refusal::SelfTest, self.broken.as_deref().unwrap_or("policies are switched off"))
    }

    /// Waits for the comparisons and probes that are under way; for the end of the process.
    pub async fn join(&self) {
        self.sandbox.aside.join().await;
    }

    /// Puts a generation into force. Calls in flight finish on the one they began with.
    pub fn publish(&self, generation: Arc<Generation>) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = generation;
    }

    /// Waits until `owner`, a namespace, may have a policy set staged.
    pub async fn turn(&self, owner: &str) -> Turn {
        Turn { _permit: Arc::new(self.queue.permit(owner).await), owner: Arc::from(owner) }
    }

    /// Work on one policy set, or on one policy, in a process of its own, whose budget begins now. When nobody waits for it any more the process
    /// ends, and its place is free.
    pub(crate) async fn staging<T: Send + 'static>(
        &self,
        turn: &Turn,
        work: impl FnOnce(&mut Stager) -> T + Send + 'static,
    ) -> Result<T, LoadError> {
        let Some(jail) = self.sandbox.jail.clone() else { return Err(self.unavailable()) };
        let turn = turn.clone();
        let abandoned = Abandoned::default();
        let of_work = abandoned.clone();
        let staging = spawn_blocking(move || {
            let done = jail.stager().map(|mut stager| {
                of_work.watch(&stager);
                work(&mut stager)
            });
            drop(turn);
            done
        });
        let _abandon = Abandon(abandoned);
        staging.await.unwrap_or_else(|_| Err(LoadError::new(Refusal::Compile, "the host failed while it loaded the policy")))
    }
}

/// Held while a policy set is staged: as many are at once as may be, and one of each namespace. The place is free when this and all work that
/// began with it have ended.
#[derive(Clone, Debug)]
pub struct Turn {
    _permit: Arc<Permit>,
    /// The namespace whose turn it is.
    owner: Arc<str>,
}

/// How work that nobody waits for any more is ended.
#[derive(Clone, Default)]
struct Abandoned(Arc<Mutex<(bool, Option<Ending>)>>);

impl Abandoned {
    fn watch(&self, stager: &Stager) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.1 = stager.ending().ok();
        if let (true, Some(ending)) = &*state {
            ending.end();
        }
    }
}

/// Ends the work when it is dropped; work that is done is over anyway.
struct Abandon(Abandoned);

impl Drop for Abandon {
    fn drop(&mut self) {
        let mut state = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = true;
        if let Some(ending) = &state.1 {
            ending.end();
        }
    }
}

/// Loads the components of a set that are not loaded yet, and checks all of its assignments, those that decide first.
fn stage(
    loaded: &Loaded,
    stager: &mut Stager,
    holding: &mut Holding,
    shipped: &Policy,
    entries: Vec<(Place, Entry)>,
) -> Result<Vec<(Place, Assignment)>, (Decision, Mode, LoadError)> {
    let mut assignments = Vec::with_capacity(entries.len());
    for (place, Entry { module, settings, limits }) in entries {
        let chosen = match module {
            Module::Builtin => Chosen::Shipped,
            Module::Component { bytes, digest, .. } => {
                let policy = loaded.load(stager, holding, digest, &bytes);
                Chosen::Policy(policy.map_err(|error| (place.0, place.1, error))?)
            }
        };
        assignments.push((place, Assignment { chosen, settings, limits }));
    }
    for mode in [Mode::Enforce, Mode::Shadow] {
        for ((decision, _), assignment) in assignments.iter().filter(|(place, _)| place.1 == mode) {
            check(stager, shipped, *decision, assignment).map_err(|error| (*decision, mode, error))?;
        }
    }
    Ok(assignments)
}

fn start(launcher: Launcher) -> Result<(Jail, Policy), String> {
    let jail = Jail::start(launcher).map_err(|error| error.to_string())?;
    let shipped = Policy::load(&jail, SHIPPED).map_err(|error| format!("the shipped policy does not load: {error}"))?;
    Ok((jail, shipped))
}

fn check(stager: &mut Stager, shipped: &Policy, decision: Decision, assignment: &Assignment) -> Result<(), LoadError> {
    let policy = match &assignment.chosen {
        Chosen::Policy(policy) => policy,
        Chosen::Shipped | Chosen::Native => shipped,
    };
    if !policy.takes(decision) {
        let takes: Vec<&str> = policy.decisions().into_iter().map(Decision::as_str).collect();
        let message = format!("{policy} does not take the decision {decision}: it takes {}", takes.join(", "));
        return Err(LoadError::new(Refusal::Exports, message));
    }
    let named = |error: LoadError| LoadError::new(error.code, format!("{decision}: {}", error.message));
    stager.validate(policy, &assignment.settings, &assignment.limits).map_err(named)?;
    stager.rehearse(policy, decision, &assignment.settings, &assignment.limits).map_err(named)
}
