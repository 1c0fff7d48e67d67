//! The task that reads one scope's listing again and again.

use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use pacer_core::scope::Scope;
use tokio::time::Instant;

use crate::client::GitHub;
use crate::error::Error;
use crate::pace::{Pace, Situation};
use crate::roster::view::RosterView;
use crate::roster::{Board, Haste, Health, Registry};
use crate::runners::Listing;

/// Weight of the last listing in the average of charged calls.
const RECENT: f64 = 0.5;
/// Average below which listings count as free: a change long ago must not slow us down for ever.
const FREE: f64 = 0.05;

pub(super) struct Poller {
    github: GitHub,
    scope: Scope,
    pace: Pace,
    board: Arc<Board>,
    registry: Weak<Registry>,
    since_haste: Option<u32>,
    imposed: Option<Duration>,
    failures: u32,
    pages: u32,
    paid: f64,
}

impl Poller {
    pub(super) fn new(github: GitHub, scope: Scope, pace: Pace, board: Arc<Board>, registry: Weak<Registry>) -> Self {
        Self { github, scope, pace, board, registry, since_haste: None, imposed: None, failures: 0, pages: 0, paid: 0.0 }
    }

    /// Polls until dropped.
    pub(super) async fn run(mut self) {
        loop {
            let started = Instant::now();
            // Whoever hurries from here on wants a listing that starts later than this one.
            self.take_haste();
            self.since_haste = self.since_haste.map(|listings| listings.saturating_add(1));
            match self.github.list_runners(&self.scope).await {
                Ok(listing) => self.succeed(listing),
                Err(error) => self.fail(error, started),
            }
            self.rest(started).await;
        }
    }

    /// Waits for the next listing's time, which haste brings nearer.
    async fn rest(&mut self, started: Instant) {
        loop {
            let next = started + self.pace.interval(&self.situation());
            let board = Arc::clone(&self.board);
            tokio::select! {
                () = tokio::time::sleep_until(next) => return,
                () = board.hurried.notified() => {
                    self.take_haste();
                }
            }
        }
    }

    fn take_haste(&mut self) -> Option<Haste> {
        let why = self.board.haste.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(why) = why {
            self.since_haste = Some(0);
            tracing::trace!(scope = %self.scope, why = why.name(), "runner listing hurried");
        }
        why
    }

    fn situation(&self) -> Situation {
        let budget = self.github.budget(&self.scope);
        Situation {
            since_haste: self.since_haste,
            failures: self.failures,
            imposed: self.imposed,
            pages: self.pages,
            paid: self.paid,
            spare: budget.as_ref().map_or(0, |budget| budget.remaining.saturating_sub(budget.limit / 2)),
            budget: budget.map(|budget| (budget.remaining, budget.resets_in())),
            pollers: self.registry.upgrade().map_or(1, |registry| registry.sharing(self.github.id())),
        }
    }

    fn succeed(&mut self, listing: Listing) {
        if self.failures > 0 {
            tracing::info!(scope = %self.scope, failures = self.failures, "runners can be listed again");
        }
        (self.failures, self.imposed) = (0, None);
        self.pages = listing.pages;
        self.paid = self.paid * (1.0 - RECENT) + f64::from(listing.paid) * RECENT;
        if self.paid < FREE {
            self.paid = 0.0;
        }
        let last_good = Some(listing.fetched_at);
        let before = self.board.view.borrow().clone();
        let (view, changes) = RosterView::follow(before.as_deref(), listing);
        self.board.view.send_replace(Some(Arc::new(view)));
        if let Some(changes) = changes {
            // Without subscribers there is nobody to tell.
            let _ = self.board.changes.send(changes);
        }
        self.board.health.send_replace(Health { failures: 0, error: None, last_good });
    }

    fn fail(&mut self, error: Error, started: Instant) {
        self.failures = self.failures.saturating_add(1);
        self.imposed = error.retry_after().map(|wait| started.elapsed() + wait);
        if self.failures == 1 {
            tracing::warn!(scope = %self.scope, %error, "runners cannot be listed");
        } else {
            tracing::debug!(scope = %self.scope, %error, failures = self.failures, "runners still cannot be listed");
        }
        let failures = self.failures;
        self.board.health.send_modify(|health| {
            health.failures = failures;
            health.error = Some(error);
        });
    }
}
