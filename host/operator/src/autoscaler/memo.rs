//! What the process remembers about an autoscaler. All of it may be lost at any moment.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pacer_api::HorizontalRunnerAutoscalerStatus;
use pacer_api::autoscaler::ScaleTargetKind;
use pacer_cluster::pace::Passes;
use pacer_cluster::status::PacedStatus;
use pacer_core::autoscale::Raises;
use pacer_core::autoscale::inherited::Known;
use pacer_core::autoscale::sending::SentNumber;
use pacer_core::autoscale::telling::Telling;
use pacer_core::demand::{Counted, Polled};
use pacer_core::durations::Durations;
use pacer_core::estimate::{self, Estimates, Outcome, Pace};
use pacer_core::ledger::{Job, State};
use pacer_core::policy::{Quantiles, Reservation};
use pacer_core::reservation::Held;
use pacer_core::running::Running;
use pacer_demand::receiver::WAITS;
use pacer_github::queues::Interest;
use pacer_github::{Reading, Repository};
use prometheus_client::metrics::histogram::Histogram;

use crate::pool::Scaled;
use crate::refusal::Refusal;

/// What is remembered about one autoscaler.
#[derive(Default)]
pub struct AutoscalerMemo {
    /// When it was reconciled, as far as that delays the next time.
    pub(super) passes: Passes,
    /// Jobs that the last one counted.
    pub(super) jobs: u32,
    /// Its jobs that run, followed until their end is known.
    pub(super) running: Running,
    /// Since when queued jobs have been within the maximum.
    pub(super) within: Counted,
    /// When how many more runners were asked for.
    pub(super) raises: Raises,
    /// Jobs that need no reservation of the spec any more.
    pub(super) known: Known,
    /// The capacity policy's reservations.
    pub(super) reservations: Vec<Held>,
    /// Queues that are read for it, and how.
    pub(super) interests: BTreeMap<Repository, (Reading, Interest)>,
    /// The number that was last sent to the target.
    pub(super) sent: Option<Sent>,
    /// The `effectiveTime` that was last sent.
    pub(super) effective: Option<Effective>,
    /// Why the API server took no number when one was last sent.
    pub(super) refused: Option<Refusal<u32>>,
    /// Its status, and when that is written.
    pub(super) status: PacedStatus,
    /// What decisions go on from; none before the first.
    pub(super) said: Option<Said>,
    /// When the last Event about a problem was published.
    pub(super) published: Option<Instant>,
    /// The number that was decided last; the status that is read may be older.
    pub(super) number: Option<u32>,
    /// Which changes of it people were told of.
    pub(super) telling: Telling,
    /// When the number last changed.
    pub(super) scaled: Scaled,
    /// When the oldest job that waits was queued.
    pub(super) waiting_since: Option<Timestamp>,
    /// Jobs that wait and that polling alone tells of, those that wait longest first; none before GitHub's job lists were read.
    pub(super) polled: Option<Arc<[Polled]>>,
    /// What the metrics last said.
    pub(super) gauges: Option<MetricGauges>,
    /// Times from a job's queueing to its runner being online.
    online: Option<Histogram>,
    /// The newest of these times, in seconds.
    waits: Durations,
    /// The newest times that GitHub took to assign jobs of the pool; see [`Pace::assignments`].
    assignments: Durations,
    /// How long starts and jobs of the pool take.
    pub(super) pace: Pace,
    /// When jobs that wait were said to start.
    pub(super) estimates: Estimates,
    /// How that turned out.
    outcomes: BTreeMap<Outcome, u64>,
}

/// What the status says that the next decision goes on from. It is written later than it is decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// The number of runners, as `status.desiredReplicas` has it; none before the first.
    pub(super) desired: Option<i32>,
    /// When it was raised last.
    pub(super) raised: Option<Time>,
}

impl Said {
    /// What a status says.
    pub(super) fn by(status: &HorizontalRunnerAutoscalerStatus) -> Self {
        Self { desired: status.desired_replicas, raised: status.last_successful_scale_out_time.clone() }
    }
}

/// A number that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    /// The target's version it was computed from.
    pub(super) version: Option<String>,
    pub(super) number: SentNumber,
}

/// An `effectiveTime` that was sent, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effective {
    pub(super) time: Timestamp,
    pub(super) sent: Instant,
}

/// What the metrics of an autoscaler last said, under ARC's names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricGauges {
    /// Values of the seven-label series by the end of their names.
    pub values: Vec<(&'static str, i64)>,
    /// Enterprise, organization and repository in the target's spec; empty where it names none.
    pub scope: [String; 3],
    /// Kind of the target.
    pub kind: ScaleTargetKind,
    /// Name of the target.
    pub target: String,
}

impl AutoscalerMemo {
    /// When the oldest job that waits was queued.
    #[must_use]
    pub fn waiting_since(&self) -> Option<Timestamp> {
        self.waiting_since
    }

    /// Jobs that wait and that polling alone tells of, those that wait longest first.
    #[must_use]
    pub fn polled(&self) -> Arc<[Polled]> {
        self.polled.clone().unwrap_or_default()
    }

    /// What the metrics last said.
    #[must_use]
    pub fn gauges(&self) -> Option<&MetricGauges> {
        self.gauges.as_ref()
    }

    /// Times from a job's queueing to its runner being online, seconds.
    #[must_use]
    pub fn online(&self) -> Option<&Histogram> {
        self.online.as_ref()
    }

    /// The newest times from a job's queueing to its runner being online, seconds.
    #[must_use]
    pub fn waits(&self) -> &Durations {
        &self.waits
    }

    /// How long starts and jobs of the pool take.
    #[must_use]
    pub fn pace(&self) -> Pace {
        self.pace
    }

    /// How many estimates of starts turned out so.
    #[must_use]
    pub fn estimates_that_were(&self, outcome: Outcome) -> u64 {
        self.outcomes.get(&outcome).copied().unwrap_or_default()
    }

    /// A job has started of which it was said when it would.
    pub(super) fn scored(&mut self, outcome: Outcome) {
        let count = self.outcomes.entry(outcome).or_default();
        *count = count.saturating_add(1);
    }

    /// A job has started on a runner that had come online at that moment.
    pub(super) fn job_started(&mut self, job: &Job, online: Timestamp) {
        let after = online.duration_since(job.queued);
        self.online.get_or_insert_with(|| Histogram::new(WAITS)).observe(after.as_secs_f64().max(0.0));
        self.waits.add(u32::try_from(after.as_secs().max(0)).unwrap_or(u32::MAX));
        if job.state == State::InProgress {
            self.assignments.add(estimate::assignment(job.queued, online, job.since));
        }
    }

    /// What GitHub took to assign jobs of the pool.
    pub(super) fn assignments(&self) -> Option<Quantiles> {
        self.assignments.quantiles()
    }

    /// Reservations that the capacity policy holds now.
    pub fn reservations(&self) -> impl Iterator<Item = &Reservation> {
        self.reservations.iter().map(|held| &held.reservation)
    }
}

impl fmt::Debug for AutoscalerMemo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AutoscalerMemo")
            .field("reservations", &self.reservations)
            .field("raises", &self.raises)
            .finish_non_exhaustive()
    }
}
