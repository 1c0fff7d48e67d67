//! A laboratory for the control loops: they run in virtual time over the rules of `pacer-core`, in a world that is drawn from a seed.
//!
//! ```text
//! seed -> script (setting, operations, faults) -> world: people, API server, nodes, agents, GitHub | the operator's loops
//!   -> after each step: invariants -> faults end: rest within a bound -> the fleet is deleted: nothing is left
//! a failure -> fewer operations, as long as it fails alike -> a script, which is a test when it lies in `scripts/`
//! ```
//!
//! Read first: [`script`] (what can happen), [`invariant`] (what must hold), [`world`] (a run), [`rules`] (what is tested, and the defects
//! that have to be found).

pub mod agenda;
pub mod clock;
pub mod draw;
pub mod fuzz;
pub mod invariant;
pub mod minimise;
pub mod object;
pub mod operator;
pub mod outside;
mod policy;
pub mod rules;
pub mod script;
mod stream;
pub mod world;
