//! Jobs in the ledgers of other autoscalers, which are theirs to make runners for.
//!
//! A job that is over there may still be listed as queued: in a listing that was read before its end, or that lags behind it. Later listings say
//! themselves how far it is; where the other autoscaler only took it for over, since its labels have changed, it counts again.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use pacer_api::HorizontalRunnerAutoscaler;
use pacer_api::condition::{self, ConditionType};
use pacer_cluster::object::Uid;
use pacer_core::demand::LISTING_LAG;
use pacer_core::ledger::{Job, Ledger, State};
use pacer_github::Repository;

use super::{Autoscalers, problem};
use crate::target::TargetRef;

/// The ledgers of other autoscalers, read when the first job is asked about: most passes ask about none.
pub(super) struct Others<'a> {
    all: &'a Autoscalers,
    own: &'a Uid,
    /// Those whose lists are read.
    repositories: &'a BTreeSet<Repository>,
    ledgers: OnceCell<Vec<Arc<Ledger>>>,
}

impl Others<'_> {
    /// Whether one of them has the job of this repository, so that a listing that was begun at that moment does not show it as anybody else's.
    pub(super) fn hold(&self, job: u64, repository: &str, begun: Timestamp) -> bool {
        let ledgers = self.ledgers.get_or_init(|| self.all.ledgers_beside(self.own, self.repositories));
        ledgers.iter().any(|ledger| ledger.get(job).is_some_and(|job| is_theirs(job, repository, begun)))
    }
}

impl Autoscalers {
    /// The ledgers of all autoscalers but this one whose runners may have jobs of these repositories.
    pub(super) fn others<'a>(&'a self, own: &'a Uid, repositories: &'a BTreeSet<Repository>) -> Others<'a> {
        Others { all: self, own, repositories, ledgers: OnceCell::new() }
    }

    fn ledgers_beside(&self, own: &Uid, repositories: &BTreeSet<Repository>) -> Vec<Arc<Ledger>> {
        let stores = &self.cluster.stores;
        let repositories: Vec<String> = repositories.iter().map(ToString::to_string).collect();
        let has_target = |autoscaler: &HorizontalRunnerAutoscaler| {
            let target = TargetRef::of(autoscaler).and_then(|named| stores.target(&named)).filter(|target| !target.is_leaving());
            let scope = target.and_then(|target| target.config().scope().ok());
            scope.is_some_and(|scope| repositories.iter().any(|repository| scope.covers(repository)))
        };
        let is_other = |autoscaler: &HorizontalRunnerAutoscaler| {
            autoscaler.metadata.uid.as_deref() != Some(own.as_str()) && acts(autoscaler)
        };
        let others = stores.autoscalers.state().into_iter().filter(|one| is_other(one) && has_target(one));
        others.map(|one| self.demand.ledgers.read(&one)).filter(|ledger| !ledger.is_empty()).collect()
    }
}

/// Whether a job of another autoscaler's ledger is that one's, as far as a listing of this repository is concerned that was begun then. Two GitHub
/// servers may use one id.
fn is_theirs(job: &Job, repository: &str, begun: Timestamp) -> bool {
    let is_shown = || job.since.checked_add(LISTING_LAG).is_ok_and(|shown| shown < begun);
    job.about.repository.eq_ignore_ascii_case(repository) && (job.state != State::Completed || !is_shown())
}

/// Whether an autoscaler makes runners for the jobs in its ledger. Those of another one are left to whoever polls.
fn acts(autoscaler: &HorizontalRunnerAutoscaler) -> bool {
    let spec = &autoscaler.spec;
    let conditions = autoscaler.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    // While GitHub cannot be asked, it keeps the runners that it has made for its jobs.
    let is_refused = condition::find(conditions, ConditionType::Accepted)
        .is_some_and(|accepted| accepted.status == "False" && accepted.reason != problem::GITHUB);
    autoscaler.metadata.deletion_timestamp.is_none()
        && !is_refused
        && spec.workflow_job_trigger().is_some()
        && spec.max_replicas.is_some_and(|max| max > 0)
}

#[cfg(test)]
mod tests {
    use pacer_core::ledger::About;
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
        for (reason, expected) in [("InvalidSchedule", false), ("GitHubUnavailable", true)] {
            let status = json!({"conditions": [{
                "type": "Accepted", "status": "False", "reason": reason, "message": "", "lastTransitionTime": "2024-01-01T00:00:00Z",
            }]});
            let refused = json!({
                "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "HorizontalRunnerAutoscaler", "metadata": {"name": "web"},
                "spec": {"maxReplicas": 3, "scaleUpTriggers": trigger}, "status": status,
            });
            assert_eq!(super::acts(&serde_json::from_value(refused).unwrap()), expected, "{reason}");
        }
    }

    #[test]
    fn a_job_that_is_over_is_theirs_for_listings_that_may_not_show_that_yet() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let about = About { repository: "acme/app".into(), workflow: "ci".into(), labels: Arc::from([]), attempt: 1 };
        let job = |state| Job {
            state,
            since: at(100),
            queued: at(90),
            expires: at(1_000),
            about: Arc::new(about.clone()),
            runner: None,
            origin: Arc::default(),
        };
        for (state, repository, begun, expected) in [
            (State::Queued, "acme/app", 500, true),
            (State::InProgress, "Acme/App", 500, true),
            (State::Queued, "acme/other", 500, false),
            (State::Completed, "acme/app", 95, true),
            (State::Completed, "acme/app", 110, true),
            (State::Completed, "acme/app", 111, false),
        ] {
            assert_eq!(is_theirs(&job(state), repository, at(begun)), expected, "{state:?} {repository} {begun}");
        }
    }
}
