//! An installation of ten times the size: ten thousand runners that do nothing, and a job that comes meanwhile.

use std::time::Duration;

use anyhow::{Context, Result};
use kube::api::PostParams;
use pacer_api::RunnerDeployment;
use pacer_harness::objects;
use pacer_harness::world::World;
use pacer_suites::{api, deployment, queue};

use crate::burst;
use crate::figure::{AtMost, Figure, Page, share_of};
use crate::fleet::{self, NAME, PATIENCE, harm, nodes};
use crate::meter::{self, Meter};

/// RunnerDeployments over which the runners are spread.
const FLEETS: u32 = 100;

/// Processor seconds in an idle minute, MiB, and seconds from the webhook to the pod of 95 % of single jobs, with ten thousand runners.
const IDLE_CPU: f64 = 1.0;
const MEMORY: f64 = 200.0;
const MADE: f64 = 0.3;

/// What the four simulated nodes take, which is beyond any real one's: each costs a watch and a heartbeat of its own here.
const PODS_PER_NODE: usize = 3_000;

/// Single jobs, one after the other.
const SINGLES: usize = 20;

/// Measures so many idle runners.
///
/// # Errors
///
/// When a state is not reached; the figures so far are kept.
pub(crate) async fn measure(runners: u32, idle: Duration, figures: &mut Vec<Figure>) -> Result<()> {
    let world = burst::start(|options| {
        if let Some(nodes) = &mut options.nodes {
            nodes.pods_per_node = PODS_PER_NODE;
        }
    });
    let world = world.await?;
    let outcome = at_rest(&world, runners, idle, &mut Page::new(format!("{runners} idle runners"), figures)).await;
    fleet::finish(world, outcome).await
}

async fn at_rest(world: &World, runners: u32, idle: Duration, page: &mut Page<'_>) -> Result<()> {
    burst::prepare(world, 10).await?;
    let began = Meter::start(world)?;
    let size = runners.div_ceil(FLEETS);
    for fleet in 0..FLEETS {
        let manifest: RunnerDeployment = serde_json::from_value(deployment(&format!("fleet-{fleet}"), size))?;
        api::<RunnerDeployment>(world).create(&PostParams::default(), &manifest).await?;
    }
    let wanted = usize::try_from(size * FLEETS)?;
    world.github.wait_for(PATIENCE, |view| view.runners().online >= wanted as u64).await?;
    page.time("all online", began.elapsed(), None);
    // A hundred pages are read until the operator knows of all of them.
    let fleets = usize::try_from(FLEETS)?;
    objects::until(api::<RunnerDeployment>(world), "", PATIENCE, |all| {
        all.iter().filter(|one| fleet::is_online(one, size)).count() == fleets
    })
    .await?;
    page.time("all counted in the statuses", began.elapsed(), None);
    meter::quiet(world, PATIENCE).await.context("all runners are online")?;

    let reading = meter::at_rest(world, idle).await?;
    let per_minute = IDLE_CPU * reading.lasted.as_secs_f64() / 60.0;
    let seconds = idle.as_secs();
    page.writes(&format!("idle for {seconds} s"), &reading.writes, Some(AtMost::Limit(0.0)));
    page.limited_time(format!("idle for {seconds} s: processor time"), reading.cpu, Some(per_minute));
    page.count(format!("idle for {seconds} s: paid GitHub calls"), reading.paid(), None);
    page.size("memory, idle", reading.resident, Some(MEMORY));

    let mut made = Vec::new();
    for job in 1..=SINGLES {
        let began = tokio::time::Instant::now();
        queue(world, NAME, 1, Duration::from_millis(100))?;
        nodes(world)?.until(PATIENCE, |tally| tally.seen() >= wanted + job).await?;
        made.push(began.elapsed());
        world.github.wait_for(PATIENCE, |view| view.jobs().succeeded >= job as u64).await?;
    }
    for (part, share, limit) in [("median", 50, None), ("95 %", 95, Some(MADE))] {
        page.limited_time(format!("meanwhile, from the webhook to the pod, {part}"), share_of(&made, share), limit);
    }
    page.size("memory, peak", began.peak()?, None);
    harm(world, page)
}
