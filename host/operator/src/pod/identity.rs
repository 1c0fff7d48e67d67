//! Fourth stage: whose pod it is, and under which name and token its runner registers.

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use pacer_api::Runner;
use pacer_api::names::{annotation, env as var};

use super::{Held, PodError, TokenSource, containers, env};

/// Name and owner of a pod. The runner registers under the name of its pod.
#[derive(Clone, Debug, PartialEq)]
pub struct PodIdentity {
    /// Name of the pod, unique in its namespace and never used twice.
    pub name: String,
    /// Namespace of the pod and of its owner.
    pub namespace: String,
    /// The controlling owner, which takes the pod along when it is deleted.
    pub owner: OwnerReference,
}

impl PodIdentity {
    /// The identity of a Runner's pod: it has the Runner's name.
    ///
    /// # Errors
    ///
    /// When the Runner does not come from an API server: it lacks a name, a namespace or a UID.
    pub fn of(runner: &Runner) -> Result<Self, PodError> {
        let metadata = &runner.metadata;
        let name = present(metadata.name.as_ref(), "metadata.name")?;
        let owner = OwnerReference {
            api_version: Runner::api_version(&()).into_owned(),
            kind: Runner::kind(&()).into_owned(),
            name: name.clone(),
            uid: present(metadata.uid.as_ref(), "metadata.uid")?,
            controller: Some(true),
            // Not `true` as in ARC: a deletion with foreground propagation (the default of some GitOps tools) deletes what blocks its
            // owner first, from the leaves, and so would kill the pod of a busy runner before its Runner could drain.
            block_owner_deletion: Some(false),
        };
        Ok(Self { name, namespace: present(metadata.namespace.as_ref(), "metadata.namespace")?, owner })
    }
}

/// Gives the pod its name and owner, and tells the runner its name and where its token is.
///
/// # Errors
///
/// When the user gave the runner another name.
pub(super) fn apply(pod: &mut Pod, identity: PodIdentity, token: &TokenSource) -> Result<(), PodError> {
    let PodIdentity { name, namespace, owner } = identity;
    let spec = pod.spec.get_or_insert_default();
    containers::edit_runner(&mut spec.containers, |container| {
        env::supply(container, env::literal(var::RUNNER_NAME, name.as_str()));
        if !registers_as(container, &name) {
            return Err(PodError::RunnerRenamed { pod: name.clone() });
        }
        let variable = match token.holds {
            Held::Token => var::RUNNER_TOKEN,
            Held::JustInTime { .. } => var::JIT_CONFIG,
        };
        env::supply(container, env::of_secret(variable, token));
        Ok(())
    })?;
    if let Held::JustInTime { id } = token.holds {
        let annotations = pod.metadata.annotations.get_or_insert_default();
        annotations.insert(annotation::RUNNER_ID.to_owned(), id.to_string());
    }
    // Only with a host name of its own is a pod found under its subdomain; a name with dots is none.
    if spec.subdomain.is_some() && !name.contains('.') {
        spec.hostname.get_or_insert_with(|| name.clone());
    }
    pod.metadata.name = Some(name);
    pod.metadata.namespace = Some(namespace);
    pod.metadata.owner_references = Some(vec![owner]);
    Ok(())
}

/// Whether the runner gets the name of its pod, in clear or from the pod's own metadata.
fn registers_as(container: &Container, pod: &str) -> bool {
    let last = container.env.iter().flatten().rfind(|variable| variable.name == var::RUNNER_NAME);
    last.is_some_and(|variable| match variable.value_from.as_ref() {
        Some(source) => source.field_ref.as_ref().is_some_and(|field| field.field_path == "metadata.name"),
        None => variable.value.as_deref() == Some(pod),
    })
}

fn present(value: Option<&String>, field: &'static str) -> Result<String, PodError> {
    value.filter(|value| !value.is_empty()).cloned().ok_or(PodError::Unidentified { field })
}
