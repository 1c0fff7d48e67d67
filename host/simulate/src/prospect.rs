//! What a pool's fleet would be by now under other policies, from the newest part of its trace.

use pacer_core::would_be::{FleetFigures, Misses, WhyNot, WouldBe};
use pacer_trace::History;

use crate::calibration::{Bound, Calibration};
use crate::comparison::{Contender, Metric};
use crate::figures::{Figures, recorded};
use crate::policies::Policies;
use crate::run::simulate_while;
use crate::scenario::{Scenario, ScenarioError};

/// Runs for each of the two, with seeds of their own: chance is told from policies by their scatter.
const SEEDS: u64 = 3;

/// Faults at which a simulation is given up. Fewer are those of a busy machine.
const FAULTS: u64 = 3;

/// Whose simulation it is.
#[derive(Clone, Copy)]
enum Whose {
    InForce,
    Shadow,
}

/// Simulates a pool's history with the policies in force, which have to give what was recorded, and with those in shadow.
///
/// # Errors
///
/// Why that says nothing. `go_on` is asked every few events; when it says no, the simulation was [`WhyNot::Slow`] by so many `seconds`.
pub fn prospect(
    history: &History,
    in_force: &Policies,
    shadow: &Policies,
    seconds: u64,
    mut go_on: impl FnMut() -> bool,
) -> Result<WouldBe, WhyNot> {
    let scenario = Scenario::of(history).map_err(|error| match error {
        ScenarioError::NoPool | ScenarioError::NoJob => WhyNot::NoJob,
    })?;
    let scenario = scenario.without_pauses(history, in_force);
    let slow = WhyNot::Slow { seconds };
    let first = contender(&scenario, in_force, Whose::InForce, &slow, &mut go_on)?;
    let measured = recorded(history, &scenario);
    let calibration = Calibration::of(&first, &measured, Bound::default());
    if let Some(deviation) = calibration.deviations.iter().find(|deviation| !deviation.within) {
        let (figure, recorded, simulated) = (deviation.metric, deviation.recorded, deviation.simulated);
        return Err(WhyNot::Uncalibrated { figure, recorded, simulated });
    }
    let second = contender(&scenario, shadow, Whose::Shadow, &slow, &mut go_on)?;
    let recorded = of_figures(&measured.1);
    let in_force = of_runs(&first);
    Ok(WouldBe { jobs: measured.1.jobs, recorded, in_force, shadow: of_runs(&second), misses: misses(&recorded, &in_force) })
}

fn contender(
    scenario: &Scenario,
    policies: &Policies,
    whose: Whose,
    slow: &WhyNot,
    go_on: &mut impl FnMut() -> bool,
) -> Result<Contender, WhyNot> {
    let failed = || policies.faults() >= FAULTS;
    let mut runs = Vec::new();
    for seed in 1..=SEEDS {
        let outcome = simulate_while(scenario, policies, seed, || !failed() && go_on());
        runs.push(outcome.filter(|_| !failed()).ok_or_else(|| match whose {
            Whose::InForce if failed() => WhyNot::InForceFailed,
            Whose::Shadow if failed() => WhyNot::ShadowFailed,
            Whose::InForce | Whose::Shadow => slow.clone(),
        })?);
    }
    Ok(Contender { name: policies.name().to_owned(), runs, faults: policies.faults() })
}

fn of_figures(figures: &Figures) -> FleetFigures {
    FleetFigures {
        runners: figures.runners,
        wait_p50: figures.wait_p50,
        wait_p95: figures.wait_p95,
        runner_minutes: figures.runner_minutes,
        idle_minutes: figures.idle_minutes,
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a mean of counts")]
fn of_runs(contender: &Contender) -> FleetFigures {
    let mean = |metric| contender.spread(None, metric).mean;
    FleetFigures {
        runners: mean(Metric::Runners).round() as u64,
        wait_p50: mean(Metric::WaitP50),
        wait_p95: mean(Metric::WaitP95),
        runner_minutes: mean(Metric::RunnerMinutes),
        idle_minutes: mean(Metric::IdleMinutes),
    }
}

fn misses(recorded: &FleetFigures, simulated: &FleetFigures) -> Misses {
    let waits = [simulated.wait_p50 - recorded.wait_p50, simulated.wait_p95 - recorded.wait_p95];
    let minutes = (simulated.runner_minutes - recorded.runner_minutes).abs();
    Misses {
        wait_seconds: waits.into_iter().map(f64::abs).fold(0.0, f64::max),
        runner_minutes: if minutes < 0.005 { 0.0 } else { minutes / recorded.runner_minutes.max(0.01) },
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use pacer_trace::{PoolSettings, Record, Trace, What};

    use super::*;
    use crate::tests::{Work, at, settings, trace};

    /// Two runners that are always there, and jobs that each of them could take.
    fn fixed(minimum: u32) -> Trace {
        let work: Vec<Work> = (0..10).map(|index| (10 + index * 20, 10)).collect();
        let mut trace =
            trace(PoolSettings { replicas: 2, webhooks: false, ..settings(minimum, minimum.max(9), false, 0) }, &work, &[5]);
        trace.records.retain(|record| !matches!(record.what, What::JobStarted { .. } | What::Checkpoint {}));
        for name in ["one", "two"] {
            let runner: Arc<str> = Arc::from(name);
            trace
                .records
                .push(Record { at: at(-300), what: What::RunnerCreated { runner: runner.clone(), pool: "ci/web".into() } });
            trace.records.push(Record { at: at(-290), what: What::RunnerRegistered { runner } });
        }
        for (job, (queued, _)) in (1..).zip(&work) {
            trace.records.push(Record { at: at(*queued), what: What::JobStarted { job, runner: Some("one".into()) } });
        }
        trace.records.push(Record { at: at(600), what: What::Checkpoint {} });
        trace
    }

    fn builtin() -> Policies {
        Policies::builtin().unwrap()
    }

    fn told(trace: &Trace, go_on: impl FnMut() -> bool) -> Result<WouldBe, WhyNot> {
        prospect(&History::of(trace), &builtin(), &builtin(), 7, go_on)
    }

    #[test]
    fn same_policies_give_the_same_figures_beside_what_was_recorded() {
        let would_be = told(&fixed(2), || true).unwrap();
        assert_eq!((would_be.jobs, would_be.in_force), (10, would_be.shadow));
        assert_eq!((would_be.recorded.runners, would_be.shadow.runners), (2, 2));
        assert!((would_be.recorded.runner_minutes - 20.0).abs() < 0.1, "{would_be:?}");
        assert!(would_be.misses.runner_minutes < 0.01 && would_be.misses.wait_seconds < 0.1, "{would_be:?}");
    }

    #[test]
    fn simulation_that_does_not_give_what_happened_tells_nothing() {
        let refused = told(&fixed(7), || true).unwrap_err();
        assert!(matches!(refused, WhyNot::Uncalibrated { figure: "runner-minutes", .. }), "{refused:?}");
    }

    #[test]
    fn simulation_that_has_no_time_left_is_given_up() {
        let asked = Cell::new(0);
        let refused = told(&fixed(2), || asked.replace(asked.get() + 1) < 3).unwrap_err();
        assert_eq!((refused, asked.get()), (WhyNot::Slow { seconds: 7 }, 4));
    }

    #[test]
    fn simulation_of_a_minimum_with_too_many_digits_is_given_up() {
        assert_eq!(told(&fixed(4_000_000_000), || true), Err(WhyNot::Slow { seconds: 7 }));
    }

    #[test]
    fn nothing_is_told_of_a_time_without_a_job() {
        let mut quiet = fixed(2);
        quiet.records.retain(|record| !matches!(record.what, What::JobQueued { .. }));
        assert_eq!(told(&quiet, || true), Err(WhyNot::NoJob));
        quiet.records.clear();
        assert_eq!(told(&quiet, || true), Err(WhyNot::NoJob));
    }
}
