//! Several receivers at once, and their end.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::post::{read, request, signed};
use super::*;

/// Bytes of a JobLedger at most; the API server takes a million and a half.
const OBJECT: usize = 64 * 1024;

/// Jobs of a burst.
const BURST: u64 = 400;

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_answered_2xx_survives_the_death_of_a_replica() -> Result<()> {
    let world = world(|_| {}).await?;
    pool(&world, "web", &json!({"repository": "acme/app", "labels": ["web"]})).await?;
    let (doomed, survivor) = (receiver(&world, &[]).await?, receiver(&world, &[]).await?);
    let addresses = [address(&doomed)?, address(&survivor)?];
    let job = |id| event("queued", id, "acme/app", &["web"]);
    for address in &addresses {
        eventually(address, &job(1), "scaled web by 1").await?;
    }
    let (next, by_doomed, failed) = (AtomicU64::new(2), AtomicU64::new(0), Mutex::new(BTreeSet::new()));
    let sender = async || -> Result<()> {
        loop {
            let id = next.fetch_add(1, Ordering::Relaxed);
            if id > BURST {
                return Ok(());
            }
            let first = usize::from(id % 2 == 1);
            match post(&addresses[first], "workflow_job", &job(id)).await {
                Ok(answer) if answer.status == 200 => {
                    by_doomed.fetch_add(u64::from(first == 0), Ordering::Relaxed);
                    continue;
                }
                // The API server has too much to do, and GitHub is told so.
                Ok(answer) if first == 1 && answer.status == 503 => {
                    eventually(&addresses[1], &job(id), "scaled web by 1").await?;
                    continue;
                }
                _ if first == 0 => failed.lock().map_err(|_| anyhow::anyhow!("poisoned"))?.insert(id),
                other => anyhow::bail!("the survivor failed: {other:?}"),
            };
        }
    };
    let killer = async {
        while next.load(Ordering::Relaxed) < BURST / 3 {
            // Counting announces nothing.
            tokio::task::yield_now().await;
        }
        doomed.kill9().await;
    };
    let (sent, ()) = futures::join!(futures::future::try_join_all((0..8).map(|_| sender())), killer);
    sent?;
    let failed = failed.into_inner()?;
    ensure!(by_doomed.load(Ordering::Relaxed) > 0 && !failed.is_empty(), "it died too early or too late: {failed:?}");
    let there: BTreeSet<u64> = ledger(&world, "web").await?.into_keys().collect();
    let lost: Vec<u64> = (1..=BURST).filter(|id| !failed.contains(id) && !there.contains(id)).collect();
    ensure!(lost.is_empty(), "answered with 200 and lost: {lost:?}");
    // What failed is delivered again, and nothing is there twice.
    for id in &failed {
        let answer = post(&addresses[1], "workflow_job", &job(*id)).await?;
        ensure!(answer.status == 200, "{answer:?}");
    }
    let all: States = (1..=BURST).map(|id| (id, State::Queued)).collect();
    ensure!(ledger(&world, "web").await? == all, "{:?}", ledger(&world, "web").await?);
    let objects = api::<JobLedger>(&world).list(&ListParams::default()).await?.items;
    let sizes = objects.iter().map(|one| Ok(serde_json::to_vec(one)?.len())).collect::<Result<Vec<usize>>>()?;
    ensure!(sizes.len() > 4 && sizes.iter().all(|size| *size < OBJECT), "{} jobs lie in objects of {sizes:?} bytes", all.len());
    survivor.terminate().await;
    world.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_under_way_at_sigterm_is_finished() -> Result<()> {
    let world = world(|_| {}).await?;
    pool(&world, "web", &json!({"repository": "acme/app", "labels": ["web"]})).await?;
    let server = receiver(&world, &[]).await?;
    let address = address(&server)?;
    eventually(&address, &event("queued", 1, "acme/app", &["web"]), "scaled web by 1").await?;
    let body = event("queued", 2, "acme/app", &["web"]).to_string();
    let request = request("POST", &signed("workflow_job", &body), &body);
    let (begin, end) = request.split_at(request.len() - 10);
    let mut stream = TcpStream::connect(&address).await?;
    stream.write_all(begin.as_bytes()).await?;
    // Its answer shows that the server has taken the first connection.
    eventually(&address, &event("queued", 3, "acme/app", &["web"]), "scaled web by 1").await?;
    let finish = async {
        // No new connection is taken once it stops.
        while TcpStream::connect(&address).await.is_ok() {
            tokio::task::yield_now().await;
        }
        stream.write_all(end.as_bytes()).await?;
        read(stream).await
    };
    let (status, answer) = futures::join!(server.terminate(), finish);
    let answer = answer?;
    ensure!((answer.status, answer.text.as_str()) == (200, "scaled web by 1"), "{answer:?}");
    ensure!(status.is_some_and(|status| status.success()), "{status:?}\n{}", server.log_tail(4_000));
    let states: Vec<u64> = ledger(&world, "web").await?.into_keys().collect();
    ensure!(states == [1, 2, 3], "{states:?}");
    world.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_receives_whether_or_not_it_leads() -> Result<()> {
    let world = pacer_suites::world(|options| {
        options.nodes = None;
        if let Some(operator) = &mut options.operator {
            operator.args.push("--webhook-addr=127.0.0.1:0".to_owned());
            operator.env.push(("GITHUB_WEBHOOK_SECRET_TOKEN".to_owned(), SECRET.to_owned()));
        }
    })
    .await?;
    pool(&world, "web", &json!({"repository": "acme/app", "labels": ["web"]})).await?;
    let leader = world.operator.as_ref().context("an operator")?;
    let standby = leader.twin().await?;
    standby.until_ready("standby", PATIENCE).await?;
    for (id, operator) in [(1, leader), (2, &standby)] {
        eventually(&address(operator)?, &event("queued", id, "acme/app", &["web"]), "scaled web by 1").await?;
    }
    let states: Vec<u64> = ledger(&world, "web").await?.into_keys().collect();
    ensure!(states == [1, 2], "{states:?}");
    standby.terminate().await;
    world.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_accepted_while_the_api_server_is_away() -> Result<()> {
    let world = world(|_| {}).await?;
    pool(&world, "web", &json!({"repository": "acme/app", "labels": ["web"]})).await?;
    let server = receiver(&world, &[]).await?;
    let address = address(&server)?;
    eventually(&address, &event("queued", 1, "acme/app", &["web"]), "scaled web by 1").await?;
    let job = event("queued", 2, "acme/app", &["web"]);
    let answer = world.plane.without_apiserver(post(&address, "workflow_job", &job)).await?;
    ensure!(answer.status == 503 && answer.head.contains("retry-after: "), "{answer:?}");
    eventually(&address, &job, "scaled web by 1").await?;
    let states: Vec<u64> = ledger(&world, "web").await?.into_keys().collect();
    ensure!(states == [1, 2], "{states:?}");
    server.terminate().await;
    world.stop().await;
    Ok(())
}

/// How many watches of a resource are open at the API server, whoever has them.
async fn open_watches(world: &World, resource: &str) -> Result<u64> {
    let output = world.plane.kubectl(&["get", "--raw", "/metrics"]).await?;
    let text = String::from_utf8_lossy(&output.stdout);
    let is_watch = |line: &&str| {
        line.starts_with("apiserver_longrunning_requests{")
            && line.contains(&format!("resource=\"{resource}\""))
            && line.contains("verb=\"WATCH\"")
    };
    let counts = text.lines().filter(is_watch).filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    Ok(counts.sum())
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_that_receives_webhooks_has_one_watch_of_each_kind() -> Result<()> {
    let world = pacer_suites::world(|options| {
        options.nodes = None;
        if let Some(operator) = &mut options.operator {
            operator.args.push("--webhook-addr=127.0.0.1:0".to_owned());
            operator.env.push(("GITHUB_WEBHOOK_SECRET_TOKEN".to_owned(), SECRET.to_owned()));
        }
    })
    .await?;
    let settled = async {
        loop {
            // The garbage collector watches every kind as well; Runners are nobody else's to watch but the operator's.
            let once = open_watches(&world, "runners").await?;
            let mut others = Vec::new();
            for resource in ["horizontalrunnerautoscalers", "runnerdeployments", "runnersets", "jobledgers"] {
                others.push(open_watches(&world, resource).await?);
            }
            if once > 1 && others.iter().all(|count| *count == once) {
                return Ok::<_, anyhow::Error>(());
            }
            // The API server announces no change of its figures.
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let outcome = tokio::time::timeout(PATIENCE, settled).await.map_err(|_| "a kind is watched twice");
    world.check(outcome).await??;
    // What it receives it looks up in what these watches show.
    pool(&world, "web", &json!({"repository": "acme/app", "labels": ["web"]})).await?;
    let operator = world.operator.as_ref().context("an operator")?;
    eventually(&address(operator)?, &event("queued", 1, "acme/app", &["web"]), "scaled web by 1").await?;
    let states: Vec<u64> = ledger(&world, "web").await?.into_keys().collect();
    ensure!(states == [1], "{states:?}");
    world.stop().await;
    Ok(())
}
