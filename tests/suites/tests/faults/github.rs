//! GitHub fails, is slow, refuses, or does not tell the truth.

use std::time::Duration;

use anyhow::{Result, ensure};
use pacer_api::Runner;
use pacer_harness::github::{Effect, Fault, Lies, RouteKind, Routes, Scope};
use pacer_suites::fleet::Kind;
use pacer_suites::{
    PATIENCE, brisk_world, delete_all, end, for_both_kinds, online_in, queue, runners, running, settled, succeeded, until,
};
use serde_json::json;

for_both_kinds!(
    a_failing_scope_keeps_what_it_has_and_blocks_no_other,
    lost_answers_timeouts_and_rate_limits_are_lived_through,
    a_busy_flag_that_is_late_or_turns_false_in_mid_job_kills_nobody,
);

async fn a_failing_scope_keeps_what_it_has_and_blocks_no_other(kind: Kind) -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    let (app, other) = (Scope::repository("acme", "app"), Scope::repository("acme", "other"));
    world.github.add(&other);
    let (fleet, elsewhere) = (kind.fleet("web", 10), kind.fleet("batch", 10).with("repository", json!("acme/other")));
    fleet.apply(&world).await?;
    elsewhere.apply(&world).await?;
    online_in(&world, &app, 10).await?;
    online_in(&world, &other, 10).await?;
    let jobs = queue(&world, "web", 4, Duration::from_secs(20))?;
    running(&world, 4).await?;

    let fail = |kind| world.github.inject(Fault::new(Routes::of(kind).scope(app.clone()), Effect::Status(502)).always());
    let kept = || {
        // Finished runners leave by themselves; nobody else does, as a 502 is no "unregistered".
        let left = world.github.view(|view| view.registrations(&app).len() as u64 + view.jobs().succeeded);
        ensure!(left == 10, "{left} runners of 10 were left");
        Ok(())
    };
    let removals = fail(RouteKind::DeleteRunner);
    fleet.scale(&world, 5).await?;
    let refused = world.github.wait_for(PATIENCE, |view| view.calls(RouteKind::DeleteRunner).failed >= 5).await;
    world.check(refused).await?;
    ensure!(world.github.fault_hits(removals) >= 5);
    kept()?;
    fail(RouteKind::ListRunners);
    fail(RouteKind::RegistrationToken);
    elsewhere.scale(&world, 20).await?;
    online_in(&world, &other, 20).await?;
    elsewhere.scale(&world, 5).await?;
    online_in(&world, &other, 5).await?;
    kept()?;
    world.github.clear_faults();
    // As many as wanted are left, and nobody's job was interrupted for that.
    online_in(&world, &app, 5).await?;
    succeeded(&world, jobs.len()).await?;
    settled(&world, 10).await?;
    end(world).await
}

async fn lost_answers_timeouts_and_rate_limits_are_lived_through(kind: Kind) -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    let list = || Routes::of(RouteKind::ListRunners);
    let remove = || Routes::of(RouteKind::DeleteRunner);
    let token = || Routes::of(RouteKind::RegistrationToken);
    for fault in [
        Fault::new(token(), Effect::Status(500)).times(2),
        Fault::new(token(), Effect::SecondaryLimit { retry_after: Duration::from_secs(1) }),
        // A token was made, and nobody knows.
        Fault::new(token(), Effect::Reset).performed(),
        Fault::new(list(), Effect::TruncatedJson).times(2),
        Fault::new(list(), Effect::SlowBody { pieces: 4, pause: Duration::from_millis(100) }).times(2),
    ] {
        world.github.inject(fault);
    }
    let fleet = kind.fleet("web", 20);
    fleet.apply(&world).await?;
    runners(&world, "20 online", |counts| counts.online == 20).await?;
    let jobs = queue(&world, "web", 6, Duration::from_secs(20))?;
    running(&world, 6).await?;
    until::<Runner>(&world, "registered Runners", |all| {
        all.iter().filter(|runner| runner.status.as_ref().is_some_and(|status| status.runner_id.is_some())).count() == 20
    })
    .await?;

    world.github.clear_faults();
    let hangs = world.github.inject(Fault::new(list(), Effect::Hang));
    for fault in [
        Fault::new(remove(), Effect::SecondaryLimit { retry_after: Duration::from_secs(2) }).times(2),
        // Removed, and nobody knows.
        Fault::new(remove(), Effect::Reset).performed().times(3),
        Fault::new(remove(), Effect::Status(503)).performed().times(2),
        Fault::new(remove(), Effect::Status(403)).times(2),
        Fault::new(remove(), Effect::Delay(Duration::from_secs(1))).times(3),
    ] {
        world.github.inject(fault);
    }
    fleet.scale(&world, 8).await?;
    settled(&world, 8).await?;
    ensure!(world.github.fault_hits(hangs) == 1, "no listing hung");
    succeeded(&world, jobs.len()).await?;

    // The hourly budget is used up and comes back.
    world.github.exhaust_rate_limit(Duration::from_secs(3));
    fleet.scale(&world, 12).await?;
    settled(&world, 12).await?;
    end(world).await
}

async fn a_busy_flag_that_is_late_or_turns_false_in_mid_job_kills_nobody(kind: Kind) -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    let fleet = kind.fleet("web", 20);
    fleet.apply(&world).await?;
    runners(&world, "20 online", |counts| counts.online == 20).await?;

    world.github.lie(Lies { busy_late_by: Duration::from_secs(60), ..Lies::default() });
    queue(&world, "web", 8, Duration::from_secs(45))?;
    running(&world, 8).await?;
    fleet.scale(&world, 8).await?;
    // Reached although the listing offers the busy ones as well.
    runners(&world, "the busy ones only", |counts| counts.registered == 8 && counts.busy == 8).await?;
    succeeded(&world, 8).await?;
    settled(&world, 8).await?;

    world.github.lie(Lies { busy_false_after: Some(Duration::from_millis(500)), ..Lies::default() });
    queue(&world, "web", 5, Duration::from_secs(45))?;
    running(&world, 5).await?;
    fleet.scale(&world, 2).await?;
    runners(&world, "the busy ones only", |counts| counts.registered == 5 && counts.busy == 5).await?;
    delete_all(&world).await?;
    ensure!(world.github.jobs().succeeded == 13, "{:?}", world.github.jobs());
    end(world).await
}
