//! What job events and GitHub's job lists say about a runner that they name.

use std::sync::Arc;

use jiff::Timestamp;

use crate::ledger::{About, Job, State};

/// What job events and GitHub's job lists say about a runner that they name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunnerJob {
    /// Since when its job is in progress.
    pub working: Option<Timestamp>,
    /// Which one that is, by GitHub's id.
    pub job: Option<u64>,
    /// The repository of that job.
    pub repository: Option<Arc<str>>,
    /// When the last one that is over ended.
    pub ended: Option<Timestamp>,
    /// What that one was.
    pub last: Option<Arc<About>>,
}

impl RunnerJob {
    /// What is said of a runner by all jobs that name it, by their ids, on top of what was said before.
    ///
    /// A job in progress protects its runner whatever is said of others: one that ended before it may have the higher id, and its end may have
    /// been found out later.
    #[must_use]
    pub fn of<'a>(before: Option<&Self>, jobs: impl IntoIterator<Item = (u64, &'a Job)>) -> Self {
        let mut told = Self { working: None, job: None, repository: None, ..before.cloned().unwrap_or_default() };
        for (id, job) in jobs {
            match job.state {
                State::InProgress if told.working.is_none_or(|since| job.since > since) => {
                    (told.working, told.job) = (Some(job.since), Some(id));
                    told.repository = Some(job.about.repository.clone());
                }
                State::Completed if told.ended.is_none_or(|ended| job.since > ended) => {
                    (told.ended, told.last) = (Some(job.since), Some(job.about.clone()));
                }
                State::Queued | State::InProgress | State::Completed => {}
            }
        }
        told
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
            let after = RunnerJob::of(told.as_ref(), [(7, &event)]);
            let last = after.ended.zip(after.last.as_ref()).map(|(ended, last)| (ended.as_second(), &*last.repository));
            assert_eq!(last, expected, "{event:?}");
            assert_eq!(after.working.is_some(), event.state == State::InProgress);
            assert_eq!(after.job, after.working.map(|_| 7));
            told = Some(after);
        }
    }

    #[test]
    fn runner_with_several_jobs_works_while_one_is_in_progress() {
        let (first, second) = (job(State::Completed, 40, "acme/a"), job(State::InProgress, 20, "acme/b"));
        for jobs in [[(9, &first), (4, &second)], [(4, &second), (9, &first)]] {
            let told = RunnerJob::of(None, jobs);
            assert_eq!((told.job, told.working), (Some(4), Some(second.since)));
            assert_eq!(told.ended, Some(first.since));
        }
        let over = job(State::Completed, 50, "acme/b");
        assert_eq!(RunnerJob::of(None, [(9, &first), (4, &over)]).working, None);
        assert_eq!(RunnerJob::of(None, [(9, &first), (4, &over)]).ended, Some(over.since));
    }
}
