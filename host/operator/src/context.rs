//! What all controllers share.

use std::fmt::Debug;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use kube::api::{ListParams, ObjectMeta};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt};
use pacer_api::names::annotation;
use pacer_api::{HorizontalRunnerAutoscaler, Runner, RunnerConfig, RunnerReplicaSet};
use pacer_github::queues::Queues;
use pacer_policy::{Evaluation, Generation};
use serde::de::DeserializeOwned;

use crate::access::{Access, Accesses};
use crate::account::Accounts;
use crate::error::Error;
use crate::events::{Events, Reason};
use crate::fence::Fence;
use crate::ledger::Ledgers;
use crate::memory::Memory;
use crate::metrics::Metrics;
use crate::nodes::Nodes;
use crate::policies::Policies;
use crate::receipts::Receipts;
use crate::settings::Settings;
use crate::stores::Stores;
use crate::target::{Target, TargetRef};
use crate::token::Tokens;
use crate::wake::Wake;

/// Shared by all reconciles.
pub struct Context {
    /// Kubernetes.
    pub client: Client,
    /// Settings.
    pub settings: Settings,
    /// What the watches know.
    pub stores: Stores,
    /// Who is to be looked at again.
    pub wake: Wake,
    /// GitHub, per credentials.
    pub accesses: Accesses,
    /// Registration tokens.
    pub tokens: Tokens,
    /// Service accounts of runners.
    pub accounts: Accounts,
    /// Demand, in the status of autoscalers.
    pub ledgers: std::sync::Arc<Ledgers>,
    /// The cluster's nodes.
    pub nodes: Nodes,
    /// GitHub's job queues.
    pub queues: Queues,
    /// Policies.
    pub policies: std::sync::Arc<Policies>,
    /// What the process remembers.
    pub memory: std::sync::Arc<Memory>,
    /// Events.
    pub events: Events,
    /// Receipts of decisions.
    pub receipts: Receipts,
    /// Metrics.
    pub metrics: std::sync::Arc<Metrics>,
    /// Who may act.
    pub fence: Fence,
    /// Source of names.
    pub seed: Seed,
}

impl Context {
    /// GitHub for a Runner.
    ///
    /// # Errors
    ///
    /// When its spec names no scope or its credentials can't be used.
    pub async fn access(&self, runner: &Runner) -> Result<Access, Error> {
        self.access_of(&runner.namespace().unwrap_or_default(), &runner.spec.config).await
    }

    /// GitHub for a runner configuration.
    ///
    /// # Errors
    ///
    /// When it names no scope or its credentials can't be used.
    pub async fn access_of(&self, namespace: &str, config: &RunnerConfig) -> Result<Access, Error> {
        self.accesses.get(namespace, config).await
    }

    /// Runners in the namespace of an object.
    #[must_use]
    pub fn runners<K: Resource>(&self, beside: &K) -> Api<Runner> {
        Api::namespaced(self.client.clone(), &beside.namespace().unwrap_or_default())
    }

    /// Sets in the namespace of an object.
    #[must_use]
    pub fn sets<K: Resource>(&self, beside: &K) -> Api<RunnerReplicaSet> {
        Api::namespaced(self.client.clone(), &beside.namespace().unwrap_or_default())
    }

    /// Name of the policy set that a target's runners ask for: its own, or that of an autoscaler that scales it, the first by name.
    #[must_use]
    pub fn policy_set_of_target(&self, target: &Target) -> Option<String> {
        target.policies().cloned().or_else(|| {
            let mut autoscalers = self.stores.autoscalers_of(&target.reference());
            autoscalers.sort_by_key(|autoscaler| autoscaler.name_any());
            autoscalers.iter().find_map(|autoscaler| autoscaler.annotations().get(annotation::POLICIES).cloned())
        })
    }

    /// Name of the policy set that a set of runners asks for: that of its owner while there is one, whatever it was when the set was made.
    #[must_use]
    pub fn policy_set_of(&self, set: &RunnerReplicaSet) -> Option<String> {
        match self.stores.target_of(set) {
            Some(target) => self.policy_set_of_target(&target),
            None => set.annotations().get(annotation::POLICIES).cloned(),
        }
    }

    /// The policies that decide about an autoscaler's capacity: those of its own set, or of its target's. Take them once per reconcile.
    #[must_use]
    pub fn generation_of_autoscaler(
        &self,
        autoscaler: &HorizontalRunnerAutoscaler,
        target: &Target,
    ) -> std::sync::Arc<Generation> {
        let asked = autoscaler.annotations().get(annotation::POLICIES).or_else(|| target.policies());
        self.policies.generation_for(&autoscaler.namespace().unwrap_or_default(), asked.map(String::as_str))
    }

    /// The policies that decide about a set of runners. Take them once per reconcile.
    #[must_use]
    pub fn generation_of(&self, set: &RunnerReplicaSet) -> std::sync::Arc<Generation> {
        self.policies.generation_for(&set.namespace().unwrap_or_default(), self.policy_set_of(set).as_deref())
    }

    /// Looks again at the autoscalers of a target.
    pub async fn wake_autoscalers_of(&self, target: &TargetRef) {
        for autoscaler in self.stores.autoscalers_of(target) {
            self.wake.autoscaler(&target.namespace, &autoscaler.name_any()).await;
        }
    }

    /// Metadata of the object with that UID, from the API server itself and not from a store, which may be minutes old after a failed watch.
    /// A list of one name, since kinds that are watched are granted without `get`.
    ///
    /// # Errors
    ///
    /// When the API server refuses or does not answer.
    pub async fn live<K>(&self, namespace: &str, name: &str, uid: &str) -> Result<Option<ObjectMeta>, kube::Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        let found = self.live_named::<K>(namespace, name).await?;
        Ok(found.filter(|found| found.uid.as_deref() == Some(uid)))
    }

    /// Metadata of the object with that name, as [`Self::live`].
    ///
    /// # Errors
    ///
    /// When the API server refuses or does not answer.
    pub async fn live_named<K>(&self, namespace: &str, name: &str) -> Result<Option<ObjectMeta>, kube::Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), namespace);
        let listed = api.list_metadata(&ListParams::default().fields(&format!("metadata.name={name}"))).await?;
        Ok(listed.items.into_iter().next().map(|found| found.metadata))
    }

    /// A fresh random number for a name.
    #[must_use]
    pub fn random(&self) -> u64 {
        self.seed.draw()
    }

    /// Leaves a decision's receipt in the log, and says so when a policy failed.
    pub async fn note<T>(&self, evaluation: &Evaluation<T>, about: &k8s_openapi::api::core::v1::ObjectReference) {
        let receipt = &evaluation.receipt;
        tracing::info!(
            decision = %receipt.decision,
            policy = receipt.policy,
            bypassed = receipt.bypassed,
            input = receipt.input_hash,
            output = receipt.output_hash,
            items = receipt.output_items,
            fuel = receipt.fuel(),
            micros = u64::try_from(receipt.duration().as_micros()).unwrap_or(u64::MAX),
            "policy decided"
        );
        if let Some(fault) = receipt.fault() {
            let note = format!("the policy for {} failed: {fault}; {} decided", receipt.decision, receipt.policy);
            tracing::warn!(decision = %receipt.decision, %fault, decided_by = receipt.policy, "policy fault");
            // A fault of another kind is news, the same one again is counted.
            let action = format!("{}:{}", receipt.decision, fault.kind());
            self.events.publish_apart(Reason::PolicyFault, &action, about, None, &note).await;
        }
    }
}

/// Random numbers that differ between processes and calls. Names need no secrecy, only no repetition.
#[derive(Debug)]
pub struct Seed {
    state: RandomState,
    count: AtomicU64,
}

impl Default for Seed {
    fn default() -> Self {
        Self { state: RandomState::new(), count: AtomicU64::new(0) }
    }
}

impl Seed {
    /// The next number.
    pub fn draw(&self) -> u64 {
        let mut hasher = self.state.build_hasher();
        hasher.write_u64(self.count.fetch_add(1, Ordering::Relaxed));
        hasher.finish()
    }
}
