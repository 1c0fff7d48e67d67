//! Why no pod can be made of a Runner.

/// Why no pod can be made. The texts name fields as they stand below the `spec` of a Runner, or below the `template.spec` of the
/// object that made it; the reader can change that object only.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PodError {
    /// The Runner was not read from an API server.
    #[error("the Runner has no {field}: create it through the API server, which fills that field")]
    Unidentified {
        /// Path of the missing field.
        field: &'static str,
    },
    /// A `RUNNER_NAME` of the user's. Runners are matched to pods by name: this one would never be found at GitHub, and its pod would be
    /// deleted under its job when the registration timeout is over.
    #[error(
        "env of the runner container sets RUNNER_NAME, so the runner would not register as its pod {pod:?} and could not be found at \
         GitHub: remove it"
    )]
    RunnerRenamed {
        /// Name of the pod, which the runner has to register under.
        pod: String,
    },
    /// Container mode `kubernetes` without a claim.
    #[error(
        "containerMode kubernetes needs a work volume that job pods can share: set workVolumeClaimTemplate \
         (storageClassName, accessModes, resources)"
    )]
    WorkClaimMissing,
    /// Container mode `kubernetes` with a `work` volume of another kind in a pod template.
    #[error(
        "the volume \"work\" is not a generic ephemeral volume, and job pods in containerMode kubernetes cannot share it: \
         remove it from volumes and set workVolumeClaimTemplate"
    )]
    WorkVolumeNotClaimed,
    /// Container mode `kubernetes` with a `work` volume of the user's.
    #[error(
        "volumes has an entry named \"work\", which containerMode kubernetes makes itself: remove it and describe the volume \
         in workVolumeClaimTemplate"
    )]
    WorkVolumeReserved,
    /// Container mode `kubernetes` with a mount of `work` of the user's.
    #[error(
        "volumeMounts of the runner container has an entry named \"work\", which containerMode kubernetes makes itself: remove \
         it, describe the volume in workVolumeClaimTemplate and its path in workDir"
    )]
    WorkMountReserved,
    /// A claim without access modes.
    #[error("workVolumeClaimTemplate.accessModes is empty: list ReadWriteOnce or ReadWriteMany")]
    AccessModesMissing,
    /// A claim that job pods cannot write to.
    #[error("workVolumeClaimTemplate.accessModes has {mode:?}, which job pods cannot use: list ReadWriteOnce or ReadWriteMany")]
    AccessModeUnsupported {
        /// The mode in the claim.
        mode: String,
    },
    /// A docker sidecar without the volume that it shares with the runner.
    #[error(
        "volumeSizeLimit 0 disables the volume at /runner, which the docker sidecar shares with the runner: remove \
         volumeSizeLimit, or set dockerEnabled: false or dockerdWithinRunnerContainer: true"
    )]
    RunnerVolumeDisabled,
    /// Two volumes of one name.
    #[error("volumes has two entries named {volume:?}: rename or remove one of them")]
    VolumeNameTaken {
        /// Their name.
        volume: String,
    },
    /// Two containers of one name.
    #[error(
        "two containers are named {container:?}: rename one of those in containers, sidecarContainers and initContainers \
         (the operator itself adds \"runner\", and \"docker\" unless dockerEnabled is false)"
    )]
    ContainerNameTaken {
        /// Their name.
        container: String,
    },
    /// A mount of a volume that is not there.
    #[error("container {container:?} mounts {volume:?}, but volumes has no entry of that name: add one or remove the mount")]
    VolumeUnknown {
        /// The container that mounts it.
        container: String,
        /// Name of the missing volume.
        volume: String,
    },
    /// A path that is mounted twice in a container.
    #[error(
        "container {container:?} mounts {volume:?} at {path:?}, where another volume is mounted already: choose another path, or \
         name the volume like the operator's own (runner, work, var-run) to put it in that one's place"
    )]
    PathTaken {
        /// The container with both mounts.
        container: String,
        /// The path in the container.
        path: String,
        /// The volume of the second mount.
        volume: String,
    },
}
