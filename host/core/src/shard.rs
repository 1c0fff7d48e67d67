//! Shards: which namespaces are one's, and who acts for which.
//!
//! A namespace belongs to the shard with the highest weight (rendezvous hashing, Thaler and Ravishankar 1998), so that everybody finds the same one
//! without asking, and one more shard takes its part from all others and moves nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;

/// How many shards there are. The same for all replicas that act together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shards(NonZeroU16);

impl Shards {
    /// Most shards: each has a Lease that every replica reads every few seconds.
    pub const MOST: u16 = 32;

    /// One shard, with everything.
    pub const ONE: Self = Self(NonZeroU16::MIN);

    /// So many, from 1 to [`Self::MOST`].
    #[must_use]
    pub fn new(count: u16) -> Option<Self> {
        NonZeroU16::new(count).filter(|count| count.get() <= Self::MOST).map(Self)
    }

    /// How many shards there are.
    #[must_use]
    pub fn count(self) -> u16 {
        self.0.get()
    }

    /// Their numbers, from 0.
    pub fn all(self) -> impl Iterator<Item = u16> {
        0..self.count()
    }

    /// The shard of a namespace.
    #[must_use]
    pub fn of(self, namespace: &str) -> u16 {
        self.all().max_by_key(|shard| weight(namespace, *shard)).unwrap_or_default()
    }
}

/// One of the shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// How many there are.
    pub shards: Shards,
    /// Number of this shard, from 0.
    pub shard: u16,
}

impl Share {
    /// Whether a namespace is part of it.
    #[must_use]
    pub fn has(self, namespace: &str) -> bool {
        self.shards.of(namespace) == self.shard
    }
}

/// The weight of a namespace in a shard. Part of the contract between versions that act together: it never changes.
fn weight(namespace: &str, shard: u16) -> u64 {
    mixed(digest(namespace) ^ mixed(u64::from(shard).wrapping_add(1)))
}

/// FNV-1a of a text, 64 bits.
#[must_use]
pub fn digest(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// The finalizer of SplitMix64: every bit of the result depends on every bit of the number.
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Who acts for a shard, as its Lease says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// Nobody: it was given back, or its time is over.
    Nobody {
        /// That was so before as well, and whoever should have taken it had time to.
        overdue: bool,
    },
    /// A replica, this one or another.
    Replica(String),
}

/// What a replica does about the shards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Shards that it takes now.
    pub take: BTreeSet<u16>,
    /// A shard that it gives up, so that another replica can take it.
    pub give: Option<u16>,
    /// A shard is about to change hands: it is worth looking again soon.
    pub unsettled: bool,
}

/// What `me` does. Every replica that sees the same comes to the same end for all.
///
/// A shard without a holder goes at once to whichever live replica has the fewest; if that one does not take it, whoever comes first may. When all
/// have one and a replica has two more than another, the one with the most gives one up. It comes to the one with the fewest by the first rule.
#[must_use]
pub fn plan(me: &str, live: &BTreeSet<String>, holders: &BTreeMap<u16, Holder>) -> Plan {
    let mut counts: BTreeMap<&str, usize> = live.iter().map(|replica| (replica.as_str(), 0)).collect();
    counts.entry(me).or_default();
    for holder in holders.values() {
        // One that holds a shard and is not live any more may take none.
        if let Holder::Replica(replica) = holder
            && let Some(count) = counts.get_mut(replica.as_str())
        {
            *count += 1;
        }
    }
    let mut plan = Plan::default();
    for (shard, holder) in holders {
        let Holder::Nobody { overdue } = holder else { continue };
        plan.unsettled = true;
        let Some((next, count)) = counts.iter_mut().min_by_key(|(_, count)| **count) else { continue };
        *count += 1;
        if *next == me || *overdue {
            plan.take.insert(*shard);
        }
    }
    if plan.unsettled {
        return plan;
    }
    let (Some(fewest), Some(most)) = (counts.values().min(), counts.values().max()) else { return plan };
    if most.saturating_sub(*fewest) >= 2 {
        plan.unsettled = true;
        let giver = counts.iter().find(|(_, count)| *count == most).map(|(replica, _)| *replica);
        let mine = holders.iter().rev().find(|(_, holder)| matches!(holder, Holder::Replica(replica) if replica == me));
        plan.give = mine.filter(|_| giver == Some(me)).map(|(shard, _)| *shard);
    }
    plan
}

#[cfg(test)]
#[path = "shard/tests.rs"]
mod tests;
