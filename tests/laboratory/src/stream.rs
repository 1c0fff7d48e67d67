//! Objects of one kind at the API server, and the operator's watch of them.

use std::collections::{BTreeMap, VecDeque};

use crate::clock::At;

/// A kind: what is true, what the operator has been shown, and what is under way.
///
/// A watch shows changes in order and late. Watches of different kinds know nothing of each other, so that changes of different kinds are seen
/// in any order.
#[derive(Clone, Debug)]
pub struct Stream<K, V> {
    truth: BTreeMap<K, V>,
    cache: BTreeMap<K, V>,
    pending: VecDeque<(At, K, Option<V>)>,
    /// Nothing is shown before this.
    stalled_until: At,
}

impl<K: Ord + Copy, V: Clone> Default for Stream<K, V> {
    fn default() -> Self {
        Self { truth: BTreeMap::new(), cache: BTreeMap::new(), pending: VecDeque::new(), stalled_until: 0 }
    }
}

impl<K: Ord + Copy, V: Clone> Stream<K, V> {
    /// An object as it is.
    #[must_use]
    pub fn truth(&self, key: K) -> Option<&V> {
        self.truth.get(&key)
    }

    /// All objects as they are.
    pub fn all(&self) -> impl Iterator<Item = (K, &V)> {
        self.truth.iter().map(|(key, value)| (*key, value))
    }

    /// An object as the operator sees it.
    #[must_use]
    pub fn seen(&self, key: K) -> Option<&V> {
        self.cache.get(&key)
    }

    /// All objects as the operator sees them.
    pub fn all_seen(&self) -> impl Iterator<Item = (K, &V)> {
        self.cache.iter().map(|(key, value)| (*key, value))
    }

    /// Whether nothing is shown now.
    #[must_use]
    pub fn is_stalled(&self, now: At) -> bool {
        now < self.stalled_until
    }

    /// Writes an object, or removes it. Returns when the watch shows that.
    pub fn write(&mut self, key: K, value: Option<V>, shown: At) -> At {
        match &value {
            Some(value) => self.truth.insert(key, value.clone()),
            None => self.truth.remove(&key),
        };
        let due = shown.max(self.stalled_until).max(self.pending.back().map_or(0, |(due, ..)| *due));
        self.pending.push_back((due, key, value));
        due
    }

    /// Shows nothing until then.
    pub fn stall(&mut self, until: At) {
        self.stalled_until = self.stalled_until.max(until);
        for (due, ..) in &mut self.pending {
            *due = until.max(*due);
        }
    }

    /// Shows what is due. Returns what changed, and the state before.
    pub fn deliver(&mut self, now: At) -> Vec<(K, Option<V>)> {
        let mut changed = Vec::new();
        while self.pending.front().is_some_and(|(due, ..)| *due <= now) {
            let Some((_, key, value)) = self.pending.pop_front() else { break };
            let before = match value {
                Some(value) => self.cache.insert(key, value),
                None => self.cache.remove(&key),
            };
            changed.push((key, before));
        }
        changed
    }

    /// When something is shown next.
    #[must_use]
    pub fn next(&self) -> Option<At> {
        self.pending.front().map(|(due, ..)| *due)
    }

    /// A process that starts lists everything.
    pub fn relist(&mut self) {
        self.pending.clear();
        self.stalled_until = 0;
        self.cache = self.truth.clone();
    }
}
