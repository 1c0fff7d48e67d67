//! For how long the operator waited on purpose before it gave up runners whose starts had failed.
//!
//! A trace tells when the object of such a runner was gone, not when its container ended. What lies between is a rule of the operator and its policy's
//! answer. A run plays both by itself; a start that held them as well would be waited for twice.

use std::collections::BTreeMap;
use std::sync::Arc;

use pacer_core::policy::{Pool as Told, RestartRequest};
use pacer_core::restart::{self, Remedy, RestartLimits};
use pacer_core::scale_down::unix;
use pacer_trace::{End, History, RunnerLife};

use crate::agenda::{Moment, at, moment};
use crate::policies::Policies;
use crate::runner::Runner;
use crate::samples::Samples;
use crate::scenario::{Scenario, Start};

/// Runners that are gone so soon after each other were given up in one step, which counts as one attempt.
const STEP: Moment = 500;

impl Scenario {
    /// The same, where failed starts end with the container, if these policies were in force while it was recorded.
    #[must_use]
    pub fn without_pauses(mut self, history: &History, policies: &Policies) -> Self {
        for pool in &mut self.pools {
            let ephemeral = pool.settings.last().is_some_and(|(_, settings)| settings.ephemeral);
            let lives: Vec<&RunnerLife> = history.runners.values().filter(|life| life.pool == pool.name).collect();
            let mut pauses: BTreeMap<u32, Moment> = BTreeMap::new();
            let mut containers: BTreeMap<(Moment, Moment), Moment> = BTreeMap::new();
            for (created, took, attempt) in failures(&lives) {
                let pause = *pauses.entry(attempt).or_insert_with(|| pause(policies, ephemeral, attempt));
                containers.insert((created, took), (took - pause).max(0));
            }
            let own = |(created, start): (Moment, Start)| match start {
                Start::Failed(took) => (created, Start::Failed(containers.get(&(created, took)).copied().unwrap_or(took))),
                Start::Online(_) => (created, start),
            };
            pool.starts = Samples::of(pool.starts.all().map(own));
        }
        self
    }
}

/// Failed starts: when the runner was made, how long it existed, and which failed attempt of its pool in a row it was.
fn failures(lives: &[&RunnerLife]) -> Vec<(Moment, Moment, u32)> {
    let online = lives.iter().filter_map(|life| Some((moment(life.registered?), None)));
    let failed = lives.iter().filter_map(|life| match (life.registered, life.ended) {
        (None, Some((ended, End::Failed))) => Some((moment(ended), Some(moment(life.created)))),
        _ => None,
    });
    let mut events: Vec<(Moment, Option<Moment>)> = online.chain(failed).collect();
    events.sort_unstable();
    let (mut attempts, mut last) = (0_u32, None);
    let mut found = Vec::new();
    for (now, failed) in events {
        let Some(created) = failed else {
            (attempts, last) = (0, None);
            continue;
        };
        if last.is_none_or(|last| now - last > STEP) {
            attempts = attempts.saturating_add(1);
        }
        last = Some(now);
        found.push((created, (now - created).max(0), attempts));
    }
    found
}

/// How long a runner whose container failed before it registered is kept at this attempt.
fn pause(policies: &Policies, ephemeral: bool, attempt: u32) -> Moment {
    let now = at(0);
    let mut runner = Runner::new(Arc::from("failed"), 0, None, ephemeral, 0, 0);
    runner.stopped(1, 0);
    let Some(trouble) = runner.assessment.trouble else { return 0 };
    let subjects = vec![restart::subject(&runner.facts, &trouble, attempt, now)];
    let pool = Told { ephemeral, ..Told::default() };
    let verdicts = policies.restart(RestartRequest { now: unix(now), pool, subjects, ..RestartRequest::default() });
    // A policy that wants to look again does not say for how long it would.
    let verdict = verdicts.first().filter(|verdict| ["replace", "recreate"].contains(&verdict.action.as_str()));
    let remedy = verdict.map(|verdict| restart::remedy(Some(verdict), &trouble, false, attempt, &RestartLimits::default(), now));
    match remedy {
        Some(Remedy::Wait { recheck, .. }) => Moment::try_from(recheck.as_millis()).unwrap_or(Moment::MAX),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use pacer_trace::{Record, Trace, What};

    use super::*;
    use crate::run::simulate;
    use crate::tests::{at as second, settings, trace};

    /// A job that waits for three failed starts, each two seconds long, and a good one of three seconds. Between them the operator waited as its rules and
    /// the shipped policy have it: one, ten and twenty seconds.
    fn failing() -> Trace {
        let mut trace = trace(settings(0, 5, true, 0), &[(10, 60)], &[]);
        trace.records.retain(|record| !matches!(record.what, What::JobStarted { .. } | What::JobCompleted { .. }));
        let mut now = 10;
        for (number, pause) in [1, 10, 20].into_iter().enumerate() {
            let runner: Arc<str> = Arc::from(format!("failed-{number}"));
            trace
                .records
                .push(Record { at: second(now), what: What::RunnerCreated { runner: runner.clone(), pool: "ci/web".into() } });
            now += 2 + pause;
            trace.records.push(Record { at: second(now), what: What::RunnerEnded { runner, why: End::Failed } });
        }
        let runner: Arc<str> = Arc::from("good");
        for (after, what) in [
            (0, What::RunnerCreated { runner: runner.clone(), pool: "ci/web".into() }),
            (3, What::RunnerRegistered { runner: runner.clone() }),
            (3, What::JobStarted { job: 1, runner: Some(runner.clone()) }),
            (63, What::JobCompleted { job: 1 }),
            (64, What::RunnerEnded { runner, why: End::Finished }),
        ] {
            trace.records.push(Record { at: second(now + after), what });
        }
        trace
    }

    #[test]
    fn failed_start_ends_with_its_container_whatever_the_operator_waited_afterwards() {
        let history = History::of(&failing());
        let starts = |scenario: &Scenario| scenario.pools[0].starts.values().collect::<Vec<_>>();
        let recorded = Scenario::of(&history).unwrap();
        let seconds = |all: [i64; 3]| all.map(|second| Start::Failed(second * 1_000)).into_iter().chain([Start::Online(3_000)]);
        assert_eq!(starts(&recorded), seconds([3, 12, 22]).collect::<Vec<_>>());
        let own = recorded.without_pauses(&history, &Policies::builtin().unwrap());
        assert_eq!(starts(&own), seconds([2, 2, 2]).collect::<Vec<_>>());
    }

    #[test]
    fn simulated_pauses_after_failed_starts_are_as_long_as_recorded_ones() {
        let history = History::of(&failing());
        let policies = Policies::builtin().unwrap();
        let scenario = Scenario::of(&history).unwrap().without_pauses(&history, &policies);
        let after_three =
            (0..200).map(|seed| simulate(&scenario, &policies, seed, |_| {}).total).find(|total| total.failed_starts == 3);
        // Recorded: 4 starts of 2, 2, 2 and 3 seconds, and pauses of 1, 10 and 20.
        let waited = after_three.expect("one of the seeds has three failures").wait_max;
        assert!((40.0..41.5).contains(&waited), "{waited}");
    }

    #[test]
    fn attempts_are_counted_as_the_operator_counts_them() {
        let life = |created: i64, registered: Option<i64>, ended: Option<(i64, End)>| RunnerLife {
            created: at(created),
            registered: registered.map(at),
            ended: ended.map(|(ended, why)| (at(ended), why)),
            pool: "ci/web".into(),
            node: None,
        };
        let lives = [
            life(0, None, Some((1_000, End::Failed))),
            // Given up in one step.
            life(0, None, Some((1_200, End::Failed))),
            life(2_000, None, Some((9_000, End::Failed))),
            life(2_000, Some(9_500), None),
            life(2_000, None, Some((20_000, End::Failed))),
            // It was given up while it started.
            life(3_000, None, Some((21_000, End::Unknown))),
        ];
        let found = failures(&lives.iter().collect::<Vec<_>>());
        assert_eq!(found, [(0, 1_000, 1), (0, 1_200, 1), (2_000, 7_000, 2), (2_000, 18_000, 1)]);
    }
}
