//! Whether the runners of an autoscaler's target may be where their spec says, which whoever writes it may claim of any repository.
//!
//! With the operator's credentials the tenancy says so. Credentials of one's own say so by listing the runners there, which only those may who
//! administer the place. The webhook server is another process, and goes by what the autoscaler's status says.

use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use pacer_api::autoscaler::ProvedScope;
use pacer_api::condition::{self, ConditionType, Statement, Verdict};
use pacer_api::{HorizontalRunnerAutoscalerStatus, RunnerConfig};

use super::{Autoscalers, Subject};
use crate::error::Error;
use crate::target::TargetRef;

/// How soon to look again for the first listing.
const RECHECK: Duration = Duration::from_secs(1);

/// Whether the scope of the target's runners is proved.
pub(super) enum Proof {
    /// Nobody asks: the operator's credentials without a tenancy, or no trigger.
    NotNeeded,
    /// It may be there.
    Given(ProvedScope),
    /// It may not, or shows no right to be.
    Refused { reason: &'static str, message: String },
    /// Nothing has been listed yet. What was proved before, by an operator that ran before, holds while it is about the same.
    Awaited {
        /// What would be proved.
        scope: ProvedScope,
        /// Why it takes so long.
        why: String,
    },
}

impl Proof {
    /// When to look again.
    pub(super) fn recheck(&self) -> Option<Duration> {
        matches!(self, Self::Awaited { .. }).then_some(RECHECK)
    }

    /// Says so in a status.
    pub(super) fn put(&self, status: &mut HorizontalRunnerAutoscalerStatus, generation: Option<i64>, now: Timestamp) {
        let (verdict, reason, message) = match self {
            Self::NotNeeded => {
                status.proved_scope = None;
                condition::remove(&mut status.conditions, ConditionType::ScopeProved);
                return;
            }
            Self::Given(scope) => {
                let by = match &scope.secret {
                    Some(secret) => {
                        ("Listed", format!("the credentials in Secret {secret} can list the runners of {}", scope.scope))
                    }
                    None => ("Allowed", format!("the tenancy file allows runners of {}", scope.scope)),
                };
                status.proved_scope = Some(scope.clone());
                (Verdict::True, by.0, by.1)
            }
            Self::Refused { reason, message } => {
                status.proved_scope = None;
                (Verdict::False, *reason, format!("no webhook brings it a job: {message}"))
            }
            Self::Awaited { scope, why } => {
                let before =
                    status.proved_scope.take_if(|before| (&before.scope, &before.secret) == (&scope.scope, &scope.secret));
                if before.is_some() {
                    status.proved_scope = before;
                    return;
                }
                status.proved_scope = None;
                (Verdict::Unknown, "NotListedYet", format!("no webhook brings it a job before {} is listed: {why}", scope.scope))
            }
        };
        let statement = Statement { type_: ConditionType::ScopeProved, verdict, reason, message: &message, generation };
        condition::put(&mut status.conditions, &statement, now);
    }
}

impl Autoscalers {
    /// Finds out whether the runners of the autoscaler's target may be in their scope.
    pub(super) async fn proof(&self, of: Subject<'_>) -> Proof {
        if of.object.spec.workflow_job_trigger().is_none() {
            return Proof::NotNeeded;
        }
        let Some(target) = TargetRef::of(of.object).and_then(|named| self.cluster.stores.target(&named)) else {
            return Proof::NotNeeded;
        };
        let (namespace, config) = (of.object.namespace().unwrap_or_default(), target.config());
        let secret = config.credentials_secret();
        let tenancies = self.github.tenancies();
        let Ok(scope) = config.scope() else { return Proof::NotNeeded };
        let scope = ProvedScope { scope: scope.api_path(), secret: secret.map(str::to_owned), api: None };
        match tenancies.admits(&namespace, config) {
            Err(refusal) => Proof::Refused { reason: refusal.reason(), message: refusal.to_string() },
            Ok(()) if secret.is_some() => self.listed(&namespace, config, scope).await,
            Ok(()) if tenancies.is_asked_for() => Proof::Given(scope),
            Ok(()) => Proof::NotNeeded,
        }
    }

    async fn listed(&self, namespace: &str, config: &RunnerConfig, scope: ProvedScope) -> Proof {
        let access = match self.github.get(namespace, config).await {
            Ok(access) => access,
            Err(error @ Error::Kube(_)) => return Proof::Awaited { scope, why: error.to_string() },
            Err(error) => return Proof::Refused { reason: error.reason(), message: error.to_string() },
        };
        let api = access.github().endpoints().api();
        let scope = ProvedScope { api: (api != self.github.endpoints().api()).then(|| api.to_owned()), ..scope };
        match (access.outage(), access.view()) {
            (Some(outage), _) if outage.refused => Proof::Refused { reason: "CredentialsRefused", message: outage.message },
            (_, Some(_)) => Proof::Given(scope),
            (Some(outage), None) => Proof::Awaited { scope, why: outage.message },
            (None, None) => Proof::Awaited { scope, why: "GitHub has not answered yet".to_owned() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(name: &str, secret: Option<&str>) -> ProvedScope {
        ProvedScope { scope: name.to_owned(), secret: secret.map(str::to_owned), api: None }
    }

    fn after(before: Option<ProvedScope>, proof: &Proof) -> (Option<ProvedScope>, Option<(String, String)>) {
        let mut status = HorizontalRunnerAutoscalerStatus { proved_scope: before, ..Default::default() };
        proof.put(&mut status, None, Timestamp::UNIX_EPOCH);
        let condition = status.conditions.first().map(|condition| (condition.status.clone(), condition.reason.clone()));
        (status.proved_scope, condition)
    }

    #[test]
    fn proof_outlives_a_restart_and_no_refusal() {
        let said = |status: &str, reason: &str| Some((status.to_owned(), reason.to_owned()));
        let own = scope("repos/acme/app", Some("own"));
        let awaited = Proof::Awaited { scope: own.clone(), why: String::new() };
        assert_eq!(after(None, &awaited), (None, said("Unknown", "NotListedYet")));
        assert_eq!(after(Some(own.clone()), &awaited), (Some(own.clone()), None), "what was said before stays");
        assert_eq!(after(Some(scope("repos/acme/app", None)), &awaited).0, None);
        assert_eq!(after(Some(scope("repos/acme/other", Some("own"))), &awaited).0, None);
        assert_eq!(after(None, &Proof::Given(own.clone())), (Some(own.clone()), said("True", "Listed")));
        assert_eq!(after(None, &Proof::Given(scope("orgs/acme", None))).1, said("True", "Allowed"));
        let refused = Proof::Refused { reason: "NotAllowed", message: String::new() };
        assert_eq!(after(Some(own.clone()), &refused), (None, said("False", "NotAllowed")));
        assert_eq!(after(Some(own), &Proof::NotNeeded), (None, None));
    }
}
