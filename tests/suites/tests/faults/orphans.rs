//! Objects go while somebody who should act on that does not know: the cluster's garbage collector, or the operator.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams};
use pacer_api::{Runner, RunnerReplicaSet};
use pacer_suites::fleet::Kind;
use pacer_suites::{PATIENCE, api, brisk_world, end, for_both_kinds, kubectl, nothing_left, queue, running, settled, until};
use serde_json::json;

for_both_kinds!(
    what_lost_its_owner_drains_without_the_garbage_collector,
    a_fleet_that_is_deleted_behind_the_operators_back_gets_no_new_set,
);

async fn what_lost_its_owner_drains_without_the_garbage_collector(kind: Kind) -> Result<()> {
    let world = brisk_world(&[], |options| {
        options.plane.without_controllers.push("garbage-collector-controller".to_owned());
    })
    .await?;
    // Nobody but the garbage collector deletes claims with their set.
    let (fleet, other) = (kind.fleet("web", 8).retaining(), kind.fleet("other", 2).retaining());
    fleet.apply(&world).await?;
    other.apply(&world).await?;
    settled(&world, 10).await?;
    queue(&world, "web", 3, Duration::from_secs(20))?;
    running(&world, 3).await?;

    // As `kubectl delete --cascade=orphan` leaves it behind.
    let ours = api::<Runner>(&world).list(&ListParams::default()).await?.items;
    let kept = ours.iter().map(ResourceExt::name_any).find(|name| name.starts_with("web")).context("no runner of web")?;
    let orphan = Patch::Merge(json!({"metadata": {"ownerReferences": null}}));
    api::<Runner>(&world).patch(&kept, &PatchParams::default(), &orphan).await?;

    fleet.delete(&world).await?;
    until::<RunnerReplicaSet>(&world, "the other set only", |all| {
        all.iter().map(|set| set.name_any()).all(|name| name.starts_with("other"))
    })
    .await?;
    let left = until::<Runner>(&world, "the other runners and the orphan", |all| all.len() == 3).await?;
    ensure!(left.iter().any(|runner| runner.name_any() == kept), "{kept} was deleted");
    settled(&world, 3).await?;
    let jobs = world.github.jobs();
    ensure!(jobs.succeeded == 3, "{jobs:?}");

    end(world).await
}

async fn a_fleet_that_is_deleted_behind_the_operators_back_gets_no_new_set(kind: Kind) -> Result<()> {
    let mut world = brisk_world(&[], |_| {}).await?;
    let fleet = kind.fleet("web", 3);
    fleet.apply(&world).await?;
    settled(&world, 3).await?;
    // The operator lists fleets when it starts and sees nothing of them any more, as while a watch is interrupted.
    let no_watch = json!([
        {"op": "test", "path": "/rules/0/resources", "value": ["runnerdeployments", "runnersets"]},
        {"op": "replace", "path": "/rules/0/verbs", "value": ["list"]},
    ]);
    kubectl(&world, &["patch", "clusterrole", "pacer", "--type=json", "--patch", &no_watch.to_string()]).await?;
    let operator = world.operator.as_mut().context("no operator")?;
    operator.kill9().await;
    let resource = format!("{}s.actions.summerwind.dev", kind.as_str().to_lowercase());
    let deaf = tokio::time::timeout(PATIENCE, async {
        // Nobody announces when the authorizer has seen the change.
        while kubectl(&world, &["auth", "can-i", "watch", &resource, ACCOUNT]).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    deaf.await.context("the role still allows to watch")?;
    let operator = world.operator.as_mut().context("no operator")?;
    operator.restart().await?;
    operator.until_acting(PATIENCE).await?;
    settled(&world, 3).await?;

    fleet.delete(&world).await?;
    nothing_left(&world).await?;
    let calls = world.operator_calls(None)?;
    ensure!(calls.count("create", "runnerreplicasets") == 1, "{calls}");
    ensure!(calls.count("create", "runners") <= 6, "{calls}");
    end(world).await
}

/// Makes kubectl speak for the operator.
const ACCOUNT: &str = "--as=system:serviceaccount:actions-runner-system:pacer";
