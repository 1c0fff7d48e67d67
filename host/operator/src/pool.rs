//! What policies are told about the pool.

use jiff::Timestamp;
use kube::ResourceExt;
use pacer_api::{Runner, RunnerConfig, RunnerReplicaSet};
use pacer_core::facts::RunnerFacts;
use pacer_core::phase::{self, Assessment};
use pacer_core::policy::{ApiBudget, Counts, Pool};
use pacer_core::room::NoRoom;
use pacer_core::scale_down::{seconds, since};
use pacer_core::target::distinct;
use pacer_github::Budget;

use crate::published::Past;
use crate::template;

/// When the number of runners last changed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scaled {
    /// The last complete increase.
    pub up: Option<Timestamp>,
    /// The last decrease.
    pub down: Option<Timestamp>,
}

/// The pool that a RunnerReplicaSet is.
#[must_use]
pub fn of_set(
    set: &RunnerReplicaSet,
    members: &[(RunnerFacts, Assessment)],
    budget: Option<ApiBudget>,
    scaled: Scaled,
    past: Past,
    now: Timestamp,
) -> Pool {
    let config = &set.spec.template.spec.config;
    Pool {
        namespace: set.namespace().unwrap_or_default(),
        name: set.name_any(),
        kind: "RunnerReplicaSet".to_owned(),
        labels: labels(config),
        min_replicas: past.bounds.map(|bounds| bounds.min),
        max_replicas: past.bounds.map(|bounds| bounds.max),
        desired: set.spec.replicas_or_default(),
        counts: phase::counts(members.iter().map(|(_, assessment)| assessment.phase)),
        last_scale_up: scaled.up.map(|at| since(at, now)),
        last_scale_down: scaled.down.map(|at| since(at, now)),
        revision: template::revision(set),
        ephemeral: config.is_ephemeral(),
        budget,
        start_time: past.start_time,
        run_time: past.run_time,
        arrivals: past.arrivals,
        attributes: NoRoom::among(members.iter().map(|(_, assessment)| assessment)).attributes(now),
    }
}

/// The pool of one that a stand-alone Runner is.
#[must_use]
pub fn of_runner(runner: &Runner, assessment: &Assessment, budget: Option<ApiBudget>) -> Pool {
    Pool {
        namespace: runner.namespace().unwrap_or_default(),
        name: runner.name_any(),
        kind: "Runner".to_owned(),
        labels: labels(&runner.spec.config),
        desired: 1,
        counts: phase::counts(std::iter::once(assessment.phase)),
        ephemeral: runner.spec.config.is_ephemeral(),
        budget,
        ..Pool::default()
    }
}

/// Those of a template, where the operator's common ones are part of them.
fn labels(config: &RunnerConfig) -> Vec<String> {
    distinct(config.labels().iter().map(String::as_str)).into_iter().map(str::to_owned).collect()
}

/// GitHub's rate limit as the contract has it.
#[must_use]
pub fn api_budget(budget: &Budget) -> ApiBudget {
    ApiBudget { limit: budget.limit, remaining: budget.remaining, resets_in: seconds(budget.resets_in()) }
}

/// Runners as statuses count them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replicas {
    /// All that are not on their way out.
    pub total: u32,
    /// Of these, those whose containers run.
    pub running: u32,
}

impl Replicas {
    /// Of runners by phase, and of those that are over and hold their place.
    #[must_use]
    pub fn of(counts: &Counts, dead: u32) -> Self {
        let running = counts.starting.saturating_add(counts.idle).saturating_add(counts.busy);
        Self { total: counts.pending.saturating_add(running).saturating_add(dead), running }
    }
}

#[cfg(test)]
mod tests {
    use pacer_core::autoscale::Bounds;
    use pacer_core::phase::{Cause, Situation, Trouble};
    use pacer_core::policy::Quantiles;
    use serde_json::json;

    use super::*;

    #[test]
    fn policies_are_told_what_was_seen_and_who_has_no_room() {
        let set: RunnerReplicaSet = serde_json::from_value(json!({
            "metadata": {"name": "web-1", "namespace": "ci"},
            "spec": {"replicas": 3, "selector": {}, "template": {"spec": {"repository": "acme/app", "labels": ["web", "Common", "common"]}}},
        }))
        .unwrap();
        let (since, now) = (Timestamp::from_second(100).unwrap(), Timestamp::from_second(190).unwrap());
        let trouble = Trouble {
            situation: Situation::NotStarting,
            cause: Cause::Unschedulable,
            since,
            exit_code: None,
            message: String::new(),
        };
        let waiting = Assessment { phase: phase::Phase::Pending, trouble: Some(trouble) };
        let members = [(RunnerFacts::default(), waiting)];
        let starts = Quantiles { samples: 20, p50: 10, p90: 20, p99: 30 };
        let runs = Quantiles { samples: 9, p50: 60, p90: 70, p99: 80 };
        let past = Past {
            start_time: Some(starts),
            run_time: Some(runs),
            arrivals: vec![2, 0, 1],
            bounds: Some(Bounds { min: 1, max: 9 }),
            waiting: None,
        };
        let pool = of_set(&set, &members, None, Scaled::default(), past, now);
        assert_eq!((pool.start_time, pool.run_time, pool.arrivals), (Some(starts), Some(runs), vec![2, 0, 1]));
        assert_eq!((pool.min_replicas, pool.max_replicas), (Some(1), Some(9)));
        assert_eq!(pool.labels, ["web", "Common"], "a common label that the template has as well is one");
        let expected = [("unschedulable", "1"), ("over-quota", "0"), ("no-room-seconds", "90")];
        assert_eq!(pool.attributes, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
        assert_eq!(of_set(&set, &[], None, Scaled::default(), Past::default(), now).attributes, []);
    }
}
