//! What the RunnerReplicaSet controller says about its runners, and what it is told of those that others made for it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use pacer_core::policy::Counts;
use pacer_core::replacement::Accounted;
use pacer_core::room::NoRoom;

/// Creations that the watch does not show after this are taken for failed: the object came and went meanwhile, or the answer to the request
/// was lost.
pub const IN_FLIGHT: Duration = Duration::from_secs(30);

/// A RunnerReplicaSet as its owner counts it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FleetSummary {
    /// Generation that was observed.
    pub generation: i64,
    /// Runners that exist and are not on their way out.
    pub alive: u32,
    /// Runners that GitHub can hand a job, or has handed one.
    pub online: u32,
    /// Of these, those that run a job.
    pub busy: u32,
    /// Runners on their way out whose pods count until they are gone.
    pub leaving: u32,
    /// Runners on their way out whose pods hang in their end.
    pub hanging: u32,
    /// Runners that are over and hold their place until they are decided on.
    pub dead: u32,
    /// Runner objects of any state.
    pub present: u32,
    /// Runners by phase, without those that are over.
    pub counts: Counts,
    /// The same by the phase that people are [told](pacer_core::phase::Phase::as_told).
    pub told: Counts,
    /// Names of those that `counts` has and that are not on their way out.
    pub unfinished: Arc<[String]>,
    /// Those that wait for room in the cluster.
    pub no_room: NoRoom,
    /// Ephemeral runners that finished, since this process started.
    pub finished: u64,
    /// The finished runners that its desired number accounts for.
    pub accounted: Option<Accounted>,
}

/// How long the end of a runner is remembered: longer than any event about its job is under way.
const REMEMBERED: SignedDuration = SignedDuration::from_mins(10);

/// Ends remembered per scale target; the oldest ones go first.
const ENDS: usize = 10_000;

/// Ephemeral runners of a scale target that finished their job of late, and when that was seen. RunnerReplicaSets come and go with templates.
#[derive(Clone, Debug, Default)]
pub struct FinishedRunners {
    ends: BTreeMap<Arc<str>, Timestamp>,
}

impl FinishedRunners {
    /// Runners of these names finished.
    pub fn add(&mut self, runners: Vec<String>, now: Timestamp) {
        self.ends.extend(runners.into_iter().map(|name| (Arc::from(name), now)));
        self.keep_recent(now);
        while self.ends.len() > ENDS {
            let Some(oldest) = self.ends.iter().min_by_key(|(_, at)| **at).map(|(name, _)| name.clone()) else { return };
            self.ends.remove(&oldest);
        }
    }

    /// Forgets ends that no event can be about any more. Whether any are left.
    pub fn keep_recent(&mut self, now: Timestamp) -> bool {
        self.ends.retain(|_, at| now.duration_since(*at) < REMEMBERED);
        !self.ends.is_empty()
    }

    /// When each runner was seen to have finished, by its name.
    #[must_use]
    pub fn ends_by_name(&self) -> BTreeMap<Arc<str>, Timestamp> {
        self.ends.clone()
    }
}

/// Runners that were made in place of a RunnerReplicaSet's own, by name, and when.
#[derive(Clone, Debug, Default)]
pub struct AdoptedRunners {
    made: HashMap<String, Instant>,
}

impl AdoptedRunners {
    /// A runner is about to be made.
    pub fn add(&mut self, name: String, now: Instant) {
        self.keep_recent(now);
        self.made.insert(name, now);
    }

    /// Forgets those that are taken for failed, if the watch has not shown them. Whether any are left.
    pub fn keep_recent(&mut self, now: Instant) -> bool {
        self.made.retain(|_, since| now.saturating_duration_since(*since) < IN_FLIGHT);
        !self.made.is_empty()
    }

    /// Those that were made a moment ago.
    pub fn recent(&self, now: Instant) -> impl Iterator<Item = &str> {
        self.made
            .iter()
            .filter(move |(_, since)| now.saturating_duration_since(**since) < IN_FLIGHT)
            .map(|(name, _)| name.as_str())
    }
}
