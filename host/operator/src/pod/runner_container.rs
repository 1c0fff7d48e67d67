//! The `runner` container: image, privileges, and the environment that the entrypoint reads.

use k8s_openapi::api::core::v1::{Container, EnvVar, PodSpec, SecurityContext};
use pacer_api::RunnerConfig;
use pacer_api::names::{WORK_VOLUME, env as var};
use pacer_api::runner::Docker;

use super::{PodDefaults, PodError, PodWarning, containers, env, volumes};

/// Where the docker daemon of a sidecar listens, as seen from both containers.
pub(super) const DOCKER_SOCKET: &str = "unix:///run/docker.sock";

/// Completes the `runner` container and the volumes it needs.
///
/// # Errors
///
/// In container mode `kubernetes`, when the template's `work` volume cannot be shared with job pods.
pub(super) fn complete(
    spec: &mut PodSpec,
    config: &RunnerConfig,
    server: &str,
    defaults: &PodDefaults,
    warnings: &mut Vec<PodWarning>,
) -> Result<(), PodError> {
    let docker = config.docker();
    let mut variables = contract(config, server, defaults);
    if config.is_kubernetes_mode() {
        variables.extend(job_pod_hooks(spec)?);
    }
    let confined = spec.security_context.as_ref().is_some_and(|context| context.se_linux_options.is_some());
    let runner_volume = !config.volume_size_limit.as_ref().is_some_and(volumes::is_zero);
    if runner_volume {
        let medium = config.volume_storage_medium.as_deref();
        volumes::supply(spec, volumes::empty_dir(volumes::RUNNER, medium, config.volume_size_limit.as_ref()));
    }

    containers::edit_runner(&mut spec.containers, |container| {
        container.image = Some(image(config, container, defaults).to_owned());
        if is_empty(container.image_pull_policy.as_deref()) {
            container.image_pull_policy = Some("Always".to_owned());
        }
        let context = container.security_context.get_or_insert_default();
        if docker == Docker::InRunner && !confined {
            privilege(context, &container.name, warnings);
        }
        for variable in variables {
            env::set(container, variable, warnings);
        }
        if docker == Docker::InRunner {
            if let Some(mtu) = config.docker_mtu {
                env::set(container, env::literal(var::MTU, mtu.to_string()), warnings);
            }
            if let Some(mirror) = registry_mirror(config, defaults) {
                env::set(container, env::literal(var::DOCKER_REGISTRY_MIRROR, mirror), warnings);
            }
        }
        if runner_volume {
            mount_runner_volume(container);
        }
    });
    Ok(())
}

/// Mounts the agent's volume at its fixed path; other mounts of the volume do not stand in for that one.
pub(super) fn mount_runner_volume(container: &mut Container) {
    let mounts = container.volume_mounts.get_or_insert_default();
    let mounted = |mount: &k8s_openapi::api::core::v1::VolumeMount| {
        mount.name == volumes::RUNNER && mount.mount_path == volumes::RUNNER_PATH
    };
    if !mounts.iter().any(mounted) {
        mounts.push(volumes::mount(volumes::RUNNER, volumes::RUNNER_PATH));
    }
}

/// The registry mirror in force: an empty string in the configuration means none, absence means the operator's.
pub(super) fn registry_mirror<'a>(config: &'a RunnerConfig, defaults: &'a PodDefaults) -> Option<&'a str> {
    let mirror = config.docker_registry_mirror.as_deref().or(defaults.docker_registry_mirror.as_deref());
    mirror.filter(|mirror| !mirror.is_empty())
}

/// The runner's image: the configuration's, else the container's, else the operator's.
fn image<'a>(config: &'a RunnerConfig, container: &'a Container, defaults: &'a PodDefaults) -> &'a str {
    let own = container.image.as_deref().filter(|image| !image.is_empty());
    config.image().or(own).unwrap_or(&defaults.runner_image)
}

/// dockerd cannot run without privileges. They are never set to false: Windows nodes refuse even that.
fn privilege(context: &mut SecurityContext, container: &str, warnings: &mut Vec<PodWarning>) {
    if context.privileged == Some(false) {
        warnings.push(PodWarning::PrivilegeForced { container: container.to_owned() });
    }
    context.privileged = Some(true);
}

/// What every runner image reads, in ARC's order.
fn contract(config: &RunnerConfig, server: &str, defaults: &PodDefaults) -> Vec<EnvVar> {
    let docker = config.docker();
    let version = defaults.version.as_deref().unwrap_or("NA");
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    vec![
        env::literal(var::RUNNER_ORG, text(&config.organization)),
        env::literal(var::RUNNER_REPO, text(&config.repository)),
        env::literal(var::RUNNER_ENTERPRISE, text(&config.enterprise)),
        env::literal(var::RUNNER_LABELS, config.labels().join(",")),
        env::literal(var::RUNNER_GROUP, text(&config.group)),
        env::literal(var::DOCKER_ENABLED, (docker != Docker::None).to_string()),
        env::literal(var::DOCKERD_IN_RUNNER, (docker == Docker::InRunner).to_string()),
        env::literal(var::GITHUB_URL, server),
        env::literal(var::RUNNER_WORKDIR, config.work_dir()),
        env::literal(var::RUNNER_EPHEMERAL, config.is_ephemeral().to_string()),
        env::literal(var::RUNNER_STATUS_UPDATE_HOOK, defaults.status_hook.to_string()),
        env::literal(var::EXTRA_USER_AGENT, format!("actions-runner-controller/{version}")),
    ]
}

/// What the container hooks of the runner image read in order to run jobs as pods of their own.
fn job_pod_hooks(spec: &PodSpec) -> Result<Vec<EnvVar>, PodError> {
    let same_node = shares_node_with_jobs(spec)?;
    Ok(vec![
        env::literal(var::CONTAINER_HOOKS, "/runner/k8s/index.js"),
        env::literal(var::REQUIRE_JOB_CONTAINER, "true"),
        env::of_field(var::POD_NAME, "metadata.name"),
        env::of_field(var::JOB_NAMESPACE, "metadata.namespace"),
        env::literal(var::REQUIRE_SAME_NODE, same_node.to_string()),
    ])
}

/// Whether job pods must run on the runner's node, because the claim behind `work` can be mounted on one node only.
///
/// As in ARC, the first `ReadWriteOnce` decides and modes behind it are not looked at.
fn shares_node_with_jobs(spec: &PodSpec) -> Result<bool, PodError> {
    let work = spec.volumes.iter().flatten().find(|volume| volume.name == WORK_VOLUME).ok_or(PodError::WorkClaimMissing)?;
    let claim = work.ephemeral.as_ref().and_then(|source| source.volume_claim_template.as_ref());
    let modes = claim.ok_or(PodError::WorkVolumeNotClaimed)?.spec.access_modes.as_deref().unwrap_or_default();
    if modes.is_empty() {
        return Err(PodError::AccessModesMissing);
    }
    for mode in modes {
        match mode.as_str() {
            "ReadWriteOnce" => return Ok(true),
            "ReadWriteMany" => {}
            _ => return Err(PodError::AccessModeUnsupported { mode: mode.clone() }),
        }
    }
    Ok(false)
}

fn is_empty(value: Option<&str>) -> bool {
    value.is_none_or(str::is_empty)
}
