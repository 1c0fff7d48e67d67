//! Recorded times, of which those of a run are drawn.

use std::ops::Range;

use crate::agenda::Moment;
use crate::random::Random;

/// Samples among which one is drawn: those recorded next to the moment. Starts are slow together, when nodes are busy or a registry is, and
/// fail together. Drawn from the whole trace they would be independent, and a wave of slow ones would be spread over all waves.
const NEAR: usize = 8;

/// What was recorded, in the order of time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples<T>(Vec<(Moment, T)>);

impl<T: Copy + Ord> Samples<T> {
    pub(crate) fn of(samples: impl IntoIterator<Item = (Moment, T)>) -> Self {
        let mut samples: Vec<(Moment, T)> = samples.into_iter().collect();
        samples.sort_unstable();
        Self(samples)
    }

    /// All of them, each with its moment.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Moment, T)> {
        self.0.iter().copied()
    }

    #[cfg(test)]
    pub(crate) fn values(&self) -> impl Iterator<Item = T> {
        self.0.iter().map(|(_, value)| *value)
    }

    /// One of those recorded next to a moment, half of them before and half after it as far as there are any; none when nothing was recorded.
    pub(crate) fn near(&self, now: Moment, random: &mut Random) -> Option<T> {
        random.pick(self.0.get(self.around(now)).unwrap_or_default()).map(|(_, value)| value)
    }

    /// Positions of those recorded next to a moment.
    fn around(&self, now: Moment) -> Range<usize> {
        let before = self.0.partition_point(|(at, _)| *at < now);
        let first = before.saturating_sub(NEAR / 2).min(self.0.len().saturating_sub(NEAR));
        first..self.0.len().min(first.saturating_add(NEAR))
    }
}

/// Draws that take each sample once before they take one twice. A run whose failed starts were drawn without that would have more of them or
/// fewer than were recorded, and the pauses after them grow with each that follows another.
#[derive(Clone, Debug)]
pub(crate) struct Turns {
    random: Random,
    /// How often each sample was drawn.
    drawn: Vec<u32>,
}

impl Turns {
    pub(crate) fn new(random: Random) -> Self {
        Self { random, drawn: Vec::new() }
    }

    /// One of those of `samples` that were recorded next to a moment and drawn least often; none when nothing was recorded.
    pub(crate) fn near<T: Copy + Ord>(&mut self, samples: &Samples<T>, now: Moment) -> Option<T> {
        self.drawn.resize(samples.0.len(), 0);
        let times = |position: &usize| self.drawn.get(*position).copied().unwrap_or_default();
        let least = samples.around(now).map(|position| times(&position)).min()?;
        let rarest: Vec<usize> = samples.around(now).filter(|position| times(position) == least).collect();
        let position = self.random.pick(&rarest)?;
        self.drawn.get_mut(position).into_iter().for_each(|drawn| *drawn += 1);
        samples.0.get(position).map(|(_, value)| *value)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn samples_are_drawn_from_those_next_to_the_moment() {
        let samples = Samples::of((0..100).map(|value| (value * 10, value)));
        let mut random = Random::new(1, 1);
        for (now, expected) in [(-5, 0..8), (0, 0..8), (495, 46..54), (500, 46..54), (2_000, 92..100)] {
            let drawn: BTreeSet<i64> = (0..500).filter_map(|_| samples.near(now, &mut random)).collect();
            assert_eq!(drawn, expected.collect(), "{now}");
        }
        let few = Samples::of([(5, 1), (0, 2)]);
        assert_eq!((0..50).filter_map(|_| few.near(90, &mut random)).collect::<BTreeSet<_>>(), BTreeSet::from([1, 2]));
        assert_eq!(Samples::<i64>::default().near(0, &mut random), None);
    }

    #[test]
    fn each_sample_has_its_turn_before_one_is_drawn_again() {
        let samples = Samples::of((0..100).map(|value| (value * 10, value)));
        let mut turns = Turns::new(Random::new(1, 1));
        for round in 0..3 {
            let drawn: BTreeSet<i64> = (0..8).filter_map(|_| turns.near(&samples, 495)).collect();
            assert_eq!(drawn, (46..54).collect(), "round {round}");
        }
        // Those that had fewer turns are first, wherever the window is by then.
        let drawn: BTreeSet<i64> = (0..8).filter_map(|_| turns.near(&samples, 535)).collect();
        assert_eq!(drawn, (54..58).collect());
        assert_eq!(turns.near(&Samples::<i64>::default(), 0), None);
    }
}
