//! The Runner controller: one Runner, one pod, one registration.
//!
//! ```text
//! observe -> finalizer | stop | build (token, account, claims, pod) | recreate (stand-alone only) -> status
//! ```

use std::sync::Arc;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::{Api, Resource, ResourceExt};
use pacer_api::names::finalizer;
use pacer_api::{Runner, RunnerReplicaSet};
use pacer_cluster::clock::Clock;
use pacer_cluster::events::Reason;
use pacer_cluster::object::Uid;
use pacer_cluster::owner::controller;
use pacer_core::phase::{self, Assessment, Cause, Phase, ToldBy};
use pacer_core::runner_job::RunnerJob;
use pacer_core::stop::PodDeletion;
use pacer_github::JustInTime;
use pacer_github::runner_list::Haste;
use serde_json::json;

use crate::access::{Access, Accesses};
use crate::cluster::Cluster;
use crate::decisions::Decisions;
use crate::error::Error;
use crate::just_in_time::{self, Recalled};
use crate::observe::node::Nodes;
use crate::observe::{Known, Observed, Observer};
use crate::pod;
use crate::published::{JobHistory, Owned, Published};
use crate::removal::Removals;
use crate::settings::{PHASE_DELAY, Settings};
use crate::standing::{self, Standings};
use crate::target::owner_of;
use crate::token::Tokens;
use crate::usage::{Look, Pool, ShardUsage};

mod build;
mod linked;
mod recreate;
mod status;
mod stop;

pub use build::Supplies;
pub(crate) use status::RunnerStatuses;

/// Reconciles Runners.
pub struct Runners {
    pub(crate) cluster: Cluster,
    pub(crate) github: Arc<Accesses>,
    pub(crate) supplies: Arc<Supplies>,
    pub(crate) decisions: Decisions,
    pub(crate) settings: Arc<Settings>,
    pub(crate) memory: RunnerMemory,
}

/// What the controller remembers about Runners.
pub(crate) struct RunnerMemory {
    pub(crate) observer: Observer,
    pub(crate) statuses: Arc<RunnerStatuses>,
    pub(crate) standings: Arc<Standings>,
    pub(crate) usage: ShardUsage,
    known: Owned<Uid, Known>,
    /// Resource versions at which finalizers were taken away.
    released: Owned<Uid, Option<String>>,
    pools: Published<Uid, JobHistory>,
}

/// What the controller is told of jobs.
pub(crate) struct Told {
    /// What job events say of runners, by UID of the Runner.
    pub(crate) jobs: Published<Uid, RunnerJob>,
    /// What was seen of the jobs of pools, by UID of the scale target, or of the RunnerReplicaSet that none owns.
    pub(crate) pools: Published<Uid, JobHistory>,
}

impl RunnerMemory {
    /// Nothing remembered.
    pub(crate) fn new(
        cluster: &Cluster,
        settings: &Arc<Settings>,
        told: Told,
        removals: Arc<Removals>,
        usage: ShardUsage,
    ) -> Self {
        let Told { jobs, pools } = told;
        let known: Owned<Uid, Known> = Owned::default();
        let (client, stores, hooked) = (cluster.client.clone(), cluster.stores.clone(), settings.pod.status_hook);
        let statuses = Arc::new(RunnerStatuses::new(client.clone(), settings.clone()));
        let nodes = Arc::new(Nodes::new(client));
        let observer = Observer { nodes, stores, known: known.reader(), jobs, removals, hooked };
        Self { observer, statuses, standings: Arc::default(), usage, known, released: Owned::default(), pools }
    }

    fn forget(&self, runner: &Uid) {
        self.known.remove(runner);
        self.released.remove(runner);
        self.statuses.forget(runner);
        self.observer.removals.forget(runner);
    }
}

/// A Runner and what a reconcile knows about it.
#[derive(Clone, Copy)]
struct Subject<'a> {
    runner: &'a Arc<Runner>,
    uid: &'a Uid,
    clock: Clock,
}

impl Runners {
    /// Brings one Runner a step further.
    ///
    /// # Errors
    ///
    /// When the API server or GitHub did not do their part; tried again with backoff.
    pub async fn reconcile(&self, runner: Arc<Runner>) -> Result<Action, Error> {
        let uid = Uid::of(&*runner)?;
        let subject = Subject { runner: &runner, uid: &uid, clock: Clock::read() };
        let namespace = runner.namespace().unwrap_or_default();
        let verdict = self.github.tenancies().admits(&namespace, &runner.spec.config);
        let access = match &verdict {
            // Nothing is called for one that has nothing at GitHub. One whose right was taken away is still followed and removed.
            Err(refusal) if !self.was_served(&runner) => Err(refusal.clone().into()),
            _ => self.github.of(&runner).await,
        };
        self.recall(subject).await?;
        let observed = self.observe(subject, access.as_ref().ok()).await?;
        let deleting = observed.facts.deleting.is_some();
        let held = runner.finalizers().iter().any(|name| name == finalizer::RUNNER);
        if deleting && !held {
            self.memory.forget(&uid);
            return Ok(Action::await_change());
        }
        let released = self.memory.released.get(&uid);
        if deleting && released.is_some() && released == runner.resource_version() {
            // Done; the watch is late to show it.
            return Ok(Action::requeue(self.settings.sync_period));
        }
        if deleting {
            return self.stop(subject, access, observed).await;
        }
        let access = match access {
            Ok(access) => access,
            Err(error) => return self.refuse(subject, &observed, &error).await,
        };
        if !held {
            self.add_finalizer(&runner).await?;
        }
        if pod::is_leftover(&runner) {
            return self.remove_leftover(subject).await;
        }
        let assessment = phase::assess(&observed.facts, subject.clock.now);
        let makes_pod = observed.facts.pod.is_none() && assessment.phase == Phase::Pending && !observed.pod_in_flight();
        let step = match verdict {
            Ok(()) if makes_pod => self.make_pod(subject, &access).await,
            Err(refusal) if makes_pod => return self.refuse(subject, &observed, &refusal.into()).await,
            admitted => self.follow(subject, &access, &observed, &assessment, admitted.is_ok()).await,
        };
        // A step that failed, at GitHub for instance, is no reason to say nothing about the runner.
        let (next, failed) = step.map_or_else(|error| (self.settings.sync_period, Some(error)), |next| (next, None));
        // New pods, refusals and removals change what is known. A step of a runner that works changes nothing, and there are thousands of them.
        let changed = assessment.phase == Phase::Pending || failed.is_some() || has_only_to_go(&observed);
        let observed = if changed { self.observe(subject, Some(&access)).await? } else { observed };
        let assessment = phase::assess(&observed.facts, subject.clock.now);
        let next = match self.restart_stand_alone(subject, &access, &observed, &assessment).await? {
            Some(wait) => next.min(wait),
            None => next,
        };
        // Of others, their set says it.
        let alone = observed.facts.pod.is_none() && controller::<RunnerReplicaSet>(&*runner).is_none();
        let waits = alone.then(|| self.github.tenancies().calls_put_off(&namespace)).flatten();
        let waits = waits.map(|refusal| (refusal.reason(), refusal.to_string()));
        let refused = waits.as_ref().map(|(reason, message)| (*reason, message.as_str()));
        let status = self.memory.statuses.write(subject, &observed, &assessment, refused, self.job_waits(&runner)).await?;
        match failed {
            Some(error) => Err(error),
            None => Ok(Action::requeue(next.min(status).min(self.settings.sync_period))),
        }
    }

    /// Forgets what belongs to Runners that do not exist.
    pub(crate) fn retain(&self, exists: impl Fn(&Uid) -> bool) {
        self.memory.known.retain(|runner, _| exists(runner));
        self.memory.released.retain(|runner, _| exists(runner));
        self.memory.statuses.retain(&exists);
        self.memory.standings.retain(&exists);
        self.memory.observer.removals.retain(exists);
    }

    async fn observe(&self, of: Subject<'_>, access: Option<&Access>) -> Result<Observed, Error> {
        let observed = self.memory.observer.observe(of.runner, access, of.clock).await?;
        self.memory.known.change(of.uid, |known| {
            known.record(&observed);
            if let Some(access) = access {
                known.api = Some(Arc::from(access.github().endpoints().api()));
            }
        });
        // Whoever replaces the others says where they stand.
        if controller::<RunnerReplicaSet>(&**of.runner).is_none() {
            let assessment = phase::assess(&observed.facts, of.clock.now);
            let namespace = of.runner.metadata.namespace.as_deref().unwrap_or_default();
            let subject = standing::Subject { uid: of.uid, namespace, set: None };
            self.memory.standings.tell(subject, &observed.facts, &assessment, of.clock.now);
            let standing = self.memory.standings.of(of.uid);
            let job = self.memory.observer.jobs.get(of.uid);
            if let Some(look) = standing.and_then(|standing| Look::of(&observed.facts, &standing, job.as_ref())) {
                let pool = Pool { namespace: namespace.to_owned(), name: String::new() };
                self.memory.usage.see(of.uid, pool, vec![look], of.clock.now);
            }
        }
        Ok(observed)
    }

    /// Its finalizer is there by now, so that its registration goes as well.
    async fn remove_leftover(&self, of: Subject<'_>) -> Result<Action, Error> {
        let note = "removed: it only held a registration for an ARC before 0.21; registrationOnlyAtZero of the RunnerDeployment keeps one";
        self.memory.observer.removals.delete(of.runner.clone(), of.clock).await?;
        self.cluster.events.publish(Reason::RunnerRemoved, &of.runner.object_ref(&()), None, note).await;
        Ok(Action::requeue(self.settings.sync_period))
    }

    /// Whether a Runner may have something at GitHub: a pod, or a registration.
    fn was_served(&self, runner: &Runner) -> bool {
        let has_pod = self.cluster.stores.pod_of(runner).is_some();
        has_pod || runner.status.as_ref().is_some_and(|status| status.runner_id.is_some() || status.pod_uid.is_some())
    }

    /// Learns under which id a Runner was registered ahead, or that it may be, by this process or one before it, as long as it has no pod that
    /// says so.
    async fn recall(&self, of: Subject<'_>) -> Result<(), Error> {
        let has_pod = || self.cluster.stores.pod_of(of.runner).is_some();
        if !just_in_time::is_wanted(of.runner) || self.memory.known.get(of.uid).seen.is_known() || has_pod() {
            return Ok(());
        }
        match self.supplies.configurations.recall(of.runner, of.uid).await? {
            Some(Recalled::Made { id, .. } | Recalled::Unwritten(JustInTime { id, .. })) => {
                self.memory.known.change(of.uid, |known| known.registered(id));
            }
            Some(Recalled::Begun) => self.memory.known.change(of.uid, |known| known.creation.registering = true),
            None => {}
        }
        Ok(())
    }

    async fn add_finalizer(&self, runner: &Runner) -> Result<(), Error> {
        let mut finalizers = runner.finalizers().to_vec();
        finalizers.push(finalizer::RUNNER.to_owned());
        let patch = json!({"metadata": {"resourceVersion": runner.resource_version(), "finalizers": finalizers}});
        let runners: Api<Runner> = self.cluster.beside(runner);
        runners.patch_metadata(&runner.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await?;
        Ok(())
    }

    /// The Runner can't be served with its settings: says so, and leaves what runs alone.
    async fn refuse(&self, of: Subject<'_>, observed: &Observed, error: &Error) -> Result<Action, Error> {
        let assessment = phase::assess(&observed.facts, of.clock.now);
        let message = error.to_string();
        let is_said = status::says_refused(of.runner, &message);
        self.memory.statuses.write(of, observed, &assessment, Some((error.reason(), message.as_str())), false).await?;
        if !is_said {
            self.cluster.events.publish(error.event(), &of.runner.object_ref(&()), None, &message).await;
        }
        Ok(Action::requeue(self.settings.sync_period))
    }

    /// A Runner whose pod exists or existed: hurries the listing while it is needed, keeps the token fresh until the container has started.
    async fn follow(
        &self,
        of: Subject<'_>,
        access: &Access,
        observed: &Observed,
        assessment: &Assessment,
        admitted: bool,
    ) -> Result<Duration, Error> {
        let namespace = of.runner.namespace().unwrap_or_default();
        let await_listing = |why| access.await_listing(&observed.facts.name, why, observed.waited(of.clock));
        let mut next = self.settings.sync_period;
        match assessment.phase {
            Phase::Starting | Phase::Dead => {
                let why = if assessment.phase == Phase::Dead { Haste::Removal } else { Haste::Registration };
                let told_by = self.told_by(of, observed, assessment.phase);
                match phase::wants_listing(&observed.facts, assessment, told_by, of.clock.now) {
                    Some(wait) if wait.is_zero() => await_listing(why),
                    Some(wait) => next = wait,
                    None => {}
                }
            }
            // Online, but the listing is older than the pod's last change.
            Phase::Busy if observed.facts.was_listed_idle(of.clock.now) => await_listing(Haste::JobEnd),
            Phase::Offline if has_only_to_go(observed) => {
                self.memory.observer.removals.delete_pod(&namespace, &observed.facts, PodDeletion::Graceful).await?;
            }
            Phase::Pending => {
                if let Some(wait) = self.supplies.claims.replace_unreachable(of.runner, &observed.facts, of.clock).await? {
                    return Ok(wait);
                }
                let uses_token = !just_in_time::is_wanted(of.runner);
                if uses_token && assessment.trouble.as_ref().is_some_and(|trouble| trouble.cause == Cause::ConfigError) {
                    // Perhaps the Secret with the token is not there any more.
                    self.supplies.tokens.doubt(&namespace, &Tokens::source(access).name).await;
                }
                if admitted && uses_token {
                    self.supplies.tokens.ensure(&namespace, access, of.clock.now).await?;
                }
            }
            _ => {}
        }
        let age = Duration::try_from(of.clock.now.duration_since(observed.facts.created)).unwrap_or_default();
        let young = PHASE_DELAY.checked_sub(age).filter(|left| !left.is_zero());
        Ok(next.min(young.unwrap_or(next)))
    }

    /// Whether an event told of a job that waits for a runner of this one's pool.
    fn job_waits(&self, runner: &Runner) -> bool {
        let pool = self.cluster.stores.set_of(runner).and_then(|set| owner_of(&set)).map(|owner| owner.uid);
        pool.is_some_and(|pool| self.memory.pools.read(&pool, |jobs| jobs.waiting_by_event > 0) == Some(true))
    }

    /// Who is about to say that a runner has registered, or that it is over.
    fn told_by(&self, of: Subject<'_>, observed: &Observed, phase: Phase) -> ToldBy {
        let is_told = match phase {
            Phase::Starting => self.job_waits(of.runner),
            _ => observed.facts.reports_job.is_some() || observed.facts.job_over.is_some(),
        };
        if is_told { ToldBy::Events } else { ToldBy::Listings }
    }
}

/// A pod that was there to register its runner, and has.
fn has_only_to_go(observed: &Observed) -> bool {
    let over = observed.facts.pod.as_ref().is_some_and(|pod| pod.stopped() && pod.deleting.is_none());
    observed.facts.registration_only && over
}
