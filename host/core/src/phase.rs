//! Where a runner stands, and whether it is in trouble.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::facts::{Container, Disruption, Flag, PodFacts, PodPhase, Refuser, Remote, RunnerFacts};
use crate::policy::Counts;

/// A ready pod that GitHub does not list is not yet worth a question before this age: configuring takes a few seconds.
const REGISTRATION_GRACE: SignedDuration = SignedDuration::from_secs(30);

/// A pod that is not ready for no stated reason is not yet worth a question before this age: large images take minutes.
const START_GRACE: SignedDuration = SignedDuration::from_mins(5);

/// What the agent exits with when GitHub refuses its version and `ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE` is set.
const DEPRECATED_EXIT: i32 = 7;

/// Where a runner stands. Only [`Phase::Idle`] is proof that it runs no job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Its container has not started.
    Pending,
    /// Started, not registered yet.
    Starting,
    /// Registered, connected, and without a job in every listing for this long.
    Idle(Duration),
    /// Runs a job, or can't be proved not to.
    Busy,
    /// Registered, not connected, no job.
    Offline,
    /// Over: ended, missing, or unknown to GitHub after it was registered. Holds its place until it is decided on.
    Dead,
    /// Its deletion has been asked for.
    Stopping,
}

impl Phase {
    /// Whether it takes, or will take, jobs.
    #[must_use]
    pub fn is_alive(self) -> bool {
        !matches!(self, Self::Dead | Self::Stopping)
    }

    /// The phase that people are told. One that was [listed idle](RunnerFacts::was_listed_idle) is not proved idle, which rules that stop runners need,
    /// and it most likely is; should it work, an event, its pod or the next listing says so.
    #[must_use]
    pub fn as_told(self, facts: &RunnerFacts, now: Timestamp) -> Self {
        match self {
            Self::Busy if facts.was_listed_idle(now) => Self::Idle(Duration::ZERO),
            phase => phase,
        }
    }

    /// Whether GitHub can hand it a job now, or has.
    #[must_use]
    pub fn is_online(self) -> bool {
        matches!(self, Self::Idle(_) | Self::Busy)
    }
}

/// What happened to a runner; the contract's `situation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Situation {
    /// Its container ended.
    Ended,
    /// Ready, and GitHub never listed it.
    NeverRegistered,
    /// Its pod does not start.
    NotStarting,
    /// GitHub lost contact.
    Offline,
    /// GitHub no longer lists it.
    Unregistered,
    /// Its pod is gone.
    PodMissing,
}

impl Situation {
    /// Name of the situation in the contract of policies, such as `never-registered`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::NeverRegistered => "never-registered",
            Self::NotStarting => "not-starting",
            Self::Offline => "offline",
            Self::Unregistered => "unregistered",
            Self::PodMissing => "pod-missing",
        }
    }
}

/// Why it happened; the contract's `cause`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Exit 0 after it was registered: an ephemeral runner did its job. It need not have been seen where others of its template were: jobs
    /// may be shorter than the time between two listings.
    Completed,
    /// The container ended with an exit code other than 0.
    Exit,
    /// Exit 0 without ever registering: configuration failed and the image's entry point masked the code.
    UnregisteredExit,
    /// The pod failed before its `runner` container ever started: the kubelet refused it, for instance. The next one may fare alike at once.
    NeverStarted,
    /// The kubelet evicted the pod.
    Evicted,
    /// The container used more memory than it may (`OOMKilled`).
    OomKilled,
    /// The node is gone or silent.
    NodeLost,
    /// The image can't be pulled.
    ImagePull,
    /// A quota is used up.
    Quota,
    /// No node takes the pod.
    Unschedulable,
    /// GitHub refuses the credentials, or they lack a right.
    BadCredentials,
    /// GitHub refuses this version of the runner.
    DeprecatedVersion,
    /// The container can't be made from its configuration.
    ConfigError,
    /// Somebody deleted the pod.
    PodDeleted,
    /// Nothing says why.
    Unknown,
}

impl Cause {
    /// All causes, for metrics by cause.
    pub const ALL: [Self; 15] = [
        Self::Completed,
        Self::Exit,
        Self::UnregisteredExit,
        Self::NeverStarted,
        Self::Evicted,
        Self::OomKilled,
        Self::NodeLost,
        Self::ImagePull,
        Self::Quota,
        Self::Unschedulable,
        Self::BadCredentials,
        Self::DeprecatedVersion,
        Self::ConfigError,
        Self::PodDeleted,
        Self::Unknown,
    ];

    /// Name of the cause in the contract of policies, such as `oom-killed`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Exit => "exit",
            Self::UnregisteredExit => "unregistered-exit",
            Self::NeverStarted => "never-started",
            Self::Evicted => "evicted",
            Self::OomKilled => "oom-killed",
            Self::NodeLost => "node-lost",
            Self::ImagePull => "image-pull",
            Self::Quota => "quota",
            Self::Unschedulable => "unschedulable",
            Self::BadCredentials => "bad-credentials",
            Self::DeprecatedVersion => "deprecated-version",
            Self::ConfigError => "config-error",
            Self::PodDeleted => "pod-deleted",
            Self::Unknown => "unknown",
        }
    }

    /// Whether an ephemeral runner that ended so most likely did its job. One that ended well without being seen at GitHub may have been
    /// quicker than the listings; where it did nothing, its job still waits and asks for another runner.
    #[must_use]
    pub fn has_finished(self) -> bool {
        matches!(self, Self::Completed | Self::UnregisteredExit)
    }

    /// The cause of that word.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.as_str() == word)
    }

    /// Whether it says that runners of this pool can't start: what back-off counts. The others happen to healthy pools.
    #[must_use]
    pub fn is_failure(self) -> bool {
        matches!(
            self,
            Self::Exit
                | Self::UnregisteredExit
                | Self::NeverStarted
                | Self::OomKilled
                | Self::ImagePull
                | Self::ConfigError
                | Self::DeprecatedVersion
        )
    }
}

/// Counts phases as the contract has them. Dead runners are none of them.
#[must_use]
pub fn counts(phases: impl Iterator<Item = Phase>) -> Counts {
    phases.fold(Counts::default(), |mut counts, phase| {
        let count = match phase {
            Phase::Pending => &mut counts.pending,
            Phase::Starting => &mut counts.starting,
            Phase::Idle(_) => &mut counts.idle,
            Phase::Busy | Phase::Offline => &mut counts.busy,
            Phase::Stopping => &mut counts.stopping,
            Phase::Dead => return counts,
        };
        *count = count.saturating_add(1);
        counts
    })
}

/// A runner that needs a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// What happened to the runner.
    pub situation: Situation,
    /// Why it happened, as far as the cluster says.
    pub cause: Cause,
    /// Since when the runner has been in this situation, as exactly as known.
    pub since: Timestamp,
    /// Exit code of the `runner` container.
    pub exit_code: Option<i32>,
    /// What the cluster says.
    pub message: String,
}

/// The opinion about one runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assessment {
    /// Where the runner stands.
    pub phase: Phase,
    /// What is wrong, if anything.
    pub trouble: Option<Trouble>,
}

/// For so long after a runner's start or end it is worth a listing of its own; after that it waits for one that is due anyway.
const HASTE: SignedDuration = SignedDuration::from_secs(60);

/// How long the event that tells of a runner's start, or of its end, may be under way: a listing before that costs a call for each hundred
/// runners, and says what the event says.
pub const EVENT_LAG: SignedDuration = SignedDuration::from_secs(20);

/// Who is about to say what has become of a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToldBy {
    /// Nobody but GitHub's listings.
    Listings,
    /// The event of a job: one waits for a runner that starts, or was given to one that is over.
    Events,
}

/// In how long GitHub is to be listed for a runner that starts or is over; none where a listing that is due anyway will do. One that never
/// registers, or stays for somebody to look at, must not keep its scope at a listing a second for ever.
#[must_use]
pub fn wants_listing(runner: &RunnerFacts, assessment: &Assessment, told_by: ToldBy, now: Timestamp) -> Option<Duration> {
    let since = match assessment.phase {
        Phase::Starting => runner.pod.as_ref().map(PodFacts::started_at),
        Phase::Dead => assessment.trouble.as_ref().map(|trouble| trouble.since),
        Phase::Pending | Phase::Idle(_) | Phase::Busy | Phase::Offline | Phase::Stopping => None,
    };
    let age = since.map(|since| now.duration_since(since));
    if runner.quarantined || age.is_some_and(|age| age >= HASTE) {
        return None;
    }
    Some(match told_by {
        ToldBy::Listings => Duration::ZERO,
        ToldBy::Events => Duration::try_from(EVENT_LAG.saturating_sub(age.unwrap_or_default())).unwrap_or_default(),
    })
}

/// Judges from facts alone where a runner stands, and whether it is in trouble.
#[must_use]
pub fn assess(runner: &RunnerFacts, now: Timestamp) -> Assessment {
    if runner.deleting.is_some() {
        return Assessment { phase: Phase::Stopping, trouble: None };
    }
    if let Some(assessment) = registered_alone(runner) {
        return assessment;
    }
    let Some(pod) = &runner.pod else { return without_pod(runner, now) };
    if pod.stopped() || pod.node_gone {
        return dead(ended(runner, pod, now));
    }
    if let Some(deleting) = pod.deleting {
        return dead(trouble(Situation::Ended, Cause::PodDeleted, deleting.min(now), "the pod is being deleted"));
    }
    // One that GitHub has contact with has started, however late the kubelet is with its report.
    if !pod.may_have_started() && !matches!(runner.remote, Remote::Online { .. }) {
        return Assessment { phase: Phase::Pending, trouble: not_starting(pod, now) };
    }
    running(runner, pod, now)
}

/// A registration without an agent: offline is what it is meant to be, and its pod is over as soon as that is reached. None where it stands
/// like any other runner.
fn registered_alone(runner: &RunnerFacts) -> Option<Assessment> {
    let ended_well = match &runner.pod {
        None => runner.had_pod,
        Some(pod) => pod.ended_well(),
    };
    let phase = match runner.remote {
        _ if !runner.registration_only => return None,
        Remote::Offline { .. } => Phase::Offline,
        // The listing that shows it is still to come.
        Remote::Unknown if ended_well => Phase::Starting,
        _ => return None,
    };
    Some(Assessment { phase, trouble: None })
}

fn without_pod(runner: &RunnerFacts, now: Timestamp) -> Assessment {
    if runner.had_pod {
        let left = runner.was_registered() && matches!(runner.remote, Remote::Absent { .. });
        let cause = if runner.ephemeral && runner.had_job && left {
            // GitHub let it go after its job, and somebody else cleaned its pod away.
            Cause::Completed
        } else {
            Cause::PodDeleted
        };
        // Nobody notes when a pod vanished. What GitHub saw of it stands still, so that a waiting time counted from it ends.
        let since = out_of_sight(runner, now).unwrap_or(now).max(runner.created);
        return dead(trouble(Situation::PodMissing, cause, since, "the pod is gone"));
    }
    let refused = runner.refusal.as_ref().map(|refusal| {
        let cause = match refusal.by {
            Refuser::Pod => Cause::ConfigError,
            Refuser::Quota | Refuser::Tenancy => Cause::Quota,
            Refuser::Namesake => Cause::ConfigError,
            Refuser::Credentials => Cause::BadCredentials,
        };
        trouble(Situation::NotStarting, cause, refusal.since, &refusal.message)
    });
    Assessment { phase: Phase::Pending, trouble: refused }
}

fn ended(runner: &RunnerFacts, pod: &PodFacts, now: Timestamp) -> Trouble {
    let mut exit = None;
    let mut message = pod.message.as_str();
    let mut reason = pod.reason.as_str();
    if let Container::Terminated { exit_code, reason: container_reason, message: container_message, .. } = &pod.container {
        exit = Some(*exit_code);
        if message.is_empty() {
            message = container_message;
        }
        if reason.is_empty() {
            reason = container_reason;
        }
    }
    let cause = match (reason, exit) {
        _ if never_started(runner, pod) => Cause::NeverStarted,
        // `Terminated` is what the kubelet writes to a pod when its node shuts down in an orderly way.
        ("Evicted" | "Preempting" | "TerminationByKubelet" | "Shutdown" | "NodeShutdown" | "Terminated", _) => Cause::Evicted,
        // An end that was reported before the node vanished is the better explanation.
        _ if (pod.node_gone && exit.is_none()) || reason == "NodeLost" => Cause::NodeLost,
        _ if pod.never_started && pod.disruption == Some(Disruption::NodeLost) => Cause::NodeLost,
        ("OOMKilled", _) => Cause::OomKilled,
        (_, Some(DEPRECATED_EXIT)) => Cause::DeprecatedVersion,
        _ if says_deprecated(message) => Cause::DeprecatedVersion,
        (_, Some(0)) | (_, None) if pod.phase == PodPhase::Succeeded || exit == Some(0) => {
            if told_to_end(runner, pod) {
                Cause::PodDeleted
            } else if runner.was_registered() || (runner.ephemeral && runner.siblings_register) {
                Cause::Completed
            } else {
                Cause::UnregisteredExit
            }
        }
        (_, Some(_)) => Cause::Exit,
        _ if pod.deleting.is_some() => Cause::PodDeleted,
        _ => Cause::Unknown,
    };
    let known = pod.ended_at().or(pod.silent_since).or(pod.deleting).or_else(|| out_of_sight(runner, now));
    // Too early rather than moving along with the clock, which would never let a waiting time end.
    let since = known.unwrap_or(pod.created).max(pod.created).min(now);
    Trouble { situation: Situation::Ended, cause, since, exit_code: exit, message: one_line(reason, message) }
}

/// Whether it failed before it ever started, and neither its node nor somebody's deletion is the reason. What was seen of it at GitHub is the better
/// proof: kubelets before Kubernetes 1.22 leave no container in the status of a pod that they evict.
fn never_started(runner: &RunnerFacts, pod: &PodFacts) -> bool {
    // A refused pod has no such condition: only one that was admitted can be evicted.
    let is_taken_away = pod.node_gone || pod.deleting.is_some() || pod.disruption.is_some() || pod.reason == "NodeLost";
    pod.never_started && !is_taken_away && !runner.was_registered() && !runner.had_job
}

/// Whether it ended well because somebody deleted its pod: an idle agent then unregisters itself and exits with 0, like one that did its job.
fn told_to_end(runner: &RunnerFacts, pod: &PodFacts) -> bool {
    let before_its_end = |asked| pod.ended_at().is_none_or(|ended| asked <= ended);
    !runner.had_job && pod.deletion_asked.is_some_and(before_its_end)
}

/// The sentence with which GitHub refuses an old runner; the agent writes it to its log, from which the kubelet fills the termination message.
fn says_deprecated(message: &str) -> bool {
    message.contains("is deprecated and cannot receive messages")
}

/// Since when GitHub has not seen it.
fn out_of_sight(runner: &RunnerFacts, now: Timestamp) -> Option<Timestamp> {
    match runner.remote {
        Remote::Absent { since } | Remote::Offline { since, .. } => Some(ago(now, since)),
        Remote::Unknown | Remote::Online { .. } => None,
    }
}

fn not_starting(pod: &PodFacts, now: Timestamp) -> Option<Trouble> {
    if let Some((since, message)) = &pod.unschedulable {
        return Some(trouble(Situation::NotStarting, Cause::Unschedulable, *since, message));
    }
    let (reason, message) = match &pod.container {
        Container::Waiting { reason, message } => (reason.as_str(), message.as_str()),
        _ => ("", ""),
    };
    let cause = match reason {
        "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" | "RegistryUnavailable" => {
            Cause::ImagePull
        }
        "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError" | "CrashLoopBackOff" => Cause::ConfigError,
        _ if now.duration_since(pod.created) >= START_GRACE => silence(pod),
        _ => return None,
    };
    let message = if message.is_empty() { "the pod does not start, nothing says why" } else { message };
    Some(Trouble {
        situation: Situation::NotStarting,
        cause,
        since: pod.created,
        exit_code: None,
        message: one_line(reason, message),
    })
}

fn running(runner: &RunnerFacts, pod: &PodFacts, now: Timestamp) -> Assessment {
    let cause = silence(pod);
    let fine = |phase| Assessment { phase, trouble: None };
    match runner.remote {
        _ if runner.says_busy(now) => fine(Phase::Busy),
        Remote::Online { flag: Flag::Idle(idle), .. } => fine(Phase::Idle(idle)),
        Remote::Online { .. } | Remote::Offline { busy: true, .. } => fine(Phase::Busy),
        // Its agent is still to come.
        Remote::Offline { .. } if runner.awaited => {
            Assessment { phase: Phase::Starting, trouble: not_registering(pod, cause, now) }
        }
        Remote::Offline { since, .. } => Assessment {
            phase: Phase::Offline,
            trouble: Some(trouble(Situation::Offline, cause, ago(now, since), "GitHub lost contact with the runner")),
        },
        Remote::Absent { since } if runner.known_id.is_some() => dead(trouble(
            Situation::Unregistered,
            cause,
            ago(now, since),
            "GitHub no longer lists the runner, its pod still runs",
        )),
        Remote::Absent { .. } => Assessment { phase: Phase::Starting, trouble: not_registering(pod, cause, now) },
        Remote::Unknown if runner.was_registered() => fine(Phase::Busy),
        Remote::Unknown => fine(Phase::Starting),
    }
}

fn not_registering(pod: &PodFacts, cause: Cause, now: Timestamp) -> Option<Trouble> {
    let (situation, since, grace, message) = match pod.ready_since {
        Some(ready) => {
            (Situation::NeverRegistered, ready, REGISTRATION_GRACE, "the pod is ready, GitHub does not list the runner")
        }
        None => {
            let message = "the pod does not get ready, GitHub does not list the runner";
            (Situation::NotStarting, pod.started_at(), START_GRACE, message)
        }
    };
    (now.duration_since(since) >= grace).then(|| trouble(situation, cause, since, message))
}

fn silence(pod: &PodFacts) -> Cause {
    if pod.silent_since.is_some() { Cause::NodeLost } else { Cause::Unknown }
}

fn dead(trouble: Trouble) -> Assessment {
    Assessment { phase: Phase::Dead, trouble: Some(trouble) }
}

fn trouble(situation: Situation, cause: Cause, since: Timestamp, message: &str) -> Trouble {
    Trouble { situation, cause, since, exit_code: None, message: message.to_owned() }
}

fn one_line(reason: &str, message: &str) -> String {
    let message = message.trim();
    match (reason.is_empty(), message.is_empty()) {
        (true, _) => message.to_owned(),
        (false, true) => reason.to_owned(),
        (false, false) => format!("{reason}: {message}"),
    }
}

fn ago(now: Timestamp, since: Duration) -> Timestamp {
    SignedDuration::try_from(since).ok().and_then(|since| now.checked_sub(since).ok()).unwrap_or(now)
}

#[cfg(test)]
#[path = "phase/tests.rs"]
mod tests;
