//! The schemas obey the rules that the API server has for structural schemas.

use pacer_api::crd;
use serde_json::{Value, json};

/// Formats that the API server checks or knows; it warns about others.
const FORMATS: [&str; 5] = ["int32", "int64", "date-time", "byte", "double"];

#[test]
fn every_node_is_structural() {
    for definition in crd::all().unwrap() {
        let kind = definition.spec.names.kind.clone();
        let schema = root(&definition);
        let mut faults = Vec::new();
        check(&schema, &kind, &mut faults);
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
}

fn root(definition: &k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition) -> Value {
    serde_json::to_value(definition).unwrap()["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

fn check(schema: &Value, path: &str, faults: &mut Vec<String>) {
    let mut fault = |what: &str| faults.push(format!("{path}: {what}: {schema}"));
    let int_or_string = schema.get("x-kubernetes-int-or-string") == Some(&json!(true));
    let type_ = schema.get("type").and_then(Value::as_str);
    match type_ {
        None if int_or_string => {}
        Some("string" | "integer" | "number" | "boolean") => {}
        Some("object") => {
            let properties = schema.get("properties").is_some();
            let any = schema.get("additionalProperties").is_some();
            if properties && any {
                fault("properties and additionalProperties exclude each other");
            }
            // Objects without fields lose whatever is put into them; these are meant to.
            let name = path.rsplit('.').next().unwrap_or_default();
            if !properties && !any && !["metadata", "push", "workflowJob"].contains(&name) {
                fault("everything in it would be dropped");
            }
        }
        Some("array") if schema.get("items").is_some_and(Value::is_object) => {}
        _ => fault("no type"),
    }
    // Values that nobody gave would look like the user's; only the phase of a new Runner is ours to say.
    if schema.get("default").is_some() && path != "Runner.status" {
        fault("default");
    }
    for key in ["$ref", "oneOf", "allOf", "not", "definitions", "x-kubernetes-preserve-unknown-fields"] {
        if schema.get(key).is_some() {
            fault(key);
        }
    }
    if schema.get("anyOf").is_some_and(|any| !int_or_string || *any != json!([{"type": "integer"}, {"type": "string"}])) {
        fault("anyOf is for numbers that may be texts");
    }
    if schema.get("format").and_then(Value::as_str).is_some_and(|format| !FORMATS.contains(&format)) {
        fault("unknown format");
    }
    // What the type cannot hold must not be stored.
    let has = |key: &str| schema.get(key).is_some();
    if schema.get("format") == Some(&json!("date-time")) && !has("pattern") {
        fault("moments that cannot be read");
    }
    let is_quantity = has("anyOf") && has("pattern");
    if int_or_string && !is_quantity && !(has("minimum") && has("maximum")) {
        fault("numbers beyond 32 bits");
    }
    if type_ == Some("integer") && !["int32", "int64"].contains(&schema.get("format").and_then(Value::as_str).unwrap_or_default())
    {
        fault("numbers without bounds");
    }
    for name in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
        if schema["properties"].get(name.as_str().unwrap()).is_none() {
            fault("requires what it does not have");
        }
    }
    if schema.get("x-kubernetes-list-type") == Some(&json!("map")) {
        for key in schema["x-kubernetes-list-map-keys"].as_array().unwrap() {
            if !schema["items"]["required"].as_array().is_some_and(|required| required.contains(key)) {
                fault("a key of the list is not required");
            }
        }
    }
    for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        check(property, &format!("{path}.{name}"), faults);
    }
    for (key, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        if let Some(inner) = schema.get(key) {
            check(inner, &format!("{path}{mark}"), faults);
        }
    }
}

#[test]
fn our_fields_are_described_and_core_types_are_not() {
    for definition in crd::all().unwrap() {
        let kind = definition.spec.names.kind.clone();
        let schema = root(&definition);
        for part in ["spec", "status"] {
            // A JobLedger has no status.
            for (name, property) in schema["properties"][part]["properties"].as_object().into_iter().flatten() {
                // RunnerSet takes these from StatefulSets.
                let core = kind == "RunnerSet"
                    && part == "spec"
                    && [
                        "minReadySeconds",
                        "ordinals",
                        "persistentVolumeClaimRetentionPolicy",
                        "podManagementPolicy",
                        "replicas",
                        "revisionHistoryLimit",
                        "selector",
                        "serviceName",
                        "template",
                        "updateStrategy",
                        "volumeClaimTemplates",
                    ]
                    .contains(&name.as_str());
                assert_eq!(property.get("description").is_none(), core, "{kind}.{part}.{name}");
            }
        }
    }
    let runner = root(&crd::all().unwrap()[0]);
    let containers = &runner["properties"]["spec"]["properties"]["containers"];
    assert!(containers.get("description").is_some());
    assert!(!containers["items"].to_string().contains("\"description\""));
}

#[test]
fn templates_hold_the_metadata_that_a_template_may_have() {
    let keys = json!(["annotations", "finalizers", "labels", "name", "namespace"]);
    let places = [
        (1, "/properties/spec/properties/template/properties/metadata"),
        (2, "/properties/spec/properties/template/properties/metadata"),
        (3, "/properties/spec/properties/template/properties/metadata"),
        (3, "/properties/spec/properties/volumeClaimTemplates/items/properties/metadata"),
        (0, "/properties/spec/properties/volumes/items/properties/ephemeral/properties/volumeClaimTemplate/properties/metadata"),
    ];
    let definitions = crd::all().unwrap();
    for (index, place) in places {
        let schema = root(&definitions[index]);
        let metadata = schema.pointer(place).unwrap();
        assert_eq!(json!(metadata["properties"].as_object().unwrap().keys().collect::<Vec<_>>()), keys, "{place}");
    }
}

#[test]
fn quantities_are_checked_wherever_they_are() {
    let runner = root(&crd::all().unwrap()[0]);
    for place in [
        "/properties/spec/properties/volumeSizeLimit",
        "/properties/spec/properties/dockerVarRunVolumeSizeLimit",
        "/properties/spec/properties/resources/properties/limits/additionalProperties",
        "/properties/spec/properties/volumes/items/properties/emptyDir/properties/sizeLimit",
    ] {
        let schema = runner.pointer(place).unwrap();
        assert_eq!(schema["x-kubernetes-int-or-string"], json!(true), "{place}");
        assert!(schema["pattern"].as_str().unwrap().contains("[KMGTPE]i"), "{place}");
    }
    let port = "/properties/spec/properties/containers/items/properties/livenessProbe/properties/tcpSocket/properties/port";
    assert!(runner.pointer(port).unwrap().get("pattern").is_none());
}
