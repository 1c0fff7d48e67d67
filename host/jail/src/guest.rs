//! What the host keeps for a call: limits in force and what was said.

use std::sync::Arc;

use pacer_core::gate::scrub;
use pacer_policy::{Level, Limits, LogLine, PANIC};

use crate::bindings::next::pacer::policy as next;
use crate::bindings::pacer::policy::log::{Host, Level as Contract};
use crate::bindings::pacer::policy::types;
use crate::meter::Meter;

/// What the host keeps for a call: limits in force and what was said.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) meter: Meter,
    pub(crate) lines: Vec<LogLine>,
    pub(crate) dropped: u32,
    /// What was said last of a panic, also where the log is full.
    pub(crate) panic: Option<String>,
    /// What an interpreter runs.
    pub(crate) text: Option<Arc<str>>,
    lines_limit: usize,
    line_limit: usize,
}

impl Guest {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            meter: Meter::new(limits),
            lines: Vec::new(),
            dropped: 0,
            panic: None,
            text: None,
            lines_limit: limits.log_lines(),
            line_limit: limits.log_line(),
        }
    }
}

impl Host for Guest {
    fn write(&mut self, level: Contract, message: String) {
        if let (Contract::Warn, Some(said)) = (level, message.strip_prefix(PANIC)) {
            self.panic = Some(scrub(said, self.line_limit));
        }
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

impl next::log::Host for Guest {
    fn write(&mut self, level: next::log::Level, message: String) {
        let level = match level {
            next::log::Level::Debug => Contract::Debug,
            next::log::Level::Info => Contract::Info,
            next::log::Level::Warn => Contract::Warn,
        };
        Host::write(self, level, message);
    }
}

impl next::types::Host for Guest {}
