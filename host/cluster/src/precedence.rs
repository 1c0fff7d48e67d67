//! Which requests go first: a job that waits is stored before more runners are made.
//!
//! GitHub waits for the answer to each webhook, gives up after ten seconds, and the answer waits until the job is stored. The same jobs have the
//! operator make a Runner and a pod each, more at once than an API server answers quickly. So creations give way while jobs are being stored, but
//! for a few of them, and only for some time: events that never end hold up no fleet.
//!
//! Jobs are stored by this process or by another one, such as a replica of `pacer webhook`. What that does shows in the watch on JobLedgers.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::{Instant, timeout_at};

/// Creations under way while jobs are being stored. Two make some hundred runners a second, and add a few milliseconds to an answer.
const MEANWHILE: usize = 2;

/// For so long no job is stored before creations give way no longer. The events of a burst that wait for each other's write leave moments in which
/// none is under way, and all creations that wait would go out in the first of them.
const QUIET: Duration = Duration::from_millis(30);

/// The same for jobs that another process stores: a write shows when it has been answered, and some time after that.
const QUIET_ELSEWHERE: Duration = Duration::from_millis(100);

/// For so long creations give way at most, until no job has been stored for a moment. A thousand events at once are stored within half of it.
const LONGEST: Duration = Duration::from_secs(10);

/// Shared by all that store jobs or make runners in a process.
#[derive(Clone, Debug)]
pub struct Precedence(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    storing: watch::Sender<Writes>,
    meanwhile: Semaphore,
}

/// Writes of jobs.
#[derive(Clone, Copy, Debug, Default)]
struct Writes {
    under_way: usize,
    /// When the last time began in which jobs were stored without a pause; none before the first.
    began: Option<Instant>,
    /// Until when the next write is part of that time.
    until: Option<Instant>,
}

impl Writes {
    /// When creations need no longer give way if nothing more is stored; none: at once.
    fn quiet_from(&self, now: Instant) -> Option<Instant> {
        let longest = self.began? + LONGEST;
        let quiet = if self.under_way == 0 { self.until.map_or(now, |until| until.min(longest)) } else { longest };
        (quiet > now).then_some(quiet)
    }

    fn is_pausing(&self, now: Instant) -> bool {
        self.under_way == 0 && self.until.is_none_or(|until| until <= now)
    }

    fn begin(&mut self, now: Instant) {
        if self.is_pausing(now) {
            self.began = Some(now);
        }
    }

    fn last_until(&mut self, until: Instant) {
        self.until = self.until.max(Some(until));
    }
}

impl Default for Precedence {
    fn default() -> Self {
        Self(Arc::new(Shared { storing: watch::Sender::new(Writes::default()), meanwhile: Semaphore::new(MEANWHILE) }))
    }
}

/// A write of jobs that is under way, until it is dropped.
#[derive(Debug)]
pub struct Storing<'a>(&'a Shared);

impl Drop for Storing<'_> {
    fn drop(&mut self) {
        self.0.storing.send_modify(|writes| {
            writes.under_way = writes.under_way.saturating_sub(1);
            writes.last_until(Instant::now() + QUIET);
        });
    }
}

/// A creation whose turn it is, until it is dropped.
#[derive(Debug)]
pub struct Turn<'a>(#[expect(dead_code, reason = "given back when it is dropped")] Option<SemaphorePermit<'a>>);

impl Precedence {
    /// Jobs that wait are about to be stored.
    #[must_use]
    pub fn storing(&self) -> Storing<'_> {
        self.0.storing.send_modify(|writes| {
            writes.begin(Instant::now());
            writes.under_way = writes.under_way.saturating_add(1);
        });
        Storing(&self.0)
    }

    /// Another process has stored jobs that wait.
    pub fn stored_elsewhere(&self) {
        let now = Instant::now();
        self.0.storing.send_modify(|writes| {
            writes.begin(now);
            writes.last_until(now + QUIET_ELSEWHERE);
        });
    }

    /// Waits until a Runner or a pod may be made: at once where no jobs are being stored.
    pub async fn turn(&self) -> Turn<'_> {
        tokio::select! {
            biased;
            () = self.quiet() => Turn(None),
            permit = self.0.meanwhile.acquire() => Turn(permit.ok()),
        }
    }

    async fn quiet(&self) {
        let mut storing = self.0.storing.subscribe();
        loop {
            let quiet_from = storing.borrow_and_update().quiet_from(Instant::now());
            let Some(quiet_from) = quiet_from else { return };
            // Another write, or none until then. The sender is as old as this.
            let _begun = timeout_at(quiet_from, storing.changed()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn creations_do_not_wait_when_no_jobs_are_being_stored() {
        let precedence = Precedence::default();
        let turns: Vec<_> = (0..100).map(|_| precedence.turn().now_or_never()).collect();
        assert!(turns.iter().all(Option::is_some));
    }

    #[tokio::test(start_paused = true)]
    async fn few_creations_are_sent_while_jobs_are_being_stored() {
        let precedence = Precedence::default();
        let (first, second) = (precedence.storing(), precedence.storing());
        let mut turns: Vec<_> = (0..MEANWHILE).map(|_| precedence.turn().now_or_never()).collect();
        assert!(turns.iter().all(Option::is_some));
        assert!(precedence.turn().now_or_never().is_none());
        turns.pop();
        turns.push(precedence.turn().now_or_never());
        assert!(turns.iter().all(Option::is_some), "one was answered");
        drop(first);
        assert!(precedence.turn().now_or_never().is_none(), "one write is still under way");
        drop(second);
        assert!(precedence.turn().now_or_never().is_none(), "the next one may come at once");
        advance(QUIET).await;
        assert!(precedence.turn().now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn creation_that_waits_goes_on_when_the_jobs_are_stored() {
        let precedence = Precedence::default();
        let storing = precedence.storing();
        let mut held = Vec::new();
        for _ in 0..MEANWHILE {
            held.push(precedence.turn().await);
        }
        let waiting = precedence.turn();
        tokio::pin!(waiting);
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(storing);
        // A gap between two writes is too short.
        advance(QUIET / 2).await;
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(precedence.storing());
        advance(QUIET - Duration::from_millis(1)).await;
        assert!(waiting.as_mut().now_or_never().is_none());
        let _turn = waiting.await;
    }

    #[tokio::test(start_paused = true)]
    async fn few_creations_are_sent_while_another_process_stores_jobs() {
        let precedence = Precedence::default();
        for _ in 0..3 {
            precedence.stored_elsewhere();
            let turns: Vec<_> = (0..=MEANWHILE).map(|_| precedence.turn().now_or_never()).collect();
            assert_eq!(turns.iter().filter(|turn| turn.is_some()).count(), MEANWHILE);
            advance(QUIET_ELSEWHERE - Duration::from_millis(1)).await;
        }
        advance(Duration::from_millis(1)).await;
        let turns: Vec<_> = (0..100).map(|_| precedence.turn().now_or_never()).collect();
        assert!(turns.iter().all(Option::is_some));
    }

    #[tokio::test(start_paused = true)]
    async fn creations_do_not_give_way_for_ever() {
        let precedence = Precedence::default();
        let began = Instant::now();
        let is_full =
            || (0..=MEANWHILE).map(|_| precedence.turn().now_or_never()).collect::<Vec<_>>().iter().any(Option::is_none);
        let storing = precedence.storing();
        while began.elapsed() < LONGEST {
            assert!(is_full(), "{:?}", began.elapsed());
            precedence.stored_elsewhere();
            advance(QUIET_ELSEWHERE / 2).await;
        }
        assert!(!is_full());
        precedence.stored_elsewhere();
        assert!(!is_full(), "there was no pause");
        drop(storing);
        advance(QUIET_ELSEWHERE).await;
        precedence.stored_elsewhere();
        assert!(is_full(), "there was one");
    }
}
