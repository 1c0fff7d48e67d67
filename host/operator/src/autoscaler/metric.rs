//! What the metrics of an autoscaler suggest.

use pacer_api::HorizontalRunnerAutoscaler;
use pacer_core::autoscale::Suggestion;
use pacer_core::autoscale::metric::{self, Metric};
use pacer_core::busy::{Count, Fields, Rules};
use pacer_core::demand::Demand;
use pacer_core::ledger::State;
use pacer_core::scope::Scope;
use pacer_github::Repository;

use kube::ResourceExt;

use super::fleet::Fleet;
use super::queue::Queues;
use super::spec::Spec;
use super::{MetricGauges, Problem};
use crate::context::Context;

/// What was suggested.
#[derive(Default)]
pub(super) struct Metrics {
    pub(super) suggestion: Option<Suggestion>,
    /// The jobs that were heard of are what counts: the capacity policy plans for them.
    pub(super) jobs_counted: bool,
    /// GitHub did not tell everything: the number must not fall for that reason.
    pub(super) incomplete: bool,
    /// Why not.
    pub(super) trouble: Option<String>,
}

/// Repositories whose queues a metric of this autoscaler counts.
pub(super) fn repositories(spec: &Spec) -> Result<Vec<Repository>, Problem> {
    let runs = Metric::QueuedAndInProgressRuns;
    let Some(metric) = spec.metrics.iter().find(|metric| metric.type_.as_deref() == Some(runs.name())) else {
        return Ok(Vec::new());
    };
    let scope = spec.target.config().scope().map_err(|error| Problem::Scope(error.to_string()))?;
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

/// Asks the metrics in their order.
pub(super) async fn suggest(
    ctx: &Context,
    autoscaler: &HorizontalRunnerAutoscaler,
    spec: &Spec,
    fleet: &Fleet,
    queues: &Queues,
    heard: &Demand,
) -> Result<Metrics, Problem> {
    let mut result = Metrics { jobs_counted: spec.has_trigger, ..Metrics::default() };
    let mut next = spec.primary;
    let mut asked_fallback = false;
    while let Some(metric) = next {
        match metric {
            Metric::QueuedAndInProgressRuns => {
                repositories(spec)?;
                result.jobs_counted = true;
                if !queues.all_read {
                    result.incomplete = true;
                    result.trouble =
                        queues.trouble.clone().or_else(|| Some("GitHub's job queue has not been read completely yet".to_owned()));
                }
                remember_runs(ctx, autoscaler, spec, queues, heard);
                return Ok(result);
            }
            Metric::PercentageRunnersBusy => match percentage(ctx, autoscaler, spec, fleet).await? {
                Some(suggestion) if suggestion.replicas > 0 => {
                    result.suggestion = Some(suggestion);
                    return Ok(result);
                }
                Some(_) => {}
                None => {
                    result.incomplete = true;
                    result.trouble = Some("the runners have not been listed at GitHub yet".to_owned());
                    return Ok(result);
                }
            },
        }
        if asked_fallback {
            break;
        }
        asked_fallback = true;
        next = metric::fallback(&spec.types())?;
    }
    Ok(result)
}

/// None while nothing has been listed.
async fn percentage(
    ctx: &Context,
    autoscaler: &HorizontalRunnerAutoscaler,
    spec: &Spec,
    fleet: &Fleet,
) -> Result<Option<Suggestion>, Problem> {
    let Some(fields) = spec.metrics.first() else { return Ok(None) };
    let rules = Rules::parse(&Fields {
        scale_up_threshold: fields.scale_up_threshold.as_deref(),
        scale_down_threshold: fields.scale_down_threshold.as_deref(),
        scale_up_factor: fields.scale_up_factor.as_deref(),
        scale_down_factor: fields.scale_down_factor.as_deref(),
        scale_up_adjustment: fields.scale_up_adjustment,
        scale_down_adjustment: fields.scale_down_adjustment,
    })?;
    let config = spec.target.config();
    let access = ctx
        .access_of(&autoscaler.namespace().unwrap_or_default(), config)
        .await
        .map_err(|error| Problem::GitHub(error.to_string()))?;
    let Some(view) = access.view() else { return Ok(None) };
    let before = spec.target.replicas();
    let own: Vec<_> = fleet.witness.present.iter().filter_map(|name| view.get(name)).collect();
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    // Runners whose removal GitHub refused are among the listed ones.
    let count = Count {
        before,
        busy: number(own.iter().filter(|runner| runner.busy).count()),
        terminating_busy: 0,
        registered: number(own.len()),
    };
    let suggestion = rules.suggest(&count);
    let values = vec![
        ("replicas_desired", i64::from(suggestion.replicas)),
        ("runners", i64::try_from(fleet.witness.present.len()).unwrap_or(i64::MAX)),
        ("runners_registered", i64::from(count.registered)),
        ("runners_busy", i64::from(count.busy)),
        ("terminating_busy", i64::from(count.terminating_busy)),
    ];
    remember(ctx, autoscaler, spec, values);
    Ok(Some(suggestion))
}

fn remember_runs(ctx: &Context, autoscaler: &HorizontalRunnerAutoscaler, spec: &Spec, queues: &Queues, heard: &Demand) {
    let count = |state| i64::try_from(heard.jobs.values().filter(|job| job.state == state).count()).unwrap_or(i64::MAX);
    let [completed, unknown] = queues.runs;
    let (queued, running) = (count(State::Queued), count(State::InProgress));
    let values = vec![
        ("necessary_replicas", queued.saturating_add(running)),
        ("workflow_runs_completed", i64::from(completed)),
        ("workflow_runs_in_progress", running),
        ("workflow_runs_queued", queued),
        ("workflow_runs_unknown", i64::from(unknown)),
    ];
    remember(ctx, autoscaler, spec, values);
}

fn remember(ctx: &Context, autoscaler: &HorizontalRunnerAutoscaler, spec: &Spec, values: Vec<(&'static str, i64)>) {
    let config = spec.target.config();
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let gauges = MetricGauges {
        values,
        scope: [text(&config.enterprise), text(&config.organization), text(&config.repository)],
        kind: spec.target.kind(),
        target: spec.target.name().to_owned(),
    };
    ctx.memory.autoscaler(&autoscaler.uid().unwrap_or_default(), |memo| memo.gauges = Some(gauges));
}
