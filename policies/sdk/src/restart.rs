//! What to do about runners that ended, never registered, or went missing.

pub use crate::bindings::exports::pacer::policy::restart::{Request, Subject, Verdict};
use crate::lifecycle::{Policy, settings};
use crate::limits::{RESTART_LOOK_AGAIN, RESTART_WAIT_MAX};

/// Decides about runners that are not well.
pub trait Restart: Policy {
    /// One verdict per subject. About a subject without one the policy is asked again after 600 s, or sooner if something changes.
    ///
    /// # Errors
    /// A sentence for the people on call; the built-in policy then decides.
    fn decide(request: &Request, settings: &Self::Settings) -> Result<Vec<Verdict>, String>;
}

/// What shall happen to a runner. Times are whole seconds, and those outside their bounds are cut to them, as the operator does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Leave the runner as it is.
    Keep,
    /// Decide again after so many seconds, within [`RESTART_LOOK_AGAIN`]; sooner if something changes.
    LookAgain(u32),
    /// Another one in its place, once it has been in its situation for so many seconds, at most [`RESTART_WAIT_MAX`]; later if the operator's own
    /// back-off after failures is longer. For a Runner that no set owns: its pod is made again under the same name. The operator takes it for
    /// any other runner as [`Replace`](Self::Replace).
    Recreate(u32),
    /// The same for a runner of a set: it is removed, and the set makes another. The operator takes it for a Runner that no set owns as
    /// [`Recreate`](Self::Recreate).
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

    /// Seconds to wait first, where waiting is part of the action, within the operator's bounds.
    #[must_use]
    pub fn after(self) -> Option<u32> {
        match self {
            Self::LookAgain(after) => Some(after.clamp(RESTART_LOOK_AGAIN.0, RESTART_LOOK_AGAIN.1)),
            Self::Recreate(after) | Self::Replace(after) => Some(after.min(RESTART_WAIT_MAX)),
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
