//! Reading one job, or a repository's queue: its workflow runs, and then the jobs of each.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::stream::{self, StreamExt, TryStreamExt};
use jiff::Timestamp;
use serde::Deserialize;
use tokio::time::Instant;

use super::{
    Described, JobState, Known, LastListing, QueueListing, RUNS_AT_MOST, RemoteJob, Repository, Run, RunCounts, RunsPage,
    WireJob, WireJobs, WireRuns,
};
use crate::call::Endpoint;
use crate::client::{GitHub, Read};
use crate::error::{Error, ErrorKind};
use crate::memory::Room;

/// Runs or jobs per page: the most that GitHub gives.
const PER_PAGE: u64 = 100;
/// The most runs that GitHub lists with a filter, whatever their number.
const LISTED_RUNS: u64 = 1_000;
/// Pages of one run's jobs.
const JOB_PAGES: u64 = 100;
/// Requests of one listing that are under way at a time.
const AT_A_TIME: usize = 8;
/// Runs without an answer after which a listing stops asking for more.
const FAILURES: u32 = 8;
/// Bytes that an entry takes beside its texts.
const ENTRY: usize = 256;
/// Repositories whose last listing is kept to be compared with the next.
const REMEMBERED: usize = 1_024;

/// The jobs of many runs.
struct Jobs {
    known: HashMap<u64, Known>,
    /// Runs that changed and were not chosen.
    left: u32,
    /// Why nothing more can be read.
    failed: Option<Error>,
}

#[derive(Deserialize)]
struct WireRun {
    id: u64,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    run_attempt: Option<u32>,
    #[serde(default)]
    created_at: Option<Timestamp>,
    #[serde(default)]
    updated_at: Option<Timestamp>,
    #[serde(default)]
    event: Option<String>,
    #[serde(default)]
    triggering_actor: Option<WireActor>,
}

#[derive(Deserialize)]
struct WireActor {
    #[serde(default)]
    login: Option<String>,
}

/// One listing while it is made.
struct Reading<'a> {
    github: &'a GitHub,
    repository: &'a Repository,
    full_name: Arc<str>,
    pages: Mutex<HashMap<String, RunsPage>>,
    calls: AtomicU32,
    paid: AtomicU32,
}

impl GitHub {
    /// Looks at one job; none when there is no such job. GitHub says the same to those who may not see the repository.
    ///
    /// # Errors
    ///
    /// As GitHub refuses; see [`ErrorKind`].
    pub async fn job(&self, repository: &Repository, id: u64) -> Result<Option<RemoteJob>, Error> {
        match self.get(Endpoint::GetJob, repository, &format!("actions/jobs/{id}")).await {
            Ok(read) => Ok(Some(read.json::<WireJob>()?.job(&repository.to_string().into(), &Described::default()))),
            Err(error) if error.status() == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Lists a repository's jobs: of its workflow runs that are queued or in progress, every job, all by conditional requests.
    ///
    /// The jobs of at most 60 runs are asked for: first of those that changed since the last listing, then of those that were
    /// not asked for the longest. Of the others the jobs are those of an earlier listing, if the run has not changed since; otherwise
    /// the listing is not complete, and the next ones add what is missing. A run whose jobs cannot be read does the same.
    ///
    /// Share listings through [`crate::queues`] rather than calling this for every consumer.
    ///
    /// # Errors
    ///
    /// As GitHub refuses to list the runs, and when nothing more can be read because of a rate limit or a missing right; see
    /// [`ErrorKind`].
    pub async fn queue(&self, repository: &Repository) -> Result<QueueListing, Error> {
        self.queue_within(repository, RUNS_AT_MOST, Duration::ZERO).await
    }

    /// The same with another bound on the number of runs whose jobs are asked for, and without those of runs that are younger than `patience`.
    pub(crate) async fn queue_within(
        &self,
        repository: &Repository,
        most: usize,
        patience: Duration,
    ) -> Result<QueueListing, Error> {
        let (fetched_at, started) = (Instant::now(), Timestamp::now());
        let before = self.recall_queue(repository);
        let reading = Reading {
            github: self,
            repository,
            full_name: repository.to_string().into(),
            pages: Mutex::new(before.pages.clone()),
            calls: AtomicU32::new(0),
            paid: AtomicU32::new(0),
        };
        let (runs, fits) = reading.runs().await?;
        let mut counts = RunCounts::default();
        runs.values().for_each(|run| counts.count(run.state));
        let is_live = |run: &Run| matches!(run.state, JobState::Queued | JobState::InProgress);
        let live: Vec<Run> = runs.into_values().filter(is_live).collect();
        let due: Vec<Run> = live.iter().filter(|run| !run.is_younger_than(patience, started)).cloned().collect();
        let Jobs { mut known, left, failed } = reading.jobs_of(&due, &before.runs, most).await;
        // Of a run that was young and is read later on, nothing is forgotten meanwhile.
        for run in &live {
            if let Some(before) = before.runs.get(&run.id) {
                known.entry(run.id).or_insert_with(|| before.clone());
            }
        }

        let is_read = |run: &Run| known.get(&run.id).is_some_and(|known| known.read_as.as_ref() == Some(run));
        let mut unread = live.iter().filter(|run| !is_read(run)).peekable();
        let complete = fits && unread.peek().is_none();
        // No job is queued before its run is created.
        let covers = unread.try_fold(started, |covers, run| Some(covers.min(run.created_at?))).filter(|_| fits);
        let mut jobs: Vec<RemoteJob> = known.values().flat_map(|known| known.jobs.iter().cloned()).collect();
        jobs.sort_unstable_by_key(|job| job.id);
        jobs.dedup_by_key(|job| job.id);
        let (jobs, changed) = match &before.jobs {
            Some(same) if **same == *jobs => (Arc::clone(same), false),
            _ => (Arc::from(jobs), true),
        };
        let Reading { pages, calls, paid, .. } = reading;
        let pages = pages.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = failed {
            // What was read is not asked for again, but only a listing that succeeds has told anyone of its jobs.
            self.remember_queue(repository, LastListing { pages, runs: known, jobs: before.jobs.clone() });
            return Err(error);
        }
        self.remember_queue(repository, LastListing { pages, runs: known, jobs: Some(Arc::clone(&jobs)) });
        Ok(QueueListing {
            repository: repository.clone(),
            fetched_at,
            started,
            complete,
            covers,
            changed,
            jobs,
            runs: counts,
            left,
            calls: calls.into_inner(),
            paid: paid.into_inner(),
        })
    }

    fn recall_queue(&self, repository: &Repository) -> Arc<LastListing> {
        let memory = self.queues_memory().lock().unwrap_or_else(PoisonError::into_inner);
        memory.get(repository).cloned().unwrap_or_default()
    }

    fn remember_queue(&self, repository: &Repository, listing: LastListing) {
        let mut memory = self.queues_memory().lock().unwrap_or_else(PoisonError::into_inner);
        if memory.len() >= REMEMBERED && !memory.contains_key(repository) {
            memory.clear();
        }
        memory.insert(repository.clone(), Arc::new(listing));
    }
}

impl Reading<'_> {
    async fn read(&self, endpoint: Endpoint, resource: &str) -> Result<Read, Error> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let read = self.github.get(endpoint, self.repository, resource).await;
        if read.as_ref().map_or(true, |read| read.paid) {
            self.paid.fetch_add(1, Ordering::Relaxed);
        }
        read
    }

    /// The runs that are queued or in progress by their ids, and whether none can be missing.
    ///
    /// A run moves from one list to the other while both are read, in either direction, so the first is read once more at the end,
    /// mostly for free.
    async fn runs(&self) -> Result<(BTreeMap<u64, Run>, bool), Error> {
        let (mut runs, mut whole) = (BTreeMap::new(), true);
        for status in ["queued", "in_progress", "queued"] {
            let (pages, fits) = self.runs_of(status).await?;
            whole &= fits;
            // A run without an id has no jobs that could be asked for.
            let listed = pages.iter().flat_map(|page| page.runs.iter()).filter(|run| run.id != 0);
            runs.extend(listed.map(|run| (run.id, run.clone())));
        }
        Ok((runs, whole))
    }

    async fn runs_of(&self, status: &str) -> Result<(Vec<RunsPage>, bool), Error> {
        let first = self.runs_page(status, 1).await?;
        let size = page_size(first.runs.len(), first.total);
        let last = first.total.min(LISTED_RUNS).div_ceil(size).max(1);
        let rest = stream::iter(2..=last).map(|number| self.runs_page(status, number)).buffered(AT_A_TIME);
        // Whatever number the first one promises.
        let rest = rest.try_take_while(|page| std::future::ready(Ok(!page.runs.is_empty())));
        let mut pages = vec![first];
        pages.extend(rest.try_collect::<Vec<_>>().await?);
        let ids: HashSet<u64> = pages.iter().flat_map(|page| page.runs.iter().map(|run| run.id)).collect();
        let listed = pages.iter().map(|page| page.runs.len()).sum::<usize>();
        let total = pages.first().map_or(0, |page| page.total);
        // Runs without ids are told apart by nothing, and so do not count as torn pages.
        let distinct = ids.len() == listed || ids.contains(&0);
        let fits = distinct && listed as u64 == total && pages.iter().all(|page| page.total == total);
        Ok((pages, fits))
    }

    async fn runs_page(&self, status: &str, number: u64) -> Result<RunsPage, Error> {
        // Pull requests make up most of an entry and are of no use here.
        let filter = format!("actions/runs?status={status}&exclude_pull_requests=true&per_page={PER_PAGE}");
        let resource = numbered(filter, number);
        let read = self.read(Endpoint::ListRuns, &resource).await?;
        let known = || self.lock().get(&resource).filter(|page| page.version == read.version).cloned();
        if let Some(page) = read.version.and_then(|_| known()) {
            return Ok(page);
        }
        let wire: WireRuns<WireRun> = read.json()?;
        if wire.workflow_runs.len() as u64 > PER_PAGE {
            return Err(read.absurd("a page has more runs than were asked for"));
        }
        let texts = wire.workflow_runs.iter().flat_map(WireRun::texts);
        let names: usize = texts.map(String::len).sum();
        let room = read.room(names.saturating_add(wire.workflow_runs.len().saturating_mul(ENTRY)))?;
        let runs = wire.workflow_runs.into_iter().map(WireRun::run).collect();
        let page = RunsPage { version: read.version, total: wire.total_count, runs, _room: room };
        self.lock().insert(resource, page.clone());
        Ok(page)
    }

    /// Asks for the jobs of at most `most` of these runs.
    async fn jobs_of(&self, runs: &[Run], before: &HashMap<u64, Known>, most: usize) -> Jobs {
        let candidate = |run: &Run| {
            let known = before.get(&run.id);
            let changed = known.is_none_or(|known| known.read_as.as_ref() != Some(run));
            Candidate { id: run.id, changed, asked: known.map(|known| known.asked) }
        };
        let candidates: Vec<Candidate> = runs.iter().map(candidate).collect();
        let changed: HashSet<u64> = candidates.iter().filter(|run| run.changed).map(|run| run.id).collect();
        let chosen = choose(candidates, most);
        let left = u32::try_from(changed.difference(&chosen).count()).unwrap_or(u32::MAX);
        let mut known: HashMap<u64, Known> =
            runs.iter().filter_map(|run| before.get(&run.id).map(|known| (run.id, known.clone()))).collect();
        let asked = Instant::now();
        let chosen: Vec<Run> = runs.iter().filter(|run| chosen.contains(&run.id)).cloned().collect();
        let asking = |run: Run| async move {
            let answer = self.jobs(&run).await;
            (run, answer)
        };
        let mut answers = stream::iter(chosen).map(asking).buffer_unordered(AT_A_TIME);
        let (mut failures, mut failed) = (0, None);
        while let Some((run, answer)) = answers.next().await {
            match answer {
                Ok((jobs, whole, room)) => {
                    let id = run.id;
                    known.insert(id, Known { read_as: whole.then_some(run), asked, jobs, room });
                }
                Err(error) if concerns_one_run(&error) => {
                    tracing::debug!(repository = %self.full_name, run = run.id, %error, "the jobs of a run cannot be listed");
                    let (jobs, room) = known.remove(&run.id).map(|known| (known.jobs, known.room)).unwrap_or_default();
                    known.insert(run.id, Known { read_as: None, asked, jobs, room });
                    failures += 1;
                    if failures >= FAILURES {
                        break;
                    }
                }
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        drop(answers);
        Jobs { known, left, failed }
    }

    /// All jobs of a run's latest attempt, whether the pages fit together, and the room that they take.
    async fn jobs(&self, run: &Run) -> Result<(Arc<[RemoteJob]>, bool, Vec<Room>), Error> {
        let (first, room, mut bytes) = self.jobs_page(run, 1).await?;
        let mut rooms = vec![room];
        let total = first.total_count;
        let last = total.div_ceil(page_size(first.jobs.len(), total)).clamp(1, JOB_PAGES);
        let described = Described {
            workflow: run.workflow.clone(),
            created_at: run.created_at,
            event: run.event.clone(),
            actor: run.actor.clone(),
        };
        let mut pages = vec![first];
        for number in 2..=last {
            let (page, room, more) = self.jobs_page(run, number).await?;
            bytes = bytes.saturating_add(more);
            if page.jobs.is_empty() || bytes > self.github.listing_bytes() {
                break;
            }
            pages.push(page);
            rooms.push(room);
        }
        let mut fits = pages.iter().all(|page| page.total_count == total);
        let mut seen = HashSet::new();
        let mut labels: Arc<[Arc<str>]> = Arc::default();
        let wire = pages.into_iter().flat_map(|page| page.jobs).filter(|job| seen.insert(job.id));
        let jobs = wire.map(|wire| {
            let job = wire.job(&self.full_name, &described);
            // Jobs of a matrix mostly have the same labels.
            if job.labels != labels {
                labels = Arc::clone(&job.labels);
            }
            RemoteJob { labels: Arc::clone(&labels), run_id: run.id, ..job }
        });
        let jobs: Arc<[RemoteJob]> = jobs.collect();
        fits &= jobs.len() as u64 == total;
        Ok((jobs, fits, rooms))
    }

    /// A page, the room for it, and the size of the answer.
    async fn jobs_page(&self, run: &Run, number: u64) -> Result<(WireJobs<WireJob>, Room, usize), Error> {
        let resource = numbered(format!("actions/runs/{}/jobs?filter=latest&per_page={PER_PAGE}", run.id), number);
        let read = self.read(Endpoint::ListRunJobs, &resource).await?;
        let page: WireJobs<WireJob> = read.json()?;
        if page.jobs.len() as u64 > PER_PAGE {
            return Err(read.absurd("a page has more jobs than were asked for"));
        }
        let texts = |job: &WireJob| {
            let names = job.runner_name.iter().chain(&job.workflow_name).chain(&job.head_branch).chain(&job.labels);
            names.fold(ENTRY, |sum, text| sum.saturating_add(text.len()))
        };
        let room = read.room(page.jobs.iter().map(texts).fold(0, usize::saturating_add))?;
        Ok((page, room, read.len()))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, RunsPage>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WireRun {
    fn texts(&self) -> impl Iterator<Item = &String> {
        let actor = self.triggering_actor.iter().filter_map(|actor| actor.login.as_ref());
        self.name.iter().chain(&self.event).chain(actor)
    }

    fn run(self) -> Run {
        Run {
            id: self.id,
            state: JobState::read(self.status.as_deref().unwrap_or_default()),
            attempt: self.run_attempt.unwrap_or(1),
            updated_at: self.updated_at,
            created_at: self.created_at,
            workflow: self.name.map(Arc::from),
            event: self.event.map(Arc::from).unwrap_or_default(),
            actor: self.triggering_actor.and_then(|actor| actor.login).map(Arc::from).unwrap_or_default(),
        }
    }
}

impl Run {
    fn is_younger_than(&self, patience: Duration, now: Timestamp) -> bool {
        // By GitHub's clock, which may be ahead.
        self.created_at.is_some_and(|created| now.duration_since(created).unsigned_abs() < patience)
    }
}

/// A run whose jobs could be asked for.
struct Candidate {
    id: u64,
    /// Whether it differs from what it was when its jobs were read, or they never were.
    changed: bool,
    /// When they were last asked for.
    asked: Option<Instant>,
}

/// The runs to ask for: changed ones before others, within each those that waited longest. A quarter is kept for the
/// others, since a run that looks the same can have other jobs.
fn choose(candidates: Vec<Candidate>, most: usize) -> HashSet<u64> {
    let (mut changed, mut same): (Vec<Candidate>, Vec<Candidate>) = candidates.into_iter().partition(|run| run.changed);
    for runs in [&mut changed, &mut same] {
        runs.sort_unstable_by_key(|run| (run.asked, run.id));
    }
    let kept = (most / 4).min(same.len());
    changed.truncate(most.saturating_sub(kept));
    same.truncate(most.saturating_sub(changed.len()));
    changed.iter().chain(&same).map(|run| run.id).collect()
}

/// Whether the other runs can be read all the same.
fn concerns_one_run(error: &Error) -> bool {
    use ErrorKind::{
        Decode, Deferred, Forbidden, Invalid, Network, NotVisible, RateLimited, Saturated, Server, Timeout, Unauthorized,
    };
    match error.kind() {
        NotVisible { .. } | Server | Timeout | Network | Decode | Invalid => true,
        Unauthorized | Forbidden { .. } | RateLimited { .. } | Deferred { .. } | Saturated => false,
    }
}

/// Entries per page: what was asked for, unless the instance gives fewer.
fn page_size(first: usize, total: u64) -> u64 {
    match first as u64 {
        0 => PER_PAGE,
        length if length < total => length,
        _ => PER_PAGE,
    }
}

fn numbered(resource: String, page: u64) -> String {
    if page == 1 { resource } else { format!("{resource}&page={page}") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn changed_runs_come_first_and_the_others_in_turn() {
        let start = Instant::now();
        let run = |id, changed, asked: Option<u64>| Candidate {
            id,
            changed,
            asked: asked.map(|seconds| start + Duration::from_secs(seconds)),
        };
        let runs = || {
            vec![
                run(1, false, Some(5)),
                run(2, true, Some(9)),
                run(3, false, Some(3)),
                run(4, true, None),
                run(5, false, Some(4)),
                run(6, true, Some(8)),
            ]
        };
        let table: [(usize, &[u64]); 7] = [
            (0, &[]),
            (1, &[4]),
            (2, &[4, 6]),
            (3, &[2, 4, 6]),
            (4, &[2, 3, 4, 6]),
            (5, &[2, 3, 4, 5, 6]),
            (9, &[1, 2, 3, 4, 5, 6]),
        ];
        for (most, expected) in table {
            let mut chosen: Vec<u64> = choose(runs(), most).into_iter().collect();
            chosen.sort_unstable();
            assert_eq!(chosen, expected, "{most}");
        }
    }

    proptest! {
        #[test]
        fn every_run_is_asked_for_in_the_end(count in 1_usize..200, most in 4_usize..50, changing in any::<u64>()) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
            let start = { let _in = runtime.enter(); Instant::now() };
            let mut asked: Vec<Option<Instant>> = vec![None; count];
            // Some runs change all the time; they must not keep the others from their turn.
            let rounds = count.div_ceil(most / 4) + 2;
            for round in 0..rounds {
                let candidates = asked.iter().enumerate().map(|(id, asked)| {
                    let changed = asked.is_none() || changing >> (id % 64) & 1 == 1;
                    Candidate { id: id as u64, changed, asked: *asked }
                });
                let chosen = choose(candidates.collect(), most);
                prop_assert_eq!(chosen.len(), most.min(count));
                for id in chosen {
                    asked[id as usize] = Some(start + Duration::from_secs(round as u64));
                }
            }
            prop_assert!(asked.iter().all(Option::is_some));
        }
    }
}
