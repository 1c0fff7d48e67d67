//! Templates: what a set makes, and whether a runner or set was made from a given template.

use std::collections::BTreeMap;

use kube::ResourceExt;
use kube::core::ObjectMeta;
use pacer_api::names::{annotation, finalizer, label};
use pacer_api::{EmbeddedMetadata, Runner, RunnerDeployment, RunnerReplicaSet, RunnerReplicaSetSpec, RunnerTemplate};

/// The template of a deployment's newest set: the deployment's own with the operator's common labels appended (ARC 1.10).
#[must_use]
pub fn of_deployment(deployment: &RunnerDeployment, common_labels: &[String]) -> RunnerTemplate {
    let mut template = deployment.spec.template.clone();
    if !common_labels.is_empty() {
        template.spec.config.labels.get_or_insert_default().extend(common_labels.iter().cloned());
    }
    template
}

/// The set that a deployment wants for this template.
#[must_use]
pub fn replica_set(deployment: &RunnerDeployment, template: &RunnerTemplate, replicas: u32) -> RunnerReplicaSet {
    let revision = template.revision();
    let mut template = template.clone();
    let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
    labels.insert(label::RUNNER_TEMPLATE_HASH.to_owned(), revision.clone());
    labels.insert(label::RUNNER_DEPLOYMENT_NAME.to_owned(), deployment.name_any());
    let labels = labels.clone();
    let mut selector = deployment.spec.selector.clone().unwrap_or_default();
    let selected = selector.match_labels.get_or_insert_default();
    if selected.is_empty() {
        selected.insert(label::RUNNER_DEPLOYMENT_NAME.to_owned(), deployment.name_any());
    }
    selected.insert(label::RUNNER_TEMPLATE_HASH.to_owned(), revision.clone());
    RunnerReplicaSet {
        metadata: ObjectMeta {
            name: Some(pacer_core::name::replica_set(&deployment.name_any(), &revision)),
            namespace: deployment.namespace(),
            labels: Some(labels),
            annotations: deployment
                .annotations()
                .get(annotation::POLICIES)
                .map(|set| BTreeMap::from([(annotation::POLICIES.to_owned(), set.clone())])),
            owner_references: kube::Resource::controller_owner_ref(deployment, &()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: RunnerReplicaSetSpec {
            replicas: Some(i32::try_from(replicas).unwrap_or(i32::MAX)),
            effective_time: deployment.spec.effective_time.clone(),
            selector: Some(selector),
            template,
        },
        status: None,
    }
}

/// Revision of a set: its label, or what the label would be (a set that a user made has none).
#[must_use]
pub fn revision(set: &RunnerReplicaSet) -> String {
    set.labels().get(label::RUNNER_TEMPLATE_HASH).cloned().unwrap_or_else(|| set.spec.template.revision())
}

/// Whether a runner is what its set would make now: by its revision label, or, for runners that ARC made, by the meaning of its spec.
#[must_use]
pub fn is_current(runner: &Runner, set: &RunnerReplicaSet) -> bool {
    let revision = revision(set);
    if runner.labels().get(label::RUNNER_TEMPLATE_HASH) == Some(&revision) {
        return true;
    }
    let spec_of = |spec: &pacer_api::RunnerSpec| RunnerTemplate { metadata: None, spec: spec.clone() }.meaning();
    spec_of(&runner.spec) == spec_of(&set.spec.template.spec)
}

/// A Runner of a set.
#[must_use]
pub fn runner(set: &RunnerReplicaSet, name: String) -> Runner {
    let template = &set.spec.template;
    let EmbeddedMetadata { annotations, finalizers, labels, .. } = template.metadata.clone().unwrap_or_default();
    let mut labels = labels.unwrap_or_default();
    labels.insert(label::RUNNER_TEMPLATE_HASH.to_owned(), revision(set));
    let mut finalizers = finalizers.unwrap_or_default();
    // From the start, so that no second write is needed and there is no moment without it.
    if !finalizers.iter().any(|name| name == finalizer::RUNNER) {
        finalizers.push(finalizer::RUNNER.to_owned());
    }
    Runner {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: set.namespace(),
            labels: Some(labels),
            annotations,
            finalizers: Some(finalizers),
            owner_references: kube::Resource::controller_owner_ref(set, &()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}
