//! Connections to servers outside of the cluster: TCP, TLS by rustls on ring, proxies, and the addresses that nobody may name.

mod address;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::Uri;
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tower::{BoxError, Service, ServiceExt};

use crate::address::Checked;

/// One address that does not answer must not use up a call's deadline.
const CONNECT: Duration = Duration::from_secs(5);
/// Shorter than what proxies and GitHub keep idle connections for.
const IDLE: Duration = Duration::from_secs(60);

/// Sends requests with whole bodies, over connections that it keeps for a while. Cheap to clone.
pub type Client = legacy::Client<HttpsConnector<Connector>, Full<Bytes>>;

/// Which proxy calls go through. Proxies are asked to `CONNECT`, for plain HTTP targets too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ProxyRules {
    /// `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`, in upper or lower case, read when the client is made.
    #[default]
    Environment,
    /// No proxy, whatever the environment says.
    Direct,
    /// One proxy for everything but the exceptions.
    Given {
        /// `http://` or `https://` URL, possibly with user name and password.
        proxy: String,
        /// Comma-separated host names, domains, addresses and networks that are reached directly.
        no_proxy: String,
    },
}

/// Why no connections can be made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The file with additional certificate authorities cannot be used.
    #[error("cannot read certificate authorities from {path}: {reason}; it must be a PEM file with at least one certificate", path = path.display())]
    Authorities {
        /// Path of the file with additional certificate authorities.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// There is nothing to verify a server's certificate with.
    #[error("no certificate authorities are installed here ({reason}): install ca-certificates, or name a CA file")]
    NoRoots {
        /// The first error in reading the system's certificate authorities; `none found` without one.
        reason: String,
    },
    /// TLS cannot be set up.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
}

/// A client over real connections. The system's certificate authorities count, and those in `authorities` too; that there are none is an error
/// where TLS is `needed`.
///
/// # Errors
///
/// When the authorities can't be read, or TLS can't be set up.
pub fn client(authorities: Option<&Path>, proxy: &ProxyRules, needed: bool) -> Result<Client, ConnectError> {
    let tls = Arc::new(tls(authorities, needed)?);
    let mut tcp = HttpConnector::new_with_resolver(Checked::default());
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT));
    tcp.set_keepalive(Some(IDLE));
    let rules = match proxy {
        ProxyRules::Environment => Some(Matcher::from_env()),
        ProxyRules::Direct => None,
        ProxyRules::Given { proxy, no_proxy } => Some(Matcher::builder().all(proxy.as_str()).no(no_proxy.as_str()).build()),
    };
    let to_proxy = HttpsConnector::from((tcp.clone(), Arc::clone(&tls)));
    let connector = HttpsConnector::from((Connector { tcp, to_proxy, rules: rules.map(Arc::new) }, tls));
    Ok(legacy::Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE).build(connector))
}

fn tls(authorities: Option<&Path>, needed: bool) -> Result<ClientConfig, ConnectError> {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(system.certs);
    if let Some(path) = authorities {
        let unusable = |reason: String| ConnectError::Authorities { path: path.to_owned(), reason };
        let pem = fs::read(path).map_err(|error: io::Error| unusable(error.to_string()))?;
        let certificates = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
        let certificates = certificates.map_err(|error| unusable(error.to_string()))?;
        if certificates.is_empty() {
            return Err(unusable("it holds no certificate".to_owned()));
        }
        for certificate in certificates {
            roots.add(certificate).map_err(|error| unusable(error.to_string()))?;
        }
    }
    if roots.is_empty() && needed {
        let reason = system.errors.first().map_or_else(|| "none found".to_owned(), ToString::to_string);
        return Err(ConnectError::NoRoots { reason });
    }
    // Named here, not taken from the process: another library could bring a second provider one day.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// Opens TCP connections, through a proxy where the rules say so.
#[derive(Clone)]
pub struct Connector {
    tcp: HttpConnector<Checked>,
    to_proxy: HttpsConnector<HttpConnector<Checked>>,
    rules: Option<Arc<Matcher>>,
}

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        let Some(proxy) = self.rules.as_ref().and_then(|rules| rules.intercept(&target)) else {
            let tcp = self.tcp.clone();
            // An address is not resolved, and so not seen by the resolver.
            if let Some(refused) = target.host().and_then(address::refused) {
                return Box::pin(std::future::ready(Err(refused.into())));
            }
            return Box::pin(async move { Ok(MaybeHttpsStream::Http(tcp.oneshot(target).await?)) });
        };
        let address = proxy.uri().clone();
        let mut tunnel = Tunnel::new(address.clone(), self.to_proxy.clone());
        if let Some(header) = proxy.basic_auth() {
            tunnel = tunnel.with_auth(header.clone());
        }
        Box::pin(async move {
            if !matches!(address.scheme_str(), Some("http" | "https")) {
                return Err(format!("the proxy {address} has a scheme other than http or https").into());
            }
            tunnel.oneshot(target).await.map_err(|error| format!("proxy {address}: {error:?}").into())
        })
    }
}
