//! The pod of a runner that only registers.

use k8s_openapi::api::core::v1::{Container, PodSpec};
use kube::ResourceExt;
use pacer_api::names::{RUNNER_CONTAINER, annotation, env as var};
use pacer_api::{Runner, RunnerReplicaSet};
use pacer_cluster::owner::controller;

use super::{containers, env};

/// What its container runs, by bash: the configuration that ARC's entry point does, and no agent after it.
///
/// Images of ARC before 0.21 end after it by themselves when `RUNNER_REGISTRATION_ONLY` is set; later ones do not know the variable and would
/// go on to take jobs.
pub const REGISTER: &str = r#"home="${RUNNER_HOME:-/runner}" assets="${RUNNER_ASSETS_DIR:-/runnertmp}"
cd "$home" || exit 3
if [ -e "$assets/config.sh" ]; then cp -R "$assets/." . || exit 3; fi
if [ ! -e config.sh ]; then echo "no config.sh in $assets or $home: not a runner image" >&2; exit 3; fi
path="${RUNNER_ORG:-${RUNNER_REPO:-enterprises/${RUNNER_ENTERPRISE:-}}}"
set -- --unattended --replace --name "$RUNNER_NAME" --url "${GITHUB_URL%/}/$path" --token "$RUNNER_TOKEN"
if [ -n "${RUNNER_LABELS:-}" ]; then set -- "$@" --labels "$RUNNER_LABELS"; fi
if [ -n "${RUNNER_GROUP:-}" ] && [ -z "${RUNNER_REPO:-}" ]; then set -- "$@" --runnergroup "$RUNNER_GROUP"; fi
if [ "${DISABLE_RUNNER_UPDATE:-}" = true ]; then set -- "$@" --disableupdate; fi
for try in 1 2 3 4 5 6 7 8 9 10; do
  ./config.sh "$@"
  if [ -e .runner ]; then echo "registered; no agent is started"; exit 0; fi
  sleep 1
done
echo "not registered after 10 tries" >&2
exit 2"#;

/// Whether a Runner is there to be registered, never to run a job.
#[must_use]
pub fn is_registration_only(runner: &Runner) -> bool {
    runner.annotations().get(annotation::REGISTRATION_ONLY).is_some_and(|value| value == "true")
}

/// Whether a Runner is one that ARC before 0.21 kept for each of its empty sets. Here a RunnerDeployment keeps it, where it is told to.
#[must_use]
pub fn is_leftover(runner: &Runner) -> bool {
    is_registration_only(runner) && controller::<RunnerReplicaSet>(runner).is_some()
}

/// Makes the pod register its runner and end.
pub(super) fn apply(spec: &mut PodSpec) {
    // Whatever goes on beside the runner would keep the pod from ending.
    spec.containers.retain(|container| container.name == RUNNER_CONTAINER);
    containers::edit_runner(&mut spec.containers, |container| {
        let Container { command, args, lifecycle, liveness_probe, readiness_probe, startup_probe, .. } = container;
        *command = Some(["/bin/bash", "-c"].map(str::to_owned).to_vec());
        *args = Some(vec![REGISTER.to_owned()]);
        (*lifecycle, *liveness_probe, *readiness_probe, *startup_probe) = (None, None, None, None);
        env::set(container, env::literal(var::RUNNER_REGISTRATION_ONLY, "true"), &mut Vec::new());
    });
}
