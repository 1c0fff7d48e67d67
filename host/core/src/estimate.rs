//! When a job that waits will probably start, from what the pool's starts and jobs took of late.
//!
//! The runners of the pool serve its jobs in the order in which these were queued. A runner that is on its way takes its job when starts of the
//! pool are over as a rule; one that works, when jobs of the pool are over as a rule; and both a moment later, as GitHub takes to assign a job.
//! That is reckoned twice: with medians, and with 90th percentiles. A sum of 90th percentiles is later than the 90th percentile of the sum, so the
//! later of the two moments errs on the late side.
//! Nothing here moves by itself: an estimate changes when a runner does, or when something takes longer than was expected of it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::policy::Quantiles;
use crate::waiting::{Brake, Pool, Runner, Standing};

/// What is known of a pool beside its runners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// From a runner's pod to its being online, in seconds; none before the first.
    pub starts: Option<Quantiles>,
    /// From a job's start to its end, in seconds; none before the first.
    pub runs: Option<Quantiles>,
    /// From there being both, a job that waits and a runner that is online for it, to the job's start, in seconds; none before the first. See
    /// [`assignment`].
    pub assignments: Option<Quantiles>,
    /// Each runner takes one job only, so that the next job waits for another runner as well.
    pub ephemeral: bool,
}

/// What GitHub takes to give a job to a runner that is online, before a pool has seen it: a second, and sometimes several. After a minute it gives a
/// job that was not picked up to another one (GitHub docs, self-hosted runners reference).
const UNSEEN_ASSIGNMENT: Quantiles = Quantiles { samples: 0, p50: 1, p90: 5, p99: 60 };

/// How long a job took to start at `started` once it had been queued and its runner was online, in seconds that have begun: times from pod to online
/// are whole seconds that have passed.
#[must_use]
pub fn assignment(queued: Timestamp, online: Timestamp, started: Timestamp) -> u32 {
    let took = started.duration_since(queued.max(online));
    let begun = took.as_secs().saturating_add(i64::from(took.subsec_nanos() > 0));
    u32::try_from(begun.max(0)).unwrap_or(u32::MAX)
}

/// When a job will start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Estimate {
    /// Half of the jobs in its place have started by then.
    pub likely: Timestamp,
    /// Nine of ten have.
    pub latest: Timestamp,
}

/// How an estimate turned out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// The job had started by [`Estimate::likely`].
    Likely,
    /// The job had started by [`Estimate::latest`], but not by [`Estimate::likely`].
    Latest,
    /// The job started after [`Estimate::latest`].
    Later,
}

impl Outcome {
    /// All outcomes, for metrics by outcome.
    pub const ALL: [Self; 3] = [Self::Likely, Self::Latest, Self::Later];

    /// As metrics name it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Likely => "by-likely",
            Self::Latest => "by-latest",
            Self::Later => "later",
        }
    }
}

impl Estimate {
    /// How it turned out for a job that started at this moment, and by how much [`Estimate::likely`] missed it.
    #[must_use]
    pub fn score(self, started: Timestamp) -> (Outcome, SignedDuration) {
        let outcome = match started {
            at if at <= self.likely => Outcome::Likely,
            at if at <= self.latest => Outcome::Latest,
            _ => Outcome::Later,
        };
        (outcome, started.duration_since(self.likely).abs())
    }
}

/// The first estimate of each job that waits, until the job starts.
#[derive(Clone, Debug, Default)]
pub struct Estimates {
    first: BTreeMap<u64, Option<Estimate>>,
}

impl Estimates {
    /// Whether one of these jobs has not been seen before.
    #[must_use]
    pub fn lack(&self, mut waiting: impl Iterator<Item = u64>) -> bool {
        waiting.any(|job| !self.first.contains_key(&job))
    }

    /// Keeps the first estimate of each job, none where none can be made; later ones, which know more, are not what people went by.
    pub fn keep(&mut self, made: impl IntoIterator<Item = (u64, Option<Estimate>)>) {
        for (job, estimate) in made {
            self.first.entry(job).or_insert(estimate);
        }
    }

    /// What was said of jobs that have started. Those that neither wait nor have started are forgotten.
    pub fn started(
        &mut self,
        waits: impl Fn(u64) -> bool,
        started: impl Fn(u64) -> Option<Timestamp>,
    ) -> Vec<(Outcome, SignedDuration)> {
        let mut scores = Vec::new();
        self.first.retain(|job, estimate| {
            if waits(*job) {
                return true;
            }
            scores.extend(estimate.zip(started(*job)).map(|(estimate, at)| estimate.score(at)));
            false
        });
        scores
    }
}

/// When the jobs that wait for this pool will start, which were queued at these moments, in their order. None where nothing that was seen tells,
/// or where people, a schedule or a pause have to come first.
#[must_use]
pub fn starts(pool: &Pool, pace: &Pace, queued: &[Timestamp], now: Timestamp) -> Vec<Option<Estimate>> {
    let likely = Reckoning { pool, pace, now, percentile: Percentile::Half }.starts(queued);
    let latest = Reckoning { pool, pace, now, percentile: Percentile::NineOfTen }.starts(queued);
    let estimate = |(likely, latest): (Option<Timestamp>, Option<Timestamp>)| {
        likely.zip(latest).map(|(likely, latest)| Estimate { likely, latest: latest.max(likely) })
    };
    likely.into_iter().zip(latest).map(estimate).collect()
}

#[derive(Clone, Copy)]
enum Percentile {
    Half,
    NineOfTen,
}

/// One of the two ways to reckon.
struct Reckoning<'a> {
    pool: &'a Pool,
    pace: &'a Pace,
    now: Timestamp,
    percentile: Percentile,
}

impl Reckoning<'_> {
    fn starts(&self, queued: &[Timestamp]) -> Vec<Option<Timestamp>> {
        let mut free: BinaryHeap<Reverse<Timestamp>> = self.free(queued).map(Reverse).collect();
        let mut starts = Vec::with_capacity(queued.len());
        for at in queued {
            let Some(Reverse(runner)) = free.pop() else {
                starts.push(None);
                continue;
            };
            let start = self.after(runner.max(*at), self.typical(self.pace.assignments.unwrap_or(UNSEEN_ASSIGNMENT)));
            starts.push(start);
            let end = start.zip(self.pace.runs).and_then(|(start, runs)| self.after(start, self.typical(runs)));
            free.extend(end.and_then(|end| self.again(end)).map(Reverse));
        }
        starts
    }

    /// When each runner can take a job that waits: those that are there, then those that are still to be made. These are wanted for the jobs that
    /// were queued last, and since then: the others have theirs.
    fn free<'q>(&self, queued: &'q [Timestamp]) -> impl Iterator<Item = Timestamp> + use<'_, 'q> {
        let first = queued.first().copied().unwrap_or(self.now);
        let leaves = |runner: &&Runner| matches!(runner.standing, Standing::Failed | Standing::Leaving);
        let held = self.pool.runners.iter().filter(|runner| !leaves(runner)).count();
        let lacking = usize::try_from(self.pool.wanted).unwrap_or(usize::MAX).saturating_sub(held);
        let start = self.pace.starts.filter(|_| self.makes_runners()).map(|starts| self.typical(starts));
        let last = queued.iter().skip(queued.len().saturating_sub(lacking));
        let made = last.filter_map(move |at| self.after(*at, start?));
        let there = self.pool.runners.iter().filter_map(move |runner| match runner.standing {
            Standing::Idle => Some(first),
            Standing::Created | Standing::Starting | Standing::Registering if self.pool.github.is_none() => {
                self.over(self.pace.starts?, runner.since?)
            }
            Standing::Busy => self.again(self.over(self.pace.runs?, runner.since?)?),
            // Nobody knows when people, the cluster or GitHub do their part.
            Standing::Created
            | Standing::Starting
            | Standing::Registering
            | Standing::Image(_)
            | Standing::Unschedulable(_)
            | Standing::Refused(_)
            | Standing::Failed
            | Standing::Quarantined(_)
            | Standing::Leaving => None,
        });
        there.chain(made)
    }

    /// When a runner, or the one that takes its place, takes another job after the end of one.
    fn again(&self, end: Timestamp) -> Option<Timestamp> {
        match self.pace.ephemeral {
            false => Some(end),
            true if self.makes_runners() => self.after(end, self.typical(self.pace.starts?)),
            true => None,
        }
    }

    /// Whether runners that are wanted are made at the pace that was seen: nothing else has to happen first.
    fn makes_runners(&self) -> bool {
        let brake = self.pool.autoscaler.as_ref().map_or(Brake::None, |autoscaler| autoscaler.brake);
        let free = match brake {
            Brake::None | Brake::Maximum | Brake::Ceiling => true,
            Brake::Ramp | Brake::Schedule | Brake::Blind | Brake::Unable => false,
        };
        free && self.pool.backoff.is_none() && self.pool.github.is_none() && self.pool.refused.is_none()
    }

    fn typical(&self, quantiles: Quantiles) -> u32 {
        match self.percentile {
            Percentile::Half => quantiles.p50,
            Percentile::NineOfTen => quantiles.p90,
        }
    }

    /// When something that began at this moment is over: what has taken longer than it does as a rule takes as long as the next slower ones.
    /// None for what takes longer than anything before.
    fn over(&self, quantiles: Quantiles, since: Timestamp) -> Option<Timestamp> {
        let possible = [self.typical(quantiles), quantiles.p90, quantiles.p99];
        possible.into_iter().filter_map(|seconds| self.after(since, seconds)).find(|end| *end >= self.now)
    }

    fn after(&self, at: Timestamp, seconds: u32) -> Option<Timestamp> {
        at.checked_add(SignedDuration::from_secs(i64::from(seconds))).ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::waiting::Autoscaler;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn took(p50: u32, p90: u32, p99: u32) -> Option<Quantiles> {
        Some(Quantiles { samples: 9, p50, p90, p99 })
    }

    /// GitHub assigns jobs at once.
    const AT_ONCE: Option<Quantiles> = Some(Quantiles { samples: 9, p50: 0, p90: 0, p99: 0 });

    fn pool(wanted: u32, runners: &[(Standing, i64)]) -> Pool {
        let runner = |(standing, since): &(Standing, i64)| Runner {
            name: "web-1".into(),
            standing: standing.clone(),
            since: Some(at(*since)),
        };
        Pool { wanted, runners: runners.iter().map(runner).collect(), ..Pool::default() }
    }

    fn said(pool: &Pool, pace: &Pace, queued: &[i64], now: i64) -> Vec<Option<(i64, i64)>> {
        let queued: Vec<Timestamp> = queued.iter().map(|second| at(*second)).collect();
        let seconds = |moment: Timestamp| moment.duration_since(at(0)).as_secs();
        let told = |estimate: Estimate| (seconds(estimate.likely), seconds(estimate.latest));
        starts(pool, pace, &queued, at(now)).into_iter().map(|estimate| estimate.map(told)).collect()
    }

    #[test]
    fn job_starts_when_the_next_runner_in_its_order_is_free() {
        use Standing::{Busy, Idle, Leaving, Quarantined, Registering};
        let pace = Pace { starts: took(20, 40, 60), runs: took(100, 300, 900), assignments: AT_ONCE, ephemeral: true };
        let lasting = Pace { ephemeral: false, ..pace };
        let unseen = Pace { assignments: AT_ONCE, ephemeral: true, ..Pace::default() };
        for (what, pool, pace, queued, expected) in [
            ("an idle runner", pool(1, &[(Idle, 0)]), pace, &[500][..], &[Some((500, 500))][..]),
            ("one on its way", pool(1, &[(Registering, 490)]), pace, &[495], &[Some((510, 530))]),
            ("one to be made", pool(1, &[]), pace, &[495], &[Some((515, 535))]),
            ("one to be made after another left", pool(1, &[(Leaving, 0)]), pace, &[495], &[Some((515, 535))]),
            (
                "one to be made for the second",
                pool(2, &[(Registering, 490)]),
                pace,
                &[490, 498],
                &[Some((510, 530)), Some((518, 538))],
            ),
            ("more to be made than jobs wait", pool(3, &[]), pace, &[490, 498], &[Some((510, 530)), Some((518, 538))]),
            ("a busy one, and its replacement", pool(1, &[(Busy, 450)]), pace, &[495], &[Some((570, 790))]),
            ("a busy one that goes on", pool(1, &[(Busy, 450)]), lasting, &[495], &[Some((550, 750))]),
            ("a job longer than half of them", pool(1, &[(Busy, 300)]), lasting, &[495], &[Some((600, 600))]),
            ("a job longer than most of them", pool(1, &[(Busy, 100)]), lasting, &[495], &[Some((1_000, 1_000))]),
            ("a job longer than any", pool(1, &[(Busy, -500)]), lasting, &[495], &[None]),
            ("the job before it", pool(1, &[(Idle, 0)]), lasting, &[500, 500], &[Some((500, 500)), Some((600, 800))]),
            (
                "the first of two that end",
                pool(2, &[(Busy, 450), (Busy, 430)]),
                lasting,
                &[495, 496, 497],
                &[Some((530, 730)), Some((550, 750)), Some((630, 1_030))],
            ),
            ("nothing was seen yet", pool(1, &[]), unseen, &[495], &[None]),
            ("an idle one where nothing was seen", pool(1, &[(Idle, 0)]), unseen, &[495, 496], &[Some((495, 495)), None]),
            ("people", pool(1, &[(Quarantined(String::new()), 0)]), pace, &[495], &[None]),
        ] {
            assert_eq!(said(&pool, &pace, queued, 500), expected, "{what}");
        }
    }

    #[test]
    fn job_starts_when_github_has_given_it_to_a_runner() {
        use Standing::{Busy, Idle, Registering};
        let seen = Pace { starts: took(20, 40, 60), runs: took(100, 300, 900), assignments: took(2, 7, 9), ephemeral: false };
        let unseen = Pace { assignments: None, ..seen };
        for (what, pool, pace, queued, expected) in [
            ("an idle runner", pool(1, &[(Idle, 0)]), seen, &[500][..], &[Some((502, 507))][..]),
            ("one on its way", pool(1, &[(Registering, 490)]), seen, &[495], &[Some((512, 537))]),
            ("a busy one", pool(1, &[(Busy, 450)]), seen, &[495], &[Some((552, 757))]),
            ("the job before it", pool(1, &[(Idle, 0)]), seen, &[500, 500], &[Some((502, 507)), Some((604, 814))]),
            ("an idle runner, before anything was seen", pool(1, &[(Idle, 0)]), unseen, &[500], &[Some((501, 505))]),
        ] {
            assert_eq!(said(&pool, &pace, queued, 500), expected, "{what}");
        }
    }

    #[test]
    fn assignment_is_counted_from_whichever_was_there_last_in_seconds_that_have_begun() {
        let at = |millis: i64| at(0) + SignedDuration::from_millis(millis);
        for (queued, online, started, expected) in
            [(0, 3_000, 3_200, 1), (3_000, 0, 5_000, 2), (0, 0, 0, 0), (0, 3_000, 2_500, 0), (1_000, 500, 61_001, 61)]
        {
            assert_eq!(assignment(at(queued), at(online), at(started)), expected, "{queued} {online} {started}");
        }
    }

    #[test]
    fn job_that_needs_a_new_runner_has_no_estimate_while_none_is_made() {
        let pace = Pace { starts: took(20, 40, 60), runs: took(100, 300, 900), assignments: AT_ONCE, ephemeral: true };
        let free = pool(2, &[(Standing::Idle, 0), (Standing::Registering, 490)]);
        let held = |brake| Pool { autoscaler: Some(Autoscaler { brake, ..Autoscaler::default() }), ..free.clone() };
        let all = [Some((495, 495)), Some((510, 530)), Some((615, 835))];
        let two = [all[0], all[1], None];
        for (what, pool, expected) in [
            ("nothing holds it", held(Brake::Maximum), all),
            ("the ramp", held(Brake::Ramp), two),
            ("a schedule", held(Brake::Schedule), two),
            ("failed starts", Pool { backoff: Some((at(900), 3)), ..free.clone() }, two),
            ("GitHub", Pool { github: Some(("limit".into(), None)), ..free.clone() }, [all[0], None, None]),
            ("quota", Pool { refused: Some(("quota".into(), None)), ..free.clone() }, two),
        ] {
            assert_eq!(said(&pool, &pace, &[495, 495, 495], 500), expected, "{what}");
        }
    }

    #[test]
    fn first_estimate_of_a_job_is_scored_once_it_starts() {
        let estimate = |likely, latest| Some(Estimate { likely: at(likely), latest: at(latest) });
        let mut estimates = Estimates::default();
        assert!(estimates.lack([1, 2].into_iter()));
        estimates.keep([(1, estimate(10, 20)), (2, estimate(10, 20)), (3, estimate(10, 20)), (4, None), (5, estimate(1, 2))]);
        estimates.keep([(1, estimate(50, 60))]);
        assert!(!estimates.lack([1, 2].into_iter()));
        // The first three have started, the fourth as well, the fifth has been cancelled, and a sixth was never seen to wait.
        let started = |job| [(1, at(9)), (2, at(13)), (3, at(40)), (4, at(5)), (6, at(5))].into_iter().find(|one| one.0 == job);
        let scores = estimates.started(|_| false, |job| started(job).map(|(_, at)| at));
        let seconds = scores.iter().map(|(outcome, error)| (*outcome, error.as_secs())).collect::<Vec<_>>();
        assert_eq!(seconds, [(Outcome::Likely, 1), (Outcome::Latest, 3), (Outcome::Later, 30)]);
        assert_eq!(estimates.started(|_| false, |_| Some(at(0))), []);
        estimates.keep([(7, estimate(1, 2))]);
        assert_eq!(estimates.started(|job| job == 7, |_| Some(at(0))), [], "it waits");
        assert_eq!(estimates.started(|_| false, |_| Some(at(0))).len(), 1);
    }

    fn standing() -> impl Strategy<Value = Standing> {
        prop_oneof![Just(Standing::Idle), Just(Standing::Starting), Just(Standing::Busy), Just(Standing::Leaving)]
    }

    proptest! {
        #[test]
        fn estimates_keep_the_order_of_the_queue(
            runners in prop::collection::vec((standing(), 0_i64..600), 0..12),
            (wanted, ephemeral) in (0_u32..12, any::<bool>()),
            mut queued in prop::collection::vec(0_i64..600, 0..40),
            (start, run) in (1_u32..60, 1_u32..600),
        ) {
            queued.sort_unstable();
            let starts = took(start, start * 2, start * 3);
            let pace = Pace { starts, runs: took(run, run * 2, run * 3), assignments: AT_ONCE, ephemeral };
            let found = said(&pool(wanted, &runners), &pace, &queued, 600);
            prop_assert_eq!(found.len(), queued.len());
            for (estimate, at) in found.iter().zip(&queued) {
                prop_assert!(estimate.is_none_or(|(likely, latest)| *at <= likely && likely <= latest));
            }
            for pair in found.windows(2) {
                let [Some(one), Some(other)] = pair else { continue };
                prop_assert!(one.0 <= other.0, "{:?}", found);
            }
        }
    }
}
