//! Pod statuses as a kubelet writes them. Pure: states in, JSON out.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::probe::{self, RUNNER};

/// When a container that ended is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RestartPolicy {
    Always,
    OnFailure,
    Never,
}

impl RestartPolicy {
    pub(super) fn restarts_after(self, exit_code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => exit_code != 0,
            Self::Never => false,
        }
    }
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Termination {
    pub(super) exit_code: i32,
    pub(super) reason: String,
    pub(super) started: Timestamp,
    pub(super) finished: Timestamp,
}

/// What a container does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    Waiting { reason: String, message: String },
    Running { since: Timestamp },
    Terminated(Termination),
}

impl State {
    pub(super) fn waiting(reason: &str) -> Self {
        Self::Waiting { reason: reason.to_owned(), message: String::new() }
    }
}

#[derive(Clone, Debug)]
struct ContainerState {
    name: String,
    image: String,
    state: State,
    restarts: u32,
    last: Option<Termination>,
    /// It has a readiness probe that looks for a worker. Any other passes as soon as the container runs.
    probed: bool,
    /// The last probe succeeded.
    passed: bool,
}

impl ContainerState {
    fn new(container: &Container) -> Self {
        Self {
            name: container.name.clone(),
            image: container.image.clone().unwrap_or_default(),
            state: State::waiting("ContainerCreating"),
            restarts: 0,
            last: None,
            probed: container.readiness_probe.as_ref().is_some_and(|probe| probe::looks_for_worker(probe.exec.as_ref())),
            passed: false,
        }
    }

    fn is_ready(&self) -> bool {
        self.is_running() && (self.passed || !self.probed)
    }

    fn is_running(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }

    fn end(&mut self, exit_code: i32, reason: &str, now: Timestamp) {
        self.passed = false;
        if let State::Running { since } = self.state {
            self.state = State::Terminated(Termination { exit_code, reason: reason.to_owned(), started: since, finished: now });
        }
    }

    fn status(&self) -> Value {
        let state = match &self.state {
            State::Waiting { reason, message } if message.is_empty() => json!({"waiting": {"reason": reason}}),
            State::Waiting { reason, message } => json!({"waiting": {"reason": reason, "message": message}}),
            State::Running { since } => json!({"running": {"startedAt": since}}),
            State::Terminated(termination) => json!({"terminated": terminated(termination)}),
        };
        let last = match &self.last {
            Some(termination) => json!({"terminated": terminated(termination)}),
            None => json!({}),
        };
        json!({
            "name": self.name,
            "image": self.image,
            "imageID": "",
            "ready": self.is_ready(),
            "started": self.is_running(),
            "restartCount": self.restarts,
            "state": state,
            "lastState": last,
        })
    }
}

fn terminated(termination: &Termination) -> Value {
    json!({
        "exitCode": termination.exit_code,
        "reason": termination.reason,
        "startedAt": termination.started,
        "finishedAt": termination.finished,
    })
}

/// The containers of one pod and what a kubelet says about them.
#[derive(Clone, Debug)]
pub(super) struct Sandbox {
    containers: Vec<ContainerState>,
    init_containers: Vec<ContainerState>,
    policy: RestartPolicy,
    started: Timestamp,
    /// Type to status and the time of its last change.
    conditions: BTreeMap<&'static str, (bool, Timestamp)>,
    /// Phase, reason, message when the kubelet ended the pod.
    verdict: Option<(String, String)>,
}

impl Sandbox {
    pub(super) fn new(pod: &Pod, now: Timestamp) -> Self {
        let spec = pod.spec.as_ref();
        let policy = match spec.and_then(|spec| spec.restart_policy.as_deref()) {
            Some("Never") => RestartPolicy::Never,
            Some("OnFailure") => RestartPolicy::OnFailure,
            _ => RestartPolicy::Always,
        };
        let states = |containers: &[Container]| containers.iter().map(ContainerState::new).collect();
        Self {
            containers: states(spec.map_or(&[], |spec| &spec.containers)),
            init_containers: states(spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default()),
            policy,
            started: now,
            // A kubelet notes that a pod is not ready before it starts a container (`syncPod` in kubelet.go), whenever it writes that.
            conditions: ["Ready", "ContainersReady"].map(|kind| (kind, (false, now))).into(),
            verdict: None,
        }
    }

    pub(super) fn policy(&self) -> RestartPolicy {
        self.policy
    }

    /// Init containers are done, all containers run.
    pub(super) fn start(&mut self, pod: &Pod, now: Timestamp) {
        let sidecars: Vec<&str> = pod
            .spec
            .iter()
            .flat_map(|spec| spec.init_containers.iter().flatten())
            .filter(|container| container.restart_policy.as_deref() == Some("Always"))
            .map(|container| container.name.as_str())
            .collect();
        for container in &mut self.init_containers {
            let completed = Termination { exit_code: 0, reason: "Completed".to_owned(), started: now, finished: now };
            container.state = if sidecars.contains(&container.name.as_str()) {
                State::Running { since: now }
            } else {
                State::Terminated(completed)
            };
        }
        for container in &mut self.containers {
            container.state = State::Running { since: now };
        }
    }

    /// Starts the runner's container again.
    pub(super) fn restart_runner(&mut self, now: Timestamp) {
        if let Some(runner) = self.runner() {
            if let State::Terminated(termination) = &runner.state {
                runner.last = Some(termination.clone());
            }
            runner.restarts += 1;
            runner.state = State::Running { since: now };
        }
    }

    /// What the readiness probe of the runner's container found. Returns whether that is news.
    pub(super) fn probe_runner(&mut self, passed: bool) -> bool {
        self.runner().is_some_and(|runner| std::mem::replace(&mut runner.passed, passed) != passed)
    }

    /// The runner's container waits, for instance for its image.
    pub(super) fn hold_runner(&mut self, reason: &str, message: &str) {
        if let Some(runner) = self.runner() {
            if let State::Terminated(termination) = &runner.state {
                runner.last = Some(termination.clone());
            }
            runner.state = State::Waiting { reason: reason.to_owned(), message: message.to_owned() };
        }
    }

    /// The runner's container ends.
    pub(super) fn end_runner(&mut self, exit_code: i32, reason: &str, now: Timestamp) {
        if let Some(runner) = self.runner() {
            runner.end(exit_code, reason, now);
        }
    }

    /// All containers that still run end.
    pub(super) fn end_all(&mut self, exit_code: i32, reason: &str, now: Timestamp) {
        for container in self.containers.iter_mut().chain(&mut self.init_containers) {
            container.end(exit_code, reason, now);
        }
    }

    /// The kubelet ends the pod: its phase is `Failed` with this reason whatever its containers did.
    pub(super) fn fail(&mut self, reason: &str, message: &str) {
        self.verdict = Some((reason.to_owned(), message.to_owned()));
    }

    /// The kubelet does not take the pod: there will be no containers to report.
    pub(super) fn refuse(&mut self, reason: &str) {
        self.fail(reason, &format!("Pod was rejected: {reason}"));
        self.containers.clear();
        self.init_containers.clear();
    }

    pub(super) fn has_started(&self) -> bool {
        self.containers.iter().any(|container| !matches!(container.state, State::Waiting { .. }) || container.last.is_some())
    }

    fn runner(&mut self) -> Option<&mut ContainerState> {
        let named = self.containers.iter().position(|container| container.name == RUNNER).unwrap_or(0);
        self.containers.get_mut(named)
    }

    /// The pod's phase, by a kubelet's rules.
    pub(super) fn phase(&self) -> &'static str {
        if self.verdict.is_some() {
            return "Failed";
        }
        if self.containers.iter().any(|c| matches!(c.state, State::Waiting { .. }) && c.last.is_none()) {
            return "Pending";
        }
        let codes: Option<Vec<i32>> = self
            .containers
            .iter()
            .map(|container| match &container.state {
                State::Terminated(termination) => Some(termination.exit_code),
                _ => None,
            })
            .collect();
        match (codes, self.policy) {
            (None, _) | (Some(_), RestartPolicy::Always) => "Running",
            (Some(codes), policy) => match (codes.iter().all(|&code| code == 0), policy) {
                (true, _) => "Succeeded",
                (false, RestartPolicy::Never) => "Failed",
                (false, _) => "Running",
            },
        }
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase(), "Succeeded" | "Failed")
    }

    /// What a kubelet writes of a pod that it refuses.
    fn refusal(&self, pod: &Pod) -> Value {
        let (reason, message) = self.verdict.clone().unwrap_or_default();
        json!({
            "metadata": {"uid": pod.uid()},
            "status": {"phase": "Failed", "reason": reason, "message": message, "startTime": self.started},
        })
    }

    /// The strategic merge patch that reports all of it; `uid` keeps it off a later pod of the same name.
    pub(super) fn patch(&mut self, pod: &Pod, now: Timestamp) -> Value {
        if self.containers.is_empty() {
            return self.refusal(pod);
        }
        let phase = self.phase();
        let over = self.is_over();
        let unready: Vec<&str> =
            self.containers.iter().filter(|container| !container.is_ready()).map(|c| c.name.as_str()).collect();
        let ready = unready.is_empty();
        let initialized = self.has_started() || self.init_containers.is_empty();
        let (reason, message) = match (over, phase) {
            _ if ready => (None, None),
            (true, "Succeeded") => (Some("PodCompleted"), None),
            (true, _) => (Some("PodFailed"), None),
            _ => (Some("ContainersNotReady"), Some(format!("containers with unready status: [{}]", unready.join(" ")))),
        };
        let completed = (phase == "Succeeded").then_some("PodCompleted");
        let conditions = [
            ("Initialized", initialized, completed, None),
            ("Ready", ready, reason, message.as_deref()),
            ("ContainersReady", ready, reason, message.as_deref()),
        ]
        .map(|(kind, status, reason, message)| self.condition(kind, status, reason, message, now));
        let mut conditions = conditions.to_vec();
        if let Some((reason, message)) = self.verdict.clone().filter(|(reason, _)| reason == "Evicted") {
            let by = if reason == "Evicted" { "TerminationByKubelet" } else { &reason };
            conditions.push(self.condition("DisruptionTarget", true, Some(by), Some(message.as_str()), now));
        }
        let statuses = |containers: &[ContainerState]| containers.iter().map(ContainerState::status).collect::<Vec<_>>();
        let mut status = json!({
            "phase": phase,
            "conditions": conditions,
            "containerStatuses": statuses(&self.containers),
            "hostIP": "127.0.0.1",
            "startTime": self.started,
        });
        if let Some(fields) = status.as_object_mut() {
            if !self.init_containers.is_empty() {
                fields.insert("initContainerStatuses".to_owned(), statuses(&self.init_containers).into());
            }
            if let Some((reason, message)) = &self.verdict {
                fields.insert("reason".to_owned(), json!(reason));
                fields.insert("message".to_owned(), json!(message));
            }
        }
        json!({"metadata": {"uid": pod.uid()}, "status": status})
    }

    fn condition(
        &mut self,
        kind: &'static str,
        status: bool,
        reason: Option<&str>,
        message: Option<&str>,
        now: Timestamp,
    ) -> Value {
        let known = self.conditions.entry(kind).or_insert((status, now));
        if known.0 != status {
            *known = (status, now);
        }
        json!({
            "type": kind,
            "status": if status { "True" } else { "False" },
            "lastTransitionTime": known.1,
            "reason": reason,
            "message": message,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(policy: &str, containers: &[&str]) -> Pod {
        let containers: Vec<_> = containers.iter().map(|name| json!({"name": name, "image": "i"})).collect();
        serde_json::from_value(json!({
            "metadata": {"name": "p", "uid": "u"},
            "spec": {"restartPolicy": policy, "containers": containers},
        }))
        .unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn condition<'a>(patch: &'a Value, kind: &str) -> &'a Value {
        patch["status"]["conditions"].as_array().unwrap().iter().find(|c| c["type"] == kind).unwrap()
    }

    #[test]
    fn phases_follow_the_containers() {
        for (policy, containers, codes, expected) in [
            ("Never", &["runner"][..], &[][..], "Running"),
            ("Never", &["runner"], &[("runner", 0)], "Succeeded"),
            ("Never", &["runner"], &[("runner", 1)], "Failed"),
            ("Always", &["runner"], &[("runner", 0)], "Running"),
            ("OnFailure", &["runner"], &[("runner", 1)], "Running"),
            ("OnFailure", &["runner"], &[("runner", 0)], "Succeeded"),
            ("Never", &["runner", "docker"], &[("runner", 0)], "Running"),
            ("Never", &["docker", "runner"], &[("runner", 0), ("docker", 0)], "Succeeded"),
        ] {
            let pod = pod(policy, containers);
            let mut sandbox = Sandbox::new(&pod, at(0));
            assert_eq!(sandbox.phase(), "Pending");
            sandbox.start(&pod, at(1));
            for &(name, code) in codes {
                if name == RUNNER {
                    sandbox.end_runner(code, "x", at(2));
                } else {
                    sandbox.end_all(code, "x", at(2));
                }
            }
            assert_eq!(sandbox.phase(), expected, "{policy} {containers:?} {codes:?}");
        }
    }

    #[test]
    fn transition_times_move_only_with_the_status() {
        let pod = pod("Never", &["runner", "docker"]);
        let mut sandbox = Sandbox::new(&pod, at(0));
        let creating = sandbox.patch(&pod, at(1));
        assert_eq!(condition(&creating, "Ready")["status"], "False");
        sandbox.start(&pod, at(2));
        let running = sandbox.patch(&pod, at(2));
        assert_eq!(condition(&running, "Ready")["lastTransitionTime"], json!(at(2)));
        assert_eq!(condition(&running, "Initialized")["lastTransitionTime"], json!(at(1)));
        assert_eq!(condition(&sandbox.patch(&pod, at(3)), "Ready")["lastTransitionTime"], json!(at(2)));
        sandbox.end_runner(0, "Completed", at(4));
        let ended = sandbox.patch(&pod, at(4));
        assert_eq!(ended["status"]["phase"], "Running", "the sidecar goes on");
        assert_eq!(condition(&ended, "Ready")["message"], "containers with unready status: [runner]");
        assert_eq!(ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 0);
        assert_eq!(ended["metadata"]["uid"], "u");
    }

    #[test]
    fn pod_that_has_not_been_ready_was_unready_before_its_container_started() {
        let mut pod = pod("Never", &["runner"]);
        let probe = json!({"exec": {"command": ["pgrep", "Runner.Worker"]}});
        pod.spec.as_mut().unwrap().containers[0].readiness_probe = serde_json::from_value(probe).unwrap();
        let mut sandbox = Sandbox::new(&pod, at(0));
        sandbox.start(&pod, at(1));
        let running = sandbox.patch(&pod, at(2));
        assert_eq!(running["status"]["containerStatuses"][0]["state"]["running"]["startedAt"], json!(at(1)));
        assert_eq!(condition(&running, "Ready")["lastTransitionTime"], json!(at(0)));
    }

    #[test]
    fn an_evicted_pod_says_so() {
        let pod = pod("Never", &["runner"]);
        let mut sandbox = Sandbox::new(&pod, at(0));
        sandbox.start(&pod, at(1));
        sandbox.end_all(137, "Error", at(2));
        sandbox.fail("Evicted", "The node was low on resource: memory.");
        let patch = sandbox.patch(&pod, at(2));
        assert_eq!((&patch["status"]["phase"], &patch["status"]["reason"]), (&json!("Failed"), &json!("Evicted")));
        assert_eq!(condition(&patch, "DisruptionTarget")["reason"], "TerminationByKubelet");
    }

    #[test]
    fn a_refused_pod_has_no_containers() {
        let pod = pod("Never", &["runner"]);
        let mut sandbox = Sandbox::new(&pod, at(0));
        sandbox.refuse("OutOfcpu");
        let status = &sandbox.patch(&pod, at(1))["status"];
        assert_eq!((&status["phase"], &status["reason"]), (&json!("Failed"), &json!("OutOfcpu")));
        assert!(status.get("containerStatuses").is_none() && sandbox.is_over() && !sandbox.has_started());
    }

    #[test]
    fn a_restarted_container_remembers_its_end() {
        let pod = pod("Always", &["runner"]);
        let mut sandbox = Sandbox::new(&pod, at(0));
        sandbox.start(&pod, at(1));
        sandbox.end_runner(137, "OOMKilled", at(2));
        sandbox.hold_runner("CrashLoopBackOff", "back-off");
        assert_eq!(sandbox.phase(), "Running");
        sandbox.restart_runner(at(3));
        let status = &sandbox.patch(&pod, at(3))["status"]["containerStatuses"][0];
        assert_eq!(status["restartCount"], 1);
        assert_eq!(status["lastState"]["terminated"]["reason"], "OOMKilled");
        assert_eq!(status["ready"], true);
    }
}
