//! Which policy sets the objects ask for, and which of them are reconciled when one changes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use pacer_api::names::annotation;
use pacer_cluster::object::ObjectKey;
use pacer_policyset::{PolicySets, supervisor};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::cluster::Cluster;
use crate::settings::Settings;
use crate::stores::Stores;
use crate::target::{Target, TargetRef};

/// Policy sets that have changed and whose pools are not woken yet; more make the life cycles wait.
const CHANGES: usize = 64;

/// The kinds whose objects may ask for a policy set.
const ASKING: [&str; 4] = ["HorizontalRunnerAutoscaler", "RunnerDeployment", "RunnerReplicaSet", "RunnerSet"];

/// Keeps the policy sets that objects ask for, and wakes the objects when one changes. Ends after `stop`.
pub(crate) async fn run(sets: Arc<PolicySets>, cluster: Cluster, settings: Arc<Settings>, stop: CancellationToken) {
    let (changed, mut changes) = mpsc::channel(CHANGES);
    let watched = pacer_policyset::Cluster { client: cluster.client.clone(), events: cluster.events.clone(), changed };
    let period = settings.sync_period.max(Duration::from_secs(1));
    // Of other namespaces nothing is known here.
    let serves =
        |namespace: &str| settings.serves(namespace) && settings.namespace.as_deref().is_none_or(|watched| watched == namespace);
    let stores = &cluster.stores;
    // An object that cannot be read may ask for a policy set, and so may one that is not listed yet.
    let is_known = || stores.are_full() && stores.unreadable().all(|(kind, objects)| objects == 0 || !ASKING.contains(&kind));
    let supervisor = supervisor::run(sets.clone(), watched, || is_known().then(|| referenced(stores)), serves, period, stop);
    let waking = async {
        while let Some(key) = changes.recv().await {
            wake_dependents(&cluster, sets.is_default(&key), &key).await;
        }
    };
    tokio::join!(supervisor, waking);
}

/// Asks for all policy sets that objects name and waits until they have been staged or refused. For the start, once all stores are full.
pub(crate) async fn prime(sets: &PolicySets, stores: &Stores) {
    supervisor::prime(sets, referenced(stores)).await;
}

/// The policy sets that annotations name.
fn referenced(stores: &Stores) -> BTreeSet<ObjectKey> {
    let key = |namespace: Option<String>, name: Option<&str>| {
        let name = name.map(str::trim).filter(|name| !name.is_empty())?;
        Some(ObjectKey::new(namespace?, name))
    };
    let targets = stores.targets();
    let of_targets =
        targets.iter().filter_map(|target| key(Some(target.namespace().to_owned()), target.policies().map(String::as_str)));
    let sets = stores.sets.state();
    // What their owners ask for now, not what they asked for when the RunnerReplicaSet was made.
    let of_sets = sets.iter().filter_map(|set| key(set.namespace(), stores.policy_set_of(set).as_deref()));
    let autoscalers = stores.autoscalers.state();
    let of_autoscalers = autoscalers
        .iter()
        .filter_map(|object| key(object.namespace(), object.annotations().get(annotation::POLICIES).map(String::as_str)));
    of_targets.chain(of_sets).chain(of_autoscalers).collect()
}

/// Wakes the objects that a policy set decides for.
async fn wake_dependents(cluster: &Cluster, default: bool, key: &ObjectKey) {
    let (stores, wake) = (&cluster.stores, &cluster.wake);
    let asks = |namespace: Option<String>, asked: Option<&String>| {
        asked.is_some_and(|name| name.trim() == key.name) && namespace.as_deref() == Some(key.namespace.as_str())
    };
    for target in stores.targets() {
        let asked = target.policies();
        // Also those whose own policy set leaves something to the default.
        if asks(Some(target.namespace().to_owned()), asked) || (default && asked.is_some()) {
            wake.target(&target.reference()).await;
        }
    }
    for autoscaler in stores.autoscalers.state() {
        let namespace = autoscaler.namespace();
        let target = TargetRef::of(&autoscaler).and_then(|target| stores.target(&target));
        let targets = target.as_ref().and_then(Target::policies);
        let own = autoscaler.annotations().get(annotation::POLICIES);
        if default || asks(namespace.clone(), own.or(targets)) {
            wake.autoscaler(&namespace.unwrap_or_default(), &autoscaler.name_any()).await;
        }
    }
    for set in stores.sets.state() {
        if default || asks(set.namespace(), stores.policy_set_of(&set).as_ref()) {
            wake.set(&set.namespace().unwrap_or_default(), &set.name_any()).await;
        }
    }
}
