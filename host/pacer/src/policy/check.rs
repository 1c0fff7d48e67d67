//! `check` and `inspect`: whether the operator would take a policy or a whole set, and what a policy says about itself.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use pacer_policy::bundle::pack;
use pacer_policy::{COMPRESSED_BYTES, Decision, Description, INTERPRETER, Limits, Policy, RAW_BYTES, TEXT_BYTES, text};
use serde_json::{Value, json};

use super::case::takes;
use super::cure::refused;
use super::set;
use super::settings::SettingsArgument;
use super::source::{Source, jail};
use crate::report::{Format, Report};
use crate::table;

/// What the versions of the contract are versions of.
const PACKAGE: &str = "pacer:policy";

/// The interface that every policy exports besides its decisions.
const LIFECYCLE: &str = "lifecycle";

/// Bytes of a component before its first section: what it is, and of which version.
const HEAD: usize = 8;

/// What a section of a component begins with that names exports.
const EXPORTS: u8 = 11;

/// Most bytes of a number that says how long a section is.
const NUMBER_BYTES: usize = 5;

/// Arguments of `pacer policy check`.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// The component, or `builtin`; or a whole policy set: policies.yaml with its modules in the same directory, or a manifest with ConfigMaps.
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
    let Arguments { file, settings, output } = arguments;
    if let Source::File(path) = file
        && set::is_set(path)
    {
        ensure!(!settings.is_given(), "--settings has no effect on a set, which has its own: {file}");
        return set::check(path, *output);
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
    let exports: String = exports(component).into_iter().map(String::from_utf8_lossy).collect();
    let part_of_version = |char: char| char.is_ascii_alphanumeric() || ".-+".contains(char);
    let mut versions = BTreeSet::new();
    for interface in std::iter::once(LIFECYCLE).chain(decisions.iter().map(|decision| decision.as_str())) {
        let name = format!("{PACKAGE}/{interface}@");
        let after = exports.split(name.as_str()).skip(1);
        versions.extend(after.filter_map(|after| after.split(|char: char| !part_of_version(char)).next().map(str::to_owned)));
    }
    versions.iter().map(|version| format!("{PACKAGE}@{version}")).collect::<Vec<_>>().join(", ")
}

/// The sections of a component that name what it exports itself, not those of what is nested in it.
fn exports(component: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    let mut rest = component.get(HEAD..).unwrap_or_default();
    while let Some((section, after)) = section(rest) {
        found.extend(section);
        rest = after;
    }
    found
}

/// The content of the first section, if it names exports, and the sections after it; none where no whole one follows.
fn section(sections: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let (kind, after) = sections.split_first()?;
    let end = after.iter().take(NUMBER_BYTES).position(|byte| byte & 0x80 == 0)?;
    let (digits, after) = after.split_at_checked(end + 1)?;
    let length = digits.iter().rev().fold(0_usize, |length, digit| (length << 7) | usize::from(digit & 0x7f));
    let (content, after) = after.split_at_checked(length)?;
    Some(((*kind == EXPORTS).then_some(content), after))
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
    fn the_contract_is_that_of_the_exports_and_of_nothing_else() {
        let of_text = text::module(b"export function recover() {}").unwrap();
        let section = |kind: u8, content: &str| [&[kind, u8::try_from(content.len()).unwrap()][..], content.as_bytes()].concat();
        let newer = [
            b"\0asm\x0d\0\x01\0".to_vec(),
            section(0, "pacer:policy/lifecycle@0.1.0#describe"),
            section(11, "pacer:policy/scale-down@0.2.0\x05\0"),
            section(11, "pacer:policy/lifecycle@0.2.0\x05\0pacer:policy/restart@0.1.0\x05\x01"),
        ]
        .concat();
        for (module, decisions, expected) in [
            (pacer_policy::SHIPPED, &[Decision::ScaleDown][..], "pacer:policy@0.1.0"),
            (pacer_policy::SHIPPED, &[Decision::Recover], "pacer:policy@0.1.0, pacer:policy@0.2.0"),
            (&of_text, &[Decision::Recover], "pacer:policy@0.1.0, pacer:policy@0.2.0"),
            (&of_text, &[Decision::Restart], "pacer:policy@0.1.0"),
            (&newer, &[Decision::ScaleDown], "pacer:policy@0.2.0"),
            (&newer, &[Decision::Restart], "pacer:policy@0.1.0, pacer:policy@0.2.0"),
            (newer.get(..60).unwrap(), &[Decision::Restart], ""),
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
        let error = check(&Arguments { file: Source::File(file), settings: SettingsArgument::default(), output: Format::Json })
            .unwrap_err()
            .to_string();
        assert!(error.contains("PolicyNotAComponent") && error.contains("what to do: pacer policy componentize"), "{error}");
        let set = directory.path().join("policies.yaml");
        std::fs::write(&set, "restart: builtin\n").unwrap();
        let check = |settings| check(&Arguments { file: Source::File(set.clone()), settings, output: Format::Text });
        assert!(check(SettingsArgument::default()).is_ok_and(|report| report.text.contains("accepted")));
        let error = check(SettingsArgument::of(Some(set.clone()))).unwrap_err().to_string();
        assert!(error.contains("--settings has no effect on a set"), "{error}");
    }
}
