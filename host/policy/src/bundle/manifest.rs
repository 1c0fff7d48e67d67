//! `policies.yaml`.

use std::fmt;

use pacer_core::name::is_subdomain;
use pacer_core::reference::{Reference, SCHEME};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use super::{BUILTIN, BundleError, Mode};
use crate::decision::Decision;
use crate::limits::LimitRequest;
use crate::yaml::Mistake;

/// One policy as it is written, with the lines that errors point at.
pub(super) struct Written {
    pub(super) module: (String, u64),
    pub(super) settings: (serde_json::Value, u64),
    pub(super) mode: Mode,
    pub(super) limits: (LimitRequest, u64),
}

/// What `policies.yaml` says.
#[derive(Default)]
pub(super) struct Manifest {
    /// For each decision that it names, its entries.
    pub(super) decisions: Vec<(Decision, Vec<Written>)>,
    /// The Secret with credentials of registries.
    pub(super) pull_secret: Option<String>,
}

/// Parses the text of `policies.yaml`.
pub(super) fn read(text: &str) -> Result<Manifest, BundleError> {
    // A file of nothing but comments is a set that says nothing.
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Ok(Manifest::default());
    }
    let File { scale_down, restart, capacity, recover, pull_secret } =
        serde_saphyr::from_str(text).map_err(|error| syntax(&error, text))?;
    let pull_secret = pull_secret.map(secret).transpose()?;
    let all = [
        (Decision::ScaleDown, scale_down),
        (Decision::Restart, restart),
        (Decision::Capacity, capacity),
        (Decision::Recover, recover),
    ];
    let named = all.into_iter().filter_map(|(decision, entries)| Some((decision, entries?)));
    let decisions = named.map(|(decision, entries)| {
        let line = entries.referenced.line();
        let entries = entries.value.0.into_iter().map(|entry| written(decision, entry, line));
        Ok((decision, entries.collect::<Result<_, _>>()?))
    });
    Ok(Manifest { decisions: decisions.collect::<Result<_, _>>()?, pull_secret })
}

fn secret(name: Spanned<String>) -> Result<String, BundleError> {
    if is_subdomain(&name.value) {
        return Ok(name.value);
    }
    let message = "it must be the name of a Secret of this namespace, of type kubernetes.io/dockerconfigjson".to_owned();
    Err(BundleError::Field { line: name.referenced.line(), field: "pullSecret".to_owned(), message })
}

/// Names an entry: `scale-down`, or `scale-down (shadow)`.
pub(super) fn field(decision: Decision, mode: Mode) -> String {
    match mode {
        Mode::Enforce => decision.as_str().to_owned(),
        Mode::Shadow => format!("{decision} (shadow)"),
    }
}

fn written(decision: Decision, entry: Entry, line: u64) -> Result<Written, BundleError> {
    let Some(module) = entry.module else {
        let message = format!(
            "module is missing: name a key of binaryData, a key of data that ends in .js, an artifact ({SCHEME}...), or builtin"
        );
        return Err(BundleError::Field { line, field: field(decision, entry.mode), message });
    };
    let line = if module.referenced.line() == 0 { line } else { module.referenced.line() };
    if let Some(Err(error)) = Reference::parse(&module.value) {
        let field = format!("{}.module", field(decision, entry.mode));
        return Err(BundleError::Field { line, field, message: error.to_string() });
    }
    Ok(Written {
        module: (module.value, line),
        settings: entry.settings.map_or((serde_json::Value::Null, line), |settings| (settings.value, settings.referenced.line())),
        mode: entry.mode,
        limits: entry.limits.map_or((LimitRequest::default(), line), |limits| (limits.value, limits.referenced.line())),
    })
}

fn syntax(error: &serde_saphyr::Error, text: &str) -> BundleError {
    let Mistake { line, column, message } = Mistake::of(error, text);
    BundleError::Syntax { line, column, message }
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct File {
    #[serde(default)]
    scale_down: Option<Spanned<Entries>>,
    #[serde(default)]
    restart: Option<Spanned<Entries>>,
    #[serde(default)]
    capacity: Option<Spanned<Entries>>,
    #[serde(default)]
    recover: Option<Spanned<Entries>>,
    #[serde(default, rename = "pullSecret")]
    pull_secret: Option<Spanned<String>>,
}

/// One entry or several.
struct Entries(Vec<Entry>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMany;
        impl<'de> Visitor<'de> for OneOrMany {
            type Value = Entries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an entry with module, settings, mode and limits, a list of two of these, or the word builtin")
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<Entries, E> {
                if word != BUILTIN {
                    return Err(E::custom(format!("{word:?} stands alone: write `module: {word}`, or the word builtin")));
                }
                let module = Spanned::new(word.to_owned(), serde_saphyr::Location::UNKNOWN, serde_saphyr::Location::UNKNOWN);
                Ok(Entries(vec![Entry { module: Some(module), ..Entry::default() }]))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Entries, A::Error> {
                Ok(Entries(vec![Entry::deserialize(MapAccessDeserializer::new(map))?]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Entries, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = list.next_element()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_any(OneOrMany)
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Entry {
    module: Option<Spanned<String>>,
    settings: Option<Spanned<serde_json::Value>>,
    mode: Mode,
    limits: Option<Spanned<LimitRequest>>,
}
