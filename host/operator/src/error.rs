//! Why a reconcile did not come to its end.

use std::time::Duration;

use pacer_cluster::events::Reason;
use pacer_core::backoff;
use pacer_core::scope::ScopeError;
use pacer_core::tenancy::Refusal;

/// What went wrong. Texts name the object that the API server or GitHub spoke of; the log line adds the object being reconciled.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused or did not answer.
    #[error("Kubernetes API: {0}")]
    Kube(#[from] Box<kube::Error>),
    /// GitHub refused or did not answer.
    #[error("{0}")]
    GitHub(#[from] Box<pacer_github::Error>),
    /// The Runner says nowhere to register.
    #[error("spec: {0}")]
    Scope(#[from] ScopeError),
    /// The credentials that the object names can't be used.
    #[error("{0}")]
    Credentials(String),
    /// The tenancy does not allow it.
    #[error("{0}")]
    NotAllowed(#[from] Box<Refusal>),
    /// An object lacks what the API server always sets.
    #[error("{0} has no {1}, which the API server always sets")]
    Incomplete(&'static str, &'static str),
    /// As [`Self::Incomplete`].
    #[error(transparent)]
    Metadata(#[from] pacer_cluster::object::MissingMetadata),
    /// The right to act has ended.
    #[error(transparent)]
    NotLeader(#[from] pacer_cluster::fence::NotLeader),
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        Self::Kube(Box::new(error))
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::NotAllowed(Box::new(refusal))
    }
}

impl From<pacer_github::Error> for Error {
    fn from(error: pacer_github::Error) -> Self {
        Self::GitHub(Box::new(error))
    }
}

impl Error {
    /// How long to wait for a call's turn at GitHub, where that is all that is wrong: no failure, and no news to anybody.
    #[must_use]
    pub fn deferral(&self) -> Option<Duration> {
        match self {
            Self::GitHub(error) => error.deferral(),
            _ => None,
        }
    }

    /// What the API server said, where it refuses the object itself: 403 of a quota, an admission policy or a role, or 422.
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        let Self::Kube(error) = self else { return None };
        let answer = status(error).filter(|answer| answer.is_forbidden() || answer.is_invalid())?;
        Some(&answer.message)
    }

    /// The reason of a condition that says that an object's settings can't be used.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotAllowed(refusal) => refusal.reason(),
            _ => "SettingsRefused",
        }
    }

    /// The reason of an Event about that.
    #[must_use]
    pub fn event(&self) -> Reason {
        match self {
            Self::NotAllowed(_) => Reason::NotAllowed,
            _ => Reason::GitHubUnavailable,
        }
    }

    /// How long to wait after so many failures in a row: doubling from 100 ms to a minute, and never before GitHub's limits allow.
    #[must_use]
    pub fn retry_after(&self, failures: u32) -> Duration {
        let backoff = backoff::doubled(Duration::from_millis(100), Duration::from_secs(60), failures);
        match self {
            Self::GitHub(error) => error.retry_after().map_or(backoff, |told| told.max(backoff)),
            _ => backoff,
        }
    }
}

pub use pacer_cluster::answer::{ignore_not_found as gone_is_fine, precondition_held as made_as_seen, status};
