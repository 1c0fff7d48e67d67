//! What happens to jobs, as webhooks tell it: the series of ARC's actions-metrics-server under their names (arc-behaviour 6.3).
//!
//! Durations are those of the payload's times; no logs are fetched. What people write into workflows becomes a label only where it is asked for,
//! and only so many combinations are kept apart: the rest counts as `other`.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use pacer_github::webhook::{JobAction, WorkflowJob};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// ARC's buckets, seconds.
const BUCKETS: [f64; 45] = [
    0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 12.0, 15.0, 18.0, 20.0, 25.0, 30.0, 40.0, 50.0,
    60.0, 70.0, 80.0, 90.0, 100.0, 110.0, 120.0, 150.0, 180.0, 210.0, 240.0, 300.0, 360.0, 420.0, 480.0, 540.0, 600.0, 900.0,
    1_200.0, 1_800.0, 2_400.0, 3_000.0, 3_600.0,
];

/// Conclusions that GitHub knows; another one counts as `other`.
const CONCLUSIONS: [&str; 8] = ["success", "failure", "cancelled", "skipped", "timed_out", "neutral", "action_required", "stale"];

/// Events that are remembered, so that one that is delivered twice counts once.
const REMEMBERED: usize = 20_000;

/// Steps of a job that are told apart.
const STEPS: usize = 50;

/// Characters of a label that are kept.
const LENGTH: usize = 100;

/// A label of ARC's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum JobLabel {
    /// Labels that the job asks for, with commas between them.
    RunsOn,
    /// Name of the job; empty where GitHub does not say.
    JobName,
    /// Login of the organization; empty for a person's repository.
    Organization,
    /// Name of the repository.
    Repository,
    /// `owner/name`.
    RepositoryFullName,
    /// Login of the repository's owner.
    Owner,
    /// Name of the workflow; empty where GitHub does not say.
    WorkflowName,
    /// Branch of the job's run; empty where GitHub does not say.
    HeadBranch,
}

impl JobLabel {
    /// All, in ARC's order.
    pub const ALL: [Self; 8] = [
        Self::RunsOn,
        Self::JobName,
        Self::Organization,
        Self::Repository,
        Self::RepositoryFullName,
        Self::Owner,
        Self::WorkflowName,
        Self::HeadBranch,
    ];

    /// Those that an administrator decides about, and not whoever writes a workflow.
    pub const DEFAULT: [Self; 4] = [Self::Organization, Self::Repository, Self::RepositoryFullName, Self::Owner];

    /// ARC's name for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RunsOn => "runs_on",
            Self::JobName => "job_name",
            Self::Organization => "organization",
            Self::Repository => "repository",
            Self::RepositoryFullName => "repository_full_name",
            Self::Owner => "owner",
            Self::WorkflowName => "workflow_name",
            Self::HeadBranch => "head_branch",
        }
    }

    fn of(self, job: &WorkflowJob) -> String {
        let repository = &job.repository;
        let value = match self {
            Self::RunsOn => job.labels.join(","),
            Self::JobName => job.name.clone(),
            Self::Organization => job.organization.clone().unwrap_or_default(),
            Self::Repository => repository.name.clone(),
            Self::RepositoryFullName => format!("{}/{}", repository.owner, repository.name),
            Self::Owner => repository.owner.clone(),
            Self::WorkflowName => job.workflow.clone(),
            Self::HeadBranch => job.branch.clone(),
        };
        value.chars().take(LENGTH).collect()
    }
}

/// Which labels the series of jobs have, and how many series there may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobMetricsSettings {
    /// Labels, each once.
    pub labels: Vec<JobLabel>,
    /// Combinations of them that are told apart; 0: nothing is counted.
    pub series: usize,
}

impl Default for JobMetricsSettings {
    fn default() -> Self {
        Self { labels: JobLabel::DEFAULT.to_vec(), series: 1_000 }
    }
}

type Labels = Vec<(&'static str, String)>;

type Counts = Family<Labels, Counter>;

type Durations = Family<Labels, Histogram, fn() -> Histogram>;

/// The figures; clones share them.
#[derive(Clone, Debug)]
pub(super) struct JobMetrics {
    queued: Counts,
    started: Counts,
    completed: Counts,
    conclusions: Counts,
    failures: Counts,
    queue: Durations,
    run: Durations,
    memory: Arc<Mutex<Memory>>,
}

#[derive(Debug, Default)]
struct Memory {
    /// Combinations of labels.
    known: HashSet<Labels>,
    /// Events that were counted, the oldest first.
    order: VecDeque<Event>,
    counted: HashSet<Event>,
}

/// A job, its attempt, and whether it was queued, started or completed.
type Event = (u64, u32, u8);

impl JobMetrics {
    /// Registers the series of jobs.
    pub(super) fn register(registry: &mut Registry) -> Self {
        let duration: fn() -> Histogram = || Histogram::new(BUCKETS);
        let durations = || Durations::new_with_constructor(duration);
        let metrics = Self {
            queued: Counts::default(),
            started: Counts::default(),
            completed: Counts::default(),
            conclusions: Counts::default(),
            failures: Counts::default(),
            queue: durations(),
            run: durations(),
            memory: Arc::default(),
        };
        for (name, help, counts) in [
            ("github_workflow_jobs_queued", "Total count of workflow jobs queued", &metrics.queued),
            ("github_workflow_jobs_started", "Total count of workflow jobs started", &metrics.started),
            ("github_workflow_jobs_completed", "Total count of workflow jobs completed", &metrics.completed),
            ("github_workflow_job_conclusions", "Conclusions of workflow jobs", &metrics.conclusions),
            ("github_workflow_job_failures", "Failed workflow jobs, by the first step that failed", &metrics.failures),
        ] {
            registry.register(name, help, counts.clone());
        }
        let help = "Time from a workflow job's creation to its start";
        registry.register("github_workflow_job_queue_duration_seconds", help, metrics.queue.clone());
        let help = "Time from a workflow job's start to its end";
        registry.register("github_workflow_job_run_duration_seconds", help, metrics.run.clone());
        metrics
    }

    /// Counts what happened to a job, once however often it is told.
    pub(super) fn observe(&self, job: &WorkflowJob, settings: &JobMetricsSettings) {
        let step = match job.action {
            JobAction::Queued => 0,
            JobAction::InProgress => 1,
            JobAction::Completed => 2,
            JobAction::Waiting | JobAction::Other => return,
        };
        let Some(labels) = self.labels((job.id, job.attempt, step), job, settings) else { return };
        match job.action {
            JobAction::Queued => inc(&self.queued, &labels),
            JobAction::InProgress => {
                observe(&self.queue, &labels, job.created_at, job.started_at);
                inc(&self.started, &labels);
            }
            JobAction::Completed => self.completed(job, &labels),
            JobAction::Waiting | JobAction::Other => {}
        }
    }

    fn completed(&self, job: &WorkflowJob, labels: &Labels) {
        let conclusion = job.conclusion.as_deref().unwrap_or_default();
        let known = CONCLUSIONS.into_iter().find(|known| *known == conclusion).unwrap_or("other");
        let concluded = with(labels, [("job_conclusion", known.to_owned())]);
        // A job that never had a runner did not run.
        if job.runner_name.is_some() {
            observe(&self.run, &concluded, job.started_at, job.completed_at);
        }
        if known == "failure" {
            let step = match job.failed_step {
                None => "null".to_owned(),
                Some(step) if step.index < STEPS => step.index.to_string(),
                Some(_) => "other".to_owned(),
            };
            // The exit code is in the log alone.
            let exit_code = if job.failed_step.is_some_and(|step| step.timed_out) { "timed_out" } else { "na" };
            inc(&self.failures, &with(&concluded, [("failed_step", step), ("exit_code", exit_code.to_owned())]));
        }
        inc(&self.conclusions, &concluded);
        inc(&self.completed, labels);
    }

    /// Labels to count an event under; none when it has been counted, or nothing is.
    fn labels(&self, event: Event, job: &WorkflowJob, settings: &JobMetricsSettings) -> Option<Labels> {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        if settings.series == 0 || !memory.counted.insert(event) {
            return None;
        }
        memory.order.push_back(event);
        if memory.order.len() > REMEMBERED
            && let Some(oldest) = memory.order.pop_front()
        {
            memory.counted.remove(&oldest);
        }
        let labels: Labels = settings.labels.iter().map(|label| (label.as_str(), label.of(job))).collect();
        if memory.known.contains(&labels) {
            return Some(labels);
        }
        if memory.known.len() >= settings.series {
            return Some(settings.labels.iter().map(|label| (label.as_str(), "other".to_owned())).collect());
        }
        memory.known.insert(labels.clone());
        Some(labels)
    }
}

fn with<const N: usize>(labels: &Labels, more: [(&'static str, String); N]) -> Labels {
    labels.iter().cloned().chain(more).collect()
}

fn inc(counts: &Counts, labels: &Labels) {
    counts.get_or_create(labels).inc();
}

/// GitHub's clocks may disagree with each other by a second.
fn observe(durations: &Durations, labels: &Labels, begin: Option<Timestamp>, end: Option<Timestamp>) {
    if let (Some(begin), Some(end)) = (begin, end) {
        durations.get_or_create(labels).observe(end.duration_since(begin).as_secs_f64().max(0.0));
    }
}

#[cfg(test)]
mod tests {
    use pacer_github::webhook::{Event, Verifier, open};
    use serde_json::{Value, json};

    use super::*;

    /// A job as GitHub tells of it.
    #[expect(clippy::needless_pass_by_value, reason = "tables are easier to read without references")]
    fn told(action: &str, id: u64, change: Value) -> WorkflowJob {
        let mut job = json!({
            "id": id, "run_id": 7, "run_attempt": 1, "name": "build", "workflow_name": "CI", "head_branch": "main",
            "labels": ["self-hosted", "linux"], "runner_id": 5, "runner_name": "web-abcde", "conclusion": null,
            "created_at": "2024-05-06T07:08:09Z", "started_at": "2024-05-06T07:08:19Z", "completed_at": "2024-05-06T07:10:09Z",
            "steps": [],
        });
        for (field, value) in change.as_object().unwrap() {
            job[field] = value.clone();
        }
        let payload = json!({
            "action": action, "workflow_job": job,
            "repository": {"full_name": "acme/app", "name": "app", "owner": {"login": "acme", "type": "Organization"}},
            "organization": {"login": "acme"},
        });
        let mut headers = http::HeaderMap::new();
        headers.insert("x-github-event", http::HeaderValue::from_static("workflow_job"));
        let verifier = Verifier::new(&[], false).unwrap();
        match open(&verifier, &headers, payload.to_string().as_bytes()).unwrap().event {
            Event::WorkflowJob(job) => *job,
            other => panic!("{other:?}"),
        }
    }

    fn text(jobs: &[WorkflowJob], settings: &JobMetricsSettings) -> String {
        let mut registry = Registry::default();
        let metrics = JobMetrics::register(&mut registry);
        for job in jobs {
            metrics.observe(job, settings);
        }
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let text = text.replace("{}", "");
        text.lines().filter(|line| !line.starts_with('#') && !line.contains("_bucket")).map(|line| format!("{line}\n")).collect()
    }

    fn none() -> JobMetricsSettings {
        JobMetricsSettings { labels: Vec::new(), series: 10 }
    }

    #[test]
    fn arc_labels_are_present_when_asked_for() {
        let all = JobMetricsSettings { labels: JobLabel::ALL.to_vec(), series: 10 };
        let labels = r#"runs_on="self-hosted,linux",job_name="build",organization="acme",repository="app",repository_full_name="acme/app",owner="acme",workflow_name="CI",head_branch="main""#;
        assert_eq!(text(&[told("queued", 1, json!({}))], &all), format!("github_workflow_jobs_queued_total{{{labels}}} 1\n"));
        let concluded = text(&[told("completed", 1, json!({"conclusion": "success"}))], &all);
        assert!(
            concluded.contains(&format!("github_workflow_job_conclusions_total{{{labels},job_conclusion=\"success\"}} 1\n")),
            "{concluded}"
        );
        let usual = r#"organization="acme",repository="app",repository_full_name="acme/app",owner="acme""#;
        assert_eq!(
            text(&[told("queued", 1, json!({}))], &JobMetricsSettings::default()),
            format!("github_workflow_jobs_queued_total{{{usual}}} 1\n")
        );
    }

    #[test]
    fn durations_come_from_the_payload() {
        assert_eq!(
            text(&[told("in_progress", 1, json!({}))], &none()),
            "github_workflow_jobs_started_total 1\n\
             github_workflow_job_queue_duration_seconds_sum 10.0\n\
             github_workflow_job_queue_duration_seconds_count 1\n"
        );
        assert_eq!(
            text(&[told("completed", 1, json!({"conclusion": "success"}))], &none()),
            "github_workflow_jobs_completed_total 1\n\
             github_workflow_job_conclusions_total{job_conclusion=\"success\"} 1\n\
             github_workflow_job_run_duration_seconds_sum{job_conclusion=\"success\"} 110.0\n\
             github_workflow_job_run_duration_seconds_count{job_conclusion=\"success\"} 1\n"
        );
        for odd in [json!({"started_at": null}), json!({"created_at": "yesterday"})] {
            assert_eq!(text(&[told("in_progress", 1, odd)], &none()), "github_workflow_jobs_started_total 1\n");
        }
        let back = text(&[told("in_progress", 1, json!({"started_at": "2024-05-06T07:08:08Z"}))], &none());
        assert!(back.contains("queue_duration_seconds_sum 0.0\n"), "{back}");
    }

    #[test]
    fn failed_step_is_a_label_when_job_failed() {
        let step = |conclusion: &str| json!({"name": "x", "status": "completed", "conclusion": conclusion});
        let many: Vec<Value> = std::iter::repeat_n(step("success"), STEPS).chain([step("failure")]).collect();
        for (steps, failed_step, exit_code) in [
            (json!([step("success"), step("failure"), step("failure")]), "1", "na"),
            (json!([step("timed_out"), step("skipped")]), "0", "timed_out"),
            (json!([step("success"), {"name": "y", "conclusion": null}]), "null", "na"),
            (json!(null), "null", "na"),
            (json!(many), "other", "na"),
        ] {
            let failed = text(&[told("completed", 1, json!({"conclusion": "failure", "steps": steps}))], &none());
            let line = format!(
                "github_workflow_job_failures_total{{job_conclusion=\"failure\",failed_step=\"{failed_step}\",exit_code=\"{exit_code}\"}} 1\n"
            );
            assert!(failed.contains(&line), "{failed}");
        }
        let cancelled = json!({"conclusion": "cancelled", "steps": [step("failure")]});
        assert!(!text(&[told("completed", 1, cancelled)], &none()).contains("failures"));
    }

    #[test]
    fn run_time_is_missing_when_job_never_ran() {
        let skipped = json!({"conclusion": "skipped", "runner_id": 0, "runner_name": ""});
        let text = text(&[told("completed", 1, skipped)], &none());
        assert!(text.contains("conclusions_total{job_conclusion=\"skipped\"} 1\n") && !text.contains("run_duration"), "{text}");
    }

    #[test]
    fn series_are_bounded_when_labels_vary() {
        let branches = JobMetricsSettings { labels: vec![JobLabel::HeadBranch], series: 2 };
        let long = "x".repeat(500);
        let jobs: Vec<WorkflowJob> = ["a", &long, "c", "d", "a"]
            .into_iter()
            .zip(1..)
            .map(|(branch, id)| told("queued", id, json!({"head_branch": branch})))
            .collect();
        let short = "x".repeat(LENGTH);
        let counted = text(&jobs, &branches);
        for (branch, count) in [("a", 2), (short.as_str(), 1), ("other", 2)] {
            let line = format!("github_workflow_jobs_queued_total{{head_branch=\"{branch}\"}} {count}\n");
            assert!(counted.contains(&line), "{line} {counted}");
        }
        assert_eq!(counted.lines().count(), 3);
        let strange = text(&[told("completed", 1, json!({"conclusion": "exploded"}))], &none());
        assert!(strange.contains("job_conclusion=\"other\""), "{strange}");
        let twice = [told("queued", 1, json!({})), told("queued", 1, json!({})), told("queued", 1, json!({"run_attempt": 2}))];
        assert_eq!(text(&twice, &none()), "github_workflow_jobs_queued_total 2\n");
        assert_eq!(text(&[told("waiting", 1, json!({}))], &none()), "");
        assert_eq!(text(&twice, &JobMetricsSettings { series: 0, ..none() }), "");
    }
}
