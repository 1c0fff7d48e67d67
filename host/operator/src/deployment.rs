//! The controller of RunnerDeployments and RunnerSets: one RunnerReplicaSet per template, and the way from one to the next.
//!
//! ```text
//! observe (RunnerReplicaSets) -> newest (adopt | create) -> registration (RunnerDeployment, while empty) or take-over from ARC (RunnerSet)
//!   -> decide (rollout) -> apply -> claims (RunnerSet) -> status
//! ```

use std::borrow::Borrow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::api::ObjectMeta;
use kube::runtime::controller::Action;
use kube::{Resource, ResourceExt};
use pacer_api::names::label;
use pacer_api::{RunnerDeployment, RunnerReplicaSet, RunnerSet, RunnerTemplate};
use pacer_cluster::clock::Clock;
use pacer_cluster::live;
use pacer_cluster::object::Uid;
use pacer_cluster::seed::Seed;
use pacer_cluster::status::PacedStatus;
use pacer_core::rollout::{self, Asked, Rollout, Set};
use pacer_policyset::PolicySets;

use crate::arc::statefulset::StatefulSets;
use crate::cluster::Cluster;
use crate::error::Error;
use crate::published::{FleetSummary, Owned, Published};
use crate::refusal::Refusal;
use crate::removal::Removals;
use crate::runner::Supplies;
use crate::settings::Settings;
use crate::target::Target;
pub use build::replica_set;
use status::Progress;

mod apply;
mod build;
mod registration;
mod status;

/// Reconciles RunnerDeployments and RunnerSets.
pub struct Targets {
    pub(crate) cluster: Cluster,
    /// For what the status says of them.
    pub(crate) policies: Arc<PolicySets>,
    /// Claims of RunnerSets.
    pub(crate) supplies: Arc<Supplies>,
    pub(crate) legacy: StatefulSets,
    pub(crate) settings: Arc<Settings>,
    pub(crate) memory: TargetMemory,
}

/// What the controller remembers and is told.
pub(crate) struct TargetMemory {
    memos: Owned<Uid, Memo>,
    summaries: Published<Uid, FleetSummary>,
    removals: Arc<Removals>,
    seed: Seed,
}

impl TargetMemory {
    /// Nothing remembered.
    pub(crate) fn new(summaries: Published<Uid, FleetSummary>, removals: Arc<Removals>) -> Self {
        Self { memos: Owned::default(), summaries, removals, seed: Seed::default() }
    }
}

/// What is remembered about one target.
#[derive(Clone, Debug, Default)]
struct Memo {
    status: PacedStatus,
    /// Name of the registration-only Runner that was made and not yet seen, and when.
    registration: Option<(String, Instant)>,
    /// Numbers that were sent to its RunnerReplicaSets.
    asked: Asked<Uid>,
    /// That the API server refused one of these when it was last sent.
    refused: Option<Refusal<Replicas>>,
}

/// Replicas that a rollout wants its sets to have.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Replicas {
    newest: u32,
    old: Vec<u32>,
}

/// The RunnerReplicaSets of a target.
struct Sets {
    newest: Arc<RunnerReplicaSet>,
    old: Vec<Arc<RunnerReplicaSet>>,
}

impl Sets {
    fn all(&self) -> impl Iterator<Item = &RunnerReplicaSet> {
        std::iter::once(&self.newest).chain(&self.old).map(Arc::as_ref)
    }
}

impl Targets {
    /// Brings one RunnerDeployment a step further.
    ///
    /// # Errors
    ///
    /// When the API server did not do its part; tried again with backoff.
    pub async fn reconcile_deployment(&self, deployment: Arc<RunnerDeployment>) -> Result<Action, Error> {
        self.reconcile(&Target::Deployment(deployment)).await
    }

    /// Brings one RunnerSet a step further.
    ///
    /// # Errors
    ///
    /// When the API server did not do its part; tried again with backoff.
    pub async fn reconcile_runner_set(&self, set: Arc<RunnerSet>) -> Result<Action, Error> {
        self.reconcile(&Target::Set(set)).await
    }

    async fn reconcile(&self, target: &Target) -> Result<Action, Error> {
        if target.is_leaving() {
            // Its RunnerReplicaSets and runners are deleted by the garbage collector; each runner drains on its own.
            return Ok(Action::await_change());
        }
        let clock = Clock::read();
        let template = target.template(&self.settings.common_labels);
        let mut all = self.cluster.stores.sets_of(target);
        all.sort_by_key(|set| (set.metadata.creation_timestamp.clone().map(|time| time.0), set.name_any()));
        let Some(newest) = newest(&all, &template).cloned() else {
            if self.lives(target).await? {
                self.create(target, &template, self.first_replicas(target, &all, clock), clock).await?;
            }
            return Ok(Action::requeue(self.settings.sync_period));
        };
        let old = all.into_iter().filter(|set| set.uid() != newest.uid()).collect();
        let sets = Sets { newest, old };
        let online = sets.all().filter_map(|set| self.summary(set)).map(|summary| summary.online).fold(0, u32::saturating_add);
        let hold_last = match target {
            Target::Deployment(deployment) => {
                let holds = self.keep_registration(deployment, &template, online, clock).await?;
                holds && sets.newest.spec.replicas_or_default() > 0
            }
            Target::Set(set) => {
                self.legacy.adopt(set, &sets.newest, clock).await?;
                false
            }
        };
        let rollout = self.plan(target, target.replicas().max(u32::from(hold_last)), &sets, clock);
        let refused = self.apply(target, &sets, &rollout, clock).await?;
        if let Target::Set(set) = target {
            self.supplies.claims.follow_retention(set).await?;
        }
        let hanging = sets.all().filter_map(|set| self.summary(set)).map(|summary| summary.hanging).fold(0, u32::saturating_add);
        let progress = Progress { rollout, refused, online, hold_last, hanging };
        let status = self.write_status(target, &sets, &progress, clock).await?;
        let sync = self.settings.sync_period;
        let is_done = progress.rollout.complete && progress.refused.is_none();
        let next = if is_done { sync } else { Duration::from_secs(5).min(sync) };
        Ok(Action::requeue(next.min(status)))
    }

    fn summary(&self, set: &RunnerReplicaSet) -> Option<FleetSummary> {
        self.memory.summaries.get(&Uid::of(set).ok()?)
    }

    /// Replicas of the first RunnerReplicaSet of a template, beside those of the templates before.
    fn first_replicas(&self, target: &Target, before: &[Arc<RunnerReplicaSet>], clock: Clock) -> u32 {
        let desired = target.replicas();
        let before: Vec<Set> = before.iter().map(|set| self.describe(target, set, clock)).collect();
        rollout::first(desired, target.max_surge(desired), &before)
    }

    /// Whether the target is still there and is to stay. Asked before a RunnerReplicaSet is made, which happens once per template: a target
    /// that was deleted while its watch was interrupted would get a new one each time that the garbage collector deletes the last one.
    async fn lives(&self, target: &Target) -> Result<bool, Error> {
        let (namespace, name, client) = (target.namespace(), target.name(), &self.cluster.client);
        let uid = target.uid().ok_or(Error::Incomplete(target.kind().as_str(), "UID"))?;
        let live: Option<ObjectMeta> = match target {
            Target::Deployment(_) => live::metadata_of::<RunnerDeployment>(client, namespace, name, uid.as_str()).await?,
            Target::Set(_) => live::metadata_of::<RunnerSet>(client, namespace, name, uid.as_str()).await?,
        };
        let lives = live.is_some_and(|live| live.deletion_timestamp.is_none());
        if !lives {
            let target = target.reference();
            tracing::info!(%target, "no RunnerReplicaSet made: its owner was deleted, the watch has not shown that yet");
        }
        Ok(lives)
    }

    fn plan(&self, target: &Target, desired: u32, sets: &Sets, clock: Clock) -> Rollout {
        let old: Vec<Set> = sets.old.iter().map(|set| self.describe(target, set, clock)).collect();
        rollout::plan(desired, target.max_surge(desired), self.describe(target, &sets.newest, clock), &old)
    }

    fn describe(&self, target: &Target, set: &RunnerReplicaSet, clock: Clock) -> Set {
        let summary = self.summary(set);
        let wanted = set.spec.replicas_or_default();
        let leaving = set.meta().deletion_timestamp.is_some();
        let generation = set.metadata.generation.unwrap_or_default();
        let most = |memo: &Memo| Uid::of(set).map_or(0, |uid| memo.asked.most(&uid, generation, clock.now));
        Set {
            wanted,
            // Nobody has counted it yet: nothing new is made on the guess that there is room, unless it is going anyway.
            alive: summary.as_ref().map_or(if leaving { wanted } else { u32::MAX }, |summary| summary.alive),
            online: summary.as_ref().map_or(0, |summary| summary.online),
            busy: summary.as_ref().map_or(0, |summary| summary.busy),
            leaving: summary.as_ref().map_or(0, |summary| summary.leaving),
            present: summary.as_ref().map_or(u32::MAX, |summary| summary.present),
            observed: summary.is_some_and(|summary| summary.generation == generation),
            asked: target.uid().and_then(|uid| self.memory.memos.read(&uid, most)).unwrap_or_default(),
        }
    }

    /// Forgets what belongs to targets that do not exist, and what is long ago.
    pub(crate) fn retain(&self, exists: impl Fn(&Uid) -> bool, now: Instant) {
        self.memory.memos.retain(|target, _| exists(target));
        self.legacy.sweep(now);
    }
}

/// The set of this template: by its revision label, or, for sets that ARC made with a hash of its own, by the template's meaning. Among
/// several the newest.
///
/// `sets` are those of one deployment, oldest first.
pub fn newest<'a, S: Borrow<RunnerReplicaSet>>(sets: &'a [S], template: &RunnerTemplate) -> Option<&'a S> {
    let revision = template.revision();
    let meaning = template.meaning();
    let is_alive = |set: &RunnerReplicaSet| set.meta().deletion_timestamp.is_none();
    let alive = || sets.iter().rev().filter(|set| is_alive((*set).borrow()));
    let has_revision = |set: &RunnerReplicaSet| set.labels().get(label::RUNNER_TEMPLATE_HASH) == Some(&revision);
    let means = |set: &RunnerReplicaSet| set.spec.template.meaning() == meaning;
    alive().find(|set| has_revision((*set).borrow())).or_else(|| alive().find(|set| means((*set).borrow())))
}
