//! `containerMode: kubernetes`: each job in a pod that its runner makes.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Pod, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt};
use pacer_api::condition::ConditionType;
use pacer_api::{Runner, RunnerDeployment, RunnerReplicaSet};
use pacer_harness::controlplane::Apply;
use pacer_harness::github::{JobSpec, Scope};
use pacer_harness::objects;
use pacer_harness::world::World;
use pacer_suites::{
    NAMESPACE, PATIENCE, api, apply, brisk_world, delete, delete_all, deployment, end, nothing_left, online_in, queue, runners,
    running, scale, succeeded, until, with_spec,
};
use serde_json::{Value, json};

use super::{as_account, is_forbidden};

/// Selects the accounts that runners of a set share, and their bindings.
const SHARED: &str = "actions.summerwind.dev/job-pods-account=true";

fn in_job_pods(object: Value) -> Value {
    let claim = json!({"storageClassName": "c", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    with_spec(with_spec(object, "containerMode", json!("kubernetes")), "workVolumeClaimTemplate", claim)
}

fn is_job_pod(pod: &Pod) -> bool {
    pod.labels().contains_key("runner-pod")
}

async fn accounts(world: &World, count: usize) -> Result<()> {
    let found = objects::until(api::<ServiceAccount>(world), SHARED, PATIENCE, |all| all.len() == count).await;
    world.check(found).await.with_context(|| format!("waiting for {count} accounts"))?;
    let found = objects::until(api::<RoleBinding>(world), SHARED, PATIENCE, |all| all.len() == count).await;
    world.check(found).await.with_context(|| format!("waiting for {count} bindings"))?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_runs_jobs_in_pods_and_its_account_outlives_it_until_they_are_done() -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    let scope = Scope::repository("example", "repository");
    world.github.add(&scope);
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/runnerdeployment-kubernetes-mode.yaml");
    world.plane.apply(&example, Apply::ClientSide).await?;
    online_in(&world, &scope, 1).await?;
    let job = |lasting| JobSpec::new("example/repository", ["self-hosted"]).lasting(lasting);
    // It succeeds only if its runner was refused nothing.
    world.github.queue_job(job(Duration::from_millis(200)))?;
    succeeded(&world, 1).await?;
    scale(&world, "kubernetes-mode", 3).await?;
    online_in(&world, &scope, 3).await?;
    let calls = world.operator_calls(None)?;
    let made = (calls.count("create", "serviceaccounts"), calls.count("create", "rolebindings"), calls.count("create", "roles"));
    ensure!(made == (1, 1, 0), "one account for all runners: {made:?}");

    let runner = as_account(&world, "kubernetes-mode-job-pods").await?;
    let elsewhere: Api<Pod> = Api::namespaced(runner.clone(), "kube-system");
    let accounts_here: Api<ServiceAccount> = Api::namespaced(runner.clone(), NAMESPACE);
    Api::<Pod>::namespaced(runner, NAMESPACE).list(&ListParams::default()).await.context("its own namespace")?;
    ensure!(is_forbidden(elsewhere.list(&ListParams::default()).await), "another namespace's pods");
    ensure!(is_forbidden(accounts_here.list(&ListParams::default()).await), "other objects");

    world.github.queue_job(job(Duration::from_secs(20)))?;
    running(&world, 1).await?;
    until::<Pod>(&world, "the job's pod", |all| all.iter().any(|pod| is_job_pod(pod))).await?;
    delete::<RunnerDeployment>(&world, "kubernetes-mode").await?;
    until::<RunnerReplicaSet>(&world, "no sets", |all| all.is_empty()).await?;
    runners(&world, "the busy one only", |counts| counts.registered == 1).await?;
    // The hooks still need it.
    accounts(&world, 1).await?;
    ensure!(world.github.jobs().in_progress == 1, "the job is over, which says nothing about its account");
    succeeded(&world, 2).await?;
    nothing_left(&world).await?;
    accounts(&world, 0).await?;
    end(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_job_left_behind_goes_with_its_runner_whoever_crashed() -> Result<()> {
    let mut world = brisk_world(&[], |_| {}).await?;
    apply(&world, &in_job_pods(deployment("web", 2))).await?;
    runners(&world, "2 online", |counts| counts.online == 2).await?;
    let foreign: Secret =
        serde_json::from_value(json!({"metadata": {"name": "mine", "labels": {"runner-pod": "web-somebody"}}}))?;
    api::<Secret>(&world).create(&PostParams::default(), &foreign).await?;
    let jobs = queue(&world, "web", 2, Duration::from_secs(600))?;
    running(&world, 2).await?;
    let job_pods = until::<Pod>(&world, "two job pods", |all| all.iter().filter(|pod| is_job_pod(pod)).count() == 2).await?;
    let names: Vec<String> = job_pods.iter().filter_map(|pod| pod.labels().get("runner-pod").cloned()).collect();
    let [victim, other] = names.as_slice() else { anyhow::bail!("{names:?}") };

    // The runner dies in the middle of its job, and nobody is there to see it.
    world.operator.as_ref().context("no operator")?.kill9().await;
    world.nodes.as_ref().context("no nodes")?.crash(NAMESPACE, victim, 137).await?;
    until::<Pod>(&world, "its end", |all| {
        let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
        all.iter().any(|pod| pod.name_any() == *victim && phase(pod).as_deref() == Some("Failed"))
    })
    .await?;
    world.operator.as_mut().context("no operator")?.restart().await?;
    until::<Runner>(&world, "another runner in its place", |all| {
        all.len() == 2 && all.iter().all(|runner| runner.name_any() != *victim)
    })
    .await?;
    let left =
        until::<Pod>(&world, "no pod of its job", |all| all.iter().all(|pod| pod.labels().get("runner-pod") != Some(victim)))
            .await?;
    ensure!(left.iter().any(|pod| pod.labels().get("runner-pod") == Some(other)), "the other job's pod is gone");
    let secrets = until::<Secret>(&world, "no Secret of its job", |all| {
        all.iter().all(|secret| secret.labels().get("runner-pod") != Some(victim))
    })
    .await?;
    ensure!(secrets.iter().any(|secret| secret.name_any() == "mine"), "a Secret of somebody else is gone");
    ensure!(secrets.iter().any(|secret| secret.labels().get("runner-pod") == Some(other)), "the other job's Secret is gone");

    // The agent of a cancelled job ends, and its hooks come to nothing.
    for job in jobs {
        world.github.cancel_job(job);
    }
    delete_all(&world).await?;
    accounts(&world, 0).await?;
    end(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_of_others_are_left_alone_and_stand_alone_runners_have_their_own() -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    let theirs: ServiceAccount = serde_json::from_value(json!({"metadata": {"name": "web-job-pods"}}))?;
    api::<ServiceAccount>(&world).create(&PostParams::default(), &theirs).await?;
    apply(&world, &in_job_pods(deployment("web", 1))).await?;
    until::<Runner>(&world, "a refused Runner", |all| {
        let conditions = || all.iter().filter_map(|runner| runner.status.as_ref()).flat_map(|status| &status.conditions);
        conditions().any(|one| {
            one.type_ == ConditionType::Accepted.as_str()
                && one.status == "False"
                && one.message.contains("default/web-job-pods exists and is not the operator's")
        })
    })
    .await?;
    delete::<ServiceAccount>(&world, "web-job-pods").await?;
    runners(&world, "it online", |counts| counts.online == 1).await?;
    delete::<RunnerDeployment>(&world, "web").await?;
    nothing_left(&world).await?;

    let mut alone = in_job_pods(deployment("alone", 1));
    let spec = alone.pointer("/spec/template/spec").cloned().context("no spec")?;
    alone = json!({"apiVersion": alone["apiVersion"], "kind": "Runner", "metadata": alone["metadata"], "spec": spec});
    apply(&world, &alone).await?;
    runners(&world, "it online", |counts| counts.online == 1).await?;
    queue(&world, "alone", 1, Duration::from_millis(200))?;
    succeeded(&world, 1).await?;
    api::<ServiceAccount>(&world).get("alone").await.context("an account of its own")?;
    delete_all(&world).await?;
    until::<ServiceAccount>(&world, "no account", |all| all.iter().all(|one| one.name_any() == "default")).await?;
    until::<RoleBinding>(&world, "no binding", |all| all.is_empty()).await?;
    end(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_gets_the_rights_of_job_pods_where_the_operators_credentials_lie() -> Result<()> {
    const OWN: &str = "actions-runner-system";
    let world = brisk_world(&[], |_| {}).await?;
    let mut fleet = in_job_pods(deployment("web", 1));
    fleet["metadata"]["namespace"] = json!(OWN);
    apply(&world, &fleet).await?;
    let all: Api<Runner> = Api::namespaced(world.client.clone(), OWN);
    let refused = objects::until(all, "", PATIENCE, |all| {
        let conditions = |one: &Runner| one.status.clone().unwrap_or_default().conditions;
        let says = |message: &str| message.contains("is the operator's own") && message.contains("move these runners");
        all.iter().any(|one| conditions(one).iter().any(|condition| says(&condition.message)))
    })
    .await;
    world.check(refused).await.context("waiting for the refusal")?;
    let bindings: Api<RoleBinding> = Api::namespaced(world.client.clone(), OWN);
    ensure!(bindings.list(&ListParams::default().labels(SHARED)).await?.items.is_empty(), "the right was given");
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), OWN);
    ensure!(pods.list(&ListParams::default()).await?.items.is_empty(), "a pod was made");
    // With an account of its user's choice it is its user's matter.
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "mine", "namespace": OWN}});
    apply(&world, &account).await?;
    apply(&world, &with_spec(fleet, "serviceAccountName", json!("mine"))).await?;
    let outcome = objects::until(pods, "", PATIENCE, |all| !all.is_empty()).await;
    world.check(outcome).await.context("waiting for a pod with its own account")?;
    world.stop().await;
    Ok(())
}
