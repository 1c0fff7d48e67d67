//! Numbers that are held: for jobs that wait for something else than a runner, such as an approval or another job of their concurrency group, and
//! while GitHub does not say which runners are busy.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::api::{ListParams, Patch, PatchParams};
use pacer_api::condition::ConditionType;
use pacer_api::{HorizontalRunnerAutoscaler, JobLedger, RunnerReplicaSet, job_ledger};
use pacer_harness::github::{Effect, Fault, Hold, JobSpec, RouteKind, Routes};
use pacer_suites::webhook::hooked_world;
use pacer_suites::{PATIENCE, api, brisk_world, end, queue, settled, succeeded, until};
use serde_json::json;

use super::{autoscaler, by_polling, by_webhook, pool, scaling, status};

/// They are announced as queued although they wait, and lists of jobs are read while nobody may run them.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_wait_for_an_approval_or_for_each_other_get_runners_when_they_may_have_them() -> Result<()> {
    let world = hooked_world(&[]).await?;
    let mut more = by_webhook();
    more["metrics"] = by_polling()["metrics"].clone();
    pool(&world, 0, &autoscaler(0, 5, more)).await?;
    let hold = |by| JobSpec::new("acme/app", ["web"]).lasting(Duration::from_secs(2)).held(by);
    let held = [world.github.queue_job(hold(Hold::Approval))?, world.github.queue_job(hold(Hold::Concurrency))?];
    queue(&world, "web", 1, Duration::from_secs(2))?;
    succeeded(&world, 1).await?;
    settled(&world, 0).await?;
    // Each listing asks for runs three times; of these two are begun long after the jobs were made.
    let before = world.github.count(RouteKind::ListRuns).requests;
    let read = world.github.wait_for(PATIENCE, |view| view.calls(RouteKind::ListRuns).requests >= before + 9).await;
    world.check(read).await?;
    let ledgers = api::<JobLedger>(&world).list(&ListParams::default()).await?;
    let known: Vec<u64> = job_ledger::read(ledgers.items.iter().map(|ledger| &ledger.spec)).open().map(|(id, _)| id).collect();
    let made = world.github.runners().ever_registered;
    ensure!((made, known.as_slice()) == (1, &[][..]), "{made} runners were made, and {known:?} counted");

    for id in held {
        ensure!(world.github.release_job(id), "{id} was not held");
    }
    succeeded(&world, 3).await?;
    settled(&world, 0).await?;
    let made = world.github.runners().ever_registered;
    ensure!(made == 3, "{made} runners were made for 3 jobs");
    end(world).await
}

/// The newest list of runners has none of those that replaced others since: each would count as idle.
#[tokio::test(flavor = "multi_thread")]
async fn share_of_busy_runners_lowers_no_number_while_runners_cannot_be_listed() -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    let more = json!({
        "metrics": [{"type": "PercentageRunnersBusy", "scaleDownThreshold": "0.5", "scaleDownFactor": "0.5"}],
        "scaleDownDelaySecondsAfterScaleOut": 0,
    });
    pool(&world, 4, &autoscaler(4, 6, more)).await?;
    settled(&world, 4).await?;
    world.github.inject(Fault::new(Routes::of(RouteKind::ListRunners), Effect::Status(502)).always());
    until::<RunnerReplicaSet>(&world, "an outage", |all| {
        let conditions = all.iter().filter_map(|set| set.status.as_ref()).flat_map(|status| &status.conditions);
        conditions.into_iter().any(|condition| condition.reason == "GitHubUnavailable")
    })
    .await?;

    let lower = Patch::Merge(json!({"spec": {"minReplicas": 1}}));
    let edited = api::<HorizontalRunnerAutoscaler>(&world).patch("web", &PatchParams::default(), &lower).await?;
    let generation = edited.metadata.generation.context("no generation")?;
    let is_seen = move |status: &pacer_api::HorizontalRunnerAutoscalerStatus| {
        let condition = pacer_api::condition::find(&status.conditions, ConditionType::Scaling);
        condition.is_some_and(|condition| condition.observed_generation.is_some_and(|seen| seen >= generation))
    };
    let held = status(&world, "the lower minimum seen", is_seen).await?;
    let (reason, message) = scaling(&held);
    let desired = held.status.as_ref().and_then(|status| status.desired_replicas);
    ensure!(desired == Some(4), "{desired:?} after {reason}: {message}");
    ensure!(message.contains("can't be listed at GitHub"), "{reason}: {message}");

    world.github.clear_faults();
    settled(&world, 1).await?;
    end(world).await
}
