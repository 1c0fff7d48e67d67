//! Which idle runners the shipped policy removes first, and why.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "also in what tests call")]

use pacer_policy_default::Default as Shipped;
use pacer_policy_sdk::scale_down::{self, Candidate, Request};
use pacer_policy_sdk::scenario::Scenario;
use pacer_policy_sdk::types::Node;
use proptest::prelude::*;

fn picked(scenario: &Scenario) -> Vec<(String, String)> {
    let picked = scenario.select::<Shipped>().expect("the policy answers");
    picked.into_iter().map(|picked| (picked.name, picked.reason)).collect()
}

fn names(scenario: &Scenario) -> Vec<String> {
    picked(scenario).into_iter().map(|(name, _)| name).collect()
}

#[test]
fn idle_longest_first() {
    let scenario = Scenario::pool("ci")
        .candidate("short", |c| c.idle = 70)
        .candidate("long", |c| c.idle = 870)
        .candidate("middle", |c| c.idle = 300)
        .surplus(2);
    assert_eq!(picked(&scenario), [("long".into(), "idle 14 min".into()), ("middle".into(), "idle 5 min".into())]);
}

#[test]
fn seconds_do_not_count_and_age_breaks_the_tie() {
    let scenario = Scenario::pool("ci")
        .candidate("young", |c| (c.idle, c.age) = (119, 500))
        .candidate("old", |c| (c.idle, c.age) = (61, 900))
        .candidate("twin-b", |c| (c.idle, c.age) = (61, 700))
        .candidate("twin-a", |c| (c.idle, c.age) = (62, 700))
        .surplus(4);
    assert_eq!(names(&scenario), ["old", "twin-a", "twin-b", "young"]);
    assert_eq!(names(&scenario.settings(r#"{"idleBucketSeconds":1}"#)), ["young", "twin-a", "old", "twin-b"]);
}

#[test]
fn what_leaves_anyway_goes_first() {
    let scenario = Scenario::pool("ci")
        .node("n1", |node| node.draining = true)
        .busy_on("n1", 1)
        .candidate("idlest", |c| c.idle = 9_000)
        .candidate("outdated", |c| (c.idle, c.current) = (120, false))
        .candidate_on("n1", "draining", |c| c.idle = 180)
        .surplus(3);
    assert_eq!(
        picked(&scenario),
        [
            ("draining".into(), "idle 3 min, node n1 draining".into()),
            ("outdated".into(), "idle 2 min, outdated template".into()),
            ("idlest".into(), "idle 2 h 30 min".into()),
        ]
    );
}

#[test]
fn whole_nodes_are_freed_one_after_the_other() {
    // `loaded` can't be freed, `big` takes three, `small` two; the ages would mix them.
    let scenario = Scenario::pool("ci")
        .candidate_on("loaded", "l1", |c| c.age = 100)
        .busy_on("loaded", 1)
        .candidate_on("big", "b1", |c| c.age = 90)
        .candidate_on("small", "s1", |c| c.age = 10)
        .candidate_on("big", "b2", |c| c.age = 80)
        .candidate_on("small", "s2", |c| c.age = 70)
        .candidate_on("big", "b3", |c| c.age = 20)
        .candidate("nowhere", |c| c.age = 200);
    let order = ["s2", "s1", "b1", "b2", "b3", "l1", "nowhere"];
    for surplus in 1..=7 {
        assert_eq!(names(&scenario.clone().surplus(surplus)), order[..surplus as usize]);
    }
    let reasons: Vec<_> = picked(&scenario.surplus(6)).into_iter().map(|(_, reason)| reason).collect();
    assert_eq!(
        reasons,
        [
            "idle 0 s, 1 left on node small",
            "idle 0 s, last on its node",
            "idle 0 s, 2 left on node big",
            "idle 0 s, 1 left on node big",
            "idle 0 s, last on its node",
            "idle 0 s",
        ]
    );
}

#[test]
fn equally_loaded_nodes_are_not_mixed() {
    let scenario = Scenario::pool("ci")
        .candidate_on("a", "a1", |c| c.age = 10)
        .candidate_on("b", "b1", |c| c.age = 9)
        .candidate_on("a", "a2", |c| c.age = 8)
        .candidate_on("b", "b2", |c| c.age = 7)
        .surplus(2);
    assert_eq!(names(&scenario), ["a1", "a2"]);
}

#[test]
fn a_longer_idle_neighbour_counts_as_gone() {
    // After `a1` went for its idleness, node a has one runner left like node c, and `a2` is older than `c1`.
    let scenario = Scenario::pool("ci")
        .candidate_on("a", "a1", |c| c.idle = 600)
        .candidate_on("a", "a2", |c| (c.idle, c.age) = (60, 50))
        .candidate_on("b", "b1", |c| (c.idle, c.age) = (60, 80))
        .candidate_on("b", "b2", |c| (c.idle, c.age) = (60, 70))
        .candidate_on("c", "c1", |c| (c.idle, c.age) = (60, 40))
        .surplus(3);
    assert_eq!(names(&scenario), ["a1", "a2", "c1"]);
}

#[test]
fn long_node_names_are_cut() {
    let node = "ü".repeat(126);
    let scenario =
        Scenario::pool("ci").node(&node, |node| node.draining = true).busy_on(&node, 1).candidate_on(&node, "a", |_| ());
    assert_eq!(picked(&scenario), [("a".into(), format!("idle 0 s, node {} draining", "ü".repeat(60)))]);
}

#[test]
fn settings_out_of_range_are_refused() {
    let refused = Scenario::pool("ci").candidate("a", |_| ()).settings(r#"{"idleBucketSeconds":0}"#).select::<Shipped>();
    assert_eq!(refused, Err("settings are not usable: idleBucketSeconds: is 0, must be 1 to 86400".into()));
}

fn request() -> impl Strategy<Value = Request> {
    let node = (0..4_u32, 0..3_u32, any::<bool>()).prop_map(|(runners, busy, draining)| (runners + busy, busy, draining));
    // Small ranges, so that ties and indices of nodes that were not described are common.
    let candidate = (0..400_u32, 0..5_u32, prop::option::of(0..6_u32), any::<bool>());
    (prop::collection::vec(node, 0..5), prop::collection::vec(candidate, 0..40), 0..50_u32).prop_map(
        |(nodes, candidates, surplus)| {
            let node = |(index, (runners, busy, draining))| Node {
                name: format!("n{index}"),
                runners,
                busy,
                draining,
                ..Node::default()
            };
            let candidate = |(index, (idle, age, node, current))| Candidate {
                name: format!("r{index}"),
                idle,
                age,
                node,
                current,
                ..Candidate::default()
            };
            Request {
                nodes: nodes.into_iter().enumerate().map(node).collect(),
                candidates: candidates.into_iter().enumerate().map(candidate).collect(),
                surplus,
                ..Request::default()
            }
        },
    )
}

fn chosen(request: &Request) -> Vec<(String, String)> {
    let choices = scale_down::answer::<Shipped>(request).expect("the policy answers");
    choices.into_iter().map(|choice| (request.candidates[choice.index as usize].name.clone(), choice.reason)).collect()
}

/// The definition of the order, one choice at a time, to hold the grouping in the policy against.
fn greedy(request: &Request) -> Vec<String> {
    let on = |node: usize| request.candidates.iter().filter(|c| c.node == Some(node as u32)).count() as u32;
    let mut left: Vec<u32> = request.nodes.iter().enumerate().map(|(index, node)| node.runners.max(on(index))).collect();
    let mut rest: Vec<&Candidate> = request.candidates.iter().collect();
    let mut order = Vec::new();
    while order.len() < request.surplus as usize && !rest.is_empty() {
        let described = |c: &Candidate| c.node.filter(|node| (*node as usize) < request.nodes.len());
        let standing = |c: &Candidate| match described(c).is_some_and(|node| request.nodes[node as usize].draining) {
            true => 0,
            false if !c.current => 1,
            false => 2,
        };
        let need = |c: &Candidate| (standing(c), u32::MAX - c.idle / 60);
        let peers: Vec<&Candidate> =
            rest.iter().copied().filter(|c| need(c) == rest.iter().map(|c| need(c)).min().expect("nobody is alone")).collect();
        let seniority = |c: &Candidate| (u32::MAX - c.age, c.name.clone());
        let key = |c: &Candidate| match described(c) {
            None => (true, u32::MAX, seniority(c), seniority(c)),
            Some(node) => {
                let senior = peers
                    .iter()
                    .filter(|peer| peer.node == Some(node))
                    .map(|peer| seniority(peer))
                    .min()
                    .expect("nobody is alone");
                (request.nodes[node as usize].busy > 0, left[node as usize], senior, seniority(c))
            }
        };
        let next = *peers.iter().min_by_key(|c| key(c)).expect("somebody is left");
        if let Some(node) = described(next) {
            left[node as usize] = left[node as usize].saturating_sub(1);
        }
        rest.retain(|c| c.name != next.name);
        order.push(next.name.clone());
    }
    order
}

proptest! {
    #[test]
    fn answers_keep_the_contract(request in request()) {
        let choices = scale_down::answer::<Shipped>(&request).expect("the policy answers");
        prop_assert_eq!(choices.len(), request.candidates.len().min(request.surplus as usize));
        let mut indices: Vec<_> = choices.iter().map(|choice| choice.index as usize).collect();
        indices.sort_unstable();
        indices.dedup();
        prop_assert_eq!(indices.len(), choices.len());
        prop_assert!(indices.last().is_none_or(|last| *last < request.candidates.len()));
        prop_assert!(choices.iter().all(|choice| !choice.reason.is_empty() && choice.reason.len() <= 256));
    }

    #[test]
    fn order_of_the_input_does_not_matter(
        (request, shuffled) in request().prop_flat_map(|request| {
            let order = Just(request.candidates.clone()).prop_shuffle();
            (Just(request), order)
        }),
    ) {
        let permuted = Request { candidates: shuffled, ..request.clone() };
        prop_assert_eq!(chosen(&request), chosen(&permuted));
    }

    #[test]
    fn a_larger_surplus_only_adds(request in request()) {
        let fewer = Request { surplus: request.surplus / 2, ..request.clone() };
        prop_assert!(chosen(&request).starts_with(&chosen(&fewer)));
    }

    #[test]
    fn nodes_are_emptied_greedily(request in request()) {
        let names: Vec<_> = chosen(&request).into_iter().map(|(name, _)| name).collect();
        prop_assert_eq!(names, greedy(&request));
    }
}
