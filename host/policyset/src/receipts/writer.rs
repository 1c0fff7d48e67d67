//! Packs receipts, collects them per pool, and writes those of a pool together.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use kube::Client;
use pacer_cluster::answer::{is_forbidden, is_namespace_gone};
use pacer_cluster::object::Uid;
use pacer_cluster::seed::Seed;
use pacer_core::ring::{Bounds, overflow};
use pacer_policy::Decision;
use pacer_policy::record::{self, Record, VERSION};
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::store::{self, Index, Packed};
use super::{Counters, Draft, Haste, Owner, Recent, Tell, Written};

/// What came up together is written together.
const PROMPT: Duration = Duration::from_secs(1);

/// How long what happens all the time waits for company.
const ROUTINE: Duration = Duration::from_secs(30);

/// A pool's receipts are not written more often than this.
const PACE: Duration = Duration::from_secs(10);

/// What was not written is tried again after this.
const RETRY: Duration = Duration::from_secs(20);

/// Without the right to write, or without the namespace, that is tried again after this.
const FORBIDDEN: Duration = Duration::from_secs(600);

/// What is known about a pool's ConfigMap is forgotten when nothing was written for so long.
const FORGET: Duration = Duration::from_secs(900);

/// Turns of a pool's number that are told from each other before they are written; of more, the last stands for those after it.
const TURNS: usize = 8;

/// Writes that may be under way at once, each of another pool.
const FLIGHTS: usize = 4;

/// Bytes of packed receipts that wait over all pools; more are dropped and counted.
const WAITING: usize = 8 << 20;

/// How long the last receipts of a process that ends may take.
const FAREWELL: Duration = Duration::from_secs(5);

/// Packs receipts, collects them per pool, and writes them into ConfigMaps.
pub struct Writer {
    client: Client,
    bounds: Bounds,
    drafts: mpsc::Receiver<Draft>,
    counters: Arc<Counters>,
    recent: Recent,
    written: Arc<OnceLock<Tell>>,
    seed: Seed,
    pools: HashMap<Uid, Waiting>,
    flights: FuturesUnordered<BoxFuture<'static, Landed>>,
    is_forbidden_logged: bool,
}

/// Decisions about a number that are not written yet, each with how many it stands for besides. One takes the place of the one before it as
/// long as the number goes the same way, and is told from where that began: whatever is asked afterwards, each turn is there, and each
/// receipt begins where the one before it ended.
#[derive(Default)]
struct Numbers(Vec<(Draft, u32)>);

impl Numbers {
    fn take(&mut self, mut draft: Draft) {
        let is_full = self.0.len() >= TURNS;
        if let (Some((last, superseded)), Some(change)) = (self.0.last_mut(), draft.change.as_mut()) {
            let before = last.change.as_ref().map_or((change.from, change.from), |before| (before.from, before.to));
            let (began, now) = (before.1.cmp(&before.0), change.to.cmp(&change.from));
            if is_full || began == now || began == Ordering::Equal || now == Ordering::Equal {
                change.from = before.0;
                *superseded = superseded.saturating_add(1);
                *last = draft;
                return;
            }
        }
        self.0.push((draft, 0));
    }
}

/// One pool's receipts that are not written yet.
struct Waiting {
    owner: Owner,
    packed: Vec<Packed>,
    /// Decisions about the number.
    numbers: Numbers,
    /// Receipts that were dropped before they were written.
    lost: u64,
    due: Option<Instant>,
    /// When they were written last, or that was tried.
    last: Option<Instant>,
    in_flight: bool,
    index: Option<Index>,
    /// Who waits until they are written.
    waiters: Vec<oneshot::Sender<()>>,
}

struct Landed {
    uid: Uid,
    sent: Vec<Packed>,
    lost: u64,
    waiters: Vec<oneshot::Sender<()>>,
    outcome: Result<Index, kube::Error>,
}

impl Writer {
    pub(super) fn new(
        client: Client,
        bounds: Bounds,
        drafts: mpsc::Receiver<Draft>,
        counters: Arc<Counters>,
        recent: Recent,
        written: Arc<OnceLock<Tell>>,
    ) -> Self {
        Self {
            client,
            bounds,
            drafts,
            counters,
            recent,
            written,
            seed: Seed::default(),
            pools: HashMap::new(),
            flights: FuturesUnordered::new(),
            is_forbidden_logged: false,
        }
    }

    /// Writes until `stop`, and then what is left. For after the controllers have ended: what they decide last is written too.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            let due = self.next_due();
            tokio::select! {
                draft = self.drafts.recv() => match draft {
                    Some(draft) => self.take(draft).await,
                    None => break,
                },
                Some(landed) = self.flights.next() => self.landed(landed),
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => self.depart(Instant::now()).await,
                () = stop.cancelled() => break,
            }
        }
        if timeout(FAREWELL, self.farewell()).await.is_err() {
            tracing::warn!("the last receipts of decisions were not written in time");
        }
    }

    async fn farewell(&mut self) {
        self.drafts.close();
        while let Some(draft) = self.drafts.recv().await {
            self.take(draft).await;
        }
        loop {
            let now = Instant::now();
            for pool in self.pools.values_mut().filter(|pool| pool.due.is_some()) {
                pool.due = Some(now);
            }
            self.depart(now).await;
            match self.flights.next().await {
                // What fails now is not tried again.
                Some(landed) => {
                    if landed.outcome.is_err() {
                        self.pools.remove(&landed.uid);
                    } else {
                        self.landed(landed);
                    }
                }
                None => return,
            }
        }
    }

    /// When the next pool is to be written. None while no more writes may be under way.
    fn next_due(&self) -> Option<Instant> {
        let waiting = self.pools.values().filter(|pool| !pool.in_flight);
        (self.flights.len() < FLIGHTS).then(|| waiting.filter_map(|pool| pool.due).min()).flatten()
    }

    async fn take(&mut self, mut draft: Draft) {
        let now = Instant::now();
        let (uid, haste) = (draft.owner.uid.clone(), std::mem::take(&mut draft.haste));
        let packed = match draft.change {
            Some(_) => Err(draft),
            None => Ok(pack(draft, 0, self.seed.draw(), self.bounds.bytes, Some(self.recent.clone())).await),
        };
        let waiting: usize = self.pools.values().flat_map(|pool| &pool.packed).map(|packed| packed.bytes.len()).sum();
        let owner = match &packed {
            Ok((owner, _)) => owner.clone(),
            Err(draft) => draft.owner.clone(),
        };
        let pool = self.pools.entry(uid).or_insert_with(|| Waiting::new(owner));
        match packed {
            Ok((_, Some(packed))) if waiting.saturating_add(packed.bytes.len()) <= WAITING => pool.packed.push(packed),
            Ok(_) => {
                pool.lost = pool.lost.saturating_add(1);
                self.counters.add_dropped(1);
            }
            Err(draft) => {
                pool.numbers.take(draft);
            }
        }
        let too_many = pool.bound(self.bounds);
        self.counters.add_dropped(too_many);
        let paced = |wait: Duration| pool.last.map_or(now + wait, |last| (now + wait).max(last + PACE));
        let due = match haste {
            // Without the right to write, waiting is of no use.
            Haste::Now(_) if pool.last.is_some_and(|last| last > now) => paced(PROMPT),
            Haste::Now(done) => {
                pool.waiters.push(done);
                now
            }
            Haste::Prompt => paced(PROMPT),
            Haste::Routine => paced(ROUTINE),
        };
        pool.due = Some(pool.due.map_or(due, |earlier| earlier.min(due)));
    }

    /// Sends off those that are due.
    async fn depart(&mut self, now: Instant) {
        self.pools.retain(|_, pool| !pool.is_idle() || pool.last.is_some_and(|last| now.duration_since(last) < FORGET));
        let due: Vec<Uid> = self
            .pools
            .iter()
            .filter(|(_, pool)| !pool.in_flight && pool.due.is_some_and(|due| due <= now))
            .map(|(uid, _)| uid.clone())
            .take(FLIGHTS.saturating_sub(self.flights.len()))
            .collect();
        for uid in due {
            let numbers = self.pools.get_mut(&uid).map(|pool| std::mem::take(&mut pool.numbers.0)).unwrap_or_default();
            let mut packed = Vec::with_capacity(numbers.len());
            for (draft, superseded) in numbers {
                packed.extend(pack(draft, superseded, self.seed.draw(), self.bounds.bytes, None).await.1);
            }
            let Some(pool) = self.pools.get_mut(&uid) else { continue };
            pool.packed.extend(packed);
            pool.bound(self.bounds);
            let (client, owner, bounds) = (self.client.clone(), pool.owner.clone(), self.bounds);
            let (sent, lost, index) = (std::mem::take(&mut pool.packed), std::mem::take(&mut pool.lost), pool.index.take());
            let waiters = std::mem::take(&mut pool.waiters);
            (pool.in_flight, pool.due, pool.last) = (true, None, Some(now));
            self.flights.push(
                async move {
                    let outcome = store::write(&client, &owner, index, &sent, lost, bounds).await;
                    Landed { uid, sent, lost, waiters, outcome }
                }
                .boxed(),
            );
        }
    }

    fn landed(&mut self, landed: Landed) {
        let Landed { uid, sent, lost, waiters, outcome } = landed;
        // Whoever waits goes on, whether they were written or not.
        drop(waiters);
        let Some(pool) = self.pools.get_mut(&uid) else { return };
        pool.in_flight = false;
        match outcome {
            Ok(index) => {
                self.counters.add_stored(sent.len());
                pool.index = Some(index);
                if let Some(tell) = self.written.get() {
                    sent.into_iter().map(|packed| packed.about).for_each(tell);
                }
            }
            Err(error) => {
                // Receipts are for people: nothing else depends on them.
                if is_namespace_gone(&error) {
                    tracing::debug!(pool = %pool.owner.pool, %error, "receipts of decisions dropped with their namespace");
                    self.counters.add_dropped(sent.len().saturating_add(pool.abandon()));
                    pool.last = Instant::now().checked_add(FORBIDDEN);
                    return;
                }
                // A role that is not there.
                if is_forbidden(&error) {
                    if !std::mem::replace(&mut self.is_forbidden_logged, true) {
                        tracing::warn!(
                            pool = %pool.owner.pool, %error,
                            "receipts of decisions can't be kept; grant the role pacer-receipts, or run with --receipts-per-pool=0"
                        );
                    }
                    self.counters.add_dropped(sent.len());
                    pool.last = Instant::now().checked_add(FORBIDDEN);
                    return;
                }
                tracing::warn!(pool = %pool.owner.pool, %error, "receipts of decisions not written, trying again");
                let later = std::mem::replace(&mut pool.packed, sent);
                pool.packed.extend(later);
                pool.lost = pool.lost.saturating_add(lost);
                let too_many = pool.bound(self.bounds);
                self.counters.add_dropped(too_many);
                let again = Instant::now() + RETRY;
                pool.due = Some(again);
            }
        }
    }
}

/// Makes a record of a draft and compresses it, which takes some milliseconds where a pool is large. Those who watch are given it as well.
async fn pack(draft: Draft, superseded: u32, random: u64, most: usize, watched: Option<Recent>) -> (Owner, Option<Packed>) {
    let Draft { owner, at, receipt, input, answer, items, change, .. } = draft;
    let (id, pool) = (record::id(at, random), owner.pool.clone());
    let packing = spawn_blocking(move || {
        let input = input.map(|input| input.inquiry());
        let record = Record { version: VERSION, id, at, pool, receipt, input, answer, items, change, superseded };
        if let Some(recent) = watched {
            recent.note(&record);
        }
        let about = Written {
            pool: record.pool.clone(),
            decision: record.decision(),
            id: record.id.clone(),
            at,
            policy: record.receipt.policy.clone(),
            summary: record.outcome(),
        };
        Some(Packed { about, bytes: record.pack(most)? })
    });
    (owner, packing.await.ok().flatten())
}

impl Waiting {
    fn new(owner: Owner) -> Self {
        Self {
            owner,
            packed: Vec::new(),
            numbers: Numbers::default(),
            lost: 0,
            due: None,
            last: None,
            in_flight: false,
            index: None,
            waiters: Vec::new(),
        }
    }

    fn is_idle(&self) -> bool {
        self.due.is_none() && !self.in_flight
    }

    /// Drops all that waits, and has nobody wait for it. Returns how many receipts that were.
    fn abandon(&mut self) -> usize {
        let dropped = self.packed.len().saturating_add(self.numbers.0.len());
        (self.packed, self.numbers, self.lost, self.due) = (Vec::new(), Numbers::default(), 0, None);
        self.waiters.clear();
        dropped
    }

    /// Drops what could not be kept anyway. Returns how many that were.
    fn bound(&mut self, bounds: Bounds) -> usize {
        let held: Vec<_> = self.packed.iter().map(Packed::held).collect();
        let gone = overflow::<Decision>(&held, bounds);
        let mut place = 0;
        self.packed.retain(|_| {
            let stays = gone.binary_search(&place).is_err();
            place += 1;
            stays
        });
        self.lost = self.lost.saturating_add(u64::try_from(gone.len()).unwrap_or(u64::MAX));
        gone.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use http::{Method, Request, Response, StatusCode};
    use jiff::Timestamp;
    use k8s_openapi::ByteString;
    use kube::client::Body;
    use pacer_core::policy::{CapacityRequest, ScaleDownRequest};
    use pacer_policy::record::{Change, Done, Item, Pool};
    use pacer_policy::{Evaluation, PolicyHost};
    use serde_json::{Value, json};

    use super::*;
    use crate::receipts::Receipts;

    /// An API server with one ConfigMap that answers with these failures first.
    #[derive(Default)]
    struct Server {
        failures: Vec<StatusCode>,
        /// What the failures say besides.
        details: Value,
        requests: BTreeMap<String, usize>,
        held: BTreeMap<String, Value>,
        exists: bool,
    }

    impl Server {
        fn answer(&mut self, method: &Method, body: &[u8]) -> (StatusCode, Value) {
            *self.requests.entry(method.to_string()).or_default() += 1;
            if *method != Method::GET
                && let Some(code) = self.failures.pop()
            {
                let reason = code.canonical_reason().unwrap_or_default().replace(' ', "");
                let status = json!({"kind": "Status", "status": "Failure", "code": code.as_u16(), "reason": reason, "message": "no", "details": self.details});
                return (code, status);
            }
            let content: Value = serde_json::from_slice(body).unwrap_or_default();
            for (key, value) in content["binaryData"].as_object().into_iter().flatten() {
                if value.is_null() {
                    assert!(self.held.remove(key).is_some(), "{key} is taken away and is not there");
                } else {
                    self.held.insert(key.clone(), value.clone());
                }
            }
            self.exists |= *method == Method::POST;
            match *method {
                Method::GET => {
                    (StatusCode::OK, json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {}, "items": []}))
                }
                Method::POST => (StatusCode::CREATED, content),
                _ => (
                    StatusCode::OK,
                    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "x"}}),
                ),
            }
        }
    }

    fn client(server: &Arc<Mutex<Server>>) -> Client {
        let server = server.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await?;
                let (code, answer) = server.lock().unwrap().answer(&parts.method, &body);
                Ok::<_, kube::Error>(Response::builder().status(code).body(Body::from(answer.to_string().into_bytes())).unwrap())
            }
        });
        Client::new(service, "default")
    }

    fn owner() -> Owner {
        Owner {
            pool: Pool { kind: "RunnerDeployment".into(), namespace: "default".into(), name: "web".into() },
            uid: Uid::new("1").unwrap(),
        }
    }

    struct Scene {
        server: Arc<Mutex<Server>>,
        receipts: Receipts,
        counters: Arc<Counters>,
        stop: CancellationToken,
        writing: tokio::task::JoinHandle<()>,
        host: PolicyHost,
    }

    impl Scene {
        fn new(bounds: Bounds, failures: Vec<StatusCode>) -> Self {
            let server = Arc::new(Mutex::new(Server { failures, ..Server::default() }));
            let (counters, stop) = (Arc::new(Counters::default()), CancellationToken::new());
            let (receipts, writer) = Receipts::new(client(&server), bounds, counters.clone());
            let writing = tokio::spawn(writer.unwrap().run(stop.clone()));
            Self { server, receipts, counters, stop, writing, host: PolicyHost::new(Arc::new(pacer_policy::Counters::default())) }
        }

        async fn removal(&self) -> Evaluation<Vec<pacer_core::policy::Choice>> {
            self.host.generation().scale_down(ScaleDownRequest::default()).await
        }

        fn leave(&self, evaluation: &Evaluation<Vec<pacer_core::policy::Choice>>, name: &str, done: Done) {
            let items = vec![Item::new(name.to_owned(), done)];
            self.receipts.leave(Draft::new(owner(), evaluation, items, Timestamp::now()));
        }

        async fn keep(&self, evaluation: &Evaluation<Vec<pacer_core::policy::Choice>>, name: &str) {
            let items = vec![Item::new(name.to_owned(), Done::Removed)];
            self.receipts.keep([Draft::new(owner(), evaluation, items, Timestamp::now())]).await;
        }

        async fn end(self) -> (Server, Arc<Counters>) {
            self.stop.cancel();
            self.writing.await.unwrap();
            drop(self.receipts);
            (Arc::into_inner(self.server).map_or_else(Server::default, |server| server.into_inner().unwrap()), self.counters)
        }

        fn requests(&self, method: &str) -> usize {
            self.server.lock().unwrap().requests.get(method).copied().unwrap_or(0)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn decisions_are_collected_into_few_writes_when_there_are_many() {
        let scene = Scene::new(Bounds { count: 20, bytes: 1 << 20 }, Vec::new());
        let evaluation = scene.removal().await;
        for n in 0..400 {
            scene.leave(&evaluation, &format!("web-{n}"), Done::Removed);
            let number = scene.host.generation().capacity(CapacityRequest::default()).await;
            let change = Change { from: n, to: n + 1, reason: "because".into() };
            scene.receipts.leave(Draft::capacity(owner(), number, change, Timestamp::now()));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        // Forty seconds, one write at the most in ten of them, and one at the end.
        let (writes, looks) = (scene.requests("POST") + scene.requests("PATCH"), scene.requests("GET"));
        assert!((4..=6).contains(&writes) && looks == 1, "{writes} writes, {looks} looks");
        let held: Vec<String> = scene.server.lock().unwrap().held.keys().cloned().collect();
        assert!(held.len() <= 20 && held.iter().any(|key| key.starts_with("capacity.")), "{held:?}");
        let (_, counters) = scene.end().await;
        assert!(counters.stored() > 0);
    }

    #[tokio::test(start_paused = true)]
    async fn every_turn_of_a_number_has_a_receipt_with_the_right_numbers() {
        let scene = Scene::new(Bounds { count: 20, bytes: 1 << 20 }, Vec::new());
        let mut from = 0;
        for to in [1, 1, 3, 2, 2, 0, 4] {
            let number = scene.host.generation().capacity(CapacityRequest::default()).await;
            let change = Change { from, to, reason: format!("{to} are wanted") };
            scene.receipts.leave(Draft::capacity(owner(), number, change, Timestamp::now()));
            tokio::time::sleep(Duration::from_millis(10)).await;
            from = to;
        }
        let (server, _) = scene.end().await;
        let mut records: Vec<Record> = server
            .held
            .values()
            .map(|text| Record::read(&serde_json::from_value::<ByteString>(text.clone()).unwrap().0).unwrap())
            .collect();
        records.sort_by_key(|record| record.at);
        let told: Vec<(u32, u32, u32)> = records
            .iter()
            .map(|record| record.change.as_ref().map(|change| (change.from, change.to, record.superseded)).unwrap())
            .collect();
        assert_eq!(told, [(0, 3, 2), (3, 0, 2), (0, 4, 0)]);
    }

    #[tokio::test(start_paused = true)]
    async fn receipt_is_not_written_when_it_repeats_the_last_one() {
        let scene = Scene::new(Bounds { count: 20, bytes: 1 << 20 }, Vec::new());
        let evaluation = scene.removal().await;
        for _ in 0..50 {
            scene.leave(&evaluation, "web-1", Done::Waits { seconds: 9 });
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        assert_eq!((scene.requests("POST"), scene.requests("PATCH")), (1, 0));
        scene.leave(&evaluation, "web-1", Done::Removed);
        // A process that ends in order writes what it has.
        let server = scene.server.clone();
        scene.end().await;
        assert_eq!(server.lock().unwrap().held.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn write_is_repeated_when_server_fails_and_not_when_it_forbids() {
        let scene = Scene::new(Bounds { count: 20, bytes: 1 << 20 }, vec![StatusCode::INTERNAL_SERVER_ERROR; 2]);
        let evaluation = scene.removal().await;
        scene.leave(&evaluation, "web-1", Done::Removed);
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!((scene.requests("POST"), scene.server.lock().unwrap().held.len()), (3, 1));
        scene.end().await;

        let scene = Scene::new(Bounds { count: 20, bytes: 1 << 20 }, vec![StatusCode::FORBIDDEN; 99]);
        for n in 0..30 {
            scene.leave(&evaluation, &format!("web-{n}"), Done::Removed);
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        assert_eq!(scene.requests("POST"), 1);
        let (_, counters) = scene.end().await;
        assert!(counters.dropped() > 0);
    }

    #[tokio::test(start_paused = true)]
    async fn receipts_of_a_namespace_that_is_gone_are_dropped_and_counted() {
        let terminating = json!({"causes": [{"reason": "NamespaceTerminating", "message": "x", "field": "metadata.namespace"}]});
        for (code, details) in
            [(StatusCode::NOT_FOUND, json!({"kind": "namespaces", "name": "default"})), (StatusCode::FORBIDDEN, terminating)]
        {
            let scene = Scene::new(Bounds { count: 20, bytes: 1 << 20 }, vec![code; 99]);
            scene.server.lock().unwrap().details = details;
            let evaluation = scene.removal().await;
            scene.leave(&evaluation, "web-1", Done::Removed);
            tokio::time::sleep(Duration::from_secs(3_600)).await;
            // A 404 may be about the ConfigMap, and is looked into once.
            let most = if code == StatusCode::NOT_FOUND { 2 } else { 1 };
            assert_eq!((scene.requests("POST"), scene.counters.dropped()), (most, 1), "{code}");
            for n in 0..30 {
                scene.leave(&evaluation, &format!("web-{n}"), Done::Waits { seconds: 9 });
                tokio::time::sleep(Duration::from_secs(10)).await;
            }
            assert!(scene.requests("POST") <= 2 * most, "{code}: {}", scene.requests("POST"));
            let (server, counters) = scene.end().await;
            assert!(server.held.is_empty() && counters.dropped() > 1, "{code}: {}", counters.dropped());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn urgent_receipt_is_written_first_together_with_those_that_wait() {
        let scene = Scene::new(Bounds { count: 20, bytes: 1 << 20 }, Vec::new());
        let evaluation = scene.removal().await;
        for n in 1..=3 {
            scene.leave(&evaluation, &format!("left-{n}"), Done::Waits { seconds: 9 });
            scene.keep(&evaluation, &format!("web-{n}")).await;
            assert_eq!(scene.server.lock().unwrap().held.len(), 2 * n);
        }
        assert_eq!((scene.requests("POST"), scene.requests("PATCH")), (1, 2));
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(scene.requests("PATCH"), 2, "nothing is left to write");
        scene.end().await;
    }

    #[tokio::test(start_paused = true)]
    async fn decision_goes_on_when_its_receipt_can_not_be_written() {
        for failure in [StatusCode::FORBIDDEN, StatusCode::INTERNAL_SERVER_ERROR] {
            let scene = Scene::new(Bounds { count: 20, bytes: 1 << 20 }, vec![failure; 99]);
            let evaluation = scene.removal().await;
            let began = Instant::now();
            for n in 0..5 {
                scene.keep(&evaluation, &format!("web-{n}")).await;
            }
            assert!(began.elapsed() < Duration::from_secs(1), "{failure}: {:?}", began.elapsed());
            scene.end().await;
        }
        let service = tower::service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, kube::Error>>());
        let silent = Client::new(service, "default");
        let (receipts, writer) = Receipts::new(silent, Bounds { count: 20, bytes: 1 << 20 }, Arc::default());
        let writing = tokio::spawn(writer.unwrap().run(CancellationToken::new()));
        let evaluation = PolicyHost::new(Arc::new(pacer_policy::Counters::default()))
            .generation()
            .scale_down(ScaleDownRequest::default())
            .await;
        let began = Instant::now();
        let items = vec![Item::new("web-1".to_owned(), Done::Removed)];
        receipts.keep([Draft::new(owner(), &evaluation, items, Timestamp::now())]).await;
        assert_eq!(began.elapsed().as_secs(), 2);
        writing.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn dropped_receipts_are_counted_when_queue_is_full() {
        let scene = Scene::new(Bounds { count: 1_000, bytes: 1 << 20 }, Vec::new());
        let evaluation = scene.removal().await;
        // Without a pause the writer has no turn.
        for n in 0..300 {
            scene.leave(&evaluation, &format!("web-{n}"), Done::Removed);
        }
        assert_eq!(scene.counters.dropped(), 44);
        scene.end().await;
    }
}
