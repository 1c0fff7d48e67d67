//! Webhooks over HTTP: `pacer webhook`, and the same server inside `pacer run --webhook-addr`.
//!
//! Bodies are read piece by piece within a limit per request, a limit for all of them together, and a deadline; then
//! [`Receiver::answer`] decides. At SIGTERM the server takes no new connections and finishes what it has.

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
use pacer_demand::ledger::Ledgers;
use pacer_demand::receiver::{
    Answer, JobMetricsSettings, Parts, Receiver, ReceiverMetrics, RunnerGroups, VisibleGroups, Watches, watches,
};
use pacer_github::Secret;
use pacer_github::webhook::Verifier;
use pacer_operator::metrics::Metrics;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::arguments::{GitHubArguments, ReceiverArguments, WebhookArguments};
use crate::health::{self, Health, Phase};
use crate::{connection, default_github, signal, telemetry};

/// Longest time for a body to arrive, which is as long as GitHub waits for an answer.
const BODY_DEADLINE: Duration = Duration::from_secs(10);

/// Most KiB of bodies that are held at a time, whoever sent them: what is not signed must not fill the memory.
const BODIES_KIB: u32 = 64 * 1024;

/// Longest time that connections may take to end after the server was told to stop; requests on them have shorter deadlines.
const CLOSING: Duration = Duration::from_secs(20);

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
    if !arguments.metrics_addr.is_empty() {
        let listener = health::bind(&arguments.metrics_addr).await?;
        tracing::info!(metrics_addr = %health::address(&listener)?, "serving");
        parts.spawn(health::serve(listener, health.clone(), stop.clone()));
    }
    let config = connection::config(arguments.kubeconfig.as_deref()).await?;
    let server = Server::new(Setting {
        address: &arguments.webhook_addr,
        namespace: &arguments.watch_namespace,
        common_labels: &arguments.common_runner_labels,
        receiver: &arguments.receiver,
        github: &arguments.github,
        client: connection::fenced_client(&config, Fence::open(), metrics.clone())?,
        metrics: metrics.receiver().clone(),
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
    /// Where it listens.
    pub(crate) address: &'a str,
    /// Only autoscalers of this namespace; empty for all.
    pub(crate) namespace: &'a str,
    /// Labels that all runners have.
    pub(crate) common_labels: &'a [String],
    /// Secrets and limits.
    pub(crate) receiver: &'a ReceiverArguments,
    /// Who says which runner groups are open to a repository.
    pub(crate) github: &'a GitHubArguments,
    /// Kubernetes; not bound to any lease.
    pub(crate) client: Client,
    /// Counts.
    pub(crate) metrics: ReceiverMetrics,
}

/// A server that listens and does not answer yet.
pub(crate) struct Server {
    listener: TcpListener,
    front: Arc<Front>,
    watches: Watches,
}

struct Front {
    receiver: Receiver,
    /// Bytes of one body.
    limit: usize,
    /// One permit per KiB.
    room: Arc<Semaphore>,
}

impl Server {
    /// Listens.
    pub(crate) async fn new(setting: Setting<'_>) -> anyhow::Result<Self> {
        let verifier = verifier(setting.receiver)?;
        if !verifier.checks() {
            tracing::warn!(
                "no webhook secret: whoever reaches this address can start runners; give --github-webhook-secret-token and set the same at GitHub"
            );
        }
        let listener = health::bind(setting.address).await?;
        tracing::info!(webhook_addr = %health::address(&listener)?, "serving");
        let namespace = Some(setting.namespace).filter(|namespace| !namespace.is_empty());
        let (watches, autoscalers) = watches(&setting.client, namespace);
        let receiver = Receiver::new(Parts {
            verifier,
            autoscalers,
            visible: VisibleGroups::new(groups(setting.github)?),
            common_labels: setting.common_labels.iter().filter(|label| !label.is_empty()).cloned().collect(),
            ledgers: Ledgers::new(setting.client),
            limit: setting.receiver.queue_limit,
            metrics: setting.metrics,
            job_metrics: job_metrics(setting.receiver),
        });
        let front =
            Front { receiver, limit: setting.receiver.webhook_body_limit, room: Arc::new(Semaphore::new(BODIES_KIB as usize)) };
        Ok(Self { listener, front: Arc::new(front), watches })
    }

    /// Answers until `stop`, which it cancels itself when it cannot go on.
    pub(crate) async fn run(self, health: Arc<Health>, stop: CancellationToken) -> anyhow::Result<()> {
        let Self { listener, front, watches } = self;
        let watching = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let (until, all, remembering) = (watching.clone(), stop.clone(), front.clone());
        tasks.spawn(async move {
            let watched = watches.run(|gone| remembering.receiver.forget(gone));
            if until.run_until_cancelled(watched).await.is_some() {
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
        let served = serve(listener, front, stop.clone()).await;
        // What is under way is finished; only now may the rest go.
        stop.cancel();
        watching.cancel();
        while let Some(task) = tasks.join_next().await {
            task.context("a part of the webhook server panicked")??;
        }
        served
    }
}

async fn serve(listener: TcpListener, front: Arc<Front>, stop: CancellationToken) -> anyhow::Result<()> {
    let late = stop.clone();
    tokio::select! {
        served = axum::serve(listener, router(front)).with_graceful_shutdown(stop.cancelled_owned()) => served.context("serving webhooks"),
        () = async { late.cancelled().await; tokio::time::sleep(CLOSING).await } => {
            tracing::warn!("connections to the webhook server did not end in time");
            Ok(())
        }
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
            Ok((body, _held)) => front.receiver.answer(&parts.method, &parts.headers, &body).await,
            Err((status, why)) => front.receiver.refuse(status, why),
        }
    } else {
        front.receiver.answer(&parts.method, &parts.headers, &[]).await
    };
    respond(answer)
}

type Refused = (StatusCode, &'static str);

impl Front {
    /// Reads a body; the permits hold its place in memory.
    async fn read(&self, headers: &HeaderMap, body: Body) -> Result<(Vec<u8>, Vec<OwnedSemaphorePermit>), Refused> {
        let announced = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if announced.is_some_and(|length| length > self.limit as u64) {
            return Err(TOO_LARGE);
        }
        match tokio::time::timeout(BODY_DEADLINE, self.collect(body)).await {
            Ok(read) => read,
            Err(_) => Err((StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time; deliver it again\n")),
        }
    }

    async fn collect(&self, mut body: Body) -> Result<(Vec<u8>, Vec<OwnedSemaphorePermit>), Refused> {
        let (mut bytes, mut held) = (Vec::new(), Vec::new());
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| (StatusCode::BAD_REQUEST, "the body broke off; deliver it again\n"))?;
            let Ok(piece) = frame.into_data() else { continue };
            if bytes.len().saturating_add(piece.len()) > self.limit {
                return Err(TOO_LARGE);
            }
            let room = u32::try_from(piece.len().div_ceil(1024)).unwrap_or(u32::MAX);
            let Ok(permit) = self.room.clone().try_acquire_many_owned(room) else {
                return Err((StatusCode::SERVICE_UNAVAILABLE, "too many large requests at once; deliver it again\n"));
            };
            held.push(permit);
            bytes.extend_from_slice(&piece);
        }
        Ok((bytes, held))
    }
}

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
    let github = default_github::client(arguments)?;
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
