//! Requests that the API server denies for lack of rights, told from those that fail for another reason.

use anyhow::Error;

/// HTTP status of what whoever asks may not do.
const FORBIDDEN: u16 = 403;

/// Whether the API server denied it for lack of rights.
fn is_denial(error: &Error) -> bool {
    error.chain().any(|cause| matches!(cause.downcast_ref(), Some(kube::Error::Api(status)) if status.code == FORBIDDEN))
}

/// The error of something that can't be read, which says what right it takes where that is missing: `list ConfigMaps there`.
pub(crate) fn unreadable(error: impl Into<Error>, what: String, right: &str) -> Error {
    let error = error.into();
    if is_denial(&error) { error.context(format!("{what}: this requires the right to {right}")) } else { error.context(what) }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn answer(code: u16, reason: &str) -> kube::Error {
        kube::Error::Api(Status::failure("said", reason).with_code(code).boxed())
    }

    #[test]
    fn rights_are_named_only_where_they_are_missing() {
        let told = |error: Error| {
            crate::plain::causes(&unreadable(error, "the receipts can't be read".to_owned(), "list ConfigMaps there"))
        };
        assert_eq!(
            told(answer(403, "Forbidden").into()),
            "the receipts can't be read: this requires the right to list ConfigMaps there: said: Forbidden"
        );
        // What was said of it on the way here hides no denial.
        let listing = Error::from(answer(403, "Forbidden")).context("listing configmaps");
        assert_eq!(
            told(listing),
            "the receipts can't be read: this requires the right to list ConfigMaps there: listing configmaps: said: Forbidden"
        );
        assert_eq!(told(answer(404, "NotFound").into()), "the receipts can't be read: said: NotFound");
        let refused = std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "connection refused");
        assert_eq!(
            told(kube::Error::Service(refused.into()).into()),
            "the receipts can't be read: ServiceError: connection refused"
        );
    }
}
