//! The manifests that are shipped.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use pacer_harness::world::World;
use serde_json::Value;

/// A file of `deploy`.
#[must_use]
pub fn shipped(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file)
}

/// Variables that this Deployment of `deploy` gives its containers as they stand: how much memory a process keeps depends on them.
///
/// # Errors
///
/// When the file is no Deployment.
pub fn shipped_env(file: &str) -> Result<Vec<(String, String)>> {
    let shipped: Deployment = serde_saphyr::from_str(&fs::read_to_string(shipped(file))?)?;
    let pod = shipped.spec.and_then(|spec| spec.template.spec).unwrap_or_default();
    let variables = pod.containers.into_iter().flat_map(|container| container.env.unwrap_or_default());
    Ok(variables.filter_map(|variable| Some((variable.name, variable.value?))).collect())
}

/// Copies a directory of `deploy` to below `to`. kustomize reads nothing beside its own directory.
///
/// # Errors
///
/// Of the file system.
pub fn copy_shipped(directory: &str, to: &Path) -> Result<()> {
    let to = to.join(directory);
    fs::create_dir_all(&to)?;
    for file in fs::read_dir(shipped(directory))? {
        let file = file?;
        fs::copy(file.path(), to.join(file.file_name()))?;
    }
    Ok(())
}

/// What `kubectl kustomize` makes of a kustomization that lists these directories of `deploy` as resources and as components, with more text below.
///
/// # Errors
///
/// When kubectl refuses it.
pub async fn kustomized(world: &World, resources: &[&str], components: &[&str], more: &str) -> Result<Vec<Value>> {
    let directory = tempfile::tempdir()?;
    for part in resources.iter().chain(components) {
        copy_shipped(part, directory.path())?;
    }
    let text = format!("resources: [{}]\ncomponents: [{}]\n{more}", resources.join(", "), components.join(", "));
    fs::write(directory.path().join("kustomization.yaml"), text)?;
    let output = world.plane.kubectl(&["kustomize", &directory.path().to_string_lossy()]).await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    Ok(text.split("\n---\n").map(serde_saphyr::from_str).collect::<Result<Vec<Value>, _>>()?)
}
