//! How far GitHub's clock is ahead of this machine's.

use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};

/// As the newest answer with a date said it.
#[derive(Debug, Default)]
pub(crate) struct Clock(Mutex<Option<SignedDuration>>);

impl Clock {
    /// An answer that came `now` was of this moment at GitHub, in whole seconds.
    pub(crate) fn read(&self, at_github: Timestamp, now: Timestamp) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(at_github.duration_since(now));
    }

    /// None before the first answer with a date.
    pub(crate) fn ahead(&self) -> Option<SignedDuration> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
