//! What is said about commits: check runs, which only GitHub Apps make, and commit statuses.

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    check::{CheckRun, CommitStatus},
    endpoint::{Answer, Asked, DOCUMENTATION},
    payload,
    place::PlaceId,
    state::State,
};

/// Most characters of a commit status's description, and of its context.
const LONGEST: (usize, usize) = (140, 255);

#[derive(Deserialize)]
struct Output {
    title: String,
    summary: String,
}

#[derive(Deserialize)]
struct Wanted {
    name: Option<String>,
    head_sha: Option<String>,
    external_id: Option<String>,
    status: Option<String>,
    conclusion: Option<String>,
    output: Option<Output>,
}

#[derive(Deserialize)]
struct WantedStatus {
    state: String,
    context: String,
    description: Option<String>,
}

fn invalid(message: &str) -> Answer {
    Answer::error(StatusCode::UNPROCESSABLE_ENTITY, message, DOCUMENTATION)
}

/// The commit that a path names; the simulation has one.
fn is_there(asked: &Asked<'_>) -> bool {
    asked.path.split('/').any(|part| part == payload::COMMIT)
}

impl State {
    pub(super) fn list_checks(&self, asked: &Asked<'_>, place: PlaceId) -> Answer {
        if !is_there(asked) {
            return invalid("No commit found for SHA");
        }
        let named = |check: &&CheckRun| asked.query.get("check_name").is_none_or(|name| name == check.name);
        let found: Vec<Value> = self
            .reports
            .checks
            .iter()
            .filter(|check| check.repository == place)
            .filter(named)
            .map(|check| self.check(check))
            .collect();
        Answer::json(StatusCode::OK, &json!({"total_count": found.len(), "check_runs": found}))
    }

    pub(super) fn create_check(&mut self, body: &[u8], place: PlaceId) -> Answer {
        let Ok(wanted) = serde_json::from_slice::<Wanted>(body) else { return invalid("Invalid request.") };
        let Some(name) = wanted.name.filter(|_| wanted.head_sha.as_deref() == Some(payload::COMMIT)) else {
            return invalid("No commit found for SHA");
        };
        let output = wanted.output.unwrap_or(Output { title: String::new(), summary: String::new() });
        let check = CheckRun {
            id: self.number(),
            name,
            external_id: wanted.external_id,
            status: wanted.status.unwrap_or_else(|| "queued".to_owned()),
            conclusion: wanted.conclusion,
            title: output.title,
            summary: output.summary,
            changes: 0,
            repository: place,
            started_at: self.now(),
        };
        let answer = Answer::json(StatusCode::CREATED, &self.check(&check));
        self.reports.checks.push(check);
        self.signals.changed = true;
        answer
    }

    pub(super) fn update_check(&mut self, body: &[u8], place: PlaceId, id: u64) -> Option<Answer> {
        let Ok(wanted) = serde_json::from_slice::<Wanted>(body) else { return Some(invalid("Invalid request.")) };
        let check = self.reports.checks.iter_mut().find(|check| check.id == id && check.repository == place)?;
        if let Some(output) = wanted.output {
            (check.title, check.summary) = (output.title, output.summary);
        }
        if wanted.conclusion.is_some() {
            (check.status, check.conclusion) = ("completed".to_owned(), wanted.conclusion);
        } else if let Some(status) = wanted.status {
            check.status = status;
        }
        check.changes += 1;
        let check = check.clone();
        self.signals.changed = true;
        Some(Answer::json(StatusCode::OK, &self.check(&check)))
    }

    pub(super) fn create_status(&mut self, asked: &Asked<'_>) -> Answer {
        let Ok(wanted) = serde_json::from_slice::<WantedStatus>(asked.body) else { return invalid("Invalid request.") };
        let description = wanted.description.unwrap_or_default();
        if !is_there(asked) {
            return invalid("No commit found for SHA");
        }
        if description.chars().count() > LONGEST.0 || wanted.context.chars().count() > LONGEST.1 {
            return invalid("Validation Failed: description is too long");
        }
        let now = payload::moment(self.now());
        let answer = json!({
            "url": format!("{}{}", self.origin, asked.path), "avatar_url": null, "id": self.number(), "node_id": "SC_1",
            "state": wanted.state, "description": description, "target_url": null, "context": wanted.context,
            "created_at": now, "updated_at": now, "creator": null,
        });
        self.reports.statuses.push(CommitStatus { context: wanted.context, state: wanted.state, description });
        self.signals.changed = true;
        Answer::json(StatusCode::CREATED, &answer)
    }

    fn check(&self, check: &CheckRun) -> Value {
        let repository = self.accounts.get(check.repository).map(|place| place.scope.to_string()).unwrap_or_default();
        let url = format!("{}/repos/{repository}/check-runs/{}", self.origin, check.id);
        let over = check.conclusion.is_some().then(|| payload::moment(self.now()));
        json!({
            "id": check.id, "node_id": format!("CR_{}", check.id), "head_sha": payload::COMMIT, "name": check.name, "url": url,
            "html_url": url, "details_url": null, "status": check.status, "conclusion": check.conclusion,
            "started_at": payload::moment(check.started_at), "completed_at": over, "external_id": check.external_id,
            "check_suite": null, "app": null, "pull_requests": [],
            "output": {
                "title": check.title, "summary": check.summary, "text": null, "annotations_count": 0,
                "annotations_url": format!("{url}/annotations"),
            },
        })
    }
}
