//! The kinds of `actions.summerwind.dev/v1alpha1`: the five of actions-runner-controller, and JobLedger.
//!
//! Field names, defaults, labels, annotations, finalizers and the environment of runners are those of actions-runner-controller ("ARC"), so
//! that its manifests and its objects keep working. What is added says so in its documentation. Validation is part of the schema
//! ([`crd`]); there are no admission webhooks.
//!
//! Every optional field may be absent or `null`, which means the same. What is absent is not written, so reading an object and writing it
//! back neither loses nor adds a field.
//!
//! Read first: [`runner::RunnerConfig`], [`replica_set::RunnerTemplate`], [`names`].

#![allow(rustdoc::invalid_html_tags, reason = "the documentation of a field is its description in the CRD, which is plain text")]
#![allow(clippy::duplicated_attributes, reason = "every printer column has a type, and clippy takes the second for a duplicate")]

pub mod autoscaler;
pub mod condition;
pub mod crd;
#[cfg(test)]
mod decoders;
pub mod deployment;
pub mod duration;
pub mod job_ledger;
mod meaning;
pub mod names;
mod nullable;
mod offset_time;
pub mod platform;
pub mod pod_settings;
mod pod_template;
pub mod quantity;
pub mod replica_set;
pub mod runner;
pub mod runner_set;
pub mod status_ledger;

pub use autoscaler::{HorizontalRunnerAutoscaler, HorizontalRunnerAutoscalerSpec, HorizontalRunnerAutoscalerStatus};
pub use deployment::{RunnerDeployment, RunnerDeploymentSpec, RunnerDeploymentStatus};
pub use job_ledger::JobLedger;
pub use meaning::claim_revision;
pub use replica_set::{EmbeddedMetadata, RunnerReplicaSet, RunnerReplicaSetSpec, RunnerReplicaSetStatus, RunnerTemplate};
pub use runner::{Runner, RunnerConfig, RunnerPodSpec, RunnerSpec, RunnerStatus, WorkVolumeClaimTemplate};
pub use runner_set::{RunnerSet, RunnerSetSpec, RunnerSetStatus};
