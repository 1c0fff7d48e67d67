//! How much GitHub still lets us ask.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use jiff::Timestamp;
use pacer_core::allowance::{Allowance, Cost, Grant};
use pacer_core::polling::Left;
use pacer_core::scope::Scope;
use tokio::time::Instant;

use crate::call::{Call, Endpoint, Subject};
use crate::credentials::ClientId;
use crate::limit::{Limited, Report, Resource};

/// Accounts kept per client. An App without an installation id has one per owner it serves; above this the least recently
/// heard of is forgotten, which only costs one refused call to learn again.
const ACCOUNTS: usize = 512;

/// One hourly budget, as GitHub's last answer reported it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Which of the budgets.
    pub resource: Resource,
    /// Organization, user or enterprise whose installation is charged; none where the credentials have a single budget.
    pub owner: Option<String>,
    /// Calls per window.
    pub limit: u32,
    /// Calls left in this window.
    pub remaining: u32,
    /// Calls charged in this window.
    pub used: u32,
    /// When the window ends and `remaining` becomes `limit` again.
    pub resets_at: Timestamp,
    /// The same on the monotonic clock.
    pub resets: Instant,
}

impl Budget {
    /// Time left in the window; zero once it is over, when `remaining` is no longer true.
    #[must_use]
    pub fn resets_in(&self) -> Duration {
        self.resets.saturating_duration_since(Instant::now())
    }

    /// What the pace of listings depends on.
    pub(crate) fn left(&self) -> Left {
        Left { limit: self.limit, remaining: self.remaining, resets_in: self.resets_in() }
    }
}

/// A wait that GitHub imposed and that is not over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) until: Timestamp,
    pub(crate) wait: Duration,
    pub(crate) secondary: bool,
}

/// A call has to wait for its turn, so that GitHub's limits of a minute are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deferral {
    pub(crate) until: Timestamp,
    pub(crate) wait: Duration,
}

impl Deferral {
    /// A deferral that ends `wait` from now.
    pub(crate) fn of(wait: Duration) -> Self {
        let now = Timestamp::now();
        Self { until: now.saturating_add(wait).unwrap_or(now), wait }
    }
}

/// Whose budget a call is charged to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Account {
    Whole,
    Owner(String),
    Enterprise(String),
    AppItself,
}

#[derive(Debug, Default)]
struct Book {
    windows: Vec<Budget>,
    secondary: Option<(Instant, Timestamp)>,
    /// What may be called in a minute.
    allowance: Allowance<u64>,
    /// A good answer said nothing of limits, as GitHub Enterprise Server's do unless its administrator wants some.
    unlimited: bool,
    last_used: Option<Instant>,
}

/// Every budget of one client.
#[derive(Debug)]
pub(crate) struct Ledger {
    per_owner: bool,
    /// Processes that use the same credentials, this one included.
    sharers: AtomicU32,
    /// Sets of listings that are made with them, each of which knows of its own only.
    registries: AtomicU32,
    /// From when allowances count their time.
    made: Instant,
    state: Mutex<State>,
}

/// What GitHub lets a process ask, by credentials. GitHub counts what is asked with the same credentials together, in however many Secrets they are
/// and however often those are written anew.
#[derive(Debug, Default)]
pub struct Budgets(Mutex<HashMap<ClientId, Weak<Ledger>>>);

impl Budgets {
    /// That of these credentials, as long as any client has it. `per_owner` as in [`Ledger::new`].
    pub(crate) fn of(&self, id: &ClientId, per_owner: bool) -> Arc<Ledger> {
        let mut ledgers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ledger) = ledgers.get(id).and_then(Weak::upgrade) {
            return ledger;
        }
        ledgers.retain(|_, ledger| ledger.strong_count() > 0);
        let ledger = Arc::new(Ledger::new(per_owner));
        ledgers.insert(id.clone(), Arc::downgrade(&ledger));
        ledger
    }
}

#[derive(Debug)]
struct State {
    books: BTreeMap<Account, Book>,
    /// Which budget each endpoint was last charged to.
    resources: BTreeMap<Endpoint, Resource>,
}

impl Ledger {
    /// `per_owner` when the credentials act through a different installation for each owner.
    pub(crate) fn new(per_owner: bool) -> Self {
        let state = Mutex::new(State { books: BTreeMap::new(), resources: BTreeMap::new() });
        Self { per_owner, sharers: AtomicU32::new(1), registries: AtomicU32::new(1), made: Instant::now(), state }
    }

    /// So many processes use the same credentials, and so many registries of listings.
    pub(crate) fn share(&self, sharers: u32, registries: u32) {
        self.sharers.store(sharers.max(1), Ordering::Relaxed);
        self.registries.store(registries.max(1), Ordering::Relaxed);
    }

    /// How many registries of listings use the same credentials, as set by [`Self::share`]; 1 at first.
    pub(crate) fn registries(&self) -> u32 {
        self.registries.load(Ordering::Relaxed)
    }

    /// Whether a call may be made now: if so, what to give back to [`Ledger::answered`] once it is answered, unless nobody counts.
    pub(crate) fn ask(&self, call: &Call, who: u64, cost: Cost) -> Result<Option<(Account, Grant)>, Deferral> {
        let (instant, account) = (Instant::now(), self.account(call));
        let mut state = self.lock();
        let book = state.book(account.clone(), instant);
        if book.unlimited {
            return Ok(None);
        }
        book.allowance.share(self.sharers.load(Ordering::Relaxed));
        match book.allowance.ask(who, call.endpoint.purpose(), cost, instant.duration_since(self.made)) {
            Ok(grant) => Ok(Some((account, grant))),
            Err(wait) => Err(Deferral::of(wait)),
        }
    }

    /// A call that was allowed has been answered, or given up.
    pub(crate) fn answered(&self, account: &Account, grant: Grant) {
        let now = self.made.elapsed();
        if let Some(book) = self.lock().books.get_mut(account) {
            book.allowance.answered(grant, now);
        }
    }

    /// Takes note of an answer's headers and of a refusal because of limits. `good` when the answer was a success.
    pub(crate) fn note(&self, call: &Call, report: Option<Report>, limited: Option<Limited>, good: bool, now: Timestamp) {
        if report.is_none() && limited.is_none() && !good {
            return;
        }
        let instant = Instant::now();
        let account = self.account(call);
        let owner = match &account {
            Account::Owner(owner) | Account::Enterprise(owner) => Some(owner.clone()),
            Account::Whole | Account::AppItself => None,
        };
        let mut state = self.lock();
        if let Some(report) = report {
            state.resources.insert(call.endpoint, report.resource);
        }
        let book = state.book(account, instant);
        book.unlimited = report.is_none() && limited.is_none();
        if let Some(report) = report {
            book.enter(report, owner, instant);
        }
        if let Some(limited) = limited.filter(|limited| limited.secondary) {
            let until = (instant + limited.wait, now.saturating_add(limited.wait).unwrap_or(now));
            if book.secondary.is_none_or(|(standing, _)| standing < until.0) {
                book.secondary = Some(until);
            }
        }
    }

    /// The wait that stands against a call now, if any.
    pub(crate) fn standing(&self, call: &Call) -> Option<Block> {
        let now = Instant::now();
        let account = self.account(call);
        let state = self.lock();
        let book = state.books.get(&account)?;
        if let Some((until, timestamp)) = book.secondary.filter(|(until, _)| *until > now) {
            return Some(Block { until: timestamp, wait: until - now, secondary: true });
        }
        // Registrations mostly have a budget of their own; until an answer says which, one of them is let through to find out.
        let registers = matches!(call.endpoint, Endpoint::RegistrationToken | Endpoint::JitConfig);
        let usual = (!registers).then_some(Resource::Core);
        let resource = state.resources.get(&call.endpoint).copied().or(usual)?;
        book.windows
            .iter()
            .find(|budget| budget.resource == resource && budget.remaining == 0 && budget.resets > now)
            .map(|budget| Block { until: budget.resets_at, wait: budget.resets - now, secondary: false })
    }

    /// The budget that a scope's ordinary calls are charged to, while its window lasts.
    pub(crate) fn of(&self, scope: &Scope) -> Option<Budget> {
        let account = self.account(&Call::new(Endpoint::ListRunners, scope));
        let now = Instant::now();
        let state = self.lock();
        let resource = state.resources.get(&Endpoint::ListRunners).copied().unwrap_or(Resource::Core);
        let windows = &state.books.get(&account)?.windows;
        windows.iter().find(|budget| budget.resource == resource && budget.resets > now).cloned()
    }

    /// Every budget whose window lasts, without those of Apps themselves.
    pub(crate) fn all(&self) -> Vec<Budget> {
        let now = Instant::now();
        let state = self.lock();
        let books = state.books.iter().filter(|(account, _)| **account != Account::AppItself);
        books.flat_map(|(_, book)| book.windows.iter().filter(|budget| budget.resets > now).cloned()).collect()
    }

    /// Until when a secondary limit stands against some of the accounts; none when none does.
    pub(crate) fn secondary(&self) -> Option<Timestamp> {
        let now = Instant::now();
        let state = self.lock();
        state.books.values().filter_map(|book| book.secondary).filter(|(until, _)| *until > now).map(|(_, at)| at).max()
    }

    fn account(&self, call: &Call) -> Account {
        let scope = match &call.subject {
            Subject::Scope(scope) if !call.by_the_app() => scope,
            Subject::Scope(_) | Subject::App => return Account::AppItself,
        };
        match scope {
            _ if !self.per_owner => Account::Whole,
            Scope::Repository { owner, .. } | Scope::Organization(owner) => Account::Owner(owner.clone()),
            Scope::Enterprise(enterprise) => Account::Enterprise(enterprise.clone()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn book(&mut self, account: Account, now: Instant) -> &mut Book {
        if self.books.len() >= ACCOUNTS && !self.books.contains_key(&account) {
            let oldest = self.books.iter().min_by_key(|(_, book)| book.last_used).map(|(account, _)| account.clone());
            if let Some(oldest) = oldest {
                self.books.remove(&oldest);
            }
        }
        let book = self.books.entry(account).or_default();
        book.last_used = Some(now);
        book
    }
}

impl Book {
    fn enter(&mut self, report: Report, owner: Option<String>, now: Instant) {
        let fresh = Budget {
            resource: report.resource,
            owner,
            limit: report.limit,
            remaining: report.remaining,
            used: report.used,
            resets_at: report.resets_at,
            resets: now + report.resets_in,
        };
        let Some(known) = self.windows.iter_mut().find(|budget| budget.resource == report.resource) else {
            self.windows.push(fresh);
            return;
        };
        // Answers overtake each other: within one window only the lower figure is the later one.
        if known.resets_at < fresh.resets_at || known.resets <= now {
            *known = fresh;
        } else if known.resets_at == fresh.resets_at && fresh.remaining <= known.remaining {
            *known = Budget { resets: known.resets, ..fresh };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit;

    fn call(endpoint: Endpoint, owner: &str) -> Call {
        Call::new(endpoint, Scope::Organization(owner.into()))
    }

    fn acme() -> Scope {
        Scope::Organization("acme".into())
    }

    fn report(resource: Resource, remaining: u32, reset: i64, resets_in: u64) -> Report {
        Report {
            resource,
            limit: 5000,
            remaining,
            used: 5000 - remaining,
            resets_at: Timestamp::from_second(reset).unwrap(),
            resets_in: Duration::from_secs(resets_in),
        }
    }

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_used_up_budget_stands_until_its_reset() {
        let ledger = Ledger::new(false);
        let list = call(Endpoint::ListRunners, "acme");
        ledger.note(&list, Some(report(Resource::Core, 0, 1_800_000_100, 100)), None, true, now());
        let block = ledger.standing(&list).unwrap();
        assert_eq!((block.wait, block.secondary), (Duration::from_secs(100), false));
        tokio::time::advance(Duration::from_secs(101)).await;
        assert_eq!(ledger.standing(&list), None);
        assert_eq!(ledger.of(&acme()), None, "an ended window says nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn budgets_of_other_resources_do_not_stand_in_the_way() {
        let ledger = Ledger::new(false);
        let (list, register) = (call(Endpoint::ListRunners, "acme"), call(Endpoint::RegistrationToken, "acme"));
        ledger.note(&list, Some(report(Resource::Core, 0, 1_800_000_100, 100)), None, true, now());
        assert!(ledger.standing(&list).is_some());
        assert_eq!(ledger.standing(&register), None, "nothing is known about registrations yet");
        ledger.note(&register, Some(report(Resource::RunnerRegistration, 7, 1_800_000_100, 100)), None, true, now());
        assert_eq!(ledger.standing(&register), None);
        assert_eq!(ledger.all().len(), 2);
        ledger.note(&register, Some(report(Resource::Core, 0, 1_800_000_100, 100)), None, true, now());
        assert!(ledger.standing(&register).is_some(), "this instance charges registrations to the core budget");
    }

    #[tokio::test(start_paused = true)]
    async fn secondary_limits_stop_everything_of_that_account_only() {
        let ledger = Ledger::new(true);
        let limited = Limited { wait: Duration::from_secs(60), secondary: true };
        ledger.note(&call(Endpoint::RemoveRunner, "acme"), None, Some(limited), false, now());
        let shorter = Limited { wait: Duration::from_secs(5), secondary: true };
        ledger.note(&call(Endpoint::RemoveRunner, "acme"), None, Some(shorter), false, now());
        let block = ledger.standing(&call(Endpoint::ListRunners, "acme")).unwrap();
        assert_eq!((block.wait, block.secondary), (Duration::from_secs(60), true));
        assert_eq!(ledger.standing(&call(Endpoint::ListRunners, "other")), None);
    }

    #[tokio::test(start_paused = true)]
    async fn answers_that_overtake_each_other_never_raise_the_budget() {
        let ledger = Ledger::new(false);
        let list = call(Endpoint::ListRunners, "acme");
        for (remaining, reset) in [(10, 1_800_000_100), (12, 1_800_000_100), (4_000, 1_799_990_000)] {
            ledger.note(&list, Some(report(Resource::Core, remaining, reset, 100)), None, true, now());
            assert_eq!(ledger.of(&acme()).unwrap().remaining, 10);
        }
        ledger.note(&list, Some(report(Resource::Core, 4_999, 1_800_003_700, 3_700)), None, true, now());
        assert_eq!(ledger.of(&acme()).unwrap().remaining, 4_999);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reset_in_the_far_future_is_forgotten_after_an_hour() {
        let ledger = Ledger::new(false);
        let list = call(Endpoint::ListRunners, "acme");
        let told = [("x-ratelimit-limit", "5000"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "4070908800")];
        let mut headers = http::HeaderMap::new();
        for (name, value) in told {
            headers.insert(name, http::HeaderValue::from_static(value));
        }
        ledger.note(&list, limit::report(&headers, now()), None, true, now());
        let block = ledger.standing(&list).unwrap();
        assert_eq!((block.wait, block.until), (Duration::from_secs(3_660), now() + Duration::from_secs(3_660)));
        tokio::time::advance(Duration::from_secs(3_661)).await;
        assert_eq!(ledger.standing(&list), None);
        ledger.note(&list, Some(report(Resource::Core, 4_000, 1_800_003_000, 600)), None, true, now());
        assert_eq!(ledger.of(&acme()).unwrap().remaining, 4_000, "though its window ends before the one that was told");
    }

    #[tokio::test(start_paused = true)]
    async fn calls_of_a_minute_are_bounded_for_each_account_that_has_limits() {
        let ledger = Ledger::new(true);
        let cost = Cost { points: 5, creations: 0 };
        let ask = |owner: &str, endpoint| (0..300).filter(|who| ledger.ask(&call(endpoint, owner), *who, cost).is_ok()).count();
        assert_eq!((ask("acme", Endpoint::RemoveRunner), ask("other", Endpoint::RemoveRunner)), (132, 132));
        assert_eq!(ask("acme", Endpoint::RegistrationToken), 12, "what is kept for jobs that start");
        let report = Some(report(Resource::Core, 9, 1_800_000_100, 100));
        ledger.note(&call(Endpoint::ListRunners, "server"), None, None, true, now());
        assert_eq!(ask("server", Endpoint::RemoveRunner), 300, "its answers say nothing of limits");
        ledger.note(&call(Endpoint::ListRunners, "server"), None, None, false, now());
        ledger.note(&call(Endpoint::ListRunners, "server"), report, None, true, now());
        assert_eq!(ask("server", Endpoint::RemoveRunner), 132, "its administrator has set some");
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_accounts_is_bounded() {
        let ledger = Ledger::new(true);
        for n in 0..ACCOUNTS + 40 {
            let list = call(Endpoint::ListRunners, &format!("org{n}"));
            ledger.note(&list, Some(report(Resource::Core, 9, 1_800_000_100, 100)), None, true, now());
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert_eq!(ledger.all().len(), ACCOUNTS);
        assert!(ledger.of(&Scope::Organization("org0".into())).is_none());
    }
}
