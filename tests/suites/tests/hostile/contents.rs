//! Contents of policy sets that exhaust whoever reads or compiles them, through a real operator: what is not theirs goes on as if nothing were.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::core::ObjectMeta;
use kube::{Api, ResourceExt};
use pacer_api::names::annotation;
use pacer_harness::objects;
use pacer_harness::world::World;
use pacer_suites::{PATIENCE, api, apply, brisk_world, deployment, end_as_it_is, put, scale, settled};
use serde_json::{Value, json};

use super::{Pulse, corpus, fleet, pack};
use crate::guest::Guest;

/// The default set of the operator, and the operator's namespace.
pub(crate) const SET: &str = "pacer-policies";
const OWN: &str = "actions-runner-system";

/// Namespace of those who mean harm, and of one who does not.
const BAD: &str = "mischief";
const GOOD: &str = "modest";

/// How soon a good set is in force, whatever others have staged.
const LIVE: Duration = Duration::from_secs(5);

/// 95 of 100 probes are answered within this, and each within ten times that.
const PROMPT: Duration = Duration::from_millis(100);

/// Memory that the operator may have more than before.
const GROWTH: u64 = 10 << 20;

/// Contents, and what the status has to say of each. The others of the corpus are tried where that costs no control plane.
fn contents() -> Vec<(&'static str, Vec<u8>, &'static [&'static str])> {
    let numbers: &[&str] = &["PolicyTooLarge"];
    vec![
        // Beyond its memory or its time in the compiler. It comes first, so that good sets are staged beside it.
        ("eater", pack(&Guest::endless().component()), &["PolicyCompileFailed", "PolicyCompileTimeout"]),
        ("nested-types", pack(&corpus::nested_types(2_000)), numbers),
        ("many-types", pack(&corpus::many_types(2_000_000)), numbers),
        ("instances", pack(&corpus::instances(1_000_000)), numbers),
        ("bomb", pack(&vec![0; 64 << 20]), &["PolicyDecompressionBomb"]),
        ("window", vec![0x28, 0xb5, 0x2f, 0xfd, 0, 0xa8], &["PolicyDecompressionBomb", "PolicyCompressionInvalid"]),
        ("deep-blocks", pack(&corpus::nested_blocks(1_000_000)), &["PolicyTooLarge", "PolicyInvalid", "PolicyCompileFailed"]),
    ]
}

pub(crate) async fn put_set(world: &World, namespace: &str, name: &str, module: Vec<u8>) -> Result<()> {
    let set = ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), namespace: Some(namespace.to_owned()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([("policies.yaml".to_owned(), "scale-down: {module: m}\n".to_owned())])),
        binary_data: Some(BTreeMap::from([("m".to_owned(), ByteString(module))])),
        immutable: None,
    };
    let set = serde_json::to_value(set)?;
    apply(world, &put(put(set, "", "apiVersion", json!("v1")), "", "kind", json!("ConfigMap"))).await
}

fn status(set: &ConfigMap) -> Value {
    let text = set.annotations().get(annotation::POLICY_STATUS);
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// Waits for what the operator says of a set.
pub(crate) async fn said(world: &World, namespace: &str, name: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
    let sets = Api::<ConfigMap>::namespaced(world.client.clone(), namespace);
    let is_it = |set: &ConfigMap| set.name_any() == name && wanted(&status(set));
    let outcome = objects::until(sets, "", PATIENCE, |all| all.iter().any(|set| is_it(set))).await;
    let all = world.check(outcome).await.with_context(|| format!("waiting for the status of {namespace}/{name}"))?;
    Ok(all.iter().find(|set| set.name_any() == name).map(status).unwrap_or_default())
}

/// A fleet of nothing that names a policy set.
async fn name_set(world: &World, namespace: &str, set: &str) -> Result<()> {
    let object = fleet(namespace, set, &json!({"repository": "acme/app"}), 0);
    apply(world, &put(object, "/metadata", "annotations", json!({annotation::POLICIES: set}))).await
}

/// Puts a good set where nobody means harm; says how soon it was in force.
async fn good_set(world: &World, name: &str) -> Result<Duration> {
    name_set(world, GOOD, name).await?;
    let began = Instant::now();
    put_set(world, GOOD, name, Guest::choosing(&[(0, "good")]).module()).await?;
    said(world, GOOD, name, |status| status["phase"] == "Active").await?;
    Ok(began.elapsed())
}

async fn versions(world: &World) -> Result<BTreeMap<String, Option<String>>> {
    let sets = Api::<ConfigMap>::namespaced(world.client.clone(), BAD).list(&ListParams::default()).await?;
    Ok(sets.items.into_iter().map(|set| (set.name_any(), set.resource_version())).collect())
}

/// Takes a runner away, which the operator's other policies decide about.
async fn one_less(world: &World, left: u32) -> Result<()> {
    scale(world, "web", left).await?;
    settled(world, left as usize).await
}

#[tokio::test(flavor = "multi_thread")]
async fn contents_that_exhaust_whoever_tries_them_are_named_and_harm_nobody() -> Result<()> {
    let mut world = brisk_world(&[], |_| {}).await?;
    for name in [BAD, GOOD] {
        world.plane.namespace(name).await?;
    }
    apply(&world, &deployment("web", 4)).await?;
    settled(&world, 4).await?;
    put_set(&world, OWN, SET, Guest::choosing(&[(0, "the good one")]).module()).await?;
    said(&world, OWN, SET, |status| status["phase"] == "Active").await?;
    one_less(&world, 3).await?;
    // Whatever is done the first time takes some memory for good.
    good_set(&world, "first").await?;
    let operator = world.operator.as_ref().context("no operator")?;
    let before = operator.usage()?.resident;
    let pulse = Pulse::of(operator.metrics_address());

    for (name, module, _) in contents() {
        name_set(&world, BAD, name).await?;
        put_set(&world, BAD, name, module).await?;
    }
    let mut soon = Vec::new();
    for name in ["second", "third", "fourth"] {
        soon.push(good_set(&world, name).await?);
    }
    // Others are decided about meanwhile, by their own policies.
    one_less(&world, 2).await?;
    let mut most = operator.usage()?.resident;
    for (name, _, reasons) in contents() {
        let began = Instant::now();
        let verdict = said(&world, BAD, name, |status| status["lastError"]["reason"].is_string()).await?;
        let (reason, message) =
            (verdict["lastError"]["reason"].as_str().unwrap(), verdict["lastError"]["message"].as_str().unwrap());
        println!("{name} after {:?}: {reason}: {message}", began.elapsed());
        ensure!(reasons.contains(&reason), "{name}: {verdict}");
        ensure!(message.contains("module m"), "{name} is not named: {message}");
        most = most.max(operator.usage()?.resident);
    }
    soon.push(good_set(&world, "fifth").await?);
    one_less(&world, 1).await?;
    let (prompt, longest) = pulse.end();
    println!("good sets {soon:?}; {} KiB more; probes {prompt:?}, {longest:?}", most.saturating_sub(before) >> 10);
    ensure!(soon.iter().all(|took| *took < LIVE), "good sets took {soon:?}");
    ensure!(most < before + GROWTH, "the operator has {} KiB more", most.saturating_sub(before) >> 10);
    ensure!(prompt < PROMPT && longest < 10 * PROMPT, "probes took {prompt:?}, {longest:?}");
    let faults = api::<k8s_openapi::api::events::v1::Event>(&world).list(&ListParams::default()).await?.items;
    let faults: Vec<_> = faults.iter().filter(|event| event.reason.as_deref() == Some("PolicyFault")).collect();
    ensure!(faults.is_empty(), "another policy was disturbed: {faults:?}");

    // Nothing repeats after a restart: no word changes, and a good set is in force at once.
    let left = versions(&world).await?;
    let operator = world.operator.as_mut().context("no operator")?;
    operator.kill9().await;
    operator.restart().await?;
    operator.until_acting(PATIENCE).await?;
    let soon = good_set(&world, "sixth").await?;
    ensure!(soon < LIVE, "after a restart a good set took {soon:?}");
    let eater = said(&world, BAD, "eater", |status| status["lastError"]["reason"].is_string()).await?;
    ensure!(eater["lastError"]["message"].as_str().is_some_and(|message| message.contains("not tried again")), "{eater}");
    one_less(&world, 0).await?;
    ensure!(versions(&world).await? == left, "something was tried again");
    let operator = world.operator.as_ref().context("no operator")?;
    ensure!(operator.exit().is_none(), "the operator ended");
    end_as_it_is(world).await
}
