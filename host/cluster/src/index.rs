//! Objects of a store by something else than their names, so that a reconcile costs what its own objects cost and not what there are of the kind.
//!
//! The watch keeps an index: it notes each event just before the store takes it. What an index names and the store does not have yet, or no
//! longer, is left out; whoever is to know of a change is woken after both. Whoever keeps something that it has read of the objects is
//! [told](Index::changes) which of them to read again.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::{Arc, PoisonError, RwLock};

use kube::Resource;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher::Event;
use tokio::sync::broadcast;

/// Which keys an object is found by.
pub type Keys<K, Key> = fn(&K) -> Vec<Key>;

/// Whatever number of keys an object has, its name is kept once.
type Entries<K, Key> = HashMap<Key, HashSet<Arc<ObjectRef<K>>>>;

/// Changes that a reader may be behind before it has to read everything again.
const BEHIND: usize = 512;

/// What a store has taken.
#[derive(Debug)]
pub enum Changed<K, Key>
where
    K: Resource<DynamicType = ()>,
{
    /// An object that appeared, changed or vanished.
    One {
        /// The object, by name and namespace.
        object: ObjectRef<K>,
        /// The keys it has, or had.
        keys: Vec<Key>,
    },
    /// A listing: any object may have changed.
    All,
}

/// The objects of one store by key.
pub struct Index<K, Key>
where
    K: Resource<DynamicType = ()> + 'static,
{
    store: Store<K>,
    entries: Arc<RwLock<Entries<K, Key>>>,
    changes: broadcast::Sender<Arc<Changed<K, Key>>>,
}

impl<K, Key> Clone for Index<K, Key>
where
    K: Resource<DynamicType = ()> + 'static,
{
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), entries: self.entries.clone(), changes: self.changes.clone() }
    }
}

/// An index of a store that stays empty.
impl<K, Key> Default for Index<K, Key>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
    Key: Eq + Hash,
{
    fn default() -> Self {
        Self::of(reflector::store().0)
    }
}

impl<K, Key> Index<K, Key>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
    Key: Eq + Hash,
{
    /// Of the objects of this store, none of which has been noted.
    fn of(store: Store<K>) -> Self {
        Self { store, entries: Arc::default(), changes: broadcast::Sender::new(BEHIND) }
    }

    /// All objects, by name.
    #[must_use]
    pub fn store(&self) -> &Store<K> {
        &self.store
    }

    /// What the store takes from now on, after it has.
    #[must_use]
    pub fn changes(&self) -> broadcast::Receiver<Arc<Changed<K, Key>>> {
        self.changes.subscribe()
    }

    /// The objects with this key, in no order.
    #[must_use]
    pub fn get(&self, key: &Key) -> Vec<Arc<K>> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.get(key).into_iter().flatten().filter_map(|object| self.store.get(object.as_ref())).collect()
    }
}

/// What keeps an index.
pub(crate) struct Indexer<K, Key>
where
    K: Resource<DynamicType = ()> + 'static,
{
    index: Index<K, Key>,
    keys: Keys<K, Key>,
    /// Of a listing that is not complete yet.
    listed: Entries<K, Key>,
}

impl<K, Key> Indexer<K, Key>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
    Key: Eq + Hash,
{
    /// Keeps an index over this store.
    pub(crate) fn new(store: Store<K>, keys: Keys<K, Key>) -> Self {
        Self { index: Index::of(store), keys, listed: HashMap::new() }
    }

    /// What tells of an event that the store has taken.
    pub(crate) fn teller(&self) -> impl Fn(&Event<K>) + use<K, Key> {
        let (changes, keys) = (self.index.changes.clone(), self.keys);
        move |event| {
            // Most indexes have nobody who listens.
            if changes.receiver_count() == 0 {
                return;
            }
            let changed = match event {
                Event::Apply(object) | Event::Delete(object) => {
                    Changed::One { object: ObjectRef::from_obj(object), keys: keys(object) }
                }
                Event::InitDone => Changed::All,
                Event::Init | Event::InitApply(_) => return,
            };
            let _nobody = changes.send(Arc::new(changed));
        }
    }

    /// For those who read.
    pub(crate) fn index(&self) -> Index<K, Key> {
        self.index.clone()
    }

    /// An event that the store is about to take.
    pub(crate) fn note(&mut self, event: &Event<K>) {
        let mut entries = self.index.entries.write().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Apply(object) => {
                let named = named(object);
                let keys = (self.keys)(object);
                if let Some(before) = self.index.store.get(&named) {
                    let gone = (self.keys)(&before).into_iter().filter(|key| !keys.contains(key));
                    gone.for_each(|key| remove(&mut entries, &key, &named));
                }
                add(&mut entries, keys, named);
            }
            Event::Delete(object) => {
                let named = named(object);
                let before = self.index.store.get(&named).map(|before| (self.keys)(&before)).unwrap_or_default();
                before.into_iter().chain((self.keys)(object)).for_each(|key| remove(&mut entries, &key, &named));
            }
            Event::Init => self.listed.clear(),
            Event::InitApply(object) => add(&mut self.listed, (self.keys)(object), named(object)),
            Event::InitDone => *entries = std::mem::take(&mut self.listed),
        }
    }
}

/// Without its UID and its version, which nothing is looked up by.
fn named<K: Resource<DynamicType = ()>>(object: &K) -> ObjectRef<K> {
    let metadata = object.meta();
    let name = ObjectRef::new(metadata.name.as_deref().unwrap_or_default());
    match &metadata.namespace {
        Some(namespace) => name.within(namespace),
        None => name,
    }
}

fn add<K, Key>(entries: &mut Entries<K, Key>, keys: Vec<Key>, object: ObjectRef<K>)
where
    K: Resource<DynamicType = ()> + 'static,
    Key: Eq + Hash,
{
    let object = Arc::new(object);
    for key in keys {
        // One that is there stays, and its other keys share it.
        entries.entry(key).or_default().insert(Arc::clone(&object));
    }
}

fn remove<K, Key>(entries: &mut Entries<K, Key>, key: &Key, object: &ObjectRef<K>)
where
    K: Resource<DynamicType = ()> + 'static,
    Key: Eq + Hash,
{
    let Some(objects) = entries.get_mut(key) else { return };
    objects.remove(object);
    if objects.is_empty() {
        entries.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt;
    use pacer_api::Runner;

    use super::*;

    fn runner(name: &str, repository: &str) -> Runner {
        let mut runner = Runner::default();
        runner.metadata.name = Some(name.to_owned());
        Arc::make_mut(&mut runner.spec.config).repository = Some(repository.to_owned());
        runner
    }

    #[test]
    fn readers_are_told_of_what_the_store_has_taken() {
        let (store, mut writer) = reflector::store();
        let mut indexer: Indexer<Runner, String> =
            Indexer::new(store, |runner| runner.metadata.name.clone().into_iter().collect());
        let (index, tell) = (indexer.index(), indexer.teller());
        let mut changes = index.changes();
        let events = [
            Event::Init,
            Event::InitApply(runner("a", "one")),
            Event::InitDone,
            Event::Apply(runner("b", "one")),
            Event::Delete(runner("a", "one")),
        ];
        for event in events {
            indexer.note(&event);
            writer.apply_watcher_event(&event);
            tell(&event);
        }
        let told = std::iter::from_fn(|| changes.try_recv().ok()).map(|changed| match &*changed {
            Changed::One { object, keys } => format!("{} {}", object.name, keys.join(",")),
            Changed::All => "all".to_owned(),
        });
        assert_eq!(told.collect::<Vec<_>>(), ["all", "b b", "a a"]);
    }

    #[test]
    fn objects_are_found_by_their_present_keys_only() {
        let (store, mut writer) = reflector::store();
        let mut indexer: Indexer<Runner, String> =
            Indexer::new(store, |runner| runner.spec.config.repository.clone().into_iter().collect());
        let index = indexer.index();
        let mut take = |event: Event<Runner>| {
            indexer.note(&event);
            writer.apply_watcher_event(&event);
        };
        let found = |repository: &str| {
            let mut names: Vec<String> = index.get(&repository.to_owned()).iter().map(|runner| runner.name_any()).collect();
            names.sort();
            names
        };
        let list = |all: Vec<Runner>| {
            std::iter::once(Event::Init).chain(all.into_iter().map(Event::InitApply)).chain([Event::InitDone]).collect::<Vec<_>>()
        };
        list(vec![runner("a", "one"), runner("b", "one")]).into_iter().for_each(&mut take);
        assert_eq!((found("one"), found("two")), (vec!["a".to_owned(), "b".to_owned()], vec![]));
        take(Event::Apply(runner("c", "two")));
        take(Event::Apply(runner("a", "two")));
        assert_eq!((found("one"), found("two")), (vec!["b".to_owned()], vec!["a".to_owned(), "c".to_owned()]));
        // The last state of what is deleted may have other keys than what was seen.
        take(Event::Delete(runner("c", "one")));
        assert_eq!((found("one"), found("two")), (vec!["b".to_owned()], vec!["a".to_owned()]));
        // A new listing replaces all of it.
        list(vec![runner("d", "one")]).into_iter().for_each(&mut take);
        assert_eq!((found("one"), found("two")), (vec!["d".to_owned()], vec![]));
        assert_eq!(index.entries.read().unwrap().len(), 1, "keys that nothing has any more are forgotten");
    }
}
