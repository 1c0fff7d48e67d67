//! What fleets would be by now if the policies in shadow decided: the newest part of what happened to each such pool, again in virtual time.
//!
//! ```text
//! watches --names of what changed, while a policy is in shadow--> books, one for each pool -> a simulation at a time -> prospects of policy sets
//! ```
//!
//! While no policy set has a policy in shadow, nothing is remembered and nothing runs. One task holds the books; what is simulated is asked with
//! counters of its own and without breakers, so that nothing that fails here changes what decides.

mod book;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::OptionFuture;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use pacer_api::names::annotation;
use pacer_cluster::object::ObjectKey;
use pacer_core::would_be::{Prospect, WhyNot};
use pacer_operator::stores::Stores;
use pacer_operator::target::TargetRef;
use pacer_operator::watches::{Change, Watches};
use pacer_policy::Supposed;
use pacer_policyset::{PolicySets, PoolName};
use pacer_simulate::{Policies, prospect};
use pacer_trace::{History, Trace};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::TICK;
use super::chronicle::{Defaults, named};
use book::{BOUNDS, Book};

/// Changes that wait for the task: those of some seconds in which thousands of jobs start.
const ROOM: usize = 16_384;

/// Most pools that are followed, the first by name.
const POOLS: usize = 20;

/// How long the simulations of one pool may take.
const BUDGET: Duration = Duration::from_secs(10);

/// After a simulation there is a pause of so many times what it took: it takes a tenth of a processor at the most.
const PAUSE: u32 = 9;

/// Less than this is not simulated, however long it takes.
const LEAST: SignedDuration = SignedDuration::from_mins(5);

/// How simulations for policies in shadow are made.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// How often each pool is simulated, at the most.
    pub(crate) interval: Duration,
    pub(crate) defaults: Defaults,
    /// One at a time in this process.
    pub(crate) turn: Arc<Semaphore>,
}

/// What the watches and the task have in common.
#[derive(Debug, Default)]
struct Attention {
    /// Whether anybody wants to know what changes.
    is_paid: AtomicBool,
    missed: AtomicBool,
}

/// The task that simulates pools as if their policies in shadow decided.
pub(crate) struct WhatIf {
    plan: Plan,
    stores: Stores,
    sets: Arc<PolicySets>,
    attention: Arc<Attention>,
    changes: mpsc::Receiver<Change>,
    stop: CancellationToken,
    pools: BTreeMap<PoolName, Followed>,
    /// Pools may ask for other policies than before.
    is_stale: bool,
    running: Option<Running>,
    /// No simulation begins before this.
    rests_until: Instant,
}

/// A pool with a policy in shadow.
struct Followed {
    book: Book,
    /// The policy set that is told.
    set: ObjectKey,
    supposed: Supposed,
    /// How much of the past is simulated.
    reach: SignedDuration,
    due: Instant,
}

/// A simulation under way.
struct Running {
    pool: PoolName,
    supposed: Supposed,
    began: Instant,
    done: JoinHandle<Prospect>,
    /// Ends it early.
    end: CancellationToken,
}

impl WhatIf {
    /// Prepares it for what these watches tell. It has to be run.
    pub(crate) fn new(
        plan: Plan,
        watches: Watches,
        stores: Stores,
        sets: Arc<PolicySets>,
        stop: CancellationToken,
    ) -> (Self, Watches) {
        let (sender, changes) = mpsc::channel(ROOM);
        let attention = Arc::<Attention>::default();
        let (paid, counted) = (attention.clone(), sets.clone());
        let watches = watches.telling(move |change| {
            if paid.is_paid.load(Ordering::Acquire) && sender.try_send(change).is_err() {
                paid.missed.store(true, Ordering::Release);
                counted.prospects().missed();
            }
        });
        let what_if = Self {
            plan,
            stores,
            sets,
            attention,
            changes,
            stop,
            pools: BTreeMap::new(),
            is_stale: true,
            running: None,
            rests_until: Instant::now(),
        };
        (what_if, watches)
    }

    /// Runs until it is stopped.
    pub(crate) async fn run(mut self) {
        let mut versions = self.sets.changes();
        loop {
            if self.sets.has_shadows() {
                self.follow(&mut versions).await;
                self.rest();
            }
            tokio::select! {
                () = self.stop.cancelled() => return,
                changed = versions.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Follows the pools for as long as a policy is in shadow.
    async fn follow(&mut self, versions: &mut watch::Receiver<u64>) {
        self.attention.is_paid.store(true, Ordering::Release);
        self.is_stale = true;
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.stop.cancelled() => break,
                changed = versions.changed() => {
                    if changed.is_err() || !self.sets.has_shadows() {
                        break;
                    }
                    self.is_stale = true;
                }
                Some(change) = self.changes.recv() => self.take(&change),
                Some(done) = OptionFuture::from(self.running.as_mut().map(|running| &mut running.done)) => self.conclude(done),
                _ = tick.tick() => self.look(),
            }
        }
        // It asks whether to go on every few events.
        if let Some(running) = self.running.take() {
            running.end.cancel();
            let _given_up = running.done.await;
        }
    }

    /// Forgets everything: no policy is in shadow.
    fn rest(&mut self) {
        self.attention.is_paid.store(false, Ordering::Release);
        while self.changes.try_recv().is_ok() {}
        self.pools.clear();
        self.sets.prospects().keep(&BTreeSet::new());
    }

    fn take(&mut self, change: &Change) {
        self.is_stale |= matches!(change, Change::Autoscaler(_) | Change::Deployment(_) | Change::RunnerSet(_));
        let now = Timestamp::now();
        self.pools.values_mut().for_each(|pool| pool.book.take(change, &self.stores, now));
    }

    /// What is to be done now and then.
    fn look(&mut self) {
        if !self.stores.are_full() {
            return;
        }
        let now = Timestamp::now();
        if self.attention.missed.swap(false, Ordering::AcqRel) {
            // What is told from here on is newer than what is read.
            while self.changes.try_recv().is_ok() {}
            for pool in self.pools.values_mut() {
                pool.book = Book::open(pool.book.target().clone(), self.plan.defaults.clone(), &self.stores, now);
            }
        }
        if std::mem::take(&mut self.is_stale) {
            self.survey(now);
        }
        for pool in self.pools.values_mut() {
            pool.book.time_passes(now);
            self.sets.prospects().dropped(pool.book.newly_dropped());
        }
        self.begin(now);
    }

    /// Finds the pools that have a policy in shadow.
    fn survey(&mut self, now: Timestamp) {
        let mut kept = BTreeSet::new();
        let mut before = std::mem::take(&mut self.pools);
        for (pool, (target, set, supposed)) in self.shadowed() {
            kept.insert((set.clone(), pool.clone()));
            if self.pools.len() >= POOLS {
                let finding = Err(WhyNot::Crowded { pools: POOLS });
                self.sets.prospects().find(&set, &pool, Prospect { since: now, finding });
                continue;
            }
            let known = before.remove(&pool);
            let followed = match known {
                Some(known) if known.set == set && known.supposed.is_the_same(&supposed) => known,
                known => {
                    // What was found is about other policies.
                    self.sets.prospects().forget(&set, &pool);
                    let book = known.filter(|known| known.supposed.has_the_same_in_force(&supposed)).map(|known| known.book);
                    let book = book.unwrap_or_else(|| Book::open(target, self.plan.defaults.clone(), &self.stores, now));
                    Followed { book, set, supposed, reach: BOUNDS.time, due: Instant::now() + self.plan.interval }
                }
            };
            self.pools.insert(pool, followed);
        }
        self.sets.prospects().keep(&kept);
    }

    /// The RunnerDeployments and RunnerSets with autoscalers that have a policy in shadow, and the set that says so.
    fn shadowed(&self) -> BTreeMap<PoolName, (TargetRef, ObjectKey, Supposed)> {
        let mut shadowed = BTreeMap::new();
        for of_target in self.stores.targets() {
            let target = of_target.reference();
            let namespace = &target.namespace;
            let mut autoscalers = self.stores.autoscalers_of(&target);
            autoscalers.sort_by_key(|autoscaler| autoscaler.name_any());
            let Some(autoscaler) = autoscalers.first() else { continue };
            // As the autoscaler asks, and as the runners do.
            let capacity = autoscaler.annotations().get(annotation::POLICIES).or_else(|| of_target.policies()).cloned();
            let runners = self.stores.policy_set_of_target(&of_target);
            let generation = |set: &Option<String>| self.sets.generation_for(namespace, set.as_deref());
            let Some(supposed) = Supposed::of(&generation(&capacity), &generation(&runners)) else { continue };
            let set = [&capacity, &runners].into_iter().find_map(|set| self.sets.shadowed_by(namespace, set.as_deref()));
            if let Some(set) = set {
                shadowed.insert(named(&target), (target, set, supposed));
            }
        }
        shadowed
    }

    /// Simulates the pool that is due for longest, unless one is simulated.
    fn begin(&mut self, now: Timestamp) {
        let instant = Instant::now();
        if self.running.is_some() || instant < self.rests_until {
            return;
        }
        let due = self.pools.iter_mut().filter(|(_, pool)| pool.due <= instant).min_by_key(|(_, pool)| pool.due);
        let Some((name, pool)) = due else { return };
        let Ok(turn) = self.plan.turn.clone().try_acquire_owned() else { return };
        pool.due = instant + self.plan.interval;
        let Some(trace) = pool.book.trace(pool.reach, now) else {
            let finding = Err(WhyNot::Full { records: BOUNDS.records });
            self.sets.prospects().find(&pool.set, name, Prospect { since: now, finding });
            pool.book = Book::open(pool.book.target().clone(), self.plan.defaults.clone(), &self.stores, now);
            return;
        };
        let (supposed, end) = (pool.supposed.clone(), self.stop.child_token());
        let ended = end.clone();
        let done = spawn_blocking(move || {
            let _turn = turn;
            simulate(&trace, &supposed, &ended)
        });
        self.running = Some(Running { pool: name.clone(), supposed: pool.supposed.clone(), began: instant, done, end });
    }

    /// A simulation has ended.
    fn conclude(&mut self, done: Result<Prospect, tokio::task::JoinError>) {
        let Some(Running { pool: name, supposed, began, .. }) = self.running.take() else { return };
        self.rests_until = Instant::now() + pause(began.elapsed());
        self.sets.prospects().simulated();
        let now = Timestamp::now();
        let prospect = done.unwrap_or_else(|error| {
            tracing::error!(pool = %name, %error, "a simulation for the policies in shadow failed; what decides is not affected");
            Prospect { since: now, finding: Err(WhyNot::Broken) }
        });
        // It may have got other policies meanwhile.
        let Some(pool) = self.pools.get_mut(&name).filter(|pool| pool.supposed.is_the_same(&supposed)) else { return };
        if let (Err(WhyNot::Slow { .. }), Some(reach)) = (&prospect.finding, shorter(now.duration_since(prospect.since))) {
            // Half of it is tried next.
            pool.reach = reach;
            return;
        }
        tracing::debug!(pool = %name, found = ?prospect, "simulated with the policies in shadow");
        self.sets.prospects().find(&pool.set, &name, prospect);
    }
}

/// Simulates what happened, twice. Blocks for [`BUDGET`] and a call at the most.
fn simulate(trace: &Trace, supposed: &Supposed, end: &CancellationToken) -> Prospect {
    let began = Instant::now();
    let history = History::of(trace);
    let go_on = || began.elapsed() < BUDGET && !end.is_cancelled();
    let policies = |name: &str, generation| {
        Policies::of(name.to_owned(), generation).map_err(|error| {
            tracing::error!(%error, "a simulation for the policies in shadow can't be started");
            WhyNot::Broken
        })
    };
    let found = || {
        let in_force = policies("in force", supposed.in_force.clone())?;
        let shadow = policies("in shadow", supposed.shadow.clone())?;
        prospect(&history, &in_force, &shadow, BUDGET.as_secs(), go_on)
    };
    Prospect { since: history.started, finding: found() }
}

/// How long after a simulation none begins.
fn pause(took: Duration) -> Duration {
    took.saturating_mul(PAUSE)
}

/// How much is simulated after so much took too long; none when there is nothing shorter.
fn shorter(than: SignedDuration) -> Option<SignedDuration> {
    let half = than.checked_div(2)?;
    (half >= LEAST).then_some(half)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulation_takes_a_tenth_of_a_processor_at_the_most() {
        for (took, rests) in [(0, 0), (1_000, 9_000), (10_000, 90_000)] {
            assert_eq!(pause(Duration::from_millis(took)), Duration::from_millis(rests));
        }
    }

    #[test]
    fn less_of_the_past_is_simulated_when_it_takes_too_long_down_to_some_minutes() {
        let minutes = SignedDuration::from_mins;
        for (than, next) in [(180, Some(90)), (22, Some(11)), (10, Some(5)), (9, None), (0, None)] {
            assert_eq!(shorter(minutes(than)), next.map(minutes), "{than} minutes");
        }
    }
}
