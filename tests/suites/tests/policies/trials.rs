//! Contents that end whoever tries them: no later process tries them again, until somebody asks for it.

use std::io::Write;

use anyhow::{Context, Result, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use pacer_harness::world::World;
use pacer_suites::{PATIENCE, brisk_world, figure};
use serde_json::{Value, json};

use super::{OWN, event_in, killed_and_started_again, metric, phase, put, put_files, status};
use crate::guest::Guest;

/// The default set of the operator.
const SET: &str = "pacer-policies";

const ENFORCED: &str = "scale-down: {module: m}\n";

const TRY_AGAIN: &str = "actions.summerwind.dev/policy-try-again";

/// Contents that this process refused. Each trial of these contents ends so, unless it is given up.
const REFUSALS: &str = "pacer_policy_set_refusals_total";

/// As small as it gets into a ConfigMap.
fn endless() -> Result<Vec<u8>> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(&Guest::endless().component())?;
    Ok(packed.finish()?)
}

/// Whether a content is being tried.
fn is_tried(status: &Value) -> bool {
    status["trial"]["content"].is_string() && status["trial"]["content"] != status["content"]
}

async fn set(world: &World) -> Result<ConfigMap> {
    Ok(Api::<ConfigMap>::namespaced(world.client.clone(), OWN).get(SET).await?)
}

async fn try_again(world: &World, value: &str) -> Result<()> {
    let patch = Patch::Merge(json!({"metadata": {"annotations": {TRY_AGAIN: value}}}));
    Api::<ConfigMap>::namespaced(world.client.clone(), OWN).patch(SET, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Waits until the operator that was just started has made up its mind about the set.
async fn found(world: &World, phase: &str) -> Result<()> {
    let name = format!("pacer_policy_set_phase{{namespace=\"{OWN}\",set=\"{SET}\",phase=\"{phase}\"}}");
    metric(world, &name, |value| value == 1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn newer_content_does_not_wait_for_one_that_is_being_tried() -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    put_files(&world, OWN, SET, ENFORCED, vec![("m", endless()?)]).await?;
    status(&world, OWN, SET, "the trial", is_tried).await?;
    put(&world, OWN, SET, ENFORCED, &[("m", &Guest::choosing(&[(0, "the newer one")]))]).await?;
    let newer = status(&world, OWN, SET, "the newer one", phase("Active")).await?;
    let metrics = world.operator.as_ref().context("no operator")?.metrics().await?;
    // Figures without labels have an empty list of them.
    let none = format!("{REFUSALS}{{}} 0");
    ensure!(metrics.lines().any(|line| line == none), "it waited for the end of the trial: {newer}\n{metrics}");
    ensure!(newer["lastError"].is_null(), "{newer}");
    world.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn content_that_its_operator_died_of_is_not_tried_again_until_somebody_asks() -> Result<()> {
    let mut world = brisk_world(&[], |_| {}).await?;
    put(&world, OWN, SET, ENFORCED, &[("m", &Guest::choosing(&[(0, "the good one")]))]).await?;
    let good = status(&world, OWN, SET, "the good set", phase("Active")).await?;
    ensure!(good["content"].is_string() && good["trial"]["content"] == good["content"], "{good}");
    // A restart that finds what it knows writes nothing.
    killed_and_started_again(&mut world).await?;
    found(&world, "Active").await?;
    let version = set(&world).await?.resource_version();
    killed_and_started_again(&mut world).await?;
    found(&world, "Active").await?;
    ensure!(set(&world).await?.resource_version() == version, "a restart wrote: {:?}", set(&world).await?.metadata);

    // Killed amid the trial of a new content: the next process leaves it alone, and says so.
    put_files(&world, OWN, SET, ENFORCED, vec![("m", endless()?)]).await?;
    status(&world, OWN, SET, "the trial", is_tried).await?;
    killed_and_started_again(&mut world).await?;
    let barred = status(&world, OWN, SET, "quarantine", |status| status["lastError"]["reason"] == "PolicyQuarantined").await?;
    ensure!(figure(&world, REFUSALS).await == 1, "it was refused for something else as well: {barred}");
    ensure!(barred["phase"] == "LastGood" && barred["digest"] == good["digest"] && !is_tried(&barred), "{barred}");
    ensure!(barred["lastError"]["message"].as_str().is_some_and(|message| message.contains(TRY_AGAIN)), "{barred}");
    event_in(&world, OWN, "PolicyQuarantined", TRY_AGAIN).await?;
    let version = set(&world).await?.resource_version();
    killed_and_started_again(&mut world).await?;
    found(&world, "LastGood").await?;
    ensure!(set(&world).await?.resource_version() == version, "a restart wrote: {:?}", set(&world).await?.metadata);

    // Asked for, it is tried; a process that is told to stop was not harmed by that.
    try_again(&world, "1").await?;
    status(&world, OWN, SET, "another trial", is_tried).await?;
    let operator = world.operator.as_mut().context("no operator")?;
    operator.terminate().await;
    operator.restart().await?;
    operator.until_acting(PATIENCE).await?;
    status(&world, OWN, SET, "the trial goes on", is_tried).await?;
    // It takes the whole budget, which no later process spends again.
    let refused = status(&world, OWN, SET, "the refusal", |status| status["content"] == status["trial"]["content"]).await?;
    metric(&world, REFUSALS, |count| count == 1).await?;
    let error = &refused["lastError"];
    ensure!(error["reason"] == "PolicyCompileFailed" || error["reason"] == "PolicyCompileTimeout", "{refused}");
    ensure!(error["message"].as_str().is_some_and(|message| message.contains("it is not tried again")), "{refused}");
    // A trial is noted in the ConfigMap before it begins.
    let version = set(&world).await?.resource_version();
    killed_and_started_again(&mut world).await?;
    found(&world, "LastGood").await?;
    ensure!(set(&world).await?.resource_version() == version, "a restart wrote: {:?}", set(&world).await?.metadata);
    let after = status(&world, OWN, SET, "the same refusal", |status| status["content"].is_string()).await?;
    ensure!(after["trial"] == refused["trial"] && after["lastError"] == refused["lastError"], "{after} is not {refused}");

    // Another content has nothing to do with it.
    put(&world, OWN, SET, ENFORCED, &[("m", &Guest::choosing(&[(0, "another one")]))]).await?;
    status(&world, OWN, SET, "the other set", phase("Active")).await?;
    world.stop().await;
    Ok(())
}
