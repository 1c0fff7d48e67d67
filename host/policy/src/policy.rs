//! A compiled policy.

use std::fmt;
use std::sync::Arc;

use pacer_core::reads::Reads;
use serde::{Deserialize, Serialize};

use crate::component::Digest;
use crate::decision::{Decision, PerDecision};
use crate::limits::Limits;
use crate::text::Interpreted;

/// What a policy says about itself; every text scrubbed and shortened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Description {
    /// Its name, at most 63 bytes; never empty.
    pub name: String,
    /// Its version, at most 63 bytes.
    pub version: String,
    /// One line, at most 256 bytes.
    pub summary: String,
    /// JSON Schema of its settings.
    pub settings_schema: Option<String>,
    /// Further facts that it reads.
    pub reads: Reads,
    /// Names among these that this operator does not know, at most 16 of at most 63 bytes.
    pub unknown_reads: Vec<String>,
}

/// A policy that passed every check of [`Policy::load`]. Immutable; calls share nothing. It is held as native code, which is never loaded into
/// this process.
pub struct Policy {
    pub(crate) description: Description,
    pub(crate) digest: Digest,
    pub(crate) size: usize,
    pub(crate) takes: PerDecision<bool>,
    pub(crate) code: Arc<[u8]>,
    /// Of one that is text; its code is the interpreter's.
    pub(crate) text: Option<Arc<str>>,
}

impl Policy {
    /// What it says about itself.
    #[must_use]
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// SHA-256 of the component; of a text together with its interpreter.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// What it is made of, where it is text.
    #[must_use]
    pub fn interpreted(&self) -> Option<Interpreted> {
        self.text.as_deref().map(Interpreted::of)
    }

    /// Size of the component, or of the text, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Bytes of it that this process holds: its native code, or its text. The interpreter's code is the operator's own, and there once for all texts.
    pub(crate) fn held(&self) -> usize {
        self.text.as_ref().map_or(self.code.len(), |text| text.len())
    }

    /// What a call may use where a component may use this much.
    #[must_use]
    pub fn limits(&self, limits: Limits) -> Limits {
        if self.text.is_some() { limits.of_text() } else { limits }
    }

    /// The decisions it takes.
    #[must_use]
    pub fn decisions(&self) -> Vec<Decision> {
        Decision::ALL.into_iter().filter(|&decision| self.takes(decision)).collect()
    }

    /// Whether it takes this decision.
    #[must_use]
    pub fn takes(&self, decision: Decision) -> bool {
        *self.takes.get(decision)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.description.name, self.digest.short())
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Policy({self})")
    }
}
