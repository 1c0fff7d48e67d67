//! Which idle runners go: none whose repository had a job a moment ago, since the next one is likely to be of the same, and caches are warm.
//!
//! Of the others the one that is idle longest goes first.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use pacer_policy_sdk::lifecycle::{Problem, out_of_range};
use pacer_policy_sdk::scale_down::{Candidate, Choice, Request};
use pacer_policy_sdk::types::{attribute, duration, shortened};
use pacer_policy_sdk::{Policy, ScaleDown, order};
use serde::Deserialize;

/// Enough to recognise a repository in a reason.
const NAME_BYTES: usize = 120;

/// What can be set.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    /// For how long after the last job of their repository runners are kept. 1 to 86,400.
    cool_down_seconds: u32,
    /// For how long after its last job a runner is kept where the repository of that job is not known. At most 86,400.
    otherwise_seconds: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { cool_down_seconds: 600, otherwise_seconds: 0 }
    }
}

/// The policy.
pub struct CoolDownPerRepository;

impl Policy for CoolDownPerRepository {
    type Settings = Settings;

    fn check(settings: &Settings) -> Vec<Problem> {
        out_of_range(&[
            ("coolDownSeconds", settings.cool_down_seconds, 1, 86_400),
            ("otherwiseSeconds", settings.otherwise_seconds, 0, 86_400),
        ])
    }

    fn reads() -> &'static [&'static str] {
        &["last-job"]
    }

    fn settings_schema() -> Option<&'static str> {
        Some(include_str!("settings.schema.json"))
    }
}

impl ScaleDown for CoolDownPerRepository {
    fn select(request: &Request, settings: &Settings) -> Result<Vec<Choice>, String> {
        let repository = |runner: &'_ Candidate| attribute(&runner.attributes, "last-job-repository").map(str::to_owned);
        let mut ends: BTreeMap<String, u32> = BTreeMap::new();
        for runner in &request.candidates {
            if let (Some(repository), Some(end)) = (repository(runner), runner.last_job_end) {
                let newest = ends.entry(repository).or_insert(end);
                *newest = end.min(*newest);
            }
        }
        let longest_idle = order::by_key(&request.candidates, |runner| (Reverse(runner.idle), &runner.name));
        let choices = longest_idle.into_iter().filter_map(|index| {
            let runner = request.candidates.get(index as usize)?;
            let idle = duration(runner.idle);
            let of = repository(runner).and_then(|repository| Some((*ends.get(&repository)?, repository)));
            let reason = match (of, runner.last_job_end) {
                (Some((end, _)), _) if end < settings.cool_down_seconds => return None,
                (None, Some(end)) if end < settings.otherwise_seconds => return None,
                (Some((end, repository)), _) => {
                    format!("idle {idle}, last job of {} ended {} ago", shortened(&repository, NAME_BYTES), duration(end))
                }
                (None, Some(end)) => format!("idle {idle}, its last job ended {} ago", duration(end)),
                (None, None) => format!("idle {idle}, no job of it is known"),
            };
            Some(Choice::new(index, reason))
        });
        Ok(choices.take(request.surplus as usize).collect())
    }
}

pacer_policy_sdk::export!(CoolDownPerRepository: scale_down);

#[cfg(test)]
mod tests {
    use pacer_policy_sdk::cases;

    use super::*;

    #[test]
    fn all_cases() {
        assert_eq!(cases::scale_down::<CoolDownPerRepository>(concat!(env!("CARGO_MANIFEST_DIR"), "/cases")), Ok(3));
    }

    #[test]
    fn settings_outside_their_range_are_refused() {
        let problems = CoolDownPerRepository::check(&Settings { cool_down_seconds: 0, otherwise_seconds: 86_401 });
        let paths: Vec<&str> = problems.iter().map(|problem| problem.path.as_str()).collect();
        assert_eq!(paths, ["coolDownSeconds", "otherwiseSeconds"]);
    }
}
