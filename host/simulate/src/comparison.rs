//! Policies side by side.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::figures::Figures;
use crate::run::Outcome;
use crate::waits::{Breakdown, Waits};

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
    RefusedRemovals,
    Unstarted,
    /// Shown where nodes were recorded.
    NodeMinutes,
    /// Shown where nodes were recorded.
    NodesFreed,
    /// Shown where runners have volumes.
    VolumesMade,
    /// Shown where runners have volumes.
    VolumesReused,
    /// Shown where scopes were recorded.
    GitHubCalls,
    /// Shown where there are prices.
    Cost,
    /// Not shown in comparisons: of a trace that is over, how it ended says little.
    Runners,
}

/// Those that are compared, in the order in which they are shown.
pub(crate) const METRICS: [Metric; 15] = [
    Metric::WaitP50,
    Metric::WaitP95,
    Metric::WaitMax,
    Metric::RunnerMinutes,
    Metric::IdleMinutes,
    Metric::StartsPerJob,
    Metric::Removals,
    Metric::RefusedRemovals,
    Metric::NodeMinutes,
    Metric::NodesFreed,
    Metric::VolumesMade,
    Metric::VolumesReused,
    Metric::GitHubCalls,
    Metric::Unstarted,
    Metric::Cost,
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
            Self::RefusedRemovals => "refused-removals",
            Self::NodeMinutes => "node-minutes",
            Self::NodesFreed => "nodes-freed",
            Self::VolumesMade => "volumes-made",
            Self::VolumesReused => "volumes-reused",
            Self::GitHubCalls => "github-calls",
            Self::Cost => "cost",
            Self::Unstarted => "unstarted",
            Self::Runners => "runners",
        }
    }

    /// Whether anything is known of it: some figures are zero where the trace or the prices say nothing.
    pub(crate) fn is_known(self, contenders: &[Contender]) -> bool {
        let mut totals = contenders.iter().flat_map(|contender| &contender.runs).map(|run| &run.total);
        match self {
            Self::Cost => totals.any(|total| total.cost > 0.0),
            Self::NodeMinutes | Self::NodesFreed => totals.any(|total| total.node_minutes > 0.0),
            Self::VolumesMade | Self::VolumesReused => totals.any(|total| total.volumes_made + total.volumes_reused > 0),
            Self::GitHubCalls => totals.any(|total| total.github_calls > 0),
            _ => true,
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::WaitP50 | Self::WaitP95 | Self::WaitMax => "s",
            Self::RunnerMinutes | Self::IdleMinutes | Self::NodeMinutes => "min",
            Self::StartsPerJob
            | Self::Removals
            | Self::RefusedRemovals
            | Self::NodesFreed
            | Self::VolumesMade
            | Self::VolumesReused
            | Self::GitHubCalls
            | Self::Unstarted
            | Self::Cost
            | Self::Runners => "",
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
            Self::RefusedRemovals => figures.refused_removals as f64,
            Self::NodeMinutes => figures.node_minutes,
            Self::NodesFreed => figures.nodes_freed as f64,
            Self::VolumesMade => figures.volumes_made as f64,
            Self::VolumesReused => figures.volumes_reused as f64,
            Self::GitHubCalls => figures.github_calls as f64,
            Self::Cost => figures.cost,
            Self::Unstarted => figures.unstarted as f64,
            Self::Runners => figures.runners as f64,
        }
    }
}

/// A figure over all seeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// Arithmetic mean; 0 without runs.
    pub mean: f64,
    /// Smallest value of a run.
    pub min: f64,
    /// Largest value of a run.
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
    /// What its simulations came to, one for each seed.
    pub runs: Vec<Outcome>,
    /// Questions that another policy had to answer.
    pub faults: u64,
}

impl Contender {
    /// A figure of a pool, or of all.
    pub(crate) fn spread(&self, pool: Option<&str>, metric: Metric) -> Spread {
        let figures = self.runs.iter().filter_map(|run| pool.map_or(Some(&run.total), |pool| run.pools.get(pool)));
        Spread::of(&figures.map(|figures| metric.of(figures)).collect::<Vec<_>>())
    }

    /// Waits of a group of jobs: the median, the 95th percentile and the longest.
    fn waits(&self, of: impl Fn(&Breakdown) -> Option<Waits>) -> [Spread; 3] {
        let waits: Vec<Waits> = self.runs.iter().filter_map(|run| of(&run.waits)).collect();
        let spread = |value: fn(&Waits) -> f64| Spread::of(&waits.iter().map(value).collect::<Vec<_>>());
        [spread(|waits| waits.p50), spread(|waits| waits.p95), spread(|waits| waits.max)]
    }
}

impl Spread {
    #[expect(clippy::cast_precision_loss, reason = "seeds are few")]
    fn of(values: &[f64]) -> Self {
        let fold = |with: fn(f64, f64) -> f64| values.iter().copied().reduce(with).unwrap_or_default();
        let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = (squares / values.len().saturating_sub(1).max(1) as f64).sqrt();
        Self { mean, min: fold(f64::min), max: fold(f64::max), deviation }
    }
}

/// A figure of all contenders.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Of this pool; of all when none.
    pub pool: Option<String>,
    /// Of the jobs of this repository only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// Of the jobs with these labels only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<String>,
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
    /// The totals, then pool by pool, then waits by repository and by label set.
    pub rows: Vec<Row>,
}

impl Comparison {
    /// Of these contenders. The pools' own rows are left out where there is only one pool.
    #[must_use]
    pub fn of(contenders: &[Contender], pools: &[&str]) -> Self {
        let single = pools.iter().copied().filter(|_| pools.len() > 1).map(Some);
        let known: Vec<Metric> = METRICS.into_iter().filter(|metric| metric.is_known(contenders)).collect();
        let metrics = known.iter().copied();
        let row = |pool: Option<&str>, metric: Metric| Row {
            pool: pool.map(str::to_owned),
            repository: None,
            labels: None,
            metric: metric.name(),
            unit: metric.unit(),
            values: contenders.iter().map(|contender| contender.spread(pool, metric)).collect(),
        };
        let own = std::iter::once(None).chain(single).flat_map(|pool| metrics.clone().map(move |metric| (pool, metric)));
        let mut rows: Vec<Row> = own.map(|(pool, metric)| row(pool, metric)).collect();
        let first = contenders.first().and_then(|contender| contender.runs.first()).map(|run| &run.waits);
        for repository in first.into_iter().flat_map(|waits| names(&waits.repositories)) {
            let groups = |waits: &Breakdown| waits.repositories.get(repository).copied();
            rows.extend(waits(contenders, groups, |row| row.repository = Some(repository.clone())));
        }
        for labels in first.into_iter().flat_map(|waits| names(&waits.labels)) {
            let groups = |waits: &Breakdown| waits.labels.get(labels).copied();
            rows.extend(waits(contenders, groups, |row| row.labels = Some(labels.clone())));
        }
        Self { contenders: contenders.iter().map(|contender| contender.name.clone()).collect(), rows }
    }
}

/// Of one group alone nothing is told that the totals do not.
fn names(groups: &BTreeMap<String, Waits>) -> impl Iterator<Item = &String> {
    groups.keys().filter(|_| groups.len() > 1)
}

/// The rows of one group of jobs.
fn waits(contenders: &[Contender], of: impl Fn(&Breakdown) -> Option<Waits>, name: impl Fn(&mut Row)) -> [Row; 3] {
    let found: Vec<[Spread; 3]> = contenders.iter().map(|contender| contender.waits(&of)).collect();
    let metrics = [Metric::WaitP50, Metric::WaitP95, Metric::WaitMax];
    let mut index = 0;
    metrics.map(|metric| {
        let values = found.iter().filter_map(|spreads| spreads.get(index).copied()).collect();
        index += 1;
        let mut row = Row { pool: None, repository: None, labels: None, metric: metric.name(), unit: metric.unit(), values };
        name(&mut row);
        row
    })
}
