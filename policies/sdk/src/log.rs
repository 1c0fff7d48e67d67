//! Lines for the operator's log: at most 32 of at most 1 KiB each per call; more are dropped and counted. Natively they go nowhere.

#[cfg(target_arch = "wasm32")]
use crate::bindings::pacer::policy::log::{Level, write};

/// Only seen when the operator logs at debug level.
#[cfg_attr(not(target_arch = "wasm32"), expect(unused_variables, reason = "there is no log natively"))]
pub fn debug(message: &str) {
    #[cfg(target_arch = "wasm32")]
    write(Level::Debug, message);
}

/// For people who follow what the policy does.
#[cfg_attr(not(target_arch = "wasm32"), expect(unused_variables, reason = "there is no log natively"))]
pub fn info(message: &str) {
    #[cfg(target_arch = "wasm32")]
    write(Level::Info, message);
}

/// For the people on call.
#[cfg_attr(not(target_arch = "wasm32"), expect(unused_variables, reason = "there is no log natively"))]
pub fn warn(message: &str) {
    #[cfg(target_arch = "wasm32")]
    write(Level::Warn, message);
}
