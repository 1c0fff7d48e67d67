//! What becomes of ARC's objects is decided from these lists.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use pacer_api::names::label;
use pacer_api::{HorizontalRunnerAutoscaler, Runner, RunnerDeployment, RunnerReplicaSet, RunnerSet};

use crate::reader::Reader;

/// What ARC's controllers work on.
#[derive(Debug, Default)]
pub(super) struct Objects {
    pub(super) deployments: Vec<RunnerDeployment>,
    pub(super) sets: Vec<RunnerReplicaSet>,
    pub(super) runners: Vec<Runner>,
    pub(super) runner_sets: Vec<RunnerSet>,
    pub(super) stateful_sets: Vec<StatefulSet>,
    pub(super) autoscalers: Vec<HorizontalRunnerAutoscaler>,
    pub(super) pods: Vec<Pod>,
}

/// Lists them from the API server; of StatefulSets and Pods only those that are labelled as a runner's.
pub(super) async fn objects(reader: &mut Reader) -> Objects {
    Objects {
        deployments: reader.namespaced("").await,
        sets: reader.namespaced("").await,
        runners: reader.namespaced("").await,
        runner_sets: reader.namespaced("").await,
        stateful_sets: reader.namespaced(label::RUNNER_TEMPLATE_HASH).await,
        autoscalers: reader.namespaced("").await,
        pods: reader.namespaced(label::RUNNER_POD).await,
    }
}
