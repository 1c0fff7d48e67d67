//! Whether a simulation with the recorded policy gives what was recorded.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::comparison::{Contender, Metric};
use crate::figures::Figures;

/// Jobs that a pool needs for its own figures to be judged: those of fewer are chance.
const ENOUGH: u64 = 20;

/// How far figures may be off.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Bound {
    /// Share by which a wait may be off.
    pub wait: f64,
    /// Seconds by which it may be off in any case: what GitHub tells has whole seconds.
    pub wait_seconds: f64,
    /// Share by which runner-minutes may be off.
    pub minutes: f64,
    /// What was recorded is one run of many that chance could have made, so a figure may be off by so many standard deviations of the simulated
    /// runs more: those of few jobs scatter, those of many hardly do. At most by as much again as it may be without.
    pub deviations: f64,
}

impl Default for Bound {
    fn default() -> Self {
        Self { wait: 0.10, wait_seconds: 1.0, minutes: 0.05, deviations: 2.0 }
    }
}

/// One figure as it was recorded, beside the same of the simulation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Deviation {
    /// Of this pool; of all when none.
    pub pool: Option<String>,
    /// What it is called.
    pub metric: &'static str,
    /// Its value in the trace.
    pub recorded: f64,
    /// As it is simulated, the mean over all seeds.
    pub simulated: f64,
    /// By how much it may be off, the scatter of runs included.
    pub allowed: f64,
    /// It is off by no more than the bound.
    pub within: bool,
}

/// All figures that are judged.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Calibration {
    /// How far they may be off.
    pub bound: Bound,
    /// Those of all pools together first, then those of each pool that is judged by itself.
    pub deviations: Vec<Deviation>,
}

impl Calibration {
    /// Of runs with the recorded policy, beside what was recorded.
    #[must_use]
    pub fn of(runs: &Contender, recorded: &(BTreeMap<String, Figures>, Figures), bound: Bound) -> Self {
        let (pools, total) = recorded;
        let judged = pools.iter().filter(|(_, figures)| pools.len() > 1 && figures.jobs >= ENOUGH);
        let judged = judged.map(|(name, figures)| (Some(name.as_str()), figures));
        let deviations = std::iter::once((None, total)).chain(judged).flat_map(|(pool, figures)| {
            [
                (Metric::WaitP50, figures.wait_p50),
                (Metric::WaitP95, figures.wait_p95),
                (Metric::RunnerMinutes, figures.runner_minutes),
            ]
            .map(|(metric, recorded)| {
                let spread = runs.spread(pool, metric);
                let limit = match metric {
                    Metric::RunnerMinutes => recorded * bound.minutes,
                    _ => (recorded * bound.wait).max(bound.wait_seconds),
                };
                let allowed = limit + (bound.deviations * spread.deviation).min(limit);
                let within = (spread.mean - recorded).abs() <= allowed;
                Deviation {
                    pool: pool.map(str::to_owned),
                    metric: metric.name(),
                    recorded,
                    simulated: spread.mean,
                    allowed,
                    within,
                }
            })
        });
        Self { bound, deviations: deviations.collect() }
    }

    /// Whether the simulation may be believed.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.deviations.iter().all(|deviation| deviation.within)
    }
}
