//! What the container hooks of the runner image do for a job in container mode `kubernetes`: a pod and a Secret, made and removed with the
//! runner's own rights.
//!
//! Nothing runs in the pod; it has no label `actions-runner`, so that no simulated node takes it.

use http::Method;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::environment::Environment;
use super::{Shared, identity};

/// Label that leads from what the hooks made to the runner's pod.
const LABEL: &str = "runner-pod";

/// Whether jobs get pods of their own.
pub(super) fn is_enabled(environment: &Environment) -> bool {
    environment.get("ACTIONS_RUNNER_CONTAINER_HOOKS").is_some_and(|path| !path.is_empty())
}

/// Prepares a job. False when the hooks were refused something, which fails the job.
pub(super) async fn prepare(shared: &Shared, pod: &Pod, environment: &Environment) -> bool {
    let (namespace, runner) = place(pod, environment);
    let metadata = |suffix: &str| json!({"name": format!("{runner}-{suffix}"), "labels": {LABEL: runner}});
    let job = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata("workflow"),
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "job", "image": "job", "volumeMounts": [{"name": "work", "mountPath": "/__w"}]}],
            "volumes": [{"name": "work", "persistentVolumeClaim": {"claimName": format!("{}-work", pod.name_any())}}],
        },
    });
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata("env"), "stringData": {"TOKEN": "of the job"}});
    send(shared, pod, Method::POST, format!("/api/v1/namespaces/{namespace}/secrets"), &secret).await
        && send(shared, pod, Method::POST, format!("/api/v1/namespaces/{namespace}/pods"), &job).await
        && send(shared, pod, Method::GET, format!("/api/v1/namespaces/{namespace}/pods/{runner}-workflow"), &Value::Null).await
}

/// Cleans up after a job.
pub(super) async fn clean_up(shared: &Shared, pod: &Pod, environment: &Environment) {
    let (namespace, runner) = place(pod, environment);
    for (kind, suffix) in [("pods", "workflow"), ("secrets", "env")] {
        let path = format!("/api/v1/namespaces/{namespace}/{kind}/{runner}-{suffix}");
        send(shared, pod, Method::DELETE, path, &json!({})).await;
    }
}

fn place(pod: &Pod, environment: &Environment) -> (String, String) {
    let get = |name: &str| environment.get(name).cloned().unwrap_or_default();
    let namespace = Some(get("ACTIONS_RUNNER_JOB_NAMESPACE")).filter(|namespace| !namespace.is_empty());
    (namespace.or_else(|| pod.namespace()).unwrap_or_default(), get("ACTIONS_RUNNER_POD_NAME"))
}

async fn send(shared: &Shared, pod: &Pod, method: Method, path: String, body: &Value) -> bool {
    let outcome = identity::request(shared, pod, method, &path, "application/json", body).await;
    if let Err(error) = &outcome {
        tracing::debug!(%error, path, "the container hooks were refused");
    }
    outcome.is_ok()
}
