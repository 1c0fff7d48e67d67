//! Events that come at a steady rate while many jobs are open: what one event costs must not depend on how many others there are.

use std::time::Duration;

use anyhow::{Context, Result};
use kube::api::{ListParams, Patch, PatchParams};
use pacer_api::{HorizontalRunnerAutoscaler, JobLedger};
use pacer_harness::github::JobId;
use pacer_harness::world::World;
use pacer_suites::{api, queue};
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::burst;
use crate::figure::{AtMost, Figure, Page};
use crate::fleet::{self, NAME, PATIENCE, harm};
use crate::meter::{self, Meter};

/// Events a second: half of them of jobs that come, half of jobs that are cancelled.
const EVENTS: u32 = 50;

/// Open jobs of the smaller load, with which the larger one is compared.
const FEW: u32 = 100;

/// Runners that the pool may have. They work all the time, and all other jobs wait.
const RUNNERS: u32 = 10;

/// KiB a second of job ledgers that are sent to the API server; KiB of the largest object; how much more an event may cost with all jobs open.
const WRITTEN: f64 = 200.0;
const OBJECT: f64 = 256.0;
const MORE: f64 = 1.2;

/// What a stretch of steady events cost.
struct Cost {
    processor: Duration,
    events: u32,
}

/// Measures events for so long while so many jobs are open.
///
/// # Errors
///
/// When a state is not reached; the figures so far are kept.
pub(crate) async fn measure(open: u32, lasting: Duration, figures: &mut Vec<Figure>) -> Result<()> {
    let world = burst::start(|_| {}).await?;
    let outcome = steady(&world, open, lasting, &mut Page::new(format!("{EVENTS} events a second"), figures)).await;
    fleet::finish(world, outcome).await
}

async fn steady(world: &World, open: u32, lasting: Duration, page: &mut Page<'_>) -> Result<()> {
    burst::prepare(world, 1).await?;
    let bounds = Patch::Merge(json!({"spec": {"maxReplicas": RUNNERS}}));
    api::<HorizontalRunnerAutoscaler>(world).patch(NAME, &PatchParams::default(), &bounds).await?;
    let mut jobs = Vec::new();
    fill(world, &mut jobs, FEW).await?;
    let few = stretch(world, &mut jobs, FEW, lasting, page).await?;
    fill(world, &mut jobs, open).await?;
    let many = stretch(world, &mut jobs, open, lasting, page).await?;
    let each = |cost: &Cost| 1_000.0 * cost.processor.as_secs_f64() / f64::from(cost.events.max(1));
    page.share("processor time of an event, as a share of that with few open jobs", each(&many), each(&few), Some(MORE));
    harm(world, page)
}

/// Queues jobs until so many are open and the operator knows all of them.
async fn fill(world: &World, jobs: &mut Vec<JobId>, open: u32) -> Result<()> {
    let wanted = usize::try_from(open)?;
    while jobs.len() < wanted {
        jobs.extend(queue(world, NAME, (wanted - jobs.len()).min(1_000), PATIENCE * 6)?);
        delivered(world).await?;
    }
    meter::quiet(world, PATIENCE).await.context("all jobs are known")
}

/// Waits until GitHub has no event left to deliver.
async fn delivered(world: &World) -> Result<()> {
    world.github.wait_for(PATIENCE, |view| view.deliveries().pending == 0).await.context("events are delivered")
}

/// Has jobs come and go at the steady rate.
async fn stretch(world: &World, jobs: &mut Vec<JobId>, open: u32, lasting: Duration, page: &mut Page<'_>) -> Result<Cost> {
    let meter = Meter::start(world)?;
    let before = sent(world).await?;
    let mut pairs = interval(Duration::from_secs(2) / EVENTS);
    pairs.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let began = Instant::now();
    let mut events = 0;
    while began.elapsed() < lasting {
        pairs.tick().await;
        // The oldest ones run.
        let oldest = jobs.remove(usize::try_from(RUNNERS)?);
        world.github.cancel_job(oldest);
        jobs.extend(queue(world, NAME, 1, PATIENCE * 6)?);
        events += 2;
    }
    delivered(world).await?;
    let took = began.elapsed();
    let reading = meter.read()?;
    let written = sent(world).await?.saturating_sub(before);
    let per_second = u32::try_from(took.as_secs())?;
    page.time(format!("{open} open jobs: {events} events answered"), took, None);
    page.ratio(
        format!("{open} open jobs: KiB of job ledgers a second"),
        written / 1024,
        per_second,
        Some(AtMost::Limit(WRITTEN)),
    );
    page.ratio(format!("{open} open jobs: writes for each event"), reading.writes.total(), events, None);
    page.time(format!("{open} open jobs: processor time"), reading.cpu, None);
    let largest = api::<JobLedger>(world).list(&ListParams::default()).await?.items;
    let largest = largest.iter().map(|one| serde_json::to_vec(one).map(|bytes| bytes.len())).collect::<Result<Vec<_>, _>>()?;
    let largest = u64::try_from(largest.into_iter().max().unwrap_or_default())?;
    page.count(format!("{open} open jobs: KiB of the largest object"), largest / 1024, Some(AtMost::Limit(OBJECT)));
    page.size(format!("{open} open jobs: memory"), reading.resident, None);
    Ok(Cost { processor: reading.cpu, events })
}

/// Bytes of job ledgers that were sent to the API server since its start, by its own count.
async fn sent(world: &World) -> Result<u64> {
    let request = http::Request::get("/metrics").body(Vec::new())?;
    let text = world.client.request_text(request).await?;
    let of_ledgers =
        text.lines().filter(|line| line.starts_with("apiserver_request_body_size_bytes_sum{") && line.contains("jobledgers"));
    let bytes = of_ledgers.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>();
    anyhow::ensure!(bytes > 0.0, "the API server does not say how large requests were");
    Ok(format!("{bytes:.0}").parse()?)
}
