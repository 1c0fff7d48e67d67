//! What is read from the cluster. A kind that is not installed has no objects; what is refused is noted.

use std::fmt::Debug;

use kube::api::ListParams;
use kube::core::{DynamicResourceScope, NamespaceResourceScope, PartialObjectMeta};
use kube::{Api, Client, Resource};
use pacer_cluster::unreadable;
use serde::de::DeserializeOwned;

/// HTTP status of what does not exist.
const NOT_FOUND: u16 = 404;

/// Lists objects of one namespace or of all, and notes what can't be read.
pub(crate) struct Reader {
    pub(crate) client: Client,
    namespace: Option<String>,
    /// What could not be read, and why.
    pub(crate) unread: Vec<String>,
}

impl Reader {
    pub(crate) fn new(client: Client, namespace: Option<String>) -> Self {
        Self { client, namespace, unread: Vec::new() }
    }

    /// Objects of the namespace that is looked at, or of all.
    pub(crate) async fn namespaced<K>(&mut self, selector: &str) -> Vec<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
    {
        let api: Api<K> = match &self.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        self.list(&api, &K::plural(&()), selector).await
    }

    /// Objects of one namespace, whichever is looked at.
    pub(crate) async fn of_namespace<K>(&mut self, namespace: &str) -> Vec<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), namespace);
        self.list(&api, &K::plural(&()), "").await
    }

    /// Objects of all namespaces, or without one.
    pub(crate) async fn everywhere<K>(&mut self, selector: &str) -> Vec<K>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let api: Api<K> = Api::all(self.client.clone());
        self.list(&api, &K::plural(&()), selector).await
    }

    /// Objects of a kind that may not be installed.
    pub(crate) async fn dynamic<K>(&mut self, kind: &K::DynamicType) -> Vec<K>
    where
        K: Resource<Scope = DynamicResourceScope> + Clone + DeserializeOwned + Debug,
    {
        let api: Api<K> = Api::all_with(self.client.clone(), kind);
        self.list(&api, &K::plural(kind), "").await
    }

    async fn list<K>(&mut self, api: &Api<K>, plural: &str, selector: &str) -> Vec<K>
    where
        K: Resource + Clone + DeserializeOwned + Debug,
    {
        let listed = unreadable::list(api, &ListParams::default().labels(selector)).await;
        let listed = listed.map(|(items, unreadable)| {
            self.unread.extend(unreadable.iter().map(|one| format!("{plural} {one}")));
            items
        });
        self.taken(plural, listed)
    }

    /// Objects of one namespace, or of those that are looked at, without their contents.
    pub(crate) async fn outlines<K>(&mut self, namespace: Option<&str>) -> Vec<PartialObjectMeta<K>>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
    {
        let api: Api<K> = match namespace.or(self.namespace.as_deref()) {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        let listed = api.list_metadata(&ListParams::default()).await;
        self.taken(&K::plural(&()), listed.map(|list| list.items))
    }

    fn taken<T>(&mut self, plural: &str, listed: kube::Result<Vec<T>>) -> Vec<T> {
        match listed {
            Ok(items) => items,
            // Not installed. The answer to a group that nobody serves is text, so that its reason is not to be had.
            Err(kube::Error::Api(status)) if status.code == NOT_FOUND => Vec::new(),
            Err(error) => {
                self.unread.push(format!("{plural}: {error}"));
                Vec::new()
            }
        }
    }
}
