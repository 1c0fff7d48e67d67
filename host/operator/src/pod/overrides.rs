//! Third stage: the pod-level fields of a Runner. They come after the contract, so that the user's volumes and mounts win.

use k8s_openapi::api::core::v1::{Container, PodSpec, Volume, VolumeMount};
use pacer_api::names::WORK_VOLUME;

use super::{PodError, PodInput, containers, volumes};

/// The volumes that the operator makes where the user does not.
const GENERATED: [&str; 3] = [volumes::RUNNER, WORK_VOLUME, volumes::VAR_RUN];

/// Applies the Runner's pod-level fields.
///
/// # Errors
///
/// In container mode `kubernetes`, when `volumes` or `volumeMounts` speak about `work`.
pub(super) fn apply(spec: &mut PodSpec, input: &PodInput<'_>) -> Result<(), PodError> {
    let PodInput { runner, account, claims, .. } = input;
    let pod = &runner.spec.pod;
    let job_pods = runner.spec.config.is_kubernetes_mode();
    let given = |list: &Option<Vec<_>>| list.clone().unwrap_or_default();
    containers::edit_runner(&mut spec.containers, |container| {
        mount(container, pod.volume_mounts.as_deref().unwrap_or_default(), job_pods)
    })?;
    add_volumes(spec, pod.volumes.as_deref().unwrap_or_default(), job_pods)?;
    // As in a StatefulSet, a claim takes the place of a volume of its name.
    let claimed: Vec<Volume> = claims.iter().map(volumes::claimed).collect();
    add_volumes(spec, &claimed, job_pods)?;

    spec.init_containers.get_or_insert_default().extend(given(&pod.init_containers));
    spec.containers.extend(given(&pod.sidecar_containers));
    replace_text(&mut spec.service_account_name, *account);
    replace_text(&mut spec.service_account_name, pod.service_account_name.as_deref());
    replace_text(&mut spec.priority_class_name, pod.priority_class_name.as_deref());
    replace_text(&mut spec.runtime_class_name, pod.runtime_class_name.as_deref());
    replace_text(&mut spec.dns_policy, pod.dns_policy.as_deref());
    replace(&mut spec.automount_service_account_token, pod.automount_service_account_token.as_ref());
    replace(&mut spec.termination_grace_period_seconds, pod.termination_grace_period_seconds.as_ref());
    replace(&mut spec.affinity, pod.affinity.as_ref());
    replace(&mut spec.dns_config, pod.dns_config.as_ref());
    replace(&mut spec.node_selector, pod.node_selector.as_ref().filter(|selector| !selector.is_empty()));
    replace_list(&mut spec.image_pull_secrets, pod.image_pull_secrets.as_ref());
    replace_list(&mut spec.tolerations, pod.tolerations.as_ref());
    replace_list(&mut spec.topology_spread_constraints, pod.topology_spread_constraints.as_ref());
    replace_list(&mut spec.host_aliases, pod.host_aliases.as_ref());
    Ok(())
}

/// Adds the user's mounts to the `runner` container. A mount named `work` takes the place of every other of that name; a mount
/// of another generated volume takes the place of the generated mount at the same path.
fn mount(container: &mut Container, given: &[VolumeMount], job_pods: bool) -> Result<(), PodError> {
    let names_work = given.iter().any(|mount| mount.name == WORK_VOLUME);
    if names_work && job_pods {
        return Err(PodError::WorkMountReserved);
    }
    let mounts = container.volume_mounts.get_or_insert_default();
    mounts.retain(|present| {
        let replaced = given.iter().any(|mount| mount.name == present.name && mount.mount_path == present.mount_path);
        let generated = GENERATED.contains(&present.name.as_str());
        !(generated && replaced || names_work && present.name == WORK_VOLUME)
    });
    mounts.extend(given.iter().cloned());
    Ok(())
}

/// Adds the user's volumes. One that is named like a generated volume takes its place.
fn add_volumes(spec: &mut PodSpec, given: &[Volume], job_pods: bool) -> Result<(), PodError> {
    if job_pods && given.iter().any(|volume| volume.name == WORK_VOLUME) {
        return Err(PodError::WorkVolumeReserved);
    }
    let present = spec.volumes.get_or_insert_default();
    present.retain(|present| given.iter().all(|volume| volume.name != present.name));
    present.extend(given.iter().cloned());
    Ok(())
}

fn replace<T: Clone>(target: &mut Option<T>, source: Option<&T>) {
    if let Some(source) = source {
        *target = Some(source.clone());
    }
}

fn replace_text(target: &mut Option<String>, source: Option<&str>) {
    replace(target, source.filter(|text| !text.is_empty()).map(str::to_owned).as_ref());
}

fn replace_list<T: Clone>(target: &mut Option<Vec<T>>, source: Option<&Vec<T>>) {
    replace(target, source.filter(|list| !list.is_empty()));
}
