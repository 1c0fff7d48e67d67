//! Which jobs in GitHub's lists concern a fleet.
//!
//! The rule about labels is that of webhooks ([`target`]), or a job that a webhook brought would be missing from the list, and so count as over. A job in
//! the ledger of another autoscaler is that one's: counted by both, one job would get two runners.

use std::sync::Arc;

use crate::target::{self, Platform};

/// The runners of a fleet, as far as jobs ask for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runners<'a> {
    /// Their labels, those common to all included (`--common-runner-labels`), GitHub's own not.
    pub labels: Vec<&'a str>,
    /// What they run on, as far as their template says so.
    pub platform: Platform,
}

/// How far a listed job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// No runner is named that has it.
    Open,
    /// In progress on a runner that is named. Whether that is one of the fleet, [`assess`](super::assess) finds out.
    Assigned,
    /// It is over.
    Completed,
}

impl Runners<'_> {
    /// Whether a listed job that asks for these labels may be one of this fleet. `is_held_elsewhere` says whether it is in the ledger of another
    /// autoscaler and not in that of this one.
    ///
    /// A job without labels is for runners of GitHub. A job in progress may be on a runner that the fleet made when it had other labels, or that took it
    /// before the other autoscaler made one.
    #[must_use]
    pub fn may_have(&self, labels: &[Arc<str>], stage: Stage, is_held_elsewhere: impl FnOnce() -> bool) -> bool {
        if labels.is_empty() {
            return false;
        }
        let fits = || {
            let wanted: Vec<&str> = labels.iter().map(AsRef::as_ref).collect();
            target::fits(&wanted, &self.labels, self.platform)
        };
        match stage {
            Stage::Assigned => true,
            Stage::Completed => fits(),
            Stage::Open => fits() && !is_held_elsewhere(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{Architecture, OperatingSystem};

    #[test]
    fn listed_jobs_concern_the_fleet_that_webhooks_would_bring_them_to() {
        let arm = Platform { os: None, architecture: Some(Architecture::Arm64) };
        let windows = Platform { os: Some(OperatingSystem::Windows), architecture: None };
        for (platform, wanted, expected) in [
            (Platform::default(), &["self-hosted", "web"][..], true),
            (Platform::default(), &["web", "common"], true),
            (Platform::default(), &["web", "gpu"], false),
            (Platform::default(), &["web", "x64"], true),
            (Platform::default(), &[], false),
            (arm, &["web", "ARM64"], true),
            (arm, &["web", "x64"], false),
            (windows, &["web", "windows"], true),
            (windows, &["web", "linux"], false),
        ] {
            let runners = Runners { labels: vec!["web", "common"], platform };
            let wanted: Vec<Arc<str>> = wanted.iter().copied().map(Arc::from).collect();
            assert_eq!(runners.may_have(&wanted, Stage::Open, || false), expected, "{wanted:?} on {platform:?}");
            assert_eq!(runners.may_have(&wanted, Stage::Completed, || false), expected, "{wanted:?} on {platform:?}");
            assert_eq!(runners.may_have(&wanted, Stage::Assigned, || false), !wanted.is_empty(), "{wanted:?}");
        }
    }

    #[test]
    fn a_job_that_another_autoscaler_holds_concerns_a_fleet_only_once_a_runner_has_it() {
        let runners = Runners { labels: vec!["web"], platform: Platform::default() };
        let web: [Arc<str>; 1] = ["web".into()];
        for (stage, expected) in [(Stage::Open, false), (Stage::Assigned, true), (Stage::Completed, true)] {
            assert_eq!(runners.may_have(&web, stage, || true), expected, "{stage:?}");
        }
    }
}
