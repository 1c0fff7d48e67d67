//! How people are told of changes of an autoscaler's number: every one, and steps in the same direction within a while as one.

use std::fmt;
use std::time::{Duration, Instant};

/// Steps in one direction within this time are told together: a burst is one story.
pub const PACE: Duration = Duration::from_secs(10);

/// A change of the number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The number before.
    pub from: u32,
    /// The number after.
    pub to: u32,
    /// Why it is this one.
    pub reason: String,
}

impl Step {
    /// Whether both go up, or both down.
    #[must_use]
    pub fn continues(&self, before: &Self) -> bool {
        self.is_up() == before.is_up()
    }

    fn is_up(&self) -> bool {
        self.to > self.from
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runners = if self.to == 1 { "runner" } else { "runners" };
        write!(f, "from {} to {} {runners}: {}", self.from, self.to, self.reason)
    }
}

/// What was told, and what is still to be told. Each step begins where the one before it ended.
#[derive(Clone, Debug, Default)]
pub struct Telling {
    waiting: Option<Step>,
    told: Option<(Instant, Step)>,
}

impl Telling {
    /// Takes a step; returns what is told now. A step the other way is told at once, after what waits.
    pub fn step(&mut self, step: Step, now: Instant) -> Vec<Step> {
        let step = match self.waiting.take() {
            Some(waiting) if step.continues(&waiting) => Step { from: waiting.from, ..step },
            Some(waiting) => {
                self.told = Some((now, step.clone()));
                return vec![waiting, step];
            }
            None => step,
        };
        if self.told.as_ref().is_some_and(|(at, told)| step.continues(told) && is_recent(*at, now)) {
            self.waiting = Some(step);
            return Vec::new();
        }
        self.told = Some((now, step.clone()));
        vec![step]
    }

    /// What has waited long enough.
    pub fn due(&mut self, now: Instant) -> Option<Step> {
        if self.wait(now).is_some_and(|wait| !wait.is_zero()) {
            return None;
        }
        let step = self.waiting.take()?;
        self.told = Some((now, step.clone()));
        Some(step)
    }

    /// How long what waits has to wait.
    #[must_use]
    pub fn wait(&self, now: Instant) -> Option<Duration> {
        self.waiting.as_ref()?;
        let told = self.told.as_ref().map(|(at, _)| *at);
        Some(told.map_or(Duration::ZERO, |at| PACE.saturating_sub(now.saturating_duration_since(at))))
    }
}

fn is_recent(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) < PACE
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn step(from: u32, to: u32) -> Step {
        Step { from, to, reason: format!("{to} are wanted") }
    }

    #[test]
    fn changes_are_told_with_their_numbers_when_they_come_quickly() {
        let (mut telling, began) = (Telling::default(), Instant::now());
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut told = Vec::new();
        for (second, from, to) in [(0, 0, 1), (1, 1, 3), (2, 3, 2), (3, 2, 0)] {
            told.extend(telling.step(step(from, to), at(second)));
        }
        assert_eq!(told, [step(0, 1), step(1, 3), step(3, 2)]);
        assert_eq!((telling.due(at(11)), telling.wait(at(11))), (None, Some(Duration::from_secs(1))));
        assert_eq!(telling.due(at(12)), Some(step(2, 0)));
        assert_eq!((telling.due(at(99)), telling.wait(at(99))), (None, None));
        assert_eq!(step(2, 1).to_string(), "from 2 to 1 runner: 1 are wanted");
    }

    #[test]
    fn steps_in_one_direction_are_one_when_they_come_quickly() {
        let (mut telling, began) = (Telling::default(), Instant::now());
        assert_eq!(telling.step(step(0, 1), began), [step(0, 1)]);
        assert_eq!(telling.step(step(1, 2), began), []);
        assert_eq!(telling.step(step(2, 9), began), []);
        assert_eq!(telling.due(began + PACE), Some(step(1, 9)));
    }

    proptest! {
        #[test]
        fn every_step_is_told_and_each_begins_where_the_last_ended(walk in proptest::collection::vec((0_u32..20, 0_u64..8), 1..40)) {
            let (mut telling, mut now, mut number) = (Telling::default(), Instant::now(), 0);
            let (mut told, mut highest, mut told_highest) = (Vec::new(), 0, 0);
            for (to, wait) in walk {
                now += Duration::from_secs(wait);
                told.extend(telling.due(now));
                if to != number {
                    told.extend(telling.step(step(number, to), now));
                    number = to;
                }
                highest = highest.max(number);
            }
            told.extend(telling.due(now + PACE));
            let mut at = 0;
            for step in told {
                prop_assert_eq!(step.from, at);
                at = step.to;
                told_highest = told_highest.max(at);
            }
            prop_assert_eq!(at, number);
            // No peak is left out.
            prop_assert_eq!(told_highest, highest);
        }
    }
}
