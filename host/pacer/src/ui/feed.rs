//! Tells viewers what changes: one snapshot a second for all of them, and none while nobody looks.
//!
//! Each viewer has a queue of a few events. One whose queue is full reads too slowly and loses its connection; when it is back it gets a whole
//! snapshot.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use jiff::Timestamp;
use pacer_operator::metrics::{ConnectionDrop, ConnectionMetrics};
use pacer_operator::snapshot::{Delta, Snapshot};
use serde::Serialize;
use serde_json::json;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Most viewers at a time.
pub(super) const VIEWERS: usize = 20;

/// Events that wait for a viewer: so many seconds it may be behind.
const QUEUE: usize = 8;

/// A snapshot is made no more often than this.
const PERIOD: Duration = Duration::from_secs(1);

/// Viewers get an event at least this often, so that they can tell silence from an unchanged world.
const BEAT: Duration = Duration::from_secs(5);

/// Tells viewers; clones are the same feed.
#[derive(Clone, Debug)]
pub(super) struct Feed {
    shared: Arc<Shared>,
    metrics: ConnectionMetrics,
}

#[derive(Debug, Default)]
struct Shared {
    viewers: Mutex<Viewers>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct Viewers {
    all: Vec<Viewer>,
    /// Nobody is told anything any more.
    closed: bool,
}

#[derive(Debug)]
struct Viewer {
    events: mpsc::Sender<Bytes>,
    /// Has a whole snapshot.
    begun: bool,
    /// Ends its connection.
    end: CancellationToken,
}

/// What one viewer is told.
#[derive(Debug)]
pub(super) struct Visit(mpsc::Receiver<Bytes>);

impl Visit {
    /// The next event; none when there will be no more.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        self.0.recv().await
    }

    /// The data of an event.
    pub(super) fn data(event: &Bytes) -> Option<Bytes> {
        let start = event.windows(DATA.len()).position(|window| window == DATA)?.checked_add(DATA.len())?;
        let end = event.len().checked_sub(END.len())?;
        (start <= end).then(|| event.slice(start..end))
    }
}

const DATA: &[u8] = b"\ndata: ";
const END: &[u8] = b"\n\n";

/// An event as it is sent. JSON has no line breaks of its own.
fn event(name: &str, data: &impl Serialize) -> Bytes {
    let mut bytes = format!("event: {name}").into_bytes();
    bytes.extend_from_slice(DATA);
    // Plain structs with texts for keys always serialise, and writing into memory does not fail.
    let _written = serde_json::to_writer(&mut bytes, data);
    bytes.extend_from_slice(END);
    bytes.into()
}

/// What viewers were told last.
struct Told {
    snapshot: Snapshot,
    /// As an event, once somebody needed it.
    whole: Option<Bytes>,
    made: Instant,
}

impl Feed {
    /// A feed without viewers.
    pub(super) fn new(metrics: ConnectionMetrics) -> Self {
        Self { shared: Arc::default(), metrics }
    }

    /// One more viewer; none when there is no room. `end` is cancelled when it reads too slowly.
    pub(super) fn join(&self, end: CancellationToken) -> Option<Visit> {
        let mut viewers = self.lock();
        viewers.all.retain(|viewer| !viewer.events.is_closed());
        if viewers.closed || viewers.all.len() >= VIEWERS {
            return None;
        }
        let (events, visit) = mpsc::channel(QUEUE);
        viewers.all.push(Viewer { events, begun: false, end });
        drop(viewers);
        self.shared.arrived.notify_one();
        Some(Visit(visit))
    }

    /// Tells all viewers until `stop`. `make` makes a snapshot of that number.
    pub(super) async fn run(self, make: impl Fn(u64, Timestamp) -> Snapshot, stop: CancellationToken) {
        let mut number = 0;
        while !stop.is_cancelled() {
            // Before anybody is looked for, so that nobody who comes meanwhile is missed.
            let arrived = self.shared.arrived.notified();
            if self.is_alone() {
                tokio::select! {
                    () = stop.cancelled() => break,
                    () = arrived => continue,
                }
            }
            number = self.tell_while_somebody_looks(number, &make, &stop).await;
        }
        let mut viewers = self.lock();
        viewers.closed = true;
        viewers.all.clear();
    }

    /// Returns the number of the last snapshot.
    async fn tell_while_somebody_looks(
        &self,
        number: u64,
        make: &impl Fn(u64, Timestamp) -> Snapshot,
        stop: &CancellationToken,
    ) -> u64 {
        let first = number.saturating_add(1);
        let mut told = Told { snapshot: make(first, Timestamp::now()), whole: None, made: Instant::now() };
        let mut sent = Instant::now();
        loop {
            self.greet(&mut told);
            tokio::select! {
                () = stop.cancelled() => return told.snapshot.number,
                () = self.shared.arrived.notified() => continue,
                () = tokio::time::sleep_until(told.made + PERIOD) => {}
            }
            if self.is_alone() {
                return told.snapshot.number;
            }
            let now = Timestamp::now();
            let next = make(told.snapshot.number.saturating_add(1), now);
            told.made = Instant::now();
            match Delta::between(&told.snapshot, &next) {
                Some(delta) => {
                    self.tell(&event("delta", &delta));
                    (told.snapshot, told.whole, sent) = (next, None, told.made);
                }
                None if sent.elapsed() >= BEAT => {
                    self.tell(&event("beat", &json!({ "at": now })));
                    sent = told.made;
                }
                None => {}
            }
        }
    }

    /// Gives those who have just come the snapshot that the next difference begins with.
    fn greet(&self, told: &mut Told) {
        let mut viewers = self.lock();
        for viewer in viewers.all.iter_mut().filter(|viewer| !viewer.begun) {
            let whole = told.whole.get_or_insert_with(|| event("snapshot", &told.snapshot));
            // Its queue is empty; if it has left meanwhile, it is found out with the next event.
            viewer.begun = viewer.events.try_send(whole.clone()).is_ok();
        }
    }

    fn tell(&self, event: &Bytes) {
        self.lock().all.retain(|viewer| {
            // Who came a moment ago is given the whole snapshot next.
            if !viewer.begun {
                return true;
            }
            match viewer.events.try_send(event.clone()) {
                Ok(()) => true,
                Err(TrySendError::Closed(_)) => false,
                Err(TrySendError::Full(_)) => {
                    self.metrics.dropped(ConnectionDrop::Slow);
                    viewer.end.cancel();
                    false
                }
            }
        });
    }

    fn is_alone(&self) -> bool {
        let mut viewers = self.lock();
        viewers.all.retain(|viewer| !viewer.events.is_closed());
        viewers.all.is_empty()
    }

    /// A list of viewers is as good after a panic as before.
    fn lock(&self) -> MutexGuard<'_, Viewers> {
        self.shared.viewers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use pacer_operator::metrics::{HttpServer, Metrics};
    use pacer_operator::snapshot::Operator;
    use serde_json::Value;
    use tokio::task::JoinHandle;
    use tokio::time::{sleep, timeout};

    use super::*;

    /// A feed of snapshots whose only content is a number that the test sets.
    struct Scene {
        feed: Feed,
        metrics: Arc<Metrics>,
        content: Arc<AtomicU64>,
        made: Arc<AtomicU64>,
        stop: CancellationToken,
        running: JoinHandle<()>,
    }

    fn scene() -> Scene {
        let metrics = Arc::new(Metrics::default());
        let feed = Feed::new(metrics.connections(HttpServer::Page));
        let (content, made, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)), CancellationToken::new());
        let (shown, counted) = (content.clone(), made.clone());
        let make = move |number, at| {
            counted.fetch_add(1, Ordering::Relaxed);
            let operator = Operator { missing_webhooks: shown.load(Ordering::Relaxed), ..Operator::default() };
            Snapshot { number, at, operator, ..Snapshot::default() }
        };
        let running = tokio::spawn(feed.clone().run(make, stop.clone()));
        Scene { feed, metrics, content, made, stop, running }
    }

    async fn next(visit: &mut Visit) -> (String, Value) {
        let event = timeout(Duration::from_secs(60), visit.next()).await.unwrap().unwrap();
        let text = String::from_utf8(event.to_vec()).unwrap();
        let name = text.lines().next().unwrap().strip_prefix("event: ").unwrap().to_owned();
        (name, serde_json::from_slice(&Visit::data(&event).unwrap()).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn viewers_get_a_snapshot_then_differences_and_nobody_gets_nothing() {
        let scene = scene();
        sleep(Duration::from_secs(60)).await;
        assert_eq!(scene.made.load(Ordering::Relaxed), 0, "nobody looks");
        let mut first = scene.feed.join(CancellationToken::new()).unwrap();
        let (name, whole) = next(&mut first).await;
        assert_eq!((name.as_str(), &whole["operator"]["missing_webhooks"]), ("snapshot", &json!(0)));
        scene.content.store(7, Ordering::Relaxed);
        let (name, delta) = next(&mut first).await;
        assert_eq!(
            (name.as_str(), &delta["operator"]["missing_webhooks"], &delta["after"]),
            ("delta", &json!(7), &whole["number"])
        );
        // Who comes later begins where the others are.
        let mut second = scene.feed.join(CancellationToken::new()).unwrap();
        let (_, whole) = next(&mut second).await;
        assert_eq!(whole["number"], delta["number"]);
        scene.content.store(8, Ordering::Relaxed);
        for visit in [&mut first, &mut second] {
            assert_eq!(next(visit).await.1["after"], whole["number"]);
        }
        // An unchanged world is worth a word as well.
        assert_eq!(next(&mut first).await.0, "beat");
        let made = scene.made.load(Ordering::Relaxed);
        drop((first, second));
        sleep(Duration::from_secs(60)).await;
        assert!(scene.made.load(Ordering::Relaxed) <= made + 1, "nobody looks any more");
        // The numbers go on, so that nobody takes one snapshot for another.
        let (_, later) = next(&mut scene.feed.join(CancellationToken::new()).unwrap()).await;
        assert!(later["number"].as_u64() > whole["number"].as_u64(), "{later}");
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_read_is_dropped_and_the_others_stay() {
        let scene = scene();
        let end = CancellationToken::new();
        let mut slow = scene.feed.join(end.clone()).unwrap();
        let mut good = scene.feed.join(CancellationToken::new()).unwrap();
        for content in 1..=20 {
            scene.content.store(content, Ordering::Relaxed);
            next(&mut good).await;
        }
        assert!(end.is_cancelled());
        assert!(scene.metrics.text().contains(r#"{server="page",reason="slow"} 1"#), "{}", scene.metrics.text());
        let mut kept = 0;
        while slow.next().await.is_some() {
            kept += 1;
        }
        assert_eq!(kept, QUEUE);
    }

    #[tokio::test(start_paused = true)]
    async fn there_is_room_for_so_many_and_all_end_at_the_stop() {
        let scene = scene();
        let mut visits: Vec<_> = (0..VIEWERS).filter_map(|_| scene.feed.join(CancellationToken::new())).collect();
        assert_eq!(visits.len(), VIEWERS);
        assert!(scene.feed.join(CancellationToken::new()).is_none());
        visits.pop();
        visits.extend(scene.feed.join(CancellationToken::new()));
        assert_eq!(visits.len(), VIEWERS);
        scene.stop.cancel();
        scene.running.await.unwrap();
        for visit in &mut visits {
            while visit.next().await.is_some() {}
        }
        assert!(scene.feed.join(CancellationToken::new()).is_none());
    }
}
