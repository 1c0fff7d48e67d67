//! What policies are told about the pool.

use jiff::Timestamp;
use kube::ResourceExt;
use pacer_api::{Runner, RunnerReplicaSet};
use pacer_core::facts::RunnerFacts;
use pacer_core::phase::{Assessment, Phase};
use pacer_core::policy::{ApiBudget, Counts, Pool, Quantiles};
use pacer_core::room::NoRoom;
use pacer_core::scale_down::since;
use pacer_github::Budget;

use crate::template;

/// The pool that a set is. `start_time` is how long its runners take to start.
#[must_use]
pub fn of_set(
    set: &RunnerReplicaSet,
    members: &[(RunnerFacts, Assessment)],
    budget: Option<Budget>,
    scaled: (Option<Timestamp>, Option<Timestamp>),
    start_time: Option<Quantiles>,
    now: Timestamp,
) -> Pool {
    let config = &set.spec.template.spec.config;
    Pool {
        namespace: set.namespace().unwrap_or_default(),
        name: set.name_any(),
        kind: "RunnerReplicaSet".to_owned(),
        labels: config.labels().to_vec(),
        desired: set.spec.replicas_or_default(),
        counts: counts(members.iter().map(|(_, assessment)| assessment.phase)),
        last_scale_up: scaled.0.map(|at| since(at, now)),
        last_scale_down: scaled.1.map(|at| since(at, now)),
        revision: template::revision(set),
        ephemeral: config.is_ephemeral(),
        budget: budget.map(|budget| ApiBudget {
            limit: budget.limit,
            remaining: budget.remaining,
            resets_in: pacer_core::scale_down::seconds(budget.resets_in()),
        }),
        start_time,
        attributes: NoRoom::among(members.iter().map(|(_, assessment)| assessment)).attributes(now),
        ..Pool::default()
    }
}

/// The pool of one that a stand-alone Runner is.
#[must_use]
pub fn of_runner(runner: &Runner, assessment: &Assessment) -> Pool {
    Pool {
        namespace: runner.namespace().unwrap_or_default(),
        name: runner.name_any(),
        kind: "Runner".to_owned(),
        labels: runner.spec.config.labels().to_vec(),
        desired: 1,
        counts: counts(std::iter::once(assessment.phase)),
        ephemeral: runner.spec.config.is_ephemeral(),
        ..Pool::default()
    }
}

/// Counts phases as the contract has them. Dead runners are none of them.
#[must_use]
pub fn counts(phases: impl Iterator<Item = Phase>) -> Counts {
    phases.fold(Counts::default(), |mut counts, phase| {
        let count = match phase {
            Phase::Pending => &mut counts.pending,
            Phase::Starting => &mut counts.starting,
            Phase::Idle(_) => &mut counts.idle,
            Phase::Busy | Phase::Offline => &mut counts.busy,
            Phase::Stopping => &mut counts.stopping,
            Phase::Dead => return counts,
        };
        *count = count.saturating_add(1);
        counts
    })
}

#[cfg(test)]
mod tests {
    use pacer_core::phase::{Cause, Situation, Trouble};
    use serde_json::json;

    use super::*;

    #[test]
    fn policies_are_told_how_long_starts_take_and_who_has_no_room() {
        let set: RunnerReplicaSet = serde_json::from_value(json!({
            "metadata": {"name": "web-1", "namespace": "ci"},
            "spec": {"replicas": 3, "selector": {}, "template": {"spec": {"repository": "acme/app"}}},
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
        let waiting = Assessment { phase: Phase::Pending, trouble: Some(trouble) };
        let members = [(RunnerFacts::default(), waiting)];
        let starts = Quantiles { samples: 20, p50: 10, p90: 20, p99: 30 };
        let pool = of_set(&set, &members, None, (None, None), Some(starts.clone()), now);
        assert_eq!(pool.start_time, Some(starts));
        let expected = [("unschedulable", "1"), ("over-quota", "0"), ("no-room-seconds", "90")];
        assert_eq!(pool.attributes, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
        assert_eq!(of_set(&set, &[], None, (None, None), None, now).attributes, []);
    }
}
