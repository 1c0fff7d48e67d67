//! Pods whose Runner is gone.
//!
//! ARC deleted a Runner before its pod was gone: whoever stops it at such a moment leaves pods whose Runner is missing and which nobody
//! unregisters. They are taken down here, as if their Runner were still being deleted.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::runtime::reflector::ObjectRef;
use kube::{Client, ResourceExt};
use pacer_api::names::{RUNNER_CONTAINER, annotation, env};
use pacer_api::runner::{GitHubApiCredentialsFrom, SecretReference};
use pacer_api::{Runner, RunnerConfig, RunnerStatus};
use pacer_cluster::clock::Clock;
use pacer_cluster::live;
use pacer_cluster::object::Uid;
use pacer_cluster::owner::controller;
use pacer_core::stop::{self, Step, WaitReason};
use pacer_github::Removal;
use pacer_github::runner_list::Haste;

use super::finalizer::{free, runner_id};
use crate::access::{Access, Accesses};
use crate::error::Error;
use crate::observe::{Known, Observer};
use crate::removal::Registered;
use crate::runner_pod::RunnerPod;
use crate::settings::{ORPHAN_GRACE, Settings};

/// Takes abandoned pods down.
pub(crate) struct Abandoned {
    pub(crate) client: Client,
    pub(crate) observer: Observer,
    pub(crate) github: Arc<Accesses>,
    pub(crate) settings: Arc<Settings>,
}

/// A pod that is being taken down.
struct Pending {
    /// Its listing goes on for as long as this is held.
    access: Access,
    known: Known,
}

impl Abandoned {
    /// Looks for such pods from when the stores are full, for as long as it is polled.
    pub(crate) async fn search(&self) {
        if !self.observer.stores.full().await {
            return;
        }
        let mut pending: HashMap<Uid, Pending> = HashMap::new();
        loop {
            let mut next = self.settings.sync_period.clamp(Duration::from_secs(1), ORPHAN_GRACE);
            let abandoned = self.observer.stores.pods.state_filter(|pod| pod.facts.held && self.is_abandoned(pod));
            pending.retain(|uid, _| abandoned.iter().any(|pod| Uid::of(&**pod).as_ref() == Ok(uid)));
            for pod in abandoned {
                match self.take_down(&pod, &mut pending).await {
                    Ok(None) => {}
                    Ok(Some(wait)) => next = next.min(wait.max(Duration::from_secs(1))),
                    Err(error) if let Some(wait) = error.deferral() => next = next.min(wait),
                    Err(error) => tracing::warn!(
                        namespace = pod.namespace(),
                        pod = pod.name_any(),
                        %error,
                        "a pod that ARC left without its Runner could not be taken down, trying again"
                    ),
                }
            }
            tokio::time::sleep(next).await;
        }
    }

    /// Whether the Runner that a pod names is not among the known ones.
    fn is_abandoned(&self, pod: &RunnerPod) -> bool {
        controller::<Runner>(pod).is_some_and(|owner| {
            let runner = ObjectRef::new(owner.name).within(&pod.namespace().unwrap_or_default());
            self.observer.stores.runners.get(&runner).is_none_or(|runner| runner.uid().as_deref() != Some(owner.uid))
        })
    }

    /// One step of a pod's end. Returns when the next is due; none when its Runner exists after all or there is no pod any more.
    async fn take_down(&self, pod: &RunnerPod, pending: &mut HashMap<Uid, Pending>) -> Result<Option<Duration>, Error> {
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let Some(owner) = controller::<Runner>(pod) else { return Ok(None) };
        if live::metadata_of::<Runner>(&self.client, &namespace, owner.name, owner.uid).await?.is_some() {
            return Ok(None);
        }
        let found = live::object::<Pod>(&self.client, &namespace, &name).await?;
        let Some(whole) = found.filter(|found| found.uid() == pod.uid()) else { return Ok(None) };
        let runner = departed(&whole, owner.uid);
        let uid = Uid::of(&runner)?;
        let clock = Clock::read();
        // Without its credentials nothing can be done at GitHub; what the error says goes into the log with each try.
        let access = self.github.get_to_stop(&namespace, &runner.spec.config).await?;
        let pending = pending.entry(Uid::of(pod)?).or_insert_with(|| {
            tracing::info!(namespace, pod = name, scope = %access.scope(), "taking down a pod that ARC left without its Runner");
            Pending { access: access.clone(), known: Known::default() }
        });
        pending.access = access;
        let access = &pending.access;
        let observed = self.observer.observe_known(&runner, Some(access), &pending.known, clock).await?;
        pending.known.record(&observed);
        let wait = match stop::next(&observed.facts, observed.refused_busy, &self.settings.stop, clock.now) {
            Step::Unregister { id } => {
                let registered = Registered { uid: &uid, id, namespace: &namespace, facts: &observed.facts };
                match self.observer.removals.unregister(access, registered, clock).await? {
                    Removal::Removed | Removal::Absent => SOON,
                    Removal::Busy { .. } => stop::BUSY_RETRY,
                }
            }
            Step::DeletePod(how) => {
                self.observer.removals.delete_pod(&namespace, &observed.facts, how).await?;
                SOON
            }
            Step::FreePod => {
                free(&self.client, pod).await?;
                SOON
            }
            Step::Wait { why, recheck } => {
                if why == WaitReason::ListingUnknown {
                    access.await_listing(&name, Haste::Removal, observed.waited(clock));
                }
                recheck
            }
            Step::Release => return Ok(None),
        };
        Ok(Some(wait))
    }
}

/// A pod is looked at this long after each step.
const SOON: Duration = Duration::from_secs(1);

/// The Runner that a pod was made for, as far as the pod tells: where it registered, with which credentials, under which id.
fn departed(pod: &Pod, uid: &str) -> Runner {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let container = containers.into_iter().find(|container| container.name == RUNNER_CONTAINER);
    let text = |name: &str| container.and_then(|container| literal(container, name));
    let mut runner = Runner::default();
    runner.metadata.name = Some(pod.name_any());
    runner.metadata.namespace = pod.namespace();
    runner.metadata.uid = Some(uid.to_owned());
    // One whose deletion nobody asked for yet has its whole time to finish its job, however old it is.
    let asked = pod.metadata.deletion_timestamp.clone();
    runner.metadata.deletion_timestamp = Some(asked.unwrap_or_else(|| Time(jiff::Timestamp::now())));
    runner.metadata.creation_timestamp = pod.metadata.creation_timestamp.clone();
    let secret = pod.annotations().get(annotation::CREDENTIALS_SECRET);
    runner.spec.config = Arc::new(RunnerConfig {
        repository: text(env::RUNNER_REPO),
        organization: text(env::RUNNER_ORG),
        enterprise: text(env::RUNNER_ENTERPRISE),
        ephemeral: text(env::RUNNER_EPHEMERAL).map(|text| text == "true"),
        github_api_credentials_from: secret
            .map(|name| GitHubApiCredentialsFrom { secret_ref: Some(SecretReference { name: name.clone() }) }),
        ..RunnerConfig::default()
    });
    let runner_id = runner_id(pod).and_then(|id| i64::try_from(id).ok());
    runner.status = Some(RunnerStatus { runner_id, ..RunnerStatus::default() });
    runner
}

/// A variable's value where it is written out and not empty; the last of several counts.
fn literal(container: &Container, name: &str) -> Option<String> {
    let last = container.env.iter().flatten().rfind(|variable| variable.name == name);
    last.and_then(|variable| variable.value.clone()).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> Pod {
        serde_json::from_value(json!({
            "metadata": {
                "name": "web-x7k2p-abcde", "namespace": "ci", "uid": "p",
                "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-02T00:00:00Z",
                "annotations": {"actions-runner/id": "17", "actions-runner/github-api-creds-secret": "acme"},
                "finalizers": ["actions.summerwind.dev/runner-pod", "example.com/other", "actions.summerwind.dev/linked-resources"],
            },
            "spec": {"containers": [{"name": "docker"}, {"name": "runner", "env": [
                {"name": "RUNNER_REPO", "value": "acme/of-a-user"}, {"name": "RUNNER_ORG", "value": "acme"}, {"name": "RUNNER_REPO"},
                {"name": "RUNNER_ENTERPRISE", "value": ""}, {"name": "RUNNER_EPHEMERAL", "value": "true"},
                {"name": "RUNNER_ORG", "value": "acme-inc"},
            ]}]},
        }))
        .unwrap()
    }

    #[test]
    fn a_pod_tells_what_is_needed_to_take_it_down() {
        let runner = departed(&pod(), "r");
        let config = &runner.spec.config;
        assert_eq!(config.scope().unwrap().to_string(), "organization acme-inc");
        assert_eq!((config.credentials_secret(), config.is_ephemeral()), (Some("acme"), true));
        assert_eq!((runner.uid().as_deref(), runner.name_any().as_str()), (Some("r"), "web-x7k2p-abcde"));
        assert_eq!(runner.status.unwrap().runner_id, Some(17));
        assert_eq!(runner.metadata.deletion_timestamp.unwrap().0.to_string(), "2026-01-02T00:00:00Z");
    }
}
