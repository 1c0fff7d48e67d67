//! Answers of the API server that are no failures.

use kube::core::Status;

/// The API server's own answer; none when the request did not reach it or its answer could not be read.
#[must_use]
pub fn status(error: &kube::Error) -> Option<&Status> {
    match error {
        kube::Error::Api(status) => Some(status),
        _ => None,
    }
}

/// 404: there is no object of that name, or it has another UID than the request asked for.
#[must_use]
pub fn is_not_found(error: &kube::Error) -> bool {
    status(error).is_some_and(Status::is_not_found)
}

/// 409 to a change: the object is not at the resource version, or has not the UID, that the request names.
#[must_use]
pub fn is_conflict(error: &kube::Error) -> bool {
    status(error).is_some_and(Status::is_conflict)
}

/// The object that a precondition names is gone, or another one by now. The watch will show it.
#[must_use]
pub fn is_not_found_or_conflict(error: &kube::Error) -> bool {
    is_not_found(error) || is_conflict(error)
}

/// 403: a role is missing, or the namespace is being deleted.
#[must_use]
pub fn is_forbidden(error: &kube::Error) -> bool {
    status(error).is_some_and(Status::is_forbidden)
}

/// The namespace of the request is gone (404 that names it), or is being deleted (403 for that reason): nothing is created there any more.
#[must_use]
pub fn is_namespace_gone(error: &kube::Error) -> bool {
    let Some(answer) = status(error) else { return false };
    let details = answer.details.as_ref();
    let is_gone = answer.is_not_found() && details.is_some_and(|details| details.kind == "namespaces");
    // The cause that the API server's admission plugin NamespaceLifecycle gives.
    let is_cause = |reason: &str| reason == "NamespaceTerminating";
    let is_leaving = details.is_some_and(|details| details.causes.iter().any(|cause| is_cause(&cause.reason)));
    is_gone || answer.is_forbidden() && is_leaving
}

/// 409 to a creation: the name is taken.
#[must_use]
pub fn is_already_exists(error: &kube::Error) -> bool {
    status(error).is_some_and(Status::is_already_exists)
}

/// Whether a change with a precondition (resource version or UID) was made; false when the precondition failed.
///
/// # Errors
///
/// When the API server refuses for any other reason, or does not answer.
pub fn precondition_held<T>(result: Result<T, kube::Error>) -> Result<bool, kube::Error> {
    match result {
        Ok(_) => Ok(true),
        Err(error) if is_not_found_or_conflict(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes 404 a success, as `client.IgnoreNotFound` of controller-runtime does.
///
/// # Errors
///
/// All others.
pub fn ignore_not_found<T>(result: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match result {
        Ok(_) => Ok(()),
        Err(error) if is_not_found(&error) => Ok(()),
        Err(error) => Err(error),
    }
}
