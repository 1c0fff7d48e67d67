//! HTTP: connections, faults, the log.

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::stream;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
};
use tokio_util::task::TaskTracker;

use super::{
    call::Call,
    conformance::Instance,
    endpoint::{Answer, Asked},
    fault::{Effect, Spoil},
    listing::Query,
    route::Route,
    state::Shared,
};

/// Where GitHub Enterprise Server has its API.
const ENTERPRISE_PREFIX: &str = "/api/v3";
/// Nothing that is sent to this API is longer.
const LONGEST_BODY: usize = 1 << 20;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The connection is to be cut instead of an answer.
#[derive(Debug, thiserror::Error)]
#[error("connection cut by an injected fault")]
struct Cut;

/// A connection that ends with a reset when it was cut.
struct Socket {
    stream: TcpStream,
    cut: Arc<AtomicBool>,
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.cut.load(Ordering::Relaxed) {
            // Best effort: without it the client sees an orderly end in place of a reset.
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.cut.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Accepts connections until the simulation stops; `connections` holds their tasks.
pub(super) async fn serve(shared: Arc<Shared>, listener: TcpListener, connections: TaskTracker) {
    loop {
        let accepted: io::Result<(TcpStream, SocketAddr)> = tokio::select! {
            () = shared.stopping.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "simulated GitHub cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            }
        };
        // Answers are small: waiting to fill a packet only delays them.
        let _ = stream.set_nodelay(true);
        connections.spawn(connection(Arc::clone(&shared), stream));
    }
}

async fn connection(shared: Arc<Shared>, stream: TcpStream) {
    let cut = Arc::new(AtomicBool::new(false));
    let service = service_fn(|request| {
        let (shared, cut) = (Arc::clone(&shared), Arc::clone(&cut));
        async move {
            let answer = exchange(&shared, request).await;
            if answer.is_err() {
                cut.store(true, Ordering::Relaxed);
            }
            answer
        }
    });
    let io = TokioIo::new(Socket { stream, cut: Arc::clone(&cut) });
    tokio::select! {
        () = shared.stopping.cancelled() => {}
        ended = http1::Builder::new().serve_connection(io, service) => {
            if let Err(error) = ended {
                tracing::debug!(%error, "connection to simulated GitHub ended");
            }
        }
    }
}

async fn exchange(shared: &Shared, request: Request<Incoming>) -> Result<Response<Body>, Cut> {
    let (parts, body) = request.into_parts();
    let Ok(body) = Limited::new(body, LONGEST_BODY).collect().await else { return Err(Cut) };
    let body = body.to_bytes();
    let has_body = !body.is_empty();
    let full = parts.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let (prefix, path) = match parts.uri.path().strip_prefix(ENTERPRISE_PREFIX) {
        Some(rest) if rest.starts_with('/') => (ENTERPRISE_PREFIX, rest),
        _ => ("", parts.uri.path()),
    };
    let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let (route, spoil, origin, takes) = shared.with(|state| {
        let route = Route::parse(&parts.method, path, &state.accounts);
        let spoil = state.faults.meet(route.as_ref(), &full);
        let takes = state.chance.within(&state.settings.behaviour.page_takes);
        (route, spoil, state.origin.clone(), takes)
    });
    if route.as_ref().is_some_and(|route| route.kind.has_long_pages()) && !takes.is_zero() {
        tokio::time::sleep(takes).await;
    }
    let asked = Asked {
        method: &parts.method,
        base: host.map_or_else(|| format!("{origin}{prefix}"), |host| format!("http://{host}{prefix}")),
        path,
        query: Query::parse(parts.uri.query().unwrap_or_default()),
        headers: &parts.headers,
        body: &body,
    };
    let conditional = parts.headers.contains_key(header::IF_NONE_MATCH);
    let record = |status: u16, caller: &str| {
        shared.with(|state| {
            let at = state.now();
            state.calls.record(Call {
                at,
                method: parts.method.to_string(),
                route: route.as_ref().map(|route| route.kind),
                template: route.as_ref().map_or("", Route::template),
                path: full.clone(),
                status,
                conditional,
                caller: caller.to_owned(),
            });
            state.signals.changed = true;
        });
    };
    let instance = if prefix.is_empty() { Instance::Cloud } else { Instance::Server };
    let template = route.as_ref().map_or("", Route::template);
    shared.conformance.request(instance, &parts.method, template, &parts.uri, has_body);
    let answer = || {
        let answer = shared.with(|state| {
            let answer = state.answer(&asked, route.as_ref());
            let date = state.date();
            date.into_iter().fold(answer, |answer, date| answer.header("date", date))
        });
        shared.conformance.answer(instance, &parts.method, template, answer.status.as_u16(), &answer.body);
        answer
    };

    let Some(Spoil { effect, performed }) = spoil else {
        let answer = answer();
        record(answer.status.as_u16(), &answer.caller);
        return Ok(respond(answer));
    };
    // The moment at which the request takes effect is part of the fault.
    let (answer, cut) = match effect {
        Effect::Delay(delay) if performed => {
            let answer = answer();
            record(answer.status.as_u16(), &answer.caller);
            tokio::time::sleep(delay).await;
            return Ok(respond(answer));
        }
        Effect::Delay(delay) => {
            tokio::time::sleep(delay).await;
            (answer(), false)
        }
        Effect::TruncatedJson => {
            let mut answer = answer();
            answer.body.truncate(answer.body.len() / 2);
            (answer, false)
        }
        Effect::SlowBody { pieces, pause } => {
            let answer = answer();
            record(answer.status.as_u16(), &answer.caller);
            return Ok(respond_slowly(answer, pieces, pause));
        }
        Effect::Status(status) => {
            let done = performed.then(answer);
            (spoilt(Answer::fault(status), done), false)
        }
        Effect::SecondaryLimit { retry_after } => {
            let done = performed.then(answer);
            (spoilt(Answer::secondary_limit(retry_after), done), false)
        }
        Effect::Reset => (spoilt(Answer::fault(0), performed.then(answer)), true),
        Effect::Hang => {
            let done = performed.then(answer);
            record(0, done.as_ref().map_or("", |done| done.caller.as_str()));
            shared.stopping.cancelled().await;
            return Err(Cut);
        }
    };
    if cut {
        record(0, &answer.caller);
        return Err(Cut);
    }
    record(answer.status.as_u16(), &answer.caller);
    Ok(respond(answer))
}

/// The fault's answer in place of the one that was earned.
fn spoilt(fault: Answer, earned: Option<Answer>) -> Answer {
    Answer { caller: earned.map(|earned| earned.caller).unwrap_or_default(), ..fault }
}

fn head(answer: &Answer) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = answer.status;
    for (name, value) in &answer.headers {
        if let Ok(value) = HeaderValue::from_str(value) {
            response.headers_mut().insert(*name, value);
        }
    }
    if !matches!(answer.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        let json = HeaderValue::from_static("application/json; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
    }
    response.headers_mut().insert(header::SERVER, HeaderValue::from_static("github.com"));
    response
}

fn respond(answer: Answer) -> Response<Body> {
    head(&answer).map(|()| Full::new(answer.body).boxed_unsync())
}

fn respond_slowly(answer: Answer, pieces: u32, pause: Duration) -> Response<Body> {
    let head = head(&answer);
    let length = answer.body.len().div_ceil(pieces.max(1) as usize).max(1);
    let frames = stream::unfold(answer.body, move |mut rest| async move {
        if rest.is_empty() {
            return None;
        }
        tokio::time::sleep(pause).await;
        let piece = rest.split_to(length.min(rest.len()));
        Some((Ok(Frame::data(piece)), rest))
    });
    head.map(|()| StreamBody::new(frames).boxed_unsync())
}
