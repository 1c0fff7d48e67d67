//! Jobs that wait for long are reported at GitHub, on their commits: which report is opened, said anew or closed next.
//!
//! ```text
//! threshold, queue of an autoscaler, what is reported already -> Reports::next: open | update | close | wait
//! ```
//!
//! The oldest jobs come first, a report that is no longer true before all of them. What bounds it: so many open reports, so many steps a minute, and a
//! minute between two texts of one report. GitHub's refusals are pauses ([`Restraint`]): of everything, of a repository, or of a job.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

mod words;

pub use words::{Ending, Saying, closing};

/// Between two texts of one report.
pub const INTERVAL: SignedDuration = SignedDuration::from_secs(60);

/// Reports of one autoscaler that are open at a time.
pub const OPEN: usize = 20;

/// Steps of one autoscaler within a minute. Each takes at most three calls: a look at the job or at its commit, and the report itself.
pub const PER_MINUTE: usize = 10;

/// For how long nothing is asked for again that GitHub refused for want of a right.
pub const REFUSED: SignedDuration = SignedDuration::from_mins(10);

/// For how long a job is left alone whose report failed for another reason.
pub const FAILED: SignedDuration = SignedDuration::from_secs(60);

/// For how long a job is left alone whose report GitHub finds wrong.
pub const WRONG: SignedDuration = SignedDuration::from_hours(6);

/// For how long a job is left alone while another one has a report of its name on its commit.
pub const NAMESAKE: SignedDuration = SignedDuration::from_mins(5);

/// Closings of a report that may be refused before it is left as it is.
pub const CLOSINGS: u32 = 6;

/// Repositories and jobs whose pauses are remembered.
const PAUSES: usize = 1_000;

/// How the name of every report begins.
const NAME: &str = "pacer / waiting: ";

/// Most characters of a report's name. GitHub takes 255 bytes for a commit status.
const NAME_LENGTH: usize = 76;

/// The name of a job's report, as people see it on the commit.
#[must_use]
pub fn name(job: &str) -> String {
    NAME.chars().chain(job.chars().filter(|c| !c.is_control())).take(NAME_LENGTH).collect()
}

/// Whether this is the name of a report, so that nothing else at GitHub has it.
#[must_use]
pub fn is_name(name: &str) -> bool {
    name.starts_with(NAME) && name.chars().count() <= NAME_LENGTH
}

/// What tells the check run of a job from others of its name.
#[must_use]
pub fn external_id(job: u64) -> String {
    format!("pacer-waiting-{job}")
}

/// How long a job waits before it is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Threshold(SignedDuration);

/// A threshold that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it has to be between 1s and 24h, which is how long GitHub keeps a job in its queue: 10m, for instance")]
pub struct ThresholdError;

impl Threshold {
    /// Between a second and a day.
    ///
    /// # Errors
    ///
    /// When it is not.
    pub fn new(wait: Duration) -> Result<Self, ThresholdError> {
        let within = (Duration::from_secs(1)..=Duration::from_secs(24 * 3_600)).contains(&wait);
        SignedDuration::try_from(wait).ok().filter(|_| within).map(Self).ok_or(ThresholdError)
    }
}

/// What a report is at GitHub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A check run, which GitHub Apps can make. Its number; none where it is not known whether GitHub took it.
    Check(Option<u64>),
    /// A commit status, which tokens can make. A later one of the same name takes its place.
    Status,
}

/// A report that is open at GitHub, as it is kept in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// GitHub's id of the job.
    pub job: u64,
    /// `owner/name`.
    pub repository: String,
    /// The commit that it is on.
    pub commit: String,
    /// Its name on the commit, as people see it.
    pub name: String,
    /// Whether it is a check run or a commit status.
    pub form: Form,
    /// The [essence](Saying::essence) of what it says.
    pub said: String,
    /// When it was said, or was about to be.
    pub at: Timestamp,
    /// How often its closing was refused.
    pub refused: u32,
}

/// A job that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// GitHub's id.
    pub job: u64,
    /// `owner/name`; empty where nothing is to be said of it.
    pub repository: String,
    /// When it was queued.
    pub queued: Timestamp,
    /// Its place among the jobs that wait for the same pool, from 1.
    pub place: u32,
}

/// What is to be done next about the reports of an autoscaler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// None before something happens, or before this moment.
    Wait(Option<Timestamp>),
    /// Report this job.
    Open(Waiting),
    /// Say of this job what is true now.
    Update(Waiting),
    /// The report of this job is no longer true.
    Close(u64),
}

/// What holds reports of one autoscaler back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restraint {
    /// When steps were taken in the last minute.
    steps: VecDeque<Timestamp>,
    /// Until when there are none.
    until: Option<Timestamp>,
    /// Until when there are none in a repository.
    repositories: BTreeMap<String, Timestamp>,
    /// Until when there are none about a job.
    jobs: BTreeMap<u64, Timestamp>,
}

impl Restraint {
    /// A step is taken.
    pub fn step(&mut self, now: Timestamp) {
        self.steps.retain(|at| now.duration_since(*at) < INTERVAL);
        self.steps.push_back(now);
    }

    /// There are none for so long.
    pub fn pause(&mut self, wait: SignedDuration, now: Timestamp) {
        self.until = self.until.max(now.checked_add(wait).ok());
    }

    /// There are none in this repository for so long.
    pub fn pause_repository(&mut self, repository: &str, wait: SignedDuration, now: Timestamp) {
        forget(&mut self.repositories, now);
        if let Ok(until) = now.checked_add(wait) {
            self.repositories.insert(repository.to_owned(), until);
        }
    }

    /// There are none about this job for so long.
    pub fn pause_job(&mut self, job: u64, wait: SignedDuration, now: Timestamp) {
        forget(&mut self.jobs, now);
        if let Ok(until) = now.checked_add(wait) {
            self.jobs.insert(job, until);
        }
    }

    /// Until when no step at all may be taken.
    fn all(&self, now: Timestamp) -> Option<Timestamp> {
        let recent = self.steps.iter().filter(|at| now.duration_since(**at) < INTERVAL);
        let full = recent.clone().count() >= PER_MINUTE;
        let room = recent.min().filter(|_| full).and_then(|first| first.checked_add(INTERVAL).ok());
        self.until.max(room).filter(|until| *until > now)
    }

    /// Until when none may be taken about this job.
    fn of(&self, job: u64, repository: &str, now: Timestamp) -> Option<Timestamp> {
        let (job, repository) = (self.jobs.get(&job).copied(), self.repositories.get(repository).copied());
        job.max(repository).filter(|until| *until > now)
    }
}

/// Forgets pauses that are over, and the first to end where there are too many.
fn forget<K: Ord + Clone>(pauses: &mut BTreeMap<K, Timestamp>, now: Timestamp) {
    pauses.retain(|_, until| *until > now);
    while pauses.len() >= PAUSES {
        let first = pauses.iter().min_by_key(|(_, until)| **until).map(|(key, _)| key.clone());
        let Some(first) = first else { return };
        pauses.remove(&first);
    }
}

/// The open reports of one autoscaler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reports(Vec<Report>);

impl Reports {
    /// From what was kept; no more than may be open, however many somebody wrote.
    #[must_use]
    pub fn new(mut kept: Vec<Report>) -> Self {
        kept.truncate(OPEN);
        Self(kept)
    }

    /// All open reports of the autoscaler.
    pub fn iter(&self) -> impl Iterator<Item = &Report> {
        self.0.iter()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// That of a job.
    #[must_use]
    pub fn get(&self, job: u64) -> Option<&Report> {
        self.0.iter().find(|report| report.job == job)
    }

    /// Puts one in, in place of what was there of the same job.
    pub fn put(&mut self, report: Report) {
        match self.0.iter_mut().find(|known| known.job == report.job) {
            Some(known) => *known = report,
            None => self.0.push(report),
        }
    }

    /// Takes that of a job out.
    pub fn remove(&mut self, job: u64) {
        self.0.retain(|report| report.job != job);
    }

    /// Whether another job's report has this name on this commit, as where a push and a pull request run the same workflow.
    #[must_use]
    pub fn has_namesake(&self, job: u64, repository: &str, commit: &str, name: &str) -> bool {
        let same = |report: &&Report| report.repository == repository && report.commit == commit && report.name == name;
        self.0.iter().filter(same).any(|report| report.job != job)
    }

    /// What is to be done next. `queue` has the jobs that wait, in their order; without a threshold nobody wants reports. `essence` says what a
    /// report of a job would come to now.
    #[must_use]
    pub fn next(
        &self,
        threshold: Option<Threshold>,
        queue: &[Waiting],
        essence: impl Fn(&Waiting) -> String,
        restraint: &Restraint,
        now: Timestamp,
    ) -> Next {
        let mut due = Due::default();
        let free = |job: u64, repository: &str| restraint.of(job, repository, now);
        let held = restraint.all(now);
        let waits: BTreeMap<u64, &Waiting> = queue.iter().map(|waiting| (waiting.job, waiting)).collect();
        let wanted = |waiting: &&Waiting| threshold.is_some() && !waiting.repository.is_empty();
        let waits = |job: u64| waits.get(&job).copied().filter(wanted);
        for report in self.0.iter().filter(|report| waits(report.job).is_none()) {
            match held.max(free(report.job, &report.repository)) {
                None => return Next::Close(report.job),
                Some(until) => due.at(until),
            }
        }
        let late = |waiting: &&Waiting| wanted(waiting) && self.0.len() < OPEN && self.get(waiting.job).is_none();
        for waiting in queue.iter().filter(late) {
            let crossed = threshold.and_then(|Threshold(wait)| waiting.queued.checked_add(wait).ok()).unwrap_or(now);
            let paused = held.max(free(waiting.job, &waiting.repository));
            match paused.max(Some(crossed).filter(|crossed| *crossed > now)) {
                None => return Next::Open(waiting.clone()),
                Some(until) => due.at(until),
            }
        }
        let mut open: Vec<(&Report, &Waiting)> = self.0.iter().filter_map(|report| Some((report, waits(report.job)?))).collect();
        open.sort_by_key(|(report, _)| (report.at, report.job));
        for (report, waiting) in open {
            // Whether GitHub took it is found out even if it would still say the same.
            if report.form != Form::Check(None) && report.said == essence(waiting) {
                continue;
            }
            let again = report.at.checked_add(INTERVAL).ok().filter(|again| *again > now);
            match held.max(free(report.job, &report.repository)).max(again) {
                None => return Next::Update(waiting.clone()),
                Some(until) => due.at(until),
            }
        }
        Next::Wait(due.0)
    }
}

/// The earliest of several moments.
#[derive(Default)]
struct Due(Option<Timestamp>);

impl Due {
    fn at(&mut self, at: Timestamp) {
        self.0 = Some(self.0.map_or(at, |known| known.min(at)));
    }
}

#[cfg(test)]
mod tests;
