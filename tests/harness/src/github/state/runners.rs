//! Runners are registered, told of jobs, and removed.

use std::{sync::Arc, time::Duration};

use tokio::sync::Notify;

use super::{Due, State};
use crate::github::{
    call::Call,
    fault::Effect,
    job::Conclusion,
    place::{Group, GroupId, JobId, PlaceId, RunnerId, Scope},
    route::{Route, RouteKind},
    runner::{
        DeletionRefused, IMPLICIT_LABELS, Killed, Message, Opened, Orphan, Registered, Registration, RegistrationRefused,
        RemovalRefused, Runner, RunnerCounts, label_set,
    },
};

/// A flag that turns false in mid-job does so this long after it was up, and for as long; a choice.
const DROP: Duration = Duration::from_secs(60);

/// An agent that updates itself stays connected for so long first; a choice.
const DOWNLOAD: Duration = Duration::from_secs(1);

impl State {
    /// Whether the runner may be given a job now.
    pub(in crate::github) fn takes_jobs(&self, runner: &Runner) -> bool {
        runner.session.is_some()
            && runner.online
            && !runner.updates
            && runner.job.is_none()
            && !(self.deprecated && runner.disable_update)
    }

    /// Registers a runner that connects at once.
    pub(in crate::github) fn register(&mut self, request: &Registration) -> Result<Opened, RegistrationRefused> {
        let opened = self.enroll(request)?;
        let late = self.chance.within(&self.settings.behaviour.online_late);
        if late.is_zero() {
            self.listens(opened.runner, opened.session);
        } else {
            self.after(late, Due::Listens { runner: opened.runner, session: opened.session });
        }
        Ok(opened)
    }

    /// The agent of a runner that was registered ahead connects.
    pub(in crate::github) fn connect(&mut self, config: &str) -> Result<Opened, RegistrationRefused> {
        // Good for one start.
        let id = self.ahead.remove(config).ok_or(RegistrationRefused::NotFound)?;
        let session = self.number();
        let runner = self.runners.get_mut(&id).ok_or(RegistrationRefused::NotFound)?;
        runner.session = Some(session);
        let opened = Opened { runner: id, session, wake: Arc::clone(&runner.wake) };
        let late = self.chance.within(&self.settings.behaviour.online_late);
        if late.is_zero() {
            self.listens(id, session);
        } else {
            self.after(late, Due::Listens { runner: id, session });
        }
        Ok(opened)
    }

    /// Registers a runner ahead of its agent, in a group by its number. Gives what the agent is started with.
    pub(in crate::github) fn enroll_ahead(
        &mut self,
        place: PlaceId,
        name: &str,
        group: u64,
        labels: &[String],
    ) -> Result<(RunnerId, String), RegistrationRefused> {
        let group = GroupId(group);
        let known = self.accounts.get(place).ok_or(RegistrationRefused::NotFound)?;
        let is_default = group == Group::OF_REPOSITORIES;
        let group = match (&known.scope, known.group(group)) {
            (Scope::Repository { .. }, _) if is_default => group,
            (_, Some(group)) => group.id,
            // The simulation numbers the groups of all accounts; at GitHub the default one of each is 1.
            (_, None) if is_default => self.group_of(place, None)?,
            (_, None) => return Err(RegistrationRefused::NotFound),
        };
        let registration = Registration {
            name: name.to_owned(),
            labels: labels.to_vec(),
            ephemeral: true,
            disable_update: true,
            ..Registration::default()
        };
        let id = self.enter(place, group, &registration)?.runner;
        self.disconnect(id);
        self.go_offline(id);
        let config = format!("jit-{}-{}", id.0, self.number());
        self.ahead.insert(config.clone(), id);
        Ok((id, config))
    }

    /// The agent of a session listens from now on.
    pub(in crate::github) fn listens(&mut self, id: RunnerId, session: u64) {
        let updates = self.chance.happens(self.settings.behaviour.updates_itself);
        let Some(runner) = self.runners.get_mut(&id).filter(|runner| runner.session == Some(session)) else { return };
        let is_first = !std::mem::replace(&mut runner.contacted, true);
        runner.online = true;
        runner.updates = is_first && updates && !runner.disable_update;
        let (place, updates) = (runner.place, runner.updates);
        self.runner_changed(place);
        if updates {
            self.after(DOWNLOAD, Due::Updates { runner: id, session });
            return;
        }
        match self.assigned_late() {
            Duration::ZERO => self.offer_runner(id),
            latency => self.after(latency, Due::RunnerReady(id)),
        }
    }

    /// The agent of a session, which may not have a job, ends for its new version to start: in the same process tree, with the same registration.
    pub(in crate::github) fn updates(&mut self, id: RunnerId, session: u64) {
        let Some(runner) = self.runners.get_mut(&id).filter(|runner| runner.session == Some(session)) else { return };
        runner.online = false;
        let place = runner.place;
        self.runner_changed(place);
        let takes = self.chance.within(&self.settings.behaviour.update_takes);
        self.after(takes, Due::Listens { runner: id, session });
    }

    /// How long a job or a runner waits before they are brought together.
    pub(in crate::github) fn assigned_late(&mut self) -> Duration {
        self.settings.assignment_latency.max(self.chance.within(&self.settings.behaviour.assigned_late))
    }

    /// Registers a runner that nobody runs.
    pub(in crate::github) fn register_offline(&mut self, request: &Registration) -> Result<RunnerId, RegistrationRefused> {
        let id = self.enroll(request)?.runner;
        self.disconnect(id);
        self.go_offline(id);
        Ok(id)
    }

    /// The status with which an agent's registration fails, if a fault says so.
    fn registration_fault(&mut self, url_path: &str) -> Option<u16> {
        let route = Route::new(RouteKind::RegisterRunner, url_path.parse().ok(), 0);
        match self.faults.meet(Some(&route), route.template())?.effect {
            Effect::Status(status) => Some(status),
            Effect::SecondaryLimit { .. } => Some(403),
            Effect::Hang | Effect::Reset | Effect::TruncatedJson => Some(502),
            Effect::Delay(_) | Effect::SlowBody { .. } => None,
        }
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
        self.enter(place, group, request)
    }

    fn enter(&mut self, place: PlaceId, group: GroupId, request: &Registration) -> Result<Opened, RegistrationRefused> {
        let now = self.now();
        let key = request.name.to_lowercase();
        let taken = self.accounts.get(place).and_then(|place| place.names.get(&key).copied());
        if taken.is_some() && !request.replace {
            return Err(RegistrationRefused::NameTaken(request.name.clone()));
        }
        // A replaced registration keeps its number; whoever held it is told that it is gone, and a job it had is lost.
        if let Some(taken) = taken {
            self.disconnect(taken);
            if let Some(job) = self.runners.get(&taken).and_then(|runner| runner.job) {
                self.complete_job(job, Conclusion::Failure, true);
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
            contacted: false,
            updates: false,
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
    pub(in crate::github) fn log_registration(&mut self, request: &Registration, refused: Option<&RegistrationRefused>) {
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

    /// What the agent of a session learns now.
    pub(in crate::github) fn message(&mut self, runner: RunnerId, session: u64) -> Option<Message> {
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
            && self.complete_job(job, Conclusion::Cancelled, false)
        {
            let job_began = self.jobs.all.get(&job).and_then(|job| job.started_at);
            self.killed.push(Killed { job, runner: orphan.name, removed_at: orphan.removed_at, job_began });
        }
        Some(Message::Removed)
    }

    /// Ends the job of an agent whose registration was removed; none when there is no such agent.
    pub(in crate::github) fn orphan_finishes(&mut self, session: u64, job: JobId, conclusion: Conclusion) -> Option<bool> {
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
    pub(in crate::github) fn delete_runner(&mut self, place: PlaceId, id: RunnerId) -> Result<(), DeletionRefused> {
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
    pub(in crate::github) fn unregister(&mut self, id: RunnerId, session: u64, token: &str) -> Result<(), RemovalRefused> {
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
    pub(in crate::github) fn vanish(&mut self, id: RunnerId, session: u64) {
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

    pub(in crate::github) fn go_offline(&mut self, id: RunnerId) {
        let Some(runner) = self.runners.get_mut(&id).filter(|runner| runner.session.is_none()) else { return };
        runner.online = false;
        let place = runner.place;
        self.runner_changed(place);
    }

    /// A runner's job is over: it waits for the next, or its registration ends.
    ///
    /// The registration of a lost runner stays, offline, as GitHub's does until its own clean-up.
    pub(in crate::github) fn job_left(&mut self, id: RunnerId, job: JobId, lost: bool) {
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

    pub(in crate::github) fn remove_runner(&mut self, id: RunnerId) {
        self.not_idle(id);
        let Some(runner) = self.runners.remove(&id) else { return };
        runner.wake.notify_one();
        if let Some(place) = self.accounts.get_mut(runner.place) {
            place.runners.remove(&id);
            place.names.remove(&runner.name.to_lowercase());
        }
        self.runner_changed(runner.place);
    }

    pub(in crate::github) fn not_idle(&mut self, id: RunnerId) {
        let Some(pool) = self.runners.get(&id).map(Runner::pool) else { return };
        if let Some(runners) = self.idle.get_mut(&pool) {
            runners.remove(&id);
            if runners.is_empty() {
                self.idle.remove(&pool);
            }
        }
    }

    /// Shows a change of the busy flag, as late and as wrongly as was asked for.
    pub(in crate::github) fn busy_changed(&mut self, id: RunnerId, job: JobId, busy: bool) {
        let late = self.lies.busy_late_by.max(self.chance.within(&self.settings.behaviour.busy_late));
        match late {
            Duration::ZERO => self.show_busy(id, busy),
            // A flag that goes up later than it goes down would stay up.
            late if busy => self.after(late, Due::ShowBusyDuring { runner: id, job }),
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

    pub(in crate::github) fn show_busy(&mut self, id: RunnerId, busy: bool) {
        let Some(runner) = self.runners.get_mut(&id) else { return };
        runner.shown_busy = busy;
        let place = runner.place;
        self.runner_changed(place);
    }

    fn runner_changed(&mut self, place: PlaceId) {
        self.accounts.touch(place);
        self.signals.changed = true;
    }

    pub(in crate::github) fn registered(&self, runner: &Runner) -> Option<Registered> {
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

    pub(in crate::github) fn runner_counts(&self) -> RunnerCounts {
        let count = |of: fn(&Runner) -> bool| self.runners.values().filter(|runner| of(runner)).count() as u64;
        RunnerCounts {
            registered: self.runners.len() as u64,
            online: count(|runner| runner.online),
            busy: count(|runner| runner.job.is_some()),
            shown_busy: count(|runner| runner.shown_busy),
            live: count(|runner| runner.session.is_some()),
            ever_registered: self.totals.registered,
            busy_deletes_refused: self.totals.busy_deletes_refused,
            deleted: self.totals.deleted,
        }
    }
}
