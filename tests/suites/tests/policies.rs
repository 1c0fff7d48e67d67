//! Policy sets in ConfigMaps on the real API server: swapped while runners come and go, broken, removed, rolled back, compared, switched off.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test whose scene can't be set has failed")]

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::core::ObjectMeta;
use kube::{Api, ResourceExt};
use pacer_api::RunnerDeployment;
use pacer_api::condition::{ConditionType, Verdict};
use pacer_api::names::annotation;
use pacer_harness::objects;
use pacer_harness::world::World;
use pacer_suites::{NAMESPACE, PATIENCE, api, apply, brisk_world, deployment, end_as_it_is, figure, scale, settled, until};
use serde_json::{Value, json};

mod corpus;
mod isolation;
mod outages;
mod panics;
mod prompt;
mod registries;
mod swaps;
mod texts;
mod trials;
mod verbs;
mod what_if;

use crate::guest::Guest;

/// Namespace of the operator, where the default set lies.
const OWN: &str = "actions-runner-system";

async fn put(world: &World, namespace: &str, name: &str, text: &str, modules: &[(&str, &Guest)]) -> Result<()> {
    let modules = modules.iter().map(|(key, guest)| (*key, guest.module())).collect();
    put_files(world, namespace, name, text, modules).await
}

/// As [`put`], with whatever files there are.
async fn put_files(world: &World, namespace: &str, name: &str, text: &str, files: Vec<(&str, Vec<u8>)>) -> Result<()> {
    let modules = files.into_iter().map(|(key, bytes)| (key.to_owned(), ByteString(bytes))).collect();
    let set = ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), namespace: Some(namespace.to_owned()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([("policies.yaml".to_owned(), text.to_owned())])),
        binary_data: Some(modules),
        immutable: None,
    };
    let mut set = serde_json::to_value(set)?;
    set["apiVersion"] = json!("v1");
    set["kind"] = json!("ConfigMap");
    apply(world, &set).await
}

/// Waits for what the operator says on a set.
async fn status(world: &World, namespace: &str, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
    let read =
        |object: &ConfigMap| -> Option<Value> { serde_json::from_str(object.annotations().get(annotation::POLICY_STATUS)?).ok() };
    let sets = Api::<ConfigMap>::namespaced(world.client.clone(), namespace);
    let outcome = objects::until(sets, "", PATIENCE, |all| {
        all.iter().any(|object| object.name_any() == name && read(object).is_some_and(|status| wanted(&status)))
    })
    .await;
    let all = world.check(outcome).await.with_context(|| format!("waiting for {what}"))?;
    all.iter().find(|object| object.name_any() == name).and_then(read).context("the status is there")
}

fn phase(wanted: &'static str) -> impl Fn(&Value) -> bool {
    move |status| status["phase"] == wanted
}

/// A fleet that asks for the policy set `opinions`.
async fn fleet(world: &World, size: u32) -> Result<()> {
    let mut web = deployment("web", size);
    web["metadata"]["annotations"] = json!({annotation::POLICIES: "opinions"});
    apply(world, &web).await?;
    settled(world, size as usize).await
}

/// Waits until another content of the set `opinions` than `before` is in force, and returns its digest.
async fn active(world: &World, before: &Value) -> Result<Value> {
    let other = |status: &Value| status["phase"] == "Active" && status["digest"] != *before;
    Ok(status(world, NAMESPACE, "opinions", "another set in force", other).await?["digest"].clone())
}

/// Waits until a deployment's condition is as wanted.
async fn condition(world: &World, type_: ConditionType, verdict: Verdict, reason: &str) -> Result<String> {
    let of = |deployment: &RunnerDeployment| {
        let conditions = deployment.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
        let is_it = |condition: &Condition| {
            condition.type_ == type_.as_str() && condition.status == verdict.as_str() && condition.reason == reason
        };
        conditions.into_iter().find(is_it)
    };
    let what = format!("{} {} {reason}", type_.as_str(), verdict.as_str());
    let all = until::<RunnerDeployment>(world, &what, |all| all.iter().any(|one| of(one).is_some())).await?;
    Ok(all.iter().find_map(of).map(|condition| condition.message).unwrap_or_default())
}

async fn event_in(world: &World, namespace: &str, reason: &str, part: &str) -> Result<()> {
    let events = Api::<Event>::namespaced(world.client.clone(), namespace);
    let outcome = objects::until(events, "", PATIENCE, |all| {
        all.iter()
            .any(|event| event.reason.as_deref() == Some(reason) && event.note.as_deref().is_some_and(|note| note.contains(part)))
    })
    .await;
    world.check(outcome).await.with_context(|| format!("waiting for an event {reason} with {part:?}"))?;
    Ok(())
}

async fn annotate(world: &World, name: &str, asked: Option<&str>) -> Result<()> {
    let patch = Patch::Merge(json!({"metadata": {"annotations": {annotation::POLICIES: asked}}}));
    api::<RunnerDeployment>(world).patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Takes runners away one by one until one goes for this reason. On a starved machine a call may miss its deadline of 100 ms of wall time, and
/// then the shipped policy decides instead; so it may take another.
async fn goes(world: &World, why: &str) -> Result<()> {
    let about = |all: &[&Event]| all.iter().map(|event| count(event, why)).sum::<i64>();
    for _ in 0..3 {
        let before = about(&api::<Event>(world).list(&ListParams::default()).await?.items.iter().collect::<Vec<_>>());
        one_less(world).await?;
        if objects::until(api::<Event>(world), "", Duration::from_secs(10), |all| about(all) > before).await.is_ok() {
            return Ok(());
        }
    }
    world.check(Err::<(), _>(format!("no runner was removed because of {why:?}"))).await?;
    Ok(())
}

/// How often a removal for this reason was reported by this event.
fn count(event: &Event, why: &str) -> i64 {
    let about = event.reason.as_deref() == Some("RunnerRemoved") && event.note.as_deref().is_some_and(|note| note.contains(why));
    if about { event.series.as_ref().map_or(1, |series| i64::from(series.count)) } else { 0 }
}

async fn one_less(world: &World) -> Result<()> {
    let left = api::<RunnerDeployment>(world).get("web").await?.spec.replicas_or_default().saturating_sub(1);
    scale(world, "web", left).await?;
    settled(world, left as usize).await
}

async fn killed_and_started_again(world: &mut World) -> Result<()> {
    let operator = world.operator.as_mut().context("no operator")?;
    operator.kill9().await;
    operator.restart().await?;
    operator.until_acting(PATIENCE).await?;
    Ok(())
}

/// Waits until a figure of `/metrics`, named with its labels, is as wanted.
async fn metric(world: &World, name: &str, wanted: impl Fn(u64) -> bool) -> Result<()> {
    metrics(world, &[name.to_owned()], |figures| figures.iter().copied().all(&wanted)).await
}

/// Waits until several are.
async fn metrics(world: &World, names: &[String], wanted: impl Fn(&[u64]) -> bool) -> Result<()> {
    let found = tokio::time::timeout(PATIENCE, async {
        loop {
            let figures = futures::future::join_all(names.iter().map(|name| figure(world, name))).await;
            if wanted(&figures) {
                return;
            }
            // They announce nothing.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    let outcome = found.map_err(|_| format!("{} in /metrics: not as wanted", names.join(", ")));
    world.check(outcome).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pools_policies_are_swapped_broken_lost_and_kept() -> Result<()> {
    let mut world = brisk_world(&[], |_| {}).await?;
    let enforced = "scale-down: {module: a.wasm}\n";
    let mut web = deployment("web", 20);
    web["metadata"]["annotations"] = json!({annotation::POLICIES: "opinions"});
    apply(&world, &web).await?;
    let message = condition(&world, ConditionType::PolicyAccepted, Verdict::False, "PolicySetNotFound").await?;
    ensure!(message.contains("opinions"), "{message}");
    put(&world, NAMESPACE, "opinions", enforced, &[("a.wasm", &Guest::choosing(&[(0, "the first opinion")]))]).await?;
    let first = status(&world, NAMESPACE, "opinions", "the first set", phase("Active")).await?;
    ensure!(first["decisions"]["scale-down"]["enforced"]["breaker"] == "closed", "{first}");
    condition(&world, ConditionType::PolicyActive, Verdict::True, "Active").await?;
    condition(&world, ConditionType::PolicyDegraded, Verdict::False, "Healthy").await?;
    condition(&world, ConditionType::PolicyIsolated, Verdict::True, "LockedIn").await?;
    settled(&world, 20).await?;
    goes(&world, "the first opinion; policy guest@sha256:").await?;

    // Swapped: the new one decides.
    let second = Guest::choosing(&[(0, "the second opinion")]);
    put(&world, NAMESPACE, "opinions", enforced, &[("a.wasm", &second)]).await?;
    let now = status(&world, NAMESPACE, "opinions", "the second set", |status| {
        status["phase"] == "Active" && status["digest"] != first["digest"]
    })
    .await?;
    goes(&world, "the second opinion").await?;

    // Garbage: nothing happens but words.
    put(&world, NAMESPACE, "opinions", "scale-down:\n  modul: a.wasm\n", &[]).await?;
    let broken = status(&world, NAMESPACE, "opinions", "a refusal", phase("LastGood")).await?;
    ensure!(broken["digest"] == now["digest"] && broken["lastError"]["reason"] == "PolicySetInvalid", "{broken}");
    let message = broken["lastError"]["message"].as_str().unwrap_or_default();
    ensure!(message.contains("line 2") && message.contains("modul"), "{message}");
    let message = condition(&world, ConditionType::PolicyAccepted, Verdict::False, "PolicySetInvalid").await?;
    ensure!(message.contains("line 2"), "{message}");
    condition(&world, ConditionType::PolicyActive, Verdict::False, "LastGood").await?;
    event_in(&world, NAMESPACE, "PolicyRefused", "line 2").await?;
    goes(&world, "the second opinion").await?;

    // Restarted with the broken ConfigMap: what was good still decides.
    killed_and_started_again(&mut world).await?;
    condition(&world, ConditionType::PolicyActive, Verdict::False, "LastGood").await?;
    goes(&world, "the second opinion").await?;

    // Removed: the same.
    api::<ConfigMap>(&world).delete("opinions", &DeleteParams::default()).await?;
    condition(&world, ConditionType::PolicyAccepted, Verdict::False, "PolicySetNotFound").await?;
    goes(&world, "the second opinion").await?;

    // Not asked for any more: back to everybody's.
    annotate(&world, "web", None).await?;
    until::<RunnerDeployment>(&world, "no policy conditions", |all| {
        all.iter().all(|one| {
            let conditions = one.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
            conditions.iter().all(|condition| !condition.type_.starts_with("Policy"))
        })
    })
    .await?;
    goes(&world, ": idle ").await?;
    let records = Api::<ConfigMap>::namespaced(world.client.clone(), OWN);
    let outcome = objects::until(records, "actions.summerwind.dev/policy-record-of", PATIENCE, |all| all.is_empty()).await;
    world.check(outcome).await.context("waiting for no records")?;
    end_as_it_is(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_set_is_compared_switched_off_bypassed_and_taken_back() -> Result<()> {
    let mut world = brisk_world(&[], |_| {}).await?;
    apply(&world, &deployment("web", 1)).await?;
    settled(&world, 1).await?;

    // In shadow: the shipped policy decides and the comparison is counted. Where only one runner can go, both say the same.
    let looping = || Guest::select("(loop $again (br $again)) unreachable");
    let text = "scale-down: {module: m, mode: shadow}\n";
    put(&world, OWN, "pacer-policies", text, &[("m", &Guest::choosing(&[(0, "from the shadow")]))]).await?;
    let shadow = status(&world, OWN, "pacer-policies", "the set in shadow", phase("Active")).await?;
    ensure!(
        shadow["decisions"]["scale-down"]["shadow"]["policy"].as_str().is_some_and(|policy| policy.starts_with("guest@")),
        "{shadow}"
    );
    goes(&world, ": idle ").await?;
    metric(&world, "pacer_policy_shadow_evaluations_total{decision=\"scale-down\"}", |count| count > 0).await?;
    metric(&world, "pacer_policy_shadow_agreements_total{decision=\"scale-down\"}", |count| count > 0).await?;

    scale(&world, "web", 30).await?;
    settled(&world, 30).await?;

    // Promoted by editing its mode, then switched off by hand and on again.
    put(&world, OWN, "pacer-policies", "scale-down: {module: m}\n", &[("m", &Guest::choosing(&[(0, "from the default set")]))])
        .await?;
    status(&world, OWN, "pacer-policies", "the enforced set", |status| {
        status["phase"] == "Active" && status["decisions"]["scale-down"]["enforced"]["breaker"] == "closed"
    })
    .await?;
    goes(&world, "from the default set").await?;
    let sets = Api::<ConfigMap>::namespaced(world.client.clone(), OWN);
    let switch = |off: Option<&str>| Patch::Merge(json!({"metadata": {"annotations": {annotation::POLICIES_DISABLED: off}}}));
    sets.patch("pacer-policies", &PatchParams::default(), &switch(Some("true"))).await?;
    status(&world, OWN, "pacer-policies", "the set switched off", phase("Disabled")).await?;
    event_in(&world, OWN, "PolicyDisabled", "switched off").await?;
    goes(&world, ": idle ").await?;
    sets.patch("pacer-policies", &PatchParams::default(), &switch(None)).await?;
    status(&world, OWN, "pacer-policies", "the set switched on", phase("Active")).await?;

    // A policy that loops: the shipped one decides, its breaker opens, and the set before it is in force again.
    let text = "scale-down: {module: m, limits: {fuel: 1000000}}\n";
    put(&world, OWN, "pacer-policies", text, &[("m", &looping())]).await?;
    status(&world, OWN, "pacer-policies", "the looping set", |status| {
        status["phase"] == "Active" && status["lastError"].is_null() && status["digest"] != shadow["digest"]
    })
    .await?;
    metric(&world, "pacer_policy_set_activations_total", |count| count == 3).await?;
    for _ in 0..3 {
        one_less(&world).await?;
    }
    let back = status(&world, OWN, "pacer-policies", "the set rolled back", phase("RolledBack")).await?;
    ensure!(back["lastError"]["reason"] == "PolicyRolledBack", "{back}");
    event_in(&world, OWN, "PolicyDegraded", "kept failing at scale-down").await?;
    event_in(&world, OWN, "PolicyRolledBack", "change it to try again").await?;
    metric(&world, "pacer_policy_set_rollbacks_total", |count| count == 1).await?;
    goes(&world, "from the default set").await?;

    // It is not tried again after a restart.
    killed_and_started_again(&mut world).await?;
    metric(
        &world,
        "pacer_policy_set_phase{namespace=\"actions-runner-system\",set=\"pacer-policies\",phase=\"RolledBack\"}",
        |value| value == 1,
    )
    .await?;
    goes(&world, "from the default set").await?;

    // A pool's own set that loops has nothing to go back to: its breaker stays open and the shipped policy decides.
    annotate(&world, "web", Some("own")).await?;
    put(&world, NAMESPACE, "own", text, &[("m", &looping())]).await?;
    condition(&world, ConditionType::PolicyActive, Verdict::True, "Active").await?;
    for _ in 0..3 {
        one_less(&world).await?;
    }
    let message = condition(&world, ConditionType::PolicyDegraded, Verdict::True, "BreakerOpen").await?;
    ensure!(message.contains("scale-down"), "{message}");
    status(&world, NAMESPACE, "own", "a degraded set", phase("Degraded")).await?;
    metric(&world, "pacer_policy_breaker_open{namespace=\"default\",set=\"own\",decision=\"scale-down\"}", |value| value == 1)
        .await?;
    end_as_it_is(world).await
}
