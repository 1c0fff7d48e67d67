//! Runners that talk to the API server themselves, and what they are granted for it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt};
use pacer_api::autoscaler::ScaleTargetKind;
use pacer_api::names::{GROUP, annotation, label};
use pacer_api::{Runner, RunnerSpec};

/// Group of roles and bindings.
const RBAC: &str = "rbac.authorization.k8s.io";

/// Access that the operator has to grant before the pod can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeneratedAccess {
    /// The runner patches the status of its Runner.
    pub status_hook: bool,
    /// The runner makes pods, jobs and secrets in its namespace (`containerMode: kubernetes`).
    pub job_pods: bool,
}

/// A set whose runners share an account: they are granted the same, and none of them can be told from the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedAccount {
    /// Namespace of the set, of its runners and of their account.
    pub namespace: String,
    /// Kind of the set.
    pub kind: &'static str,
    /// Name of the set.
    pub name: String,
}

/// Who a runner is at the API server, and what it may do there: objects that have to exist before its pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    /// The ServiceAccount of the runner's pod.
    pub account: ServiceAccount,
    /// The right to report on one Runner; that of job pods is a ClusterRole of the installation.
    pub role: Option<Role>,
    /// What is bound to the identity.
    pub bindings: Vec<RoleBinding>,
    /// Whether it belongs to a set, and not to one runner.
    pub shared: bool,
}

impl GeneratedAccess {
    /// The access that a Runner needs; none when it brings a ServiceAccount of its own, whose rights are then its user's matter.
    #[must_use]
    pub fn of(spec: &RunnerSpec, status_hook: bool) -> Option<Self> {
        let own_account = spec.pod.service_account_name.as_deref().is_some_and(|name| !name.is_empty());
        let job_pods = spec.config.is_kubernetes_mode();
        (!own_account && (status_hook || job_pods)).then_some(Self { status_hook, job_pods })
    }

    /// Whether the runners of a set can share an account. One that may report on a Runner must be that Runner's alone: rules name objects,
    /// and know no *own*.
    #[must_use]
    pub fn is_shareable(self) -> bool {
        self.job_pods && !self.status_hook
    }

    /// The objects that grant it. `set` is who the Runner's account may be shared with, `job_pods` the name of the ClusterRole for job pods.
    #[must_use]
    pub fn account(self, runner: &Runner, set: Option<&SharedAccount>, job_pods: &str) -> Account {
        match set.filter(|_| self.is_shareable()) {
            Some(set) => shared(set, job_pods),
            None => self.own(runner, job_pods),
        }
    }

    /// Named like the Runner, as ARC does it, and owned by it. A Runner is held until its pod is gone, and so are these.
    fn own(self, runner: &Runner, job_pods: &str) -> Account {
        let (namespace, name) = (runner.namespace().unwrap_or_default(), runner.name_any());
        let metadata = |name: &str| ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.clone()),
            // They must not go before the Runner does, which foreground deletion asks of what blocks.
            owner_references: runner
                .controller_owner_ref(&())
                .map(|owner| vec![OwnerReference { block_owner_deletion: Some(false), ..owner }]),
            ..ObjectMeta::default()
        };
        let mut bindings = Vec::new();
        if self.status_hook {
            bindings.push(binding(metadata(&name), "Role", &name, &name));
        }
        if self.job_pods {
            bindings.push(binding(metadata(&pacer_core::name::job_pods_account(&name)), "ClusterRole", job_pods, &name));
        }
        Account {
            account: ServiceAccount { metadata: metadata(&name), ..ServiceAccount::default() },
            role: self.status_hook.then(|| Role { metadata: metadata(&name), rules: Some(vec![report_on(&name)]) }),
            bindings,
            shared: false,
        }
    }
}

impl SharedAccount {
    /// That of a RunnerDeployment or RunnerSet, whatever its template is.
    #[must_use]
    pub fn of_target(kind: ScaleTargetKind, namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), kind: kind.as_str(), name: name.to_owned() }
    }

    /// That of a RunnerReplicaSet that neither of them owns.
    #[must_use]
    pub fn of_set(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), kind: "RunnerReplicaSet", name: name.to_owned() }
    }

    /// Name of the account and of its binding.
    #[must_use]
    pub fn account_name(&self) -> String {
        pacer_core::name::job_pods_account(&self.name)
    }
}

/// Without ownerReference: the set is gone at once when somebody deletes it, while its busy runners finish their jobs, and their tokens and
/// rights would go with it. The operator deletes them once the last pod is gone.
fn shared(set: &SharedAccount, job_pods: &str) -> Account {
    let name = set.account_name();
    let metadata = ObjectMeta {
        name: Some(name.clone()),
        namespace: Some(set.namespace.clone()),
        labels: Some(BTreeMap::from([(label::JOB_PODS_ACCOUNT.to_owned(), "true".to_owned())])),
        annotations: Some(BTreeMap::from([(annotation::MADE_FOR.to_owned(), format!("{}/{}", set.kind, set.name))])),
        ..ObjectMeta::default()
    };
    Account {
        account: ServiceAccount { metadata: metadata.clone(), ..ServiceAccount::default() },
        role: None,
        bindings: vec![binding(metadata, "ClusterRole", job_pods, &name)],
        shared: true,
    }
}

/// What the status hook of ARC's images uses. ARC grants `get` and `update` beside it, which nothing asks for.
fn report_on(runner: &str) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![GROUP.to_owned()]),
        resources: Some(vec!["runners/status".to_owned()]),
        resource_names: Some(vec![runner.to_owned()]),
        verbs: vec!["patch".to_owned()],
        ..PolicyRule::default()
    }
}

fn binding(metadata: ObjectMeta, kind: &str, role: &str, account: &str) -> RoleBinding {
    let subject = Subject {
        kind: "ServiceAccount".to_owned(),
        name: account.to_owned(),
        namespace: metadata.namespace.clone(),
        api_group: None,
    };
    RoleBinding {
        metadata,
        role_ref: RoleRef { api_group: RBAC.to_owned(), kind: kind.to_owned(), name: role.to_owned() },
        subjects: Some(vec![subject]),
    }
}
