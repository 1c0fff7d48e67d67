//! What the records come to: the lives of jobs, runners and pools.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

use crate::Trace;
use crate::record::{About, End, PoolSettings, What};
use crate::surroundings::Surroundings;

/// The life of a job, from queued to completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobLife {
    /// Repository, workflow, labels and attempt.
    pub about: About,
    /// When it was queued.
    pub queued: Timestamp,
    /// When it started; none where the trace does not say so.
    pub started: Option<Timestamp>,
    /// Name of the runner that it was given to; none where the trace does not say so.
    pub runner: Option<Arc<str>>,
    /// When it was over.
    pub completed: Option<Timestamp>,
}

/// The life of a runner, from the creation of its Runner object until that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunnerLife {
    /// `namespace/name` of its pool.
    pub pool: Arc<str>,
    /// When its object was made.
    pub created: Timestamp,
    /// The node of its pod, where that became known.
    pub node: Option<Arc<str>>,
    /// When it was online first; its first job's start, where that is earlier.
    pub registered: Option<Timestamp>,
    /// When its object was gone, and why.
    pub ended: Option<(Timestamp, End)>,
}

/// The settings of a pool over time, and how often its number changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolLife {
    /// Settings, each with the moment from which it was in force.
    pub settings: Vec<(Timestamp, PoolSettings)>,
    /// Changes of its number.
    pub decisions: u64,
}

/// Something that can't have been so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// A step of a job that was never queued.
    UnknownJob(u64),
    /// A step of a runner that was never made.
    UnknownRunner(Arc<str>),
    /// A pool without settings.
    UnknownPool(Arc<str>),
    /// A job that was over before it started, or started before it was queued.
    JobBackwards(u64),
    /// A runner that was gone before it was made.
    RunnerBackwards(Arc<str>),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownJob(job) => write!(f, "job {job} has steps and was never queued"),
            Self::UnknownRunner(runner) => write!(f, "runner {runner} has steps and was never made"),
            Self::UnknownPool(pool) => write!(f, "pool {pool} has no settings"),
            Self::JobBackwards(job) => write!(f, "job {job} has its steps in the wrong order"),
            Self::RunnerBackwards(runner) => write!(f, "runner {runner} has its steps in the wrong order"),
        }
    }
}

/// Lives of all jobs, runners and pools of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    /// Since when everything is recorded.
    pub started: Timestamp,
    /// Time of the newest record.
    pub ended: Timestamp,
    /// By GitHub's id.
    pub jobs: BTreeMap<u64, JobLife>,
    /// By name.
    pub runners: BTreeMap<Arc<str>, RunnerLife>,
    /// By `namespace/name`.
    pub pools: BTreeMap<Arc<str>, PoolLife>,
    /// By decision, as `scale-down`: how many receipts name which policy, as `mine@sha256:0123456789ab`, `native` or `none`.
    pub deciders: BTreeMap<Arc<str>, BTreeMap<Arc<str>, u64>>,
    /// Nodes, room and GitHub.
    pub surroundings: Surroundings,
    /// Times in which nobody recorded.
    pub gaps: Vec<(Timestamp, Timestamp)>,
    /// Records of kinds that this program does not know.
    pub unknown: u64,
    /// What can't have been so.
    pub problems: Vec<Problem>,
}

impl History {
    /// Puts the lives together from the records of a trace.
    #[must_use]
    pub fn of(trace: &Trace) -> Self {
        let started = trace.header.started;
        let mut history = Self {
            started,
            ended: started,
            jobs: BTreeMap::new(),
            runners: BTreeMap::new(),
            pools: BTreeMap::new(),
            deciders: BTreeMap::new(),
            surroundings: Surroundings::default(),
            gaps: Vec::new(),
            unknown: 0,
            problems: Vec::new(),
        };
        let mut records: Vec<_> = trace.records.iter().collect();
        records.sort_by_key(|record| (record.at, record.what.ends()));
        // What was told late may be about an earlier moment: who there is comes first.
        for record in &records {
            history.ended = history.ended.max(record.at);
            history.meet(record.at, &record.what);
        }
        for record in &records {
            history.follow(record.at, &record.what);
        }
        history.settle();
        history
    }

    fn meet(&mut self, at: Timestamp, what: &What) {
        match what {
            What::JobQueued { job, about } => {
                let new = JobLife { about: about.clone(), queued: at, started: None, runner: None, completed: None };
                self.jobs.entry(*job).or_insert(new);
            }
            What::RunnerCreated { runner, pool } => {
                let new = RunnerLife { pool: pool.clone(), created: at, node: None, registered: None, ended: None };
                self.runners.entry(runner.clone()).or_insert(new);
            }
            What::Pool(settings) => {
                self.pools.entry(settings.pool.clone()).or_default().settings.push((at, settings.clone()));
            }
            _ => {}
        }
    }

    fn follow(&mut self, at: Timestamp, what: &What) {
        match what {
            What::JobAssigned { job, runner } => self.job(*job, |life| life.runner = Some(runner.clone())),
            What::JobStarted { job, runner } => self.job(*job, |life| {
                life.started.get_or_insert(at);
                life.runner = runner.clone().or(life.runner.take());
            }),
            What::JobCompleted { job } => self.job(*job, |life| {
                life.completed.get_or_insert(at);
            }),
            What::RunnerRegistered { runner } | What::RunnerBusy { runner } | What::RunnerIdle { runner } => {
                self.runner(runner, |life| {
                    life.registered.get_or_insert(at);
                });
            }
            What::RunnerPlaced { runner, node } => self.runner(runner, |life| life.node = Some(node.clone())),
            What::RunnerEnded { runner, why } => self.runner(runner, |life| {
                life.ended.get_or_insert((at, *why));
            }),
            What::Decision { pool, .. } => {
                self.pools.entry(pool.clone()).or_default().decisions += 1;
            }
            What::Receipt { decision, policy, .. } => {
                *self.deciders.entry(decision.clone()).or_default().entry(policy.clone()).or_default() += 1;
            }
            What::Node(node) => self.surroundings.add_node(at, node),
            What::Room(room) => self.surroundings.add_room(at, room),
            What::Listings(listings) => self.surroundings.add_listings(listings),
            What::Budget(budget) => self.surroundings.add_budget(at, budget),
            What::Resumed { since } => self.gaps.push((*since, at)),
            What::Unknown => self.unknown += 1,
            What::Pool(_) | What::JobQueued { .. } | What::RunnerCreated { .. } | What::Checkpoint {} => {}
        }
    }

    fn job(&mut self, job: u64, change: impl FnOnce(&mut JobLife)) {
        match self.jobs.get_mut(&job) {
            Some(life) => change(life),
            None => self.problems.push(Problem::UnknownJob(job)),
        }
    }

    fn runner(&mut self, runner: &Arc<str>, change: impl FnOnce(&mut RunnerLife)) {
        match self.runners.get_mut(runner) {
            Some(life) => change(life),
            None => self.problems.push(Problem::UnknownRunner(runner.clone())),
        }
    }

    fn settle(&mut self) {
        for (id, job) in &self.jobs {
            let steps = [Some(job.queued), job.started, job.completed];
            if !steps.iter().flatten().is_sorted() {
                self.problems.push(Problem::JobBackwards(*id));
            }
            // An event names a runner before a listing shows it.
            if let Some((runner, started)) = job.runner.as_ref().zip(job.started)
                && let Some(life) = self.runners.get_mut(runner)
            {
                life.registered = Some(life.registered.map_or(started, |registered| registered.min(started)).max(life.created));
            }
        }
        for (name, runner) in &self.runners {
            if runner.ended.is_some_and(|(ended, _)| ended < runner.created) {
                self.problems.push(Problem::RunnerBackwards(name.clone()));
            }
            if self.pools.get(&runner.pool).is_none_or(|pool| pool.settings.is_empty()) {
                self.problems.push(Problem::UnknownPool(runner.pool.clone()));
            }
        }
        self.problems.dedup();
    }
}
