//! What a kubelet runs in the `runner` container: the readiness probe and the hook before the end, as far as they look for a worker process.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, ExecAction, Pod};

/// Name of the container that runs the agent.
pub(super) const RUNNER: &str = "runner";

/// A process named like this exists exactly while an agent runs a job; who looks for it names it.
const WORKER: &str = "Runner.Worker";

/// The runner's container of a pod.
fn runner(pod: &Pod) -> Option<&Container> {
    pod.spec.iter().flat_map(|spec| &spec.containers).find(|container| container.name == RUNNER)
}

/// Whether a command looks for a worker process.
pub(super) fn looks_for_worker(exec: Option<&ExecAction>) -> bool {
    exec.and_then(|exec| exec.command.as_ref()).is_some_and(|command| command.iter().any(|part| part.contains(WORKER)))
}

/// The period of a readiness probe that fails while a worker runs; 10 s unless it says otherwise.
pub(super) fn period(pod: &Pod) -> Option<Duration> {
    let probe = runner(pod)?.readiness_probe.as_ref().filter(|probe| looks_for_worker(probe.exec.as_ref()))?;
    Some(Duration::from_secs(u64::try_from(probe.period_seconds.unwrap_or(10)).unwrap_or(10)))
}

/// Whether the container's end is held up while a worker runs.
pub(super) fn waits_for_worker(pod: &Pod) -> bool {
    let hook = runner(pod).and_then(|runner| runner.lifecycle.as_ref()?.pre_stop.as_ref());
    looks_for_worker(hook.and_then(|hook| hook.exec.as_ref()))
}
