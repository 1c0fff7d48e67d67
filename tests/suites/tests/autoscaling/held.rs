//! Jobs that wait for something else than a runner: an approval, or another job of their concurrency group.

use std::time::Duration;

use anyhow::{Result, ensure};
use kube::api::ListParams;
use pacer_api::{JobLedger, job_ledger};
use pacer_harness::github::{Hold, JobSpec, RouteKind};
use pacer_suites::webhook::hooked_world;
use pacer_suites::{PATIENCE, api, end, queue, settled, succeeded};

use super::{autoscaler, by_polling, by_webhook, pool};

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
