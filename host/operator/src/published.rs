//! Values that have one writer: what a controller remembers about its objects, and what others may read of it.
//!
//! | value | by | written by | read by |
//! | --- | --- | --- | --- |
//! | [`FleetSummary`] | RunnerReplicaSet | its controller | RunnerDeployments, RunnerSets, autoscalers, whoever asks policies |
//! | [`FinishedRunners`] | scale target | the RunnerReplicaSet controller | autoscalers |
//! | [`Durations`](pacer_core::durations::Durations) of starts | pool | the RunnerReplicaSet controller | autoscalers |
//! | [`AcceptedDemand`](pacer_core::replacement::AcceptedDemand) | RunnerReplicaSet | the autoscaler controller | the RunnerReplicaSet controller |
//! | [`JobHistory`] | pool | the autoscaler controller | the controllers of RunnerReplicaSets and Runners, whoever asks policies |
//! | [`RunnerJob`](pacer_core::runner_job::RunnerJob) | Runner | the autoscaler controller | whoever observes runners |
//! | [`Known`](crate::observe::Known) | Runner | the Runner controller | whoever observes runners, autoscalers |
//! | [`AdoptedRunners`] | RunnerReplicaSet | the RunnerSet controller | the RunnerReplicaSet controller |
//!
//! All of it may be lost at any moment: each value only saves a question or a wait that a restarted operator asks or waits again.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

mod fleet;
mod pool;

pub use fleet::{AdoptedRunners, FinishedRunners, FleetSummary, IN_FLIGHT};
pub use pool::{JobHistory, Past, PoolReports};

/// Values by key, for their one writer.
#[derive(Debug)]
pub struct Owned<K, V>(Arc<Mutex<HashMap<K, V>>>);

/// The same values, for everybody else.
#[derive(Debug)]
pub struct Published<K, V>(Arc<Mutex<HashMap<K, V>>>);

impl<K, V> Default for Owned<K, V> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K, V> Clone for Published<K, V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Clone + Eq + Hash, V> Owned<K, V> {
    /// For those who may read.
    #[must_use]
    pub fn reader(&self) -> Published<K, V> {
        Published(self.0.clone())
    }

    /// Changes a value; one that is not there begins as the default.
    pub fn change<T>(&self, key: &K, act: impl FnOnce(&mut V) -> T) -> T
    where
        V: Default,
    {
        act(lock(&self.0).entry(key.clone()).or_default())
    }

    /// Replaces a value.
    pub fn set(&self, key: &K, value: V) {
        lock(&self.0).insert(key.clone(), value);
    }

    /// Reads a value; none where it is not there.
    pub fn read<T>(&self, key: &K, read: impl FnOnce(&V) -> T) -> Option<T> {
        lock(&self.0).get(key).map(read)
    }

    /// A value, or the default.
    #[must_use]
    pub fn get(&self, key: &K) -> V
    where
        V: Clone + Default,
    {
        self.read(key, V::clone).unwrap_or_default()
    }

    /// Forgets a value.
    pub fn remove(&self, key: &K) {
        lock(&self.0).remove(key);
    }

    /// Keeps some values only.
    pub fn retain(&self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        lock(&self.0).retain(|key, value| keep(key, value));
    }
}

impl<K: Eq + Hash, V> Published<K, V> {
    /// Reads a value; none where it is not there.
    pub fn read<T>(&self, key: &K, read: impl FnOnce(&V) -> T) -> Option<T> {
        lock(&self.0).get(key).map(read)
    }

    /// A value as it is now.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<V>
    where
        V: Clone,
    {
        self.read(key, V::clone)
    }
}

/// A poisoned lock only means that another reconcile panicked between two assignments of a hint.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reader_sees_what_the_owner_changed_and_nothing_after_it_was_forgotten() {
        let owned: Owned<u8, u32> = Owned::default();
        let reader = owned.reader();
        assert_eq!((reader.get(&1), owned.get(&1)), (None, 0));
        assert_eq!(owned.change(&1, |value| std::mem::replace(value, 7)), 0);
        owned.set(&2, 8);
        assert_eq!((reader.get(&1), reader.read(&2, |value| value + 1)), (Some(7), Some(9)));
        owned.retain(|key, _| *key == 2);
        owned.remove(&3);
        assert_eq!((reader.get(&1), reader.get(&2)), (None, Some(8)));
    }
}
