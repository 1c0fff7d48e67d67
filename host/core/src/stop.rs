//! How a runner is taken down: unregister first, delete after.
//!
//! ARC's graceful stop (arc-behaviour 2.9) in a stricter form: only GitHub's own word, or a listing newer than the runner's last sign of
//! life, counts as unregistered; a refusal for any reason but *busy* proves nothing and is tried again.
//!
//! GitHub's flag is late, and its answer to a removal goes by it (terraform-aws-github-runner PR 5228). An agent whose registration is gone
//! may cancel its job. So any evidence of work holds up the question itself, for as long as it is there; and a runner that GitHub has removed
//! is left to end by itself until its pod shows that it runs no job.

use std::time::Duration;

use jiff::Timestamp;

use crate::facts::{Flag, PodFacts, Remote, RunnerFacts, Worker};

/// Durations that bound the steps of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopLimits {
    /// How long a runner whose removal was asked for may go on with its job; after that its pod is deleted with the job. GitHub itself ends a
    /// job on a self-hosted runner after five days.
    pub drain: Duration,
    /// How long a ready pod may take to register; ARC's registration timeout.
    pub registration: Duration,
    /// How long after its deletion timestamp a pod may linger before it is deleted by force; ARC waits one minute.
    pub linger: Duration,
    /// How long nothing may say that a runner works, from when it is to go and from the end of its last job, before GitHub is asked to remove it;
    /// and again after that, before its pod is deleted. Longer than it takes until a job that has just begun shows in the pod's status.
    pub confirmation: Duration,
}

impl Default for StopLimits {
    fn default() -> Self {
        Self {
            drain: Duration::from_secs(5 * 24 * 3600),
            registration: Duration::from_secs(600),
            linger: Duration::from_secs(60),
            confirmation: Duration::from_secs(10),
        }
    }
}

/// Why a stop waits; becomes the reason of the Runner's condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// It runs a job.
    Draining,
    /// It took its one job and ended; GitHub is removing it.
    Finishing,
    /// It has started and may register any moment.
    Registering,
    /// No listing says whether it is registered.
    ListingUnknown,
    /// Nothing says that it runs a job, but one that has just begun would not show yet.
    Confirming,
    /// GitHub has removed it; its agent is about to notice.
    Leaving,
    /// Its pod takes its time to end.
    PodTerminating,
}

impl WaitReason {
    /// Whether it ends by itself in its own time, and is no news to anybody.
    #[must_use]
    pub fn is_passing(self) -> bool {
        matches!(self, Self::Finishing | Self::Confirming | Self::Leaving | Self::PodTerminating)
    }

    /// Stable word for conditions, events and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Draining => "Draining",
            Self::Finishing => "Finishing",
            Self::Registering => "WaitingForRegistration",
            Self::ListingUnknown => "WaitingForGitHub",
            Self::Confirming => "ConfirmingIdle",
            Self::Leaving => "Leaving",
            Self::PodTerminating => "PodTerminating",
        }
    }
}

/// How the pod is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodDeletion {
    /// It runs no job: with a grace period of at most [`IDLE_GRACE`], unless the user chose one.
    Graceful,
    /// Nothing shows whether it runs a job: with its own grace period, which lets a job finish.
    Patient,
    /// Only if it has not changed since it was observed: it has not started, and must not have started meanwhile.
    IfUnchanged,
    /// At once: nobody is there to honour a grace period.
    Force,
}

/// The next step of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask GitHub to remove the registration with this id. Its answer decides what comes next: removed or gone, go on; busy, wait.
    Unregister {
        /// GitHub's id.
        id: u64,
    },
    /// Delete the pod in this way.
    DeletePod(PodDeletion),
    /// Take ARC's finalizers from the pod, which is being deleted: what they waited for is done.
    FreePod,
    /// Nothing to do until something changes or this long has passed.
    Wait {
        /// What it waits for; the reason of the Runner's condition.
        why: WaitReason,
        /// How long to wait at most until the next step is decided.
        recheck: Duration,
    },
    /// Nothing is left at GitHub or in the cluster: remove the finalizer.
    Release,
}

/// Decides the next step for a runner whose deletion has been asked for.
///
/// `refused_busy` says how long ago GitHub answered *busy* to a removal, if it ever did.
#[must_use]
pub fn next(runner: &RunnerFacts, refused_busy: Option<Duration>, limits: &StopLimits, now: Timestamp) -> Step {
    let pod = runner.pod.as_ref();
    if let Some(pod) = pod.filter(|pod| pod.node_gone) {
        return if pod.held && pod.deleting.is_some() { Step::FreePod } else { Step::DeletePod(PodDeletion::Force) };
    }
    let overdue = runner.deleting.and_then(|since| age(now, since).checked_sub(limits.drain));
    let left = registration(runner, refused_busy, overdue.is_some(), limits, now);
    if let Some(step) = left.filter(|step| overdue.is_none_or(|by| still_holds(*step, pod.is_some(), refused_busy, by))) {
        return step;
    }
    let Some(pod) = pod else { return Step::Release };
    match (pod.deleting, end_of_agent(runner, pod, overdue.is_some(), limits, now)) {
        (Some(_), _) if pod.held => Step::FreePod,
        // Its node may go on with the job while it does not report; a deletion by force would only forget the pod under it.
        (Some(_), _) if pod.silent_since.is_some() && !pod.stopped() && overdue.is_none() && runner.says_busy(now) => {
            Step::Wait { why: WaitReason::Draining, recheck: BUSY_RETRY }
        }
        (Some(deleting), _) if now > deleting && age(now, deleting) >= limits.linger => Step::DeletePod(PodDeletion::Force),
        // Somebody else deleted it, with a grace period that is as long as a job.
        (Some(deleting), Step::DeletePod(PodDeletion::Graceful))
            if !runner.own_grace && time_until(now, deleting) > IDLE_GRACE =>
        {
            Step::DeletePod(PodDeletion::Graceful)
        }
        (Some(_), _) => Step::Wait { why: WaitReason::PodTerminating, recheck: limits.linger },
        (None, _) if !pod.may_have_started() => Step::DeletePod(PodDeletion::IfUnchanged),
        (None, step) => step,
    }
}

/// What becomes of a pod with which GitHub has nothing to do any more.
///
/// An agent whose registration is gone ends within a minute if it has no job, and finishes or cancels the one it has. What the kubelet finds
/// decides, once it has looked again since; where it can't look, the pod is deleted after that minute with its own grace period.
fn end_of_agent(runner: &RunnerFacts, pod: &PodFacts, overdue: bool, limits: &StopLimits, now: Timestamp) -> Step {
    let graceful = Step::DeletePod(PodDeletion::Graceful);
    if pod.stopped() || overdue {
        return graceful;
    }
    if runner.says_busy(now) {
        return Step::Wait { why: WaitReason::Draining, recheck: BUSY_RETRY };
    }
    // Of a silent node nothing more can be learned; GitHub has removed the runner, or never knew it.
    if pod.silent_since.is_some() {
        return graceful;
    }
    // One that did not register within its time never had a job, and may not end by itself.
    if !runner.was_registered() && runner.known_id.is_none() {
        return graceful;
    }
    let patient = Step::DeletePod(PodDeletion::Patient);
    let (due, step) = match pod.worker {
        Worker::Unknown => (AGENT_END, patient),
        // One that is still registered may get a job at any moment.
        Worker::Absent { .. } | Worker::Running => (limits.confirmation, runner.unregistered.map_or(patient, |_| graceful)),
    };
    match runner.unregistered.and_then(|ago| due.checked_sub(ago)).filter(|left| !left.is_zero()) {
        Some(left) => Step::Wait { why: WaitReason::Leaving, recheck: left },
        None => step,
    }
}

/// Whether what is left at GitHub holds a stop up that is overdue `by` so long.
///
/// GitHub is asked once more after the deadline, and a refusal holds the pod no longer. Neither do calls that go on failing, and once the pod
/// is gone only the object waits for the registration: both end after [`LAST_WORD`], with the registration left behind.
fn still_holds(step: Step, has_pod: bool, refused_busy: Option<Duration>, by: Duration) -> bool {
    match step {
        Step::Unregister { .. } => by < LAST_WORD && !(has_pod && refused_busy.is_some_and(|ago| ago <= by)),
        Step::Wait { why: WaitReason::Draining, .. } => by < LAST_WORD && !has_pod,
        Step::Wait { .. } | Step::DeletePod(_) | Step::FreePod | Step::Release => false,
    }
}

/// What is left to do at GitHub; none when the registration is certainly gone, or certainly never was.
fn registration(
    runner: &RunnerFacts,
    refused_busy: Option<Duration>,
    overdue: bool,
    limits: &StopLimits,
    now: Timestamp,
) -> Option<Step> {
    if runner.unregistered.is_some() {
        return None;
    }
    if is_left_behind(runner, now) {
        return None;
    }
    let pod = runner.pod.as_ref();
    // The pod in which an agent may live.
    let live = pod.filter(|pod| !pod.stopped() && !pod.node_gone && pod.may_have_started());
    let over = pod.is_none_or(|pod| pod.stopped() || pod.node_gone);
    // What an earlier process saw of a pod it may not have written down.
    let never_had_pod = !runner.had_pod && (!runner.scope_barely_listed || runner.github_refuses);
    let draining = Step::Wait { why: WaitReason::Draining, recheck: BUSY_RETRY };
    let asked = live.and(quiet_since(runner)).and_then(|since| limits.confirmation.checked_sub(age(now, since)));
    let listed = match runner.remote {
        Remote::Online { flag: Flag::Idle(idle), .. } => live.and(runner.confirmation(Duration::ZERO).checked_sub(idle)),
        _ => None,
    };
    let unconfirmed = asked.max(listed);
    let unregister = |id| {
        let refused_lately = refused_busy.is_some_and(|ago| ago < BUSY_RETRY);
        Some(match unconfirmed.filter(|left| !overdue && !left.is_zero()) {
            _ if refused_lately => draining,
            Some(left) => Step::Wait { why: WaitReason::Confirming, recheck: left },
            None => Step::Unregister { id },
        })
    };
    if let Some(recheck) = leaves_by_itself(runner, now).filter(|_| !overdue) {
        return Some(Step::Wait { why: WaitReason::Finishing, recheck });
    }
    match (runner.remote, live) {
        // No removal is asked for under a job that anybody knows of, whatever GitHub's listing says.
        (_, Some(_)) if !overdue && runner.says_busy(now) => Some(draining),
        // GitHub's word that it is busy is believed while its pod lives; asking would only be answered 422.
        (Remote::Online { flag: Flag::Busy | Flag::Stale, .. } | Remote::Offline { busy: true, .. }, _) if !over && !overdue => {
            Some(draining)
        }
        // A listed registration goes before anything else, also when the pod is over: a stopped agent has not always removed itself.
        (Remote::Online { id, .. } | Remote::Offline { id, .. }, _) => unregister(id),
        // The few listings so far may have left it out, and nobody would look for its registration afterwards.
        (Remote::Absent { .. }, None) if runner.scope_barely_listed && !runner.github_refuses && !overdue => {
            Some(Step::Wait { why: WaitReason::ListingUnknown, recheck: LISTING_RECHECK })
        }
        // The listing may be older than a registration that was made ahead of the agent.
        (Remote::Absent { .. }, None) => runner.known_id.filter(|_| runner.awaited).and_then(unregister),
        (Remote::Absent { .. }, Some(pod)) => match runner.known_id {
            // A listing is a picture of the past; while the agent lives only GitHub's answer to a removal is proof.
            Some(id) => unregister(id),
            None if age(now, pod.ready_since.unwrap_or_else(|| pod.started_at())) >= limits.registration => None,
            None => Some(Step::Wait { why: WaitReason::Registering, recheck: LISTING_RECHECK }),
        },
        (Remote::Unknown, _) => match runner.known_id {
            Some(id) => unregister(id),
            None if pod.map_or(never_had_pod, |pod| !pod.may_have_started()) => None,
            None => Some(Step::Wait { why: WaitReason::ListingUnknown, recheck: LISTING_RECHECK }),
        },
    }
}

/// From when nothing has said that a runner works which is to go. A persistent one takes the next job that waits within a second or two of its
/// last one's end, and nothing tells of that job at first.
fn quiet_since(runner: &RunnerFacts) -> Option<Timestamp> {
    let looked = match runner.worker() {
        Worker::Absent { since } => since,
        Worker::Running | Worker::Unknown => None,
    };
    let ends = [runner.job_over, looked].into_iter().flatten().filter(|_| !runner.ephemeral);
    runner.deleting.map(|asked| ends.fold(asked, Timestamp::max))
}

/// Whether a registration is left to GitHub, which can't be asked to remove it: credentials were revoked, a repository or a namespace is gone.
///
/// GitHub itself removes an ephemeral runner with its job, or after a day without contact. A persistent one would stay for two weeks and
/// keep its name: somebody has to decide about it, unless nobody may ask there any more. A job that runs is finished in any case.
fn is_left_behind(runner: &RunnerFacts, now: Timestamp) -> bool {
    let waited = runner.deleting.is_some_and(|since| age(now, since) >= REFUSED);
    let idle = runner.pod.as_ref().is_none_or(|pod| pod.stopped() || matches!(pod.worker, Worker::Absent { .. }));
    runner.github_refuses && (runner.ephemeral || runner.github_forbidden) && waited && idle
}

/// See [`is_left_behind`]: longer than it takes to exchange a Secret, and than the listing that says so.
const REFUSED: Duration = Duration::from_secs(60);

/// How long to wait for the listing that shows whether an ephemeral runner whose pod has ended is gone, before GitHub is asked to remove it.
///
/// It removes itself with its one job, as a rule. One listing says so for all that ended before it, while a removal costs two calls for
/// each: the one that finds nothing to remove, and the look that tells *gone* from *not to be seen*. Of one that has had its job, listings go on
/// to show the registration for a while (github-behaviour 5.6).
fn leaves_by_itself(runner: &RunnerFacts, now: Timestamp) -> Option<Duration> {
    let ended = runner.pod.as_ref().filter(|pod| pod.stopped())?.ended_at()?;
    let is_told = runner.reports_job.is_some() || runner.job_over.is_some();
    // A listing whose pages do not fit together, as they do not while a burst ends, proves no more than none.
    let unproved = runner.unlisted_since || runner.remote == Remote::Unknown;
    let awaited = runner.ephemeral && (unproved || is_told) && !matches!(runner.remote, Remote::Absent { .. });
    let patience = if is_told { EVENT_OF_THE_END } else { SELF_REMOVAL };
    patience.checked_sub(age(now, ended)).filter(|left| awaited && !left.is_zero())
}

/// How long an agent without a job goes on after its registration is gone: its poll of GitHub lasts fifty seconds.
const AGENT_END: Duration = Duration::from_secs(60);

/// The longest grace period of a pod that runs no job, unless the user chose one; what Kubernetes gives to every pod.
pub const IDLE_GRACE: Duration = Duration::from_secs(30);

/// See [`leaves_by_itself`]: some listings at the pace of a fleet at work.
const SELF_REMOVAL: Duration = Duration::from_secs(20);

/// The same for one that is known to have had its job: the event of the job's end says that the registration is gone, and comes late in a
/// burst; where it is lost, one of the listings that are due anyway says so.
const EVENT_OF_THE_END: Duration = Duration::from_secs(75);

/// How soon a stop that needs a newer listing is reconciled again if no listing comes.
const LISTING_RECHECK: Duration = Duration::from_secs(5);

/// A removal that GitHub refused as busy is not asked again before this.
pub const BUSY_RETRY: Duration = Duration::from_secs(30);

/// How long past the deadline GitHub is still asked to let go; longer than it takes to notice that an agent is gone.
const LAST_WORD: Duration = Duration::from_mins(15);

/// Time since `then`; zero when that is in the future.
fn age(now: Timestamp, then: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(then)).unwrap_or_default()
}

/// Time until `then`; zero when that is past.
fn time_until(now: Timestamp, then: Timestamp) -> Duration {
    Duration::try_from(then.duration_since(now)).unwrap_or_default()
}

#[cfg(test)]
#[path = "stop/tests.rs"]
mod tests;
