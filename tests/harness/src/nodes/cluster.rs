//! Which pods are where: the table that the watches feed and the scheduler reads.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::runtime::watcher::{self, watcher};
use kube::runtime::{WatchStreamExt, watcher::Event};
use kube::{Api, ResourceExt};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::kubelet::{Control, PodWorker, WorkerHandle};
use super::life::Stage;
use super::scheduler::{self, Candidate};
use super::{NodesError, Shared, lock};
use crate::objects::Brisk;

/// Label of every runner pod; other pods are not cared for.
pub(super) const RUNNER_POD_LABEL: &str = "actions-runner";

/// Where the scheduler is with a pod.
#[derive(Debug)]
enum Place {
    /// No node yet; whether it was told that it is unschedulable.
    Waiting { told: bool },
    /// The binding is on its way.
    Binding(String),
    /// On one of our nodes.
    Bound(String, WorkerHandle),
    /// On a node of somebody else.
    Elsewhere,
}

#[derive(Debug)]
struct Tracked {
    pod: Arc<Pod>,
    place: Place,
    /// Whether it counts against its node's capacity: not after its end.
    counted: bool,
}

#[derive(Debug, Default)]
struct Table {
    nodes: BTreeMap<String, Candidate>,
    pods: HashMap<String, Tracked>,
    /// UIDs of those that wait, oldest first.
    waiting: Vec<String>,
    /// Nodes that do not answer, whatever their objects say.
    lost: HashSet<String>,
}

/// Pods and nodes, and the tasks that work for them.
pub(super) struct Cluster {
    shared: Arc<Shared>,
    table: Mutex<Table>,
    tasks: TaskTracker,
    shutdown: CancellationToken,
}

impl Cluster {
    /// Starts the two watches; `nodes` are those that were just made.
    pub(super) fn start(shared: Arc<Shared>, nodes: &[Node]) -> Arc<Self> {
        let cluster =
            Arc::new(Self { shared, table: Mutex::default(), tasks: TaskTracker::new(), shutdown: CancellationToken::new() });
        // Pods that exist already are on nodes that must be known when they are listed.
        for node in nodes {
            cluster.see_node(node);
        }
        cluster.spawn(Arc::clone(&cluster).watch_nodes());
        cluster.spawn(Arc::clone(&cluster).watch_pods());
        cluster
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let shutdown = self.shutdown.clone();
        self.tasks.spawn(async move {
            // On shutdown the work is dropped where it stands.
            let _ = shutdown.run_until_cancelled(work).await;
        });
    }

    pub(super) fn cancel(&self) {
        self.shutdown.cancel();
    }

    pub(super) async fn stop(&self) {
        self.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    async fn watch_nodes(self: Arc<Self>) {
        let nodes: Api<Node> = Api::all(self.shared.client.clone());
        let mut events = watcher(nodes, watcher::Config::default()).backoff(Brisk::default()).boxed();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Apply(node) | Event::InitApply(node)) => self.see_node(&node),
                Ok(Event::Delete(node)) => {
                    lock(&self.table).nodes.remove(&node.name_any());
                }
                Ok(Event::Init | Event::InitDone) => {}
                Err(error) => tracing::debug!(%error, "watch of nodes interrupted"),
            }
        }
    }

    fn see_node(self: &Arc<Self>, node: &Node) {
        let name = node.name_any();
        let spec = node.spec.as_ref();
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let capacity = allocatable.and_then(|map| map.get("pods")).and_then(|pods| count(&pods.0)).unwrap_or(0);
        let mut table = lock(&self.table);
        let closed = spec.is_some_and(|spec| spec.unschedulable == Some(true)) || table.lost.contains(&name);
        let pods = table.pods.values().filter(|tracked| tracked.counted && tracked.node() == Some(&name)).count();
        let candidate = Candidate { labels: node.labels().clone(), capacity, pods, closed };
        table.nodes.insert(name, candidate);
        self.schedule(&mut table);
    }

    async fn watch_pods(self: Arc<Self>) {
        let pods: Api<Pod> = Api::all(self.shared.client.clone());
        let mut events = watcher(pods, watcher::Config::default().labels(RUNNER_POD_LABEL)).backoff(Brisk::default()).boxed();
        let mut listed = HashSet::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Apply(pod)) => self.see_pod(pod),
                Ok(Event::InitApply(pod)) => {
                    listed.extend(pod.uid());
                    self.see_pod(pod);
                }
                Ok(Event::Delete(pod)) => self.forget(&pod.uid().unwrap_or_default()),
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitDone) => {
                    let missed: Vec<_> = lock(&self.table).pods.keys().filter(|uid| !listed.contains(*uid)).cloned().collect();
                    for uid in missed {
                        self.forget(&uid);
                    }
                }
                Err(error) => tracing::debug!(%error, "watch of pods interrupted"),
            }
        }
    }

    fn see_pod(self: &Arc<Self>, mut pod: Pod) {
        pod.metadata.managed_fields = None;
        let Some(uid) = pod.uid() else { return };
        let pod = Arc::new(pod);
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let over = matches!(phase, Some("Succeeded" | "Failed"));
        let mut table = lock(&self.table);
        let table = &mut *table;
        if !table.pods.contains_key(&uid) {
            self.shared.lives.begin(&pod.namespace().unwrap_or_default(), &pod.name_any(), &uid);
            let place = Place::Waiting { told: false };
            table.pods.insert(uid.clone(), Tracked { pod: Arc::clone(&pod), place, counted: false });
            if node.is_none() {
                table.waiting.push(uid.clone());
            }
        }
        let Some(tracked) = table.pods.get_mut(&uid) else { return };
        tracked.pod = Arc::clone(&pod);
        match (&tracked.place, node) {
            (Place::Bound(_, worker), _) => {
                worker.updates.send_replace(pod);
            }
            (Place::Waiting { .. } | Place::Binding(_), Some(node)) => match table.nodes.get_mut(&node) {
                Some(candidate) => {
                    let (worker, handle) = PodWorker::new(Arc::clone(&self.shared), &node, pod);
                    if !tracked.counted {
                        candidate.pods += 1;
                        tracked.counted = true;
                    }
                    tracked.place = Place::Bound(node, handle);
                    table.waiting.retain(|other| *other != uid);
                    self.spawn(worker.run());
                }
                None => tracked.place = Place::Elsewhere,
            },
            (Place::Waiting { .. } | Place::Binding(_) | Place::Elsewhere, _) => {}
        }
        if over && tracked.counted {
            tracked.counted = false;
            if let Some(candidate) = tracked.node().and_then(|node| table.nodes.get_mut(node)) {
                candidate.pods -= 1;
            }
        }
        if !table.waiting.is_empty() {
            self.schedule(table);
        }
    }

    /// The object is gone.
    fn forget(self: &Arc<Self>, uid: &str) {
        self.shared.lives.enter(uid, Stage::Gone);
        self.shared.mounts.release(uid);
        let mut table = lock(&self.table);
        let table = &mut *table;
        let Some(tracked) = table.pods.remove(uid) else { return };
        if let Place::Bound(_, worker) = &tracked.place {
            worker.gone.cancel();
        }
        table.waiting.retain(|other| other != uid);
        if tracked.counted
            && let Some(candidate) = tracked.node().and_then(|node| table.nodes.get_mut(node))
        {
            candidate.pods -= 1;
            self.schedule(table);
        }
    }

    /// Binds every waiting pod that fits somewhere.
    fn schedule(self: &Arc<Self>, table: &mut Table) {
        let mut still_waiting = Vec::new();
        for uid in std::mem::take(&mut table.waiting) {
            let Some(tracked) = table.pods.get_mut(&uid) else { continue };
            let Place::Waiting { told } = &mut tracked.place else { continue };
            match scheduler::choose(&tracked.pod, &table.nodes, &self.shared.mounts.homes(&tracked.pod)) {
                Ok(node) => {
                    let node = node.to_owned();
                    if let Some(candidate) = table.nodes.get_mut(&node) {
                        candidate.pods += 1;
                    }
                    tracked.counted = true;
                    tracked.place = Place::Binding(node.clone());
                    let (shared, pod) = (Arc::clone(&self.shared), Arc::clone(&tracked.pod));
                    self.spawn(async move { shared.bind(&pod, &node).await });
                }
                Err(why) => {
                    if !std::mem::replace(told, true) {
                        let (shared, pod) = (Arc::clone(&self.shared), Arc::clone(&tracked.pod));
                        self.spawn(async move { shared.tell_unschedulable(&pod, &why).await });
                    }
                    still_waiting.push(uid);
                }
            }
        }
        table.waiting = still_waiting;
    }

    /// Sends something to the worker of a pod.
    pub(super) async fn control(&self, namespace: &str, name: &str, control: Control) -> Result<(), NodesError> {
        let unknown = || NodesError::UnknownPod { namespace: namespace.to_owned(), name: name.to_owned() };
        let sender = {
            let table = lock(&self.table);
            let found = table
                .pods
                .values()
                .find(|tracked| tracked.pod.name_any() == name && tracked.pod.namespace().as_deref() == Some(namespace));
            match found.map(|tracked| &tracked.place) {
                Some(Place::Bound(_, worker)) => worker.control.clone(),
                _ => return Err(unknown()),
            }
        };
        sender.send(control).await.map_err(|_| unknown())
    }

    /// Whether a node answers; when it does not, none of its kubelet's workers does.
    pub(super) async fn set_lost(&self, node: &str, lost: bool) {
        let control = if lost { Control::NodeLost } else { Control::NodeBack };
        let senders: Vec<_> = {
            let mut table = lock(&self.table);
            if lost {
                table.lost.insert(node.to_owned());
            } else {
                table.lost.remove(node);
            }
            if let Some(candidate) = table.nodes.get_mut(node) {
                candidate.closed = lost;
            }
            let workers = table.pods.values().filter_map(|tracked| match &tracked.place {
                Place::Bound(name, worker) if name == node => Some(worker.control.clone()),
                _ => None,
            });
            workers.collect()
        };
        for sender in senders {
            // Its worker has ended.
            let _ = sender.send(control.clone()).await;
        }
    }

    /// The pods on a node.
    pub(super) fn on_node(&self, node: &str) -> Vec<Arc<Pod>> {
        let table = lock(&self.table);
        let on_it = table.pods.values().filter(|tracked| tracked.node() == Some(node));
        on_it.map(|tracked| Arc::clone(&tracked.pod)).collect()
    }

    /// The node of a pod.
    pub(super) fn node_of(&self, namespace: &str, name: &str) -> Option<String> {
        let table = lock(&self.table);
        let found = table
            .pods
            .values()
            .find(|tracked| tracked.pod.name_any() == name && tracked.pod.namespace().as_deref() == Some(namespace))?;
        found.node().map(str::to_owned)
    }
}

/// A whole quantity; the API server turns `1000` into `1k`.
fn count(quantity: &str) -> Option<usize> {
    match quantity.strip_suffix('k') {
        Some(thousands) => thousands.parse::<usize>().ok().map(|count| count * 1_000),
        None => quantity.parse().ok(),
    }
}

impl Tracked {
    fn node(&self) -> Option<&str> {
        match &self.place {
            Place::Binding(node) | Place::Bound(node, _) => Some(node),
            Place::Waiting { .. } | Place::Elsewhere => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_of_pods_are_read() {
        for (text, expected) in [("110", Some(110)), ("1k", Some(1_000)), ("0", Some(0)), ("1.5Gi", None)] {
            assert_eq!(count(text), expected, "{text}");
        }
    }
}
