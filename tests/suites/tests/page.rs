//! The page for people, asked as a browser asks: who may see it, what it shows of the real operator, and how much of it others can take.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test whose scene can't be set has failed")]

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt};
use pacer_api::job_ledger::{self, JobLedgerSpec};
use pacer_api::{HorizontalRunnerAutoscaler, JobLedger};
use pacer_harness::operator::Operator;
use pacer_harness::world::World;
use pacer_suites::webhook::brisk_hooked_world;
use pacer_suites::{NAMESPACE, PATIENCE, api, apply, brisk_world, deployment, patient_autoscaler, queue, running, settled};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

mod browser;

const TOKEN: &str = "a-token-for-the-page-of-a-test";

/// Viewers that there is room for.
const VIEWERS: usize = 20;

async fn watched(arguments: &[&str]) -> Result<World> {
    brisk_world(arguments, |_| {}).await
}

fn autoscaler(min: u32, max: u32) -> Value {
    patient_autoscaler("web-scaler", "web", min, max)
}

fn operator(world: &World) -> Result<&Operator> {
    world.operator.as_ref().context("no operator")
}

fn address(world: &World) -> Result<String> {
    operator(world)?.page_address().context("it serves no page")
}

/// An answer of which the body is still to come.
struct Answer {
    status: u16,
    head: String,
    body: BufReader<TcpStream>,
}

impl Answer {
    fn has(&self, header: &str) -> bool {
        self.head.to_ascii_lowercase().contains(&header.to_ascii_lowercase())
    }

    async fn text(mut self) -> Result<String> {
        let mut text = String::new();
        timeout(PATIENCE, self.body.read_to_string(&mut text)).await??;
        Ok(text)
    }

    /// The next event of this name.
    async fn event(&mut self, name: &str) -> Result<Value> {
        let found = async {
            let mut current = String::new();
            let mut line = String::new();
            loop {
                line.clear();
                ensure!(self.body.read_line(&mut line).await? > 0, "the stream ended");
                if let Some(event) = line.strip_prefix("event: ") {
                    current = event.trim().to_owned();
                } else if let Some(data) = line.strip_prefix("data: ").filter(|_| current == name) {
                    return Ok(serde_json::from_str(data)?);
                }
            }
        };
        timeout(PATIENCE, found).await.with_context(|| format!("waiting for an event {name}"))?
    }

    /// Differences until one is as wanted.
    async fn delta(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        let found = async {
            loop {
                let delta = self.event("delta").await?;
                if wanted(&delta) {
                    return Ok(delta);
                }
            }
        };
        timeout(PATIENCE, found).await.with_context(|| format!("waiting for {what}"))?
    }
}

/// Asks with HTTP/1.0, so that bodies come as they are.
async fn ask(address: &str, method: &str, path: &str, headers: &[&str]) -> Result<Answer> {
    let mut stream = TcpStream::connect(address).await?;
    let host =
        if headers.iter().any(|header| header.starts_with("Host:")) { String::new() } else { format!("Host: {address}\r\n") };
    let others: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    stream.write_all(format!("{method} {path} HTTP/1.0\r\n{host}{others}\r\n").as_bytes()).await?;
    let mut body = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        ensure!(timeout(PATIENCE, body.read_line(&mut head)).await?? > 0, "no whole head: {head}");
    }
    let status = head.split(' ').nth(1).context("no status")?.parse()?;
    Ok(Answer { status, head, body })
}

#[tokio::test(flavor = "multi_thread")]
async fn page_shows_runners_and_jobs_and_tells_when_one_starts() -> Result<()> {
    let world = brisk_hooked_world(&["--ui-addr=127.0.0.1:0"]).await?;
    let address = address(&world)?;
    apply(&world, &deployment("web", 2)).await?;
    apply(&world, &autoscaler(2, 2)).await?;
    settled(&world, 2).await?;

    let index = ask(&address, "GET", "/", &[]).await?;
    ensure!(
        index.status == 200 && index.has("content-security-policy: default-src 'none'") && index.has("nosniff"),
        "{}",
        index.head
    );
    ensure!(index.text().await?.contains("<title>pacer</title>"));
    for (method, path, headers, status) in [
        ("HEAD", "/", &[][..], 200),
        ("GET", "/tables.js", &[], 200),
        ("POST", "/", &[], 405),
        ("GET", "/../Cargo.toml", &[], 404),
        ("GET", "/", &["Host: evil.example"], 421),
    ] {
        let answer = ask(&address, method, path, headers).await?;
        ensure!(answer.status == status && answer.has("referrer-policy: no-referrer"), "{method} {path}: {}", answer.head);
    }

    let mut viewer = ask(&address, "GET", "/events", &[]).await?;
    let whole = viewer.event("snapshot").await?;
    ensure!(whole["version"] == 1 && whole["operator"]["role"] == "acting", "{whole:#}");
    let pool = &whole["pools"]["RunnerDeployment/default/web"];
    ensure!(pool["desired"] == 2 && pool["max"] == 2 && pool["autoscaler"] == "web-scaler", "{pool:#}");
    ensure!(whole["runners"].as_object().map_or(0, serde_json::Map::len) == 2, "{whole:#}");

    // Two run, one waits and is told why.
    queue(&world, "web", 3, Duration::from_secs(600))?;
    running(&world, 2).await?;
    let busy = |delta: &Value| {
        let runners = delta["changed"]["runners"].as_object().into_iter().flatten();
        runners.into_iter().any(|(_, runner)| runner["state"] == "busy")
    };
    viewer.delta("a busy runner", busy).await?;
    let waits = async {
        loop {
            let now: Value = serde_json::from_str(&ask(&address, "GET", "/snapshot.json", &[]).await?.text().await?)?;
            let jobs: Vec<&Value> = now["jobs"].as_object().into_iter().flatten().map(|(_, job)| job).collect();
            let by = |state: &str| jobs.iter().filter(|job| job["state"] == state).count();
            let maximum = jobs.iter().any(|job| job["reason"]["word"] == "MaximumReached");
            if by("running") == 2 && by("queued") == 1 && maximum {
                return Ok::<_, anyhow::Error>(now);
            }
            // No other connection tells that this one has changed.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let now = timeout(PATIENCE, waits).await.context("waiting for two jobs that run and one that waits for room")??;
    let listed = now["listings"].as_object().into_iter().flatten().any(|(_, listing)| listing["runners"] == 2);
    ensure!(listed && now["credentials"]["default"]["budgets"][0]["limit"] == 15_000, "{now:#}");
    let mut jobs = now["jobs"].as_object().into_iter().flatten().map(|(_, job)| job);
    let waiting = jobs.find(|job| job["state"] == "queued").context("no job waits")?;
    let place = (&waiting["place"], &waiting["waiting"], waiting["reason_since"].is_string());
    ensure!(place == (&json!(1), &json!(1), true), "{waiting:#}");
    let row = |now: &Value| now["waits"]["RunnerDeployment/default/web web"].clone();
    let started = shown(&address, "the waits of the two that run", |now| row(now)["jobs"] == 2).await?;
    let (row, bins) = (row(&started), row(&started)["bins"].as_array().cloned().unwrap_or_default());
    let sum: u64 = bins.iter().filter_map(|bin| bin["jobs"].as_u64()).sum();
    let longest = bins.iter().filter_map(|bin| bin["max"].as_u64()).max();
    ensure!(sum == 2 && row["labels"] == json!(["web"]) && row["max"].as_u64() == longest, "{row:#}");

    // Whoever watches does not keep the operator from ending.
    let ended = operator(&world)?.terminate().await.context("it did not end")?;
    ensure!(ended.success(), "{ended}");
    while timeout(PATIENCE, viewer.body.read_line(&mut String::new())).await?.unwrap_or(0) > 0 {}
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn job_that_polling_alone_tells_of_is_on_the_page() -> Result<()> {
    let world = watched(&["--ui-addr=127.0.0.1:0"]).await?;
    let address = address(&world)?;
    apply(&world, &deployment("web", 1)).await?;
    let mut polled = autoscaler(1, 1);
    polled["spec"]["scaleUpTriggers"] = Value::Null;
    polled["spec"]["metrics"] = json!([{"type": "TotalNumberOfQueuedAndInProgressWorkflowRuns", "repositoryNames": ["app"]}]);
    apply(&world, &polled).await?;
    settled(&world, 1).await?;
    queue(&world, "web", 1, Duration::from_secs(600))?;
    running(&world, 1).await?;
    let job = queue(&world, "web", 1, Duration::from_secs(600))?[0];
    let mut viewer = ask(&address, "GET", "/events", &[]).await?;
    let key = format!("{NAMESPACE}/web-scaler/{}", job.0);
    let told = |delta: &Value| delta["changed"]["jobs"][&key]["reason"]["word"] == "MaximumReached";
    let delta = viewer.delta("the job that waits", told).await?;
    let shown = &delta["changed"]["jobs"][&key];
    ensure!(shown["state"] == "queued" && shown["repository"] == "acme/app" && shown["labels"] == json!(["web"]), "{shown:#}");
    world.stop().await;
    Ok(())
}

/// The page's snapshot, once it is as wanted.
async fn shown(address: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
    let found = async {
        loop {
            let now: Value = serde_json::from_str(&ask(address, "GET", "/snapshot.json", &[]).await?.text().await?)?;
            if wanted(&now) {
                return Ok(now);
            }
            // Each answer is of its moment.
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    timeout(PATIENCE, found).await.with_context(|| format!("waiting for {what}"))?
}

#[tokio::test(flavor = "multi_thread")]
async fn page_tells_what_policies_in_shadow_answer_and_what_repositories_cost() -> Result<()> {
    let world = brisk_hooked_world(&["--ui-addr=127.0.0.1:0", "--shadow-simulation-interval=1s"]).await?;
    let address = address(&world)?;
    let set = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "pacer-policies", "namespace": "actions-runner-system"},
        "data": {"policies.yaml": "restart: {module: builtin}\ncapacity: {module: builtin, mode: shadow}\n"},
    });
    apply(&world, &set).await?;
    apply(&world, &deployment("web", 1)).await?;
    apply(&world, &autoscaler(1, 2)).await?;
    settled(&world, 1).await?;
    queue(&world, "web", 2, Duration::from_secs(600))?;
    running(&world, 2).await?;
    let compared = |now: &Value| -> Vec<Value> {
        now["comparisons"].as_object().into_iter().flatten().map(|(_, one)| one.clone()).collect()
    };
    let reserved = |one: &Value| one["answered"].as_str().is_some_and(|words| words.starts_with("2 reserved in 2 reservations"));
    let now = shown(&address, "a comparison of both jobs", |now| compared(now).iter().any(reserved)).await?;
    let told = compared(&now).into_iter().find(reserved).context("no comparison")?;
    ensure!(told["pool"] == "RunnerDeployment/default/web" && told["decision"] == "capacity", "{told:#}");
    ensure!(told["agreement"] == "same" && told["would"] == told["answered"], "{told:#}");
    ensure!(told["shadow"] == "shipped" && told["in_force"].as_str().is_some_and(|by| by.starts_with("default@")), "{told:#}");

    let named = |now: &Value| now["simulations"].as_object().is_some_and(|all| all.contains_key("default/web"));
    shown(&address, "what a simulation said, or why nothing", named).await?;
    let spent = |now: &Value| now["expenses"]["acme/app"]["busy_minutes"].as_f64().is_some_and(|minutes| minutes > 0.0);
    let now = shown(&address, "busy minutes of the repository", spent).await?;
    let app = &now["expenses"]["acme/app"];
    ensure!(app["jobs"] == 2 && app["payer"] == "repository" && app.get("cost").is_none(), "{app:#}");
    world.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_others_reach_takes_the_token() -> Result<()> {
    let mut file = tempfile::NamedTempFile::new()?;
    writeln!(file, "{TOKEN}")?;
    let token_file = format!("--ui-token-file={}", file.path().display());
    let mut world = watched(&["--ui-addr=0.0.0.0:0", &token_file]).await?;
    let port = address(&world)?.rsplit_once(':').context("no port")?.1.to_owned();
    let address = format!("127.0.0.1:{port}");
    for (path, headers) in
        [("/", &[][..]), ("/events", &["Authorization: Bearer something-else-as-long"]), ("/?token=wrong", &[])]
    {
        let answer = ask(&address, "GET", path, headers).await?;
        ensure!(answer.status == 401 && answer.has("www-authenticate: Bearer"), "{path}: {}", answer.head);
    }
    let bearer = format!("Authorization: Bearer {TOKEN}");
    ensure!(ask(&address, "GET", "/snapshot.json", &[&bearer]).await?.status == 200);
    let link = ask(&address, "GET", &format!("/?token={TOKEN}"), &[]).await?;
    ensure!(link.status == 303 && link.has("location: ./") && link.has("HttpOnly; SameSite=Strict"), "{}", link.head);
    let cookie = link.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")?.split(';').next()).context("no cookie")?;
    ensure!(ask(&address, "GET", "/", &[&format!("Cookie: {cookie}")]).await?.status == 200);
    let operator = world.operator.as_mut().context("no operator")?;
    ensure!(!operator.logs().contains(TOKEN), "the token is in the log");

    // Without the token it does not start, and says what to do.
    let refused = match operator.restart_with(&["--ui-addr=0.0.0.0:0", "--ui-token-file=/nowhere/token"]).await {
        Err(refused) => refused.to_string(),
        // It serves its metrics before it fails.
        Ok(()) => {
            let ended = operator.until_acting(PATIENCE).await.err().context("it started without a token")?;
            format!("{ended} {}", operator.logs())
        }
    };
    ensure!(refused.contains("--ui-token-file") && refused.contains("/nowhere/token"), "{refused}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn viewers_are_few_and_one_who_does_not_read_is_dropped() -> Result<()> {
    let world = watched(&["--ui-addr=127.0.0.1:0"]).await?;
    let address = address(&world)?;
    let mut viewers = Vec::new();
    for _ in 0..VIEWERS {
        let mut viewer = ask(&address, "GET", "/events", &[]).await?;
        viewer.event("snapshot").await?;
        viewers.push(viewer);
    }
    let refused = ask(&address, "GET", "/events", &[]).await?;
    ensure!(refused.status == 503 && refused.has("retry-after: 10"), "{}", refused.head);
    ensure!(refused.text().await?.contains("20 people are watching"));

    // What changes is more than the buffers of a connection hold: half a MiB at a time. One viewer reads, the others do not.
    apply(&world, &deployment("web", 0)).await?;
    apply(&world, &autoscaler(0, 1)).await?;
    let before = operator(&world)?.usage()?.resident;
    let mut reader = viewers.pop().context("no viewer")?;
    let autoscaler = api::<HorizontalRunnerAutoscaler>(&world).get("web-scaler").await?;
    let mut ledger =
        JobLedger::new(&job_ledger::name("web-scaler", &autoscaler.uid().context("no UID")?, 0), JobLedgerSpec::default());
    ledger.metadata.owner_references = autoscaler.controller_owner_ref(&()).map(|owner| vec![owner]);
    api::<JobLedger>(&world).create(&PostParams::default(), &ledger).await?;
    let start = jiff::Timestamp::now();
    let dropped = async {
        for n in 1_u64.. {
            let second = |seconds: i64| {
                jiff::Timestamp::from_second(start.as_second() + seconds).map(|at| at.to_string()).unwrap_or_default()
            };
            let job = json!({"workflow": "w", "queued": second(0), "until": second(3_600)});
            let jobs: serde_json::Map<_, _> = (1..=1_000_u64).map(|id| ((n * 1_000 + id).to_string(), job.clone())).collect();
            let workflow = json!({"repository": "acme/app", "name": "w".repeat(100), "labels": ["web"]});
            let burst = json!([
                {"op": "add", "path": "/spec/workflows", "value": {"w": workflow}},
                {"op": "add", "path": "/spec/jobs", "value": jobs},
            ]);
            let patch = Patch::<()>::Json(serde_json::from_value(burst)?);
            api::<JobLedger>(&world).patch(&ledger.name_any(), &PatchParams::default(), &patch).await?;
            // The operator soon finds out that GitHub has no such jobs, so that some bursts are over before a snapshot is made.
            let _seen = timeout(Duration::from_secs(2), reader.event("delta")).await;
            let metrics = operator(&world)?.metrics().await?;
            if metrics.contains(r#"pacer_http_connections_dropped_total{server="page",reason="slow"}"#) {
                break;
            }
        }
        Ok::<_, anyhow::Error>(())
    };
    timeout(PATIENCE, dropped).await.context("waiting until one who does not read is dropped")??;
    let grown = operator(&world)?.usage()?.resident.saturating_sub(before);
    println!("20 viewers of whom 19 do not read 1,000 jobs that change: {} MiB more", grown >> 20);
    ensure!(grown < 10 * 1024 * 1024 * VIEWERS as u64, "the operator grew by {} MiB", grown >> 20);
    // There is room again.
    ensure!(ask(&address, "GET", "/events", &[]).await?.status == 200);
    Ok(())
}
