//! Runners whose volumes no node reaches.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{Api, Resource, ResourceExt};
use pacer_api::Runner;
use pacer_api::names::{annotation, label};
use pacer_cluster::clock::Clock;
use pacer_cluster::events::Reason;
use pacer_core::claim::{self, Reach, Tenure};
use pacer_core::facts::RunnerFacts;
use serde_json::json;

use super::{AGAIN, Claims, LOOK, change, holder, own_name};
use crate::error::Error;

impl Claims {
    /// Sees to a runner whose pod no node takes: one that has waited too long for volumes that are out of reach makes room for another, and its
    /// claims are set aside. Returns when to go on, where the volumes may be what keeps it waiting.
    ///
    /// # Errors
    ///
    /// When the API server did not do its part; what was set aside by then stays so, and the rest follows.
    pub(crate) async fn replace_unreachable(
        &self,
        runner: &Arc<Runner>,
        facts: &RunnerFacts,
        clock: Clock,
    ) -> Result<Option<Duration>, Error> {
        let waiting = facts.pod.as_ref().filter(|pod| pod.node.is_none() && pod.deleting.is_none());
        let Some((since, message)) = waiting.and_then(|pod| pod.unschedulable.as_ref()) else { return Ok(None) };
        let (Some(set), Some(owner)) = (runner.labels().get(label::RUNNER_SET_NAME), self.cluster.stores.set_of(runner)) else {
            // Nobody would make another.
            return Ok(None);
        };
        let (namespace, me) = (runner.namespace().unwrap_or_default(), runner.name_any());
        let mut mine = self.of_set(&namespace, set);
        mine.retain(|claim| claim.metadata.deletion_timestamp.is_none() && holder(&claim.metadata) == Some(&me));
        let tenures: Vec<Tenure> = mine.iter().map(|claim| tenure(runner, claim)).collect();
        let patience = SignedDuration::try_from(self.settings.claim_patience).unwrap_or(SignedDuration::MAX);
        match claim::reach(*since, message, &tenures, patience, clock.now) {
            Reach::Unconcerned => return Ok(None),
            Reach::Hope(left) => return Ok(Some(Duration::try_from(left).unwrap_or(LOOK))),
            Reach::Lost => {}
        }
        let claims: Api<PersistentVolumeClaim> = self.cluster.api(&namespace);
        let mut aside = Vec::new();
        for (claim, tenure) in mine.iter().zip(&tenures).filter(|(_, tenure)| tenure.inherited) {
            let mark = json!({"metadata": {
                "resourceVersion": claim.resource_version(),
                "annotations": {annotation::CLAIM_ASIDE: clock.now.to_string()},
            }});
            if !tenure.aside && !change(&claims, &claim.name_any(), &mark).await? {
                return Ok(Some(AGAIN));
            }
            aside.push(claim.name_any());
        }
        self.removals.delete(runner.clone(), clock).await?;
        let note = format!(
            "replaced runner {me}: no node has reached the volumes of its claims {} for {} s, which were set aside ({message})",
            aside.join(", "),
            clock.now.duration_since(*since).as_secs(),
        );
        tracing::info!(
            runner = me,
            namespace,
            claims = aside.join(", "),
            scheduler = message,
            "runner replaced: volumes out of reach"
        );
        self.cluster.events.publish(Reason::RunnerReplaced, &owner.object_ref(&()), Some(runner.object_ref(&())), &note).await;
        Ok(Some(self.settings.sync_period))
    }
}

fn tenure(runner: &Runner, claim: &PersistentVolumeClaim) -> Tenure {
    let name = claim.name_any();
    let made = runner.spec.claim_templates().iter().any(|template| own_name(template, &runner.name_any()) == name);
    let unbound = claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Pending");
    Tenure { inherited: !unbound && !made, aside: claim.annotations().contains_key(annotation::CLAIM_ASIDE) }
}
