//! Waiting for states of objects, by watches.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use futures::StreamExt;
use kube::runtime::WatchStreamExt;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;

/// Pauses of a watch after failures: of a second at the most, since a test waits for it.
#[derive(Default)]
pub(crate) struct Brisk(watcher::DefaultBackoff);

impl Iterator for Brisk {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.0.next().map(|pause| pause.min(Duration::from_secs(1)))
    }
}

impl Backoff for Brisk {
    fn reset(&mut self) {
        self.0.reset();
    }
}

/// The objects were not as wanted in time.
#[derive(Debug, thiserror::Error)]
#[error("after {} s the {kind} were still in another state: {names:?}", patience.as_secs_f64())]
pub struct NotReached {
    /// How long was waited.
    pub patience: Duration,
    /// Plural of their kind.
    pub kind: String,
    /// Which objects there were.
    pub names: Vec<String>,
}

/// Waits until the objects of an `Api` with these labels (all of them with `""`) are as `reached` wants them.
///
/// They come ordered by namespace and name.
///
/// # Errors
///
/// When they are not after `patience`.
pub async fn until<K>(
    objects: Api<K>,
    labels: &str,
    patience: Duration,
    mut reached: impl FnMut(&[&K]) -> bool,
) -> Result<Vec<K>, NotReached>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    K::DynamicType: Default,
{
    let mut known: BTreeMap<(Option<String>, String), K> = BTreeMap::new();
    let wait = async {
        let mut listed = false;
        let mut events = watcher(objects, watcher::Config::default().labels(labels)).backoff(Brisk::default()).boxed();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => {
                    known.clear();
                    listed = false;
                }
                Ok(Event::Apply(object) | Event::InitApply(object)) => {
                    known.insert((object.namespace(), object.name_any()), object);
                }
                Ok(Event::Delete(object)) => {
                    known.remove(&(object.namespace(), object.name_any()));
                }
                Ok(Event::InitDone) => listed = true,
                // The watch goes on by itself.
                Err(_) => {}
            }
            if listed && reached(&known.values().collect::<Vec<_>>()) {
                return;
            }
        }
    };
    match tokio::time::timeout(patience, wait).await {
        Ok(()) => Ok(known.into_values().collect()),
        Err(_) => Err(NotReached {
            patience,
            kind: K::plural(&K::DynamicType::default()).into_owned(),
            names: known.into_keys().map(|(namespace, name)| namespace.map_or(name.clone(), |n| format!("{n}/{name}"))).collect(),
        }),
    }
}
