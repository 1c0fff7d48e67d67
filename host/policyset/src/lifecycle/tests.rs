//! A trial whose note is under way when the operator stops.

use std::sync::Mutex;

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use pacer_cluster::events::Events;
use pacer_policy::Counters;
use pacer_registry::{Registries, VerificationKeys};
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::Options;

/// An API server with one ConfigMap, which carries a patch out at once and answers it once it is told to.
fn client(status: &Arc<Mutex<Vec<String>>>, answers: &watch::Receiver<bool>) -> Client {
    let (status, answers) = (Arc::clone(status), answers.clone());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (status, mut answers) = (Arc::clone(&status), answers.clone());
        async move {
            let (parts, body) = request.into_parts();
            let query = parts.uri.query().unwrap_or_default().to_owned();
            let content = match parts.method {
                Method::PATCH => {
                    let patch: Value = serde_json::from_slice(&body.collect_bytes().await?).map_err(kube::Error::SerdeError)?;
                    let text = &patch["metadata"]["annotations"][annotation::POLICY_STATUS];
                    status.lock().unwrap().push(text.as_str().unwrap().to_owned());
                    answers.wait_for(|answers| *answers).await.unwrap();
                    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "set"}})
                }
                _ if query.contains("watch=") => std::future::pending().await,
                _ => {
                    let set = json!({
                        "metadata": {"name": "set", "namespace": "own", "uid": "u", "resourceVersion": "1"},
                        "data": {"policies.yaml": "scale-down: {module: m}"},
                    });
                    let items = if query.contains("fieldSelector=") { vec![set] } else { Vec::new() };
                    json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items})
                }
            };
            Ok::<_, kube::Error>(Response::new(Body::from(content.to_string().into_bytes())))
        }
    });
    Client::new(service, "own")
}

#[tokio::test]
async fn stop_withdraws_a_trial_whose_note_is_not_answered_yet() {
    let (statuses, (answer, answers)) = (Arc::default(), watch::channel(false));
    let client = client(&statuses, &answers);
    let key = ObjectKey::new("own", "set");
    let options =
        Options { default: Some(key.clone()), namespace: "own".to_owned(), builtin_only: false, default_is_anothers: false };
    let registries = Registries::new(VerificationKeys::default(), 0);
    let sets = Arc::new(PolicySets::new(Arc::new(PolicyHost::new(Arc::new(Counters::default()))), registries, options));
    let (changed, _changes) = mpsc::channel(8);
    let events = Events::new(client.clone(), "test".to_owned());
    let mut lifecycle = Lifecycle::new(key, sets, Cluster { client, events, changed });
    let stop = CancellationToken::new();
    let noted =
        || statuses.lock().unwrap().last().and_then(|text: &String| Report::read(text)).is_some_and(|said| said.trial.is_some());
    let stopped = async {
        while !noted() {
            tokio::task::yield_now().await;
        }
        stop.cancel();
    };
    let (outcome, ()) = tokio::join!(stop.run_until_cancelled(lifecycle.run()), stopped);
    assert!(outcome.is_none());
    let answered = async {
        tokio::task::yield_now().await;
        answer.send(true).unwrap();
    };
    tokio::join!(lifecycle.interrupted(), answered);
    assert!(!noted(), "{statuses:?}");
}
