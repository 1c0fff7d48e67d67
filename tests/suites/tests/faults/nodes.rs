//! What happens to runners that work: their nodes vanish, the kubelet or the kernel ends them, somebody deletes them by hand.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use pacer_api::RunnerDeployment;
use pacer_harness::nodes::{Cause, NodeLoss};
use pacer_harness::world::World;
use pacer_suites::{
    NAMESPACE, api, apply, brisk_world, delete, deployment, event, kills, no_busy_kill, nothing_left, queue, runners, running,
    settled, until,
};
use serde_json::json;

async fn names(world: &World) -> Result<Vec<String>> {
    Ok(api::<Pod>(world).list(&ListParams::default()).await?.items.iter().map(ResourceExt::name_any).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_nodes_are_made_good_and_nothing_sticks_to_them() -> Result<()> {
    let world = brisk_world(&["--force-delete-after=2s"], |_| {}).await?;
    let nodes = world.nodes.as_ref().context("no nodes")?;
    let mut fleet = deployment("web", 20);
    fleet["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(1);
    apply(&world, &fleet).await?;
    runners(&world, "20 online", |counts| counts.online == 20).await?;
    queue(&world, "web", 8, Duration::from_secs(15))?;
    running(&world, 8).await?;

    // The taint manager deletes the pods, and without a kubelet they would stay for ever.
    let stuck = nodes.pods_on("node-0").len();
    ensure!(stuck > 0, "no pods on node-0");
    nodes.lose_node("node-0", NodeLoss::PodsDeleted).await?;
    event(&world, "RunnerReplaced", |note| note.contains("deleted its pod")).await?;
    event(&world, "PodDeleted", |note| note.contains("no longer answers")).await?;
    settled(&world, 20).await?;
    ensure!(nodes.pods_on("node-0").is_empty());

    // The machine is taken away with its Node object.
    nodes.lose_node("node-1", NodeLoss::Removed).await?;
    settled(&world, 20).await?;

    // A machine that comes back after a reboot has lost its runners.
    ensure!(!nodes.pods_on("node-2").is_empty(), "no pods on node-2");
    nodes.lose_node("node-2", NodeLoss::Unreachable).await?;
    runners(&world, "its runners offline", |counts| counts.online < 20).await?;
    nodes.return_node("node-2").await?;
    settled(&world, 20).await?;

    // Jobs ended with their nodes and for no other reason.
    let lost = kills(&world, &Cause::NodeLost);
    ensure!(nodes.busy_kills().len() == lost, "{:?}", nodes.busy_kills());
    let done =
        world.github.wait_for(pacer_suites::PATIENCE, |view| view.jobs().in_progress == 0 && view.jobs().queued == 0).await;
    world.check(done).await?;
    delete::<RunnerDeployment>(&world, "web").await?;
    nothing_left(&world).await?;
    no_busy_kill(&world).await?;
    world.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_runners_are_replaced_and_events_say_why() -> Result<()> {
    let world = brisk_world(&["--force-delete-after=2s"], |_| {}).await?;
    let nodes = world.nodes.as_ref().context("no nodes")?;
    apply(&world, &deployment("web", 12)).await?;
    settled(&world, 12).await?;
    let old = names(&world).await?;
    let [evicted, killed, crashed, deleted, forced, ..] = old.as_slice() else { anyhow::bail!("{old:?}") };
    let made = || nodes.tally().seen();

    // What is not the runner's own fault is made good at once.
    nodes.evict(NAMESPACE, evicted).await?;
    event(&world, "RunnerReplaced", |note| note.contains(evicted.as_str()) && note.contains("evicted")).await?;
    settled(&world, 12).await?;
    api::<Pod>(&world).delete(deleted, &DeleteParams::default()).await?;
    event(&world, "RunnerReplaced", |note| note.contains(deleted.as_str()) && note.contains("somebody deleted its pod")).await?;
    settled(&world, 12).await?;
    // A forced deletion leaves a registration that nobody holds.
    api::<Pod>(&world).delete(forced, &DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() }).await?;
    event(&world, "RunnerReplaced", |note| note.contains(forced.as_str())).await?;
    settled(&world, 12).await?;
    ensure!(world.github.leaked().is_empty(), "{:?}", world.github.leaked());
    ensure!(made() == 15, "{} pods were made for three", made());

    // What may be is made good after a pause.
    nodes.out_of_memory(NAMESPACE, killed).await?;
    nodes.crash(NAMESPACE, crashed, 137).await?;
    until::<k8s_openapi::api::events::v1::Event>(&world, "both replaced", |events| {
        let told = |part: &str| events.iter().filter_map(|event| event.note.as_deref()).any(|note| note.contains(part));
        (told(killed) || told(crashed)) && (told("out of memory") || told("exit code 137"))
    })
    .await?;
    settled(&world, 12).await?;
    ensure!(made() == 17, "{} pods were made for five", made());

    // A drain: busy ones end with their job, as far as the grace period allows; here nobody is busy.
    nodes.drain("node-3").await?;
    until::<Pod>(&world, "an empty node", |pods| {
        pods.iter().all(|pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) != Some("node-3"))
    })
    .await?;
    settled(&world, 12).await?;
    delete::<RunnerDeployment>(&world, "web").await?;
    nothing_left(&world).await?;
    no_busy_kill(&world).await?;
    world.stop().await;
    Ok(())
}
