//! HTTP servers of the process, for metrics, health and webhooks, with bounds on what those who connect can take of it.
//!
//! Nobody has to prove anything to open a connection. So the number of connections is bounded, in all and per address. Where there is no
//! more room, a newer connection takes the slot of the one that has kept the server waiting longest, never of one whose request was proved
//! to be GitHub's: senders that are slow on purpose push out each other.
//!
//! ```text
//! accept --Slots--> connection --[TLS within 10 s]--> head within 10 s, 64 KiB --> request --> router --> response
//! ```

mod slots;
mod tls;

use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use axum::Router;
use axum::body::Body;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use pacer_operator::metrics::{ConnectionDrop, ConnectionMetrics};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use slots::{SlotId, Slots, Source};

pub(crate) use slots::Bounds;
pub(crate) use tls::{Identity, Tls};

/// Longest time for the head of a request to arrive, and for a connection without a request to stay open; also for TLS to be agreed on.
const HEAD_DEADLINE: Duration = Duration::from_secs(10);

/// Most bytes of a request's head, and of what is read from a connection at a time.
const HEAD_BYTES: usize = 64 * 1024;

/// How long a connection is used; then it ends after the request that is under way. It bounds how long somebody may take to read an answer.
const LIFE: Duration = Duration::from_secs(300);

/// Longest time that a connection may take to end after it was told to; requests on it have shorter deadlines.
const CLOSING: Duration = Duration::from_secs(20);

/// Pause after the system could not accept a connection, for lack of file descriptors for instance.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// An address that is bound, and how connections to it talk.
pub(crate) struct Listener {
    tcp: TcpListener,
    tls: Option<Tls>,
}

/// Binds an address in Go's notation, where a missing host means all addresses of both IPv6 and IPv4, or of IPv4 where there is no other.
pub(crate) async fn bind(address: &str) -> anyhow::Result<Listener> {
    let bound = match address.strip_prefix(':') {
        None => TcpListener::bind(address).await,
        Some(port) => match TcpListener::bind(format!("[::]:{port}")).await {
            Err(error) if error.kind() != ErrorKind::AddrInUse => TcpListener::bind(format!("0.0.0.0:{port}")).await,
            bound => bound,
        },
    };
    let tcp = bound.with_context(|| format!("can't listen on {address}; give another address, or stop what uses it"))?;
    Ok(Listener { tcp, tls: None })
}

impl Listener {
    /// Address that was bound.
    pub(crate) fn address(&self) -> anyhow::Result<SocketAddr> {
        self.tcp.local_addr().context("reading the address that was bound")
    }

    /// Takes TLS alone, where there is a certificate.
    pub(crate) fn with_tls(self, tls: Option<Tls>) -> Self {
        Self { tls, ..self }
    }
}

/// The slot of a connection among those that are open. Each request has it among its extensions.
#[derive(Clone, Debug)]
pub(crate) struct Slot(Arc<Held>);

#[derive(Debug)]
struct Held {
    slot: SlotId,
    slots: Arc<Mutex<Slots>>,
    /// Whether a request was answered: waiting for the next one is nobody's fault.
    served: AtomicBool,
    /// Ends the connection where it stands.
    gone: CancellationToken,
}

impl Slot {
    /// The request of this connection is worth its slot: no other connection takes it until the request is answered.
    pub(crate) fn keep(&self) {
        self.change(|slots, slot| slots.keep(slot));
    }

    /// Ends the connection where it stands, when cancelled.
    pub(crate) fn end(&self) -> CancellationToken {
        self.0.gone.clone()
    }

    /// The connection waits for its peer again.
    fn wait(&self) {
        self.change(|slots, slot| slots.wait(slot, Instant::now()));
    }

    fn change(&self, change: impl FnOnce(&mut Slots, SlotId)) {
        change(&mut self.0.slots.lock().unwrap_or_else(PoisonError::into_inner), self.0.slot);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).leave(self.slot);
    }
}

/// Serves until `stop`; then takes no new connections and finishes what is under way, for [`CLOSING`] at most.
pub(crate) async fn serve(
    listener: Listener,
    router: Router,
    bounds: Bounds,
    metrics: ConnectionMetrics,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let Listener { tcp: listener, tls } = listener;
    let slots = Arc::new(Mutex::new(Slots::new(bounds)));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            Some(ended) = connections.join_next() => {
                told(ended);
                continue;
            }
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "can't accept a connection");
                stop.run_until_cancelled(tokio::time::sleep(ACCEPT_PAUSE)).await;
                continue;
            }
        };
        let admitted = slots.lock().unwrap_or_else(PoisonError::into_inner).take(Source::of(peer.ip()), Instant::now());
        let Some(admitted) = admitted else {
            metrics.dropped(ConnectionDrop::NoRoom);
            continue;
        };
        if admitted.replaced {
            metrics.dropped(ConnectionDrop::Replaced);
        }
        let slot = Slot(Arc::new(Held {
            slot: admitted.slot,
            slots: slots.clone(),
            served: AtomicBool::new(false),
            gone: admitted.gone.clone(),
        }));
        let connection = Connection { slot, router: router.clone(), replaced: admitted.gone, stop: stop.clone() };
        connections.spawn(connection.run(stream, tls.clone(), metrics.clone()));
    }
    drop(listener);
    while let Some(ended) = connections.join_next().await {
        told(ended);
    }
    Ok(())
}

/// One that panicked harms no other.
fn told(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a connection's task failed");
    }
}

/// A connection that has a slot.
struct Connection {
    slot: Slot,
    router: Router,
    /// Another one has taken the slot.
    replaced: CancellationToken,
    stop: CancellationToken,
}

impl Connection {
    async fn run(self, stream: TcpStream, tls: Option<Tls>, metrics: ConnectionMetrics) {
        let Some(tls) = tls else { return self.serve(stream, metrics).await };
        let agreed = tokio::select! {
            agreed = timeout(HEAD_DEADLINE, tls.acceptor().accept(stream)) => agreed,
            () = self.replaced.cancelled() => return,
            () = self.stop.cancelled() => return,
        };
        match agreed {
            Ok(Ok(stream)) => self.serve(stream, metrics).await,
            Ok(Err(error)) => tracing::debug!(%error, "a connection did not agree on TLS"),
            Err(_elapsed) => metrics.dropped(ConnectionDrop::Slow),
        }
    }

    async fn serve(self, stream: impl AsyncRead + AsyncWrite + Unpin, metrics: ConnectionMetrics) {
        let Self { slot, router, replaced, stop } = self;
        let held = slot.clone();
        let service = service_fn(move |request| answer(router.clone(), slot.clone(), request));
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEAD_DEADLINE).max_header_size(HEAD_BYTES).max_buf_size(HEAD_BYTES);
        let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
        let ended = tokio::select! {
            ended = connection.as_mut() => Some(ended),
            () = replaced.cancelled() => return,
            () = stop.cancelled() => None,
            () = tokio::time::sleep(LIFE) => None,
        };
        let ended = match ended {
            Some(ended) => ended,
            None => {
                connection.as_mut().graceful_shutdown();
                tokio::select! {
                    ended = connection => ended,
                    () = replaced.cancelled() => return,
                    () = tokio::time::sleep(CLOSING) => return metrics.dropped(ConnectionDrop::Slow),
                }
            }
        };
        match ended {
            Err(error) if error.is_timeout() && !held.0.served.load(Ordering::Relaxed) => metrics.dropped(ConnectionDrop::Slow),
            Err(error) if error.is_parse_too_large() => metrics.dropped(ConnectionDrop::HeadTooLarge),
            Err(error) => tracing::debug!(%error, "a connection ended"),
            Ok(()) => {}
        }
    }
}

async fn answer(router: Router, slot: Slot, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    slot.wait();
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(slot.clone());
    let response = router.oneshot(request).await;
    slot.0.served.store(true, Ordering::Relaxed);
    slot.wait();
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_missing_host_means_all_addresses() {
        let listener = bind(":0").await.unwrap();
        let bound = listener.address().unwrap();
        TcpStream::connect(("127.0.0.1", bound.port())).await.unwrap();
        if bound.is_ipv6() {
            TcpStream::connect(("::1", bound.port())).await.unwrap();
        }
        let taken = bind(&format!(":{}", bound.port())).await.err().unwrap();
        assert!(taken.to_string().starts_with("can't listen on :"), "{taken}");
    }
}
