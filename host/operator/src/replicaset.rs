//! The RunnerReplicaSet controller: as many runners of one template as are desired.
//!
//! ```text
//! observe -> jobs that died with runners -> restart decisions -> fleet::plan -> create | scale down -> status, summary
//! ```
//!
//! Runners belong to a RunnerReplicaSet by ownerReference; its selector is for people and for `kubectl scale` (a selector that matches nothing
//! made ARC create without end).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::api::ObjectMeta;
use kube::runtime::controller::Action;
use kube::{Resource, ResourceExt};
use pacer_api::RunnerReplicaSet;
use pacer_api::names::annotation;
use pacer_cluster::clock::Clock;
use pacer_cluster::object::Uid;
use pacer_cluster::pace::Passes;
use pacer_cluster::seed::Seed;
use pacer_cluster::status::PacedStatus;
use pacer_core::durations::Durations;
use pacer_core::fleet::Plan;
use pacer_core::policy::Attributes;
use pacer_core::reads::Reads;
use pacer_core::replacement::AcceptedDemand;
use pacer_core::replacement::ReplacementHold;
use pacer_core::restart::Registering;
use pacer_policy::Generation;

use crate::access::{Access, Accesses};
use crate::attributes::AboutPool;
use crate::cluster::Cluster;
use crate::decisions::Decisions;
use crate::error::Error;
use crate::observe::Observer;
use crate::pool::Scaled;
use crate::published::{AdoptedRunners, FinishedRunners, FleetSummary, JobHistory, Owned, Past, Published};
use crate::runner::RunnerStatuses;
use crate::settings::{PACE_PER_RUNNER, SET_PACE, Settings};
use crate::standing::Standings;
use crate::target::{TargetRef, owner_of};
use crate::usage::ShardUsage;

mod create;
mod observe;
mod quota;
mod recover;
mod restart;
mod scale_down;
mod status;

use observe::Fleet;
use recover::RecoveryMemo;
pub(crate) use recover::{JobRecovery, Losses};
use status::Trouble;

/// Reconciles RunnerReplicaSets.
pub struct ReplicaSets {
    pub(crate) cluster: Cluster,
    pub(crate) github: Arc<Accesses>,
    pub(crate) decisions: Decisions,
    pub(crate) settings: Arc<Settings>,
    pub(crate) runners: RunnersOfSets,
    pub(crate) memory: ReplicaSetMemory,
    pub(crate) losses: Losses,
    /// None where jobs that died with their runners stay failed.
    pub(crate) recovery: Option<JobRecovery>,
}

/// How the runners of a RunnerReplicaSet are observed, named and marked.
pub(crate) struct RunnersOfSets {
    pub(crate) observer: Observer,
    pub(crate) statuses: Arc<RunnerStatuses>,
    pub(crate) standings: Arc<Standings>,
    pub(crate) usage: ShardUsage,
    pub(crate) seed: Seed,
}

/// What the controller remembers, says and is told about RunnerReplicaSets.
pub(crate) struct ReplicaSetMemory {
    memos: Owned<Uid, Memo>,
    summaries: Owned<Uid, FleetSummary>,
    finished: Owned<TargetRef, FinishedRunners>,
    starts: Owned<Uid, Durations>,
    accepted: Published<Uid, AcceptedDemand>,
    jobs: Published<Uid, JobHistory>,
    adopted: Published<Uid, AdoptedRunners>,
}

impl ReplicaSetMemory {
    /// Nothing remembered. `summaries` is what it says of its fleets.
    pub(crate) fn new(
        summaries: Owned<Uid, FleetSummary>,
        accepted: Published<Uid, AcceptedDemand>,
        jobs: Published<Uid, JobHistory>,
        adopted: Published<Uid, AdoptedRunners>,
    ) -> Self {
        let (memos, finished, starts) = (Owned::default(), Owned::default(), Owned::default());
        Self { memos, summaries, finished, starts, accepted, jobs, adopted }
    }
}

/// What the controller tells others.
#[derive(Clone)]
pub(crate) struct FleetReports {
    pub(crate) summaries: Published<Uid, FleetSummary>,
    pub(crate) finished: Published<TargetRef, FinishedRunners>,
    pub(crate) starts: Published<Uid, Durations>,
}

/// What is remembered about one RunnerReplicaSet.
#[derive(Clone, Debug, Default)]
struct Memo {
    /// Names of Runners created and not yet seen, and when.
    in_flight: HashMap<String, Instant>,
    passes: Passes,
    status: PacedStatus,
    /// The API server no longer has it; the watch is late to show that.
    gone: bool,
    /// Runners that were online at the last pass; none before the first.
    online: Option<BTreeSet<String>>,
    /// UIDs of Runners that were seen here before they registered, and have not been online since.
    starting: BTreeSet<String>,
    /// Names of current runners that were known to have registered at the last pass.
    registered: BTreeSet<String>,
    registering: Registering,
    /// Failed attempts in a row, when newer than the stored status.
    attempts: Option<u32>,
    scaled: Scaled,
    /// Since when idle runners are to go.
    surplus_since: Option<Instant>,
    hold: ReplacementHold,
    recovery: RecoveryMemo,
}

/// A RunnerReplicaSet and what a reconcile has at hand.
#[derive(Clone, Copy)]
struct Subject<'a> {
    set: &'a RunnerReplicaSet,
    uid: &'a Uid,
    /// None while its settings are refused or its credentials missing.
    access: Option<&'a Access>,
    generation: &'a Generation,
    /// See [`PolicySets::awaits`](pacer_policyset::PolicySets::awaits).
    awaits_policies: bool,
    clock: Clock,
}

/// How soon a RunnerReplicaSet looks again for room in a namespace that has as many runners as it may have.
const ROOM_RECHECK: Duration = Duration::from_secs(5);

/// How soon a RunnerReplicaSet looks again whether finished runners are to be replaced whose number has not come.
const HELD_RECHECK: Duration = Duration::from_secs(10);

/// What a reconcile came to.
struct Step {
    /// When to go on.
    next: Duration,
    /// Why not all runners that are missing could be made.
    not_created: Option<Error>,
}

impl ReplicaSets {
    /// What it tells others.
    pub(crate) fn reports(&self) -> FleetReports {
        let memory = &self.memory;
        FleetReports { summaries: memory.summaries.reader(), finished: memory.finished.reader(), starts: memory.starts.reader() }
    }

    /// Brings one RunnerReplicaSet a step further.
    ///
    /// # Errors
    ///
    /// When the API server or GitHub did not do their part; tried again with backoff.
    pub async fn reconcile(&self, set: Arc<RunnerReplicaSet>) -> Result<Action, Error> {
        if set.meta().deletion_timestamp.is_some() {
            // Its runners are deleted by the garbage collector and drain on their own.
            return Ok(Action::await_change());
        }
        let uid = Uid::of(&*set)?;
        let clock = Clock::read();
        let present = self.memory.summaries.read(&uid, |summary| summary.present).unwrap_or_default();
        let interval = (PACE_PER_RUNNER * present).clamp(*SET_PACE.start(), *SET_PACE.end());
        if let Some(wait) = self.memory.memos.change(&uid, |memo| memo.passes.too_soon(interval, clock.instant)) {
            return Ok(Action::requeue(wait));
        }
        let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
        let policy_set = self.cluster.stores.policy_set_of(&set);
        let awaits_policies = self.decisions.policies.awaits(namespace, policy_set.as_deref());
        let generation = self.decisions.policies.generation_for(namespace, policy_set.as_deref());
        let verdict = self.admitted(&set);
        // Without runners there is nothing to list, and nothing to remove.
        let access = match &verdict {
            Err(refusal) if self.cluster.stores.runners_of(&uid).is_empty() => Err(refusal.clone().into()),
            _ => self.github.get(namespace, &set.spec.template.spec.config).await,
        };
        let of = Subject { set: &set, uid: &uid, access: access.as_ref().ok(), generation: &generation, awaits_policies, clock };
        let mut fleet = self.observe(of).await?;
        let trouble = verdict.err().as_ref().map(Trouble::refused).or_else(|| Trouble::of(&access));
        let step = self.step(of, &mut fleet, trouble).await?;
        self.publish(of, &fleet).await;
        match step.not_created {
            Some(error) => Err(error),
            None => Ok(Action::requeue(step.next)),
        }
    }

    /// Everything that changes the runners, and the status.
    async fn step(&self, of: Subject<'_>, fleet: &mut Fleet, trouble: Option<Trouble>) -> Result<Step, Error> {
        let mut trouble = trouble;
        // Before the runners are deleted that jobs died with.
        let recheck = self.recover(of, fleet).await;
        let mut next = recheck.min(self.restarts(of, fleet).await?);
        next = next.min(fleet.next_hanging(of.clock.now).unwrap_or(next));
        let mut not_created = None;
        let wanted = self.plan(of, fleet);
        let (plan, full) = self.bounded(of, wanted);
        // What the watch shows of the batch leads to the next pass.
        let (plan, complete) = plan.batch();
        let surplus = matches!(&plan, Plan::ScaleDown(plan) if plan.ask > 0);
        if !surplus && fleet.members.iter().all(|(facts, _)| facts.current) && !self.goes_whole(of) {
            self.memory.memos.change(of.uid, |memo| memo.surplus_since = None);
        }
        match plan {
            Plan::Settled => {}
            // Nothing tells of a number that is not accepted.
            Plan::Held { .. } => next = next.min(HELD_RECHECK),
            Plan::Create(_) | Plan::Full { .. } if trouble.as_ref().is_some_and(Trouble::forbids) => {}
            Plan::Create(_) | Plan::Full { .. } if of.access.is_none() || !self.makes_runners(of) => {}
            Plan::Full { .. } => {}
            Plan::Create(count) => not_created = self.create(of, fleet, count, complete).await.err(),
            Plan::ScaleDown(plan) => next = next.min(self.scale_down(of, fleet, &plan).await?),
        }
        if let Some(refusal) = full.or_else(|| self.waits_for_calls(of, fleet)).filter(|_| trouble.is_none()) {
            // Others of the namespace make room without telling.
            next = next.min(ROOM_RECHECK);
            trouble = Some(Trouble::refused(&refusal));
        }
        let trouble = trouble.or_else(|| not_created.as_ref().and_then(Trouble::not_created));
        next = next.min(self.write_status(of, fleet, trouble.as_ref()).await?);
        Ok(Step { next, not_created })
    }

    /// Says how the fleet is, to those who scale it and roll it out.
    async fn publish(&self, of: Subject<'_>, fleet: &Fleet) {
        let hold = self.memory.memos.read(of.uid, |memo| memo.hold.clone()).unwrap_or_default();
        let summary = fleet.summary(of.set, &hold, of.clock.now);
        if self.memory.summaries.read(of.uid, |before| *before == summary) == Some(true) {
            return;
        }
        self.memory.summaries.set(of.uid, summary);
        if let Some(owner) = owner_of(of.set) {
            self.cluster.wake.target(&owner.target).await;
            self.cluster.wake_autoscalers_of(&owner.target).await;
        }
    }

    /// What policies are told of the pool beside how it is now.
    fn past(&self, of: Subject<'_>) -> Past {
        let (pool, target) = (pool_of(of.set, of.uid), owner_of(of.set));
        let past = Past::read(&pool, &self.memory.starts.reader(), &self.memory.jobs, of.clock.now);
        // Those of an autoscaler that is gone hold no more.
        let scaled = target.is_some_and(|owner| self.cluster.stores.is_scaled(&owner.target));
        Past { bounds: past.bounds.filter(|_| scaled), waiting: past.waiting.filter(|_| scaled), ..past }
    }

    /// What the annotation of the pool that people know says of its priority.
    fn priority(&self, of: Subject<'_>) -> Option<String> {
        let priority = |meta: &ObjectMeta| meta.annotations.as_ref()?.get(annotation::PRIORITY).cloned();
        match self.cluster.stores.target_of(of.set) {
            Some(target) => priority(target.meta()),
            None => priority(&of.set.metadata),
        }
    }

    /// Further facts about the pool.
    fn told_of_pool(&self, of: Subject<'_>, reads: &Reads) -> Attributes {
        let (namespace, owner) = (of.set.namespace().unwrap_or_default(), owner_of(of.set));
        let (priority, target) = (self.priority(of), owner.as_ref().map(|owner| &owner.target));
        let spec = &of.set.spec.template.spec;
        let about = AboutPool { spec, priority: priority.as_deref(), namespace: &namespace, target };
        self.decisions.facts.pool(reads, &about, of.clock.now)
    }

    /// Forgets what belongs to objects that do not exist, and what is long ago.
    pub(crate) fn retain(&self, exists: impl Fn(&Uid) -> bool, now: Timestamp) {
        self.memory.memos.retain(|set, _| exists(set));
        self.memory.summaries.retain(|set, _| exists(set));
        self.memory.starts.retain(|pool, _| exists(pool));
        self.losses.ended.retain(&exists);
        self.memory.finished.retain(|_, finished| finished.keep_recent(now));
    }
}

/// Whose history is that of a RunnerReplicaSet: see [`published`](crate::published).
fn pool_of(set: &RunnerReplicaSet, uid: &Uid) -> Uid {
    owner_of(set).map_or_else(|| uid.clone(), |owner| owner.uid)
}
