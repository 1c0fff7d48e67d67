//! What pacer decides, as pure functions.
//!
//! Nothing here does I/O, reads a clock or draws a random number: time is an argument, every decision returns its reason. The crate must
//! not depend on kube, tokio, octocrab or wasmtime.
//!
//! Read first: [`facts::RunnerFacts`] (what is known about a runner), [`phase::assess`] (what that means), [`fleet::plan`] (what to do).

pub mod allowance;
pub mod allowed;
pub mod arrivals;
pub mod at_work;
pub mod autoscale;
pub mod backoff;
pub mod busy;
pub mod claim;
pub mod count;
pub mod demand;
pub mod durations;
pub mod estimate;
pub mod facts;
pub mod failures;
pub mod fit;
pub mod fleet;
pub mod gate;
pub mod last_job;
pub mod ledger;
pub mod listing;
pub mod name;
pub mod namesake;
pub mod node;
pub mod phase;
pub mod policy;
pub mod polling;
pub mod pool;
pub mod price;
pub mod reads;
pub mod recovery;
pub mod redelivery;
pub mod reference;
pub mod registration;
pub mod replacement;
pub mod report;
pub mod reservation;
pub mod restart;
pub mod ring;
pub mod rollout;
pub mod room;
pub mod runner_job;
pub mod running;
pub mod scale_down;
pub mod schedule;
pub mod scope;
pub mod shard;
pub mod spend;
pub mod stop;
pub mod target;
pub mod tenancy;
pub mod waiting;
pub mod would_be;
