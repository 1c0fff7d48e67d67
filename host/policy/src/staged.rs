//! A policy set that may be put into force, and how its policies are doing.

use std::sync::Arc;

use tokio::sync::Notify;

use crate::component::Digest;
use crate::decision::{Decision, PerDecision};
use crate::lane::{Candidate, Health, Lane, Tally};
use crate::loaded::Holding;

/// A policy set that passed every check: for each decision that it says anything about, who decides and who is compared with that.
///
/// Its policies keep their breakers and counts for as long as anybody holds the set, in whichever generations it takes part.
#[derive(Debug)]
pub struct StagedSet {
    pub(crate) digest: Digest,
    pub(crate) enforced: PerDecision<Option<Arc<Lane>>>,
    pub(crate) shadows: PerDecision<Option<Arc<Candidate>>>,
    pub(crate) news: Arc<Notify>,
    /// What it takes of its namespace's share.
    pub(crate) _holding: Arc<Holding>,
}

/// One decision of a staged set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The policy, as [`crate::Assignment::policy`] has it.
    pub policy: String,
    /// How it is doing.
    pub health: Health,
}

impl StagedSet {
    /// Identifies its content: policies, settings, limits and modes.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Who decides, where the set says so.
    #[must_use]
    pub fn enforced(&self, decision: Decision) -> Option<Standing> {
        let lane = self.enforced.get(decision).as_ref()?;
        Some(Standing { policy: lane.assignment.policy(), health: lane.health() })
    }

    /// Who is compared with the policy that decides, where the set says so.
    #[must_use]
    pub fn shadow(&self, decision: Decision) -> Option<(Standing, Tally)> {
        let candidate = self.shadows.get(decision).as_ref()?;
        let standing = Standing { policy: candidate.lane.assignment.policy(), health: candidate.lane.health() };
        Some((standing, candidate.tally()))
    }

    /// Waits until a breaker of the set opens or closes, or a policy of it fails in another way than before. For one waiter; what happens while nobody waits is reported at the next call.
    pub async fn changed(&self) {
        self.news.notified().await;
    }
}
