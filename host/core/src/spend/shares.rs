//! Which repositories are told by name, where there are more than that: those whose runners were online for longest.
//!
//! What is told of a repository is what it spent while it was told by name, and everything else is told together. So every second is told once, and no
//! sum ever becomes less, whoever is told by name at the moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{REPOSITORIES, Spent, Whose};

/// Repositories that are not told by name, and of which it is known how much they use.
const WEIGHED: usize = 1_000;

/// Repositories that were told by name and are not now. Their sums are kept, for they go on from there when they are told again; with so many
/// of them nobody else is told by name any more.
const RESTING: usize = 1_000;

/// How much more than the least of those told by name a repository has used when it takes that one's place. Two that use the same take turns seldom.
const LEAD: f64 = 1.25;

/// What was spent, by whose it is told.
#[derive(Clone, Debug, Default)]
pub(super) struct Shares {
    told: BTreeMap<Whose, Spent>,
    /// How many repositories are told by name.
    named: usize,
    resting: BTreeMap<Arc<str>, Spent>,
    /// By repository, told by name or not.
    used: BTreeMap<Arc<str>, Use>,
}

/// For how long runners were online for a repository, seconds.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    /// As far as it is known.
    own: f64,
    /// What it had more at most: it may have been forgotten for lack of room.
    perhaps: f64,
}

impl Use {
    fn most(self) -> f64 {
        self.own + self.perhaps
    }
}

impl Shares {
    /// Adds what was spent to the sum of the repository, or to that of the others where the repository is not told by name.
    pub(super) fn add(&mut self, whose: Whose, spent: Spent) {
        let whose = match whose {
            Whose::Repository(name) => self.whose(&name, spent.online()),
            other => other,
        };
        self.told.entry(whose).or_default().add(spent);
    }

    /// What was spent, by whose it is told.
    pub(super) fn told(&self) -> &BTreeMap<Whose, Spent> {
        &self.told
    }

    /// How much is remembered.
    pub(super) fn things(&self) -> usize {
        let unnamed = self.used.len().saturating_sub(self.named);
        self.told.len().saturating_add(self.resting.len()).saturating_add(unnamed)
    }

    /// As whose it is told what this repository spends, which is so many seconds more.
    fn whose(&mut self, name: &Arc<str>, seconds: f64) -> Whose {
        let used = self.uses(name, seconds);
        let repository = Whose::Repository(name.clone());
        if self.told.contains_key(&repository) {
            return repository;
        }
        if self.named < REPOSITORIES {
            self.named = self.named.saturating_add(1);
        } else if !self.takes_a_place(name, used) {
            return Whose::Others;
        }
        let before = self.resting.remove(name).unwrap_or_default();
        self.told.insert(repository.clone(), before);
        repository
    }

    /// Makes room for a repository that has used this much, if it is to be told by name.
    fn takes_a_place(&mut self, name: &Arc<str>, used: f64) -> bool {
        if self.resting.len() >= RESTING && !self.resting.contains_key(name) {
            return false;
        }
        let named = self.told.keys().filter_map(|whose| match whose {
            Whose::Repository(name) => Some((self.used.get(name).copied().unwrap_or_default().own, name)),
            _ => None,
        });
        let Some((least, whose)) = named.min_by(|(one, _), (other, _)| one.total_cmp(other)) else { return false };
        if used <= least * LEAD {
            return false;
        }
        let whose = whose.clone();
        if let Some(spent) = self.told.remove(&Whose::Repository(whose.clone())) {
            self.resting.insert(whose, spent);
        }
        true
    }

    /// A repository has used so many seconds more. Returns how many in all, as far as it is known. Where there is no room for one that is new, it takes
    /// the place of the one that used least, and may have used as much itself: so one that uses much is not forgotten among many that use little.
    fn uses(&mut self, name: &Arc<str>, seconds: f64) -> f64 {
        if let Some(used) = self.used.get_mut(name) {
            used.own += seconds;
            return used.own;
        }
        let mut used = Use { own: seconds, perhaps: 0.0 };
        if self.used.len() >= REPOSITORIES.saturating_add(WEIGHED) {
            let unnamed = self.used.iter().filter(|(name, _)| !self.told.contains_key(&Whose::Repository(Arc::clone(name))));
            let least = unnamed.min_by(|(_, one), (_, other)| one.most().total_cmp(&other.most())).map(|(name, _)| name.clone());
            used.perhaps = least.and_then(|name| self.used.remove(&name)).unwrap_or_default().most();
        }
        self.used.insert(name.clone(), used);
        seconds
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn busy(seconds: u32) -> Spent {
        Spent { jobs: 1, busy: f64::from(seconds), ..Spent::default() }
    }

    fn repository(number: usize) -> Whose {
        Whose::Repository(format!("acme/{number}").into())
    }

    #[test]
    fn repository_that_uses_much_takes_the_place_of_one_that_uses_little_and_no_sum_becomes_less() {
        let mut shares = Shares::default();
        for number in 0..REPOSITORIES {
            shares.add(repository(number), busy(100));
        }
        let late = REPOSITORIES;
        for (seconds, expected) in [(100, None), (25, None), (1, Some(1.0)), (10, Some(11.0))] {
            shares.add(repository(late), busy(seconds));
            assert_eq!(shares.told().get(&repository(late)).map(|spent| spent.busy), expected, "{seconds}");
        }
        assert_eq!(shares.told().get(&Whose::Others).unwrap().busy, 125.0);
        let (first, named) = (repository(0), |shares: &Shares| shares.told().len() - 1);
        assert_eq!((shares.told().get(&first), named(&shares)), (None, REPOSITORIES));
        shares.add(first.clone(), busy(60));
        assert_eq!((shares.told().get(&first).unwrap().busy, named(&shares)), (160.0, REPOSITORIES), "it goes on from its sum");
    }

    #[test]
    fn memory_is_bounded_and_one_that_uses_much_is_found_among_many() {
        let mut shares = Shares::default();
        for number in 0..3 * (REPOSITORIES + WEIGHED) {
            shares.add(repository(number), busy(10));
            if number > REPOSITORIES + WEIGHED {
                shares.add(Whose::Repository("acme/large".into()), busy(5));
            }
        }
        assert!(shares.told().contains_key(&Whose::Repository("acme/large".into())));
        assert_eq!((shares.told().len(), shares.resting.len()), (REPOSITORIES + 1, 1), "those that use little do not take turns");
        assert!(shares.things() <= REPOSITORIES + 1 + WEIGHED + RESTING, "{}", shares.things());
    }

    #[test]
    fn sums_that_are_kept_are_bounded() {
        let mut shares = Shares::default();
        for number in 0..REPOSITORIES + RESTING + 100 {
            shares.add(repository(number), busy(u32::try_from(number * number).unwrap()));
        }
        assert_eq!((shares.told().len(), shares.resting.len()), (REPOSITORIES + 1, RESTING));
    }

    proptest! {
        #[test]
        fn every_second_is_told_once_and_no_sum_becomes_less(
            uses in proptest::collection::vec((0_usize..REPOSITORIES + 20, 1_u32..1_000), 1..2_000),
        ) {
            let (mut shares, mut all, mut last) = (Shares::default(), 0.0, BTreeMap::<Whose, f64>::new());
            for (number, seconds) in uses {
                shares.add(repository(number), busy(seconds));
                all += f64::from(seconds);
                let whose = repository(number);
                for whose in [whose, Whose::Others] {
                    let Some(spent) = shares.told().get(&whose) else { continue };
                    prop_assert!(spent.busy >= last.get(&whose).copied().unwrap_or_default(), "{whose:?}");
                    last.insert(whose, spent.busy);
                }
            }
            let told: f64 = shares.told().values().chain(shares.resting.values()).map(|spent| spent.busy).sum();
            prop_assert!((told - all).abs() < 1e-6, "{told} of {all}");
            prop_assert!(shares.told().len() <= REPOSITORIES + 1);
        }
    }
}
