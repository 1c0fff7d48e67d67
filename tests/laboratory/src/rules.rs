//! The rules that the simulated operator asks: those of `pacer-core`, or those with one defect put back.
//!
//! A defect changes what a rule is told or what it answers, at the place where the loops ask. The checks know nothing of it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use pacer_core::allowance::{Allowance, Cost, Grant, Purpose};
use pacer_core::autoscale;
use pacer_core::demand::{self, Demand};
use pacer_core::facts::{Remote, RunnerFacts, Worker};
use pacer_core::fleet::{self, Plan};
use pacer_core::gate;
use pacer_core::ledger::Ledger;
use pacer_core::node::NodeFacts;
use pacer_core::phase::{self, Assessment};
use pacer_core::policy::{Choice, Pool, ScaleDownRequest, Verdict};
use pacer_core::replacement::{Accounted, ReplacementHold, Replicas};
use pacer_core::restart::{self, Remedy, RestartLimits};
use pacer_core::rollout::{self, Rollout};
use pacer_core::scale_down::{self, Offer};
use pacer_core::stop::{self, PodDeletion, Step, StopLimits, WaitReason};

use crate::clock::Clock;

/// A defect that one of the rules had, or could have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Defect {
    /// GitHub's flag is believed over an `in_progress` event.
    FlagOverEvent,
    /// GitHub's flag is believed over the pod's own word.
    FlagOverPod,
    /// A stop looks at no evidence where a registration's id is known.
    StopAsksAtOnce,
    /// The pod is deleted as soon as GitHub has accepted the removal.
    PodDeletedAfterRemoval,
    /// 422 counts as removed.
    BusyIsGone,
    /// A removal that GitHub refuses counts as done.
    RefusalIsGone,
    /// A torn listing proves absence.
    TornProvesAbsence,
    /// One listing of several pages proves absence when their numbers fit together.
    OneListingProves,
    /// A listing that is older than the pod's last change proves idleness and absence.
    OldListingProves,
    /// A job that ends before a listing saw its runner counts as a failed start.
    EarlyEndIsFailure,
    /// An autoscaler that can't decide leaves finished runners unreplaced.
    InvalidKeepsNothing,
    /// Removals are not paced by points.
    RemovalsUnpaced,
    /// While the watch of Runners is interrupted, no runner is known.
    InterruptedWatchEmpties,
    /// Creations are not remembered.
    CreationsForgotten,
    /// The surge of a rollout is not counted.
    SurgeUnbounded,
    /// The bounds of an autoscaler are not applied.
    BoundsIgnored,
    /// What a policy answers is not checked.
    GateOpen,
    /// A refusal is asked again without pause.
    NoPause,
}

impl Defect {
    /// Every defect that can be put back.
    pub const ALL: [Self; 18] = [
        Self::FlagOverEvent,
        Self::FlagOverPod,
        Self::StopAsksAtOnce,
        Self::PodDeletedAfterRemoval,
        Self::BusyIsGone,
        Self::RefusalIsGone,
        Self::TornProvesAbsence,
        Self::OneListingProves,
        Self::OldListingProves,
        Self::EarlyEndIsFailure,
        Self::InvalidKeepsNothing,
        Self::RemovalsUnpaced,
        Self::InterruptedWatchEmpties,
        Self::CreationsForgotten,
        Self::SurgeUnbounded,
        Self::BoundsIgnored,
        Self::GateOpen,
        Self::NoPause,
    ];
}

/// The rules, as the loops ask them.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The defect that is put back.
    pub defect: Option<Defect>,
    /// `--idle-confirmation`.
    pub confirmation: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        Self { defect: None, confirmation: Duration::from_secs(10) }
    }
}

impl Rules {
    /// Whether this defect is there.
    #[must_use]
    pub fn has(self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    /// The rules with a defect.
    #[must_use]
    pub fn with(defect: Defect) -> Self {
        Self { defect: Some(defect), ..Self::default() }
    }

    /// What the rules are told of a runner.
    #[must_use]
    pub fn facts(self, mut facts: RunnerFacts) -> RunnerFacts {
        match self.defect {
            Some(Defect::FlagOverEvent) => (facts.reports_job, facts.hook_reports_job) = (None, false),
            Some(Defect::FlagOverPod) => {
                if let Some(pod) = facts.pod.as_mut().filter(|pod| pod.worker == Worker::Running) {
                    pod.worker = Worker::Absent { since: None };
                }
            }
            Some(Defect::EarlyEndIsFailure) => facts.siblings_register = false,
            _ => {}
        }
        facts
    }

    /// [`phase::assess`].
    #[must_use]
    pub fn assess(self, facts: &RunnerFacts, now: Timestamp) -> Assessment {
        phase::assess(facts, now)
    }

    /// [`stop::next`].
    #[must_use]
    pub fn stop(self, facts: &RunnerFacts, refused: Option<Duration>, limits: &StopLimits, now: Timestamp) -> Step {
        let step = stop::next(facts, refused, limits, now);
        match (self.defect, step) {
            (Some(Defect::StopAsksAtOnce), Step::Wait { why: WaitReason::Draining | WaitReason::Confirming, .. }) => {
                match facts.remote.id().or(facts.known_id).filter(|_| facts.unregistered.is_none() && refused.is_none()) {
                    Some(id) => Step::Unregister { id },
                    None => step,
                }
            }
            (Some(Defect::PodDeletedAfterRemoval), Step::Wait { why: WaitReason::Leaving | WaitReason::Draining, .. })
                if facts.unregistered.is_some() && facts.pod.as_ref().is_some_and(|pod| pod.deleting.is_none()) =>
            {
                Step::DeletePod(PodDeletion::Graceful)
            }
            (Some(Defect::NoPause), Step::Wait { why, .. }) => Step::Wait { why, recheck: Duration::from_millis(10) },
            (_, step) => step,
        }
    }

    /// [`scale_down::offer`].
    #[must_use]
    pub fn offer(
        self,
        members: &[(RunnerFacts, Assessment)],
        surplus: u32,
        confirmation: Duration,
        outdated_only: bool,
        now: Timestamp,
    ) -> Option<Offer> {
        let nodes: std::collections::BTreeMap<String, NodeFacts> = std::collections::BTreeMap::new();
        scale_down::offer(members, &nodes, Pool::default(), surplus, confirmation, outdated_only, now)
    }

    /// [`gate::choices`]; the indices that passed.
    #[must_use]
    pub fn choices(self, request: &ScaleDownRequest, answer: Vec<Choice>) -> Option<Vec<u32>> {
        let indices = |answer: &[Choice]| answer.iter().map(|choice| choice.index).collect();
        if self.has(Defect::GateOpen) {
            return Some(indices(&answer));
        }
        gate::choices(request, answer).ok().map(|passed| indices(&passed))
    }

    /// [`fleet::plan`].
    #[must_use]
    pub fn fleet(self, fleet: &fleet::Fleet<'_>) -> Plan {
        match self.defect {
            Some(Defect::CreationsForgotten) => fleet::plan(&fleet::Fleet { in_flight: 0, ..fleet.clone() }),
            _ => fleet::plan(fleet),
        }
    }

    /// [`ReplacementHold::held`].
    pub fn held(self, hold: &mut ReplacementHold, set: &Replicas, announced: &[Accounted], clock: Clock) -> u32 {
        hold.held(set, announced, clock.now, clock.instant)
    }

    /// [`rollout::plan`].
    #[must_use]
    pub fn rollout(self, desired: u32, surge: u32, newest: rollout::Set, old: &[rollout::Set]) -> Rollout {
        let surge = if self.has(Defect::SurgeUnbounded) { u32::MAX / 2 } else { surge };
        rollout::plan(desired, surge, newest, old)
    }

    /// [`restart::remedy`].
    #[must_use]
    pub fn remedy(
        self,
        verdict: Option<&Verdict>,
        trouble: &phase::Trouble,
        attempts: u32,
        limits: &RestartLimits,
        now: Timestamp,
    ) -> Remedy {
        restart::remedy(verdict, trouble, false, attempts, limits, now)
    }

    /// [`demand::assess`].
    #[must_use]
    pub fn demand(
        self,
        ledger: &Ledger,
        listings: &[demand::Listing],
        fleet: &demand::Fleet,
        counted: impl Fn(u64) -> Option<Timestamp>,
        life: SignedDuration,
        clock: (Timestamp, bool),
    ) -> Demand {
        let (now, interrupted) = clock;
        if self.has(Defect::InterruptedWatchEmpties) && interrupted {
            let nobody: BTreeSet<Arc<str>> = BTreeSet::new();
            let fleet = demand::Fleet { present: nobody, ended: fleet.ended.clone(), leaving: fleet.leaving.clone() };
            return demand::assess(ledger, listings, &fleet, counted, life, now);
        }
        demand::assess(ledger, listings, fleet, counted, life, now)
    }

    /// [`autoscale::decide`].
    #[must_use]
    pub fn number(self, demand: &autoscale::Demand<'_>) -> autoscale::Decision {
        let bounds = if self.has(Defect::BoundsIgnored) { autoscale::Bounds { min: 0, max: u32::MAX } } else { demand.bounds };
        autoscale::decide(&autoscale::Demand { bounds, ..demand.clone() })
    }

    /// [`Allowance::ask`].
    ///
    /// # Errors
    ///
    /// When it has to wait: for how long.
    pub fn turn(
        self,
        allowance: &mut Allowance<u64>,
        who: u64,
        purpose: Purpose,
        cost: Cost,
        now: Duration,
    ) -> Result<Option<Grant>, Duration> {
        if self.has(Defect::RemovalsUnpaced) && purpose == Purpose::Removal {
            return Ok(None);
        }
        allowance.ask(who, purpose, cost, now).map(Some)
    }

    /// Whether a listing proves that runners that it does not name are gone; `complete` says that its pages fit together.
    #[must_use]
    pub fn proves_absence(self, complete: bool) -> bool {
        complete || self.has(Defect::TornProvesAbsence)
    }

    /// Of how many pages a listing is.
    #[must_use]
    pub fn pages(self, pages: u32) -> u32 {
        if self.has(Defect::OneListingProves) || self.has(Defect::TornProvesAbsence) { 1 } else { pages }
    }

    /// Whether a listing was asked for after a change.
    #[must_use]
    pub fn is_fresh(self, fresh: bool) -> bool {
        fresh || self.has(Defect::OldListingProves)
    }

    /// Whether `remote` counts as seen.
    #[must_use]
    pub fn is_listed(remote: Remote) -> bool {
        remote.id().is_some()
    }
}
