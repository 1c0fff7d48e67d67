//! What a manifest asks for in vain.

use std::fmt;

/// Something in a Runner that has no effect, or not the one its author may expect. The text names the field and the cure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodWarning {
    /// Ephemeral containers cannot be part of a new pod: the API server refuses them.
    EphemeralContainersDropped {
        /// How many there are.
        count: usize,
    },
    /// A `containerMode` other than `kubernetes`.
    ContainerModeUnknown {
        /// The value given.
        value: String,
    },
    /// A `workVolumeClaimTemplate` outside container mode `kubernetes`.
    WorkClaimUnused,
    /// `volumeClaimTemplates` outside a RunnerSet.
    ClaimTemplatesUnused,
    /// A variable of the runner image's contract with a value of the user's.
    EnvReplaced {
        /// Name of the container that has the variable in its `env`.
        container: String,
        /// Name of the variable, such as `RUNNER_LABELS`.
        variable: String,
    },
    /// A lifecycle of the user's on the docker sidecar.
    LifecycleReplaced {
        /// Name of the sidecar.
        container: String,
    },
    /// `privileged: false` on a container that runs dockerd.
    PrivilegeForced {
        /// Name of the container that is made privileged.
        container: String,
    },
}

impl fmt::Display for PodWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EphemeralContainersDropped { count } => write!(
                f,
                "ephemeralContainers ({count}) is left out, because a pod cannot be created with them: use initContainers or \
                 sidecarContainers, or add them to the running pod with kubectl debug"
            ),
            Self::ContainerModeUnknown { value } => {
                write!(f, "containerMode {value:?} has no effect: the only value with a meaning is kubernetes")
            }
            Self::WorkClaimUnused => f.write_str(
                "workVolumeClaimTemplate has no effect without containerMode kubernetes: add a volume named \"work\" to volumes",
            ),
            Self::ClaimTemplatesUnused => f.write_str(
                "volumeClaimTemplates has no effect here: use a RunnerSet, whose runners take over each other's claims, or an ephemeral \
                 volume under volumes",
            ),
            Self::EnvReplaced { container, variable } => write!(
                f,
                "the value of {variable} in the env of container {container:?} is replaced by the operator's: remove it and use \
                 the field that stands for it ({})",
                field_behind(variable)
            ),
            Self::LifecycleReplaced { container } => write!(
                f,
                "the lifecycle of container {container:?} is replaced by the one that keeps dockerd until the runner is done: \
                 remove it"
            ),
            Self::PrivilegeForced { container } => write!(
                f,
                "securityContext.privileged: false of container {container:?} is replaced by true, which dockerd needs: set \
                 dockerdWithinRunnerContainer: false, or seLinuxOptions in the pod's securityContext"
            ),
        }
    }
}

/// Where a user sets what a variable of the contract says.
fn field_behind(variable: &str) -> &'static str {
    match variable {
        "RUNNER_ORG" => "organization",
        "RUNNER_REPO" => "repository",
        "RUNNER_ENTERPRISE" => "enterprise",
        "RUNNER_LABELS" => "labels",
        "RUNNER_GROUP" => "group",
        "RUNNER_WORKDIR" => "workDir",
        "RUNNER_EPHEMERAL" => "ephemeral",
        "DOCKER_ENABLED" | "DOCKER_HOST" => "dockerEnabled",
        "DOCKERD_IN_RUNNER" => "dockerdWithinRunnerContainer",
        "DOCKER_REGISTRY_MIRROR" => "dockerRegistryMirror",
        "MTU" | "DOCKERD_ROOTLESS_ROOTLESSKIT_MTU" => "dockerMTU",
        "ACTIONS_RUNNER_REQUIRE_SAME_NODE" => "workVolumeClaimTemplate.accessModes",
        variable if variable.starts_with("ACTIONS_RUNNER_") => "containerMode",
        _ => "a setting of the operator",
    }
}
