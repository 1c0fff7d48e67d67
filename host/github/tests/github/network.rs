//! Proxies and certificate authorities.

use std::sync::{Arc, Mutex};

use crate::support::{Server, TOKEN, options, organization, reply};
use pacer_github::{ClientError, ClientOptions, Credentials, Endpoints, GitHub, ProxyRules, Secret};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

const EMPTY: &str = r#"{"total_count":0,"runners":[]}"#;

fn token() -> Credentials {
    Credentials::Token(Secret::new(TOKEN))
}

/// A proxy that knows CONNECT alone; gives its address and the heads of the requests it got.
async fn proxy() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let heads = Arc::<Mutex<Vec<String>>>::default();
    let log = Arc::clone(&heads);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut client = BufReader::new(stream);
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                client.read_line(&mut head).await.unwrap();
            }
            log.lock().unwrap().push(head.clone());
            let target = head.split(' ').nth(1).unwrap().to_owned();
            let mut server = TcpStream::connect(target).await.unwrap();
            client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.unwrap();
            tokio::spawn(async move { copy_bidirectional(&mut client, &mut server).await });
        }
    });
    (address, heads)
}

#[tokio::test]
async fn calls_go_through_the_proxy_unless_excepted() {
    let server = Server::start(|_| reply(200, &[], EMPTY)).await;
    let (address, heads) = proxy().await;
    let through = |no_proxy: &str| {
        let proxy = ProxyRules::Given { proxy: format!("http://ann:pw@{address}"), no_proxy: no_proxy.to_owned() };
        GitHub::new(token(), server.endpoints(), &ClientOptions { proxy, ..options() }).unwrap()
    };
    through("127.0.0.1").list_runners(&organization()).await.unwrap();
    assert_eq!(heads.lock().unwrap().len(), 0);
    through("example.com").list_runners(&organization()).await.unwrap();
    let heads = heads.lock().unwrap();
    let head = heads[0].to_lowercase();
    assert!(head.starts_with(&format!("connect {}", server.url.trim_start_matches("http://"))), "{head}");
    assert!(head.contains("proxy-authorization: basic yw5uonb3"), "{head}");
    assert!(!head.contains(&TOKEN.to_lowercase()), "{head}");
}

#[tokio::test]
async fn proxies_that_cannot_be_used_are_named_without_their_password() {
    let server = Server::start(|_| reply(200, &[], EMPTY)).await;
    for url in ["socks5://ann:hunter2@127.0.0.1:1", "http://ann:hunter2@127.0.0.1:1"] {
        let proxy = ProxyRules::Given { proxy: url.to_owned(), no_proxy: String::new() };
        let github = GitHub::new(token(), server.endpoints(), &ClientOptions { proxy, ..options() }).unwrap();
        let text = github.list_runners(&organization()).await.unwrap_err().to_string();
        assert!(text.contains("127.0.0.1:1") && !text.contains("hunter2"), "{text}");
    }
}

#[tokio::test]
async fn unusable_authorities_are_reported_with_their_file() {
    let folder = tempfile::tempdir().unwrap();
    let absent = folder.path().join("absent.pem");
    let (empty, damaged) = (folder.path().join("empty.pem"), folder.path().join("damaged.pem"));
    std::fs::write(&empty, "no certificate here").unwrap();
    std::fs::write(&damaged, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
    for path in [absent, empty, damaged] {
        let options = ClientOptions { ca_file: Some(path.clone()), ..options() };
        let error = GitHub::new(token(), Endpoints::default(), &options).unwrap_err();
        assert!(matches!(error, ClientError::Transport(_)));
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
}

/// A server behind TLS for `localhost` that answers everything with an empty listing; gives its port.
async fn secure() -> u16 {
    let certificate = CertificateDer::from_pem_slice(include_bytes!("../keys/server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("../keys/server-key.pem")).unwrap();
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            let mut stream = BufReader::new(stream);
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                stream.read_line(&mut head).await.unwrap();
            }
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{EMPTY}", EMPTY.len());
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
        }
    });
    port
}

#[tokio::test]
async fn a_private_authority_is_trusted_when_named_and_only_then() {
    let port = secure().await;
    let (address, heads) = proxy().await;
    let endpoints = Endpoints::resolve(None, Some(&format!("https://localhost:{port}")), None, None).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.pem");
    std::fs::write(&path, include_bytes!("../keys/ca.pem")).unwrap();
    let trusting = ClientOptions { ca_file: Some(path), ..options() };

    let github = GitHub::new(token(), endpoints.clone(), &trusting).unwrap();
    assert!(github.list_runners(&organization()).await.unwrap().runners.is_empty());

    let proxy = ProxyRules::Given { proxy: format!("http://{address}"), no_proxy: String::new() };
    let github = GitHub::new(token(), endpoints.clone(), &ClientOptions { proxy, ..trusting.clone() }).unwrap();
    assert!(github.list_runners(&organization()).await.unwrap().runners.is_empty());
    assert!(heads.lock().unwrap()[0].starts_with(&format!("CONNECT localhost:{port}")));

    let unrelated = folder.path().join("other.pem");
    std::fs::write(&unrelated, include_bytes!("../keys/server.pem")).unwrap();
    for ca_file in [None, Some(unrelated)] {
        let Ok(github) = GitHub::new(token(), endpoints.clone(), &ClientOptions { ca_file, ..options() }) else { continue };
        let text = github.list_runners(&organization()).await.unwrap_err().to_string();
        assert!(text.contains("certificate"), "{text}");
    }
}
