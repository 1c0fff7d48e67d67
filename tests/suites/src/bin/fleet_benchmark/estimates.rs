//! How good the operator's estimates were of when jobs that wait will start, by its own score: half of them by the likely moment, nine of ten by the
//! latest one.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use pacer_harness::world::World;

use crate::figure::Page;

/// Of the jobs of which an estimate was made, those that may have started later than its latest moment, when the estimates are right.
const LATER: f64 = 0.1;

/// Jobs by how their estimates turned out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Outcomes {
    by_likely: u32,
    by_latest: u32,
    later: u32,
}

impl Outcomes {
    fn all(self) -> u32 {
        self.by_likely + self.by_latest + self.later
    }
}

/// Tells how many jobs of each kind of pool started by the likely and by the latest moment: names of pools are a kind, a dash and a seed.
///
/// # Errors
///
/// When there are no metrics, or no estimate was made.
pub(crate) async fn told(world: &World, page: &mut Page<'_>) -> Result<()> {
    let metrics = world.operator.as_ref().context("no operator")?.metrics().await?;
    let kinds = by_kind(&metrics);
    let mut total = Outcomes::default();
    for (kind, found) in &kinds {
        page.part(format!("{kind}: started by the likely moment, of {} jobs", found.all()), found.by_likely, found.all(), None);
        page.part(format!("{kind}: later than the latest moment"), found.later, found.all(), None);
        total.by_likely += found.by_likely;
        total.by_latest += found.by_latest;
        total.later += found.later;
    }
    ensure!(total.all() > 0, "no estimate was made");
    // Twice the deviation that chance alone gives so many jobs.
    let chance = 2.0 * (LATER * (1.0 - LATER) / f64::from(total.all())).sqrt();
    page.part(format!("all: started by the likely moment, of {} jobs", total.all()), total.by_likely, total.all(), None);
    page.part("all: later than the latest moment", total.later, total.all(), Some(LATER + chance));
    Ok(())
}

fn by_kind(metrics: &str) -> BTreeMap<String, Outcomes> {
    let mut kinds = BTreeMap::<String, Outcomes>::new();
    for line in metrics.lines() {
        let Some((labels, value)) = line.strip_prefix("pacer_wait_estimates_total{").and_then(|rest| rest.rsplit_once("} "))
        else {
            continue;
        };
        let label = |name: &str| {
            let pair = labels.split(',').find_map(|label| label.strip_prefix(name)?.strip_prefix("=\""));
            pair.map(|value| value.trim_end_matches('"'))
        };
        let (Some(pool), Some(outcome), Ok(count)) =
            (label("horizontalrunnerautoscaler"), label("outcome"), value.parse::<u32>())
        else {
            continue;
        };
        let found = kinds.entry(pool.split('-').next().unwrap_or(pool).to_owned()).or_default();
        match outcome {
            "by-likely" => found.by_likely += count,
            "by-latest" => found.by_latest += count,
            _ => found.later += count,
        }
    }
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_of_all_seeds_of_a_kind_are_added_up() {
        let metrics = "# TYPE pacer_wait_estimates counter\n\
            pacer_wait_estimates_total{horizontalrunnerautoscaler=\"burst-1\",namespace=\"default\",outcome=\"by-likely\"} 5\n\
            pacer_wait_estimates_total{horizontalrunnerautoscaler=\"burst-2\",namespace=\"default\",outcome=\"by-likely\"} 1\n\
            pacer_wait_estimates_total{horizontalrunnerautoscaler=\"burst-2\",namespace=\"default\",outcome=\"by-latest\"} 4\n\
            pacer_wait_estimates_total{horizontalrunnerautoscaler=\"steady-1\",namespace=\"default\",outcome=\"later\"} 2\n\
            pacer_wait_estimate_error_seconds_sum 4\n";
        let expected = BTreeMap::from([
            ("burst".to_owned(), Outcomes { by_likely: 6, by_latest: 4, later: 0 }),
            ("steady".to_owned(), Outcomes { later: 2, ..Outcomes::default() }),
        ]);
        assert_eq!(by_kind(metrics), expected);
    }
}
