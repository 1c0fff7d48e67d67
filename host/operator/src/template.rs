//! Templates: what a set makes, and whether a runner or set was made from a given template.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::ResourceExt;
use kube::core::ObjectMeta;
use pacer_api::names::{annotation, finalizer, label};
use pacer_api::{
    EmbeddedMetadata, Runner, RunnerPodSpec, RunnerReplicaSet, RunnerReplicaSetSpec, RunnerSetSpec, RunnerSpec, RunnerTemplate,
};

use crate::target::Target;

/// What the runners of a RunnerSet are made from: all that its pod template says, and its labels and annotations on the Runners as well.
#[must_use]
pub fn of_runner_set(set: &RunnerSetSpec) -> RunnerTemplate {
    let stateful = &set.stateful;
    let metadata = stateful.template.metadata.clone().unwrap_or_default();
    let mut pod = RunnerPodSpec::from(stateful.template.spec.clone().unwrap_or_default());
    let filled = |name: &Option<String>| name.clone().filter(|name| !name.is_empty());
    // A StatefulSet's: the name under which other pods find this one, by way of a headless service.
    pod.settings.subdomain = filled(&pod.settings.subdomain).or_else(|| filled(&stateful.service_name));
    pod.service_account_name = filled(&set.service_account_name).or_else(|| filled(&pod.service_account_name));
    pod.work_volume_claim_template.clone_from(&set.work_volume_claim_template);
    RunnerTemplate {
        metadata: Some(EmbeddedMetadata {
            labels: metadata.labels,
            annotations: metadata.annotations,
            ..EmbeddedMetadata::default()
        }),
        spec: RunnerSpec {
            config: Arc::new(set.config.clone()),
            pod: Arc::new(pod),
            volume_claim_templates: stateful.volume_claim_templates.clone().filter(|claims| !claims.is_empty()),
        },
    }
}

/// The set that a target wants for this template.
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

/// A Runner of a set. `index` is the number at the end of its name if the set is a RunnerSet's.
#[must_use]
pub fn runner(set: &RunnerReplicaSet, name: String, index: Option<u32>) -> Runner {
    let template = &set.spec.template;
    let EmbeddedMetadata { annotations, finalizers, labels, .. } = template.metadata.clone().unwrap_or_default();
    let mut labels = labels.unwrap_or_default();
    labels.insert(label::RUNNER_TEMPLATE_HASH.to_owned(), revision(set));
    if let Some(index) = index {
        labels.insert(label::STATEFUL_POD_NAME.to_owned(), name.clone());
        labels.insert(label::STATEFUL_POD_INDEX.to_owned(), index.to_string());
    }
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
