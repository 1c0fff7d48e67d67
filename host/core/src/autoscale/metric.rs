//! Which metrics an autoscaler asks, and in which order (arc-behaviour 3.2).
//!
//! The second is looked at only when the first has nothing to say, so a pair that makes no sense goes unnoticed until then, as in ARC: an
//! autoscaler that works there works here.

use std::fmt;

/// Evidence that is pulled from GitHub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Metric {
    /// Jobs that are queued or run.
    QueuedAndInProgressRuns,
    /// Share of runners that run a job.
    PercentageRunnersBusy,
}

/// Metrics that cannot be asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetricsError {
    /// There are more than two metrics; holds how many.
    #[error("too many autoscaling metrics configured: It must be 0 to 2, but got {0}")]
    TooMany(usize),
    /// A type that is none; an absent one is empty.
    #[error("validating autoscaling metrics: unsupported metric type {0:?}")]
    Unsupported(String),
    /// A second metric that cannot stand in for the first.
    #[error(
        "spec.metrics[1] of type {second:?} cannot stand in for spec.metrics[0] of type {first:?}, which suggests nothing: the only pair is \
         PercentageRunnersBusy first and TotalNumberOfQueuedAndInProgressWorkflowRuns second"
    )]
    Pair {
        /// Type of the first.
        first: String,
        /// Type of the second.
        second: String,
    },
}

impl Metric {
    /// What `spec.metrics[].type` calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::QueuedAndInProgressRuns => "TotalNumberOfQueuedAndInProgressWorkflowRuns",
            Self::PercentageRunnersBusy => "PercentageRunnersBusy",
        }
    }

    fn named(name: &str) -> Option<Self> {
        [Self::QueuedAndInProgressRuns, Self::PercentageRunnersBusy].into_iter().find(|metric| metric.name() == name)
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The metric to ask first, given the types in order; none when there is none.
///
/// # Errors
///
/// When there are more than two, or the first is of no known type.
pub fn primary(types: &[&str]) -> Result<Option<Metric>, MetricsError> {
    match types {
        [] => Ok(None),
        [first] | [first, _] => Metric::named(first).map(Some).ok_or_else(|| MetricsError::Unsupported((*first).to_owned())),
        more => Err(MetricsError::TooMany(more.len())),
    }
}

/// The metric to ask when the first one suggested no runners; none when there is no other. What it says counts, even 0.
///
/// # Errors
///
/// When there are more than two, or the two are not the one pair that may be combined.
pub fn fallback(types: &[&str]) -> Result<Option<Metric>, MetricsError> {
    let (first, second) = match types {
        [] | [_] => return Ok(None),
        [first, second] => (*first, *second),
        more => return Err(MetricsError::TooMany(more.len())),
    };
    match (Metric::named(first), Metric::named(second)) {
        (Some(Metric::PercentageRunnersBusy), Some(Metric::QueuedAndInProgressRuns)) => Ok(Some(Metric::QueuedAndInProgressRuns)),
        _ => Err(MetricsError::Pair { first: first.to_owned(), second: second.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNS: &str = "TotalNumberOfQueuedAndInProgressWorkflowRuns";
    const BUSY: &str = "PercentageRunnersBusy";

    #[test]
    fn the_first_metric_is_asked_first() {
        for (types, expected) in [
            (&[][..], Ok(None)),
            (&[RUNS], Ok(Some(Metric::QueuedAndInProgressRuns))),
            (&[BUSY], Ok(Some(Metric::PercentageRunnersBusy))),
            (&[BUSY, RUNS], Ok(Some(Metric::PercentageRunnersBusy))),
            (&[RUNS, "nonsense"], Ok(Some(Metric::QueuedAndInProgressRuns))),
            (&["Queue"], Err("validating autoscaling metrics: unsupported metric type \"Queue\"")),
            (&[""], Err("validating autoscaling metrics: unsupported metric type \"\"")),
            (&["Queue", RUNS], Err("validating autoscaling metrics: unsupported metric type \"Queue\"")),
            (&[BUSY, RUNS, RUNS], Err("too many autoscaling metrics configured: It must be 0 to 2, but got 3")),
        ] {
            assert_eq!(primary(types).map_err(|error| error.to_string()), expected.map_err(str::to_owned), "{types:?}");
        }
    }

    #[test]
    fn only_runs_stand_in_for_the_share_of_busy_runners() {
        for types in [&[][..], &[BUSY], &[RUNS]] {
            assert_eq!(fallback(types), Ok(None), "{types:?}");
        }
        assert_eq!(fallback(&[BUSY, RUNS]), Ok(Some(Metric::QueuedAndInProgressRuns)));
        for [first, second] in [[RUNS, BUSY], [RUNS, RUNS], [BUSY, BUSY], [BUSY, "Queue"]] {
            let error = fallback(&[first, second]).unwrap_err().to_string();
            assert!(error.contains(&format!("{first:?}")) && error.contains(&format!("{second:?}")), "{error}");
        }
        assert_eq!(fallback(&[BUSY; 4]), Err(MetricsError::TooMany(4)));
    }
}
