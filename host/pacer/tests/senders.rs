//! What senders can take from the servers of the real executable: connections, memory, time. Nobody here has the webhook's secret, except
//! for those who are to be answered.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "also in what tests call")]

use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ring::hmac;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

const SECRET: &str = "It's a Secret to Everybody";

/// Connections of an attack.
const ATTACKERS: u16 = 3_000;

/// Longest time for a signed delivery, and for a probe, during an attack.
const PROMPT: Duration = Duration::from_secs(1);

/// Most bytes by which an attack may raise the resident memory: for each of 500 connections a buffer of 64 KiB, the ones of 8, 16 and 32 KiB that it
/// outgrew, which the allocator keeps, and what else a connection takes.
const GROWTH: u64 = 500 * (64 + 56 + 24) * 1024;

/// Longest time for anything else, such as a start.
const PATIENCE: Duration = Duration::from_secs(30);

/// `pacer webhook` whose API server takes connections and never answers; killed in the end.
struct Receiver {
    child: Child,
    webhooks: SocketAddr,
    metrics: SocketAddr,
    _silence: TcpListener,
    _kubeconfig: tempfile::NamedTempFile,
}

impl Receiver {
    fn start(arguments: &[&str]) -> Self {
        // A shell's usual limit of 1,024 is less than the attackers need here.
        let hard = getrlimit(Resource::Nofile).maximum;
        setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard }).unwrap();
        let silence = TcpListener::bind("127.0.0.1:0").unwrap();
        let kubeconfig = tempfile::NamedTempFile::new().unwrap();
        let text = format!(
            "{{apiVersion: v1, kind: Config, current-context: a, contexts: [{{name: a, context: {{cluster: a, user: a}}}}], \
             clusters: [{{name: a, cluster: {{server: 'http://{}'}}}}], users: [{{name: a, user: {{}}}}]}}",
            silence.local_addr().unwrap()
        );
        std::fs::write(kubeconfig.path(), text).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_pacer"))
            .args(["webhook", "--webhook-addr=127.0.0.1:0", "--metrics-addr=127.0.0.1:0", "--kubeconfig"])
            .arg(kubeconfig.path())
            .args(arguments)
            .env_clear()
            .env("GITHUB_WEBHOOK_SECRET_TOKEN", SECRET)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut announced = |name: &str| {
            let line = lines.by_ref().map(Result::unwrap).find(|line| line.contains(name)).expect("it ended early");
            line.split_once(name).unwrap().1.trim().parse().unwrap()
        };
        let (metrics, webhooks) = (announced(" metrics_addr="), announced(" webhook_addr="));
        // Its log must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, webhooks, metrics, _silence: silence, _kubeconfig: kubeconfig }
    }

    /// Resident memory, bytes.
    fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

async fn connect(from: IpAddr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(from, 0))?;
    socket.connect(to).await
}

/// Status of the answer to this request, and how long it took; 0 when the connection ended without one.
async fn ask(from: IpAddr, to: SocketAddr, request: &str) -> (u16, Duration) {
    let begun = Instant::now();
    let asked = async {
        let mut stream = connect(from, to).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&answer).into_owned())
    };
    let answer = timeout(PATIENCE, asked).await.expect("no answer at all").unwrap_or_default();
    (answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0), begun.elapsed())
}

fn signed_ping() -> String {
    // Larger than GitHub's deliveries about jobs.
    let body = format!(r#"{{"zen": "{}"}}"#, "x".repeat(60_000));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes()), body.as_bytes());
    format!(
        "POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {}\r\nx-github-event: ping\r\nx-hub-signature-256: sha256={}\r\n\r\n{body}",
        body.len(),
        hex::encode(tag)
    )
}

const PROBE: &str = "GET /healthz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";

/// Half of them from one address, the others from fifty.
fn attacker(number: u16) -> IpAddr {
    let host = if number.is_multiple_of(2) { 1 } else { u8::try_from(number % 50).unwrap() };
    IpAddr::V4(Ipv4Addr::new(127, 0, 66, host))
}

/// Opens the connections of an attack, each with a head that does not end, and holds what the server leaves open.
async fn slow_heads(to: SocketAddr) -> Vec<TcpStream> {
    let (short, long) = ("a".repeat(60 << 10), "a".repeat(400 << 10));
    let mut open = Vec::new();
    for number in 0..ATTACKERS {
        let head = format!("POST / HTTP/1.1\r\nhost: a\r\nx-a: {}", if number % 4 < 2 { &short } else { &long });
        let Ok(mut stream) = connect(attacker(number), to).await else { continue };
        // The server may have closed it; then there is nothing to hold.
        if let Ok(Ok(()) | Err(_)) = timeout(Duration::from_millis(50), stream.write_all(head.as_bytes())).await {}
        open.push(stream);
    }
    open
}

/// Loopback, where also those come from who attack, and an address of its own.
const SENDERS: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::new(127, 0, 66, 1)), IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1))];

/// Its metrics count connections that these servers dropped for these reasons.
async fn assert_dropped(receiver: &Receiver, expected: &[(&str, &str)]) {
    let mut stream = connect(SENDERS[1], receiver.metrics).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    for (server, reason) in expected {
        let line = format!(r#"pacer_http_connections_dropped_total{{server="{server}",reason="{reason}"}}"#);
        assert!(text.contains(&line), "{line} is not in\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_connections_take_neither_memory_nor_the_answers_to_signed_deliveries() {
    let receiver = Receiver::start(&[]);
    assert_eq!(ask(SENDERS[1], receiver.webhooks, &signed_ping()).await.0, 200);
    let before = receiver.resident();
    for (port, request) in [(receiver.webhooks, signed_ping()), (receiver.metrics, PROBE.to_owned())] {
        let _open = slow_heads(port).await;
        let grown = receiver.resident().saturating_sub(before);
        assert!(grown < GROWTH, "{port}: the memory grew by {} MiB", grown >> 20);
        for sender in SENDERS {
            for _ in 0..10 {
                let (status, took) = ask(sender, port, &request).await;
                assert_eq!(status, 200, "{port} from {sender} after {took:?}");
                assert!(took < PROMPT, "{port} from {sender} took {took:?}");
            }
        }
    }
    assert_dropped(&receiver, &[("webhook", "replaced"), ("webhook", "head_too_large"), ("metrics", "replaced")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn head_that_trickles_in_is_given_up() {
    let receiver = Receiver::start(&[]);
    for port in [receiver.webhooks, receiver.metrics] {
        let mut stream = connect(SENDERS[0], port).await.unwrap();
        let trickle = async {
            stream.write_all(b"POST / HTTP/1.1\r\nx-a: ").await?;
            loop {
                stream.write_all(b"a").await?;
                if let Ok(read) = timeout(Duration::from_millis(200), stream.read(&mut [0; 1000])).await {
                    return read;
                }
            }
        };
        let _closed: std::io::Result<usize> = timeout(PATIENCE, trickle).await.expect("the connection stays open");
    }
    assert_dropped(&receiver, &[("webhook", "slow"), ("metrics", "slow")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stalling_senders_keep_no_signed_delivery_out() {
    // The limit that GitHub has itself, which was the default: room for few bodies of that size.
    let receiver = Receiver::start(&["--webhook-body-limit=26214400"]);
    let announced = 25 << 20;
    let mut stalled = Vec::new();
    let head = format!(
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {announced}\r\nx-github-event: ping\r\nx-hub-signature-256: sha256={}\r\n\r\n",
        "0".repeat(64)
    );
    // The last ones take what is left.
    for bytes in [9 << 20; 7].into_iter().chain((1..=30).rev().map(|part| part << 15)) {
        let mut stream = connect(attacker(1), receiver.webhooks).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        // Those that are refused are closed meanwhile.
        let _part = timeout(PROMPT, stream.write_all(&vec![b' '; bytes])).await;
        let refused = timeout(Duration::from_millis(100), stream.read_u8()).await.is_ok();
        stalled.push(stream);
        if stalled.len() > 7 && !refused {
            break;
        }
    }
    // More than there are places, each with a small part of a small body.
    let head = head.replace(&announced.to_string(), "20000");
    for number in 0..600 {
        let mut stream = connect(attacker(number), receiver.webhooks).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&[b' '; 1000]).await.unwrap();
        stalled.push(stream);
    }
    let ping = signed_ping();
    for number in 0..66 {
        let (status, took) = ask(SENDERS[1], receiver.webhooks, &ping).await;
        assert_eq!(status, 200, "delivery {number}");
        assert!(took < PROMPT, "delivery {number} took {took:?}");
    }
    for mut stream in stalled {
        let mut rest = Vec::new();
        let ended = timeout(PATIENCE, stream.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "a stalled body is waited for without end");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_keep_no_signed_delivery_out() {
    let receiver = Receiver::start(&[]);
    let mut idle = Vec::new();
    for number in 0..ATTACKERS {
        let mut stream = connect(attacker(number), receiver.webhooks).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        let read = timeout(PATIENCE, stream.read(&mut [0; 1000])).await.expect("no answer at all").unwrap();
        assert!(read > 0, "connection {number} is closed without an answer");
        idle.push(stream);
    }
    let ping = signed_ping();
    for sender in SENDERS {
        for _ in 0..10 {
            let (status, took) = ask(sender, receiver.webhooks, &ping).await;
            assert_eq!(status, 200, "from {sender} after {took:?}");
            assert!(took < PROMPT, "from {sender} took {took:?}");
        }
    }
    assert_dropped(&receiver, &[("webhook", "replaced")]).await;
}
