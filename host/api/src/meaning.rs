//! What a template means, and the name of that meaning.
//!
//! ARC names a template by a hash over Go type names, which nothing outside Go can repeat, and the API server and Go rewrite what users
//! wrote: `null`s go, defaults come, quantities change their form. Templates are therefore compared by what they make: no runner is
//! replaced because the text changed and its meaning did not.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::Serialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::{
    names, quantity,
    replica_set::RunnerTemplate,
    runner::{RunnerConfig, RunnerPodSpec},
};

/// Digits of a revision: Kubernetes' safe alphabet, which has no vowels and so makes no words.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Number of digits of a revision.
const REVISION_LENGTH: usize = 10;

/// Labels of a template that the operator, or ARC, adds to it.
const OWN_LABELS: [&str; 3] =
    [names::label::RUNNER_TEMPLATE_HASH, names::label::RUNNER_DEPLOYMENT_NAME, names::label::RUNNER_SET_NAME];

/// Maps from names to texts, whose entries count even when a text is empty.
const TEXT_MAPS: [&str; 6] = ["labels", "annotations", "nodeSelector", "matchLabels", "volumeAttributes", "options"];

/// Maps from names to quantities.
const QUANTITY_MAPS: [&str; 2] = ["limits", "requests"];

/// Fields that hold one quantity.
const QUANTITIES: [&str; 4] = ["sizeLimit", "volumeSizeLimit", "dockerVarRunVolumeSizeLimit", "divisor"];

/// Fields whose empty value says something else than their absence.
const EMPTY_MATTERS: [&str; 9] = [
    "dockerRegistryMirror",
    "storageClassName",
    "volumeAttributesClassName",
    "labelSelector",
    "namespaceSelector",
    "selector",
    "emptyDir",
    "downwardAPI",
    "projected",
];

/// Fields of core types that Go does not write when they are false or 0.
const ZERO_IS_ABSENT: [&str; 13] = [
    "readOnly",
    "stdin",
    "stdinOnce",
    "tty",
    "hostNetwork",
    "hostPID",
    "hostIPC",
    "hostPort",
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
];

/// Defaults that ARC's schemas write into core types: field around it (empty for any), field, value.
const CORE_DEFAULTS: [(&str, &str, &str); 10] = [
    ("", "protocol", "TCP"),
    ("azureDisk", "cachingMode", "ReadWrite"),
    ("azureDisk", "fsType", "ext4"),
    ("azureDisk", "kind", "Shared"),
    ("iscsi", "iscsiInterface", "default"),
    ("rbd", "keyring", "/etc/ceph/keyring"),
    ("rbd", "pool", "rbd"),
    ("rbd", "user", "admin"),
    ("scaleIO", "fsType", "xfs"),
    ("scaleIO", "storageMode", "ThinProvisioned"),
];

impl RunnerTemplate {
    /// The template in canonical form: equal for templates that make equal runners.
    ///
    /// Absent, `null`, empty and default count as the same, as do different forms of one quantity; keys are sorted; labels that the
    /// operator or ARC adds, and the name and namespace, which have no effect, are left out. The order of lists counts.
    #[must_use]
    pub fn meaning(&self) -> Value {
        let mut template = self.clone();
        if let Some(metadata) = &mut template.metadata {
            metadata.name = None;
            metadata.namespace = None;
            if let Some(labels) = &mut metadata.labels {
                labels.retain(|key, _| !OWN_LABELS.contains(&key.as_str()));
            }
        }
        Arc::make_mut(&mut template.spec.config).forget_defaults();
        Arc::make_mut(&mut template.spec.pod).forget_defaults();
        canonical(&template)
    }

    /// A name for the meaning: ten characters that fit labels and object names.
    ///
    /// The first 64 bits of a SHA-256 in base 27. ARC's FNV-1a has 32 bits, of which a namespace with a few thousand revisions can expect a
    /// collision, and its collisions are made easily; ten digits hold 47 bits and stay as short as a ReplicaSet's hash may be.
    #[must_use]
    pub fn revision(&self) -> String {
        revision(&self.meaning())
    }
}

/// A name for what a claim template asks for, in the form of [`RunnerTemplate::revision`]: its name and its spec. Labels and annotations of a
/// claim say nothing about its volume.
#[must_use]
pub fn claim_revision(template: &PersistentVolumeClaim) -> String {
    #[derive(Serialize)]
    struct Made<'a> {
        name: &'a Option<String>,
        spec: &'a Option<PersistentVolumeClaimSpec>,
    }
    revision(&canonical(&Made { name: &template.metadata.name, spec: &template.spec }))
}

impl RunnerConfig {
    fn forget_defaults(&mut self) {
        self.ephemeral.take_if(|ephemeral| *ephemeral);
        self.docker_enabled.take_if(|enabled| *enabled);
        self.dockerd_within_runner_container.take_if(|within| !*within);
        self.work_dir.take_if(|dir| dir == Self::DEFAULT_WORK_DIR);
        let default = quantity::nanos(&Quantity(Self::DEFAULT_VAR_RUN_SIZE_LIMIT.to_owned()));
        self.docker_var_run_volume_size_limit.take_if(|limit| quantity::nanos(limit) == default);
    }
}

impl RunnerPodSpec {
    fn forget_defaults(&mut self) {
        self.image_pull_policy.take_if(|policy| policy == "Always");
    }
}

/// The canonical form of a value; an object without fields where nothing is left.
fn canonical(value: &impl Serialize) -> Value {
    // These types have text keys and whole numbers only, so there is nothing that JSON could not say.
    let value = serde_json::to_value(value).unwrap_or_default();
    let mut value = normal("", "", value).unwrap_or_else(|| Value::Object(Map::new()));
    value.sort_all_objects();
    value
}

/// The normal form of the value of `field` inside `parent`, or None where it says no more than its absence.
fn normal(parent: &str, field: &str, value: Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Bool(false) if ZERO_IS_ABSENT.contains(&field) => None,
        Value::Number(number) if ZERO_IS_ABSENT.contains(&field) && number.as_i64() == Some(0) => None,
        Value::Number(_) | Value::String(_) if QUANTITIES.contains(&field) => {
            normal_quantity(value).filter(|value| field != "divisor" || value != "0")
        }
        Value::String(text) if text.is_empty() && !EMPTY_MATTERS.contains(&field) => None,
        Value::String(text) if is_core_default(parent, field, &text) => None,
        Value::Array(items) => {
            let items: Vec<_> = items.into_iter().map(|item| normal_item(field, item)).collect();
            (!items.is_empty()).then_some(Value::Array(items))
        }
        Value::Object(fields) => {
            let fields: Map<_, _> = fields
                .into_iter()
                .filter_map(|(key, value)| {
                    let value = if TEXT_MAPS.contains(&field) {
                        Some(value).filter(|value| !value.is_null())
                    } else if QUANTITY_MAPS.contains(&field) {
                        normal_quantity(value)
                    } else {
                        normal(field, &key, value)
                    };
                    Some((key, value?))
                })
                .collect();
            (!fields.is_empty() || EMPTY_MATTERS.contains(&field)).then_some(Value::Object(fields))
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => Some(value),
    }
}

/// The normal form of an item of the list `field`; an item keeps its place even when nothing of it is left.
fn normal_item(field: &str, item: Value) -> Value {
    match item {
        Value::Object(_) => normal(field, "", item).unwrap_or_else(|| Value::Object(Map::new())),
        other => other,
    }
}

fn is_core_default(parent: &str, field: &str, text: &str) -> bool {
    CORE_DEFAULTS.iter().any(|(around, name, value)| (around.is_empty() || *around == parent) && *name == field && *value == text)
}

/// A quantity as a count of 10^-9, or its text where it has none.
fn normal_quantity(value: Value) -> Option<Value> {
    let text = match value {
        Value::String(text) => text,
        Value::Null => return None,
        other => other.to_string(),
    };
    let nanos = quantity::nanos(&Quantity(text.clone()));
    Some(Value::String(nanos.map_or(text, |nanos| nanos.to_string())))
}

fn revision(meaning: &Value) -> String {
    let digest = Sha256::digest(meaning.to_string());
    let mut number = digest.iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    let base = ALPHABET.len() as u64;
    (0..REVISION_LENGTH)
        .filter_map(|_| {
            let digit = usize::try_from(number % base).ok()?;
            number /= base;
            ALPHABET.get(digit).copied().map(char::from)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn template(value: Value) -> RunnerTemplate {
        serde_json::from_value(value).unwrap()
    }

    fn sample() -> Value {
        json!({
            "metadata": {"labels": {"team": "a", "empty": ""}},
            "spec": {
                "repository": "acme/app",
                "labels": ["x", "y"],
                "dockerRegistryMirror": "",
                "nodeSelector": {"disk": "ssd"},
                "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}},
                "env": [{"name": "A", "value": "1"}, {"name": "B"}],
                "volumes": [{"name": "v", "emptyDir": {}}],
                "containers": [{"name": "runner", "ports": [{"containerPort": 80}]}],
                "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "zone", "namespaceSelector": {}, "labelSelector": {"matchLabels": {"a": "b"}}}
                ]}},
            }
        })
    }

    #[test]
    fn what_go_and_the_api_server_rewrite_means_the_same() {
        let rewritten = json!({
            "metadata": {
                "name": "ignored", "namespace": "ignored", "annotations": {},
                "labels": {"team": "a", "empty": "", "runner-template-hash": "abc", "runner-deployment-name": "rd"}
            },
            "spec": {
                "repository": "acme/app", "organization": "", "ephemeral": true, "dockerEnabled": true,
                "dockerdWithinRunnerContainer": false, "workDir": "/runner/_work", "dockerVarRunVolumeSizeLimit": "1000k",
                "imagePullPolicy": "Always",
                "labels": ["x", "y"],
                "dockerRegistryMirror": "",
                "dockerdContainerResources": {},
                "nodeSelector": {"disk": "ssd"},
                "resources": {"limits": {"cpu": "0.5", "memory": "1073741824"}},
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": ""}],
                "volumes": [{"name": "v", "emptyDir": {}}],
                "containers": [{"name": "runner", "resources": {}, "tty": false,
                    "ports": [{"containerPort": 80, "hostPort": 0, "protocol": "TCP"}]}],
                "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "zone", "namespaceSelector": {}, "labelSelector": {"matchLabels": {"a": "b"}}}
                ]}},
            }
        });
        assert_eq!(template(sample()).meaning(), template(rewritten).meaning());
    }

    #[test]
    fn what_makes_another_runner_means_another_thing() {
        let original = template(sample());
        for (path, value) in [
            ("/metadata/labels/team", json!("b")),
            ("/metadata/labels/empty", Value::Null),
            ("/spec/repository", json!("acme/other")),
            ("/spec/labels", json!(["y", "x"])),
            ("/spec/dockerRegistryMirror", Value::Null),
            ("/spec/resources/limits/cpu", json!("501m")),
            ("/spec/env/1/value", json!("2")),
            ("/spec/volumes/0/emptyDir", Value::Null),
            ("/spec/containers/0/ports/0/protocol", json!("UDP")),
            ("/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution/0/namespaceSelector", Value::Null),
            ("/spec/ephemeral", json!(false)),
            ("/spec/enableServiceLinks", json!(false)),
            ("/spec/terminationGracePeriodSeconds", json!(0)),
            ("/spec/volumeSizeLimit", json!("0")),
        ] {
            let mut changed = sample();
            let (parent, key) = path.rsplit_once('/').unwrap();
            changed.pointer_mut(parent).unwrap().as_object_mut().unwrap().insert(key.to_owned(), value);
            // A label whose value is null is read as absent by the API server before it gets here.
            if path == "/metadata/labels/empty" {
                changed.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(key);
            }
            let changed = template(changed);
            assert_ne!(original.meaning(), changed.meaning(), "{path}");
            assert_ne!(original.revision(), changed.revision(), "{path}");
        }
    }

    #[test]
    fn revisions_stay_what_they_are_and_fit_names() {
        let revision = template(sample()).revision();
        assert_eq!(revision.len(), REVISION_LENGTH);
        assert!(revision.bytes().all(|byte| ALPHABET.contains(&byte)), "{revision}");
        // A changed expectation here rolls every fleet of every user.
        assert_eq!(template(json!({"spec": {"repository": "acme/app"}})).revision(), "xtmb22hcm4");
    }

    /// `value` as JSON text with its keys in an order that `seed` picks and absent things spelled out.
    fn scrambled(value: &Value, seed: u64, field: &str) -> String {
        match value {
            Value::Object(fields) => {
                let texts_only = TEXT_MAPS.contains(&field) || QUANTITY_MAPS.contains(&field);
                let mut members: Vec<String> = fields
                    .iter()
                    .map(|(key, value)| format!("{}:{}", json!(key), scrambled(value, seed.rotate_left(7) ^ 11, key)))
                    .collect();
                if !texts_only && field == "spec" {
                    for (bit, absent) in [
                        r#""tolerations":null"#,
                        r#""initContainers":[]"#,
                        r#""securityContext":{}"#,
                        r#""group":"""#,
                        r#""workDir":"""#,
                    ]
                    .into_iter()
                    .enumerate()
                    {
                        if seed >> bit & 1 == 1 {
                            members.push(absent.to_owned());
                        }
                    }
                }
                let length = members.len().max(1);
                members.rotate_left(usize::try_from(seed % 1009).unwrap() % length);
                if seed & 32 == 32 {
                    members.reverse();
                }
                format!("{{{}}}", members.join(","))
            }
            Value::Array(items) => {
                let items: Vec<String> = items.iter().map(|item| scrambled(item, seed.rotate_left(3), "")).collect();
                format!("[{}]", items.join(","))
            }
            other => other.to_string(),
        }
    }

    proptest! {
        #[test]
        fn meaning_ignores_order_nulls_and_empties(seed: u64, cpu in 1_u32..100_000, name in "[a-z]{1,8}", labels in prop::collection::vec("[a-z]{1,5}", 0..4)) {
            let mut value = sample();
            value["spec"]["resources"]["limits"]["cpu"] = json!(format!("{cpu}m"));
            value["spec"]["env"][0]["name"] = json!(name);
            value["spec"]["labels"] = json!(labels);
            let written: RunnerTemplate = serde_json::from_str(&scrambled(&value, seed, "")).unwrap();
            let original = template(value);
            prop_assert_eq!(original.meaning(), written.meaning());
            prop_assert_eq!(original.revision(), written.revision());
        }

        #[test]
        fn the_meaning_of_a_meaning_is_itself(seed: u64) {
            let once: RunnerTemplate = serde_json::from_str(&scrambled(&sample(), seed, "")).unwrap();
            let meaning = once.meaning();
            let mut again = meaning.clone();
            // Quantities become counts of 10^-9; everything else may be read back.
            again["spec"]["resources"] = sample()["spec"]["resources"].clone();
            prop_assert_eq!(template(again).meaning(), meaning);
        }
    }
}
