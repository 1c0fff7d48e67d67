//! HTTP servers of the process, for metrics, health and webhooks, with bounds on what those who connect can take of it.
//!
//! Nobody has to prove anything to open a connection. So the number of connections is bounded, in all and per address. Where there is no
//! more room, a newer connection takes the slot of the one that has kept the server waiting longest, never of one whose request was proved
//! to be GitHub's: senders that are slow on purpose push out each other.
//!
//! ```text
//! accept --Slots--> connection --[TLS within 10 s]--> head within 10 s, 64 KiB --> request --> router --> response
//!                                                       |                                                    |
//!                                                       +--------- the next one begins within 620 s ---------+
//! ```

mod slots;
mod tls;

use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use axum::Router;
use axum::body::Body;
use http::{HeaderValue, Request, Response, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use pacer_operator::metrics::{ConnectionDrop, ConnectionMetrics};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream, lookup_host};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{self, timeout, timeout_at};
use tokio_util::io::InspectReader;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use slots::{Admitted, SlotId, Slots, Source};

pub(crate) use slots::Bounds;
pub(crate) use tls::{Identity, Tls};

/// Longest time for the head of a request to arrive, from the opening of the connection or from its first byte on; also for TLS to be agreed on. A head
/// that begins while the request before it is answered counts from the first byte that follows the answer.
const HEAD_DEADLINE: Duration = Duration::from_secs(10);

/// Longest time between an answer and the next request. Proxies keep connections for further requests: nginx and AWS for 60 s, Google Cloud for 600 s. If
/// this server closed a connection earlier, a proxy could use it at the same moment. The proxy would answer 502, and GitHub does not deliver again. For
/// proxies that keep them even longer, `docs/install.md` says what to set. An idle connection costs only its slot, and any new connection may take that.
const IDLE: Duration = Duration::from_secs(620);

/// Most bytes of a request's head, and of what is read from a connection at a time.
const HEAD_BYTES: usize = 64 * 1024;

/// How long a connection is used; the first answer after that says that it is the last one. An idle connection is not closed for its age, for the reason of
/// [`IDLE`]. So somebody may take the sum of both to read an answer.
const LIFE: Duration = Duration::from_secs(300);

/// Longest time that a connection may take to end after it was told to; requests on it have shorter deadlines.
const CLOSING: Duration = Duration::from_secs(20);

/// Pause after the system could not accept a connection, for lack of file descriptors for instance.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Most connections that the system keeps until they are accepted, unless it allows fewer (`net.core.somaxconn`, 4,096 as a rule). Where there is no room,
/// it drops the first packet of a connection, which its sender repeats a second later. Tokio's 128 are less than a burst of deliveries, or than what
/// slow senders open while this process waits for a processor. Each may bring 64 KiB before it is accepted.
const BACKLOG: u32 = 1_024;

/// An address that is bound, and how connections to it talk.
pub(crate) struct Listener {
    tcp: TcpListener,
    tls: Option<Tls>,
}

/// Binds an address in Go's notation, where a missing host means all addresses of both IPv6 and IPv4, or of IPv4 where there is no other.
pub(crate) async fn bind(address: &str) -> anyhow::Result<Listener> {
    let bound = match address.strip_prefix(':') {
        None => listen(address).await,
        Some(port) => match listen(&format!("[::]:{port}")).await {
            Err(error) if error.kind() != ErrorKind::AddrInUse => listen(&format!("0.0.0.0:{port}")).await,
            bound => bound,
        },
    };
    let tcp = bound.with_context(|| format!("can't listen on {address}; give another address, or stop what uses it"))?;
    Ok(Listener { tcp, tls: None })
}

/// Listens on the first of the addresses that this stands for where that is possible.
async fn listen(address: &str) -> io::Result<TcpListener> {
    let mut refused = io::Error::new(ErrorKind::InvalidInput, "it stands for no address");
    for address in lookup_host(address).await? {
        match listen_on(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

/// As [`TcpListener::bind`], with a longer queue.
fn listen_on(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
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
    turn: watch::Sender<Turn>,
    /// Ends the connection where it stands.
    gone: CancellationToken,
}

/// What happens on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// No request has begun since the last answer.
    Idle,
    /// A head arrives, which has to be complete at that time.
    Head(time::Instant),
    /// A request is being answered.
    Request,
}

impl Slot {
    fn new(admitted: &Admitted, slots: Arc<Mutex<Slots>>) -> Self {
        let (slot, gone) = (admitted.slot, admitted.gone.clone());
        Self(Arc::new(Held { slot, slots, turn: watch::Sender::new(Turn::Idle), gone }))
    }

    /// The request of this connection is worth its slot: no other connection takes it until the request is answered.
    pub(crate) fn keep(&self) {
        self.change(|slots, slot| slots.keep(slot));
    }

    /// Ends the connection where it stands, when cancelled.
    pub(crate) fn end(&self) -> CancellationToken {
        self.0.gone.clone()
    }

    /// The connection waits for its peer again.
    fn wait(&self, turn: Turn) {
        self.0.turn.send_replace(turn);
        self.change(|slots, slot| slots.wait(slot, Instant::now()));
    }

    /// The next request has begun, unless one is under way.
    fn begin(&self) {
        self.0.turn.send_if_modified(|turn| {
            let begins = *turn == Turn::Idle;
            if begins {
                *turn = Turn::Head(time::Instant::now() + HEAD_DEADLINE);
            }
            begins
        });
    }

    /// Returns when a head takes longer than it may.
    async fn late(&self) {
        let mut turns = self.0.turn.subscribe();
        loop {
            let head = turns.wait_for(|turn| matches!(turn, Turn::Head(_))).await.map(|turn| *turn);
            let Ok(Turn::Head(until)) = head else { return };
            if timeout_at(until, turns.wait_for(|turn| *turn != Turn::Head(until))).await.is_err() {
                return;
            }
        }
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
        let slot = Slot::new(&admitted, slots.clone());
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
        slot.begin();
        let (opened, timed, read) = (time::Instant::now(), slot.clone(), slot.clone());
        let stream = InspectReader::new(stream, move |bytes: &[u8]| {
            if !bytes.is_empty() {
                read.begin();
            }
        });
        let service = service_fn(move |request| answer(router.clone(), slot.clone(), opened, request));
        let mut http = http1::Builder::new();
        // For hyper the time of a head begins with the last answer.
        http.timer(TokioTimer::new()).header_read_timeout(IDLE).max_header_size(HEAD_BYTES).max_buf_size(HEAD_BYTES);
        let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
        let served = async {
            let ended = tokio::select! {
                ended = connection.as_mut() => Some(ended),
                () = stop.cancelled() => None,
                () = time::sleep(LIFE + IDLE) => None,
            };
            match ended {
                Some(ended) => Some(ended),
                None => {
                    connection.as_mut().graceful_shutdown();
                    timeout(CLOSING, connection.as_mut()).await.ok()
                }
            }
        };
        let ended = tokio::select! {
            ended = served => ended,
            () = timed.late() => None,
            () = replaced.cancelled() => return,
        };
        match ended {
            None => metrics.dropped(ConnectionDrop::Slow),
            Some(Err(error)) if error.is_parse_too_large() => metrics.dropped(ConnectionDrop::HeadTooLarge),
            Some(Err(error)) => tracing::debug!(%error, "a connection ended"),
            Some(Ok(())) => {}
        }
    }
}

async fn answer(
    router: Router,
    slot: Slot,
    opened: time::Instant,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    slot.wait(Turn::Request);
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(slot.clone());
    let mut response = router.oneshot(request).await?;
    if opened.elapsed() >= LIFE {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    slot.wait(Turn::Idle);
    Ok(response)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use pacer_operator::metrics::{HttpServer, Metrics};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    use super::*;

    const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";

    /// The other end of a connection to a server that answers every request with `ok`.
    fn connected() -> DuplexStream {
        let (peer, stream) = tokio::io::duplex(HEAD_BYTES);
        let mut slots = Slots::new(Bounds::METRICS);
        let admitted = slots.take(Source::of(Ipv4Addr::LOCALHOST.into()), Instant::now()).unwrap();
        let slot = Slot::new(&admitted, Arc::new(Mutex::new(slots)));
        let router = Router::new().fallback(|| async { "ok" });
        let connection = Connection { slot, router, replaced: admitted.gone, stop: CancellationToken::new() };
        tokio::spawn(connection.serve(stream, Metrics::default().connections(HttpServer::Webhook)));
        peer
    }

    async fn answered(peer: &mut DuplexStream) -> String {
        peer.write_all(GET).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\nok") {
            answer.push(peer.read_u8().await.unwrap());
        }
        String::from_utf8(answer).unwrap()
    }

    /// Whether the server leaves the connection open for so long, and sends nothing.
    async fn stays_open(peer: &mut DuplexStream, long: Duration) -> bool {
        timeout(long, peer.read_u8()).await.is_err()
    }

    /// After how long the server closes the connection, if its peer sends a byte of a head every second or nothing at all.
    async fn closed_after(peer: &mut DuplexStream, trickles: bool) -> Duration {
        let begun = time::Instant::now();
        while stays_open(peer, Duration::from_secs(1)).await {
            if trickles {
                // The server may have closed it at this moment.
                let _closed = peer.write_all(b"a").await;
            }
        }
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn connection_stays_open_between_requests_for_longer_than_proxies_keep_it() {
        for kept in [60, 600] {
            let mut peer = connected();
            answered(&mut peer).await;
            assert!(stays_open(&mut peer, Duration::from_secs(kept)).await, "closed within {kept} s");
            answered(&mut peer).await;
        }
        let mut peer = connected();
        answered(&mut peer).await;
        let after = closed_after(&mut peer, false).await;
        assert!(after >= IDLE && after < IDLE + Duration::from_secs(2), "{after:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn every_head_has_the_same_short_deadline() {
        for (requests, trickles) in [(0, false), (0, true), (1, false), (1, true), (2, true)] {
            let mut peer = connected();
            for _ in 0..requests {
                answered(&mut peer).await;
                assert!(stays_open(&mut peer, Duration::from_secs(60)).await);
            }
            if requests > 0 {
                peer.write_all(b"GET / HTTP/1.1\r\nx-a: ").await.unwrap();
            }
            let after = closed_after(&mut peer, trickles).await;
            let expected = HEAD_DEADLINE..HEAD_DEADLINE + Duration::from_secs(2);
            assert!(expected.contains(&after), "{after:?} after {requests} requests, trickles: {trickles}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn old_connection_ends_with_an_answer_and_not_while_it_is_idle() {
        let mut peer = connected();
        assert!(!answered(&mut peer).await.contains("connection: close"));
        assert!(stays_open(&mut peer, LIFE).await);
        assert!(answered(&mut peer).await.contains("connection: close"));
        assert!(timeout(Duration::from_secs(1), peer.read_u8()).await.is_ok_and(|read| read.is_err()), "it is still open");
    }

    #[tokio::test]
    async fn burst_of_connections_waits_for_a_process_that_accepts_none() {
        let listener = bind("127.0.0.1:0").await.unwrap();
        let address = listener.address().unwrap();
        let mut waiting = Vec::new();
        for number in 0..BACKLOG / 4 {
            // One that the system has no room for is never connected.
            let connected = timeout(Duration::from_secs(60), TcpStream::connect(address)).await;
            waiting.push(connected.unwrap_or_else(|_| panic!("connection {number} finds no room")).unwrap());
        }
        drop((waiting, listener));
    }

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
