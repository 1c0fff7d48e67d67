//! One policy in its place: how it is asked, its breaker, and what has become of its answers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::assignment::{Assignment, Chosen};
use crate::breaker::{Admission, Breaker, Change, Probe};
use crate::decision::Decision;
use crate::fault::Fault;
use crate::purpose::Purpose;

/// An assignment and its record. Shared by all generations that it is part of.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) decision: Decision,
    pub(crate) assignment: Assignment,
    state: Mutex<State>,
    news: Arc<Notify>,
    purpose: Purpose,
}

#[derive(Debug, Default)]
struct State {
    breaker: Breaker,
    faults: u64,
    last_fault: Option<Fault>,
}

/// How a policy in its place is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Since when it is not asked because it kept failing; none while it is asked.
    pub open_since: Option<Instant>,
    /// Faults since it was put into this place.
    pub faults: u64,
    /// The last of them.
    pub last_fault: Option<Fault>,
}

impl Lane {
    pub(crate) fn new(decision: Decision, assignment: Assignment, news: Arc<Notify>) -> Self {
        Self { decision, assignment, state: Mutex::default(), news, purpose: Purpose::Operation }
    }

    /// One that a simulation asks. How it fares is not logged, and it has no breaker: that of a simulation would open in the computer's time.
    pub(crate) fn supposed(decision: Decision, assignment: Assignment) -> Self {
        Self { purpose: Purpose::Simulation, ..Self::new(decision, assignment, Arc::default()) }
    }

    /// The shipped policy without settings.
    pub(crate) fn shipped(decision: Decision) -> Arc<Self> {
        Arc::new(Self::new(decision, Assignment::default(), Arc::default()))
    }

    pub(crate) fn health(&self) -> Health {
        let state = self.lock();
        Health { open_since: state.breaker.open_since(), faults: state.faults, last_fault: state.last_fault.clone() }
    }

    /// Whether to ask the policy. Only policies of users have a breaker: there is nobody to decide instead of the shipped one but itself.
    pub(crate) fn admit(&self, now: Instant) -> Admission {
        match self.assignment.chosen {
            Chosen::Policy(_) if self.purpose == Purpose::Operation => self.lock().breaker.admit(now),
            Chosen::Policy(_) | Chosen::Shipped | Chosen::Native => Admission::Ask,
        }
    }

    /// The policy was asked to decide.
    pub(crate) fn decided(&self, fault: Option<&Fault>, now: Instant) {
        if fault.is_some_and(|fault| !fault.is_policys()) {
            return;
        }
        let (new_kind, change) = {
            let mut state = self.lock();
            (state.note(fault), state.breaker.decided(fault.is_some(), now))
        };
        self.announce(change, new_kind);
    }

    /// The policy was asked beside the one that decided; none when there was no room for it.
    pub(crate) fn probed(&self, asked: Option<Option<&Fault>>, now: Instant) {
        let outcome = match asked {
            None => Probe::Skipped,
            Some(None) => Probe::Clean,
            Some(Some(fault)) if fault.is_policys() => Probe::Fault,
            Some(Some(_)) => Probe::Skipped,
        };
        let (new_kind, change) = {
            let mut state = self.lock();
            let fault = asked.flatten().filter(|_| outcome == Probe::Fault);
            (state.note(fault), state.breaker.probed(outcome, now))
        };
        self.announce(change, new_kind);
    }

    fn announce(&self, change: Option<Change>, new_kind: bool) {
        if self.purpose == Purpose::Simulation || (change.is_none() && !new_kind) {
            return;
        }
        match (&self.assignment.chosen, change) {
            (Chosen::Policy(policy), Some(Change::Opened)) => {
                tracing::warn!(decision = %self.decision, %policy, "policy keeps failing and is not asked for now; the shipped one decides");
            }
            (Chosen::Policy(policy), Some(Change::Closed)) => {
                tracing::info!(decision = %self.decision, %policy, "policy has recovered and is asked again");
            }
            (Chosen::Policy(_), None) | (Chosen::Shipped | Chosen::Native, _) => {}
        }
        self.news.notify_one();
    }

    /// A poisoned lock means that a thread panicked between two counters; they are still numbers.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Counts a fault; says whether it is of another kind than the one before.
    fn note(&mut self, fault: Option<&Fault>) -> bool {
        let Some(fault) = fault else { return false };
        self.faults = self.faults.saturating_add(1);
        let before = self.last_fault.replace(fault.clone());
        before.is_none_or(|before| before.kind() != fault.kind())
    }
}

/// A policy that answers what another one decides, so that both can be compared.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) lane: Lane,
    decisions: AtomicU64,
    agreed: AtomicU64,
    skipped: AtomicU64,
    fuel: AtomicU64,
}

/// What a candidate's answers were like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tally {
    /// Decisions it answered as well, with a fault or not.
    pub decisions: u64,
    /// Of these, answers that would have had the same effect.
    pub agreed: u64,
    /// Of these, answers that could not be used.
    pub faults: u64,
    /// Decisions it was not asked about because there was no room, or because it keeps failing.
    pub skipped: u64,
    /// Instructions it executed, in wasmtime's units of fuel.
    pub fuel: u64,
}

impl Candidate {
    pub(crate) fn new(lane: Lane) -> Self {
        Self {
            lane,
            decisions: AtomicU64::default(),
            agreed: AtomicU64::default(),
            skipped: AtomicU64::default(),
            fuel: AtomicU64::default(),
        }
    }

    pub(crate) fn tally(&self) -> Tally {
        Tally {
            decisions: self.decisions.load(Ordering::Relaxed),
            agreed: self.agreed.load(Ordering::Relaxed),
            faults: self.lane.health().faults,
            skipped: self.skipped.load(Ordering::Relaxed),
            fuel: self.fuel.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn skip(&self) {
        self.skipped.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count(&self, agreed: bool, fuel: u64) {
        self.decisions.fetch_add(1, Ordering::Relaxed);
        self.agreed.fetch_add(u64::from(agreed), Ordering::Relaxed);
        self.fuel.fetch_add(fuel, Ordering::Relaxed);
    }
}
