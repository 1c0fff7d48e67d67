//! Which idle runners go first: the youngest, because the caches of the old ones are warm.

use pacer_policy_sdk::scale_down::{Choice, Request};
use pacer_policy_sdk::{Policy, ScaleDown, order};
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

pacer_policy_sdk::export!(NewestFirst: scale_down);

#[cfg(test)]
mod tests {
    use pacer_policy_sdk::cases;
    use pacer_policy_sdk::scenario::Scenario;

    use super::*;

    #[test]
    fn all_cases() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/cases");
        assert!(cases::scale_down::<NewestFirst>(directory).is_ok_and(|count| count > 0));
    }

    #[test]
    fn the_youngest_goes() {
        let picked = Scenario::pool("ci")
            .candidate("old", |runner| runner.age = 7_200)
            .candidate("young", |runner| runner.age = 60)
            .surplus(1)
            .select::<NewestFirst>();
        assert_eq!(picked.map(|picked| picked[0].name.clone()), Ok("young".to_owned()));
    }
}
