//! The task that reads one scope's listing again and again.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use pacer_core::polling::{Pace, Rhythm, Situation};
use pacer_core::scope::Scope;
use tokio::time::Instant;

use crate::budget::Budget;
use crate::client::GitHub;
use crate::error::Error;
use crate::runner_list::view::RunnerListView;
use crate::runner_list::{Board, Registry, Traffic};
use crate::runners::Listing;

pub(super) struct Poller {
    github: GitHub,
    scope: Scope,
    pace: Pace,
    board: Arc<Board>,
    registry: Weak<Registry>,
    rhythm: Rhythm,
    /// Who pays for the next listing.
    hurried: Option<String>,
    /// The last one waits for somebody who can pay.
    unpaid: bool,
}

impl Poller {
    pub(super) fn new(github: GitHub, scope: Scope, pace: Pace, board: Arc<Board>, registry: Weak<Registry>) -> Self {
        Self { github, scope, pace, board, registry, rhythm: Rhythm::default(), hurried: None, unpaid: false }
    }

    /// Polls until dropped.
    pub(super) async fn run(mut self) {
        loop {
            let started = Instant::now();
            // Whoever hurries from here on wants a listing that starts later than this one.
            self.take_haste();
            self.rhythm.begin(started.into_std());
            let payer = self.board.payers.next(self.hurried.take().as_deref());
            match self.github.paid_by(payer).list_runners(&self.scope).await {
                Ok(listing) => self.succeed(listing),
                Err(error) => match error.deferral() {
                    Some(wait) => {
                        self.rhythm.defer(started.elapsed() + wait);
                        self.unpaid = !self.board.payers.can_pay();
                    }
                    None => self.fail(error, started),
                },
            }
            self.rest(started).await;
        }
    }

    /// Waits for the next listing's time, which haste brings nearer.
    async fn rest(&mut self, started: Instant) {
        loop {
            let next = started + self.interval();
            let board = Arc::clone(&self.board);
            tokio::select! {
                () = tokio::time::sleep_until(next) => return,
                () = board.hurried.notified() => {
                    self.take_haste();
                }
            }
        }
    }

    /// From the start of the last listing to the start of the next, as things are now.
    fn interval(&self) -> Duration {
        let budget = self.github.budget(&self.scope);
        let alone = || Traffic { pollers: 1, pages: self.board.pages.load(Ordering::Relaxed) };
        let traffic = self.registry.upgrade().map_or_else(alone, |registry| registry.traffic(self.github.id()));
        let traffic = traffic.of_all(self.github.shards());
        let situation = self.rhythm.situation(budget.as_ref().map(Budget::left), traffic.pollers);
        self.pace.interval(&Situation { all_pages: traffic.pages, ..situation })
    }

    fn take_haste(&mut self) {
        if self.unpaid && self.board.payers.can_pay() {
            self.unpaid = false;
            self.rhythm.resume();
        }
        let haste = self.board.haste.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((since, why, payer)) = haste {
            self.rhythm.hurry(since.into_std(), Instant::now().into_std());
            self.hurried = payer;
            tracing::trace!(scope = %self.scope, why = why.name(), "runner listing hurried");
        }
    }

    fn succeed(&mut self, listing: Listing) {
        let failures = self.rhythm.succeed(listing.pages, listing.paid);
        self.board.pages.store(listing.pages, Ordering::Relaxed);
        if failures > 0 {
            tracing::info!(scope = %self.scope, failures, "runners can be listed again");
        }
        let (began, complete) = (listing.fetched_at, listing.complete);
        let before = self.board.view.borrow().clone();
        let (view, changes) = RunnerListView::follow(before.as_deref(), listing, self.pace.validity(self.interval()));
        self.board.view.send_replace(Some(Arc::new(view)));
        if let Some(changes) = changes {
            // Without subscribers there is nobody to tell.
            let _ = self.board.changes.send(changes);
        }
        self.board.health.send_modify(|health| health.succeed(began, complete));
    }

    fn fail(&mut self, error: Error, started: Instant) {
        let failures = self.rhythm.fail(error.retry_after().map(|wait| started.elapsed() + wait));
        if failures == 1 {
            tracing::warn!(scope = %self.scope, %error, "runners cannot be listed");
        } else {
            tracing::debug!(scope = %self.scope, %error, failures, "runners still cannot be listed");
        }
        self.board.health.send_modify(|health| {
            health.failures = failures;
            health.error = Some(error);
        });
    }
}
