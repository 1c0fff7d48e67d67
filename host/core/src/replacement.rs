//! How many finished ephemeral runners are not replaced (arc-behaviour 2.7 A).
//!
//! The desired number was set at `effectiveTime`, when the jobs of the runners that finish later were not over. Whoever sets the number sets it
//! again, and says for how many finished runners it accounts; where nobody does, because the autoscaler is gone, the hold ends as ARC's does. Where
//! the API server takes no number that was sent, the one that the set has stands, and the hold ends after [`UNACCEPTED`].

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};

/// ARC's delay before finished ephemeral runners are replaced although the demand has not been renewed.
pub const HOLD: SignedDuration = SignedDuration::from_mins(10);

/// How long a RunnerReplicaSet whose process has just started waits for its autoscaler to account for runners that are missing.
pub const UNSEEN: Duration = Duration::from_secs(10);

/// How long a RunnerReplicaSet waits for a number that was announced to it. A number passes two objects, which takes seconds; an admission policy or a
/// quota that refuses it may do so for ever, and a pool whose runners are not replaced meanwhile would drain.
pub const UNACCEPTED: Duration = Duration::from_mins(1);

/// A number that is refused is sent again within this, as long as somebody needs it.
const LOST: SignedDuration = SignedDuration::from_mins(2);

/// A desired number, and the finished runners that it accounts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accounted {
    /// The `effectiveTime` that goes with the number.
    pub effective: Timestamp,
    /// How many runners had finished when the number was made, counted since the process started.
    pub finished: u64,
}

/// Numbers that are remembered; the oldest go first.
const REMEMBERED: usize = 64;

/// The numbers that an autoscaler has sent to a RunnerReplicaSet, and the finished runners that each accounts for, the newest last.
#[derive(Clone, Debug, Default)]
pub struct AcceptedDemand {
    numbers: Vec<Accounted>,
}

impl AcceptedDemand {
    /// A number is about to be sent.
    pub fn announce(&mut self, number: Accounted) {
        if self.numbers.len() >= REMEMBERED {
            self.numbers.remove(0);
        }
        self.numbers.push(number);
    }

    /// The numbers that were announced and are remembered, the newest last.
    #[must_use]
    pub fn numbers(&self) -> &[Accounted] {
        &self.numbers
    }
}

/// A RunnerReplicaSet as far as the hold goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replicas {
    /// `spec.effectiveTime`: when the desired number was set; none where the spec does not say.
    pub effective: Option<Timestamp>,
    /// Its runners are ephemeral.
    pub ephemeral: bool,
    /// An autoscaler sets the number.
    pub autoscaled: bool,
    /// When it was last scaled up completely.
    pub scaled_up: Option<Timestamp>,
    /// When its newest runner was made.
    pub newest: Option<Timestamp>,
    /// Runners that are missing from the desired number.
    pub missing: u32,
}

/// What is known of the finished runners of one RunnerReplicaSet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplacementHold {
    /// Runners that finished since the process started.
    finished: u64,
    /// The number that the set has.
    current: Option<Accounted>,
    /// Runners that are missing since before the process started, and may have finished, are not replaced until this.
    unseen_until: Option<Instant>,
    /// The number that the set goes on having although a newer one was announced.
    kept: Option<KeptNumber>,
    /// So many finished runners are replaced whatever the set's number accounts for: the one that accounts for them was not accepted in time.
    replaced: u64,
}

/// A number that a newer one was announced for. See [`UNACCEPTED`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KeptNumber {
    /// The `effectiveTime` that goes with it.
    effective: Timestamp,
    /// Since when a newer one is known.
    since: Instant,
}

impl ReplacementHold {
    /// Counts runners that finished their job.
    pub fn count(&mut self, finished: u64) {
        self.finished = self.finished.saturating_add(finished);
    }

    /// Runners that finished since the process started.
    #[must_use]
    pub fn finished(&self) -> u64 {
        self.finished
    }

    /// What the number accounts for that the set has; none before the first decision.
    #[must_use]
    pub fn current(&self) -> Option<Accounted> {
        self.current
    }

    /// Takes finished runners for accounted for by a number that was announced while the set has kept an older one for too long.
    fn give_up(&mut self, set: &Replicas, announced: &[Accounted], effective: Timestamp, now: Timestamp, instant: Instant) {
        // One that was lost and that nobody sends again says nothing of the next one.
        let is_lost = |number: &Accounted| set.missing == 0 && now.duration_since(number.effective) >= LOST;
        let newest = announced.iter().rfind(|number| number.effective > effective).filter(|number| !is_lost(number));
        let Some(newest) = newest else {
            self.kept = None;
            return;
        };
        let known = self.kept.filter(|kept| kept.effective == effective);
        let kept = known.unwrap_or(KeptNumber { effective, since: instant });
        self.kept = Some(kept);
        if instant.saturating_duration_since(kept.since) >= UNACCEPTED {
            self.replaced = self.replaced.max(newest.finished);
        }
    }

    /// How many of the missing runners are not replaced now. `announced` are the numbers that the autoscaler has sent.
    pub fn held(&mut self, set: &Replicas, announced: &[Accounted], now: Timestamp, instant: Instant) -> u32 {
        let Some(effective) = set.effective.filter(|_| set.ephemeral) else { return 0 };
        let met = set.scaled_up.or(set.newest).filter(|met| *met > effective);
        if !set.autoscaled && met.is_none_or(|met| now.duration_since(met) >= HOLD) {
            return 0;
        }
        if self.current.is_none() && announced.is_empty() && set.scaled_up.is_some() {
            // The set had runners before this process started. Those that are missing may have finished unseen: the autoscaler knows.
            self.current = Some(Accounted { effective, finished: self.finished });
            self.finished = self.finished.saturating_add(u64::from(set.missing));
            self.unseen_until = instant.checked_add(UNSEEN);
        }
        if self.unseen_until.is_some_and(|until| until <= instant) {
            self.unseen_until = None;
            self.current = Some(Accounted { effective, finished: self.finished });
        }
        let current = match self.current.filter(|current| current.effective == effective) {
            Some(current) => current,
            None => {
                // The first number that a process finds is older than it, and accounts for none of the runners that it found to have finished.
                let is_first = self.current.is_none();
                self.unseen_until = instant.checked_add(UNSEEN).filter(|_| is_first && self.finished > 0);
                let announced = announced.iter().find(|announced| announced.effective == effective);
                announced.copied().unwrap_or(Accounted { effective, finished: if is_first { 0 } else { self.finished } })
            }
        };
        self.give_up(set, announced, effective, now, instant);
        let current = Accounted { finished: current.finished.max(self.replaced), ..current };
        self.current = Some(current);
        u32::try_from(self.finished.saturating_sub(current.finished)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + second).unwrap()
    }

    fn replicas(effective: i64, missing: u32) -> Replicas {
        Replicas { effective: Some(at(effective)), ephemeral: true, autoscaled: true, scaled_up: None, newest: None, missing }
    }

    fn announced(effective: i64, finished: u64) -> Accounted {
        Accounted { effective: at(effective), finished }
    }

    #[test]
    fn finished_runners_are_held_until_a_number_accounts_for_them() {
        let start = Instant::now();
        let mut hold = ReplacementHold::default();
        let sent = [announced(1, 0)];
        assert_eq!(hold.held(&replicas(1, 0), &sent, at(1), start), 0);
        hold.count(3);
        assert_eq!(hold.held(&replicas(1, 3), &sent, at(2), start), 3);
        let sent = [announced(1, 0), announced(5, 2)];
        assert_eq!(hold.held(&replicas(5, 3), &sent, at(5), start), 1, "one finished after the number was made");
        assert_eq!((hold.finished(), hold.current()), (3, Some(announced(5, 2))));
        assert_eq!(hold.held(&replicas(9, 3), &sent, at(9), start), 0, "a number that nobody announced accounts for all");
    }

    #[test]
    fn missing_runners_are_held_for_a_while_when_the_process_has_just_started() {
        let start = Instant::now();
        let set = Replicas { scaled_up: Some(at(2)), ..replicas(1, 4) };
        let mut hold = ReplacementHold::default();
        assert_eq!(hold.held(&set, &[], at(3), start), 4);
        let late = start + UNSEEN;
        assert_eq!(hold.clone().held(&set, &[], at(13), late), 0, "nobody accounted for them");
        let renewed = Replicas { effective: Some(at(4)), ..set };
        assert_eq!(hold.held(&renewed, &[announced(4, 1)], at(4), start), 3, "the autoscaler knew of one");
        assert_eq!(hold.held(&renewed, &[announced(4, 1)], at(14), late), 3);
    }

    #[test]
    fn runners_that_finished_while_no_process_ran_are_held_in_a_set_that_was_never_complete() {
        let start = Instant::now();
        let mut hold = ReplacementHold::default();
        hold.count(2);
        let set = replicas(1, 16);
        assert_eq!(hold.held(&set, &[], at(3), start), 2);
        let renewed = Replicas { effective: Some(at(4)), missing: 14, ..set };
        assert_eq!(hold.clone().held(&renewed, &[announced(4, 2)], at(4), start), 0, "the autoscaler accounts for both");
        assert_eq!(hold.held(&set, &[], at(13), start + UNSEEN), 0, "nobody accounted for them");
    }

    #[test]
    fn finished_runners_are_replaced_when_their_number_is_not_accepted_in_time() {
        let start = Instant::now();
        let later = |seconds| start + Duration::from_secs(seconds);
        let mut hold = ReplacementHold::default();
        let sent = [announced(1, 0)];
        assert_eq!(hold.held(&replicas(1, 0), &sent, at(1), start), 0);
        hold.count(3);
        let sent = [announced(1, 0), announced(5, 2)];
        assert_eq!(hold.held(&replicas(1, 3), &sent, at(5), later(5)), 3);
        // Sent again and again.
        let sent = [announced(1, 0), announced(5, 2), announced(60, 3)];
        assert_eq!(hold.held(&replicas(1, 3), &sent, at(64), later(64)), 3);
        assert_eq!(hold.held(&replicas(1, 3), &sent, at(65), later(65)), 0);
        assert_eq!(hold.current(), Some(announced(1, 3)));
        hold.count(1);
        assert_eq!(hold.held(&replicas(1, 1), &sent, at(66), later(66)), 1, "one finished after that number was made");
        // Accepted in the end: who was replaced is not held again, and the next number has its time.
        assert_eq!(hold.held(&replicas(5, 1), &sent[..2], at(67), later(67)), 1);
        let sent = [announced(60, 3), announced(70, 4)];
        assert_eq!(hold.held(&replicas(60, 1), &sent, at(70), later(70)), 1);
        assert_eq!(hold.held(&replicas(60, 1), &sent, at(129), later(129)), 1);
        assert_eq!(hold.held(&replicas(60, 1), &sent, at(130), later(130)), 0);
    }

    #[test]
    fn number_that_was_lost_does_not_end_the_wait_for_the_next_one() {
        let start = Instant::now();
        let later = |seconds| start + Duration::from_secs(seconds);
        let mut hold = ReplacementHold::default();
        let sent = [announced(1, 0), announced(5, 0)];
        assert_eq!(hold.held(&replicas(1, 0), &sent, at(6), later(6)), 0);
        assert_eq!(hold.held(&replicas(1, 0), &sent, at(200), later(200)), 0);
        hold.count(1);
        let sent = [announced(1, 0), announced(5, 0), announced(205, 1)];
        assert_eq!(hold.held(&replicas(1, 1), &sent, at(206), later(206)), 1);
        assert_eq!(hold.held(&replicas(1, 1), &sent, at(266), later(266)), 0);
    }

    #[test]
    fn numbers_that_are_accepted_one_after_the_other_are_waited_for() {
        let start = Instant::now();
        let mut hold = ReplacementHold::default();
        hold.held(&replicas(1, 0), &[announced(1, 0)], at(1), start);
        hold.count(2);
        for number in 1..9_i64 {
            let sent = [announced(number, 0), announced(number + 1, 2)];
            let later = start + Duration::from_secs(20 * number.unsigned_abs());
            assert_eq!(hold.held(&replicas(number, 2), &sent, at(20 * number), later), 2, "number {number}");
        }
    }

    #[test]
    fn nothing_is_held_where_nobody_sets_the_number_again() {
        let start = Instant::now();
        for (name, set, expected) in [
            ("persistent runners", Replicas { ephemeral: false, ..replicas(1, 2) }, 0),
            ("no effectiveTime", Replicas { effective: None, ..replicas(1, 2) }, 0),
            ("never met", Replicas { autoscaled: false, ..replicas(1, 2) }, 0),
            ("met lately", Replicas { autoscaled: false, newest: Some(at(500)), ..replicas(1, 2) }, 2),
            ("met long ago", Replicas { autoscaled: false, newest: Some(at(2)), ..replicas(1, 2) }, 0),
            ("autoscaled", replicas(1, 2), 2),
        ] {
            let mut hold = ReplacementHold::default();
            hold.held(&replicas(1, 0), &[announced(1, 0)], at(1), start);
            hold.count(2);
            assert_eq!(hold.held(&set, &[announced(1, 0)], at(700), start), expected, "{name}");
        }
    }

    proptest! {
        #[test]
        fn no_more_are_held_than_finished_or_were_missing(
            steps in prop::collection::vec((0_u64..5, 0_i64..4, 0_u32..9, any::<bool>()), 1..20)
        ) {
            let start = Instant::now();
            let mut hold = ReplacementHold::default();
            let mut most = 0;
            for (index, (finished, effective, missing, scaled)) in steps.into_iter().enumerate() {
                hold.count(finished);
                let set = Replicas { scaled_up: scaled.then(|| at(1)), ..replicas(effective, missing) };
                let held = hold.held(&set, &[], at(10), start + Duration::from_secs(index as u64));
                most = hold.finished();
                prop_assert!(u64::from(held) <= most);
            }
            prop_assert_eq!(hold.current().map(|current| current.finished <= most), Some(true));
        }
    }
}
