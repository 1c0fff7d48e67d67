//! What payloads say. Fields that nobody reads are ignored, and those that older servers leave out may be absent.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer};

use crate::json::{self, Misread};

/// A job was queued, started, completed, or waits for an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkflowJob {
    /// What happened to the job; [`JobAction::Waiting`] also where GitHub announces a held job as queued.
    pub action: JobAction,
    /// GitHub's id of the job.
    pub id: u64,
    /// Which attempt of its run it belongs to, from 1; 1 where GitHub does not say.
    pub attempt: u32,
    /// Name of the workflow; empty where GitHub does not say.
    pub workflow: String,
    /// Name of the job; empty where GitHub does not say.
    pub name: String,
    /// GitHub's id of its run.
    pub run: Option<u64>,
    /// Branch of its run; empty where GitHub does not say.
    pub branch: String,
    /// Login of whoever started its run; empty where GitHub does not say.
    pub actor: String,
    /// Environment that it deploys to; empty for most.
    pub environment: String,
    /// Labels that it asks for, as written.
    pub labels: Vec<String>,
    /// How it ended, in GitHub's word, such as `failure`; none while it has not ended.
    pub conclusion: Option<String>,
    /// The runner's id; 0 for a job that was cancelled before it had one.
    pub runner_id: Option<u64>,
    /// Name of the runner; none where GitHub names none.
    pub runner_name: Option<String>,
    /// When it was made.
    pub created_at: Option<Timestamp>,
    /// When it started; none where GitHub gives no time.
    pub started_at: Option<Timestamp>,
    /// When it ended; none where GitHub gives no time.
    pub completed_at: Option<Timestamp>,
    /// Repository that the job belongs to.
    pub repository: Repository,
    /// Slug of the enterprise that the repository's owner belongs to.
    pub enterprise: Option<String>,
    /// Login of the organization, where the owner is one.
    pub organization: Option<String>,
    /// The first step that went wrong.
    pub failed_step: Option<FailedStep>,
}

/// A step that went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedStep {
    /// Its place in the list of steps, from 0.
    pub index: usize,
    /// It took too long.
    pub timed_out: bool,
}

/// What happened to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobAction {
    /// It waits for a runner, and for nothing else.
    Queued,
    /// A runner has it.
    InProgress,
    /// It has ended, in whatever way.
    Completed,
    /// It waits for an approval, and needs no runner yet.
    Waiting,
    /// Something that this version does not know.
    #[serde(other)]
    Other,
}

/// The repository that a job belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    /// Login of the owner.
    pub owner: String,
    /// Name without the owner.
    pub name: String,
    /// What the owner is.
    pub account: Account,
    /// Its URL in GitHub's API, where GitHub says it.
    pub url: Option<String>,
}

/// Kind of a repository's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Account {
    /// A person, who has no runners beyond those of repositories.
    User,
    /// An organization; also where GitHub says anything but `User`.
    Organization,
}

/// A webhook was made, or somebody tries it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ping {
    /// Id of the webhook.
    pub hook: Option<u64>,
    /// Events that it sends; `*` for all. Empty where GitHub does not say.
    pub events: Vec<String>,
}

impl Ping {
    /// Whether the webhook will send what is of use here, as far as GitHub says.
    #[must_use]
    pub fn sends_jobs(&self) -> bool {
        self.events.is_empty() || self.events.iter().any(|event| event == "*" || event == "workflow_job")
    }
}

#[derive(Deserialize)]
struct WireEvent {
    action: JobAction,
    workflow_job: WireJob,
    repository: WireRepository,
    #[serde(default)]
    enterprise: Option<WireEnterprise>,
    #[serde(default)]
    organization: Option<WireOrganization>,
    #[serde(default)]
    sender: Option<WireSender>,
    #[serde(default)]
    deployment: Option<WireDeployment>,
}

#[derive(Deserialize)]
struct WireSender {
    #[serde(default)]
    login: Option<String>,
}

#[derive(Deserialize)]
struct WireDeployment {
    #[serde(default)]
    environment: Option<String>,
}

#[derive(Deserialize)]
struct WireJob {
    id: u64,
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    run_id: Option<u64>,
    #[serde(default)]
    run_attempt: Option<u32>,
    #[serde(default)]
    workflow_name: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    head_branch: Option<String>,
    #[serde(default)]
    labels: Option<Vec<String>>,
    #[serde(default)]
    conclusion: Option<String>,
    #[serde(default)]
    runner_id: Option<u64>,
    #[serde(default)]
    runner_name: Option<String>,
    #[serde(default, deserialize_with = "moment")]
    created_at: Option<Timestamp>,
    #[serde(default, deserialize_with = "moment")]
    started_at: Option<Timestamp>,
    #[serde(default, deserialize_with = "moment")]
    completed_at: Option<Timestamp>,
    #[serde(default)]
    steps: Option<Vec<WireStep>>,
}

#[derive(Deserialize)]
struct WireStep {
    #[serde(default)]
    conclusion: Option<String>,
}

#[derive(Deserialize)]
struct WireOrganization {
    #[serde(default)]
    login: Option<String>,
}

#[derive(Deserialize)]
struct WireRepository {
    #[serde(default)]
    full_name: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    url: Option<String>,
    owner: WireOwner,
}

#[derive(Deserialize)]
struct WireOwner {
    #[serde(default)]
    login: Option<String>,
    #[serde(default, rename = "type")]
    kind: Option<String>,
}

#[derive(Deserialize)]
struct WireEnterprise {
    slug: String,
}

#[derive(Deserialize)]
struct WirePing {
    #[serde(default)]
    hook_id: Option<u64>,
    #[serde(default)]
    hook: Option<WireHook>,
}

#[derive(Deserialize)]
struct WireHook {
    #[serde(default)]
    events: Vec<String>,
}

/// Times are of use and not essential: an empty or odd one counts as absent, so that no job goes unheard because of it.
fn moment<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.and_then(|text| text.parse().ok()))
}

pub(super) fn workflow_job(json: &[u8]) -> Result<WorkflowJob, Misread> {
    let event: WireEvent = json::read(json)?;
    let (job, repository) = (event.workflow_job, event.repository);
    let (owner, name) = names(&repository)?;
    // What waits for an approval is announced as queued first, and once more when it has it.
    let is_held = matches!(job.status.as_deref(), Some("waiting" | "pending" | "requested"));
    Ok(WorkflowJob {
        action: if is_held && event.action == JobAction::Queued { JobAction::Waiting } else { event.action },
        id: job.id,
        attempt: job.run_attempt.unwrap_or(1),
        workflow: job.workflow_name.unwrap_or_default(),
        name: job.name.unwrap_or_default(),
        run: job.run_id.filter(|run| *run != 0),
        branch: job.head_branch.unwrap_or_default(),
        actor: event.sender.and_then(|sender| sender.login).unwrap_or_default(),
        environment: event.deployment.and_then(|deployment| deployment.environment).unwrap_or_default(),
        labels: job.labels.unwrap_or_default(),
        conclusion: job.conclusion,
        runner_id: job.runner_id,
        runner_name: job.runner_name.filter(|name| !name.is_empty()),
        created_at: job.created_at,
        started_at: job.started_at,
        completed_at: job.completed_at,
        repository: Repository {
            owner,
            name,
            account: if repository.owner.kind.as_deref() == Some("User") { Account::User } else { Account::Organization },
            url: repository.url,
        },
        enterprise: event.enterprise.map(|enterprise| enterprise.slug).filter(|slug| !slug.is_empty()),
        organization: event.organization.and_then(|organization| organization.login).filter(|login| !login.is_empty()),
        failed_step: failed_step(job.steps.as_deref().unwrap_or_default()),
    })
}

/// Owner and name of a repository, from `full_name`, or else from `owner.login` and `name`.
fn names(repository: &WireRepository) -> Result<(String, String), Misread> {
    let is_name = |text: &str| !text.is_empty() && !text.contains('/');
    let (full, owner, name) = (&repository.full_name, &repository.owner.login, &repository.name);
    let (pair, wrong) = match full.as_deref().filter(|full| !full.is_empty()) {
        Some(full) => (full.split_once('/'), "repository.full_name is not owner/name"),
        None => (
            owner.as_deref().zip(name.as_deref()),
            "the job's repository is not named: there is neither repository.full_name nor repository.owner.login with repository.name",
        ),
    };
    match pair {
        Some((owner, name)) if is_name(owner) && is_name(name) => Ok((owner.to_owned(), name.to_owned())),
        _ => Err(json::wrong(wrong)),
    }
}

fn failed_step(steps: &[WireStep]) -> Option<FailedStep> {
    steps.iter().enumerate().find_map(|(index, step)| match step.conclusion.as_deref() {
        Some("failure") => Some(FailedStep { index, timed_out: false }),
        Some("timed_out") => Some(FailedStep { index, timed_out: true }),
        _ => None,
    })
}

pub(super) fn ping(json: &[u8]) -> Result<Ping, Misread> {
    let ping: WirePing = json::read(json)?;
    Ok(Ping { hook: ping.hook_id, events: ping.hook.map(|hook| hook.events).unwrap_or_default() })
}
