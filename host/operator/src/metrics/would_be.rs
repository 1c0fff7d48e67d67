//! What fleets would be by now if policies in shadow decided.

use std::collections::BTreeMap;
use std::sync::Arc;

use pacer_core::would_be::{FleetFigures, Prospect, WhyNot, WouldBe};
use pacer_policyset::{PoolName, SimulationTotals};
use prometheus_client::encoding::DescriptorEncoder;

use super::{Sources, counter, gauge};

/// A figure of a fleet, its name and what it means.
type Figure = (&'static str, &'static str, fn(&FleetFigures) -> f64);

const FIGURES: [Figure; 4] = [
    (
        "pacer_shadow_would_be_wait_p50_seconds",
        "Median wait of a pool's jobs as it was (recorded), simulated with the policies in force (in_force) and with those in shadow (shadow)",
        |fleet| fleet.wait_p50,
    ),
    (
        "pacer_shadow_would_be_wait_p95_seconds",
        "95th percentile of the waits of a pool's jobs, recorded and simulated",
        |fleet| fleet.wait_p95,
    ),
    ("pacer_shadow_would_be_runner_minutes", "Minutes for which runners of a pool existed, recorded and simulated", |fleet| {
        fleet.runner_minutes
    }),
    (
        "pacer_shadow_would_be_idle_minutes",
        "Minutes in which runners of a pool were online without a job, recorded and simulated",
        |fleet| fleet.idle_minutes,
    ),
];

pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>, all: &[Arc<Sources>]) -> Result<(), std::fmt::Error> {
    let prospects: BTreeMap<PoolName, Prospect> = all.iter().flat_map(|sources| sources.sets.prospects().newest()).collect();
    let found: Vec<(&PoolName, &WouldBe)> =
        prospects.iter().filter_map(|(pool, prospect)| Some((pool, prospect.finding.as_ref().ok()?))).collect();
    let rows: Vec<_> = found
        .iter()
        .flat_map(|(pool, found)| fleets(found).map(|(whose, fleet)| (of(pool, whose), count(fleet.runners))))
        .collect();
    let help = "Runners of a pool as they are (recorded), simulated with the policies in force (in_force) and with those in shadow (shadow)";
    gauge(encoder, "pacer_shadow_would_be_runners", help, &rows)?;
    for (name, help, figure) in FIGURES {
        let row = |(pool, found): &(&PoolName, &WouldBe)| fleets(found).map(|(whose, fleet)| (of(pool, whose), figure(fleet)));
        let rows: Vec<_> = found.iter().flat_map(row).collect();
        gauge(encoder, name, help, &rows)?;
    }
    let rows: Vec<_> = found.iter().map(|(pool, found)| (pool_labels(pool), found.misses.wait_seconds)).collect();
    let help = "By how much the simulation of the policies in force misses the waits of a pool's jobs";
    gauge(encoder, "pacer_shadow_would_be_wait_error_seconds", help, &rows)?;
    let rows: Vec<_> = found.iter().map(|(pool, found)| (pool_labels(pool), found.misses.runner_minutes)).collect();
    let help = "By which share the simulation of the policies in force misses the runner-minutes of a pool";
    gauge(encoder, "pacer_shadow_would_be_runner_minutes_error_ratio", help, &rows)?;
    let rows: Vec<_> = prospects
        .iter()
        .filter_map(|(pool, prospect)| Some((pool, prospect.finding.as_ref().err().map(WhyNot::reason)?)))
        .map(|(pool, reason)| (with(pool_labels(pool), "reason", reason), 1))
        .collect();
    gauge(encoder, "pacer_shadow_would_be_refused", "1 for why it is not said what the fleet of a pool would be", &rows)?;
    totals(encoder, all)
}

fn totals(encoder: &mut DescriptorEncoder<'_>, all: &[Arc<Sources>]) -> Result<(), std::fmt::Error> {
    let all: Vec<SimulationTotals> = all.iter().map(|sources| sources.sets.prospects().totals()).collect();
    let sum = |of: fn(&SimulationTotals) -> u64| all.iter().map(of).fold(0, u64::saturating_add);
    counter(
        encoder,
        "pacer_shadow_simulations",
        "Simulations for policies in shadow, whatever they found",
        &[(vec![], sum(|totals| totals.simulations))],
    )?;
    let help = "Records that were dropped before their time, because a pool has more than are remembered for simulations of policies in shadow";
    counter(encoder, "pacer_shadow_records_dropped", help, &[(vec![], sum(|totals| totals.dropped))])?;
    let help = "Changes for which there was no room: what is remembered for simulations of policies in shadow begins anew";
    counter(encoder, "pacer_shadow_changes_missed", help, &[(vec![], sum(|totals| totals.missed))])
}

fn fleets(found: &WouldBe) -> [(&'static str, &FleetFigures); 3] {
    [("recorded", &found.recorded), ("in_force", &found.in_force), ("shadow", &found.shadow)]
}

fn count(runners: u64) -> i64 {
    i64::try_from(runners).unwrap_or(i64::MAX)
}

type Labels = Vec<(&'static str, String)>;

fn pool_labels(pool: &str) -> Labels {
    let (namespace, name) = pool.split_once('/').unwrap_or(("", pool));
    vec![("namespace", namespace.to_owned()), ("pool", name.to_owned())]
}

fn with(mut labels: Labels, name: &'static str, value: &str) -> Labels {
    labels.push((name, value.to_owned()));
    labels
}

fn of(pool: &str, whose: &str) -> Labels {
    with(pool_labels(pool), "policies", whose)
}
