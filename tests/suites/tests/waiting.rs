//! Why jobs wait, as `pacer explain job` and `queue` tell it: each cause made for real.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test whose scene can't be set has failed")]

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use kube::ResourceExt;
use pacer_api::{HorizontalRunnerAutoscaler, JobLedger, job_ledger};
use pacer_core::ledger::State;
use pacer_harness::github::{JobId, View};
use pacer_harness::nodes::{Affected, Trouble};
use pacer_harness::operator::binary;
use pacer_harness::world::World;
use pacer_suites::webhook::hooked_world;
use pacer_suites::{NAMESPACE, PATIENCE, apply, autoscaler, deployment, end, queue, running, succeeded, until};
use serde_json::{Value, json};

mod causes;
mod polled;
mod reports;

/// Longer than any test here: whoever has a runner keeps it.
const LONG: Duration = Duration::from_secs(3_600);

/// What `pacer` prints, and whether it ends well.
async fn pacer(world: &World, arguments: &[&str]) -> Result<(bool, String)> {
    let mut command = Command::new(binary().await?);
    command.args(arguments).env("KUBECONFIG", world.plane.kubeconfig_path());
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok((output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned() + &error))
}

/// Waits until a job is said to wait for this, and returns all that is said of it.
async fn waits_for(world: &World, job: JobId, cause: &str) -> Result<Value> {
    let began = Instant::now();
    loop {
        let id = job.0.to_string();
        let (_, text) = pacer(world, &["explain", "job", &id, "-n", NAMESPACE, "-o", "json"]).await?;
        match serde_json::from_str::<Value>(&text) {
            Ok(story) if story["cause"] == cause => return Ok(story),
            _ if began.elapsed() > PATIENCE => {
                world.check(Err::<(), _>(format!("job {id} does not wait for {cause}: {text}"))).await?;
            }
            _ => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}

/// A deployment and its autoscaler, which takes jobs by now.
async fn pool(world: &World, name: &str, min: u32, max: u32) -> Result<()> {
    apply(world, &deployment(name, min)).await?;
    apply(world, &autoscaler(name, min, max)).await?;
    takes_jobs(world, name).await
}

/// Waits until an autoscaler has decided: jobs that are queued before that are not its.
async fn takes_jobs(world: &World, name: &str) -> Result<()> {
    let decides = |one: &&HorizontalRunnerAutoscaler| {
        one.name_any() == name && one.status.as_ref().is_some_and(|status| status.desired_replicas.is_some())
    };
    until::<HorizontalRunnerAutoscaler>(world, "the first number", |all| all.iter().any(decides)).await?;
    Ok(())
}

/// Waits until so many jobs run, and events have told of it: until then they wait, as far as anybody can say.
async fn at_work(world: &World, count: usize) -> Result<()> {
    running(world, count).await?;
    until::<JobLedger>(world, "jobs that are known to run", |all| {
        let known = job_ledger::read(all.iter().map(|ledger| &ledger.spec));
        known.open().filter(|(_, job)| job.state == State::InProgress).count() == count
    })
    .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_told_what_they_wait_for_when_runners_lack() -> Result<()> {
    let world = hooked_world(&[]).await?;
    let nodes = world.nodes.as_ref().context("no nodes")?;

    // The maximum: one runs, two wait, in their order.
    pool(&world, "web", 0, 1).await?;
    let [first] = queue(&world, "web", 1, LONG)?[..] else { panic!("one job") };
    at_work(&world, 1).await?;
    let [second, third] = queue(&world, "web", 2, LONG)?[..] else { panic!("two jobs") };
    let story = waits_for(&world, second, "MaximumReached").await?;
    ensure!(story["place"] == 1 && story["autoscaler"] == "default/web", "{story:#}");
    ensure!(story["why"].as_str().is_some_and(|why| why.contains("maxReplicas 1")), "{story:#}");
    let story = waits_for(&world, third, "MaximumReached").await?;
    ensure!((&story["place"], &story["waiting"]) == (&json!(2), &json!(2)), "{story:#}");
    let (well, text) = pacer(&world, &["explain", "job", &first.0.to_string()]).await?;
    ensure!(well && text.contains("runs: it runs on runner web-"), "{text}");

    // An image that is not there.
    let trouble = nodes.inject(Affected { name_prefix: "img-".to_owned(), ..Affected::all() }, Trouble::ImagePull);
    pool(&world, "img", 0, 1).await?;
    let [unpulled] = queue(&world, "img", 1, LONG)?[..] else { panic!("one job") };
    let story = waits_for(&world, unpulled, "ImagePull").await?;
    ensure!(story["why"].as_str().is_some_and(|why| why.starts_with("the image of runner img-")), "{story:#}");
    nodes.heal(trouble);

    // A runner that starts and is not to be seen at GitHub.
    nodes.inject(Affected { name_prefix: "reg-".to_owned(), ..Affected::all() }, Trouble::NeverRegisters);
    pool(&world, "reg", 0, 1).await?;
    let [unregistered] = queue(&world, "reg", 1, LONG)?[..] else { panic!("one job") };
    waits_for(&world, unregistered, "Registration").await?;

    // No node has room.
    for node in ["node-0", "node-1", "node-2", "node-3"] {
        nodes.cordon(node, true).await?;
    }
    pool(&world, "pend", 0, 1).await?;
    let [pending] = queue(&world, "pend", 1, LONG)?[..] else { panic!("one job") };
    let story = waits_for(&world, pending, "PodPending").await?;
    ensure!(story["why"].as_str().is_some_and(|why| why.starts_with("no node takes the pod of runner pend-")), "{story:#}");

    // All that wait on one page, and a job that nobody takes.
    let (well, text) = pacer(&world, &["explain", "queue", "-n", NAMESPACE]).await?;
    for part in ["MaximumReached", "Registration", "PodPending", "1 of 2", "2 of 2"] {
        ensure!(well && text.contains(part), "no {part} in {text}");
    }
    let unknown = ["explain", "job", "https://github.com/acme/app/actions/runs/1/job/77"];
    let (well, text) = pacer(&world, &unknown).await?;
    ensure!(!well && text.contains("knows job 77") && text.contains("--labels"), "{text}");
    let (well, text) = pacer(&world, &[&unknown[..], &["--labels=web,gpu"]].concat()).await?;
    ensure!(well && text.contains("HorizontalRunnerAutoscaler default/web comes closest and lacks the label gpu"), "{text}");
    let (well, text) = pacer(&world, &["explain", "job", "77", "--repository=other/app", "--labels=web"]).await?;
    ensure!(well && text.contains("jobs of this repository may run"), "{text}");

    // The same at a glance.
    let (well, text) = pacer(&world, &["status", "-n", NAMESPACE]).await?;
    ensure!(well && text.contains("RunnerDeployment/web") && text.contains("clamped by maxReplicas 1"), "{text}");
    world.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_waits_for_the_limit_on_new_runners() -> Result<()> {
    let world = hooked_world(&["--max-new-runners-per-minute=1"]).await?;
    pool(&world, "web", 0, 9).await?;
    let [_, second] = queue(&world, "web", 2, LONG)?[..] else { panic!("two jobs") };
    at_work(&world, 1).await?;
    let story = waits_for(&world, second, "RampLimit").await?;
    ensure!(story["why"].as_str().is_some_and(|why| why.contains("limited to 1 new runner per minute")), "{story:#}");
    world.stop().await;
    Ok(())
}

/// How long each job of the pool runs whose waiting jobs are told when they will start.
const USUAL: Duration = Duration::from_secs(40);

/// How far the likely moment may be from the start: runners come and go, jobs are handed over, and the machine does other things.
const MISSED: i64 = 15;

#[tokio::test(flavor = "multi_thread")]
async fn job_is_told_when_it_will_probably_start() -> Result<()> {
    let world = hooked_world(&[]).await?;
    pool(&world, "web", 0, 1).await?;
    // What the pool's starts and jobs take as a rule.
    queue(&world, "web", 1, USUAL)?;
    succeeded(&world, 1).await?;
    let began = Instant::now();
    loop {
        let (_, text) = pacer(&world, &["policy", "receipts", "-n", NAMESPACE, "-o", "json"]).await?;
        if text.contains("\"to\":0") {
            break;
        }
        ensure!(began.elapsed() < PATIENCE, "no receipt of the number after the job, which tells how long it took: {text}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }

    let [first, second] = queue(&world, "web", 2, USUAL)?[..] else { panic!("two jobs") };
    at_work(&world, 1).await?;
    let story = waits_for(&world, second, "MaximumReached").await?;
    let moment = |name: &str| -> Result<Timestamp> { Ok(story["estimate"][name].as_str().context("no estimate")?.parse()?) };
    let (likely, latest) = (moment("likely").with_context(|| format!("{story:#}"))?, moment("latest")?);
    ensure!(likely <= latest && story["estimate"]["jobsSeen"] == 1, "{story:#}");
    let (_, text) = pacer(&world, &["explain", "job", &second.0.to_string(), "-n", NAMESPACE]).await?;
    ensure!(text.contains("probably in ") && text.contains("(from 1 start and 1 job of this pool)"), "{text}");
    let (_, text) = pacer(&world, &["explain", "queue", "-n", NAMESPACE]).await?;
    ensure!(text.contains("STARTS") && text.contains(" in "), "{text}");

    let started = |view: &View<'_>| view.job(second).and_then(|job| job.started_at).is_some();
    world.check(world.github.wait_for(PATIENCE, started).await).await?;
    let at = world.github.view(|view| view.job(second).and_then(|job| job.started_at)).context("it has started")?;
    let missed = at.duration_since(likely).as_secs();
    println!("job {} started {missed} s after its likely moment, behind job {}", second.0, first.0);
    let outcome = if missed.abs() <= MISSED { Ok(()) } else { Err(format!("started at {at}, likely was {likely}")) };
    world.check(outcome).await?;
    // Both are scored; the first of all had nothing to go by.
    let began = Instant::now();
    loop {
        let metrics = world.operator.as_ref().context("no operator")?.metrics().await?;
        let of = |name: &str| -> f64 {
            let series = metrics.lines().filter(|line| line.starts_with(name));
            series.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
        };
        if (of("pacer_wait_estimates_total{"), of("pacer_wait_estimate_error_seconds_count ")) == (2.0, 2.0) {
            break;
        }
        ensure!(began.elapsed() < PATIENCE, "no score: {metrics}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    end(world).await
}
