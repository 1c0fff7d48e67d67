//! Jobs and runs: queued, given to runners, completed.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;

use super::{
    place::{GroupId, JobId, PlaceId, RunId, RunnerId},
    runner::{LabelSet, label_set},
};

/// What a job waits for before it may have a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Somebody's approval, which the rules of its environment ask for.
    Approval,
    /// The end of another one in its concurrency group. No event tells of it.
    Concurrency,
}

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
    /// What it waits for until it is [released](super::SimGitHub::release_job).
    pub held: Option<Hold>,
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
            held: None,
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

    /// The same job, which may not have a runner yet.
    #[must_use]
    pub fn held(self, by: Hold) -> Self {
        Self { held: Some(by), ..self }
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
    /// Waits for another one in its concurrency group.
    Pending,
    /// Waits for an approval.
    Waiting,
    /// Waits for a runner.
    Queued,
    /// A runner has it.
    InProgress,
    /// It has ended, in whatever way.
    Completed,
}

impl JobState {
    /// GitHub's word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Waiting => "waiting",
            Self::Queued => "queued",
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
        }
    }

    pub(super) fn parse(word: &str) -> Option<Self> {
        [Self::Pending, Self::Waiting, Self::Queued, Self::InProgress, Self::Completed]
            .into_iter()
            .find(|state| state.as_str() == word)
    }
}

/// The runner that a job was given to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRunner {
    /// Its number.
    pub id: RunnerId,
    /// Name that the runner registered with.
    pub name: String,
    /// Number of its group.
    pub group: GroupId,
    /// Name of its runner group at the time it was given the job.
    pub group_name: String,
}

/// A job as GitHub knows it.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its number.
    pub id: JobId,
    /// Number of the workflow run that the job is part of.
    pub run: RunId,
    /// What the test asked for: repository, labels, duration and the like.
    pub spec: Arc<JobSpec>,
    /// Which attempt of its run, from 1.
    pub attempt: u32,
    /// Where it is in its life.
    pub state: JobState,
    /// How it ended; set when completed.
    pub conclusion: Option<Conclusion>,
    /// When it was queued.
    pub queued_at: Timestamp,
    /// When a runner got it, which GitHub tells later.
    pub started_at: Option<Timestamp>,
    /// When it ended; none before.
    pub completed_at: Option<Timestamp>,
    /// Who got it; while it is still said to be queued, too.
    pub runner: Option<JobRunner>,
    /// Whether it failed because its runner disappeared.
    pub lost: bool,
    pub(super) repository: PlaceId,
}

/// How many jobs there are in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobCounts {
    /// Waiting for something else than a runner.
    pub held: u64,
    /// Waiting for a runner.
    pub queued: u64,
    /// Given to a runner, and not over.
    pub in_progress: u64,
    /// Over, however they ended.
    pub completed: u64,
    /// Of the completed: those that succeeded.
    pub succeeded: u64,
    /// Of the completed: those whose runner disappeared.
    pub lost: u64,
}

impl JobCounts {
    pub(super) fn slot(&mut self, state: JobState) -> &mut u64 {
        match state {
            JobState::Pending | JobState::Waiting => &mut self.held,
            JobState::Queued => &mut self.queued,
            JobState::InProgress => &mut self.in_progress,
            JobState::Completed => &mut self.completed,
        }
    }
}

/// What jobs need that may wait together: those of equal needs are served in order of age.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Demand {
    pub(super) repository: PlaceId,
    pub(super) group: Option<String>,
    pub(super) labels: LabelSet,
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

    pub(super) fn set(&mut self, run: RunId, before: JobState, after: JobState) {
        let is_new = self.all.insert(run);
        if let Some(runs) = self.by_state.get_mut(&before).filter(|_| !is_new) {
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
    /// Of its newest attempt.
    pub(super) jobs: Vec<JobId>,
    /// Its newest attempt, from 1.
    pub(super) attempt: u32,
    pub(super) state: JobState,
    pub(super) created_at: Timestamp,
    pub(super) updated_at: Timestamp,
}

/// All jobs and runs.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    pub(super) all: BTreeMap<JobId, Job>,
    pub(super) runs: BTreeMap<RunId, Run>,
    pub(super) runs_of: HashMap<PlaceId, RunIndex>,
    pub(super) counts: JobCounts,
    pub(super) waiting: BTreeMap<Demand, BTreeSet<JobId>>,
    numbers: u64,
}

impl Jobs {
    /// Job and run numbers start where no other number of the simulation is, so that a mix-up shows.
    pub(super) fn number(&mut self) -> u64 {
        self.numbers += 1;
        5_000_000_000 + self.numbers
    }

    pub(super) fn demand(&self, id: JobId) -> Option<Demand> {
        let job = self.all.get(&id)?;
        Some(Demand {
            repository: job.repository,
            group: job.spec.group.as_ref().map(|group| group.to_lowercase()),
            labels: label_set(job.spec.labels.iter()),
        })
    }
}
