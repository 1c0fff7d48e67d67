//! GitHub: who waits, who is idle, who gets what.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::agenda::Moment;
use crate::random::Random;
use crate::scenario::Scenario;

/// Jobs that ask for the same labels.
#[derive(Debug)]
struct Class {
    /// Pools whose runners fit.
    pools: Vec<usize>,
    /// When they were queued, and which.
    waiting: BTreeSet<(Moment, usize)>,
}

#[derive(Debug)]
pub(crate) struct GitHub {
    classes: Vec<Class>,
    /// By index of the job, the index of its class.
    class_of: Vec<usize>,
    /// By pool, the classes that its runners fit.
    fitting: Vec<Vec<usize>>,
    /// By pool, runners without a job.
    idle: Vec<Vec<usize>>,
    /// Where a runner is among them.
    place: BTreeMap<usize, usize>,
    random: Random,
}

impl GitHub {
    pub(crate) fn new(scenario: &Scenario, seed: u64) -> Self {
        let mut known: BTreeMap<Arc<[Arc<str>]>, usize> = BTreeMap::new();
        let mut classes: Vec<Class> = Vec::new();
        let mut class_of = Vec::with_capacity(scenario.jobs.len());
        for job in &scenario.jobs {
            let class = *known.entry(job.labels.clone()).or_insert_with(|| {
                let pools = scenario.pools.iter().enumerate().filter(|(_, pool)| pool.fits(&job.labels));
                classes.push(Class { pools: pools.map(|(index, _)| index).collect(), waiting: BTreeSet::new() });
                classes.len() - 1
            });
            class_of.push(class);
        }
        let fits = |pool: usize| {
            classes.iter().enumerate().filter(move |(_, class)| class.pools.contains(&pool)).map(|(index, _)| index).collect()
        };
        let fitting = (0..scenario.pools.len()).map(fits).collect();
        let idle = scenario.pools.iter().map(|_| Vec::new()).collect();
        Self { classes, class_of, fitting, idle, place: BTreeMap::new(), random: Random::new(seed, 1) }
    }

    /// A job is queued. Returns the runner that gets it at once: any that is idle and fits.
    pub(crate) fn queue(&mut self, job: usize, at: Moment) -> Option<usize> {
        let class = self.class_of.get(job).and_then(|class| self.classes.get_mut(*class))?;
        let idle = |pool: &usize| self.idle.get(*pool).map_or(0, Vec::len);
        let mut drawn = match class.pools.iter().map(idle).sum() {
            0 => {
                class.waiting.insert((at, job));
                return None;
            }
            count => self.random.below(count),
        };
        let mut found = None;
        for pool in &class.pools {
            let runners = self.idle.get(*pool)?;
            match runners.get(drawn) {
                Some(runner) => {
                    found = Some((*pool, *runner));
                    break;
                }
                None => drawn = drawn.saturating_sub(runners.len()),
            }
        }
        let (pool, runner) = found?;
        self.leave(pool, runner);
        Some(runner)
    }

    /// A job is called off. Whether it still waited.
    pub(crate) fn cancel(&mut self, job: usize, queued: Moment) -> bool {
        let class = self.class_of.get(job).and_then(|class| self.classes.get_mut(*class));
        class.is_some_and(|class| class.waiting.remove(&(queued, job)))
    }

    /// A runner is free. Returns the job that it gets at once: the one that waits longest; else it is idle.
    pub(crate) fn offer(&mut self, pool: usize, runner: usize) -> Option<usize> {
        let fitting = self.fitting.get(pool)?;
        let first = fitting.iter().filter_map(|class| Some((*self.classes.get(*class)?.waiting.first()?, *class))).min();
        if let Some((job, class)) = first {
            self.classes.get_mut(class)?.waiting.remove(&job);
            return Some(job.1);
        }
        let idle = self.idle.get_mut(pool)?;
        self.place.insert(runner, idle.len());
        idle.push(runner);
        None
    }

    /// A runner leaves. Whether it was idle: GitHub removes no other.
    pub(crate) fn leave(&mut self, pool: usize, runner: usize) -> bool {
        let (Some(place), Some(idle)) = (self.place.remove(&runner), self.idle.get_mut(pool)) else { return false };
        idle.swap_remove(place);
        if let Some(moved) = idle.get(place) {
            self.place.insert(*moved, place);
        }
        true
    }
}
