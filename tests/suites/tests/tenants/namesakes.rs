//! Two tenants whose Runners have one name: at GitHub that is one registration.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Resource, ResourceExt};
use pacer_api::{Runner, RunnerStatus};
use pacer_harness::github::{RouteKind, Scope};
use pacer_harness::objects;
use pacer_harness::world::World;
use pacer_suites::{PATIENCE, brisk_world, end_as_it_is, online_in};
use serde_json::json;

use super::tenancy::put;

async fn make(world: &World, namespace: &str) -> Result<()> {
    let runner = json!({
        "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "Runner", "metadata": {"name": "twin", "namespace": namespace},
        "spec": {"repository": "acme/app"},
    });
    put(world, &runner).await
}

async fn twin(world: &World, namespace: &str, what: &str, reached: impl Fn(&RunnerStatus) -> bool) -> Result<Runner> {
    let api: Api<Runner> = Api::namespaced(world.client.clone(), namespace);
    let is = |one: &Runner| reached(&one.status.clone().unwrap_or_default());
    let outcome = objects::until(api, "", PATIENCE, |all| all.iter().any(|one| is(one))).await;
    world.check(outcome).await.with_context(|| format!("waiting for {namespace}/twin: {what}"))?;
    let api: Api<Runner> = Api::namespaced(world.client.clone(), namespace);
    Ok(api.get("twin").await?)
}

fn refused(status: &RunnerStatus) -> bool {
    let says =
        |by: &str| status.conditions.iter().any(|one| one.type_ == "Accepted" && one.status == "False" && one.reason == by);
    says("NameTaken") && status.conditions.iter().any(|one| one.message.contains("Runner a/twin has the same name"))
}

#[tokio::test(flavor = "multi_thread")]
async fn runner_with_the_name_of_another_tenants_runner_neither_gets_nor_removes_its_registration() -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    let acme = Scope::repository("acme", "app");
    for name in ["a", "b"] {
        world.plane.namespace(name).await?;
    }
    make(&world, "a").await?;
    online_in(&world, &acme, 1).await?;
    let id = twin(&world, "a", "its id is known", |status| status.runner_id.is_some())
        .await?
        .status
        .and_then(|status| status.runner_id);
    make(&world, "b").await?;
    let rival = twin(&world, "b", "it is refused", refused).await?;
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), "b");
    ensure!(pods.list(&ListParams::default()).await?.items.is_empty(), "it has a pod");

    // A pod of its own, as an earlier operator would have made it, changes nothing.
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "twin", "namespace": "b", "labels": {"actions-runner": ""},
            "ownerReferences": [rival.controller_owner_ref(&()).context("no UID")?],
        },
        "spec": {"nodeSelector": {"no": "where"}, "containers": [{"name": "runner", "image": "runner"}]},
    });
    put(&world, &pod).await?;
    let rival = twin(&world, "b", "it has its pod", |status| status.pod_uid.is_some() && refused(status)).await?;
    let counted = rival.status.context("no status")?;
    ensure!(counted.runner_id.is_none(), "it counts another one's registration: {counted:?}");

    let api: Api<Runner> = Api::namespaced(world.client.clone(), "b");
    api.delete("twin", &DeleteParams::background()).await?;
    let gone = objects::until(api, "", PATIENCE, |all| all.is_empty()).await;
    world.check(gone).await?;
    ensure!(world.github.count(RouteKind::DeleteRunner).requests == 0, "a registration was removed");
    online_in(&world, &acme, 1).await?;
    let same = twin(&world, "a", "it goes on", |status| status.runner_id == id).await?;
    ensure!(same.meta().deletion_timestamp.is_none() && same.name_any() == "twin");
    // Once the name is free, whoever waits gets it.
    make(&world, "b").await?;
    twin(&world, "b", "it is refused again", refused).await?;
    let first: Api<Runner> = Api::namespaced(world.client.clone(), "a");
    first.delete("twin", &DeleteParams::background()).await?;
    twin(&world, "b", "it registers", |status| status.runner_id.is_some_and(|other| Some(other) != id)).await?;
    online_in(&world, &acme, 1).await?;
    end_as_it_is(world).await
}
