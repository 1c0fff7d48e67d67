//! JobLedger: some of the jobs that a HorizontalRunnerAutoscaler knows from webhooks. Not in ARC.
//!
//! The jobs of one autoscaler are spread over several of these ([`pacer_core::ledger::place`]). Whoever learns something about a job adds it by
//! a merge patch without having read the object: each step of a job has a field of its own, so that no writer undoes what another one wrote,
//! in whatever order they come.

mod jobs;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff;
use kube::CustomResource;
use pacer_core::ledger::{About, Job, Ledger, Origin, RUNNING, State, TOMBSTONE};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::nullable;

/// Longest name of an autoscaler within the name of a ledger, so that the whole stays below the 253 characters of a name.
const NAME: usize = 200;

/// Longest text of a repository, a workflow's name, a label or a runner; GitHub's own limits are below it.
const TEXT: usize = 256;

/// Most labels of a job that are kept.
const LABELS: usize = 64;

/// Jobs of one autoscaler.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "actions.summerwind.dev",
    version = "v1alpha1",
    kind = "JobLedger",
    plural = "jobledgers",
    doc = "Jobs that a HorizontalRunnerAutoscaler knows from webhooks.",
    namespaced,
    schema = "disabled",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Autoscaler", type_ = "string", json_path = ".spec.autoscaler"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct JobLedgerSpec {
    /// Name of the HorizontalRunnerAutoscaler, in the same namespace.
    #[serde(default, deserialize_with = "nullable::or_default")]
    pub autoscaler: String,
    /// What many jobs have in common, by a hash of it.
    #[serde(default, deserialize_with = "nullable::or_default")]
    pub workflows: BTreeMap<String, LedgerWorkflow>,
    /// Jobs by GitHub's id.
    #[serde(default, deserialize_with = "jobs::by_id")]
    #[schemars(with = "BTreeMap<String, LedgerJob>")]
    pub jobs: BTreeMap<u64, LedgerJob>,
}

/// What the jobs of one workflow that ask for the same labels have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LedgerWorkflow {
    /// Their repository, owner/name.
    #[serde(default, deserialize_with = "nullable::or_default")]
    pub repository: String,
    /// Name of the workflow.
    #[serde(default, deserialize_with = "nullable::or_default")]
    pub name: String,
    /// Labels that the jobs ask for.
    #[serde(default, deserialize_with = "nullable::or_default")]
    pub labels: Vec<String>,
}

/// One job. Times are added as it moves on, and the last one tells how far it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LedgerJob {
    /// Key of its workflow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// Attempt of its run; absent for the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<i32>,
    /// When it was queued.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queued: Option<Time>,
    /// When GitHub is asked about it if it has not started by then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// When it started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<Time>,
    /// Name of the runner that it was given to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runner: Option<String>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Time>,
    /// When a job that ended is forgotten; absent for five minutes after its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forget: Option<Time>,
    /// GitHub's id of its workflow run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<i64>,
    /// Branch of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Event that started the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    /// Login of whoever started the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// Environment that it deploys to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
}

/// Name of one of the objects that hold an autoscaler's jobs: never that of another autoscaler's, nor of an earlier one with the same name.
#[must_use]
pub fn name(autoscaler: &str, uid: &str, shard: u16) -> String {
    format!("{}{shard:02x}", prefix(autoscaler, uid))
}

/// What the names of all objects that hold an autoscaler's jobs begin with; the number of the object follows, in hexadecimal digits.
#[must_use]
pub fn prefix(autoscaler: &str, uid: &str) -> String {
    let short: String = autoscaler.chars().take(NAME).collect();
    let uid: String = uid.chars().filter(char::is_ascii_alphanumeric).take(12).collect();
    format!("{}-{uid}-", short.trim_end_matches(['-', '.']))
}

/// The jobs in these objects.
#[must_use]
pub fn read<'a>(ledgers: impl IntoIterator<Item = &'a JobLedgerSpec>) -> Ledger {
    Ledger::from_jobs(ledgers.into_iter().flat_map(JobLedgerSpec::all))
}

impl JobLedgerSpec {
    /// Its jobs. What has no time of any step is none.
    pub fn all(&self) -> impl Iterator<Item = (u64, Job)> + '_ {
        let mut shared: HashMap<(Option<&str>, u32), Arc<About>> = HashMap::new();
        self.jobs.iter().filter_map(move |(id, job)| {
            let key = (job.workflow.as_deref(), job.attempt());
            let about = shared.entry(key).or_insert_with(|| Arc::new(self.about(key))).clone();
            Some((*id, job.read(about)?))
        })
    }

    /// One of its jobs.
    #[must_use]
    pub fn job(&self, id: u64) -> Option<Job> {
        let job = self.jobs.get(&id)?;
        job.read(Arc::new(self.about((job.workflow.as_deref(), job.attempt()))))
    }

    /// Whether it has a job, if it says something about it or not.
    #[must_use]
    pub fn has(&self, id: u64) -> bool {
        self.jobs.contains_key(&id)
    }

    /// IDs of its jobs, those included of which it says nothing.
    pub fn ids(&self) -> impl Iterator<Item = u64> {
        self.jobs.keys().copied()
    }

    /// Keys of the workflows that no job refers to.
    pub fn unused_workflows(&self) -> impl Iterator<Item = &str> {
        let used: std::collections::HashSet<&str> = self.jobs.values().filter_map(|job| job.workflow.as_deref()).collect();
        self.workflows.keys().map(String::as_str).filter(move |key| !used.contains(key))
    }

    fn about(&self, (workflow, attempt): (Option<&str>, u32)) -> About {
        let workflow = workflow.and_then(|key| self.workflows.get(key)).cloned().unwrap_or_default();
        About {
            repository: Arc::from(workflow.repository),
            workflow: Arc::from(workflow.name),
            labels: workflow.labels.into_iter().map(Arc::from).collect(),
            attempt,
        }
    }
}

impl LedgerJob {
    fn attempt(&self) -> u32 {
        self.attempt.and_then(|attempt| u32::try_from(attempt).ok()).unwrap_or(1)
    }

    fn read(&self, about: Arc<About>) -> Option<Job> {
        let time = |time: &Option<Time>| time.as_ref().map(|time| time.0);
        let (state, since) = match (time(&self.ended), time(&self.started), time(&self.queued)) {
            (Some(ended), _, _) => (State::Completed, ended),
            (None, Some(started), _) => (State::InProgress, started),
            (None, None, Some(queued)) => (State::Queued, queued),
            (None, None, None) => return None,
        };
        let expires = match state {
            State::Queued => time(&self.until).unwrap_or(since),
            State::InProgress => after(since, RUNNING),
            State::Completed => time(&self.forget).unwrap_or_else(|| after(since, TOMBSTONE)),
        };
        let runner = self.runner.as_deref().map(Arc::from);
        let queued = time(&self.queued).unwrap_or(since);
        Some(Job { state, since, queued, expires, about, runner, origin: Arc::new(self.origin()) })
    }

    fn origin(&self) -> Origin {
        let text = |text: &Option<String>| text.as_deref().map(Arc::from).unwrap_or_default();
        Origin {
            run: self.run.and_then(|run| u64::try_from(run).ok()),
            branch: text(&self.branch),
            event: text(&self.event),
            actor: text(&self.actor),
            environment: text(&self.environment),
        }
    }
}

fn after(time: Timestamp, wait: std::time::Duration) -> Timestamp {
    SignedDuration::try_from(wait).ok().and_then(|wait| time.checked_add(wait).ok()).unwrap_or(Timestamp::MAX)
}

/// Changes of one JobLedger, sent as one merge patch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Additions {
    workflows: BTreeMap<String, LedgerWorkflow>,
    jobs: BTreeMap<u64, Value>,
}

impl Additions {
    /// A job is as far as this.
    pub fn put(&mut self, id: u64, job: &Job) {
        let (hash, workflow) = workflow(&job.about);
        let mut fields = json!({"workflow": hash, "queued": Time(job.queued)});
        let mut set = |name: &str, value: Value| {
            if let Some(fields) = fields.as_object_mut() {
                fields.insert(name.to_owned(), value);
            }
        };
        if job.about.attempt != 1 {
            set("attempt", json!(job.about.attempt));
        }
        if let Some(runner) = &job.runner {
            set("runner", json!(text(runner)));
        }
        let origin = job.origin.bounded();
        if let Some(run) = origin.run {
            set("run", json!(run));
        }
        let texts = [
            ("branch", &origin.branch),
            ("event", &origin.event),
            ("actor", &origin.actor),
            ("environment", &origin.environment),
        ];
        for (name, value) in texts.into_iter().filter(|(_, value)| !value.is_empty()) {
            set(name, json!(value));
        }
        match job.state {
            State::Queued => set("until", json!(Time(job.expires))),
            State::InProgress => set("started", json!(Time(job.since))),
            State::Completed => {
                set("ended", json!(Time(job.since)));
                if job.expires != after(job.since, TOMBSTONE) {
                    set("forget", json!(Time(job.expires)));
                }
                // Nobody asks about a job that is over.
                set("until", Value::Null);
                set("started", Value::Null);
            }
        }
        self.workflows.insert(hash, workflow);
        self.jobs.insert(id, fields);
    }

    /// A job is forgotten.
    pub fn remove(&mut self, id: u64) {
        self.jobs.insert(id, Value::Null);
    }

    /// Takes over what the later changes of the same object say.
    pub fn extend(&mut self, later: Self) {
        self.workflows.extend(later.workflows);
        for (id, fields) in later.jobs {
            match (self.jobs.get_mut(&id), fields) {
                (Some(Value::Object(known)), Value::Object(fields)) => known.extend(fields),
                (_, fields) => {
                    self.jobs.insert(id, fields);
                }
            }
        }
    }

    /// Whether it says nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// For an object that is there.
    #[must_use]
    pub fn patch(&self) -> Value {
        json!({"spec": {"workflows": self.workflows, "jobs": self.jobs}})
    }

    /// The spec of an object that is not there yet.
    ///
    /// # Errors
    ///
    /// Never, as all that it holds was made here.
    pub fn spec(&self, autoscaler: &str) -> Result<JobLedgerSpec, serde_json::Error> {
        let jobs: BTreeMap<_, _> = self.jobs.iter().filter(|(_, fields)| !fields.is_null()).collect();
        serde_json::from_value(json!({"autoscaler": autoscaler, "workflows": self.workflows, "jobs": jobs}))
    }
}

fn workflow(about: &About) -> (String, LedgerWorkflow) {
    let workflow = LedgerWorkflow {
        repository: text(&about.repository),
        name: text(&about.workflow),
        labels: about.labels.iter().take(LABELS).map(|label| text(label)).collect(),
    };
    let mut hash = Sha256::new();
    for part in [&workflow.repository, &workflow.name].into_iter().chain(&workflow.labels) {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    let key = hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    (key, workflow)
}

fn text(text: &str) -> String {
    text.chars().take(TEXT).collect()
}

#[cfg(test)]
#[path = "job_ledger/tests.rs"]
mod tests;
