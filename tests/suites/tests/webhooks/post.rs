//! Deliveries as GitHub makes them, one connection each.

use anyhow::{Context, Result};
use pacer_suites::webhook::SECRET;
use ring::hmac;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What a server answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Status line and headers, in lower case.
    pub(crate) head: String,
    pub(crate) text: String,
}

/// Delivers a signed event.
pub(crate) async fn post(address: &str, event: &str, payload: &Value) -> Result<Answer> {
    let body = payload.to_string();
    send(address, &request("POST", &signed(event, &body), &body)).await
}

/// Headers of an event, with its signature.
pub(crate) fn signed(event: &str, body: &str) -> Vec<(&'static str, String)> {
    vec![
        ("x-github-event", event.to_owned()),
        ("x-github-delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958".to_owned()),
        ("content-type", "application/json".to_owned()),
        ("x-hub-signature-256", format!("sha256={}", tag(hmac::HMAC_SHA256, body))),
    ]
}

/// A signature in hexadecimal digits.
pub(crate) fn tag(algorithm: hmac::Algorithm, body: &str) -> String {
    hex::encode(hmac::sign(&hmac::Key::new(algorithm, SECRET.as_bytes()), body.as_bytes()))
}

/// A request as it is sent.
pub(crate) fn request(method: &str, headers: &[(&'static str, String)], body: &str) -> String {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("{method} /hook HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len())
}

/// Sends a request and reads the answer.
pub(crate) async fn send(address: &str, request: &str) -> Result<Answer> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request.as_bytes()).await?;
    read(stream).await
}

/// Reads an HTTP answer until the connection ends.
pub(crate) async fn read(mut stream: TcpStream) -> Result<Answer> {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, text) = answer.split_once("\r\n\r\n").context("the connection ended without an answer")?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).context("no status")?;
    Ok(Answer { status, head: head.to_ascii_lowercase(), text: text.to_owned() })
}
