//! What an autoscaler asks for, read and checked.

use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use pacer_api::HorizontalRunnerAutoscaler;
use pacer_api::autoscaler::{Frequency as ApiFrequency, MetricSpec, ScheduledOverride};
use pacer_core::autoscale::Bounds;
use pacer_core::autoscale::metric::{self, Metric};
use pacer_core::schedule::{self, Frequency, Override};
use pacer_core::scope::Scope;
use pacer_github::Repository;

use super::Problem;
use crate::stores::Stores;
use crate::target::{Target, TargetRef};

/// A spec that makes sense, and its target.
pub(super) struct Spec {
    pub(super) target: Target,
    pub(super) bounds: Bounds,
    /// Minimum of the schedule that holds.
    pub(super) override_min: Option<u32>,
    /// When the schedule changes.
    pub(super) next_change: Option<Timestamp>,
    /// For the Schedule column.
    pub(super) summary: Option<String>,
    /// Webhooks count.
    pub(super) has_trigger: bool,
    /// How long a queued job counts when no other event of it comes.
    pub(super) life: SignedDuration,
    /// How long the number stays after it was raised.
    pub(super) delay: Duration,
    pub(super) metrics: Vec<MetricSpec>,
    /// The metric that is asked first.
    pub(super) primary: Option<Metric>,
}

impl Spec {
    /// Whether GitHub has to be asked for this autoscaler to work.
    pub(super) fn polls(&self) -> bool {
        self.primary.is_some()
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

/// Reads and checks a spec.
pub(super) fn read(
    autoscaler: &HorizontalRunnerAutoscaler,
    stores: &Stores,
    scale_down_delay: Duration,
    now: Timestamp,
) -> Result<Spec, Problem> {
    let spec = &autoscaler.spec;
    let namespace = autoscaler.namespace().unwrap_or_default();
    let named = TargetRef::of(autoscaler).ok_or(Problem::NoTarget)?;
    let target = stores.target(&named).filter(|target| !target.is_leaving()).ok_or(Problem::TargetMissing(named))?;
    let bounds = Bounds::new(&format!("{namespace}/{}", autoscaler.name_any()), spec.min_replicas, spec.max_replicas)?;
    let overrides = spec.scheduled_overrides.iter().flatten().enumerate().map(|(index, entry)| override_of(index, entry));
    let overrides = overrides.collect::<Result<Vec<_>, _>>()?;
    let schedule = schedule::evaluate(&overrides, now)?;
    let trigger = spec.workflow_job_trigger();
    let life =
        trigger.map(|trigger| trigger.duration_or_default()).transpose().map_err(|error| Problem::Duration(error.to_string()))?;
    let life = life.unwrap_or(pacer_api::autoscaler::ScaleUpTrigger::DEFAULT_DURATION);
    let metrics = spec.metrics.clone().unwrap_or_default();
    let delay = spec.scale_down_delay_seconds_after_scale_out.and_then(|seconds| u64::try_from(seconds).ok());
    let mut read = Spec {
        target,
        bounds,
        override_min: schedule.min_replicas(&overrides),
        next_change: schedule.next_change,
        summary: schedule.summary(&overrides, spec.min_replicas.and_then(|min| u32::try_from(min).ok())),
        has_trigger: trigger.is_some(),
        life: SignedDuration::try_from(life).unwrap_or(SignedDuration::MAX),
        delay: delay.map_or(scale_down_delay, Duration::from_secs),
        metrics,
        primary: None,
    };
    read.primary = metric::primary(&read.types())?;
    Ok(read)
}

fn override_of(index: usize, entry: &ScheduledOverride) -> Result<Override, Problem> {
    let zone = |name: &str| TimeZone::get(name).map_err(|_| Problem::TimeZone { index, name: name.to_owned() });
    let rule = entry.recurrence_rule.as_ref();
    Ok(Override {
        start: entry.start_time.zoned(),
        end: entry.end_time.timestamp(),
        frequency: rule.and_then(|rule| rule.frequency).map(|frequency| match frequency {
            ApiFrequency::Daily => Frequency::Daily,
            ApiFrequency::Weekly => Frequency::Weekly,
            ApiFrequency::Monthly => Frequency::Monthly,
            ApiFrequency::Yearly => Frequency::Yearly,
        }),
        until: rule.and_then(|rule| rule.until_time).map(pacer_api::autoscaler::OffsetTime::timestamp),
        min_replicas: entry.min_replicas.and_then(|min| u32::try_from(min).ok()),
        time_zone: entry.time_zone.as_deref().filter(|name| !name.is_empty()).map(zone).transpose()?,
    })
}
