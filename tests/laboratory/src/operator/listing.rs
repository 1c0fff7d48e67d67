//! The shared listing of runners: `host/github/src/runner_list/{poller,view}.rs`, `host/core/src/polling.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pacer_core::allowance::{Cost, Purpose};

use super::{Halt, Operator};
use crate::agenda::{Event, Key};
use crate::clock::{At, SECOND};
use crate::object::RunnerId;
use crate::outside::{Listed, Outside, Pages, Unanswered};
use crate::script::Refusal;

const SLOW: At = 30 * SECOND;
const LONGEST: At = 300 * SECOND;

/// What is known about a runner beyond the last listing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Presence {
    pub(super) idle_since: Option<At>,
    pub(super) offline_since: Option<At>,
}

/// A listing, with what earlier ones add to it.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    pub(super) fetched: At,
    pub(super) complete: bool,
    pub(super) pages: u32,
    pub(super) listed: BTreeMap<RunnerId, Listed>,
    pub(super) presence: BTreeMap<u64, Presence>,
    /// When the listing before was asked for, and whom it had.
    pub(super) before: Option<(At, BTreeSet<RunnerId>)>,
    /// Listings so far: all, and those whose pages fit together.
    seen: (u8, u8),
    valid: At,
}

impl View {
    pub(super) fn is_valid(&self, now: At) -> bool {
        now.saturating_sub(self.fetched) <= self.valid
    }

    /// As `RunnerListView::is_young`.
    pub(super) fn is_young(&self) -> bool {
        self.seen.1 < 2 && self.seen.0 < 6
    }

    fn follow(before: Option<&Self>, fetched: At, answer: &Pages, valid: At) -> Self {
        let Pages { listed, complete, pages } = answer;
        let (complete, pages) = (*complete, *pages);
        let known = before.map(|before| &before.presence);
        let (all, fitting) = before.map_or((0, 0), |before| before.seen);
        let seen = (all.saturating_add(1), fitting.saturating_add(u8::from(complete)));
        let mut presence: BTreeMap<u64, Presence> = BTreeMap::new();
        for one in listed {
            let past = known.and_then(|known| known.get(&one.id)).copied().unwrap_or_default();
            let since = |holds: bool, past: Option<At>| holds.then(|| past.unwrap_or(fetched));
            presence.insert(
                one.id,
                Presence {
                    idle_since: since(one.online && !one.busy, past.idle_since),
                    offline_since: since(!one.online, past.offline_since),
                },
            );
        }
        if !complete {
            for (id, past) in known.into_iter().flatten() {
                presence.entry(*id).or_insert(*past);
            }
        }
        let listed = listed.iter().map(|one| (one.runner, *one)).collect();
        let before = before.map(|before| (before.fetched, before.listed.keys().copied().collect()));
        Self { fetched, complete, pages, listed, presence, before, seen, valid }
    }
}

/// The task that lists.
#[derive(Debug, Default)]
pub(super) struct Lister {
    pub(super) view: Option<View>,
    /// The last listing was refused.
    pub(super) refused: Option<Refusal>,
    planned: Option<At>,
    started: At,
    waiting_since: Option<At>,
    failures: u32,
    deferred: Option<At>,
    answer: Option<(At, Pages)>,
}

impl Lister {
    pub(super) fn plan(&mut self, outside: &mut Outside, at: At) {
        let at = at.max(outside.clock.at);
        if self.planned.is_none_or(|planned| at < planned) {
            self.planned = Some(at);
            outside.plan(at, Event::List);
        }
    }

    /// Somebody has waited for so long.
    pub(super) fn hurry(&mut self, outside: &mut Outside, waited: Duration) {
        let since = outside.clock.at.saturating_sub(crate::clock::millis(waited));
        self.waiting_since = self.waiting_since.max(Some(since));
        if self.answer.is_none() {
            let next = self.started + self.interval();
            self.plan(outside, next);
        }
    }

    fn interval(&self) -> At {
        let waited = self.waiting_since.map(|since| self.started.saturating_sub(since));
        let wanted = waited.map_or(SLOW, |waited| (SECOND + waited / 2).min(SLOW));
        let patience = match self.failures {
            0 => 0,
            failures => (SECOND << failures.min(20)).min(LONGEST),
        };
        let deferred = self.deferred.map_or(0, |until| until.saturating_sub(self.started));
        wanted.max(patience).max(deferred).max(SECOND)
    }
}

impl Operator {
    /// It is time for a listing.
    pub(crate) fn list(&mut self, outside: &mut Outside) -> Result<(), Halt> {
        let at = outside.clock.at;
        if self.lister.planned != Some(at) || self.lister.answer.is_some() {
            return Ok(());
        }
        self.lister.planned = None;
        self.lister.started = at;
        match self.turn(outside, u64::from(u32::MAX) + 2, Purpose::Listing, Cost { points: 1, creations: 0 }) {
            Ok(()) => {}
            Err(Halt::Later(wait)) => {
                self.lister.deferred = Some(at + crate::clock::millis(wait));
                let next = at + self.lister.interval();
                self.lister.plan(outside, next);
                return Ok(());
            }
            Err(halt) => return Err(halt),
        }
        self.lister.deferred = None;
        match outside.list_runners() {
            Ok(pages) => {
                self.lister.answer = Some((at, pages));
                let due = at + outside.draw.between("page", at, 0, (100, 500));
                outside.plan(due, Event::Listed);
            }
            Err(Unanswered::Died) => return Err(Halt::Died),
            Err(Unanswered::Refused(refusal)) => {
                self.lister.refused = Some(refusal);
                self.lister.failures += 1;
                let next = at + self.lister.interval();
                self.lister.plan(outside, next);
            }
        }
        Ok(())
    }

    /// A listing is here.
    pub(crate) fn listed(&mut self, outside: &mut Outside) {
        let Some((fetched, pages)) = self.lister.answer.take() else { return };
        self.lister.failures = 0;
        self.lister.refused = None;
        let valid = (2 * self.lister.interval()).clamp(4 * SLOW, 900 * SECOND);
        let before = self.lister.view.take();
        let view = View::follow(before.as_ref(), fetched, &pages, valid);
        let changed = before.is_none_or(|before| before.listed != view.listed);
        self.lister.view = Some(view);
        // Whoever waits for a listing hears of it; the others when something changed.
        if changed || self.lister.waiting_since.is_some_and(|since| fetched < since + 60 * SECOND) {
            let runners: Vec<RunnerId> = outside.runners.all_seen().map(|(id, _)| id).collect();
            let sets: Vec<u32> = outside.sets.all_seen().map(|(id, _)| id).collect();
            runners.into_iter().for_each(|id| self.wake_now(outside, Key::Runner(id)));
            sets.into_iter().for_each(|id| self.wake_now(outside, Key::Set(id)));
        }
        let next = self.lister.started + self.lister.interval();
        self.lister.plan(outside, next);
    }
}
