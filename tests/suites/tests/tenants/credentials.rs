//! Credentials per tenant: slow, revoked, exchanged, of an App without an installation's number.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use pacer_api::{Runner, RunnerDeployment, RunnerReplicaSet};
use pacer_harness::controlplane::Apply;
use pacer_harness::github::{APP_PRIVATE_KEY, Installation, Person, RouteKind, Scope};
use pacer_harness::objects;
use pacer_harness::world::World;
use pacer_suites::tenants::{Tenant, online};
use pacer_suites::{
    NAMESPACE, PATIENCE, api, apply, brisk_world, delete, deployment, end, end_as_it_is, kubectl, online_in, running, scale,
    succeeded, until, world,
};
use serde_json::json;

/// Waits until a RunnerDeployment and its set say this in their condition `Ready`, which is then false.
async fn complains(world: &World, name: &str, reason: &str, words: &[&str]) -> Result<()> {
    let said = |conditions: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition]| {
        conditions.iter().any(|condition| {
            condition.type_ == "Ready"
                && condition.status == "False"
                && condition.reason == reason
                && words.iter().all(|word| condition.message.contains(word))
        })
    };
    until::<RunnerDeployment>(world, &format!("{name} to say {reason}"), |all| {
        let conditions = |one: &RunnerDeployment| one.status.clone().unwrap_or_default().conditions;
        all.iter().any(|one| one.name_any() == name && said(&conditions(one)))
    })
    .await?;
    until::<RunnerReplicaSet>(world, &format!("the set of {name} to say {reason}"), |all| {
        let conditions = |one: &RunnerReplicaSet| one.status.clone().unwrap_or_default().conditions;
        all.iter().any(|one| one.name_any().starts_with(name) && said(&conditions(one)))
    })
    .await?;
    Ok(())
}

/// Waits until everything of these names is ready, and says so.
async fn content(world: &World, names: &[&str]) -> Result<()> {
    until::<RunnerDeployment>(world, &format!("{names:?} to be ready"), |all| {
        names.iter().all(|name| {
            all.iter().filter(|one| one.name_any() == *name).any(|one| {
                let conditions = one.status.clone().unwrap_or_default().conditions;
                conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
            })
        })
    })
    .await?;
    Ok(())
}

/// Fewer reconciles at once than the slow tenant has runners: whoever waits for it in each of them keeps everybody waiting.
const FEW: &str = "--max-concurrent-reconciles=4";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "bounds seconds: make suites runs it when all others are over"]
async fn a_slow_and_a_revoked_tenant_do_not_slow_the_others() -> Result<()> {
    // An agent that updates itself is away for up to ten seconds of those that are bounded.
    let world = brisk_world(&[FEW], |options| options.github.behaviour.updates_itself = 0.0).await?;
    let tenants = Tenant::several(&world, 8).await?;
    let [revoked, slow, good @ ..] = tenants.as_slice() else { anyhow::bail!("too few tenants") };
    let good: Vec<&Tenant> = good.iter().collect();
    world.github.revoke(&revoked.token);
    let fault = slow.slow_down(&world, Duration::from_secs(30));
    // Those in trouble first: they would be served first.
    for tenant in [revoked, slow].into_iter().chain(good.iter().copied()) {
        apply(&world, &tenant.deployment(5)).await?;
    }
    // The slow one's first call has not even been given up then, which happens after 15 s; twice that for a machine that has more to do.
    let took = online(&world, &good, 5, PATIENCE).await?;
    ensure!(took < Duration::from_secs(30), "the others were online after {took:?} only");

    complains(&world, &revoked.name, "CredentialsRefused", &["401", "expired or revoked"]).await?;
    complains(&world, &slow.name, "GitHubUnavailable", &["no answer within"]).await?;
    content(&world, &good.iter().map(|tenant| tenant.name.as_str()).collect::<Vec<_>>()).await?;
    ensure!(world.github.registrations(&revoked.scope).is_empty() && world.github.registrations(&slow.scope).is_empty());

    // They go as fast as they come, while the slow one is to go as well.
    delete::<RunnerDeployment>(&world, &slow.name).await?;
    for tenant in &good {
        scale(&world, &tenant.name, 0).await?;
    }
    let took = online(&world, &good, 0, PATIENCE).await?;
    ensure!(took < Duration::from_secs(30), "the others were gone after {took:?} only");

    // Both are mended: the Secret, and GitHub.
    world.github.clear_fault(fault);
    revoked.put_token(&world, &revoked.another_token(&world)).await?;
    apply(&world, &slow.deployment(5)).await?;
    online(&world, &[revoked, slow], 5, PATIENCE).await?;
    content(&world, &[&revoked.name, &slow.name]).await?;
    end(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn runners_register_at_the_server_that_their_credentials_name() -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    let tenant = Tenant::new(&world, "acme").await?;
    let own = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": tenant.name, "namespace": NAMESPACE},
        "stringData": {
            "github_token": tenant.token, "github_url": world.github.api_url(), "github_runner_url": "https://ghes.example.com",
        },
    });
    apply(&world, &own).await?;
    apply(&world, &tenant.deployment(1)).await?;
    apply(&world, &deployment("web", 1)).await?;
    let server = |pod: &Pod| {
        let runner = pod.spec.iter().flat_map(|spec| &spec.containers).find(|container| container.name == "runner")?;
        runner.env.iter().flatten().find(|variable| variable.name == "GITHUB_URL")?.value.clone()
    };
    let pods = until::<Pod>(&world, "a pod of each", |all| all.len() == 2).await?;
    let mut servers: Vec<_> = pods.iter().filter_map(server).collect();
    servers.sort();
    let mut expected = ["https://ghes.example.com/".to_owned(), format!("{}/", world.github.api_url().trim_end_matches('/'))];
    expected.sort();
    ensure!(servers == expected, "{servers:?}");
    delete::<RunnerDeployment>(&world, &tenant.name).await?;
    delete::<RunnerDeployment>(&world, "web").await?;
    end_as_it_is(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_credential_is_not_asked_for_by_every_runner() -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    let tenant = Tenant::new(&world, "acme").await?;
    world.github.revoke(&tenant.token);
    apply(&world, &tenant.deployment(20)).await?;
    complains(&world, "acme", "CredentialsRefused", &["401"]).await?;
    // Twenty runners ask for one token; each pause is longer than the last.
    let asked = world.github.count(RouteKind::RegistrationToken).requests;
    ensure!(asked <= 4, "{asked} tokens were asked for");
    end_as_it_is(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_are_exchanged_under_running_jobs() -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    let (tenant, other) = (Tenant::new(&world, "acme-inc").await?, Tenant::new(&world, "other-inc").await?);
    apply(&world, &tenant.deployment(3)).await?;
    apply(&world, &other.deployment(1)).await?;
    online(&world, &[&tenant], 3, PATIENCE).await?;
    online(&world, &[&other], 1, PATIENCE).await?;
    world.github.add(&Scope::repository("acme-inc", "app"));
    world
        .github
        .queue_job(pacer_harness::github::JobSpec::new("acme-inc/app", ["acme-inc"]).lasting(Duration::from_secs(100)))?;
    running(&world, 1).await?;
    let pods = |world: &World| {
        let api = api::<Pod>(world);
        async move { anyhow::Ok(api.list(&ListParams::default()).await?.iter().filter_map(ResourceExt::uid).collect::<Vec<_>>()) }
    };
    let before = pods(&world).await?;
    world.github.revoke(&tenant.token);
    complains(&world, "acme-inc", "CredentialsRefused", &["401"]).await?;
    let after = pods(&world).await?;
    ensure!(after == before, "runners went because their credentials did: {before:?}, then {after:?}");
    content(&world, &["other-inc"]).await?;
    tenant.put_token(&world, &tenant.another_token(&world)).await?;
    succeeded(&world, 1).await?;
    online(&world, &[&tenant], 3, PATIENCE).await?;
    content(&world, &["acme-inc"]).await?;
    scale(&world, "acme-inc", 5).await?;
    online(&world, &[&tenant], 5, PATIENCE).await?;
    end(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_whose_secret_is_gone_keeps_nobody_elses_order() -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    let (gone, good) = (Tenant::new(&world, "gone").await?, Tenant::new(&world, "good").await?);
    for tenant in [&gone, &good] {
        apply(&world, &tenant.deployment(2)).await?;
    }
    online(&world, &[&gone, &good], 2, PATIENCE).await?;
    delete::<k8s_openapi::api::core::v1::Secret>(&world, "gone").await?;
    complains(&world, "gone", "SettingsRefused", &["Secret default/gone", "does not exist"]).await?;
    // The other one's token is swept although nobody can log in as the first; the first one's stays.
    delete::<RunnerDeployment>(&world, "good").await?;
    online(&world, &[&good], 0, PATIENCE).await?;
    until::<k8s_openapi::api::core::v1::Secret>(&world, "one token", |all| {
        all.iter().filter(|one| one.labels().contains_key("actions.summerwind.dev/registration-token")).count() == 1
    })
    .await?;
    gone.put_token(&world, &gone.token).await?;
    content(&world, &["gone"]).await?;
    end(world).await
}

/// How long the deletion of a fleet may take whose GitHub can't be asked any more.
const GONE: Duration = Duration::from_secs(120);

/// What is wrong when a fleet is deleted.
#[derive(Clone, Copy, Debug)]
enum Loss {
    Token,
    /// Deleted together with the fleet, in a namespace that goes with both.
    Namespace,
    Repository,
}

/// A fleet of two in a namespace of its own, at a repository of its own.
async fn lonely_fleet(world: &World, loss: Loss) -> Result<(Scope, String)> {
    let name = format!("{loss:?}").to_lowercase();
    let scope = Scope::repository(&name, "app");
    world.github.add(&scope);
    let token = world.github.add_pat(Person::admin(&name).seeing([scope.clone()]));
    for object in [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "github", "namespace": name},
            "stringData": {"github_token": token},
        }),
        json!({
            "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "RunnerDeployment",
            "metadata": {"name": "web", "namespace": name},
            "spec": {"replicas": 2, "template": {"spec": {
                "repository": format!("{name}/app"),
                "githubAPICredentialsFrom": {"secretRef": {"name": "github"}},
            }}},
        }),
    ] {
        world.plane.apply_text(&object.to_string(), Apply::ClientSide).await?;
    }
    online_in(world, &scope, 2).await?;
    Ok((scope, token))
}

#[tokio::test(flavor = "multi_thread")]
async fn fleet_whose_github_is_gone_is_deleted_within_two_minutes() -> Result<()> {
    let world = world(|_| {}).await?;
    for loss in [Loss::Token, Loss::Namespace, Loss::Repository] {
        let (scope, token) = lonely_fleet(&world, loss).await?;
        let namespace = format!("{loss:?}").to_lowercase();
        match loss {
            Loss::Token => world.github.revoke(&token),
            Loss::Namespace => drop(kubectl(&world, &["delete", "namespace", &namespace, "--wait=false"]).await?),
            Loss::Repository => world.github.remove(&scope),
        }
        let began = Instant::now();
        if !matches!(loss, Loss::Namespace) {
            kubectl(&world, &["delete", "rdeploy", "web", "--namespace", &namespace, "--wait=false"]).await?;
        }
        let client = || world.client.clone();
        let none = |what: &'static str| format!("no {what} of {namespace}");
        let runners =
            objects::until(Api::<Runner>::namespaced(client(), &namespace), "", PATIENCE, |all: &[&Runner]| all.is_empty());
        world.check(runners.await).await.with_context(|| none("Runners"))?;
        let pods = objects::until(Api::<Pod>::namespaced(client(), &namespace), "", PATIENCE, |all: &[&Pod]| all.is_empty());
        world.check(pods.await).await.with_context(|| none("pods"))?;
        let took = began.elapsed();
        println!("{loss:?} gone: the fleet was deleted after {:.0} s", took.as_secs_f64());
        ensure!(took <= GONE, "{loss:?}: the fleet was gone after {took:?} only");
        let left = world.github.registrations(&scope).len();
        ensure!(left == 0, "{loss:?}: {left} registrations are left");
    }
    end_as_it_is(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn one_app_serves_several_owners_without_an_installations_number() -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    let (first, second) = (Scope::organization("first"), Scope::organization("second"));
    let repository = Scope::repository("second", "app");
    for scope in [&first, &second, &repository] {
        world.github.add(scope);
    }
    world.github.add_app(42);
    for (id, login) in [(7, "first"), (8, "second")] {
        ensure!(world.github.install_app(42, Installation::new(id, login)));
    }
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "app", "namespace": "default"},
        "stringData": {"github_app_id": "42", "github_app_private_key": APP_PRIVATE_KEY},
    });
    apply(&world, &secret).await?;
    let fleets = [
        ("first", json!({"organization": "first"})),
        ("second", json!({"organization": "second"})),
        ("repository", json!({"repository": "second/app"})),
        ("nowhere", json!({"organization": "elsewhere"})),
    ];
    for (name, mut spec) in fleets {
        if let Some(fields) = spec.as_object_mut() {
            fields.insert("githubAPICredentialsFrom".to_owned(), json!({"secretRef": {"name": "app"}}));
            fields.insert("labels".to_owned(), json!([name]));
            fields.insert("dockerEnabled".to_owned(), json!(false));
        }
        let object = json!({
            "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "RunnerDeployment",
            "metadata": {"name": name, "namespace": "default"}, "spec": {"replicas": 2, "template": {"spec": spec}},
        });
        apply(&world, &object).await?;
    }
    for scope in [&first, &second, &repository] {
        online_in(&world, scope, 2).await?;
    }
    complains(&world, "nowhere", "CredentialsRefused", &["not installed for", "elsewhere"]).await?;
    // The autoscaler of one names the same Secret.
    let autoscaler = json!({
        "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "HorizontalRunnerAutoscaler",
        "metadata": {"name": "repository", "namespace": "default"},
        "spec": {
            "scaleTargetRef": {"name": "repository"}, "minReplicas": 1, "maxReplicas": 4, "scaleDownDelaySecondsAfterScaleOut": 1,
            "metrics": [{"type": "TotalNumberOfQueuedAndInProgressWorkflowRuns", "repositoryNames": ["app"]}],
            "githubAPICredentialsFrom": {"secretRef": {"name": "app"}},
        },
    });
    apply(&world, &autoscaler).await?;
    online_in(&world, &repository, 1).await?;
    let callers: std::collections::BTreeSet<String> = world.github.calls().into_iter().map(|call| call.caller).collect();
    for caller in ["installation 7", "installation 8"] {
        ensure!(callers.contains(caller), "{caller} never called: {callers:?}");
    }
    // Once per scope, whatever the number of calls; the one that is installed nowhere is looked up again with pauses.
    let looked_up = world.github.count(RouteKind::FindInstallation);
    let found = looked_up.requests - looked_up.failed;
    ensure!((3..=4).contains(&found), "{found} look-ups of installations");
    end(world).await
}
