//! Ledgers keep up with what the watch shows, and with what they wrote themselves.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use kube::Resource;
use kube::client::Body;
use kube::runtime::watcher;
use pacer_cluster::watch::{Changes, Filled, trim, watch_with_index};
use serde_json::Value;
use tokio::sync::mpsc;

use super::*;

type Answer = StreamBody<BoxStream<'static, Result<Frame<Bytes>, std::io::Error>>>;

/// JobLedgers as an API server has them. Its watch shows what a test says, and no more.
#[derive(Default)]
struct Server {
    objects: Mutex<HashMap<String, JobLedger>>,
    watches: Mutex<Vec<mpsc::UnboundedSender<Bytes>>>,
    /// Statuses of the answers to the next changes, which are not made.
    refusals: Mutex<VecDeque<u16>>,
}

fn whole(value: &Value) -> Answer {
    let bytes = Bytes::from(value.to_string());
    StreamBody::new(futures::stream::once(async { Ok(Frame::data(bytes)) }).boxed())
}

impl Server {
    fn refuse(&self, method: &Method) -> Option<Response<Answer>> {
        let code = Some(method).filter(|method| **method != Method::GET).and_then(|_| lock(&self.refusals).pop_front())?;
        let status =
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "reason": "No", "code": code});
        Some(Response::builder().status(code).body(whole(&status)).unwrap())
    }

    fn answer(&self, method: &Method, path: &str, body: &[u8]) -> Answer {
        let mut objects = lock(&self.objects);
        match *method {
            Method::GET if path.contains("watch=true") => {
                let (watch, events) = mpsc::unbounded_channel();
                lock(&self.watches).push(watch);
                let events = futures::stream::unfold(events, |mut events| async {
                    let event = events.recv().await?;
                    Some((Ok(Frame::data(event)), events))
                });
                StreamBody::new(events.boxed())
            }
            Method::GET => {
                let items: Vec<&JobLedger> = objects.values().collect();
                whole(&json!({
                    "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "JobLedgerList",
                    "metadata": {"resourceVersion": "1"}, "items": items,
                }))
            }
            Method::POST => {
                let mut object: JobLedger = serde_json::from_slice(body).unwrap();
                object.metadata.namespace = Some("default".to_owned());
                object.metadata.uid = Some(format!("uid of {}", object.name_any()));
                object.metadata.generation = Some(1);
                objects.insert(object.name_any(), object.clone());
                whole(&serde_json::to_value(object).unwrap())
            }
            Method::PATCH => {
                let name = path.split(['/', '?']).rev().nth(1).unwrap();
                let object = objects.get_mut(name).unwrap();
                let mut value = serde_json::to_value(&*object).unwrap();
                json_patch::merge(&mut value, &serde_json::from_slice(body).unwrap());
                *object = serde_json::from_value(value.clone()).unwrap();
                object.metadata.generation = object.metadata.generation.map(|generation| generation + 1);
                whole(&serde_json::to_value(&*object).unwrap())
            }
            _ => panic!("{method} {path}"),
        }
    }

    /// The watch tells of an object.
    fn show(&self, kind: &str, object: &JobLedger) {
        let mut line = json!({"type": kind, "object": object});
        line["object"]["metadata"]["resourceVersion"] = json!("2");
        let line = Bytes::from(format!("{line}\n"));
        lock(&self.watches).retain(|watch| watch.send(line.clone()).is_ok());
    }

    /// Drives the watch until it has begun; nothing has changed by then.
    async fn watched(&self, changes: &mut Changes<JobLedger>) {
        while lock(&self.watches).is_empty() {
            assert!(futures::poll!(changes.next()).is_pending());
            tokio::task::yield_now().await;
        }
    }

    fn only(&self) -> JobLedger {
        lock(&self.objects).values().next().unwrap().clone()
    }
}

async fn started(server: &Arc<Server>) -> (Ledgers, Changes<JobLedger>) {
    let server = server.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let server = server.clone();
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
            let refused = server.refuse(&head.method);
            let answer = || Response::new(server.answer(&head.method, &head.uri.to_string(), &body));
            Ok::<_, std::io::Error>(refused.unwrap_or_else(answer))
        }
    });
    let client = Client::new(service, "default");
    let mut filled = Filled::default();
    let listed = watcher::Config::default();
    let (_, index, changes) = watch_with_index(&client, None, listed, trim, owner, &mut filled);
    (Ledgers::new(client, Precedence::default(), index), changes)
}

fn autoscaler() -> HorizontalRunnerAutoscaler {
    let mut autoscaler = HorizontalRunnerAutoscaler::default();
    autoscaler.metadata.name = Some("web".to_owned());
    autoscaler.metadata.namespace = Some("default".to_owned());
    autoscaler.metadata.uid = Some("7".to_owned());
    autoscaler
}

/// The object of the autoscaler with this number, as another process made it.
fn made_elsewhere(shard: u16, generation: i64, edits: &[Edit]) -> JobLedger {
    let mut made = JobLedger::clone(&object(edits));
    let owner = Owner::of(&autoscaler()).unwrap();
    let name = owner.object_name(shard);
    made.metadata.owner_references = autoscaler().controller_owner_ref(&()).map(|owner| vec![owner]);
    made.metadata.namespace = Some("default".to_owned());
    made.metadata.uid = Some(format!("uid of {name}"));
    made.metadata.generation = Some(generation);
    made.metadata.name = Some(name);
    made
}

fn known(ledgers: &Ledgers) -> Vec<u64> {
    let read = ledgers.read(&autoscaler());
    let jobs: Vec<u64> = read.all().map(|(id, _)| id).collect();
    for job in &jobs {
        assert_eq!(ledgers.knowing(*job), [Uid::new("7").unwrap()]);
    }
    jobs
}

#[tokio::test]
async fn what_others_write_is_known_when_the_watch_shows_it() {
    let server = Arc::new(Server::default());
    let first = made_elsewhere(0, 1, &[event(1, State::Queued, 0)]);
    lock(&server.objects).insert(first.name_any(), first.clone());
    let (ledgers, mut changes) = started(&server).await;
    assert_eq!(ledgers.knowing(1), []);
    changes.next().await.unwrap().unwrap();
    assert_eq!(ledgers.knowing(1), [Uid::new("7").unwrap()], "nobody has read of the autoscaler before");
    assert_eq!(known(&ledgers), [1]);
    let steps = [
        ("MODIFIED", made_elsewhere(0, 2, &[event(1, State::Queued, 0), event(2, State::Queued, 0)]), &[1, 2][..]),
        ("ADDED", made_elsewhere(300, 1, &[event(3, State::Queued, 0)]), &[1, 2, 3]),
        ("DELETED", made_elsewhere(0, 2, &[]), &[3]),
        ("DELETED", made_elsewhere(300, 1, &[]), &[]),
    ];
    server.watched(&mut changes).await;
    for (kind, object, expected) in steps {
        server.show(kind, &object);
        changes.next().await.unwrap().unwrap();
        assert_eq!(known(&ledgers), expected, "{kind}");
    }
    assert_eq!(ledgers.knowing(1), []);
    ledgers.retain(|_| false);
    assert!(lock(&ledgers.books).is_empty(), "of an autoscaler that is gone, and has no objects");
}

#[tokio::test]
async fn own_writes_are_known_before_the_watch_shows_them() {
    let server = Arc::new(Server::default());
    let (ledgers, mut changes) = started(&server).await;
    server.watched(&mut changes).await;
    for (id, expected) in [(1, &[1][..]), (2, &[1, 2])] {
        let recorded = ledgers.change(&autoscaler(), &[event(id, State::Queued, 0)]).await.unwrap();
        assert_eq!((recorded.changes, known(&ledgers)), (vec![Change::Added], expected.to_vec()));
    }
    let again = ledgers.change(&autoscaler(), &[event(2, State::Queued, 0)]).await.unwrap();
    assert_eq!(again.changes, [Change::None]);
    // An old state that the watch shows late undoes nothing, and what another process adds after the own writes does not get lost.
    server.show("ADDED", &made_elsewhere(0, 1, &[event(1, State::Queued, 0)]));
    changes.next().await.unwrap().unwrap();
    assert_eq!(known(&ledgers), [1, 2]);
    let mut next = server.only();
    assert_eq!(next.metadata.generation, Some(2));
    next.spec = object(&[1, 2, 3].map(|id| event(id, State::Queued, 0))).spec.clone();
    next.metadata.generation = Some(3);
    server.show("MODIFIED", &next);
    changes.next().await.unwrap().unwrap();
    assert_eq!(known(&ledgers), [1, 2, 3]);
    ledgers.retain(|_| false);
    assert_eq!(lock(&ledgers.books).len(), 1, "it still has objects");
}

#[tokio::test]
async fn ledgers_that_fell_behind_read_everything_again() {
    let server = Arc::new(Server::default());
    let (ledgers, mut changes) = started(&server).await;
    server.watched(&mut changes).await;
    assert!(known(&ledgers).is_empty());
    // More than the store remembers the changes of.
    for generation in 1..2_000 {
        let jobs = [event(1, State::Queued, 0), event(2, State::Queued, 0)];
        server
            .show("MODIFIED", &made_elsewhere(u16::from(generation == 1), generation, &jobs[..1 + usize::from(generation > 1)]));
        changes.next().await.unwrap().unwrap();
    }
    assert_eq!(known(&ledgers), [1, 2]);
    assert_eq!(lock(&lock(&ledgers.books)[&Uid::new("7").unwrap()].view).objects().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn creations_give_way_when_another_process_stores_a_job_that_waits() {
    let server = Arc::new(Server::default());
    let (ledgers, mut changes) = started(&server).await;
    server.watched(&mut changes).await;
    let is_quiet = || {
        let turns: Vec<_> = (0..100).map(|_| ledgers.precedence.turn().now_or_never()).collect();
        turns.iter().all(Option::is_some)
    };
    assert!(known(&ledgers).is_empty());
    for (generation, edits, expected, why) in [
        (1, &[event(1, State::Queued, 0)][..], false, "a job that waits"),
        (2, &[event(1, State::InProgress, 5)], true, "the same job, which was read meanwhile"),
        (3, &[event(1, State::Completed, 9), event(2, State::InProgress, 9)], true, "no job waits"),
        (4, &[event(3, State::Queued, 9)], false, "another job that waits"),
    ] {
        let object = made_elsewhere(0, generation, edits);
        server.show("MODIFIED", &object);
        changes.next().await.unwrap().unwrap();
        ledgers.notice(&object);
        assert_eq!(is_quiet(), expected, "{why}");
        let _read = ledgers.read(&autoscaler());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(is_quiet(), "{why}");
    }
}

#[tokio::test(start_paused = true)]
async fn job_is_recorded_once_the_api_server_is_back() {
    let record = async |refusals: &[u16]| {
        let server = Arc::new(Server::default());
        *lock(&server.refusals) = refusals.iter().copied().collect();
        let (ledgers, _changes) = started(&server).await;
        let Edit::Event { event, .. } = event(1, State::Queued, 0) else { panic!("an event") };
        let began = tokio::time::Instant::now();
        let outcome = ledgers.record_by(began + Duration::from_secs(8), &autoscaler(), &event, LIFE, false).await;
        (outcome.map(|recorded| recorded.changes), began.elapsed(), known(&ledgers))
    };
    for refusals in [&[503][..], &[429, 500, 503, 504]] {
        let (outcome, took, known) = record(refusals).await;
        assert_eq!((outcome.unwrap(), known), (vec![Change::Added], vec![1]), "{refusals:?} {took:?}");
    }
    let (outcome, took, known) = record(&[403]).await;
    assert!(matches!(outcome, Err(LedgerError::Refused { .. })) && took.is_zero(), "{outcome:?} after {took:?}");
    assert!(known.is_empty(), "{known:?}");
    let (outcome, took, known) = record(&[503; 30]).await;
    assert!(matches!(outcome, Err(LedgerError::Unavailable { .. })), "{outcome:?}");
    assert!(known.is_empty() && took == Duration::from_secs(8), "{known:?} after {took:?}");
}
