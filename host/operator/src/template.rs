//! Templates: what a set makes, and whether a runner or set was made from a given template.

use std::sync::Arc;

use kube::ResourceExt;
use kube::core::ObjectMeta;
use pacer_api::names::{finalizer, label};
use pacer_api::{EmbeddedMetadata, Runner, RunnerPodSpec, RunnerReplicaSet, RunnerSetSpec, RunnerSpec, RunnerTemplate};

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
