//! What this process has seen of a pool. By the UID of the scale target, or of the RunnerReplicaSet that none owns: a rollout changes the
//! RunnerReplicaSet and not how long a start takes.

use jiff::Timestamp;
use pacer_cluster::object::Uid;
use pacer_core::arrivals::Arrivals;
use pacer_core::autoscale::Bounds;
use pacer_core::demand::Waiting;
use pacer_core::durations::Durations;
use pacer_core::policy::Quantiles;

use super::{FleetSummary, Owned, Published};

/// Jobs of a pool, as its autoscaler has seen them.
#[derive(Clone, Debug, Default)]
pub struct JobHistory {
    /// From a job's start to its end, in seconds.
    pub runs: Durations,
    /// When jobs came.
    pub arrivals: Arrivals,
    /// Between which numbers the autoscaler keeps the pool.
    pub bounds: Option<Bounds>,
    /// Jobs that waited at its last pass; none where it is told of no jobs.
    pub waiting: Option<Waiting>,
    /// How many of them had their events come by webhook.
    pub waiting_by_event: usize,
}

/// What the controllers say of pools, for what policies are told of other ones.
#[derive(Clone)]
pub struct PoolReports {
    /// Their runners, by RunnerReplicaSet.
    pub summaries: Published<Uid, FleetSummary>,
    /// Their jobs, by scale target.
    pub history: Published<Uid, JobHistory>,
}

impl PoolReports {
    /// Of what their writers own.
    #[must_use]
    pub fn of(summaries: &Owned<Uid, FleetSummary>, history: &Owned<Uid, JobHistory>) -> Self {
        Self { summaries: summaries.reader(), history: history.reader() }
    }
}

/// What policies are told of a pool beside how it is now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Past {
    /// From pod to online.
    pub start_time: Option<Quantiles>,
    /// From a job's start to its end.
    pub run_time: Option<Quantiles>,
    /// Jobs per minute, newest first.
    pub arrivals: Vec<u32>,
    /// Between which numbers its autoscaler keeps it.
    pub bounds: Option<Bounds>,
    /// Jobs that wait for it.
    pub waiting: Option<Waiting>,
}

impl Past {
    /// Of what is published of a pool: `starts` holds times from pod to online, in seconds.
    #[must_use]
    pub fn read(pool: &Uid, starts: &Published<Uid, Durations>, jobs: &Published<Uid, JobHistory>, now: Timestamp) -> Self {
        let starts = starts.get(pool);
        let of = |jobs: Option<&JobHistory>| Self::of(starts.as_ref(), jobs, now);
        jobs.read(pool, |jobs| of(Some(jobs))).unwrap_or_else(|| of(None))
    }

    fn of(starts: Option<&Durations>, jobs: Option<&JobHistory>, now: Timestamp) -> Self {
        Self {
            start_time: starts.and_then(Durations::quantiles),
            run_time: jobs.and_then(|jobs| jobs.runs.quantiles()),
            arrivals: jobs.map(|jobs| jobs.arrivals.per_minute(now)).unwrap_or_default(),
            bounds: jobs.and_then(|jobs| jobs.bounds),
            waiting: jobs.and_then(|jobs| jobs.waiting),
        }
    }
}
