//! Who is calling: a fixed header, or the token of a GitHub App's installation.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION};
use http::{HeaderValue, Method, StatusCode};
use jiff::Timestamp;
use pacer_core::scope::Scope;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tower::layer::layer_fn;
use tower::{Layer, ServiceExt};

use crate::call::{Call, Endpoint, Subject};
use crate::credentials::CredentialKind;
use crate::error::{Attempt, ErrorKind, Fault};
use crate::json;
use crate::jwt::AppKey;
use crate::limit;
use crate::stack::{Next, Request, checked, service};

/// From here on one caller fetches the next token while the others go on with the old one.
const EARLY: Duration = Duration::from_secs(5 * 60);
/// From here on everyone waits for the next token: a call must not outlive its own.
const LATE: Duration = Duration::from_secs(60);
/// Longest wait for the next token while the old one holds: a third of what a call has in all, which leaves it the time that it needs itself.
const PATIENCE: Duration = Duration::from_secs(5);
/// GitHub's tokens live an hour; a wrong clock must not make us believe in more.
const LIFETIME: Duration = Duration::from_secs(3600);
/// Scopes whose installation is remembered.
const REMEMBERED: usize = 4096;

/// Adds the `Authorization` header.
#[derive(Clone)]
pub(crate) enum Authentication {
    Fixed(HeaderValue),
    App(Arc<App>),
}

/// A GitHub App's side of authentication, with the tokens of its installations.
pub(crate) struct App {
    issuer: String,
    installation: Option<u64>,
    key: AppKey,
    api: String,
    installations: Mutex<HashMap<Scope, u64>>,
    tokens: Mutex<HashMap<u64, Arc<Slot>>>,
}

#[derive(Default)]
struct Slot {
    current: Mutex<Option<Token>>,
    renewal: tokio::sync::Mutex<()>,
}

#[derive(Clone)]
struct Token {
    header: HeaderValue,
    expires: Instant,
}

#[derive(Deserialize)]
struct Installation {
    id: u64,
}

#[derive(Deserialize)]
struct InstallationToken {
    token: String,
    expires_at: Timestamp,
}

impl Authentication {
    pub(crate) fn layer(self) -> impl Layer<Next, Service = Next> {
        layer_fn(move |next: Next| {
            let authentication = self.clone();
            service(move |mut request: Request| {
                let (next, authentication) = (next.clone(), authentication.clone());
                async move {
                    let app = match &authentication {
                        Self::Fixed(header) => {
                            request.headers_mut().insert(AUTHORIZATION, header.clone());
                            return next.oneshot(request).await;
                        }
                        Self::App(app) => app,
                    };
                    let Some(call) = request.extensions().get::<Call>().cloned() else {
                        return Err(Fault::Answer("a request without its purpose".to_owned()));
                    };
                    let Subject::Scope(scope) = &call.subject else {
                        let header = app.bearer(Timestamp::now()).map_err(Fault::Answer)?;
                        request.headers_mut().insert(AUTHORIZATION, header);
                        return next.oneshot(request).await;
                    };
                    let installation = app.installation(&next, &call, scope).await?;
                    let header = app.token(&next, &call, installation).await?;
                    request.headers_mut().insert(AUTHORIZATION, header.clone());
                    let response = next.oneshot(request).await?;
                    if response.status() == StatusCode::UNAUTHORIZED {
                        app.forget(installation, &header);
                    }
                    Ok(response)
                }
            })
        })
    }
}

impl App {
    pub(crate) fn new(issuer: String, installation: Option<u64>, key: AppKey, api: String) -> Self {
        Self { issuer, installation, key, api, installations: Mutex::default(), tokens: Mutex::default() }
    }

    async fn installation(&self, next: &Next, call: &Call, scope: &Scope) -> Result<u64, Fault> {
        if let Some(id) = self.installation {
            return Ok(id);
        }
        if let Some(id) = lock(&self.installations).get(scope) {
            return Ok(*id);
        }
        let path = format!("{}/installation", scope.api_path());
        let found: Installation = self.ask(next, Endpoint::FindInstallation, Method::GET, &path, call).await?.0;
        let mut installations = lock(&self.installations);
        if installations.len() >= REMEMBERED {
            installations.clear();
        }
        installations.insert(scope.clone(), found.id);
        Ok(found.id)
    }

    async fn token(&self, next: &Next, call: &Call, installation: u64) -> Result<HeaderValue, Fault> {
        let slot = Arc::clone(lock(&self.tokens).entry(installation).or_default());
        let known = slot.read();
        let left = known.as_ref().map_or(Duration::ZERO, |token| token.expires.saturating_duration_since(Instant::now()));
        let (Some(known), true) = (known, left > LATE) else {
            let _renewing = slot.renewal.lock().await;
            if let Some(token) = slot.read().filter(|token| token.expires > Instant::now() + LATE) {
                return Ok(token.header);
            }
            return self.renew(next, call, installation, &slot).await;
        };
        if left > EARLY {
            return Ok(known.header);
        }
        let Ok(_renewing) = slot.renewal.try_lock() else { return Ok(known.header) };
        let renewed = tokio::time::timeout(PATIENCE, self.renew(next, call, installation, &slot)).await;
        match renewed.unwrap_or(Err(Fault::Deadline(PATIENCE))) {
            Ok(header) => Ok(header),
            Err(error) => {
                tracing::warn!(%error, "the old installation token is used until it expires");
                Ok(known.header)
            }
        }
    }

    async fn renew(&self, next: &Next, call: &Call, installation: u64, slot: &Slot) -> Result<HeaderValue, Fault> {
        let path = format!("app/installations/{installation}/access_tokens");
        let asked = self.ask::<InstallationToken>(next, Endpoint::InstallationToken, Method::POST, &path, call).await;
        if matches!(&asked, Err(Fault::Refused(error)) if error.status() == Some(404)) {
            // The App was uninstalled, and perhaps installed again under another id.
            lock(&self.installations).retain(|_, id| *id != installation);
            lock(&self.tokens).remove(&installation);
        }
        let (answer, clock) = asked?;
        let mut header = HeaderValue::try_from(format!("Bearer {}", answer.token))
            .map_err(|_| Fault::Answer("an installation token with characters that no header can carry".to_owned()))?;
        header.set_sensitive(true);
        let lifetime = Duration::try_from(answer.expires_at.duration_since(clock)).unwrap_or_default().min(LIFETIME);
        slot.write(Some(Token { header: header.clone(), expires: Instant::now() + lifetime }));
        Ok(header)
    }

    /// Drops a refused token, unless another one took its place already.
    fn forget(&self, installation: u64, header: &HeaderValue) {
        let slot = lock(&self.tokens).get(&installation).cloned();
        if let Some(slot) = slot {
            let mut current = lock(&slot.current);
            if current.as_ref().is_some_and(|token| token.header == *header) {
                *current = None;
            }
        }
    }

    /// The App's own `Authorization`; else why there is none.
    fn bearer(&self, now: Timestamp) -> Result<HeaderValue, String> {
        let jwt = self.key.sign(&self.issuer, now)?;
        let mut bearer = HeaderValue::try_from(format!("Bearer {}", jwt.expose())).map_err(|error| error.to_string())?;
        bearer.set_sensitive(true);
        Ok(bearer)
    }

    /// One call as the App itself; also gives GitHub's clock.
    async fn ask<Answer: DeserializeOwned>(
        &self,
        next: &Next,
        endpoint: Endpoint,
        method: Method,
        path: &str,
        call: &Call,
    ) -> Result<(Answer, Timestamp), Fault> {
        let now = Timestamp::now();
        let call = Call::new(endpoint, call.subject.clone());
        let url = format!("{}{path}", self.api);
        let attempt = Attempt { call: call.clone(), method: method.clone(), url: url.clone(), credentials: CredentialKind::App };
        let failed = |kind, reason: String| Fault::Refused(attempt.clone().failed(kind, reason));
        let bearer = self.bearer(now).map_err(|reason| failed(ErrorKind::Invalid, reason))?;
        let request = http::Request::builder()
            .method(method)
            .uri(url)
            .header(AUTHORIZATION, bearer)
            .header(ACCEPT, "application/vnd.github+json")
            .header("x-github-api-version", "2022-11-28")
            .extension(call)
            .body(Bytes::new())
            .map_err(|error| failed(ErrorKind::Invalid, error.to_string()))?;
        let response = next.clone().oneshot(request).await?;
        let status = response.status();
        let clock = limit::clock_of(response.headers(), now);
        let response = checked(response).await.map_err(|error| Fault::Refused(attempt.clone().broken(error)))?;
        let answer = json::read(response.body()).map_err(|error| {
            Fault::Refused(attempt.clone().misanswered(ErrorKind::Decode, status, json::without_values(&error)))
        })?;
        Ok((answer, clock))
    }
}

impl Slot {
    fn read(&self) -> Option<Token> {
        lock(&self.current).clone()
    }

    fn write(&self, token: Option<Token>) {
        *lock(&self.current) = token;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use jiff::SignedDuration;
    use tower::BoxError;
    use tower::util::BoxCloneSyncService;

    use super::*;
    use crate::client::{ClientOptions, GitHub};
    use crate::credentials::{CredentialParts, Credentials, KeyFiles};
    use crate::endpoints::Endpoints;
    use crate::secret::Secret;

    type Answer = http::Response<Bytes>;

    /// A client of an App at a GitHub without runners, where `tokens` answers the requests for a token by their number, or leaves them without an
    /// answer. Also counts them.
    fn app(tokens: impl Fn(usize) -> Option<Answer> + Send + Sync + 'static) -> (GitHub, Arc<AtomicUsize>) {
        let (asked, tokens) = (Arc::new(AtomicUsize::new(0)), Arc::new(tokens));
        let count = Arc::clone(&asked);
        let answer = move |request: http::Request<Bytes>| {
            let answer = match request.uri().path().ends_with("/access_tokens") {
                true => tokens(count.fetch_add(1, Ordering::SeqCst)),
                false => Some(Answer::new(Bytes::from_static(br#"{"total_count":0,"runners":[]}"#))),
            };
            async move {
                // A network takes its time, in which others come to wait for the same token.
                tokio::time::sleep(Duration::from_millis(10)).await;
                match answer {
                    Some(answer) => Ok::<_, BoxError>(answer),
                    None => std::future::pending().await,
                }
            }
        };
        let parts = CredentialParts {
            app_id: Some("4242".into()),
            app_installation_id: Some("77".into()),
            app_private_key: Some(Secret::new(include_str!("../../tests/keys/app-pkcs1.pem"))),
            ..CredentialParts::default()
        };
        let credentials = Credentials::from_parts(parts, KeyFiles::Refused).unwrap();
        let transport = BoxCloneSyncService::new(tower::service_fn(answer));
        let client = GitHub::with_transport(credentials, Endpoints::default(), &ClientOptions::default(), transport).unwrap();
        (client, asked)
    }

    fn issued(lifetime: i64) -> Answer {
        let expires_at = Timestamp::now() + SignedDuration::from_secs(lifetime);
        let body = format!(r#"{{"token":"ghs_one","expires_at":"{expires_at}"}}"#);
        http::Response::builder().status(201).body(Bytes::from(body)).unwrap()
    }

    fn limited() -> Answer {
        let body = Bytes::from_static(br#"{"message":"slow down"}"#);
        http::Response::builder().status(403).header("retry-after", "60").body(body).unwrap()
    }

    fn acme() -> Scope {
        Scope::Organization("acme".into())
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_of_the_app_itself_stands_against_whoever_needs_a_token() {
        let (github, asked) = app(|number| Some(if number == 0 { limited() } else { issued(3_600) }));
        for round in 0..2 {
            let scope = acme();
            let answers = futures::future::join_all((0..10).map(|_| github.list_runners(&scope))).await;
            for error in answers.into_iter().map(Result::unwrap_err) {
                assert!(matches!(error.kind(), ErrorKind::RateLimited { secondary: true, .. }), "{error}");
            }
            assert_eq!((asked.load(Ordering::SeqCst), github.held_back()), (1, 9 + 10 * round));
        }
        tokio::time::advance(Duration::from_secs(61)).await;
        github.list_runners(&acme()).await.unwrap();
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_that_still_holds_bridges_a_renewal_without_an_answer() {
        let (github, asked) = app(|number| (number == 0).then(|| issued(200)));
        github.list_runners(&acme()).await.unwrap();
        let began = Instant::now();
        github.list_runners(&acme()).await.unwrap();
        assert_eq!((asked.load(Ordering::SeqCst), began.elapsed().as_secs()), (2, PATIENCE.as_secs()));
    }
}
