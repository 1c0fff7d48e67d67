//! Simulated nodes: a scheduler, kubelets, and in each runner pod an agent that keeps the runner image's contract.
//!
//! Only pods with the label `actions-runner` are cared for. What a kubelet would write is written, in as few requests: a
//! binding, one status when the containers run, one when they end, and the deletion of the object after its end.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, EvictParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{Request, Status};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};

pub use self::agent::Pace;
pub use self::busy::{BusyKill, Cause};
use self::cluster::Cluster;
use self::environment::References;
use self::fault::Troubles;
pub use self::fault::{Affected, Trouble, TroubleId};
use self::kubelet::Control;
use self::life::Lives;
pub use self::life::{PodLife, Stage, Tally};
pub use self::loss::NodeLoss;
pub use self::mount::Mount;
use self::mount::Mounts;
use crate::github::SimGitHub;

mod agent;
mod busy;
mod cluster;
mod environment;
mod fault;
mod identity;
mod job_pod;
mod kubelet;
mod life;
mod loss;
mod mount;
mod probe;
mod report;
mod scheduler;
mod status;

/// How long a pod takes from its binding to running containers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StartDelay {
    /// Always the same.
    Fixed(Duration),
    /// Evenly between two durations.
    Between(Duration, Duration),
    /// Some are slow: this share of all pods, in 0..=1, takes the second duration, the others the first.
    SomeSlow(Duration, Duration, f64),
}

impl Default for StartDelay {
    fn default() -> Self {
        Self::Fixed(Duration::ZERO)
    }
}

impl StartDelay {
    /// The delay of the pod with that UID; random over pods, fixed for one.
    fn of(self, uid: &str) -> Duration {
        let mut hasher = DefaultHasher::new();
        uid.hash(&mut hasher);
        // In 0..1 with a resolution that is fine enough for delays.
        let chance = f64::from(u32::try_from(hasher.finish() >> 32).unwrap_or(0)) / (f64::from(u32::MAX) + 1.0);
        match self {
            Self::Fixed(delay) => delay,
            Self::Between(from, to) => from + to.saturating_sub(from).mul_f64(chance),
            Self::SomeSlow(usual, slow, share) => {
                if chance < share {
                    slow
                } else {
                    usual
                }
            }
        }
    }
}

/// What the nodes are like.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many nodes there are, named `node-0` and so on.
    pub count: usize,
    /// How many pods fit on one.
    pub pods_per_node: usize,
    /// Labels of all nodes, besides the well-known ones.
    pub labels: BTreeMap<String, String>,
    /// How long a pod takes from its binding to running containers.
    pub start_delay: StartDelay,
    /// Volumes are disks of the node where they were first needed, and no other node reaches them.
    pub local_volumes: bool,
    /// How fast agents are.
    pub pace: Pace,
    /// How often a kubelet looks again at what it could not start.
    pub retry_pause: Duration,
    /// Pause before the second restart of a container; it doubles with each.
    pub restart_pause: Duration,
    /// How many requests all nodes together have in flight.
    pub concurrent_writes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            count: 4,
            pods_per_node: 1_000,
            labels: BTreeMap::new(),
            start_delay: StartDelay::default(),
            local_volumes: false,
            pace: Pace::default(),
            retry_pause: Duration::from_millis(500),
            restart_pause: Duration::from_millis(100),
            concurrent_writes: 16,
        }
    }
}

/// Why the nodes could not do something.
#[derive(Debug, thiserror::Error)]
pub enum NodesError {
    /// The API server refused it.
    #[error("{what}: {source}")]
    Api {
        /// What was being done.
        what: String,
        /// What the client said.
        source: Box<kube::Error>,
    },
    /// No such pod is on a node.
    #[error("no runner pod {namespace}/{name} is on a simulated node")]
    UnknownPod {
        /// Namespace of the pod that was asked for.
        namespace: String,
        /// Name of the pod that was asked for.
        name: String,
    },
    /// A state was not reached in time.
    #[error("after {} s the runner pods were still in another state: {tally:?}", patience.as_secs_f64())]
    NotReached {
        /// How long was waited.
        patience: Duration,
        /// The numbers of pods then.
        tally: Tally,
    },
}

/// Spares the API server and us the objects in answers.
const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// A request that is ready to be sent.
type RequestResult = Result<http::Request<Vec<u8>>, kube::core::request::Error>;

/// What scheduler and kubelets share.
struct Shared {
    client: Client,
    github: SimGitHub,
    options: Options,
    references: References,
    troubles: Troubles,
    lives: Lives,
    kills: Mutex<Vec<BusyKill>>,
    mounts: Mounts,
    writes: Semaphore,
}

impl Shared {
    fn pods(&self, pod: &Pod) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default())
    }

    /// Repeats a request until it is answered for good, as the components of Kubernetes do.
    ///
    /// `request` is made anew for every try; nobody reads the answers.
    async fn persist(&self, what: &str, pod: &Pod, request: impl Fn(&Request) -> RequestResult) {
        let address = Request::new(Pod::url_path(&(), pod.namespace().as_deref()));
        loop {
            let mut request = match request(&address) {
                Ok(request) => request,
                Err(error) => {
                    tracing::error!(what, pod = pod.name_any(), %error, "cannot be asked");
                    return;
                }
            };
            request.headers_mut().insert(http::header::ACCEPT, http::HeaderValue::from_static(METADATA_ONLY));
            let outcome = {
                // The semaphore is never closed.
                let _permit = self.writes.acquire().await;
                self.client.request_text(request).await
            };
            match outcome {
                Ok(_) => return,
                // The pod is gone, another has its name, or it is not ours to change any more.
                Err(kube::Error::Api(status)) if (400..500).contains(&status.code) && !is_passing(&status) => {
                    tracing::debug!(what, pod = pod.name_any(), %status, "refused");
                    return;
                }
                Err(error) => {
                    tracing::debug!(what, pod = pod.name_any(), %error, "failed, trying again");
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            }
        }
    }

    async fn patch_status(&self, pod: &Pod, patch: &Value) {
        let (name, patch) = (pod.name_any(), Patch::Strategic(patch));
        let parameters = PatchParams::default();
        self.persist("status", pod, |pods| pods.patch_subresource("status", &name, &parameters, &patch)).await;
    }

    async fn remove(&self, pod: &Pod) {
        self.delete(pod, Some(0)).await;
    }

    async fn delete(&self, pod: &Pod, grace_period_seconds: Option<u32>) {
        let parameters = DeleteParams {
            grace_period_seconds,
            preconditions: Some(Preconditions { uid: pod.uid(), resource_version: None }),
            ..DeleteParams::default()
        };
        let name = pod.name_any();
        self.persist("deletion", pod, |pods| pods.delete(&name, &parameters)).await;
    }

    async fn bind(&self, pod: &Pod, node: &str) {
        let name = pod.name_any();
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "uid": pod.uid()},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        })
        .to_string();
        let parameters = PostParams::default();
        self.persist("binding", pod, |pods| pods.create_subresource("binding", &name, &parameters, binding.clone().into_bytes()))
            .await;
    }

    async fn tell_unschedulable(&self, pod: &Pod, why: &str) {
        let condition = json!({
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": why,
            "lastTransitionTime": Timestamp::now(),
        });
        self.patch_status(pod, &json!({"metadata": {"uid": pod.uid()}, "status": {"conditions": [condition]}})).await;
    }
}

/// Whether the same request may succeed later: a lost race of two updates, or too many requests.
fn is_passing(status: &Status) -> bool {
    status.code == 429 || (status.code == 409 && status.message.contains("has been modified"))
}

/// Simulated nodes; everything on them stops dead when the handle is dropped.
pub struct Nodes {
    shared: Arc<Shared>,
    cluster: Arc<Cluster>,
}

impl Nodes {
    /// Makes the Node objects and starts scheduler and kubelets. `client` must be allowed what they do.
    ///
    /// # Errors
    ///
    /// When a Node cannot be made.
    pub async fn start(client: Client, github: SimGitHub, options: Options) -> Result<Self, NodesError> {
        let names: Vec<String> = (0..options.count).map(|index| format!("node-{index}")).collect();
        let shared = Arc::new(Shared {
            references: References::new(client.clone()),
            client,
            github,
            troubles: Troubles::default(),
            lives: Lives::default(),
            kills: Mutex::default(),
            mounts: Mounts::default(),
            writes: Semaphore::new(options.concurrent_writes.max(1)),
            options,
        });
        let nodes: Vec<Node> = stream::iter(names).map(|name| make_node(&shared, name)).buffered(8).try_collect().await?;
        let cluster = Cluster::start(Arc::clone(&shared), &nodes);
        Ok(Self { shared, cluster })
    }

    /// Adds a node.
    ///
    /// # Errors
    ///
    /// When the Node cannot be made.
    pub async fn add_node(&self, name: &str) -> Result<(), NodesError> {
        make_node(&self.shared, name.to_owned()).await.map(drop)
    }

    /// The numbers of pods by stage.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.shared.lives.tally().borrow().clone()
    }

    /// Waits until the numbers of pods are as `reached` wants them.
    ///
    /// # Errors
    ///
    /// When they are not after `patience`.
    pub async fn until(&self, patience: Duration, reached: impl FnMut(&Tally) -> bool) -> Result<Tally, NodesError> {
        let mut tally = self.shared.lives.tally();
        match tokio::time::timeout(patience, tally.wait_for(reached)).await {
            Ok(Ok(tally)) => Ok(tally.clone()),
            Ok(Err(_)) | Err(_) => Err(NodesError::NotReached { patience, tally: self.tally() }),
        }
    }

    /// A receiver of the numbers of pods, for waits of other shapes.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Tally> {
        self.shared.lives.tally()
    }

    /// The life of every pod since the start, in the order in which they appeared.
    #[must_use]
    pub fn lives(&self) -> Vec<PodLife> {
        self.shared.lives.all()
    }

    /// All jobs that were cut short, whoever did it.
    #[must_use]
    pub fn busy_kills(&self) -> Vec<BusyKill> {
        lock(&self.shared.kills).clone()
    }

    /// The jobs that were cut short because somebody deleted the pod: there must be none.
    #[must_use]
    pub fn deleted_while_busy(&self) -> Vec<BusyKill> {
        self.busy_kills().into_iter().filter(|kill| kill.cause.is_deletion()).collect()
    }

    /// Every claim that a pod ever got, in that order.
    #[must_use]
    pub fn mounts(&self) -> Vec<Mount> {
        self.shared.mounts.all()
    }

    /// Pairs of pods that had one claim at the same time: there must be none.
    #[must_use]
    pub fn shared_mounts(&self) -> Vec<(Mount, Mount)> {
        self.shared.mounts.shared()
    }

    /// Prepares a trouble for pods that are yet to start.
    pub fn inject(&self, affected: Affected, trouble: Trouble) -> TroubleId {
        self.shared.troubles.inject(affected, trouble)
    }

    /// Ends a trouble: no further pods meet it, and those that wait for its end go on.
    pub fn heal(&self, trouble: TroubleId) {
        self.shared.troubles.heal(trouble);
    }

    /// The runner's process ends with that exit code.
    ///
    /// # Errors
    ///
    /// When no such pod is on a node.
    pub async fn crash(&self, namespace: &str, pod: &str, exit_code: i32) -> Result<(), NodesError> {
        self.cluster.control(namespace, pod, Control::Crash(exit_code)).await
    }

    /// The kernel kills the runner's container for its use of memory.
    ///
    /// # Errors
    ///
    /// When no such pod is on a node.
    pub async fn out_of_memory(&self, namespace: &str, pod: &str) -> Result<(), NodesError> {
        self.cluster.control(namespace, pod, Control::OutOfMemory).await
    }

    /// The kubelet evicts the pod because its node is short of memory: phase `Failed`, reason `Evicted`, no deletion.
    ///
    /// # Errors
    ///
    /// When no such pod is on a node.
    pub async fn evict(&self, namespace: &str, pod: &str) -> Result<(), NodesError> {
        let message = "The node was low on resource: memory. Container runner was using 7Gi, request is 0.";
        self.cluster.control(namespace, pod, Control::Evict(message.to_owned())).await
    }

    /// The scheduler takes the pod's place for one of higher priority: it says so in the pod's condition, and deletes it with the grace period that the pod
    /// has of its own.
    ///
    /// # Errors
    ///
    /// When there is no such pod, or the API server refuses.
    pub async fn preempt(&self, namespace: &str, pod: &str) -> Result<(), NodesError> {
        let failed = |source: kube::Error| NodesError::Api { what: format!("cannot preempt {pod}"), source: Box::new(source) };
        let pods: Api<Pod> = Api::namespaced(self.shared.client.clone(), namespace);
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
            "message": "default-scheduler: preempting to accommodate a higher priority pod",
            "lastTransitionTime": Timestamp::now().to_string(),
        });
        let patch = json!({"status": {"conditions": [condition]}});
        pods.patch_status(pod, &PatchParams::default(), &Patch::Strategic(&patch)).await.map_err(failed)?;
        pods.delete(pod, &DeleteParams::default()).await.map_err(failed)?;
        Ok(())
    }

    /// The node of a pod.
    #[must_use]
    pub fn node_of(&self, namespace: &str, pod: &str) -> Option<String> {
        self.cluster.node_of(namespace, pod)
    }

    /// The runner pods on a node.
    #[must_use]
    pub fn pods_on(&self, node: &str) -> Vec<Arc<Pod>> {
        self.cluster.on_node(node)
    }

    /// Marks a node unschedulable, or schedulable again.
    ///
    /// # Errors
    ///
    /// When there is no such node.
    pub async fn cordon(&self, node: &str, cordoned: bool) -> Result<(), NodesError> {
        let patch = json!({"spec": {"unschedulable": cordoned}});
        self.patch_node(node, &patch).await
    }

    /// `kubectl drain`: cordons a node and evicts the runner pods on it through the API.
    ///
    /// # Errors
    ///
    /// When there is no such node or an eviction is refused.
    pub async fn drain(&self, node: &str) -> Result<(), NodesError> {
        self.cordon(node, true).await?;
        for pod in self.pods_on(node) {
            match self.shared.pods(&pod).evict(&pod.name_any(), &EvictParams::default()).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(source) => {
                    return Err(NodesError::Api { what: format!("cannot evict {}", pod.name_any()), source: Box::new(source) });
                }
            }
        }
        Ok(())
    }

    async fn patch_node(&self, node: &str, patch: &Value) -> Result<(), NodesError> {
        let nodes: Api<Node> = Api::all(self.shared.client.clone());
        nodes
            .patch(node, &PatchParams::default(), &Patch::Strategic(patch))
            .await
            .map(drop)
            .map_err(|source| NodesError::Api { what: format!("cannot change node {node}"), source: Box::new(source) })
    }

    /// Stops everything and waits for it. Objects stay as they are.
    pub async fn stop(self) {
        self.cluster.stop().await;
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.cluster.cancel();
    }
}

impl std::fmt::Debug for Nodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nodes").field("tally", &self.tally()).finish_non_exhaustive()
    }
}

/// Makes a ready Node, or takes one that exists.
async fn make_node(shared: &Shared, name: String) -> Result<Node, NodesError> {
    let failed = |source| NodesError::Api { what: format!("cannot make node {name}"), source: Box::new(source) };
    let nodes: Api<Node> = Api::all(shared.client.clone());
    let mut labels = shared.options.labels.clone();
    labels.insert("kubernetes.io/hostname".to_owned(), name.clone());
    labels.insert("kubernetes.io/os".to_owned(), "linux".to_owned());
    labels.insert("kubernetes.io/arch".to_owned(), "amd64".to_owned());
    let resources = json!({"pods": shared.options.pods_per_node.to_string(), "cpu": "64", "memory": "256Gi"});
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": labels},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [loss::ready(true)],
            "addresses": [{"type": "Hostname", "address": name}],
        },
    }))
    .map_err(|error| failed(kube::Error::SerdeError(error)))?;
    match nodes.create(&PostParams::default(), &node).await {
        Ok(node) => Ok(node),
        Err(kube::Error::Api(status)) if status.code == 409 => nodes.get(&name).await.map_err(failed),
        Err(error) => Err(failed(error)),
    }
}

/// Locks; what a panicking thread left behind is still consistent, since no section here can stop halfway.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_spread_over_pods() {
        let (low, high) = (Duration::from_millis(10), Duration::from_millis(20));
        let uids: Vec<String> = (0..1_000).map(|number| format!("uid-{number}")).collect();
        let between: Vec<_> = uids.iter().map(|uid| StartDelay::Between(low, high).of(uid)).collect();
        assert!(between.iter().all(|delay| (low..=high).contains(delay)));
        let mean = between.iter().sum::<Duration>() / 1_000;
        assert!((Duration::from_millis(14)..Duration::from_millis(16)).contains(&mean), "{mean:?}");
        let slow = uids.iter().filter(|uid| StartDelay::SomeSlow(low, high, 0.1).of(uid) == high).count();
        assert!((60..140).contains(&slow), "{slow} of 1000");
        assert_eq!(StartDelay::Fixed(low).of("x"), low);
    }
}
