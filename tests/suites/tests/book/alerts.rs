//! Alert rules and the dashboard: each rule has tests that promtool runs and an entry for whoever is woken, each query is valid, and all of them
//! ask for what is exported. The page of what is exported is compared with the real operator by the
//! suite `metrics`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result, bail, ensure};
use pacer_suites::promtool;
use serde_json::{Value, json};

use super::promql::{Asked, asked};
use super::{elements, read, repository, text, yaml};

const RULES: &str = "deploy/alerts/pacer.yaml";
const TESTS: &str = "deploy/alerts/pacer.test.yaml";
const DASHBOARD: &str = "deploy/grafana/pacer.json";
const EXPORTED: &str = "docs/reference/metrics.md";
const RUNBOOK: &str = "docs/alerts.md";

/// Labels that Prometheus adds to a series of a scrape, or a bucket has.
const ADDED: [&str; 3] = ["instance", "job", "le"];

/// What the page says of one metric.
struct Metric {
    kind: String,
    /// None where the page has none: there are none, or none was seen.
    labels: Option<BTreeSet<String>>,
}

/// Metrics that [`EXPORTED`] lists, by their names in queries.
fn exported() -> Result<BTreeMap<String, Metric>> {
    let mut all = BTreeMap::new();
    for row in read(EXPORTED)?.lines().filter_map(|line| line.strip_prefix("| `")) {
        let mut cells = row.split(" | ");
        let (Some(name), Some(kind), Some(labels)) = (cells.next(), cells.next(), cells.next()) else {
            bail!("{EXPORTED}: {row}")
        };
        let labels: BTreeSet<String> = labels.split(',').map(|label| label.trim().trim_matches('`').to_owned()).collect();
        let known = (!labels.contains("")).then_some(labels);
        all.insert(name.trim_matches('`').to_owned(), Metric { kind: kind.to_owned(), labels: known });
    }
    ensure!(all.len() > 40, "{EXPORTED} has {} metrics", all.len());
    Ok(all)
}

/// Says what an expression asks for in vain.
fn unknown(expression: &str) -> Result<Vec<String>> {
    let exported = exported()?;
    let Asked { metrics, grouped, quoted } = asked(expression);
    let mut wrong = Vec::new();
    let mut known: BTreeSet<String> = ADDED.map(str::to_owned).into_iter().chain(quoted).collect();
    let mut open = false;
    for (name, labels) in metrics {
        let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        let histogram = of_histogram.and_then(|name| exported.get(name)).filter(|metric| metric.kind == "histogram");
        let Some(metric) = histogram.or_else(|| exported.get(&name).filter(|metric| metric.kind != "histogram")) else {
            wrong.push(format!("no metric {name} is exported: {expression}"));
            continue;
        };
        let Some(has) = &metric.labels else {
            // A metric without labels looks like one whose labels were not seen.
            open = true;
            continue;
        };
        for label in labels.iter().filter(|label| !has.contains(*label) && !ADDED.contains(&label.as_str())) {
            wrong.push(format!("{name} has no label {label}: {expression}"));
        }
        known.extend(has.iter().cloned());
    }
    wrong
        .extend(grouped.difference(&known).filter(|_| !open).map(|label| format!("nothing has the label {label}: {expression}")));
    Ok(wrong)
}

fn rules() -> Result<Vec<Value>> {
    let file = yaml(RULES)?;
    Ok(elements(&file, "groups").flat_map(|group| elements(group, "rules")).cloned().collect())
}

/// Title and expression of every query of the dashboard, with a time in the place of Grafana's.
fn queries() -> Result<Vec<(String, String)>> {
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)?)?;
    let panels = elements(&dashboard, "panels");
    let of_panel = |panel: &Value| {
        let title = text(panel, "title").to_owned();
        let targets = elements(panel, "targets").map(|target| text(target, "expr").replace("$__rate_interval", "5m"));
        targets.map(|expression| (title.clone(), expression)).collect::<Vec<_>>()
    };
    let all: Vec<_> = panels.flat_map(of_panel).collect();
    ensure!(all.len() > 20 && all.iter().all(|(_, expression)| !expression.is_empty()), "{DASHBOARD}: {all:?}");
    Ok(all)
}

#[test]
fn alert_rules_and_dashboard_ask_for_what_is_exported() -> Result<()> {
    let mut expressions: Vec<String> = rules()?.iter().map(|rule| text(rule, "expr").to_owned()).collect();
    expressions.extend(queries()?.into_iter().map(|(_, expression)| expression));
    let tests = yaml(TESTS)?;
    expressions.extend(
        elements(&tests, "tests").flat_map(|test| elements(test, "input_series")).map(|one| text(one, "series").to_owned()),
    );
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)?)?;
    for variable in dashboard.get("templating").into_iter().flat_map(|all| elements(all, "list")) {
        let query = variable.pointer("/query/query").and_then(Value::as_str);
        if let Some((metric, label)) =
            query.and_then(|query| query.strip_prefix("label_values(")?.strip_suffix(')')?.split_once(','))
        {
            expressions.push(format!("sum by ({}) ({metric})", label.trim()));
        }
    }
    let mut wrong = Vec::new();
    for expression in &expressions {
        wrong.extend(unknown(expression)?);
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn metric_or_label_that_nobody_exports_is_found() -> Result<()> {
    for (expression, found) in [
        ("pacer_leading > 0", 0),
        ("rate(pacer_reconciles_total{kind=\"Runner\"}[5m])", 0),
        ("pacer_reconciles", 1),
        ("sum by (le) (pacer_job_queue_seconds_bucket)", 0),
        ("pacer_job_queue_seconds", 1),
        ("sum by (colour) (pacer_runners{size=\"1\"})", 2),
    ] {
        let wrong = unknown(expression)?;
        ensure!(wrong.len() == found, "{expression}: {wrong:?}");
    }
    Ok(())
}

#[test]
fn words_of_an_alert_name_labels_that_it_has() -> Result<()> {
    for rule in rules()? {
        let asked = asked(text(&rule, "expr"));
        let words = rule.get("annotations").map(Value::to_string).unwrap_or_default();
        for named in words.split("$labels.").skip(1) {
            let label: String = named.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect();
            ensure!(asked.grouped.contains(&label), "{} says $labels.{label}, which it does not have", text(&rule, "alert"));
        }
    }
    Ok(())
}

#[test]
fn every_alert_rule_is_tested_when_it_fires_and_when_it_does_not() -> Result<()> {
    let tests = yaml(TESTS)?;
    for rule in rules()? {
        let name = text(&rule, "alert");
        let asks = |case: &&Value| text(case, "expr").contains(&format!("alertname=\"{name}\",alertstate=\"firing\""));
        let cases: Vec<&Value> =
            elements(&tests, "tests").flat_map(|test| elements(test, "promql_expr_test")).filter(asks).collect();
        let (fires, silent): (Vec<&Value>, Vec<&Value>) =
            cases.iter().partition(|case| elements(case, "exp_samples").next().is_some());
        ensure!(
            !fires.is_empty() && !silent.is_empty(),
            "{TESTS}: {name} fires in {} cases, not in {}",
            fires.len(),
            silent.len()
        );
    }
    Ok(())
}

#[test]
fn every_alert_has_an_entry_for_whoever_is_woken() -> Result<()> {
    let page = read(RUNBOOK)?;
    let titles: BTreeSet<&str> = page.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    let rules = rules()?;
    let names: BTreeSet<&str> = rules.iter().map(|rule| text(rule, "alert")).collect();
    ensure!(titles == names, "{RUNBOOK} and {RULES} differ: {:?}", titles.symmetric_difference(&names).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn alert_rules_fire_as_their_tests_say() -> Result<()> {
    let Some(promtool) = promtool::find()? else {
        eprintln!("SKIPPED: tests of the alert rules, which take promtool");
        return Ok(());
    };
    promtool::succeeds(&promtool, &["check", "rules", &repository(RULES).to_string_lossy()])?;
    promtool::succeeds(&promtool, &["test", "rules", &repository(TESTS).to_string_lossy()])
}

#[test]
fn queries_of_the_dashboard_are_valid() -> Result<()> {
    let Some(promtool) = promtool::find()? else {
        eprintln!("SKIPPED: queries of the dashboard, which take promtool");
        return Ok(());
    };
    let mut rules = Vec::new();
    let mut listed = String::new();
    for (number, (title, expression)) in queries()?.into_iter().enumerate() {
        writeln!(listed, "{number}: {title}")?;
        rules.push(json!({"record": format!("panel:{number}"), "expr": expression}));
    }
    let file = tempfile::Builder::new().suffix(".yaml").tempfile()?;
    // JSON is YAML.
    fs::write(file.path(), json!({"groups": [{"name": "panels", "rules": rules}]}).to_string())?;
    promtool::succeeds(&promtool, &["check", "rules", "--lint=none", &file.path().to_string_lossy()]).context(listed)
}
