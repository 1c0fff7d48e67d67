//! Several operators in one cluster, each for a namespace.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Pod, Secret};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use pacer_api::{Runner, RunnerDeployment};
use pacer_harness::controlplane::Apply;
use pacer_harness::github::{Person, Scope};
use pacer_harness::objects;
use pacer_harness::operator::{self, Operator};
use pacer_harness::world::World;
use pacer_suites::manifests::{copy_shipped, shipped};
use pacer_suites::{BRISK, PATIENCE, end_as_it_is, online_in, page, world};
use serde_json::{Value, json};

fn deployment(namespace: &str, repository: &str, replicas: u32) -> Value {
    json!({
        "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "RunnerDeployment",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {"replicas": replicas, "template": {"spec": {"repository": repository, "labels": [namespace]}}},
    })
}

async fn without_operator() -> Result<(World, operator::Options)> {
    let mut options = None;
    let world = world(|all| options = all.operator.take()).await?;
    let mut options = options.context("no operator's options")?;
    options.args.extend(BRISK.iter().map(|&argument| argument.to_owned()));
    Ok((world, options))
}

/// An operator for a namespace that calls GitHub as a user of that name.
async fn start(world: &World, options: &operator::Options, namespace: &str, arguments: &[&str]) -> Result<Operator> {
    let mut options = options.clone();
    options.args.push(format!("--watch-namespace={namespace}"));
    options.args.extend(arguments.iter().map(|&argument| argument.to_owned()));
    options.token = Some(world.github.add_pat(Person::admin(namespace)));
    let operator = Operator::start(&world.plane, &world.github, &options).await?;
    operator.until_acting(PATIENCE).await?;
    Ok(operator)
}

/// Who asked GitHub about a repository.
fn callers(world: &World, repository: &str) -> Vec<String> {
    let about = format!("/repos/{repository}/");
    let mut callers: Vec<String> =
        world.github.calls().into_iter().filter(|call| call.path.contains(&about)).map(|call| call.caller).collect();
    callers.sort_unstable();
    callers.dedup();
    callers
}

async fn gone(world: &World, namespace: &str) -> Result<()> {
    let api: Api<RunnerDeployment> = Api::namespaced(world.client.clone(), namespace);
    api.delete("web", &kube::api::DeleteParams::background()).await?;
    let runners: Api<Runner> = Api::namespaced(world.client.clone(), namespace);
    let outcome = objects::until(runners, "", PATIENCE, |all| all.is_empty()).await;
    world.check(outcome).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_serves_its_namespace_and_touches_no_other() -> Result<()> {
    let (world, options) = without_operator().await?;
    for name in ["one", "two", "none"] {
        world.plane.namespace(name).await?;
        world.github.add(&Scope::repository("acme", name));
    }
    // The shipped role names one Lease; others have to be added, as deploy/README.md says.
    let rules = json!({"rules": [{
        "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create", "get", "update"],
    }]});
    let roles: Api<k8s_openapi::api::rbac::v1::Role> = Api::namespaced(world.client.clone(), "actions-runner-system");
    roles.patch("pacer-leader-election", &PatchParams::default(), &Patch::Merge(rules)).await?;
    let one = start(&world, &options, "one", &["--leader-election-id=one"]).await?;
    let two = start(&world, &options, "two", &["--leader-election-id=two"]).await?;
    for name in ["one", "two", "none"] {
        world.plane.apply_text(&deployment(name, &format!("acme/{name}"), 2).to_string(), Apply::ClientSide).await?;
    }
    for name in ["one", "two"] {
        online_in(&world, &Scope::repository("acme", name), 2).await?;
        ensure!(callers(&world, &format!("acme/{name}")) == [format!("user {name}")]);
    }

    // One ends: the other does not take over what is not its own, and what is nobody's stays so.
    one.terminate().await;
    let ones: Api<RunnerDeployment> = Api::namespaced(world.client.clone(), "one");
    ones.patch("web", &PatchParams::default(), &Patch::Merge(json!({"spec": {"replicas": 5}}))).await?;
    gone(&world, "two").await?;
    online_in(&world, &Scope::repository("acme", "two"), 0).await?;
    let pods: Api<Pod> = Api::all(world.client.clone());
    let left = pods.list(&ListParams::default().labels("actions-runner")).await?;
    ensure!(left.items.len() == 2 && left.iter().all(|pod| pod.namespace().as_deref() == Some("one")));
    ensure!(callers(&world, "acme/one") == ["user one"] && callers(&world, "acme/none").is_empty());
    let tokens: Api<Secret> = Api::namespaced(world.client.clone(), "one");
    let tokens = tokens.list(&ListParams::default().labels(pacer_suites::TOKENS)).await?;
    ensure!(tokens.items.len() == 1, "a token of another operator's was swept");

    let again = start(&world, &options, "one", &["--leader-election-id=one"]).await?;
    online_in(&world, &Scope::repository("acme", "one"), 5).await?;
    gone(&world, "one").await?;
    online_in(&world, &Scope::repository("acme", "one"), 0).await?;
    for operator in [again, two] {
        operator.terminate().await;
    }
    end_as_it_is(world).await
}

/// The kustomization that deploy/README.md shows, for a team. kustomize reads nothing beside its own directory.
fn kustomization(at: &Path, team: &str) -> Result<()> {
    for directory in ["base", "single-namespace"] {
        copy_shipped(directory, &at.join("deploy"))?;
    }
    let readme = std::fs::read_to_string(shipped("README.md"))?;
    let shown = page::in_language(&readme, "yaml");
    let shown: Vec<&str> = shown.filter(|text| text.contains("single-namespace") || text.contains("name: namespaces")).collect();
    let [kustomization, namespaces] = shown.as_slice() else { anyhow::bail!("deploy/README.md shows {shown:?}") };
    let of_team = |text: &str| text.replace("<path to single-namespace>", "deploy/single-namespace").replace("team-a", team);
    std::fs::write(at.join("namespaces.yaml"), of_team(namespaces))?;
    Ok(std::fs::write(at.join("kustomization.yaml"), of_team(kustomization))?)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shipped_manifests_for_one_namespace_give_all_that_is_needed_there() -> Result<()> {
    let (world, options) = without_operator().await?;
    let mut operators = Vec::new();
    for name in ["team-a", "team-b"] {
        world.github.add(&Scope::repository("acme", name));
        let directory = world.plane.directory().join(format!("kustomize-{name}"));
        kustomization(&directory, name)?;
        let output = world.plane.kubectl(&["apply", "--server-side", "-k", &directory.to_string_lossy()]).await?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{said}");
        let own = format!("pacer-{name}");
        // No runner is ever there, and the API server has looked at the operator's pods.
        let namespace = Api::<Namespace>::all(world.client.clone()).get(&own).await?;
        let level = namespace.metadata.labels.unwrap_or_default().remove("pod-security.kubernetes.io/enforce");
        ensure!(level.as_deref() == Some("restricted") && !said.contains("would violate PodSecurity"), "{level:?}: {said}");
        let deployments: Api<Deployment> = Api::namespaced(world.client.clone(), &own);
        let pod = deployments.get(&own).await?.spec.and_then(|spec| spec.template.spec).context("no pod")?;
        let arguments = pod.containers.first().and_then(|container| container.args.clone()).unwrap_or_default();
        ensure!(arguments.contains(&format!("--watch-namespace={name}")), "{arguments:?}");
        let account = operator::Options { namespace: own.clone(), service_account: own, ..options.clone() };
        operators.push(start(&world, &account, name, &[]).await?);
    }
    for name in ["team-a", "team-b"] {
        world.plane.apply_text(&deployment(name, &format!("acme/{name}"), 2).to_string(), Apply::ClientSide).await?;
    }
    for name in ["team-a", "team-b"] {
        online_in(&world, &Scope::repository("acme", name), 2).await?;
        ensure!(callers(&world, &format!("acme/{name}")) == [format!("user {name}")]);
        gone(&world, name).await?;
    }
    for operator in operators {
        operator.terminate().await;
        let log = operator.logs();
        let refused = log.lines().find(|line| line.contains("forbidden"));
        ensure!(refused.is_none(), "a right is missing, or one was wanted that nobody should have: {refused:?}");
    }
    end_as_it_is(world).await
}
