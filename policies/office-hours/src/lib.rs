//! How much capacity to hold: one runner for every job, and by weekday and hour at least and at most so many in all.
//!
//! A window's minimum is for all reservations together, jobs included. Its maximum is a ceiling below the autoscaler's own maximum.

mod settings;
mod zone;

use pacer_policy_sdk::capacity::{Lives, Plan, Request, Reservation, one_per_job_beside};
use pacer_policy_sdk::lifecycle::Problem;
use pacer_policy_sdk::{Capacity, Policy};

pub use settings::Settings;
use zone::Zone;

/// Id of the reservation that fills up to the minimum.
const MINIMUM: &str = "office-hours";

/// The plan is made anew at least so often, in seconds: the operator allows no longer.
const LOOK_AGAIN: u32 = 3_600;

/// The policy.
pub struct OfficeHours;

impl Policy for OfficeHours {
    type Settings = Settings;

    fn check(settings: &Settings) -> Vec<Problem> {
        settings.problems()
    }

    fn settings_schema() -> Option<&'static str> {
        Some(settings::SCHEMA)
    }
}

impl Capacity for OfficeHours {
    fn plan(request: &Request, settings: &Settings) -> Result<Plan, String> {
        let zone = Zone::parse(&settings.time_zone).ok_or("the time zone is unknown")?;
        #[expect(clippy::cast_possible_truncation, reason = "the time is in seconds, and a wild one saturates")]
        let (bounds, open, until) = settings.at(zone.local(request.now as i64));
        let mut plan = one_per_job_beside(MINIMUM, request, &Lives::default());
        let reserved = plan.reservations.iter().fold(0_u32, |sum, held| sum.saturating_add(held.replicas));
        let min = bounds.min.unwrap_or(0);
        if min > reserved {
            let hours = if open { "these hours" } else { "other hours" };
            let reason = format!("at least {min} in {hours} ({})", settings.time_zone);
            // Not longer than the window: nobody has to be there to end it.
            plan.reservations.push(Reservation::standing(MINIMUM, min - reserved, until, reason));
        }
        plan.ceiling = bounds.max;
        plan.look_again = [plan.look_again, Some(until), Some(LOOK_AGAIN)].into_iter().flatten().min();
        Ok(plan)
    }
}

pacer_policy_sdk::export!(OfficeHours: capacity);

#[cfg(test)]
mod tests {
    use pacer_policy_sdk::cases;

    use super::*;

    #[test]
    fn all_cases() {
        assert_eq!(cases::capacity::<OfficeHours>(concat!(env!("CARGO_MANIFEST_DIR"), "/cases")), Ok(4));
    }
}
