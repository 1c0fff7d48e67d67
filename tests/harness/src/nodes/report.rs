//! What the runner image's status hook writes: the phase of a Runner, with the pod's own rights.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::agent::Progress;
use super::environment::Environment;
use super::{Shared, identity};

/// Whether the image runs the hook.
pub(super) fn is_enabled(environment: &Environment) -> bool {
    environment.get("RUNNER_STATUS_UPDATE_HOOK").is_some_and(|value| value == "true")
}

/// Writes what the hook writes; a refusal stops a runner as little as it does in the image.
pub(super) async fn write(shared: &Shared, pod: &Pod, progress: Progress) {
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    let path = format!("/apis/actions.summerwind.dev/v1alpha1/namespaces/{namespace}/runners/{name}/status");
    let said = body(shared, progress);
    if let Err(error) = identity::request(shared, pod, http::Method::PATCH, &path, "application/merge-patch+json", &said).await {
        tracing::debug!(%error, namespace, name, "the status hook was refused");
    }
}

fn body(shared: &Shared, progress: Progress) -> Value {
    let running = match progress {
        Progress::Job(id) => shared.github.job(id),
        Progress::Registering | Progress::Registered | Progress::JobDone => None,
    };
    let Some(job) = running else {
        let phase = if progress == Progress::Registering { "Registering" } else { "Idle" };
        let empty = ["name", "runID", "runNumber", "repository", "repositoryOwner", "job", "action"].map(|key| (key, ""));
        return json!({"status": {"phase": phase, "message": "", "workflow": serde_json::Map::from_iter(
            empty.map(|(key, value)| (key.to_owned(), value.into())))}});
    };
    let repository = &job.spec.repository;
    json!({"status": {
        "phase": "Running",
        "message": format!("Run {} from {repository}", job.run),
        "workflow": {
            "name": job.spec.workflow,
            "runID": job.run.to_string(),
            "runNumber": "1",
            "repository": repository,
            "repositoryOwner": repository.split('/').next(),
            "job": job.spec.name,
            "action": "__run",
        },
    }})
}
