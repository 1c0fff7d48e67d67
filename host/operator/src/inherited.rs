//! Pods that ARC made.
//!
//! They are the pods of their Runners as if this operator had made them, except for ARC's finalizers (arc-behaviour 2.8): those stay while
//! the runner works, so that going back to ARC finds what it knows, and are taken away when the runner has been taken down.
//!
//! ARC let a Runner go before its pod was: whoever stops it at such a moment leaves pods whose Runner is gone and which nobody unregisters.
//! They are taken down here, as if their Runner were still being deleted.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::reflector::ObjectRef;
use kube::{Api, ResourceExt};
use pacer_api::names::{RUNNER_CONTAINER, annotation, env, finalizer};
use pacer_api::runner::{GitHubApiCredentialsFrom, SecretReference};
use pacer_api::{Runner, RunnerConfig, RunnerStatus};
use pacer_core::stop::{self, Step, WaitReason};
use pacer_github::Removal;
use pacer_github::roster::Haste;
use serde_json::json;

use crate::access::Access;
use crate::context::Context;
use crate::error::{Error, made_as_seen};
use crate::observe::Clock;
use crate::runner;
use crate::settings::ORPHAN_GRACE;
use crate::stores::owner;

/// ARC's finalizers of pods.
const FINALIZERS: [&str; 2] = [finalizer::RUNNER_POD, finalizer::LINKED_RESOURCES];

/// Whether a finalizer of ARC's keeps the object of a pod.
#[must_use]
pub fn is_held(pod: &Pod) -> bool {
    pod.finalizers().iter().any(|name| FINALIZERS.contains(&name.as_str()))
}

/// GitHub's id of the runner in a pod, as ARC noted it.
#[must_use]
pub fn runner_id(pod: &Pod) -> Option<u64> {
    pod.annotations().get(annotation::RUNNER_ID)?.parse().ok()
}

/// Takes ARC's finalizers from a pod as it was seen; others stay.
///
/// # Errors
///
/// When the API server refuses for any reason but that the pod is gone or has changed, which the watch will show.
pub(crate) async fn free(ctx: &Context, pod: &Pod) -> Result<(), Error> {
    let left: Vec<&String> = pod.finalizers().iter().filter(|name| !FINALIZERS.contains(&name.as_str())).collect();
    let patch = json!({"metadata": {"resourceVersion": pod.resource_version(), "finalizers": left}});
    let pods: Api<Pod> = Api::namespaced(ctx.client.clone(), &pod.namespace().unwrap_or_default());
    made_as_seen(pods.patch_metadata(&pod.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await)?;
    Ok(())
}

/// Takes down pods whose Runner is gone, from when the stores are full, for as long as it is polled.
pub(crate) async fn search(ctx: &Context) {
    if !ctx.stores.full().await {
        return;
    }
    let mut pending: HashMap<String, Access> = HashMap::new();
    loop {
        let mut next = ctx.settings.sync_period.clamp(Duration::from_secs(1), ORPHAN_GRACE);
        let abandoned = ctx.stores.pods.state_filter(|pod| is_held(pod) && is_abandoned(ctx, pod));
        // While a pod waits, its listing goes on.
        pending.retain(|uid, _| abandoned.iter().any(|pod| pod.uid().as_ref() == Some(uid)));
        for pod in abandoned {
            match take_down(ctx, &pod, &mut pending).await {
                Ok(None) => {}
                Ok(Some(wait)) => next = next.min(wait.max(Duration::from_secs(1))),
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
fn is_abandoned(ctx: &Context, pod: &Pod) -> bool {
    owner(pod, "Runner").is_some_and(|(uid, name)| {
        let runner = ctx.stores.runners.get(&ObjectRef::new(name).within(&pod.namespace().unwrap_or_default()));
        runner.is_none_or(|runner| runner.uid().as_deref() != Some(uid))
    })
}

/// One step of a pod's end. Returns when the next is due; none when its Runner exists after all or there is no pod any more.
async fn take_down(ctx: &Context, pod: &Pod, pending: &mut HashMap<String, Access>) -> Result<Option<Duration>, Error> {
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    let Some((uid, runner)) = owner(pod, "Runner") else { return Ok(None) };
    if ctx.live::<Runner>(&namespace, runner, uid).await?.is_some() {
        return Ok(None);
    }
    let pods: Api<Pod> = Api::namespaced(ctx.client.clone(), &namespace);
    let found = pods.list(&ListParams::default().fields(&format!("metadata.name={name}"))).await?;
    let Some(whole) = found.items.into_iter().find(|found| found.uid() == pod.uid()) else { return Ok(None) };
    let runner = departed(&whole, uid);
    let clock = Clock::read();
    // Without its credentials nothing can be done at GitHub; what the error says goes into the log with each try.
    let access = ctx.access(&runner).await?;
    if pending.insert(pod.uid().unwrap_or_default(), access.clone()).is_none() {
        tracing::info!(namespace, pod = name, scope = %access.scope(), "taking down a pod that ARC left without its Runner");
    }
    let observed = runner::observe(ctx, &runner, Some(&access), clock).await?;
    let wait = match stop::next(&observed.facts, observed.refused_busy, &ctx.settings.stop, clock.now) {
        Step::Unregister { id } => {
            let busy = match runner::unregister(ctx, &access, id).await? {
                Removal::Removed | Removal::Absent => None,
                Removal::Busy { .. } => Some(clock.instant),
            };
            ctx.memory.runner(uid, |memo| (memo.unregistered, memo.refused_busy) = (busy.is_none(), busy));
            if busy.is_some() { stop::BUSY_RETRY } else { SOON }
        }
        Step::DeletePod(how) => {
            runner::delete_pod(ctx, &runner, &observed, how).await?;
            SOON
        }
        Step::FreePod => {
            free(ctx, pod).await?;
            SOON
        }
        Step::Wait { why, recheck } => {
            if why == WaitReason::ListingUnknown {
                access.await_listing(&name, Haste::Removal);
            }
            recheck
        }
        Step::Release => return Ok(None),
    };
    Ok(Some(wait))
}

/// What a step led to is looked at after this.
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

    #[test]
    fn only_arcs_own_finalizers_hold_a_pod() {
        assert!(is_held(&pod()));
        let mut other = pod();
        other.metadata.finalizers = Some(vec!["example.com/other".to_owned()]);
        assert!(!is_held(&other));
        assert!(!is_held(&Pod::default()));
    }

    #[test]
    fn an_id_is_a_number() {
        assert_eq!(runner_id(&pod()), Some(17));
        let mut wrong = pod();
        wrong.metadata.annotations = Some([(annotation::RUNNER_ID.to_owned(), "seventeen".to_owned())].into());
        assert_eq!(runner_id(&wrong), None);
    }
}
