//! A listing with what earlier listings add to it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::runner_list::Changes;
use crate::runners::{Listing, RemoteRunner};

/// A listing, its runners by name, and since when each is as it is.
#[derive(Clone, Debug)]
pub struct RunnerListView {
    listing: Listing,
    facts: Arc<Facts>,
    validity: Duration,
    seen: Seen,
    before: Option<Before>,
}

/// The listing before the newest, for who was missing from it.
#[derive(Clone, Debug)]
struct Before {
    fetched_at: Instant,
    runners: Arc<[RemoteRunner]>,
    facts: Arc<Facts>,
}

#[derive(Debug, Default)]
struct Facts {
    by_name: HashMap<Arc<str>, usize>,
    presence: HashMap<u64, Presence>,
}

/// What is known about a runner beyond the last listing. All times are starts of listings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Presence {
    /// The first listing that had it.
    pub first_seen: Instant,
    /// The first of the uninterrupted listings up to now that had it online and not busy; none when the last had not.
    pub idle_since: Option<Instant>,
    /// The first of the uninterrupted listings up to now that had it busy; none when the last had not.
    pub busy_since: Option<Instant>,
    /// The first of the uninterrupted listings up to now that had it offline; none when the last had not.
    pub offline_since: Option<Instant>,
    /// The last listing that had it busy; none when no listing had.
    pub last_busy: Option<Instant>,
}

/// Listings that are enough for [`RunnerListView::is_young`]: with pages that fit together, or of any kind, where churn never ends. A runner
/// that is registered is left out of all of them only if it stands where a page ends, and somebody before it leaves, each time.
const COMPLETE: u8 = 2;
const ALL: u8 = 6;

/// How many listings there were.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    all: u8,
    complete: u8,
}

impl Seen {
    fn and(self, listing: &Listing) -> Self {
        Self { all: self.all.saturating_add(1), complete: self.complete.saturating_add(u8::from(listing.complete)) }
    }
}

impl RunnerListView {
    /// The view of a first listing, which proves something for this long.
    #[must_use]
    pub fn new(listing: Listing, validity: Duration) -> Self {
        let at = listing.fetched_at;
        let presence = listing.runners.iter().map(|runner| (runner.id, Presence::update(None, runner, at))).collect();
        let facts = Facts { by_name: index(&listing.runners), presence };
        let seen = Seen::default().and(&listing);
        Self { listing, facts: Arc::new(facts), validity, seen, before: None }
    }

    /// The view after one more listing, and what that changed; none if nothing.
    ///
    /// Runners that are missing from an incomplete listing keep their history, but are not in the view.
    pub(super) fn follow(before: Option<&Self>, listing: Listing, validity: Duration) -> (Self, Option<Changes>) {
        let at = listing.fetched_at;
        let Some(before) = before else { return (Self::new(listing, validity), Some(Changes::All)) };
        let seen = before.seen.and(&listing);
        let last = Some(Before {
            fetched_at: before.listing.fetched_at,
            runners: Arc::clone(&before.listing.runners),
            facts: Arc::clone(&before.facts),
        });
        if Arc::ptr_eq(&before.listing.runners, &listing.runners) {
            // Nothing started or stopped being idle, busy or offline; only `last_busy` would move on, and reading it accounts for that.
            return (Self { listing, facts: Arc::clone(&before.facts), validity, seen, before: last }, None);
        }
        let known = &before.facts.presence;
        let mut presence: HashMap<_, _> = listing
            .runners
            .iter()
            .map(|runner| {
                let past = known.get(&runner.id).map(|past| past.as_of(before.listing.fetched_at));
                (runner.id, Presence::update(past, runner, at))
            })
            .collect();
        if !listing.complete {
            for (id, past) in known {
                presence.entry(*id).or_insert_with(|| past.as_of(before.listing.fetched_at));
            }
        }
        let facts = Facts { by_name: index(&listing.runners), presence };
        let view = Self { listing, facts: Arc::new(facts), validity, seen, before: last };
        let names = view.differences(before);
        let changes = (!names.is_empty()).then(|| Changes::Named(names.into()));
        (view, changes)
    }

    /// The listing that this view was made from.
    #[must_use]
    pub fn listing(&self) -> &Listing {
        &self.listing
    }

    /// Whether there were too few listings to say that somebody whom none has shown is not registered. Pages are read one after the other: a runner
    /// that leaves meanwhile moves all others up, so that one is left out, and the number of all is right if another one comes.
    #[must_use]
    pub fn is_young(&self) -> bool {
        self.seen.complete < COMPLETE && self.seen.all < ALL
    }

    /// Whether it still proves something at `now`; see [`pacer_core::polling::Pace::validity`].
    #[must_use]
    pub fn is_valid(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.listing.fetched_at) <= self.validity
    }

    /// A runner by its name. Where several have it, the one that is online, else the youngest.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&RemoteRunner> {
        self.facts.get(&self.listing.runners, name)
    }

    /// What is known about a listed runner beyond this listing.
    #[must_use]
    pub fn presence(&self, id: u64) -> Option<Presence> {
        self.facts.presence.get(&id).map(|presence| presence.as_of(self.listing.fetched_at))
    }

    /// When the listing before this one was asked for, and its runner of that name, as [`RunnerListView::get`] says. None if this is the first.
    #[must_use]
    pub fn before(&self, name: &str) -> Option<(Instant, Option<&RemoteRunner>)> {
        self.before.as_ref().map(|before| (before.fetched_at, before.facts.get(&before.runners, name)))
    }

    fn differences(&self, before: &Self) -> Vec<Arc<str>> {
        let now = self.listing.runners.iter().filter(|runner| before.get(&runner.name) != self.get(&runner.name));
        // A gap in an incomplete listing is no change.
        let gone = before.listing.runners.iter().filter(|runner| self.listing.complete && self.get(&runner.name).is_none());
        let mut names: Vec<_> = now.chain(gone).map(|runner| Arc::clone(&runner.name)).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

impl Facts {
    fn get<'a>(&self, runners: &'a [RemoteRunner], name: &str) -> Option<&'a RemoteRunner> {
        runners.get(*self.by_name.get(name)?)
    }
}

impl Presence {
    fn update(past: Option<Self>, runner: &RemoteRunner, at: Instant) -> Self {
        let since = |holds: bool, past: Option<Instant>| holds.then(|| past.unwrap_or(at));
        Self {
            first_seen: past.map_or(at, |past| past.first_seen),
            idle_since: since(runner.online && !runner.busy, past.and_then(|past| past.idle_since)),
            busy_since: since(runner.busy, past.and_then(|past| past.busy_since)),
            offline_since: since(!runner.online, past.and_then(|past| past.offline_since)),
            last_busy: if runner.busy { Some(at) } else { past.and_then(|past| past.last_busy) },
        }
    }

    /// The same after further listings without change, up to the one started at `at`.
    fn as_of(self, at: Instant) -> Self {
        Self { last_busy: self.busy_since.map_or(self.last_busy, |_| Some(at)), ..self }
    }
}

fn index(runners: &[RemoteRunner]) -> HashMap<Arc<str>, usize> {
    let mut by_name: HashMap<Arc<str>, usize> = HashMap::with_capacity(runners.len());
    for (position, runner) in runners.iter().enumerate() {
        by_name
            .entry(Arc::clone(&runner.name))
            .and_modify(|known| {
                let rank = |runner: &RemoteRunner| (runner.online, runner.id);
                if runners.get(*known).is_none_or(|other| rank(other) < rank(runner)) {
                    *known = position;
                }
            })
            .or_insert(position);
    }
    by_name
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::*;

    const VALIDITY: Duration = Duration::from_secs(120);

    fn runner(id: u64, online: bool, busy: bool) -> RemoteRunner {
        let name = format!("r{id}").into();
        RemoteRunner { id, name, online, busy, labels: Arc::default(), os: "linux".into() }
    }

    fn listing(at: Instant, runners: Vec<RemoteRunner>, complete: bool) -> Listing {
        let started = Timestamp::UNIX_EPOCH;
        Listing {
            fetched_at: at,
            started,
            took: Duration::ZERO,
            runners: runners.into(),
            changed: true,
            complete,
            pages: 1,
            paid: 1,
        }
    }

    fn named(names: &[&str]) -> Option<Changes> {
        Some(Changes::Named(names.iter().map(|name| Arc::from(*name)).collect()))
    }

    #[tokio::test]
    async fn history_counts_from_the_first_uninterrupted_listing() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let (view, changes) = RunnerListView::follow(None, listing(at(0), vec![runner(1, true, false)], true), VALIDITY);
        assert_eq!(changes, Some(Changes::All));
        let (view, changes) = RunnerListView::follow(Some(&view), listing(at(10), vec![runner(1, true, true)], true), VALIDITY);
        assert_eq!(changes, named(&["r1"]));
        let presence = view.presence(1).unwrap();
        assert_eq!((presence.idle_since, presence.busy_since), (None, Some(at(10))));
        let again = Listing { fetched_at: at(20), ..view.listing().clone() };
        let (view, changes) = RunnerListView::follow(Some(&view), again, VALIDITY);
        assert_eq!(changes, None);
        assert_eq!(view.presence(1).unwrap().last_busy, Some(at(20)));
        let (view, _) = RunnerListView::follow(Some(&view), listing(at(30), vec![runner(1, true, false)], true), VALIDITY);
        let presence = view.presence(1).unwrap();
        assert_eq!((presence.idle_since, presence.last_busy), (Some(at(30)), Some(at(20))));
        assert_eq!(presence.first_seen, at(0));
        let (view, _) = RunnerListView::follow(Some(&view), listing(at(40), vec![runner(1, false, false)], true), VALIDITY);
        let presence = view.presence(1).unwrap();
        assert_eq!((presence.idle_since, presence.offline_since), (None, Some(at(40))));
    }

    #[tokio::test]
    async fn listing_is_valid_until_its_time_is_over() {
        let start = Instant::now();
        let (view, _) = RunnerListView::follow(None, listing(start, vec![runner(1, true, false)], true), VALIDITY);
        assert!(view.is_valid(start + VALIDITY));
        assert!(!view.is_valid(start + VALIDITY + Duration::from_millis(1)));
    }

    #[tokio::test]
    async fn gaps_of_incomplete_listings_prove_nothing() {
        let start = Instant::now();
        let (view, _) =
            RunnerListView::follow(None, listing(start, vec![runner(1, true, false), runner(2, true, false)], true), VALIDITY);
        let later = start + Duration::from_secs(5);
        let (torn, changes) = RunnerListView::follow(Some(&view), listing(later, vec![runner(1, true, false)], false), VALIDITY);
        assert_eq!(changes, None);
        let whole = vec![runner(1, true, false), runner(2, true, false)];
        let (view, _) = RunnerListView::follow(Some(&torn), listing(later, whole, true), VALIDITY);
        assert_eq!(view.presence(2).unwrap().idle_since, Some(start));
        let (view, changes) = RunnerListView::follow(Some(&view), listing(later, vec![runner(1, true, false)], true), VALIDITY);
        assert_eq!(changes, named(&["r2"]));
        assert_eq!((view.get("r2"), view.presence(2)), (None, None));
    }

    #[tokio::test]
    async fn listing_before_is_the_one_that_came_last_whether_or_not_something_changed() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let both = || vec![runner(1, true, false), runner(2, true, false)];
        let view = RunnerListView::new(listing(at(0), both(), true), VALIDITY);
        assert_eq!(view.before("r2"), None);
        let (view, _) = RunnerListView::follow(Some(&view), listing(at(5), vec![runner(1, true, false)], false), VALIDITY);
        assert_eq!(view.before("r2").map(|(at, runner)| (at, runner.map(|runner| runner.id))), Some((at(0), Some(2))));
        let same = Listing { fetched_at: at(10), ..view.listing().clone() };
        let (view, _) = RunnerListView::follow(Some(&view), same, VALIDITY);
        assert_eq!(view.before("r2"), Some((at(5), None)));
        let (view, _) = RunnerListView::follow(Some(&view), listing(at(15), both(), true), VALIDITY);
        assert_eq!(view.before("r2"), Some((at(10), None)));
    }

    #[tokio::test]
    async fn online_runner_is_found_when_names_are_equal() {
        let same = |id, online| RemoteRunner { name: "x".into(), ..runner(id, online, false) };
        for order in [[same(1, false), same(2, true), same(3, false)], [same(3, false), same(2, true), same(1, false)]] {
            let (view, _) = RunnerListView::follow(None, listing(Instant::now(), order.to_vec(), true), VALIDITY);
            assert_eq!(view.get("x").unwrap().id, 2);
        }
    }

    proptest! {
        #[test]
        fn presence_equals_what_a_full_replay_says(states in proptest::collection::vec((any::<bool>(), any::<bool>()), 1..12)) {
            let start = Instant::now();
            let at = |step: usize| start + Duration::from_secs(step as u64);
            let mut view: Option<RunnerListView> = None;
            for (step, (online, busy)) in states.iter().enumerate() {
                let listing = listing(at(step), vec![runner(1, *online, *busy)], true);
                view = Some(RunnerListView::follow(view.as_ref(), listing, VALIDITY).0);
            }
            let tail = |holds: fn(&(bool, bool)) -> bool| {
                let length = states.iter().rev().take_while(|state| holds(state)).count();
                (length > 0).then(|| at(states.len() - length))
            };
            let presence = view.unwrap().presence(1).unwrap();
            prop_assert_eq!(presence.idle_since, tail(|(online, busy)| *online && !*busy));
            prop_assert_eq!(presence.busy_since, tail(|(_, busy)| *busy));
            prop_assert_eq!(presence.offline_since, tail(|(online, _)| !*online));
            prop_assert_eq!(presence.last_busy, states.iter().rposition(|(_, busy)| *busy).map(at));
            prop_assert_eq!(presence.first_seen, start);
        }
    }
}
