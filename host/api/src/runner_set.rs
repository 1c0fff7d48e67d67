//! Runners with claims of their own.

use k8s_openapi::{
    api::apps::v1::StatefulSetSpec,
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    nullable,
    replica_set::replicas_or_default,
    runner::{RunnerConfig, WorkVolumeClaimTemplate},
};

/// How many runners there are to be, of which kind, and which claims each of them gets.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "actions.summerwind.dev",
    version = "v1alpha1",
    kind = "RunnerSet",
    plural = "runnersets",
    doc = "A number of runners that keep volumes: runner settings beside the fields of a StatefulSet's spec.",
    namespaced,
    schema = "disabled",
    status = "RunnerSetStatus",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Desired", type_ = "number", json_path = ".spec.replicas"),
    printcolumn(name = "Current", type_ = "number", json_path = ".status.replicas"),
    printcolumn(name = "Up-To-Date", type_ = "number", json_path = ".status.updatedReplicas"),
    printcolumn(name = "Available", type_ = "number", json_path = ".status.availableReplicas"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct RunnerSetSpec {
    /// What GitHub and the runner image are told.
    #[serde(flatten)]
    pub config: RunnerConfig,
    /// When replicas was set for demand that is known; an ephemeral runner that ended since needs no successor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effective_time: Option<Time>,
    /// ServiceAccount of the pods. Default: the namespace's, or in kubernetes container mode one made for the fleet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// Claim of the working directory, made for each pod; required in kubernetes container mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work_volume_claim_template: Option<WorkVolumeClaimTemplate>,
    /// Number of runners, template of their pods and of their claims.
    #[serde(flatten)]
    pub stateful: StatefulSetSpec,
}

impl RunnerSetSpec {
    /// Number of runners; negative numbers count as 0.
    #[must_use]
    pub fn replicas_or_default(&self) -> u32 {
        replicas_or_default(self.stateful.replicas)
    }

    /// Number at the end of its pods' names: where the ordinals of a StatefulSet with one pod begin.
    #[must_use]
    pub fn ordinal(&self) -> u32 {
        let start = self.stateful.ordinals.as_ref().and_then(|ordinals| ordinals.start);
        start.and_then(|start| u32::try_from(start).ok()).unwrap_or_default()
    }

    /// What becomes of claims when the set is deleted.
    #[must_use]
    pub fn claims_when_deleted(&self) -> ClaimRetention {
        let policy = self.stateful.persistent_volume_claim_retention_policy.as_ref();
        ClaimRetention::of(policy.and_then(|policy| policy.when_deleted.as_deref()))
    }

    /// What becomes of claims that fewer runners leave over.
    #[must_use]
    pub fn claims_when_scaled(&self) -> ClaimRetention {
        let policy = self.stateful.persistent_volume_claim_retention_policy.as_ref();
        ClaimRetention::of(policy.and_then(|policy| policy.when_scaled.as_deref()))
    }

    /// Fields of a StatefulSet that are set and change nothing, each with the reason.
    #[must_use]
    pub fn without_effect(&self) -> Vec<&'static str> {
        let stateful = &self.stateful;
        let strategy = stateful.update_strategy.as_ref();
        let given = [
            (
                stateful.pod_management_policy.as_deref() == Some("OrderedReady"),
                "podManagementPolicy OrderedReady: runners do not wait for each other",
            ),
            (
                strategy.is_some_and(|strategy| strategy.type_.as_deref() == Some("OnDelete")),
                "updateStrategy OnDelete: idle runners of an older template are replaced, busy ones finish their jobs",
            ),
            (
                strategy.is_some_and(|strategy| strategy.rolling_update.is_some()),
                "updateStrategy.rollingUpdate: an older runner goes only when a new one is online",
            ),
            (
                stateful.min_ready_seconds.is_some_and(|seconds| seconds > 0),
                "minReadySeconds: a runner is available as soon as it is registered at GitHub",
            ),
            (
                stateful.revision_history_limit.is_some(),
                "revisionHistoryLimit: what made older runners goes with the last of them",
            ),
        ];
        given.into_iter().filter(|(given, _)| *given).map(|(_, why)| why).collect()
    }
}

/// What becomes of claims that nobody uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClaimRetention {
    /// They stay for the next runner.
    Retain,
    /// They are deleted.
    Delete,
}

impl ClaimRetention {
    /// Anything but `Delete` keeps the claims.
    fn of(policy: Option<&str>) -> Self {
        if policy == Some("Delete") { Self::Delete } else { Self::Retain }
    }
}

/// What became of a RunnerSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunnerSetStatus {
    /// Number of runners that can take jobs or run one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_replicas: Option<i32>,
    /// The same number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// Number of pods of the current template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated_replicas: Option<i32>,
    /// Number of runners asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired_replicas: Option<i32>,
    /// Number of pods of all revisions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Generation of the object that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Selector of the set's pods, as text, for the scale subresource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// Revision of the current template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Number of runners that have not registered yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_replicas: Option<i32>,
    /// Number of runners that run a job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy_replicas: Option<i32>,
    /// Number of registered runners that run no job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_replicas: Option<i32>,
    /// Number of runners in a row that ended before they registered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_attempts: Option<u32>,
    /// When runners were added last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_scale_up_time: Option<Time>,
    /// When runners were taken away last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_scale_down_time: Option<Time>,
    /// When the place of a runner that failed to start is filled again, unless one comes online before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_until: Option<Time>,
    /// What the operator has to say about the set.
    #[serde(default, deserialize_with = "nullable::or_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(fields: Value) -> RunnerSetSpec {
        let mut spec = json!({"repository": "acme/app", "selector": {}, "template": {}});
        if let (Some(spec), Value::Object(fields)) = (spec.as_object_mut(), fields) {
            spec.extend(fields);
        }
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn claims_stay_unless_the_policy_says_delete() {
        use ClaimRetention::{Delete, Retain};
        for (policy, deleted, scaled) in [
            (Value::Null, Retain, Retain),
            (json!({}), Retain, Retain),
            (json!({"whenDeleted": "Delete"}), Delete, Retain),
            (json!({"whenScaled": "Delete", "whenDeleted": "Retain"}), Retain, Delete),
            (json!({"whenScaled": "delete"}), Retain, Retain),
        ] {
            let spec = spec(json!({"persistentVolumeClaimRetentionPolicy": policy}));
            assert_eq!((spec.claims_when_deleted(), spec.claims_when_scaled()), (deleted, scaled), "{policy}");
        }
    }

    #[test]
    fn fields_of_a_stateful_set_have_a_meaning_or_a_reason_for_having_none() {
        for (fields, expected) in [
            (json!({}), 0),
            (json!({"podManagementPolicy": "Parallel", "serviceName": "x", "ordinals": {"start": 3}}), 0),
            (json!({"updateStrategy": {"type": "RollingUpdate"}, "minReadySeconds": 0}), 0),
            (json!({"podManagementPolicy": "OrderedReady"}), 1),
            (json!({"updateStrategy": {"type": "OnDelete"}}), 1),
            (json!({"updateStrategy": {"rollingUpdate": {"partition": 1}}, "minReadySeconds": 5, "revisionHistoryLimit": 0}), 3),
        ] {
            let found = spec(fields.clone()).without_effect();
            assert_eq!(found.len(), expected, "{fields}: {found:?}");
        }
    }

    #[test]
    fn ordinals_begin_where_the_spec_says() {
        for (ordinals, expected) in [(Value::Null, 0), (json!({}), 0), (json!({"start": 1}), 1), (json!({"start": -1}), 0)] {
            assert_eq!(spec(json!({"ordinals": ordinals})).ordinal(), expected);
        }
    }
}
