//! What a run, or what was recorded, comes to.

use std::collections::BTreeMap;
use std::sync::Arc;

use pacer_trace::{End, History};
use serde::Serialize;

use crate::agenda::{Moment, moment};
use crate::nodes::{self, Occupied};
use crate::scenario::Scenario;
use crate::volumes::Use;
use crate::waits::Waits;

/// Figures of one pool, or of all.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Figures {
    /// Jobs that were queued.
    pub jobs: u64,
    /// Of these, those that had not started at the end. Their waits count as far as they got.
    pub unstarted: u64,
    /// Median wait from queued to started, seconds, by nearest rank.
    pub wait_p50: f64,
    /// 95th percentile.
    pub wait_p95: f64,
    /// Longest wait, seconds.
    pub wait_max: f64,
    /// Minutes for which runners existed, summed.
    pub runner_minutes: f64,
    /// Of these, minutes in which they were online without a job.
    pub idle_minutes: f64,
    /// Runners that were made.
    pub starts: u64,
    /// For each job that was queued.
    pub starts_per_job: f64,
    /// Runners that never came online.
    pub failed_starts: u64,
    /// Runners that went without a job, to make the fleet smaller.
    pub removals: u64,
    /// Removals that GitHub refused, because the runner had a job by then.
    pub refused_removals: u64,
    /// Minutes for which nodes had runners, summed; 0 where none was recorded. Of all pools together a node counts once.
    pub node_minutes: f64,
    /// Removals after which a node had no runner of any pool.
    pub nodes_freed: u64,
    /// Volumes that were made; 0 where no runner has any.
    pub volumes_made: u64,
    /// Volumes that a runner took over from another.
    pub volumes_reused: u64,
    /// Pages of listings of runners, and calls for removals; 0 where no scope was recorded. A pool has all listings of its scope; of all pools together
    /// each counts once.
    pub github_calls: u64,
    /// Runners that exist at the end.
    pub runners: u64,
    /// What they cost, in the currency of the [prices](crate::RunnerPrices); 0 without any.
    pub cost: f64,
}

/// What figures are made from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) waits: Vec<Moment>,
    pub(crate) unstarted: u64,
    pub(crate) existed: Moment,
    pub(crate) idle: Moment,
    pub(crate) starts: u64,
    pub(crate) failed: u64,
    pub(crate) removals: u64,
    pub(crate) refused: u64,
    pub(crate) occupied: Occupied,
    pub(crate) volumes: Use,
    pub(crate) calls: u64,
    pub(crate) runners: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Self) {
        self.waits.extend(&other.waits);
        self.unstarted += other.unstarted;
        self.existed += other.existed;
        self.idle += other.idle;
        self.starts += other.starts;
        self.failed += other.failed;
        self.removals += other.removals;
        self.refused += other.refused;
        self.volumes.add(other.volumes);
        self.runners += other.runners;
    }

    #[expect(clippy::cast_precision_loss, reason = "counts and milliseconds of a trace fit into the 53 bits of an f64")]
    pub(crate) fn figures(self) -> Figures {
        let waits = Waits::of(self.waits);
        Figures {
            jobs: waits.jobs,
            unstarted: self.unstarted,
            wait_p50: waits.p50,
            wait_p95: waits.p95,
            wait_max: waits.max,
            runner_minutes: self.existed as f64 / 60_000.0,
            idle_minutes: self.idle as f64 / 60_000.0,
            starts: self.starts,
            starts_per_job: self.starts as f64 / waits.jobs.max(1) as f64,
            failed_starts: self.failed,
            removals: self.removals,
            refused_removals: self.refused,
            node_minutes: self.occupied.time as f64 / 60_000.0,
            nodes_freed: self.occupied.freed,
            volumes_made: self.volumes.made,
            volumes_reused: self.volumes.reused,
            github_calls: self.calls,
            runners: self.runners,
            cost: 0.0,
        }
    }
}

/// Figures by pool, and those of all together, which share their nodes and listings.
pub(crate) fn together(
    mut tallies: Vec<(String, Tally)>,
    (of_pools, occupied): (BTreeMap<usize, Occupied>, Occupied),
    (calls_of_pools, calls): (Vec<u64>, u64),
) -> (BTreeMap<String, Figures>, Figures) {
    for (pool, occupied) in of_pools {
        tallies.get_mut(pool).into_iter().for_each(|(_, tally)| tally.occupied = occupied);
    }
    tallies.iter_mut().zip(calls_of_pools).for_each(|((_, tally), calls)| tally.calls = calls);
    let mut all = Tally { occupied, calls, ..Tally::default() };
    tallies.iter().for_each(|(_, tally)| all.add(tally));
    (tallies.into_iter().map(|(name, tally)| (name, tally.figures())).collect(), all.figures())
}

/// What was recorded, counted as a simulation counts: by pool, and together.
#[must_use]
pub fn recorded(history: &History, scenario: &Scenario) -> (BTreeMap<String, Figures>, Figures) {
    let (begins, ends) = (scenario.begins, scenario.ends);
    let index: BTreeMap<&Arc<str>, usize> = scenario.pools.iter().enumerate().map(|(index, pool)| (&pool.name, index)).collect();
    let mut tallies: Vec<(String, Tally)> = scenario.pools.iter().map(|pool| (pool.name.to_string(), Tally::default())).collect();
    for job in scenario.jobs.iter().filter(|job| job.has_a_wait()) {
        let Some((_, tally)) = job.pool.and_then(|pool| tallies.get_mut(pool)) else { continue };
        let started = history.jobs.get(&job.id).and_then(|life| life.started).map(moment);
        tally.unstarted += u64::from(started.is_none());
        tally.waits.push((started.unwrap_or(ends) - job.queued).max(0));
    }
    let mut worked: BTreeMap<&Arc<str>, (Moment, Moment)> = BTreeMap::new();
    for job in history.jobs.values() {
        let (Some(runner), Some(started)) = (&job.runner, job.started) else { continue };
        let over = job.completed.map_or(ends, moment).min(ends);
        let (work, last) = worked.entry(runner).or_default();
        *work += (over - moment(started).max(begins)).max(0);
        *last = over.max(*last);
    }
    for (name, life) in &history.runners {
        let Some((_, tally)) = index.get(&life.pool).and_then(|pool| tallies.get_mut(*pool)) else { continue };
        let (created, gone) = (moment(life.created), life.ended.map_or(ends, |(at, _)| moment(at)).min(ends));
        if gone <= begins {
            continue;
        }
        let (work, last) = worked.get(name).copied().unwrap_or_default();
        tally.existed += (gone - created.max(begins)).max(0);
        tally.starts += u64::from(created >= begins);
        tally.runners += u64::from(life.ended.is_none());
        if let Some(online) = life.registered.map(|at| moment(at).max(begins)) {
            // From a job's end its ephemeral runner takes no other.
            let over = if matches!(life.ended, Some((_, End::Finished))) && last > 0 { last.min(gone) } else { gone };
            tally.idle += (over - online - work).max(0);
        }
        match life.ended {
            Some((_, End::Failed)) => tally.failed += 1,
            Some((_, End::Removed)) => tally.removals += 1,
            _ => {}
        }
    }
    let removals: Vec<u64> = tallies.iter().map(|(_, tally)| tally.removals).collect();
    let read = |scope: &Arc<str>| history.surroundings.pages.get(scope).copied().unwrap_or_default();
    let read: Vec<u64> = scenario.scopes().names().iter().map(read).collect();
    together(
        tallies,
        nodes::recorded(history, &scenario.nodes, &index, (begins, ends)),
        scenario.scopes().calls(&read, &removals),
    )
}
