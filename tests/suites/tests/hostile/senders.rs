//! Slow senders at the port for webhooks of an operator that also acts.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use pacer_suites::webhook::{SECRET, receive_itself};
use pacer_suites::{apply, brisk_world, deployment, end_as_it_is, scale, settled};
use ring::hmac;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::Pulse;

/// Connections of an attack, each with a head that does not end.
const ATTACKERS: u16 = 2_000;

/// Longest time for a signed delivery.
const PROMPT: Duration = Duration::from_secs(1);

/// Status of the answer to this request; 0 when the connection ended without one.
pub(crate) async fn ask(address: &str, request: &str) -> u16 {
    let asked = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&answer).into_owned())
    };
    let answer = timeout(Duration::from_secs(30), asked).await.ok().and_then(Result::ok).unwrap_or_default();
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

fn signed_ping() -> String {
    let body = r#"{"zen": "Keep it logically awesome."}"#;
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes()), body.as_bytes());
    format!(
        "POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {}\r\nx-github-event: ping\r\nx-hub-signature-256: sha256={}\r\n\r\n{body}",
        body.len(),
        hex::encode(tag)
    )
}

/// From many addresses, as many as a botnet's part.
async fn slow_connection(number: u16, to: std::net::SocketAddr) -> Option<TcpStream> {
    let [high, low] = number.to_be_bytes();
    let socket = TcpSocket::new_v4().ok()?;
    socket.bind((std::net::Ipv4Addr::new(127, 77, high, low.max(1)), 0).into()).ok()?;
    let mut stream = timeout(PROMPT, socket.connect(to)).await.ok()?.ok()?;
    stream.write_all(b"POST / HTTP/1.1\r\nhost: a\r\nx-a: ").await.ok()?;
    Some(stream)
}

#[tokio::test(flavor = "multi_thread")]
async fn signed_deliveries_are_answered_and_runners_go_on_beside_thousands_of_slow_connections() -> Result<()> {
    let world = brisk_world(&[], receive_itself).await?;
    let operator = world.operator.as_ref().context("no operator")?;
    let address = operator.webhook_address().context("no address for webhooks")?;
    ensure!(ask(&address, &signed_ping()).await == 200);
    let before = operator.usage()?.resident;
    let pulse = Pulse::of(operator.metrics_address());
    let to = address.parse()?;
    let mut open = Vec::new();
    for number in 0..ATTACKERS {
        open.extend(slow_connection(number, to).await);
    }
    ensure!(open.len() > usize::from(ATTACKERS) / 2, "only {} connections were made", open.len());
    for delivery in 0..20 {
        let began = Instant::now();
        let status = ask(&address, &signed_ping()).await;
        ensure!(status == 200 && began.elapsed() < PROMPT, "delivery {delivery}: {status} after {:?}", began.elapsed());
    }
    apply(&world, &deployment("web", 2)).await?;
    settled(&world, 2).await?;
    let (prompt, longest) = pulse.end();
    let grown = operator.usage()?.resident.saturating_sub(before);
    println!("{} connections, {} KiB more, probes {prompt:?}, {longest:?}", open.len(), grown >> 10);
    ensure!(grown < 64 << 20, "the operator has {} MiB more", grown >> 20);
    ensure!(prompt < Duration::from_millis(100), "probes took {prompt:?}");
    scale(&world, "web", 0).await?;
    settled(&world, 0).await?;
    end_as_it_is(world).await
}
