//! A simulated GitHub: the REST API that a runner autoscaler uses, over HTTP, and the runners' side of it, in process.
//!
//! The simulation decides by the truth and shows what it is told to show: whether a runner may be deleted depends on whether it has
//! a job, in the same critical section in which jobs are given out, while listings may lag, lie or fail.
//!
//! ```no_run
//! # async fn sketch() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use pacer_harness::github::{Conclusion, Effect, Event, Fault, JobSpec, Registration, RouteKind, Routes, Scope, Settings, SimGitHub};
//!
//! let github = SimGitHub::start(Settings::prompt()).await?;
//! github.add(&Scope::repository("acme", "app"));
//! let (api, pat) = (github.api_url(), github.pat()); // for the operator: http://127.0.0.1:port/, ghp_...
//!
//! // The runner's side: what config.sh and run.sh do.
//! let token = github.registration_token(&Scope::repository("acme", "app"));
//! let mut session = github.register(Registration {
//!     url_path: "acme/app".into(),
//!     token,
//!     name: "runner-1".into(),
//!     labels: vec!["gpu".into()],
//!     ephemeral: true,
//!     ..Registration::default()
//! })?;
//! let job = github.queue_job(JobSpec::new("acme/app", ["self-hosted", "gpu"]).lasting(Duration::from_millis(10)))?;
//! if let Event::Job { id, duration } = session.next().await {
//!     tokio::time::sleep(duration).await;
//!     session.finish(id, Conclusion::Success);
//! }
//!
//! // What a test waits for, and what it breaks.
//! github.wait_for(Duration::from_secs(5), |view| view.jobs().succeeded == 1).await?;
//! github.inject(Fault::new(Routes::of(RouteKind::DeleteRunner), Effect::Reset).performed().times(3));
//! # let _ = (api, pat, job);
//! # github.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! Times follow tokio's clock. All handles are the same GitHub; it stops with [`SimGitHub::stop`] or when the last one is dropped.

use std::{collections::BTreeMap, fmt, io, sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::SignedDuration;
use ring::signature::KeyPair;
use tokio::{net::TcpListener, time::Instant};
use tokio_util::task::TaskTracker;

mod behaviour;
mod call;
mod check;
mod conformance;
mod credential;
mod endpoint;
mod fault;
mod hook;
mod job;
mod limit;
mod listing;
mod outbox;
mod payload;
mod place;
mod report;
mod route;
mod runner;
mod server;
mod session;
mod settings;
mod state;
#[cfg(test)]
mod tests;

use self::state::{Shared, State};
pub use self::{
    behaviour::{Behaviour, Tail},
    call::{Call, RouteCount},
    check::{CheckRun, CommitStatus},
    credential::{Access, Installation, Person},
    fault::{Effect, Fault, FaultId, Lies, Routes, Tags},
    hook::{Delivering, Delivery, DeliveryCounts, Hook, HookOwner, JobAction, Silence},
    job::{Conclusion, Hold, Job, JobCounts, JobRunner, JobSpec, JobState},
    limit::Budget,
    place::{DeliveryId, GroupId, GroupVisibility, HookId, JobId, NoScope, RunId, RunnerId, Scope},
    route::RouteKind,
    runner::{Killed, Registered, Registration, RegistrationRefused, RemovalRefused, RunnerCounts},
    session::{Event, Session},
    settings::Settings,
};

/// The private key of every simulated App, as GitHub hands it out (PKCS #1 in PEM). It protects nothing.
pub const APP_PRIVATE_KEY: &str = include_str!("../data/app-key.pem");

/// A state that did not come in time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("GitHub did not reach the state within {within:?}; jobs: {jobs:?}, runners: {runners:?}, deliveries: {deliveries:?}")]
pub struct NotReached {
    /// How long was waited.
    pub within: Duration,
    /// Jobs at the end.
    pub jobs: JobCounts,
    /// Runners at the end.
    pub runners: RunnerCounts,
    /// Webhook deliveries at the end.
    pub deliveries: DeliveryCounts,
}

/// The truth at one moment.
pub struct View<'a>(&'a State);

impl View<'_> {
    /// Jobs by state.
    #[must_use]
    pub fn jobs(&self) -> JobCounts {
        self.0.jobs.counts
    }

    /// The job of that number, if there is one.
    #[must_use]
    pub fn job(&self, id: JobId) -> Option<&Job> {
        self.0.jobs.all.get(&id)
    }

    /// All jobs, oldest first.
    pub fn all_jobs(&self) -> impl Iterator<Item = &Job> {
        self.0.jobs.all.values()
    }

    /// Runners by state, everywhere.
    #[must_use]
    pub fn runners(&self) -> RunnerCounts {
        self.0.runner_counts()
    }

    /// Registrations of a scope, by number.
    #[must_use]
    pub fn registrations(&self, scope: &Scope) -> Vec<Registered> {
        let place = self.0.accounts.find(scope).and_then(|place| self.0.accounts.get(place));
        let runners = place.into_iter().flat_map(|place| place.runners.iter());
        runners.filter_map(|id| self.0.registered(self.0.runners.get(id)?)).collect()
    }

    /// The registration of this name in a scope.
    #[must_use]
    pub fn registration(&self, scope: &Scope, name: &str) -> Option<Registered> {
        let place = self.0.accounts.get(self.0.accounts.find(scope)?)?;
        self.0.registered(self.0.runners.get(place.names.get(&name.to_lowercase())?)?)
    }

    /// Registrations that no agent holds, everywhere: what an autoscaler should have cleaned up.
    #[must_use]
    pub fn leaked(&self) -> Vec<Registered> {
        let mut leaked: Vec<Registered> = self
            .0
            .runners
            .values()
            .filter(|runner| runner.session.is_none())
            .filter_map(|runner| self.0.registered(runner))
            .collect();
        leaked.sort_by_key(|runner| runner.id);
        leaked
    }

    /// Jobs that their agents cancelled because their registration was removed under them.
    #[must_use]
    pub fn killed(&self) -> &[Killed] {
        &self.0.killed
    }

    /// Check runs, the oldest first.
    #[must_use]
    pub fn checks(&self) -> &[CheckRun] {
        &self.0.reports.checks
    }

    /// Commit statuses, each as it was set.
    #[must_use]
    pub fn statuses(&self) -> &[CommitStatus] {
        &self.0.reports.statuses
    }

    /// Requests of one kind.
    #[must_use]
    pub fn calls(&self, route: RouteKind) -> RouteCount {
        self.0.calls.count(route)
    }

    /// Number of requests of all kinds, those that GitHub does not know included.
    #[must_use]
    pub fn total_calls(&self) -> u64 {
        self.0.calls.total()
    }

    /// Webhook deliveries by result.
    #[must_use]
    pub fn deliveries(&self) -> DeliveryCounts {
        self.0.hooks.counts()
    }
}

/// Stops the simulation with its last handle.
struct Running {
    shared: Arc<Shared>,
    tasks: TaskTracker,
    address: std::net::SocketAddr,
    pat: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.stopping.cancel();
    }
}

/// A handle to the simulated GitHub; see the [module](self).
#[derive(Clone)]
pub struct SimGitHub(Arc<Running>);

impl fmt::Debug for SimGitHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimGitHub").field("address", &self.0.address).finish_non_exhaustive()
    }
}

impl SimGitHub {
    /// Starts a GitHub without accounts on a free port of the loopback interface.
    ///
    /// # Errors
    ///
    /// When no port can be had.
    pub async fn start(settings: Settings) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let mut state = State::new(settings, format!("http://{address}"));
        let pat = format!("ghp_{}", state.secret(36));
        state.credentials.add_token(pat.clone(), Person::admin("octocat"));
        let (shared, tasks) = (Arc::new(Shared::new(state)), TaskTracker::new());
        tasks.spawn(server::serve(Arc::clone(&shared), listener, tasks.clone()));
        let timer = Arc::clone(&shared);
        tasks.spawn(async move { timer.keep_time().await });
        let sender = Arc::clone(&shared);
        tasks.spawn(async move { outbox::deliver(&sender).await });
        Ok(Self(Arc::new(Running { shared, tasks, address, pat })))
    }

    /// Stops it for all handles and waits until nothing of it runs.
    pub async fn stop(&self) {
        self.0.shared.stopping.cancel();
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        self.0.shared.with(act)
    }

    /// The API as github.com offers it: `http://127.0.0.1:port/`.
    #[must_use]
    pub fn api_url(&self) -> String {
        format!("http://{}/", self.0.address)
    }

    /// The API as GitHub Enterprise Server offers it, below the same server: `http://127.0.0.1:port/api/v3/`.
    #[must_use]
    pub fn enterprise_api_url(&self) -> String {
        format!("http://{}/api/v3/", self.0.address)
    }

    /// A personal access token that may do everything.
    #[must_use]
    pub fn pat(&self) -> &str {
        &self.0.pat
    }
}

/// Accounts and credentials.
impl SimGitHub {
    /// Makes a scope, and the owner of a repository, exist.
    pub fn add(&self, scope: &Scope) {
        self.with(|state| state.accounts.ensure(scope));
    }

    /// Deletes a scope with its runners: GitHub answers 404 from then on, and their agents are turned away.
    pub fn remove(&self, scope: &Scope) {
        self.with(|state| {
            let Some(place) = state.accounts.remove(scope) else { return };
            let runners: Vec<RunnerId> =
                state.accounts.get(place).into_iter().flat_map(|place| place.runners.iter().copied()).collect();
            runners.into_iter().for_each(|runner| state.remove_runner(runner));
        });
    }

    /// Makes `login` a user, whose repositories have no organization.
    pub fn add_user(&self, login: &str) {
        self.with(|state| {
            let place = state.accounts.ensure(&Scope::organization(login));
            if let Some(place) = state.accounts.get_mut(place) {
                place.user = true;
            }
        });
    }

    /// Makes an enterprise with these organizations exist.
    pub fn add_enterprise(&self, slug: &str, organizations: &[&str]) {
        self.with(|state| {
            let enterprise = state.accounts.ensure(&Scope::enterprise(slug));
            for login in organizations {
                let organization = state.accounts.ensure(&Scope::organization(*login));
                if let Some(place) = state.accounts.get_mut(organization) {
                    place.parent = Some(enterprise);
                    place.version += 1;
                }
            }
        });
    }

    /// Adds a runner group to an organization or enterprise.
    pub fn add_group(&self, scope: &Scope, name: &str, visibility: GroupVisibility) -> GroupId {
        self.with(|state| state.accounts.add_group(scope, name, visibility))
    }

    /// Gives a user a personal access token.
    #[must_use]
    pub fn add_pat(&self, person: Person) -> String {
        self.with(|state| {
            let token = format!("ghp_{}", state.secret(36));
            state.credentials.add_token(token.clone(), person);
            token
        })
    }

    /// Gives a user a password for basic authentication.
    pub fn add_password(&self, person: Person, password: &str) {
        self.with(|state| state.credentials.add_password(password.to_owned(), person));
    }

    /// Makes GitHub forget a personal or installation token.
    pub fn revoke(&self, token: &str) {
        self.with(|state| state.credentials.revoke_token(token));
    }

    /// Makes an App with the key [`APP_PRIVATE_KEY`].
    pub fn add_app(&self, id: u64) {
        let key = public_key(APP_PRIVATE_KEY).unwrap_or_default();
        self.with(|state| state.credentials.add_app(id, key));
    }

    /// Installs an App, or changes an installation of the same number; false when there is no such App.
    pub fn install_app(&self, app: u64, installation: Installation) -> bool {
        self.with(|state| {
            state.accounts.ensure(&installation.account);
            state.credentials.install(app, installation)
        })
    }

    /// Removes an installation and with it its tokens.
    pub fn uninstall_app(&self, installation: u64) {
        self.with(|state| state.credentials.uninstall(installation));
    }

    /// Ends the life of every installation token.
    pub fn expire_installation_tokens(&self) {
        self.with(|state| {
            let now = state.now();
            state.credentials.expire_installation_tokens(now);
        });
    }

    /// Ends the life of every registration and removal token.
    pub fn expire_registration_tokens(&self) {
        self.with(|state| {
            let now = state.now();
            for token in state.runner_tokens.values_mut() {
                token.expires_at = token.expires_at.min(now);
            }
        });
    }
}

/// Runners and jobs.
impl SimGitHub {
    /// A registration token without a request for it; its scope is made where it does not exist.
    #[must_use]
    pub fn registration_token(&self, scope: &Scope) -> String {
        self.with(|state| {
            let place = state.accounts.ensure(scope);
            state.issue_runner_token(place, false).0
        })
    }

    /// Registers a runner and brings it online, as `config.sh` and `run.sh` do.
    ///
    /// # Errors
    ///
    /// With GitHub's text when it refuses.
    #[expect(clippy::needless_pass_by_value, reason = "callers build the request for this call")]
    pub fn register(&self, registration: Registration) -> Result<Session, RegistrationRefused> {
        let opened = self.with(|state| {
            let outcome = state.register(&registration);
            state.log_registration(&registration, outcome.as_ref().err());
            outcome
        })?;
        Ok(Session::new(Arc::clone(&self.0.shared), opened))
    }

    /// Connects the agent of a runner that was registered ahead, with its just-in-time configuration.
    ///
    /// # Errors
    ///
    /// When the configuration was used, or its registration is gone.
    pub fn connect(&self, config: &str) -> Result<Session, RegistrationRefused> {
        let opened = self.with(|state| state.connect(config))?;
        Ok(Session::new(Arc::clone(&self.0.shared), opened))
    }

    /// Registers a runner without an agent, as `config.sh` alone does: it is offline until somebody runs it.
    ///
    /// # Errors
    ///
    /// With GitHub's text when it refuses.
    #[expect(clippy::needless_pass_by_value, reason = "callers build the request for this call")]
    pub fn register_only(&self, registration: Registration) -> Result<RunnerId, RegistrationRefused> {
        self.with(|state| {
            let outcome = state.register_offline(&registration);
            state.log_registration(&registration, outcome.as_ref().err());
            outcome
        })
    }

    /// Ends a registration as GitHub's own clean-up does, which takes those that have been offline for two weeks.
    pub fn forget(&self, id: RunnerId) {
        self.with(|state| state.remove_runner(id));
    }

    /// Queues a job.
    ///
    /// # Errors
    ///
    /// When its repository is not `owner/name`.
    pub fn queue_job(&self, spec: JobSpec) -> Result<JobId, NoScope> {
        self.with(|state| state.queue_job(spec))
    }

    /// Cancels a job; false when it is over. The registration of an ephemeral runner that has it ends.
    pub fn cancel_job(&self, id: JobId) -> bool {
        self.with(|state| state.complete_job(id, Conclusion::Cancelled, false))
    }

    /// Ends a job that waits as skipped; false when it does not wait.
    pub fn skip_job(&self, id: JobId) -> bool {
        self.with(|state| {
            let waits = state.jobs.all.get(&id).is_some_and(|job| job.state <= JobState::Queued && job.runner.is_none());
            waits && state.complete_job(id, Conclusion::Skipped, false)
        })
    }

    /// Lets a job go on that was [held](JobSpec::held): its deployment is approved, or its turn has come. False when it is not held.
    pub fn release_job(&self, id: JobId) -> bool {
        self.with(|state| state.release_job(id))
    }

    /// Declares the runners' version deprecated (or not): those that may not update themselves are refused.
    pub fn deprecate_version(&self, deprecated: bool) {
        self.with(|state| {
            state.deprecated = deprecated;
            let affected: Vec<RunnerId> =
                state.runners.values().filter(|runner| runner.disable_update).map(|runner| runner.id).collect();
            for id in affected {
                state.not_idle(id);
                state.offer_runner(id);
                if let Some(runner) = state.runners.get(&id) {
                    runner.wake.notify_one();
                }
            }
        });
    }
}

/// Faults, listings that deviate from the truth, a wrong clock, and rate limits.
impl SimGitHub {
    /// Injects a fault. Of several that meet a request, the oldest acts.
    pub fn inject(&self, fault: Fault) -> FaultId {
        self.with(|state| state.faults.inject(fault))
    }

    /// Ends a fault.
    pub fn clear_fault(&self, id: FaultId) {
        self.with(|state| state.faults.clear(Some(id)));
    }

    /// Ends every fault.
    pub fn clear_faults(&self) {
        self.with(|state| state.faults.clear(None));
    }

    /// How many requests a fault met so far; 0 once it is cleared.
    #[must_use]
    pub fn fault_hits(&self, id: FaultId) -> u64 {
        self.with(|state| state.faults.hits(id))
    }

    /// Sets how listings deviate from the truth, for changes from now on; omissions and tags act at once.
    pub fn lie(&self, lies: Lies) {
        self.with(|state| {
            state.lies = lies;
            state.accounts.touch_all();
        });
    }

    /// Makes one runner's `busy` flag show this until its state changes.
    pub fn show_busy(&self, id: RunnerId, busy: bool) {
        self.with(|state| state.show_busy(id, busy));
    }

    /// Dates answers by a clock that is so far ahead of this machine's; behind it where negative.
    pub fn set_clock_ahead(&self, ahead: SignedDuration) {
        self.with(|state| state.clock_ahead = ahead);
    }

    /// Sets the hourly limit of every caller.
    pub fn set_rate_limit(&self, limit: u32) {
        self.with(|state| state.budgets.set_limit(limit));
    }

    /// Refuses every caller for the primary rate limit until it resets after `reset_in`.
    pub fn exhaust_rate_limit(&self, reset_in: Duration) {
        self.with(|state| {
            let until = state.moment(reset_in);
            state.budgets.exhaust(until);
        });
    }

    /// Resets every caller's rate limit.
    pub fn refill_rate_limit(&self) {
        self.with(|state| state.budgets.refill());
    }
}

/// Webhooks.
impl SimGitHub {
    /// Registers a webhook for `workflow_job` events from now on.
    pub fn add_hook(&self, hook: Hook) -> HookId {
        self.with(|state| state.add_hook(hook))
    }

    /// Removes a webhook; what is queued for it fails.
    pub fn remove_hook(&self, id: HookId) {
        self.with(|state| state.remove_hook(id));
    }

    /// Changes the settings of a webhook, so that it is told of jobs, or is not.
    pub fn set_silence(&self, id: HookId, silence: Option<Silence>) {
        self.with(|state| match silence {
            Some(silence) => drop(state.hooks.silent.insert(id, silence)),
            None => drop(state.hooks.silent.remove(&id)),
        });
    }

    /// Sends a `ping` event.
    pub fn ping(&self, id: HookId) {
        self.with(|state| state.ping(id));
    }

    /// Sets how well events are delivered from now on.
    pub fn deliver(&self, delivering: Delivering) {
        self.with(|state| {
            state.hooks.delivering = delivering;
            state.signals.outbox = true;
        });
    }

    /// Delivers an event again; the new delivery's number, or none when there was no such delivery yet.
    pub fn redeliver(&self, id: DeliveryId) -> Option<DeliveryId> {
        self.with(|state| state.redeliver(id))
    }

    /// All attempts so far, the latest first.
    #[must_use]
    pub fn deliveries(&self) -> Vec<Delivery> {
        self.with(|state| state.hooks.tried().cloned().collect())
    }
}

/// The true state, to look at and to wait for.
impl SimGitHub {
    /// Looks at the truth.
    pub fn view<T>(&self, look: impl FnOnce(&View<'_>) -> T) -> T {
        self.with(|state| look(&View(state)))
    }

    /// Waits until `reached` holds, looking whenever something changed.
    ///
    /// # Errors
    ///
    /// When it does not hold within `timeout`.
    pub async fn wait_for(&self, timeout: Duration, reached: impl Fn(&View<'_>) -> bool) -> Result<(), NotReached> {
        let mut changes = self.0.shared.changes.subscribe();
        let deadline = Instant::now() + timeout;
        loop {
            changes.borrow_and_update();
            if self.view(&reached) {
                return Ok(());
            }
            // The sender lives as long as this handle, so that waiting ends by a change or by the deadline only.
            if !matches!(tokio::time::timeout_at(deadline, changes.changed()).await, Ok(Ok(()))) {
                let (reached, jobs, runners, deliveries) =
                    self.view(|view| (reached(view), view.jobs(), view.runners(), view.deliveries()));
                return if reached { Ok(()) } else { Err(NotReached { within: timeout, jobs, runners, deliveries }) };
            }
        }
    }

    /// Jobs by state.
    #[must_use]
    pub fn jobs(&self) -> JobCounts {
        self.view(|view| view.jobs())
    }

    /// The job of that number, if there is one.
    #[must_use]
    pub fn job(&self, id: JobId) -> Option<Job> {
        self.view(|view| view.job(id).cloned())
    }

    /// Runners by state, everywhere.
    #[must_use]
    pub fn runners(&self) -> RunnerCounts {
        self.view(|view| view.runners())
    }

    /// The true state of a scope's registrations, by number.
    #[must_use]
    pub fn registrations(&self, scope: &Scope) -> Vec<Registered> {
        self.view(|view| view.registrations(scope))
    }

    /// Registrations that no agent holds, everywhere: what an autoscaler should have cleaned up.
    #[must_use]
    pub fn leaked(&self) -> Vec<Registered> {
        self.view(|view| view.leaked())
    }

    /// Jobs that their agents cancelled because their registration was removed under them.
    #[must_use]
    pub fn killed(&self) -> Vec<Killed> {
        self.view(|view| view.killed().to_vec())
    }

    /// DELETE requests that were answered 422 because the runner had a job.
    #[must_use]
    pub fn busy_deletes_refused(&self) -> u64 {
        self.view(|view| view.runners().busy_deletes_refused)
    }

    /// Requests that a secondary limit refused, injected faults apart.
    #[must_use]
    pub fn secondary_limits_hit(&self) -> u64 {
        self.with(|state| state.budgets.refusals())
    }

    /// The requests that the log holds, oldest first.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.with(|state| state.calls.log().cloned().collect())
    }

    /// Requests of one kind since the start or the last reset.
    #[must_use]
    pub fn count(&self, route: RouteKind) -> RouteCount {
        self.with(|state| state.calls.count(route))
    }

    /// Requests by kind since the start or the last reset.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<RouteKind, RouteCount> {
        self.with(|state| state.calls.counts())
    }

    /// What was not as GitHub's published description of its API has it: requests of clients, and answers and events of the simulation
    /// itself. Injected faults apart, there should be none; the first few are kept.
    #[must_use]
    pub fn deviations(&self) -> Vec<String> {
        self.0.shared.conformance.deviations()
    }

    /// Forgets all requests so far.
    pub fn reset_calls(&self) {
        self.with(|state| state.calls.reset());
    }

    /// The rate limit of a caller by the name that [`Call::caller`] has: `user octocat`, `installation 7`.
    #[must_use]
    pub fn budget(&self, caller: &str) -> Budget {
        self.with(|state| {
            let now = state.now();
            state.budgets.budget(caller, now)
        })
    }
}

/// The PKCS #1 public key that belongs to a private key in PEM.
fn public_key(pem: &str) -> Option<Vec<u8>> {
    let base64: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    let pair = ring::signature::RsaKeyPair::from_der(&STANDARD.decode(base64).ok()?).ok()?;
    Some(pair.public_key().as_ref().to_vec())
}
