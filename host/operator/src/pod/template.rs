//! First stage: what a Runner says about its containers and its claimed work volume, as a pod template.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec, PodTemplateSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pacer_api::names::{DOCKER_CONTAINER, WORK_VOLUME};
use pacer_api::runner::Docker;
use pacer_api::{Runner, RunnerPodSpec, RunnerSpec};

use super::{PodError, PodWarning, containers, volumes};

/// Written by `kubectl apply` on Runners that a user made by hand: a copy of the Runner's manifest, of no use on its pod.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The template that a Runner stands for. Its own `volumes` and `volumeMounts` are not part of it: they come last.
///
/// # Errors
///
/// In container mode `kubernetes`, when the work volume is not claimed by `workVolumeClaimTemplate` alone.
pub(super) fn of_runner(runner: &Runner) -> Result<PodTemplateSpec, PodError> {
    let RunnerSpec { config, pod, .. } = &runner.spec;
    let mut containers = pod.containers.clone().unwrap_or_default();
    containers::edit_runner(&mut containers, |container| fill_runner(container, pod));
    if config.docker() == Docker::Sidecar {
        containers::edit_docker(&mut containers, |_| ());
    }
    for container in containers.iter_mut().filter(|container| container.name == DOCKER_CONTAINER) {
        fill_docker(container, pod);
    }
    let mut spec = PodSpec {
        containers,
        security_context: pod.security_context.clone(),
        enable_service_links: pod.enable_service_links,
        ..PodSpec::default()
    };
    pod.settings.apply(&mut spec);
    if config.is_kubernetes_mode() {
        claim_work(&mut spec, &runner.spec)?;
    }
    let mut annotations = runner.metadata.annotations.clone().unwrap_or_default();
    annotations.remove(LAST_APPLIED);
    let metadata = ObjectMeta {
        labels: runner.metadata.labels.clone(),
        annotations: Some(annotations).filter(|annotations| !annotations.is_empty()),
        ..ObjectMeta::default()
    };
    Ok(PodTemplateSpec { metadata: Some(metadata), spec: Some(spec) })
}

/// What the Runner's fields ask for in vain.
pub(super) fn warnings(spec: &RunnerSpec) -> Vec<PodWarning> {
    let mut warnings = Vec::new();
    let job_pods = spec.config.is_kubernetes_mode();
    if let Some(value) = spec.config.container_mode.as_ref().filter(|value| !value.is_empty() && !job_pods) {
        warnings.push(PodWarning::ContainerModeUnknown { value: value.clone() });
    }
    if spec.pod.work_volume_claim_template.is_some() && !job_pods {
        warnings.push(PodWarning::WorkClaimUnused);
    }
    if let Some(dropped) = spec.pod.ephemeral_containers.as_ref().filter(|list| !list.is_empty()) {
        warnings.push(PodWarning::EphemeralContainersDropped { count: dropped.len() });
    }
    warnings
}

/// The container's own settings win as a whole: lists are not merged.
fn fill_runner(container: &mut Container, pod: &RunnerPodSpec) {
    fill_text(&mut container.image_pull_policy, pod.image_pull_policy.as_deref());
    fill_list(&mut container.env_from, pod.env_from.as_ref());
    fill_list(&mut container.env, pod.env.as_ref());
    fill_resources(container, pod.resources.as_ref());
}

fn fill_docker(container: &mut Container, pod: &RunnerPodSpec) {
    fill_list(&mut container.volume_mounts, pod.docker_volume_mounts.as_ref());
    fill_list(&mut container.env, pod.docker_env.as_ref());
    fill_resources(container, pod.dockerd_container_resources.as_ref());
}

fn fill_text(target: &mut Option<String>, source: Option<&str>) {
    if target.as_deref().is_none_or(str::is_empty) {
        *target = source.filter(|text| !text.is_empty()).map(str::to_owned);
    }
}

fn fill_list<T: Clone>(target: &mut Option<Vec<T>>, source: Option<&Vec<T>>) {
    if target.as_ref().is_none_or(Vec::is_empty) {
        *target = source.filter(|list| !list.is_empty()).cloned();
    }
}

/// Requests and limits are filled one without the other, as ARC does.
fn fill_resources(container: &mut Container, source: Option<&ResourceRequirements>) {
    let Some(source) = source else { return };
    let target = container.resources.get_or_insert_default();
    if target.requests.as_ref().is_none_or(BTreeMap::is_empty) {
        target.requests.clone_from(&source.requests);
    }
    if target.limits.as_ref().is_none_or(BTreeMap::is_empty) {
        target.limits.clone_from(&source.limits);
    }
}

/// Gives the runner the volume that it shares with the pods of its jobs.
fn claim_work(spec: &mut PodSpec, runner: &RunnerSpec) -> Result<(), PodError> {
    let claim = runner.pod.work_volume_claim_template.as_ref().ok_or(PodError::WorkClaimMissing)?;
    let work_dir = runner.config.work_dir();
    volumes::supply(spec, volumes::claimed_work(claim));
    containers::edit_runner(&mut spec.containers, |container| {
        if volumes::is_mounted(container, WORK_VOLUME) {
            return Err(PodError::WorkMountReserved);
        }
        container.volume_mounts.get_or_insert_default().push(volumes::mount(WORK_VOLUME, work_dir));
        Ok(())
    })
}
