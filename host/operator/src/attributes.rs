//! Further facts that policies are told as attributes, each where a component reads it.
//!
//! What a fact is made from is known here already, but for nodes, which are read for all decisions alike.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;
use pacer_api::RunnerSpec;
use pacer_api::names::{RUNNER_CONTAINER, annotation};
use pacer_cluster::object::Uid;
use pacer_core::allowed::Allowed;
use pacer_core::facts::{PodPhase, RunnerFacts};
use pacer_core::last_job;
use pacer_core::node::NodeFacts;
use pacer_core::phase::Assessment;
use pacer_core::policy::{Attributes, Node};
use pacer_core::pool::{self, OtherPool, PoolOrigin, Workforce};
use pacer_core::price::Prices;
use pacer_core::reads::{Fact, Reads};

use crate::failures::FailureLog;
use crate::published::PoolReports;
use crate::runner_pod::RunnerPod;
use crate::stores::Stores;
use crate::target::{Target, TargetRef};

/// What facts are made from.
pub struct FactSources {
    allowed: Arc<Allowed>,
    prices: Prices,
    stores: Stores,
    pools: PoolReports,
    /// Image of runners whose spec names none.
    runner_image: String,
    failures: FailureLog,
}

/// The runners that a policy is asked about, and what it reads.
#[derive(Clone, Copy)]
pub struct Audience<'a> {
    /// The facts that the policy reads.
    pub reads: &'a Reads,
    /// Namespace of the pool.
    pub namespace: &'a str,
    /// Runners of the pool.
    pub members: &'a [(RunnerFacts, Assessment)],
    /// When it is asked.
    pub now: Timestamp,
}

/// The pool that a policy is asked about.
#[derive(Clone, Copy)]
pub struct AboutPool<'a> {
    /// What its runners are made of.
    pub spec: &'a RunnerSpec,
    /// What its annotation says of its priority.
    pub priority: Option<&'a str>,
    /// Namespace of the pool, and of the other pools that policies are told of.
    pub namespace: &'a str,
    /// The RunnerDeployment or RunnerSet that it is; none of a RunnerReplicaSet or Runner that stands alone.
    pub target: Option<&'a TargetRef>,
}

impl FactSources {
    /// Makes facts from these sources.
    #[must_use]
    pub fn new(
        allowed: Arc<Allowed>,
        prices: Prices,
        stores: Stores,
        pools: PoolReports,
        failures: FailureLog,
        runner_image: String,
    ) -> Self {
        Self { allowed, prices, stores, pools, runner_image, failures }
    }

    /// Image of the `runner` container of runners that are made so.
    #[must_use]
    pub fn image<'a>(&'a self, spec: &'a RunnerSpec) -> &'a str {
        let own = spec.pod.containers.iter().flatten().find(|container| container.name == RUNNER_CONTAINER);
        let own = own.and_then(|container| container.image.as_deref()).filter(|image| !image.is_empty());
        spec.config.image().or(own).unwrap_or(&self.runner_image)
    }

    /// A runner failed and was given up.
    pub fn failed(&self, node: Option<&str>, image: Option<&str>, now: Timestamp) {
        self.failures.add(node, image, now);
    }

    /// Has what a policy reads ready that is not at hand: failures of before this process began to act.
    pub async fn prepare(&self, reads: &Reads) {
        if reads.has(Fact::Failures) {
            self.failures.recall().await;
        }
    }

    /// Attributes of a pool, as far as `reads` asks for them.
    #[must_use]
    pub fn pool(&self, reads: &Reads, about: &AboutPool<'_>, now: Timestamp) -> Attributes {
        let AboutPool { spec, priority, namespace, target } = *about;
        let (config, image) = (&spec.config, self.image(spec));
        let mut told = Attributes::new();
        if reads.has(Fact::OtherPools) {
            let others = self.stores.targets_in(namespace).into_iter();
            let others = others.filter(|other| !other.is_leaving() && target != Some(&other.reference()));
            told.extend(pool::others(others.map(|other| self.other(&other)).collect()));
        }
        if reads.has(Fact::Pool) {
            let origin = PoolOrigin { scope: config.scope().ok(), group: config.group.as_deref(), image, priority };
            told.extend(origin.attributes());
        }
        if reads.has(Fact::Failures) {
            told.push(("image-failures".to_owned(), self.failures.of_image(image, now).to_string()));
        }
        told
    }

    /// What is told of a pool beside whose others are asked about.
    fn other(&self, target: &Target) -> OtherPool {
        let sets = self.stores.sets_of(target);
        let mut summaries =
            sets.iter().map(|set| self.pools.summaries.read(&Uid::of(&**set).ok()?, |fleet| (fleet.online, fleet.busy)));
        let runners = summaries.try_fold(Workforce::default(), |sum, fleet| {
            let (online, busy) = fleet?;
            Some(Workforce { online: sum.online.saturating_add(online), busy: sum.busy.saturating_add(busy) })
        });
        // What an autoscaler said that is gone holds no more.
        let uid = target.uid().filter(|_| self.stores.is_scaled(&target.reference()));
        let jobs = uid.and_then(|uid| self.pools.history.read(&uid, |jobs| (jobs.bounds, jobs.waiting)));
        let (bounds, waiting) = jobs.unwrap_or_default();
        let said = target.meta().annotations.as_ref().and_then(|all| all.get(annotation::PRIORITY));
        OtherPool {
            kind: target.kind().as_str(),
            name: target.name().to_owned(),
            desired: target.replicas(),
            runners,
            max: bounds.map(|bounds| bounds.max),
            waiting: waiting.map(|waiting| waiting.jobs),
            priority: said.and_then(|said| pool::priority(said)),
        }
    }

    /// Of nodes of which this is known, by name.
    pub fn tell_nodes(&self, to: Audience<'_>, known: &BTreeMap<String, NodeFacts>, nodes: &mut [Node]) {
        let neighbours = to.reads.has(Fact::NodeNeighbours).then(|| neighbours(&self.stores.pods.state(), to));
        for node in nodes {
            let read = known.get(&node.name).map(|facts| facts.attributes(to.reads, &self.allowed, &self.prices));
            node.attributes.extend(read.unwrap_or_default());
            if let Some(neighbours) = &neighbours {
                let others = neighbours.get(&node.name).copied().unwrap_or_default();
                node.attributes.push(("other-runners".to_owned(), others.to_string()));
            }
            if to.reads.has(Fact::Failures) {
                let failures = self.failures.on_node(&node.name, to.now);
                node.attributes.push(("failures".to_owned(), failures.to_string()));
            }
        }
    }

    /// Of one of the runners.
    #[must_use]
    pub fn runner(&self, to: Audience<'_>, facts: &RunnerFacts) -> Attributes {
        let mut told = Attributes::new();
        if to.reads.has_any(&[Fact::Annotations, Fact::Labels])
            && let Some(object) = self.stores.runner(to.namespace, &facts.name)
        {
            if to.reads.has(Fact::Annotations) {
                told.extend(self.allowed.annotations(object.annotations()));
            }
            if to.reads.has(Fact::Labels) {
                told.extend(self.allowed.labels(object.labels()));
            }
        }
        if to.reads.has(Fact::LastJob) {
            told.extend(facts.last_job.as_deref().map(last_job::attributes).unwrap_or_default());
        }
        told
    }
}

/// Pods of runners of other pools that are not over, by node.
fn neighbours(pods: &[Arc<RunnerPod>], to: Audience<'_>) -> HashMap<String, u32> {
    let own: HashSet<&str> = to.members.iter().map(|(facts, _)| facts.name.as_str()).collect();
    let mut counts = HashMap::new();
    for pod in pods {
        let Some(node) = &pod.facts.node else { continue };
        let is_own = pod.metadata.namespace.as_deref() == Some(to.namespace) && own.contains(pod.name_any().as_str());
        if !is_own && !matches!(pod.facts.phase, PodPhase::Succeeded | PodPhase::Failed) {
            let count: &mut u32 = counts.entry(node.clone()).or_default();
            *count = count.saturating_add(1);
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use pacer_core::phase::Phase;
    use serde_json::json;

    use super::*;

    fn pod(namespace: &str, name: &str, node: Option<&str>, phase: &str) -> Arc<RunnerPod> {
        let pod = json!({
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"nodeName": node, "containers": []},
            "status": {"phase": phase},
        });
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn neighbours_are_the_runners_of_other_pools_that_are_not_over() {
        let facts = RunnerFacts { name: "web-1".to_owned(), ..RunnerFacts::default() };
        let members = [(facts, Assessment { phase: Phase::Busy, trouble: None })];
        let to = Audience { reads: &Reads::default(), namespace: "ci", members: &members, now: Timestamp::UNIX_EPOCH };
        let pods = [
            pod("ci", "web-1", Some("n-1"), "Running"),
            pod("ci", "app-1", Some("n-1"), "Running"),
            pod("other", "web-1", Some("n-1"), "Pending"),
            pod("ci", "app-2", Some("n-2"), "Succeeded"),
            pod("ci", "app-3", Some("n-2"), "Failed"),
            pod("ci", "app-4", None, "Pending"),
        ];
        assert_eq!(neighbours(&pods, to), HashMap::from([("n-1".to_owned(), 2)]));
    }
}
