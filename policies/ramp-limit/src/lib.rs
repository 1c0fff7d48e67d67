//! How much capacity to hold: one runner for every job, but only so many that start at the same time.
//!
//! The ceiling is what is ready plus what may start, so it rises with every runner that comes online. What is starting already is never taken
//! away, and runners that wait for room in the cluster start nothing.

use pacer_policy_sdk::capacity::{Lives, Plan, Request, one_per_job};
use pacer_policy_sdk::lifecycle::{Problem, out_of_range};
use pacer_policy_sdk::types::NoRoom;
use pacer_policy_sdk::{Capacity, Policy};
use serde::Deserialize;

/// What can be set.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    /// How many may start at the same time. 1 to 10000.
    starting: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { starting: 20 }
    }
}

/// The policy.
pub struct RampLimit;

impl Policy for RampLimit {
    type Settings = Settings;

    fn check(settings: &Settings) -> Vec<Problem> {
        out_of_range(&[("starting", settings.starting, 1, 10_000)])
    }

    fn settings_schema() -> Option<&'static str> {
        Some(include_str!("settings.schema.json"))
    }
}

impl Capacity for RampLimit {
    fn plan(request: &Request, settings: &Settings) -> Result<Plan, String> {
        let counts = &request.pool.counts;
        let waiting = NoRoom::of(&request.pool).map_or(0, |no_room| no_room.runners).min(counts.pending);
        let starting = counts.starting.saturating_add(counts.pending - waiting);
        let ready = counts.idle.saturating_add(counts.busy);
        let ceiling = ready.saturating_add(waiting).saturating_add(starting.max(settings.starting));
        Ok(Plan { ceiling: Some(ceiling), ..one_per_job(request, &Lives::default()) })
    }
}

pacer_policy_sdk::export!(RampLimit: capacity);

#[cfg(test)]
mod tests {
    use pacer_policy_sdk::cases;
    use pacer_policy_sdk::scenario::Scenario;
    use pacer_policy_sdk::types::Counts;

    use super::*;

    #[test]
    fn all_cases() {
        assert_eq!(cases::capacity::<RampLimit>(concat!(env!("CARGO_MANIFEST_DIR"), "/cases")), Ok(4));
    }

    #[test]
    fn a_burst_starts_in_steps_and_is_served_whole() {
        let (mut ready, mut starting) = (0, 0);
        let mut steps = 0;
        while ready < 100 {
            let scenario = (0..100).fold(Scenario::pool("ci"), |scenario, id| scenario.job(id, |job| job.queued = 1));
            let counts = Counts { starting, busy: ready, ..Counts::default() };
            let plan =
                scenario.with_pool(|pool| pool.counts = counts).settings(r#"{"starting":30}"#).plan::<RampLimit>().unwrap();
            let live = 100.min(plan.ceiling.unwrap());
            assert!(live >= ready + starting, "nothing that starts is taken away");
            starting = live - ready;
            assert!(starting <= 30, "{starting} start at once");
            // A third of them comes online.
            let online = starting.div_ceil(3);
            (ready, starting, steps) = (ready + online, starting - online, steps + 1);
        }
        assert!(steps < 20, "{steps}");
    }
}
