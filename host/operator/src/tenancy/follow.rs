//! Follows the ConfigMap with the tenancy, and the labels of namespaces where it selects by them.

use std::collections::{BTreeMap, HashMap};
use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use futures::future::OptionFuture;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ObjectReference};
use kube::api::{Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{Event, watch_object};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use pacer_api::names::annotation;
use pacer_cluster::events::{Events, Reason};
use pacer_cluster::object::ObjectKey;
use pacer_core::tenancy::Tenancy;
use pacer_policy::tenancy::{read, text};
use serde_json::json;

use super::Tenancies;

type NamespaceEvents = BoxStream<'static, Result<Event<PartialObjectMeta<Namespace>>, watcher::Error>>;

/// Follows the file for as long as it is polled. Calls `changed` when what is allowed has changed, though not for what was there at first.
pub(crate) async fn follow<F: Future<Output = ()>>(
    tenancies: Arc<Tenancies>,
    client: Client,
    events: Events,
    serves: impl Fn(&str) -> bool,
    changed: impl Fn() -> F,
) {
    let Some(key) = tenancies.key.clone() else { return std::future::pending().await };
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &key.namespace);
    let mut objects = pin!(watch_object(api, &key.name).default_backoff());
    let mut labels: Option<NamespaceEvents> = None;
    // One of all shards tells of it.
    let tells = serves(&key.namespace);
    let mut follower =
        Follower { tenancies, client, events, key, tells, looked: false, listing: HashMap::new(), unlabelled: false };
    loop {
        let before = (follower.tenancies.standing(), follower.places());
        tokio::select! {
            object = objects.next() => match object {
                Some(Ok(Some(object))) => follower.present(&object).await,
                Some(Ok(None)) => follower.absent(),
                Some(Err(error)) => follower.unreadable(&error),
                None => return,
            },
            Some(event) = OptionFuture::from(labels.as_mut().map(StreamExt::next)) => match event {
                Some(event) => follower.namespaces(event),
                None => labels = None,
            },
        }
        let needs = follower.tenancy().is_some_and(|tenancy| tenancy.reads_labels());
        if needs && labels.is_none() {
            let all: Api<PartialObjectMeta<Namespace>> = Api::all(follower.client.clone());
            labels = Some(watcher(all, watcher::Config::default()).default_backoff().boxed());
        } else if !needs {
            labels = None;
            follower.unlabelled = false;
            follower.tenancies.change(|state| state.labels = None);
        }
        let labelled = !needs || follower.unlabelled || follower.tenancies.read().labels.is_some();
        let was_settled = *follower.tenancies.settled.borrow();
        if follower.looked && labelled && !was_settled {
            follower.tenancies.settled.send_replace(true);
        }
        // Everything is reconciled at the start anyway, and nobody takes from the queues before that.
        if was_settled && before != (follower.tenancies.standing(), follower.places()) {
            changed().await;
        }
    }
}

/// Which tenancy it is, and the entry of each namespace whose labels are known: what answers depend on.
type Places = (Option<Arc<Tenancy>>, BTreeMap<String, Option<usize>>);

struct Follower {
    tenancies: Arc<Tenancies>,
    client: Client,
    events: Events,
    key: ObjectKey,
    /// What happens to the file is told in Events, and a good one is kept in it.
    tells: bool,
    /// The file was read once, or could not be.
    looked: bool,
    /// Namespaces of a listing that is not complete.
    listing: HashMap<String, BTreeMap<String, String>>,
    /// Namespaces can't be read.
    unlabelled: bool,
}

impl Follower {
    fn tenancy(&self) -> Option<Arc<Tenancy>> {
        self.tenancies.read().tenancy.clone()
    }

    fn places(&self) -> Places {
        let state = self.tenancies.read();
        let place =
            |name: &String| state.tenancy.as_ref().and_then(|tenancy| tenancy.place(state.namespace(name)).ok().flatten());
        let places = state.labels.iter().flat_map(HashMap::keys).map(|name| (name.clone(), place(name))).collect();
        (state.tenancy.clone(), places)
    }

    async fn present(&mut self, object: &ConfigMap) {
        self.looked = true;
        let about = ObjectReference { resource_version: object.resource_version(), ..object.object_ref(&()) };
        let file = text(object.data.as_ref()).and_then(|text| Ok((text, read(text, &self.key.namespace)?)));
        match file {
            Ok((text, tenancy)) => {
                let news = self.tenancies.change(|state| {
                    let was_wrong = state.wrong.take().is_some();
                    if state.tenancy.as_deref() != Some(&tenancy) {
                        state.tenancy = Some(Arc::new(tenancy));
                        return true;
                    }
                    was_wrong
                });
                if news {
                    tracing::info!(tenancy = %self.key, "tenancy in force");
                    self.tell(Reason::TenancyActive, &about, "the tenancy in this ConfigMap is in force").await;
                }
                self.remember(object, text).await;
            }
            Err(error) => {
                let kept =
                    object.annotations().get(annotation::TENANCY_IN_FORCE).and_then(|text| read(text, &self.key.namespace).ok());
                let stays = self.tenancies.change(|state| {
                    if state.tenancy.is_none() {
                        state.tenancy = kept.map(Arc::new);
                    }
                    state.wrong = Some(error.to_string());
                    state.tenancy.is_some()
                });
                let effect =
                    if stays { "the last good tenancy stays in force" } else { "nothing new is allowed until it is mended" };
                tracing::warn!(tenancy = %self.key, %error, effect, "tenancy refused");
                self.tell(Reason::TenancyRefused, &about, &format!("{effect}: {error}")).await;
            }
        }
    }

    async fn tell(&self, reason: Reason, about: &ObjectReference, note: &str) {
        if self.tells {
            self.events.publish(reason, about, None, note).await;
        }
    }

    fn absent(&mut self) {
        self.looked = true;
        let stays = self.wrong("it does not exist; create it, or start the operator without --tenancy");
        tracing::warn!(tenancy = %self.key, stays_in_force = stays, "the ConfigMap with the tenancy does not exist");
    }

    fn unreadable(&mut self, error: &watcher::Error) {
        tracing::warn!(tenancy = %self.key, %error, "watch on the tenancy failed, trying again");
        // What was read before stays as it is; before that, everything waits for the API server unless it has said no.
        let forbidden = match error {
            watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) => {
                pacer_cluster::answer::is_forbidden(error)
            }
            _ => false,
        };
        if !self.looked && forbidden {
            self.looked = true;
            self.wrong("it can't be read; grant the operator list and watch on it");
        }
    }

    /// Says whether a tenancy stays in force.
    fn wrong(&self, why: &str) -> bool {
        self.tenancies.change(|state| {
            state.wrong = Some(why.to_owned());
            state.tenancy.is_some()
        })
    }

    /// Keeps the good file for a restart at which it is not good any more.
    async fn remember(&self, object: &ConfigMap, text: &str) {
        if !self.tells || object.annotations().get(annotation::TENANCY_IN_FORCE).is_some_and(|kept| kept == text) {
            return;
        }
        let patch = json!({"metadata": {"annotations": {annotation::TENANCY_IN_FORCE: text}}});
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.key.namespace);
        let written = api.patch_metadata(&self.key.name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        if let Err(error) = written {
            tracing::warn!(tenancy = %self.key, %error, "the tenancy in force was not kept for a restart");
        }
    }

    fn namespaces(&mut self, event: Result<Event<PartialObjectMeta<Namespace>>, watcher::Error>) {
        let labels = |object: &PartialObjectMeta<Namespace>| object.metadata.labels.clone().unwrap_or_default();
        match event {
            Ok(Event::Init) => self.listing.clear(),
            Ok(Event::InitApply(object)) => {
                self.listing.insert(object.name_any(), labels(&object));
            }
            Ok(Event::InitDone) => {
                let all = std::mem::take(&mut self.listing);
                self.tenancies.change(|state| state.labels = Some(all));
            }
            Ok(Event::Apply(object)) => self.tenancies.change(|state| {
                state.labels.get_or_insert_default().insert(object.name_any(), labels(&object));
            }),
            Ok(Event::Delete(object)) => self.tenancies.change(|state| {
                state.labels.get_or_insert_default().remove(&object.name_any());
            }),
            Err(error) => {
                tracing::warn!(%error, "watch on namespaces failed, trying again; the tenancy selects them by labels");
                self.unlabelled = true;
            }
        }
    }
}
