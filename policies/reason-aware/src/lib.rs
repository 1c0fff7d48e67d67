//! What to do about runners that are not well, by the reason alone, in three classes that can be set:
//!
//! * **free**: what happened to the runner (its node went, it was evicted) is made good at once, however often it happens;
//! * **stop**: what another try can't cure (a wrong image, refused credentials) is tried a few times and then kept for somebody to look at;
//! * everything else backs off, twice as long after each failure.
//!
//! A runner about which nothing is known but that it is late is looked at again until it is too late.

use pacer_policy_sdk::lifecycle::{Problem, out_of_range};
use pacer_policy_sdk::limits::RESTART_WAIT_MAX;
use pacer_policy_sdk::restart::{Action, Request, Subject, Verdict};
use pacer_policy_sdk::types::duration;
use pacer_policy_sdk::{Policy, Restart};
use serde::Deserialize;

/// What can be set.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    /// Causes that do not count as a failed attempt.
    free: Vec<String>,
    /// Causes that another attempt does not cure.
    stop: Vec<String>,
    /// Tries before a cause of `stop` stops the runner. 1 to 100.
    tries: u32,
    /// Wait after the second failure in a row; doubles with each one after that. 1 to 3600.
    backoff_seconds: u32,
    /// Longest wait. At least `backoffSeconds`, at most 3600; the policy waits at most 600 s, as the operator does.
    max_backoff_seconds: u32,
    /// How long a runner may be late or silent. 30 to 86400.
    patience_seconds: u32,
}

impl Default for Settings {
    fn default() -> Self {
        let list = |causes: &[&str]| causes.iter().map(|cause| (*cause).to_owned()).collect();
        Self {
            free: list(&["evicted", "node-lost", "pod-deleted", "completed", "quota", "unschedulable"]),
            stop: list(&["image-pull", "bad-credentials", "config-error", "deprecated-version"]),
            tries: 3,
            backoff_seconds: 10,
            max_backoff_seconds: 300,
            patience_seconds: 600,
        }
    }
}

/// The policy.
pub struct ReasonAware;

impl Policy for ReasonAware {
    type Settings = Settings;

    fn check(settings: &Settings) -> Vec<Problem> {
        let wrong = out_of_range(&[
            ("tries", settings.tries, 1, 100),
            ("backoffSeconds", settings.backoff_seconds, 1, 3_600),
            ("maxBackoffSeconds", settings.max_backoff_seconds, settings.backoff_seconds, 3_600),
            ("patienceSeconds", settings.patience_seconds, 30, 86_400),
        ]);
        let both = (0..).zip(&settings.stop).filter(|(_, cause)| settings.free.contains(*cause));
        let both = both
            .map(|(index, cause): (usize, _)| Problem::new(format!("stop[{index}]"), format!("`{cause}` is in `free` as well")));
        wrong.into_iter().chain(both).collect()
    }

    fn settings_schema() -> Option<&'static str> {
        Some(include_str!("settings.schema.json"))
    }
}

impl Restart for ReasonAware {
    fn decide(request: &Request, settings: &Settings) -> Result<Vec<Verdict>, String> {
        Ok((0_u32..).zip(&request.subjects).map(|(index, subject)| settings.verdict(index, subject)).collect())
    }
}

impl Settings {
    fn verdict(&self, index: u32, subject: &Subject) -> Verdict {
        let (action, reason) = self.decide(subject);
        Verdict::new(index, action, reason)
    }

    fn decide(&self, subject: &Subject) -> (Action, String) {
        let listed = |causes: &[String]| causes.contains(&subject.cause);
        let (cause, attempts) = (&subject.cause, subject.attempts);
        // Still under way: the kubelet, the scheduler or GitHub may yet come round.
        let waits = matches!(subject.situation.as_str(), "not-starting" | "never-registered" | "offline");
        if waits && subject.github == "online" {
            return (Action::Keep, "GitHub has contact".to_owned());
        }
        // A version that GitHub refuses fails alike every time, so there is nothing to try.
        let tries = if cause == "deprecated-version" { 1 } else { self.tries };
        if listed(&self.stop) && attempts >= tries {
            return (Action::Quarantine, format!("{cause} in try {attempts} of {tries}: cure it, then delete this runner"));
        }
        // What lost its node or was evicted does not come back by itself.
        let gone = matches!(cause.as_str(), "evicted" | "node-lost" | "pod-deleted");
        if waits && !gone {
            let left = self.patience_seconds.saturating_sub(subject.since);
            if left > 0 {
                let (since, most) = (duration(subject.since), duration(self.patience_seconds));
                return (Action::LookAgain(left.min(60)), format!("{}: {since} of at most {most}", subject.situation));
            }
            if subject.github == "unknown" {
                return (Action::LookAgain(60), format!("{}, and GitHub can't be asked", subject.situation));
            }
        }
        if listed(&self.free) {
            return (subject.renewed(0), format!("{cause}, not its own fault"));
        }
        match self.backoff(attempts) {
            0 => (subject.renewed(0), format!("{}: {cause}", subject.situation)),
            after => {
                (subject.renewed(after), format!("{cause}, failure {attempts} in a row: next try after {}", duration(after)))
            }
        }
    }

    /// The first failure may be chance.
    fn backoff(&self, attempts: u32) -> u32 {
        let Some(doublings) = attempts.checked_sub(2) else { return 0 };
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        // The operator waits no longer, so no reason may say that it does.
        self.backoff_seconds.saturating_mul(factor).min(self.max_backoff_seconds).min(RESTART_WAIT_MAX)
    }
}

pacer_policy_sdk::export!(ReasonAware: restart);

#[cfg(test)]
mod tests {
    use pacer_policy_sdk::cases;
    use pacer_policy_sdk::lifecycle::validate_settings;
    use pacer_policy_sdk::scenario::Scenario;

    use super::*;

    #[test]
    fn all_cases() {
        assert_eq!(cases::restart::<ReasonAware>(concat!(env!("CARGO_MANIFEST_DIR"), "/cases")), Ok(3));
    }

    #[test]
    fn waits_double_up_to_the_longest() {
        for (attempts, after) in [(0, 0), (1, 0), (2, 10), (3, 20), (6, 160), (7, 300), (u32::MAX, 300)] {
            let decided = Scenario::pool("ci").subject("a", "ended", "exit", |s| s.attempts = attempts).decide::<ReasonAware>();
            assert_eq!(decided.unwrap()[0].after, Some(after), "{attempts}");
        }
    }

    #[test]
    fn a_cause_is_in_one_class() {
        let problems = validate_settings::<ReasonAware>(r#"{"free":["exit"],"stop":["image-pull","exit"]}"#).unwrap_err();
        assert_eq!(problems, [Problem::new("stop[1]", "`exit` is in `free` as well")]);
    }
}
