//! Calls that nobody waits for: candidates in shadow, and probes of policies that kept failing.
//!
//! They have a processor of their own and never one that a decision could use; where there is no room they are left out and counted.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::TaskTracker;

use crate::room::Room;

/// Such calls that run or wait at once.
const PLACES: usize = 8;

/// The room for them.
#[derive(Debug)]
pub(crate) struct Aside {
    /// One runs at a time.
    pub(crate) room: Room,
    places: Arc<Semaphore>,
    tasks: TaskTracker,
}

impl Aside {
    pub(crate) fn new() -> Self {
        Self { room: Room::new(1, 0), places: Arc::new(Semaphore::new(PLACES)), tasks: TaskTracker::new() }
    }

    /// A place, when there is one.
    pub(crate) fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }

    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(work);
    }

    /// Waits for those under way.
    pub(crate) async fn join(&self) {
        self.tasks.close();
        self.tasks.wait().await;
        self.tasks.reopen();
    }
}
