//! Webhooks: signed `workflow_job` events, delivered well or badly, listed and delivered again.

use std::{
    collections::{BTreeMap, VecDeque},
    future::Future,
    time::Duration,
};

use bytes::Bytes;
use futures::stream::{FuturesUnordered, StreamExt};
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use jiff::Timestamp;
use ring::{digest, hmac};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    job::Job,
    payload,
    place::{DeliveryId, HookId, JobId, Scope},
    state::{Shared, State},
};

/// What a `workflow_job` event tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum JobAction {
    /// The job waits for a runner.
    Queued,
    /// A runner has the job.
    InProgress,
    /// The job is over.
    Completed,
}

impl JobAction {
    /// GitHub's word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
        }
    }
}

/// Whose events a webhook gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookOwner {
    /// Those of a repository, or of all repositories of an organization or enterprise.
    Scope(Scope),
    /// Those of every account that has this App installed.
    App(u64),
}

impl From<Scope> for HookOwner {
    fn from(scope: Scope) -> Self {
        Self::Scope(scope)
    }
}

/// A webhook to register.
#[derive(Clone)]
pub struct Hook {
    /// Whose events it gets.
    pub owner: HookOwner,
    /// Where they are sent: an `http://` URL.
    pub url: String,
    /// Key of the signature; no signature when empty.
    pub secret: String,
}

impl std::fmt::Debug for Hook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hook").field("owner", &self.owner).field("url", &self.url).finish_non_exhaustive()
    }
}

/// How badly events are delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivering {
    /// Every n-th event is not sent, and listed as failed.
    pub drop_every: Option<u64>,
    /// Every n-th event is sent twice.
    pub duplicate_every: Option<u64>,
    /// An event may overtake up to this many others (chosen by a fixed sequence); 0 keeps the order.
    pub reorder_within: usize,
    /// Events are sent this much later.
    pub delay: Duration,
    /// How many are under way at a time, at least 1; with more than one, order is not guaranteed, as at GitHub.
    pub parallel: usize,
}

impl Default for Delivering {
    fn default() -> Self {
        Self { drop_every: None, duplicate_every: None, reorder_within: 0, delay: Duration::ZERO, parallel: 8 }
    }
}

/// One attempt to deliver an event.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Its number.
    pub id: DeliveryId,
    /// To which webhook.
    pub hook: HookId,
    /// The event's identity, shared by all its deliveries (`X-GitHub-Delivery`).
    pub guid: String,
    /// What happened; none for a ping.
    pub action: Option<JobAction>,
    /// To which job; as it was then.
    pub job: Option<Job>,
    /// Whether somebody asked for it again.
    pub redelivery: bool,
    /// When it was tried; none while it waits.
    pub delivered_at: Option<Timestamp>,
    /// How long that took.
    pub duration: Duration,
    /// The receiver's status; 502 when it could not be reached or the event was dropped.
    pub status: u16,
    /// The installation that the event is for.
    pub(super) installation: Option<u64>,
}

impl Delivery {
    /// Number of the job it is about.
    #[must_use]
    pub fn job_id(&self) -> Option<JobId> {
        self.job.as_ref().map(|job| job.id)
    }
}

/// Numbers of deliveries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveryCounts {
    /// Waiting or under way.
    pub pending: u64,
    /// Answered 2xx.
    pub accepted: u64,
    /// Answered otherwise, not answered, or dropped.
    pub failed: u64,
}

/// How long GitHub waits for a receiver's answer.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Hooks {
    hooks: BTreeMap<HookId, Hook>,
    deliveries: BTreeMap<DeliveryId, Delivery>,
    queue: VecDeque<(Instant, DeliveryId)>,
    pub(super) delivering: Delivering,
    counts: DeliveryCounts,
    emitted: u64,
    shuffle: u64,
}

impl Default for Hooks {
    fn default() -> Self {
        Self {
            hooks: BTreeMap::new(),
            deliveries: BTreeMap::new(),
            queue: VecDeque::new(),
            delivering: Delivering::default(),
            counts: DeliveryCounts::default(),
            emitted: 0,
            shuffle: 0x9e37_79b9_7f4a_7c15,
        }
    }
}

impl Hooks {
    pub(super) fn counts(&self) -> DeliveryCounts {
        self.counts
    }

    pub(super) fn get(&self, id: HookId) -> Option<&Hook> {
        self.hooks.get(&id)
    }

    pub(super) fn find(&self, owner: &HookOwner) -> Option<HookId> {
        self.hooks.iter().find(|(_, hook)| hook.owner == *owner).map(|(id, _)| *id)
    }

    /// Those of a scope itself, the oldest first.
    pub(super) fn of(&self, scope: &Scope) -> Vec<(HookId, &Hook)> {
        let theirs = |hook: &Hook| matches!(&hook.owner, HookOwner::Scope(owner) if owner.key() == scope.key());
        self.hooks.iter().filter(|(_, hook)| theirs(hook)).map(|(id, hook)| (*id, hook)).collect()
    }

    /// Attempts so far, the latest first.
    pub(super) fn tried(&self) -> impl Iterator<Item = &Delivery> {
        self.deliveries.values().rev().filter(|delivery| delivery.delivered_at.is_some())
    }

    pub(super) fn delivery(&self, id: DeliveryId) -> Option<&Delivery> {
        self.deliveries.get(&id).filter(|delivery| delivery.delivered_at.is_some())
    }

    fn enqueue(&mut self, delivery: Delivery, delay: Duration) {
        let now = Instant::now();
        self.queue.push_back((now.checked_add(delay).unwrap_or(now), delivery.id));
        self.deliveries.insert(delivery.id, delivery);
        self.counts.pending += 1;
    }

    /// A number below `bound` from a fixed sequence (xorshift).
    fn pick(&mut self, bound: usize) -> usize {
        self.shuffle ^= self.shuffle << 13;
        self.shuffle ^= self.shuffle >> 7;
        self.shuffle ^= self.shuffle << 17;
        usize::try_from(self.shuffle % (bound as u64).max(1)).unwrap_or(0)
    }

    /// The next event whose time has come, or when that will be.
    fn take(&mut self) -> Result<DeliveryId, Option<Instant>> {
        let now = Instant::now();
        let Some((first, _)) = self.queue.front() else { return Err(None) };
        if *first > now {
            return Err(Some(*first));
        }
        let ready = self.queue.iter().take(self.delivering.reorder_within + 1).take_while(|(at, _)| *at <= now).count();
        let chosen = self.pick(ready);
        self.queue.remove(chosen).map(|(_, id)| id).ok_or(None)
    }

    fn tried_now(&mut self, id: DeliveryId, status: u16, duration: Duration, now: Timestamp) {
        let Some(delivery) = self.deliveries.get_mut(&id) else { return };
        delivery.status = status;
        delivery.duration = duration;
        delivery.delivered_at = Some(now);
        self.counts.pending = self.counts.pending.saturating_sub(1);
        *(if (200..300).contains(&status) { &mut self.counts.accepted } else { &mut self.counts.failed }) += 1;
    }
}

/// An identity in the form of a UUID, different for every number.
fn guid(number: u64) -> String {
    let digest = hex::encode(digest::digest(&digest::SHA256, &number.to_be_bytes()));
    let part = |from: usize, to: usize| digest.get(from..to).unwrap_or_default();
    format!("{}-{}-{}-{}-{}", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32))
}

impl State {
    pub(super) fn add_hook(&mut self, hook: Hook) -> HookId {
        if let HookOwner::Scope(scope) = &hook.owner {
            self.accounts.ensure(scope);
        }
        let id = HookId(self.number());
        self.hooks.hooks.insert(id, hook);
        id
    }

    pub(super) fn remove_hook(&mut self, id: HookId) {
        self.hooks.hooks.remove(&id);
    }

    fn new_delivery(&mut self, hook: HookId, guid: String) -> Delivery {
        Delivery {
            id: DeliveryId(self.number()),
            hook,
            guid,
            action: None,
            job: None,
            redelivery: false,
            delivered_at: None,
            duration: Duration::ZERO,
            status: 0,
            installation: None,
        }
    }

    pub(super) fn ping(&mut self, hook: HookId) {
        let guid = guid(self.number());
        let delivery = self.new_delivery(hook, guid);
        self.hooks.enqueue(delivery, Duration::ZERO);
        self.signals.outbox = true;
    }

    /// Tells every webhook that hears of the job's repository.
    pub(super) fn emit(&mut self, job: JobId, action: JobAction) {
        if self.hooks.hooks.is_empty() {
            return;
        }
        let Some(job) = self.jobs.all.get(&job).cloned() else { return };
        let keys: Vec<String> = self
            .accounts
            .lineage(job.repository)
            .filter_map(|place| self.accounts.get(place))
            .map(|place| place.scope.key())
            .collect();
        let hears = |hook: &Hook| match &hook.owner {
            HookOwner::Scope(scope) => keys.contains(&scope.key()).then_some(None),
            HookOwner::App(app) => {
                let installation = self.credentials.installation_for(*app, &self.accounts, job.repository)?;
                Some(Some(installation.id))
            }
        };
        let hearers: Vec<(HookId, Option<u64>)> =
            self.hooks.hooks.iter().filter_map(|(id, hook)| Some((*id, hears(hook)?))).collect();
        let guid = guid(self.number());
        for (hook, installation) in hearers {
            self.hooks.emitted += 1;
            let (turn, delivering) = (self.hooks.emitted, self.hooks.delivering);
            let is_turn = |every: Option<u64>| every.is_some_and(|every| turn.is_multiple_of(every));
            let copies = if is_turn(delivering.duplicate_every) { 2 } else { 1 };
            for _ in 0..copies {
                let blank = self.new_delivery(hook, guid.clone());
                let delivery = Delivery { action: Some(action), job: Some(job.clone()), installation, ..blank };
                let id = delivery.id;
                self.hooks.enqueue(delivery, delivering.delay);
                if is_turn(delivering.drop_every) {
                    self.hooks.queue.pop_back();
                    let now = self.now();
                    self.hooks.tried_now(id, StatusCode::BAD_GATEWAY.as_u16(), Duration::ZERO, now);
                }
            }
        }
        self.signals.outbox = true;
        self.signals.changed = true;
    }

    /// Queues the event of an earlier delivery again.
    pub(super) fn redeliver(&mut self, id: DeliveryId) -> Option<DeliveryId> {
        let earlier = self.hooks.delivery(id)?.clone();
        let blank = self.new_delivery(earlier.hook, earlier.guid.clone());
        let again =
            Delivery { action: earlier.action, job: earlier.job, installation: earlier.installation, redelivery: true, ..blank };
        let id = again.id;
        self.hooks.enqueue(again, Duration::ZERO);
        self.signals.outbox = true;
        Some(id)
    }

    /// The event's JSON.
    pub(super) fn event_body(&self, delivery: &Delivery) -> Value {
        match &delivery.job {
            Some(job) => payload::job_event(self, delivery, job.repository),
            None => json!({
                "zen": "Anything added dilutes everything else.",
                "hook_id": delivery.hook.0,
                "hook": {
                    "type": "Repository",
                    "id": delivery.hook.0,
                    "name": "web",
                    "active": true,
                    "events": ["workflow_job"],
                    "config": {"content_type": "json", "insecure_ssl": "0"},
                },
            }),
        }
    }

    /// The headers that GitHub sends with an event, without the signature.
    pub(super) fn event_headers(&self, delivery: &Delivery) -> Vec<(&'static str, String)> {
        let (kind, number) = match self.hooks.get(delivery.hook).map(|hook| &hook.owner) {
            Some(HookOwner::App(app)) => ("integration", *app),
            Some(HookOwner::Scope(scope)) => {
                let number = self.accounts.find(scope).and_then(|place| self.accounts.get(place)).map_or(0, |place| place.number);
                match scope {
                    Scope::Repository { .. } => ("repository", number),
                    Scope::Organization(_) => ("organization", number),
                    Scope::Enterprise(_) => ("business", number),
                }
            }
            None => ("repository", 0),
        };
        vec![
            ("content-type", "application/json".to_owned()),
            ("user-agent", "GitHub-Hookshot/044aadd".to_owned()),
            ("x-github-event", if delivery.job.is_some() { "workflow_job" } else { "ping" }.to_owned()),
            ("x-github-delivery", delivery.guid.clone()),
            ("x-github-hook-id", delivery.hook.to_string()),
            ("x-github-hook-installation-target-type", kind.to_owned()),
            ("x-github-hook-installation-target-id", number.to_string()),
        ]
    }

    /// The next event to send, or when to look again.
    fn next_delivery(&mut self) -> Result<Posting, Option<Instant>> {
        let id = self.hooks.take()?;
        let found = self.hooks.deliveries.get(&id).and_then(|delivery| {
            let hook = self.hooks.get(delivery.hook)?;
            let payload = self.event_body(delivery);
            let body = payload.to_string();
            let mut request = Request::post(&hook.url).header(header::ACCEPT, "*/*");
            for (name, value) in self.event_headers(delivery) {
                request = request.header(name, value);
            }
            if !hook.secret.is_empty() {
                for (name, prefix, algorithm) in [
                    ("x-hub-signature", "sha1", hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY),
                    ("x-hub-signature-256", "sha256", hmac::HMAC_SHA256),
                ] {
                    let signature = hmac::sign(&hmac::Key::new(algorithm, hook.secret.as_bytes()), body.as_bytes());
                    request = request.header(name, format!("{prefix}={}", hex::encode(signature)));
                }
            }
            let request = request.body(Full::new(Bytes::from(body))).ok()?;
            Some((request, delivery.action.map(|action| (action, payload))))
        });
        let (request, event) = found.unzip();
        Ok(Posting { id, request, event: event.flatten() })
    }
}

/// An event on its way; without a request when its webhook is gone or has no usable URL.
struct Posting {
    id: DeliveryId,
    request: Option<Request<Full<Bytes>>>,
    /// The payload, when it is about a job.
    event: Option<(JobAction, Value)>,
}

type HookClient = Client<HttpConnector, Full<Bytes>>;

/// Sends one event; the status, and how long it took.
fn send(client: &HookClient, posting: Posting) -> impl Future<Output = (DeliveryId, u16, Duration)> + use<> {
    let Posting { id, request, .. } = posting;
    let client = client.clone();
    async move {
        let begun = Instant::now();
        let exchange = async {
            let answer = client.request(request?).await.ok()?;
            let status = answer.status();
            answer.into_body().collect().await.ok()?;
            Some(status)
        };
        let status = tokio::time::timeout(PATIENCE, exchange).await.ok().flatten().unwrap_or(StatusCode::BAD_GATEWAY);
        (id, status.as_u16(), begun.elapsed())
    }
}

/// Delivers events until the simulation stops.
pub(super) async fn deliver(shared: &Shared) {
    let client: HookClient = Client::builder(TokioExecutor::new()).build_http();
    let mut under_way = FuturesUnordered::new();
    loop {
        let parallel = shared.with(|state| state.hooks.delivering.parallel).max(1);
        let mut next = None;
        while under_way.len() < parallel {
            match shared.with(State::next_delivery) {
                Ok(posting) => {
                    if let Some((action, payload)) = &posting.event {
                        shared.conformance.event(action.as_str(), payload);
                    }
                    under_way.push(send(&client, posting));
                }
                Err(at) => {
                    next = at;
                    break;
                }
            }
        }
        let sleep = async {
            match next {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = shared.stopping.cancelled() => return,
            Some((id, status, duration)) = under_way.next() => shared.with(|state| {
                let now = state.now();
                state.hooks.tried_now(id, status, duration, now);
                state.signals.changed = true;
            }),
            () = shared.outbox.notified() => {}
            () = sleep => {}
        }
    }
}
