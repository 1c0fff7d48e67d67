//! Manifests survive: reading and writing neither loses nor adds a field, and the schema has every field they use.

use std::fs;

use kube::core::DynamicObject;
use pacer_api::{HorizontalRunnerAutoscaler, Runner, RunnerDeployment, RunnerReplicaSet, RunnerSet, crd};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::pruning::pruned;

/// File name and content of every YAML file in a directory beside this one.
fn fixtures(directory: &str) -> Vec<(String, String)> {
    let directory = format!("{}/tests/{directory}", env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read_to_string(&path).unwrap())
        })
        .collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

fn parse(name: &str, text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Drops every field that is null, as the API server does.
fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

fn round_trip<K: Serialize + DeserializeOwned>(name: &str, value: &Value) -> Value {
    let object: K = serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{name}: {error}"));
    serde_json::to_value(&object).unwrap()
}

fn round_trip_of_kind(name: &str, value: &Value) -> Value {
    match value["kind"].as_str().unwrap() {
        "Runner" => round_trip::<Runner>(name, value),
        "RunnerReplicaSet" => round_trip::<RunnerReplicaSet>(name, value),
        "RunnerDeployment" => round_trip::<RunnerDeployment>(name, value),
        "RunnerSet" => round_trip::<RunnerSet>(name, value),
        "HorizontalRunnerAutoscaler" => round_trip::<HorizontalRunnerAutoscaler>(name, value),
        kind => panic!("{name}: unknown kind {kind}"),
    }
}

fn schema_of(kind: &Value) -> Value {
    let definition = crd::all().unwrap().into_iter().find(|definition| definition.spec.names.kind == *kind).unwrap();
    serde_json::to_value(definition).unwrap()["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

#[test]
fn nothing_is_lost_or_added() {
    for (name, text) in fixtures("manifests") {
        let mut value = parse(&name, &text);
        let written = round_trip_of_kind(&name, &value);
        without_nulls(&mut value);
        assert_eq!(written, value, "{name}");
        let again: DynamicObject = serde_json::from_value(value).unwrap();
        assert_eq!(again.types.unwrap().api_version, pacer_api::names::API_VERSION, "{name}");
    }
}

#[test]
fn the_api_server_drops_nothing() {
    for (name, text) in fixtures("manifests") {
        let mut value = parse(&name, &text);
        without_nulls(&mut value);
        assert_eq!(pruned(&schema_of(&value["kind"]), &value), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn every_field_of_ours_is_in_some_manifest() {
    let manifests: Vec<Value> = fixtures("manifests").iter().map(|(name, text)| parse(name, text)).collect();
    for kind in ["Runner", "RunnerReplicaSet", "RunnerDeployment", "RunnerSet", "HorizontalRunnerAutoscaler"] {
        let schema = schema_of(&Value::from(kind));
        for part in ["spec", "status"] {
            for field in schema["properties"][part]["properties"].as_object().unwrap().keys() {
                // The runner's own fields are the same in every kind that has them.
                let used = manifests.iter().any(|manifest| {
                    let places = [&manifest[part], &manifest["spec"]["template"]["spec"]];
                    (manifest["kind"] == kind || part == "spec") && places.iter().any(|place| place.get(field).is_some())
                });
                assert!(used, "no manifest of {kind} has {part}.{field}");
            }
        }
    }
}

/// The schema walker notices what it is there to notice.
#[test]
fn a_field_that_nobody_knows_is_dropped() {
    let mut value = parse("", "{kind: Runner, spec: {repository: a/b, containers: [{name: runner, imgae: x}], dockerMtu: 1}}");
    value["status"] = serde_json::json!({"phase": "Running", "mood": "good"});
    let expected = [".spec.containers[0].imgae", ".spec.dockerMtu", ".status.mood"];
    assert_eq!(pruned(&schema_of(&value["kind"]), &value), expected);
}

#[test]
fn a_registration_token_is_not_shown() {
    let (_, text) = fixtures("manifests").into_iter().find(|(name, _)| name == "runner-made-by-arc.yaml").unwrap();
    assert!(text.contains("A-REGISTRATION-TOKEN"));
    let runner: Runner = serde_json::from_value(parse("", &text)).unwrap();
    assert!(!format!("{runner:?} {:#?}", runner.status).contains("A-REGISTRATION-TOKEN"));
}

#[test]
fn absent_and_null_are_the_same() {
    let nulls = |kind: &str| {
        let schema = schema_of(&Value::from(kind));
        let spec = &schema["properties"]["spec"];
        let required: Vec<&Value> = spec["required"].as_array().map(|names| names.iter().collect()).unwrap_or_default();
        let fields = spec["properties"].as_object().unwrap().keys();
        let fields = fields.filter(|name| !required.contains(&&Value::from(name.as_str())));
        Value::Object(fields.map(|name| (name.clone(), Value::Null)).collect())
    };
    let runner: pacer_api::RunnerSpec = serde_json::from_value(nulls("Runner")).unwrap();
    assert_eq!(runner, pacer_api::RunnerSpec::default());
    let autoscaler: pacer_api::HorizontalRunnerAutoscalerSpec =
        serde_json::from_value(nulls("HorizontalRunnerAutoscaler")).unwrap();
    assert_eq!(autoscaler, pacer_api::HorizontalRunnerAutoscalerSpec::default());
    let status: pacer_api::RunnerReplicaSetStatus =
        serde_json::from_str(r#"{"readyReplicas": null, "availableReplicas": null, "conditions": null, "backoffUntil": null}"#)
            .unwrap();
    assert_eq!(status, pacer_api::RunnerReplicaSetStatus::default());
}

/// Each file below `refused` begins with the words in which the API server refuses it. That it does is checked against a real API server
/// in the cluster suite; here it is made sure that the words are those of the schema.
#[test]
fn refused_manifests_name_a_message_of_the_schema() {
    for (name, text) in fixtures("refused") {
        let words = text.lines().next().and_then(|line| line.strip_prefix("# ")).unwrap().to_owned();
        let value = parse(&name, &text);
        assert_eq!(pruned(&schema_of(&value["kind"]), &value), Vec::<String>::new(), "{name}");
        if let Some(native) = words.strip_prefix("schema: ") {
            assert!(native.contains("spec."), "{name}");
        } else {
            assert!(schema_of(&value["kind"]).to_string().contains(&words), "{name}: {words}");
        }
    }
}
