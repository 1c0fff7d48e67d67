//! The parts of a pod that decisions use.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod, PodCondition, PodStatus};
use kube::ResourceExt;
use pacer_api::names::RUNNER_CONTAINER;
use pacer_core::facts::{Container, Disruption, PodFacts, PodPhase, Worker};

use crate::arc::finalizer;

/// What the API server says of a pod. That its node is gone it does not say.
#[must_use]
pub fn facts(pod: &Pod) -> PodFacts {
    let default = PodStatus::default();
    let status = pod.status.as_ref().unwrap_or(&default);
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let condition = |type_: &str, value: &str| {
        let found = conditions.iter().find(|condition| condition.type_ == type_ && condition.status == value)?;
        Some((found.last_transition_time.as_ref().map(|time| time.0).unwrap_or_default(), found))
    };
    PodFacts {
        uid: pod.uid(),
        resource_version: pod.resource_version().unwrap_or_default(),
        created: pod.metadata.creation_timestamp.as_ref().map(|time| time.0).unwrap_or_default(),
        phase: match status.phase.as_deref() {
            Some("Running") => PodPhase::Running,
            Some("Succeeded") => PodPhase::Succeeded,
            Some("Failed") => PodPhase::Failed,
            Some("Unknown") => PodPhase::Unknown,
            _ => PodPhase::Pending,
        },
        node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).filter(|node| !node.is_empty()),
        node_gone: false,
        deleting: pod.metadata.deletion_timestamp.as_ref().map(|time| time.0),
        deletion_asked: pod.metadata.deletion_timestamp.as_ref().and_then(|time| {
            let grace = SignedDuration::from_secs(pod.metadata.deletion_grace_period_seconds.unwrap_or_default());
            time.0.checked_sub(grace).ok()
        }),
        held: finalizer::is_held(pod),
        ready_since: condition("Ready", "True").map(|(since, _)| since),
        silent_since: condition("Ready", "Unknown")
            .or_else(|| condition("Ready", "False").filter(|(_, found)| by_node_controller(found)))
            .map(|(since, _)| since),
        unschedulable: condition("PodScheduled", "False")
            .filter(|(_, found)| found.reason.as_deref() == Some("Unschedulable"))
            .map(|(since, found)| (since, found.message.clone().unwrap_or_default())),
        container: container(status),
        never_started: never_started(status),
        worker: worker(pod, status, condition("Ready", "True").map(|(since, _)| since), condition("Ready", "False")),
        disruption: condition("DisruptionTarget", "True").and_then(|(_, found)| disruption(found)),
        reason: status.reason.clone().unwrap_or_default(),
        message: status.message.clone().unwrap_or_default(),
    }
}

fn disruption(target: &PodCondition) -> Option<Disruption> {
    match target.reason.as_deref()? {
        "DeletionByPodGC" => Some(Disruption::NodeLost),
        "EvictionByEvictionAPI" | "TerminationByKubelet" | "DeletionByTaintManager" => Some(Disruption::Evicted),
        "PreemptionByScheduler" => Some(Disruption::Preempted),
        _ => None,
    }
}

/// Whether a `Ready` that is False was set for a node that no longer answers: the node life-cycle controller turns the kubelet's True into
/// False and leaves the rest, while a False of the kubelet's own always has a reason.
fn by_node_controller(ready: &PodCondition) -> bool {
    ready.reason.as_deref().unwrap_or_default().is_empty()
}

/// What the readiness probe of the `runner` container says about a worker process, where it is the operator's.
///
/// A container that never was ready proves nothing: no shell may be in its image. One that was, and is not, has a worker, or its node is too
/// busy to look.
fn worker(pod: &Pod, status: &PodStatus, ready: Option<Timestamp>, unready: Option<(Timestamp, &PodCondition)>) -> Worker {
    if !crate::pod::shows_worker(pod) {
        return Worker::Unknown;
    }
    let Some(runner) = runner_status(status) else { return Worker::Unknown };
    let Some(running) = runner.state.as_ref().and_then(|state| state.running.as_ref()) else { return Worker::Unknown };
    let started = running.started_at.as_ref().map(|time| time.0).unwrap_or_default();
    match (runner.ready, unready) {
        // A silent node's last word is old.
        (true, Some((_, found))) if by_node_controller(found) => Worker::Unknown,
        (true, Some(_)) => Worker::Absent { since: None },
        (true, None) if ready.is_some() => Worker::Absent { since: ready },
        (false, Some((since, _))) if since > started => Worker::Running,
        _ => Worker::Unknown,
    }
}

fn runner_status(status: &PodStatus) -> Option<&ContainerStatus> {
    status.container_statuses.as_deref().unwrap_or_default().iter().find(|status| status.name == RUNNER_CONTAINER)
}

/// A kubelet that refuses a pod writes no container into its status.
fn never_started(status: &PodStatus) -> bool {
    let has_started = |runner: &ContainerStatus| {
        let state = runner.state.as_ref();
        runner.restart_count > 0 || state.is_some_and(|state| state.running.is_some() || state.terminated.is_some())
    };
    status.phase.as_deref() == Some("Failed") && !runner_status(status).is_some_and(has_started)
}

fn container(status: &PodStatus) -> Container {
    let state = runner_status(status).and_then(|status| status.state.as_ref());
    let Some(ContainerState { running, terminated, waiting }) = state else {
        return Container::Unreported;
    };
    if let Some(terminated) = terminated {
        return Container::Terminated {
            exit_code: terminated.exit_code,
            reason: terminated.reason.clone().unwrap_or_default(),
            message: terminated.message.clone().unwrap_or_default(),
            started: terminated.started_at.as_ref().map(|time| time.0),
            finished: terminated.finished_at.as_ref().map(|time| time.0),
        };
    }
    if let Some(running) = running {
        return Container::Running { since: running.started_at.as_ref().map(|time| time.0) };
    }
    waiting.as_ref().map_or(Container::Unreported, |waiting| Container::Waiting {
        reason: waiting.reason.clone().unwrap_or_default(),
        message: waiting.message.clone().unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use pacer_api::names::annotation;
    use serde_json::json;

    use super::*;

    fn facts(status: &serde_json::Value) -> PodFacts {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "a", "uid": "u"}, "status": status})).unwrap();
        super::facts(&pod)
    }

    #[test]
    fn a_pod_shows_its_worker_when_the_operators_probe_looks_for_it() {
        let (before, started, after) = ("2026-03-01T08:00:00Z", "2026-03-01T08:00:05Z", "2026-03-01T08:01:00Z");
        let absent = |since: Option<&str>| Worker::Absent { since: since.map(|since| since.parse().unwrap()) };
        let unready = |since: &str| json!({"status": "False", "reason": "ContainersNotReady", "lastTransitionTime": since});
        for (what, ours, ready, condition, expected) in [
            ("idle", true, true, json!({"status": "True", "lastTransitionTime": after}), absent(Some(after))),
            ("at work", true, false, unready(after), Worker::Running),
            ("never ready: it can't be looked into", true, false, unready(before), Worker::Unknown),
            ("another container is not ready", true, true, unready(before), absent(None)),
            ("the node is silent", true, true, json!({"status": "False", "lastTransitionTime": after}), Worker::Unknown),
            ("silent, later", true, true, json!({"status": "Unknown", "lastTransitionTime": after}), Worker::Unknown),
            ("somebody else's probe", false, true, json!({"status": "True", "lastTransitionTime": after}), Worker::Unknown),
        ] {
            let mut condition = condition;
            condition.as_object_mut().unwrap().insert("type".to_owned(), json!("Ready"));
            let annotations = if ours { json!({annotation::WORKER_PROBE: "true"}) } else { json!({}) };
            let pod: Pod = serde_json::from_value(json!({
                "metadata": {"name": "a", "uid": "u", "annotations": annotations},
                "status": {"phase": "Running", "conditions": [condition], "containerStatuses": [{
                    "name": "runner", "ready": ready, "image": "", "imageID": "", "restartCount": 0,
                    "state": {"running": {"startedAt": started}},
                }]},
            }))
            .unwrap();
            assert_eq!(super::facts(&pod).worker, expected, "{what}");
        }
    }

    #[test]
    fn pod_never_started_when_it_failed_and_no_runner_container_ran() {
        let runner = |state: serde_json::Value, restarts: i32| json!([{"name": "runner", "ready": false, "image": "", "imageID": "", "restartCount": restarts, "state": state}]);
        let ended = json!({"terminated": {"exitCode": 1}});
        let waiting = json!({"waiting": {"reason": "PodInitializing"}});
        let docker = json!([{"name": "docker", "ready": true, "image": "", "imageID": "", "restartCount": 0, "state": ended}]);
        for (what, phase, containers, expected) in [
            ("refused", "Failed", json!([]), true),
            ("init container failed", "Failed", runner(waiting.clone(), 0), true),
            ("only a sidecar ran", "Failed", docker, true),
            ("ended", "Failed", runner(ended, 0), false),
            ("between two starts", "Failed", runner(waiting.clone(), 2), false),
            ("still starting", "Pending", runner(waiting, 0), false),
            ("done", "Succeeded", json!([]), false),
        ] {
            let status = json!({"phase": phase, "reason": "OutOfcpu", "containerStatuses": containers});
            assert_eq!(facts(&status).never_started, expected, "{what}");
        }
    }

    #[test]
    fn a_pod_is_silent_when_its_node_is_not_when_its_containers_say_so() {
        let at = "2026-03-01T08:00:00Z";
        let silent = Some(at.parse().unwrap());
        for (ready, reason, expected) in [
            ("True", None, None),
            ("Unknown", None, silent),
            ("Unknown", Some("NodeStatusUnknown"), silent),
            ("False", None, silent),
            ("False", Some(""), silent),
            ("False", Some("ContainersNotReady"), None),
            ("False", Some("ReadinessGatesNotReady"), None),
            ("False", Some("PodCompleted"), None),
        ] {
            let condition = json!({"type": "Ready", "status": ready, "reason": reason, "lastTransitionTime": at});
            let facts = facts(&json!({"phase": "Running", "conditions": [condition]}));
            assert_eq!(facts.silent_since, expected, "Ready={ready} reason={reason:?}");
        }
        assert_eq!(facts(&json!({"phase": "Pending"})).silent_since, None);
    }
}
