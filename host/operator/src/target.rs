//! What a HorizontalRunnerAutoscaler can scale: a RunnerDeployment or a RunnerSet.
//!
//! Both own RunnerReplicaSets, one per template, and differ in nothing but where they keep their fields, in what their objects are called,
//! and in the claims of a RunnerSet. Everything that is decided about one is decided about the other by the same code.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, OwnerReference, Time};
use kube::api::{ObjectMeta, Patch, PatchParams};
use kube::{Api, Client, Resource};
use pacer_api::autoscaler::ScaleTargetKind;
use pacer_api::names::{annotation, label};
use pacer_api::{
    HorizontalRunnerAutoscaler, RunnerConfig, RunnerDeployment, RunnerDeploymentSpec, RunnerReplicaSet, RunnerSet, RunnerTemplate,
};
use pacer_cluster::answer::ignore_not_found;
use pacer_cluster::object::{MissingMetadata, Uid};
use pacer_cluster::owner::{Controller, controller};
use pacer_core::target::{Platform, distinct};
use pacer_policyset::receipts::Owner;
use serde_json::Value;

use crate::template;

/// A RunnerDeployment or a RunnerSet.
#[derive(Clone, Debug)]
pub enum Target {
    /// A RunnerDeployment.
    Deployment(Arc<RunnerDeployment>),
    /// A RunnerSet.
    Set(Arc<RunnerSet>),
}

/// Names a [`Target`], whether it exists or not.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TargetRef {
    /// Its kind; objects of both kinds may have the same name.
    pub kind: ScaleTargetKind,
    /// Namespace of the target, and of each autoscaler or RunnerReplicaSet that refers to it.
    pub namespace: String,
    /// Name of the RunnerDeployment or RunnerSet.
    pub name: String,
}

impl TargetRef {
    /// What an autoscaler names; none when it names nothing.
    #[must_use]
    pub fn of(autoscaler: &HorizontalRunnerAutoscaler) -> Option<Self> {
        let name = autoscaler.spec.target_name()?.to_owned();
        let namespace = autoscaler.metadata.namespace.clone().unwrap_or_default();
        Some(Self { kind: autoscaler.spec.target_kind(), namespace, name })
    }
}

impl fmt::Display for TargetRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind.as_str(), self.namespace, self.name)
    }
}

/// The target that owns a RunnerReplicaSet, whether that exists or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwningTarget {
    /// UID of the target, from the owner reference.
    pub uid: Uid,
    /// Which one it is.
    pub target: TargetRef,
}

impl TryFrom<&Target> for Owner {
    type Error = MissingMetadata;

    fn try_from(target: &Target) -> Result<Self, MissingMetadata> {
        match target {
            Target::Deployment(deployment) => Self::of(deployment.as_ref()),
            Target::Set(set) => Self::of(set.as_ref()),
        }
    }
}

/// What Events about the runners of a RunnerReplicaSet are about: the pool that people know, the set where it stands alone.
#[must_use]
pub fn pool_reference(set: &RunnerReplicaSet) -> ObjectReference {
    let Some(owner) = owner_of(set) else { return set.object_ref(&()) };
    ObjectReference {
        api_version: Some(pacer_api::names::API_VERSION.to_owned()),
        kind: Some(owner.target.kind.as_str().to_owned()),
        namespace: Some(owner.target.namespace),
        name: Some(owner.target.name),
        uid: Some(owner.uid.to_string()),
        ..ObjectReference::default()
    }
}

/// The target that owns a RunnerReplicaSet; none when that stands alone.
#[must_use]
pub fn owner_of(set: &RunnerReplicaSet) -> Option<OwningTarget> {
    let of_kind = |kind, owner: Option<Controller<'_>>| {
        let owner = owner?;
        let namespace = set.metadata.namespace.clone().unwrap_or_default();
        let target = TargetRef { kind, namespace, name: owner.name.to_owned() };
        Some(OwningTarget { uid: Uid::new(owner.uid)?, target })
    };
    of_kind(ScaleTargetKind::RunnerDeployment, controller::<RunnerDeployment>(set))
        .or_else(|| of_kind(ScaleTargetKind::RunnerSet, controller::<RunnerSet>(set)))
}

impl Target {
    /// Kind of the target, as `spec.scaleTargetRef.kind` of an autoscaler names it.
    #[must_use]
    pub fn kind(&self) -> ScaleTargetKind {
        match self {
            Self::Deployment(_) => ScaleTargetKind::RunnerDeployment,
            Self::Set(_) => ScaleTargetKind::RunnerSet,
        }
    }

    /// Its metadata.
    #[must_use]
    pub fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Deployment(deployment) => &deployment.metadata,
            Self::Set(set) => &set.metadata,
        }
    }

    /// Name of the target; empty when its metadata has none.
    #[must_use]
    pub fn name(&self) -> &str {
        self.meta().name.as_deref().unwrap_or_default()
    }

    /// Namespace of the target; empty when its metadata has none.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.meta().namespace.as_deref().unwrap_or_default()
    }

    /// Its UID; none when it was not read from an API server.
    #[must_use]
    pub fn uid(&self) -> Option<Uid> {
        Uid::new(self.meta().uid.as_deref()?)
    }

    /// How it is named.
    #[must_use]
    pub fn reference(&self) -> TargetRef {
        TargetRef { kind: self.kind(), namespace: self.namespace().to_owned(), name: self.name().to_owned() }
    }

    /// Whether its deletion has been asked for.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.meta().deletion_timestamp.is_some()
    }

    /// For events about it.
    #[must_use]
    pub fn object_ref(&self) -> ObjectReference {
        match self {
            Self::Deployment(deployment) => deployment.object_ref(&()),
            Self::Set(set) => set.object_ref(&()),
        }
    }

    /// For what it owns.
    #[must_use]
    pub fn owner_ref(&self) -> Option<OwnerReference> {
        match self {
            Self::Deployment(deployment) => deployment.controller_owner_ref(&()),
            Self::Set(set) => set.controller_owner_ref(&()),
        }
    }

    /// What GitHub and the runner image are told.
    #[must_use]
    pub fn config(&self) -> &RunnerConfig {
        match self {
            Self::Deployment(deployment) => &deployment.spec.template.spec.config,
            Self::Set(set) => &set.spec.config,
        }
    }

    /// Labels that its runners are registered with, the operator's common ones included; GitHub's own not.
    #[must_use]
    pub fn labels<'a>(&'a self, common_labels: &'a [String]) -> Vec<&'a str> {
        distinct(self.config().labels().iter().chain(common_labels).map(String::as_str))
    }

    /// The same, for those who do not know the operator's flags: its RunnerReplicaSet, which is among these, has the common ones in its template. One
    /// that was the last of its own, and was taken away, is named until there is a set of the new template.
    #[must_use]
    pub fn labels_in<'a>(&'a self, sets: impl IntoIterator<Item = &'a RunnerReplicaSet>) -> Vec<&'a str> {
        let own = self.config().labels();
        // Those of another revision were made with labels that may be gone, and so was its own where the template has just been changed.
        let is_its_own = |set: &&RunnerReplicaSet| {
            self.revision().is_some_and(|revision| template::revision(set) == revision)
                && owner_of(set).is_some_and(|owner| Some(owner.uid) == self.uid())
        };
        let told = sets.into_iter().find(is_its_own).map(|set| set.spec.template.spec.config.labels());
        let told = told.filter(|told| told.starts_with(own)).unwrap_or(own);
        distinct(told.iter().map(String::as_str))
    }

    /// The platform whose labels its runners have.
    #[must_use]
    pub fn platform(&self) -> Platform {
        match self {
            Self::Deployment(deployment) => deployment.spec.template.platform(),
            Self::Set(set) => set.spec.platform(),
        }
    }

    /// Number of runners asked for.
    #[must_use]
    pub fn replicas(&self) -> u32 {
        match self {
            Self::Deployment(deployment) => deployment.spec.replicas_or_default(),
            Self::Set(set) => set.spec.replicas_or_default(),
        }
    }

    /// When that number was set.
    #[must_use]
    pub fn effective_time(&self) -> Option<&Time> {
        match self {
            Self::Deployment(deployment) => deployment.spec.effective_time.as_ref(),
            Self::Set(set) => set.spec.effective_time.as_ref(),
        }
    }

    /// How many runners more than `replicas` a rollout may add.
    #[must_use]
    pub fn max_surge(&self, replicas: u32) -> u32 {
        match self {
            Self::Deployment(deployment) => deployment.spec.max_surge_or_default(replicas),
            Self::Set(_) => RunnerDeploymentSpec::default().max_surge_or_default(replicas),
        }
    }

    /// The selector that the user gave.
    #[must_use]
    pub fn selector(&self) -> Option<&LabelSelector> {
        match self {
            Self::Deployment(deployment) => deployment.spec.selector.as_ref(),
            Self::Set(set) => Some(&set.spec.stateful.selector),
        }
    }

    /// Label of everything that is made for it; the value is its name.
    #[must_use]
    pub fn name_label(&self) -> &'static str {
        match self {
            Self::Deployment(_) => label::RUNNER_DEPLOYMENT_NAME,
            Self::Set(_) => label::RUNNER_SET_NAME,
        }
    }

    /// Revision of its newest set, as it last said.
    #[must_use]
    pub fn revision(&self) -> Option<&str> {
        match self {
            Self::Deployment(deployment) => deployment.status.as_ref()?.revision.as_deref(),
            Self::Set(set) => set.status.as_ref()?.revision.as_deref(),
        }
    }

    /// What its status says.
    #[must_use]
    pub fn conditions(&self) -> &[Condition] {
        match self {
            Self::Deployment(deployment) => deployment.status.as_ref().map(|status| status.conditions.as_slice()),
            Self::Set(set) => set.status.as_ref().map(|status| status.conditions.as_slice()),
        }
        .unwrap_or_default()
    }

    /// Name of the policy set that it asks for.
    #[must_use]
    pub fn policies(&self) -> Option<&String> {
        self.meta().annotations.as_ref()?.get(annotation::POLICIES)
    }

    /// What its runners are made from now, with the operator's common labels (ARC 1.10; ARC forgets them in RunnerSets).
    #[must_use]
    pub fn template(&self, common_labels: &[String]) -> RunnerTemplate {
        let mut template = match self {
            Self::Deployment(deployment) => deployment.spec.template.clone(),
            Self::Set(set) => template::of_runner_set(&set.spec),
        };
        if !common_labels.is_empty() {
            Arc::make_mut(&mut template.spec.config).labels.get_or_insert_default().extend(common_labels.iter().cloned());
        }
        template
    }

    /// Changes its spec; one that is gone by now is left alone.
    ///
    /// # Errors
    ///
    /// When the API server refuses.
    pub async fn patch(&self, client: &Client, patch: &Value) -> Result<(), kube::Error> {
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        match self {
            Self::Deployment(_) => {
                let api: Api<RunnerDeployment> = Api::namespaced(client.clone(), self.namespace());
                ignore_not_found(api.patch(self.name(), &params, &patch).await)
            }
            Self::Set(_) => {
                let api: Api<RunnerSet> = Api::namespaced(client.clone(), self.namespace());
                ignore_not_found(api.patch(self.name(), &params, &patch).await)
            }
        }
    }

    /// Changes its status; one that is gone by now is left alone.
    ///
    /// # Errors
    ///
    /// When the API server refuses.
    pub async fn patch_status(&self, client: &Client, patch: &Patch<Value>) -> Result<(), kube::Error> {
        let params = PatchParams::default();
        match self {
            Self::Deployment(_) => {
                let api: Api<RunnerDeployment> = Api::namespaced(client.clone(), self.namespace());
                ignore_not_found(api.patch_status(self.name(), &params, patch).await)
            }
            Self::Set(_) => {
                let api: Api<RunnerSet> = Api::namespaced(client.clone(), self.namespace());
                ignore_not_found(api.patch_status(self.name(), &params, patch).await)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn target(labels: &[&str], revision: Option<&str>) -> Target {
        let deployment = json!({
            "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "RunnerDeployment",
            "metadata": {"name": "web", "namespace": "ci", "uid": "1"},
            "spec": {"template": {"spec": {"repository": "acme/app", "labels": labels}}},
            "status": {"revision": revision},
        });
        Target::Deployment(Arc::new(serde_json::from_value(deployment).unwrap()))
    }

    fn set(owner: &str, revision: &str, labels: &[&str]) -> RunnerReplicaSet {
        let owner = json!({
            "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "RunnerDeployment",
            "name": "web", "uid": owner, "controller": true,
        });
        let hash = label::RUNNER_TEMPLATE_HASH;
        let set = json!({
            "metadata": {"name": "web-1", "namespace": "ci", "labels": {hash: revision}, "ownerReferences": [owner]},
            "spec": {"selector": {}, "template": {"spec": {"repository": "acme/app", "labels": labels}}},
        });
        serde_json::from_value(set).unwrap()
    }

    #[test]
    fn common_labels_are_among_those_of_the_runners() {
        let common = ["common".to_owned(), "WEB".to_owned()];
        assert_eq!(target(&["web"], None).labels(&common), ["web", "common"]);
        assert_eq!(target(&[], None).labels(&[]), [""; 0]);
    }

    #[test]
    fn common_labels_are_known_from_the_set_of_the_present_template() {
        let sets = [
            set("2", "now", &["web", "of-another-target"]),
            set("1", "before", &["web", "old", "common"]),
            set("1", "now", &["web", "Web", "common"]),
        ];
        for (what, labels, revision, expected) in [
            ("as published", &["web"][..], Some("now"), &["web", "common"][..]),
            ("no set is known", &["web"], Some("next"), &["web"]),
            ("nothing said yet", &["web"], None, &["web"]),
            ("changed a moment ago", &["gpu"], Some("now"), &["gpu"]),
        ] {
            assert_eq!(target(labels, revision).labels_in(&sets), expected, "{what}");
        }
    }
}
