//! What is read from the cluster. A kind that is not installed has no objects; what is refused is noted.

use std::fmt::Debug;

use kube::api::ListParams;
use kube::core::{DynamicResourceScope, NamespaceResourceScope, PartialObjectMeta};
use kube::{Api, Client, Resource};
use pacer_cluster::unreadable::{self, Unreadable};
use serde::de::DeserializeOwned;

use crate::plain;

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
        let listed = unreadable::list_metadata(&api, &ListParams::default()).await;
        self.taken(&K::plural(&()), listed)
    }

    fn taken<T>(&mut self, plural: &str, listed: kube::Result<(Vec<T>, Vec<Unreadable>)>) -> Vec<T> {
        match listed {
            Ok((items, unreadable)) => {
                for one in unreadable {
                    let unread = format!("{plural} {one}");
                    // Some kinds are read more than once.
                    if !self.unread.contains(&unread) {
                        self.unread.push(unread);
                    }
                }
                items
            }
            // Not installed. The answer to a group that nobody serves is text, so that its reason is not to be had.
            Err(kube::Error::Api(status)) if status.code == NOT_FOUND => Vec::new(),
            Err(error) => {
                self.unread.push(format!("{plural}: {}", plain::causes(&error.into())));
                Vec::new()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use k8s_openapi::api::core::v1::{ConfigMap, Pod};
    use kube::ResourceExt as _;
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn what_cannot_be_read_is_noted_once_and_hides_nothing_else() {
        let service = tower::service_fn(|request: Request<Body>| async move {
            let (code, answer) = if request.uri().path().ends_with("/configmaps") {
                let map =
                    |name: &str, made: &str| json!({"metadata": {"name": name, "namespace": "ci", "creationTimestamp": made}});
                let items = [map("bad", "10000-01-01T00:00:00Z"), map("good", "2026-01-01T00:00:00Z")];
                (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items}))
            } else {
                (403, json!({"kind": "Status", "status": "Failure", "message": "no pods", "reason": "Forbidden", "code": 403}))
            };
            let answer = Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()));
            Ok::<_, tower::BoxError>(answer?)
        });
        let mut reader = Reader::new(Client::new(service, "ci"), None);
        for namespace in [None, Some("ci")] {
            let maps = reader.outlines::<ConfigMap>(namespace).await;
            assert_eq!(maps.iter().map(|map| map.name_any()).collect::<Vec<_>>(), ["good"]);
        }
        assert!(reader.namespaced::<Pod>("").await.is_empty());
        let [map, pods] = reader.unread.as_slice() else { panic!("{:?}", reader.unread) };
        assert!(map.starts_with("configmaps ci/bad: "), "{map}");
        assert_eq!(pods, "pods: no pods: Forbidden");
    }
}
