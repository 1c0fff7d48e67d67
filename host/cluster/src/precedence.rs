//! Which requests go first: a job is stored before more runners are made.
//!
//! GitHub waits for the answer to each webhook, gives up after ten seconds, and the answer waits until the job is stored. The same jobs have the
//! operator make a Runner and a pod each, more at once than an API server answers quickly. So creations give way while jobs are being stored, but
//! for a few of them: events that never end hold up no fleet.

use std::sync::Arc;

use tokio::sync::{Semaphore, SemaphorePermit, watch};

/// Creations under way while jobs are being stored. Two make some hundred runners a second, and add a few milliseconds to an answer.
const MEANWHILE: usize = 2;

/// Shared by all that store jobs or make runners in a process.
#[derive(Clone, Debug)]
pub struct Precedence(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Writes of jobs under way.
    storing: watch::Sender<usize>,
    meanwhile: Semaphore,
}

impl Default for Precedence {
    fn default() -> Self {
        Self(Arc::new(Shared { storing: watch::Sender::new(0), meanwhile: Semaphore::new(MEANWHILE) }))
    }
}

/// A write of jobs that is under way, until it is dropped.
#[derive(Debug)]
pub struct Storing<'a>(&'a Shared);

impl Drop for Storing<'_> {
    fn drop(&mut self) {
        self.0.storing.send_modify(|count| *count = count.saturating_sub(1));
    }
}

/// A creation whose turn it is, until it is dropped.
#[derive(Debug)]
pub struct Turn<'a>(#[expect(dead_code, reason = "given back when it is dropped")] Option<SemaphorePermit<'a>>);

impl Precedence {
    /// Jobs are about to be stored.
    #[must_use]
    pub fn storing(&self) -> Storing<'_> {
        self.0.storing.send_modify(|count| *count = count.saturating_add(1));
        Storing(&self.0)
    }

    /// Waits until a Runner or a pod may be made: at once where no jobs are being stored.
    pub async fn turn(&self) -> Turn<'_> {
        let mut storing = self.0.storing.subscribe();
        tokio::select! {
            biased;
            _quiet = storing.wait_for(|count| *count == 0) => Turn(None),
            permit = self.0.meanwhile.acquire() => Turn(permit.ok()),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn creations_do_not_wait_when_no_jobs_are_being_stored() {
        let precedence = Precedence::default();
        let turns: Vec<_> = (0..100).map(|_| precedence.turn().now_or_never()).collect();
        assert!(turns.iter().all(Option::is_some));
    }

    #[test]
    fn few_creations_are_sent_while_jobs_are_being_stored() {
        let precedence = Precedence::default();
        let (first, second) = (precedence.storing(), precedence.storing());
        let mut turns: Vec<_> = (0..MEANWHILE).map(|_| precedence.turn().now_or_never()).collect();
        assert!(turns.iter().all(Option::is_some));
        assert!(precedence.turn().now_or_never().is_none());
        turns.pop();
        assert!(precedence.turn().now_or_never().is_some(), "one was answered");
        drop(first);
        let third: Vec<_> = (0..2).map(|_| precedence.turn().now_or_never()).collect();
        assert!(third.iter().any(Option::is_none), "one write is still under way");
        drop(second);
        assert!(precedence.turn().now_or_never().is_some());
    }

    #[tokio::test]
    async fn creation_that_waits_goes_on_when_the_jobs_are_stored() {
        let precedence = Precedence::default();
        let storing = precedence.storing();
        let _held = (precedence.turn().await, precedence.turn().await);
        let waiting = precedence.turn();
        tokio::pin!(waiting);
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(storing);
        let _turn = waiting.await;
    }
}
