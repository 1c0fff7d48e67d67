//! What a policy is asked and what it answers, free of any engine: the operator's own form of `wit/policy`.
//!
//! Field meanings and units are those of the contract; `pacer-policy` converts to and from the component's types and the SDK's.

use serde::{Deserialize, Serialize};

/// Further facts, by key; see the contract for the keys.
pub type Attributes = Vec<(String, String)>;

/// Runners of a pool by phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct Counts {
    /// Pod not running yet.
    pub pending: u32,
    /// Pod running, not registered yet.
    pub starting: u32,
    /// Registered, no job.
    pub idle: u32,
    /// Runs a job, or can't be proved not to.
    pub busy: u32,
    /// Being removed.
    pub stopping: u32,
}

/// Distribution of a duration, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct Quantiles {
    /// Number of observations.
    pub samples: u32,
    /// Median.
    pub p50: u32,
    /// 90th percentile.
    pub p90: u32,
    /// 99th percentile.
    pub p99: u32,
}

/// GitHub's primary rate limit for the pool's credentials.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct ApiBudget {
    /// Calls per window.
    pub limit: u32,
    /// Calls left in this window.
    pub remaining: u32,
    /// Seconds until it is full again.
    pub resets_in: u32,
}

/// The set of interchangeable runners a decision is about.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct Pool {
    /// Namespace of the object whose runners these are.
    pub namespace: String,
    /// Name of that object.
    pub name: String,
    /// `RunnerReplicaSet`, `RunnerDeployment`, `RunnerSet` or `Runner`.
    pub kind: String,
    /// Labels that the spec gives its runners.
    pub labels: Vec<String>,
    /// Lower bound, when an autoscaler sets one.
    pub min_replicas: Option<u32>,
    /// Upper bound, when an autoscaler sets one.
    pub max_replicas: Option<u32>,
    /// Wanted number of runners.
    pub desired: u32,
    /// Runners by phase.
    pub counts: Counts,
    /// Seconds since replicas went up.
    pub last_scale_up: Option<u32>,
    /// Seconds since replicas went down.
    pub last_scale_down: Option<u32>,
    /// Identifies the pod template.
    pub revision: String,
    /// Whether its runners take one job each.
    pub ephemeral: bool,
    /// GitHub's rate limit for the pool's credentials; none before GitHub's first answer.
    pub budget: Option<ApiBudget>,
    /// Pod created to runner online.
    pub start_time: Option<Quantiles>,
    /// Job started to job done.
    pub run_time: Option<Quantiles>,
    /// Jobs per minute, newest first.
    pub arrivals: Vec<u32>,
    /// Further facts about the pool, such as `unschedulable` and `image`; the contract lists the keys.
    pub attributes: Attributes,
}

/// A node that runs runners of the pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct Node {
    /// Name of the Node object.
    pub name: String,
    /// Runners of the pool on it.
    pub runners: u32,
    /// How many of these are busy or can't be proved idle.
    pub busy: u32,
    /// Cordoned or about to go.
    pub draining: bool,
    /// Seconds since it was made.
    pub age: Option<u32>,
    /// Further facts about the node, such as `capacity-type` and `price-per-hour`; the contract lists the keys.
    pub attributes: Attributes,
}

/// A runner that may be removed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct Candidate {
    /// Name of the Runner object, of its pod and at GitHub.
    pub name: String,
    /// Seconds for which it has been proved idle.
    pub idle: u32,
    /// Seconds since its pod was made.
    pub age: u32,
    /// Index into the request's nodes.
    pub node: Option<u32>,
    /// Runs the newest template.
    pub current: bool,
    /// Seconds since its last job.
    pub last_job_end: Option<u32>,
    /// Further facts about the runner, such as its labels and its last job; the contract lists the keys.
    pub attributes: Attributes,
}

/// Which of these go first?
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct ScaleDownRequest {
    /// Unix time in seconds.
    pub now: f64,
    /// JSON from the policy set.
    pub settings: String,
    /// The pool that the candidates belong to.
    pub pool: Pool,
    /// Nodes that candidates refer to by index.
    pub nodes: Vec<Node>,
    /// Who may be removed.
    pub candidates: Vec<Candidate>,
    /// How many at most.
    pub surplus: u32,
    /// Further facts: `waiting-jobs` and `waiting-seconds`, for policies that read them.
    pub attributes: Attributes,
}

/// One runner a policy wants removed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct Choice {
    /// Index into the candidates.
    pub index: u32,
    /// Why the runner goes: one line for people, cut to 256 bytes.
    pub reason: String,
    /// Further facts; the contract defines no keys for answers yet.
    pub attributes: Attributes,
}

/// A runner that ended, never registered or went missing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct Subject {
    /// Name of the Runner object, of its pod and at GitHub.
    pub name: String,
    /// What happened to the runner: a word of [`crate::phase::Situation::as_str`].
    pub situation: String,
    /// Why it happened: a word of [`crate::phase::Cause::as_str`].
    pub cause: String,
    /// Of the runner container.
    pub exit_code: Option<i32>,
    /// What the cluster says.
    pub message: String,
    /// unknown, absent, offline or online.
    pub github: String,
    /// Seen at GitHub at least once.
    pub was_registered: bool,
    /// Seconds in this situation.
    pub since: u32,
    /// Seconds since the pod was made.
    pub age: u32,
    /// Consecutive failed attempts of the pool.
    pub attempts: u32,
    /// Takes one job.
    pub ephemeral: bool,
    /// No set owns it.
    pub stand_alone: bool,
    /// Runs the newest template.
    pub current: bool,
    /// Index into the request's nodes.
    pub node: Option<u32>,
    /// Further facts about the runner: its labels and annotations, for policies that read them.
    pub attributes: Attributes,
}

/// What to do about these runners?
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct RestartRequest {
    /// Unix time in seconds.
    pub now: f64,
    /// JSON from the policy set.
    pub settings: String,
    /// The pool that the subjects belong to.
    pub pool: Pool,
    /// Nodes that subjects refer to by index.
    pub nodes: Vec<Node>,
    /// Who needs a decision.
    pub subjects: Vec<Subject>,
    /// Further facts; the contract defines no keys for this request yet.
    pub attributes: Attributes,
}

/// A policy's answer about one subject.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct Verdict {
    /// Index into the subjects.
    pub index: u32,
    /// keep, look-again, recreate, replace or quarantine.
    pub action: String,
    /// Seconds to wait first.
    pub after: Option<u32>,
    /// Why this action: one line for people, cut to 256 bytes.
    pub reason: String,
    /// Further facts; the contract defines no keys for answers yet.
    pub attributes: Attributes,
}

/// A job that waits or runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct Job {
    /// GitHub's job id.
    pub id: u64,
    /// queued or in-progress.
    pub state: String,
    /// Seconds since it was queued.
    pub queued: u32,
    /// Seconds since it started.
    pub started: Option<u32>,
    /// owner/name.
    pub repository: String,
    /// Name of the workflow.
    pub workflow: String,
    /// Labels it asks for.
    pub labels: Vec<String>,
    /// Run attempt, from 1.
    pub attempt: u32,
    /// Runner it was given to.
    pub runner: Option<String>,
    /// Further facts about the job, such as `run`, `branch` and `actor`; the contract lists the keys.
    pub attributes: Attributes,
}

/// Capacity held for jobs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct Reservation {
    /// Names it within the pool.
    pub id: String,
    /// Jobs it is for.
    pub jobs: Vec<u64>,
    /// Runners that are to exist because of it while it is in force.
    pub replicas: u32,
    /// Seconds from now; 0 or negative when it is in force.
    pub effective: i32,
    /// Seconds from now until it ends; every reservation ends.
    pub expires: u32,
    /// Why it is made: one line for people, cut to 256 bytes.
    pub reason: String,
    /// Further facts; the contract defines no keys for reservations yet.
    pub attributes: Attributes,
}

/// Which reservations should exist?
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct CapacityRequest {
    /// Unix time in seconds.
    pub now: f64,
    /// JSON from the policy set.
    pub settings: String,
    /// The pool that the reservations are for.
    pub pool: Pool,
    /// Open jobs of the pool; the attribute `omitted-jobs` says how many are left out.
    pub jobs: Vec<Job>,
    /// Reservations of the last answer that have not expired, those that begin later included.
    pub reservations: Vec<Reservation>,
    /// Further facts: `reservation-seconds`, and `omitted-jobs` where jobs are left out.
    pub attributes: Attributes,
}

/// Answer of a capacity policy: what to reserve, and the most runners that there may be for now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct CapacityPlan {
    /// All that should exist.
    pub reservations: Vec<Reservation>,
    /// Lower maximum, for now.
    pub ceiling: Option<u32>,
    /// Seconds until the policy wants to be asked again.
    pub look_again: Option<u32>,
    /// Further facts; the contract defines no keys for answers yet.
    pub attributes: Attributes,
}

/// A job that died with its runner.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct DeadJob {
    /// GitHub's job id.
    pub id: u64,
    /// GitHub's id of its run, where that is known.
    pub run: Option<u64>,
    /// Run attempt, from 1.
    pub attempt: u32,
    /// owner/name.
    pub repository: String,
    /// Name of the workflow.
    pub workflow: String,
    /// Labels it asks for.
    pub labels: Vec<String>,
    /// The runner that it died with.
    pub runner: String,
    /// node-lost, evicted, preempted or oom-killed.
    pub cause: String,
    /// What the cluster says.
    pub message: String,
    /// Seconds since the runner ended.
    pub since: u32,
    /// Seconds for which it had run.
    pub ran: u32,
    /// Attempts of the run before this one.
    pub recoveries: u32,
    /// Index into the request's nodes.
    pub node: Option<u32>,
    /// Further facts about the job, such as `run`, `branch` and `actor`; the contract lists the keys.
    pub attributes: Attributes,
}

/// Shall these jobs run again?
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct RecoverRequest {
    /// Unix time in seconds.
    pub now: f64,
    /// JSON from the policy set.
    pub settings: String,
    /// The pool that the jobs' runners belonged to.
    pub pool: Pool,
    /// Nodes that the jobs refer to by index.
    pub nodes: Vec<Node>,
    /// Jobs that died with their runners.
    pub jobs: Vec<DeadJob>,
    /// Further facts; the contract defines no keys for this request yet.
    pub attributes: Attributes,
}

/// A policy's answer about one dead job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct Recovery {
    /// Index into the jobs.
    pub index: u32,
    /// rerun or leave.
    pub action: String,
    /// Seconds to wait first.
    pub after: Option<u32>,
    /// Why this action: one line for people, cut to 256 bytes.
    pub reason: String,
    /// Further facts; the contract defines no keys for answers yet.
    pub attributes: Attributes,
}
