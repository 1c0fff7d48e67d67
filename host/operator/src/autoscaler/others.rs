//! Jobs in the ledgers of other autoscalers, which are theirs to make runners for.

use std::cell::OnceCell;
use std::sync::Arc;

use pacer_api::HorizontalRunnerAutoscaler;
use pacer_cluster::object::Uid;
use pacer_core::ledger::{Ledger, State};

use super::Autoscalers;
use crate::target::TargetRef;

/// The ledgers of other autoscalers, read when the first job is asked about: most passes ask about none.
pub(super) struct Others<'a> {
    all: &'a Autoscalers,
    own: &'a Uid,
    ledgers: OnceCell<Vec<Arc<Ledger>>>,
}

impl Others<'_> {
    /// Whether one of them has the job and it is not over.
    pub(super) fn hold(&self, job: u64) -> bool {
        let ledgers = self.ledgers.get_or_init(|| self.all.ledgers_beside(self.own));
        ledgers.iter().any(|ledger| ledger.get(job).is_some_and(|job| job.state != State::Completed))
    }
}

impl Autoscalers {
    /// The ledgers of all autoscalers but this one.
    pub(super) fn others<'a>(&'a self, own: &'a Uid) -> Others<'a> {
        Others { all: self, own, ledgers: OnceCell::new() }
    }

    fn ledgers_beside(&self, own: &Uid) -> Vec<Arc<Ledger>> {
        let stores = &self.cluster.stores;
        let has_target = |autoscaler: &HorizontalRunnerAutoscaler| {
            TargetRef::of(autoscaler).and_then(|named| stores.target(&named)).is_some_and(|target| !target.is_leaving())
        };
        let is_other = |autoscaler: &HorizontalRunnerAutoscaler| {
            autoscaler.metadata.uid.as_deref() != Some(own.as_str()) && acts(autoscaler)
        };
        let others = stores.autoscalers.state().into_iter().filter(|one| is_other(one) && has_target(one));
        others.map(|one| self.demand.ledgers.read(&one)).filter(|ledger| ledger.open().next().is_some()).collect()
    }
}

/// Whether an autoscaler makes runners for the jobs in its ledger. Those of another one are left to whoever polls.
fn acts(autoscaler: &HorizontalRunnerAutoscaler) -> bool {
    let spec = &autoscaler.spec;
    autoscaler.metadata.deletion_timestamp.is_none()
        && spec.workflow_job_trigger().is_some()
        && spec.max_replicas.is_some_and(|max| max > 0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn an_autoscaler_acts_on_its_ledger_while_it_has_a_trigger_and_may_have_runners() {
        let trigger = json!([{"githubEvent": {"workflowJob": {}}}]);
        let acts = |metadata: Value, spec: Value| {
            let object = json!({
                "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "HorizontalRunnerAutoscaler", "metadata": metadata, "spec": spec,
            });
            acts(&serde_json::from_value(object).unwrap())
        };
        assert!(acts(json!({"name": "web"}), json!({"maxReplicas": 3, "scaleUpTriggers": trigger})));
        assert!(!acts(json!({"name": "web"}), json!({"maxReplicas": 0, "scaleUpTriggers": trigger})));
        assert!(!acts(json!({"name": "web"}), json!({"scaleUpTriggers": trigger})));
        assert!(!acts(json!({"name": "web"}), json!({"maxReplicas": 3})));
        let going = json!({"name": "web", "deletionTimestamp": "2024-01-01T00:00:00Z"});
        assert!(!acts(going, json!({"maxReplicas": 3, "scaleUpTriggers": trigger})));
    }
}
