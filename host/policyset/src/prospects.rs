//! What the fleets of pools would be by now if policies in shadow decided: as it was found last, and as it was told last.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pacer_cluster::object::ObjectKey;
use pacer_core::would_be::Prospect;

/// Pools that a set tells of; of those beyond that only metrics tell.
const TOLD: usize = 20;

/// A pool, `namespace/name`.
pub type PoolName = Arc<str>;

/// The findings, by policy set and pool. Empty where no policy is in shadow.
#[derive(Debug, Default)]
pub struct Prospects {
    found: Mutex<BTreeMap<ObjectKey, BTreeMap<PoolName, Found>>>,
    simulations: AtomicU64,
    dropped: AtomicU64,
    missed: AtomicU64,
}

/// What was counted since the process began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimulationTotals {
    /// Simulations that ended, whatever they found.
    pub simulations: u64,
    /// Records that were dropped because a pool has more of them than are remembered.
    pub dropped: u64,
    /// Changes for which there was no room.
    pub missed: u64,
}

#[derive(Debug)]
struct Found {
    last: Prospect,
    /// The one that statuses tell, until another one is news.
    told: Prospect,
}

impl Prospects {
    /// Takes what was found about a pool whose policies in shadow are of this set.
    pub fn find(&self, set: &ObjectKey, pool: &PoolName, prospect: Prospect) {
        let mut found = self.lock();
        let of_set = found.entry(set.clone()).or_default();
        let told = of_set.remove(pool).map(|before| before.told).filter(|told| !prospect.is_news(told));
        of_set.insert(pool.clone(), Found { told: told.unwrap_or_else(|| prospect.clone()), last: prospect });
    }

    /// Forgets what was found about all but these pools, each with its set.
    pub fn keep(&self, pools: &BTreeSet<(ObjectKey, PoolName)>) {
        let mut found = self.lock();
        for (set, of_set) in found.iter_mut() {
            of_set.retain(|pool, _| pools.contains(&(set.clone(), pool.clone())));
        }
        found.retain(|_, of_set| !of_set.is_empty());
    }

    /// Forgets what was found about a pool.
    pub fn forget(&self, set: &ObjectKey, pool: &PoolName) {
        if let Some(of_set) = self.lock().get_mut(set) {
            of_set.remove(pool);
        }
    }

    /// What was found last, by pool.
    #[must_use]
    pub fn newest(&self) -> BTreeMap<PoolName, Prospect> {
        let found = self.lock();
        found.values().flatten().map(|(pool, found)| (pool.clone(), found.last.clone())).collect()
    }

    /// What the status of a set tells, of the first pools by name, and how many more there are.
    pub(crate) fn told(&self, set: &ObjectKey) -> (Vec<(PoolName, Prospect)>, usize) {
        let found = self.lock();
        let Some(of_set) = found.get(set) else { return (Vec::new(), 0) };
        let first = of_set.iter().take(TOLD).map(|(pool, found)| (pool.clone(), found.told.clone()));
        (first.collect(), of_set.len().saturating_sub(TOLD))
    }

    /// Counts a simulation that ended, whatever it found.
    pub fn simulated(&self) {
        self.simulations.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts records that were dropped because a pool has more of them than are remembered.
    pub fn dropped(&self, records: u64) {
        self.dropped.fetch_add(records, Ordering::Relaxed);
    }

    /// Counts a change for which there was no room.
    pub fn missed(&self) {
        self.missed.fetch_add(1, Ordering::Relaxed);
    }

    /// What was counted so far.
    #[must_use]
    pub fn totals(&self) -> SimulationTotals {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SimulationTotals { simulations: read(&self.simulations), dropped: read(&self.dropped), missed: read(&self.missed) }
    }

    /// A poisoned lock means that a thread panicked between two entries; they are still whole.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, BTreeMap<PoolName, Found>>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use pacer_core::would_be::{FleetFigures, Misses, WhyNot, WouldBe};

    use super::*;

    fn runners(number: u64, minutes: f64) -> Prospect {
        let shadow = FleetFigures { runners: number, runner_minutes: minutes, ..FleetFigures::default() };
        let finding = WouldBe {
            jobs: 1,
            recorded: FleetFigures::default(),
            in_force: FleetFigures::default(),
            shadow,
            misses: Misses::default(),
        };
        Prospect { since: Timestamp::UNIX_EPOCH, finding: Ok(finding) }
    }

    #[test]
    fn status_tells_the_same_until_there_is_news_and_metrics_the_newest() {
        let (prospects, set, pool) = (Prospects::default(), ObjectKey::new("ci", "ours"), PoolName::from("ci/web"));
        let told = || prospects.told(&set).0.pop().unwrap().1;
        for (found, expected) in [
            (runners(3, 100.0), runners(3, 100.0)),
            (runners(3, 104.0), runners(3, 100.0)),
            (runners(3, 109.0), runners(3, 100.0)),
            (runners(3, 115.0), runners(3, 115.0)),
            (runners(4, 116.0), runners(4, 116.0)),
            (
                Prospect { since: Timestamp::MAX, finding: Err(WhyNot::NoJob) },
                Prospect { since: Timestamp::MAX, finding: Err(WhyNot::NoJob) },
            ),
        ] {
            prospects.find(&set, &pool, found.clone());
            assert_eq!((told(), &prospects.newest()[&pool]), (expected, &found));
        }
        prospects.keep(&BTreeSet::from([(set.clone(), pool)]));
        assert_eq!(prospects.newest().len(), 1);
        prospects.keep(&BTreeSet::new());
        assert!(prospects.newest().is_empty() && prospects.told(&set).0.is_empty());
    }

    #[test]
    fn status_tells_of_so_many_pools_and_counts_the_others() {
        let (prospects, set) = (Prospects::default(), ObjectKey::new("ci", "ours"));
        for number in 0..TOLD + 3 {
            prospects.find(&set, &PoolName::from(format!("ci/{number:02}")), runners(1, 1.0));
        }
        let (told, more) = prospects.told(&set);
        assert_eq!((told.len(), told[0].0.as_ref(), more, prospects.newest().len()), (TOLD, "ci/00", 3, TOLD + 3));
    }
}
