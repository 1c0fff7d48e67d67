//! Claims of RunnerSets: each runner takes a free one over, with what is on its volume, or gets a new one.
//!
//! ```text
//! runner: claims of its set -> keep | take | await | make -> pod
//! stuck:  claims of its own -> their volumes are out of reach -> set aside -> another runner, with another claim
//! set:    claims of the set -> owners as the retention policy says -> delete what is too many (whenScaled: Delete)
//! sweep:  all claims        -> nobody can take it any more -> say so -> delete after the retention time, if there is one
//! ```
//!
//! Who has a claim is written on the claim, in ARC's label, under the precondition that nobody changed the claim meanwhile: two runners never
//! get the same one, whichever process looks at a store that is late. It is free again when neither a Runner nor a pod of that name exists,
//! so that giving it back takes no write and can't be forgotten. Volumes are never touched.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt};
use pacer_api::names::{annotation, label};
use pacer_cluster::answer::precondition_held;
use pacer_cluster::object::ObjectKey;
use pacer_core::claim::{Claim, Condition, Held};
use serde_json::Value;

use crate::cluster::Cluster;
use crate::published::IN_FLIGHT;
use crate::removal::Removals;
use crate::settings::Settings;

mod reach;
mod retention;
mod secure;
mod sweep;

pub(crate) use secure::Secured;

/// A runner whose claim is on its way out, or that was too slow, tries again after this.
const AGAIN: Duration = Duration::from_secs(1);

/// A runner that waits for a claim tries again after this.
const LOOK: Duration = Duration::from_millis(500);

/// What a runner did about a claim, for as long as the watch may not show it.
#[derive(Clone, Debug)]
struct Taking {
    /// Name of the runner.
    runner: String,
    /// When it did so.
    at: Instant,
    /// It waits for the claim and does not have it.
    waits: bool,
}

/// The last that was done about claims.
type Takings = HashMap<ObjectKey, Taking>;

/// The claims of all RunnerSets.
pub struct Claims {
    cluster: Cluster,
    removals: Arc<Removals>,
    settings: Arc<Settings>,
    /// One lock for all, so that no two runners choose the same claim.
    takings: Mutex<Takings>,
}

impl Claims {
    /// None taken yet.
    #[must_use]
    pub fn new(cluster: Cluster, removals: Arc<Removals>, settings: Arc<Settings>) -> Self {
        Self { cluster, removals, settings, takings: Mutex::default() }
    }

    fn with_takings<T>(&self, act: impl FnOnce(&mut Takings) -> T) -> T {
        act(&mut self.takings.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The claims of a RunnerSet, whether that exists or not.
    fn of_set(&self, namespace: &str, set: &str) -> Vec<Arc<PersistentVolumeClaim>> {
        self.cluster.stores.claims_of_runner_set(namespace, set)
    }

    fn describe<'a>(&self, takings: &Takings, claim: &'a PersistentVolumeClaim, me: Option<&str>) -> Claim<'a> {
        let meta = &claim.metadata;
        let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
        let at = |key: &str| claim.annotations().get(key).and_then(|at| at.parse::<Timestamp>().ok());
        Claim {
            name: meta.name.as_deref().unwrap_or_default(),
            revision: claim.labels().get(label::CLAIM_REVISION).map(String::as_str),
            held: self.held(takings, claim, me),
            condition: match phase {
                _ if meta.deletion_timestamp.is_some() => Condition::Leaving,
                Some("Lost") => Condition::Lost,
                _ => Condition::Usable,
            },
            taken: at(annotation::CLAIM_TAKEN).or_else(|| meta.creation_timestamp.as_ref().map(|time| time.0)),
            aside: at(annotation::CLAIM_ASIDE),
        }
    }

    /// Who has a claim, by its label or by what this process wrote there and does not see yet. Nobody takes one that says nothing.
    fn held(&self, takings: &Takings, claim: &PersistentVolumeClaim, me: Option<&str>) -> Held {
        let namespace = claim.namespace().unwrap_or_default();
        let recent =
            takings.get(&ObjectKey::new(namespace.clone(), claim.name_any())).filter(|taking| taking.at.elapsed() < IN_FLIGHT);
        let taken = recent.filter(|taking| !taking.waits).map(|taking| &taking.runner);
        let Some(holder) = taken.or_else(|| holder(&claim.metadata)) else { return Held::Other };
        if me == Some(holder) {
            return Held::Mine;
        }
        // Somebody waits for it already.
        let promised = recent.is_some_and(|taking| taking.waits && me != Some(&taking.runner));
        if promised {
            return Held::Other;
        }
        // ARC wrote the name of a StatefulSet, whose pod has a number at its end.
        match self.standing(&namespace, holder) {
            Held::Free => self.standing(&namespace, &format!("{holder}-0")),
            held => held,
        }
    }

    /// What became of the holder of a claim.
    fn standing(&self, namespace: &str, holder: &str) -> Held {
        let runner = self.cluster.stores.runner(namespace, holder);
        let pod = self.cluster.stores.pod(namespace, holder);
        match (runner, pod.as_ref().map(|pod| &pod.facts)) {
            (None, None) => Held::Free,
            (_, Some(pod)) if pod.stopped() || pod.deleting.is_some() => Held::Ending,
            (Some(runner), None) if self.removals.is_leaving(&runner) => Held::Ending,
            _ => Held::Other,
        }
    }
}

/// What a claim is called that is made for a runner: as a StatefulSet would name it.
fn own_name(template: &PersistentVolumeClaim, runner: &str) -> String {
    format!("{}-{runner}", template.name_any())
}

/// Changes the metadata of a claim, unless it is gone or another one by now, which is answered with false.
async fn change(claims: &Api<PersistentVolumeClaim>, name: &str, patch: &Value) -> Result<bool, kube::Error> {
    precondition_held(claims.patch_metadata(name, &PatchParams::default(), &Patch::Merge(patch)).await)
}

/// Deletes a claim as it was seen. False when it is gone or was changed.
async fn delete(cluster: &Cluster, claim: &PersistentVolumeClaim) -> Result<bool, kube::Error> {
    let claims: Api<PersistentVolumeClaim> = cluster.beside(claim);
    let as_seen = DeleteParams {
        preconditions: Some(Preconditions { uid: claim.uid(), resource_version: claim.resource_version() }),
        ..DeleteParams::default()
    };
    precondition_held(claims.delete(&claim.name_any(), &as_seen).await)
}

/// Who has a claim or had it last, as it says.
fn holder(claim: &ObjectMeta) -> Option<&String> {
    claim.labels.as_ref()?.get(label::RUNNER_STATEFUL_SET_NAME)
}
