//! What `/metrics` exports: names, types and labels, on which alert rules, dashboards and the queries of users rest. They are on a page that
//! users read, and so do the tests of the rules, which need no cluster. And who gets them.

mod access;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context, Result};
use pacer_harness::operator::Operator;
use pacer_suites::fleet::{runner_set, with_volumes};
use pacer_suites::webhook::promptly_hooked_world;
use pacer_suites::{PATIENCE, apply, deployment, end_as_it_is, patient_autoscaler, put, queue, runners, succeeded, with_spec};
use serde_json::{Value, json};

/// Path of the generated page about metrics.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/metrics.md");

const HEADER: &str = "# Metrics\n\nThis page is generated from `/metrics` of a running operator; `make golden` regenerates it. Names are as in \
                      queries.\nBuckets, sums and counts of histograms have the endings that Prometheus gives them. The glossary says more about the \
                      values of\nlabels: [metrics](../glossary.md#metrics). A metric that counts what did not happen in that test is not listed, such \
                      as\n`github_workflow_job_failures_total`.\n\n| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n";

/// Metrics whose labels are known only after something has happened; the page is written anew when they are.
const LATE: [&str; 15] = [
    "github_workflow_job_conclusions_total",
    "horizontalrunnerautoscaler_runners_busy",
    "horizontalrunnerautoscaler_workflow_runs_queued",
    "pacer_http_connections_dropped_total",
    "pacer_job_online_seconds",
    "pacer_job_queue_by_labels_seconds",
    "pacer_job_queue_seconds",
    "pacer_policy_breaker_open",
    "pacer_policy_set_phase",
    "pacer_repository_runner_seconds_total",
    "pacer_runner_seconds_total",
    "pacer_runners",
    "pacer_runnerset_claims",
    "pacer_shadow_would_be_refused",
    "pacer_shadow_would_be_runners",
];

/// What is said of one metric.
struct Metric {
    kind: String,
    help: String,
    labels: BTreeSet<String>,
}

/// Metrics that were scraped, by their names in queries.
#[derive(Default)]
struct Exported(BTreeMap<String, Metric>);

impl Exported {
    /// Of the text of a scrape.
    fn scraped(text: &str) -> Self {
        let mut all = Self::default();
        let mut help = "";
        for line in text.lines() {
            if let Some((_, text)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
                help = text;
            } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
                let metric =
                    Metric { kind: kind.to_owned(), help: help.trim_end_matches('.').to_owned(), labels: BTreeSet::new() };
                // Whatever processes export both comes once for each.
                all.0.entry(queried(name, kind)).or_insert(metric);
            } else if !line.starts_with('#') {
                all.sample(line);
            }
        }
        all
    }

    fn sample(&mut self, line: &str) {
        let Some((name, rest)) = line.split_once('{') else { return };
        let ends = ["_bucket", "_sum", "_count"];
        let of_histogram = ends.iter().find_map(|end| name.strip_suffix(end)).filter(|name| self.0.contains_key(*name));
        if let Some(metric) = self.0.get_mut(of_histogram.unwrap_or(name)) {
            metric.labels.extend(keys(rest).filter(|label| *label != "le").map(str::to_owned));
        }
    }

    fn has_labels(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|metric| !metric.labels.is_empty())
    }

    fn page(&self) -> String {
        let mut page = HEADER.to_owned();
        for (name, Metric { kind, help, labels }) in &self.0 {
            let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
            let _ = writeln!(page, "| `{name}` | {kind} | {} | {} |", labels.join(", "), help.replace('|', "\\|"));
        }
        page
    }
}

/// The name in queries: counters end in `_total` there.
fn queried(name: &str, kind: &str) -> String {
    if kind == "counter" { format!("{name}_total") } else { name.to_owned() }
}

/// Keys of `a="b",c="d"} 1`.
fn keys(labels: &str) -> impl Iterator<Item = &str> {
    let mut escaped = false;
    let unquoted = labels.split(move |letter: char| {
        let ends = letter == '"' && !escaped;
        escaped = letter == '\\' && !escaped;
        ends
    });
    // Every second part is a value.
    unquoted.step_by(2).filter_map(|part| part.strip_suffix('=')).map(|part| part.trim_start_matches(','))
}

#[test]
fn keys_of_labels_are_found_beside_values_with_quotes() {
    let found: Vec<&str> = keys(r#"a="b",c="d=\"e\",f=",g=""} 1"#).collect();
    assert_eq!(found, ["a", "c", "g"]);
}

fn autoscaler(target: &str, metric: &str) -> Value {
    put(patient_autoscaler(target, target, 1, 4), "/spec", "metrics", json!([{"type": metric}]))
}

async fn operator_drops_a_connection(operator: &Operator) {
    // A head that is too large; whether the answer can still be read is open.
    let _ = operator.get(&format!("/{}", "x".repeat(80 * 1024))).await;
}

/// Set `UPDATE_GOLDEN=1` to write the page anew.
#[tokio::test(flavor = "multi_thread")]
async fn exported_metrics_are_those_of_the_page() -> Result<()> {
    // The simulation is exact only where events tell at once what happens: the jobs here take one second.
    let world = promptly_hooked_world(&["--shadow-simulation-interval=1s"]).await?;
    let operator = world.operator.as_ref().context("no operator")?;
    let namespace = "actions-runner-system";
    let set = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "pacer-policies", "namespace": namespace},
        "data": {"policies.yaml": "restart: {module: builtin}\ncapacity: {module: builtin, mode: shadow}\n"},
    });
    apply(&world, &set).await?;
    apply(&world, &deployment("web", 2)).await?;
    apply(&world, &with_volumes(runner_set("builds", 1))).await?;
    apply(&world, &deployment("polled", 1)).await?;
    apply(&world, &autoscaler("web", "PercentageRunnersBusy")).await?;
    apply(&world, &autoscaler("polled", "TotalNumberOfQueuedAndInProgressWorkflowRuns")).await?;
    // A pool that no policy changes. The simulation of it is exact, or becomes so with the jobs that follow: on a busy machine the waits of the first
    // ones differ too much. No job comes to the one that is polled, of which nothing is said.
    let mut kept = autoscaler("kept", "");
    kept["spec"] = json!({
        "scaleTargetRef": {"name": "kept"}, "minReplicas": 1, "maxReplicas": 1,
        "scaleUpTriggers": [{"githubEvent": {"workflowJob": {}}, "duration": "30m"}],
    });
    apply(&world, &with_spec(deployment("kept", 1), "ephemeral", false.into())).await?;
    apply(&world, &kept).await?;
    runners(&world, "5 online", |counts| counts.online >= 5).await?;
    queue(&world, "web", 2, Duration::from_secs(1))?;
    let one_for_kept = || queue(&world, "kept", 1, Duration::from_secs(1))?.first().copied().context("a job");
    let mut newest = one_for_kept()?;
    succeeded(&world, 3).await?;
    operator_drops_a_connection(operator).await;

    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let listed = std::fs::read_to_string(PAGE).unwrap_or_default();
    let mut last = Exported::default();
    let reached = tokio::time::timeout(PATIENCE, async {
        loop {
            let received = world.receivers.as_ref().context("no receivers")?.metrics().await.unwrap_or_default();
            last = Exported::scraped(&[operator.metrics().await.unwrap_or_default(), received].concat());
            let complete = if update { LATE.iter().all(|name| last.has_labels(name)) } else { last.page() == listed };
            if complete {
                return anyhow::Ok(());
            }
            if world.github.job(newest).is_some_and(|job| job.conclusion.is_some()) {
                newest = one_for_kept()?;
            }
            // A scrape announces nothing.
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    })
    .await;
    let found = last.page();
    let difference = || {
        let (found, listed): (BTreeSet<_>, BTreeSet<_>) = (found.lines().collect(), listed.lines().collect());
        let more: Vec<_> = found.difference(&listed).collect();
        let fewer: Vec<_> = listed.difference(&found).collect();
        format!("docs/reference/metrics.md is not /metrics; exported only {more:#?}, told only {fewer:#?}")
    };
    reached.unwrap_or_else(|late| Err(late.into())).with_context(difference)?;
    if update {
        std::fs::write(PAGE, &found)?;
    }
    end_as_it_is(world).await
}
