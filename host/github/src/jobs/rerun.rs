//! A job that is to run again: how it and its run ended, and the request itself.

use http::Method;
use jiff::Timestamp;
use pacer_core::recovery::{Ending, JobSeen, Reply, RunSeen};
use serde::Deserialize;

use super::Repository;
use crate::call::Endpoint;
use crate::client::{GitHub, success};
use crate::error::{Error, ErrorKind};

/// With which words GitHub refuses while the run goes on (github-behaviour: rerun).
const STILL_RUNS: &str = "already running";

#[derive(Deserialize)]
struct WireEnd {
    #[serde(default)]
    run_id: u64,
    status: String,
    #[serde(default)]
    conclusion: Option<String>,
    #[serde(default)]
    completed_at: Option<Timestamp>,
    #[serde(default)]
    runner_name: Option<String>,
}

#[derive(Deserialize)]
struct WireRun {
    status: String,
    #[serde(default)]
    conclusion: Option<String>,
    #[serde(default)]
    run_attempt: Option<u32>,
}

/// How something ended; none while it goes on, or GitHub does not say yet how.
fn ending(status: &str, conclusion: Option<&str>) -> Option<Ending> {
    match (status, conclusion) {
        ("completed", Some("failure")) => Some(Ending::Failure),
        ("completed", Some("cancelled")) => Some(Ending::Cancelled),
        ("completed", Some(_)) => Some(Ending::Other),
        _ => None,
    }
}

impl GitHub {
    /// How a job ended; none when there is no such job. GitHub says the same to those who may not see the repository.
    ///
    /// # Errors
    ///
    /// As GitHub refuses; see [`ErrorKind`].
    pub async fn job_end(&self, repository: &Repository, id: u64) -> Result<Option<JobSeen>, Error> {
        let read = match self.get(Endpoint::GetJob, repository, &format!("actions/jobs/{id}")).await {
            Ok(read) => read,
            Err(error) if error.status() == Some(404) => return Ok(None),
            Err(error) => return Err(error),
        };
        let WireEnd { run_id, status, conclusion, completed_at, runner_name } = read.json()?;
        let ended = ending(&status, conclusion.as_deref()).zip(completed_at);
        Ok(Some(JobSeen { run: run_id, runner: runner_name.filter(|name| !name.is_empty()), ended }))
    }

    /// The newest attempt of a run and how it ended; none when there is no such run.
    ///
    /// # Errors
    ///
    /// As GitHub refuses; see [`ErrorKind`].
    pub async fn run_end(&self, repository: &Repository, id: u64) -> Result<Option<RunSeen>, Error> {
        let read = match self.get(Endpoint::GetRun, repository, &format!("actions/runs/{id}")).await {
            Ok(read) => read,
            Err(error) if error.status() == Some(404) => return Ok(None),
            Err(error) => return Err(error),
        };
        let WireRun { status, conclusion, run_attempt } = read.json()?;
        Ok(Some(RunSeen { attempt: run_attempt.unwrap_or(1), ended: ending(&status, conclusion.as_deref()) }))
    }

    /// Asks GitHub to run a job of a run that has ended again, with the jobs that depend on it: a new attempt of the run. The request is sent
    /// once. After [`Reply::Lost`] only the number of the run's attempt tells whether it had its effect.
    ///
    /// # Errors
    ///
    /// When nothing was sent: a rate limit stands, or it has to wait for its turn.
    pub async fn rerun_job(&self, repository: &Repository, id: u64) -> Result<Reply, Error> {
        let asked = match self.send(Method::POST, Endpoint::RerunJob, repository, &format!("actions/jobs/{id}/rerun")).await {
            Ok((answer, attempt)) => success(answer, &attempt).await.map(drop),
            Err(error) => Err(error),
        };
        let Err(error) = asked else { return Ok(Reply::Accepted) };
        match error.kind() {
            ErrorKind::Deferred { .. } | ErrorKind::RateLimited { .. } | ErrorKind::Saturated => Err(error),
            ErrorKind::Server | ErrorKind::Timeout | ErrorKind::Network | ErrorKind::Decode => Ok(Reply::Lost(error.to_string())),
            _ if error.message().is_some_and(|message| message.contains(STILL_RUNS)) => Ok(Reply::StillRuns),
            _ => Ok(Reply::Refused(error.message().map_or_else(|| error.to_string(), str::to_owned))),
        }
    }
}
