//! The newest decisions of this process in a few words, for whoever watches. Receipts in the cluster say more, and stay.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use pacer_policy::record::{Change, Pool};
use pacer_policy::{Decision, Record};

/// Decisions of each kind that are remembered: what happens all the time must not push out what is rare.
const KEPT: usize = 60;

/// Runners of one decision that are told of.
const RUNNERS: usize = 20;

/// A decision in a few words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Brief {
    /// Grows with every decision of this process.
    pub number: u64,
    /// When it was decided.
    pub at: Timestamp,
    /// Whose runners it was about.
    pub pool: Pool,
    /// Which of the contract's four decisions it was.
    pub decision: Decision,
    /// Who decided: `default@sha256:0123456789ab`, `native`, or `none` where no policy was asked.
    pub policy: String,
    /// What was done.
    pub summary: String,
    /// What became of single runners: name, and the rest of a sentence that begins with it.
    pub runners: Vec<(String, String)>,
    /// Runners beyond those.
    pub more: usize,
}

/// The newest decisions; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Recent(Arc<Mutex<Ring>>);

#[derive(Debug, Default)]
struct Ring {
    number: u64,
    by_decision: BTreeMap<&'static str, VecDeque<Arc<Brief>>>,
}

impl Recent {
    /// Those that are remembered, in no particular order.
    #[must_use]
    pub fn briefs(&self) -> Vec<Arc<Brief>> {
        let ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ring.by_decision.values().flatten().cloned().collect()
    }

    /// A decision about runners.
    pub(super) fn note(&self, record: &Record) {
        let told = record.items.iter().take(RUNNERS).filter_map(|item| {
            let account = record.account_of(&item.name)?;
            let reason = account.reason.filter(|reason| !reason.is_empty());
            let reason = reason.map_or_else(String::new, |reason| format!(". In the words of the policy: {reason}"));
            Some((item.name.clone(), format!("{}{reason}", account.summary)))
        });
        self.push(Brief {
            number: 0,
            at: record.at,
            pool: record.pool.clone(),
            decision: record.decision(),
            policy: record.receipt.policy.clone(),
            summary: record.outcome(),
            runners: told.collect(),
            more: record.items.len().saturating_sub(RUNNERS),
        });
    }

    /// A decision about their number, where that changed.
    pub(super) fn note_number(&self, pool: &Pool, policy: &str, change: &Change, at: Timestamp) {
        if change.from == change.to {
            return;
        }
        let summary = format!("from {} to {} runners: {}", change.from, change.to, change.reason);
        let (decision, policy) = (Decision::Capacity, policy.to_owned());
        self.push(Brief { number: 0, at, pool: pool.clone(), decision, policy, summary, runners: Vec::new(), more: 0 });
    }

    fn push(&self, brief: Brief) {
        let mut ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ring.number = ring.number.saturating_add(1);
        let brief = Brief { number: ring.number, ..brief };
        let briefs = ring.by_decision.entry(brief.decision.as_str()).or_default();
        if briefs.len() >= KEPT {
            briefs.pop_front();
        }
        briefs.push_back(Arc::new(brief));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_changes_of_the_number_are_kept_and_those_that_change_nothing_are_not() {
        let recent = Recent::default();
        let pool = Pool { kind: "RunnerDeployment".into(), namespace: "ci".into(), name: "web".into() };
        let change = |from, to| Change { from, to, reason: "because".into() };
        recent.note_number(&pool, "native", &change(3, 3), Timestamp::UNIX_EPOCH);
        assert_eq!(recent.briefs(), []);
        for to in 1..=100 {
            recent.note_number(&pool, "native", &change(0, to), Timestamp::UNIX_EPOCH);
        }
        let briefs = recent.briefs();
        let numbers: Vec<u64> = briefs.iter().map(|brief| brief.number).collect();
        assert_eq!(numbers, (41..=100).collect::<Vec<u64>>());
        assert_eq!(briefs[59].summary, "from 0 to 100 runners: because");
    }
}
