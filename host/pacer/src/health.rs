//! `/healthz`, `/readyz`, `/metrics`.
//!
//! The kubelet, which has no token, asks for the first two; `/metrics` may be for those alone whom the API server knows and lets.

mod scraper;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use anyhow::Context as _;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Router, middleware};
use kube::Config;
use pacer_cluster::fence::Fence;
use pacer_operator::metrics::{HttpServer, Leading, Metrics};
use pacer_operator::snapshot::Role;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::arguments::MetricsArguments;
use crate::connection;
use crate::listen::{self, Bounds, Listener, Tls};

use scraper::Scrapers;

/// What the process is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Not ready yet.
    Starting = 0,
    /// Another operator leads; ready to take over.
    Standby = 1,
    /// Leads, and is reading the cluster.
    Filling = 2,
    /// Leads and acts.
    Acting = 3,
    /// Receives webhooks and does nothing else.
    Receiving = 4,
}

/// Shared state of the endpoints.
#[derive(Debug)]
pub(crate) struct Health {
    phase: AtomicU8,
    /// False while webhooks are asked for and cannot be recorded yet.
    receiving: AtomicBool,
    metrics: Arc<Metrics>,
}

impl Health {
    /// State of a process that starts and is not ready.
    pub(crate) fn new(metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self { phase: AtomicU8::new(Phase::Starting as u8), receiving: AtomicBool::new(true), metrics })
    }

    /// Says what the process is doing now.
    pub(crate) fn set(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Release);
        self.metrics.leading(Leading::Whole(matches!(phase, Phase::Filling | Phase::Acting)));
    }

    /// The same in a process that acts for some shards.
    pub(crate) fn set_of_shards(&self, phase: Phase, shards: BTreeMap<u16, bool>) {
        self.phase.store(phase as u8, Ordering::Release);
        self.metrics.leading(Leading::Shards(shards));
    }

    /// Says whether webhooks can be recorded, in a process that is to receive some.
    pub(crate) fn receiving(&self, receiving: bool) {
        self.receiving.store(receiving, Ordering::Release);
    }

    /// What the process is doing, for those who watch.
    pub(crate) fn role(&self) -> Role {
        match self.phase.load(Ordering::Acquire) {
            phase if phase == Phase::Acting as u8 => Role::Acting,
            phase if phase == Phase::Filling as u8 => Role::Filling,
            phase if phase == Phase::Standby as u8 => Role::Standby,
            _ => Role::Starting,
        }
    }

    fn ready(&self) -> (StatusCode, &'static str) {
        if !self.receiving.load(Ordering::Acquire) {
            return (StatusCode::SERVICE_UNAVAILABLE, "reading the autoscalers\n");
        }
        match self.phase.load(Ordering::Acquire) {
            phase if phase == Phase::Acting as u8 => (StatusCode::OK, "ok: leading\n"),
            phase if phase == Phase::Standby as u8 => (StatusCode::OK, "ok: standby\n"),
            phase if phase == Phase::Receiving as u8 => (StatusCode::OK, "ok: receiving\n"),
            phase if phase == Phase::Filling as u8 => (StatusCode::SERVICE_UNAVAILABLE, "reading the cluster\n"),
            _ => (StatusCode::SERVICE_UNAVAILABLE, "starting\n"),
        }
    }
}

/// Who gets `/metrics` at an address.
enum Scraping {
    /// Nobody: the address is for health alone.
    Nobody,
    /// Whoever reaches the address.
    Anybody,
    /// Whoever the API server says.
    Authorized(Arc<Scrapers>),
}

/// Serves health alone, until `stop`.
pub(crate) async fn serve_probes(listener: Listener, health: Arc<Health>, stop: CancellationToken) -> anyhow::Result<()> {
    serve(listener, health, Scraping::Nobody, stop).await
}

async fn serve(listener: Listener, health: Arc<Health>, scraping: Scraping, stop: CancellationToken) -> anyhow::Result<()> {
    let scraped = match scraping {
        Scraping::Nobody => Router::new(),
        Scraping::Anybody => Router::new().route("/metrics", get(metrics)),
        Scraping::Authorized(scrapers) => {
            Router::new().route("/metrics", get(metrics).layer(middleware::from_fn_with_state(scrapers, scraper::guard)))
        }
    };
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(|State(health): State<Arc<Health>>| async move { health.ready() }))
        .merge(scraped)
        .with_state(health.clone());
    listen::serve(listener, router, Bounds::METRICS, health.metrics.connections(HttpServer::Metrics), stop).await
}

/// Serves metrics and health at the addresses that the arguments name, before anything takes its time.
///
/// # Errors
///
/// When an address is taken, a certificate can't be used, or there is no client to ask who may scrape.
pub(crate) async fn start(
    arguments: &MetricsArguments,
    cluster: &Config,
    health: &Arc<Health>,
    parts: &mut JoinSet<anyhow::Result<()>>,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let tls = arguments.identity()?.map(Tls::new).transpose().context("the certificate of the metrics")?;
    if arguments.metrics_addr.is_empty() {
        return Ok(());
    }
    let scraping = if arguments.metrics_authorization {
        Scraping::Authorized(Scrapers::new(connection::fenced_client(cluster, Fence::open(), health.metrics.clone())?))
    } else {
        Scraping::Anybody
    };
    let listener = listen::bind(&arguments.metrics_addr).await?;
    tracing::info!(tls = tls.is_some(), metrics_addr = %listener.address()?, "serving");
    if let Some(tls) = &tls {
        parts.spawn(tls.clone().follow(stop.clone()));
    }
    parts.spawn(serve(listener.with_tls(tls), health.clone(), scraping, stop.clone()));
    Ok(())
}

async fn metrics(State(health): State<Arc<Health>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], health.metrics.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_record_webhooks_is_not_ready() {
        let health = Health::new(Arc::new(Metrics::default()));
        health.set(Phase::Receiving);
        assert_eq!(health.ready().0, StatusCode::OK);
        health.receiving(false);
        assert_eq!(health.ready().0, StatusCode::SERVICE_UNAVAILABLE);
        health.set(Phase::Acting);
        assert_eq!(health.ready().0, StatusCode::SERVICE_UNAVAILABLE);
        health.receiving(true);
        assert_eq!(health.ready(), (StatusCode::OK, "ok: leading\n"));
    }
}
