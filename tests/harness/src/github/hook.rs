//! Webhooks: signed `workflow_job` events, delivered well or badly, listed and delivered again.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use jiff::Timestamp;
use tokio::time::Instant;

use super::{
    job::Job,
    place::{DeliveryId, HookId, JobId, Scope},
};

/// What a `workflow_job` event tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum JobAction {
    /// The job waits for a runner, or is about to be said to wait for an approval.
    Queued,
    /// The job waits for an approval.
    Waiting,
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
            Self::Waiting => "waiting",
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

/// Why a webhook is not told of jobs, as its settings at GitHub have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// It is not active.
    SwitchedOff,
    /// It asks for other events.
    OtherEvents,
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
    /// Webhook that the event is delivered to.
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

/// How many deliveries wait, were accepted and have failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveryCounts {
    /// Waiting or under way.
    pub pending: u64,
    /// Answered 2xx.
    pub accepted: u64,
    /// Answered otherwise, not answered, or dropped.
    pub failed: u64,
}

#[derive(Debug)]
pub(super) struct Hooks {
    pub(super) hooks: BTreeMap<HookId, Hook>,
    pub(super) silent: BTreeMap<HookId, Silence>,
    pub(super) deliveries: BTreeMap<DeliveryId, Delivery>,
    /// In the order in which they are due.
    pub(super) queue: VecDeque<(Instant, DeliveryId)>,
    pub(super) delivering: Delivering,
    counts: DeliveryCounts,
    pub(super) emitted: u64,
    shuffle: u64,
}

impl Hooks {
    /// Webhooks that are told of jobs.
    pub(super) fn told(&self) -> impl Iterator<Item = (HookId, &Hook)> {
        self.hooks.iter().filter(|(id, _)| !self.silent.contains_key(id)).map(|(id, hook)| (*id, hook))
    }
}

impl Default for Hooks {
    fn default() -> Self {
        Self {
            hooks: BTreeMap::new(),
            silent: BTreeMap::new(),
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

    pub(super) fn enqueue(&mut self, delivery: Delivery, delay: Duration) {
        let now = Instant::now();
        let at = now.checked_add(delay).unwrap_or(now);
        let place = self.queue.partition_point(|(due, _)| *due <= at);
        self.queue.insert(place, (at, delivery.id));
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
    pub(super) fn take(&mut self) -> Result<DeliveryId, Option<Instant>> {
        let now = Instant::now();
        let Some((first, _)) = self.queue.front() else { return Err(None) };
        if *first > now {
            return Err(Some(*first));
        }
        let ready = self.queue.iter().take(self.delivering.reorder_within + 1).take_while(|(at, _)| *at <= now).count();
        let chosen = self.pick(ready);
        self.queue.remove(chosen).map(|(_, id)| id).ok_or(None)
    }

    pub(super) fn tried_now(&mut self, id: DeliveryId, status: u16, duration: Duration, now: Timestamp) {
        let Some(delivery) = self.deliveries.get_mut(&id) else { return };
        delivery.status = status;
        delivery.duration = duration;
        delivery.delivered_at = Some(now);
        self.counts.pending = self.counts.pending.saturating_sub(1);
        *(if (200..300).contains(&status) { &mut self.counts.accepted } else { &mut self.counts.failed }) += 1;
    }
}
