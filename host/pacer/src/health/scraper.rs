//! Who may read `/metrics`: whoever the API server says may `get` that path.
//!
//! A scraper sends its ServiceAccount's token. The API server says whose token it is (TokenReview), and whether that user may `get` the path
//! `/metrics` (SubjectAccessReview): what kube-rbac-proxy in front of ARC asks, and Kubernetes' own components. Answers are kept for a while by
//! a digest of the token, so that two requests a minute serve any number of scrapes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use ring::digest::{SHA256, digest};
use tokio::sync::Semaphore;

/// The path, as roles name it under `nonResourceURLs`.
const PATH: &str = "/metrics";

/// How long an answer holds, as in Kubernetes' delegated authentication.
const ALLOWED_FOR: Duration = Duration::from_secs(60);

/// A right that is given meanwhile counts soon.
const DENIED_FOR: Duration = Duration::from_secs(10);

/// Most tokens of which the answer is kept.
const KEPT: usize = 64;

/// Questions to the API server at a time. Whoever sends made-up tokens costs it no more than that; others wait for their turn.
const AT_A_TIME: usize = 2;

/// Longest token that is passed on. Those of ServiceAccounts have some 1,200 characters.
const LONGEST: usize = 16 * 1024;

/// Asks the API server, and remembers.
pub(super) struct Scrapers {
    client: Client,
    answers: Mutex<Answers>,
    turns: Semaphore,
}

/// What the API server said of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    Allowed,
    /// The API server does not know this token: it has expired, or is of another cluster.
    Unknown,
    /// The token of this user, who may not.
    Forbidden(String),
}

/// Why somebody does not get the metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Refusal {
    NoToken,
    Unknown,
    Forbidden(String),
    /// The API server does not say.
    Unanswered(String),
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::NoToken | Self::Unknown => StatusCode::UNAUTHORIZED,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::Unanswered(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoToken => {
                f.write_str("metrics take a token: send `Authorization: Bearer TOKEN` with one of a ServiceAccount\n")
            }
            Self::Unknown => f.write_str("the API server does not know this token: it has expired, or is of another cluster\n"),
            Self::Forbidden(user) => writeln!(
                f,
                "{user} may not read {PATH}: bind it to a ClusterRole with nonResourceURLs [{PATH}] and verbs [get], such as pacer-metrics-reader"
            ),
            Self::Unanswered(why) => writeln!(f, "the API server did not say whose token this is: {why}"),
        }
    }
}

/// Answers by digest of the token.
#[derive(Debug, Default)]
struct Answers(HashMap<[u8; 32], (Answer, Instant)>);

impl Answers {
    fn get(&self, token: &[u8; 32], now: Instant) -> Option<Answer> {
        self.0.get(token).filter(|(_, until)| *until > now).map(|(answer, _)| answer.clone())
    }

    /// Where there is no room, the answer that ends next makes some: those of made-up tokens end before the others.
    fn keep(&mut self, token: [u8; 32], answer: Answer, now: Instant) {
        self.0.retain(|_, (_, until)| *until > now);
        if self.0.len() >= KEPT {
            let next = self.0.iter().min_by_key(|(_, (_, until))| *until).map(|(token, _)| *token);
            next.and_then(|token| self.0.remove(&token));
        }
        let holds = if answer == Answer::Allowed { ALLOWED_FOR } else { DENIED_FOR };
        self.0.insert(token, (answer, now + holds));
    }
}

impl Scrapers {
    /// Asks over this client, which needs the right to create TokenReviews and SubjectAccessReviews.
    pub(super) fn new(client: Client) -> Arc<Self> {
        Arc::new(Self { client, answers: Mutex::default(), turns: Semaphore::new(AT_A_TIME) })
    }

    async fn admit(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let token = bearer(headers).ok_or(Refusal::NoToken)?;
        let mut key = [0; 32];
        key.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        let answer = match self.known(&key) {
            Some(answer) => answer,
            None => self.find_out(token, key).await?,
        };
        match answer {
            Answer::Allowed => Ok(()),
            Answer::Unknown => Err(Refusal::Unknown),
            Answer::Forbidden(user) => Err(Refusal::Forbidden(user)),
        }
    }

    /// Asks when it is this one's turn, unless somebody has asked the same meanwhile.
    async fn find_out(&self, token: &str, key: [u8; 32]) -> Result<Answer, Refusal> {
        let _turn = self.turns.acquire().await.map_err(|error| Refusal::Unanswered(error.to_string()))?;
        if let Some(answer) = self.known(&key) {
            return Ok(answer);
        }
        let answer = self.ask(token).await.map_err(|error| {
            tracing::warn!(%error, "can't ask the API server who may read metrics; the roles of --metrics-authorization are in docs/operations.md#restricted-metrics");
            Refusal::Unanswered(reason(&error))
        })?;
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).keep(key, answer.clone(), Instant::now());
        Ok(answer)
    }

    fn known(&self, token: &[u8; 32]) -> Option<Answer> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).get(token, Instant::now())
    }

    async fn ask(&self, token: &str) -> kube::Result<Answer> {
        let review = TokenReview {
            spec: TokenReviewSpec { token: Some(token.to_owned()), ..TokenReviewSpec::default() },
            ..TokenReview::default()
        };
        let reviewed = Api::all(self.client.clone()).create(&PostParams::default(), &review).await?;
        let status = reviewed.status.unwrap_or_default();
        let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else { return Ok(Answer::Unknown) };
        let name = user.username.clone().unwrap_or_default();
        let review = SubjectAccessReview { spec: access_of(user), ..SubjectAccessReview::default() };
        let reviewed = Api::all(self.client.clone()).create(&PostParams::default(), &review).await?;
        let allowed = reviewed.status.is_some_and(|status| status.allowed);
        Ok(if allowed { Answer::Allowed } else { Answer::Forbidden(name) })
    }
}

/// What whoever scrapes is told; the log has the rest.
fn reason(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("it answered {}", status.code),
        _ => "no answer".to_owned(),
    }
}

fn access_of(user: UserInfo) -> SubjectAccessReviewSpec {
    SubjectAccessReviewSpec {
        user: user.username,
        uid: user.uid,
        groups: user.groups,
        extra: user.extra,
        non_resource_attributes: Some(NonResourceAttributes { path: Some(PATH.to_owned()), verb: Some("get".to_owned()) }),
        ..SubjectAccessReviewSpec::default()
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && token.len() <= LONGEST).then_some(token)
}

/// Lets requests through that may read metrics.
pub(super) async fn guard(State(scrapers): State<Arc<Scrapers>>, request: Request, next: Next) -> Response {
    match scrapers.admit(request.headers()).await {
        Ok(()) => next.run(request).await,
        Err(refusal) => (refusal.status(), [(header::WWW_AUTHENTICATE, "Bearer")], refusal.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn token_is_what_follows_bearer() {
        for (value, expected) in [
            ("Bearer abc", Some("abc")),
            ("bearer  abc", Some("abc")),
            ("Basic abc", None),
            ("Bearer ", None),
            ("Bearer", None),
            ("abc", None),
        ] {
            let headers = HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_static(value))]);
            assert_eq!(bearer(&headers), expected, "{value}");
        }
        assert_eq!(bearer(&HeaderMap::new()), None);
        let long = HeaderValue::from_str(&format!("Bearer {}", "a".repeat(LONGEST + 1))).unwrap();
        assert_eq!(bearer(&HeaderMap::from_iter([(header::AUTHORIZATION, long)])), None);
    }

    #[test]
    fn answer_holds_for_its_time() {
        let mut answers = Answers::default();
        let begin = Instant::now();
        answers.keep([1; 32], Answer::Allowed, begin);
        answers.keep([2; 32], Answer::Unknown, begin);
        let after = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!(answers.get(&[1; 32], after(59)), Some(Answer::Allowed));
        assert_eq!(answers.get(&[1; 32], after(60)), None);
        assert_eq!(answers.get(&[2; 32], after(9)), Some(Answer::Unknown));
        assert_eq!(answers.get(&[2; 32], after(10)), None);
    }

    #[test]
    fn made_up_tokens_push_no_scraper_out() {
        let mut answers = Answers::default();
        let now = Instant::now();
        answers.keep([0; 32], Answer::Allowed, now);
        for made_up in 1..=u8::MAX {
            answers.keep([made_up; 32], Answer::Unknown, now);
        }
        assert_eq!((answers.0.len(), answers.get(&[0; 32], now)), (KEPT, Some(Answer::Allowed)));
    }

    #[test]
    fn refusals_say_what_to_do() {
        let forbidden = Refusal::Forbidden("system:serviceaccount:monitoring:prometheus".to_owned());
        assert_eq!(forbidden.status(), StatusCode::FORBIDDEN);
        assert!(
            forbidden.to_string().starts_with("system:serviceaccount:monitoring:prometheus may not read /metrics: bind it"),
            "{forbidden}"
        );
        assert_eq!(Refusal::NoToken.status(), StatusCode::UNAUTHORIZED);
        assert_eq!(Refusal::Unanswered(String::new()).status(), StatusCode::SERVICE_UNAVAILABLE);
    }
}

#[cfg(test)]
mod decoders {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn token_of_a_reader_of_metrics_is_found_or_not_whatever_is_sent() {
        pacer_fuzz::text!(["Bearer abc", "bearer  a.b.c "], |text| {
            let Ok(value) = HeaderValue::from_str(text) else { return false };
            let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value)]);
            let token = bearer(&headers);
            assert!(token.is_none_or(|token| !token.is_empty() && token.len() <= LONGEST), "{text:?}");
            token.is_some()
        });
    }
}
