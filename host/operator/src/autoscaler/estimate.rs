//! When jobs that wait will start: said once of each job, and compared with what came of it.

use std::collections::HashMap;

use jiff::Timestamp;
use kube::ResourceExt;
use pacer_api::{HorizontalRunnerAutoscaler, Runner};
use pacer_cluster::object::Uid;
use pacer_core::estimate::starts;
use pacer_core::ledger::{Job, State};
use pacer_core::runner_job::RunnerJob;
use pacer_core::waiting::{self, Pool, Standing};

use super::decide::Decided;
use super::observe::Fleet;
use super::spec::Spec;
use super::{Autoscalers, Observation, Subject};
use crate::target::Target;
use crate::waiting as evidence;

/// Of how many jobs that wait it is said when they start, those that were queued first. A pass would cost more for each job that waits behind them,
/// of which little can be known; its turn comes.
const ESTIMATED: usize = 2_000;

impl Autoscalers {
    /// Says of every job that is new among the first that wait when it will start, the target having been given the number that was decided, and
    /// scores what was said of those that have started since.
    pub(super) fn estimate(&self, of: Subject<'_>, spec: &Spec<'_>, seen: &Observation, decided: &Decided) {
        let (pace, desired) = (decided.pace, decided.decision.desired);
        let jobs = &seen.demand.jobs;
        let waiting = seen.demand.queue(ESTIMATED);
        let lacks = self.memory.memos.change(of.uid, |memo| {
            memo.pace = pace;
            let waits = |id| jobs.get(&id).is_some_and(|job| job.state == State::Queued);
            let started = |id| jobs.get(&id).filter(|job| job.state == State::InProgress).map(|job| job.since);
            for (outcome, error) in memo.estimates.started(waits, started) {
                memo.scored(outcome);
                self.memory.estimator.errors.observe(error.as_secs_f64());
            }
            memo.estimates.lack(waiting.iter().map(|(_, id)| *id))
        });
        if !lacks {
            return;
        }
        let queued: Vec<Timestamp> = waiting.iter().map(|(at, _)| *at).collect();
        let pool =
            self.pool(of.object, &spec.sources.target, &seen.fleet, seen.demand.jobs.values().map(AsRef::as_ref), of.clock.now);
        let made = starts(&Pool { wanted: desired, ..pool }, &pace, &queued, of.clock.now);
        let made = waiting.into_iter().map(|(_, id)| id).zip(made);
        self.memory.memos.change(of.uid, |memo| memo.estimates.keep(made));
    }

    /// The pool as jobs that wait see it. Of the jobs only those that run are looked at.
    pub(super) fn pool<'a>(
        &self,
        autoscaler: &HorizontalRunnerAutoscaler,
        target: &Target,
        fleet: &Fleet,
        jobs: impl Iterator<Item = &'a Job>,
        now: Timestamp,
    ) -> Pool {
        let running = jobs.filter(|job| job.state == State::InProgress);
        let working: HashMap<&str, Timestamp> = running.filter_map(|job| Some((job.runner.as_deref()?, job.since))).collect();
        let ephemeral = target.config().is_ephemeral();
        let runner = |runner: &Runner| {
            let (name, uid) = (runner.name_any(), Uid::of(runner).ok());
            // It takes no other job, although its pod ends a moment later.
            let has_worked =
                || ephemeral && uid.as_ref().and_then(|uid| self.memory.reports.jobs.read(uid, had_job)) == Some(true);
            let (standing, since) = match working.get(name.as_str()) {
                _ if fleet.runners.ended.contains_key(name.as_str()) => (Standing::Leaving, None),
                Some(since) => (Standing::Busy, Some(*since)),
                None if has_worked() => (Standing::Leaving, None),
                None => match uid.and_then(|uid| self.memory.estimator.standings.of(&uid)) {
                    Some(found) => {
                        let trouble = found.trouble.as_ref().map(|trouble| (trouble.cause.as_str(), trouble.message.as_str()));
                        (evidence::standing(found.state, trouble), Some(found.since))
                    }
                    None => (Standing::Created, runner.metadata.creation_timestamp.as_ref().map(|time| time.0)),
                },
            };
            waiting::Runner { name, standing, since }
        };
        let sets = self.cluster.stores.sets_of(target);
        Pool {
            wanted: target.replicas(),
            autoscaler: Some(evidence::autoscaler(autoscaler)),
            runners: fleet.objects.iter().map(|one| runner(one)).collect(),
            backoff: evidence::backoff(sets.iter().map(AsRef::as_ref), now),
            github: evidence::github(target),
            refused: evidence::refused(target),
        }
    }
}

fn had_job(told: &RunnerJob) -> bool {
    told.ended.is_some()
}
