//! What to do about runners that ended, never registered, or went missing.

pub use crate::bindings::exports::pacer::policy::restart::{Request, Subject, Verdict};
use crate::lifecycle::{Policy, settings};

/// Decides about runners that are not well.
pub trait Restart: Policy {
    /// One verdict per subject; a subject without one is looked at again later.
    ///
    /// # Errors
    /// A sentence for the people on call; the built-in policy then decides.
    fn decide(request: &Request, settings: &Self::Settings) -> Result<Vec<Verdict>, String>;
}

/// What shall happen to a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Leave the runner as it is.
    Keep,
    /// Decide again after so many seconds.
    LookAgain(u32),
    /// After so many seconds, make its pod again under the same name.
    Recreate(u32),
    /// After so many seconds, remove it; the set makes another.
    Replace(u32),
    /// Keep the evidence and make no replacement until somebody acts.
    Quarantine,
}

impl Action {
    /// The contract's name of the action.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::LookAgain(_) => "look-again",
            Self::Recreate(_) => "recreate",
            Self::Replace(_) => "replace",
            Self::Quarantine => "quarantine",
        }
    }

    /// Seconds to wait first, where waiting is part of the action.
    #[must_use]
    pub fn after(self) -> Option<u32> {
        match self {
            Self::LookAgain(after) | Self::Recreate(after) | Self::Replace(after) => Some(after),
            Self::Keep | Self::Quarantine => None,
        }
    }
}

impl Verdict {
    /// `action` for the subject at `index`; `reason` is one line of at most 256 bytes.
    #[must_use]
    pub fn new(index: u32, action: Action, reason: impl Into<String>) -> Self {
        Self { index, action: action.name().to_owned(), after: action.after(), reason: reason.into(), attributes: Vec::new() }
    }
}

impl Subject {
    /// Another one in its place after so many seconds: a runner of a set is replaced, one that no set owns keeps its name.
    #[must_use]
    pub fn renewed(&self, after: u32) -> Action {
        if self.stand_alone { Action::Recreate(after) } else { Action::Replace(after) }
    }
}

/// Asks `P` as the operator would: with the request's own settings.
///
/// # Errors
/// What the policy says, or what is wrong with the settings.
pub fn answer<P: Restart>(request: &Request) -> Result<Vec<Verdict>, String> {
    P::decide(request, &settings::<P>(&request.settings)?)
}
