//! What calls take while they run: a processor and memory. Both are bounded in all, and not only for each call.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::limits::Limits;

/// Memory of all guests whose answers are waited for, in MiB: eight with the default limit, or two with the highest. The shipped container
/// has 512 MiB for these, one guest in shadow, one of a simulation, what is being staged, and the operator itself, however many processors its node has.
pub(crate) const MEBIBYTES: usize = 128;

/// Room for the calls of one kind.
#[derive(Debug)]
pub(crate) struct Room {
    slots: Arc<Semaphore>,
    mebibytes: Arc<Semaphore>,
}

/// What one call takes, until it is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    _slot: OwnedSemaphorePermit,
    _memory: OwnedSemaphorePermit,
}

impl Room {
    /// Room for this many calls at once, and for no less than one with the highest limit of memory.
    pub(crate) fn new(slots: usize, mebibytes: usize) -> Self {
        let least = usize::try_from(Limits::MEMORY_MEBIBYTES).unwrap_or(usize::MAX);
        Self { slots: Arc::new(Semaphore::new(slots)), mebibytes: Arc::new(Semaphore::new(mebibytes.max(least))) }
    }

    /// Waits for a processor, and for as much memory as a call with these limits may take. None when nobody gives any out any more.
    pub(crate) async fn take(&self, limits: &Limits) -> Option<Taken> {
        let slot = Arc::clone(&self.slots).acquire_owned().await.ok()?;
        let mebibytes = u32::try_from(limits.memory().div_ceil(1 << 20)).unwrap_or(u32::MAX);
        let memory = Arc::clone(&self.mebibytes).acquire_many_owned(mebibytes).await.ok()?;
        Some(Taken { _slot: slot, _memory: memory })
    }

    /// The same, for as long as a call that is ahead may hold what it takes: its deadline is processor time, and on a busy machine it runs until
    /// [`Limits::LONGEST`] by the clock. Whoever gave up sooner would not be asked because others are slow.
    pub(crate) async fn wait(&self, limits: &Limits) -> Option<Taken> {
        timeout(Limits::LONGEST, self.take(limits)).await.ok().flatten()
    }

    /// Whether a call would find a processor at once.
    pub(crate) fn has_slot(&self) -> bool {
        self.slots.available_permits() > 0
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Duration;

    use super::*;
    use crate::limits::{LimitRequest, TICK};

    fn limits(mebibytes: u64) -> Limits {
        Limits::lowered(LimitRequest { memory_mebibytes: Some(mebibytes), ..LimitRequest::default() }).unwrap()
    }

    /// What a call with this limit takes, unless it would have to wait.
    async fn at_once(room: &Room, mebibytes: u64) -> Option<Taken> {
        timeout(Duration::ZERO, room.take(&limits(mebibytes))).await.ok().flatten()
    }

    #[tokio::test(start_paused = true)]
    async fn calls_on_many_processors_share_the_memory() {
        let room = Room::new(64, MEBIBYTES);
        let (first, second) = (at_once(&room, 64).await, at_once(&room, 64).await);
        assert!(first.is_some() && second.is_some());
        assert!(at_once(&room, 1).await.is_none(), "more than {MEBIBYTES} MiB");
        drop(first);
        let mut small = Vec::new();
        while let Some(taken) = at_once(&room, 16).await {
            small.push(taken);
        }
        assert_eq!(small.len(), 4);
        assert!(room.has_slot());
    }

    #[tokio::test(start_paused = true)]
    async fn call_waits_for_those_ahead_however_short_its_own_deadline() {
        let room = Arc::new(Room::new(1, 0));
        let deadline = LimitRequest { deadline_milliseconds: Some(1), ..LimitRequest::default() };
        let short = Limits::lowered(deadline).unwrap();
        for (held, waited_well) in [(Limits::LONGEST - TICK, true), (Limits::LONGEST + TICK, false)] {
            let ahead = at_once(&room, 1).await.unwrap();
            let waiting = tokio::spawn({
                let room = Arc::clone(&room);
                async move { room.wait(&short).await.is_some() }
            });
            tokio::time::sleep(held).await;
            drop(ahead);
            assert_eq!(waiting.await.unwrap(), waited_well, "{held:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn calls_do_not_share_a_processor() {
        let room = Room::new(1, 0);
        let first = at_once(&room, 64).await;
        assert!(first.is_some(), "there is room for the highest limit");
        assert!(at_once(&room, 1).await.is_none() && !room.has_slot());
    }
}
