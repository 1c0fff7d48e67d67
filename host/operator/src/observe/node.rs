//! Nodes of pods that seem lost, read when there is a reason to look.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use pacer_cluster::answer::is_forbidden;
use tokio::sync::Mutex as AsyncMutex;

/// How long what was read is used. The pods of a node are lost together, and each of their runners is looked at many times until it is gone.
const AGE: Duration = Duration::from_secs(15);

/// What the API server says about the node of a pod that seems lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// There is none of that name any more.
    Gone,
    /// It does not report. What its kubelet found last is old.
    Silent {
        /// When its Ready condition became Unknown.
        since: Timestamp,
    },
    /// It reports: its Ready condition is not Unknown.
    Reporting,
}

/// What was read of one node, behind its own lock: one reader at a time, and nobody waits for another node.
type Slot = Arc<AsyncMutex<Option<(Instant, NodeState)>>>;

/// Reads nodes, each at most every fifteen seconds.
pub struct Nodes {
    client: Client,
    known: Mutex<HashMap<String, Slot>>,
}

impl Nodes {
    /// Reads through this client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client, known: Mutex::default() }
    }

    /// How a node is; none when the API server does not say, so that it is asked again.
    pub async fn state(&self, name: &str, now: Instant) -> Option<NodeState> {
        let slot = self.slot(name, now);
        let mut known = slot.lock().await;
        if let Some((_, state)) = known.filter(|(read, _)| is_recent(*read, now)) {
            return Some(state);
        }
        let nodes: Api<Node> = Api::all(self.client.clone());
        let state = match nodes.get_opt(name).await {
            Ok(node) => node.as_ref().map_or(NodeState::Gone, of),
            // An installation for one namespace may come without the right to read nodes: then no node is ever known to be gone, and only
            // the pod's own deadline counts.
            Err(error) if is_forbidden(&error) => NodeState::Reporting,
            Err(error) => {
                tracing::warn!(node = name, %error, "the node of a pod that seems lost could not be read, trying again");
                return None;
            }
        };
        *known = Some((now, state));
        Some(state)
    }

    /// The slot of a node. Those that nobody has used lately go.
    fn slot(&self, name: &str, now: Instant) -> Slot {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, slot| match slot.try_lock() {
            Ok(read) => read.is_some_and(|(read, _)| is_recent(read, now)),
            Err(_) => true,
        });
        known.entry(name.to_owned()).or_default().clone()
    }
}

fn is_recent(read: Instant, now: Instant) -> bool {
    now.saturating_duration_since(read) < AGE
}

fn of(node: &Node) -> NodeState {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let silent = conditions.into_iter().flatten().find(|condition| condition.type_ == "Ready" && condition.status == "Unknown");
    // Kubernetes gives both times. A condition of somebody else that has neither does not prove that the node has been silent for long.
    let since = silent.and_then(|ready| ready.last_transition_time.as_ref().or(ready.last_heartbeat_time.as_ref()));
    since.map_or(NodeState::Reporting, |time| NodeState::Silent { since: time.0 })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// An API server that gives this answer to every request, and counts them.
    fn nodes(code: u16, answer: &Value) -> (Nodes, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let (count, answer) = (asked.clone(), answer.to_string());
        let service = tower::service_fn(move |_: Request<Body>| {
            count.fetch_add(1, Ordering::Relaxed);
            let answer = Response::builder().status(code).body(Body::from(answer.clone().into_bytes())).unwrap();
            async move { Ok::<_, kube::Error>(answer) }
        });
        (Nodes::new(Client::new(service, "default")), asked)
    }

    #[test]
    fn node_is_silent_since_its_condition_changed_and_not_silent_without_a_time() {
        let state = |condition: Value| {
            let node = json!({"metadata": {"name": "n-1"}, "status": {"conditions": [condition]}});
            of(&serde_json::from_value(node).unwrap())
        };
        let (changed, heartbeat) = ("2026-01-01T00:00:40Z", "2026-01-01T00:00:00Z");
        let silent = |since: &str| NodeState::Silent { since: since.parse().unwrap() };
        let all = json!({"type": "Ready", "status": "Unknown", "lastTransitionTime": changed, "lastHeartbeatTime": heartbeat});
        assert_eq!(state(all), silent(changed));
        assert_eq!(state(json!({"type": "Ready", "status": "Unknown", "lastHeartbeatTime": heartbeat})), silent(heartbeat));
        assert_eq!(state(json!({"type": "Ready", "status": "Unknown"})), NodeState::Reporting);
        assert_eq!(state(json!({"type": "Ready", "status": "False", "lastTransitionTime": changed})), NodeState::Reporting);
        assert_eq!(
            state(json!({"type": "DiskPressure", "status": "Unknown", "lastTransitionTime": changed})),
            NodeState::Reporting
        );
    }

    #[tokio::test]
    async fn node_is_read_once_in_fifteen_seconds_however_many_pods_it_had() {
        let silent = json!({
            "metadata": {"name": "n-1"},
            "status": {"conditions": [{"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        });
        let (nodes, asked) = nodes(200, &silent);
        let now = Instant::now();
        let since = "2026-01-01T00:00:00Z".parse().unwrap();
        for _ in 0..100 {
            assert_eq!(nodes.state("n-1", now).await, Some(NodeState::Silent { since }));
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        assert_eq!(nodes.state("n-2", now).await, Some(NodeState::Silent { since }));
        assert_eq!(nodes.state("n-1", now + AGE).await, Some(NodeState::Silent { since }));
        assert_eq!(asked.load(Ordering::Relaxed), 3);
        assert_eq!(nodes.known.lock().unwrap().len(), 1, "n-2 was not used lately");
    }

    #[tokio::test]
    async fn node_is_asked_for_again_when_the_api_server_did_not_say() {
        let refusal = |code: u16, reason: &str| json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason});
        for (code, reason, expected, requests) in [
            (404, "NotFound", Some(NodeState::Gone), 1),
            (403, "Forbidden", Some(NodeState::Reporting), 1),
            (500, "InternalError", None, 2),
        ] {
            let (nodes, asked) = nodes(code, &refusal(code, reason));
            let now = Instant::now();
            for _ in 0..2 {
                assert_eq!(nodes.state("n-1", now).await, expected, "{reason}");
            }
            assert_eq!(asked.load(Ordering::Relaxed), requests, "{reason}");
        }
    }
}
