//! What is proved on the real API server: a suite for each subject, which `make suites SUITES=...` runs alone. One program, so that what they
//! share is compiled and linked once.

mod admission;
mod alerts;
mod autoscaling;
mod chart;
mod demand;
mod doctor;
mod documents;
mod faults;
mod flows;
#[path = "../../../host/jail/tests/guest/mod.rs"]
#[allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test whose scene can't be set has failed")]
mod guest;
mod hostile;
mod late_flag;
mod limits;
mod metrics;
mod modes;
mod page;
mod policies;
mod receipts;
mod recover;
mod rollouts;
mod runnersets;
mod scale;
mod shards;
mod takeover;
mod tenants;
mod traces;
mod waiting;
mod webhooks;
