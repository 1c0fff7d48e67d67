//! The HorizontalRunnerAutoscaler controller: from demand to `spec.replicas` of its target.
//!
//! ```text
//! sources -> observe (ledger, job lists, fleet) -> record findings -> spec -> decide (metric, capacity policy, bounds) -> apply -> status
//! ```
//!
//! Everything that can change the answer wakes it: the autoscaler itself, its target, a webhook (by a JobLedger), a listing of
//! GitHub's jobs, a runner that finished, and the moment at which a reservation, a schedule or a delay ends.

use std::sync::Arc;
use std::time::Duration;

use kube::runtime::controller::Action;
use kube::{Resource, ResourceExt};
use pacer_api::HorizontalRunnerAutoscaler;
use pacer_cluster::clock::Clock;
use pacer_cluster::object::{ObjectKey, Uid};
use pacer_core::autoscale::Bounds;
use pacer_core::demand::{self, Demand, Finding};
use pacer_core::ledger::{Job, Ledger, State};
use pacer_core::replacement::AcceptedDemand;
use pacer_core::runner_job::RunnerJob;
use pacer_demand::ledger::Ledgers;
use pacer_github::queues::Queues as JobLists;
use pacer_github::{GitHub, Repository};
use prometheus_client::metrics::histogram::Histogram;

use crate::access::Accesses;
use crate::cluster::Cluster;
use crate::decisions::Decisions;
use crate::error::Error;
use crate::observe::Known;
use crate::published::{JobHistory, Owned, Published};
use crate::replicaset::FleetReports;
use crate::settings::Settings;
use crate::standing::Standings;
use crate::target::TargetRef;

mod apply;
mod decide;
mod estimate;
mod finding;
mod memo;
mod metric;
mod observe;
mod others;
mod problem;
mod proof;
mod queue;
mod report;
mod room;
mod spec;
mod status;

pub use memo::{AutoscalerMemo, MetricGauges};
pub use problem::Problem;
pub(crate) use report::Reporting;
pub use spec::check;
use spec::{Sources, Spec};
use status::Outcome;

/// The least time between passes over an autoscaler. A job that comes and goes has some ten of them, by its events and by what becomes of its runner, and
/// the next job must not wait for those.
const PACE: Duration = Duration::from_millis(10);

/// How much further apart they are for each job: a pass looks at all of them, so that passes take the same share of the processor's time however
/// many there are. In a burst of a thousand the number is set four times a second.
const PACE_PER_JOB: Duration = Duration::from_micros(200);

/// Each of the first jobs counts twice, so that a burst becomes few passes, and few changes of the number, soon after its beginning.
const FIRST_JOBS: u32 = 200;

/// The longest time between them, whatever the number of jobs: a runner that has finished is replaced after a pass.
const LONGEST_PACE: Duration = Duration::from_secs(2);

/// Reconciles HorizontalRunnerAutoscalers.
pub struct Autoscalers {
    pub(crate) cluster: Cluster,
    pub(crate) github: Arc<Accesses>,
    pub(crate) demand: DemandSources,
    pub(crate) decisions: Decisions,
    pub(crate) settings: Arc<Settings>,
    pub(crate) memory: AutoscalerMemory,
    pub(crate) reporting: Reporting,
}

/// Where jobs are known from.
pub(crate) struct DemandSources {
    /// Webhooks: JobLedgers.
    pub(crate) ledgers: Arc<Ledgers>,
    /// Polling: GitHub's job lists.
    pub(crate) queues: Arc<JobLists>,
}

/// What the controller remembers, says and is told.
pub(crate) struct AutoscalerMemory {
    pub(crate) memos: Owned<Uid, AutoscalerMemo>,
    readers: queue::Readers,
    reports: DemandReports,
    fleets: FleetReports,
    known: Published<Uid, Known>,
    estimator: Estimator,
}

/// What estimates of starts are made from, and where it is kept how they turned out.
pub(crate) struct Estimator {
    /// Where runners stand.
    pub(crate) standings: Arc<Standings>,
    /// By how much the likely moment missed the start, in seconds.
    pub(crate) errors: Histogram,
}

impl AutoscalerMemory {
    /// Nothing remembered.
    pub(crate) fn new(reports: DemandReports, fleets: FleetReports, known: Published<Uid, Known>, estimator: Estimator) -> Self {
        Self { memos: Owned::default(), readers: queue::Readers::default(), reports, fleets, known, estimator }
    }
}

/// What the controller tells others.
pub(crate) struct DemandReports {
    pub(crate) accepted: Owned<Uid, AcceptedDemand>,
    pub(crate) jobs: Owned<Uid, RunnerJob>,
    pub(crate) history: Owned<Uid, JobHistory>,
}

impl DemandReports {
    /// Nothing said yet. `history` is what it says of the jobs of pools.
    pub(crate) fn new(history: Owned<Uid, JobHistory>) -> Self {
        Self { accepted: Owned::default(), jobs: Owned::default(), history }
    }
}

/// An autoscaler that is being reconciled.
#[derive(Clone, Copy)]
struct Subject<'a> {
    object: &'a HorizontalRunnerAutoscaler,
    uid: &'a Uid,
    clock: Clock,
}

/// What there is at one moment.
struct Observation {
    ledger: Arc<Ledger>,
    /// None without usable credentials.
    github: Option<GitHub>,
    queues: queue::Queues,
    fleet: observe::Fleet,
    demand: Demand,
}

/// Why there is no number.
enum Stop {
    Problem(Problem),
    Failed(Error),
}

impl From<Problem> for Stop {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Autoscalers {
    /// Brings the target of one autoscaler to the number that demand asks for.
    ///
    /// # Errors
    ///
    /// When the API server or GitHub did not do their part; tried again with backoff.
    pub async fn reconcile(&self, autoscaler: Arc<HorizontalRunnerAutoscaler>) -> Result<Action, Error> {
        let uid = Uid::of(&*autoscaler)?;
        let of = Subject { object: &autoscaler, uid: &uid, clock: Clock::read() };
        if autoscaler.meta().deletion_timestamp.is_some() {
            self.stop_reading(of);
            return Ok(Action::await_change());
        }
        if let Some(wait) = self.memory.memos.change(&uid, |memo| memo.passes.too_soon(pace(memo.jobs), of.clock.instant)) {
            return Ok(Action::requeue(wait));
        }
        let proof = self.proof(of).await;
        let mut kept = None;
        let outcome = match self.step(of).await {
            Ok(outcome) => outcome,
            Err(Stop::Problem(problem)) => {
                if problem.has_no_target() {
                    self.stop_reading(of);
                }
                kept = self.keep(of).await?;
                Outcome::Problem(problem)
            }
            Err(Stop::Failed(error)) => return Err(error),
        };
        let next = outcome.next(of.clock.now).unwrap_or(self.settings.sync_period).min(self.settings.sync_period);
        let later = self.write_status(of, &outcome, &proof).await?;
        let later = [proof.recheck(), kept].into_iter().flatten().fold(later, Duration::min);
        Ok(Action::requeue(next.min(later).max(Duration::from_millis(1))))
    }

    async fn step(&self, of: Subject<'_>) -> Result<Outcome, Stop> {
        let sources = Sources::of(of.object, &self.cluster.stores)?;
        self.github.tenancies().admits(sources.target.namespace(), sources.target.config()).map_err(Problem::NotAllowed)?;
        let mut seen = self.observe(of, &sources).await?;
        self.tell_runners(of, &seen.fleet, &seen.ledger, &seen.demand).await;
        let spec = spec::read(of.object, &sources, self.settings.scale_down_delay, of.clock.now);
        if spec.is_err() {
            // Jobs that wait do so until it can decide. The end of one, where its event got lost, has to be known meanwhile: its runner would drain
            // until its deadline.
            seen.demand.findings.retain(|finding| matches!(finding, Finding::Over(_)));
        }
        self.record_findings(of, &sources, &seen).await;
        let spec = spec?;
        self.remember_jobs(of, &spec, &seen);
        let mut decided = self.decide(of, &spec, &seen).await?;
        let decision = &decided.decision;
        let later = self.apply(of, &spec.sources.target, &seen.fleet, decision.desired, &decision.reason).await?;
        self.estimate(of, &spec, &seen, &decided);
        let later = later.and_then(|wait| of.clock.now.checked_add(wait).ok());
        decided.next = [later, decided.next].into_iter().flatten().min();
        Ok(Outcome::Decided { decided, summary: spec.summary })
    }

    /// Keeps the target of an autoscaler that can't decide at its number: runners that finish are replaced meanwhile, or none would be left in
    /// the end.
    ///
    /// Returns how long the number waits, where it does.
    async fn keep(&self, of: Subject<'_>) -> Result<Option<Duration>, Error> {
        let target = TargetRef::of(of.object).and_then(|named| self.cluster.stores.target(&named));
        let Some(target) = target.filter(|target| !target.is_leaving()) else { return Ok(None) };
        let fleet = self.fleet(&target);
        // What events say of runners at work stays true, and protects them.
        self.tell_runners(of, &fleet, &self.demand.ledgers.read(of.object), &Demand::default()).await;
        self.apply(of, &target, &fleet, target.replicas(), &"the autoscaler can't decide and keeps its number").await
    }

    /// Reads what is known of jobs and runners.
    async fn observe(&self, of: Subject<'_>, sources: &Sources) -> Result<Observation, Problem> {
        let ledger = self.demand.ledgers.read(of.object);
        // Its own credentials, else those of its target's runners, else the operator's.
        let secret = of.object.spec.credentials_secret().or_else(|| sources.target.config().credentials_secret());
        let github = self.github.github(&of.object.namespace().unwrap_or_default(), secret).await;
        if matches!(&github, Err(error) if !matches!(error, Error::Kube(_))) {
            // Credentials that were taken away are not used any longer.
            self.stop_reading(of);
        }
        let github = match github {
            Ok(github) => Some(github),
            Err(error) if sources.polls() => return Err(Problem::GitHub(error.to_string())),
            Err(_) => None,
        };
        let queues = self.queues(of, sources, github.as_ref(), &ledger);
        let fleet = self.fleet(&sources.target);
        let demand = self.memory.memos.change(of.uid, |memo| {
            let since = |id| memo.within.since(id);
            let demand = demand::assess(&ledger, &queues.listings, &fleet.runners, since, sources.life, of.clock.now);
            if queues.are_known() {
                memo.polled = Some(demand.polled.clone().into());
            }
            demand
        });
        Ok(Observation { ledger, github, queues, fleet, demand })
    }

    /// Keeps what later passes, and policies, are told of the pool's jobs.
    fn remember_jobs(&self, of: Subject<'_>, spec: &Spec<'_>, seen: &Observation) {
        let took = self.memory.memos.change(of.uid, |memo| {
            memo.jobs = u32::try_from(seen.demand.jobs.len()).unwrap_or(u32::MAX);
            memo.within.follow(&seen.demand, spec.bounds.max, of.clock.now);
            memo.running.follow(&seen.demand, &seen.ledger, &seen.queues.listings, &seen.fleet.runners)
        });
        let listed = seen.queues.listings.iter().flat_map(|listing| &listing.jobs).map(|job| (job.id, job.queued_at));
        let jobs = seen.ledger.all().map(|(id, job)| (id, job.queued)).chain(listed);
        let Some(pool) = spec.sources.target.uid() else { return };
        let waits = |job: &&Arc<Job>| spec.sources.has_trigger && job.state == State::Queued;
        let waiting_by_event = seen.demand.jobs.values().filter(waits).count();
        self.memory.reports.history.change(&pool, |history| {
            took.into_iter().for_each(|seconds| history.runs.add(seconds));
            history.arrivals.record(jobs, of.clock.now);
            history.waiting = Some(seen.demand.waiting());
            history.waiting_by_event = waiting_by_event;
            history.bounds = Some(Bounds { min: spec.override_min.unwrap_or(spec.bounds.min), ..spec.bounds });
        });
    }

    /// The autoscalers that read the job list of a repository are reconciled soon.
    pub(crate) async fn wake_readers_of(&self, repository: &Repository) {
        for ObjectKey { namespace, name } in self.memory.readers.of(repository) {
            self.cluster.wake.autoscaler(&namespace, &name).await;
        }
    }

    /// Forgets what belongs to objects that do not exist.
    pub(crate) fn retain(&self, exists: impl Fn(&Uid) -> bool) {
        self.memory.memos.retain(|autoscaler, _| exists(autoscaler));
        self.memory.readers.retain(&exists);
        self.memory.reports.accepted.retain(|set, _| exists(set));
        self.memory.reports.jobs.retain(|runner, _| exists(runner));
        self.memory.reports.history.retain(|pool, _| exists(pool));
        self.demand.ledgers.retain(&exists);
    }
}

/// The least time between passes that look at so many jobs.
fn pace(jobs: u32) -> Duration {
    PACE.saturating_add(PACE_PER_JOB.saturating_mul(jobs.saturating_add(jobs.min(FIRST_JOBS)))).min(LONGEST_PACE)
}

/// How much of a pace is left.
fn left(pace: Duration, since: Option<std::time::Instant>, now: std::time::Instant) -> Option<Duration> {
    since.and_then(|since| pace.checked_sub(now.saturating_duration_since(since))).filter(|left| !left.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_over_many_jobs_are_further_apart_up_to_a_bound() {
        assert_eq!(
            [0, 1, 250, 1_000, 10_000, u32::MAX].map(|jobs| pace(jobs).as_micros()),
            [10_000, 10_400, 100_000, 250_000, 2_000_000, 2_000_000]
        );
    }
}
