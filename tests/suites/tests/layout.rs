//! The directions of dependency that ARCHITECTURE.md draws, and that the generated files are the generated ones.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Direct dependencies, development ones left out, of every crate of the workspace.
fn dependencies() -> Result<BTreeMap<String, BTreeSet<String>>> {
    let output = Command::new(env!("CARGO")).args(["metadata", "--format-version=1", "--no-deps", "--offline"]).output()?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata.get("packages").and_then(Value::as_array).context("packages")?;
    Ok(packages
        .iter()
        .map(|package| {
            let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
            let names = package.get("dependencies").and_then(Value::as_array).into_iter().flatten();
            // A dependency of the ordinary kind has none.
            let names = names.filter(|dependency| text(dependency, "kind").is_none());
            let names = names.filter_map(|dependency| text(dependency, "name")).collect();
            (text(package, "name").unwrap_or_default(), names)
        })
        .collect())
}

#[test]
fn only_one_crate_knows_each_engine() -> Result<()> {
    let crates = dependencies()?;
    let who = |name: &str| -> Vec<&str> {
        crates.iter().filter(|(_, names)| names.contains(name)).map(|(package, _)| package.as_str()).collect()
    };
    assert_eq!(who("wasmtime"), ["pacer-compiler", "pacer-policy"]);
    assert_eq!(who("octocrab"), ["pacer-github"]);
    for name in who("kube") {
        let allowed = ["pacer", "pacer-api", "pacer-operator", "pacer-harness", "pacer-suites", "pacer-demo"];
        assert!(allowed.contains(&name), "{name} may not know kube");
    }
    Ok(())
}

#[test]
fn the_core_does_no_input_or_output() -> Result<()> {
    let crates = dependencies()?;
    let core = crates.get("pacer-core").context("pacer-core")?;
    let allowed: BTreeSet<String> = ["jiff", "serde", "serde_json", "thiserror"].map(str::to_owned).into();
    assert!(core.is_subset(&allowed), "pacer-core depends on {:?}", core.difference(&allowed).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn the_operator_is_not_linked_into_what_tests_it() -> Result<()> {
    let crates = dependencies()?;
    for name in ["pacer-harness", "pacer-suites", "pacer-demo"] {
        let names = crates.get(name).context(name)?;
        for host in ["pacer-operator", "pacer-core", "pacer-github", "pacer-policy"] {
            assert!(!names.contains(host), "{name} depends on {host}");
        }
    }
    Ok(())
}

#[test]
fn pacer_prints_the_definitions_that_are_shipped() -> Result<()> {
    let binary = std::env::var("PACER_BIN")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/debug/pacer").to_owned());
    let output = Command::new(binary).arg("crds").output().context("running pacer crds; build it first: cargo build -p pacer")?;
    let printed = String::from_utf8(output.stdout)?;
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/crds");
    for entry in std::fs::read_dir(directory)? {
        let file = std::fs::read_to_string(entry?.path())?;
        let body = file.lines().filter(|line| !line.starts_with('#') && *line != "---").collect::<Vec<_>>().join("\n");
        ensure!(
            printed.contains(body.trim()),
            "a file in deploy/crds is not what `pacer crds` prints; write it anew with `make golden`"
        );
    }
    Ok(())
}
