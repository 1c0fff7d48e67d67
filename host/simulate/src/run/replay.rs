//! What was recorded, given to the rules: whether the same numbers come out.
//!
//! Nothing of the world is played here. Jobs and runners do what they did, when they did it; only the autoscaler decides anew, by the code that
//! decides in simulations.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use pacer_core::ledger::State;
use pacer_trace::{End, History, Trace, What};

use super::Run;
use crate::agenda::{Event, Moment, at, moment};
use crate::policies::Policies;
use crate::scenario::{Pool, Scenario};

/// A number is in the status of its autoscaler up to five seconds after it was decided, and recorded when it is there: later by some seconds where the
/// API server shares a machine that is fully used.
const LATE: Moment = 8_000;

/// A fact is recorded so long after the decision that rests upon it at the most: the recorder and the operator learn of it by watches of their own,
/// and on a machine that is fully used one of them is behind.
const EARLY: Moment = 3_000;

/// With more jobs than this in its ledger, a pool is looked at no more often than the operator looks at it, instead of at every fact: each look is at
/// all of them, and thousands of facts a minute would take minutes.
const MANY_JOBS: usize = 500;

/// A number that was recorded and not decided again, or the other way round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// When the number was recorded; when it was decided, where that was not recorded.
    pub at: Timestamp,
    /// `namespace/name`.
    pub pool: String,
    /// The number that was recorded last by then.
    pub recorded: u32,
    /// Numbers that the rules gave around that time.
    pub decided: Vec<u32>,
}

/// Why a recorded number is not compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Uncompared {
    /// A field of the autoscaler's spec changes the number, and the trace does not hold it.
    UnrecordedField,
    /// Another policy planned capacity than the one that is asked here.
    OtherPolicy,
    /// The trace ends before the facts that the number rests upon are recorded.
    End,
}

impl fmt::Display for Uncompared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnrecordedField => "a field of the autoscaler that the trace does not hold changes the number",
            Self::OtherPolicy => "another policy planned capacity than the one that is asked here",
            Self::End => "the trace ends before what the number rests upon is recorded",
        })
    }
}

/// What a replay comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    /// Changes of numbers that were recorded.
    pub recorded: u64,
    /// Those of them that are not compared, by reason.
    pub uncompared: BTreeMap<Uncompared, u64>,
    /// Changes of numbers that the rules gave; those that lasted for less than some seconds were not recorded.
    pub decided: u64,
    /// Where the two differ.
    pub differences: Vec<Difference>,
}

impl Replay {
    /// Adds what another trace comes to.
    pub fn add(&mut self, other: Self) {
        self.recorded += other.recorded;
        self.decided += other.decided;
        self.differences.extend(other.differences);
        for (why, count) in other.uncompared {
            *self.uncompared.entry(why).or_default() += count;
        }
    }

    /// Changes of numbers that were recorded and are compared.
    #[must_use]
    pub fn compared(&self) -> u64 {
        self.recorded - self.uncompared.values().sum::<u64>()
    }
}

/// A time in which numbers of a pool are not compared.
#[derive(Clone, Copy, Debug)]
struct Span {
    from: Moment,
    until: Moment,
    why: Uncompared,
}

/// The first of these that has a part of this time.
fn within(spans: &[Span], from: Moment, until: Moment) -> Option<Uncompared> {
    spans.iter().find(|span| span.from <= until && from < span.until).map(|span| span.why)
}

/// What the trace says of a pool, a job or a runner at one moment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fact {
    Settings { pool: usize, index: usize },
    Decided { pool: usize, from: u32, to: u32 },
    Queued(usize),
    Created(Arc<str>, usize),
    Registered(Arc<str>),
    Started(usize),
    Completed(usize),
    Ended(Arc<str>, End),
}

/// From when on the operator knew of a step of a job: later than it was, where webhooks were lost.
#[derive(Debug, Default)]
struct Known {
    steps: BTreeMap<(u64, State), Moment>,
}

impl Known {
    /// A checkpoint stands before what was not known until then. What is read after a gap may have been known before.
    fn of(trace: &Trace) -> Self {
        let (mut known, mut now, mut resumed) = (Self::default(), Moment::MIN, None);
        for record in &trace.records {
            let at = moment(record.at);
            if resumed.is_some_and(|resumed| at > resumed) {
                resumed = None;
            }
            let step = match &record.what {
                What::Checkpoint {} => {
                    now = now.max(at);
                    continue;
                }
                What::Resumed { .. } => {
                    resumed = Some(at);
                    continue;
                }
                What::JobQueued { job, .. } => (*job, State::Queued),
                What::JobStarted { job, .. } => (*job, State::InProgress),
                What::JobCompleted { job } => (*job, State::Completed),
                _ => continue,
            };
            known.steps.entry(step).or_insert(if resumed.is_some() { at } else { now });
        }
        known
    }

    fn since(&self, job: u64, state: State, at: Timestamp) -> Moment {
        self.steps.get(&(job, state)).copied().unwrap_or_default().max(moment(at))
    }
}

/// Numbers of a pool, each with the moment from which it held.
type Numbers = Vec<(Moment, u32)>;

/// Gives the facts of a trace to the rules and to these policies, which were in force.
#[must_use]
pub fn replay(trace: &Trace, policies: &Policies) -> Replay {
    let mut history = History::of(trace);
    // A job that ran and whose beginning nobody saw is no scene of a simulation. It was counted, and its runner's end was the end of a job.
    for life in history.jobs.values_mut().filter(|life| life.started.is_none() && life.runner.is_some()) {
        life.started = life.completed;
    }
    let scenario = Scenario::counted(&history);
    let mut run = Run::new(&scenario, policies, 1);
    let mut decided: Vec<Numbers> = run.pools.iter().map(|pool| vec![(scenario.begins, pool.number)]).collect();
    let mut recorded = decided.clone();

    let index: BTreeMap<&str, usize> = scenario.pools.iter().enumerate().map(|(index, pool)| (&*pool.name, index)).collect();
    let mut decisions = Vec::new();
    for record in &trace.records {
        if let What::Decision { pool, from, to, .. } = &record.what
            && let Some(pool) = index.get(pool.as_ref()).copied()
        {
            decisions.push((moment(record.at), Fact::Decided { pool, from: *from, to: *to }));
        }
    }
    decisions.sort_unstable();
    for (now, decision) in &decisions {
        if let Fact::Decided { pool, to, .. } = decision
            && let Some(numbers) = recorded.get_mut(*pool)
        {
            numbers.push((*now, *to));
        }
    }
    let gaps: Vec<(Moment, Moment)> = history.gaps.iter().map(|(since, until)| (moment(*since), moment(*until))).collect();
    let spans: Vec<Vec<Span>> = scenario.pools.iter().map(|pool| spans(pool, policies, scenario.ends)).collect();
    let facts = run.facts(&history, &Known::of(trace)).into_iter().chain(decisions).collect();
    run.recall(facts, &spans, &mut decided);

    let mut replay = Replay::default();
    for (((pool, decided), recorded), spans) in scenario.pools.iter().zip(&decided).zip(&recorded).zip(&spans) {
        let mut of_pool = Replay {
            recorded: recorded.len().saturating_sub(1) as u64,
            decided: decided.len().saturating_sub(1) as u64,
            ..Replay::default()
        };
        let compared = Compared { pool, decided, recorded, spans, gaps: &gaps, ends: scenario.ends };
        compared.recorded_were_decided(&mut of_pool);
        compared.decided_were_recorded(&mut of_pool);
        replay.add(of_pool);
    }
    replay.differences.sort_by_key(|difference| difference.at);
    replay
}

/// Numbers of a pool, beside each other.
struct Compared<'a> {
    pool: &'a Pool,
    decided: &'a Numbers,
    recorded: &'a Numbers,
    spans: &'a [Span],
    /// When nobody recorded.
    gaps: &'a [(Moment, Moment)],
    /// When the trace does.
    ends: Moment,
}

impl Compared<'_> {
    /// Each recorded number was decided shortly before.
    fn recorded_were_decided(&self, replay: &mut Replay) {
        for (now, number) in self.recorded.iter().skip(1) {
            let is_last = || (*now > self.ends - EARLY).then_some(Uncompared::End);
            if let Some(why) = within(self.spans, *now, *now).or_else(is_last) {
                *replay.uncompared.entry(why).or_default() += 1;
                continue;
            }
            // What was decided while nobody recorded is recorded after that.
            let gap = self.gaps.iter().find(|(_, resumed)| (now - LATE..=*now).contains(resumed));
            let around = during(self.decided, gap.map_or(*now, |(since, _)| *since) - LATE, now + EARLY);
            if !around.clone().any(|decided| decided == *number) {
                replay.differences.push(self.difference(*now, *number, around.collect()));
            }
        }
    }

    /// Each number that lasted was recorded, unless its autoscaler went before.
    fn decided_were_recorded(&self, replay: &mut Replay) {
        let without = self.pool.settings.iter().filter(|(_, settings)| !settings.is_autoscaled()).map(|(at, _)| *at);
        let next = self.decided.iter().skip(1).map(|(now, _)| *now).chain([self.ends]);
        for ((began, number), next) in self.decided.iter().zip(next) {
            let ended = without.clone().find(|at| at > began).map_or(next, |at| at.min(next));
            // What changed while nobody recorded is a change no more when that is over.
            let is_compared = ended - began > LATE + EARLY
                && within(self.spans, *began, ended).is_none()
                && !self.gaps.iter().any(|(since, resumed)| (since - LATE..*resumed).contains(began));
            if is_compared && !during(self.recorded, began - EARLY, ended).any(|recorded| recorded == *number) {
                let known = during(self.recorded, began + LATE, ended).last().unwrap_or_default();
                replay.differences.push(self.difference(*began, known, vec![*number]));
            }
        }
    }

    fn difference(&self, now: Moment, recorded: u32, decided: Vec<u32>) -> Difference {
        Difference { at: at(now), pool: self.pool.name.to_string(), recorded, decided }
    }
}

/// When numbers of a pool are not compared.
fn spans(pool: &Pool, policies: &Policies, ends: Moment) -> Vec<Span> {
    let mut spans = Vec::new();
    let mut until = pool.settings.iter().skip(1).map(|(at, _)| *at).chain([ends + LATE]);
    for (from, settings) in &pool.settings {
        let until = until.next().unwrap_or(ends);
        let why = if !settings.unrecorded.is_empty() {
            Uncompared::UnrecordedField
        } else if !policies.planned(settings.capacity_policy.as_deref()) {
            Uncompared::OtherPolicy
        } else {
            continue;
        };
        spans.push(Span { from: *from, until: until + LATE, why });
    }
    spans
}

/// Numbers that held at some time between two moments.
fn during(numbers: &Numbers, from: Moment, to: Moment) -> impl Iterator<Item = u32> + Clone + '_ {
    let first = numbers.partition_point(|(at, _)| *at <= from).saturating_sub(1);
    numbers.iter().skip(first).take_while(move |(at, _)| *at <= to).map(|(_, number)| *number)
}

impl Run<'_> {
    /// Meets every fact in the order of time, and notes each number that is decided.
    fn recall(&mut self, mut facts: Vec<(Moment, Fact)>, spans: &[Vec<Span>], decided: &mut [Numbers]) {
        let mut names: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        facts.sort_unstable();
        let mut facts = facts.into_iter().peekable();
        loop {
            let due = self.agenda.peek();
            let fact = facts.peek().map(|(now, _)| *now);
            // Facts come before what was to be looked at again at the same moment.
            let is_fact = fact.is_some_and(|now| due.is_none_or(|due| now <= due));
            let pools: Vec<usize> = match (fact, due) {
                (Some(now), _) if is_fact => {
                    self.now = self.now.max(now);
                    let Some((_, fact)) = facts.next() else { return };
                    self.meet(fact, spans, &mut names).into_iter().collect()
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
                // Where it is not known how the number came about, the recorded one holds.
                let is_known = spans.get(pool).is_none_or(|spans| within(spans, self.now, self.now).is_none());
                match self.pools.get(pool).filter(|of| is_known && of.settings.is_autoscaled()) {
                    Some(of) if is_fact && of.ledger.len() > MANY_JOBS => self.wake(pool, self.now),
                    Some(_) => self.decide(pool),
                    None => {}
                }
                if let (Some(of), Some(numbers)) = (self.pools.get(pool), decided.get_mut(pool))
                    && numbers.last().is_none_or(|(_, last)| *last != of.number)
                {
                    numbers.push((self.now, of.number));
                }
            }
        }
    }

    /// A number that was decided by what is not known here.
    fn adopt(&mut self, pool: usize, from: u32, to: u32) {
        let now = at(self.now);
        let Some(pool) = self.pools.get_mut(pool) else { return };
        if to > from {
            pool.last_scale_out = Timestamp::from_second(now.as_second()).ok();
        }
        pool.number = to;
    }

    fn decide(&mut self, pool: usize) {
        let now = self.now;
        if let Some(pool) = self.pools.get_mut(pool) {
            (pool.next_pass, pool.last_pass) = (None, now);
            pool.tidy(now);
        }
        self.number(pool);
    }

    fn facts(&self, history: &History, known: &Known) -> Vec<(Moment, Fact)> {
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
            let since = |state, at| known.since(job.id, state, at);
            facts.push((since(State::Queued, life.queued), Fact::Queued(index)));
            facts.extend(life.started.map(|at| (since(State::InProgress, at), Fact::Started(index))));
            facts.extend(life.completed.map(|at| (since(State::Completed, at), Fact::Completed(index))));
        }
        facts
    }

    /// Returns the pool that it concerns.
    fn meet(&mut self, fact: Fact, spans: &[Vec<Span>], names: &mut BTreeMap<Arc<str>, usize>) -> Option<usize> {
        match fact {
            Fact::Settings { pool, index } => {
                self.settings(pool, index);
                Some(pool)
            }
            Fact::Decided { pool, from, to } => {
                if spans.get(pool).is_some_and(|spans| within(spans, self.now, self.now).is_some()) {
                    self.adopt(pool, from, to);
                }
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
