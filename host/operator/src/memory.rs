//! What the process remembers about objects between reconciles and does not write down.
//!
//! All of it may be lost at any moment: each entry only saves a question or a wait that a restarted operator asks or waits again.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use pacer_api::RunnerStatus;
use pacer_core::facts::Refusal;
use pacer_core::stop::PodDeletion;
use serde_json::Value;

/// Creations that the watch does not show after this are looked at again as if they had failed: the object came and went meanwhile, or the
/// answer to the request was lost.
pub const IN_FLIGHT: Duration = Duration::from_secs(30);

/// About one Runner, by UID.
#[derive(Clone, Debug, Default)]
pub struct RunnerMemo {
    /// When its pod was last created by this process and has not been seen since.
    pub pod_created: Option<Instant>,
    /// Its pod was seen.
    pub pod_seen: bool,
    /// Digest of the pod's state, and since when it has been that.
    pub pod_state: Option<(u64, Instant)>,
    /// When GitHub last answered *busy* to a removal.
    pub refused_busy: Option<Instant>,
    /// GitHub confirmed the removal of its registration.
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
    pub status: Option<(Option<String>, RunnerStatus)>,
    /// Its pod was deleted as it was at this resource version, in this way.
    pub pod_deleted: Option<(String, PodDeletion)>,
    /// Its finalizer was taken away from it as it was at this resource version.
    pub released: Option<String>,
}

/// About one RunnerReplicaSet, by UID.
#[derive(Clone, Debug, Default)]
pub struct SetMemo {
    /// Names of Runners created and not yet seen, and when.
    pub in_flight: HashMap<String, Instant>,
    /// Last pass over the set.
    pub reconciled: Option<Instant>,
    /// The last status that was written, when, and the resource version it was computed from.
    pub status: Option<(Option<String>, Value, Instant)>,
    /// What its deployment wants to know.
    pub summary: Option<Summary>,
    /// Runners that were online at the last pass; none before the first.
    pub online: Option<BTreeSet<String>>,
    /// Failed attempts in a row, when newer than the stored status.
    pub attempts: Option<u32>,
    /// Last increase and decrease made by this process, when newer than the stored status.
    pub scaled_up: Option<Timestamp>,
    /// See `scaled_up`.
    pub scaled_down: Option<Timestamp>,
}

/// A set as its RunnerDeployment counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
}

/// All of it.
#[derive(Debug, Default)]
pub struct Memory {
    runners: Mutex<HashMap<String, RunnerMemo>>,
    sets: Mutex<HashMap<String, SetMemo>>,
    failures: Mutex<HashMap<String, u32>>,
}

impl Memory {
    /// Reads or changes what is remembered about a Runner.
    pub fn runner<T>(&self, uid: &str, act: impl FnOnce(&mut RunnerMemo) -> T) -> T {
        act(lock(&self.runners).entry(uid.to_owned()).or_default())
    }

    /// Reads or changes what is remembered about a set.
    pub fn set<T>(&self, uid: &str, act: impl FnOnce(&mut SetMemo) -> T) -> T {
        act(lock(&self.sets).entry(uid.to_owned()).or_default())
    }

    /// Forgets a Runner.
    pub fn forget_runner(&self, uid: &str) {
        lock(&self.runners).remove(uid);
    }

    /// Keeps only what belongs to these objects.
    pub fn retain(&self, runner: impl Fn(&str) -> bool, set: impl Fn(&str) -> bool) {
        lock(&self.runners).retain(|uid, _| runner(uid));
        lock(&self.sets).retain(|uid, _| set(uid));
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
