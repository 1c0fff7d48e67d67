//! Many seeds.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::clock::{At, SECOND};
use crate::invariant::Violation;
use crate::rules::Rules;
use crate::script::Script;
use crate::world::run;

/// What came of many seeds.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Seeds that were run.
    pub seeds: u64,
    /// What did not hold, by seed.
    pub failures: Vec<(u64, Violation)>,
    /// Jobs of all runs together.
    pub jobs: u64,
    /// Jobs that went with their registration before anybody could know of them.
    pub unlucky: u64,
    /// Runner objects that the operator made, in all runs together.
    pub made: u64,
    /// The most points of any minute.
    pub points: u32,
    /// Virtual milliseconds that all runs lasted together.
    pub lasted: At,
    /// Real time that the whole search took.
    pub took: Duration,
}

impl Report {
    /// Seeds in a second.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a count of seeds fits into 53 bits")]
    pub fn pace(&self) -> f64 {
        self.seeds as f64 / self.took.as_secs_f64().max(0.001)
    }

    /// One line for people.
    #[must_use]
    pub fn line(&self) -> String {
        let hours = self.lasted / (3_600 * SECOND);
        format!(
            "{} seeds in {:.1} s ({:.0} a second): {} failures; {hours} h of virtual time, {} jobs, {} runners, {} points a minute at most, {} jobs went with their registration before anything showed them",
            self.seeds,
            self.took.as_secs_f64(),
            self.pace(),
            self.failures.len(),
            self.jobs,
            self.made,
            self.points,
            self.unlucky,
        )
    }
}

/// Runs seeds on so many threads, until so many have failed or the time is over.
#[must_use]
pub fn search(first: u64, count: u64, rules: Rules, threads: usize, failures: usize, limit: Option<Duration>) -> Report {
    let (begin, next) = (Instant::now(), AtomicU64::new(first));
    let end = first.saturating_add(count);
    let sum = Mutex::new(Report::default());
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let over = limit.is_some_and(|limit| begin.elapsed() >= limit);
                    let enough = sum.lock().unwrap_or_else(PoisonError::into_inner).failures.len() >= failures;
                    if seed >= end || over || enough {
                        return;
                    }
                    let outcome = run(&Script::of_seed(seed), rules, false);
                    let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
                    sum.seeds += 1;
                    sum.jobs += outcome.jobs as u64;
                    sum.unlucky += u64::from(outcome.unlucky);
                    sum.made += u64::from(outcome.made);
                    sum.points = sum.points.max(outcome.points);
                    sum.lasted += outcome.lasted;
                    sum.failures.extend(outcome.violation.map(|violation| (seed, violation)));
                }
            });
        }
    });
    let mut report = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
    report.failures.sort_by_key(|(seed, _)| *seed);
    report.took = begin.elapsed();
    report
}
