//! The runner image's contract: what its entry point and agent do with their environment.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::environment::Environment;
use crate::github::{Conclusion, Event, JobId, Registration, RegistrationRefused, Session, SimGitHub};

/// How fast an agent does what takes a real one seconds.
#[derive(Clone, Debug)]
pub struct Pace {
    /// How long one second of a *configured* time lasts: grace periods, graceful stop timeouts, start-up delays.
    pub second: Duration,
    /// How often registration is tried before the entry point gives up (10 in the image).
    pub registration_tries: u32,
    /// The pause between two tries (1 s in the image).
    pub registration_pause: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { second: Duration::from_secs(1), registration_tries: 10, registration_pause: Duration::from_millis(50) }
    }
}

/// What an agent tells the pod it runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Registering,
    Registered,
    Job(JobId),
    JobDone,
}

/// How an agent's process ended on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exit {
    /// The container's exit code.
    pub(super) code: i32,
    /// The job that the graceful stop cancelled.
    pub(super) cut: Option<JobId>,
}

impl Exit {
    /// The entry point always ends with success, whatever its scripts did.
    const MASKED: Self = Self { code: 0, cut: None };
}

/// What the environment configures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Configuration {
    server: Option<String>,
    url_path: String,
    token: String,
    name: String,
    labels: Vec<String>,
    group: Option<String>,
    ephemeral: bool,
    once: bool,
    disable_update: bool,
    startup_delay: u32,
    graceful_stop: u32,
    docker_wait: Option<u32>,
    registration_only: bool,
}

impl Configuration {
    /// `None` when a required variable is missing, which ends the entry point.
    fn read(environment: &Environment) -> Option<Self> {
        let get = |name: &str| environment.get(name).map(String::as_str).filter(|value| !value.is_empty());
        let is_true = |name: &str| get(name) == Some("true");
        let seconds = |name: &str, default: u32| get(name).and_then(|text| text.parse().ok()).unwrap_or(default);
        let (organization, repository, enterprise) = (get("RUNNER_ORG"), get("RUNNER_REPO"), get("RUNNER_ENTERPRISE"));
        let url_path = match (organization, repository, enterprise) {
            (Some(organization), Some(repository), Some(_)) => format!("{organization}/{repository}"),
            (Some(organization), _, _) => organization.to_owned(),
            (None, Some(repository), _) => repository.to_owned(),
            (None, None, Some(enterprise)) => format!("enterprises/{enterprise}"),
            (None, None, None) => return None,
        };
        let once = is_true("RUNNER_FEATURE_FLAG_ONCE");
        let waits_for_docker = is_true("DOCKER_ENABLED") && !is_true("DISABLE_WAIT_FOR_DOCKER");
        Some(Self {
            server: get("GITHUB_URL").map(str::to_owned),
            url_path,
            token: get("RUNNER_TOKEN")?.to_owned(),
            name: get("RUNNER_NAME")?.to_owned(),
            labels: get("RUNNER_LABELS").map(|labels| labels.split(',').map(str::to_owned).collect()).unwrap_or_default(),
            group: get("RUNNER_GROUP").filter(|_| repository.is_none()).map(str::to_owned),
            ephemeral: is_true("RUNNER_EPHEMERAL") && !once,
            once: once && is_true("RUNNER_EPHEMERAL"),
            disable_update: is_true("DISABLE_RUNNER_UPDATE"),
            startup_delay: seconds("STARTUP_DELAY_IN_SECONDS", 0),
            graceful_stop: seconds("RUNNER_GRACEFUL_STOP_TIMEOUT", 15),
            docker_wait: waits_for_docker.then(|| seconds("WAIT_FOR_DOCKER_SECONDS", 120)),
            registration_only: is_true("RUNNER_REGISTRATION_ONLY"),
        })
    }

    fn registration(&self) -> Registration {
        Registration {
            url_path: self.url_path.clone(),
            token: self.token.clone(),
            name: self.name.clone(),
            labels: self.labels.clone(),
            group: self.group.clone(),
            ephemeral: self.ephemeral,
            replace: true,
            disable_update: self.disable_update,
        }
    }
}

/// The process in the container `runner`. Dropping it is a SIGKILL.
pub(super) struct Agent<'a, N> {
    github: &'a SimGitHub,
    pace: &'a Pace,
    environment: &'a Environment,
    has_docker: bool,
    /// Set while a job's hooks are refused what they need.
    hooks_failed: &'a AtomicBool,
    tell: N,
    session: Option<Session>,
    job: Option<(JobId, Instant)>,
}

impl<'a, N: Fn(Progress)> Agent<'a, N> {
    pub(super) fn new(
        github: &'a SimGitHub,
        pace: &'a Pace,
        environment: &'a Environment,
        has_docker: bool,
        hooks_failed: &'a AtomicBool,
        tell: N,
    ) -> Self {
        Self { github, pace, environment, has_docker, hooks_failed, tell, session: None, job: None }
    }

    /// The job it works on.
    pub(super) fn job(&self) -> Option<JobId> {
        self.job.map(|(id, _)| id)
    }

    /// Runs until it ends on its own; `terminated` is a SIGTERM. Dropping the future leaves the job it was cut off from.
    ///
    /// The graceful stop waits until the agent is registered, however long that takes.
    pub(super) async fn run(&mut self, terminated: &CancellationToken) -> Exit {
        if let Some(config) = self.environment.get("ACTIONS_RUNNER_INPUT_JITCONFIG") {
            return self.run_just_in_time(config, terminated).await;
        }
        let Some(configuration) = Configuration::read(self.environment) else { return Exit::MASKED };
        sleep(self.pace.second * configuration.startup_delay).await;
        if let Some(seconds) = configuration.docker_wait
            && !self.has_docker
        {
            sleep(self.pace.second * seconds).await;
            return Exit::MASKED;
        }
        (self.tell)(Progress::Registering);
        if configuration.registration_only {
            self.retried(&configuration, |github, registration| github.register_only(registration)).await;
            return Exit::MASKED;
        }
        let Some(session) = self.register(&configuration).await else { return Exit::MASKED };
        (self.tell)(Progress::Registered);
        self.serve(&configuration, session, terminated).await
    }

    /// As the agent itself does, without an entry point of an image before it: its registration is there, and stays when it is told to end.
    async fn run_just_in_time(&mut self, config: &str, terminated: &CancellationToken) -> Exit {
        (self.tell)(Progress::Registering);
        let Ok(session) = self.github.connect(config) else { return Exit::MASKED };
        (self.tell)(Progress::Registered);
        let configuration = Configuration { ephemeral: true, disable_update: true, ..Configuration::default() };
        self.serve(&configuration, session, terminated).await
    }

    async fn register(&self, configuration: &Configuration) -> Option<Session> {
        self.retried(configuration, |github, registration| github.register(registration)).await
    }

    async fn retried<T>(
        &self,
        configuration: &Configuration,
        register: impl Fn(&SimGitHub, Registration) -> Result<T, RegistrationRefused>,
    ) -> Option<T> {
        for attempt in 0..self.pace.registration_tries {
            if attempt > 0 {
                sleep(self.pace.registration_pause).await;
            }
            // What is configured for another server finds nobody there.
            let reachable = configuration.server.as_deref().is_none_or(|server| is_at(self.github, server));
            if reachable && let Ok(registered) = register(self.github, configuration.registration()) {
                return Some(registered);
            }
        }
        None
    }

    async fn serve(&mut self, configuration: &Configuration, session: Session, terminated: &CancellationToken) -> Exit {
        // It stays in `self` so that a SIGKILL finds the job and the connection together.
        let session = self.session.insert(session);
        let mut patience: Option<Instant> = None;
        loop {
            let job_end = self.job.map(|(_, end)| end);
            tokio::select! {
                biased;
                () = terminated.cancelled(), if patience.is_none() => {
                    let ends = match configuration.token.as_str() {
                        "" => self.job.is_none(),
                        token => session.remove(token).is_ok(),
                    };
                    if ends {
                        return Exit::MASKED;
                    }
                    patience = Some(Instant::now() + self.pace.second * configuration.graceful_stop);
                }
                () = at(job_end) => {
                    if let Some((job, _)) = self.job.take() {
                        let failed = self.hooks_failed.swap(false, Ordering::Relaxed);
                        session.finish(job, if failed { Conclusion::Failure } else { Conclusion::Success });
                        (self.tell)(Progress::JobDone);
                    }
                    if configuration.ephemeral || configuration.once {
                        return Exit::MASKED;
                    }
                }
                () = at(patience) => {
                    let job = self.job.take().map(|(job, _)| job);
                    return Exit { cut: job.filter(|&job| session.finish(job, Conclusion::Cancelled)), ..Exit::MASKED };
                }
                event = session.next() => match event {
                    Event::Job { id, duration } => {
                        self.job = Some((id, Instant::now() + duration));
                        (self.tell)(Progress::Job(id));
                    }
                    // With its registration gone it cancels the job that it still has, which GitHub has noted.
                    Event::Removed | Event::VersionDeprecated => {
                        self.job = None;
                        return Exit::MASKED;
                    }
                },
            }
        }
    }
}

/// Whether a URL, as the runner is configured with, leads to this GitHub.
fn is_at(github: &SimGitHub, server: &str) -> bool {
    format!("{}/", server.trim_end_matches('/')).starts_with(&github.api_url())
}

/// Sleeps until `instant`, for ever without one.
pub(super) async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Environment {
        pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn the_scope_is_chosen_as_the_image_does() {
        for (pairs, expected) in [
            (vec![("RUNNER_ORG", "acme")], "acme"),
            (vec![("RUNNER_REPO", "acme/app")], "acme/app"),
            (vec![("RUNNER_ENTERPRISE", "corp")], "enterprises/corp"),
            (vec![("RUNNER_ORG", "acme"), ("RUNNER_REPO", "app"), ("RUNNER_ENTERPRISE", "corp")], "acme/app"),
            (vec![("RUNNER_ORG", "acme"), ("RUNNER_REPO", "x/y")], "acme"),
            (vec![("RUNNER_ORG", ""), ("RUNNER_REPO", "x/y")], "x/y"),
        ] {
            let all = [pairs.as_slice(), &[("RUNNER_NAME", "r"), ("RUNNER_TOKEN", "t")]].concat();
            assert_eq!(Configuration::read(&environment(&all)).unwrap().url_path, expected, "{pairs:?}");
        }
    }

    #[test]
    fn required_variables_are_required() {
        let all = [("RUNNER_NAME", "r"), ("RUNNER_TOKEN", "t"), ("RUNNER_ORG", "acme")];
        assert!(Configuration::read(&environment(&all)).is_some());
        for missing in 0..all.len() {
            let mut some = all.to_vec();
            some.remove(missing);
            assert_eq!(Configuration::read(&environment(&some)), None, "{some:?}");
        }
    }

    #[test]
    fn flags_follow_the_variables() {
        let base = [("RUNNER_NAME", "r"), ("RUNNER_TOKEN", "t")];
        let read = |more: &[(&str, &str)]| Configuration::read(&environment(&[&base[..], more].concat())).unwrap();
        let ephemeral = read(&[("RUNNER_ORG", "acme"), ("RUNNER_EPHEMERAL", "true"), ("RUNNER_GROUP", "g")]);
        assert!(ephemeral.ephemeral && !ephemeral.once);
        assert_eq!(ephemeral.group.as_deref(), Some("g"));
        assert_eq!((ephemeral.graceful_stop, ephemeral.docker_wait), (15, None));
        let once = read(&[
            ("RUNNER_REPO", "a/b"),
            ("RUNNER_EPHEMERAL", "true"),
            ("RUNNER_FEATURE_FLAG_ONCE", "true"),
            ("RUNNER_GROUP", "g"),
        ]);
        assert!(once.once && !once.ephemeral);
        assert_eq!(once.group, None, "repositories have no groups");
        let docker = read(&[("RUNNER_ORG", "a"), ("DOCKER_ENABLED", "true"), ("RUNNER_LABELS", "x,y")]);
        assert_eq!((docker.docker_wait, docker.labels), (Some(120), vec!["x".to_owned(), "y".to_owned()]));
        let patient = read(&[("RUNNER_ORG", "a"), ("DOCKER_ENABLED", "true"), ("DISABLE_WAIT_FOR_DOCKER", "true")]);
        assert_eq!(patient.docker_wait, None);
    }
}
