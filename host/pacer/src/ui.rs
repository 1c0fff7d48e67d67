//! A page for people: runners, queue, capacity and decisions as they are now, read-only. `pacer run --ui-addr`; docs/page.md. `pacer ui --trace`
//! shows the same of each moment of a trace.
//!
//! ```text
//! stores --Builder, once a second while somebody looks--> Snapshot --Delta--> feed --server-sent events--> viewers (20 at most)
//! trace --Past--> Snapshot of the moment that a viewer chose
//! ```
//!
//! The page itself is in `ui/page`: HTML, CSS and JavaScript as they are served, without a build step.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use futures::stream;
use jiff::Timestamp;
use pacer_operator::metrics::{HttpServer, Metrics};
use pacer_operator::snapshot::Builder;
use serde::Deserialize;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Duration, Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::health::Health;
use crate::listen::{self, Bounds, Listener, Slot};
use crate::signal::stop_on_signal;

mod access;
mod feed;
mod files;
mod past;
mod report;

use access::{Access, Refused};
use feed::{Feed, Visit};
use past::Past;
use report::Report;

/// How long a viewer is told of changes on one connection; then its browser connects again. Shorter than a connection lives.
const VISIT: Duration = Duration::from_secs(240);

/// Longest time until the first snapshot is made.
const FIRST: Duration = Duration::from_secs(10);

/// When somebody for whom there is no room may try again, in seconds.
const AGAIN: &str = "10";

/// The server of the page.
pub(crate) struct Server {
    listener: Listener,
    address: SocketAddr,
    access: Access,
}

/// What requests are answered with.
#[derive(Clone)]
struct Page {
    access: Arc<Access>,
    source: Source,
}

/// Where what is shown comes from.
#[derive(Clone)]
enum Source {
    /// Snapshots of the operator that serves the page.
    Live(Feed),
    /// A trace, and what `pacer simulate` made of it.
    Past(Arc<Past>, Option<Report>),
}

/// Arguments of `pacer ui`.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// The trace: a file, or a directory into which the operator records.
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,
    /// Address of the page. Unless it is a loopback address, a token is required.
    #[arg(long, default_value = "127.0.0.1:8090", value_name = "ADDRESS")]
    ui_addr: String,
    /// File with the token that the page requires, at least 16 characters.
    #[arg(long, value_name = "FILE")]
    ui_token_file: Option<PathBuf>,
    /// Output of `pacer simulate --output json`: the page shows its policies side by side.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// `pacer ui`: serves the page over a trace until SIGINT or SIGTERM.
pub(crate) fn main(arguments: Arguments) -> anyhow::Result<()> {
    let report = arguments.report.as_deref().map(Report::read).transpose()?;
    let past = Past::of(pacer_trace::read(&arguments.trace)?.trace);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting the runtime")?;
    runtime.block_on(async {
        let server = Server::bind(&arguments.ui_addr, arguments.ui_token_file).await?;
        let stop = CancellationToken::new();
        let signals = stop_on_signal(stop.clone())?;
        let (address, trace) = (server.address(), arguments.trace.display());
        // Who closed the terminal does not see it.
        let _closed =
            writeln!(std::io::stderr(), "http://{address}/ shows {trace} from {} to {}; Ctrl-C ends it", past.from, past.to);
        tokio::try_join!(server.run_over(past, report, stop), signals)?;
        Ok(())
    })
}

impl Server {
    /// Binds the address. One that others can reach takes a token.
    pub(crate) async fn bind(address: &str, token_file: Option<PathBuf>) -> anyhow::Result<Self> {
        let listener = listen::bind(address).await.context("the page of --ui-addr")?;
        let bound = listener.address()?;
        let access = Access::new(bound, token_file).await?;
        Ok(Self { listener, address: bound, access })
    }

    /// The address that it is bound to.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves the page of a running operator until `stop`.
    pub(crate) async fn run(self, health: Arc<Health>, metrics: Arc<Metrics>, stop: CancellationToken) -> anyhow::Result<()> {
        let connections = metrics.connections(HttpServer::Page);
        let builder = Builder::new(metrics, env!("CARGO_PKG_VERSION"));
        let feed = Feed::new(connections.clone());
        let mut telling = JoinSet::new();
        telling.spawn(builder.clone().follow(stop.clone()));
        telling.spawn(feed.clone().run(move |number, now| builder.build(health.role(), number, now), stop.clone()));
        let page = Page { access: Arc::new(self.access), source: Source::Live(feed) };
        let served = listen::serve(self.listener, router(page), Bounds::PAGE, connections, stop).await;
        while let Some(ended) = telling.join_next().await {
            ended.context("the feed of the page panicked")?;
        }
        served
    }

    /// Serves a trace until `stop`.
    async fn run_over(self, past: Past, report: Option<Report>, stop: CancellationToken) -> anyhow::Result<()> {
        let connections = Metrics::default().connections(HttpServer::Page);
        let page = Page { access: Arc::new(self.access), source: Source::Past(Arc::new(past), report) };
        listen::serve(self.listener, router(page), Bounds::PAGE, connections, stop).await
    }
}

fn router(page: Page) -> Router {
    Router::new()
        .route("/", get(index))
        .route("/events", get(events))
        .route("/snapshot.json", get(snapshot))
        .route("/report.json", get(simulated))
        .route("/{file}", get(file))
        .layer(middleware::from_fn_with_state(page.clone(), guard))
        .with_state(page)
}

/// What every request has to pass, and what every answer carries.
async fn guard(State(page): State<Page>, request: Request, next: Next) -> Response {
    let response = if matches!(*request.method(), Method::GET | Method::HEAD) {
        match page.access.admit(request.headers()).await {
            Ok(()) => next.run(request).await,
            Err(refused) => {
                let (head, _body) = request.into_parts();
                sign_in(&page, &head.uri, &head.headers, &refused).await
            }
        }
    } else {
        let text = "this page only shows: GET and HEAD are all it answers\n";
        (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, "GET, HEAD")], text).into_response()
    };
    secured(response)
}

/// The query of the first request of somebody who has a link with the token.
#[derive(Debug, Default, Deserialize)]
struct Link {
    token: Option<String>,
}

/// Exchanges the token of a link for a cookie, so that it stays neither in the address bar nor in the history.
async fn sign_in(page: &Page, uri: &Uri, headers: &HeaderMap, refused: &Refused) -> Response {
    let link = Query::<Link>::try_from_uri(uri).map(|Query(link)| link).unwrap_or_default();
    if let (Some(token), "/") = (link.token, uri.path()) {
        let secure = headers.get("x-forwarded-proto").is_some_and(|proto| proto == "https");
        match page.access.exchange(&token, secure).await {
            Ok(cookie) => {
                return (StatusCode::SEE_OTHER, [(header::LOCATION, "./".to_owned()), (header::SET_COOKIE, cookie)])
                    .into_response();
            }
            Err(refused) => return refusal(&refused),
        }
    }
    refusal(refused)
}

fn refusal(refused: &Refused) -> Response {
    let (status, text) = (refused.status(), format!("{refused}\n"));
    match status {
        StatusCode::UNAUTHORIZED => (status, [(header::WWW_AUTHENTICATE, "Bearer")], text).into_response(),
        _ => (status, text).into_response(),
    }
}

/// Only what this server sends may run, and nobody may frame it, keep it, or learn its address.
fn secured(mut response: Response) -> Response {
    const HEADERS: [(&str, &str); 7] = [
        (
            "content-security-policy",
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
             frame-ancestors 'none'",
        ),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cache-control", "no-store"),
    ];
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

async fn index(State(page): State<Page>) -> Response {
    match &page.source {
        Source::Live(_) => files::INDEX.response(),
        Source::Past(past, report) => files::index_over(past.from, past.to, report.is_some()),
    }
}

async fn file(Path(name): Path<String>) -> Response {
    files::find(&name).map_or_else(|| StatusCode::NOT_FOUND.into_response(), files::File::response)
}

fn no_room() -> Response {
    let text = format!("{} people are watching already, which is all there is room for\n", feed::VIEWERS);
    (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, AGAIN)], text).into_response()
}

/// The whole snapshot first, then what changes. One who reads too slowly loses the connection.
async fn events(State(page): State<Page>, slot: Option<Extension<Slot>>) -> Response {
    let end = slot.map_or_else(CancellationToken::new, |Extension(slot)| slot.end());
    let Source::Live(feed) = &page.source else {
        return (StatusCode::NOT_FOUND, "nothing changes in a trace: ask for snapshot.json?at=TIME\n").into_response();
    };
    let Some(visit) = feed.join(end) else { return no_room() };
    let until = Instant::now() + VISIT;
    let events = stream::unfold(visit, move |mut visit| async move {
        let event = timeout_at(until, visit.next()).await.ok().flatten()?;
        Some((Ok::<Bytes, std::convert::Infallible>(event), visit))
    });
    let head = [(header::CONTENT_TYPE, "text/event-stream"), (header::HeaderName::from_static("x-accel-buffering"), "no")];
    (head, Body::from_stream(events)).into_response()
}

/// Which moment of a trace is asked for.
#[derive(Debug, Default, Deserialize)]
struct Moment {
    at: Option<Timestamp>,
}

/// What the page shows, as JSON; of a trace at its end, unless another moment is asked for.
async fn snapshot(State(page): State<Page>, Query(moment): Query<Moment>) -> Response {
    let feed = match &page.source {
        Source::Live(_) if moment.at.is_some() => {
            return (StatusCode::BAD_REQUEST, "only a trace has other moments than now: pacer ui --trace\n").into_response();
        }
        Source::Live(feed) => feed,
        Source::Past(past, _) => return moment_of(past.clone(), moment.at).await,
    };
    let Some(mut visit) = feed.join(CancellationToken::new()) else { return no_room() };
    match timeout_at(Instant::now() + FIRST, visit.next()).await.ok().flatten().and_then(|event| Visit::data(&event)) {
        Some(json) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
        None => {
            (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, AGAIN)], "no snapshot was made in time\n").into_response()
        }
    }
}

/// What `pacer simulate` found, as it was given.
async fn simulated(State(page): State<Page>) -> Response {
    match page.source {
        Source::Past(_, Some(report)) => ([(header::CONTENT_TYPE, "application/json")], report.json()).into_response(),
        Source::Past(_, None) | Source::Live(_) => {
            (StatusCode::NOT_FOUND, "no report was given: pacer ui --trace FILE --report FILE\n").into_response()
        }
    }
}

/// A thousand records may lie between a moment and what is kept.
async fn moment_of(past: Arc<Past>, at: Option<Timestamp>) -> Response {
    let made = spawn_blocking(move || serde_json::to_vec(&past.at(at.unwrap_or(past.to)))).await;
    match made {
        Ok(Ok(json)) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
        Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

#[cfg(test)]
mod tests;
