//! What `/metrics` shows. Gauges about objects are read from the stores at the moment of the scrape, so that a deleted object leaves nothing
//! behind; every other label is one of a closed set.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context as TaskContext, Poll};

use http::Request;
use jiff::Timestamp;
use kube::ResourceExt;
use pacer_api::autoscaler::ScaleTargetKind;
use pacer_cluster::nodes::Nodes;
use pacer_cluster::object::{ObjectKey, Uid};
use pacer_core::phase::Cause;
use pacer_core::price::Prices;
use pacer_demand::ledger::Ledgers;
use pacer_demand::receiver::{ReceiverMetrics, WAITS};
use pacer_demand::redelivery::RedeliveryMetrics;
use pacer_github::GitHub;
use pacer_policy::{Counters as PolicyCounters, Decision, Fault, IsolationLevel};
use pacer_policyset::receipts::{Counters as ReceiptCounters, Recent};
use pacer_policyset::{Phase, PolicySets, Totals, View};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tower::{Layer, Service};

use crate::access::Accesses;
use crate::autoscaler::AutoscalerMemo;
use crate::lost::LostJobs;
use crate::published::Published;
use crate::runner::Supplies;
use crate::standing::Standings;
use crate::stores::Stores;
use crate::target::Target;
use crate::tenancy::{Standing, Tenancies};
use crate::usage::Usage;

mod autoscaling;
mod connections;
mod recording;
mod time;
mod would_be;

pub use connections::{ConnectionDrop, ConnectionMetrics, HttpServer};
pub use recording::RecordingMetrics;

/// Kinds of objects the operator writes; anything else counts as `other`.
const RESOURCES: [&str; 13] = [
    "pods",
    "secrets",
    "events",
    "leases",
    "nodes",
    "runners",
    "runnerreplicasets",
    "runnerdeployments",
    "runnersets",
    "persistentvolumeclaims",
    "configmaps",
    "horizontalrunnerautoscalers",
    "namespaces",
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReconcileLabels {
    kind: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    resource: &'static str,
}

/// The operator's metrics.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    reconciles: Family<ReconcileLabels, Counter>,
    requests: Family<RequestLabels, Counter>,
    leading: Arc<RwLock<Leading>>,
    connections: connections::Connections,
    receiver: ReceiverMetrics,
    redelivery: RedeliveryMetrics,
    recording: RecordingMetrics,
    estimate_errors: Histogram,
    lost_jobs: LostJobs,
    usage: Arc<Usage>,
    sources: Arc<RwLock<Vec<Arc<Sources>>>>,
}

/// For what this process may act.
#[derive(Clone, Debug)]
pub enum Leading {
    /// For everything or nothing.
    Whole(bool),
    /// For these shards and no others.
    Shards(BTreeMap<u16, bool>),
}

/// Where figures come from that are read at the scrape. In a process that acts for several shards there is one of each.
pub struct Sources {
    /// Shard whose figures these are; 0 in a process without shards.
    pub shard: u16,
    /// What the watches know of the cluster's objects.
    pub stores: Stores,
    /// The operator's own client, when it has credentials.
    pub github: Option<GitHub>,
    /// Counts of policy evaluations and faults since the process began.
    pub policies: Arc<PolicyCounters>,
    /// The policy sets, for their phases and totals.
    pub sets: Arc<PolicySets>,
    /// Counts of receipts that were written or dropped since the process began.
    pub receipts: Arc<ReceiptCounters>,
    /// Claims of RunnerSets.
    pub supplies: Arc<Supplies>,
    /// What is remembered about autoscalers.
    pub autoscalers: Published<Uid, AutoscalerMemo>,
    /// JobLedgers: the jobs of each autoscaler.
    pub ledgers: Arc<Ledgers>,
    /// Which tenancy is in force.
    pub tenancies: Arc<Tenancies>,
    /// Where runners stand.
    pub standings: Arc<Standings>,
    /// The newest decisions.
    pub decisions: Recent,
    /// How GitHub is listed.
    pub accesses: Arc<Accesses>,
    /// Reads the nodes that runners are on, for their prices.
    pub nodes: Arc<Nodes>,
    /// What nodes cost; empty where nobody says so.
    pub prices: Prices,
}

impl std::fmt::Debug for Sources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sources")
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let reconciles = Family::default();
        registry.register("pacer_reconciles", "Reconciles by kind and outcome", reconciles.clone());
        let requests = Family::default();
        registry.register("pacer_kubernetes_requests", "Requests to the Kubernetes API", requests.clone());
        let leading = Arc::new(RwLock::new(Leading::Whole(false)));
        let connections = connections::Connections::register(&mut registry);
        let receiver = ReceiverMetrics::register(&mut registry);
        let redelivery = RedeliveryMetrics::register(&mut registry);
        let recording = RecordingMetrics::register(&mut registry);
        let estimate_errors = Histogram::new(WAITS);
        let help = "By how much the likely start of a job that waits missed its start";
        registry.register("pacer_wait_estimate_error_seconds", help, estimate_errors.clone());
        let lost_jobs = LostJobs::register(&mut registry);
        let usage = Arc::new(Usage::default());
        let sources = Arc::new(RwLock::new(Vec::new()));
        let scrape =
            Scrape { leading: leading.clone(), usage: usage.clone(), sources: sources.clone(), receiver: receiver.clone() };
        registry.register_collector(Box::new(scrape));
        Self {
            registry,
            reconciles,
            requests,
            leading,
            connections,
            receiver,
            redelivery,
            recording,
            estimate_errors,
            lost_jobs,
            usage,
            sources,
        }
    }
}

impl Metrics {
    /// Says where to read from at scrapes, until [`Self::forget`].
    pub fn read_from(&self, sources: Sources) {
        let mut all = self.sources.write().unwrap_or_else(PoisonError::into_inner);
        all.push(Arc::new(sources));
        all.sort_by_key(|one| one.shard);
    }

    /// Nothing is read of a shard any more.
    pub fn forget(&self, shard: u16) {
        self.sources.write().unwrap_or_else(PoisonError::into_inner).retain(|one| one.shard != shard);
        self.usage.forget(shard, Timestamp::now());
    }

    /// By how much estimates of starts were wrong, seconds.
    pub(crate) fn estimate_errors(&self) -> &Histogram {
        &self.estimate_errors
    }

    /// Jobs that died with their runners.
    pub(crate) fn lost_jobs(&self) -> &LostJobs {
        &self.lost_jobs
    }

    /// What runners do with their time.
    pub(crate) fn usage(&self) -> &Arc<Usage> {
        &self.usage
    }

    /// Where to read from, by shard; nowhere while this process does not act.
    pub(crate) fn sources(&self) -> Vec<Arc<Sources>> {
        self.sources.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts a reconcile.
    pub fn reconciled(&self, kind: &str, well: bool) {
        let outcome = if well { "success" } else { "error" };
        self.reconciles.get_or_create(&ReconcileLabels { kind: kind.to_owned(), outcome }).inc();
    }

    /// Those of the connections to a server of this process.
    #[must_use]
    pub fn connections(&self, server: HttpServer) -> ConnectionMetrics {
        self.connections.of(server)
    }

    /// Those of the webhook receiver.
    #[must_use]
    pub fn receiver(&self) -> &ReceiverMetrics {
        &self.receiver
    }

    /// Those of missed webhooks.
    pub(crate) fn redelivery(&self) -> &RedeliveryMetrics {
        &self.redelivery
    }

    /// Those of the trace that the operator writes of itself.
    #[must_use]
    pub fn recording(&self) -> &RecordingMetrics {
        &self.recording
    }

    /// For what this process may act.
    pub fn leading(&self, leading: Leading) {
        *self.leading.write().unwrap_or_else(PoisonError::into_inner) = leading;
    }

    /// The text of `/metrics`.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        if prometheus_client::encoding::text::encode(&mut text, &self.registry).is_err() {
            let _ = write!(text, "# EOF");
        }
        text
    }

    fn request<B>(&self, request: &Request<B>) {
        let method = match request.method().as_str() {
            "GET" => "GET",
            "POST" => "POST",
            "PUT" => "PUT",
            "PATCH" => "PATCH",
            "DELETE" => "DELETE",
            _ => "other",
        };
        let resource = request
            .uri()
            .path()
            .split('/')
            .find_map(|segment| RESOURCES.iter().find(|resource| **resource == segment))
            .copied()
            .unwrap_or("other");
        self.requests.get_or_create(&RequestLabels { method, resource }).inc();
    }
}

/// Counts requests to the Kubernetes API.
#[derive(Clone, Debug)]
pub struct MeterLayer {
    metrics: Arc<Metrics>,
}

impl MeterLayer {
    /// A layer that counts into these metrics.
    #[must_use]
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics }
    }
}

impl<S> Layer<S> for MeterLayer {
    type Service = Metered<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Metered { inner, metrics: self.metrics.clone() }
    }
}

/// A service whose requests are counted.
#[derive(Clone, Debug)]
pub struct Metered<S> {
    inner: S,
    metrics: Arc<Metrics>,
}

impl<S, B> Service<Request<B>> for Metered<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        self.metrics.request(&request);
        self.inner.call(request)
    }
}

/// Figures that are read when asked for.
#[derive(Debug)]
struct Scrape {
    leading: Arc<RwLock<Leading>>,
    usage: Arc<Usage>,
    sources: Arc<RwLock<Vec<Arc<Sources>>>>,
    receiver: ReceiverMetrics,
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        leading(&mut encoder, &self.leading.read().unwrap_or_else(PoisonError::into_inner))?;
        let all = self.sources.read().unwrap_or_else(PoisonError::into_inner).clone();
        unreadable(&mut encoder, &all, &self.receiver)?;
        // What the whole process has once is the same in all of them.
        let Some(any) = all.first() else { return Ok(()) };
        targets(&mut encoder, &all)?;
        claims(&mut encoder, &all)?;
        runners(&mut encoder, &all)?;
        failures(&mut encoder, &all)?;
        time::encode(&mut encoder, &self.usage, Timestamp::now())?;
        autoscaling::encode(&mut encoder, &all)?;
        github(&mut encoder, any)?;
        answers(&mut encoder, &all)?;
        policies(&mut encoder, &any.policies)?;
        receipts(&mut encoder, &any.receipts)?;
        policy_sets(&mut encoder, &all)?;
        would_be::encode(&mut encoder, &all)?;
        tenancy(&mut encoder, &any.tenancies)
    }
}

fn gauge<V: EncodeGaugeValue + Copy>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    rows: &[(Vec<(&str, String)>, V)],
) -> Result<(), std::fmt::Error> {
    let kind = prometheus_client::metrics::MetricType::Gauge;
    let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
    for (labels, value) in rows {
        ConstGauge::new(*value).encode(metric.encode_family(labels)?)?;
    }
    Ok(())
}

fn counter<V: EncodeCounterValue + Copy>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    rows: &[(Vec<(&str, String)>, V)],
) -> Result<(), std::fmt::Error> {
    let kind = prometheus_client::metrics::MetricType::Counter;
    let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
    for (labels, value) in rows {
        ConstCounter::new(*value).encode(metric.encode_family(labels)?)?;
    }
    Ok(())
}

fn leading(encoder: &mut DescriptorEncoder<'_>, leading: &Leading) -> Result<(), std::fmt::Error> {
    let rows = match leading {
        Leading::Whole(leads) => vec![(vec![], i64::from(*leads))],
        Leading::Shards(shards) => {
            shards.iter().map(|(shard, leads)| (vec![("shard", shard.to_string())], i64::from(*leads))).collect()
        }
    };
    gauge(encoder, "pacer_leading", "1 while this process may act", &rows)
}

/// The numbers asked for, under ARC's names.
fn targets(encoder: &mut DescriptorEncoder<'_>, all: &[Arc<Sources>]) -> Result<(), std::fmt::Error> {
    let targets: Vec<Target> = all.iter().flat_map(|sources| sources.stores.targets()).collect();
    let kinds = [
        (ScaleTargetKind::RunnerDeployment, "runnerdeployment", "replicas of RunnerDeployment"),
        (ScaleTargetKind::RunnerSet, "runnerset", "replicas of RunnerSet"),
    ];
    for (kind, label, help) in kinds {
        let of_kind = targets.iter().filter(|target| target.kind() == kind);
        let row = |target: &Target| {
            let labels = vec![(label, target.name().to_owned()), ("namespace", target.namespace().to_owned())];
            (labels, i64::from(target.replicas()))
        };
        gauge(encoder, &format!("{label}_spec_replicas"), help, &of_kind.map(row).collect::<Vec<_>>())?;
    }
    Ok(())
}

/// Every kind has a series from the start, so that an alert can tell none from unknown. A process that acts counts what it acts for, and not the
/// same objects, or those of other shards, once more for the webhooks that it receives.
fn unreadable(
    encoder: &mut DescriptorEncoder<'_>,
    all: &[Arc<Sources>],
    receiver: &ReceiverMetrics,
) -> Result<(), std::fmt::Error> {
    let received = if all.is_empty() { receiver.unreadable() } else { Vec::new() };
    let acted_for = all.iter().flat_map(|sources| sources.stores.unreadable());
    let mut counts = BTreeMap::<&str, usize>::new();
    for (kind, count) in acted_for.chain(received.iter().map(|(kind, count)| (kind.as_str(), *count))) {
        *counts.entry(kind).or_default() += count;
    }
    if counts.is_empty() {
        return Ok(());
    }
    let row = |(kind, count): (&str, usize)| (vec![("kind", String::from(kind))], i64::try_from(count).unwrap_or(i64::MAX));
    let rows: Vec<_> = counts.into_iter().map(row).collect();
    gauge(encoder, "pacer_unreadable_objects", "Objects of the API server that cannot be read and are left out, by kind", &rows)
}

/// Claims of RunnerSets by what can be done with them.
fn claims(encoder: &mut DescriptorEncoder<'_>, all: &[Arc<Sources>]) -> Result<(), std::fmt::Error> {
    let rows: Vec<_> = all
        .iter()
        .flat_map(|sources| sources.supplies.claims.census())
        .map(|((namespace, set, state), count)| {
            (
                vec![("runnerset", set), ("namespace", namespace), ("state", state.to_owned())],
                i64::try_from(count).unwrap_or(i64::MAX),
            )
        })
        .collect();
    gauge(encoder, "pacer_runnerset_claims", "Persistent volume claims of RunnerSets by state", &rows)
}

/// One that did its job is no failure. Every cause has a series from the start, so that the first failure is an increase.
fn failures(encoder: &mut DescriptorEncoder<'_>, all: &[Arc<Sources>]) -> Result<(), std::fmt::Error> {
    let tallies: Vec<_> = all.iter().map(|sources| sources.standings.tallies()).collect();
    let causes = Cause::ALL.into_iter().filter(|cause| *cause != Cause::Completed).map(Cause::as_str);
    let row = |cause: &'static str| {
        let total = tallies.iter().filter_map(|tallies| tallies.get(cause)).map(|tally| tally.total).sum::<u64>();
        (vec![("cause", cause.to_owned())], total)
    };
    let rows: Vec<_> = causes.map(row).collect();
    counter(encoder, "pacer_runner_failures", "Runners that did not start or ended without having done a job, by cause", &rows)
}

fn runners(encoder: &mut DescriptorEncoder<'_>, all: &[Arc<Sources>]) -> Result<(), std::fmt::Error> {
    let mut rows = Vec::new();
    for set in all.iter().flat_map(|sources| sources.stores.sets.state()) {
        let Some(status) = &set.status else { continue };
        let states = [("pending", status.pending_replicas), ("idle", status.idle_replicas), ("busy", status.busy_replicas)];
        for (state, count) in states {
            let labels = vec![
                ("runnerreplicaset", set.name_any()),
                ("namespace", set.namespace().unwrap_or_default()),
                ("state", state.to_owned()),
            ];
            rows.push((labels, i64::from(count.unwrap_or_default())));
        }
    }
    gauge(encoder, "pacer_runners", "Runners of a set by state", &rows)
}

fn github(encoder: &mut DescriptorEncoder<'_>, sources: &Sources) -> Result<(), std::fmt::Error> {
    let Some(github) = &sources.github else { return Ok(()) };
    let budgets = github.budgets();
    let core = budgets.iter().find(|budget| budget.resource == pacer_github::Resource::Core);
    let (limit, remaining) = core.map_or((0, 0), |budget| (i64::from(budget.limit), i64::from(budget.remaining)));
    gauge(encoder, "github_rate_limit", "The maximum number of requests you're permitted to make per hour", &[(vec![], limit)])?;
    gauge(
        encoder,
        "github_rate_limit_remaining",
        "The number of requests remaining in the current rate limit window",
        &[(vec![], remaining)],
    )?;
    let rows: Vec<_> = github
        .calls()
        .into_iter()
        .filter(|count| count.calls > 0)
        .map(|count| {
            (vec![("endpoint", count.endpoint.name().to_owned()), ("outcome", count.outcome.name().to_owned())], count.calls)
        })
        .collect();
    counter(encoder, "pacer_github_calls", "Calls to GitHub; not_modified ones are not charged", &rows)?;
    let rows = github.deferred().map(|(purpose, count)| (vec![("purpose", purpose.as_str().to_owned())], count));
    counter(
        encoder,
        "pacer_github_deferred",
        "Calls put off until their turn, so that GitHub's limits of a minute are kept",
        &rows,
    )?;
    let cache = github.cache();
    gauge(
        encoder,
        "pacer_github_cache_bytes",
        "Answers kept for conditional requests",
        &[(vec![], i64::try_from(cache.bytes).unwrap_or(i64::MAX))],
    )
}

fn answers(encoder: &mut DescriptorEncoder<'_>, all: &[Arc<Sources>]) -> Result<(), std::fmt::Error> {
    let memories = || all.iter().map(|sources| sources.accesses.answer_memory());
    let held: usize = memories().map(|memory| memory.held()).sum();
    gauge(
        encoder,
        "pacer_github_foreign_bytes",
        "Bytes that answers of GitHub servers hold in memory that credentials of namespaces name",
        &[(vec![], i64::try_from(held).unwrap_or(i64::MAX))],
    )?;
    counter(
        encoder,
        "pacer_github_foreign_refused",
        "Answers of such servers that were not read, because all of them together hold as much memory as they may",
        &[(vec![], memories().map(|memory| memory.refused()).sum::<u64>())],
    )
}

fn tenancy(encoder: &mut DescriptorEncoder<'_>, tenancies: &Tenancies) -> Result<(), std::fmt::Error> {
    let now = tenancies.standing();
    let rows: Vec<_> = Standing::ALL
        .into_iter()
        .map(|standing| (vec![("state", standing.as_str().to_owned())], i64::from(standing == now)))
        .collect();
    gauge(encoder, "pacer_tenancy", "1 for whether a tenancy is in force: none is asked for, active, last_good, closed", &rows)?;
    let rows: Vec<_> = tenancies.put_off().into_iter().map(|(name, count)| (vec![("namespace", name)], count)).collect();
    counter(
        encoder,
        "pacer_tenancy_deferred",
        "GitHub calls put off because a namespace has made as many in a minute as its quota allows",
        &rows,
    )
}

fn policies(encoder: &mut DescriptorEncoder<'_>, counters: &PolicyCounters) -> Result<(), std::fmt::Error> {
    let rows: Vec<_> = Decision::ALL
        .into_iter()
        .map(|decision| (vec![("decision", decision.as_str().to_owned())], counters.evaluations(decision)))
        .collect();
    counter(encoder, "pacer_policy_evaluations", "Answers of policies that were used", &rows)?;
    let rows: Vec<_> = Fault::KINDS.into_iter().map(|kind| (vec![("kind", kind.to_owned())], counters.faults(kind))).collect();
    counter(encoder, "pacer_policy_faults", "Answers of policies that could not be used", &rows)?;
    counter(
        encoder,
        "pacer_policy_fallbacks",
        "Decisions that another policy took because of a fault",
        &[(vec![], counters.fallbacks())],
    )?;
    counter(encoder, "pacer_policy_fuel", "Instructions that policies executed", &[(vec![], counters.fuel())])?;
    type Count = fn(&PolicyCounters, Decision) -> u64;
    let shadow: [(&str, &str, Count); 3] = [
        ("pacer_policy_shadow_evaluations", "Answers of policies in shadow, faults included", PolicyCounters::compared),
        ("pacer_policy_shadow_agreements", "Answers in shadow with the effect of the one that was used", PolicyCounters::agreed),
        ("pacer_policy_shadow_faults", "Answers in shadow that could not have been used", PolicyCounters::shadow_faults),
    ];
    for (name, help, count) in shadow {
        let rows: Vec<_> = Decision::ALL
            .into_iter()
            .map(|decision| (vec![("decision", decision.as_str().to_owned())], count(counters, decision)))
            .collect();
        counter(encoder, name, help, &rows)?;
    }
    Ok(())
}

fn receipts(encoder: &mut DescriptorEncoder<'_>, counters: &ReceiptCounters) -> Result<(), std::fmt::Error> {
    let row = |outcome: &str, count| (vec![("outcome", outcome.to_owned())], count);
    let rows = [row("stored", counters.stored()), row("dropped", counters.dropped())];
    counter(encoder, "pacer_policy_receipts", "Receipts of decisions by what became of them", &rows)
}

fn policy_sets(encoder: &mut DescriptorEncoder<'_>, all: &[Arc<Sources>]) -> Result<(), std::fmt::Error> {
    // Each shard has the default set, and they are told of it once.
    let views: BTreeMap<ObjectKey, View> = all.iter().rev().flat_map(|sources| sources.sets.views()).collect();
    let set = |key: &ObjectKey| vec![("namespace", key.namespace.clone()), ("set", key.name.clone())];
    let rows: Vec<_> = views
        .iter()
        .flat_map(|(key, view)| {
            Phase::ALL.into_iter().map(move |phase| {
                let mut labels = set(key);
                labels.push(("phase", phase.as_str().to_owned()));
                (labels, i64::from(view.phase == phase))
            })
        })
        .collect();
    gauge(encoder, "pacer_policy_set_phase", "1 for the phase that a policy set is in", &rows)?;
    let rows: Vec<_> = views
        .iter()
        .flat_map(|(key, view)| {
            let failing = view.failing();
            let enforced = Decision::ALL
                .into_iter()
                .filter(|decision| view.staged.as_ref().is_some_and(|staged| staged.enforced(*decision).is_some()));
            enforced
                .map(|decision| {
                    let mut labels = set(key);
                    labels.push(("decision", decision.as_str().to_owned()));
                    (labels, i64::from(failing.iter().any(|(failing, _)| *failing == decision)))
                })
                .collect::<Vec<_>>()
        })
        .collect();
    gauge(encoder, "pacer_policy_breaker_open", "1 while a policy keeps failing and is not asked", &rows)?;
    let isolation = all.first().and_then(|sources| sources.sets.host().isolation()).map(|isolation| isolation.level);
    let rows: Vec<_> = IsolationLevel::ALL
        .into_iter()
        .map(|level| (vec![("level", level.as_str().to_owned())], i64::from(isolation == Some(level))))
        .collect();
    gauge(encoder, "pacer_policy_isolation", "1 for how well the processes that run policies are locked in", &rows)?;
    type Total = fn(&Totals) -> &AtomicU64;
    let counts: [(&str, &str, Total); 3] = [
        ("pacer_policy_set_activations", "Contents of policy sets that came into force", |totals| &totals.activations),
        ("pacer_policy_set_refusals", "Contents of policy sets that were refused", |totals| &totals.refusals),
        ("pacer_policy_set_rollbacks", "Contents of policy sets that were rolled back", |totals| &totals.rollbacks),
    ];
    for (name, help, total) in counts {
        let count = all.iter().map(|sources| total(sources.sets.totals()).load(Ordering::Relaxed)).sum::<u64>();
        counter(encoder, name, help, &[(vec![], count)])?;
    }
    Ok(())
}
