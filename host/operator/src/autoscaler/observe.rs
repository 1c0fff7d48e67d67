//! The runners of a target, as far as demand is concerned.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;
use pacer_api::{Runner, RunnerReplicaSet};
use pacer_cluster::object::Uid;
use pacer_cluster::owner::controller;
use pacer_core::demand::{self, Demand};
use pacer_core::ledger::Ledger;
use pacer_core::policy::Counts;
use pacer_core::replacement::Accounted;
use pacer_core::room::NoRoom;
use pacer_core::runner_job::RunnerJob;

use super::{Autoscalers, Subject};
use crate::observe::Known;
use crate::published::FinishedRunners;
use crate::target::Target;

/// The runners of a target.
#[derive(Default)]
pub(super) struct Fleet {
    /// Names of its runners, for [`demand::assess`].
    pub(super) runners: demand::Fleet,
    /// Runners that exist and are not on their way out; none while a RunnerReplicaSet has not been counted yet.
    pub(super) live: Option<u32>,
    /// Runners of all its RunnerReplicaSets by phase.
    pub(super) counts: Counts,
    /// Names of those that `counts` has and that are not on their way out, for each RunnerReplicaSet.
    pub(super) unfinished: Vec<Arc<[String]>>,
    /// Those that wait for room in the cluster.
    pub(super) no_room: NoRoom,
    /// Finished runners that the target's number still includes.
    pub(super) finished_unaccounted: u64,
    /// Each RunnerReplicaSet, and how many of its runners have finished.
    sets: Vec<Finished>,
    /// Its Runner objects.
    pub(super) objects: Vec<Arc<Runner>>,
}

struct Finished {
    set: Uid,
    count: u64,
}

impl Fleet {
    /// How many runners have finished since the process started.
    pub(super) fn finished(&self) -> u64 {
        self.sets.iter().fold(0, |sum, set| sum.saturating_add(set.count))
    }
}

impl Autoscalers {
    /// The runners of a target.
    pub(super) fn fleet(&self, target: &Target) -> Fleet {
        let sets = self.cluster.stores.sets_of(target);
        let mut fleet = Fleet { live: Some(0), ..Fleet::default() };
        // How many have finished is read before who has: whoever is counted is named as well.
        for set in &sets {
            self.add(&mut fleet, set);
        }
        let ended = self.memory.fleets.finished.read(&target.reference(), FinishedRunners::ends_by_name);
        let ended: BTreeMap<Arc<str>, Timestamp> = ended.unwrap_or_default();
        fleet.objects =
            sets.iter().filter_map(|set| Uid::of(&**set).ok()).flat_map(|set| self.cluster.stores.owned_by(set)).collect();
        let names = fleet.objects.iter().map(|runner| Arc::from(runner.name_any()));
        let (leaving, present) = names.partition(|name: &Arc<str>| ended.contains_key(name));
        fleet.runners = demand::Fleet { present, ended, leaving };
        fleet
    }

    fn add(&self, fleet: &mut Fleet, set: &RunnerReplicaSet) {
        let Ok(uid) = Uid::of(set) else { return };
        let summary = self.memory.fleets.summaries.get(&uid);
        fleet.live = fleet.live.zip(summary.as_ref()).map(|(live, summary)| live.saturating_add(summary.alive));
        let summary = summary.unwrap_or_default();
        let effective = set.spec.effective_time.as_ref().map(|time| time.0);
        // As many as had finished when the others were counted: a number that is held by who is alive must not be met twice.
        let accounted = summary.accounted.filter(|accounted| Some(accounted.effective) == effective);
        let unaccounted = accounted.map_or(0, |accounted| summary.finished.saturating_sub(accounted.finished));
        fleet.finished_unaccounted = fleet.finished_unaccounted.saturating_add(unaccounted);
        add(&mut fleet.counts, &summary.counts);
        fleet.unfinished.push(summary.unfinished);
        fleet.no_room = fleet.no_room.and(summary.no_room);
        fleet.sets.push(Finished { set: uid, count: summary.finished });
    }

    /// Passes on what events and job lists say of single runners: who is named has registered, and is busy while its job is not over. That is known
    /// here before any listing of runners shows it, and where a job is shorter than the time between two of them, only here.
    pub(super) async fn tell_runners(&self, of: Subject<'_>, fleet: &Fleet, ledger: &Ledger, demand: &Demand) {
        let named = demand.named(ledger);
        for runner in &fleet.objects {
            let Ok(uid) = Uid::of(&**runner) else { continue };
            let before = self.memory.reports.jobs.read(&uid, RunnerJob::clone);
            let jobs = match named.get(runner.name_any().as_str()) {
                Some(jobs) => jobs.as_slice(),
                None if before.as_ref().is_some_and(|before| demand.has_ended(before)) => &[],
                None => continue,
            };
            let told = RunnerJob::of(before.as_ref(), jobs.iter().copied());
            if before.as_ref() == Some(&told) {
                continue;
            }
            let working = told.working;
            let changed = before.as_ref().map(|before| before.working) != Some(working);
            self.memory.reports.jobs.set(&uid, told);
            let first = jobs.iter().map(|(_, job)| *job).min_by_key(|job| job.since);
            if let (None, Some(job)) = (before, first)
                && let Some(online) = self.memory.known.read(&uid, |known: &Known| known.online_by(job)).flatten()
            {
                self.memory.memos.change(of.uid, |memo| memo.job_started(job, online));
            }
            let namespace = runner.namespace().unwrap_or_default();
            if let (true, Some(set)) = (changed, controller::<RunnerReplicaSet>(&**runner)) {
                self.cluster.wake.set(&namespace, set.name).await;
            }
            // It says what it works on, and one that is on its way out is not looked at by its set.
            self.cluster.wake.runner(&namespace, &runner.name_any()).await;
        }
    }

    /// Tells the RunnerReplicaSets that a number with this `effectiveTime` accounts for those that had finished when they were counted.
    pub(super) fn announce(&self, fleet: &Fleet, effective: Timestamp) {
        for Finished { set, count } in &fleet.sets {
            let number = Accounted { effective, finished: *count };
            self.memory.reports.accepted.change(set, |accepted| accepted.announce(number));
        }
    }
}

fn add(sum: &mut Counts, more: &Counts) {
    for (sum, more) in [
        (&mut sum.pending, more.pending),
        (&mut sum.starting, more.starting),
        (&mut sum.idle, more.idle),
        (&mut sum.busy, more.busy),
        (&mut sum.stopping, more.stopping),
    ] {
        *sum = sum.saturating_add(more);
    }
}
