//! One runner: what it is, where it registers, what its pod looks like.

use std::{collections::BTreeMap, fmt, sync::Arc};

use k8s_openapi::{
    api::core::v1::{
        Affinity, Container, EnvFromSource, EnvVar, EphemeralContainer, HostAlias, LocalObjectReference, PersistentVolumeClaim,
        PodDNSConfig, PodSecurityContext, ResourceRequirements, Toleration, TopologySpreadConstraint, Volume, VolumeMount,
        VolumeResourceRequirements,
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{Condition, Time},
    },
};
use kube::CustomResource;
use pacer_core::scope::{Scope, ScopeError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{names, nullable, pod_settings::PodSettings};

/// What GitHub and the runner image are told about a runner, and how docker is provided.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunnerConfig {
    /// Slug of the enterprise that the runner registers to. Exactly one of enterprise, organization and repository is set.
    #[schemars(regex(pattern = r"^[^/]+$"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enterprise: Option<String>,
    /// Login of the organization that the runner registers to. Exactly one of enterprise, organization and repository is set.
    #[schemars(regex(pattern = r"^[^/]+$"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub organization: Option<String>,
    /// Repository, as owner/name, that the runner registers to. Exactly one of enterprise, organization and repository is set.
    #[schemars(regex(pattern = r"^[^/]+/[^/]+$"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// Labels that jobs name in runs-on. Default: none beside those that GitHub adds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<Vec<String>>,
    /// Runner group of the organization or enterprise; no meaning for a repository's runner. Default: GitHub's default group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Whether the runner takes one job and goes. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ephemeral: Option<bool>,
    /// Image of the runner container; wins over the container's own image. Default: the operator's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Working directory of jobs. Default: /runner/_work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work_dir: Option<String>,
    /// Whether dockerd runs in the runner container, which is privileged then, instead of a sidecar. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dockerd_within_runner_container: Option<bool>,
    /// Whether dockerd runs in a sidecar. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub docker_enabled: Option<bool>,
    /// MTU of dockerd's networks, bytes. Default: dockerd's.
    #[serde(rename = "dockerMTU", skip_serializing_if = "Option::is_none")]
    pub docker_mtu: Option<i64>,
    /// URL of a registry mirror for dockerd; the empty string means none. Default: the operator's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub docker_registry_mirror: Option<String>,
    /// Size limit of the memory-backed volume that holds dockerd's socket. Default: 1M.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub docker_var_run_volume_size_limit: Option<Quantity>,
    /// Size limit of the volume at /runner; 0 removes that volume, which the docker sidecar needs. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_size_limit: Option<Quantity>,
    /// Medium of the volume at /runner: empty for the node's disk, Memory, HugePages or HugePages-<size>.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_storage_medium: Option<String>,
    /// The value kubernetes runs every job in a pod of its own and needs workVolumeClaimTemplate; other values have no effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_mode: Option<String>,
    /// GitHub credentials of these runners. Default: the operator's.
    #[serde(rename = "githubAPICredentialsFrom", skip_serializing_if = "Option::is_none")]
    pub github_api_credentials_from: Option<GitHubApiCredentialsFrom>,
}

impl RunnerConfig {
    /// Working directory of jobs where a spec names none.
    pub const DEFAULT_WORK_DIR: &str = "/runner/_work";
    /// Size limit of the socket volume where a spec names none: 10^6 bytes.
    pub const DEFAULT_VAR_RUN_SIZE_LIMIT: &str = "1M";

    /// Where the runner registers. Empty fields count as absent.
    ///
    /// # Errors
    ///
    /// When no field is set, or the repository is not `owner/name`.
    pub fn scope(&self) -> Result<Scope, ScopeError> {
        Scope::resolve(self.repository.as_deref(), self.organization.as_deref(), self.enterprise.as_deref())
    }

    /// Whether the runner takes one job and goes.
    #[must_use]
    pub fn is_ephemeral(&self) -> bool {
        self.ephemeral.unwrap_or(true)
    }

    /// Whether every job runs in a pod of its own.
    #[must_use]
    pub fn is_kubernetes_mode(&self) -> bool {
        self.container_mode.as_deref() == Some(names::CONTAINER_MODE_KUBERNETES)
    }

    /// The field `dockerEnabled` with its default. [`Self::docker`] says what follows from it.
    #[must_use]
    pub fn docker_enabled(&self) -> bool {
        self.docker_enabled.unwrap_or(true)
    }

    /// The field `dockerdWithinRunnerContainer` with its default. [`Self::docker`] says what follows from it.
    #[must_use]
    pub fn dockerd_in_runner(&self) -> bool {
        self.dockerd_within_runner_container.unwrap_or(false)
    }

    /// Where dockerd runs, all fields considered: kubernetes mode has none, and the runner's container goes before the sidecar.
    #[must_use]
    pub fn docker(&self) -> Docker {
        if self.is_kubernetes_mode() {
            Docker::None
        } else if self.dockerd_in_runner() {
            Docker::InRunner
        } else if self.docker_enabled() {
            Docker::Sidecar
        } else {
            Docker::None
        }
    }

    /// Working directory of jobs.
    #[must_use]
    pub fn work_dir(&self) -> &str {
        self.work_dir.as_deref().filter(|dir| !dir.is_empty()).unwrap_or(Self::DEFAULT_WORK_DIR)
    }

    /// Labels that jobs may name.
    #[must_use]
    pub fn labels(&self) -> &[String] {
        self.labels.as_deref().unwrap_or_default()
    }

    /// Runner group, unless it is GitHub's default.
    #[must_use]
    pub fn group(&self) -> Option<&str> {
        self.group.as_deref().filter(|group| !group.is_empty())
    }

    /// Image of the runner container, where the spec names one.
    #[must_use]
    pub fn image(&self) -> Option<&str> {
        self.image.as_deref().filter(|image| !image.is_empty())
    }

    /// Size limit of the socket volume.
    #[must_use]
    pub fn var_run_size_limit(&self) -> Quantity {
        let default = || Quantity(Self::DEFAULT_VAR_RUN_SIZE_LIMIT.to_owned());
        self.docker_var_run_volume_size_limit.clone().unwrap_or_else(default)
    }

    /// Name of the Secret with the credentials of these runners, same namespace; none means the operator's own.
    #[must_use]
    pub fn credentials_secret(&self) -> Option<&str> {
        self.github_api_credentials_from.as_ref().and_then(GitHubApiCredentialsFrom::secret_name)
    }
}

/// Where dockerd runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Docker {
    /// Nowhere.
    None,
    /// In the privileged container `docker`, beside the runner's.
    Sidecar,
    /// In the runner's container, which is privileged.
    InRunner,
}

/// Where GitHub credentials are found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitHubApiCredentialsFrom {
    /// A Secret of the same namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretReference>,
}

impl GitHubApiCredentialsFrom {
    /// Name of the Secret, where one is named.
    #[must_use]
    pub fn secret_name(&self) -> Option<&str> {
        self.secret_ref.as_ref().map(|secret| secret.name.as_str()).filter(|name| !name.is_empty())
    }
}

/// Names a Secret of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretReference {
    /// Name of the Secret.
    pub name: String,
}

/// What the pod of a runner looks like beyond what its [`RunnerConfig`] asks for. All types are those of core/v1.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunnerPodSpec {
    /// Resources of the docker sidecar.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dockerd_container_resources: Option<ResourceRequirements>,
    /// Mounts of the docker sidecar.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub docker_volume_mounts: Option<Vec<VolumeMount>>,
    /// Environment of the docker sidecar.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub docker_env: Option<Vec<EnvVar>>,
    /// Containers to build the pod from; the ones named runner and docker are completed, others are kept as they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub containers: Option<Vec<Container>>,
    /// When the image of the runner container is pulled. Default: Always.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<String>,
    /// Environment of the runner container, unless it has its own under containers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env: Option<Vec<EnvVar>>,
    /// Sources of environment of the runner container, unless it has its own under containers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env_from: Option<Vec<EnvFromSource>>,
    /// Resources of the runner container, unless it has its own under containers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Mounts of the runner container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_mounts: Option<Vec<VolumeMount>>,
    /// Volumes of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volumes: Option<Vec<Volume>>,
    /// Whether services are listed in the environment. Default: Kubernetes' (true).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_service_links: Option<bool>,
    /// Containers that run before the runner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub init_containers: Option<Vec<Container>>,
    /// Labels that the pod's node must have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// ServiceAccount of the pod. Default: the namespace's, or in kubernetes container mode one made for the fleet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// Whether the ServiceAccount's token is mounted. Default: as the ServiceAccount says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub automount_service_account_token: Option<bool>,
    /// Further containers of the pod, kept as they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sidecar_containers: Option<Vec<Container>>,
    /// Security settings of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_context: Option<PodSecurityContext>,
    /// Secrets to pull images with. Default: the operator's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_secrets: Option<Vec<LocalObjectReference>>,
    /// Scheduling constraints.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// Tolerated taints.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tolerations: Option<Vec<Toleration>>,
    /// Priority class of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
    /// Seconds between the order to stop and the kill. Default: Kubernetes' (30).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination_grace_period_seconds: Option<i64>,
    /// Left out of the pod, with a warning: a pod cannot be created with ephemeral containers. Use initContainers or sidecarContainers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ephemeral_containers: Option<Vec<EphemeralContainer>>,
    /// Entries of the pod's hosts file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_aliases: Option<Vec<HostAlias>>,
    /// How pods are spread over the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology_spread_constraints: Option<Vec<TopologySpreadConstraint>>,
    /// Runtime class of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_class_name: Option<String>,
    /// DNS policy of the pod. Default: Kubernetes' (ClusterFirst).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns_policy: Option<String>,
    /// DNS settings of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns_config: Option<PodDNSConfig>,
    /// Claim of the working directory, made for each pod; required in kubernetes container mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work_volume_claim_template: Option<WorkVolumeClaimTemplate>,
    /// The remaining fields of a pod's spec.
    #[serde(flatten)]
    pub settings: PodSettings,
}

/// The claim of a job's working directory: a generic ephemeral volume with exactly these values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkVolumeClaimTemplate {
    /// Storage class of the claim.
    pub storage_class_name: String,
    /// At least one of ReadWriteOnce and ReadWriteMany.
    #[serde(deserialize_with = "nullable::or_default")]
    pub access_modes: Vec<String>,
    /// Requested size.
    pub resources: VolumeResourceRequirements,
}

/// What a Runner is to be.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "actions.summerwind.dev",
    version = "v1alpha1",
    kind = "Runner",
    plural = "runners",
    doc = "One self-hosted GitHub Actions runner in one pod.",
    namespaced,
    schema = "disabled",
    status = "RunnerStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Enterprise", type_ = "string", json_path = ".spec.enterprise"),
    printcolumn(name = "Organization", type_ = "string", json_path = ".spec.organization"),
    printcolumn(name = "Repository", type_ = "string", json_path = ".spec.repository"),
    printcolumn(name = "Group", type_ = "string", json_path = ".spec.group"),
    printcolumn(name = "Labels", type_ = "string", json_path = ".spec.labels"),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message"),
    printcolumn(name = "WF Repo", type_ = "string", json_path = ".status.workflow.repository"),
    printcolumn(name = "WF Run", type_ = "string", json_path = ".status.workflow.runID"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Busy", type_ = "boolean", json_path = ".status.busy"),
    printcolumn(name = "Job", type_ = "string", json_path = ".status.job"),
    printcolumn(name = "Node", type_ = "string", json_path = ".status.nodeName"),
    printcolumn(name = "State-Age", type_ = "date", json_path = ".status.stateSince"),
    printcolumn(name = "WF Job", type_ = "string", json_path = ".status.workflow.job", priority = 1)
)]
pub struct RunnerSpec {
    /// What GitHub and the runner image are told. Runners of a set may share it.
    #[serde(flatten)]
    pub config: Arc<RunnerConfig>,
    /// What the pod looks like. Runners of a set may share it.
    #[serde(flatten)]
    pub pod: Arc<RunnerPodSpec>,
    /// Claims that the runner takes over from a runner before it, or that are made for it. A RunnerSet hands them on to its runners; without one
    /// they have no effect. Not in ARC.
    #[serde(rename = "volumeClaimTemplates", skip_serializing_if = "Option::is_none")]
    pub volume_claim_templates: Option<Vec<PersistentVolumeClaim>>,
}

impl RunnerSpec {
    /// Templates of the claims that the runner needs.
    #[must_use]
    pub fn claim_templates(&self) -> &[PersistentVolumeClaim] {
        self.volume_claim_templates.as_deref().unwrap_or_default()
    }
}

/// What became of a Runner.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunnerStatus {
    /// Whether the pod is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// Left by ARC, which kept a registration token here; not written any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registration: Option<RunnerRegistration>,
    /// Phase of the pod; Created until one is written, which for a runner that starts well is when it is online; Registering, Idle or
    /// Running when the runner image reports its phases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// One word that says why the phase is what it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The same for humans.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The job that the runner runs, where the runner image reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow: Option<WorkflowStatus>,
    /// Left by ARC; not written any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_registration_check_time: Option<Time>,
    /// Generation of the object that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Whether it runs a job, as far as events, listings, its pod or the status hook prove it; absent while it is not connected. Written with
    /// what is written anyway, or once it has been so for ten seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy: Option<bool>,
    /// The job that it runs: GitHub's id as webhooks and polling tell it, which `pacer explain job` takes; or else the name that the status hook
    /// told. Absent where neither tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Since when it has been ready, or busy, or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_since: Option<Time>,
    /// GitHub's id of the runner; present once it registered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runner_id: Option<i64>,
    /// When the registration was seen first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registered_at: Option<Time>,
    /// UID of the pod that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
    /// Node of that pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// How many pods were made for this Runner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// What the operator has to say about the runner.
    #[serde(default, deserialize_with = "nullable::or_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

impl RunnerStatus {
    /// Phase of a Runner about which nothing else was said yet; the CustomResourceDefinition's default.
    pub const CREATED: &str = "Created";
}

/// How ARC registered a runner.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunnerRegistration {
    /// Enterprise slug.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enterprise: Option<String>,
    /// Organization login.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub organization: Option<String>,
    /// Repository as owner/name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// Runner labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<Vec<String>>,
    /// Registration token; the operator never writes one here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<RegistrationToken>,
    /// When the token ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
}

/// A token that registers runners. Its text is kept out of `Debug` and is only ever serialised.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct RegistrationToken(String);

impl fmt::Debug for RegistrationToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RegistrationToken(..)")
    }
}

/// A job, as the hook in the runner image reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowStatus {
    /// Name of the workflow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Repository as owner/name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// Owner of the repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository_owner: Option<String>,
    /// Number of the run within the workflow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_number: Option<String>,
    /// GitHub's id of the run.
    #[serde(rename = "runID", skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// Name of the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Name of the action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
}
