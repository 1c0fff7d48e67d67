//! What can go wrong between us and GitHub, said so that a user can mend it.

mod fault;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method, StatusCode};
use jiff::Timestamp;
use octocrab::GitHubError;
use pacer_core::scope::Scope;

use crate::budget::{Block, Deferral};
use crate::call::{Call, Endpoint, Subject};
use crate::credentials::CredentialKind;
use crate::{json, limit};

pub(crate) use fault::Fault;

/// Longest part of an answer that is repeated in an error.
const QUOTED: usize = 400;

/// A failed call: which one, at which URL, what GitHub said, what is missing and what to do. Cheap to clone.
#[derive(Clone)]
pub struct Error(Arc<Failure>);

#[derive(Debug)]
struct Failure {
    kind: ErrorKind,
    call: Call,
    method: Method,
    url: String,
    credentials: CredentialKind,
    status: Option<StatusCode>,
    message: Option<String>,
    documentation_url: Option<String>,
    request_id: Option<String>,
    sso: bool,
    wait: Option<Duration>,
}

/// What a failed call means for its caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// 401: the credentials themselves are wrong, expired or revoked. Trying again is pointless until they change.
    Unauthorized,
    /// 403 that is no rate limit: the credentials lack a right. Never to be taken for success.
    Forbidden {
        /// The right that the call needs.
        missing: String,
        /// What GitHub says it would accept: `X-Accepted-GitHub-Permissions` or `X-Accepted-OAuth-Scopes`.
        accepted: Option<String>,
        /// The scopes that a classic token has: `X-OAuth-Scopes`.
        granted: Option<String>,
    },
    /// 404: the scope does not exist, or the credentials may not see it; GitHub does not tell which.
    NotVisible {
        /// The right that the call needs.
        missing: String,
    },
    /// A rate limit, said by GitHub now or known from earlier, in which case nothing was sent.
    RateLimited {
        /// When the limit ends, by the local clock or GitHub's reset time.
        until: Timestamp,
        /// Whether it is a secondary limit (too much at once) rather than the hourly budget.
        secondary: bool,
    },
    /// Nothing was sent: so many calls are made at a time that this one has to wait for its turn, or GitHub's limits of a minute would be
    /// exceeded. No failure, and no news to anybody: whoever asks again then, goes.
    Deferred {
        /// When its turn is due.
        until: Timestamp,
    },
    /// 5xx.
    Server,
    /// No answer within the deadline. The call may have had its effect.
    Timeout,
    /// No connection, or it broke. The call may have had its effect.
    Network,
    /// Too many calls are waiting already; nothing was sent.
    Saturated,
    /// An answer that does not have the promised form.
    Decode,
    /// A request that GitHub, or we, consider malformed; also answers with a status that fits nothing above.
    Invalid,
}

impl Error {
    /// What the failure means.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// The call that failed.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        self.0.call.endpoint
    }

    /// The scope that the call was for; none for calls about a GitHub App itself.
    #[must_use]
    pub fn scope(&self) -> Option<&Scope> {
        match &self.0.call.subject {
            Subject::Scope(scope) => Some(scope),
            Subject::App => None,
        }
    }

    /// What to do about it, in a sentence for people.
    #[must_use]
    pub fn advice(&self) -> String {
        self.0.advice()
    }

    /// What happened, without the advice and without the id of the request, which differs each time.
    #[must_use]
    pub fn without_advice(&self) -> String {
        fmt::from_fn(|f| self.0.write_what_happened(f, false)).to_string()
    }

    /// The URL that was called.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.0.url
    }

    /// GitHub's status, where it answered.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.0.status.map(|status| status.as_u16())
    }

    /// Message of GitHub's refusal, shortened; what this client says itself where GitHub refused nothing.
    #[must_use]
    pub fn message(&self) -> Option<&str> {
        self.0.message.as_deref()
    }

    /// How long to wait before trying again, as known when the call failed; none where GitHub did not say.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.wait
    }

    /// How long to wait for its turn, where that is all that is wrong; see [`ErrorKind::Deferred`].
    #[must_use]
    pub fn deferral(&self) -> Option<Duration> {
        self.0.wait.filter(|_| matches!(self.0.kind, ErrorKind::Deferred { .. }))
    }

    /// Whether the same call can succeed later without anyone changing settings or rights.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(
            self.0.kind,
            ErrorKind::RateLimited { .. }
                | ErrorKind::Deferred { .. }
                | ErrorKind::Server
                | ErrorKind::Timeout
                | ErrorKind::Network
                | ErrorKind::Saturated
        )
    }
}

/// One request, as far as its errors need it.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) call: Call,
    pub(crate) method: Method,
    pub(crate) url: String,
    pub(crate) credentials: CredentialKind,
}

impl Attempt {
    /// An error that has no answer of GitHub behind it.
    pub(crate) fn failed(self, kind: ErrorKind, message: impl Into<String>) -> Error {
        let mut failure = self.failure(kind);
        failure.message = Some(quoted(&message.into()));
        Error(Arc::new(failure))
    }

    /// An answer with an unexpected status or form.
    pub(crate) fn misanswered(self, kind: ErrorKind, status: StatusCode, message: impl Into<String>) -> Error {
        let mut failure = self.failure(kind);
        failure.status = Some(status);
        failure.message = Some(quoted(&message.into()));
        Error(Arc::new(failure))
    }

    /// Judges a refusal by its status, headers and text.
    pub(crate) fn refused(self, refusal: &GitHubError, now: Timestamp) -> Error {
        let empty = HeaderMap::new();
        let headers = refusal.headers.as_ref().unwrap_or(&empty);
        let header =
            |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(quoted).filter(|value| !value.is_empty());
        let status = refusal.status_code;
        let docs = refusal.documentation_url.as_deref();
        let missing = || self.call.endpoint.permission(&self.call.subject, self.credentials).to_owned();
        let limited = limit::limited(status, headers, &refusal.message, docs, now);
        let kind = match status.as_u16() {
            _ if limited.is_some() => {
                let limited = limited.unwrap_or(limit::Limited { wait: Duration::ZERO, secondary: true });
                let until = now.saturating_add(limited.wait).unwrap_or(now);
                ErrorKind::RateLimited { until, secondary: limited.secondary }
            }
            401 => ErrorKind::Unauthorized,
            403 => ErrorKind::Forbidden {
                missing: missing(),
                accepted: header("x-accepted-github-permissions").or_else(|| header("x-accepted-oauth-scopes")),
                granted: header("x-oauth-scopes"),
            },
            404 => ErrorKind::NotVisible { missing: missing() },
            407 => ErrorKind::Network,
            408 => ErrorKind::Timeout,
            500.. => ErrorKind::Server,
            _ => ErrorKind::Invalid,
        };
        let wait = limited.map(|limited| limited.wait).or_else(|| limit::retry_after(headers, now));
        let (request_id, sso) = (header("x-github-request-id"), headers.contains_key("x-github-sso"));
        let mut failure = self.failure(kind);
        failure.status = Some(status);
        failure.message = Some(quoted(&refusal.message)).filter(|message| !message.is_empty());
        failure.documentation_url = docs.map(quoted);
        failure.request_id = request_id;
        failure.sso = sso;
        failure.wait = wait;
        Error(Arc::new(failure))
    }

    /// Judges what octocrab or our own stack below it reported.
    pub(crate) fn broken(self, error: octocrab::Error) -> Error {
        match error {
            octocrab::Error::GitHub { source, .. } => self.refused(&source, Timestamp::now()),
            octocrab::Error::Service { source, .. } => match source.downcast::<Fault>() {
                Ok(fault) => self.stopped(*fault),
                Err(other) => self.failed(ErrorKind::Network, other.to_string()),
            },
            octocrab::Error::Json { source, .. } => self.failed(ErrorKind::Decode, json::without_values(&source)),
            octocrab::Error::Serde { source, .. } => self.failed(ErrorKind::Decode, json::without_values(&json::at_root(source))),
            other => self.failed(ErrorKind::Invalid, other.to_string()),
        }
    }

    pub(crate) fn stopped(self, fault: Fault) -> Error {
        let message = fault.to_string();
        match fault {
            Fault::Refused(error) => error,
            Fault::Blocked(Block { until, wait, secondary }) => self.not_sent(ErrorKind::RateLimited { until, secondary }, wait),
            Fault::Deferred(Deferral { until, wait }) => self.not_sent(ErrorKind::Deferred { until }, wait),
            Fault::Deadline(_) => self.failed(ErrorKind::Timeout, message),
            Fault::Saturated => self.failed(ErrorKind::Saturated, message),
            Fault::Network(_) => self.failed(ErrorKind::Network, message),
            Fault::Answer(_) => self.failed(ErrorKind::Decode, message),
        }
    }

    fn not_sent(self, kind: ErrorKind, wait: Duration) -> Error {
        let mut failure = self.failure(kind);
        failure.wait = Some(wait);
        Error(Arc::new(failure))
    }

    fn failure(self, kind: ErrorKind) -> Failure {
        let Self { call, method, url, credentials } = self;
        Failure {
            kind,
            call,
            method,
            url,
            credentials,
            status: None,
            message: None,
            documentation_url: None,
            request_id: None,
            sso: false,
            wait: None,
        }
    }
}

impl Failure {
    fn advice(&self) -> String {
        let subject = &self.call.subject;
        let by_the_app = self.call.by_the_app();
        match &self.kind {
            ErrorKind::Unauthorized => match self.credentials {
                CredentialKind::Token => "the token is wrong, expired or revoked: make a new one and put it into the Secret".into(),
                CredentialKind::App if by_the_app => {
                    "GitHub does not accept the App's signature: check that app id and private key belong together, that the key was not revoked, and that this machine's clock is right".into()
                }
                CredentialKind::App => "the installation's token was refused: a new one is fetched for the next call".into(),
                CredentialKind::Basic => "user name or password is wrong".into(),
            },
            ErrorKind::Forbidden { .. } if self.sso => {
                format!("the organization enforces SAML single sign-on: authorize the token for it, for {subject}")
            }
            ErrorKind::Forbidden { missing, accepted, granted } => {
                let accepted = accepted.as_ref().map(|it| format!("; GitHub accepts: {it}")).unwrap_or_default();
                let granted = granted.as_ref().map(|it| format!("; the token has: {it}")).unwrap_or_default();
                let grant = match self.credentials {
                    CredentialKind::App => "grant it in the App's settings and have an owner accept the change",
                    CredentialKind::Token | CredentialKind::Basic => "use credentials that have it",
                };
                format!("the call needs {missing}{accepted}{granted}; {grant}")
            }
            ErrorKind::NotVisible { missing } => match self.call.endpoint {
                Endpoint::FindInstallation => {
                    format!("the GitHub App is not installed for {subject}, or the name is wrong: install it there, or set the installation id")
                }
                Endpoint::ListDeliveries | Endpoint::Redeliver => {
                    format!("check that the webhook still exists, and that the delivery is at most three days old; the call needs {missing}")
                }
                Endpoint::InstallationToken => {
                    "the installation id does not belong to this App, or the App was uninstalled: check github_app_installation_id".into()
                }
                _ => format!("check that {subject} exists under this name, and that the credentials may see it: the call needs {missing}"),
            },
            ErrorKind::RateLimited { secondary: true, .. } => {
                "too many calls in a short time; calls go on by themselves after the wait".into()
            }
            ErrorKind::RateLimited { .. } => {
                "the hourly budget of these credentials is used up; calls go on by themselves after the reset. Give busy scopes credentials of their own if this repeats".into()
            }
            ErrorKind::Deferred { .. } => "too many calls at a time; this one goes on by itself when its turn has come".into(),
            ErrorKind::Server => "GitHub has a problem of its own: see its status page if this lasts".into(),
            ErrorKind::Timeout => "check network, proxy and GitHub's status if this lasts".into(),
            ErrorKind::Network => "check DNS, firewall, proxy settings and, for GitHub Enterprise Server, its CA certificate".into(),
            ErrorKind::Saturated => "GitHub answers too slowly for what is asked of it".into(),
            ErrorKind::Decode => "check that the URL is the base of GitHub's REST API, and that no proxy answers in its place".into(),
            ErrorKind::Invalid => "check the URL and the scope's name".into(),
        }
    }

    /// What was tried, and how it failed.
    fn write_what_happened(&self, f: &mut fmt::Formatter<'_>, with_request_id: bool) -> fmt::Result {
        write!(f, "cannot {} {}: {} {}", self.call.endpoint.deed(), self.call.subject, self.method, self.url)?;
        match (&self.kind, self.status) {
            (_, Some(status)) => write!(f, " answered {status}")?,
            (ErrorKind::RateLimited { .. } | ErrorKind::Deferred { .. }, None) => f.write_str(" was not sent")?,
            (_, None) => f.write_str(" failed")?,
        }
        if let Some(message) = &self.message {
            write!(f, ": {message}")?;
        }
        if let ErrorKind::RateLimited { until, secondary } = &self.kind {
            let name = if *secondary { "secondary rate limit" } else { "rate limit" };
            write!(f, " ({name} until {until})")?;
        }
        if let ErrorKind::Deferred { until } = &self.kind {
            write!(f, " (its turn comes at {until})")?;
        }
        let request_id = self.request_id.as_ref().filter(|_| with_request_id);
        match (&self.documentation_url, request_id) {
            (Some(url), Some(id)) => write!(f, " [{url}, request {id}]")?,
            (Some(url), None) => write!(f, " [{url}]")?,
            (None, Some(id)) => write!(f, " [request {id}]")?,
            (None, None) => {}
        }
        Ok(())
    }
}

/// The alternate form (`{:#}`) leaves out the number of the request, so that the same failure has the same text every time.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write_what_happened(f, !f.alternate())?;
        write!(f, "; {}", self.0.advice())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl std::error::Error for Error {}

/// One line of at most [`QUOTED`] characters: answers of proxies can be whole pages.
fn quoted(text: &str) -> String {
    let line = text.split(|c: char| c.is_control() || c == ' ').filter(|word| !word.is_empty());
    let line = line.collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{}...", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(endpoint: Endpoint, credentials: CredentialKind) -> Attempt {
        Attempt {
            call: Call::new(endpoint, Scope::Organization("acme".into())),
            method: Method::GET,
            url: "https://api.github.com/orgs/acme/actions/runners".into(),
            credentials,
        }
    }

    fn answer(status: u16, headers: &[(&'static str, &str)], body: &str) -> octocrab::Error {
        let mut response = http::Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        let response = response.body(bytes::Bytes::from(body.to_owned())).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(crate::stack::checked(response)).unwrap_err()
    }

    #[test]
    fn statuses_become_kinds() {
        type Headers = &'static [(&'static str, &'static str)];
        type Expected = fn(&ErrorKind) -> bool;
        let table: [(u16, Headers, Expected, &str); 12] = [
            (401, &[], |kind| *kind == ErrorKind::Unauthorized, "make a new one"),
            (403, &[], |kind| matches!(kind, ErrorKind::Forbidden { .. }), "admin:org"),
            (403, &[("x-github-sso", "required")], |kind| matches!(kind, ErrorKind::Forbidden { .. }), "single sign-on"),
            (404, &[], |kind| matches!(kind, ErrorKind::NotVisible { .. }), "organization acme exists"),
            (403, &[("retry-after", "5")], |kind| matches!(kind, ErrorKind::RateLimited { secondary: true, .. }), "until"),
            (429, &[], |kind| matches!(kind, ErrorKind::RateLimited { secondary: true, .. }), "until"),
            (500, &[], |kind| *kind == ErrorKind::Server, "status page"),
            (503, &[("retry-after", "7")], |kind| *kind == ErrorKind::Server, "status page"),
            (407, &[], |kind| *kind == ErrorKind::Network, "proxy"),
            (422, &[], |kind| *kind == ErrorKind::Invalid, "422"),
            (301, &[], |kind| *kind == ErrorKind::Invalid, "301"),
            (410, &[], |kind| *kind == ErrorKind::Invalid, "410"),
        ];
        for (status, headers, expected, said) in table {
            let error = attempt(Endpoint::ListRunners, CredentialKind::Token).broken(answer(status, headers, "{}"));
            assert!(expected(error.kind()), "{status} {headers:?}: {:?}", error.kind());
            let text = error.to_string();
            assert!(text.contains(said) && text.contains("https://api.github.com/orgs/acme"), "{status}: {text}");
            assert_eq!(error.status(), Some(status));
        }
        let error = attempt(Endpoint::ListRunners, CredentialKind::Token).broken(answer(503, &[("retry-after", "7")], ""));
        assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
        assert!(error.is_transient());
    }

    #[test]
    fn a_missing_right_is_named_with_what_github_accepts() {
        let body = r#"{"message":"Resource not accessible by integration","documentation_url":"https://docs.github.com/x"}"#;
        let headers =
            [("x-accepted-github-permissions", "organization_self_hosted_runners=write"), ("x-github-request-id", "AB:1")];
        let error = attempt(Endpoint::RemoveRunner, CredentialKind::App).broken(answer(403, &headers, body));
        assert_eq!(
            error.to_string(),
            "cannot remove a runner from organization acme: GET https://api.github.com/orgs/acme/actions/runners answered \
             403 Forbidden: Resource not accessible by integration [https://docs.github.com/x, request AB:1]; the call needs \
             the App's organization permission \"Self-hosted runners: read and write\"; GitHub accepts: \
             organization_self_hosted_runners=write; grant it in the App's settings and have an owner accept the change"
        );
        let headers = [("x-accepted-oauth-scopes", "admin:org"), ("x-oauth-scopes", "repo, workflow")];
        let error = attempt(Endpoint::RemoveRunner, CredentialKind::Token).broken(answer(403, &headers, body));
        assert!(error.to_string().contains("GitHub accepts: admin:org; the token has: repo, workflow"), "{error}");
        assert!(!error.is_transient());
    }

    #[test]
    fn error_says_that_nothing_was_sent_when_a_rate_limit_stands() {
        let until = "2027-01-15T08:00:00Z".parse().unwrap();
        let block = Block { until, wait: Duration::from_secs(30), secondary: false };
        let error = attempt(Endpoint::ListRunners, CredentialKind::Token).stopped(Fault::Blocked(block));
        assert_eq!(error.retry_after(), Some(Duration::from_secs(30)));
        assert_eq!(error.kind(), &ErrorKind::RateLimited { until, secondary: false });
        let text = error.to_string();
        assert!(text.contains("was not sent (rate limit until 2027-01-15T08:00:00Z)"), "{text}");
    }

    #[test]
    fn call_that_waits_for_its_turn_is_told_from_a_limit_of_github() {
        let until = "2027-01-15T08:00:00Z".parse().unwrap();
        let deferral = Deferral { until, wait: Duration::from_secs(7) };
        let error = attempt(Endpoint::RemoveRunner, CredentialKind::Token).stopped(Fault::Deferred(deferral));
        assert_eq!((error.deferral(), error.retry_after()), (Some(Duration::from_secs(7)), Some(Duration::from_secs(7))));
        assert!(error.is_transient());
        assert!(error.to_string().contains("was not sent (its turn comes at 2027-01-15T08:00:00Z)"), "{error}");
        let block = Block { until, wait: Duration::from_secs(30), secondary: true };
        assert_eq!(attempt(Endpoint::RemoveRunner, CredentialKind::Token).stopped(Fault::Blocked(block)).deferral(), None);
    }

    #[test]
    fn long_answers_are_cut_to_one_line() {
        let page = format!("<html>\n\t{}", "x ".repeat(5_000));
        let error = attempt(Endpoint::ListRunners, CredentialKind::Token).broken(answer(502, &[], &page));
        let text = error.to_string();
        assert!(text.len() < 1_000 && !text.contains('\n'), "{text}");
        assert!(text.contains("<html> x x"), "{text}");
    }
}
