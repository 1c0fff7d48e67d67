//! `registrationOnlyAtZero`: something with the fleet's labels is registered at any time.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt};
use pacer_api::{Runner, RunnerDeployment, RunnerReplicaSet};
use pacer_harness::github::{Registered, Registration, Scope};
use pacer_harness::world::World;
use pacer_suites::{
    PATIENCE, api, apply, brisk_world, change_template, deployment, end, queue, runners, running, scale, settled, succeeded,
    until, with_spec,
};
use serde_json::{Value, json};

fn app() -> Scope {
    Scope::repository("acme", "app")
}

/// Persistent, so that only the operator ends its runners' registrations.
fn kept(name: &str, replicas: u32) -> Value {
    let mut object = with_spec(deployment(name, replicas), "ephemeral", json!(false));
    if let Some(spec) = object.pointer_mut("/spec").and_then(Value::as_object_mut) {
        spec.insert("registrationOnlyAtZero".to_owned(), json!(true));
    }
    object
}

/// Waits until one runner with that label is registered, and never connected.
async fn only_registered(world: &World, label: &str) -> Result<Registered> {
    let alone = |all: &[Registered]| matches!(all, [one] if !one.online && !one.live && one.labels == [label] && one.name.contains("-registration-"));
    let outcome = world.github.wait_for(PATIENCE, |view| alone(&view.registrations(&app()))).await;
    world.check(outcome).await.with_context(|| format!("waiting for a registration of {label} alone"))?;
    until::<Runner>(
        world,
        "its Runner, known",
        |all| matches!(all, [one] if one.status.as_ref().is_some_and(|status| status.runner_id.is_some())),
    )
    .await?;
    until::<k8s_openapi::api::core::v1::Pod>(world, "no pod", |all| all.is_empty()).await?;
    world.github.registrations(&app()).pop().context("it is gone")
}

async fn to_and_from_zero(world: &World) -> Result<()> {
    scale(world, "web", 1).await?;
    let working = |all: &[Registered]| matches!(all, [one] if one.online && one.live);
    let outcome = world.github.wait_for(PATIENCE, |view| working(&view.registrations(&app()))).await;
    world.check(outcome).await.context("waiting for a runner that works, and it alone")?;
    succeeded(world, 1).await?;
    settled(world, 1).await?;
    scale(world, "web", 0).await?;
    only_registered(world, "web").await?;
    // Other labels need another registration.
    change_template(world, "web", &json!({"labels": ["next"]})).await?;
    only_registered(world, "next").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_fleet_stays_registered_and_takes_no_job() -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    apply(&world, &kept("web", 0)).await?;
    let first = only_registered(&world, "web").await?;
    ensure!(!first.ephemeral, "GitHub forgets ephemeral ones after a day");
    queue(&world, "web", 1, Duration::from_millis(200))?;
    // From now on a server that fails jobs without a registration never has a reason to.
    let gap = world.github.wait_for(PATIENCE * 2, |view| view.registrations(&app()).is_empty());
    tokio::select! {
        _ = gap => {
            world.check(Err::<(), _>("there was a moment without any registration")).await?;
        }
        outcome = to_and_from_zero(&world) => outcome?,
    }
    let jobs = world.github.jobs();
    ensure!(jobs.succeeded == 1 && jobs.lost == 0, "{jobs:?}");

    let opt_out = Patch::Merge(json!({"spec": {"registrationOnlyAtZero": false}}));
    api::<RunnerDeployment>(&world).patch("web", &PatchParams::default(), &opt_out).await?;
    runners(&world, "nothing", |counts| counts.registered == 0).await?;
    let opt_in = Patch::Merge(json!({"spec": {"registrationOnlyAtZero": true}}));
    api::<RunnerDeployment>(&world).patch("web", &PatchParams::default(), &opt_in).await?;
    only_registered(&world, "next").await?;
    end(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_github_forgot_is_registered_again() -> Result<()> {
    let mut world = brisk_world(&[], |_| {}).await?;
    apply(&world, &kept("web", 0)).await?;
    let first = only_registered(&world, "web").await?;
    // A restarted operator leaves it as it is.
    world.operator.as_mut().context("no operator")?.restart().await?;
    let github = world.github.clone();
    let id = github.registrations(&app()).pop().map(|one| one.id);
    ensure!(id == Some(first.id), "registered anew: {id:?}");
    world.github.forget(first.id);
    runners(&world, "one more registration", |counts| counts.ever_registered == 2 && counts.registered == 1).await?;
    let again = only_registered(&world, "web").await?;
    ensure!(again.id != first.id, "the same one");
    end(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_old_installations_left_is_removed_here_and_at_github() -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    apply(&world, &deployment("web", 1)).await?;
    settled(&world, 1).await?;
    let set = until::<RunnerReplicaSet>(&world, "a set", |all| all.len() == 1).await?.pop().context("no set")?;
    let name = format!("{}-registration-only", set.name_any());
    world.github.register_only(Registration {
        url_path: "acme/app".to_owned(),
        token: world.github.registration_token(&app()),
        name: name.clone(),
        labels: vec!["web".to_owned()],
        group: None,
        ephemeral: false,
        replace: true,
        disable_update: false,
    })?;
    queue(&world, "web", 1, Duration::from_secs(10))?;
    running(&world, 1).await?;
    let left: Runner = serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "annotations": {"actions-runner-controller/registration-only": "true"},
            "finalizers": ["runner.actions.summerwind.dev"],
            "ownerReferences": [set.controller_owner_ref(&())],
        },
        "spec": {"repository": "acme/app", "labels": ["web"]},
    }))?;
    let made = api::<Runner>(&world).create(&PostParams::default(), &left).await?;
    let phase = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    // It may be gone already.
    let _ = api::<Runner>(&world).patch_status(&made.name_any(), &PatchParams::default(), &phase).await;
    until::<Runner>(&world, "it gone", |all| all.len() == 1 && all.iter().all(|one| one.name_any() != name)).await?;
    runners(&world, "its registration gone", |counts| counts.registered == 1).await?;
    succeeded(&world, 1).await?;
    end(world).await
}
