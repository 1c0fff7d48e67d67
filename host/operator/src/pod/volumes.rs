//! The volumes that the containers of a runner pod share.

use k8s_openapi::api::core::v1::{
    Container, EmptyDirVolumeSource, EphemeralVolumeSource, PersistentVolumeClaimSpec, PersistentVolumeClaimTemplate,
    PersistentVolumeClaimVolumeSource, PodSpec, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use pacer_api::WorkVolumeClaimTemplate;
use pacer_api::names::WORK_VOLUME;

use super::ClaimedVolume;

/// Volume of the agent's own files.
pub(super) const RUNNER: &str = "runner";
/// Where the `runner` volume is mounted: the entrypoint copies the agent there, and needs the directory to exist.
pub(super) const RUNNER_PATH: &str = "/runner";
/// In-memory volume of the docker socket.
pub(super) const VAR_RUN: &str = "var-run";
/// Where the `var-run` volume is mounted.
pub(super) const VAR_RUN_PATH: &str = "/run";

/// An `emptyDir`.
pub(super) fn empty_dir(name: &str, medium: Option<&str>, size_limit: Option<&Quantity>) -> Volume {
    let medium = medium.filter(|medium| !medium.is_empty()).map(str::to_owned);
    let source = EmptyDirVolumeSource { medium, size_limit: size_limit.cloned() };
    Volume { name: name.to_owned(), empty_dir: Some(source), ..Volume::default() }
}

/// The `work` volume that job pods share with the runner: a claim that lives as long as the pod.
pub(super) fn claimed_work(claim: &WorkVolumeClaimTemplate) -> Volume {
    let spec = PersistentVolumeClaimSpec {
        access_modes: Some(claim.access_modes.clone()),
        resources: Some(claim.resources.clone()),
        storage_class_name: Some(claim.storage_class_name.clone()),
        ..PersistentVolumeClaimSpec::default()
    };
    let template = PersistentVolumeClaimTemplate { metadata: None, spec };
    let source = EphemeralVolumeSource { volume_claim_template: Some(template) };
    Volume { name: WORK_VOLUME.to_owned(), ephemeral: Some(source), ..Volume::default() }
}

/// A volume that is a claim which outlives the pod.
pub(super) fn claimed(claimed: &ClaimedVolume) -> Volume {
    let source = PersistentVolumeClaimVolumeSource { claim_name: claimed.claim.clone(), read_only: None };
    Volume { name: claimed.volume.clone(), persistent_volume_claim: Some(source), ..Volume::default() }
}

/// A mount of a whole volume, for reading and writing.
pub(super) fn mount(volume: &str, path: &str) -> VolumeMount {
    VolumeMount { name: volume.to_owned(), mount_path: path.to_owned(), ..VolumeMount::default() }
}

/// Adds a volume unless the pod already has one of that name.
pub(super) fn supply(spec: &mut PodSpec, volume: Volume) {
    let volumes = spec.volumes.get_or_insert_default();
    if volumes.iter().all(|present| present.name != volume.name) {
        volumes.push(volume);
    }
}

/// Whether a container mounts the volume of that name anywhere.
pub(super) fn is_mounted(container: &Container, volume: &str) -> bool {
    container.volume_mounts.iter().flatten().any(|present| present.name == volume)
}

/// Mounts a volume unless the container already mounts it, wherever that is.
pub(super) fn supply_mount(container: &mut Container, volume: &str, path: &str) {
    if !is_mounted(container, volume) {
        container.volume_mounts.get_or_insert_default().push(mount(volume, path));
    }
}

/// Whether a quantity is zero, however it is written: `0`, `0Gi`, `0.0`, `0e3`.
pub(super) fn is_zero(quantity: &Quantity) -> bool {
    let number = quantity.0.trim_start_matches(['+', '-']);
    let end = number.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(number.len());
    let (digits, _) = number.split_at(end);
    digits.contains('0') && digits.chars().all(|c| matches!(c, '0' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_recognised_in_every_notation() {
        for zero in ["0", "0Gi", "0.0", "0.", ".0", "00", "0e3", "-0", "+0M", "0m"] {
            assert!(is_zero(&Quantity(zero.to_owned())), "{zero}");
        }
        for other in ["1", "10Gi", "0.1", "1m", "1e0", "5e-10", "", "Gi", "100", "0.001"] {
            assert!(!is_zero(&Quantity(other.to_owned())), "{other}");
        }
    }
}
