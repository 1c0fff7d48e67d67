//! What a status tells of jobs that wait and that only GitHub's listings tell of.
//!
//! No ledger has them, so that people learn of them from the status of their autoscaler. It tells only of those that wait for long, because each
//! change of it is a write: the jobs of a burst that start as usual are never told.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::ledger::Job;

/// How long a job waits before a status tells of it: longer than most runners take to start.
pub const OVERDUE: SignedDuration = SignedDuration::from_secs(30);

/// Jobs that a status tells of at most, at some 300 bytes each.
pub const TOLD: usize = 20;

/// A job that polling alone tells of, after its ID.
pub type Polled = (u64, Arc<Job>);

/// What a status tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told<'a> {
    /// Jobs that wait for long, [`TOLD`] at most.
    pub jobs: &'a [Polled],
    /// When one more does, although nothing happens.
    pub next: Option<Timestamp>,
}

/// What a status tells of jobs in the order of [`Demand::polled`](super::Demand::polled).
#[must_use]
pub fn told(polled: &[Polled], now: Timestamp) -> Told<'_> {
    let overdue = |job: &Job| job.queued.checked_add(OVERDUE).unwrap_or(Timestamp::MAX);
    let (room, _) = polled.split_at(polled.len().min(TOLD));
    let (jobs, young) = room.split_at(room.partition_point(|(_, job)| overdue(job) <= now));
    Told { jobs, next: young.first().map(|(_, job)| overdue(job)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demand::tests::{at, event};
    use crate::demand::{Fleet, Listing, assess};
    use crate::ledger::{JobEvent, LIMIT, Ledger, State, Terms};

    fn listing(jobs: impl IntoIterator<Item = JobEvent>) -> Listing {
        Listing { repository: "acme/app".into(), started: at(90), covers: None, jobs: jobs.into_iter().collect() }
    }

    fn queued(id: u64, second: i64) -> JobEvent {
        JobEvent { queued_at: at(second), ..event(id, State::Queued, second, None) }
    }

    fn polled_at(ledger: &Ledger, jobs: impl IntoIterator<Item = JobEvent>, second: i64) -> Vec<Polled> {
        let life = SignedDuration::from_secs(600);
        assess(ledger, &[listing(jobs)], &Fleet::default(), |_| None, life, at(second)).polled
    }

    #[test]
    fn jobs_that_wait_are_polled_when_no_ledger_has_them() {
        let mut ledger = Ledger::default();
        let terms = Terms { queued: std::time::Duration::from_secs(600), limit: LIMIT };
        ledger.apply(&queued(2, 0), &terms, at(0));
        ledger.apply(&event(5, State::Completed, 9, None), &terms, at(9));
        let jobs = [queued(1, 40), queued(2, 0), event(3, State::InProgress, 50, Some("web-a")), queued(4, 20), queued(5, 0)];
        let found = polled_at(&ledger, jobs, 90);
        assert_eq!(found.iter().map(|(id, job)| (*id, job.queued)).collect::<Vec<_>>(), [(4, at(20)), (1, at(40))]);
    }

    #[test]
    fn status_tells_of_jobs_that_wait_for_long_up_to_a_bound_and_says_when_there_is_one_more() {
        let of = |jobs: Vec<JobEvent>, second: i64| {
            let polled = polled_at(&Ledger::default(), jobs, second);
            let told = told(&polled, at(second));
            (told.jobs.iter().map(|(id, _)| *id).collect::<Vec<_>>(), told.next)
        };
        let two = || vec![queued(1, 40), queued(2, 20)];
        assert_eq!(of(two(), 49), (vec![], Some(at(50))));
        assert_eq!(of(two(), 50), (vec![2], Some(at(70))));
        assert_eq!(of(two(), 70), (vec![2, 1], None));
        let many = (0..TOLD as u64 + 5).map(|id| queued(id, 0)).collect();
        assert_eq!(of(many, 60), ((0..TOLD as u64).collect(), None));
        // Those that come after a full list change nothing when their time comes.
        let late = (0..TOLD as u64).map(|id| queued(id, 0)).chain([queued(99, 50)]).collect();
        assert_eq!(of(late, 60).1, None);
    }
}
