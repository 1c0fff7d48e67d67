//! Demand: which jobs need a runner, as GitHub says. A webhook, or a poll of the operator, becomes an entry in the ledger of an autoscaler.
//!
//! ```text
//! webhook -> receiver -> ledger -> status of a HorizontalRunnerAutoscaler
//! missed webhook -> redelivery -> GitHub sends it again
//! ```
//!
//! Any number of replicas may receive webhooks, leader or not: the ledger is written with optimistic concurrency. What a ledger is, and when
//! a job counts, is `pacer_core::ledger`; here it is stored.
//!
//! Read first: [`receiver::Receiver::deliver`], then [`ledger::Ledgers::record`].

pub mod ledger;
pub mod receiver;
pub mod redelivery;
