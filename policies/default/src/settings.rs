//! What can be set. One struct serves all decisions, because a component has one set of settings.

use pacer_policy_sdk::lifecycle::Problem;
use serde::Deserialize;

/// JSON Schema of [`Settings`].
pub(crate) const SCHEMA: &str = include_str!("settings.schema.json");

/// Settings of the shipped policy; all are optional.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    /// Scale-down: runners whose idle times fall into the same bucket of so many seconds count as equally idle, which leaves room to
    /// free whole nodes. 1 to 86400. Idleness is learnt from listings about a minute apart, so smaller differences say nothing.
    pub idle_bucket_seconds: u32,
    /// Restart: how long a runner may be ready and unknown to GitHub. 30 to 86400; ARC's ten minutes. Pools whose own runners are known
    /// to start more slowly get twice the 99th percentile of their start times.
    pub registration_timeout_seconds: u32,
    /// Restart: how long GitHub may have no contact. 30 to 86400; ten minutes, as in ARC up to 0.19.
    pub offline_timeout_seconds: u32,
    /// Restart: how long a registration must be gone before that is believed. 0 to 86400.
    pub unregistered_confirm_seconds: u32,
    /// Restart: how long a pod may fail to start when nothing says why. 60 to 604800.
    pub start_timeout_seconds: u32,
    /// Restart: a runner that fails within so many seconds of its pod's creation failed at the start. 0 to 86400.
    pub early_exit_seconds: u32,
    /// Restart: wait after the second failure in a row; doubles with each one after that. 1 to 3600; the kubelet's.
    pub backoff_seconds: u32,
    /// Restart: longest wait after a failure. At least `backoffSeconds`, at most 3600; the policy waits at most 600 s, as the operator does.
    pub max_backoff_seconds: u32,
    /// Capacity: life of a reservation; renewed while its job is known. 1 to 604800. The operator's facts win when they name the
    /// `duration` of the trigger that a job came through. ARC's default.
    pub reservation_seconds: u32,
    /// Capacity: after so long in the queue a job gets no more reservations; GitHub gives up after a day. 60 to 604800.
    pub queued_limit_seconds: u32,
    /// Capacity: after so long in progress a job gets no more reservations; GitHub stops jobs after five days. 60 to 604800.
    pub running_limit_seconds: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            idle_bucket_seconds: 60,
            registration_timeout_seconds: 600,
            offline_timeout_seconds: 600,
            unregistered_confirm_seconds: 60,
            start_timeout_seconds: 1_800,
            early_exit_seconds: 120,
            backoff_seconds: 10,
            max_backoff_seconds: 300,
            reservation_seconds: 600,
            queued_limit_seconds: 86_400,
            running_limit_seconds: 432_000,
        }
    }
}

const MINUTE: u32 = 60;
const HOUR: u32 = 3_600;
const DAY: u32 = 86_400;
const WEEK: u32 = 604_800;

impl Settings {
    pub(crate) fn problems(&self) -> Vec<Problem> {
        [
            ("idleBucketSeconds", self.idle_bucket_seconds, 1, DAY),
            ("registrationTimeoutSeconds", self.registration_timeout_seconds, 30, DAY),
            ("offlineTimeoutSeconds", self.offline_timeout_seconds, 30, DAY),
            ("unregisteredConfirmSeconds", self.unregistered_confirm_seconds, 0, DAY),
            ("startTimeoutSeconds", self.start_timeout_seconds, MINUTE, WEEK),
            ("earlyExitSeconds", self.early_exit_seconds, 0, DAY),
            ("backoffSeconds", self.backoff_seconds, 1, HOUR),
            ("maxBackoffSeconds", self.max_backoff_seconds, self.backoff_seconds, HOUR),
            ("reservationSeconds", self.reservation_seconds, 1, WEEK),
            ("queuedLimitSeconds", self.queued_limit_seconds, MINUTE, WEEK),
            ("runningLimitSeconds", self.running_limit_seconds, MINUTE, WEEK),
        ]
        .into_iter()
        .filter(|(_, value, least, most)| value < least || value > most)
        .map(|(path, value, least, most)| Problem::new(path, format!("is {value}, must be {least} to {most}")))
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use pacer_policy_sdk::lifecycle::{read_settings, validate_settings};
    use serde_json::{Map, Value};

    use super::*;

    fn schema() -> Map<String, Value> {
        let schema: Value = serde_json::from_str(SCHEMA).unwrap();
        schema["properties"].as_object().unwrap().clone()
    }

    /// The schema is what the operator checks first, so it must agree with the code in names, ranges and defaults.
    #[test]
    fn schema_agrees_with_the_code() {
        let defaults = schema().into_iter().map(|(name, property)| (name, property["default"].clone())).collect::<Map<_, _>>();
        assert_eq!(defaults.len(), 11);
        let json = Value::Object(defaults).to_string();
        assert_eq!(read_settings::<crate::Default>(&json), Ok(Settings::default()));

        for (name, property) in schema() {
            for (bound, beyond) in [("minimum", -1), ("maximum", 1)] {
                let limit = property[bound].as_i64().unwrap();
                if limit + beyond < 0 {
                    continue;
                }
                let refused = validate_settings::<crate::Default>(&format!(r#"{{"{name}":{}}}"#, limit + beyond)).unwrap_err();
                assert!(
                    refused.iter().all(|problem| problem.path == name || problem.path == "maxBackoffSeconds"),
                    "{name}: {refused:?}"
                );
                // The least `maxBackoffSeconds` is the other's value, which a schema can't say.
                let alone = if name == "backoffSeconds" { r#","maxBackoffSeconds":3600"# } else { "" };
                let alone = if name == "maxBackoffSeconds" { r#","backoffSeconds":1"# } else { alone };
                assert_eq!(validate_settings::<crate::Default>(&format!(r#"{{"{name}":{limit}{alone}}}"#)), Ok(()), "{name}");
            }
        }
    }

    #[test]
    fn back_off_must_not_start_above_its_maximum() {
        let problems = validate_settings::<crate::Default>(r#"{"backoffSeconds":60,"maxBackoffSeconds":30}"#).unwrap_err();
        assert_eq!(problems, [Problem::new("maxBackoffSeconds", "is 30, must be 60 to 3600")]);
    }
}
