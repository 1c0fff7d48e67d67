//! What the metrics of an autoscaler suggest.

use kube::ResourceExt;
use pacer_core::autoscale::Suggestion;
use pacer_core::autoscale::metric::{self, Metric};
use pacer_core::busy::{Count, Fields, Rules};
use pacer_core::demand::Demand;
use pacer_core::ledger::State;

use super::observe::Fleet;
use super::queue::Queues;
use super::spec::Spec;
use super::{Autoscalers, MetricGauges, Observation, Problem, Subject};

/// What the metrics of an autoscaler suggest.
#[derive(Default)]
pub(super) struct Metrics {
    pub(super) suggestion: Option<Suggestion>,
    /// The known jobs are what counts: the capacity policy plans for them.
    pub(super) jobs_counted: bool,
    /// GitHub did not tell everything: the number must not fall for that reason.
    pub(super) incomplete: bool,
    /// Why GitHub did not tell everything.
    pub(super) trouble: Option<String>,
}

/// What the share of busy runners says.
enum BusyShare {
    /// So many runners.
    Suggests(Suggestion),
    /// Nothing, because GitHub does not say which runners are busy now; this is why.
    Unknown(String),
}

impl Autoscalers {
    /// Asks the metrics in their order.
    pub(super) async fn suggest(&self, of: Subject<'_>, spec: &Spec<'_>, seen: &Observation) -> Result<Metrics, Problem> {
        let mut result = Metrics { jobs_counted: spec.sources.has_trigger, ..Metrics::default() };
        let mut next = spec.primary;
        let mut asked_fallback = false;
        while let Some(metric) = next {
            match metric {
                Metric::QueuedAndInProgressRuns => {
                    spec.sources.repositories()?;
                    result.jobs_counted = true;
                    if !seen.queues.all_read {
                        result.incomplete = true;
                        let unread = || "GitHub's job queue has not been read completely yet".to_owned();
                        result.trouble = Some(seen.queues.trouble.clone().unwrap_or_else(unread));
                    }
                    self.remember_gauges(of, spec, runs(&seen.queues, &seen.demand));
                    return Ok(result);
                }
                Metric::PercentageRunnersBusy => match self.percentage(of, spec, &seen.fleet).await? {
                    BusyShare::Suggests(suggestion) if suggestion.replicas > 0 => {
                        result.suggestion = Some(suggestion);
                        return Ok(result);
                    }
                    BusyShare::Suggests(_) => {}
                    BusyShare::Unknown(why) => {
                        result.incomplete = true;
                        result.trouble = Some(why);
                        return Ok(result);
                    }
                },
            }
            if asked_fallback {
                break;
            }
            asked_fallback = true;
            next = metric::fallback(&spec.sources.types())?;
        }
        Ok(result)
    }

    async fn percentage(&self, of: Subject<'_>, spec: &Spec<'_>, fleet: &Fleet) -> Result<BusyShare, Problem> {
        let Some(fields) = spec.sources.metrics.first() else {
            return Ok(BusyShare::Unknown("the autoscaler has no metric".to_owned()));
        };
        let rules = Rules::parse(&Fields {
            scale_up_threshold: fields.scale_up_threshold.as_deref(),
            scale_down_threshold: fields.scale_down_threshold.as_deref(),
            scale_up_factor: fields.scale_up_factor.as_deref(),
            scale_down_factor: fields.scale_down_factor.as_deref(),
            scale_up_adjustment: fields.scale_up_adjustment,
            scale_down_adjustment: fields.scale_down_adjustment,
        })?;
        let namespace = of.object.namespace().unwrap_or_default();
        let access = self.github.get(&namespace, spec.sources.target.config()).await;
        let access = access.map_err(|error| Problem::GitHub(error.to_string()))?;
        // An old listing has none of the runners that were made since: each one would count as idle.
        if let Some(outage) = access.outage() {
            return Ok(BusyShare::Unknown(format!("the runners can't be listed at GitHub: {}", outage.message)));
        }
        let Some(view) = access.view() else {
            return Ok(BusyShare::Unknown("the runners have not been listed at GitHub yet".to_owned()));
        };
        if !view.is_valid(of.clock.instant.into()) {
            return Ok(BusyShare::Unknown("the newest list of runners that GitHub gave is too old".to_owned()));
        }
        let own: Vec<_> = fleet.runners.present.iter().filter_map(|name| view.get(name)).collect();
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        // Runners whose removal GitHub refused are among the listed ones.
        let count = Count {
            before: spec.sources.target.replicas(),
            busy: number(own.iter().filter(|runner| runner.busy).count()),
            terminating_busy: 0,
            registered: number(own.len()),
        };
        let suggestion = rules.suggest(&count);
        let values = vec![
            ("replicas_desired", i64::from(suggestion.replicas)),
            ("runners", i64::try_from(fleet.runners.present.len()).unwrap_or(i64::MAX)),
            ("runners_registered", i64::from(count.registered)),
            ("runners_busy", i64::from(count.busy)),
            ("terminating_busy", i64::from(count.terminating_busy)),
        ];
        self.remember_gauges(of, spec, values);
        Ok(BusyShare::Suggests(suggestion))
    }

    fn remember_gauges(&self, of: Subject<'_>, spec: &Spec<'_>, values: Vec<(&'static str, i64)>) {
        let config = spec.sources.target.config();
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let gauges = MetricGauges {
            values,
            scope: [text(&config.enterprise), text(&config.organization), text(&config.repository)],
            kind: spec.sources.target.kind(),
            target: spec.sources.target.name().to_owned(),
        };
        self.memory.memos.change(of.uid, |memo| memo.gauges = Some(gauges));
    }
}

/// What ARC's metrics say of job lists.
fn runs(queues: &Queues, demand: &Demand) -> Vec<(&'static str, i64)> {
    let count = |state| i64::try_from(demand.jobs.values().filter(|job| job.state == state).count()).unwrap_or(i64::MAX);
    let [completed, unknown] = queues.runs;
    let (queued, running) = (count(State::Queued), count(State::InProgress));
    vec![
        ("necessary_replicas", queued.saturating_add(running)),
        ("workflow_runs_completed", i64::from(completed)),
        ("workflow_runs_in_progress", running),
        ("workflow_runs_queued", queued),
        ("workflow_runs_unknown", i64::from(unknown)),
    ]
}
