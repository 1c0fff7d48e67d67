//! What a trace tells of one moment, in the form that the page shows. What a trace does not hold is left out: why jobs wait, and what GitHub said.
//!
//! So that a moment is found without all records before it, what they came to is kept every so many of them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use jiff::{RoundMode, Timestamp, TimestampRound, Unit};
use pacer_core::spend::Spending;
use pacer_operator::snapshot::{
    Budget, Cause, Counts, Credentials, Decision, Failure, JOBS, Job, JobState, LeftOut, Listing, Operator, Pool, Reason, Role,
    Runner, RunningJob, Section, Snapshot, VERSION, WaitBins, expenses, shown, sight,
};
use pacer_operator::standing::State;
use pacer_trace::surroundings::{self, Listings, Room};
use pacer_trace::{About, End, PoolName, PoolSettings, Record, Trace, What};

/// The newest decisions, and the newest failures, that are shown.
const NEWEST: usize = 200;

/// Records between two checkpoints at least.
const EVERY: usize = 1_000;

/// What decisions about a number are called.
const CAPACITY: &str = "capacity";

/// Checkpoints of a trace.
const CHECKPOINTS: usize = 64;

/// Jobs, runners and the like in all checkpoints: some 100 MiB.
const THINGS: usize = 500_000;

/// A trace to look into.
#[derive(Debug)]
pub(super) struct Past {
    by: String,
    /// All records, in the order of time.
    records: Vec<Record>,
    /// What the records before some of them came to; the first is the beginning.
    checkpoints: Checkpoints,
    /// When the trace begins.
    pub(super) from: Timestamp,
    /// When the trace ends: the time of its last record, rounded up to a millisecond.
    pub(super) to: Timestamp,
}

impl Past {
    /// Sorts the records of a trace and makes its checkpoints.
    pub(super) fn of(trace: Trace) -> Self {
        let Trace { header, mut records } = trace;
        // What was learned afterwards is about an earlier moment.
        records.sort_by_key(|record| record.at);
        let to = records.last().map_or(header.started, |record| record.at.max(header.started));
        // Browsers know milliseconds: the last of them would be before the last record.
        let to = to.round(TimestampRound::new().smallest(Unit::Millisecond).mode(RoundMode::Ceil)).unwrap_or(to);
        let checkpoints = Checkpoints::of(&records, CHECKPOINTS, THINGS);
        Self { by: header.by, records, checkpoints, from: header.started, to }
    }

    /// What there was at a moment.
    pub(super) fn at(&self, at: Timestamp) -> Snapshot {
        self.scene(at).0.snapshot(&self.by, at)
    }

    /// What the records up to a moment come to, and how many of them were read for it.
    fn scene(&self, at: Timestamp) -> (Scene, usize) {
        let until = self.records.partition_point(|record| record.at <= at);
        let (begin, mut scene) = self.checkpoints.before(until);
        let read = self.records.get(begin..until).unwrap_or_default();
        read.iter().for_each(|record| scene.take(record));
        (scene, read.len())
    }
}

/// Scenes at moments of a trace.
#[derive(Debug)]
struct Checkpoints {
    /// Records from one to the next.
    every: usize,
    /// Behind none, `every`, twice `every` ... records.
    scenes: Vec<Scene>,
}

impl Checkpoints {
    /// At most so many, with at most so many things in all of them; the closer together the shorter the trace.
    fn of(records: &[Record], most: usize, things: usize) -> Self {
        let mut all = Self { every: EVERY, scenes: vec![Scene::default()] };
        let (mut scene, mut kept) = (Scene::default(), 0_usize);
        for (taken, record) in (1_usize..).zip(records) {
            scene.take(record);
            if !taken.is_multiple_of(all.every) {
                continue;
            }
            kept = kept.saturating_add(scene.things());
            all.scenes.push(scene.clone());
            while all.scenes.len() > 1 && (all.scenes.len() > most || kept > things) {
                kept = all.thin_out();
            }
        }
        all
    }

    /// Keeps every other one; how many things they hold.
    fn thin_out(&mut self) -> usize {
        self.every = self.every.saturating_mul(2);
        let mut keep = [true, false].into_iter().cycle();
        self.scenes.retain(|_| keep.next().unwrap_or(true));
        self.scenes.iter().map(Scene::things).sum()
    }

    /// The last one behind no more than so many records, and behind how many it is.
    fn before(&self, records: usize) -> (usize, Scene) {
        let place = records.checked_div(self.every).unwrap_or_default().min(self.scenes.len().saturating_sub(1));
        (place.saturating_mul(self.every), self.scenes.get(place).cloned().unwrap_or_default())
    }
}

/// What records have said so far. Clones share what does not change.
#[derive(Clone, Debug, Default)]
struct Scene {
    taken: u64,
    pools: BTreeMap<Arc<str>, PoolNow>,
    jobs: BTreeMap<u64, JobNow>,
    runners: BTreeMap<Arc<str>, RunnerNow>,
    decisions: VecDeque<(u64, Arc<Decision>)>,
    failures: VecDeque<(u64, Arc<Failure>)>,
    failed: Option<Cause>,
    credentials: BTreeMap<Arc<str>, Credentials>,
    listings: BTreeMap<String, Arc<Listing>>,
    /// A trace has no prices.
    spending: Spending,
    waits: WaitBins,
}

#[derive(Clone, Debug)]
struct PoolNow {
    settings: Arc<PoolSettings>,
    desired: u32,
    room: Option<Arc<Room>>,
    /// Why its number is this one.
    why: Arc<str>,
}

#[derive(Clone, Debug)]
struct JobNow {
    about: About,
    queued: Timestamp,
    since: Timestamp,
    state: JobState,
    runner: Option<Arc<str>>,
}

#[derive(Clone, Debug)]
struct RunnerNow {
    pool: Arc<str>,
    created: Timestamp,
    state: State,
    since: Timestamp,
    node: Option<Arc<str>>,
    job: Option<u64>,
}

/// A trace does not tell why a runner failed.
const UNKNOWN: &str = "unknown";

impl Scene {
    /// How much it holds.
    fn things(&self) -> usize {
        let (lists, maps) = (self.decisions.len() + self.failures.len(), self.credentials.len() + self.listings.len());
        self.pools.len() + self.jobs.len() + self.runners.len() + lists + maps + self.spending.things() + self.waits.things()
    }

    fn take(&mut self, record: &Record) {
        self.taken = self.taken.saturating_add(1);
        let at = record.at;
        match &record.what {
            What::Pool(settings) => {
                let known = self.pools.get(&settings.pool);
                let (room, why) = known.map(|pool| (pool.room.clone(), pool.why.clone())).unwrap_or_default();
                let now = PoolNow { settings: Arc::new(settings.clone()), desired: settings.replicas, room, why };
                self.pools.insert(settings.pool.clone(), now);
            }
            What::JobQueued { job, about } => {
                let about = about.clone();
                let new = JobNow { about, queued: at, since: at, state: JobState::Queued, runner: None };
                self.jobs.entry(*job).or_insert(new);
            }
            What::JobAssigned { job, runner } => self.job(*job, |job| job.runner = Some(runner.clone())),
            What::JobStarted { job, runner } => self.starts(*job, runner.as_ref(), at),
            What::JobCompleted { job } => self.completes(*job, at),
            What::RunnerCreated { runner, pool } => {
                let pool = pool.clone();
                let new = RunnerNow { pool, created: at, state: State::Pending, since: at, node: None, job: None };
                self.runners.entry(runner.clone()).or_insert(new);
                self.spend(runner, at);
            }
            What::RunnerPlaced { runner, node } => {
                self.runner(runner, |runner| runner.node = Some(node.clone()));
                self.stands(runner, State::Starting, at, &[State::Pending]);
            }
            What::RunnerRegistered { runner } => self.stands(runner, State::Idle, at, &[State::Pending, State::Starting]),
            What::RunnerBusy { runner } => {
                self.stands(runner, State::Busy, at, &[State::Pending, State::Starting, State::Idle]);
            }
            What::RunnerIdle { runner } => {
                self.runner(runner, |runner| runner.job = None);
                self.stands(runner, State::Idle, at, &[State::Busy]);
            }
            What::RunnerEnded { runner, why } => self.ends(runner, *why, at),
            What::Decision { pool, from, to, why, .. } => self.decides(pool, (*from, *to), why, at),
            // The number is told by its change already.
            What::Receipt { decision, .. } if **decision == *CAPACITY => {}
            What::Receipt { pool, decision, policy, summary, .. } => {
                self.decided(pool, (decision, policy), summary.clone(), at);
            }
            What::Room(room) => {
                if let Some(pool) = self.pools.get_mut(room.pool.as_ref()) {
                    pool.room = (room.waiting > 0).then(|| Arc::new(room.clone()));
                }
            }
            What::Listings(listings) => self.listed(listings),
            What::Budget(budget) => self.budget(budget),
            What::Node(_) | What::Resumed { .. } | What::Checkpoint {} | What::Unknown => {}
        }
    }

    fn job(&mut self, id: u64, change: impl FnOnce(&mut JobNow)) {
        if let Some(job) = self.jobs.get_mut(&id) {
            change(job);
        }
    }

    fn runner(&mut self, name: &str, change: impl FnOnce(&mut RunnerNow)) {
        if let Some(runner) = self.runners.get_mut(name) {
            change(runner);
        }
    }

    /// A runner comes into a state from one of these.
    fn stands(&mut self, name: &Arc<str>, state: State, at: Timestamp, from: &[State]) {
        self.runner(name, |runner| {
            if from.contains(&runner.state) {
                (runner.state, runner.since) = (state, at);
            }
        });
        self.spend(name, at);
    }

    fn starts(&mut self, id: u64, named: Option<&Arc<str>>, at: Timestamp) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if let Some(pool) = job.about.pool.as_deref().filter(|_| job.state == JobState::Queued) {
            self.waits.started(&key(pool), &job.about.labels, job.queued, at, at);
        }
        (job.state, job.since, job.runner) = (JobState::Running, at, named.cloned().or(job.runner.take()));
        if let Some(runner) = job.runner.as_ref().and_then(|runner| self.runners.get_mut(runner)) {
            (runner.state, runner.since, runner.job) = (State::Busy, at, Some(id));
        }
        if let Some(runner) = self.jobs.get(&id).and_then(|job| job.runner.clone()) {
            self.spend(&runner, at);
        }
    }

    fn completes(&mut self, id: u64, at: Timestamp) {
        let Some(job) = self.jobs.remove(&id) else { return };
        let runner = job.runner.as_ref().and_then(|runner| self.runners.get_mut(runner));
        let Some(runner) = runner.filter(|runner| runner.job == Some(id)) else { return };
        let ephemeral = self.pools.get(&runner.pool).is_none_or(|pool| pool.settings.ephemeral);
        (runner.job, runner.state, runner.since) = (None, if ephemeral { State::Ended } else { State::Idle }, at);
        if let Some(name) = job.runner {
            self.spend(&name, at);
        }
    }

    /// What a runner does from now on.
    fn spend(&mut self, name: &Arc<str>, at: Timestamp) {
        if let Some(runner) = self.runners.get(name) {
            let seen = sight(&self.told(name, runner).1, None);
            self.spending.see(name, seen, at);
        }
    }

    fn ends(&mut self, name: &str, why: End, at: Timestamp) {
        self.spending.gone(name, at);
        let Some(runner) = self.runners.remove(name).filter(|_| why == End::Failed) else { return };
        let cause = self.failed.get_or_insert_with(|| Cause { cause: UNKNOWN.to_owned(), now: 0, total: 0, last: None });
        (cause.total, cause.last) = (cause.total.saturating_add(1), Some(at));
        let failure = Failure {
            at,
            namespace: namespace(&runner.pool).to_owned(),
            runner: name.to_owned(),
            pool: key(&runner.pool),
            situation: "never-registered".to_owned(),
            cause: UNKNOWN.to_owned(),
            message: "its Runner was gone before GitHub had seen it".to_owned(),
        };
        keep(&mut self.failures, self.taken, failure);
    }

    fn decides(&mut self, pool: &str, (from, to): (u32, u32), why: &str, at: Timestamp) {
        if let Some(pool) = self.pools.get_mut(pool) {
            (pool.desired, pool.why) = (to, why.into());
        }
        let summary = if why.is_empty() { format!("{from} to {to}") } else { format!("{from} to {to}: {why}") };
        self.decided(pool, (CAPACITY, ""), summary, at);
    }

    fn decided(&mut self, pool: &str, (decision, policy): (&str, &str), summary: String, at: Timestamp) {
        let (decision, policy) = (decision.to_owned(), policy.to_owned());
        let decision = Decision { at, pool: key(pool), decision, policy, summary, items: Vec::new(), more: 0 };
        keep(&mut self.decisions, self.taken, decision);
    }

    fn account(&mut self, name: &Arc<str>) -> &mut Credentials {
        self.credentials.entry(name.clone()).or_insert_with(|| Credentials {
            name: name.to_string(),
            // Neither is recorded.
            kind: String::new(),
            calls: BTreeMap::new(),
            budgets: Vec::new(),
            secondary_until: None,
            held_back: 0,
        })
    }

    fn listed(&mut self, listings: &Listings) {
        self.account(&listings.credentials);
        for scope in &listings.scopes {
            let listing = Listing {
                credentials: listings.credentials.to_string(),
                scope: scope.scope.to_string(),
                at: scope.began,
                runners: usize::try_from(scope.runners).unwrap_or(usize::MAX),
                failures: scope.failures,
                error: None,
            };
            self.listings.insert(format!("{}/{}", listings.credentials, scope.scope), Arc::new(listing));
        }
    }

    fn budget(&mut self, budget: &surroundings::Budget) {
        let account = self.account(&budget.credentials);
        account.held_back = account.held_back.saturating_add(budget.held_back);
        account.secondary_until = budget.secondary_until;
        let windows = budget.windows.iter().map(|window| Budget {
            resource: window.resource.to_string(),
            owner: window.owner.as_ref().map(ToString::to_string),
            limit: window.limit,
            remaining: window.remaining,
            resets_at: window.resets_at,
        });
        account.budgets = windows.collect();
    }

    fn snapshot(self, by: &str, at: Timestamp) -> Snapshot {
        let runners: Section<Runner> = self.runners.iter().map(|(name, runner)| self.told(name, runner)).collect();
        let pools = self.pools.values().map(|pool| of_pool(pool, &runners)).collect();
        let (runners, more_runners) = shown(runners);
        let left_out = LeftOut { runners: more_runners, jobs: self.jobs.len().saturating_sub(JOBS) };
        let operator = Operator { role: Role::Acting, version: by.to_owned(), left_out, ..Operator::default() };
        let mut jobs: Vec<(&u64, &JobNow)> = self.jobs.iter().collect();
        jobs.sort_by_key(|(id, job)| (job.state == JobState::Running, job.queued, **id));
        let jobs = jobs.into_iter().take(JOBS).map(|(id, job)| of_job(*id, job)).collect();
        let numbered = |number: u64| format!("{number:012}");
        Snapshot {
            version: VERSION,
            number: self.taken,
            at,
            operator,
            pools,
            runners,
            jobs,
            decisions: self.decisions.into_iter().map(|(number, one)| (numbered(number), one)).collect(),
            credentials: self.credentials.into_iter().map(|(name, one)| (name.to_string(), Arc::new(one))).collect(),
            listings: self.listings,
            failures: self.failures.into_iter().map(|(number, one)| (numbered(number), one)).collect(),
            causes: self.failed.into_iter().map(|cause| (cause.cause.clone(), Arc::new(cause))).collect(),
            expenses: expenses(&self.spending, false),
            waits: self.waits.told(at),
            // What policies in shadow answered is not recorded.
            ..Snapshot::default()
        }
    }

    fn told(&self, name: &str, runner: &RunnerNow) -> (String, Arc<Runner>) {
        let pool = self.pools.get(&runner.pool);
        let job = runner.job.and_then(|id| Some((id, self.jobs.get(&id)?)));
        let told = Runner {
            namespace: namespace(&runner.pool).to_owned(),
            name: name.to_owned(),
            pool: Some(key(&runner.pool)),
            node: runner.node.as_ref().map(ToString::to_string),
            state: runner.state,
            since: runner.since,
            created: runner.created,
            ephemeral: pool.is_none_or(|pool| pool.settings.ephemeral),
            protected: false,
            job: job.map(|(id, job)| RunningJob {
                id,
                repository: job.about.repository.to_string(),
                workflow: job.about.workflow.to_string(),
                since: job.since,
            }),
            trouble: None,
        };
        (format!("{}/{name}", told.namespace), Arc::new(told))
    }
}

/// Adds one, and drops the oldest where there are `NEWEST` already.
fn keep<T>(kept: &mut VecDeque<(u64, Arc<T>)>, number: u64, one: T) {
    if kept.len() >= NEWEST {
        kept.pop_front();
    }
    kept.push_back((number, Arc::new(one)));
}

/// Key of a pool.
fn key(pool: &str) -> String {
    let PoolName { kind, namespace, name } = PoolName::of(pool);
    format!("{}/{namespace}/{name}", kind.as_str())
}

fn namespace(pool: &str) -> &str {
    PoolName::of(pool).namespace
}

fn of_pool(pool: &PoolNow, runners: &Section<Runner>) -> (String, Arc<Pool>) {
    let PoolNow { settings, desired, room, why } = pool;
    let (key, PoolName { kind, namespace, name }) = (key(&settings.pool), PoolName::of(&settings.pool));
    let mut counts = Counts::default();
    for runner in runners.values().filter(|runner| runner.pool.as_deref() == Some(&key)) {
        counts.add(runner.state);
    }
    let limit = match room {
        Some(room) => Reason { word: "NoRoom".to_owned(), text: format!("for {} runners: {}", room.waiting, room.message) },
        None => Reason { word: String::new(), text: why.to_string() },
    };
    let told = Pool {
        kind: kind.as_str().to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        labels: settings.labels.iter().map(ToString::to_string).collect(),
        min: Some(settings.min),
        max: Some(settings.max),
        desired: *desired,
        actual: counts.alive(),
        counts,
        // Each has one, whose name is not recorded.
        autoscaler: None,
        policies: settings.policies.clone(),
        limit: Some(limit),
        online_after: None,
    };
    (key, Arc::new(told))
}

fn of_job(id: u64, job: &JobNow) -> (String, Arc<Job>) {
    let pool = job.about.pool.as_deref();
    let told = Job {
        id,
        autoscaler: String::new(),
        pool: pool.map(key),
        repository: job.about.repository.to_string(),
        workflow: job.about.workflow.to_string(),
        labels: job.about.labels.iter().map(ToString::to_string).collect(),
        attempt: job.about.attempt,
        state: job.state,
        queued: job.queued,
        since: job.since,
        runner: job.runner.as_ref().map(ToString::to_string),
        // Both need why it waits.
        place: None,
        waiting: None,
        reason: None,
        reason_since: None,
        estimate: None,
    };
    (format!("{}/{id}", pool.unwrap_or_default()), Arc::new(told))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;

    fn at(minute: i64) -> Timestamp {
        "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap() + jiff::SignedDuration::from_mins(minute)
    }

    /// A job that waits for room, runs and ends, a runner that fails, and what GitHub has left.
    pub(in crate::ui) fn trace() -> Trace {
        let budget = |left: u32| {
            json!({"kind": "budget", "credentials": "default", "heldBack": 2, "windows": [
                {"resource": "core", "limit": 5000, "used": 5000 - left, "remaining": left, "resetsAt": at(30)},
            ]})
        };
        let scope = |failures: u32| json!([{"scope": "acme", "listings": 3, "began": at(3), "runners": 7, "failures": failures}]);
        let records = [
            (
                0,
                json!({
                    "kind": "pool", "pool": "ci/web", "labels": ["web"], "ephemeral": true, "min": 0, "max": 8, "replicas": 0,
                    "scaleDownDelaySeconds": 600, "jobLifeSeconds": 600, "webhooks": true,
                }),
            ),
            (
                1,
                json!({"kind": "job-queued", "job": 7, "repository": "acme/app", "workflow": "build", "labels": ["web"], "attempt": 1, "pool": "ci/web"}),
            ),
            (1, json!({"kind": "decision", "pool": "ci/web", "from": 0, "to": 2, "why": "1 job waits"})),
            (1, json!({"kind": "runner-created", "runner": "web-a", "pool": "ci/web"})),
            (1, json!({"kind": "runner-created", "runner": "web-b", "pool": "ci/web"})),
            (2, json!({"kind": "room", "pool": "ci/web", "waiting": 2, "message": "0/3 nodes are available"})),
            (4, json!({"kind": "listings", "credentials": "default", "scopes": scope(0)})),
            (4, budget(4_000)),
            (5, json!({"kind": "room", "pool": "ci/web", "waiting": 0})),
            (5, json!({"kind": "runner-placed", "runner": "web-a", "node": "node-1"})),
            (6, json!({"kind": "runner-registered", "runner": "web-a"})),
            (7, json!({"kind": "job-started", "job": 7, "runner": "web-a"})),
            (8, json!({"kind": "runner-ended", "runner": "web-b", "why": "failed"})),
            (8, json!({"kind": "job-completed", "job": 7})),
            (9, json!({"kind": "listings", "credentials": "default", "scopes": scope(4)})),
            (9, budget(100)),
        ];
        let records = records.into_iter().map(|(minute, mut record)| {
            record["at"] = json!(at(minute));
            serde_json::from_value(record).unwrap()
        });
        Trace { header: pacer_trace::Header::new(at(0)), records: records.collect() }
    }

    #[test]
    fn each_moment_shows_what_had_been_recorded_by_then() {
        let past = Past::of(trace());
        assert_eq!((past.from, past.to), (at(0), at(9)));
        let mut trace = trace();
        trace.records.last_mut().unwrap().at = at(9) + jiff::SignedDuration::from_micros(1_300);
        assert_eq!(Past::of(trace).to, at(9) + jiff::SignedDuration::from_millis(2));
        let runners = |minute: i64| {
            let shown = past.at(at(minute));
            shown.runners.values().map(|runner| (runner.name.clone(), runner.state)).collect::<Vec<_>>()
        };
        let named = |name: &str, state| (name.to_owned(), state);
        assert_eq!(runners(0), []);
        assert_eq!(runners(3), [named("web-a", State::Pending), named("web-b", State::Pending)]);
        assert_eq!(runners(5), [named("web-a", State::Starting), named("web-b", State::Pending)]);
        assert_eq!(runners(6), [named("web-a", State::Idle), named("web-b", State::Pending)]);
        assert_eq!(runners(7), [named("web-a", State::Busy), named("web-b", State::Pending)]);
        assert_eq!(runners(9), [named("web-a", State::Ended)]);

        let waiting = past.at(at(3));
        let pool = waiting.pools.get("RunnerDeployment/ci/web").unwrap();
        assert_eq!((pool.desired, pool.actual, pool.max, pool.counts.pending), (2, 2, Some(8), 2));
        assert_eq!(pool.limit.as_ref().unwrap().text, "for 2 runners: 0/3 nodes are available");
        let job = waiting.jobs.get("ci/web/7").unwrap();
        assert_eq!((job.state, job.queued, job.repository.as_str()), (JobState::Queued, at(1), "acme/app"));
        let running = past.at(at(7));
        assert_eq!(running.runners.get("ci/web-a").unwrap().job.as_ref().unwrap().id, 7);
        assert_eq!(running.pools.get("RunnerDeployment/ci/web").unwrap().limit.as_ref().unwrap().text, "1 job waits");
        let spent = |minute: i64| {
            let shown = past.at(at(minute));
            shown
                .expenses
                .into_iter()
                .map(|(whose, one)| (whose, one.jobs, one.busy_minutes, one.idle_minutes))
                .collect::<Vec<_>>()
        };
        assert_eq!(spent(7), [("acme/app".to_owned(), 1, 0.0, 1.0)]);
        assert_eq!(spent(9), [("acme/app".to_owned(), 1, 1.0, 1.0)]);
        let waits = |minute: i64| {
            let shown = past.at(at(minute));
            shown.waits.into_iter().map(|(key, row)| (key, row.jobs, row.p50, row.max, row.bins[0].from)).collect::<Vec<_>>()
        };
        assert_eq!(waits(6), []);
        let row = ("RunnerDeployment/ci/web web".to_owned(), 1, 360, 360, at(5));
        assert_eq!([waits(7), waits(124)], [vec![row.clone()], vec![row]]);
        assert_eq!(waits(125), [], "two hours later");
        let over = past.at(at(9));
        assert!(over.jobs.is_empty() && over.failures.len() == 1 && over.decisions.len() == 1, "{over:#?}");
        assert_eq!(over.causes.get("unknown").unwrap().total, 1);
    }

    /// A trace of so many jobs, one a second, each on a runner of its own.
    fn long(jobs: i64) -> Trace {
        let second = |second: i64| at(0) + jiff::SignedDuration::from_secs(second);
        let of = |job: i64| {
            let (id, runner) = (u64::try_from(job).unwrap() + 1, format!("web-{job}"));
            [
                (
                    job,
                    json!({"kind": "job-queued", "job": id, "repository": "acme/app", "workflow": "build", "labels": ["web"], "attempt": 1, "pool": "ci/web"}),
                ),
                (job, json!({"kind": "decision", "pool": "ci/web", "from": 0, "to": 1, "why": "1 job waits"})),
                (job, json!({"kind": "runner-created", "runner": runner, "pool": "ci/web"})),
                (job + 1, json!({"kind": "runner-registered", "runner": runner})),
                (job + 2, json!({"kind": "job-started", "job": id, "runner": runner})),
                (job + 9, json!({"kind": "job-completed", "job": id})),
                (
                    job + 9,
                    json!({"kind": "runner-ended", "runner": runner, "why": if job % 7 == 0 { "failed" } else { "finished" }}),
                ),
            ]
        };
        let mut records = trace().records[..1].to_vec();
        records.extend((0..jobs).flat_map(of).map(|(after, mut record)| {
            record["at"] = json!(second(after));
            serde_json::from_value::<Record>(record).unwrap()
        }));
        Trace { header: pacer_trace::Header::new(at(0)), records }
    }

    #[test]
    fn a_move_of_the_slider_reads_few_records_and_shows_what_all_records_come_to() {
        let past = Past::of(long(3_000));
        let Checkpoints { every, scenes } = &past.checkpoints;
        assert_eq!((past.records.len(), *every, scenes.len()), (21_001, EVERY, 22));
        for second in [0, 1, 143, 144, 1_500, 2_999, 3_008, 9_999] {
            let moment = at(0) + jiff::SignedDuration::from_secs(second);
            let mut all = Scene::default();
            past.records.iter().filter(|record| record.at <= moment).for_each(|record| all.take(record));
            let (scene, read) = past.scene(moment);
            assert!(read < *every, "{read} records for second {second}");
            assert_eq!(scene.snapshot("", moment), all.snapshot("", moment), "second {second}");
        }
    }

    #[test]
    fn checkpoints_are_bounded_in_number_and_in_what_they_hold() {
        let trace = long(3_000);
        let past = Past::of(trace.clone());
        for (most, things, every) in
            [(64, THINGS, 1), (12, THINGS, 2), (3, THINGS, 8), (64, 2_100, 4)].map(|(m, t, e)| (m, t, e * EVERY))
        {
            let few = Checkpoints::of(&past.records, most, things);
            assert_eq!(few.every, every, "{most} with {things}");
            assert!(few.scenes.len() <= most && few.scenes.iter().map(Scene::things).sum::<usize>() <= things);
            let bounded = Past { checkpoints: few, ..Past::of(trace.clone()) };
            for minute in [0, 7, 23, 50] {
                assert!(bounded.scene(at(minute)).1 < every);
                assert_eq!(bounded.at(at(minute)), past.at(at(minute)));
            }
        }
    }

    #[test]
    fn budget_and_listings_of_github_are_those_of_the_moment() {
        let past = Past::of(trace());
        assert!(past.at(at(3)).credentials.is_empty() && past.at(at(3)).listings.is_empty());
        for (minute, left, held_back, failures) in [(4, 4_000, 2, 0), (8, 4_000, 2, 0), (9, 100, 4, 4)] {
            let shown = past.at(at(minute));
            let account = shown.credentials.get("default").unwrap();
            let listing = shown.listings.get("default/acme").unwrap();
            assert_eq!((account.budgets[0].remaining, account.held_back), (left, held_back), "{minute}");
            assert_eq!((listing.runners, listing.at, listing.failures), (7, Some(at(3)), failures), "{minute}");
        }
    }
}
