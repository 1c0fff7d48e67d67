//! Recorded times, of which those of a run are drawn.

use std::ops::Range;

use crate::agenda::Moment;
use crate::random::Random;

/// Samples among which one is drawn: those recorded next to the moment. Starts are slow together, when nodes are busy or a registry is, and
/// fail together. Drawn from the whole trace they would be independent, and a wave of slow ones would be spread over all waves.
pub(crate) const NEAR: usize = 8;

/// The last sample recorded before a moment and the first one after it.
const NEXT: usize = 2;

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
        random.pick(self.0.get(self.around(now, NEAR)).unwrap_or_default()).map(|(_, value)| value)
    }

    /// Positions of so many that were recorded next to a moment.
    fn around(&self, now: Moment, count: usize) -> Range<usize> {
        let before = self.0.partition_point(|(at, _)| *at < now);
        let first = before.saturating_sub(count / 2).min(self.0.len().saturating_sub(count));
        first..self.0.len().min(first.saturating_add(count))
    }
}

/// Draws of starts: whether one fails is taken from the record in its order, and how long it takes is drawn. A series of failures ends with the first
/// start that comes online, and all runners that wait for their next attempt are replaced then. If that start were drawn a few places too early, the
/// whole pool would recover too early, and no start that fails too late would make up for that.
#[derive(Clone, Debug)]
pub(crate) struct Turns {
    random: Random,
    /// How often each sample was taken.
    taken: Vec<u32>,
}

impl Turns {
    pub(crate) fn new(random: Random) -> Self {
        Self { random, taken: Vec::new() }
    }

    /// One of those of `samples` that were recorded next to a moment, of the same kind as the one whose turn it is; none when nothing was recorded.
    pub(crate) fn near<T: Copy + Ord>(&mut self, samples: &Samples<T>, now: Moment, alike: impl Fn(T, T) -> bool) -> Option<T> {
        self.taken.resize(samples.0.len(), 0);
        let times = |position: &usize| self.taken.get(*position).copied().unwrap_or_default();
        // The first of those that were taken least often.
        let turn = samples.around(now, NEXT).min_by_key(times)?;
        self.taken.get_mut(turn).into_iter().for_each(|taken| *taken += 1);
        let (_, turn) = *samples.0.get(turn)?;
        let near = samples.0.get(samples.around(now, NEAR)).unwrap_or_default();
        let near: Vec<T> = near.iter().map(|(_, value)| *value).filter(|value| alike(*value, turn)).collect();
        self.random.pick(&near)
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
    fn series_of_failures_is_as_long_as_recorded_and_durations_are_drawn() {
        // Eight starts, of which the second to fifth fail: a failure is even.
        let samples = Samples::of([1, 2, 4, 6, 8, 3, 5, 7].into_iter().zip(0..).map(|(value, number)| (number * 10, value)));
        let alike = |one: i32, other: i32| one % 2 == other % 2;
        for seed in 0..50 {
            let mut turns = Turns::new(Random::new(seed, 1));
            // Each a little later than it was recorded.
            let drawn: Vec<i32> = (0..8).filter_map(|number| turns.near(&samples, number * 10 + 3, alike)).collect();
            let failed: Vec<bool> = drawn.iter().map(|value| value % 2 == 0).collect();
            assert_eq!(failed, [false, true, true, true, true, false, false, false], "{drawn:?}");
        }
        let mut turns = Turns::new(Random::new(1, 1));
        let drawn: BTreeSet<i32> = (0..100).filter_map(|_| turns.near(&samples, 25, alike)).collect();
        assert_eq!(drawn, BTreeSet::from([2, 4, 6, 8]));
        assert_eq!(turns.near(&Samples::<i32>::default(), 0, alike), None);
    }
}
