//! How many jobs arrive per minute.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

/// Minutes that are looked back.
pub const MINUTES: usize = 60;

/// Jobs that are remembered; beyond them the oldest ids go first. More than a thousand jobs a minute say the same without the rest.
const KEPT: usize = 65_536;

/// The jobs of a pool that arrived of late. A job counts once, by its id, in the minute in which GitHub queued it, however often and by whatever
/// way it becomes known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrivals {
    queued: BTreeMap<u64, Timestamp>,
}

impl Arrivals {
    /// Takes note of jobs, each with the moment at which it was queued.
    pub fn record(&mut self, jobs: impl IntoIterator<Item = (u64, Timestamp)>, now: Timestamp) {
        let recent = |queued: Timestamp| minutes_ago(queued, now).is_some();
        self.queued.retain(|_, queued| recent(*queued));
        self.queued.extend(jobs.into_iter().filter(|(_, queued)| recent(*queued)));
        while self.queued.len() > KEPT {
            self.queued.pop_first();
        }
    }

    /// Jobs per minute, the last sixty seconds first, as far back as the first that is remembered.
    #[must_use]
    pub fn per_minute(&self, now: Timestamp) -> Vec<u32> {
        let mut counts: Vec<u32> = Vec::new();
        for minute in self.queued.values().filter_map(|queued| minutes_ago(*queued, now)) {
            if counts.len() <= minute {
                counts.resize(minute + 1, 0);
            }
            if let Some(count) = counts.get_mut(minute) {
                *count = count.saturating_add(1);
            }
        }
        counts
    }
}

/// Whole minutes since then; none when that is too long ago. GitHub's clock may be a little ahead of ours.
fn minutes_ago(then: Timestamp, now: Timestamp) -> Option<usize> {
    let age = now.duration_since(then).max(SignedDuration::ZERO);
    usize::try_from(age.as_mins()).ok().filter(|minute| *minute < MINUTES)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + second).unwrap()
    }

    #[test]
    fn each_job_counts_once_in_its_minute() {
        let mut arrivals = Arrivals::default();
        assert_eq!(arrivals.per_minute(at(0)), []);
        arrivals.record([(1, at(-130)), (2, at(-59)), (3, at(0)), (4, at(5))], at(0));
        arrivals.record([(2, at(-59)), (1, at(-130))], at(0));
        assert_eq!(arrivals.per_minute(at(0)), [3, 0, 1]);
        assert_eq!(arrivals.per_minute(at(60)), [1, 2, 0, 1]);
        // What is older than an hour is forgotten, and never counted when it becomes known.
        arrivals.record([(5, at(-4_000))], at(0));
        assert_eq!(arrivals.per_minute(at(0)), [3, 0, 1]);
        arrivals.record([], at(3_600));
        assert_eq!(arrivals, Arrivals { queued: [(4, at(5))].into() });
        assert_eq!(arrivals.per_minute(at(4_000)), []);
    }

    #[test]
    fn arrivals_are_bounded_when_jobs_are_many() {
        let mut arrivals = Arrivals::default();
        arrivals.record((0..70_000).map(|id| (id, at(0))), at(0));
        assert_eq!(arrivals.per_minute(at(0)), [u32::try_from(KEPT).unwrap()]);
    }

    proptest! {
        #[test]
        fn arrivals_are_the_same_when_jobs_are_repeated_in_any_order(jobs in prop::collection::vec((0..50_u64, -4_000..100_i64), 0..100)) {
            // One job has one time.
            let jobs: BTreeMap<u64, Timestamp> = jobs.into_iter().map(|(id, second)| (id, at(second))).collect();
            let mut once = Arrivals::default();
            once.record(jobs.clone(), at(0));
            let mut often = Arrivals::default();
            for (id, queued) in jobs.iter().rev().chain(jobs.iter()) {
                often.record([(*id, *queued)], at(0));
            }
            prop_assert_eq!(&once, &often);
            let counts = once.per_minute(at(0));
            prop_assert!(counts.len() <= MINUTES && counts.last() != Some(&0));
            let recent = jobs.values().filter(|queued| at(0).duration_since(**queued).as_secs() < 3_600).count();
            prop_assert_eq!(counts.iter().sum::<u32>() as usize, recent);
        }
    }
}
