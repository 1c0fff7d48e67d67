//! Runners that are registered ahead of their pods: no token in any pod, and no registration left behind.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use pacer_api::Runner;
use pacer_harness::github::{Effect, Fault, GroupVisibility, RouteKind, Routes, Scope};
use pacer_harness::world::World;
use pacer_suites::{
    PATIENCE, TOKENS, api, apply, brisk_world, deployment, end_as_it_is, online_in, put, queue, runners, scale, settled,
    succeeded, until, with_spec,
};
use serde_json::{Value, json};

/// Its runners are registered just in time.
fn ahead(name: &str, replicas: u32) -> Value {
    let annotations = json!({"actions.summerwind.dev/just-in-time": "true"});
    put(deployment(name, replicas), "/spec/template", "metadata", json!({"annotations": annotations}))
}

async fn configurations(world: &World) -> Result<Vec<Secret>> {
    let all = api::<Secret>(world).list(&ListParams::default()).await?;
    Ok(all.items.into_iter().filter(|secret| secret.name_any().starts_with("runner-jit-")).collect())
}

async fn no_configuration_is_left(world: &World) -> Result<()> {
    until::<Secret>(world, "no configuration is left", |all| {
        all.iter().all(|secret| !secret.name_any().starts_with("runner-jit-"))
    })
    .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_of_a_runner_that_is_registered_just_in_time_has_no_token() -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    apply(&world, &ahead("web", 2)).await?;
    settled(&world, 2).await?;
    ensure!(world.github.count(RouteKind::JitConfig).requests == 2, "one registration for each");
    ensure!(world.github.count(RouteKind::RegistrationToken).requests == 0, "no token");
    ensure!(api::<Secret>(&world).list(&ListParams::default().labels(TOKENS)).await?.items.is_empty());
    let pods = api::<Pod>(&world).list(&ListParams::default()).await?.items;
    for secret in configurations(&world).await? {
        let [owner] = secret.owner_references() else { anyhow::bail!("{secret:?}") };
        ensure!(owner.kind == "Runner" && pods.iter().any(|pod| pod.name_any() == owner.name), "{owner:?}");
        let config = secret.data.unwrap_or_default().remove("config").unwrap_or_default();
        let config = String::from_utf8(config.0)?;
        for pod in &pods {
            let text = serde_json::to_string(pod)?;
            ensure!(
                !text.contains(&config) && !text.contains("RUNNER_TOKEN") && text.contains("ACTIONS_RUNNER_INPUT_JITCONFIG"),
                "{text}"
            );
        }
    }
    // Each takes its job, and another one comes in its place.
    queue(&world, "web", 3, Duration::from_secs(1))?;
    succeeded(&world, 3).await?;
    settled(&world, 2).await?;
    scale(&world, "web", 0).await?;
    settled(&world, 0).await?;
    no_configuration_is_left(&world).await?;
    end_as_it_is(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn registration_of_a_pod_that_never_starts_is_removed_with_its_runner() -> Result<()> {
    let mut world = brisk_world(&[], |_| {}).await?;
    let nowhere = put(ahead("web", 2), "/spec/template/spec", "nodeSelector", json!({"no": "where"}));
    apply(&world, &nowhere).await?;
    runners(&world, "two runners without agents", |counts| counts.registered == 2 && counts.online == 0).await?;
    until::<Pod>(&world, "two pods that wait for a node", |all| all.len() == 2).await?;
    // Another process knows of them, too.
    if let Some(operator) = &mut world.operator {
        operator.restart().await?;
    }
    scale(&world, "web", 0).await?;
    settled(&world, 0).await?;
    ensure!(world.github.count(RouteKind::JitConfig).requests == 2);
    end_as_it_is(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn registration_whose_answer_was_lost_is_made_again() -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    world.github.inject(Fault::new(Routes::of(RouteKind::JitConfig), Effect::Status(502)).performed());
    apply(&world, &ahead("web", 1)).await?;
    settled(&world, 1).await?;
    ensure!(world.github.count(RouteKind::JitConfig).requests >= 3, "lost, name taken, made");
    let runners = api::<Runner>(&world).list(&ListParams::default()).await?.items;
    ensure!(runners.len() == 1, "the same Runner went on");
    scale(&world, "web", 0).await?;
    settled(&world, 0).await?;
    end_as_it_is(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn registration_of_an_operator_that_died_before_it_could_note_it_is_removed_by_the_next_one() -> Result<()> {
    let mut world = brisk_world(&[], |_| {}).await?;
    world.github.inject(Fault::new(Routes::of(RouteKind::JitConfig), Effect::Hang).performed());
    apply(&world, &ahead("web", 1)).await?;
    runners(&world, "a registration whose answer is lost", |counts| counts.registered == 1).await?;
    let operator = world.operator.as_mut().context("no operator")?;
    operator.kill9().await;
    // Nobody wants the Runner any more, so that the name will not be asked for again.
    let secrets = configurations(&world).await?;
    ensure!(secrets.len() == 1 && secrets.iter().all(|secret| secret.data.is_none()), "{secrets:?}");
    scale(&world, "web", 0).await?;
    for runner in api::<Runner>(&world).list(&ListParams::default()).await?.items {
        api::<Runner>(&world).delete(&runner.name_any(), &DeleteParams::default()).await?;
    }
    let operator = world.operator.as_mut().context("no operator")?;
    operator.restart().await?;
    settled(&world, 0).await?;
    no_configuration_is_left(&world).await?;
    end_as_it_is(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn runner_of_an_enterprise_joins_the_group_that_it_names() -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    let corp = Scope::enterprise("corp");
    world.github.add(&corp);
    let group = world.github.add_group(&corp, "Builders", GroupVisibility::All);
    let mut fleet = with_spec(ahead("web", 1), "enterprise", json!("corp"));
    fleet = with_spec(fleet, "group", json!("builders"));
    if let Some(spec) = fleet.pointer_mut("/spec/template/spec").and_then(Value::as_object_mut) {
        spec.remove("repository");
    }
    apply(&world, &fleet).await?;
    online_in(&world, &corp, 1).await?;
    let outcome = world.github.wait_for(PATIENCE, |view| view.registrations(&corp).iter().all(|one| one.group == group)).await;
    world.check(outcome).await?;
    scale(&world, "web", 0).await?;
    online_in(&world, &corp, 0).await?;
    end_as_it_is(world).await
}
