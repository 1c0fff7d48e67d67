//! What `pacer trace summary` says of nodes, room and GitHub.

use std::collections::BTreeSet;

use pacer_core::count::plural;
use pacer_trace::History;
use pacer_trace::surroundings::{CredentialsLife, NodeState};
use serde_json::{Value, json};

use crate::table::number;

/// A pool for which there was no room at times.
struct Shortage<'a> {
    pool: &'a str,
    seconds: u64,
    most: u32,
    lacking: BTreeSet<&'a str>,
}

fn shortages(history: &History) -> Vec<Shortage<'_>> {
    let surroundings = &history.surroundings;
    let of_pool = surroundings.room.iter().map(|(pool, told)| {
        let (seconds, most) = surroundings.without_room(pool, history.ended);
        let lacking = told.iter().flat_map(|(_, room)| room.lacking.iter().map(AsRef::as_ref)).collect();
        Shortage { pool, seconds, most, lacking }
    });
    of_pool.filter(|shortage| shortage.most > 0).collect()
}

/// How many nodes there were, and how many of them were about to go or went.
fn nodes(history: &History) -> (u64, u64) {
    let went = |state: NodeState| matches!(state, NodeState::Leaving | NodeState::Gone);
    let all = &history.surroundings.nodes;
    let gone = all.values().filter(|told| told.iter().any(|(_, node)| went(node.state)));
    (all.len() as u64, gone.count() as u64)
}

/// For people; empty where nothing was recorded.
pub(super) fn text(history: &History) -> String {
    let mut lines = Vec::new();
    if let (all @ 1.., went) = nodes(history) {
        lines.push(format!("runners were on {}, of which {} left", counted(all, "node"), number(went)));
    }
    for Shortage { pool, seconds, most, lacking } in shortages(history) {
        let lacking: Vec<&str> = lacking.into_iter().collect();
        let what = if lacking.is_empty() { String::new() } else { format!("; lacking: {}", lacking.join(", ")) };
        lines.push(format!("{pool}: no room for {seconds} s, for {} at most{what}", counted(most.into(), "runner")));
    }
    for (name, life) in &history.surroundings.credentials {
        lines.push(format!("GitHub, credentials {name}: {}", of_credentials(life)));
    }
    lines.into_iter().map(|line| line + "\n").collect()
}

fn of_credentials(life: &CredentialsLife) -> String {
    let mut parts = vec![counted(life.listings, "listing")];
    if life.torn > 0 {
        parts.push(format!("{} torn", number(life.torn)));
    }
    if life.failures > 0 {
        parts.push(format!("up to {} failed in a row", number(u64::from(life.failures))));
    }
    parts.push(format!("the longest took {} ms", number(life.longest)));
    if let Some((at, window)) = &life.lowest {
        let (left, limit) = (u64::from(window.remaining), u64::from(window.limit));
        parts.push(format!("{} of {} calls of {} left at {at}", number(left), number(limit), window.resource));
    }
    for (count, what) in [(life.deferred, "waited for their turn"), (life.held_back, "were held back by a limit")] {
        if count > 0 {
            parts.push(format!("{} {what}", counted(count, "call")));
        }
    }
    parts.join(", ")
}

fn counted(count: u64, what: &str) -> String {
    format!("{} {what}{}", number(count), plural(count))
}

/// Nodes, pools without room and GitHub's limits for the JSON of `pacer trace summary`.
pub(super) fn json(history: &History) -> Value {
    let (all, left) = nodes(history);
    let pools: serde_json::Map<String, Value> = shortages(history)
        .into_iter()
        .map(|one| (one.pool.to_owned(), json!({"seconds": one.seconds, "most": one.most, "lacking": one.lacking})))
        .collect();
    let github: serde_json::Map<String, Value> = history
        .surroundings
        .credentials
        .iter()
        .map(|(name, life)| {
            let lowest = life.lowest.as_ref().map(|(at, window)| json!({"at": at, "window": window}));
            let told = json!({
                "listings": life.listings, "torn": life.torn, "longestMilliseconds": life.longest, "failuresInARow": life.failures,
                "lowest": lowest, "deferred": life.deferred, "heldBack": life.held_back,
            });
            (name.to_string(), told)
        })
        .collect();
    json!({"nodes": all, "nodesLeft": left, "withoutRoom": pools, "github": github})
}
