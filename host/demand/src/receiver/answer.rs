//! What a client sees.

use std::time::Duration;

use http::StatusCode;

/// Status, text and, where the same request may succeed later, when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status of the response.
    pub status: StatusCode,
    /// The body, plain text.
    pub text: String,
    /// For the header `Retry-After`.
    pub retry_after: Option<Duration>,
}

impl Answer {
    pub(super) fn new(status: StatusCode, text: &str) -> Self {
        Self { status, text: text.to_owned(), retry_after: None }
    }

    pub(super) fn ok(text: &str) -> Self {
        Self::new(StatusCode::OK, text)
    }

    pub(super) fn again_after(self, wait: Duration) -> Self {
        Self { retry_after: Some(wait), ..self }
    }
}
