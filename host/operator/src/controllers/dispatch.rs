//! Which objects a change concerns.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::StreamExt;
use kube::{Resource, ResourceExt};
use pacer_api::autoscaler::ScaleTargetKind;
use pacer_api::{HorizontalRunnerAutoscaler, JobLedger, Runner, RunnerDeployment, RunnerReplicaSet, RunnerSet};
use pacer_cluster::owner::controller;
use pacer_cluster::watch::{Changes, warn_of_failure};
use pacer_github::queues::QueueNews;
use tokio::sync::mpsc;

use crate::access::RunnerListNews;
use crate::autoscaler::Autoscalers;
use crate::cluster::Cluster;
use crate::runner_pod::RunnerPod;
use crate::target::{Target, TargetRef, owner_of};

/// Drives one watch. While the operator starts, changes only fill the store; what is in it then is reconciled at once when all stores are full.
pub(super) async fn pump<K, F, Fut>(mut events: Changes<K>, cluster: Cluster, open: Arc<AtomicBool>, wake: F)
where
    K: Resource<DynamicType = ()> + Send + 'static,
    F: Fn(Cluster, K) -> Fut,
    Fut: Future<Output = ()> + Send,
{
    while let Some(event) = events.next().await {
        match event {
            Ok(object) if open.load(Ordering::Acquire) => wake(cluster.clone(), object).await,
            Ok(_) => {}
            Err(error) => warn_of_failure::<K>(&error),
        }
    }
}

pub(super) async fn runner(cluster: Cluster, runner: Runner) {
    let namespace = runner.namespace().unwrap_or_default();
    cluster.wake.runner(&namespace, &runner.name_any()).await;
    if let Some(set) = controller::<RunnerReplicaSet>(&runner) {
        cluster.wake.set(&namespace, set.name).await;
    }
    if let Some(deployment) = controller::<RunnerDeployment>(&runner) {
        let name = deployment.name.to_owned();
        cluster.wake.target(&TargetRef { kind: ScaleTargetKind::RunnerDeployment, namespace, name }).await;
    }
}

pub(super) async fn pod(cluster: Cluster, pod: RunnerPod) {
    let namespace = pod.namespace().unwrap_or_default();
    match (controller::<Runner>(&pod), &pod.runner_set) {
        (Some(runner), _) => wake_runner(&cluster, &namespace, runner.name).await,
        // One that ARC made.
        (None, Some(set)) => {
            let target = TargetRef { kind: ScaleTargetKind::RunnerSet, namespace, name: set.clone() };
            cluster.wake.target(&target).await;
        }
        (None, None) => {}
    }
}

pub(super) async fn set(cluster: Cluster, set: RunnerReplicaSet) {
    let namespace = set.namespace().unwrap_or_default();
    cluster.wake.set(&namespace, &set.name_any()).await;
    if let Some(owner) = owner_of(&set) {
        cluster.wake.target(&owner.target).await;
    }
}

pub(super) async fn deployment(cluster: Cluster, deployment: RunnerDeployment) {
    target(&cluster, &Target::Deployment(Arc::new(deployment))).await;
}

pub(super) async fn runner_set(cluster: Cluster, set: RunnerSet) {
    target(&cluster, &Target::Set(Arc::new(set))).await;
}

async fn target(cluster: &Cluster, target: &Target) {
    let target = target.reference();
    cluster.wake.target(&target).await;
    cluster.wake_autoscalers_of(&target).await;
}

pub(super) async fn autoscaler(cluster: Cluster, autoscaler: HorizontalRunnerAutoscaler) {
    cluster.wake.autoscaler(&autoscaler.namespace().unwrap_or_default(), &autoscaler.name_any()).await;
}

pub(super) async fn job_ledger(cluster: Cluster, ledger: JobLedger) {
    if let Some(autoscaler) = controller::<HorizontalRunnerAutoscaler>(&ledger) {
        cluster.wake.autoscaler(&ledger.namespace().unwrap_or_default(), autoscaler.name).await;
    }
}

async fn wake_runner(cluster: &Cluster, namespace: &str, name: &str) {
    cluster.wake.runner(namespace, name).await;
    let runner = cluster.stores.runner(namespace, name);
    if let Some(set) = runner.as_deref().and_then(controller::<RunnerReplicaSet>) {
        cluster.wake.set(namespace, set.name).await;
    }
}

/// Runner lists that changed wake the runners concerned.
pub(super) async fn runner_lists(mut news: mpsc::Receiver<RunnerListNews>, cluster: Cluster) {
    while let Some(news) = news.recv().await {
        let mut concerned = match news.names() {
            Some(names) => names.iter().flat_map(|name| cluster.stores.runners_named(name)).collect(),
            None => cluster.stores.runners_at(news.scope()),
        };
        concerned.retain(|runner: &Arc<Runner>| news.concerns(&runner.name_any(), &runner.spec.config));
        for runner in concerned {
            wake_runner(&cluster, &runner.namespace().unwrap_or_default(), &runner.name_any()).await;
        }
    }
}

/// Job lists that changed wake the autoscalers that read them.
pub(super) async fn job_lists(mut news: mpsc::Receiver<QueueNews>, autoscalers: Arc<Autoscalers>) {
    while let Some(news) = news.recv().await {
        autoscalers.wake_readers_of(&news.repository).await;
    }
}

/// Everything there is is reconciled.
pub(super) async fn everything(cluster: &Cluster) {
    let (stores, wake) = (&cluster.stores, &cluster.wake);
    for target in stores.targets() {
        wake.target(&target.reference()).await;
    }
    for set in stores.sets.state() {
        wake.set(&set.namespace().unwrap_or_default(), &set.name_any()).await;
    }
    for runner in stores.runners.state() {
        wake.runner(&runner.namespace().unwrap_or_default(), &runner.name_any()).await;
    }
    for autoscaler in stores.autoscalers.state() {
        wake.autoscaler(&autoscaler.namespace().unwrap_or_default(), &autoscaler.name_any()).await;
    }
}
