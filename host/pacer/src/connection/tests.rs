//! Connections to a server that answers late, in part, or not at all.

use http::Uri;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use super::*;

/// The way to a server at this address, as `Config::infer` and kubeconfigs give it.
fn to(address: std::net::SocketAddr) -> Config {
    // The binary does that first of all.
    let _installed_by_another_test = rustls::crypto::ring::default_provider().install_default();
    let mut config = Config::new(Uri::try_from(format!("http://{address}")).unwrap());
    config.default_retry = false;
    // None is what the system trusts, and here nobody is asked for a certificate.
    config.root_cert = Some(Vec::new());
    config
}

async fn listener() -> (TcpListener, Config) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = to(listener.local_addr().unwrap());
    (listener, config)
}

/// Takes a connection, and reads a request to its end.
async fn request(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n") {
        read.push(stream.read_u8().await.unwrap());
    }
    stream
}

/// Waits, on a clock that only moves while nothing else does, for the error that says so; it comes within the deadline.
async fn assert_given_up<T: std::fmt::Debug, E: std::fmt::Display + std::fmt::Debug>(
    asked: impl Future<Output = Result<T, E>>,
    words: &str,
) {
    tokio::time::pause();
    let begun = Instant::now();
    let error = asked.await.unwrap_err();
    assert!(error.to_string().contains(words), "{error}");
    assert!(begun.elapsed() <= deadline::DEADLINE + Duration::from_secs(1), "{:?}", begun.elapsed());
}

fn get(path: &str) -> http::Request<Vec<u8>> {
    http::Request::get(path).body(Vec::new()).unwrap()
}

#[tokio::test]
async fn timeouts_that_kube_sets_do_not_take_the_place_of_our_connections() {
    let (_listener, mut config) = listener().await;
    assert!(config.write_timeout.is_some(), "kube sets it, whatever the kubeconfig says");
    assert!(!needs_kubes_connections(&config));
    config.proxy_url = Some(Uri::from_static("http://proxy:3128"));
    assert!(needs_kubes_connections(&config));
}

#[tokio::test]
async fn connection_that_nobody_uses_is_given_back() {
    let (listener, config) = listener().await;
    let client = builder(&config).unwrap().build();
    let asked = tokio::spawn(async move {
        let text = client.request_text(get("/version")).await.unwrap();
        (client, text)
    });
    let mut stream = request(&listener).await;
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
    let (_client, text) = asked.await.unwrap();
    assert_eq!(text, "{}");
    let answered = Instant::now();
    tokio::time::pause();
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0, "the client closes it");
    assert!(answered.elapsed() < 3 * IDLE, "{:?}", answered.elapsed());
}

#[tokio::test]
async fn answer_that_does_not_end_is_given_up() {
    let (listener, config) = listener().await;
    let client = builder(&config).unwrap().build();
    let asked = tokio::spawn(async move { client.send(get("/api/v1/pods").map(Body::from)).await });
    let mut stream = request(&listener).await;
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{").await.unwrap();
    let answer = asked.await.unwrap().unwrap();
    assert_given_up(answer.into_body().collect(), "did not end its answer").await;
}

#[tokio::test]
async fn request_that_is_not_answered_is_given_up() {
    let (listener, config) = listener().await;
    let client = builder(&config).unwrap().build();
    let asked = tokio::spawn(async move { client.send(get("/api/v1/pods").map(Body::from)).await });
    let _stream = request(&listener).await;
    assert_given_up(async { asked.await.unwrap() }, "did not begin its answer").await;
}

#[tokio::test]
async fn request_over_a_connection_without_a_handshake_is_given_up() {
    let (listener, mut config) = listener().await;
    config.cluster_url = Uri::try_from(format!("https://{}", listener.local_addr().unwrap())).unwrap();
    let client = builder(&config).unwrap().build();
    let asked = tokio::spawn(async move { client.send(get("/api/v1/pods").map(Body::from)).await });
    // The first byte is the client's greeting, which nobody answers.
    let (mut stream, _) = listener.accept().await.unwrap();
    stream.read_u8().await.unwrap();
    assert_given_up(async { asked.await.unwrap() }, "did not begin its answer").await;
}

#[tokio::test]
async fn watch_that_is_not_answered_is_given_up() {
    let (listener, config) = listener().await;
    let client = builder(&config).unwrap().build();
    let asked = tokio::spawn(async move { client.send(get("/api/v1/pods?&watch=true").map(Body::from)).await });
    let _stream = request(&listener).await;
    assert_given_up(async { asked.await.unwrap() }, "did not begin to answer a watch").await;
}

#[tokio::test]
async fn watch_that_is_answered_may_last() {
    let (listener, config) = listener().await;
    let client = builder(&config).unwrap().build();
    let asked = tokio::spawn(async move { client.send(get("/api/v1/pods?&watch=true").map(Body::from)).await });
    let mut stream = request(&listener).await;
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{").await.unwrap();
    let mut body = asked.await.unwrap().unwrap().into_body();
    assert!(body.frame().await.unwrap().is_ok());
    tokio::time::pause();
    assert!(tokio::time::timeout(10 * deadline::DEADLINE, body.frame()).await.is_err(), "a watch ends when its server says so");
}
