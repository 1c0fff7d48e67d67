//! Election for shards: each has a Lease, and replicas hold about as many as each other.
//!
//! ```text
//! each round: the group's Lease -> who is alive -> Leases of the shards -> plan -> renew ours, take what is free
//! to give one up: it is told to act no more -> nothing acts for it -> its Lease is given back -> another replica takes it
//! ```
//!
//! The group's Lease has the name that a single leader's has, and its holder is the number of shards. So a replica with another number, or one
//! without shards, waits as it does for a leader. Replicas know each other by annotations of that Lease, which each of them changes in every round.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Client, ResourceExt};
use pacer_api::names::annotation;
use pacer_core::shard::{Holder, Shards, digest, plan};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::seat::{self, Seat, Standing, holder};
use super::{LeaseConfig, TRIES};
use crate::fence::Fence;

/// Time between rounds while a shard is about to change hands.
const QUICK: Duration = Duration::from_millis(250);

/// What this process may act for.
#[derive(Clone, Debug, Default)]
pub struct Mandate {
    /// The shards, each with the fence that its changes have to pass. One that is missing here and was not before is to be let go.
    pub shards: BTreeMap<u16, Fence>,
    /// Replicas that are alive, this one included.
    pub replicas: u32,
    /// The right to a shard ended before this process had stopped acting for it.
    pub lost: bool,
    /// Who holds the Lease of the group instead of this one: replicas with another number of shards.
    pub waits_for: Option<String>,
}

/// Takes, keeps and gives up shards.
pub struct ShardElection {
    group: Seat,
    seats: BTreeMap<u16, Seat>,
    config: LeaseConfig,
    own_key: String,
    /// What replicas wrote last, and since when.
    beats: HashMap<String, (String, Instant)>,
    held: BTreeMap<u16, Held>,
    giving: Option<u16>,
    /// Since when nobody has held a shard.
    free: BTreeMap<u16, Instant>,
    mandate: Mandate,
}

struct Held {
    fence: Fence,
    until: Instant,
}

impl ShardElection {
    /// An election through this client, which must not be fenced or throttled by anything else.
    #[must_use]
    pub fn new(client: &Client, config: LeaseConfig, shards: Shards) -> Self {
        let LeaseConfig { namespace, name, identity, timing } = &config;
        let seat = |name: &str, holder: &str| Seat::new(client.clone(), namespace, name, holder, timing.duration);
        let group = seat(name, &group_holder(shards));
        let seats = shards.all().map(|shard| (shard, seat(&lease_name(name, shard), identity))).collect();
        let own_key = format!("{}{:016x}", annotation::REPLICA_PREFIX, digest(identity));
        Self {
            group,
            seats,
            own_key,
            config,
            beats: HashMap::new(),
            held: BTreeMap::new(),
            giving: None,
            free: BTreeMap::new(),
            mandate: Mandate::default(),
        }
    }

    /// Runs until `stop`, by when nothing may act any more. Tells what this process may act for; `acting` is what it does act for. Gives
    /// everything back at the end.
    pub async fn run(
        mut self,
        told: watch::Sender<Mandate>,
        mut acting: watch::Receiver<BTreeSet<u16>>,
        stop: CancellationToken,
    ) {
        let timing = self.config.timing;
        loop {
            let started = Instant::now();
            let idle = self.giving.is_some_and(|shard| !acting.borrow_and_update().contains(&shard));
            let wait = match tokio::time::timeout(timing.renew_deadline / 2, self.round(started, idle)).await {
                Ok(Ok(wait)) => wait,
                Ok(Err(error)) => {
                    tracing::warn!(%error, lease = %self.config.name, "leases not renewed");
                    timing.retry
                }
                Err(_) => {
                    tracing::warn!(lease = %self.config.name, "leases not renewed: no answer in time");
                    timing.retry
                }
            };
            self.expire();
            self.tell(&told);
            let deadline = self.held.values().map(|held| held.until).min();
            let wait = deadline.map_or(wait, |until| wait.min(until.saturating_duration_since(Instant::now())));
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(wait) => {}
                Ok(()) = acting.changed(), if self.giving.is_some() => {}
            }
            self.expire();
            self.tell(&told);
        }
        self.resign(&told).await;
    }

    /// Finds out how all Leases stand, and writes those that are ours or to be. Returns when the next round is due.
    async fn round(&mut self, started: Instant, idle: bool) -> Result<Duration, kube::Error> {
        let retry = self.config.timing.retry;
        let Some(mut live) = self.join_group().await? else {
            for shard in self.held.keys().copied().collect::<Vec<_>>() {
                self.lose(shard, "the group's lease is another's");
            }
            return Ok(retry);
        };
        if let Some(shard) = self.giving.filter(|_| idle) {
            self.give_back(shard).await?;
        }
        let standings = join_all(self.seats.iter_mut().map(async |(shard, seat)| (*shard, seat.stand().await))).await;
        let (mut holders, mut wait, mut writable) = (BTreeMap::new(), retry, BTreeMap::new());
        for (shard, standing) in standings {
            let holder = match standing? {
                Standing::Ours(lease) => {
                    writable.insert(shard, Some(lease));
                    Some(self.config.identity.clone())
                }
                Standing::Held { holder, left } => {
                    wait = wait.min(left);
                    Some(holder)
                }
                Standing::Free(lease) => {
                    // Whoever let its time run out is not alive, whatever it wrote elsewhere.
                    live.retain(|replica| holder(&lease) != Some(replica));
                    writable.insert(shard, Some(lease));
                    None
                }
                Standing::Missing => {
                    writable.insert(shard, None);
                    None
                }
            };
            let is_ours = holder.as_ref() == Some(&self.config.identity);
            if !is_ours && self.held.contains_key(&shard) {
                self.lose(shard, "lease taken by another replica");
            }
            let holder = match holder {
                Some(replica) => {
                    self.free.remove(&shard);
                    Holder::Replica(replica)
                }
                None => {
                    let since = *self.free.entry(shard).or_insert(started);
                    Holder::Nobody { overdue: started.saturating_duration_since(since) > retry.saturating_mul(2) }
                }
            };
            holders.insert(shard, holder);
        }
        self.mandate.replicas = u32::try_from(live.len()).unwrap_or(u32::MAX).max(1);
        let plan = plan(&self.config.identity, &live, &holders);
        if let (None, Some(shard)) = (self.giving, plan.give) {
            tracing::info!(lease = %lease_name(&self.config.name, shard), shard, "giving the shard up for another replica");
            self.giving = Some(shard);
        }
        let ours = |shard: &u16| holders.get(shard) == Some(&Holder::Replica(self.config.identity.clone()));
        writable.retain(|shard, _| ours(shard) || plan.take.contains(shard));
        let writes = self.seats.iter_mut().filter_map(|(shard, seat)| Some((*shard, seat, writable.remove(shard)?)));
        let written = join_all(writes.map(async |(shard, seat, lease)| (shard, seat.write(lease, |_| {}).await))).await;
        let mut again = false;
        for (shard, outcome) in written {
            match outcome {
                Ok(true) => self.renewed(shard, started),
                // Another replica was first, or one of ours was written by somebody else: only a look proves that it is another's.
                Ok(false) => again |= self.held.contains_key(&shard),
                Err(error) => tracing::warn!(%error, shard, "lease of a shard not renewed"),
            }
        }
        Ok(if plan.unsettled || again { wait.min(QUICK) } else { wait })
    }

    /// Renews the group's Lease and says who is alive; none while it is held by others.
    async fn join_group(&mut self) -> Result<Option<BTreeSet<String>>, kube::Error> {
        for _ in 0..TRIES {
            let read = match self.group.look().await? {
                Standing::Held { holder, .. } => {
                    if self.mandate.waits_for.as_ref() != Some(&holder) {
                        tracing::warn!(
                            lease = %self.config.name,
                            holder,
                            "waiting: the lease is held by a leader without shards, or by replicas with another number of them; give all replicas the same --shards"
                        );
                    }
                    self.mandate.waits_for = Some(holder);
                    return Ok(None);
                }
                Standing::Missing => None,
                Standing::Free(mut lease) => {
                    lease.annotations_mut().retain(|key, _| !key.starts_with(annotation::REPLICA_PREFIX));
                    Some(lease)
                }
                Standing::Ours(lease) => Some(lease),
            };
            let (live, dead) = self.replicas(read.as_ref());
            let beat = format!("{} {}", self.config.identity, Timestamp::now());
            let amend = |lease: &mut Lease| {
                let annotations = lease.annotations_mut();
                annotations.retain(|key, _| !dead.contains(key));
                annotations.insert(self.own_key.clone(), beat);
            };
            if self.group.write(read, amend).await? {
                self.mandate.waits_for = None;
                return Ok(Some(live));
            }
        }
        // The others write it all the time, so that it stays the group's; but whether it does was not seen.
        Err(seat::crowded())
    }

    /// Replicas that are alive, this one included, and annotations of those that are not.
    fn replicas(&mut self, lease: Option<&Lease>) -> (BTreeSet<String>, BTreeSet<String>) {
        let now = Instant::now();
        let (mut live, mut dead) = (BTreeSet::from([self.config.identity.clone()]), BTreeSet::new());
        let entries = lease.map(|lease| lease.annotations().clone()).unwrap_or_default();
        self.beats.retain(|key, _| entries.contains_key(key));
        let others = entries.into_iter().filter(|(key, _)| key.starts_with(annotation::REPLICA_PREFIX) && *key != self.own_key);
        for (key, beat) in others {
            let (seen, since) = self.beats.entry(key.clone()).or_insert_with(|| (beat.clone(), now));
            if *seen != beat {
                (*seen, *since) = (beat.clone(), now);
            }
            match beat.split_once(' ') {
                Some((identity, _)) if since.elapsed() < self.config.timing.duration => {
                    live.insert(identity.to_owned());
                }
                _ => {
                    dead.insert(key);
                }
            }
        }
        (live, dead)
    }

    fn renewed(&mut self, shard: u16, started: Instant) {
        let until = started + self.config.timing.renew_deadline;
        let held = self.held.entry(shard).or_insert_with(|| {
            tracing::info!(lease = %lease_name(&self.config.name, shard), shard, identity = %self.config.identity, "leading");
            Held { fence: Fence::closed(), until }
        });
        held.until = until;
        held.fence.extend(until);
    }

    async fn give_back(&mut self, shard: u16) -> Result<(), kube::Error> {
        self.giving = None;
        if let Some(held) = self.held.remove(&shard) {
            held.fence.close();
        }
        let Some(seat) = self.seats.get_mut(&shard) else { return Ok(()) };
        // If that fails it is still ours, and the next round takes it up again.
        seat.release(|_| {}).await?;
        tracing::info!(lease = %lease_name(&self.config.name, shard), shard, "shard given up");
        Ok(())
    }

    fn lose(&mut self, shard: u16, why: &str) {
        if let Some(held) = self.held.remove(&shard) {
            held.fence.close();
            tracing::error!(lease = %lease_name(&self.config.name, shard), shard, why, "lease lost");
            self.mandate.lost = true;
        }
        if let Some(seat) = self.seats.get_mut(&shard) {
            seat.lost();
        }
        self.giving = self.giving.filter(|giving| *giving != shard);
    }

    fn expire(&mut self) {
        let now = Instant::now();
        let over: Vec<u16> = self.held.iter().filter(|(_, held)| held.until <= now).map(|(shard, _)| *shard).collect();
        for shard in over {
            self.lose(shard, "not renewed in time");
        }
    }

    fn tell(&mut self, told: &watch::Sender<Mandate>) {
        let act = self.held.iter().filter(|(shard, _)| self.giving != Some(**shard));
        self.mandate.shards = act.map(|(shard, held)| (*shard, held.fence.clone())).collect();
        told.send_if_modified(|before| {
            let now = &self.mandate;
            let same = before.shards.keys().eq(now.shards.keys())
                && (before.replicas, before.lost, &before.waits_for) == (now.replicas, now.lost, &now.waits_for);
            *before = now.clone();
            !same
        });
    }

    /// Gives the Leases of all shards back, and leaves the group, before this process ends.
    async fn resign(&mut self, told: &watch::Sender<Mandate>) {
        let held: Vec<u16> = self.held.keys().copied().collect();
        for held in self.held.values() {
            held.fence.close();
        }
        self.held.clear();
        self.tell(told);
        let patience = self.config.timing.retry;
        let given = async {
            let seats = self.seats.iter_mut().filter(|(shard, _)| held.contains(shard));
            let given = join_all(seats.map(|(_, seat)| seat.release(|_| {}))).await;
            self.leave_group().await?;
            given.into_iter().collect::<Result<(), _>>()
        };
        if !matches!(tokio::time::timeout(patience, given).await, Ok(Ok(()))) {
            tracing::warn!(lease = %self.config.name, "not all leases given back; others wait until they expire");
        }
    }

    /// The last one gives the group's Lease back.
    async fn leave_group(&mut self) -> Result<(), kube::Error> {
        for _ in 0..TRIES {
            let Standing::Ours(lease) = self.group.look().await? else { return Ok(()) };
            let (live, _) = self.replicas(Some(&lease));
            if live.len() < 2 {
                return self
                    .group
                    .release(|lease| {
                        lease.annotations_mut().retain(|key, _| !key.starts_with(annotation::REPLICA_PREFIX));
                    })
                    .await;
            }
            let amend = |lease: &mut Lease| {
                lease.annotations_mut().remove(&self.own_key);
            };
            if self.group.write(Some(lease), amend).await? {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Who holds the Lease of a group, as it says.
#[must_use]
pub fn group_holder(shards: Shards) -> String {
    format!("{} shards", shards.count())
}

/// Name of the Lease of a shard, in a group whose own Lease has this name.
#[must_use]
pub fn lease_name(group: &str, shard: u16) -> String {
    format!("{group}-shard-{shard}")
}
