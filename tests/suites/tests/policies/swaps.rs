//! A new policy every second for a minute, while jobs run and runners come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use pacer_api::RunnerDeployment;
use pacer_harness::github::Behaviour;
use pacer_harness::operator::field;
use pacer_harness::world::World;
use pacer_suites::{NAMESPACE, api, apply, brisk_world, deployment, no_busy_kill, queue, running, scale, settled, succeeded};
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};

use super::{annotation, metric, phase, put, status};
use crate::guest::Guest;

/// Swaps, one a second.
const SWAPS: u32 = 60;

/// Memory is compared from here on: by then the process has made its caches, pools and threads.
const WARM: u32 = 20;

/// What the process may grow by while the remaining policies come and go, in bytes. Each is compiled in a few MiB, and none is kept.
const GROWTH: u64 = 24 << 20;

/// Jobs queued every other second, and how long each lasts: some two dozen of forty runners are busy.
const JOBS: usize = 8;
const LASTING: Duration = Duration::from_secs(6);

/// Removals as the log tells them: runner, reason, policy.
fn removals(world: &World) -> Result<Vec<(String, String, String)>> {
    let entries = world.operator.as_ref().context("no operator")?.entries();
    let removed = entries.iter().filter(|entry| field(entry, "message") == Some("runner removed"));
    let told = removed.filter_map(|entry| Some((field(entry, "runner")?, field(entry, "reason")?, field(entry, "policy")?)));
    Ok(told.map(|(runner, reason, policy)| (runner.to_owned(), reason.to_owned(), policy.to_owned())).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_swap_every_second_loses_doubles_and_kills_nothing() -> Result<()> {
    // Every second somebody else decides: runners are not idle for the confirmation time, and GitHub has to tell at once who is busy.
    let world = brisk_world(&["--idle-confirmation=0s"], |options| options.github.behaviour = Behaviour::prompt()).await?;
    let enforced = "scale-down: {module: a.wasm}\n";
    let opinion = |swap: u32| Guest::choosing(&[(0, &format!("opinion {swap}"))]);
    let mut web = deployment("web", 40);
    web["metadata"]["annotations"] = json!({annotation::POLICIES: "opinions"});
    apply(&world, &web).await?;
    put(&world, NAMESPACE, "opinions", enforced, &[("a.wasm", &opinion(0))]).await?;
    status(&world, NAMESPACE, "opinions", "the first set", phase("Active")).await?;
    settled(&world, 40).await?;

    let operator = world.operator.as_ref().context("no operator")?;
    let mut every_second = interval(Duration::from_secs(1));
    every_second.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let (mut jobs, mut warm, mut most) = (0, 0, 0);
    let began = Instant::now();
    for swap in 1..=SWAPS {
        every_second.tick().await;
        put(&world, NAMESPACE, "opinions", enforced, &[("a.wasm", &opinion(swap))]).await?;
        if swap % 2 == 0 {
            jobs += queue(&world, "web", JOBS, LASTING)?.len();
        }
        // Down and up again, so that there is always something to decide.
        scale(&world, "web", if swap % 4 < 2 { 34 } else { 40 }).await?;
        let resident = operator.usage()?.resident;
        match swap {
            WARM => warm = resident,
            _ if swap > WARM => most = resident.max(most),
            _ => {}
        }
    }
    ensure!(began.elapsed() >= Duration::from_secs(u64::from(SWAPS) - 1), "it was not a minute: {:?}", began.elapsed());
    println!("{SWAPS} swaps in {:?}, {} MiB resident after {WARM}, at most {} MiB", began.elapsed(), warm >> 20, most >> 20);

    // The last one is in force, nothing is left undone, and every job was done.
    let last = status(&world, NAMESPACE, "opinions", "the last set", |status| {
        status["phase"] == "Active" && status["lastError"].is_null()
    })
    .await?;
    ensure!(last["decisions"]["scale-down"]["enforced"]["breaker"] == "closed", "{last}");
    // On a busy machine a content is superseded by the next one while it is staged.
    metric(&world, "pacer_policy_set_activations_total", |count| (u64::from(SWAPS) / 2..=u64::from(SWAPS) + 1).contains(&count))
        .await?;
    succeeded(&world, jobs).await?;
    running(&world, 0).await?;
    scale(&world, "web", 30).await?;
    settled(&world, 30).await?;

    // Each runner went once, for a reason of the policy that is said to have chosen it, and never for two.
    let removed = removals(&world)?;
    let names: BTreeSet<&str> = removed.iter().map(|(runner, ..)| runner.as_str()).collect();
    ensure!(names.len() == removed.len(), "removed twice: {removed:?}");
    let mut reasons: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (_, reason, policy) in removed.iter().filter(|(_, _, policy)| policy.starts_with("guest@")) {
        reasons.entry(policy).or_default().insert(reason);
    }
    ensure!(reasons.values().all(|reasons| reasons.len() == 1), "{reasons:?}");
    ensure!(reasons.len() >= 5, "only {} of the policies decided anything: {removed:?}", reasons.len());
    ensure!(most.saturating_sub(warm) <= GROWTH, "from {warm} to {most} bytes");
    let wanted = api::<RunnerDeployment>(&world).get("web").await?.spec.replicas_or_default();
    ensure!(wanted == 30, "somebody set {wanted}");
    no_busy_kill(&world).await?;
    world.stop().await;
    Ok(())
}
