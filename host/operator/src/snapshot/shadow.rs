//! Policies in shadow: what they answered, and what fleets would be if they decided.

use std::sync::Arc;

use pacer_core::would_be::{FleetFigures, Prospect};
use pacer_policy::Compared;

use super::fleet::Sets;
use super::{Comparison, Figure, Reason, Section, Simulation, grown};
use crate::metrics::Sources;

/// A figure's name, its unit, and where it is.
type Named = (&'static str, &'static str, fn(&FleetFigures) -> f64);

#[expect(clippy::cast_precision_loss, reason = "nobody has 2^52 runners")]
const FIGURES: [Named; 5] = [
    ("runners", "", |fleet| fleet.runners as f64),
    ("wait.p50", "s", |fleet| fleet.wait_p50),
    ("wait.p95", "s", |fleet| fleet.wait_p95),
    ("runner-minutes", "min", |fleet| fleet.runner_minutes),
    ("idle-minutes", "min", |fleet| fleet.idle_minutes),
];

/// The newest answers in shadow. Shards share the processes that run policies, and so these.
pub(super) fn comparisons(all: &[Arc<Sources>]) -> Section<Comparison> {
    let newest = all.first().map(|any| any.sets.host().comparisons().newest()).unwrap_or_default();
    if newest.is_empty() {
        return Section::new();
    }
    let sets: Vec<Sets> = all.iter().map(|sources| Sets::of(&sources.stores)).collect();
    newest.into_iter().map(|(number, compared)| (grown(number), Arc::new(comparison(&compared, &sets)))).collect()
}

fn comparison(compared: &Compared, sets: &[Sets]) -> Comparison {
    let pool = &compared.pool;
    let owner = || sets.iter().find_map(|sets| sets.pool(&pool.namespace, Some(&pool.name)));
    let owner = if pool.kind == "RunnerReplicaSet" { owner() } else { None };
    Comparison {
        at: compared.at,
        pool: owner.unwrap_or_else(|| format!("{}/{}/{}", pool.kind, pool.namespace, pool.name)),
        decision: compared.decision.as_str().to_owned(),
        in_force: compared.in_force.clone(),
        shadow: compared.shadow.clone(),
        answered: compared.answered.clone(),
        would: compared.would.clone(),
        agreement: compared.agreement,
    }
}

/// What was found last about each pool.
pub(super) fn simulations(all: &[Arc<Sources>]) -> Section<Simulation> {
    let found = all.iter().flat_map(|sources| sources.sets.prospects().newest());
    found.map(|(pool, prospect)| (pool.to_string(), Arc::new(simulation(&prospect)))).collect()
}

fn simulation(prospect: &Prospect) -> Simulation {
    let since = prospect.since;
    match &prospect.finding {
        Ok(found) => {
            let figure = |(metric, unit, of): Named| Figure {
                metric: metric.to_owned(),
                unit: unit.to_owned(),
                recorded: of(&found.recorded),
                in_force: of(&found.in_force),
                shadow: of(&found.shadow),
            };
            let figures = FIGURES.into_iter().map(figure).collect();
            let (wait_error, runner_minutes_error) = (found.misses.wait_seconds, found.misses.runner_minutes);
            Simulation { since, jobs: found.jobs, figures, wait_error, runner_minutes_error, refused: None }
        }
        Err(why) => {
            let refused = Reason { word: why.reason().to_owned(), text: why.to_string() };
            Simulation { since, refused: Some(refused), ..Simulation::default() }
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use pacer_core::would_be::{Misses, WhyNot, WouldBe};

    use super::*;

    #[test]
    fn figures_stand_beside_each_other_or_it_is_said_why_there_are_none() {
        let fleet = |runners| FleetFigures {
            runners,
            wait_p95: 2.0 * f64::from(u32::try_from(runners).unwrap()),
            ..FleetFigures::default()
        };
        let misses = Misses { wait_seconds: 0.4, runner_minutes: 0.02 };
        let found = WouldBe { jobs: 7, recorded: fleet(1), in_force: fleet(2), shadow: fleet(3), misses };
        let told = simulation(&Prospect { since: Timestamp::UNIX_EPOCH, finding: Ok(found) });
        let figure = |at: usize| {
            (told.figures[at].metric.as_str(), [told.figures[at].recorded, told.figures[at].in_force, told.figures[at].shadow])
        };
        assert_eq!((figure(0), figure(2)), (("runners", [1.0, 2.0, 3.0]), ("wait.p95", [2.0, 4.0, 6.0])));
        assert_eq!((told.jobs, told.wait_error, told.runner_minutes_error), (7, 0.4, 0.02));
        let told = simulation(&Prospect { since: Timestamp::UNIX_EPOCH, finding: Err(WhyNot::NoJob) });
        assert!(told.figures.is_empty());
        assert_eq!(told.refused.unwrap().word, "NoJob");
    }
}
