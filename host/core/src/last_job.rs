//! When a runner finished its last job, as far as it was seen.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::ledger::About;
use crate::policy::Attributes;

/// By how much GitHub's busy flag may be late.
const FLAG_LAG: SignedDuration = SignedDuration::from_mins(1);

/// What was seen of the jobs of one runner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastJob {
    /// The last listing had it busy.
    busy: bool,
    end: Option<Timestamp>,
}

impl LastJob {
    /// A listing has it without a job for so long, or busy.
    pub fn listed(&mut self, idle: Option<Duration>, now: Timestamp) {
        let was_busy = std::mem::replace(&mut self.busy, idle.is_none());
        let Some(idle) = idle.filter(|_| was_busy) else { return };
        let idle = SignedDuration::try_from(idle).unwrap_or(SignedDuration::MAX);
        let end = now.checked_sub(idle).unwrap_or(now);
        // The end that an event told is exact, and the flag that follows it is late.
        if self.end.is_none_or(|told| end.duration_since(told) > FLAG_LAG) {
            self.end = Some(end);
        }
    }

    /// An event says that a job of it ended.
    pub fn told(&mut self, end: Timestamp) {
        self.end = self.end.max(Some(end));
    }

    /// When it finished the last one; none when it was never seen to have one.
    #[must_use]
    pub fn end(&self) -> Option<Timestamp> {
        self.end
    }
}

/// The attributes of a candidate that say what its last job was.
#[must_use]
pub fn attributes(job: &About) -> Attributes {
    let told = [("last-job-repository", &job.repository), ("last-job-workflow", &job.workflow)];
    let told = told.into_iter().filter(|(_, value)| !value.is_empty());
    told.map(|(key, value)| (key.to_owned(), value.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_job_is_told_by_repository_and_workflow() {
        let job =
            |workflow: &str| About { repository: "acme/app".into(), workflow: workflow.into(), labels: [].into(), attempt: 1 };
        let told = |job: &About| attributes(job).into_iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>();
        assert_eq!(told(&job("build")), ["last-job-repository=acme/app", "last-job-workflow=build"]);
        assert_eq!(told(&job("")), ["last-job-repository=acme/app"]);
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + second).unwrap()
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_job_ends_with_the_first_listing_without_it() {
        let mut last = LastJob::default();
        last.listed(Some(seconds(500)), at(0));
        assert_eq!(last.end(), None, "it was never seen to have a job");
        last.listed(None, at(10));
        assert_eq!(last.end(), None);
        last.listed(Some(seconds(5)), at(40));
        last.listed(Some(seconds(25)), at(60));
        assert_eq!(last.end(), Some(at(35)));
    }

    #[test]
    fn what_an_event_told_is_more_exact_than_a_late_flag() {
        let mut last = LastJob::default();
        last.listed(None, at(0));
        last.told(at(100));
        last.listed(None, at(110));
        last.listed(Some(seconds(0)), at(140));
        assert_eq!(last.end(), Some(at(100)));
        // Another job, of which no event came.
        last.listed(None, at(150));
        last.listed(Some(seconds(0)), at(300));
        assert_eq!(last.end(), Some(at(300)));
        // An event that comes late is of an earlier job.
        last.told(at(200));
        assert_eq!(last.end(), Some(at(300)));
    }
}
