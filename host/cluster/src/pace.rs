//! How often an object is reconciled.

use std::time::{Duration, Instant};

/// Reconciles that may follow each other without a pause: a single change passes through several objects, each of which may have been
/// reconciled just before, and a job waits for the sum.
const AT_ONCE: u32 = 3;

/// When an object was reconciled, as far as that delays the next time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passes {
    /// When the reconciles so far are used up, at one in each interval.
    used_until: Option<Instant>,
}

impl Passes {
    /// How long to wait before the next reconcile; none starts one. `interval` is the time between two while changes go on and on.
    pub fn too_soon(&mut self, interval: Duration, now: Instant) -> Option<Duration> {
        let used = self.used_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        let wait = used.saturating_sub(interval * (AT_ONCE - 1));
        if wait.is_zero() {
            self.used_until = now.checked_add(used + interval);
            return None;
        }
        Some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Duration = Duration::from_millis(100);

    #[test]
    fn first_reconciles_are_free_and_the_rest_keep_the_pace() {
        let began = Instant::now();
        let mut passes = Passes::default();
        let mut now = began;
        let mut starts = Vec::new();
        while starts.len() < 10 {
            match passes.too_soon(PACE, now) {
                Some(wait) => now += wait,
                None => starts.push((now - began).as_millis()),
            }
        }
        assert_eq!(starts, [0, 0, 0, 100, 200, 300, 400, 500, 600, 700]);
        now += PACE * AT_ONCE;
        let again: Vec<_> = (0..4).map(|_| passes.too_soon(PACE, now)).collect();
        assert_eq!(again, [None, None, None, Some(PACE)]);
    }
}
