//! Runners that talk to the API server themselves, and what they are granted for it.

use k8s_openapi::api::rbac::v1::PolicyRule;
use pacer_api::RunnerSpec;
use pacer_api::names::GROUP;

/// Access that the operator has to grant before the pod can start, through a ServiceAccount, a Role and a RoleBinding that are
/// named like the Runner and owned by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeneratedAccess {
    /// The runner patches the status of its Runner.
    pub status_hook: bool,
    /// The runner makes pods, jobs and secrets in its namespace (`containerMode: kubernetes`).
    pub job_pods: bool,
}

impl GeneratedAccess {
    /// The access that a Runner needs; none when it brings a ServiceAccount of its own, whose rights are then its user's matter.
    #[must_use]
    pub fn of(spec: &RunnerSpec, status_hook: bool) -> Option<Self> {
        let own_account = spec.pod.service_account_name.as_deref().is_some_and(|name| !name.is_empty());
        let job_pods = spec.config.is_kubernetes_mode();
        (!own_account && (status_hook || job_pods)).then_some(Self { status_hook, job_pods })
    }

    /// The rules of the Role, for the Runner of that name: ARC's, so that the hooks of existing images find what they use.
    #[must_use]
    pub fn rules(self, runner: &str) -> Vec<PolicyRule> {
        let mut rules = Vec::new();
        if self.status_hook {
            let names = Some(vec![runner.to_owned()]);
            rules.push(PolicyRule { resource_names: names, ..rule(GROUP, "runners/status", &["get", "update", "patch"]) });
        }
        if self.job_pods {
            rules.extend([
                rule("", "pods", &["get", "list", "create", "delete"]),
                rule("", "pods/exec", &["get", "create"]),
                rule("", "pods/log", &["get", "list", "watch"]),
                rule("batch", "jobs", &["get", "list", "create", "delete"]),
                rule("", "secrets", &["get", "list", "create", "delete"]),
            ]);
        }
        rules
    }
}

fn rule(group: &str, resource: &str, verbs: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(vec![resource.to_owned()]),
        verbs: verbs.iter().map(|&verb| verb.to_owned()).collect(),
        ..PolicyRule::default()
    }
}
