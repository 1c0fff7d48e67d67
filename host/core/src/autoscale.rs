//! The number of runners an autoscaler asks for.
//!
//! In this order (arc-behaviour 3.1): what the metric suggests, or else the minimum; jobs and reservations beside it; the bounds; the ceiling of
//! the capacity policy; then the two brakes, of which at most one applies. The scale-down delay slows the way down, the limit on new runners
//! per minute the way up.
//!
//! Differences from ARC:
//!
//! - The scale-down delay keeps runners that exist, and never asks for new ones to reach an earlier number: their jobs are over. ARC holds the
//!   number itself, and so makes as many surplus runners as there were jobs.
//! - A lowered maximum counts at once, not only when the delay is over.
//!
//! A scheduled override may lift the minimum above the maximum. As in ARC the maximum then wins, unless what is wanted is below the minimum.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::count::counted;

pub mod inherited;
pub mod metric;
pub mod sending;
pub mod telling;

/// `spec.minReplicas` and `spec.maxReplicas`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Fewest runners; 1 where `spec.minReplicas` is negative.
    pub min: u32,
    /// Most runners; 0 where `spec.maxReplicas` is negative.
    pub max: u32,
}

/// One of the bounds is absent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("horizontalrunnerautoscaler {autoscaler} is missing {field}")]
pub struct BoundsError {
    /// `namespace/name`.
    pub autoscaler: String,
    /// minReplicas or maxReplicas.
    pub field: &'static str,
}

impl Bounds {
    /// Takes the fields of the spec of `namespace/name`. A negative minimum counts as 1, as in ARC, a negative maximum as 0.
    ///
    /// # Errors
    ///
    /// When one is absent: the schema lets it be, the autoscaler cannot do without.
    pub fn new(autoscaler: &str, min: Option<i32>, max: Option<i32>) -> Result<Self, BoundsError> {
        let missing = |field| BoundsError { autoscaler: autoscaler.to_owned(), field };
        let min = min.ok_or_else(|| missing("minReplicas"))?;
        let max = max.ok_or_else(|| missing("maxReplicas"))?;
        Ok(Self { min: u32::try_from(min).unwrap_or(1), max: u32::try_from(max).unwrap_or(0) })
    }
}

/// What a metric asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suggestion {
    /// Number of runners; 0 means that the metric has nothing to say.
    pub replicas: u32,
    /// Why, for people: `8 of 10 busy, at or above 0.8: 10 -> 13`.
    pub what: String,
}

/// What the number is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand<'a> {
    /// The autoscaler's own bounds.
    pub bounds: Bounds,
    /// Minimum of the scheduled override in force; takes the place of the autoscaler's own.
    pub override_min: Option<u32>,
    /// What the metrics suggest; none when there are none.
    pub metric: Option<Suggestion>,
    /// What is planned for jobs comes on top of the minimum or the suggestion: a trigger exists. Otherwise the greater of the two counts.
    pub jobs_added_to_min: bool,
    /// Runners that the capacity policy has reserved and that are to exist now.
    pub planned: u32,
    /// Jobs they are reserved for. Only told in the reason.
    pub jobs: u32,
    /// Runners that `spec.capacityReservations` ask for now; always on top, as in ARC.
    pub spec_reserved: u32,
    /// Lower maximum of the capacity policy.
    pub ceiling: Option<u32>,
    /// The number of the last decision, `status.desiredReplicas`; none where the status has none.
    pub previous: Option<u32>,
    /// Runners of the target that exist and have not ended.
    pub live: u32,
    /// When the number was last raised, `status.lastSuccessfulScaleOutTime`; none where the status does not say.
    pub last_scale_out: Option<Timestamp>,
    /// How long after it the number is not lowered.
    pub delay: Duration,
    /// How fast the number may rise.
    pub ramp: Ramp<'a>,
    /// The moment of the decision.
    pub now: Timestamp,
}

/// Time within which [`Ramp::per_minute`] limits new runners.
const MINUTE: SignedDuration = SignedDuration::from_secs(60);

/// How fast a number may rise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ramp<'a> {
    /// Most new runners within a minute; none means no limit.
    pub per_minute: Option<NonZeroU32>,
    /// When how many were asked for ([`Decision::raised`]), in any order. Those older than a minute, or later than now, do not count.
    pub recent: &'a [(Timestamp, u32)],
}

/// What was asked for within the last minute; see [`Ramp::recent`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Raises(Vec<(Timestamp, u32)>);

impl Raises {
    /// Those of the last minute; forgets the others.
    pub fn recent(&mut self, now: Timestamp) -> Vec<(Timestamp, u32)> {
        self.0.retain(|(at, _)| now.duration_since(*at) < MINUTE);
        self.0.clone()
    }

    /// So many more were asked for; see [`Decision::raised`].
    pub fn add(&mut self, count: u32, now: Timestamp) {
        if count > 0 {
            self.0.push((now, count));
        }
    }
}

/// The number, and why it is this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// How many runners the target is to have.
    pub desired: u32,
    /// What it would be without the scale-down delay and the limit on new runners.
    pub computed: u32,
    /// How many new runners this allows, beyond those that exist or were asked for before. Counts against the limit per minute.
    pub raised: u32,
    /// Why `desired` is this number.
    pub reason: Reason,
    /// When a brake lets go of the number, if one holds it.
    pub next: Option<Timestamp>,
}

/// Why a number is what it is. Holds nothing that moves by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The minimum: nothing asks for more, or the ceiling is below it.
    Minimum {
        /// It is one of a scheduled override.
        scheduled: bool,
    },
    /// A metric, in its words.
    Metric(String),
    /// Jobs or reservations, beside the minimum or a metric.
    Reserved {
        /// Runners the capacity policy planned; 0 when they made no difference.
        planned: u32,
        /// For so many jobs.
        jobs: u32,
        /// Runners reserved in the spec.
        spec: u32,
        /// What the metric beside them says.
        metric: Option<String>,
    },
    /// More is wanted than the maximum allows.
    Maximum {
        /// Most runners that the autoscaler's bounds allow.
        max: u32,
        /// Runners that were wanted before the maximum was applied.
        wanted: u32,
    },
    /// More is wanted than the capacity policy allows.
    Ceiling {
        /// Most runners that the capacity policy allows.
        ceiling: u32,
        /// What is wanted within the bounds.
        wanted: u32,
    },
    /// Fewer are wanted, but the last increase is too recent.
    Held {
        /// The number that is kept.
        at: u32,
        /// When the delay is over.
        until: Timestamp,
    },
    /// More is wanted than may be made in a minute.
    Ramp {
        /// Most new runners within a minute, as [`Ramp::per_minute`] says.
        per_minute: NonZeroU32,
        /// Runners that are wanted without the limit; [`Decision::computed`].
        wanted: u32,
    },
}

/// Decides how many runners the target is to have.
#[must_use]
pub fn decide(demand: &Demand<'_>) -> Decision {
    let min = demand.override_min.unwrap_or(demand.bounds.min);
    let (wanted, reason) = wanted(demand, min);
    let (computed, reason) = limit(demand, min, wanted, reason);
    let asked = demand.previous.unwrap_or(0).max(demand.live);
    let (desired, reason, next) = match (hold(demand, min, computed), slow(demand, min, asked, computed)) {
        (Some((at, until)), _) => (at, Reason::Held { at, until }, Some(until)),
        (None, Some(slowed)) => {
            (slowed.desired, Reason::Ramp { per_minute: slowed.per_minute, wanted: computed }, Some(slowed.next))
        }
        (None, None) => (computed, reason, None),
    };
    Decision { desired, computed, raised: desired.saturating_sub(asked), reason, next }
}

/// What all the evidence asks for, whatever the bounds.
///
/// More of anything asks for no fewer runners. The one step down is ARC's: a metric that says 0 leaves the word to the minimum, and one that
/// says 1 takes it.
fn wanted(demand: &Demand<'_>, min: u32) -> (u32, Reason) {
    let metric = demand.metric.as_ref().filter(|suggestion| suggestion.replicas > 0);
    let base = metric.map_or(min, |suggestion| suggestion.replicas);
    let with_jobs = if demand.jobs_added_to_min { base.saturating_add(demand.planned) } else { base.max(demand.planned) };
    let what = metric.map(|suggestion| suggestion.what.clone());
    let reason = if with_jobs > base || demand.spec_reserved > 0 {
        let planned = if with_jobs > base { demand.planned } else { 0 };
        Reason::Reserved { planned, jobs: demand.jobs, spec: demand.spec_reserved, metric: what }
    } else {
        what.map_or_else(|| demand.minimum(), Reason::Metric)
    };
    (with_jobs.saturating_add(demand.spec_reserved), reason)
}

/// Brings what is wanted within the bounds and below the ceiling.
fn limit(demand: &Demand<'_>, min: u32, wanted: u32, reason: Reason) -> (u32, Reason) {
    let max = demand.bounds.max;
    let (bounded, reason) = if wanted < min {
        (min, demand.minimum())
    } else if wanted > max {
        (max, Reason::Maximum { max, wanted })
    } else {
        (wanted, reason)
    };
    match demand.ceiling {
        Some(ceiling) if bounded > ceiling.max(min) => {
            if ceiling < min {
                (min, demand.minimum())
            } else {
                (ceiling, Reason::Ceiling { ceiling, wanted: bounded })
            }
        }
        _ => (bounded, reason),
    }
}

/// The number at which the scale-down delay keeps the fleet, and until when; none when it keeps nothing.
///
/// Runners that the bounds or the ceiling leave no room for are not kept.
fn hold(demand: &Demand<'_>, min: u32, computed: u32) -> Option<(u32, Timestamp)> {
    let previous = demand.previous.filter(|previous| *previous > computed)?;
    let until = after(demand.last_scale_out?, SignedDuration::try_from(demand.delay).unwrap_or(SignedDuration::MAX));
    let room = demand.bounds.max.min(demand.ceiling.map_or(u32::MAX, |ceiling| ceiling.max(min)));
    let at = previous.min(demand.live).min(room);
    (until > demand.now && at > computed).then_some((at, until))
}

struct Slowed {
    desired: u32,
    per_minute: NonZeroU32,
    next: Timestamp,
}

/// The number that the limit on new runners allows so far; none when it allows all. The minimum is met at once.
fn slow(demand: &Demand<'_>, min: u32, asked: u32, computed: u32) -> Option<Slowed> {
    let per_minute = demand.ramp.per_minute?;
    let due = |made: Timestamp| after(made, MINUTE);
    let recent = || demand.ramp.recent.iter().filter(|(made, _)| *made <= demand.now && due(*made) > demand.now);
    let spent = recent().fold(0_u32, |sum, (_, count)| sum.saturating_add(*count));
    let desired = asked.saturating_add(per_minute.get().saturating_sub(spent)).max(min);
    let next = recent().filter(|(_, count)| *count > 0).map(|(made, _)| due(*made)).min().unwrap_or(due(demand.now));
    (desired < computed).then_some(Slowed { desired, per_minute, next })
}

/// A moment beyond the end of time is the end of time.
fn after(moment: Timestamp, duration: SignedDuration) -> Timestamp {
    moment.checked_add(duration).unwrap_or(Timestamp::MAX)
}

impl Demand<'_> {
    fn minimum(&self) -> Reason {
        Reason::Minimum { scheduled: self.override_min.is_some() }
    }
}

impl Reason {
    /// One CamelCase word, which is the reason of the condition `Scaling`.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Minimum { scheduled: false } => "MinReplicas",
            Self::Minimum { scheduled: true } => "ScheduledOverride",
            Self::Metric(_) => "Metric",
            Self::Reserved { .. } => "Reserved",
            Self::Maximum { .. } => "MaxReplicas",
            Self::Ceiling { .. } => "PolicyCeiling",
            Self::Held { .. } => "ScaleDownDelay",
            Self::Ramp { .. } => "RampLimit",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Minimum { scheduled: false } => f.write_str("minReplicas"),
            Self::Minimum { scheduled: true } => f.write_str("minReplicas of a scheduled override"),
            Self::Metric(what) => f.write_str(what),
            Self::Reserved { planned, jobs, spec, metric } => {
                match (planned, spec) {
                    (0, spec) => write!(f, "reserved {spec} by spec.capacityReservations")?,
                    (planned, 0) => write!(f, "reserved {planned} for {}", counted(u64::from(*jobs), "job"))?,
                    (planned, spec) => {
                        write!(
                            f,
                            "reserved {planned} for {} and {spec} by spec.capacityReservations",
                            counted(u64::from(*jobs), "job")
                        )?;
                    }
                }
                metric.as_ref().map_or(Ok(()), |what| write!(f, "; {what}"))
            }
            Self::Maximum { max, wanted } => write!(f, "clamped by maxReplicas {max} (wanted {wanted})"),
            Self::Ceiling { ceiling, wanted } => {
                write!(f, "clamped by the capacity policy's ceiling {ceiling} (wanted {wanted})")
            }
            Self::Held { at, until } => write!(f, "held at {at} by the scale-down delay until {}", until.strftime("%H:%M:%SZ")),
            Self::Ramp { per_minute, wanted } => {
                write!(f, "limited to {} per minute (wanted {wanted})", counted(u64::from(per_minute.get()), "new runner"))
            }
        }
    }
}

#[cfg(test)]
#[path = "autoscale/tests.rs"]
mod tests;
