//! The CustomResourceDefinitions of all kinds.
//!
//! Schemas come from the types: `schema` turns what schemars says into what the API server accepts, `rules` adds what types cannot say. Two
//! things keep the files small enough for client-side apply: descriptions of core types are left out, and so is the metadata that nobody
//! can set in a template.

mod rules;
mod schema;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceValidation, JSONSchemaProps,
};
use kube::CustomResourceExt;
use schemars::JsonSchema;
use serde_json::{Value, json};

use crate::job_ledger::JobLedgerSpec;
use crate::{
    HorizontalRunnerAutoscaler, HorizontalRunnerAutoscalerSpec, HorizontalRunnerAutoscalerStatus, JobLedger, Runner,
    RunnerDeployment, RunnerDeploymentSpec, RunnerDeploymentStatus, RunnerReplicaSet, RunnerReplicaSetSpec,
    RunnerReplicaSetStatus, RunnerSet, RunnerSetSpec, RunnerSetStatus, RunnerSpec, RunnerStatus,
};

/// Why no definition could be made. Each means a mistake in the types, not in anything a user wrote.
#[derive(Debug, thiserror::Error)]
pub enum CrdError {
    /// The schema is not one that a CustomResourceDefinition can hold.
    #[error("the schema of {kind} cannot be written as a CustomResourceDefinition: {source}")]
    Schema {
        /// Kind of the definition.
        kind: String,
        /// What JSONSchemaProps cannot hold.
        source: serde_json::Error,
    },
    /// A rule names a place that the schema does not have.
    #[error("the schema of {kind} has no {path} to put a rule on")]
    Rule {
        /// Kind of the definition.
        kind: String,
        /// Pointer into the schema.
        path: String,
    },
    /// The definition cannot be written as YAML.
    #[error("cannot write the definition of {name} as YAML: {reason}")]
    Yaml {
        /// Name of the definition.
        name: String,
        /// What the writer said.
        reason: String,
    },
}

/// All definitions, in the order in which the kinds build on each other.
///
/// # Errors
///
/// When a schema cannot be expressed; the tests make sure that none is.
pub fn all() -> Result<Vec<CustomResourceDefinition>, CrdError> {
    Ok(vec![
        definition::<RunnerSpec, RunnerStatus>(Runner::crd(), "One self-hosted GitHub Actions runner in one pod.")?,
        definition::<RunnerReplicaSetSpec, RunnerReplicaSetStatus>(
            RunnerReplicaSet::crd(),
            "A number of runners of one template.",
        )?,
        definition::<RunnerDeploymentSpec, RunnerDeploymentStatus>(
            RunnerDeployment::crd(),
            "A fleet of runners: a number of runners of one template, and the rollout of changes to it.",
        )?,
        definition::<RunnerSetSpec, RunnerSetStatus>(
            RunnerSet::crd(),
            "A number of runners that keep volumes: runner settings beside the fields of a StatefulSet's spec.",
        )?,
        definition::<HorizontalRunnerAutoscalerSpec, HorizontalRunnerAutoscalerStatus>(
            HorizontalRunnerAutoscaler::crd(),
            "Scales a RunnerDeployment or a RunnerSet by demand.",
        )?,
        described(
            JobLedger::crd(),
            "Jobs that a HorizontalRunnerAutoscaler knows from webhooks. Made and deleted by pacer.",
            json!({"spec": schema::of::<JobLedgerSpec>()}),
        )?,
    ])
}

/// The definitions as YAML documents, each with the name of its file: `<plural>.yaml`.
///
/// # Errors
///
/// As [`all`], and when a definition cannot be written.
pub fn files() -> Result<Vec<(String, String)>, CrdError> {
    all()?
        .into_iter()
        .map(|definition| {
            let name = definition.metadata.name.clone().unwrap_or_default();
            let text =
                serde_saphyr::to_string(&definition).map_err(|error| CrdError::Yaml { name, reason: error.to_string() })?;
            Ok((format!("{}.yaml", definition.spec.names.plural), format!("{HEADER}{text}")))
        })
        .collect()
}

/// The definitions as one YAML stream.
///
/// # Errors
///
/// As [`files`].
pub fn yaml() -> Result<String, CrdError> {
    Ok(files()?.into_iter().map(|(_, text)| format!("---\n{text}")).collect())
}

const HEADER: &str = "# SPDX-License-Identifier: Apache-2.0\n# Generated from the types in host/api; do not edit.\n";

/// `definition` with the schema of its spec and status.
fn definition<Spec: JsonSchema, Status: JsonSchema>(
    definition: CustomResourceDefinition,
    description: &str,
) -> Result<CustomResourceDefinition, CrdError> {
    described(definition, description, json!({"spec": schema::of::<Spec>(), "status": schema::of::<Status>()}))
}

/// `definition` with the schema of these parts.
fn described(
    mut definition: CustomResourceDefinition,
    description: &str,
    parts: Value,
) -> Result<CustomResourceDefinition, CrdError> {
    let kind = definition.spec.names.kind.clone();
    let mut root = json!({
        "type": "object",
        "description": description,
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
        },
    });
    if let (Some(Value::Object(properties)), Value::Object(parts)) = (root.get_mut("properties"), parts) {
        properties.extend(parts);
    }
    for rule in rules::of(&kind) {
        rule.put(&mut root).map_err(|path| CrdError::Rule { kind: kind.clone(), path })?;
    }
    let props: JSONSchemaProps = serde_json::from_value(root).map_err(|source| CrdError::Schema { kind, source })?;
    for version in &mut definition.spec.versions {
        version.schema = Some(CustomResourceValidation { open_api_v3_schema: Some(props.clone()) });
    }
    Ok(definition)
}

/// The place that `path` names below the schema `root`: property names, `[]` for the items of a list.
fn locate<'a>(root: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    path.split('.').filter(|part| !part.is_empty()).try_fold(root, |schema, part| match part {
        "[]" => schema.get_mut("items"),
        name => schema.get_mut("properties")?.get_mut(name),
    })
}
