//! Flags and environment. Names are ARC's where a flag has ARC's meaning (arc-behaviour 6.1); flags that have lost theirs are taken with a
//! warning, so that a Deployment written for ARC starts.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use clap::builder::NonEmptyStringValueParser;
use clap::{ArgAction, Args};
use pacer_api::duration;
use pacer_cluster::lease::shards::lease_name;
use pacer_core::shard::Shards;
use pacer_demand::receiver::JobLabel;

use crate::listen::Identity;
use crate::record::{LEAST_RECORD_BYTES, RECORD_BYTES};

/// Arguments of `pacer run`.
#[derive(Args, Debug)]
pub(crate) struct RunArguments {
    /// Kubeconfig file. Default: KUBECONFIG, ~/.kube/config, or the pod's service account.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// Namespace to watch. Empty: all namespaces.
    #[arg(long, default_value = "", value_name = "NAMESPACE")]
    pub(crate) watch_namespace: String,

    #[command(flatten)]
    pub(crate) metrics: MetricsArguments,

    /// A second address that serves /healthz and /readyz. Empty: none.
    #[arg(long, default_value = "", value_name = "ADDR")]
    pub(crate) health_probe_bind_address: String,

    /// Address on which every replica receives webhooks. Empty: none. See also `pacer webhook`.
    #[arg(long, default_value = "", value_name = "ADDR")]
    pub(crate) webhook_addr: String,

    /// Address of the read-only web page that shows runners, queue, capacity and decisions. Empty: none. See docs/page.md.
    #[arg(long, default_value = "", value_name = "ADDR")]
    pub(crate) ui_addr: String,

    /// File with the token that the page requires, at least 16 characters. Required unless the address is a loopback address.
    #[arg(long, value_name = "FILE")]
    pub(crate) ui_token_file: Option<PathBuf>,

    /// Directory into which the leader records a trace of its pools, jobs and runners, in the format of `pacer record`. Default: no recording. See
    /// docs/trace.md.
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) record: Option<PathBuf>,

    /// Maximum total size of the trace files in bytes. The oldest are deleted first.
    #[arg(long, default_value_t = RECORD_BYTES, value_parser = clap::value_parser!(u64).range(LEAST_RECORD_BYTES..), value_name = "BYTES")]
    pub(crate) record_bytes: u64,

    /// How often each pool with policies in shadow mode is simulated, to report what its fleet would be by now. 0s: never. See docs/policy-sets.md.
    #[arg(long, default_value = "1m", value_parser = duration::parse, value_name = "DURATION")]
    pub(crate) shadow_simulation_interval: Duration,

    #[command(flatten)]
    pub(crate) receiver: ReceiverArguments,

    #[command(flatten)]
    pub(crate) recovery: RecoveryArguments,

    #[command(flatten)]
    pub(crate) redelivery: RedeliveryArguments,

    #[command(flatten)]
    pub(crate) github: GitHubArguments,

    #[command(flatten)]
    pub(crate) pods: PodArguments,

    #[command(flatten)]
    pub(crate) facts: FactArguments,

    #[command(flatten)]
    pub(crate) election: ElectionArguments,

    /// Maximum time between two reconciles of an object.
    #[arg(long, default_value = "1m", value_parser = duration::parse, value_name = "DURATION")]
    pub(crate) sync_period: Duration,

    /// Maximum number of concurrent reconciles per kind.
    #[arg(long, alias = "runner-max-concurrent-reconciles", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) max_concurrent_reconciles: u16,

    /// How long an autoscaler keeps its number after a scale-up, if its spec does not say.
    #[arg(long, default_value = "10m", value_parser = duration::parse, value_name = "DURATION")]
    pub(crate) default_scale_down_delay: Duration,

    /// Maximum number of runners per minute that one autoscaler adds above its minimum. 0: no limit.
    #[arg(long, default_value_t = 0, value_name = "RUNNERS")]
    pub(crate) max_new_runners_per_minute: u32,

    /// How long a runner must show no sign of a job before the operator asks GitHub to remove it. The time starts when the runner became idle or when
    /// there were too many runners, whichever is later. If the pod gives no evidence, the runner must be idle for at least 90s. See docs/evidence.md.
    #[arg(long, default_value = "10s", value_parser = duration::parse, value_name = "DURATION")]
    pub(crate) idle_confirmation: Duration,

    /// How long a runner that is being removed may take to finish its job. GitHub ends jobs after five days.
    #[arg(long, default_value = "120h", value_parser = duration::parse, value_name = "DURATION")]
    pub(crate) drain_timeout: Duration,

    /// How long a ready pod may take to register its runner before it may be stopped.
    #[arg(long, default_value = "10m", value_parser = duration::parse, value_name = "DURATION")]
    pub(crate) registration_timeout: Duration,

    /// How long a pod may exist after its deletion timestamp before it is force-deleted.
    #[arg(long, default_value = "1m", value_parser = duration::parse, value_name = "DURATION")]
    pub(crate) force_delete_after: Duration,

    /// How long to keep a PersistentVolumeClaim of a RunnerSet that no runner can use any more, because the RunnerSet or the claim template was
    /// deleted or no node can reach the volume. Default: for ever.
    #[arg(long, value_parser = duration::parse, value_name = "DURATION")]
    pub(crate) runner_set_claim_retention: Option<Duration>,

    /// How long a runner of a RunnerSet waits for a node that can reach the volume of its reused claim. Then a runner with another claim replaces it.
    #[arg(long, default_value = "5m", value_parser = duration::parse, value_name = "DURATION")]
    pub(crate) runner_set_claim_patience: Duration,

    /// ConfigMap with the default policy set, for all pools that name no other: NAMESPACE/NAME, or NAME in the operator's namespace. Empty: none.
    #[arg(long, default_value = "pacer-policies", value_name = "CONFIGMAP")]
    pub(crate) policies: String,

    /// ConfigMap whose key tenancy.yaml says which namespaces may register runners in which scopes: NAMESPACE/NAME, or NAME in the operator's
    /// namespace. Empty: every namespace may use the operator's credentials for every scope that they reach. See docs/tenancy.md.
    #[arg(long, default_value = "", value_name = "CONFIGMAP")]
    pub(crate) tenancy: String,

    /// Refuses to start if the kernel can't isolate the processes that handle users' policies. See docs/isolation.md for the requirements.
    #[arg(long)]
    pub(crate) require_policy_isolation: bool,

    /// Uses only the shipped policies and ignores policy sets in ConfigMaps.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) builtin_policies_only: bool,

    /// PEM file with public keys as written by cosign generate-key-pair. Repeatable. Policies from registries (oci://) must then be signed with one
    /// of these keys. Read when the operator starts.
    #[arg(long, value_name = "FILE")]
    pub(crate) policy_verification_key: Vec<PathBuf>,

    /// Also pulls policies from registries on the operator's own machine (oci://127.0.0.1:5000/...), without TLS. Anyone who can write a policy set
    /// can then make the operator send such requests to anything that listens there.
    #[arg(long)]
    pub(crate) policy_registries_on_loopback: bool,

    /// Maximum number of decision receipts kept per pool, in a ConfigMap in the pool's namespace. 0: none. `pacer explain` reads them.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(0..=10_000), value_name = "NUMBER")]
    pub(crate) receipts_per_pool: u16,

    /// Maximum compressed size of these receipts in bytes. A ConfigMap can hold 1 MiB.
    #[arg(long, default_value_t = 256 * 1024, value_parser = clap::value_parser!(u32).range(4_096..=1_000_000), value_name = "BYTES")]
    pub(crate) receipts_bytes_per_pool: u32,

    /// Runner labels added to those of every RunnerDeployment and RunnerSet. Comma-separated, repeatable.
    #[arg(long, value_delimiter = ',', value_name = "LABEL")]
    pub(crate) common_runner_labels: Vec<String>,

    /// Log level: debug, info, warn or error, or a zap level such as -4.
    #[arg(long, default_value = "info", allow_hyphen_values = true, value_name = "LEVEL")]
    pub(crate) log_level: String,

    /// Log format.
    #[arg(long, default_value = "text", value_name = "FORMAT")]
    pub(crate) log_format: LogFormat,

    #[command(flatten)]
    pub(crate) obsolete: ObsoleteArguments,
}

/// Arguments of `pacer webhook`.
#[derive(Args, Debug)]
pub(crate) struct WebhookArguments {
    /// Kubeconfig file. Default: KUBECONFIG, ~/.kube/config, or the pod's service account.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// Address on which webhooks are received, on every path.
    #[arg(long, default_value = ":8000", value_name = "ADDR")]
    pub(crate) webhook_addr: String,

    #[command(flatten)]
    pub(crate) metrics: MetricsArguments,

    /// Namespace of the autoscalers. Empty: all namespaces.
    #[arg(long, default_value = "", value_name = "NAMESPACE")]
    pub(crate) watch_namespace: String,

    /// Gives jobs only to autoscalers whose scope the operator has verified. Use it with an operator that has --tenancy. Autoscalers whose runners
    /// have their own credentials are always verified.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) proved_scopes_only: bool,

    #[command(flatten)]
    pub(crate) receiver: ReceiverArguments,

    /// --common-runner-labels of the operator. Comma-separated, repeatable.
    #[arg(long, value_delimiter = ',', value_name = "LABEL")]
    pub(crate) common_runner_labels: Vec<String>,

    #[command(flatten)]
    pub(crate) github: GitHubArguments,

    /// Log level: debug, info, warn or error, or a zap level such as -4.
    #[arg(long, default_value = "info", allow_hyphen_values = true, value_name = "LEVEL")]
    pub(crate) log_level: String,

    /// Log format.
    #[arg(long, default_value = "text", value_name = "FORMAT")]
    pub(crate) log_format: LogFormat,
}

/// Who may deliver webhooks, and how much at a time.
#[derive(Args)]
pub(crate) struct ReceiverArguments {
    /// Webhook secret. Repeat it to accept both the old and the new secret during a change; the variable holds only one.
    #[arg(long, env = "GITHUB_WEBHOOK_SECRET_TOKEN", hide_env_values = true, value_name = "SECRET")]
    pub(crate) github_webhook_secret_token: Vec<String>,
    /// File with additional webhook secrets, one per line. Repeatable.
    #[arg(long, value_name = "FILE")]
    pub(crate) github_webhook_secret_file: Vec<PathBuf>,
    /// Accepts webhooks that have only a SHA-1 signature.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) webhook_allow_sha1: bool,
    /// Accepts unsigned webhooks if no secret is configured: anyone who can reach the address can then start runners. Without this flag the server
    /// does not start without a secret.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) insecure_no_webhook_secret: bool,
    /// Maximum size of a webhook body in bytes. Deliveries about jobs have 10 to 30 KiB; GitHub sends at most 25 MiB.
    #[arg(long, default_value_t = 2 * 1024 * 1024, value_name = "BYTES")]
    pub(crate) webhook_body_limit: usize,
    /// Maximum number of webhooks that are processed at the same time. Further ones are answered with 503.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..), value_name = "NUMBER")]
    pub(crate) queue_limit: u16,
    /// Labels of the metrics about jobs. Anyone who can edit a workflow chooses the values of job_name, workflow_name, head_branch and runs_on.
    #[arg(
        long, value_delimiter = ',', value_name = "LABEL", value_parser = job_label,
        default_value = "organization,repository,repository_full_name,owner"
    )]
    pub(crate) job_metrics_labels: Vec<JobLabel>,
    /// Maximum number of label combinations of these metrics. Further ones are counted as "other". 0: no metrics about jobs.
    #[arg(long, default_value_t = 1_000, value_name = "NUMBER")]
    pub(crate) job_metrics_series: usize,
}

fn job_label(text: &str) -> Result<JobLabel, String> {
    let names = || JobLabel::ALL.map(JobLabel::as_str).join(", ");
    JobLabel::ALL.into_iter().find(|label| label.as_str() == text.trim()).ok_or_else(|| format!("labels are {}", names()))
}

impl std::fmt::Debug for ReceiverArguments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReceiverArguments").field("queue_limit", &self.queue_limit).finish_non_exhaustive()
    }
}

/// Jobs that died with their runners.
#[derive(Args, Debug)]
pub(crate) struct RecoveryArguments {
    /// Re-runs jobs that were lost with their runners, if a policy set has a policy for `recover` and that policy asks for it. Requires write
    /// permission for Actions at GitHub. See docs/policies.md for the jobs that qualify.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) recover_jobs: bool,

    /// Maximum number of re-runs of one workflow run, including those that others started.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10), value_name = "NUMBER")]
    pub(crate) recover_jobs_per_run: u32,

    /// Maximum number of jobs of one pool that are re-run within an hour.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=60), value_name = "NUMBER")]
    pub(crate) recover_jobs_per_hour: u32,
}

/// What policies that ask for further facts may be told. docs/policies.md.
#[derive(Args, Debug)]
pub(crate) struct FactArguments {
    /// Node labels that policies can see. Comma-separated, repeatable.
    #[arg(long, value_delimiter = ',', default_value = pacer_core::node::LABELS, value_name = "LABEL")]
    pub(crate) policy_node_labels: Vec<String>,
    /// Prefixes of Runner labels that policies can see, for example example.com/. Comma-separated, repeatable.
    #[arg(long, value_delimiter = ',', value_name = "PREFIX")]
    pub(crate) policy_labels: Vec<String>,
    /// Prefixes of Runner annotations that policies can see. Comma-separated, repeatable. Annotations without a slash in their key are never passed
    /// on.
    #[arg(long, value_delimiter = ',', value_name = "PREFIX")]
    pub(crate) policy_annotations: Vec<String>,
    /// YAML or JSON file that maps instance types to prices per hour. INSTANCE-TYPE/spot takes precedence over INSTANCE-TYPE for spot nodes. Read
    /// once, at the start.
    #[arg(long, value_name = "FILE")]
    pub(crate) node_prices: Option<PathBuf>,
}

/// Which missed webhooks GitHub is asked to deliver again.
#[derive(Args, Debug)]
pub(crate) struct RedeliveryArguments {
    /// Payload URL as in the webhook's settings at GitHub. The operator finds failed deliveries to it and requests their redelivery, if the
    /// credentials may read deliveries. Repeatable. Default: no redeliveries.
    #[arg(long, value_name = "URL")]
    pub(crate) webhook_url: Vec<String>,
    /// How often the operator reads GitHub's list of deliveries.
    #[arg(long, default_value = "1m", value_parser = duration::parse, value_name = "DURATION")]
    pub(crate) redelivery_period: Duration,
    /// Maximum age of an event whose redelivery is requested.
    #[arg(long, default_value = "2h", value_parser = duration::parse, value_name = "DURATION")]
    pub(crate) redelivery_age: Duration,
    /// Maximum number of redelivery requests for one event.
    #[arg(long, default_value_t = 6, value_name = "NUMBER")]
    pub(crate) redelivery_attempts: u32,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// For machines: one object per line with `timestamp`, `level` and `message`.
    Json,
}

/// Credentials and addresses of GitHub.
#[derive(Args)]
pub(crate) struct GitHubArguments {
    /// Personal access token.
    #[arg(long, env = "GITHUB_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    pub(crate) github_token: Option<String>,
    /// ID of the GitHub App.
    #[arg(long, env = "GITHUB_APP_ID", value_name = "ID")]
    pub(crate) github_app_id: Option<String>,
    /// ID of the App's installation. Default: looked up.
    #[arg(long, env = "GITHUB_APP_INSTALLATION_ID", value_name = "ID")]
    pub(crate) github_app_installation_id: Option<String>,
    /// Private key of the App: the path of a PEM file, or its content.
    #[arg(long, env = "GITHUB_APP_PRIVATE_KEY", hide_env_values = true, value_name = "PEM")]
    pub(crate) github_app_private_key: Option<String>,
    /// User name for a proxy in front of the API.
    #[arg(long, env = "GITHUB_BASICAUTH_USERNAME", value_name = "NAME")]
    pub(crate) github_basicauth_username: Option<String>,
    /// Password for a proxy in front of the API.
    #[arg(long, env = "GITHUB_BASICAUTH_PASSWORD", hide_env_values = true, value_name = "PASSWORD")]
    pub(crate) github_basicauth_password: Option<String>,
    /// URL of the GitHub Enterprise Server. The other URLs are derived from it.
    #[arg(long, env = "GITHUB_ENTERPRISE_URL", value_name = "URL")]
    pub(crate) github_enterprise_url: Option<String>,
    /// Base URL of the API, instead of <https://api.github.com/>.
    #[arg(long, env = "GITHUB_URL", value_name = "URL")]
    pub(crate) github_url: Option<String>,
    /// Validated but not used: the operator uploads nothing.
    #[arg(long, env = "GITHUB_UPLOAD_URL", value_name = "URL")]
    pub(crate) github_upload_url: Option<String>,
    /// URL at which runners register, instead of <https://github.com/>.
    #[arg(long, env = "GITHUB_RUNNER_GIT_HUB_URL", value_name = "URL")]
    pub(crate) runner_github_url: Option<String>,
    /// PEM file with certificate authorities to trust in addition to the system's.
    #[arg(long, value_name = "FILE")]
    pub(crate) github_ca_file: Option<PathBuf>,
}

impl std::fmt::Debug for GitHubArguments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GitHubArguments").field("github_url", &self.github_url).finish_non_exhaustive()
    }
}

/// Defaults of runner pods.
#[derive(Args, Debug)]
pub(crate) struct PodArguments {
    /// Image of runners whose spec has none.
    #[arg(long, default_value = "summerwind/actions-runner:latest", value_name = "IMAGE")]
    pub(crate) runner_image: String,
    /// Image of the docker sidecar.
    #[arg(long, default_value = "docker:dind", value_name = "IMAGE")]
    pub(crate) docker_image: String,
    /// Group ID of the docker socket, if it does not follow from the runner image's name.
    #[arg(long, default_value_t = 1001, value_name = "GID")]
    pub(crate) docker_gid: u32,
    /// Image pull secret of runner pods whose spec has none. Repeatable.
    #[arg(long = "runner-image-pull-secret", value_name = "SECRET")]
    pub(crate) runner_image_pull_secrets: Vec<String>,
    /// Registry mirror that dockerd uses.
    #[arg(long, default_value = "", value_name = "URL")]
    pub(crate) docker_registry_mirror: String,
    /// Runners report their state in the status of their Runner object.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) runner_status_update_hook: bool,
    /// ClusterRole to which runners in container mode kubernetes are bound in their namespace, unless their spec names a service account.
    #[arg(long, default_value = "pacer-job-pods", value_name = "NAME")]
    pub(crate) job_pods_cluster_role: String,
}

/// Leader election.
#[derive(Args, Debug)]
pub(crate) struct ElectionArguments {
    /// Elects a leader, so that only one of several replicas acts.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) enable_leader_election: bool,
    /// Name of the Lease.
    #[arg(long, default_value = "actions-runner-controller", value_name = "NAME")]
    pub(crate) leader_election_id: String,
    /// Namespace of the Lease. Default: the operator's namespace.
    #[arg(long, value_name = "NAMESPACE")]
    pub(crate) leader_election_namespace: Option<String>,
    /// How long other replicas wait before they take over the lease of a leader that does not renew it.
    #[arg(long, default_value = "15s", value_parser = duration::parse, value_name = "DURATION")]
    pub(crate) lease_duration: Duration,
    /// How long a leader continues to act without renewing its lease.
    #[arg(long, default_value = "10s", value_parser = duration::parse, value_name = "DURATION")]
    pub(crate) lease_renew_deadline: Duration,
    /// UID of the operator's pod. A process that is restarted in the same pod takes over the lease at once. Without this flag, it waits until the lease
    /// expires. Processes that run at the same time must not share a UID.
    #[arg(long, env = "POD_UID", value_name = "UID", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) pod_uid: Option<String>,
    /// Number of shards into which namespaces are divided, so that this many replicas act at the same time. 1: one replica acts, the others stand by.
    /// Must be the same for all replicas. See docs/operations.md for how to change it.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=i64::from(Shards::MOST)))]
    pub(crate) shards: u16,
    /// Interval between attempts to renew or acquire the lease.
    #[arg(long, default_value = "2s", value_parser = duration::parse, value_name = "DURATION")]
    pub(crate) lease_retry_period: Duration,
}

impl ElectionArguments {
    /// Names of the Leases that replicas hold: the first is that of the group.
    pub(crate) fn leases(&self) -> Vec<String> {
        let group = &self.leader_election_id;
        let shards = Shards::new(self.shards).filter(|shards| *shards != Shards::ONE);
        let of_shards = shards.iter().flat_map(|shards| shards.all()).map(|shard| lease_name(group, shard));
        [group.clone()].into_iter().chain(of_shards).collect()
    }
}

/// Flags of ARC without a meaning here.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Accepted without effect")]
pub(crate) struct ObsoleteArguments {
    /// Admission webhooks: there are none.
    #[arg(long, hide = true)]
    pub(crate) port: Option<String>,
    /// Profiling.
    #[arg(long, hide = true)]
    pub(crate) pprof_addr: Option<String>,
    /// Client-side limit.
    #[arg(long, hide = true)]
    pub k8s_client_rate_limiter_qps: Option<String>,
    /// Client-side limit.
    #[arg(long, hide = true)]
    pub k8s_client_rate_limiter_burst: Option<String>,
    /// Scale-set mode.
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) auto_scaling_runner_set_only: Option<String>,
    /// Scale-set mode.
    #[arg(long, hide = true)]
    pub(crate) watch_single_namespace: Option<String>,
    /// Scale-set mode.
    #[arg(long, hide = true)]
    pub(crate) auto_scaler_image_pull_secrets: Option<String>,
    /// Scale-set mode.
    #[arg(long, hide = true)]
    pub(crate) listener_metrics_addr: Option<String>,
    /// Scale-set mode.
    #[arg(long, hide = true)]
    pub(crate) listener_metrics_endpoint: Option<String>,
    /// Scale-set mode.
    #[arg(long, hide = true)]
    pub(crate) update_strategy: Option<String>,
    /// Scale-set mode.
    #[arg(long, hide = true)]
    pub(crate) exclude_label_propagation_prefix: Option<String>,
    /// Work queue.
    #[arg(long, hide = true)]
    pub(crate) workqueue_rate_limiter: Option<String>,
}

impl ObsoleteArguments {
    /// Flags that were given, and why they have no effect.
    pub(crate) fn given(&self) -> Vec<(&'static str, &'static str)> {
        let scale_sets = "belongs to ARC's runner scale sets, which are not this operator's";
        [
            ("--port", &self.port, "there are no admission webhooks: the CRDs validate by themselves"),
            ("--pprof-addr", &self.pprof_addr, "there is no Go profile"),
            (
                "--k8s-client-rate-limiter-qps",
                &self.k8s_client_rate_limiter_qps,
                "requests are bounded by --max-concurrent-reconciles and the API server's own fairness",
            ),
            (
                "--k8s-client-rate-limiter-burst",
                &self.k8s_client_rate_limiter_burst,
                "requests are bounded by --max-concurrent-reconciles and the API server's own fairness",
            ),
            ("--auto-scaling-runner-set-only", &self.auto_scaling_runner_set_only, scale_sets),
            ("--watch-single-namespace", &self.watch_single_namespace, "use --watch-namespace"),
            ("--auto-scaler-image-pull-secrets", &self.auto_scaler_image_pull_secrets, scale_sets),
            ("--listener-metrics-addr", &self.listener_metrics_addr, scale_sets),
            ("--listener-metrics-endpoint", &self.listener_metrics_endpoint, scale_sets),
            ("--update-strategy", &self.update_strategy, scale_sets),
            ("--exclude-label-propagation-prefix", &self.exclude_label_propagation_prefix, scale_sets),
            ("--workqueue-rate-limiter", &self.workqueue_rate_limiter, "failed reconciles back off by themselves"),
        ]
        .into_iter()
        .filter(|(_, value, _)| value.is_some())
        .map(|(flag, _, why)| (flag, why))
        .collect()
    }
}

/// Where metrics are served, and to whom.
#[derive(Debug, Args)]
pub(crate) struct MetricsArguments {
    /// Address that serves /metrics, /healthz and /readyz. Empty: none.
    #[arg(long, default_value = ":8080", value_name = "ADDR")]
    pub(crate) metrics_addr: String,

    /// Serves --metrics-addr over TLS. Without --metrics-tls-cert the operator makes a self-signed certificate at each start.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) metrics_tls: bool,

    /// PEM file with the certificate for --metrics-tls, followed by its issuers' certificates. Reloaded when it changes.
    #[arg(long, value_name = "FILE", requires = "metrics_tls_key")]
    pub(crate) metrics_tls_cert: Option<PathBuf>,

    /// PEM file with the private key of --metrics-tls-cert.
    #[arg(long, value_name = "FILE", requires = "metrics_tls_cert")]
    pub(crate) metrics_tls_key: Option<PathBuf>,

    /// Serves /metrics only to tokens that the API server allows to get the path /metrics. Requires --metrics-tls, because tokens must not travel in
    /// plain text. See docs/operations.md#restricted-metrics.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) metrics_authorization: bool,
}

impl MetricsArguments {
    /// The certificate; none for plain HTTP.
    ///
    /// # Errors
    ///
    /// When flags contradict each other.
    pub(crate) fn identity(&self) -> anyhow::Result<Option<Identity>> {
        ensure!(
            self.metrics_tls || !self.metrics_authorization,
            "--metrics-authorization needs --metrics-tls: tokens would travel in plain text"
        );
        let files = self.metrics_tls_cert.clone().zip(self.metrics_tls_key.clone());
        ensure!(
            self.metrics_tls || files.is_none(),
            "--metrics-tls-cert is given and --metrics-tls is not: the certificate would not be used"
        );
        let identity = || files.map_or(Identity::SelfSigned, |(certificate, key)| Identity::Files { certificate, key });
        Ok(self.metrics_tls.then(identity))
    }
}

/// Go's flags may have one dash: `-metrics-addr=:8080` is `--metrics-addr=:8080`. Single letters stay what they are.
pub(crate) fn as_go_wrote_them(arguments: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    arguments.map(|argument| match argument.to_str() {
        Some(text) if is_go_flag(text) => OsString::from(format!("-{text}")),
        _ => argument,
    })
}

fn is_go_flag(text: &str) -> bool {
    let Some(name) = text.strip_prefix('-') else { return false };
    let name = name.split('=').next().unwrap_or_default();
    name.len() > 1 && name.starts_with(|first: char| first.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::verb::{Command, Pacer};

    fn run(arguments: &[&str]) -> RunArguments {
        let all = ["pacer", "run"].iter().chain(arguments).map(OsString::from);
        match Pacer::parse_from(as_go_wrote_them(all)).command {
            Command::Run(arguments) => *arguments,
            other => panic!("{other:?}"),
        }
    }

    fn webhook(arguments: &[&str]) -> WebhookArguments {
        let all = ["pacer", "webhook"].iter().chain(arguments).map(OsString::from);
        match Pacer::parse_from(as_go_wrote_them(all)).command {
            Command::Webhook(arguments) => *arguments,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Pacer::command().debug_assert();
    }

    #[test]
    fn a_deployment_written_for_arc_starts() {
        let arguments = run(&[
            "--metrics-addr=127.0.0.1:8080",
            "--enable-leader-election",
            "--leader-election-id=arc",
            "--port=9443",
            "--sync-period=1m",
            "--default-scale-down-delay=10m",
            "--docker-image=docker:dind",
            "--runner-image=summerwind/actions-runner:latest",
            "--runner-image-pull-secret=a",
            "--runner-image-pull-secret=b",
            "--common-runner-labels=x,y",
            "--watch-namespace=ci",
            "--log-level=-4",
            "--log-format=json",
            "--runner-status-update-hook=true",
        ]);
        assert!(arguments.election.enable_leader_election && arguments.pods.runner_status_update_hook);
        assert_eq!(arguments.sync_period, Duration::from_secs(60));
        assert_eq!(arguments.pods.runner_image_pull_secrets, ["a", "b"]);
        assert_eq!(arguments.common_runner_labels, ["x", "y"]);
        let given: Vec<_> = arguments.obsolete.given().into_iter().map(|(flag, _)| flag).collect();
        assert_eq!(given, ["--port"]);
    }

    #[test]
    fn a_webhook_server_written_for_arc_starts() {
        let arguments = webhook(&[
            "-metrics-addr=:8081",
            "--webhook-addr=:9000",
            "--log-level=debug",
            "--log-format=text",
            "--watch-namespace=ci",
            "--queue-limit=200",
            "--github-webhook-secret-token=new,er",
            "--github-webhook-secret-token=old",
            "--runner-github-url=https://github.example.com",
        ]);
        assert_eq!((arguments.webhook_addr.as_str(), arguments.receiver.queue_limit), (":9000", 200));
        assert_eq!(arguments.receiver.github_webhook_secret_token, ["new,er", "old"], "a comma is part of a secret");
        let defaults = webhook(&[]);
        assert_eq!((defaults.webhook_addr.as_str(), defaults.metrics.metrics_addr.as_str()), (":8000", ":8080"));
        assert_eq!((defaults.receiver.queue_limit, defaults.receiver.webhook_body_limit), (100, 2_097_152));
        assert!(!defaults.receiver.webhook_allow_sha1 && run(&[]).webhook_addr.is_empty());
    }

    #[test]
    fn metrics_are_plain_unless_asked_for_otherwise() {
        let files = ["--metrics-tls-cert=/tls/tls.crt", "--metrics-tls-key=/tls/tls.key"];
        let identity = |arguments: &[&str]| webhook(arguments).metrics.identity();
        assert_eq!(identity(&[]).unwrap(), None);
        assert_eq!(identity(&["--metrics-tls"]).unwrap(), Some(Identity::SelfSigned));
        assert_eq!(
            identity(&["--metrics-tls", files[0], files[1]]).unwrap(),
            Some(Identity::Files { certificate: "/tls/tls.crt".into(), key: "/tls/tls.key".into() })
        );
        let unused = identity(&files).unwrap_err().to_string();
        assert!(unused.contains("--metrics-tls is not"), "{unused}");
        let plain = identity(&["--metrics-authorization"]).unwrap_err().to_string();
        assert!(plain.contains("needs --metrics-tls"), "{plain}");
        assert!(Pacer::try_parse_from(["pacer", "run", "--metrics-tls", files[0]]).is_err(), "a certificate without its key");
    }

    #[test]
    fn one_dash_will_do() {
        assert_eq!(run(&["-metrics-addr=:1", "-sync-period", "90s"]).sync_period, Duration::from_secs(90));
        assert!(!is_go_flag("-h") && !is_go_flag("--metrics-addr") && !is_go_flag("-4"));
    }

    #[test]
    fn durations_are_gos() {
        for (text, millis) in [("10m", 600_000), ("1h30m", 5_400_000), ("300ms", 300), ("0s", 0), ("1.5h", 5_400_000)] {
            assert_eq!(duration::parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "10", "-1s", "soon"] {
            assert!(duration::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn secrets_do_not_show() {
        let arguments =
            run(&["--github-token=s3cret", "--github-basicauth-password=s3cret", "--github-webhook-secret-token=s3cret"]);
        assert!(!format!("{arguments:?}").contains("s3cret"));
    }
}
