//! Policies are swapped through a ConfigMap while jobs run: the new one decides the next scale-down, and a broken one is refused and changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::ListParams;
use pacer_api::Runner;
use pacer_api::names::annotation;
use serde_json::Value;

use super::{SMALL, policy_status, removals, shrink_to};
use crate::manifest::{Manifests, policies};
use crate::proof::{Claim, Proofs};
use crate::stage::{FLEET, FLEET_LABEL, Stage, progress};

/// The ConfigMap of the manifests.
const SET: &str = "fleet-policies";

/// Jobs that outlast the swaps, and how long they take.
const BUSY: usize = 3;
const JOB: Duration = Duration::from_secs(24);

/// How many runners go at a time.
const STEP: usize = 2;

/// Which of the idle runners a policy is to remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goes {
    Newest,
    Oldest,
}

/// The policies, one after the other.
pub(crate) async fn swap(stage: &Stage<'_>, proofs: &mut Proofs) -> Result<()> {
    let (newest, oldest) = ("newest-first", "oldest-first");
    let applied = Instant::now();
    apply(stage, newest).await?;
    stage.kubectl(&["annotate", "runnerdeployment", FLEET, &format!("{}={SET}", annotation::POLICIES)]).await?;
    // The first text waits until the interpreter of texts is compiled.
    let mut measured = vec![decides(stage, newest, applied).await?];
    let jobs = stage.queue(BUSY, &["self-hosted", FLEET_LABEL], JOB)?;
    stage.github("all of them to run", |view| progress(view, &jobs).0 == BUSY).await?;
    let swapped = shrink(stage, SMALL - STEP, newest, Goes::Newest).await?;

    let applied = Instant::now();
    apply(stage, oldest).await?;
    measured.push(decides(stage, oldest, applied).await?);
    apply(stage, "broken").await?;
    let refused =
        policy_status(stage, SET, "the broken policy to be refused", |status| said(status, "/phase") == "LastGood").await?;
    let (reason, message) = (said(&refused, "/lastError/reason"), said(&refused, "/lastError/message"));
    stage.terminal.say(&format!("refused, {reason}: {message}"));
    let as_before = shrink(stage, SMALL - 2 * STEP, oldest, Goes::Oldest).await?;
    let (running, succeeded) = stage.progress(&jobs);
    proofs.record(Claim::PolicySwapped, swapped && as_before, measured.join(", "));
    proofs.record(
        Claim::BrokenPolicyRefused,
        as_before && reason == "PolicySyntaxError" && running + succeeded == BUSY,
        format!("{reason}; {oldest} decided on, {running} of {BUSY} jobs running"),
    );
    // The next act records the jobs of the namespace, and these are none of its own.
    stage.github("the jobs to end", |view| progress(view, &jobs).1 == BUSY).await
}

/// Waits until a policy decides, and says how long that took.
async fn decides(stage: &Stage<'_>, policy: &str, applied: Instant) -> Result<String> {
    let begins = format!("{policy}@");
    policy_status(stage, SET, &format!("{policy} to decide"), |status| {
        said(status, "/phase") == "Active" && said(status, "/decisions/scale-down/enforced/policy").starts_with(&begins)
    })
    .await?;
    let live = applied.elapsed().as_secs_f64();
    stage.terminal.say(&format!("{policy} decides, {live:.1} s after it was applied; nothing was restarted"));
    Ok(format!("{policy} after {live:.1} s"))
}

/// Shows a policy and applies it.
async fn apply(stage: &Stage<'_>, policy: &str) -> Result<()> {
    let file = policies().join(format!("{policy}.yaml"));
    stage.show(&Manifests::text_of_policy(&file)?);
    let shown = format!("examples/demo/policies/{policy}.yaml");
    stage.kubectl_on(&["apply"], &file.to_string_lossy(), &shown).await.map(drop)
}

fn said<'a>(status: &'a Value, pointer: &str) -> &'a str {
    status.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Shrinks the fleet to `size`, and says whether this policy chose all those who went, in its order.
async fn shrink(stage: &Stage<'_>, size: usize, policy: &str, goes: Goes) -> Result<bool> {
    let made: BTreeMap<String, _> = stage
        .api::<Pod>()
        .list(&ListParams::default())
        .await?
        .iter()
        .map(|pod| (pod.name_any(), pod.creation_timestamp()))
        .collect();
    let before = stage.fleet();
    let surplus = before.len().saturating_sub(size);
    shrink_to(stage, size).await?;
    let left: BTreeSet<String> = stage.fleet().into_iter().map(|runner| runner.name).collect();
    let (gone, idle): (Vec<_>, Vec<_>) =
        before.into_iter().filter(|runner| runner.job.is_none()).map(|runner| runner.name).partition(|name| !left.contains(name));
    let gone: BTreeSet<String> = gone.into_iter().collect();
    stage
        .objects::<Runner>("the removed Runners to be gone", |all| all.iter().all(|runner| !gone.contains(&runner.name_any())))
        .await?;
    let told = removals(stage, &gone)?;
    for (runner, removal) in &told {
        stage.terminal.say(&format!("removed {runner}: {}; policy {}", removal.reason, removal.policy));
    }
    let age = |name: &String| made.get(name).and_then(Option::as_ref).context("a runner without a pod");
    let mut in_order = true;
    for gone in &gone {
        for idle in &idle {
            in_order &= match goes {
                Goes::Newest => age(gone)?.0 >= age(idle)?.0,
                Goes::Oldest => age(gone)?.0 <= age(idle)?.0,
            };
        }
    }
    Ok(in_order
        && gone.len() == surplus
        && told.len() == surplus
        && told.values().all(|removal| removal.policy.starts_with(&format!("{policy}@"))))
}
