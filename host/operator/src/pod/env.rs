//! Environment variables that belong to the contract with the runner image.

use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector, SecretKeySelector};

use super::{PodWarning, TokenSource};

/// A variable with a value in clear.
pub(super) fn literal(name: &str, value: impl Into<String>) -> EnvVar {
    EnvVar { name: name.to_owned(), value: Some(value.into()), value_from: None }
}

/// A variable that kubelet fills from a field of the pod.
pub(super) fn of_field(name: &str, path: &str) -> EnvVar {
    let field = ObjectFieldSelector { api_version: None, field_path: path.to_owned() };
    sourced(name, EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() })
}

/// A variable that kubelet fills from a Secret, which must exist.
pub(super) fn of_secret(name: &str, source: &TokenSource) -> EnvVar {
    let key = SecretKeySelector { name: source.name.clone(), key: source.key.clone(), optional: None };
    sourced(name, EnvVarSource { secret_key_ref: Some(key), ..EnvVarSource::default() })
}

/// Sets a variable that is the operator's to set.
///
/// A value of the user's is replaced where it stands: ARC appended a second entry of the same name, of which kubelet takes the
/// last, so the outcome is the same, but a list with two entries of a name cannot be applied on the server side.
pub(super) fn set(container: &mut Container, variable: EnvVar, warnings: &mut Vec<PodWarning>) {
    let env = container.env.get_or_insert_default();
    let same_name = |present: &EnvVar| present.name == variable.name;
    if env.iter().any(|present| same_name(present) && *present != variable) {
        warnings.push(PodWarning::EnvReplaced { container: container.name.clone(), variable: variable.name.clone() });
    }
    let at = env.iter().position(same_name).unwrap_or(env.len());
    env.retain(|present| !same_name(present));
    env.insert(at, variable);
}

/// Sets a variable unless the user gave it a non-empty value or a source.
pub(super) fn supply(container: &mut Container, variable: EnvVar) {
    if has_value(container, &variable.name) {
        return;
    }
    let env = container.env.get_or_insert_default();
    env.retain(|present| present.name != variable.name);
    env.push(variable);
}

/// Whether a container has an entry for a variable, with whatever value.
pub(super) fn is_present(container: &Container, name: &str) -> bool {
    container.env.iter().flatten().any(|present| present.name == name)
}

/// Whether a variable has a non-empty value or a source. Of several entries the last one counts, as it does for kubelet.
fn has_value(container: &Container, name: &str) -> bool {
    let last = container.env.iter().flatten().rfind(|present| present.name == name);
    last.is_some_and(|present| present.value_from.is_some() || present.value.as_deref().is_some_and(|value| !value.is_empty()))
}

fn sourced(name: &str, source: EnvVarSource) -> EnvVar {
    EnvVar { name: name.to_owned(), value: None, value_from: Some(source) }
}
