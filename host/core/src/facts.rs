//! What is known about one runner: its pod, what GitHub says, and what its Runner object remembers.
//!
//! Facts carry no opinion; [`crate::phase`] forms one.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::ledger::About;

/// How long listings have to contradict a status hook that says *busy* where nobody looks for the worker process. GitHub's flag is late by a
/// minute and more (terraform-aws-github-runner PR 5228).
pub const HOOK_PATIENCE: Duration = Duration::from_mins(10);

/// How long every listing has to say that a runner is idle before it is believed where nobody looks for the worker process. GitHub's flag is late
/// by up to a minute, and turns false for as long while a job runs (terraform-aws-github-runner PR 5228 and 5085).
pub const FLAG_PATIENCE: Duration = Duration::from_secs(90);

/// How long the kubelet has to find no worker process until an event or a status hook that says *busy* is not believed any more: the report
/// of the job's end got lost. A worker starts within seconds of the event.
pub const CLAIM_PATIENCE: SignedDuration = SignedDuration::from_mins(2);

/// How far GitHub's clock and that of a node may be apart.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(30);

/// Phase of a pod, as the API server reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodPhase {
    /// Accepted, containers not all started; also what an empty phase means.
    #[default]
    Pending,
    /// At least one container runs.
    Running,
    /// All containers ended with code 0.
    Succeeded,
    /// All containers ended, at least one badly, or the kubelet gave up on the pod.
    Failed,
    /// The node no longer answers.
    Unknown,
}

/// State of the container named `runner`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Container {
    /// The kubelet has not reported it yet.
    #[default]
    Unreported,
    /// The container has not started.
    Waiting {
        /// Kubelet's reason, for instance `ErrImagePull`.
        reason: String,
        /// Kubelet's message.
        message: String,
    },
    /// The container runs.
    Running {
        /// When it started; none where the kubelet does not say.
        since: Option<Timestamp>,
    },
    /// The container has ended.
    Terminated {
        /// Exit code; the entry points of ARC's images always exit with 0 (arc-behaviour: the code is masked).
        exit_code: i32,
        /// Kubelet's reason, for instance `OOMKilled`.
        reason: String,
        /// Termination message.
        message: String,
        /// When it had started.
        started: Option<Timestamp>,
        /// When it ended.
        finished: Option<Timestamp>,
    },
}

/// What the kubelet found when it looked for a worker process in the pod, which the agent starts for each job.
///
/// It looks every few seconds, so that a job shows a few seconds after its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Worker {
    /// Nothing is known: nobody looks (the pod has a readiness probe of the user's, or is another operator's), the image can't be looked into,
    /// or the node is silent.
    #[default]
    Unknown,
    /// The kubelet found no worker process in the pod.
    Absent {
        /// Since when, where that is known.
        since: Option<Timestamp>,
    },
    /// There is one, or the kubelet got no answer. The runner is at work.
    Running,
}

/// Why the cluster took a pod away, as its condition `DisruptionTarget` tells (Kubernetes docs: Pod disruption conditions).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disruption {
    /// Its node's object is gone (`DeletionByPodGC`).
    NodeLost,
    /// Its node was drained, shut down or tainted, or is short of something (`EvictionByEvictionAPI`, `TerminationByKubelet`, `DeletionByTaintManager`).
    Evicted,
    /// A pod of higher priority took its place (`PreemptionByScheduler`).
    Preempted,
}

/// What is known of a runner's pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodFacts {
    /// UID, for preconditions.
    pub uid: Option<String>,
    /// Resource version of the observation, for the deletion of pods that must not have started meanwhile.
    pub resource_version: String,
    /// When it was made.
    pub created: Timestamp,
    /// `status.phase` of the pod.
    pub phase: PodPhase,
    /// Node it is bound to.
    pub node: Option<String>,
    /// The node's object is gone.
    pub node_gone: bool,
    /// Deletion timestamp: when the kubelet must be done with it.
    pub deleting: Option<Timestamp>,
    /// When its deletion was asked for: the grace period before that, in whole seconds.
    pub deletion_asked: Option<Timestamp>,
    /// Finalizers that ARC puts on its pods keep the object until somebody takes them away (arc-behaviour 2.8).
    pub held: bool,
    /// Since when condition Ready is True.
    pub ready_since: Option<Timestamp>,
    /// Since when the node has stopped reporting, as far as the pod's condition Ready tells.
    pub silent_since: Option<Timestamp>,
    /// Since when, and why, no node takes it.
    pub unschedulable: Option<(Timestamp, String)>,
    /// State of the `runner` container.
    pub container: Container,
    /// It failed before its `runner` container ever started, as far as it says itself: the kubelet refused it (`OutOfcpu`, `NodeAffinity`), gave it up
    /// while it was still starting, or one of its init containers failed.
    pub never_started: bool,
    /// What the pod itself says about a job.
    pub worker: Worker,
    /// Why the cluster took it away, where it did.
    pub disruption: Option<Disruption>,
    /// `status.reason`, for instance `Evicted`.
    pub reason: String,
    /// `status.message` of the pod; empty when absent.
    pub message: String,
}

impl PodFacts {
    /// Whether the runner in it is over: the pod ended, its `runner` container ended (whatever other containers do), or it was deleted
    /// before any node took it.
    ///
    /// ARC's predicate *stopped* (arc-behaviour 2.2), but the container's end counts in every phase: a sidecar that can't be pulled keeps
    /// a pod in phase Pending for ever.
    #[must_use]
    pub fn stopped(&self) -> bool {
        match (self.phase, &self.container) {
            (PodPhase::Succeeded | PodPhase::Failed, _) => true,
            (_, Container::Terminated { .. }) => true,
            (_, Container::Unreported) => self.deleting.is_some() && self.node.is_none(),
            _ => false,
        }
    }

    /// Whether its `runner` container ended with code 0.
    #[must_use]
    pub fn ended_well(&self) -> bool {
        self.phase == PodPhase::Succeeded || matches!(self.container, Container::Terminated { exit_code: 0, .. })
    }

    /// Whether the `runner` container may have run: false only when it certainly has not started.
    #[must_use]
    pub fn may_have_started(&self) -> bool {
        !(self.phase == PodPhase::Pending && matches!(self.container, Container::Unreported | Container::Waiting { .. }))
    }

    /// When its `runner` container started, as exactly as known; the pod's creation if nothing better is.
    #[must_use]
    pub fn started_at(&self) -> Timestamp {
        match &self.container {
            Container::Running { since } => *since,
            Container::Terminated { started, .. } => *started,
            Container::Unreported | Container::Waiting { .. } => None,
        }
        .unwrap_or(self.created)
    }

    /// When the runner in it ended, as exactly as known; its start if nothing better is.
    #[must_use]
    pub fn ended_at(&self) -> Option<Timestamp> {
        match &self.container {
            Container::Terminated { started, finished, .. } => finished.or(*started),
            _ => None,
        }
    }
}

/// What GitHub's listing says about a runner, from a listing that was asked for after the runner's last change of state; an older one, or
/// none, is [`Remote::Unknown`] (a listing may be a minute old, and only a newer one proves anything).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Remote {
    /// No listing that proves anything.
    #[default]
    Unknown,
    /// The listing does not have the runner.
    Absent {
        /// For how long it has been missing in consecutive listings.
        since: Duration,
    },
    /// Listed, not connected.
    Offline {
        /// GitHub's id.
        id: u64,
        /// GitHub believes that it runs a job.
        busy: bool,
        /// For how long every listing has had it offline.
        since: Duration,
    },
    /// Listed and connected.
    Online {
        /// GitHub's id.
        id: u64,
        /// Whether it runs a job.
        flag: Flag,
    },
}

/// What GitHub's flag `busy` says of a runner that is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flag {
    /// It runs a job.
    Busy,
    /// It runs none, but that may be older than what its pod does now. It proves nothing: rules that stop runners take it for busy.
    Stale,
    /// It runs none, as every listing has said for so long.
    Idle(Duration),
}

impl Flag {
    /// The flag of a listing that is as new as what is known of the runner's pod.
    #[must_use]
    pub fn of(busy: bool, idle: Duration) -> Self {
        if busy { Self::Busy } else { Self::Idle(idle) }
    }

    /// For how long it is proved idle; none where it is not.
    #[must_use]
    pub fn idle(self) -> Option<Duration> {
        match self {
            Self::Busy | Self::Stale => None,
            Self::Idle(idle) => Some(idle),
        }
    }
}

impl Remote {
    /// GitHub's id, when listed.
    #[must_use]
    pub fn id(&self) -> Option<u64> {
        match self {
            Self::Offline { id, .. } | Self::Online { id, .. } => Some(*id),
            Self::Unknown | Self::Absent { .. } => None,
        }
    }

    /// The contract's word for it.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Absent { .. } => "absent",
            Self::Offline { .. } => "offline",
            Self::Online { .. } => "online",
        }
    }
}

/// Who stands in the way of a runner's pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refuser {
    /// The API server, or the pod builder: the pod itself is wrong.
    Pod,
    /// A quota that is used up, which is not the runner's fault.
    Quota,
    /// A quota of the tenancy file that is used up.
    Tenancy,
    /// Another Runner with the same name at the same place.
    Namesake,
    /// GitHub, which gives these credentials no registration token.
    Credentials,
}

/// Why a runner's pod can't be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Who or what refuses the pod.
    pub by: Refuser,
    /// What the API server, the pod builder or GitHub said.
    pub message: String,
    /// When the pod was first refused; further refusals leave this as it is.
    pub since: Timestamp,
}

/// What is known of one runner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunnerFacts {
    /// Name of the Runner object, of its pod and at GitHub.
    pub name: String,
    /// UID of the Runner object.
    pub uid: String,
    /// When the Runner object was made.
    pub created: Timestamp,
    /// Its template is the one its set wants now.
    pub current: bool,
    /// Takes one job.
    pub ephemeral: bool,
    /// Somebody protected it from scale-down.
    pub protected: bool,
    /// Kept as evidence by an earlier decision.
    pub quarantined: bool,
    /// Since when its deletion has been asked for.
    pub deleting: Option<Timestamp>,
    /// GitHub's id from an earlier observation: proof that it registered.
    pub known_id: Option<u64>,
    /// It was registered ahead of its agent, just in time, and no listing has shown the agent connected: its registration alone says nothing of it.
    pub awaited: bool,
    /// A pod has existed for it, whether or not one exists now.
    pub had_pod: bool,
    /// What is known of its pod; none while it has none.
    pub pod: Option<PodFacts>,
    /// Why there is no pod, when the API server refuses it.
    pub refusal: Option<Refusal>,
    /// What GitHub's listing says about the runner.
    pub remote: Remote,
    /// There is no listing that was asked for after the pod last changed.
    pub unlisted_since: bool,
    /// Too few listings of its scope have come since this process began: one alone may have left out who is registered, since its pages are read one
    /// after the other.
    pub scope_barely_listed: bool,
    /// When it finished its last job, as far as that was seen.
    pub last_job_end: Option<Timestamp>,
    /// What that job was, where an event told of it.
    pub last_job: Option<Arc<About>>,
    /// A job's event says that it runs a job, since then.
    pub reports_job: Option<Timestamp>,
    /// When its last job ended, as GitHub said by an event or by a listing; none while another one is in progress.
    pub job_over: Option<Timestamp>,
    /// The status hook in its pod says that it runs a job. Evidence of work alone: that it says otherwise, or nothing, proves nothing.
    pub hook_reports_job: bool,
    /// A job's event, its status or the worker process that was seen in its pod says that it registered, even if no listing ever showed it.
    pub worked: bool,
    /// Something said at some time that it runs a job: an event, the status hook, a listing, or the worker process that was seen in its pod.
    pub had_job: bool,
    /// Runners of its template are known to register ([`crate::restart::Registering`]).
    pub siblings_register: bool,
    /// It is there to be registered, never to run a job: its pod registers it and ends.
    pub registration_only: bool,
    /// The user chose the grace period of its pod. Others are as long as a job may take.
    pub own_grace: bool,
    /// GitHub refuses the credentials or knows no such scope, or the credentials are gone: nothing can be asked there until somebody acts.
    pub github_refuses: bool,
    /// Nobody may call its GitHub any more: the tenancy file refuses the host. A registration there is left behind.
    pub github_forbidden: bool,
    /// How long ago GitHub confirmed to this operator that it is not registered: by a removal, or by a listing from after its end.
    pub unregistered: Option<Duration>,
}

impl RunnerFacts {
    /// What the kubelet found in its pod.
    #[must_use]
    pub fn worker(&self) -> Worker {
        self.pod.as_ref().map_or(Worker::Unknown, |pod| pod.worker)
    }

    /// Whether anybody beside GitHub's listings says that it runs a job: its pod, an event, the status hook.
    ///
    /// The report of a job's end may get lost. What an event or the hook said is not believed any more when the kubelet has found no worker
    /// process for [`CLAIM_PATIENCE`]; where it does not look, the hook is not when every listing of [`HOOK_PATIENCE`] says idle.
    #[must_use]
    pub fn says_busy(&self, now: Timestamp) -> bool {
        match self.worker() {
            Worker::Running => !self.is_lost(),
            Worker::Absent { since } => {
                let is_over = |since: Timestamp| now.duration_since(since) >= CLAIM_PATIENCE;
                // A job that has just begun does not show in the pod at once: what the kubelet found before the event says nothing of it.
                let told = self.reports_job.is_some_and(|told| !since.is_some_and(|since| is_over(since.max(told))));
                told || (self.hook_reports_job && !since.is_some_and(is_over))
            }
            Worker::Unknown => {
                let contradicted = matches!(self.remote, Remote::Online { flag: Flag::Idle(idle), .. } if idle >= HOOK_PATIENCE);
                self.reports_job.is_some() || (self.hook_reports_job && !contradicted)
            }
        }
    }

    /// Whether it is connected and was without a job in a listing that may be older than what its pod does now, and nobody says that it works. It is
    /// not proved idle; people are told that it is, since it most likely is.
    #[must_use]
    pub fn was_listed_idle(&self, now: Timestamp) -> bool {
        matches!(self.remote, Remote::Online { flag: Flag::Stale, .. }) && !self.says_busy(now)
    }

    /// Whether its job went with its node, whatever the kubelet saw last: the node is silent, its agent has no contact with GitHub for longer than the
    /// flag is late, and GitHub does not count it as busy any more. It counts a lost agent as busy for ten minutes (github-behaviour 4).
    fn is_lost(&self) -> bool {
        let is_silent = self.pod.as_ref().is_some_and(|pod| pod.silent_since.is_some());
        is_silent && matches!(self.remote, Remote::Offline { busy: false, since, .. } if since >= FLAG_PATIENCE)
    }

    /// For how long it has to be idle before it may be removed, where `asked` is wanted: longer where GitHub's flag is all there is.
    #[must_use]
    pub fn confirmation(&self, asked: Duration) -> Duration {
        match self.worker() {
            Worker::Unknown => asked.max(FLAG_PATIENCE),
            Worker::Absent { .. } | Worker::Running => asked,
        }
    }

    /// Whether its pod is to be looked at once more before its registration is removed. Not one that is over; nor one that is seen to work, since
    /// whoever asks for the removal then has a reason: its stop is overdue.
    #[must_use]
    pub fn needs_look(&self, now: Timestamp) -> bool {
        let is_known = |pod: &PodFacts| pod.stopped() || (pod.may_have_started() && self.says_busy(now));
        !self.pod.as_ref().is_some_and(is_known)
    }

    /// Whether a job in its pod would be lost: the pod is not over, and something [says](Self::says_busy) that it works.
    #[must_use]
    pub fn works(&self, now: Timestamp) -> bool {
        self.pod.as_ref().is_some_and(|pod| !pod.stopped()) && self.says_busy(now)
    }

    /// Whether nobody can be registered under its name any more: it ended, and a listing that was asked for after that lacks it. Or it is
    /// ephemeral and did its job, and no such listing has it: GitHub deregisters it then (github-behaviour 6).
    #[must_use]
    pub fn left_for_good(&self) -> bool {
        let is_absent = matches!(self.remote, Remote::Absent { .. });
        let is_listed = !self.unlisted_since && self.remote.id().is_some();
        let has_left = |pod: &PodFacts| self.ephemeral && !is_listed && self.did_its_job(pod);
        self.pod.as_ref().is_some_and(|pod| pod.stopped() && (is_absent || has_left(pod)))
    }

    /// Whether it ended after a job that this pod had, as an agent does. The job of one that ended before is over because GitHub lost contact with
    /// it, minutes later, and its registration stays.
    fn did_its_job(&self, pod: &PodFacts) -> bool {
        let ended = pod.ended_at().filter(|_| pod.ended_well());
        let follows = |(over, ended): (Timestamp, Timestamp)| over >= pod.created && over.duration_since(ended) <= CLOCK_SKEW;
        self.job_over.zip(ended).is_some_and(follows)
    }

    /// Whether its agent was ever seen at GitHub.
    #[must_use]
    pub fn was_registered(&self) -> bool {
        let is_listed = || self.known_id.is_some() || self.remote.id().is_some();
        self.worked || (!self.awaited && is_listed())
    }
}
