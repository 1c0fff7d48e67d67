//! What an evaluation leaves behind: who was asked, what it took, and digests of question and answer. With both it becomes a
//! [`crate::Record`].

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::decision::Decision;
use crate::fault::Fault;
use crate::log::LogLine;
use crate::policy::Policy;
use crate::text::Interpreted;

/// Who gave an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DecidedBy {
    /// A policy of a user, or the shipped one as a component.
    Policy {
        /// Name from its description.
        name: String,
        /// `sha256:` and 64 hexadecimal digits.
        digest: String,
    },
    /// The shipped policy as it is linked into the operator.
    Native,
}

impl DecidedBy {
    pub(crate) fn policy(policy: &Policy) -> Self {
        Self::Policy { name: policy.description.name.clone(), digest: policy.digest.to_string() }
    }
}

impl fmt::Display for DecidedBy {
    /// As `default@sha256:0123456789ab`, or `native`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy { name, digest } => {
                let short = digest.get(.."sha256:".len() + 12).unwrap_or(digest);
                write!(f, "{name}@{short}")
            }
            Self::Native => f.write_str("native"),
        }
    }
}

/// One policy that was asked, and what it took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Attempt {
    /// Who was asked.
    pub by: DecidedBy,
    /// What that is made of, where it is text: its digest is of both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interpreted: Option<Interpreted>,
    /// SHA-256 of the settings it was given.
    pub settings_hash: String,
    /// Instructions executed, in wasmtime's units of fuel; 0 natively and where a call was abandoned.
    pub fuel: u64,
    /// Time from store to answer in microseconds.
    pub duration_us: u64,
    /// Most linear memory held at once, in bytes.
    pub peak_memory: usize,
    /// What it said, at most 32 lines.
    pub log: Vec<LogLine>,
    /// Log lines beyond those 32, which were dropped.
    pub log_dropped: u32,
    /// Why its answer was not used.
    pub fault: Option<Fault>,
}

/// The record of one decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Receipt {
    /// Which of the contract's four decisions it records.
    pub decision: Decision,
    /// Short form of who decided: `default@sha256:0123456789ab`, or `native`.
    pub policy: String,
    /// Number of the generation that was in force.
    pub generation: u64,
    /// SHA-256 of the request as JSON, settings included.
    pub input_hash: String,
    /// SHA-256 of the checked answer as JSON.
    pub output_hash: String,
    /// How many things the answer names.
    pub output_items: usize,
    /// Who was asked, in order; the last one decided.
    pub attempts: Vec<Attempt>,
    /// The policy that was in force and not asked because it kept failing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bypassed: Option<String>,
}

/// What [`Receipt::policy`] says where no policy was asked.
pub const NOBODY: &str = "none";

impl Receipt {
    /// Of what the operator does by its own rules: no policy was asked.
    #[must_use]
    pub fn unasked(decision: Decision, generation: u64) -> Self {
        Self {
            decision,
            policy: NOBODY.to_owned(),
            generation,
            input_hash: String::new(),
            output_hash: String::new(),
            output_items: 0,
            attempts: Vec::new(),
            bypassed: None,
        }
    }

    /// Instructions executed by all attempts, in wasmtime's units of fuel.
    #[must_use]
    pub fn fuel(&self) -> u64 {
        self.attempts.iter().fold(0, |sum, attempt| sum.saturating_add(attempt.fuel))
    }

    /// Time taken by all attempts, without waiting for a place.
    #[must_use]
    pub fn duration(&self) -> Duration {
        Duration::from_micros(self.attempts.iter().fold(0, |sum, attempt| sum.saturating_add(attempt.duration_us)))
    }

    /// The attempt whose answer was used.
    #[must_use]
    pub fn decisive(&self) -> Option<&Attempt> {
        self.attempts.last()
    }

    /// Why the policy that was asked first did not decide.
    #[must_use]
    pub fn fault(&self) -> Option<&Fault> {
        self.attempts.first().and_then(|attempt| attempt.fault.as_ref())
    }
}
