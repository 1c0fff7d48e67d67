//! Lists and watches with objects that no type can hold.

use std::collections::VecDeque;
use std::sync::Mutex;

use http::{Request, Response};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::client::Body;
use serde_json::json;

use super::*;
use crate::watch::{Changes, Filled};

/// Pods as an API server has them; its watches show what a test says.
#[derive(Default)]
struct Server {
    listed: Mutex<Vec<Value>>,
    /// Lines of the next watches; one that has none does not end.
    watched: Mutex<VecDeque<String>>,
    lists: AtomicUsize,
}

impl Server {
    fn show(&self, change: &str, pod: &Value) {
        // The API server writes the type first.
        self.watched.lock().unwrap().push_back(format!("{{\"type\":\"{change}\",\"object\":{pod}}}\n"));
    }

    async fn answer(&self, request: Request<Body>) -> Result<Response<Body>, std::io::Error> {
        let text = if request.uri().query().is_some_and(|query| query.contains("watch=true")) {
            let next = self.watched.lock().unwrap().pop_front();
            match next {
                Some(line) => line,
                None => std::future::pending().await,
            }
        } else {
            self.lists.fetch_add(1, Ordering::Relaxed);
            let items = self.listed.lock().unwrap().clone();
            json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}).to_string()
        };
        Ok(Response::new(Body::from(text.into_bytes())))
    }

    fn client(self: &Arc<Self>) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request| {
            let server = server.clone();
            async move { server.answer(request).await }
        });
        Client::new(service, "ci")
    }
}

fn pod(name: &str, version: u32) -> Value {
    json!({"metadata": {
        "name": name, "namespace": "ci", "uid": format!("uid of {name}"), "resourceVersion": version.to_string(),
    }})
}

/// The same pod with a time that jiff does not have.
fn unreadable(mut pod: Value) -> Value {
    pod["status"] = json!({"startTime": "10000-01-01T00:00:00Z"});
    pod
}

fn labelled(mut pod: Value, label: &str) -> Value {
    pod["metadata"]["labels"] = json!({"is": label});
    pod
}

struct Watched {
    server: Arc<Server>,
    store: Store<Pod>,
    changes: Changes<Pod>,
    filled: Filled,
}

impl Watched {
    /// A watch of these pods.
    fn new(listed: Vec<Value>) -> Self {
        let server = Arc::new(Server { listed: Mutex::new(listed), ..Server::default() });
        let mut filled = Filled::default();
        let (store, changes) =
            crate::watch::watch::<Pod>(&server.client(), None, watcher::Config::default(), |_| {}, &mut filled);
        Self { server, store, changes, filled }
    }

    /// Names of the objects of so many changes.
    async fn told(&mut self, count: usize) -> Vec<String> {
        let mut names = Vec::new();
        while names.len() < count {
            names.push(self.changes.next().await.unwrap().unwrap().name_any());
        }
        names.sort();
        names
    }

    /// Pods in the store, with their labels.
    fn stored(&self) -> Vec<String> {
        let label = |pod: &Pod| pod.labels().get("is").cloned().unwrap_or_default();
        let mut stored: Vec<_> =
            self.store.state().iter().map(|pod| format!("{} {}", pod.name_any(), label(pod)).trim().to_owned()).collect();
        stored.sort();
        stored
    }

    fn unreadable(&self) -> Vec<(&str, usize)> {
        self.filled.unreadable().collect()
    }
}

#[tokio::test(start_paused = true)]
async fn listing_with_an_unreadable_object_shows_all_others() {
    let mut watched = Watched::new(vec![pod("a", 1), unreadable(pod("bad", 2)), pod("b", 3)]);
    assert_eq!(watched.told(2).await, ["a", "b"]);
    assert!(watched.filled.wait().await);
    assert_eq!(watched.stored(), ["a", "b"]);
    assert_eq!(watched.unreadable(), [("Pod", 1)]);
}

#[tokio::test(start_paused = true)]
async fn object_that_becomes_unreadable_stays_as_it_was_until_it_can_be_read_or_is_gone() {
    let mut watched = Watched::new(vec![labelled(pod("a", 1), "old"), pod("b", 2)]);
    assert_eq!(watched.told(2).await, ["a", "b"]);
    let server = watched.server.clone();

    let bad = unreadable(labelled(pod("a", 3), "bad"));
    *server.listed.lock().unwrap() = vec![bad.clone(), pod("b", 2)];
    server.show("MODIFIED", &bad);
    // All is listed anew, and told.
    assert_eq!(watched.told(2).await, ["a", "b"]);
    assert_eq!((watched.stored(), watched.unreadable()), (vec!["a old".to_owned(), "b".to_owned()], vec![("Pod", 1)]));

    server.show("MODIFIED", &unreadable(labelled(pod("a", 4), "worse")));
    server.show("ADDED", &unreadable(pod("c", 5)));
    server.show("MODIFIED", &labelled(pod("b", 6), "new"));
    assert_eq!(watched.told(1).await, ["b"], "nothing is known of the others that was not known before");
    assert_eq!((watched.stored(), watched.unreadable()), (vec!["a old".to_owned(), "b new".to_owned()], vec![("Pod", 2)]));

    server.show("MODIFIED", &labelled(pod("a", 7), "good"));
    assert_eq!(watched.told(1).await, ["a"]);
    assert_eq!((watched.stored(), watched.unreadable()), (vec!["a good".to_owned(), "b new".to_owned()], vec![("Pod", 1)]));

    server.show("DELETED", &unreadable(pod("c", 8)));
    server.show("DELETED", &unreadable(pod("a", 9)));
    assert_eq!(watched.told(1).await, ["a"], "the other one was never known");
    assert_eq!((watched.stored(), watched.unreadable()), (vec!["b new".to_owned()], vec![("Pod", 0)]));
    assert_eq!(server.lists.load(Ordering::Relaxed), 2, "at the start, and when the first one could not be read");
}

#[tokio::test(start_paused = true)]
async fn deletion_of_an_unreadable_object_is_seen() {
    let mut watched = Watched::new(vec![labelled(pod("a", 1), "old")]);
    assert_eq!(watched.told(1).await, ["a"]);
    let mut going = unreadable(pod("a", 2));
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    *watched.server.listed.lock().unwrap() = vec![going.clone()];
    watched.server.show("MODIFIED", &going);
    let told = watched.changes.next().await.unwrap().unwrap();
    assert!(told.metadata.deletion_timestamp.is_some());
    assert_eq!((told.resource_version().as_deref(), told.status), (Some("2"), None));
}

#[tokio::test(start_paused = true)]
async fn deletion_of_an_object_with_unreadable_metadata_is_seen_and_its_finalizers_stay_known() {
    let mut before = labelled(pod("a", 1), "old");
    before["metadata"]["creationTimestamp"] = json!("2025-01-01T00:00:00Z");
    let mut watched = Watched::new(vec![before.clone()]);
    assert_eq!(watched.told(1).await, ["a"]);
    let mut going = labelled(pod("a", 2), "new");
    going["metadata"]["creationTimestamp"] = json!("10000-01-01T00:00:00Z");
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    going["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    going["metadata"]["finalizers"] = json!(["example.com/ours"]);
    *watched.server.listed.lock().unwrap() = vec![going.clone()];
    watched.server.show("MODIFIED", &going);
    let told = watched.changes.next().await.unwrap().unwrap();
    let mut expected = going["metadata"].clone();
    expected["creationTimestamp"] = before["metadata"]["creationTimestamp"].clone();
    assert_eq!(serde_json::to_value(&told.metadata).unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn events_list_an_object_that_becomes_unreadable_and_tell_of_its_end() {
    let server = Arc::new(Server { listed: Mutex::new(vec![labelled(pod("a", 1), "old"), pod("b", 2)]), ..Server::default() });
    let mut events = events::<Pod>(&server.client(), None, watcher::Config::default()).boxed();
    let mut told = async |count: usize| {
        let mut told = Vec::new();
        while told.len() < count {
            told.push(match events.next().await.unwrap().unwrap() {
                Event::Init => "listing".to_owned(),
                Event::InitApply(pod) => format!("{} {}", pod.name_any(), pod.labels().get("is").map_or("", String::as_str)),
                Event::InitDone => "listed".to_owned(),
                Event::Apply(pod) => format!("{} changed", pod.name_any()),
                Event::Delete(pod) => format!("{} is gone", pod.name_any()),
            });
        }
        told
    };
    let all = ["listing", "a old", "b ", "listed"];
    assert_eq!(told(4).await, all);

    let bad = unreadable(labelled(pod("a", 3), "bad"));
    *server.listed.lock().unwrap() = vec![bad.clone(), pod("b", 2), unreadable(pod("c", 4))];
    server.show("MODIFIED", &bad);
    assert_eq!(told(4).await, all, "it is there as it was");

    server.show("DELETED", &unreadable(pod("c", 5)));
    server.show("DELETED", &unreadable(pod("a", 6)));
    assert_eq!(told(1).await, ["a is gone"], "the other one was never told of");
}

#[tokio::test(start_paused = true)]
async fn another_object_of_the_same_name_does_not_count_as_the_one_that_was_read() {
    let mut watched = Watched::new(vec![pod("a", 1), pod("b", 1)]);
    assert_eq!(watched.told(2).await, ["a", "b"]);
    let mut other = unreadable(pod("a", 2));
    other["metadata"]["uid"] = json!("another");
    *watched.server.listed.lock().unwrap() = vec![other.clone(), pod("b", 1)];
    watched.server.show("ADDED", &other);
    assert_eq!(watched.told(2).await, ["a", "b"], "the first one vanished");
    assert_eq!(watched.stored(), ["b"]);
}

#[test]
fn objects_of_other_shards_are_not_counted() {
    let shards = pacer_core::shard::Shards::new(2).unwrap();
    let metadata = ObjectMeta { namespace: Some("team-a".to_owned()), name: Some("a".to_owned()), ..ObjectMeta::default() };
    let one = Unreadable { metadata, reason: "no".to_owned() };
    for (shard, expected) in [(0, 0), (1, 1)] {
        let count = Arc::new(AtomicUsize::new(0));
        let (store, _writer) = kube::runtime::reflector::store::<Pod>();
        let mut left_out = LeftOut::new(store, Some(Share { shards, shard }), count.clone());
        assert!(left_out.event(Event::Apply(Readable::Unreadable(Box::new(one.clone())))).is_none());
        assert_eq!(count.load(Ordering::Relaxed), expected);
    }
}

#[test]
fn list_tells_which_object_cannot_be_read_and_why() {
    let mut strange = pod("strange", 3);
    strange["metadata"]["managedFields"] = json!([{"time": "10000-01-01T00:00:00Z"}]);
    let text = json!({"metadata": {}, "items": [pod("a", 1), unreadable(pod("bad", 2)), strange]}).to_string();
    let (pods, unreadable) = read::<Pod>(&text).unwrap();
    assert_eq!(pods.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["a"]);
    let told: Vec<_> = unreadable.iter().map(ToString::to_string).collect();
    for (told, start) in told.iter().zip(["ci/bad: status.startTime: ", "ci/strange: metadata.managedFields[0].time: "]) {
        assert!(told.starts_with(start) && told.len() > start.len(), "{told}");
    }
    assert_eq!(told.len(), 2);
    assert_eq!(unreadable[1].metadata.resource_version.as_deref(), Some("3"));
    assert!(read::<Pod>("{\"items\": 7}").is_err());
}

#[test]
fn deletion_is_known_where_other_metadata_cannot_be_read_and_hides_nothing_where_it_cannot() {
    for (moment, known) in [(json!("2026-01-01T00:00:00Z"), true), (json!("10000-01-01T00:00:00Z"), false), (json!(null), false)]
    {
        let mut strange = pod("strange", 3);
        strange["metadata"]["creationTimestamp"] = json!("10000-01-01T00:00:00Z");
        strange["metadata"]["deletionTimestamp"] = moment.clone();
        let text = json!({"metadata": {}, "items": [pod("a", 1), strange]}).to_string();
        let (pods, unreadable) = read::<Pod>(&text).unwrap();
        assert_eq!((pods.len(), unreadable.len()), (1, 1), "{moment}");
        assert_eq!(unreadable[0].metadata.deletion_timestamp.is_some(), known, "{moment}");
    }
}
