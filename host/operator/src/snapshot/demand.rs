//! Jobs: which are known, and why those that wait do.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;
use pacer_core::ledger::State as Kept;
use pacer_core::phase::Cause;
use pacer_core::waiting::{self, Pool, Queued, Standing};

use super::fleet::key;
use super::ledger::Known;
use super::{JOBS, Job, JobState, Reason, Runner, Section};
use crate::standing::State;
use crate::stores::Stores;
use crate::target::TargetRef;
use crate::waiting as evidence;

/// The jobs that there is room for, and how many there is none for.
pub(super) fn jobs(stores: &Stores, autoscalers: &[Known], runners: &Section<Runner>, now: Timestamp) -> (Section<Job>, usize) {
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
        });
        let mut known: Vec<_> = ledger.open().collect();
        known.sort_by_key(|(id, job)| (job.queued, *id));
        let mut place = 0_u32;
        for (id, job) in known {
            let waits = job.state == Kept::Queued;
            place = place.saturating_add(u32::from(waits));
            let reason = waits.then(|| {
                let cause = waiting::waits(Queued { at: job.queued, place }, pool.as_ref()).cause;
                Reason { word: cause.word().to_owned(), text: cause.to_string() }
            });
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

/// The runners of each pool.
fn by_pool(runners: &Section<Runner>) -> HashMap<&str, Vec<waiting::Runner>> {
    let mut pools: HashMap<&str, Vec<waiting::Runner>> = HashMap::new();
    for runner in runners.values() {
        if let Some(pool) = &runner.pool {
            let found = waiting::Runner { name: runner.name.clone(), standing: standing(runner), since: Some(runner.since) };
            pools.entry(pool).or_default().push(found);
        }
    }
    pools
}

/// What it is for a job that waits. One that is offline may come back before it is replaced.
fn standing(runner: &Runner) -> Standing {
    let (cause, message) = runner.trouble.as_ref().map_or(("", ""), |trouble| (&trouble.cause, &trouble.message));
    let message = || message.to_owned();
    match runner.state {
        State::Pending | State::Starting if cause == Cause::Unschedulable.as_str() => Standing::Unschedulable(message()),
        State::Pending | State::Starting if cause == Cause::ImagePull.as_str() => Standing::Image(message()),
        State::Pending | State::Starting if cause == Cause::Quota.as_str() => Standing::Refused(message()),
        State::Pending => Standing::Starting,
        State::Starting | State::Offline => Standing::Registering,
        State::Idle => Standing::Idle,
        State::Busy => Standing::Busy,
        State::Quarantined => Standing::Quarantined(message()),
        State::Ended | State::Stopping => Standing::Leaving,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Trouble;
    use super::*;

    #[test]
    fn runner_stands_where_its_state_and_its_trouble_say() {
        let runner = |state, cause: &str| {
            let message = "0/3 nodes".to_owned();
            let since = Timestamp::UNIX_EPOCH;
            let situation = "not-starting".to_owned();
            let trouble = (!cause.is_empty()).then(|| Trouble { situation, cause: cause.to_owned(), message, since });
            Runner {
                namespace: "ci".into(),
                name: "web-1".into(),
                pool: Some("RunnerDeployment/ci/web".into()),
                node: None,
                state,
                since,
                created: since,
                ephemeral: true,
                protected: false,
                job: None,
                trouble,
            }
        };
        let message = || "0/3 nodes".to_owned();
        for (state, cause, expected) in [
            (State::Pending, "", Standing::Starting),
            (State::Pending, "unschedulable", Standing::Unschedulable(message())),
            (State::Starting, "image-pull", Standing::Image(message())),
            (State::Pending, "quota", Standing::Refused(message())),
            (State::Starting, "", Standing::Registering),
            (State::Offline, "node-lost", Standing::Registering),
            (State::Idle, "", Standing::Idle),
            (State::Busy, "image-pull", Standing::Busy),
            (State::Quarantined, "exit", Standing::Quarantined(message())),
            (State::Ended, "exit", Standing::Leaving),
            (State::Stopping, "", Standing::Leaving),
        ] {
            assert_eq!(standing(&runner(state, cause)), expected, "{state:?} {cause}");
        }
        let section: Section<Runner> = [("ci/web-1".to_owned(), Arc::new(runner(State::Idle, "")))].into();
        assert_eq!(by_pool(&section)["RunnerDeployment/ci/web"][0].standing, Standing::Idle);
    }
}
