//! A whole policy set: read from files, and examined as the operator does it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pacer_policy::bundle::FILE;
use pacer_policy::{
    Bundle, BundleError, COMPRESSED_BYTES, Counters, Decision, Mode, Module, PolicyHost, RAW_BYTES, StagedSet, text, yaml,
};
use serde::Serialize;
use serde_json::Value;

use super::cure;
use super::jail::launcher;
use super::pulled;
use super::sheet::Sheet;
use crate::file::{self, FileError};
use crate::report::{Format, Report};
use crate::table;

/// Largest manifest, in bytes: dozens of policy sets, of which each may fill a ConfigMap.
pub(super) const MANIFEST_BYTES: usize = 64 << 20;

/// What a policy set holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) data: BTreeMap<String, String>,
    /// Components from `binaryData`, and texts from `data`.
    pub(super) modules: BTreeMap<String, Vec<u8>>,
}

impl Content {
    /// What a ConfigMap holds.
    pub(super) fn of(mut data: BTreeMap<String, String>, mut modules: BTreeMap<String, Vec<u8>>) -> Self {
        let texts: Vec<String> = data.keys().filter(|key| text::is_text(key)).cloned().collect();
        for key in texts {
            if let Some(text) = data.remove(&key) {
                modules.insert(key, text.into_bytes());
            }
        }
        Self { data, modules }
    }

    /// As it lies in a ConfigMap: `data` and `binaryData`.
    pub(super) fn parts(&self) -> (BTreeMap<String, String>, BTreeMap<String, Vec<u8>>) {
        let (mut data, mut modules) = (self.data.clone(), self.modules.clone());
        modules.retain(|key, bytes| match std::str::from_utf8(bytes) {
            Ok(text) if text::is_text(key) => {
                data.insert(key.clone(), text.to_owned());
                false
            }
            _ => true,
        });
        (data, modules)
    }

    /// Bytes that count against what a ConfigMap may have.
    pub(super) fn size(&self) -> usize {
        self.data.values().map(String::len).chain(self.modules.values().map(Vec::len)).sum()
    }

    /// Parses `policies.yaml`, as an empty file where the set has none.
    pub(super) fn sheet(&self) -> Result<Sheet> {
        Sheet::read(self.data.get(FILE).map_or("", String::as_str))
    }

    /// Keys of modules that nobody names.
    fn idle(&self) -> Vec<String> {
        let named = self.sheet().map(|sheet| sheet.modules()).unwrap_or_default();
        self.modules.keys().filter(|key| !named.contains(key)).cloned().collect()
    }
}

/// A set that the operator would take.
#[derive(Debug)]
pub(super) struct Examined {
    pub(super) bundle: Bundle,
    pub(super) staged: StagedSet,
}

impl Examined {
    /// The policy of a decision, by name and digest; none where the set has none in this mode.
    pub(super) fn policy(&self, decision: Decision, mode: Mode) -> Option<String> {
        match mode {
            Mode::Enforce => self.staged.enforced(decision).map(|standing| standing.policy),
            Mode::Shadow => self.staged.shadow(decision).map(|(standing, _)| standing.policy),
        }
    }
}

/// Does all that the operator does before it puts a set into force, under the same limits.
pub(super) async fn examine(content: &Content) -> Result<Result<Examined, Refused>> {
    let host = PolicyHost::jailed(launcher()?, Arc::new(Counters::default()));
    let (data, mut modules) = content.parts();
    match pulled::pull(&data).await? {
        Ok(mut pulled) => modules.append(&mut pulled),
        Err((reference, error)) => return Ok(Err(Refused::new(error.reason(), format!("{reference}: {error}")))),
    }
    let examined = async {
        let bundle = Bundle::parse(&host, "", &data, &modules).await?;
        let staged = bundle.stage(&host).await?;
        Ok(Examined { bundle, staged })
    };
    Ok(examined.await.map_err(|error: BundleError| Refused::of(&error)))
}

/// Why a set is refused, and what to do.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Refused {
    reason: String,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cure: Option<&'static str>,
}

impl Refused {
    pub(super) fn of(error: &BundleError) -> Self {
        Self::new(error.reason(), error.to_string())
    }

    fn new(reason: &str, message: String) -> Self {
        Self { reason: reason.to_owned(), message, cure: cure::of_reason(reason) }
    }

    /// Reason, message and what to do about it, for people.
    pub(super) fn text(&self) -> String {
        let cure = self.cure.map_or_else(String::new, |cure| format!("\n  what to do: {cure}"));
        let reason = if self.message.contains(&self.reason) { String::new() } else { format!("{}: ", self.reason) };
        format!("{reason}{}{cure}", self.message)
    }
}

/// More than a ConfigMap holds.
pub(super) fn too_large(content: &Content) -> Option<String> {
    let size = content.size();
    (size > COMPRESSED_BYTES).then(|| {
        let modules: Vec<String> =
            content.modules.iter().map(|(key, bytes)| format!("{key} has {}", table::bytes(bytes.len()))).collect();
        format!(
            "the ConfigMap would have {} and may have {} ({}): build the policies smaller, compress the modules, or give a pool's decisions to a \
             set of its own",
            table::bytes(size),
            table::bytes(COMPRESSED_BYTES),
            modules.join(", ")
        )
    })
}

/// A set in a file.
#[derive(Debug, PartialEq)]
pub(super) struct Given {
    /// Of its ConfigMap: `namespace/name` or `name`; none for a bare file.
    config_map: Option<String>,
    pub(super) content: Content,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Checked {
    file: String,
    accepted: bool,
    sets: Vec<CheckedSet>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CheckedSet {
    #[serde(skip_serializing_if = "Option::is_none")]
    config_map: Option<String>,
    accepted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    bytes: usize,
    decisions: Vec<CheckedDecision>,
    /// Keys of modules that no decision names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    idle: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Refused>,
}

#[derive(Debug, Serialize)]
struct CheckedDecision {
    decision: Decision,
    mode: Mode,
    module: String,
    policy: String,
    settings: Value,
    #[serde(skip_serializing_if = "Value::is_null")]
    limits: Value,
}

/// Whether a file is a set rather than a policy.
pub(super) fn is_set(path: &Path) -> bool {
    path.extension().is_some_and(|extension| ["yaml", "yml", "json"].iter().any(|known| extension.eq_ignore_ascii_case(known)))
}

/// `pacer policy check` of a set.
pub(super) fn check(path: &Path, format: Format) -> Result<Report> {
    let text = file::read_text(path, MANIFEST_BYTES, "a manifest of policy sets")?;
    let given = given(path, &text)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
    let sets = given.iter().map(|given| runtime.block_on(checked(given))).collect::<Result<Vec<_>>>()?;
    let checked = Checked { file: path.display().to_string(), accepted: sets.iter().all(|set| set.accepted), sets };
    let refused = checked.sets.iter().filter(|set| !set.accepted).count();
    let failure = (refused > 0).then(|| format!("{} is refused: {refused} of {} sets", checked.file, checked.sets.len()));
    let text = match format {
        Format::Json => format!("{}\n", serde_json::to_string_pretty(&checked)?),
        Format::Text => checked.text(),
    };
    Ok(Report { text, notes: String::new(), failure })
}

async fn checked(given: &Given) -> Result<CheckedSet> {
    let Given { config_map, content } = given;
    let mut set = CheckedSet {
        config_map: config_map.clone(),
        accepted: false,
        digest: None,
        bytes: content.size(),
        decisions: Vec::new(),
        idle: content.idle(),
        error: too_large(content).map(|message| Refused::new("PolicyTooLarge", message)),
    };
    if set.error.is_some() {
        return Ok(set);
    }
    match examine(content).await? {
        Err(error) => set.error = Some(error),
        Ok(examined) => {
            set.accepted = true;
            set.digest = Some(examined.bundle.digest().to_string());
            let sheet = content.sheet()?;
            for (decision, mode, entry) in examined.bundle.entries() {
                let limits = sheet.entry(decision, mode).and_then(|entry| entry.get("limits").cloned());
                set.decisions.push(CheckedDecision {
                    decision,
                    mode,
                    module: match &entry.module {
                        Module::Builtin => pacer_policy::BUILTIN.to_owned(),
                        Module::Component { key, .. } => key.clone(),
                    },
                    policy: examined.policy(decision, mode).unwrap_or_default(),
                    settings: serde_json::from_str(&entry.settings)?,
                    limits: limits.unwrap_or_default(),
                });
            }
        }
    }
    Ok(set)
}

impl Checked {
    fn text(&self) -> String {
        let mut text = String::new();
        for set in &self.sets {
            let name = set.config_map.as_ref().map_or_else(|| self.file.clone(), |name| format!("ConfigMap {name}"));
            let digest = set.digest.as_ref().map_or_else(String::new, |digest| format!(", {digest}"));
            text.push_str(&format!("{name}: {}{digest}\n", if set.accepted { "accepted" } else { "refused" }));
            let row = |one: &CheckedDecision| {
                let limits = if one.limits.is_null() { String::new() } else { format!("limits {}", one.limits) };
                let mode = if one.mode == Mode::Enforce { "decides" } else { "in shadow" };
                vec![
                    format!("  {}", one.decision),
                    mode.to_owned(),
                    one.policy.clone(),
                    one.module.clone(),
                    format!("settings {}", one.settings),
                    limits,
                ]
            };
            text.push_str(&table::left(&set.decisions.iter().map(row).collect::<Vec<_>>()));
            if set.accepted && set.decisions.is_empty() {
                text.push_str("  it says nothing about any decision\n");
            }
            if let Some(error) = &set.error {
                text.push_str(&format!("  {}\n", error.text()));
            }
            for key in &set.idle {
                text.push_str(&format!("  the ConfigMap has {key}, which no decision names\n"));
            }
            text.push_str(&format!(
                "  {} of {} that a ConfigMap may have\n",
                table::bytes(set.bytes),
                table::bytes(COMPRESSED_BYTES)
            ));
        }
        text
    }
}

/// The sets of a file: ConfigMaps of a manifest, or the set itself with its modules beside it.
pub(super) fn given(path: &Path, text: &str) -> Result<Vec<Given>> {
    let blank = |text: &str| text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
    let mut documents = vec![String::new()];
    for line in text.lines() {
        match (line.trim_end() == "---" || line.starts_with("--- "), documents.last_mut()) {
            (false, Some(document)) => {
                document.push_str(line);
                document.push('\n');
            }
            _ => documents.push(String::new()),
        }
    }
    let mut sets = Vec::new();
    let mut others = Vec::new();
    for document in documents.iter().filter(|document| !blank(document)) {
        let value: Value = match serde_saphyr::from_str(document) {
            Ok(value) => value,
            // The operator's own reader says what is wrong and where.
            Err(_) if documents.len() == 1 => return Ok(vec![bare(path, text)?]),
            Err(error) => bail!("{} is not valid YAML: {}", path.display(), yaml::Mistake::of(&error, document)),
        };
        let items = match value.get("kind").and_then(Value::as_str) {
            Some("List") => value.get("items").and_then(Value::as_array).cloned().unwrap_or_default(),
            Some(_) => vec![value],
            None => return Ok(vec![bare(path, text)?]),
        };
        for item in items {
            match item.get("kind").and_then(Value::as_str) {
                Some("ConfigMap") => sets.push(of_manifest(path, &item)?),
                kind => others.push(kind.unwrap_or("an object without a kind").to_owned()),
            }
        }
    }
    // A manifest may have further ConfigMaps beside its sets.
    if sets.iter().any(|set: &Given| set.content.data.contains_key(FILE)) {
        sets.retain(|set| set.content.data.contains_key(FILE));
    }
    match (sets.is_empty(), others.is_empty()) {
        (true, true) => Ok(vec![bare(path, text)?]),
        (true, false) => bail!("{} has no ConfigMap, but {}", path.display(), others.join(", ")),
        (false, _) => Ok(sets),
    }
}

fn of_manifest(path: &Path, object: &Value) -> Result<Given> {
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("without a name");
    let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str);
    let config_map = namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"));
    let mut content = Content::default();
    for (key, value) in object.get("data").and_then(Value::as_object).into_iter().flatten() {
        let Some(text) = value.as_str() else { bail!("{}: ConfigMap {config_map}: data.{key} is no text", path.display()) };
        content.data.insert(key.clone(), text.to_owned());
    }
    for (key, value) in object.get("binaryData").and_then(Value::as_object).into_iter().flatten() {
        let encoded: String = value.as_str().unwrap_or_default().split_whitespace().collect();
        let bytes = STANDARD.decode(encoded);
        let bytes =
            bytes.with_context(|| format!("{}: ConfigMap {config_map}: binaryData.{key} is no base64", path.display()))?;
        content.modules.insert(key.clone(), bytes);
    }
    Ok(Given { config_map: Some(config_map), content: Content::of(content.data, content.modules) })
}

fn bare(path: &Path, text: &str) -> Result<Given> {
    let mut content = Content { data: BTreeMap::from([(FILE.to_owned(), text.to_owned())]), modules: BTreeMap::new() };
    let Ok(sheet) = content.sheet() else { return Ok(Given { config_map: None, content }) };
    let directory = path.parent().unwrap_or(Path::new(""));
    for module in sheet.modules() {
        let file = directory.join(&module);
        // One that is missing is reported with the line that names it.
        match file::read(&file, RAW_BYTES, "a policy") {
            Ok(bytes) => content.modules.insert(module, bytes),
            Err(FileError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(error.into()),
        };
    }
    Ok(Given { config_map: None, content })
}

#[cfg(test)]
mod tests {
    use pacer_policy::SHIPPED;
    use pacer_policy::bundle::pack;

    use super::*;

    fn at(directory: &Path, name: &str, text: &str) -> std::path::PathBuf {
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn a_bare_file_is_checked_with_the_modules_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("mine.wasm.gz"), pack(SHIPPED)).unwrap();
        let text = "scale-down:\n  module: mine.wasm.gz\n  settings: {idleBucketSeconds: 5}\n  limits: {deadlineMilliseconds: 50}\nrestart: builtin\n";
        let path = at(directory.path(), "policies.yaml", text);
        let report = check(&path, Format::Json).unwrap();
        let json: Value = serde_json::from_str(&report.text).unwrap();
        assert!(report.failure.is_none() && json["accepted"] == true, "{json}");
        let decisions = &json["sets"][0]["decisions"];
        assert_eq!(
            (&decisions[0]["module"], &decisions[0]["settings"]["idleBucketSeconds"]),
            (&"mine.wasm.gz".into(), &5.into())
        );
        assert_eq!((&decisions[0]["limits"]["deadlineMilliseconds"], &decisions[1]["policy"]), (&50.into(), &"shipped".into()));
        assert!(check(&path, Format::Text).unwrap().text.contains("policies.yaml: accepted, sha256:"));
    }

    #[test]
    fn what_is_wrong_is_said_with_line_reason_and_cure() {
        let directory = tempfile::tempdir().unwrap();
        for (text, parts) in [
            ("scale-down:\n  modul: a.wasm\n", ["PolicySetInvalid", "line 2", "what to do"]),
            ("scale-down:\n  module: a.wasm\n", ["PolicyModuleMissing", "line 2", "a.wasm"]),
            (
                "scale-down: {module: builtin, settings: {idleBucketSeconds: no}}\n",
                ["PolicySettingsInvalid", "scale-down", "what to do"],
            ),
            ("scale-down: {module: builtin, limits: {fuel: 0}}\n", ["PolicySetInvalid", "limits.fuel", "must be from 1"]),
            ("scale-down: [\n", ["PolicySetInvalid", "line", "what to do"]),
        ] {
            let report = check(&at(directory.path(), "policies.yaml", text), Format::Text).unwrap();
            assert!(report.failure.is_some(), "{text}");
            for part in parts {
                assert!(report.text.contains(part), "no {part} in {}", report.text);
            }
        }
    }

    #[test]
    fn a_manifest_is_checked_set_by_set() {
        let directory = tempfile::tempdir().unwrap();
        let set = |name: &str, text: &str| {
            format!("kind: ConfigMap\nmetadata: {{name: {name}}}\ndata:\n  policies.yaml: |\n    {text}\n")
        };
        let all = format!(
            "---\nkind: Role\n---\n{}---\n{}---\nkind: ConfigMap\nmetadata: {{name: other}}\n",
            set("one", "restart: builtin"),
            set("two", "restart: 7")
        );
        let path = at(directory.path(), "all.yaml", &all);
        let report = check(&path, Format::Text).unwrap();
        assert!(
            report.text.contains("ConfigMap one: accepted") && report.text.contains("ConfigMap two: refused"),
            "{}",
            report.text
        );
        assert!(report.failure.is_some_and(|failure| failure.ends_with("1 of 2 sets")));
        let error = check(&at(directory.path(), "role.yaml", "kind: Role\n"), Format::Text).unwrap_err().to_string();
        assert!(error.contains("no ConfigMap, but Role"), "{error}");
        let large = format!(
            "kind: ConfigMap\nmetadata: {{name: big}}\ndata: {{policies.yaml: '{{}}', x: {}}}\n",
            "a".repeat(COMPRESSED_BYTES)
        );
        let report = check(&at(directory.path(), "big.yaml", &large), Format::Text).unwrap();
        assert!(report.failure.is_some() && report.text.contains("may have 1.0 MiB"), "{}", report.text);
    }
}
