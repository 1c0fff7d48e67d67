//! Webhooks on the real API server: `pacer webhook` under its shipped role, and `pacer run --webhook-addr`. What is answered with 2xx has to
//! be in a ledger, whatever happens meanwhile.

pub(crate) mod post;
mod replicas;
mod replies;

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use kube::ResourceExt;
use kube::api::ListParams;
use pacer_api::{HorizontalRunnerAutoscaler, JobLedger, job_ledger};
use pacer_core::ledger::State;
use pacer_harness::operator::{self, Operator};
use pacer_harness::world::{Options, World};
use pacer_suites::manifests::shipped;
use pacer_suites::webhook::SECRET;
use pacer_suites::{PATIENCE, api, apply, patient_autoscaler};
use serde_json::{Value, json};

use post::post;

/// A cluster without nodes and operator, with the role of the webhook server.
async fn world(change: impl FnOnce(&mut Options)) -> Result<World> {
    pacer_suites::world(|options| {
        options.operator = None;
        options.nodes = None;
        options.manifests.push(shipped("webhook/rbac.yaml"));
        change(options);
    })
    .await
}

/// Starts `pacer webhook`, and waits until it receives.
async fn receiver(world: &World, arguments: &[&str]) -> Result<Operator> {
    let options = operator::Options {
        verb: "webhook".to_owned(),
        service_account: "pacer-webhook".to_owned(),
        args: ["--webhook-addr=127.0.0.1:0"].iter().chain(arguments).map(|argument| (*argument).to_owned()).collect(),
        env: vec![("GITHUB_WEBHOOK_SECRET_TOKEN".to_owned(), SECRET.to_owned())],
        log_level: "debug".to_owned(),
        ..operator::Options::default()
    };
    let receiver = Operator::start(&world.plane, &world.github, &options).await?;
    receiver.until_ready("receiving", PATIENCE).await?;
    Ok(receiver)
}

fn address(receiver: &Operator) -> Result<String> {
    receiver.webhook_address().context("it announced no address for webhooks")
}

/// A RunnerDeployment of these runners.
fn deployment(name: &str, runners: &Value) -> Value {
    json!({
        "apiVersion": "actions.summerwind.dev/v1alpha1",
        "kind": "RunnerDeployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": 0, "template": {"spec": runners}},
    })
}

/// An autoscaler of the RunnerDeployment of that name.
fn autoscaler(name: &str, target: &str) -> Value {
    patient_autoscaler(name, target, 0, 10)
}

/// A RunnerDeployment and its autoscaler.
async fn pool(world: &World, name: &str, runners: &Value) -> Result<()> {
    apply(world, &deployment(name, runners)).await?;
    apply(world, &autoscaler(name, name)).await
}

/// The event of a job in `owner/name`, whose owner is an organization.
fn event(action: &str, id: u64, repository: &str, labels: &[&str]) -> Value {
    let owner = repository.split('/').next().unwrap_or_default();
    let ran = action != "queued" && action != "waiting";
    json!({
        "action": action,
        "workflow_job": {
            "id": id, "run_id": 7, "run_attempt": 1, "workflow_name": "ci", "labels": labels,
            "created_at": "2024-05-06T07:08:09Z", "started_at": "2024-05-06T07:08:19Z",
            "completed_at": if action == "completed" { json!("2024-05-06T07:09:09Z") } else { Value::Null },
            "conclusion": if action == "completed" { json!("success") } else { Value::Null },
            "runner_id": if ran { json!(5) } else { Value::Null },
            "runner_name": if ran { json!("web-abcde") } else { Value::Null },
        },
        "repository": {"full_name": repository, "name": "app", "owner": {"login": owner, "type": "Organization"}},
    })
}

/// The same event with a field of its job changed.
fn with(mut event: Value, field: &str, value: Value) -> Value {
    if let Some(job) = event.pointer_mut("/workflow_job").and_then(Value::as_object_mut) {
        job.insert(field.to_owned(), value);
    }
    event
}

/// Delivers until the answer is this one, for what a watch has to bring first.
async fn eventually(address: &str, payload: &Value, text: &str) -> Result<()> {
    let answered = async {
        loop {
            let answer = post(address, "workflow_job", payload).await?;
            if answer.text == text {
                return Ok::<_, anyhow::Error>(());
            }
            // Neither side announces what a watch has brought.
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, answered).await.with_context(|| format!("waiting for {text:?}"))?
}

/// Jobs and their states in the ledger of an autoscaler.
type States = BTreeMap<u64, State>;

async fn ledger(world: &World, name: &str) -> Result<States> {
    let ledgers = api::<JobLedger>(world).list(&ListParams::default()).await?;
    let own = ledgers.items.iter().filter(|ledger| ledger.spec.autoscaler == name);
    Ok(job_ledger::read(own.map(|ledger| &ledger.spec)).all().map(|(id, job)| (id, job.state)).collect())
}
