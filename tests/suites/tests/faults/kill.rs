//! The operator and the API server end in the middle of what they do.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pacer_api::RunnerDeployment;
use pacer_suites::kill::{Dice, kill};
use pacer_suites::{
    PATIENCE, apply, brisk_world, change_template, delete, deployment, no_busy_kill, nothing_left, queue, runners, running,
    scale, settled, succeeded,
};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_killed_twenty_times_kills_no_job_and_leaves_nothing_behind() -> Result<()> {
    let mut world = brisk_world(&[], |_| {}).await?;
    let mut dice = Dice::new(20);
    apply(&world, &deployment("web", 30)).await?;
    kill(&mut world, &mut dice, 4).await?;
    let mut jobs = queue(&world, "web", 10, Duration::from_secs(15))?.len();
    running(&world, 10).await?;
    scale(&world, "web", 12).await?;
    kill(&mut world, &mut dice, 4).await?;
    change_template(&world, "web", &json!({"env": [{"name": "REVISION", "value": "2"}]})).await?;
    kill(&mut world, &mut dice, 4).await?;
    jobs += queue(&world, "web", 8, Duration::from_secs(8))?.len();
    scale(&world, "web", 30).await?;
    kill(&mut world, &mut dice, 4).await?;
    change_template(&world, "web", &json!({"env": [{"name": "REVISION", "value": "3"}]})).await?;
    kill(&mut world, &mut dice, 4).await?;

    succeeded(&world, jobs).await?;
    settled(&world, 30).await?;
    // 30 at first, 12 and 30 for the two templates, 18 for the scale up, one for every job, and not many more.
    let made = world.nodes.as_ref().context("no nodes")?.tally().seen();
    let few = if made <= 30 + 12 + 30 + 18 + jobs + 12 { Ok(()) } else { Err(format!("{made} pods were made")) };
    world.check(few).await?;
    delete::<RunnerDeployment>(&world, "web").await?;
    nothing_left(&world).await?;
    no_busy_kill(&world).await?;
    world.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_restarts_or_hangs_loses_no_job_and_no_runner() -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    apply(&world, &deployment("web", 20)).await?;
    runners(&world, "20 online", |counts| counts.online == 20).await?;
    queue(&world, "web", 6, Duration::from_secs(12))?;
    running(&world, 6).await?;
    // Killed as soon as the work has begun.
    scale(&world, "web", 30).await?;
    runners(&world, "the first new one", |counts| counts.ever_registered > 20).await?;
    world.plane.restart_apiserver().await?;
    runners(&world, "30 online", |counts| counts.online >= 30).await?;

    // A partition: requests hang, jobs go on and end.
    change_template(&world, "web", &json!({"env": [{"name": "REVISION", "value": "2"}]})).await?;
    let before = world.github.runners().ever_registered;
    runners(&world, "the rollout", |counts| counts.ever_registered > before).await?;
    let ended = world.plane.without_apiserver(world.github.wait_for(PATIENCE, |view| view.jobs().succeeded == 6)).await;
    world.check(ended).await?;
    settled(&world, 30).await?;

    scale(&world, "web", 5).await?;
    let operator = world.operator.as_ref().context("no operator")?;
    runners(&world, "the first ones gone", |counts| counts.registered < 30).await?;
    world.plane.restart_apiserver().await?;
    settled(&world, 5).await?;
    ensure!(operator.exit().is_none(), "the operator ended: {:?}", operator.exit());
    delete::<RunnerDeployment>(&world, "web").await?;
    nothing_left(&world).await?;
    no_busy_kill(&world).await?;
    world.stop().await;
    Ok(())
}
