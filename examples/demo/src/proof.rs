//! What the demo claims, and what became of each claim.

use std::collections::BTreeMap;

use crate::terminal::{Style, Terminal};

/// One claim. The demo succeeds when all that it set out to prove hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Claim {
    ExamplesOnline,
    JobsSucceed,
    OneRunnerPerJob,
    ScaleUp,
    ScaleDownOnlyIdle,
    ScaleDownReasons,
    CrashReplaced,
    RolloutSurge,
    RolloutSparesBusy,
    PolicySwapped,
    BrokenPolicyRefused,
    OnDemand,
    WaitExplained,
    BackToMinimum,
    Predicted,
    Departure,
    NoLeak,
    NoBusyKill,
}

impl Claim {
    const ALL: [Self; 18] = [
        Self::ExamplesOnline,
        Self::JobsSucceed,
        Self::OneRunnerPerJob,
        Self::ScaleUp,
        Self::ScaleDownOnlyIdle,
        Self::ScaleDownReasons,
        Self::CrashReplaced,
        Self::RolloutSurge,
        Self::RolloutSparesBusy,
        Self::PolicySwapped,
        Self::BrokenPolicyRefused,
        Self::OnDemand,
        Self::WaitExplained,
        Self::BackToMinimum,
        Self::Predicted,
        Self::Departure,
        Self::NoLeak,
        Self::NoBusyKill,
    ];

    fn text(self) -> &'static str {
        match self {
            Self::ExamplesOnline => "the manifests of examples/ run as they stand",
            Self::JobsSucceed => "every job found a runner and succeeded",
            Self::OneRunnerPerJob => "one ephemeral runner was made per job, not two",
            Self::ScaleUp => "a scale-up brings exactly the wanted number online",
            Self::ScaleDownOnlyIdle => "a scale-down removes idle runners only and asks no busy one",
            Self::ScaleDownReasons => "every removal has a reason and names the policy that chose",
            Self::CrashReplaced => "a crashed runner is replaced, its registration removed",
            Self::RolloutSurge => "a template change rolls within its surge",
            Self::RolloutSparesBusy => "a template change lets busy runners finish their jobs",
            Self::PolicySwapped => "a policy in a ConfigMap decides the next scale-down",
            Self::BrokenPolicyRefused => "a broken policy is refused, and the one before it decides on",
            Self::OnDemand => "signed webhooks bring one runner per job, reserved before they are answered",
            Self::WaitExplained => "a job that waits is told what it waits for",
            Self::BackToMinimum => "when the jobs are over the fleet is at its minimum",
            Self::Predicted => "what a simulation predicts of a policy is what then happens",
            Self::Departure => "what is deleted goes, and leaves no object and no registration",
            Self::NoLeak => "GitHub lists no runner that is gone",
            Self::NoBusyKill => "no job of the whole demo was cut short by a deletion",
        }
    }
}

/// Claims with their outcomes.
#[derive(Debug)]
pub(crate) struct Proofs {
    outcomes: BTreeMap<Claim, Option<Outcome>>,
}

#[derive(Debug)]
struct Outcome {
    holds: bool,
    measured: String,
}

impl Proofs {
    /// All claims but `without`, none of them proved.
    pub(crate) fn open(without: &[Claim]) -> Self {
        let claims = Claim::ALL.into_iter().filter(|claim| !without.contains(claim));
        Self { outcomes: claims.map(|claim| (claim, None)).collect() }
    }

    /// Records whether a claim holds and the numbers that say so. What failed once stays failed.
    pub(crate) fn record(&mut self, claim: Claim, holds: bool, measured: String) {
        if let Some(outcome) = self.outcomes.get_mut(&claim)
            && outcome.as_ref().is_none_or(|outcome| outcome.holds)
        {
            *outcome = Some(Outcome { holds, measured });
        }
    }

    /// Whether everything that was to be proved is.
    pub(crate) fn all_hold(&self) -> bool {
        self.outcomes.values().all(|outcome| outcome.as_ref().is_some_and(|outcome| outcome.holds))
    }

    /// Prints the table; claims that were left out have a dash.
    pub(crate) fn print(&self, terminal: &Terminal) {
        for (claim, outcome) in &self.outcomes {
            let (style, word, measured) = match outcome {
                Some(Outcome { holds: true, measured }) => (Style::Good, "ok", measured.as_str()),
                Some(Outcome { holds: false, measured }) => (Style::Bad, "FAILED", measured.as_str()),
                None => (Style::Bad, "FAILED", "not reached"),
            };
            terminal.write(style, &format!("  {word:<6}  {:<62}  {measured}", claim.text()));
        }
        for claim in Claim::ALL.into_iter().filter(|claim| !self.outcomes.contains_key(claim)) {
            terminal.write(Style::Dim, &format!("  {:<6}  {}", "-", claim.text()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_that_nobody_reached_is_a_failure() {
        let mut proofs = Proofs::open(&[Claim::Departure]);
        for claim in Claim::ALL {
            assert!(!proofs.all_hold());
            proofs.record(claim, true, String::new());
        }
        assert!(proofs.all_hold());
    }

    #[test]
    fn a_failure_is_not_made_good_later() {
        let mut proofs = Proofs::open(&Claim::ALL[1..]);
        proofs.record(Claim::ALL[0], false, "first".to_owned());
        proofs.record(Claim::ALL[0], true, "second".to_owned());
        assert!(!proofs.all_hold());
    }
}
