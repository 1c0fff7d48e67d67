//! What a poller remembers of its past to find its next interval.

use std::time::{Duration, Instant};

use super::Situation;

/// Weight of the last listing in the average of charged calls.
const RECENT: f64 = 0.5;
/// Average below which listings count as free: a change long ago must not slow us down for ever.
const FREE: f64 = 0.05;

/// How long the interval grows for somebody who asked once. Whoever still waits then looks at each listing and asks again.
const FADES: Duration = Duration::from_secs(60);

/// What GitHub still lets one set of credentials ask within this hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Calls per window.
    pub limit: u32,
    /// Calls left in this window.
    pub remaining: u32,
    /// Time left in the window.
    pub resets_in: Duration,
}

/// The past of one poller, as far as its pace depends on it.
#[derive(Clone, Debug, Default)]
pub struct Rhythm {
    /// When whoever began last to wait for something did.
    waiting_since: Option<Instant>,
    /// When somebody asked last.
    asked: Option<Instant>,
    /// When the last listing started.
    started: Option<Instant>,
    failures: u32,
    imposed: Option<Duration>,
    pages: u32,
    paid: f64,
}

impl Rhythm {
    /// Somebody asks who has waited since then for something.
    pub fn hurry(&mut self, since: Instant, now: Instant) {
        self.waiting_since = self.waiting_since.max(Some(since));
        self.asked = Some(now);
    }

    /// A listing is about to start. Nobody waits any more when nobody has asked since the last one, and the interval has grown for long enough.
    pub fn begin(&mut self, now: Instant) {
        let faded = self.waiting_since.is_some_and(|since| now.saturating_duration_since(since) >= FADES);
        if faded && self.asked < self.started {
            self.waiting_since = None;
        }
        self.started = Some(now);
    }

    /// A listing has to wait for its turn, until `imposed` after its start.
    pub fn defer(&mut self, imposed: Duration) {
        self.imposed = Some(imposed);
    }

    /// It has to wait no longer.
    pub fn resume(&mut self) {
        self.imposed = None;
    }

    /// A listing succeeded with `pages` calls, `paid` of them charged. Gives the failures before it.
    pub fn succeed(&mut self, pages: u32, paid: u32) -> u32 {
        self.imposed = None;
        self.pages = pages;
        self.paid = self.paid * (1.0 - RECENT) + f64::from(paid) * RECENT;
        if self.paid < FREE {
            self.paid = 0.0;
        }
        std::mem::take(&mut self.failures)
    }

    /// A listing failed, and GitHub told us to wait until `imposed` after its start. Gives the failures since the last good one.
    pub fn fail(&mut self, imposed: Option<Duration>) -> u32 {
        self.imposed = imposed;
        self.failures = self.failures.saturating_add(1);
        self.failures
    }

    /// The situation now; `pollers` share the budget, this one included.
    #[must_use]
    pub fn situation(&self, left: Option<Left>, pollers: u32) -> Situation {
        let waited =
            self.waiting_since.map(|since| self.started.map_or(Duration::ZERO, |at| at.saturating_duration_since(since)));
        Situation {
            waited,
            failures: self.failures,
            imposed: self.imposed,
            pages: self.pages,
            all_pages: self.pages,
            paid: self.paid,
            spare: left.map_or(0, |left| left.remaining.saturating_sub(left.limit / 2)),
            budget: left.map(|left| (left.remaining, left.resets_in)),
            pollers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::polling::Pace;

    /// Hundreds of scopes at rest share these credentials, so that each is listed every quarter of an hour.
    fn interval(rhythm: &Rhythm) -> Duration {
        Pace::default().interval(&Situation { all_pages: 500, ..rhythm.situation(None, 500) })
    }

    #[test]
    fn interval_is_that_of_a_scope_at_rest_a_minute_after_the_last_wait() {
        let (mut rhythm, mut now) = (Rhythm::default(), Instant::now());
        rhythm.begin(now);
        assert_eq!(interval(&rhythm).as_secs(), 900);
        rhythm.hurry(now, now);
        let mut intervals = Vec::new();
        while intervals.last() != Some(&900) {
            now += interval(&rhythm);
            rhythm.begin(now);
            intervals.push(interval(&rhythm).as_secs());
        }
        assert_eq!(intervals, [1, 2, 3, 5, 7, 11, 17, 25, 900]);
    }

    #[test]
    fn whoever_still_waits_and_asks_is_waited_for() {
        let (mut rhythm, began) = (Rhythm::default(), Instant::now());
        rhythm.hurry(began, began);
        for round in 1..30_u64 {
            let now = began + Duration::from_secs(100 * round);
            rhythm.begin(now);
            assert_eq!(interval(&rhythm).as_secs(), 900.min(1 + 50 * round), "round {round}");
            rhythm.hurry(began, now + Duration::from_secs(1));
        }
    }
}
