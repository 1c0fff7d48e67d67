//! GitHub's secondary limits, with everything else as it was measured and the operator as it is shipped: what it does in a minute fits into what
//! GitHub allows in one, whoever waits for what.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use pacer_api::{HorizontalRunnerAutoscaler, Runner};
use pacer_harness::github::{Behaviour, Job, JobSpec, RouteKind, Scope, Settings, Tail, View};
use pacer_harness::world::World;
use pacer_suites::fleet::Kind;
use pacer_suites::webhook::{hook, receive};
use pacer_suites::{PATIENCE, apply, end, runners, until, world};
use serde_json::{Value, json};

/// GitHub's points a minute: here for all endpoints together, the hardest reading of its documentation.
const POINTS: u32 = 900;

/// How much a run takes.
struct Size {
    /// Idle runners that are removed.
    idle: u32,
    /// A steady load: so many jobs, each so long.
    jobs: usize,
    job: Duration,
    /// How many jobs of other fleets there are at least meanwhile, and how many of ten start within [`PROMPT`].
    others: usize,
    prompt: usize,
}

impl Size {
    /// More removals than a minute's points allow, and so few that the second minute is enough; a minute of jobs. On a machine that runs two
    /// of these tests at a time, a single job waits for the CPU.
    const SHORT: Self = Self { idle: 240, jobs: 180, job: Duration::from_secs(4), others: 8, prompt: 9 };
    /// A thousand removals; ten minutes of jobs.
    const FULL: Self = Self { idle: 1_000, jobs: 1_800, job: Duration::from_secs(20), others: 50, prompt: 10 };

    /// `make bench-limits` asks for the full one.
    fn of_this_run() -> Self {
        if std::env::var_os("PACER_FULL_SIZE").is_some() { Self::FULL } else { Self::SHORT }
    }
}

/// Organizations whose jobs start meanwhile; each needs a registration token of its own.
const OTHERS: usize = 8;

/// Removals a minute at least. GitHub allows 180; a third of the points is kept for what is more urgent.
const PACE: f64 = 100.0;

/// Jobs of other fleets start within this, and the last of them within four times that.
const PROMPT: Duration = Duration::from_secs(5);

/// How often a job of the steady load is queued.
const EVERY: Duration = Duration::from_millis(333);

/// 95 of 100 jobs of the steady load start within this.
const P95: Duration = Duration::from_secs(10);

/// A world with the shipped settings and webhooks. Events come and runners and jobs come together sooner than at the real GitHub, and agents do not
/// update themselves: GitHub's own delays would fill the time that is measured.
async fn limited_world() -> Result<World> {
    world(|options| {
        let some = |from: u64, to: u64| Duration::from_millis(from)..=Duration::from_millis(to);
        let behaviour = Behaviour {
            online_late: some(200, 600),
            assigned_late: some(200, 600),
            events_late: Tail { median: Duration::from_millis(100), longest: Duration::from_secs(1) },
            updates_itself: 0.0,
            ..Behaviour::real(900)
        };
        let rate_limit = options.github.rate_limit;
        options.github = Settings { behaviour, rate_limit, points_per_minute: Some(POINTS), ..Settings::real(900) };
        receive(options);
    })
    .await
}

/// An autoscaler that gives a fleet a runner for each job that a webhook tells of, and none otherwise.
async fn scaled_by_webhook(world: &World, fleet: &str, owner: Scope, most: u32) -> Result<()> {
    hook(world, owner)?;
    let object = json!({
        "apiVersion": "actions.summerwind.dev/v1alpha1",
        "kind": "HorizontalRunnerAutoscaler",
        "metadata": {"name": fleet, "namespace": "default"},
        "spec": {
            "scaleTargetRef": {"name": fleet}, "minReplicas": 0, "maxReplicas": most,
            "scaleUpTriggers": [{"githubEvent": {"workflowJob": {}}, "duration": "30m"}],
        },
    });
    apply(world, &object).await
}

/// Waits until so many autoscalers have asked for a number.
async fn deciding(world: &World, count: usize) -> Result<()> {
    let decided =
        |one: &&&HorizontalRunnerAutoscaler| one.status.as_ref().is_some_and(|status| status.desired_replicas.is_some());
    until::<HorizontalRunnerAutoscaler>(world, "the first numbers", |all| all.iter().filter(decided).count() == count).await?;
    Ok(())
}

/// How long each of these jobs waited for its start, the longest last; one that has not started waits still.
fn waits<'a>(jobs: impl Iterator<Item = &'a Job>) -> Vec<Duration> {
    let started = |job: &Job| job.started_at.unwrap_or_else(Timestamp::now).duration_since(job.queued_at);
    let mut waits: Vec<Duration> = jobs.map(|job| Duration::try_from(started(job)).unwrap_or_default()).collect();
    waits.sort_unstable();
    waits
}

/// Calls by kind, as text.
fn calls(world: &World) -> String {
    let counts: BTreeMap<RouteKind, _> = world.github.counts();
    let api = counts.into_iter().filter(|(kind, _)| *kind != RouteKind::RegisterRunner);
    api.map(|(kind, count)| format!("{} {kind:?}", count.requests)).collect::<Vec<_>>().join(", ")
}

/// No call was refused because there were too many in a minute.
async fn within_limits(world: &World) -> Result<()> {
    let hit = world.github.secondary_limits_hit();
    let outcome = if hit == 0 { Ok(()) } else { Err(format!("{hit} calls were refused by secondary limits")) };
    world.check(outcome).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn many_removals_keep_to_the_limit_while_jobs_of_others_start() -> Result<()> {
    let world = limited_world().await?;
    let Size { idle: size, job, others, prompt, .. } = Size::of_this_run();
    let fleet = Kind::RunnerDeployment.fleet("idle", size);
    fleet.apply(&world).await?;
    for number in 0..OTHERS {
        let name = format!("org-{number}");
        world.github.add(&Scope::repository(&name, "app"));
        Kind::RunnerDeployment
            .fleet(&name, 0)
            .with("repository", json!(null))
            .with("organization", json!(name))
            .apply(&world)
            .await?;
        scaled_by_webhook(&world, &name, Scope::organization(&name), 20).await?;
    }
    deciding(&world, OTHERS).await?;
    runners(&world, "all online", |counts| counts.online == u64::from(size)).await?;
    until::<Runner>(&world, "registered Runners", |found| {
        let listed = |runner: &&&Runner| runner.status.as_ref().is_some_and(|status| status.runner_id.is_some());
        found.iter().filter(listed).count() == size as usize
    })
    .await?;

    world.github.reset_calls();
    let began = Instant::now();
    fleet.scale(&world, 0).await?;
    let idle = |view: &View<'_>| view.registrations(&Scope::repository("acme", "app")).len();
    let mut queued = 0;
    // From when removals begin until the last is done, a job for another organization at a time.
    while world.github.view(idle) > 0 {
        let organization = format!("org-{}", queued % OTHERS);
        let id = world.github.queue_job(JobSpec::new(format!("{organization}/app"), [organization.as_str()]).lasting(job))?;
        queued += 1;
        let started = |view: &View<'_>| view.job(id).is_some_and(|job| job.started_at.is_some());
        world.check(world.github.wait_for(PATIENCE, started).await).await.context("waiting for a job of another organization")?;
    }
    let unregistered = began.elapsed();
    until::<Runner>(&world, "no idle Runners", |all| all.iter().all(|runner| runner.spec.config.organization.is_some())).await?;
    let gone = began.elapsed();
    let waits = world.github.view(|view| waits(view.all_jobs()));
    let longest = waits.last().copied().unwrap_or_default();
    println!(
        "{size} idle runners unregistered in {:.1} s ({:.0} a minute), gone in {:.1} s; {queued} jobs of {OTHERS} other organizations, the longest \
         wait {:.1} s; {} secondary limits hit; calls: {}",
        unregistered.as_secs_f64(),
        f64::from(size) * 60.0 / unregistered.as_secs_f64(),
        gone.as_secs_f64(),
        longest.as_secs_f64(),
        world.github.secondary_limits_hit(),
        calls(&world),
    );
    within_limits(&world).await?;
    ensure!(queued >= others, "{queued} jobs of others");
    let pace = f64::from(size) * 60.0 / unregistered.as_secs_f64();
    ensure!(pace >= PACE, "{pace:.0} removals a minute");
    let most = waits.get((waits.len() * prompt / 10).min(waits.len() - 1)).copied().unwrap_or_default();
    ensure!(most <= PROMPT && longest <= PROMPT * 4, "a job waited {longest:?}: {waits:?}");
    // What waits for its turn is neither a failure nor news.
    let said = pacer_suites::events(&world, "GitHubUnavailable").await?.len();
    let entries = world.operator.iter().flat_map(|operator| operator.entries());
    let warned = entries.filter(|entry| entry.get("level").and_then(Value::as_str) == Some("WARN")).count();
    ensure!(said == 0 && warned < 10, "{said} events, {warned} warnings");
    end(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_steady_load_of_short_jobs_keeps_to_the_limit_and_starts_soon() -> Result<()> {
    let world = limited_world().await?;
    let Size { jobs, job, .. } = Size::of_this_run();
    Kind::RunnerDeployment.fleet("web", 0).apply(&world).await?;
    scaled_by_webhook(&world, "web", Scope::repository("acme", "app"), 200).await?;
    deciding(&world, 1).await?;
    world.github.reset_calls();
    let began = Instant::now();
    let mut ticks = tokio::time::interval(EVERY);
    for _ in 0..jobs {
        ticks.tick().await;
        world.github.queue_job(JobSpec::new("acme/app", ["web"]).lasting(job))?;
    }
    let over = world.github.wait_for(PATIENCE, |view| view.jobs().completed == jobs as u64).await;
    world.check(over).await?;
    let took = began.elapsed();
    let waits = world.github.view(|view| waits(view.all_jobs()));
    let at =
        |percent: usize| waits.get((waits.len() * percent / 100).min(waits.len().saturating_sub(1))).copied().unwrap_or_default();
    let points: u64 = world.github.counts().into_iter().map(|(kind, count)| count.requests * points_of(kind)).sum();
    println!(
        "{jobs} jobs in {:.1} s: queued to running p50 {:.1} s, p95 {:.1} s, longest {:.1} s; {:.1} points a job; {} secondary limits hit; calls: {}",
        took.as_secs_f64(),
        at(50).as_secs_f64(),
        at(95).as_secs_f64(),
        at(100).as_secs_f64(),
        points as f64 / jobs as f64,
        world.github.secondary_limits_hit(),
        calls(&world),
    );
    within_limits(&world).await?;
    ensure!(at(95) <= P95, "{waits:?}");
    end(world).await
}

/// What GitHub counts for a call.
fn points_of(kind: RouteKind) -> u64 {
    match kind {
        RouteKind::DeleteRunner | RouteKind::RegistrationToken | RouteKind::RemoveToken | RouteKind::Redeliver => 5,
        RouteKind::RegisterRunner => 0,
        _ => 1,
    }
}
