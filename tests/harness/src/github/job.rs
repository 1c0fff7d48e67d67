//! Jobs and runs: queued, given to runners, completed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;

use super::{
    hook::JobAction,
    place::{JobId, PlaceId, RunId, RunnerId, Scope},
    runner::{LabelSet, Pool, Runner, label_set},
    state::{Due, State},
};

/// A job to queue.
///
/// `JobSpec::new("acme/app", ["linux"])` describes a job of one second in a run of its own.
#[derive(Clone, Debug)]
pub struct JobSpec {
    /// The repository, `owner/name`; it is made where it does not exist.
    pub repository: String,
    /// `runs-on`: every label must be a runner's, compared without regard to case.
    pub labels: Vec<String>,
    /// `runs-on.group`: only runners of the group of this name.
    pub group: Option<String>,
    /// How long a runner works on it; handed to the agent, not enforced.
    pub duration: Duration,
    /// Name of the job.
    pub name: String,
    /// Name of the workflow.
    pub workflow: String,
    /// The run it belongs to; a run of its own by default.
    pub run: Option<RunId>,
}

impl JobSpec {
    /// A job of one second, in a run of its own.
    pub fn new<L: Into<String>>(repository: impl Into<String>, labels: impl IntoIterator<Item = L>) -> Self {
        Self {
            repository: repository.into(),
            labels: labels.into_iter().map(Into::into).collect(),
            group: None,
            duration: Duration::from_secs(1),
            name: "build".to_owned(),
            workflow: "CI".to_owned(),
            run: None,
        }
    }

    /// The same job, lasting `duration`.
    #[must_use]
    pub fn lasting(self, duration: Duration) -> Self {
        Self { duration, ..self }
    }

    /// The same job as part of `run`.
    #[must_use]
    pub fn in_run(self, run: RunId) -> Self {
        Self { run: Some(run), ..self }
    }
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Conclusion {
    /// Every step passed.
    Success,
    /// A step failed, or the runner was lost.
    Failure,
    /// Cancelled by somebody, before or after its start.
    Cancelled,
    /// Its condition was false; it never had a runner.
    Skipped,
    /// It took longer than allowed.
    TimedOut,
}

impl Conclusion {
    /// GitHub's word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Cancelled => "cancelled",
            Self::Skipped => "skipped",
            Self::TimedOut => "timed_out",
        }
    }
}

/// Where a job is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum JobState {
    /// Waits for a runner.
    Queued,
    /// A runner has it.
    InProgress,
    /// Over.
    Completed,
}

impl JobState {
    /// GitHub's word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
        }
    }

    pub(super) fn parse(word: &str) -> Option<Self> {
        [Self::Queued, Self::InProgress, Self::Completed].into_iter().find(|state| state.as_str() == word)
    }
}

/// The runner that a job was given to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRunner {
    /// Its number.
    pub id: RunnerId,
    /// Its name.
    pub name: String,
    /// Number of its group.
    pub group: super::GroupId,
    /// Name of its group.
    pub group_name: String,
}

/// A job as GitHub knows it.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its number.
    pub id: JobId,
    /// Its run.
    pub run: RunId,
    /// What was queued.
    pub spec: Arc<JobSpec>,
    /// Where it is in its life.
    pub state: JobState,
    /// How it ended; set when completed.
    pub conclusion: Option<Conclusion>,
    /// When it was queued.
    pub queued_at: Timestamp,
    /// When a runner got it.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub completed_at: Option<Timestamp>,
    /// Who got it.
    pub runner: Option<JobRunner>,
    /// Whether it failed because its runner disappeared.
    pub lost: bool,
    pub(super) repository: PlaceId,
}

/// How many jobs there are in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobCounts {
    /// Waiting for a runner.
    pub queued: u64,
    /// Running.
    pub in_progress: u64,
    /// Over, however they ended.
    pub completed: u64,
    /// Of the completed: those that succeeded.
    pub succeeded: u64,
    /// Of the completed: those whose runner disappeared.
    pub lost: u64,
}

impl JobCounts {
    fn slot(&mut self, state: JobState) -> &mut u64 {
        match state {
            JobState::Queued => &mut self.queued,
            JobState::InProgress => &mut self.in_progress,
            JobState::Completed => &mut self.completed,
        }
    }
}

/// What jobs need that may wait together: those of equal needs are served in order of age.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Demand {
    repository: PlaceId,
    group: Option<String>,
    labels: LabelSet,
}

/// A repository's runs by state.
#[derive(Debug, Default)]
pub(super) struct RunIndex {
    all: BTreeSet<RunId>,
    by_state: BTreeMap<JobState, BTreeSet<RunId>>,
}

impl RunIndex {
    pub(super) fn in_state(&self, state: Option<JobState>) -> Option<&BTreeSet<RunId>> {
        state.map_or(Some(&self.all), |state| self.by_state.get(&state))
    }

    fn set(&mut self, run: RunId, before: Option<JobState>, after: JobState) {
        self.all.insert(run);
        if let Some(runs) = before.and_then(|before| self.by_state.get_mut(&before)) {
            runs.remove(&run);
        }
        self.by_state.entry(after).or_default().insert(run);
    }
}

/// A workflow run: some jobs of one repository.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) id: RunId,
    pub(super) repository: PlaceId,
    pub(super) workflow: String,
    pub(super) jobs: Vec<JobId>,
    pub(super) state: JobState,
    pub(super) created_at: Timestamp,
    pub(super) updated_at: Timestamp,
}

/// All jobs and runs.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    pub(super) all: BTreeMap<JobId, Job>,
    pub(super) runs: BTreeMap<RunId, Run>,
    pub(super) counts: JobCounts,
    waiting: BTreeMap<Demand, BTreeSet<JobId>>,
    numbers: u64,
}

impl Jobs {
    /// Job and run numbers start where no other number of the simulation is, so that a mix-up shows.
    fn number(&mut self) -> u64 {
        self.numbers += 1;
        5_000_000_000 + self.numbers
    }

    fn demand(&self, id: JobId) -> Option<Demand> {
        let job = self.all.get(&id)?;
        Some(Demand {
            repository: job.repository,
            group: job.spec.group.as_ref().map(|group| group.to_lowercase()),
            labels: label_set(job.spec.labels.iter()),
        })
    }
}

impl State {
    pub(super) fn queue_job(&mut self, spec: JobSpec) -> Result<JobId, super::NoScope> {
        let repository = match spec.repository.parse()? {
            scope @ Scope::Repository { .. } => self.accounts.ensure(&scope),
            Scope::Organization(_) | Scope::Enterprise(_) => return Err(super::NoScope(spec.repository)),
        };
        let (id, now) = (JobId(self.jobs.number()), self.now());
        let run = spec.run.filter(|run| self.jobs.runs.get(run).is_some_and(|run| run.repository == repository));
        let run = run.unwrap_or_else(|| RunId(self.jobs.number()));
        self.jobs
            .runs
            .entry(run)
            .or_insert_with(|| Run {
                id: run,
                repository,
                workflow: spec.workflow.clone(),
                jobs: Vec::new(),
                state: JobState::Queued,
                created_at: now,
                updated_at: now,
            })
            .jobs
            .push(id);
        let job = Job {
            id,
            run,
            spec: Arc::new(spec),
            state: JobState::Queued,
            conclusion: None,
            queued_at: now,
            started_at: None,
            completed_at: None,
            runner: None,
            lost: false,
            repository,
        };
        self.jobs.all.insert(id, job);
        self.jobs.counts.queued += 1;
        self.job_changed(id, JobAction::Queued);
        match self.assigned_late() {
            Duration::ZERO => self.offer_job(id),
            latency => self.after(latency, Due::JobReady(id)),
        }
        Ok(id)
    }

    /// Gives a queued job to an idle runner, or lets it wait for one.
    pub(super) fn offer_job(&mut self, id: JobId) {
        if self.jobs.all.get(&id).is_none_or(|job| job.state != JobState::Queued) {
            return;
        }
        let Some(demand) = self.jobs.demand(id) else { return };
        // The nearest scope first: repository, organization, enterprise.
        let distance = |pool: &Pool| self.accounts.lineage(demand.repository).position(|place| place == pool.place);
        let runner = self
            .idle
            .iter()
            .filter(|(pool, _)| self.serves(pool, &demand))
            .min_by_key(|(pool, _)| distance(pool))
            .and_then(|(_, runners)| runners.first().copied());
        match runner {
            Some(runner) => self.assign(id, runner),
            None => {
                self.jobs.waiting.entry(demand).or_default().insert(id);
            }
        }
    }

    /// Gives an idle runner the oldest job that it can run, or lets it wait for one.
    pub(super) fn offer_runner(&mut self, id: RunnerId) {
        let Some(pool) = self.runners.get(&id).filter(|runner| self.takes_jobs(runner)).map(Runner::pool) else { return };
        let job = self
            .jobs
            .waiting
            .iter()
            .filter(|(demand, _)| self.serves(&pool, demand))
            .filter_map(|(_, jobs)| jobs.first().copied())
            .min();
        match job {
            Some(job) => self.assign(job, id),
            None => {
                self.idle.entry(pool).or_default().insert(id);
            }
        }
    }

    fn serves(&self, pool: &Pool, demand: &Demand) -> bool {
        let group = || {
            let place = self.accounts.get(pool.place)?;
            Some(place.group(pool.group)?.name.to_lowercase())
        };
        self.accounts.lineage(demand.repository).any(|place| place == pool.place)
            && demand.labels.is_subset(&pool.labels)
            && self.accounts.admits(pool.place, pool.group, demand.repository)
            && demand.group.as_ref().is_none_or(|wanted| group().as_ref() == Some(wanted))
    }

    fn assign(&mut self, job: JobId, runner: RunnerId) {
        let (now, Some(demand)) = (self.now(), self.jobs.demand(job)) else { return };
        if let Some(jobs) = self.jobs.waiting.get_mut(&demand) {
            jobs.remove(&job);
            if jobs.is_empty() {
                self.jobs.waiting.remove(&demand);
            }
        }
        self.not_idle(runner);
        let Some(taker) = self.runners.get_mut(&runner) else { return };
        taker.job = Some(job);
        taker.delivered = false;
        taker.wake.notify_one();
        let group_name = self
            .accounts
            .get(taker.place)
            .and_then(|place| place.group(taker.group))
            .map_or_else(|| super::place::Group::DEFAULT.to_owned(), |group| group.name.clone());
        let runner_of_job = JobRunner { id: runner, name: taker.name.clone(), group: taker.group, group_name };
        if let Some(job) = self.jobs.all.get_mut(&job) {
            job.started_at = Some(now);
            job.runner = Some(runner_of_job);
        }
        self.set_job_state(job, JobState::InProgress);
        self.job_changed(job, JobAction::InProgress);
        self.busy_changed(runner, job, true);
    }

    /// Ends a job, once; false when it was over before.
    pub(super) fn complete_job(&mut self, id: JobId, conclusion: Conclusion, lost: bool) -> bool {
        let (now, waiting) = (self.now(), self.jobs.demand(id));
        let Some(job) = self.jobs.all.get_mut(&id).filter(|job| job.state != JobState::Completed) else { return false };
        job.conclusion = Some(conclusion);
        job.completed_at = Some(now);
        job.lost = lost;
        let runner = job.runner.as_ref().map(|runner| runner.id);
        if let Some(demand) = waiting
            && let Some(jobs) = self.jobs.waiting.get_mut(&demand)
        {
            jobs.remove(&id);
            if jobs.is_empty() {
                self.jobs.waiting.remove(&demand);
            }
        }
        self.jobs.counts.succeeded += u64::from(conclusion == Conclusion::Success);
        self.jobs.counts.lost += u64::from(lost);
        self.set_job_state(id, JobState::Completed);
        self.job_changed(id, JobAction::Completed);
        if let Some(runner) = runner {
            self.job_left(runner, id, lost);
        }
        true
    }

    fn set_job_state(&mut self, id: JobId, state: JobState) {
        let Some(job) = self.jobs.all.get_mut(&id) else { return };
        *self.jobs.counts.slot(job.state) -= 1;
        job.state = state;
        *self.jobs.counts.slot(state) += 1;
    }

    /// What follows from any change of a job: its run's state, the answers about its repository, webhooks.
    fn job_changed(&mut self, id: JobId, action: JobAction) {
        let now = self.now();
        let Some(job) = self.jobs.all.get(&id) else { return };
        let (run, repository) = (job.run, job.repository);
        if let Some(run) = self.jobs.runs.get_mut(&run) {
            let states: BTreeSet<JobState> =
                run.jobs.iter().filter_map(|job| self.jobs.all.get(job)).map(|job| job.state).collect();
            let state = match (states.first(), states.last()) {
                (Some(first), Some(last)) if first == last => *first,
                _ => JobState::InProgress,
            };
            let known = (action != JobAction::Queued || run.jobs.len() > 1).then_some(run.state);
            run.state = state;
            run.updated_at = now;
            if let Some(place) = self.accounts.get_mut(repository) {
                place.runs.set(run.id, known, state);
            }
        }
        self.accounts.touch(repository);
        self.emit(id, action);
        self.signals.changed = true;
    }
}
