//! The RunnerReplicaSet of a target.

use std::collections::BTreeMap;

use kube::core::ObjectMeta;
use pacer_api::names::{annotation, label};
use pacer_api::{RunnerReplicaSet, RunnerReplicaSetSpec, RunnerTemplate};

use crate::target::Target;

/// The RunnerReplicaSet that a target wants for this template.
#[must_use]
pub fn replica_set(target: &Target, template: &RunnerTemplate, replicas: u32) -> RunnerReplicaSet {
    let revision = template.revision();
    let mut template = template.clone();
    let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
    labels.insert(label::RUNNER_TEMPLATE_HASH.to_owned(), revision.clone());
    labels.insert(target.name_label().to_owned(), target.name().to_owned());
    let labels = labels.clone();
    let mut selector = target.selector().cloned().unwrap_or_default();
    let selected = selector.match_labels.get_or_insert_default();
    if selected.is_empty() {
        selected.insert(target.name_label().to_owned(), target.name().to_owned());
    }
    selected.insert(label::RUNNER_TEMPLATE_HASH.to_owned(), revision.clone());
    RunnerReplicaSet {
        metadata: ObjectMeta {
            name: Some(pacer_core::name::replica_set(target.name(), &revision)),
            namespace: Some(target.namespace().to_owned()),
            labels: Some(labels),
            annotations: target.policies().map(|set| BTreeMap::from([(annotation::POLICIES.to_owned(), set.clone())])),
            owner_references: target.owner_ref().map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: RunnerReplicaSetSpec {
            replicas: Some(i32::try_from(replicas).unwrap_or(i32::MAX)),
            effective_time: target.effective_time().cloned(),
            selector: Some(selector),
            template,
        },
        status: None,
    }
}
