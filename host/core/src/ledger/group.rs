//! The ledger as a status holds it: jobs that share everything but their id and runner together.

use std::sync::Arc;

use jiff::Timestamp;

use super::{About, Job, Ledger, State, whole};

/// Jobs that share a state and its times. A thousand jobs of one workflow that were queued within a few seconds make a few of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// How far the jobs are.
    pub state: State,
    /// When they came that far.
    pub since: Timestamp,
    /// When they were queued.
    pub queued: Timestamp,
    /// When they are forgotten or looked up.
    pub expires: Timestamp,
    /// Repository, workflow, labels and run attempt of the jobs.
    pub about: Arc<About>,
    /// GitHub's ids, ascending, each with the runner it was given to.
    pub jobs: Vec<(u64, Option<Arc<str>>)>,
}

impl Ledger {
    /// From groups. Where people edited the status and a job is in several, the one that is further counts.
    #[must_use]
    pub fn from_groups(groups: impl IntoIterator<Item = Group>) -> Self {
        Self::from_jobs(groups.into_iter().flat_map(|group| {
            let (since, queued, expires) = (whole(group.since), whole(group.queued), whole(group.expires));
            let (state, about) = (group.state, group.about);
            let job = move |runner| Job { state, since, queued, expires, about: about.clone(), runner, origin: Arc::default() };
            group.jobs.into_iter().map(move |(id, runner)| (id, job(runner)))
        }))
    }
}
