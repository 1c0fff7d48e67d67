//! A number of equal runners.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{nullable, runner::RunnerSpec};

/// What Runners are made from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunnerTemplate {
    /// Labels, annotations and finalizers of the Runners.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<EmbeddedMetadata>,
    /// Spec of the Runners.
    #[serde(default, deserialize_with = "nullable::or_default")]
    pub spec: RunnerSpec,
}

/// The part of an object's metadata that a template may hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EmbeddedMetadata {
    /// Annotations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
    /// Finalizers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finalizers: Option<Vec<String>>,
    /// Labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Has no effect; names are made by the operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Has no effect; everything is made in the namespace of its owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// How many runners there are to be, and of which kind.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "actions.summerwind.dev",
    version = "v1alpha1",
    kind = "RunnerReplicaSet",
    plural = "runnerreplicasets",
    shortname = "rrs",
    doc = "A number of runners of one template.",
    namespaced,
    schema = "disabled",
    status = "RunnerReplicaSetStatus",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Desired", type_ = "number", json_path = ".spec.replicas"),
    printcolumn(name = "Current", type_ = "number", json_path = ".status.replicas"),
    printcolumn(name = "Ready", type_ = "number", json_path = ".status.readyReplicas"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Busy", type_ = "number", json_path = ".status.busyReplicas")
)]
pub struct RunnerReplicaSetSpec {
    /// Number of runners. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// When replicas was set for demand that is known; an ephemeral runner that ended since needs no successor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effective_time: Option<Time>,
    /// Kept for tools that read it. Runners belong to the set by their owner reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// What the runners are made from.
    pub template: RunnerTemplate,
}

impl RunnerReplicaSetSpec {
    /// Number of runners; negative numbers count as 0.
    #[must_use]
    pub fn replicas_or_default(&self) -> u32 {
        replicas_or_default(self.replicas)
    }
}

/// The number of runners that a `replicas` field asks for: 1 when absent, 0 when negative.
#[must_use]
pub fn replicas_or_default(replicas: Option<i32>) -> u32 {
    replicas.map_or(1, |replicas| u32::try_from(replicas).unwrap_or(0))
}

/// What became of a RunnerReplicaSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunnerReplicaSetStatus {
    /// Number of pods of the current template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Number of runners that can take jobs or run one.
    #[serde(default, deserialize_with = "nullable::or_default")]
    pub ready_replicas: i32,
    /// The same number.
    #[serde(default, deserialize_with = "nullable::or_default")]
    pub available_replicas: i32,
    /// Generation of the object that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Selector of the set's pods, as text, for the scale subresource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
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
