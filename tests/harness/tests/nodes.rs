//! Simulated nodes on a real control plane: hand-made runner pods live and die as they would.

#![cfg(test)]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Client, ResourceExt};
use pacer_harness::controlplane::{Apply, Caller, ControlPlane, Options as PlaneOptions, StaticUser};
use pacer_harness::github::{JobSpec, Scope, Settings, SimGitHub};
use pacer_harness::nodes::{Affected, Cause, NodeLoss, Nodes, Options, Pace, Stage, StartDelay, Trouble};
use pacer_harness::objects;
use serde_json::json;

const SOON: Duration = Duration::from_secs(120);

/// One namespace at GitHub and in the cluster, named alike.
struct Place<'a> {
    name: &'a str,
    client: Client,
    github: SimGitHub,
}

impl Place<'_> {
    async fn new<'a>(name: &'a str, plane: &ControlPlane, github: &SimGitHub) -> Place<'a> {
        plane.namespace(name).await.unwrap();
        let client = plane.admin().unwrap();
        github.add(&Scope::organization(name));
        let place = Place { name, client, github: github.clone() };
        place.secret("token").await;
        place
    }

    async fn secret(&self, name: &str) {
        let token = self.github.registration_token(&Scope::organization(self.name));
        let mut secret = Secret { string_data: Some(BTreeMap::from([("token".into(), token)])), ..Secret::default() };
        secret.metadata.name = Some(name.into());
        Api::namespaced(self.client.clone(), self.name).create(&PostParams::default(), &secret).await.unwrap();
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), self.name)
    }

    async fn pod(&self, name: &str, ephemeral: bool, change: impl FnOnce(&mut serde_json::Value)) -> Pod {
        let mut pod = json!({
            "metadata": {"name": name, "labels": {"actions-runner": ""}},
            "spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "runner", "image": "example.com/runner", "env": [
                    {"name": "RUNNER_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                    {"name": "RUNNER_TOKEN", "valueFrom": {"secretKeyRef": {"name": "token", "key": "token"}}},
                    {"name": "RUNNER_ORG", "value": self.name},
                    {"name": "RUNNER_LABELS", "value": name},
                    {"name": "GITHUB_URL", "value": self.github.api_url()},
                    {"name": "RUNNER_EPHEMERAL", "value": ephemeral.to_string()},
                ]}],
            },
        });
        change(&mut pod);
        self.pods().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap()
    }

    /// Queues a job that only the runner of that name can take.
    fn job(&self, runner: &str, duration: Duration) {
        let spec = JobSpec::new(format!("{}/app", self.name), ["self-hosted", runner]);
        self.github.queue_job(spec.lasting(duration)).unwrap();
    }

    async fn until(&self, name: &str, reached: impl Fn(&Pod) -> bool) -> Pod {
        let pods = objects::until(self.pods(), "", SOON, |pods| pods.iter().any(|pod| pod.name_any() == name && reached(pod)));
        pods.await.unwrap().into_iter().find(|pod| pod.name_any() == name).unwrap()
    }

    async fn until_gone(&self, name: &str) {
        objects::until(self.pods(), "", SOON, |pods| pods.iter().all(|pod| pod.name_any() != name)).await.unwrap();
    }

    async fn until_online(&self, name: &str) {
        let scope = Scope::organization(self.name);
        self.github.wait_for(SOON, |view| view.registration(&scope, name).is_some_and(|runner| runner.online)).await.unwrap();
    }

    async fn until_busy(&self, name: &str) {
        let scope = Scope::organization(self.name);
        self.github
            .wait_for(SOON, |view| view.registration(&scope, name).is_some_and(|runner| runner.job.is_some()))
            .await
            .unwrap();
    }

    fn is_registered(&self, name: &str) -> bool {
        self.github.view(|view| view.registration(&Scope::organization(self.name), name).is_some())
    }
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn reason(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.reason.as_deref()).unwrap_or_default()
}

fn condition<'a>(pod: &'a Pod, kind: &str) -> (&'a str, &'a str) {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions
        .filter(|condition| condition.type_ == kind)
        .map(|condition| (condition.status.as_str(), condition.reason.as_deref().unwrap_or_default()))
        .next()
        .unwrap_or_default()
}

fn waiting(pod: &Pod) -> (String, String) {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let waiting = statuses.filter_map(|status| status.state.as_ref()?.waiting.clone()).next().unwrap_or_default();
    (waiting.reason.unwrap_or_default(), waiting.message.unwrap_or_default())
}

fn terminated(pod: &Pod) -> Option<(i32, String)> {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let ended = statuses.filter_map(|status| status.state.as_ref()?.terminated.clone()).next()?;
    Some((ended.exit_code, ended.reason.unwrap_or_default()))
}

fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").0 == "True"
}

async fn cluster(options: Options) -> (ControlPlane, SimGitHub, Nodes) {
    let definitions = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/chart/crds")];
    let plane = ControlPlane::start(PlaneOptions { definitions, ..PlaneOptions::default() }).await.unwrap();
    let github = SimGitHub::start(Settings::prompt()).await.unwrap();
    let nodes = Nodes::start(plane.client(StaticUser::Nodes).unwrap(), github.clone(), options).await.unwrap();
    (plane, github, nodes)
}

/// Configured seconds last 20 ms, so that a grace period of 30 s is 600 ms.
fn quick() -> Options {
    let pace = Pace { second: Duration::from_millis(20), registration_pause: Duration::from_millis(5), ..Pace::default() };
    Options { pace, retry_pause: Duration::from_millis(50), restart_pause: Duration::from_millis(10), ..Options::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn runner_pods_live_and_die_as_on_a_cluster() {
    let (plane, github, nodes) = cluster(quick()).await;
    let nodes = &nodes;
    tokio::join!(
        a_life_of_one_job(Place::new("one-job", &plane, &github).await, nodes),
        an_idle_runner_leaves_when_deleted(Place::new("idle-deleted", &plane, &github).await),
        a_busy_one_is_killed_when_deleted(Place::new("busy-deleted", &plane, &github).await, nodes),
        a_short_job_survives_a_deletion(Place::new("short-job", &plane, &github).await, nodes),
        injected_ends_look_right(Place::new("injected", &plane, &github).await, nodes),
        troubles_at_the_start(Place::new("troubles", &plane, &github).await, nodes),
        sidecars_and_restarts(Place::new("sidecars", &plane, &github).await, nodes),
        registration_that_fails(Place::new("refused", &plane, &github).await),
        the_status_hook_reports(Place::new("hook", &plane, &github).await, &plane),
    );
    nodes_come_and_go(Place::new("places", &plane, &github).await, nodes).await;
}

async fn a_life_of_one_job(place: Place<'_>, nodes: &Nodes) {
    place.pod("solo", true, |_| {}).await;
    let running = place.until("solo", is_ready).await;
    assert_eq!((phase(&running), condition(&running, "PodScheduled").0), ("Running", "True"));
    place.until_online("solo").await;
    place.job("solo", Duration::from_millis(30));
    let ended = place.until("solo", |pod| phase(pod) == "Succeeded").await;
    assert_eq!(terminated(&ended), Some((0, "Completed".into())));
    assert_eq!(condition(&ended, "Ready"), ("False", "PodCompleted"));
    assert!(!place.is_registered("solo"), "an ephemeral registration ends with its job");
    place.pods().delete("solo", &DeleteParams::default()).await.unwrap();
    place.until_gone("solo").await;
    let life = nodes.lives().into_iter().find(|life| life.namespace == "one-job").unwrap();
    assert_eq!((life.jobs.len(), life.starts), (1, 1));
    let times: Vec<_> = life.since.iter().map(|(stage, at)| (*at, *stage)).collect();
    assert!(times.is_sorted(), "{times:?}");
    assert!(nodes.busy_kills().iter().all(|kill| kill.namespace != "one-job"));
}

async fn an_idle_runner_leaves_when_deleted(place: Place<'_>) {
    place.pod("idle", false, |_| {}).await;
    place.until_online("idle").await;
    let started = Instant::now();
    place.pods().delete("idle", &DeleteParams::default()).await.unwrap();
    place.until_gone("idle").await;
    assert!(started.elapsed() < Duration::from_secs(15), "it waited for its grace period of 30 s");
    assert!(!place.is_registered("idle"), "config.sh remove was run");
}

async fn a_busy_one_is_killed_when_deleted(place: Place<'_>, nodes: &Nodes) {
    for name in ["graceful", "forced"] {
        place.pod(name, true, |_| {}).await;
        place.job(name, Duration::from_secs(3600));
        place.until_busy(name).await;
    }
    place.pods().delete("graceful", &DeleteParams::default()).await.unwrap();
    place.until_gone("graceful").await;
    place.pods().delete("forced", &DeleteParams { grace_period_seconds: Some(0), ..Default::default() }).await.unwrap();
    place.until_gone("forced").await;
    let cut = |view: &pacer_harness::github::View<'_>| {
        let jobs = view.all_jobs().filter(|job| job.spec.repository == "busy-deleted/app");
        jobs.filter(|job| job.conclusion.is_some()).count() == 2
    };
    place.github.wait_for(SOON, cut).await.unwrap();
    let mut kills: Vec<_> = nodes.deleted_while_busy().into_iter().filter(|kill| kill.namespace == place.name).collect();
    kills.sort_by(|a, b| a.pod.cmp(&b.pod));
    let causes: Vec<_> = kills.iter().map(|kill| (kill.pod.as_str(), kill.cause.clone())).collect();
    assert_eq!(causes, [("forced", Cause::ForceDeleted), ("graceful", Cause::Deleted)]);
}

async fn a_short_job_survives_a_deletion(place: Place<'_>, nodes: &Nodes) {
    // 200 ms are less than the 15 "seconds" that the graceful stop waits.
    place.pod("short", true, |_| {}).await;
    place.job("short", Duration::from_millis(200));
    place.until_busy("short").await;
    place.pods().delete("short", &DeleteParams::default()).await.unwrap();
    place.until_gone("short").await;
    assert!(nodes.busy_kills().iter().all(|kill| kill.namespace != place.name));
}

async fn injected_ends_look_right(place: Place<'_>, nodes: &Nodes) {
    for name in ["crash", "oom", "evict"] {
        place.pod(name, true, |_| {}).await;
        place.job(name, Duration::from_secs(3600));
        place.until_busy(name).await;
    }
    nodes.crash(place.name, "crash", 3).await.unwrap();
    nodes.out_of_memory(place.name, "oom").await.unwrap();
    nodes.evict(place.name, "evict").await.unwrap();
    let crashed = place.until("crash", |pod| phase(pod) == "Failed").await;
    assert_eq!((terminated(&crashed), reason(&crashed)), (Some((3, "Error".into())), ""));
    let killed = place.until("oom", |pod| phase(pod) == "Failed").await;
    assert_eq!(terminated(&killed), Some((137, "OOMKilled".into())));
    let evicted = place.until("evict", |pod| phase(pod) == "Failed").await;
    assert_eq!(reason(&evicted), "Evicted");
    assert_eq!(condition(&evicted, "DisruptionTarget"), ("True", "TerminationByKubelet"));
    let mut causes: Vec<_> =
        nodes.busy_kills().into_iter().filter(|kill| kill.namespace == place.name).map(|kill| kill.cause).collect();
    causes.sort_by_key(|cause| format!("{cause:?}"));
    assert_eq!(causes, [Cause::Crashed, Cause::Evicted, Cause::OutOfMemory]);
    assert!(nodes.crash(place.name, "nobody", 1).await.is_err());
}

async fn troubles_at_the_start(place: Place<'_>, nodes: &Nodes) {
    let pull = nodes.inject(Affected { name_prefix: "pull".into(), ..Affected::namespace(place.name) }, Trouble::ImagePull);
    place.pod("pull", true, |_| {}).await;
    let held = place.until("pull", |pod| waiting(pod).0 == "ImagePullBackOff").await;
    assert_eq!(phase(&held), "Pending");
    nodes.heal(pull);
    place.until_online("pull").await;

    let env = |name: &'static str, key: &'static str| {
        move |pod: &mut serde_json::Value| {
            pod["spec"]["containers"][0]["env"][1]["valueFrom"]["secretKeyRef"] = json!({"name": name, "key": key});
        }
    };
    place.pod("no-secret", true, env("later", "token")).await;
    let held = place.until("no-secret", |pod| waiting(pod).0 == "CreateContainerConfigError").await;
    assert_eq!(waiting(&held).1, "secret \"later\" not found");
    place.secret("later").await;
    place.until_online("no-secret").await;
    place.pod("no-key", true, env("token", "nothing")).await;
    let held = place.until("no-key", |pod| waiting(pod).0 == "CreateContainerConfigError").await;
    assert_eq!(waiting(&held).1, "couldn't find key nothing in Secret troubles/token");
    place.pods().delete("no-key", &DeleteParams::default()).await.unwrap();
    place.until_gone("no-key").await;

    let mute = nodes.inject(Affected { name_prefix: "mute".into(), ..Affected::namespace(place.name) }, Trouble::NeverRegisters);
    place.pod("mute", true, |_| {}).await;
    place.until("mute", is_ready).await;
    assert!(!place.is_registered("mute"));
    nodes.heal(mute);
    place.until_online("mute").await;

    nodes.inject(Affected { name_prefix: "exit".into(), ..Affected::namespace(place.name) }, Trouble::ExitsAtOnce(7));
    place.pod("exit", true, |_| {}).await;
    let ended = place.until("exit", |pod| phase(pod) == "Failed").await;
    assert_eq!(terminated(&ended), Some((7, "Error".into())));
}

async fn sidecars_and_restarts(place: Place<'_>, nodes: &Nodes) {
    place
        .pod("dind", true, |pod| {
            let containers = pod["spec"]["containers"].as_array_mut().unwrap();
            containers.push(json!({"name": "docker", "image": "docker:dind"}));
            containers[0]["env"].as_array_mut().unwrap().push(json!({"name": "DOCKER_ENABLED", "value": "true"}));
        })
        .await;
    place.job("dind", Duration::from_millis(10));
    let ended = place.until("dind", |pod| terminated(pod).is_some()).await;
    assert_eq!((phase(&ended), condition(&ended, "Ready").0), ("Running", "False"), "the sidecar goes on");
    place.pods().delete("dind", &DeleteParams::default()).await.unwrap();
    place.until_gone("dind").await;

    place.pod("again", false, |pod| pod["spec"]["restartPolicy"] = "Always".into()).await;
    place.until_online("again").await;
    for restarts in 1..=3 {
        nodes.crash(place.name, "again", 1).await.unwrap();
        let restarted = |pod: &Pod| {
            let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
            is_ready(pod) && statuses.map(|status| status.restart_count).next() == Some(restarts)
        };
        place.until("again", restarted).await;
        place.until_online("again").await;
    }
}

async fn registration_that_fails(place: Place<'_>) {
    place
        .pod("bad-token", true, |pod| pod["spec"]["containers"][0]["env"][1] = json!({"name": "RUNNER_TOKEN", "value": "x"}))
        .await;
    place.pod("other-server", true, |pod| pod["spec"]["containers"][0]["env"][4]["value"] = "http://127.0.0.1:1/".into()).await;
    place.pod("no-name", true, |pod| pod["spec"]["containers"][0]["env"][0] = json!({"name": "X"})).await;
    for name in ["bad-token", "other-server", "no-name"] {
        let ended = place.until(name, |pod| phase(pod) == "Succeeded").await;
        assert_eq!(terminated(&ended), Some((0, "Completed".into())), "{name}: the entry point masks the failure");
    }
}

async fn the_status_hook_reports(place: Place<'_>, plane: &ControlPlane) {
    let allowed = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "hooked", "namespace": place.name},
         "rules": [{"apiGroups": ["actions.summerwind.dev"], "resources": ["runners/status"], "resourceNames": ["hooked"],
                    "verbs": ["get", "update", "patch"]}]},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "hooked", "namespace": place.name},
         "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "hooked"},
         "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": place.name}]},
    ]});
    plane.apply_text(&allowed.to_string(), Apply::ServerSide).await.unwrap();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("actions.summerwind.dev", "v1alpha1", "Runner"));
    let runners: Api<DynamicObject> = Api::namespaced_with(place.client.clone(), place.name, &resource);
    let runner = json!({"apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "Runner", "metadata": {"name": "hooked"},
                        "spec": {"organization": place.name}});
    runners.create(&PostParams::default(), &serde_json::from_value(runner).unwrap()).await.unwrap();
    let hook = json!({"name": "RUNNER_STATUS_UPDATE_HOOK", "value": "true"});
    place.pod("hooked", true, |pod| pod["spec"]["containers"][0]["env"].as_array_mut().unwrap().push(hook)).await;
    let phase = |expected: &'static str| {
        let reached =
            move |runner: Option<&DynamicObject>| runner.is_some_and(|runner| runner.data["status"]["phase"] == expected);
        let runners = runners.clone();
        async move {
            let reached = tokio::time::timeout(SOON, await_condition(runners, "hooked", reached)).await;
            reached.unwrap().unwrap().unwrap().data["status"].clone()
        }
    };
    phase("Idle").await;
    place.job("hooked", Duration::from_millis(300));
    let running = phase("Running").await;
    assert_eq!((&running["workflow"]["repository"], &running["workflow"]["job"]), (&json!("hook/app"), &json!("build")));
    place.until("hooked", |pod| self::phase(pod) == "Succeeded").await;
    assert_eq!(phase("Idle").await["workflow"]["repository"], "");
}

async fn nodes_come_and_go(place: Place<'_>, nodes: &Nodes) {
    let on = |node: &'static str| {
        move |pod: &mut serde_json::Value| {
            pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": node});
        }
    };
    // Cordoned: pods wait and are told so.
    nodes.cordon("node-0", true).await.unwrap();
    let all: Api<Node> = Api::all(place.client.clone());
    objects::until(all.clone(), "kubernetes.io/hostname=node-0", SOON, |nodes| {
        nodes.iter().any(|node| node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true)))
    })
    .await
    .unwrap();
    place.pod("waits", true, on("node-9")).await;
    let held = place.until("waits", |pod| condition(pod, "PodScheduled") == ("False", "Unschedulable")).await;
    assert_eq!(phase(&held), "Pending");
    nodes.add_node("node-9").await.unwrap();
    place.until_online("waits").await;

    // Drained: the job is cut short, but not by somebody's plain deletion.
    place.job("waits", Duration::from_secs(3600));
    place.until_busy("waits").await;
    nodes.drain("node-9").await.unwrap();
    place.until_gone("waits").await;
    let cause = |pod: &str| nodes.busy_kills().into_iter().find(|kill| kill.pod == pod).map(|kill| kill.cause);
    assert_eq!(cause("waits"), Some(Cause::Disrupted("EvictionByEvictionAPI".into())));

    // Lost in each of the three degrees.
    for (node, loss) in [("node-1", NodeLoss::Unreachable), ("node-2", NodeLoss::PodsDeleted), ("node-3", NodeLoss::Removed)] {
        let name = format!("on-{node}");
        place.pod(&name, true, on(node)).await;
        place.job(&name, Duration::from_secs(3600));
        place.until_busy(&name).await;
        nodes.lose_node(node, loss).await.unwrap();
        assert_eq!(cause(&name), Some(Cause::NodeLost), "{loss:?}");
        match loss {
            NodeLoss::Unreachable => {
                let lost = place.until(&name, |pod| !is_ready(pod)).await;
                assert_eq!((phase(&lost), &lost.metadata.deletion_timestamp), ("Running", &None));
                let node = all.get(node).await.unwrap();
                let conditions = node.status.unwrap().conditions.unwrap();
                assert!(conditions.iter().any(|c| c.type_ == "Ready" && c.status == "Unknown"));
                assert_eq!(node.spec.unwrap().taints.unwrap().len(), 2);
            }
            NodeLoss::PodsDeleted => {
                let stuck = place.until(&name, |pod| pod.metadata.deletion_timestamp.is_some()).await;
                assert_eq!(condition(&stuck, "DisruptionTarget"), ("True", "DeletionByTaintManager"));
                assert_eq!(phase(&stuck), "Running", "nobody is there to end it");
                nodes.return_node(node).await.unwrap();
                place.until_gone(&name).await;
            }
            NodeLoss::Removed => {
                place.until_gone(&name).await;
                assert!(all.get_opt(node).await.unwrap().is_none());
            }
        }
    }
    nodes.return_node("node-1").await.unwrap();
    place.until("on-node-1", |pod| phase(pod) == "Failed").await;
    assert!(nodes.deleted_while_busy().iter().all(|kill| kill.namespace != place.name));
}

/// Not a benchmark, but a bound that a quadratic or serial step would break.
#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_pods_run_and_end() {
    const PODS: usize = 500;
    let options = Options { start_delay: StartDelay::Between(Duration::ZERO, Duration::from_millis(100)), ..quick() };
    let (plane, github, nodes) = cluster(options).await;
    let place = Place::new("many", &plane, &github).await;
    let started = Instant::now();
    let names: Vec<_> = (0..PODS).map(|number| format!("runner-{number}")).collect();
    stream::iter(&names).for_each_concurrent(8, async |name| drop(place.pod(name, true, |_| {}).await)).await;
    let created = started.elapsed();
    nodes.until(Duration::from_secs(120), |tally| tally.online() == PODS).await.unwrap();
    let online = started.elapsed();
    for name in &names {
        place.job(name, Duration::from_millis(100));
    }
    nodes.until(Duration::from_secs(60), |tally| tally.now(Stage::Ended) == PODS).await.unwrap();
    let done = started.elapsed();
    let everything = kube::api::ListParams::default();
    place.pods().delete_collection(&DeleteParams::default(), &everything).await.unwrap();
    nodes.until(Duration::from_secs(60), |tally| tally.present() == 0).await.unwrap();
    eprintln!(
        "control plane up in {:?}; {PODS} pods: created {created:?}, online {online:?}, done {done:?}, gone {:?}",
        plane.started_in(),
        started.elapsed()
    );
    let calls = plane.api_calls(&[Caller::User(StaticUser::Nodes.name().into())], None).unwrap();
    let per_pod = |verb, resource| calls.count(verb, resource).div_ceil(PODS as u64);
    // Containers are being made, run, have ended.
    assert_eq!([per_pod("create", "pods/binding"), per_pod("patch", "pods/status")], [1, 3], "{calls}");
    assert_eq!(nodes.busy_kills(), []);
    let runners = github.runners();
    assert_eq!(runners.registered, 0, "{runners:?}");
    nodes.stop().await;
}
