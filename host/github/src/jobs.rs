//! Workflow jobs as GitHub sees them: one job, or all of a repository that wait or run.

mod listing;
pub(crate) mod report;
mod rerun;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use pacer_core::scope::Scope;
use serde::Deserialize;
use tokio::time::Instant;

use crate::call::Subject;
use crate::memory::Room;
use crate::stack::cache::Version;

/// Runs whose jobs one listing asks for: together with the runs themselves this fits into ten seconds of the share that
/// [`pacer_core::polling::Pace::queues`] takes of GitHub's secondary limit.
pub(crate) const RUNS_AT_MOST: usize = 60;

/// How the queue of a repository is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// From one listing to the next.
    pub interval: Duration,
    /// Runs that were created later than so long ago are not asked for their jobs: events tell of them.
    pub patience: Duration,
    /// Whether anything goes on there.
    pub activity: Activity,
}

/// Whether anything goes on in a repository, as far as is known without a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Activity {
    /// Jobs are open, or only listings tell of them.
    AtWork,
    /// Events tell of jobs, and there are none.
    AtRest,
}

impl Reading {
    /// Finds jobs that nobody else tells of.
    #[must_use]
    pub const fn all(interval: Duration) -> Self {
        Self { interval, patience: Duration::ZERO, activity: Activity::AtWork }
    }

    /// Finds what nobody has told for longer than an interval.
    #[must_use]
    pub const fn overdue(interval: Duration) -> Self {
        Self { interval, patience: interval, activity: Activity::AtWork }
    }

    /// As [`Reading::overdue`], of a repository where no job is open. Only what was lost from the first event on has to be found, so that it takes
    /// turns with all others at rest.
    #[must_use]
    pub const fn at_rest(interval: Duration) -> Self {
        Self { interval, patience: interval, activity: Activity::AtRest }
    }

    /// The reading that satisfies both: the shorter interval, the shorter patience, and at work if either is.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            interval: self.interval.min(other.interval),
            patience: self.patience.min(other.patience),
            activity: self.activity.min(other.activity),
        }
    }
}

/// A repository: what workflow jobs belong to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Repository {
    /// User or organization login.
    pub owner: String,
    /// Name without the owner.
    pub name: String,
}

/// Where a workflow job or run is in its life, in the order in which it gets there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum JobState {
    /// Held back: by a concurrency group (`pending`), a protection rule (`waiting`), or in some way that is new (`requested` and
    /// whatever else GitHub says). No runner can take it.
    Other,
    /// Waits for a runner.
    Queued,
    /// A runner has it.
    InProgress,
    /// Over, however it ended.
    Completed,
}

/// A workflow job as GitHub's API shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteJob {
    /// GitHub's id, never used again: an attempt to run it again has another.
    pub id: u64,
    /// The workflow run that it is part of.
    pub run_id: u64,
    /// Which attempt of the run, from 1.
    pub attempt: u32,
    /// Where it is in its life.
    pub state: JobState,
    /// When it was created, which is when it was queued, unless it had to wait for something else first.
    pub created_at: Timestamp,
    /// When a runner got it; none before.
    pub started_at: Option<Timestamp>,
    /// What `runs-on` asks for. GitHub-hosted jobs have labels as well; none at all is rare.
    pub labels: Arc<[Arc<str>]>,
    /// Name of the runner that has or had it.
    pub runner: Option<Arc<str>>,
    /// Name of the workflow.
    pub workflow: Arc<str>,
    /// `owner/name` of the repository.
    pub repository: Arc<str>,
    /// Branch of the run; empty where GitHub does not say.
    pub branch: Arc<str>,
    /// Event that started the run; empty where GitHub does not say.
    pub event: Arc<str>,
    /// Login of whoever started the run; empty where GitHub does not say.
    pub actor: Arc<str>,
}

/// Workflow runs in a listing by what GitHub said of them; ended runs are only in it when they ended meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunCounts {
    /// Wait for a runner.
    pub queued: u32,
    /// Have a job that started.
    pub in_progress: u32,
    /// Have ended while the listing was read.
    pub completed: u32,
    /// Are held back, or in a state that is new; see [`JobState::Other`].
    pub other: u32,
}

/// The jobs of a repository's queued and running workflow runs at one time.
#[derive(Clone, Debug)]
pub struct QueueListing {
    /// The repository that the jobs belong to.
    pub repository: Repository,
    /// When the first request of this listing was about to be sent: anything later may not be reflected.
    pub fetched_at: Instant,
    /// The same by the wall clock.
    pub started: Timestamp,
    /// Whether every run is in the listing with all of its jobs. If not, what is listed is true, but jobs that are missing may exist.
    pub complete: bool,
    /// Jobs that were queued before this are in it, or over. None when any may be missing.
    pub covers: Option<Timestamp>,
    /// Whether jobs differ from the listing before, which this client's last one of the repository is. True for the first.
    pub changed: bool,
    /// The jobs, completed ones of runs that go on included, by id, each once.
    pub jobs: Arc<[RemoteJob]>,
    /// How many workflow runs it has, by state.
    pub runs: RunCounts,
    /// Runs that changed since their jobs were read last, and whose jobs this listing left to the next because there are so many.
    pub left: u32,
    /// Calls that the listing took.
    pub calls: u32,
    /// Calls that were charged to the primary limit: unchanged answers are free.
    pub paid: u32,
}

/// The last listing of a repository.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastListing {
    pages: HashMap<String, RunsPage>,
    runs: HashMap<u64, Known>,
    jobs: Option<Arc<[RemoteJob]>>,
}

#[derive(Clone, Debug)]
struct RunsPage {
    version: Option<Version>,
    total: u64,
    runs: Arc<[Run]>,
    /// Memory that `runs` is counted with; none where nobody counts.
    _room: Room,
}

/// A run as a list of runs shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    id: u64,
    state: JobState,
    attempt: u32,
    updated_at: Option<Timestamp>,
    created_at: Option<Timestamp>,
    workflow: Option<Arc<str>>,
    event: Arc<str>,
    actor: Arc<str>,
}

/// What is known about a run's jobs.
#[derive(Clone, Debug)]
struct Known {
    /// The run when its jobs were read in full; none after a failure.
    read_as: Option<Run>,
    /// When they were last asked for.
    asked: Instant,
    jobs: Arc<[RemoteJob]>,
    /// Memory that `jobs` is counted with, for each page.
    room: Vec<Room>,
}

/// A page of a listing of runs, of which a reader takes what it needs.
#[derive(Deserialize)]
pub(crate) struct WireRuns<R> {
    pub(crate) total_count: u64,
    pub(crate) workflow_runs: Vec<R>,
}

/// The same of jobs.
#[derive(Deserialize)]
pub(crate) struct WireJobs<J> {
    pub(crate) total_count: u64,
    pub(crate) jobs: Vec<J>,
}

#[derive(Deserialize)]
struct WireJob {
    id: u64,
    #[serde(default)]
    run_id: u64,
    #[serde(default)]
    run_attempt: Option<u32>,
    status: String,
    #[serde(default)]
    created_at: Option<Timestamp>,
    #[serde(default)]
    started_at: Option<Timestamp>,
    #[serde(default)]
    labels: Vec<String>,
    #[serde(default)]
    runner_name: Option<String>,
    #[serde(default)]
    workflow_name: Option<String>,
    #[serde(default)]
    head_branch: Option<String>,
}

impl Repository {
    /// The repository `owner/name`.
    #[must_use]
    pub fn new(owner: impl Into<String>, name: impl Into<String>) -> Self {
        Self { owner: owner.into(), name: name.into() }
    }

    /// The repository that a text of the form `owner/name` names; none of any other form.
    #[must_use]
    pub fn named(text: &str) -> Option<Self> {
        text.split_once('/').map(|(owner, name)| Self::new(owner, name))
    }

    /// The same as a place that has runners.
    #[must_use]
    pub fn scope(&self) -> Scope {
        Scope::Repository { owner: self.owner.clone(), name: self.name.clone() }
    }
}

impl From<&Repository> for Subject {
    fn from(repository: &Repository) -> Self {
        Self::Scope(repository.scope())
    }
}

impl fmt::Display for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.owner, self.name)
    }
}

impl JobState {
    /// Reads GitHub's word for it.
    fn read(word: &str) -> Self {
        match word {
            "queued" => Self::Queued,
            "in_progress" => Self::InProgress,
            "completed" => Self::Completed,
            _ => Self::Other,
        }
    }

    /// Name for logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Other => "other",
            Self::Queued => "queued",
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
        }
    }
}

impl RunCounts {
    fn count(&mut self, state: JobState) {
        let number = match state {
            JobState::Queued => &mut self.queued,
            JobState::InProgress => &mut self.in_progress,
            JobState::Completed => &mut self.completed,
            JobState::Other => &mut self.other,
        };
        *number = number.saturating_add(1);
    }
}

/// What a run says of its jobs, for instances whose jobs do not say it themselves.
#[derive(Default)]
struct Described {
    workflow: Option<Arc<str>>,
    created_at: Option<Timestamp>,
    event: Arc<str>,
    actor: Arc<str>,
}

impl WireJob {
    fn job(self, repository: &Arc<str>, run: &Described) -> RemoteJob {
        let state = JobState::read(&self.status);
        let created_at = self.created_at.or(self.started_at).or(run.created_at).unwrap_or_default();
        RemoteJob {
            id: self.id,
            run_id: self.run_id,
            attempt: self.run_attempt.unwrap_or(1),
            state,
            created_at,
            // GitHub gives jobs that have not started the time of their creation.
            started_at: self.started_at.filter(|_| matches!(state, JobState::InProgress | JobState::Completed)),
            labels: self.labels.into_iter().map(Arc::from).collect(),
            runner: self.runner_name.filter(|name| !name.is_empty()).map(Arc::from),
            workflow: self.workflow_name.map(Arc::from).or_else(|| run.workflow.clone()).unwrap_or_default(),
            repository: Arc::clone(repository),
            branch: self.head_branch.map(Arc::from).unwrap_or_default(),
            event: run.event.clone(),
            actor: run.actor.clone(),
        }
    }
}
