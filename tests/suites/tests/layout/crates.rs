//! The crates of the workspace, and which of them may depend on which.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// One crate of the workspace.
pub(crate) struct Package {
    pub(crate) name: String,
    /// Direct dependencies, those of tests left out.
    pub(crate) dependencies: BTreeSet<String>,
    /// The root files of its library and its programs.
    pub(crate) roots: Vec<PathBuf>,
}

/// Which crates of the workspace a crate may depend on. Crates that are not in the workspace (yet) have no effect.
const DIRECTIONS: [(&str, &[&str]); 23] = [
    ("pacer-contract", &[]),
    ("pacer-core", &["pacer-contract"]),
    ("pacer-api", &["pacer-core"]),
    ("pacer-connect", &[]),
    ("pacer-github", &["pacer-core", "pacer-connect"]),
    ("pacer-registry", &["pacer-core", "pacer-connect"]),
    ("pacer-policy", &["pacer-contract", "pacer-core", "pacer-policy-default", "pacer-policy-sdk"]),
    // The child's side of the protocol, linked into the executable alone.
    ("pacer-jail", &["pacer-core", "pacer-policy"]),
    ("pacer-cluster", &["pacer-core", "pacer-api"]),
    ("pacer-demand", &["pacer-core", "pacer-api", "pacer-github", "pacer-cluster"]),
    ("pacer-policyset", &["pacer-core", "pacer-api", "pacer-policy", "pacer-registry", "pacer-cluster"]),
    (
        "pacer-operator",
        &["pacer-core", "pacer-api", "pacer-github", "pacer-policy", "pacer-cluster", "pacer-demand", "pacer-policyset"],
    ),
    ("pacer-trace", &[]),
    ("pacer-simulate", &["pacer-core", "pacer-policy", "pacer-trace"]),
    (
        "pacer",
        &[
            "pacer-contract",
            "pacer-core",
            "pacer-api",
            "pacer-github",
            "pacer-policy",
            "pacer-policy-sdk",
            "pacer-jail",
            "pacer-cluster",
            "pacer-demand",
            "pacer-policyset",
            "pacer-registry",
            "pacer-operator",
            "pacer-trace",
            "pacer-simulate",
        ],
    ),
    ("pacer-policy-sdk", &["pacer-contract"]),
    // For the tests of every crate.
    ("pacer-fuzz", &[]),
    ("pacer-harness", &[]),
    // The loops over the rules alone, in virtual time.
    ("pacer-laboratory", &["pacer-core"]),
    ("pacer-github-sim", &[]),
    ("pacer-node-sim", &[]),
    ("pacer-suites", &["pacer-api", "pacer-harness", "pacer-github-sim", "pacer-node-sim"]),
    ("pacer-demo", &["pacer-api", "pacer-harness", "pacer-github-sim", "pacer-node-sim"]),
];

/// What policies know, the shipped one and those of the library alike.
const OF_POLICIES: &[&str] = &["pacer-policy-sdk"];

/// Dependencies that few may have, and who these are.
pub(crate) const ENGINES: [(&str, &[&str]); 6] = [
    // What touches the bytes of users.
    ("wasmtime", &["pacer-jail"]),
    ("wasmparser", &["pacer-jail"]),
    // The others make components when they are built, of what is shipped.
    ("wit-component", &["pacer-jail", "pacer-policy", "pacer-policy-sdk"]),
    // A trace is read by whoever asks about it, never by the operator.
    ("ruzstd", &["pacer-jail", "pacer-trace"]),
    ("octocrab", &["pacer-github"]),
    (
        "kube",
        &[
            "pacer",
            "pacer-api",
            "pacer-cluster",
            "pacer-demand",
            "pacer-policyset",
            "pacer-operator",
            "pacer-harness",
            "pacer-node-sim",
            "pacer-suites",
            "pacer-demo",
        ],
    ),
];

/// All packages of the workspace.
pub(crate) fn packages() -> Result<Vec<Package>> {
    let output = Command::new(env!("CARGO")).args(["metadata", "--format-version=1", "--no-deps", "--offline"]).output()?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    metadata.get("packages").and_then(Value::as_array).context("packages")?.iter().map(package).collect()
}

fn package(package: &Value) -> Result<Package> {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let list = |key: &str| package.get(key).and_then(Value::as_array).context(key.to_owned());
    // A dependency of the ordinary kind has none.
    let ordinary = list("dependencies")?.iter().filter(|dependency| text(dependency, "kind").as_deref() != Some("dev"));
    let linked = |target: &&Value| {
        let kinds = target.get("kind").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        kinds.into_iter().any(|kind| ["lib", "bin", "cdylib", "rlib", "proc-macro"].contains(&kind))
    };
    Ok(Package {
        name: text(package, "name").context("name")?,
        dependencies: ordinary.filter_map(|dependency| text(dependency, "name")).collect(),
        roots: list("targets")?.iter().filter(linked).filter_map(|target| text(target, "src_path")).map(PathBuf::from).collect(),
    })
}

/// The crates that a crate may depend on; `None` when the table does not have it.
pub(crate) fn allowed(name: &str) -> Option<&'static [&'static str]> {
    let listed = DIRECTIONS.iter().find(|(of, _)| *of == name).map(|(_, allowed)| *allowed);
    listed.or_else(|| (name.starts_with("pacer-policy-") || name == "newest-first").then_some(OF_POLICIES))
}

/// The arrows between crates that the table does not have.
pub(crate) fn forbidden(packages: &[Package]) -> Vec<String> {
    let members: BTreeSet<&str> = packages.iter().map(|package| package.name.as_str()).collect();
    let mut found = Vec::new();
    for Package { name, dependencies, .. } in packages {
        let Some(allowed) = allowed(name) else {
            found.push(format!("{name} is not in the table of directions"));
            continue;
        };
        for dependency in dependencies.iter().filter(|dependency| members.contains(dependency.as_str())) {
            if !allowed.contains(&dependency.as_str()) {
                found.push(format!("{name} may not depend on {dependency}"));
            }
        }
    }
    found
}
