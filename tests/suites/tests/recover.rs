//! Jobs that die with their runners: those whose pod proves that it was not their fault run again, once, and no others.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test whose scene can't be set has failed")]

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, ResourceExt};
use pacer_api::names::annotation;
use pacer_api::{Runner, RunnerReplicaSet};
use pacer_harness::github::{Conclusion, Delivering, Job, JobId, JobState, RouteKind, Scope};
use pacer_harness::nodes::{NodeLoss, Nodes};
use pacer_harness::objects;
use pacer_harness::operator::binary;
use pacer_harness::world::World;
use pacer_suites::webhook::{hook, receive};
use pacer_suites::{NAMESPACE, PATIENCE, apply, autoscaler, brisk_world, deployment, event, queue, running, settled, until};
use serde_json::{Value, json};

/// Namespace of the operator, where the default set lies.
const OWN: &str = "actions-runner-system";

/// A job lives for so long when nothing happens to it.
const RUNS: Duration = Duration::from_secs(30);

/// How long after a job's death GitHub is looked at for the first time. The next look comes after twice as long each time.
const FIRST_LOOK: SignedDuration = SignedDuration::from_secs(15);

/// Allowance for all that happens between a run's end and its rerun beside the looks.
const BUSY: SignedDuration = SignedDuration::from_secs(30);

/// The shipped policy is in charge of dead jobs.
const SHIPPED: &[(&str, &str)] = &[("policies.yaml", "recover: builtin\n")];

/// A policy that has jobs run again after a kill for memory, and leaves all others.
const FORGIVING: &[(&str, &str)] = &[
    ("policies.yaml", "recover: {module: policy.js}\n"),
    (
        "policy.js",
        "export const name = \"forgiving\";
        export function recover({ jobs }) {
            return jobs.map(({ cause }, index) => ({
                index, action: cause === \"oom-killed\" ? \"rerun\" : \"leave\", reason: `because of ${cause}`,
            }));
        }
        ",
    ),
];

/// A world in which GitHub takes a while to find out that a runner is lost, a pool, and this policy set, where there is one.
async fn world(arguments: &[&str], set: Option<&[(&str, &str)]>) -> Result<World> {
    let world = brisk_world(arguments, |options| {
        options.github.lost_after = Duration::from_secs(8);
        receive(options);
    })
    .await?;
    hook(&world, Scope::repository("acme", "app"))?;
    if let Some(files) = set {
        let data: serde_json::Map<String, Value> = files.iter().map(|(name, text)| ((*name).to_owned(), json!(text))).collect();
        let set = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "pacer-policies", "namespace": OWN},
            "data": data,
        });
        apply(&world, &set).await?;
        let is_active = |object: &ConfigMap| {
            let status = object.annotations().get(annotation::POLICY_STATUS);
            status.and_then(|text| serde_json::from_str::<Value>(text).ok()).is_some_and(|status| status["phase"] == "Active")
        };
        let sets = Api::<ConfigMap>::namespaced(world.client.clone(), OWN);
        let outcome = objects::until(sets, "", PATIENCE, |all| all.iter().any(|object| is_active(object))).await;
        world.check(outcome).await.context("waiting for the policy set")?;
    }
    // Whoever takes a pod away waits no longer for its job.
    let mut web = deployment("web", 0);
    web["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(1);
    apply(&world, &web).await?;
    apply(&world, &autoscaler("web", 0, 20)).await?;
    Ok(world)
}

fn nodes(world: &World) -> Result<&Nodes> {
    world.nodes.as_ref().context("no nodes")
}

/// Waits until a job runs, and says on which runner.
async fn runner_of(world: &World, job: JobId) -> Result<String> {
    let runs = |job: &Job| job.state == JobState::InProgress;
    let outcome = world.github.wait_for(PATIENCE, |view| view.job(job).is_some_and(runs)).await;
    world.check(outcome).await.with_context(|| format!("waiting for job {job} to run"))?;
    Ok(world.github.job(job).and_then(|job| job.runner).context("no runner")?.name)
}

/// The jobs of a job's run, the oldest first.
fn attempts(world: &World, job: JobId) -> Vec<Job> {
    let run = world.github.job(job).map(|job| job.run);
    world.github.view(|view| view.all_jobs().filter(|job| Some(job.run) == run).cloned().collect())
}

/// Waits until a job runs again, and is well.
async fn again(world: &World, job: JobId) -> Result<JobId> {
    let run = world.github.job(job).context("no job")?.run;
    let well = |job: &Job| job.run == run && job.attempt == 2 && job.conclusion == Some(Conclusion::Success);
    let outcome = world.github.wait_for(PATIENCE, |view| view.all_jobs().any(well)).await;
    world.check(outcome).await.with_context(|| format!("waiting for job {job} to run again"))?;
    Ok(attempts(world, job).into_iter().find(well).context("it was there")?.id)
}

/// A job's run was made to run again by the first look after its end. Looks come at the death of the job's runner and then after twice as long each time,
/// so that this one comes at most as long after the job's end as the job had run.
fn soon(world: &World, job: JobId) -> Result<()> {
    let attempts = attempts(world, job);
    let [first, second] = attempts.as_slice() else { bail!("not two attempts: {attempts:#?}") };
    let (began, ended) = (first.started_at.context("it never ran")?, first.completed_at.context("it runs")?);
    let (took, limit) = (second.queued_at.duration_since(ended), ended.duration_since(began).max(FIRST_LOOK) + BUSY);
    ensure!(took <= limit, "{took:?} after its end, {limit:?} are allowed: {attempts:#?}");
    Ok(())
}

fn reruns(world: &World) -> u64 {
    world.github.count(RouteKind::RerunJob).requests
}

async fn pacer(world: &World, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(binary().await?);
    command.args(arguments).env("KUBECONFIG", world.plane.kubeconfig_path());
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_whose_runners_were_taken_away_run_again_once_and_no_others() -> Result<()> {
    let world = world(&["--recover-jobs"], Some(SHIPPED)).await?;
    let [hungry, broken, evicted, preempted] = queue(&world, "web", 4, RUNS)?[..] else { panic!("four jobs") };
    running(&world, 4).await?;
    let of = futures::future::try_join_all([hungry, broken, evicted, preempted].map(|job| runner_of(&world, job))).await?;
    nodes(&world)?.out_of_memory(NAMESPACE, &of[0]).await?;
    nodes(&world)?.crash(NAMESPACE, &of[1], 1).await?;
    nodes(&world)?.evict(NAMESPACE, &of[2]).await?;
    nodes(&world)?.preempt(NAMESPACE, &of[3]).await?;
    again(&world, evicted).await?;
    again(&world, preempted).await?;
    soon(&world, evicted)?;
    soon(&world, preempted)?;
    event(&world, "JobRunAgain", |note| note.contains(&evicted.to_string())).await?;

    // The machine is taken away with its Node object.
    let [lost] = queue(&world, "web", 1, RUNS)?[..] else { panic!("one job") };
    let runner = runner_of(&world, lost).await?;
    running(&world, 1).await?;
    let node = nodes(&world)?.node_of(NAMESPACE, &runner).context("no node")?;
    nodes(&world)?.lose_node(&node, NodeLoss::Removed).await?;
    again(&world, lost).await?;

    for (job, expected) in [(hungry, 1), (broken, 1), (evicted, 2), (preempted, 2), (lost, 2)] {
        ensure!(attempts(&world, job).len() == expected, "{:#?}", attempts(&world, job));
    }
    ensure!(reruns(&world) == 3, "GitHub was asked {} times", reruns(&world));
    let expected = [(hungry, "left"), (evicted, "rerun"), (preempted, "rerun"), (lost, "rerun")];
    ensure!(decided(&world).await? == told(&expected), "{:#?}", decided(&world).await?);
    for (job, words) in [
        (evicted, "which was evicted; the policy has it run again: evicted, not its own fault; GitHub runs it again"),
        (preempted, "which was preempted; the policy has it run again: preempted, not its own fault; GitHub runs it again"),
        (lost, "which lost its node; the policy has it run again"),
        (hungry, "which used more memory than it may; the policy leaves it failed"),
    ] {
        let text = pacer(&world, &["explain", "job", &job.to_string(), "-n", NAMESPACE]).await?;
        ensure!(text.contains(words), "no {words:?} in {text}");
    }
    until_lost(&world, &[("evicted", 1), ("node-lost", 1), ("oom-killed", 1), ("preempted", 1)]).await?;
    world.stop().await;
    Ok(())
}

/// What receipts say was decided about jobs that died: each decision once, by the ids of the jobs.
async fn decided(world: &World) -> Result<Vec<(u64, String)>> {
    let text = pacer(world, &["policy", "receipts", "-n", NAMESPACE, "--decision", "recover", "-o", "json"]).await?;
    let mut found = Vec::new();
    for line in text.lines().filter(|line| line.starts_with('{')) {
        let receipt: Value = serde_json::from_str(line)?;
        for item in receipt["items"].as_array().context("items")? {
            found.push((item["job"].as_u64().context("a job")?, item["verdict"].as_str().context("a verdict")?.to_owned()));
        }
    }
    found.sort();
    Ok(found)
}

/// The same as it has to be.
fn told(decisions: &[(JobId, &str)]) -> Vec<(u64, String)> {
    let mut told: Vec<_> =
        decisions.iter().map(|(job, verdict)| (job.to_string().parse().unwrap(), (*verdict).to_owned())).collect();
    told.sort();
    told
}

#[tokio::test(flavor = "multi_thread")]
async fn job_that_used_too_much_memory_runs_again_where_the_policy_wants_it() -> Result<()> {
    let world = world(&["--recover-jobs"], Some(FORGIVING)).await?;
    let [hungry, broken, evicted] = queue(&world, "web", 3, RUNS)?[..] else { panic!("three jobs") };
    running(&world, 3).await?;
    let of = futures::future::try_join_all([hungry, broken, evicted].map(|job| runner_of(&world, job))).await?;
    nodes(&world)?.evict(NAMESPACE, &of[2]).await?;
    nodes(&world)?.crash(NAMESPACE, &of[1], 1).await?;
    nodes(&world)?.out_of_memory(NAMESPACE, &of[0]).await?;
    again(&world, hungry).await?;
    for (job, expected) in [(hungry, 2), (broken, 1), (evicted, 1)] {
        ensure!(attempts(&world, job).len() == expected, "{:#?}", attempts(&world, job));
    }
    ensure!(reruns(&world) == 1, "GitHub was asked {} times", reruns(&world));
    let expected = [(hungry, "rerun"), (evicted, "left")];
    ensure!(decided(&world).await? == told(&expected), "{:#?}", decided(&world).await?);
    let text = pacer(&world, &["explain", "job", &hungry.to_string(), "-n", NAMESPACE]).await?;
    let words = "which used more memory than it may; the policy has it run again: because of oom-killed; GitHub runs it again";
    ensure!(text.contains(words), "no {words:?} in {text}");
    world.stop().await;
    Ok(())
}

/// A deployment must not run twice: the policy that would say so gives no answer.
#[tokio::test(flavor = "multi_thread")]
async fn job_is_left_where_the_policy_fails() -> Result<()> {
    let failing = FORGIVING[1].1.replace(
        "recover({ jobs }) {",
        "recover({ pool, jobs }) { if (pool.namespace === \"default\") throw new Error(\"no branch\");",
    );
    let world = world(&["--recover-jobs"], Some(&[FORGIVING[0], ("policy.js", &failing)])).await?;
    let [evicted] = queue(&world, "web", 1, RUNS)?[..] else { panic!("one job") };
    running(&world, 1).await?;
    nodes(&world)?.evict(NAMESPACE, &runner_of(&world, evicted).await?).await?;
    event(&world, "PolicyFault", |note| note.contains("no branch")).await?;
    let outcome = tokio::time::timeout(PATIENCE, async {
        while decided(&world).await?.is_empty() {
            // Receipts are written a while after a decision.
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        anyhow::Ok(())
    });
    outcome.await.context("waiting for a receipt")??;
    ensure!(decided(&world).await? == told(&[(evicted, "left")]), "{:#?}", decided(&world).await?);
    ensure!(reruns(&world) == 0, "GitHub was asked {} times", reruns(&world));
    world.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn flood_of_dead_jobs_stays_within_the_budget() -> Result<()> {
    let world = world(&["--recover-jobs", "--recover-jobs-per-hour=3"], Some(SHIPPED)).await?;
    let jobs = queue(&world, "web", 8, RUNS)?;
    running(&world, 8).await?;
    for job in &jobs {
        let runner = runner_of(&world, *job).await?;
        nodes(&world)?.evict(NAMESPACE, &runner).await?;
    }
    let again = |job: &&Job| job.attempt == 2 && job.conclusion == Some(Conclusion::Success);
    let outcome = world.github.wait_for(PATIENCE, |view| view.all_jobs().filter(again).count() == 3).await;
    world.check(outcome).await.context("waiting for three jobs to run again")?;
    event(&world, "JobNotRunAgain", |note| note.contains("its budget")).await?;
    // One that dies in its second attempt has had its chance.
    ensure!(reruns(&world) == 3, "GitHub was asked {} times", reruns(&world));
    ensure!(world.github.view(|view| view.all_jobs().all(|job| job.attempt <= 2)), "a third attempt");
    world.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_of_the_operator_before_it_asks_makes_no_second_rerun() -> Result<()> {
    let mut world = world(&["--recover-jobs"], Some(SHIPPED)).await?;
    let [job] = queue(&world, "web", 1, RUNS)?[..] else { panic!("one job") };
    running(&world, 1).await?;
    let runner = runner_of(&world, job).await?;
    nodes(&world)?.evict(NAMESPACE, &runner).await?;
    let keeps = |set: &&RunnerReplicaSet| set.annotations().contains_key(annotation::RERUNS);
    until::<RunnerReplicaSet>(&world, "the rerun kept", |all| all.iter().any(keeps)).await?;
    let operator = world.operator.as_mut().context("no operator")?;
    operator.kill9().await;
    operator.restart().await?;
    operator.until_acting(PATIENCE).await?;
    again(&world, job).await?;
    ensure!((reruns(&world), attempts(&world, job).len()) == (1, 2), "{:#?}", attempts(&world, job));
    world.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn job_whose_start_is_told_after_its_runner_is_gone_or_never_runs_again() -> Result<()> {
    let world = world(&["--recover-jobs"], Some(SHIPPED)).await?;
    for (told, delivering) in [
        // Before GitHub finds that the runner is lost.
        ("late", Delivering { delay: Duration::from_secs(6), ..Delivering::default() }),
        ("never", Delivering { drop_every: Some(1), ..Delivering::default() }),
    ] {
        let [job] = queue(&world, "web", 1, RUNS)?[..] else { panic!("one job") };
        until::<Runner>(&world, "its runner", |all| all.len() == 1).await?;
        world.github.deliver(delivering);
        let runner = runner_of(&world, job).await?;
        nodes(&world)?.evict(NAMESPACE, &runner).await?;
        until::<Runner>(&world, "a runner in its place", |all| all.iter().all(|one| one.name_any() != runner)).await?;
        // GitHub says what became of the job when it finds that its runner is lost.
        world.github.deliver(Delivering::default());
        again(&world, job).await.with_context(|| format!("its start was told {told}"))?;
        ensure!(attempts(&world, job).len() == 2, "{told}: {:#?}", attempts(&world, job));
        settled(&world, 0).await?;
    }
    ensure!(reruns(&world) == 2, "GitHub was asked {} times", reruns(&world));
    world.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_runs_again_unless_flag_and_policy_set_ask_for_it() -> Result<()> {
    for (arguments, set) in [(&[][..], Some(SHIPPED)), (&["--recover-jobs"][..], None)] {
        let world = world(arguments, set).await?;
        let [job] = queue(&world, "web", 1, RUNS)?[..] else { panic!("one job") };
        running(&world, 1).await?;
        let runner = runner_of(&world, job).await?;
        nodes(&world)?.evict(NAMESPACE, &runner).await?;
        let outcome = world.github.wait_for(PATIENCE, |view| view.job(job).is_some_and(|job| job.lost)).await;
        world.check(outcome).await?;
        event(&world, "RunnerReplaced", |note| note.contains(&runner)).await?;
        // Whoever decides about a dead job keeps that before its runner is replaced.
        let sets = until::<RunnerReplicaSet>(&world, "the set", |all| !all.is_empty()).await?;
        ensure!(sets.iter().all(|set| !set.annotations().contains_key(annotation::RERUNS)), "{sets:#?}");
        ensure!(reruns(&world) == 0, "GitHub was asked");
        // It is lost all the same.
        until_lost(&world, &[("evicted", 1), ("node-lost", 0), ("oom-killed", 0), ("preempted", 0)]).await?;
        world.stop().await;
    }
    Ok(())
}

/// Waits until `/metrics` tells so of jobs that were lost, by cause.
async fn until_lost(world: &World, expected: &[(&str, u32)]) -> Result<()> {
    let expected: BTreeSet<String> =
        expected.iter().map(|(cause, count)| format!("pacer_jobs_lost_total{{cause=\"{cause}\"}} {count}")).collect();
    let mut last = BTreeSet::new();
    let reached = tokio::time::timeout(PATIENCE, async {
        while last != expected {
            // A scrape announces nothing.
            tokio::time::sleep(Duration::from_millis(200)).await;
            let text = world.operator.as_ref().context("no operator")?.metrics().await?;
            last = text.lines().filter(|line| line.starts_with("pacer_jobs_lost_total")).map(str::to_owned).collect();
        }
        anyhow::Ok(())
    })
    .await;
    reached.with_context(|| format!("{last:#?}"))?
}
