//! When an autoscaler sends its number to the target.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// A number is lowered at most this often: nothing waits for it, since runners that finished are not replaced meanwhile. One that is lower
/// and yet more than there are is not held up: a job waits for the difference.
pub const LOWER_PACE: Duration = Duration::from_secs(1);

/// What an autoscaler knows when it has made its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    /// The number that the autoscaler has decided on.
    pub desired: u32,
    /// The number that the target has.
    pub current: u32,
    /// Runners that exist and have not ended; none while nobody has counted them.
    pub live: Option<u32>,
    /// Finished runners that the target's number still includes.
    pub unaccounted: u64,
    /// This number was sent already, and the target has not changed since.
    pub sent: bool,
    /// The number that was sent last accounts for all runners that have finished.
    pub accounted: bool,
    /// How long ago a number was sent.
    pub since_last: Option<Duration>,
}

/// What to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    /// Send nothing: the target has the number, or it was sent already.
    Settled,
    /// Nothing yet; decide again after this.
    Later(Duration),
    /// Send the number now.
    Now,
}

impl Number {
    /// Decides. A number that the target has already is sent again where it lacks runners because of those that finished: only that tells the
    /// RunnerReplicaSets to replace them.
    #[must_use]
    pub fn sending(&self) -> Sending {
        let pause = self.since_last.and_then(|since| LOWER_PACE.checked_sub(since)).filter(|left| !left.is_zero());
        let short = self.live.is_some_and(|live| live < self.desired) && self.unaccounted > 0;
        // The RunnerReplicaSets count anew a moment after it was sent.
        let under_way = pause.filter(|_| short && self.accounted);
        let short = short && under_way.is_none();
        match (under_way, pause) {
            (wait, _) if (self.current == self.desired && !short) || self.sent => wait.map_or(Sending::Settled, Sending::Later),
            (_, Some(pause)) if self.desired < self.current && !short => Sending::Later(pause),
            _ => Sending::Now,
        }
    }
}

/// The `effectiveTime` of a number that is sent now, in whole seconds as the field has them, and always later than the one before: a
/// RunnerReplicaSet sees by it that the number is new.
#[must_use]
pub fn effective_time(before: Option<Timestamp>, now: Timestamp) -> Timestamp {
    let second = Timestamp::from_second(now.as_second()).unwrap_or(now);
    match before {
        Some(before) if before >= second => before.checked_add(SignedDuration::from_secs(1)).unwrap_or(before),
        _ => second,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_is_sent_when_it_differs_or_runners_have_to_be_replaced() {
        let settled = Number {
            desired: 3,
            current: 3,
            live: Some(3),
            unaccounted: 0,
            sent: false,
            accounted: true,
            since_last: Some(Duration::from_millis(400)),
        };
        let left = Sending::Later(Duration::from_millis(600));
        for (what, number, expected) in [
            ("the same", settled, Sending::Settled),
            ("higher", Number { desired: 4, ..settled }, Sending::Now),
            ("higher and sent", Number { desired: 4, sent: true, ..settled }, Sending::Settled),
            ("lower too soon", Number { desired: 2, ..settled }, left),
            ("lower in time", Number { desired: 2, since_last: Some(LOWER_PACE), ..settled }, Sending::Now),
            ("lower for the first time", Number { desired: 2, since_last: None, ..settled }, Sending::Now),
            ("one finished", Number { live: Some(2), unaccounted: 1, accounted: false, ..settled }, Sending::Now),
            ("one finished, accounted for just now", Number { live: Some(2), unaccounted: 1, ..settled }, left),
            ("one missing, none finished", Number { live: Some(2), ..settled }, Sending::Settled),
            ("not counted", Number { live: None, unaccounted: 1, accounted: false, ..settled }, Sending::Settled),
            (
                "lower and yet more than there are",
                Number { desired: 2, live: Some(1), unaccounted: 1, accounted: false, ..settled },
                Sending::Now,
            ),
        ] {
            assert_eq!(number.sending(), expected, "{what}");
        }
    }

    #[test]
    fn effective_time_is_later_than_the_one_before() {
        let at = |second: i64, millis: i32| Timestamp::new(1_000_000 + second, millis * 1_000_000).unwrap();
        for (before, now, expected) in [
            (None, at(5, 700), at(5, 0)),
            (Some(at(4, 0)), at(5, 700), at(5, 0)),
            (Some(at(5, 0)), at(5, 700), at(6, 0)),
            (Some(at(9, 0)), at(5, 700), at(10, 0)),
        ] {
            assert_eq!(effective_time(before, now), expected, "{before:?} {now}");
        }
    }
}
