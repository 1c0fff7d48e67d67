//! Demand as pacer 0.1 kept it: in the status of the HorizontalRunnerAutoscaler. What is found there is moved into JobLedgers.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pacer_core::ledger::{About, Group, Ledger, State};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::nullable;

/// Jobs that share everything but their id and runner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LedgerEntry {
    /// How far the jobs are.
    pub state: JobState,
    /// When they came into that state.
    pub since: Time,
    /// When they were queued; absent where that is since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queued: Option<Time>,
    /// When they are forgotten, or looked up at GitHub, if no further event of them comes.
    pub expires: Time,
    /// Their repository, owner/name.
    #[serde(default, deserialize_with = "nullable::or_default", skip_serializing_if = "String::is_empty")]
    pub repository: String,
    /// Name of their workflow.
    #[serde(default, deserialize_with = "nullable::or_default", skip_serializing_if = "String::is_empty")]
    pub workflow: String,
    /// Labels they ask for.
    #[serde(default, deserialize_with = "nullable::or_default", skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Attempt of their run; absent for the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<i32>,
    /// GitHub's ids of the jobs.
    #[serde(deserialize_with = "nullable::or_default")]
    pub jobs: Vec<i64>,
    /// Runners they were given to, in the order of jobs; empty where that is unknown, absent where it is for all.
    #[serde(default, deserialize_with = "nullable::or_default", skip_serializing_if = "Vec::is_empty")]
    pub runners: Vec<String>,
}

/// How far a job is; it only ever moves on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum JobState {
    /// Waits for a runner.
    Queued,
    /// Runs.
    InProgress,
    /// Is over; remembered for a short while so that late events change nothing.
    Completed,
}

/// The ledger in these entries. Ids below zero are none that GitHub gives; they are passed over.
#[must_use]
pub fn read(entries: &[LedgerEntry]) -> Ledger {
    Ledger::from_groups(entries.iter().map(group))
}

fn group(entry: &LedgerEntry) -> Group {
    let texts = |list: &[String]| list.iter().map(|text| Arc::from(text.as_str())).collect();
    let runner = |index: usize| entry.runners.get(index).filter(|name| !name.is_empty()).map(|name| Arc::from(name.as_str()));
    Group {
        state: match entry.state {
            JobState::Queued => State::Queued,
            JobState::InProgress => State::InProgress,
            JobState::Completed => State::Completed,
        },
        since: entry.since.0,
        queued: entry.queued.as_ref().unwrap_or(&entry.since).0,
        expires: entry.expires.0,
        about: Arc::new(About {
            repository: Arc::from(entry.repository.as_str()),
            workflow: Arc::from(entry.workflow.as_str()),
            labels: texts(&entry.labels),
            attempt: entry.attempt.and_then(|attempt| u32::try_from(attempt).ok()).unwrap_or(1),
        }),
        jobs: entry.jobs.iter().enumerate().filter_map(|(index, id)| Some((u64::try_from(*id).ok()?, runner(index)))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ledger_that_an_earlier_version_wrote_is_read() {
        let text = r#"[
            {"state": "Queued", "since": "2026-01-01T00:00:00Z", "expires": "2026-01-01T00:10:00Z", "repository": "acme/app",
             "workflow": "build", "labels": ["self-hosted", "linux"], "jobs": [1, 4, -1]},
            {"state": "InProgress", "since": "2026-01-01T00:00:09Z", "queued": "2026-01-01T00:00:00Z", "attempt": 2,
             "expires": "2026-01-06T00:00:09Z", "repository": "acme/app", "jobs": [2, 3], "runners": ["web-abcde", ""]},
            {"state": "Completed", "since": "2026-01-01T00:00:30Z", "expires": "2026-01-01T00:05:30Z", "jobs": [4]}
        ]"#;
        let ledger = read(&serde_json::from_str::<Vec<LedgerEntry>>(text).unwrap());
        let found: Vec<_> = ledger
            .all()
            .map(|(id, job)| {
                (id, job.state, job.runner.as_deref().unwrap_or_default(), job.about.attempt, job.about.labels.len())
            })
            .collect();
        let expected = [
            (1, State::Queued, "", 1, 2),
            (2, State::InProgress, "web-abcde", 2, 0),
            (3, State::InProgress, "", 2, 0),
            (4, State::Completed, "", 1, 0),
        ];
        assert_eq!(found, expected);
        assert_eq!(ledger.get(2).unwrap().queued.to_string(), "2026-01-01T00:00:00Z");
    }
}
