//! A policy set as users write it: `policies.yaml` in the `data` of a ConfigMap, modules in its `binaryData` or in a registry.
//!
//! ```yaml
//! scale-down:                         # any of scale-down, restart, capacity, recover
//!   module: emptiest-node-first.wasm  # a key of binaryData (plain, gzip or zstd), a key of data that ends in .js, oci://..., or builtin
//!   settings: {minIdleSeconds: 60}    # any YAML, given to the policy as JSON
//!   mode: enforce                     # or shadow; enforce when absent
//!   limits: {memoryMebibytes: 32}     # fuel, deadlineMilliseconds, memoryMebibytes; those of `Limits` when absent
//! restart: builtin                    # the shipped policy, even if a more general set names another
//! capacity:                           # one that decides and one that is compared with it
//!   - module: old.wasm
//!   - module: new.wasm
//!     mode: shadow
//! recover: builtin                    # reruns jobs that died with their runners; nobody reruns them if no set has this line
//! pullSecret: registry                # a Secret with credentials, for modules like oci://registry.example/team/policy@sha256:...
//! ```
//!
//! Whoever reads a set pulls the modules that [`remote`] names, and passes each with those of `binaryData`, under its whole name; one that is a
//! text as [`text::module`]. No key of a ConfigMap can be such a name.
//!
//! What a set says nothing about stays as it is without the set. The same goes for a decision that only has an entry in shadow.

use std::collections::BTreeMap;
use std::sync::Arc;

use pacer_core::gate::scrub;
use pacer_core::reference::SCHEME;

use crate::component::{CONTRACT, Digest};
use crate::decision::Decision;
use crate::entry::{BUILTIN, Entry, Mode, Module, Place};
use crate::host::{PolicyHost, Turn};
use crate::jail::{Jail, Stager};
use crate::limits::Limits;
use crate::load::{LoadError, NO_SETTINGS};
use crate::protocol::Preparation;
use crate::staged::StagedSet;
use crate::text;

mod manifest;
mod packing;
mod remote;

use manifest::Written;

pub use packing::{is_packed, pack};
pub use remote::{Remote, remote};

/// The key of `data` that holds the set.
pub const FILE: &str = "policies.yaml";

/// Largest settings of one decision as JSON, in bytes: they are copied into the policy at every call.
pub const SETTINGS_BYTES: usize = 64 << 10;

/// Longest message of an error, in bytes.
const MESSAGE_BYTES: usize = 1 << 10;

/// A policy set that reads well and whose modules look like policies. Nothing has been compiled yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    /// The namespace that has it.
    owner: String,
    entries: BTreeMap<Place, Entry>,
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
        /// Message of the YAML parser, at most 1 KiB.
        message: String,
    },
    /// A value in it makes no sense.
    #[error("{FILE}, line {line}: {field}: {message}")]
    Field {
        /// From 1; 0 when nobody knows.
        line: u64,
        /// Name of the field: `scale-down.limits`.
        field: String,
        /// What is wrong with it and what to do.
        message: String,
    },
    /// A module that is named is not there.
    #[error("{FILE}, line {line}: {field}: {place} has no key {key}{}", among(.found))]
    NoModule {
        /// From 1; 0 when nobody knows.
        line: u64,
        /// Name of the field: `scale-down.module`.
        field: String,
        /// The missing key that the field names.
        key: String,
        /// Where it has to be: `data` for a text, `binaryData` for anything else.
        place: &'static str,
        /// Keys that there are.
        found: Vec<String>,
    },
    /// A module of a registry that nobody has pulled.
    #[error("{FILE}, line {line}: {field}: {reference} has not been pulled, so nothing is known of it")]
    NotPulled {
        /// From 1; 0 when nobody knows.
        line: u64,
        /// Name of the field: `scale-down.module`.
        field: String,
        /// The reference as the field has it: `oci://`, registry, repository and digest.
        reference: String,
    },
    /// A module is refused.
    #[error("{field}: module {module}: {error}")]
    Refused {
        /// Which one: `scale-down`, or `scale-down (shadow)`.
        field: String,
        /// The key of `binaryData` or of `data`, the name in a registry, or `builtin`.
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
            Self::NoModule { .. } | Self::NotPulled { .. } => "PolicyModuleMissing",
            Self::Refused { error, .. } => error.code.as_str(),
        }
    }

    /// Whether only what other sets hold stands in its way, so that it may be accepted another time.
    #[must_use]
    pub fn is_crowded_out(&self) -> bool {
        matches!(self, Self::Refused { error, .. } if error.crowded_out)
    }
}

fn among(keys: &[String]) -> String {
    match keys {
        [] => String::new(),
        keys => format!(" (it has {})", scrub(&keys.join(", "), 256)),
    }
}

impl Bundle {
    /// Reads the set of a namespace. Its modules are decompressed and inspected in a process of their own.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong.
    pub async fn parse(
        host: &PolicyHost,
        owner: &str,
        data: &BTreeMap<String, String>,
        binary_data: &BTreeMap<String, Vec<u8>>,
    ) -> Result<Self, BundleError> {
        Self::parse_in(&host.turn(owner).await, host, owner, data, binary_data).await
    }

    /// The same for one whose turn it is.
    ///
    /// # Errors
    ///
    /// As for [`Bundle::parse`].
    pub async fn parse_in(
        turn: &Turn,
        host: &PolicyHost,
        owner: &str,
        data: &BTreeMap<String, String>,
        binary_data: &BTreeMap<String, Vec<u8>>,
    ) -> Result<Self, BundleError> {
        let draft = Draft::read(data, binary_data)?;
        let texts = texts(&draft.modules);
        let Some(first) = draft.first() else { return Ok(draft.bundle(owner, &texts)) };
        let modules = draft.modules.clone();
        let prepared = host.staging(turn, move |stager| components(stager, modules)).await;
        let unprepared = |error| BundleError::Refused { field: first.0, module: first.1, error };
        let mut components = prepared.map_err(unprepared)??;
        components.extend(texts);
        Ok(draft.bundle(owner, &components))
    }

    /// The same outside of the operator, for no namespace. Blocks.
    ///
    /// # Errors
    ///
    /// As for [`Bundle::parse`].
    pub fn read(
        jail: &Jail,
        data: &BTreeMap<String, String>,
        binary_data: &BTreeMap<String, Vec<u8>>,
    ) -> Result<Self, BundleError> {
        let draft = Draft::read(data, binary_data)?;
        let texts = texts(&draft.modules);
        let Some((field, module)) = draft.first() else { return Ok(draft.bundle("", &texts)) };
        let mut stager = jail.stager().map_err(|error| BundleError::Refused { field, module, error })?;
        let mut components = components(&mut stager, draft.modules.clone())?;
        components.extend(texts);
        Ok(draft.bundle("", &components))
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

    /// Compiles and tries every policy with its settings, in a process of its own. Takes a second of processor time per MiB of modules, once per
    /// module.
    ///
    /// # Errors
    ///
    /// The first check that one of them failed.
    pub async fn stage(&self, host: &PolicyHost) -> Result<StagedSet, BundleError> {
        self.stage_in(&host.turn(&self.owner).await, host).await
    }

    /// The same for one whose turn it is.
    ///
    /// # Errors
    ///
    /// As for [`Bundle::stage`].
    pub async fn stage_in(&self, turn: &Turn, host: &PolicyHost) -> Result<StagedSet, BundleError> {
        let entries = self.entries.iter().map(|(place, entry)| (*place, entry.clone())).collect();
        let staged = host.stage(turn, self.digest, entries).await;
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

/// Modules by their keys, each with the field that names it first.
type Modules = BTreeMap<String, (String, Vec<u8>)>;

/// An entry with the name of its module.
type Named = (Place, String, Arc<str>, Limits);

/// A set whose modules nobody has looked at.
struct Draft {
    modules: Modules,
    entries: Vec<Named>,
}

impl Draft {
    fn read(data: &BTreeMap<String, String>, binary_data: &BTreeMap<String, Vec<u8>>) -> Result<Self, BundleError> {
        let text = data.get(FILE).ok_or_else(|| BundleError::NoFile { found: data.keys().cloned().collect() })?;
        let manifest::Manifest { decisions, .. } = manifest::read(text)?;
        // Each module is prepared once, for the first entry that names it.
        let mut modules = Modules::new();
        let mut entries: Vec<Named> = Vec::new();
        for (decision, written) in decisions {
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
                    let missing = |place_of, found| BundleError::NoModule {
                        line,
                        field: format!("{place}.module"),
                        key: scrub(&key, 253),
                        place: place_of,
                        found,
                    };
                    let bytes = if key.starts_with(SCHEME) {
                        let not_pulled =
                            || BundleError::NotPulled { line, field: format!("{place}.module"), reference: key.clone() };
                        binary_data.get(&key).ok_or_else(not_pulled)?.clone()
                    } else if text::is_text(&key) {
                        let others = || data.keys().filter(|key| *key != FILE).cloned().collect();
                        let text = data.get(&key).ok_or_else(|| missing("data", others()))?;
                        text::module(text.as_bytes()).map_err(|error| BundleError::Refused {
                            field: place.clone(),
                            module: key.clone(),
                            error,
                        })?
                    } else {
                        let found = || binary_data.keys().cloned().collect();
                        binary_data.get(&key).ok_or_else(|| missing("binaryData", found()))?.clone()
                    };
                    modules.insert(key.clone(), (place.clone(), bytes));
                }
                if entries.iter().any(|((taken, of_mode), ..)| (*taken, *of_mode) == (decision, mode)) {
                    return Err(wrong(line, "", &format!("there are two entries with mode {mode}, and only one can be meant")));
                }
                entries.push(((decision, mode), key, settings, limits));
            }
        }
        Ok(Self { modules, entries })
    }

    /// A field and the module that it names, to say where staging as a whole failed.
    fn first(&self) -> Option<(String, String)> {
        let first = self.modules.iter().find(|(key, (_, bytes))| !is_text(key, bytes));
        first.map(|(key, (field, _))| (field.clone(), key.clone()))
    }

    fn bundle(self, owner: &str, components: &BTreeMap<String, Module>) -> Bundle {
        let entries = self.entries.into_iter().map(|(place, key, settings, limits)| {
            let module = components.get(&key).cloned().unwrap_or(Module::Builtin);
            (place, Entry { module, settings, limits })
        });
        let entries = entries.collect();
        let digest = identity(&entries);
        Bundle { owner: owner.to_owned(), entries, digest }
    }
}

/// Whether a module is text: one of the ConfigMap by its name, one of a registry by what whoever pulled it made of it.
fn is_text(key: &str, bytes: &[u8]) -> bool {
    if key.starts_with(SCHEME) { text::text_of(bytes).is_some() } else { text::is_text(key) }
}

/// Modules that are text: nothing is done with them before they are run.
fn texts(modules: &Modules) -> BTreeMap<String, Module> {
    let texts = modules.iter().filter(|(key, (_, bytes))| is_text(key, bytes));
    let texts = texts.map(|(key, (_, bytes))| {
        let module = Module::Component { key: key.clone(), digest: text::identity(bytes), bytes: Arc::from(bytes.as_slice()) };
        (key.clone(), module)
    });
    texts.collect()
}

/// Decompresses modules that are not text and makes them components.
fn components(stager: &mut Stager, modules: Modules) -> Result<BTreeMap<String, Module>, BundleError> {
    let prepare = |(key, (field, bytes)): (String, (String, Vec<u8>))| match stager.prepare(Preparation::Module, &bytes) {
        Ok(component) => {
            let digest = Digest::of(&component);
            Ok((key.clone(), Module::Component { key, bytes: Arc::from(component), digest }))
        }
        Err(error) => Err(BundleError::Refused { field, module: key, error }),
    };
    modules.into_iter().filter(|(key, (_, bytes))| !is_text(key, bytes)).map(prepare).collect()
}

fn identity(entries: &BTreeMap<Place, Entry>) -> Digest {
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
