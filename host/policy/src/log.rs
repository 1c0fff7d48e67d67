//! What policies say while they decide.

use pacer_core::gate::scrub;
use serde::{Deserialize, Serialize};

use crate::bindings::pacer::policy::log::{Host, Level as Contract};
use crate::bindings::pacer::policy::types;
use crate::limits::{Limits, Meter};

/// How important a policy thinks a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// For the author of the policy.
    Debug,
    /// For whoever asks why.
    Info,
    /// For the people on call.
    Warn,
}

/// A line of a policy, scrubbed and shortened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// Its importance.
    pub level: Level,
    /// One line without control characters, at most 1 KiB.
    pub message: String,
}

/// What the host keeps for a call: limits in force and what was said.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) meter: Meter,
    pub(crate) lines: Vec<LogLine>,
    pub(crate) dropped: u32,
    lines_limit: usize,
    line_limit: usize,
}

impl Guest {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            meter: Meter::new(limits),
            lines: Vec::new(),
            dropped: 0,
            lines_limit: limits.log_lines(),
            line_limit: limits.log_line(),
        }
    }
}

impl Host for Guest {
    fn write(&mut self, level: Contract, message: String) {
        if self.lines.len() >= self.lines_limit {
            self.dropped = self.dropped.saturating_add(1);
            return;
        }
        let level = match level {
            Contract::Debug => Level::Debug,
            Contract::Info => Level::Info,
            Contract::Warn => Level::Warn,
        };
        self.lines.push(LogLine { level, message: scrub(&message, self.line_limit) });
    }
}

impl types::Host for Guest {}
