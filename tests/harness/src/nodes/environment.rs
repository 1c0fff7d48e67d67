//! The environment of a container, resolved as a kubelet does.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVar, EnvVarSource, Pod, Secret};
use kube::{Api, Client, ResourceExt};

use super::lock;

/// How old a Secret or ConfigMap may be. A kubelet's watch lags about as much.
const FRESH: Duration = Duration::from_millis(250);

/// Values of a container's environment variables by their names.
pub(super) type Environment = HashMap<String, String>;

/// Why a container cannot be made yet; the text is a kubelet's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum EnvironmentError {
    #[error("{kind} {name:?} not found")]
    Missing { kind: &'static str, name: String },
    #[error("couldn't find key {key} in {kind} {namespace}/{name}")]
    MissingKey { kind: &'static str, namespace: String, name: String, key: String },
    #[error("{0}")]
    Unreadable(String),
}

/// Kind, namespace and name of a Secret or ConfigMap.
type Key = (&'static str, String, String);

/// Values of one Secret or ConfigMap.
type Values = BTreeMap<String, String>;

/// Secrets and ConfigMaps as the kubelets know them.
pub(super) struct References {
    client: Client,
    known: Mutex<HashMap<Key, (Instant, Values)>>,
}

impl References {
    pub(super) fn new(client: Client) -> Self {
        Self { client, known: Mutex::default() }
    }

    /// The values of an object, or `None` if it does not exist.
    async fn get(&self, kind: &'static str, namespace: &str, name: &str) -> Result<Option<Values>, EnvironmentError> {
        let key = (kind, namespace.to_owned(), name.to_owned());
        if let Some((read, values)) = lock(&self.known).get(&key)
            && read.elapsed() < FRESH
        {
            return Ok(Some(values.clone()));
        }
        let read = Instant::now();
        let unreadable = |error: kube::Error| EnvironmentError::Unreadable(format!("cannot read {kind} {name}: {error}"));
        let values: Option<Values> = match kind {
            SECRET => {
                let secret = Api::<Secret>::namespaced(self.client.clone(), namespace).get_opt(name).await;
                secret.map_err(unreadable)?.map(|secret| {
                    let text = |(key, value): (_, k8s_openapi::ByteString)| (key, String::from_utf8_lossy(&value.0).into_owned());
                    secret.data.unwrap_or_default().into_iter().map(text).collect()
                })
            }
            _ => {
                let map = Api::<ConfigMap>::namespaced(self.client.clone(), namespace).get_opt(name).await;
                map.map_err(unreadable)?.map(|map| map.data.unwrap_or_default())
            }
        };
        if let Some(values) = &values {
            lock(&self.known).insert(key, (read, values.clone()));
        }
        Ok(values)
    }
}

const SECRET: &str = "secret";
const CONFIG_MAP: &str = "configmap";

/// Resolves the environment of `container`: `envFrom`, then `env`; the last of several variables of one name wins.
pub(super) async fn resolve(
    references: &References,
    pod: &Pod,
    container: &Container,
    node: &str,
) -> Result<Environment, EnvironmentError> {
    let namespace = pod.namespace().unwrap_or_default();
    let mut environment = Environment::new();
    for source in container.env_from.iter().flatten() {
        let reference = source
            .secret_ref
            .as_ref()
            .map(|secret| (SECRET, &secret.name, secret.optional))
            .or_else(|| source.config_map_ref.as_ref().map(|map| (CONFIG_MAP, &map.name, map.optional)));
        let Some((kind, name, optional)) = reference else { continue };
        match references.get(kind, &namespace, name).await? {
            Some(values) => {
                let prefix = source.prefix.as_deref().unwrap_or_default();
                environment.extend(values.into_iter().map(|(key, value)| (format!("{prefix}{key}"), value)));
            }
            None if optional == Some(true) => {}
            None => return Err(EnvironmentError::Missing { kind, name: name.clone() }),
        }
    }
    for variable in container.env.iter().flatten() {
        let value = match variable {
            EnvVar { value_from: Some(source), .. } => referenced(references, pod, node, &namespace, source).await?,
            EnvVar { value, .. } => Some(expand(value.as_deref().unwrap_or_default(), &environment)),
        };
        if let Some(value) = value {
            environment.insert(variable.name.clone(), value);
        }
    }
    Ok(environment)
}

async fn referenced(
    references: &References,
    pod: &Pod,
    node: &str,
    namespace: &str,
    source: &EnvVarSource,
) -> Result<Option<String>, EnvironmentError> {
    let keyed =
        source.secret_key_ref.as_ref().map(|secret| (SECRET, "Secret", &secret.name, &secret.key, secret.optional)).or_else(
            || source.config_map_key_ref.as_ref().map(|map| (CONFIG_MAP, "ConfigMap", &map.name, &map.key, map.optional)),
        );
    if let Some((kind, shown, name, key, optional)) = keyed {
        let values = references.get(kind, namespace, name).await?;
        let missing = match values {
            Some(values) => match values.get(key) {
                Some(value) => return Ok(Some(value.clone())),
                None => EnvironmentError::MissingKey {
                    kind: shown,
                    namespace: namespace.to_owned(),
                    name: name.clone(),
                    key: key.clone(),
                },
            },
            None => EnvironmentError::Missing { kind, name: name.clone() },
        };
        return if optional == Some(true) { Ok(None) } else { Err(missing) };
    }
    Ok(source.field_ref.as_ref().map(|field| field_value(pod, node, &field.field_path)))
}

/// The value of a `fieldRef`; empty where the pod has none.
fn field_value(pod: &Pod, node: &str, path: &str) -> String {
    let keyed = |prefix: &str| path.strip_prefix(prefix).and_then(|rest| rest.strip_suffix("']"));
    if let Some(key) = keyed("metadata.labels['") {
        return pod.labels().get(key).cloned().unwrap_or_default();
    }
    if let Some(key) = keyed("metadata.annotations['") {
        return pod.annotations().get(key).cloned().unwrap_or_default();
    }
    let spec = pod.spec.as_ref();
    match path {
        "metadata.name" => pod.name_any(),
        "metadata.namespace" => pod.namespace().unwrap_or_default(),
        "metadata.uid" => pod.uid().unwrap_or_default(),
        "spec.nodeName" => node.to_owned(),
        "spec.serviceAccountName" => spec.and_then(|spec| spec.service_account_name.clone()).unwrap_or_default(),
        "status.hostIP" | "status.podIP" => "127.0.0.1".to_owned(),
        _ => String::new(),
    }
}

/// Replaces `$(NAME)` by earlier variables; `$$` escapes, and unknown names stay as they are.
fn expand(text: &str, known: &Environment) -> String {
    let mut output = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        output.push_str(before);
        if let Some(after) = after.strip_prefix('$') {
            output.push('$');
            rest = after;
        } else if let Some((name, after)) = after.strip_prefix('(').and_then(|name| name.split_once(')')) {
            match known.get(name) {
                Some(value) => output.push_str(value),
                None => output.push_str(&format!("$({name})")),
            }
            rest = after;
        } else {
            output.push('$');
            rest = after;
        }
    }
    output + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_expand_as_in_kubernetes() {
        let known = Environment::from([("GID".to_owned(), "121".to_owned())]);
        for (text, expected) in [
            ("--group=$(GID)", "--group=121"),
            ("$(NONE)/$(GID)", "$(NONE)/121"),
            ("$$(GID)", "$(GID)"),
            ("a$b$", "a$b$"),
            ("$(open", "$(open"),
            ("", ""),
        ] {
            assert_eq!(expand(text, &known), expected, "{text}");
        }
    }

    #[test]
    fn fields_of_the_pod_can_be_referenced() {
        let pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "p", "namespace": "ci", "uid": "u", "labels": {"a/b": "c"}},
            "spec": {"containers": [], "serviceAccountName": "sa"},
        }))
        .unwrap();
        for (path, expected) in [
            ("metadata.name", "p"),
            ("metadata.namespace", "ci"),
            ("metadata.uid", "u"),
            ("metadata.labels['a/b']", "c"),
            ("metadata.annotations['none']", ""),
            ("spec.nodeName", "node-1"),
            ("spec.serviceAccountName", "sa"),
        ] {
            assert_eq!(field_value(&pod, "node-1", path), expected, "{path}");
        }
    }
}
