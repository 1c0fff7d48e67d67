//! The task that reads one repository's queue again and again.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use pacer_core::polling::{Pace, Rhythm, Situation};
use pacer_core::scope::Scope;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::budget::Budget;
use crate::client::GitHub;
use crate::error::Error;
use crate::jobs::{Activity, QueueListing, RUNS_AT_MOST, Reading, Repository};
use crate::queues::{Board, QueueNews, Registry, Traffic};

pub(super) struct Poller {
    github: GitHub,
    repository: Repository,
    scope: Scope,
    pace: Pace,
    board: Arc<Board>,
    registry: Weak<Registry>,
    news: mpsc::Sender<QueueNews>,
    rhythm: Rhythm,
    /// Whether the last listing covered anything that is missing; none before the first.
    covers: Option<bool>,
    /// The last listing waits for somebody who can pay.
    unpaid: bool,
}

impl Poller {
    pub(super) fn new(github: GitHub, repository: Repository, board: Arc<Board>, registry: &Arc<Registry>) -> Self {
        let (scope, pace, news) = (repository.scope(), registry.pace.clone(), registry.news.clone());
        let registry = Arc::downgrade(registry);
        Self { github, repository, scope, pace, board, registry, news, rhythm: Rhythm::default(), covers: None, unpaid: false }
    }

    /// Polls until dropped.
    pub(super) async fn run(mut self) {
        loop {
            let started = Instant::now();
            // Whoever hurries from here on wants a listing that starts later than this one.
            self.take_haste();
            self.rhythm.begin(started.into_std());
            let (most, patience) = (self.affordable(), self.reading().patience);
            let github = self.github.paid_by(self.board.payers.next(None));
            let tell = match github.queue_within(&self.repository, most, patience).await {
                Ok(listing) => self.succeed(listing),
                Err(error) => match error.deferral() {
                    Some(wait) => {
                        self.rhythm.defer(started.elapsed() + wait);
                        self.unpaid = !self.board.payers.can_pay();
                        false
                    }
                    None => self.fail(error, started),
                },
            };
            if tell {
                let news = QueueNews { client: self.github.id().clone(), repository: self.repository.clone() };
                // Without a receiver there is nobody to tell.
                let _ = self.news.send(news).await;
            }
            self.rest(started).await;
        }
    }

    /// Waits for the next listing's time, which haste and new interests bring nearer.
    async fn rest(&mut self, started: Instant) {
        loop {
            let (budget, traffic, reading) = (self.budget(), self.traffic(), self.reading());
            let per_idle_page = match reading.activity {
                Activity::AtRest => self.pace.per_idle_page,
                Activity::AtWork => self.pace.per_page,
            };
            let pace = Pace { slow: reading.interval, per_idle_page, ..self.pace.clone() };
            // Listings take turns: GitHub's secondary limit counts the calls of all of them.
            let situation = self.rhythm.situation(budget.as_ref().map(Budget::left), traffic.pollers);
            let situation = Situation { pages: traffic.calls, all_pages: traffic.calls, ..situation };
            let next = started + pace.interval(&situation);
            let board = Arc::clone(&self.board);
            tokio::select! {
                () = tokio::time::sleep_until(next) => return,
                () = board.stirred.notified() => self.take_haste(),
            }
        }
    }

    fn take_haste(&mut self) {
        if self.unpaid && self.board.payers.can_pay() {
            self.unpaid = false;
            self.rhythm.resume();
        }
        if self.board.hasty.swap(false, Ordering::Relaxed) {
            let now = Instant::now().into_std();
            self.rhythm.hurry(now, now);
            tracing::trace!(repository = %self.repository, "job listing hurried");
        }
    }

    fn reading(&self) -> Reading {
        self.board.reading().unwrap_or(Reading::all(self.pace.slow))
    }

    fn budget(&self) -> Option<Budget> {
        self.github.budget(&self.scope)
    }

    fn traffic(&self) -> Traffic {
        let alone = Traffic { pollers: 1, calls: self.board.calls.load(Ordering::Relaxed) };
        let traffic = self.registry.upgrade().map_or(alone, |registry| registry.traffic(self.github.id()));
        traffic.of_all(self.github.shards())
    }

    /// Runs whose jobs the next listing may ask for.
    fn affordable(&self) -> usize {
        let Some(budget) = self.budget() else { return RUNS_AT_MOST };
        let share = f64::from(budget.remaining) * self.pace.share / f64::from(self.traffic().pollers.max(1));
        // Truncated on purpose; at least one, since the interval sees to the rest.
        (share as usize).clamp(1, RUNS_AT_MOST)
    }

    /// Whether to tell of it.
    fn succeed(&mut self, listing: QueueListing) -> bool {
        let failures = self.rhythm.succeed(listing.calls, listing.paid);
        if failures > 0 {
            tracing::info!(repository = %self.repository, failures, "jobs can be listed again");
        }
        // What is overdue can wait for its turn.
        if listing.left > 0 && self.reading().patience.is_zero() {
            let now = Instant::now().into_std();
            self.rhythm.hurry(now, now);
        }
        self.board.calls.store(listing.calls, Ordering::Relaxed);
        let tell = failures > 0 || listing.changed || self.covers != Some(listing.covers.is_some());
        self.covers = Some(listing.covers.is_some());
        let began = listing.fetched_at;
        self.board.listing.send_replace(Some(Arc::new(listing)));
        self.board.health.send_modify(|health| health.succeed(began, true));
        tell
    }

    /// Whether to tell of it.
    fn fail(&mut self, error: Error, started: Instant) -> bool {
        let failures = self.rhythm.fail(error.retry_after().map(|wait| started.elapsed() + wait));
        if failures == 1 {
            tracing::warn!(repository = %self.repository, %error, "jobs cannot be listed");
        } else {
            tracing::debug!(repository = %self.repository, %error, failures, "jobs still cannot be listed");
        }
        self.board.health.send_modify(|health| {
            health.failures = failures;
            health.error = Some(error);
        });
        failures == 1
    }
}
