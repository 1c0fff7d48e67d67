//! Policies side by side.

use serde::Serialize;

use crate::figures::Figures;
use crate::run::Outcome;

/// A figure that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metric {
    WaitP50,
    WaitP95,
    WaitMax,
    RunnerMinutes,
    IdleMinutes,
    StartsPerJob,
    Removals,
    Unstarted,
    /// Not shown in comparisons: of a trace that is over, how it ended says little.
    Runners,
}

/// Those that are compared, in the order in which they are shown.
pub(crate) const METRICS: [Metric; 8] = [
    Metric::WaitP50,
    Metric::WaitP95,
    Metric::WaitMax,
    Metric::RunnerMinutes,
    Metric::IdleMinutes,
    Metric::StartsPerJob,
    Metric::Removals,
    Metric::Unstarted,
];

impl Metric {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::WaitP50 => "wait.p50",
            Self::WaitP95 => "wait.p95",
            Self::WaitMax => "wait.max",
            Self::RunnerMinutes => "runner-minutes",
            Self::IdleMinutes => "idle-minutes",
            Self::StartsPerJob => "starts-per-job",
            Self::Removals => "removals",
            Self::Unstarted => "unstarted",
            Self::Runners => "runners",
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::WaitP50 | Self::WaitP95 | Self::WaitMax => "s",
            Self::RunnerMinutes | Self::IdleMinutes => "min",
            Self::StartsPerJob | Self::Removals | Self::Unstarted | Self::Runners => "",
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of a trace fit into the 53 bits of an f64")]
    fn of(self, figures: &Figures) -> f64 {
        match self {
            Self::WaitP50 => figures.wait_p50,
            Self::WaitP95 => figures.wait_p95,
            Self::WaitMax => figures.wait_max,
            Self::RunnerMinutes => figures.runner_minutes,
            Self::IdleMinutes => figures.idle_minutes,
            Self::StartsPerJob => figures.starts_per_job,
            Self::Removals => figures.removals as f64,
            Self::Unstarted => figures.unstarted as f64,
            Self::Runners => figures.runners as f64,
        }
    }
}

/// A figure over all seeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// Mean.
    pub mean: f64,
    /// Least.
    pub min: f64,
    /// Greatest.
    pub max: f64,
    /// Standard deviation from run to run; 0 of a single one.
    #[serde(skip)]
    pub deviation: f64,
}

/// A policy and its runs, one for each seed.
#[derive(Clone, Debug)]
pub struct Contender {
    /// What it is called.
    pub name: String,
    /// Its runs.
    pub runs: Vec<Outcome>,
    /// Questions that another policy had to answer.
    pub faults: u64,
}

impl Contender {
    /// A figure of a pool, or of all.
    #[expect(clippy::cast_precision_loss, reason = "seeds are few")]
    pub(crate) fn spread(&self, pool: Option<&str>, metric: Metric) -> Spread {
        let figures = self.runs.iter().filter_map(|run| pool.map_or(Some(&run.total), |pool| run.pools.get(pool)));
        let values: Vec<f64> = figures.map(|figures| metric.of(figures)).collect();
        let fold = |with: fn(f64, f64) -> f64| values.iter().copied().reduce(with).unwrap_or_default();
        let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = (squares / values.len().saturating_sub(1).max(1) as f64).sqrt();
        Spread { mean, min: fold(f64::min), max: fold(f64::max), deviation }
    }
}

/// A figure of all contenders.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Of this pool; of all when none.
    pub pool: Option<String>,
    /// What it is called.
    pub metric: &'static str,
    /// `s`, `min` or nothing.
    pub unit: &'static str,
    /// In the order of the contenders.
    pub values: Vec<Spread>,
}

/// All figures of all contenders.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Names of the contenders; the others are compared with the first.
    pub contenders: Vec<String>,
    /// The totals, then pool by pool.
    pub rows: Vec<Row>,
}

impl Comparison {
    /// Of these contenders. The pools' own rows are left out where there is only one pool.
    #[must_use]
    pub fn of(contenders: &[Contender], pools: &[&str]) -> Self {
        let single = pools.iter().copied().filter(|_| pools.len() > 1).map(Some);
        let row = |pool: Option<&str>, metric: Metric| Row {
            pool: pool.map(str::to_owned),
            metric: metric.name(),
            unit: metric.unit(),
            values: contenders.iter().map(|contender| contender.spread(pool, metric)).collect(),
        };
        let rows = std::iter::once(None).chain(single).flat_map(|pool| METRICS.map(|metric| row(pool, metric)));
        Self { contenders: contenders.iter().map(|contender| contender.name.clone()).collect(), rows: rows.collect() }
    }
}
