//! The `docker` sidecar: dockerd beside the runner, reached over a socket on a volume in memory.

use k8s_openapi::api::core::v1::{Container, ExecAction, Lifecycle, LifecycleHandler, PodSpec, SELinuxOptions, SecurityContext};
use pacer_api::RunnerConfig;
use pacer_api::names::{WORK_VOLUME, env as var};

use super::runner_container::{DOCKER_SOCKET, mount_runner_volume, registry_mirror};
use super::{PodDefaults, PodError, PodWarning, containers, env, volumes};

/// Holds dockerd back while the runner still needs it, for at most `RUNNER_GRACEFUL_STOP_TIMEOUT` seconds.
///
/// The entrypoint removes `/runner/.runner` as its last act. A pod may also be deleted before dockerd is up: without the second
/// loop the container would get its signal while it starts, and the runner would then wait for a daemon that never comes.
/// Output goes to the log of the container, because kubelet shows none of a hook's own.
const PRE_STOP: &str = r#"timeout "${RUNNER_GRACEFUL_STOP_TIMEOUT:-15}" /bin/sh -c "
echo 'preStop: waiting until the runner is unregistered';
while [ -f /runner/.runner ]; do sleep 1; done;
echo 'preStop: waiting until dockerd runs';
while ! pgrep -x dockerd; do sleep 1; done;
echo 'preStop: done'
" >/proc/1/fd/1 2>&1"#;

/// Adds the sidecar, the volumes it shares with the runner, and the runner's side of both.
///
/// # Errors
///
/// When the `/runner` volume is disabled, since runner and sidecar meet on it.
pub(super) fn complete(
    spec: &mut PodSpec,
    config: &RunnerConfig,
    defaults: &PodDefaults,
    warnings: &mut Vec<PodWarning>,
) -> Result<(), PodError> {
    if config.volume_size_limit.as_ref().is_some_and(volumes::is_zero) {
        return Err(PodError::RunnerVolumeDisabled);
    }
    volumes::supply(spec, volumes::empty_dir(WORK_VOLUME, None, None));
    volumes::supply(spec, volumes::empty_dir(volumes::VAR_RUN, Some("Memory"), Some(&config.var_run_size_limit())));

    let work_dir = config.work_dir();
    let runner_image = containers::edit_runner(&mut spec.containers, |runner| {
        volumes::supply_mount(runner, WORK_VOLUME, work_dir);
        volumes::supply_mount(runner, volumes::VAR_RUN, volumes::VAR_RUN_PATH);
        env::set(runner, env::literal(var::DOCKER_HOST, DOCKER_SOCKET), warnings);
        runner.image.clone().unwrap_or_default()
    });

    let confinement = spec.security_context.as_ref().and_then(|context| context.se_linux_options.clone());
    containers::edit_docker(&mut spec.containers, |docker| {
        if docker.image.as_deref().is_none_or(str::is_empty) {
            docker.image = Some(defaults.docker_image.clone());
        }
        docker.args = Some(arguments(docker.args.take(), config, defaults));
        if !env::is_present(docker, var::DOCKER_GROUP_GID) {
            let gid = socket_group(&runner_image, defaults.docker_gid);
            env::set(docker, env::literal(var::DOCKER_GROUP_GID, gid.to_string()), warnings);
        }
        if let Some(mtu) = config.docker_mtu {
            env::set(docker, env::literal(var::DOCKERD_ROOTLESS_MTU, mtu.to_string()), warnings);
        }
        mount_runner_volume(docker);
        volumes::supply_mount(docker, volumes::VAR_RUN, volumes::VAR_RUN_PATH);
        volumes::supply_mount(docker, WORK_VOLUME, work_dir);
        docker.security_context.get_or_insert_with(|| privileges(confinement));
        wait_for_runner(docker, warnings);
    });
    Ok(())
}

/// dockerd's command line around the arguments that the user gave.
fn arguments(given: Option<Vec<String>>, config: &RunnerConfig, defaults: &PodDefaults) -> Vec<String> {
    let mut arguments = vec!["dockerd".to_owned(), format!("--host={DOCKER_SOCKET}")];
    arguments.extend(given.unwrap_or_default());
    arguments.push(format!("--group=$({})", var::DOCKER_GROUP_GID));
    if let Some(mtu) = config.docker_mtu {
        arguments.extend(["--mtu".to_owned(), mtu.to_string()]);
    }
    if let Some(mirror) = registry_mirror(config, defaults) {
        arguments.push(format!("--registry-mirror={mirror}"));
    }
    arguments
}

/// The group that may use the socket must be the `docker` group of the runner image, which differs between Ubuntu releases and
/// can only be told from the image's name.
fn socket_group(runner_image: &str, otherwise: u32) -> u32 {
    if runner_image.contains("22.04") || runner_image.contains("24.04") {
        121
    } else if runner_image.contains("20.04") {
        1001
    } else {
        otherwise
    }
}

/// SELinux confinement of the pod takes the place of privileges.
fn privileges(confinement: Option<SELinuxOptions>) -> SecurityContext {
    SecurityContext { privileged: Some(confinement.is_none()), se_linux_options: confinement, ..SecurityContext::default() }
}

fn wait_for_runner(docker: &mut Container, warnings: &mut Vec<PodWarning>) {
    if docker.lifecycle.is_some() {
        warnings.push(PodWarning::LifecycleReplaced { container: docker.name.clone() });
    }
    let command = ["/bin/sh", "-c", PRE_STOP].map(str::to_owned).to_vec();
    let exec = Some(ExecAction { command: Some(command) });
    let pre_stop = Some(LifecycleHandler { exec, ..LifecycleHandler::default() });
    docker.lifecycle = Some(Lifecycle { pre_stop, ..Lifecycle::default() });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_of_the_socket_follows_the_ubuntu_release_in_the_image_name() {
        for (image, gid) in [
            ("summerwind/actions-runner:ubuntu-20.04", 1001),
            ("ghcr.io/x/runner:v2.335.1-ubuntu-22.04", 121),
            ("runner-24.04@sha256:00", 121),
            ("runner:latest", 77),
            ("", 77),
        ] {
            assert_eq!(socket_group(image, 77), gid, "{image}");
        }
    }
}
