//! What a step costs, with the operator as it is shipped: API requests for a single job, pods at once in a rollout.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use pacer_api::condition::ConditionType;
use pacer_api::{HorizontalRunnerAutoscaler, Runner, RunnerDeployment, RunnerReplicaSet};
use pacer_harness::controlplane::{ApiCalls, Audit};
use pacer_harness::github::{Behaviour, RouteKind, Scope, View};
use pacer_harness::world::{Options, World};
use pacer_suites::webhook::{hook, receive};
use pacer_suites::{PATIENCE, api, apply, change_template, deployment, end, queue, runners, running, succeeded, until, world};
use serde_json::{Value, json};

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
        if let Some(operator) = &mut options.operator {
            operator.args.clear();
        }
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

/// Idle runners of the fleet that is rolled out, and those at work; as many pods as may be there beside both, at the default of ten percent.
const IDLE: u32 = 20;
const AT_WORK: u32 = 4;
const SURGE: usize = 3;

/// The idle ones are exchanged within this, on a machine that does other things as well.
const EXCHANGED: Duration = Duration::from_secs(120);

/// A template like the first one, and no more than that.
fn another() -> Value {
    json!({"env": [{"name": "REVISION", "value": "2"}]})
}

fn registered(world: &World) -> BTreeSet<String> {
    world.github.registrations(&Scope::repository("acme", "app")).into_iter().map(|runner| runner.name).collect()
}

/// Old runners without a job and with one, and new ones that are online.
fn exchanged(view: &View<'_>, old: &BTreeSet<String>) -> (u32, u32, u32) {
    let (mut idle, mut busy, mut new) = (0, 0, 0);
    for runner in view.registrations(&Scope::repository("acme", "app")) {
        match (old.contains(&runner.name), runner.job) {
            (true, None) => idle += 1,
            (true, Some(_)) => busy += 1,
            (false, _) => new += u32::from(runner.online),
        }
    }
    (idle, busy, new)
}

/// As it is shipped.
async fn shipped() -> Result<World> {
    world(|options| {
        if let Some(operator) = &mut options.operator {
            operator.args.clear();
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn rollout_never_has_more_pods_than_the_surge_allows() -> Result<()> {
    let world = shipped().await?;
    let all = IDLE + AT_WORK;
    apply(&world, &deployment("web", all)).await?;
    runners(&world, "all online", |counts| counts.online == u64::from(all)).await?;
    queue(&world, "web", AT_WORK as usize, Duration::from_secs(75))?;
    running(&world, AT_WORK as usize).await?;
    until::<RunnerReplicaSet>(&world, "busy runners in the status", |sets| {
        sets.iter().any(|set| set.status.as_ref().is_some_and(|status| status.busy_replicas == i32::try_from(AT_WORK).ok()))
    })
    .await?;
    let old = registered(&world);
    let mut tally = world.nodes.as_ref().context("no nodes")?.watch();
    let began = Instant::now();
    change_template(&world, "web", &another()).await?;
    let mut most = 0;
    let steps = async {
        let idle = world.github.wait_for(PATIENCE, |view| matches!(exchanged(view, &old), (0, _, new) if new >= IDLE)).await;
        world.check(idle).await.context("the idle ones are exchanged")?;
        let idle = began.elapsed();
        succeeded(&world, AT_WORK as usize).await?;
        let jobs = began.elapsed();
        let rest = world.github.wait_for(PATIENCE, |view| exchanged(view, &old) == (0, 0, all)).await;
        world.check(rest).await.context("all are exchanged")?;
        until::<RunnerReplicaSet>(&world, "one set", |sets| sets.len() == 1).await?;
        anyhow::Ok((idle, jobs, began.elapsed()))
    };
    let (idle, jobs, rest) = {
        tokio::pin!(steps);
        loop {
            most = most.max(tally.borrow_and_update().present());
            tokio::select! {
                done = &mut steps => break done?,
                changed = tally.changed() => changed.context("the nodes stopped")?,
            }
        }
    };
    println!(
        "{IDLE} idle runners exchanged in {:.1} s, {AT_WORK} at work {:.1} s after their jobs; at most {most} pods",
        idle.as_secs_f64(),
        rest.saturating_sub(jobs).as_secs_f64(),
    );
    let allowed = all as usize + SURGE;
    let outcome = if most <= allowed { Ok(()) } else { Err(format!("{most} pods were there, {allowed} are allowed")) };
    world.check(outcome).await?;
    let outcome = if idle <= EXCHANGED { Ok(()) } else { Err(format!("{idle:?} for {IDLE} idle runners")) };
    world.check(outcome).await?;
    end(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn rollout_does_not_wait_for_a_pod_that_hangs() -> Result<()> {
    let world = world(|_| {}).await?;
    apply(&world, &deployment("web", 4)).await?;
    runners(&world, "all online", |counts| counts.online == 4).await?;
    let old = registered(&world);
    let held = old.first().context("no runner")?.clone();
    let hold = Patch::Merge(json!({"metadata": {"finalizers": ["example.com/hold"]}}));
    api::<Pod>(&world).patch(&held, &PatchParams::default(), &hold).await?;
    let began = Instant::now();
    // With a surge of one nothing moves while it counts.
    change_template(&world, "web", &another()).await?;
    let all = world.github.wait_for(PATIENCE, |view| exchanged(view, &old) == (0, 0, 4)).await;
    world.check(all).await.context("all are exchanged")?;
    println!("4 idle runners exchanged in {:.1} s, one of them with a pod that hangs", began.elapsed().as_secs_f64());
    let says = |runner: &&Runner| {
        let conditions = runner.status.iter().flat_map(|status| &status.conditions);
        conditions.into_iter().any(|one| one.type_ == ConditionType::Stopping.as_str() && one.message.contains("should be gone"))
    };
    until::<Runner>(&world, "a Runner that says so", |all| all.iter().any(|runner| runner.name_any() == held && says(runner)))
        .await?;
    let there = api::<Pod>(&world).get_opt(&held).await?;
    ensure!(there.is_some_and(|pod| pod.metadata.deletion_timestamp.is_some()), "{held} does not hang");
    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    api::<Pod>(&world).patch(&held, &PatchParams::default(), &release).await?;
    end(world).await
}
