//! Rollouts with the operator as it is shipped: pods at once, and pods that hang.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use pacer_api::condition::ConditionType;
use pacer_api::{Runner, RunnerReplicaSet};
use pacer_harness::github::{Scope, View};
use pacer_harness::world::World;
use pacer_suites::{PATIENCE, api, apply, change_template, deployment, end, queue, runners, running, succeeded, until, world};
use serde_json::{Value, json};

/// Idle runners of the fleet that is rolled out, and those at work; as many pods as may be there beside both, at the default of ten percent.
const IDLE: u32 = 20;
const AT_WORK: u32 = 4;
const SURGE: usize = 3;

/// The idle ones are exchanged within this, on a machine that does other things as well.
const EXCHANGED: Duration = Duration::from_secs(120);

/// A template like the first one, and no more than that.
fn another() -> Value {
    json!({"env": [{"name": "REVISION", "value": "2"}]})
}

fn registered(world: &World) -> BTreeSet<String> {
    world.github.registrations(&Scope::repository("acme", "app")).into_iter().map(|runner| runner.name).collect()
}

/// Old runners without a job and with one, and new ones that are online.
fn exchanged(view: &View<'_>, old: &BTreeSet<String>) -> (u32, u32, u32) {
    let (mut idle, mut busy, mut new) = (0, 0, 0);
    for runner in view.registrations(&Scope::repository("acme", "app")) {
        match (old.contains(&runner.name), runner.job) {
            (true, None) => idle += 1,
            (true, Some(_)) => busy += 1,
            (false, _) => new += u32::from(runner.online),
        }
    }
    (idle, busy, new)
}

#[tokio::test(flavor = "multi_thread")]
async fn rollout_never_has_more_pods_than_the_surge_allows() -> Result<()> {
    let world = world(|_| {}).await?;
    let all = IDLE + AT_WORK;
    apply(&world, &deployment("web", all)).await?;
    runners(&world, "all online", |counts| counts.online == u64::from(all)).await?;
    queue(&world, "web", AT_WORK as usize, Duration::from_secs(75))?;
    running(&world, AT_WORK as usize).await?;
    until::<RunnerReplicaSet>(&world, "busy runners in the status", |sets| {
        sets.iter().any(|set| set.status.as_ref().is_some_and(|status| status.busy_replicas == i32::try_from(AT_WORK).ok()))
    })
    .await?;
    let old = registered(&world);
    let mut tally = world.nodes.as_ref().context("no nodes")?.watch();
    let began = Instant::now();
    change_template(&world, "web", &another()).await?;
    let mut most = 0;
    let steps = async {
        let idle = world.github.wait_for(PATIENCE, |view| matches!(exchanged(view, &old), (0, _, new) if new >= IDLE)).await;
        world.check(idle).await.context("the idle ones are exchanged")?;
        let idle = began.elapsed();
        succeeded(&world, AT_WORK as usize).await?;
        let jobs = began.elapsed();
        let rest = world.github.wait_for(PATIENCE, |view| exchanged(view, &old) == (0, 0, all)).await;
        world.check(rest).await.context("all are exchanged")?;
        until::<RunnerReplicaSet>(&world, "one set", |sets| sets.len() == 1).await?;
        anyhow::Ok((idle, jobs, began.elapsed()))
    };
    let (idle, jobs, rest) = {
        tokio::pin!(steps);
        loop {
            most = most.max(tally.borrow_and_update().present());
            tokio::select! {
                done = &mut steps => break done?,
                changed = tally.changed() => changed.context("the nodes stopped")?,
            }
        }
    };
    println!(
        "{IDLE} idle runners exchanged in {:.1} s, {AT_WORK} at work {:.1} s after their jobs; at most {most} pods",
        idle.as_secs_f64(),
        rest.saturating_sub(jobs).as_secs_f64(),
    );
    let allowed = all as usize + SURGE;
    let outcome = if most <= allowed { Ok(()) } else { Err(format!("{most} pods were there, {allowed} are allowed")) };
    world.check(outcome).await?;
    let outcome = if idle <= EXCHANGED { Ok(()) } else { Err(format!("{idle:?} for {IDLE} idle runners")) };
    world.check(outcome).await?;
    end(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn rollout_does_not_wait_for_a_pod_that_hangs() -> Result<()> {
    let world = world(|_| {}).await?;
    apply(&world, &deployment("web", 4)).await?;
    runners(&world, "all online", |counts| counts.online == 4).await?;
    let old = registered(&world);
    let held = old.first().context("no runner")?.clone();
    let hold = Patch::Merge(json!({"metadata": {"finalizers": ["example.com/hold"]}}));
    api::<Pod>(&world).patch(&held, &PatchParams::default(), &hold).await?;
    let began = Instant::now();
    // With a surge of one nothing moves while it counts.
    change_template(&world, "web", &another()).await?;
    let all = world.github.wait_for(PATIENCE, |view| exchanged(view, &old) == (0, 0, 4)).await;
    world.check(all).await.context("all are exchanged")?;
    println!("4 idle runners exchanged in {:.1} s, one of them with a pod that hangs", began.elapsed().as_secs_f64());
    let says = |runner: &&Runner| {
        let conditions = runner.status.iter().flat_map(|status| &status.conditions);
        conditions.into_iter().any(|one| one.type_ == ConditionType::Stopping.as_str() && one.message.contains("should be gone"))
    };
    until::<Runner>(&world, "a Runner that says so", |all| all.iter().any(|runner| runner.name_any() == held && says(runner)))
        .await?;
    let there = api::<Pod>(&world).get_opt(&held).await?;
    ensure!(there.is_some_and(|pod| pod.metadata.deletion_timestamp.is_some()), "{held} does not hang");
    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    api::<Pod>(&world).patch(&held, &PatchParams::default(), &release).await?;
    end(world).await
}
