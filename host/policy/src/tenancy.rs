//! A tenancy as the operator of a cluster writes it: `tenancy.yaml` in the `data` of a ConfigMap.
//!
//! ```yaml
//! strict: true                       # what is not listed is refused; false when absent
//! namespaces:                        # the first entry that fits a namespace counts
//!   - names: [team-a, team-a-ci]     # these, and those that have all of the labels
//!     labels: {tenant: a}
//!     scopes: [acme, acme/*, other/app, enterprise:corp]
//!     groups: [Default, big]
//!     hosts: [github.com, ghe.example.com:8443]
//!     credentialsNamespace: team-a-credentials
//!     registries: [registry.example:5000, ghcr.io/acme]
//!     quotas: {runners: 50, fleets: 10, policySets: 2, callsPerMinute: 200}
//! ```

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use pacer_core::gate::scrub;
use pacer_core::name::is_label;
use pacer_core::tenancy::{Entry, Quotas, Tenancy};
use serde_json::{Map, Value};

use crate::yaml::Mistake;

/// The key of `data` that holds it.
pub const FILE: &str = "tenancy.yaml";

/// Largest file, in bytes: the last good one is kept in an annotation, and the API server takes 256 KiB of those.
pub const BYTES: usize = 64 << 10;

/// Longest message of an error, in bytes.
const MESSAGE_BYTES: usize = 512;

/// Why a tenancy file is refused. One line that names the place and says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TenancyError {
    /// The ConfigMap has no key `tenancy.yaml`.
    #[error("the ConfigMap has no key {FILE} in data; put the tenancy there")]
    NoFile,
    /// It is too large.
    #[error("{FILE} has {0} bytes and may have {BYTES}: select namespaces by labels instead of names")]
    TooLarge(usize),
    /// It is no YAML.
    #[error("{FILE}, line {line}, column {column}: {message}")]
    Syntax {
        /// From 1; 0 when nobody knows.
        line: u64,
        /// From 1; 0 when nobody knows.
        column: u64,
        /// Message of the YAML parser, at most 512 bytes.
        message: String,
    },
    /// A value in it makes no sense.
    #[error("{FILE}: {path}: {message}")]
    Field {
        /// Path of the value: `namespaces[0].quotas.runners`.
        path: String,
        /// What is wrong with it and what to do.
        message: String,
    },
}

/// The text of the file in a ConfigMap's `data`.
///
/// # Errors
///
/// When it is not there, or too large.
pub fn text(data: Option<&BTreeMap<String, String>>) -> Result<&str, TenancyError> {
    let text = data.and_then(|data| data.get(FILE)).ok_or(TenancyError::NoFile)?;
    if text.len() > BYTES { Err(TenancyError::TooLarge(text.len())) } else { Ok(text) }
}

/// Reads the file. `home` is the namespace that it lies in, the operator's own.
///
/// # Errors
///
/// The first thing that is wrong.
pub fn read(text: &str, home: &str) -> Result<Tenancy, TenancyError> {
    let value: Value = serde_saphyr::from_str(text).map_err(|error| syntax(&error, text))?;
    let file = Fields::of("the file", value, &["strict", "namespaces"])?;
    let strict = file.read("strict", |path, value| value.as_bool().ok_or_else(|| wrong(path, "write true or false")))?;
    let entries = file.read("namespaces", |path, value| list(path, value, |path, value| entry(path, value, home)))?;
    // An empty file that opens everything is more likely an accident.
    let entries = entries.ok_or_else(|| wrong("namespaces", "it is missing: list what namespaces may do, [] for nothing"))?;
    Ok(Tenancy { strict: strict.unwrap_or_default(), entries })
}

fn entry(path: &str, value: &Value, home: &str) -> Result<Entry, TenancyError> {
    let known = ["names", "labels", "scopes", "hosts", "groups", "credentialsNamespace", "registries", "quotas"];
    let fields = Fields::of(path, value.clone(), &known)?;
    let names: Vec<String> = fields.read("names", |path, value| list(path, value, name))?.unwrap_or_default();
    let labels = fields.read("labels", labels)?.unwrap_or_default();
    if names.is_empty() && labels.is_empty() {
        return Err(wrong(path, "it fits no namespace: give names, labels, or both"));
    }
    Ok(Entry {
        names,
        labels,
        scopes: fields.read("scopes", |path, value| list(path, value, parsed))?,
        hosts: fields.read("hosts", |path, value| list(path, value, parsed))?,
        groups: fields.read("groups", |path, value| list(path, value, name))?,
        credentials: fields.read("credentialsNamespace", |path, value| credentials(path, value, home))?,
        registries: fields.read("registries", |path, value| list(path, value, parsed))?,
        quotas: fields.read("quotas", quotas)?.unwrap_or_default(),
    })
}

fn quotas(path: &str, value: &Value) -> Result<Quotas, TenancyError> {
    let fields = Fields::of(path, value.clone(), &["runners", "fleets", "policySets", "callsPerMinute"])?;
    let number = |key| {
        fields.read(key, |path, value| {
            let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
            number.ok_or_else(|| wrong(path, "write a whole number, 0 or more"))
        })
    };
    let calls_per_minute = number("callsPerMinute")?;
    if calls_per_minute == Some(0) {
        // What is registered could not even be removed.
        return Err(wrong(
            &format!("{path}.callsPerMinute"),
            "write a whole number, 1 or more; scopes: [] lets it register nothing",
        ));
    }
    Ok(Quotas { runners: number("runners")?, fleets: number("fleets")?, policy_sets: number("policySets")?, calls_per_minute })
}

fn labels(path: &str, value: &Value) -> Result<BTreeMap<String, String>, TenancyError> {
    let map = value.as_object().ok_or_else(|| wrong(path, "write a map of labels, each with one value"))?;
    map.iter()
        .map(|(key, value)| {
            let value =
                value.as_str().ok_or_else(|| wrong(&format!("{path}.{}", scrub(key, 64)), "write its value as a text"))?;
            Ok((key.clone(), value.to_owned()))
        })
        .collect()
}

fn name(path: &str, value: &Value) -> Result<String, TenancyError> {
    let text = value.as_str().filter(|text| !text.trim().is_empty());
    text.map(str::to_owned).ok_or_else(|| wrong(path, "write a name"))
}

/// It becomes part of a path at the API server.
/// Secrets beside the operator's are the operator's: a tenant whose credentials lay there could name those of the operator as its own.
fn credentials(path: &str, value: &Value, home: &str) -> Result<String, TenancyError> {
    let text = value.as_str().filter(|text| is_label(text)).ok_or_else(|| wrong(path, "write the name of a namespace"))?;
    if text == home {
        let message =
            format!("{home} is the operator's namespace, whose Secrets would be the tenant's to use; name one of the tenant's");
        return Err(wrong(path, &message));
    }
    Ok(text.to_owned())
}

fn parsed<T: FromStr<Err: Display>>(path: &str, value: &Value) -> Result<T, TenancyError> {
    name(path, value)?.parse().map_err(|error: T::Err| wrong(path, &error.to_string()))
}

fn list<T>(path: &str, value: &Value, read: impl Fn(&str, &Value) -> Result<T, TenancyError>) -> Result<Vec<T>, TenancyError> {
    let values = value.as_array().ok_or_else(|| wrong(path, "write a list"))?;
    values.iter().enumerate().map(|(index, value)| read(&format!("{path}[{index}]"), value)).collect()
}

/// A map whose keys are known.
struct Fields {
    /// Before the name of a field; empty at the top.
    prefix: String,
    map: Map<String, Value>,
}

impl Fields {
    fn of(path: &str, value: Value, known: &[&str]) -> Result<Self, TenancyError> {
        let Value::Object(map) = value else { return Err(wrong(path, &format!("write a map of {}", known.join(", ")))) };
        let prefix = if known.contains(&"namespaces") { String::new() } else { format!("{path}.") };
        match map.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => {
                Err(wrong(&format!("{prefix}{}", scrub(key, 64)), &format!("there is no such key, only {}", known.join(", "))))
            }
            None => Ok(Self { prefix, map }),
        }
    }

    /// A field; none where it is absent or null.
    fn read<T>(&self, key: &str, read: impl Fn(&str, &Value) -> Result<T, TenancyError>) -> Result<Option<T>, TenancyError> {
        let value = self.map.get(key).filter(|value| !value.is_null());
        value.map(|value| read(&format!("{}{key}", self.prefix), value)).transpose()
    }
}

fn wrong(path: &str, message: &str) -> TenancyError {
    TenancyError::Field { path: path.to_owned(), message: scrub(message, MESSAGE_BYTES) }
}

fn syntax(error: &serde_saphyr::Error, text: &str) -> TenancyError {
    let Mistake { line, column, message } = Mistake::of(error, text);
    TenancyError::Syntax { line, column, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "
strict: true
namespaces:
  - names: [team-a, team-a-ci]
    labels: {tenant: a}
    scopes: [acme, acme/*, other/app, enterprise:corp]
    groups: [Default, big]
    hosts: [github.com, 'ghe.example.com:8443']
    credentialsNamespace: team-a-credentials
    quotas: {runners: 50, fleets: 10, policySets: 2, callsPerMinute: 200}
  - labels: {tenant: b}
    quotas: {}
";

    #[test]
    fn every_key_has_its_meaning() {
        let Tenancy { strict, entries } = read(GOOD, "own").unwrap();
        let [first, second] = entries.as_slice() else { panic!("{entries:?}") };
        assert!(strict);
        assert_eq!(first.names, ["team-a", "team-a-ci"]);
        assert_eq!(first.labels.get("tenant").map(String::as_str), Some("a"));
        let scopes: Vec<String> = first.scopes.iter().flatten().map(ToString::to_string).collect();
        assert_eq!(scopes, ["acme", "acme/*", "other/app", "enterprise:corp"]);
        assert_eq!(first.groups.as_deref().unwrap(), ["Default", "big"]);
        assert_eq!(first.hosts.as_ref().map(Vec::len), Some(2));
        assert_eq!((first.credentials.as_deref(), second.credentials.as_deref()), (Some("team-a-credentials"), None));
        assert_eq!(
            first.quotas,
            Quotas { runners: Some(50), fleets: Some(10), policy_sets: Some(2), calls_per_minute: Some(200) }
        );
        assert_eq!((second.scopes.as_ref(), second.quotas), (None, Quotas::default()));
        assert_eq!(read("namespaces: []", "own").unwrap(), Tenancy::default());
    }

    #[test]
    fn what_is_wrong_is_named_by_its_path() {
        let table = [
            ("", "the file: write a map"),
            ("strict: true", "namespaces: it is missing"),
            ("namespaces: {}", "namespaces: write a list"),
            ("stricd: true\nnamespaces: []", "stricd: there is no such key, only strict, namespaces"),
            ("strict: maybe\nnamespaces: []", "strict: write true or false"),
            ("namespaces: [{scopes: [acme]}]", "namespaces[0]: it fits no namespace"),
            ("namespaces: [{names: [a]}, {names: [b], scope: [acme]}]", "namespaces[1].scope: there is no such key"),
            ("namespaces: [{names: [a], scopes: [acme, 'acme/a*']}]", "namespaces[0].scopes[1]: \"acme/a*\" is no scope"),
            ("namespaces: [{names: [a], hosts: ['https://x']}]", "namespaces[0].hosts[0]: \"https://x\" is no host"),
            ("namespaces: [{names: [a], credentialsNamespace: '../b'}]", "namespaces[0].credentialsNamespace: write the name"),
            (
                "namespaces: [{names: [a], credentialsNamespace: own}]",
                "namespaces[0].credentialsNamespace: own is the operator's namespace",
            ),
            ("namespaces: [{names: [a], quotas: {runners: -1}}]", "namespaces[0].quotas.runners: write a whole number"),
            ("namespaces: [{names: [a], quotas: {pods: 1}}]", "namespaces[0].quotas.pods: there is no such key"),
            (
                "namespaces: [{names: [a], quotas: {callsPerMinute: 0}}]",
                "namespaces[0].quotas.callsPerMinute: write a whole number, 1",
            ),
            ("namespaces: [{names: ['']}]", "namespaces[0].names[0]: write a name"),
            ("namespaces: [{labels: {a: 1}}]", "namespaces[0].labels.a: write its value as a text"),
            ("namespaces: [", "line"),
            ("namespaces: []\nnamespaces: []", "line 2"),
        ];
        for (text, expected) in table {
            let error = read(text, "own").unwrap_err().to_string();
            assert!(error.starts_with(FILE) && error.contains(expected), "{text:?}: {error}");
        }
    }

    #[test]
    fn file_is_there_and_has_its_size() {
        let data = |text: String| BTreeMap::from([(FILE.to_owned(), text)]);
        assert_eq!(text(None), Err(TenancyError::NoFile));
        assert_eq!(text(Some(&data("x".repeat(BYTES)))).map(str::len), Ok(BYTES));
        assert_eq!(text(Some(&data("x".repeat(BYTES + 1)))), Err(TenancyError::TooLarge(BYTES + 1)));
    }
}
