//! Whose policy set is staged next: some at once, and of each namespace one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};

/// Policy sets that are staged at once. Two, so that one that takes its whole budget does not hold up those of other namespaces, and no more,
/// because each may take as much memory as a stager may have.
const PLACES: usize = 2;

/// Whose turn it is. Both queues in it serve in the order of arrival, and of each namespace only one waits in the second one: namespaces take turns, however many sets
/// one of them has.
pub struct Queue {
    places: Arc<Semaphore>,
    owners: Mutex<HashMap<String, Weak<AsyncMutex<()>>>>,
}

/// Held while it is somebody's turn.
#[derive(Debug)]
pub struct Permit {
    _place: Option<OwnedSemaphorePermit>,
    _permit: OwnedMutexGuard<()>,
}

impl Default for Queue {
    fn default() -> Self {
        Self::of(PLACES)
    }
}

impl Queue {
    /// With so many places.
    #[must_use]
    pub fn of(places: usize) -> Self {
        Self { places: Arc::new(Semaphore::new(places)), owners: Mutex::default() }
    }

    /// Waits until it is the turn of a set of this namespace.
    pub async fn permit(&self, owner: &str) -> Permit {
        let owned = {
            let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
            owners.retain(|_, owned| owned.strong_count() > 0);
            let known = owners.get(owner).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let owned = Arc::default();
                owners.insert(owner.to_owned(), Arc::downgrade(&owned));
                owned
            })
        };
        let permit = owned.lock_owned().await;
        // It is never closed.
        Permit { _place: Arc::clone(&self.places).acquire_owned().await.ok(), _permit: permit }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// Whether a permit is given at once.
    fn given(permit: &mut std::pin::Pin<&mut impl Future<Output = Permit>>) -> Option<Permit> {
        match permit.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(permit) => Some(permit),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_namespace_gets_its_turn_whatever_others_have_waiting() {
        let queue = Queue::default();
        let (mut one, mut two, mut three) = (pin!(queue.permit("a")), pin!(queue.permit("a")), pin!(queue.permit("a")));
        let (mut other, mut third) = (pin!(queue.permit("b")), pin!(queue.permit("c")));
        let first = given(&mut one);
        assert!(first.is_some() && given(&mut two).is_none() && given(&mut three).is_none());
        // The second place is that of another namespace, and then there is none.
        let second = given(&mut other);
        assert!(second.is_some() && given(&mut third).is_none());
        drop(first);
        // `a` has two waiting, and `c` came to the places before them.
        let next = given(&mut third);
        assert!(given(&mut two).is_none() && next.is_some());
        drop((second, next));
        assert!(given(&mut two).is_some() && given(&mut three).is_some());
    }
}
