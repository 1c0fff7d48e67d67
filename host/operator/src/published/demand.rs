//! What autoscalers say about demand.

use jiff::Timestamp;
use pacer_core::replacement::Accounted;

/// Numbers that are remembered; the oldest go first.
const REMEMBERED: usize = 64;

/// The numbers that an autoscaler has sent to a RunnerReplicaSet, and the finished runners that each accounts for, the newest last.
#[derive(Clone, Debug, Default)]
pub struct AcceptedDemand {
    numbers: Vec<Accounted>,
}

impl AcceptedDemand {
    /// A number is about to be sent.
    pub fn announce(&mut self, number: Accounted) {
        if self.numbers.len() >= REMEMBERED {
            self.numbers.remove(0);
        }
        self.numbers.push(number);
    }

    /// The numbers.
    #[must_use]
    pub fn numbers(&self) -> &[Accounted] {
        &self.numbers
    }
}

/// What job events say about a runner that they name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunnerJob {
    /// Since when its job is in progress.
    pub working: Option<Timestamp>,
    /// When the last one that is over ended.
    pub ended: Option<Timestamp>,
}
