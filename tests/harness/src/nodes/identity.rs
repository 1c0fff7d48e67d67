//! Requests of what runs in a pod: with the rights of the pod's service account, and none of the nodes'.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::Value;

use super::Shared;

/// Sends a request as the pod's service account.
pub(super) async fn request(
    shared: &Shared,
    pod: &Pod,
    method: http::Method,
    path: &str,
    content_type: &str,
    body: &Value,
) -> Result<String, kube::Error> {
    let namespace = pod.namespace().unwrap_or_default();
    let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref()).unwrap_or("default");
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::CONTENT_TYPE, content_type)
        .header("Impersonate-User", format!("system:serviceaccount:{namespace}:{account}"))
        .header("Impersonate-Group", "system:serviceaccounts")
        .header("Impersonate-Group", format!("system:serviceaccounts:{namespace}"))
        .header("Impersonate-Group", "system:authenticated")
        .body(body.to_string().into_bytes())
        .map_err(kube::Error::HttpError)?;
    // The semaphore is never closed.
    let _permit = shared.writes.acquire().await;
    shared.client.request_text(request).await
}
