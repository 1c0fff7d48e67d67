//! Which idle runners go first.
//!
//! All candidates are proved idle, so nobody's job is at stake; what is at stake is money and disturbance. In this order:
//!
//! 1. **Leaving anyway**: a runner on a draining node, then one of an outdated template. Removing another one instead would be paid for
//!    twice, because these have to be replaced soon.
//! 2. **Idle longest**, in buckets: the pool needs it least.
//! 3. **Whole nodes**: on nodes without busy runners before others, and on the node with the fewest runners left. Once one is chosen, its
//!    node has one fewer, so its neighbours follow until the node is empty.
//! 4. **Oldest**, then by name, so that the order of the input never matters.

use std::cmp::Reverse;

use pacer_policy_sdk::scale_down::{Candidate, Choice, Request};
use pacer_policy_sdk::types::{Node, duration, shortened};
use pacer_policy_sdk::{ScaleDown, order};

use crate::{Default, Settings};

/// Enough to recognise a node; its name may have 253 bytes and a reason 256.
const NODE_NAME_BYTES: usize = 120;

impl ScaleDown for Default {
    fn select(request: &Request, settings: &Settings) -> Result<Vec<Choice>, String> {
        let surplus = request.candidates.len().min(request.surplus as usize);
        let mut nodes = occupancy(&request.nodes, &request.candidates);
        let ranked: Vec<Ranked> = (0_u32..).zip(&request.candidates).map(|pair| Ranked::new(pair, &nodes, settings)).collect();
        let mut order = order::by_key(&ranked, |runner| runner.need);
        let need = |index: &u32| ranked.get(*index as usize).map(|runner| runner.need);

        let mut places = vec![0; ranked.len()];
        let mut choices = Vec::with_capacity(surplus);
        for equal in order.chunk_by_mut(|one, next| need(one) == need(next)) {
            let wanted = surplus - choices.len();
            if wanted == 0 {
                break;
            }
            order_by_node(equal, &ranked, &mut nodes, &mut places);
            for chosen in equal.iter().take(wanted).filter_map(|index| ranked.get(*index as usize)) {
                let node = chosen.node.and_then(|index| nodes.get_mut(index as usize));
                choices.push(Choice::new(chosen.index, reason(chosen, node.map(Occupancy::leave))));
            }
        }
        Ok(choices)
    }
}

/// A node while runners are being taken from it.
struct Occupancy<'a> {
    name: &'a str,
    draining: bool,
    busy: bool,
    /// Runners of the pool that are still on it.
    left: u32,
    /// The first of the equals that are on it, while they are being ordered.
    senior: Option<(Reverse<u32>, &'a str)>,
    /// Its place among the nodes of these equals.
    turn: u32,
}

impl Occupancy<'_> {
    fn leave(&mut self) -> &Self {
        self.left = self.left.saturating_sub(1);
        self
    }
}

/// A node has at least the candidates that say they are on it, whatever its own count says.
fn occupancy<'a>(nodes: &'a [Node], candidates: &'a [Candidate]) -> Vec<Occupancy<'a>> {
    let mut offered = vec![0_u32; nodes.len()];
    for candidate in candidates {
        if let Some(count) = candidate.node.and_then(|node| offered.get_mut(node as usize)) {
            *count += 1;
        }
    }
    let occupancy = |(node, offered): (&'a Node, u32)| Occupancy {
        name: &node.name,
        draining: node.draining,
        busy: node.busy > 0,
        left: node.runners.max(offered),
        senior: None,
        turn: 0,
    };
    nodes.iter().zip(offered).map(occupancy).collect()
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    OnDrainingNode,
    Outdated,
    Wanted,
}

struct Ranked<'a> {
    index: u32,
    candidate: &'a Candidate,
    standing: Standing,
    /// How much the pool needs it, standing before bucket; equal ones are ordered by node.
    need: u64,
    /// Index of a node that was described.
    node: Option<u32>,
}

impl<'a> Ranked<'a> {
    fn new((index, candidate): (u32, &'a Candidate), nodes: &[Occupancy], settings: &Settings) -> Self {
        let node = candidate.node.filter(|node| (*node as usize) < nodes.len());
        let draining = node.and_then(|node| nodes.get(node as usize)).is_some_and(|node| node.draining);
        let standing = match (draining, candidate.current) {
            (true, _) => Standing::OnDrainingNode,
            (false, false) => Standing::Outdated,
            (false, true) => Standing::Wanted,
        };
        let bucket = candidate.idle / settings.idle_bucket_seconds.max(1);
        let need = (standing as u64) << 32 | u64::from(u32::MAX - bucket);
        Self { index, candidate, standing, need, node }
    }

    fn seniority(&self) -> (Reverse<u32>, &'a str) {
        (Reverse(self.candidate.age), &self.candidate.name)
    }
}

/// Taking a runner makes its node the one with the fewest left, so the greedy order takes node after node, the smallest first. Runners of
/// unknown nodes come last.
fn order_by_node<'a>(equal: &mut [u32], ranked: &[Ranked<'a>], nodes: &mut [Occupancy<'a>], places: &mut [u64]) {
    if equal.len() < 2 {
        return;
    }
    let mut concerned = Vec::new();
    for runner in equal.iter().filter_map(|index| ranked.get(*index as usize)) {
        let Some((index, node)) = runner.node.and_then(|index| Some((index, nodes.get_mut(index as usize)?))) else { continue };
        if node.senior.is_none() {
            concerned.push(index);
        }
        node.senior = Some(node.senior.map_or(runner.seniority(), |known| known.min(runner.seniority())));
    }
    order::resort(&mut concerned, nodes, |node| (node.busy, node.left, node.senior));
    for (turn, index) in (0..).zip(concerned) {
        if let Some(node) = nodes.get_mut(index as usize) {
            (node.turn, node.senior) = (turn, None);
        }
    }
    // One number, because comparing is what most of the time goes into.
    for runner in equal.iter().filter_map(|index| ranked.get(*index as usize)) {
        let turn = runner.node.and_then(|node| nodes.get(node as usize)).map_or(u32::MAX, |node| node.turn);
        if let Some(place) = places.get_mut(runner.index as usize) {
            *place = u64::from(turn) << 32 | u64::from(u32::MAX - runner.candidate.age);
        }
    }
    order::resort(equal, ranked, |runner| (places.get(runner.index as usize), runner.candidate.name.as_str(), runner.index));
}

fn reason(chosen: &Ranked, node: Option<&Occupancy>) -> String {
    let mut text = format!("idle {}", duration(chosen.candidate.idle));
    if chosen.standing == Standing::Outdated {
        text.push_str(", outdated template");
    }
    let Some(node) = node else { return text };
    let name = shortened(node.name, NODE_NAME_BYTES);
    if node.draining {
        text.push_str(&format!(", node {name} draining"));
    }
    if node.left == 0 {
        text.push_str(", last on its node");
    } else if !node.busy && !node.draining {
        text.push_str(&format!(", {} left on node {name}", node.left));
    }
    text
}
