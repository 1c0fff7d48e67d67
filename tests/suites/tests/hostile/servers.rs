//! A GitHub Enterprise Server of a tenant's choosing that answers with whatever costs the operator most.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use pacer_api::RunnerReplicaSet;
use pacer_harness::github::Scope;
use pacer_suites::{NAMESPACE, PATIENCE, apply, brisk_world, deployment, end_as_it_is, online_in};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::fleet;

/// Most memory that the operator may ever have had.
const MOST: u64 = 150 << 20;

/// Words of the server that nobody may repeat.
const WORDS: &str = "words-of-the-server";

/// What a server does.
#[derive(Clone, Copy, Debug)]
enum Malice {
    /// A million runners, a full page of long names each time.
    Pages,
    /// Answers of 32 MiB.
    Huge,
    /// Pages of as many tiny runners as fit.
    Crowded,
    /// Refusals and answers that a careless client would repeat.
    Talk,
}

struct Server {
    url: String,
    asked: Arc<AtomicU64>,
    _tasks: JoinSet<()>,
}

async fn serve(malice: Malice) -> Result<Server> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let asked = Arc::new(AtomicU64::new(0));
    let counted = asked.clone();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut answering = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let number = counted.fetch_add(1, Ordering::Relaxed);
            // A client that has read enough closes the connection, which is no fault here.
            answering.spawn(async move {
                let _closed = answer(stream, malice, number).await;
            });
            while answering.try_join_next().is_some() {}
        }
    });
    Ok(Server { url, asked, _tasks: tasks })
}

async fn answer(mut stream: TcpStream, malice: Malice, number: u64) -> Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let runner =
        |id: u64, name: &str| json!({"id": id, "name": name, "os": "linux", "status": "online", "busy": false, "labels": []});
    let page = |runners: Vec<serde_json::Value>| json!({"total_count": 1_000_000, "runners": runners}).to_string();
    let (status, body) = match malice {
        Malice::Pages => {
            let name = "n".repeat(9_000);
            (200, page((0..100).map(|index| runner(number * 100 + index, &format!("{name}{number}-{index}"))).collect()))
        }
        Malice::Huge => (200, format!("{{\"total_count\": 1, \"runners\": [], \"more\": \"{}\"}}", "x".repeat(32 << 20))),
        Malice::Crowded => (200, page((0..10_000).map(|index| runner(number * 10_000 + index, "")).collect())),
        Malice::Talk if number.is_multiple_of(2) => (403, json!({"message": WORDS, "documentation_url": WORDS}).to_string()),
        Malice::Talk => (200, json!({"total_count": WORDS, "runners": WORDS}).to_string()),
    };
    let reason = if status == 200 { "OK" } else { "Forbidden" };
    let head = format!(
        "HTTP/1.1 {status} {reason}\r\ncontent-type: application/json\r\nconnection: close\r\nx-github-request-id: {WORDS}\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    Ok(())
}

/// The most memory that a process ever had, in bytes.
fn peak(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix("kB")).context("no VmHWM")?;
    Ok(line.trim().parse::<u64>()? * 1024)
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_servers_fill_no_memory_and_slow_nobody() -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    let mut servers = Vec::new();
    for (number, malice) in
        [Malice::Pages, Malice::Huge, Malice::Crowded, Malice::Talk, Malice::Pages, Malice::Huge].into_iter().enumerate()
    {
        let server = serve(malice).await?;
        let name = format!("hostile-{number}");
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "default"},
            "stringData": {"github_token": "any", "github_url": server.url},
        });
        apply(&world, &secret).await?;
        let spec = json!({"organization": "any", "githubAPICredentialsFrom": {"secretRef": {"name": name}}});
        apply(&world, &fleet(NAMESPACE, &name, &spec, 1)).await?;
        servers.push(server);
    }
    // Each of them has been asked again and again, not just once.
    let began = Instant::now();
    while servers.iter().any(|server| server.asked.load(Ordering::Relaxed) < 4) {
        ensure!(began.elapsed() < PATIENCE, "a server is hardly asked");
        // The servers announce nothing.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let began = Instant::now();
    apply(&world, &deployment("good", 3)).await?;
    online_in(&world, &Scope::repository("acme", "app"), 3).await?;
    let took = began.elapsed();
    ensure!(took < Duration::from_secs(30), "others were served after {took:?} only");
    let operator = world.operator.as_ref().context("no operator")?;
    let most = peak(operator.pid())?;
    let asked: Vec<u64> = servers.iter().map(|server| server.asked.load(Ordering::Relaxed)).collect();
    println!("peak {} MiB, requests {asked:?}, others served after {took:?}", most >> 20);
    ensure!(most < MOST, "the operator had {} MiB", most >> 20);
    ensure!(asked.iter().all(|asked| *asked < 2_000), "a listing goes on and on: {asked:?}");

    ensure!(operator.logs().contains("credentials are sent without encryption"), "nobody is warned of http");

    // What it says is in no status and no Event.
    let sets: Api<RunnerReplicaSet> = pacer_suites::api(&world);
    let told = serde_json::to_string(&sets.list(&ListParams::default()).await?.items)?;
    ensure!(!told.contains(WORDS), "{told}");
    let events = pacer_suites::api::<k8s_openapi::api::events::v1::Event>(&world).list(&ListParams::default()).await?;
    let notes: Vec<String> = events.items.iter().filter_map(|event| event.note.clone()).collect();
    ensure!(notes.iter().all(|note| !note.contains(WORDS)), "{notes:?}");
    end_as_it_is(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_service_is_not_called_for_a_tenant() -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "own", "namespace": "default"},
        "stringData": {"github_token": "any", "github_url": "http://169.254.169.254/latest"},
    });
    apply(&world, &secret).await?;
    let spec = json!({"organization": "any", "githubAPICredentialsFrom": {"secretRef": {"name": "own"}}});
    apply(&world, &fleet(NAMESPACE, "curious", &spec, 1)).await?;
    pacer_suites::until::<RunnerReplicaSet>(&world, "the set to say why", |all| {
        all.iter().any(|one| {
            let conditions = one.status.clone().unwrap_or_default().conditions;
            one.name_any().starts_with("curious") && conditions.iter().any(|one| one.message.contains("metadata address"))
        })
    })
    .await?;
    end_as_it_is(world).await
}
