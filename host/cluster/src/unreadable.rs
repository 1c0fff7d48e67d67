//! Objects that the API server accepts and that their type cannot hold, such as one with a time in the year 10000. One of them must not hide the
//! others of its kind: it is left out, and told of.
//!
//! Answers are decoded as the type first. Only where that fails is each object decoded on its own, so that nothing is spent on this otherwise.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Debug};
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::api::ListParams;
use kube::core::request::Request;
use kube::core::{NamespaceResourceScope, ObjectList, PartialObjectMeta};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use pacer_core::shard::Share;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::object::ObjectKey;

/// Longest text of an error that is told; it quotes what it is about.
const REASON: usize = 300;

/// An object that its type cannot hold.
#[derive(Clone, Debug)]
pub struct Unreadable {
    /// All of its metadata; what [`Identity`] has of it where the metadata is what cannot be read.
    metadata: ObjectMeta,
    /// Which field it is, and what is wrong with it.
    reason: String,
}

impl Unreadable {
    /// What is wrong with it, and in which field.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Whether it is being deleted.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Which object it is.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        let metadata = &self.metadata;
        ObjectKey::new(metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.metadata.name.as_deref().unwrap_or_default();
        match &self.metadata.namespace {
            Some(namespace) => write!(f, "{namespace}/{name}: {}", self.reason),
            None => write!(f, "{name}: {}", self.reason),
        }
    }
}

/// One object of an answer that cannot be decoded as a whole.
#[derive(Clone, Debug)]
pub(crate) enum Readable<K> {
    Object(K),
    Unreadable(Box<Unreadable>),
}

/// What is kept of metadata of which something else cannot be read: which object it is, and what its deletion takes.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Identity {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
    finalizers: Option<Vec<String>>,
    #[serde(default, deserialize_with = "if_readable")]
    deletion_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
}

/// Long grace periods put this moment beyond the years that can be read; that must not hide the object.
fn if_readable<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Time>, D::Error> {
    let value = Value::deserialize(from)?;
    Ok(Time::deserialize(value).ok())
}

impl From<Identity> for ObjectMeta {
    fn from(identity: Identity) -> Self {
        Self {
            name: identity.name,
            namespace: identity.namespace,
            uid: identity.uid,
            resource_version: identity.resource_version,
            generation: identity.generation,
            labels: identity.labels,
            annotations: identity.annotations,
            owner_references: identity.owner_references,
            finalizers: identity.finalizers,
            deletion_timestamp: identity.deletion_timestamp,
            deletion_grace_period_seconds: identity.deletion_grace_period_seconds,
            ..Self::default()
        }
    }
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Readable<K> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(from)?;
        let error = match K::deserialize(&value) {
            Ok(object) => return Ok(Self::Object(object)),
            Err(error) => error,
        };
        let metadata = value.get("metadata").ok_or_else(|| D::Error::custom(&error))?;
        let metadata = ObjectMeta::deserialize(metadata).or_else(|_| Identity::deserialize(metadata).map(ObjectMeta::from));
        let metadata = metadata.map_err(|_| D::Error::custom(&error))?;
        // Decoded once more, since keeping track of the field would slow down every object that can be read.
        let reason = match serde_path_to_error::deserialize::<_, K>(&value) {
            Ok(_) => error.to_string(),
            Err(with_path) => with_path.to_string(),
        };
        let reason = reason.chars().take(REASON).collect();
        Ok(Self::Unreadable(Box::new(Unreadable { metadata, reason })))
    }
}

impl<K: Resource> Resource for Readable<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(of: &K::DynamicType) -> Cow<'_, str> {
        K::kind(of)
    }

    fn group(of: &K::DynamicType) -> Cow<'_, str> {
        K::group(of)
    }

    fn version(of: &K::DynamicType) -> Cow<'_, str> {
        K::version(of)
    }

    fn plural(of: &K::DynamicType) -> Cow<'_, str> {
        K::plural(of)
    }

    fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Object(object) => object.meta(),
            Self::Unreadable(unreadable) => &unreadable.metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Self::Object(object) => object.meta_mut(),
            Self::Unreadable(unreadable) => &mut unreadable.metadata,
        }
    }
}

/// The unreadable objects of a kind, each with the version that the log told of.
#[derive(Debug, Default)]
pub(crate) struct Known {
    now: HashMap<ObjectKey, Option<String>>,
    /// Those of a listing that is not complete.
    listed: HashMap<ObjectKey, Option<String>>,
}

impl Known {
    /// A listing begins.
    pub(crate) fn begin(&mut self) {
        self.listed.clear();
    }

    /// The listing has this one.
    pub(crate) fn list(&mut self, kind: &str, unreadable: &Unreadable) {
        self.tell(kind, unreadable);
        self.listed.insert(unreadable.key(), unreadable.metadata.resource_version.clone());
    }

    /// The listing had no others.
    pub(crate) fn end(&mut self) {
        self.now = std::mem::take(&mut self.listed);
    }

    fn change(&mut self, kind: &str, unreadable: &Unreadable) {
        self.tell(kind, unreadable);
        self.now.insert(unreadable.key(), unreadable.metadata.resource_version.clone());
    }

    fn forget(&mut self, metadata: &ObjectMeta) {
        if !self.now.is_empty() {
            let name = metadata.name.clone().unwrap_or_default();
            self.now.remove(&ObjectKey::new(metadata.namespace.clone().unwrap_or_default(), name));
        }
    }

    /// Once for each version.
    fn tell(&self, kind: &str, unreadable: &Unreadable) {
        let key = unreadable.key();
        if self.now.get(&key) == Some(&unreadable.metadata.resource_version) {
            return;
        }
        // Nobody removes the finalizers of an object that could never be read.
        let cure = if unreadable.metadata.deletion_timestamp.is_some() {
            "correct the field, or remove the finalizers"
        } else {
            "correct the field that the error names, or delete the object"
        };
        tracing::warn!(
            kind,
            namespace = key.namespace,
            name = key.name,
            error = unreadable.reason,
            cure,
            "cannot read an object; the last version that could be read, if any, stays in use"
        );
    }
}

/// What a watch makes of objects that cannot be read.
pub(crate) struct LeftOut<K>
where
    K: Resource + 'static,
    K::DynamicType: Eq + Hash,
{
    /// Has the last version of each object that could be read.
    store: Store<K>,
    /// Objects of others are theirs to tell of.
    share: Option<Share>,
    known: Known,
    /// How many there are.
    count: Arc<AtomicUsize>,
}

impl<K> LeftOut<K>
where
    K: Resource + Clone + 'static,
    K::DynamicType: Default + Eq + Hash + Clone,
{
    pub(crate) fn new(store: Store<K>, share: Option<Share>, count: Arc<AtomicUsize>) -> Self {
        Self { store, share, known: Known::default(), count }
    }

    fn concerns(&self, unreadable: &Unreadable) -> bool {
        let namespace = unreadable.metadata.namespace.as_deref();
        self.share.is_none_or(|share| namespace.is_some_and(|namespace| share.has(namespace)))
    }

    /// The last version of an object that could be read. Somebody who deletes it wants it gone: its deletion is carried out as the last
    /// readable version says.
    fn last(&self, unreadable: &Unreadable) -> Option<K> {
        let ObjectKey { namespace, name } = unreadable.key();
        let reference = ObjectRef::new_with(&name, K::DynamicType::default()).within(&namespace);
        let stored = self.store.get(&reference).filter(|stored| stored.meta().uid == unreadable.metadata.uid)?;
        let mut last = K::clone(&stored);
        if unreadable.metadata.deletion_timestamp.is_some() {
            let before = std::mem::replace(last.meta_mut(), unreadable.metadata.clone());
            let now = last.meta_mut();
            now.creation_timestamp = now.creation_timestamp.take().or(before.creation_timestamp);
        }
        Some(last)
    }

    /// The event as it is without objects that cannot be read; none where nothing is left of it.
    fn event(&mut self, event: Event<Readable<K>>) -> Option<Event<K>> {
        let kind = K::kind(&K::DynamicType::default()).into_owned();
        let event = match event {
            Event::Init => {
                self.known.begin();
                Some(Event::Init)
            }
            Event::InitDone => {
                self.known.end();
                Some(Event::InitDone)
            }
            Event::InitApply(Readable::Object(object)) => Some(Event::InitApply(object)),
            Event::Apply(Readable::Object(object)) => {
                self.known.forget(object.meta());
                Some(Event::Apply(object))
            }
            Event::Delete(Readable::Object(object)) => {
                self.known.forget(object.meta());
                Some(Event::Delete(object))
            }
            Event::InitApply(Readable::Unreadable(one))
            | Event::Apply(Readable::Unreadable(one))
            | Event::Delete(Readable::Unreadable(one))
                if !self.concerns(&one) =>
            {
                None
            }
            Event::InitApply(Readable::Unreadable(one)) => {
                self.known.list(&kind, &one);
                self.last(&one).map(Event::InitApply)
            }
            Event::Apply(Readable::Unreadable(one)) => {
                self.known.change(&kind, &one);
                self.last(&one).filter(|last| last.meta().deletion_timestamp.is_some()).map(Event::Apply)
            }
            Event::Delete(Readable::Unreadable(one)) => {
                self.known.forget(&one.metadata);
                self.last(&one).map(Event::Delete)
            }
        };
        self.count.store(self.known.now.len(), Ordering::Relaxed);
        event
    }
}

/// Where the events of a watch come from.
enum Source<K> {
    /// Every answer is decoded as the type.
    Whole(BoxStream<'static, watcher::Result<Event<K>>>),
    /// Every object is decoded on its own.
    Each(BoxStream<'static, watcher::Result<Event<Readable<K>>>>),
}

struct Watch<K>
where
    K: Resource + 'static,
    K::DynamicType: Eq + Hash,
{
    source: Source<K>,
    api: Api<Readable<K>>,
    config: watcher::Config,
    left_out: LeftOut<K>,
}

impl<K> Watch<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Default + Eq + Hash + Clone,
{
    async fn next(&mut self) -> Option<watcher::Result<Event<K>>> {
        loop {
            match &mut self.source {
                Source::Whole(events) => match events.next().await? {
                    // It is listed anew, and stays so: an object that could not be read once is likely to come again.
                    Err(error) if is_undecodable(&error) => {
                        self.source = Source::Each(watcher(self.api.clone(), self.config.clone()).boxed());
                    }
                    event => return Some(event),
                },
                Source::Each(events) => match events.next().await? {
                    Ok(event) => {
                        if let Some(event) = self.left_out.event(event) {
                            return Some(Ok(event));
                        }
                    }
                    Err(error) => return Some(Err(error)),
                },
            }
        }
    }
}

/// Whether an answer came that is not what its type says.
fn is_undecodable(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube::Error::SerdeError(_))
        | watcher::Error::WatchFailed(kube::Error::SerdeError(_)) => true,
        // kube takes an event that it cannot decode for a Status in which nothing is set.
        watcher::Error::WatchFailed(kube::Error::Api(status)) => status.code == 0 && status.message.is_empty(),
        _ => false,
    }
}

fn api<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope>,
    K::DynamicType: Default,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// The events of a watch without the objects that cannot be read, of one namespace or of all. The store keeps the last version of an object that
/// could be read.
pub(crate) fn watch<K>(
    client: &Client,
    namespace: Option<&str>,
    config: watcher::Config,
    left_out: LeftOut<K>,
) -> impl Stream<Item = watcher::Result<Event<K>>> + Send + use<K>
where
    K: Resource<Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Default + Eq + Hash + Clone,
{
    let source = Source::Whole(watcher(api::<K>(client, namespace), config.clone()).boxed());
    let watch = Watch { source, api: api::<Readable<K>>(client, namespace), config, left_out };
    stream::unfold(watch, |mut watch| async move { Some((watch.next().await?, watch)) })
}

/// The events of a watch. An object that becomes unreadable is listed as it was, and its deletion is told; one that could never be read is not told of.
pub fn events<K>(
    client: &Client,
    namespace: Option<&str>,
    config: watcher::Config,
) -> impl Stream<Item = watcher::Result<Event<K>>> + Send + use<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let (store, writer) = reflector::store::<K>();
    reflector::reflector(writer, watch(client, namespace, config, LeftOut::new(store, None, Arc::default())))
}

/// Lists objects; those that cannot be read are apart.
///
/// # Errors
///
/// When the API server refuses, does not answer, or answers what is no list.
pub async fn list<K>(api: &Api<K>, params: &ListParams) -> Result<(Vec<K>, Vec<Unreadable>), kube::Error>
where
    K: Resource + Clone + DeserializeOwned,
{
    let request = Request::new(api.resource_url()).list(params).map_err(kube::Error::BuildRequest)?;
    let text = api.clone().into_client().request_text(request).await?;
    read(&text).map_err(kube::Error::SerdeError)
}

/// As [`list`], of the metadata of objects alone.
///
/// # Errors
///
/// As [`list`].
pub async fn list_metadata<K>(
    api: &Api<K>,
    params: &ListParams,
) -> Result<(Vec<PartialObjectMeta<K>>, Vec<Unreadable>), kube::Error>
where
    K: Resource + Clone + DeserializeOwned,
{
    let request = Request::new(api.resource_url()).list_metadata(params).map_err(kube::Error::BuildRequest)?;
    let text = api.clone().into_client().request_text(request).await?;
    read(&text).map_err(kube::Error::SerdeError)
}

fn read<K: Clone + DeserializeOwned>(text: &str) -> Result<(Vec<K>, Vec<Unreadable>), serde_json::Error> {
    if let Ok(whole) = serde_json::from_str::<ObjectList<K>>(text) {
        return Ok((whole.items, Vec::new()));
    }
    let (mut objects, mut unreadable) = (Vec::new(), Vec::new());
    for one in serde_json::from_str::<ObjectList<Readable<K>>>(text)?.items {
        match one {
            Readable::Object(object) => objects.push(object),
            Readable::Unreadable(one) => unreadable.push(*one),
        }
    }
    Ok((objects, unreadable))
}

#[cfg(test)]
mod tests;
