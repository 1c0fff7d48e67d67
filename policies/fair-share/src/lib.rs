//! How much capacity to hold: one runner for every job, as long as its repository (or owner) is within its share of the pool.
//!
//! Beyond its share a repository borrows what the others leave, up to the maximum less some runners that stay free for those within
//! theirs. Whoever holds the fewest is next, and within a repository the job that has waited longest. Jobs that run keep their runners.

use std::collections::{BTreeMap, BTreeSet};

use pacer_policy_sdk::capacity::{Job, Lives, Plan, Request, one_per_job};
use pacer_policy_sdk::lifecycle::{Problem, out_of_range};
use pacer_policy_sdk::{Capacity, Policy, log, order};
use serde::Deserialize;

/// Most runners that a share may be.
const MOST: u32 = 10_000;

/// What can be set.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    /// Among whom it is shared: `repository` or `owner`.
    by: By,
    /// Runners that everybody gets without borrowing. 0 to 10000.
    share: u32,
    /// Other shares, by `owner/name` of the repository, or by owner.
    shares: BTreeMap<String, u32>,
    /// Runners of the maximum that nobody may borrow. 0 to 10000.
    keep_free: u32,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum By {
    Repository,
    Owner,
}

impl Default for Settings {
    fn default() -> Self {
        Self { by: By::Repository, share: 5, shares: BTreeMap::new(), keep_free: 1 }
    }
}

/// The policy.
pub struct FairShare;

impl Policy for FairShare {
    type Settings = Settings;

    fn check(settings: &Settings) -> Vec<Problem> {
        let mut problems = out_of_range(&[("share", settings.share, 0, MOST), ("keepFree", settings.keep_free, 0, MOST)]);
        for (party, share) in &settings.shares {
            problems.extend(out_of_range(&[(format!("shares.{party}").as_str(), *share, 0, MOST)]));
        }
        problems
    }

    fn settings_schema() -> Option<&'static str> {
        Some(include_str!("settings.schema.json"))
    }
}

impl Capacity for FairShare {
    fn plan(request: &Request, settings: &Settings) -> Result<Plan, String> {
        let chosen = settings.choose(request);
        let left_waiting = request.jobs.len() - chosen.len();
        if left_waiting > 0 {
            log::debug(&format!("{left_waiting} jobs wait for others beyond their share"));
        }
        let jobs = chosen.into_iter().filter_map(|index| request.jobs.get(index)).cloned().collect();
        Ok(one_per_job(&Request { jobs, ..request.clone() }, &Lives::default()))
    }
}

/// Who shares the pool.
struct Party<'a> {
    name: &'a str,
    share: u32,
    /// Runners of jobs that run or were chosen.
    holds: u32,
    /// Indices of the jobs that wait, the one that waits longest last.
    waiting: Vec<usize>,
}

impl Settings {
    /// Indices of the jobs that get a runner.
    fn choose(&self, request: &Request) -> BTreeSet<usize> {
        let mut chosen = BTreeSet::new();
        let mut parties = self.parties(request, &mut chosen);
        let mut room = self.room(request, chosen.len());
        let borrows = |party: &Party| party.holds >= party.share;
        let mut turns: BTreeSet<(bool, u32, usize)> =
            parties.iter().enumerate().map(|(index, party)| (borrows(party), party.holds, index)).collect();
        while let Some((borrowed, _, index)) = turns.pop_first() {
            let Some(party) = parties.get_mut(index) else { continue };
            let free = if borrowed { room.saturating_sub(self.keep_free) } else { room };
            if free == 0 {
                // Nobody after this one may take what it may not.
                break;
            }
            let Some(job) = party.waiting.pop() else { continue };
            chosen.insert(job);
            room -= 1;
            party.holds = party.holds.saturating_add(1);
            turns.insert((borrows(party), party.holds, index));
        }
        chosen
    }

    /// Everybody who has jobs, by name; those that run are chosen at once.
    fn parties<'a>(&self, request: &'a Request, chosen: &mut BTreeSet<usize>) -> Vec<Party<'a>> {
        let mut parties: Vec<Party> = Vec::new();
        let by_party = order::by_key(&request.jobs, |job| (self.party(job), job.queued, std::cmp::Reverse(job.id)));
        for index in by_party {
            let index = index as usize;
            let Some(job) = request.jobs.get(index) else { continue };
            let name = self.party(job);
            if parties.last().is_none_or(|party| party.name != name) {
                let share = self.shares.get(name).copied().unwrap_or(self.share);
                parties.push(Party { name, share, holds: 0, waiting: Vec::new() });
            }
            let Some(party) = parties.last_mut() else { continue };
            if job.state == "in-progress" {
                party.holds = party.holds.saturating_add(1);
                chosen.insert(index);
            } else {
                party.waiting.push(index);
            }
        }
        parties
    }

    fn party<'a>(&self, job: &'a Job) -> &'a str {
        match self.by {
            By::Repository => &job.repository,
            By::Owner => job.repository.split('/').next().unwrap_or_default(),
        }
    }

    /// Runners of the maximum that are left beside those of jobs that run and those that others reserved for no job in particular.
    fn room(&self, request: &Request, running: usize) -> u32 {
        let standing = request.reservations.iter().filter(|held| held.jobs.is_empty() && held.expires > 0);
        let taken = standing.fold(u32::try_from(running).unwrap_or(u32::MAX), |sum, held| sum.saturating_add(held.replicas));
        request.pool.max_replicas.unwrap_or(u32::MAX).saturating_sub(taken)
    }
}

pacer_policy_sdk::export!(FairShare: capacity);

#[cfg(test)]
mod tests {
    use pacer_policy_sdk::cases;
    use pacer_policy_sdk::scenario::Scenario;

    use super::*;

    #[test]
    fn all_cases() {
        assert_eq!(cases::capacity::<FairShare>(concat!(env!("CARGO_MANIFEST_DIR"), "/cases")), Ok(5));
    }

    #[test]
    fn a_late_and_small_one_is_served_at_once() {
        let settings = r#"{"share":4,"keepFree":2}"#;
        let of = |scenario: Scenario, repository: &str, ids: std::ops::Range<u64>| {
            ids.fold(scenario, |scenario, id| {
                scenario.job(id, |job| {
                    job.repository = repository.to_owned();
                    job.queued = 100;
                })
            })
        };
        let greedy = of(Scenario::pool("ci").with_pool(|pool| pool.max_replicas = Some(20)), "acme/monorepo", 0..100);
        let alone = greedy.clone().settings(settings).plan::<FairShare>().unwrap();
        assert_eq!(alone.reservations.len(), 18, "borrows all but what is kept free");
        let mut request = of(greedy, "acme/site", 100..103).settings(settings).capacity();
        request.reservations = alone.reservations;
        let together = pacer_policy_sdk::capacity::answer::<FairShare>(&request).unwrap();
        let held = |ids: std::ops::Range<u64>| {
            together.reservations.iter().filter(|held| held.jobs.iter().any(|job| ids.contains(job))).count()
        };
        assert_eq!((held(0..100), held(100..103)), (15, 3), "what was lent and not used yet is given back");
    }
}
