//! What the operator knows and remembers of a pool.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use pacer_core::arrivals::Arrivals;
use pacer_core::autoscale::sending::SentNumber;
use pacer_core::autoscale::{Bounds, Raises};
use pacer_core::demand::{Counted, Fleet};
use pacer_core::durations::Durations;
use pacer_core::ledger::{JobEvent, LIMIT, Ledger, State, Terms};
use pacer_core::replacement::{AcceptedDemand, Accounted, ReplacementHold};
use pacer_core::reservation::Held;
use pacer_trace::PoolSettings;

use crate::agenda::{Moment, at};
use crate::scenario;
use crate::volumes::Volumes;

/// Least time between two passes. The operator's is shorter with few jobs and longer with many; no wait is known that exactly.
pub(super) const PACE: Moment = 50;

/// The operator's own, where no recorder was told another.
const IDLE_CONFIRMATION: Duration = Duration::from_secs(10);

/// How long the operator remembers that a runner finished.
const REMEMBERED: SignedDuration = SignedDuration::from_mins(10);

/// How often what is long over is dropped.
const TIDY: Moment = 60_000;

#[derive(Debug)]
pub(super) struct Pool {
    pub(super) settings: PoolSettings,
    pub(super) ledger: Ledger,
    pub(super) fleet: Fleet,
    /// Indexes of the runners that exist.
    pub(super) members: Vec<usize>,
    /// Of these, those that are over and not decided upon.
    pub(super) dead: Vec<usize>,
    /// Jobs that were queued since the last pass.
    pub(super) arrived: Vec<(u64, Timestamp)>,
    pub(super) within: Counted,
    pub(super) raises: Raises,
    pub(super) held: Vec<Held>,
    /// To which question they are the answer.
    pub(super) answered: Option<Answered>,
    pub(super) ceiling: Option<u32>,
    /// The number that was decided.
    pub(super) number: u32,
    pub(super) last_scale_out: Option<Timestamp>,
    /// The number that the target has.
    pub(super) replicas: u32,
    pub(super) effective: Option<Timestamp>,
    pub(super) sent: Option<Sent>,
    pub(super) announced: AcceptedDemand,
    pub(super) hold: ReplacementHold,
    /// Runners that finished since the last plan that found nothing missing: those made next take their places.
    pub(super) vacant: u32,
    /// When the number was raised and lowered.
    pub(super) raised: Option<Timestamp>,
    pub(super) lowered: Option<Timestamp>,
    /// When runners were made and removed.
    pub(super) grown: Option<Timestamp>,
    pub(super) shrunk: Option<Timestamp>,
    pub(super) newest: Option<Timestamp>,
    pub(super) attempts: u32,
    pub(super) next_attempt: Option<Timestamp>,
    pub(super) came_online: bool,
    pub(super) surplus_since: Option<Moment>,
    pub(super) starts: Durations,
    pub(super) runs: Durations,
    pub(super) arrivals: Arrivals,
    pub(super) next_pass: Option<Moment>,
    pub(super) last_pass: Moment,
    tidied: Moment,
    pub(super) volumes: Volumes,
    pub(super) removals: u64,
    pub(super) refused: u64,
    pub(super) failed: u64,
}

/// What the capacity policy was asked last.
#[derive(Debug)]
pub(super) struct Answered {
    /// GitHub's ids of the jobs that counted, and their states.
    pub(super) jobs: Vec<(u64, State)>,
    /// Until when the answer holds if these stay as they are.
    pub(super) until: Option<Timestamp>,
}

/// A number that was sent to the target.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) at: Moment,
    pub(super) number: SentNumber,
}

impl Pool {
    pub(super) fn new(pool: &scenario::Pool, begins: Moment) -> Self {
        let in_force = pool.settings.iter().rev().find(|(at, _)| *at <= begins).or_else(|| pool.settings.first());
        let settings = in_force.map(|(_, settings)| settings.clone()).unwrap_or_default();
        let effective = settings.ephemeral.then(|| at(begins - begins.rem_euclid(1000)));
        let mut announced = AcceptedDemand::default();
        effective.into_iter().for_each(|effective| announced.announce(Accounted { effective, finished: 0 }));
        Self {
            number: settings.replicas,
            replicas: settings.replicas,
            effective,
            announced,
            settings,
            ledger: Ledger::default(),
            fleet: Fleet::default(),
            members: Vec::new(),
            dead: Vec::new(),
            arrived: Vec::new(),
            within: Counted::default(),
            raises: Raises::default(),
            held: Vec::new(),
            answered: None,
            ceiling: None,
            last_scale_out: None,
            sent: None,
            hold: ReplacementHold::default(),
            vacant: 0,
            raised: None,
            lowered: None,
            grown: None,
            shrunk: None,
            newest: None,
            attempts: 0,
            next_attempt: None,
            came_online: false,
            surplus_since: None,
            starts: Durations::default(),
            runs: Durations::default(),
            arrivals: Arrivals::default(),
            next_pass: None,
            last_pass: Moment::MIN / 2,
            tidied: begins,
            volumes: Volumes::default(),
            removals: 0,
            refused: 0,
            failed: 0,
        }
    }

    pub(super) fn bounds(&self) -> Bounds {
        Bounds { min: self.settings.min, max: self.settings.max }
    }

    pub(super) fn confirmation(&self) -> Duration {
        self.settings.idle_confirmation_seconds.map_or(IDLE_CONFIRMATION, Duration::from_secs)
    }

    pub(super) fn life(&self) -> SignedDuration {
        SignedDuration::from_secs(i64::try_from(self.settings.job_life_seconds).unwrap_or(i64::MAX))
    }

    pub(super) fn terms(&self) -> Terms {
        Terms { queued: Duration::from_secs(self.settings.job_life_seconds), limit: LIMIT }
    }

    /// Applies an event of a job to the pool's ledger, as if a webhook had come.
    pub(super) fn receive(&mut self, event: &JobEvent, now: Timestamp) {
        let terms = self.terms();
        self.ledger.apply(event, &terms, now);
    }

    /// Drops what nobody asks about any more.
    pub(super) fn tidy(&mut self, now: Moment) {
        if now - self.tidied < TIDY {
            return;
        }
        self.tidied = now;
        let now = at(now);
        let forgotten: Vec<u64> = self.ledger.all().filter(|(_, job)| job.is_forgotten(now)).map(|(id, _)| id).collect();
        forgotten.into_iter().for_each(|id| {
            self.ledger.forget(id);
        });
        self.fleet.ended.retain(|_, ended| now.duration_since(*ended) < REMEMBERED);
    }
}
