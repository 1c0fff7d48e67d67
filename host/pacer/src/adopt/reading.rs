//! What is read from the cluster. A kind that is not installed has no objects; what is refused is noted.

use std::fmt::Debug;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::core::{DynamicResourceScope, NamespaceResourceScope};
use kube::{Api, Client, Resource};
use pacer_api::names::label;
use pacer_api::{HorizontalRunnerAutoscaler, Runner, RunnerDeployment, RunnerReplicaSet, RunnerSet};
use serde::de::DeserializeOwned;

/// HTTP status of what does not exist.
const NOT_FOUND: u16 = 404;

/// Reads lists.
pub(super) struct Reader {
    pub(super) client: Client,
    namespace: Option<String>,
    /// What could not be read, and why.
    pub(super) unread: Vec<String>,
}

impl Reader {
    pub(super) fn new(client: Client, namespace: Option<String>) -> Self {
        Self { client, namespace, unread: Vec::new() }
    }

    /// Objects of the namespace that is looked at, or of all.
    pub(super) async fn namespaced<K>(&mut self, selector: &str) -> Vec<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
    {
        let api: Api<K> = match &self.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        self.list(&api, &K::plural(&()), selector).await
    }

    /// Objects of all namespaces, or without one.
    pub(super) async fn everywhere<K>(&mut self, selector: &str) -> Vec<K>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let api: Api<K> = Api::all(self.client.clone());
        self.list(&api, &K::plural(&()), selector).await
    }

    /// Objects of a kind that may not be installed.
    pub(super) async fn dynamic<K>(&mut self, kind: &K::DynamicType) -> Vec<K>
    where
        K: Resource<Scope = DynamicResourceScope> + Clone + DeserializeOwned + Debug,
    {
        let api: Api<K> = Api::all_with(self.client.clone(), kind);
        self.list(&api, &K::plural(kind), "").await
    }

    async fn list<K>(&mut self, api: &Api<K>, plural: &str, selector: &str) -> Vec<K>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        match api.list(&ListParams::default().labels(selector)).await {
            Ok(list) => list.items,
            // Not installed. The answer to a group that nobody serves is text, so that its reason is not to be had.
            Err(kube::Error::Api(status)) if status.code == NOT_FOUND => Vec::new(),
            Err(error) => {
                self.unread.push(format!("{plural}: {error}"));
                Vec::new()
            }
        }
    }
}

/// What ARC's controllers work on.
#[derive(Debug, Default)]
pub(super) struct Objects {
    pub(super) deployments: Vec<RunnerDeployment>,
    pub(super) sets: Vec<RunnerReplicaSet>,
    pub(super) runners: Vec<Runner>,
    pub(super) runner_sets: Vec<RunnerSet>,
    pub(super) stateful_sets: Vec<StatefulSet>,
    pub(super) autoscalers: Vec<HorizontalRunnerAutoscaler>,
    pub(super) pods: Vec<Pod>,
}

/// Reads them.
pub(super) async fn objects(reader: &mut Reader) -> Objects {
    Objects {
        deployments: reader.namespaced("").await,
        sets: reader.namespaced("").await,
        runners: reader.namespaced("").await,
        runner_sets: reader.namespaced("").await,
        stateful_sets: reader.namespaced(label::RUNNER_TEMPLATE_HASH).await,
        autoscalers: reader.namespaced("").await,
        pods: reader.namespaced(label::RUNNER_POD).await,
    }
}
