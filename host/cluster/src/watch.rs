//! Watches that fill stores, and say whom a change concerns.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::NamespaceResourceScope;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{self, Store};
use kube::runtime::utils::Backoff;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Resource, ResourceExt};
use pacer_core::shard::Share;
use serde::de::DeserializeOwned;
use tokio::sync::watch::Receiver;

use crate::answer::{is_forbidden, is_not_found};
use crate::index::{Index, Indexer, Keys};
use crate::unreadable::{self, LeftOut};

/// A watch that failed is tried again after this at the latest. There is one per kind and one operator that acts, so that a short time costs
/// the API server little, and until then decisions are made on what was true before.
const RETRY: Duration = Duration::from_secs(5);

/// Objects that changed, appeared or vanished, for as long as they are polled.
pub type Changes<K> = futures::stream::BoxStream<'static, Result<K, watcher::Error>>;

/// Whether each of some stores holds what the API server has, and how many objects none of them can hold. A store's own way to wait wakes one
/// waiter only.
#[derive(Clone, Debug, Default)]
pub struct Filled {
    all: Vec<Receiver<bool>>,
    /// Of each watched kind, how many objects cannot be read.
    unreadable: Vec<(String, Arc<AtomicUsize>)>,
}

impl Filled {
    /// Waits until all of them do. False when a watch ended before.
    pub async fn wait(&self) -> bool {
        for filled in &self.all {
            if filled.clone().wait_for(|filled| *filled).await.is_err() {
                return false;
            }
        }
        true
    }

    /// Something else that has to be known before anything is decided.
    pub fn also(&mut self, known: Receiver<bool>) {
        self.all.push(known);
    }

    /// Whether all of them do.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.all.iter().all(|filled| *filled.borrow())
    }

    /// Each watched kind, and how many of its objects the API server has and no store, because they [cannot be read](crate::unreadable).
    pub fn unreadable(&self) -> impl Iterator<Item = (&str, usize)> {
        self.unreadable.iter().map(|(kind, count)| (kind.as_str(), count.load(Ordering::Relaxed)))
    }
}

/// Which namespaces are watched.
#[derive(Clone, Copy, Debug, Default)]
pub struct Range<'a> {
    /// Only this one; all when none.
    pub namespace: Option<&'a str>,
    /// Of them those of this share; all when none. The API server sends the others as well, and they are dropped as they come.
    pub share: Option<Share>,
}

impl Range<'_> {
    /// Whether objects of a namespace are seen.
    #[must_use]
    pub fn has(self, namespace: &str) -> bool {
        self.namespace.is_none_or(|only| only == namespace) && self.share.is_none_or(|share| share.has(namespace))
    }
}

impl<'a> From<Option<&'a str>> for Range<'a> {
    fn from(namespace: Option<&'a str>) -> Self {
        Self { namespace, share: None }
    }
}

/// Whether an event is of an object in the share, or of no object.
fn concerns<K: Resource>(event: &watcher::Event<K>, share: Option<Share>) -> bool {
    let (Some(share), watcher::Event::Apply(object) | watcher::Event::Delete(object) | watcher::Event::InitApply(object)) =
        (share, event)
    else {
        return true;
    };
    object.meta().namespace.as_deref().is_some_and(|namespace| share.has(namespace))
}

/// Prepares a watch and its store, in one namespace or in all. `trim` drops what is never read before an object is stored; `filled` learns of
/// the store.
pub fn watch<'a, K>(
    client: &Client,
    range: impl Into<Range<'a>>,
    config: watcher::Config,
    trim: impl FnMut(&mut K) + Send + 'static,
    filled: &mut Filled,
) -> (Store<K>, Changes<K>)
where
    K: Resource<Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Default + Eq + Hash + Clone,
{
    let (store, writer) = reflector::store();
    let changes = fill(client, range.into(), config, trim, (|_| {}, |_| {}), (store.clone(), writer), filled);
    (store, changes)
}

/// As [`watch`], with an [index](crate::index) of the store by what `keys` says.
pub fn watch_with_index<'a, K, Key>(
    client: &Client,
    range: impl Into<Range<'a>>,
    config: watcher::Config,
    trim: impl FnMut(&mut K) + Send + 'static,
    keys: Keys<K, Key>,
    filled: &mut Filled,
) -> (Store<K>, Index<K, Key>, Changes<K>)
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    Key: Eq + Hash + Send + Sync + 'static,
{
    let (store, writer) = reflector::store();
    let mut indexer = Indexer::new(store.clone(), keys);
    let (index, tell) = (indexer.index(), indexer.teller());
    let note = move |event: &watcher::Event<K>| indexer.note(event);
    let changes = fill(client, range.into(), config, trim, (note, tell), (store.clone(), writer), filled);
    (store, index, changes)
}

/// The events of a watch, each of which `note` sees before it is in the store, and `tell` after that.
fn fill<K>(
    client: &Client,
    Range { namespace, share }: Range<'_>,
    config: watcher::Config,
    trim: impl FnMut(&mut K) + Send + 'static,
    (mut note, tell): (impl FnMut(&watcher::Event<K>) + Send + 'static, impl Fn(&watcher::Event<K>) + Send + 'static),
    (store, writer): (Store<K>, Writer<K>),
    filled: &mut Filled,
) -> Changes<K>
where
    K: Resource<Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Default + Eq + Hash + Clone,
{
    let (is_filled, receiver) = tokio::sync::watch::channel(false);
    filled.all.push(receiver);
    let unreadable = Arc::new(AtomicUsize::new(0));
    filled.unreadable.push((K::kind(&K::DynamicType::default()).into_owned(), unreadable.clone()));
    let left_out = LeftOut::new(store.clone(), share, unreadable);
    let watched = unreadable::watch(client, namespace, config, left_out).backoff(WatchBackoff::default());
    let ours = watched.try_filter(move |event| std::future::ready(concerns(event, share)));
    let noted = ours.modify(trim).inspect_ok(move |event| note(event));
    let events = noted.reflect(writer).inspect_ok(move |event| {
        tell(event);
        if matches!(event, watcher::Event::InitDone) {
            is_filled.send_replace(true);
        }
    });
    changed(events, move || store.state()).boxed()
}

/// kube's pauses after failures, cut off at [`RETRY`].
#[derive(Default)]
struct WatchBackoff(watcher::DefaultBackoff);

impl Iterator for WatchBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.0.next().map(|pause| pause.min(RETRY))
    }
}

impl Backoff for WatchBackoff {
    fn reset(&mut self) {
        self.0.reset();
    }
}

/// Logs that a watch failed, with what to do about it where people have to do something.
pub fn warn_of_failure<K: Resource<DynamicType = ()>>(error: &watcher::Error) {
    let kind = K::kind(&());
    let answer = match error {
        watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) => Some(error),
        _ => None,
    };
    if answer.is_some_and(is_not_found) {
        let cure = "install the definitions of this version with `pacer crds apply`; Helm does not upgrade them";
        tracing::error!(%kind, %error, cure, "this kind is not defined in the cluster, and nothing is done until it is");
    } else if answer.is_some_and(is_forbidden) {
        let cure = "install the roles of this version; `pacer doctor` names the rights that are missing";
        tracing::error!(%kind, %error, cure, "this kind may not be watched, and nothing is done until it may");
    } else {
        tracing::warn!(%kind, %error, "watch failed, trying again");
    }
}

/// The objects to reconcile because of a watch's events.
///
/// What a listing brings is in the store only once the listing is complete, so that everything is reconciled then: an object whose turn came
/// earlier would not be found, and would not be reconciled again. What the listing lacks vanished while the watch was interrupted.
fn changed<K, E>(
    events: impl Stream<Item = Result<watcher::Event<K>, E>> + Send,
    stored: impl Fn() -> Vec<Arc<K>> + Send,
) -> impl Stream<Item = Result<K, E>> + Send
where
    K: Resource + Clone + Send + Sync,
    E: Send,
{
    let mut before = Vec::new();
    events
        .map(move |event| match event {
            Err(error) => vec![Err(error)],
            Ok(watcher::Event::Apply(object) | watcher::Event::Delete(object)) => vec![Ok(object)],
            Ok(watcher::Event::Init) => {
                before = stored();
                Vec::new()
            }
            Ok(watcher::Event::InitApply(_)) => Vec::new(),
            Ok(watcher::Event::InitDone) => {
                let now = stored();
                let present: HashSet<_> = now.iter().filter_map(|object| object.uid()).collect();
                let vanished = std::mem::take(&mut before);
                let vanished = vanished.iter().filter(|object| object.uid().is_some_and(|uid| !present.contains(&uid)));
                vanished.chain(&now).map(|object| Ok(K::clone(object))).collect()
            }
        })
        .flat_map(futures::stream::iter)
}

/// Drops what no controller reads of any kind.
pub fn trim<K: Resource>(object: &mut K) {
    trim_metadata(object.meta_mut());
    if let Some(annotations) = &mut object.meta_mut().annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
}

/// As [`trim`], of metadata alone and without its annotations. Lists that were read from JSON have room for four entries at least, and they
/// are kept for as long as their object is.
pub fn trim_metadata(metadata: &mut ObjectMeta) {
    metadata.managed_fields = None;
    metadata.owner_references.iter_mut().for_each(Vec::shrink_to_fit);
    metadata.finalizers.iter_mut().for_each(Vec::shrink_to_fit);
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use kube::runtime::watcher::Event;
    use pacer_api::Runner;

    use super::*;

    #[test]
    fn objects_of_other_shards_are_dropped_and_the_ends_of_listings_are_not() {
        let shards = pacer_core::shard::Shards::new(2).unwrap();
        let of = |shard| {
            let share = Some(Share { shards, shard });
            let object = || {
                let mut object = runner("a");
                object.metadata.namespace = Some("team-a".to_owned());
                object
            };
            let events =
                [Event::Apply(object()), Event::Delete(object()), Event::InitApply(object()), Event::Init, Event::InitDone];
            events.map(|event| concerns(&event, share))
        };
        assert_eq!(shards.of("team-a"), 1);
        assert_eq!((of(0), of(1)), ([false, false, false, true, true], [true; 5]));
        assert!(concerns(&Event::Apply(runner("a")), None));
    }

    #[test]
    fn range_has_the_namespaces_that_its_name_and_its_share_both_admit() {
        // Of the two shards, "team-a" is in the second one.
        let share = |shard| Share { shards: pacer_core::shard::Shards::new(2).unwrap(), shard };
        for (namespace, share, expected) in [
            (None, None, true),
            (Some("team-a"), None, true),
            (Some("other"), None, false),
            (None, Some(share(1)), true),
            (None, Some(share(0)), false),
            (Some("team-a"), Some(share(0)), false),
        ] {
            assert_eq!(Range { namespace, share }.has("team-a"), expected, "{namespace:?} {share:?}");
        }
    }

    fn runner(name: &str) -> Runner {
        let mut runner = Runner::default();
        runner.metadata.name = Some(name.to_owned());
        runner.metadata.uid = Some(format!("uid of {name}"));
        runner
    }

    #[tokio::test]
    async fn new_listing_shows_what_came_and_went_when_it_is_stored() {
        let stored = Mutex::new(vec![Arc::new(runner("old")), Arc::new(runner("gone"))]);
        let events: [Event<Runner>; 5] = [
            Event::Init,
            Event::InitApply(runner("old")),
            Event::InitApply(runner("new")),
            Event::InitDone,
            Event::Delete(runner("old")),
        ];
        // The store is exchanged before the end of a listing is passed on.
        let events = futures::stream::iter(events).map(|event| {
            if matches!(event, Event::InitDone) {
                *stored.lock().unwrap() = vec![Arc::new(runner("old")), Arc::new(runner("new"))];
            }
            Ok::<_, watcher::Error>(event)
        });
        let seen: Vec<String> =
            changed(events, || stored.lock().unwrap().clone()).map(|object| object.unwrap().name_any()).collect().await;
        assert_eq!(seen, ["gone", "old", "new", "old"]);
    }
}
