//! Objects go while somebody who should act on that does not know: the cluster's garbage collector, or the operator.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams};
use pacer_api::{Runner, RunnerDeployment, RunnerReplicaSet};
use pacer_harness::world::World;
use pacer_suites::{
    PATIENCE, api, apply, brisk_world, delete, deployment, no_busy_kill, nothing_left, queue, running, settled, until,
};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn what_lost_its_owner_drains_without_the_garbage_collector() -> Result<()> {
    let world = brisk_world(&[], |options| {
        options.plane.without_controllers.push("garbage-collector-controller".to_owned());
    })
    .await?;
    apply(&world, &deployment("web", 8)).await?;
    apply(&world, &deployment("other", 2)).await?;
    settled(&world, 10).await?;
    queue(&world, "web", 3, Duration::from_secs(20))?;
    running(&world, 3).await?;

    // As `kubectl delete --cascade=orphan` leaves it behind.
    let ours = api::<Runner>(&world).list(&ListParams::default()).await?.items;
    let kept = ours.iter().map(ResourceExt::name_any).find(|name| name.starts_with("web")).context("no runner of web")?;
    let orphan = Patch::Merge(json!({"metadata": {"ownerReferences": null}}));
    api::<Runner>(&world).patch(&kept, &PatchParams::default(), &orphan).await?;

    delete::<RunnerDeployment>(&world, "web").await?;
    until::<RunnerReplicaSet>(&world, "the other set only", |all| {
        all.iter().map(|set| set.name_any()).all(|name| name.starts_with("other"))
    })
    .await?;
    let left = until::<Runner>(&world, "the other runners and the orphan", |all| all.len() == 3).await?;
    ensure!(left.iter().any(|runner| runner.name_any() == kept), "{kept} was deleted");
    settled(&world, 3).await?;
    let jobs = world.github.jobs();
    ensure!(jobs.succeeded == 3, "{jobs:?}");

    delete::<RunnerDeployment>(&world, "other").await?;
    delete::<Runner>(&world, &kept).await?;
    nothing_left(&world).await?;
    no_busy_kill(&world).await?;
    world.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_that_is_deleted_behind_the_operators_back_gets_no_new_set() -> Result<()> {
    let mut world = brisk_world(&[], |_| {}).await?;
    apply(&world, &deployment("web", 3)).await?;
    settled(&world, 3).await?;
    // The operator lists RunnerDeployments when it starts and hears nothing about them any more, as while a watch is interrupted.
    let no_watch = json!([
        {"op": "test", "path": "/rules/0/resources", "value": ["runnerdeployments", "runnersets"]},
        {"op": "replace", "path": "/rules/0/verbs", "value": ["list"]},
    ]);
    kubectl(&world, &["patch", "clusterrole", "pacer", "--type=json", "--patch", &no_watch.to_string()]).await?;
    let operator = world.operator.as_mut().context("no operator")?;
    operator.kill9().await;
    let deaf = tokio::time::timeout(PATIENCE, async {
        // Nobody announces when the authorizer has seen the change.
        while kubectl(&world, &["auth", "can-i", "watch", RESOURCE, ACCOUNT]).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    deaf.await.context("the role still allows to watch")?;
    let operator = world.operator.as_mut().context("no operator")?;
    operator.restart().await?;
    operator.until_acting(PATIENCE).await?;
    settled(&world, 3).await?;

    delete::<RunnerDeployment>(&world, "web").await?;
    nothing_left(&world).await?;
    let calls = world.operator_calls(None)?;
    ensure!(calls.count("create", "runnerreplicasets") == 1, "{calls}");
    ensure!(calls.count("create", "runners") <= 6, "{calls}");
    no_busy_kill(&world).await?;
    world.stop().await;
    Ok(())
}

/// What a role calls RunnerDeployments.
const RESOURCE: &str = "runnerdeployments.actions.summerwind.dev";

/// Makes kubectl speak for the operator.
const ACCOUNT: &str = "--as=system:serviceaccount:actions-runner-system:pacer";

async fn kubectl(world: &World, arguments: &[&str]) -> Result<()> {
    let output = world.plane.kubectl(arguments).await?;
    ensure!(output.status.success(), "kubectl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
