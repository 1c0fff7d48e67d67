//! Jobs that no webhook tells of.

use anyhow::{Context, Result, ensure};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use pacer_api::{HorizontalRunnerAutoscaler, JobLedger};
use pacer_harness::github::{JobId, RouteKind};
use pacer_harness::world::World;
use pacer_suites::{NAMESPACE, PATIENCE, api, apply, autoscaler, deployment, put, queue, running, until, world};
use serde_json::json;

use super::{LONG, pacer, waits_for};

/// Waits until the status tells of these jobs and no others.
async fn told(world: &World, jobs: &[JobId]) -> Result<()> {
    let wanted: Vec<i64> = jobs.iter().filter_map(|job| i64::try_from(job.0).ok()).collect();
    let tells = |one: &&HorizontalRunnerAutoscaler| {
        let told = one.status.iter().flat_map(|status| &status.polled_jobs);
        told.map(|job| job.job).collect::<Vec<_>>() == wanted
    };
    until::<HorizontalRunnerAutoscaler>(world, &format!("{wanted:?} in the status"), |all| all.iter().all(tells)).await?;
    Ok(())
}

async fn version(autoscalers: &Api<HorizontalRunnerAutoscaler>) -> Result<String> {
    autoscalers.get("web").await?.resource_version().context("a version")
}

#[tokio::test(flavor = "multi_thread")]
async fn job_that_polling_alone_tells_of_is_explained_and_told_once() -> Result<()> {
    let world = world(|_| {}).await?;
    apply(&world, &deployment("web", 0)).await?;
    let metrics = json!([{"type": "TotalNumberOfQueuedAndInProgressWorkflowRuns", "repositoryNames": ["app"]}]);
    let polled = put(put(autoscaler("web", 0, 1), "/spec", "scaleUpTriggers", json!(null)), "/spec", "metrics", metrics);
    apply(&world, &polled).await?;
    queue(&world, "web", 1, LONG)?;
    running(&world, 1).await?;
    let [second, third] = queue(&world, "web", 2, LONG)?[..] else { panic!("two jobs") };
    let elsewhere = queue(&world, "other", 1, LONG)?;

    let story = waits_for(&world, second, "MaximumReached").await?;
    ensure!(story["place"] == 1 && story["autoscaler"] == "default/web" && story["repository"] == "acme/app", "{story:#}");
    ensure!(story["why"].as_str().is_some_and(|why| why.contains("maxReplicas 1")), "{story:#}");
    let story = waits_for(&world, third, "MaximumReached").await?;
    ensure!((&story["place"], &story["waiting"]) == (&json!(2), &json!(2)), "{story:#}");
    let (well, text) = pacer(&world, &["explain", "queue", "-n", NAMESPACE]).await?;
    ensure!(well && text.contains("1 of 2") && text.contains("2 of 2") && text.matches("MaximumReached").count() == 2, "{text}");
    let (well, text) = pacer(&world, &["explain", "job", &elsewhere[0].0.to_string(), "-n", NAMESPACE]).await?;
    ensure!(!well && text.contains("polling alone tells of it"), "{text}");
    let ledgers = api::<JobLedger>(&world).list(&ListParams::default()).await?.items;
    ensure!(ledgers.iter().all(|ledger| !ledger.spec.has(second.0)), "a ledger has it: {ledgers:#?}");

    // Nothing is written while the queue says the same.
    told(&world, &[second, third]).await?;
    let autoscalers = api::<HorizontalRunnerAutoscaler>(&world);
    let (before, asked) = (version(&autoscalers).await?, world.github.count(RouteKind::ListRuns).requests);
    let read = world.github.wait_for(PATIENCE, |view| view.calls(RouteKind::ListRuns).requests >= asked + 3).await;
    world.check(read).await.context("the queue is not read any more")?;
    ensure!(version(&autoscalers).await? == before, "{:#?}", autoscalers.get("web").await?.status);

    ensure!(world.github.cancel_job(second), "it waits no longer");
    told(&world, &[third]).await?;
    ensure!(world.github.cancel_job(third), "it waits no longer");
    told(&world, &[]).await?;
    let (well, text) = pacer(&world, &["explain", "job", &third.0.to_string(), "-n", NAMESPACE]).await?;
    ensure!(!well && text.contains(&format!("knows job {}", third.0)), "{text}");
    world.stop().await;
    Ok(())
}
