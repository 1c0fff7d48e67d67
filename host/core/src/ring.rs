//! What a bounded store of receipts keeps.
//!
//! Decisions of several kinds share the room, and one that is taken all the time must not push out one that is taken once a day: what goes is
//! always the oldest of the kind that holds the most. So a kind that holds less than its equal share loses nothing.

use std::collections::{BTreeMap, VecDeque};

/// How much a store may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Most receipts.
    pub count: usize,
    /// Most bytes over all receipts.
    pub bytes: usize,
}

/// A receipt that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held<K> {
    /// Kind of receipt: the kind with the most receipts or bytes loses its oldest ones first.
    pub kind: K,
    /// Names it; grows with time.
    pub id: String,
    /// Size of the receipt as it is stored, in bytes.
    pub bytes: usize,
}

/// Which receipts have to go, as places in the given list, in order. The list is in any order.
#[must_use]
pub fn overflow<K: Ord + Copy>(held: &[Held<K>], bounds: Bounds) -> Vec<usize> {
    let mut order: Vec<(usize, &Held<K>)> = held.iter().enumerate().collect();
    order.sort_by(|(_, one), (_, other)| one.id.cmp(&other.id));
    let mut kinds: BTreeMap<K, Kind> = BTreeMap::new();
    for (place, one) in order {
        let kind = kinds.entry(one.kind).or_default();
        kind.bytes = kind.bytes.saturating_add(one.bytes);
        kind.oldest_first.push_back((place, one.bytes));
    }
    let (mut count, mut bytes) = (held.len(), held.iter().fold(0_usize, |sum, one| sum.saturating_add(one.bytes)));
    let mut gone = Vec::new();
    while count > bounds.count || bytes > bounds.bytes {
        // Where both are too many, bytes are what costs.
        let most = if bytes > bounds.bytes {
            kinds.values_mut().max_by_key(|kind| kind.bytes)
        } else {
            kinds.values_mut().max_by_key(|kind| kind.oldest_first.len())
        };
        let Some((place, size)) = most.and_then(Kind::lose) else { break };
        count -= 1;
        bytes = bytes.saturating_sub(size);
        gone.push(place);
    }
    gone.sort_unstable();
    gone
}

#[derive(Default)]
struct Kind {
    bytes: usize,
    oldest_first: VecDeque<(usize, usize)>,
}

impl Kind {
    fn lose(&mut self) -> Option<(usize, usize)> {
        let (place, size) = self.oldest_first.pop_front()?;
        self.bytes = self.bytes.saturating_sub(size);
        Some((place, size))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn held(kind: char, id: u32, bytes: usize) -> Held<char> {
        Held { kind, id: format!("{id:04}"), bytes }
    }

    #[test]
    fn the_oldest_of_the_kind_that_holds_most_goes() {
        let all = [held('a', 1, 10), held('b', 2, 10), held('b', 3, 10), held('b', 5, 10), held('b', 4, 10)];
        let gone = |count, bytes| overflow(&all, Bounds { count, bytes });
        assert_eq!(gone(5, 50), Vec::<usize>::new());
        assert_eq!(gone(4, 50), [1]);
        assert_eq!(gone(3, 50), [1, 2]);
        assert_eq!(gone(5, 20), [1, 2, 4]);
        assert_eq!(gone(0, 50), [0, 1, 2, 3, 4]);
        assert_eq!(overflow::<char>(&[], Bounds { count: 0, bytes: 0 }), Vec::<usize>::new());
    }

    #[test]
    fn one_that_is_larger_than_everything_is_not_kept() {
        let all = [held('a', 1, 3), held('b', 2, 100)];
        assert_eq!(overflow(&all, Bounds { count: 9, bytes: 50 }), [1]);
    }

    proptest! {
        #[test]
        fn kept_receipts_fit_and_share_equally_when_there_are_too_many(
            all in proptest::collection::vec((0_u8..3, 0_u32..500, 0_usize..40), 0..60),
            count in 0_usize..40,
            bytes in 0_usize..900,
        ) {
            let all: Vec<Held<u8>> =
                all.into_iter().enumerate().map(|(at, (kind, id, bytes))| Held { kind, id: format!("{id:04}{at:04}"), bytes }).collect();
            let gone = overflow(&all, Bounds { count, bytes });
            let kept: Vec<&Held<u8>> = all.iter().enumerate().filter(|(place, _)| !gone.contains(place)).map(|(_, one)| one).collect();
            prop_assert!(kept.len() <= count && kept.iter().map(|one| one.bytes).sum::<usize>() <= bytes);
            for kind in 0..3 {
                let of = |list: &[&Held<u8>]| -> (usize, usize) {
                    let of: Vec<_> = list.iter().filter(|one| one.kind == kind).collect();
                    (of.len(), of.iter().map(|one| one.bytes).sum())
                };
                let (had, left) = (of(&all.iter().collect::<Vec<_>>()), of(&kept));
                if had.0 <= count / 3 && had.1 <= bytes / 3 {
                    prop_assert_eq!(had, left);
                }
                // What went is older than what stayed.
                let newest_gone = gone.iter().filter_map(|place| all.get(*place)).filter(|one| one.kind == kind).map(|one| &one.id).max();
                let oldest_kept = kept.iter().filter(|one| one.kind == kind).map(|one| &one.id).min();
                if let (Some(gone), Some(kept)) = (newest_gone, oldest_kept) {
                    prop_assert!(gone < kept);
                }
            }
        }
    }
}
