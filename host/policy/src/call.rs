//! What a single call takes.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::log::LogLine;

/// What a call took.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Instructions executed, in wasmtime's units of fuel.
    pub fuel: u64,
    /// From store to answer, in the process that ran it.
    pub inside: Duration,
    /// The same and the way there and back, as the caller saw it.
    pub duration: Duration,
    /// Most linear memory held at once, in bytes.
    pub peak_memory: usize,
    /// What the policy said.
    pub lines: Vec<LogLine>,
    /// Lines beyond those that are kept.
    pub dropped: u32,
}

/// An answer, or why there is none, and what it took.
pub type Called<T> = (Result<T, Fault>, Usage);
