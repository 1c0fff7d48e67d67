//! The operator and the API server end in the middle of what they do.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pacer_suites::fleet::Kind;
use pacer_suites::kill::{Dice, kill};
use pacer_suites::{PATIENCE, PATIENT_LEASE, brisk_world, end, for_both_kinds, queue, runners, running, settled, succeeded};

for_both_kinds!(
    an_operator_killed_twenty_times_kills_no_job_and_leaves_nothing_behind,
    an_api_server_that_restarts_or_hangs_loses_no_job_and_no_runner,
);

async fn an_operator_killed_twenty_times_kills_no_job_and_leaves_nothing_behind(kind: Kind) -> Result<()> {
    let mut world = brisk_world(&[], |_| {}).await?;
    let mut dice = Dice::new(20);
    let fleet = kind.fleet("web", 30);
    fleet.apply(&world).await?;
    kill(&mut world, &mut dice, 4).await?;
    let mut jobs = queue(&world, "web", 10, Duration::from_secs(15))?.len();
    running(&world, 10).await?;
    fleet.scale(&world, 12).await?;
    kill(&mut world, &mut dice, 4).await?;
    fleet.renew(&world, "2").await?;
    kill(&mut world, &mut dice, 4).await?;
    jobs += queue(&world, "web", 8, Duration::from_secs(8))?.len();
    fleet.scale(&world, 30).await?;
    kill(&mut world, &mut dice, 4).await?;
    fleet.renew(&world, "3").await?;
    kill(&mut world, &mut dice, 4).await?;

    succeeded(&world, jobs).await?;
    settled(&world, 30).await?;
    // 30 at first, 12 and 30 for the two templates, 18 for the scale up, one for every job, and not many more.
    let made = world.nodes.as_ref().context("no nodes")?.tally().seen();
    let few = if made <= 30 + 12 + 30 + 18 + jobs + 12 { Ok(()) } else { Err(format!("{made} pods were made")) };
    world.check(few).await?;
    end(world).await
}

async fn an_api_server_that_restarts_or_hangs_loses_no_job_and_no_runner(kind: Kind) -> Result<()> {
    let world = brisk_world(&PATIENT_LEASE, |_| {}).await?;
    let fleet = kind.fleet("web", 20);
    fleet.apply(&world).await?;
    runners(&world, "20 online", |counts| counts.online == 20).await?;
    queue(&world, "web", 6, Duration::from_secs(12))?;
    running(&world, 6).await?;
    // Killed as soon as the work has begun.
    fleet.scale(&world, 30).await?;
    runners(&world, "the first new one", |counts| counts.ever_registered > 20).await?;
    world.plane.restart_apiserver().await?;
    runners(&world, "30 online", |counts| counts.online >= 30).await?;

    // A partition: requests hang, jobs go on and end.
    fleet.renew(&world, "2").await?;
    let before = world.github.runners().ever_registered;
    runners(&world, "the rollout", |counts| counts.ever_registered > before).await?;
    let ended = world.plane.without_apiserver(world.github.wait_for(PATIENCE, |view| view.jobs().succeeded == 6)).await;
    world.check(ended).await?;
    settled(&world, 30).await?;

    fleet.scale(&world, 5).await?;
    let operator = world.operator.as_ref().context("no operator")?;
    runners(&world, "the first ones gone", |counts| counts.registered < 30).await?;
    world.plane.restart_apiserver().await?;
    settled(&world, 5).await?;
    ensure!(operator.exit().is_none(), "the operator ended: {:?}", operator.exit());
    end(world).await
}
