//! Fields of a pod's spec that ARC gives to the pods of RunnerSets only.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{PodOS, PodReadinessGate, PodResourceClaim, PodSchedulingGate, PodSpec, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::runner::RunnerPodSpec;

/// What a pod's spec has beyond the fields of [`RunnerPodSpec`]; with both, a Runner says all that a pod template can say.
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

impl From<PodSpec> for RunnerPodSpec {
    /// What a pod template says, in the fields of a Runner. Its restart policy is left out: runners are never started again in their pod.
    fn from(spec: PodSpec) -> Self {
        let PodSpec {
            active_deadline_seconds,
            affinity,
            automount_service_account_token,
            containers,
            dns_config,
            dns_policy,
            enable_service_links,
            ephemeral_containers,
            host_aliases,
            host_ipc,
            host_network,
            host_pid,
            host_users,
            hostname,
            hostname_override,
            image_pull_secrets,
            init_containers,
            node_name,
            node_selector,
            os,
            overhead,
            preemption_policy,
            priority,
            priority_class_name,
            readiness_gates,
            resource_claims,
            resources: pod_resources,
            restart_policy: _,
            runtime_class_name,
            scheduler_name,
            scheduling_gates,
            security_context,
            service_account,
            service_account_name,
            set_hostname_as_fqdn,
            share_process_namespace,
            subdomain,
            termination_grace_period_seconds,
            tolerations,
            topology_spread_constraints,
            volumes,
        } = spec;
        Self {
            containers: Some(containers).filter(|containers| !containers.is_empty()),
            service_account_name: service_account_name.or(service_account),
            affinity,
            automount_service_account_token,
            dns_config,
            dns_policy,
            enable_service_links,
            ephemeral_containers,
            host_aliases,
            image_pull_secrets,
            init_containers,
            node_selector,
            priority_class_name,
            runtime_class_name,
            security_context,
            termination_grace_period_seconds,
            tolerations,
            topology_spread_constraints,
            volumes,
            settings: PodSettings {
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
            },
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_template_reads_the_same_as_a_runner() {
        let spec: PodSpec = serde_json::from_value(json!({
            "containers": [{"name": "runner"}], "hostNetwork": true, "hostPID": true, "setHostnameAsFQDN": true, "subdomain": "x",
            "schedulerName": "mine", "resources": {"limits": {"cpu": "1"}}, "restartPolicy": "Always", "serviceAccount": "ci",
            "volumes": [{"name": "v", "emptyDir": {}}], "os": {"name": "linux"}, "terminationGracePeriodSeconds": 7,
        }))
        .unwrap();
        let runner = RunnerPodSpec::from(spec.clone());
        let expected = json!({
            "containers": [{"name": "runner"}], "hostNetwork": true, "hostPID": true, "setHostnameAsFQDN": true, "subdomain": "x",
            "schedulerName": "mine", "podResources": {"limits": {"cpu": "1"}}, "serviceAccountName": "ci",
            "volumes": [{"name": "v", "emptyDir": {}}], "os": {"name": "linux"}, "terminationGracePeriodSeconds": 7,
        });
        assert_eq!(serde_json::to_value(&runner).unwrap(), expected);
        assert_eq!(serde_json::from_value::<RunnerPodSpec>(expected).unwrap(), runner);
        let mut pod = PodSpec::default();
        runner.settings.apply(&mut pod);
        assert_eq!((pod.host_network, pod.host_pid, pod.resources), (Some(true), Some(true), spec.resources));
    }

    #[test]
    fn a_template_without_containers_leaves_them_to_the_operator() {
        assert_eq!(RunnerPodSpec::from(PodSpec::default()), RunnerPodSpec::default());
    }
}
