//! A policy set as users write it: `policies.yaml` in the `data` of a ConfigMap, modules in its `binaryData`.
//!
//! ```yaml
//! scale-down:                  # any of scale-down, restart, capacity
//!   module: emptiest.wasm      # a key of binaryData (plain, gzip or zstd), or builtin
//!   settings: {spare: 2}       # any YAML, given to the policy as JSON
//!   mode: enforce              # or shadow; enforce when absent
//!   limits: {deadlineMilliseconds: 20}
//! restart: builtin             # the shipped policy, whatever a more general set says
//! capacity:                    # one that decides and one that is compared with it
//!   - module: old.wasm
//!   - module: new.wasm
//!     mode: shadow
//! ```
//!
//! What a set says nothing about stays as it is without the set. The same goes for a decision that only has an entry in shadow.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use pacer_core::gate::scrub;
use serde::{Deserialize, Serialize};
use wasmparser::Parser;

use crate::component::{CONTRACT, Digest, inspect};
use crate::decision::{Decision, PerDecision};
use crate::encode::componentize;
use crate::generation::{Assignment, Chosen, StagedSet};
use crate::host::PolicyHost;
use crate::limits::Limits;
use crate::load::{LoadError, NO_SETTINGS, Refusal};

mod manifest;
mod packing;

use manifest::Written;

pub use packing::{pack, unpack};

/// The key of `data` that holds the set.
pub const FILE: &str = "policies.yaml";

/// The module that is in the operator itself.
pub const BUILTIN: &str = "builtin";

/// Largest settings of one decision as JSON, in bytes: they are copied into the policy at every call.
pub const SETTINGS_BYTES: usize = 64 << 10;

/// Longest message of an error, in bytes.
const MESSAGE_BYTES: usize = 1 << 10;

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
    /// The operator itself.
    Builtin,
    /// A key of `binaryData`.
    Component {
        /// The key.
        key: String,
        /// The component: decompressed, and made of a core module where that is what lay there.
        bytes: Arc<[u8]>,
        /// Of the component.
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

/// A policy set that reads well and whose modules look like policies. Nothing has been compiled yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    entries: BTreeMap<(Decision, Mode), Entry>,
    digest: Digest,
}

/// Why a policy set is refused. Messages are one line of at most 1 KiB, name the line or field, and say what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    /// There is no `policies.yaml`.
    #[error("the ConfigMap has no key {FILE} in data{}; put the set there, or {{}} for one that changes nothing", among(.found))]
    NoFile {
        /// Keys of `data` that there are.
        found: Vec<String>,
    },
    /// `policies.yaml` can't be read.
    #[error("{FILE}, line {line}, column {column}: {message}")]
    Syntax {
        /// From 1; 0 when nobody knows.
        line: u64,
        /// From 1; 0 when nobody knows.
        column: u64,
        /// What is wrong.
        message: String,
    },
    /// A value in it makes no sense.
    #[error("{FILE}, line {line}: {field}: {message}")]
    Field {
        /// From 1; 0 when nobody knows.
        line: u64,
        /// Which one: `scale-down.limits`.
        field: String,
        /// What is wrong with it and what to do.
        message: String,
    },
    /// A module that is named is not there.
    #[error("{FILE}, line {line}: {field}: binaryData has no key {key}{}", among(.found))]
    NoModule {
        /// From 1; 0 when nobody knows.
        line: u64,
        /// Which one: `scale-down.module`.
        field: String,
        /// What it names.
        key: String,
        /// Keys of `binaryData` that there are.
        found: Vec<String>,
    },
    /// A module is refused.
    #[error("{field}: module {module}: {error}")]
    Refused {
        /// Which one: `scale-down`, or `scale-down (shadow)`.
        field: String,
        /// The key of `binaryData`, or `builtin`.
        module: String,
        /// The check that it failed.
        error: LoadError,
    },
}

impl BundleError {
    /// Stable name for statuses, events and metrics.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoFile { .. } => "PolicySetMissing",
            Self::Syntax { .. } | Self::Field { .. } => "PolicySetInvalid",
            Self::NoModule { .. } => "PolicyModuleMissing",
            Self::Refused { error, .. } => error.code.as_str(),
        }
    }
}

fn among(keys: &[String]) -> String {
    match keys {
        [] => String::new(),
        keys => format!(" (it has {})", scrub(&keys.join(", "), 256)),
    }
}

impl Bundle {
    /// Reads a set. Blocks for some milliseconds per MiB of modules.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong.
    pub fn parse(data: &BTreeMap<String, String>, binary_data: &BTreeMap<String, Vec<u8>>) -> Result<Self, BundleError> {
        let text = data.get(FILE).ok_or_else(|| BundleError::NoFile { found: data.keys().cloned().collect() })?;
        let manifest = manifest::read(text)?;
        let mut modules = BTreeMap::new();
        let mut entries = BTreeMap::new();
        for (decision, written) in manifest {
            for Written { module: (key, line), settings: (settings, settings_line), mode, limits: (limits, limits_line) } in
                written
            {
                let place = manifest::field(decision, mode);
                let wrong = |line, field: &str, message: &str| BundleError::Field {
                    line,
                    field: format!("{place}{field}"),
                    message: scrub(message, MESSAGE_BYTES),
                };
                let settings = json(&settings).map_err(|message| wrong(settings_line, ".settings", &message))?;
                let limits = Limits::lowered(limits).map_err(|error| wrong(limits_line, "", &error.to_string()))?;
                if key != BUILTIN && !modules.contains_key(&key) {
                    let bytes = binary_data.get(&key).ok_or_else(|| BundleError::NoModule {
                        line,
                        field: format!("{place}.module"),
                        key: scrub(&key, 253),
                        found: binary_data.keys().cloned().collect(),
                    })?;
                    let refused = |error| BundleError::Refused { field: place.clone(), module: key.clone(), error };
                    modules.insert(key.clone(), component(&key, bytes).map_err(refused)?);
                }
                let module = modules.get(&key).cloned().unwrap_or(Module::Builtin);
                if entries.insert((decision, mode), Entry { module, settings, limits }).is_some() {
                    return Err(wrong(line, "", &format!("there are two entries with mode {mode}, and only one can be meant")));
                }
            }
        }
        let digest = identity(&entries);
        Ok(Self { entries, digest })
    }

    /// Identifies what the set means: policies, settings, limits, modes and the version of the contract; not how it is written or compressed.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The policy of a decision in this mode.
    #[must_use]
    pub fn entry(&self, decision: Decision, mode: Mode) -> Option<&Entry> {
        self.entries.get(&(decision, mode))
    }

    /// All of them, in the contract's order.
    pub fn entries(&self) -> impl Iterator<Item = (Decision, Mode, &Entry)> {
        self.entries.iter().map(|((decision, mode), entry)| (*decision, *mode, entry))
    }

    /// Compiles and tries every policy with its settings. Takes a second of processor time per MiB of modules, once per module.
    ///
    /// # Errors
    ///
    /// The first check that one of them failed.
    pub async fn stage(&self, host: &PolicyHost) -> Result<StagedSet, BundleError> {
        let mut enforced = PerDecision::<Option<Assignment>>::default();
        let mut shadows = PerDecision::default();
        for ((decision, mode), entry) in &self.entries {
            let chosen = match &entry.module {
                Module::Builtin => Chosen::Shipped,
                Module::Component { bytes, .. } => {
                    Chosen::Policy(host.load(bytes.to_vec()).await.map_err(|error| self.refused(*decision, *mode, error))?)
                }
            };
            let assignment = Assignment { chosen, settings: Arc::clone(&entry.settings), limits: entry.limits };
            let place = match mode {
                Mode::Enforce => &mut enforced,
                Mode::Shadow => &mut shadows,
            };
            *place.get_mut(*decision) = Some(assignment);
        }
        let staged = host.stage(self.digest, enforced, shadows).await;
        staged.map_err(|(decision, mode, error)| self.refused(decision, mode, error))
    }

    fn refused(&self, decision: Decision, mode: Mode, error: LoadError) -> BundleError {
        let module = match self.entry(decision, mode).map(|entry| &entry.module) {
            Some(Module::Component { key, .. }) => key.clone(),
            Some(Module::Builtin) | None => BUILTIN.to_owned(),
        };
        BundleError::Refused { field: manifest::field(decision, mode), module, error }
    }
}

/// Settings as the policy gets them.
fn json(value: &serde_json::Value) -> Result<Arc<str>, String> {
    let text = if value.is_null() { NO_SETTINGS.to_owned() } else { value.to_string() };
    if text.len() > SETTINGS_BYTES {
        return Err(format!("they have {} bytes as JSON and may have {SETTINGS_BYTES}", text.len()));
    }
    Ok(Arc::from(text))
}

/// Decompresses a module and makes it a component.
fn component(key: &str, bytes: &[u8]) -> Result<Module, LoadError> {
    let raw = unpack(bytes)?;
    let component = if Parser::is_core_wasm(&raw) {
        componentize(&raw).map_err(|error| {
            let message = format!(
                "it is a core module that can't be made a component ({}); build it with the SDK for wasm32-unknown-unknown, or embed the \
                 contract's types with `wasm-tools component embed`",
                error.message
            );
            LoadError::new(Refusal::CoreModule, message)
        })?
    } else {
        raw.into_owned()
    };
    inspect(&component)?;
    let digest = Digest::of(&component);
    Ok(Module::Component { key: key.to_owned(), bytes: Arc::from(component), digest })
}

fn identity(entries: &BTreeMap<(Decision, Mode), Entry>) -> Digest {
    let mut text = format!("{CONTRACT}\n");
    for ((decision, mode), Entry { module, settings, limits }) in entries {
        let module = match module {
            Module::Builtin => BUILTIN.to_owned(),
            Module::Component { digest, .. } => digest.to_string(),
        };
        // Settings are JSON on one line, so that the parts can't be mistaken for each other.
        text.push_str(&format!("{decision} {mode} {module} {limits:?} {settings}\n"));
    }
    Digest::of(text.as_bytes())
}
