//! What a RunnerSet says about the life of its claims.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Api, Resource, ResourceExt};
use pacer_api::names::label;
use pacer_api::runner_set::ClaimRetention;
use pacer_api::{RunnerSet, claim_revision};
use pacer_core::claim::{self, Claim};
use serde_json::{Value, json};

use super::{Claims, change, delete};

/// The set as the owner of its claims, if they are to go with it.
pub(super) fn owner(set: &RunnerSet) -> Option<OwnerReference> {
    (set.spec.claims_when_deleted() == ClaimRetention::Delete).then(|| set.owner_ref(&())).flatten()
}

/// What is missing among the labels of a claim that a StatefulSet of ARC's made: the revision of its template, which is known by the claim's
/// name, and its holder where ARC did not come to write it.
fn missing(set: &RunnerSet, claim: &PersistentVolumeClaim) -> Option<Value> {
    let name = claim.name_any();
    let templates = set.spec.stateful.volume_claim_templates.iter().flatten();
    let of_it = |template: &&PersistentVolumeClaim| name.starts_with(&format!("{}-{}-", template.name_any(), set.name_any()));
    let template = templates.filter(of_it).max_by_key(|template| template.name_any().len())?;
    let pod = name.strip_prefix(&format!("{}-", template.name_any()))?;
    let holder = claim.labels().get(label::RUNNER_STATEFUL_SET_NAME).map_or(pod, String::as_str);
    let unknown = !claim.labels().contains_key(label::CLAIM_REVISION);
    unknown.then(|| json!({label::CLAIM_REVISION: claim_revision(template), label::RUNNER_STATEFUL_SET_NAME: holder}))
}

/// Revisions of the claim templates that a set has now.
pub(super) fn revisions(set: &RunnerSet) -> Vec<String> {
    set.spec.stateful.volume_claim_templates.iter().flatten().map(claim_revision).collect()
}

impl Claims {
    /// Follows a set's retention policy: makes it the owner of its claims or takes it away, and deletes claims that nobody needs. Claims that ARC
    /// left become the set's like all others.
    ///
    /// # Errors
    ///
    /// When the API server refuses.
    pub(crate) async fn follow_retention(&self, set: &RunnerSet) -> Result<(), kube::Error> {
        let namespace = set.namespace().unwrap_or_default();
        let known = self.of_set(&namespace, &set.name_any());
        let claims: Api<PersistentVolumeClaim> = self.cluster.api(&namespace);
        let owner = owner(set);
        for claim in known.iter().filter(|claim| claim.meta().deletion_timestamp.is_none()) {
            let mut owners = claim.owner_references().to_vec();
            owners.retain(|present| present.kind != RunnerSet::kind(&()) || present.name != set.name_any());
            owners.extend(owner.clone());
            let labels = missing(set, claim);
            if owners != claim.owner_references() || labels.is_some() {
                let labels = labels.unwrap_or_else(|| json!({}));
                let patch = json!({"metadata": {
                    "resourceVersion": claim.resource_version(), "ownerReferences": owners, "labels": labels,
                }});
                change(&claims, &claim.name_any(), &patch).await?;
            }
        }
        if set.spec.claims_when_scaled() == ClaimRetention::Retain {
            return Ok(());
        }
        let revisions = revisions(set);
        let revisions: Vec<&str> = revisions.iter().map(String::as_str).collect();
        let wanted = usize::try_from(set.spec.replicas_or_default()).unwrap_or(usize::MAX);
        let surplus = self.with_takings(|takings| {
            let described: Vec<Claim<'_>> = known.iter().map(|claim| self.describe(takings, claim, None)).collect();
            claim::surplus(&described, &revisions, wanted)
        });
        for claim in surplus.into_iter().filter_map(|index| known.get(index)) {
            if delete(&self.cluster, claim).await? {
                tracing::info!(
                    namespace,
                    claim = claim.name_any(),
                    set = set.name_any(),
                    "claim deleted: fewer runners are wanted"
                );
            }
        }
        Ok(())
    }
}
