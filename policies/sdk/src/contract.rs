//! Checks of answers, for native tests: as the operator checks them, and more strictly where it only cuts a text.
//!
//! Each function takes an answer and returns it as the operator would take it, with its numbers cut to their [`limits`](crate::limits). An answer
//! that the operator refuses is an error here. So is a text that the operator would shorten, since its author should know.

use std::collections::HashSet;

use crate::capacity::{self, Plan, Reservation};
use crate::limits::{
    ATTRIBUTES, EXPIRES, KEY_BYTES, LOOK_AGAIN, LOOK_AGAIN_DEFAULT, REASON_BYTES, REPLICAS_MAX, RERUN_WAIT_MAX,
    RESERVATION_ID_BYTES, RESTART_LOOK_AGAIN, RESTART_WAIT_MAX, SPARE_RESERVATIONS,
};
use crate::types::Attribute;
use crate::{recover, restart, scale_down};

/// Checks which runners go.
///
/// # Errors
/// The rule that the answer breaks.
pub fn choices(request: &scale_down::Request, choices: Vec<scale_down::Choice>) -> Result<Vec<scale_down::Choice>, String> {
    if choices.len() > request.surplus as usize {
        return Err(format!("{} choices for a surplus of {}", choices.len(), request.surplus));
    }
    distinct("candidate", request.candidates.len(), choices.iter().map(|choice| choice.index))?;
    choices.iter().try_for_each(|choice| texts(&choice.reason, &choice.attributes))?;
    Ok(choices)
}

/// Checks what is done about runners.
///
/// # Errors
/// The rule that the answer breaks.
pub fn verdicts(request: &restart::Request, mut verdicts: Vec<restart::Verdict>) -> Result<Vec<restart::Verdict>, String> {
    distinct("subject", request.subjects.len(), verdicts.iter().map(|verdict| verdict.index))?;
    for verdict in &mut verdicts {
        verdict.after = match verdict.action.as_str() {
            "look-again" => Some(verdict.after.unwrap_or(LOOK_AGAIN_DEFAULT).clamp(RESTART_LOOK_AGAIN.0, RESTART_LOOK_AGAIN.1)),
            "recreate" | "replace" => verdict.after.map(|after| after.min(RESTART_WAIT_MAX)),
            "keep" | "quarantine" => None,
            other => return Err(format!("`{other}` is not an action")),
        };
        texts(&verdict.reason, &verdict.attributes)?;
    }
    Ok(verdicts)
}

/// Checks which jobs run again.
///
/// # Errors
/// The rule that the answer breaks.
pub fn recoveries(request: &recover::Request, mut verdicts: Vec<recover::Verdict>) -> Result<Vec<recover::Verdict>, String> {
    distinct("job", request.jobs.len(), verdicts.iter().map(|verdict| verdict.index))?;
    for verdict in &mut verdicts {
        verdict.after = match verdict.action.as_str() {
            "rerun" => verdict.after.map(|after| after.min(RERUN_WAIT_MAX)),
            "leave" => None,
            other => return Err(format!("`{other}` is not an action")),
        };
        texts(&verdict.reason, &verdict.attributes)?;
    }
    Ok(verdicts)
}

/// Checks a plan. A reservation that is over before it begins is an error: the operator makes it last a second, or takes it and it holds nothing.
///
/// # Errors
/// The rule that the plan breaks.
pub fn plan(request: &capacity::Request, plan: Plan) -> Result<Plan, String> {
    let most = request.jobs.len() + request.reservations.len() + SPARE_RESERVATIONS;
    if plan.reservations.len() > most {
        return Err(format!(
            "{} reservations, at most {most} are allowed: one for each job and reservation of the request, and {SPARE_RESERVATIONS} more",
            plan.reservations.len()
        ));
    }
    // A reservation in force may outlive its jobs for a moment, so the jobs it names stay nameable.
    let carried = request.reservations.iter().flat_map(|reservation| &reservation.jobs);
    let known: HashSet<u64> = request.jobs.iter().map(|job| &job.id).chain(carried).copied().collect();
    let (mut ids, mut jobs) = (HashSet::new(), HashSet::new());
    for Reservation { id, jobs: of, effective, expires, reason, attributes, .. } in &plan.reservations {
        if id.is_empty() || id.len() > RESERVATION_ID_BYTES || id.contains(is_no_text) {
            return Err(format!(
                "reservation id {id:?} must have 1 to {RESERVATION_ID_BYTES} bytes, without control characters and invisible ones"
            ));
        }
        if !ids.insert(id) {
            return Err(format!("reservation `{id}` appears twice"));
        }
        for job in of {
            if !known.contains(job) {
                return Err(format!("reservation `{id}` is for job {job}, which the request does not contain"));
            }
            if !jobs.insert(job) {
                return Err(format!("job {job} appears twice"));
            }
        }
        if *expires == 0 || i64::from(*effective) >= i64::from(*expires) {
            return Err(format!("reservation `{id}` is over before it starts"));
        }
        texts(reason, attributes)?;
    }
    own_attributes(&plan.attributes)?;
    let max = request.pool.max_replicas.unwrap_or(REPLICAS_MAX).min(REPLICAS_MAX);
    let min = request.pool.min_replicas.unwrap_or(0).min(max);
    Ok(Plan {
        reservations: plan.reservations.into_iter().map(|reservation| cut(reservation, max)).collect(),
        ceiling: plan.ceiling.map(|ceiling| ceiling.clamp(min, max)),
        look_again: plan.look_again.map(|after| after.clamp(LOOK_AGAIN.0, LOOK_AGAIN.1)),
        ..plan
    })
}

fn cut(reservation: Reservation, max: u32) -> Reservation {
    let expires = reservation.expires.clamp(EXPIRES.0, EXPIRES.1);
    let seconds = |seconds: u32| i32::try_from(seconds).unwrap_or(i32::MAX);
    let effective = reservation.effective.clamp(-seconds(EXPIRES.1), seconds(expires));
    Reservation { replicas: reservation.replicas.min(max), effective, expires, ..reservation }
}

fn distinct(what: &str, count: usize, indices: impl Iterator<Item = u32>) -> Result<(), String> {
    let mut sorted: Vec<_> = indices.collect();
    sorted.sort_unstable();
    if let Some((index, _)) = sorted.iter().zip(sorted.iter().skip(1)).find(|(one, next)| one == next) {
        return Err(format!("{what} {index} appears twice"));
    }
    match sorted.last() {
        Some(index) if *index as usize >= count => Err(format!("there is no {what} {index}, only {count} of them")),
        _ => Ok(()),
    }
}

fn texts(reason: &str, attributes: &[Attribute]) -> Result<(), String> {
    one_line("a reason", reason, REASON_BYTES)?;
    own_attributes(attributes)
}

fn own_attributes(attributes: &[Attribute]) -> Result<(), String> {
    if attributes.len() > ATTRIBUTES {
        return Err(format!("{} attributes, at most {ATTRIBUTES} are kept", attributes.len()));
    }
    attributes.iter().try_for_each(|(key, value)| {
        if key.is_empty() {
            return Err(format!("an attribute without a key: {value:?}"));
        }
        one_line("the key of an attribute", key, KEY_BYTES)?;
        one_line("the value of an attribute", value, REASON_BYTES)
    })
}

fn one_line(what: &str, text: &str, most: usize) -> Result<(), String> {
    if text.len() > most {
        return Err(format!("{what} of {} bytes, at most {most} are shown: {text}", text.len()));
    }
    if text.contains(is_no_text) {
        return Err(format!("{what} must be one line without control characters and invisible ones: {text:?}"));
    }
    Ok(())
}

/// Control characters, and invisible ones that make a line read differently from what it says.
fn is_no_text(char: char) -> bool {
    char.is_control() || matches!(char, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}
