//! What the operator is told at its start.

use std::time::Duration;

use pacer_core::restart::RestartLimits;
use pacer_core::stop::StopLimits;

use crate::pod::PodDefaults;

/// Settings of the controllers. The binary fills them from flags and environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Only this namespace; all when none.
    pub namespace: Option<String>,
    /// Defaults of runner pods.
    pub pod: PodDefaults,
    /// Labels appended to those of every RunnerDeployment (`--common-runner-labels`).
    pub common_labels: Vec<String>,
    /// Every object is looked at again after this at the latest (`--sync-period`).
    pub sync_period: Duration,
    /// Reconciles that run at once, per kind.
    pub concurrency: u16,
    /// How long a runner has to be proved idle before it may be offered to the scale-down policy.
    pub idle_confirmation: Duration,
    /// Limits of a stop.
    pub stop: StopLimits,
    /// Limits of restarts.
    pub restart: RestartLimits,
}

/// A set is not looked at more often than this: bursts of pod changes become one pass.
pub const SET_PACE: Duration = Duration::from_millis(100);

/// Counters in a status are written at most this often while they change.
pub const STATUS_PACE: Duration = Duration::from_secs(1);

/// A runner that is younger than this shows no trouble before it is online: most of it passes by itself.
pub const PHASE_DELAY: Duration = Duration::from_secs(15);

/// A runner that starts without trouble and is younger than this shows no phase before it is online: most get there, pulled images
/// included, and one write less per runner is a sixth of all.
pub const QUIET_START: Duration = Duration::from_secs(60);

/// Requests of one reconcile that run at once.
pub const FAN_OUT: usize = 16;
