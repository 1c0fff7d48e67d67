//! Numbers of replicas that the API server refused. They are sent again: at first soon, then more and more rarely.

use std::time::{Duration, Instant};

use pacer_core::backoff;

use crate::settings::{SCALING_PAUSE, SCALING_PAUSE_MAX};

/// That the API server refused what was wanted, such as a number of replicas.
#[derive(Clone, Debug)]
pub(crate) struct Refusal<W> {
    wanted: W,
    why: String,
    at: Instant,
    /// How often it was refused, one time after the other.
    times: u32,
}

impl<W: PartialEq> Refusal<W> {
    /// A refusal after the one before, if any. `why` says what happened, to which object, and what to do, for people.
    pub(crate) fn new(before: Option<&Self>, wanted: W, why: String, at: Instant) -> Self {
        let times = before.filter(|before| before.wanted == wanted).map_or(0, |before| before.times);
        Self { wanted, why, at, times: times.saturating_add(1) }
    }

    /// What happened, to which object, and what to do, for people.
    pub(crate) fn why(&self) -> &str {
        &self.why
    }

    /// How long nothing is sent from now on, where this is wanted; none when it is time.
    pub(crate) fn pause(&self, wanted: &W, now: Instant) -> Option<Duration> {
        let times = if self.wanted == *wanted { self.times } else { 1 };
        self.left(backoff::doubled(SCALING_PAUSE, SCALING_PAUSE_MAX, times), now)
    }

    /// How long it is remembered where nothing has to be sent although this is wanted; none when it may be accepted by now, or is not wanted any more.
    pub(crate) fn lasts(&self, wanted: &W, now: Instant) -> Option<Duration> {
        self.left(SCALING_PAUSE_MAX, now).filter(|_| self.wanted == *wanted)
    }

    fn left(&self, pause: Duration, now: Instant) -> Option<Duration> {
        pause.checked_sub(now.saturating_duration_since(self.at)).filter(|left| !left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_grows_with_each_refusal_of_the_same_number_up_to_a_minute() {
        let at = Instant::now();
        let mut refusal = None;
        for seconds in [5, 10, 20, 40, 60, 60] {
            let next = Refusal::new(refusal.as_ref(), 3, "no".to_owned(), at);
            assert_eq!(next.pause(&3, at), Some(Duration::from_secs(seconds)));
            assert_eq!(next.pause(&4, at), Some(Duration::from_secs(5)), "another number may be accepted");
            assert_eq!(next.pause(&3, at + Duration::from_secs(seconds)), None);
            refusal = Some(next);
        }
        let other = Refusal::new(refusal.as_ref(), 4, "no".to_owned(), at);
        assert_eq!(other.pause(&4, at), Some(Duration::from_secs(5)));
    }

    #[test]
    fn refusal_is_remembered_for_a_minute_while_its_number_is_wanted() {
        let at = Instant::now();
        let refusal = Refusal::new(None, 3, "no".to_owned(), at);
        assert_eq!(refusal.lasts(&3, at + Duration::from_secs(50)), Some(Duration::from_secs(10)));
        assert_eq!(refusal.lasts(&3, at + Duration::from_secs(60)), None);
        assert_eq!(refusal.lasts(&4, at), None);
    }
}
