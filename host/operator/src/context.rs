//! What all controllers share.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use kube::{Api, Client, Resource, ResourceExt};
use pacer_api::{Runner, RunnerConfig, RunnerDeployment, RunnerReplicaSet};
use pacer_policy::{Evaluation, PolicyHost};

use crate::access::{Access, Accesses};
use crate::error::Error;
use crate::events::{Events, Reason};
use crate::fence::Fence;
use crate::memory::Memory;
use crate::metrics::Metrics;
use crate::settings::Settings;
use crate::stores::Stores;
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
    /// Policies.
    pub policies: std::sync::Arc<PolicyHost>,
    /// What the process remembers.
    pub memory: Memory,
    /// Events.
    pub events: Events,
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

    /// Deployments in the namespace of an object.
    #[must_use]
    pub fn deployments<K: Resource>(&self, beside: &K) -> Api<RunnerDeployment> {
        Api::namespaced(self.client.clone(), &beside.namespace().unwrap_or_default())
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
            self.events.publish(Reason::PolicyFault, about, None, &note).await;
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
