//! What a line says.

use std::num::NonZeroU32;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::surroundings::{Budget, Listings, NodeFacts, NodeState, Room, is_zero};

/// The value of `format` in a header.
pub const FORMAT: &str = "pacer-trace";

/// The version that is written. A reader refuses others; within a version kinds and fields are only added.
pub const VERSION: u32 = 1;

/// First line of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// [`FORMAT`]; a reader refuses any other value.
    pub format: String,
    /// Version of the format: [`VERSION`] in what this program writes.
    pub version: u32,
    /// Since when everything is recorded; what records say of earlier moments was learned afterwards.
    pub started: Timestamp,
    /// Program that wrote it.
    pub by: String,
    /// Names were replaced by keyed hashes.
    #[serde(default)]
    pub redacted: bool,
}

impl Header {
    /// Of a trace that begins now.
    #[must_use]
    pub fn new(started: Timestamp) -> Self {
        let by = concat!("pacer ", env!("CARGO_PKG_VERSION")).to_owned();
        Self { format: FORMAT.to_owned(), version: VERSION, started, by, redacted: false }
    }
}

/// Any line of a trace but the first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// When it happened, as exactly as known.
    pub at: Timestamp,
    /// The kind of the record, and its fields.
    #[serde(flatten)]
    pub what: What,
}

/// What happened, or how something is from now on; `kind` in JSON says which.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum What {
    /// These settings of a pool are in force from now on.
    Pool(PoolSettings),
    /// GitHub queued a job.
    JobQueued {
        /// GitHub's id of the job.
        job: u64,
        /// Repository, workflow, labels and attempt.
        #[serde(flatten)]
        about: About,
    },
    /// GitHub gave a job to a runner.
    JobAssigned {
        /// GitHub's id of the job.
        job: u64,
        /// Name of the runner.
        runner: Arc<str>,
    },
    /// A job began to run.
    JobStarted {
        /// GitHub's id of the job.
        job: u64,
        /// Name of its runner, where it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        runner: Option<Arc<str>>,
    },
    /// A job is over, whatever came of it; one that never started was cancelled.
    JobCompleted {
        /// GitHub's id of the job.
        job: u64,
    },
    /// A Runner object was made.
    RunnerCreated {
        /// Name of the runner.
        runner: Arc<str>,
        /// `namespace/name` of its pool.
        pool: Arc<str>,
    },
    /// It became known which node a runner's pod is on.
    RunnerPlaced {
        /// Name of the runner.
        runner: Arc<str>,
        /// Name of the node.
        node: Arc<str>,
    },
    /// A runner came online for the first time.
    RunnerRegistered {
        /// Name of the runner.
        runner: Arc<str>,
    },
    /// A runner has a job.
    RunnerBusy {
        /// Name of the runner.
        runner: Arc<str>,
    },
    /// A runner has no job any more.
    RunnerIdle {
        /// Name of the runner.
        runner: Arc<str>,
    },
    /// A Runner object is gone.
    RunnerEnded {
        /// Name of the runner.
        runner: Arc<str>,
        /// Why it is gone; [`End::Unknown`] where nothing says so.
        why: End,
    },
    /// An autoscaler's number changed.
    Decision {
        /// `namespace/name` of the pool.
        pool: Arc<str>,
        /// Wanted number of runners before the change.
        from: u32,
        /// Wanted number of runners after it.
        to: u32,
        /// Why, for people.
        #[serde(default)]
        why: String,
    },
    /// A decision left a receipt in the cluster; told when that is written.
    Receipt {
        /// `namespace/name` of the pool.
        pool: Arc<str>,
        /// `capacity`, `scale-down`, `restart` or `recover`.
        decision: Arc<str>,
        /// Who decided: `default@sha256:0123456789ab`, `native`, or `none` where no policy was asked.
        policy: Arc<str>,
        /// What was done, for people.
        #[serde(default)]
        summary: String,
        /// Id of the receipt.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        receipt: Option<String>,
    },
    /// A node of runners is so from now on.
    Node(NodeFacts),
    /// The cluster has no room for some runners of a pool, or has room again.
    Room(Room),
    /// Runners were listed at GitHub.
    Listings(Listings),
    /// What GitHub lets us ask has changed notably.
    Budget(Budget),
    /// The recorder is back. What happened in between is known as far as the cluster still told.
    Resumed {
        /// The last record before.
        since: Timestamp,
    },
    /// Nothing else happened until now.
    Checkpoint {},
    /// A kind that this program does not know.
    #[serde(other)]
    Unknown,
}

/// Settings of a pool: a RunnerDeployment or RunnerSet and its autoscaler.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolSettings {
    /// Its name: see [`crate::PoolName`].
    pub pool: Arc<str>,
    /// Labels of its runners, GitHub's own not.
    pub labels: Vec<Arc<str>>,
    /// Runners take one job each.
    pub ephemeral: bool,
    /// Fewest runners: by the scheduled override that holds, or else by the autoscaler itself.
    pub min: u32,
    /// Most runners.
    pub max: u32,
    /// Wanted number of runners at this moment.
    pub replicas: u32,
    /// How long after an increase the number is not lowered.
    pub scale_down_delay_seconds: u64,
    /// How long a queued job counts if no further event of it comes; 0 where there is no autoscaler.
    pub job_life_seconds: u64,
    /// Jobs come on top of the minimum: the autoscaler has a trigger.
    pub webhooks: bool,
    /// How long a runner has to be idle before it may be removed; none where the recorder was not told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_confirmation_seconds: Option<u64>,
    /// Most runners by which its number is raised within a minute; none where as many as are wanted, or the recorder was not told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ramp_per_minute: Option<NonZeroU32>,
    /// Name of the policy set that the pool asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policies: Option<String>,
    /// `name@sha256:...` of the policy that plans its capacity, where that is not the shipped one as it is; none also where the recorder was not told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_policy: Option<Arc<str>>,
    /// The autoscaler keeps its number, because its spec or what that names is refused.
    #[serde(default, skip_serializing_if = "is_false")]
    pub refused: bool,
    /// Where at GitHub its runners are registered: `repository owner/name`, `organization name` or `enterprise name`; none where the recorder was
    /// not told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Arc<str>>,
    /// Volumes that each runner has a claim of, which the next runner takes over.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub volumes: u32,
    /// Claims that fewer runners leave over are deleted.
    #[serde(default, skip_serializing_if = "is_false")]
    pub surplus_volumes_deleted: bool,
    /// Fields of the spec that change the number and are not part of this format yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unrecorded: Vec<String>,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl PoolSettings {
    /// Whether an autoscaler decides its number.
    #[must_use]
    pub fn is_autoscaled(&self) -> bool {
        self.job_life_seconds > 0
    }
}

/// What does not change about a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// `owner/name`.
    pub repository: Arc<str>,
    /// Name of the workflow.
    pub workflow: Arc<str>,
    /// Labels it asks for.
    pub labels: Arc<[Arc<str>]>,
    /// Run attempt, from 1.
    pub attempt: u32,
    /// `namespace/name` of the pool whose autoscaler counts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<Arc<str>>,
}

/// Why a runner is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// It did its job.
    Finished,
    /// It registered and had no job when it went.
    Removed,
    /// It never registered.
    Failed,
    /// Nothing says why.
    Unknown,
}

/// What a record is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    Job(u64),
    Runner(Arc<str>),
}

impl What {
    /// The job or runner that it is about.
    pub(crate) fn subject(&self) -> Option<Subject> {
        match self {
            Self::JobQueued { job, .. }
            | Self::JobAssigned { job, .. }
            | Self::JobStarted { job, .. }
            | Self::JobCompleted { job } => Some(Subject::Job(*job)),
            Self::RunnerCreated { runner, .. }
            | Self::RunnerPlaced { runner, .. }
            | Self::RunnerRegistered { runner }
            | Self::RunnerBusy { runner }
            | Self::RunnerIdle { runner }
            | Self::RunnerEnded { runner, .. } => Some(Subject::Runner(runner.clone())),
            Self::Pool(_)
            | Self::Decision { .. }
            | Self::Receipt { .. }
            | Self::Node(_)
            | Self::Room(_)
            | Self::Listings(_)
            | Self::Budget(_)
            | Self::Resumed { .. }
            | Self::Checkpoint {}
            | Self::Unknown => None,
        }
    }

    /// Whether nothing more is to be said of its subject.
    pub(crate) fn ends(&self) -> bool {
        matches!(self, Self::JobCompleted { .. } | Self::RunnerEnded { .. })
    }
}

/// Something of which a record says how it is from now on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Standing {
    Pool(Arc<str>),
    Room(Arc<str>),
    Node(Arc<str>),
}

impl What {
    /// What it says the present state of, for as long as nothing newer is said.
    pub(crate) fn standing(&self) -> Option<Standing> {
        match self {
            Self::Pool(settings) => Some(Standing::Pool(settings.pool.clone())),
            Self::Room(room) => Some(Standing::Room(room.pool.clone())),
            Self::Node(node) => Some(Standing::Node(node.node.clone())),
            _ => None,
        }
    }

    /// Whether its subject is as if nothing had been said of it.
    pub(crate) fn clears(&self) -> bool {
        match self {
            Self::Room(room) => room.waiting == 0,
            Self::Node(node) => node.state == NodeState::Gone,
            _ => false,
        }
    }
}
