//! The directions of dependency that ARCHITECTURE.md draws, between crates and between the modules of a crate, and that the generated files
//! are the generated ones.

#[path = "layout/arrows.rs"]
mod arrows;
#[path = "layout/crates.rs"]
mod crates;
#[path = "layout/cycle.rs"]
mod cycle;
#[path = "layout/fixture.rs"]
mod fixture;
#[path = "layout/source.rs"]
mod source;

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use crates::{ENGINES, Package, forbidden, packages};

/// Fails when modules of these crates use each other in a circle.
fn has_no_cycles(belongs: impl Fn(&str) -> bool) -> Result<()> {
    let workspace = env!("CARGO_MANIFEST_DIR").trim_end_matches("tests/suites");
    for Package { name, roots, .. } in packages()?.iter().filter(|package| belongs(&package.name)) {
        let mut found = Vec::new();
        for root in roots {
            let modules = source::modules(root, &|path| fs::read_to_string(path).ok())?;
            found.extend(
                cycle::cycles(&arrows::arrows(&modules)).iter().map(|cycle| cycle::describe(cycle).replace(workspace, "")),
            );
        }
        ensure!(found.is_empty(), "modules of {name} use each other in {} circles:\n{}", found.len(), found.concat());
    }
    Ok(())
}

/// One test for each crate whose modules are many; crates that are not in the workspace pass.
macro_rules! modules_have_no_cycles {
    ($($test:ident: $name:literal,)*) => {
        const LISTED: &[&str] = &[$($name),*];

        $(#[test]
        fn $test() -> Result<()> {
            has_no_cycles(|name| name == $name)
        })*
    };
}

modules_have_no_cycles! {
    core_has_no_cycles: "pacer-core",
    api_has_no_cycles: "pacer-api",
    github_has_no_cycles: "pacer-github",
    registry_has_no_cycles: "pacer-registry",
    jail_has_no_cycles: "pacer-jail",
    policy_has_no_cycles: "pacer-policy",
    cluster_has_no_cycles: "pacer-cluster",
    demand_has_no_cycles: "pacer-demand",
    policyset_has_no_cycles: "pacer-policyset",
    operator_has_no_cycles: "pacer-operator",
    pacer_has_no_cycles: "pacer",
    policy_sdk_has_no_cycles: "pacer-policy-sdk",
    harness_has_no_cycles: "pacer-harness",
    laboratory_has_no_cycles: "pacer-laboratory",
    suites_have_no_cycles: "pacer-suites",
    demo_has_no_cycles: "pacer-demo",
}

#[test]
fn other_crates_have_no_cycles() -> Result<()> {
    has_no_cycles(|name| !LISTED.contains(&name))
}

#[test]
fn crates_depend_on_each_other_in_the_directions_of_the_table() -> Result<()> {
    let found = forbidden(&packages()?);
    ensure!(found.is_empty(), "{}", found.join("\n"));
    Ok(())
}

#[test]
fn only_the_crates_of_the_table_know_an_engine() -> Result<()> {
    for Package { name, dependencies, .. } in packages()? {
        for (engine, allowed) in ENGINES {
            ensure!(!dependencies.contains(engine) || allowed.contains(&name.as_str()), "{name} may not know {engine}");
        }
    }
    Ok(())
}

#[test]
fn core_does_no_input_or_output() -> Result<()> {
    let packages = packages()?;
    let core = packages.iter().find(|package| package.name == "pacer-core").context("pacer-core")?;
    let allowed: BTreeSet<String> = ["jiff", "pacer-contract", "serde", "serde_json", "thiserror"].map(str::to_owned).into();
    let others: Vec<_> = core.dependencies.difference(&allowed).collect();
    ensure!(others.is_empty(), "pacer-core depends on {others:?}");
    Ok(())
}

/// Files of `deploy` that lie in the chart once more, because helm and kustomize each read only what is below their own directory.
const COPIES: [(&str, &str); 5] = [
    ("base/rbac.yaml", "rbac.yaml"),
    ("webhook/rbac.yaml", "webhook-rbac.yaml"),
    ("metrics-authorization/rbac.yaml", "metrics-authorization.yaml"),
    ("alerts/pacer.yaml", "alerts.yaml"),
    ("grafana/pacer.json", "dashboard.json"),
];

/// Set `UPDATE_GOLDEN=1` to copy them anew.
#[test]
fn files_that_the_chart_shares_with_the_manifests_are_equal() -> Result<()> {
    let deploy = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy");
    for (of_manifests, of_chart) in COPIES {
        let (original, copy) = (format!("{deploy}/{of_manifests}"), format!("{deploy}/chart/files/{of_chart}"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::copy(&original, &copy)?;
        }
        let equal = fs::read(&original)? == fs::read(&copy)?;
        ensure!(equal, "deploy/chart/files/{of_chart} is not deploy/{of_manifests}; copy it anew with `make golden`");
    }
    Ok(())
}

/// Third parties with the features that a selection of crates gives them, as they are linked.
fn third_parties(selection: &[&str]) -> Result<BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--edges=normal,build", "--prefix=none", "--no-dedupe", "--format={p}|{f}"])
        .args(selection)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .output()?;
    ensure!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout)?;
    // Crates of the workspace have their path behind the version.
    Ok(lines.lines().filter(|line| !line.contains(" (/") && !line.is_empty()).map(str::to_owned).collect())
}

/// `make demo` builds two crates with all that they need; with other features than `cargo build --workspace` gives, it would all be built twice.
#[test]
fn demo_selects_no_features_that_the_workspace_does_not() -> Result<()> {
    let makefile = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Makefile"))?;
    ensure!(makefile.contains("cargo build -p pacer -p pacer-demo $(LOCKED)"), "make demo selects other crates than this test");
    let (demo, workspace) = (third_parties(&["-p", "pacer", "-p", "pacer-demo"])?, third_parties(&["--workspace"])?);
    ensure!(demo.len() > 100, "only {} third parties", demo.len());
    let others: Vec<_> = demo.difference(&workspace).collect();
    ensure!(others.is_empty(), "built in another way for the demo alone: {others:?}");
    Ok(())
}

#[test]
fn every_suite_is_a_module_of_the_program_that_runs_them() -> Result<()> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");
    let program = fs::read_to_string(format!("{directory}/suites.rs"))?;
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|name| name.to_str()).context("the name of a file")?;
        let is_suite =
            path.extension().is_some_and(|extension| extension == "rs") && !["suites", "book", "layout"].contains(&name);
        ensure!(!is_suite || program.contains(&format!("\nmod {name};\n")), "tests/suites/tests/suites.rs has no `mod {name};`");
    }
    Ok(())
}

#[test]
fn shipped_definitions_are_those_that_pacer_prints() -> Result<()> {
    let binary = std::env::var("PACER_BIN")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/debug/pacer").to_owned());
    let output = Command::new(binary).arg("crds").output().context("running pacer crds; build it first: cargo build -p pacer")?;
    let printed = String::from_utf8(output.stdout)?;
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/chart/crds");
    for entry in fs::read_dir(directory)? {
        let file = fs::read_to_string(entry?.path())?;
        let body = file.lines().filter(|line| !line.starts_with('#') && *line != "---").collect::<Vec<_>>().join("\n");
        ensure!(
            printed.contains(body.trim()),
            "a file in deploy/chart/crds is not what `pacer crds` prints; write it anew with `make golden`"
        );
    }
    Ok(())
}
