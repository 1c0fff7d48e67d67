//! What the types cannot say: which fields go together.
//!
//! These rules take the place of ARC's admission webhooks. They refuse what ARC refuses and what could never make a runner; what ARC
//! accepts and makes work is accepted. A selector that does not match the template's labels is accepted too: runners belong to their
//! owner by reference, so it does no harm.

use serde_json::{Value, json};

use super::locate;
use crate::RunnerStatus;

/// One addition to a schema.
pub(super) struct Rule {
    path: String,
    addition: Addition,
}

enum Addition {
    /// An expression over the place (`self`), and what to say when it does not hold.
    Holds { rule: String, message: &'static str },
    /// The value may be null.
    Nullable,
    /// A keyword of JSON Schema.
    Keyword(&'static str, Value),
    /// The object must have this field.
    Required(&'static str),
}

impl Rule {
    /// Adds the rule to the schema `root` of a kind.
    ///
    /// # Errors
    ///
    /// The path, when the schema does not have it.
    pub(super) fn put(self, root: &mut Value) -> Result<(), String> {
        let Some(place) = locate(root, &self.path).and_then(Value::as_object_mut) else {
            return Err(self.path);
        };
        let (key, item) = match self.addition {
            Addition::Holds { rule, message } => ("x-kubernetes-validations", json!({"rule": rule, "message": message})),
            Addition::Required(field) => ("required", json!(field)),
            Addition::Nullable => {
                place.insert("nullable".to_owned(), json!(true));
                return Ok(());
            }
            Addition::Keyword(key, value) => {
                place.insert(key.to_owned(), value);
                return Ok(());
            }
        };
        match place.entry(key).or_insert_with(|| json!([])) {
            Value::Array(list) => {
                if !list.contains(&item) {
                    list.push(item);
                }
                Ok(())
            }
            _ => Err(self.path),
        }
    }
}

/// The rules of a kind.
pub(super) fn of(kind: &str) -> Vec<Rule> {
    match kind {
        "Runner" => {
            let mut rules = runner_rules("spec");
            rules.push(nullable("status.lastRegistrationCheckTime"));
            // Applied whenever a Runner is read, so that a starting one has a phase without a write.
            rules.push(keyword("status", "default", json!({"phase": RunnerStatus::CREATED})));
            rules
        }
        "RunnerReplicaSet" => template_rules(),
        "RunnerDeployment" => {
            let mut rules = template_rules();
            rules.extend([
                keyword("spec.maxSurge", "anyOf", json!([{"type": "integer"}, {"type": "string"}])),
                keyword("spec.maxSurge", "pattern", json!("^[0-9]+%$")),
                keyword("spec.maxSurge", "minimum", json!(0)),
            ]);
            rules
        }
        "RunnerSet" => {
            let mut rules = scope_rules("spec");
            rules.extend(credentials_rules("spec"));
            rules.extend(container_mode_rules("spec"));
            rules.push(nullable("spec.effectiveTime"));
            rules
        }
        "HorizontalRunnerAutoscaler" => autoscaler_rules(),
        // Managed fields name each key of a map otherwise, which is more than the keys are.
        "JobLedger" => ["spec.workflows", "spec.jobs"].map(|map| keyword(map, "x-kubernetes-map-type", json!("atomic"))).into(),
        _ => Vec::new(),
    }
}

fn template_rules() -> Vec<Rule> {
    let mut rules = runner_rules("spec.template.spec");
    rules.extend([
        Rule { path: "spec.template".to_owned(), addition: Addition::Required("spec") },
        nullable("spec.effectiveTime"),
        nullable("spec.selector"),
    ]);
    rules
}

fn runner_rules(spec: &str) -> Vec<Rule> {
    let mut rules = scope_rules(spec);
    rules.extend(credentials_rules(spec));
    rules.extend(container_mode_rules(spec));
    rules.push(holds(
        &format!("{spec}.sidecarContainers"),
        "self.all(container, container.name != 'runner')",
        "sidecarContainers cannot hold a container named runner, which the operator makes: give it another name, or move it to containers \
         to change the runner's own",
    ));
    rules
}

fn scope_rules(spec: &str) -> Vec<Rule> {
    let given = "[has(self.enterprise), has(self.organization), has(self.repository)].filter(given, given).size()";
    vec![
        holds(
            spec,
            &format!("{given} > 0"),
            "the spec needs enterprise, organization or repository: set the one that the runners register to",
        ),
        holds(
            spec,
            &format!("{given} < 2"),
            "the spec cannot have more than one of enterprise, organization and repository: keep the one that the runners register to",
        ),
    ]
}

fn credentials_rules(spec: &str) -> Vec<Rule> {
    name_rules(
        &format!("{spec}.githubAPICredentialsFrom.secretRef.name"),
        "secretRef.name is no name of a Secret: use lower case letters, digits, - and ., as kubectl get secrets shows it",
    )
}

/// A name of another object, which becomes part of a path at the API server. An empty one counts as absent, as in ARC.
fn name_rules(path: &str, message: &'static str) -> Vec<Rule> {
    let name = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
    let rule = format!("self == '' || self.matches('^{name}(\\\\.{name})*$')");
    // With a bound the API server can estimate what the rule costs.
    vec![holds(path, &rule, message), keyword(path, "maxLength", json!(253))]
}

fn container_mode_rules(spec: &str) -> Vec<Rule> {
    let other_mode = "!has(self.containerMode) || self.containerMode != 'kubernetes'";
    let no_claim = "!has(self.workVolumeClaimTemplate)";
    let modes = "self.workVolumeClaimTemplate.accessModes";
    vec![
        holds(
            spec,
            &format!("{other_mode} || has(self.workVolumeClaimTemplate)"),
            "containerMode kubernetes needs workVolumeClaimTemplate: add one with storageClassName, accessModes and resources",
        ),
        holds(
            spec,
            &format!("{other_mode} || {no_claim} || {modes}.size() > 0"),
            "workVolumeClaimTemplate.accessModes is empty: name ReadWriteOnce or ReadWriteMany",
        ),
        holds(
            spec,
            &format!("{other_mode} || {no_claim} || {modes}.all(mode, mode == 'ReadWriteOnce' || mode == 'ReadWriteMany')"),
            "workVolumeClaimTemplate.accessModes supports ReadWriteOnce and ReadWriteMany only: remove the others",
        ),
        // Kubernetes has four access modes; with a bound the API server can estimate what the rule above costs.
        keyword(&format!("{spec}.workVolumeClaimTemplate.accessModes"), "maxItems", json!(8)),
    ]
}

fn autoscaler_rules() -> Vec<Rule> {
    let mut rules = credentials_rules("spec");
    rules.extend(name_rules(
        "spec.scaleTargetRef.name",
        "scaleTargetRef.name is no name of an object: use lower case letters, digits, - and ., as kubectl get shows it",
    ));
    rules.extend([
        holds(
            "spec",
            "!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
            "minReplicas is greater than maxReplicas: lower minReplicas or raise maxReplicas",
        ),
        // ARC fails every reconciliation of an autoscaler that has more.
        keyword("spec.metrics", "maxItems", json!(2)),
        keyword("spec.scheduledOverrides.[].timeZone", "pattern", json!("^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$")),
        keyword("spec.scheduledOverrides.[].timeZone", "maxLength", json!(64)),
        nullable("spec.scheduledOverrides.[].minReplicas"),
        nullable("status.lastSuccessfulScaleOutTime"),
    ]);
    rules
}

fn holds(path: &str, rule: &str, message: &'static str) -> Rule {
    Rule { path: path.to_owned(), addition: Addition::Holds { rule: rule.to_owned(), message } }
}

fn nullable(path: &str) -> Rule {
    Rule { path: path.to_owned(), addition: Addition::Nullable }
}

fn keyword(path: &str, key: &'static str, value: Value) -> Rule {
    Rule { path: path.to_owned(), addition: Addition::Keyword(key, value) }
}
