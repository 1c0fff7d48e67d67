//! One policy of a policy set: where it comes from and how it is asked.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::component::Digest;
use crate::decision::Decision;
use crate::limits::Limits;

/// The module that is in the operator itself.
pub const BUILTIN: &str = "builtin";

/// What becomes of a policy's answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// They are carried out.
    #[default]
    Enforce,
    /// They are compared with those that are carried out.
    Shadow,
}

impl Mode {
    /// The word in `policies.yaml`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Where a policy comes from.
#[derive(Clone, PartialEq, Eq)]
pub enum Module {
    /// The shipped policy, which the entry names as `builtin`.
    Builtin,
    /// A key of `binaryData`, or of `data` where it is text.
    Component {
        /// What the entry names in `module`: the key, or a reference to a registry.
        key: String,
        /// The component: decompressed, and made of a core module where that is what lay there. Or the module of a text, see [`crate::text`].
        bytes: Arc<[u8]>,
        /// Digest of the bytes, and of the interpreter as well where they are a text: see [`crate::text::identity`].
        digest: Digest,
    },
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Builtin => f.write_str(BUILTIN),
            Self::Component { key, digest, .. } => write!(f, "{key} ({})", digest.short()),
        }
    }
}

/// One policy of a set and how it is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it comes from.
    pub module: Module,
    /// Its settings as JSON.
    pub settings: Arc<str>,
    /// What a call may use.
    pub limits: Limits,
}

/// Which entry of a policy set.
pub(crate) type Place = (Decision, Mode);
