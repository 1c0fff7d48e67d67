//! Registrations: who is registered where, who is idle, who may be deleted.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::sync::Notify;

use super::place::{GroupId, JobId, PlaceId, RunnerId, Scope};

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
    /// Name that the runner registered with.
    pub name: String,
    /// Where it is registered.
    pub scope: Scope,
    /// Number of its runner group.
    pub group: GroupId,
    /// Labels it asked for, without the implicit ones.
    pub labels: Vec<String>,
    /// Whether its registration ends with its first job.
    pub ephemeral: bool,
    /// Whether GitHub is in contact with it.
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
    /// Number of the job that was cancelled.
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
    pub(super) name: String,
    /// The job that it works on.
    pub(super) job: Option<JobId>,
    /// It cancels its job when it notices.
    pub(super) cancels: bool,
    pub(super) noticed: bool,
    pub(super) removed_at: Timestamp,
    pub(super) wake: Arc<Notify>,
}

impl Orphan {
    pub(super) fn notices(&mut self) {
        self.noticed = true;
        self.wake.notify_one();
    }
}

/// How many registrations there are in each state, and how many were made and deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunnerCounts {
    /// Registered now.
    pub registered: u64,
    /// Of these: online.
    pub online: u64,
    /// Of these: with a job, in truth.
    pub busy: u64,
    /// Of these: which listings show as busy.
    pub shown_busy: u64,
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
    /// Whether its agent ever listened.
    pub(super) contacted: bool,
    /// Whether its agent is about to make way for a newer one, or has.
    pub(super) updates: bool,
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
