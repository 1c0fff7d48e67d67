//! What the doctor finds at GitHub and in what fleets ask of the cluster.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::SignedDuration;
use pacer_api::names::annotation;
use pacer_harness::controlplane::Apply;
use pacer_harness::github::{APP_PRIVATE_KEY, Access, GroupVisibility, Hook, Installation, Person, Scope, Silence, View};
use pacer_harness::world::World;
use pacer_suites::webhook::SECRET;
use pacer_suites::{NAMESPACE, PATIENCE, apply, deployment, end_as_it_is, kubectl, queue, runners, with_spec};
use serde_json::{Value, json};

use super::{OPERATOR, SICK, Said, add_argument, doctor, installed, installed_with, run, until_silent, until_told};

/// A RunnerDeployment of an organization's runners, none of which is made.
fn of_organization(name: &str, group: &str) -> Value {
    json!({
        "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "RunnerDeployment",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"replicas": 0, "template": {"spec": {"organization": "acme", "group": group}}},
    })
}

/// Its autoscaler, with one more field.
fn autoscaler(name: &str, min: u32, field: &str, value: Value) -> Value {
    let object = json!({
        "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "HorizontalRunnerAutoscaler",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"scaleTargetRef": {"name": name}, "minReplicas": min, "maxReplicas": 3},
    });
    pacer_suites::put(object, "/spec", field, value)
}

async fn set_field(world: &World, fleet: &str, field: &str, value: &str) -> Result<()> {
    let patch = json!({"spec": {"template": {"spec": {field: value}}}}).to_string();
    kubectl(world, &["patch", "rdeploy", fleet, "--type=merge", "--patch", &patch]).await.map(drop)
}

/// The only finding with this word in it, as what and cure.
fn one<'a>(said: &'a Said, word: &str) -> Result<(&'a str, &'a str)> {
    let [found] = said.about(word)[..] else { anyhow::bail!("one finding about {word:?} was expected: {:#}", said.report) };
    Ok(found)
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_of_a_tenant_are_told_with_their_secret_and_never_shown() -> Result<()> {
    let world = installed().await?;
    let secret = json!({"secretRef": {"name": "team"}});
    apply(&world, &with_spec(deployment("team", 1), "githubAPICredentialsFrom", secret)).await?;
    let said = doctor(&world).await?;
    let (what, cure) = one(&said, "\"object\":\"Secret default/team\"")?;
    ensure!(what.contains("does not exist") && said.code == Some(SICK), "{:#}", said.report);
    let token = world.github.add_pat(Person::admin("team"));
    run(&world, &cure.replace("TOKEN", &token)).await?;
    runners(&world, "the tenant's runner", |count| count.online == 2).await?;
    until_silent(&world).await?;

    let wrong = "ghp_nobodysnobodys";
    let put = async |token: &str| {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "team", "namespace": NAMESPACE}, "stringData": {"github_token": token},
        });
        world.plane.apply_text(&secret.to_string(), Apply::ServerSide).await
    };
    put(wrong).await?;
    let said = doctor(&world).await?;
    let (what, cure) = one(&said, "cannot be listed with the credentials in Secret default/team")?;
    ensure!(what.contains("401") && !cure.is_empty() && said.code == Some(SICK), "{:#}", said.report);
    ensure!(!said.report.to_string().contains(wrong), "the token is in the report");
    put(&token).await?;
    until_silent(&world).await?;
    end_as_it_is(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn runner_groups_that_are_missing_or_closed_are_told_with_the_repository() -> Result<()> {
    let world = installed().await?;
    let acme = Scope::organization("acme");
    world.github.add_group(&acme, "open", GroupVisibility::All);
    world.github.add_group(&acme, "closed", GroupVisibility::Selected(["other".to_owned()].into()));
    apply(&world, &of_organization("shared", "nowhere")).await?;
    let metrics = json!([{"type": "TotalNumberOfQueuedAndInProgressWorkflowRuns", "repositoryNames": ["app"]}]);
    apply(&world, &autoscaler("shared", 0, "metrics", metrics)).await?;
    let said = doctor(&world).await?;
    let (what, cure) = one(&said, "which organization acme does not have")?;
    ensure!(
        what.contains("\"nowhere\"") && cure.contains("/organizations/acme/settings/actions/runner-groups"),
        "{:#}",
        said.report
    );
    ensure!(said.code == Some(SICK), "{:#}", said.report);

    set_field(&world, "shared", "group", "closed").await?;
    let said = doctor(&world).await?;
    let (what, _) = one(&said, "may not use")?;
    ensure!(what.contains("group \"closed\"") && what.contains("acme/app"), "{what}");
    set_field(&world, "shared", "group", "open").await?;
    until_silent(&world).await?;
    end_as_it_is(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_that_is_missing_or_refused_is_told_until_its_events_are_taken() -> Result<()> {
    let secret = format!("--github-webhook-secret-token={SECRET}");
    let world = installed_with(&["--webhook-addr=127.0.0.1:0", &secret]).await?;
    let address = world.operator.as_ref().and_then(|operator| operator.webhook_address()).context("no address")?;
    let url = format!("http://{address}/");
    let triggers = json!([{"githubEvent": {"workflowJob": {}}, "duration": "30m"}]);
    apply(&world, &autoscaler("web", 1, "scaleUpTriggers", triggers)).await?;
    until_silent(&world).await?;
    add_argument(&world, &format!("--webhook-url={url}")).await?;
    let said = doctor(&world).await?;
    let (_, cure) = one(&said, "no webhook that these credentials see")?;
    ensure!(cure.contains("Workflow jobs") && said.code == Some(SICK), "{:#}", said.report);

    let owner = Scope::repository("acme", "app");
    let hook = |secret: &str| Hook { owner: owner.clone().into(), url: url.clone(), secret: secret.to_owned() };
    let wrong = world.github.add_hook(hook("another one"));
    queue(&world, "web", 1, Duration::ZERO)?;
    let answered = |view: &View<'_>| view.deliveries().failed > 0;
    world.check(world.github.wait_for(PATIENCE, answered).await).await?;
    let said = doctor(&world).await?;
    let (what, cure) = one(&said, "the secrets differ")?;
    ensure!(what.contains("401") && cure.contains("GITHUB_WEBHOOK_SECRET_TOKEN"), "{:#}", said.report);
    ensure!(!said.report.to_string().contains(&url), "the address of a webhook may hold a password");

    world.github.remove_hook(wrong);
    let right = world.github.add_hook(hook(SECRET));
    queue(&world, "web", 1, Duration::ZERO)?;
    until_silent(&world).await?;

    for (silence, words, tick) in [
        (Silence::SwitchedOff, "is switched off", "\"Active\""),
        (Silence::OtherEvents, "does not send the event workflow_job", "\"Workflow jobs\""),
    ] {
        world.github.set_silence(right, Some(silence));
        let said = doctor(&world).await?;
        let (_, cure) = one(&said, words)?;
        ensure!(cure.contains(tick) && said.code == Some(SICK), "{:#}", said.report);
        world.github.set_silence(right, None);
        until_silent(&world).await?;
    }
    end_as_it_is(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_the_cluster_would_refuse_are_told_before_one_is_made() -> Result<()> {
    let world = installed().await?;
    until_silent(&world).await?;
    kubectl(&world, &["label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted"]).await?;
    let said = doctor(&world).await?;
    let (severity, what, cure) = said.only()?;
    ensure!((severity, said.code) == ("problem", Some(SICK)) && what.contains("violates PodSecurity"), "{:#}", said.report);
    let (label, _) = cure.split_once("; ").context("two ways")?;
    run(&world, label).await?;
    until_silent(&world).await?;

    // A quota, which nobody counts here.
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "full", "namespace": NAMESPACE}, "spec": {"hard": {"pods": "1"}}});
    apply(&world, &quota).await?;
    let full = json!({"status": {"hard": {"pods": "1"}, "used": {"pods": "1"}}}).to_string();
    kubectl(&world, &["patch", "resourcequota", "full", "--subresource=status", "--type=merge", "--patch", &full]).await?;
    let said = until_told(&world, "exceeded quota").await?;
    let (what, cure) = one(&said, "exceeded quota")?;
    ensure!(what.contains("used: pods=1") && said.code == Some(0), "{:#}", said.report);
    ensure!(cure.contains("kubectl describe resourcequota --namespace=default"), "{cure}");
    kubectl(&world, &["delete", "resourcequota", "full"]).await?;
    until_silent(&world).await?;

    // An agent that GitHub is about to refuse.
    set_field(&world, "web", "image", "summerwind/actions-runner:v2.300.0-ubuntu-22.04").await?;
    let said = doctor(&world).await?;
    let (what, cure) = one(&said, "has agent 2.300.0")?;
    ensure!(what.contains("GitHub offers ") && cure.contains("--runner-image") && said.code == Some(0), "{:#}", said.report);
    set_field(&world, "web", "image", "summerwind/actions-runner:v2.330.1-ubuntu-22.04").await?;
    until_silent(&world).await?;
    end_as_it_is(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn installations_of_an_app_and_what_is_left_of_the_budget_are_told() -> Result<()> {
    let world = installed().await?;
    world.github.add_app(7);
    ensure!(world.github.install_app(7, Installation::new(70, "acme")));
    let app = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "controller-manager", "namespace": OPERATOR},
        "stringData": {"github_token": "", "github_app_id": "7", "github_app_private_key": APP_PRIVATE_KEY},
    });
    world.plane.apply_text(&app.to_string(), Apply::ServerSide).await?;
    until_silent(&world).await?;
    let said = doctor(&world).await?;
    let healthy = said.healthy();
    for words in ["GitHub Apps are installed in acme (all repositories)", "GitHub's budget lasts: ", "a pod of every fleet"] {
        ensure!(healthy.contains(words), "no {words:?} in {healthy}");
    }

    ensure!(world.github.install_app(7, Installation { suspended: true, ..Installation::new(70, "acme") }));
    let said = doctor(&world).await?;
    let (what, cure) = one(&said, "is suspended")?;
    ensure!(what.contains("acme") && cure.contains("/installations/70") && said.code == Some(SICK), "{:#}", said.report);
    ensure!(world.github.install_app(7, Installation::new(70, "acme")));
    until_silent(&world).await?;

    // An annotation asks for reports that the App may not make.
    let asks = json!({annotation::REPORT_WAITING: "10m"});
    let asking = pacer_suites::put(autoscaler("web", 1, "maxReplicas", json!(1)), "/metadata", "annotations", asks);
    apply(&world, &asking).await?;
    let said = doctor(&world).await?;
    let (what, cure) = one(&said, "may not write check runs")?;
    ensure!(what.contains("in acme ") && cure.contains("Checks: read and write") && said.code == Some(0), "{:#}", said.report);
    let mut writes = Installation::new(70, "acme");
    writes.permissions.insert("checks".to_owned(), Access::Write);
    ensure!(world.github.install_app(7, writes));
    until_silent(&world).await?;
    kubectl(&world, &["delete", "hra", "web"]).await?;

    // It may list runners of either kind, and register none.
    apply(&world, &of_organization("shared", "open")).await?;
    world.github.add_group(&Scope::organization("acme"), "open", GroupVisibility::All);
    until_silent(&world).await?;
    let reads = ["actions", "administration", "metadata", "organization_self_hosted_runners"].map(|name| (name, Access::Read));
    ensure!(world.github.install_app(7, Installation::new(70, "acme").with_permissions(reads)));
    let said = doctor(&world).await?;
    for permission in ["Administration: read and write", "Self-hosted runners: read and write"] {
        let (what, cure) = one(&said, permission)?;
        ensure!(what.contains("in acme ") && what.contains("not register any"), "{:#}", said.report);
        ensure!(cure.contains("/installations/70") && said.code == Some(SICK), "{:#}", said.report);
    }
    ensure!(world.github.install_app(7, Installation::new(70, "acme")));
    until_silent(&world).await?;

    // GitHub goes by another clock.
    for (minutes, side) in [(5, "behind"), (-5, "ahead of")] {
        world.github.set_clock_ahead(SignedDuration::from_mins(minutes));
        let said = doctor(&world).await?;
        let (what, cure) = one(&said, "Clock of this machine")?;
        ensure!(what.contains(side) && what.contains("GitHub's") && cure.contains("NTP"), "{:#}", said.report);
        ensure!(said.code == Some(0), "{:#}", said.report);
    }
    world.github.set_clock_ahead(SignedDuration::ZERO);
    until_silent(&world).await?;

    world.github.exhaust_rate_limit(Duration::from_secs(20));
    let said = doctor(&world).await?;
    ensure!(!said.about("0 of ").is_empty() || !said.about("rate limit").is_empty(), "{:#}", said.report);
    world.github.refill_rate_limit();
    until_silent(&world).await?;
    end_as_it_is(world).await
}
