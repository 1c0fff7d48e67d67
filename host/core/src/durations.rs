//! How long starts and jobs of a pool take, as far as it was seen.

use std::collections::VecDeque;

use crate::policy::Quantiles;

/// Those that count; older ones say little about the cluster, and the jobs, of today.
const KEPT: usize = 200;

/// The newest of a pool's durations of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    /// In seconds, the newest last.
    newest: VecDeque<u32>,
}

impl Durations {
    /// One more of so many seconds.
    pub fn add(&mut self, seconds: u32) {
        if self.newest.len() >= KEPT {
            self.newest.pop_front();
        }
        self.newest.push_back(seconds);
    }

    /// How they are distributed, by nearest rank; none when there was none.
    #[must_use]
    pub fn quantiles(&self) -> Option<Quantiles> {
        let mut sorted: Vec<u32> = self.newest.iter().copied().collect();
        sorted.sort_unstable();
        let at = |percent: usize| sorted.get((sorted.len() * percent).div_ceil(100).checked_sub(1)?).copied();
        Some(Quantiles { samples: u32::try_from(sorted.len()).unwrap_or(u32::MAX), p50: at(50)?, p90: at(90)?, p99: at(99)? })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(times: impl IntoIterator<Item = u32>) -> Durations {
        times.into_iter().fold(Durations::default(), |mut all, time| {
            all.add(time);
            all
        })
    }

    #[test]
    fn quantiles_are_times_that_were_seen() {
        for (times, expected) in [
            (vec![], None),
            (vec![7], Some((1, 7, 7, 7))),
            (vec![9, 1], Some((2, 1, 9, 9))),
            ((1..=100).rev().collect(), Some((100, 50, 90, 99))),
        ] {
            let quantiles = of(times.clone()).quantiles().map(|found| (found.samples, found.p50, found.p90, found.p99));
            assert_eq!(quantiles, expected, "{times:?}");
        }
    }

    #[test]
    fn only_the_newest_count() {
        let slow_once = of(std::iter::repeat_n(900, 10).chain(std::iter::repeat_n(30, KEPT)));
        assert_eq!(slow_once.quantiles(), of([30; KEPT]).quantiles());
    }

    proptest! {
        #[test]
        fn quantiles_are_in_order(times in prop::collection::vec(0..100_000_u32, 1..400)) {
            let found = of(times.iter().copied()).quantiles().unwrap();
            prop_assert!(found.p50 <= found.p90 && found.p90 <= found.p99);
            prop_assert!(times.contains(&found.p50) && times.contains(&found.p90) && times.contains(&found.p99));
        }
    }
}
