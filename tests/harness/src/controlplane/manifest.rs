//! Manifests without kubectl. A world begins with a dozen objects, and the start of a kubectl takes longer than what it does with them.

use std::io;
use std::path::{Path, PathBuf};

use futures::future::try_join_all;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, ResourceExt};

use super::ControlPlaneError;

/// Who writes these objects: the name that `kubectl apply --server-side` has, so that it can go on with them.
const WRITER: &str = "kubectl";

/// Applies the documents of a file, or of all files of a directory.
///
/// # Errors
///
/// When a file is no manifest, or the API server refuses an object.
pub(super) async fn apply(client: &Client, path: &Path) -> Result<Vec<DynamicObject>, ControlPlaneError> {
    let failed = |source| ControlPlaneError::File { path: path.to_owned(), source };
    let objects: Vec<DynamicObject> =
        files(path).map_err(failed)?.iter().map(|file| read(file)).collect::<Result<Vec<_>, _>>()?.concat();
    try_join_all(objects.iter().map(|object| apply_object(client, object))).await
}

/// Applies one object.
///
/// # Errors
///
/// When the API server refuses it.
pub(super) async fn apply_object(client: &Client, object: &DynamicObject) -> Result<DynamicObject, ControlPlaneError> {
    let types = object.types.clone().unwrap_or_default();
    let failed = |source| {
        let what = format!("cannot apply {} {}", types.kind, object.name_any());
        ControlPlaneError::Api { what, source: Box::new(source) }
    };
    let kind = GroupVersionKind::try_from(&types).map_err(|error| failed(kube::Error::Service(Box::new(error))))?;
    let resource = ApiResource::from_gvk(&kind);
    let api = match object.namespace() {
        Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
        None => Api::<DynamicObject>::all_with(client.clone(), &resource),
    };
    api.patch(&object.name_any(), &PatchParams::apply(WRITER), &Patch::Apply(object)).await.map_err(failed)
}

/// Applies definitions, and waits until the API server serves their kinds.
///
/// # Errors
///
/// As for [`apply`], or when they can't be watched.
pub(super) async fn define(client: &Client, path: &Path) -> Result<(), ControlPlaneError> {
    let definitions = apply(client, path).await?;
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in &definitions {
        let established = await_condition(api.clone(), &definition.name_any(), conditions::is_crd_established()).await;
        established.map_err(|error| ControlPlaneError::File { path: path.to_owned(), source: io::Error::other(error) })?;
    }
    Ok(())
}

/// The file, or all manifests of the directory.
pub(super) fn files(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries: Vec<_> = std::fs::read_dir(path)?.collect::<io::Result<_>>()?;
    let files = entries.into_iter().map(|entry| entry.path());
    Ok(files.filter(|file| file.extension().is_some_and(|extension| extension == "yaml")).collect())
}

fn read(file: &Path) -> Result<Vec<DynamicObject>, ControlPlaneError> {
    let failed = |source| ControlPlaneError::File { path: file.to_owned(), source };
    let text = std::fs::read_to_string(file).map_err(failed)?;
    serde_saphyr::from_multiple(&text).map_err(|error| failed(io::Error::other(error.to_string())))
}
