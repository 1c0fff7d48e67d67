//! `--receipts`: what was asked while the trace was recorded, to the policies of the simulation.

use std::path::Path;

use anyhow::Result;
use pacer_policy::Decision;
use pacer_simulate::Policies;
use serde::Serialize;

use crate::policy::case::Case;

/// Recorded questions with their answers.
pub(super) struct Receipts(Vec<Case>);

/// What became of the questions about one decision.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answered {
    decision: Decision,
    asked: usize,
    /// Of each policy set that was simulated, the recorded one first: how many of its answers do what was done.
    same: Vec<usize>,
}

impl Receipts {
    /// Those of a directory, or one of them.
    pub(super) fn read(path: &Path) -> Result<Self> {
        Case::all(path).map(Self)
    }

    /// What each of these policy sets answers.
    pub(super) fn ask<'a>(&self, sets: impl IntoIterator<Item = &'a Policies>) -> Result<Vec<Answered>> {
        let of = |decision| self.0.iter().filter(move |case| case.inquiry.decision() == decision);
        let asked = Decision::ALL.map(|decision| Answered { decision, asked: of(decision).count(), same: Vec::new() });
        let mut answered: Vec<Answered> = asked.into_iter().filter(|answered| answered.asked > 0).collect();
        for policies in sets {
            for row in &mut answered {
                let mut same = 0;
                for case in of(row.decision) {
                    same += usize::from(case.is_answered_by(&policies.answer_to(case.inquiry.clone()))?);
                }
                row.same.push(same);
            }
        }
        Ok(answered)
    }
}

/// A table below that of the figures, with the same columns.
pub(super) fn rows(answered: &[Answered]) -> Vec<Vec<String>> {
    let cells = |row: &Answered| row.same.iter().map(|same| format!("{same} of {}", row.asked)).collect::<Vec<_>>();
    answered.iter().map(|row| [vec![format!("{} answered as in the receipts", row.decision)], cells(row)].concat()).collect()
}
