//! What becomes of a policy's verdict about a runner in trouble.
//!
//! A policy proposes; the operator owns the clock. A waiting time counts from the moment the runner got into its situation, so that asking
//! again gives the same due time, and grows with the attempts that the pool failed in a row, whatever the policy says.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::facts::RunnerFacts;
use crate::gate::RESTART_LOOK_AGAIN;
use crate::phase::{Cause, Situation, Trouble};
use crate::policy::{Subject, Verdict};
use crate::scale_down::since;

/// Ends in a row that nobody saw at GitHub and that count as jobs all the same. A queue of short jobs ends with one that is seen: the first
/// idle runner.
const UNSEEN_ENDS: u32 = 50;

/// Whether runners of one template are known to register.
///
/// An ephemeral agent whose job is shorter than the time between two listings ends with 0 and is never seen. One that can't register ends
/// with 0 as well, since the image's entry point masks its code. Only others of the same template tell them apart: credentials, scope, group
/// and labels that worked a moment ago are likely to work now, and no more than `UNSEEN_ENDS` runners are lost where they do not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registering {
    /// Unseen ends that are still believed; none before a runner was seen.
    believed: u32,
}

impl Registering {
    /// A runner that GitHub did not know at the last look is registered, or an event says that it was.
    pub fn seen(&mut self) {
        self.believed = UNSEEN_ENDS;
    }

    /// So many ended well without being seen.
    pub fn ended_unseen(&mut self, count: u32) {
        self.believed = self.believed.saturating_sub(count);
    }

    /// Whether the next one that ends well most likely did a job.
    #[must_use]
    pub fn holds(self) -> bool {
        self.believed > 0
    }
}

/// Bounds that no policy can leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartLimits {
    /// Least time between looks at the same runner.
    pub look_min: Duration,
    /// Longest time until the next look.
    pub look_max: Duration,
    /// First delay before a failed runner's place is filled again; doubles per failed attempt. ARC made 46 pods in 15 s without one.
    pub backoff_base: Duration,
    /// Longest delay before a failed runner's place is filled again, however many attempts failed.
    pub backoff_max: Duration,
}

impl Default for RestartLimits {
    fn default() -> Self {
        Self {
            look_min: Duration::from_secs(1),
            look_max: Duration::from_secs(u64::from(RESTART_LOOK_AGAIN.1)),
            backoff_base: Duration::from_secs(1),
            backoff_max: Duration::from_secs(300),
        }
    }
}

/// What the operator does about one runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Nothing; look again after this.
    Wait {
        /// How long until the next look, between `look_min` and `look_max`.
        recheck: Duration,
        /// When its pod is made again or its place is filled again, if nothing changes; none where the policy only looks again.
        acts: Option<Timestamp>,
    },
    /// Make its pod again under the same name.
    Recreate,
    /// Remove it; its set makes another.
    Replace,
    /// Leave it as it is, make no replacement, and say so.
    Quarantine,
}

/// Turns a verdict into what happens now. `verdict` is none when the policy had no answer for this runner.
///
/// `attempts` counts the pool's failed attempts in a row, this one included.
#[must_use]
pub fn remedy(
    verdict: Option<&Verdict>,
    trouble: &Trouble,
    stand_alone: bool,
    attempts: u32,
    limits: &RestartLimits,
    now: Timestamp,
) -> Remedy {
    let Some(verdict) = verdict else { return Remedy::Wait { recheck: limits.look_max, acts: None } };
    let asked = verdict.after.map(|seconds| Duration::from_secs(u64::from(seconds)));
    match verdict.action.as_str() {
        "recreate" | "replace" => {
            let floor = if trouble.cause.is_failure() { backoff(attempts, limits) } else { Duration::ZERO };
            let delay = asked.unwrap_or_default().max(floor).min(limits.backoff_max.max(limits.look_max));
            let elapsed = Duration::try_from(now.duration_since(trouble.since)).unwrap_or_default();
            match delay.checked_sub(elapsed) {
                Some(left) if !left.is_zero() => {
                    let acts = SignedDuration::try_from(left).ok().and_then(|left| now.checked_add(left).ok());
                    Remedy::Wait { recheck: within(left, limits), acts }
                }
                // A Runner that no set owns has nobody to make another: it keeps its name (arc-behaviour 10.3).
                _ if stand_alone => Remedy::Recreate,
                _ => Remedy::Replace,
            }
        }
        "quarantine" => Remedy::Quarantine,
        _ => Remedy::Wait { recheck: within(asked.unwrap_or(limits.look_max), limits), acts: None },
    }
}

/// Bounds that contradict each other are no reason to panic, as `clamp` would: the least time wins.
fn within(wait: Duration, limits: &RestartLimits) -> Duration {
    wait.min(limits.look_max).max(limits.look_min)
}

/// Delay before the next attempt after so many failed ones.
#[must_use]
pub fn backoff(attempts: u32, limits: &RestartLimits) -> Duration {
    let doublings = attempts.saturating_sub(1).min(20);
    limits.backoff_base.saturating_mul(1_u32 << doublings).min(limits.backoff_max)
}

/// Count of failed attempts after a step in which runners were replaced for these causes, or one came online.
#[must_use]
pub fn attempts(before: u32, came_online: bool, given_up: impl IntoIterator<Item = Cause>) -> u32 {
    let failed = given_up.into_iter().any(Cause::is_failure);
    match (came_online, failed) {
        (true, failed) => u32::from(failed),
        (false, true) => before.saturating_add(1),
        (false, false) => before,
    }
}

/// When the first of the places of failed runners is filled again, by what was decided about these.
#[must_use]
pub fn next_attempt<'a>(decided: impl IntoIterator<Item = (Cause, &'a Remedy)>) -> Option<Timestamp> {
    let acts = |(cause, remedy): (Cause, &Remedy)| match remedy {
        Remedy::Wait { acts, .. } if cause.is_failure() => *acts,
        _ => None,
    };
    decided.into_iter().filter_map(acts).min()
}

/// What a policy is told of a runner in trouble, one of a set; `attempts` with this one.
#[must_use]
pub fn subject(runner: &RunnerFacts, trouble: &Trouble, attempts: u32, now: Timestamp) -> Subject {
    // One that ended is as old as it got.
    let grown = if trouble.situation == Situation::Ended { trouble.since } else { now };
    Subject {
        name: runner.name.clone(),
        situation: trouble.situation.as_str().to_owned(),
        cause: trouble.cause.as_str().to_owned(),
        exit_code: trouble.exit_code,
        message: trouble.message.clone(),
        github: runner.remote.as_str().to_owned(),
        was_registered: runner.was_registered(),
        since: since(trouble.since, now),
        age: runner.pod.as_ref().map_or(0, |pod| since(pod.created, grown)),
        attempts,
        ephemeral: runner.ephemeral,
        stand_alone: false,
        current: runner.current,
        node: None,
        attributes: Vec::new(),
    }
}

#[cfg(test)]
#[path = "restart/tests.rs"]
mod tests;
