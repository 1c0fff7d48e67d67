//! Causes beyond those of [`super`], each made for real.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, ResourceQuota};
use kube::ResourceExt;
use kube::api::DeleteParams;
use pacer_api::RunnerDeployment;
use pacer_api::names::annotation;
use pacer_harness::github::{GroupVisibility, JobId, JobSpec, Person, Scope};
use pacer_harness::nodes::{Affected, Trouble};
use pacer_harness::world::World;
use pacer_suites::webhook::{hooked_world, hooked_world_with};
use pacer_suites::{BRISK, NAMESPACE, api, apply, autoscaler, deployment, put, queue, running, succeeded, until, with_spec};
use serde_json::{Value, json};

use super::{LONG, pacer, pool, takes_jobs, waits_for};

/// The text of a capacity policy that lets one runner exist, whatever waits.
const ONE: &str = "export const name = \"one\";\n\
    export function capacity({ jobs }) {\n\
    \x20 const open = jobs.filter((job) => job.state !== \"completed\");\n\
    \x20 const reservations = open.map((job) => ({ id: `job-${job.id}`, jobs: [job.id], replicas: 1, effective: 0, expires: 600, reason: job.state }));\n\
    \x20 return { reservations, ceiling: 1, lookAgain: 30 };\n\
    }\n";

fn job(world: &World, label: &str) -> Result<JobId> {
    queue(world, label, 1, LONG)?.first().copied().context("one job")
}

fn says(story: &Value, part: &str) -> Result<()> {
    ensure!(story["why"].as_str().is_some_and(|why| why.contains(part)), "no {part:?} in {story:#}");
    Ok(())
}

fn pods(prefix: &str) -> Affected {
    Affected { name_prefix: prefix.to_owned(), ..Affected::all() }
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_told_what_they_wait_for_when_the_pool_is_what_keeps_them() -> Result<()> {
    let world = hooked_world(&[]).await?;
    let nodes = world.nodes.as_ref().context("no nodes")?;

    nodes.inject(pods("slow-"), Trouble::SlowStart(LONG));
    pool(&world, "slow", 0, 1).await?;
    let slow = job(&world, "slow")?;
    let story = waits_for(&world, slow, "PodStarting").await?;
    says(&story, "the pod of runner slow-")?;

    // What its runners were made from goes, and the autoscaler stays.
    api::<RunnerDeployment>(&world).delete("slow", &DeleteParams::default()).await?;
    waits_for(&world, slow, "NoTarget").await?;

    nodes.inject(pods("fail-"), Trouble::ExitsAtOnce(1));
    pool(&world, "fail", 0, 1).await?;
    let failing = job(&world, "fail")?;
    let story = waits_for(&world, failing, "Backoff").await?;
    says(&story, " failed to start: a place is filled again by ")?;
    let (well, text) = pacer(&world, &["explain", "pool", "fail", "-n", NAMESPACE]).await?;
    ensure!(well && text.contains(" failed to start: a place is filled again by "), "{text}");

    // Its autoscaler is edited to something that makes no sense.
    pool(&world, "odd", 0, 1).await?;
    let first = job(&world, "odd")?;
    running(&world, 1).await?;
    let second = job(&world, "odd")?;
    waits_for(&world, second, "MaximumReached").await?;
    let overrides =
        json!([{"startTime": "2026-01-01T00:00:00Z", "endTime": "2026-01-02T00:00:00Z", "timeZone": "Mars/Olympus_Mons"}]);
    apply(&world, &put(autoscaler("odd", 0, 2), "/spec", "scheduledOverrides", overrides)).await?;
    let story = waits_for(&world, second, "AutoscalerUnable").await?;
    says(&story, "Mars/Olympus_Mons")?;
    let (well, text) = pacer(&world, &["explain", "job", &first.0.to_string(), "-n", NAMESPACE]).await?;
    ensure!(well && text.contains("runs: it runs on runner odd-"), "{text}");

    // A policy allows one runner, the maximum five.
    let one = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "namespace": NAMESPACE},
        "data": {"policies.yaml": "capacity: {module: policy.js}\n", "policy.js": ONE},
    });
    apply(&world, &one).await?;
    let mut low = deployment("low", 0);
    low["metadata"]["annotations"] = json!({annotation::POLICIES: "one"});
    apply(&world, &low).await?;
    until::<ConfigMap>(&world, "the policy in force", |all| {
        let status = |one: &ConfigMap| serde_json::from_str::<Value>(one.annotations().get(annotation::POLICY_STATUS)?).ok();
        all.iter().any(|map| map.name_any() == "one" && status(map).is_some_and(|status| status["phase"] == "Active"))
    })
    .await?;
    apply(&world, &autoscaler("low", 0, 5)).await?;
    takes_jobs(&world, "low").await?;
    job(&world, "low")?;
    running(&world, 2).await?;
    let held = job(&world, "low")?;
    let story = waits_for(&world, held, "PolicyCeiling").await?;
    says(&story, "ceiling")?;
    world.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn job_is_told_of_the_quota_that_refuses_its_runners_pod() -> Result<()> {
    let world = hooked_world(&[]).await?;
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none", "namespace": NAMESPACE},
        "spec": {"hard": {"pods": "0"}},
    });
    apply(&world, &quota).await?;
    until::<ResourceQuota>(&world, "the quota at work", |all| {
        all.iter().any(|quota| quota.status.as_ref().is_some_and(|status| status.used.is_some()))
    })
    .await?;
    pool(&world, "web", 0, 1).await?;
    let story = waits_for(&world, job(&world, "web")?, "PodRefused").await?;
    says(&story, "exceeded quota")?;
    world.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn job_is_told_that_github_refuses_the_credentials_of_its_pool() -> Result<()> {
    let world = hooked_world(&[]).await?;
    let app = Scope::repository("acme", "app");
    let token = world.github.add_pat(Person::admin("web").seeing([app]));
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "web", "namespace": NAMESPACE},
        "stringData": {"github_token": token},
    });
    apply(&world, &secret).await?;
    let own = json!({"secretRef": {"name": "web"}});
    apply(&world, &with_spec(deployment("web", 0), "githubAPICredentialsFrom", own)).await?;
    apply(&world, &autoscaler("web", 0, 2)).await?;
    takes_jobs(&world, "web").await?;
    // With one job the operator has used the token, and its autoscaler is known to be entitled.
    queue(&world, "web", 1, Duration::from_secs(1))?;
    succeeded(&world, 1).await?;
    world.github.revoke(&token);
    // A runner needs no credentials for as long as there is a token for its registration.
    world.github.expire_registration_tokens();
    let story = waits_for(&world, job(&world, "web")?, "GitHubUnavailable").await?;
    says(&story, "401")?;
    world.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn job_is_told_that_github_has_to_give_it_to_an_idle_runner() -> Result<()> {
    let world = hooked_world_with(&BRISK, |options| options.github.behaviour.assigned_late = LONG..=LONG).await?;
    pool(&world, "web", 0, 1).await?;
    let story = waits_for(&world, job(&world, "web")?, "Assignment").await?;
    says(&story, "is online and idle: GitHub has to give it the job")?;
    world.stop().await;
    Ok(())
}

/// What is said of a job by its URL, with credentials for GitHub.
async fn asked_at_github(world: &World, repository: &str, job: JobId) -> Result<Value> {
    let url = format!("https://github.com/{repository}/actions/runs/1/job/{}", job.0);
    let (token, api) = (format!("--github-token={}", world.github.pat()), format!("--github-url={}", world.github.api_url()));
    let (well, text) = pacer(world, &["explain", "job", &url, "-n", NAMESPACE, "-o", "json", &token, &api]).await?;
    ensure!(well, "{text}");
    Ok(serde_json::from_str(&text)?)
}

#[tokio::test(flavor = "multi_thread")]
async fn job_that_no_autoscaler_knows_is_told_what_lacks_by_asking_github() -> Result<()> {
    let world = hooked_world(&[]).await?;
    pool(&world, "web", 0, 1).await?;
    let queued = |repository: &str, labels: &[&str]| {
        world.github.queue_job(JobSpec::new(repository, labels.iter().copied()).lasting(LONG))
    };
    let story = asked_at_github(&world, "acme/app", queued("acme/app", &["web", "gpu"])?).await?;
    ensure!((&story["cause"], &story["labels"]) == (&json!("LabelsMissing"), &json!(["web", "gpu"])), "{story:#}");
    says(&story, "comes closest and lacks the label gpu")?;

    // A pool of an organization, in a group that its repository may not use.
    let corp = Scope::organization("corp");
    world.github.add(&corp);
    world.github.add_group(&corp, "closed", GroupVisibility::Selected(["other".to_owned()].into()));
    let mut big = deployment("big", 0);
    big["spec"]["template"]["spec"] = json!({"organization": "corp", "group": "closed", "labels": ["big"]});
    apply(&world, &big).await?;
    apply(&world, &autoscaler("big", 0, 1)).await?;
    takes_jobs(&world, "big").await?;
    let story = asked_at_github(&world, "corp/app", queued("corp/app", &["big"])?).await?;
    ensure!(story["cause"] == "RunnerGroupClosed", "{story:#}");
    says(&story, "default/big")?;

    // One that is over waits for nothing.
    let over = queued("acme/app", &["nobody"])?;
    ensure!(world.github.cancel_job(over), "it can be called off");
    let story = asked_at_github(&world, "acme/app", over).await?;
    ensure!(story["state"] == "completed", "{story:#}");
    world.stop().await;
    Ok(())
}
