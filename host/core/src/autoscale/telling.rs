//! How people are told of changes of an autoscaler's number: every one, and what belongs together in one Event, each of which is a write.

use std::fmt;
use std::time::{Duration, Instant};

/// How long a change waits for what belongs to it: the rest of a burst, and the way back, which is where most jobs lead. What the number is and
/// why is in the status meanwhile.
pub const PACE: Duration = Duration::from_secs(30);

/// A change of the number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Number of runners before the change.
    pub from: u32,
    /// Number of runners after the change.
    pub to: u32,
    /// Why it is this one.
    pub reason: String,
}

impl Step {
    fn continues(&self, before: &Self) -> bool {
        (self.to > self.from) == (before.to > before.from)
    }

    /// Goes on to where the next one ends.
    fn join(&mut self, next: Self) {
        *self = Self { from: self.from, ..next };
    }
}

/// The way in one direction, and the way back where that has begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Story {
    /// The changes in the first direction, joined into one.
    pub there: Step,
    /// The other one, from where the first one ended.
    pub back: Option<Step>,
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runners = |count: u32| if count == 1 { "runner" } else { "runners" };
        let Step { from, to, reason } = &self.there;
        write!(f, "from {from} to {to} {}: {reason}", runners(*to))?;
        match &self.back {
            Some(Step { to, reason, .. }) => write!(f, "; then to {to} {}: {reason}", runners(*to)),
            None => Ok(()),
        }
    }
}

/// What is still to be told. Each story begins where the one before it ended.
#[derive(Clone, Debug, Default)]
pub struct Telling {
    waiting: Option<(Instant, Story)>,
}

impl Telling {
    /// Takes a step; returns the story that ended with it, if one did.
    pub fn step(&mut self, step: Step, now: Instant) -> Option<Story> {
        let Some((_, story)) = &mut self.waiting else {
            self.waiting = Some((now, Story { there: step, back: None }));
            return None;
        };
        match &mut story.back {
            None if step.continues(&story.there) => story.there.join(step),
            None => story.back = Some(step),
            Some(back) if step.continues(back) => back.join(step),
            Some(_) => return self.waiting.replace((now, Story { there: step, back: None })).map(|(_, story)| story),
        }
        None
    }

    /// What has waited long enough.
    pub fn due(&mut self, now: Instant) -> Option<Story> {
        self.wait(now).filter(Duration::is_zero)?;
        self.waiting.take().map(|(_, story)| story)
    }

    /// How long what waits has to wait.
    #[must_use]
    pub fn wait(&self, now: Instant) -> Option<Duration> {
        self.waiting.as_ref().map(|(began, _)| PACE.saturating_sub(now.saturating_duration_since(*began)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn step(from: u32, to: u32) -> Step {
        Step { from, to, reason: format!("{to} are wanted") }
    }

    fn numbers(story: Story) -> (u32, u32, Option<u32>) {
        (story.there.from, story.there.to, story.back.map(|back| back.to))
    }

    #[test]
    fn a_burst_and_the_way_back_are_one_story() {
        let (mut telling, began) = (Telling::default(), Instant::now());
        let at = |seconds| began + Duration::from_secs(seconds);
        for (second, from, to) in [(0, 0, 1), (1, 1, 3), (20, 3, 2), (21, 2, 0)] {
            assert_eq!(telling.step(step(from, to), at(second)), None);
        }
        assert_eq!((telling.due(at(29)), telling.wait(at(29))), (None, Some(Duration::from_secs(1))));
        let story = telling.due(at(30)).unwrap();
        assert_eq!(story.to_string(), "from 0 to 3 runners: 3 are wanted; then to 0 runners: 0 are wanted");
        assert_eq!(numbers(story), (0, 3, Some(0)));
        assert_eq!((telling.due(at(99)), telling.wait(at(99))), (None, None));
    }

    #[test]
    fn the_next_turn_begins_another_story() {
        let (mut telling, began) = (Telling::default(), Instant::now());
        let told: Vec<_> =
            [(0, 2), (2, 1), (1, 4), (4, 5)].into_iter().filter_map(|(from, to)| telling.step(step(from, to), began)).collect();
        assert_eq!(told.into_iter().map(numbers).collect::<Vec<_>>(), [(0, 2, Some(1))]);
        let story = telling.due(began + PACE).unwrap();
        assert_eq!((story.to_string(), numbers(story)), ("from 1 to 5 runners: 5 are wanted".to_owned(), (1, 5, None)));
        assert_eq!(telling.step(step(5, 4), began), None);
        assert_eq!(telling.step(step(4, 1), began), None);
        assert_eq!(telling.due(began + PACE).unwrap().to_string(), "from 5 to 1 runner: 1 are wanted");
    }

    proptest! {
        #[test]
        fn every_step_is_told_and_each_begins_where_the_last_ended(walk in proptest::collection::vec((0_u32..20, 0_u64..20), 1..40)) {
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
            for step in told.into_iter().flat_map(|story| std::iter::once(story.there).chain(story.back)) {
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
