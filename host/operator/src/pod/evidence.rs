//! What makes a pod show whether its runner has a job: the kubelet looks for the agent's worker process.
//!
//! GitHub's flag is late by a minute and more, and webhooks may be missing. The worker process exists exactly while a job runs, and the
//! kubelet can see it from inside of the container, with nothing but the shell that every runner image has.

use k8s_openapi::api::core::v1::{Container, ExecAction, LifecycleHandler, Pod, PodSpec, Probe};
use kube::ResourceExt;
use pacer_api::names::{DOCKER_CONTAINER, annotation, env as var};

use super::{PodDefaults, containers, env};

/// Ends with 1 while an agent's worker process runs, which the agent starts for each job. Names in `comm` are cut after 15 characters.
const NO_WORKER: &str = r#"for comm in /proc/[0-9]*/comm; do
  read -r name 2>/dev/null <"$comm" && [ "$name" = Runner.Worker ] && exit 1
done
exit 0"#;

/// Waits until there is no worker process; the kubelet sends no signal before that, for as long as the grace period lasts.
const WAIT_FOR_WORKER: &str = r#"while :; do
  busy=
  for comm in /proc/[0-9]*/comm; do
    read -r name 2>/dev/null <"$comm" && [ "$name" = Runner.Worker ] && busy=1
  done
  [ -z "$busy" ] && exit 0
  sleep 1
done"#;

/// Seconds between two looks. Each is a process in the container; a job shows after this time at most, and a second or two on the way.
const PERIOD: i32 = 5;

/// A graceful stop of the agent ends so many seconds before its container is killed.
const MARGIN: u64 = 30;

/// Whether the readiness of a pod's `runner` container tells of a worker process.
#[must_use]
pub fn shows_worker(pod: &Pod) -> bool {
    pod.annotations().get(annotation::WORKER_PROBE).is_some_and(|value| value == "true")
}

/// Adds probe, hook and times to a pod where the user gave none. Returns whether the probe is the operator's.
pub(super) fn apply(spec: &mut PodSpec, defaults: &PodDefaults) -> bool {
    let grace = match spec.termination_grace_period_seconds {
        Some(given) => u64::try_from(given).unwrap_or(0),
        None => {
            let grace = defaults.grace.as_secs();
            spec.termination_grace_period_seconds = i64::try_from(grace).ok();
            grace
        }
    };
    // Of a short grace period nothing can be spared: then the image's own default holds.
    let patience = grace.checked_sub(MARGIN).filter(|left| *left >= MARGIN).map(|left| left.to_string());
    let (ours, given) = containers::edit_runner(&mut spec.containers, |runner| {
        let ours = runner.readiness_probe.is_none() && runner.startup_probe.is_none();
        if ours {
            runner.readiness_probe = Some(probe());
        }
        let lifecycle = runner.lifecycle.get_or_insert_default();
        lifecycle
            .pre_stop
            .get_or_insert_with(|| LifecycleHandler { exec: Some(shell(WAIT_FOR_WORKER)), ..LifecycleHandler::default() });
        (ours, wait_for_job(runner, patience.as_deref()))
    });
    // dockerd has to be there for as long as the job.
    if let Some(docker) = spec.containers.iter_mut().find(|container| container.name == DOCKER_CONTAINER) {
        wait_for_job(docker, given.as_deref());
    }
    ours
}

/// Lets the entry point wait for the agent's job, unless the user says how long. Returns for how long it waits, where that is written out.
fn wait_for_job(container: &mut Container, patience: Option<&str>) -> Option<String> {
    let name = var::RUNNER_GRACEFUL_STOP_TIMEOUT;
    // It may come from there as well.
    let elsewhere = container.env_from.as_ref().is_some_and(|sources| !sources.is_empty());
    if let Some(patience) = patience.filter(|_| !elsewhere && !env::is_present(container, name)) {
        env::supply(container, env::literal(name, patience));
    }
    container.env.iter().flatten().rfind(|variable| variable.name == name).and_then(|variable| variable.value.clone())
}

fn probe() -> Probe {
    Probe {
        exec: Some(shell(NO_WORKER)),
        period_seconds: Some(PERIOD),
        timeout_seconds: Some(PERIOD),
        failure_threshold: Some(1),
        success_threshold: Some(1),
        ..Probe::default()
    }
}

fn shell(script: &str) -> ExecAction {
    ExecAction { command: Some(["/bin/sh", "-c", script].map(str::to_owned).to_vec()) }
}
