//! Jobs: which are known, and why those that wait do.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;
use pacer_cluster::object::Uid;
use pacer_core::demand::Polled;
use pacer_core::estimate::{Pace, starts};
use pacer_core::ledger::State as Kept;
use pacer_core::waiting::{self, Pool, PoolQueue, Queued};

use super::fleet::key;
use super::ledger::Known;
use super::{JOBS, Job, JobState, Reason, Runner, Section};
use crate::stores::Stores;
use crate::target::TargetRef;
use crate::waiting as evidence;

/// What is remembered about an autoscaler.
pub(super) struct Remembered {
    pub(super) pace: Pace,
    /// Jobs that wait and that no ledger has.
    pub(super) polled: Arc<[Polled]>,
}

/// The jobs that there is room for, and how many there is none for.
pub(super) fn jobs(
    stores: &Stores,
    autoscalers: &[Known],
    runners: &Section<Runner>,
    remembered: impl Fn(&Uid) -> Option<Remembered>,
    now: Timestamp,
) -> (Section<Job>, usize) {
    let by_pool = by_pool(runners);
    let mut all = Vec::new();
    for (autoscaler, ledger) in autoscalers {
        let (namespace, name) = (autoscaler.namespace().unwrap_or_default(), autoscaler.name_any());
        let target = TargetRef::of(autoscaler).and_then(|target| stores.target(&target));
        let target = target.map(|target| (key(&target.reference()), target));
        let pool = target.as_ref().map(|(key, target)| Pool {
            wanted: target.replicas(),
            autoscaler: Some(evidence::autoscaler(autoscaler)),
            runners: by_pool.get(key.as_str()).cloned().unwrap_or_default(),
            backoff: evidence::backoff(stores.sets_of(target).iter().map(Arc::as_ref), now),
            github: evidence::github(target),
            refused: evidence::refused(target),
        });
        let remembered = Uid::of(&**autoscaler).ok().and_then(|uid| remembered(&uid));
        let (pace, polled) = remembered.map(|known| (known.pace, known.polled)).unzip();
        let more = polled.iter().flat_map(|jobs| jobs.iter()).filter(|(id, _)| ledger.get(*id).is_none());
        let mut known: Vec<_> = ledger.open().chain(more.map(|(id, job)| (*id, &**job))).collect();
        known.sort_by_key(|(id, job)| (job.queued, *id));
        let queued: Vec<Timestamp> =
            known.iter().filter(|(_, job)| job.state == Kept::Queued).map(|(_, job)| job.queued).collect();
        let estimates = pool.as_ref().zip(pace).map(|(pool, pace)| starts(pool, &pace, &queued, now)).unwrap_or_default();
        let mut estimates = estimates.into_iter();
        let waiting = u32::try_from(queued.len()).unwrap_or(u32::MAX);
        let (queue, mut place) = (PoolQueue::of(pool.as_ref()), 0_u32);
        for (id, job) in known {
            let waits = job.state == Kept::Queued;
            place = place.saturating_add(u32::from(waits));
            let why = waits.then(|| queue.waits(Queued { at: job.queued, place }));
            let (reason, reason_since) = why.map(|why| (as_told(&why.cause), why.since)).unzip();
            let estimate = if waits { estimates.next().flatten() } else { None };
            let job = Job {
                id,
                autoscaler: name.clone(),
                pool: target.as_ref().map(|(key, _)| key.clone()),
                repository: job.about.repository.to_string(),
                workflow: job.about.workflow.to_string(),
                labels: job.about.labels.iter().map(ToString::to_string).collect(),
                attempt: job.about.attempt,
                state: if waits { JobState::Queued } else { JobState::Running },
                queued: job.queued,
                since: job.since,
                runner: job.runner.as_ref().map(ToString::to_string),
                place: waits.then_some(place),
                waiting: waits.then_some(waiting),
                reason,
                reason_since,
                estimate,
            };
            all.push((format!("{namespace}/{name}/{id}"), Arc::new(job)));
        }
    }
    let left_out = all.len().saturating_sub(JOBS);
    if left_out > 0 {
        all.sort_by_key(|(_, job)| (Reverse(job.state == JobState::Queued), job.queued, job.id));
        all.truncate(JOBS);
    }
    (all.into_iter().collect(), left_out)
}

fn as_told(cause: &waiting::Cause) -> Reason {
    Reason { word: cause.word().to_owned(), text: cause.to_string() }
}

/// The runners of each pool.
fn by_pool(runners: &Section<Runner>) -> HashMap<&str, Vec<waiting::Runner>> {
    let mut pools: HashMap<&str, Vec<waiting::Runner>> = HashMap::new();
    for runner in runners.values() {
        if let Some(pool) = &runner.pool {
            let trouble = runner.trouble.as_ref().map(|trouble| (trouble.cause.as_str(), trouble.message.as_str()));
            // A job has begun before its runner was seen to be busy.
            let since = runner.job.as_ref().map_or(runner.since, |job| job.since);
            let standing = evidence::standing(runner.state, trouble);
            let found = waiting::Runner { name: runner.name.clone(), standing, since: Some(since) };
            pools.entry(pool).or_default().push(found);
        }
    }
    pools
}
