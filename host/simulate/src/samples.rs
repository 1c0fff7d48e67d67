//! Recorded times, of which those of a run are drawn.

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
        let before = self.0.partition_point(|(at, _)| *at < now);
        let first = before.saturating_sub(NEAR / 2).min(self.0.len().saturating_sub(NEAR));
        let window = self.0.get(first..).unwrap_or_default();
        random.pick(window.get(..NEAR).unwrap_or(window)).map(|(_, value)| value)
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
}
