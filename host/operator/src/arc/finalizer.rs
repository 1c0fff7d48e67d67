//! ARC's finalizers and annotations on pods that it made (arc-behaviour 2.8).
//!
//! Such a pod is the pod of its Runner as if this operator had made it, except for the finalizers: those stay while the runner works, so that
//! going back to ARC finds what it knows, and are taken away when the runner has been taken down.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource, ResourceExt};
use pacer_api::names::{annotation, finalizer};
use pacer_cluster::answer::precondition_held;
use serde_json::json;

use crate::error::Error;

/// ARC's finalizers of pods.
const FINALIZERS: [&str; 2] = [finalizer::RUNNER_POD, finalizer::LINKED_RESOURCES];

/// Whether a finalizer of ARC's keeps the object of a pod.
#[must_use]
pub fn is_held(pod: &Pod) -> bool {
    pod.finalizers().iter().any(|name| FINALIZERS.contains(&name.as_str()))
}

/// GitHub's id of the runner in a pod, as ARC noted it.
#[must_use]
pub fn runner_id(pod: &Pod) -> Option<u64> {
    pod.annotations().get(annotation::RUNNER_ID)?.parse().ok()
}

/// Takes ARC's finalizers from a pod as it was seen; others stay.
///
/// # Errors
///
/// When the API server refuses for any reason but that the pod is gone or has changed, which the watch will show.
pub(crate) async fn free<K: Resource>(client: &Client, pod: &K) -> Result<(), Error> {
    let left: Vec<&String> = pod.finalizers().iter().filter(|name| !FINALIZERS.contains(&name.as_str())).collect();
    let patch = json!({"metadata": {"resourceVersion": pod.resource_version(), "finalizers": left}});
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    precondition_held(pods.patch_metadata(&pod.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Pod {
        serde_json::from_value(json!({"metadata": {
            "annotations": {"actions-runner/id": "17"},
            "finalizers": ["actions.summerwind.dev/runner-pod", "example.com/other", "actions.summerwind.dev/linked-resources"],
        }}))
        .unwrap()
    }

    #[test]
    fn only_arcs_own_finalizers_hold_a_pod() {
        assert!(is_held(&pod()));
        let mut other = pod();
        other.metadata.finalizers = Some(vec!["example.com/other".to_owned()]);
        assert!(!is_held(&other));
        assert!(!is_held(&Pod::default()));
    }

    #[test]
    fn an_id_is_a_number() {
        assert_eq!(runner_id(&pod()), Some(17));
        let mut wrong = pod();
        wrong.metadata.annotations = Some([(annotation::RUNNER_ID.to_owned(), "seventeen".to_owned())].into());
        assert_eq!(runner_id(&wrong), None);
    }
}
