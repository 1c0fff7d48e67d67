//! Signals that end the process.

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Cancels `stop` at SIGTERM or SIGINT. Ends when `stop` is cancelled, by whatever.
pub(crate) fn stop_on_signal(stop: CancellationToken) -> anyhow::Result<impl Future<Output = anyhow::Result<()>>> {
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => tracing::info!(signal = "SIGTERM", "stopping"),
            _ = interrupt.recv() => tracing::info!(signal = "SIGINT", "stopping"),
            () = stop.cancelled() => {}
        }
        stop.cancel();
        Ok(())
    })
}
