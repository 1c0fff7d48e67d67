//! Claims that no runner will ever take again.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Resource, ResourceExt};
use pacer_api::RunnerSet;
use pacer_api::names::{annotation, label};
use pacer_cluster::events::Reason;
use pacer_cluster::live;
use pacer_core::claim::{self, Held, Unusable};
use serde_json::{Value, json};

use super::{Claims, Takings, change, delete, holder, retention};
use crate::published::IN_FLIGHT;

impl Claims {
    /// Finds claims that no runner will ever take again, says so once, and deletes them after the retention time where there is one.
    pub(crate) async fn sweep(&self) {
        self.with_takings(|takings| takings.retain(|_, taking| taking.at.elapsed() < IN_FLIGHT));
        let now = Timestamp::now();
        for claim in self.cluster.stores.claims.state() {
            if let Err(error) = self.tend(&claim, now).await {
                tracing::warn!(namespace = claim.namespace(), claim = claim.name_any(), %error, "claim not looked after");
            }
        }
    }

    async fn tend(&self, claim: &PersistentVolumeClaim, now: Timestamp) -> Result<(), kube::Error> {
        let namespace = claim.namespace().unwrap_or_default();
        let Some(set) = claim.labels().get(label::RUNNER_SET_NAME) else { return Ok(()) };
        let marked = claim.annotations().get(annotation::CLAIM_UNUSABLE);
        let claims: Api<PersistentVolumeClaim> = self.cluster.api(&namespace);
        let annotate = async |key: &str, since: Value| {
            let patch = json!({"metadata": {"resourceVersion": claim.resource_version(), "annotations": {key: since}}});
            change(&claims, &claim.name_any(), &patch).await
        };
        if claim.annotations().contains_key(annotation::CLAIM_ASIDE) && self.is_reached(claim) {
            // A node came back as its runner was about to be replaced.
            annotate(annotation::CLAIM_ASIDE, Value::Null).await?;
            return Ok(());
        }
        let found = self.with_takings(|takings| self.unusable(takings, claim, set));
        let Some(why) = found else {
            if marked.is_some() {
                annotate(annotation::CLAIM_UNUSABLE, Value::Null).await?;
            }
            return Ok(());
        };
        let Some(since) = marked.and_then(|since| since.parse::<Timestamp>().ok()) else {
            if annotate(annotation::CLAIM_UNUSABLE, json!(now.to_string())).await? {
                let note = format!("{}; {}", reason(why, set), advice(self.settings.claim_retention));
                self.cluster.events.publish(Reason::ClaimUnusable, &claim.object_ref(&()), None, &note).await;
            }
            return Ok(());
        };
        let Some(retention) = self.settings.claim_retention else { return Ok(()) };
        let age = Duration::try_from(now.duration_since(since)).unwrap_or_default();
        // The watch may be late to show a set that was made again.
        let is_back =
            why == Unusable::SetGone && live::metadata::<RunnerSet>(&self.cluster.client, &namespace, set).await?.is_some();
        if age >= retention && !is_back && delete(&self.cluster, claim).await? {
            tracing::info!(
                namespace,
                claim = claim.name_any(),
                why = reason(why, set),
                "claim deleted: its retention time is over"
            );
        }
        Ok(())
    }

    /// Whether a node has the pod that has a claim.
    fn is_reached(&self, claim: &PersistentVolumeClaim) -> bool {
        let Some(holder) = holder(&claim.metadata) else { return false };
        let pod = self.cluster.stores.pod(claim.metadata.namespace.as_deref().unwrap_or_default(), holder);
        pod.is_some_and(|pod| pod.facts.node.is_some())
    }

    fn unusable(&self, takings: &Takings, claim: &PersistentVolumeClaim, set: &str) -> Option<Unusable> {
        let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
        let set = self.cluster.stores.runner_sets.get(&ObjectRef::new(set).within(namespace));
        let revisions = set.as_deref().map(retention::revisions);
        let revisions: Option<Vec<&str>> = revisions.as_ref().map(|all| all.iter().map(String::as_str).collect());
        claim::unusable(&self.describe(takings, claim, None), revisions.as_deref())
    }

    /// How many claims there are by namespace, RunnerSet and state.
    pub(crate) fn census(&self) -> BTreeMap<(String, String, &'static str), usize> {
        let mut counts = BTreeMap::new();
        for claim in self.cluster.stores.claims.state() {
            let namespace = claim.namespace().unwrap_or_default();
            let Some(set) = claim.labels().get(label::RUNNER_SET_NAME) else { continue };
            let state = self.with_takings(|takings| match self.unusable(takings, &claim, set) {
                Some(_) => "unusable",
                None if self.held(takings, &claim, None) == Held::Free => "free",
                None => "held",
            });
            *counts.entry((namespace, set.clone(), state)).or_default() += 1;
        }
        counts
    }
}

fn reason(why: Unusable, set: &str) -> String {
    match why {
        Unusable::SetGone => format!("no runner can use this claim: there is no RunnerSet {set}"),
        Unusable::TemplateGone => {
            format!("no runner can use this claim: RunnerSet {set} has no volumeClaimTemplate like the one it was made from")
        }
        Unusable::VolumeGone => "no runner can use this claim: its volume is gone".to_owned(),
        Unusable::OutOfReach => format!(
            "no node could reach the volume of this claim: another one has its place, and it is tried again at the earliest after an hour, \
             where RunnerSet {set} has no other; take the annotation {} away to have it used again now",
            annotation::CLAIM_ASIDE
        ),
    }
}

fn advice(retention: Option<Duration>) -> String {
    match retention {
        Some(retention) => format!("it is deleted in {} s unless that changes", retention.as_secs()),
        None => "delete it, or have the operator delete such claims with --runner-set-claim-retention".to_owned(),
    }
}
