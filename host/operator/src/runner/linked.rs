//! What the container hooks of a runner made for its job: pods and Secrets with the label `runner-pod`, which no ownerReference leads to.
//!
//! The hooks remove them when the job is over. A runner that was cut short leaves them behind, and they go here: before its Runner is released,
//! so that a crash in between leaves a Runner that is looked at again.

use std::fmt::Debug;

use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{DeleteParams, ListParams, Preconditions};
use kube::core::NamespaceResourceScope;
use kube::{Resource, ResourceExt};
use pacer_api::Runner;
use pacer_api::names::label;
use pacer_cluster::answer::ignore_not_found;
use serde::de::DeserializeOwned;

use crate::cluster::Cluster;
use crate::error::Error;

/// Deletes what the jobs of a runner left, once its pod is over. Nothing to do for runners without job pods.
///
/// # Errors
///
/// When the API server refuses.
pub(super) async fn remove(runner: &Runner, cluster: &Cluster) -> Result<(), Error> {
    if !runner.spec.config.is_kubernetes_mode() {
        return Ok(());
    }
    remove_kind::<Pod>(runner, cluster).await?;
    remove_kind::<Secret>(runner, cluster).await
}

async fn remove_kind<K>(runner: &Runner, cluster: &Cluster) -> Result<(), Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let (namespace, pod) = (runner.namespace().unwrap_or_default(), runner.name_any());
    // A label holds 63 characters. A longer name, which only a stand-alone Runner can have, no hook could write there.
    if pod.len() > 63 {
        return Ok(());
    }
    let api = cluster.api::<K>(&namespace);
    let listed = api.list_metadata(&ListParams::default().labels(&format!("{}={pod}", label::RUNNER_POD_NAME))).await?;
    for left in listed.items.iter().filter(|left| left.meta().deletion_timestamp.is_none()) {
        let name = left.name_any();
        let only_this = DeleteParams {
            preconditions: Some(Preconditions { uid: left.uid(), resource_version: None }),
            ..DeleteParams::default()
        };
        ignore_not_found(api.delete(&name, &only_this).await)?;
        tracing::info!(namespace, runner = pod, kind = %K::kind(&()), name, "left by a job of the runner; deleted");
    }
    Ok(())
}
