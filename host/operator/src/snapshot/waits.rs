//! How long jobs waited over the last two hours, by pool and by the labels that they asked for: followed from ledgers, while the page is served.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use pacer_core::ledger::State;
use pacer_core::target::label_set;
use tokio_util::sync::CancellationToken;

use super::fleet::key;
use super::ledger::known;
use super::{Section, WaitBin, Waits, is_due};
use crate::metrics::{Metrics, Sources};
use crate::target::TargetRef;

/// How long a bin is.
const BIN: i64 = 300;

/// Bins that are kept: two hours.
const BINS: i64 = 24;

/// Sets of labels of a pool that are told from each other.
const SETS: usize = 16;

/// Rows in a snapshot at most, those with most jobs.
const ROWS: usize = 500;

/// How often ledgers are looked at. Jobs that begin and end in between are missed.
const LOOK: Duration = Duration::from_secs(5);

/// How often waits are told while jobs start all the time.
const TELL: SignedDuration = SignedDuration::from_secs(15);

/// Waits of jobs that started, in bins by when they started.
#[derive(Clone, Debug, Default)]
pub struct WaitBins {
    /// The first bin that is kept.
    first: i64,
    pools: BTreeMap<Arc<str>, BTreeMap<Row, Bins>>,
}

/// Sorted labels; none for those beyond [`SETS`].
type Row = Option<BTreeSet<String>>;

/// By how many times [`BIN`] the bin begins after 1970.
type Bins = BTreeMap<i64, Bin>;

/// How many jobs waited how many seconds, to the precision of [`rounded`].
#[derive(Clone, Debug, Default)]
struct Bin {
    waits: BTreeMap<u32, u64>,
    longest: u32,
}

/// A wait of which the seven highest binary digits are kept, so that any number of jobs takes bounded memory: less than 2 % too short.
fn rounded(seconds: u32) -> u32 {
    let cut = (u32::BITS - seconds.leading_zeros()).saturating_sub(7);
    seconds.checked_shr(cut).and_then(|high| high.checked_shl(cut)).unwrap_or(seconds)
}

fn place(at: Timestamp) -> i64 {
    at.as_second().div_euclid(BIN)
}

/// The first bin of the two hours that end at a moment.
fn first(now: Timestamp) -> i64 {
    place(now).saturating_sub(BINS - 1)
}

impl WaitBins {
    /// A job of this pool, which was queued and started at these moments. One that started before the last two hours is passed over.
    pub fn started(&mut self, pool: &str, labels: &[Arc<str>], queued: Timestamp, started: Timestamp, now: Timestamp) {
        self.forget(now);
        if place(started) < first(now) {
            return;
        }
        let rows = if let Some(rows) = self.pools.get_mut(pool) { rows } else { self.pools.entry(pool.into()).or_default() };
        let set = Some(label_set(labels));
        let told_apart = rows.contains_key(&set) || rows.keys().filter(|row| row.is_some()).count() < SETS;
        let bin = rows.entry(set.filter(|_| told_apart)).or_default().entry(place(started)).or_default();
        let seconds = u32::try_from(started.duration_since(queued).as_secs().max(0)).unwrap_or(u32::MAX);
        bin.add(rounded(seconds), 1);
        bin.longest = bin.longest.max(seconds);
    }

    /// Lets bins go that are over.
    fn forget(&mut self, now: Timestamp) {
        let first = first(now);
        if first == self.first {
            return;
        }
        // It is earlier than before when the clock was set back; then bins of the time that has not been yet go too. GitHub's clock may be a little ahead.
        let last = if first < self.first { place(now).saturating_add(1) } else { i64::MAX };
        self.first = first;
        self.pools.retain(|_, rows| {
            rows.retain(|_, bins| {
                bins.retain(|at, _| (first..=last).contains(at));
                !bins.is_empty()
            });
            !rows.is_empty()
        });
    }

    /// How many numbers it holds.
    #[must_use]
    pub fn things(&self) -> usize {
        self.pools.values().flat_map(BTreeMap::values).flat_map(BTreeMap::values).map(|bin| bin.waits.len()).sum()
    }

    /// The last two hours, as snapshots tell them.
    #[must_use]
    pub fn told(&self, now: Timestamp) -> Section<Waits> {
        let first = first(now);
        let rows = self.pools.iter().flat_map(|(pool, rows)| rows.iter().map(move |(row, bins)| (pool, row, bins)));
        let told = rows.map(|(pool, row, bins)| {
            let (mut whole, mut told) = (Bin::default(), Vec::new());
            for (at, bin) in bins.range(first..) {
                bin.waits.iter().for_each(|(seconds, jobs)| whole.add(*seconds, *jobs));
                whole.longest = whole.longest.max(bin.longest);
                told.push(bin.told(Timestamp::from_second(at.saturating_mul(BIN)).unwrap_or_default()));
            }
            let labels: Vec<String> = row.iter().flatten().cloned().collect();
            let key = if row.is_some() { format!("{pool} {}", labels.join(",")) } else { pool.to_string() };
            let sum = whole.told(now);
            let others = row.is_none();
            let (jobs, p50, p95, max) = (sum.jobs, sum.p50, sum.p95, sum.max);
            (key, Arc::new(Waits { pool: pool.to_string(), labels, others, jobs, p50, p95, max, bins: told }))
        });
        let mut told: Vec<_> = told.filter(|(_, row)| row.jobs > 0).collect();
        if told.len() > ROWS {
            told.sort_by_key(|(_, row)| std::cmp::Reverse(row.jobs));
            told.truncate(ROWS);
        }
        told.into_iter().collect()
    }
}

impl Bin {
    fn add(&mut self, seconds: u32, jobs: u64) {
        let known = self.waits.entry(seconds).or_default();
        *known = known.saturating_add(jobs);
    }

    fn jobs(&self) -> u64 {
        self.waits.values().fold(0, |sum, jobs| sum.saturating_add(*jobs))
    }

    /// The wait at or below which so many hundredths of all lie, by nearest rank.
    fn quantile(&self, hundredths: u64) -> u32 {
        let rank = self.jobs().saturating_mul(hundredths).div_ceil(100);
        let mut before = 0_u64;
        let at_rank = self.waits.iter().find(|(_, jobs)| {
            before = before.saturating_add(**jobs);
            before >= rank
        });
        at_rank.map(|(seconds, _)| *seconds).unwrap_or_default()
    }

    fn told(&self, from: Timestamp) -> WaitBin {
        WaitBin { from, jobs: self.jobs(), p50: self.quantile(50), p95: self.quantile(95), max: self.longest }
    }
}

/// What is followed, and the part of the snapshot that tells it; clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Follower(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    bins: WaitBins,
    /// Jobs that were counted, and when they started, by `namespace/name` of their autoscaler: a job counts once, also when its ledger is away for a moment.
    counted: HashMap<String, HashMap<u64, Timestamp>>,
    told: Section<Waits>,
    at: Option<Timestamp>,
}

/// A job that runs.
struct Started {
    id: u64,
    labels: Arc<[Arc<str>]>,
    queued: Timestamp,
    at: Timestamp,
}

/// Jobs that run: with their autoscaler and their pool.
fn running(sources: &Sources) -> Vec<(String, String, Vec<Started>)> {
    let of = |(autoscaler, ledger): super::ledger::Known| {
        let pool = TargetRef::of(&autoscaler)?;
        let jobs = ledger.open().filter(|(_, job)| job.state == State::InProgress).map(|(id, job)| Started {
            id,
            labels: job.about.labels.clone(),
            queued: job.queued,
            at: job.since,
        });
        Some((format!("{}/{}", autoscaler.namespace()?, autoscaler.name_any()), key(&pool), jobs.collect()))
    };
    known(sources).into_iter().filter_map(of).collect()
}

impl Follower {
    /// Looks at all ledgers now and then, until `stop`.
    pub(super) async fn follow(&self, metrics: &Metrics, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK) => {}
            }
            let now = Timestamp::now();
            for (autoscaler, pool, jobs) in metrics.sources().iter().flat_map(|sources| running(sources)) {
                self.look(&autoscaler, &pool, &jobs, now);
            }
            self.tell(now);
        }
    }

    /// What was told last.
    pub(super) fn told(&self) -> Section<Waits> {
        self.lock().told.clone()
    }

    /// The jobs of an autoscaler that run now.
    fn look(&self, autoscaler: &str, pool: &str, jobs: &[Started], now: Timestamp) {
        let mut kept = self.lock();
        let Kept { bins, counted, .. } = &mut *kept;
        let counted = counted.entry(autoscaler.to_owned()).or_default();
        for job in jobs {
            if place(job.at) >= first(now) && counted.insert(job.id, job.at).is_none() {
                bins.started(pool, &job.labels, job.queued, job.at, now);
            }
        }
    }

    fn tell(&self, now: Timestamp) {
        let mut kept = self.lock();
        if !is_due(kept.at, TELL, now) {
            return;
        }
        kept.at = Some(now);
        kept.bins.forget(now);
        kept.counted.retain(|_, jobs| {
            jobs.retain(|_, started| place(*started) >= first(now));
            !jobs.is_empty()
        });
        kept.told = kept.bins.told(now);
    }

    /// A poisoned lock means that a thread panicked between two jobs; what was counted until then is right.
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: &str = "RunnerDeployment/ci/web";

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_795_000_200 + second).unwrap()
    }

    fn labels(text: &str) -> Vec<Arc<str>> {
        text.split_whitespace().map(Arc::from).collect()
    }

    fn figures(told: &Section<Waits>, key: &str) -> (u64, u32, u32, u32) {
        let row = told.get(key).unwrap();
        (row.jobs, row.p50, row.p95, row.max)
    }

    #[test]
    fn waits_are_told_in_bins_of_five_minutes_and_over_all_of_them() {
        let mut bins = WaitBins::default();
        for wait in 1..=100 {
            bins.started(POOL, &labels("linux self-hosted"), at(299 - wait), at(299), at(299));
        }
        bins.started(POOL, &labels("self-hosted Linux"), at(-700), at(300), at(300));
        let told = bins.told(at(300));
        assert_eq!(told.len(), 1, "order and case of labels are nothing");
        assert_eq!(figures(&told, "RunnerDeployment/ci/web linux,self-hosted"), (101, 51, 96, 1_000));
        let row = told.values().next().unwrap();
        assert_eq!((row.labels.join(" "), row.others), ("linux self-hosted".to_owned(), false));
        let bin = |from, jobs, p50, p95, max| WaitBin { from, jobs, p50, p95, max };
        assert_eq!(row.bins, [bin(at(0), 100, 50, 95, 100), bin(at(300), 1, 1_000, 1_000, 1_000)]);
    }

    #[test]
    fn what_started_more_than_two_hours_ago_is_forgotten_and_never_counted() {
        let mut bins = WaitBins::default();
        bins.started(POOL, &labels("a"), at(0), at(10), at(10));
        assert_eq!(bins.told(at(24 * 300 - 1)).len(), 1);
        assert!(bins.told(at(24 * 300)).is_empty());
        bins.started(POOL, &labels("b"), at(0), at(10), at(24 * 300));
        assert_eq!((bins.things(), bins.pools.len()), (0, 0));
    }

    #[test]
    fn sets_of_labels_beyond_sixteen_are_one_row_until_there_is_room_again() {
        let mut bins = WaitBins::default();
        for set in 0..20 {
            bins.started(POOL, &labels(&format!("set-{set:02}")), at(0), at(set), at(set));
        }
        let told = bins.told(at(20));
        assert_eq!((told.len(), figures(&told, POOL).0), (17, 4));
        let others = told.get(POOL).unwrap();
        assert!(others.others && others.labels.is_empty());
        bins.started(POOL, &labels("set-03"), at(0), at(30), at(30));
        assert_eq!(figures(&bins.told(at(30)), "RunnerDeployment/ci/web set-03").0, 2);
        bins.started(POOL, &labels("set-19"), at(0), at(9_000), at(9_000));
        assert_eq!(bins.told(at(9_000)).into_keys().collect::<Vec<_>>(), ["RunnerDeployment/ci/web set-19"]);
    }

    #[test]
    fn a_wait_keeps_its_precision_however_long_it_is_and_takes_bounded_memory() {
        let mut bins = WaitBins::default();
        for wait in (0..500_000).step_by(7) {
            assert!(rounded(wait) <= wait && f64::from(wait - rounded(wait)) <= f64::from(wait) * 0.016, "{wait}");
            bins.started(POOL, &labels("a"), at(-i64::from(wait)), at(0), at(0));
        }
        assert_eq!((rounded(0), rounded(127), rounded(u32::MAX)), (0, 127, 127 << 25));
        assert!(bins.things() < 1_000, "{}", bins.things());
        assert_eq!(figures(&bins.told(at(0)), "RunnerDeployment/ci/web a").3, 499_996, "the longest is not rounded");
        bins.started(POOL, &labels("b"), at(9), at(0), at(0));
        assert_eq!(figures(&bins.told(at(0)), "RunnerDeployment/ci/web b"), (1, 0, 0, 0), "clocks differ");
    }

    #[test]
    fn rows_that_are_told_are_those_with_most_jobs() {
        let mut bins = WaitBins::default();
        for pool in 0..=ROWS {
            bins.started(&format!("RunnerDeployment/ci/{pool}"), &[], at(0), at(1), at(1));
        }
        bins.started("RunnerDeployment/ci/zz", &[], at(0), at(1), at(1));
        bins.started("RunnerDeployment/ci/zz", &[], at(0), at(1), at(1));
        let told = bins.told(at(1));
        assert_eq!((told.len(), figures(&told, "RunnerDeployment/ci/zz ").0), (ROWS, 2));
    }

    #[test]
    fn a_job_counts_once_also_when_its_ledger_was_away_and_is_told_after_a_while() {
        let follower = Follower::default();
        let look = |second: i64, jobs: &[(u64, i64)]| {
            let started = |(id, start): &(u64, i64)| Started { id: *id, labels: [].into(), queued: at(0), at: at(*start) };
            let jobs: Vec<_> = jobs.iter().map(started).collect();
            follower.look("ci/web", POOL, &jobs, at(second));
            follower.tell(at(second));
            follower.told().values().map(|row| row.jobs).sum::<u64>()
        };
        assert_eq!(look(5, &[(1, 4)]), 1);
        assert_eq!(look(19, &[(1, 4), (2, 18)]), 1, "it is told four times a minute");
        assert_eq!(look(20, &[(1, 4), (2, 18)]), 2);
        assert_eq!(look(40, &[]), 2);
        assert_eq!(look(60, &[(1, 4), (2, 18), (3, 50)]), 3);
        // The job still runs when its bin is forgotten.
        assert_eq!(look(8_000, &[(1, 4)]), 0);
        assert!(follower.lock().counted.is_empty());
    }

    #[test]
    fn waits_are_told_and_forgotten_by_the_new_time_when_the_clock_was_set_back() {
        let follower = Follower::default();
        let look = |second: i64, job: u64| {
            let started = Started { id: job, labels: [].into(), queued: at(second - 10), at: at(second) };
            follower.look("ci/web", POOL, &[started], at(second));
            follower.tell(at(second));
            follower.told().values().map(|row| row.jobs).sum::<u64>()
        };
        assert_eq!(look(90_000, 1), 1);
        assert_eq!(look(0, 2), 1, "it is not yet 90,000 again");
        assert_eq!((look(14, 3), look(15, 4)), (1, 3), "it is told four times a minute");
        assert_eq!(look(9_000, 5), 1, "those of the first bin are more than two hours ago");
        assert_eq!(follower.lock().bins.things(), 1);
    }
}
