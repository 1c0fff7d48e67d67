//! Jobs that died with their runners, counted.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use pacer_core::recovery::Proof;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Jobs that are remembered, so that one counts once: far more than die while others of them are still to be seen.
const REMEMBERED: usize = 20_000;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Cause {
    cause: &'static str,
}

/// How many jobs died with their runners, by what ended those; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct LostJobs {
    counts: Family<Cause, Counter>,
    counted: Arc<Mutex<Counted>>,
}

#[derive(Debug, Default)]
struct Counted {
    jobs: HashSet<u64>,
    /// The oldest first.
    order: VecDeque<u64>,
}

impl LostJobs {
    /// Registers it. Every cause has a series from the start, so that the first loss is an increase.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let counts: Family<Cause, Counter> = Family::default();
        for proof in Proof::ALL {
            drop(counts.get_or_create(&Cause { cause: proof.as_str() }));
        }
        let help = "Jobs whose runner was ended by something else, as its pod proves, by what ended it";
        registry.register("pacer_jobs_lost", help, counts.clone());
        Self { counts, counted: Arc::default() }
    }

    /// The runner of a job was ended. However often that is seen, the job counts once.
    pub(crate) fn add(&self, job: u64, by: Proof) {
        // A poisoned lock only means that another thread panicked between two changes of what is remembered.
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        if !counted.jobs.insert(job) {
            return;
        }
        counted.order.push_back(job);
        if counted.order.len() > REMEMBERED
            && let Some(oldest) = counted.order.pop_front()
        {
            counted.jobs.remove(&oldest);
        }
        self.counts.get_or_create(&Cause { cause: by.as_str() }).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(registry: &Registry) -> Vec<String> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
        let mut lines: Vec<String> =
            text.lines().filter_map(|line| line.strip_prefix("pacer_jobs_lost_total")).map(str::to_owned).collect();
        lines.sort();
        lines
    }

    #[test]
    fn a_job_counts_once_however_often_it_is_seen_and_every_cause_has_a_series() {
        let mut registry = Registry::default();
        let lost = LostJobs::register(&mut registry);
        let series = |evicted, node_lost| {
            [("evicted", evicted), ("node-lost", node_lost), ("oom-killed", 0), ("preempted", 0)]
                .map(|(cause, count)| format!("{{cause=\"{cause}\"}} {count}"))
        };
        assert_eq!(told(&registry), series(0, 0));
        for (job, by) in
            [(1, Proof::Evicted), (2, Proof::NodeLost), (1, Proof::Evicted), (1, Proof::NodeLost), (3, Proof::Evicted)]
        {
            lost.clone().add(job, by);
        }
        assert_eq!(told(&registry), series(2, 1));
    }

    #[test]
    fn jobs_that_are_remembered_are_bounded() {
        let lost = LostJobs::register(&mut Registry::default());
        for job in 0..REMEMBERED as u64 + 10 {
            lost.add(job, Proof::Preempted);
        }
        let counted = lost.counted.lock().unwrap();
        assert_eq!((counted.jobs.len(), counted.order.len()), (REMEMBERED, REMEMBERED));
    }
}
