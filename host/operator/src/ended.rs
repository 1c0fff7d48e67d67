//! Pods of runners that something else than their jobs ended, as they were last seen: what proves it often goes with the pod, and an event may tell later
//! which job was lost.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kube::ResourceExt;
use pacer_api::{Runner, RunnerReplicaSet};
use pacer_cluster::clock::Clock;
use pacer_cluster::object::Uid;
use pacer_cluster::owner::controller;
use pacer_core::facts::PodFacts;
use pacer_core::recovery;

use crate::runner_pod::RunnerPod;
use crate::stores::Stores;

/// For how long an end is remembered: GitHub finds a lost runner after some ten minutes, and the event that its job has failed may be the first one that
/// names the runner (github-behaviour: lost runners).
const REMEMBERED: Duration = Duration::from_mins(15);

/// Ends that are remembered of the runners of one RunnerReplicaSet: of a pool of nodes that goes at once.
const LIMIT: usize = 1_000;

/// The pod of a runner that something else ended.
#[derive(Clone, Debug)]
pub(crate) struct EndedPod {
    /// Name of the Runner that owns the pod.
    pub(crate) runner: String,
    /// Its pod, as it was last seen.
    pub(crate) pod: PodFacts,
    /// Whether its object is gone.
    pub(crate) gone: bool,
    /// When its end was first seen.
    pub(crate) seen: Clock,
}

impl EndedPod {
    fn is_remembered(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.seen.instant) < REMEMBERED
    }
}

/// By RunnerReplicaSet. All of it may be lost at any moment: jobs that died then stay failed, and are not counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct EndedPods(Arc<Mutex<HashMap<Uid, Vec<EndedPod>>>>);

impl EndedPods {
    /// Takes note of a pod that changed or is gone. Those that prove nothing are nobody's concern.
    pub(crate) fn note(&self, stores: &Stores, object: &RunnerPod, now: Clock) {
        let namespace = object.namespace().unwrap_or_default();
        let stored = stores.pod(&namespace, &object.name_any());
        let gone = stored.is_none_or(|stored| stored.uid() != object.uid());
        if recovery::proof(&object.facts, gone).is_none() {
            return;
        }
        let Some(owner) = controller::<Runner>(object) else { return };
        let Some(runner) = stores.runner(&namespace, owner.name) else { return };
        if runner.uid().as_deref() != Some(owner.uid) {
            return;
        }
        let Some(set) = controller::<RunnerReplicaSet>(&*runner).and_then(|set| Uid::new(set.uid)) else { return };
        self.keep(&set, owner.name, object.facts.clone(), gone, now);
    }

    /// Takes note of a pod that is over, of which the caller knows more than its object says.
    pub(crate) fn keep(&self, set: &Uid, runner: &str, pod: PodFacts, gone: bool, now: Clock) {
        let mut all = self.lock();
        let ended = all.entry(set.clone()).or_default();
        ended.retain(|one| one.is_remembered(now.instant));
        if let Some(known) = ended.iter_mut().find(|one| one.pod.uid == pod.uid) {
            (known.pod, known.gone) = (pod, gone);
        } else if ended.len() < LIMIT {
            ended.push(EndedPod { runner: runner.to_owned(), pod, gone, seen: now });
        }
    }

    /// Of the runners of a RunnerReplicaSet, those that ended a while ago at most.
    #[must_use]
    pub(crate) fn of(&self, set: &Uid, now: Instant) -> Vec<EndedPod> {
        let mut all = self.lock();
        let Some(ended) = all.get_mut(set) else { return Vec::new() };
        ended.retain(|one| one.is_remembered(now));
        ended.clone()
    }

    /// Forgets those of RunnerReplicaSets that do not exist.
    pub(crate) fn retain(&self, exists: impl Fn(&Uid) -> bool) {
        self.lock().retain(|set, ended| !ended.is_empty() && exists(set));
    }

    /// A poisoned lock only means that another thread panicked between two changes of a hint.
    fn lock(&self) -> MutexGuard<'_, HashMap<Uid, Vec<EndedPod>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
