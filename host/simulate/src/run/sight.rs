//! A run as somebody who looks on sees it: how everything stands at a moment, and what has happened.

use std::sync::Arc;

use jiff::Timestamp;
use pacer_core::autoscale;
use pacer_core::facts::RunnerFacts;
use pacer_core::ledger::Ledger;
use pacer_core::phase::Assessment;
use pacer_core::policy::{self, CapacityPlan};
use pacer_policy::record::{Done, Item};
use pacer_policy::{Answer, Inquiry};

use super::{Run, Told};
use crate::agenda::{Moment, at};

/// What has happened in a run. Pools and runners are named by their index; moments are milliseconds since 1970.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Story {
    /// Job, when it started, on which runner.
    pub started: Vec<(u64, Moment, usize)>,
    /// When, pool, runners that exist, wanted, minimum, maximum.
    pub fleets: Vec<(Moment, usize, u32, u32, u32, u32)>,
    /// Each decision about a number.
    pub numbers: Vec<Numbered>,
    /// Each runner that was told to go because fewer were wanted.
    pub removed: Vec<Removed>,
    /// Each question about runners to a policy.
    pub decided: Vec<Decided>,
}

/// A decision about a number, and what was known.
#[derive(Clone, Debug, PartialEq)]
pub struct Numbered {
    /// When it was decided, in milliseconds since 1970 of virtual time.
    pub at: Moment,
    /// Index of the pool whose number it is; see [`Sight::pool`].
    pub pool: usize,
    /// The number before the decision.
    pub from: u32,
    /// Jobs that need a runner of the pool or have one.
    pub jobs: u32,
    /// Runners of the pool that exist.
    pub live: u32,
    /// When the number was raised last.
    pub raised: Option<Timestamp>,
    /// What the capacity policy answered.
    pub plan: CapacityPlan,
    /// The number that was decided, and why.
    pub decision: autoscale::Decision,
}

/// A runner that was told to go.
#[derive(Clone, Debug, PartialEq)]
pub struct Removed {
    /// When it was told to go, in milliseconds since 1970 of virtual time.
    pub at: Moment,
    /// Its place among [`Sight::runners`].
    pub runner: usize,
    /// Name of the runner, as its receipt has it.
    pub name: Arc<str>,
    /// Why, as its receipt says.
    pub done: Done,
}

/// A question about runners, its answer, and what was done.
#[derive(Clone, Debug, PartialEq)]
pub struct Decided {
    /// When the policy was asked, in milliseconds since 1970 of virtual time.
    pub at: Moment,
    /// The request that the policy got.
    pub inquiry: Inquiry,
    /// What the policy answered.
    pub answer: Answer,
    /// What became of each runner.
    pub items: Vec<Item>,
}

/// How everything stands at a moment.
pub struct Sight<'a> {
    run: &'a Run<'a>,
}

/// A runner, whether it still exists or not.
pub struct RunnerSeen<'a> {
    /// Name of the runner, recorded or made up by the simulation.
    pub name: &'a str,
    /// When it was made.
    pub created: Timestamp,
    /// When it was gone.
    pub gone: Option<Timestamp>,
    /// The job that it was given and that is not over.
    pub job: Option<u64>,
    /// What the operator knows of it.
    pub facts: &'a RunnerFacts,
    /// What the operator makes of that.
    pub assessment: &'a Assessment,
}

/// A job that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobSeen<'a> {
    /// GitHub's id of it.
    pub id: u64,
    /// When it was queued.
    pub queued: Timestamp,
    /// When it started; none until it has.
    pub started: Option<Timestamp>,
    /// The runner that it was given to.
    pub runner: Option<&'a str>,
    /// Whether it is over.
    pub over: bool,
}

impl<'a> Sight<'a> {
    pub(super) fn of(run: &'a Run<'a>) -> Self {
        Self { run }
    }

    /// The moment in virtual time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        at(self.run.now)
    }

    /// What has happened until now; none where the run does not note it.
    #[must_use]
    pub fn story(&self) -> Option<&'a Story> {
        self.run.story.as_ref()
    }

    /// The pool of this index as its autoscaler has a policy told of it.
    #[must_use]
    pub fn pool(&self, index: usize) -> policy::Pool {
        self.run.told(index, Told::Autoscaler)
    }

    /// Jobs that its autoscaler knows.
    #[must_use]
    pub fn ledger(&self, pool: usize) -> Option<&'a Ledger> {
        self.run.pools.get(pool).map(|pool| &pool.ledger)
    }

    /// Failed starts of the pool in a row.
    #[must_use]
    pub fn attempts(&self, pool: usize) -> u32 {
        self.run.pools.get(pool).map_or(0, |pool| pool.attempts)
    }

    /// When the place of a runner of the pool whose start failed is filled again; none where none waits for that.
    #[must_use]
    pub fn next_attempt(&self, pool: usize) -> Option<Timestamp> {
        self.run.pools.get(pool).and_then(|pool| pool.next_attempt)
    }

    /// All runners of all pools that have been made.
    pub fn runners(&self) -> impl Iterator<Item = RunnerSeen<'a>> {
        let run = self.run;
        run.runners.iter().map(|runner| {
            let given = runner.job.filter(|job| run.progress.get(*job).is_some_and(|progress| !progress.over));
            RunnerSeen {
                name: &runner.name,
                created: at(runner.created),
                gone: runner.gone.map(at),
                job: given.and_then(|job| run.scenario.jobs.get(job)).map(|job| job.id),
                facts: &runner.facts,
                assessment: &runner.assessment,
            }
        })
    }

    /// All jobs that have come.
    pub fn jobs(&self) -> impl Iterator<Item = JobSeen<'a>> {
        let run = self.run;
        let all = run.scenario.jobs.iter().zip(&run.progress).filter(|(job, _)| job.arrives <= run.now);
        all.map(|(job, progress)| JobSeen {
            id: job.id,
            queued: at(job.queued),
            started: progress.started.map(at),
            runner: progress.runner.and_then(|runner| run.runners.get(runner)).map(|runner| &*runner.name),
            over: progress.over,
        })
    }
}
