//! Pollers that several share: one per credentials and subject, running as long as somebody holds its lease.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::credentials::ClientId;

/// Leases `L` of pollers, by whose credentials they use and what they read.
pub(crate) struct Pollers<K, L> {
    leases: Mutex<HashMap<(ClientId, K), Weak<L>>>,
    tasks: TaskTracker,
    shutdown: CancellationToken,
}

impl<K: Eq + Hash, L> Pollers<K, L> {
    /// None yet. They end with `shutdown`.
    pub(crate) fn new(shutdown: CancellationToken) -> Self {
        Self { leases: Mutex::default(), tasks: TaskTracker::new(), shutdown }
    }

    /// The lease that others hold, or a new one, whose poller starts. `open` makes both; the poller ends when the lease drops the guard.
    /// Must be called within a tokio runtime.
    pub(crate) fn lease<P>(&self, key: (ClientId, K), open: impl FnOnce(DropGuard) -> (L, P)) -> Arc<L>
    where
        P: Future<Output = ()> + Send + 'static,
    {
        let mut leases = self.leases();
        if let Some(lease) = leases.get(&key).and_then(Weak::upgrade) {
            return lease;
        }
        let stop = self.shutdown.child_token();
        let (lease, poller) = open(stop.clone().drop_guard());
        let lease = Arc::new(lease);
        leases.retain(|_, lease| lease.strong_count() > 0);
        leases.insert(key, Arc::downgrade(&lease));
        self.tasks.spawn(async move {
            // Dropping the poller ends requests in flight: nobody is left to read their answers.
            stop.run_until_cancelled(poller).await;
        });
        lease
    }

    /// The leases held with the same credentials.
    pub(crate) fn of(&self, client: &ClientId) -> Vec<Arc<L>> {
        // Collected before anything is done with them: the last holder of a lease may be this one, and its end must not find the lock taken.
        self.leases().iter().filter(|((id, _), _)| id == client).filter_map(|(_, lease)| lease.upgrade()).collect()
    }

    /// Number of pollers that run.
    pub(crate) fn running(&self) -> usize {
        self.tasks.len()
    }

    /// Waits until all have ended, which they do after the shutdown token is cancelled or the last leases are dropped.
    pub(crate) async fn join(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn leases(&self) -> MutexGuard<'_, HashMap<(ClientId, K), Weak<L>>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
