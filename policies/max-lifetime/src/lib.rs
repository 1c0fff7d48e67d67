//! Which idle runners go first: those that have lived too long, the oldest first; then, unless told not to, those idle longest.

use std::cmp::Reverse;

use pacer_policy_sdk::lifecycle::Problem;
use pacer_policy_sdk::scale_down::{Candidate, Choice, Request};
use pacer_policy_sdk::types::duration;
use pacer_policy_sdk::{Policy, ScaleDown, order};
use serde::Deserialize;

/// What can be set.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    /// Age from which a runner is retired. 60 or more.
    max_age_seconds: u32,
    /// Keeps younger runners even if the pool has too many.
    only_expired: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { max_age_seconds: 86_400, only_expired: false }
    }
}

/// The policy.
pub struct MaxLifetime;

impl Policy for MaxLifetime {
    type Settings = Settings;

    fn check(settings: &Settings) -> Vec<Problem> {
        if settings.max_age_seconds >= 60 {
            return Vec::new();
        }
        vec![Problem::new("maxAgeSeconds", format!("is {}, must be 60 or more", settings.max_age_seconds))]
    }

    fn settings_schema() -> Option<&'static str> {
        Some(include_str!("settings.schema.json"))
    }
}

impl ScaleDown for MaxLifetime {
    fn select(request: &Request, settings: &Settings) -> Result<Vec<Choice>, String> {
        let expired = |runner: &Candidate| runner.age >= settings.max_age_seconds;
        let retired = order::by_key(&request.candidates, |runner| {
            let seniority = if expired(runner) { runner.age } else { runner.idle };
            (!expired(runner), Reverse(seniority), &runner.name)
        });
        let choices = retired.into_iter().filter_map(|index| {
            let runner = request.candidates.get(index as usize).filter(|runner| expired(runner) || !settings.only_expired)?;
            let reason = if expired(runner) {
                format!("{} old, at most {} allowed", duration(runner.age), duration(settings.max_age_seconds))
            } else {
                format!("idle {}, {} old", duration(runner.idle), duration(runner.age))
            };
            Some(Choice::new(index, reason))
        });
        Ok(choices.take(request.surplus as usize).collect())
    }
}

pacer_policy_sdk::export!(MaxLifetime: scale_down);

#[cfg(test)]
mod tests {
    use pacer_policy_sdk::cases;

    use super::*;

    #[test]
    fn all_cases() {
        assert_eq!(cases::scale_down::<MaxLifetime>(concat!(env!("CARGO_MANIFEST_DIR"), "/cases")), Ok(3));
    }
}
