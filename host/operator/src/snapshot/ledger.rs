//! What ledgers say of single jobs.

use std::collections::HashMap;
use std::sync::Arc;

use kube::ResourceExt;
use pacer_api::HorizontalRunnerAutoscaler;
use pacer_api::job_ledger::{JobState, LedgerEntry};

use super::RunningJob;

/// Jobs by the runner that has them: namespace, name.
#[derive(Default)]
pub(super) struct RunningJobs(HashMap<String, HashMap<String, RunningJob>>);

impl RunningJobs {
    /// Of all ledgers.
    pub(super) fn of_ledgers(autoscalers: &[Arc<HorizontalRunnerAutoscaler>]) -> Self {
        let mut all = Self::default();
        for autoscaler in autoscalers {
            let here = all.0.entry(autoscaler.namespace().unwrap_or_default()).or_default();
            let entries = autoscaler.status.iter().flat_map(|status| &status.ledger);
            for (entry, id, runner) in entries.filter(|entry| entry.state == JobState::InProgress).flat_map(jobs_of) {
                let Some(runner) = runner else { continue };
                let (repository, workflow) = (entry.repository.clone(), entry.workflow.clone());
                here.insert(runner.to_owned(), RunningJob { id, repository, workflow, since: entry.since.0 });
            }
        }
        all
    }

    /// That of a runner.
    pub(super) fn of(&self, namespace: &str, runner: &str) -> Option<RunningJob> {
        self.0.get(namespace)?.get(runner).cloned()
    }
}

/// Each job of an entry: its id, and its runner if one is known.
pub(super) fn jobs_of(entry: &LedgerEntry) -> impl Iterator<Item = (&LedgerEntry, i64, Option<&str>)> {
    let runner = |index: usize| entry.runners.get(index).map(String::as_str).filter(|name| !name.is_empty());
    entry.jobs.iter().enumerate().map(move |(index, id)| (entry, *id, runner(index)))
}
