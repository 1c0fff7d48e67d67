//! What the process remembers about objects between reconciles and does not write down.
//!
//! All of it may be lost at any moment: each entry only saves a question or a wait that a restarted operator asks or waits again.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use pacer_api::{Runner, RunnerStatus};
use pacer_core::arrivals::Arrivals;
use pacer_core::autoscale::Bounds;
use pacer_core::durations::Durations;
use pacer_core::facts::Refusal;
use pacer_core::last_job::LastJob;
use pacer_core::policy::{Counts, Quantiles};
use pacer_core::room::NoRoom;
use pacer_core::stop::PodDeletion;
use serde_json::Value;

use crate::autoscaler::AutoscalerMemo;
use crate::pace::Passes;
use crate::settings::STATUS_PACE;
use crate::target::TargetRef;

/// Creations that the watch does not show after this are looked at again as if they had failed: the object came and went meanwhile, or the
/// answer to the request was lost.
pub const IN_FLIGHT: Duration = Duration::from_secs(30);

/// About one Runner, by UID.
#[derive(Clone, Debug, Default)]
pub struct RunnerMemo {
    /// When its pod was last created by this process and has not been seen since.
    pub pod_created: Option<Instant>,
    /// This process created its pod, and so has seen it from its beginning.
    pub made_here: bool,
    /// When a listing first had it online.
    pub online: Option<Timestamp>,
    /// Its pod was seen.
    pub pod_seen: bool,
    /// Digest of the pod's state, and since when it has been that.
    pub pod_state: Option<(u64, Instant)>,
    /// When GitHub last answered *busy* to a removal.
    pub refused_busy: Option<Instant>,
    /// GitHub confirmed that it is not registered any more.
    pub unregistered: bool,
    /// This process asked the API server to delete it, successfully; the watch may be late to show it.
    pub let_go: Option<Timestamp>,
    /// Seen at GitHub under this id.
    pub known_id: Option<u64>,
    /// Missing from all listings since.
    pub absent_since: Option<Instant>,
    /// The API server refused its pod.
    pub refusal: Option<Refusal>,
    /// When that was tried last.
    pub refused: Option<Instant>,
    /// The node of its pod was looked for and is gone.
    pub node_gone: bool,
    /// The last status that was written, and the resource version it was computed from; none once the watch shows a newer one.
    pub status: Option<Box<(Option<String>, RunnerStatus)>>,
    /// Its pod was deleted as it was at this resource version, in this way.
    pub pod_deleted: Option<(String, PodDeletion)>,
    /// A job's event names it; true while that job is not over.
    pub job: Option<bool>,
    /// When it finished its last job.
    pub last_job: LastJob,
    /// Its finalizer was taken away from it as it was at this resource version.
    pub released: Option<String>,
    /// It was seen here before it was registered, and has not been online since.
    pub starting: bool,
}

impl RunnerMemo {
    /// Takes note of whether it is online, and was ever registered. True when it has come online for the first time, and this process saw
    /// it before: one that lost contact and is back has not started.
    pub fn has_started(&mut self, online: bool, registered: bool) -> bool {
        let started = self.starting && online;
        self.starting = !online && (self.starting || !registered);
        started
    }
}

/// About one RunnerReplicaSet, by UID.
#[derive(Clone, Debug, Default)]
pub struct SetMemo {
    /// Names of Runners created and not yet seen, and when.
    pub in_flight: HashMap<String, Instant>,
    /// Passes over the set.
    pub passes: Passes,
    /// The last status that was written.
    pub status: Option<Said>,
    /// The API server no longer has it; the watch is late to show that.
    pub gone: bool,
    /// What its owner wants to know.
    pub summary: Option<Summary>,
    /// Runners that were online at the last pass; none before the first.
    pub online: Option<BTreeSet<String>>,
    /// Failed attempts in a row, when newer than the stored status.
    pub attempts: Option<u32>,
    /// Last increase and decrease made by this process, when newer than the stored status.
    pub scaled_up: Option<Timestamp>,
    /// See `scaled_up`.
    pub scaled_down: Option<Timestamp>,
    /// Ephemeral runners that finished and were let go.
    pub finished: u64,
    /// The `effectiveTime` that the set has, and how many had finished when the wanted number was made that goes with it.
    pub demand: Option<(Timestamp, u64)>,
    /// The same for numbers that are on their way to the set, the newest last.
    pub announced: Vec<(Timestamp, u64)>,
    /// Runners that are missing since before this process started, and may have finished, are not replaced until this.
    pub unseen_until: Option<Instant>,
}

/// Announced numbers that are remembered; the oldest go first.
const ANNOUNCED: usize = 64;

impl SetMemo {
    /// A number with this `effectiveTime` is on its way to the set, for which so many finished runners were known.
    pub fn announce(&mut self, effective: Timestamp, finished: u64) {
        if self.announced.len() >= ANNOUNCED {
            self.announced.remove(0);
        }
        self.announced.push((effective, finished));
    }

    /// Takes note of the set's `effectiveTime`; says how many runners finished since the wanted number was set.
    pub fn finished_since(&mut self, effective: Timestamp) -> u64 {
        if self.demand.is_none_or(|(at, _)| at != effective) {
            let announced = self.announced.iter().find(|(at, _)| *at == effective);
            self.demand = Some(announced.copied().unwrap_or((effective, self.finished)));
            self.announced.retain(|(at, _)| *at > effective);
            self.unseen_until = None;
        }
        self.accounted(effective).map_or(0, |before| self.finished.saturating_sub(before))
    }

    /// How many had finished when the wanted number was made that goes with this `effectiveTime`; none until the set has taken note of it.
    #[must_use]
    pub fn accounted(&self, effective: Timestamp) -> Option<u64> {
        self.demand.filter(|(at, _)| *at == effective).map(|(_, before)| before)
    }
}

/// About one RunnerDeployment or RunnerSet, by UID.
#[derive(Clone, Debug, Default)]
pub struct TargetMemo {
    /// The last status that was written.
    pub status: Option<Said>,
    /// Name of the registration-only Runner that was made and not yet seen, and when.
    pub registration: Option<(String, Instant)>,
}

/// What this process has seen of a pool.
#[derive(Clone, Debug, Default)]
pub struct PoolMemo {
    /// From pod to online, in seconds.
    pub starts: Durations,
    /// From a job's start to its end, in seconds.
    pub runs: Durations,
    /// Its jobs.
    pub arrivals: Arrivals,
    /// Between which numbers its autoscaler keeps it, as of that one's last pass.
    pub bounds: Option<Bounds>,
}

impl PoolMemo {
    /// What policies are told of it.
    #[must_use]
    pub fn past(&self, now: Timestamp) -> Past {
        Past {
            start_time: self.starts.quantiles(),
            run_time: self.runs.quantiles(),
            arrivals: self.arrivals.per_minute(now),
            bounds: self.bounds,
        }
    }
}

/// What policies are told of a pool beside how it is now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Past {
    /// From pod to online.
    pub start_time: Option<Quantiles>,
    /// From a job's start to its end.
    pub run_time: Option<Quantiles>,
    /// Jobs per minute, newest first.
    pub arrivals: Vec<u32>,
    /// Between which numbers its autoscaler keeps it.
    pub bounds: Option<Bounds>,
}

/// A status that this process wrote, for objects whose status counts what changes all the time.
#[derive(Clone, Debug)]
pub struct Said {
    /// Resource version of the object that it was computed from.
    pub version: Option<String>,
    /// What was written.
    pub value: Value,
    /// When.
    pub at: Instant,
}

impl Said {
    /// How long the next status has to wait after this one, none when it may be written now. `again` is the wait of one that says the same:
    /// the watch has not shown the first yet.
    #[must_use]
    pub fn hold(&self, version: Option<&str>, value: &Value, now: Instant, again: Duration) -> Option<Duration> {
        if self.version.as_deref() == version && self.value == *value {
            return Some(again);
        }
        STATUS_PACE.checked_sub(now.saturating_duration_since(self.at)).filter(|left| !left.is_zero())
    }
}

/// A set as its owner counts it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Generation that was observed.
    pub generation: i64,
    /// Runners that exist and are not on their way out.
    pub alive: u32,
    /// Connected to GitHub.
    pub online: u32,
    /// Of these, at work.
    pub busy: u32,
    /// Pods that run.
    pub running: u32,
    /// Runner objects of any state.
    pub present: u32,
    /// By phase.
    pub counts: Counts,
    /// Those that wait for room in the cluster.
    pub no_room: NoRoom,
    /// Ephemeral runners that finished, since this process started.
    pub finished: u64,
}

/// How long the end of a runner is remembered: longer than any event about its job is under way.
const ENDED: SignedDuration = SignedDuration::from_mins(10);

/// Ends remembered per target; the oldest ones go first.
const ENDS: usize = 10_000;

/// Namespace and name of a claim.
pub type ClaimKey = (String, String);

/// What a runner did about a claim, for as long as the watch may not show it.
#[derive(Clone, Debug)]
pub struct Taking {
    /// Name of the runner.
    pub runner: String,
    /// When.
    pub at: Instant,
    /// It waits for the claim and does not have it.
    pub waits: bool,
}

/// The last that was done about claims.
pub type Takings = HashMap<ClaimKey, Taking>;

/// UIDs of the objects that exist.
#[derive(Clone, Copy, Debug)]
pub struct Alive<'a> {
    /// Runners.
    pub runners: &'a HashSet<String>,
    /// RunnerReplicaSets.
    pub sets: &'a HashSet<String>,
    /// RunnerDeployments and RunnerSets.
    pub targets: &'a HashSet<String>,
    /// HorizontalRunnerAutoscalers.
    pub autoscalers: &'a HashSet<String>,
}

/// All of it.
#[derive(Debug, Default)]
pub struct Memory {
    runners: Mutex<HashMap<String, RunnerMemo>>,
    sets: Mutex<HashMap<String, SetMemo>>,
    autoscalers: Mutex<HashMap<String, AutoscalerMemo>>,
    ended: Mutex<HashMap<TargetRef, BTreeMap<Arc<str>, Timestamp>>>,
    targets: Mutex<HashMap<String, TargetMemo>>,
    /// By the UID of the target, or of the set that none owns: a rollout changes the set and not how long a start takes.
    pools: Mutex<HashMap<String, PoolMemo>>,
    claims: Mutex<Takings>,
    failures: Mutex<HashMap<String, u32>>,
}

impl Memory {
    /// Reads or changes what is remembered about a Runner.
    pub fn runner<T>(&self, uid: &str, act: impl FnOnce(&mut RunnerMemo) -> T) -> T {
        act(lock(&self.runners).entry(uid.to_owned()).or_default())
    }

    /// Whether a Runner is to go, also before the watch shows it.
    pub fn is_leaving(&self, runner: &Runner) -> bool {
        let let_go = || self.runner(&runner.uid().unwrap_or_default(), |memo| memo.let_go.is_some());
        runner.metadata.deletion_timestamp.is_some() || let_go()
    }

    /// Reads or changes what is remembered about a set.
    pub fn set<T>(&self, uid: &str, act: impl FnOnce(&mut SetMemo) -> T) -> T {
        act(lock(&self.sets).entry(uid.to_owned()).or_default())
    }

    /// Reads or changes what is remembered about an autoscaler.
    pub fn autoscaler<T>(&self, uid: &str, act: impl FnOnce(&mut AutoscalerMemo) -> T) -> T {
        act(lock(&self.autoscalers).entry(uid.to_owned()).or_default())
    }

    /// Ephemeral runners of a target finished their jobs.
    pub fn ended(&self, target: TargetRef, runners: Vec<String>, now: Timestamp) {
        let mut all = lock(&self.ended);
        let ended = all.entry(target).or_default();
        ended.extend(runners.into_iter().map(|name| (Arc::from(name), now)));
        ended.retain(|_, at| now.duration_since(*at) < ENDED);
        while ended.len() > ENDS {
            let oldest = ended.iter().min_by_key(|(_, at)| **at).map(|(name, _)| name.clone());
            if let Some(oldest) = oldest {
                ended.remove(&oldest);
            }
        }
    }

    /// Which runners of a target finished of late, and when that was seen.
    pub fn ends_of(&self, target: &TargetRef) -> BTreeMap<Arc<str>, Timestamp> {
        lock(&self.ended).get(target).cloned().unwrap_or_default()
    }

    /// Reads or changes what is remembered about a pool.
    pub fn pool<T>(&self, uid: &str, act: impl FnOnce(&mut PoolMemo) -> T) -> T {
        act(lock(&self.pools).entry(uid.to_owned()).or_default())
    }

    /// Reads or changes what is remembered about a RunnerDeployment or RunnerSet.
    pub fn target<T>(&self, uid: &str, act: impl FnOnce(&mut TargetMemo) -> T) -> T {
        act(lock(&self.targets).entry(uid.to_owned()).or_default())
    }

    /// Reads or changes which runners were given which claims of late. One lock for all, so that no two runners choose the same claim.
    pub fn claims<T>(&self, act: impl FnOnce(&mut Takings) -> T) -> T {
        act(&mut lock(&self.claims))
    }

    /// Forgets a Runner.
    pub fn forget_runner(&self, uid: &str) {
        lock(&self.runners).remove(uid);
    }

    /// Keeps only what belongs to objects that exist, and what is recent.
    pub fn retain(&self, alive: &Alive<'_>, now: Timestamp) {
        lock(&self.runners).retain(|uid, _| alive.runners.contains(uid));
        lock(&self.sets).retain(|uid, _| alive.sets.contains(uid));
        lock(&self.targets).retain(|uid, _| alive.targets.contains(uid));
        lock(&self.pools).retain(|uid, _| alive.targets.contains(uid) || alive.sets.contains(uid));
        lock(&self.claims).retain(|_, taking| taking.at.elapsed() < IN_FLIGHT);
        lock(&self.autoscalers).retain(|uid, _| alive.autoscalers.contains(uid));
        lock(&self.ended).retain(|_, ended| {
            ended.retain(|_, at| now.duration_since(*at) < ENDED);
            !ended.is_empty()
        });
    }

    /// Counts a failed reconcile of an object and says how many failed in a row.
    pub fn failed(&self, object: &str) -> u32 {
        let mut failures = lock(&self.failures);
        let count = failures.entry(object.to_owned()).or_default();
        *count = count.saturating_add(1);
        *count
    }

    /// A reconcile of an object went well.
    pub fn succeeded(&self, object: &str) {
        let mut failures = lock(&self.failures);
        if !failures.is_empty() {
            failures.remove(object);
        }
    }
}

/// A poisoned lock only means that another reconcile panicked between two assignments of a hint.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_start_is_counted_once_and_only_when_it_was_seen_from_the_beginning() {
        let mut fresh = RunnerMemo::default();
        let seen = [(false, false), (false, true), (true, true), (true, true), (false, true), (true, true)];
        assert_eq!(
            seen.map(|(online, registered)| fresh.has_started(online, registered)),
            [false, false, true, false, false, false]
        );
        let mut met_online = RunnerMemo::default();
        let seen = [(true, true), (false, true), (true, true)];
        assert!(!seen.into_iter().any(|(online, registered)| met_online.has_started(online, registered)));
        let mut met_offline = RunnerMemo::default();
        assert!(!met_offline.has_started(false, true) && !met_offline.has_started(true, true));
    }

    #[test]
    fn a_status_that_changes_all_the_time_is_written_once_per_pace() {
        let at = Instant::now();
        let said = Said { version: Some("7".to_owned()), value: json!({"replicas": 3}), at };
        let sync = Duration::from_secs(60);
        let (same, other) = (json!({"replicas": 3}), json!({"replicas": 4}));
        for (version, value, after, expected) in [
            ("7", &same, Duration::ZERO, Some(sync)),
            ("7", &same, STATUS_PACE * 2, Some(sync)),
            ("7", &other, Duration::ZERO, Some(STATUS_PACE)),
            ("8", &other, STATUS_PACE / 4, Some(STATUS_PACE / 4 * 3)),
            ("8", &other, STATUS_PACE, None),
            // Somebody else changed it in between: it has to be said again.
            ("8", &same, STATUS_PACE, None),
        ] {
            assert_eq!(said.hold(Some(version), value, at + after, sync), expected, "{version} {value} after {after:?}");
        }
    }
}
