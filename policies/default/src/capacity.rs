//! How much capacity to hold for which jobs until when: the SDK's plan of one runner per job, with the lives that are set.

use pacer_policy_sdk::Capacity;
use pacer_policy_sdk::capacity::{Lives, Plan, Request, one_per_job};

use crate::{Default, Settings};

impl Capacity for Default {
    fn plan(request: &Request, settings: &Settings) -> Result<Plan, String> {
        let lives = Lives {
            reservation: settings.reservation_seconds,
            queued_limit: settings.queued_limit_seconds,
            running_limit: settings.running_limit_seconds,
        };
        Ok(one_per_job(request, &lives))
    }
}
