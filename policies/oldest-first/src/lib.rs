//! Which idle runners go first: those whose pods are oldest, for hygiene. Of an outdated template before all others, unless told not to.

use std::cmp::Reverse;

use pacer_policy_sdk::scale_down::{Candidate, Choice, Request};
use pacer_policy_sdk::types::duration;
use pacer_policy_sdk::{Policy, ScaleDown, order};
use serde::Deserialize;

/// What can be set.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    /// Removes runners of an outdated template before older runners of the newest one.
    outdated_first: bool,
    /// Runners that have been idle for fewer seconds are kept.
    min_idle_seconds: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { outdated_first: true, min_idle_seconds: 0 }
    }
}

/// The policy.
pub struct OldestFirst;

impl Policy for OldestFirst {
    type Settings = Settings;

    fn settings_schema() -> Option<&'static str> {
        Some(include_str!("settings.schema.json"))
    }
}

impl ScaleDown for OldestFirst {
    fn select(request: &Request, settings: &Settings) -> Result<Vec<Choice>, String> {
        let key = |runner: &Candidate| (settings.outdated_first && runner.current, Reverse(runner.age));
        let oldest = order::by_key(&request.candidates, |runner| (key(runner), &runner.name));
        let choices = oldest.into_iter().filter_map(|index| {
            let runner = request.candidates.get(index as usize).filter(|runner| runner.idle >= settings.min_idle_seconds)?;
            let outdated = if runner.current { "" } else { ", outdated template" };
            Some(Choice::new(index, format!("{} old{outdated}, idle {}", duration(runner.age), duration(runner.idle))))
        });
        Ok(choices.take(request.surplus as usize).collect())
    }
}

pacer_policy_sdk::export!(OldestFirst: scale_down);

#[cfg(test)]
mod tests {
    use pacer_policy_sdk::cases;

    use super::*;

    #[test]
    fn all_cases() {
        assert_eq!(cases::scale_down::<OldestFirst>(concat!(env!("CARGO_MANIFEST_DIR"), "/cases")), Ok(2));
    }
}
