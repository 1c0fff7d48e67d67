//! The pod template of a RunnerSet, read as what a Runner says of its pod.

use k8s_openapi::api::core::v1::PodSpec;

use crate::pod_settings::PodSettings;
use crate::runner::RunnerPodSpec;

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
