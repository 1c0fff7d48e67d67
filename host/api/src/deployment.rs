//! A fleet of runners and how it moves from one template to the next.

use k8s_openapi::apimachinery::pkg::{
    apis::meta::v1::{Condition, LabelSelector, Time},
    util::intstr::IntOrString,
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    nullable,
    replica_set::{RunnerTemplate, replicas_or_default},
};

/// How many runners there are to be, of which kind, and how a change of kind is rolled out.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "actions.summerwind.dev",
    version = "v1alpha1",
    kind = "RunnerDeployment",
    plural = "runnerdeployments",
    shortname = "rdeploy",
    doc = "A fleet of runners: a number of runners of one template, and the rollout of changes to it.",
    namespaced,
    schema = "disabled",
    status = "RunnerDeploymentStatus",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Enterprise", type_ = "string", json_path = ".spec.template.spec.enterprise"),
    printcolumn(name = "Organization", type_ = "string", json_path = ".spec.template.spec.organization"),
    printcolumn(name = "Repository", type_ = "string", json_path = ".spec.template.spec.repository"),
    printcolumn(name = "Group", type_ = "string", json_path = ".spec.template.spec.group"),
    printcolumn(name = "Labels", type_ = "string", json_path = ".spec.template.spec.labels"),
    printcolumn(name = "Desired", type_ = "number", json_path = ".spec.replicas"),
    printcolumn(name = "Current", type_ = "number", json_path = ".status.replicas"),
    printcolumn(name = "Up-To-Date", type_ = "number", json_path = ".status.updatedReplicas"),
    printcolumn(name = "Available", type_ = "number", json_path = ".status.availableReplicas"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct RunnerDeploymentSpec {
    /// Number of runners. Default: 1. Belongs to the HorizontalRunnerAutoscaler where one targets this object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// When replicas was set for demand that is known; an ephemeral runner that ended since needs no successor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effective_time: Option<Time>,
    /// Kept for tools that read it. Runners belong to the deployment by their owner references. Default: runner-deployment-name=<name>.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// What the runners are made from.
    pub template: RunnerTemplate,
    /// How many runners beyond replicas a rollout may add: a number or a percentage of replicas, rounded up. Default: 10%. Not in ARC,
    /// which doubles the fleet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_surge: Option<IntOrString>,
    /// Whether a runner that is only registered, and never takes a job, is kept while replicas is 0: for GitHub Enterprise Servers before
    /// 3.3, which fail jobs at once when no runner with their labels is registered. Default: false. Not in ARC since 0.21.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registration_only_at_zero: Option<bool>,
}

impl RunnerDeploymentSpec {
    /// Percentage of `replicas` that a rollout may add where `maxSurge` is absent or makes no sense.
    pub const DEFAULT_MAX_SURGE_PERCENT: u32 = 10;

    /// Number of runners; negative numbers count as 0.
    #[must_use]
    pub fn replicas_or_default(&self) -> u32 {
        replicas_or_default(self.replicas)
    }

    /// How many runners beyond `replicas` a rollout may add: at least 1, so that every rollout moves, and at most the fleet's size again
    /// when given in percent.
    #[must_use]
    pub fn max_surge_or_default(&self, replicas: u32) -> u32 {
        let percent = |percent: u32| {
            let surge = (u64::from(replicas) * u64::from(percent.min(100))).div_ceil(100);
            u32::try_from(surge).unwrap_or(u32::MAX)
        };
        let surge = match &self.max_surge {
            None => percent(Self::DEFAULT_MAX_SURGE_PERCENT),
            Some(IntOrString::Int(surge)) => u32::try_from(*surge).unwrap_or(0),
            Some(IntOrString::String(text)) => {
                percent(text.strip_suffix('%').and_then(|text| text.parse().ok()).unwrap_or(Self::DEFAULT_MAX_SURGE_PERCENT))
            }
        };
        surge.max(1)
    }
}

/// What became of a RunnerDeployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunnerDeploymentStatus {
    /// Number of runners of all revisions that can take jobs or run one.
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
    /// Selector of the deployment's pods, as text, for the scale subresource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// Revision of the current template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// What the operator has to say about the deployment.
    #[serde(default, deserialize_with = "nullable::or_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surge_is_never_zero_and_percentages_round_up() {
        let surge = |max_surge, replicas| {
            RunnerDeploymentSpec { max_surge, ..RunnerDeploymentSpec::default() }.max_surge_or_default(replicas)
        };
        let text = |text: &str| Some(IntOrString::String(text.to_owned()));
        for (max_surge, replicas, expected) in [
            (None, 100, 10),
            (None, 101, 11),
            (None, 0, 1),
            (Some(IntOrString::Int(5)), 100, 5),
            (Some(IntOrString::Int(0)), 100, 1),
            (Some(IntOrString::Int(-3)), 100, 1),
            (text("50%"), 3, 2),
            (text("100%"), 20, 20),
            (text("900%"), 20, 20),
            (text("many"), 100, 10),
            (text("100%"), u32::MAX, u32::MAX),
        ] {
            assert_eq!(surge(max_surge.clone(), replicas), expected, "{max_surge:?} of {replicas}");
        }
    }

    #[test]
    fn absent_replicas_are_one() {
        for (replicas, expected) in [(None, 1), (Some(0), 0), (Some(-1), 0), (Some(7), 7)] {
            assert_eq!(RunnerDeploymentSpec { replicas, ..RunnerDeploymentSpec::default() }.replicas_or_default(), expected);
        }
    }
}
