//! When a policy that keeps failing is no longer asked, and when it is again.
//!
//! ```text
//! closed --3 faults in a row, or 5 of the last 10--> open --3 clean probes in a row--> closed
//!                                                     ^ |
//!                                                     +-+ a probe fails: the pause doubles
//! ```
//!
//! While it is open the shipped policy decides, and a probe is a real question that the policy answers beside it, for nobody's benefit but
//! ours. Time is an argument.

use std::time::{Duration, Instant};

/// Faults in a row that open it.
pub(crate) const IN_A_ROW: u32 = 3;

/// Faults among the last [`WINDOW`] decisions that open it.
pub(crate) const IN_WINDOW: u32 = 5;

/// How many decisions are remembered.
pub(crate) const WINDOW: u32 = 10;

/// Clean probes in a row that close it.
pub(crate) const CLEAN_PROBES: u32 = 3;

/// First pause before a probe; it doubles with every probe that fails.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// Longest pause before a probe.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// Whether a policy may decide now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The policy is asked, and its answer is used.
    Ask,
    /// The shipped policy decides.
    Bypass,
    /// The shipped policy decides, and this policy answers the same question beside it.
    Probe,
}

/// How a probe ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    /// With a usable answer.
    Clean,
    /// With a fault of the policy.
    Fault,
    /// It did not take place.
    Skipped,
}

/// A transition, for events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The policy is not asked from now on.
    Opened,
    /// The policy is asked again.
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed {
        /// The last decisions, newest in the lowest bit; a one is a fault.
        history: u32,
    },
    Open {
        since: Instant,
        pause: Duration,
        /// No probe before this.
        next: Instant,
        /// One is under way.
        probing: bool,
        clean: u32,
    },
}

/// The breaker of one policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Breaker {
    state: State,
}

impl Default for Breaker {
    fn default() -> Self {
        Self { state: State::Closed { history: 0 } }
    }
}

impl Breaker {
    /// Since when it is open; none while it is closed.
    pub(crate) fn open_since(&self) -> Option<Instant> {
        match self.state {
            State::Closed { .. } => None,
            State::Open { since, .. } => Some(since),
        }
    }

    /// Whether the policy is asked. A probe that is admitted must be reported by [`Breaker::probed`].
    pub(crate) fn admit(&mut self, now: Instant) -> Admission {
        match &mut self.state {
            State::Closed { .. } => Admission::Ask,
            State::Open { next, probing, .. } if !*probing && now >= *next => {
                *probing = true;
                Admission::Probe
            }
            State::Open { .. } => Admission::Bypass,
        }
    }

    /// A decision was asked of the policy and ended. Those that were under way when it opened change nothing.
    pub(crate) fn decided(&mut self, faulty: bool, now: Instant) -> Option<Change> {
        let State::Closed { history } = &mut self.state else { return None };
        *history = (*history << 1 | u32::from(faulty)) & ((1 << WINDOW) - 1);
        if history.trailing_ones() < IN_A_ROW && history.count_ones() < IN_WINDOW {
            return None;
        }
        self.state = State::Open { since: now, pause: FIRST_PAUSE, next: now + FIRST_PAUSE, probing: false, clean: 0 };
        Some(Change::Opened)
    }

    /// Notes how a probe ended; returns a change when the breaker closes by it.
    pub(crate) fn probed(&mut self, outcome: Probe, now: Instant) -> Option<Change> {
        let State::Open { pause, next, probing, clean, .. } = &mut self.state else { return None };
        *probing = false;
        match outcome {
            Probe::Skipped => *next = now + *pause,
            Probe::Fault => {
                *clean = 0;
                *pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
                *next = now + *pause;
            }
            Probe::Clean => {
                *clean += 1;
                *next = now;
                if *clean >= CLEAN_PROBES {
                    *self = Self::default();
                    return Some(Change::Closed);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn after(faults: &[bool]) -> Option<usize> {
        let mut breaker = Breaker::default();
        let now = Instant::now();
        faults.iter().position(|&faulty| breaker.decided(faulty, now) == Some(Change::Opened))
    }

    #[test]
    fn it_opens_at_three_in_a_row_or_five_of_ten() {
        let (good, bad) = (false, true);
        assert_eq!(after(&[bad, bad, good, bad, bad, good]), None);
        assert_eq!(after(&[bad, bad, bad]), Some(2));
        assert_eq!(after(&[good, bad, good, bad, good, bad, good, bad, good, bad]), Some(9));
        // The first of five is forgotten by the time of the fifth.
        assert_eq!(after(&[bad, good, bad, good, good, bad, good, good, bad, good, good, bad]), None);
    }

    #[test]
    fn probes_wait_longer_after_each_failure_and_close_it_after_three() {
        let mut breaker = Breaker::default();
        let start = Instant::now();
        for _ in 0..IN_A_ROW {
            breaker.decided(true, start);
        }
        assert_eq!(breaker.open_since(), Some(start));
        assert_eq!(breaker.admit(start), Admission::Bypass);
        let mut now = start + FIRST_PAUSE;
        assert_eq!(breaker.admit(now), Admission::Probe);
        assert_eq!(breaker.admit(now), Admission::Bypass, "one probe at a time");
        assert_eq!(breaker.probed(Probe::Fault, now), None);
        assert_eq!(breaker.admit(now + Duration::from_millis(1_999)), Admission::Bypass);
        now += 2 * FIRST_PAUSE;
        assert_eq!(breaker.admit(now), Admission::Probe);
        assert_eq!(breaker.probed(Probe::Skipped, now), None);
        now += 2 * FIRST_PAUSE;
        for probe in 1..=CLEAN_PROBES {
            assert_eq!(breaker.admit(now), Admission::Probe);
            assert_eq!(breaker.probed(Probe::Clean, now).is_some(), probe == CLEAN_PROBES);
        }
        assert_eq!((breaker.admit(now), breaker.open_since()), (Admission::Ask, None));
        // It begins with a clean history.
        assert_eq!((breaker.decided(true, now), breaker.decided(true, now)), (None, None));
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Decide(bool),
        Wait(u64),
        Probe(bool),
    }

    proptest! {
        #[test]
        fn an_open_one_is_never_asked_and_pauses_stay_in_bounds(
            steps in proptest::collection::vec(
                prop_oneof![any::<bool>().prop_map(Step::Decide), (0_u64..400_000).prop_map(Step::Wait), any::<bool>().prop_map(Step::Probe)],
                0..200,
            ),
        ) {
            let mut breaker = Breaker::default();
            let mut now = Instant::now();
            for step in steps {
                match step {
                    Step::Decide(faulty) => {
                        let opened = breaker.decided(faulty, now);
                        prop_assert!(opened.is_none() || (faulty && breaker.open_since() == Some(now)));
                    }
                    Step::Wait(millis) => now += Duration::from_millis(millis),
                    Step::Probe(clean) => match breaker.admit(now) {
                        Admission::Ask => prop_assert_eq!(breaker.open_since(), None),
                        Admission::Bypass => prop_assert!(breaker.open_since().is_some()),
                        Admission::Probe => {
                            prop_assert!(breaker.open_since().is_some());
                            breaker.probed(if clean { Probe::Clean } else { Probe::Fault }, now);
                            // Whatever happened, the longest pause later there is another chance.
                            let mut later = breaker;
                            prop_assert_ne!(later.admit(now + LONGEST_PAUSE), Admission::Bypass);
                        }
                    },
                }
            }
        }
    }
}
