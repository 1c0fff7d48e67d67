//! What GitHub sends, what claims to be from GitHub, and what tenants set: whatever it is, it is read or refused.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "the helpers of tests fail like tests")]

mod answers;
mod deliveries;
mod settings;
