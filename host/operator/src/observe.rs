//! From objects, listings and memory to facts.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerState, Pod, PodCondition, PodStatus};
use kube::{Resource, ResourceExt};
use pacer_api::condition::{self, ConditionType};
use pacer_api::names::{RUNNER_CONTAINER, annotation};
use pacer_api::{Runner, RunnerReplicaSet, RunnerStatus};
use pacer_core::facts::{Container, PodFacts, PodPhase, Remote, RunnerFacts};
use pacer_core::stop::BUSY_RETRY;
use pacer_github::roster::RosterView;

use crate::inherited;
use crate::memory::{IN_FLIGHT, Memory, RunnerMemo};

/// The two clocks of one observation: wall time for what objects say, monotonic time for what this process saw.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Wall time.
    pub now: Timestamp,
    /// Monotonic time.
    pub instant: Instant,
}

impl Clock {
    /// Reads both.
    #[must_use]
    pub fn read() -> Self {
        Self { now: Timestamp::now(), instant: Instant::now() }
    }
}

/// A runner's facts, and whether its pod is being made right now.
#[derive(Clone, Debug)]
pub struct Observed {
    /// What is known.
    pub facts: RunnerFacts,
    /// A pod was created and the watch has not shown it yet.
    pub pod_in_flight: bool,
    /// How long ago GitHub answered *busy*.
    pub refused_busy: Option<Duration>,
}

/// Where facts about a runner come from, beside its own object.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'a> {
    /// Its pod.
    pub pod: Option<&'a Pod>,
    /// The newest listing of its scope.
    pub roster: Option<&'a RosterView>,
    /// The set that owns it.
    pub set: Option<&'a RunnerReplicaSet>,
    /// Its pod may write its status (`--runner-status-update-hook`), and so may the jobs in it.
    pub hooked: bool,
}

/// Puts together what is known about a runner, and updates what is remembered about it.
pub fn runner(runner: &Runner, sources: Sources<'_>, memory: &Memory, clock: Clock) -> Observed {
    let Sources { pod, roster, set, hooked } = sources;
    let uid = runner.uid().unwrap_or_default();
    let name = runner.name_any();
    let pod = pod.filter(|pod| pod.owner_references().iter().any(|owner| owner.uid == uid));
    let status = runner.status.as_ref();
    let noted = pod.and_then(inherited::runner_id);
    memory.runner(&uid, |memo| {
        let pod = pod.map(|pod| pod_facts(pod, memo.node_gone));
        let pod_in_flight = remember_pod(memo, pod.as_ref(), clock.instant);
        let unlisted_since = roster.is_none_or(|view| !is_fresh(memo, view, clock.instant));
        // Long ago it had a pod and registered, whatever its status says: only a listing tells what is left of that.
        memo.pod_seen |= crate::pod::is_leftover(runner);
        let claimed = known_id(runner);
        // An id is what a removal names. A job that may write the status could put another runner's there, so that only listings count then.
        let known_id = memo.known_id.or(claimed.filter(|_| !hooked)).or(noted);
        let registered = known_id.or(claimed).is_some();
        let remote = remote(memo, &name, roster, pod.is_some(), registered, clock.instant);
        if matches!(remote, Remote::Online { .. }) {
            memo.online.get_or_insert(clock.now);
        }
        if let Remote::Online { busy, idle, .. } = remote
            && !unlisted_since
        {
            memo.last_job.listed(busy, idle, clock.now);
        }
        memo.known_id = remote.id().or(known_id);
        let facts = RunnerFacts {
            created: runner.metadata.creation_timestamp.as_ref().map_or(clock.now, |time| time.0),
            current: set.is_none_or(|set| crate::template::is_current(runner, set)),
            ephemeral: runner.spec.config.is_ephemeral(),
            protected: runner.annotations().get(annotation::PROTECTED).is_some_and(|value| value == "true"),
            quarantined: status.is_some_and(|status| condition::holds(&status.conditions, ConditionType::Quarantined)),
            deleting: runner.meta().deletion_timestamp.as_ref().map(|time| time.0).or(memo.let_go),
            known_id: memo.known_id,
            had_pod: memo.pod_seen || status.is_some_and(had_pod),
            refusal: memo.refusal.clone(),
            worked: memo.job.is_some() || claimed.is_some(),
            reports_job: memo.job == Some(true),
            hook_reports_job: status.is_some_and(reports_job),
            registration_only: crate::pod::is_registration_only(runner),
            unregistered: memo.unregistered,
            name,
            uid: uid.clone(),
            pod,
            remote,
            unlisted_since,
            last_job_end: memo.last_job.end(),
        };
        Observed { facts, pod_in_flight, refused_busy: memo.refused_busy.map(|at| clock.instant.saturating_duration_since(at)) }
    })
}

fn known_id(runner: &Runner) -> Option<u64> {
    runner.status.as_ref().and_then(|status| status.runner_id).and_then(|id| u64::try_from(id).ok())
}

/// What the hook writes when a job begins. `Running` alone is also the phase of a pod.
fn reports_job(status: &RunnerStatus) -> bool {
    let run = status.workflow.as_ref().and_then(|workflow| workflow.run_id.as_deref());
    status.phase.as_deref() == Some("Running") && run.is_some_and(|run| !run.is_empty())
}

/// ARC copied the pod's phase into the status, so that a phase tells of a pod that was there. `Created` does not: it is also what a Runner
/// says of itself while the API server refuses its pod.
fn had_pod(status: &RunnerStatus) -> bool {
    status.pod_uid.is_some() || status.phase.as_deref().is_some_and(|phase| !matches!(phase, "" | RunnerStatus::CREATED))
}

/// Whether a pod is on its way into the watch.
fn remember_pod(memo: &mut RunnerMemo, pod: Option<&PodFacts>, now: Instant) -> bool {
    let state = digest(pod);
    if memo.pod_state.is_none_or(|(seen, _)| seen != state) {
        memo.pod_state = Some((state, now));
    }
    if pod.is_some() {
        memo.pod_seen = true;
        memo.pod_created = None;
        (memo.refusal, memo.refused) = (None, None);
        return false;
    }
    match memo.pod_created {
        Some(created) if now.saturating_duration_since(created) < IN_FLIGHT => true,
        Some(_) => {
            memo.pod_created = None;
            false
        }
        None => false,
    }
}

fn digest(pod: Option<&PodFacts>) -> u64 {
    let mut hasher = DefaultHasher::new();
    if let Some(pod) = pod {
        pod.uid.hash(&mut hasher);
        std::mem::discriminant(&pod.phase).hash(&mut hasher);
        std::mem::discriminant(&pod.container).hash(&mut hasher);
        pod.deleting.is_some().hash(&mut hasher);
    }
    hasher.finish()
}

/// A listing that is older proves nothing: GitHub has not answered since, and much may have happened. Four times the slowest regular pace.
const STALE: Duration = Duration::from_secs(120);

/// Whether a listing was asked for after the runner's pod last changed.
fn is_fresh(memo: &RunnerMemo, view: &RosterView, now: Instant) -> bool {
    view.listing().fetched_at.into_std() > memo.pod_state.map_or(now, |(_, since)| since)
}

/// What the newest listing proves. One that was asked for before the runner's pod last changed proves neither absence nor idleness.
fn remote(
    memo: &mut RunnerMemo,
    name: &str,
    roster: Option<&RosterView>,
    has_pod: bool,
    registered: bool,
    now: Instant,
) -> Remote {
    let Some(view) = roster else { return Remote::Unknown };
    let listed = view.listing().fetched_at.into_std();
    if now.saturating_duration_since(listed) > STALE {
        return Remote::Unknown;
    }
    let fresh = is_fresh(memo, view, now);
    let Some(entry) = view.get(name) else {
        // A runner that may be registered is absent only if a complete listing, asked for after its last change, lacks it.
        if !view.listing().complete || (!fresh && (has_pod || memo.pod_seen || registered)) {
            return Remote::Unknown;
        }
        let since = *memo.absent_since.get_or_insert(listed);
        return Remote::Absent { since: now.saturating_duration_since(since) };
    };
    memo.absent_since = None;
    let id = entry.id;
    let presence = view.presence(id);
    let lasting = |since: Option<tokio::time::Instant>| {
        since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since.into_std()))
    };
    if !entry.online {
        let since = lasting(presence.and_then(|presence| presence.offline_since));
        return Remote::Offline { id, busy: entry.busy, since };
    }
    // Not yet proved idle since its pod changed, or its removal was refused for a job that the listing does not show yet: counted as busy.
    // The flag may be a minute late, and a scale-down that trusted it would ask for the same busy runners again and again.
    let refused = memo.refused_busy.is_some_and(|at| now.saturating_duration_since(at) < BUSY_RETRY);
    let busy = entry.busy || !fresh || refused;
    Remote::Online { id, busy, idle: lasting(presence.and_then(|presence| presence.idle_since)) }
}

/// The parts of a pod that decisions use.
#[must_use]
pub fn pod_facts(pod: &Pod, node_gone: bool) -> PodFacts {
    let default = PodStatus::default();
    let status = pod.status.as_ref().unwrap_or(&default);
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let condition = |type_: &str, value: &str| {
        let found = conditions.iter().find(|condition| condition.type_ == type_ && condition.status == value)?;
        Some((found.last_transition_time.as_ref().map(|time| time.0).unwrap_or_default(), found))
    };
    PodFacts {
        uid: pod.uid().unwrap_or_default(),
        resource_version: pod.resource_version().unwrap_or_default(),
        created: pod.metadata.creation_timestamp.as_ref().map(|time| time.0).unwrap_or_default(),
        phase: match status.phase.as_deref() {
            Some("Running") => PodPhase::Running,
            Some("Succeeded") => PodPhase::Succeeded,
            Some("Failed") => PodPhase::Failed,
            Some("Unknown") => PodPhase::Unknown,
            _ => PodPhase::Pending,
        },
        node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).filter(|node| !node.is_empty()),
        node_gone,
        deleting: pod.metadata.deletion_timestamp.as_ref().map(|time| time.0),
        held: inherited::is_held(pod),
        ready_since: condition("Ready", "True").map(|(since, _)| since),
        silent_since: condition("Ready", "Unknown")
            .or_else(|| condition("Ready", "False").filter(|(_, found)| by_node_controller(found)))
            .map(|(since, _)| since),
        unschedulable: condition("PodScheduled", "False")
            .filter(|(_, found)| found.reason.as_deref() == Some("Unschedulable"))
            .map(|(since, found)| (since, found.message.clone().unwrap_or_default())),
        container: container(status),
        reason: status.reason.clone().unwrap_or_default(),
        message: status.message.clone().unwrap_or_default(),
    }
}

/// Whether a `Ready` that is False was set for a node that no longer answers: the node life-cycle controller turns the kubelet's True into
/// False and leaves the rest, while a False of the kubelet's own always has a reason.
fn by_node_controller(ready: &PodCondition) -> bool {
    ready.reason.as_deref().unwrap_or_default().is_empty()
}

fn container(status: &PodStatus) -> Container {
    let statuses = status.container_statuses.as_deref().unwrap_or_default();
    let Some(ContainerState { running, terminated, waiting }) =
        statuses.iter().find(|status| status.name == RUNNER_CONTAINER).and_then(|status| status.state.as_ref())
    else {
        return Container::Unreported;
    };
    if let Some(terminated) = terminated {
        return Container::Terminated {
            exit_code: terminated.exit_code,
            reason: terminated.reason.clone().unwrap_or_default(),
            message: terminated.message.clone().unwrap_or_default(),
            started: terminated.started_at.as_ref().map(|time| time.0),
            finished: terminated.finished_at.as_ref().map(|time| time.0),
        };
    }
    if let Some(running) = running {
        return Container::Running { since: running.started_at.as_ref().map(|time| time.0) };
    }
    waiting.as_ref().map_or(Container::Unreported, |waiting| Container::Waiting {
        reason: waiting.reason.clone().unwrap_or_default(),
        message: waiting.message.clone().unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn facts(status: &serde_json::Value) -> PodFacts {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "a", "uid": "u"}, "status": status})).unwrap();
        pod_facts(&pod, false)
    }

    #[test]
    fn only_a_run_makes_the_phase_running_a_job() {
        let status = |value| serde_json::from_value::<RunnerStatus>(value).unwrap();
        for (value, expected) in [
            (json!({"phase": "Running"}), false),
            (json!({"phase": "Running", "workflow": {"runID": ""}}), false),
            (json!({"phase": "Idle", "workflow": {"runID": "7"}}), false),
            (json!({"phase": "Running", "message": "Run 7 from a/b", "workflow": {"runID": "7"}}), true),
        ] {
            assert_eq!(reports_job(&status(value.clone())), expected, "{value}");
        }
    }

    #[test]
    fn an_id_that_a_job_may_have_written_is_no_address() {
        let mut runner = Runner::new("r", pacer_api::RunnerSpec::default());
        runner.metadata.uid = Some("u".to_owned());
        runner.status = Some(serde_json::from_value(json!({"runnerId": 7, "podUid": "p"})).unwrap());
        for hooked in [false, true] {
            let sources = Sources { pod: None, roster: None, set: None, hooked };
            let facts = super::runner(&runner, sources, &Memory::default(), Clock::read()).facts;
            assert_eq!((facts.known_id, facts.was_registered()), ((!hooked).then_some(7), true), "hooked {hooked}");
        }
    }

    #[test]
    fn a_pod_is_silent_when_its_node_is_not_when_its_containers_say_so() {
        let at = "2026-03-01T08:00:00Z";
        let silent = Some(at.parse().unwrap());
        for (ready, reason, expected) in [
            ("True", None, None),
            ("Unknown", None, silent),
            ("Unknown", Some("NodeStatusUnknown"), silent),
            ("False", None, silent),
            ("False", Some(""), silent),
            ("False", Some("ContainersNotReady"), None),
            ("False", Some("ReadinessGatesNotReady"), None),
            ("False", Some("PodCompleted"), None),
        ] {
            let condition = json!({"type": "Ready", "status": ready, "reason": reason, "lastTransitionTime": at});
            let facts = facts(&json!({"phase": "Running", "conditions": [condition]}));
            assert_eq!(facts.silent_since, expected, "Ready={ready} reason={reason:?}");
        }
        assert_eq!(facts(&json!({"phase": "Pending"})).silent_since, None);
    }
}
