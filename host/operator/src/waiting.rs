//! What objects say of a pool that jobs wait for, as the rule of [`pacer_core::waiting`] takes it. The page and the CLI know runners from
//! different evidence; the rest of a pool they read here.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use pacer_api::condition::{self, ConditionType};
use pacer_api::{HorizontalRunnerAutoscaler, RunnerReplicaSet};
use pacer_cluster::events::Reason;
use pacer_core::phase::Cause;
use pacer_core::waiting::{Autoscaler, Brake, Standing};

use crate::standing::State;
use crate::target::Target;

/// Reasons of a pool's condition `Ready` that say that GitHub can't be used for it.
const GITHUB: [&str; 3] = ["SettingsRefused", "CredentialsRefused", "GitHubUnavailable"];

/// The last word of an autoscaler.
#[must_use]
pub fn autoscaler(autoscaler: &HorizontalRunnerAutoscaler) -> Autoscaler {
    let conditions = autoscaler.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let find = |type_: ConditionType| conditions.iter().find(|condition| condition.type_ == type_.as_str());
    if let Some(refused) = find(ConditionType::Accepted).filter(|condition| condition.status == "False") {
        return said(Brake::Unable, refused);
    }
    let Some(scaling) = find(ConditionType::Scaling) else { return Autoscaler::default() };
    if let (Some(max), "MetricUnavailable") = (reached(autoscaler), scaling.reason.as_str()) {
        let message = format!("maxReplicas is {max}; {}", scaling.message);
        return Autoscaler { message, ..said(Brake::Maximum, scaling) };
    }
    let brake = match scaling.reason.as_str() {
        "MetricUnavailable" => Brake::Blind,
        "MaxReplicas" => Brake::Maximum,
        "PolicyCeiling" => Brake::Ceiling,
        "RampLimit" => Brake::Ramp,
        "ScheduledOverride" => Brake::Schedule,
        _ => Brake::None,
    };
    said(brake, scaling)
}

/// The maximum where the number is that: a demand that can't be read would not raise it.
fn reached(autoscaler: &HorizontalRunnerAutoscaler) -> Option<i32> {
    let desired = autoscaler.status.as_ref()?.desired_replicas?;
    autoscaler.spec.max_replicas.filter(|max| desired >= *max)
}

fn said(brake: Brake, condition: &Condition) -> Autoscaler {
    Autoscaler { brake, message: condition.message.clone(), since: Some(condition.last_transition_time.0) }
}

/// When the place of a runner that failed to start is filled again, and how many failed in a row: the latest of the pool's RunnerReplicaSets.
///
/// `failedAttempts` counts runners that were given up, and the one whose place is to be filled still waits for that.
pub fn backoff<'a>(sets: impl IntoIterator<Item = &'a RunnerReplicaSet>, now: Timestamp) -> Option<(Timestamp, u32)> {
    let statuses = sets.into_iter().filter_map(|set| set.status.as_ref());
    let backoffs = statuses.filter_map(|status| {
        let failed = status.failed_attempts.unwrap_or_default().saturating_add(1);
        Some((status.backoff_until.as_ref()?.0, failed))
    });
    backoffs.filter(|(until, _)| *until > now).max()
}

/// Why GitHub can't be used for a pool, and since when.
#[must_use]
pub fn github(target: &Target) -> Option<(String, Option<Timestamp>)> {
    unready(target, |reason| GITHUB.contains(&reason))
}

/// Why the API server lets no more runners be made for a pool, and since when.
#[must_use]
pub fn refused(target: &Target) -> Option<(String, Option<Timestamp>)> {
    unready(target, |reason| reason == Reason::CreationRefused.as_str())
}

fn unready(target: &Target, for_it: impl Fn(&str) -> bool) -> Option<(String, Option<Timestamp>)> {
    let condition = condition::find(target.conditions(), ConditionType::Ready).filter(|ready| for_it(&ready.reason))?;
    Some((condition.message.clone(), Some(condition.last_transition_time.0)))
}

/// What a runner in this state, with this trouble (its cause and what the cluster says), is for a job that waits. One that is offline may come
/// back before it is replaced.
#[must_use]
pub fn standing(state: State, trouble: Option<(&str, &str)>) -> Standing {
    let (cause, message) = trouble.unwrap_or_default();
    let message = || message.to_owned();
    match state {
        State::Pending | State::Starting if cause == Cause::Unschedulable.as_str() => Standing::Unschedulable(message()),
        State::Pending | State::Starting if cause == Cause::ImagePull.as_str() => Standing::Image(message()),
        State::Pending | State::Starting if cause == Cause::Quota.as_str() => Standing::Refused(message()),
        State::Pending => Standing::Starting,
        State::Starting | State::Offline => Standing::Registering,
        State::Idle => Standing::Idle,
        State::Busy => Standing::Busy,
        State::Quarantined => Standing::Quarantined(message()),
        State::Ended if Cause::of(cause).is_some_and(Cause::is_failure) => Standing::Failed,
        State::Ended | State::Stopping => Standing::Leaving,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runner_stands_where_its_state_and_its_trouble_say() {
        let message = || "0/3 nodes".to_owned();
        for (state, cause, expected) in [
            (State::Pending, "", Standing::Starting),
            (State::Pending, "unschedulable", Standing::Unschedulable(message())),
            (State::Starting, "image-pull", Standing::Image(message())),
            (State::Pending, "quota", Standing::Refused(message())),
            (State::Starting, "", Standing::Registering),
            (State::Offline, "node-lost", Standing::Registering),
            (State::Idle, "", Standing::Idle),
            (State::Busy, "image-pull", Standing::Busy),
            (State::Quarantined, "exit", Standing::Quarantined(message())),
            (State::Ended, "exit", Standing::Failed),
            (State::Ended, "completed", Standing::Leaving),
            (State::Stopping, "exit", Standing::Leaving),
            (State::Stopping, "", Standing::Leaving),
        ] {
            let trouble = Some((cause, "0/3 nodes")).filter(|(cause, _)| !cause.is_empty());
            assert_eq!(standing(state, trouble), expected, "{state:?} {cause}");
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    #[test]
    fn autoscaler_holds_the_number_for_the_reason_of_its_condition() {
        let object = |type_: &str, status: &str, reason: &str| -> HorizontalRunnerAutoscaler {
            let text = format!(
                "{{metadata: {{name: web}}, spec: {{scaleTargetRef: {{name: web}}}}, status: {{conditions: [{{type: {type_}, \
                 status: '{status}', reason: {reason}, message: why, lastTransitionTime: 2026-01-01T00:00:00Z}}]}}}}"
            );
            serde_saphyr::from_str(&text).unwrap()
        };
        let of = |type_: &str, status: &str, reason: &str| autoscaler(&object(type_, status, reason));
        for (type_, status, reason, brake) in [
            ("Accepted", "False", "Invalid", Brake::Unable),
            ("Scaling", "True", "MaxReplicas", Brake::Maximum),
            ("Scaling", "True", "PolicyCeiling", Brake::Ceiling),
            ("Scaling", "True", "RampLimit", Brake::Ramp),
            ("Scaling", "True", "ScheduledOverride", Brake::Schedule),
            ("Scaling", "False", "MetricUnavailable", Brake::Blind),
            ("Scaling", "True", "Reserved", Brake::None),
        ] {
            let found = of(type_, status, reason);
            assert_eq!((found.brake, found.message.as_str()), (brake, "why"), "{reason}");
        }
        assert_eq!(of("Accepted", "True", "Accepted"), Autoscaler::default());
        for (max, desired, brake) in [(4, 3, Brake::Blind), (4, 4, Brake::Maximum), (4, 5, Brake::Maximum)] {
            let mut blind = object("Scaling", "False", "MetricUnavailable");
            (blind.spec.max_replicas, blind.status.get_or_insert_default().desired_replicas) = (Some(max), Some(desired));
            assert_eq!(autoscaler(&blind).brake, brake, "{desired} of {max}");
        }
    }

    #[test]
    fn backoff_of_a_pool_is_the_latest_that_is_not_over() {
        let set = |second: i64, attempts: u32| -> RunnerReplicaSet {
            let text = format!(
                "{{metadata: {{name: web-1}}, spec: {{template: {{}}}}, status: {{backoffUntil: '{}', failedAttempts: {attempts}}}}}",
                at(second)
            );
            serde_saphyr::from_str(&text).unwrap()
        };
        let sets = [set(10, 1), set(30, 3), set(20, 7)];
        assert_eq!(backoff(&sets, at(0)), Some((at(30), 4)));
        assert_eq!(backoff(&sets, at(30)), None);
    }
}
