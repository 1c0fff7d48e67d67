//! Connections to the API server, and the client over them.

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
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ClientBuilder, ConfigExt as _, DynBody};
use kube::config::{KubeConfigOptions, Kubeconfig};
use pacer_cluster::fence::{Fence, FenceLayer};
use pacer_operator::metrics::{MeterLayer, Metrics};
use tower::retry::RetryLayer;
use tower::util::BoxService;
use tower::{BoxError, ServiceBuilder, ServiceExt as _};

/// Longest time for one request to the API server, watches apart: what was begun before the right to act ended is over before anybody
/// else may act.
pub(crate) const REQUEST_DEADLINE: Duration = Duration::from_secs(5);

/// How long a connection is kept that nobody uses.
const IDLE: Duration = Duration::from_secs(10);

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

/// The parts that kube's own builder puts together, over connections that are given back. Kube keeps each for as long as the server does: a
/// fleet that was made at once leaves a hundred, of 25 KiB each here and one goroutine and its buffers there.
pub(crate) fn builder(config: &Config) -> Result<ClientBuilder<Sender>> {
    let special = config.proxy_url.is_some() || config.auth_info.exec.is_some();
    if special || config.read_timeout.is_some() || config.write_timeout.is_some() {
        return ClientBuilder::try_from(config.clone()).context("building the Kubernetes client");
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    // A request may be several small writes, and a job waits for five requests one after the other.
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(config.connect_timeout);
    let connector = config.rustls_https_connector_with_connector(tcp).context("TLS for the API server")?;
    let client: Client<_, Body> =
        Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE).build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.default_retry.then(|| RetryLayer::new(RetryPolicy::server_retry())))
        .option_layer(config.auth_layer().context("credentials for the API server")?)
        .layer(config.extra_headers_layer().context("headers for the API server")?)
        .map_err(BoxError::from)
        .service(client)
        .map_response(|response: Response<_>| response.map(|body| Box::new(body.map_err(BoxError::from)) as Box<DynBody>));
    Ok(ClientBuilder::new(service.boxed(), config.default_namespace.clone()))
}
