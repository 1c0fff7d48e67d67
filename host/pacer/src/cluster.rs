//! The cluster, as people reach it: kubeconfig, context, namespace.

use std::fmt::Debug;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::api::ListParams;
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Config, Resource};
use pacer_cluster::unreadable::{self, Unreadable};
use serde::de::DeserializeOwned;

use crate::{plain, reread};

/// Longest wait for an answer of the API server.
const PATIENCE: Duration = Duration::from_secs(30);

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
    /// Objects of a kind, of the namespace or of all, with labels that fit the selector. Those that cannot be read are left out, and told of on
    /// standard error.
    pub(crate) async fn list<K>(&self, all: bool, selector: &str) -> Result<Vec<K>>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        let (api, place): (Api<K>, _) = match all {
            true => (Api::all(self.client.clone()), String::new()),
            false => (Api::namespaced(self.client.clone(), &self.namespace), format!(" of namespace {}", self.namespace)),
        };
        let parameters = ListParams::default().labels(selector);
        let listed = unreadable::list(&api, &parameters).await;
        let (items, unreadable) = listed.with_context(|| format!("listing {}{place}", K::plural(&())))?;
        left_out(&K::kind(&()), &unreadable);
        Ok(items)
    }
}

/// Tells on standard error of objects of a kind that cannot be read.
pub(crate) fn left_out(kind: &str, unreadable: &[Unreadable]) {
    for one in unreadable {
        let told = format!("pacer: cannot read {kind} {one}; it is left out");
        let _closed = writeln!(std::io::stderr(), "{}", plain::line(&told));
    }
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
        // kube would repeat writes as well, and would wait for as long as an answer asks for.
        config.default_retry = false;
        config.read_timeout = Some(PATIENCE);
        let namespace = self.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let builder = ClientBuilder::try_from(config).context("building the Kubernetes client")?;
        Ok(Cluster { client: reread::client(builder), namespace })
    }
}

/// Does something with a cluster, from a verb that is not asynchronous.
pub(crate) fn with<T>(arguments: &ClusterArguments, work: impl AsyncFnOnce(Cluster) -> Result<T>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
    runtime.block_on(async { work(arguments.connect().await?).await })
}
