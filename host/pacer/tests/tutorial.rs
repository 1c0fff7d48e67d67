//! The commands of docs/policies.md run as they stand.

#![allow(clippy::unwrap_used, clippy::panic, reason = "also in what tests call")]

use std::path::Path;
use std::process::{Command, Output};

const DOCUMENT: &str = include_str!("../../../docs/policies.md");

/// The shell blocks of a section, one after the other.
fn commands(section: &str) -> String {
    let from = DOCUMENT.split_once(&format!("\n## {section}\n")).unwrap_or_else(|| panic!("no section {section}")).1;
    let text = from.split_once("\n## ").map_or(from, |(text, _)| text);
    let blocks = text.split("```sh\n").skip(1).filter_map(|block| block.split_once("\n```"));
    blocks.map(|(commands, _)| format!("{commands}\n")).collect()
}

/// Runs a script with `pacer` on the path.
fn run(directory: &Path, script: &str) -> Output {
    let binary = Path::new(env!("CARGO_BIN_EXE_pacer"));
    let path = format!("{}:{}", binary.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let script = format!("set -euxo pipefail\n{script}");
    Command::new("bash").args(["-c", &script]).current_dir(directory).env("PATH", path).output().unwrap()
}

#[test]
fn ten_minutes_to_a_policy() {
    let directory = tempfile::tempdir().unwrap();
    let ran = run(directory.path(), &commands("Ten minutes to a policy of your own"));
    let (out, said) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{out}\n{said}");
    for expected in
        ["3 passed, 0 failed", "4 passed, 0 failed", "linux-b  40 s old", "accepted", "of 4 answers are the same", "per item"]
    {
        assert!(out.contains(expected), "no {expected:?} in:\n{out}\n{said}");
    }
    for (file, mode) in [("shadow.yaml", "mode: shadow"), ("policies.yaml", "mode: enforce")] {
        let manifest = std::fs::read_to_string(directory.path().join("keep-caches-warm").join(file)).unwrap();
        assert!(manifest.contains("kind: ConfigMap") && manifest.contains(mode), "{manifest}");
    }
}

#[test]
fn a_policy_that_is_a_text_needs_no_compiler() {
    let directory = tempfile::tempdir().unwrap();
    let ran = run(directory.path(), &commands("JavaScript as text"));
    let (out, said) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{out}\n{said}");
    assert!(out.contains("\naccepted\n") && out.contains("4 passed, 0 failed"), "{out}\n{said}");
    let manifest = std::fs::read_to_string(directory.path().join("keep-caches-warm/shadow.yaml")).unwrap();
    assert!(manifest.contains("export function scaleDown") && manifest.contains("mode: shadow"), "{manifest}");
}

#[test]
fn a_failure_is_seen_by_scripts() {
    let directory = tempfile::tempdir().unwrap();
    let case = r#"{"decision":"scale-down","request":{"candidates":[{"name":"a"}],"surplus":1},"answer":[]}"#;
    std::fs::write(directory.path().join("case.json"), case).unwrap();
    let ran = run(directory.path(), "pacer policy test builtin case.json");
    assert!(!ran.status.success());
    assert!(String::from_utf8_lossy(&ran.stdout).contains("answer: expected 0 items, got 1"));
    let missing = run(directory.path(), "pacer policy check nowhere.wasm");
    assert!(!missing.status.success());
    assert!(String::from_utf8_lossy(&missing.stderr).contains("nowhere.wasm can't be read"));
}

#[test]
fn every_verb_is_in_the_document() {
    let help = Command::new(env!("CARGO_BIN_EXE_pacer")).args(["policy", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let verbs = help.lines().skip_while(|line| !line.starts_with("Commands:")).skip(1).take_while(|line| !line.is_empty());
    let verbs =
        verbs.filter_map(|line| line.strip_prefix("  ")?.split(' ').next()).filter(|verb| !verb.is_empty() && *verb != "help");
    let mut count = 0;
    for verb in verbs {
        assert!(DOCUMENT.contains(&format!("| `pacer policy {verb} ")), "{verb} is not in the table of commands");
        count += 1;
    }
    assert!(count >= 9, "{help}");
}
