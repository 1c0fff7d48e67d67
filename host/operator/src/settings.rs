//! What the operator is told at its start.

use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::time::Duration;

pub use pacer_cluster::FAN_OUT;
use pacer_core::recovery::Budget;
use pacer_core::restart::RestartLimits;
use pacer_core::shard::Share;
use pacer_core::stop::StopLimits;
use pacer_demand::redelivery;

use crate::pod::PodDefaults;

/// Settings of the controllers. The binary fills them from flags and environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Only this namespace; all when none.
    pub namespace: Option<String>,
    /// Only the namespaces of this shard (`--shards`); all when none.
    pub share: Option<Share>,
    /// Defaults of runner pods.
    pub pod: PodDefaults,
    /// Labels appended to those of every RunnerDeployment (`--common-runner-labels`).
    pub common_labels: Vec<String>,
    /// Every object is looked at again after this at the latest (`--sync-period`).
    pub sync_period: Duration,
    /// Reconciles that run at once, per kind.
    pub concurrency: u16,
    /// How long a runner has to be proved idle before it may be offered to the scale-down policy, and how long nothing may say that it works
    /// from when runners are to go until GitHub is asked to remove it.
    pub idle_confirmation: Duration,
    /// How long an autoscaler's number stays after it was raised, where its spec does not say (`--default-scale-down-delay`).
    pub scale_down_delay: Duration,
    /// Most new runners per minute that one autoscaler asks for (`--max-new-runners-per-minute`); none means no limit.
    pub ramp: Option<NonZeroU32>,
    /// How long claims of RunnerSets stay that no runner can use any more (`--runner-set-claim-retention`); for ever when none.
    pub claim_retention: Option<Duration>,
    /// How long a runner waits for a node that reaches the volumes of the claims it took over (`--runner-set-claim-patience`).
    pub claim_patience: Duration,
    /// Limits of a stop.
    pub stop: StopLimits,
    /// Shortest and longest delays of restarts, which no policy can leave.
    pub restart: RestartLimits,
    /// How many jobs that died with their runners may run again (`--recover-jobs`); none where all of them stay failed.
    pub recovery: Option<Budget>,
    /// Which missed webhooks are asked for again.
    pub redelivery: redelivery::Settings,
}

impl Settings {
    /// Whether a namespace is one of those that are acted for.
    #[must_use]
    pub fn serves(&self, namespace: &str) -> bool {
        self.share.is_none_or(|share| share.has(namespace))
    }
}

/// Time between passes over a set whose runners change all the time, from the smallest sets to the largest ones: bursts of pod changes become
/// one pass. A pass looks at every runner, so its pace is [`PACE_PER_RUNNER`] between these.
pub const SET_PACE: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_millis(100);

/// See [`SET_PACE`].
pub const PACE_PER_RUNNER: Duration = Duration::from_micros(100);

/// A runner that is younger than this shows no trouble before it is online: most of it passes by itself.
pub const PHASE_DELAY: Duration = Duration::from_secs(15);

/// A runner that starts without trouble and is younger than this shows no phase before it is online: most get there, pulled images
/// included, and one write less per runner is a sixth of all.
pub const QUIET_START: Duration = Duration::from_secs(60);

/// A number of replicas that the API server refused is sent again after this at the earliest: jobs and runners come and go all the time, and each time
/// there is a pass.
pub const SCALING_PAUSE: Duration = Duration::from_secs(5);

/// Longest time between two tries to send a number that is refused: a thousand pools may be refused for one reason, such as a policy that fails.
pub const SCALING_PAUSE_MAX: Duration = Duration::from_secs(60);

/// What lost its owner is left to the cluster's garbage collector for this long, or for the sync period where that is shorter.
pub const ORPHAN_GRACE: Duration = Duration::from_secs(30);
