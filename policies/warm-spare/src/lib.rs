//! How much capacity to hold: one runner for every job, and some that wait for the next ones.
//!
//! Spare runners are beyond those that work, whether the jobs are known from webhooks or only seen as busy runners.

use pacer_policy_sdk::capacity::{Lives, Plan, Request, Reservation, one_per_job_beside};
use pacer_policy_sdk::lifecycle::{Problem, out_of_range};
use pacer_policy_sdk::{Capacity, Policy};
use serde::Deserialize;

/// Id of the reservation of the spare ones.
const SPARE: &str = "warm-spare";

/// Life of that reservation in seconds; every plan renews it, and without plans the pool falls back to its minimum after that.
const LIFE: u32 = 600;

/// The plan is looked at again after so many seconds, because runners get busy without anybody saying so here.
const LOOK_AGAIN: u32 = 30;

/// What can be set.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    /// How many wait at least. At most 1000.
    spare: u32,
    /// And how many per hundred working ones, rounded up. At most 1000.
    spare_percent: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { spare: 1, spare_percent: 0 }
    }
}

/// The policy.
pub struct WarmSpare;

impl Policy for WarmSpare {
    type Settings = Settings;

    fn check(settings: &Settings) -> Vec<Problem> {
        out_of_range(&[("spare", settings.spare, 0, 1_000), ("sparePercent", settings.spare_percent, 0, 1_000)])
    }

    fn settings_schema() -> Option<&'static str> {
        Some(include_str!("settings.schema.json"))
    }
}

impl Capacity for WarmSpare {
    fn plan(request: &Request, settings: &Settings) -> Result<Plan, String> {
        let mut plan = one_per_job_beside(SPARE, request, &Lives::default());
        let reserved = plan.reservations.iter().fold(0_u32, |sum, held| sum.saturating_add(held.replicas));
        // Busy runners whose jobs nobody told of count as well.
        let working = reserved.max(request.pool.counts.busy);
        let spare = settings.spare.max(working.saturating_mul(settings.spare_percent).div_ceil(100));
        let replicas = working.saturating_sub(reserved).saturating_add(spare);
        if replicas > 0 {
            let reason = match working.saturating_sub(reserved) {
                0 => format!("{spare} spare beyond {working} jobs"),
                untold => format!("{spare} spare beyond {working} busy ones, {untold} of them with jobs nobody told of"),
            };
            plan.reservations.push(Reservation::standing(SPARE, replicas, LIFE, reason));
        }
        plan.look_again = Some(plan.look_again.map_or(LOOK_AGAIN, |after| after.min(LOOK_AGAIN)));
        Ok(plan)
    }
}

pacer_policy_sdk::export!(WarmSpare: capacity);

#[cfg(test)]
mod tests {
    use pacer_policy_sdk::cases;
    use pacer_policy_sdk::scenario::Scenario;

    use super::*;

    #[test]
    fn all_cases() {
        assert_eq!(cases::capacity::<WarmSpare>(concat!(env!("CARGO_MANIFEST_DIR"), "/cases")), Ok(4));
    }

    #[test]
    fn a_plan_settles() {
        let scenario = Scenario::pool("ci").job(1, |job| job.queued = 5).settings(r#"{"spare":2}"#);
        let first = scenario.plan::<WarmSpare>().unwrap();
        let mut request = scenario.capacity();
        request.reservations = first.reservations.clone();
        let next = pacer_policy_sdk::capacity::answer::<WarmSpare>(&request).unwrap();
        assert_eq!(next, first, "its own reservation is not counted as somebody else's");
    }
}
