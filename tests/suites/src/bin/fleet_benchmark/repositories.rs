//! Many repositories with one set of credentials, each with an idle runner and an autoscaler that is told of jobs by webhooks.

use std::time::Duration;

use anyhow::{Context, Result};
use kube::api::PostParams;
use pacer_api::{HorizontalRunnerAutoscaler, RunnerDeployment};
use pacer_harness::github::Scope;
use pacer_harness::world::World;
use pacer_suites::{api, deployment, with_spec};
use serde_json::{Value, json};

use crate::burst;
use crate::figure::{AtMost, Figure, Page};
use crate::fleet::{self, PATIENCE, harm};
use crate::meter::{self, Meter};

/// Requests to GitHub in an idle minute, those that are answered 304 included.
const CALLS: f64 = 60.0;

/// How long until all runners are online: each repository needs a token of its own, and the operator asks for forty in a minute.
const SET_UP: Duration = Duration::from_mins(20);

/// Measures so many repositories.
///
/// # Errors
///
/// When a state is not reached; the figures so far are kept.
pub(crate) async fn measure(repositories: u32, idle: Duration, figures: &mut Vec<Figure>) -> Result<()> {
    let world = burst::start(|_| {}).await?;
    let outcome = at_rest(&world, repositories, idle, &mut Page::new(format!("{repositories} repositories"), figures)).await;
    fleet::finish(world, outcome).await
}

async fn at_rest(world: &World, repositories: u32, idle: Duration, page: &mut Page<'_>) -> Result<()> {
    burst::hook(world)?;
    let began = Meter::start(world)?;
    for number in 0..repositories {
        let name = format!("repository-{number}");
        world.github.add(&Scope::repository("acme", &name));
        let fleet = with_spec(deployment(&name, 1), "repository", json!(format!("acme/{name}")));
        let fleet: RunnerDeployment = serde_json::from_value(fleet)?;
        api::<RunnerDeployment>(world).create(&PostParams::default(), &fleet).await?;
        let autoscaler: HorizontalRunnerAutoscaler = serde_json::from_value(autoscaler(&name))?;
        api::<HorizontalRunnerAutoscaler>(world).create(&PostParams::default(), &autoscaler).await?;
    }
    world.github.wait_for(SET_UP, |view| view.runners().online >= u64::from(repositories)).await?;
    page.time("all online", began.elapsed(), None);
    meter::quiet(world, PATIENCE).await.context("all runners are online")?;

    // Whoever has waited for news of its runner has it by now, and its scope is listed as one at rest a minute and a half later; what is measured is
    // how often one asks without any.
    meter::at_rest(world, idle.saturating_mul(2)).await?;
    let reading = meter::at_rest(world, idle).await?;
    let calls: u64 = reading.calls.values().map(|count| count.requests).sum();
    let limit = CALLS * reading.lasted.as_secs_f64() / 60.0;
    let seconds = idle.as_secs();
    page.count(format!("idle for {seconds} s: GitHub calls"), calls, Some(AtMost::Limit(limit)));
    page.count(format!("idle for {seconds} s: of these paid"), reading.paid(), None);
    for (route, count) in &reading.calls {
        page.count(format!("idle for {seconds} s: {route:?}"), count.requests, None);
    }
    page.writes(&format!("idle for {seconds} s"), &reading.writes, Some(AtMost::Limit(0.0)));
    page.time(format!("idle for {seconds} s: processor time"), reading.cpu, None);
    page.size("memory, idle", reading.resident, None);
    harm(world, page)
}

fn autoscaler(name: &str) -> Value {
    json!({
        "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "HorizontalRunnerAutoscaler",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "scaleTargetRef": {"name": name}, "minReplicas": 1, "maxReplicas": 5,
            "scaleUpTriggers": [{"githubEvent": {"workflowJob": {}}, "duration": "30m"}],
        },
    })
}
