//! `check` and `inspect`: whether the operator would take a policy or a whole set, and what a policy says about itself.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Error, Result, ensure};
use pacer_policy::bundle::{FILE, pack};
use pacer_policy::{COMPRESSED_BYTES, Decision, Description, INTERPRETER, Limits, Policy, RAW_BYTES, TEXT_BYTES, text};
use serde_json::{Value, json};

use super::case::takes;
use super::cure::{RefusedPolicy, refused};
use super::set;
use super::settings::SettingsArgument;
use super::source::{Source, jail};
use crate::plain;
use crate::report::{Format, Report};
use crate::table;

/// What the versions of the contract are versions of.
const PACKAGE: &str = "pacer:policy";

/// The interface that every policy exports besides its decisions.
const LIFECYCLE: &str = "lifecycle";

/// Arguments of `pacer policy check`.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// The component, or `builtin`; or a whole policy set: policies.yaml with its modules in the same directory, that directory, or a manifest with
    /// ConfigMaps.
    file: Source,
    #[command(flatten)]
    settings: SettingsArgument,
    /// Output format.
    #[arg(short, long, value_enum, default_value = "text")]
    output: Format,
}

/// Arguments of `pacer policy inspect`.
#[derive(clap::Args, Debug)]
pub(crate) struct InspectArguments {
    /// The component, or `builtin`.
    file: Source,
}

/// `pacer policy check`.
pub(crate) fn check(arguments: &Arguments) -> Result<Report> {
    match (examine(arguments), arguments.output) {
        // Scripts get an answer as well where there is nothing to look at.
        (Err(error), Format::Json) => Ok(refusal(&arguments.file, &error)),
        (examined, _) => examined,
    }
}

/// A report that the policy or the set is refused, for scripts.
fn refusal(file: &Source, error: &Error) -> Report {
    let message = plain::causes(error);
    let said = match error.downcast_ref::<RefusedPolicy>() {
        Some(refused) => {
            json!({"reason": refused.error.code.as_str(), "message": refused.error.to_string(), "cure": refused.cure()})
        }
        None => json!({"message": message}),
    };
    let said = json!({"file": file.to_string(), "accepted": false, "error": said});
    Report { text: format!("{said:#}\n"), notes: String::new(), failure: Some(message) }
}

/// The policy set that a path names: a file of one, or the one in a directory.
fn set_in(file: &Source) -> Option<PathBuf> {
    let Source::File(path) = file else { return None };
    let inside = path.join(FILE);
    match path.is_dir() && inside.is_file() {
        true => Some(inside),
        false => (set::is_set(path) && !path.is_dir()).then(|| path.clone()),
    }
}

fn examine(arguments: &Arguments) -> Result<Report> {
    let Arguments { file, settings, output } = arguments;
    if let Some(path) = set_in(file) {
        ensure!(!settings.is_given(), "--settings has no effect on a set, which has its own: {file}");
        return set::check(&path, *output);
    }
    if let Source::File(path) = file {
        ensure!(
            !path.is_dir(),
            "{file} is a directory without {FILE}: name a policy, or a policy set with its modules beside it"
        );
    }
    let settings = settings.read()?;
    let jail = jail()?;
    let component = file.read(&jail)?;
    let policy = Policy::load(&jail, &component).map_err(|error| refused(file, &error))?;
    let limits = Limits::default();
    policy.validate_settings(&jail, &settings, &limits).map_err(|error| refused(file, &error))?;
    for decision in policy.decisions() {
        policy.rehearse(&jail, decision, &settings, &limits).map_err(|error| refused(file, &error))?;
    }
    let size = Size::of(&component);
    if *output == Format::Json {
        let mut said = json!({
            "accepted": true,
            "name": policy.description().name,
            "version": policy.description().version,
            "digest": policy.digest().to_string(),
            "takes": policy.decisions(),
            "reads": policy.description().reads.to_string(),
            "bytes": size.bytes,
            "settings": serde_json::from_str::<Value>(&settings)?,
        });
        if let (Some(compressed), Some(fields)) = (size.compressed, said.as_object_mut()) {
            fields.insert("compressedBytes".to_owned(), compressed.into());
        }
        return Ok(Report::text(format!("{said:#}\n")));
    }
    let rows = [
        ("policy", format!("{} {} ({})", policy.description().name, policy.description().version, policy.digest().short())),
        ("takes", takes(&policy)),
        ("reads", reads(policy.description())),
        ("size", size.of_limits()),
        ("settings", format!("{settings} accepted")),
        ("trial", "empty, single and typical requests are answered, twice the same".to_owned()),
    ];
    Ok(Report::text(format!("{}accepted\n", two_columns(&rows))))
}

/// `pacer policy inspect`.
pub(crate) fn inspect(arguments: &InspectArguments) -> Result<Report> {
    let jail = jail()?;
    let component = arguments.file.read(&jail)?;
    let policy = Policy::load(&jail, &component).map_err(|error| refused(&arguments.file, &error))?;
    let description = policy.description();
    let mut text = two_columns(&[
        ("name", description.name.clone()),
        ("version", description.version.clone()),
        ("summary", description.summary.clone()),
        ("takes", takes(&policy)),
        ("reads", reads(description)),
        ("contract", contract(&component, &policy.decisions())),
        ("digest", policy.digest().to_string()),
        ("size", Size::of(&component).text()),
    ]);
    match description.settings_schema.as_deref() {
        None => text.push_str("settings  it does not say what can be set; check --settings FILE asks it whether it takes them\n"),
        Some(schema) => text.push_str(&settings(schema)),
    }
    Ok(Report::text(text))
}

/// How large a policy is where it lies.
#[derive(Debug, PartialEq, Eq)]
struct Size {
    bytes: usize,
    /// None of a text, which is not compressed.
    compressed: Option<usize>,
}

impl Size {
    fn of(module: &[u8]) -> Self {
        match text::text_of(module) {
            Some(text) => Self { bytes: text.len(), compressed: None },
            None => Self { bytes: module.len(), compressed: Some(pack(module).len()) },
        }
    }

    fn text(&self) -> String {
        let bytes = table::bytes(self.bytes);
        match self.compressed {
            Some(compressed) => format!("{bytes}, {} compressed", table::bytes(compressed)),
            None => bytes,
        }
    }

    fn of_limits(&self) -> String {
        let of = |bytes, most| format!("{} of {}", table::bytes(bytes), table::bytes(most));
        match self.compressed {
            Some(compressed) => format!("{}; compressed {}", of(self.bytes, RAW_BYTES), of(compressed, COMPRESSED_BYTES)),
            None => of(self.bytes, TEXT_BYTES),
        }
    }
}

/// The versions of the contract that a policy is asked by, as its exports for its decisions name them. A text is asked by what the interpreter exports.
fn contract(module: &[u8], decisions: &[Decision]) -> String {
    let component = if text::text_of(module).is_some() { INTERPRETER } else { module };
    let asked = |interface: &str| interface == LIFECYCLE || decisions.iter().any(|decision| decision.as_str() == interface);
    let versions: BTreeSet<&str> = pacer_jail::interfaces(component)
        .into_iter()
        .filter_map(|name| name.strip_prefix(PACKAGE)?.strip_prefix('/')?.split_once('@'))
        .filter_map(|(interface, version)| asked(interface).then_some(version))
        .collect();
    versions.iter().map(|version| format!("{PACKAGE}@{version}")).collect::<Vec<_>>().join(", ")
}

/// Further facts that a policy asks for, and what is wrong with the names.
fn reads(description: &Description) -> String {
    let known = description.reads.to_string();
    let mut parts = vec![if known.is_empty() { "no further facts".to_owned() } else { known }];
    if !description.unknown_reads.is_empty() {
        parts.push(format!("not told by this version: {}", description.unknown_reads.join(", ")));
    }
    parts.join("; ")
}

fn two_columns(rows: &[(&str, String)]) -> String {
    let rows: Vec<Vec<String>> = rows.iter().map(|(name, value)| vec![(*name).to_owned(), value.clone()]).collect();
    table::left(&rows)
}

/// The properties of a JSON Schema, one row for each: name, type, range, default, description.
fn settings(schema: &str) -> String {
    let schema: Value = match serde_json::from_str(schema) {
        Ok(schema) => schema,
        Err(error) => return format!("settings  its schema is no JSON: {error}\n"),
    };
    let Some(properties) = schema.get("properties").and_then(Value::as_object).filter(|properties| !properties.is_empty()) else {
        return "settings  none\n".to_owned();
    };
    let rows: Vec<Vec<String>> = properties
        .iter()
        .map(|(name, property)| {
            let text = |key: &str| property.get(key).map_or_else(String::new, plain);
            let range = match (property.get("minimum"), property.get("maximum")) {
                (Some(least), Some(most)) => format!(" {least} to {most}"),
                (Some(least), None) => format!(" from {least}"),
                (None, Some(most)) => format!(" to {most}"),
                (None, None) => String::new(),
            };
            let default = property.get("default").map_or_else(String::new, |value| format!("default {value}"));
            vec![format!("  {name}"), format!("{}{range}", text("type")), default, text("description")]
        })
        .collect();
    format!("settings\n{}", table::left(&rows))
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_builtin_passes_and_shows_its_settings() {
        let settings = SettingsArgument::default();
        let report = check(&Arguments { file: Source::Builtin, settings, output: Format::Text }).unwrap();
        assert!(report.text.ends_with("accepted\n") && report.text.contains("scale-down, restart, capacity"), "{}", report.text);
        let shown = inspect(&InspectArguments { file: Source::Builtin }).unwrap().text;
        assert!(shown.contains("idleBucketSeconds") && shown.contains("default 60"), "{shown}");
        assert!(shown.contains("\ncontract  pacer:policy@0.1.0, pacer:policy@0.2.0\n"), "{shown}");
    }

    #[test]
    fn a_text_has_a_limit_of_its_own_and_is_not_compressed() {
        let size = Size::of(&text::module(b"export function restart() {}").unwrap());
        assert_eq!((size.of_limits(), size.text()), ("28 bytes of 256.0 KiB".to_owned(), "28 bytes".to_owned()));
        assert_eq!(size.compressed, None);
        let component = Size::of(pacer_policy::SHIPPED);
        assert_eq!(component.bytes, pacer_policy::SHIPPED.len());
        assert!(component.of_limits().contains(" of 4.0 MiB; compressed ") && component.of_limits().ends_with(" of 1.0 MiB"));
        assert!(component.text().ends_with(" compressed"));
    }

    #[test]
    fn contract_has_the_versions_of_the_lifecycle_and_of_the_decisions() {
        let of_text = text::module(b"export function recover() {}").unwrap();
        for (module, decisions, expected) in [
            (pacer_policy::SHIPPED, &[Decision::ScaleDown][..], "pacer:policy@0.1.0"),
            (pacer_policy::SHIPPED, &[Decision::Recover], "pacer:policy@0.1.0, pacer:policy@0.2.0"),
            (&of_text, &[Decision::Recover], "pacer:policy@0.1.0, pacer:policy@0.2.0"),
            (&of_text, &[Decision::Restart], "pacer:policy@0.1.0"),
            (b"", &[Decision::Restart], ""),
        ] {
            assert_eq!(contract(module, decisions), expected, "{decisions:?}");
        }
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("core.wasm");
        std::fs::write(&file, b"\0asm\x01\0\0\0").unwrap();
        let of = |file, output| check(&Arguments { file: Source::File(file), settings: SettingsArgument::default(), output });
        let error = of(file.clone(), Format::Text).unwrap_err().to_string();
        assert!(error.contains("PolicyNotAComponent") && error.contains("what to do: pacer policy componentize"), "{error}");
        let report = of(file.clone(), Format::Json).unwrap();
        let said: Value = serde_json::from_str(&report.text).unwrap();
        assert_eq!((&said["accepted"], &said["file"]), (&false.into(), &file.display().to_string().into()));
        let of_error = |field: &str| said["error"][field].as_str().unwrap_or_default();
        assert_eq!(of_error("reason"), "PolicyNotAComponent");
        assert!(of_error("message").contains("core module") && of_error("cure").starts_with("pacer policy componentize"));
        assert_eq!(report.failure, Some(error), "a person is told the same");
        let report = of(directory.path().join("none.wasm"), Format::Json).unwrap();
        assert!(report.text.contains("none.wasm can't be read") && report.failure.is_some(), "{}", report.text);
        let error = of(directory.path().to_owned(), Format::Text).unwrap_err().to_string();
        assert!(error.contains("is a directory without policies.yaml"), "{error}");
        let set = directory.path().join("policies.yaml");
        std::fs::write(&set, "restart: builtin\n").unwrap();
        let check = |settings| check(&Arguments { file: Source::File(set.clone()), settings, output: Format::Text });
        assert!(check(SettingsArgument::default()).is_ok_and(|report| report.text.contains("accepted")));
        let of_directory = of(directory.path().to_owned(), Format::Text).unwrap();
        assert!(of_directory.failure.is_none() && of_directory.text.contains("policies.yaml: accepted"), "{}", of_directory.text);
        let error = check(SettingsArgument::of(Some(set.clone()))).unwrap_err().to_string();
        assert!(error.contains("--settings has no effect on a set"), "{error}");
    }
}
