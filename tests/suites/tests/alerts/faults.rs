//! Faults, each made on the real control plane and recorded. What begins well ends badly, and is left so.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Resource as _;
use kube::api::PostParams;
use pacer_api::job_ledger::{self, JobLedgerSpec, LedgerJob, LedgerWorkflow};
use pacer_api::names::annotation;
use pacer_api::{HorizontalRunnerAutoscaler, JobLedger};
use pacer_harness::github::{Effect, Fault, Hook, RouteKind, Routes, Scope};
use pacer_harness::ingress::Ingress;
use pacer_harness::nodes::{Affected, Trouble};
use pacer_harness::world::World;
use pacer_suites::fleet::runner_set;
use pacer_suites::webhook::{SECRET, receive_itself};
use pacer_suites::{
    NAMESPACE, PATIENCE, PATIENT_LEASE, api, apply, autoscaler, brisk_world, deployment, end_as_it_is, put, queue, running,
    scale, settled, succeeded, with_spec,
};
use seccompiler::{SeccompAction, SeccompFilter, apply_filter};
use serde_json::{Value, json};

use super::recording::Recording;
use super::recording::Wanted::{Grown, Least, Most};
use crate::guest::Guest;
use crate::webhooks::post;

/// Namespace of the operator.
const OWN: &str = "actions-runner-system";

/// More than the rules for deliveries tolerate.
const MANY: u64 = 12;

/// Minutes between two scrapes of a fault that goes on: fewer than the rules look back.
const STEP: usize = 7;

/// What is there while all is well: a fleet `web` whose runners are idle.
async fn fleet(world: &World, replicas: u32) -> Result<()> {
    apply(world, &deployment("web", replicas)).await?;
    settled(world, replicas as usize).await
}

/// The scrape before the fault of a world with [`fleet`].
async fn well(world: &World, replicas: u32) -> Result<Recording> {
    let idle = Least("pacer_runners", "state=\"idle\"", f64::from(replicas));
    Recording::begin(world, &[Least("pacer_leading", "", 1.0), idle]).await
}

fn webhooks(world: &World) -> Result<String> {
    world.operator.as_ref().and_then(|operator| operator.webhook_address()).context("no address for webhooks")
}

/// The event of a job for the fleet `web` that was queued at this time.
fn queued(id: u64, at: Timestamp) -> Value {
    json!({
        "action": "queued",
        "workflow_job": {
            "id": id, "run_id": 7, "run_attempt": 1, "workflow_name": "ci", "labels": ["web"], "created_at": at.to_string(),
            "started_at": at.to_string(), "runner_id": null, "runner_name": null, "conclusion": null, "completed_at": null,
        },
        "repository": {"full_name": "acme/app", "name": "app", "owner": {"login": "acme", "type": "Organization"}},
    })
}

/// Delivers the events of further jobs until the answer is as wanted, for what a watch has to bring first.
async fn delivered(world: &World, id: u64, at: Timestamp, wanted: impl Fn(&post::Answer) -> bool) -> Result<()> {
    let address = webhooks(world)?;
    let answered = async {
        for id in id.. {
            if wanted(&post::post(&address, "workflow_job", &queued(id, at)).await?) {
                break;
            }
            // Neither side announces what a watch has brought.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok::<_, anyhow::Error>(())
    };
    let outcome = tokio::time::timeout(PATIENCE, answered).await.map_err(|_| "no such answer to a webhook");
    world.check(outcome).await?
}

/// A world that receives webhooks, with a runner that is idle whatever they say, as GitHub knows nothing of the jobs of [`queued`].
async fn receiving_fleet() -> Result<World> {
    let world = brisk_world(&PATIENT_LEASE, receive_itself).await?;
    apply(&world, &deployment("web", 1)).await?;
    apply(&world, &autoscaler("web", 1, 1)).await?;
    settled(&world, 1).await?;
    Ok(world)
}

pub(crate) async fn lease_whose_holder_is_gone_raises_an_alert() -> Result<Recording> {
    // Long enough for a scrape of the one that stands by.
    let world = brisk_world(&PATIENT_LEASE, |_| {}).await?;
    let leader = world.operator.as_ref().context("no operator")?;
    let standby = leader.twin().await?;
    let both = [("a", leader), ("b", &standby)];
    let wanted = [Least("pacer_leading", "instance=\"a\"", 1.0), Most("pacer_leading", "instance=\"b\"", 0.0)];
    let mut recording = Recording::begin_with(&world, &both, &wanted).await?;
    leader.kill9().await;
    recording.add_of(&world, &[("b", &standby)], 45, &[Most("pacer_leading", "", 0.0)]).await?;
    standby.kill9().await;
    end_as_it_is(world).await?;
    Ok(recording)
}

pub(crate) async fn operator_that_cannot_be_scraped_raises_an_alert() -> Result<Recording> {
    let world = brisk_world(&[], |_| {}).await?;
    fleet(&world, 1).await?;
    let mut recording = well(&world, 1).await?;
    let operator = world.operator.as_ref().context("no operator")?;
    operator.kill9().await;
    ensure!(operator.metrics().await.is_err(), "a process that was killed is scraped");
    recording.add_nothing();
    end_as_it_is(world).await?;
    Ok(recording)
}

/// The autoscaler may make no more runners, and the one that is there works for longer. The event of the second job comes late, so that nobody has to
/// wait for 15 minutes. Nobody may list jobs here: a list that was read before would say that there is no job that old.
pub(crate) async fn job_that_no_runner_gets_raises_an_alert() -> Result<Recording> {
    let world = brisk_world(&[], receive_itself).await?;
    world.github.inject(Fault::new(Routes::of(RouteKind::ListRuns), Effect::Status(403)).always());
    apply(&world, &deployment("web", 1)).await?;
    apply(&world, &autoscaler("web", 1, 1)).await?;
    settled(&world, 1).await?;
    queue(&world, "web", 1, Duration::from_secs(1_800))?;
    running(&world, 1).await?;
    let busy = Least("pacer_runners", "state=\"busy\"", 1.0);
    let mut recording = Recording::begin(&world, &[busy, Most("pacer_oldest_waiting_job_seconds", "web", 0.0)]).await?;
    let long_ago = Timestamp::now() - jiff::SignedDuration::from_mins(20);
    delivered(&world, 1, long_ago, |answer| answer.text == "scaled web by 1").await?;
    recording.add(&world, &[Least("pacer_oldest_waiting_job_seconds", "web", 900.0), busy]).await?;
    end_as_it_is(world).await?;
    Ok(recording)
}

pub(crate) async fn images_that_cannot_be_pulled_raise_an_alert_for_either_kind() -> Result<Recording> {
    let world = brisk_world(&[], |_| {}).await?;
    fleet(&world, 2).await?;
    let mut recording = well(&world, 2).await?;
    let nodes = world.nodes.as_ref().context("no nodes")?;
    nodes.inject(Affected { name_prefix: "stuck".to_owned(), ..Affected::default() }, Trouble::ImagePull);
    apply(&world, &with_spec(deployment("stuck", 3), "image", json!("nowhere/none:1"))).await?;
    apply(&world, &put(runner_set("stuck-too", 3), "/spec", "image", json!("nowhere/none:1"))).await?;
    let wanted = [
        Least("runnerdeployment_spec_replicas", "stuck", 3.0),
        Least("runnerset_spec_replicas", "stuck-too", 3.0),
        // The deployment's and the set's.
        Grown("pacer_runners", "stuck", 6.0),
    ];
    recording.add(&world, &wanted).await?;
    end_as_it_is(world).await?;
    Ok(recording)
}

pub(crate) async fn runners_that_exit_at_once_raise_an_alert_for_their_cause() -> Result<Recording> {
    let world = brisk_world(&[], |_| {}).await?;
    fleet(&world, 2).await?;
    let mut recording = well(&world, 2).await?;
    let nodes = world.nodes.as_ref().context("no nodes")?;
    nodes.inject(Affected { name_prefix: "crash".to_owned(), ..Affected::default() }, Trouble::ExitsAtOnce(1));
    apply(&world, &deployment("crash", 12)).await?;
    recording.add(&world, &[Grown("pacer_runner_failures_total", "cause=\"exit\"", 12.0)]).await?;
    end_as_it_is(world).await?;
    Ok(recording)
}

pub(crate) async fn github_that_fails_raises_an_alert_for_reconciles() -> Result<Recording> {
    let world = brisk_world(&[], |_| {}).await?;
    let mut recording = Recording::begin(&world, &[Least("pacer_leading", "", 1.0)]).await?;
    world.github.inject(Fault::new(Routes::all(), Effect::Status(502)).always());
    apply(&world, &deployment("web", 3)).await?;
    for _ in 0..4 {
        let failed = Grown("pacer_reconciles_total", "kind=\"Runner\",outcome=\"error\"", 4.0);
        recording.add_for(&world, STEP, &[failed, Least("runnerdeployment_spec_replicas", "web", 3.0)]).await?;
    }
    end_as_it_is(world).await?;
    Ok(recording)
}

pub(crate) async fn budget_that_is_used_up_raises_an_alert() -> Result<Recording> {
    let world = brisk_world(&[], |_| {}).await?;
    fleet(&world, 1).await?;
    let mut recording = well(&world, 1).await?;
    world.github.exhaust_rate_limit(Duration::from_secs(3_600));
    recording.add(&world, &[Most("github_rate_limit_remaining", "", 0.0), Least("github_rate_limit", "", 1.0)]).await?;
    end_as_it_is(world).await?;
    Ok(recording)
}

pub(crate) async fn deliveries_without_a_signature_raise_an_alert() -> Result<Recording> {
    let world = brisk_world(&[], receive_itself).await?;
    let mut recording = Recording::begin(&world, &[Least("pacer_leading", "", 1.0)]).await?;
    let address = webhooks(&world)?;
    for _ in 0..MANY {
        let unsigned = post::request("POST", &[("x-github-event", "workflow_job".to_owned())], "{}");
        let answer = post::send(&address, &unsigned).await?;
        ensure!(answer.status == 401, "{answer:?}");
    }
    recording.add(&world, &[Grown("pacer_webhook_events_total", "outcome=\"refused\"", 12.0)]).await?;
    end_as_it_is(world).await?;
    Ok(recording)
}

pub(crate) async fn deliveries_while_the_api_server_is_away_raise_an_alert() -> Result<Recording> {
    let world = receiving_fleet().await?;
    delivered(&world, 1_000, Timestamp::now(), |answer| answer.text == "scaled web by 1").await?;
    let mut recording = well(&world, 1).await?;
    let address = webhooks(&world)?;
    let events: Vec<Value> = (1..=MANY).map(|id| queued(id, Timestamp::now())).collect();
    let deliveries = futures::future::try_join_all(events.iter().map(|event| post::post(&address, "workflow_job", event)));
    for answer in world.plane.without_apiserver(deliveries).await? {
        ensure!(answer.status == 503, "{answer:?}");
    }
    recording.add(&world, &[Grown("pacer_webhook_events_total", "outcome=\"unavailable\"", 12.0)]).await?;
    end_as_it_is(world).await?;
    Ok(recording)
}

pub(crate) async fn deliveries_that_reach_nobody_raise_an_alert_while_missing_and_when_lost() -> Result<Recording> {
    let ingress = Ingress::start().await?;
    let url = format!("--webhook-url={}", ingress.url());
    let world = brisk_world(&["--redelivery-period=1s", "--redelivery-age=40s", &url], receive_itself).await?;
    world.github.add_hook(Hook { owner: Scope::repository("acme", "app").into(), url: ingress.url(), secret: SECRET.to_owned() });
    ingress.serve([webhooks(&world)?]);
    apply(&world, &deployment("web", 0)).await?;
    apply(&world, &autoscaler("web", 0, 4)).await?;
    queue(&world, "web", 1, Duration::from_secs(1))?;
    succeeded(&world, 1).await?;
    settled(&world, 0).await?;
    let none_missing = Most("pacer_webhook_deliveries_missing", "", 0.0);
    let mut recording = Recording::begin(&world, &[none_missing, Least("pacer_leading", "", 1.0)]).await?;

    ingress.serve([]);
    queue(&world, "web", 2, Duration::from_secs(1))?;
    recording.add(&world, &[Least("pacer_webhook_deliveries_missing", "", 1.0)]).await?;
    recording.add(&world, &[Grown("pacer_webhook_redeliveries_total", "outcome=\"given_up\"", 1.0)]).await?;
    end_as_it_is(world).await?;
    ingress.stop().await;
    Ok(recording)
}

/// The objects of a ledger are made here, with the jobs of an hour in which nobody started any.
pub(crate) async fn ledger_that_is_full_raises_an_alert() -> Result<Recording> {
    let now = Timestamp::now();
    let world = receiving_fleet().await?;
    delivered(&world, 1_000, now, |answer| answer.text == "scaled web by 1").await?;
    let mut recording = well(&world, 1).await?;
    let owner = api::<HorizontalRunnerAutoscaler>(&world).get("web").await?;
    let uid = owner.metadata.uid.clone().context("no UID")?;
    let reference = owner.controller_owner_ref(&()).context("no reference")?;
    let ledgers: u16 = 256;
    let jobs = 1 + pacer_core::ledger::LIMIT / usize::from(ledgers - 1);
    let until = Time(now + jiff::SignedDuration::from_hours(20));
    let ledger = |shard: u16| {
        let job = |number: usize| {
            let job = LedgerJob {
                workflow: Some("ci".to_owned()),
                queued: Some(Time(now)),
                until: Some(until.clone()),
                ..LedgerJob::default()
            };
            (u64::from(shard) * 1_000 + number as u64 + 1_000_000, job)
        };
        let workflow =
            LedgerWorkflow { repository: "acme/app".to_owned(), name: "ci".to_owned(), labels: vec!["web".to_owned()] };
        let spec = JobLedgerSpec {
            autoscaler: "web".to_owned(),
            workflows: BTreeMap::from([("ci".to_owned(), workflow)]),
            jobs: (0..jobs).map(job).collect(),
        };
        let mut ledger = JobLedger::new(&job_ledger::name("web", &uid, shard), spec);
        ledger.metadata.owner_references = Some(vec![reference.clone()]);
        ledger
    };
    let store = api::<JobLedger>(&world);
    // The first one is there already, with a job.
    futures::stream::iter((1..ledgers).map(ledger))
        .map(|ledger| {
            let store = store.clone();
            // On a machine that is busy with other suites, the API server may not answer within its minute. The next try says whether it stored the object.
            async move {
                loop {
                    match store.create(&PostParams::default(), &ledger).await {
                        Err(kube::Error::Api(status)) if status.reason == "Timeout" => {}
                        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => return Ok(()),
                        outcome => return outcome.map(|_| ()),
                    }
                }
            }
        })
        .buffer_unordered(8)
        .try_for_each(async |_| Ok(()))
        .await?;
    // What is lacking to the limit, and one more.
    delivered(&world, 2_000, now, |answer| answer.status == 503 && answer.text.contains("is full")).await?;
    recording.add(&world, &[Grown("pacer_webhook_events_total", "outcome=\"full\"", 1.0)]).await?;
    end_as_it_is(world).await?;
    Ok(recording)
}

/// A policy set of the fleet `web`, by its file and a module.
async fn policy_set(world: &World, text: &str, module: &Guest) -> Result<()> {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "own", "namespace": NAMESPACE},
        "data": {"policies.yaml": text}, "binaryData": {"m": ByteString(module.module())},
    });
    apply(world, &object).await
}

/// The fleet `web`, with that policy set.
fn with_policies(replicas: u32) -> Value {
    put(deployment("web", replicas), "/metadata", "annotations", json!({annotation::POLICIES: "own"}))
}

pub(crate) async fn policy_that_loops_raises_an_alert_while_it_is_asked_and_when_it_is_not() -> Result<Recording> {
    let world = brisk_world(&[], |_| {}).await?;
    let looping = Guest::choosing(&[(0, "never")]).first("(loop $again (br $again))");
    policy_set(&world, "scale-down: {module: m, limits: {fuel: 1000000}}\n", &looping).await?;
    apply(&world, &with_policies(6)).await?;
    settled(&world, 6).await?;
    let active = Least("pacer_policy_set_phase", "set=\"own\",phase=\"Active\"", 1.0);
    let idle = |runners: u32| Least("pacer_runners", "state=\"idle\"", f64::from(runners));
    let mut recording = Recording::begin(&world, &[active, idle(6)]).await?;
    // The shipped policy decides each time; after the third time the other one is not asked any more.
    for left in [5, 4, 3] {
        scale(&world, "web", left).await?;
        settled(&world, left as usize).await?;
        recording.add_for(&world, STEP, &[Grown("pacer_policy_faults_total", "", 1.0), idle(left)]).await?;
    }
    recording.add(&world, &[Least("pacer_policy_breaker_open", "set=\"own\"", 1.0), idle(3)]).await?;
    end_as_it_is(world).await?;
    Ok(recording)
}

pub(crate) async fn policy_set_that_is_broken_raises_an_alert() -> Result<Recording> {
    let world = brisk_world(&[], |_| {}).await?;
    policy_set(&world, "scale-down: {module: m}\n", &Guest::choosing(&[(0, "the first one")])).await?;
    apply(&world, &with_policies(1)).await?;
    settled(&world, 1).await?;
    let active = Least("pacer_policy_set_phase", "set=\"own\",phase=\"Active\"", 1.0);
    let idle = Least("pacer_runners", "state=\"idle\"", 1.0);
    let mut recording = Recording::begin(&world, &[active, idle]).await?;
    policy_set(&world, "scale-down: {module: nobody}\n", &Guest::choosing(&[])).await?;
    let last_good = Least("pacer_policy_set_phase", "set=\"own\",phase=\"LastGood\"", 1.0);
    recording.add(&world, &[last_good, idle]).await?;
    end_as_it_is(world).await?;
    Ok(recording)
}

/// Runs something where the kernel seems to have neither Landlock nor seccomp, for it and for whatever it starts.
fn without_locks(what: impl AsyncFnOnce() -> Result<()> + Send) -> Result<()> {
    let run = || -> Result<()> {
        let absent = [libc::SYS_landlock_create_ruleset, libc::SYS_seccomp].map(|call| (call, Vec::new()));
        let errno = SeccompAction::Errno(u32::try_from(libc::ENOSYS)?);
        let filter = SeccompFilter::new(BTreeMap::from(absent), SeccompAction::Allow, errno, std::env::consts::ARCH.try_into()?)?;
        let program: seccompiler::BpfProgram = filter.try_into()?;
        // Of this thread, and so of those that it starts.
        apply_filter(&program)?;
        tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(what())
    };
    thread::scope(|scope| scope.spawn(run).join()).map_err(|_| anyhow::anyhow!("it panicked"))?
}

pub(crate) async fn kernel_without_locks_raises_an_alert() -> Result<Recording> {
    let world = brisk_world(&[], |_| {}).await?;
    fleet(&world, 1).await?;
    let idle = Least("pacer_runners", "state=\"idle\"", 1.0);
    let mut recording = Recording::begin(&world, &[Least("pacer_policy_isolation", "level=\"full\"", 1.0), idle]).await?;
    let operator = world.operator.as_ref().context("no operator")?;
    operator.terminate().await;
    let on_another_node = async || {
        let operator = operator.twin().await?;
        operator.until_acting(PATIENCE).await?;
        let wanted = [Least("pacer_policy_isolation", "level=\"none\"", 1.0), idle];
        recording.add_of(&world, &[("b", &operator)], 45, &wanted).await?;
        operator.terminate().await;
        Ok(())
    };
    tokio::task::block_in_place(|| without_locks(on_another_node))?;
    end_as_it_is(world).await?;
    Ok(recording)
}

pub(crate) async fn tenancy_that_is_broken_raises_an_alert() -> Result<Recording> {
    let file = |text: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tenancy", "namespace": OWN},
            "data": {"tenancy.yaml": text},
        })
    };
    let world = brisk_world(&["--tenancy=tenancy"], |_| {}).await?;
    apply(&world, &file("namespaces:\n  - names: [default]\n    scopes: [acme/*]\n")).await?;
    fleet(&world, 1).await?;
    let idle = Least("pacer_runners", "state=\"idle\"", 1.0);
    let mut recording = Recording::begin(&world, &[Least("pacer_tenancy", "state=\"active\"", 1.0), idle]).await?;
    apply(&world, &file("namespaces: 7\n")).await?;
    recording.add(&world, &[Least("pacer_tenancy", "state=\"last_good\"", 1.0), idle]).await?;
    end_as_it_is(world).await?;
    Ok(recording)
}

pub(crate) async fn receipts_that_may_not_be_written_raise_an_alert() -> Result<Recording> {
    let world = brisk_world(&[], |_| {}).await?;
    apply(&world, &deployment("zero", 1)).await?;
    settled(&world, 1).await?;
    let idle = Least("pacer_runners", "state=\"idle\"", 1.0);
    let mut recording = Recording::begin(&world, &[idle]).await?;
    pacer_suites::kubectl(&world, &["delete", "clusterrolebinding", "pacer-receipts"]).await?;
    let account = format!("--as=system:serviceaccount:{OWN}:pacer");
    let denied = async {
        // The API server takes the role away a little later than its object.
        while pacer_suites::kubectl(&world, &["auth", "can-i", "create", "configmaps", "-n", NAMESPACE, &account]).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    world.check(tokio::time::timeout(PATIENCE, denied).await.map_err(|_| "it may still write receipts")).await?;
    // A pool that was refused is tried again after ten minutes, so that each step takes a new one.
    for (name, left) in [("one", 2), ("two", 3), ("three", 4)] {
        apply(&world, &deployment(name, 2)).await?;
        settled(&world, left + 1).await?;
        scale(&world, name, 1).await?;
        settled(&world, left).await?;
        let dropped = Grown("pacer_policy_receipts_total", "outcome=\"dropped\"", 1.0);
        recording.add_for(&world, STEP, &[dropped, idle]).await?;
    }
    recording.add(&world, &[]).await?;
    end_as_it_is(world).await?;
    Ok(recording)
}
