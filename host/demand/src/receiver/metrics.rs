//! What happened to deliveries. Labels are from closed sets, or of autoscalers that exist.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use jiff::SignedDuration;
use pacer_cluster::watch::Filled;
use pacer_core::target::label_set;
use pacer_github::webhook::{Event, JobAction};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::job_metrics::JobMetrics;

/// Upper ends of the buckets for waits of jobs, seconds: from a warm runner to an hour.
pub const WAITS: [f64; 11] = [1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 60.0, 120.0, 300.0, 900.0, 3_600.0];

/// Upper ends of the buckets for answers, seconds: GitHub waits for ten.
const ANSWERS: [f64; 10] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 8.0];

/// Sets of labels that are told apart.
const LABEL_SETS: usize = 16;

/// Characters of a set of labels that are kept.
const LENGTH: usize = 100;

/// What became of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Outcome {
    /// A ledger has changed.
    Recorded,
    /// The ledger had it already.
    Known,
    /// It is of no use.
    Ignored,
    /// No autoscaler is responsible.
    NoTarget,
    /// It was not taken: not signed, or not to be understood.
    Refused,
    /// It could not be recorded now.
    Unavailable,
    /// The ledger that it belongs to is full.
    Full,
}

/// Event, action and outcome of deliveries that were not taken.
const FAILURES: [(&str, &str, Outcome); 8] = [
    ("unknown", "none", Outcome::Refused),
    ("unknown", "none", Outcome::Unavailable),
    ("workflow_job", "queued", Outcome::Unavailable),
    ("workflow_job", "in_progress", Outcome::Unavailable),
    ("workflow_job", "completed", Outcome::Unavailable),
    ("workflow_job", "queued", Outcome::Full),
    ("workflow_job", "in_progress", Outcome::Full),
    ("workflow_job", "completed", Outcome::Full),
];

impl Outcome {
    fn as_str(self) -> &'static str {
        match self {
            Self::Recorded => "recorded",
            Self::Known => "known",
            Self::Ignored => "ignored",
            Self::NoTarget => "no_target",
            Self::Refused => "refused",
            Self::Unavailable => "unavailable",
            Self::Full => "full",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EventLabels {
    event: &'static str,
    action: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AutoscalerLabels {
    namespace: String,
    horizontalrunnerautoscaler: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct JobLabels {
    labels: String,
}

/// The figures; clones share them.
#[derive(Clone, Debug)]
pub struct ReceiverMetrics {
    events: Family<EventLabels, Counter>,
    answers: Histogram,
    waits: Family<AutoscalerLabels, Histogram, fn() -> Histogram>,
    /// Autoscalers that have a series of waits.
    waited: Arc<Mutex<HashSet<AutoscalerLabels>>>,
    /// By labels that jobs ask for. Beside the waits by autoscaler: with one more label in those, there would be as many times more series.
    waits_by_labels: Family<JobLabels, Histogram, fn() -> Histogram>,
    label_sets: Arc<Mutex<HashSet<String>>>,
    jobs: JobMetrics,
    /// Of the stores that the receiver reads.
    filled: Arc<RwLock<Filled>>,
}

impl ReceiverMetrics {
    /// Registers the receiver's series, those of jobs included.
    pub fn register(registry: &mut Registry) -> Self {
        let wait: fn() -> Histogram = || Histogram::new(WAITS);
        let metrics = Self {
            events: Family::default(),
            answers: Histogram::new(ANSWERS),
            waits: Family::new_with_constructor(wait),
            waited: Arc::default(),
            waits_by_labels: Family::new_with_constructor(wait),
            label_sets: Arc::default(),
            jobs: JobMetrics::register(registry),
            filled: Arc::default(),
        };
        registry.register("pacer_webhook_events", "Webhook deliveries by what became of them", metrics.events.clone());
        // There from the start, so that the first failures are an increase that alerts see.
        for (event, action, outcome) in FAILURES {
            drop(metrics.events.get_or_create(&EventLabels { event, action, outcome: outcome.as_str() }));
        }
        registry.register("pacer_webhook_seconds", "Time from a delivery's body to its answer", metrics.answers.clone());
        let help = "Time from a job's queueing to its start, as webhooks tell it";
        registry.register("pacer_job_queue_seconds", help, metrics.waits.clone());
        let help = "Time from a job's queueing to its start by the labels that it asks for, sorted, with commas between them; of the first 16 sets of \
                    labels, and all others together (other)";
        registry.register("pacer_job_queue_by_labels_seconds", help, metrics.waits_by_labels.clone());
        metrics
    }

    /// The series of ARC's actions-metrics-server.
    pub(super) fn jobs(&self) -> &JobMetrics {
        &self.jobs
    }

    /// The receiver reads these stores from now on.
    pub(super) fn read_from(&self, filled: Filled) {
        *self.filled.write().unwrap_or_else(PoisonError::into_inner) = filled;
    }

    /// Each kind that the receiver watches, and how many of its objects cannot be read; nothing where there is no receiver.
    #[must_use]
    pub fn unreadable(&self) -> Vec<(String, usize)> {
        let filled = self.filled.read().unwrap_or_else(PoisonError::into_inner);
        filled.unreadable().map(|(kind, count)| (kind.to_owned(), count)).collect()
    }

    /// Counts a delivery; one that could not be read has no event.
    pub(super) fn count(&self, event: Option<&Event>, outcome: Outcome, took: Duration) {
        let (event, action) = match event {
            None => ("unknown", "none"),
            Some(Event::Ping(_)) => ("ping", "none"),
            Some(Event::Other(_)) => ("other", "none"),
            Some(Event::WorkflowJob(job)) => {
                let action = match job.action {
                    JobAction::Queued => "queued",
                    JobAction::InProgress => "in_progress",
                    JobAction::Completed => "completed",
                    JobAction::Waiting => "waiting",
                    JobAction::Other => "other",
                };
                ("workflow_job", action)
            }
        };
        self.events.get_or_create(&EventLabels { event, action, outcome: outcome.as_str() }).inc();
        self.answers.observe(took.as_secs_f64());
    }

    /// A job of this autoscaler has started, which asks for these labels.
    pub(super) fn started(&self, namespace: &str, autoscaler: &str, asks: &[impl AsRef<str>], waited: SignedDuration) {
        let labels = AutoscalerLabels { namespace: namespace.to_owned(), horizontalrunnerautoscaler: autoscaler.to_owned() };
        // GitHub's clocks may disagree with each other by a second.
        let waited = waited.as_secs_f64().max(0.0);
        self.waits.get_or_create(&labels).observe(waited);
        self.waited.lock().unwrap_or_else(PoisonError::into_inner).insert(labels);
        self.waits_by_labels.get_or_create(&JobLabels { labels: self.told_as(asks) }).observe(waited);
    }

    /// Labels as one, or what those beyond the bound share.
    fn told_as(&self, asks: &[impl AsRef<str>]) -> String {
        let set: String = label_set(asks).into_iter().collect::<Vec<_>>().join(",").chars().take(LENGTH).collect();
        let mut known = self.label_sets.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= LABEL_SETS && !known.contains(&set) {
            return "other".to_owned();
        }
        known.insert(set.clone());
        set
    }

    /// Drops the figures of autoscalers that are gone, by namespace and name.
    pub(super) fn retain(&self, exists: impl Fn(&str, &str) -> bool) {
        self.waited.lock().unwrap_or_else(PoisonError::into_inner).retain(|labels| {
            let kept = exists(&labels.namespace, &labels.horizontalrunnerautoscaler);
            if !kept {
                self.waits.remove(labels);
            }
            kept
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_have_a_series_before_the_first_one() {
        let mut registry = Registry::default();
        let _metrics = ReceiverMetrics::register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let mut events: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("pacer_webhook_events_total")).collect();
        events.sort_unstable();
        let expected = [
            r#"{event="unknown",action="none",outcome="refused"} 0"#,
            r#"{event="unknown",action="none",outcome="unavailable"} 0"#,
            r#"{event="workflow_job",action="completed",outcome="full"} 0"#,
            r#"{event="workflow_job",action="completed",outcome="unavailable"} 0"#,
            r#"{event="workflow_job",action="in_progress",outcome="full"} 0"#,
            r#"{event="workflow_job",action="in_progress",outcome="unavailable"} 0"#,
            r#"{event="workflow_job",action="queued",outcome="full"} 0"#,
            r#"{event="workflow_job",action="queued",outcome="unavailable"} 0"#,
        ];
        assert_eq!(events, expected);
    }

    #[test]
    fn series_of_autoscaler_are_removed_when_it_is_gone() {
        let mut registry = Registry::default();
        let metrics = ReceiverMetrics::register(&mut registry);
        metrics.started("ci", "web", &["linux"], SignedDuration::from_secs(3));
        metrics.started("ci", "old", &["linux"], SignedDuration::from_secs(-1));
        metrics.count(Some(&Event::Other("push".to_owned())), Outcome::Ignored, Duration::from_millis(20));
        metrics.retain(|namespace, autoscaler| (namespace, autoscaler) == ("ci", "web"));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert!(text.contains(r#"pacer_webhook_events_total{event="other",action="none",outcome="ignored"} 1"#), "{text}");
        assert!(text.contains(r#"horizontalrunnerautoscaler="web""#) && !text.contains(r#"="old""#), "{text}");
    }

    #[test]
    fn waits_are_told_by_sets_of_labels_however_they_are_written_and_those_beyond_the_bound_together() {
        let mut registry = Registry::default();
        let metrics = ReceiverMetrics::register(&mut registry);
        let started = |asks: &[&str]| metrics.started("ci", "web", asks, SignedDuration::from_secs(3));
        for asks in [["self-hosted", "Linux"], ["linux", "self-hosted"], ["linux", "Self-Hosted"]] {
            started(&asks);
        }
        (1..LABEL_SETS + 3).for_each(|number| started(&[&format!("size-{number}")]));
        started(&["linux", "self-hosted"]);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in ["{labels=\"linux,self-hosted\"} 4", "{labels=\"size-15\"} 1", "{labels=\"other\"} 3"] {
            assert!(text.contains(&format!("pacer_job_queue_by_labels_seconds_count{line}\n")), "{line} {text}");
        }
        assert_eq!(text.matches("pacer_job_queue_by_labels_seconds_count").count(), LABEL_SETS + 1);
        let long = "x".repeat(500);
        assert_eq!(ReceiverMetrics::register(&mut Registry::default()).told_as(&[long]).len(), LENGTH);
    }
}
