//! What people see of the operator at one moment, and the difference between two of them.
//!
//! A snapshot is JSON of a stated form ([`VERSION`]): every part is a map, by a key that stays the same for as long as the thing exists. Nothing in it
//! moves by itself: moments are told, not ages, so that an unchanged world gives an unchanged snapshot. It holds no secret: names, numbers,
//! times, messages of the cluster and of GitHub.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use pacer_core::estimate::Estimate;
use pacer_core::policy::Quantiles;
use pacer_policy::Agreement;
use serde::{Deserialize, Serialize};

use crate::standing::State;

mod build;
mod demand;
mod expense;
mod fleet;
mod github;
mod ledger;
mod shadow;
mod waits;

pub use build::Builder;
pub use expense::{expenses, sight};
pub use waits::WaitBins;

/// The form that this version writes. A field may be added without a new number; one that changes or goes takes one.
pub const VERSION: u32 = 1;

/// Runners in a snapshot at most; how many are left out is told.
pub const RUNNERS: usize = 5_000;

/// Jobs in a snapshot at most, those that have waited longest first; how many are left out is told.
pub const JOBS: usize = 2_000;

/// Things of one kind by their key, which the sections of [`Snapshot`] describe.
pub type Section<T> = BTreeMap<String, Arc<T>>;

/// The [`RUNNERS`] that there is room for, always the same ones, and how many there is none for.
#[must_use]
pub fn shown(mut runners: Section<Runner>) -> (Section<Runner>, usize) {
    let Some(first) = runners.keys().nth(RUNNERS).cloned() else { return (runners, 0) };
    let left_out = runners.split_off(&first).len();
    (runners, left_out)
}

/// Whether something that was last done at `at` is to be done again. It is after the clock was set back to before that.
fn is_due(at: Option<Timestamp>, every: SignedDuration, now: Timestamp) -> bool {
    !at.is_some_and(|at| (SignedDuration::ZERO..every).contains(&now.duration_since(at)))
}

/// Makes the snapshot, what changed of its parts, and what is gone from them from one list of parts.
macro_rules! sections {
    ($($(#[$meaning:meta])* $name:ident: $type:ty,)*) => {
        /// What there is at one moment.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        pub struct Snapshot {
            /// [`VERSION`] of whoever wrote it.
            pub version: u32,
            /// Grows with every change, within a process.
            pub number: u64,
            /// When it was made.
            pub at: Timestamp,
            /// The process that tells.
            pub operator: Operator,
            $($(#[$meaning])* #[serde(default)] pub $name: Section<$type>,)*
        }

        /// Things that are new or differ, as they are now.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        pub struct Changed {
            $($(#[$meaning])* #[serde(default, skip_serializing_if = "BTreeMap::is_empty")] pub $name: Section<$type>,)*
        }

        /// Keys of things that are gone.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        pub struct Removed {
            $($(#[$meaning])* #[serde(default, skip_serializing_if = "Vec::is_empty")] pub $name: Vec<String>,)*
        }

        impl Delta {
            /// What leads from one snapshot to a later one; none where they say the same.
            #[must_use]
            pub fn between(before: &Snapshot, after: &Snapshot) -> Option<Self> {
                let changed = Changed { $($name: changed(&before.$name, &after.$name),)* };
                let removed = Removed { $($name: removed(&before.$name, &after.$name),)* };
                let operator = (before.operator != after.operator).then(|| after.operator.clone());
                let is_none = operator.is_none() && changed == Changed::default() && removed == Removed::default();
                (!is_none).then_some(Self { number: after.number, after: before.number, at: after.at, operator, changed, removed })
            }

            /// Brings a snapshot up to date. False, and nothing done, when it is not the one that this difference begins with.
            pub fn apply(self, snapshot: &mut Snapshot) -> bool {
                if self.after != snapshot.number {
                    return false;
                }
                (snapshot.number, snapshot.at) = (self.number, self.at);
                if let Some(operator) = self.operator {
                    snapshot.operator = operator;
                }
                $(
                    snapshot.$name.retain(|key, _| !self.removed.$name.contains(key));
                    snapshot.$name.extend(self.changed.$name);
                )*
                true
            }
        }
    };
}

sections! {
    /// RunnerDeployments, RunnerSets, and RunnerReplicaSets that stand alone: `kind/namespace/name`.
    pools: Pool,
    /// Runners: `namespace/name`.
    runners: Runner,
    /// Jobs that are known and not over: `namespace/autoscaler/id`.
    jobs: Job,
    /// The newest decisions of this process, by twelve digits that grow.
    decisions: Decision,
    /// Credentials at GitHub, by their name.
    credentials: Credentials,
    /// Listings of runners: `credentials/scope`.
    listings: Listing,
    /// The newest failures of runners, by twelve digits that grow.
    failures: Failure,
    /// Failures by cause.
    causes: Cause,
    /// The newest answers of policies in shadow, by twelve digits that grow.
    comparisons: Comparison,
    /// Fleets as they would be by now if policies in shadow decided: `namespace/name` of the pool.
    simulations: Simulation,
    /// What runners cost whom: `owner/name` of a repository, or a word of [`Payer`].
    expenses: Expense,
    /// How long jobs waited over the last two hours: key of the pool, a blank and the labels; without these for all other sets of labels.
    waits: Waits,
}

/// What changed from one snapshot to a later one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Delta {
    /// Number of the later one.
    pub number: u64,
    /// Number of the one that it begins with.
    pub after: u64,
    /// When the later one was made.
    pub at: Timestamp,
    /// The process that tells, if anything about it changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator: Option<Operator>,
    /// What is new or differs.
    #[serde(default)]
    pub changed: Changed,
    /// Keys of the things that are gone.
    #[serde(default)]
    pub removed: Removed,
}

fn changed<T: PartialEq>(before: &Section<T>, after: &Section<T>) -> Section<T> {
    let differs = |(key, value): &(&String, &Arc<T>)| before.get(*key) != Some(*value);
    after.iter().filter(differs).map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn removed<T>(before: &Section<T>, after: &Section<T>) -> Vec<String> {
    before.keys().filter(|key| !after.contains_key(*key)).cloned().collect()
}

/// A number as a key that sorts like it.
fn grown(number: u64) -> String {
    format!("{number:012}")
}

/// What the process that tells is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Not ready yet.
    #[default]
    Starting,
    /// Another process leads, and knows what there is.
    Standby,
    /// Leads, and is reading the cluster.
    Filling,
    /// Leads and acts.
    Acting,
}

/// The process that tells.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operator {
    /// What it is doing.
    pub role: Role,
    /// Version of pacer that this process runs.
    pub version: String,
    /// Failed webhook deliveries that are still to be delivered again.
    pub missing_webhooks: u64,
    /// What became of failed webhook deliveries since this process began.
    #[serde(default)]
    pub redeliveries: Redeliveries,
    /// What there was no room for.
    pub left_out: LeftOut,
}

/// Failed webhook deliveries by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redeliveries {
    /// Times that GitHub was asked to deliver one again.
    pub asked: u64,
    /// Missed events that a receiver took after GitHub had been asked to deliver them again.
    pub delivered: u64,
    /// GitHub does not deliver them again.
    pub refused: u64,
    /// They failed as often as they may, or are too old.
    pub given_up: u64,
}

/// How many things are not in a snapshot, for lack of room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Runners beyond the [`RUNNERS`] that there is room for.
    pub runners: usize,
    /// Jobs beyond the [`JOBS`] that there is room for.
    pub jobs: usize,
}

/// Runners of one template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pool {
    /// Kind of the object.
    pub kind: String,
    /// Namespace of the object, and of its runners.
    pub namespace: String,
    /// Name of the object; one of another kind may have the same.
    pub name: String,
    /// Labels of its runners.
    pub labels: Vec<String>,
    /// `minReplicas` of its autoscaler.
    pub min: Option<u32>,
    /// `maxReplicas` of its autoscaler.
    pub max: Option<u32>,
    /// How many runners it is to have.
    pub desired: u32,
    /// Runners that exist and are not on their way out.
    pub actual: u32,
    /// Its runners by state.
    pub counts: Counts,
    /// Its autoscaler; none where people set the number.
    pub autoscaler: Option<String>,
    /// The policy set it asks for; none for the installation's default.
    pub policies: Option<String>,
    /// Why its number is what it is, in its autoscaler's words.
    pub limit: Option<Reason>,
    /// Times from a job's queueing to its runner being online, of late; seconds.
    pub online_after: Option<Quantiles>,
}

/// Runners by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Not started.
    pub pending: u32,
    /// Not registered yet.
    pub starting: u32,
    /// Without a job.
    pub idle: u32,
    /// Running a job, or not proved not to.
    pub busy: u32,
    /// Registered, not connected, without a job.
    pub offline: u32,
    /// Over, or about to be after their only job, and not decided on yet.
    pub ended: u32,
    /// Kept for people to look at.
    pub quarantined: u32,
    /// On their way out.
    pub stopping: u32,
}

/// A word of a closed set, and a sentence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// Reason of a condition or of a refusal, or why a job waits, in one CamelCase word; empty where there is no word.
    pub word: String,
    /// The reason in words for people.
    pub text: String,
}

/// One runner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runner {
    /// Namespace of the Runner object.
    pub namespace: String,
    /// Name of the Runner object, of its pod and at GitHub.
    pub name: String,
    /// Key of its pool; none where it stands alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Node of its pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// What it is doing, such as `idle` or `busy`.
    pub state: State,
    /// Since when, as far as this process can tell.
    pub since: Timestamp,
    /// When it was made.
    pub created: Timestamp,
    /// Whether it takes one job only.
    pub ephemeral: bool,
    /// Whether no scale-down may take it.
    pub protected: bool,
    /// The job that it runs, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<RunningJob>,
    /// What is wrong with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<Trouble>,
}

/// The job of a runner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningJob {
    /// GitHub's id.
    pub id: u64,
    /// `owner/name`.
    pub repository: String,
    /// Name of the workflow.
    pub workflow: String,
    /// When it started.
    pub since: Timestamp,
}

/// What is wrong with a runner, in the words that policies are given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// The contract's word for what happened, such as `not-starting`.
    pub situation: String,
    /// The contract's word for the cause, such as `unschedulable`.
    pub cause: String,
    /// What the cluster says.
    pub message: String,
    /// When the trouble began.
    pub since: Timestamp,
}

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobState {
    /// Waits for a runner.
    Queued,
    /// A runner runs it.
    Running,
}

/// One job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// GitHub's id.
    pub id: u64,
    /// Name of the autoscaler whose ledger has it.
    pub autoscaler: String,
    /// Key of the pool that is to run it; none while that does not exist.
    pub pool: Option<String>,
    /// `owner/name`.
    pub repository: String,
    /// Name of the workflow.
    pub workflow: String,
    /// Labels it asks for.
    pub labels: Vec<String>,
    /// Attempt of its run.
    pub attempt: u32,
    /// How far it is.
    pub state: JobState,
    /// When it was queued.
    pub queued: Timestamp,
    /// When it came into its state.
    pub since: Timestamp,
    /// The runner it was given to.
    pub runner: Option<String>,
    /// Its place among the jobs that its autoscaler knows and that wait, from 1; none for one that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<u32>,
    /// How many of them wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<u32>,
    /// Why it waits, as far as that is known; none for one that runs.
    pub reason: Option<Reason>,
    /// Since when it waits for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason_since: Option<Timestamp>,
    /// When it will probably start; none where nothing tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Estimate>,
}

/// A decision in a few words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// When it was decided.
    pub at: Timestamp,
    /// Key of the pool.
    pub pool: String,
    /// Which decision: `scale-down`, `restart`, `capacity` or `recover`.
    pub decision: String,
    /// Who decided: `default@sha256:0123456789ab`, `native`, or `none` where no policy was asked.
    pub policy: String,
    /// What was done.
    pub summary: String,
    /// What became of single runners.
    pub items: Vec<Item>,
    /// Runners beyond those.
    pub more: usize,
}

/// What became of a runner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// Name of the runner.
    pub runner: String,
    /// The rest of a sentence that begins with it.
    pub text: String,
}

/// What a policy in shadow answered, beside what was decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Comparison {
    /// Since when both answer so.
    pub at: Timestamp,
    /// Key of the pool.
    pub pool: String,
    /// Which decision: `scale-down`, `restart`, `capacity` or `recover`.
    pub decision: String,
    /// Who decided: `default@sha256:0123456789ab`, or `native`.
    pub in_force: String,
    /// Who was asked in shadow.
    pub shadow: String,
    /// What was decided.
    pub answered: String,
    /// What the policy in shadow answered, or why that could not have been used.
    pub would: String,
    /// What these two come to.
    pub agreement: Agreement,
}

/// What the fleet of a pool would be by now if its policies in shadow decided.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Simulation {
    /// Since when what happened is taken into account.
    pub since: Timestamp,
    /// Jobs whose waits count.
    pub jobs: u64,
    /// What it comes to; none where nothing is said.
    pub figures: Vec<Figure>,
    /// By how much the simulation of the policies in force misses the waits that were, seconds.
    pub wait_error: f64,
    /// By which share it misses the runner-minutes that were.
    pub runner_minutes_error: f64,
    /// Why nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<Reason>,
}

/// One figure of a fleet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// What it is called, as `pacer simulate` calls it.
    pub metric: String,
    /// `s`, `min` or nothing.
    pub unit: String,
    /// Its value in what really happened.
    pub recorded: f64,
    /// As it is simulated with the policies in force.
    pub in_force: f64,
    /// As it is simulated with those in shadow.
    pub shadow: f64,
}

/// How long jobs of a pool waited that asked for the same labels and started in the last two hours. Seconds; p50 and p95 are up to 2 % too short.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    /// Key of the pool.
    pub pool: String,
    /// The labels, sorted.
    pub labels: Vec<String>,
    /// Whether these are all jobs with labels beyond the first sixteen sets.
    pub others: bool,
    /// Jobs that started.
    pub jobs: u64,
    /// Half of them waited no longer.
    pub p50: u32,
    /// 95 of 100 waited no longer.
    pub p95: u32,
    /// The longest wait.
    pub max: u32,
    /// Spans of five minutes in which jobs started, in their order.
    pub bins: Vec<WaitBin>,
}

/// Waits of the jobs that started in a span of five minutes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitBin {
    /// When it begins.
    pub from: Timestamp,
    /// Jobs that started.
    pub jobs: u64,
    /// Half of them waited no longer.
    pub p50: u32,
    /// 95 of 100 waited no longer.
    pub p95: u32,
    /// The longest wait.
    pub max: u32,
}

/// Whom runners cost something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Payer {
    /// A repository, whose name is the key.
    Repository,
    /// Repositories beyond those that are told from each other.
    Others,
    /// Runners were busy with jobs that nobody told of.
    Unknown,
    /// Runners that have had no job.
    Nobody,
}

/// What runners cost a repository: see `pacer_core::spend`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Expense {
    /// Whom these runners cost something; where that is a repository, the key is its name.
    pub payer: Payer,
    /// Jobs that began.
    pub jobs: u64,
    /// Minutes of runners with a job.
    pub busy_minutes: f64,
    /// Minutes of runners that were online without a job.
    pub idle_minutes: f64,
    /// What all their minutes cost whose price is known, in the currency of the prices; none where there are no prices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// Minutes whose price is not known, where there are prices.
    pub unpriced_minutes: f64,
}

/// Credentials at GitHub, and what they may still ask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credentials {
    /// `default`, or namespace and name of the Secret.
    pub name: String,
    /// `token`, `app` or `basic`.
    pub kind: String,
    /// What GitHub's answers say is left.
    pub budgets: Vec<Budget>,
    /// Until when a secondary limit stands.
    pub secondary_until: Option<Timestamp>,
    /// Calls that were not sent because a limit stood.
    pub held_back: u64,
    /// Calls that were sent, by how they ended.
    pub calls: BTreeMap<String, u64>,
}

/// One of GitHub's hourly budgets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// What the budget is for, in GitHub's word for it, such as `core`.
    pub resource: String,
    /// Whose installation is charged; none where the credentials have one budget.
    pub owner: Option<String>,
    /// Calls per window.
    pub limit: u32,
    /// Calls left.
    pub remaining: u32,
    /// When the window ends.
    pub resets_at: Timestamp,
}

/// How reading the runners of a scope goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// Name of the credentials.
    pub credentials: String,
    /// Enterprise, organization or `owner/name`.
    pub scope: String,
    /// When the last good one was started.
    pub at: Option<Timestamp>,
    /// Runners in it, of this installation or not.
    pub runners: usize,
    /// Failed listings since the last good one.
    pub failures: u32,
    /// What GitHub, or the way to it, said to the last one that failed.
    pub error: Option<String>,
}

/// Something went wrong with a runner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// When the trouble began.
    pub at: Timestamp,
    /// Namespace of the runner.
    pub namespace: String,
    /// Name of the runner.
    pub runner: String,
    /// Key of its pool; empty where it stands alone or its set is gone.
    pub pool: String,
    /// The contract's word for what happened, such as `not-starting`.
    pub situation: String,
    /// The contract's word for the cause, such as `unschedulable`.
    pub cause: String,
    /// What the cluster says.
    pub message: String,
}

/// Failures of one cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// The contract's word for the cause, such as `unschedulable`.
    pub cause: String,
    /// Runners that are in that trouble now.
    pub now: usize,
    /// How many there were since this process began.
    pub total: u64,
    /// When the last one began.
    pub last: Option<Timestamp>,
}

#[cfg(test)]
mod tests;
