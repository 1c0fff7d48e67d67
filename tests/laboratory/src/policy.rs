//! Policies for the laboratory: the shipped opinions in short, and one that makes no sense.
//!
//! What a policy answers must not matter for any invariant: the gate and the rules are what is tested.

use pacer_core::phase::{Cause, Situation, Trouble};
use pacer_core::policy::{Choice, Reservation, ScaleDownRequest, Verdict};

use crate::draw::Draw;

/// Who is idle for longest goes first.
#[must_use]
pub(crate) fn idlest(request: &ScaleDownRequest) -> Vec<Choice> {
    let mut order: Vec<(u32, u32)> = (0_u32..).zip(&request.candidates).map(|(index, one)| (one.idle, index)).collect();
    order.sort_unstable_by_key(|(idle, index)| (std::cmp::Reverse(*idle), *index));
    order.truncate(request.surplus as usize);
    order.into_iter().map(|(_, index)| Choice { index, reason: "idle".to_owned(), attributes: Vec::new() }).collect()
}

/// Indices that were never offered, one named twice, too many.
#[must_use]
pub(crate) fn nonsense(draw: Draw, turn: u64) -> Vec<Choice> {
    let count = draw.between("nonsense", turn, 0, (0, 6));
    let index = |number| u32::try_from(draw.between("nonsense", turn, number + 1, (0, 7))).unwrap_or_default();
    (0..count).map(|number| Choice { index: index(number), reason: String::new(), attributes: Vec::new() }).collect()
}

/// What becomes of a runner in trouble, as the shipped policy has it.
#[must_use]
pub(crate) fn restart(index: u32, trouble: &Trouble, was_registered: bool, age: u64, since: u64, attempts: u32) -> Verdict {
    let renew = |after: u32| ("replace", Some(after));
    let again = |attempts: u32| renew(attempts.checked_sub(2).map_or(0, |more| 10_u32.saturating_mul(1 << more.min(5)).min(300)));
    let when_over = |limit: u64| match limit.saturating_sub(since) {
        0 => again(attempts),
        left => ("look-again", u32::try_from(left).ok()),
    };
    let failed_badly = if was_registered { attempts.max(2) } else { attempts };
    let (action, after) = match (trouble.cause, trouble.situation) {
        (Cause::DeprecatedVersion, _) => ("quarantine", None),
        (Cause::Evicted | Cause::NodeLost | Cause::PodDeleted, _) => renew(0),
        (Cause::Quota | Cause::Unschedulable | Cause::BadCredentials, _) => ("look-again", Some(10)),
        (Cause::Completed, Situation::Ended) => renew(0),
        (Cause::UnregisteredExit, Situation::Ended) => again(attempts),
        (_, Situation::Ended) if was_registered && age >= 120 => renew(0),
        (_, Situation::Ended) => again(failed_badly),
        (_, Situation::PodMissing) => again(attempts),
        (_, Situation::NeverRegistered | Situation::Offline) => when_over(600),
        (_, Situation::NotStarting) => when_over(1_800),
        (_, Situation::Unregistered) => when_over(60),
    };
    Verdict { index, action: action.to_owned(), after, reason: String::new(), attributes: Vec::new() }
}

/// One runner for each job.
#[must_use]
pub(crate) fn one_per_job(jobs: impl Iterator<Item = u64>) -> Vec<Reservation> {
    jobs.map(|job| Reservation {
        id: format!("job-{job}"),
        jobs: vec![job],
        replicas: 1,
        effective: 0,
        expires: 600,
        reason: String::new(),
        attributes: Vec::new(),
    })
    .collect()
}
