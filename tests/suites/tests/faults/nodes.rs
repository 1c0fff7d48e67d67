//! What happens to runners that work: their nodes vanish, the kubelet or the kernel ends them, somebody deletes them by hand.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use pacer_harness::nodes::{Cause, NodeLoss};
use pacer_harness::world::{Options, World};
use pacer_suites::fleet::Kind;
use pacer_suites::{
    NAMESPACE, api, brisk_world, end, event, for_both_kinds, kills, queue, runners, running, settled, succeeded, until,
};
use serde_json::json;

for_both_kinds!(lost_nodes_are_made_good_and_nothing_sticks_to_them, ended_runners_are_replaced_and_events_say_why,);

async fn names(world: &World) -> Result<Vec<String>> {
    Ok(api::<Pod>(world).list(&ListParams::default()).await?.items.iter().map(ResourceExt::name_any).collect())
}

async fn lost_nodes_are_made_good_and_nothing_sticks_to_them(kind: Kind) -> Result<()> {
    let world = brisk_world(&["--force-delete-after=2s"], |_| {}).await?;
    let nodes = world.nodes.as_ref().context("no nodes")?;
    kind.fleet("web", 20).with_pod("terminationGracePeriodSeconds", json!(1)).apply(&world).await?;
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
    end(world).await
}

/// Marks a claim that was set aside.
const ASIDE: &str = "actions.summerwind.dev/out-of-reach-since";

/// Names of the claims that a pod has.
fn claims_of(pod: &Pod) -> impl Iterator<Item = String> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| Some(volume.persistent_volume_claim.as_ref()?.claim_name.clone()))
}

/// Volumes that only their own node reaches.
fn local_volumes(options: &mut Options) {
    if let Some(nodes) = &mut options.nodes {
        nodes.local_volumes = true;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_whose_node_comes_back_in_time_is_waited_for() -> Result<()> {
    let world = brisk_world(&["--force-delete-after=2s"], local_volumes).await?;
    let nodes = world.nodes.as_ref().context("no nodes")?;
    let fleet = Kind::RunnerSet.fleet("web", 8).with_pod("terminationGracePeriodSeconds", json!(1)).retaining();
    fleet.apply(&world).await?;
    settled(&world, 8).await?;
    let lost = nodes.pods_on("node-0").len();
    ensure!(lost > 0, "no pods on node-0");
    nodes.lose_node("node-0", NodeLoss::PodsDeleted).await?;
    until::<Pod>(&world, "pods that no node takes", |all| {
        let unschedulable = |pod: &Pod| {
            let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.into_iter().any(|it| it.type_ == "PodScheduled" && it.reason.as_deref() == Some("Unschedulable"))
        };
        all.len() == 8 && all.iter().filter(|pod| unschedulable(pod)).count() == lost
    })
    .await?;
    nodes.return_node("node-0").await?;
    settled(&world, 8).await?;
    ensure!(nodes.pods_on("node-0").len() == lost, "{} pods on node-0", nodes.pods_on("node-0").len());
    let claims = api::<PersistentVolumeClaim>(&world).list(&ListParams::default()).await?.items;
    let aside = claims.iter().filter(|claim| claim.annotations().contains_key(ASIDE)).count();
    ensure!((claims.len(), aside) == (8, 0), "{} claims, {aside} of them set aside", claims.len());
    end(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_is_lost_with_its_node_keeps_no_place_empty() -> Result<()> {
    let world = brisk_world(&["--runner-set-claim-patience=2s"], local_volumes).await?;
    let nodes = world.nodes.as_ref().context("no nodes")?;
    Kind::RunnerSet.fleet("web", 8).retaining().apply(&world).await?;
    settled(&world, 8).await?;
    let lost: BTreeSet<String> = nodes.pods_on("node-0").iter().flat_map(|pod| claims_of(pod)).collect();
    ensure!(!lost.is_empty(), "no volumes on node-0");
    nodes.lose_node("node-0", NodeLoss::Removed).await?;
    let about = |note: &str| lost.iter().any(|claim| note.contains(claim.as_str()));
    event(&world, "RunnerReplaced", |note| note.contains("no node has reached the volumes") && about(note)).await?;
    settled(&world, 8).await?;
    let is_aside = |claim: &PersistentVolumeClaim| claim.annotations().contains_key(ASIDE);
    let exactly_those = |all: &[&PersistentVolumeClaim]| {
        let aside: BTreeSet<String> = all.iter().filter(|claim| is_aside(claim)).map(|claim| claim.name_any()).collect();
        aside == lost && all.len() == 8 + lost.len()
    };
    until(&world, "exactly the lost ones set aside", exactly_those).await?;
    event(&world, "ClaimUnusable", |note| note.contains("no node could reach the volume")).await?;

    // Nobody is sent after them again, and nobody makes more claims than that.
    let pods = nodes.tally().seen();
    queue(&world, "web", 16, Duration::from_millis(200))?;
    succeeded(&world, 16).await?;
    settled(&world, 8).await?;
    ensure!(nodes.tally().seen() - pods == 16, "{} pods were made for 16 jobs", nodes.tally().seen() - pods);
    until(&world, "exactly the lost ones set aside", exactly_those).await?;

    // What a pod uses is within reach, whatever was said when a node was about to come back.
    let used = nodes.pods_on("node-1").iter().flat_map(|pod| claims_of(pod)).next().context("no volumes on node-1")?;
    let aside = Patch::Merge(json!({"metadata": {"annotations": {ASIDE: "2026-01-31T08:00:00Z"}}}));
    api::<PersistentVolumeClaim>(&world).patch(&used, &PatchParams::default(), &aside).await?;
    until(&world, "exactly the lost ones set aside", exactly_those).await?;

    // Who keeps no more claims than runners does without these first.
    Kind::RunnerSet.fleet("web", 8).apply(&world).await?;
    settled(&world, 8).await?;
    let left = api::<PersistentVolumeClaim>(&world).list(&ListParams::default()).await?.items;
    ensure!(left.len() == 8 && !left.iter().any(is_aside), "{} claims are left", left.len());
    end(world).await
}

async fn ended_runners_are_replaced_and_events_say_why(kind: Kind) -> Result<()> {
    let world = brisk_world(&["--force-delete-after=2s"], |_| {}).await?;
    let nodes = world.nodes.as_ref().context("no nodes")?;
    kind.fleet("web", 12).apply(&world).await?;
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
    end(world).await
}
