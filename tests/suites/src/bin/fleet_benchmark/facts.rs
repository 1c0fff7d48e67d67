//! What it costs to tell policies every fact that they may ask for: an idle fleet with a policy that reads none, and one with a policy that reads all.

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context, Result};
use pacer_api::names;
use pacer_harness::controlplane::Audit;
use pacer_harness::objects;
use pacer_harness::operator::Memory;
use pacer_harness::world::World;
use pacer_suites::{NAMESPACE, api, apply, autoscaler, event, grant_room};
use serde_json::{Value, json};

use crate::figure::{AtMost, Page};
use crate::fleet::{self, NAME, PATIENCE, nodes};
use crate::{figure, meter};

/// All facts, as a policy asks for them.
const ALL: [&str; 13] = [
    "node-labels",
    "node-size",
    "node-neighbours",
    "node-price",
    "failures",
    "annotations",
    "labels",
    "pool",
    "other-pools",
    "last-job",
    "waiting-jobs",
    "job",
    "room",
];

/// What all facts may take beyond none, of the operator and of the process that runs its policies, in MiB.
const MEMORY: f64 = 5.0;

/// Seconds between two lists of nodes.
const BETWEEN_LISTS: u64 = 30;

/// Name of the policy set.
const SET: &str = "curious";

/// Measures fleets of this size.
///
/// # Errors
///
/// When a state is not reached; the figures so far are kept.
pub(crate) async fn measure(size: u32, idle: Duration, figures: &mut Vec<figure::Figure>) -> Result<()> {
    let page = &mut Page::new(format!("facts, {size} runners"), figures);
    let none = part(size, idle, &[], page).await.context("a policy that reads nothing")?;
    let all = part(size, idle, &ALL, page).await.context("a policy that reads all facts")?;
    page.size("memory with all facts, beyond that with none", all.together().saturating_sub(none.together()), Some(MEMORY));
    Ok(())
}

/// Memory of an idle fleet whose policy reads these.
async fn part(size: u32, idle: Duration, reads: &[&str], page: &mut Page<'_>) -> Result<Memory> {
    let mut prices = tempfile::NamedTempFile::new()?;
    writeln!(prices, "m5.large: 0.096")?;
    let flags = [
        format!("--node-prices={}", prices.path().display()),
        "--policy-annotations=example.com/".to_owned(),
        "--policy-labels=example.com/".to_owned(),
    ];
    let world = fleet::world_with(&flags, |options| options.plane.audit = Audit::All).await?;
    let mut memory = None;
    let outcome = at_rest(&world, size, idle, reads, page).await.map(|measured| memory = Some(measured));
    fleet::finish(world, outcome).await?;
    memory.context("no memory was measured")
}

async fn at_rest(world: &World, size: u32, idle: Duration, reads: &[&str], page: &mut Page<'_>) -> Result<Memory> {
    let what = if reads.is_empty() { "no facts" } else { "all facts" };
    grant_room(world).await?;
    let fleet = json!({
        "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "RunnerDeployment",
        "metadata": {
            "name": NAME, "namespace": NAMESPACE,
            "annotations": {names::annotation::POLICIES: SET, names::annotation::PRIORITY: "7"},
        },
        "spec": {
            "replicas": size,
            "template": {
                "metadata": {"annotations": {"example.com/team": "a"}, "labels": {"example.com/tier": "b"}},
                "spec": {"repository": "acme/app", "labels": [NAME]},
            },
        },
    });
    apply(world, &set(reads)).await?;
    apply(world, &fleet).await?;
    apply(world, &autoscaler(NAME, size, size)).await?;
    until(world, size).await?;
    // Nobody shall measure the shipped policy.
    event(world, "PolicyActivated", |_| true).await?;
    // All are asked about once.
    let left = size.saturating_sub(1);
    apply(world, &autoscaler(NAME, left, size)).await?;
    until(world, left).await?;
    // Told half a minute later.
    event(world, "Scaled", |note| note.contains(&format!(" to {left} "))).await?;
    meter::quiet(world, PATIENCE).await.context("one runner less")?;

    let meter = meter::Meter::start(world)?;
    let reading = meter::at_rest(world, idle).await?;
    let is_read = |verb: &str| matches!(verb, "get" | "list" | "watch");
    let writes = reading.writes.iter().filter(|(verb, ..)| !is_read(verb)).map(|(_, _, count)| count).sum();
    page.count(format!("{what}, idle for {} s: writes", idle.as_secs()), writes, Some(AtMost::Limit(0.0)));
    let (lists, most) = (reading.writes.count("list", "nodes"), idle.as_secs() / BETWEEN_LISTS);
    let most = if reads.is_empty() { 0 } else { most };
    page.count(
        format!("{what}, idle for {} s: lists of nodes", idle.as_secs()),
        lists,
        Some(AtMost::Limit(f64::from(u32::try_from(most)?))),
    );
    let memory = meter.memory()?;
    page.size(format!("memory of the operator with {what}"), memory.operator, None);
    page.size(format!("memory of the policy process with {what}"), memory.children, None);
    Ok(memory)
}

async fn until(world: &World, size: u32) -> Result<()> {
    let wanted = usize::try_from(size)?;
    world.github.wait_for(PATIENCE, |view| view.runners().online == u64::from(size)).await?;
    nodes(world)?.until(PATIENCE, |tally| tally.present() == wanted).await?;
    objects::until(api::<pacer_api::Runner>(world), "", PATIENCE, |all| all.len() == wanted).await?;
    Ok(())
}

/// A set of one text that makes all decisions and reads these.
fn set(reads: &[&str]) -> Value {
    let policy = format!(
        "export const reads = {};\n\
         export function scaleDown({{ surplus }}) {{\n  return Array.from({{ length: surplus }}, (_, index) => ({{ index, reason: 'any' }}));\n}}\n\
         export function capacity({{ reservations }}) {{\n  return {{ reservations }};\n}}\n",
        json!(reads)
    );
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": SET, "namespace": NAMESPACE},
        "data": {"policies.yaml": "scale-down: {module: policy.js}\ncapacity: {module: policy.js}\n", "policy.js": policy},
    })
}

#[cfg(test)]
mod tests {
    use pacer_core::reads::Fact;

    use super::*;

    #[test]
    fn no_fact_is_left_out() {
        assert_eq!(ALL, Fact::ALL.map(Fact::as_str));
    }
}
