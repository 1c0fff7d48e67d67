//! Jobs that wait for long, as their commits show it at GitHub.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kube::api::{Patch, PatchParams};
use pacer_api::HorizontalRunnerAutoscaler;
use pacer_api::names::annotation;
use pacer_harness::github::{
    APP_PRIVATE_KEY, Access, CheckRun, Effect, Fault, Installation, JobId, JobSpec, RouteKind, Routes, View,
};
use pacer_harness::world::World;
use pacer_suites::webhook::hooked_world;
use pacer_suites::{NAMESPACE, PATIENCE, api, apply, autoscaler, delete, deployment, event, running, until};
use serde_json::{Value, json};

use super::{LONG, at_work, takes_jobs};

/// How long jobs wait before they are reported.
const THRESHOLD: &str = "3s";

/// A job that ends while others wait for its runner.
const SHORT: Duration = Duration::from_secs(60);

/// Between two texts of one report; what it is is tested with the rule.
const INTERVAL: Duration = Duration::from_secs(60);

/// A pool of one runner, whose autoscaler asks for reports with this annotation, by these credentials.
async fn pool(world: &World, name: &str, after: Option<&str>, secret: Option<&str>) -> Result<()> {
    apply(world, &deployment(name, 0)).await?;
    let mut object = autoscaler(name, 0, 1);
    if let Some(after) = after {
        object["metadata"]["annotations"][annotation::REPORT_WAITING] = json!(after);
    }
    if let Some(secret) = secret {
        object["spec"]["githubAPICredentialsFrom"] = json!({"secretRef": {"name": secret}});
    }
    apply(world, &object).await?;
    takes_jobs(world, name).await
}

/// A Secret with the credentials of an App that is installed with the usual permissions and, if it `writes`, may write check runs.
async fn app(world: &World, writes: bool) -> Result<()> {
    world.github.add_app(42);
    let mut installation = Installation::new(7, "acme");
    if writes {
        installation.permissions.insert("checks".to_owned(), Access::Write);
    }
    ensure!(world.github.install_app(42, installation));
    let content = json!({"github_app_id": "42", "github_app_installation_id": "7", "github_app_private_key": APP_PRIVATE_KEY});
    let metadata = json!({"name": "app", "namespace": NAMESPACE});
    apply(world, &json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": content})).await
}

/// Queues a job of this name.
fn queue(world: &World, label: &str, name: &str, lasting: Duration) -> Result<JobId> {
    let spec = JobSpec { name: name.to_owned(), ..JobSpec::new("acme/app", [label]).lasting(lasting) };
    Ok(world.github.queue_job(spec)?)
}

/// Waits for what GitHub shows.
async fn shows(world: &World, what: &str, reached: impl Fn(&View<'_>) -> bool) -> Result<()> {
    let outcome = world.github.wait_for(PATIENCE, reached).await;
    let shown = world.github.view(|view| format!("{:#?} {:#?}", view.checks(), view.statuses()));
    world.check(outcome.map_err(|error| format!("{error}: {shown}"))).await.with_context(|| format!("waiting for {what}"))
}

/// The check run of a job.
fn check(view: &View<'_>, job: JobId) -> Option<CheckRun> {
    let name = format!("pacer-waiting-{job}");
    let mut all = view.checks().iter().filter(|check| check.external_id.as_deref() == Some(&name));
    let check = all.next().cloned();
    assert_eq!(all.count(), 0, "two check runs of job {job}");
    check
}

fn requests(world: &World, kind: RouteKind) -> u64 {
    world.github.count(kind).requests
}

#[tokio::test(flavor = "multi_thread")]
async fn job_that_waits_has_a_check_run_that_follows_its_reason_until_it_starts() -> Result<()> {
    let world = hooked_world(&[]).await?;
    let nodes = world.nodes.as_ref().context("no nodes")?;
    app(&world, true).await?;
    pool(&world, "web", Some(THRESHOLD), Some("app")).await?;
    pool(&world, "plain", None, Some("app")).await?;
    queue(&world, "web", "first", LONG)?;
    queue(&world, "plain", "first", LONG)?;
    running(&world, 2).await?;
    let (job, silent) = (queue(&world, "web", "build", LONG)?, queue(&world, "plain", "build", LONG)?);
    shows(&world, "a check run", |view| check(view, job).is_some()).await?;
    let seen = Instant::now();
    let made = world.github.view(|view| check(view, job)).context("it was there")?;
    ensure!((made.name.as_str(), made.status.as_str()) == ("pacer / waiting: build", "in_progress"), "{made:#?}");
    ensure!(made.title.starts_with("Place 1 in the queue since "), "{made:#?}");
    ensure!(made.summary.contains("pool `web` with the labels `web`"), "{made:#?}");
    ensure!(made.summary.contains("the pool has as many runners as it may have"), "{made:#?}");

    // One more may be there, and no node has room for it.
    for node in ["node-0", "node-1", "node-2", "node-3"] {
        nodes.cordon(node, true).await?;
    }
    let more = Patch::Merge(json!({"spec": {"maxReplicas": 2}}));
    api::<HorizontalRunnerAutoscaler>(&world).patch("web", &PatchParams::default(), &more).await?;
    let no_room = |check: CheckRun| check.summary.contains("the cluster has no room for its runner's pod");
    shows(&world, "the other reason", |view| check(view, job).is_some_and(no_room)).await?;
    let spoke = seen.elapsed();
    // It was made up to a listing's look before it was seen.
    ensure!(spoke + Duration::from_secs(2) > INTERVAL, "it spoke again after {spoke:?}");
    ensure!(world.github.view(|view| check(view, job)).is_some_and(|check| check.changes == 1), "more than one text");

    for node in ["node-0", "node-1", "node-2", "node-3"] {
        nodes.cordon(node, false).await?;
    }
    shows(&world, "the end", |view| check(view, job).is_some_and(|check| check.status == "completed")).await?;
    let closed = world.github.view(|view| check(view, job)).context("it was there")?;
    ensure!(closed.conclusion.as_deref() == Some("neutral") && closed.title.starts_with("Started at "), "{closed:#?}");
    until::<HorizontalRunnerAutoscaler>(&world, "nothing to be kept", |all| {
        all.iter().all(|one| one.status.as_ref().is_none_or(|status| status.waiting_reports.is_empty()))
    })
    .await?;
    ensure!(world.github.view(|view| check(view, silent)).is_none(), "nobody asked for it");
    ensure!(world.github.deviations().is_empty(), "{:#?}", world.github.deviations());
    world.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn restarted_operator_closes_the_check_run_and_makes_no_second() -> Result<()> {
    let mut world = reporting_pool_at_work(SHORT).await?;
    let job = queue(&world, "web", "build", LONG)?;
    shows(&world, "a check run", |view| check(view, job).is_some()).await?;
    let operator = world.operator.as_mut().context("no operator")?;
    operator.kill9().await;
    operator.restart().await?;
    operator.until_acting(PATIENCE).await?;
    shows(&world, "the end", |view| check(view, job).is_some_and(|check| check.status == "completed")).await?;
    ensure!(requests(&world, RouteKind::CreateCheck) == 1, "{:#?}", world.github.view(|view| view.checks().to_vec()));
    ensure!(world.github.view(|view| view.job(job).is_some_and(|job| job.started_at.is_some())), "it waits");
    ensure!(world.github.deviations().is_empty(), "{:#?}", world.github.deviations());
    world.stop().await;
    Ok(())
}

/// Waits until an autoscaler says this of reports.
async fn says(world: &World, name: &str, reason: &str, words: &[&str]) -> Result<()> {
    let holds = |object: &HorizontalRunnerAutoscaler| {
        let object = serde_json::to_value(object).unwrap_or_default();
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let said = |condition: &Value| {
            let message = condition["message"].as_str().unwrap_or_default();
            condition["type"] == "WaitingReported" && condition["reason"] == reason && words.iter().all(|it| message.contains(it))
        };
        object["metadata"]["name"] == name && conditions.iter().any(said)
    };
    let what = format!("{name} to say {reason}");
    until::<HorizontalRunnerAutoscaler>(world, &what, |all| all.iter().any(|one| holds(one))).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_reports_are_said_and_not_asked_for_again_while_tokens_set_statuses() -> Result<()> {
    let world = hooked_world(&[]).await?;
    app(&world, false).await?;
    pool(&world, "narrow", Some(THRESHOLD), Some("app")).await?;
    pool(&world, "token", Some(THRESHOLD), None).await?;
    pool(&world, "wrong", Some("soon"), None).await?;
    for name in ["narrow", "token", "wrong"] {
        queue(&world, name, "first", if name == "token" { SHORT } else { LONG })?;
    }
    running(&world, 3).await?;
    queue(&world, "narrow", "build", LONG)?;
    says(&world, "wrong", "InvalidThreshold", &["\"soon\" is no duration"]).await?;
    says(&world, "narrow", "ReportsRefused", &["403", "Checks: read and write", "checks=write"]).await?;
    event(&world, "WaitingNotReported", |note| note.contains("Checks: read and write")).await?;

    // All autoscalers have their turns, so that the refused one has had some once another has spoken.
    queue(&world, "narrow", "test", LONG)?;
    queue(&world, "wrong", "build", LONG)?;
    queue(&world, "token", "build", LONG)?;
    let of = |view: &View<'_>, state: &str| {
        let named =
            |status: &&pacer_harness::github::CommitStatus| status.context == "pacer / waiting: build" && status.state == state;
        view.statuses().iter().find(named).cloned()
    };
    shows(&world, "a status", |view| of(view, "pending").is_some()).await?;
    let pending = world.github.view(|view| of(view, "pending")).context("it was there")?;
    ensure!(pending.description.starts_with("Place 1 in the queue since "), "{pending:#?}");
    says(&world, "token", "Reporting", &[THRESHOLD]).await?;
    shows(&world, "its end", |view| of(view, "success").is_some()).await?;
    let closed = world.github.view(|view| of(view, "success")).context("it was there")?;
    ensure!(closed.description.starts_with("Started at "), "{closed:#?}");
    ensure!(requests(&world, RouteKind::CreateCheck) == 1, "GitHub was asked {} times", requests(&world, RouteKind::CreateCheck));
    ensure!(world.github.view(|view| view.checks().is_empty()), "a check run");
    ensure!(world.github.deviations().is_empty(), "{:#?}", world.github.deviations());
    world.stop().await;
    Ok(())
}

/// A pool that reports jobs, whose one runner works for so long.
async fn reporting_pool_at_work(lasting: Duration) -> Result<World> {
    let world = hooked_world(&[]).await?;
    app(&world, true).await?;
    pool(&world, "web", None, Some("app")).await?;
    queue(&world, "web", "first", lasting)?;
    at_work(&world, 1).await?;
    let reports = Patch::Merge(json!({"metadata": {"annotations": {annotation::REPORT_WAITING: THRESHOLD}}}));
    api::<HorizontalRunnerAutoscaler>(&world).patch("web", &PatchParams::default(), &reports).await?;
    Ok(world)
}

/// Waits until the report of a job is closed although the job waits on.
async fn unwanted(world: &World, job: JobId) -> Result<()> {
    shows(world, "the end", |view| check(view, job).is_some_and(|check| check.status == "completed")).await?;
    let closed = world.github.view(|view| check(view, job)).context("it was there")?;
    ensure!(closed.conclusion.as_deref() == Some("neutral") && closed.title.contains("no longer reported"), "{closed:#?}");
    ensure!(world.github.view(|view| view.job(job).is_some_and(|job| job.started_at.is_none())), "job {job} has started");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn report_is_closed_when_its_annotation_is_removed() -> Result<()> {
    let world = reporting_pool_at_work(LONG).await?;
    let job = queue(&world, "web", "build", LONG)?;
    shows(&world, "a check run", |view| check(view, job).is_some()).await?;
    says(&world, "web", "Reporting", &[THRESHOLD]).await?;

    let removed = Patch::Merge(json!({"metadata": {"annotations": {annotation::REPORT_WAITING: null}}}));
    api::<HorizontalRunnerAutoscaler>(&world).patch("web", &PatchParams::default(), &removed).await?;
    unwanted(&world, job).await?;
    until::<HorizontalRunnerAutoscaler>(&world, "no word of reports", |all| {
        all.iter().filter_map(|one| one.status.as_ref()).all(|status| {
            status.waiting_reports.is_empty() && status.conditions.iter().all(|condition| condition.type_ != "WaitingReported")
        })
    })
    .await?;
    ensure!(requests(&world, RouteKind::CreateCheck) == 1, "{:#?}", world.github.view(|view| view.checks().to_vec()));
    ensure!(world.github.deviations().is_empty(), "{:#?}", world.github.deviations());
    world.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_are_closed_when_their_autoscaler_is_deleted_although_github_fails_at_first() -> Result<()> {
    let world = reporting_pool_at_work(LONG).await?;
    let jobs = [queue(&world, "web", "build", LONG)?, queue(&world, "web", "test", LONG)?];
    shows(&world, "both check runs", |view| jobs.iter().all(|job| check(view, *job).is_some())).await?;

    // Each of them meets it once.
    let fault = world.github.inject(Fault::new(Routes::of(RouteKind::UpdateCheck), Effect::Status(502)).times(2));
    delete::<HorizontalRunnerAutoscaler>(&world, "web").await?;
    for job in jobs {
        unwanted(&world, job).await?;
    }
    ensure!(world.github.fault_hits(fault) == 2, "GitHub did not fail");
    ensure!(requests(&world, RouteKind::CreateCheck) == 2, "{:#?}", world.github.view(|view| view.checks().to_vec()));
    world.stop().await;
    Ok(())
}
