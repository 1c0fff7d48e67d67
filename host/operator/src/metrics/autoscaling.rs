//! Figures about autoscalers: ARC's under their names, and demand.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;
use pacer_api::HorizontalRunnerAutoscaler;
use pacer_cluster::object::Uid;
use pacer_core::estimate::Outcome;
use pacer_core::ledger::State;
use pacer_core::policy::Reservation;
use pacer_demand::ledger::Ledgers;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;

use super::{Sources, counter, gauge};
use crate::autoscaler::AutoscalerMemo;

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

/// The autoscalers of a shard, with where to read of them.
type OfShard = (Arc<Sources>, Vec<Arc<HorizontalRunnerAutoscaler>>);

pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>, sources: &[Arc<Sources>]) -> Result<(), std::fmt::Error> {
    let of_shards: Vec<OfShard> = sources.iter().map(|one| (one.clone(), one.stores.autoscalers.state())).collect();
    let all: Vec<_> = of_shards.iter().flat_map(|(_, all)| all).collect();
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
    demand(encoder, &of_shards)?;
    of_metrics(encoder, &of_shards)
}

fn labels(autoscaler: &HorizontalRunnerAutoscaler) -> Vec<(&'static str, String)> {
    vec![("horizontalrunnerautoscaler", autoscaler.name_any()), ("namespace", autoscaler.namespace().unwrap_or_default())]
}

fn demand(encoder: &mut DescriptorEncoder<'_>, of_shards: &[OfShard]) -> Result<(), std::fmt::Error> {
    let now = Timestamp::now();
    let (mut jobs, mut waiting, mut reserved, mut came_online) = (Rows::new(), Rows::new(), Rows::new(), Vec::new());
    let mut outcomes = Vec::new();
    let ledgers =
        of_shards.iter().flat_map(|(sources, all)| all.iter().map(move |one| (sources, one, sources.ledgers.read(one))));
    for (sources, one, ledger) in ledgers {
        let mut counts = BTreeMap::from([(State::Queued, 0_i64), (State::InProgress, 0), (State::Completed, 0)]);
        for (_, job) in ledger.all() {
            *counts.entry(job.state).or_default() += 1;
        }
        for (state, count) in counts {
            let mut labels = labels(one);
            labels.push(("state", word(state).to_owned()));
            jobs.push((labels, count));
        }
        let default = AutoscalerMemo::default();
        let running: HashSet<u64> = ledger.open().filter(|(_, job)| job.state == State::InProgress).map(|(id, _)| id).collect();
        let read = |memo: &AutoscalerMemo| {
            let held = Reserved::of(one, &running, memo.reservations(), now);
            (memo.waiting_since(), held, memo.online().cloned(), Outcome::ALL.map(|outcome| memo.estimates_that_were(outcome)))
        };
        let known = Uid::of(&**one).ok().and_then(|uid| sources.autoscalers.read(&uid, read));
        let (since, held, online, scores) = known.unwrap_or_else(|| read(&default));
        waiting.push((labels(one), since.map_or(0, |since| now.duration_since(since).as_secs().max(0))));
        for (reason, runners) in held.by_reason() {
            let mut labels = labels(one);
            labels.push(("reason", reason.to_owned()));
            reserved.push((labels, i64::from(runners)));
        }
        came_online.extend(online.map(|online| (labels(one), online)));
        outcomes.extend(Outcome::ALL.into_iter().zip(scores).map(|(outcome, count)| {
            let mut labels = labels(one);
            labels.push(("outcome", outcome.as_str().to_owned()));
            (labels, count)
        }));
    }
    gauge(encoder, "pacer_ledger_jobs", "Jobs in the ledger by state; completed ones are remembered for a while", &jobs)?;
    gauge(
        encoder,
        "pacer_oldest_waiting_job_seconds",
        "Age of the job that waits longest for a runner; 0 when none waits",
        &waiting,
    )?;
    gauge(encoder, "pacer_reserved_runners", "Runners that are reserved, by what for", &reserved)?;
    let help = "Time from a job's queueing to its runner being online; 0 where one stood ready";
    let mut metric = encoder.encode_descriptor("pacer_job_online_seconds", help, None, MetricType::Histogram)?;
    for (labels, online) in &came_online {
        online.encode(metric.encode_family(labels)?)?;
    }
    let help = "Jobs of which it was said when they will start, by how that turned out";
    counter(encoder, "pacer_wait_estimates", help, &outcomes)?;
    let total = |count: fn(&Ledgers) -> u64| of_shards.iter().map(|(sources, _)| count(&sources.ledgers)).sum::<u64>();
    counter(encoder, "pacer_ledger_writes", "Writes of ledgers by this process", &[(vec![], total(Ledgers::writes))])?;
    counter(
        encoder,
        "pacer_ledger_overflows",
        "Jobs that were not kept because a ledger was full",
        &[(vec![], total(Ledgers::overflows))],
    )
}

/// Reserved runners by what they are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reserved {
    queued: u32,
    running: u32,
    /// For no job: what a policy holds ready.
    spare: u32,
    /// `spec.capacityReservations` that have not expired.
    spec: u32,
}

impl Reserved {
    fn of<'a>(
        autoscaler: &HorizontalRunnerAutoscaler,
        running: &HashSet<u64>,
        reservations: impl Iterator<Item = &'a Reservation>,
        now: Timestamp,
    ) -> Self {
        let mut reserved = Self { spec: autoscaler.spec.reserved(now), ..Self::default() };
        for reservation in reservations {
            let count = |jobs: usize| u32::try_from(jobs).unwrap_or(u32::MAX).min(reservation.replicas);
            let at_work = count(reservation.jobs.iter().filter(|id| running.contains(id)).count());
            let for_jobs = count(reservation.jobs.len());
            reserved.running = reserved.running.saturating_add(at_work);
            reserved.queued = reserved.queued.saturating_add(for_jobs.saturating_sub(at_work));
            reserved.spare = reserved.spare.saturating_add(reservation.replicas.saturating_sub(for_jobs));
        }
        reserved
    }

    fn by_reason(self) -> [(&'static str, u32); 4] {
        [("queued_jobs", self.queued), ("running_jobs", self.running), ("spare", self.spare), ("spec", self.spec)]
    }
}

fn word(state: State) -> &'static str {
    match state {
        State::Queued => "queued",
        State::InProgress => "in_progress",
        State::Completed => "completed",
    }
}

fn of_metrics(encoder: &mut DescriptorEncoder<'_>, of_shards: &[OfShard]) -> Result<(), std::fmt::Error> {
    let mut rows: BTreeMap<&str, Rows> = BTreeMap::new();
    for (sources, one) in of_shards.iter().flat_map(|(sources, all)| all.iter().map(move |one| (sources, one))) {
        let gauges = Uid::of(&**one).ok().and_then(|uid| sources.autoscalers.read(&uid, |memo| memo.gauges().cloned()));
        let Some(gauges) = gauges.flatten() else { continue };
        let [enterprise, organization, repository] = &gauges.scope;
        for (end, value) in &gauges.values {
            let mut labels = labels(one);
            labels.extend([
                ("enterprise", enterprise.clone()),
                ("organization", organization.clone()),
                ("repository", repository.clone()),
                ("kind", gauges.kind.as_str().to_lowercase()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_runners_are_told_apart_by_what_for() {
        let autoscaler = HorizontalRunnerAutoscaler::new(
            "web",
            serde_json::from_value(serde_json::json!({
                "scaleTargetRef": {"name": "web"},
                "capacityReservations": [
                    {"expirationTime": "1970-01-01T00:01:00Z", "replicas": 2},
                    {"expirationTime": "1970-01-01T01:00:00Z", "replicas": 3},
                ],
            }))
            .unwrap(),
        );
        let now = Timestamp::from_second(90).unwrap();
        let held = |jobs: &[u64], replicas| Reservation { jobs: jobs.to_vec(), replicas, ..Reservation::default() };
        let plan = [held(&[1], 1), held(&[2], 1), held(&[3, 2], 3), held(&[], 4)];
        let reserved = Reserved::of(&autoscaler, &HashSet::from([2, 9]), plan.iter(), now);
        assert_eq!(reserved, Reserved { queued: 2, running: 2, spare: 5, spec: 3 });
    }
}
