//! Which policy takes which decision, as one whole.

use std::fmt;
use std::sync::Arc;

use pacer_core::policy::{
    CapacityPlan, CapacityRequest, Choice, RecoverRequest, Recovery, RestartRequest, ScaleDownRequest, Verdict,
};
use pacer_core::reads::Reads;

use crate::assignment::Assignment;
use crate::decision::{Decision, PerDecision};
use crate::entry::Mode;
use crate::lane::{Candidate, Lane};
use crate::sandbox::{Evaluation, Sandbox};
use crate::staged::Standing;

/// Policies in force, with a number. Taken once per reconcile, so that one reconcile never mixes two.
pub struct Generation {
    pub(crate) number: u64,
    pub(crate) lanes: PerDecision<Arc<Lane>>,
    pub(crate) shadows: PerDecision<Option<Arc<Candidate>>>,
    /// What becomes of answers about dead jobs, where a policy set names who gives them.
    pub(crate) recovery: Option<Mode>,
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

    /// Further facts that are read for a decision: by whom is asked, and by whom is compared with that.
    #[must_use]
    pub fn reads(&self, decision: Decision) -> Reads {
        let decides = self.lanes.get(decision).assignment.reads();
        let shadow = self.shadows.get(decision).as_ref().and_then(|candidate| candidate.lane.assignment.reads());
        decides.into_iter().chain(shadow).fold(Reads::default(), Reads::or)
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
    /// Asks the policy and, where that fails, the shipped one. Each waits for a place for at most [`Limits::LONGEST`], and is given up after so much
    /// again and one tick; its deadline is processor time, and ends it sooner on a machine that is not busy. That a process for it has to be started comes
    /// on top. When there is no place, the linked policy answers at once.
    ///
    /// [`Limits::LONGEST`]: crate::Limits::LONGEST
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

    /// What becomes of answers about jobs that died with their runners; none where no policy set names a policy for that, and nobody is asked.
    #[must_use]
    pub fn recovery(&self) -> Option<Mode> {
        self.recovery
    }

    /// Which of these jobs shall run again? At most one verdict for each; as bounded as [`Generation::scale_down`]. Not to be carried out unless
    /// [`Generation::recovery`] says so.
    pub async fn recover(&self, request: RecoverRequest) -> Evaluation<Vec<Recovery>> {
        self.sandbox.evaluate(request, &self.lanes.recover, self.shadows.recover.as_ref(), self.number).await
    }
}

impl fmt::Debug for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let policies = PerDecision::from_fn(|decision| self.assignment(decision).policy());
        f.debug_struct("Generation").field("number", &self.number).field("policies", &policies).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assignment::PolicySet;
    use crate::observer::Counters;
    use crate::receipt::DecidedBy;
    use crate::rehearsal;

    #[tokio::test]
    async fn the_linked_policy_decides_when_no_process_runs_policies() {
        let counters = Arc::new(Counters::default());
        let sandbox = Arc::new(Sandbox::new(None, None, Arc::clone(&counters) as _));
        let set = PolicySet::default();
        let lanes = PerDecision::from_fn(|decision| Arc::new(Lane::new(decision, set.get(decision).clone(), Arc::default())));
        let generation = Generation { number: 7, lanes, shadows: PerDecision::default(), recovery: None, sandbox };
        let [_, _, (_, request)] = rehearsal::scale_down();
        let surplus = request.surplus as usize;
        let evaluation = generation.scale_down(request).await;
        assert_eq!((evaluation.answer.len(), &evaluation.decided_by, &evaluation.fault), (surplus, &DecidedBy::Native, &None));
        assert_eq!((evaluation.receipt.policy.as_str(), evaluation.receipt.generation), ("native", 7));
        assert_eq!(counters.evaluations(Decision::ScaleDown), 1);
    }
}
