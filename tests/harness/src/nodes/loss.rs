//! Nodes that disappear, and what the control plane makes of that.

use futures::StreamExt;
use futures::stream;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::{Nodes, NodesError};

/// How much time has passed since a node disappeared; each step includes the ones before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeLoss {
    /// Forty seconds: the node's `Ready` is `Unknown`, it is tainted, its pods are not ready any more.
    Unreachable,
    /// Five minutes: its pods were deleted by the taint manager; without a kubelet they stay `Terminating`.
    PodsDeleted,
    /// The machine was removed: the Node object is gone, the pod garbage collector failed and removed its pods.
    Removed,
}

/// The `Ready` condition of a node that answers or does not.
pub(super) fn ready(answers: bool) -> Value {
    let (status, reason, message) = if answers {
        ("True", "KubeletReady", "kubelet is posting ready status")
    } else {
        ("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
    };
    let now = Timestamp::now();
    json!({
        "type": "Ready",
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    })
}

fn taints() -> Value {
    json!([
        {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": Timestamp::now()},
    ])
}

impl Nodes {
    /// A node stops: its kubelet is silent, its agents are dead, and the control plane reacts up to the given step.
    ///
    /// Jobs on it are cut short with the cause [`Cause::NodeLost`](super::Cause::NodeLost).
    ///
    /// # Errors
    ///
    /// When there is no such node or the API server refuses something.
    pub async fn lose_node(&self, node: &str, loss: NodeLoss) -> Result<(), NodesError> {
        self.cluster.set_lost(node, true).await;
        let pods = self.pods_on(node);
        let nodes: Api<Node> = Api::all(self.shared.client.clone());
        let status = json!({"status": {"conditions": [ready(false)]}});
        let failed = |source| NodesError::Api { what: format!("cannot lose node {node}"), source: Box::new(source) };
        nodes.patch_status(node, &PatchParams::default(), &Patch::Strategic(&status)).await.map_err(failed)?;
        self.patch_node(node, &json!({"spec": {"taints": taints()}})).await?;
        self.each(&pods, async |pod| {
            let now = Timestamp::now();
            let not_ready = json!({"type": "Ready", "status": "False", "lastTransitionTime": now});
            self.shared.patch_status(pod, &json!({"status": {"conditions": [not_ready]}})).await;
        })
        .await;
        if loss == NodeLoss::PodsDeleted {
            self.each(&pods, async |pod| {
                let message = "Taint manager: deleting due to NoExecute taint";
                self.disrupt(pod, "DeletionByTaintManager", message, None).await;
                self.shared.delete(pod, None).await;
            })
            .await;
        }
        if loss == NodeLoss::Removed {
            nodes.delete(node, &DeleteParams::default()).await.map_err(failed)?;
            self.each(&pods, async |pod| {
                self.disrupt(pod, "DeletionByPodGC", "PodGC: node no longer exists", Some("Failed")).await;
                self.shared.remove(pod).await;
            })
            .await;
        }
        Ok(())
    }

    /// A lost node answers again, rebooted: pods that were being deleted vanish, the others have failed.
    ///
    /// # Errors
    ///
    /// When there is no such node (any more).
    pub async fn return_node(&self, node: &str) -> Result<(), NodesError> {
        let nodes: Api<Node> = Api::all(self.shared.client.clone());
        let status = json!({"status": {"conditions": [ready(true)]}});
        let failed = |source| NodesError::Api { what: format!("cannot return node {node}"), source: Box::new(source) };
        nodes.patch_status(node, &PatchParams::default(), &Patch::Strategic(&status)).await.map_err(failed)?;
        self.cluster.set_lost(node, false).await;
        self.patch_node(node, &json!({"spec": {"taints": null}})).await
    }

    async fn disrupt(&self, pod: &Pod, reason: &str, message: &str, phase: Option<&str>) {
        let condition = json!({
            "type": "DisruptionTarget",
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": Timestamp::now(),
        });
        let mut status = json!({"conditions": [condition]});
        if let (Some(phase), Some(status)) = (phase, status.as_object_mut()) {
            status.insert("phase".to_owned(), phase.into());
        }
        self.shared.patch_status(pod, &json!({"metadata": {"uid": pod.uid()}, "status": status})).await;
    }

    async fn each(&self, pods: &[std::sync::Arc<Pod>], work: impl AsyncFn(&Pod)) {
        stream::iter(pods).for_each_concurrent(8, |pod| work(pod)).await;
    }
}
