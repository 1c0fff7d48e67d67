//! Registrations: who is registered where, who is idle, who may be deleted.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::sync::Notify;

use super::{
    call::Call,
    place::{Group, GroupId, JobId, PlaceId, RunnerId, Scope},
    route::RouteKind,
    state::{Due, State},
};

/// Labels in lower case, shared by the runners or jobs that have the same.
pub(super) type LabelSet = Arc<BTreeSet<String>>;

/// Labels that every runner of the simulated platform has without asking.
pub(super) const IMPLICIT_LABELS: [&str; 3] = ["self-hosted", "Linux", "X64"];

pub(super) fn label_set<L: AsRef<str>>(labels: impl Iterator<Item = L>) -> LabelSet {
    Arc::new(labels.map(|label| label.as_ref().to_lowercase()).collect())
}

/// Idle runners that are interchangeable to a job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pool {
    pub(super) place: PlaceId,
    pub(super) group: GroupId,
    pub(super) labels: LabelSet,
}

/// What `config.sh` is given.
#[derive(Clone, Debug, Default)]
pub struct Registration {
    /// Path of the scope below the server: `owner/name`, `login` or `enterprises/slug`.
    pub url_path: String,
    /// A registration token of that scope.
    pub token: String,
    /// Name of the runner, unique in its scope.
    pub name: String,
    /// Labels besides the implicit ones (self-hosted, Linux, X64).
    pub labels: Vec<String>,
    /// Name of the runner group; the default one when absent.
    pub group: Option<String>,
    /// `--ephemeral`: the registration ends with its first job.
    pub ephemeral: bool,
    /// `--replace`: take over a registration of the same name.
    pub replace: bool,
    /// `--disableupdate`: such a runner stops working once its version is deprecated; others update themselves.
    pub disable_update: bool,
}

/// Why GitHub registers no runner, in its words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistrationRefused {
    /// A token that GitHub never issued, or issued for another scope, or a scope that does not exist.
    #[error(
        "Http response code: NotFound from 'POST https://api.github.com/actions/runner-registration'\n\
         {{\"message\":\"Not Found\",\"documentation_url\":\"https://docs.github.com/rest\",\"status\":\"404\"}}\n\
         Response status code does not indicate success: 404 (Not Found)."
    )]
    NotFound,
    /// A token whose time is over.
    #[error(
        "Http response code: Unauthorized from 'POST https://api.github.com/actions/runner-registration'\n\
         {{\"message\":\"Token expired.\",\"documentation_url\":\"https://docs.github.com/rest\",\"status\":\"401\"}}\n\
         Response status code does not indicate success: 401 (Unauthorized)."
    )]
    TokenExpired,
    /// GitHub does not answer properly: an injected fault.
    #[error("Http response code: {0} from 'POST https://api.github.com/actions/runner-registration'")]
    Unavailable(u16),
    /// No such group.
    #[error("Could not find any self-hosted runner group named \"{0}\".")]
    UnknownGroup(String),
    /// The name is taken and replacement was not asked for.
    #[error("A runner exists with the same name {0}.")]
    NameTaken(String),
    /// The runner is too old and may not update itself.
    #[error("Runner version v2.300.0 is deprecated and cannot receive messages.")]
    VersionDeprecated,
}

/// Why `config.sh remove` fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemovalRefused {
    /// The runner has a job.
    #[error("Failed: Removing runner from the server\nRunner is currently running a job")]
    Busy,
    /// The token is unknown, of another scope, or expired.
    #[error("Failed: Removing runner from the server\nResponse status code does not indicate success: 404 (Not Found).")]
    Token,
}

/// Why a runner was not deleted through the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeletionRefused {
    Unknown,
    Busy,
}

/// The true state of a registration, whatever the API shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// Its number.
    pub id: RunnerId,
    /// Its name.
    pub name: String,
    /// Where it is registered.
    pub scope: Scope,
    /// Its group.
    pub group: GroupId,
    /// Labels it asked for, without the implicit ones.
    pub labels: Vec<String>,
    /// Whether its registration ends with its first job.
    pub ephemeral: bool,
    /// Whether GitHub hears from it.
    pub online: bool,
    /// The job it has.
    pub job: Option<JobId>,
    /// Whether an agent holds a session for it.
    pub live: bool,
    /// When it was registered (last).
    pub registered_at: Timestamp,
}

/// A job that its agent cancelled because its registration was removed under it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Killed {
    /// The job.
    pub job: JobId,
    /// Name of the runner.
    pub runner: String,
    /// When the registration was removed.
    pub removed_at: Timestamp,
    /// When the job had begun.
    pub job_began: Option<Timestamp>,
}

/// An agent whose registration was removed.
#[derive(Debug)]
pub(super) struct Orphan {
    name: String,
    /// The job that it works on.
    job: Option<JobId>,
    /// It cancels its job when it notices.
    cancels: bool,
    noticed: bool,
    removed_at: Timestamp,
    wake: Arc<Notify>,
}

impl Orphan {
    pub(super) fn notices(&mut self) {
        self.noticed = true;
        self.wake.notify_one();
    }
}

/// Numbers of registrations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunnerCounts {
    /// Registered now.
    pub registered: u64,
    /// Of these: online.
    pub online: u64,
    /// Of these: with a job, in truth.
    pub busy: u64,
    /// Of these: with a live session.
    pub live: u64,
    /// Registrations ever made, replacements included.
    pub ever_registered: u64,
    /// DELETE requests that were answered 422.
    pub busy_deletes_refused: u64,
    /// DELETE requests that were answered 204.
    pub deleted: u64,
}

#[derive(Debug)]
pub(super) struct Runner {
    pub(super) id: RunnerId,
    pub(super) name: String,
    pub(super) place: PlaceId,
    pub(super) group: GroupId,
    pub(super) labels: Vec<String>,
    pub(super) all_labels: LabelSet,
    pub(super) ephemeral: bool,
    pub(super) disable_update: bool,
    pub(super) registered_at: Timestamp,
    pub(super) online: bool,
    pub(super) job: Option<JobId>,
    /// Whether the agent was told of the job.
    pub(super) delivered: bool,
    /// What the API shows.
    pub(super) shown_busy: bool,
    /// The number of the live session.
    pub(super) session: Option<u64>,
    pub(super) wake: Arc<Notify>,
}

impl Runner {
    pub(super) fn pool(&self) -> Pool {
        Pool { place: self.place, group: self.group, labels: Arc::clone(&self.all_labels) }
    }
}

/// A flag that turns false in mid-job does so this long after it was up, and for as long; a choice.
const DROP: Duration = Duration::from_secs(60);

/// What an agent learns when it asks for messages.
pub(super) enum Message {
    Job(JobId, Duration),
    Removed,
    VersionDeprecated,
}

/// A fresh session of a runner.
pub(super) struct Opened {
    pub(super) runner: RunnerId,
    pub(super) session: u64,
    pub(super) wake: Arc<Notify>,
}

impl State {
    /// Whether the runner may be given a job now.
    pub(super) fn takes_jobs(&self, runner: &Runner) -> bool {
        runner.session.is_some() && runner.online && runner.job.is_none() && !(self.deprecated && runner.disable_update)
    }

    /// Registers a runner that connects at once.
    pub(super) fn register(&mut self, request: &Registration) -> Result<Opened, RegistrationRefused> {
        let opened = self.enroll(request)?;
        let late = self.chance.within(&self.settings.behaviour.online_late);
        if late.is_zero() {
            self.listens(opened.runner, opened.session);
        } else {
            self.after(late, Due::Listens { runner: opened.runner, session: opened.session });
        }
        Ok(opened)
    }

    /// The agent of a session listens from now on.
    pub(super) fn listens(&mut self, id: RunnerId, session: u64) {
        let Some(runner) = self.runners.get_mut(&id).filter(|runner| runner.session == Some(session)) else { return };
        runner.online = true;
        let place = runner.place;
        self.runner_changed(place);
        match self.assigned_late() {
            Duration::ZERO => self.offer_runner(id),
            latency => self.after(latency, Due::RunnerReady(id)),
        }
    }

    /// How long a job or a runner waits before they are brought together.
    pub(super) fn assigned_late(&mut self) -> Duration {
        self.settings.assignment_latency.max(self.chance.within(&self.settings.behaviour.assigned_late))
    }

    /// Registers a runner that nobody runs.
    pub(super) fn register_offline(&mut self, request: &Registration) -> Result<RunnerId, RegistrationRefused> {
        let id = self.enroll(request)?.runner;
        self.disconnect(id);
        self.go_offline(id);
        Ok(id)
    }

    fn enroll(&mut self, request: &Registration) -> Result<Opened, RegistrationRefused> {
        if let Some(status) = self.registration_fault(&request.url_path) {
            return Err(RegistrationRefused::Unavailable(status));
        }
        let now = self.now();
        let place = request.url_path.parse::<Scope>().ok().and_then(|scope| self.accounts.find(&scope));
        let place = place.ok_or(RegistrationRefused::NotFound)?;
        match self.runner_tokens.get(&request.token) {
            Some(token) if token.place != place || token.for_removal => return Err(RegistrationRefused::NotFound),
            Some(token) if token.expires_at <= now => return Err(RegistrationRefused::TokenExpired),
            Some(_) => {}
            None => return Err(RegistrationRefused::NotFound),
        }
        if self.deprecated && request.disable_update {
            return Err(RegistrationRefused::VersionDeprecated);
        }
        let group = self.group_of(place, request.group.as_deref())?;
        let key = request.name.to_lowercase();
        let taken = self.accounts.get(place).and_then(|place| place.names.get(&key).copied());
        if taken.is_some() && !request.replace {
            return Err(RegistrationRefused::NameTaken(request.name.clone()));
        }
        // A replaced registration keeps its number; whoever held it is told that it is gone, and a job it had is lost.
        if let Some(taken) = taken {
            self.disconnect(taken);
            if let Some(job) = self.runners.get(&taken).and_then(|runner| runner.job) {
                self.complete_job(job, super::Conclusion::Failure, true);
            }
            self.remove_runner(taken);
        }
        let id = taken.unwrap_or_else(|| RunnerId(self.number()));
        let session = self.number();
        let wake = Arc::new(Notify::new());
        let custom: Vec<String> = request
            .labels
            .iter()
            .filter(|label| !label.is_empty() && !IMPLICIT_LABELS.iter().any(|implicit| implicit.eq_ignore_ascii_case(label)))
            .cloned()
            .collect();
        let runner = Runner {
            id,
            name: request.name.clone(),
            place,
            group,
            all_labels: label_set(IMPLICIT_LABELS.into_iter().chain(custom.iter().map(String::as_str))),
            labels: custom,
            ephemeral: request.ephemeral,
            disable_update: request.disable_update,
            registered_at: now,
            online: false,
            job: None,
            delivered: false,
            shown_busy: false,
            session: Some(session),
            wake: Arc::clone(&wake),
        };
        self.runners.insert(id, runner);
        if let Some(place) = self.accounts.get_mut(place) {
            place.runners.insert(id);
            place.names.insert(key, id);
        }
        self.totals.registered += 1;
        self.runner_changed(place);
        Ok(Opened { runner: id, session, wake })
    }

    /// Agents' registrations are not part of the API, but count among what GitHub was asked.
    pub(super) fn log_registration(&mut self, request: &Registration, refused: Option<&RegistrationRefused>) {
        let status = match refused {
            None => 200,
            Some(RegistrationRefused::NotFound | RegistrationRefused::UnknownGroup(_)) => 404,
            Some(RegistrationRefused::TokenExpired) => 401,
            Some(RegistrationRefused::NameTaken(_)) => 409,
            Some(RegistrationRefused::VersionDeprecated) => 403,
            Some(RegistrationRefused::Unavailable(status)) => *status,
        };
        let at = self.now();
        self.calls.record(Call {
            at,
            method: "POST".to_owned(),
            route: Some(RouteKind::RegisterRunner),
            template: "/actions/runner-registration",
            path: format!("/actions/runner-registration?url={}", request.url_path),
            status,
            conditional: false,
            caller: format!("runner {}", request.name),
        });
        self.signals.changed = true;
    }

    fn group_of(&self, place: PlaceId, name: Option<&str>) -> Result<GroupId, RegistrationRefused> {
        let Some(place) = self.accounts.get(place) else { return Err(RegistrationRefused::NotFound) };
        let name = name.filter(|name| !name.is_empty());
        if let (Scope::Repository { .. }, None) = (&place.scope, name) {
            return Ok(Group::OF_REPOSITORIES);
        }
        place
            .groups
            .iter()
            .find(|group| name.map_or(group.default, |name| group.name.eq_ignore_ascii_case(name)))
            .map(|group| group.id)
            .ok_or_else(|| RegistrationRefused::UnknownGroup(name.unwrap_or_default().to_owned()))
    }

    /// What the agent of a session should hear now.
    pub(super) fn message(&mut self, runner: RunnerId, session: u64) -> Option<Message> {
        let deprecated = self.deprecated;
        let Some(runner) = self.runners.get_mut(&runner).filter(|runner| runner.session == Some(session)) else {
            return self.message_of_orphan(session);
        };
        match runner.job {
            Some(_) if runner.delivered => None,
            Some(job) => {
                runner.delivered = true;
                self.jobs.all.get(&job).map(|job| Message::Job(job.id, job.spec.duration))
            }
            None if deprecated && runner.disable_update => Some(Message::VersionDeprecated),
            None => None,
        }
    }

    /// What an agent whose registration is gone learns: nothing until its poll ends, and nothing at all while it finishes its job.
    fn message_of_orphan(&mut self, session: u64) -> Option<Message> {
        let Some(orphan) = self.orphans.get(&session) else { return Some(Message::Removed) };
        if !orphan.noticed || (orphan.job.is_some() && !orphan.cancels) {
            return None;
        }
        let orphan = self.orphans.remove(&session)?;
        if let Some(job) = orphan.job
            && self.complete_job(job, super::Conclusion::Cancelled, false)
        {
            let job_began = self.jobs.all.get(&job).and_then(|job| job.started_at);
            self.killed.push(Killed { job, runner: orphan.name, removed_at: orphan.removed_at, job_began });
        }
        Some(Message::Removed)
    }

    /// Ends the job of an agent whose registration was removed; none when there is no such agent.
    pub(super) fn orphan_finishes(&mut self, session: u64, job: JobId, conclusion: super::Conclusion) -> Option<bool> {
        let orphan = self.orphans.get_mut(&session).filter(|orphan| orphan.job == Some(job))?;
        orphan.job = None;
        Some(self.complete_job(job, conclusion, false))
    }

    /// Leaves the agent of a registration alone that is about to be removed.
    fn orphan(&mut self, id: RunnerId) {
        let now = self.now();
        let Some((session, runner)) = self.runners.get(&id).and_then(|runner| Some((runner.session?, runner))) else { return };
        let mut orphan = Orphan {
            name: runner.name.clone(),
            job: runner.job,
            cancels: false,
            noticed: false,
            removed_at: now,
            wake: Arc::clone(&runner.wake),
        };
        orphan.cancels = self.chance.happens(self.settings.behaviour.cancels_when_removed);
        let noticed = self.chance.within(&self.settings.behaviour.removal_noticed);
        if noticed.is_zero() {
            orphan.notices();
        } else {
            self.after(noticed, Due::RemovalNoticed { session });
        }
        self.orphans.insert(session, orphan);
    }

    /// DELETE through the API: decided by the truth, in the same step in which assignments are, or by the flag that listings show.
    pub(super) fn delete_runner(&mut self, place: PlaceId, id: RunnerId) -> Result<(), DeletionRefused> {
        match self.runners.get(&id).filter(|runner| runner.place == place) {
            None => Err(DeletionRefused::Unknown),
            Some(runner) if if self.settings.behaviour.delete_trusts_flag { runner.shown_busy } else { runner.job.is_some() } => {
                self.totals.busy_deletes_refused += 1;
                self.signals.changed = true;
                Err(DeletionRefused::Busy)
            }
            Some(_) => {
                self.totals.deleted += 1;
                self.orphan(id);
                self.remove_runner(id);
                Ok(())
            }
        }
    }

    /// `config.sh remove`.
    pub(super) fn unregister(&mut self, id: RunnerId, session: u64, token: &str) -> Result<(), RemovalRefused> {
        let Some(runner) = self.runners.get(&id).filter(|runner| runner.session == Some(session)) else {
            return Ok(());
        };
        let now = self.now();
        match self.runner_tokens.get(token) {
            Some(token) if token.place == runner.place && token.expires_at > now => {}
            _ => return Err(RemovalRefused::Token),
        }
        if runner.job.is_some() {
            return Err(RemovalRefused::Busy);
        }
        self.remove_runner(id);
        Ok(())
    }

    /// The agent is gone without a word.
    pub(super) fn vanish(&mut self, id: RunnerId, session: u64) {
        if let Some(job) = self.orphans.remove(&session).and_then(|orphan| orphan.job) {
            self.after(self.settings.lost_after, Due::Lost(job));
        }
        let Some(runner) = self.runners.get(&id).filter(|runner| runner.session == Some(session)) else { return };
        let job = runner.job;
        self.disconnect(id);
        self.after(self.settings.offline_after, Due::Offline(id));
        if let Some(job) = job {
            self.after(self.settings.lost_after, Due::Lost(job));
        }
    }

    fn disconnect(&mut self, id: RunnerId) {
        self.not_idle(id);
        if let Some(runner) = self.runners.get_mut(&id) {
            runner.session = None;
            runner.wake.notify_one();
        }
        self.signals.changed = true;
    }

    pub(super) fn go_offline(&mut self, id: RunnerId) {
        let Some(runner) = self.runners.get_mut(&id).filter(|runner| runner.session.is_none()) else { return };
        runner.online = false;
        let place = runner.place;
        self.runner_changed(place);
    }

    /// A runner's job is over: it waits for the next, or its registration ends.
    ///
    /// The registration of a lost runner stays, offline, as GitHub's does until its own clean-up.
    pub(super) fn job_left(&mut self, id: RunnerId, job: JobId, lost: bool) {
        let Some(runner) = self.runners.get_mut(&id).filter(|runner| runner.job == Some(job)) else { return };
        runner.job = None;
        let (place, ends) = (runner.place, runner.ephemeral && !lost);
        self.busy_changed(id, job, false);
        if ends {
            self.remove_runner(id);
            return;
        }
        if let Some(runner) = self.runners.get(&id) {
            runner.wake.notify_one();
        }
        self.runner_changed(place);
        match self.assigned_late() {
            Duration::ZERO => self.offer_runner(id),
            latency => self.after(latency, Due::RunnerReady(id)),
        }
    }

    pub(super) fn remove_runner(&mut self, id: RunnerId) {
        self.not_idle(id);
        let Some(runner) = self.runners.remove(&id) else { return };
        runner.wake.notify_one();
        if let Some(place) = self.accounts.get_mut(runner.place) {
            place.runners.remove(&id);
            place.names.remove(&runner.name.to_lowercase());
        }
        self.runner_changed(runner.place);
    }

    pub(super) fn not_idle(&mut self, id: RunnerId) {
        let Some(pool) = self.runners.get(&id).map(Runner::pool) else { return };
        if let Some(runners) = self.idle.get_mut(&pool) {
            runners.remove(&id);
            if runners.is_empty() {
                self.idle.remove(&pool);
            }
        }
    }

    /// Shows a change of the busy flag, as late and as wrongly as was asked for.
    pub(super) fn busy_changed(&mut self, id: RunnerId, job: JobId, busy: bool) {
        let late = self.lies.busy_late_by.max(self.chance.within(&self.settings.behaviour.busy_late));
        match late {
            Duration::ZERO => self.show_busy(id, busy),
            late => self.after(late, Due::ShowBusy { runner: id, busy }),
        }
        if busy && self.chance.happens(self.settings.behaviour.busy_drops) {
            self.after(late + DROP, Due::ShowIdleDuring { runner: id, job });
            self.after(late + DROP + DROP, Due::ShowBusyDuring { runner: id, job });
        }
        if let Some(after) = self.lies.busy_false_after.filter(|_| busy) {
            self.after(after, Due::ShowIdleDuring { runner: id, job });
        }
    }

    pub(super) fn show_busy(&mut self, id: RunnerId, busy: bool) {
        let Some(runner) = self.runners.get_mut(&id) else { return };
        runner.shown_busy = busy;
        let place = runner.place;
        self.runner_changed(place);
    }

    fn runner_changed(&mut self, place: PlaceId) {
        self.accounts.touch(place);
        self.signals.changed = true;
    }

    pub(super) fn registered(&self, runner: &Runner) -> Option<Registered> {
        Some(Registered {
            id: runner.id,
            name: runner.name.clone(),
            scope: self.accounts.get(runner.place)?.scope.clone(),
            group: runner.group,
            labels: runner.labels.clone(),
            ephemeral: runner.ephemeral,
            online: runner.online,
            job: runner.job,
            live: runner.session.is_some(),
            registered_at: runner.registered_at,
        })
    }

    pub(super) fn runner_counts(&self) -> RunnerCounts {
        let count = |of: fn(&Runner) -> bool| self.runners.values().filter(|runner| of(runner)).count() as u64;
        RunnerCounts {
            registered: self.runners.len() as u64,
            online: count(|runner| runner.online),
            busy: count(|runner| runner.job.is_some()),
            live: count(|runner| runner.session.is_some()),
            ever_registered: self.totals.registered,
            busy_deletes_refused: self.totals.busy_deletes_refused,
            deleted: self.totals.deleted,
        }
    }
}
