//! What job events say about a runner that they name.

use std::sync::Arc;

use jiff::Timestamp;

use crate::ledger::{About, Job, State};

/// What job events say about a runner that they name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunnerJob {
    /// Since when its job is in progress.
    pub working: Option<Timestamp>,
    /// Which one that is, by GitHub's id.
    pub job: Option<u64>,
    /// When the last one that is over ended.
    pub ended: Option<Timestamp>,
    /// What that one was.
    pub last: Option<Arc<About>>,
}

impl RunnerJob {
    /// What is said of a runner once a job of it, with this id, is as far as this.
    #[must_use]
    pub fn after(before: Option<&Self>, id: u64, job: &Job) -> Self {
        let is_working = job.state == State::InProgress;
        let (working, current) = (is_working.then_some(job.since), is_working.then_some(id));
        let before = before.cloned().unwrap_or_default();
        if job.state == State::Completed && before.ended.is_none_or(|ended| job.since > ended) {
            return Self { working, job: current, ended: Some(job.since), last: Some(job.about.clone()) };
        }
        Self { working, job: current, ..before }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(state: State, since: i64, repository: &str) -> Job {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let about = About { repository: repository.into(), workflow: "build".into(), labels: [].into(), attempt: 1 };
        Job {
            state,
            since: at(since),
            queued: at(0),
            expires: at(9_999),
            about: Arc::new(about),
            runner: None,
            origin: Arc::default(),
        }
    }

    #[test]
    fn the_last_job_is_the_one_that_ended_last() {
        let mut told = None;
        for (event, expected) in [
            (job(State::InProgress, 10, "acme/a"), None),
            (job(State::Completed, 20, "acme/a"), Some((20, "acme/a"))),
            (job(State::InProgress, 30, "acme/b"), Some((20, "acme/a"))),
            (job(State::Completed, 40, "acme/b"), Some((40, "acme/b"))),
            // Late, and of an earlier job.
            (job(State::Completed, 25, "acme/c"), Some((40, "acme/b"))),
        ] {
            let after = RunnerJob::after(told.as_ref(), 7, &event);
            let last = after.ended.zip(after.last.as_ref()).map(|(ended, last)| (ended.as_second(), &*last.repository));
            assert_eq!(last, expected, "{event:?}");
            assert_eq!(after.working.is_some(), event.state == State::InProgress);
            assert_eq!(after.job, after.working.map(|_| 7));
            told = Some(after);
        }
    }
}
