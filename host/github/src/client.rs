//! The client itself: one set of credentials at one GitHub instance.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_LENGTH, LINK, USER_AGENT};
use http::{HeaderValue, Method, StatusCode};
use http_body_util::BodyExt;
use jiff::{SignedDuration, Timestamp};
use octocrab::{AuthState, Octocrab, OctocrabBuilder};
use pacer_connect::{ConnectError, ProxyRules};
use pacer_core::allowance::{Cost, Purpose};
use pacer_core::scope::Scope;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tower::{ServiceBuilder, ServiceExt};

use crate::budget::{Budget, Budgets, Ledger};
use crate::call::{Call, Endpoint, Subject};
use crate::clock::Clock;
use crate::counters::{CacheUse, CallCount, Counters};
use crate::credentials::{ClientId, CredentialKind, Credentials, CredentialsError};
use crate::endpoints::Endpoints;
use crate::error::{Attempt, Error, ErrorKind, Fault};
use crate::jobs;
use crate::json;
use crate::memory::{AnswerMemory, Room, Share};
use crate::payer::Payer;
use crate::runners;
use crate::stack::auth::{App, Authentication};
use crate::stack::cache::{Cache, Unchanged, Version};
use crate::stack::transport::{self, Transport};
use crate::stack::turn::{self, Turn};
use crate::stack::{Next, Request, Response, admission, gate, meter, redirect, service};

/// Settings of a client; the default suits github.com.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Longest time one call may take with everything that it waits for.
    pub deadline: Duration,
    /// Calls in flight at a time, at least 1. GitHub allows 100 per credentials over all their users.
    pub concurrency: usize,
    /// Calls that may wait for their turn; more fail at once.
    pub queue: usize,
    /// `User-Agent` of every call.
    pub user_agent: String,
    /// Most bytes of answers kept for conditional requests; 0 keeps none. 1,000 runners take about 0.6 MB.
    pub cache_bytes: u64,
    /// PEM file with certificate authorities to trust beside the system's.
    pub ca_file: Option<PathBuf>,
    /// Most bytes of one listing of runners; what is beyond is not read, and the listing counts as incomplete. 10,000 runners take 6 MB.
    pub listing_bytes: usize,
    /// Somebody else than the operator's user chose the server: what it says in an error is not repeated, and its answers share this memory with
    /// those of others.
    pub foreign: Option<Arc<AnswerMemory>>,
    /// Which proxy to use.
    pub proxy: ProxyRules,
    /// What clients with the same credentials share of GitHub's limits.
    pub budgets: Arc<Budgets>,
}

impl ClientOptions {
    /// The same for a server that somebody else chose: less memory, shared with all of them, and none of its words.
    #[must_use]
    pub fn for_foreign(&self, memory: Arc<AnswerMemory>) -> Self {
        Self {
            cache_bytes: self.cache_bytes.min(4 << 20),
            listing_bytes: self.listing_bytes.min(8 << 20),
            foreign: Some(memory),
            ..self.clone()
        }
    }
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(15),
            concurrency: 32,
            queue: 1024,
            user_agent: concat!("pacer/", env!("CARGO_PKG_VERSION")).to_owned(),
            cache_bytes: 16 << 20,
            ca_file: None,
            listing_bytes: 32 << 20,
            foreign: None,
            proxy: ProxyRules::Environment,
            budgets: Arc::default(),
        }
    }
}

/// Why no client can be made.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The credentials cannot be sent.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// No connections can be made.
    #[error(transparent)]
    Transport(#[from] ConnectError),
    /// Not a header value.
    #[error("the user agent {0:?} contains characters that no header can carry")]
    UserAgent(String),
    /// A client lives in a tokio runtime.
    #[error("a GitHub client was made outside of a tokio runtime")]
    NoRuntime,
}

/// A client for one set of credentials at one GitHub instance: cheap to clone, all clones share connections, cache and budget.
///
/// Calls never sleep on rate limits, are never repeated, and end within [`ClientOptions::deadline`].
#[derive(Clone)]
pub struct GitHub(Arc<Shared>, Option<Arc<dyn Payer>>);

struct Shared {
    octocrab: Octocrab,
    endpoints: Endpoints,
    credentials: CredentialKind,
    id: ClientId,
    ledger: Arc<Ledger>,
    counters: Arc<Counters>,
    clock: Arc<Clock>,
    cache: Cache,
    listing_bytes: usize,
    share: Option<Share>,
    runners: Mutex<HashMap<Scope, runners::LastListing>>,
    queues: Mutex<HashMap<jobs::Repository, Arc<jobs::LastListing>>>,
}

/// What octocrab's calls answer with.
pub(crate) type Answer = http::Response<http_body_util::combinators::BoxBody<Bytes, octocrab::Error>>;

impl GitHub {
    /// A client over real connections. Nothing is sent yet. Must be called within a tokio runtime, where the client's queue runs
    /// until its last clone is dropped.
    ///
    /// # Errors
    ///
    /// When the credentials cannot be sent, the CA file cannot be used, or there is no runtime.
    pub fn new(credentials: Credentials, endpoints: Endpoints, options: &ClientOptions) -> Result<Self, ClientError> {
        let share = options.foreign.clone().map(Share::new);
        let transport = transport::connect(endpoints.api(), options.ca_file.as_deref(), &options.proxy, share.clone())?;
        Self::build(credentials, endpoints, options, transport, share)
    }

    /// A client over another transport: for tests in memory, and networks that are reached in some other way.
    ///
    /// # Errors
    ///
    /// As [`GitHub::new`].
    pub fn with_transport(
        credentials: Credentials,
        endpoints: Endpoints,
        options: &ClientOptions,
        transport: Transport,
    ) -> Result<Self, ClientError> {
        Self::build(credentials, endpoints, options, transport, options.foreign.clone().map(Share::new))
    }

    fn build(
        credentials: Credentials,
        endpoints: Endpoints,
        options: &ClientOptions,
        transport: Transport,
        share: Option<Share>,
    ) -> Result<Self, ClientError> {
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(ClientError::NoRuntime);
        }
        let user_agent =
            HeaderValue::try_from(options.user_agent.as_str()).map_err(|_| ClientError::UserAgent(options.user_agent.clone()))?;
        let (kind, id) = (credentials.kind(), credentials.at(&endpoints));
        let per_owner = matches!(&credentials, Credentials::App { installation_id: None, .. });
        let authentication = authentication(credentials, &endpoints)?;
        let (ledger, counters) = (options.budgets.of(&id, per_owner), Arc::new(Counters::default()));
        let clock = Arc::new(Clock::default());
        let cache = Cache::new(options.cache_bytes);
        let stack: Next = ServiceBuilder::new()
            .layer(gate::layer(Arc::clone(&ledger), Arc::clone(&counters)))
            .layer(cache.layer())
            .layer(authentication.layer())
            // The App's own calls are those of another account, and many may have waited for the first one to be refused.
            .layer(gate::layer(Arc::clone(&ledger), Arc::clone(&counters)))
            .layer(turn::layer(Arc::clone(&ledger), Arc::clone(&counters)))
            .layer(meter::layer(Arc::clone(&ledger), Arc::clone(&counters), Arc::clone(&clock)))
            .layer(redirect::layer())
            .service(innermost(transport, user_agent, options.foreign.is_some()));
        let entrance = admission::entrance(stack, options.deadline, options.concurrency, options.queue);
        let built = OctocrabBuilder::new_empty().with_service(entrance).with_auth(AuthState::None).build();
        let octocrab = match built {
            Ok(octocrab) => octocrab,
            Err(never) => match never {},
        };
        let (runners, queues) = (Mutex::default(), Mutex::default());
        let shared = Shared {
            octocrab,
            endpoints,
            credentials: kind,
            id,
            ledger,
            counters,
            clock,
            cache,
            listing_bytes: options.listing_bytes,
            share,
            runners,
            queues,
        };
        Ok(Self(Arc::new(shared), None))
    }

    /// The same client, whose calls from here on are paid by somebody, or by nobody.
    #[must_use]
    pub fn paid_by(&self, payer: Option<Arc<dyn Payer>>) -> Self {
        Self(Arc::clone(&self.0), payer)
    }

    /// Whether somebody else holds a clone of this client.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Who pays for the calls of this client, as set by [`Self::paid_by`]; none where nobody does.
    #[must_use]
    pub fn payer(&self) -> Option<&Arc<dyn Payer>> {
        self.1.as_ref()
    }

    fn call(&self, endpoint: Endpoint, subject: impl Into<Subject>) -> Call {
        Call { payer: self.1.clone(), ..Call::new(endpoint, subject) }
    }

    /// Identifies credentials and instance, to share what belongs to both.
    #[must_use]
    pub fn id(&self) -> &ClientId {
        &self.0.id
    }

    /// Base URLs of the GitHub instance that calls go to.
    #[must_use]
    pub fn endpoints(&self) -> &Endpoints {
        &self.0.endpoints
    }

    /// The kind of credentials.
    #[must_use]
    pub fn credentials(&self) -> CredentialKind {
        self.0.credentials
    }

    /// The budget that calls for a scope are charged to: none before the first answer, on instances without limits, and between
    /// the end of one window and the next answer.
    #[must_use]
    pub fn budget(&self, scope: &Scope) -> Option<Budget> {
        self.0.ledger.of(scope)
    }

    /// So many processes use these credentials, this one included, and have the same part of what GitHub allows in a minute; and so many
    /// shards list with them, each of which leaves as much of an hour's budget to every other one as it takes.
    pub fn share(&self, processes: u32, shards: u32) {
        self.0.ledger.share(processes, shards);
    }

    /// Shards that list with these credentials; each knows of its own listings only.
    pub(crate) fn shards(&self) -> u32 {
        self.0.ledger.registries()
    }

    /// Every budget known, for metrics.
    #[must_use]
    pub fn budgets(&self) -> Vec<Budget> {
        self.0.ledger.all()
    }

    /// Until when a secondary limit stands against these credentials; none when none does.
    #[must_use]
    pub fn secondary_limit(&self) -> Option<Timestamp> {
        self.0.ledger.secondary()
    }

    /// How far GitHub's clock is ahead of this machine's, in whole seconds; negative where it is behind. None before the first answer.
    #[must_use]
    pub fn clock_ahead(&self) -> Option<SignedDuration> {
        self.0.clock.ahead()
    }

    /// Every call that was sent, by endpoint and outcome.
    #[must_use]
    pub fn calls(&self) -> Vec<CallCount> {
        self.0.counters.calls()
    }

    /// Calls that were not sent because a rate limit stood.
    #[must_use]
    pub fn held_back(&self) -> u64 {
        self.0.counters.held_back()
    }

    /// How often a call was put off until its turn, so that GitHub's limits of a minute are kept.
    #[must_use]
    pub fn deferred(&self) -> [(Purpose, u64); Purpose::ALL.len()] {
        self.0.counters.deferred()
    }

    /// State of the conditional cache.
    #[must_use]
    pub fn cache(&self) -> CacheUse {
        self.0.cache.usage()
    }

    /// Most bytes of one listing of runners.
    pub(crate) fn listing_bytes(&self) -> usize {
        self.0.listing_bytes
    }

    pub(crate) fn runners_memory(&self) -> &Mutex<HashMap<Scope, runners::LastListing>> {
        &self.0.runners
    }

    pub(crate) fn queues_memory(&self) -> &Mutex<HashMap<jobs::Repository, Arc<jobs::LastListing>>> {
        &self.0.queues
    }

    /// Sends a request without body; `resource` is put behind the path of what it is about. Gives GitHub's answer whatever its
    /// status, and what an error about it needs to know.
    pub(crate) async fn send(
        &self,
        method: Method,
        endpoint: Endpoint,
        subject: impl Into<Subject>,
        resource: &str,
    ) -> Result<(Answer, Attempt), Error> {
        self.dispatch(method, self.call(endpoint, subject), resource, None::<&()>).await
    }

    /// The same with a body.
    pub(crate) async fn send_with<B: Serialize + ?Sized>(
        &self,
        method: Method,
        endpoint: Endpoint,
        subject: impl Into<Subject>,
        resource: &str,
        body: &B,
    ) -> Result<(Answer, Attempt), Error> {
        self.dispatch(method, self.call(endpoint, subject), resource, Some(body)).await
    }

    /// Asks for the turns of several GETs at once, of which none has to wait once the others are made; `part` tells those of one subject apart.
    pub(crate) fn turn(&self, endpoint: Endpoint, subject: impl Into<Subject>, part: &str, calls: u32) -> Result<Turn, Error> {
        let call = self.call(endpoint, subject);
        let cost = Cost { points: calls, creations: 0 };
        Turn::take(&self.0.ledger, &self.0.counters, &call, (&call.subject, part), cost, calls).map_err(|fault| {
            let url = format!("{}{}/{part}", self.0.endpoints.api(), call.subject.path());
            Attempt { call, method: Method::GET, url, credentials: self.0.credentials }.stopped(fault)
        })
    }

    async fn dispatch<B: Serialize + ?Sized>(
        &self,
        method: Method,
        call: Call,
        resource: &str,
        body: Option<&B>,
    ) -> Result<(Answer, Attempt), Error> {
        let url = format!("{}{}/{resource}", self.0.endpoints.api(), call.subject.path());
        let attempt = Attempt { call: call.clone(), method: method.clone(), url, credentials: self.0.credentials };
        if !call.subject.names().into_iter().all(is_name) {
            let reason =
                "the name has characters that names at GitHub cannot have: letters, digits, '-', '_' and '.' are allowed";
            return Err(attempt.failed(ErrorKind::Invalid, reason));
        }
        if call.subject == Subject::App && self.0.credentials != CredentialKind::App {
            return Err(attempt.failed(ErrorKind::Invalid, "only the App itself may do this, and these are no App's credentials"));
        }
        let builder = http::Request::builder().method(method).uri(attempt.url.as_str()).header(ACCEPT, ACCEPTED).extension(call);
        let answer = match self.0.octocrab.build_request(builder, body) {
            Ok(request) => self.0.octocrab.execute(request).await,
            Err(error) => Err(error),
        };
        match answer {
            Ok(answer) => Ok((answer, attempt)),
            Err(error) => Err(attempt.broken(error)),
        }
    }

    /// Reads a resource, conditionally.
    pub(crate) async fn get(&self, endpoint: Endpoint, subject: impl Into<Subject>, resource: &str) -> Result<Read, Error> {
        self.read(self.call(endpoint, subject), resource).await
    }

    /// The same for one of several whose turns were asked for together.
    pub(crate) async fn get_in_turn(
        &self,
        _turn: &Turn,
        endpoint: Endpoint,
        subject: impl Into<Subject>,
        resource: &str,
    ) -> Result<Read, Error> {
        self.read(Call { granted: true, ..Call::new(endpoint, subject) }, resource).await
    }

    async fn read(&self, call: Call, resource: &str) -> Result<Read, Error> {
        let (answer, attempt) = self.dispatch(Method::GET, call, resource, None::<&()>).await?;
        let answer = success(answer, &attempt).await?;
        let status = answer.status();
        let version = answer.extensions().get::<Version>().copied();
        let paid = answer.extensions().get::<Unchanged>().is_none();
        let next = answer.headers().get(LINK).and_then(|link| next_page(link.to_str().ok()?));
        let body = body(answer, &attempt).await?;
        Ok(Read { version, paid, next, body, status, attempt, cache: self.0.cache.clone(), share: self.0.share.clone() })
    }

    /// Reads all pages of a listing, following GitHub's links.
    pub(crate) async fn get_all<T: DeserializeOwned>(
        &self,
        endpoint: Endpoint,
        subject: impl Into<Subject>,
        resource: &str,
        query: &str,
    ) -> Result<Vec<T>, Error> {
        let (subject, mut query, mut pages, mut bytes) = (subject.into(), query.to_owned(), Vec::new(), 0_usize);
        loop {
            let read = self.get(endpoint, subject.clone(), &format!("{resource}?{query}")).await?;
            bytes = bytes.saturating_add(read.len());
            if bytes > self.listing_bytes() {
                let reason = format!("the listing has more than {} bytes", self.listing_bytes());
                return Err(read.attempt.misanswered(ErrorKind::Decode, read.status, reason));
            }
            pages.push(read.json()?);
            match read.next {
                None => return Ok(pages),
                Some(_) if pages.len() >= PAGES => {
                    let reason = format!("the listing has more than {PAGES} pages");
                    return Err(read.attempt.misanswered(ErrorKind::Decode, read.status, reason));
                }
                Some(next) => query = next,
            }
        }
    }
}

/// What answers may be.
const ACCEPTED: &str = "application/vnd.github+json";
/// Pages of one listing that are followed.
const PAGES: usize = 100;

/// The answer to a GET request, with what tells whether it is new and where the next page is.
pub(crate) struct Read {
    /// Equal versions mean equal content.
    pub(crate) version: Option<Version>,
    /// Whether it changed, and so was charged to the primary limit.
    pub(crate) paid: bool,
    /// Query of the page after this one, as GitHub links it.
    pub(crate) next: Option<String>,
    body: Bytes,
    status: StatusCode,
    attempt: Attempt,
    cache: Cache,
    share: Option<Share>,
}

impl Read {
    /// The content; what cannot be read is not kept to be confirmed later.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, Error> {
        json::read(&self.body).map_err(|error| {
            self.cache.forget(&self.attempt.url, HeaderValue::from_static(ACCEPTED));
            self.attempt.clone().misanswered(ErrorKind::Decode, self.status, json::without_values(&error))
        })
    }

    /// Room for so many bytes of what is made of this.
    pub(crate) fn room(&self, bytes: usize) -> Result<Room, Error> {
        let Some(share) = &self.share else { return Ok(None) };
        let mut held = share.room();
        held.grow(bytes).map_err(|full| self.attempt.clone().failed(ErrorKind::Saturated, full.to_string()))?;
        Ok(Some(Arc::new(held)))
    }

    /// Bytes of the content.
    pub(crate) fn len(&self) -> usize {
        self.body.len()
    }

    /// An answer that reads well and says what GitHub never says.
    pub(crate) fn absurd(&self, why: &str) -> Error {
        self.attempt.clone().misanswered(ErrorKind::Decode, self.status, why)
    }
}

/// The query of the URL that a `Link` header calls the next page.
fn next_page(link: &str) -> Option<String> {
    let (target, _) = link
        .split(',')
        .filter_map(|link| link.split_once(';'))
        .find(|(_, rest)| rest.split(';').any(|parameter| matches!(parameter.trim(), "rel=\"next\"" | "rel=next")))?;
    let url = target.trim().strip_prefix('<')?.strip_suffix('>')?;
    let (_, query) = url.split_once('?')?;
    Some(query.to_owned())
}

/// Turns an answer that is no success into an error.
pub(crate) async fn success(answer: Answer, attempt: &Attempt) -> Result<Answer, Error> {
    octocrab::map_github_error(answer).await.map_err(|error| attempt.clone().broken(error))
}

/// The whole body of an answer.
pub(crate) async fn body(answer: Answer, attempt: &Attempt) -> Result<Bytes, Error> {
    let collected = answer.into_body().collect().await;
    collected.map(|body| body.to_bytes()).map_err(|error| attempt.clone().broken(error))
}

fn authentication(credentials: Credentials, endpoints: &Endpoints) -> Result<Authentication, ClientError> {
    if let Some(header) = credentials.fixed_header() {
        return Ok(Authentication::Fixed(header?));
    }
    match credentials {
        Credentials::App { app_id, installation_id, private_key } => {
            Ok(Authentication::App(Arc::new(App::new(app_id, installation_id, private_key, endpoints.api().to_owned()))))
        }
        Credentials::Token(_) | Credentials::Basic { .. } => Err(ClientError::Credentials(CredentialsError::Missing)),
    }
}

/// The end of the stack: what is the same for every request, then the transport.
fn innermost(transport: Transport, user_agent: HeaderValue, foreign: bool) -> Next {
    service(move |mut request: Request| {
        request.headers_mut().insert(USER_AGENT, user_agent.clone());
        // octocrab sets 0 even on GETs; hyper knows better.
        request.headers_mut().remove(CONTENT_LENGTH);
        let transport = transport.clone();
        async move {
            let answer = transport.oneshot(request).await.map_err(Fault::Network)?;
            Ok(if foreign { speechless(answer) } else { answer })
        }
    })
}

/// A refusal without the server's words, which would end in conditions and Events for everybody to read: whoever chose the server may have
/// chosen one that only the operator can reach.
fn speechless(answer: Response) -> Response {
    let status = answer.status();
    if status.is_success() || status == StatusCode::NOT_MODIFIED {
        return answer;
    }
    let (mut parts, _) = answer.into_parts();
    let quoted = ["x-accepted-github-permissions", "x-accepted-oauth-scopes", "x-oauth-scopes", "x-github-request-id"];
    for name in quoted {
        parts.headers.remove(name);
    }
    Response::from_parts(parts, Bytes::from_static(b"{\"message\":\"its words are not repeated here\"}"))
}

/// Whether something can be a name at GitHub, and so cannot change the path that it becomes a part of.
fn is_name(part: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !part.is_empty() && part != "." && part != ".." && part.chars().all(allowed)
}

impl fmt::Debug for GitHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GitHub")
            .field("api", &self.0.endpoints.api())
            .field("credentials", &self.0.credentials)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_foreign_server_are_not_repeated() {
        let answer = |status: u16| {
            let answer = http::Response::builder().status(status).header("x-oauth-scopes", "secret").header("retry-after", "5");
            answer.body(Bytes::from_static(b"{\"message\":\"secret\"}")).unwrap()
        };
        for status in [302, 400, 401, 422, 500] {
            let said = speechless(answer(status));
            assert!(!format!("{said:?}").contains("secret") && said.headers().contains_key("retry-after"), "{said:?}");
        }
        assert_eq!(speechless(answer(200)).body(), answer(200).body());
    }

    #[test]
    fn the_next_page_is_found_among_links() {
        let table = [
            ("<https://h/x?page=2>; rel=\"next\", <https://h/x?page=9>; rel=\"last\"", Some("page=2")),
            (
                "<https://h/x?page=1>; rel=\"prev\", <https://h/x?per_page=5&cursor=v1_7>; rel=\"next\"",
                Some("per_page=5&cursor=v1_7"),
            ),
            ("<https://h/x?page=2>; title=\"a\"; rel=next", Some("page=2")),
            ("<https://h/x?page=1>; rel=\"prev\"", None),
            ("<https://h/x>; rel=\"next\"", None),
            ("page=2; rel=\"next\"", None),
            ("", None),
        ];
        for (link, expected) in table {
            assert_eq!(next_page(link).as_deref(), expected, "{link}");
        }
    }
}
