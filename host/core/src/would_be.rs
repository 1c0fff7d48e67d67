//! What the fleet of a pool would be by now if its policies in shadow decided.
//!
//! Two simulations of the same time say it: one with the policies in force, whose figures are compared with what happened, and one with those in
//! shadow. Read first: [`WouldBe`], [`WhyNot`], [`Prospect::is_news`].

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// By how much a wait has to change to be news, seconds.
const WAIT_SECONDS: f64 = 1.0;

/// By which share any figure but the number of runners has to change to be news.
const SHARE: f64 = 0.10;

/// A fleet, and what it came to over a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetFigures {
    /// Runners that exist at the end.
    pub runners: u64,
    /// Median wait of a job from queued to started, seconds.
    pub wait_p50: f64,
    /// 95th percentile.
    pub wait_p95: f64,
    /// Minutes for which runners existed, summed.
    pub runner_minutes: f64,
    /// Of these, minutes in which they were online without a job.
    pub idle_minutes: f64,
}

/// By how much the simulation of the policies in force misses what happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Misses {
    /// The larger one of the two waits, seconds.
    pub wait_seconds: f64,
    /// Of runner-minutes, as a share of those that were recorded.
    pub runner_minutes: f64,
}

/// What the fleet of a pool would be by now.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WouldBe {
    /// Jobs whose waits count.
    pub jobs: u64,
    /// The fleet as it was recorded.
    pub recorded: FleetFigures,
    /// As it is simulated with the policies in force.
    pub in_force: FleetFigures,
    /// As it is simulated with those in shadow.
    pub shadow: FleetFigures,
    /// How well the simulation of what is in force agrees with what was.
    pub misses: Misses,
}

/// Why nothing is said of what the fleet would be.
#[derive(Clone, Debug, PartialEq)]
pub enum WhyNot {
    /// No job came in that time.
    NoJob,
    /// The simulation of the policies in force is too far from what happened to tell of others.
    Uncalibrated {
        /// Name of the figure that is too far off, such as `wait.p50` or `runner-minutes`.
        figure: &'static str,
        /// Value of the figure as it was recorded.
        recorded: f64,
        /// As it is simulated.
        simulated: f64,
    },
    /// A policy in shadow failed too often in the simulation.
    ShadowFailed,
    /// A policy in force failed too often in the simulation.
    InForceFailed,
    /// The simulation took longer than it may.
    Slow {
        /// How long it may take, seconds.
        seconds: u64,
    },
    /// The pool has more jobs and runners at a time than are remembered.
    Full {
        /// Records that are remembered.
        records: usize,
    },
    /// As many pools are simulated as may be.
    Crowded {
        /// Most pools that are simulated at the same time.
        pools: usize,
    },
    /// The simulation ended by a defect of its own.
    Broken,
}

impl WhyNot {
    /// All words of [`WhyNot::reason`], for metrics.
    pub const REASONS: [&'static str; 8] =
        ["NoJob", "NotCalibrated", "ShadowFailed", "InForceFailed", "TooSlow", "TooManyRecords", "TooManyPools", "Broken"];

    /// One CamelCase word of a closed set.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoJob => "NoJob",
            Self::Uncalibrated { .. } => "NotCalibrated",
            Self::ShadowFailed => "ShadowFailed",
            Self::InForceFailed => "InForceFailed",
            Self::Slow { .. } => "TooSlow",
            Self::Full { .. } => "TooManyRecords",
            Self::Crowded { .. } => "TooManyPools",
            Self::Broken => "Broken",
        }
    }
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoJob => f.write_str("no job has come in that time"),
            Self::Uncalibrated { figure, recorded, simulated } => write!(
                f,
                "the simulation of the policies in force does not give what happened, so it can't tell about others: {figure} was {recorded:.1} and is \
                 simulated as {simulated:.1}"
            ),
            Self::ShadowFailed => {
                f.write_str("the policy in shadow kept failing in the simulation; try it with `pacer policy test`")
            }
            Self::InForceFailed => {
                f.write_str("the policy that decides kept failing in the simulation; the status says how it fares")
            }
            Self::Slow { seconds } => {
                write!(
                    f,
                    "a simulation of the last minutes takes longer than {seconds} s; a policy that answers sooner can be simulated"
                )
            }
            Self::Full { records } => {
                write!(f, "the pool has more jobs and runners at a time than {records} records can tell of")
            }
            Self::Crowded { pools } => write!(f, "{pools} pools are simulated already, the first by name"),
            Self::Broken => {
                f.write_str("the simulation ended by a defect of its own; the operator's log has more, please report it")
            }
        }
    }
}

/// What was found about a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Prospect {
    /// Since when what happened is taken into account.
    pub since: Timestamp,
    /// What the fleet would be, or why that is not said.
    pub finding: Result<WouldBe, WhyNot>,
}

impl Prospect {
    /// Whether it says something else than the one before. The time alone is no news, nor are small changes of figures, and those of the ones that a
    /// reason gives.
    #[must_use]
    pub fn is_news(&self, before: &Self) -> bool {
        match (&self.finding, &before.finding) {
            (Ok(new), Ok(old)) => {
                let pairs = [(&new.recorded, &old.recorded), (&new.in_force, &old.in_force), (&new.shadow, &old.shadow)];
                pairs.into_iter().any(|(new, old)| new.differs(old))
            }
            (Err(new), Err(old)) => new.reason() != old.reason(),
            _ => true,
        }
    }
}

impl FleetFigures {
    fn differs(&self, other: &Self) -> bool {
        let far = |one: f64, other: f64, least: f64| (one - other).abs() > least.max(SHARE * one.abs().max(other.abs()));
        self.runners != other.runners
            || far(self.wait_p50, other.wait_p50, WAIT_SECONDS)
            || far(self.wait_p95, other.wait_p95, WAIT_SECONDS)
            || far(self.runner_minutes, other.runner_minutes, 1.0)
            || far(self.idle_minutes, other.idle_minutes, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prospect(finding: Result<WouldBe, WhyNot>) -> Prospect {
        Prospect { since: Timestamp::UNIX_EPOCH, finding }
    }

    fn would_be(change: impl FnOnce(&mut FleetFigures)) -> Result<WouldBe, WhyNot> {
        let figures = FleetFigures { runners: 3, wait_p50: 10.0, wait_p95: 40.0, runner_minutes: 100.0, idle_minutes: 20.0 };
        let mut shadow = figures;
        change(&mut shadow);
        Ok(WouldBe { jobs: 9, recorded: figures, in_force: figures, shadow, misses: Misses::default() })
    }

    #[test]
    fn another_finding_is_news_and_a_small_change_is_none() {
        let uncalibrated = |simulated| Err(WhyNot::Uncalibrated { figure: "wait.p50", recorded: 1.0, simulated });
        for (before, after, news) in [
            (would_be(|_| {}), would_be(|_| {}), false),
            (would_be(|_| {}), would_be(|figures| figures.runners = 4), true),
            (would_be(|_| {}), would_be(|figures| figures.wait_p50 = 10.9), false),
            (would_be(|_| {}), would_be(|figures| figures.wait_p50 = 12.0), true),
            (would_be(|_| {}), would_be(|figures| figures.wait_p95 = 43.0), false),
            (would_be(|_| {}), would_be(|figures| figures.wait_p95 = 50.0), true),
            (would_be(|_| {}), would_be(|figures| figures.runner_minutes = 108.0), false),
            (would_be(|_| {}), would_be(|figures| figures.runner_minutes = 80.0), true),
            (would_be(|_| {}), would_be(|figures| figures.idle_minutes = 21.5), false),
            (would_be(|_| {}), would_be(|figures| figures.idle_minutes = 25.0), true),
            (would_be(|_| {}), Err(WhyNot::NoJob), true),
            (Err(WhyNot::NoJob), would_be(|_| {}), true),
            (Err(WhyNot::NoJob), Err(WhyNot::NoJob), false),
            (Err(WhyNot::NoJob), Err(WhyNot::ShadowFailed), true),
            (uncalibrated(5.0), uncalibrated(6.0), false),
        ] {
            let (before, after) = (prospect(before), prospect(after));
            assert_eq!(after.is_news(&before), news, "{before:?}, then {after:?}");
        }
        let later = Prospect { since: Timestamp::MAX, ..prospect(would_be(|_| {})) };
        assert!(!later.is_news(&prospect(would_be(|_| {}))), "the time alone");
    }

    #[test]
    fn every_reason_is_one_of_the_closed_set_and_has_words() {
        let all = [
            WhyNot::NoJob,
            WhyNot::Uncalibrated { figure: "wait.p50", recorded: 1.0, simulated: 9.0 },
            WhyNot::ShadowFailed,
            WhyNot::InForceFailed,
            WhyNot::Slow { seconds: 10 },
            WhyNot::Full { records: 9 },
            WhyNot::Crowded { pools: 9 },
            WhyNot::Broken,
        ];
        assert_eq!(all.each_ref().map(WhyNot::reason), WhyNot::REASONS);
        assert!(all[1].to_string().ends_with("wait.p50 was 1.0 and is simulated as 9.0"), "{}", all[1]);
    }
}
