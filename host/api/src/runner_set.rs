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
    /// ServiceAccount of the pods. Default: the namespace's, or in kubernetes container mode one made for the runner.
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
    /// Until when no runner is made, because the last ones failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_until: Option<Time>,
    /// What the operator has to say about the set.
    #[serde(default, deserialize_with = "nullable::or_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
