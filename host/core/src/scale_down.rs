//! Who may be offered to the scale-down policy.
//!
//! Idle has to be proved: registered, connected, without a job in every listing since, past the confirmation time, not protected, not already
//! leaving. What a policy never sees it can't choose.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use crate::facts::RunnerFacts;
use crate::node::NodeFacts;
use crate::phase::{Assessment, Phase};
use crate::policy::{Candidate, Node, Pool, ScaleDownRequest};

/// Why an idle-looking runner is not offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withheld {
    /// It is not proved idle.
    NotIdle,
    /// It is idle for less than the confirmation time.
    Unconfirmed,
    /// It carries the protection annotation.
    Protected,
    /// Only outdated runners are wanted, and it is current.
    Current,
}

/// Whether a runner may be offered.
///
/// # Errors
///
/// With the reason why not.
pub fn eligible(
    runner: &RunnerFacts,
    assessment: &Assessment,
    confirmation: Duration,
    outdated_only: bool,
) -> Result<Duration, Withheld> {
    let Phase::Idle(idle) = assessment.phase else { return Err(Withheld::NotIdle) };
    if runner.protected {
        Err(Withheld::Protected)
    } else if outdated_only && runner.current {
        Err(Withheld::Current)
    } else if idle < runner.confirmation(confirmation) {
        Err(Withheld::Unconfirmed)
    } else {
        Ok(idle)
    }
}

/// A request to the policy, with the way back from its indices to the runners.
#[derive(Clone, Debug)]
pub struct Offer {
    /// What the policy is asked.
    pub request: ScaleDownRequest,
    /// For each candidate, its index in the runners given.
    pub runners: Vec<usize>,
}

/// Builds the request; none when nobody may be offered. `known` is what was found out about nodes, by name.
#[must_use]
pub fn offer(
    runners: &[(RunnerFacts, Assessment)],
    known: &BTreeMap<String, NodeFacts>,
    pool: Pool,
    surplus: u32,
    confirmation: Duration,
    outdated_only: bool,
    now: Timestamp,
) -> Option<Offer> {
    let (nodes, index) = nodes(runners, known, now);
    let mut offered = Vec::new();
    let mut candidates = Vec::new();
    for (position, (runner, assessment)) in runners.iter().enumerate() {
        let Ok(idle) = eligible(runner, assessment, confirmation, outdated_only) else { continue };
        let pod = runner.pod.as_ref();
        offered.push(position);
        candidates.push(Candidate {
            name: runner.name.clone(),
            idle: seconds(idle),
            age: pod.map_or(0, |pod| since(pod.created, now)),
            node: pod.and_then(|pod| pod.node.as_ref()).and_then(|node| index.get(node)).copied(),
            current: runner.current,
            last_job_end: runner.last_job_end.map(|end| since(end, now)),
            attributes: Vec::new(),
        });
    }
    let surplus = surplus.min(u32::try_from(candidates.len()).unwrap_or(u32::MAX));
    if surplus == 0 {
        return None;
    }
    let request = ScaleDownRequest { now: unix(now), pool, nodes, candidates, surplus, ..ScaleDownRequest::default() };
    Some(Offer { request, runners: offered })
}

/// Whether somebody may be offered at all, so that it is worth finding out about nodes.
#[must_use]
pub fn has_eligible(runners: &[(RunnerFacts, Assessment)], confirmation: Duration, outdated_only: bool) -> bool {
    runners.iter().any(|(runner, assessment)| eligible(runner, assessment, confirmation, outdated_only).is_ok())
}

/// Names of the nodes that decisions about these runners are told of.
#[must_use]
pub fn node_names(runners: &[(RunnerFacts, Assessment)]) -> BTreeSet<&str> {
    runners.iter().filter(|(_, assessment)| is_told(assessment)).filter_map(|(runner, _)| node_of(runner)).collect()
}

/// Nodes of the given runners in order of name, and each one's index. `known` is what was found out about them, by name.
#[must_use]
pub fn nodes(
    runners: &[(RunnerFacts, Assessment)],
    known: &BTreeMap<String, NodeFacts>,
    now: Timestamp,
) -> (Vec<Node>, BTreeMap<String, u32>) {
    let mut nodes: BTreeMap<&str, Node> = BTreeMap::new();
    for (runner, assessment) in runners.iter().filter(|(_, assessment)| is_told(assessment)) {
        let Some(name) = node_of(runner) else { continue };
        let node = nodes.entry(name).or_insert_with(|| {
            let facts = known.get(name);
            Node {
                name: name.to_owned(),
                draining: facts.is_some_and(NodeFacts::is_draining),
                age: facts.and_then(|facts| facts.created).map(|created| since(created, now)),
                ..Node::default()
            }
        });
        // One that ended uses nothing of its node any more.
        if !assessment.phase.is_alive() {
            continue;
        }
        node.runners = node.runners.saturating_add(1);
        if !matches!(assessment.phase, Phase::Idle(_)) {
            node.busy = node.busy.saturating_add(1);
        }
    }
    let index = nodes.keys().zip(0_u32..).map(|(name, index)| ((*name).to_owned(), index)).collect();
    (nodes.into_values().collect(), index)
}

/// Runners that are there, and those that somebody has to decide about.
fn is_told(assessment: &Assessment) -> bool {
    assessment.phase.is_alive() || assessment.trouble.is_some()
}

/// Name of the node that a runner's pod is bound to.
#[must_use]
pub fn node_of(runner: &RunnerFacts) -> Option<&str> {
    runner.pod.as_ref().and_then(|pod| pod.node.as_deref())
}

/// Whole seconds from `then` to `now`; 0 when `then` is in the future.
#[must_use]
pub fn since(then: Timestamp, now: Timestamp) -> u32 {
    u32::try_from(now.duration_since(then).as_secs().max(0)).unwrap_or(u32::MAX)
}

/// Whole seconds of a duration; [`u32::MAX`] where there are more.
#[must_use]
pub fn seconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_secs()).unwrap_or(u32::MAX)
}

/// Unix time in seconds, as policies get it.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "milliseconds since 1970 fit into the 53 bits of an f64")]
pub fn unix(now: Timestamp) -> f64 {
    now.as_millisecond() as f64 / 1000.0
}

#[cfg(test)]
#[path = "scale_down/tests.rs"]
mod tests;
