//! What the watches know: one store per kind, shared by all controllers.

use std::collections::HashSet;
use std::sync::{Arc, Weak};

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::core::ObjectMeta;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Resource, ResourceExt};
use pacer_api::autoscaler::ScaleTargetKind;
use pacer_api::names::{annotation, label};
use pacer_api::{
    HorizontalRunnerAutoscaler, JobLedger, Runner, RunnerConfig, RunnerDeployment, RunnerPodSpec, RunnerReplicaSet, RunnerSet,
    RunnerSpec,
};
use pacer_cluster::index::Index;
use pacer_cluster::object::Uid;
use pacer_cluster::owner::controller;
use pacer_cluster::watch::{Filled, trim};
use pacer_core::scope::Scope;
use pacer_demand::receiver;

use crate::pod::{GeneratedAccess, SharedAccount, is_registration_only};
use crate::runner_pod::RunnerPod;
use crate::target::{Target, TargetRef, owner_of};

/// One store per watched kind, and indexes of its objects.
#[derive(Clone)]
pub struct Stores {
    /// Runners; parts of specs that many of them have in common are kept once.
    pub runners: Store<Runner>,
    /// Pods of runners.
    pub pods: Store<RunnerPod>,
    /// RunnerReplicaSets, owned by a target or not.
    pub sets: Store<RunnerReplicaSet>,
    /// RunnerDeployments.
    pub deployments: Store<RunnerDeployment>,
    /// RunnerSets.
    pub runner_sets: Store<RunnerSet>,
    /// Claims of RunnerSets, without the parts nobody reads.
    pub claims: Store<PersistentVolumeClaim>,
    /// HorizontalRunnerAutoscalers, whether their targets exist or not.
    pub autoscalers: Store<HorizontalRunnerAutoscaler>,
    /// Jobs of autoscalers.
    pub job_ledgers: Store<JobLedger>,
    /// Runners by what others know of them.
    pub(crate) runners_by: Index<Runner, RunnerKey>,
    /// Pods by the RunnerSet that they are of.
    pub(crate) pods_by: Index<RunnerPod, RunnerSetKey>,
    /// Sets by what owns them.
    pub(crate) sets_by: Index<RunnerReplicaSet, SetKey>,
    /// Deployments by their namespace.
    pub(crate) deployments_by: Index<RunnerDeployment, String>,
    /// RunnerSets by their namespace.
    pub(crate) runner_sets_by: Index<RunnerSet, String>,
    /// Claims by the RunnerSet that they are of.
    pub(crate) claims_by: Index<PersistentVolumeClaim, RunnerSetKey>,
    /// Jobs by the UID of their autoscaler.
    pub job_ledgers_by: Index<JobLedger, Uid>,
    /// Autoscalers by their target.
    pub(crate) autoscalers_by: Index<HorizontalRunnerAutoscaler, TargetRef>,
    /// Whether each of them has been filled.
    pub(crate) filled: Filled,
}

/// What runners are looked up by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RunnerKey {
    /// UID of what owns it.
    Owner(Uid),
    /// Where it registers.
    Scope(Scope),
    /// Its name, whatever its namespace.
    Name(String),
    /// Namespace of the Runner object.
    Namespace(String),
}

/// What RunnerReplicaSets are looked up by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SetKey {
    /// UID of the target that owns it.
    Owner(Uid),
    /// Namespace of one that no target owns.
    Alone(String),
}

/// A RunnerSet that objects name by their labels, whether it exists or not.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RunnerSetKey {
    /// Namespace that the objects share with the RunnerSet.
    pub namespace: String,
    /// Name of the RunnerSet: the value of the label [`label::RUNNER_SET_NAME`].
    pub name: String,
}

/// See [`RunnerKey`].
pub(crate) fn runner_keys(runner: &Runner) -> Vec<RunnerKey> {
    let owner = runner.owner_references().iter().find(|owner| owner.controller == Some(true));
    let owner = owner.and_then(|owner| Uid::new(&owner.uid)).map(RunnerKey::Owner);
    let scope = runner.spec.config.scope().ok().map(RunnerKey::Scope);
    let names = [RunnerKey::Name(runner.name_any()), RunnerKey::Namespace(runner.namespace().unwrap_or_default())];
    owner.into_iter().chain(scope).chain(names).collect()
}

/// See [`SetKey`].
pub(crate) fn set_keys(set: &RunnerReplicaSet) -> Vec<SetKey> {
    let alone = || SetKey::Alone(set.namespace().unwrap_or_default());
    vec![owner_of(set).map_or_else(alone, |owner| SetKey::Owner(owner.uid))]
}

/// See [`Stores::pods_by`].
pub(crate) fn pod_keys(pod: &RunnerPod) -> Vec<RunnerSetKey> {
    runner_set_key(pod, pod.runner_set.as_ref())
}

/// See [`Stores::claims_by`].
pub(crate) fn claim_keys(claim: &PersistentVolumeClaim) -> Vec<RunnerSetKey> {
    runner_set_key(claim, claim.labels().get(label::RUNNER_SET_NAME))
}

fn runner_set_key<K: Resource>(object: &K, name: Option<&String>) -> Vec<RunnerSetKey> {
    let key = name.map(|name| RunnerSetKey { namespace: object.namespace().unwrap_or_default(), name: name.clone() });
    key.into_iter().collect()
}

/// The namespace of an object.
pub(crate) fn namespace_key<K: Resource>(object: &K) -> Vec<String> {
    vec![object.namespace().unwrap_or_default()]
}

/// See [`Stores::autoscalers_by`].
pub(crate) fn autoscaler_keys(autoscaler: &HorizontalRunnerAutoscaler) -> Vec<TargetRef> {
    TargetRef::of(autoscaler).into_iter().collect()
}

impl Stores {
    /// Waits until every store holds what the API server has. False when a watch ended before.
    pub async fn full(&self) -> bool {
        self.filled.wait().await
    }

    /// Those that webhooks are received with.
    #[must_use]
    pub fn demand(&self) -> receiver::Stores {
        receiver::Stores {
            autoscalers: self.autoscalers.clone(),
            deployments: self.deployments.clone(),
            runner_sets: self.runner_sets.clone(),
            job_ledgers: self.job_ledgers_by.clone(),
            filled: self.filled.clone(),
        }
    }

    /// Whether every store holds what the API server has.
    #[must_use]
    pub fn are_full(&self) -> bool {
        self.filled.is_complete()
    }

    /// Each watched kind, and how many of its objects the API server has and no store, because they cannot be read.
    pub fn unreadable(&self) -> impl Iterator<Item = (&str, usize)> {
        self.filled.unreadable()
    }

    /// A Runner, while it exists.
    #[must_use]
    pub fn runner(&self, namespace: &str, name: &str) -> Option<Arc<Runner>> {
        self.runners.get(&ObjectRef::new(name).within(namespace))
    }

    /// The pod with a Runner's name, whoever owns it.
    #[must_use]
    pub fn pod_of(&self, runner: &Runner) -> Option<Arc<RunnerPod>> {
        self.pod(runner.metadata.namespace.as_deref().unwrap_or_default(), runner.metadata.name.as_deref().unwrap_or_default())
    }

    /// A runner's pod, while it exists.
    #[must_use]
    pub fn pod(&self, namespace: &str, name: &str) -> Option<Arc<RunnerPod>> {
        self.pods.get(&ObjectRef::new(name).within(namespace))
    }

    /// Runners that a set owns.
    #[must_use]
    pub fn runners_of(&self, set: &Uid) -> Vec<Arc<Runner>> {
        let mut owned = self.owned_by(set.clone());
        owned.retain(|runner| is_owned_by::<RunnerReplicaSet>(runner, set) && !is_registration_only(runner));
        owned
    }

    /// All runners that an object owns.
    #[must_use]
    pub fn owned_by(&self, owner: Uid) -> Vec<Arc<Runner>> {
        self.runners_by.get(&RunnerKey::Owner(owner))
    }

    /// Runners of that name, in whatever namespace.
    #[must_use]
    pub fn runners_named(&self, name: &str) -> Vec<Arc<Runner>> {
        self.runners_by.get(&RunnerKey::Name(name.to_owned()))
    }

    /// Runners that register there.
    #[must_use]
    pub fn runners_at(&self, scope: &Scope) -> Vec<Arc<Runner>> {
        self.runners_by.get(&RunnerKey::Scope(scope.clone()))
    }

    /// Runners of a namespace.
    #[must_use]
    pub fn runners_in(&self, namespace: &str) -> Vec<Arc<Runner>> {
        self.runners_by.get(&RunnerKey::Namespace(namespace.to_owned()))
    }

    /// Pods that name a RunnerSet, whether that exists or not.
    #[must_use]
    pub fn pods_of_runner_set(&self, namespace: &str, name: &str) -> Vec<Arc<RunnerPod>> {
        self.pods_by.get(&RunnerSetKey { namespace: namespace.to_owned(), name: name.to_owned() })
    }

    /// Claims that name a RunnerSet, whether that exists or not.
    #[must_use]
    pub fn claims_of_runner_set(&self, namespace: &str, name: &str) -> Vec<Arc<PersistentVolumeClaim>> {
        self.claims_by.get(&RunnerSetKey { namespace: namespace.to_owned(), name: name.to_owned() })
    }

    /// Runners that a deployment keeps for their registration.
    #[must_use]
    pub fn registrations_of(&self, deployment: &Uid) -> Vec<Arc<Runner>> {
        let mut owned = self.owned_by(deployment.clone());
        owned.retain(|runner| is_owned_by::<RunnerDeployment>(runner, deployment) && is_registration_only(runner));
        owned
    }

    /// Whom a runner can share a service account with: its RunnerDeployment, or its set where that stands alone.
    #[must_use]
    pub fn shared_account_of(&self, runner: &Runner) -> Option<SharedAccount> {
        let namespace = runner.namespace().unwrap_or_default();
        let set = controller::<RunnerReplicaSet>(runner)?.name;
        let found = self.sets.get(&ObjectRef::new(set).within(&namespace));
        Some(found.map_or_else(|| SharedAccount::of_set(&namespace, set), |set| shared_account(&set)))
    }

    /// Namespaces and names of the shared service accounts that sets need, or that pods use, in one namespace or in all.
    #[must_use]
    pub fn shared_accounts(&self, status_hook: bool, namespace: Option<&str>) -> HashSet<(String, String)> {
        let is_asked_for = |metadata: &ObjectMeta| namespace.is_none_or(|only| metadata.namespace.as_deref() == Some(only));
        let needs = |spec: &RunnerSpec| GeneratedAccess::of(spec, status_hook).is_some_and(GeneratedAccess::is_shareable);
        let named = |account: &SharedAccount| (account.namespace.clone(), account.account_name());
        let deployments = self.deployments.state().into_iter().filter(|one| is_asked_for(&one.metadata));
        let of_deployments = deployments.filter(|one| needs(&one.spec.template.spec));
        let sets = self.sets.state().into_iter().filter(|one| is_asked_for(&one.metadata));
        let of_sets = sets.filter(|one| needs(&one.spec.template.spec));
        let pods = self.pods.state().into_iter().filter(|pod| is_asked_for(&pod.metadata));
        let of_pods = pods.filter_map(|pod| {
            let account = pod.service_account.clone()?;
            Some((pod.namespace().unwrap_or_default(), account))
        });
        of_deployments
            .map(|one| {
                named(&SharedAccount::of_target(
                    ScaleTargetKind::RunnerDeployment,
                    &one.namespace().unwrap_or_default(),
                    &one.name_any(),
                ))
            })
            .chain(of_sets.map(|one| named(&shared_account(&one))))
            .chain(of_pods)
            .collect()
    }

    /// Sets that a target owns, by its UID.
    #[must_use]
    pub fn sets_of(&self, target: &Target) -> Vec<Arc<RunnerReplicaSet>> {
        target.uid().map(|uid| self.sets_by.get(&SetKey::Owner(uid))).unwrap_or_default()
    }

    /// All RunnerDeployments and RunnerSets.
    #[must_use]
    pub fn targets(&self) -> Vec<Target> {
        let deployments = self.deployments.state().into_iter().map(Target::Deployment);
        deployments.chain(self.runner_sets.state().into_iter().map(Target::Set)).collect()
    }

    /// RunnerDeployments and RunnerSets of a namespace.
    #[must_use]
    pub fn targets_in(&self, namespace: &str) -> Vec<Target> {
        let namespace = namespace.to_owned();
        let deployments = self.deployments_by.get(&namespace).into_iter().map(Target::Deployment);
        deployments.chain(self.runner_sets_by.get(&namespace).into_iter().map(Target::Set)).collect()
    }

    /// RunnerReplicaSets of a namespace that no target owns.
    #[must_use]
    pub fn sets_alone_in(&self, namespace: &str) -> Vec<Arc<RunnerReplicaSet>> {
        self.sets_by.get(&SetKey::Alone(namespace.to_owned()))
    }

    /// A RunnerDeployment or RunnerSet, while it exists.
    #[must_use]
    pub fn target(&self, target: &TargetRef) -> Option<Target> {
        let TargetRef { kind, namespace, name } = target;
        match kind {
            ScaleTargetKind::RunnerDeployment => {
                self.deployments.get(&ObjectRef::new(name).within(namespace)).map(Target::Deployment)
            }
            ScaleTargetKind::RunnerSet => self.runner_sets.get(&ObjectRef::new(name).within(namespace)).map(Target::Set),
        }
    }

    /// Autoscalers of a target.
    #[must_use]
    pub fn autoscalers_of(&self, target: &TargetRef) -> Vec<Arc<HorizontalRunnerAutoscaler>> {
        self.autoscalers_by.get(target)
    }

    /// Whether an autoscaler sets a target's number.
    #[must_use]
    pub fn is_scaled(&self, target: &TargetRef) -> bool {
        let alive = |autoscaler: &Arc<HorizontalRunnerAutoscaler>| autoscaler.metadata.deletion_timestamp.is_none();
        self.autoscalers_of(target).iter().any(alive)
    }

    /// The set that owns a Runner, while it exists.
    #[must_use]
    pub fn set_of(&self, runner: &Runner) -> Option<Arc<RunnerReplicaSet>> {
        let owner = controller::<RunnerReplicaSet>(runner)?;
        let set = self.sets.get(&ObjectRef::new(owner.name).within(&runner.namespace().unwrap_or_default()))?;
        (set.uid().as_deref() == Some(owner.uid)).then_some(set)
    }

    /// The target that owns a set, while it exists.
    #[must_use]
    pub fn target_of(&self, set: &RunnerReplicaSet) -> Option<Target> {
        let owner = owner_of(set)?;
        self.target(&owner.target).filter(|target| target.uid().as_ref() == Some(&owner.uid))
    }

    /// Name of the policy set that a target's runners ask for: its own, or that of an autoscaler that scales it, the first by name.
    #[must_use]
    pub fn policy_set_of_target(&self, target: &Target) -> Option<String> {
        target.policies().cloned().or_else(|| {
            let mut autoscalers = self.autoscalers_of(&target.reference());
            autoscalers.sort_by_key(|autoscaler| autoscaler.name_any());
            autoscalers.iter().find_map(|autoscaler| autoscaler.annotations().get(annotation::POLICIES).cloned())
        })
    }

    /// Name of the policy set that a RunnerReplicaSet asks for: that of its owner while there is one, whatever it was when it was made.
    #[must_use]
    pub fn policy_set_of(&self, set: &RunnerReplicaSet) -> Option<String> {
        match self.target_of(set) {
            Some(target) => self.policy_set_of_target(&target),
            None => set.annotations().get(annotation::POLICIES).cloned(),
        }
    }
}

fn shared_account(set: &RunnerReplicaSet) -> SharedAccount {
    let namespace = set.namespace().unwrap_or_default();
    match owner_of(set) {
        Some(owner) => SharedAccount::of_target(owner.target.kind, &namespace, &owner.target.name),
        None => SharedAccount::of_set(&namespace, &set.name_any()),
    }
}

fn is_owned_by<O: Resource<DynamicType = ()>>(runner: &Runner, owner: &Uid) -> bool {
    controller::<O>(runner).is_some_and(|found| found.uid == owner.as_str())
}

/// Drops what no decision reads: of a claim only its metadata and its phase.
pub fn trim_claim(claim: &mut PersistentVolumeClaim) {
    trim(claim);
    claim.spec = None;
    if let Some(status) = &mut claim.status {
        *status = k8s_openapi::api::core::v1::PersistentVolumeClaimStatus { phase: status.phase.take(), ..Default::default() };
    }
}

/// Parts of specs that many Runners have in common, kept once: a fleet's Runners differ in their names.
#[derive(Debug, Default)]
pub struct CommonParts {
    configs: Vec<Weak<RunnerConfig>>,
    pods: Vec<Weak<RunnerPodSpec>>,
}

/// Parts of each sort that are remembered; the one that was met longest ago goes first.
const PARTS: usize = 128;

impl CommonParts {
    /// As [`trim`]; and what an earlier Runner's spec says as well is shared with it.
    pub fn trim(&mut self, runner: &mut Runner) {
        trim(runner);
        share(&mut self.configs, &mut runner.spec.config);
        share(&mut self.pods, &mut runner.spec.pod);
    }
}

fn share<T: PartialEq>(known: &mut Vec<Weak<T>>, part: &mut Arc<T>) {
    known.retain(|one| one.strong_count() > 0);
    let same = known.iter().enumerate().rev().find_map(|(index, one)| Some((index, one.upgrade().filter(|one| one == part)?)));
    if let Some((index, same)) = same {
        known.remove(index);
        *part = same;
    } else if known.len() >= PARTS {
        known.remove(0);
    }
    known.push(Arc::downgrade(part));
}
