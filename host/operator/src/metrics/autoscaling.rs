//! Figures about autoscalers: ARC's under their names, and demand.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::ResourceExt;
use pacer_api::HorizontalRunnerAutoscaler;
use pacer_api::job_ledger::JobState;
use prometheus_client::encoding::DescriptorEncoder;

use super::{Sources, counter, gauge};

type Rows = Vec<(Vec<(&'static str, String)>, i64)>;

/// ARC's series with seven labels, whose values are from the last pass over the autoscaler; by the ends of their names.
const OF_METRICS: [(&str, &str); 10] = [
    ("replicas_desired", "replicas desired by PercentageRunnersBusy"),
    ("runners", "Runners of the target, for PercentageRunnersBusy"),
    ("runners_registered", "Runners of the target that GitHub lists, for PercentageRunnersBusy"),
    ("runners_busy", "Runners of the target that GitHub lists as busy, for PercentageRunnersBusy"),
    (
        "terminating_busy",
        "Runners that GitHub would not remove because they are busy and that it lists no more, for PercentageRunnersBusy",
    ),
    ("necessary_replicas", "replicas desired by TotalNumberOfQueuedAndInProgressWorkflowRuns"),
    ("workflow_runs_completed", "Workflow runs that are over, of those that were listed"),
    ("workflow_runs_in_progress", "Jobs that run, for TotalNumberOfQueuedAndInProgressWorkflowRuns"),
    ("workflow_runs_queued", "Jobs that wait, for TotalNumberOfQueuedAndInProgressWorkflowRuns"),
    ("workflow_runs_unknown", "Workflow runs that wait for something else than a runner, of those that were listed"),
];

pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>, sources: &Sources) -> Result<(), std::fmt::Error> {
    let all = sources.stores.autoscalers.state();
    let of_spec = |field: fn(&HorizontalRunnerAutoscaler) -> Option<i32>| -> Rows {
        all.iter().filter_map(|one| Some((labels(one), i64::from(field(one)?)))).collect()
    };
    gauge(
        encoder,
        "horizontalrunnerautoscaler_spec_min_replicas",
        "minReplicas of HorizontalRunnerAutoscaler",
        &of_spec(|one| one.spec.min_replicas),
    )?;
    gauge(
        encoder,
        "horizontalrunnerautoscaler_spec_max_replicas",
        "maxReplicas of HorizontalRunnerAutoscaler",
        &of_spec(|one| one.spec.max_replicas),
    )?;
    gauge(
        encoder,
        "horizontalrunnerautoscaler_status_desired_replicas",
        "desiredReplicas of HorizontalRunnerAutoscaler",
        &of_spec(|one| one.status.as_ref().and_then(|status| status.desired_replicas)),
    )?;
    demand(encoder, sources, &all)?;
    of_metrics(encoder, sources, &all)
}

fn labels(autoscaler: &HorizontalRunnerAutoscaler) -> Vec<(&'static str, String)> {
    vec![("horizontalrunnerautoscaler", autoscaler.name_any()), ("namespace", autoscaler.namespace().unwrap_or_default())]
}

fn demand(
    encoder: &mut DescriptorEncoder<'_>,
    sources: &Sources,
    all: &[std::sync::Arc<HorizontalRunnerAutoscaler>],
) -> Result<(), std::fmt::Error> {
    let now = Timestamp::now();
    let (mut jobs, mut waiting, mut reserved) = (Rows::new(), Rows::new(), Rows::new());
    for one in all {
        let mut counts = BTreeMap::from([(JobState::Queued, 0_usize), (JobState::InProgress, 0), (JobState::Completed, 0)]);
        for entry in one.status.iter().flat_map(|status| &status.ledger) {
            *counts.entry(entry.state).or_default() += entry.jobs.len();
        }
        for (state, count) in counts {
            let mut labels = labels(one);
            labels.push(("state", word(state).to_owned()));
            jobs.push((labels, i64::try_from(count).unwrap_or(i64::MAX)));
        }
        let uid = one.uid().unwrap_or_default();
        let (since, held) = sources.memory.autoscaler(&uid, |memo| {
            let held = memo.reservations().map(|reservation| i64::from(reservation.replicas)).sum::<i64>();
            (memo.waiting_since(), held)
        });
        waiting.push((labels(one), since.map_or(0, |since| now.duration_since(since).as_secs().max(0))));
        reserved.push((labels(one), held));
    }
    gauge(encoder, "pacer_ledger_jobs", "Jobs in the ledger by state; completed ones are remembered for a while", &jobs)?;
    gauge(
        encoder,
        "pacer_oldest_waiting_job_seconds",
        "Age of the job that waits longest for a runner; 0 when none waits",
        &waiting,
    )?;
    gauge(encoder, "pacer_reserved_runners", "Runners that the capacity policy reserves", &reserved)?;
    let ledgers = &sources.ledgers;
    counter(encoder, "pacer_ledger_writes", "Writes of ledgers by this process", &[(vec![], ledgers.writes())])?;
    counter(
        encoder,
        "pacer_ledger_overflows",
        "Jobs that were not kept because a ledger was full",
        &[(vec![], ledgers.overflows())],
    )
}

fn word(state: JobState) -> &'static str {
    match state {
        JobState::Queued => "queued",
        JobState::InProgress => "in_progress",
        JobState::Completed => "completed",
    }
}

fn of_metrics(
    encoder: &mut DescriptorEncoder<'_>,
    sources: &Sources,
    all: &[std::sync::Arc<HorizontalRunnerAutoscaler>],
) -> Result<(), std::fmt::Error> {
    let mut rows: BTreeMap<&str, Rows> = BTreeMap::new();
    for one in all {
        let gauges = sources.memory.autoscaler(&one.uid().unwrap_or_default(), |memo| memo.gauges().cloned());
        let Some(gauges) = gauges else { continue };
        let [enterprise, organization, repository] = &gauges.scope;
        for (end, value) in &gauges.values {
            let mut labels = labels(one);
            labels.extend([
                ("enterprise", enterprise.clone()),
                ("organization", organization.clone()),
                ("repository", repository.clone()),
                ("kind", "runnerdeployment".to_owned()),
                ("name", gauges.target.clone()),
            ]);
            rows.entry(end).or_default().push((labels, *value));
        }
    }
    for (end, help) in OF_METRICS {
        gauge(encoder, &format!("horizontalrunnerautoscaler_{end}"), help, rows.get(end).map_or(&[], Vec::as_slice))?;
    }
    Ok(())
}
