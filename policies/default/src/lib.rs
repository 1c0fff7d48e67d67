//! The policy that pacer ships: what happens to every pool that doesn't choose something else.
//!
//! It is an ordinary policy, built for WebAssembly and run in the sandbox like any other. The operator also links it natively, for the
//! case that the sandbox itself fails.

mod capacity;
mod recover;
mod restart;
mod scale_down;
mod settings;

use pacer_policy_sdk::Policy;
use pacer_policy_sdk::lifecycle::{Description, Problem};
pub use settings::Settings;

/// Takes all four decisions; each is described in its module.
pub struct Default;

impl Policy for Default {
    type Settings = Settings;

    fn check(settings: &Settings) -> Vec<Problem> {
        settings.problems()
    }

    fn settings_schema() -> Option<&'static str> {
        Some(settings::SCHEMA)
    }
}

/// What the policy says about itself; the same when it is linked natively.
#[must_use]
pub fn description() -> Description {
    pacer_policy_sdk::description!(Default)
}

pacer_policy_sdk::export!(Default: scale_down, restart, capacity, recover);
