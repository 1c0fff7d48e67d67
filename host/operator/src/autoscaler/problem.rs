//! Why an autoscaler does nothing.

use pacer_core::autoscale::BoundsError;
use pacer_core::autoscale::metric::MetricsError;
use pacer_core::busy::FieldError;
use pacer_core::schedule::ScheduleError;
use pacer_core::tenancy::Refusal;

use crate::target::TargetRef;

/// Reason of [`Problem::GitHub`], which passes by itself.
pub(super) const GITHUB: &str = "GitHubUnavailable";

/// What is wrong with it; the target keeps its number meanwhile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// `spec.scaleTargetRef` names no target.
    #[error("spec.scaleTargetRef.name is not set: name the RunnerDeployment or RunnerSet to scale")]
    NoTarget,
    /// It is not there.
    #[error("the {0} does not exist; its number is set as soon as it does")]
    TargetMissing(TargetRef),
    /// No minimum or maximum.
    #[error("{0}: set it in the spec")]
    Bounds(#[from] BoundsError),
    /// A schedule that contradicts itself.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// A time zone that is none.
    #[error("spec.scheduledOverrides[{index}].timeZone {name:?} is no IANA time zone, such as Europe/Berlin")]
    TimeZone {
        /// Index of the override in `spec.scheduledOverrides`, from 0.
        index: usize,
        /// The time zone that it names.
        name: String,
    },
    /// A duration that is none.
    #[error("spec.scaleUpTriggers[0].duration: {0}")]
    Duration(String),
    /// Metrics that cannot be asked.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// A field of a metric.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// A metric of an organization's runs names no repositories; the text is ARC's.
    #[error(
        "validating autoscaling metrics: spec.autoscaling.metrics[].repositoryNames is required and must have one more more entries for \
         organizational runner deployment"
    )]
    RepositoryNames,
    /// Runs of an enterprise can't be listed.
    #[error(
        "the metric TotalNumberOfQueuedAndInProgressWorkflowRuns needs runners of a repository or an organization, and {0} has those of an \
         enterprise: use webhooks (spec.scaleUpTriggers) or PercentageRunnersBusy"
    )]
    Enterprise(String),
    /// The target says nowhere to register.
    #[error("the target's spec: {0}")]
    Scope(String),
    /// The tenancy does not allow the target's runners.
    #[error("{0}")]
    NotAllowed(Refusal),
    /// GitHub can't be asked.
    #[error("the metrics can't be read: {0}")]
    GitHub(String),
}

impl Problem {
    /// Whether there is no target whose jobs could count: nothing reads job lists until there is one again.
    pub(super) fn has_no_target(&self) -> bool {
        matches!(self, Self::NoTarget | Self::TargetMissing(_) | Self::NotAllowed(_))
    }

    /// The reason of the condition.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoTarget | Self::TargetMissing(_) => "TargetNotFound",
            Self::Bounds(_) => "BoundsMissing",
            Self::Schedule(_) | Self::TimeZone { .. } => "InvalidSchedule",
            Self::Duration(_) => "InvalidTrigger",
            Self::Metrics(_) | Self::Field(_) | Self::RepositoryNames | Self::Enterprise(_) | Self::Scope(_) => "InvalidMetric",
            Self::NotAllowed(refusal) => refusal.reason(),
            Self::GitHub(_) => GITHUB,
        }
    }
}

#[cfg(test)]
mod tests {
    use pacer_api::autoscaler::ScaleTargetKind;

    use super::*;

    #[test]
    fn lists_are_read_on_while_there_is_a_target_whose_spec_is_wrong() {
        let missing = TargetRef { kind: ScaleTargetKind::RunnerDeployment, namespace: "ci".to_owned(), name: "web".to_owned() };
        assert!(Problem::NoTarget.has_no_target() && Problem::TargetMissing(missing).has_no_target());
        assert!(!Problem::RepositoryNames.has_no_target() && !Problem::Duration(String::new()).has_no_target());
    }
}
