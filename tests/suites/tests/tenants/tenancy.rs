//! A tenancy file: who may register where with the operator's credentials, how much, and what becomes of it when the file changes or breaks.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use pacer_api::{HorizontalRunnerAutoscaler, Runner, RunnerDeployment};
use pacer_harness::controlplane::Apply;
use pacer_harness::github::{Person, RouteKind, Scope};
use pacer_harness::objects;
use pacer_harness::world::World;
use pacer_suites::{PATIENCE, TOKENS, brisk_world, end_as_it_is, online_in};
use serde_json::{Value, json};

/// The operator's namespace.
const OWN: &str = "actions-runner-system";

const STRICT: &str = "
strict: true
namespaces:
  - labels: {tenant: a}
    scopes: [acme/*]
    quotas: {runners: 3, fleets: 2}
  - names: [b]
    scopes: [other/*]
";

pub(crate) fn deployment(namespace: &str, name: &str, spec: &Value, replicas: u32) -> Value {
    let mut runners = json!({"labels": [name]});
    if let (Some(runners), Value::Object(spec)) = (runners.as_object_mut(), spec.clone()) {
        runners.extend(spec);
    }
    json!({
        "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "RunnerDeployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": replicas, "template": {"spec": runners}},
    })
}

pub(crate) async fn put(world: &World, object: &Value) -> Result<()> {
    Ok(world.plane.apply_text(&object.to_string(), Apply::ClientSide).await?)
}

async fn file(world: &World, text: &str) -> Result<()> {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tenancy", "namespace": OWN}, "data": {"tenancy.yaml": text},
    });
    put(world, &map).await
}

/// Waits until the condition `Ready` of a RunnerDeployment says this.
async fn says(world: &World, namespace: &str, name: &str, reason: &str, words: &str) -> Result<()> {
    let api: Api<RunnerDeployment> = Api::namespaced(world.client.clone(), namespace);
    let said =
        |condition: &Condition| condition.type_ == "Ready" && condition.reason == reason && condition.message.contains(words);
    let outcome = objects::until(api, "", PATIENCE, |all| {
        let conditions = |one: &RunnerDeployment| one.status.clone().unwrap_or_default().conditions;
        all.iter().any(|one| one.name_any() == name && conditions(one).iter().any(said))
    })
    .await;
    world.check(outcome).await.with_context(|| format!("waiting for {namespace}/{name} to say {reason}: {words}"))?;
    Ok(())
}

async fn scale(world: &World, namespace: &str, name: &str, replicas: u32) -> Result<()> {
    let api: Api<RunnerDeployment> = Api::namespaced(world.client.clone(), namespace);
    api.patch_scale(name, &PatchParams::default(), &Patch::Merge(json!({"spec": {"replicas": replicas}}))).await?;
    Ok(())
}

async fn runners(world: &World, namespace: &str) -> Result<usize> {
    let api: Api<Runner> = Api::namespaced(world.client.clone(), namespace);
    Ok(api.list(&ListParams::default()).await?.items.len())
}

/// Waits until `/metrics` has this line.
async fn shows(world: &World, line: &str) -> Result<()> {
    let operator = world.operator.as_ref().context("no operator")?;
    let began = std::time::Instant::now();
    loop {
        let metrics = operator.metrics().await?;
        if metrics.lines().any(|one| one == line) {
            return Ok(());
        }
        ensure!(began.elapsed() < PATIENCE, "no {line} in\n{metrics}");
        // Nobody announces a change of metrics.
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

/// Two namespaces, the first with a label, and an operator that is told to read a tenancy.
async fn tenants() -> Result<World> {
    let world = brisk_world(&["--tenancy=tenancy"], |_| {}).await?;
    for name in ["a", "b"] {
        world.plane.namespace(name).await?;
    }
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(world.client.clone());
    let labelled = json!({"metadata": {"labels": {"tenant": "a"}}});
    namespaces.patch("a", &PatchParams::default(), &Patch::Merge(labelled)).await?;
    world.github.add(&Scope::repository("other", "app"));
    Ok(world)
}

#[tokio::test(flavor = "multi_thread")]
async fn namespace_registers_only_where_the_file_allows_it() -> Result<()> {
    let world = tenants().await?;
    let acme = Scope::repository("acme", "app");
    put(&world, &deployment("a", "web", &json!({"repository": "acme/app"}), 2)).await?;
    // Without a file that was good once, nothing is allowed.
    says(&world, "a", "web", "TenancyUnknown", "ConfigMap actions-runner-system/tenancy: it does not exist").await?;
    shows(&world, "pacer_tenancy{state=\"closed\"} 1").await?;
    file(&world, STRICT).await?;
    online_in(&world, &acme, 2).await?;
    shows(&world, "pacer_tenancy{state=\"active\"} 1").await?;

    let tokens = world.github.count(RouteKind::RegistrationToken).requests;
    put(&world, &deployment("b", "thief", &json!({"repository": "acme/app"}), 2)).await?;
    says(&world, "b", "thief", "NotAllowed", "add acme/app to namespaces[1].scopes of the tenancy file").await?;
    put(&world, &deployment("default", "web", &json!({"repository": "acme/app"}), 1)).await?;
    says(&world, "default", "web", "NotAllowed", "namespace default is not listed").await?;
    // A Runner of its own hand, too.
    let alone = json!({
        "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "Runner", "metadata": {"name": "alone", "namespace": "b"},
        "spec": {"repository": "acme/app"},
    });
    put(&world, &alone).await?;
    let api: Api<Runner> = Api::namespaced(world.client.clone(), "b");
    let refused = objects::until(api, "", PATIENCE, |all| {
        all.iter().any(|one| {
            let conditions = one.status.clone().unwrap_or_default().conditions;
            conditions.iter().any(|condition| condition.type_ == "Accepted" && condition.reason == "NotAllowed")
        })
    })
    .await;
    world.check(refused).await?;
    ensure!(world.github.count(RouteKind::RegistrationToken).requests == tokens, "a token was asked for");
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), "b");
    ensure!(pods.list(&ListParams::default()).await?.items.is_empty() && runners(&world, "b").await? == 1);

    // What is allowed later comes without another word, and what is not any more goes in order.
    file(&world, &STRICT.replace("other/*", "acme/app")).await?;
    online_in(&world, &acme, 5).await?;
    file(&world, STRICT).await?;
    says(&world, "b", "thief", "NotAllowed", "acme/app").await?;
    let fleets: Api<RunnerDeployment> = Api::namespaced(world.client.clone(), "b");
    fleets.delete("thief", &DeleteParams::background()).await?;
    let all: Api<Runner> = Api::namespaced(world.client.clone(), "b");
    all.delete("alone", &DeleteParams::background()).await?;
    let gone = objects::until(all, "", PATIENCE, |all| all.is_empty()).await;
    world.check(gone).await?;
    online_in(&world, &acme, 2).await?;
    end_as_it_is(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_file_leaves_the_last_good_one_in_force_across_a_restart() -> Result<()> {
    let mut world = tenants().await?;
    let acme = Scope::repository("acme", "app");
    file(&world, STRICT).await?;
    put(&world, &deployment("a", "web", &json!({"repository": "acme/app"}), 1)).await?;
    online_in(&world, &acme, 1).await?;
    file(&world, &STRICT.replace("scopes: [other/*]", "scope: [acme/*]")).await?;
    shows(&world, "pacer_tenancy{state=\"last_good\"} 1").await?;
    let events: Api<k8s_openapi::api::events::v1::Event> = Api::namespaced(world.client.clone(), OWN);
    let told = objects::until(events, "", PATIENCE, |all| {
        all.iter().any(|event| {
            event.reason.as_deref() == Some("TenancyRefused")
                && event.note.as_deref().is_some_and(|note| note.contains("namespaces[1].scope: there is no such key"))
        })
    })
    .await;
    world.check(told).await?;
    world.operator.as_mut().context("no operator")?.restart().await?;
    world.operator.as_ref().context("no operator")?.until_acting(PATIENCE).await?;
    shows(&world, "pacer_tenancy{state=\"last_good\"} 1").await?;
    scale(&world, "a", "web", 2).await?;
    online_in(&world, &acme, 2).await?;
    put(&world, &deployment("b", "thief", &json!({"repository": "acme/app"}), 1)).await?;
    says(&world, "b", "thief", "NotAllowed", "acme/app").await?;
    // So does a file that is gone.
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), OWN);
    maps.delete("tenancy", &DeleteParams::default()).await?;
    scale(&world, "a", "web", 3).await?;
    online_in(&world, &acme, 3).await?;
    shows(&world, "pacer_tenancy{state=\"last_good\"} 1").await?;
    end_as_it_is(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn quotas_bound_runners_and_fleets_of_a_namespace() -> Result<()> {
    let world = tenants().await?;
    file(&world, STRICT).await?;
    let acme = Scope::repository("acme", "app");
    // Both want more than the namespace may have, at the same time.
    for name in ["web", "more"] {
        put(&world, &deployment("a", name, &json!({"repository": "acme/app"}), 3)).await?;
    }
    online_in(&world, &acme, 3).await?;
    let full = async |name: &str| says(&world, "a", name, "QuotaExceeded", "may have 3 runners").await;
    let (one, other) = (full("web"), full("more"));
    tokio::select! {
        said = one => said?,
        said = other => said?,
    }
    put(&world, &deployment("a", "third", &json!({"repository": "acme/app"}), 1)).await?;
    says(&world, "a", "third", "QuotaExceeded", "may have 2 fleets").await?;
    ensure!(runners(&world, "a").await? == 3);
    // A Runner of its own hand is one too many as well.
    let alone = json!({
        "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "Runner", "metadata": {"name": "alone", "namespace": "a"},
        "spec": {"repository": "acme/app"},
    });
    put(&world, &alone).await?;
    let api: Api<Runner> = Api::namespaced(world.client.clone(), "a");
    let refused = objects::until(api.clone(), "", PATIENCE, |all| {
        all.iter().any(|one| {
            let conditions = one.status.clone().unwrap_or_default().conditions;
            one.name_any() == "alone" && conditions.iter().any(|condition| condition.reason == "QuotaExceeded")
        })
    })
    .await;
    world.check(refused).await?;
    api.delete("alone", &DeleteParams::background()).await?;
    // Room is used as soon as there is some.
    scale(&world, "a", "web", 0).await?;
    says(&world, "a", "more", "AllOnline", "").await?;
    online_in(&world, &acme, 3).await?;
    end_as_it_is(world).await
}

const CALLS: &str = "
strict: true
namespaces:
  - names: [a]
    scopes: [acme/*]
    quotas: {callsPerMinute: 4}
  - names: [b]
    scopes: [acme/*, other/*]
";

#[tokio::test(flavor = "multi_thread")]
async fn namespace_at_its_quota_of_calls_waits_while_another_gets_its_runners() -> Result<()> {
    let world = tenants().await?;
    let (acme, other) = (Scope::repository("acme", "app"), Scope::repository("other", "app"));
    for number in 1..=4 {
        world.github.add(&Scope::repository("acme", format!("lib-{number}")));
    }
    file(&world, CALLS).await?;
    // A token and a listing each: more than four calls.
    for number in 1..=4 {
        let repository = format!("acme/lib-{number}");
        put(&world, &deployment("a", &format!("lib-{number}"), &json!({"repository": repository}), 1)).await?;
    }
    let late = async |number: u32| says(&world, "a", &format!("lib-{number}"), "QuotaExceeded", "quotas.callsPerMinute").await;
    let (one, two, three, four) = (late(1), late(2), late(3), late(4));
    tokio::select! {
        said = one => said?,
        said = two => said?,
        said = three => said?,
        said = four => said?,
    }
    let metrics = world.operator.as_ref().context("no operator")?.metrics().await?;
    let put_off = metrics.lines().any(|line| line.starts_with("pacer_tenancy_deferred_total{namespace=\"a\"} "));
    ensure!(put_off && !metrics.contains("pacer_tenancy_deferred_total{namespace=\"b\"}"), "{metrics}");

    // The same scope as one of its fleets, with the same credentials, and another one.
    put(&world, &deployment("b", "web", &json!({"repository": "acme/app"}), 2)).await?;
    put(&world, &deployment("b", "too", &json!({"repository": "acme/lib-1"}), 1)).await?;
    put(&world, &deployment("b", "own", &json!({"repository": "other/app"}), 1)).await?;
    online_in(&world, &acme, 2).await?;
    online_in(&world, &other, 1).await?;
    for name in ["web", "too", "own"] {
        says(&world, "b", name, "AllOnline", "").await?;
    }
    // Nothing failed, and with more room everything goes on without a word.
    file(&world, &CALLS.replace("callsPerMinute: 4", "callsPerMinute: 600")).await?;
    for number in 1..=4 {
        says(&world, "a", &format!("lib-{number}"), "AllOnline", "").await?;
    }
    let api: Api<Runner> = Api::namespaced(world.client.clone(), "a");
    let failed = api.list(&ListParams::default()).await?.items.into_iter().filter(|runner| {
        let status = runner.status.clone().unwrap_or_default();
        status.conditions.iter().any(|condition| condition.type_ == "Accepted")
    });
    ensure!(failed.count() == 0 && runners(&world, "a").await? == 4);
    end_as_it_is(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_name_no_host_that_the_file_does_not_list() -> Result<()> {
    let world = tenants().await?;
    let host = world.github.enterprise_api_url();
    let token = world.github.add_pat(Person::admin("b"));
    let own = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "own", "namespace": "b"},
        "stringData": {"github_token": token, "github_enterprise_url": "http://evil.example:8080"},
    });
    file(&world, STRICT).await?;
    put(&world, &own).await?;
    let spec = json!({"repository": "other/app", "githubAPICredentialsFrom": {"secretRef": {"name": "own"}}});
    put(&world, &deployment("b", "web", &spec, 1)).await?;
    says(&world, "b", "web", "NotAllowed", "GitHub host evil.example:8080").await?;
    ensure!(runners(&world, "b").await? == 0);
    // The operator's own host needs no listing.
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), "b");
    let there = json!({"stringData": {"github_enterprise_url": host, "github_runner_url": ""}});
    secrets.patch("own", &PatchParams::default(), &Patch::Merge(there)).await?;
    let other = Scope::repository("other", "app");
    online_in(&world, &other, 1).await?;
    // A registration at a host that may not be called any more does not hold its Runner for ever.
    let there = json!({"stringData": {"github_enterprise_url": "http://evil.example:8080"}});
    secrets.patch("own", &PatchParams::default(), &Patch::Merge(there)).await?;
    says(&world, "b", "web", "NotAllowed", "evil.example").await?;
    let fleets: Api<RunnerDeployment> = Api::namespaced(world.client.clone(), "b");
    fleets.delete("web", &DeleteParams::background()).await?;
    let gone = objects::until(Api::<Runner>::namespaced(world.client.clone(), "b"), "", PATIENCE, |all| all.is_empty()).await;
    world.check(gone).await?;
    let left = secrets.list(&ListParams::default().labels(TOKENS)).await?;
    ensure!(left.items.len() <= 1, "{:?}", left.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>());
    end_as_it_is(world).await
}

const APART: &str = "
namespaces:
  - labels: {tenant: a}
    credentialsNamespace: a-credentials
";

#[tokio::test(flavor = "multi_thread")]
async fn credentials_lie_in_a_namespace_without_runners() -> Result<()> {
    let world = tenants().await?;
    world.plane.namespace("a-credentials").await?;
    let token = world.github.add_pat(Person::admin("a"));
    let secret = |namespace: &str, token: &str| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "github", "namespace": namespace},
            "stringData": {"github_token": token},
        })
    };
    file(&world, APART).await?;
    // One beside the runners is not looked at, and would not do.
    put(&world, &secret("a", "ghp_other")).await?;
    let spec = json!({"repository": "acme/app", "githubAPICredentialsFrom": {"secretRef": {"name": "github"}}});
    put(&world, &deployment("a", "web", &spec, 2)).await?;
    let missing =
        "Secret a-credentials/github, named in githubAPICredentialsFrom.secretRef, does not exist (the tenancy file has";
    says(&world, "a", "web", "SettingsRefused", missing).await?;
    put(&world, &secret("a-credentials", &token)).await?;
    let acme = Scope::repository("acme", "app");
    online_in(&world, &acme, 2).await?;
    // Nobody else gets at them by naming them.
    put(&world, &deployment("b", "thief", &spec, 1)).await?;
    says(&world, "b", "thief", "SettingsRefused", "Secret b/github, named in githubAPICredentialsFrom.secretRef").await?;
    ensure!(runners(&world, "b").await? == 0);
    // Without the entry, the Secret beside the runners counts again.
    file(&world, "namespaces: []").await?;
    says(&world, "a", "web", "CredentialsRefused", "401").await?;
    file(&world, APART).await?;
    says(&world, "a", "web", "AllOnline", "").await?;
    scale(&world, "a", "web", 0).await?;
    online_in(&world, &acme, 0).await?;
    end_as_it_is(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn autoscaler_of_a_refused_scope_says_so() -> Result<()> {
    let world = tenants().await?;
    file(&world, STRICT).await?;
    put(&world, &deployment("b", "web", &json!({"repository": "acme/app"}), 0)).await?;
    let autoscaler = json!({
        "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "HorizontalRunnerAutoscaler",
        "metadata": {"name": "web", "namespace": "b"},
        "spec": {
            "scaleTargetRef": {"name": "web"}, "minReplicas": 1, "maxReplicas": 3,
            "scaleUpTriggers": [{"githubEvent": {"workflowJob": {}}, "duration": "30m"}],
        },
    });
    put(&world, &autoscaler).await?;
    let api: Api<HorizontalRunnerAutoscaler> = Api::namespaced(world.client.clone(), "b");
    let said = objects::until(api, "", PATIENCE, |all| {
        all.iter().any(|one| {
            let conditions = one.status.clone().unwrap_or_default().conditions;
            ["Accepted", "ScopeProved"].iter().all(|type_| {
                conditions.iter().any(|one| one.type_ == *type_ && one.status == "False" && one.reason == "NotAllowed")
            })
        })
    })
    .await;
    world.check(said).await?;
    end_as_it_is(world).await
}
