//! How much capacity to hold: one runner for every job, from the moment it is known until it is done.
//!
//! The reservation lives as long as a job may wait or run, whatever `duration` a trigger names: a guess that is too short takes the runner
//! of a job that still waits. What ends it is the job's end, or a cap for the case that nobody was told of that.

use std::collections::BTreeSet;

use pacer_policy_sdk::capacity::{Job, Plan, Request, Reservation};
use pacer_policy_sdk::lifecycle::{Problem, out_of_range};
use pacer_policy_sdk::types::duration;
use pacer_policy_sdk::{Capacity, Policy};
use serde::Deserialize;

/// Longest life of a reservation: a week.
const LONGEST: u32 = 604_800;

/// What can be set.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    /// A job that waits for longer is given up. 60 to 604800; GitHub gives up after a day.
    queued_cap_seconds: u32,
    /// A job that runs for longer is given up. 60 to 604800; GitHub stops jobs after five days.
    running_cap_seconds: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { queued_cap_seconds: 86_400, running_cap_seconds: 432_000 }
    }
}

/// The policy.
pub struct StickyUntilDone;

impl Policy for StickyUntilDone {
    type Settings = Settings;

    fn check(settings: &Settings) -> Vec<Problem> {
        out_of_range(&[
            ("queuedCapSeconds", settings.queued_cap_seconds, 60, LONGEST),
            ("runningCapSeconds", settings.running_cap_seconds, 60, LONGEST),
        ])
    }

    fn settings_schema() -> Option<&'static str> {
        Some(include_str!("settings.schema.json"))
    }
}

impl Capacity for StickyUntilDone {
    fn plan(request: &Request, settings: &Settings) -> Result<Plan, String> {
        // What others reserved for no job in particular is theirs to end.
        let others = request.reservations.iter().filter(|held| held.jobs.is_empty() && held.expires > 0);
        let mut reservations: Vec<Reservation> = others.cloned().collect();
        let mut seen = BTreeSet::new();
        reservations.extend(request.jobs.iter().filter(|job| seen.insert(job.id)).filter_map(|job| hold(job, settings)));
        let look_again = reservations.iter().map(|held| held.expires).min();
        Ok(Plan { reservations, look_again, ..Plan::default() })
    }
}

/// None for a job that is done, or long past its cap.
fn hold(job: &Job, settings: &Settings) -> Option<Reservation> {
    let (since, cap, what) = match job.state.as_str() {
        "completed" => return None,
        "in-progress" => (job.started.unwrap_or(0), settings.running_cap_seconds, "runs"),
        _ => (job.queued, settings.queued_cap_seconds, "waits"),
    };
    let left = cap.checked_sub(since).filter(|left| *left > 0)?;
    Some(Reservation {
        id: format!("job-{}", job.id),
        jobs: vec![job.id],
        replicas: 1,
        effective: i32::try_from(job.queued).map_or(i32::MIN, |queued| -queued),
        expires: left,
        reason: format!("{what} for {}, given up after {}", duration(since), duration(cap)),
        attributes: Vec::new(),
    })
}

pacer_policy_sdk::export!(StickyUntilDone: capacity);

#[cfg(test)]
mod tests {
    use pacer_policy_sdk::cases;

    use super::*;

    #[test]
    fn all_cases() {
        assert_eq!(cases::capacity::<StickyUntilDone>(concat!(env!("CARGO_MANIFEST_DIR"), "/cases")), Ok(2));
    }
}
