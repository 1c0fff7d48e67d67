//! The alert rules on what a real operator exports: it is scraped while all is well and after faults, and promtool says which alerts fire then.
//!
//! Faults that take minutes are not waited for: what was scraped stands for as long as the rules want it to last.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use pacer_api::Runner;
use pacer_harness::controlplane::Apply;
use pacer_harness::nodes::{Affected, Trouble};
use pacer_harness::world::World;
use pacer_suites::webhook::{hook, receiving_world};
use pacer_suites::{NAMESPACE, PATIENCE, apply, deployment, end, event, promtool, queue, runners, succeeded, until, with_spec};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const RULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/alerts/pacer.yaml");

/// Minutes for which all is well, and for which the faults last.
const WELL: usize = 20;
const FAULTY: usize = 40;

/// Deliveries without a signature; the rule tolerates ten.
const STRANGERS: u8 = 12;

/// Series with their values, as one scrape has them.
type Scrape = BTreeMap<String, String>;

/// What the operator exports of what the rules ask for.
async fn scrape(world: &World, rules: &str) -> Result<Scrape> {
    let text = world.operator.as_ref().context("no operator")?.metrics().await?;
    let series = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.rsplit_once(' '));
    let asked = |series: &str| {
        let name = series.split('{').next().unwrap_or_default();
        let name = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        !name.is_empty() && rules.contains(name)
    };
    // A metric without labels may have an empty list of them.
    Ok(series.filter(|(series, _)| asked(series)).map(|(series, value)| (series.replace("{}", ""), value.to_owned())).collect())
}

/// Asks until the scrape has a series of each of these names, with this label where one is given, and with at least this value.
async fn scrape_with(world: &World, rules: &str, wanted: &[(&str, &str, f64)]) -> Result<Scrape> {
    let found = async {
        loop {
            let scrape = scrape(world, rules).await?;
            let has = |(name, label, least): &(&str, &str, f64)| {
                let reaches = |value: &str| value.parse::<f64>().is_ok_and(|value| value >= *least);
                scrape.iter().any(|(series, value)| series.starts_with(name) && series.contains(label) && reaches(value))
            };
            if wanted.iter().all(has) {
                return Ok(scrape);
            }
            // Another process announces nothing.
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    let outcome = tokio::time::timeout(PATIENCE, found).await;
    world.check(outcome.map_err(|_| format!("no series of {wanted:?}"))).await?
}

/// Posts an event that nobody has signed.
async fn post_unsigned(world: &World) -> Result<()> {
    let address = world.operator.as_ref().and_then(|operator| operator.webhook_address()).context("no address for webhooks")?;
    let mut stream = TcpStream::connect(&address).await?;
    let request = format!("POST / HTTP/1.0\r\nHost: {address}\r\nX-GitHub-Event: workflow_job\r\nContent-Length: 2\r\n\r\n{{}}");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    ensure!(answer.starts_with("HTTP/1.0 401"), "{answer}");
    Ok(())
}

/// A file for promtool: the first scrape for a while, then the second; and which alerts fire in each, by the minute.
fn case(well: &Scrape, faulty: &Scrape, expected: &[(usize, &[&str])]) -> Value {
    let all: BTreeSet<&String> = well.keys().chain(faulty.keys()).collect();
    let series = all.into_iter().map(|series| {
        let value = |scrape: &Scrape| scrape.get(series).cloned().unwrap_or_else(|| "_".to_owned());
        let values = [vec![value(well); WELL], vec![value(faulty); FAULTY]].concat().join(" ");
        let labelled = match series.split_once('{') {
            Some((name, labels)) => format!("{name}{{instance=\"a\",{labels}"),
            None => format!("{series}{{instance=\"a\"}}"),
        };
        json!({"series": labelled, "values": values})
    });
    let firing = |(minute, names): &(usize, &[&str])| {
        let samples = names.iter().map(|name| json!({"labels": format!("{{alertname=\"{name}\"}}"), "value": 1}));
        json!({
            "expr": "group by (alertname) (ALERTS{alertstate=\"firing\"})", "eval_time": format!("{minute}m"),
            "exp_samples": samples.collect::<Vec<_>>(),
        })
    };
    json!({
        "rule_files": [RULES], "evaluation_interval": "1m",
        "tests": [{
            "interval": "1m", "input_series": series.collect::<Vec<_>>(), "promql_expr_test": expected.iter().map(firing).collect::<Vec<_>>(),
        }],
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn alerts_fire_on_what_is_exported_after_faults_and_none_fires_before() -> Result<()> {
    let Some(promtool) = promtool::find()? else {
        eprintln!("SKIPPED: alerts on recorded series, which take promtool");
        return Ok(());
    };
    let rules = std::fs::read_to_string(RULES)?;
    let world = receiving_world(&pacer_suites::BRISK).await?;
    hook(&world, pacer_harness::github::Scope::repository("acme", "app"))?;
    apply(&world, &deployment("web", 2)).await?;
    runners(&world, "two runners", |count| count.online == 2).await?;
    queue(&world, "web", 1, std::time::Duration::ZERO)?;
    succeeded(&world, 1).await?;
    runners(&world, "two runners again", |count| count.online == 2).await?;
    // A series that begins with more than it tolerates has not grown in Prometheus' eyes.
    post_unsigned(&world).await?;
    // GitHub knows that both runners are online before the operator does.
    let wanted = [
        ("pacer_leading", "", 1.0),
        ("pacer_webhook_events_total", "outcome=\"refused\"", 1.0),
        ("runnerdeployment_spec_replicas", "web", 2.0),
        ("pacer_runners", "state=\"idle\"", 2.0),
    ];
    let well = scrape_with(&world, &rules, &wanted).await?;

    for _ in 0..STRANGERS {
        post_unsigned(&world).await?;
    }
    let set = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "opinions", "namespace": NAMESPACE},
        "data": {"policies.yaml": "scale-down: {module: policy.js}\n", "policy.js": "export function scaleDown(request) { return request..candidates; }\n"},
    });
    world.plane.apply_text(&set.to_string(), Apply::ServerSide).await?;
    let nodes = world.nodes.as_ref().context("no nodes")?;
    nodes.inject(Affected { name_prefix: "stuck".to_owned(), ..Affected::default() }, Trouble::ImagePull);
    let mut stuck = with_spec(deployment("stuck", 3), "image", json!("nowhere/none:1"));
    if let Some(metadata) = stuck.pointer_mut("/metadata").and_then(Value::as_object_mut) {
        metadata.insert("annotations".to_owned(), json!({"actions.summerwind.dev/policies": "opinions"}));
    }
    apply(&world, &stuck).await?;
    until::<Runner>(&world, "runners that wait for their image", |all| {
        let says = |runner: &&&Runner| {
            runner.status.as_ref().and_then(|status| status.message.as_deref()).is_some_and(|it| it.contains("ImagePull"))
        };
        all.iter().filter(says).count() == 3
    })
    .await?;
    event(&world, "PolicyRefused", |note| note.contains("line 1")).await?;
    let wanted = [
        ("pacer_policy_set_phase", "phase=\"Refused\"", 1.0),
        ("pacer_webhook_events_total", "outcome=\"refused\"", f64::from(STRANGERS)),
        ("runnerdeployment_spec_replicas", "stuck", 3.0),
    ];
    let faulty = scrape_with(&world, &rules, &wanted).await?;

    let file = tempfile::Builder::new().suffix(".yaml").tempfile()?;
    let expected: [(usize, &[&str]); 3] = [
        (WELL - 1, &[]),
        // Ten in fifteen minutes are too many from the first moment on, and forgotten afterwards; the others have to last.
        (WELL + 5, &["PacerWebhooksRefused"]),
        (WELL + FAULTY - 5, &["PacerPolicySetRefused", "PacerRunnersDoNotStart"]),
    ];
    // JSON is YAML.
    std::fs::write(file.path(), case(&well, &faulty, &expected).to_string())?;
    world
        .check(
            promtool::succeeds(&promtool, &["test", "rules", &file.path().to_string_lossy()])
                .map_err(|error| format!("{error:#}")),
        )
        .await?;

    // The same operator, gone: nobody leads.
    std::fs::write(file.path(), case(&well, &Scrape::new(), &[(WELL - 1, &[]), (WELL + 15, &["PacerNobodyLeads"])]).to_string())?;
    promtool::succeeds(&promtool, &["test", "rules", &file.path().to_string_lossy()])?;
    end(world).await
}
