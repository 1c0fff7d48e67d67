//! How the trace fares that the operator writes of itself.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

/// Its figures; clones share them.
#[derive(Clone, Debug, Default)]
pub struct RecordingMetrics {
    records: Counter,
    missed: Counter,
    failures: Counter,
}

impl RecordingMetrics {
    /// Registers the series of the trace of `--record`.
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help = "Records that were written into the trace of --record";
        registry.register("pacer_trace_records", help, metrics.records.clone());
        let help = "Changes for which the recorder of --record had no room: the trace tells of a gap, and of what the cluster still says";
        registry.register("pacer_trace_changes_missed", help, metrics.missed.clone());
        let help = "Times that the trace of --record could not be written; it is tried again";
        registry.register("pacer_trace_failures", help, metrics.failures.clone());
        metrics
    }

    /// So many records were written.
    pub fn recorded(&self, count: u64) {
        self.records.inc_by(count);
    }

    /// There was no room for a change.
    pub fn missed(&self) {
        self.missed.inc();
    }

    /// The trace could not be written.
    pub fn failed(&self) {
        self.failures.inc();
    }

    /// Changes for which there was no room so far.
    #[must_use]
    pub fn changes_missed(&self) -> u64 {
        self.missed.get()
    }
}
