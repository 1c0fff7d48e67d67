//! Runs policies in a sandbox.
//!
//! A policy is a WebAssembly component that speaks `wit/policy`. It has no clock, no network, no randomness and no memory between calls;
//! every call gets a fresh instance with a budget of instructions, time, memory and output. What it answers passes
//! [`pacer_core::gate`] before anybody sees it. When a call fails, the shipped policy is asked instead, first as a component and, should
//! that fail too, as it is linked into this program, so a decision is always taken and always says by whom.
//!
//! Read in this order: [`Bundle`] (how users write a policy set), [`Policy::load`] (what is accepted), [`PolicyHost`] (what is in force),
//! [`Generation`] (how it is asked), [`Evaluation`] and [`Receipt`] (what comes back), [`Record`] (what is kept of it), [`Limits`] and [`Fault`] (what a call may use and how it fails).

mod aside;
mod assignment;
mod breaker;
pub mod bundle;
pub mod call;
mod comparisons;
mod component;
mod decision;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test whose scene can't be set has failed")]
mod decoders;
mod entry;
mod fault;
mod generation;
mod host;
mod inquiry;
pub mod jail;
mod lane;
mod limits;
mod load;
mod loaded;
mod log;
mod observer;
mod policy;
pub mod protocol;
mod purpose;
mod question;
mod queue;
mod receipt;
pub mod record;
pub mod rehearsal;
mod room;
mod sandbox;
mod staged;
mod supposed;
pub mod tenancy;
pub mod text;
mod trial;
mod wire;
pub mod yaml;

pub use assignment::{Assignment, Chosen, PolicySet};
pub use bundle::{Bundle, BundleError};
pub use comparisons::{Agreement, Compared, Comparisons};
pub use component::{CONTRACT, CONTRACTS, Digest, compressed_fits};
pub use decision::{Decision, PerDecision, UnknownDecision};
pub use entry::{BUILTIN, Entry, Mode, Module};
pub use fault::{Fault, PANIC};
pub use generation::Generation;
pub use host::{PolicyHost, SHIPPED, Turn};
pub use inquiry::{Answer, Inquiry};
pub use jail::{CompiledAhead, Isolation, IsolationLevel, Jail, JailError, Launcher};
pub use lane::{Health, Tally};
pub use limits::{COMPRESSED_BYTES, FUNCTIONS, LimitError, LimitRequest, Limits, RAW_BYTES, TICK};
pub use load::{LoadError, NO_SETTINGS, Refusal};
pub use log::{Level, LogLine};
pub use observer::{Comparison, Counters, Observation, Observer, Source};
pub use policy::{Description, Policy};
pub use question::Input;
pub use queue::{Permit, Queue};
pub use receipt::{Attempt, DecidedBy, NOBODY, Receipt};
pub use record::Record;
pub use sandbox::{Evaluation, QUEUE};
pub use staged::{StagedSet, Standing};
pub use supposed::Supposed;
pub use text::{INTERPRETER, Interpreted, TEXT_BYTES};
pub use trial::Outcome;
