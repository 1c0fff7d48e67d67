//! Whether jobs that died with their runners run again.

use crate::lifecycle::{Policy, settings};
use crate::limits::RERUN_WAIT_MAX;
pub use crate::recover_bindings::exports::pacer::policy::recover::{DeadJob, Request, Verdict};

/// Decides about jobs that died with their runners.
pub trait Recover: Policy {
    /// One verdict per job; a job without one stays failed.
    ///
    /// # Errors
    /// A sentence for the people on call; no job of the request then runs again.
    fn recover(request: &Request, settings: &Self::Settings) -> Result<Vec<Verdict>, String>;
}

impl Verdict {
    /// The job at `index` shall run again after so many seconds at the earliest, at most [`RERUN_WAIT_MAX`]; `reason` is one line of at most 256 bytes.
    #[must_use]
    pub fn rerun(index: u32, after: Option<u32>, reason: impl Into<String>) -> Self {
        let after = after.map(|after| after.min(RERUN_WAIT_MAX));
        Self { index, action: "rerun".to_owned(), after, reason: reason.into(), attributes: Vec::new() }
    }

    /// The job at `index` stays failed.
    #[must_use]
    pub fn leave(index: u32, reason: impl Into<String>) -> Self {
        Self { index, action: "leave".to_owned(), after: None, reason: reason.into(), attributes: Vec::new() }
    }
}

/// Asks `P` as the operator would: with the request's own settings.
///
/// # Errors
/// What the policy says, or what is wrong with the settings.
pub fn answer<P: Recover>(request: &Request) -> Result<Vec<Verdict>, String> {
    P::recover(request, &settings::<P>(&request.settings)?)
}
