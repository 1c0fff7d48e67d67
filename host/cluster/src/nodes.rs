//! What policies are told about nodes, read when a policy is about to be asked.
//!
//! Nodes are not watched: kubelets change theirs all the time, and decisions are rare. Where they may not be read, or the API server takes its
//! time, decisions are taken without.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use pacer_api::quantity::nanos;
use pacer_core::allowed::Allowed;
use pacer_core::node::{self, NodeFacts};

use crate::FAN_OUT;
use crate::answer::is_forbidden;

/// How long what was read is used: several fleets are decided about at once, and one repeatedly while it is scaled down.
const AGE: Duration = Duration::from_secs(15);

/// How long a decision waits for nodes.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long nodes are not asked for after that was forbidden.
const FORBIDDEN: Duration = Duration::from_secs(600);

/// Reads nodes for policies, and keeps what it read for a short time.
pub struct Nodes {
    client: Client,
    allowed: Arc<Allowed>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// By name, and when that was read; none where there is no such node.
    nodes: HashMap<String, (Instant, Option<NodeFacts>)>,
    forbidden: Option<Instant>,
}

impl Nodes {
    /// Reads through this client, and keeps the labels that are of use where these may be passed on.
    #[must_use]
    pub fn new(client: Client, allowed: Arc<Allowed>) -> Self {
        Self { client, allowed, known: Mutex::default() }
    }

    /// What is known about the nodes of these names, after at most a second. Those that can't be read are missing.
    pub async fn about(&self, names: &BTreeSet<&str>) -> BTreeMap<String, NodeFacts> {
        self.state(names).await.into_iter().filter_map(|(name, facts)| Some((name, facts?))).collect()
    }

    /// The same, with those that the API server says there are none of.
    pub async fn state(&self, names: &BTreeSet<&str>) -> BTreeMap<String, Option<NodeFacts>> {
        let unknown = self.unknown(names, Instant::now());
        if !unknown.is_empty() && tokio::time::timeout(PATIENCE, self.read(unknown)).await.is_err() {
            tracing::debug!("nodes not read in time; decisions are taken without what is missing");
        }
        let known = self.lock();
        names.iter().filter_map(|name| Some(((*name).to_owned(), known.nodes.get(*name)?.1.clone()))).collect()
    }

    /// What may be passed on.
    #[must_use]
    pub fn allowed(&self) -> &Allowed {
        &self.allowed
    }

    /// Those to be read, the first time or again.
    fn unknown(&self, names: &BTreeSet<&str>, now: Instant) -> Vec<String> {
        let mut known = self.lock();
        known.nodes.retain(|_, (read, _)| now.saturating_duration_since(*read) < AGE);
        if known.forbidden.is_some_and(|since| now.saturating_duration_since(since) < FORBIDDEN) {
            return Vec::new();
        }
        names.iter().filter(|name| !known.nodes.contains_key(**name)).map(|name| (*name).to_owned()).collect()
    }

    async fn read(&self, names: Vec<String>) {
        let api: &Api<Node> = &Api::all(self.client.clone());
        stream::iter(names)
            .for_each_concurrent(FAN_OUT, async |name| match api.get_opt(&name).await {
                Ok(node) => {
                    self.lock().nodes.insert(name, (Instant::now(), node.as_ref().map(|node| facts(node, &self.allowed))));
                }
                Err(error) if is_forbidden(&error) => {
                    let first = self.lock().forbidden.replace(Instant::now()).is_none();
                    if first {
                        tracing::info!(
                            %error,
                            "nodes may not be read, so that policies are told nothing of them, not even which are draining; grant the role pacer-nodes"
                        );
                    }
                }
                Err(error) => tracing::debug!(node = name, %error, "node not read"),
            })
            .await;
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn facts(node: &Node, allowed: &Allowed) -> NodeFacts {
    let spec = node.spec.as_ref();
    let labels = node.metadata.labels.iter().flatten().filter(|(key, _)| node::is_read(key, allowed));
    let allocatable = |resource: &str, unit: i128| {
        let quantity = node.status.as_ref()?.allocatable.as_ref()?.get(resource)?;
        u64::try_from(nanos(quantity)? / unit).ok()
    };
    let taints = spec.and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    NodeFacts {
        created: node.metadata.creation_timestamp.as_ref().map(|time| time.0),
        cordoned: spec.is_some_and(|spec| spec.unschedulable == Some(true)),
        deleting: node.metadata.deletion_timestamp.is_some(),
        ready: conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True"),
        taints: taints.iter().map(|taint| taint.key.clone()).collect(),
        labels: labels.map(|(key, value)| (key.clone(), value.clone())).collect(),
        cpu_millis: allocatable("cpu", 1_000_000),
        memory_bytes: allocatable("memory", 1_000_000_000),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// An API server that gives this answer to every request, and counts them.
    fn nodes(code: u16, answer: Value) -> (Nodes, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let service = tower::service_fn(move |_: Request<Body>| {
            count.fetch_add(1, Ordering::Relaxed);
            let answer = Response::builder().status(code).body(Body::from(answer.to_string().into_bytes())).unwrap();
            async move { Ok::<_, kube::Error>(answer) }
        });
        (Nodes::new(Client::new(service, "default"), Arc::default()), asked)
    }

    fn refusal(code: u16, reason: &str) -> Value {
        json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "no"})
    }

    #[tokio::test]
    async fn node_is_read_once_when_several_decisions_need_it() {
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": "n-1", "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"node.kubernetes.io/instance-type": "m5.large", "kubernetes.io/hostname": "n-1"},
            },
            "spec": {"unschedulable": true, "taints": [{"key": "dedicated", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"cpu": "3920m", "memory": "16Gi"}},
        });
        let (nodes, asked) = nodes(200, node);
        for _ in 0..3 {
            let found = nodes.about(&["n-1"].into()).await;
            let facts = &found["n-1"];
            assert!(facts.is_draining() && facts.created.is_some() && facts.taints == ["dedicated"], "{facts:?}");
            assert_eq!((facts.cpu_millis, facts.memory_bytes), (Some(3_920), Some(16 << 30)));
            let labels: Vec<_> = facts.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            assert_eq!(labels, [("node.kubernetes.io/instance-type", "m5.large")], "others are not kept");
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn node_is_missing_when_it_can_not_be_read() {
        for (code, reason, requests) in [(404, "NotFound", 1), (403, "Forbidden", 1), (500, "InternalError", 2)] {
            let (nodes, asked) = nodes(code, refusal(code, reason));
            for _ in 0..2 {
                assert!(nodes.about(&["n-1"].into()).await.is_empty());
            }
            assert_eq!(asked.load(Ordering::Relaxed), requests, "{reason}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn decision_goes_on_without_nodes_when_api_server_does_not_answer() {
        let service = tower::service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, kube::Error>>());
        assert!(Nodes::new(Client::new(service, "default"), Arc::default()).about(&["n-1"].into()).await.is_empty());
    }
}
