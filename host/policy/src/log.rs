//! What policies say while they decide.

use serde::{Deserialize, Serialize};

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
    /// For whom the policy wrote it.
    pub level: Level,
    /// One line without control characters, at most 1 KiB.
    pub message: String,
}
