//! Volumes of a RunnerSet's runners: who takes over which, and which are made.
//!
//! Claims that lay free when the trace began are not in it, so that the first runners make more than they did.

use pacer_core::claim::{Choice, Claim, Condition, Held, choose, surplus};

use crate::agenda::{Moment, at};

/// Templates do not change in a trace.
const REVISION: &str = "1";

/// The claims that one runner has at a time: one of each template.
#[derive(Debug)]
struct Kept {
    name: String,
    holder: Option<usize>,
    taken: Moment,
}

/// What became of the need for volumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Use {
    pub(crate) made: u64,
    /// Taken over from another runner.
    pub(crate) reused: u64,
}

impl Use {
    pub(crate) fn add(&mut self, other: Self) {
        self.made += other.made;
        self.reused += other.reused;
    }
}

/// The claims of a pool.
#[derive(Debug, Default)]
pub(crate) struct Volumes {
    kept: Vec<Kept>,
    /// Number of names that were given so far; each claim is named by its number.
    named: u64,
    pub(crate) used: Use,
}

impl Volumes {
    /// One that was there when the trace began has its claims.
    pub(crate) fn keep(&mut self, runner: usize, now: Moment) {
        self.named += 1;
        self.kept.push(Kept { name: self.named.to_string(), holder: Some(runner), taken: now });
    }

    /// A runner with so many claims is made. Those of `is_over` are about to be gone.
    pub(crate) fn take(&mut self, runner: usize, volumes: u32, is_over: impl Fn(usize) -> bool, now: Moment) {
        let volumes = u64::from(volumes);
        let held = |holder: Option<usize>| match holder {
            None => Held::Free,
            Some(runner) if is_over(runner) => Held::Ending,
            Some(_) => Held::Other,
        };
        let choice = choose(&self.claims(held), REVISION, true, at(now));
        match choice {
            // A recorded start has the wait for a claim in it.
            Choice::Keep(index) | Choice::Take(index) | Choice::Await(index) => {
                if let Some(kept) = self.kept.get_mut(index) {
                    (kept.holder, kept.taken) = (Some(runner), now);
                    self.used.reused += volumes;
                }
            }
            Choice::Make => {
                self.keep(runner, now);
                self.used.made += volumes;
            }
        }
    }

    /// A runner is gone, and its claims are free, unless another one has them by now.
    pub(crate) fn leave(&mut self, runner: usize) {
        self.kept.iter_mut().filter(|kept| kept.holder == Some(runner)).for_each(|kept| kept.holder = None);
    }

    /// Deletes what so many runners do not need.
    pub(crate) fn shrink(&mut self, wanted: u32) {
        let free = |holder: Option<usize>| if holder.is_none() { Held::Free } else { Held::Other };
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        let surplus = surplus(&self.claims(free), &[REVISION], wanted);
        // From the last on, so that the places of the others stay.
        surplus.into_iter().rev().for_each(|index| {
            self.kept.remove(index);
        });
    }

    fn claims<'a>(&'a self, held: impl Fn(Option<usize>) -> Held) -> Vec<Claim<'a>> {
        let of = |kept: &'a Kept| Claim {
            name: &kept.name,
            revision: Some(REVISION),
            held: held(kept.holder),
            condition: Condition::Usable,
            taken: Some(at(kept.taken)),
            aside: None,
        };
        self.kept.iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(volumes: &mut Volumes, runner: usize, over: &[usize], now: Moment) {
        volumes.take(runner, 2, |runner| over.contains(&runner), now);
    }

    #[test]
    fn runner_takes_over_what_another_left_or_is_about_to_leave_and_makes_the_rest() {
        let mut volumes = Volumes::default();
        volumes.keep(0, 0);
        take(&mut volumes, 1, &[], 10);
        assert_eq!(volumes.used, Use { made: 2, reused: 0 });
        take(&mut volumes, 2, &[1], 20);
        // It has another holder by now.
        volumes.leave(1);
        take(&mut volumes, 3, &[], 30);
        assert_eq!(volumes.used, Use { made: 4, reused: 2 });
        volumes.leave(0);
        take(&mut volumes, 4, &[], 40);
        assert_eq!(volumes.used, Use { made: 4, reused: 4 });
    }

    #[test]
    fn free_claims_that_no_runner_needs_are_deleted_and_made_again() {
        let mut volumes = Volumes::default();
        (0..3).for_each(|runner| volumes.keep(runner, 0));
        (0..3).for_each(|runner| volumes.leave(runner));
        volumes.shrink(1);
        take(&mut volumes, 3, &[], 10);
        take(&mut volumes, 4, &[], 10);
        assert_eq!(volumes.used, Use { made: 2, reused: 2 });
    }
}
