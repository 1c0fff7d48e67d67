//! Everything together: control plane, GitHub, nodes and operator, in one call.

use std::fmt::{self, Write as _};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;

use crate::controlplane::{self, ApiCalls, Caller, ControlPlane, ControlPlaneError, StaticUser};
use crate::github::{Settings, SimGitHub};
use crate::nodes::{self, Nodes, NodesError};
use crate::operator::{self, Operator, OperatorError};
use crate::receivers::{self, Receivers};

/// How long the operator has until it acts.
const PATIENCE: Duration = Duration::from_secs(120);

/// Columns of the reports that say why an object is still there.
const LIFE: &str = "NAME:.metadata.name,UID:.metadata.uid,DELETED:.metadata.deletionTimestamp,FINALIZERS:.metadata.finalizers,\
                    OWNER:.metadata.ownerReferences[*].name,OWNER UID:.metadata.ownerReferences[*].uid";

/// What is to be started.
#[derive(Clone, Debug)]
pub struct Options {
    /// The control plane. The definitions of [`Options::definitions`] are added to its own.
    pub plane: controlplane::Options,
    /// Settings of the simulated GitHub.
    pub github: Settings,
    /// The simulated nodes; none when absent.
    pub nodes: Option<nodes::Options>,
    /// The operator; none when absent.
    pub operator: Option<operator::Options>,
    /// Webhook receivers beside the operator; none when absent.
    pub receivers: Option<receivers::Options>,
    /// Custom resource definitions: files or directories. Those that do not exist are passed over.
    pub definitions: Vec<PathBuf>,
    /// What is applied after the operator's namespace was made: its service account and roles. Missing ones are passed over.
    pub manifests: Vec<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
        Self {
            plane: controlplane::Options::default(),
            github: Settings::default(),
            nodes: Some(nodes::Options::default()),
            operator: Some(operator::Options::default()),
            receivers: None,
            definitions: vec![deploy.join("chart/crds")],
            manifests: vec![deploy.join("base/namespace.yaml"), deploy.join("base/rbac.yaml")],
        }
    }
}

/// Why the world could not be started, or what went wrong in it.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// The control plane could not be started or used.
    #[error(transparent)]
    ControlPlane(#[from] ControlPlaneError),
    /// The simulated GitHub could not be started.
    #[error("cannot start the simulated GitHub: {0}")]
    GitHub(io::Error),
    /// The simulated nodes could not be started or used.
    #[error(transparent)]
    Nodes(#[from] NodesError),
    /// The operator could not be run or asked.
    #[error(transparent)]
    Operator(#[from] OperatorError),
    /// A check of a test failed; see [`World::check`].
    #[error("{what}\n{report}")]
    Check {
        /// The error of the check.
        what: String,
        /// The state of the world then.
        report: String,
    },
}

/// A whole world; it ends when the handle is dropped.
pub struct World {
    // Dropped in this order, so that nothing complains about the absence of the other.
    /// The operator, if there is one.
    pub operator: Option<Operator>,
    /// What receives webhooks beside the operator, if anything does.
    pub receivers: Option<Receivers>,
    /// The nodes, if there are any.
    pub nodes: Option<Nodes>,
    /// The simulated GitHub.
    pub github: SimGitHub,
    /// The control plane.
    pub plane: ControlPlane,
    /// A client that may do everything.
    pub client: kube::Client,
    /// Of the operator, and of the receivers where there are any.
    accounts: Vec<Caller>,
}

impl World {
    /// Starts a world and waits until all of it is ready.
    ///
    /// # Errors
    ///
    /// When a part of it does not start; the error holds the end of that part's log.
    pub async fn start(options: Options) -> Result<Self, WorldError> {
        let github = SimGitHub::start(options.github).await.map_err(WorldError::GitHub)?;
        let mut plane_options = options.plane;
        plane_options.definitions.extend(options.definitions.into_iter().filter(|path| path.exists()));
        let plane = ControlPlane::start(plane_options).await?;
        let client = plane.admin()?;
        let account = options.operator.clone().unwrap_or_default();
        plane.set_up_namespace(&account.namespace).await?;
        for manifest in options.manifests.iter().filter(|path| path.exists()) {
            plane.set_up(manifest).await?;
        }
        let nodes = match options.nodes {
            Some(nodes) => Some(Nodes::start(plane.client(StaticUser::Nodes)?, github.clone(), nodes).await?),
            None => None,
        };
        let operator = match &options.operator {
            Some(operator) => {
                let operator = Operator::start(&plane, &github, operator).await?;
                operator.until_acting(PATIENCE).await?;
                Some(operator)
            }
            None => None,
        };
        let receivers = match &options.receivers {
            Some(receivers) => Some(Receivers::start(&plane, &github, receivers).await?),
            None => None,
        };
        let replica = options.receivers.map(|receivers| receivers.replica);
        let accounts = [Some(account), replica]
            .into_iter()
            .flatten()
            .map(|options| Caller::service_account(&options.namespace, &options.service_account))
            .collect();
        Ok(Self { operator, receivers, nodes, github, plane, client, accounts })
    }

    /// Requests of the operator, and of the receivers beside it, to the API server since `since`, as far as the audit log records them. Those for
    /// the lease are left out: whatever there is to do, they are one read and one write every two seconds.
    ///
    /// # Errors
    ///
    /// When there is no audit log.
    pub fn operator_calls(&self, since: Option<Timestamp>) -> Result<ApiCalls, WorldError> {
        Ok(self.plane.api_calls(&self.accounts, since)?.without("leases"))
    }

    /// Passes a success on, and adds the state of the world to a failure.
    ///
    /// # Errors
    ///
    /// When `outcome` is one.
    pub async fn check<T, E: fmt::Display>(&self, outcome: Result<T, E>) -> Result<T, WorldError> {
        match outcome {
            Ok(value) => Ok(value),
            Err(error) => Err(WorldError::Check { what: error.to_string(), report: self.report().await }),
        }
    }

    /// The state of everything: objects, events, GitHub, nodes, the end of the operator's log.
    pub async fn report(&self) -> String {
        let mut report = String::new();
        for kinds in [
            "horizontalrunnerautoscalers.actions.summerwind.dev",
            "runnerdeployments.actions.summerwind.dev",
            "runnersets.actions.summerwind.dev",
            "runnerreplicasets.actions.summerwind.dev",
            "runners.actions.summerwind.dev",
            "pods",
            "persistentvolumeclaims",
            "nodes",
            "configmaps",
            "leases",
            "events",
        ] {
            let output = self.plane.kubectl(&["get", kinds, "--all-namespaces", "--output=wide"]).await;
            let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
            section(&mut report, kinds, text.trim_end());
        }
        // What holds an object, and what could have it deleted.
        for kinds in ["runnerreplicasets.actions.summerwind.dev", "runners.actions.summerwind.dev", "pods"] {
            let columns = format!("--output=custom-columns={LIFE}");
            let output = self.plane.kubectl(&["get", kinds, "--all-namespaces", &columns]).await;
            let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
            section(&mut report, &format!("lives of {kinds}"), text.trim_end());
        }
        section(&mut report, "GitHub", &format!("{:?}\n{:?}", self.github.jobs(), self.github.runners()));
        if let Some(nodes) = &self.nodes {
            section(&mut report, "pods by stage", &format!("{:?}", nodes.tally()));
            section(&mut report, "jobs cut short", &format!("{:?}", nodes.busy_kills()));
        }
        if let Ok(calls) = self.operator_calls(None) {
            section(&mut report, "writes of the operator", &calls.to_string());
        }
        section(&mut report, "kube-controller-manager", &self.plane.controllers_log(8_000));
        if let Some(operator) = &self.operator {
            section(&mut report, "operator", &operator.log_tail(16_000));
        }
        if let Some(receivers) = &self.receivers {
            section(&mut report, "webhook receivers", &receivers.log_tails(8_000));
        }
        report
    }

    /// Ends the operator in order, then everything else.
    pub async fn stop(self) {
        if let Some(operator) = &self.operator {
            operator.terminate().await;
        }
        if let Some(receivers) = self.receivers {
            receivers.stop().await;
        }
        if let Some(nodes) = self.nodes {
            nodes.stop().await;
        }
        self.github.stop().await;
        self.plane.stop().await;
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("plane", &self.plane.url()).field("nodes", &self.nodes).finish_non_exhaustive()
    }
}

fn section(report: &mut String, title: &str, text: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(report, "=== {title}\n{}", if text.is_empty() { "(none)" } else { text });
}
