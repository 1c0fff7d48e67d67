//! How much capacity to hold: one runner for every job, but no more than the cluster has room for.
//!
//! What is free is nowhere to be read, and need not be: pods that no node takes, and pods that a quota forbids, say that there is no more.
//! They may wait for a while, because an autoscaler of nodes works by them. After that the number is held at those that have a place, and at
//! a few more that keep waiting: when one of these finds a place there is room again.

use pacer_policy_sdk::capacity::{Lives, Plan, Request, one_per_job};
use pacer_policy_sdk::lifecycle::{Problem, out_of_range};
use pacer_policy_sdk::types::{Counts, NoRoom, duration};
use pacer_policy_sdk::{Capacity, Policy, log};
use serde::Deserialize;

/// What can be set.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    /// How long runners may wait for room before that counts. 0 to 86400.
    patience_seconds: u32,
    /// How many keep waiting. 1 to 1000.
    probes: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { patience_seconds: 180, probes: 1 }
    }
}

/// The policy.
pub struct FitsTheCluster;

impl Policy for FitsTheCluster {
    type Settings = Settings;

    fn check(settings: &Settings) -> Vec<Problem> {
        out_of_range(&[("patienceSeconds", settings.patience_seconds, 0, 86_400), ("probes", settings.probes, 1, 1_000)])
    }

    fn settings_schema() -> Option<&'static str> {
        Some(include_str!("settings.schema.json"))
    }
}

impl Capacity for FitsTheCluster {
    fn plan(request: &Request, settings: &Settings) -> Result<Plan, String> {
        let mut plan = one_per_job(request, &Lives::default());
        let Some(no_room) = NoRoom::of(&request.pool) else { return Ok(plan) };
        match settings.patience_seconds.saturating_sub(no_room.seconds) {
            0 => {
                let placed = placed(&request.pool.counts, no_room);
                plan.ceiling = Some(placed.saturating_add(settings.probes));
                let waited = duration(no_room.seconds);
                log::debug(&format!("{} runners found no room for {waited}; {placed} have a place", no_room.runners));
            }
            left => plan.look_again = Some(plan.look_again.map_or(left, |after| after.min(left))),
        }
        Ok(plan)
    }
}

/// Runners that have a place, or may yet get one without waiting.
fn placed(counts: &Counts, no_room: NoRoom) -> u32 {
    let all = [counts.pending, counts.starting, counts.idle, counts.busy].into_iter().fold(0, u32::saturating_add);
    all.saturating_sub(no_room.runners)
}

pacer_policy_sdk::export!(FitsTheCluster: capacity);

#[cfg(test)]
mod tests {
    use pacer_policy_sdk::cases;
    use pacer_policy_sdk::scenario::Scenario;

    use super::*;

    #[test]
    fn all_cases() {
        assert_eq!(cases::capacity::<FitsTheCluster>(concat!(env!("CARGO_MANIFEST_DIR"), "/cases")), Ok(4));
    }

    /// A cluster with room for `room` runners, a demand for 30, and a decision a minute.
    fn simulate(room: impl Fn(u32) -> u32, minutes: u32) -> Vec<u32> {
        let (mut live, mut waiting_since) = (0_u32, None);
        let mut seen = Vec::new();
        for minute in 0..minutes {
            let placed = live.min(room(minute));
            let waiting = live - placed;
            waiting_since = if waiting == 0 { None } else { waiting_since.or(Some(minute)) };
            let scenario = (0..30).fold(Scenario::pool("ci"), |scenario, id| scenario.job(id, |job| job.queued = 60 * minute));
            let scenario = scenario.with_pool(|pool| {
                pool.max_replicas = Some(30);
                pool.counts = Counts { pending: waiting, busy: placed, ..Counts::default() };
                if let Some(since) = waiting_since {
                    pool.attributes.push(("unschedulable".to_owned(), waiting.to_string()));
                    pool.attributes.push(("no-room-seconds".to_owned(), (60 * (minute - since)).to_string()));
                }
            });
            let plan = scenario.plan::<FitsTheCluster>().unwrap();
            let wanted: u32 = plan.reservations.iter().map(|held| held.replicas).sum();
            live = wanted.min(plan.ceiling.unwrap_or(u32::MAX));
            seen.push(live);
        }
        seen
    }

    #[test]
    fn the_number_settles_at_what_fits_and_follows_new_room() {
        let full = simulate(|_| 12, 20);
        assert_eq!(full[..3], [30, 30, 30], "an autoscaler of nodes is given its time");
        assert!(full[5..].iter().all(|live| *live == 13), "{full:?}");
        let grown = simulate(|minute| if minute < 10 { 12 } else { 40 }, 20);
        assert!(grown[6..10].iter().all(|live| *live == 13) && grown[12..].iter().all(|live| *live == 30), "{grown:?}");
    }
}
