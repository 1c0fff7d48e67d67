//! Who is to be looked at again.
//!
//! One watch per kind feeds every controller: a change wakes the objects that depend on it through these queues. They are bounded; a watch
//! that outruns a controller waits for it.

use futures::Stream;
use kube::runtime::reflector::ObjectRef;
use pacer_api::autoscaler::ScaleTargetKind;
use pacer_api::{HorizontalRunnerAutoscaler, Runner, RunnerDeployment, RunnerReplicaSet, RunnerSet};
use tokio::sync::mpsc;

use crate::target::TargetRef;

/// Requests waiting per kind. Each is a name; controllers drain them into their own de-duplicating queues at once.
const QUEUE: usize = 1024;

/// Queues of objects to be reconciled soon, one per controller: the ends that send.
#[derive(Clone, Debug)]
pub struct Wake {
    runners: mpsc::Sender<ObjectRef<Runner>>,
    sets: mpsc::Sender<ObjectRef<RunnerReplicaSet>>,
    deployments: mpsc::Sender<ObjectRef<RunnerDeployment>>,
    runner_sets: mpsc::Sender<ObjectRef<RunnerSet>>,
    autoscalers: mpsc::Sender<ObjectRef<HorizontalRunnerAutoscaler>>,
}

/// Receiving ends, one per controller.
#[derive(Debug)]
pub struct Alarms {
    /// For the Runner controller.
    pub runners: mpsc::Receiver<ObjectRef<Runner>>,
    /// For the RunnerReplicaSet controller.
    pub sets: mpsc::Receiver<ObjectRef<RunnerReplicaSet>>,
    /// For the RunnerDeployment controller.
    pub deployments: mpsc::Receiver<ObjectRef<RunnerDeployment>>,
    /// For the RunnerSet controller.
    pub runner_sets: mpsc::Receiver<ObjectRef<RunnerSet>>,
    /// For the HorizontalRunnerAutoscaler controller.
    pub autoscalers: mpsc::Receiver<ObjectRef<HorizontalRunnerAutoscaler>>,
}

/// Makes a queue for each controller: the ends that send and those that receive.
#[must_use]
pub fn channel() -> (Wake, Alarms) {
    let (runners, runner_alarms) = mpsc::channel(QUEUE);
    let (sets, set_alarms) = mpsc::channel(QUEUE);
    let (deployments, deployment_alarms) = mpsc::channel(QUEUE);
    let (runner_sets, runner_set_alarms) = mpsc::channel(QUEUE);
    let (autoscalers, autoscaler_alarms) = mpsc::channel(QUEUE);
    (
        Wake { runners, sets, deployments, runner_sets, autoscalers },
        Alarms {
            runners: runner_alarms,
            sets: set_alarms,
            deployments: deployment_alarms,
            runner_sets: runner_set_alarms,
            autoscalers: autoscaler_alarms,
        },
    )
}

impl Wake {
    /// Looks at a Runner again. A closed queue means that the operator stops.
    pub async fn runner(&self, namespace: &str, name: &str) {
        let _stopping = self.runners.send(ObjectRef::new(name).within(namespace)).await;
    }

    /// Looks at a set again.
    pub async fn set(&self, namespace: &str, name: &str) {
        let _stopping = self.sets.send(ObjectRef::new(name).within(namespace)).await;
    }

    /// Looks at a RunnerDeployment or RunnerSet again.
    pub async fn target(&self, target: &TargetRef) {
        let TargetRef { kind, namespace, name } = target;
        match kind {
            ScaleTargetKind::RunnerDeployment => {
                let _stopping = self.deployments.send(ObjectRef::new(name).within(namespace)).await;
            }
            ScaleTargetKind::RunnerSet => {
                let _stopping = self.runner_sets.send(ObjectRef::new(name).within(namespace)).await;
            }
        }
    }

    /// Looks at an autoscaler again.
    pub async fn autoscaler(&self, namespace: &str, name: &str) {
        let _stopping = self.autoscalers.send(ObjectRef::new(name).within(namespace)).await;
    }
}

/// A receiver as the stream that controllers take.
pub fn stream<T: Send + 'static>(receiver: mpsc::Receiver<T>) -> impl Stream<Item = T> + Send + 'static {
    futures::stream::unfold(receiver, |mut receiver| async move { receiver.recv().await.map(|item| (item, receiver)) })
}
