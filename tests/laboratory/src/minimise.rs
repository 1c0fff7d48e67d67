//! From a script that fails to a short one that fails alike.

use crate::invariant::Violation;
use crate::rules::Rules;
use crate::script::{Operation, Script};
use crate::world::run;

/// Runs at most, so that a slow failure is printed all the same.
const RUNS: usize = 2_000;

/// Drops steps, many at a time at first, and makes what is left smaller, as long as the same invariant fails.
#[must_use]
pub fn minimise(script: &Script, rules: Rules, violation: &Violation) -> (Script, Violation) {
    let mut search = Search { rules, best: script.clone(), violation: violation.clone(), runs: 0 };
    let mut chunk = search.best.steps.len().max(1);
    while chunk > 0 {
        let mut at = 0;
        let mut shorter = false;
        while at < search.best.steps.len() {
            let mut steps = search.best.steps.clone();
            steps.drain(at..(at + chunk).min(steps.len()));
            if search.fails(Script { steps, ..search.best.clone() }) { shorter = true } else { at += chunk }
        }
        // What could not go alone may go once others have gone.
        chunk = if shorter { chunk.min(search.best.steps.len()) } else { chunk / 2 };
    }
    search.soften();
    (search.best, search.violation)
}

struct Search {
    rules: Rules,
    best: Script,
    violation: Violation,
    runs: usize,
}

impl Search {
    fn fails(&mut self, script: Script) -> bool {
        self.runs += 1;
        if self.runs > RUNS {
            return false;
        }
        let found = run(&script, self.rules, false).violation;
        let Some(found) = found.filter(|found| found.invariant == self.violation.invariant) else { return false };
        (self.best, self.violation) = (script, found);
        true
    }

    /// Fewer jobs, a simpler setting.
    fn soften(&mut self) {
        for index in 0..self.best.steps.len() {
            while let Some((_, Operation::Jobs(count @ 2.., lasts))) = self.best.steps.get(index).copied() {
                let mut script = self.best.clone();
                if let Some((_, operation)) = script.steps.get_mut(index) {
                    *operation = Operation::Jobs(count - 1, lasts);
                }
                if !self.fails(script) {
                    break;
                }
            }
        }
        let mut script = self.best.clone();
        script.setting.wild_policy = false;
        if self.best.setting.wild_policy {
            self.fails(script);
        }
        while self.best.setting.autoscaler.is_none() && self.best.setting.replicas > 1 {
            let mut script = self.best.clone();
            script.setting.replicas -= 1;
            if !self.fails(script) {
                break;
            }
        }
    }
}
