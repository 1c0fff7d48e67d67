//! What the watches know: one store per kind, shared by all controllers.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Resource, ResourceExt};
use pacer_api::autoscaler::ScaleTargetKind;
use pacer_api::{HorizontalRunnerAutoscaler, Runner, RunnerDeployment, RunnerReplicaSet};
use tokio::sync::watch;

/// The stores.
#[derive(Clone)]
pub struct Stores {
    /// Runners.
    pub runners: Store<Runner>,
    /// Runner pods, without the parts nobody reads.
    pub pods: Store<Pod>,
    /// Sets.
    pub sets: Store<RunnerReplicaSet>,
    /// Deployments.
    pub deployments: Store<RunnerDeployment>,
    /// Autoscalers.
    pub autoscalers: Store<HorizontalRunnerAutoscaler>,
    /// Whether each of them has been filled. A store's own way to wait for that wakes one waiter only.
    pub(crate) filled: Vec<watch::Receiver<bool>>,
}

impl Stores {
    /// Waits until every store holds what the API server has. False when a watch ended before.
    pub async fn full(&self) -> bool {
        for filled in &self.filled {
            if filled.clone().wait_for(|filled| *filled).await.is_err() {
                return false;
            }
        }
        true
    }

    /// Runners that a set owns.
    #[must_use]
    pub fn runners_of(&self, set: &str) -> Vec<Arc<Runner>> {
        self.runners.state_filter(|runner| owner(runner, "RunnerReplicaSet").is_some_and(|(uid, _)| uid == set))
    }

    /// Sets that a deployment owns.
    #[must_use]
    pub fn sets_of(&self, deployment: &str) -> Vec<Arc<RunnerReplicaSet>> {
        self.sets.state_filter(|set| owner(set, "RunnerDeployment").is_some_and(|(uid, _)| uid == deployment))
    }

    /// Autoscalers whose target is a RunnerDeployment.
    #[must_use]
    pub fn autoscalers_of(&self, namespace: &str, deployment: &str) -> Vec<Arc<HorizontalRunnerAutoscaler>> {
        self.autoscalers.state_filter(|autoscaler| {
            autoscaler.spec.target_kind() == ScaleTargetKind::RunnerDeployment
                && autoscaler.spec.target_name() == Some(deployment)
                && autoscaler.metadata.namespace.as_deref() == Some(namespace)
        })
    }

    /// Whether an autoscaler sets a RunnerDeployment's number.
    #[must_use]
    pub fn is_scaled(&self, namespace: &str, deployment: &str) -> bool {
        let alive = |autoscaler: &Arc<HorizontalRunnerAutoscaler>| autoscaler.metadata.deletion_timestamp.is_none();
        self.autoscalers_of(namespace, deployment).iter().any(alive)
    }

    /// The set that owns a Runner, while it exists.
    #[must_use]
    pub fn set_of(&self, runner: &Runner) -> Option<Arc<RunnerReplicaSet>> {
        let (uid, name) = owner(runner, "RunnerReplicaSet")?;
        let set = self.sets.get(&ObjectRef::new(name).within(&runner.namespace().unwrap_or_default()))?;
        (set.uid().as_deref() == Some(uid)).then_some(set)
    }

    /// Name of the deployment that owns a set.
    #[must_use]
    pub fn deployment_of(&self, set: &RunnerReplicaSet) -> Option<String> {
        owner(set, "RunnerDeployment").map(|(_, name)| name.to_owned())
    }
}

/// UID and name of the controlling owner of that kind.
#[must_use]
pub fn owner<'a, K: Resource>(object: &'a K, kind: &str) -> Option<(&'a str, &'a str)> {
    let owners = object.meta().owner_references.as_deref().unwrap_or_default();
    owners
        .iter()
        .find(|owner| owner.controller == Some(true) && owner.kind == kind)
        .map(|owner| (owner.uid.as_str(), owner.name.as_str()))
}

/// Drops what no decision reads: a pod is some 10 KiB, of which facts need a few hundred bytes.
pub fn trim_pod(pod: &mut Pod) {
    pod.metadata.managed_fields = None;
    pod.metadata.annotations = None;
    pod.metadata.labels = None;
    if let Some(spec) = &mut pod.spec {
        let node_name = spec.node_name.take();
        *spec = k8s_openapi::api::core::v1::PodSpec { node_name, ..Default::default() };
    }
    if let Some(status) = &mut pod.status {
        let conditions = status.conditions.take().map(|mut conditions| {
            conditions.retain(|condition| matches!(condition.type_.as_str(), "Ready" | "PodScheduled"));
            conditions
        });
        let containers = status.container_statuses.take().map(|mut containers| {
            containers.retain(|container| container.name == pacer_api::names::RUNNER_CONTAINER);
            for container in &mut containers {
                *container = k8s_openapi::api::core::v1::ContainerStatus {
                    name: std::mem::take(&mut container.name),
                    state: container.state.take(),
                    ..Default::default()
                };
            }
            containers
        });
        *status = k8s_openapi::api::core::v1::PodStatus {
            conditions,
            container_statuses: containers,
            phase: status.phase.take(),
            reason: status.reason.take(),
            message: status.message.take(),
            ..Default::default()
        };
    }
}

/// Drops what nobody reads of any kind.
pub fn trim<K: Resource>(object: &mut K) {
    object.meta_mut().managed_fields = None;
    if let Some(annotations) = &mut object.meta_mut().annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
}
