//! Who may be connected: a bounded number of connections, in all and per address.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Instant;

use tokio_util::sync::CancellationToken;

/// Most connections at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// From all addresses together.
    pub(crate) all: usize,
    /// From one address; behind an ingress that is the ingress's.
    pub(crate) per_address: usize,
}

impl Bounds {
    /// For metrics and health: a kubelet, and a few collectors.
    pub(crate) const METRICS: Self = Self { all: 64, per_address: 32 };

    /// For the page: its viewers, and what else their browsers ask at the same time. Behind a port-forward all of them have one address.
    pub(crate) const PAGE: Self = Self { all: 64, per_address: 64 };

    /// For webhooks of which `work` are worked on at a time: 500 connections and 200 per address with the default of `--queue-limit`.
    pub(crate) fn webhooks(work: u16) -> Self {
        let work = usize::from(work);
        Self { all: work.saturating_add(400), per_address: work.saturating_add(100) }
    }
}

/// What counts as one address: an IPv4 address, or the 64 bits of an IPv6 address that name a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Source(IpAddr);

impl Source {
    /// The source of a peer.
    pub(super) fn of(peer: IpAddr) -> Self {
        Self(match peer.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
            v4 @ IpAddr::V4(_) => v4,
        })
    }
}

/// Name of a place; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SlotId(u64);

/// A connection that was let in.
#[derive(Debug)]
pub(super) struct Admitted {
    pub(super) slot: SlotId,
    /// Cancelled when another connection takes the place.
    pub(super) gone: CancellationToken,
    /// Whether it took the place of another one itself.
    pub(super) replaced: bool,
}

#[derive(Debug)]
struct Peer {
    source: Source,
    /// Since when its peer has kept the server waiting; nothing while its request is worked on.
    waiting: Option<Instant>,
    gone: CancellationToken,
}

/// The connections of one source.
#[derive(Debug, Default)]
struct Share {
    open: usize,
    /// Those that keep the server waiting, and since when.
    waiting: BTreeSet<(Instant, SlotId)>,
}

impl Share {
    /// Where the connection of this source that has waited longest comes among those that make room; nothing if none waits.
    fn rank(&self) -> Option<Rank> {
        self.waiting.first().map(|(since, slot)| Rank { share: Reverse(self.open), since: *since, slot: *slot })
    }
}

/// Who makes room first: the greatest share, then the longest wait. The fields are compared in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    share: Reverse<usize>,
    since: Instant,
    slot: SlotId,
}

/// The connections that are open. Each change takes time that grows with the logarithm of their number: whoever opens connections as fast as they can
/// must not keep the server from accepting those of others.
#[derive(Debug)]
pub(super) struct Slots {
    bounds: Bounds,
    taken: BTreeMap<SlotId, Peer>,
    /// Of each source that has a connection.
    shares: BTreeMap<Source, Share>,
    /// Of each source that has a connection that waits.
    ranks: BTreeSet<Rank>,
    next: u64,
}

impl Slots {
    /// Begins with no open connection.
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { bounds, taken: BTreeMap::new(), shares: BTreeMap::new(), ranks: BTreeSet::new(), next: 0 }
    }

    /// A place for a connection from there. Where the address has all of its places, the connection of this address that has waited longest
    /// makes room; where all places are taken, the one of the address that has most. Nothing when requests are worked on in all of them.
    pub(super) fn take(&mut self, source: Source, now: Instant) -> Option<Admitted> {
        let own = self.shares.get(&source).filter(|share| share.open >= self.bounds.per_address);
        let full = own.is_some() || self.taken.len() >= self.bounds.all;
        if full {
            let victim = own.map_or_else(|| self.ranks.first().copied(), Share::rank)?;
            if let Some(peer) = self.remove(victim.slot) {
                peer.gone.cancel();
            }
        }
        let (slot, gone) = (SlotId(self.next), CancellationToken::new());
        self.next = self.next.saturating_add(1);
        self.taken.insert(slot, Peer { source, waiting: Some(now), gone: gone.clone() });
        self.change(source, |share| {
            share.open = share.open.saturating_add(1);
            share.waiting.insert((now, slot));
        });
        Some(Admitted { slot, gone, replaced: full })
    }

    /// Its request is worked on.
    pub(super) fn keep(&mut self, slot: SlotId) {
        self.turn(slot, None);
    }

    /// Its peer is to go on from now.
    pub(super) fn wait(&mut self, slot: SlotId, now: Instant) {
        self.turn(slot, Some(now));
    }

    /// Its connection has ended.
    pub(super) fn leave(&mut self, slot: SlotId) {
        self.remove(slot);
    }

    fn turn(&mut self, slot: SlotId, waiting: Option<Instant>) {
        let Some(peer) = self.taken.get_mut(&slot) else { return };
        let (source, before) = (peer.source, std::mem::replace(&mut peer.waiting, waiting));
        self.change(source, |share| {
            if let Some(since) = before {
                share.waiting.remove(&(since, slot));
            }
            share.waiting.extend(waiting.map(|since| (since, slot)));
        });
    }

    fn remove(&mut self, slot: SlotId) -> Option<Peer> {
        let peer = self.taken.remove(&slot)?;
        self.change(peer.source, |share| {
            share.open = share.open.saturating_sub(1);
            if let Some(since) = peer.waiting {
                share.waiting.remove(&(since, slot));
            }
        });
        Some(peer)
    }

    fn change(&mut self, source: Source, change: impl FnOnce(&mut Share)) {
        let share = self.shares.entry(source).or_default();
        if let Some(rank) = share.rank() {
            self.ranks.remove(&rank);
        }
        change(share);
        self.ranks.extend(share.rank());
        if share.open == 0 {
            self.shares.remove(&source);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn source(text: &str) -> Source {
        Source::of(text.parse().unwrap())
    }

    fn slots(all: usize, per_address: usize) -> (Slots, Instant) {
        (Slots::new(Bounds { all, per_address }), Instant::now())
    }

    #[test]
    fn one_more_of_an_address_replaces_the_one_that_has_waited_longest() {
        let (mut slots, start) = slots(9, 2);
        let at = |seconds| start + Duration::from_secs(seconds);
        let first = slots.take(source("10.0.0.1"), at(0)).unwrap();
        let second = slots.take(source("10.0.0.1"), at(1)).unwrap();
        let other = slots.take(source("10.0.0.2"), at(0)).unwrap();
        assert!(!first.replaced && !second.replaced && !other.replaced);
        slots.wait(first.slot, at(2));
        assert!(slots.take(source("10.0.0.1"), at(3)).unwrap().replaced);
        assert!(second.gone.is_cancelled() && !first.gone.is_cancelled() && !other.gone.is_cancelled());
    }

    #[test]
    fn one_more_of_all_replaces_one_of_the_address_that_has_most() {
        let (mut slots, start) = slots(3, 2);
        let at = |seconds| start + Duration::from_secs(seconds);
        let alone = slots.take(source("10.0.0.2"), at(0)).unwrap();
        let many = slots.take(source("10.0.0.1"), at(1)).unwrap();
        let _more = slots.take(source("10.0.0.1"), at(2)).unwrap();
        assert!(slots.take(source("10.0.0.3"), at(3)).unwrap().replaced);
        assert!(many.gone.is_cancelled() && !alone.gone.is_cancelled());
    }

    #[test]
    fn a_request_that_is_worked_on_keeps_its_place() {
        let (mut slots, start) = slots(2, 1);
        let (one, two) = (slots.take(source("10.0.0.1"), start).unwrap(), slots.take(source("10.0.0.2"), start).unwrap());
        slots.keep(one.slot);
        assert!(slots.take(source("10.0.0.1"), start).is_none());
        slots.keep(two.slot);
        assert!(slots.take(source("10.0.0.3"), start).is_none());
        slots.leave(two.slot);
        assert!(!slots.take(source("10.0.0.3"), start).unwrap().replaced);
        assert!(!one.gone.is_cancelled());
    }

    /// What `take` says, written down without an index.
    fn victim_by_looking_at_all(slots: &Slots, newcomer: Source) -> Option<SlotId> {
        let open = |source| slots.taken.values().filter(|peer| peer.source == source).count();
        let own = open(newcomer) >= slots.bounds.per_address;
        let waiting = slots.taken.iter().filter_map(|(slot, peer)| Some((*slot, peer.waiting?, peer.source)));
        waiting
            .filter(|(_, _, source)| !own || *source == newcomer)
            .min_by_key(|(slot, since, source)| (Reverse(open(*source)), *since, *slot))
            .map(|(slot, ..)| slot)
    }

    proptest! {
        #[test]
        fn whoever_makes_room_is_who_should(steps in vec((0_u8..6, 0_u8..4, 0_u64..20), 1..200)) {
            let (mut slots, start) = slots(6, 3);
            for (time, (what, number, slot)) in (0..).zip(steps) {
                let (at, slot) = (start + Duration::from_secs(time / 2), SlotId(slot));
                match what {
                    0 => slots.leave(slot),
                    1 => slots.keep(slot),
                    2 => slots.wait(slot, at),
                    _ => {
                        let source = source(&format!("10.0.0.{number}"));
                        let open = slots.taken.values().filter(|peer| peer.source == source).count();
                        let full = open >= 3 || slots.taken.len() >= 6;
                        let (victim, before) = (victim_by_looking_at_all(&slots, source), slots.taken.len());
                        let taken = slots.take(source, at);
                        prop_assert_eq!(taken.as_ref().map(|taken| taken.replaced), (!full || victim.is_some()).then_some(full));
                        prop_assert!(!full || victim.is_none_or(|victim| !slots.taken.contains_key(&victim)));
                        prop_assert_eq!(slots.taken.len(), if full { before } else { before + 1 });
                    }
                }
                prop_assert!(slots.shares.values().map(|share| share.open).sum::<usize>() == slots.taken.len());
            }
        }
    }

    #[test]
    fn addresses_of_one_network_are_one_sender() {
        assert_eq!(source("2001:db8::1"), source("2001:db8::ffff:2"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
        assert_eq!(source("::ffff:10.0.0.1"), source("10.0.0.1"));
        assert_ne!(source("10.0.0.1"), source("10.0.0.2"));
    }
}
