//! What to do about runners that are not well. Those that do not come online get as long as the runners of this pool take, learned from its
//! own starts, instead of ten minutes for all.
//!
//! The limit is the 99th percentile of the starts with a margin, within bounds. What is known not to be the runner's fault, or to be waited
//! for, is told apart from slowness and has no limit. Everything else is renewed at once: the operator backs off by itself when starts fail.

use pacer_policy_sdk::lifecycle::{Problem, out_of_range};
use pacer_policy_sdk::restart::{Action, Request, Subject, Verdict};
use pacer_policy_sdk::types::{Quantiles, duration, shortened};
use pacer_policy_sdk::{Policy, Restart};
use serde::Deserialize;

/// A state that may pass by itself, or that nobody can tell anything about, is looked at again after so many seconds.
const LOOK_AGAIN: u32 = 60;

/// GitHub's listings are not all of the same moment, so a runner may be missing from one.
const CONFIRMED: u32 = 30;

/// What can be set.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    /// The limit in per cent of the 99th percentile. 100 to 1000.
    margin_percent: u32,
    /// Shortest limit. 30 to 86400.
    least_seconds: u32,
    /// Longest limit. At least `leastSeconds`, at most 86400.
    most_seconds: u32,
    /// Starts that have to be known. 1 to 200.
    samples: u32,
    /// The limit until then. 30 to 86400.
    unlearned_seconds: u32,
    /// How long GitHub may have no contact with a runner that was online. 30 to 86400.
    offline_seconds: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            margin_percent: 200,
            least_seconds: 90,
            most_seconds: 1_800,
            samples: 20,
            unlearned_seconds: 600,
            offline_seconds: 600,
        }
    }
}

/// The policy.
pub struct LearnedRegistrationTimeout;

impl Policy for LearnedRegistrationTimeout {
    type Settings = Settings;

    fn check(settings: &Settings) -> Vec<Problem> {
        out_of_range(&[
            ("marginPercent", settings.margin_percent, 100, 1_000),
            ("leastSeconds", settings.least_seconds, 30, 86_400),
            ("mostSeconds", settings.most_seconds, settings.least_seconds, 86_400),
            ("samples", settings.samples, 1, 200),
            ("unlearnedSeconds", settings.unlearned_seconds, 30, 86_400),
            ("offlineSeconds", settings.offline_seconds, 30, 86_400),
        ])
    }

    fn settings_schema() -> Option<&'static str> {
        Some(include_str!("settings.schema.json"))
    }
}

impl Restart for LearnedRegistrationTimeout {
    fn decide(request: &Request, settings: &Settings) -> Result<Vec<Verdict>, String> {
        let limit = settings.limit(request.pool.start_time.as_ref());
        let verdict = |(index, subject): (u32, &Subject)| {
            let (action, reason) = settings.decide(subject, &limit);
            Verdict::new(index, action, reason)
        };
        Ok((0_u32..).zip(&request.subjects).map(verdict).collect())
    }
}

/// How long a start may take.
struct Limit {
    seconds: u32,
    /// Where that is from, for people.
    from: String,
}

impl Settings {
    fn limit(&self, starts: Option<&Quantiles>) -> Limit {
        match starts.filter(|starts| starts.samples >= self.samples) {
            Some(starts) => Limit {
                seconds: (starts.p99.saturating_mul(self.margin_percent) / 100).clamp(self.least_seconds, self.most_seconds),
                from: format!("99 of 100 take at most {}", duration(starts.p99)),
            },
            None => Limit { seconds: self.unlearned_seconds, from: "too few starts are known yet".to_owned() },
        }
    }

    fn decide(&self, subject: &Subject, limit: &Limit) -> (Action, String) {
        match subject.cause.as_str() {
            "deprecated-version" => {
                let reason = "GitHub refuses this runner version, a new one would fail alike: update the runner image";
                return (Action::Quarantine, reason.to_owned());
            }
            cause @ ("evicted" | "node-lost" | "pod-deleted") => {
                return (subject.renewed(0), format!("{cause}, not its own fault"));
            }
            _ => {}
        }
        match subject.situation.as_str() {
            "not-starting" | "never-registered" => self.late(subject, limit),
            "offline" | "unregistered" if subject.github == "online" => (Action::Keep, "GitHub has contact".to_owned()),
            "offline" => self.silent(subject),
            "unregistered" => match CONFIRMED.saturating_sub(subject.since) {
                0 => (subject.renewed(0), "its registration is gone".to_owned()),
                left => (Action::LookAgain(left), "missing from GitHub's listing".to_owned()),
            },
            "ended" | "pod-missing" => (subject.renewed(0), format!("{}: {}", subject.situation, subject.cause)),
            other => (Action::LookAgain(LOOK_AGAIN), format!("situation `{}` is unknown to this policy", shortened(other, 60))),
        }
    }

    fn late(&self, subject: &Subject, limit: &Limit) -> (Action, String) {
        let cause = subject.cause.as_str();
        if subject.github == "online" {
            return (Action::Keep, "online by now".to_owned());
        }
        // The scheduler, the kubelet or the operator tries these again, and a new pod would wait for the same.
        if matches!(cause, "unschedulable" | "quota" | "image-pull" | "bad-credentials" | "config-error") {
            return (
                Action::LookAgain(LOOK_AGAIN),
                format!("{cause} for {}, which a new pod would not cure", duration(subject.since)),
            );
        }
        let age = duration(subject.age);
        match limit.seconds.saturating_sub(subject.age) {
            // GitHub's silence proves nothing while it can't be asked.
            0 if subject.github == "unknown" && subject.situation == "never-registered" => {
                (Action::LookAgain(LOOK_AGAIN), format!("not online after {age}, and GitHub can't be asked"))
            }
            0 => (subject.renewed(0), format!("not online after {age}: {}", limit.from)),
            left => {
                let most = duration(limit.seconds);
                (Action::LookAgain(left.min(LOOK_AGAIN)), format!("not online after {age} of at most {most}: {}", limit.from))
            }
        }
    }

    fn silent(&self, subject: &Subject) -> (Action, String) {
        let since = duration(subject.since);
        match self.offline_seconds.saturating_sub(subject.since) {
            0 if subject.github == "unknown" => {
                (Action::LookAgain(LOOK_AGAIN), format!("offline for {since}, and GitHub can't be asked"))
            }
            0 => (subject.renewed(0), format!("offline for {since}")),
            left => (
                Action::LookAgain(left.min(LOOK_AGAIN)),
                format!("offline for {since} of at most {}", duration(self.offline_seconds)),
            ),
        }
    }
}

pacer_policy_sdk::export!(LearnedRegistrationTimeout: restart);

#[cfg(test)]
mod tests {
    use pacer_policy_sdk::cases;
    use pacer_policy_sdk::lifecycle::validate_settings;
    use pacer_policy_sdk::scenario::Scenario;

    use super::*;

    #[test]
    fn all_cases() {
        assert_eq!(cases::restart::<LearnedRegistrationTimeout>(concat!(env!("CARGO_MANIFEST_DIR"), "/cases")), Ok(4));
    }

    #[test]
    fn the_limit_keeps_within_its_bounds() {
        let settings = Settings::default();
        for (samples, p99, expected) in
            [(19, 10, 600), (20, 10, 90), (20, 60, 120), (200, 500, 1_000), (20, 5_000, 1_800), (20, u32::MAX, 1_800)]
        {
            let starts = Quantiles { samples, p50: 1, p90: 2, p99 };
            assert_eq!(settings.limit(Some(&starts)).seconds, expected, "{samples} starts, p99 {p99}");
        }
        assert_eq!(settings.limit(None).seconds, 600);
    }

    #[test]
    fn bounds_do_not_contradict_each_other() {
        let problems = validate_settings::<LearnedRegistrationTimeout>(r#"{"leastSeconds":600,"mostSeconds":300}"#).unwrap_err();
        assert_eq!(problems, [Problem::new("mostSeconds", "is 300, must be 600 to 86400")]);
    }

    #[test]
    fn who_is_past_the_limit_and_stands_alone_keeps_its_name() {
        let late = |alone| {
            let scenario = Scenario::pool("ci").subject("a", "never-registered", "unknown", |subject| {
                subject.age = 601;
                subject.stand_alone = alone;
            });
            scenario.decide::<LearnedRegistrationTimeout>().unwrap()[0].action.clone()
        };
        assert_eq!((late(false).as_str(), late(true).as_str()), ("replace", "recreate"));
    }
}
