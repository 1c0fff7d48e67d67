//! Reports of jobs that wait, on their commits: check runs, which only GitHub Apps can make, and commit statuses.

use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{JobState, Repository};
use crate::call::Endpoint;
use crate::client::{GitHub, body, success};
use crate::error::{Error, ErrorKind};
use crate::json;

/// Check runs of one name on one commit that are looked through: a page. Each attempt of a job makes one.
const PAGE: usize = 100;

/// What a report of a job needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedJob {
    /// Where the job is in its life.
    pub state: JobState,
    /// Name of the job, from which the name of its report is made.
    pub name: String,
    /// The commit that it runs on; always a hash in hexadecimal.
    pub commit: String,
}

/// What a check run says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckRun<'a> {
    /// Title of the check run's output, in one line.
    pub title: &'a str,
    /// In full, as Markdown.
    pub summary: &'a str,
    /// Nothing more will be said: it is completed, and neutral.
    pub over: bool,
}

/// Which check run it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckName<'a> {
    /// Hash of the commit that the check run is on.
    pub commit: &'a str,
    /// Name under which GitHub shows the check run.
    pub name: &'a str,
    /// What tells it from others of the same name.
    pub external_id: &'a str,
}

#[derive(Deserialize)]
struct WireJob {
    status: String,
    name: String,
    head_sha: String,
}

#[derive(Deserialize)]
struct WireCheck {
    id: u64,
    #[serde(default)]
    external_id: Option<String>,
}

#[derive(Deserialize)]
struct WireChecks {
    check_runs: Vec<WireCheck>,
}

/// Whether this names a commit, and so cannot change the path that it becomes a part of.
fn is_commit(text: &str) -> bool {
    (7..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

impl CheckRun<'_> {
    /// As GitHub takes it.
    fn wire(&self) -> serde_json::Value {
        let output = json!({"title": self.title, "summary": self.summary});
        match self.over {
            false => json!({"status": "in_progress", "output": output}),
            true => json!({"status": "completed", "conclusion": "neutral", "output": output}),
        }
    }
}

impl GitHub {
    /// What a report of a job needs to know.
    ///
    /// # Errors
    ///
    /// As GitHub refuses; see [`ErrorKind`].
    pub async fn reported_job(&self, repository: &Repository, id: u64) -> Result<ReportedJob, Error> {
        let read = self.get(Endpoint::GetReportedJob, repository, &format!("actions/jobs/{id}")).await?;
        let WireJob { status, name, head_sha } = read.json()?;
        if !is_commit(&head_sha) {
            return Err(read.absurd("the job's head_sha is no hash of a commit"));
        }
        Ok(ReportedJob { state: JobState::read(&status), name, commit: head_sha })
    }

    /// The number of a check run that these credentials may have made before; none where it is not on the commit.
    ///
    /// # Errors
    ///
    /// As GitHub refuses; see [`ErrorKind`].
    pub async fn find_check_run(&self, repository: &Repository, of: CheckName<'_>) -> Result<Option<u64>, Error> {
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("check_name", of.name)
            .append_pair("filter", "all")
            .append_pair("per_page", &PAGE.to_string())
            .finish();
        let resource = format!("commits/{}/check-runs?{query}", of.commit);
        let read = self.get(Endpoint::ListCheckRuns, repository, &resource).await?;
        let WireChecks { check_runs } = read.json()?;
        Ok(check_runs.into_iter().find(|check| check.external_id.as_deref() == Some(of.external_id)).map(|check| check.id))
    }

    /// Makes a check run and gives its number. The request is sent once; where its answer was lost, [`GitHub::find_check_run`] tells.
    ///
    /// # Errors
    ///
    /// As GitHub refuses; see [`ErrorKind`].
    pub async fn create_check_run(&self, repository: &Repository, of: CheckName<'_>, says: CheckRun<'_>) -> Result<u64, Error> {
        let mut wire = says.wire();
        if let Some(fields) = wire.as_object_mut() {
            fields.extend([
                ("name".to_owned(), json!(of.name)),
                ("head_sha".to_owned(), json!(of.commit)),
                ("external_id".to_owned(), json!(of.external_id)),
            ]);
        }
        let (answer, attempt) = self.send_with(Method::POST, Endpoint::CreateCheckRun, repository, "check-runs", &wire).await?;
        let answer = success(answer, &attempt).await?;
        let status = answer.status();
        let bytes = body(answer, &attempt).await?;
        let made: Result<WireCheck, _> = json::read(&bytes);
        made.map(|check| check.id).map_err(|error| attempt.misanswered(ErrorKind::Decode, status, json::without_values(&error)))
    }

    /// Has a check run say something else.
    ///
    /// # Errors
    ///
    /// As GitHub refuses; see [`ErrorKind`].
    pub async fn update_check_run(&self, repository: &Repository, id: u64, says: CheckRun<'_>) -> Result<(), Error> {
        self.write(Method::PATCH, Endpoint::UpdateCheckRun, repository, &format!("check-runs/{id}"), &says.wire()).await
    }

    /// Sets the status of this name on a commit: one that waits (`pending`), or is over (`success`). A later one takes the place of an earlier.
    ///
    /// # Errors
    ///
    /// As GitHub refuses; see [`ErrorKind`].
    pub async fn set_commit_status(
        &self,
        repository: &Repository,
        commit: &str,
        name: &str,
        description: &str,
        over: bool,
    ) -> Result<(), Error> {
        let state = if over { "success" } else { "pending" };
        let wire = json!({"state": state, "context": name, "description": description});
        self.write(Method::POST, Endpoint::CreateCommitStatus, repository, &format!("statuses/{commit}"), &wire).await
    }

    async fn write<B: Serialize + ?Sized>(
        &self,
        method: Method,
        endpoint: Endpoint,
        repository: &Repository,
        resource: &str,
        content: &B,
    ) -> Result<(), Error> {
        let (answer, attempt) = self.send_with(method, endpoint, repository, resource, content).await?;
        success(answer, &attempt).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hashes_name_commits() {
        for (text, expected) in [
            ("acb5820ced9479c074f688cc328bf03f341a511d", true),
            ("ACB5820", true),
            ("acb582", false),
            ("main/../../x", false),
            ("", false),
        ] {
            assert_eq!(is_commit(text), expected, "{text}");
        }
        assert!(!is_commit(&"a".repeat(65)));
    }

    #[test]
    fn check_run_that_is_over_is_neutral() {
        let says = |over| CheckRun { title: "t", summary: "s", over }.wire();
        assert_eq!(says(false), json!({"status": "in_progress", "output": {"title": "t", "summary": "s"}}));
        assert_eq!(says(true)["conclusion"], "neutral");
    }
}
