//! What every controller needs of Kubernetes. It knows no rule of any kind of object.
//!
//! ```text
//! lease -> fence -> every change        watch -> store -> reconcile -> events
//! ```
//!
//! Read first: [`fence`] (when this process may change anything) and [`watch`] (how a store is filled and whom a change concerns).
//! `ARCHITECTURE.md` has the map of the crates.

pub mod answer;
pub mod clock;
pub mod events;
pub mod fence;
pub mod index;
pub mod lease;
pub mod live;
pub mod nodes;
pub mod object;
pub mod owner;
pub mod pace;
pub mod page;
pub mod precedence;
pub mod seed;
pub mod status;
pub mod survey;
pub mod unreadable;
pub mod watch;

/// Requests that one reconcile sends at once: enough to hide a round trip, and few beside what the API server grants one client.
pub const FAN_OUT: usize = 16;
