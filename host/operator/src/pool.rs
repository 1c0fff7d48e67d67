//! What policies are told about the pool.

use jiff::Timestamp;
use kube::ResourceExt;
use pacer_api::{Runner, RunnerReplicaSet};
use pacer_core::facts::RunnerFacts;
use pacer_core::phase::{Assessment, Phase};
use pacer_core::policy::{ApiBudget, Counts, Pool};
use pacer_core::scale_down::since;
use pacer_github::Budget;

use crate::template;

/// The pool that a set is.
#[must_use]
pub fn of_set(
    set: &RunnerReplicaSet,
    members: &[(RunnerFacts, Assessment)],
    budget: Option<Budget>,
    scaled: (Option<Timestamp>, Option<Timestamp>),
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
