//! Which idle runners go first: those on nodes that may be taken away at any moment, or those on the others.
//!
//! Runners whose node is draining go before all others, and those of whose node nothing is known after them. Among equals the one that is idle
//! longest goes first.

use std::cmp::Reverse;

use pacer_policy_sdk::scale_down::{Candidate, Choice, Request};
use pacer_policy_sdk::types::{Node, attribute, duration, shortened};
use pacer_policy_sdk::{Policy, ScaleDown, order};
use serde::Deserialize;

/// Enough to recognise a node in a reason.
const NAME_BYTES: usize = 120;

/// What can be set.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    /// Who goes first.
    first: Capacity,
    /// Runners that have been idle for fewer seconds are kept.
    min_idle_seconds: u32,
}

/// A kind of capacity, as nodes have it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Capacity {
    /// May be taken away at any moment.
    #[default]
    Spot,
    /// Stays.
    OnDemand,
}

impl Capacity {
    fn of(node: &Node) -> Option<Self> {
        match attribute(&node.attributes, "capacity-type")? {
            "spot" => Some(Self::Spot),
            _ => Some(Self::OnDemand),
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Spot => "spot",
            Self::OnDemand => "on-demand",
        }
    }
}

/// The policy.
pub struct SpotFirst;

impl Policy for SpotFirst {
    type Settings = Settings;

    fn reads() -> &'static [&'static str] {
        &["node-labels"]
    }

    fn settings_schema() -> Option<&'static str> {
        Some(include_str!("settings.schema.json"))
    }
}

impl ScaleDown for SpotFirst {
    fn select(request: &Request, settings: &Settings) -> Result<Vec<Choice>, String> {
        let node_of = |runner: &Candidate| request.nodes.get(runner.node? as usize);
        let rank = |runner: &Candidate| match node_of(runner).map(|node| (node.draining, Capacity::of(node))) {
            Some((true, _)) => 0,
            Some((_, Some(capacity))) if capacity == settings.first => 1,
            Some((_, Some(_))) => 2,
            _ => 3,
        };
        let ordered = order::by_key(&request.candidates, |runner| (rank(runner), Reverse(runner.idle), &runner.name));
        let choices = ordered.into_iter().filter_map(|index| {
            let runner = request.candidates.get(index as usize).filter(|runner| runner.idle >= settings.min_idle_seconds)?;
            let idle = duration(runner.idle);
            let reason = match node_of(runner) {
                None => format!("idle {idle}, its node is unknown"),
                Some(node) => {
                    let name = shortened(&node.name, NAME_BYTES);
                    match Capacity::of(node) {
                        _ if node.draining => format!("idle {idle}, node {name} is draining"),
                        Some(capacity) => format!("idle {idle}, on {} node {name}", capacity.words()),
                        None => format!("idle {idle}, node {name} does not say what capacity it is"),
                    }
                }
            };
            Some(Choice::new(index, reason))
        });
        Ok(choices.take(request.surplus as usize).collect())
    }
}

pacer_policy_sdk::export!(SpotFirst: scale_down);

#[cfg(test)]
mod tests {
    use pacer_policy_sdk::cases;

    use super::*;

    #[test]
    fn all_cases() {
        assert_eq!(cases::scale_down::<SpotFirst>(concat!(env!("CARGO_MANIFEST_DIR"), "/cases")), Ok(3));
    }
}
