//! What a trace gives a simulation: arrivals, run times, samples of starts, and how everything stood at its beginning.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use pacer_core::target::{self, Platform};
use pacer_trace::{End, History, JobLife, PoolSettings, RunnerLife};

use crate::agenda::{Moment, moment};
use crate::calls::Scopes;
use crate::nodes::RecordedNodes;
use crate::reaction::{Reactions, reactions};
use crate::samples::{NEAR, Samples};

/// Assumed for a pool of whose starts none was recorded, where nothing else is told.
const UNKNOWN_START: Duration = Duration::from_secs(30);

/// An edit is seen so long before the operator's verdict on it at the most.
const VERDICT: Moment = 3_000;

/// Why a trace can't be simulated.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    /// The trace has no settings of any pool.
    #[error(
        "the trace has no settings of any pool: record where RunnerDeployments or RunnerSets with HorizontalRunnerAutoscalers are"
    )]
    NoPool,
    /// No job was queued after the beginning of the trace.
    #[error("the trace has no job that was queued after its beginning: record for longer, or while jobs run")]
    NoJob,
}

/// One start of a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Start {
    /// Online after so many milliseconds.
    Online(Moment),
    /// Ended after so many milliseconds without coming online.
    Failed(Moment),
}

impl Start {
    /// Whether both come online, or neither does.
    pub(crate) fn is_alike(self, other: Self) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}

/// A job of the trace, as it is simulated.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) id: u64,
    pub(crate) repository: Arc<str>,
    pub(crate) workflow: Arc<str>,
    pub(crate) labels: Arc<[Arc<str>]>,
    pub(crate) attempt: u32,
    /// The pool whose autoscaler counts it; none where none fits.
    pub(crate) pool: Option<usize>,
    pub(crate) queued: Moment,
    /// When it starts to wait here: later than it was queued where it was queued before the trace begins.
    pub(crate) arrives: Moment,
    /// How long it runs; none where its end is not in the trace.
    pub(crate) runs: Option<Moment>,
    /// When it is called off, where it never started.
    pub(crate) cancelled: Option<Moment>,
    /// It runs when the trace begins.
    pub(crate) runs_already: bool,
    /// The runner that had it, where that is known.
    pub(crate) runner: Option<Arc<str>>,
    /// It was queued after the beginning, so its wait counts.
    pub(crate) counts: bool,
}

/// A pool of the trace: its settings over time, and the durations that were recorded of it.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    pub(crate) name: Arc<str>,
    pub(crate) settings: Vec<(Moment, PoolSettings)>,
    /// From when a runner was called for until it was made.
    pub(crate) reactions: Reactions,
    pub(crate) starts: Samples<Start>,
    /// From a job's end until its ephemeral runner is gone.
    pub(crate) lingers: Samples<Moment>,
    /// From when a runner and a job were there until the job started.
    pub(crate) pickups: Samples<Moment>,
    /// Runners that were there at the beginning, and those of them that were online.
    pub(crate) initial: Vec<(Arc<str>, bool)>,
}

/// A trace as it is simulated: its jobs, pools and nodes, and how long things took.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub(crate) begins: Moment,
    pub(crate) ends: Moment,
    pub(crate) jobs: Vec<Job>,
    pub(crate) pools: Vec<Pool>,
    pub(crate) nodes: RecordedNodes,
    scopes: Scopes,
    notes: Vec<String>,
    /// A job was queued after the beginning.
    has_arrivals: bool,
}

impl Scenario {
    /// Takes it from the lives in a trace.
    ///
    /// # Errors
    ///
    /// When there is nothing to simulate.
    pub fn of(history: &History) -> Result<Self, ScenarioError> {
        Self::assuming(history, UNKNOWN_START)
    }

    /// The same, with so long a start in pools of which none was recorded.
    ///
    /// # Errors
    ///
    /// When there is nothing to simulate.
    pub fn assuming(history: &History, start: Duration) -> Result<Self, ScenarioError> {
        let scenario = Self::laid_out(history, start);
        if scenario.pools.is_empty() {
            return Err(ScenarioError::NoPool);
        }
        if !scenario.has_arrivals {
            return Err(ScenarioError::NoJob);
        }
        Ok(scenario)
    }

    /// What is there to be counted, also where that is too little to simulate.
    #[must_use]
    pub fn counted(history: &History) -> Self {
        Self::laid_out(history, UNKNOWN_START)
    }

    fn laid_out(history: &History, start: Duration) -> Self {
        let (begins, ends) = (moment(history.started), moment(history.ended));
        let mut notes = Vec::new();
        let mut pools: Vec<Pool> = Vec::new();
        for (name, life) in history.pools.iter().filter(|(_, life)| !life.settings.is_empty()) {
            pools.push(pool(name, &life.settings, history, (begins, start), &mut notes));
        }
        let index: BTreeMap<Arc<str>, usize> = pools.iter().enumerate().map(|(index, pool)| (pool.name.clone(), index)).collect();
        let mut homeless = 0_u64;
        let mut jobs = Vec::new();
        let mut of_pools: Vec<Vec<&JobLife>> = vec![Vec::new(); pools.len()];
        for (id, life) in &history.jobs {
            let known = life.about.pool.as_ref().and_then(|pool| index.get(pool)).copied();
            let pool = known.or_else(|| pools.iter().position(|pool| pool.fits(&life.about.labels)));
            homeless += u64::from(pool.is_none());
            jobs.extend(job(*id, life, pool, history, begins, ends));
            if let Some(of_pool) = pool.and_then(|pool| of_pools.get_mut(pool)) {
                of_pool.push(life);
            }
        }
        for (pool, jobs) in pools.iter_mut().zip(&of_pools) {
            pool.reactions = reactions(&pool.name, &pool.settings, jobs.iter().copied(), history);
        }
        jobs.sort_by_key(|job: &Job| (job.arrives, job.id));
        let has_arrivals = jobs.iter().any(|job| job.counts);
        if homeless > 0 {
            notes.push(format!("{homeless} jobs fit no pool of the trace and are left out"));
            jobs.retain(|job| job.pool.is_some());
        }
        if !history.gaps.is_empty() {
            notes.push(format!("nobody recorded {} times in between: what happened then is incomplete", history.gaps.len()));
        }
        let scopes = Scopes::of(pools.iter().map(Pool::scope));
        Self { begins, ends, jobs, pools, nodes: RecordedNodes::of(history), scopes, notes, has_arrivals }
    }

    /// What limits how far the result can be believed.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Jobs whose wait counts.
    #[must_use]
    pub fn jobs(&self) -> usize {
        self.jobs.iter().filter(|job| job.counts).count()
    }

    /// Jobs that come, whether their wait counts or not.
    #[must_use]
    pub fn arrivals(&self) -> usize {
        self.jobs.len()
    }

    /// Where its pools are registered.
    pub(crate) fn scopes(&self) -> &Scopes {
        &self.scopes
    }

    /// Names of the pools, in order.
    pub fn pools(&self) -> impl Iterator<Item = &str> {
        self.pools.iter().map(|pool| pool.name.as_ref())
    }
}

impl Pool {
    /// Where its runners are registered.
    fn scope(&self) -> Option<&Arc<str>> {
        // A pool that is gone at the end has none there.
        self.settings.iter().rev().find_map(|(_, settings)| settings.scope.as_ref())
    }

    /// Whether its runners can take a job that asks for these labels, by any of its settings.
    pub(crate) fn fits(&self, labels: &[Arc<str>]) -> bool {
        let wanted: Vec<&str> = labels.iter().map(AsRef::as_ref).collect();
        self.settings.last().is_some_and(|(_, settings)| {
            let has: Vec<&str> = settings.labels.iter().map(AsRef::as_ref).collect();
            // Traces do not tell what runners run on.
            target::fits(&wanted, &has, Platform::default())
        })
    }
}

fn job(id: u64, life: &JobLife, pool: Option<usize>, history: &History, begins: Moment, ends: Moment) -> Option<Job> {
    let queued = moment(life.queued);
    let completed = life.completed.map(moment);
    if completed.is_some_and(|completed| completed <= begins) || queued > ends {
        return None;
    }
    let started = life.started.map(moment);
    if started.is_none() && completed.is_some() && life.runner.is_some() {
        // It ran, and nobody saw when it began.
        return None;
    }
    // The end of its runner is the end of a job.
    let of_runner = || life.runner.as_ref().and_then(|runner| history.runners.get(runner)?.ended).map(|(at, _)| moment(at));
    let over = completed.or_else(|| started.and_then(|_| of_runner()));
    let runs_already = started.is_some_and(|started| started < begins);
    let runs = started.and_then(|started| Some(over? - started.max(begins)));
    Some(Job {
        id,
        repository: life.about.repository.clone(),
        workflow: life.about.workflow.clone(),
        labels: life.about.labels.clone(),
        attempt: life.about.attempt,
        pool,
        queued,
        arrives: queued.max(begins),
        runs: runs.map(|runs| runs.max(0)),
        cancelled: completed.filter(|_| started.is_none()),
        runs_already,
        runner: life.runner.clone(),
        counts: queued >= begins,
    })
}

fn pool(
    name: &Arc<str>,
    settings: &[(Timestamp, PoolSettings)],
    history: &History,
    (begins, assumed): (Moment, Duration),
    notes: &mut Vec<String>,
) -> Pool {
    let mut settings: Vec<(Moment, PoolSettings)> =
        settings.iter().map(|(at, settings)| (moment(*at).max(begins), settings.clone())).collect();
    refuse_edits(&mut settings);
    for field in settings.iter().flat_map(|(_, settings)| &settings.unrecorded) {
        let note = format!("pool {name}: {field} changes its number and is not simulated");
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    let runners: Vec<(&Arc<str>, &RunnerLife)> = history.runners.iter().filter(|(_, life)| life.pool == *name).collect();
    let worked = worked(name, history);
    let mut starts = starts(&runners, &worked);
    if !starts.iter().any(|(_, start)| matches!(start, Start::Online(_))) {
        notes.push(format!("pool {name}: no start of a runner is in the trace, so {} s is assumed", assumed.as_secs_f64()));
        let assumed = i64::try_from(assumed.as_millis()).unwrap_or(i64::MAX / 4);
        starts.push((begins, Start::Online(assumed)));
    }
    let there = |life: &RunnerLife| moment(life.created) <= begins && life.ended.is_none_or(|(ended, _)| moment(ended) > begins);
    let initial = runners
        .iter()
        .filter(|(_, life)| there(life))
        .map(|(name, life)| ((*name).clone(), life.registered.is_some_and(|registered| moment(registered) <= begins)));
    let (lingers, pickups) = after_jobs(worked, history);
    Pool {
        name: name.clone(),
        settings,
        reactions: Reactions::default(),
        starts: Samples::of(starts),
        lingers,
        pickups,
        initial: initial.collect(),
    }
}

/// Settings that turn out to be refused never were in force, although a watch shows an edit before the verdict on it.
fn refuse_edits(settings: &mut [(Moment, PoolSettings)]) {
    let mut refused: Option<(Moment, PoolSettings)> = None;
    for (at, settings) in settings.iter_mut().rev() {
        let same = PoolSettings { refused: true, ..settings.clone() };
        settings.refused |= refused.as_ref().is_some_and(|(verdict, refused)| *verdict - *at <= VERDICT && *refused == same);
        refused = settings.refused.then_some((*at, same));
    }
}

fn start(life: &RunnerLife) -> Option<Start> {
    let after = |at: Timestamp| (moment(at) - moment(life.created)).max(0);
    match (life.registered, life.ended) {
        (Some(registered), _) => Some(Start::Online(after(registered))),
        (None, Some((ended, End::Failed))) => Some(Start::Failed(after(ended))),
        // It was given up while it started, or is still starting.
        (None, _) => None,
    }
}

/// Jobs by the runner that they ran on.
type Worked<'a> = BTreeMap<&'a Arc<str>, Vec<&'a JobLife>>;

/// What the runners of a pool worked on.
fn worked<'a>(pool: &Arc<str>, history: &'a History) -> Worked<'a> {
    let mut worked = Worked::new();
    for job in history.jobs.values() {
        if let Some(runner) = &job.runner
            && history.runners.get(runner).is_some_and(|life| life.pool == *pool)
        {
            worked.entry(runner).or_default().push(job);
        }
    }
    worked
}

/// Starts in the order of time. When a runner came online is known from the job that waited for it; otherwise from a listing, which is later, or from a
/// job that came later. A start of the second kind took as long as the next one of the first kind, if that is less.
fn starts(runners: &[(&Arc<str>, &RunnerLife)], worked: &Worked<'_>) -> Vec<(Moment, Start)> {
    let waited_for = |name: &&Arc<str>, life: &RunnerLife| {
        let mut jobs = worked.get(name).into_iter().flatten();
        jobs.any(|job| job.queued <= life.created && job.started == life.registered)
    };
    let mut starts: Vec<(Moment, Start, bool)> =
        runners.iter().filter_map(|(name, life)| Some((moment(life.created), start(life)?, waited_for(name, life)))).collect();
    starts.sort_unstable();
    let known: Vec<(usize, Moment)> = (0..)
        .zip(&starts)
        .filter_map(|(position, (_, start, known))| match start {
            Start::Online(took) if *known => Some((position, *took)),
            _ => None,
        })
        .collect();
    let next_to = |position: usize| {
        let after = known.partition_point(|(known, _)| *known < position);
        let beside = known.get(after.saturating_sub(1)..known.len().min(after + 1)).unwrap_or_default();
        beside.iter().min_by_key(|(known, _)| known.abs_diff(position))
    };
    let own = |(position, (created, start, known)): (usize, &(Moment, Start, bool))| match (start, next_to(position)) {
        (Start::Online(took), Some((next, exact))) if !known && next.abs_diff(position) <= NEAR / 2 => {
            (*created, Start::Online(*took.min(exact)))
        }
        _ => (*created, *start),
    };
    (0..).zip(&starts).map(own).collect()
}

/// Times around the jobs that ran in a pool: from a job's end to its runner's, and from when both were there to the job's start.
fn after_jobs(worked: Worked<'_>, history: &History) -> (Samples<Moment>, Samples<Moment>) {
    let (mut lingers, mut pickups) = (Vec::new(), Vec::new());
    for (runner, mut jobs) in worked {
        let Some(life) = history.runners.get(runner) else { continue };
        jobs.sort_by_key(|job| job.started);
        let mut free = life.registered.map(moment);
        for job in &jobs {
            if let Some((free, started)) = free.zip(job.started.map(moment)) {
                pickups.push((started, (started - free.max(moment(job.queued))).max(0)));
            }
            free = job.completed.map(moment);
        }
        if let (Some(free), Some((ended, End::Finished))) = (free, life.ended) {
            lingers.push((free, (moment(ended) - free).max(0)));
        }
    }
    (Samples::of(lingers), Samples::of(pickups))
}
