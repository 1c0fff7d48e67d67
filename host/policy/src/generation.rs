//! Which policy takes which decision, as one immutable whole.

use std::fmt;
use std::sync::Arc;

use pacer_core::policy::{CapacityPlan, CapacityRequest, Choice, RestartRequest, ScaleDownRequest, Verdict};

use crate::decision::Decision;
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

/// How all decisions are taken. The default is the shipped policy without settings.
#[derive(Clone, Debug, Default)]
pub struct PolicySet {
    /// Which idle runners go first.
    pub scale_down: Assignment,
    /// What to do about runners that are not well.
    pub restart: Assignment,
    /// How much capacity to hold.
    pub capacity: Assignment,
}

impl PolicySet {
    /// The assignment of one decision.
    #[must_use]
    pub fn assignment(&self, decision: Decision) -> &Assignment {
        match decision {
            Decision::ScaleDown => &self.scale_down,
            Decision::Restart => &self.restart,
            Decision::Capacity => &self.capacity,
        }
    }
}

/// A policy set in force, with a number. Taken once per reconcile, so that one reconcile never mixes two.
pub struct Generation {
    pub(crate) number: u64,
    pub(crate) set: PolicySet,
    pub(crate) sandbox: Arc<Sandbox>,
}

impl Generation {
    /// Grows with every set that was prepared in this process; no meaning across restarts.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// What it consists of.
    #[must_use]
    pub fn set(&self) -> &PolicySet {
        &self.set
    }

    /// Which of the candidates go first? At most `surplus` distinct ones. The settings in the request are replaced by the set's.
    ///
    /// Answers within the deadline of the policy and that of the shipped one, each plus one tick and at most one deadline of waiting.
    pub async fn scale_down(&self, request: ScaleDownRequest) -> Evaluation<Vec<Choice>> {
        self.sandbox.evaluate(request, &self.set.scale_down, self.number).await
    }

    /// What shall happen to these runners? At most one verdict for each; as bounded as [`Generation::scale_down`].
    pub async fn restart(&self, request: RestartRequest) -> Evaluation<Vec<Verdict>> {
        self.sandbox.evaluate(request, &self.set.restart, self.number).await
    }

    /// Which reservations shall exist? As bounded as [`Generation::scale_down`].
    pub async fn capacity(&self, request: CapacityRequest) -> Evaluation<CapacityPlan> {
        self.sandbox.evaluate(request, &self.set.capacity, self.number).await
    }
}

impl fmt::Debug for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generation").field("number", &self.number).field("set", &self.set).finish_non_exhaustive()
    }
}
