//! `configmap`: the manifest that puts policies into force. Nothing is printed that the operator would refuse.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pacer_core::name::{is_label, is_subdomain};
use pacer_policy::bundle::{FILE, pack};
use pacer_policy::{BUILTIN, Bundle, COMPRESSED_BYTES, Decision, Jail, Limits, Mode, Policy, UnknownDecision, text};

use pacer_policyset::DEFAULT_NAME;

use super::case::takes;
use super::cure::refused;
use super::settings;
use super::source::{Source, jail};
use crate::report::Report;
use crate::table;

/// `kubectl apply` on the client's side repeats the object in an annotation, which may have 256 KiB; base64 makes four bytes of three.
const CLIENT_SIDE_BYTES: usize = (256 << 10) * 3 / 4 - (4 << 10);

/// Longest front of a key, in letters: keys may have 253, and a digest and an ending follow.
const KEY_FRONT: usize = 200;

/// Words that YAML takes for something else than a text, in the versions of it that are in use.
const WORDS: [&str; 9] = ["true", "false", "yes", "no", "on", "off", "y", "n", "null"];

/// Arguments of `pacer policy configmap`.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Components, or `builtin`. Each is used for the decisions that it exports. `recover` is left out if the policy also makes other decisions: add it
    /// with --decision (which then has to name all decisions).
    files: Vec<Source>,
    /// Name of the ConfigMap. The default is that of the default policy set in the operator's namespace.
    #[arg(long, default_value = DEFAULT_NAME)]
    name: String,
    /// Namespace of the ConfigMap. Default: kubectl's.
    #[arg(long)]
    namespace: Option<String>,
    /// Includes only this decision, or chooses its policy: scale-down, or scale-down=FILE. Repeatable.
    #[arg(long = "decision", value_name = "DECISION[=FILE]", value_parser = chosen)]
    decisions: Vec<(Decision, Option<Source>)>,
    /// YAML or JSON file with settings for all policies, or DECISION=FILE for one. Repeatable.
    #[arg(long = "settings", value_name = "[DECISION=]FILE")]
    settings: Vec<String>,
    /// Shadow mode: the policies are only compared with those that decide.
    #[arg(long)]
    shadow: bool,
    /// Does not compress the modules.
    #[arg(long)]
    plain: bool,
}

fn chosen(text: &str) -> Result<(Decision, Option<Source>), UnknownDecision> {
    let (name, file) = match text.split_once('=') {
        Some((name, file)) => (name, file.parse().ok()),
        None => (text, None),
    };
    Ok((name.parse()?, file))
}

/// `pacer policy configmap`.
pub(crate) fn configmap(arguments: &Arguments) -> Result<Report> {
    ensure!(
        is_subdomain(&arguments.name),
        "--name {:?} can't be the name of a ConfigMap: Kubernetes allows up to 253 lower-case letters, digits, `-` and `.`, and a letter or digit at \
         each end",
        arguments.name
    );
    if let Some(namespace) = &arguments.namespace {
        ensure!(
            is_label(namespace),
            "--namespace {namespace:?} can't be the name of a namespace: Kubernetes allows up to 63 lower-case letters, digits and `-`, and a letter or \
             digit at each end"
        );
    }
    let jail = jail()?;
    let mode = if arguments.shadow { Mode::Shadow } else { Mode::Enforce };
    let mut modules = Modules { plain: arguments.plain, binary_data: BTreeMap::new(), texts: BTreeMap::new() };
    let mut lines = String::new();
    let mut notes = String::new();
    let assignments = assignments(arguments, &jail)?;
    without_effect(arguments, &assignments)?;
    for (decision, candidate) in assignments {
        let settings = settings_of(arguments, decision)?;
        let limits = Limits::default();
        let fits = candidate.policy.validate_settings(&jail, &settings, &limits);
        let fits = fits.and_then(|()| candidate.policy.rehearse(&jail, decision, &settings, &limits));
        fits.map_err(|error| refused(&candidate.source, &error))?;
        let module = modules.add(&candidate)?;
        lines.push_str(&format!("{decision}:\n  module: {module}\n  mode: {mode}\n  settings: {settings}\n"));
        notes.push_str(&format!("{decision}: {} in {mode} mode\n", candidate.policy));
    }
    let mut data = BTreeMap::from([(FILE.to_owned(), lines)]);
    data.append(&mut modules.texts);
    // The operator's own reader has the last word.
    Bundle::read(&jail, &data, &modules.binary_data)
        .context("the set that was made is refused, which is a mistake of this command")?;
    let size = data.values().map(String::len).chain(modules.binary_data.values().map(Vec::len)).sum::<usize>();
    ensure!(
        size <= COMPRESSED_BYTES,
        "the ConfigMap would have {} and may have {}: build the policies smaller, or give each ConfigMap fewer decisions by --decision",
        table::bytes(size),
        table::bytes(COMPRESSED_BYTES),
    );
    notes.push_str(&format!("{} of {} that a ConfigMap may have\n", table::bytes(size), table::bytes(COMPRESSED_BYTES)));
    if size > CLIENT_SIDE_BYTES {
        notes.push_str("too large for a plain `kubectl apply`: use `kubectl apply --server-side -f -`, or create and replace\n");
    }
    Ok(Report { text: manifest(arguments, &data, &modules.binary_data), notes, failure: None })
}

/// A policy that was given on the command line.
struct Candidate {
    source: Source,
    component: Vec<u8>,
    policy: Policy,
}

impl Candidate {
    fn load(jail: &Jail, source: &Source) -> Result<Self> {
        let component = source.read(jail)?;
        let policy = Policy::load(jail, &component).map_err(|error| refused(source, &error))?;
        Ok(Self { source: source.clone(), component, policy })
    }
}

/// Who takes which decision.
fn assignments(arguments: &Arguments, jail: &Jail) -> Result<BTreeMap<Decision, std::rc::Rc<Candidate>>> {
    let mut taken = BTreeMap::new();
    for (decision, source) in &arguments.decisions {
        let Some(source) = source else { continue };
        let candidate = Candidate::load(jail, source)?;
        ensure!(candidate.policy.takes(*decision), "{source} does not take the decision {decision}");
        ensure!(taken.insert(*decision, std::rc::Rc::new(candidate)).is_none(), "--decision {decision} is given twice");
    }
    let named = taken.len();
    let mut offered = Vec::new();
    let wanted =
        |decision: &Decision| arguments.decisions.is_empty() || arguments.decisions.iter().any(|(only, _)| only == decision);
    for source in &arguments.files {
        let candidate = std::rc::Rc::new(Candidate::load(jail, source)?);
        offered.push(format!("{source} takes {} only", takes(&candidate.policy)));
        let all = candidate.policy.decisions();
        // Whoever has jobs run again says so: a policy that also takes other decisions does not bring it along.
        let (alone, named) = (all.len() == 1, !arguments.decisions.is_empty());
        let brought = |decision: &Decision| alone || named || *decision != Decision::Recover;
        for decision in all.into_iter().filter(wanted).filter(brought) {
            match taken.get(&decision) {
                None => {
                    taken.insert(decision, std::rc::Rc::clone(&candidate));
                }
                Some(_) if arguments.decisions.iter().any(|(only, file)| *only == decision && file.is_some()) => {}
                Some(other) => {
                    bail!("{} and {source} both take {decision}: say which one by --decision {decision}={source}", other.source)
                }
            }
        }
    }
    ensure!(!(arguments.files.is_empty() && named == 0), "no policy is given: name a file, builtin, or --decision DECISION=FILE");
    let asked: Vec<&str> = arguments.decisions.iter().map(|(decision, _)| decision.as_str()).collect();
    ensure!(!taken.is_empty(), "--decision asks for {}, and {}", asked.join(", "), offered.join("; "));
    Ok(taken)
}

/// What was asked for and would change nothing is a mistake.
fn without_effect(arguments: &Arguments, assignments: &BTreeMap<Decision, std::rc::Rc<Candidate>>) -> Result<()> {
    let mut general = Vec::new();
    let mut own = Vec::new();
    for text in &arguments.settings {
        let Some(decision) = text.split_once('=').and_then(|(name, _)| name.parse::<Decision>().ok()) else {
            general.push(text);
            continue;
        };
        ensure!(
            assignments.contains_key(&decision),
            "--settings {text} has no effect: none of the policies takes {decision} here"
        );
        ensure!(!own.contains(&decision), "--settings {text} has no effect: {decision} has settings before it");
        own.push(decision);
    }
    if let [_, second, ..] = general.as_slice() {
        bail!("--settings {second} has no effect: there are settings for all policies before it");
    }
    if let ([all], true) = (general.as_slice(), assignments.keys().all(|decision| own.contains(decision))) {
        bail!("--settings {all} has no effect: every decision has settings of its own");
    }
    let modules = assignments.values().any(|candidate| candidate.source != Source::Builtin && !candidate.source.is_text());
    ensure!(modules || !arguments.plain, "--plain has no effect: builtin is no module, and texts are not compressed");
    for file in &arguments.files {
        let used = assignments.values().any(|candidate| candidate.source == *file);
        ensure!(
            used,
            "{file} has no effect: --decision gives every decision that it takes to another policy, or names none of them"
        );
    }
    Ok(())
}

/// The settings for one decision: its own, else those for all.
fn settings_of(arguments: &Arguments, decision: Decision) -> Result<String> {
    let own = arguments.settings.iter().find_map(|text| match text.split_once('=') {
        Some((name, file)) if name == decision.as_str() => Some(file),
        _ => None,
    });
    let named = |text: &str| text.split_once('=').is_some_and(|(name, _)| name.parse::<Decision>().is_ok());
    let all = arguments.settings.iter().map(String::as_str).find(|text| !named(text));
    settings::read(own.or(all).map(std::path::Path::new))
}

/// What goes into `binaryData`, and texts, which go into `data`.
struct Modules {
    plain: bool,
    binary_data: BTreeMap<String, Vec<u8>>,
    texts: BTreeMap<String, String>,
}

impl Modules {
    /// Adds a policy once, and returns its key.
    fn add(&mut self, candidate: &Candidate) -> Result<String> {
        if candidate.source == Source::Builtin {
            return Ok(BUILTIN.to_owned());
        }
        let mut key = key_of(&candidate.policy, self.plain);
        let text = text::text_of(&candidate.component);
        let bytes = match text {
            Some(_) => Vec::new(),
            None if self.plain => candidate.component.clone(),
            None => pack(&candidate.component),
        };
        let taken = match text {
            Some(text) => self.texts.get(&key).is_some_and(|known| known != text),
            None => self.binary_data.get(&key).is_some_and(|known| *known != bytes),
        };
        if taken {
            // Two policies of one name differ in what they are made of.
            let digest = candidate.policy.digest().hex(12);
            let (name, ending) = ending(&key);
            key = format!("{name}-{digest}{ending}");
        }
        match text {
            Some(text) => drop(self.texts.insert(key.clone(), text.to_owned())),
            None => drop(self.binary_data.insert(key.clone(), bytes)),
        }
        Ok(key)
    }
}

/// The key of a policy's module.
pub(super) fn key_of(policy: &Policy, plain: bool) -> String {
    let ending = match policy.interpreted() {
        Some(_) => "js",
        None if plain => "wasm",
        None => "wasm.gz",
    };
    format!("{}.{ending}", key_named(&policy.description().name))
}

/// The front of a key for a policy of this name: Kubernetes takes certain letters, and no key that leads upwards as a path.
fn key_named(name: &str) -> String {
    let name: String = name.chars().map(|char| if keyable(char) { char } else { '-' }).take(KEY_FRONT).collect();
    match name.trim_start_matches('.') {
        "" => "policy".to_owned(),
        rest => rest.to_owned(),
    }
}

/// A key before and from the ending that says what it is.
pub(super) fn ending(key: &str) -> (&str, &str) {
    let at = key.find(".wasm").or_else(|| text::is_text(key).then(|| key.rfind('.')).flatten());
    at.map_or((key, ""), |at| key.split_at(at))
}

/// What Kubernetes allows in the keys of a ConfigMap.
fn keyable(char: char) -> bool {
    char.is_ascii_alphanumeric() || "-._".contains(char)
}

/// Whether a block of YAML says a text byte for byte: it takes lines that all end, of which the first and the last have something on them.
fn is_block(text: &str) -> bool {
    let plain = !text.contains(|char: char| char.is_control() && char != '\n' || "\u{85}\u{2028}\u{2029}\u{feff}".contains(char));
    plain && text.ends_with('\n') && !text.ends_with("\n\n") && !text.starts_with(char::is_whitespace)
}

/// The name of an object as YAML; quoted where it could be taken for a number, a date or a truth value.
fn scalar(name: &str) -> String {
    let is_plain = name.starts_with(|first: char| first.is_ascii_lowercase()) && !WORDS.contains(&name);
    if is_plain { name.to_owned() } else { serde_json::Value::from(name).to_string() }
}

fn manifest(arguments: &Arguments, data: &BTreeMap<String, String>, binary_data: &BTreeMap<String, Vec<u8>>) -> String {
    let mut text = format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {}\n", scalar(&arguments.name));
    if let Some(namespace) = &arguments.namespace {
        text.push_str(&format!("  namespace: {}\n", scalar(namespace)));
    }
    text.push_str("data:\n");
    for (key, value) in data {
        if !is_block(value) {
            text.push_str(&format!("  {key}: {}\n", serde_json::Value::from(value.as_str())));
            continue;
        }
        text.push_str(&format!("  {key}: |\n"));
        value.lines().for_each(|line| text.push_str(&format!("    {line}\n")));
    }
    if !binary_data.is_empty() {
        text.push_str("binaryData:\n");
    }
    for (key, bytes) in binary_data {
        text.push_str(&format!("  {key}: {}\n", STANDARD.encode(bytes)));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn arguments(files: &[Source]) -> Arguments {
        Arguments {
            files: files.to_vec(),
            name: DEFAULT_NAME.to_owned(),
            namespace: Some("ci".to_owned()),
            decisions: Vec::new(),
            settings: Vec::new(),
            shadow: false,
            plain: false,
        }
    }

    /// Keeps every runner; enough of a policy to be put into force.
    fn keeper(directory: &std::path::Path, name: &str) -> Source {
        let text = format!(
            r#"(module
                (memory (export "memory") 1)
                (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 4096))
                (func (export "pacer:policy/lifecycle@0.1.0#describe") (result i32) (i32.const 1024))
                (func (export "pacer:policy/lifecycle@0.1.0#validate-settings") (param i32 i32) (result i32) (i32.const 2048))
                (func (export "pacer:policy/scale-down@0.1.0#select") (param i32) (result i32) (i32.const 2048))
                (data (i32.const 1024) "\0c\08\00\00\04\00\00\00\0c\08\00\00\01\00\00\00")
                (data (i32.const 2060) "{name}"))"#
        );
        let file = directory.join(format!("{name}.wasm"));
        std::fs::write(&file, jail().unwrap().componentize(text.as_bytes()).unwrap()).unwrap();
        Source::File(file)
    }

    /// What the operator reads from the manifest.
    fn read_back(text: &str) -> (Value, Bundle) {
        let manifest: Value = serde_saphyr::from_str(text).unwrap();
        let data = serde_json::from_value(manifest["data"].clone()).unwrap();
        let binary = manifest["binaryData"].as_object().into_iter().flatten();
        let binary = binary.map(|(key, value)| (key.clone(), STANDARD.decode(value.as_str().unwrap()).unwrap())).collect();
        let bundle = Bundle::read(&jail().unwrap(), &data, &binary).unwrap();
        (manifest, bundle)
    }

    #[test]
    fn the_manifest_is_what_the_operator_reads() {
        let directory = tempfile::tempdir().unwrap();
        let settings = directory.path().join("settings.yaml");
        std::fs::write(&settings, "idleBucketSeconds: 30\n").unwrap();
        let mut arguments = arguments(&[keeper(directory.path(), "keep"), Source::Builtin]);
        arguments.decisions = vec![(Decision::ScaleDown, None)];
        assert!(configmap(&arguments).unwrap_err().to_string().contains("both take scale-down"));
        arguments.decisions = vec![(Decision::ScaleDown, arguments.files.first().cloned()), (Decision::Restart, None)];
        arguments.settings = vec![format!("restart={}", settings.display())];
        let report = configmap(&arguments).unwrap();
        let (manifest, bundle) = read_back(&report.text);
        assert_eq!(manifest["metadata"]["namespace"], "ci");
        assert_eq!(manifest["binaryData"].as_object().map(serde_json::Map::len), Some(1));
        let entries: Vec<(Decision, Mode, &str)> =
            bundle.entries().map(|(decision, mode, entry)| (decision, mode, &*entry.settings)).collect();
        let expected =
            [(Decision::ScaleDown, Mode::Enforce, "{}"), (Decision::Restart, Mode::Enforce, r#"{"idleBucketSeconds":30}"#)];
        assert_eq!(entries, expected);
        assert!(report.notes.contains("of 1.0 MiB"), "{}", report.notes);
    }

    #[test]
    fn shadow_and_plain() {
        let directory = tempfile::tempdir().unwrap();
        for settings in [vec!["capacity=a.yaml"], vec!["a.yaml", "b.yaml"], vec!["scale-down=a.yaml", "b.yaml"]] {
            let settings: Vec<String> = settings.into_iter().map(str::to_owned).collect();
            let arguments = Arguments { settings, ..arguments(&[keeper(directory.path(), "keep")]) };
            assert!(configmap(&arguments).unwrap_err().to_string().contains("has no effect"), "{:?}", arguments.settings);
        }
        let plain = Arguments { plain: true, ..arguments(&[Source::Builtin]) };
        assert!(configmap(&plain).unwrap_err().to_string().contains("--plain has no effect"));
        let arguments = Arguments { shadow: true, plain: true, ..arguments(&[keeper(directory.path(), "keep")]) };
        let (_, bundle) = read_back(&configmap(&arguments).unwrap().text);
        assert!(bundle.entry(Decision::ScaleDown, Mode::Shadow).is_some());
    }

    #[test]
    fn names_that_kubernetes_refuses_are_refused_and_others_stay_texts() {
        let directory = tempfile::tempdir().unwrap();
        let with = |name: &str, namespace: &str| Arguments {
            name: name.to_owned(),
            namespace: Some(namespace.to_owned()),
            ..arguments(&[keeper(directory.path(), "keep")])
        };
        for name in ["", "Policies", "a_b", "-a", "a\n  labels: {}", &"x".repeat(254)] {
            let error = configmap(&with(name, "ci")).unwrap_err().to_string();
            assert!(error.starts_with("--name ") && error.contains("can't be the name of a ConfigMap"), "{error}");
        }
        for namespace in ["", "CI", "a.b", &"x".repeat(64)] {
            let error = configmap(&with("policies", namespace)).unwrap_err().to_string();
            assert!(error.starts_with("--namespace ") && error.contains("can't be the name of a namespace"), "{error}");
        }
        for (name, namespace) in [("policies", "ci"), ("123", "0x1f"), ("1.5", "1e5"), ("true", "no"), ("2026-11-29", "null")] {
            let (manifest, _) = read_back(&configmap(&with(name, namespace)).unwrap().text);
            assert_eq!((&manifest["metadata"]["name"], &manifest["metadata"]["namespace"]), (&name.into(), &namespace.into()));
        }
        assert_eq!(["web", "y", "7", "yes-1"].map(scalar), ["web", "\"y\"", "\"7\"", "yes-1"]);
    }

    #[test]
    fn keys_are_such_as_kubernetes_takes() {
        let names = ["keep", "..", "../a b", "", "ä", ".hidden"];
        assert_eq!(names.map(key_named), ["keep", "policy", "-a-b", "policy", "-", "hidden"]);
        assert_eq!(key_named(&"x".repeat(400)).len(), KEY_FRONT);
    }

    #[test]
    fn settings_that_the_policy_does_not_take_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("settings.yaml");
        for settings in ["idleBucketSeconds: -1", "idleBucket: 1", "idleBucketSeconds: x"] {
            std::fs::write(&file, settings).unwrap();
            let wrong = Arguments { settings: vec![file.display().to_string()], ..arguments(&[Source::Builtin]) };
            let error = configmap(&wrong).unwrap_err().to_string();
            assert!(error.contains("PolicySettingsInvalid"), "{settings}: {error}");
        }
    }

    #[test]
    fn jobs_run_again_only_where_that_is_named() {
        let decisions = |arguments: &Arguments| {
            let (_, bundle) = read_back(&configmap(arguments).unwrap().text);
            bundle.entries().map(|(decision, ..)| decision).collect::<Vec<_>>()
        };
        let mut arguments = arguments(&[Source::Builtin]);
        assert_eq!(decisions(&arguments), [Decision::ScaleDown, Decision::Restart, Decision::Capacity]);
        arguments.decisions = vec![(Decision::Recover, None)];
        assert_eq!(decisions(&arguments), [Decision::Recover]);
    }

    #[test]
    fn what_is_refused_is_not_printed() {
        let directory = tempfile::tempdir().unwrap();
        let settings = directory.path().join("settings.yaml");
        std::fs::write(&settings, "idleBucket: 30\n").unwrap();
        let wrong = Arguments { settings: vec![settings.display().to_string()], ..arguments(&[Source::Builtin]) };
        let error = configmap(&wrong).unwrap_err().to_string();
        assert!(error.contains("PolicySettingsInvalid") && error.contains("idleBucket"), "{error}");
        assert!(configmap(&arguments(&[])).unwrap_err().to_string().contains("no policy is given"));
    }
}
