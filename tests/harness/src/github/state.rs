//! The one mutex: everything GitHub knows, its clock, and what happens later.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{
    Settings,
    behaviour::Chance,
    call::Calls,
    check::Reports,
    conformance::Conformance,
    credential::Credentials,
    fault::{Faults, Lies},
    hook::Hooks,
    job::{Conclusion, Jobs},
    limit::Budgets,
    listing::Pages,
    place::{Accounts, JobId, PlaceId, RunnerId},
    runner::{Killed, Orphan, Pool, Runner},
};

mod hooks;
mod jobs;
mod runners;

/// Wall time that follows tokio's clock, so that it stands still or leaps with it in tests.
#[derive(Debug)]
pub(super) struct Clock {
    wall: Timestamp,
    origin: Instant,
}

impl Clock {
    fn start() -> Self {
        Self { wall: Timestamp::now(), origin: Instant::now() }
    }

    fn now(&self) -> Timestamp {
        SignedDuration::try_from(self.origin.elapsed())
            .ok()
            .and_then(|elapsed| self.wall.checked_add(elapsed).ok())
            .unwrap_or(self.wall)
    }
}

/// Something that happens at a certain time.
#[derive(Clone, Debug)]
pub(super) enum Due {
    JobReady(JobId),
    JobBegins(JobId),
    RunnerReady(RunnerId),
    Offline(RunnerId),
    Lost(JobId),
    ShowBusy { runner: RunnerId, busy: bool },
    ShowIdleDuring { runner: RunnerId, job: JobId },
    ShowBusyDuring { runner: RunnerId, job: JobId },
    Listens { runner: RunnerId, session: u64 },
    Updates { runner: RunnerId, session: u64 },
    RemovalNoticed { session: u64 },
}

/// What must be woken once the mutex is free again.
#[derive(Debug, Default)]
pub(super) struct Signals {
    pub(super) changed: bool,
    pub(super) timers: bool,
    pub(super) outbox: bool,
}

/// A registration or removal token.
#[derive(Debug)]
pub(super) struct RunnerToken {
    pub(super) place: PlaceId,
    pub(super) expires_at: Timestamp,
    pub(super) for_removal: bool,
}

#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) registered: u64,
    pub(super) busy_deletes_refused: u64,
    pub(super) deleted: u64,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) settings: Settings,
    /// `http://127.0.0.1:port`.
    pub(super) origin: String,
    pub(super) accounts: Accounts,
    pub(super) runners: HashMap<RunnerId, Runner>,
    pub(super) idle: BTreeMap<Pool, BTreeSet<RunnerId>>,
    pub(super) jobs: Jobs,
    pub(super) runner_tokens: HashMap<String, RunnerToken>,
    /// Runners that were registered ahead, by what their agents are started with.
    pub(super) ahead: HashMap<String, RunnerId>,
    pub(super) credentials: Credentials,
    pub(super) budgets: Budgets,
    pub(super) faults: Faults,
    pub(super) lies: Lies,
    pub(super) calls: Calls,
    pub(super) hooks: Hooks,
    pub(super) pages: Pages,
    pub(super) reports: Reports,
    pub(super) deprecated: bool,
    /// How far the dates of answers are ahead of this machine's clock.
    pub(super) clock_ahead: SignedDuration,
    pub(super) totals: Totals,
    pub(super) signals: Signals,
    pub(super) chance: Chance,
    /// Agents whose registration was removed, by session, until they notice or have finished their job.
    pub(super) orphans: HashMap<u64, Orphan>,
    pub(super) killed: Vec<Killed>,
    clock: Clock,
    timers: BTreeMap<(Instant, u64), Due>,
    numbers: u64,
}

impl State {
    pub(super) fn new(settings: Settings, origin: String) -> Self {
        Self {
            chance: Chance::new(settings.behaviour.seed),
            orphans: HashMap::new(),
            killed: Vec::new(),
            budgets: Budgets::new(settings.rate_limit),
            calls: Calls::new(settings.call_log),
            settings,
            origin,
            accounts: Accounts::default(),
            runners: HashMap::new(),
            idle: BTreeMap::new(),
            jobs: Jobs::default(),
            runner_tokens: HashMap::new(),
            ahead: HashMap::new(),
            credentials: Credentials::default(),
            faults: Faults::default(),
            lies: Lies::default(),
            hooks: Hooks::default(),
            reports: Reports::default(),
            pages: Pages::default(),
            deprecated: false,
            clock_ahead: SignedDuration::ZERO,
            totals: Totals::default(),
            signals: Signals::default(),
            clock: Clock::start(),
            timers: BTreeMap::new(),
            numbers: 0,
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// How answers are dated; none where the server's own date will do.
    pub(super) fn date(&self) -> Option<String> {
        let at = self.now().checked_add(self.clock_ahead).ok().filter(|_| !self.clock_ahead.is_zero())?;
        jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&at).ok()
    }

    /// The moment `delay` from now; about a century at most.
    pub(super) fn moment(&self, delay: Duration) -> Timestamp {
        let delay = delay.min(Duration::from_secs(3_000_000_000));
        SignedDuration::try_from(delay).ok().and_then(|delay| self.now().checked_add(delay).ok()).unwrap_or(Timestamp::MAX)
    }

    /// A number that nothing else here has.
    pub(super) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(super) fn after(&mut self, delay: Duration, due: Due) {
        let (Some(at), number) = (Instant::now().checked_add(delay), self.number()) else { return };
        self.timers.insert((at, number), due);
        self.signals.timers = true;
    }

    /// Does what is due and tells when the next thing is.
    fn run_due(&mut self) -> Option<Instant> {
        while let Some(entry) = self.timers.first_entry() {
            let (at, _) = *entry.key();
            if at > Instant::now() {
                return Some(at);
            }
            match entry.remove() {
                Due::JobReady(job) => self.offer_job(job),
                Due::JobBegins(job) => self.begin_job(job),
                Due::RunnerReady(runner) => self.offer_runner(runner),
                Due::Offline(runner) => self.go_offline(runner),
                Due::Lost(job) => {
                    self.complete_job(job, Conclusion::Failure, true);
                }
                Due::ShowBusy { runner, busy } => self.show_busy(runner, busy),
                Due::ShowIdleDuring { runner, job } => {
                    if self.runners.get(&runner).is_some_and(|runner| runner.job == Some(job)) {
                        self.show_busy(runner, false);
                    }
                }
                Due::ShowBusyDuring { runner, job } => {
                    if self.runners.get(&runner).is_some_and(|runner| runner.job == Some(job)) {
                        self.show_busy(runner, true);
                    }
                }
                Due::Listens { runner, session } => self.listens(runner, session),
                Due::Updates { runner, session } => self.updates(runner, session),
                Due::RemovalNoticed { session } => {
                    if let Some(orphan) = self.orphans.get_mut(&session) {
                        orphan.notices();
                    }
                }
            }
        }
        None
    }
}

/// What the server, the sessions and the handles share.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    pub(super) changes: watch::Sender<u64>,
    timers: Notify,
    pub(super) outbox: Notify,
    pub(super) stopping: CancellationToken,
    pub(super) conformance: Conformance,
}

impl Shared {
    pub(super) fn new(state: State) -> Self {
        Self {
            state: Mutex::new(state),
            changes: watch::Sender::new(0),
            timers: Notify::new(),
            outbox: Notify::new(),
            stopping: CancellationToken::new(),
            conformance: Conformance::default(),
        }
    }

    /// Runs `act` on the state, alone, and wakes whoever waits for what it did.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let (answer, signals) = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let answer = act(&mut state);
            (answer, std::mem::take(&mut state.signals))
        };
        if signals.timers {
            self.timers.notify_one();
        }
        if signals.outbox {
            self.outbox.notify_one();
        }
        if signals.changed {
            self.changes.send_modify(|count| *count += 1);
        }
        answer
    }

    /// Lets time pass: does what becomes due until the simulation stops.
    pub(super) async fn keep_time(&self) {
        loop {
            let next = self.with(State::run_due);
            let sleep = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.stopping.cancelled() => return,
                () = self.timers.notified() => {}
                () = sleep => {}
            }
        }
    }
}
