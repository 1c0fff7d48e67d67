//! Jobs that several pools fit, and labels that all pools share.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pacer_api::{JobLedger, job_ledger};
use pacer_harness::github::{JobId, JobSpec};
use pacer_harness::world::World;
use pacer_suites::webhook::hooked_world;
use pacer_suites::{apply, deployment, end, prompt, put, queue, settled, succeeded, until, with_spec, world_with};
use serde_json::json;

use super::{autoscaler, by_polling, by_webhook, pool};

const COMMON: &str = "--common-runner-labels=common";

/// A job that asks for a label of the deployment `web` and for the one that all runners have.
fn queue_common(world: &World, duration: Duration) -> Result<JobId> {
    Ok(world.github.queue_job(JobSpec::new("acme/app", ["web", "common"]).lasting(duration))?)
}

/// One runner does the jobs one after the other. Those that wait are in the lists that the other autoscaler reads all the time.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_in_the_ledger_of_one_autoscaler_scales_no_other_pool_that_fits_it() -> Result<()> {
    let world = hooked_world(&[]).await?;
    pool(&world, 0, &autoscaler(0, 1, by_webhook())).await?;
    let jobs = queue(&world, "web", 3, Duration::from_secs(30))?;
    let is_known = |ledgers: &[&JobLedger]| {
        let ledger = job_ledger::read(ledgers.iter().map(|ledger| &ledger.spec));
        ledger.open().count() == jobs.len()
    };
    until::<JobLedger>(&world, "all jobs in the ledger", is_known).await?;
    apply(&world, &with_spec(deployment("other", 0), "labels", json!(["other", "web"]))).await?;
    let polls = put(prompt(autoscaler(0, 5, by_polling())), "/metadata", "name", json!("other"));
    apply(&world, &put(polls, "/spec/scaleTargetRef", "name", json!("other"))).await?;

    succeeded(&world, jobs.len()).await?;
    for id in jobs {
        let runner = world.github.job(id).and_then(|job| job.runner).context("a job without a runner")?;
        ensure!(runner.name.starts_with("web-"), "{} took job {id}", runner.name);
    }
    let made = world.github.runners().ever_registered;
    ensure!(made == 3, "{made} runners were made for 3 jobs");

    // Jobs that no ledger has are counted by whoever polls.
    queue(&world, "other", 1, Duration::from_secs(2))?;
    succeeded(&world, 4).await?;
    settled(&world, 0).await?;
    end(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_ask_for_a_common_label_get_runners_by_polling() -> Result<()> {
    let world = world_with(&[COMMON], |_| {}).await?;
    pool(&world, 0, &prompt(autoscaler(0, 5, by_polling()))).await?;
    queue_common(&world, Duration::from_secs(2))?;
    queue_common(&world, Duration::from_secs(2))?;
    succeeded(&world, 2).await?;
    settled(&world, 0).await?;
    end(world).await
}

/// The list of jobs is read once a minute where webhooks tell of them, and says that the job still waits.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_asks_for_a_common_label_counts_as_long_as_it_waits() -> Result<()> {
    let world = hooked_world(&[COMMON]).await?;
    pool(&world, 0, &autoscaler(0, 1, by_webhook())).await?;
    queue_common(&world, Duration::from_secs(150))?;
    queue_common(&world, Duration::from_secs(2))?;
    succeeded(&world, 2).await?;
    settled(&world, 0).await?;
    let made = world.github.runners().ever_registered;
    ensure!(made == 2, "{made} runners were made for 2 jobs");
    end(world).await
}
