//! What jobs cost, with the operator as it is shipped: API requests for a single one, GitHub calls for a burst.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use pacer_api::{HorizontalRunnerAutoscaler, Runner, RunnerDeployment, RunnerReplicaSet};
use pacer_harness::controlplane::{ApiCalls, Audit};
use pacer_harness::github::{Behaviour, RouteKind, Scope};
use pacer_harness::world::{Options, World};
use pacer_suites::webhook::{hook, receive};
use pacer_suites::{PATIENCE, apply, deployment, end, queue, runners, succeeded, until, world};
use serde_json::json;

/// The operator has asked nothing for so long: longer than anything that it puts off waits.
const QUIET: Duration = Duration::from_secs(40);

/// Most API requests for the first job, which needs a registration token; for a job that is over soon; for one whose states last.
/// A short one needs 17: three events are stored before they are answered; the number goes up and down, from the autoscaler to its target and from
/// there to the set (4); the Runner is made, deleted and released (3), its pod made and deleted (2); autoscaler, target and set each say once what
/// has become of them (3); the story is told in one Event and one receipt (2). One that lasts is said by each of the three while it does.
/// Two more than that, and than was measured alone: other suites keep the machine busy, so that states that pass last long enough to be written.
const FIRST_JOB: u64 = 21;
const SHORT_JOB: u64 = 19;
const LONG_JOB: u64 = 22;

/// Requests that come by themselves, whatever happens: housekeeping once per sync period, and watches that end.
fn is_routine(verb: &str, resource: &str) -> bool {
    matches!(verb, "watch" | "list") || resource == "leases"
}

fn of_job(calls: &ApiCalls) -> u64 {
    calls.iter().filter(|(verb, resource, _)| !is_routine(verb, resource)).map(|(_, _, count)| count).sum()
}

/// Waits until the operator has asked nothing for a while. Returns what it asked since then.
async fn quiet(world: &World, since: Timestamp) -> Result<ApiCalls> {
    let began = Instant::now();
    let mut last = (0, Instant::now());
    loop {
        let calls = world.operator_calls(Some(since))?;
        let count = of_job(&calls);
        if count != last.0 {
            last = (count, Instant::now());
        } else if last.1.elapsed() > QUIET {
            return Ok(calls);
        }
        ensure!(began.elapsed() < PATIENCE, "the operator goes on asking: {calls}");
        // Nothing announces that nothing more happens.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// What is said of the fleet is what is there: nothing, as is wanted.
async fn nothing_said(world: &World) -> Result<()> {
    until::<HorizontalRunnerAutoscaler>(world, "an autoscaler that asks for none", |all| {
        all.iter().all(|one| one.status.as_ref().is_some_and(|status| status.desired_replicas == Some(0)))
    })
    .await?;
    until::<RunnerDeployment>(world, "a RunnerDeployment whose status is that of nothing", |all| {
        all.iter().all(|one| {
            let status = one.status.clone().unwrap_or_default();
            status.observed_generation == one.metadata.generation && status.replicas == Some(0)
        })
    })
    .await?;
    until::<RunnerReplicaSet>(world, "a RunnerReplicaSet whose status is that of nothing", |all| {
        all.iter().all(|one| {
            let status = one.status.clone().unwrap_or_default();
            status.observed_generation == one.metadata.generation && status.replicas == Some(0)
        })
    })
    .await?;
    Ok(())
}

/// As it is shipped, with webhooks and an autoscaler from nothing to `most` runners.
async fn autoscaled(most: usize, change: impl FnOnce(&mut Options)) -> Result<World> {
    let world = world(|options| {
        change(options);
        options.plane.audit = Audit::All;
        receive(options);
    })
    .await?;
    hook(&world, Scope::repository("acme", "app"))?;
    apply(&world, &deployment("web", 0)).await?;
    apply(
        &world,
        &json!({
            "apiVersion": "actions.summerwind.dev/v1alpha1",
            "kind": "HorizontalRunnerAutoscaler",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {
                "scaleTargetRef": {"name": "web"}, "minReplicas": 0, "maxReplicas": most,
                "scaleUpTriggers": [{"githubEvent": {"workflowJob": {}}, "duration": "30m"}],
            },
        }),
    )
    .await?;
    nothing_said(&world).await?;
    quiet(&world, Timestamp::now()).await?;
    Ok(world)
}

/// Nothing is left of the jobs' runners.
async fn nothing_left(world: &World) -> Result<()> {
    until::<Runner>(world, "no Runner", |all| all.is_empty()).await?;
    until::<Pod>(world, "no pod", |all| all.is_empty()).await?;
    runners(world, "no registration", |counts| counts.registered == 0).await
}

#[tokio::test(flavor = "multi_thread")]
async fn single_job_takes_few_api_requests_where_github_answers_at_once() -> Result<()> {
    let world = autoscaled(10, |options| options.github.behaviour = Behaviour::prompt()).await?;
    let mut outcome = Ok(());
    for (number, (lasting, most)) in [(1, FIRST_JOB), (1, SHORT_JOB), (20, LONG_JOB)].into_iter().enumerate() {
        let since = Timestamp::now();
        queue(&world, "web", 1, Duration::from_secs(lasting))?;
        succeeded(&world, number + 1).await?;
        nothing_left(&world).await?;
        let calls = quiet(&world, since).await?;
        nothing_said(&world).await?;
        let count = of_job(&calls);
        println!("a job of {lasting} s: {count} API requests without routine; {calls}");
        if count > most {
            outcome = Err(format!("{count} API requests for a job of {lasting} s, {most} are allowed: {calls}"));
        }
    }
    world.check(outcome).await?;
    end(world).await
}

/// Jobs of a burst, and how long each takes.
const JOBS: u32 = 120;
const JOB: Duration = Duration::from_secs(20);

/// Most calls to GitHub for a burst, those that are answered 304 included. Each is for all of its runners or jobs, or for a hundred of them.
const BURST_CALLS: u64 = 40;

#[tokio::test(flavor = "multi_thread")]
async fn burst_takes_few_github_calls() -> Result<()> {
    let jobs = usize::try_from(JOBS)?;
    let world = autoscaled(jobs, |_| {}).await?;
    world.github.reset_calls();
    let began = Instant::now();
    queue(&world, "web", jobs, JOB)?;
    succeeded(&world, jobs).await?;
    let done = began.elapsed();
    nothing_left(&world).await?;
    let mut calls = world.github.counts();
    // An agent's registration is the runner's own.
    calls.remove(&RouteKind::RegisterRunner);
    let (made, all) = (world.github.runners().ever_registered, calls.values().map(|count| count.requests).sum::<u64>());
    println!(
        "{JOBS} jobs done in {:.1} s, the last runner gone in {:.1} s; {made} runners; {all} GitHub calls, {:.2} for each job: {calls:?}",
        done.as_secs_f64(),
        began.elapsed().as_secs_f64(),
        f64::from(u32::try_from(all)?) / f64::from(JOBS),
    );
    let outcome = if all <= BURST_CALLS { Ok(()) } else { Err(format!("{all} GitHub calls for {JOBS} jobs: {calls:?}")) };
    world.check(outcome).await?;
    let outcome = if made == u64::from(JOBS) { Ok(()) } else { Err(format!("{made} runners for {JOBS} jobs")) };
    world.check(outcome).await?;
    end(world).await
}
