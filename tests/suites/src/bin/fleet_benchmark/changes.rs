//! A fleet that works and is changed meanwhile.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result};
use pacer_api::RunnerReplicaSet;
use pacer_harness::github::{Scope, View};
use pacer_harness::nodes::{Stage, Tally};
use pacer_harness::objects;
use pacer_harness::world::World;
use pacer_suites::{api, change_template, queue, scale};
use serde_json::json;

use crate::figure::{AtMost, Figure, Page};
use crate::fleet::{self, NAME, PATIENCE, harm, nodes, online, world};
use crate::meter::{self, Meter};

/// Longer than the scene.
const LONG: Duration = Duration::from_secs(3_600);

/// Longer than the listing takes to show the jobs and than the rollout of the idle runners should take.
const JOB: Duration = Duration::from_secs(75);

/// Seconds until all idle runners have the new template.
const ROLLOUT: f64 = 27.0;

/// Most pods of the rollout that are there at once: those wanted, and ten percent.
const PODS: f64 = 132.0;

/// 100 to 40 runners while 30 are busy.
///
/// # Errors
///
/// When a state is not reached; the figures so far are kept.
pub(crate) async fn scale_down(figures: &mut Vec<Figure>) -> Result<()> {
    let world = world().await?;
    let outcome = shrink(&world, &mut Page::new("100 to 40, 30 busy".to_owned(), figures)).await;
    fleet::finish(world, outcome).await
}

async fn shrink(world: &World, page: &mut Page<'_>) -> Result<()> {
    online(world, NAME, 100, None).await?;
    busy(world, 30, LONG).await?;
    let refused = world.github.busy_deletes_refused();
    let meter = Meter::start(world)?;
    scale(world, NAME, 40).await?;
    world.github.wait_for(PATIENCE, |view| view.runners().registered <= 40).await?;
    page.time("60 unregistered", meter.elapsed(), None);
    nodes(world)?.until(PATIENCE, |tally| tally.present() <= 40).await?;
    page.time("60 pods gone", meter.elapsed(), None);
    meter::quiet(world, PATIENCE).await?;
    page.count("pods left", u64::try_from(nodes(world)?.tally().present())?, Some(AtMost::Wish(40.0)));
    page.count("busy runners asked (422)", world.github.busy_deletes_refused() - refused, Some(AtMost::Wish(0.0)));
    page.count("jobs that stopped running", 30 - world.github.jobs().in_progress.min(30), Some(AtMost::Limit(0.0)));
    page.time("processor time", meter.read()?.cpu, None);
    harm(world, page)
}

/// A new template for 100 idle and 20 busy runners.
///
/// # Errors
///
/// When a state is not reached; the figures so far are kept.
pub(crate) async fn rollout(figures: &mut Vec<Figure>) -> Result<()> {
    let world = world().await?;
    let outcome = roll(&world, &mut Page::new("rollout, 100 idle + 20 busy".to_owned(), figures)).await;
    fleet::finish(world, outcome).await
}

async fn roll(world: &World, page: &mut Page<'_>) -> Result<()> {
    online(world, NAME, 120, None).await?;
    busy(world, 20, JOB).await?;
    let old: BTreeSet<String> = world.github.registrations(&scope()).into_iter().map(|runner| runner.name).collect();
    let meter = Meter::start(world)?;
    change_template(world, NAME, &json!({"env": [{"name": "REVISION", "value": "2"}]})).await?;
    let mut tally = nodes(world)?.watch();
    let mut most = 0;
    let steps = async {
        // Those that are still there have a job.
        world.github.wait_for(PATIENCE, |view| matches!(state(view, &old), (0, _, 100..))).await?;
        let idle_ones = (meter.elapsed(), meter.read()?.cpu);
        world.github.wait_for(PATIENCE, |view| view.jobs().completed == 20).await?;
        let jobs = meter.elapsed();
        world.github.wait_for(PATIENCE, |view| state(view, &old) == (0, 0, 120)).await?;
        objects::until(api::<RunnerReplicaSet>(world), "", PATIENCE, |all| all.len() == 1).await?;
        anyhow::Ok((idle_ones, jobs, meter.elapsed()))
    };
    tokio::pin!(steps);
    let ((idle, cpu), jobs, all) = loop {
        // One that has ended takes nothing of its node any more.
        let takes_room = |tally: &Tally| tally.present().saturating_sub(tally.now(Stage::Ended));
        most = most.max(takes_room(&tally.borrow_and_update()));
        tokio::select! {
            done = &mut steps => break done.context("a new template for 100 idle and 20 busy runners")?,
            changed = tally.changed() => changed.context("the nodes stopped")?,
        }
    };
    page.limited_time("100 idle ones replaced", idle, Some(ROLLOUT));
    page.time("all replaced after the last job's end", all.saturating_sub(jobs), None);
    page.time("processor time until the idle ones were replaced", cpu, None);
    page.count("most pods at once that had not ended", u64::try_from(most)?, Some(AtMost::Limit(PODS)));
    page.count("jobs that did not succeed", 20 - world.github.jobs().succeeded.min(20), Some(AtMost::Limit(0.0)));
    harm(world, page)
}

fn scope() -> Scope {
    Scope::repository("acme", "app")
}

/// Old runners without and with a job, and new ones that are online.
fn state(view: &View<'_>, old: &BTreeSet<String>) -> (usize, usize, usize) {
    let (mut idle, mut busy, mut new) = (0, 0, 0);
    for runner in view.registrations(&scope()) {
        match (old.contains(&runner.name), runner.job) {
            (true, None) => idle += 1,
            (true, Some(_)) => busy += 1,
            (false, _) => new += usize::from(runner.online),
        }
    }
    (idle, busy, new)
}

/// Gives runners jobs and waits until the set's status shows them, as it does when GitHub's listing has.
async fn busy(world: &World, count: usize, duration: Duration) -> Result<()> {
    queue(world, NAME, count, duration)?;
    world.github.wait_for(PATIENCE, |view| view.jobs().in_progress == count as u64).await?;
    let wanted = i32::try_from(count).ok();
    let shown = objects::until(api::<RunnerReplicaSet>(world), "", PATIENCE, |sets| {
        sets.iter().any(|set| set.status.as_ref().is_some_and(|status| status.busy_replicas == wanted))
    });
    shown.await.with_context(|| format!("{count} busy runners in the status"))?;
    Ok(())
}
