//! Check runs and commit statuses, as they were made.

use jiff::Timestamp;

use super::place::PlaceId;

/// A check run, with its latest status and output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckRun {
    /// GitHub's number.
    pub id: u64,
    /// What people see.
    pub name: String,
    /// What its maker calls it.
    pub external_id: Option<String>,
    /// `queued`, `in_progress` or `completed`.
    pub status: String,
    /// How it ended.
    pub conclusion: Option<String>,
    /// In one line.
    pub title: String,
    /// In full.
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
    /// In one line.
    pub description: String,
}

/// All that was said.
#[derive(Debug, Default)]
pub(super) struct Reports {
    pub(super) checks: Vec<CheckRun>,
    pub(super) statuses: Vec<CommitStatus>,
}
