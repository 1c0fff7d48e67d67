//! Connections to the API server, and the client over them.

mod deadline;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use http::Response;
use http_body_util::BodyExt as _;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::Config;
use kube::client::{Body, ClientBuilder, ConfigExt as _, DynBody};
use kube::config::{KubeConfigOptions, Kubeconfig};
use pacer_cluster::fence::{Fence, FenceLayer};
use pacer_operator::metrics::{MeterLayer, Metrics};
use tower::layer::layer_fn;
use tower::util::BoxService;
use tower::{BoxError, ServiceBuilder, ServiceExt as _};

use deadline::Timely;

/// Longest time for one request to the API server, watches apart: what was begun before the right to act ended is over before anybody
/// else may act.
pub(crate) const REQUEST_DEADLINE: Duration = Duration::from_secs(5);

/// How long a connection is kept that nobody uses.
const IDLE: Duration = Duration::from_secs(10);

/// How long a connection is silent before its other end is asked whether it is there, and how long it is asked for again. A node that is lost
/// closes no connection, and a watch over it would show nothing for ever.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// How long the other end may leave unacknowledged what was sent.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED: Duration = Duration::from_secs(55);

/// Type of the service with which a client sends requests to the API server.
pub(crate) type Sender = BoxService<http::Request<Body>, Response<Box<DynBody>>, BoxError>;

/// The way to the API server: `--kubeconfig`, or what kubectl would use, or the pod's service account.
pub(crate) async fn config(kubeconfig: Option<&Path>) -> Result<Config> {
    let mut config = match kubeconfig {
        Some(file) => {
            let kubeconfig = Kubeconfig::read_from(file).with_context(|| format!("reading --kubeconfig {}", file.display()))?;
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
                .await
                .with_context(|| format!("using --kubeconfig {}", file.display()))?
        }
        None => Config::infer()
            .await
            .context("no way to the Kubernetes API: give --kubeconfig or KUBECONFIG, or run in a pod with a service account")?,
    };
    // kube would repeat any request, POST included, for minutes; here the reconcile is what is repeated.
    config.default_retry = false;
    Ok(config)
}

/// A client whose changes pass a fence and whose requests are counted.
pub(crate) fn fenced_client(config: &Config, fence: Fence, metrics: Arc<Metrics>) -> Result<kube::Client> {
    let builder = builder(config)?;
    Ok(builder.with_layer(&MeterLayer::new(metrics)).with_layer(&FenceLayer::new(fence, REQUEST_DEADLINE)).build())
}

/// Sends requests over connections of our own, where kube's are not needed; answers that do not come or do not end are given up.
pub(crate) fn builder(config: &Config) -> Result<ClientBuilder<Sender>> {
    let builder = if needs_kubes_connections(config) {
        ClientBuilder::try_from(config.clone()).context("building the Kubernetes client")?
    } else {
        over_own_connections(config)?
    };
    Ok(builder.with_layer(&layer_fn(|sender: Sender| Timely(sender).boxed())))
}

/// Proxies, and programs that give out certificates, are kube's matter. Its timeouts do not count: it sets some for everybody.
fn needs_kubes_connections(config: &Config) -> bool {
    config.proxy_url.is_some() || config.auth_info.exec.is_some()
}

/// The parts that kube's own builder puts together, over connections that are given back. Kube keeps each for as long as the server does: a
/// fleet that was made at once leaves a hundred, of 25 KiB each here and one goroutine and its buffers there.
fn over_own_connections(config: &Config) -> Result<ClientBuilder<Sender>> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    // A request may be several small writes, and a job waits for five requests one after the other.
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(config.connect_timeout);
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(KEEPALIVE));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    let connector = config.rustls_https_connector_with_connector(tcp).context("TLS for the API server")?;
    let client: Client<_, Body> =
        Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE).build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().context("credentials for the API server")?)
        .layer(config.extra_headers_layer().context("headers for the API server")?)
        .map_err(BoxError::from)
        .service(client)
        .map_response(|response: Response<_>| response.map(|body| Box::new(body.map_err(BoxError::from)) as Box<DynBody>));
    Ok(ClientBuilder::new(service.boxed(), config.default_namespace.clone()))
}

#[cfg(test)]
mod tests;
