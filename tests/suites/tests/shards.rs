//! Several replicas act at once, each for its share of the namespaces, and hand shards over.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use pacer_api::{Runner, RunnerDeployment};
use pacer_core::shard::Shards;
use pacer_harness::controlplane::Apply;
use pacer_harness::github::{JobId, JobSpec, RouteKind, Scope};
use pacer_harness::objects;
use pacer_harness::operator::Operator;
use pacer_harness::world::World;
use pacer_suites::manifests::{kustomized, shipped};
use pacer_suites::{PATIENCE, end_as_it_is, page, runners, succeeded, world};
use serde_json::{Value, json};

/// Where the operators and their Leases are.
const OWN: &str = "actions-runner-system";
const LEASE: &str = "actions-runner-controller";

/// As shipped: how long others leave the Lease of a silent replica alone, and how often they look.
const DURATION: Duration = Duration::from_secs(15);
const RETRY: Duration = Duration::from_secs(2);

/// Listings at the start, and a first runner, on a machine that does other things as well.
const START: Duration = Duration::from_secs(5);

/// A shard that is handed over in order has nobody for this long, on such a machine.
const GAP: Duration = Duration::from_secs(4);

/// So many namespaces of each shard.
fn namespaces(shards: u16, of_each: usize) -> BTreeMap<String, u16> {
    let shards = Shards::new(shards).unwrap_or(Shards::ONE);
    let mut counts = BTreeMap::<u16, usize>::new();
    let mut found = BTreeMap::new();
    for name in (0..1_000).map(|number| format!("team-{number}")) {
        let count = counts.entry(shards.of(&name)).or_default();
        if *count < of_each {
            *count += 1;
            found.insert(name.clone(), shards.of(&name));
        }
    }
    found
}

/// A world with one replica of so many, shipped settings, and namespaces with a repository of the same name each.
async fn sharded(shards: u16, namespaces: &BTreeMap<String, u16>) -> Result<World> {
    let mut replica = None;
    let mut world = world(|options| replica = options.operator.take()).await?;
    let mut replica = replica.context("no operator's options")?;
    replica.args.clear();
    replica.args.push(format!("--shards={shards}"));
    world.plane.apply(&shipped("shards/rbac.yaml"), Apply::ServerSide).await?;
    for name in namespaces.keys() {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        world.plane.apply_text(&namespace.to_string(), Apply::ServerSide).await?;
        world.github.add(&Scope::repository("acme", name.as_str()));
    }
    world.operator = Some(Operator::start(&world.plane, &world.github, &replica).await?);
    let first = world.operator.as_ref().context("no operator")?;
    first.until_acting(PATIENCE).await?;
    Ok(world)
}

fn fleet(namespace: &str, replicas: usize) -> Value {
    json!({
        "apiVersion": "actions.summerwind.dev/v1alpha1",
        "kind": "RunnerDeployment",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "template": {"spec": {"repository": format!("acme/{namespace}"), "labels": ["web"]}},
        },
    })
}

async fn apply_fleets(world: &World, namespaces: impl Iterator<Item = &String>, replicas: usize) -> Result<()> {
    for namespace in namespaces {
        world.plane.apply_text(&fleet(namespace, replicas).to_string(), Apply::ClientSide).await?;
    }
    Ok(())
}

async fn scale(world: &World, namespace: &str, replicas: usize) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    let fleets = Api::<RunnerDeployment>::namespaced(world.client.clone(), namespace);
    fleets.patch_scale("web", &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Registered and connected at GitHub are so many, each with one Runner and one pod; nothing is on its way out.
async fn settled(world: &World, wanted: usize) -> Result<()> {
    let what = format!("{wanted} runners and nothing else");
    let all = |counts: pacer_harness::github::RunnerCounts| counts.online == wanted as u64 && counts.registered == wanted as u64;
    runners(world, &what, all).await?;
    let there = objects::until(Api::<Runner>::all(world.client.clone()), "", PATIENCE, |all: &[&Runner]| {
        all.len() == wanted && all.iter().all(|one| one.metadata.deletion_timestamp.is_none())
    });
    let outcome = there.await;
    world.check(outcome).await.with_context(|| what.clone())?;
    let there = objects::until(Api::<Pod>::all(world.client.clone()), "", PATIENCE, |all: &[&Pod]| {
        all.len() == wanted && all.iter().all(|one| one.metadata.deletion_timestamp.is_none())
    });
    let outcome = there.await;
    world.check(outcome).await.with_context(|| what.clone())?;
    runners(world, &what, all).await
}

/// Who holds which shard.
async fn holders(world: &World, shards: u16) -> Result<Vec<String>> {
    let leases = Api::<Lease>::namespaced(world.client.clone(), OWN);
    let mut holders = Vec::new();
    for shard in 0..shards {
        let lease = leases.get_opt(&format!("{LEASE}-shard-{shard}")).await?;
        holders.push(lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default());
    }
    Ok(holders)
}

/// Waits until the shards have so many holders, none of them nobody.
async fn held_by(world: &World, shards: u16, replicas: usize) -> Result<()> {
    let even = tokio::time::timeout(PATIENCE, async {
        loop {
            let found = holders(world, shards).await?;
            let all: BTreeSet<&String> = found.iter().collect();
            if all.len() == replicas && found.iter().all(|holder| !holder.is_empty()) {
                return anyhow::Ok(());
            }
            // Leases have no watcher here.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    even.await.with_context(|| format!("the shards are not held by {replicas} replicas"))?
}

/// The shards that an operator says it acts for.
async fn acts_for(operator: &Operator) -> Result<BTreeSet<u16>> {
    let text = operator.get("/metrics").await?;
    let ones = text.lines().filter_map(|line| line.strip_prefix("pacer_leading{shard=\"")?.strip_suffix("\"} 1")?.parse().ok());
    Ok(ones.collect())
}

/// Namespaces of the fleets that an operator tells of.
async fn tells_of(operator: &Operator) -> Result<BTreeSet<String>> {
    let text = operator.get("/metrics").await?;
    let of = |line: &str| {
        Some(line.strip_prefix("runnerdeployment_spec_replicas{")?.split_once("namespace=\"")?.1.split_once('"')?.0.to_owned())
    };
    Ok(text.lines().filter_map(of).collect())
}

/// When an operator said this of a shard last.
fn said(operator: &Operator, what: &str, shard: u16) -> Option<Timestamp> {
    let is_it = |entry: &Value| {
        let text = entry.get("message").and_then(Value::as_str);
        let of = entry.get("shard").or_else(|| entry.pointer("/fields/shard")).and_then(Value::as_u64);
        text == Some(what) && of == Some(u64::from(shard))
    };
    let last = operator.entries().into_iter().rfind(is_it)?;
    last.get("timestamp")?.as_str()?.parse().ok()
}

fn removals(world: &World) -> u64 {
    world.github.counts().get(&RouteKind::DeleteRunner).map_or(0, |count| count.requests)
}

fn queue(world: &World, namespace: &str, duration: Duration) -> Result<JobId> {
    Ok(world.github.queue_job(JobSpec::new(format!("acme/{namespace}"), ["web"]).lasting(duration))?)
}

#[tokio::test(flavor = "multi_thread")]
async fn manifests_with_the_component_have_the_rights_of_as_many_shards_as_there_may_be() -> Result<()> {
    let world = world(|options| {
        options.operator = None;
        options.nodes = None;
    })
    .await?;
    let readme = fs::read_to_string(shipped("README.md"))?;
    let shown = page::in_language(&readme, "yaml").find(|text| text.contains("<path to shards>")).context("no example")?;
    let (_, patches) = shown.split_once("patches:").context("no patches")?;
    let objects = kustomized(&world, &["base"], &["shards"], &format!("patches:{patches}")).await?;
    let one = |kind: &str, name: &str| {
        objects
            .iter()
            .find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
            .context(format!("{kind} {name}"))
    };
    let deployment = one("Deployment", "pacer")?;
    let arguments = deployment.pointer("/spec/template/spec/containers/0/args").and_then(Value::as_array).context("arguments")?;
    ensure!(deployment["spec"]["replicas"] == 3 && arguments.last() == Some(&json!("--shards=3")), "{deployment:#}");
    let names: Vec<String> = (0..Shards::MOST).map(|shard| format!("{LEASE}-shard-{shard}")).collect();
    let role = one("Role", "pacer-shards")?;
    ensure!(role["rules"][0]["resourceNames"] == json!(names), "{role:#}");
    end_as_it_is(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_act_for_their_shards_and_one_takes_over_when_the_other_is_killed() -> Result<()> {
    let all = namespaces(2, 2);
    let mut world = sharded(2, &all).await?;
    let first = world.operator.take().context("no operator")?;
    ensure!(acts_for(&first).await? == BTreeSet::from([0, 1]), "the first one is alone");
    let mut second = first.twin().await?;
    held_by(&world, 2, 2).await?;
    second.until_acting(PATIENCE).await?;
    let (mine, others) = (acts_for(&first).await?, acts_for(&second).await?);
    ensure!(mine.len() == 1 && others.len() == 1 && mine != others, "{mine:?} and {others:?}");

    // Both act.
    apply_fleets(&world, all.keys(), 4).await?;
    settled(&world, 16).await?;
    let of = |shards: &BTreeSet<u16>| -> BTreeSet<String> {
        all.iter().filter(|(_, shard)| shards.contains(shard)).map(|(name, _)| name.clone()).collect()
    };
    let told = (tells_of(&first).await?, tells_of(&second).await?);
    ensure!(told == (of(&mine), of(&others)), "{told:?}");
    ensure!(world.github.runners().ever_registered == 16, "{:?}", world.github.runners());

    // Another number of shards waits.
    let other_number = {
        let mut third = first.twin().await?;
        third.restart_with(&["--shards=3"]).await?;
        third
    };
    let waiting = tokio::time::timeout(PATIENCE, async {
        while !other_number.logs().contains("give all replicas the same --shards") {
            // Another process announces nothing.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    waiting.await.context("a replica with another number of shards does not say that it waits")?;
    ensure!(other_number.get("/readyz").await?.contains("standby"), "it is no standby");
    ensure!(acts_for(&other_number).await?.is_empty(), "it acts");
    other_number.terminate().await;

    // One is killed: its fleets are served within the lease's time.
    let lost = of(&mine);
    first.kill9().await;
    let killed = Instant::now();
    for namespace in &lost {
        scale(&world, namespace, 6).await?;
    }
    // When an agent that has registered listens is GitHub's matter: one in twenty updates itself first, for up to ten seconds.
    runners(&world, "the fleets of the one that was killed", |counts| counts.registered == 20).await?;
    let served = killed.elapsed();
    println!("{} fleets of a killed replica served after {:.1} s", lost.len(), served.as_secs_f64());
    settled(&world, 20).await?;
    ensure!(world.github.runners().ever_registered == 20, "made twice: {:?}", world.github.runners());
    ensure!(removals(&world) == 0, "{} removed", removals(&world));
    let limit = DURATION + RETRY + START;
    ensure!(served <= limit, "{served:?}, {limit:?} are allowed");
    ensure!(acts_for(&second).await? == BTreeSet::from([0, 1]), "it acts for all");

    // What goes, goes once.
    let mut first = first;
    first.restart().await?;
    held_by(&world, 2, 2).await?;
    for namespace in all.keys() {
        scale(&world, namespace, 1).await?;
    }
    settled(&world, 4).await?;
    ensure!(world.github.runners().ever_registered == 20, "made anew: {:?}", world.github.runners());
    ensure!(removals(&world) == 16, "{} removals of 16 runners", removals(&world));

    for namespace in all.keys() {
        scale(&world, namespace, 0).await?;
    }
    settled(&world, 0).await?;
    second.terminate().await;
    first.until_acting(PATIENCE).await?;
    first.terminate().await;
    second.restart().await?;
    // Everything was given back, so that nobody waits for anything.
    let began = Instant::now();
    second.until_acting(PATIENCE).await?;
    ensure!(began.elapsed() < DURATION, "leases were not given back: {:?}", began.elapsed());
    world.operator = Some(second);
    end_as_it_is(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_join_and_leave_under_load_and_no_job_is_lost() -> Result<()> {
    let all = namespaces(3, 2);
    let mut world = sharded(3, &all).await?;
    let first = world.operator.take().context("no operator")?;
    apply_fleets(&world, all.keys(), 2).await?;
    settled(&world, 2 * all.len()).await?;

    let mut jobs = 0;
    let mut burst = |world: &World| -> Result<usize> {
        for namespace in all.keys() {
            for _ in 0..3 {
                queue(world, namespace, Duration::from_secs(4))?;
                jobs += 1;
            }
        }
        Ok(jobs)
    };
    // Two more come amid jobs.
    burst(&world)?;
    let second = first.twin().await?;
    held_by(&world, 3, 2).await?;
    burst(&world)?;
    let third = first.twin().await?;
    held_by(&world, 3, 3).await?;
    for operator in [&second, &third] {
        operator.until_acting(PATIENCE).await?;
        for shard in acts_for(operator).await? {
            let given = [&first, &second, &third]
                .into_iter()
                .filter_map(|one| said(one, "giving the shard up for another replica", shard));
            let given = given.max().context("nobody gave it up")?;
            let acts = said(operator, "acting", shard).context("it does not say that it acts")?;
            let gap = Duration::try_from(acts.duration_since(given)).unwrap_or_default();
            println!("shard {shard} without anybody for {:.2} s", gap.as_secs_f64());
            ensure!(gap <= GAP, "shard {shard} was without anybody for {gap:?}");
        }
    }
    let count = burst(&world)?;
    succeeded(&world, count).await?;

    // Down to one: one ends in order, one is killed.
    burst(&world)?;
    second.terminate().await;
    burst(&world)?;
    third.kill9().await;
    let count = burst(&world)?;
    held_by(&world, 3, 1).await?;
    succeeded(&world, count).await?;
    settled(&world, 2 * all.len()).await?;
    ensure!(acts_for(&first).await? == BTreeSet::from([0, 1, 2]), "it acts for all");
    println!("{count} jobs, {} runners", world.github.runners().ever_registered);
    for namespace in all.keys() {
        scale(&world, namespace, 0).await?;
    }
    settled(&world, 0).await?;
    world.operator = Some(first);
    end_as_it_is(world).await
}
