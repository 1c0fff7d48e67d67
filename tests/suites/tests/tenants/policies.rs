//! Policy sets of tenants: how many one names is no matter of another one.

use std::time::Instant;

use anyhow::{Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use pacer_api::RunnerDeployment;
use pacer_api::names::annotation;
use pacer_harness::objects;
use pacer_harness::world::World;
use pacer_suites::{PATIENCE, brisk_world};
use serde_json::{Value, json};

use super::tenancy::{deployment, put};

/// As many as the operator watches.
const MOST: usize = 200;

/// A fleet of nothing that names a policy set.
fn naming(namespace: &str, name: &str, set: &str) -> Value {
    let object = deployment(namespace, name, &json!({"repository": "acme/app"}), 0);
    pacer_suites::put(object, "/metadata", "annotations", json!({annotation::POLICIES: set}))
}

/// Waits until as many fleets of a namespace say this of their policy set.
async fn say(world: &World, namespace: &str, reason: &str, least: usize) -> Result<()> {
    let fleets: Api<RunnerDeployment> = Api::namespaced(world.client.clone(), namespace);
    let says = |one: &RunnerDeployment| {
        let conditions = one.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        conditions.iter().any(|condition| condition.type_ == "PolicyAccepted" && condition.reason == reason)
    };
    let outcome = objects::until(fleets, "", PATIENCE, |all| all.iter().filter(|one| says(one)).count() >= least).await;
    world.check(outcome).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn tenant_gets_its_policy_set_when_another_one_names_as_many_as_are_watched() -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    for name in ["greedy", "modest"] {
        world.plane.namespace(name).await?;
    }
    let fleets: Api<RunnerDeployment> = Api::namespaced(world.client.clone(), "greedy");
    stream::iter(0..MOST + 5)
        .map(|number| {
            let fleets = fleets.clone();
            async move {
                let fleet = naming("greedy", &format!("fleet-{number}"), &format!("set-{number}"));
                anyhow::Ok(fleets.create(&PostParams::default(), &serde_json::from_value(fleet)?).await?)
            }
        })
        .buffer_unordered(8)
        .try_collect::<Vec<_>>()
        .await?;
    // The default set of the cluster has one of the places.
    say(&world, "greedy", "PolicySetNotFound", MOST - 1).await?;
    say(&world, "greedy", "TooManySets", 1).await?;

    let began = Instant::now();
    let set = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ours", "namespace": "modest"},
        "data": {"policies.yaml": "scale-down: builtin\n"},
    });
    put(&world, &set).await?;
    put(&world, &naming("modest", "fleet", "ours")).await?;
    say(&world, "modest", "Accepted", 1).await?;
    println!("in force after {:?}", began.elapsed());
    let sets: Api<ConfigMap> = Api::namespaced(world.client.clone(), "modest");
    let set = sets.get("ours").await?;
    let status = set.annotations().get(annotation::POLICY_STATUS);
    ensure!(status.is_none_or(|status| status.contains("Active") || status.contains("Staging")), "{status:?}");
    world.stop().await;
    Ok(())
}
