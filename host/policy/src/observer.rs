//! What metrics are made of.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::decision::{Decision, PerDecision};
use crate::fault::Fault;

/// Where a policy comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// A policy of a user.
    Custom,
    /// The policy in this program, as a component.
    Shipped,
    /// The same, linked natively.
    Native,
}

/// One attempt to answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// The decision that was asked for.
    pub decision: Decision,
    /// Where the policy that was asked comes from.
    pub source: Source,
    /// One of [`Fault::KINDS`]; none when the answer was used.
    pub fault: Option<&'static str>,
    /// Whether somebody else was asked before.
    pub fallback: bool,
    /// Instructions executed, in wasmtime's units of fuel.
    pub fuel: u64,
    /// Time from store to answer.
    pub duration: Duration,
    /// Most linear memory held at once, in bytes.
    pub peak_memory: usize,
    /// Log lines that were dropped.
    pub log_dropped: u32,
}

/// A policy in shadow answered what another one had decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// The decision that both were asked for.
    pub decision: Decision,
    /// Whether its answer would have had the same effect.
    pub agreed: bool,
    /// One of [`Fault::KINDS`]; none when its answer could have been used.
    pub fault: Option<&'static str>,
    /// Instructions executed, in wasmtime's units of fuel.
    pub fuel: u64,
}

/// Is told of every attempt. Called on the task that evaluates, so it must be quick.
pub trait Observer: Send + Sync + 'static {
    /// An attempt to decide ended.
    fn observe(&self, observation: &Observation);

    /// An answer in shadow was compared.
    fn compared(&self, comparison: &Comparison);
}

/// Totals since the process began.
#[derive(Debug, Default)]
pub struct Counters {
    evaluations: [AtomicU64; Decision::ALL.len()],
    faults: [AtomicU64; Fault::KINDS.len()],
    fallbacks: AtomicU64,
    fuel: AtomicU64,
    log_dropped: AtomicU64,
    compared: PerDecision<AtomicU64>,
    agreed: PerDecision<AtomicU64>,
    shadow_faults: PerDecision<AtomicU64>,
}

impl Counters {
    /// Answers that were used, for this decision.
    #[must_use]
    pub fn evaluations(&self, decision: Decision) -> u64 {
        let places = Decision::ALL.into_iter().zip(&self.evaluations);
        places.filter(|(place, _)| *place == decision).map(|(_, count)| count.load(Ordering::Relaxed)).sum()
    }

    /// Faults of this kind, one of [`Fault::KINDS`]; 0 for others.
    #[must_use]
    pub fn faults(&self, kind: &str) -> u64 {
        let places = Fault::KINDS.into_iter().zip(&self.faults);
        places.filter(|(place, _)| *place == kind).map(|(_, count)| count.load(Ordering::Relaxed)).sum()
    }

    /// Answers of policies in shadow, for this decision, faults included.
    #[must_use]
    pub fn compared(&self, decision: Decision) -> u64 {
        self.compared.get(decision).load(Ordering::Relaxed)
    }

    /// Of these, answers that would have had the effect of the one that was used.
    #[must_use]
    pub fn agreed(&self, decision: Decision) -> u64 {
        self.agreed.get(decision).load(Ordering::Relaxed)
    }

    /// Of these, answers that could not have been used.
    #[must_use]
    pub fn shadow_faults(&self, decision: Decision) -> u64 {
        self.shadow_faults.get(decision).load(Ordering::Relaxed)
    }

    /// Attempts made because another one failed.
    #[must_use]
    pub fn fallbacks(&self) -> u64 {
        self.fallbacks.load(Ordering::Relaxed)
    }

    /// Instructions executed, in wasmtime's units of fuel.
    #[must_use]
    pub fn fuel(&self) -> u64 {
        self.fuel.load(Ordering::Relaxed)
    }

    /// Log lines of policies that were dropped.
    #[must_use]
    pub fn log_dropped(&self) -> u64 {
        self.log_dropped.load(Ordering::Relaxed)
    }
}

impl Observer for Counters {
    fn observe(&self, observation: &Observation) {
        let counted = match observation.fault {
            None => {
                Decision::ALL.iter().zip(&self.evaluations).find(|(place, _)| **place == observation.decision).map(|(_, c)| c)
            }
            Some(kind) => Fault::KINDS.iter().zip(&self.faults).find(|(place, _)| **place == kind).map(|(_, c)| c),
        };
        if let Some(count) = counted {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.fallbacks.fetch_add(u64::from(observation.fallback), Ordering::Relaxed);
        self.fuel.fetch_add(observation.fuel, Ordering::Relaxed);
        self.log_dropped.fetch_add(u64::from(observation.log_dropped), Ordering::Relaxed);
    }

    fn compared(&self, comparison: &Comparison) {
        let decision = comparison.decision;
        self.compared.get(decision).fetch_add(1, Ordering::Relaxed);
        self.agreed.get(decision).fetch_add(u64::from(comparison.agreed), Ordering::Relaxed);
        self.shadow_faults.get(decision).fetch_add(u64::from(comparison.fault.is_some()), Ordering::Relaxed);
        self.fuel.fetch_add(comparison.fuel, Ordering::Relaxed);
    }
}
