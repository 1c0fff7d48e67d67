//! How a runner is taken down: unregister first, delete after.
//!
//! ARC's graceful stop (arc-behaviour 2.9) in a stricter form: only GitHub's own word, or a listing newer than the runner's last sign of
//! life, counts as unregistered; a refusal for any reason but *busy* proves nothing and is tried again.

use std::time::Duration;

use jiff::Timestamp;

use crate::facts::{Remote, RunnerFacts};

/// Limits of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopLimits {
    /// How long a runner whose removal was asked for may go on with its job; after that its pod is deleted with the job. GitHub itself ends a
    /// job on a self-hosted runner after five days.
    pub drain: Duration,
    /// How long a ready pod may take to register; ARC's registration timeout.
    pub registration: Duration,
    /// How long after its deletion timestamp a pod may linger before it is deleted by force; ARC waits one minute.
    pub linger: Duration,
}

impl Default for StopLimits {
    fn default() -> Self {
        Self {
            drain: Duration::from_secs(5 * 24 * 3600),
            registration: Duration::from_secs(600),
            linger: Duration::from_secs(60),
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
    /// Its pod takes its time to end.
    PodTerminating,
}

impl WaitReason {
    /// Stable word for conditions, events and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Draining => "Draining",
            Self::Finishing => "Finishing",
            Self::Registering => "WaitingForRegistration",
            Self::ListingUnknown => "WaitingForGitHub",
            Self::PodTerminating => "PodTerminating",
        }
    }
}

/// How the pod is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodDeletion {
    /// With its grace period.
    Graceful,
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
    /// Delete the pod.
    DeletePod(PodDeletion),
    /// Take ARC's finalizers from the pod, which is being deleted: what they waited for is done.
    FreePod,
    /// Nothing to do until something changes or this long has passed.
    Wait {
        /// Why.
        why: WaitReason,
        /// Look again after.
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
    match pod.deleting {
        Some(_) if pod.held => Step::FreePod,
        Some(deleting) if now > deleting && age(now, deleting) >= limits.linger => Step::DeletePod(PodDeletion::Force),
        Some(_) => Step::Wait { why: WaitReason::PodTerminating, recheck: limits.linger },
        None if !pod.may_have_started() => Step::DeletePod(PodDeletion::IfUnchanged),
        None => Step::DeletePod(PodDeletion::Graceful),
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
    if runner.unregistered {
        return None;
    }
    let pod = runner.pod.as_ref();
    // The pod in which an agent may live.
    let live = pod.filter(|pod| !pod.stopped() && !pod.node_gone && pod.may_have_started());
    let over = pod.is_none_or(|pod| pod.stopped() || pod.node_gone);
    let draining = Step::Wait { why: WaitReason::Draining, recheck: BUSY_RETRY };
    let unregister = |id| {
        let refused_lately = refused_busy.is_some_and(|ago| ago < BUSY_RETRY);
        Some(if refused_lately { draining } else { Step::Unregister { id } })
    };
    if let Some(recheck) = leaves_by_itself(runner, now).filter(|_| !overdue) {
        return Some(Step::Wait { why: WaitReason::Finishing, recheck });
    }
    match (runner.remote, live) {
        // GitHub's word that it is busy is believed while its pod lives; asking would only be answered 422.
        (Remote::Online { busy: true, .. } | Remote::Offline { busy: true, .. }, _) if !over && !overdue => Some(draining),
        // A listed registration goes before anything else, also when the pod is over: a stopped agent has not always removed itself.
        (Remote::Online { id, .. } | Remote::Offline { id, .. }, _) => unregister(id),
        (Remote::Absent { .. }, None) => None,
        (Remote::Absent { .. }, Some(pod)) => match runner.known_id {
            // A listing is a picture of the past; while the agent lives only GitHub's answer to a removal is proof.
            Some(id) => unregister(id),
            None if runner.says_busy() => Some(draining),
            None if age(now, pod.ready_since.unwrap_or_else(|| pod.started_at())) >= limits.registration => None,
            None => Some(Step::Wait { why: WaitReason::Registering, recheck: LISTING_RECHECK }),
        },
        (Remote::Unknown, _) => match runner.known_id {
            Some(id) => unregister(id),
            None if pod.map_or(!runner.had_pod, |pod| !pod.may_have_started()) => None,
            None => Some(Step::Wait { why: WaitReason::ListingUnknown, recheck: LISTING_RECHECK }),
        },
    }
}

/// How long to wait for the listing that shows whether an ephemeral runner whose pod has ended is gone, before GitHub is asked to remove it.
///
/// It removes itself with its one job, as a rule. One listing says so for all that ended before it, while a removal costs two calls for
/// each: the one that finds nothing to remove, and the look that tells *gone* from *not to be seen*.
fn leaves_by_itself(runner: &RunnerFacts, now: Timestamp) -> Option<Duration> {
    let ended = runner.pod.as_ref().filter(|pod| pod.stopped())?.ended_at()?;
    let awaited = runner.ephemeral && runner.unlisted_since && !matches!(runner.remote, Remote::Absent { .. });
    SELF_REMOVAL.checked_sub(age(now, ended)).filter(|left| awaited && !left.is_zero())
}

/// See [`leaves_by_itself`]: some listings at the pace of a fleet at work.
const SELF_REMOVAL: Duration = Duration::from_secs(20);

/// How soon a stop that needs a newer listing looks again if no listing wakes it.
const LISTING_RECHECK: Duration = Duration::from_secs(5);

/// A removal that GitHub refused as busy is not asked again before this.
pub const BUSY_RETRY: Duration = Duration::from_secs(30);

/// How long past the deadline GitHub is still asked to let go; longer than it takes to notice that an agent is gone.
const LAST_WORD: Duration = Duration::from_mins(15);

/// Time since `then`; zero when that is in the future.
fn age(now: Timestamp, then: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(then)).unwrap_or_default()
}

#[cfg(test)]
#[path = "stop/tests.rs"]
mod tests;
