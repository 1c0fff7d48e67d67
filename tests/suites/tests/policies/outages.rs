//! Policy sets while things go wrong around them: the API server goes away in the middle of a swap, the leader dies while a policy is in
//! shadow, a policy begins to fail long after it was tried.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pacer_harness::operator::field;
use pacer_harness::world::World;
use pacer_suites::{
    PATIENCE, PATIENT_LEASE, apply, brisk_world, deployment, no_busy_kill, queue, running, scale, settled, succeeded,
};
use serde_json::Value;

use super::{NAMESPACE, OWN, event_in, goes, metric, one_less, phase, put, status};
use crate::guest::Guest;

/// The default set of the operator.
const SET: &str = "pacer-policies";

const ENFORCED: &str = "scale-down: {module: m}\n";

/// Puts a set whose policy gives this reason, and waits for nothing.
async fn opinion(world: &World, why: &str) -> Result<()> {
    put(world, OWN, SET, ENFORCED, &[("m", &Guest::choosing(&[(0, why)]))]).await
}

/// Waits until another content than `before` is in force, and returns its digest.
async fn active(world: &World, before: &Value) -> Result<Value> {
    let other = |status: &Value| status["phase"] == "Active" && status["digest"] != *before;
    Ok(status(world, OWN, SET, "another set in force", other).await?["digest"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_goes_away_during_a_swap_delays_it_and_nothing_else() -> Result<()> {
    let world = brisk_world(&PATIENT_LEASE, |_| {}).await?;
    apply(&world, &deployment("web", 16)).await?;
    settled(&world, 16).await?;
    opinion(&world, "the first opinion").await?;
    let first = active(&world, &Value::Null).await?;
    goes(&world, "the first opinion").await?;
    queue(&world, "web", 4, Duration::from_secs(20))?;
    running(&world, 4).await?;

    // It stands still before anybody has looked at the new set.
    opinion(&world, "the second opinion").await?;
    // How long it is away is what is tested.
    world.plane.without_apiserver(tokio::time::sleep(Duration::from_secs(8))).await;
    let second = active(&world, &first).await?;
    goes(&world, "the second opinion").await?;

    // It is killed, and comes back with all that was written.
    opinion(&world, "the third opinion").await?;
    world.plane.restart_apiserver().await?;
    active(&world, &second).await?;
    succeeded(&world, 4).await?;
    goes(&world, "the third opinion").await?;
    no_busy_kill(&world).await?;
    world.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_leader_decides_with_the_set_in_force_from_its_first_decision_on() -> Result<()> {
    // The deadline is longer than an API server of a full machine may be silent for: the first one is to lead until it is killed.
    let lease = ["--lease-duration=20s", "--lease-renew-deadline=15s", "--lease-retry-period=500ms"];
    let mut world = brisk_world(&lease, |_| {}).await?;
    apply(&world, &deployment("web", 20)).await?;
    settled(&world, 20).await?;
    let text = "scale-down:\n- module: m\n- module: candidate\n  mode: shadow\n";
    let modules = [("m", Guest::choosing(&[(0, "in force")])), ("candidate", Guest::choosing(&[(0, "in shadow")]))];
    put(&world, OWN, SET, text, &modules.each_ref().map(|(key, guest)| (*key, guest))).await?;
    let first = active(&world, &Value::Null).await?;
    goes(&world, "in force").await?;
    metric(&world, "pacer_policy_shadow_evaluations_total{decision=\"scale-down\"}", |count| count > 0).await?;

    // It dies with work to do, which is the first thing that the next one finds.
    let standby = world.operator.as_ref().context("no operator")?.twin().await?;
    standby.until_ready("standby", PATIENCE).await?;
    queue(&world, "web", 3, Duration::from_secs(40))?;
    running(&world, 3).await?;
    let leader = world.operator.replace(standby).context("no operator")?;
    leader.pause();
    scale(&world, "web", 12).await?;
    leader.kill9().await;
    let operator = world.operator.as_ref().context("no operator")?;
    operator.until_acting(PATIENCE).await?;
    settled(&world, 12).await?;
    succeeded(&world, 3).await?;

    let log = operator.entries();
    let told = |message: &str| log.iter().filter(|entry| field(entry, "message") == Some(message)).collect::<Vec<_>>();
    let decided = told("policy decided");
    let decided: Vec<&str> = decided
        .iter()
        .filter(|entry| field(entry, "decision") == Some("scale-down"))
        .filter_map(|entry| field(entry, "policy"))
        .collect();
    ensure!(!decided.is_empty(), "the new leader decided nothing");
    // On a starved machine a call may miss its deadline; then, and only then, another policy decides.
    let missed = told("policy fault").len();
    let others = decided.iter().filter(|policy| !policy.starts_with("guest@")).count();
    ensure!(others <= missed, "{others} of {} decisions by others, {missed} faults: {decided:?}", decided.len());
    metric(&world, "pacer_policy_shadow_evaluations_total{decision=\"scale-down\"}", |count| count > 0).await?;
    let now = status(&world, OWN, SET, "the same set in force", phase("Active")).await?;
    ensure!(now["digest"] == first && now["lastError"].is_null(), "{now}");
    ensure!(now["decisions"]["scale-down"]["shadow"]["breaker"] == "closed", "{now}");
    no_busy_kill(&world).await?;
    world.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_begins_to_fail_later_leaves_the_fleet_alone() -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    apply(&world, &deployment("web", 5)).await?;
    settled(&world, 5).await?;
    // What it takes grows with the fleet: more than eight candidates are too many for its budget. The list's length lies at 200.
    let growing = "(if (i32.gt_u (i32.load offset=200 (local.get $request)) (i32.const 8)) (then (loop $again (br $again))))";
    let text = "scale-down: {module: m, limits: {fuel: 1000000}}\n";
    put(&world, NAMESPACE, "own", text, &[("m", &Guest::choosing(&[(0, "few enough")]).first(growing))]).await?;
    super::annotate(&world, "web", Some("own")).await?;
    status(&world, NAMESPACE, "own", "the set in force", phase("Active")).await?;
    goes(&world, "few enough").await?;

    scale(&world, "web", 24).await?;
    settled(&world, 24).await?;
    queue(&world, "web", 4, Duration::from_secs(15))?;
    running(&world, 4).await?;
    // The shipped policy decides each time, and the fault has a name everywhere.
    one_less(&world).await?;
    event_in(&world, NAMESPACE, "PolicyFault", "it used up its budget of instructions").await?;
    metric(&world, "pacer_policy_faults_total{kind=\"fuel\"}", |count| count > 0).await?;
    let named = |status: &Value| {
        let fault = status["decisions"]["scale-down"]["enforced"]["lastFault"].as_str();
        fault.is_some_and(|fault| fault.contains("budget of instructions"))
    };
    status(&world, NAMESPACE, "own", "the fault in the status", named).await?;
    one_less(&world).await?;
    one_less(&world).await?;
    let degraded = status(&world, NAMESPACE, "own", "a degraded set", phase("Degraded")).await?;
    ensure!(degraded["decisions"]["scale-down"]["enforced"]["breaker"] == "open", "{degraded}");
    succeeded(&world, 4).await?;
    scale(&world, "web", 6).await?;
    settled(&world, 6).await?;
    no_busy_kill(&world).await?;
    world.stop().await;
    Ok(())
}
