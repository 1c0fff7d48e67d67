//! Many tenants with credentials of their own, one of them revoked, one whose GitHub hardly answers.

use std::time::Duration;

use anyhow::{Context, Result};
use kube::api::PostParams;
use pacer_api::RunnerDeployment;
use pacer_harness::world::World;
use pacer_suites::api;
use pacer_suites::tenants::{Tenant, online};

use crate::figure::{Figure, Page};
use crate::fleet::{self, PATIENCE, harm, nodes};
use crate::meter::{self, Meter, Reading};

/// How late the slow one is answered, which is longer than the operator waits.
const SLOW: Duration = Duration::from_secs(30);

/// Seconds until a thousand runners of the others are online.
const ONLINE: f64 = 30.0;

/// MiB for each tenant.
const MEMORY: f64 = 1.0;

/// Measures so many tenants with so many runners each.
///
/// # Errors
///
/// When a state is not reached; the figures so far are kept.
pub(crate) async fn measure(tenants: u32, runners: u32, idle: Duration, figures: &mut Vec<Figure>) -> Result<()> {
    let world = fleet::world().await?;
    let mut page = Page::new(format!("{tenants} tenants with {runners} runners"), figures);
    let outcome = life(&world, tenants, runners, idle, &mut page).await;
    fleet::finish(world, outcome).await
}

async fn life(world: &World, count: u32, runners: u32, idle: Duration, page: &mut Page<'_>) -> Result<()> {
    let tenants = Tenant::several(world, count).await?;
    let [revoked, slow, others @ ..] = tenants.as_slice() else { anyhow::bail!("at least three tenants are wanted") };
    let others: Vec<&Tenant> = others.iter().collect();
    world.github.revoke(&revoked.token);
    let fault = slow.slow_down(world, SLOW);
    let meter = Meter::start(world)?;
    let before = meter.read()?.resident;
    page.size("memory without tenants", before, None);
    let wanted = usize::try_from(runners)?;
    let began = tokio::time::Instant::now();
    for tenant in &tenants {
        let manifest: RunnerDeployment = serde_json::from_value(tenant.deployment(runners))?;
        api::<RunnerDeployment>(world).create(&PostParams::default(), &manifest).await?;
    }
    online(world, &others, wanted, PATIENCE).await?;
    page.time("the others online", began.elapsed(), (count <= 50 && runners <= 20).then_some(ONLINE));
    calls("until then", &meter.read()?, count, page);

    // The slow and the revoked one go on asking.
    let reading = meter::at_rest(world, idle).await?;
    let seconds = idle.as_secs();
    calls(&format!("in {seconds} s with nothing to do"), &reading, count, page);
    page.time(format!("in {seconds} s with nothing to do: processor time"), reading.cpu, None);
    page.writes(&format!("in {seconds} s with nothing to do"), &reading.writes, None);
    page.size("memory", reading.resident, None);
    let each = reading.resident.saturating_sub(before) / u64::from(count.max(1));
    page.size("memory for each tenant", each, Some(MEMORY));

    world.github.clear_fault(fault);
    revoked.put_token(world, &revoked.another_token(world)).await?;
    let mended = online(world, &[revoked, slow], wanted, PATIENCE).await.context("both are mended")?;
    page.time("the two online once both are mended", mended, None);

    let began = tokio::time::Instant::now();
    for tenant in &tenants {
        api::<RunnerDeployment>(world).delete(&tenant.name, &kube::api::DeleteParams::background()).await?;
    }
    nodes(world)?.until(PATIENCE, |tally| tally.present() == 0).await?;
    world.github.wait_for(PATIENCE, |view| view.runners().registered == 0).await?;
    page.time("all deleted: the last pod gone", began.elapsed(), None);
    meter::quiet(world, PATIENCE).await.context("all are gone")?;
    harm(world, page)
}

fn calls(when: &str, reading: &Reading, tenants: u32, page: &mut Page<'_>) {
    let all: u64 = reading.calls.values().map(|count| count.requests).sum();
    page.ratio(format!("{when}: GitHub calls for each tenant"), all, tenants, None);
    page.ratio(format!("{when}: of these paid"), reading.paid(), tenants, None);
    for (route, count) in &reading.calls {
        page.count(format!("{when}: {route:?}"), count.requests, None);
    }
}
