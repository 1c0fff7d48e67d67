//! The cluster, as people reach it: kubeconfig, context, namespace.

use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Config, Resource};
use serde::de::DeserializeOwned;

/// Longest wait for an answer of the API server.
const PATIENCE: Duration = Duration::from_secs(30);

/// HTTP status with which the API server asks to be asked again.
const TOO_MANY_REQUESTS: u16 = 429;

/// How often it is asked, and how long after each such answer.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_secs(1);

/// Which cluster and namespace.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct ClusterArguments {
    /// Namespace. Default: that of the kubeconfig's context.
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// Kubeconfig file. Default: KUBECONFIG, ~/.kube/config, or the pod's service account.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

/// A way to the API server.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) client: Client,
    pub(crate) namespace: String,
}

impl Cluster {
    /// Objects of a kind, of the namespace or of all, with labels that fit the selector.
    pub(crate) async fn list<K>(&self, all: bool, selector: &str) -> Result<Vec<K>>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        let (api, place): (Api<K>, _) = match all {
            true => (Api::all(self.client.clone()), String::new()),
            false => (Api::namespaced(self.client.clone(), &self.namespace), format!(" of namespace {}", self.namespace)),
        };
        let parameters = ListParams::default().labels(selector);
        let listed = patiently(async || api.list(&parameters).await).await;
        Ok(listed.with_context(|| format!("listing {}{place}", K::plural(&())))?.items)
    }
}

/// Reads again while the API server asks for that with 429, as it does for some seconds after the definition of a kind has changed.
pub(crate) async fn patiently<T>(read: impl AsyncFn() -> kube::Result<T>) -> kube::Result<T> {
    for _ in 1..TRIES {
        match read().await {
            Err(kube::Error::Api(status)) if status.code == TOO_MANY_REQUESTS => tokio::time::sleep(PAUSE).await,
            outcome => return outcome,
        }
    }
    read().await
}

impl ClusterArguments {
    /// Connects; nothing is asked yet.
    pub(crate) async fn connect(&self) -> Result<Cluster> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let mut config = match (&self.kubeconfig, &self.context) {
            (Some(file), _) => {
                let kubeconfig =
                    Kubeconfig::read_from(file).with_context(|| format!("reading --kubeconfig {}", file.display()))?;
                Config::from_custom_kubeconfig(kubeconfig, &options).await
            }
            (None, Some(_)) => {
                Config::from_custom_kubeconfig(Kubeconfig::read().context("reading the kubeconfig")?, &options).await
            }
            (None, None) => Ok(Config::infer().await.context("no way to the Kubernetes API: give --kubeconfig or KUBECONFIG")?),
        }
        .context("using the kubeconfig")?;
        config.default_retry = false;
        config.read_timeout = Some(PATIENCE);
        let namespace = self.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let client = Client::try_from(config).context("building the Kubernetes client")?;
        Ok(Cluster { client, namespace })
    }
}

/// Does something with a cluster, from a verb that is not asynchronous.
pub(crate) fn with<T>(arguments: &ClusterArguments, work: impl AsyncFnOnce(Cluster) -> Result<T>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
    runtime.block_on(async { work(arguments.connect().await?).await })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use kube::core::Status;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn read_that_the_api_server_asks_to_repeat_is_repeated_for_a_while() {
        let answered = async |code: u16, times: u32| {
            let asked = AtomicU32::new(0);
            let outcome = patiently(async || match asked.fetch_add(1, Ordering::Relaxed) {
                before if before < times => Err(kube::Error::Api(Status::failure("no", "No").with_code(code).boxed())),
                _ => Ok(()),
            });
            (outcome.await.is_ok(), asked.load(Ordering::Relaxed))
        };
        assert_eq!(answered(429, 3).await, (true, 4));
        assert_eq!(answered(429, 100).await, (false, TRIES));
        assert_eq!(answered(403, 1).await, (false, 1));
        assert_eq!(answered(500, 1).await, (false, 1));
    }
}
