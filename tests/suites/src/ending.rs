//! How every test ends: fleets go, nothing of them is left, and nobody was harmed.

use std::collections::BTreeSet;
use std::fmt::Debug;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret};
use kube::api::{DeleteParams, ListParams};
use kube::core::NamespaceResourceScope;
use kube::{Resource, ResourceExt};
use pacer_api::runner_set::ClaimRetention;
use pacer_api::{HorizontalRunnerAutoscaler, Runner, RunnerDeployment, RunnerReplicaSet, RunnerSet};
use pacer_harness::objects;
use pacer_harness::world::World;
use serde::de::DeserializeOwned;

use crate::{PATIENCE, TOKENS, api, runners, until};

/// Deletes all fleets, waits until nothing of them is left, asserts what holds in every test, and stops the world.
///
/// # Errors
///
/// With the state of the world, when something is left or somebody was harmed.
pub async fn end(world: World) -> Result<()> {
    delete_all(&world).await?;
    end_as_it_is(world).await
}

/// The same for a world whose fleets stay.
///
/// # Errors
///
/// With the state of the world, when somebody was harmed.
pub async fn end_as_it_is(world: World) -> Result<()> {
    no_busy_kill(&world).await?;
    let shared = world.nodes.as_ref().map(|nodes| nodes.shared_mounts()).unwrap_or_default();
    let alone = if shared.is_empty() { Ok(()) } else { Err(format!("claims had two pods at once: {shared:?}")) };
    world.check(alone).await?;
    world.stop().await;
    Ok(())
}

/// Deletes all autoscalers and fleets, and waits until nothing of them is left: of claims, those that their sets' retention policy keeps.
///
/// # Errors
///
/// With the state of the world, when something else is left, or one of those is gone.
pub async fn delete_all(world: &World) -> Result<()> {
    let sets = api::<RunnerSet>(world).list(&ListParams::default()).await?.items;
    let spared: BTreeSet<String> =
        sets.iter().filter(|set| set.spec.claims_when_deleted() == ClaimRetention::Retain).map(ResourceExt::name_any).collect();
    let of_set = |claim: &PersistentVolumeClaim| claim.labels().get("runnerset-name").cloned();
    let claims = api::<PersistentVolumeClaim>(world).list(&ListParams::default()).await?.items;
    let present: BTreeSet<String> = sets.iter().map(ResourceExt::name_any).collect();
    let gone_before = |set: &String| !present.contains(set);
    let retained: BTreeSet<String> = claims
        .iter()
        .filter(|claim| claim.owner_references().is_empty())
        .filter(|claim| of_set(claim).is_some_and(|set| spared.contains(&set) || gone_before(&set)))
        .map(ResourceExt::name_any)
        .collect();

    every::<HorizontalRunnerAutoscaler>(world, |_| true).await?;
    every::<RunnerDeployment>(world, |_| true).await?;
    every::<RunnerSet>(world, |_| true).await?;
    every::<RunnerReplicaSet>(world, |set| set.owner_references().is_empty()).await?;
    every::<Runner>(world, |runner| runner.owner_references().is_empty()).await?;
    nothing_left(world).await?;

    let named = |all: &[&PersistentVolumeClaim]| all.iter().map(|claim| claim.name_any()).collect::<BTreeSet<_>>();
    // Whatever else is there has lost its owner and is about to follow.
    let left = until::<PersistentVolumeClaim>(world, "the retained claims only", |all| named(all).is_subset(&retained)).await?;
    let left: BTreeSet<String> = left.iter().map(ResourceExt::name_any).collect();
    let kept = if left == retained { Ok(()) } else { Err(format!("of the claims {retained:?} only {left:?} are left")) };
    world.check(kept).await?;
    Ok(())
}

async fn every<K>(world: &World, wanted: impl Fn(&K) -> bool) -> Result<()>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let objects = api::<K>(world);
    for object in objects.list(&ListParams::default()).await?.iter().filter(|object| wanted(object)) {
        match objects.delete(&object.name_any(), &DeleteParams::background()).await {
            // Its own time had come.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            outcome => drop(outcome?),
        }
    }
    Ok(())
}

/// Waits until nothing of any fleet is left in the cluster or at GitHub, tokens included; claims may be.
///
/// # Errors
///
/// With the state of the world, when something is left.
pub async fn nothing_left(world: &World) -> Result<()> {
    until::<RunnerReplicaSet>(world, "no sets", |all| all.is_empty()).await?;
    until::<StatefulSet>(world, "no StatefulSets", |all| all.is_empty()).await?;
    until::<Runner>(world, "no Runners", |all| all.is_empty()).await?;
    until::<Pod>(world, "no pods", |all| all.is_empty()).await?;
    runners(world, "no registrations", |counts| counts.registered == 0).await?;
    let tokens = objects::until(api::<Secret>(world), TOKENS, PATIENCE, |all| all.is_empty()).await;
    world.check(tokens).await.context("waiting for no registration tokens")?;
    Ok(())
}

/// No job was cut short by a deletion of its pod or the removal of its runner, and all that was said to GitHub and by it was as GitHub's description has it.
///
/// # Errors
///
/// With the state of the world, when it is otherwise.
pub async fn no_busy_kill(world: &World) -> Result<()> {
    let kills = world.nodes.as_ref().map(|nodes| nodes.deleted_while_busy()).unwrap_or_default();
    let outcome = if kills.is_empty() { Ok(()) } else { Err(format!("{} busy kills: {kills:?}", kills.len())) };
    world.check(outcome).await?;
    let removed = world.github.killed();
    let outcome =
        if removed.is_empty() { Ok(()) } else { Err(format!("{} jobs killed by a removal: {removed:?}", removed.len())) };
    world.check(outcome).await?;
    let deviations = world.github.deviations();
    ensure!(deviations.is_empty(), "deviations from GitHub's description: {deviations:#?}");
    Ok(())
}
