//! What the operator's gate refuses or cuts, for native tests: there an answer that breaks the contract is a mistake of the policy.

use crate::capacity::Plan;
use crate::{recover, restart, scale_down};

/// The operator cuts longer reasons.
const MAX_REASON_BYTES: usize = 256;

pub(crate) fn choices(request: &scale_down::Request, choices: &[scale_down::Choice]) -> Result<(), String> {
    if choices.len() > request.surplus as usize {
        return Err(format!("{} choices for a surplus of {}", choices.len(), request.surplus));
    }
    distinct("candidate", request.candidates.len(), choices.iter().map(|choice| choice.index))?;
    choices.iter().try_for_each(|choice| one_line(&choice.reason))
}

pub(crate) fn verdicts(request: &restart::Request, verdicts: &[restart::Verdict]) -> Result<(), String> {
    distinct("subject", request.subjects.len(), verdicts.iter().map(|verdict| verdict.index))?;
    verdicts.iter().try_for_each(|verdict| {
        if !["keep", "look-again", "recreate", "replace", "quarantine"].contains(&verdict.action.as_str()) {
            return Err(format!("`{}` is no action", verdict.action));
        }
        one_line(&verdict.reason)
    })
}

pub(crate) fn recoveries(request: &recover::Request, verdicts: &[recover::Verdict]) -> Result<(), String> {
    distinct("job", request.jobs.len(), verdicts.iter().map(|verdict| verdict.index))?;
    verdicts.iter().try_for_each(|verdict| {
        if !["rerun", "leave"].contains(&verdict.action.as_str()) {
            return Err(format!("`{}` is no action", verdict.action));
        }
        one_line(&verdict.reason)
    })
}

pub(crate) fn plan(plan: &Plan) -> Result<(), String> {
    for (position, reservation) in plan.reservations.iter().enumerate() {
        let id = &reservation.id;
        if plan.reservations.iter().take(position).any(|earlier| earlier.id == *id) {
            return Err(format!("reservation `{id}` is there twice"));
        }
        if reservation.expires == 0 || i64::from(reservation.effective) >= i64::from(reservation.expires) {
            return Err(format!("reservation `{id}` is over before it starts"));
        }
        one_line(&reservation.reason)?;
    }
    Ok(())
}

fn distinct(what: &str, count: usize, indices: impl Iterator<Item = u32>) -> Result<(), String> {
    let mut sorted: Vec<_> = indices.collect();
    sorted.sort_unstable();
    if let Some((index, _)) = sorted.iter().zip(sorted.iter().skip(1)).find(|(one, next)| one == next) {
        return Err(format!("{what} {index} is there twice"));
    }
    match sorted.last() {
        Some(index) if *index as usize >= count => Err(format!("there is no {what} {index}, only {count} of them")),
        _ => Ok(()),
    }
}

fn one_line(reason: &str) -> Result<(), String> {
    if reason.len() > MAX_REASON_BYTES {
        return Err(format!("a reason of {} bytes, at most {MAX_REASON_BYTES} are shown: {reason}", reason.len()));
    }
    if reason.contains(char::is_control) {
        return Err(format!("a reason must be one line: {reason:?}"));
    }
    Ok(())
}
