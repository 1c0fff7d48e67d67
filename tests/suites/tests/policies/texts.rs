//! A policy that is text: it decides, is edited, is broken, and can be repeated from its receipt.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use pacer_api::condition::{ConditionType, Verdict};
use pacer_harness::world::World;
use pacer_suites::{NAMESPACE, apply, brisk_world, end_as_it_is};
use serde_json::{Value, json};

use super::verbs::said;
use super::{condition, event_in, fleet, goes, phase, status};

const SET: &str = "scale-down: {module: policy.js}\n";

pub(crate) fn text(opinion: &str) -> String {
    format!(
        "export const name = \"opinion\";\n\
         export function scaleDown(request) {{\n\
         \x20 return [{{ index: 0, reason: `{opinion}, of ${{request.candidates.length}}` }}].slice(0, request.candidates.length);\n\
         }}\n"
    )
}

pub(crate) async fn put(world: &World, text: &str) -> Result<()> {
    let set = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "opinions", "namespace": NAMESPACE},
        "data": {"policies.yaml": SET, "policy.js": text},
    });
    apply(world, &set).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_decides_is_edited_and_stays_when_the_next_is_broken() -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    fleet(&world, 12).await?;
    put(&world, &text("the first opinion")).await?;
    let began = Instant::now();
    let first = status(&world, NAMESPACE, "opinions", "the first text", phase("Active")).await?;
    println!("first text in force after {:?}, with the interpreter's compilation", began.elapsed());
    let policy = first["decisions"]["scale-down"]["enforced"]["policy"].as_str().unwrap_or_default();
    ensure!(policy.starts_with("opinion@sha256:"), "{first}");
    goes(&world, "the first opinion, of ").await?;

    // Edited: the new text decides.
    put(&world, &text("the second opinion")).await?;
    let began = Instant::now();
    let second = status(&world, NAMESPACE, "opinions", "the second text", |status| {
        status["phase"] == "Active" && status["digest"] != first["digest"]
    })
    .await?;
    println!("edited text in force after {:?}", began.elapsed());
    goes(&world, "the second opinion, of ").await?;

    // A mistake: refused with its place, and the text before it goes on.
    put(&world, "export function scaleDown(request) {\n  return request..candidates;\n}\n").await?;
    let broken = status(&world, NAMESPACE, "opinions", "a refusal", phase("LastGood")).await?;
    ensure!(broken["digest"] == second["digest"] && broken["lastError"]["reason"] == "PolicySyntaxError", "{broken}");
    let message = broken["lastError"]["message"].as_str().unwrap_or_default();
    ensure!(message.contains("line 2, column "), "{message}");
    println!("refusal: {message}");
    condition(&world, ConditionType::PolicyAccepted, Verdict::False, "PolicySyntaxError").await?;
    event_in(&world, NAMESPACE, "PolicyRefused", "line 2, column ").await?;
    goes(&world, "the second opinion, of ").await?;

    // Whoever reads the receipt finds the text that decided, which is only kept in the operator's records by now, and gets the same bytes.
    let receipts = ["receipts", "-n", NAMESPACE, "--pool", "web", "--decision", "scale-down", "--last", "1", "-o", "json"];
    let receipt: Value = serde_json::from_str(&said(&world, &receipts, true, &["second opinion"]).await?)?;
    let made = &receipt["receipt"]["attempts"][0]["interpreted"];
    ensure!(made["text"].is_string() && made["interpreter"].is_string(), "{receipt}");
    let id = receipt["id"].as_str().context("a receipt has a name")?;
    said(&world, &["replay", "-n", NAMESPACE, id], true, &["ConfigMap ", "answer  sha256:", ", the same"]).await?;
    end_as_it_is(world).await
}
