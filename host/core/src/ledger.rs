//! Demand: which jobs wait for a runner or have one.
//!
//! A map keyed by GitHub's job id whose states only move on, so that duplicates and any order of events give the same entry. What is over
//! stays for a short while as a tombstone, for events that come late. Everything in it ends: by an event, by evidence (its runner ended,
//! GitHub's queue does not list it any more), or by its expiry.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

mod group;
mod origin;
mod spread;

pub use group::Group;
pub use origin::Origin;
pub use spread::{SHARDS, Size, place};

/// How far a job is; it only ever moves on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// Waits for a runner.
    Queued,
    /// Runs on a runner.
    InProgress,
    /// Is over, whatever its result.
    Completed,
}

/// Something GitHub said about a job, by a webhook or in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobEvent {
    /// GitHub's id of the job.
    pub id: u64,
    /// How far it is.
    pub state: State,
    /// When it came that far, as GitHub says.
    pub at: Timestamp,
    /// When it was queued, as GitHub says.
    pub queued_at: Timestamp,
    /// `owner/name`.
    pub repository: Arc<str>,
    /// Name of the workflow.
    pub workflow: Arc<str>,
    /// Labels it asks for.
    pub labels: Arc<[Arc<str>]>,
    /// Run attempt, from 1.
    pub attempt: u32,
    /// Runner it was given to.
    pub runner: Option<Arc<str>>,
    /// Where it comes from.
    pub origin: Arc<Origin>,
}

/// What the ledger knows of one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// How far it is.
    pub state: State,
    /// When it came that far. Whole seconds, as in the status.
    pub since: Timestamp,
    /// When it was queued. Whole seconds.
    pub queued: Timestamp,
    /// When it is forgotten, or looked up, if no other event of it comes. Whole seconds.
    pub expires: Timestamp,
    /// What it is, shared by the jobs of one workflow.
    pub about: Arc<About>,
    /// Runner it was given to.
    pub runner: Option<Arc<str>>,
    /// Where it comes from.
    pub origin: Arc<Origin>,
}

/// What does not change about a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct About {
    /// `owner/name`.
    pub repository: Arc<str>,
    /// Name of the workflow.
    pub workflow: Arc<str>,
    /// Labels it asks for.
    pub labels: Arc<[Arc<str>]>,
    /// Run attempt, from 1.
    pub attempt: u32,
}

/// How long jobs are remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// A queued job, from its first event: `scaleUpTriggers[].duration`.
    pub queued: Duration,
    /// Most jobs, tombstones included.
    pub limit: usize,
}

/// Jobs one ledger holds at most. Spread over [`SHARDS`] objects at some 400 bytes each, 600 at worst, they keep every object
/// below 128 KiB.
pub const LIMIT: usize = 50_000;

/// A running job that nobody tells the end of. GitHub stops jobs on self-hosted runners after five days; the evidence of the runner that
/// ended comes long before.
pub const RUNNING: Duration = Duration::from_secs(5 * 24 * 3_600);

/// How long an ended job is remembered, so that a late or repeated event of it changes nothing. Webhooks come minutes late at worst; what
/// is redelivered later is looked up instead.
pub const TOMBSTONE: Duration = Duration::from_secs(300);

/// How long the end of a job is remembered whose runner goes on to further jobs: policies ask for a runner's last job, and an operator that has started anew
/// knows it from here. Longer than the default of the shipped policy that cools down.
pub const LAST_JOB: Duration = Duration::from_secs(900);

/// What an event did to the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing: it was known.
    None,
    /// The job is new here.
    Added,
    /// The job moved on.
    Advanced,
    /// The ledger is full of jobs that are not over, so the job is not kept; polling finds it again.
    Overflow,
}

/// All jobs of one autoscaler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Shared with who looks at all of them: of twenty thousand jobs few have changed since.
    jobs: BTreeMap<u64, Arc<Job>>,
}

impl Ledger {
    /// From jobs. Where a job is given several times, what is known of it is put together: the state that is further counts.
    #[must_use]
    pub fn from_jobs(jobs: impl IntoIterator<Item = (u64, Job)>) -> Self {
        let mut ledger = Self::default();
        for (id, job) in jobs {
            match ledger.jobs.entry(id) {
                Entry::Vacant(entry) => {
                    entry.insert(Arc::new(job));
                }
                Entry::Occupied(mut entry) => Arc::make_mut(entry.get_mut()).join(job),
            }
        }
        ledger
    }

    /// Takes note of an event that arrives at `now`.
    pub fn apply(&mut self, event: &JobEvent, terms: &Terms, now: Timestamp) -> Change {
        let since = whole(event.at);
        let expires = expiry(event.state, terms, now);
        if let Some(job) = self.jobs.get_mut(&event.id).map(Arc::make_mut) {
            let mut change = Change::None;
            if event.state > job.state {
                (job.state, job.since, job.expires) = (event.state, since, expires);
                change = Change::Advanced;
            }
            if job.runner.is_none() && event.runner.is_some() {
                job.runner.clone_from(&event.runner);
                change = Change::Advanced;
            }
            // Where it comes from is no news of its own: it would cost a write for every job that is heard of twice.
            if change == Change::Advanced && job.origin != event.origin {
                job.origin = Arc::new(job.origin.or(&event.origin.bounded()));
            }
            return change;
        }
        if self.jobs.len() >= terms.limit && !self.make_room() {
            return Change::Overflow;
        }
        let about = About {
            repository: event.repository.clone(),
            workflow: event.workflow.clone(),
            labels: event.labels.clone(),
            attempt: event.attempt,
        };
        let about = self.shared(about);
        let queued = whole(event.queued_at);
        let (runner, origin) = (event.runner.clone(), Arc::new(event.origin.bounded()));
        let job = Job { state: event.state, since, queued, expires, about, runner, origin };
        self.jobs.insert(event.id, Arc::new(job));
        Change::Added
    }

    /// A job is over, by evidence other than an event. Returns whether that was news.
    pub fn complete(&mut self, id: u64, now: Timestamp) -> bool {
        let known = self.jobs.get_mut(&id).filter(|job| job.state != State::Completed);
        let Some(job) = known.map(Arc::make_mut) else { return false };
        (job.state, job.since, job.expires) = (State::Completed, whole(now), later(now, TOMBSTONE));
        true
    }

    /// A job that is over is remembered for [`LAST_JOB`] from `now` on.
    pub fn remember(&mut self, id: u64, now: Timestamp) {
        if let Some(job) = self.jobs.get_mut(&id).filter(|job| job.state == State::Completed).map(Arc::make_mut) {
            job.expires = job.expires.max(later(now, LAST_JOB));
        }
    }

    /// A queued job is still queued, as GitHub says: it counts for another while.
    pub fn renew(&mut self, id: u64, terms: &Terms, now: Timestamp) -> bool {
        let known = self.jobs.get_mut(&id).filter(|job| job.state == State::Queued);
        let Some(job) = known.map(Arc::make_mut) else { return false };
        let expires = later(now, terms.queued);
        let news = expires > job.expires;
        job.expires = job.expires.max(expires);
        news
    }

    /// Takes over what is known of a job; none where nothing is any more.
    pub fn set(&mut self, id: u64, job: Option<Job>) {
        match job {
            Some(job) => self.jobs.insert(id, Arc::new(job)),
            None => self.jobs.remove(&id),
        };
    }

    /// Drops a job without a trace: nobody can tell what became of it.
    pub fn forget(&mut self, id: u64) -> bool {
        self.jobs.remove(&id).is_some()
    }

    /// Jobs that are not over and whose expiry has come.
    pub fn expired(&self, now: Timestamp) -> impl Iterator<Item = (u64, &Job)> {
        self.open().filter(move |(_, job)| job.expires <= now)
    }

    /// Jobs that are not over, by id.
    pub fn open(&self) -> impl Iterator<Item = (u64, &Job)> {
        self.to_keep().map(|(id, job)| (id, &**job))
    }

    /// As [`Ledger::open`], to be kept.
    pub(crate) fn to_keep(&self) -> impl Iterator<Item = (u64, &Arc<Job>)> {
        self.jobs.iter().filter(|(_, job)| job.state != State::Completed).map(|(id, job)| (*id, job))
    }

    /// All jobs, tombstones included, by id.
    pub fn all(&self) -> impl Iterator<Item = (u64, &Job)> {
        self.jobs.iter().map(|(id, job)| (*id, &**job))
    }

    /// The job with this id, tombstones included; none where the ledger does not have it.
    #[must_use]
    pub fn get(&self, id: u64) -> Option<&Job> {
        self.jobs.get(&id).map(|job| &**job)
    }

    /// Jobs in it, tombstones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Drops the tombstone that would end first.
    fn make_room(&mut self) -> bool {
        let tombstones = self.jobs.iter().filter(|(_, job)| job.state == State::Completed);
        let first = tombstones.min_by_key(|(id, job)| (job.expires, **id)).map(|(id, _)| *id);
        first.is_some_and(|id| self.forget(id))
    }

    /// The same description, from a job that has it already: the newest ones are likely of the same workflow.
    fn shared(&self, about: About) -> Arc<About> {
        let known = self.jobs.values().rev().take(8).find(|job| *job.about == about);
        known.map_or_else(|| Arc::new(about), |job| job.about.clone())
    }
}

impl Job {
    /// Whether it has been over for so long that no event of it is expected any more.
    #[must_use]
    pub fn is_forgotten(&self, now: Timestamp) -> bool {
        self.state == State::Completed && self.expires <= now
    }

    /// Adds what another account of the same job says.
    fn join(&mut self, other: Self) {
        let runner = self.runner.take().or_else(|| other.runner.clone());
        let origin = if self.origin == other.origin { self.origin.clone() } else { Arc::new(self.origin.or(&other.origin)) };
        if (self.state, self.since, self.expires) < (other.state, other.since, other.expires) {
            *self = other;
        }
        (self.runner, self.origin) = (runner, origin);
    }
}

fn expiry(state: State, terms: &Terms, now: Timestamp) -> Timestamp {
    later(
        now,
        match state {
            State::Queued => terms.queued,
            State::InProgress => RUNNING,
            State::Completed => TOMBSTONE,
        },
    )
}

/// `now` and a while, rounded up to the second that the status can hold.
fn later(now: Timestamp, wait: Duration) -> Timestamp {
    let wait = SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX);
    let end = now.checked_add(wait).unwrap_or(Timestamp::MAX);
    let whole = whole(end);
    if whole == end { end } else { whole.checked_add(SignedDuration::from_secs(1)).unwrap_or(Timestamp::MAX) }
}

/// The second in which a moment lies: what a status can hold.
pub(crate) fn whole(at: Timestamp) -> Timestamp {
    let second = at.as_second() - i64::from(at.subsec_nanosecond() < 0);
    Timestamp::from_second(second).unwrap_or(at)
}

#[cfg(test)]
mod tests;
