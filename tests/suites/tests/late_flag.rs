//! A GitHub whose `busy` flag is a minute late and whose DELETE goes by that flag (terraform-aws-github-runner PR 5228), with everything else as
//! it was measured and the operator as it is shipped: a scale-down and a rollout of twenty runners each, half of them at work, kill no job.

#![expect(clippy::print_stdout, reason = "the suite prints the figures that it measures")]

mod alone;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use pacer_api::{HorizontalRunnerAutoscaler, Runner};
use pacer_harness::github::{Behaviour, RouteKind, Scope, Settings, View};
use pacer_harness::world::World;
use pacer_suites::fleet::Kind;
use pacer_suites::webhook::{hook, receive};
use pacer_suites::{PATIENCE, api, apply, end, patient_autoscaler, put, queue, runners, running, until, world};
use serde_json::json;

/// How late the flag is; not shortened.
const FLAG_LATE: Duration = Duration::from_secs(60);

/// Jobs end before any of them shows in a listing.
const JOB: Duration = Duration::from_secs(60);

/// Runners of each fleet, and how many of them work.
const RUNNERS: usize = 20;
const AT_WORK: usize = 10;

/// What tells the operator of jobs beside the listings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Events {
    None,
    Webhooks,
}

/// What an agent does whose registration is gone under its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Agents {
    Finish,
    Cancel,
}

#[tokio::test(flavor = "multi_thread")]
async fn no_job_is_killed_without_webhooks_when_agents_finish() -> Result<()> {
    kills_nobody(Events::None, Agents::Finish).await
}

#[tokio::test(flavor = "multi_thread")]
async fn no_job_is_killed_without_webhooks_when_agents_cancel() -> Result<()> {
    kills_nobody(Events::None, Agents::Cancel).await
}

#[tokio::test(flavor = "multi_thread")]
async fn no_job_is_killed_with_webhooks_when_agents_finish() -> Result<()> {
    kills_nobody(Events::Webhooks, Agents::Finish).await
}

#[tokio::test(flavor = "multi_thread")]
async fn no_job_is_killed_with_webhooks_when_agents_cancel() -> Result<()> {
    kills_nobody(Events::Webhooks, Agents::Cancel).await
}

/// A world with the shipped settings.
async fn late_world(events: Events, agents: Agents) -> Result<World> {
    world(|options| {
        let behaviour = Behaviour {
            busy_late: FLAG_LATE..=FLAG_LATE,
            cancels_when_removed: if agents == Agents::Cancel { 1.0 } else { 0.0 },
            ..Behaviour::real(5228)
        };
        options.github = Settings { behaviour, rate_limit: options.github.rate_limit, ..Settings::real(5228) };
        if events == Events::Webhooks {
            receive(options);
        }
    })
    .await
}

/// An autoscaler that keeps a fleet between two numbers and learns of its jobs by webhook.
async fn autoscaler(world: &World, fleet: &str) -> Result<()> {
    let runners = u32::try_from(RUNNERS)?;
    let object = patient_autoscaler(fleet, fleet, runners, runners);
    apply(world, &put(object, "/spec", "scaleDownDelaySecondsAfterScaleOut", json!(1))).await
}

/// Registrations of a fleet, which are labelled with its name.
fn registered(view: &View<'_>, fleet: &str) -> usize {
    let all = view.registrations(&Scope::repository("acme", "app"));
    all.iter().filter(|runner| runner.labels.iter().any(|label| label == fleet)).count()
}

async fn kills_nobody(events: Events, agents: Agents) -> Result<()> {
    let world = late_world(events, agents).await?;
    let fleets = ["down", "roll"].map(|name| Kind::RunnerDeployment.fleet(name, u32::try_from(RUNNERS).unwrap_or(0)));
    let [down, roll] = &fleets;
    if events == Events::Webhooks {
        hook(&world, Scope::repository("acme", "app"))?;
    }
    for fleet in &fleets {
        fleet.apply(&world).await?;
        if events == Events::Webhooks {
            autoscaler(&world, fleet.name()).await?;
        }
    }
    let all = 2 * RUNNERS as u64;
    runners(&world, "all online", |counts| counts.online == all).await?;
    until::<Runner>(&world, "registered Runners", |found| {
        let listed = |runner: &&&Runner| runner.status.as_ref().is_some_and(|status| status.runner_id.is_some());
        found.iter().filter(listed).count() == 2 * RUNNERS
    })
    .await?;
    for fleet in &fleets {
        queue(&world, fleet.name(), AT_WORK, JOB)?;
    }
    running(&world, 2 * AT_WORK).await?;

    // At the worst moment: the jobs have just begun, and no listing will show them as long as they last.
    world.github.reset_calls();
    let began = Instant::now();
    match events {
        Events::None => down.scale(&world, u32::try_from(RUNNERS - AT_WORK)?).await?,
        Events::Webhooks => {
            let fewer = Patch::Merge(json!({"spec": {"minReplicas": 0}}));
            api::<HorizontalRunnerAutoscaler>(&world).patch("down", &PatchParams::default(), &fewer).await?;
        }
    }
    roll.renew(&world, "2").await?;
    let idle_gone = world.github.wait_for(PATIENCE, |view| registered(view, "down") == AT_WORK).await;
    world.check(idle_gone).await?;
    let scaled = began.elapsed();
    until::<Runner>(&world, "only new runners", |found| {
        let of_roll = || found.iter().filter(|runner| runner.name_any().starts_with("roll-"));
        of_roll().count() == RUNNERS && of_roll().all(|runner| runner.annotations().contains_key("revision"))
    })
    .await?;
    let rolled = began.elapsed();
    let over = world.github.wait_for(PATIENCE, |view| view.jobs().completed == 2 * AT_WORK as u64).await;
    world.check(over).await?;
    let killed = world.github.killed().len() + world.nodes.as_ref().map_or(0, |nodes| nodes.deleted_while_busy().len());
    let calls = |kind| world.github.count(kind).requests;
    println!(
        "{events:?}, agents {agents:?}: {killed} of {} jobs killed; scale-down {:.1} s, rollout {:.1} s; {} listings, {} removals",
        2 * AT_WORK,
        scaled.as_secs_f64(),
        rolled.as_secs_f64(),
        calls(RouteKind::ListRunners),
        calls(RouteKind::DeleteRunner),
    );
    ensure!(killed == 0, "{:?}", world.github.killed());
    ensure!(world.github.jobs().succeeded == 2 * AT_WORK as u64, "{:?}", world.github.jobs());
    end(world).await
}
