//! `pacer run`: what is started, in which order, and how it ends.
//!
//! ```text
//! health -> webhooks -> policies -> election -> (leading) watches, controllers -> SIGTERM: controllers finish, lease is given back
//! ```
//!
//! With `--shards` all from the watches on is there once for each shard that this process acts for; see [`shards`].

use std::sync::Arc;

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use kube::Config;
use pacer_cluster::events::Events;
use pacer_cluster::fence::Fence;
use pacer_cluster::lease::{Election, LeaseConfig};
use pacer_cluster::nodes::Nodes;
use pacer_cluster::precedence::Precedence;
use pacer_cluster::seed::Seed;
use pacer_cluster::survey::Surveyor;
use pacer_cluster::watch::Range;
use pacer_core::allowed::Allowed;
use pacer_core::polling::Pace;
use pacer_core::price::Prices;
use pacer_core::shard::{Shards, Share};
use pacer_demand::ledger::Ledgers;
use pacer_demand::receiver::Proof;
use pacer_github::queues::Queues;
use pacer_github::{ClientOptions, GitHub};
use pacer_operator::access::Accesses;
use pacer_operator::account::Accounts;
use pacer_operator::attributes::FactSources;
use pacer_operator::cluster::Cluster;
use pacer_operator::controllers::{self, EndedEarly, News, Operator};
use pacer_operator::decisions::Decisions;
use pacer_operator::failures::FailureLog;
use pacer_operator::metrics::{HttpServer, Metrics, Sources};
use pacer_operator::published::{Owned, PoolReports};
use pacer_operator::settings::Settings;
use pacer_operator::stores::Stores;
use pacer_operator::tenancy::Tenancies;
use pacer_operator::{wake, watches};
use pacer_policy::{Counters, IsolationLevel, PolicyHost};
use pacer_policyset::PolicySets;
use pacer_policyset::receipts::{self, Receipts};
use pacer_registry::Registries;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::arguments::RunArguments;
use crate::health::{self, Health, Phase};
use crate::policy::jail;
use crate::record::{Recorder, Sights, WhatIf};
use crate::{connection, default_github, listen, signal, telemetry, ui, webhook};

mod settings;
mod shards;

pub(crate) use settings::settings;

/// `pacer run`: runs the operator until a signal or an error ends it.
pub(crate) fn main(arguments: RunArguments) -> anyhow::Result<()> {
    telemetry::start(&arguments.log_level, arguments.log_format)?;
    for (flag, why) in arguments.obsolete.given() {
        tracing::warn!(flag, why, "flag has no effect");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting the runtime")?;
    runtime.block_on(run(arguments))
}

/// What every part is started with.
struct Process {
    arguments: RunArguments,
    config: Config,
    /// In the lease and in Events: no other process that lives has it.
    identity: String,
    metrics: Arc<Metrics>,
    precedence: Precedence,
    stop: CancellationToken,
}

/// Parts that run from the start to the end of the process, and stop it when they fail.
type Parts = JoinSet<anyhow::Result<()>>;

/// The operator's one task, which ends at `stop`, or early with the name of what failed.
type Controllers = JoinSet<Result<(), EndedEarly>>;

async fn run(arguments: RunArguments) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    let mut parts = Parts::new();
    parts.spawn(signal::stop_on_signal(stop.clone())?);
    let metrics = Arc::new(Metrics::default());
    let health = Health::new(metrics.clone());
    let config = connection::config(arguments.kubeconfig.as_deref()).await?;
    serve_health(&arguments, &config, &health, &mut parts, &stop).await?;
    serve_page(&arguments, &health, &metrics, &mut parts, &stop).await?;

    let shards = settings::shards(&arguments.election)?;
    let process = Arc::new(Process {
        config,
        identity: identity(&hostname(), arguments.election.pod_uid.as_deref()),
        arguments,
        metrics,
        precedence: Precedence::default(),
        stop,
    });
    let webhooks = process.receive_webhooks(&health, &mut parts).await?;
    let policies = Policies::start().await?;
    isolated(&policies.host, process.arguments.require_policy_isolation)?;
    let outcome = if shards == Shards::ONE {
        process.stand(policies, &health, webhooks).await
    } else {
        process.stand_for_shards(shards, policies, &health).await
    };
    process.stop.cancel();
    while let Some(part) = parts.join_next().await {
        part.context("a part panicked")??;
    }
    tracing::info!("stopped");
    outcome
}

/// Says how well policies are isolated; refuses anything but [`IsolationLevel::Full`] where that is required.
fn isolated(policies: &PolicyHost, required: bool) -> anyhow::Result<()> {
    let said = match policies.isolation() {
        Some(isolation) => isolation.to_string(),
        // No policy of a user runs then.
        None => format!("none ({})", policies.broken().unwrap_or("policies are switched off")),
    };
    if policies.isolation().is_some_and(|isolation| isolation.level == IsolationLevel::Full) {
        if let Some(shipped) = policies.shipped() {
            tracing::info!(policy = %shipped, isolation = said, "policies ready");
        }
        return Ok(());
    }
    anyhow::ensure!(
        !required,
        "policies are not isolated: {said}; use a kernel of 5.13 or later with Landlock and seccomp, let the container's seccomp profile \
         permit the landlock system calls, or start without --require-policy-isolation"
    );
    tracing::warn!(
        isolation = said,
        "policies run in processes that are not locked in fully; docs/isolation.md says what that means"
    );
    Ok(())
}

/// Serves health and metrics, before anything takes its time.
async fn serve_health(
    arguments: &RunArguments,
    config: &Config,
    health: &Arc<Health>,
    parts: &mut Parts,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    health::start(&arguments.metrics, config, health, parts, stop).await?;
    let address = &arguments.health_probe_bind_address;
    if !address.is_empty() {
        let listener = listen::bind(address).await?;
        tracing::info!(health_probe_bind_address = %listener.address()?, "serving");
        parts.spawn(health::serve_probes(listener, health.clone(), stop.clone()));
    }
    Ok(())
}

/// Serves the page for people, where `--ui-addr` says so.
async fn serve_page(
    arguments: &RunArguments,
    health: &Arc<Health>,
    metrics: &Arc<Metrics>,
    parts: &mut Parts,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    if !arguments.ui_addr.is_empty() {
        let server = ui::Server::bind(&arguments.ui_addr, arguments.ui_token_file.clone()).await?;
        tracing::info!(ui_addr = %server.address(), "serving");
        parts.spawn(server.run(health.clone(), metrics.clone(), stop.clone()));
    }
    Ok(())
}

/// The engine of policies, and what it counts.
struct Policies {
    host: Arc<PolicyHost>,
    counters: Arc<Counters>,
}

impl Policies {
    /// Compiles the shipped policy, which takes a moment of CPU.
    async fn start() -> anyhow::Result<Self> {
        let counters = Arc::new(Counters::default());
        let (launcher, observer) = (jail::launcher().context("finding the executable that is running")?, counters.clone());
        let host = move || Arc::new(PolicyHost::jailed(launcher, observer));
        let host = tokio::task::spawn_blocking(host).await.context("starting the policy host")?;
        Ok(Self { host, counters })
    }
}

/// What there is once in a process, for however many shards it acts.
#[derive(Clone)]
struct Common {
    policies: Arc<PolicyHost>,
    counters: Arc<Counters>,
    /// Where policies are pulled from that no ConfigMap holds.
    registries: Registries,
    /// The operator's own client, where it has credentials.
    github: Option<GitHub>,
    /// With which other clients are made.
    options: ClientOptions,
    receipts: Arc<receipts::Counters>,
    /// What policies may be told of labels and annotations.
    allowed: Arc<Allowed>,
    /// The file `--node-prices`, read once.
    prices: Prices,
    /// One simulation at a time for policies in shadow.
    simulation: Arc<Semaphore>,
}

/// The right to act, and for what.
struct Mandate {
    fence: Fence,
    /// The namespaces of this shard; all when none.
    share: Option<Share>,
    /// When it is to end.
    stop: CancellationToken,
}

/// The controllers, and what ends after them.
struct Started {
    running: Controllers,
    stores: Stores,
    github: Arc<Accesses>,
    queues: Arc<Queues>,
    recorder: Option<Recorder>,
    /// Simulates for policies in shadow until the controllers are stopped.
    simulating: JoinSet<()>,
    /// Writes receipts until `written`.
    writing: JoinSet<()>,
    written: CancellationToken,
}

impl Started {
    /// Ends what is left when the controllers have ended.
    async fn finish(mut self) {
        // What was decided last is written as well.
        self.written.cancel();
        while self.writing.join_next().await.is_some() {}
        while self.simulating.join_next().await.is_some() {}
        if let Some(recorder) = self.recorder {
            recorder.stop().await;
        }
        self.github.join().await;
        self.queues.join().await;
    }
}

/// Why this process acts no longer.
enum End {
    /// It was told to stop, and the controllers have ended.
    Stopped,
    /// Another operator may lead now.
    LeaseLost,
    /// A part that must not end has ended.
    Failed(anyhow::Error),
}

impl Process {
    /// Receives webhooks, leader or not, where `--webhook-addr` says so.
    async fn receive_webhooks(&self, health: &Arc<Health>, parts: &mut Parts) -> anyhow::Result<Option<webhook::Source>> {
        let arguments = &self.arguments;
        if arguments.webhook_addr.is_empty() {
            return Ok(None);
        }
        health.receiving(false);
        let server = webhook::Server::new(webhook::Setting {
            address: &arguments.webhook_addr,
            namespace: &arguments.watch_namespace,
            proof: if arguments.tenancy.trim().is_empty() { Proof::OfOwnCredentials } else { Proof::OfAll },
            common_labels: &arguments.common_runner_labels,
            receiver: &arguments.receiver,
            github: &arguments.github,
            client: connection::fenced_client(&self.config, Fence::open(), self.metrics.clone())?,
            precedence: self.precedence.clone(),
            metrics: self.metrics.receiver().clone(),
            connections: self.metrics.connections(HttpServer::Webhook),
        });
        let server = server.await?;
        let source = server.source();
        parts.spawn(server.run(health.clone(), self.stop.clone()));
        Ok(Some(source))
    }

    /// Waits for the lease, and acts until `stop` or until it is lost.
    async fn stand(&self, policies: Policies, health: &Health, webhooks: Option<webhook::Source>) -> anyhow::Result<()> {
        let (resign, mut election) = (CancellationToken::new(), JoinSet::new());
        let fence = if self.arguments.election.enable_leader_election { Fence::closed() } else { Fence::open() };
        let mut leading = self.elect(&fence, &resign, &mut election)?;
        health.set(Phase::Standby);
        let stopped = tokio::select! {
            () = self.stop.cancelled() => true,
            lead = leading.wait_for(|leading| *leading) => lead.is_err(),
        };
        let outcome = if stopped {
            Ok(())
        } else {
            health.set(Phase::Filling);
            self.lead(fence, policies, health, leading, webhooks).await
        };
        // The lease is given back only when nothing acts any more.
        resign.cancel();
        while election.join_next().await.is_some() {}
        outcome
    }

    /// Which lease is stood for.
    fn lease(&self) -> anyhow::Result<LeaseConfig> {
        let arguments = &self.arguments.election;
        let namespace = arguments.leader_election_namespace.clone();
        Ok(LeaseConfig {
            namespace: namespace.unwrap_or_else(|| self.config.default_namespace.clone()),
            name: arguments.leader_election_id.clone(),
            identity: self.identity.clone(),
            timing: settings::timing(arguments)?,
        })
    }

    /// Stands for election until `resign`. What is returned says whether this process leads; without election it always does.
    fn elect(
        &self,
        fence: &Fence,
        resign: &CancellationToken,
        election: &mut JoinSet<()>,
    ) -> anyhow::Result<watch::Receiver<bool>> {
        let arguments = &self.arguments.election;
        let (leading, led) = watch::channel(!arguments.enable_leader_election);
        if arguments.enable_leader_election {
            let client = connection::builder(&self.config)?.build();
            election.spawn(Election::new(client, self.lease()?, fence.clone()).run(leading, resign.clone()));
        }
        Ok(led)
    }

    /// Acts until `stop`, or until the lease is lost.
    async fn lead(
        &self,
        fence: Fence,
        policies: Policies,
        health: &Health,
        led: watch::Receiver<bool>,
        webhooks: Option<webhook::Source>,
    ) -> anyhow::Result<()> {
        let common = self.common(policies)?;
        let mut started = self.start(&common, Mandate { fence, share: None, stop: self.stop.clone() })?;
        let running = std::mem::take(&mut started.running);
        let outcome = match self.supervise(&started.stores, running, (health, webhooks), led).await {
            // As controller-runtime does: a process that lost its lease starts anew, with nothing remembered.
            End::LeaseLost => bail!("the lease was lost"),
            End::Stopped => Ok(()),
            End::Failed(error) => Err(error),
        };
        started.finish().await;
        common.policies.join().await;
        outcome
    }

    fn common(&self, policies: Policies) -> anyhow::Result<Common> {
        let options = default_github::options(&self.arguments.github);
        let github = default_github::client(&self.arguments.github, &options)?;
        let facts = &self.arguments.facts;
        let (allowed, prices) = (Arc::new(settings::allowed(facts)), settings::prices(facts.node_prices.as_deref())?);
        if github.is_none() {
            tracing::warn!("no GitHub credentials: only objects with githubAPICredentialsFrom are served");
        }
        Ok(Common {
            policies: policies.host,
            counters: policies.counters,
            registries: settings::registries(&self.arguments)?,
            github,
            options,
            receipts: Arc::default(),
            allowed,
            prices,
            simulation: Arc::new(Semaphore::new(1)),
        })
    }

    /// Starts watches and controllers.
    fn start(&self, common: &Common, Mandate { fence, share, stop }: Mandate) -> anyhow::Result<Started> {
        let Self { arguments, config, identity, metrics, .. } = self;
        let client = connection::fenced_client(config, fence.clone(), metrics.clone())?;
        let (receipts, writer) = Receipts::new(client.clone(), settings::receipt_bounds(arguments), common.receipts.clone());
        let (mut writing, written) = (JoinSet::new(), CancellationToken::new());
        if let Some(writer) = writer {
            writing.spawn(writer.run(written.clone()));
        }
        let settings = Arc::new(Settings { share, ..settings::settings(arguments) });
        let github = common.github.clone();
        let tenancies = Arc::new(Tenancies::new(settings::tenancy(arguments, &config.default_namespace)?));
        if !tenancies.is_asked_for() {
            tracing::info!(
                "no tenancy is in force: every namespace may use the operator's credentials for whatever they reach; --tenancy bounds that"
            );
        }
        let (watches, stores) = watches::watches(&client, Range { namespace: settings.namespace.as_deref(), share }, &tenancies);
        let options = settings::policy_options(arguments, &config.default_namespace, share)?;
        match (&options.default, arguments.builtin_policies_only) {
            (_, true) => tracing::info!("--builtin-policies-only: the shipped policies decide, and no policy set is looked for"),
            (Some(set), false) => tracing::info!(
                namespace = set.namespace,
                configmap = set.name,
                annotation = pacer_api::names::annotation::POLICIES,
                "looking for the default policy set in this ConfigMap, and for sets of pools in those that the annotation names"
            ),
            (None, false) => tracing::info!(
                annotation = pacer_api::names::annotation::POLICIES,
                "no default policy set (--policies=): sets of pools are looked for in the ConfigMaps that the annotation names"
            ),
        }
        let sets = Arc::new(PolicySets::new(common.policies.clone(), common.registries.clone(), options));
        let bounds = tenancies.clone();
        sets.limit(move |namespace| bounds.quotas(namespace).map_or(Some(0), |quotas| quotas.policy_sets));
        let bounds = tenancies.clone();
        sets.admit_pulls(move |namespace, reference| bounds.admits_pull(namespace, reference));
        let (mut recorder, watches) = match settings::recording(arguments, share, &sets) {
            Some(setting) => {
                let (recorder, watches) = Recorder::start(setting, watches, stores.clone(), metrics.recording())?;
                (Some(recorder), watches)
            }
            None => (None, watches),
        };
        let mut simulating = JoinSet::new();
        let watches = match settings::simulations(arguments, common.simulation.clone()) {
            Some(plan) => {
                let (what_if, watches) = WhatIf::new(plan, watches, stores.clone(), sets.clone(), stop.clone());
                simulating.spawn(what_if.run());
                watches
            }
            None => watches,
        };
        let ledgers = Arc::new(Ledgers::new(client.clone(), self.precedence.clone(), stores.job_ledgers_by.clone()));
        let (wake, alarms) = wake::channel();
        let (endpoints, options) = (default_github::endpoints(&arguments.github)?, common.options.clone());
        let (accesses, runner_lists) = Accesses::new(
            client.clone(),
            endpoints,
            options,
            github.clone(),
            tenancies.clone(),
            settings.concurrency,
            stop.clone(),
        );
        let (queues, queue_news) = Queues::new(Pace::queues(), stop.clone());
        let (accesses, queues) = (Arc::new(accesses), Arc::new(queues));
        let nodes = Arc::new(Nodes::new(client.clone(), common.allowed.clone()));
        if let Some(recorder) = &mut recorder {
            let (accesses, github) = (accesses.clone(), github.clone());
            recorder.read(&receipts);
            recorder.look_at(Sights { accesses, github, nodes: nodes.clone(), stores: stores.clone() });
        }
        let events = Events::new(client.clone(), identity.clone());
        let recent = receipts.recent();
        let (summaries, history) = (Owned::default(), Owned::default());
        let operator = Arc::new(Operator::new(controllers::Parts {
            accounts: Accounts::new(
                client.clone(),
                arguments.pods.job_pods_cluster_role.clone(),
                config.default_namespace.clone(),
            ),
            decisions: Decisions {
                policies: sets.clone(),
                nodes: nodes.clone(),
                surveyor: Arc::new(Surveyor::new(client.clone(), common.allowed.clone())),
                facts: Arc::new(FactSources::new(
                    common.allowed.clone(),
                    common.prices.clone(),
                    stores.clone(),
                    PoolReports::of(&summaries, &history),
                    FailureLog::new(client.clone(), Range { namespace: settings.namespace.as_deref(), share }, Timestamp::now()),
                    settings.pod.runner_image.clone(),
                )),
                receipts: Arc::new(receipts),
                events: events.clone(),
                limits: settings.restart,
            },
            cluster: Cluster { client, stores: stores.clone(), events, wake, precedence: self.precedence.clone() },
            github: accesses.clone(),
            ledgers: ledgers.clone(),
            queues: queues.clone(),
            summaries,
            history,
            settings,
            metrics: metrics.clone(),
            fence,
        }));
        metrics.read_from(Sources {
            shard: share.map_or(0, |share| share.shard),
            stores: stores.clone(),
            github,
            policies: common.counters.clone(),
            sets,
            receipts: common.receipts.clone(),
            supplies: operator.supplies(),
            autoscalers: operator.autoscalers(),
            ledgers,
            tenancies,
            standings: operator.standings(),
            decisions: recent,
            accesses: accesses.clone(),
            nodes,
            prices: common.prices.clone(),
        });
        let mut running = Controllers::new();
        let news = News { runner_lists, queues: queue_news };
        running.spawn(operator.run(watches, alarms, news, stop));
        Ok(Started { running, stores, github: accesses, queues, recorder, simulating, writing, written })
    }

    /// Waits until the controllers have ended, or the lease is lost; says in between that the stores are full.
    async fn supervise(
        &self,
        stores: &Stores,
        mut running: Controllers,
        (health, webhooks): (&Health, Option<webhook::Source>),
        mut led: watch::Receiver<bool>,
    ) -> End {
        let full = stores.full();
        tokio::pin!(full);
        let mut filled = false;
        loop {
            tokio::select! {
                is_full = &mut full, if !filled => {
                    filled = true;
                    if let (true, Some(webhooks)) = (is_full, &webhooks) {
                        webhooks.read_from(stores.demand());
                    }
                    health.set(Phase::Acting);
                    tracing::info!("acting");
                }
                // Without election nobody ever says so, and the sender is gone.
                Ok(_) = led.wait_for(|leading| !*leading) => {
                    if !self.stop.is_cancelled() {
                        self.stop.cancel();
                        return End::LeaseLost;
                    }
                    running.join_next().await;
                    return End::Stopped;
                }
                ended = running.join_next() => {
                    return match ended {
                        Some(Ok(Err(early))) => End::Failed(early.into()),
                        Some(Err(panic)) => End::Failed(panic.into()),
                        _ => End::Stopped,
                    };
                }
            }
        }
    }
}

/// A pod's container is started again only after its process ended, so that whatever runs in the pod may go on with its lease. Without a pod, two
/// processes of one host must not be taken for each other.
fn identity(hostname: &str, pod_uid: Option<&str>) -> String {
    pod_uid.map_or_else(|| format!("{hostname}_{:016x}", Seed::default().draw()), |uid| format!("{hostname}_{uid}"))
}

/// Of the pod, or of the machine.
fn hostname() -> String {
    std::env::var("HOSTNAME")
        .or_else(|_| std::fs::read_to_string("/proc/sys/kernel/hostname").map(|name| name.trim().to_owned()))
        .unwrap_or_else(|_| "pacer".to_owned())
}
