//! Write a pacer policy in Rust.
//!
//! A policy is one type. It implements [`Policy`] for its settings and one or more of [`ScaleDown`], [`Restart`], [`Capacity`] and [`Recover`],
//! and [`export!`] turns it into a WebAssembly module that carries its component type:
//!
//! ```
//! use pacer_policy_sdk::scale_down::{Choice, Request};
//! use pacer_policy_sdk::{Policy, ScaleDown};
//!
//! struct NewestFirst;
//!
//! impl Policy for NewestFirst {
//!     type Settings = ();
//! }
//!
//! impl ScaleDown for NewestFirst {
//!     fn select(request: &Request, _: &()) -> Result<Vec<Choice>, String> {
//!         let mut newest: Vec<_> = (0_u32..).zip(&request.candidates).collect();
//!         newest.sort_by_key(|(_, candidate)| candidate.age);
//!         let surplus = request.surplus as usize;
//!         Ok(newest.into_iter().take(surplus).map(|(index, c)| Choice::new(index, format!("{} s old", c.age))).collect())
//!     }
//! }
//!
//! pacer_policy_sdk::export!(NewestFirst: scale_down);
//! # fn main() {
//! # use pacer_policy_sdk::scenario::Scenario;
//! let picked = Scenario::pool("ci").candidate("a", |c| c.age = 60).candidate("b", |c| c.age = 5).select::<NewestFirst>();
//! assert_eq!(picked.map(|p| p[0].name.clone()), Ok("b".to_owned()));
//! # }
//! ```
//!
//! The same source runs natively: nothing is exported there, [`log`] does nothing, and [`scale_down::answer`] and its siblings call
//! the policy as the operator would. The types are those of the contract (`wit/policy`), with the field names in kebab case when read
//! from JSON.

#[allow(missing_docs, reason = "generated; the contract documents what it declares")]
mod bindings;
pub mod capacity;
#[cfg(not(target_arch = "wasm32"))]
pub mod cases;
#[cfg(not(target_arch = "wasm32"))]
pub mod contract;
mod export;
mod json;
pub mod lifecycle;
pub mod limits;
pub mod log;
pub mod order;
mod panic;
pub mod recover;
#[allow(missing_docs, reason = "generated; the contract documents what it declares")]
mod recover_bindings;
pub mod restart;
pub mod scale_down;
#[cfg(not(target_arch = "wasm32"))]
pub mod scenario;
pub mod types;

pub use capacity::Capacity;
pub use lifecycle::Policy;
pub use recover::Recover;
pub use restart::Restart;
pub use scale_down::ScaleDown;

/// What [`export!`] and [`description!`] expand to; no interface of the SDK.
#[doc(hidden)]
pub mod exported {
    pub use crate::bindings::exports::pacer::policy as interfaces;
    pub use crate::export::{component_type, kept};
    pub use crate::panic::tell as tell_panics;
    pub use crate::recover_bindings::exports::pacer::policy as recover_interfaces;
}
