//! What GitHub remembers of an organization's repositories, of their workflow runs, and of the jobs of these: some 90 days.

use std::sync::Arc;

use jiff::Timestamp;
use pacer_core::scope::Scope;
use serde::Deserialize;

use crate::call::Endpoint;
use crate::client::GitHub;
use crate::error::Error;
use crate::jobs::{Repository, WireJobs, WireRuns};

/// The group of GitHub's own runners.
const HOSTED_GROUP: &str = "GitHub Actions";

/// What labels of GitHub's own images begin with.
const HOSTED_LABELS: [&str; 3] = ["ubuntu-", "windows-", "macos-"];

/// A part of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// Items of this page, at most 100.
    pub items: Vec<T>,
    /// As many are in the whole listing, where GitHub tells.
    pub total: Option<u64>,
    /// Where it goes on; none at the end.
    pub next: Option<PageCursor>,
}

/// A place in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageCursor(String);

/// A workflow run as a listing of past runs shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastRun {
    /// GitHub's id.
    pub id: u64,
    /// Whether it is over.
    pub completed: bool,
}

/// A job, of whatever attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastJob {
    /// GitHub's id.
    pub id: u64,
    /// Which attempt of the run, from 1.
    pub attempt: u32,
    /// Its name within the run.
    pub name: Arc<str>,
    /// Name of the workflow.
    pub workflow: Arc<str>,
    /// What `runs-on` asked for.
    pub labels: Arc<[Arc<str>]>,
    /// When it was queued.
    pub queued: Timestamp,
    /// When a runner got it; none of one that never had a runner.
    pub started: Option<Timestamp>,
    /// When it was over.
    pub completed: Option<Timestamp>,
    /// Name of its runner.
    pub runner: Option<Arc<str>>,
    /// It ran on one of GitHub's own runners, or asked for one.
    pub hosted: bool,
    /// Its condition was false, so it never waited.
    pub skipped: bool,
}

#[derive(Deserialize)]
struct WireRepository {
    name: String,
    owner: WireOwner,
    #[serde(default)]
    archived: bool,
    #[serde(default)]
    disabled: bool,
}

#[derive(Deserialize)]
struct WireOwner {
    login: String,
}

#[derive(Deserialize)]
struct WireRun {
    id: u64,
    #[serde(default)]
    status: Option<String>,
}

#[derive(Deserialize)]
struct WireJob {
    id: u64,
    #[serde(default)]
    run_attempt: Option<u32>,
    #[serde(default)]
    name: String,
    #[serde(default)]
    workflow_name: Option<String>,
    #[serde(default)]
    conclusion: Option<String>,
    #[serde(default)]
    created_at: Option<Timestamp>,
    #[serde(default)]
    started_at: Option<Timestamp>,
    #[serde(default)]
    completed_at: Option<Timestamp>,
    #[serde(default)]
    labels: Vec<String>,
    #[serde(default)]
    runner_name: Option<String>,
    #[serde(default)]
    runner_group_name: Option<String>,
}

impl GitHub {
    /// Repositories of an organization that can have workflow runs: archived ones can't.
    ///
    /// # Errors
    ///
    /// As GitHub refuses; see [`crate::ErrorKind`].
    pub async fn repositories(&self, organization: &str, after: Option<&PageCursor>) -> Result<Page<Repository>, Error> {
        let query = after.map_or("per_page=100", |cursor| cursor.0.as_str());
        let scope = Scope::Organization(organization.to_owned());
        let read = self.get(Endpoint::ListRepositories, scope, &format!("repos?{query}")).await?;
        let wire: Vec<WireRepository> = read.json()?;
        let live = wire.into_iter().filter(|one| !one.archived && !one.disabled);
        let items = live.map(|one| Repository::new(one.owner.login, one.name)).collect();
        Ok(Page { items, total: None, next: read.next.map(PageCursor) })
    }

    /// Workflow runs of a repository that were made in a time, both ends included, the newest first. GitHub lists 1,000 of a time at most,
    /// whatever the total.
    ///
    /// # Errors
    ///
    /// As GitHub refuses; see [`crate::ErrorKind`].
    pub async fn past_runs(
        &self,
        repository: &Repository,
        (from, to): (Timestamp, Timestamp),
        after: Option<&PageCursor>,
    ) -> Result<Page<PastRun>, Error> {
        let first = || {
            let time = |at: Timestamp| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            format!("created={}..{}&exclude_pull_requests=true&per_page=100", time(from), time(to))
        };
        let query = after.map_or_else(first, |cursor| cursor.0.clone());
        let read = self.get(Endpoint::ListRuns, repository, &format!("actions/runs?{query}")).await?;
        let wire: WireRuns<WireRun> = read.json()?;
        let run = |run: WireRun| PastRun { id: run.id, completed: run.status.as_deref() == Some("completed") };
        let items = wire.workflow_runs.into_iter().map(run).collect();
        Ok(Page { items, total: Some(wire.total_count), next: read.next.map(PageCursor) })
    }

    /// Jobs of a workflow run, of all its attempts.
    ///
    /// # Errors
    ///
    /// As GitHub refuses; see [`crate::ErrorKind`].
    pub async fn past_jobs(&self, repository: &Repository, run: u64, after: Option<&PageCursor>) -> Result<Page<PastJob>, Error> {
        let query = after.map_or("filter=all&per_page=100", |cursor| cursor.0.as_str());
        let read = self.get(Endpoint::ListRunJobs, repository, &format!("actions/runs/{run}/jobs?{query}")).await?;
        let wire: WireJobs<WireJob> = read.json()?;
        let items = wire.jobs.into_iter().filter_map(WireJob::job).collect();
        Ok(Page { items, total: Some(wire.total_count), next: read.next.map(PageCursor) })
    }
}

impl WireJob {
    /// None of one that GitHub says no time of.
    fn job(self) -> Option<PastJob> {
        let queued = self.created_at.or(self.started_at)?;
        let runner: Option<Arc<str>> = self.runner_name.filter(|name| !name.is_empty()).map(Arc::from);
        let ran = runner.is_some();
        let of_hosted = |label: &String| HOSTED_LABELS.iter().any(|begin| label.starts_with(begin));
        Some(PastJob {
            id: self.id,
            attempt: self.run_attempt.unwrap_or(1),
            name: self.name.into(),
            workflow: self.workflow_name.unwrap_or_default().into(),
            hosted: match ran {
                true => self.runner_group_name.as_deref() == Some(HOSTED_GROUP),
                false => self.labels.iter().any(of_hosted),
            },
            labels: self.labels.into_iter().map(Arc::from).collect(),
            queued,
            // GitHub gives a job that never started some time as well; and now and then one before its creation.
            started: self.started_at.filter(|_| ran).map(|started| started.max(queued)),
            completed: self.completed_at.map(|completed| completed.max(queued)),
            runner,
            skipped: self.conclusion.as_deref() == Some("skipped"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> PastJob {
        serde_json::from_str::<WireJob>(text).unwrap().job().unwrap()
    }

    #[test]
    fn a_job_says_who_ran_it_and_when() {
        let ran = read(
            r#"{"id": 7, "run_attempt": 2, "name": "build", "workflow_name": "CI", "conclusion": "success", "labels": ["linux"],
                "created_at": "2026-01-01T00:00:10Z", "started_at": "2026-01-01T00:00:09Z", "completed_at": "2026-01-01T00:01:00Z",
                "runner_name": "web-a", "runner_group_name": "Default"}"#,
        );
        assert_eq!((ran.attempt, ran.hosted, ran.skipped, ran.runner.as_deref()), (2, false, false, Some("web-a")));
        assert_eq!(ran.started, Some(ran.queued), "not before it was queued");
        let hosted = read(
            r#"{"id": 8, "labels": ["anything"], "created_at": "2026-01-01T00:00:10Z", "started_at": "2026-01-01T00:00:19Z",
                "runner_name": "GitHub Actions 12", "runner_group_name": "GitHub Actions"}"#,
        );
        assert!(hosted.hosted && hosted.completed.is_none());
        let cancelled = read(
            r#"{"id": 9, "labels": ["ubuntu-latest"], "conclusion": "cancelled", "created_at": "2026-01-01T00:00:10Z",
                "started_at": "2026-01-01T00:00:10Z", "completed_at": "2026-01-01T00:00:19Z", "runner_name": ""}"#,
        );
        assert!(cancelled.hosted && cancelled.started.is_none() && cancelled.runner.is_none());
        assert!(read(r#"{"id": 1, "conclusion": "skipped", "created_at": "2026-01-01T00:00:10Z"}"#).skipped);
    }
}
