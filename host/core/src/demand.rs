//! Which jobs need a runner of this fleet now.
//!
//! It has three sources: the ledger (webhooks), listings of GitHub's queue (polling), and the fleet itself: a runner that ended has
//! ended its job, whatever event is still under way. What they say together is a list of open jobs, each once, and the changes that the
//! ledger takes from the others. Nothing is counted twice, because jobs have ids.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::ledger::{Job, JobEvent, Ledger, State};
use crate::policy::Attributes;
use crate::runner_job::RunnerJob;
use crate::scale_down::since;

mod listed;
mod polled;

pub use listed::{Runners, Stage};
pub use polled::{OVERDUE, Polled, TOLD, Told, told};

/// How long GitHub's listings may lag behind its webhooks: a job that is younger need not be in one.
pub const LISTING_LAG: SignedDuration = SignedDuration::from_secs(10);

/// How long the end of a runner stands for a job that nothing has named yet. The event that names it comes within seconds as a rule, later in a
/// burst that loads GitHub or the receiver, and a runner made too many stays for the whole scale-down delay. Where the event is lost, the job
/// that was taken for done asks for a runner again after this.
pub const UNEXPLAINED: SignedDuration = SignedDuration::from_secs(60);

/// GitHub's queue of one repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// `owner/name`.
    pub repository: Arc<str>,
    /// When its first request was sent.
    pub started: Timestamp,
    /// What is missing is over if it was queued before this; none when nothing is known of what is missing.
    pub covers: Option<Timestamp>,
    /// The jobs that concern this fleet by [`Runners::may_have`], completed ones included where they are listed.
    pub jobs: Vec<JobEvent>,
}

impl Listing {
    /// When it was begun, where it is complete.
    fn whole(&self) -> Option<Timestamp> {
        self.covers.filter(|covers| *covers >= self.started).map(|_| self.started)
    }
}

/// What the fleet knows about its runners.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fleet {
    /// Names of runners that exist and have not ended.
    pub present: BTreeSet<Arc<str>>,
    /// Names of ephemeral runners that finished their job, and when that was seen.
    pub ended: BTreeMap<Arc<str>, Timestamp>,
    /// Names of those of them whose objects are still there.
    pub leaving: BTreeSet<Arc<str>>,
}

/// What the ledger has to take note of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The job is over.
    Over(u64),
    /// GitHub still lists it as queued.
    StillQueued(u64),
    /// Its time is over and nobody knows what became of it: GitHub has to be asked.
    Expired(u64),
}

/// The open jobs of a fleet, and what the ledger has to take note of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Jobs that need a runner or have one of this fleet, by id. Expired ones are among them until somebody has found out.
    pub jobs: BTreeMap<u64, Arc<Job>>,
    /// Those that wait and that listings alone tell of, those that wait longest first: no webhook is wanted for them, or none came.
    pub polled: Vec<Polled>,
    /// Changes for the ledger, and jobs that GitHub has to be asked about.
    pub findings: Vec<Finding>,
    /// Runners that ended without a job that is known; so many queued jobs are not among `jobs`.
    pub unexplained: u32,
    /// When the answer changes although nothing happens.
    pub next: Option<Timestamp>,
    /// Repositories whose list has every job in progress, and when it was begun.
    read: BTreeMap<Arc<str>, Timestamp>,
}

/// Jobs that wait for a runner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Number of queued jobs.
    pub jobs: u32,
    /// When the first of them was queued; none where none waits.
    pub since: Option<Timestamp>,
}

impl Waiting {
    /// The attributes of a scale-down request that say so.
    #[must_use]
    pub fn attributes(self, now: Timestamp) -> Attributes {
        let longest = self.since.map(|queued| ("waiting-seconds", since(queued, now)));
        let told = [("waiting-jobs", self.jobs)].into_iter().chain(longest);
        told.map(|(key, value)| (key.to_owned(), value.to_string())).collect()
    }
}

impl Demand {
    /// Jobs that name a runner, by its name: those of the ledger, and those that only GitHub's lists tell of or have in progress.
    #[must_use]
    pub fn named<'a>(&'a self, ledger: &'a Ledger) -> HashMap<&'a str, Vec<(u64, &'a Job)>> {
        let mut named: HashMap<&str, Vec<(u64, &Job)>> = HashMap::new();
        let open = self.jobs.iter().map(|(id, job)| (*id, &**job));
        for (id, job) in ledger.all().chain(open) {
            job.runner.iter().for_each(|runner| named.entry(runner).or_default().push((id, job)));
        }
        named
    }

    /// Whether the job is over by which a runner was said to work, where no job names the runner any more: the list of its repository was begun well
    /// after the job had begun. Where nobody reads that list, only the end that an event tells of is one.
    #[must_use]
    pub fn has_ended(&self, told: &RunnerJob) -> bool {
        let Some((working, repository)) = told.working.zip(told.repository.as_ref()) else { return false };
        let known = working.checked_add(LISTING_LAG).unwrap_or(Timestamp::MAX);
        self.read.get(repository).is_some_and(|begun| known < *begun)
    }

    /// So many of its jobs that no runner has yet, and when each was queued: the one that waits longest comes first.
    #[must_use]
    pub fn queue(&self, most: usize) -> Vec<(Timestamp, u64)> {
        let queued = self.jobs.iter().filter(|(_, job)| job.state == State::Queued);
        let mut queued: Vec<(Timestamp, u64)> = queued.map(|(id, job)| (job.queued, *id)).collect();
        if most < queued.len() {
            queued.select_nth_unstable(most);
            queued.truncate(most);
        }
        queued.sort_unstable();
        queued
    }

    /// Those of its jobs that no runner has yet.
    #[must_use]
    pub fn waiting(&self) -> Waiting {
        let queued = self.jobs.values().filter(|job| job.state == State::Queued);
        queued.fold(Waiting::default(), |waiting, job| Waiting {
            jobs: waiting.jobs.saturating_add(1),
            since: waiting.since.into_iter().chain([job.queued]).min(),
        })
    }
}

/// Since when queued jobs have been within the maximum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted(BTreeMap<u64, Timestamp>);

impl Counted {
    /// Of a job; none when it is not among them.
    #[must_use]
    pub fn since(&self, id: u64) -> Option<Timestamp> {
        self.0.get(&id).copied()
    }

    /// Looks which are within it now: those that run come first, then whoever waits longest.
    pub fn follow(&mut self, demand: &Demand, max: u32, now: Timestamp) {
        let running = demand.jobs.values().filter(|job| job.state == State::InProgress).count();
        let queued = demand.queue((max as usize).saturating_sub(running));
        self.0 = queued.into_iter().map(|(_, id)| (id, self.since(id).unwrap_or(now))).collect();
    }
}

/// Puts the three sources together. `counted_since` says since when a queued job has been within the maximum: its time starts then at the earliest,
/// since it could not have had a runner before.
#[must_use]
pub fn assess(
    ledger: &Ledger,
    listings: &[Listing],
    fleet: &Fleet,
    counted_since: impl Fn(u64) -> Option<Timestamp>,
    life: SignedDuration,
    now: Timestamp,
) -> Demand {
    let listed = Listed::of(listings);
    let read = listings.iter().filter_map(|listing| Some((listing.repository.clone(), listing.whole()?))).collect();
    let mut demand = Demand { read, ..Demand::default() };
    // In their order, of which a map is made at once.
    let mut open = Vec::new();
    for (id, job) in ledger.to_keep() {
        let mut job = Arc::clone(job);
        if let Some(news) = listed.jobs.get(&id).filter(|news| news.state > job.state) {
            let job = Arc::make_mut(&mut job);
            (job.state, job.since) = (news.state, news.at);
            job.runner = job.runner.take().or_else(|| news.runner.clone());
        }
        let is_lacking = listed.lacks(id, &job, told_at(&job, life, now));
        if is_lacking || is_over(&job, fleet) {
            // As long as its runner leaves, the event that says so is under way. The ledger then says what GitHub says, by which the runner's
            // registration is known to be gone, and what the ledger would say before costs a write for each job.
            if is_lacking || !is_leaving(&job, fleet) {
                demand.findings.push(Finding::Over(id));
            }
            continue;
        }
        if job.state == State::Queued {
            let expires =
                counted_since(id).and_then(|since| since.checked_add(life).ok()).map_or(job.expires, |end| end.max(job.expires));
            if expires > now {
                demand.sooner(expires);
            } else if listed.jobs.contains_key(&id) {
                demand.findings.push(Finding::StillQueued(id));
            } else {
                demand.findings.push(Finding::Expired(id));
            }
        }
        open.push((id, job));
    }
    demand.jobs = open.into_iter().collect();
    for (id, event) in &listed.jobs {
        if ledger.get(*id).is_none() {
            let job = Arc::new(of_event(event, life, now));
            if job.state == State::Queued {
                demand.polled.push((*id, Arc::clone(&job)));
            }
            if !is_over(&job, fleet) {
                demand.jobs.insert(*id, job);
            }
        }
    }
    demand.polled.sort_by_key(|(id, job)| (job.queued, *id));
    demand.explain(ledger, &listed, fleet, now);
    demand
}

/// When it was last known that the job is as far as it is. Of one that waits GitHub tells when it was created, which is long ago where it had to wait for
/// an approval or for another job first: until then no queue had it, and none that was read before its event came can say that it is over.
fn told_at(job: &Job, life: SignedDuration, now: Timestamp) -> Timestamp {
    // Times of expiry are rounded up; one from before the life was shortened tells nothing.
    let latest = now.checked_add(SignedDuration::from_secs(1)).unwrap_or(now);
    let told = job.expires.checked_sub(life).ok().filter(|told| job.state == State::Queued && *told <= latest);
    told.map_or(job.since, |told| told.max(job.since))
}

/// A job that runs needs a runner of this fleet only while it has one: if its runner ended it is over, and if it was given to another fleet's
/// it is no longer wanted here. GitHub names a runner only after it registered, so its object is known by then.
fn is_over(job: &Job, fleet: &Fleet) -> bool {
    match (job.state, &job.runner) {
        (State::Completed, _) => true,
        (State::InProgress, Some(runner)) => !fleet.present.contains(runner),
        (State::InProgress | State::Queued, _) => false,
    }
}

fn is_leaving(job: &Job, fleet: &Fleet) -> bool {
    job.runner.as_ref().is_some_and(|runner| fleet.leaving.contains(runner))
}

fn of_event(event: &JobEvent, life: SignedDuration, now: Timestamp) -> Job {
    let about = crate::ledger::About {
        repository: event.repository.clone(),
        workflow: event.workflow.clone(),
        labels: event.labels.clone(),
        attempt: event.attempt,
    };
    Job {
        state: event.state,
        since: event.at,
        queued: event.queued_at,
        expires: now.checked_add(life).unwrap_or(Timestamp::MAX),
        about: Arc::new(about),
        runner: event.runner.clone(),
        origin: event.origin.clone(),
    }
}

struct Listed<'a> {
    jobs: HashMap<u64, &'a JobEvent>,
    /// Of a repository: when its listing was begun, and until when jobs had been queued that it covers.
    covered: HashMap<&'a str, (Timestamp, Timestamp)>,
    /// When the oldest of the listings was begun, where all of them are complete.
    oldest: Option<Timestamp>,
}

impl<'a> Listed<'a> {
    fn of(listings: &'a [Listing]) -> Self {
        let covered = |listing: &'a Listing| Some((listing.repository.as_ref(), (listing.started, listing.covers?)));
        Self {
            jobs: listings.iter().flat_map(|listing| &listing.jobs).map(|job| (job.id, job)).collect(),
            covered: listings.iter().filter_map(covered).collect(),
            // None is the least.
            oldest: listings.iter().map(Listing::whole).min().flatten(),
        }
    }

    /// Whether GitHub's queue says that the job is over by not listing it, which was there by the time `told`.
    fn lacks(&self, id: u64, job: &Job, told: Timestamp) -> bool {
        let Some((started, covers)) = self.covered.get(job.about.repository.as_ref()) else { return false };
        let settled = told.checked_add(LISTING_LAG).is_ok_and(|settled| settled < *started);
        settled && job.queued < *covers && !self.jobs.contains_key(&id)
    }
}

impl Demand {
    fn sooner(&mut self, at: Timestamp) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }

    /// Takes one queued job out for each runner that ended and that no job names: the event is under way. The one that waits longest is the
    /// likeliest.
    fn explain(&mut self, ledger: &Ledger, listed: &Listed<'_>, fleet: &Fleet, now: Timestamp) {
        let from_ledger = ledger.all().filter_map(|(_, job)| job.runner.as_ref());
        let from_listings = listed.jobs.values().filter_map(|job| job.runner.as_ref());
        let named: HashSet<&Arc<str>> = from_ledger.chain(from_listings).collect();
        for (runner, ended) in &fleet.ended {
            let until = ended.checked_add(UNEXPLAINED).unwrap_or(Timestamp::MAX);
            // A listing that was begun well after the end knows of it.
            let told = listed.oldest.is_some_and(|oldest| ended.checked_add(LISTING_LAG).is_ok_and(|known| known < oldest));
            if !named.contains(runner) && until > now && !told {
                self.unexplained = self.unexplained.saturating_add(1);
                self.sooner(until);
            }
        }
        for (_, id) in self.queue(self.unexplained as usize) {
            self.jobs.remove(&id);
        }
    }
}

#[cfg(test)]
#[path = "demand/tests.rs"]
pub(crate) mod tests;
