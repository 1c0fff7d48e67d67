//! Which idle runners go first: those whose node becomes empty soonest.
//!
//! 1. Nodes that are being drained, because their runners go anyway.
//! 2. Nodes that can be emptied now, the one with the fewest runners first.
//! 3. The others, again the one with the fewest runners first, unless only whole nodes are wanted.
//! 4. Runners whose node is unknown.
//!
//! Within a node the one that is idle longest goes first.

use std::cmp::Reverse;

use pacer_policy_sdk::scale_down::{Choice, Request};
use pacer_policy_sdk::types::{duration, shortened};
use pacer_policy_sdk::{Policy, ScaleDown, order};
use serde::Deserialize;

/// Enough to recognise a node in a reason.
const NAME_BYTES: usize = 120;

/// What can be set.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    /// Runners that have been idle for fewer seconds are kept, and so is their node.
    min_idle_seconds: u32,
    /// Takes a node's runners all or not at all: half-empty nodes save nothing.
    whole_nodes_only: bool,
}

/// The policy.
pub struct EmptiestNodeFirst;

impl Policy for EmptiestNodeFirst {
    type Settings = Settings;

    fn settings_schema() -> Option<&'static str> {
        Some(include_str!("settings.schema.json"))
    }
}

impl ScaleDown for EmptiestNodeFirst {
    fn select(request: &Request, settings: &Settings) -> Result<Vec<Choice>, String> {
        let mut nodes = nodes(request, settings);
        let surplus = request.surplus as usize;
        let mut choices: Vec<Choice> = Vec::new();
        for index in order::by_key(&nodes, Node::key) {
            let Some(node) = nodes.get_mut(index as usize) else { continue };
            let wanted = surplus.saturating_sub(choices.len());
            if settings.whole_nodes_only && !(node.draining || node.can_be_emptied() && node.ready.len() <= wanted) {
                continue;
            }
            order::resort(&mut node.ready, &request.candidates, |candidate| (Reverse(candidate.idle), &candidate.name));
            for index in node.ready.iter().take(wanted) {
                node.runners = node.runners.saturating_sub(1);
                let idle = request.candidates.get(*index as usize).map_or(0, |candidate| candidate.idle);
                choices.push(Choice::new(*index, reason(node.name, node.draining, node.runners, idle)));
            }
        }
        Ok(choices)
    }
}

struct Node<'a> {
    /// None for the runners whose node is unknown.
    name: Option<&'a str>,
    draining: bool,
    /// Runners of the pool on it, busy ones included.
    runners: usize,
    /// Candidates that are idle for long enough.
    ready: Vec<u32>,
}

impl Node<'_> {
    fn can_be_emptied(&self) -> bool {
        self.name.is_some() && self.ready.len() >= self.runners
    }

    fn key(&self) -> (bool, bool, bool, usize, Option<&str>) {
        (!self.draining, !self.can_be_emptied(), self.name.is_none(), self.runners, self.name)
    }
}

/// The request's nodes and one more for the runners without.
fn nodes<'a>(request: &'a Request, settings: &Settings) -> Vec<Node<'a>> {
    let known = request.nodes.iter().map(|node| Node {
        name: Some(node.name.as_str()),
        draining: node.draining,
        runners: node.runners as usize,
        ready: Vec::new(),
    });
    let unknown = Node { name: None, draining: false, runners: 0, ready: Vec::new() };
    let mut nodes: Vec<Node> = known.chain([unknown]).collect();
    let last = nodes.len().saturating_sub(1);
    for (index, candidate) in (0_u32..).zip(&request.candidates) {
        let node = candidate.node.map_or(last, |node| node as usize).min(last);
        if let Some(node) = nodes.get_mut(node).filter(|_| candidate.idle >= settings.min_idle_seconds) {
            node.ready.push(index);
        }
    }
    for node in &mut nodes {
        // A node has at least the runners that say they are on it.
        node.runners = node.runners.max(node.ready.len());
    }
    nodes
}

fn reason(name: Option<&str>, draining: bool, left: usize, idle: u32) -> String {
    let idle = duration(idle);
    match name.map(|name| shortened(name, NAME_BYTES)) {
        None => format!("idle {idle}, its node is unknown"),
        Some(name) if draining => format!("idle {idle}, node {name} is draining"),
        Some(name) if left == 0 => format!("idle {idle}, empties node {name}"),
        Some(name) => format!("idle {idle}, leaves {left} on node {name}"),
    }
}

pacer_policy_sdk::export!(EmptiestNodeFirst: scale_down);

#[cfg(test)]
mod tests {
    use pacer_policy_sdk::cases;
    use pacer_policy_sdk::scenario::Scenario;

    use super::*;

    #[test]
    fn all_cases() {
        assert_eq!(cases::scale_down::<EmptiestNodeFirst>(concat!(env!("CARGO_MANIFEST_DIR"), "/cases")), Ok(3));
    }

    #[test]
    fn a_busy_runner_keeps_its_node() {
        let picked = Scenario::pool("ci")
            .candidate_on("half", "a", |runner| runner.idle = 900)
            .busy_on("half", 1)
            .candidate_on("full", "b", |runner| runner.idle = 60)
            .candidate_on("full", "c", |runner| runner.idle = 60)
            .surplus(2)
            .select::<EmptiestNodeFirst>()
            .unwrap();
        let names: Vec<&str> = picked.iter().map(|picked| picked.name.as_str()).collect();
        assert_eq!(names, ["b", "c"]);
        assert_eq!(picked[1].reason, "idle 1 min, empties node full");
    }
}
