//! What ARC v0.27.6 leaves in a cluster, made by hand.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::{BRISK, NAMESPACE, PATIENCE, api, runners, until, world};
use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Resource, ResourceExt};
use pacer_api::{Runner, RunnerDeployment, RunnerReplicaSet};
use pacer_harness::github::Scope;
use pacer_harness::operator::{self, Operator};
use pacer_harness::world::World;
use serde_json::{Value, json};

/// Hash that ARC gave the template. It can't be made outside of Go, so that any other text is as good.
const HASH: &str = "6cd89b7f5";

/// The scope of all fleets here.
pub fn scope() -> Scope {
    Scope::repository("acme", "app")
}

/// A world without an operator, and how to start one in it.
///
/// # Errors
///
/// When the world can't be brought there.
pub async fn without_operator(arguments: &[&str]) -> Result<(World, operator::Options)> {
    let mut options = None;
    let world = world(|all| options = all.operator.take()).await?;
    let mut options = options.context("no operator's options")?;
    options.args.extend(BRISK.iter().chain(arguments).map(|&argument| argument.to_owned()));
    Ok((world, options))
}

/// The operator takes over.
///
/// # Errors
///
/// When the world can't be brought there.
pub async fn start(world: &mut World, options: &operator::Options) -> Result<()> {
    let operator = Operator::start(&world.plane, &world.github, options).await?;
    operator.until_acting(PATIENCE).await?;
    world.operator = Some(operator);
    Ok(())
}

/// Creates an object of the group with its status; text that no type here knows, such as Go's nulls, gets to the API server as it is.
///
/// # Errors
///
/// When the world can't be brought there.
pub async fn create(world: &World, kind: &str, object: Value) -> Result<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("actions.summerwind.dev", "v1alpha1", kind));
    let objects: Api<DynamicObject> = Api::namespaced_with(world.client.clone(), NAMESPACE, &resource);
    let status = object.get("status").cloned();
    let made = objects.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    if let Some(status) = status {
        let patch = Patch::Merge(json!({ "status": status }));
        objects.patch_status(&made.name_any(), &PatchParams::default(), &patch).await?;
    }
    Ok(made)
}

/// A controlling ownerReference as controller-runtime sets it.
fn owned_by<K: ResourceExt>(kind: &str, owner: &K) -> Value {
    json!([{
        "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": kind, "name": owner.name_any(), "uid": owner.uid(),
        "controller": true, "blockOwnerDeletion": true,
    }])
}

/// The spec of a runner as Go writes it.
fn runner_spec(label: &str) -> Value {
    json!({
        "repository": "acme/app", "labels": [label], "dockerEnabled": false, "image": "", "dockerdContainerResources": {}, "resources": {},
    })
}

/// A RunnerDeployment of so many runners.
///
/// # Errors
///
/// When the world can't be brought there.
pub async fn deployment(world: &World, name: &str, replicas: u32) -> Result<DynamicObject> {
    let object = json!({
        "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "RunnerDeployment",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "replicas": replicas, "effectiveTime": null, "selector": null,
            "template": {"metadata": {"creationTimestamp": null}, "spec": runner_spec(name)},
        },
        "status": {
            "availableReplicas": replicas, "readyReplicas": replicas, "updatedReplicas": replicas, "desiredReplicas": replicas,
            "replicas": replicas,
        },
    });
    create(world, "RunnerDeployment", object).await
}

/// The set that ARC made for a deployment, with the random suffix of `generateName`.
///
/// # Errors
///
/// When the world can't be brought there.
pub async fn set(world: &World, deployment: &DynamicObject, suffix: &str, replicas: u32) -> Result<DynamicObject> {
    let of = deployment.name_any();
    let labels = json!({"runner-deployment-name": of, "runner-template-hash": HASH});
    let object = json!({
        "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "RunnerReplicaSet",
        "metadata": {
            "name": format!("{of}-{suffix}"), "generateName": format!("{of}-"), "namespace": NAMESPACE, "labels": labels,
            "ownerReferences": owned_by("RunnerDeployment", deployment),
        },
        "spec": {
            "replicas": replicas, "effectiveTime": null, "selector": {"matchLabels": labels},
            "template": {"metadata": {"creationTimestamp": null, "labels": labels}, "spec": runner_spec(&of)},
        },
        "status": {"replicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas},
    });
    create(world, "RunnerReplicaSet", object).await
}

/// One Runner of a set, with ARC's finalizer unless it is one that ARC is about to delete.
///
/// # Errors
///
/// When the world can't be brought there.
pub async fn runner(world: &World, set: &DynamicObject, suffix: &str, finalizer: bool) -> Result<DynamicObject> {
    let labels = set.labels();
    let label = labels.get("runner-deployment-name").cloned().unwrap_or_default();
    let finalizers: &[&str] = if finalizer { &["runner.actions.summerwind.dev"] } else { &[] };
    let object = json!({
        "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "Runner",
        "metadata": {
            "name": format!("{}-{suffix}", set.name_any()), "generateName": format!("{}-", set.name_any()), "namespace": NAMESPACE,
            "labels": labels, "annotations": {"sync-time": "2026-01-31T08:00:00Z"}, "finalizers": finalizers,
            "ownerReferences": owned_by("RunnerReplicaSet", set),
        },
        "spec": runner_spec(&label),
        "status": {
            "phase": "Running", "ready": true, "reason": "", "message": "", "lastRegistrationCheckTime": null,
            "registration": {
                "organization": "", "repository": "acme/app", "labels": [label], "token": world.github.registration_token(&scope()),
                "expiresAt": "2026-01-31T09:00:00Z",
            },
        },
    });
    create(world, "Runner", object).await
}

/// The pod of a Runner, with ARC's finalizer and the token written out.
///
/// # Errors
///
/// When the world can't be brought there.
pub async fn pod(world: &World, runner: &DynamicObject) -> Result<Pod> {
    let name = runner.name_any();
    let mut labels = runner.labels().clone();
    labels.extend([
        ("actions-runner".to_owned(), String::new()),
        ("actions-runner-controller/inject-registration-token".to_owned(), "true".to_owned()),
        ("pod-template-hash".to_owned(), "8857b86c7".to_owned()),
    ]);
    let label = labels.get("runner-deployment-name").cloned().unwrap_or_default();
    let env = |name: &str, value: &str| json!({"name": name, "value": value});
    let object = json!({
        "metadata": {
            "name": name, "namespace": NAMESPACE, "labels": labels,
            "annotations": {
                "sync-time": "2026-01-31T08:00:00Z", "actions-runner-controller/token-expires-at": "2026-01-31T09:00:00Z",
            },
            "finalizers": ["actions.summerwind.dev/runner-pod"],
            "ownerReferences": owned_by("Runner", runner),
        },
        "spec": {
            "restartPolicy": "Never",
            "containers": [{
                "name": "runner", "image": "summerwind/actions-runner:latest", "imagePullPolicy": "Always", "securityContext": {},
                "env": [
                    env("RUNNER_ORG", ""), env("RUNNER_REPO", "acme/app"), env("RUNNER_ENTERPRISE", ""), env("RUNNER_LABELS", &label),
                    env("RUNNER_GROUP", ""), env("DOCKER_ENABLED", "false"), env("DOCKERD_IN_RUNNER", "false"),
                    env("GITHUB_URL", &world.github.api_url()), env("RUNNER_WORKDIR", "/runner/_work"), env("RUNNER_EPHEMERAL", "true"),
                    env("RUNNER_STATUS_UPDATE_HOOK", "false"),
                    env("GITHUB_ACTIONS_RUNNER_EXTRA_USER_AGENT", "actions-runner-controller/v0.27.6"),
                    env("RUNNER_NAME", &name), env("RUNNER_TOKEN", &world.github.registration_token(&scope())),
                ],
                "volumeMounts": [{"name": "runner", "mountPath": "/runner"}],
            }],
            "volumes": [{"name": "runner", "emptyDir": {}}],
        },
    });
    let pods = api::<Pod>(world);
    Ok(pods.create(&PostParams::default(), &serde_json::from_value(object)?).await?)
}

/// A whole fleet at work: deployment, set, and so many runners that are registered, with ARC's note of their ids on their pods.
///
/// # Errors
///
/// When the world can't be brought there.
pub async fn fleet(world: &World, name: &str, replicas: u32) -> Result<DynamicObject> {
    let deployment = deployment(world, name, replicas).await?;
    let set = set(world, &deployment, "x7k2p", replicas).await?;
    for number in 0..replicas {
        let runner = runner(world, &set, &format!("r{number:04}"), true).await?;
        pod(world, &runner).await?;
    }
    let wanted = u64::from(replicas);
    runners(world, "the runners that ARC made", |counts| counts.online == wanted && counts.registered == wanted).await?;
    note_ids(world).await?;
    Ok(set)
}

/// Puts GitHub's ids on the pods, as ARC's pod controller does.
///
/// # Errors
///
/// When the world can't be brought there.
pub async fn note_ids(world: &World) -> Result<()> {
    for registered in world.github.registrations(&scope()) {
        let patch = json!({"metadata": {"annotations": {"actions-runner/id": registered.id.0.to_string()}}});
        api::<Pod>(world).patch(&registered.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    }
    Ok(())
}

/// UIDs of all objects of a kind.
///
/// # Errors
///
/// When the world can't be brought there.
pub async fn uids<K>(world: &World) -> Result<BTreeSet<String>>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    Ok(api::<K>(world).list(&kube::api::ListParams::default()).await?.items.iter().filter_map(ResourceExt::uid).collect())
}

/// UIDs of the sets, the Runners and the pods.
///
/// # Errors
///
/// When the world can't be brought there.
pub async fn everything(world: &World) -> Result<[BTreeSet<String>; 3]> {
    Ok([uids::<RunnerReplicaSet>(world).await?, uids::<Runner>(world).await?, uids::<Pod>(world).await?])
}

/// Waits until the operator has looked at a deployment and counts so many runners online.
///
/// # Errors
///
/// When the world can't be brought there.
pub async fn taken_over(world: &World, name: &str, replicas: i32) -> Result<()> {
    until::<RunnerDeployment>(world, "the deployment to be taken over", |all| {
        all.iter().filter(|one| one.name_any() == name).any(|one| {
            let status = one.status.clone().unwrap_or_default();
            let ready = status.conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
            ready && status.available_replicas == Some(replicas) && status.observed_generation.is_some()
        })
    })
    .await?;
    Ok(())
}

/// Long enough for a job to outlive the start of an operator on a busy machine.
pub const LONG: Duration = Duration::from_secs(240);
