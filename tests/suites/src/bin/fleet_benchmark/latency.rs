//! Single jobs, one after the other: how long until the webhook is answered, which is once the job is in the cluster, and until the pod is made.

use std::time::Duration;

use anyhow::{Context, Result};
use pacer_harness::github::JobAction;
use pacer_harness::world::World;
use pacer_suites::queue;

use crate::burst::{prepare, start};
use crate::figure::{AtMost, Figure, Page, share_of};
use crate::fleet::{self, NAME, PATIENCE, harm, nodes};
use crate::meter::{self, Meter};

/// Seconds: half of the webhooks answered; half and 95 % of the pods made.
const ANSWERED: f64 = 0.05;
const MADE: f64 = 0.08;
const NEARLY_ALL_MADE: f64 = 0.2;

/// Measures so many jobs.
///
/// # Errors
///
/// When a state is not reached.
pub(crate) async fn measure(jobs: u32, figures: &mut Vec<Figure>) -> Result<()> {
    let world = start(|_| {}).await?;
    let outcome = singles(&world, jobs, &mut Page::new(format!("{jobs} single jobs"), figures)).await;
    fleet::finish(world, outcome).await
}

async fn singles(world: &World, jobs: u32, page: &mut Page<'_>) -> Result<()> {
    prepare(world, jobs).await?;
    meter::quiet(world, PATIENCE).await.context("the autoscaler is known")?;
    let meter = Meter::start(world)?;
    let mut made = Vec::new();
    for job in 1..=usize::try_from(jobs)? {
        let began = tokio::time::Instant::now();
        queue(world, NAME, 1, Duration::from_millis(100))?;
        nodes(world)?.until(PATIENCE, |tally| tally.seen() >= job).await?;
        made.push(began.elapsed());
        world.github.wait_for(PATIENCE, |view| view.jobs().succeeded >= job as u64 && view.runners().registered == 0).await?;
    }
    let deliveries = world.github.deliveries();
    let queued = deliveries.iter().filter(|delivery| delivery.action == Some(JobAction::Queued));
    let answered: Vec<Duration> = queued.map(|delivery| delivery.duration).collect();
    for (name, times, limits) in [
        ("a queued event answered", answered, [Some(ANSWERED), None]),
        ("from the webhook to the pod", made, [Some(MADE), Some(NEARLY_ALL_MADE)]),
    ] {
        for (part, share, limit) in [("median", 50, limits[0]), ("95 %", 95, limits[1])] {
            page.limited_time(format!("{name}, {part}"), share_of(&times, share), limit);
        }
    }
    let counts = world.github.runners();
    page.ratio("runners made for each job", counts.ever_registered, jobs, Some(AtMost::Limit(1.0)));
    page.ratio("paid GitHub calls for each job", meter.read()?.paid(), jobs, None);
    harm(world, page)
}
