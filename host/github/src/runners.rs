//! Runners as GitHub sees them, and what is kept of their last listing.

mod requests;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use tokio::time::Instant;

use crate::memory::Room;
use crate::secret::Secret;
use crate::stack::cache::Version;

/// One runner in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteRunner {
    /// GitHub's id, never used again.
    pub id: u64,
    /// Name that the runner registered with.
    pub name: Arc<str>,
    /// Whether it is connected.
    pub online: bool,
    /// Whether it runs a job, as far as GitHub knows; lags behind by some seconds.
    pub busy: bool,
    /// Names of all labels, GitHub's own (`self-hosted`, `Linux`, `X64`) included.
    pub labels: Arc<[String]>,
    /// Operating system as registered: `linux`, `Linux`, `unknown`.
    pub os: Arc<str>,
}

/// A runner that is to be registered ahead of its agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JitRequest<'a> {
    /// Its name, unique in its scope.
    pub name: &'a str,
    /// GitHub's id of its group; [`JitRequest::DEFAULT_GROUP`] for the default one, and for runners of repositories.
    pub runner_group_id: u64,
    /// All labels, from 1 to 100: GitHub adds none of its own.
    pub labels: Vec<String>,
    /// Working directory of jobs, absolute or relative to the agent's own.
    pub work_folder: &'a str,
}

impl JitRequest<'_> {
    /// GitHub's id of the default group.
    pub const DEFAULT_GROUP: u64 = 1;
}

/// A runner that is registered and has no agent yet.
#[derive(Clone, Debug)]
pub struct JustInTime {
    /// GitHub's id of it.
    pub id: u64,
    /// What its agent is started with. Good for this runner alone, once.
    pub config: Secret,
}

/// What GitHub says to a [`JitRequest`].
#[derive(Clone, Debug)]
pub enum JitAnswer {
    /// GitHub has registered the runner.
    Registered(JustInTime),
    /// A runner with that name is registered already; perhaps by a request whose answer was lost.
    NameTaken,
}

/// All runners of a scope at one time.
#[derive(Clone, Debug)]
pub struct Listing {
    /// When the first request of this listing was about to be sent: anything later is not reflected.
    pub fetched_at: Instant,
    /// The same by the wall clock.
    pub started: Timestamp,
    /// How long it took, waits for a turn included.
    pub took: Duration,
    /// The runners in GitHub's order, each once.
    pub runners: Arc<[RemoteRunner]>,
    /// Whether the runners differ from the listing before, which this client's last one of the scope is. True for the first.
    pub changed: bool,
    /// Whether the pages fit together. If not, runners came or went while pages were read: what is listed is true, but a
    /// runner that is missing may exist.
    pub complete: bool,
    /// Pages that were asked for.
    pub pages: u32,
    /// Pages that changed, and so were charged to the primary limit.
    pub paid: u32,
}

/// A token that lets runners register for a scope, valid for an hour.
#[derive(Clone, Debug)]
pub struct RegistrationToken {
    /// What an agent registers with.
    pub token: Secret,
    /// When GitHub stops accepting it.
    pub expires_at: Timestamp,
}

/// What became of an attempt to remove a runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removal {
    /// GitHub has removed the registration by this request.
    Removed,
    /// It was not registered any more; proved by a second look, since GitHub says 404 as well to those who may not see the scope.
    Absent,
    /// It runs a job: GitHub refused, and it stays registered.
    Busy {
        /// Message of GitHub's refusal.
        message: String,
    },
}

/// The last listing of a scope.
#[derive(Debug, Default)]
pub(crate) struct LastListing {
    pages: Vec<Page>,
    runners: Option<Arc<[RemoteRunner]>>,
}

#[derive(Clone, Debug)]
struct Page {
    version: Option<Version>,
    total: u64,
    runners: Arc<[RemoteRunner]>,
    paid: bool,
    /// Size of the answer.
    bytes: usize,
    /// Memory that `runners` is counted with; none where nobody counts.
    _room: Room,
}
