//! Why a reconcile did not come to its end.

use std::time::Duration;

use kube::core::Status;
use pacer_core::scope::ScopeError;

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
    /// An object lacks what the API server always sets.
    #[error("{0} has no {1}, which the API server always sets")]
    Incomplete(&'static str, &'static str),
    /// Demand could not be written down.
    #[error("{0}")]
    Ledger(String),
    /// The right to act has ended.
    #[error(transparent)]
    NotLeader(#[from] crate::fence::NotLeader),
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        Self::Kube(Box::new(error))
    }
}

impl From<pacer_github::Error> for Error {
    fn from(error: pacer_github::Error) -> Self {
        Self::GitHub(Box::new(error))
    }
}

impl Error {
    /// How long to wait after so many failures in a row: doubling from 100 ms to a minute, and never before GitHub's limits allow.
    #[must_use]
    pub fn retry_after(&self, failures: u32) -> Duration {
        let backoff =
            Duration::from_millis(100).saturating_mul(1 << failures.saturating_sub(1).min(10)).min(Duration::from_secs(60));
        match self {
            Self::GitHub(error) => error.retry_after().map_or(backoff, |told| told.max(backoff)),
            _ => backoff,
        }
    }
}

/// The API server's own answer, when it gave one.
#[must_use]
pub fn status(error: &kube::Error) -> Option<&Status> {
    match error {
        kube::Error::Api(status) => Some(status),
        _ => None,
    }
}

/// Whether a change that names a version or a UID was made; false when the object is gone or another one by now, which the watch will show.
///
/// # Errors
///
/// When the API server refuses for any other reason, or does not answer.
pub fn made_as_seen<T>(result: Result<T, kube::Error>) -> Result<bool, kube::Error> {
    match result {
        Ok(_) => Ok(true),
        Err(error) if status(&error).is_some_and(|answer| answer.is_not_found() || answer.is_conflict()) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes "it is gone already" a success.
///
/// # Errors
///
/// All others.
pub fn gone_is_fine<T>(result: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match result {
        Ok(_) => Ok(()),
        Err(error) if status(&error).is_some_and(Status::is_not_found) => Ok(()),
        Err(error) => Err(error),
    }
}
