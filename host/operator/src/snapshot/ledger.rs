//! What ledgers say of single jobs.

use std::collections::HashMap;
use std::sync::Arc;

use kube::ResourceExt;
use pacer_api::HorizontalRunnerAutoscaler;
use pacer_core::ledger::{Ledger, State};

use super::RunningJob;
use crate::metrics::Sources;

/// An autoscaler and the jobs that it knows.
pub(super) type Known = (Arc<HorizontalRunnerAutoscaler>, Arc<Ledger>);

/// All autoscalers and their jobs.
pub(super) fn known(sources: &Sources) -> Vec<Known> {
    let read = |autoscaler: Arc<HorizontalRunnerAutoscaler>| {
        let ledger = sources.ledgers.read(&autoscaler);
        (autoscaler, ledger)
    };
    sources.stores.autoscalers.state().into_iter().map(read).collect()
}

/// Jobs by the runner that has them: namespace, name.
#[derive(Default)]
pub(super) struct RunningJobs(HashMap<String, HashMap<String, RunningJob>>);

impl RunningJobs {
    /// Running jobs of all these ledgers; those whose runner is not known are left out.
    pub(super) fn of_ledgers(autoscalers: &[Known]) -> Self {
        let mut all = Self::default();
        for (autoscaler, ledger) in autoscalers {
            let here = all.0.entry(autoscaler.namespace().unwrap_or_default()).or_default();
            for (id, job) in ledger.open().filter(|(_, job)| job.state == State::InProgress) {
                let Some(runner) = &job.runner else { continue };
                let (repository, workflow) = (job.about.repository.to_string(), job.about.workflow.to_string());
                here.insert(runner.to_string(), RunningJob { id, repository, workflow, since: job.since });
            }
        }
        all
    }

    /// That of a runner.
    pub(super) fn of(&self, namespace: &str, runner: &str) -> Option<RunningJob> {
        self.0.get(namespace)?.get(runner).cloned()
    }
}
