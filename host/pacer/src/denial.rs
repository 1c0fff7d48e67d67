//! Requests that the API server denies for lack of rights, told from those that fail for another reason.

use anyhow::{Error, Result};

/// HTTP status of what whoever asks may not do.
const FORBIDDEN: u16 = 403;

/// Whether the API server denied it for lack of rights.
fn is_denial(error: &Error) -> bool {
    error.chain().any(|cause| matches!(cause.downcast_ref(), Some(kube::Error::Api(status)) if status.code == FORBIDDEN))
}

/// The error of something that can't be read, which says what right it takes where that is missing: `list ConfigMaps there`.
pub(crate) fn unreadable(error: kube::Error, what: String, right: &str) -> Error {
    let error = Error::from(error);
    if is_denial(&error) { error.context(format!("{what}: that takes the right to {right}")) } else { error.context(what) }
}

/// What was read; none where the rights to read it are missing.
///
/// # Errors
///
/// When it failed for another reason.
pub(crate) fn permitted<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if is_denial(&error) => Ok(None),
        Err(error) => Err(error),
    }
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
        let told =
            |error| crate::plain::causes(&unreadable(error, "the receipts can't be read".to_owned(), "list ConfigMaps there"));
        assert_eq!(
            told(answer(403, "Forbidden")),
            "the receipts can't be read: that takes the right to list ConfigMaps there: said: Forbidden"
        );
        assert_eq!(told(answer(404, "NotFound")), "the receipts can't be read: said: NotFound");
        let refused = std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "connection refused");
        assert_eq!(told(kube::Error::Service(refused.into())), "the receipts can't be read: ServiceError: connection refused");
    }

    #[test]
    fn only_what_is_denied_is_done_without() {
        assert!(permitted(Ok(1)).is_ok_and(|read| read == Some(1)));
        let failed = |code| permitted::<()>(Err(Error::from(answer(code, "")).context("listing pods")));
        assert!(failed(403).is_ok_and(|read| read.is_none()));
        assert!(failed(404).is_err() && failed(500).is_err());
    }
}
