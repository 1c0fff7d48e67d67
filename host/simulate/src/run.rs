//! One run: events in virtual time, and the operator's passes over pools.

mod listings;
mod pass;
mod pool;
mod replay;
mod sight;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use pacer_core::ledger::{JobEvent, State};
use pacer_core::name;

use crate::agenda::{Agenda, Event, Moment, at};
use crate::calls::Calls;
use crate::figures::{Figures, Tally, together};
use crate::github::GitHub;
use crate::nodes::Nodes;
use crate::policies::Policies;
use crate::prices::RunnerPrices;
use crate::random::Random;
use crate::reaction::Call;
use crate::runner::Runner;
use crate::samples::Turns;
use crate::scenario::{Job, Scenario, Start};
use crate::waits::Breakdown;
use pool::Pool;
pub use replay::{Difference, Replay, Uncompared, replay};
pub use sight::{Decided, JobSeen, Numbered, Removed, RunnerSeen, Sight, Story};

/// What a run comes to.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Figures of each pool, by its name.
    pub pools: BTreeMap<String, Figures>,
    /// All pools together.
    pub total: Figures,
    /// Waits by repository and by label set.
    pub waits: Breakdown,
    /// Events that were played.
    pub events: u64,
}

impl Outcome {
    /// The same with what runners cost at these prices.
    #[must_use]
    pub fn at(mut self, prices: &RunnerPrices) -> Self {
        for (pool, figures) in &mut self.pools {
            figures.cost = figures.runner_minutes / 60.0 * prices.of(pool).unwrap_or_default();
        }
        self.total.cost = self.pools.values().map(|figures| figures.cost).sum();
        self
    }
}

/// Events between two words about progress.
const TELL: u64 = 4_096;

/// Events between two questions whether to go on: each may take some deadlines of a policy.
const LOOK: u64 = 16;

/// Runs a scenario once. The same scenario, policies and seed give the same outcome. `progress` hears now and then how many of the jobs have come.
#[must_use]
pub fn simulate(scenario: &Scenario, policies: &Policies, seed: u64, mut progress: impl FnMut(usize)) -> Outcome {
    let mut run = Run::new(scenario, policies, seed);
    run.begin();
    while let Some(now) = run.step() {
        if run.events.is_multiple_of(TELL) {
            // They are in the order in which they come.
            progress(scenario.jobs.partition_point(|job| job.arrives <= now));
        }
    }
    run.end()
}

/// The same for somebody who looks on: `see` is called when all has happened that happens at a moment. Returns what happened.
pub fn watch(scenario: &Scenario, policies: &Policies, seed: u64, mut see: impl FnMut(&Sight<'_>)) -> Story {
    let mut run = Run::new(scenario, policies, seed);
    run.story = Some(Story::default());
    run.begin();
    while let Some(now) = run.step() {
        if run.agenda.peek() != Some(now) {
            see(&Sight::of(&run));
        }
    }
    run.story.unwrap_or_default()
}

/// Runners at most, of those who may give up. Nobody's memory is bounded by an autoscaler's minimum, and a simulation of more would take too long anyway.
const RUNNERS: usize = 20_000;

/// The same, for as long as `go_on` says so; none when it was given up, also for having more than [`RUNNERS`].
pub(crate) fn simulate_while(
    scenario: &Scenario,
    policies: &Policies,
    seed: u64,
    mut go_on: impl FnMut() -> bool,
) -> Option<Outcome> {
    let mut run = Run::new(scenario, policies, seed);
    run.begin();
    while run.step().is_some() {
        if run.runners.len() > RUNNERS || run.events.is_multiple_of(LOOK) && !go_on() {
            return None;
        }
    }
    Some(run.end())
}

/// How a job stands.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    runner: Option<usize>,
    started: Option<Moment>,
    over: bool,
}

/// Which controller has a policy told of a pool.
#[derive(Clone, Copy)]
enum Told {
    Autoscaler,
    Set,
}

struct Run<'a> {
    scenario: &'a Scenario,
    policies: &'a Policies,
    now: Moment,
    /// Where virtual time is where the rules take the computer's own clock; only differences count.
    epoch: Instant,
    agenda: Agenda,
    github: GitHub,
    nodes: Nodes,
    calls: Calls<'a>,
    pools: Vec<Pool>,
    runners: Vec<Runner>,
    progress: Vec<Progress>,
    by_id: BTreeMap<u64, usize>,
    starts: Vec<Turns>,
    reactions: Random,
    pickups: Random,
    lingers: Random,
    events: u64,
    /// None where nobody looks on.
    story: Option<Story>,
}

impl<'a> Run<'a> {
    fn new(scenario: &'a Scenario, policies: &'a Policies, seed: u64) -> Self {
        let epoch = Instant::now();
        Self {
            scenario,
            policies,
            now: scenario.begins,
            epoch,
            agenda: Agenda::default(),
            github: GitHub::new(scenario, seed),
            nodes: Nodes::new(&scenario.nodes),
            calls: Calls::new(scenario.scopes(), scenario.begins, epoch),
            pools: scenario.pools.iter().map(|pool| Pool::new(pool, scenario.begins)).collect(),
            runners: Vec::new(),
            progress: vec![Progress::default(); scenario.jobs.len()],
            by_id: scenario.jobs.iter().enumerate().map(|(index, job)| (job.id, index)).collect(),
            starts: (0..).zip(&scenario.pools).map(|(index, _)| Turns::new(Random::new(seed, 16 + index))).collect(),
            reactions: Random::new(seed, 4),
            pickups: Random::new(seed, 2),
            lingers: Random::new(seed, 3),
            events: 0,
            story: None,
        }
    }

    /// How everything stands when the trace begins.
    fn begin(&mut self) {
        let scenario = self.scenario;
        let mut named: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        self.begin_listings();
        for (index, pool) in scenario.pools.iter().enumerate() {
            for (name, online) in &pool.initial {
                let runner = self.make(index, Some(name.clone()));
                named.insert(name.clone(), runner);
                if *online {
                    self.register(runner);
                } else {
                    self.start(runner);
                }
            }
            for (setting, (at, _)) in pool.settings.iter().enumerate().filter(|(_, (at, _))| *at > scenario.begins) {
                self.agenda.note(*at, Event::Settings { pool: index, index: setting });
            }
            self.wake(index, self.now);
        }
        for (index, job) in scenario.jobs.iter().enumerate() {
            if !job.runs_already {
                self.agenda.note(job.arrives, Event::Queued { job: index });
            } else if let Some(runner) = job.runner.as_ref().and_then(|name| named.get(name)).copied() {
                self.runner(runner, |runner, now| runner.busy(index, now));
                self.begin_job(index, runner);
            }
            if let Some(cancelled) = job.cancelled {
                self.agenda.note(cancelled.max(job.arrives), Event::Cancelled { job: index });
            }
        }
        let free: Vec<usize> =
            (0..self.runners.len()).filter(|index| self.runners.get(*index).is_some_and(Runner::is_idle)).collect();
        free.into_iter().for_each(|runner| self.offer(runner));
    }

    /// Plays the next event, and says when that was; none when it is over.
    fn step(&mut self) -> Option<Moment> {
        let (now, event) = self.agenda.next().filter(|(now, _)| *now <= self.scenario.ends)?;
        self.now = now;
        self.events += 1;
        self.play(event);
        Some(now)
    }

    fn play(&mut self, event: Event) {
        match event {
            Event::Settings { pool, index } => self.settings(pool, index),
            Event::Queued { job } => self.queued(job),
            Event::Cancelled { job } => self.cancelled(job),
            Event::Started { job, runner } => self.begin_job(job, runner),
            Event::Completed { job, runner } => self.completed(job, runner),
            Event::Online { runner } => {
                if self.runners.get(runner).is_some_and(|runner| runner.gone.is_none()) {
                    self.register(runner);
                    self.offer(runner);
                }
            }
            Event::Stopped { runner, exit_code } => self.stopped(runner, exit_code),
            Event::Listing { scope } => self.list(scope),
            Event::Awaits { runner } => self.await_listing(runner),
            Event::Pass { pool } => {
                if self.pools.get(pool).is_some_and(|pool| pool.next_pass == Some(self.now)) {
                    self.pass(pool);
                }
            }
        }
    }

    fn settings(&mut self, pool: usize, index: usize) {
        let settings = self.scenario.pools.get(pool).and_then(|pool| pool.settings.get(index));
        if let (Some((_, settings)), Some(pool)) = (settings, self.pools.get_mut(pool)) {
            pool.settings = settings.clone();
            pool.answered = None;
        }
        self.wake(pool, self.now);
    }

    fn queued(&mut self, index: usize) {
        let Some(job) = self.scenario.jobs.get(index) else { return };
        self.tell(index, State::Queued, None);
        if let Some(pool) = job.pool.and_then(|pool| self.pools.get_mut(pool)) {
            pool.arrived.push((job.id, at(job.queued)));
        }
        if let Some(runner) = self.github.queue(index, job.queued) {
            self.give(index, runner);
        }
    }

    fn cancelled(&mut self, index: usize) {
        let Some(job) = self.scenario.jobs.get(index) else { return };
        if self.github.cancel(index, job.queued) {
            self.progress(index, |progress| progress.over = true);
            self.tell(index, State::Completed, None);
        } else if let Some(Progress { runner: Some(runner), started: Some(_), over: false }) = self.progress.get(index).copied() {
            self.completed(index, runner);
        }
    }

    /// GitHub gives a job to a runner, which has left the idle ones.
    fn give(&mut self, job: usize, runner: usize) {
        self.runner(runner, |runner, now| runner.busy(job, now));
        self.progress(job, |progress| progress.runner = Some(runner));
        let pool = self.runners.get(runner).map_or(0, |runner| runner.pool);
        let samples = self.scenario.pools.get(pool).map(|pool| &pool.pickups);
        let after = samples.and_then(|samples| samples.near(self.now, &mut self.pickups)).unwrap_or_default();
        self.agenda.note(self.now + after, Event::Started { job, runner });
        self.wake(pool, self.now);
    }

    fn begin_job(&mut self, index: usize, runner: usize) {
        let Some(job) = self.scenario.jobs.get(index) else { return };
        let now = self.now;
        self.progress(index, |progress| (progress.runner, progress.started) = (Some(runner), Some(now)));
        self.note(|story| story.started.push((job.id, now, runner)));
        let name = self.runners.get(runner).map(|runner| runner.name.clone());
        self.tell(index, State::InProgress, name);
        let called_off = job.cancelled.filter(|cancelled| *cancelled <= now).map(|_| 0);
        if let Some(runs) = called_off.or(job.runs) {
            self.agenda.note(now + runs, Event::Completed { job: index, runner });
        }
    }

    fn completed(&mut self, index: usize, id: usize) {
        let Some(progress) = self.progress.get(index).copied().filter(|progress| !progress.over) else { return };
        self.progress(index, |progress| progress.over = true);
        let Some((name, ephemeral, pool)) =
            self.runners.get(id).map(|runner| (runner.name.clone(), runner.facts.ephemeral, runner.pool))
        else {
            return;
        };
        self.tell(index, State::Completed, Some(name));
        let took = self.now - progress.started.unwrap_or(self.now);
        if let Some(pool) = self.scenario.jobs.get(index).and_then(|job| job.pool).and_then(|pool| self.pools.get_mut(pool)) {
            pool.runs.add(u32::try_from(took / 1000).unwrap_or(u32::MAX));
        }
        if ephemeral {
            self.runner(id, Runner::worked_until);
            let samples = self.scenario.pools.get(pool).map(|pool| &pool.lingers);
            let after = samples.and_then(|samples| samples.near(self.now, &mut self.lingers)).unwrap_or_default();
            self.agenda.note(self.now + after, Event::Stopped { runner: id, exit_code: 0 });
        } else {
            self.runner(id, |runner, now| runner.idle(id as u64 + 1, now));
            self.offer(id);
        }
        self.wake(pool, self.now);
    }

    fn stopped(&mut self, id: usize, exit_code: i32) {
        let Some(runner) = self.runners.get_mut(id).filter(|runner| runner.gone.is_none()) else { return };
        runner.stopped(exit_code, self.now);
        let pool = runner.pool;
        if let Some(pool) = self.pools.get_mut(pool) {
            pool.dead.push(id);
            pool.failed += u64::from(exit_code != 0);
        }
        self.calls.leave(pool, id);
        self.await_listing(id);
        self.wake(pool, self.now);
    }

    /// Something about a job becomes known to the autoscaler that counts it.
    fn tell(&mut self, index: usize, state: State, runner: Option<Arc<str>>) {
        let Some((job, pool)) = self.scenario.jobs.get(index).and_then(|job| Some((job, job.pool?))) else { return };
        let event = event(job, state, self.now, runner);
        if let Some(pool) = self.pools.get_mut(pool) {
            pool.receive(&event, at(self.now));
        }
        self.wake(pool, self.now);
    }

    fn make(&mut self, pool: usize, name: Option<Arc<str>>) -> usize {
        let index = self.runners.len();
        let Some(of) = self.pools.get_mut(pool) else { return index };
        let set = of.settings.pool.rsplit('/').next().unwrap_or_default();
        let was_there = name.is_some();
        let name = name.unwrap_or_else(|| Arc::from(name::runner(set, index as u64)));
        // A name that is drawn twice would make two runners one; the number in front tells them apart.
        let name = if of.fleet.present.contains(&name) { Arc::from(format!("{index}-{name}")) } else { name };
        of.fleet.present.insert(name.clone());
        let known = self.scenario.nodes.runners.get(&name).copied();
        let node = self.nodes.place(index, pool, known, self.now);
        self.runners.push(Runner::new(name, pool, node, of.settings.ephemeral, of.members.len(), self.now));
        of.members.push(index);
        match of.settings.volumes {
            0 => {}
            _ if was_there => of.volumes.keep(index, self.now),
            volumes => of.volumes.take(index, volumes, |runner| of.dead.contains(&runner), self.now),
        }
        index
    }

    /// A runner that was decided upon is made: how long that takes is drawn from what was recorded.
    fn create(&mut self, pool: usize, call: Call) {
        let id = self.make(pool, None);
        let samples = self.scenario.pools.get(pool).map(|pool| pool.reactions.to(call));
        let after = samples.and_then(|samples| samples.near(self.now, &mut self.reactions)).unwrap_or_default();
        self.runner(id, |runner, now| runner.created = now + after);
        self.start(id);
    }

    /// A runner starts. Whether it fails is taken from what was recorded; how long that takes is drawn from it.
    fn start(&mut self, id: usize) {
        let Some((pool, created)) = self.runners.get(id).map(|runner| (runner.pool, runner.created)) else { return };
        let samples = self.scenario.pools.get(pool).map(|pool| &pool.starts);
        match self.starts.get_mut(pool).zip(samples).and_then(|(turns, samples)| turns.near(samples, created, Start::is_alike)) {
            Some(Start::Online(after)) => self.agenda.note((created + after).max(self.now), Event::Online { runner: id }),
            Some(Start::Failed(after)) => {
                self.agenda.note((created + after).max(self.now), Event::Stopped { runner: id, exit_code: 1 });
            }
            None => {}
        }
        self.await_listing(id);
    }

    fn register(&mut self, id: usize) {
        self.runner(id, |runner, now| runner.idle(id as u64 + 1, now));
        let Some(runner) = self.runners.get(id) else { return };
        let (pool, took) = (runner.pool, self.now - runner.created);
        if let Some(pool) = self.pools.get_mut(pool) {
            self.calls.register(runner.pool, id);
            pool.came_online = true;
            pool.starts.add(u32::try_from(took / 1000).unwrap_or(u32::MAX));
        }
        self.wake(pool, self.now);
    }

    /// GitHub has a runner without a job.
    fn offer(&mut self, id: usize) {
        let Some(pool) = self.runners.get(id).map(|runner| runner.pool) else { return };
        if let Some(job) = self.github.offer(pool, id) {
            self.give(job, id);
        }
    }

    /// Takes a runner out of its pool.
    fn delete(&mut self, id: usize) {
        let Some(runner) = self.runners.get_mut(id).filter(|runner| runner.gone.is_none()) else { return };
        runner.gone = Some(self.now);
        self.nodes.leave(id, runner.pool, runner.is_idle(), self.now);
        let (pool, place, name) = (runner.pool, runner.place, runner.name.clone());
        self.github.leave(pool, id);
        self.calls.leave(pool, id);
        let Some(of) = self.pools.get_mut(pool) else { return };
        of.fleet.present.remove(&name);
        of.volumes.leave(id);
        of.members.swap_remove(place);
        let moved = of.members.get(place).copied();
        if let Some(moved) = moved.and_then(|moved| self.runners.get_mut(moved)) {
            moved.place = place;
        }
    }

    fn runner(&mut self, id: usize, change: impl FnOnce(&mut Runner, Moment)) {
        if let Some(runner) = self.runners.get_mut(id) {
            change(runner, self.now);
        }
    }

    fn note(&mut self, write: impl FnOnce(&mut Story)) {
        if let Some(story) = &mut self.story {
            write(story);
        }
    }

    fn progress(&mut self, job: usize, change: impl FnOnce(&mut Progress)) {
        if let Some(progress) = self.progress.get_mut(job) {
            change(progress);
        }
    }

    /// A pool is looked at then, or as soon after its last look as the operator does.
    fn wake(&mut self, pool: usize, when: Moment) {
        let Some(of) = self.pools.get_mut(pool) else { return };
        let when = when.max(self.now).max(of.last_pass + pool::PACE);
        if of.next_pass.is_none_or(|next| next > when) {
            of.next_pass = Some(when);
            self.agenda.note(when, Event::Pass { pool });
        }
    }

    fn end(self) -> Outcome {
        let ends = self.scenario.ends;
        let waited = |job: &Job, progress: &Progress| (progress.started.unwrap_or(ends) - job.queued).max(0);
        let mut tallies: Vec<(String, Tally)> =
            self.scenario.pools.iter().map(|pool| (pool.name.to_string(), Tally::default())).collect();
        for (job, progress) in self.scenario.jobs.iter().zip(&self.progress) {
            let Some((_, tally)) = job.pool.and_then(|pool| tallies.get_mut(pool)) else { continue };
            if job.has_a_wait() {
                tally.unstarted += u64::from(progress.started.is_none());
                tally.waits.push(waited(job, progress));
            }
        }
        let initial: usize = self.scenario.pools.iter().map(|pool| pool.initial.len()).sum();
        for (index, runner) in self.runners.iter().enumerate() {
            let Some((_, tally)) = tallies.get_mut(runner.pool) else { continue };
            let gone = runner.gone.unwrap_or(ends);
            tally.existed += (gone - runner.created).max(0);
            tally.starts += u64::from(index >= initial);
            tally.runners += u64::from(runner.gone.is_none());
            tally.idle += idle_time(runner, ends);
        }
        for ((_, tally), pool) in tallies.iter_mut().zip(&self.pools) {
            (tally.removals, tally.refused, tally.failed) = (pool.removals, pool.refused, pool.failed);
            tally.volumes = pool.volumes.used;
        }
        let asked: Vec<u64> = self.pools.iter().map(|pool| pool.removals + pool.refused).collect();
        let waits = Breakdown::of(self.scenario, |index| {
            self.scenario.jobs.get(index).zip(self.progress.get(index)).map_or(0, |(job, progress)| waited(job, progress))
        });
        let (pools, total) = together(tallies, self.nodes.end(ends), self.calls.end(&asked));
        Outcome { pools, total, waits, events: self.events }
    }
}

/// Time online without a job. An ephemeral runner has none after its job.
fn idle_time(runner: &Runner, ends: Moment) -> Moment {
    let Some(online) = runner.online else { return 0 };
    let until = match (runner.facts.ephemeral && runner.job.is_some(), runner.gone) {
        (true, _) => runner.first_work.unwrap_or(ends),
        (false, gone) => gone.unwrap_or(ends),
    };
    let worked = if runner.facts.ephemeral { 0 } else { runner.worked + runner.busy_since.map_or(0, |since| ends - since) };
    (until - online - worked).max(0)
}

fn event(job: &Job, state: State, now: Moment, runner: Option<Arc<str>>) -> JobEvent {
    JobEvent {
        id: job.id,
        state,
        at: at(if state == State::Queued { job.queued } else { now }),
        queued_at: at(job.queued),
        repository: job.repository.clone(),
        workflow: job.workflow.clone(),
        labels: job.labels.clone(),
        attempt: job.attempt,
        runner,
        origin: Arc::default(),
    }
}
