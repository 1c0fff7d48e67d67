//! Kubernetes as every controller uses it.

use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt};
use pacer_cluster::events::Events;
use pacer_cluster::precedence::Precedence;

use crate::stores::Stores;
use crate::target::TargetRef;
use crate::wake::Wake;

/// The API server, what the watches know of it, and who is told of changes.
#[derive(Clone)]
pub struct Cluster {
    /// Client of the API server.
    pub client: Client,
    /// What the watches know.
    pub stores: Stores,
    /// Publishes Kubernetes Events; a lost one is only logged.
    pub events: Events,
    /// Which objects are reconciled soon.
    pub wake: Wake,
    /// What goes first where much is written.
    pub precedence: Precedence,
}

impl Cluster {
    /// Objects of a kind in one namespace.
    #[must_use]
    pub fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Objects of a kind in the namespace of another one.
    #[must_use]
    pub fn beside<K>(&self, object: &impl Resource) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        self.api(object.meta().namespace.as_deref().unwrap_or_default())
    }

    /// The autoscalers of a target are reconciled soon.
    pub async fn wake_autoscalers_of(&self, target: &TargetRef) {
        for autoscaler in self.stores.autoscalers_of(target) {
            self.wake.autoscaler(&target.namespace, &autoscaler.name_any()).await;
        }
    }
}
