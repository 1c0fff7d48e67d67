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
    /// Webhooks count.
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
        let spec = &autoscaler.spec;
        let named = TargetRef::of(autoscaler).ok_or(Problem::NoTarget)?;
        let target = stores.target(&named).filter(|target| !target.is_leaving()).ok_or(Problem::TargetMissing(named))?;
        let trigger = spec.workflow_job_trigger();
        let life = trigger.and_then(|trigger| trigger.duration_or_default().ok()).unwrap_or(ScaleUpTrigger::DEFAULT_DURATION);
        Ok(Self {
            target,
            has_trigger: trigger.is_some(),
            life: SignedDuration::try_from(life).unwrap_or(SignedDuration::MAX),
            metrics: spec.metrics.clone().unwrap_or_default(),
        })
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

#[cfg(test)]
mod decoders {
    use jiff::Timestamp;
    use pacer_api::autoscaler::ScheduledOverride;
    use pacer_core::schedule;
    use proptest::prelude::*;
    use proptest::sample::select;
    use serde_json::json;

    const ZONES: [&str; 12] = [
        "Asia/Tokyo",
        "america/new_york",
        "Australia/Lord_Howe",
        "UTC",
        "",
        "Mars/Phobos",
        "../../../etc/passwd",
        "/etc/passwd",
        "EST5EDT,M3.2.0,M11.1.0",
        "Europe/\u{0}",
        "\u{202e}",
        ".",
    ];

    /// A moment near the ends of what there is, or of this century.
    fn moment() -> impl Strategy<Value = String> {
        let offsets = select(vec!["Z", "+09:00", "-03:30", "+25:59", "-23:59", "+00:00:30", ""]);
        let years = prop_oneof![6 => 2_020_i32..2_040, 1 => -10..10_001];
        (years, 0_u8..14, 0_u8..33, 0_u8..25, 0_u8..61, offsets).prop_map(|(year, month, day, hour, minute, offset)| {
            format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:00{offset}")
        })
    }

    fn zone() -> impl Strategy<Value = Option<String>> {
        prop_oneof![4 => select(&ZONES[..]).prop_map(|name| Some(name.to_owned())), 1 => any::<String>().prop_map(Some), 2 => Just(None)]
    }

    proptest! {
        #[test]
        fn schedule_is_read_or_refused_whatever_it_says(
            (start, end, until) in (moment(), moment(), proptest::option::of(moment())),
            frequency in select(vec![None, Some("Daily"), Some("Weekly"), Some("Monthly"), Some("Yearly"), Some("Hourly")]),
            zone in zone(),
            now in Timestamp::MIN.as_second()..Timestamp::MAX.as_second(),
            near in 1_577_836_800_i64..2_240_000_000,
        ) {
            let written = json!({
                "startTime": start, "endTime": end, "timeZone": zone, "minReplicas": 3,
                "recurrenceRule": {"frequency": frequency, "untilTime": until},
            });
            let Ok(entry) = serde_json::from_value::<ScheduledOverride>(written) else { return Ok(()) };
            let Ok(read) = entry.read() else { return Ok(()) };
            let overrides = [read];
            for now in [now, near].into_iter().filter_map(|second| Timestamp::from_second(second).ok()) {
                let Ok(schedule) = schedule::evaluate(&overrides, now) else { continue };
                prop_assert!(schedule.active.is_none_or(|(_, period)| period.contains(now)), "{schedule:?}");
                prop_assert!(schedule.upcoming.is_none_or(|(_, period)| period.start > now), "{schedule:?}");
                prop_assert!(schedule.next_change.is_none_or(|change| change > now), "{schedule:?}");
                let _said = schedule.summary(&overrides, None);
            }
        }
    }
}
