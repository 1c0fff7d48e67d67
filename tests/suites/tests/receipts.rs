//! Receipts of decisions on the real API server: who can be told what afterwards, across restarts, and how much is kept.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test whose scene can't be set has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use pacer_api::names::{annotation, label};
use pacer_api::{HorizontalRunnerAutoscaler, Runner, RunnerDeployment, RunnerReplicaSet};
use pacer_harness::controlplane::Audit;
use pacer_harness::github::Scope;
use pacer_harness::objects;
use pacer_harness::world::World;
use pacer_suites::webhook::{hook, hooked_world_with, receive};
use pacer_suites::{
    BRISK, NAMESPACE, PATIENCE, api, apply, brisk_world, delete, deployment, event, figure, grant_room, no_busy_kill, page,
    patient_autoscaler, prompt, queue, scale, settled, succeeded, until, with_spec,
};
use serde_json::{Value, json};

mod failures;
mod last_jobs;

fn binary() -> PathBuf {
    let built = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/debug/pacer");
    std::env::var_os("PACER_BIN").map_or_else(|| PathBuf::from(built), PathBuf::from)
}

/// What a command said and how it ended.
#[derive(Debug)]
struct Said {
    text: String,
    error: String,
    well: bool,
}

impl Said {
    fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { text: text(&output.stdout), error: text(&output.stderr), well: output.status.success() }
    }

    fn contains(&self, parts: &[&str]) -> Result<()> {
        for part in parts {
            ensure!(self.text.contains(part), "no {part:?} in {self:#?}");
        }
        Ok(())
    }
}

/// Runs `pacer` as a user of the cluster does.
fn pacer(world: &World, arguments: &[&str]) -> Result<Said> {
    let output = Command::new(binary()).args(arguments).env("KUBECONFIG", world.plane.kubeconfig_path()).output()?;
    Ok(Said::of(&output))
}

/// Runs commands of a document with `pacer` and `kubectl` on the path.
fn script(world: &World, directory: &Path, commands: &str) -> Result<Said> {
    let (pacer, kubectl) = (binary(), world.plane.kubectl_path());
    let places = [pacer.parent(), kubectl.parent()].into_iter().flatten().map(|place| place.display().to_string());
    let path = places.chain(std::env::var("PATH")).collect::<Vec<_>>().join(":");
    let output = Command::new("bash")
        .args(["-c", &format!("set -euxo pipefail\n{commands}")])
        .current_dir(directory)
        .env("PATH", path)
        .env("KUBECONFIG", world.plane.kubeconfig_path())
        .output()?;
    Ok(Said::of(&output))
}

/// Waits until the receipts in the namespace are as wanted.
async fn receipts(world: &World, what: &str, wanted: impl Fn(&[&ConfigMap]) -> bool) -> Result<Vec<ConfigMap>> {
    let outcome = objects::until(api::<ConfigMap>(world), label::RECEIPTS_OF_KIND, PATIENCE, wanted).await;
    world.check(outcome).await.with_context(|| format!("waiting for {what}"))
}

fn keys(objects: &[&ConfigMap], decision: &str) -> usize {
    let keys = objects.iter().flat_map(|object| object.binary_data.iter().flatten());
    keys.filter(|(key, _)| key.starts_with(decision)).count()
}

async fn names(world: &World) -> Result<BTreeSet<String>> {
    Ok(api::<Runner>(world).list(&ListParams::default()).await?.iter().map(ResourceExt::name_any).collect())
}

/// Takes runners away and says which.
async fn lower(world: &World, to: u32) -> Result<Vec<String>> {
    let before = names(world).await?;
    scale(world, "web", to).await?;
    settled(world, to as usize).await?;
    let left = names(world).await?;
    Ok(before.difference(&left).cloned().collect())
}

fn autoscaler(min: u32, max: u32) -> Value {
    prompt(patient_autoscaler("web-scaler", "web", min, max))
}

#[tokio::test(flavor = "multi_thread")]
async fn why_runners_went_is_told_after_a_kill_and_asked_again() -> Result<()> {
    let mut world = brisk_world(&[], |_| {}).await?;
    apply(&world, &deployment("web", 5)).await?;
    settled(&world, 5).await?;
    let gone = lower(&world, 3).await?;
    let [first, ..] = gone.as_slice() else { panic!("nobody went") };
    let stayed = names(&world).await?.into_iter().next().context("nobody stayed")?;

    // Whoever is gone has a receipt: it is written first.
    let operator = world.operator.as_mut().context("no operator")?;
    operator.kill9().await;
    operator.restart().await?;
    operator.until_acting(PATIENCE).await?;

    // The runner is gone, the process that removed it as well.
    let told = pacer(&world, &["explain", "runner", first])?;
    ensure!(told.well, "{told:#?}");
    told.contains(&[
        &format!("Runner {first} was removed because fewer runners were wanted"),
        "idle runners",
        "in the words of the policy",
        "default (sha256:",
        "GitHub confirmed that it had no job",
        "RunnerDeployment default/web",
        "Now: no Runner of this name exists.",
    ])?;
    let json = pacer(&world, &["explain", &format!("runner/{first}"), "-o", "json"])?;
    let json: Value = serde_json::from_str(&json.text)?;
    ensure!(json["decisions"][0]["fate"] == "removed" && json["now"].is_null(), "{json:#}");
    let receipt = json["decisions"][0]["receipt"].as_str().context("a receipt")?.to_owned();
    let kept = pacer(&world, &["explain", "runner", &stayed])?;
    kept.contains(&["was kept", "Now: it exists, phase"])?;
    let unknown = pacer(&world, &["explain", "runner", "nobody-knows"])?;
    ensure!(
        !unknown.well && unknown.error.contains("nothing is known") && unknown.error.contains("receipts of 1 pools"),
        "{unknown:#?}"
    );
    let nowhere = pacer(&world, &["explain", "runner", first, "-n", "kube-system"])?;
    ensure!(!nowhere.well && nowhere.error.contains("wrong namespace (-n)"), "{nowhere:#?}");

    // The same question gets the same bytes, and becomes a case that the policy passes.
    let again = pacer(&world, &["policy", "replay", &receipt])?;
    ensure!(again.well, "{again:#?}");
    again.contains(&["this program", "bytes", "fuel"])?;
    ensure!(!again.text.contains("then"), "{again:#?}");
    let directory = std::env::temp_dir().join(format!("pacer-receipts-{}", std::process::id()));
    let place = |name: &str| directory.join(name).display().to_string();
    let cases = pacer(&world, &["policy", "receipts", "--runner", first, "--decision", "scale-down", "--case", &place("cases")])?;
    ensure!(cases.well, "{cases:#?}");
    let tested = pacer(&world, &["policy", "test", "builtin", &place("cases")])?;
    ensure!(tested.well && tested.text.contains(" 0 failed"), "{tested:#?}");
    let compared = pacer(&world, &["policy", "diff", "builtin", "builtin", "--receipts", "--decision", "scale-down"])?;
    ensure!(compared.well && compared.text.contains("answers are the same"), "{compared:#?}");

    // What happens all the time is written later, and at the end of the process at the latest.
    apply(&world, &autoscaler(4, 5)).await?;
    queue(&world, "web", 1, Duration::from_secs(2))?;
    succeeded(&world, 1).await?;
    settled(&world, 4).await?;
    until::<HorizontalRunnerAutoscaler>(&world, "a number", |all| {
        all.iter().any(|one| one.status.as_ref().is_some_and(|status| status.desired_replicas == Some(4)))
    })
    .await?;
    let operator = world.operator.as_mut().context("no operator")?;
    operator.terminate().await;
    receipts(&world, "all three kinds", |all| ["scale-down.", "restart.", "capacity."].iter().all(|kind| keys(all, kind) > 0))
        .await?;
    operator_again(&mut world).await?;
    let pool = pacer(&world, &["explain", "pool", "hra/web-scaler"])?;
    ensure!(pool.well, "{pool:#?}");
    pool.contains(&[
        "RunnerDeployment default/web: 4 runners are wanted",
        "HorizontalRunnerAutoscaler web-scaler (4 to 5) wants 4",
        "because: ",
        "Held back",
        "cleared away web-",
        "reserved in",
    ])?;

    // Nothing secret is in what is kept.
    let saved = pacer(&world, &["policy", "receipts", "--save", &place("saved")])?;
    ensure!(saved.well, "{saved:#?}");
    let mut count = 0;
    for file in std::fs::read_dir(directory.join("saved"))? {
        let text = std::fs::read_to_string(file?.path())?;
        ensure!(!text.contains(world.github.pat()) && !text.to_lowercase().contains("token"), "{text}");
        count += 1;
    }
    ensure!(count >= 3, "{count} receipts");
    std::fs::remove_dir_all(&directory)?;

    // With the pool go its receipts.
    delete::<HorizontalRunnerAutoscaler>(&world, "web-scaler").await?;
    delete::<RunnerDeployment>(&world, "web").await?;
    receipts(&world, "no receipts", |all| all.is_empty()).await?;
    no_busy_kill(&world).await?;
    world.stop().await;
    Ok(())
}

/// What a receipt holds that is the newest of its decision, as people save it.
fn newest(world: &World, decision: &str) -> Result<Value> {
    newest_of(world, decision, &[])
}

/// The same, of a pool for instance.
fn newest_of(world: &World, decision: &str, of: &[&str]) -> Result<Value> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("newest.json");
    let place = file.display().to_string();
    let asked = ["policy", "receipts", "--decision", decision, "--last", "1", "--save", &place];
    let saved = pacer(world, &[&asked, of].concat())?;
    ensure!(saved.well, "{saved:#?}");
    Ok(serde_json::from_str(&std::fs::read_to_string(&file)?)?)
}

/// Waits until the set of four says that so many of its runners are busy, and the others are not.
async fn busy(world: &World, wanted: i32) -> Result<()> {
    until::<RunnerReplicaSet>(world, &format!("{wanted} busy of 4"), |all| {
        let mut statuses = all.iter().filter_map(|set| set.status.as_ref());
        statuses.any(|status| (status.busy_replicas, status.idle_replicas) == (Some(wanted), Some(4 - wanted)))
    })
    .await?;
    Ok(())
}

/// Who has worked is asked about soon, and may not be busy in GitHub's eyes for a minute more.
async fn hooked_world_of_prompt_flags(arguments: &[&str]) -> Result<World> {
    hooked_world_with(&[&BRISK[..], arguments].concat(), |options| {
        options.github.behaviour.busy_late = Duration::ZERO..=Duration::ZERO;
        options.github.behaviour.busy_drops = 0.0;
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_are_told_of_nodes_jobs_and_limits() -> Result<()> {
    let world = hooked_world_of_prompt_flags(&[]).await?;
    apply(&world, &with_spec(deployment("web", 4), "ephemeral", json!(false))).await?;
    apply(&world, &autoscaler(4, 4)).await?;
    settled(&world, 4).await?;
    queue(&world, "web", 2, Duration::from_secs(15))?;
    busy(&world, 2).await?;
    succeeded(&world, 2).await?;
    busy(&world, 0).await?;

    // The shipped policy takes those first that have to go soon.
    let nodes = world.nodes.as_ref().context("no nodes")?;
    nodes.cordon("node-2", true).await?;
    let leaving: BTreeSet<String> = nodes.pods_on("node-2").iter().map(|pod| pod.name_any()).collect();
    ensure!(leaving.len() == 1, "on node-2: {leaving:?}");
    let before = names(&world).await?;
    apply(&world, &autoscaler(3, 4)).await?;
    settled(&world, 3).await?;
    let left = names(&world).await?;
    ensure!(before.difference(&left).cloned().collect::<BTreeSet<_>>() == leaving, "{left:?} are left of {before:?}");
    let [gone] = leaving.iter().collect::<Vec<_>>()[..] else { panic!("{leaving:?}") };
    pacer(&world, &["explain", "runner", gone])?.contains(&["node-2 draining"])?;

    let told = newest(&world, "scale-down")?;
    let (pool, about) = (&told["input"]["pool"], &told["input"]);
    let draining = |node: &Value| node["draining"] == (node["name"] == "node-2") && node["age"].is_u64();
    ensure!(about["nodes"].as_array().is_some_and(|nodes| nodes.len() == 4 && nodes.iter().all(draining)), "{about:#}");
    let worked = |candidate: &&Value| candidate["last-job-end"].is_u64();
    ensure!(about["candidates"].as_array().is_some_and(|all| all.iter().filter(worked).count() == 2), "{about:#}");
    let jobs = |pool: &Value| -> u64 { pool["arrivals"].as_array().into_iter().flatten().filter_map(Value::as_u64).sum() };
    let has = |pool: &Value| jobs(pool) == 2 && pool["run-time"]["samples"] == 2 && pool["budget"]["limit"].is_u64();
    ensure!(has(pool) && pool["min-replicas"] == 3 && pool["max-replicas"] == 4, "{pool:#}");
    // What waited for company went with it.
    let number = newest(&world, "capacity")?;
    ensure!(has(&number["input"]["pool"]), "{number:#}");

    let victim = left.first().context("nobody is left")?;
    nodes.crash(NAMESPACE, victim, 3).await?;
    receipts(&world, "the receipt of a failure", |_| {
        pacer(&world, &["explain", "runner", victim]).is_ok_and(|told| told.text.contains("was given up"))
    })
    .await?;
    let failed = newest(&world, "restart")?;
    let (pool, subject) = (&failed["input"]["pool"], &failed["input"]["subjects"][0]);
    let node = usize::try_from(subject["node"].as_u64().context("a node")?)?;
    ensure!(has(pool) && failed["input"]["nodes"][node]["age"].is_u64(), "{failed:#}");
    no_busy_kill(&world).await?;
    world.stop().await;
    Ok(())
}

/// Reads everything, and takes runners on spot nodes first.
const CURIOUS: &str = r#"
export const name = "curious";
export const reads = ["node-labels", "node-size", "node-price", "node-neighbours", "failures", "annotations", "labels", "pool", "other-pools",
  "last-job", "waiting-jobs", "the-weather"];
export function scaleDown({ candidates, nodes, surplus }) {
  const spot = ({ node }) => node !== null && nodes[node].attributes.some(([key, value]) => key === "capacity-type" && value === "spot");
  return candidates
    .map((runner, index) => ({ index, first: spot(runner) }))
    .sort((a, b) => b.first - a.first)
    .slice(0, surplus)
    .map(({ index, first }) => ({ index, reason: first ? "on a spot node" : "not on a spot node" }));
}
"#;

/// Attributes of a part of a request, by key.
fn attributes(of: &Value) -> BTreeMap<&str, &str> {
    let pairs = of["attributes"].as_array().into_iter().flatten();
    pairs.filter_map(|pair| Some((pair[0].as_str()?, pair[1].as_str()?))).collect()
}

async fn label_node(world: &World, node: &str, labels: Value) -> Result<()> {
    let nodes: Api<Node> = Api::all(world.client.clone());
    nodes.patch(node, &PatchParams::default(), &Patch::Merge(json!({"metadata": {"labels": labels}}))).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn further_facts_are_told_to_the_policy_that_asks_for_them_and_to_no_other() -> Result<()> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), "m5.large: 0.096\nm5.large/spot: 0.035\n")?;
    let prices = format!("--node-prices={}", file.path().display());
    let world =
        hooked_world_of_prompt_flags(&[&prices, "--policy-annotations=example.com/", "--policy-labels=example.com/"]).await?;
    for node in ["node-0", "node-1", "node-2", "node-3"] {
        let capacity = if node == "node-2" { "spot" } else { "on-demand" };
        let labels = json!({
            "karpenter.sh/capacity-type": capacity, "node.kubernetes.io/instance-type": "m5.large",
            "topology.kubernetes.io/zone": "zone-a", "example.com/owner": "somebody",
        });
        label_node(&world, node, labels).await?;
    }
    let mut web = with_spec(deployment("web", 4), "ephemeral", json!(false));
    web["metadata"]["annotations"] = json!({annotation::PRIORITY: "7"});
    web["spec"]["template"]["metadata"] = json!({
        "annotations": {"example.com/team": "web", "other.com/team": "x"}, "labels": {"example.com/tier": "gold"},
    });
    apply(&world, &web).await?;
    apply(&world, &autoscaler(4, 4)).await?;
    settled(&world, 4).await?;
    apply(&world, &deployment("other", 1)).await?;
    settled(&world, 5).await?;
    let jobs = queue(&world, "web", 2, Duration::from_secs(15))?;
    busy(&world, 2).await?;
    succeeded(&world, 2).await?;
    busy(&world, 0).await?;

    // The shipped policy asks for nothing.
    apply(&world, &autoscaler(3, 4)).await?;
    settled(&world, 4).await?;
    let told = newest(&world, "scale-down")?;
    let input = &told["input"];
    let parts = input["nodes"].as_array().into_iter().chain(input["candidates"].as_array()).flatten();
    let silent = parts.chain([input, &input["pool"]]).all(|part| attributes(part).is_empty());
    ensure!(silent && input["nodes"].as_array().is_some_and(|nodes| nodes.len() == 4), "{input:#}");

    apply(&world, &opinions("scale-down: {module: policy.js}", CURIOUS)).await?;
    let curious = json!({annotation::POLICIES: "opinions", annotation::PRIORITY: "7"});
    let patch = Patch::Merge(json!({"metadata": {"annotations": curious}}));
    api::<RunnerDeployment>(&world).patch("web", &PatchParams::default(), &patch).await?;
    opinions_decide(&world).await?;
    let nodes = world.nodes.as_ref().context("no nodes")?;
    let is_of_web = |name: &String| name.starts_with("web-");

    // One that has had no job fails, and the next one starts on the same node.
    let worked: BTreeSet<String> = jobs.iter().filter_map(|job| Some(world.github.job(*job)?.runner?.name)).collect();
    let failed = names(&world).await?.into_iter().find(|name| is_of_web(name) && !worked.contains(name)).context("one of web")?;
    let failed_on = nodes.node_of(NAMESPACE, &failed).context("its node")?;
    for node in ["node-0", "node-1", "node-2", "node-3"].into_iter().filter(|node| *node != failed_on) {
        nodes.cordon(node, true).await?;
    }
    nodes.crash(NAMESPACE, &failed, 3).await?;
    until::<Runner>(&world, "another one", |all| all.len() == 4 && all.iter().all(|one| one.name_any() != failed)).await?;
    settled(&world, 4).await?;
    let on_spot: BTreeSet<String> = nodes.pods_on("node-2").iter().map(|pod| pod.name_any()).filter(is_of_web).collect();
    let before = names(&world).await?;
    apply(&world, &autoscaler(2, 4)).await?;
    settled(&world, 3).await?;
    let gone: BTreeSet<String> = before.difference(&names(&world).await?).cloned().collect();
    let told = newest(&world, "scale-down")?;
    let input = &told["input"];
    ensure!(gone.len() == 1 && (on_spot.is_empty() || gone.is_subset(&on_spot)), "{gone:?} went, on the spot node: {on_spot:?}");

    let about: Vec<(&str, BTreeMap<&str, &str>)> = input["nodes"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|node| (node["name"].as_str().unwrap_or_default(), attributes(node)))
        .collect();
    ensure!(about.len() == 3 && about.iter().any(|(node, _)| *node == failed_on), "{input:#}");
    for (node, facts) in &about {
        let spot = *node == "node-2";
        ensure!(facts.get("capacity-type") == Some(&if spot { "spot" } else { "on-demand" }), "{node}: {facts:?}");
        ensure!(facts.get("price-per-hour") == Some(&if spot { "0.035" } else { "0.096" }), "{node}: {facts:?}");
        ensure!(facts.get("label:topology.kubernetes.io/zone") == Some(&"zone-a"), "{node}: {facts:?}");
        ensure!(!facts.contains_key("label:example.com/owner") && facts.contains_key("other-runners"), "{node}: {facts:?}");
        ensure!(facts.get("failures") == Some(&if *node == failed_on { "1" } else { "0" }), "{node}: {facts:?}");
        ensure!(
            facts.get("allocatable-cpu-millis").is_some_and(|cpu| cpu.parse::<u64>().is_ok_and(|cpu| cpu > 0)),
            "{node}: {facts:?}"
        );
    }
    let candidates: Vec<BTreeMap<&str, &str>> = input["candidates"].as_array().into_iter().flatten().map(attributes).collect();
    for facts in &candidates {
        ensure!(facts.get("example.com/team") == Some(&"web") && !facts.contains_key("other.com/team"), "{facts:?}");
        ensure!(facts.get("label:example.com/tier") == Some(&"gold"), "{facts:?}");
    }
    // Two have worked, and one may be gone by now.
    let worked = candidates.iter().filter(|facts| facts.get("last-job-repository") == Some(&"acme/app")).count();
    ensure!((1..=2).contains(&worked), "{input:#}");
    let pool = attributes(&input["pool"]);
    let of_pool = ["repository", "priority", "image-failures"].map(|key| pool.get(key).copied());
    ensure!(of_pool == [Some("acme/app"), Some("7"), Some("1")] && pool.contains_key("image"), "{pool:?}");
    let others =
        pool.iter().filter(|(key, _)| key.contains("other-") || key.contains("omitted-")).map(|(key, value)| (*key, *value));
    let expected = [("desired", "1"), ("online", "1"), ("busy", "0")];
    let expected = expected.map(|(key, value)| (format!("other-{key}:RunnerDeployment/other"), value));
    let expected = expected.iter().map(|(key, value)| (key.as_str(), *value)).chain([("other-pools", "1")]);
    ensure!(others.collect::<BTreeMap<_, _>>() == expected.collect(), "{pool:?}");
    ensure!(attributes(input) == BTreeMap::from([("waiting-jobs", "0")]), "{:?}", attributes(input));
    no_busy_kill(&world).await?;
    world.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn who_never_started_has_a_receipt_although_no_policy_was_asked() -> Result<()> {
    let mut world = brisk_world(&[], |_| {}).await?;
    let nodes = world.nodes.as_ref().context("no nodes")?;
    for node in ["node-0", "node-1", "node-2", "node-3"] {
        nodes.cordon(node, true).await?;
    }
    apply(&world, &deployment("web", 3)).await?;
    until::<Pod>(&world, "three pods", |all| all.len() == 3).await?;
    let before = names(&world).await?;
    scale(&world, "web", 1).await?;
    until::<Runner>(&world, "one runner", |all| all.len() == 1).await?;
    let operator = world.operator.as_mut().context("no operator")?;
    operator.kill9().await;
    operator_again(&mut world).await?;
    let left = names(&world).await?;
    let mut receipt = String::new();
    for gone in before.difference(&left) {
        let told = pacer(&world, &["explain", "runner", gone])?;
        told.contains(&["was told to go because only 1 runner was wanted and it had not started by then", "none was asked"])?;
        ensure!(told.well && !told.text.contains("policy replay"), "{told:#?}");
        let json = pacer(&world, &["explain", "runner", gone, "-o", "json"])?;
        let json: Value = serde_json::from_str(&json.text)?;
        let mut decisions = json["decisions"].as_array().into_iter().flatten();
        let removal = decisions.find(|told| told["fate"] == "removed").context("a removal")?;
        removal["receipt"].as_str().context("a receipt")?.clone_into(&mut receipt);
    }
    let again = pacer(&world, &["policy", "replay", &receipt])?;
    ensure!(!again.well && again.error.contains("no policy was asked"), "{again:#?}");
    let pool = pacer(&world, &["explain", "pool", "web"])?;
    pool.contains(&[
        "told to go before its start was seen web-",
        "ConfigMap actions-runner-system/pacer-policies, the cluster's default set, does not exist; if the operator runs with another --policies",
    ])?;
    let told_otherwise = pacer(&world, &["explain", "pool", "web", "--policies=ci/opinions"])?;
    told_otherwise.contains(&["ConfigMap ci/opinions, the cluster's default set, does not exist"])?;
    world.stop().await;
    Ok(())
}

async fn operator_again(world: &mut World) -> Result<()> {
    let operator = world.operator.as_mut().context("no operator")?;
    operator.restart().await?;
    operator.until_acting(PATIENCE).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_store_keeps_the_newest_within_its_bound_and_without_the_right_events_tell() -> Result<()> {
    const BYTES: usize = 6_000;
    let mut world = brisk_world(&["--receipts-per-pool=5", &format!("--receipts-bytes-per-pool={BYTES}")], |_| {}).await?;
    apply(&world, &deployment("web", 14)).await?;
    settled(&world, 14).await?;
    for left in (8..14).rev() {
        lower(&world, left).await?;
    }
    world.operator.as_ref().context("no operator")?.terminate().await;
    operator_again(&mut world).await?;
    let mut last = Vec::new();
    for left in (4..8).rev() {
        last = lower(&world, left).await?;
    }
    let fits = |object: &ConfigMap| {
        let sizes: Vec<usize> = object.binary_data.iter().flatten().map(|(_, bytes)| bytes.0.len()).collect();
        sizes.len() <= 5 && sizes.iter().sum::<usize>() <= BYTES
    };
    let [newest] = last.as_slice() else { panic!("{last:?} went") };
    let found = receipts(&world, "the newest receipt", |_| {
        pacer(&world, &["explain", "runner", newest]).is_ok_and(|told| told.text.contains("was removed"))
    })
    .await?;
    ensure!(
        found.len() == 1 && found.iter().all(fits),
        "{:?}",
        found.iter().map(|one| one.binary_data.iter().flatten().count()).collect::<Vec<_>>()
    );
    let gone =
        found.iter().filter_map(|object| object.annotations().get(annotation::RECEIPTS_GONE)?.parse::<u64>().ok()).sum::<u64>();
    ensure!(gone >= 4, "{gone} are said to be gone");
    let unknown = pacer(&world, &["explain", "runner", "web-of-last-year"])?;
    ensure!(!unknown.well && unknown.error.contains("older ones are gone"), "{unknown:#?}");

    // Without the right to make them: decided as before, and Events tell what they can.
    delete::<RunnerDeployment>(&world, "web").await?;
    receipts(&world, "no receipts", |all| all.is_empty()).await?;
    settled(&world, 0).await?;
    let removed = world.plane.kubectl(&["delete", "clusterrolebinding", "pacer-receipts"]).await?;
    ensure!(removed.status.success(), "{removed:?}");
    apply(&world, &deployment("web", 2)).await?;
    settled(&world, 2).await?;
    let gone = lower(&world, 1).await?;
    event(&world, "RunnerRemoved", |note| gone.iter().all(|name| note.contains(name.as_str()))).await?;
    let told = pacer(&world, &["explain", "runner", &gone[0]])?;
    ensure!(told.well, "{told:#?}");
    told.contains(&["is gone, and no receipt says why", "RunnerRemoved: removed runner"])?;
    no_busy_kill(&world).await?;
    world.stop().await;
    Ok(())
}

const DOCUMENT: &str = include_str!("../../../docs/policies.md");

/// The shell blocks of a section, one after the other.
fn commands(section: &str) -> String {
    let text = page::section(DOCUMENT, section).unwrap_or_else(|| panic!("no section {section}"));
    page::in_language(text, "sh").map(|commands| format!("{commands}\n")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tutorial_goes_on_in_the_cluster() -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    apply(&world, &deployment("web", 5)).await?;
    settled(&world, 5).await?;
    let directory = std::env::temp_dir().join(format!("pacer-tutorial-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let made = script(&world, &directory, &commands("Ten minutes to a policy of your own"))?;
    ensure!(made.well, "{made:#?}");
    let place = directory.join("keep-caches-warm");
    let applied = script(&world, &place, &commands("Into force"))?;
    ensure!(applied.well, "{applied:#?}");
    applied.contains(&["ConfigMap actions-runner-system/pacer-policies, the cluster's default"])?;
    let sets = Api::<ConfigMap>::namespaced(world.client.clone(), "actions-runner-system");
    let active = objects::until(sets, "", PATIENCE, |all| {
        all.iter().any(|set| {
            let status = set.annotations().get(annotation::POLICY_STATUS);
            status.is_some_and(|status| status.contains("\"Active\"") && status.contains("\"enforced\""))
        })
    })
    .await;
    world.check(active).await?;
    // On a starved machine a call may miss its deadline, and then the shipped policy decides instead; so it may take another.
    for left in (2..5).rev() {
        lower(&world, left).await?;
        receipts(&world, "the receipt", |all| keys(all, "scale-down.") > 4 - left as usize).await?;
        let newest = pacer(&world, &["policy", "receipts", "--decision", "scale-down", "--last", "1"])?;
        if newest.text.contains("keep-caches-warm") {
            break;
        }
    }
    let why = script(&world, &place, &commands("Why did it go?"))?;
    ensure!(why.well, "{why:#?}");
    why.contains(&[
        "was removed because fewer runners were wanted",
        "the cluster's default set, ConfigMap actions-runner-system/pacer-policies: Active",
        "scale-down: keep-caches-warm@sha256:",
        "the same",
        "0 failed",
        "answers are the same",
    ])?;
    std::fs::remove_dir_all(&directory)?;
    world.stop().await;
    Ok(())
}

/// The policy set of that name is in force.
/// The policy set `opinions`: what it says of decisions, and its text.
fn opinions(decisions: &str, text: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "opinions", "namespace": NAMESPACE},
        "data": {"policies.yaml": format!("{decisions}\n"), "policy.js": text},
    })
}

async fn opinions_decide(world: &World) -> Result<()> {
    let outcome = objects::until(api::<ConfigMap>(world), "", PATIENCE, |all| {
        let status = |object: &&ConfigMap| object.annotations().get(annotation::POLICY_STATUS).cloned().unwrap_or_default();
        all.iter().any(|object| object.name_any() == "opinions" && status(object).contains("\"Active\""))
    })
    .await;
    world.check(outcome).await.context("waiting for the policy that asks")?;
    Ok(())
}

/// What a round saw in which every answer came in time; the jobs of each are done after it. A call has a second by the clock, in which a machine that is
/// busy elsewhere may not run it. Then the shipped policy decides, and there is another round.
async fn in_time(world: &World, (before, each): (usize, usize), round: impl AsyncFn() -> Result<usize>) -> Result<usize> {
    let missed = async || figure(world, "pacer_policy_faults_total{kind=\"deadline\"}").await;
    for number in 1..=8 {
        let (at_first, seen) = (missed().await, round().await?);
        let is_in_time = missed().await == at_first;
        succeeded(world, before + number * each).await?;
        if is_in_time {
            return Ok(seen);
        }
        until::<Runner>(world, "no runner", |all| all.is_empty()).await?;
    }
    bail!("it always missed its deadline")
}

/// Keeps one runner for each job, and says of which branch it is.
const BRANCHES: &str = r#"
export const name = "branches";
export const reads = ["job"];
export function capacity({ jobs }) {
  const told = ({ attributes }, key) => attributes.find(([found]) => found === key)?.[1] ?? "unknown";
  const plan = jobs.filter((job) => job.state !== "completed").map((job) => ({
    id: `job-${job.id}`, jobs: [job.id], replicas: 1, effective: 0, expires: 600, reason: `${told(job, "branch")} by ${told(job, "actor")}`,
  }));
  return { reservations: plan };
}
"#;

/// Jobs of the newest question about a number.
fn asked_about(world: &World) -> Result<Vec<Value>> {
    let told = newest(world, "capacity")?;
    Ok(told["input"]["jobs"].as_array().cloned().unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_started_a_job_is_told_to_the_policy_that_asks_for_it_and_to_no_other() -> Result<()> {
    let world = hooked_world_of_prompt_flags(&[]).await?;
    apply(&world, &deployment("web", 0)).await?;
    apply(&world, &autoscaler(0, 4)).await?;

    // The shipped policy does not ask for it.
    queue(&world, "web", 1, Duration::from_secs(1))?;
    succeeded(&world, 1).await?;
    receipts(&world, "a receipt of the first job", |_| asked_about(&world).is_ok()).await?;
    let saved = pacer(&world, &["policy", "receipts", "--decision", "capacity", "-o", "json"])?;
    ensure!(saved.well && !saved.text.contains("octocat"), "{saved:#?}");

    apply(&world, &opinions("capacity: {module: policy.js}", BRANCHES)).await?;
    let patch = Patch::Merge(json!({"metadata": {"annotations": {annotation::POLICIES: "opinions"}}}));
    api::<RunnerDeployment>(&world).patch("web", &PatchParams::default(), &patch).await?;
    opinions_decide(&world).await?;
    // What happens all the time is written after half a minute, and the newest receipt is to be about this job.
    let job = queue(&world, "web", 1, Duration::from_secs(60))?;
    let [job] = job.as_slice() else { panic!("{job:?}") };
    let id = json!(job.0);
    let is_asked = || asked_about(&world).is_ok_and(|jobs| jobs.iter().any(|one| one["id"] == id));
    receipts(&world, "a receipt of the second job", |_| is_asked()).await?;
    let jobs = asked_about(&world)?;
    let told = jobs.iter().find(|one| one["id"] == id).map(attributes).unwrap_or_default();
    ensure!(told.get("branch") == Some(&"main") && told.get("actor") == Some(&"octocat"), "{told:?}");
    ensure!(told.get("run").is_some_and(|run| run.parse::<u64>().is_ok()), "{told:?}");
    // Webhooks do not say what started a run, and the job deploys nowhere.
    ensure!(!told.contains_key("event") && !told.contains_key("environment"), "{told:?}");
    let number = newest(&world, "capacity")?;
    ensure!(number.to_string().contains("main by octocat"), "{number:#}");
    succeeded(&world, 2).await?;
    no_busy_kill(&world).await?;
    world.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_reads_how_much_room_there_is_makes_no_more_pods_than_fit() -> Result<()> {
    let world = brisk_world(&[], |options| {
        receive(options);
        options.plane.audit = Audit::All;
        if let Some(nodes) = &mut options.nodes {
            nodes.pods_per_node = 2;
        }
    })
    .await?;
    hook(&world, Scope::repository("acme", "app"))?;
    grant_room(&world).await?;
    let spot = json!({"karpenter.sh/capacity-type": "spot", "node.kubernetes.io/instance-type": "m5.large"});
    label_node(&world, "node-2", spot).await?;
    let policy = include_str!("../../../examples/policies/text/fits-now.js");
    let set = opinions("capacity: {module: policy.js}", policy);
    let mut web = deployment("web", 0);
    web["metadata"]["annotations"] = json!({annotation::POLICIES: "opinions"});
    apply(&world, &web).await?;
    apply(&world, &autoscaler(0, 20)).await?;

    // Whom nobody asks for it, nobody looks for room.
    queue(&world, "web", 1, Duration::from_secs(1))?;
    succeeded(&world, 1).await?;
    until::<Runner>(&world, "no runner", |all| all.is_empty()).await?;
    let lists = world.operator_calls(None)?.count("list", "nodes");
    ensure!(lists == 0, "{lists} lists of nodes, and no policy asks for room");
    apply(&world, &set).await?;
    opinions_decide(&world).await?;
    let (since, began) = (Timestamp::now(), Instant::now());

    // Four nodes take two pods each. One more runner waits, and three jobs have none.
    let most = in_time(&world, (1, 12), async || {
        queue(&world, "web", 12, Duration::from_secs(20))?;
        let mut most = 0;
        until::<Runner>(&world, "nine runners, of which eight have a node", |all| {
            most = most.max(all.len());
            let placed = all.iter().filter(|runner| runner.status.as_ref().is_some_and(|status| status.node_name.is_some()));
            all.len() >= 9 && placed.count() == 8
        })
        .await?;
        Ok(most)
    });
    let most = most.await?;
    ensure!(most == 9, "{most} runners at once");
    let room = || {
        let told = newest(&world, "capacity").ok()?;
        let facts: BTreeMap<String, String> =
            attributes(&told["input"]["pool"]).into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        facts.contains_key("room-pods").then_some(facts)
    };
    receipts(&world, "a receipt that tells of room", |_| room().is_some()).await?;
    let facts = room().context("no receipt")?;
    let number = |text: &String| text.parse::<u32>().unwrap_or(u32::MAX);
    let by_shape: u32 = facts.iter().filter(|(key, _)| key.starts_with("room:")).map(|(_, pods)| number(pods)).sum();
    ensure!(number(&facts["room-pods"]) <= 8 && by_shape == number(&facts["room-pods"]), "{facts:?}");
    ensure!(number(&facts["room-claims"]) <= 9, "{facts:?}");
    ensure!(facts.get("room:m5.large/spot/-").is_none_or(|pods| number(pods) <= 2), "{facts:?}");
    let lists = world.operator_calls(Some(since))?.count("list", "nodes");
    ensure!((1..=1 + began.elapsed().as_secs() / 30 + 1).contains(&lists), "{lists} lists in {:?}", began.elapsed());
    no_busy_kill(&world).await?;
    world.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_is_told_of_the_others_of_its_namespace_and_leaves_room_for_a_more_important_one() -> Result<()> {
    let world = hooked_world_of_prompt_flags(&[]).await?;
    let policy = include_str!("../../../examples/policies/text/leave-room.js");
    apply(&world, &opinions("capacity: {module: policy.js, settings: {runners: 5}}", policy)).await?;
    let (mut web, mut deploy) = (deployment("web", 0), deployment("deploy", 0));
    web["metadata"]["annotations"] = json!({annotation::POLICIES: "opinions"});
    deploy["metadata"]["annotations"] = json!({annotation::PRIORITY: "9"});
    for object in [web, deploy, autoscaler(0, 20), prompt(patient_autoscaler("deploy-scaler", "deploy", 0, 8))] {
        apply(&world, &object).await?;
    }
    opinions_decide(&world).await?;

    // Four of the five runners are the important pool's while it works.
    let most = in_time(&world, (0, 10), async || {
        queue(&world, "deploy", 4, Duration::from_secs(60))?;
        until::<HorizontalRunnerAutoscaler>(&world, "four for the important pool", |all| {
            let mut wanted = all.iter().filter(|one| one.name_any() == "deploy-scaler");
            wanted.any(|one| one.status.as_ref().is_some_and(|status| status.desired_replicas == Some(4)))
        })
        .await?;
        queue(&world, "web", 6, Duration::from_secs(1))?;
        let (mut most, mut met) = (0, BTreeSet::new());
        until::<Runner>(&world, "three runners of the other pool, one after the other", |all| {
            let alive = all.iter().filter(|runner| runner.metadata.deletion_timestamp.is_none()).map(|runner| runner.name_any());
            let web: Vec<String> = alive.filter(|name| name.starts_with("web-")).collect();
            most = most.max(web.len());
            met.extend(web);
            met.len() >= 3
        })
        .await?;
        Ok(most)
    });
    let most = most.await?;
    ensure!(most == 1, "{most} runners of the pool that is less important at once");
    let told = || {
        let told = newest_of(&world, "capacity", &["--pool", "web"]).ok()?;
        let pool = attributes(&told["input"]["pool"]);
        let others = pool.iter().filter(|(key, _)| key.starts_with("other-"));
        let others: BTreeMap<String, String> = others.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        (!others.is_empty()).then_some(others)
    };
    receipts(&world, "a receipt that tells of the other pool", |_| told().is_some()).await?;
    let facts = told().context("no receipt")?;
    let keys =
        ["desired", "online", "busy", "max", "waiting", "priority"].map(|key| format!("other-{key}:RunnerDeployment/deploy"));
    let expected: BTreeSet<&String> = keys.iter().collect();
    ensure!(facts.keys().filter(|key| *key != "other-pools").collect::<BTreeSet<_>>() == expected, "{facts:?}");
    let fixed = [("other-pools", "1"), (&keys[3], "8"), (&keys[5], "9")];
    ensure!(fixed.iter().all(|(key, value)| facts.get(*key).is_some_and(|told| told == value)), "{facts:?}");
    // The important one asks for nothing, and is told nothing.
    let silent = newest_of(&world, "capacity", &["--pool", "deploy"])?;
    ensure!(attributes(&silent["input"]["pool"]).is_empty(), "{silent:#}");
    no_busy_kill(&world).await?;
    world.stop().await;
    Ok(())
}
