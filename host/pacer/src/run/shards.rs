//! Acting for several shards at once: whatever acts is there once per shard, from the watches on, as if each shard had a process of its own.
//!
//! ```text
//! election -> mandate -> a shard is new: start, from listings made now   -> acts
//!                     -> a shard is gone: stop, reconciles finish        -> the election gives its lease back
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use pacer_cluster::lease::shards::{Mandate as Shares, ShardElection};
use pacer_core::shard::{Shards, Share};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Common, Mandate, Policies, Process};
use crate::connection;
use crate::health::{Health, Phase};

/// A shard that this process acts for.
struct Tenure {
    stop: CancellationToken,
    /// Its stores are full.
    is_full: bool,
}

/// The shards that this process acts for, and what runs for them.
struct Tenures {
    shards: Shards,
    running: JoinSet<(u16, anyhow::Result<()>)>,
    held: BTreeMap<u16, Tenure>,
    /// Tells the election for which shards something acts here.
    acting: watch::Sender<BTreeSet<u16>>,
    full: mpsc::Sender<u16>,
}

impl Process {
    /// Acts for the shards that this process gets, until `stop` or until it loses one.
    pub(super) async fn stand_for_shards(
        self: &Arc<Self>,
        shards: Shards,
        policies: Policies,
        health: &Health,
    ) -> anyhow::Result<()> {
        let common = self.common(policies)?;
        let (told, mandate) = watch::channel(Shares::default());
        let (acting, acts) = watch::channel(BTreeSet::new());
        let (resign, mut election) = (CancellationToken::new(), JoinSet::new());
        let client = connection::builder(&self.config)?.build();
        election.spawn(ShardElection::new(&client, self.lease()?, shards).run(told, acts, resign.clone()));
        let (full, filled) = mpsc::channel(usize::from(Shards::MOST));
        let mut tenures = Tenures { shards, running: JoinSet::new(), held: BTreeMap::new(), acting, full };
        let outcome = self.follow(&mut tenures, &common, health, (mandate, filled)).await;
        // Leases are given back only when nothing acts any more.
        let finished = tenures.end().await;
        self.stop.cancel();
        common.policies.join().await;
        resign.cancel();
        while election.join_next().await.is_some() {}
        outcome.and(finished)
    }

    /// Starts and stops what acts, as the election says.
    async fn follow(
        self: &Arc<Self>,
        tenures: &mut Tenures,
        common: &Common,
        health: &Health,
        (mut mandate, mut filled): (watch::Receiver<Shares>, mpsc::Receiver<u16>),
    ) -> anyhow::Result<()> {
        loop {
            let shares = mandate.borrow_and_update().clone();
            if shares.lost {
                // As with one lease: a process that lost its right starts anew, with nothing remembered.
                bail!("the lease of a shard was lost");
            }
            if let Some(github) = &common.github {
                github.share(shares.replicas, u32::from(tenures.shards.count()));
            }
            for tenure in tenures.held.iter().filter(|(shard, _)| !shares.shards.contains_key(shard)) {
                tenure.1.stop.cancel();
            }
            for (shard, fence) in &shares.shards {
                if !tenures.held.contains_key(shard) {
                    let share = Some(Share { shards: tenures.shards, shard: *shard });
                    let stop = self.stop.child_token();
                    tenures.begin(self, common, Mandate { fence: fence.clone(), share, stop });
                }
            }
            tenures.show(health);
            tokio::select! {
                () = self.stop.cancelled() => return Ok(()),
                changed = mandate.changed() => changed.context("the election of shards ended although nobody asked it to")?,
                Some(shard) = filled.recv() => {
                    if let Some(tenure) = tenures.held.get_mut(&shard) {
                        tenure.is_full = true;
                        tracing::info!(shard, "acting");
                    }
                }
                Some(ended) = tenures.running.join_next() => {
                    let (shard, outcome) = ended.context("what acts for a shard panicked")?;
                    outcome?;
                    if tenures.over(shard).is_none_or(|tenure| !tenure.stop.is_cancelled()) {
                        return Err(anyhow!("what acts for shard {shard} ended although nobody asked it to"));
                    }
                    self.metrics.forget(shard);
                }
            }
        }
    }

    /// Acts for a shard until its mandate ends.
    async fn act(self: Arc<Self>, common: Common, mandate: Mandate, full: mpsc::Sender<u16>) -> anyhow::Result<()> {
        let shard = mandate.share.map_or(0, |share| share.shard);
        let mut started = self.start(&common, mandate)?;
        let stores = started.stores.clone();
        let filling = async {
            if stores.full().await {
                // Nobody listens any more when the process stops.
                let _stopping = full.send(shard).await;
            }
            std::future::pending::<()>().await;
        };
        let ended = tokio::select! {
            ended = started.running.join_next() => ended,
            () = filling => None,
        };
        started.finish().await;
        match ended {
            Some(ended) => Ok(ended.context("the controllers of a shard panicked")??),
            None => Ok(()),
        }
    }
}

impl Tenures {
    fn begin(&mut self, process: &Arc<Process>, common: &Common, mandate: Mandate) {
        let Some(shard) = mandate.share.map(|share| share.shard) else { return };
        self.acting.send_modify(|acting| {
            acting.insert(shard);
        });
        self.held.insert(shard, Tenure { stop: mandate.stop.clone(), is_full: false });
        let acting = process.clone().act(common.clone(), mandate, self.full.clone());
        self.running.spawn(async move { (shard, acting.await) });
    }

    /// Nothing acts for a shard any more.
    fn over(&mut self, shard: u16) -> Option<Tenure> {
        let tenure = self.held.remove(&shard);
        self.acting.send_modify(|acting| {
            acting.remove(&shard);
        });
        tenure
    }

    fn show(&self, health: &Health) {
        let is_full = |tenure: &Tenure| tenure.is_full;
        let phase = match (self.held.is_empty(), self.held.values().any(is_full)) {
            (true, _) => Phase::Standby,
            (false, false) => Phase::Filling,
            (false, true) => Phase::Acting,
        };
        health.set_of_shards(phase, self.shards.all().map(|shard| (shard, self.held.contains_key(&shard))).collect());
    }

    /// Stops all that acts, and waits until it has.
    async fn end(&mut self) -> anyhow::Result<()> {
        for tenure in self.held.values() {
            tenure.stop.cancel();
        }
        let mut outcome = Ok(());
        while let Some(ended) = self.running.join_next().await {
            let ended = ended.map_err(anyhow::Error::from).and_then(|(_, ended)| ended);
            outcome = outcome.and(ended);
        }
        outcome
    }
}
