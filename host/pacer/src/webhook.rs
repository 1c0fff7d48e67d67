//! Webhooks over HTTP: `pacer webhook`, and the same server inside `pacer run --webhook-addr`.
//!
//! Bodies are read piece by piece, and their signatures checked meanwhile, within a limit per request, a limit for all large ones together,
//! and deadlines; then [`Receiver::deliver`] decides. Small bodies need no room of that limit: the number of connections bounds them. At
//! SIGTERM the server takes no new connections and finishes what it has.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use kube::Client;
use pacer_cluster::fence::Fence;
use pacer_cluster::precedence::Precedence;
use pacer_demand::ledger::Ledgers;
use pacer_demand::receiver::{
    Answer, JobMetricsSettings, Parts, Proof, Receiver, ReceiverMetrics, RunnerGroups, Stores, VisibleGroups, Watches, watches,
};
use pacer_github::Secret;
use pacer_github::webhook::{Check, Signed, Verifier};
use pacer_operator::metrics::{ConnectionMetrics, HttpServer, Metrics};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::arguments::{GitHubArguments, ReceiverArguments, WebhookArguments};
use crate::health::{self, Health, Phase};
use crate::listen::{self, Bounds, Listener, Slot};
use crate::{connection, default_github, signal, telemetry};

/// How often what belongs to autoscalers that are gone is dropped.
const TIDY: Duration = Duration::from_secs(10);

/// Longest time for a body to arrive, which is as long as GitHub waits for an answer.
const BODY_DEADLINE: Duration = Duration::from_secs(10);

/// Longest time for the next piece of a body.
const BODY_STALL: Duration = Duration::from_secs(5);

/// Bytes of a body that have their place with the connection, and so are never refused for lack of room. GitHub's deliveries about jobs have
/// 10 to 30 KiB.
const SMALL_BODY: usize = 64 * 1024;

/// Most KiB of bodies beyond [`SMALL_BODY`] that are held at a time, whoever sent them: what is not signed must not fill the memory. One body
/// as large as `--webhook-body-limit` allows has room in any case.
const LARGE_BODIES_KIB: usize = 32 * 1024;

/// Runs `pacer webhook` until SIGTERM.
pub(crate) fn main(arguments: WebhookArguments) -> anyhow::Result<()> {
    telemetry::start(&arguments.log_level, arguments.log_format)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting the runtime")?;
    runtime.block_on(run(arguments))
}

async fn run(arguments: WebhookArguments) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    let mut parts = JoinSet::new();
    parts.spawn(signal::stop_on_signal(stop.clone())?);
    let metrics = Arc::new(Metrics::default());
    let health = Health::new(metrics.clone());
    health.set(Phase::Receiving);
    health.receiving(false);
    let config = connection::config(arguments.kubeconfig.as_deref()).await?;
    health::start(&arguments.metrics, &config, &health, &mut parts, &stop).await?;
    let server = Server::new(Setting {
        address: &arguments.webhook_addr,
        namespace: &arguments.watch_namespace,
        proof: if arguments.proved_scopes_only { Proof::OfAll } else { Proof::OfOwnCredentials },
        common_labels: &arguments.common_runner_labels,
        receiver: &arguments.receiver,
        github: &arguments.github,
        client: connection::fenced_client(&config, Fence::open(), metrics.clone())?,
        precedence: Precedence::default(),
        metrics: metrics.receiver().clone(),
        connections: metrics.connections(HttpServer::Webhook),
    })
    .await?;
    parts.spawn(server.run(health, stop));
    while let Some(part) = parts.join_next().await {
        part.context("a part panicked")??;
    }
    tracing::info!("stopped");
    Ok(())
}

/// What a server is made from.
pub(crate) struct Setting<'a> {
    /// Address and port to listen on; `:PORT` stands for every address.
    pub(crate) address: &'a str,
    /// Namespace of the autoscalers. Empty: all namespaces.
    pub(crate) namespace: &'a str,
    /// Which autoscalers have to be proved.
    pub(crate) proof: Proof,
    /// Labels that all runners have.
    pub(crate) common_labels: &'a [String],
    /// Secrets and limits.
    pub(crate) receiver: &'a ReceiverArguments,
    /// Who says which runner groups are open to a repository.
    pub(crate) github: &'a GitHubArguments,
    /// Kubernetes; not bound to any lease.
    pub(crate) client: Client,
    /// What goes before the storing of jobs, and what after it.
    pub(crate) precedence: Precedence,
    /// Metrics of deliveries and jobs.
    pub(crate) metrics: ReceiverMetrics,
    /// Metrics of dropped connections.
    pub(crate) connections: ConnectionMetrics,
}

/// A server that listens and does not answer yet.
pub(crate) struct Server {
    listener: Listener,
    front: Arc<Front>,
    watches: Watches,
    own_watches: CancellationToken,
    bounds: Bounds,
    connections: ConnectionMetrics,
}

/// Where a server that runs gets its objects from.
#[derive(Clone)]
pub(crate) struct Source {
    front: Arc<Front>,
    own_watches: CancellationToken,
}

impl Source {
    /// From the watches of the operator that acts in this process, whose stores are full: one watch of each kind is enough.
    pub(crate) fn read_from(&self, stores: Stores) {
        self.front.receiver.read_from(stores);
        self.own_watches.cancel();
    }
}

struct Front {
    receiver: Receiver,
    /// Bytes of one body.
    limit: usize,
    /// One permit per KiB beyond [`SMALL_BODY`].
    room: Arc<Semaphore>,
}

impl Server {
    /// Binds the address; fails without a webhook secret, unless unsigned webhooks are allowed.
    pub(crate) async fn new(setting: Setting<'_>) -> anyhow::Result<Self> {
        let verifier = verifier(setting.receiver)?;
        if !verifier.checks() {
            let why = "no webhook secret: anyone who can reach this address can start runners";
            if !setting.receiver.insecure_no_webhook_secret {
                bail!(
                    "{why}; give --github-webhook-secret-file, --github-webhook-secret-token or GITHUB_WEBHOOK_SECRET_TOKEN and set the same \
                     secret at GitHub, or take unsigned webhooks with --insecure-no-webhook-secret"
                );
            }
            tracing::warn!("{why}; give --github-webhook-secret-file and set the same secret at GitHub");
        }
        let listener = listen::bind(setting.address).await?;
        tracing::info!(webhook_addr = %listener.address()?, "serving");
        let namespace = Some(setting.namespace).filter(|namespace| !namespace.is_empty());
        let (watches, autoscalers) = watches(&setting.client, namespace, setting.proof);
        let job_ledgers = autoscalers.job_ledgers();
        let receiver = Receiver::new(Parts {
            verifier,
            autoscalers,
            visible: VisibleGroups::new(groups(setting.github)?),
            common_labels: setting.common_labels.iter().filter(|label| !label.is_empty()).cloned().collect(),
            ledgers: Ledgers::new(setting.client, setting.precedence, job_ledgers),
            limit: setting.receiver.queue_limit,
            metrics: setting.metrics,
            job_metrics: job_metrics(setting.receiver),
        });
        let limit = setting.receiver.webhook_body_limit;
        let room = LARGE_BODIES_KIB.max(limit.div_ceil(1024)).min(Semaphore::MAX_PERMITS);
        let front = Front { receiver, limit, room: Arc::new(Semaphore::new(room)) };
        let bounds = Bounds::webhooks(setting.receiver.queue_limit);
        let own_watches = CancellationToken::new();
        Ok(Self { listener, front: Arc::new(front), watches, own_watches, bounds, connections: setting.connections })
    }

    /// To be told when the operator has stores of its own.
    pub(crate) fn source(&self) -> Source {
        Source { front: self.front.clone(), own_watches: self.own_watches.clone() }
    }

    /// Answers until `stop`, which it cancels itself when it cannot go on.
    pub(crate) async fn run(self, health: Arc<Health>, stop: CancellationToken) -> anyhow::Result<()> {
        let Self { listener, front, watches, own_watches, bounds, connections } = self;
        let watching = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let (until, all) = (watching.clone(), stop.clone());
        tasks.spawn(async move {
            let watched = own_watches.run_until_cancelled(watches.run());
            if until.run_until_cancelled(watched).await.flatten().is_some() {
                all.cancel();
                bail!("a watch of the webhook server ended although nobody asked it to");
            }
            Ok(())
        });
        let (until, filling) = (watching.clone(), front.clone());
        tasks.spawn(async move {
            if until.run_until_cancelled(filling.receiver.ready()).await == Some(true) {
                tracing::info!("receiving webhooks");
                health.receiving(true);
            }
            Ok(())
        });
        let (until, tidied) = (watching.clone(), front.clone());
        tasks.spawn(async move {
            while until.run_until_cancelled(tokio::time::sleep(TIDY)).await.is_some() {
                tidied.receiver.tidy();
            }
            Ok(())
        });
        let served = listen::serve(listener, router(front), bounds, connections, stop.clone()).await;
        // What is under way is finished; only now may the rest go.
        stop.cancel();
        watching.cancel();
        while let Some(task) = tasks.join_next().await {
            task.context("a part of the webhook server panicked")??;
        }
        served
    }
}

/// Every path, as in ARC: webhooks point wherever their ingress wants them to.
fn router(front: Arc<Front>) -> Router {
    Router::new().fallback(handle).with_state(front)
}

async fn handle(State(front): State<Arc<Front>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let answer = if parts.method == Method::POST {
        match front.read(&parts.headers, body).await {
            Ok(Delivered { signed, body, _room }) => {
                if let Some(slot) = parts.extensions.get::<Slot>() {
                    slot.keep();
                }
                front.receiver.deliver(signed, &parts.headers, &body).await
            }
            Err(answer) => answer,
        }
    } else {
        front.receiver.tell(&parts.method)
    };
    respond(answer)
}

/// A delivery that has arrived, and whose sender is known.
struct Delivered {
    signed: Signed,
    body: Vec<u8>,
    /// What a large body holds of the room for all of them.
    _room: Option<OwnedSemaphorePermit>,
}

type Refused = (StatusCode, &'static str);

impl Front {
    /// Reads a body, and checks its signature meanwhile.
    async fn read(&self, headers: &HeaderMap, body: Body) -> Result<Delivered, Answer> {
        let mut check = self.receiver.begin(headers)?;
        let announced = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        let read = if announced.is_some_and(|length| length > self.limit as u64) {
            Err(TOO_LARGE)
        } else {
            tokio::time::timeout(BODY_DEADLINE, self.collect(body, &mut check)).await.unwrap_or(Err(TOO_SLOW))
        };
        let (body, room) = read.map_err(|(status, why)| self.receiver.refuse(status, why))?;
        Ok(Delivered { signed: self.receiver.finish(headers, check)?, body, _room: room })
    }

    async fn collect(&self, mut body: Body, check: &mut Check) -> Result<(Vec<u8>, Option<OwnedSemaphorePermit>), Refused> {
        let (mut bytes, mut held) = (Vec::new(), None::<OwnedSemaphorePermit>);
        while let Some(frame) = tokio::time::timeout(BODY_STALL, body.frame()).await.map_err(|_| TOO_SLOW)? {
            let frame = frame.map_err(|_| (StatusCode::BAD_REQUEST, "the body broke off; deliver it again\n"))?;
            let Ok(piece) = frame.into_data() else { continue };
            let length = bytes.len().saturating_add(piece.len());
            if length > self.limit {
                return Err(TOO_LARGE);
            }
            let room = length.saturating_sub(SMALL_BODY).div_ceil(1024);
            let more = room.saturating_sub(held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits));
            if more > 0 {
                let Ok(permit) = self.room.clone().try_acquire_many_owned(u32::try_from(more).unwrap_or(u32::MAX)) else {
                    return Err((StatusCode::SERVICE_UNAVAILABLE, "too many large requests at once; deliver it again\n"));
                };
                match &mut held {
                    Some(held) => held.merge(permit),
                    None => held = Some(permit),
                }
            }
            check.update(&piece);
            bytes.extend_from_slice(&piece);
        }
        Ok((bytes, held))
    }
}

const TOO_SLOW: Refused = (StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time; deliver it again\n");

const TOO_LARGE: Refused = (StatusCode::PAYLOAD_TOO_LARGE, "the body is larger than --webhook-body-limit allows\n");

fn respond(answer: Answer) -> Response {
    let mut response = (answer.status, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], answer.text).into_response();
    if let Some(wait) = answer.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs().max(1)));
    }
    if answer.status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD, POST"));
    }
    response
}

/// Each label once: one that is given twice would be written twice.
fn job_metrics(arguments: &ReceiverArguments) -> JobMetricsSettings {
    let mut labels = arguments.job_metrics_labels.clone();
    labels.sort_unstable();
    labels.dedup();
    JobMetricsSettings { labels, series: arguments.job_metrics_series }
}

/// GitHub, to ask which groups are open to a repository; none without credentials.
fn groups(arguments: &GitHubArguments) -> anyhow::Result<Option<Box<dyn RunnerGroups>>> {
    let github = default_github::client(arguments, &default_github::options(arguments))?;
    if github.is_none() {
        tracing::info!("no GitHub credentials: every runner group is taken to be open to every repository");
    }
    Ok(github.map(|github| Box::new(github) as Box<dyn RunnerGroups>))
}

/// All secrets that are given, in flags, environment and files.
fn verifier(arguments: &ReceiverArguments) -> anyhow::Result<Verifier> {
    let given = arguments.github_webhook_secret_token.iter().filter(|secret| !secret.is_empty());
    let mut secrets: Vec<Secret> = given.map(|secret| Secret::new(secret.clone())).collect();
    for file in &arguments.github_webhook_secret_file {
        let text =
            std::fs::read_to_string(file).with_context(|| format!("reading --github-webhook-secret-file {}", file.display()))?;
        let before = secrets.len();
        secrets.extend(text.lines().filter(|line| !line.is_empty()).map(Secret::new));
        if secrets.len() == before {
            bail!("--github-webhook-secret-file {} holds no secret: put one into each line", file.display());
        }
    }
    Ok(Verifier::new(&secrets, arguments.webhook_allow_sha1)?)
}

#[cfg(test)]
mod tests;
