//! One shared, polled listing of jobs per credentials and repository.

mod poller;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pacer_core::polling::Pace;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::client::GitHub;
use crate::credentials::ClientId;
use crate::jobs::{QueueListing, Reading, Repository};
use crate::payer::{Payer, Payers};
use crate::pollers::Pollers;
use crate::runner_list::Health;
use poller::Poller;

/// The interval that finds a queued job within fifteen seconds: ten for the next listing, the rest for GitHub's own delay, the
/// calls, and whoever acts on it.
pub const INTERVAL: Duration = Duration::from_secs(10);

/// News kept for a receiver that is busy. Beyond them pollers wait for it, so that none is lost.
const BACKLOG: usize = 256;

/// Hands out interests in queues and owns their pollers. Cheap to clone.
#[derive(Clone)]
pub struct Queues(Arc<Registry>);

struct Registry {
    pace: Pace,
    news: mpsc::Sender<QueueNews>,
    pollers: Pollers<Repository, Lease>,
}

/// A queue has changed, or reading it began or ceased to fail: look at it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueNews {
    /// Whose credentials read it.
    pub client: ClientId,
    /// Repository whose jobs wait in the queue.
    pub repository: Repository,
}

/// Keeps one repository's queue read at an interval; the last one dropped ends that.
pub struct Interest {
    lease: Arc<Lease>,
    number: u64,
}

struct Lease {
    board: Arc<Board>,
    client: ClientId,
    repository: Repository,
    _stop: DropGuard,
}

/// What an interest wants, and whose it is.
struct Wanted {
    reading: Reading,
    payer: Option<Arc<dyn Payer>>,
}

/// What poller and interests share.
#[derive(Default)]
struct Board {
    listing: watch::Sender<Option<Arc<QueueListing>>>,
    health: watch::Sender<Health>,
    /// What each interest wants.
    readings: Mutex<BTreeMap<u64, Wanted>>,
    payers: Payers,
    numbers: AtomicU64,
    /// Calls of the last listing.
    calls: AtomicU32,
    hasty: AtomicBool,
    /// Haste or readings changed.
    stirred: Notify,
}

impl Queues {
    /// No pollers yet. They end with `shutdown`, and are joined by [`Queues::join`]. The receiver gets the news of all queues.
    #[must_use]
    pub fn new(pace: Pace, shutdown: CancellationToken) -> (Self, mpsc::Receiver<QueueNews>) {
        let (news, receiver) = mpsc::channel(BACKLOG);
        (Self(Arc::new(Registry { pace, news, pollers: Pollers::new(shutdown) })), receiver)
    }

    /// Has the queue of a repository read like this as long as the interest lives, with these credentials; starts its poller when it is the
    /// first to ask. Of several interests the shortest interval and the least patience hold. A short budget makes the interval longer, haste
    /// shorter. Must be called within a tokio runtime.
    #[must_use]
    pub fn want(&self, github: &GitHub, repository: &Repository, reading: Reading) -> Interest {
        let lease = self.0.pollers.lease((github.id().clone(), repository.clone()), |stop| {
            let board = Arc::new(Board::default());
            if let Some(payer) = github.payer() {
                board.payers.add(payer);
            }
            let poller = Poller::new(github.clone(), repository.clone(), Arc::clone(&board), &self.0);
            (Lease { board, client: github.id().clone(), repository: repository.clone(), _stop: stop }, poller.run())
        });
        Interest::new(lease, Wanted { reading, payer: github.payer().cloned() })
    }

    /// Number of pollers that run.
    #[must_use]
    pub fn pollers(&self) -> usize {
        self.0.pollers.running()
    }

    /// Waits until all pollers have ended, which they do after the shutdown token is cancelled or the last interests are dropped.
    pub async fn join(&self) {
        self.0.pollers.join().await;
    }
}

/// What all pollers of one client do together.
struct Traffic {
    pollers: u32,
    /// Calls of one listing of each.
    calls: u32,
}

impl Traffic {
    /// That of all shards, each of which does as much.
    fn of_all(self, shards: u32) -> Self {
        Self { pollers: self.pollers.saturating_mul(shards), calls: self.calls.saturating_mul(shards) }
    }
}

impl Registry {
    fn traffic(&self, client: &ClientId) -> Traffic {
        self.pollers.of(client).iter().fold(Traffic { pollers: 0, calls: 0 }, |sum, lease| Traffic {
            pollers: sum.pollers.saturating_add(1),
            calls: sum.calls.saturating_add(lease.board.calls.load(Ordering::Relaxed)),
        })
    }
}

impl Interest {
    fn new(lease: Arc<Lease>, wanted: Wanted) -> Self {
        let number = lease.board.numbers.fetch_add(1, Ordering::Relaxed);
        if let Some(payer) = &wanted.payer {
            lease.board.payers.add(payer);
        }
        lock(&lease.board.readings).insert(number, wanted);
        lease.board.stirred.notify_one();
        Self { lease, number }
    }

    /// The repository whose queue is read.
    #[must_use]
    pub fn repository(&self) -> &Repository {
        &self.lease.repository
    }

    /// Whose credentials read it.
    #[must_use]
    pub fn client(&self) -> &ClientId {
        &self.lease.client
    }

    /// The last listing; none before the first.
    #[must_use]
    pub fn latest(&self) -> Option<Arc<QueueListing>> {
        self.lease.board.listing.borrow().clone()
    }

    /// The same to be waited for; wakes with every listing, changed or not.
    #[must_use]
    pub fn listings(&self) -> watch::Receiver<Option<Arc<QueueListing>>> {
        self.lease.board.listing.subscribe()
    }

    /// How reading goes; wakes with every listing and every failure.
    #[must_use]
    pub fn health(&self) -> watch::Receiver<Health> {
        self.lease.board.health.subscribe()
    }

    /// Asks for listings in quick succession, slowing down by themselves: something should change soon, or something was missed.
    pub fn hurry(&self) {
        self.lease.board.hasty.store(true, Ordering::Relaxed);
        self.lease.board.stirred.notify_one();
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        let mut readings = lock(&self.lease.board.readings);
        readings.remove(&self.number);
        let payers: Vec<&str> = readings.values().filter_map(|wanted| Some(wanted.payer.as_ref()?.name())).collect();
        self.lease.board.payers.keep(&payers);
        drop(readings);
        self.lease.board.stirred.notify_one();
    }
}

impl Board {
    /// What satisfies all; none when nobody wants it any more.
    fn reading(&self) -> Option<Reading> {
        lock(&self.readings).values().map(|wanted| wanted.reading).reduce(Reading::and)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queues").field("pollers", &self.pollers()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Interest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interest").field("repository", &self.lease.repository).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
