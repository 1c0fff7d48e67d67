//! What an autoscaler asks for, read and checked.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use pacer_api::HorizontalRunnerAutoscaler;
use pacer_api::autoscaler::{MetricSpec, ScaleUpTrigger, UnknownTimeZone};
use pacer_core::autoscale::Bounds;
use pacer_core::autoscale::metric::{self, Metric};
use pacer_core::schedule;
use pacer_core::scope::Scope;
use pacer_github::Repository;

use super::Problem;
use crate::stores::Stores;
use crate::target::{Target, TargetRef};

/// Whose jobs count, and where they are known from. Readable also where a spec says nothing that a number could be made from: what runners
/// work on goes on being followed then.
pub(super) struct Sources {
    pub(super) target: Target,
    /// Whether the spec has a `workflowJob` trigger, so that jobs known from webhooks count.
    pub(super) has_trigger: bool,
    /// How long a queued job counts when no other event of it comes.
    pub(super) life: SignedDuration,
    pub(super) metrics: Vec<MetricSpec>,
}

/// A spec that makes sense, and its target.
pub(super) struct Spec<'a> {
    pub(super) sources: &'a Sources,
    pub(super) bounds: Bounds,
    /// Minimum of the schedule that holds.
    pub(super) override_min: Option<u32>,
    /// When the schedule changes.
    pub(super) next_change: Option<Timestamp>,
    /// For the Schedule column.
    pub(super) summary: Option<String>,
    /// How long the number stays after it was raised.
    pub(super) delay: Duration,
    /// The metric that is asked first.
    pub(super) primary: Option<Metric>,
}

impl Sources {
    /// Of an autoscaler whose target exists. A duration that is none counts as the default until [`read`] refuses it.
    pub(super) fn of(autoscaler: &HorizontalRunnerAutoscaler, stores: &Stores) -> Result<Self, Problem> {
        let named = TargetRef::of(autoscaler).ok_or(Problem::NoTarget)?;
        let target = stores.target(&named).filter(|target| !target.is_leaving()).ok_or(Problem::TargetMissing(named))?;
        Ok(Self::with_target(autoscaler, target))
    }

    fn with_target(autoscaler: &HorizontalRunnerAutoscaler, target: Target) -> Self {
        let spec = &autoscaler.spec;
        let trigger = spec.workflow_job_trigger();
        let life = trigger.and_then(|trigger| trigger.duration_or_default().ok()).unwrap_or(ScaleUpTrigger::DEFAULT_DURATION);
        Self {
            target,
            has_trigger: trigger.is_some(),
            life: SignedDuration::try_from(life).unwrap_or(SignedDuration::MAX),
            metrics: spec.metrics.clone().unwrap_or_default(),
        }
    }

    /// Whether GitHub has to be asked for this autoscaler to work: the metrics make sense, and there is one.
    pub(super) fn polls(&self) -> bool {
        metric::primary(&self.types()).is_ok_and(|primary| primary.is_some())
    }

    /// Repositories whose job lists a metric of this autoscaler counts.
    pub(super) fn repositories(&self) -> Result<Vec<Repository>, Problem> {
        let runs = Metric::QueuedAndInProgressRuns;
        let Some(metric) = self.metrics.iter().find(|metric| metric.type_.as_deref() == Some(runs.name())) else {
            return Ok(Vec::new());
        };
        let scope = self.target.config().scope().map_err(|error| Problem::Scope(error.to_string()))?;
        match scope {
            Scope::Repository { owner, name } => Ok(vec![Repository::new(owner, name)]),
            Scope::Organization(organization) => {
                let names = metric.repository_names.clone().unwrap_or_default();
                if names.is_empty() {
                    return Err(Problem::RepositoryNames);
                }
                Ok(names.into_iter().map(|name| Repository::new(organization.clone(), name)).collect())
            }
            Scope::Enterprise(enterprise) => Err(Problem::Enterprise(enterprise)),
        }
    }

    /// Types of the metrics, in order.
    pub(super) fn types(&self) -> Vec<&str> {
        self.metrics.iter().map(|metric| metric.type_.as_deref().unwrap_or_default()).collect()
    }
}

/// Reads and checks what the number is made from.
pub(super) fn read<'a>(
    autoscaler: &HorizontalRunnerAutoscaler,
    sources: &'a Sources,
    scale_down_delay: Duration,
    now: Timestamp,
) -> Result<Spec<'a>, Problem> {
    let spec = &autoscaler.spec;
    let namespace = autoscaler.namespace().unwrap_or_default();
    let bounds = Bounds::new(&format!("{namespace}/{}", autoscaler.name_any()), spec.min_replicas, spec.max_replicas)?;
    let overrides = spec.scheduled_overrides.iter().flatten().enumerate();
    let overrides =
        overrides.map(|(index, entry)| entry.read().map_err(|UnknownTimeZone(name)| Problem::TimeZone { index, name }));
    let overrides = overrides.collect::<Result<Vec<_>, _>>()?;
    let schedule = schedule::evaluate(&overrides, now)?;
    if let Some(Err(error)) = spec.workflow_job_trigger().map(ScaleUpTrigger::duration_or_default) {
        return Err(Problem::Duration(error.to_string()));
    }
    let primary = metric::primary(&sources.types())?;
    let delay = spec.scale_down_delay_seconds_after_scale_out.and_then(|seconds| u64::try_from(seconds).ok());
    Ok(Spec {
        sources,
        bounds,
        override_min: schedule.min_replicas(&overrides),
        next_change: schedule.next_change,
        summary: schedule.summary(&overrides, spec.min_replicas.and_then(|min| u32::try_from(min).ok())),
        delay: delay.map_or(scale_down_delay, Duration::from_secs),
        primary,
    })
}

/// Checks what an autoscaler and its target say themselves, without a cluster or GitHub.
///
/// # Errors
///
/// What the operator would refuse of them.
pub fn check(autoscaler: &HorizontalRunnerAutoscaler, target: Target, now: Timestamp) -> Result<(), Problem> {
    let sources = Sources::with_target(autoscaler, target);
    read(autoscaler, &sources, Duration::ZERO, now)?;
    sources.repositories().map(drop)
}

#[cfg(test)]
mod decoders {
    use jiff::Timestamp;
    use pacer_api::autoscaler::ScheduledOverride;
    use pacer_core::schedule;
    use serde::Deserialize;

    /// An entry of an autoscaler, and when it is looked at.
    #[derive(Deserialize)]
    struct Looked {
        /// In seconds since 1970.
        now: i64,
        #[serde(flatten)]
        entry: ScheduledOverride,
    }

    const ENTRIES: [&str; 7] = [
        r#"{"now":1790000000,"startTime":"2026-01-05T08:00:00+09:00","endTime":"2026-01-05T18:00:00+09:00","timeZone":"Asia/Tokyo","minReplicas":3,"recurrenceRule":{"frequency":"Daily"}}"#,
        r#"{"now":1772928000,"startTime":"2026-03-08T02:30:00-05:00","endTime":"2026-03-08T03:30:00-04:00","timeZone":"America/New_York","minReplicas":0,"recurrenceRule":{"frequency":"Weekly","untilTime":"2027-03-08T00:00:00Z"}}"#,
        r#"{"now":1780000000,"startTime":"2024-01-31T00:00:00Z","endTime":"2024-02-01T00:00:00Z","timeZone":"Australia/Lord_Howe","minReplicas":1,"recurrenceRule":{"frequency":"Monthly"}}"#,
        r#"{"now":1780000000,"startTime":"2024-02-29T00:00:00Z","endTime":"2024-03-01T00:00:00-03:30","minReplicas":1,"recurrenceRule":{"frequency":"Yearly"}}"#,
        r#"{"now":253370764800,"startTime":"9998-12-30T00:00:00Z","endTime":"9998-12-31T00:00:00Z","minReplicas":1,"recurrenceRule":{"frequency":"Daily"}}"#,
        r#"{"now":-62135596800,"startTime":"0001-01-01T00:00:00Z","endTime":"0001-01-02T00:00:00Z","timeZone":"UTC","recurrenceRule":{}}"#,
        r#"{"now":1790000000,"startTime":"2026-01-05T08:00:00Z","endTime":"2026-01-05T18:00:00Z"}"#,
    ];

    #[test]
    fn schedule_is_read_or_refused_whatever_it_says() {
        pacer_fuzz::text!(ENTRIES, |text| {
            let Ok(Looked { now, entry }) = serde_json::from_str(text) else { return false };
            let (Ok(read), Ok(now)) = (entry.read(), Timestamp::from_second(now)) else { return false };
            let overrides = [read];
            let Ok(schedule) = schedule::evaluate(&overrides, now) else { return false };
            assert!(schedule.active.is_none_or(|(_, period)| period.contains(now)), "{schedule:?}");
            assert!(schedule.upcoming.is_none_or(|(_, period)| period.start > now), "{schedule:?}");
            assert!(schedule.next_change.is_none_or(|change| change > now), "{schedule:?}");
            let _said = schedule.summary(&overrides, None);
            true
        });
    }

    #[test]
    fn time_zone_is_known_or_refused_whatever_its_name_is() {
        let names = ["Asia/Tokyo", "america/new_york", "UTC", "Europe/Berlin"];
        pacer_fuzz::text!(names, |name| {
            let mut entry: ScheduledOverride = serde_json::from_str(ENTRIES[0]).unwrap();
            entry.time_zone = Some(name.to_owned());
            let read = entry.read().is_ok();
            assert!(!read || name.chars().all(|letter| letter.is_ascii_graphic() || name.is_empty()), "{name:?}");
            assert!(!read || !name.contains(".."), "{name:?}");
            read
        });
    }
}
