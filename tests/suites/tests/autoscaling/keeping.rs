//! An autoscaler that lost what it decides by keeps its fleet at its number.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use pacer_api::JobLedger;
use pacer_harness::controlplane::Apply;
use pacer_harness::github::{Person, Scope};
use pacer_harness::world::World;
use pacer_suites::webhook::hooked_world;
use pacer_suites::{NAMESPACE, PATIENCE, api, apply, delete, end, kubectl, put, queue, running, settled, succeeded, world};
use serde_json::json;

use super::{autoscaler, by_polling, by_webhook, pool, status};

/// How an autoscaler loses its credentials.
#[derive(Clone, Copy, Debug)]
enum Loss {
    Deleted,
    Emptied,
    Revoked,
}

#[tokio::test(flavor = "multi_thread")]
async fn fleet_keeps_its_number_while_jobs_end_when_its_autoscalers_secret_is_deleted() -> Result<()> {
    keeps_its_number(Loss::Deleted).await
}

#[tokio::test(flavor = "multi_thread")]
async fn fleet_keeps_its_number_while_jobs_end_when_its_autoscalers_secret_is_emptied() -> Result<()> {
    keeps_its_number(Loss::Emptied).await
}

#[tokio::test(flavor = "multi_thread")]
async fn fleet_keeps_its_number_while_jobs_end_when_its_autoscalers_token_is_revoked() -> Result<()> {
    keeps_its_number(Loss::Revoked).await
}

async fn keeps_its_number(loss: Loss) -> Result<()> {
    let world = world(|_| {}).await?;
    let token = world.github.add_pat(Person::admin("scaler").seeing([Scope::repository("acme", "app")]));
    let secret = |content| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "scaler", "namespace": NAMESPACE}, "stringData": content});
    apply(&world, &secret(json!({"github_token": token}))).await?;
    let own = put(autoscaler(1, 4, by_polling()), "/spec", "githubAPICredentialsFrom", json!({"secretRef": {"name": "scaler"}}));
    pool(&world, 1, &own).await?;
    settled(&world, 1).await?;
    queue(&world, "web", 3, Duration::from_secs(90))?;
    running(&world, 3).await?;
    status(&world, "three for three jobs", |status| status.desired_replicas == Some(3)).await?;
    match loss {
        Loss::Deleted => delete::<Secret>(&world, "scaler").await?,
        Loss::Emptied => {
            drop(kubectl(&world, &["patch", "secret", "scaler", "--type=merge", "-p", r#"{"data":{"github_token":""}}"#]).await?);
        }
        Loss::Revoked => world.github.revoke(&token),
    }
    succeeded(&world, 3).await?;
    settled(&world, 3).await?;
    // The runners are there to be used, and are replaced as often as they are.
    queue(&world, "web", 3, Duration::from_secs(2))?;
    succeeded(&world, 6).await?;
    settled(&world, 3).await?;
    let made = world.github.runners().ever_registered;
    ensure!(made == 9, "{made} runners were made for 6 jobs and 3 that wait");
    // With credentials it decides again.
    let token = world.github.add_pat(Person::admin("scaler").seeing([Scope::repository("acme", "app")]));
    apply(&world, &secret(json!({"github_token": token}))).await?;
    apply(&world, &put(own, "/spec", "scaleDownDelaySecondsAfterScaleOut", json!(0))).await?;
    settled(&world, 1).await?;
    end(world).await
}

/// Refuses every write of a JobLedger.
async fn refuse_ledgers(world: &World) -> Result<()> {
    let policy = json!({
        "apiVersion": "v1", "kind": "List", "items": [
            {
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "no-ledgers"},
                "spec": {
                    "failurePolicy": "Fail",
                    "matchConstraints": {"resourceRules": [{
                        "apiGroups": ["actions.summerwind.dev"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"],
                        "resources": ["jobledgers"],
                    }]},
                    "validations": [{"expression": "false", "message": "no ledgers here"}],
                },
            },
            {
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
                "metadata": {"name": "no-ledgers"}, "spec": {"policyName": "no-ledgers", "validationActions": ["Deny"]},
            },
        ],
    });
    world.plane.apply_text(&policy.to_string(), Apply::ClientSide).await?;
    // The API server does not say from when on it asks a policy.
    let ledger = json!({
        "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "JobLedger", "metadata": {"name": "probe", "namespace": NAMESPACE},
        "spec": {"autoscaler": "nobody"},
    });
    let ledger: JobLedger = serde_json::from_value(ledger)?;
    let attempt = kube::api::PostParams { dry_run: true, ..kube::api::PostParams::default() };
    let refused = async {
        while api::<JobLedger>(world).create(&attempt, &ledger).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    Ok(tokio::time::timeout(PATIENCE, refused).await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn autoscaler_goes_on_deciding_when_its_ledgers_are_refused() -> Result<()> {
    let world = hooked_world(&[]).await?;
    refuse_ledgers(&world).await?;
    let mut more = by_webhook();
    more["metrics"] = by_polling()["metrics"].clone();
    more["scaleDownDelaySecondsAfterScaleOut"] = json!(0);
    pool(&world, 1, &autoscaler(1, 4, more)).await?;
    settled(&world, 1).await?;
    queue(&world, "web", 3, Duration::from_secs(5))?;
    succeeded(&world, 3).await?;
    settled(&world, 1).await?;
    ensure!(world.github.deliveries().iter().any(|delivery| delivery.status >= 500), "no event was refused");
    end(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn fleet_keeps_its_number_when_the_ledgers_of_its_autoscaler_are_refused_from_now_on() -> Result<()> {
    let world = hooked_world(&[]).await?;
    pool(&world, 2, &autoscaler(2, 4, by_webhook())).await?;
    settled(&world, 2).await?;
    queue(&world, "web", 2, Duration::from_secs(20))?;
    running(&world, 2).await?;
    refuse_ledgers(&world).await?;
    succeeded(&world, 2).await?;
    for done in 1..=2 {
        queue(&world, "web", 2, Duration::from_secs(2))?;
        succeeded(&world, 2 + 2 * done).await?;
    }
    // Jobs whose end can't be written down may count until GitHub says that they are over.
    let reached = world.github.wait_for(PATIENCE, |view| view.runners().online >= 2 && view.runners().busy == 0).await;
    world.check(reached).await?;
    kubectl(&world, &["delete", "validatingadmissionpolicybinding", "no-ledgers"]).await?;
    apply(&world, &put(autoscaler(2, 4, by_webhook()), "/spec", "scaleDownDelaySecondsAfterScaleOut", json!(0))).await?;
    settled(&world, 2).await?;
    end(world).await
}
