//! What the tests of recordings share.

use std::time::Duration;

use pacer_trace::{Record, What};

use super::chronicle::Defaults;

/// What holds for pools without settings of their own.
pub(super) fn defaults() -> Defaults {
    Defaults {
        idle_confirmation: None,
        scale_down_delay: Duration::from_secs(600),
        labels: Vec::new(),
        ramp: None,
        policies: None,
    }
}

/// Pools whose settings were recorded, and runners whose end was, in that order.
pub(super) fn told<'a>(records: impl IntoIterator<Item = &'a Record>) -> Vec<String> {
    let told = |record: &Record| match &record.what {
        What::Pool(settings) => Some(settings.pool.to_string()),
        What::RunnerEnded { runner, .. } => Some(runner.to_string()),
        _ => None,
    };
    records.into_iter().filter_map(told).collect()
}
