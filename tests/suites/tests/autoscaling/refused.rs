//! Numbers that the API server refuses: an admission policy lets nobody change them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use kube::api::ListParams;
use pacer_api::condition::{self, ConditionType};
use pacer_api::{RunnerDeployment, RunnerReplicaSet};
use pacer_harness::world::World;
use pacer_suites::webhook::hooked_world;
use pacer_suites::{PATIENCE, api, apply, end, event, kubectl, only, queue, runners, settled, succeeded, until};
use serde_json::{Value, json};

use super::{autoscaler, by_webhook, pool, status};

const WORDS: &str = "no other number today";

/// Lets nobody change the number of this object, nor the time that goes with it.
async fn freeze(world: &World, resource: &str, name: &str) -> Result<()> {
    let object = |kind: &str, spec: Value| json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "frozen"}, "spec": spec});
    let rule = json!({
        "apiGroups": ["actions.summerwind.dev"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": [resource],
    });
    let same = "object.spec.replicas == oldObject.spec.replicas && object.spec.?effectiveTime == oldObject.spec.?effectiveTime";
    let policy = json!({
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": same, "message": WORDS}],
    });
    apply(world, &object("ValidatingAdmissionPolicy", policy)).await?;
    let binding = json!({"policyName": "frozen", "validationActions": ["Deny"]});
    apply(world, &object("ValidatingAdmissionPolicyBinding", binding)).await?;
    let change = ["patch", resource, name, "--type=merge", "--dry-run=server", "-p", r#"{"spec":{"replicas":9}}"#];
    let refused = tokio::time::timeout(PATIENCE, async {
        // The API server announces no policy that has come into force.
        while kubectl(world, &change).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    refused.await.with_context(|| format!("the number of {resource} {name} can still be changed"))
}

async fn thaw(world: &World) -> Result<()> {
    kubectl(world, &["delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", "frozen"]).await.map(drop)
}

/// More jobs than runners: the places of those that finish are filled again although no number accounts for that.
async fn jobs_go_on(world: &World) -> Result<()> {
    succeeded(world, 3).await?;
    runners(world, "as many runners as before", |counts| counts.online == 2).await
}

#[tokio::test(flavor = "multi_thread")]
async fn number_that_the_api_server_refuses_is_told_by_the_autoscaler_and_drains_no_pool() -> Result<()> {
    let world = hooked_world(&[]).await?;
    pool(&world, 2, &autoscaler(2, 10, by_webhook())).await?;
    settled(&world, 2).await?;
    freeze(&world, "runnerdeployments", "web").await?;
    let (since, began) = (jiff::Timestamp::now(), Instant::now());
    queue(&world, "web", 3, Duration::from_secs(2))?;
    status(&world, "a refusal", |status| {
        let scaling = condition::find(&status.conditions, ConditionType::Scaling);
        scaling.is_some_and(|scaling| {
            (scaling.status.as_str(), scaling.reason.as_str()) == ("False", "ScalingRefused") && scaling.message.contains(WORDS)
        })
    })
    .await?;
    event(&world, "ScalingRefused", |note| note.contains("RunnerDeployment default/web") && note.contains(WORDS)).await?;
    jobs_go_on(&world).await?;
    let sent = world.operator_calls(Some(since))?.count("patch", "runnerdeployments");
    ensure!(sent <= began.elapsed().as_secs() / 5 + 5, "{sent} patches in {:?}", began.elapsed());
    thaw(&world).await?;
    settled(&world, 2).await?;
    end(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn number_that_the_api_server_refuses_is_told_by_the_deployment_and_drains_no_pool() -> Result<()> {
    let world = hooked_world(&[]).await?;
    pool(&world, 2, &autoscaler(2, 10, by_webhook())).await?;
    settled(&world, 2).await?;
    let set = only(api::<RunnerReplicaSet>(&world).list(&ListParams::default()).await?.items)?.name_any();
    freeze(&world, "runnerreplicasets", &set).await?;
    queue(&world, "web", 3, Duration::from_secs(2))?;
    until::<RunnerDeployment>(&world, "a refusal", |all| {
        let conditions = all
            .iter()
            .filter_map(|one| one.status.as_ref())
            .filter_map(|status| condition::find(&status.conditions, ConditionType::Ready));
        conditions.into_iter().any(|ready| ready.reason == "ScalingRefused" && ready.message.contains(WORDS))
    })
    .await?;
    event(&world, "ScalingRefused", |note| note.contains(&set) && note.contains(WORDS)).await?;
    jobs_go_on(&world).await?;
    thaw(&world).await?;
    settled(&world, 2).await?;
    end(world).await
}
