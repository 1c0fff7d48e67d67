//! Which idle runners go first.

pub use crate::bindings::exports::pacer::policy::scale_down::{Candidate, Choice, Request};
use crate::lifecycle::{Policy, settings};

/// Ranks the runners that may be removed.
pub trait ScaleDown: Policy {
    /// At most `request.surplus` choices, each candidate at most once; fewer means: keep the rest for now.
    ///
    /// # Errors
    /// A sentence for the people on call; the built-in policy then decides.
    fn select(request: &Request, settings: &Self::Settings) -> Result<Vec<Choice>, String>;
}

impl Choice {
    /// The candidate at `index` goes; `reason` is one line of at most 256 bytes.
    #[must_use]
    pub fn new(index: u32, reason: impl Into<String>) -> Self {
        Self { index, reason: reason.into(), attributes: Vec::new() }
    }
}

/// Asks `P` as the operator would: with the request's own settings.
///
/// # Errors
/// What the policy says, or what is wrong with the settings.
pub fn answer<P: ScaleDown>(request: &Request) -> Result<Vec<Choice>, String> {
    P::select(request, &settings::<P>(&request.settings)?)
}
