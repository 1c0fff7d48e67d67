//! Reservations between two questions to the capacity policy: what it is told, and what its answer comes to.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use crate::ledger::{Job as LedgerJob, State};
use crate::policy::{CapacityPlan, Job, Reservation};
use crate::reads::{Fact, Reads};
use crate::scale_down::since;

/// A reservation of an earlier answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    /// When it was made; its times count from then.
    pub made: Timestamp,
    /// The reservation.
    pub reservation: Reservation,
}

impl Held {
    /// Those of an answer.
    #[must_use]
    pub fn all(plan: &CapacityPlan, made: Timestamp) -> Vec<Self> {
        plan.reservations.iter().map(|reservation| Self { made, reservation: reservation.clone() }).collect()
    }

    /// The reservation as it stands now; none when it has expired.
    #[must_use]
    pub fn at(&self, now: Timestamp) -> Option<Reservation> {
        let age = since(self.made, now);
        let expires = self.reservation.expires.checked_sub(age).filter(|left| *left > 0)?;
        let effective = self.reservation.effective.saturating_sub_unsigned(age);
        Some(Reservation { effective, expires, ..self.reservation.clone() })
    }
}

/// Whether an answer holds other reservations than the one before.
#[must_use]
pub fn differs(now: &[Reservation], before: &[Held]) -> bool {
    let key = |reservation: &Reservation| (reservation.id.clone(), reservation.replicas);
    let ids = |list: &mut dyn Iterator<Item = &Reservation>| list.map(key).collect::<BTreeSet<_>>();
    ids(&mut now.iter()) != ids(&mut before.iter().map(|held| &held.reservation))
}

/// What an answer of the capacity policy asks for now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InForce {
    /// Runners that are to exist now.
    pub replicas: u32,
    /// Jobs they are for.
    pub jobs: u32,
    /// When the answer changes by itself, or is to be asked for again.
    pub next: Option<Timestamp>,
}

impl InForce {
    /// Of an answer that was given now.
    #[must_use]
    pub fn of(plan: &CapacityPlan, now: Timestamp) -> Self {
        let in_force = plan.reservations.iter().filter(|reservation| reservation.effective <= 0 && reservation.expires > 0);
        let (replicas, jobs) = in_force.fold((0_u32, 0_u32), |(replicas, jobs), reservation| {
            let count = u32::try_from(reservation.jobs.len()).unwrap_or(u32::MAX);
            (replicas.saturating_add(reservation.replicas), jobs.saturating_add(count))
        });
        let begins =
            plan.reservations.iter().filter_map(|reservation| u32::try_from(reservation.effective).ok()).filter(|wait| *wait > 0);
        let ends = plan.reservations.iter().map(|reservation| reservation.expires);
        let next = begins.chain(ends).chain(plan.look_again).min();
        let next = next.and_then(|wait| now.checked_add(SignedDuration::from_secs(i64::from(wait))).ok());
        Self { replicas, jobs, next }
    }
}

/// A job as the contract has it, for a policy that reads this.
#[must_use]
pub fn job(id: u64, job: &LedgerJob, reads: &Reads, now: Timestamp) -> Job {
    Job {
        id,
        state: match job.state {
            State::Queued => "queued",
            State::InProgress => "in-progress",
            State::Completed => "completed",
        }
        .to_owned(),
        queued: since(job.queued, now),
        started: (job.state == State::InProgress).then(|| since(job.since, now)),
        repository: job.about.repository.to_string(),
        workflow: job.about.workflow.to_string(),
        labels: job.about.labels.iter().map(ToString::to_string).collect(),
        attempt: job.about.attempt,
        runner: job.runner.as_ref().map(ToString::to_string),
        attributes: if reads.has(Fact::Job) { job.origin.attributes() } else { Vec::new() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + second).unwrap()
    }

    fn reservation(id: &str, replicas: u32, effective: i32, expires: u32) -> Reservation {
        Reservation { id: id.to_owned(), replicas, jobs: vec![7], effective, expires, ..Reservation::default() }
    }

    #[test]
    fn reservation_ages_until_it_expires() {
        let held = Held { made: at(0), reservation: reservation("a", 1, 20, 60) };
        for (second, expected) in [(0, Some((20, 60))), (15, Some((5, 45))), (40, Some((-20, 20))), (60, None), (90, None)] {
            let found = held.at(at(second)).map(|reservation| (reservation.effective, reservation.expires));
            assert_eq!(found, expected, "after {second} s");
        }
    }

    #[test]
    fn answer_counts_what_has_begun_and_says_when_it_changes() {
        let plan =
            |reservations: Vec<Reservation>, look_again| CapacityPlan { reservations, look_again, ..CapacityPlan::default() };
        let of = |plan: &CapacityPlan| InForce::of(plan, at(0));
        let both = plan(vec![reservation("a", 2, 0, 60), reservation("b", 3, 30, 90)], None);
        assert_eq!(of(&both), InForce { replicas: 2, jobs: 1, next: Some(at(30)) });
        assert_eq!(of(&plan(vec![reservation("a", 2, -5, 60)], Some(10))).next, Some(at(10)));
        assert_eq!(of(&plan(Vec::new(), None)), InForce::default());
    }

    #[test]
    fn answers_differ_by_name_and_number_and_not_by_time() {
        let before =
            Held::all(&CapacityPlan { reservations: vec![reservation("a", 2, 0, 60)], ..CapacityPlan::default() }, at(0));
        for (now, expected) in [
            (vec![reservation("a", 2, 0, 30)], false),
            (vec![reservation("a", 3, 0, 60)], true),
            (vec![reservation("b", 2, 0, 60)], true),
            (Vec::new(), true),
        ] {
            assert_eq!(differs(&now, &before), expected, "{now:?}");
        }
    }
}
