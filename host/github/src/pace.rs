//! How long to wait before the next listing of a scope: a pure function.

mod rhythm;

use std::time::Duration;

pub(crate) use rhythm::Rhythm;

/// Age beyond which a listing proves nothing.
const MOST_VALID: Duration = Duration::from_secs(900);

/// GitHub's primary limit counts by the hour.
const WINDOW: Duration = Duration::from_secs(3600);

/// Bounds of the pace.
#[derive(Clone, Debug, PartialEq)]
pub struct Pace {
    /// First interval after someone asked for haste.
    pub fast: Duration,
    /// Factor by which the interval grows with each listing after that, above 1.
    pub growth: f64,
    /// Interval when nobody waits for anything.
    pub slow: Duration,
    /// Longest interval after repeated failures.
    pub longest: Duration,
    /// Part of the remaining budget that all listings of these credentials may spend until its reset, 0 to 1.
    pub share: f64,
    /// Least time per page of a listing. Unchanged pages are free in the primary limit, but GitHub's secondary limit counts
    /// 900 points a minute for them all the same; a fifth of a second uses a third of it.
    pub per_page: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            fast: Duration::from_secs(1),
            growth: 1.5,
            slow: Duration::from_secs(30),
            longest: Duration::from_secs(300),
            share: 0.25,
            per_page: Duration::from_millis(200),
        }
    }
}

/// What the next interval depends on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Situation {
    /// Listings started since someone last asked for haste; none when nobody did.
    pub since_haste: Option<u32>,
    /// Failed listings since the last good one.
    pub failures: u32,
    /// Time that GitHub told us to wait, from the start of the last listing on.
    pub imposed: Option<Duration>,
    /// Pages of the last listing, and of the others that take turns with it where these do.
    pub pages: u32,
    /// Charged calls per listing, as an average over the last few.
    pub paid: f64,
    /// Budget left and time until its reset; none where there is no limit.
    pub budget: Option<(u32, Duration)>,
    /// Calls left above half of the limit.
    pub spare: u32,
    /// Scopes listed with the same budget, this one included.
    pub pollers: u32,
}

impl Pace {
    /// The pace of listings of jobs, which are as many again as those of runners and keep to a share of their own: a quarter of
    /// the primary limit, and 400 points a minute of the secondary one. Together both leave GitHub's limits to others for the most part.
    #[must_use]
    pub fn queues() -> Self {
        Self { per_page: Duration::from_millis(150), ..Self::default() }
    }

    /// Time from the start of the last listing to the start of the next.
    ///
    /// Never below [`Pace::fast`]. GitHub's own waits count in full; everything else ends at [`Pace::longest`] or at the reset of
    /// the budget, whichever is later.
    #[must_use]
    pub fn interval(&self, situation: &Situation) -> Duration {
        let wanted = match situation.since_haste {
            Some(listings) => self.grown(self.growth, listings).min(self.slow),
            None => self.slow,
        };
        let patience = match situation.failures {
            0 => Duration::ZERO,
            failures => self.grown(2.0, failures).min(self.longest),
        };
        let pages = self.per_page.saturating_mul(situation.pages).min(self.longest);
        let imposed = situation.imposed.unwrap_or_default();
        let burst = situation.since_haste.is_some() && wanted < self.slow;
        wanted.max(patience).max(pages).max(self.affordable(situation, burst)).max(imposed).max(self.fast)
    }

    /// For how long a listing proves anything when the next one is due after `interval`: one that failed may lie between them.
    ///
    /// Four times the slowest regular interval, and twice the one in force where budget or pages have made that longer: with fixed bounds a
    /// scope that is listed rarely would never have a valid listing, and none of its runners could be removed. Beyond a quarter of an hour
    /// nothing is proved, however rare the listings are.
    #[must_use]
    pub fn validity(&self, interval: Duration) -> Duration {
        interval.saturating_mul(2).min(MOST_VALID).max(self.slow.saturating_mul(4))
    }

    /// The interval at which listings spend no more than their share of the budget until it resets.
    fn affordable(&self, situation: &Situation, burst: bool) -> Duration {
        let Some((remaining, reset)) = situation.budget else { return Duration::ZERO };
        // A burst may use the upper half of the limit: a thousand runners that come online change ten pages each time.
        if burst && f64::from(situation.spare) >= situation.paid * f64::from(situation.pollers.max(1)) {
            return Duration::ZERO;
        }
        // A window is an hour; a clock that says otherwise is wrong.
        let reset = reset.min(WINDOW);
        if situation.paid <= 0.0 || reset.is_zero() {
            return Duration::ZERO;
        }
        let calls = f64::from(remaining) * self.share / f64::from(situation.pollers.max(1));
        if calls < situation.paid {
            return reset;
        }
        reset.mul_f64(situation.paid / calls)
    }

    fn grown(&self, factor: f64, steps: u32) -> Duration {
        // Beyond 64 steps every factor that is worth having has passed every bound.
        let steps = i32::try_from(steps.min(64)).unwrap_or(64);
        let seconds = self.fast.as_secs_f64() * factor.max(1.0).powi(steps);
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seconds(situation: &Situation) -> f64 {
        Pace::default().interval(situation).as_secs_f64()
    }

    #[test]
    fn interval_grows_to_the_slow_one_when_haste_is_over() {
        let mut at = 0.0;
        let mut last = 0.0;
        for listings in 0..20 {
            let interval = seconds(&Situation { since_haste: Some(listings), ..Situation::default() });
            assert!(interval >= last, "{listings}");
            (last, at) = (interval, at + interval);
        }
        assert_eq!(seconds(&Situation { since_haste: Some(0), ..Situation::default() }), 1.0);
        assert_eq!(seconds(&Situation { since_haste: Some(2), ..Situation::default() }), 2.25);
        assert_eq!(last, 30.0);
        assert_eq!(seconds(&Situation::default()), 30.0);
    }

    #[test]
    fn failures_and_imposed_waits_come_first() {
        let failing = |failures| Situation { since_haste: Some(0), failures, ..Situation::default() };
        assert_eq!([0, 1, 3, 9, 1_000].map(|failures| seconds(&failing(failures))), [1.0, 2.0, 8.0, 300.0, 300.0]);
        let imposed = Situation { imposed: Some(Duration::from_secs(1_800)), ..failing(1) };
        assert_eq!(seconds(&imposed), 1_800.0);
    }

    #[test]
    fn a_share_of_the_budget_is_enough() {
        let hour = Duration::from_secs(3_600);
        let busy = |remaining, paid, pollers| Situation {
            since_haste: Some(0),
            paid,
            pollers,
            pages: 1,
            budget: Some((remaining, hour)),
            ..Situation::default()
        };
        assert_eq!(seconds(&busy(5_000, 0.0, 1)), 1.0, "unchanged pages are free");
        assert_eq!(seconds(&busy(5_000, 1.0, 1)), 3_600.0 / 1_250.0);
        assert_eq!(seconds(&busy(5_000, 10.0, 1)), 28.8);
        assert_eq!(seconds(&busy(5_000, 1.0, 10)), 28.8);
        assert_eq!(seconds(&busy(0, 1.0, 1)), 3_600.0);
    }

    #[test]
    fn a_burst_may_use_the_upper_half_of_the_limit() {
        let burst = |spare, since_haste| Situation {
            since_haste,
            paid: 10.0,
            pages: 10,
            pollers: 2,
            spare,
            budget: Some((5_000, Duration::from_secs(3_600))),
            ..Situation::default()
        };
        assert_eq!(seconds(&burst(2_500, Some(0))), 2.0, "ten pages take two seconds");
        assert!(seconds(&burst(19, Some(0))) > 28.0, "two scopes of ten pages need twenty");
        assert!(seconds(&burst(2_500, None)) > 28.0, "nobody waits");
        assert!(seconds(&Situation { paid: 20.0, ..burst(2_500, Some(9)) }) > 57.0, "the burst is over");
    }

    #[test]
    fn a_window_longer_than_an_hour_is_a_wrong_clock() {
        let years = Situation { paid: 10.0, budget: Some((5_000, Duration::from_secs(1 << 40))), ..Situation::default() };
        assert!(seconds(&years) < 60.0);
    }

    #[test]
    fn listing_is_valid_for_longer_when_the_next_one_is_due_later() {
        let validity = |seconds| Pace::default().validity(Duration::from_secs(seconds)).as_secs();
        assert_eq!([1, 30, 60, 61, 200, 3_600].map(validity), [120, 120, 120, 122, 400, 900]);
    }

    #[test]
    fn many_pages_are_not_asked_for_every_second() {
        let pages = |pages| Situation { since_haste: Some(0), pages, ..Situation::default() };
        assert_eq!([1, 5, 10, 100].map(|count| seconds(&pages(count))), [1.0, 1.0, 2.0, 20.0]);
    }

    proptest! {
        #[test]
        fn listings_never_spend_more_than_their_share(
            remaining in 0_u32..20_000,
            reset in 1_u64..3_600,
            paid in 1_u32..100,
            haste in proptest::option::of(0_u32..20),
            failures in 0_u32..10,
        ) {
            let pace = Pace::default();
            let reset = Duration::from_secs(reset);
            let situation = Situation {
                since_haste: haste,
                failures,
                paid: f64::from(paid),
                pages: paid,
                pollers: 1,
                budget: Some((remaining, reset)),
                ..Situation::default()
            };
            let interval = pace.interval(&situation);
            prop_assert!(interval >= pace.fast);
            prop_assert!(interval <= pace.longest.max(reset));
            let listings = (reset.as_secs_f64() / interval.as_secs_f64()).floor();
            let spent = listings * f64::from(paid);
            // One listing right at the reset is paid from the next window.
            prop_assert!(spent <= f64::from(remaining) * pace.share + f64::from(paid), "{spent} of {remaining}");
        }

        #[test]
        fn no_situation_makes_it_panic(
            since_haste in proptest::option::of(any::<u32>()), failures in any::<u32>(), pages in any::<u32>(),
            paid in any::<f64>().prop_filter("a number", |it| it.is_finite()),
            imposed in proptest::option::of(any::<Duration>()), budget in proptest::option::of(any::<(u32, u32)>()), pollers in any::<u32>(),
        ) {
            let budget = budget.map(|(left, seconds)| (left, Duration::from_secs(seconds.into())));
            let situation = Situation { since_haste, failures, imposed, pages, paid, budget, spare: 0, pollers };
            prop_assert!(Pace::default().interval(&situation) >= Pace::default().fast);
        }
    }
}
