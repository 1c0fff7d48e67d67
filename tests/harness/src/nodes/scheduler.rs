//! Which node a pod goes to. Pure: nodes and their load in, a choice out.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;

/// What the scheduler knows about a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) capacity: usize,
    pub(super) pods: usize,
    /// Cordoned, lost, or its object is gone.
    pub(super) closed: bool,
}

/// The least loaded node that takes the pod, or a scheduler's words for why there is none. `homes` are the only nodes that reach its volumes;
/// all do when it is empty.
pub(super) fn choose<'a>(pod: &Pod, nodes: &'a BTreeMap<String, Candidate>, homes: &BTreeSet<String>) -> Result<&'a str, String> {
    let selector = pod.spec.as_ref().and_then(|spec| spec.node_selector.as_ref());
    let (mut closed, mut full, mut other, mut elsewhere) = (0, 0, 0, 0);
    let mut best: Option<(&str, usize)> = None;
    for (name, node) in nodes {
        if node.closed {
            closed += 1;
        } else if selector.into_iter().flatten().any(|(key, value)| node.labels.get(key) != Some(value)) {
            other += 1;
        } else if node.pods >= node.capacity {
            full += 1;
        } else if homes.iter().any(|home| home != name) {
            elsewhere += 1;
        } else if best.is_none_or(|(_, pods)| node.pods < pods) {
            best = Some((name, node.pods));
        }
    }
    if let Some((name, _)) = best {
        return Ok(name);
    }
    let reasons: Vec<String> = [
        (full, "Too many pods"),
        (closed, "node(s) were unschedulable"),
        (other, "node(s) didn't match Pod's node affinity/selector"),
        (elsewhere, "node(s) didn't match PersistentVolume's node affinity"),
    ]
    .into_iter()
    .filter(|&(count, _)| count > 0)
    .map(|(count, reason)| format!("{count} {reason}"))
    .collect();
    Err(format!("0/{} nodes are available: {}.", nodes.len(), reasons.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(selector: &[(&str, &str)]) -> Pod {
        let selector: BTreeMap<_, _> = selector.iter().copied().collect();
        serde_json::from_value(serde_json::json!({"spec": {"containers": [], "nodeSelector": selector}})).unwrap()
    }

    fn node(zone: &str, pods: usize, closed: bool) -> Candidate {
        let labels = BTreeMap::from([("zone".to_owned(), zone.to_owned())]);
        Candidate { labels, capacity: 2, pods, closed }
    }

    #[test]
    fn the_least_loaded_node_that_fits_is_chosen() {
        let nodes: BTreeMap<_, _> = [
            ("a".to_owned(), node("x", 1, false)),
            ("b".to_owned(), node("x", 0, true)),
            ("c".to_owned(), node("y", 0, false)),
            ("d".to_owned(), node("z", 2, false)),
        ]
        .into();
        for (selector, expected) in [
            (&[][..], Ok("c")),
            (&[("zone", "x")], Ok("a")),
            (
                &[("zone", "z")],
                Err("0/4 nodes are available: 1 Too many pods, 1 node(s) were unschedulable, \
                     2 node(s) didn't match Pod's node affinity/selector."),
            ),
        ] {
            let chosen = choose(&pod(selector), &nodes, &BTreeSet::new());
            assert_eq!(chosen.as_ref().map(|name| &**name).map_err(String::as_str), expected, "{selector:?}");
        }
    }

    #[test]
    fn a_pod_goes_where_its_volumes_are_or_nowhere() {
        let nodes: BTreeMap<_, _> = [("a".to_owned(), node("x", 1, false)), ("b".to_owned(), node("x", 0, false))].into();
        let homes = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(choose(&pod(&[]), &nodes, &homes(&["a"])), Ok("a"));
        for gone in [homes(&["c"]), homes(&["a", "b"])] {
            let told = choose(&pod(&[]), &nodes, &gone).unwrap_err();
            assert_eq!(told, "0/2 nodes are available: 2 node(s) didn't match PersistentVolume's node affinity.");
        }
    }

    #[test]
    fn without_nodes_nothing_is_scheduled() {
        assert!(choose(&pod(&[]), &BTreeMap::new(), &BTreeSet::new()).unwrap_err().starts_with("0/0 nodes"));
    }
}
