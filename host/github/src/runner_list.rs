//! One shared, polled listing per credentials and scope.

mod poller;
mod view;

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pacer_core::allowance::Purpose;
use pacer_core::polling::Pace;
use pacer_core::scope::Scope;
use tokio::sync::{Notify, broadcast, watch};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::client::GitHub;
use crate::credentials::ClientId;
use crate::error::Error;
use crate::payer::{Payer, Payers};
use crate::pollers::Pollers;

use poller::Poller;
pub use view::{Presence, RunnerListView};

/// Change sets kept for a subscriber that is busy; beyond them it is told [`Changes::All`].
const BACKLOG: usize = 16;

/// Hands out runner lists and owns their pollers. Cheap to clone.
#[derive(Clone)]
pub struct RunnerLists(Arc<Registry>);

struct Registry {
    pace: Pace,
    pollers: Pollers<Scope, Lease>,
}

/// Keeps one scope's poller running; the last one dropped stops it. Cheap to clone.
#[derive(Clone)]
pub struct RunnerListHandle(Arc<Lease>);

struct Lease {
    board: Arc<Board>,
    scope: Scope,
    _stop: DropGuard,
}

/// What poller and handles share.
struct Board {
    view: watch::Sender<Option<Arc<RunnerListView>>>,
    health: watch::Sender<Health>,
    changes: broadcast::Sender<Changes>,
    /// Since when whoever began last to wait does so, for what, and who pays for that.
    haste: Mutex<Option<(Instant, Haste, Option<String>)>>,
    payers: Payers,
    /// Pages of the last listing.
    pages: AtomicU32,
    hurried: Notify,
}

/// Why a runner list should be read soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Haste {
    /// A runner should appear.
    Registration,
    /// A runner should stop being busy.
    JobEnd,
    /// A runner should disappear.
    Removal,
}

/// How reading a runner list goes.
#[derive(Clone, Debug, Default)]
pub struct Health {
    /// Failed listings since the last good one.
    pub failures: u32,
    /// The last failure; none after a good listing.
    pub error: Option<Error>,
    /// When the last good listing was started.
    pub last_good: Option<Instant>,
    /// Good listings so far.
    pub listings: u64,
    /// Those of them whose pages did not fit together.
    pub torn: u64,
}

/// Names of runners that appeared, disappeared, or changed state or labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changes {
    /// Any of them: at first, and when a subscriber fell behind.
    All,
    /// Only runners of these names.
    Named(Arc<[Arc<str>]>),
}

/// Changes in order; see [`RunnerListHandle::changes`].
#[derive(Debug)]
pub struct ChangeStream(broadcast::Receiver<Changes>);

impl RunnerLists {
    /// No pollers yet. They end with `shutdown`, and are joined by [`RunnerLists::join`].
    #[must_use]
    pub fn new(pace: Pace, shutdown: CancellationToken) -> Self {
        Self(Arc::new(Registry { pace, pollers: Pollers::new(shutdown) }))
    }

    /// The runner list of a scope as these credentials see it; starts its poller when it is the first to ask. Must be called within a
    /// tokio runtime.
    #[must_use]
    pub fn subscribe(&self, github: &GitHub, scope: &Scope) -> RunnerListHandle {
        RunnerListHandle(self.0.pollers.lease((github.id().clone(), scope.clone()), |stop| {
            let board = Arc::new(Board {
                view: watch::Sender::new(None),
                health: watch::Sender::new(Health::default()),
                changes: broadcast::Sender::new(BACKLOG),
                haste: Mutex::default(),
                payers: Payers::default(),
                pages: AtomicU32::new(1),
                hurried: Notify::new(),
            });
            if let Some(payer) = github.payer() {
                board.payers.add(payer);
            }
            let registry = Arc::downgrade(&self.0);
            let poller = Poller::new(github.clone(), scope.clone(), self.0.pace.clone(), Arc::clone(&board), registry);
            (Lease { board, scope: scope.clone(), _stop: stop }, poller.run())
        }))
    }

    /// Number of pollers that run.
    #[must_use]
    pub fn pollers(&self) -> usize {
        self.0.pollers.running()
    }

    /// Waits until all pollers have ended, which they do after the shutdown token is cancelled or the last handles are dropped.
    pub async fn join(&self) {
        self.0.pollers.join().await;
    }
}

/// What all pollers of one client do together.
struct Traffic {
    pollers: u32,
    /// Pages of one listing of each.
    pages: u32,
}

impl Traffic {
    /// That of all shards, each of which does as much.
    fn of_all(self, shards: u32) -> Self {
        Self { pollers: self.pollers.saturating_mul(shards), pages: self.pages.saturating_mul(shards) }
    }
}

impl Registry {
    fn traffic(&self, client: &ClientId) -> Traffic {
        self.pollers.of(client).iter().fold(Traffic { pollers: 0, pages: 0 }, |sum, lease| Traffic {
            pollers: sum.pollers.saturating_add(1),
            pages: sum.pages.saturating_add(lease.board.pages.load(Ordering::Relaxed)),
        })
    }
}

impl RunnerListHandle {
    /// The scope that is listed.
    #[must_use]
    pub fn scope(&self) -> &Scope {
        &self.0.scope
    }

    /// The last good view, none before the first; wakes with every listing, changed or not.
    #[must_use]
    pub fn latest(&self) -> watch::Receiver<Option<Arc<RunnerListView>>> {
        self.0.board.view.subscribe()
    }

    /// How reading goes; wakes with every listing and every failure.
    #[must_use]
    pub fn health(&self) -> watch::Receiver<Health> {
        self.0.board.health.subscribe()
    }

    /// One more pays for listings.
    pub fn share(&self, payer: &Arc<dyn Payer>) {
        if self.0.board.payers.add(payer) {
            self.0.board.hurried.notify_one();
        }
    }

    /// Only those with these names pay from now on.
    pub fn keep_payers(&self, names: &[&str]) {
        self.0.board.payers.keep(names);
    }

    /// Changes from now on.
    #[must_use]
    pub fn changes(&self) -> ChangeStream {
        ChangeStream(self.0.board.changes.subscribe())
    }

    /// Asks for listings in quick succession for somebody who has `waited` so long already: the longer that is, the slower they come, so that
    /// one may ask again for as long as what was awaited is missing. `payer` pays for the next one; one that may make no call now hurries nothing,
    /// or others would have to pay for it.
    pub fn hurry(&self, why: Haste, waited: Duration, payer: Option<&Arc<dyn Payer>>) {
        if payer.is_some_and(|payer| !payer.wait(Purpose::Listing).is_zero()) {
            return;
        }
        let now = Instant::now();
        let since = now.checked_sub(waited).unwrap_or(now);
        let mut haste = self.0.board.haste.lock().unwrap_or_else(PoisonError::into_inner);
        if haste.as_ref().is_none_or(|(known, ..)| *known < since) {
            *haste = Some((since, why, payer.map(|payer| payer.name().to_owned())));
        }
        drop(haste);
        self.0.board.hurried.notify_one();
    }

    /// Waits for a view whose listing was started after `after`, asking for haste meanwhile.
    ///
    /// # Errors
    ///
    /// When a listing fails first.
    pub async fn newer_than(&self, after: Instant, why: Haste) -> Result<Arc<RunnerListView>, Error> {
        let (mut views, mut health) = (self.latest(), self.health());
        health.mark_unchanged();
        self.hurry(why, Duration::ZERO, None);
        loop {
            let fresh = views.borrow_and_update().clone().filter(|view| view.listing().fetched_at > after);
            if let Some(view) = fresh {
                return Ok(view);
            }
            // The senders live in this handle, so neither wait can fail.
            tokio::select! {
                _ = views.changed() => {}
                _ = health.changed() => {
                    if let Some(error) = health.borrow_and_update().error.clone() {
                        return Err(error);
                    }
                }
            }
        }
    }
}

impl ChangeStream {
    /// The next changes; none when the runner list has ended.
    pub async fn next(&mut self) -> Option<Changes> {
        match self.0.recv().await {
            Ok(changes) => Some(changes),
            Err(broadcast::error::RecvError::Lagged(_)) => {
                // What is still queued is part of "all".
                self.0 = self.0.resubscribe();
                Some(Changes::All)
            }
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

impl Haste {
    /// Name for logs and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Registration => "registration",
            Self::JobEnd => "job_end",
            Self::Removal => "removal",
        }
    }
}

impl Health {
    /// Takes note of one more good listing.
    pub(crate) fn succeed(&mut self, began: Instant, complete: bool) {
        *self = Self {
            failures: 0,
            error: None,
            last_good: Some(began),
            listings: self.listings.saturating_add(1),
            torn: self.torn.saturating_add(u64::from(!complete)),
        };
    }

    /// Age of the last good listing; none before the first.
    #[must_use]
    pub fn age(&self) -> Option<Duration> {
        self.last_good.map(|at| at.elapsed())
    }
}

impl fmt::Debug for RunnerLists {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunnerLists").field("pollers", &self.pollers()).finish_non_exhaustive()
    }
}

impl fmt::Debug for RunnerListHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunnerListHandle").field("scope", &self.0.scope).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
