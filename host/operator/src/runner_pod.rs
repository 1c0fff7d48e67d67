//! The pod of a runner as the watch keeps it: of some 10 KiB, what decisions read.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::Pod;
use kube::api::ObjectMeta;
use kube::core::NamespaceResourceScope;
use kube::{Resource, ResourceExt};
use pacer_api::names::label;
use pacer_cluster::watch::trim_metadata;
use pacer_core::facts::PodFacts;
use serde::Deserialize;

use crate::arc::finalizer;

mod facts;

pub use facts::facts;

/// A runner's pod, read from the API server as any object is.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Pod")]
pub struct RunnerPod {
    /// Without labels, annotations and managed fields: a map takes half a KiB for a single entry.
    pub metadata: ObjectMeta,
    /// What it says of its runner. Whether its node is gone, it does not say.
    pub facts: PodFacts,
    /// The RunnerSet that its label names, whether that exists or not.
    pub runner_set: Option<String>,
    /// Its service account, unless that is the one that each namespace has. Those that the operator makes are kept while a pod uses them.
    pub service_account: Option<String>,
    /// GitHub's id of its runner, as ARC noted it.
    pub runner_id: Option<u64>,
}

impl From<Pod> for RunnerPod {
    fn from(pod: Pod) -> Self {
        let facts = facts(&pod);
        let runner_id = finalizer::runner_id(&pod);
        let runner_set = pod.labels().get(label::RUNNER_SET_NAME).cloned();
        let service_account = pod.spec.and_then(|spec| spec.service_account_name).filter(|name| name != "default");
        let mut metadata = pod.metadata;
        trim_metadata(&mut metadata);
        metadata.labels = None;
        metadata.annotations = None;
        Self { metadata, facts, runner_set, service_account, runner_id }
    }
}

impl Resource for RunnerPod {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind(of: &()) -> Cow<'_, str> {
        Pod::kind(of)
    }

    fn group(of: &()) -> Cow<'_, str> {
        Pod::group(of)
    }

    fn version(of: &()) -> Cow<'_, str> {
        Pod::version(of)
    }

    fn plural(of: &()) -> Cow<'_, str> {
        Pod::plural(of)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_kept_of_a_pod_is_a_fraction_of_it_and_all_that_is_read() {
        let pod: RunnerPod = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "web-1", "namespace": "ci", "uid": "p", "resourceVersion": "7",
                "labels": {"runnerset-name": "web", "other": "label"},
                "annotations": {"actions-runner/id": "17", "other": "annotation"},
                "finalizers": ["actions.summerwind.dev/runner-pod"],
                "ownerReferences": [{"apiVersion": "v1", "kind": "Runner", "name": "web-1", "uid": "r", "controller": true}],
                "managedFields": [{"manager": "kubelet"}],
            },
            "spec": {"nodeName": "n-1", "serviceAccountName": "web-1", "containers": [{"name": "runner"}]},
            "status": {"phase": "Running"},
        }))
        .unwrap();
        assert_eq!(
            (pod.runner_set.as_deref(), pod.service_account.as_deref(), pod.runner_id),
            (Some("web"), Some("web-1"), Some(17))
        );
        assert_eq!((pod.facts.node.as_deref(), pod.facts.held, pod.facts.resource_version.as_str()), (Some("n-1"), true, "7"));
        assert_eq!((pod.name_any().as_str(), pod.namespace().as_deref(), pod.uid().as_deref()), ("web-1", Some("ci"), Some("p")));
        assert_eq!((pod.owner_references().len(), pod.finalizers().len()), (1, 1));
        assert!(pod.labels().is_empty() && pod.annotations().is_empty() && pod.metadata.managed_fields.is_none());
        assert!(size_of::<RunnerPod>() < size_of::<Pod>() / 2, "{}", size_of::<RunnerPod>());
    }

    #[test]
    fn account_that_every_namespace_has_is_nobodys() {
        let of = |name: &str| json!({"metadata": {"name": "web-1"}, "spec": {"serviceAccountName": name, "containers": []}});
        let account = |name: &str| serde_json::from_value::<RunnerPod>(of(name)).unwrap().service_account;
        assert_eq!((account("default"), account("web-1").as_deref()), (None, Some("web-1")));
    }

    #[test]
    fn it_is_listed_and_watched_as_a_pod() {
        assert_eq!(RunnerPod::url_path(&(), Some("ci")), Pod::url_path(&(), Some("ci")));
        assert_eq!((RunnerPod::kind(&()), RunnerPod::api_version(&())), (Pod::kind(&()), Pod::api_version(&())));
    }
}
