//! Demand as the status of a HorizontalRunnerAutoscaler holds it. Not in ARC.

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
    /// When they are forgotten, or looked up at GitHub, if nothing more is heard of them.
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

/// The entries that hold a ledger.
#[must_use]
pub fn write(ledger: &Ledger) -> Vec<LedgerEntry> {
    ledger.groups().into_iter().map(entry).collect()
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

fn entry(group: Group) -> LedgerEntry {
    let text = |text: &Arc<str>| text.as_ref().to_owned();
    let known = group.jobs.iter().any(|(_, runner)| runner.is_some());
    let runners = group.jobs.iter().filter(|_| known).map(|(_, runner)| runner.as_ref().map(text).unwrap_or_default());
    LedgerEntry {
        state: match group.state {
            State::Queued => JobState::Queued,
            State::InProgress => JobState::InProgress,
            State::Completed => JobState::Completed,
        },
        since: Time(group.since),
        queued: (group.queued != group.since).then_some(Time(group.queued)),
        expires: Time(group.expires),
        repository: text(&group.about.repository),
        workflow: text(&group.about.workflow),
        labels: group.about.labels.iter().map(text).collect(),
        attempt: i32::try_from(group.about.attempt).ok().filter(|attempt| *attempt != 1),
        runners: runners.collect(),
        jobs: group.jobs.into_iter().filter_map(|(id, _)| i64::try_from(id).ok()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::jiff::Timestamp;
    use pacer_core::ledger::{JobEvent, LIMIT, Terms};

    use super::*;

    fn ledger(events: &[(u64, State, Option<&str>)]) -> Ledger {
        let second = |second| Timestamp::from_second(second).unwrap();
        let terms = Terms { queued: Duration::from_secs(600), limit: LIMIT };
        let mut ledger = Ledger::default();
        for (id, state, runner) in events {
            let event = JobEvent {
                id: *id,
                state: *state,
                at: second(100),
                queued_at: second(90),
                repository: Arc::from("acme/app"),
                workflow: Arc::from("build"),
                labels: Arc::from([Arc::from("self-hosted"), Arc::from("linux")]),
                attempt: 2,
                runner: runner.map(Arc::from),
            };
            ledger.apply(&event, &terms, second(101));
        }
        ledger
    }

    #[test]
    fn what_is_written_is_read() {
        let before = ledger(&[
            (1, State::Queued, None),
            (2, State::InProgress, Some("web-abcde")),
            (3, State::InProgress, None),
            (4, State::Completed, Some("web-fghij")),
        ]);
        let text = serde_json::to_string(&write(&before)).unwrap();
        assert_eq!(read(&serde_json::from_str::<Vec<LedgerEntry>>(&text).unwrap()), before, "{text}");
    }

    #[test]
    fn a_thousand_jobs_of_a_burst_take_little_room() {
        let jobs: Vec<_> = (0..1_000).map(|job| (38_000_000_000 + job, State::Queued, None)).collect();
        let text = serde_json::to_string(&write(&ledger(&jobs))).unwrap();
        assert!(text.len() < 16_000, "{} bytes", text.len());
    }
}
