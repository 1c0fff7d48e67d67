//! Many jobs at once: webhooks, reservations, runners, jobs, and back to the minimum.

use std::time::Duration;

use anyhow::{Context, Result};
use kube::api::PostParams;
use pacer_api::{HorizontalRunnerAutoscaler, RunnerDeployment};
use pacer_harness::github::{Delivering, JobAction, Scope};
use pacer_harness::objects;
use pacer_harness::world::{Options, World};
use pacer_suites::{api, deployment, queue, webhook};
use serde_json::json;

use crate::figure::{AtMost, Figure, Page, share_of};
use crate::fleet::{self, NAME, PATIENCE, harm, nodes};
use crate::meter::{self, Meter};

/// Jobs that the limits are for.
const THOUSAND: u32 = 1_000;

/// Connections that GitHub delivers over.
const CONNECTIONS: usize = 8;

/// Seconds until half, and 99 %, of the `queued` events of a thousand jobs are answered, each of which is stored by then.
const ANSWERED: [(&str, usize, f64); 2] = [("median", 50, 0.06), ("99 %", 99, 0.2)];

/// Calls to GitHub for each job of a thousand, free ones included.
const CALLS: f64 = 0.05;

/// Seconds until a thousand jobs have their pods; until they are done, where each takes 30 s; until the last pod is gone.
const PODS: f64 = 12.0;
const DONE: f64 = 45.0;
const GONE: f64 = 50.0;

/// Measures one burst of jobs that take so long each.
///
/// # Errors
///
/// When a state is not reached; the figures so far are kept.
pub(crate) async fn measure(jobs: u32, lasting: Duration, figures: &mut Vec<Figure>) -> Result<()> {
    let world = start(|_| {}).await?;
    let outcome = burst(&world, jobs, lasting, &mut Page::new(format!("burst of {jobs} jobs"), figures)).await;
    fleet::finish(world, outcome).await
}

/// A world with two replicas of `pacer webhook`, and with a prompt GitHub: its delays would hide those of the operator.
///
/// # Errors
///
/// When a part of it does not start.
pub(crate) async fn start(change: impl FnOnce(&mut Options)) -> Result<World> {
    fleet::world_with(&[], |options| {
        webhook::receive(options);
        change(options);
    })
    .await
}

async fn burst(world: &World, jobs: u32, lasting: Duration, page: &mut Page<'_>) -> Result<()> {
    prepare(world, jobs).await?;
    meter::quiet(world, PATIENCE).await.context("the autoscaler is known")?;
    let wish = |most: f64| (jobs <= 1_000).then_some(most);
    let wanted = usize::try_from(jobs)?;
    let meter = Meter::start(world)?;
    let began = tokio::time::Instant::now();
    queue(world, NAME, wanted, lasting)?;
    let accepted = async {
        world.github.wait_for(PATIENCE, |view| view.deliveries().accepted >= u64::from(jobs)).await?;
        anyhow::Ok(began.elapsed())
    };
    let pods = async {
        nodes(world)?.until(PATIENCE, |tally| tally.seen() >= wanted).await?;
        anyhow::Ok(began.elapsed())
    };
    let online = async {
        world.github.wait_for(PATIENCE, |view| view.runners().ever_registered >= u64::from(jobs)).await?;
        anyhow::Ok(began.elapsed())
    };
    let done = async {
        world.github.wait_for(PATIENCE, |view| view.jobs().succeeded >= u64::from(jobs)).await?;
        anyhow::Ok(began.elapsed())
    };
    let (accepted, pods, online, done) = tokio::try_join!(accepted, pods, online, done).context("the jobs of the burst")?;
    page.time("every queued event answered 2xx", accepted, None);
    page.time("every pod made", pods, wish(PODS));
    page.time("every runner registered", online, None);
    page.time(format!("every job done, {} s each", lasting.as_secs()), done, wish(DONE));
    objects::until(api::<HorizontalRunnerAutoscaler>(world), "", PATIENCE, |all| {
        all.iter().any(|one| one.status.as_ref().is_some_and(|status| status.desired_replicas == Some(0)))
    })
    .await?;
    page.time("the autoscaler at its minimum", began.elapsed(), None);
    world.github.wait_for(PATIENCE, |view| view.runners().registered == 0).await?;
    objects::until(api::<k8s_openapi::api::core::v1::Pod>(world), "", PATIENCE, |all| all.is_empty()).await?;
    page.time("the last pod gone", began.elapsed(), wish(GONE));
    answers(world, page, jobs == THOUSAND);
    let reading = meter.read()?;
    let counts = world.github.runners();
    page.ratio("runners made for each job", counts.ever_registered, jobs, Some(AtMost::Limit(1.0)));
    page.ratio("writes for each job", reading.writes.total(), jobs, None);
    for (verb, resource, count) in reading.writes.iter() {
        page.ratio(format!("- {verb} {resource}"), count, jobs, None);
    }
    let calls: u64 = reading.calls.values().map(|count| count.requests).sum();
    page.ratio("GitHub calls for each job", calls, jobs, (jobs == THOUSAND).then_some(AtMost::Limit(CALLS)));
    page.count("paid GitHub calls", reading.paid(), None);
    for (route, count) in &reading.calls {
        page.count(format!("- {route:?}"), count.requests, None);
    }
    page.time("processor time", reading.cpu, None);
    page.size("memory, peak", meter.peak()?, None);
    harm(world, page)
}

/// GitHub's hook.
///
/// # Errors
///
/// When nothing receives webhooks.
pub(crate) fn hook(world: &World) -> Result<()> {
    webhook::hook(world, Scope::repository("acme", "app"))?;
    world.github.deliver(Delivering { parallel: CONNECTIONS, ..Delivering::default() });
    Ok(())
}

/// An autoscaler that starts at nothing, and GitHub's hook.
///
/// # Errors
///
/// When the API server refuses.
pub(crate) async fn prepare(world: &World, jobs: u32) -> Result<()> {
    hook(world)?;
    let manifest: RunnerDeployment = serde_json::from_value(deployment(NAME, 0))?;
    api::<RunnerDeployment>(world).create(&PostParams::default(), &manifest).await?;
    let autoscaler: HorizontalRunnerAutoscaler = serde_json::from_value(json!({
        "apiVersion": "actions.summerwind.dev/v1alpha1",
        "kind": "HorizontalRunnerAutoscaler",
        "metadata": {"name": NAME, "namespace": "default"},
        "spec": {
            "scaleTargetRef": {"name": NAME}, "minReplicas": 0, "maxReplicas": jobs.saturating_mul(2),
            "scaleUpTriggers": [{"githubEvent": {"workflowJob": {}}, "duration": "30m"}],
        },
    }))?;
    api::<HorizontalRunnerAutoscaler>(world).create(&PostParams::default(), &autoscaler).await?;
    objects::until(api::<HorizontalRunnerAutoscaler>(world), "", PATIENCE, |all| {
        all.iter().any(|one| one.status.as_ref().is_some_and(|status| status.desired_replicas == Some(0)))
    })
    .await?;
    Ok(())
}

/// How long `queued` events took to be answered, as GitHub saw it.
fn answers(world: &World, page: &mut Page<'_>, limited: bool) {
    let deliveries = world.github.deliveries();
    let took: Vec<Duration> = deliveries
        .iter()
        .filter(|delivery| delivery.action == Some(JobAction::Queued) && delivery.delivered_at.is_some())
        .map(|delivery| delivery.duration)
        .collect();
    for (name, share, limit) in ANSWERED {
        page.limited_time(format!("a queued event answered, {name}"), share_of(&took, share), limited.then_some(limit));
    }
}
