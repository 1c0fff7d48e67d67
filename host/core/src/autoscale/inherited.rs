//! Reservations in `spec.capacityReservations`, as ARC's webhook server left them or still writes them: one runner for each job that it was told
//! of, without saying which.
//!
//! A job that is known by itself needs no reservation beside it, whether it waits, runs or is over. ARC reserved after the job was queued, so that each
//! known job uses up the oldest such reservation that is not older than the job. ARC itself took away the oldest one with each `completed` event.
//! A reservation that has a name or no `effectiveTime`, or is of another number than one, is somebody's own and lasts as long as it says: ARC names none.

use std::collections::BTreeMap;

use jiff::Timestamp;

/// Who wrote a reservation, as far as it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Author {
    /// It has a name, so that somebody wrote it on purpose.
    Person,
    /// It has no name, as those of ARC.
    Unknown,
}

/// An entry of `spec.capacityReservations` that has an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Since when it asks for runners, which is when ARC was told of the job.
    pub effective: Option<Timestamp>,
    /// When it stops to.
    pub expires: Timestamp,
    /// Number of runners that it asks for.
    pub replicas: u32,
    /// Who wrote it.
    pub author: Author,
}

impl Entry {
    /// When ARC reserved it for a job.
    fn for_job(&self) -> Option<Timestamp> {
        self.effective.filter(|_| self.replicas == 1 && self.author == Author::Unknown)
    }
}

/// Jobs that are known and were queued before the last of the reservations, and when each was. They are remembered, because what is known of a job that
/// is over is soon forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known(BTreeMap<u64, Timestamp>);

impl Known {
    /// Takes note of jobs that are known now: their ids, and when they were queued.
    pub fn follow(&mut self, entries: &[Entry], jobs: impl Iterator<Item = (u64, Timestamp)>, now: Timestamp) {
        match entries.iter().filter(|entry| entry.expires > now).filter_map(Entry::for_job).max() {
            Some(last) => self.0.extend(jobs.filter(|(_, queued)| *queued <= last)),
            None => self.0.clear(),
        }
    }

    /// How many runners the reservations ask for at `now` beside those of the jobs that are known.
    #[must_use]
    pub fn left(&self, entries: &[Entry], now: Timestamp) -> u32 {
        let is_in_force = |entry: &&Entry| entry.expires > now;
        let own = entries.iter().filter(|entry| entry.for_job().is_none()).filter(is_in_force);
        let own = own.fold(0_u32, |sum, entry| sum.saturating_add(entry.replicas));
        // Expired ones are used up as well, or their jobs would use up those of others.
        let mut for_jobs: Vec<(Timestamp, Timestamp)> =
            entries.iter().filter_map(|entry| Some((entry.for_job()?, entry.expires))).collect();
        for_jobs.sort_unstable();
        let mut queued: Vec<Timestamp> = self.0.values().copied().collect();
        queued.sort_unstable();
        let mut queued = queued.into_iter().peekable();
        let mut left = own;
        for (effective, expires) in for_jobs {
            if queued.next_if(|queued| *queued <= effective).is_none() && expires > now {
                left = left.saturating_add(1);
            }
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn of_job(effective: i64, expires: i64) -> Entry {
        Entry { effective: Some(at(effective)), expires: at(expires), replicas: 1, author: Author::Unknown }
    }

    fn left(entries: &[Entry], jobs: &[(u64, i64)], now: i64) -> u32 {
        let mut known = Known::default();
        known.follow(entries, jobs.iter().map(|(id, queued)| (*id, at(*queued))), at(now));
        known.left(entries, at(now))
    }

    /// What it is about, the reservations, jobs and when they were queued, the time, and what is left.
    type Row<'a> = (&'a str, &'a [Entry], &'a [(u64, i64)], i64, u32);

    #[test]
    fn each_known_job_uses_up_one_reservation_that_was_made_after_it_was_queued() {
        let three = [of_job(12, 100), of_job(22, 110), of_job(32, 120)];
        let own = Entry { replicas: 2, ..of_job(5, 115) };
        let timeless = Entry { effective: None, ..of_job(5, 115) };
        let named = Entry { author: Author::Person, ..of_job(5, 115) };
        let backwards = [of_job(32, 120), of_job(22, 110), of_job(12, 100)];
        let table: [Row<'_>; 15] = [
            ("nothing", &[], &[(1, 10)], 50, 0),
            ("no job is known", &three, &[], 50, 3),
            ("the job of the first", &three, &[(1, 10)], 50, 2),
            ("the job of the last", &three, &[(1, 30)], 50, 2),
            ("all", &three, &[(1, 10), (2, 20), (3, 30)], 50, 0),
            ("more than there are", &three, &[(1, 10), (2, 10), (3, 10), (4, 10)], 50, 0),
            ("jobs that were queued later", &three, &[(1, 33), (2, 40)], 50, 3),
            ("two of one second", &[of_job(10, 100), of_job(10, 100)], &[(1, 10)], 50, 1),
            ("the first has expired", &three, &[], 100, 2),
            ("the job of one that has expired", &three, &[(1, 10)], 105, 2),
            ("in any order", &backwards, &[(3, 30), (1, 10)], 50, 1),
            ("what somebody wrote lasts", &[own, timeless], &[(1, 1), (2, 2)], 50, 3),
            ("and then ends", &[own, timeless], &[], 115, 0),
            ("so does what has a name", &[named, of_job(12, 100)], &[(1, 1), (2, 2)], 50, 1),
            ("and it ends as well", &[named], &[], 115, 0),
        ];
        for (what, entries, jobs, now, expected) in table {
            assert_eq!(left(entries, jobs, now), expected, "{what}");
        }
    }

    #[test]
    fn a_job_stays_known_while_there_is_a_reservation_that_it_may_have() {
        let entries = [of_job(12, 100), of_job(22, 110)];
        let mut known = Known::default();
        known.follow(&entries, [(1, at(10)), (2, at(50))].into_iter(), at(50));
        known.follow(&entries, std::iter::empty(), at(60));
        assert_eq!((known.left(&entries, at(60)), known.0.len()), (1, 1));
        known.follow(&entries, std::iter::empty(), at(110));
        assert_eq!(known, Known::default(), "all of them have ended");
    }
}
