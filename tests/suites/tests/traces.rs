//! Recording a cluster, and running the record again: what `pacer record`, `pacer trace` and `pacer simulate` say of a burst.

#![allow(
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test whose scene can't be set has failed; its figures are for people"
)]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use pacer_api::{Runner, RunnerDeployment};
use pacer_harness::github::{JobSpec, Scope, Settings, SimGitHub};
use pacer_harness::http;
use pacer_harness::operator::binary;
use pacer_harness::world::World;
use pacer_suites::recorder::{Recorder, recorded};
use pacer_suites::webhook::promptly_hooked_world;
use pacer_suites::{NAMESPACE, PATIENCE, apply, autoscaler, delete, deployment, queue, succeeded, until, with_spec};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

/// How long the runners of this suite start, in seconds, beside what the API server takes.
const START: u64 = 3;

/// A flag of the operator that its objects do not tell.
const UNTOLD: [&str; 1] = ["--idle-confirmation=0s"];

/// What `pacer` prints, and whether it ends well.
async fn pacer(arguments: &[&str]) -> Result<(bool, String, String)> {
    let mut command = Command::new(binary().await?);
    command.args(arguments);
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((output.status.success(), text(&output.stdout), text(&output.stderr)))
}

/// What the page over a trace shows of its end.
async fn shown(trace: &str) -> Result<Value> {
    let mut command = tokio::process::Command::new(binary().await?);
    command.args(["ui", "--trace", trace, "--ui-addr=127.0.0.1:0"]).stderr(Stdio::piped()).kill_on_drop(true);
    let mut page = command.spawn()?;
    let mut told = String::new();
    BufReader::new(page.stderr.take().context("no output")?).read_line(&mut told).await?;
    let address = told.strip_prefix("http://").and_then(|rest| rest.split('/').next()).with_context(|| told.clone())?;
    let (_, body) = http::get(address, "/snapshot.json").await?;
    page.kill().await?;
    Ok(serde_json::from_str(&body)?)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "bounds seconds: make suites runs it when all others are over"]
async fn a_recorded_burst_is_reproduced_by_the_simulator() -> Result<()> {
    let world = promptly_hooked_world(&[]).await?;
    let delay = json!([{"name": "STARTUP_DELAY_IN_SECONDS", "value": START.to_string()}]);
    apply(&world, &with_spec(deployment("web", 0), "env", delay)).await?;
    apply(&world, &autoscaler("web", 0, 8)).await?;
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("burst.jsonl");
    let path = file.to_str().context("a path")?;
    let recorder = Recorder::start(&world, &file, &UNTOLD).await?;
    recorded(&world, &file, "pool", 1).await?;

    // A burst that the maximum lets in two waves, then one of another length, and the recorder is started again in between.
    queue(&world, "web", 16, Duration::from_secs(12))?;
    recorded(&world, &file, "job-completed", 16).await?;
    recorder.stop().await?;
    let recorder = Recorder::start(&world, &file, &UNTOLD).await?;
    recorded(&world, &file, "resumed", 1).await?;
    queue(&world, "web", 6, Duration::from_secs(8))?;
    recorded(&world, &file, "job-completed", 22).await?;
    until::<Runner>(&world, "no runner", |all| all.is_empty()).await?;
    recorded(&world, &file, "runner-ended", 22).await?;
    recorder.stop().await?;
    if let Some(golden) = std::env::var_os("PACER_GOLDEN_TRACE") {
        std::fs::copy(&file, golden)?;
    }

    let (well, text, notes) = pacer(&["trace", "check", path]).await?;
    ensure!(well && notes.contains("nobody recorded from"), "{text}{notes}");
    let (well, text, notes) = pacer(&["trace", "summary", path, "-o", "json"]).await?;
    ensure!(well, "{text}{notes}");
    let summary: Value = serde_json::from_str(&text)?;
    ensure!(summary["total"]["jobs"] == 22 && summary["total"]["starts"] == 22, "{summary:#}");

    let (well, text, notes) = pacer(&["trace", "replay", path]).await?;
    println!("{text}");
    ensure!(well, "{text}{notes}");

    let arguments = ["simulate", "--trace", path, "-o", "json", "--seeds=5"];
    let (well, text, notes) = pacer(&arguments).await?;
    let simulated: Value = serde_json::from_str(&text).with_context(|| notes.clone())?;
    println!("calibration: {:#}", simulated["calibration"]);
    ensure!(well && simulated["calibration"]["holds"] == true, "{text}{notes}");
    ensure!(pacer(&arguments).await?.1 == text, "the same seed gives the same bytes");
    world.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "compares moments: make suites runs it when all others are over"]
async fn the_operator_records_itself_and_goes_on_after_a_restart() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("trace");
    let record = format!("--record={}", path.display());
    let mut world = promptly_hooked_world(&[&record, "--common-runner-labels=everywhere"]).await?;
    apply(&world, &deployment("web", 0)).await?;
    apply(&world, &autoscaler("web", 0, 4)).await?;
    queue(&world, "web", 6, Duration::from_secs(1))?;
    succeeded(&world, 6).await?;
    until::<Runner>(&world, "no runner", |all| all.is_empty()).await?;
    let operator = world.operator.as_mut().context("no operator")?;
    ensure!(operator.terminate().await.is_some_and(|status| status.success()), "{}", operator.log_tail(4_000));
    operator.restart().await?;
    operator.until_acting(PATIENCE).await?;
    queue(&world, "web", 2, Duration::from_secs(1))?;
    succeeded(&world, 8).await?;
    until::<Runner>(&world, "no runner", |all| all.is_empty()).await?;
    let operator = world.operator.as_ref().context("no operator")?;
    let metrics = operator.metrics().await?;
    ensure!(
        metrics.contains("pacer_trace_changes_missed_total 0") && metrics.contains("pacer_trace_failures_total 0"),
        "{metrics}"
    );
    ensure!(operator.terminate().await.is_some_and(|status| status.success()), "{}", operator.log_tail(4_000));

    let path = path.to_str().context("a path")?;
    let (well, text, notes) = pacer(&["trace", "check", path]).await?;
    ensure!(well && notes.contains("nobody recorded from"), "{text}{notes}");
    receipts_are_in_the_cluster(&world, path, &directory.path().join("cut.jsonl")).await?;
    let (well, text, notes) = pacer(&["trace", "summary", path, "-o", "json"]).await?;
    ensure!(well, "{text}{notes}");
    let summary: Value = serde_json::from_str(&text)?;
    let total = &summary["total"];
    ensure!(total["jobs"] == 8 && total["unstarted"] == 0 && total["failedStarts"] == 0, "{summary:#}");
    // A job that ends as another comes may leave a runner over.
    ensure!(total["starts"].as_u64().is_some_and(|starts| starts >= 8), "{summary:#}");
    let (well, text, notes) = pacer(&["trace", "replay", path]).await?;
    println!("{text}");
    ensure!(well, "{text}{notes}");
    let (well, text, notes) = pacer(&["simulate", "--trace", path, "--allow-uncalibrated", "-o", "json"]).await?;
    ensure!(well && serde_json::from_str::<Value>(&text)?["jobs"] == 8, "{text}{notes}");
    world.stop().await;
    Ok(())
}

/// Receipts of which the trace tells are kept beside the pool.
async fn receipts_are_in_the_cluster(world: &World, trace: &str, cut: &Path) -> Result<()> {
    let (well, _, notes) = pacer(&["trace", "cut", trace, "--out", cut.to_str().context("a path")?]).await?;
    ensure!(well, "{notes}");
    let records = std::fs::read_to_string(cut)?;
    let records = records.lines().map(serde_json::from_str::<Value>).collect::<Result<Vec<_>, _>>()?;
    let receipts: Vec<&Value> = records.iter().filter(|record| record["kind"] == "receipt").collect();
    let maps = Api::<ConfigMap>::namespaced(world.client.clone(), "default").list(&ListParams::default()).await?;
    let keys: Vec<&String> = maps.iter().filter_map(|map| map.binary_data.as_ref()).flat_map(|data| data.keys()).collect();
    for receipt in &receipts {
        let key =
            format!("{}.{}", receipt["decision"].as_str().unwrap_or_default(), receipt["receipt"].as_str().unwrap_or_default());
        ensure!(keys.contains(&&key) && receipt["pool"] == "default/web", "{receipt} is none of {keys:?}");
    }
    ensure!(receipts.iter().any(|receipt| receipt["decision"] == "capacity"), "no receipt of a number: {receipts:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_room_and_github_are_in_the_trace() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("trace");
    let record = format!("--record={}", path.display());
    let world = promptly_hooked_world(&[&record]).await?;
    let file = directory.path().join("seen.jsonl");
    let recorder = Recorder::start(&world, &file, &UNTOLD).await?;
    apply(&world, &deployment("web", 0)).await?;
    apply(&world, &autoscaler("web", 0, 2)).await?;
    queue(&world, "web", 1, Duration::from_secs(40))?;
    apply(&world, &with_spec(deployment("stuck", 2), "nodeSelector", json!({"zone": "nowhere"}))).await?;
    // What objects say is in both; the file is written at once.
    recorded(&world, &file, "runner-placed", 1).await?;
    recorded(&world, &file, "node", 1).await?;
    recorded(&world, &file, "room", 1).await?;

    // The operator's own has GitHub as well, and reaches the disk every 30 seconds.
    let path = path.to_str().context("a path")?;
    let began = Instant::now();
    let surroundings = loop {
        let (well, text, notes) = pacer(&["trace", "summary", path, "-o", "json"]).await?;
        let summary: Value = if well { serde_json::from_str(&text)? } else { Value::Null };
        let told = &summary["surroundings"];
        if told["github"]["default"]["listings"].as_u64().is_some_and(|listings| listings > 0)
            && told["github"]["default"]["lowest"]["window"]["limit"].is_u64()
            && told["nodes"] == 1
            // The number alone is told ten seconds later.
            && told["withoutRoom"][format!("{NAMESPACE}/stuck")]["most"] == 2
        {
            break told.clone();
        }
        ensure!(began.elapsed() < Duration::from_secs(120), "{told:#}{notes}");
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    println!("{surroundings:#}");
    let stuck = &surroundings["withoutRoom"][format!("{NAMESPACE}/stuck")];
    ensure!(stuck["most"] == 2 && stuck["lacking"] == json!(["node-selector"]), "{surroundings:#}");
    // Once nobody waits, that is told.
    delete::<RunnerDeployment>(&world, "stuck").await?;
    until::<Runner>(&world, "only runners that have room", |all| all.iter().all(|runner| runner.name_any().starts_with("web")))
        .await?;
    let text = std::fs::read_to_string(&file)?;
    let last = async || {
        recorded(&world, &file, "room", 2).await?;
        let text = std::fs::read_to_string(&file)?;
        let room = text.lines().rfind(|line| line.contains("\"kind\":\"room\"")).context("no room")?;
        anyhow::Ok(serde_json::from_str::<Value>(room)?)
    };
    ensure!(text.contains("\"lacking\":[\"node-selector\"]"), "{text}");
    let began = Instant::now();
    while last().await?["waiting"] != 0 {
        ensure!(began.elapsed() < PATIENCE, "room is not told again");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    recorder.stop().await?;

    let (well, text, notes) = pacer(&["trace", "check", path]).await?;
    ensure!(well && !notes.contains("does not know"), "{text}{notes}");
    let (well, text, _) = pacer(&["trace", "summary", path]).await?;
    ensure!(well && text.contains("GitHub, credentials default: ") && text.contains("lacking: node-selector"), "{text}");
    let page = shown(path).await?;
    let (github, listings) = (&page["credentials"]["default"], page["listings"].as_object().context("listings")?);
    ensure!(github["budgets"][0]["limit"].as_u64().is_some_and(|limit| limit > 0), "{page:#}");
    ensure!(listings.contains_key("default/repository acme/app"), "no such listing: {listings:#?}");
    ensure!(page["pools"][format!("RunnerDeployment/{NAMESPACE}/web")]["max"] == 2, "{page:#}");
    let key = directory.path().join("key");
    std::fs::write(&key, [7; 32])?;
    let out = directory.path().join("public.jsonl");
    let (key, out) = (key.to_str().context("a path")?, out.to_str().context("a path")?);
    let (well, text, notes) = pacer(&["trace", "redact", path, "--key-file", key, "--out", out]).await?;
    ensure!(well, "{text}{notes}");
    let public = std::fs::read_to_string(out)?;
    for name in ["acme", "node-0", "default\",\"windows", "available"] {
        ensure!(!public.contains(name), "{name} is in the redacted trace: {public}");
    }
    world.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_whose_trace_can_not_be_written_works_all_the_same() -> Result<()> {
    let mut world = promptly_hooked_world(&["--record=/proc/nowhere"]).await?;
    apply(&world, &deployment("web", 0)).await?;
    apply(&world, &autoscaler("web", 0, 4)).await?;
    queue(&world, "web", 3, Duration::from_secs(1))?;
    succeeded(&world, 3).await?;
    let operator = world.operator.as_mut().context("no operator")?;
    let metrics = operator.metrics().await?;
    ensure!(!metrics.contains("pacer_trace_failures_total 0"), "{metrics}");
    ensure!(operator.logs().contains("see that the volume is there"), "{}", operator.log_tail(4_000));
    ensure!(operator.terminate().await.is_some_and(|status| status.success()), "{}", operator.log_tail(4_000));
    world.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_github_remembers_becomes_a_trace() -> Result<()> {
    let github = SimGitHub::start(Settings::default()).await?;
    for repository in ["app", "tool"] {
        github.add(&Scope::repository("acme", repository));
    }
    // More runs than a page has, none of which got a runner.
    for _ in 0..120 {
        let job = github.queue_job(JobSpec::new("acme/app", ["self-hosted", "Linux"]))?;
        ensure!(github.cancel_job(job), "the job is over");
    }
    // More jobs than a page has, in one run.
    let first = github.queue_job(JobSpec::new("acme/tool", ["gpu"]))?;
    let run = github.job(first).context("no job")?.run;
    for _ in 0..104 {
        github.queue_job(JobSpec::new("acme/tool", ["gpu"]).in_run(run))?;
    }
    let skipped = github.queue_job(JobSpec::new("acme/tool", ["gpu"]))?;
    ensure!(github.skip_job(skipped), "the job is over");
    let hosted = github.queue_job(JobSpec::new("acme/tool", ["ubuntu-latest"]))?;
    ensure!(github.cancel_job(hosted), "the job is over");

    let directory = tempfile::tempdir()?;
    let import = async |out: &str, more: &[&str]| {
        let file = directory.path().join(out);
        let mut command = Command::new(binary().await?);
        command.args(["trace", "import", "--github-url", &github.api_url(), "--since=1h", "--out"]).arg(&file).args(more);
        command.env("GITHUB_TOKEN", github.pat());
        let output = tokio::task::spawn_blocking(move || command.output()).await??;
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let records = std::fs::read_to_string(&file).unwrap_or_default();
        let jobs = records.lines().filter(|line| line.contains("job-queued")).count();
        anyhow::Ok((output.status.success(), said, jobs, file))
    };
    let (well, said, jobs, file) = import("all.jsonl", &["--organization=acme"]).await?;
    ensure!(well && jobs == 225, "{jobs} jobs: {said}");
    ensure!(import("hosted.jsonl", &["--organization=acme", "--hosted"]).await?.2 == 226, "the hosted job is missing");
    ensure!(import("one.jsonl", &["--repository=acme/tool"]).await?.2 == 105, "another repository's jobs are there");
    let (well, said, ..) = import("none.jsonl", &["--repository=acme/none"]).await?;
    ensure!(!well && said.contains("acme/none"), "{said}");
    let path = file.to_str().context("a path")?;
    let (well, text, notes) = pacer(&["trace", "check", path]).await?;
    ensure!(well, "{text}{notes}");
    let (well, text, notes) = pacer(&["simulate", "--trace", path, "--assumed-start=45s", "-o", "json"]).await?;
    let simulated: Value = serde_json::from_str(&text).with_context(|| notes.clone())?;
    ensure!(well && simulated["calibration"].is_null() && notes.contains("has no runners"), "{text}{notes}");
    ensure!(github.deviations().is_empty(), "{:?}", github.deviations());
    github.stop().await;
    Ok(())
}
