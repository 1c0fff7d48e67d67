//! What happens when, in the order of time; of two things at the same moment the one that was noted first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use jiff::Timestamp;

/// Milliseconds since 1970, virtual.
pub(crate) type Moment = i64;

pub(crate) fn moment(at: Timestamp) -> Moment {
    at.as_millisecond()
}

pub(crate) fn at(moment: Moment) -> Timestamp {
    Timestamp::from_millisecond(moment).unwrap_or(Timestamp::MAX)
}

/// What is to happen. Indices into the scenario's and the run's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// Settings of a pool change.
    Settings { pool: usize, index: usize },
    /// GitHub queues a job.
    Queued { job: usize },
    /// A job that never started is called off.
    Cancelled { job: usize },
    /// The agent takes the job that it was given.
    Started { job: usize, runner: usize },
    /// A job is over.
    Completed { job: usize, runner: usize },
    /// A runner is online.
    Online { runner: usize },
    /// A runner's container ends: after its job, or because it failed to start.
    Stopped { runner: usize, exit_code: i32 },
    /// GitHub's runners are listed.
    Listing { scope: usize },
    /// A runner that starts or is over is looked at: it may be worth a listing.
    Awaits { runner: usize },
    /// The operator looks at a pool.
    Pass { pool: usize },
}

#[derive(Debug, Default)]
pub(crate) struct Agenda {
    heap: BinaryHeap<Reverse<(Moment, u64, Event)>>,
    noted: u64,
}

impl Agenda {
    pub(crate) fn note(&mut self, at: Moment, event: Event) {
        self.noted += 1;
        self.heap.push(Reverse((at, self.noted, event)));
    }

    /// When something is to happen next.
    pub(crate) fn peek(&self) -> Option<Moment> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    pub(crate) fn next(&mut self) -> Option<(Moment, Event)> {
        self.heap.pop().map(|Reverse((at, _, event))| (at, event))
    }
}
