//! The operator: reconcilers, pod builder, take-over from ARC.
//!
//! ```text
//! watches -> stores + wake-ups -> controllers -> Kubernetes API, GitHub
//!                                     |
//!                                 pacer_core (decides), pacer_policy (ranks)
//! ```
//!
//! One folder per controller ([`autoscaler`], [`deployment`], [`replicaset`], [`runner`]), one file per stage: observe, decide, build, apply,
//! status. What one tells another is in [`published`]; only [`controllers`] sees more than one of them.

pub mod access;
pub mod account;
pub mod arc;
pub mod attributes;
pub mod autoscaler;
mod claim;
pub mod cluster;
pub mod controllers;
pub mod decisions;
pub mod deployment;
mod ended;
pub mod error;
pub mod failures;
mod just_in_time;
mod lost;
pub mod metrics;
pub mod observe;
mod origin;
mod orphan;
pub mod pod;
pub mod policies;
pub mod pool;
pub mod published;
mod refusal;
pub mod removal;
pub mod replicaset;
pub mod runner;
pub mod runner_pod;
pub mod settings;
pub mod snapshot;
pub mod standing;
pub mod stores;
pub mod target;
pub mod template;
pub mod tenancy;
pub mod token;
mod usage;
pub mod waiting;
pub mod wake;
pub mod watches;
