//! `new`: a policy to start from. The sources are those of `examples/policies`, which are built and tested.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::default_set::OPERATOR_NAMESPACE;
use crate::report::Report;

/// Name of the example that becomes the new policy.
const EXAMPLE: &str = "newest-first";

/// Arguments of `pacer policy new`.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Name of the policy and of its new directory: lower-case letters, digits and dashes.
    #[arg(value_parser = name)]
    name: String,
    /// Language.
    #[arg(long, value_enum, value_name = "rust|go|js|js-text|ts|c|zig|wat")]
    lang: Language,
    /// Implements all four decisions instead of only scale-down.
    #[arg(long)]
    all: bool,
    /// Parent of the new directory.
    #[arg(long, default_value = ".", value_name = "DIRECTORY")]
    directory: PathBuf,
}

/// Languages with a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Language {
    /// With the SDK; needs rustup's target wasm32-unknown-unknown.
    Rust,
    /// Go's own toolchain, 1.24 or newer; no TinyGo.
    Go,
    /// JavaScript on QuickJS; needs Node and npm.
    Js,
    /// JavaScript as text, which pacer runs itself; needs nothing.
    JsText,
    /// TypeScript on QuickJS; needs Node and npm.
    Ts,
    /// clang and lld.
    C,
    /// Zig 0.17.
    Zig,
    /// WebAssembly text; needs nothing.
    Wat,
}

/// A file of a template: where it goes, and what is in it.
type File = (&'static str, &'static str);

macro_rules! example {
    ($path:literal) => {
        include_str!(concat!("../../../../examples/policies/", $path))
    };
}

macro_rules! sdk {
    ($($path:literal),* $(,)?) => {
        &[$((concat!("pacer/sdk/", $path), include_str!(concat!("../../../../policies/sdk/", $path)))),*]
    };
}

const CONTRACT: &[File] = &[
    ("wit/policy/v0.1.0/policy.wit", include_str!("../../../../wit/policy/v0.1.0/policy.wit")),
    ("wit/policy/v0.2.0/policy.wit", include_str!("../../../../wit/policy/v0.2.0/policy.wit")),
];

/// Cases that the example passes in every language.
const CASES: &[File] = &[
    ("cases/youngest-goes.json", example!("cases/youngest-goes.json")),
    ("cases/same-age.json", example!("cases/same-age.json")),
    ("cases/nobody-there.json", example!("cases/nobody-there.json")),
];

/// Cases of the example that makes all decisions.
const CASES_OF_ALL: &[File] = &[
    ("cases/dead-jobs.json", example!("all/cases/dead-jobs.json")),
    ("cases/ended-runners.json", example!("all/cases/ended-runners.json")),
];

/// What `one_per_job` plans, the same in each of these languages.
const CASES_OF_CAPACITY: &[File] = &[
    ("cases/beyond-the-maximum.json", example!("all/cases/beyond-the-maximum.json")),
    ("cases/held-reservations-stay.json", example!("all/cases/held-reservations-stay.json")),
    ("cases/how-long-it-is-held.json", example!("all/cases/how-long-it-is-held.json")),
    ("cases/jobs-are-given-up.json", example!("all/cases/jobs-are-given-up.json")),
    ("cases/many-jobs-and-reservations.json", example!("all/cases/many-jobs-and-reservations.json")),
    ("cases/one-runner-per-job.json", example!("all/cases/one-runner-per-job.json")),
];

/// What it plans in JavaScript, where 1,000 jobs would not fit into the limits of a call if it looked at what is held.
const CASES_ANEW: &[File] = &[("cases/one-runner-planned-anew.json", example!("all/cases-anew/one-runner-planned-anew.json"))];

/// Cases for the languages in which the example has settings.
const CASES_WITH_SETTINGS: &[File] = &[("cases/idle-long-enough.json", example!("cases-with-settings/idle-long-enough.json"))];

const RUST: &[File] = &[
    ("Cargo.toml", example!("rust/Cargo.toml")),
    ("cases/settings-are-checked.json", example!("rust/cases/settings-are-checked.json")),
];
const RUST_SOURCE: File = ("src/lib.rs", example!("rust/src/lib.rs"));
const RUST_ALL: File = ("src/lib.rs", example!("all/rust/src/lib.rs"));

const SDK: &[File] = sdk![
    "Cargo.toml",
    "build.rs",
    "src/bindings.rs",
    "src/capacity.rs",
    "src/capacity/per_job.rs",
    "src/cases.rs",
    "src/contract.rs",
    "src/export.rs",
    "src/json.rs",
    "src/lib.rs",
    "src/lifecycle.rs",
    "src/limits.rs",
    "src/log.rs",
    "src/order.rs",
    "src/panic.rs",
    "src/recover.rs",
    "src/recover_bindings.rs",
    "src/restart.rs",
    "src/scale_down.rs",
    "src/scenario.rs",
    "src/types.rs",
];

const GO: &[File] = &[
    ("go.mod", example!("go/go.mod")),
    ("pacer/pacer.go", example!("go/pacer/pacer.go")),
    ("pacer/read.go", example!("go/pacer/read.go")),
    ("pacer/settings.go", example!("go/pacer/settings.go")),
    ("pacer/internal/memory/memory.go", example!("go/pacer/internal/memory/memory.go")),
    ("pacer/capacity/capacity.go", example!("go/pacer/capacity/capacity.go")),
    ("pacer/capacity/perjob.go", example!("go/pacer/capacity/perjob.go")),
    ("pacer/recovery/recovery.go", example!("go/pacer/recovery/recovery.go")),
    ("pacer/restart/restart.go", example!("go/pacer/restart/restart.go")),
    ("pacer/scaledown/scaledown.go", example!("go/pacer/scaledown/scaledown.go")),
];
const GO_SOURCE: File = ("policy.go", example!("go/policy.go"));
const GO_ALL: File = ("policy.go", example!("all/go/policy.go"));

const JS: &[File] = &[("package.json", example!("js/package.json")), ("policy.js", example!("js/policy.js"))];

const JS_ALL: &[File] = &[("package.json", example!("all/js/package.json")), ("policy.js", example!("all/js/policy.js"))];

const JS_TEXT: &[File] = &[("policy.js", example!("js-text/policy.js"))];
const JS_TEXT_ALL: &[File] = &[("policy.js", example!("all/js-text/policy.js"))];

const TS: &[File] = &[("tsconfig.json", example!("ts/tsconfig.json")), ("pacer.d.ts", example!("ts/pacer.d.ts"))];
const TS_SOURCE: &[File] = &[("package.json", example!("ts/package.json")), ("policy.ts", example!("ts/policy.ts"))];
const TS_ALL: &[File] = &[("package.json", example!("all/ts/package.json")), ("policy.ts", example!("all/ts/policy.ts"))];

const ZIG: File = ("pacer.zig", example!("zig/pacer.zig"));
const ZIG_SOURCE: File = ("policy.zig", example!("zig/policy.zig"));
const ZIG_ALL: File = ("policy.zig", example!("all/zig/policy.zig"));

const C: File = ("pacer.h", example!("c/pacer.h"));
const C_SOURCE: File = ("policy.c", example!("c/policy.c"));
const C_ALL: File = ("policy.c", example!("all/c/policy.c"));

const WAT: &[File] = &[("policy.wat", example!("wat/policy.wat"))];

/// What the SDK's manifest inherits, and how a policy is built small.
const WORKSPACE: &str = r#"
[workspace]
members = ["pacer/sdk"]

[workspace.package]
version = "0.1.0"
edition = "2024"
rust-version = "1.95"
license = "Apache-2.0"
publish = false

[workspace.lints]

[workspace.dependencies]
anyhow = "1"
serde = { version = "1", features = ["derive"] }
serde_json = "1"
wit-bindgen = { version = "=0.61.1", default-features = false, features = ["macros", "realloc"] }

[profile.release]
opt-level = "s"
lto = "fat"
codegen-units = 1
panic = "abort"
# Traps are told by the names of functions.
strip = "debuginfo"
"#;

impl Language {
    /// The files of a policy that makes `all` decisions, or one.
    fn files(self, all: bool) -> Vec<File> {
        let own: &[&[File]] = match (self, all) {
            (Self::Rust, false) => &[RUST, &[RUST_SOURCE], SDK, CONTRACT, CASES_WITH_SETTINGS],
            (Self::Rust, true) => &[RUST, &[RUST_ALL], SDK, CONTRACT, CASES_WITH_SETTINGS, CASES_OF_ALL, CASES_OF_CAPACITY],
            (Self::Go, false) => &[GO, &[GO_SOURCE], CASES_WITH_SETTINGS],
            (Self::Go, true) => &[GO, &[GO_ALL], CASES_WITH_SETTINGS, CASES_OF_ALL, CASES_OF_CAPACITY],
            (Self::Js, false) => &[JS, CONTRACT, CASES_WITH_SETTINGS],
            (Self::Js, true) => &[JS_ALL, CONTRACT, CASES_WITH_SETTINGS, CASES_OF_ALL, CASES_ANEW],
            (Self::JsText, false) => &[JS_TEXT, CONTRACT, CASES_WITH_SETTINGS],
            (Self::JsText, true) => &[JS_TEXT_ALL, CONTRACT, CASES_WITH_SETTINGS, CASES_OF_ALL, CASES_ANEW],
            (Self::Ts, false) => &[TS, TS_SOURCE, CONTRACT, CASES_WITH_SETTINGS],
            (Self::Ts, true) => &[TS, TS_ALL, CONTRACT, CASES_WITH_SETTINGS, CASES_OF_ALL, CASES_ANEW],
            (Self::C, false) => &[&[C, C_SOURCE]],
            (Self::C, true) => &[&[C, C_ALL], CASES_OF_ALL, CASES_OF_CAPACITY],
            (Self::Zig, false) => &[&[ZIG, ZIG_SOURCE], CASES_WITH_SETTINGS],
            (Self::Zig, true) => &[&[ZIG, ZIG_ALL], CASES_WITH_SETTINGS, CASES_OF_ALL, CASES_OF_CAPACITY],
            (Self::Wat, _) => &[WAT],
        };
        own.iter().chain(&[CASES]).flat_map(|files| files.iter().copied()).collect()
    }

    /// The file that commands take and a policy set names.
    fn module(self, name: &str) -> String {
        match self {
            Self::JsText => "policy.js".to_owned(),
            _ => format!("{name}.wasm"),
        }
    }

    /// The commands that make `NAME.wasm`, and the one that tests natively first, where there is one.
    fn build(self, name: &str) -> Vec<String> {
        let crate_name = name.replace('-', "_");
        let lines: &[&str] = match self {
            Self::Rust => &[
                "cargo test",
                "cargo build --release --target wasm32-unknown-unknown",
                "pacer policy componentize target/wasm32-unknown-unknown/release/CRATE.wasm -o NAME.wasm",
            ],
            Self::Go => &[
                "GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -trimpath -ldflags=-w -o NAME.core.wasm .",
                "pacer policy componentize NAME.core.wasm -o NAME.wasm",
            ],
            Self::JsText => &["pacer policy check policy.js"],
            Self::Js | Self::Ts => &["npm install", "npm run build"],
            Self::C => &[
                "clang --target=wasm32 -g -Os -Wall -nostdlib -Wl,--no-entry,-z,stack-size=16384 policy.c -o NAME.core.wasm",
                "pacer policy componentize NAME.core.wasm -o NAME.wasm",
            ],
            Self::Zig => &[
                "zig build-exe policy.zig -target wasm32-freestanding -O ReleaseSmall -fno-entry -rdynamic -fno-strip --stack 65536 -femit-bin=NAME.core.wasm",
                "pacer policy componentize NAME.core.wasm -o NAME.wasm",
            ],
            Self::Wat => &["pacer policy componentize policy.wat -o NAME.wasm"],
        };
        lines.iter().map(|line| line.replace("CRATE", &crate_name).replace("NAME", name)).collect()
    }
}

/// Names that every toolchain and a ConfigMap take.
fn name(text: &str) -> Result<String, String> {
    let starts_well = text.starts_with(|char: char| char.is_ascii_lowercase());
    let sound =
        text.chars().all(|char| char.is_ascii_lowercase() || char.is_ascii_digit() || char == '-') && !text.ends_with('-');
    if starts_well && sound && text.len() <= 63 {
        return Ok(text.to_owned());
    }
    Err("use a to z, digits and dashes, beginning with a letter, at most 63".to_owned())
}

/// `pacer policy new`.
pub(crate) fn new(arguments: &Arguments) -> Result<Report> {
    let Arguments { name, lang, all, directory } = arguments;
    ensure!(
        !(*all && *lang == Language::Wat),
        "the example in WebAssembly text makes one decision: leave out --all, or choose another language"
    );
    let root = directory.join(name);
    let taken = root.read_dir().is_ok_and(|mut entries| entries.next().is_some()) || root.is_file();
    ensure!(!taken, "{} is there already: choose another name, or remove it", root.display());
    for (path, text) in lang.files(*all) {
        write(&root.join(path), &named(path, text, name))?;
    }
    let (build, module) = (lang.build(name), lang.module(name));
    let readme = format!(
        "# {name}\n\nStarts as the example `{EXAMPLE}`: it {}.\n\n```sh\n{}\npacer policy test {module} cases\n```\n",
        if *all { "makes all four decisions" } else { "removes the youngest idle runners" },
        build.join("\n")
    );
    write(&root.join("README.md"), &readme)?;
    let mut text = format!("{} is there. Build and try it:\n\n  cd {}\n", root.display(), root.display());
    for line in build.iter().map(String::as_str).chain([format!("pacer policy test {module} cases").as_str()]) {
        text.push_str(&format!("  {line}\n"));
    }
    // In another namespace it would be a ConfigMap that nobody reads.
    text.push_str(&format!(
        "\nThen compare it with what decides now, for every pool, or put it into force (without --shadow):\n\n  \
         pacer policy configmap {module} --shadow | kubectl -n {OPERATOR_NAMESPACE} apply --server-side -f -\n  \
         pacer policy status\n"
    ));
    Ok(Report::text(text))
}

/// The example's file with the new policy's name. Vendored sources and cases stay as they are.
fn named(path: &str, text: &str, name: &str) -> String {
    if path.starts_with("pacer/sdk/") || path.starts_with("wit/") || path.starts_with("cases/") {
        return text.to_owned();
    }
    let mut text = text.replace(EXAMPLE, name);
    if path == "policy.wat" {
        text = described(&text, name);
    }
    if path == "Cargo.toml" {
        text = text.replace("../../../policies/sdk", "pacer/sdk") + WORKSPACE;
    }
    text
}

/// The text form counts lengths and places by hand, so the new name is padded to the old one's place after the others.
fn described(text: &str, name: &str) -> String {
    let old = format!("\\3c\\04\\00\\00\\{:02x}\\00\\00\\00", EXAMPLE.len());
    let new = format!("\\00\\09\\00\\00\\{:02x}\\00\\00\\00", name.len());
    let data = format!("(data (i32.const 1084) \"{name}\"");
    let moved = format!("(data (i32.const 2304) \"{name}\")\n  (data (i32.const 1084) \"{EXAMPLE}\"");
    text.replace(&old, &new).replace(&data, &moved)
}

fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).with_context(|| format!("{} can't be made", parent.display()))?;
    }
    fs::write(path, text).with_context(|| format!("{} can't be written", path.display()))
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;
    use pacer_policy::Policy;

    use crate::policy::source::jail;

    use super::*;

    fn made(lang: Language, all: bool, name: &str) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let arguments = Arguments { name: name.to_owned(), lang, all, directory: directory.path().to_owned() };
        let report = new(&arguments).unwrap();
        assert!(report.text.contains(&format!("pacer policy test {} cases", lang.module(name))), "{}", report.text);
        assert!(new(&arguments).unwrap_err().to_string().contains("is there already"));
        directory
    }

    #[test]
    fn nothing_of_the_example_is_left() {
        let both = Language::value_variants().iter().flat_map(|lang| [(lang, false), (lang, true)]);
        for (lang, all) in both.filter(|(lang, all)| !(*all && **lang == Language::Wat)) {
            let directory = made(*lang, all, "my-policy");
            for (path, _) in lang.files(all) {
                let text = fs::read_to_string(directory.path().join("my-policy").join(path)).unwrap();
                let padded = path == "policy.wat";
                assert!(padded || !text.contains(EXAMPLE), "{path}");
                assert!(!text.contains("../../../"), "{path}");
            }
        }
    }

    #[test]
    fn the_whole_sdk_comes_along() {
        let mut expected = Vec::new();
        let mut directories = vec![PathBuf::from("src")];
        let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/sdk");
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(sdk.join(&directory)).unwrap() {
                let entry = entry.unwrap();
                let path = directory.join(entry.file_name());
                if entry.file_type().unwrap().is_dir() {
                    directories.push(path);
                } else {
                    expected.push(format!("pacer/sdk/{}", path.display()));
                }
            }
        }
        expected.sort();
        let listed: Vec<&str> = SDK.iter().map(|(path, _)| *path).filter(|path| path.contains("/src/")).collect();
        assert_eq!(listed, expected);
    }

    /// Types that were written by hand name every record and field of the contract, in the language's own style.
    #[test]
    fn hand_written_types_are_those_of_the_contract() {
        let camel = |name: &str, first_upper: bool| {
            let words = name.split('-').enumerate();
            let word = |(place, word): (usize, &str)| match (place, word.split_at(1)) {
                (0, _) if !first_upper => word.to_owned(),
                (_, (first, rest)) => first.to_uppercase() + rest,
            };
            words.map(word).collect::<String>()
        };
        let (ts, zig) = (example!("ts/pacer.d.ts"), example!("zig/pacer.zig"));
        let mut fields = 0;
        for line in CONTRACT[1].1.lines().map(str::trim) {
            if let Some(record) = line.strip_prefix("record ").and_then(|line| line.strip_suffix(" {")) {
                let name = camel(record, true);
                // Each interface has its own request.
                assert!(name == "Request" || ts.contains(&format!("interface {name} {{")), "TypeScript has no {record}");
            } else if let Some((field, _)) = line.split_once(": ").filter(|(field, rest)| {
                rest.ends_with(',')
                    && !rest.contains("func")
                    && field.chars().all(|char| char.is_ascii_lowercase() || char == '-')
            }) {
                fields += 1;
                let name = camel(field, false);
                let there = ts.contains(&format!("  {name}: "));
                assert!(there, "TypeScript has no field {field}");
                // Zig's own record of `describe` is private to it.
                let name = field.replace('-', "_").replace("settings_schema", "schema");
                assert!(zig.contains(&format!("{name}: ")), "Zig has no field {field}");
            }
        }
        assert!(fields > 100, "{fields} fields were found");
    }

    /// What a field may hold is what arrives: `null` where the contract has an option and nowhere else, arrays where it has lists.
    #[test]
    fn types_for_typescript_have_null_and_arrays_where_the_contract_has_options_and_lists() {
        fn typescript(wit: &str) -> String {
            if let Some(inner) = wit.strip_prefix("option<").and_then(|rest| rest.strip_suffix('>')) {
                return typescript(inner) + " | null";
            }
            if let Some(inner) = wit.strip_prefix("list<").and_then(|rest| rest.strip_suffix('>')) {
                return typescript(inner) + "[]";
            }
            match wit {
                "string" => "string".to_owned(),
                "bool" => "boolean".to_owned(),
                "u32" | "u64" | "s32" | "f64" => "number".to_owned(),
                record => record.split('-').map(|word| word[..1].to_uppercase() + &word[1..]).collect(),
            }
        }
        let camel = |field: &str| {
            let mut words = field.split('-');
            let first = words.next().unwrap_or_default().to_owned();
            words.fold(first, |name, word| name + &word[..1].to_uppercase() + &word[1..])
        };
        let simple = |name: &str| name.chars().all(|char| char.is_ascii_alphabetic() || char == '-') && !name.is_empty();
        let fields = |text: &str, end: char, of: &dyn Fn(&str, &str) -> (String, String)| {
            let mut found: std::collections::BTreeMap<String, std::collections::BTreeSet<String>> =
                std::collections::BTreeMap::new();
            let lines = text.lines().map(str::trim).filter_map(|line| line.strip_suffix(end)?.split_once(": "));
            for (name, type_) in lines.filter(|(name, type_)| simple(name) && !type_.contains('(')) {
                let (name, type_) = of(name, type_);
                found.entry(name).or_default().insert(type_);
            }
            found
        };
        // Words of the contract are texts there, and the types name those that there are.
        let words = |type_: &str| {
            let texts = type_.starts_with('"') && type_.split(" | ").all(|word| word.starts_with('"'));
            if texts { "string".to_owned() } else { type_.to_owned() }
        };
        let contract = fields(CONTRACT[1].1, ',', &|name, type_| (camel(name), typescript(type_)));
        let types = fields(example!("ts/pacer.d.ts"), ';', &|name, type_| (name.to_owned(), words(type_)));
        assert!(contract.len() > 70, "{} names were found", contract.len());
        for (name, expected) in contract {
            assert_eq!(types.get(&name), Some(&expected), "{name}");
        }
    }

    #[test]
    fn text_becomes_a_policy_of_the_new_name() {
        for name in ["x", "a-much-longer-name-than-the-example-has"] {
            let directory = made(Language::Wat, false, name);
            let text = fs::read(directory.path().join(name).join("policy.wat")).unwrap();
            let jail = jail().unwrap();
            let component = jail.componentize(&text).unwrap();
            let policy = Policy::load(&jail, &component).unwrap();
            assert_eq!(policy.description().name, name);
        }
    }

    #[test]
    fn names_suit_every_toolchain() {
        for (text, sound) in
            [("a", true), ("keep-2-warm", true), ("", false), ("2warm", false), ("Warm", false), ("warm-", false), ("a/b", false)]
        {
            assert_eq!(name(text).is_ok(), sound, "{text}");
        }
    }
}
