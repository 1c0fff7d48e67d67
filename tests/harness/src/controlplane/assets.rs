//! Finds the executables of the control plane, building them once if there are none.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::ControlPlaneError;

/// Names a directory of assets must hold.
const COMPONENTS: [&str; 3] = ["etcd", "kube-apiserver", "kube-controller-manager"];

/// Other directories of executables, in this order.
const OTHERS: [&str; 2] = ["KUBEBUILDER_ASSETS", "PACER_CONTROLPLANE"];

/// Whether `tests/controlplane/build.sh` made the executables, so that the directory is ours.
pub(super) fn are_built() -> bool {
    OTHERS.iter().all(|variable| std::env::var_os(variable).is_none_or(|value| value.is_empty()))
}

/// The directory that holds the executables.
///
/// In this order: `KUBEBUILDER_ASSETS`, `PACER_CONTROLPLANE`, what `tests/controlplane/build.sh` prints (it builds them the
/// first time, which takes minutes).
pub(super) async fn find() -> Result<PathBuf, ControlPlaneError> {
    for variable in OTHERS {
        if let Some(directory) = std::env::var_os(variable).filter(|value| !value.is_empty()) {
            let directory = PathBuf::from(directory);
            return match missing(&directory) {
                None => Ok(directory),
                Some(component) => Err(ControlPlaneError::Assets(format!(
                    "{variable}={} has no {component}; unset it to build all of them",
                    directory.display()
                ))),
            };
        }
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../controlplane/build.sh");
    let output = tokio::process::Command::new("/bin/sh")
        .arg(&script)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .await
        .map_err(|error| ControlPlaneError::Assets(format!("cannot run {}: {error}", script.display())))?;
    if !output.status.success() {
        return Err(ControlPlaneError::Assets(format!(
            "{} failed ({}); its own output above says why",
            script.display(),
            output.status
        )));
    }
    let directory = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    match missing(&directory) {
        None => Ok(directory),
        Some(component) => {
            Err(ControlPlaneError::Assets(format!("{} printed {directory:?}, which has no {component}", script.display())))
        }
    }
}

fn missing(directory: &Path) -> Option<&'static str> {
    COMPONENTS.into_iter().find(|name| !directory.join(name).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_missing_component_is_named() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(missing(directory.path()), Some("etcd"));
        for name in COMPONENTS {
            std::fs::write(directory.path().join(name), "").unwrap();
        }
        assert_eq!(missing(directory.path()), None);
    }
}
