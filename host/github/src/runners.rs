//! Runners as GitHub sees them, and what is kept of their last listing.

mod requests;

use std::sync::Arc;

use jiff::Timestamp;
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

/// All runners of a scope at one time.
#[derive(Clone, Debug)]
pub struct Listing {
    /// When the first request of this listing was about to be sent: anything later is not reflected.
    pub fetched_at: Instant,
    /// The same by the wall clock.
    pub started: Timestamp,
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
    /// The token.
    pub token: Secret,
    /// When GitHub stops accepting it.
    pub expires_at: Timestamp,
}

/// What became of an attempt to remove a runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removal {
    /// Removed now.
    Removed,
    /// It was not registered any more; proved by a second look, since GitHub says 404 as well to those who may not see the scope.
    Absent,
    /// It runs a job: GitHub refused, and it stays registered.
    Busy {
        /// What GitHub said.
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
    /// Of the runners.
    _room: Room,
}
