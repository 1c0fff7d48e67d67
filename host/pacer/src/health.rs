//! `/healthz`, `/readyz`, `/metrics`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use anyhow::Context as _;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use pacer_operator::metrics::Metrics;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

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
}

/// Shared state of the endpoints.
#[derive(Debug)]
pub(crate) struct Health {
    phase: AtomicU8,
    metrics: Arc<Metrics>,
}

impl Health {
    /// Nothing is ready.
    pub(crate) fn new(metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self { phase: AtomicU8::new(Phase::Starting as u8), metrics })
    }

    /// Says what the process is doing now.
    pub(crate) fn set(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Release);
        self.metrics.leading(matches!(phase, Phase::Filling | Phase::Acting));
    }

    fn ready(&self) -> (StatusCode, &'static str) {
        match self.phase.load(Ordering::Acquire) {
            phase if phase == Phase::Acting as u8 => (StatusCode::OK, "ok: leading\n"),
            phase if phase == Phase::Standby as u8 => (StatusCode::OK, "ok: standby\n"),
            phase if phase == Phase::Filling as u8 => (StatusCode::SERVICE_UNAVAILABLE, "reading the cluster\n"),
            _ => (StatusCode::SERVICE_UNAVAILABLE, "starting\n"),
        }
    }
}

/// Binds an address in Go's notation, where a missing host means all.
pub(crate) async fn bind(address: &str) -> anyhow::Result<TcpListener> {
    let full = if address.starts_with(':') { format!("0.0.0.0{address}") } else { address.to_owned() };
    TcpListener::bind(&full)
        .await
        .with_context(|| format!("can't listen on {address}; give another address, or stop what uses it"))
}

/// Serves until `stop`.
pub(crate) async fn serve(listener: TcpListener, health: Arc<Health>, stop: CancellationToken) -> anyhow::Result<()> {
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(|State(health): State<Arc<Health>>| async move { health.ready() }))
        .route("/metrics", get(metrics))
        .with_state(health);
    axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await.context("serving health and metrics")
}

async fn metrics(State(health): State<Arc<Health>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], health.metrics.text())
}

/// Address that was bound.
pub(crate) fn address(listener: &TcpListener) -> anyhow::Result<SocketAddr> {
    listener.local_addr().context("reading the address that was bound")
}
