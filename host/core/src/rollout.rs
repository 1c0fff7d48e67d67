//! How a RunnerDeployment moves from its old sets to the newest one.
//!
//! The new set grows within a surge, old sets give up as many runners as new ones are online: one by one, as each new one is proved online and
//! each old one is gone. Old sets shrink through their own scale-down, which never asks a busy runner, so a rollout waits for jobs and
//! interrupts none.
//!
//! The surge is a promise about pods, since these are what nodes have room for: one that is on its way out counts until it is gone, or until
//! it [hangs](Leaving::Hangs).

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::facts::PodFacts;

/// How long after its deletion timestamp, which includes the grace period, a pod still counts as one that ends. A kubelet is done within
/// seconds of that; what keeps a pod longer is a silent node, a volume, or somebody's finalizer, and may do so for ever. Half of the time after
/// which such a pod is deleted by force ([`StopLimits::linger`](crate::stop::StopLimits)).
pub const HANGS_AFTER: SignedDuration = SignedDuration::from_secs(30);

/// How the pod of a runner on its way out stands to the surge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// It counts until it is gone; from this moment on it hangs, where a deletion was asked for.
    Ends {
        /// When it is to be looked at again.
        hangs_at: Option<Timestamp>,
    },
    /// It should be gone, and counts no more.
    Hangs,
}

impl Leaving {
    /// Of the pod of a runner that is on its way out; none when there is none.
    #[must_use]
    pub fn of(pod: Option<&PodFacts>, now: Timestamp) -> Option<Self> {
        // A moment that no timestamp can hold never comes.
        let hangs_at = pod?.deleting.and_then(|deleting| deleting.checked_add(HANGS_AFTER).ok());
        Some(if hangs_at.is_some_and(|at| at <= now) { Self::Hangs } else { Self::Ends { hangs_at } })
    }
}

/// One replica set of the deployment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Set {
    /// Runners that it is asked for now: `spec.replicas`.
    pub wanted: u32,
    /// Runners that exist and are not on their way out.
    pub alive: u32,
    /// Of these, connected to GitHub.
    pub online: u32,
    /// Of these, at work: they stay until their jobs are done, whatever is wanted.
    pub busy: u32,
    /// Runners on their way out whose pods are still there and do not [hang](Leaving::Hangs).
    pub leaving: u32,
    /// Runner objects that exist at all, draining ones included; [`u32::MAX`] while nobody has counted them, for instance after a restart.
    pub present: u32,
    /// Its status describes its present spec.
    pub observed: bool,
    /// The most it was asked for and may be following by now, although the watch has not shown that; see [`Asked`].
    pub asked: u32,
}

/// How long a number that was sent counts while the watch shows nothing of it: longer than a watch is late, and it ends where the request never
/// arrived.
const ASKED_FOR: SignedDuration = SignedDuration::from_mins(1);

/// What RunnerReplicaSets were asked for that the watch has not shown yet.
///
/// Whoever raises a number and then makes a set of a newer template within the same second would otherwise plan with the number before, while the
/// older set makes runners up to the one after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked<K>(BTreeMap<K, Request>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Request {
    /// `metadata.generation` that the watch had shown before.
    generation: i64,
    replicas: u32,
    at: Timestamp,
}

impl<K> Default for Asked<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord> Asked<K> {
    /// A number is about to be sent to a set that is known as of this generation.
    pub fn note(&mut self, set: K, generation: i64, replicas: u32, now: Timestamp) {
        let replicas = replicas.max(self.most(&set, generation, now));
        self.0.retain(|_, request| !request.is_past(now));
        self.0.insert(set, Request { generation, replicas, at: now });
    }

    /// The most that a set of this generation was asked for meanwhile; zero when the watch has shown all of it.
    #[must_use]
    pub fn most(&self, set: &K, generation: i64, now: Timestamp) -> u32 {
        let request = self.0.get(set).filter(|request| request.generation >= generation && !request.is_past(now));
        request.map_or(0, |request| request.replicas)
    }
}

impl Request {
    fn is_past(&self, now: Timestamp) -> bool {
        now.duration_since(self.at) >= ASKED_FOR
    }
}

/// What to do with the sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rollout {
    /// `spec.replicas` of the newest set.
    pub newest: u32,
    /// `spec.replicas` of each old set, in the order given.
    pub old: Vec<u32>,
    /// Old sets that are empty and may be deleted, by index.
    pub delete: Vec<usize>,
    /// Nothing is left to exchange.
    pub complete: bool,
}

impl Set {
    fn is_counted(&self) -> bool {
        self.present != u32::MAX
    }

    /// Pods it has, or may have by the time its present spec has been followed.
    fn occupies(&self) -> u32 {
        let settled = self.observed && self.is_counted() && self.asked <= self.wanted;
        let alive = if settled { self.alive } else { self.alive.max(self.wanted).max(self.asked) };
        alive.saturating_add(self.leaving)
    }
}

/// `spec.replicas` of the first set of a template, beside `before`, those of the templates before. As [`plan`] does, it leaves room for what an old
/// set may make before it has followed its present spec: a number is often raised and a template changed in one edit.
#[must_use]
pub fn first(desired: u32, surge: u32, before: &[Set]) -> u32 {
    desired.min(room(desired, surge, before, 0))
}

/// How many a newest set may have beside `others`, and beside so many of its own that are `ending`.
fn room(desired: u32, surge: u32, others: &[Set], ending: u32) -> u32 {
    let occupied = others.iter().fold(ending, |sum, set| sum.saturating_add(set.occupies()));
    desired.saturating_add(surge).saturating_sub(occupied)
}

/// Plans one step; `surge` is how many more than `desired` may exist meanwhile. `old` is ordered oldest first: the oldest shrinks first.
#[must_use]
pub fn plan(desired: u32, surge: u32, newest: Set, old: &[Set]) -> Rollout {
    // Without a rollout nothing is promised, and demand does not wait for what ends.
    let ending = if old.is_empty() { 0 } else { newest.leaving };
    let room = room(desired, surge, old, ending);
    // A set that already grew is not scaled down again because an old one was slow to report: it would stop runners that just came online.
    let target = desired.min(room.max(newest.wanted.min(desired)));
    let wanted = shares(desired.saturating_sub(newest.online.min(target)), old);
    let delete = old
        .iter()
        .zip(&wanted)
        .enumerate()
        .filter(|(_, (set, wanted))| **wanted == 0 && set.wanted == 0 && set.observed && set.present == 0)
        .map(|(index, _)| index)
        .collect();
    Rollout { newest: target, complete: old.is_empty() && target == desired, old: wanted, delete }
}

/// What each old set keeps, so that together they have `keep` runners. No set grows; one that nobody has counted stays as it is.
///
/// Those at work stay in any case, so they come off first; otherwise long jobs of one old set and idle runners of another could fill the
/// surge between them. Then those online: a runner of an old template that has not come online may never do so, and must not hold the place
/// of one that could.
fn shares(keep: u32, old: &[Set]) -> Vec<u32> {
    let mut shares: Vec<u32> = old.iter().map(|set| if set.is_counted() { 0 } else { set.wanted }).collect();
    let mut deal = |mut left: u32, part: fn(&Set) -> u32| {
        for (set, share) in old.iter().zip(shares.iter_mut()).rev().filter(|(set, _)| set.is_counted()) {
            let more = part(set).min(set.wanted.saturating_sub(*share)).min(left);
            *share = share.saturating_add(more);
            left = left.saturating_sub(more);
        }
        left
    };
    let busy = old.iter().filter(|set| set.is_counted()).fold(0_u32, |sum, set| sum.saturating_add(set.busy));
    let left = deal(keep.saturating_sub(busy), |set| set.online.min(set.wanted).saturating_sub(set.busy));
    let left = deal(left, |set| set.alive.saturating_sub(set.online));
    deal(left.saturating_add(busy.min(keep)), |set| set.busy);
    shares
}

#[cfg(test)]
#[path = "rollout/tests.rs"]
mod tests;
