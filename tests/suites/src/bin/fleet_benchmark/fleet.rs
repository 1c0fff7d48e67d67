//! A fleet from nothing to online, doing nothing, and back to nothing.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, PostParams};
use pacer_api::condition::{self, ConditionType};
use pacer_api::{Runner, RunnerDeployment};
use pacer_harness::github::Behaviour;
use pacer_harness::nodes::Nodes;
use pacer_harness::objects;
use pacer_harness::world::{Options, World};
use pacer_suites::{api, deployment, scale};

use crate::figure::{AtMost, Figure, Page};
use crate::meter::{self, Meter, Reading};

/// Enough for an unoptimised operator on a machine that does other things too.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

/// Name of the deployment.
pub(crate) const NAME: &str = "web";

/// Writes that the operator may need from the creation of a runner to its end.
const WRITES_PER_LIFE: f64 = 6.0;

/// Writes that serve all runners of a fleet, whatever their number: counters in two statuses at most once a second each, a handful of events,
/// the token.
const WRITES_FOR_ALL: f64 = 100.0;

/// Resident memory with a thousand idle runners, in MiB.
const MEMORY: f64 = 50.0;

/// Memory of the operator and of the process that runs its policies, with as many, in MiB.
const MEMORY_TOGETHER: f64 = 55.0;

/// Processor seconds per idle minute.
const IDLE_CPU: f64 = 0.2;

/// Seconds until a thousand runners are online.
const ONLINE: f64 = 20.0;

/// The operator as it is shipped, with a prompt GitHub: its delays would hide those of the operator.
///
/// # Errors
///
/// When the world does not start.
pub(crate) async fn world() -> Result<World> {
    world_with(&[], |_| {}).await
}

/// The same, with these further arguments and options.
///
/// # Errors
///
/// As [`world`].
pub(crate) async fn world_with(arguments: &[String], change: impl FnOnce(&mut Options)) -> Result<World> {
    pacer_suites::world(|options| {
        options.github.behaviour = Behaviour::prompt();
        if let Some(operator) = &mut options.operator {
            operator.args = arguments.to_vec();
            "info".clone_into(&mut operator.log_level);
        }
        change(options);
    })
    .await
}

/// Ends a scene: an error tells the state of its world, which is stopped.
///
/// # Errors
///
/// When the scene had one.
pub(crate) async fn finish(world: World, outcome: Result<()>) -> Result<()> {
    let outcome = world.check(outcome.map_err(|error| format!("{error:#}"))).await;
    world.stop().await;
    Ok(outcome?)
}

/// Measures one size.
///
/// # Errors
///
/// When a state is not reached; the figures so far are kept.
pub(crate) async fn measure(size: u32, idle: Duration, figures: &mut Vec<Figure>) -> Result<()> {
    let world = world().await?;
    let outcome = life(&world, size, idle, &mut Page::new(format!("{size} runners"), figures)).await;
    finish(world, outcome).await
}

async fn life(world: &World, size: u32, idle: Duration, page: &mut Page<'_>) -> Result<()> {
    let whole = Meter::start(world)?;
    page.size("memory with no runners", whole.read()?.resident, None);
    grow(world, size, page).await?;
    meter::quiet(world, PATIENCE).await.context("all runners are online")?;
    doing_nothing(world, idle, page).await?;
    after_a_decision(world, size, page).await?;
    shrink(world, page).await?;
    meter::quiet(world, PATIENCE).await.context("all runners are gone")?;
    per_life(&whole.read()?, size, page);
    page.size("memory, peak", whole.peak()?, None);
    left_over(world, page).await?;
    harm(world, page)
}

async fn grow(world: &World, size: u32, page: &mut Page<'_>) -> Result<()> {
    let meter = Meter::start(world)?;
    online(world, NAME, size, Some(page)).await?;
    let reading = meter.read()?;
    page.time("0 to online: processor time", reading.cpu, None);
    github("0 to online", &reading, page);
    Ok(())
}

/// Makes a deployment and waits until GitHub and its own status say that all of it is online.
///
/// # Errors
///
/// When that takes too long.
pub(crate) async fn online(world: &World, name: &str, size: u32, page: Option<&mut Page<'_>>) -> Result<()> {
    let manifest: RunnerDeployment = serde_json::from_value(deployment(name, size))?;
    let began = tokio::time::Instant::now();
    api::<RunnerDeployment>(world).create(&PostParams::default(), &manifest).await?;
    let pods = async {
        let wanted = usize::try_from(size)?;
        nodes(world)?.until(PATIENCE, |tally| tally.seen() >= wanted).await?;
        anyhow::Ok(began.elapsed())
    };
    let truth = async {
        world.github.wait_for(PATIENCE, |view| view.runners().online == u64::from(size)).await?;
        anyhow::Ok(began.elapsed())
    };
    let status = async {
        objects::until(api::<RunnerDeployment>(world), "", PATIENCE, |all| all.iter().any(|one| is_online(one, size))).await?;
        anyhow::Ok(began.elapsed())
    };
    let (pods, truth, status) = tokio::try_join!(pods, truth, status).with_context(|| format!("{size} runners from 0"))?;
    if let Some(page) = page {
        page.time("0 to online: last pod made", pods, None);
        page.time("0 to online: GitHub", truth, (size <= 1_000).then_some(ONLINE));
        page.time("0 to online: status", status, (size <= 1_000).then_some(ONLINE));
    }
    Ok(())
}

/// Whether the deployment's own status says that so many runners are online.
#[must_use]
pub(crate) fn is_online(deployment: &RunnerDeployment, size: u32) -> bool {
    let status = deployment.status.clone().unwrap_or_default();
    let all = i32::try_from(size).ok();
    condition::holds(&status.conditions, ConditionType::Ready) && status.replicas == all && status.available_replicas == all
}

async fn doing_nothing(world: &World, idle: Duration, page: &mut Page<'_>) -> Result<()> {
    let reading = meter::at_rest(world, idle).await?;
    let per_minute = IDLE_CPU * reading.lasted.as_secs_f64() / 60.0;
    let seconds = idle.as_secs();
    page.writes(&format!("idle for {seconds} s"), &reading.writes, Some(AtMost::Limit(0.0)));
    page.count(format!("idle for {seconds} s: paid GitHub calls"), reading.paid(), Some(AtMost::Limit(0.0)));
    let free = reading.calls.values().map(|count| count.not_modified).sum();
    page.count(format!("idle for {seconds} s: free GitHub calls (304)"), free, None);
    page.time(format!("idle for {seconds} s: processor time"), reading.cpu, Some(per_minute));
    page.size("memory, idle", reading.resident, Some(MEMORY));
    Ok(())
}

/// The process that runs policies is there from the first decision on: one runner less. That one was asked about all others.
async fn after_a_decision(world: &World, size: u32, page: &mut Page<'_>) -> Result<()> {
    let meter = Meter::start(world)?;
    let left = size.saturating_sub(1);
    scale(world, NAME, left).await?;
    let wanted = usize::try_from(left)?;
    nodes(world)?.until(PATIENCE, |tally| tally.present() <= wanted).await.context("one runner less")?;
    meter::quiet(world, PATIENCE).await.context("one runner less")?;
    page.size("memory, idle, with the process that runs policies", meter.memory()?.together(), Some(MEMORY_TOGETHER));
    Ok(())
}

async fn shrink(world: &World, page: &mut Page<'_>) -> Result<()> {
    let meter = Meter::start(world)?;
    scale(world, NAME, 0).await?;
    let gone = nodes(world)?.until(PATIENCE, |tally| tally.present() == 0).await;
    gone.context("all runners to nothing")?;
    page.time("to 0: last pod gone", meter.elapsed(), None);
    world.github.wait_for(PATIENCE, |view| view.runners().registered == 0).await?;
    objects::until(api::<Runner>(world), "", PATIENCE, |all| all.is_empty()).await?;
    page.time("to 0: last Runner gone", meter.elapsed(), None);
    let reading = meter.read()?;
    page.time("to 0: processor time", reading.cpu, None);
    github("to 0", &reading, page);
    Ok(())
}

/// A runner's own objects are its Runner and its pod; the set, the deployment, the token and their events serve all runners.
fn per_life(reading: &Reading, size: u32, page: &mut Page<'_>) {
    let is_own = |resource: &str| matches!(resource.split('/').next(), Some("runners" | "pods"));
    let (own, shared): (Vec<_>, Vec<_>) = reading.writes.iter().partition(|(_, resource, _)| is_own(resource));
    let sum = |writes: &[(&str, &str, u64)]| writes.iter().map(|(_, _, count)| count).sum::<u64>();
    page.ratio("writes per runner's life", sum(&own), size, Some(AtMost::Limit(WRITES_PER_LIFE)));
    for (verb, resource, count) in own {
        page.ratio(format!("of these: {verb} {resource}"), count, size, None);
    }
    page.count("writes for the fleet as a whole", sum(&shared), Some(AtMost::Wish(WRITES_FOR_ALL)));
    for (verb, resource, count) in shared {
        page.count(format!("of these: {verb} {resource}"), count, None);
    }
    page.ratio("all writes per runner, events included", reading.writes.total(), size, None);
    page.count("writes that were refused", reading.writes.refused(), None);
}

fn github(what: &str, reading: &Reading, page: &mut Page<'_>) {
    page.count(format!("{what}: listings of all runners"), reading.listings, None);
    for (route, count) in &reading.calls {
        page.count(format!("{what}: {route:?}, paid"), count.requests - count.not_modified, None);
        if count.not_modified > 0 {
            page.count(format!("{what}: {route:?}, 304"), count.not_modified, None);
        }
    }
}

/// What is left of a fleet that was scaled to nothing, in the cluster and at GitHub.
async fn left_over(world: &World, page: &mut Page<'_>) -> Result<()> {
    let runners = api::<Runner>(world).list_metadata(&ListParams::default()).await?.items.len();
    let pods = api::<Pod>(world).list_metadata(&ListParams::default()).await?.items.len();
    let registrations = usize::try_from(world.github.runners().registered)?;
    page.count("leaks", u64::try_from(runners + pods + registrations)?, Some(AtMost::Limit(0.0)));
    Ok(())
}

/// What must never happen in any scene.
///
/// # Errors
///
/// When the world has no nodes.
pub(crate) fn harm(world: &World, page: &mut Page<'_>) -> Result<()> {
    let kills = nodes(world)?.deleted_while_busy().len() + usize::try_from(world.github.jobs().lost)?;
    page.count("jobs cut short", u64::try_from(kills)?, Some(AtMost::Limit(0.0)));
    page.count("registrations without a runner", u64::try_from(world.github.leaked().len())?, Some(AtMost::Limit(0.0)));
    Ok(())
}

/// The simulated nodes.
///
/// # Errors
///
/// When the world has none.
pub(crate) fn nodes(world: &World) -> Result<&Nodes> {
    world.nodes.as_ref().context("a world with nodes is wanted")
}
