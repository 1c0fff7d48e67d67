//! Runners of RunnerSets: what the pod template of the set says reaches the pod.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use pacer_api::RunnerSet;
use pacer_operator::deployment;
use pacer_operator::pod::{self, ClaimedVolume, Held, PodInput, PodPlan, PodWarning, TokenSource};
use pacer_operator::target::Target;
use pacer_operator::template;

use crate::{defaults, identify};

fn plan_of(yaml: &str, claims: &[ClaimedVolume]) -> PodPlan {
    let value: serde_json::Value = serde_saphyr::from_str(yaml).unwrap();
    let mut set = RunnerSet::new("cached", serde_json::from_value(value).unwrap());
    set.metadata.namespace = Some("ci".to_owned());
    set.metadata.uid = Some("uid of the set".to_owned());
    let target = Target::Set(Arc::new(set));
    let replica_set = deployment::replica_set(&target, &target.template(&[]), 1);
    let mut runner = template::runner(&replica_set, "cached-bcdfgh-3".to_owned(), Some(3));
    identify(&mut runner);
    let token = TokenSource { holds: Held::Token, name: "registration".to_owned(), key: "token".to_owned() };
    pod::build(&PodInput { runner: &runner, defaults: &defaults(), server: crate::SERVER, token: &token, account: None, claims })
        .unwrap()
}

fn pod_of(yaml: &str) -> (Pod, PodSpec) {
    let mut pod = plan_of(yaml, &[]).pod;
    let spec = pod.spec.take().unwrap();
    (pod, spec)
}

#[test]
fn the_pod_is_that_of_a_stateful_set_with_a_runner_in_it() {
    let (pod, spec) = pod_of(
        "{repository: acme/app, dockerEnabled: false, serviceName: workers, selector: {matchLabels: {app: x}}, template: {\
           metadata: {labels: {app: x}, annotations: {note: kept}}, spec: {hostNetwork: true, schedulerName: mine, restartPolicy: Always, \
           nodeSelector: {disk: ssd}, serviceAccountName: ci, containers: [{name: runner, env: [{name: A, value: b}]}, {name: side}]}}}",
    );
    let labels = pod.metadata.labels.unwrap();
    for (key, value) in [
        ("app", "x"),
        ("runnerset-name", "cached"),
        ("statefulset.kubernetes.io/pod-name", "cached-bcdfgh-3"),
        ("apps.kubernetes.io/pod-index", "3"),
    ] {
        assert_eq!(labels.get(key).map(String::as_str), Some(value), "{key}");
    }
    assert_eq!(pod.metadata.annotations.unwrap()["note"], "kept");
    assert_eq!((spec.hostname.as_deref(), spec.subdomain.as_deref()), (Some("cached-bcdfgh-3"), Some("workers")));
    assert_eq!((spec.host_network, spec.scheduler_name.as_deref()), (Some(true), Some("mine")));
    assert_eq!((spec.restart_policy.as_deref(), spec.service_account_name.as_deref()), (Some("Never"), Some("ci")));
    assert_eq!(spec.node_selector.unwrap()["disk"], "ssd");
    let names: Vec<&str> = spec.containers.iter().map(|container| container.name.as_str()).collect();
    assert_eq!(names, ["runner", "side"]);
    let runner = spec.containers.first().unwrap();
    let value = |name: &str| {
        let variable = runner.env.iter().flatten().find(|variable| variable.name == name);
        variable.and_then(|variable| variable.value.as_deref())
    };
    assert_eq!((value("A"), value("RUNNER_NAME")), (Some("b"), Some("cached-bcdfgh-3")));
}

#[test]
fn without_a_service_there_is_no_host_name_and_the_sets_account_goes_before_the_templates() {
    let (_, spec) = pod_of(
        "{repository: acme/app, serviceAccountName: outer, selector: {}, serviceName: '', template: {spec: {serviceAccountName: inner}}}",
    );
    assert_eq!((spec.hostname, spec.subdomain), (None, None));
    assert_eq!(spec.service_account_name.as_deref(), Some("outer"));
    assert_eq!(spec.containers.iter().map(|container| container.name.as_str()).collect::<Vec<_>>(), ["runner", "docker"]);
}

#[test]
fn a_claim_takes_the_place_of_a_volume_of_its_name() {
    let yaml = "{repository: acme/app, selector: {}, template: {spec: {volumes: [{name: work, emptyDir: {}}, {name: other, emptyDir: {}}], \
                containers: [{name: runner, volumeMounts: [{name: cache, mountPath: /cache}]}]}}, \
                volumeClaimTemplates: [{metadata: {name: cache}, spec: {}}, {metadata: {name: work}, spec: {}}]}";
    let claimed = |volume: &str| ClaimedVolume { volume: volume.to_owned(), claim: format!("{volume}-of-somebody-before") };
    let plan = plan_of(yaml, &[claimed("cache"), claimed("work")]);
    assert_eq!(plan.warnings, Vec::<PodWarning>::new());
    let volumes = plan.pod.spec.unwrap().volumes.unwrap();
    let claims: Vec<(&str, Option<&str>)> = volumes
        .iter()
        .filter(|volume| ["work", "other", "cache"].contains(&volume.name.as_str()))
        .map(|volume| (volume.name.as_str(), volume.persistent_volume_claim.as_ref().map(|claim| claim.claim_name.as_str())))
        .collect();
    let expected = [("other", None), ("cache", Some("cache-of-somebody-before")), ("work", Some("work-of-somebody-before"))];
    assert_eq!(claims, expected);
}

#[test]
fn claim_templates_outside_of_a_runner_set_are_told_to_be_in_vain() {
    let runner =
        crate::runner(crate::spec("{repository: acme/app, volumeClaimTemplates: [{metadata: {name: cache}, spec: {}}]}"));
    let plan = crate::build(&runner, &defaults()).unwrap();
    assert_eq!(plan.warnings, [PodWarning::ClaimTemplatesUnused]);
}
