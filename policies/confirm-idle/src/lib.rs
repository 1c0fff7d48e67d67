//! Which idle runners go first: only those that have been idle for a while, the longest first; nobody right after the pool grew.

use std::cmp::Reverse;

use pacer_policy_sdk::scale_down::{Choice, Request};
use pacer_policy_sdk::types::duration;
use pacer_policy_sdk::{Policy, ScaleDown, order};
use serde::Deserialize;

/// What can be set.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    /// Seconds for which a runner must have been idle before it is removed.
    idle_seconds: u32,
    /// Seconds after a scale-up in which no runner is removed.
    hold_after_growth_seconds: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { idle_seconds: 300, hold_after_growth_seconds: 0 }
    }
}

/// The policy.
pub struct ConfirmIdle;

impl Policy for ConfirmIdle {
    type Settings = Settings;

    fn settings_schema() -> Option<&'static str> {
        Some(include_str!("settings.schema.json"))
    }
}

impl ScaleDown for ConfirmIdle {
    fn select(request: &Request, settings: &Settings) -> Result<Vec<Choice>, String> {
        if request.pool.last_scale_up.is_some_and(|since| since < settings.hold_after_growth_seconds) {
            return Ok(Vec::new());
        }
        let longest = order::by_key(&request.candidates, |runner| (Reverse(runner.idle), &runner.name));
        let confirmed = longest.into_iter().filter_map(|index| {
            let runner = request.candidates.get(index as usize).filter(|runner| runner.idle >= settings.idle_seconds)?;
            let reason = format!("idle {}, at least {} asked for", duration(runner.idle), duration(settings.idle_seconds));
            Some(Choice::new(index, reason))
        });
        Ok(confirmed.take(request.surplus as usize).collect())
    }
}

pacer_policy_sdk::export!(ConfirmIdle: scale_down);

#[cfg(test)]
mod tests {
    use pacer_policy_sdk::cases;

    use super::*;

    #[test]
    fn all_cases() {
        assert_eq!(cases::scale_down::<ConfirmIdle>(concat!(env!("CARGO_MANIFEST_DIR"), "/cases")), Ok(3));
    }
}
