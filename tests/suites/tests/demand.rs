//! What pacer's client reads of demand, against the simulated GitHub: jobs, runner groups, webhooks and their deliveries.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use pacer_core::polling::Pace;
use pacer_github::queues::{QueueNews, Queues};
use pacer_github::{
    ClientOptions, CredentialParts, Credentials, Endpoints, ErrorKind, GitHub, HookOwner, JobState, KeyFiles, ProxyRules,
    QueueListing, Reading, RemoteJob, Repository, RunCounts, Secret, Webhook,
};
use pacer_harness::github::{
    APP_PRIVATE_KEY, Access, Conclusion, Effect, Event, Fault, GroupVisibility, Hook, HookOwner as Owner, Installation, JobSpec,
    Registration, RouteKind, Routes, Scope, Session, Settings, SimGitHub,
};
use tokio_util::sync::CancellationToken;

/// Longer than anything here takes.
const SOON: Duration = Duration::from_secs(30);

fn app() -> Repository {
    Repository::new("acme", "app")
}

fn client(github: &SimGitHub, credentials: Credentials) -> Result<GitHub> {
    let endpoints = Endpoints::resolve(Some(&github.api_url()), None, None, None)?;
    Ok(GitHub::new(credentials, endpoints, &ClientOptions { proxy: ProxyRules::Direct, ..ClientOptions::default() })?)
}

fn by_token(github: &SimGitHub) -> Result<GitHub> {
    client(github, Credentials::Token(Secret::new(github.pat())))
}

fn by_app(github: &SimGitHub) -> Result<GitHub> {
    let parts = CredentialParts {
        app_id: Some("7".into()),
        app_private_key: Some(Secret::new(APP_PRIVATE_KEY)),
        ..CredentialParts::default()
    };
    client(github, Credentials::from_parts(parts, KeyFiles::Refused)?)
}

async fn simulation() -> Result<SimGitHub> {
    let github = SimGitHub::start(Settings::prompt()).await?;
    github.add(&Scope::repository("acme", "app"));
    github.add_app(7);
    ensure!(github.install_app(7, Installation::new(70, "acme")));
    Ok(github)
}

fn runner(github: &SimGitHub, name: &str) -> Result<Session> {
    let token = github.registration_token(&Scope::repository("acme", "app"));
    let labels = vec!["gpu".to_owned()];
    let registration = Registration {
        url_path: "acme/app".into(),
        token,
        name: name.into(),
        labels,
        ephemeral: true,
        ..Registration::default()
    };
    Ok(github.register(registration)?)
}

fn states(listing: &QueueListing) -> Vec<(u64, JobState)> {
    listing.jobs.iter().map(|job| (job.id, job.state)).collect()
}

#[tokio::test]
async fn a_job_is_listed_through_its_life_and_waiting_is_free() -> Result<()> {
    let github = simulation().await?;
    for client in [by_token(&github)?, by_app(&github)?] {
        let first = github.queue_job(JobSpec::new("acme/app", ["self-hosted", "gpu"]))?;
        let run = github.job(first).context("the job")?.run;
        let second = github.queue_job(JobSpec::new("acme/app", ["self-hosted", "gpu"]).in_run(run))?;
        let listing = client.queue(&app()).await?;
        ensure!(states(&listing) == [(first.0, JobState::Queued), (second.0, JobState::Queued)], "{listing:?}");
        ensure!(listing.complete && listing.runs == RunCounts { queued: 1, ..RunCounts::default() }, "{listing:?}");
        let job = listing.jobs.first().context("a job")?;
        ensure!((&*job.workflow, &*job.repository, job.run_id) == ("CI", "acme/app", run.0), "{job:?}");
        ensure!(job.labels.iter().map(|label| &**label).eq(["self-hosted", "gpu"]) && job.runner.is_none(), "{job:?}");

        let again = client.queue(&app()).await?;
        ensure!((again.calls, again.paid, again.changed, again.complete) == (4, 0, false, true), "{again:?}");

        let mut session = runner(&github, "one")?;
        ensure!(matches!(session.next().await, Event::Job { id, .. } if id == first));
        let listing = client.queue(&app()).await?;
        ensure!(states(&listing) == [(first.0, JobState::InProgress), (second.0, JobState::Queued)], "{listing:?}");
        let job = listing.jobs.first().context("a job")?;
        ensure!(job.runner.as_deref() == Some("one") && job.started_at.is_some(), "{job:?}");
        ensure!(!job.event.is_empty() && !job.actor.is_empty(), "{job:?}");
        // Only a listing, which has the run, tells what started it.
        let alone = client.job(&app(), first.0).await?.context("the job")?;
        let alone = RemoteJob { event: job.event.clone(), actor: job.actor.clone(), ..alone };
        ensure!(alone == *job, "{alone:?} instead of {job:?}");

        ensure!(session.finish(first, Conclusion::Success) && github.cancel_job(second));
        let listing = client.queue(&app()).await?;
        ensure!(listing.jobs.is_empty() && listing.complete && listing.changed, "{listing:?}");
        ensure!(client.job(&app(), first.0).await?.is_some_and(|job| job.state == JobState::Completed));
        ensure!(client.job(&app(), 1).await?.is_none());
    }
    github.stop().await;
    Ok(())
}

#[tokio::test]
async fn news_of_a_queued_job_come_by_polling() -> Result<()> {
    let github = simulation().await?;
    let client = by_app(&github)?;
    let shutdown = CancellationToken::new();
    let (queues, mut news) = Queues::new(Pace::queues(), shutdown.clone());
    let interest = queues.want(&client, &app(), Reading::all(Duration::from_secs(1)));
    let ours = QueueNews { client: client.id().clone(), repository: app() };
    ensure!(tokio::time::timeout(SOON, news.recv()).await? == Some(ours.clone()));
    let (queued, id) = (Instant::now(), github.queue_job(JobSpec::new("acme/app", ["self-hosted"]))?);
    ensure!(tokio::time::timeout(SOON, news.recv()).await? == Some(ours));
    ensure!(queued.elapsed() < Duration::from_secs(15), "{:?}", queued.elapsed());
    let listing = interest.latest().context("a listing")?;
    ensure!(states(&listing) == [(id.0, JobState::Queued)], "{listing:?}");
    drop(interest);
    queues.join().await;
    ensure!(queues.pollers() == 0);
    github.stop().await;
    Ok(())
}

#[tokio::test]
async fn faults_leave_what_is_known_and_say_so() -> Result<()> {
    let github = simulation().await?;
    let client = by_app(&github)?;
    let ids = [github.queue_job(JobSpec::new("acme/app", ["a"]))?, github.queue_job(JobSpec::new("acme/app", ["b"]))?];
    let broken = github.job(ids[0]).context("the job")?.run;
    let jobs = || Routes::of(RouteKind::ListRunJobs).path(format!("/{broken}/"));
    github.inject(Fault::new(jobs(), Effect::Status(502)));
    let listing = client.queue(&app()).await?;
    ensure!(!listing.complete && states(&listing) == [(ids[1].0, JobState::Queued)], "{listing:?}");
    for effect in [Effect::TruncatedJson, Effect::Reset] {
        github.inject(Fault::new(jobs(), effect));
        let listing = client.queue(&app()).await?;
        ensure!(!listing.complete, "{listing:?}");
    }
    let healed = client.queue(&app()).await?;
    ensure!(healed.complete && healed.jobs.len() == 2, "{healed:?}");

    let retry_after = Duration::from_secs(40);
    github.inject(Fault::new(Routes::of(RouteKind::ListRuns), Effect::SecondaryLimit { retry_after }));
    let error = client.queue(&app()).await.err().context("a refusal")?;
    ensure!(matches!(error.kind(), ErrorKind::RateLimited { secondary: true, .. }), "{error}");
    ensure!(error.retry_after().is_some_and(|wait| wait > Duration::from_secs(30)), "{error}");
    github.stop().await;
    Ok(())
}

#[tokio::test]
async fn a_missing_right_is_named() -> Result<()> {
    let github = simulation().await?;
    let installation = Installation::new(70, "acme").with_permissions([("metadata", Access::Read)]);
    ensure!(github.install_app(7, installation));
    let client = by_app(&github)?;
    let hook = Webhook::Of { owner: HookOwner::Repository(app()), hook: 1 };
    let refusals = [
        (client.queue(&app()).await.err(), "\"Actions: read\"", "actions=read"),
        (
            client.runner_groups_visible_to("acme", "app").await.err(),
            "\"Self-hosted runners: read\"",
            "organization_self_hosted_runners=read",
        ),
        (client.hooks(&HookOwner::Repository(app())).await.err(), "\"Webhooks: read\"", "repository_hooks=read"),
        (client.redeliver(&hook, 1).await.err(), "\"Webhooks: read and write\"", "repository_hooks=write"),
    ];
    for (error, missing, accepted) in refusals {
        let text = error.context("a refusal")?.to_string();
        ensure!(text.contains(missing) && text.contains(accepted), "{text}");
    }
    github.stop().await;
    Ok(())
}

#[tokio::test]
async fn groups_that_a_repository_may_use() -> Result<()> {
    let github = simulation().await?;
    github.add_enterprise("corp", &["acme"]);
    let acme = Scope::organization("acme");
    github.add_group(&acme, "ours", GroupVisibility::Selected(["app".to_owned()].into()));
    github.add_group(&acme, "theirs", GroupVisibility::Selected(["lib".to_owned()].into()));
    github.add_group(&Scope::enterprise("corp"), "shared", GroupVisibility::Selected(["acme".to_owned()].into()));
    // More than a page of groups.
    for number in 0..100 {
        github.add_group(&acme, &format!("other-{number}"), GroupVisibility::Selected(["app".to_owned()].into()));
    }
    let groups = by_app(&github)?.runner_groups_visible_to("acme", "app").await?;
    let group = |name: &str| groups.iter().find(|group| group.name == name);
    ensure!(group("Default").is_some_and(|group| group.default && !group.inherited), "{groups:?}");
    ensure!(group("ours").is_some_and(|group| !group.default && !group.inherited), "{groups:?}");
    ensure!(group("shared").is_some_and(|group| !group.default && group.inherited), "{groups:?}");
    ensure!(group("theirs").is_none() && group("other-99").is_some(), "{groups:?}");
    github.stop().await;
    Ok(())
}

#[tokio::test]
async fn missed_deliveries_are_found_and_asked_for_again() -> Result<()> {
    let github = simulation().await?;
    // Nothing listens there.
    let url = "http://127.0.0.1:1/hook";
    let hook = |owner: Owner| Hook { owner, url: url.into(), secret: String::new() };
    github.add_hook(hook(Scope::repository("acme", "app").into()));
    github.add_hook(hook(Scope::organization("acme").into()));
    github.add_hook(hook(Owner::App(7)));
    let job = github.queue_job(JobSpec::new("acme/app", ["self-hosted"]))?;
    ensure!(github.cancel_job(job));
    github.wait_for(SOON, |view| view.deliveries().failed == 6).await?;

    let (token, as_app) = (by_token(&github)?, by_app(&github)?);
    for owner in [Some(HookOwner::Repository(app())), Some(HookOwner::Organization("acme".into())), None] {
        let (client, hook) = match owner {
            Some(owner) => {
                let found =
                    token.hooks(&owner).await?.into_iter().find(|hook| hook.url.as_deref() == Some(url)).context("the hook")?;
                ensure!(found.active && found.events == ["workflow_job"], "{found:?}");
                (&token, Webhook::Of { owner, hook: found.id })
            }
            None => (&as_app, Webhook::App),
        };
        let page = client.deliveries(&hook, None).await?;
        let [last, first] = page.deliveries.as_slice() else { anyhow::bail!("{page:?}") };
        ensure!((first.action.as_deref(), last.action.as_deref()) == (Some("queued"), Some("completed")), "{page:?}");
        ensure!(first.event == "workflow_job" && !first.succeeded() && !first.redelivery && page.next.is_none(), "{page:?}");
        let before = github.view(|view| view.deliveries().failed);
        client.redeliver(&hook, first.id).await?;
        github.wait_for(SOON, |view| view.deliveries().failed == before + 1).await?;
        let page = client.deliveries(&hook, None).await?;
        let newest = page.deliveries.first().context("a delivery")?;
        ensure!(newest.redelivery && newest.guid == first.guid && newest.id != first.id, "{page:?}");
    }
    github.stop().await;
    Ok(())
}
