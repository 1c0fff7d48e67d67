//! The newest part of a trace, in memory.

use jiff::{SignedDuration, Timestamp};

use crate::{Header, Record, Trace, What};

/// The least time between two records.
const MOMENT: SignedDuration = SignedDuration::from_nanos(1);

/// How much of a trace is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Most records that are held.
    pub records: usize,
    /// How far back records are held.
    pub time: SignedDuration,
}

/// More records than may be held are of jobs and runners that are not over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {0} records are of jobs and runners that are not over")]
pub struct Overflow(pub usize);

/// The newest part of a trace, which is a trace by itself. Its beginning moves: older records go, but for what they say of pools, and of jobs and
/// runners that are not over by then.
#[derive(Clone, Debug)]
pub struct Window {
    bounds: Bounds,
    trace: Trace,
    crowded_out: u64,
}

impl Window {
    /// One that begins now.
    #[must_use]
    pub fn new(bounds: Bounds, now: Timestamp) -> Self {
        Self { bounds, trace: Trace { header: Header::new(now), records: Vec::new() }, crowded_out: 0 }
    }

    /// Adds a record. Where there are as many as may be, the older half makes room.
    ///
    /// # Errors
    ///
    /// When too few of them are old. The record is not taken then, and the window is no use any more.
    pub fn add(&mut self, record: Record) -> Result<(), Overflow> {
        let (before, most) = (self.trace.records.len(), self.bounds.records);
        if before >= most {
            // Past the middle, not at it: all of a burst may be of one moment.
            if let Some(after) = self.trace.records.get(before / 2).and_then(|middle| middle.at.checked_add(MOMENT).ok()) {
                self.begin(after);
            }
            let left = self.trace.records.len();
            self.crowded_out += before.saturating_sub(left) as u64;
            if left > most - most / 4 {
                return Err(Overflow(most));
            }
        }
        self.trace.records.push(record);
        Ok(())
    }

    /// Since when everything is in it.
    #[must_use]
    pub fn started(&self) -> Timestamp {
        self.trace.header.started
    }

    /// Records that made room for newer ones before their time.
    #[must_use]
    pub fn crowded_out(&self) -> u64 {
        self.crowded_out
    }

    /// The part that ends now and is at most so long.
    #[must_use]
    pub fn last(&mut self, time: SignedDuration, now: Timestamp) -> Trace {
        let earliest = |time| now.checked_sub(time).unwrap_or(Timestamp::MIN);
        if self.started() < earliest(self.bounds.time) {
            self.begin(earliest(self.bounds.time));
        }
        self.trace.cut(self.started().max(earliest(time)), now)
    }

    /// Drops what is before this moment, and all checkpoints.
    fn begin(&mut self, from: Timestamp) {
        self.trace = self.trace.cut(from.max(self.started()), Timestamp::MAX);
        self.trace.records.retain(|record| record.what != What::Checkpoint {});
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{About, PoolSettings};
    use crate::{End, History};

    const BOUNDS: Bounds = Bounds { records: 100, time: SignedDuration::from_secs(60) };

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + seconds).unwrap()
    }

    fn window() -> Window {
        let mut window = Window::new(BOUNDS, at(0));
        let pool = PoolSettings { pool: "ci/web".into(), replicas: 1, ..PoolSettings::default() };
        window.add(Record { at: at(0), what: What::Pool(pool) }).unwrap();
        window
    }

    fn job(window: &mut Window, job: u64, queued: i64, over: Option<i64>) -> Result<(), Overflow> {
        window.add(Record { at: at(queued), what: What::JobQueued { job, about: About::default() } })?;
        over.map_or(Ok(()), |over| window.add(Record { at: at(over), what: What::JobCompleted { job } }))
    }

    #[test]
    fn what_is_older_than_the_window_goes_but_for_what_is_not_over() {
        let mut window = window();
        job(&mut window, 1, 1, Some(2)).unwrap();
        job(&mut window, 2, 3, None).unwrap();
        window.add(Record { at: at(4), what: decision(1, 7) }).unwrap();
        job(&mut window, 3, 90, Some(95)).unwrap();
        let history = History::of(&window.last(BOUNDS.time, at(100)));
        assert_eq!((history.started, history.ended), (at(40), at(100)));
        assert_eq!(history.jobs.keys().copied().collect::<Vec<_>>(), [2, 3]);
        let (since, settings) = &history.pools["ci/web"].settings[0];
        assert_eq!((*since, settings.replicas), (at(40), 7), "the number in force then");
        let history = History::of(&window.last(SignedDuration::from_secs(8), at(100)));
        assert_eq!((history.started, window.started(), window.crowded_out()), (at(92), at(40), 0));
        // A window that began later than that is no longer than it is.
        let mut young = Window::new(BOUNDS, at(0));
        assert_eq!(young.last(BOUNDS.time, at(5)).header.started, at(0));
    }

    #[test]
    fn newer_records_crowd_out_older_ones_within_the_time() {
        let mut window = window();
        for number in 0..500_u64 {
            let second = i64::try_from(number).unwrap() / 10;
            job(&mut window, number, second, Some(second)).unwrap();
            assert!(window.trace.records.len() <= BOUNDS.records);
        }
        assert!(window.crowded_out() > 800 && window.started() > at(5), "{}", window.crowded_out());
        assert!(History::of(&window.last(BOUNDS.time, at(60))).problems.is_empty());
    }

    #[test]
    fn burst_of_one_moment_crowds_itself_out_when_it_is_over() {
        let mut window = window();
        (0..500_u64).for_each(|number| job(&mut window, number, 1, Some(1)).unwrap());
        assert!(window.trace.records.len() <= BOUNDS.records && window.crowded_out() > 800);
    }

    #[test]
    fn too_much_that_is_not_over_is_an_overflow() {
        let mut window = window();
        let overflow = (0..500_u64).find_map(|number| job(&mut window, number, 1, None).err());
        assert_eq!((overflow, window.trace.records.len() <= BOUNDS.records), (Some(Overflow(100)), true));
        let runner = What::RunnerEnded { runner: "web-a".into(), why: End::Removed };
        assert_eq!(window.add(Record { at: at(2), what: runner }), Err(Overflow(100)));
    }

    fn decision(from: u32, to: u32) -> What {
        What::Decision { pool: "ci/web".into(), from, to, why: String::new() }
    }
}
