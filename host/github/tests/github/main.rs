//! The client against scripted servers on real sockets.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "the helpers of tests fail like tests")]

mod app;
mod calls;
mod hooks;
mod hostile;
mod jobs;
mod network;
mod support;
