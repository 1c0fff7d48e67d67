//! Events: transitions that a user can act on, with stable reasons.

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
    /// A set made runners.
    RunnersCreated,
    /// A runner was removed because fewer are wanted.
    RunnerRemoved,
    /// A runner was given up and its place is filled again.
    RunnerReplaced,
    /// A stand-alone Runner's pod was made again.
    PodRecreated,
    /// A runner is kept as evidence and not replaced.
    RunnerQuarantined,
    /// A runner that is to go still runs a job.
    RunnerDraining,
    /// A pod was deleted by force.
    PodDeleted,
    /// The API server refuses the runner's pod.
    PodRefused,
    /// Part of the spec has no effect.
    SpecIgnored,
    /// No runner can use a claim any more.
    ClaimUnusable,
    /// No registration token.
    FailedUpdateRegistrationToken,
    /// GitHub can't be used with these credentials.
    GitHubUnavailable,
    /// A set was made for a template.
    RunnerReplicaSetCreated,
    /// An existing set was adopted.
    RunnerReplicaSetAdopted,
    /// A runner of a StatefulSet that ARC left was taken over.
    StatefulSetAdopted,
    /// An empty old set was deleted.
    RunnerReplicaSetDeleted,
    /// A policy failed and another decided.
    PolicyFault,
    /// A policy set came into force.
    PolicyActivated,
    /// A policy set is refused; what was in force stays.
    PolicyRefused,
    /// A policy set that is asked for does not exist.
    PolicySetMissing,
    /// A policy set was taken back because its policies kept failing.
    PolicyRolledBack,
    /// A policy keeps failing and is not asked for now.
    PolicyDegraded,
    /// Policies are asked again.
    PolicyRecovered,
    /// A policy set was switched off by hand.
    PolicyDisabled,
    /// An autoscaler set another number.
    Scaled,
    /// An autoscaler can't do its work.
    RunnerAutoscalingFailure,
}

impl Reason {
    /// The word itself.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RunnersCreated => "RunnersCreated",
            Self::RunnerRemoved => "RunnerRemoved",
            Self::RunnerReplaced => "RunnerReplaced",
            Self::PodRecreated => "PodRecreated",
            Self::RunnerQuarantined => "RunnerQuarantined",
            Self::RunnerDraining => "RunnerDraining",
            Self::PodDeleted => "PodDeleted",
            Self::PodRefused => "PodRefused",
            Self::SpecIgnored => "SpecIgnored",
            Self::ClaimUnusable => "ClaimUnusable",
            Self::FailedUpdateRegistrationToken => "FailedUpdateRegistrationToken",
            Self::GitHubUnavailable => "GitHubUnavailable",
            Self::RunnerReplicaSetCreated => "RunnerReplicaSetCreated",
            Self::RunnerReplicaSetAdopted => "RunnerReplicaSetAdopted",
            Self::StatefulSetAdopted => "StatefulSetAdopted",
            Self::RunnerReplicaSetDeleted => "RunnerReplicaSetDeleted",
            Self::PolicyFault => "PolicyFault",
            Self::PolicyActivated => "PolicyActivated",
            Self::PolicyRefused => "PolicyRefused",
            Self::PolicySetMissing => "PolicySetMissing",
            Self::PolicyRolledBack => "PolicyRolledBack",
            Self::PolicyDegraded => "PolicyDegraded",
            Self::PolicyRecovered => "PolicyRecovered",
            Self::PolicyDisabled => "PolicyDisabled",
            Self::Scaled => "Scaled",
            Self::RunnerAutoscalingFailure => "RunnerAutoscalingFailure",
        }
    }

    fn type_(self) -> EventType {
        match self {
            Self::RunnerQuarantined
            | Self::PodRefused
            | Self::SpecIgnored
            | Self::FailedUpdateRegistrationToken
            | Self::GitHubUnavailable
            | Self::PolicyFault
            | Self::RunnerAutoscalingFailure
            | Self::PolicyRefused
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

/// Warnings that were published a short time ago.
#[derive(Debug, Default)]
struct Told(HashMap<u64, Instant>);

impl Told {
    /// Whether to say it, and takes note of that.
    fn is_news(&mut self, warning: u64, now: Instant) -> bool {
        self.0.retain(|_, told| now.saturating_duration_since(*told) < REPEAT);
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
    told: Arc<Mutex<Told>>,
}

impl Events {
    /// Events reported by this process.
    #[must_use]
    pub fn new(client: Client, instance: String) -> Self {
        let reporter = Reporter { controller: "pacer".to_owned(), instance: Some(instance) };
        Self { recorder: Recorder::new(client, reporter), told: Arc::default() }
    }

    /// Says something about `object`; `related` keeps events about different runners of a set apart, which are merged otherwise.
    pub async fn publish(&self, reason: Reason, object: &ObjectReference, related: Option<ObjectReference>, note: &str) {
        self.publish_apart(reason, reason.as_str(), object, related, note).await;
    }

    /// As [`Events::publish`], with an `action` of at most 128 bytes that keeps events apart whose notes say different things.
    pub async fn publish_apart(
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
            if !self.told.lock().unwrap_or_else(PoisonError::into_inner).is_news(warning, Instant::now()) {
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
    fn a_warning_is_told_once_a_minute() {
        let began = Instant::now();
        let mut told = Told::default();
        for (warning, second, news) in [(1, 0, true), (2, 0, true), (1, 59, false), (2, 60, true), (1, 60, true), (1, 119, false)]
        {
            assert_eq!(told.is_news(warning, began + Duration::from_secs(second)), news, "{warning} at {second} s");
        }
        let many: Vec<_> = (0..5_000).map(|warning| told.is_news(warning + 10, began + Duration::from_secs(61))).collect();
        assert!(many.iter().all(|news| *news) && told.0.len() == REMEMBERED);
    }
}
