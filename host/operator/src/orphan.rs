//! Runners and sets whose owner is gone.
//!
//! The garbage collector of kube-controller-manager deletes them, normally within a second. After a restart of the API server its watches
//! back off for up to a minute each time they fail, and runners that were made for a set just after its deletion it may never look at. Their
//! pods would go on taking jobs. So the operator looks for itself: what lost its owner a while ago is deleted, and drains like everything
//! that is deleted.
//!
//! ```text
//! stores -> owners that are missing -> missing for a while -> the API server has none of that UID either -> delete what they own
//! ```
//!
//! `kubectl delete --cascade=orphan` takes the ownerReference away, and a foreground deletion keeps the owner until all it owns is gone:
//! neither leaves anything to be found here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use kube::api::{DeleteParams, Preconditions};
use kube::core::NamespaceResourceScope;
use kube::runtime::reflector::Store;
use kube::{Api, Client, Resource, ResourceExt};
use pacer_api::{Runner, RunnerDeployment, RunnerReplicaSet, RunnerSet, names};
use pacer_cluster::answer::precondition_held;
use pacer_cluster::live;
use serde::de::DeserializeOwned;

use crate::settings::{FAN_OUT, ORPHAN_GRACE};
use crate::stores::Stores;

/// An owner that objects name and that the store of its kind lacks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Missing {
    namespace: String,
    name: String,
    uid: String,
}

/// Since when owners have been missing.
#[derive(Debug, Default)]
struct Absences {
    since: BTreeMap<Missing, Instant>,
}

impl Absences {
    /// Records those that are missing now, and tells which have been for as long as `grace`.
    fn due(&mut self, missing: BTreeSet<Missing>, now: Instant, grace: Duration) -> Vec<Missing> {
        self.since.retain(|owner, _| missing.contains(owner));
        for owner in missing {
            self.since.entry(owner).or_insert(now);
        }
        self.since
            .iter()
            .filter(|(_, since)| now.saturating_duration_since(**since) >= grace)
            .map(|(owner, _)| owner.clone())
            .collect()
    }
}

/// Looks for orphans from when the stores are full, for as long as it is polled.
pub(crate) async fn search(client: &Client, stores: &Stores, sync_period: Duration) {
    if !stores.full().await {
        return;
    }
    let grace = sync_period.clamp(Duration::from_secs(1), ORPHAN_GRACE);
    let (mut deployments, mut runner_sets, mut sets) = (Absences::default(), Absences::default(), Absences::default());
    let mut registrations = Absences::default();
    loop {
        tokio::time::sleep(grace).await;
        round::<RunnerDeployment, RunnerReplicaSet>(client, &stores.deployments, &stores.sets, &mut deployments, grace).await;
        round::<RunnerDeployment, Runner>(client, &stores.deployments, &stores.runners, &mut registrations, grace).await;
        round::<RunnerSet, RunnerReplicaSet>(client, &stores.runner_sets, &stores.sets, &mut runner_sets, grace).await;
        round::<RunnerReplicaSet, Runner>(client, &stores.sets, &stores.runners, &mut sets, grace).await;
    }
}

/// One look at everything of kind `D` that objects of kind `O` own.
async fn round<O, D>(client: &Client, owners: &Store<O>, dependents: &Store<D>, absences: &mut Absences, grace: Duration)
where
    O: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + 'static,
    D: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + 'static,
{
    let kind = O::kind(&());
    let known: BTreeSet<String> = owners.state().iter().filter_map(|owner| owner.uid()).collect();
    let found = dependents.state();
    let missing = found.iter().filter_map(|object| orphaned(&**object, &kind, &known)).collect();
    for owner in absences.due(missing, Instant::now(), grace) {
        let outcome = match live::metadata_of::<O>(client, &owner.namespace, &owner.name, &owner.uid).await {
            // The watch is late.
            Ok(Some(_)) => continue,
            Ok(None) => {
                let left = found.iter().filter(|object| orphaned(&***object, &kind, &known).as_ref() == Some(&owner));
                delete(client, left.map(AsRef::as_ref)).await
            }
            Err(error) => Err(error),
        };
        let Missing { namespace, name, .. } = &owner;
        match outcome {
            Ok(0) => {}
            Ok(deleted) => tracing::warn!(
                namespace,
                owner = format!("{kind}/{name}"),
                deleted,
                objects = %D::plural(&()),
                "the owner is gone and the cluster's garbage collector left what it owned; deleted"
            ),
            Err(error) => tracing::warn!(
                namespace,
                owner = format!("{kind}/{name}"),
                objects = %D::plural(&()),
                %error,
                "the owner is gone and what it owned could not be deleted, trying again"
            ),
        }
    }
}

/// The only owner of an object, if it is of that kind and not among the known ones. An object that is on its way out needs nobody, and one
/// with further owners is left to the garbage collector, which knows all kinds.
fn orphaned<K: Resource>(object: &K, kind: &str, known: &BTreeSet<String>) -> Option<Missing> {
    let [owner] = object.owner_references() else { return None };
    let ours = owner.controller == Some(true) && owner.kind == kind && owner.api_version == names::API_VERSION;
    let left = ours && !known.contains(&owner.uid) && object.meta().deletion_timestamp.is_none();
    left.then(|| Missing { namespace: object.namespace().unwrap_or_default(), name: owner.name.clone(), uid: owner.uid.clone() })
}

/// Deletes these objects as they were seen: one whose ownerReference was taken away meanwhile has another resource version and stays.
/// Returns how many went.
async fn delete<'a, D>(client: &Client, objects: impl Iterator<Item = &'a D>) -> Result<usize, kube::Error>
where
    D: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + 'a,
{
    // Owned: the stream below is part of a future that has to be Send for any lifetime.
    let chosen: Vec<(String, String, Preconditions)> = objects
        .map(|object| {
            let seen = Preconditions { uid: object.uid(), resource_version: object.resource_version() };
            (object.namespace().unwrap_or_default(), object.name_any(), seen)
        })
        .collect();
    let results: Vec<Result<bool, kube::Error>> = stream::iter(chosen)
        .map(|(namespace, name, seen)| async move {
            let api: Api<D> = Api::namespaced(client.clone(), &namespace);
            let as_seen = DeleteParams { preconditions: Some(seen), ..DeleteParams::background() };
            precondition_held(api.delete(&name, &as_seen).await)
        })
        .buffer_unordered(FAN_OUT)
        .collect()
        .await;
    results.into_iter().try_fold(0, |count, result| Ok(count + usize::from(result?)))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};

    use super::*;

    const GRACE: Duration = Duration::from_secs(30);

    fn owner(uid: &str) -> OwnerReference {
        OwnerReference {
            api_version: names::API_VERSION.to_owned(),
            kind: "RunnerReplicaSet".to_owned(),
            name: format!("set-{uid}"),
            uid: uid.to_owned(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }
    }

    fn runner(owners: Vec<OwnerReference>) -> Runner {
        let mut runner = Runner::default();
        runner.metadata.namespace = Some("ci".to_owned());
        runner.metadata.owner_references = Some(owners);
        runner
    }

    fn missing(uid: &str) -> Missing {
        Missing { namespace: "ci".to_owned(), name: format!("set-{uid}"), uid: uid.to_owned() }
    }

    #[test]
    fn only_what_has_lost_its_one_owner_is_an_orphan() {
        let known = BTreeSet::from(["here".to_owned()]);
        let of = |runner: Runner| orphaned(&runner, "RunnerReplicaSet", &known);
        assert_eq!(of(runner(vec![owner("gone")])), Some(missing("gone")));

        assert_eq!(of(runner(vec![owner("here")])), None, "its owner exists");
        assert_eq!(of(runner(Vec::new())), None, "stand-alone, or deleted with --cascade=orphan");
        assert_eq!(of(runner(vec![owner("gone"), owner("other")])), None, "more owners than one");
        assert_eq!(of(runner(vec![OwnerReference { controller: None, ..owner("gone") }])), None, "not its controller");
        assert_eq!(of(runner(vec![OwnerReference { kind: "Foo".to_owned(), ..owner("gone") }])), None, "another kind");
        let foreign = OwnerReference { api_version: "example.com/v1".to_owned(), ..owner("gone") };
        assert_eq!(of(runner(vec![foreign])), None, "another group");
        let mut leaving = runner(vec![owner("gone")]);
        leaving.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
        assert_eq!(of(leaving), None, "on its way out");
    }

    #[test]
    fn the_garbage_collector_gets_its_time_and_a_return_starts_it_anew() {
        let start = Instant::now();
        let mut absences = Absences::default();
        let mut due = |uids: &[&str], seconds| {
            let missing = uids.iter().map(|uid| missing(uid)).collect();
            let due = absences.due(missing, start + Duration::from_secs(seconds), GRACE);
            due.into_iter().map(|owner| owner.uid).collect::<Vec<_>>()
        };
        assert_eq!(due(&["a"], 0), [""; 0]);
        assert_eq!(due(&["a", "b"], 29), [""; 0]);
        assert_eq!(due(&["a", "b"], 30), ["a"]);
        assert_eq!(due(&["b"], 40), [""; 0], "the objects of a are gone");
        assert_eq!(due(&["a", "b"], 59), ["b"]);
        assert_eq!(due(&["a"], 88), [""; 0], "missing anew since 59 s");
        assert_eq!(due(&["a"], 89), ["a"]);
    }
}
