//! The agent's end of a registration.

use std::{fmt, sync::Arc, time::Duration};

use tokio::sync::Notify;

use super::{
    Conclusion, RemovalRefused,
    place::{JobId, RunnerId},
    runner::{Message, Opened},
    state::Shared,
};

/// What an agent learns from GitHub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A job to run; the runner is busy from now on.
    Job {
        /// Its number, for [`Session::finish`].
        id: JobId,
        /// How long it takes.
        duration: Duration,
    },
    /// The registration is gone: deleted, replaced, or ended with its only job. The agent exits.
    Removed,
    /// The runner's version is too old and it may not update itself. The agent exits.
    VersionDeprecated,
}

/// A registered, online runner's connection to GitHub.
///
/// Dropping it is the agent's sudden end: the runner goes offline after [`Settings::offline_after`](super::Settings) and its job is
/// lost after [`Settings::lost_after`](super::Settings).
pub struct Session {
    shared: Arc<Shared>,
    runner: RunnerId,
    session: u64,
    wake: Arc<Notify>,
}

impl Session {
    pub(super) fn new(shared: Arc<Shared>, opened: Opened) -> Self {
        Self { shared, runner: opened.runner, session: opened.session, wake: opened.wake }
    }

    /// The registration's number.
    #[must_use]
    pub fn runner_id(&self) -> RunnerId {
        self.runner
    }

    /// Waits for the next event. While a job runs, that can only be the registration's end. Safe to cancel.
    pub async fn next(&mut self) -> Event {
        loop {
            match self.shared.with(|state| state.message(self.runner, self.session)) {
                Some(Message::Job(id, duration)) => return Event::Job { id, duration },
                Some(Message::Removed) => return Event::Removed,
                Some(Message::VersionDeprecated) => return Event::VersionDeprecated,
                None => self.wake.notified().await,
            }
        }
    }

    /// Reports the job's end; the registration of an ephemeral runner ends with it.
    ///
    /// False when the job is not this runner's (any more): it was cancelled, or the registration is gone.
    pub fn finish(&mut self, job: JobId, conclusion: Conclusion) -> bool {
        self.shared.with(|state| {
            if let Some(ended) = state.orphan_finishes(self.session, job, conclusion) {
                return ended;
            }
            let has_it = state
                .runners
                .get(&self.runner)
                .is_some_and(|runner| runner.session == Some(self.session) && runner.job == Some(job));
            has_it && state.complete_job(job, conclusion, false)
        })
    }

    /// `config.sh remove`: ends the registration, which is a success too when it is gone already.
    ///
    /// # Errors
    ///
    /// When the runner has a job, or the token is unknown, of another scope or expired.
    pub fn remove(&mut self, token: &str) -> Result<(), RemovalRefused> {
        self.shared.with(|state| state.unregister(self.runner, self.session, token))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shared.with(|state| state.vanish(self.runner, self.session));
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("runner", &self.runner).finish_non_exhaustive()
    }
}
