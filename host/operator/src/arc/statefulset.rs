//! Pods that ARC made for a RunnerSet: one StatefulSet each, which goes, while the runner stays.
//!
//! ```text
//! pod of a StatefulSet of the set -> Runner of its name -> StatefulSet deleted as an orphan's parent -> pod owned by the Runner
//! ```
//!
//! Each step is taken again until the pod belongs to its Runner, so that it does not matter where the last operator was stopped. The Runner
//! counts as one of the newest template: the pod runs, and what it was made from nobody can tell from ARC's hash. Meanwhile the set makes no
//! runners, or it would make those again that are about to be its own.

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy};
use kube::core::Status;
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt};
use pacer_api::{Runner, RunnerReplicaSet, RunnerSet};
use pacer_cluster::answer::{ignore_not_found, precondition_held, status};
use pacer_cluster::clock::Clock;
use pacer_cluster::events::Reason;
use pacer_cluster::object::Uid;
use serde_json::json;

use crate::cluster::Cluster;
use crate::error::Error;
use crate::pod::PodIdentity;
use crate::published::{AdoptedRunners, Owned, Published};
use crate::runner_pod::RunnerPod;
use crate::stores::Stores;
use crate::template;

/// The StatefulSet that owns a runner's pod.
fn stateful_owner(pod: &RunnerPod) -> Option<&OwnerReference> {
    pod.owner_references().iter().find(|owner| owner.controller == Some(true) && owner.kind == "StatefulSet")
}

/// Whether a pod is one that ARC left and that its Runner has not been given yet.
pub(crate) fn awaits_runner(pod: &RunnerPod) -> bool {
    stateful_owner(pod).is_some() || pod.owner_references().is_empty() && pod.facts.held
}

/// Pods of a RunnerSet that belong to a StatefulSet, or did before this was begun.
pub(crate) fn pods(stores: &Stores, namespace: &str, set: &str) -> Vec<Arc<RunnerPod>> {
    let begun = |pod: &RunnerPod| {
        let runner = ObjectRef::new(&pod.name_any()).within(namespace);
        pod.owner_references().is_empty() && stores.runners.get(&runner).is_some()
    };
    let mut found = stores.pods_of_runner_set(namespace, set);
    found.retain(|pod| awaits_runner(pod) || begun(pod));
    found
}

/// Takes over pods of StatefulSets.
pub(crate) struct StatefulSets {
    cluster: Cluster,
    adopted: Owned<Uid, AdoptedRunners>,
}

impl StatefulSets {
    /// Nothing taken over yet.
    pub(crate) fn new(cluster: Cluster) -> Self {
        Self { cluster, adopted: Owned::default() }
    }

    /// Runners that were made for pods.
    pub(crate) fn adopted(&self) -> Published<Uid, AdoptedRunners> {
        self.adopted.reader()
    }

    /// Forgets runners that the watch has shown long ago.
    pub(crate) fn sweep(&self, now: Instant) {
        self.adopted.retain(|_, adopted| adopted.keep_recent(now));
    }

    /// Takes the pods that ARC left of a RunnerSet over as runners of its newest RunnerReplicaSet.
    ///
    /// # Errors
    ///
    /// When the API server refuses.
    pub(crate) async fn adopt(&self, set: &RunnerSet, newest: &RunnerReplicaSet, clock: Clock) -> Result<(), Error> {
        for pod in pods(&self.cluster.stores, &set.namespace().unwrap_or_default(), &set.name_any()) {
            self.adopt_pod(set, newest, &pod, clock).await?;
        }
        Ok(())
    }

    async fn adopt_pod(&self, set: &RunnerSet, newest: &RunnerReplicaSet, pod: &RunnerPod, clock: Clock) -> Result<(), Error> {
        let namespace = pod.namespace().unwrap_or_default();
        let name = pod.name_any();
        let runner = match self.cluster.stores.runner(&namespace, &name) {
            Some(runner) => runner,
            None => Arc::new(self.make(newest, &name, clock).await?),
        };
        if let Some(owner) = stateful_owner(pod) {
            let orphan = DeleteParams {
                propagation_policy: Some(PropagationPolicy::Orphan),
                preconditions: Some(Preconditions { uid: Some(owner.uid.clone()), resource_version: None }),
                ..DeleteParams::default()
            };
            precondition_held(self.cluster.api::<StatefulSet>(&namespace).delete(&owner.name, &orphan).await)?;
        }
        let PodIdentity { owner, .. } = PodIdentity::of(&runner).map_err(|_| Error::Incomplete("Runner", "UID"))?;
        // ARC's finalizers stay until the runner is done, as on the pods of Runners.
        let patch = json!({"metadata": {"resourceVersion": pod.resource_version(), "ownerReferences": [owner]}});
        let patch = Patch::Merge(&patch);
        match self.cluster.api::<Pod>(&namespace).patch_metadata(&name, &PatchParams::default(), &patch).await {
            // Changed since; the watch shows how.
            Err(error) if status(&error).is_some_and(Status::is_conflict) => {}
            outcome => {
                ignore_not_found(outcome)?;
                tracing::info!(namespace, runner = name, set = set.name_any(), "pod of a StatefulSet taken over");
                let about = Some(runner.object_ref(&()));
                let note = format!("took over runner {name}");
                self.cluster.events.publish(Reason::StatefulSetAdopted, &set.object_ref(&()), about, &note).await;
            }
        }
        Ok(())
    }

    /// The Runner of a pod that exists.
    async fn make(&self, newest: &RunnerReplicaSet, name: &str, clock: Clock) -> Result<Runner, Error> {
        let runner = template::runner(newest, name.to_owned(), None);
        self.adopted.change(&Uid::of(newest)?, |adopted| adopted.add(name.to_owned(), clock.instant));
        Ok(self.cluster.beside(newest).create(&PostParams::default(), &runner).await?)
    }
}
