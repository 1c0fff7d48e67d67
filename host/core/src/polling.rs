//! How long to wait before the next listing of a scope's runners, or of a repository's jobs.
//!
//! Read first: [`Rhythm`] (what is remembered of the listings before), [`Situation`] (what the wait depends on), [`Pace::interval`].

mod rhythm;

use std::time::Duration;

pub use rhythm::{Left, Rhythm};

/// Age beyond which a listing proves nothing.
const MOST_VALID: Duration = Duration::from_secs(1_200);

/// GitHub's primary limit counts by the hour.
const WINDOW: Duration = Duration::from_secs(3600);

/// Bounds of the pace.
#[derive(Clone, Debug, PartialEq)]
pub struct Pace {
    /// First interval when someone waits for something.
    pub fast: Duration,
    /// How much longer the interval is for each second of waiting: at 0.5 each is half as long again as the one before. Whoever goes on waiting
    /// has the slow interval after a minute, and costs nothing more from then on.
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
    /// The same for all listings with these credentials together, while nobody waits: what events tell needs no listing, and hundreds of
    /// repositories that do nothing leave GitHub's limits to those that work. Listings of runners and of jobs at rest together are fewer than sixty
    /// in a minute.
    pub per_idle_page: Duration,
    /// Longest interval that pages impose.
    pub rarest: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            fast: Duration::from_secs(1),
            growth: 0.5,
            slow: Duration::from_secs(30),
            longest: Duration::from_secs(300),
            share: 0.25,
            per_page: Duration::from_millis(200),
            per_idle_page: Duration::from_millis(1_800),
            // A listing is still valid when the next one comes.
            rarest: Duration::from_secs(900),
        }
    }
}

/// What the next interval depends on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Situation {
    /// How long whoever began last to wait for something had waited when the last listing started; none when nobody waits.
    pub waited: Option<Duration>,
    /// Failed listings since the last good one.
    pub failures: u32,
    /// Time that GitHub told us to wait, from the start of the last listing on.
    pub imposed: Option<Duration>,
    /// Pages of the last listing, and of the others that take turns with it where these do.
    pub pages: u32,
    /// Pages of all listings with the same credentials, this one included: they share the secondary limit when nobody waits.
    pub all_pages: u32,
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
    /// The pace of listings of jobs, which keep to a share of their own: a quarter of the primary limit, and 400 points a minute of the secondary
    /// one. Together both leave GitHub's limits to others for the most part.
    #[must_use]
    pub fn queues() -> Self {
        Self {
            per_page: Duration::from_millis(150),
            per_idle_page: Duration::from_millis(2_400),
            // Five hundred repositories at rest, at three calls each.
            rarest: Duration::from_secs(3_600),
            ..Self::default()
        }
    }

    /// Time from the start of the last listing to the start of the next.
    ///
    /// Never below [`Pace::fast`]. GitHub's own waits count in full. Failures impose [`Pace::longest`] at the most, pages
    /// [`Pace::rarest`], and a small budget the time until its reset.
    #[must_use]
    pub fn interval(&self, situation: &Situation) -> Duration {
        let pages = |count| self.per_page.saturating_mul(count).min(self.rarest);
        let slow = self.slow.max(self.per_idle_page.saturating_mul(situation.all_pages).min(self.rarest));
        let wanted = situation.waited.map_or(slow, |waited| self.after(waited).min(slow));
        let patience = match situation.failures {
            0 => Duration::ZERO,
            failures => self.doubled(failures).min(self.longest),
        };
        let imposed = situation.imposed.unwrap_or_default();
        let burst = situation.waited.is_some() && wanted < self.slow;
        wanted.max(patience).max(pages(situation.pages)).max(self.affordable(situation, burst)).max(imposed).max(self.fast)
    }

    /// For how long a listing proves anything when the next one is due after `interval`: one that failed may lie between them.
    ///
    /// Four times the slowest regular interval, and twice the one in force where budget or pages have made that longer: with fixed bounds a
    /// scope that is listed rarely would never have a valid listing, and none of its runners could be removed. Beyond twenty minutes
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

    /// The interval for somebody who has waited so long.
    fn after(&self, waited: Duration) -> Duration {
        let more = waited.as_secs_f64() * self.growth.max(0.0);
        self.fast.saturating_add(Duration::try_from_secs_f64(more).unwrap_or(Duration::MAX))
    }

    fn doubled(&self, times: u32) -> Duration {
        self.fast.saturating_mul(1 << times.min(30))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn seconds(situation: &Situation) -> f64 {
        Pace::default().interval(situation).as_secs_f64()
    }

    #[test]
    fn interval_grows_with_the_wait_to_the_slow_one() {
        let waited = |seconds| Situation { waited: Some(Duration::from_secs(seconds)), ..Situation::default() };
        assert_eq!([0, 1, 2, 10, 57, 58, 100_000].map(|wait| seconds(&waited(wait))), [1.0, 1.5, 2.0, 6.0, 29.5, 30.0, 30.0]);
        assert_eq!(seconds(&Situation::default()), 30.0);
        let (mut at, mut listings) = (0.0, 0);
        while at < 60.0 {
            at += seconds(&Situation { waited: Some(Duration::from_secs_f64(at)), ..Situation::default() });
            listings += 1;
        }
        assert_eq!(listings, 9, "in the first minute, and two in each one after that");
    }

    #[test]
    fn scopes_share_the_secondary_limit_while_nobody_waits() {
        let all = |all_pages, waited| Situation { pages: 1, all_pages, waited, ..Situation::default() };
        assert_eq!([1, 150, 500, 5_000].map(|count| seconds(&all(count, None))), [30.0, 270.0, 900.0, 900.0]);
        assert_eq!(seconds(&all(500, Some(Duration::ZERO))), 1.0, "somebody waits here");
        assert_eq!(seconds(&all(500, Some(Duration::from_secs(600)))), 301.0, "somebody has waited for ten minutes");
        let calls = |pace: Pace, pages: u32, scopes: u32| {
            let situation = Situation { pages: 1, all_pages: pages * scopes, ..Situation::default() };
            60.0 * f64::from(pages * scopes) / pace.interval(&situation).as_secs_f64()
        };
        for scopes in [1, 20, 100, 500] {
            let calls = calls(Pace::default(), 1, scopes) + calls(Pace { slow: MINUTE, ..Pace::queues() }, 3, scopes);
            assert!(calls < 60.0, "{calls} calls a minute for {scopes} repositories at rest");
        }
    }

    #[test]
    fn failures_and_imposed_waits_come_first() {
        let failing = |failures| Situation { waited: Some(Duration::ZERO), failures, ..Situation::default() };
        assert_eq!([0, 1, 3, 9, 1_000].map(|failures| seconds(&failing(failures))), [1.0, 2.0, 8.0, 300.0, 300.0]);
        let imposed = Situation { imposed: Some(Duration::from_secs(1_800)), ..failing(1) };
        assert_eq!(seconds(&imposed), 1_800.0);
    }

    #[test]
    fn a_share_of_the_budget_is_enough() {
        let hour = Duration::from_secs(3_600);
        let busy = |remaining, paid, pollers| Situation {
            waited: Some(Duration::ZERO),
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
        let burst = |spare, waited| Situation {
            waited,
            paid: 10.0,
            pages: 10,
            pollers: 2,
            spare,
            budget: Some((5_000, Duration::from_secs(3_600))),
            ..Situation::default()
        };
        assert_eq!(seconds(&burst(2_500, Some(Duration::ZERO))), 2.0, "ten pages take two seconds");
        assert!(seconds(&burst(19, Some(Duration::ZERO))) > 28.0, "two scopes of ten pages need twenty");
        assert!(seconds(&burst(2_500, None)) > 28.0, "nobody waits");
        assert!(seconds(&Situation { paid: 20.0, ..burst(2_500, Some(Duration::from_secs(90))) }) > 57.0, "the burst is over");
    }

    #[test]
    fn a_window_longer_than_an_hour_is_a_wrong_clock() {
        let years = Situation { paid: 10.0, budget: Some((5_000, Duration::from_secs(1 << 40))), ..Situation::default() };
        assert!(seconds(&years) < 60.0);
    }

    #[test]
    fn listing_is_valid_for_longer_when_the_next_one_is_due_later() {
        let validity = |seconds| Pace::default().validity(Duration::from_secs(seconds)).as_secs();
        assert_eq!([1, 30, 60, 61, 200, 3_600].map(validity), [120, 120, 120, 122, 400, 1_200]);
    }

    #[test]
    fn many_pages_are_not_asked_for_every_second() {
        let pages = |pages| Situation { waited: Some(Duration::ZERO), pages, ..Situation::default() };
        assert_eq!([1, 5, 10, 100].map(|count| seconds(&pages(count))), [1.0, 1.0, 2.0, 20.0]);
    }

    proptest! {
        #[test]
        fn listings_never_spend_more_than_their_share(
            remaining in 0_u32..20_000,
            reset in 1_u64..3_600,
            paid in 1_u32..100,
            waited in proptest::option::of(0_u64..100),
            failures in 0_u32..10,
        ) {
            let pace = Pace::default();
            let reset = Duration::from_secs(reset);
            let situation = Situation {
                waited: waited.map(Duration::from_secs),
                failures,
                paid: f64::from(paid),
                pages: paid,
                pollers: 1,
                budget: Some((remaining, reset)),
                ..Situation::default()
            };
            let interval = pace.interval(&situation);
            prop_assert!(interval >= pace.fast);
            prop_assert!(interval <= pace.longest.max(reset).max(pace.rarest));
            let listings = (reset.as_secs_f64() / interval.as_secs_f64()).floor();
            let spent = listings * f64::from(paid);
            // One listing right at the reset is paid from the next window.
            prop_assert!(spent <= f64::from(remaining) * pace.share + f64::from(paid), "{spent} of {remaining}");
        }

        #[test]
        fn no_situation_makes_it_panic(
            waited in proptest::option::of(any::<Duration>()), failures in any::<u32>(), pages in any::<u32>(),
            paid in any::<f64>().prop_filter("a number", |it| it.is_finite()),
            imposed in proptest::option::of(any::<Duration>()), budget in proptest::option::of(any::<(u32, u32)>()), pollers in any::<u32>(),
        ) {
            let budget = budget.map(|(left, seconds)| (left, Duration::from_secs(seconds.into())));
            let situation = Situation { waited, failures, imposed, pages, all_pages: pages, paid, budget, spare: 0, pollers };
            prop_assert!(Pace::default().interval(&situation) >= Pace::default().fast);
        }
    }
}
