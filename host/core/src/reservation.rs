//! Reservations between two questions to the capacity policy: what it is told, and what its answer comes to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::ledger::{Job as LedgerJob, State};
use crate::policy::{Attributes, CapacityPlan, Job, Reservation};
use crate::reads::{Fact, Reads};
use crate::scale_down::since;

/// A reservation of an earlier answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    /// When it was made; its times count from then.
    pub made: Timestamp,
    /// The reservation as the capacity policy answered it.
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

/// The attribute of a capacity request that says how long a reservation for a queued job lasts, in seconds.
pub const LIFE: &str = "reservation-seconds";

/// How many jobs a capacity policy is told of in any case.
const TOLD: usize = 1_000;

/// The jobs of a capacity request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Told {
    /// Each as the contract has it, by id.
    pub jobs: Vec<Job>,
    /// How many more are open.
    pub omitted: u32,
}

impl Told {
    /// The attributes of the request that say how many are left out; none where all are there.
    #[must_use]
    pub fn attributes(&self) -> Attributes {
        let omitted = (self.omitted > 0).then(|| ("omitted-jobs".to_owned(), self.omitted.to_string()));
        omitted.into_iter().collect()
    }
}

/// What a capacity policy is told of the open jobs of a pool with this maximum, for a policy that reads this.
///
/// All of them, unless there are more than a thousand and more than twice the maximum: then those that run, and of the others those that wait
/// longest. The rest can't change the number, and a policy is asked at every pass: with 20,000 jobs a question costs 60 ms of processor time.
#[must_use]
pub fn told(jobs: &BTreeMap<u64, Arc<LedgerJob>>, max: u32, reads: &Reads, now: Timestamp) -> Told {
    let most = TOLD.max((max as usize).saturating_mul(2));
    let rank = |(id, job): (&u64, &Arc<LedgerJob>)| (job.state == State::Queued, job.queued, *id);
    let last = (jobs.len() > most).then(|| {
        let mut ranks: Vec<_> = jobs.iter().map(rank).collect();
        *ranks.select_nth_unstable(most - 1).1
    });
    let told = jobs.iter().filter(|entry| last.is_none_or(|last| rank(*entry) <= last));
    let told: Vec<Job> = told.map(|(id, open)| job(*id, open, reads, now)).collect();
    let omitted = u32::try_from(jobs.len().saturating_sub(told.len())).unwrap_or(u32::MAX);
    Told { jobs: told, omitted }
}

fn job(id: u64, job: &LedgerJob, reads: &Reads, now: Timestamp) -> Job {
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
    use crate::ledger::About;

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

    fn open(state: State, queued: i64) -> LedgerJob {
        LedgerJob {
            state,
            since: at(queued),
            queued: at(queued),
            expires: at(9_999),
            about: Arc::new(About { repository: "acme/app".into(), workflow: "build".into(), labels: [].into(), attempt: 1 }),
            runner: None,
            origin: Arc::default(),
        }
    }

    #[test]
    fn of_many_jobs_those_are_told_that_run_or_wait_longest() {
        // The higher the id, the longer it waits; two young ones run.
        let queued = (0..3_000_u32).map(|id| (u64::from(id), open(State::Queued, -i64::from(id))));
        let running = [5, 6].map(|id| (id, open(State::InProgress, 0)));
        let jobs: BTreeMap<u64, Arc<LedgerJob>> = queued.chain(running).map(|(id, job)| (id, Arc::new(job))).collect();
        let ids = |told: &Told| told.jobs.iter().map(|job| job.id).collect::<Vec<_>>();
        let told = |max| super::told(&jobs, max, &Reads::default(), at(0));
        let few = told(10);
        assert_eq!(ids(&few), [5, 6].into_iter().chain(2_002..3_000).collect::<Vec<_>>());
        assert_eq!((few.omitted, few.attributes()), (2_000, vec![("omitted-jobs".to_owned(), "2000".to_owned())]));
        assert_eq!((told(1_000).jobs.len(), told(1_000).omitted), (2_000, 1_000));
        let all = told(1_500);
        assert_eq!((ids(&all), all.attributes()), ((0..3_000).collect(), Vec::new()));
    }
}
