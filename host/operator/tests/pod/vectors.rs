//! Inputs beside the pods that they must become. `UPDATE_GOLDEN=1` writes the latter anew.
//!
//! The numbered ones are ARC's own cases; `templates` go through the shared stage alone, `runners` through all of them. What
//! differs from ARC is said in the documentation of [`pacer_operator::pod`].

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::PodTemplateSpec;
use pacer_api::{Runner, RunnerConfig};
use pacer_operator::pod;
use serde_json::{Value, json};

use crate::{build, defaults, identify};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pod").join(name)
}

fn read(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn names(folder: &Path) -> BTreeSet<String> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    files.filter_map(|name| name.strip_suffix(".yaml").map(str::to_owned)).collect()
}

/// Compares what every input of a folder becomes with the file of the same name in its folder `golden`.
fn compare(kind: &str, outcome: impl Fn(Value) -> Value) {
    let inputs = names(&folder(kind));
    assert!(!inputs.is_empty());
    let golden = folder(kind).join("golden");
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let mut different = Vec::new();
    for name in &inputs {
        let actual = outcome(read(&folder(kind).join(format!("{name}.yaml"))));
        let path = golden.join(format!("{name}.yaml"));
        if update {
            fs::create_dir_all(&golden).unwrap();
            fs::write(&path, serde_saphyr::to_string(&actual).unwrap()).unwrap();
        }
        if read(&path) != actual {
            different.push(format!("{kind}/{name}:\n{}", serde_saphyr::to_string(&actual).unwrap()));
        }
    }
    assert!(different.is_empty(), "not as committed, see UPDATE_GOLDEN:\n{}", different.join("\n"));
    assert_eq!(names(&golden), inputs, "golden files and inputs of {kind} belong together");
}

#[test]
fn templates_become_what_is_committed() {
    compare("templates", |input| {
        let template: PodTemplateSpec = serde_json::from_value(input["template"].clone()).unwrap();
        let config: RunnerConfig = serde_json::from_value(input["config"].clone()).unwrap();
        let shaped = pod::shape(template, &config, crate::SERVER, &defaults()).unwrap();
        assert_eq!(shaped.warnings, []);
        serde_json::to_value(shaped.template).unwrap()
    });
}

#[test]
fn runners_become_what_is_committed() {
    compare("runners", |mut input| {
        input["apiVersion"] = json!("actions.summerwind.dev/v1alpha1");
        input["kind"] = json!("Runner");
        let mut runner: Runner = serde_json::from_value(input).unwrap();
        identify(&mut runner);
        let plan = build(&runner, &defaults()).unwrap();
        let warnings: Vec<String> = plan.warnings.iter().map(ToString::to_string).collect();
        json!({"warnings": warnings, "pod": plan.pod})
    });
}
