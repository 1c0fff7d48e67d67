//! GitHub is listed: at its pace, and sooner for runners that start or are over.

use pacer_core::ledger::State;
use pacer_core::phase::{Phase, ToldBy, wants_listing};

use super::Run;
use super::pass::milliseconds;
use crate::agenda::{Event, Moment, at, moment};

impl Run<'_> {
    pub(super) fn begin_listings(&mut self) {
        for scope in self.calls.scopes() {
            self.agenda.note(self.now, Event::Listing { scope });
        }
    }

    pub(super) fn list(&mut self, scope: usize) {
        if !self.calls.is_due(scope, self.now) {
            return;
        }
        let Some((next, awaited)) = self.calls.list(scope, self.now) else { return };
        self.agenda.note(next, Event::Listing { scope });
        // Each is looked at again, and asks again if it has to.
        awaited.into_iter().for_each(|runner| self.await_listing(runner));
    }

    /// Asks for a listing where the operator would, for one that starts or is over.
    pub(super) fn await_listing(&mut self, id: usize) {
        let Some(runner) = self.runners.get(id).filter(|runner| runner.gone.is_none()) else { return };
        if self.calls.scope_of(runner.pool).is_none() {
            return;
        }
        let is_told = match runner.assessment.phase {
            Phase::Starting => self.has_waiting_jobs(runner.pool),
            _ => runner.job.is_some(),
        };
        let told_by = if is_told { ToldBy::Events } else { ToldBy::Listings };
        match wants_listing(&runner.facts, &runner.assessment, told_by, at(self.now)) {
            Some(wait) if wait.is_zero() => {
                let over = runner.assessment.trouble.as_ref().map(|trouble| moment(trouble.since));
                let since = over.unwrap_or(runner.created);
                self.hurry(id, since);
            }
            Some(wait) => self.agenda.note(self.now + milliseconds(wait), Event::Awaits { runner: id }),
            None => {}
        }
    }

    /// A listing is asked for because of this runner.
    pub(super) fn hurry(&mut self, id: usize, since: Moment) {
        let scope = self.runners.get(id).and_then(|runner| self.calls.scope_of(runner.pool));
        let Some(scope) = scope else { return };
        if let Some(next) = self.calls.hurry(scope, id, since.min(self.now), self.now) {
            self.agenda.note(next, Event::Listing { scope });
        }
    }

    /// Whether an event told of a job that waits for a runner of the pool.
    fn has_waiting_jobs(&self, pool: usize) -> bool {
        let told = self.pools.get(pool).filter(|pool| pool.settings.webhooks);
        told.is_some_and(|pool| pool.ledger.open().any(|(_, job)| job.state == State::Queued))
    }
}
