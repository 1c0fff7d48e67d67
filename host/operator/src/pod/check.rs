//! Last stage: contradictions that the API server would refuse, said in the words of the Runner's fields.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, PodSpec};

use super::PodError;

/// Accepts a finished pod spec, and brings lists that ended up empty to their absent form.
///
/// # Errors
///
/// When two containers or two volumes share a name, a mount names no volume, or a path is mounted twice.
pub(super) fn accept(spec: &mut PodSpec) -> Result<(), PodError> {
    let mut volumes = BTreeSet::new();
    for volume in spec.volumes.iter().flatten() {
        if !volumes.insert(volume.name.as_str()) {
            return Err(PodError::VolumeNameTaken { volume: volume.name.clone() });
        }
    }
    let mut names = BTreeSet::new();
    for container in spec.containers.iter().chain(spec.init_containers.iter().flatten()) {
        if !names.insert(container.name.as_str()) {
            return Err(PodError::ContainerNameTaken { container: container.name.clone() });
        }
        accept_mounts(container, &volumes)?;
    }
    spec.volumes.take_if(|list| list.is_empty());
    spec.init_containers.take_if(|list| list.is_empty());
    for container in &mut spec.containers {
        container.volume_mounts.take_if(|list| list.is_empty());
    }
    Ok(())
}

fn accept_mounts(container: &Container, volumes: &BTreeSet<&str>) -> Result<(), PodError> {
    let mut paths = BTreeSet::new();
    for mount in container.volume_mounts.iter().flatten() {
        if !volumes.contains(mount.name.as_str()) {
            return Err(PodError::VolumeUnknown { container: container.name.clone(), volume: mount.name.clone() });
        }
        if !paths.insert(mount.mount_path.as_str()) {
            return Err(PodError::PathTaken {
                container: container.name.clone(),
                path: mount.mount_path.clone(),
                volume: mount.name.clone(),
            });
        }
    }
    Ok(())
}
