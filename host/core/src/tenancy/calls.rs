//! How many GitHub calls a namespace may make in a minute.
//!
//! A call is made as long as the minute has room for one, whatever it counts: a listing of ten pages that is allowed five would never be made
//! otherwise. What does not fit into this minute counts in the next ones, so that a namespace has its quota in the long run. A quarter is kept
//! for what jobs wait for.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::allowance::Purpose;

/// For how long a call counts.
const MINUTE: Duration = Duration::from_secs(60);

/// Nobody is told to come back sooner than this.
const LEAST_WAIT: Duration = Duration::from_millis(100);

/// What others than [`Purpose::Start`] leave of a quota: one part in so many.
const KEPT: u32 = 4;

/// The calls of one namespace. Every `now` is the time since a fixed moment, on a clock that never goes back.
#[derive(Debug, Default)]
pub struct Calls {
    /// How many count until when, by the second, rounded up.
    counted: BTreeMap<Duration, u32>,
    /// When one was put off last.
    put_off: Option<Duration>,
}

impl Calls {
    /// Time until a call may be made; zero when one may be made now.
    #[must_use]
    pub fn wait(&self, most: u32, purpose: Purpose, now: Duration) -> Duration {
        let most = usable(most, purpose);
        let standing = self.counted.range((std::ops::Bound::Excluded(now), std::ops::Bound::Unbounded));
        let mut used = standing.clone().fold(0_u32, |sum, (_, count)| sum.saturating_add(*count));
        if used < most {
            return Duration::ZERO;
        }
        for (until, count) in standing {
            used = used.saturating_sub(*count);
            if used < most {
                return until.saturating_sub(now).max(LEAST_WAIT);
            }
        }
        MINUTE
    }

    /// Asks for so many calls at once, of which `most` may be made in a minute.
    ///
    /// # Errors
    ///
    /// When they have to wait: for how long.
    pub fn ask(&mut self, most: u32, purpose: Purpose, calls: u32, now: Duration) -> Result<(), Duration> {
        self.counted.retain(|until, _| *until > now);
        let wait = self.wait(most, purpose, now);
        if !wait.is_zero() {
            self.put_off = Some(now);
            return Err(wait);
        }
        let second = Duration::from_secs(now.as_secs().saturating_add(u64::from(now.subsec_nanos() > 0)));
        let mut until = second.saturating_add(MINUTE);
        let used = self.counted.values().fold(0_u32, |sum, count| sum.saturating_add(*count));
        let (mut left, mut room) = (calls, most.saturating_sub(used).max(1));
        while left > 0 {
            let now = left.min(room);
            let count = self.counted.entry(until).or_default();
            *count = count.saturating_add(now);
            left = left.saturating_sub(now);
            room = most.max(1);
            until = until.saturating_add(MINUTE);
        }
        Ok(())
    }

    /// So many calls that were allowed last are not made after all.
    pub fn give_back(&mut self, calls: u32) {
        let mut left = calls;
        for count in self.counted.values_mut().rev() {
            let taken = left.min(*count);
            *count = count.saturating_sub(taken);
            left = left.saturating_sub(taken);
        }
        self.counted.retain(|_, count| *count > 0);
    }

    /// Whether a call had to wait within the last minute.
    #[must_use]
    pub fn were_put_off(&self, now: Duration) -> bool {
        self.put_off.is_some_and(|at| now.saturating_sub(at) < MINUTE)
    }

    /// Whether nothing is left of them.
    #[must_use]
    pub fn are_forgotten(&self, now: Duration) -> bool {
        !self.were_put_off(now) && self.counted.keys().all(|until| *until <= now)
    }
}

/// How much of a quota calls for a purpose may use.
fn usable(most: u32, purpose: Purpose) -> u32 {
    match purpose {
        Purpose::Start => most,
        Purpose::Listing | Purpose::Removal | Purpose::Report => most.saturating_sub(most / KEPT),
    }
    .max(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn call_waits_until_the_minute_has_room() {
        let mut calls = Calls::default();
        for second in [0, 10, 20, 30] {
            assert_eq!(calls.ask(4, Purpose::Start, 1, at(second)), Ok(()));
        }
        assert!(!calls.were_put_off(at(30)));
        assert_eq!(calls.ask(4, Purpose::Start, 1, at(30)), Err(at(30)));
        assert_eq!(calls.ask(4, Purpose::Start, 1, at(59)), Err(at(1)));
        assert!(calls.were_put_off(at(59)));
        assert_eq!(calls.ask(4, Purpose::Start, 1, at(60)), Ok(()));
        assert_eq!(calls.ask(4, Purpose::Start, 1, at(61)), Err(at(9)));
        assert!(calls.were_put_off(at(120)) && !calls.were_put_off(at(121)));
        assert!(!calls.are_forgotten(at(119)) && calls.are_forgotten(at(121)));
    }

    #[test]
    fn quarter_is_kept_for_what_jobs_wait_for() {
        let mut calls = Calls::default();
        for _ in 0..6 {
            assert_eq!(calls.ask(8, Purpose::Listing, 1, at(0)), Ok(()));
        }
        assert_eq!(calls.ask(8, Purpose::Listing, 1, at(0)), Err(at(60)));
        assert_eq!(calls.ask(8, Purpose::Removal, 1, at(0)), Err(at(60)));
        for _ in 0..2 {
            assert_eq!(calls.ask(8, Purpose::Start, 1, at(0)), Ok(()));
        }
        assert_eq!(calls.ask(8, Purpose::Start, 1, at(0)), Err(at(60)));
        assert_eq!(Calls::default().ask(1, Purpose::Listing, 1, at(0)), Ok(()), "a quota of one keeps nothing");
    }

    #[test]
    fn listing_of_more_pages_than_the_quota_is_made_and_counts_for_as_long() {
        let mut calls = Calls::default();
        assert_eq!(calls.ask(5, Purpose::Listing, 12, at(0)), Ok(()));
        let waits = [0, 60, 120].map(|second| calls.wait(5, Purpose::Listing, at(second)).as_secs());
        assert_eq!(waits, [120, 60, 0], "two of twelve count in the third minute");
        calls.give_back(12);
        assert!(calls.are_forgotten(at(0)));
        calls.give_back(1);
    }

    proptest! {
        #[test]
        fn no_namespace_has_more_than_its_quota_in_the_long_run(
            most in 1_u32..20, asked in prop::collection::vec((0_u64..30, 1_u32..40, 0_usize..4), 1..200),
        ) {
            let (mut calls, mut now, mut made, mut largest) = (Calls::default(), Duration::ZERO, 0_u32, 0_u32);
            for (later, count, purpose) in asked {
                now += at(later);
                if calls.ask(most, Purpose::ALL[purpose], count, now).is_ok() {
                    made += count;
                    largest = largest.max(count);
                }
            }
            let minutes = u32::try_from(now.as_secs() / 60).unwrap() + 1;
            prop_assert!(made <= most * (minutes + 1) + largest, "{made} in {minutes} minutes of {most}");
        }

        #[test]
        fn whoever_waits_as_told_may_go(most in 1_u32..20, counts in prop::collection::vec(1_u32..40, 1..20)) {
            let (mut calls, mut now) = (Calls::default(), Duration::ZERO);
            for count in counts {
                if let Err(wait) = calls.ask(most, Purpose::Listing, count, now) {
                    now += wait;
                    prop_assert_eq!(calls.ask(most, Purpose::Listing, count, now), Ok(()));
                }
            }
        }
    }
}
