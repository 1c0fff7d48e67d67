//! What becomes of one object.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::{Resource, ResourceExt};
use pacer_api::autoscaler::ScaleTargetKind;
use pacer_api::names::{annotation, label};
use pacer_api::{HorizontalRunnerAutoscaler, Runner, RunnerDeployment, RunnerReplicaSet, RunnerSet};
use pacer_cluster::owner::controller;
use pacer_operator::arc::finalizer;
use pacer_operator::target::Target;
use pacer_operator::{autoscaler, deployment};
use serde::Serialize;

use super::reading::Objects;

/// What becomes of one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Fate {
    /// Kind of the object: a kind of ARC's API, StatefulSet or Pod.
    pub(super) kind: String,
    /// Namespace of the object; empty when its metadata has none.
    pub(super) namespace: String,
    /// Name of the object within its namespace.
    pub(super) name: String,
    /// What becomes of the object, in a sentence.
    pub(super) outcome: String,
}

impl Fate {
    fn new<K: Resource<DynamicType = ()>>(object: &K, outcome: impl Into<String>) -> Self {
        Self {
            kind: K::kind(&()).into_owned(),
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
            outcome: outcome.into(),
        }
    }

    /// Namespace and name.
    pub(super) fn place(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// What becomes of all of them, by kind from the top down.
pub(super) fn all(objects: &Objects, common_labels: &[String], now: Timestamp) -> Vec<Fate> {
    let world = World::new(objects, common_labels);
    let mut fates: Vec<Fate> = Vec::new();
    fates.extend(objects.autoscalers.iter().map(|autoscaler| Fate::new(autoscaler, world.autoscaler(autoscaler, now))));
    fates.extend(objects.deployments.iter().map(|deployment| Fate::new(deployment, world.deployment(deployment))));
    fates.extend(objects.sets.iter().map(|set| Fate::new(set, world.set(set))));
    fates.extend(objects.runners.iter().map(|runner| Fate::new(runner, world.runner(runner))));
    fates.extend(objects.runner_sets.iter().map(|set| Fate::new(set, world.runner_set(set))));
    let of_runner_sets = |set: &&StatefulSet| controller::<RunnerSet>(*set).is_some();
    fates.extend(objects.stateful_sets.iter().filter(of_runner_sets).map(|set| Fate::new(set, STATEFUL_SET)));
    fates.extend(objects.pods.iter().map(|pod| Fate::new(pod, world.pod(pod))));
    fates
}

const STATEFUL_SET: &str =
    "made by ARC for a runner of a RunnerSet: deleted as its pod is handed over to a Runner; the pod runs on";

/// The objects, and how they belong together.
struct World<'a> {
    common_labels: &'a [String],
    deployments: HashMap<(String, String), &'a RunnerDeployment>,
    runner_sets: HashMap<(String, String), &'a RunnerSet>,
    sets: HashMap<String, &'a RunnerReplicaSet>,
    runners: HashMap<String, &'a Runner>,
    pods: HashMap<String, &'a Pod>,
    of_stateful_sets: Vec<&'a Pod>,
}

/// Objects by UID; an object without one is left out.
fn by_uid<K: Resource>(objects: &[K]) -> HashMap<String, &K> {
    objects.iter().filter_map(|object| Some((object.uid()?, object))).collect()
}

/// Namespace and name.
fn place<K: Resource>(object: &K) -> (String, String) {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// What the operator says about a target for whose runners there is nowhere to register; nothing of others.
fn refusal(target: &Target) -> String {
    target.config().scope().err().map_or_else(String::new, |error| format!("; its runners are refused: {error}"))
}

fn is_leaving<K: Resource>(object: &K) -> bool {
    object.meta().deletion_timestamp.is_some()
}

impl<'a> World<'a> {
    fn new(objects: &'a Objects, common_labels: &'a [String]) -> Self {
        let named = |deployment: &'a RunnerDeployment| (place(deployment), deployment);
        let named_set = |set: &'a RunnerSet| (place(set), set);
        let of_runner = |pod: &'a Pod| controller::<Runner>(pod).map(|owner| (owner.uid.to_owned(), pod));
        Self {
            common_labels,
            deployments: objects.deployments.iter().map(named).collect(),
            runner_sets: objects.runner_sets.iter().map(named_set).collect(),
            sets: by_uid(&objects.sets),
            runners: by_uid(&objects.runners),
            pods: objects.pods.iter().filter_map(of_runner).collect(),
            of_stateful_sets: objects.pods.iter().filter(|pod| controller::<StatefulSet>(*pod).is_some()).collect(),
        }
    }

    fn sets_of(&self, deployment: &RunnerDeployment) -> Vec<&'a RunnerReplicaSet> {
        let uid = deployment.metadata.uid.as_deref();
        let mut sets: Vec<&RunnerReplicaSet> = self
            .sets
            .values()
            .filter(|set| controller::<RunnerDeployment>(**set).is_some_and(|owner| Some(owner.uid) == uid))
            .copied()
            .collect();
        sets.sort_by_key(|set| (set.metadata.creation_timestamp.clone().map(|time| time.0), set.name_any()));
        sets
    }

    /// The set that the deployment's template is recognised in.
    fn newest(&self, deployment: &RunnerDeployment) -> Option<&'a RunnerReplicaSet> {
        let template = Target::Deployment(Arc::new(deployment.clone())).template(self.common_labels);
        let sets = self.sets_of(deployment);
        deployment::newest(&sets, &template).copied()
    }

    fn runner_set(&self, set: &RunnerSet) -> String {
        if is_leaving(set) {
            return "its deletion goes on: runners finish their jobs first".to_owned();
        }
        let named = |pod: &Pod| pod.labels().get(label::RUNNER_SET_NAME) == set.metadata.name.as_ref();
        let pods =
            self.of_stateful_sets.iter().filter(|pod| named(pod) && pod.metadata.namespace == set.metadata.namespace).count();
        let refusal = refusal(&Target::Set(Arc::new(set.clone())));
        format!("stays, and takes over the {pods} pods of its StatefulSets; none is restarted{refusal}")
    }

    fn runners_of(&self, set: &RunnerReplicaSet) -> usize {
        let uid = set.metadata.uid.as_deref();
        self.runners
            .values()
            .filter(|runner| controller::<RunnerReplicaSet>(**runner).is_some_and(|owner| Some(owner.uid) == uid))
            .count()
    }

    fn deployment(&self, deployment: &RunnerDeployment) -> String {
        if is_leaving(deployment) {
            return "its deletion goes on: runners finish their jobs first".to_owned();
        }
        let sets = self.sets_of(deployment);
        let outcome = match self.newest(deployment) {
            Some(newest) if sets.len() == 1 => format!("stays as it is, with its set {}; nothing is rolled out", newest.name_any()),
            Some(newest) => format!(
                "stays, and its rollout to {} goes on: the runners of {} older sets are exchanged, busy ones finish",
                newest.name_any(),
                sets.len().saturating_sub(1)
            ),
            None if sets.is_empty() => "stays, and gets its first set".to_owned(),
            None => "stays, and rolls out: none of its sets has its template; busy runners finish. With ARC's --common-runner-labels, give them \
                     to this command too"
                .to_owned(),
        };
        outcome + &refusal(&Target::Deployment(Arc::new(deployment.clone())))
    }

    fn set(&self, set: &RunnerReplicaSet) -> String {
        let count = self.runners_of(set);
        if is_leaving(set) {
            return "its deletion goes on: its runners finish their jobs first".to_owned();
        }
        let Some(owner) = controller::<RunnerDeployment>(set) else {
            return format!("stays as it is, with its {count} runners, which belong to it by ownerReference from now on");
        };
        let owner = self.deployments.get(&(set.namespace().unwrap_or_default(), owner.name.to_owned()));
        match owner {
            None => format!("is deleted with its {count} runners, which finish their jobs first: its RunnerDeployment is gone"),
            Some(deployment) if self.newest(deployment).is_some_and(|newest| newest.uid() == set.uid()) => {
                format!("adopted by the meaning of its template, with its {count} runners")
            }
            Some(_) => format!("emptied as newer runners come online ({count} runners), then deleted"),
        }
    }

    fn runner(&self, runner: &Runner) -> String {
        let pod = runner.metadata.uid.as_ref().and_then(|uid| self.pods.get(uid));
        let annotations = runner.annotations();
        let ended = pod.is_some_and(|pod| {
            matches!(pod.status.as_ref().and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed"))
        });
        let stand_alone = runner.owner_references().iter().all(|owner| owner.controller != Some(true));
        let mut outcome = if is_leaving(runner) {
            "its removal goes on: unregistered at GitHub first, after its job".to_owned()
        } else if annotations.contains_key(annotation::UNREGISTRATION_COMPLETE) {
            "ARC had unregistered it: it is removed or replaced".to_owned()
        } else if ended && stand_alone {
            "its pod is over and is made again under the same name".to_owned()
        } else if ended {
            "its pod is over: it is removed, and replaced if it is wanted".to_owned()
        } else if pod.is_none() {
            match runner.spec.config.scope() {
                Ok(_) => "gets its pod".to_owned(),
                Err(error) => format!("gets no pod: {error}"),
            }
        } else {
            "stays, with its pod".to_owned()
        };
        if annotations.contains_key(annotation::UNREGISTRATION_REQUEST)
            && !annotations.contains_key(annotation::UNREGISTRATION_COMPLETE)
        {
            outcome.push_str("; ARC had chosen it for scale-down: it counts again, and idle ones go first");
        }
        if stand_alone && !ended {
            outcome.push_str("; when its pod ends, it is made again under the same name (ARC left it ended)");
        }
        outcome
    }

    fn pod(&self, pod: &Pod) -> String {
        if controller::<StatefulSet>(pod).is_some() {
            return "runs on as it is, as the pod of a Runner of its RunnerSet; its claims go to the next runner".to_owned();
        }
        let held = finalizer::is_held(pod);
        match controller::<Runner>(pod) {
            None => "left alone: no Runner owns it".to_owned(),
            Some(owner) if self.runners.contains_key(owner.uid) && held => {
                "runs on as it is; ARC's finalizers are taken away when its runner is done".to_owned()
            }
            Some(owner) if self.runners.contains_key(owner.uid) => "runs on as it is".to_owned(),
            Some(_) if held => {
                "its Runner is gone: unregistered at GitHub after its job, then ARC's finalizers are taken away".to_owned()
            }
            Some(_) => "left to the garbage collector: its Runner is gone".to_owned(),
        }
    }

    fn autoscaler(&self, autoscaler: &HorizontalRunnerAutoscaler, now: Timestamp) -> String {
        let spec = &autoscaler.spec;
        let namespace = autoscaler.namespace().unwrap_or_default();
        let Some(target) = spec.target_name() else { return "does nothing: spec.scaleTargetRef.name is not set".to_owned() };
        if spec.min_replicas.is_none() || spec.max_replicas.is_none() {
            return "does nothing until spec.minReplicas and spec.maxReplicas are set, as with ARC".to_owned();
        }
        let key = (namespace.clone(), target.to_owned());
        let found = match spec.target_kind() {
            ScaleTargetKind::RunnerSet => self.runner_sets.get(&key).map(|set| Target::Set(Arc::new((*set).clone()))),
            ScaleTargetKind::RunnerDeployment => {
                self.deployments.get(&key).map(|deployment| Target::Deployment(Arc::new((*deployment).clone())))
            }
        };
        if let Some(Err(problem)) = found.map(|found| autoscaler::check(autoscaler, found, now)) {
            return format!("does nothing, and {target} keeps its number: {problem}");
        }
        let mut parts = match spec.target_kind() {
            ScaleTargetKind::RunnerSet => vec![format!("goes on scaling RunnerSet {target}")],
            ScaleTargetKind::RunnerDeployment if self.deployments.contains_key(&(namespace, target.to_owned())) => {
                vec![format!("goes on scaling {target}")]
            }
            ScaleTargetKind::RunnerDeployment => vec![format!("waits for RunnerDeployment {target}, which does not exist")],
        };
        let reserved = spec.reserved(now);
        if reserved > 0 {
            parts.push(format!(
                "{reserved} runners that ARC reserved in its spec count until their jobs are heard of or they expire; nothing is written there"
            ));
        }
        let triggers = spec.scale_up_triggers.as_deref().unwrap_or_default();
        if !triggers.is_empty() && spec.workflow_job_trigger().is_none() {
            parts.push("its triggers have no effect, as with ARC: exactly one entry with githubEvent.workflowJob has".to_owned());
        } else if !triggers.is_empty() {
            parts.push("send its webhooks to this operator".to_owned());
        }
        parts.join("; ")
    }
}

#[cfg(test)]
#[path = "fate/tests.rs"]
mod tests;
