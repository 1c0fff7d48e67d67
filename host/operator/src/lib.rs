//! The operator: watches, reconcilers, pod builder, status, events, leader election.
//!
//! ```text
//! watches -> stores + wake-ups -> controllers -> Kubernetes API, GitHub
//!                                     |
//!                                 pacer_core (decides), pacer_policy (ranks)
//! ```
//!
//! Reconcilers observe, ask `pacer_core` what to do and do it; rules live there. All changes pass the [`fence`].
//!
//! Read first: [`controllers`] (what runs), [`replica_set::reconcile`] and [`runner::reconcile`] (the pipelines), [`observe`] (where facts
//! come from).

pub mod access;
pub mod account;
pub mod autoscaler;
mod claim;
pub mod context;
pub mod controllers;
pub mod deployment;
pub mod error;
pub mod events;
pub mod fence;
pub mod inherited;
pub mod judge;
pub mod lease;
pub mod ledger;
pub mod memory;
pub mod metrics;
pub mod nodes;
pub mod observe;
mod orphan;
pub mod pace;
pub mod pod;
pub mod policies;
pub mod pool;
pub mod receipts;
pub mod receiver;
pub mod redelivery;
pub mod replica_set;
pub mod runner;
pub mod settings;
pub mod stores;
pub mod target;
pub mod template;
pub mod token;
pub mod wake;
