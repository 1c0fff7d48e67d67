//! Starts a life cycle for every policy set that a pool asks for, and ends those of policy sets that no pool asks for any more.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use pacer_cluster::object::ObjectKey;
use tokio::task::{Id, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::history::{self, History};
use crate::lifecycle::Lifecycle;
use crate::{Cluster, PolicySets, START_PATIENCE};

/// A life cycle that ended although it must not is started again after this.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// Runs the life cycles until `stop`. `referenced` lists the policy sets that objects in the namespaces accepted by `serves` ask for. Once per `period`,
/// the life cycles of all other policy sets end. While `referenced` returns `None`, because not all of these objects are known, none ends. The history of what nobody asked for when
/// the process began is deleted at the end of the first period in which they are known.
pub async fn run(
    sets: Arc<PolicySets>,
    cluster: Cluster,
    referenced: impl Fn() -> Option<BTreeSet<ObjectKey>>,
    serves: impl Fn(&str) -> bool,
    period: Duration,
    stop: CancellationToken,
) {
    let mut is_swept = false;
    let mut wanted = sets.wanted.subscribe();
    let mut lifecycles: JoinSet<()> = JoinSet::new();
    let mut running: HashMap<ObjectKey, (Id, CancellationToken)> = HashMap::new();
    loop {
        let asked: BTreeSet<ObjectKey> = wanted.borrow_and_update().clone();
        for key in asked.iter().filter(|key| !running.contains_key(key)).cloned().collect::<Vec<_>>() {
            let token = stop.child_token();
            let (mut lifecycle, until) = (Lifecycle::new(key.clone(), sets.clone(), cluster.clone()), token.clone());
            let task = lifecycles.spawn(async move {
                if until.run_until_cancelled(lifecycle.run()).await.is_none() {
                    lifecycle.interrupted().await;
                }
            });
            running.insert(key, (task.id(), token));
        }
        for key in running.keys().filter(|key| !asked.contains(key)).cloned().collect::<Vec<_>>() {
            if let Some((_, token)) = running.remove(&key) {
                token.cancel();
            }
            is_swept &= forget(&sets, &cluster, &key).await;
        }
        tokio::select! {
            _ = wanted.changed() => {}
            Some(ended) = lifecycles.join_next_with_id() => {
                let id = ended.as_ref().map_or_else(tokio::task::JoinError::id, |(id, ())| *id);
                let key = running.iter().find(|(_, (task, _))| *task == id).map(|(key, _)| key.clone());
                // One that was told to end is not among the running any more.
                if let Some(key) = key {
                    tracing::error!(set = %key, panicked = ended.is_err(), "a policy set is no longer watched; starting again");
                    running.remove(&key);
                    sleep(RESTART_PAUSE).await;
                }
            }
            () = sleep(period) => {
                let Some(mut referenced) = referenced() else { continue };
                referenced.extend(sets.options.default.clone());
                sets.wanted.send_if_modified(|wanted| {
                    let before = wanted.len();
                    wanted.retain(|key| referenced.contains(key));
                    *wanted = sets.within_limits(wanted);
                    wanted.len() != before
                });
                // Those that have a life cycle are forgotten when it ends; of others it takes a look to know.
                if !is_swept {
                    let is_gone = |key: &ObjectKey| {
                        serves(&key.namespace) && !referenced.contains(key) && !sets.wanted.borrow().contains(key)
                    };
                    is_swept = sweep(&sets, &cluster, is_gone).await;
                }
            }
            () = stop.cancelled() => break,
        }
    }
    while lifecycles.join_next().await.is_some() {}
}

/// Asks for these policy sets and waits until they have been staged or refused, so that a restart begins with the policies that decided
/// before it.
pub async fn prime(sets: &PolicySets, referenced: BTreeSet<ObjectKey>) {
    if sets.builtin_only() {
        return;
    }
    for key in &referenced {
        sets.want(key);
    }
    if timeout(START_PATIENCE, sets.settled()).await.is_err() {
        tracing::warn!(
            "some policy sets could not be staged in time; until they are, their pools are scaled up as others say, and no idle or failed runner is removed"
        );
    }
}

/// Returns whether nothing is left of it.
async fn forget(sets: &PolicySets, cluster: &Cluster, key: &ObjectKey) -> bool {
    sets.withdraw(key);
    if !sets.tells(key) {
        return true;
    }
    let history = History::new(cluster.client.clone(), &sets.options.namespace, key.clone());
    let outcome = history.forget().await;
    match &outcome {
        Ok(()) => tracing::info!(set = %key, "policy set not asked for any more"),
        Err(error) => tracing::warn!(set = %key, %error, "history of a policy set that no pool asks for not deleted"),
    }
    outcome.is_ok()
}

/// Returns whether nothing is left of policy sets that are gone.
async fn sweep(sets: &PolicySets, cluster: &Cluster, is_gone: impl Fn(&ObjectKey) -> bool) -> bool {
    match history::sweep(cluster.client.clone(), &sets.options.namespace, is_gone).await {
        Ok(0) => true,
        Ok(entries) => {
            tracing::info!(entries, "deleted the history of policy sets that no pool asks for");
            true
        }
        Err(error) => {
            tracing::warn!(%error, "could not delete the history of policy sets that no pool asks for; trying again");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Method, Request, Response};
    use kube::Client;
    use kube::client::Body;
    use pacer_cluster::events::Events;
    use pacer_policy::{Counters, PolicyHost};
    use pacer_registry::{Registries, VerificationKeys};
    use serde_json::json;
    use tokio::sync::mpsc;

    use super::*;
    use crate::Options;

    #[tokio::test(start_paused = true)]
    async fn history_stays_until_it_is_known_what_all_objects_ask_for() {
        let gone = ObjectKey::new("ci", "gone");
        let meta = json!({
            "name": "old", "labels": {history::LABEL: history::label(&gone)}, "annotations": {history::SOURCE: gone.to_string()},
        });
        let entry = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": meta});
        let (asked, deleted) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(None)));
        let stop = CancellationToken::new();
        let (looks, seen, end) = (asked.clone(), deleted.clone(), stop.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let answer = if *request.method() == Method::DELETE {
                *seen.lock().unwrap() = Some(looks.load(Ordering::Relaxed));
                end.cancel();
                json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"})
            } else {
                json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "items": [entry]})
            };
            async move { Ok::<_, kube::Error>(Response::new(Body::from(answer.to_string().into_bytes()))) }
        });
        let client = Client::new(service, "own");
        let options = Options { default: None, namespace: "own".to_owned(), builtin_only: false, default_is_anothers: false };
        let host = Arc::new(PolicyHost::new(Arc::new(Counters::default())));
        let sets = Arc::new(PolicySets::new(host, Registries::new(VerificationKeys::default(), 0), options));
        let (changed, _changes) = mpsc::channel(8);
        let cluster = Cluster { events: Events::new(client.clone(), "test".to_owned()), client, changed };
        let referenced = || (asked.fetch_add(1, Ordering::Relaxed) >= 3).then(BTreeSet::new);
        let supervised = run(sets, cluster, referenced, |_| true, Duration::from_secs(60), stop);
        timeout(Duration::from_secs(3_600), supervised).await.expect("the history is deleted in the end");
        assert_eq!(*deleted.lock().unwrap(), Some(4), "looks at what objects ask for before the first deletion");
    }
}
