//! When an autoscaler sends its number to the target.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::backoff;

/// A number is lowered at most this often: nothing waits for it, since runners that finished are not replaced meanwhile. One that is lower
/// and yet more than there are is not held up: a job waits for the difference.
pub const LOWER_PACE: Duration = Duration::from_secs(1);

/// How long a number that was sent for finished runners may take to reach the RunnerReplicaSets that replace them, before it is sent again. Where it
/// never does, as an admission policy refuses to change them, each try is refused as well: this doubles with each.
const REPETITION: Duration = Duration::from_secs(1);

/// Longest time between two such tries. A number that got lost is sent again well before the RunnerReplicaSet waits no longer for it
/// ([`UNACCEPTED`](crate::replacement::UNACCEPTED)).
const REPETITION_MAX: Duration = Duration::from_secs(15);

/// A number that was sent to the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentNumber {
    /// The number.
    pub desired: u32,
    /// How many runners had finished by then.
    pub finished: u64,
    /// How often it was sent for these, one time after the other.
    times: u32,
}

impl SentNumber {
    /// A number that is sent after the one before, if any.
    #[must_use]
    pub fn new(before: Option<&Self>, desired: u32, finished: u64) -> Self {
        let times = before.map_or(0, |before| before.times_for(desired, finished));
        Self { desired, finished, times: times.saturating_add(1) }
    }

    /// How often this number was sent while so many runners had finished.
    fn times_for(&self, desired: u32, finished: u64) -> u32 {
        if (self.desired, self.finished) == (desired, finished) { self.times } else { 0 }
    }

    /// How long it may take to have an effect.
    fn patience(&self) -> Duration {
        backoff::doubled(REPETITION, REPETITION_MAX, self.times)
    }
}

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
    /// How many runners have finished.
    pub finished: u64,
    /// The number that was sent last; none before the first.
    pub last: Option<SentNumber>,
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
    /// RunnerReplicaSets to replace them. It is sent at once for runners that finished since, and again and again, ever more rarely, for the same ones.
    #[must_use]
    pub fn sending(&self) -> Sending {
        let left = |pause: Duration| self.since_last.and_then(|since| pause.checked_sub(since)).filter(|left| !left.is_zero());
        let pause = left(LOWER_PACE);
        let short = self.live.is_some_and(|live| live < self.desired) && self.unaccounted > 0;
        // The RunnerReplicaSets count anew a moment after it was sent.
        let under_way = self.patience().filter(|_| short).and_then(left);
        let short = short && under_way.is_none();
        match (under_way, pause) {
            (wait, _) if (self.current == self.desired && !short) || self.sent => wait.map_or(Sending::Settled, Sending::Later),
            (_, Some(pause)) if self.desired < self.current && !short => Sending::Later(pause),
            _ => Sending::Now,
        }
    }

    /// How long the number that was sent last may take to have an effect; none where runners finished that it does not account for.
    fn patience(&self) -> Option<Duration> {
        let last = self.last.filter(|last| last.finished == self.finished)?;
        // Another number is not a repetition.
        Some(if last.desired == self.desired { last.patience() } else { REPETITION })
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
    use crate::replacement::UNACCEPTED;

    fn sent(desired: u32, finished: u64, times: u32) -> Option<SentNumber> {
        Some(SentNumber { desired, finished, times })
    }

    #[test]
    fn number_is_sent_when_it_differs_or_runners_have_to_be_replaced() {
        let settled = Number {
            desired: 3,
            current: 3,
            live: Some(3),
            unaccounted: 0,
            sent: false,
            finished: 5,
            last: sent(3, 5, 1),
            since_last: Some(Duration::from_millis(400)),
        };
        let left = Sending::Later(Duration::from_millis(600));
        let ago = |seconds| Some(Duration::from_secs(seconds));
        let later = |seconds| Sending::Later(Duration::from_secs(seconds));
        let short = Number { live: Some(2), unaccounted: 1, ..settled };
        for (what, number, expected) in [
            ("the same", settled, Sending::Settled),
            ("higher", Number { desired: 4, ..settled }, Sending::Now),
            ("higher and sent", Number { desired: 4, sent: true, ..settled }, Sending::Settled),
            ("lower too soon", Number { desired: 2, ..settled }, left),
            ("lower in time", Number { desired: 2, since_last: Some(LOWER_PACE), ..settled }, Sending::Now),
            ("lower for the first time", Number { desired: 2, since_last: None, ..settled }, Sending::Now),
            ("one finished", Number { finished: 6, ..short }, Sending::Now),
            ("one finished, accounted for just now", short, left),
            ("one finished, accounted for a second ago", Number { since_last: ago(1), ..short }, Sending::Now),
            ("one finished, nothing sent yet", Number { last: None, since_last: None, ..short }, Sending::Now),
            ("sent twice for it", Number { last: sent(3, 5, 2), ..short }, Sending::Later(Duration::from_millis(1_600))),
            ("sent twice for it, a while ago", Number { last: sent(3, 5, 2), since_last: ago(2), ..short }, Sending::Now),
            ("sent four times for it", Number { last: sent(3, 5, 4), since_last: ago(3), ..short }, later(5)),
            ("sent five times for it", Number { last: sent(3, 5, 5), since_last: ago(3), ..short }, later(12)),
            ("sent very often for it", Number { last: sent(3, 5, u32::MAX), since_last: ago(3), ..short }, later(12)),
            (
                "sent very often for it, long ago",
                Number { last: sent(3, 5, u32::MAX), since_last: ago(15), ..short },
                Sending::Now,
            ),
            ("one more finished", Number { finished: 6, last: sent(3, 5, 9), ..short }, Sending::Now),
            ("another number was sent for it", Number { last: sent(4, 5, 9), since_last: ago(1), ..short }, Sending::Now),
            ("higher, sent often for it", Number { desired: 4, last: sent(3, 5, 9), ..short }, Sending::Now),
            ("lower, sent often for it", Number { current: 4, last: sent(3, 5, 9), ..short }, left),
            (
                "lower in time, sent often for it",
                Number { current: 4, last: sent(3, 5, 9), since_last: ago(1), ..short },
                Sending::Now,
            ),
            ("one missing, none finished", Number { live: Some(2), ..settled }, Sending::Settled),
            ("not counted", Number { live: None, unaccounted: 1, finished: 6, ..settled }, Sending::Settled),
            (
                "lower and yet more than there are",
                Number { desired: 2, live: Some(1), unaccounted: 1, finished: 6, ..settled },
                Sending::Now,
            ),
        ] {
            assert_eq!(number.sending(), expected, "{what}");
        }
    }

    #[test]
    fn number_that_has_no_effect_is_sent_ever_more_rarely_until_one_more_finishes() {
        // The target takes each number, and its RunnerReplicaSet is not changed. One more runner finishes in second 20.
        let (mut last, mut at, mut sendings) = (None, 0_u64, Vec::new());
        for second in 0..90_u64 {
            let finished = if second < 20 { 1 } else { 2 };
            let since_last = last.map(|_| Duration::from_secs(second - at));
            let number =
                Number { desired: 3, current: 3, live: Some(2), unaccounted: finished, sent: false, finished, last, since_last };
            match number.sending() {
                Sending::Now => {
                    (last, at) = (Some(SentNumber::new(last.as_ref(), 3, finished)), second);
                    sendings.push(second);
                }
                Sending::Later(wait) => assert!(wait <= REPETITION_MAX, "{wait:?}"),
                Sending::Settled => panic!("it lacks runners in second {second}"),
            }
        }
        assert_eq!(sendings, [0, 1, 3, 7, 15, 20, 21, 23, 27, 35, 50, 65, 80]);
        assert!(REPETITION_MAX * 2 <= UNACCEPTED, "a number that got lost is sent again before");
    }

    #[test]
    fn repetitions_are_those_of_the_same_number_for_the_same_finished_runners() {
        let first = SentNumber::new(None, 3, 5);
        let second = SentNumber::new(Some(&first), 3, 5);
        assert_eq!((Some(first), Some(second)), (sent(3, 5, 1), sent(3, 5, 2)));
        assert_eq!(Some(SentNumber::new(Some(&second), 4, 5)), sent(4, 5, 1));
        assert_eq!(Some(SentNumber::new(Some(&second), 3, 6)), sent(3, 6, 1));
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
