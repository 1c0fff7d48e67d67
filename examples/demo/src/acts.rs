//! What the demo shows, one act per claim or two. Each leaves the fleet as the next one expects it.

mod forecast;
mod swap;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use kube::{Resource, ResourceExt};
use pacer_api::condition::{self, ConditionType};
use pacer_api::names::annotation;
use pacer_api::{HorizontalRunnerAutoscaler, Runner, RunnerDeployment, RunnerReplicaSet, RunnerSet};
use pacer_harness::github::{Hook, Scope, View};
use pacer_harness::nodes::Stage as PodStage;
use serde_json::{Value, json};

use self::forecast::Recording;
pub(crate) use self::forecast::forecast;
pub(crate) use self::swap::swap;
use crate::manifest::Manifests;
use crate::proof::{Claim, Proofs};
use crate::stage::{FLEET, FLEET_LABEL, NAMESPACE, REPOSITORY, Stage, fleet, fleet_is, is_of, is_of_fleet, progress, registered};

/// The fleet's size before and after the scale-down, and how many of it are busy meanwhile.
const LARGE: usize = 30;
const SMALL: usize = 12;
const BUSY: usize = 5;

/// Jobs that outlast a scale-down, and jobs that outlast the exchange of idle runners in a rollout.
const LONG: Duration = Duration::from_secs(16);
const ROLLOUT_JOBS: usize = 8;
const ROLLOUT_JOB: Duration = Duration::from_secs(10);

/// Secret of the webhooks.
pub(crate) const WEBHOOK_SECRET: &str = "the demo's own";

/// Jobs on demand, their label, which is also the name of their fleet, how long they take, and how many runners there may be for them.
const ON_DEMAND: usize = 12;
const ON_DEMAND_LABEL: &str = "example-webhook";
const ON_DEMAND_JOB: Duration = Duration::from_secs(2);
const ON_DEMAND_MAXIMUM: usize = 6;

/// The RunnerDeployment one of whose runners crashes.
const CRASHING: &str = "repository";

/// How soon a crashed runner's place is filled again. The shipped policy lets ten seconds pass where one ended soon after its start.
const REPLACED_WITHIN: Duration = Duration::from_secs(20);

/// Everything in `examples/` is applied, and all of its runners come online.
pub(crate) async fn examples(stage: &Stage<'_>, manifests: &Manifests, proofs: &mut Proofs) -> Result<()> {
    manifests.prepare(&stage.world.plane, &stage.world.github, stage.terminal).await?;
    let begun = Instant::now();
    stage.show(&stage.kubectl_on(&["apply"], &manifests.directory().to_string_lossy(), "examples/").await?);
    stage
        .objects::<RunnerDeployment>("every RunnerDeployment to be Ready", |all| {
            !all.is_empty() && all.iter().all(|one| is_ready(one))
        })
        .await?;
    let wanted = wanted(stage).await?;
    stage.github(&format!("{wanted} runners online"), |view| view.runners().online == u64::from(wanted)).await?;
    let took = begun.elapsed();
    stage.show(&stage.kubectl(&["get", "runnerdeployments"]).await?);
    let counts = stage.world.github.runners();
    proofs.record(
        Claim::ExamplesOnline,
        counts.registered == u64::from(wanted),
        format!("{} of {wanted} runners online after {:.1} s", counts.online, took.as_secs_f64()),
    );
    Ok(())
}

fn is_ready(deployment: &RunnerDeployment) -> bool {
    let Some(status) = &deployment.status else { return false };
    status.observed_generation == deployment.metadata.generation && condition::holds(&status.conditions, ConditionType::Ready)
}

/// How many runners the applied objects ask for.
async fn wanted(stage: &Stage<'_>) -> Result<u32> {
    let everything = ListParams::default();
    let mut wanted: u32 =
        stage.api::<RunnerDeployment>().list(&everything).await?.iter().map(|one| one.spec.replicas_or_default()).sum();
    let sets = stage.api::<RunnerReplicaSet>().list(&everything).await?;
    wanted += sets.iter().filter(|set| is_free(*set)).map(|set| set.spec.replicas_or_default()).sum::<u32>();
    wanted += stage.api::<RunnerSet>().list(&everything).await?.iter().map(|set| set.spec.replicas_or_default()).sum::<u32>();
    let alone = stage.api::<Runner>().list(&everything).await?.iter().filter(|runner| is_free(*runner)).count();
    Ok(wanted + u32::try_from(alone)?)
}

fn is_free(object: &impl Resource) -> bool {
    object.owner_references().is_empty()
}

/// Jobs run, and what they used up is made again, once.
pub(crate) async fn jobs(stage: &Stage<'_>, proofs: &mut Proofs) -> Result<()> {
    let runners = stage.world.github.runners().online;
    let known: BTreeSet<String> = stage.nodes.lives().into_iter().map(|life| life.uid).collect();
    let lasting = Duration::from_secs(2);
    let mut queued = stage.queue(6, &["self-hosted"], lasting)?;
    queued.extend(stage.queue(2, &["self-hosted", "linux", "large"], lasting)?);
    // One runner has both, one after the other.
    queued.extend(stage.queue(2, &["self-hosted", "persistent"], lasting / 2)?);
    let count = queued.len();
    stage.github(&format!("{count} finished jobs"), |view| progress(view, &queued).1 == count).await?;
    proofs.record(Claim::JobsSucceed, true, format!("{count} of {count} jobs succeeded"));
    stage.github(&format!("{runners} runners online again"), |view| view.runners().online == runners).await?;

    // Runners that stay may have several jobs each, whose end costs no pod.
    let staying: BTreeSet<String> = stage
        .api::<Runner>()
        .list(&ListParams::default())
        .await?
        .into_iter()
        .filter(|runner| !runner.spec.config.is_ephemeral())
        .map(|runner| runner.name_any())
        .collect();
    let lives = stage.nodes.lives();
    let made = lives.iter().filter(|life| !known.contains(&life.uid)).count();
    let used: Vec<usize> =
        lives.iter().filter(|life| !staying.contains(&life.name)).map(|life| life.jobs.len()).filter(|jobs| *jobs > 0).collect();
    proofs.record(
        Claim::OneRunnerPerJob,
        made == used.len() && used.iter().all(|jobs| *jobs == 1),
        format!("{made} new runners for {} jobs on ephemeral ones", used.iter().sum::<usize>()),
    );
    Ok(())
}

/// The fleet grows, some of it gets busy, and it shrinks by idle runners only. A runner of another fleet crashes meanwhile.
pub(crate) async fn scaling(stage: &Stage<'_>, proofs: &mut Proofs) -> Result<()> {
    let (few, seen) = (stage.fleet().len(), stage.nodes.tally().seen());
    let begun = Instant::now();
    scale(stage, LARGE).await?;
    stage.github(&format!("{LARGE} runners of the fleet online"), |view| fleet_is(view, LARGE)).await?;
    let took = begun.elapsed();
    let made = stage.nodes.tally().seen() - seen;
    proofs.record(
        Claim::ScaleUp,
        made == LARGE - few,
        format!("{few} to {LARGE} online in {:.1} s by {made} new pods", took.as_secs_f64()),
    );

    let jobs = stage.queue(BUSY, &["self-hosted", FLEET_LABEL], LONG)?;
    stage.github("all of them to run", |view| progress(view, &jobs).0 == BUSY).await?;
    stage
        .objects::<RunnerReplicaSet>("the status to show who is busy", |sets| {
            sets.iter().filter(|set| is_of_fleet(&set.name_any())).any(|set| {
                let status = set.status.as_ref();
                status.and_then(|status| status.busy_replicas).and_then(|busy| usize::try_from(busy).ok()) == Some(BUSY)
            })
        })
        .await?;
    let before: BTreeSet<String> = stage.fleet().into_iter().map(|runner| runner.name).collect();
    // Each takes some ten seconds, in which an idle runner has to stay idle and a crashed one is not replaced yet.
    let (took, crash) = tokio::try_join!(shrink_to(stage, SMALL), crash(stage))?;
    proofs.record(
        Claim::CrashReplaced,
        crash.took <= REPLACED_WITHIN && crash.explained,
        format!("{:.1} s, at most {} s allowed", crash.took.as_secs_f64(), REPLACED_WITHIN.as_secs()),
    );
    let after: BTreeSet<String> = stage.fleet().into_iter().map(|runner| runner.name).collect();
    let removed: BTreeSet<String> = before.difference(&after).cloned().collect();
    let (running, succeeded) = stage.progress(&jobs);
    let refused = stage.world.github.busy_deletes_refused();
    proofs.record(
        Claim::ScaleDownOnlyIdle,
        running + succeeded == BUSY && refused == 0,
        format!("{LARGE} to {SMALL} in {:.1} s with {running} busy, {refused} busy ones asked", took.as_secs_f64()),
    );
    reasons(stage, &removed, proofs).await
}

/// Shrinks the fleet, and says how long that took.
async fn shrink_to(stage: &Stage<'_>, size: usize) -> Result<Duration> {
    let begun = Instant::now();
    scale(stage, size).await?;
    stage.github(&format!("{size} runners left"), |view| fleet(view).len() == size).await?;
    Ok(begun.elapsed())
}

async fn scale(stage: &Stage<'_>, replicas: usize) -> Result<()> {
    stage.kubectl(&["scale", "runnerdeployment", FLEET, &format!("--replicas={replicas}")]).await.map(drop)
}

/// Events tell about some of many removals, the log about all of them.
async fn reasons(stage: &Stage<'_>, removed: &BTreeSet<String>, proofs: &mut Proofs) -> Result<()> {
    // Their objects go after their reasons were told.
    stage
        .objects::<Runner>("the removed Runners to be gone", |all| all.iter().all(|runner| !removed.contains(&runner.name_any())))
        .await?;
    let events = stage.api::<Event>().list(&ListParams::default()).await?;
    let told = events.into_iter().filter(|event| event.reason.as_deref() == Some("RunnerRemoved"));
    let notes: Vec<String> = told.filter_map(|event| event.note).collect();
    let complete = !notes.is_empty() && notes.iter().all(|note| note.contains("idle") && note.contains("; policy "));
    let explained = removals(stage, removed)?;
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for removal in explained.values() {
        *reasons.entry(format!("{}; policy {}", removal.reason, removal.policy)).or_default() += 1;
    }
    for (reason, count) in &reasons {
        stage.terminal.say(&format!("removed {count}: {reason}"));
    }
    proofs.record(
        Claim::ScaleDownReasons,
        complete && explained.len() == removed.len(),
        format!("{} of {} explained in the log, {} Events", explained.len(), removed.len(), notes.len()),
    );
    Ok(())
}

/// Why a runner was removed, as the operator's log tells it.
struct Removal {
    reason: String,
    policy: String,
}

/// Those of these runners whose removal the log explains.
fn removals(stage: &Stage<'_>, removed: &BTreeSet<String>) -> Result<BTreeMap<String, Removal>> {
    let operator = stage.world.operator.as_ref().context("the world has no operator")?;
    let text =
        |entry: &Value, field: &str| entry.get(field).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
    let entries = operator.entries();
    let told = entries.iter().filter(|entry| text(entry, "message").as_deref() == Some("runner removed"));
    let told = told.filter_map(|entry| {
        Some((text(entry, "runner")?, Removal { reason: text(entry, "reason")?, policy: text(entry, "policy")? }))
    });
    Ok(told.filter(|(runner, _)| removed.contains(runner)).collect())
}

/// Waits for what the operator says on a policy set.
async fn policy_status(stage: &Stage<'_>, set: &str, what: &str, reached: impl Fn(&Value) -> bool) -> Result<Value> {
    let read = |object: &ConfigMap| -> Option<Value> {
        let is_it = object.name_any() == set;
        serde_json::from_str(object.annotations().get(annotation::POLICY_STATUS).filter(|_| is_it)?).ok()
    };
    let all = stage.objects::<ConfigMap>(what, |all| all.iter().filter_map(|object| read(object)).any(|it| reached(&it))).await?;
    all.iter().find_map(read).context("the status is there")
}

/// What became of a crash.
struct Crash {
    took: Duration,
    /// Whether an Event names the runner and its exit code.
    explained: bool,
}

/// A runner's process dies, and another one takes its place.
async fn crash(stage: &Stage<'_>) -> Result<Crash> {
    let lives = stage.nodes.lives();
    let victim = lives
        .iter()
        .find(|life| life.stage == PodStage::Idle && is_of(CRASHING, &life.name))
        .with_context(|| format!("no runner of {CRASHING} is idle"))?;
    let online = |view: &View<'_>| {
        let all = registered(view, CRASHING).into_iter();
        all.filter(|runner| runner.online).map(|runner| runner.name).collect::<Vec<_>>()
    };
    let count = stage.world.github.view(online).len();
    stage.terminal.say(&format!("the process of runner {} dies with exit code 1", victim.name));
    let begun = Instant::now();
    stage.nodes.crash(&victim.namespace, &victim.name, 1).await?;
    stage
        .github("a replacement", |view| {
            let names = online(view);
            names.len() == count && !names.contains(&victim.name)
        })
        .await?;
    let took = begun.elapsed();
    let events = stage
        .objects::<Event>("an Event about it", |events| {
            events.iter().any(|event| tells_of(event, "RunnerReplaced", &victim.name))
        })
        .await?;
    let explained = events.iter().any(|event| tells_of(event, "RunnerReplaced", "exit code 1"));
    Ok(Crash { took, explained })
}

fn tells_of(event: &Event, reason: &str, what: &str) -> bool {
    event.reason.as_deref() == Some(reason) && event.note.as_deref().is_some_and(|note| note.contains(what))
}

/// The template changes while some runners are busy.
pub(crate) async fn rollout(stage: &Stage<'_>, proofs: &mut Proofs) -> Result<()> {
    stage
        .github("the long jobs to end and the fleet to be complete", |view| view.jobs().in_progress == 0 && fleet_is(view, SMALL))
        .await?;
    let jobs = stage.queue(ROLLOUT_JOBS, &["self-hosted", FLEET_LABEL], ROLLOUT_JOB)?;
    stage.github("all of them to run", |view| progress(view, &jobs).0 == ROLLOUT_JOBS).await?;
    let deployment = stage.api::<RunnerDeployment>().get(FLEET).await?;
    let surge = deployment.spec.max_surge_or_default(u32::try_from(SMALL)?);
    let bound = SMALL + usize::try_from(surge)?;
    let held_by: Vec<Option<String>> = stage.world.github.view(|view| jobs.iter().map(|id| holder(view.job(*id))).collect());

    let begun = Instant::now();
    let revision = "DEMO_REVISION";
    let patch = json!({"spec": {"template": {"spec": {"env": [{"name": revision, "value": "2"}]}}}}).to_string();
    stage.kubectl(&["patch", "runnerdeployment", FLEET, "--type=merge", &format!("--patch={patch}")]).await?;
    let is_new = |runner: &Runner| runner.spec.pod.env.iter().flatten().any(|variable| variable.name == revision);
    let mut most = 0;
    let mut idle_exchanged: Option<Duration> = None;
    stage
        .objects::<Runner>("the fleet to be of the new template", |all| {
            let fleet = all.iter().filter(|runner| is_of_fleet(&runner.name_any()));
            let alive: Vec<_> = fleet.clone().filter(|runner| runner.metadata.deletion_timestamp.is_none()).collect();
            most = most.max(alive.len());
            let new = alive.iter().filter(|runner| is_new(runner)).count();
            if new >= SMALL - ROLLOUT_JOBS && alive.len() - new <= ROLLOUT_JOBS && idle_exchanged.is_none() {
                idle_exchanged = Some(begun.elapsed());
            }
            new == SMALL && fleet.count() == SMALL
        })
        .await?;
    stage.github(&format!("{SMALL} runners of the fleet online"), |view| fleet_is(view, SMALL)).await?;
    let took = begun.elapsed();
    let exchanged = idle_exchanged.map_or(String::new(), |at| format!(", idle ones after {:.1} s", at.as_secs_f64()));
    proofs.record(
        Claim::RolloutSurge,
        most <= bound,
        format!("{SMALL} exchanged in {:.1} s{exchanged}, never more than {most} of {bound}", took.as_secs_f64()),
    );
    stage.github("the jobs to end", |view| progress(view, &jobs).1 == ROLLOUT_JOBS).await?;
    let finished_by: Vec<Option<String>> = stage.world.github.view(|view| jobs.iter().map(|id| holder(view.job(*id))).collect());
    let refused = stage.world.github.busy_deletes_refused();
    proofs.record(
        Claim::RolloutSparesBusy,
        held_by == finished_by && held_by.iter().all(Option::is_some) && refused == 0,
        format!("{ROLLOUT_JOBS} of {ROLLOUT_JOBS} jobs finished where they began"),
    );
    Ok(())
}

fn holder(job: Option<&pacer_harness::github::Job>) -> Option<String> {
    job?.runner.as_ref().map(|runner| runner.name.clone())
}

/// Jobs for which no runner exists: their webhooks bring one each, and when they are over nothing is left idle. Returns their trace.
pub(crate) async fn demand(stage: &Stage<'_>, manifests: &Manifests, proofs: &mut Proofs) -> Result<PathBuf> {
    stage.show(&stage.kubectl_on(&["apply"], &on_demand(manifests), ON_DEMAND_FILE).await?);
    let patch = json!({"spec": {"maxReplicas": ON_DEMAND_MAXIMUM}}).to_string();
    stage.kubectl(&["patch", "hra", ON_DEMAND_LABEL, "--type=merge", &format!("--patch={patch}")]).await?;
    let address = stage.world.operator.as_ref().and_then(|operator| operator.webhook_address());
    let url = format!("http://{}/", address.context("the operator announced no address for webhooks")?);
    let owner = REPOSITORY.parse::<Scope>().map_err(|error| anyhow::anyhow!("{REPOSITORY}: {error:?}"))?;
    stage.world.github.add_hook(Hook { owner: owner.into(), url, secret: WEBHOOK_SECRET.to_owned() });
    stage.terminal.say(&format!("GitHub sends the workflow jobs of {REPOSITORY} to the operator, signed"));
    stage
        .objects::<HorizontalRunnerAutoscaler>("the autoscaler to say that it needs none", |all| {
            all.iter().any(|one| desired(one) == Some(0))
        })
        .await?;
    let recording = Recording::start(stage, "burst").await?;
    burst(stage, "MaximumReached", proofs).await?;
    let begun = Instant::now();
    idle_again(stage).await?;
    stage.show(&stage.kubectl(&["get", "horizontalrunnerautoscalers"]).await?);
    proofs.record(Claim::BackToMinimum, true, format!("0 runners {:.1} s after the last job", begun.elapsed().as_secs_f64()));
    recording.finish().await
}

/// The manifest of the runners on demand, as a reader calls it.
const ON_DEMAND_FILE: &str = "examples/autoscaling/webhook.yaml";

fn on_demand(manifests: &Manifests) -> String {
    manifests.directory().join("autoscaling/webhook.yaml").to_string_lossy().into_owned()
}

/// Queues the jobs on demand, asks why the last of them waits, and waits until all are done.
async fn burst(stage: &Stage<'_>, cause: &str, proofs: &mut Proofs) -> Result<()> {
    let known = stage.nodes.tally().seen();
    let begun = Instant::now();
    let jobs = stage.queue(ON_DEMAND, &["self-hosted", ON_DEMAND_LABEL], ON_DEMAND_JOB)?;
    let last = jobs.last().context("no job was queued")?.0.to_string();
    let mut told = (0, usize::MAX, 0);
    let mut explained = None;
    loop {
        let (running, done) = stage.progress(&jobs);
        let made = stage.nodes.tally().seen() - known;
        if told != (running, done, made) {
            told = (running, done, made);
            let waiting = jobs.len() - running - done;
            stage.terminal.say(&format!("queue {waiting:>2}, runners made {made:>2}, jobs running {running:>2}, done {done:>2}"));
        }
        if done == jobs.len() {
            break;
        }
        if running > 0 && explained.is_none() {
            let asked = ["explain", "job", &last, "-n", NAMESPACE];
            // At first it is not known, or not counted yet.
            let story = stage.pacer_silently(&[&asked[..], &["-o", "json"]].concat()).await.unwrap_or_default();
            let story: Value = serde_json::from_str(&story).unwrap_or_default();
            if story.get("cause").is_some_and(|it| it == cause) {
                stage.show(&stage.pacer(&asked).await?);
                explained = story.get("why").and_then(Value::as_str).map(str::to_owned);
            }
            continue;
        }
        let outcome = stage.github("the next job", |view| progress(view, &jobs) != (running, done)).await;
        if outcome.is_err() {
            stage.show(&stage.kubectl(&["get", "hra", "--output=yaml"]).await?);
        }
        outcome?;
    }
    let took = begun.elapsed();
    let made = stage.nodes.tally().seen() - known;
    proofs.record(
        Claim::OnDemand,
        made == jobs.len(),
        format!("{} jobs done after {:.1} s by {made} runners", jobs.len(), took.as_secs_f64()),
    );
    let why = explained.as_deref().unwrap_or("nothing was said");
    proofs.record(Claim::WaitExplained, explained.is_some(), format!("{cause}: {why}"));
    Ok(())
}

/// Waits until nothing of the demand is left.
async fn idle_again(stage: &Stage<'_>) -> Result<()> {
    stage
        .objects::<HorizontalRunnerAutoscaler>("the autoscaler to need none again", |all| {
            all.iter().any(|one| desired(one) == Some(0))
        })
        .await?;
    let of_demand = |name: &str| name.starts_with(ON_DEMAND_LABEL);
    stage.objects::<Runner>("no Runner on demand", |all| !all.iter().any(|one| of_demand(&one.name_any()))).await?;
    Ok(())
}

fn desired(autoscaler: &HorizontalRunnerAutoscaler) -> Option<i32> {
    autoscaler.status.as_ref().and_then(|status| status.desired_replicas)
}

/// Deletes all manifests and waits until no registration, RunnerReplicaSet, Runner or pod is left.
pub(crate) async fn departure(stage: &Stage<'_>, manifests: &Manifests, proofs: &mut Proofs) -> Result<()> {
    let begun = Instant::now();
    stage.kubectl_on(&["delete", "--wait=false"], &on_demand(manifests), ON_DEMAND_FILE).await?;
    stage.kubectl_on(&["delete", "--wait=false"], &manifests.directory().to_string_lossy(), "examples/").await?;
    stage.github("no registrations", |view| view.runners().registered == 0).await?;
    stage.objects::<RunnerReplicaSet>("no sets", |all| all.is_empty()).await?;
    stage.objects::<Runner>("no Runners", |all| all.is_empty()).await?;
    stage.objects::<Pod>("no pods", |all| all.is_empty()).await?;
    proofs.record(Claim::Departure, true, format!("nothing left in {NAMESPACE} after {:.1} s", begun.elapsed().as_secs_f64()));
    Ok(())
}

/// What must hold at the end, however far the acts came.
pub(crate) fn verdict(stage: &Stage<'_>, proofs: &mut Proofs) {
    let leaked = stage.world.github.leaked();
    let names: Vec<&str> = leaked.iter().map(|runner| runner.name.as_str()).collect();
    let ever = stage.world.github.runners().ever_registered;
    proofs.record(
        Claim::NoLeak,
        leaked.is_empty(),
        format!("{} of {ever} registrations left behind {}", names.len(), names.join(" ")).trim_end().to_owned(),
    );
    let kills = stage.nodes.deleted_while_busy();
    let names: Vec<&str> = kills.iter().map(|kill| kill.pod.as_str()).collect();
    let jobs = stage.world.github.jobs();
    proofs.record(
        Claim::NoBusyKill,
        kills.is_empty() && jobs.succeeded == jobs.completed,
        format!("{} of {} jobs {}", names.len(), jobs.completed, names.join(" ")).trim_end().to_owned(),
    );
}
