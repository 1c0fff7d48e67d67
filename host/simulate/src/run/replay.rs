//! What was recorded, given to the rules: whether the same numbers come out.
//!
//! Nothing of the world is played here. Jobs and runners do what they did, when they did it; only the autoscaler decides anew, by the code that
//! decides in simulations.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use pacer_core::ledger::State;
use pacer_trace::{End, History, Trace, What};

use super::Run;
use crate::agenda::{Event, Moment, at, moment};
use crate::policies::Policies;
use crate::scenario::{Scenario, ScenarioError};

/// A number is in the status of its autoscaler up to five seconds after it was decided, and recorded when it is there.
const LATE: Moment = 7_000;

/// A fact is recorded so long after the decision that rests upon it at the most: the recorder and the operator hear of it by watches of their own.
const EARLY: Moment = 1_500;

/// A number that was recorded and not decided again, or the other way round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// When.
    pub at: Timestamp,
    /// `namespace/name`.
    pub pool: String,
    /// The number that was recorded last by then.
    pub recorded: u32,
    /// Numbers that the rules gave around that time.
    pub decided: Vec<u32>,
}

/// What a replay comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    /// Changes of numbers that were recorded.
    pub recorded: u64,
    /// Changes of numbers that the rules gave; those that lasted for less than some seconds were not recorded.
    pub decided: u64,
    /// Where the two differ.
    pub differences: Vec<Difference>,
}

/// A recorded fact.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fact {
    Settings { pool: usize, index: usize },
    Queued(usize),
    Created(Arc<str>, usize),
    Registered(Arc<str>),
    Started(usize),
    Completed(usize),
    Ended(Arc<str>, End),
}

/// Numbers of a pool, each with the moment from which it held.
type Numbers = Vec<(Moment, u32)>;

/// Gives the facts of a trace to the rules and to these policies, which were in force.
///
/// # Errors
///
/// When the trace has no pool or no job.
pub fn replay(trace: &Trace, policies: &Policies) -> Result<Replay, ScenarioError> {
    let history = History::of(trace);
    let scenario = Scenario::of(&history)?;
    let mut run = Run::new(&scenario, policies, 1);
    let mut decided: Vec<Numbers> = run.pools.iter().map(|pool| vec![(scenario.begins, pool.number)]).collect();
    let mut recorded = decided.clone();
    run.recall(&history, &mut decided);

    let mut replay = Replay::default();
    let index: BTreeMap<&str, usize> = scenario.pools.iter().enumerate().map(|(index, pool)| (&*pool.name, index)).collect();
    let mut decisions: Vec<(Moment, usize, u32)> = Vec::new();
    for record in &trace.records {
        if let What::Decision { pool, to, .. } = &record.what
            && let Some(pool) = index.get(pool.as_ref())
        {
            decisions.push((moment(record.at), *pool, *to));
        }
    }
    decisions.sort_unstable();
    replay.recorded = decisions.len() as u64;
    for (now, pool, to) in decisions {
        recorded.get_mut(pool).into_iter().for_each(|numbers| numbers.push((now, to)));
    }
    for ((pool, decided), recorded) in scenario.pools.iter().zip(&decided).zip(&recorded) {
        replay.decided += decided.len().saturating_sub(1) as u64;
        // Each recorded number was decided shortly before.
        for (now, number) in recorded.iter().skip(1) {
            let around = during(decided, now - LATE, now + EARLY);
            if !around.clone().any(|decided| decided == *number) {
                let difference =
                    Difference { at: at(*now), pool: pool.name.to_string(), recorded: *number, decided: around.collect() };
                replay.differences.push(difference);
            }
        }
        // Each number that lasted was recorded.
        let ends = decided.iter().skip(1).map(|(now, _)| *now).chain([scenario.ends]);
        for ((began, number), ended) in decided.iter().zip(ends).filter(|((began, _), ended)| ended - began > LATE + EARLY) {
            let known = during(recorded, began + LATE, ended).last().unwrap_or_default();
            if !during(recorded, began - EARLY, ended).any(|recorded| recorded == *number) {
                let difference =
                    Difference { at: at(*began), pool: pool.name.to_string(), recorded: known, decided: vec![*number] };
                replay.differences.push(difference);
            }
        }
    }
    replay.differences.sort_by_key(|difference| difference.at);
    Ok(replay)
}

/// Numbers that held at some time between two moments.
fn during(numbers: &Numbers, from: Moment, to: Moment) -> impl Iterator<Item = u32> + Clone + '_ {
    let first = numbers.partition_point(|(at, _)| *at <= from).saturating_sub(1);
    numbers.iter().skip(first).take_while(move |(at, _)| *at <= to).map(|(_, number)| *number)
}

impl Run<'_> {
    /// Meets every fact in the order of time, and notes each number that is decided.
    fn recall(&mut self, history: &History, decided: &mut [Numbers]) {
        let mut names: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        let facts = self.facts(history);
        let mut facts = facts.into_iter().peekable();
        loop {
            let due = self.agenda.peek();
            let fact = facts.peek().map(|(now, _)| *now);
            // Facts come before what was to be looked at again at the same moment.
            let pools: Vec<usize> = match (fact, due) {
                (Some(now), due) if due.is_none_or(|due| now <= due) => {
                    self.now = self.now.max(now);
                    let Some((_, fact)) = facts.next() else { return };
                    self.meet(fact, &mut names).into_iter().collect()
                }
                (_, Some(_)) => match self.agenda.next() {
                    Some((now, _)) if now > self.scenario.ends => return,
                    Some((now, Event::Pass { pool })) if self.pools.get(pool).is_some_and(|of| of.next_pass == Some(now)) => {
                        self.now = now;
                        vec![pool]
                    }
                    _ => Vec::new(),
                },
                (_, None) => return,
            };
            for pool in pools {
                self.decide(pool);
                if let (Some(of), Some(numbers)) = (self.pools.get(pool), decided.get_mut(pool))
                    && numbers.last().is_none_or(|(_, last)| *last != of.number)
                {
                    numbers.push((self.now, of.number));
                }
            }
        }
    }

    fn decide(&mut self, pool: usize) {
        let now = self.now;
        if let Some(pool) = self.pools.get_mut(pool) {
            (pool.next_pass, pool.last_pass) = (None, now);
            pool.tidy(now);
        }
        self.number(pool);
    }

    fn facts(&self, history: &History) -> Vec<(Moment, Fact)> {
        let mut facts = Vec::new();
        for (pool, of) in self.scenario.pools.iter().enumerate() {
            for (index, (now, _)) in of.settings.iter().enumerate() {
                facts.push((*now, Fact::Settings { pool, index }));
            }
            for (name, life) in history.runners.iter().filter(|(_, life)| life.pool == of.name) {
                facts.push((moment(life.created), Fact::Created(name.clone(), pool)));
                facts.extend(life.registered.map(|now| (moment(now), Fact::Registered(name.clone()))));
                facts.extend(life.ended.map(|(now, why)| (moment(now), Fact::Ended(name.clone(), why))));
            }
        }
        for (index, job) in self.scenario.jobs.iter().enumerate() {
            let Some(life) = history.jobs.get(&job.id) else { continue };
            facts.push((moment(life.queued), Fact::Queued(index)));
            facts.extend(life.started.map(|now| (moment(now), Fact::Started(index))));
            facts.extend(life.completed.map(|now| (moment(now), Fact::Completed(index))));
        }
        facts.sort_unstable();
        facts
    }

    /// Returns the pool that it concerns.
    fn meet(&mut self, fact: Fact, names: &mut BTreeMap<Arc<str>, usize>) -> Option<usize> {
        match fact {
            Fact::Settings { pool, index } => {
                self.settings(pool, index);
                Some(pool)
            }
            Fact::Queued(index) => {
                self.tell(index, State::Queued, None);
                let job = self.scenario.jobs.get(index)?;
                let pool = job.pool?;
                self.pools.get_mut(pool)?.arrived.push((job.id, at(job.queued)));
                Some(pool)
            }
            Fact::Started(index) => {
                let job = self.scenario.jobs.get(index)?;
                let now = self.now;
                self.progress(index, |progress| progress.started = Some(now));
                let runner = job.runner.as_ref();
                if let Some(runner) = runner.and_then(|name| names.get(name)).copied() {
                    self.runner(runner, |runner, now| runner.busy(index, now));
                }
                self.tell(index, State::InProgress, runner.cloned());
                job.pool
            }
            Fact::Completed(index) => {
                let job = self.scenario.jobs.get(index)?;
                self.progress(index, |progress| progress.over = true);
                let runner = job.runner.as_ref();
                if let Some(id) = runner.and_then(|name| names.get(name)).copied() {
                    let ephemeral = self.runners.get(id).is_some_and(|runner| runner.facts.ephemeral);
                    self.runner(id, |runner, now| match ephemeral {
                        true => runner.worked_until(now),
                        false => runner.idle(id as u64 + 1, now),
                    });
                }
                self.tell(index, State::Completed, runner.cloned());
                job.pool
            }
            Fact::Created(name, pool) => {
                let runner = self.make(pool, Some(name.clone()));
                names.insert(name, runner);
                Some(pool)
            }
            Fact::Registered(name) => {
                let id = *names.get(&name)?;
                let waits = self.runners.get(id).is_some_and(|runner| runner.job.is_none());
                if waits {
                    self.register(id);
                }
                self.runners.get(id).map(|runner| runner.pool)
            }
            Fact::Ended(name, why) => {
                let id = *names.get(&name)?;
                let (pool, ephemeral) = self.runners.get(id).map(|runner| (runner.pool, runner.facts.ephemeral))?;
                self.delete(id);
                if why == End::Finished && ephemeral {
                    let now = at(self.now);
                    let of = self.pools.get_mut(pool)?;
                    of.fleet.ended.insert(name, now);
                    of.hold.count(1);
                }
                Some(pool)
            }
        }
    }
}
