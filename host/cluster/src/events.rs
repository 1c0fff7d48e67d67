//! Events: transitions that a user can act on, with reasons of a closed set.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};

/// Reasons of events, also used in logs and metrics. ARC's are kept where they have a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A RunnerReplicaSet created runners.
    RunnersCreated,
    /// A runner was removed because fewer are wanted.
    RunnerRemoved,
    /// A runner was removed and another one takes its place.
    RunnerReplaced,
    /// The pod of a stand-alone Runner was created again.
    PodRecreated,
    /// A runner is kept as evidence and not replaced.
    RunnerQuarantined,
    /// GitHub runs a job again that died with its runner.
    JobRunAgain,
    /// A job that died with its runner stays failed, although its policy wants it to run again.
    JobNotRunAgain,
    /// A runner that is to be removed still runs a job.
    RunnerDraining,
    /// A pod was deleted by force.
    PodDeleted,
    /// The API server refuses the runner's pod.
    PodRefused,
    /// The API server refuses new Runners or a new RunnerReplicaSet, or another object has the name.
    CreationRefused,
    /// The API server refuses a number of replicas that the object asked for.
    ScalingRefused,
    /// Part of the spec has no effect.
    SpecIgnored,
    /// No runner can use a claim any more.
    ClaimUnusable,
    /// GitHub gave no registration token for a runner's pod.
    FailedUpdateRegistrationToken,
    /// GitHub can't be used with these credentials.
    GitHubUnavailable,
    /// A RunnerReplicaSet was created for a template.
    RunnerReplicaSetCreated,
    /// A runner of a StatefulSet that ARC left was taken over.
    StatefulSetAdopted,
    /// An empty RunnerReplicaSet of an earlier template was deleted.
    RunnerReplicaSetDeleted,
    /// A policy failed and another decided.
    PolicyFault,
    /// A policy set was activated.
    PolicyActivated,
    /// A policy set is refused; the one that was active stays active.
    PolicyRefused,
    /// A content of a policy set ended the process that tried it, and is not tried again.
    PolicyQuarantined,
    /// A policy set that is asked for does not exist.
    PolicySetMissing,
    /// A policy set was rolled back because its policies kept failing.
    PolicyRolledBack,
    /// The circuit breaker of a policy is open.
    PolicyDegraded,
    /// The circuit breakers of a policy set are closed again.
    PolicyRecovered,
    /// A policy set was switched off by hand.
    PolicyDisabled,
    /// An autoscaler changed the desired replicas.
    Scaled,
    /// An autoscaler can't compute the desired replicas.
    RunnerAutoscalingFailure,
    /// Jobs that wait can't be reported at GitHub.
    WaitingNotReported,
    /// The tenancy file does not allow it, or a quota of it is used up.
    NotAllowed,
    /// A tenancy file came into force.
    TenancyActive,
    /// A tenancy file is broken; the last good one stays in force.
    TenancyRefused,
}

impl Reason {
    /// The reason as it is in the Event.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RunnersCreated => "RunnersCreated",
            Self::RunnerRemoved => "RunnerRemoved",
            Self::RunnerReplaced => "RunnerReplaced",
            Self::PodRecreated => "PodRecreated",
            Self::RunnerQuarantined => "RunnerQuarantined",
            Self::JobRunAgain => "JobRunAgain",
            Self::JobNotRunAgain => "JobNotRunAgain",
            Self::RunnerDraining => "RunnerDraining",
            Self::PodDeleted => "PodDeleted",
            Self::PodRefused => "PodRefused",
            Self::CreationRefused => "CreationRefused",
            Self::ScalingRefused => "ScalingRefused",
            Self::SpecIgnored => "SpecIgnored",
            Self::ClaimUnusable => "ClaimUnusable",
            Self::FailedUpdateRegistrationToken => "FailedUpdateRegistrationToken",
            Self::GitHubUnavailable => "GitHubUnavailable",
            Self::RunnerReplicaSetCreated => "RunnerReplicaSetCreated",
            Self::StatefulSetAdopted => "StatefulSetAdopted",
            Self::RunnerReplicaSetDeleted => "RunnerReplicaSetDeleted",
            Self::PolicyFault => "PolicyFault",
            Self::PolicyActivated => "PolicyActivated",
            Self::PolicyRefused => "PolicyRefused",
            Self::PolicyQuarantined => "PolicyQuarantined",
            Self::PolicySetMissing => "PolicySetMissing",
            Self::PolicyRolledBack => "PolicyRolledBack",
            Self::PolicyDegraded => "PolicyDegraded",
            Self::PolicyRecovered => "PolicyRecovered",
            Self::PolicyDisabled => "PolicyDisabled",
            Self::Scaled => "Scaled",
            Self::RunnerAutoscalingFailure => "RunnerAutoscalingFailure",
            Self::WaitingNotReported => "WaitingNotReported",
            Self::NotAllowed => "NotAllowed",
            Self::TenancyActive => "TenancyActive",
            Self::TenancyRefused => "TenancyRefused",
        }
    }

    fn type_(self) -> EventType {
        match self {
            Self::RunnerQuarantined
            | Self::JobNotRunAgain
            | Self::PodRefused
            | Self::CreationRefused
            | Self::ScalingRefused
            | Self::SpecIgnored
            | Self::FailedUpdateRegistrationToken
            | Self::GitHubUnavailable
            | Self::PolicyFault
            | Self::RunnerAutoscalingFailure
            | Self::WaitingNotReported
            | Self::NotAllowed
            | Self::TenancyRefused
            | Self::PolicyRefused
            | Self::PolicyQuarantined
            | Self::PolicySetMissing
            | Self::PolicyRolledBack
            | Self::PolicyDegraded
            | Self::PolicyDisabled => EventType::Warning,
            _ => EventType::Normal,
        }
    }
}

/// Longest note the API server takes.
const NOTE: usize = 1024;

/// A warning that says the same about the same object is not published again within this: what fails is tried again all the time, and every
/// event is a write.
const REPEAT: Duration = Duration::from_secs(60);

/// Warnings that are remembered for that; more are published as often as they come.
const REMEMBERED: usize = 4_096;

/// Hashes of the warnings that were published within [`REPEAT`], and when.
#[derive(Debug, Default)]
struct RecentWarnings(HashMap<u64, Instant>);

impl RecentWarnings {
    /// Whether to publish a warning; remembers it then.
    fn admit(&mut self, warning: u64, now: Instant) -> bool {
        self.0.retain(|_, published| now.saturating_duration_since(*published) < REPEAT);
        if self.0.contains_key(&warning) {
            return false;
        }
        if self.0.len() < REMEMBERED {
            self.0.insert(warning, now);
        }
        true
    }
}

/// Publishes events; a lost one is logged and nothing else.
#[derive(Clone)]
pub struct Events {
    recorder: Recorder,
    recent: Arc<Mutex<RecentWarnings>>,
}

impl Events {
    /// Events reported by this process.
    #[must_use]
    pub fn new(client: Client, instance: String) -> Self {
        let reporter = Reporter { controller: "pacer".to_owned(), instance: Some(instance) };
        Self { recorder: Recorder::new(client, reporter), recent: Arc::default() }
    }

    /// Publishes an event about `object`. Without `related`, events about different runners of one fleet would be merged into one.
    pub async fn publish(&self, reason: Reason, object: &ObjectReference, related: Option<ObjectReference>, note: &str) {
        self.publish_with_action(reason, reason.as_str(), object, related, note).await;
    }

    /// As [`Events::publish`], with an `action` of at most 128 bytes. Events of different actions are not merged, so that each note is kept.
    pub async fn publish_with_action(
        &self,
        reason: Reason,
        action: &str,
        object: &ObjectReference,
        related: Option<ObjectReference>,
        note: &str,
    ) {
        let mut end = note.len().min(NOTE);
        while !note.is_char_boundary(end) {
            end -= 1;
        }
        let event = Event {
            type_: reason.type_(),
            reason: reason.as_str().to_owned(),
            note: note.get(..end).map(str::to_owned),
            action: action.to_owned(),
            secondary: related,
        };
        if matches!(event.type_, EventType::Warning) {
            let about = event.secondary.as_ref().map(|related| &related.uid);
            let warning =
                BuildHasherDefault::<DefaultHasher>::default().hash_one((reason, action, &object.uid, about, &event.note));
            if !self.recent.lock().unwrap_or_else(PoisonError::into_inner).admit(warning, Instant::now()) {
                return;
            }
        }
        if let Err(error) = self.recorder.publish(&event, object).await {
            tracing::warn!(%error, reason = reason.as_str(), "event not published");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warning_is_published_once_a_minute() {
        let began = Instant::now();
        let mut recent = RecentWarnings::default();
        for (warning, second, expected) in
            [(1, 0, true), (2, 0, true), (1, 59, false), (2, 60, true), (1, 60, true), (1, 119, false)]
        {
            assert_eq!(recent.admit(warning, began + Duration::from_secs(second)), expected, "{warning} at {second} s");
        }
        let many: Vec<_> = (0..5_000).map(|warning| recent.admit(warning + 10, began + Duration::from_secs(61))).collect();
        assert!(many.iter().all(|admitted| *admitted) && recent.0.len() == REMEMBERED);
    }
}
