//! Names that the cluster and the runner image know: labels, annotations, finalizers, environment.
//!
//! Every name is ARC's unless its documentation says otherwise. They are part of the contract with existing objects, with runner images
//! and with users' tooling, so a value here never changes.

/// API group of all kinds.
pub const GROUP: &str = "actions.summerwind.dev";
/// The only version of the group.
pub const VERSION: &str = "v1alpha1";
/// `apiVersion` of all kinds.
pub const API_VERSION: &str = "actions.summerwind.dev/v1alpha1";

/// Name of the container that runs the agent, in every runner pod.
pub const RUNNER_CONTAINER: &str = "runner";
/// Name of the sidecar that runs dockerd.
pub const DOCKER_CONTAINER: &str = "docker";
/// Name of the volume and of the mounts that hold a job's working directory.
pub const WORK_VOLUME: &str = "work";
/// Value of `containerMode` that makes jobs run in pods of their own; every other value has no effect.
pub const CONTAINER_MODE_KUBERNETES: &str = "kubernetes";

/// Labels, as keys of `metadata.labels`.
pub mod label {
    /// On every runner pod, with an empty value.
    pub const RUNNER_POD: &str = "actions-runner";
    /// On everything made for a RunnerDeployment: its name. Also the deployment's default selector.
    pub const RUNNER_DEPLOYMENT_NAME: &str = "runner-deployment-name";
    /// On everything made for a RunnerSet: its name. Also the set's default selector.
    pub const RUNNER_SET_NAME: &str = "runnerset-name";
    /// On everything made from a template: the template's [revision](crate::RunnerTemplate::revision).
    pub const RUNNER_TEMPLATE_HASH: &str = "runner-template-hash";
    /// On runner pods; informational.
    pub const POD_TEMPLATE_HASH: &str = "pod-template-hash";
    /// On runner pods of ARC, `true`: hands a pod to ARC's token-injecting webhook. Never put on a pod by this operator, since a webhook that
    /// ARC left behind would refuse it; [`RUNNER_POD`] is what selects runner pods.
    pub const INJECT_REGISTRATION_TOKEN: &str = "actions-runner-controller/inject-registration-token";
    /// On pods and secrets that the container hooks of a runner made: name of the runner's pod.
    pub const RUNNER_POD_NAME: &str = "runner-pod";
    /// On service accounts and role bindings that the runners of a set share, `true`. Not in ARC.
    pub const JOB_PODS_ACCOUNT: &str = "actions.summerwind.dev/job-pods-account";
    /// On persistent volume claims of a RunnerSet: name of the StatefulSet (under ARC) or of the runner that has the claim or had it last.
    pub const RUNNER_STATEFUL_SET_NAME: &str = "runner-statefulset-name";
    /// On persistent volume claims of a RunnerSet: the [revision](crate::claim_revision) of the claim template. Not in ARC.
    pub const CLAIM_REVISION: &str = "actions.summerwind.dev/claim-revision";
    /// On pods of a RunnerSet, as a StatefulSet's controller puts it there: the pod's name.
    pub const STATEFUL_POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
    /// On pods of a RunnerSet, as a StatefulSet's controller puts it there: the number at the end of the pod's name.
    pub const STATEFUL_POD_INDEX: &str = "apps.kubernetes.io/pod-index";
    /// On ConfigMaps with receipts of decisions: kind of the object whose runners they were about. Not in ARC.
    pub const RECEIPTS_OF_KIND: &str = "actions.summerwind.dev/receipts-of-kind";
    /// On persistent volumes whose claim is gone and whose claim reference waits to be reset: owner of that claim.
    pub const PENDING_CLEANUP: &str = "pending-cleanup";
}

/// Annotations, as keys of `metadata.annotations`.
pub mod annotation {
    /// On the Lease of replicas that share the work: what one of them wrote last, its identity and when. Followed by a number of its own. Not ARC's.
    pub const REPLICA_PREFIX: &str = "actions.summerwind.dev/replica-";
    /// On Runners: when the object was created, RFC 3339.
    pub const SYNC_TIME: &str = "sync-time";
    /// On pods: GitHub's runner id in decimal, proof that the runner registered.
    pub const RUNNER_ID: &str = "actions-runner/id";
    /// On pods: `true` where the readiness of the `runner` container says that no worker process runs.
    pub const WORKER_PROBE: &str = "actions.summerwind.dev/worker-probe";
    /// On owners and pods: when scale-down was asked for, RFC 3339.
    pub const UNREGISTRATION_REQUEST: &str = "actions-runner/unregistration-request-timestamp";
    /// On pods: when unregistering began, RFC 3339.
    pub const UNREGISTRATION_START: &str = "actions-runner/unregistration-start-timestamp";
    /// On owners and pods: when GitHub confirmed the removal, RFC 3339; the object may be deleted.
    pub const UNREGISTRATION_COMPLETE: &str = "actions-runner/unregistration-complete-timestamp";
    /// On pods: GitHub's refusal to remove a busy runner (422).
    pub const UNREGISTRATION_FAILURE: &str = "actions-runner/unregistration-failure-message";
    /// On pods: since when an ephemeral runner's job is waited for, RFC 3339.
    pub const COMPLETION_WAIT_START: &str = "actions-runner/runner-completion-wait-start-timestamp";
    /// On pods: name of the Secret with the GitHub credentials that belong to the runner, same namespace.
    pub const CREDENTIALS_SECRET: &str = "actions-runner/github-api-creds-secret";
    /// On pods: expiry of the registration token, RFC 3339.
    pub const TOKEN_EXPIRES_AT: &str = "actions-runner-controller/token-expires-at";
    /// Declared by ARC and never used.
    pub const LAST_REGISTRATION_CHECK: &str = "actions-runner-controller/last-registration-check-time";

    /// On Runners, and so in the templates of RunnerDeployments and RunnerSets, `true`: each is registered ahead, and its pod gets a just-in-time
    /// configuration that is good for one runner, instead of a registration token. Not in ARC.
    pub const JUST_IN_TIME: &str = "actions.summerwind.dev/just-in-time";
    /// On RunnerReplicaSets: jobs that died with their runners and are to run again, as JSON. Written by the operator only. Not in ARC.
    pub const RERUNS: &str = "actions.summerwind.dev/reruns";
    /// On RunnerDeployments, RunnerSets and HorizontalRunnerAutoscalers: name of the policy ConfigMap of the same namespace. Not in ARC.
    pub const POLICIES: &str = "actions.summerwind.dev/policies";
    /// On HorizontalRunnerAutoscalers, a duration such as `10m`: a job that waits longer is reported on its commit at GitHub. Not in ARC.
    pub const REPORT_WAITING: &str = "actions.summerwind.dev/report-waiting-jobs-after";
    /// On RunnerDeployments, RunnerSets and Runners, a whole number: what policies are told of the pool's priority. Not in ARC.
    pub const PRIORITY: &str = "actions.summerwind.dev/priority";
    /// On policy ConfigMaps: what the operator made of them, as JSON. Written by the operator only. Not in ARC.
    pub const POLICY_STATUS: &str = "actions.summerwind.dev/policy-status";
    /// On policy ConfigMaps, `true`: none of its policies is asked and the shipped ones decide, at once. Not in ARC.
    pub const POLICIES_DISABLED: &str = "actions.summerwind.dev/policies-disabled";
    /// On policy ConfigMaps: another value has a content tried again that is not tried any more, because it ended whatever tried it. Not in ARC.
    pub const POLICY_TRY_AGAIN: &str = "actions.summerwind.dev/policy-try-again";
    /// On the ConfigMap with the tenancy: the last good file, for a restart while a newer one is broken. Written by the operator only. Not in
    /// ARC.
    pub const TENANCY_IN_FORCE: &str = "actions.summerwind.dev/tenancy-in-force";
    /// On ConfigMaps with receipts of decisions: name of the object whose runners they were about. Not in ARC.
    pub const RECEIPTS_OF: &str = "actions.summerwind.dev/receipts-of";
    /// On ConfigMaps with receipts: how many are no longer there, because the ConfigMap was full or they came too fast. Not in ARC.
    pub const RECEIPTS_GONE: &str = "actions.summerwind.dev/receipts-gone";
    /// On ConfigMaps with receipts: what it may hold, in words. Not in ARC.
    pub const RECEIPTS_BOUND: &str = "actions.summerwind.dev/receipts-bound";
    /// On Runners, `true`: registered without an agent, for as long as its fleet is empty. ARC's, until 0.21.
    pub const REGISTRATION_ONLY: &str = "actions-runner-controller/registration-only";
    /// On service accounts and role bindings that runners share: kind and name of the set. Not in ARC.
    pub const MADE_FOR: &str = "actions.summerwind.dev/made-for";
    /// On persistent volume claims: when a runner took the claim last, RFC 3339. Not in ARC.
    pub const CLAIM_TAKEN: &str = "actions.summerwind.dev/taken-at";
    /// On persistent volume claims that no runner can take any more: since when, RFC 3339. Not in ARC.
    pub const CLAIM_UNUSABLE: &str = "actions.summerwind.dev/unusable-since";
    /// On persistent volume claims that were set aside because no node could reach their volumes: since when, RFC 3339. Not in ARC.
    pub const CLAIM_ASIDE: &str = "actions.summerwind.dev/out-of-reach-since";
    /// On Runners and pods, `true`: never offered for scale-down. Not in ARC.
    pub const PROTECTED: &str = "actions.summerwind.dev/protected";
}

/// Finalizers, as items of `metadata.finalizers`.
pub mod finalizer {
    /// On Runners.
    pub const RUNNER: &str = "runner.actions.summerwind.dev";
    /// On pods: the runner is unregistered before the pod goes.
    pub const RUNNER_POD: &str = "actions.summerwind.dev/runner-pod";
    /// On pods in kubernetes container mode: pods and secrets that the container hooks made go first.
    pub const LINKED_RESOURCES: &str = "actions.summerwind.dev/linked-resources";
}

/// Environment variables that the entrypoint of a runner image reads.
pub mod env {
    /// Name under which the runner registers; the pod's name.
    pub const RUNNER_NAME: &str = "RUNNER_NAME";
    /// Registration token.
    pub const RUNNER_TOKEN: &str = "RUNNER_TOKEN";
    /// Just-in-time configuration; the agent itself reads it. Not in ARC.
    pub const JIT_CONFIG: &str = "ACTIONS_RUNNER_INPUT_JITCONFIG";
    /// Organization login, or empty.
    pub const RUNNER_ORG: &str = "RUNNER_ORG";
    /// Repository as `owner/name`, or empty.
    pub const RUNNER_REPO: &str = "RUNNER_REPO";
    /// Enterprise slug, or empty.
    pub const RUNNER_ENTERPRISE: &str = "RUNNER_ENTERPRISE";
    /// Runner labels, joined by commas.
    pub const RUNNER_LABELS: &str = "RUNNER_LABELS";
    /// Runner group, or empty.
    pub const RUNNER_GROUP: &str = "RUNNER_GROUP";
    /// `true` when a dockerd is there, in a sidecar or in the runner's container.
    pub const DOCKER_ENABLED: &str = "DOCKER_ENABLED";
    /// `true` when the runner's container starts dockerd itself.
    pub const DOCKERD_IN_RUNNER: &str = "DOCKERD_IN_RUNNER";
    /// Base URL of GitHub, with a slash at its end.
    pub const GITHUB_URL: &str = "GITHUB_URL";
    /// Working directory of jobs.
    pub const RUNNER_WORKDIR: &str = "RUNNER_WORKDIR";
    /// `true` for a runner that takes one job.
    pub const RUNNER_EPHEMERAL: &str = "RUNNER_EPHEMERAL";
    /// `true` when the entrypoint reports phases to the Runner's status.
    pub const RUNNER_STATUS_UPDATE_HOOK: &str = "RUNNER_STATUS_UPDATE_HOOK";
    /// `true` for a runner that registers and ends, in images of ARC before 0.21.
    pub const RUNNER_REGISTRATION_ONLY: &str = "RUNNER_REGISTRATION_ONLY";
    /// Appended to the agent's user agent.
    pub const EXTRA_USER_AGENT: &str = "GITHUB_ACTIONS_RUNNER_EXTRA_USER_AGENT";
    /// Seconds that the entrypoint waits for a job when it is told to stop.
    pub const RUNNER_GRACEFUL_STOP_TIMEOUT: &str = "RUNNER_GRACEFUL_STOP_TIMEOUT";
    /// Path of the container hooks, kubernetes container mode.
    pub const CONTAINER_HOOKS: &str = "ACTIONS_RUNNER_CONTAINER_HOOKS";
    /// `true` when jobs without a container are refused, kubernetes container mode.
    pub const REQUIRE_JOB_CONTAINER: &str = "ACTIONS_RUNNER_REQUIRE_JOB_CONTAINER";
    /// The pod's own name, kubernetes container mode.
    pub const POD_NAME: &str = "ACTIONS_RUNNER_POD_NAME";
    /// Namespace of job pods, kubernetes container mode.
    pub const JOB_NAMESPACE: &str = "ACTIONS_RUNNER_JOB_NAMESPACE";
    /// `true` when job pods must share the runner's node, kubernetes container mode.
    pub const REQUIRE_SAME_NODE: &str = "ACTIONS_RUNNER_REQUIRE_SAME_NODE";
    /// Address of the sidecar's dockerd.
    pub const DOCKER_HOST: &str = "DOCKER_HOST";
    /// Group that owns the sidecar's socket.
    pub const DOCKER_GROUP_GID: &str = "DOCKER_GROUP_GID";
    /// MTU of a dockerd in the runner's container.
    pub const MTU: &str = "MTU";
    /// MTU of the sidecar's dockerd when rootless.
    pub const DOCKERD_ROOTLESS_MTU: &str = "DOCKERD_ROOTLESS_ROOTLESSKIT_MTU";
    /// Registry mirror of a dockerd in the runner's container.
    pub const DOCKER_REGISTRY_MIRROR: &str = "DOCKER_REGISTRY_MIRROR";
}
