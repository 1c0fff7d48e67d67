//! Who may be connected: a bounded number of connections, in all and per address.

use std::cmp::Reverse;
use std::collections::BTreeMap;
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

/// The connections that are open.
#[derive(Debug)]
pub(super) struct Slots {
    bounds: Bounds,
    taken: BTreeMap<SlotId, Peer>,
    next: u64,
}

impl Slots {
    /// Begins with no open connection.
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { bounds, taken: BTreeMap::new(), next: 0 }
    }

    /// A place for a connection from there. Where the address has all of its places, the connection of this address that has waited longest
    /// makes room; where all places are taken, the one of the address that has most. Nothing when requests are worked on in all of them.
    pub(super) fn take(&mut self, source: Source, now: Instant) -> Option<Admitted> {
        let full = self.of(source) >= self.bounds.per_address || self.taken.len() >= self.bounds.all;
        if full {
            let victim = self.victim(source)?;
            if let Some(peer) = self.taken.remove(&victim) {
                peer.gone.cancel();
            }
        }
        let (slot, gone) = (SlotId(self.next), CancellationToken::new());
        self.next = self.next.saturating_add(1);
        self.taken.insert(slot, Peer { source, waiting: Some(now), gone: gone.clone() });
        Some(Admitted { slot, gone, replaced: full })
    }

    fn of(&self, source: Source) -> usize {
        self.taken.values().filter(|peer| peer.source == source).count()
    }

    fn victim(&self, newcomer: Source) -> Option<SlotId> {
        let own_bound = self.of(newcomer) >= self.bounds.per_address;
        let waiting = self.taken.iter().filter_map(|(slot, peer)| Some((peer.waiting?, *slot, peer.source)));
        if own_bound {
            return waiting
                .filter(|(_, _, source)| *source == newcomer)
                .min_by_key(|(since, ..)| *since)
                .map(|(_, slot, _)| slot);
        }
        let mut shares = BTreeMap::<Source, usize>::new();
        for peer in self.taken.values() {
            let share = shares.entry(peer.source).or_default();
            *share = share.saturating_add(1);
        }
        // The greatest share first, then the longest wait.
        waiting.min_by_key(|(since, _, source)| (Reverse(shares.get(source).copied()), *since)).map(|(_, slot, _)| slot)
    }

    /// Its request is worked on.
    pub(super) fn keep(&mut self, slot: SlotId) {
        if let Some(peer) = self.taken.get_mut(&slot) {
            peer.waiting = None;
        }
    }

    /// Its peer is to go on from now.
    pub(super) fn wait(&mut self, slot: SlotId, now: Instant) {
        if let Some(peer) = self.taken.get_mut(&slot) {
            peer.waiting = Some(now);
        }
    }

    /// Its connection has ended.
    pub(super) fn leave(&mut self, slot: SlotId) {
        self.taken.remove(&slot);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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

    #[test]
    fn addresses_of_one_network_are_one_sender() {
        assert_eq!(source("2001:db8::1"), source("2001:db8::ffff:2"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
        assert_eq!(source("::ffff:10.0.0.1"), source("10.0.0.1"));
        assert_ne!(source("10.0.0.1"), source("10.0.0.2"));
    }
}
