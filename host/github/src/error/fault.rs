//! Why a request got no answer, as the parts of the stack say it.

use std::time::Duration;

use tower::BoxError;

use super::Error;
use crate::budget::{Block, Deferral};

/// Why a request got no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error("too many calls are waiting for GitHub already")]
    Saturated,
    #[error("no answer within {0:?}")]
    Deadline(Duration),
    #[error("a rate limit stands until {until}", until = .0.until)]
    Blocked(Block),
    #[error("its turn comes at {until}", until = .0.until)]
    Deferred(Deferral),
    #[error("{0}")]
    Refused(Error),
    #[error("{}", chain(.0.as_ref()))]
    Network(BoxError),
    #[error("unusable answer: {0}")]
    Answer(String),
}

/// An error with its causes: hyper's own text alone is "client error (Connect)".
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}
