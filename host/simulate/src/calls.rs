//! Calls to GitHub: pages of listings of runners, at the operator's own pace, and removals.
//!
//! Other calls depend little on policies and are not counted: a registration token serves a scope for half an hour, and lists of jobs are read at the same
//! pace whatever the fleet does.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pacer_core::polling::{Pace, Rhythm, Situation};

use crate::agenda::Moment;

/// Runners on a page, at most.
const PAGE: usize = 100;

/// Where runners are registered.
#[derive(Debug, Default)]
struct Scope {
    rhythm: Rhythm,
    started: Moment,
    /// When the next listing starts, as things are now.
    next: Moment,
    /// Runners of which the next listing may show something.
    awaited: BTreeSet<usize>,
    registered: BTreeSet<usize>,
    /// Of the last listing.
    pages: u32,
    /// Pages of all listings.
    read: u64,
}

/// Which pools are in which scope; none where that was not recorded.
#[derive(Clone, Debug)]
pub(crate) struct Scopes {
    names: Vec<Arc<str>>,
    of_pools: Vec<Option<usize>>,
}

impl Scopes {
    /// Of pools with these scopes, in their order.
    pub(crate) fn of<'a>(pools: impl Iterator<Item = Option<&'a Arc<str>>>) -> Self {
        let (mut names, mut of_pools): (Vec<Arc<str>>, Vec<Option<usize>>) = (Vec::new(), Vec::new());
        for scope in pools {
            of_pools.push(scope.map(|scope| {
                names.iter().position(|name| name == scope).unwrap_or_else(|| {
                    names.push(scope.clone());
                    names.len() - 1
                })
            }));
        }
        Self { names, of_pools }
    }

    fn of_pool(&self, pool: usize) -> Option<usize> {
        self.of_pools.get(pool).copied().flatten()
    }

    /// Names of the scopes, each once, in the order in which pools first name them.
    pub(crate) fn names(&self) -> &[Arc<str>] {
        &self.names
    }

    /// Calls, given the pages that were read of each scope, and the removals of each pool that were asked for: by pool, with all listings of its scope,
    /// and together, where each listing counts once.
    pub(crate) fn calls(&self, read: &[u64], removals: &[u64]) -> (Vec<u64>, u64) {
        let of_scope = |scope: usize| read.get(scope).copied().unwrap_or_default();
        let removed = || self.of_pools.iter().zip(removals);
        let of_pools = removed().map(|(scope, removals)| scope.map_or(0, |scope| of_scope(scope) + removals)).collect();
        let all: u64 = removed().filter(|(scope, _)| scope.is_some()).map(|(_, removals)| removals).sum();
        (of_pools, all + read.iter().sum::<u64>())
    }
}

/// The calls of a run.
#[derive(Debug)]
pub(crate) struct Calls<'a> {
    pace: Pace,
    known: &'a Scopes,
    scopes: Vec<Scope>,
    /// The same moment in virtual time, and as the rules take it; only differences count.
    begins: (Moment, Instant),
}

impl<'a> Calls<'a> {
    pub(crate) fn new(known: &'a Scopes, begins: Moment, epoch: Instant) -> Self {
        let scopes = known.names.iter().map(|_| Scope { next: begins, ..Scope::default() }).collect();
        Self { pace: Pace::default(), known, scopes, begins: (begins, epoch) }
    }

    /// All of them, by number.
    pub(crate) fn scopes(&self) -> std::ops::Range<usize> {
        0..self.scopes.len()
    }

    /// That of a pool.
    pub(crate) fn scope_of(&self, pool: usize) -> Option<usize> {
        self.known.of_pool(pool)
    }

    pub(crate) fn register(&mut self, pool: usize, runner: usize) {
        if let Some(scope) = self.of(pool) {
            scope.registered.insert(runner);
        }
    }

    /// GitHub has a runner no more.
    pub(crate) fn leave(&mut self, pool: usize, runner: usize) {
        if let Some(scope) = self.of(pool) {
            scope.registered.remove(&runner);
        }
    }

    /// A listing is asked for soon, for a runner that is waited for since then. Gives when it starts, where that is sooner than before.
    pub(crate) fn hurry(&mut self, scope: usize, runner: usize, since: Moment, now: Moment) -> Option<Moment> {
        let (since, asked) = (self.instant(since), self.instant(now));
        let of = self.scopes.get_mut(scope)?;
        of.awaited.insert(runner);
        of.rhythm.hurry(since, asked);
        let next = self.due(scope)?.max(now);
        let of = self.scopes.get_mut(scope)?;
        let is_sooner = next < of.next;
        of.next = of.next.min(next);
        is_sooner.then_some(next)
    }

    /// Whether a listing starts now, as was planned last.
    pub(crate) fn is_due(&self, scope: usize, now: Moment) -> bool {
        self.scopes.get(scope).is_some_and(|scope| scope.next == now)
    }

    /// A listing starts and is read. Gives when the next one starts, if nobody asks for it sooner, and the runners that waited for this one.
    pub(crate) fn list(&mut self, scope: usize, now: Moment) -> Option<(Moment, BTreeSet<usize>)> {
        let instant = self.instant(now);
        let of = self.scopes.get_mut(scope)?;
        of.rhythm.begin(instant);
        of.started = now;
        of.pages = u32::try_from(of.registered.len().div_ceil(PAGE).max(1)).unwrap_or(u32::MAX);
        of.read += u64::from(of.pages);
        // Unchanged pages are free, and none of these was refused: the budget of the hour plays no part.
        of.rhythm.succeed(of.pages, 0);
        let next = self.due(scope)?;
        let of = self.scopes.get_mut(scope)?;
        of.next = next;
        Some((next, std::mem::take(&mut of.awaited)))
    }

    /// What it comes to with these removals of each pool.
    pub(crate) fn end(&self, removals: &[u64]) -> (Vec<u64>, u64) {
        let read: Vec<u64> = self.scopes.iter().map(|scope| scope.read).collect();
        self.known.calls(&read, removals)
    }

    fn of(&mut self, pool: usize) -> Option<&mut Scope> {
        let scope = self.scope_of(pool)?;
        self.scopes.get_mut(scope)
    }

    fn due(&self, scope: usize) -> Option<Moment> {
        let of = self.scopes.get(scope)?;
        let pollers = u32::try_from(self.scopes.len()).unwrap_or(u32::MAX);
        let all_pages = self.scopes.iter().fold(0_u32, |sum, scope| sum.saturating_add(scope.pages));
        let interval = self.pace.interval(&Situation { all_pages, ..of.rhythm.situation(None, pollers) });
        Some(of.started + i64::try_from(interval.as_millis()).unwrap_or(i64::MAX / 4))
    }

    fn instant(&self, moment: Moment) -> Instant {
        let (begins, epoch) = self.begins;
        epoch.checked_add(Duration::from_millis(u64::try_from(moment - begins).unwrap_or_default())).unwrap_or(epoch)
    }
}
