use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;

fn object<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

fn owner(kind: &str, name: &str) -> Value {
    json!([{"apiVersion": "actions.summerwind.dev/v1alpha1", "kind": kind, "name": name, "uid": name, "controller": true}])
}

fn metadata(name: &str, owners: &Value, more: &Value) -> Value {
    let mut metadata = json!({"name": name, "namespace": "ci", "uid": name, "ownerReferences": owners});
    metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    metadata
}

fn spec(label: &str) -> Value {
    json!({"repository": "acme/app", "labels": [label]})
}

/// A deployment with a set that fits its template and one that does not, whose names ARC generated.
fn fleet() -> Objects {
    let set = |name: &str, label: &str, created: &str| {
        object::<RunnerReplicaSet>(json!({
            "metadata": metadata(name, &owner("RunnerDeployment", "web"), &json!({
                "creationTimestamp": created, "labels": {"runner-template-hash": name, "runner-deployment-name": "web"},
            })),
            "spec": {"replicas": 1, "template": {"spec": spec(label)}},
        }))
    };
    let runner = |name: &str, set: Value, more: Value| {
        object::<Runner>(json!({"metadata": metadata(name, &set, &more), "spec": spec("new")}))
    };
    let pod = |name: &str, owners: Value, held: bool, phase: &str| {
        let finalizers = if held { json!(["actions.summerwind.dev/runner-pod"]) } else { json!([]) };
        object::<Pod>(json!({
            "metadata": metadata(name, &owners, &json!({"finalizers": finalizers})),
            "status": {"phase": phase},
        }))
    };
    let of_set = || owner("RunnerReplicaSet", "web-new");
    let marked = json!({"annotations": {"actions-runner/unregistration-request-timestamp": "2026-01-01T00:00:00Z"}});
    let unregistered = json!({"annotations": {
        "actions-runner/unregistration-request-timestamp": "2026-01-01T00:00:00Z",
        "actions-runner/unregistration-complete-timestamp": "2026-01-01T00:00:01Z",
    }});
    Objects {
        deployments: vec![object(json!({
            "metadata": metadata("web", &json!([]), &json!({})),
            "spec": {"replicas": 2, "template": {"spec": spec("new")}},
        }))],
        sets: vec![set("web-old", "old", "2026-01-01T00:00:00Z"), set("web-new", "new", "2026-01-02T00:00:00Z")],
        runners: vec![
            runner("works", of_set(), json!({})),
            runner("marked", of_set(), marked),
            runner("unregistered", of_set(), unregistered),
            runner("ended", of_set(), json!({})),
            runner("leaving", of_set(), json!({"deletionTimestamp": "2026-01-02T00:00:00Z"})),
            runner("alone", json!([]), json!({})),
            runner("waits", of_set(), json!({})),
        ],
        pods: vec![
            pod("works", owner("Runner", "works"), true, "Running"),
            pod("marked", owner("Runner", "marked"), true, "Running"),
            pod("ended", owner("Runner", "ended"), true, "Succeeded"),
            pod("alone", owner("Runner", "alone"), false, "Running"),
            pod("left", owner("Runner", "gone"), true, "Running"),
            pod("of-a-set", owner("StatefulSet", "rs-abcde"), true, "Running"),
        ],
        ..Objects::default()
    }
}

fn outcome(fates: &[Fate], kind: &str, name: &str) -> String {
    let fate = fates.iter().find(|fate| fate.kind == kind && fate.name == name);
    fate.unwrap_or_else(|| panic!("nothing about {kind} {name}")).outcome.clone()
}

#[test]
fn each_object_of_a_fleet_is_told_apart() {
    let fates = all(&fleet(), &[], Timestamp::UNIX_EPOCH);
    for (kind, name, wanted) in [
        ("RunnerDeployment", "web", "rollout to web-new goes on"),
        ("RunnerReplicaSet", "web-new", "adopted by the meaning of its template, with its 6 runners"),
        ("RunnerReplicaSet", "web-old", "emptied as newer runners come online"),
        ("Runner", "works", "stays, with its pod"),
        ("Runner", "marked", "it counts again"),
        ("Runner", "unregistered", "ARC had unregistered it"),
        ("Runner", "ended", "removed, and replaced if it is wanted"),
        ("Runner", "leaving", "its removal goes on"),
        ("Runner", "alone", "made again under the same name"),
        ("Runner", "waits", "gets its pod"),
        ("Pod", "works", "finalizers are taken away when its runner is done"),
        ("Pod", "alone", "runs on as it is"),
        ("Pod", "left", "its Runner is gone"),
        ("Pod", "of-a-set", "as the pod of a Runner of its RunnerSet"),
    ] {
        let said = outcome(&fates, kind, name);
        assert!(said.contains(wanted), "{kind} {name}: {said:?} lacks {wanted:?}");
    }
    assert_eq!(outcome(&fates, "Pod", "alone"), "runs on as it is");
}

#[test]
fn a_fleet_without_a_rollout_stays_and_one_with_unknown_labels_does_not() {
    let mut objects = fleet();
    objects.sets.remove(0);
    let said =
        |objects: &Objects, labels: &[String]| outcome(&all(objects, labels, Timestamp::UNIX_EPOCH), "RunnerDeployment", "web");
    assert!(said(&objects, &[]).contains("nothing is rolled out"));
    assert!(said(&objects, &["gpu".to_owned()]).contains("--common-runner-labels"));
    objects.sets.clear();
    assert!(said(&objects, &[]).contains("first set"));
}

#[test]
fn what_an_autoscaler_does_depends_on_its_spec() {
    for (spec, wanted) in [
        (json!({}), "scaleTargetRef.name is not set"),
        (json!({"scaleTargetRef": {"name": "web"}, "minReplicas": 1}), "until spec.minReplicas and spec.maxReplicas"),
        (json!({"scaleTargetRef": {"name": "web"}, "minReplicas": 1, "maxReplicas": 2}), "goes on scaling web"),
        (json!({"scaleTargetRef": {"name": "app"}, "minReplicas": 1, "maxReplicas": 2}), "which does not exist"),
        (
            json!({"scaleTargetRef": {"kind": "RunnerSet", "name": "app"}, "minReplicas": 1, "maxReplicas": 2}),
            "goes on scaling RunnerSet app",
        ),
        (
            json!({"scaleTargetRef": {"name": "web"}, "minReplicas": 1, "maxReplicas": 9, "capacityReservations": [
                {"expirationTime": "2026-01-01T00:10:00Z", "replicas": 1}, {"expirationTime": "2026-01-01T00:20:00Z", "replicas": 2},
                {"expirationTime": "2025-12-31T23:59:59Z", "replicas": 4},
            ]}),
            "3 runners that ARC reserved",
        ),
        (
            json!({"scaleTargetRef": {"name": "web"}, "minReplicas": 1, "maxReplicas": 2, "scaleUpTriggers": [{"githubEvent": {"push": {}}}]}),
            "triggers have no effect",
        ),
        (
            json!({"scaleTargetRef": {"name": "web"}, "minReplicas": 1, "maxReplicas": 2,
                "scaleUpTriggers": [{"githubEvent": {"workflowJob": {}}}]}),
            "send its webhooks",
        ),
    ] {
        let mut objects = fleet();
        let shown = spec.to_string();
        objects.autoscalers = vec![object(json!({"metadata": metadata("hra", &json!([]), &json!({})), "spec": spec}))];
        let said = outcome(&all(&objects, &[], "2026-01-01T00:00:00Z".parse().unwrap()), "HorizontalRunnerAutoscaler", "hra");
        assert!(said.contains(wanted), "{shown}: {said:?}");
    }
}

#[test]
fn what_the_operator_refuses_is_told_before_it_takes_over() {
    let base = || json!({"scaleTargetRef": {"name": "web"}, "minReplicas": 1, "maxReplicas": 2});
    let zone = json!([{"startTime": "2026-01-01T00:00:00Z", "endTime": "2026-01-01T01:00:00Z", "timeZone": "Mars/Olympus"}]);
    let trigger = json!([{"githubEvent": {"workflowJob": {}}, "duration": "soon"}]);
    for (field, value, wanted) in [
        ("scheduledOverrides", zone, "spec.scheduledOverrides[0].timeZone \"Mars/Olympus\" is no IANA time zone"),
        ("scaleUpTriggers", trigger, "spec.scaleUpTriggers[0].duration: "),
        ("metrics", json!([{"type": "Load"}]), "Load"),
    ] {
        let mut objects = fleet();
        let mut spec = base();
        spec[field] = value;
        objects.autoscalers = vec![object(json!({"metadata": metadata("hra", &json!([]), &json!({})), "spec": spec}))];
        let said = outcome(&all(&objects, &[], Timestamp::UNIX_EPOCH), "HorizontalRunnerAutoscaler", "hra");
        assert!(said.starts_with("does nothing, and web keeps its number: ") && said.contains(wanted), "{said}");
    }
    let mut objects = fleet();
    let nowhere = json!({"labels": ["new"]});
    objects.deployments = vec![object(json!({
        "metadata": metadata("nowhere", &json!([]), &json!({})),
        "spec": {"replicas": 2, "template": {"spec": nowhere}},
    }))];
    objects.runners.push(object(json!({"metadata": metadata("lost", &json!([]), &json!({})), "spec": nowhere})));
    let fates = all(&objects, &[], Timestamp::UNIX_EPOCH);
    let said = outcome(&fates, "RunnerDeployment", "nowhere");
    assert!(said.starts_with("stays, and gets its first set; its runners are refused: "), "{said}");
    assert!(outcome(&fates, "Runner", "lost").starts_with("gets no pod: "), "{}", outcome(&fates, "Runner", "lost"));
}
