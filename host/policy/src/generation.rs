//! Which policy takes which decision, as one whole.

use std::fmt;
use std::sync::Arc;

use pacer_core::policy::{CapacityPlan, CapacityRequest, Choice, RestartRequest, ScaleDownRequest, Verdict};
use tokio::sync::Notify;

use crate::component::Digest;
use crate::decision::{Decision, PerDecision};
use crate::lane::{Candidate, Health, Lane, Tally};
use crate::limits::Limits;
use crate::load::NO_SETTINGS;
use crate::policy::Policy;
use crate::sandbox::{Evaluation, Sandbox};

/// Who is asked first.
#[derive(Clone, Debug, Default)]
pub enum Chosen {
    /// The policy in this program, as a component.
    #[default]
    Shipped,
    /// The same as it is linked, so that no WebAssembly runs at all: for whoever distrusts the sandbox today.
    Native,
    /// A policy of the user.
    Policy(Arc<Policy>),
}

/// How one decision is taken.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// Who is asked first.
    pub chosen: Chosen,
    /// JSON given to every call.
    pub settings: Arc<str>,
    /// What a call may use.
    pub limits: Limits,
}

impl Default for Assignment {
    fn default() -> Self {
        Self { chosen: Chosen::Shipped, settings: Arc::from(NO_SETTINGS), limits: Limits::default() }
    }
}

impl Assignment {
    /// `name@sha256:0123456789ab` of a user's policy, `shipped` or `native` otherwise.
    #[must_use]
    pub fn policy(&self) -> String {
        match &self.chosen {
            Chosen::Shipped => "shipped".to_owned(),
            Chosen::Native => "native".to_owned(),
            Chosen::Policy(policy) => policy.to_string(),
        }
    }
}

/// How all decisions are taken. The default is the shipped policy without settings.
pub type PolicySet = PerDecision<Assignment>;

/// A policy set that passed every check: for each decision that it says anything about, who decides and who is compared with that.
///
/// Its policies keep their breakers and counts for as long as anybody holds the set, in whichever generations it takes part.
#[derive(Debug)]
pub struct StagedSet {
    pub(crate) digest: Digest,
    pub(crate) enforced: PerDecision<Option<Arc<Lane>>>,
    pub(crate) shadows: PerDecision<Option<Arc<Candidate>>>,
    pub(crate) news: Arc<Notify>,
}

/// One decision of a staged set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The policy, as [`Assignment::policy`] has it.
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

/// Policies in force, with a number. Taken once per reconcile, so that one reconcile never mixes two.
pub struct Generation {
    pub(crate) number: u64,
    pub(crate) lanes: PerDecision<Arc<Lane>>,
    pub(crate) shadows: PerDecision<Option<Arc<Candidate>>>,
    pub(crate) sandbox: Arc<Sandbox>,
}

impl Generation {
    /// Grows with every generation that was made in this process; no meaning across restarts.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// How a decision is taken.
    #[must_use]
    pub fn assignment(&self, decision: Decision) -> &Assignment {
        &self.lanes.get(decision).assignment
    }

    /// The policies that are not asked because they keep failing, with the decision that the shipped one takes instead.
    #[must_use]
    pub fn degraded(&self) -> Vec<(Decision, Standing)> {
        let standing = |lane: &Lane| Standing { policy: lane.assignment.policy(), health: lane.health() };
        self.lanes
            .iter()
            .map(|(decision, lane)| (decision, standing(lane)))
            .filter(|(_, standing)| standing.health.open_since.is_some())
            .collect()
    }

    /// Which of the candidates go first? At most `surplus` distinct ones. The settings in the request are replaced by the set's.
    ///
    /// Answers within the deadline of the policy and that of the shipped one, each plus one tick and at most one deadline of waiting.
    pub async fn scale_down(&self, request: ScaleDownRequest) -> Evaluation<Vec<Choice>> {
        self.sandbox.evaluate(request, &self.lanes.scale_down, self.shadows.scale_down.as_ref(), self.number).await
    }

    /// What shall happen to these runners? At most one verdict for each; as bounded as [`Generation::scale_down`].
    pub async fn restart(&self, request: RestartRequest) -> Evaluation<Vec<Verdict>> {
        self.sandbox.evaluate(request, &self.lanes.restart, self.shadows.restart.as_ref(), self.number).await
    }

    /// Which reservations shall exist? As bounded as [`Generation::scale_down`].
    pub async fn capacity(&self, request: CapacityRequest) -> Evaluation<CapacityPlan> {
        self.sandbox.evaluate(request, &self.lanes.capacity, self.shadows.capacity.as_ref(), self.number).await
    }
}

impl fmt::Debug for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let policies = PerDecision::from_fn(|decision| self.assignment(decision).policy());
        f.debug_struct("Generation").field("number", &self.number).field("policies", &policies).finish_non_exhaustive()
    }
}
