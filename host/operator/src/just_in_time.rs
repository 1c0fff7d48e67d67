//! Runners that are registered ahead of their agents: one registration for each, whose configuration lies in a Secret of its own.
//!
//! ```text
//! recall (a Secret of an earlier try) -> begin (an empty Secret) -> register -> fill the Secret -> pod, which refers to it
//!                                                                     |-> name taken: by an answer that was lost -> remove, and again
//!                                                                     |-> not registered -> discard the Secret
//!                                                                     `-> the Secret is not filled -> filled at the next try
//! ```
//!
//! GitHub's id is known from the answer, and so the registration of a runner whose pod never starts is removed like any other. An empty Secret
//! says that GitHub was asked and that its answer is not known: what is registered under the name is this Runner's, also for the next process.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use kube::{Api, Client, Resource, ResourceExt};
use pacer_api::Runner;
use pacer_api::names::annotation;
use pacer_api::platform::is_just_in_time;
use pacer_cluster::answer::ignore_not_found;
use pacer_cluster::object::Uid;
use pacer_cluster::owner::is_owned;
use pacer_core::scope::Scope;
use pacer_github::{JitRequest, JustInTime};
use serde_json::json;

use crate::access::Access;
use crate::error::Error;
use crate::pod::{Held, TokenSource, is_registration_only};

/// Key within the Secret.
const KEY: &str = "config";

/// Working directory of jobs where the spec names none: the agent's own default, below its directory.
const WORK_FOLDER: &str = "_work";

/// Whether a Runner wants to be registered ahead.
#[must_use]
pub(crate) fn is_wanted(runner: &Runner) -> bool {
    is_just_in_time(runner.annotations()) && !is_registration_only(runner)
}

/// What earlier tries left of a Runner's registration.
pub enum Recalled {
    /// It is registered, with this configuration.
    Made {
        /// GitHub's id.
        id: u64,
        /// Where the configuration is.
        source: TokenSource,
    },
    /// It is registered, and the API server has not taken the configuration yet: [`Configurations::keep`] is to be tried again with it.
    Unwritten(JustInTime),
    /// GitHub was asked, and its answer is not known.
    Begun,
}

/// The Secrets with the configurations.
pub struct Configurations {
    client: Client,
    /// Of Runners that are registered and whose Secrets the API server has not taken.
    unwritten: Mutex<HashMap<Uid, JustInTime>>,
}

impl Configurations {
    /// Reads and writes Secrets through this client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client, unwritten: Mutex::default() }
    }

    /// What is known of a Runner's registration, if there was any try.
    ///
    /// # Errors
    ///
    /// When the API server does not answer.
    pub async fn recall(&self, runner: &Runner, uid: &Uid) -> Result<Option<Recalled>, Error> {
        let secret = self.secrets(runner).get_opt(&name(uid)).await?;
        let own = secret.filter(|secret| is_owned(&secret.metadata, uid));
        Ok(own.map(|secret| match secret.annotations().get(annotation::RUNNER_ID).and_then(|id| id.parse().ok()) {
            Some(id) => Recalled::Made { id, source: source(uid, id) },
            None => self.unwritten().get(uid).cloned().map_or(Recalled::Begun, Recalled::Unwritten),
        }))
    }

    /// Writes down that GitHub is about to be asked.
    ///
    /// # Errors
    ///
    /// When the API server does not take it.
    pub async fn begin(&self, runner: &Runner, uid: &Uid) -> Result<(), Error> {
        let owner = runner.controller_owner_ref(&()).ok_or(Error::Incomplete("Runner", "UID"))?;
        let secret = Secret {
            metadata: ObjectMeta { name: Some(name(uid)), owner_references: Some(vec![owner]), ..ObjectMeta::default() },
            type_: Some("Opaque".to_owned()),
            ..Secret::default()
        };
        self.secrets(runner).create(&PostParams::default(), &secret).await?;
        Ok(())
    }

    /// Keeps the configuration of a Runner whose registration was begun, for as long as the Runner lives: in its Secret, or in memory until the API
    /// server takes it.
    ///
    /// # Errors
    ///
    /// When the API server does not take it.
    pub async fn keep(&self, runner: &Runner, uid: &Uid, made: &JustInTime) -> Result<TokenSource, Error> {
        let patch = json!({
            "metadata": {"annotations": {annotation::RUNNER_ID: made.id.to_string()}},
            "stringData": {KEY: made.config.expose()},
        });
        self.unwritten().insert(uid.clone(), made.clone());
        self.secrets(runner).patch(&name(uid), &PatchParams::default(), &Patch::Merge(&patch)).await?;
        self.unwritten().remove(uid);
        Ok(source(uid, made.id))
    }

    /// Deletes what is kept of a Runner's registration, which is gone or was never made.
    ///
    /// # Errors
    ///
    /// When the API server does not do so.
    pub async fn discard(&self, runner: &Runner, uid: &Uid) -> Result<(), Error> {
        self.unwritten().remove(uid);
        ignore_not_found(self.secrets(runner).delete(&name(uid), &DeleteParams::default()).await)?;
        Ok(())
    }

    /// Forgets what belongs to Runners that do not exist.
    pub(crate) fn retain(&self, exists: impl Fn(&Uid) -> bool) {
        self.unwritten().retain(|runner, _| exists(runner));
    }

    fn unwritten(&self) -> MutexGuard<'_, HashMap<Uid, JustInTime>> {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn secrets(&self, runner: &Runner) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &runner.namespace().unwrap_or_default())
    }
}

/// Name of a Runner's Secret.
fn name(uid: &Uid) -> String {
    format!("runner-jit-{}", uid.as_str())
}

fn source(uid: &Uid, id: u64) -> TokenSource {
    TokenSource { holds: Held::JustInTime { id }, name: name(uid), key: KEY.to_owned() }
}

/// GitHub's id of the group that a Runner is to be in; none when there is no such group.
///
/// # Errors
///
/// When GitHub does not list its groups.
pub(crate) async fn group(runner: &Runner, access: &Access) -> Result<Option<u64>, Error> {
    let Some(wanted) = runner.spec.config.group() else { return Ok(Some(JitRequest::DEFAULT_GROUP)) };
    match access.scope() {
        Scope::Repository { .. } => Ok(Some(JitRequest::DEFAULT_GROUP)),
        scope @ (Scope::Organization(_) | Scope::Enterprise(_)) => {
            let groups = access.github().runner_groups(scope).await?;
            Ok(groups.into_iter().find(|group| group.name.eq_ignore_ascii_case(wanted)).map(|group| group.id))
        }
    }
}

/// What GitHub is asked for a Runner.
#[must_use]
pub(crate) fn request<'a>(runner: &'a Runner, name: &'a str, runner_group_id: u64) -> JitRequest<'a> {
    let config = &runner.spec.config;
    // Those that an agent would add by itself: the runner has no others than the request says. Demand is matched against the same ones.
    let mut labels: Vec<String> = runner.spec.pod.platform().with_defaults().labels().into_iter().map(str::to_owned).collect();
    for label in config.labels() {
        if !labels.iter().any(|known| known.eq_ignore_ascii_case(label)) {
            labels.push(label.clone());
        }
    }
    let work_folder = config.work_dir.as_deref().filter(|dir| !dir.is_empty()).unwrap_or(WORK_FOLDER);
    JitRequest { name, runner_group_id, labels, work_folder }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use http::{Method, Request, Response, StatusCode};
    use kube::client::Body;

    use super::*;

    #[tokio::test]
    async fn configuration_that_the_api_server_refused_is_written_at_the_next_try() {
        let refuses = Arc::new(AtomicBool::new(true));
        let asked = refuses.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let is_refused = *request.method() == Method::PATCH && asked.load(Ordering::Relaxed);
            let (code, answer) = match is_refused {
                true => {
                    let status =
                        json!({"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "no"});
                    (StatusCode::FORBIDDEN, status)
                }
                false => {
                    let owner = json!({"apiVersion": "v1", "kind": "Runner", "name": "a", "uid": "1", "controller": true});
                    let meta = json!({"name": "runner-jit-1", "ownerReferences": [owner]});
                    (StatusCode::OK, json!({"kind": "Secret", "apiVersion": "v1", "metadata": meta}))
                }
            };
            let answer = Response::builder().status(code).body(Body::from(answer.to_string().into_bytes())).unwrap();
            async move { Ok::<_, kube::Error>(answer) }
        });
        let configurations = Configurations::new(Client::new(service, "ci"));
        let (mut runner, uid) = (runner(&json!({}), &json!({"repository": "acme/app"})), Uid::new("1").unwrap());
        runner.metadata.namespace = Some("ci".to_owned());
        assert!(matches!(configurations.recall(&runner, &uid).await, Ok(Some(Recalled::Begun))));
        let made = JustInTime { id: 7, config: "config".into() };
        assert!(configurations.keep(&runner, &uid, &made).await.is_err());
        let Ok(Some(Recalled::Unwritten(held))) = configurations.recall(&runner, &uid).await else { panic!("not kept") };
        assert_eq!((held.id, held.config.expose()), (7, "config"));
        refuses.store(false, Ordering::Relaxed);
        let source = configurations.keep(&runner, &uid, &held).await.unwrap();
        assert!(source.holds == Held::JustInTime { id: 7 } && configurations.unwritten().is_empty());
        configurations.unwritten().insert(uid, made);
        configurations.retain(|_| false);
        assert!(configurations.unwritten().is_empty(), "the Runner is gone");
    }

    fn runner(annotations: &serde_json::Value, spec: &serde_json::Value) -> Runner {
        serde_json::from_value(json!({
            "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "Runner",
            "metadata": {"name": "a", "annotations": annotations}, "spec": spec,
        }))
        .unwrap()
    }

    #[test]
    fn runner_is_registered_ahead_when_it_asks_for_that() {
        let wanted = |annotations| is_wanted(&runner(&annotations, &json!({"repository": "acme/app"})));
        assert!(wanted(json!({"actions.summerwind.dev/just-in-time": "true"})));
        assert!(!wanted(json!({})) && !wanted(json!({"actions.summerwind.dev/just-in-time": "false"})));
        let registers =
            json!({"actions.summerwind.dev/just-in-time": "true", "actions-runner-controller/registration-only": "true"});
        assert!(!wanted(registers));
    }

    #[test]
    fn request_has_the_labels_that_an_agent_would_add() {
        let asked = |spec| {
            let runner = runner(&json!({}), &spec);
            let request = request(&runner, "a", 1);
            (request.labels.join(" "), request.work_folder.to_owned())
        };
        let plain = asked(json!({"repository": "acme/app", "labels": ["big", "linux"]}));
        assert_eq!(plain, ("self-hosted linux X64 big".to_owned(), "_work".to_owned()));
        let arm = asked(json!({"repository": "acme/app", "workDir": "/w", "nodeSelector": {"kubernetes.io/arch": "arm64"}}));
        assert_eq!(arm, ("self-hosted linux ARM64".to_owned(), "/w".to_owned()));
        let windows =
            asked(json!({"repository": "acme/app", "nodeSelector": {"kubernetes.io/os": "windows"}, "labels": ["x64", "big"]}));
        assert_eq!(windows.0, "self-hosted windows X64 big");
        let other = asked(json!({"repository": "acme/app", "nodeSelector": {"kubernetes.io/arch": "s390x"}}));
        assert_eq!(other.0, "self-hosted linux");
    }
}
