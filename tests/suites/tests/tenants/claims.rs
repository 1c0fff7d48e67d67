//! Tenants that claim each other's repositories: a job goes to those only who have shown that its repository is theirs.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};
use pacer_api::{HorizontalRunnerAutoscaler, JobLedger, Runner};
use pacer_harness::github::{JobSpec, Person, RouteKind, Scope, View};
use pacer_harness::objects;
use pacer_harness::world::World;
use pacer_suites::webhook::{hook, receive};
use pacer_suites::{PATIENCE, brisk_world, end_as_it_is, online_in, only, patient_autoscaler};
use serde_json::{Value, json};

use super::tenancy::{deployment, put};

/// A world that receives the webhooks of these repositories.
async fn receiving(arguments: &[&str], repositories: &[&str]) -> Result<World> {
    let world = brisk_world(arguments, receive).await?;
    for repository in repositories {
        let (owner, name) = repository.split_once('/').context("no owner")?;
        let scope = Scope::repository(owner, name);
        world.github.add(&scope);
        hook(&world, scope)?;
    }
    for name in ["owner", "thief"] {
        world.plane.namespace(name).await?;
    }
    Ok(world)
}

fn autoscaler(namespace: &str, name: &str) -> Value {
    pacer_suites::put(patient_autoscaler(name, name, 0, 3), "/metadata", "namespace", json!(namespace))
}

/// A RunnerDeployment at zero runners with an autoscaler; with a Secret of its own where one is given.
async fn pool(world: &World, namespace: &str, name: &str, spec: Value, secret: Option<Value>) -> Result<()> {
    let mut spec = spec;
    if let (Some(data), Some(fields)) = (secret, spec.as_object_mut()) {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace}, "stringData": data,
        });
        put(world, &secret).await?;
        fields.insert("githubAPICredentialsFrom".to_owned(), json!({"secretRef": {"name": name}}));
    }
    put(world, &deployment(namespace, name, &spec, 0)).await?;
    put(world, &autoscaler(namespace, name)).await
}

/// Waits until the condition `ScopeProved` of an autoscaler says this.
async fn proved(world: &World, namespace: &str, name: &str, status: &str, reason: &str) -> Result<()> {
    let api: Api<HorizontalRunnerAutoscaler> = Api::namespaced(world.client.clone(), namespace);
    let outcome = objects::until(api, "", PATIENCE, |all| {
        all.iter().any(|one| {
            let conditions = one.status.clone().unwrap_or_default().conditions;
            let said = conditions.iter().find(|condition| condition.type_ == "ScopeProved");
            one.name_any() == name && said.is_some_and(|said| said.status == status && said.reason == reason)
        })
    })
    .await;
    world.check(outcome).await.with_context(|| format!("waiting for {namespace}/{name}: {status}, {reason}"))?;
    Ok(())
}

/// Queues jobs, each after the event of the last one is answered, until somebody has one; says which autoscalers have it. The receiver is
/// told of a proof by a watch of its own, which announces nothing here.
async fn takers(world: &World, repository: &str, label: &str) -> Result<Vec<String>> {
    let began = Instant::now();
    loop {
        // Where a proof is on its way, the answer is a 503 and no 200.
        let answers = |view: &View<'_>| view.deliveries().accepted + view.deliveries().failed;
        let before = world.github.view(answers);
        let job = world.github.queue_job(JobSpec::new(repository, [label]))?;
        let answered = world.github.wait_for(PATIENCE, |view| answers(view) > before).await;
        world.check(answered).await?;
        let api: Api<JobLedger> = Api::all(world.client.clone());
        let all = api.list(&ListParams::default()).await?;
        let takers: Vec<_> =
            all.iter().filter(|one| one.spec.has(job.0)).map(|one| one.namespace().unwrap_or_default()).collect();
        if !takers.is_empty() {
            return Ok(takers);
        }
        ensure!(began.elapsed() < PATIENCE, "nobody takes the jobs of {repository}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn job_goes_to_nobody_who_has_not_proved_its_repository() -> Result<()> {
    let world = receiving(&[], &["acme/app", "mine/app"]).await?;
    pool(&world, "owner", "ci", json!({"organization": "acme"}), None).await?;
    // The narrowest scope, and the label of the owner: without a proof it would be preferred.
    let made_up = json!({"github_token": "made-up"});
    pool(&world, "thief", "ci", json!({"repository": "acme/app"}), Some(made_up)).await?;
    proved(&world, "thief", "ci", "False", "CredentialsRefused").await?;
    let taken = takers(&world, "acme/app", "ci").await?;
    ensure!(taken == ["owner"], "{taken:?}");

    // Credentials that may list a repository have its jobs from the first one on, at zero runners.
    let own = Scope::repository("mine", "app");
    let valid = json!({"github_token": world.github.add_pat(Person::admin("mine").seeing([own]))});
    pool(&world, "thief", "mine", json!({"repository": "mine/app"}), Some(valid)).await?;
    proved(&world, "thief", "mine", "True", "Listed").await?;
    let taken = takers(&world, "mine/app", "mine").await?;
    ensure!(taken == ["thief"], "{taken:?}");

    // A proof is of one place: it does not move with the spec.
    let moved = json!({
        "repository": "acme/app", "labels": ["ci"], "githubAPICredentialsFrom": {"secretRef": {"name": "mine"}},
    });
    put(&world, &deployment("thief", "mine", &moved, 0)).await?;
    let taken = takers(&world, "acme/app", "ci").await?;
    ensure!(taken == ["owner"], "{taken:?}");
    proved(&world, "thief", "mine", "False", "CredentialsRefused").await?;
    end_as_it_is(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn server_of_a_tenants_choosing_proves_nothing_about_the_operators_github() -> Result<()> {
    let world = receiving(&[], &["acme/app"]).await?;
    pool(&world, "owner", "ci", json!({"organization": "acme"}), None).await?;
    // It lists what its tenant likes; the simulation under another address stands for it.
    let url = world.github.enterprise_api_url();
    let there = json!({"github_token": world.github.pat(), "github_enterprise_url": url});
    pool(&world, "thief", "ci", json!({"repository": "acme/app"}), Some(there)).await?;
    proved(&world, "thief", "ci", "True", "Listed").await?;
    let taken = takers(&world, "acme/app", "ci").await?;
    ensure!(taken == ["owner"], "{taken:?}");
    end_as_it_is(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn job_goes_to_nobody_whom_the_tenancy_refuses() -> Result<()> {
    let world = receiving(&["--tenancy=tenancy"], &["acme/app"]).await?;
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tenancy", "namespace": "actions-runner-system"},
        "data": {"tenancy.yaml": "namespaces: [{names: [owner], scopes: [acme]}, {names: [thief], scopes: [mine/*]}]"},
    });
    put(&world, &map).await?;
    pool(&world, "owner", "ci", json!({"organization": "acme"}), None).await?;
    pool(&world, "thief", "ci", json!({"repository": "acme/app"}), None).await?;
    proved(&world, "owner", "ci", "True", "Allowed").await?;
    proved(&world, "thief", "ci", "False", "NotAllowed").await?;
    let taken = takers(&world, "acme/app", "ci").await?;
    ensure!(taken == ["owner"], "{taken:?}");
    end_as_it_is(world).await
}

/// GitHub knows runners by name alone: a Runner of another namespace may have the name of one that is there.
#[tokio::test(flavor = "multi_thread")]
async fn runner_that_never_had_a_pod_does_not_unregister_its_namesake() -> Result<()> {
    let world = receiving(&[], &["acme/app"]).await?;
    let acme = Scope::repository("acme", "app");
    put(&world, &deployment("owner", "ci", &json!({"repository": "acme/app"}), 1)).await?;
    online_in(&world, &acme, 1).await?;
    let own: Api<Runner> = Api::namespaced(world.client.clone(), "owner");
    let name = only(own.list(&ListParams::default()).await?.items)?.name_any();
    // Its pod would be refused as well: there is no such volume.
    let namesake = json!({
        "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "Runner", "metadata": {"name": name, "namespace": "thief"},
        "spec": {"repository": "acme/app", "volumeMounts": [{"name": "none", "mountPath": "/none"}]},
    });
    put(&world, &namesake).await?;
    let theirs: Api<Runner> = Api::namespaced(world.client.clone(), "thief");
    let refused = objects::until(theirs.clone(), "", PATIENCE, |all| {
        let conditions = all.iter().filter_map(|one| one.status.as_ref()).flat_map(|status| &status.conditions);
        conditions.into_iter().any(|condition| condition.reason == "NameTaken")
    })
    .await;
    world.check(refused).await.context("waiting for the Runner to be refused")?;
    // A listing has shown the name while the Runner was there.
    let listed = world.github.count(RouteKind::ListRunners).requests;
    let again = world.github.wait_for(PATIENCE, |view| view.calls(RouteKind::ListRunners).requests > listed + 1).await;
    world.check(again).await?;
    theirs.delete(&name, &DeleteParams::background()).await?;
    let gone = objects::until(theirs, "", PATIENCE, |all| all.is_empty()).await;
    world.check(gone).await.context("waiting for the Runner without a pod to go")?;
    ensure!(world.github.count(RouteKind::DeleteRunner).requests == 0, "its namesake was to be removed");
    online_in(&world, &acme, 1).await?;
    end_as_it_is(world).await
}
