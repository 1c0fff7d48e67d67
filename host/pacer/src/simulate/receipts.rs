//! `--receipts`: what was asked while the trace was recorded, to the policies of the simulation.

use std::path::Path;

use anyhow::Result;
use pacer_policy::{Answer, Decision, Inquiry};
use pacer_policy_sdk::cases::{self, Expected};
use pacer_simulate::Policies;
use serde::Serialize;

use crate::policy::case::{self, Case};

/// Recorded questions with what their answers did.
pub(super) struct Receipts(Vec<Receipt>);

struct Receipt {
    inquiry: Inquiry,
    /// The answer without its reasons, in the names of the runners.
    effect: Expected,
}

impl Receipt {
    /// Whether an answer does the same, whatever its reasons.
    fn is_met_by(&self, answer: &Answer) -> bool {
        let mut answer = cases::named(answer, &self.inquiry.names());
        case::forget_reasons(&mut answer);
        cases::differences(&self.effect, &Ok(answer)).is_empty()
    }
}

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
    ///
    /// # Errors
    ///
    /// Where a file can't be read or has no answer.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let receipt = |case: Case| Ok(Receipt { effect: Expected::Answer(case.effect()?), inquiry: case.inquiry });
        Case::all(path)?.into_iter().map(receipt).collect::<Result<_>>().map(Self)
    }

    /// What each of these policy sets answers.
    pub(super) fn ask<'a>(&self, sets: impl IntoIterator<Item = &'a Policies>) -> Vec<Answered> {
        let of = |decision| self.0.iter().filter(move |receipt| receipt.inquiry.decision() == decision);
        let asked = Decision::ALL.map(|decision| Answered { decision, asked: of(decision).count(), same: Vec::new() });
        let mut answered: Vec<Answered> = asked.into_iter().filter(|answered| answered.asked > 0).collect();
        for policies in sets {
            for row in &mut answered {
                let same = of(row.decision).filter(|receipt| receipt.is_met_by(&policies.answer_to(receipt.inquiry.clone())));
                row.same.push(same.count());
            }
        }
        answered
    }
}

/// A table below that of the figures, with the same columns.
pub(super) fn rows(answered: &[Answered]) -> Vec<Vec<String>> {
    let cells = |row: &Answered| row.same.iter().map(|same| format!("{same} of {}", row.asked)).collect::<Vec<_>>();
    answered.iter().map(|row| [vec![format!("{} answered as in the receipts", row.decision)], cells(row)].concat()).collect()
}
