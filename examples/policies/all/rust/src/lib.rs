//! All four decisions. The line with `export!` names them: delete those that the shipped policy shall go on making, with what makes them.

use pacer_policy_sdk::capacity::{self, Lives, Plan};
use pacer_policy_sdk::restart::{self, Action};
use pacer_policy_sdk::scale_down::{Choice, Request};
use pacer_policy_sdk::{Capacity, Policy, Recover, Restart, ScaleDown, order, recover};
use serde::Deserialize;

/// What can be set in `policies.yaml`.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    /// Runners that have been idle for less are kept.
    min_idle_seconds: u32,
}

/// The policy.
pub struct NewestFirst;

impl Policy for NewestFirst {
    type Settings = Settings;
}

/// Which idle runners go first: the youngest, because the caches of the old ones are warm.
impl ScaleDown for NewestFirst {
    fn select(request: &Request, settings: &Settings) -> Result<Vec<Choice>, String> {
        let youngest = order::by_key(&request.candidates, |runner| (runner.age, &runner.name));
        let choices = youngest.into_iter().filter_map(|index| {
            let runner = request.candidates.get(index as usize)?;
            (runner.idle >= settings.min_idle_seconds).then(|| Choice::new(index, format!("{} s old", runner.age)))
        });
        Ok(choices.take(request.surplus as usize).collect())
    }
}

/// What to do about runners that ended or failed: others take their places, later after each failure.
impl Restart for NewestFirst {
    fn decide(request: &restart::Request, _: &Settings) -> Result<Vec<restart::Verdict>, String> {
        let verdict = |(index, subject): (u32, &restart::Subject)| match (subject.cause.as_str(), subject.attempts) {
            ("completed", _) => restart::Verdict::new(index, Action::Replace(0), "its job is done"),
            (_, attempts @ 6..) => restart::Verdict::new(index, Action::Quarantine, format!("{attempts} attempts failed")),
            (cause, attempts) => restart::Verdict::new(index, Action::Replace(10 * attempts), cause),
        };
        Ok((0..).zip(&request.subjects).map(verdict).collect())
    }
}

/// How much capacity to hold: what the shipped policy holds. Add reservations of your own to it.
impl Capacity for NewestFirst {
    fn plan(request: &capacity::Request, _: &Settings) -> Result<Plan, String> {
        Ok(capacity::one_per_job(request, &Lives::default()))
    }
}

/// Which jobs that died with their runners run again: once, where their place was taken away.
impl Recover for NewestFirst {
    fn recover(request: &recover::Request, _: &Settings) -> Result<Vec<recover::Verdict>, String> {
        let verdict = |(index, job): (u32, &recover::DeadJob)| match (job.attempt, job.cause.as_str()) {
            (1, cause @ ("node-lost" | "evicted" | "preempted")) => recover::Verdict::rerun(index, None, cause),
            (1, cause) => recover::Verdict::leave(index, cause),
            (attempt, _) => recover::Verdict::leave(index, format!("attempt {attempt} of its run")),
        };
        Ok((0..).zip(&request.jobs).map(verdict).collect())
    }
}

pacer_policy_sdk::export!(NewestFirst: scale_down, restart, capacity, recover);

#[cfg(test)]
mod tests {
    use pacer_policy_sdk::scenario::Scenario;

    use super::*;

    #[test]
    fn the_youngest_goes() {
        let picked = Scenario::pool("ci")
            .candidate("old", |runner| runner.age = 7_200)
            .candidate("young", |runner| runner.age = 60)
            .surplus(1)
            .select::<NewestFirst>();
        assert_eq!(picked.map(|picked| picked[0].name.clone()), Ok("young".to_owned()));
    }

    #[test]
    fn an_evicted_job_runs_again_once() {
        let asked = Scenario::pool("ci").dead_job(1, "evicted", |_| ()).dead_job(2, "evicted", |job| job.attempt = 2);
        let actions = asked.recovered::<NewestFirst>().map(|all| all.into_iter().map(|one| one.action).collect::<Vec<_>>());
        assert_eq!(actions, Ok(vec!["rerun".to_owned(), "leave".to_owned()]));
    }
}
