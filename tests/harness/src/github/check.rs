//! Check runs and commit statuses, as they were made.

use jiff::Timestamp;

use super::place::PlaceId;

/// A check run, with its latest status and output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckRun {
    /// GitHub's number.
    pub id: u64,
    /// Name under which GitHub shows it.
    pub name: String,
    /// What its maker calls it.
    pub external_id: Option<String>,
    /// `queued`, `in_progress` or `completed`.
    pub status: String,
    /// How it ended, as its maker says; none where it has not said so.
    pub conclusion: Option<String>,
    /// Title of its latest output.
    pub title: String,
    /// Summary of its latest output.
    pub summary: String,
    /// How often it was changed.
    pub changes: u32,
    pub(super) repository: PlaceId,
    pub(super) started_at: Timestamp,
}

/// A commit status, each as it was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitStatus {
    /// Whose place a later one takes.
    pub context: String,
    /// `pending`, `success`, `failure` or `error`.
    pub state: String,
    /// What its maker says of the state; empty where that is nothing.
    pub description: String,
}

/// All that was said.
#[derive(Debug, Default)]
pub(super) struct Reports {
    pub(super) checks: Vec<CheckRun>,
    pub(super) statuses: Vec<CommitStatus>,
}
