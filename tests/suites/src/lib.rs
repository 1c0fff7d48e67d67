//! What the suites share: a world with the shipped manifests, and the words of a test about a fleet.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use pacer_api::runner_set::ClaimRetention;
use pacer_api::{JobLedger, Runner, RunnerDeployment, RunnerSet, job_ledger};
use pacer_harness::controlplane::Apply;
use pacer_harness::github::{JobId, JobSpec, RunnerCounts, Scope};
use pacer_harness::nodes::{Cause, Pace};
use pacer_harness::objects;
use pacer_harness::world::{Options, World};
use serde_json::{Value, json};

use self::manifests::{shipped, shipped_env};

pub mod arc;
pub mod ending;
pub mod fleet;
pub mod kill;
pub mod manifests;
pub mod page;
pub mod promtool;
pub mod recorder;
pub mod tenants;
pub mod webhook;

pub use ending::{delete_all, end, end_as_it_is, no_busy_kill, nothing_left};

/// Namespace of the fleets.
pub const NAMESPACE: &str = "default";

/// Long enough for anything that happens at all on a busy machine. Only a failure takes that long.
///
/// A node that is lost under a job takes longest, four minutes at worst: GitHub's flag is a minute late, every listing of a minute and a half has to
/// say then that the job is over, and listings and looks at the runner come each half a minute.
pub const PATIENCE: Duration = Duration::from_secs(360);

/// The chances of GitHub's conduct in this test: other ones in each test, and the same in every run of it.
fn seed() -> u64 {
    let mut hasher = DefaultHasher::new();
    // A test that moves to another suite keeps its chances.
    let thread = std::thread::current();
    thread.name().map(|name| name.split_once("::").map_or(name, |(_, test)| test)).hash(&mut hasher);
    hasher.finish()
}

/// A world of the shipped CRDs, roles and service account, and a repository `acme/app`. Its GitHub behaves like the real one.
///
/// # Errors
///
/// When a part of it does not start.
pub async fn world(change: impl FnOnce(&mut Options)) -> Result<World> {
    let mut options =
        Options { manifests: vec![shipped("base/namespace.yaml"), shipped("base/rbac.yaml")], ..Options::default() };
    // Enterprise Cloud's limit: the suites do in a minute what a fleet does in an hour.
    options.github.rate_limit = 15_000;
    options.github.behaviour.seed = seed();
    if let Some(operator) = &mut options.operator {
        operator.namespace = "actions-runner-system".to_owned();
        operator.log_level = "debug".to_owned();
        if let Ok(directives) = std::env::var("PACER_LOG") {
            operator.env.push(("RUST_LOG".to_owned(), directives));
        }
    }
    if let Some(nodes) = &mut options.nodes {
        nodes.pace = Pace::default();
    }
    change(&mut options);
    let receivers = options.receivers.as_mut().map(|receivers| &mut receivers.replica);
    for (process, deployment) in [(options.operator.as_mut(), "base/deployment.yaml"), (receivers, "webhook/deployment.yaml")] {
        if let Some(process) = process {
            process.env.splice(0..0, shipped_env(deployment)?);
        }
    }
    let world = World::start(options).await?;
    world.github.add(&Scope::repository("acme", "app"));
    Ok(world)
}

/// What kubectl prints.
///
/// # Errors
///
/// With its words, when it fails.
pub async fn kubectl(world: &World, arguments: &[&str]) -> Result<String> {
    let output = world.plane.kubectl(arguments).await?;
    ensure!(output.status.success(), "kubectl {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// A RunnerDeployment as people write it.
#[must_use]
pub fn deployment(name: &str, replicas: u32) -> Value {
    json!({
        "apiVersion": "actions.summerwind.dev/v1alpha1",
        "kind": "RunnerDeployment",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "replicas": replicas,
            "template": {"spec": {"repository": "acme/app", "labels": [name]}},
        },
    })
}

/// A HorizontalRunnerAutoscaler of the deployment of the same name. Webhooks tell it of jobs, and it lowers its number at once.
#[must_use]
pub fn autoscaler(name: &str, min: u32, max: u32) -> Value {
    prompt(patient_autoscaler(name, name, min, max))
}

/// A HorizontalRunnerAutoscaler of the deployment `target`. Webhooks tell it of jobs, and it lowers its number after the delay of those that set none.
#[must_use]
pub fn patient_autoscaler(name: &str, target: &str, min: u32, max: u32) -> Value {
    json!({
        "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "HorizontalRunnerAutoscaler",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "scaleTargetRef": {"name": target}, "minReplicas": min, "maxReplicas": max,
            "scaleUpTriggers": [{"githubEvent": {"workflowJob": {}}, "duration": "30m"}],
        },
    })
}

/// The same autoscaler, which lowers its number at once.
#[must_use]
pub fn prompt(autoscaler: Value) -> Value {
    put(autoscaler, "/spec", "scaleDownDelaySecondsAfterScaleOut", json!(0))
}

/// The same object with a field of its runners' spec set.
#[must_use]
pub fn with_spec(object: Value, field: &str, value: Value) -> Value {
    put(object, "/spec/template/spec", field, value)
}

/// The same object with a field set in the part that a JSON pointer leads to, which has to be there.
#[must_use]
pub fn put(mut object: Value, place: &str, field: &str, value: Value) -> Value {
    if let Some(part) = object.pointer_mut(place).and_then(Value::as_object_mut) {
        part.insert(field.to_owned(), value);
    }
    object
}

/// Applies an object with the real kubectl.
///
/// # Errors
///
/// When the API server refuses it.
pub async fn apply(world: &World, object: &Value) -> Result<()> {
    Ok(world.plane.apply_text(&object.to_string(), Apply::ClientSide).await?)
}

/// Objects in the fleets' namespace.
#[must_use]
pub fn api<K>(world: &World) -> Api<K>
where
    K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
{
    Api::namespaced(world.client.clone(), NAMESPACE)
}

/// Lets the operator list nodes and pods, as docs/policies.md says.
///
/// # Errors
///
/// When the API server refuses it, or the shipped roles are not there.
pub async fn grant_room(world: &World) -> Result<()> {
    let bindings: Api<ClusterRoleBinding> = Api::all(world.client.clone());
    let mut binding = bindings.get("pacer").await?;
    binding.metadata = serde_json::from_value(json!({"name": "pacer-room"}))?;
    binding.role_ref.name = "pacer-room".to_owned();
    bindings.create(&PostParams::default(), &binding).await?;
    Ok(())
}

/// Sets the wanted number through the scale subresource, as `kubectl scale` does.
///
/// # Errors
///
/// When the API server refuses.
pub async fn scale(world: &World, name: &str, replicas: u32) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    api::<RunnerDeployment>(world).patch_scale(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Changes the template of a deployment.
///
/// # Errors
///
/// When the API server refuses.
pub async fn change_template(world: &World, name: &str, spec: &Value) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": {"template": {"spec": spec}}}));
    api::<RunnerDeployment>(world).patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Waits until GitHub's true state of its runners is as wanted.
///
/// # Errors
///
/// With the state of the world, when it is not in time.
pub async fn runners(world: &World, what: &str, reached: impl Fn(RunnerCounts) -> bool) -> Result<()> {
    let outcome = world.github.wait_for(PATIENCE, |view| reached(view.runners())).await;
    world.check(outcome).await.with_context(|| format!("waiting for {what}"))?;
    Ok(())
}

/// Waits until so many jobs run.
///
/// # Errors
///
/// With the state of the world, when they do not in time.
pub async fn running(world: &World, count: usize) -> Result<()> {
    let outcome = world.github.wait_for(PATIENCE, |view| view.jobs().in_progress == count as u64).await;
    world.check(outcome).await.with_context(|| format!("waiting for {count} running jobs"))?;
    Ok(())
}

/// A figure of `/metrics`, named with its labels; zero before the first one.
pub async fn figure(world: &World, name: &str) -> u64 {
    let text = match &world.operator {
        Some(operator) => operator.metrics().await.unwrap_or_default(),
        None => String::new(),
    };
    // A figure without labels has an empty list of them.
    let lines = text.lines().map(|line| line.replace("{}", ""));
    lines.filter_map(|line| line.strip_prefix(name)?.trim().parse().ok()).max().unwrap_or_default()
}

/// Waits until so many jobs have succeeded.
///
/// # Errors
///
/// With the state of the world, when they have not in time.
pub async fn succeeded(world: &World, count: usize) -> Result<()> {
    let outcome = world.github.wait_for(PATIENCE, |view| view.jobs().succeeded == count as u64).await;
    world.check(outcome).await.with_context(|| format!("waiting for {count} jobs to succeed"))?;
    Ok(())
}

/// Queues jobs for a fleet.
///
/// # Errors
///
/// When GitHub has no such repository.
pub fn queue(world: &World, label: &str, count: usize, duration: Duration) -> Result<Vec<JobId>> {
    (0..count).map(|_| Ok(world.github.queue_job(JobSpec::new("acme/app", [label]).lasting(duration))?)).collect()
}

/// Waits until the objects of a kind are as wanted.
///
/// # Errors
///
/// With the state of the world, when they are not in time.
pub async fn until<K>(world: &World, what: &str, reached: impl FnMut(&[&K]) -> bool) -> Result<Vec<K>>
where
    K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + serde::de::DeserializeOwned
        + std::fmt::Debug
        + Send
        + 'static,
{
    let outcome = objects::until(api::<K>(world), "", PATIENCE, reached).await;
    world.check(outcome).await.with_context(|| format!("waiting for {what}"))
}

/// Waits until no autoscaler knows a job that is not over.
///
/// # Errors
///
/// With the state of the world, when one does for too long.
pub async fn no_open_jobs(world: &World) -> Result<()> {
    until::<JobLedger>(world, "no open jobs", |all| job_ledger::read(all.iter().map(|one| &one.spec)).open().next().is_none())
        .await?;
    Ok(())
}

/// Selects the Secrets with registration tokens.
pub const TOKENS: &str = "actions.summerwind.dev/registration-token=true";

/// Deletes an object and leaves the rest to the garbage collector.
///
/// # Errors
///
/// When the API server refuses.
pub async fn delete<K>(world: &World, name: &str) -> Result<()>
where
    K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + serde::de::DeserializeOwned
        + std::fmt::Debug,
{
    api::<K>(world).delete(name, &DeleteParams::background()).await?;
    Ok(())
}

/// Notes of the events with this reason.
///
/// # Errors
///
/// When they can't be listed.
pub async fn events(world: &World, reason: &str) -> Result<Vec<String>> {
    let events = api::<k8s_openapi::api::events::v1::Event>(world).list(&ListParams::default()).await?;
    Ok(events.into_iter().filter(|event| event.reason.as_deref() == Some(reason)).filter_map(|event| event.note).collect())
}

/// The only object of a list.
///
/// # Errors
///
/// When there are more or none.
pub fn only<K: ResourceExt>(mut objects: Vec<K>) -> Result<K> {
    ensure!(objects.len() == 1, "one object expected, found {:?}", objects.iter().map(ResourceExt::name_any).collect::<Vec<_>>());
    objects.pop().context("one object expected")
}

/// Busy kills of one cause.
#[must_use]
pub fn kills(world: &World, cause: &Cause) -> usize {
    world.nodes.as_ref().map_or(0, |nodes| nodes.busy_kills().iter().filter(|kill| kill.cause == *cause).count())
}

/// A timer that is shorter than as shipped, in tests that go through many steps: what nothing tells of is looked at every three seconds
/// instead of once a minute. Tests in which a wake-up could be missed have the shipped one, and so has all of it that is built with
/// `make suites SUITES_SYNC_PERIOD=--sync-period=1m`: then the suites take ten minutes longer.
pub const BRISK: [&str; 1] = [match option_env!("SUITES_SYNC_PERIOD") {
    Some(argument) => argument,
    None => "--sync-period=3s",
}];

/// Clocks of the lease that are slower than as shipped, where a test keeps the leader or the API server away for longer than a lease lasts. A process
/// that loses its lease ends; in a cluster the kubelet starts it again.
pub const PATIENT_LEASE: [&str; 2] = ["--lease-duration=120s", "--lease-renew-deadline=100s"];

/// A world whose operator is started with these further arguments.
///
/// # Errors
///
/// When a part of it does not start.
pub async fn world_with(arguments: &[&str], change: impl FnOnce(&mut Options)) -> Result<World> {
    world(|options| {
        if let Some(operator) = &mut options.operator {
            operator.args.extend(arguments.iter().map(|&argument| argument.to_owned()));
        }
        change(options);
    })
    .await
}

/// The same with [a short timer](BRISK).
///
/// # Errors
///
/// When a part of it does not start.
pub async fn brisk_world(arguments: &[&str], change: impl FnOnce(&mut Options)) -> Result<World> {
    world_with(&[&BRISK[..], arguments].concat(), change).await
}

/// Waits until there are exactly so many runners everywhere: registered and connected, with one Runner and one pod each, nothing on its way out.
///
/// # Errors
///
/// With the state of the world, when it does not settle in time.
pub async fn settled(world: &World, wanted: usize) -> Result<()> {
    let what = format!("{wanted} runners and nothing else");
    runners(world, &what, |counts| counts.online == wanted as u64 && counts.registered == wanted as u64).await?;
    until::<Runner>(world, &what, |all| all.len() == wanted && all.iter().all(|one| one.metadata.deletion_timestamp.is_none()))
        .await?;
    until::<Pod>(world, &what, |all| all.len() == wanted && all.iter().all(|one| one.metadata.deletion_timestamp.is_none()))
        .await?;
    runners(world, &what, |counts| counts.online == wanted as u64 && counts.registered == wanted as u64).await?;
    claims_settled(world).await
}

/// Waits until the runners of every RunnerSet have claims of their own, and those that keep no others have no others.
async fn claims_settled(world: &World) -> Result<()> {
    let sets = api::<RunnerSet>(world).list(&ListParams::default()).await?.items;
    for set in sets.iter().filter(|set| set.spec.stateful.volume_claim_templates.is_some()) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let used = claims_in_use(world, &set.name_any()).await?;
            let outcome =
                objects::until(api::<PersistentVolumeClaim>(world), "", GLANCE, |all| are_settled(set, all, &used)).await;
            match outcome {
                // A job may have ended meanwhile, and another runner may have come.
                Err(_) if Instant::now() < deadline => {}
                outcome => {
                    world
                        .check(outcome)
                        .await
                        .with_context(|| format!("waiting for {used:?} as the claims of {}", set.name_any()))?;
                    break;
                }
            }
        }
    }
    Ok(())
}

/// So long claims are compared with the same pods.
const GLANCE: Duration = Duration::from_secs(10);

/// The claims of a RunnerSet's pods, one as often as there are pods with it.
async fn claims_in_use(world: &World, set: &str) -> Result<Vec<String>> {
    let pods = api::<Pod>(world).list(&ListParams::default().labels(&format!("runnerset-name={set}"))).await?;
    let volumes = pods.items.into_iter().flat_map(|pod| pod.spec.unwrap_or_default().volumes.unwrap_or_default());
    let mut used: Vec<String> = volumes.filter_map(|volume| Some(volume.persistent_volume_claim?.claim_name)).collect();
    used.sort_unstable();
    Ok(used)
}

/// Whether these claims in use are the RunnerSet's, bound and each in use once, and whether others are there only if it keeps others.
fn are_settled(set: &RunnerSet, claims: &[&PersistentVolumeClaim], used: &[String]) -> bool {
    let of_set = |claim: &&&PersistentVolumeClaim| claim.labels().get("runnerset-name") == Some(&set.name_any());
    let is_bound = |claim: &&PersistentVolumeClaim| {
        let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
        claim.metadata.deletion_timestamp.is_none() && phase == Some("Bound")
    };
    let (bound, others): (Vec<&PersistentVolumeClaim>, Vec<_>) = claims.iter().filter(of_set).copied().partition(is_bound);
    let mut there: Vec<String> = bound.into_iter().map(ResourceExt::name_any).collect();
    there.sort_unstable();
    if set.spec.claims_when_scaled() == ClaimRetention::Delete {
        return there == used && others.is_empty();
    }
    used.iter().zip(used.iter().skip(1)).all(|(one, next)| one != next) && used.iter().all(|claim| there.contains(claim))
}

/// Waits until so many runners of one scope are registered and connected, and no others are registered there.
///
/// # Errors
///
/// With the state of the world, when it is not so in time.
pub async fn online_in(world: &World, scope: &Scope, wanted: usize) -> Result<()> {
    let reached = |view: &pacer_harness::github::View<'_>| {
        let registered = view.registrations(scope);
        registered.len() == wanted && registered.iter().all(|runner| runner.online)
    };
    let outcome = world.github.wait_for(PATIENCE, reached).await;
    world.check(outcome).await.with_context(|| format!("waiting for {wanted} runners in {scope}"))?;
    Ok(())
}

/// Waits for an event with this reason whose note is as wanted.
///
/// # Errors
///
/// With the state of the world, when there is none in time.
pub async fn event(world: &World, reason: &str, wanted: impl Fn(&str) -> bool) -> Result<()> {
    until::<k8s_openapi::api::events::v1::Event>(world, &format!("an event {reason}"), |events| {
        events.iter().any(|event| event.reason.as_deref() == Some(reason) && wanted(event.note.as_deref().unwrap_or_default()))
    })
    .await?;
    Ok(())
}
