//! What the page costs the operator while a fleet works: processor time and memory for each viewer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pacer_harness::world::World;
use pacer_suites::{apply, deployment, patient_autoscaler, put, queue, with_spec};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::burst;
use crate::figure::{AtMost, Figure, Page};
use crate::fleet::{self, NAME, PATIENCE, harm};
use crate::meter::{self, Meter, Reading};

/// People who look at the page.
const VIEWERS: u32 = 10;

/// Jobs that come each second. Each begins and ends, so that the page has twice as many changes.
const JOBS: u32 = 25;

/// How long each takes.
const JOB: Duration = Duration::from_secs(5);

/// Share of a core that all viewers may take; MiB for each.
const CORE: f64 = 0.05;
const MEMORY: f64 = 10.0;

/// Watches a fleet of so many runners at work for so long, without viewers and with them.
///
/// # Errors
///
/// When a state is not reached; the figures so far are kept.
pub(crate) async fn measure(runners: u32, lasting: Duration, figures: &mut Vec<Figure>) -> Result<()> {
    let world = burst::start(|options| {
        if let Some(operator) = &mut options.operator {
            operator.args.push("--ui-addr=127.0.0.1:0".to_owned());
        }
    })
    .await?;
    let scene = format!("page over {runners} runners, {} changes a second", 2 * JOBS);
    let outcome = watch(&world, runners, lasting, &mut Page::new(scene, figures)).await;
    fleet::finish(world, outcome).await
}

async fn watch(world: &World, runners: u32, lasting: Duration, page: &mut Page<'_>) -> Result<()> {
    // Their jobs change them, and leave them where they are.
    apply(world, &with_spec(deployment(NAME, runners), "ephemeral", json!(false))).await?;
    world.github.wait_for(PATIENCE, |view| view.runners().online == u64::from(runners)).await?;
    burst::hook(world)?;
    apply(
        world,
        &put(patient_autoscaler(NAME, NAME, runners, runners), "/spec", "scaleDownDelaySecondsAfterScaleOut", json!(3_600)),
    )
    .await?;
    meter::quiet(world, PATIENCE).await.context("the autoscaler is known")?;
    let alone = work(world, lasting).await?;
    let address = world.operator.as_ref().and_then(|operator| operator.page_address()).context("it serves no page")?;
    let read = Arc::new(AtomicU64::new(0));
    let mut viewers = JoinSet::new();
    for _ in 0..VIEWERS {
        viewers.spawn(view(address.clone(), Arc::clone(&read)));
    }
    let watched = work(world, lasting).await?;
    ensure!(viewers.try_join_next().is_none(), "a viewer was dropped");
    let received = read.load(Ordering::Relaxed);
    ensure!(received > 0, "viewers were told nothing");
    viewers.shutdown().await;
    let share = |reading: &Reading| reading.cpu.as_secs_f64() / reading.lasted.as_secs_f64();
    page.time("processor time of a second without viewers", Duration::from_secs_f64(share(&alone)), None);
    page.share(
        format!("processor for {VIEWERS} viewers, share of a core"),
        (share(&watched) - share(&alone)).max(0.0),
        1.0,
        Some(CORE),
    );
    let more = watched.resident.saturating_sub(alone.resident);
    page.size("memory for each viewer", more / u64::from(VIEWERS), Some(MEMORY));
    page.ratio("KiB a second to each viewer", received / 1024 / lasting.as_secs().max(1), VIEWERS, None);
    page.count("jobs that did not succeed", unfinished(world), Some(AtMost::Limit(0.0)));
    harm(world, page)
}

fn unfinished(world: &World) -> u64 {
    let jobs = world.github.jobs();
    jobs.completed - jobs.succeeded
}

/// Gives the fleet jobs at a steady rate, and waits for their ends.
async fn work(world: &World, lasting: Duration) -> Result<Reading> {
    let done = world.github.jobs().succeeded;
    let meter = Meter::start(world)?;
    let mut second = interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut queued = 0;
    while meter.elapsed() < lasting {
        second.tick().await;
        queue(world, NAME, usize::try_from(JOBS)?, JOB)?;
        queued += u64::from(JOBS);
    }
    let reading = meter.read()?;
    world.github.wait_for(PATIENCE, |view| view.jobs().succeeded >= done + queued).await.context("the jobs")?;
    meter::quiet(world, PATIENCE).await.context("what the jobs left")?;
    Ok(reading)
}

/// Reads all that one viewer is sent, until the stream ends.
async fn view(address: String, read: Arc<AtomicU64>) -> Result<()> {
    let mut stream = TcpStream::connect(&address).await?;
    stream.write_all(format!("GET /events HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes()).await?;
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let bytes = stream.read(&mut buffer).await?;
        ensure!(bytes > 0, "the stream ended");
        read.fetch_add(u64::try_from(bytes)?, Ordering::Relaxed);
    }
}
