//! Fields of a pod's spec that ARC gives to the pods of RunnerSets only.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{PodOS, PodReadinessGate, PodResourceClaim, PodSchedulingGate, PodSpec, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a pod's spec has beyond the fields of [`crate::runner::RunnerPodSpec`]; with both, a Runner says all that a pod template can say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSettings {
    /// Seconds after which the pod is ended, with its job. Not in ARC's Runners.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_deadline_seconds: Option<i64>,
    /// Whether the pod shares the node's IPC namespace. Default: false. Not in ARC's Runners.
    #[serde(rename = "hostIPC", skip_serializing_if = "Option::is_none")]
    pub host_ipc: Option<bool>,
    /// Whether the pod shares the node's network. Default: false. Not in ARC's Runners.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_network: Option<bool>,
    /// Whether the pod shares the node's process namespace. Default: false. Not in ARC's Runners.
    #[serde(rename = "hostPID", skip_serializing_if = "Option::is_none")]
    pub host_pid: Option<bool>,
    /// Whether users of the pod are users of the node. Default: Kubernetes' (true). Not in ARC's Runners.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_users: Option<bool>,
    /// Host name of the pod. Default: its name. Not in ARC's Runners.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Host name of the pod inside the pod only. Not in ARC's Runners.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname_override: Option<String>,
    /// Node that the pod goes to without being scheduled. Not in ARC's Runners.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// Operating system of the pod. Not in ARC's Runners.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub os: Option<PodOS>,
    /// What the runtime class takes beside the containers. Not in ARC's Runners.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overhead: Option<BTreeMap<String, Quantity>>,
    /// Whether the pod takes the place of others: PreemptLowerPriority or Never. Not in ARC's Runners.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemption_policy: Option<String>,
    /// Priority of the pod, which priorityClassName gives better. Not in ARC's Runners.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Conditions that a ready pod has. Not in ARC's Runners.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readiness_gates: Option<Vec<PodReadinessGate>>,
    /// Devices of the pod. Not in ARC's Runners.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_claims: Option<Vec<PodResourceClaim>>,
    /// Resources of all containers together, a pod's field resources. Not in ARC's Runners.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_resources: Option<ResourceRequirements>,
    /// Scheduler of the pod. Default: Kubernetes'. Not in ARC's Runners.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler_name: Option<String>,
    /// What holds the scheduling of the pod up. Not in ARC's Runners.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduling_gates: Option<Vec<PodSchedulingGate>>,
    /// Whether the host name is the full one. Default: false. Not in ARC's Runners.
    #[serde(rename = "setHostnameAsFQDN", skip_serializing_if = "Option::is_none")]
    pub set_hostname_as_fqdn: Option<bool>,
    /// Whether the containers see each other's processes. Default: false. Not in ARC's Runners.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share_process_namespace: Option<bool>,
    /// Subdomain of the pod's host name, which is the name of a headless service. Not in ARC's Runners.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subdomain: Option<String>,
}

impl PodSettings {
    /// Puts the settings into a pod's spec; what they do not say stays.
    pub fn apply(&self, spec: &mut PodSpec) {
        fn put<T: Clone>(target: &mut Option<T>, source: Option<&T>) {
            if let Some(source) = source {
                *target = Some(source.clone());
            }
        }
        let Self {
            active_deadline_seconds,
            host_ipc,
            host_network,
            host_pid,
            host_users,
            hostname,
            hostname_override,
            node_name,
            os,
            overhead,
            preemption_policy,
            priority,
            readiness_gates,
            resource_claims,
            pod_resources,
            scheduler_name,
            scheduling_gates,
            set_hostname_as_fqdn,
            share_process_namespace,
            subdomain,
        } = self;
        put(&mut spec.active_deadline_seconds, active_deadline_seconds.as_ref());
        put(&mut spec.host_ipc, host_ipc.as_ref());
        put(&mut spec.host_network, host_network.as_ref());
        put(&mut spec.host_pid, host_pid.as_ref());
        put(&mut spec.host_users, host_users.as_ref());
        put(&mut spec.hostname, hostname.as_ref());
        put(&mut spec.hostname_override, hostname_override.as_ref());
        put(&mut spec.node_name, node_name.as_ref());
        put(&mut spec.os, os.as_ref());
        put(&mut spec.overhead, overhead.as_ref());
        put(&mut spec.preemption_policy, preemption_policy.as_ref());
        put(&mut spec.priority, priority.as_ref());
        put(&mut spec.readiness_gates, readiness_gates.as_ref());
        put(&mut spec.resource_claims, resource_claims.as_ref());
        put(&mut spec.resources, pod_resources.as_ref());
        put(&mut spec.scheduler_name, scheduler_name.as_ref());
        put(&mut spec.scheduling_gates, scheduling_gates.as_ref());
        put(&mut spec.set_hostname_as_fqdn, set_hostname_as_fqdn.as_ref());
        put(&mut spec.share_process_namespace, share_process_namespace.as_ref());
        put(&mut spec.subdomain, subdomain.as_ref());
    }
}
