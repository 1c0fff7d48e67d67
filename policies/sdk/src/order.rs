//! Orders of things by their indices, which is what answers are made of.
//!
//! All sorting is done by one shared instance of the algorithm: every element type of `sort_unstable` brings about 7 KiB of code of its
//! own, and a policy is compiled in the operator before its first use. Equal keys come in any order, but always in the same one; end a key
//! with the name or the index where that matters.

use std::cmp::Ordering;

/// The indices of `items`, ordered by the key of the items.
#[must_use]
pub fn by_key<'a, T, K: Ord>(items: &'a [T], key: impl Fn(&'a T) -> K) -> Vec<u32> {
    let mut indices: Vec<u32> = (0_u32..).zip(items).map(|(index, _)| index).collect();
    resort(&mut indices, items, key);
    indices
}

/// Orders some `indices` of `items` by the key of the items.
pub fn resort<'a, T, K: Ord>(indices: &mut [u32], items: &'a [T], key: impl Fn(&'a T) -> K) {
    sort(indices, &|one, other| match (items.get(*one as usize), items.get(*other as usize)) {
        (Some(one), Some(other)) => key(one).cmp(&key(other)),
        // No index is outside `items`.
        _ => Ordering::Equal,
    });
}

fn sort(indices: &mut [u32], compare: &dyn Fn(&u32, &u32) -> Ordering) {
    indices.sort_unstable_by(compare);
}
