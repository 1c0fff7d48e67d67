//! Jobs: which are known, and why those that wait do.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use kube::ResourceExt;
use pacer_api::condition::{ConditionType, Verdict};
use pacer_core::ledger::State as Kept;
use pacer_core::phase::Cause;

use super::fleet::{condition, key, said};
use super::ledger::Known;
use super::waiting::{PoolNow, Prospect, why};
use super::{JOBS, Job, JobState, Pool, Reason, Runner, Section};
use crate::standing::State;
use crate::target::TargetRef;

/// The jobs that there is room for, and how many there is none for.
pub(super) fn jobs(autoscalers: &[Known], pools: &Section<Pool>, runners: &Section<Runner>) -> (Section<Job>, usize) {
    let stuck = stuck(runners);
    let mut all = Vec::new();
    for (autoscaler, ledger) in autoscalers {
        let (namespace, name) = (autoscaler.namespace().unwrap_or_default(), autoscaler.name_any());
        let target = TargetRef::of(autoscaler).map(|target| key(&target)).filter(|key| pools.contains_key(key));
        let now = target.as_ref().and_then(|key| {
            let pool = pools.get(key)?;
            let trouble = stuck.get(key.as_str()).map(|(cause, message, count)| (*cause, *message, *count));
            Some(PoolNow { counts: pool.counts, desired: pool.desired, max: pool.max, limit: pool.limit.as_ref(), trouble })
        });
        let refused = condition(autoscaler, ConditionType::Accepted).filter(|accepted| accepted.status != Verdict::True.as_str());
        let refused: Option<Reason> = refused.map(said);
        let mut known: Vec<_> = ledger.open().collect();
        known.sort_by_key(|(id, job)| (job.queued, *id));
        let mut ahead = 0;
        for (id, job) in known {
            let waits = job.state == Kept::Queued;
            let reason = waits.then(|| why(&Prospect { ahead, pool: now, refused: refused.as_ref() }));
            ahead += usize::from(waits);
            let job = Job {
                id,
                autoscaler: name.clone(),
                pool: target.clone(),
                repository: job.about.repository.to_string(),
                workflow: job.about.workflow.to_string(),
                labels: job.about.labels.iter().map(ToString::to_string).collect(),
                attempt: job.about.attempt,
                state: if waits { JobState::Queued } else { JobState::Running },
                queued: job.queued,
                since: job.since,
                runner: job.runner.as_ref().map(ToString::to_string),
                reason,
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

/// By pool, why its runners do not start: the cause of most of them, what the cluster says of one, and how many runners do not start.
fn stuck(runners: &Section<Runner>) -> HashMap<&str, (&str, &str, usize)> {
    let mut causes: HashMap<&str, BTreeMap<&str, (usize, &str)>> = HashMap::new();
    for runner in runners.values().filter(|runner| matches!(runner.state, State::Pending | State::Starting)) {
        let (Some(pool), Some(trouble)) = (&runner.pool, &runner.trouble) else { continue };
        let cause = causes.entry(pool).or_default().entry(&trouble.cause).or_insert((0, &trouble.message));
        cause.0 = cause.0.saturating_add(1);
    }
    causes.into_iter().map(|(pool, causes)| (pool, most(causes))).collect()
}

/// The cause with most runners, and how many there are of all causes.
fn most<'a>(causes: BTreeMap<&'a str, (usize, &'a str)>) -> (&'a str, &'a str, usize) {
    let all = causes.values().fold(0_usize, |all, (count, _)| all.saturating_add(*count));
    let most = causes.into_iter().max_by_key(|(_, (count, _))| *count);
    most.map_or((Cause::Unknown.as_str(), "", all), |(cause, (_, message))| (cause, message, all))
}
