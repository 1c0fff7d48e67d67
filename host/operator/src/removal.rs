//! Removing runners: from GitHub, and their Runner objects. Whoever removes one does it here, so that what was done is known before any
//! listing or watch shows it.

use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use pacer_api::Runner;
use pacer_cluster::answer::precondition_held;
use pacer_cluster::clock::Clock;
use pacer_cluster::fence::{Fence, NotLeader};
use pacer_cluster::live;
use pacer_cluster::object::Uid;
use pacer_cluster::owner::is_owned;
use pacer_core::facts::RunnerFacts;
use pacer_core::stop::{IDLE_GRACE, PodDeletion};
use pacer_github::Removal;

use crate::access::Access;
use crate::error::Error;
use crate::published::Owned;
use crate::runner_pod::RunnerPod;

/// What this process has done to remove one runner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// When GitHub confirmed that it is not registered any more.
    pub unregistered: Option<Instant>,
    /// When GitHub last answered *busy*.
    pub refused_busy: Option<Instant>,
    /// The API server was asked to delete its object, successfully; the watch may be late to show it.
    pub deleted: Option<Timestamp>,
    /// How its pod was deleted last.
    pod: Option<PodDeleted>,
}

/// A pod was deleted as it was at a resource version.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PodDeleted {
    version: String,
    how: PodDeletion,
}

/// A runner whose registration is to go.
#[derive(Clone, Copy, Debug)]
pub struct Registered<'a> {
    /// UID of the Runner.
    pub uid: &'a Uid,
    /// GitHub's id of it.
    pub id: u64,
    /// Namespace of its pod.
    pub namespace: &'a str,
    /// What is known about it.
    pub facts: &'a RunnerFacts,
}

/// Removes runners: their registrations at GitHub and their Runner objects.
pub struct Removals {
    client: Client,
    fence: Fence,
    done: Owned<Uid, Removed>,
}

impl Removals {
    /// Removes while the fence holds.
    #[must_use]
    pub fn new(client: Client, fence: Fence) -> Self {
        Self { client, fence, done: Owned::default() }
    }

    /// What was done about a runner.
    #[must_use]
    pub fn of(&self, runner: &Uid) -> Removed {
        self.done.get(runner)
    }

    /// Whether a Runner is to go, also before the watch shows it.
    #[must_use]
    pub fn is_leaving(&self, runner: &Runner) -> bool {
        runner.metadata.deletion_timestamp.is_some() || Uid::of(runner).is_ok_and(|uid| self.of(&uid).deleted.is_some())
    }

    /// Asks GitHub to remove the registration `id` of a runner, unless its pod says that it works.
    ///
    /// # Errors
    ///
    /// When GitHub's answer says neither that it is gone nor that it is busy, the API server does not answer, or somebody else may act by now.
    pub async fn unregister(&self, access: &Access, of: Registered<'_>, clock: Clock) -> Result<Removal, Error> {
        let removal = match self.works(of, clock.now).await? {
            true => Removal::Busy { message: "its pod runs a job".to_owned() },
            false if self.fence.holds() => access.github().remove_runner(access.scope(), of.id).await?,
            false => return Err(NotLeader.into()),
        };
        match &removal {
            Removal::Removed | Removal::Absent => self.confirm(of.uid, clock),
            Removal::Busy { .. } => self.done.change(of.uid, |done| done.refused_busy = Some(clock.instant)),
        }
        Ok(removal)
    }

    /// Whether the runner works, as its pod is at the API server by now and the watch has not shown it. A watch may stand still without a sign of
    /// it, GitHub's flag is late by a minute, and a removal can't be taken back: so it is asked before each.
    async fn works(&self, of: Registered<'_>, now: Timestamp) -> Result<bool, Error> {
        if !of.facts.needs_look(now) {
            return Ok(false);
        }
        let live = live::object::<RunnerPod>(&self.client, of.namespace, &of.facts.name).await?;
        let own = live.filter(|live| is_owned(&live.metadata, of.uid));
        // Of a node that was found silent nothing new shows in the pod, and what the kubelet saw last is believed only until the job counts as lost.
        let silent_since = of.facts.pod.as_ref().and_then(|pod| pod.silent_since);
        Ok(own.is_some_and(|live| {
            let mut pod = live.facts;
            pod.silent_since = pod.silent_since.or(silent_since);
            RunnerFacts { pod: Some(pod), ..of.facts.clone() }.works(now)
        }))
    }

    /// A runner is known to be unregistered, for good.
    pub fn confirm(&self, runner: &Uid, clock: Clock) {
        self.done.change(runner, |done| done.unregistered = Some(clock.instant));
    }

    /// Deletes a Runner object that was observed with its UID.
    ///
    /// # Errors
    ///
    /// When the API server refuses for any reason but that it is gone or another one by now.
    pub async fn delete(&self, runner: Arc<Runner>, clock: Clock) -> Result<(), Error> {
        let uid = Uid::of(&*runner)?;
        let runners: Api<Runner> = Api::namespaced(self.client.clone(), &runner.namespace().unwrap_or_default());
        let only_this = DeleteParams {
            preconditions: Some(Preconditions { uid: Some(uid.to_string()), resource_version: None }),
            ..DeleteParams::default()
        };
        precondition_held(runners.delete(&runner.name_any(), &only_this).await)?;
        self.done.change(&uid, |done| done.deleted = Some(clock.now));
        Ok(())
    }

    /// Deletes the pod of a runner as it was observed, once.
    ///
    /// # Errors
    ///
    /// When the API server refuses for any reason but that it is gone or another one by now.
    pub async fn delete_pod(&self, namespace: &str, runner: &RunnerFacts, how: PodDeletion) -> Result<(), Error> {
        let (Some(pod), Some(uid)) = (&runner.pod, Uid::new(&runner.uid)) else { return Ok(()) };
        let pod_uid = pod.uid.clone().ok_or(Error::Incomplete("Pod", "UID"))?;
        let asked = PodDeleted { version: pod.resource_version.clone(), how };
        if self.of(&uid).pod.as_ref() == Some(&asked) {
            return Ok(());
        }
        let unchanged = (how == PodDeletion::IfUnchanged).then(|| pod.resource_version.clone());
        let grace = match how {
            PodDeletion::Force => Some(0),
            PodDeletion::Graceful if !runner.own_grace => u32::try_from(IDLE_GRACE.as_secs()).ok(),
            PodDeletion::Graceful | PodDeletion::Patient | PodDeletion::IfUnchanged => None,
        };
        let params = DeleteParams {
            grace_period_seconds: grace,
            preconditions: Some(Preconditions { uid: Some(pod_uid), resource_version: unchanged }),
            ..DeleteParams::default()
        };
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        // Where it changed or was replaced since, the step is decided anew.
        if precondition_held(pods.delete(&runner.name, &params).await)? {
            self.done.change(&uid, |done| done.pod = Some(asked));
        }
        Ok(())
    }

    /// Forgets a runner whose pod was made anew, or that is gone.
    pub fn forget(&self, runner: &Uid) {
        self.done.remove(runner);
    }

    /// Keeps what was done about these only.
    pub fn retain(&self, exists: impl Fn(&Uid) -> bool) {
        self.done.retain(|runner, _| exists(runner));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use http::{Request, Response};
    use kube::client::Body;
    use pacer_core::facts::{PodFacts, PodPhase, Remote, Worker};
    use serde_json::{Value, json};

    use super::*;

    /// A pod of the Runner with this UID, whose readiness probe says what the kubelet found.
    fn pod(owner: &str, worker: bool) -> Value {
        let ready = if worker { "False" } else { "True" };
        json!({
            "metadata": {
                "name": "web-1", "uid": "p",
                "annotations": {"actions.summerwind.dev/worker-probe": "true"},
                "ownerReferences": [{"apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "Runner", "name": "web-1", "uid": owner}],
            },
            "spec": {"containers": []},
            "status": {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": ready, "reason": "ContainersNotReady", "lastTransitionTime": "2026-01-01T00:01:00Z"}],
                "containerStatuses": [{
                    "name": "runner", "image": "a", "imageID": "", "restartCount": 0, "ready": !worker,
                    "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
                }],
            },
        })
    }

    #[tokio::test]
    async fn worker_that_the_watch_has_not_shown_is_found_at_the_api_server() {
        let now: Timestamp = "2026-01-01T00:02:00Z".parse().unwrap();
        let unseen = RunnerFacts { name: "web-1".into(), ..RunnerFacts::default() };
        let seen = |worker| RunnerFacts {
            pod: Some(PodFacts { worker, phase: PodPhase::Running, ..PodFacts::default() }),
            ..unseen.clone()
        };
        // Its node fell silent under a job, and GitHub has had it offline and not busy for so long.
        let lost = |seconds| RunnerFacts {
            pod: Some(PodFacts {
                worker: Worker::Unknown,
                phase: PodPhase::Running,
                silent_since: Some(now),
                ..PodFacts::default()
            }),
            remote: Remote::Offline { id: 7, busy: false, since: Duration::from_secs(seconds) },
            ..unseen.clone()
        };
        let told = RunnerFacts { reports_job: Some(now), ..unseen.clone() };
        let absent = Worker::Absent { since: None };
        for (what, facts, live, expected, requests) in [
            ("the watch is late", seen(absent), vec![pod("u", true)], true, 1),
            ("its node was silent", seen(Worker::Unknown), vec![pod("u", true)], true, 1),
            ("its node is silent, and GitHub's flag may be late", lost(89), vec![pod("u", true)], true, 1),
            ("its node is silent, and its job is lost", lost(90), vec![pod("u", true)], false, 1),
            ("the watch never showed the pod", unseen.clone(), vec![pod("u", true)], true, 1),
            ("nor that, and an event came", told.clone(), vec![pod("u", false)], true, 1),
            ("it has no job", seen(absent), vec![pod("u", false)], false, 1),
            ("the pod is another runner's", seen(absent), vec![pod("v", true)], false, 1),
            ("the pod is gone", told, vec![], false, 1),
            ("the watch has shown it: the stop is overdue", seen(Worker::Running), vec![pod("u", true)], false, 0),
        ] {
            let asked = Arc::new(AtomicUsize::new(0));
            let (count, list) = (asked.clone(), json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": live}));
            let service = tower::service_fn(move |_: Request<Body>| {
                count.fetch_add(1, Ordering::Relaxed);
                let answer = Response::builder().body(Body::from(list.to_string().into_bytes())).unwrap();
                async move { Ok::<_, kube::Error>(answer) }
            });
            let removals = Removals::new(Client::new(service, "default"), Fence::open());
            let uid = Uid::new("u").unwrap();
            let registered = Registered { uid: &uid, id: 7, namespace: "ci", facts: &facts };
            let works = removals.works(registered, now).await.unwrap();
            assert_eq!((works, asked.load(Ordering::Relaxed)), (expected, requests), "{what}");
        }
    }
}
