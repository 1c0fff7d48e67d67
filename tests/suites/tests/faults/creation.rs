//! Objects that cannot be made: the API server refuses them, or another object has their name.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams};
use pacer_api::condition::{self, ConditionType};
use pacer_api::names::label;
use pacer_api::{Runner, RunnerDeployment, RunnerReplicaSet, RunnerSet};
use pacer_harness::world::World;
use pacer_suites::fleet::Kind;
use pacer_suites::{
    NAMESPACE, PATIENCE, api, apply, brisk_world, delete, end, event, for_both_kinds, kubectl, only, settled, until,
};
use serde_json::{Value, json};

for_both_kinds!(
    runners_that_the_api_server_refuses_are_told_of_and_made_once_it_does_not,
    set_that_lost_its_owner_is_adopted_and_one_of_somebody_else_is_named,
);

/// An admission policy that lets nobody make these.
fn refusal(resource: &str) -> [Value; 2] {
    let name = format!("no-{resource}");
    let kind = |kind: &str, spec: Value| json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    let rule = json!({
        "apiGroups": ["actions.summerwind.dev"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": [resource],
    });
    [
        kind(
            "ValidatingAdmissionPolicy",
            json!({
                "matchConstraints": {"resourceRules": [rule]},
                "validations": [{"expression": "false", "message": format!("no {resource} today")}],
            }),
        ),
        kind("ValidatingAdmissionPolicyBinding", json!({"policyName": name, "validationActions": ["Deny"]})),
    ]
}

/// Puts it into force.
async fn refuse(world: &World, resource: &str, example: Value) -> Result<()> {
    for object in refusal(resource) {
        apply(world, &object).await?;
    }
    let file = world.plane.directory().join(format!("{resource}.json"));
    std::fs::write(&file, example.to_string())?;
    let path = file.to_string_lossy().into_owned();
    let refused = tokio::time::timeout(PATIENCE, async {
        // The API server announces no policy that has come into force.
        while kubectl(world, &["create", "--dry-run=server", "--filename", &path]).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    refused.await.with_context(|| format!("{resource} can still be made"))
}

async fn allow(world: &World, resource: &str) -> Result<()> {
    let name = format!("no-{resource}");
    kubectl(world, &["delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", &name]).await.map(drop)
}

fn refused_because(conditions: &[Condition], part: &str) -> bool {
    let ready = condition::find(conditions, ConditionType::Ready);
    ready.is_some_and(|ready| {
        (ready.status.as_str(), ready.reason.as_str()) == ("False", "CreationRefused") && ready.message.contains(part)
    })
}

/// Waits until the fleet says why something can't be made.
async fn says(world: &World, kind: Kind, part: &str) -> Result<()> {
    match kind {
        Kind::RunnerDeployment => {
            let said =
                |one: &&RunnerDeployment| one.status.as_ref().is_some_and(|status| refused_because(&status.conditions, part));
            until::<RunnerDeployment>(world, "a refusal", |all| all.iter().any(said)).await?;
        }
        Kind::RunnerSet => {
            let said = |one: &&RunnerSet| one.status.as_ref().is_some_and(|status| refused_because(&status.conditions, part));
            until::<RunnerSet>(world, "a refusal", |all| all.iter().any(said)).await?;
        }
    }
    event(world, "CreationRefused", |note| note.contains(part)).await
}

async fn runners_that_the_api_server_refuses_are_told_of_and_made_once_it_does_not(kind: Kind) -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    let example = |kind: &str, spec: Value| {
        let metadata = json!({"name": "example", "namespace": NAMESPACE});
        json!({"apiVersion": "actions.summerwind.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec})
    };
    let runner = json!({"repository": "acme/app"});
    let set = json!({"replicas": 0, "template": {"spec": runner}});
    refuse(&world, "runnerreplicasets", example("RunnerReplicaSet", set)).await?;
    refuse(&world, "runners", example("Runner", runner)).await?;

    let fleet = kind.fleet("web", 2);
    fleet.apply(&world).await?;
    says(&world, kind, "no runnerreplicasets today").await?;
    allow(&world, "runnerreplicasets").await?;
    until::<RunnerReplicaSet>(&world, "a set that says why it has no runners", |all| {
        let said = |one: &&RunnerReplicaSet| {
            one.status.as_ref().is_some_and(|status| refused_because(&status.conditions, "no runners today"))
        };
        all.iter().any(said)
    })
    .await?;
    says(&world, kind, "no runners today").await?;
    allow(&world, "runners").await?;
    settled(&world, 2).await?;
    end(world).await
}

/// The only RunnerReplicaSet, once it has an owner or has none.
async fn sole(world: &World, owned: bool) -> Result<RunnerReplicaSet> {
    let what = if owned { "a set with an owner" } else { "a set without an owner" };
    let is_so = |set: &RunnerReplicaSet| set.owner_references().is_empty() != owned;
    only(until::<RunnerReplicaSet>(world, what, |all| all.len() == 1 && all.iter().all(|set| is_so(set))).await?)
}

async fn set_that_lost_its_owner_is_adopted_and_one_of_somebody_else_is_named(kind: Kind) -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    let fleet = kind.fleet("web", 3).retaining();
    fleet.apply(&world).await?;
    settled(&world, 3).await?;
    let names = async || -> Result<BTreeSet<String>> {
        Ok(api::<Runner>(&world).list(&ListParams::default()).await?.iter().map(ResourceExt::name_any).collect())
    };
    let (before, set) = (names().await?, sole(&world, true).await?);
    kubectl(&world, &["delete", kind.as_str(), "web", "--cascade=orphan", "--namespace", NAMESPACE]).await?;
    sole(&world, false).await?;

    // While it is another fleet's by its labels, nobody takes it.
    let owner_label = match kind {
        Kind::RunnerDeployment => label::RUNNER_DEPLOYMENT_NAME,
        Kind::RunnerSet => label::RUNNER_SET_NAME,
    };
    let labelled = async |owner: &str| -> Result<()> {
        let patch = Patch::Merge(json!({"metadata": {"labels": {owner_label: owner}}}));
        api::<RunnerReplicaSet>(&world).patch(&set.name_any(), &PatchParams::default(), &patch).await?;
        Ok(())
    };
    labelled("other").await?;
    fleet.apply(&world).await?;
    says(&world, kind, &format!("'{}', which this template needs, exists and has no owner", set.name_any())).await?;
    labelled("web").await?;
    let adopted = sole(&world, true).await?;
    ensure!(adopted.uid() == set.uid(), "another set was made");
    settled(&world, 3).await?;
    let after = names().await?;
    ensure!(after == before, "runners were {before:?} and are {after:?}");
    fleet.scale(&world, 1).await?;
    settled(&world, 1).await?;
    end(world).await
}

/// People name stand-alone Runners, and pods.
#[tokio::test(flavor = "multi_thread")]
async fn runner_whose_name_a_foreign_pod_has_says_so_and_goes_without_it() -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    let metadata = json!({"name": "build-1", "namespace": NAMESPACE});
    // No scheduler places it, so it stays as it is.
    let foreign = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": {"schedulerName": "nobody", "containers": [{"name": "main", "image": "example.com/build"}]},
    });
    apply(&world, &foreign).await?;
    let runner = json!({
        "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "Runner", "metadata": metadata, "spec": {"repository": "acme/app"},
    });
    apply(&world, &runner).await?;
    until::<Runner>(&world, "a Runner that says why it has no pod", |all| {
        let conditions = all.iter().filter_map(|runner| runner.status.as_ref()).flat_map(|status| &status.conditions);
        conditions
            .into_iter()
            .any(|one| one.reason == "PodRefused" && one.message.contains("pod 'build-1' exists and is not this Runner's"))
    })
    .await?;
    delete::<Runner>(&world, "build-1").await?;
    until::<Runner>(&world, "no Runner", |all| all.is_empty()).await?;
    let pod = only(api::<Pod>(&world).list(&ListParams::default()).await?.items)?;
    ensure!(pod.metadata.deletion_timestamp.is_none(), "the foreign pod was deleted");
    // Deleting it is for whoever made it.
    kubectl(&world, &["delete", "pod", "build-1", "--force", "--namespace", NAMESPACE]).await?;
    settled(&world, 0).await?;
    end(world).await
}
