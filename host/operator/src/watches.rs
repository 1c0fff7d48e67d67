//! One watch per kind: each fills a store and tells of changes.

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Client, Resource};
use pacer_api::names::label;
use pacer_api::{HorizontalRunnerAutoscaler, JobLedger, Runner, RunnerDeployment, RunnerReplicaSet, RunnerSet};
use pacer_cluster::watch::{Changes, Filled, Range, trim, watch_with_index};

use crate::runner_pod::RunnerPod;
use crate::stores::{
    CommonParts, Stores, autoscaler_keys, claim_keys, namespace_key, pod_keys, runner_keys, set_keys, trim_claim,
};
use crate::tenancy::Tenancies;

/// The watches, not yet running.
pub struct Watches {
    pub(crate) runners: Changes<Runner>,
    pub(crate) pods: Changes<RunnerPod>,
    pub(crate) sets: Changes<RunnerReplicaSet>,
    pub(crate) deployments: Changes<RunnerDeployment>,
    pub(crate) runner_sets: Changes<RunnerSet>,
    pub(crate) claims: Changes<PersistentVolumeClaim>,
    pub(crate) autoscalers: Changes<HorizontalRunnerAutoscaler>,
    pub(crate) job_ledgers: Changes<JobLedger>,
}

/// An object of which a trace tells: it appeared, changed or vanished. The stores say how it is now.
#[derive(Clone, Debug)]
pub enum Change {
    /// Of the kind of the same name.
    Autoscaler(ObjectRef<HorizontalRunnerAutoscaler>),
    /// Of the kind of the same name.
    Deployment(ObjectRef<RunnerDeployment>),
    /// Of the kind of the same name.
    RunnerSet(ObjectRef<RunnerSet>),
    /// Of the kind of the same name.
    JobLedger(ObjectRef<JobLedger>),
    /// Of the kind of the same name.
    Runner(ObjectRef<Runner>),
}

impl Watches {
    /// The same, which tell of changes as well. `tell` must not wait.
    #[must_use]
    pub fn telling(self, tell: impl Fn(Change) + Clone + Send + 'static) -> Self {
        Self {
            autoscalers: telling(self.autoscalers, tell.clone(), Change::Autoscaler),
            deployments: telling(self.deployments, tell.clone(), Change::Deployment),
            runner_sets: telling(self.runner_sets, tell.clone(), Change::RunnerSet),
            job_ledgers: telling(self.job_ledgers, tell.clone(), Change::JobLedger),
            runners: telling(self.runners, tell, Change::Runner),
            ..self
        }
    }
}

fn telling<K>(
    changes: Changes<K>,
    tell: impl Fn(Change) + Send + 'static,
    change: impl Fn(ObjectRef<K>) -> Change + Send + 'static,
) -> Changes<K>
where
    K: Resource<DynamicType = ()> + Send + 'static,
{
    changes.inspect_ok(move |object| tell(change(ObjectRef::from_obj(object)))).boxed()
}

/// Prepares the watches and their stores. Nothing is decided before the tenancy is known as well.
#[must_use]
pub fn watches(client: &Client, range: Range<'_>, tenancies: &Tenancies) -> (Watches, Stores) {
    let mut filled = Filled::default();
    filled.also(tenancies.settled());
    let mut common = CommonParts::default();
    let trim_runner = move |runner: &mut Runner| common.trim(runner);
    let all = watcher::Config::default;
    let (runner_store, runners_by, runners) = watch_with_index(client, range, all(), trim_runner, runner_keys, &mut filled);
    let only_runner_pods = all().labels(label::RUNNER_POD);
    let (pod_store, pods_by, pods) = watch_with_index(client, range, only_runner_pods, |_| {}, pod_keys, &mut filled);
    let (set_store, sets_by, sets) = watch_with_index(client, range, all(), trim, set_keys, &mut filled);
    let (deployment_store, deployments_by, deployments) =
        watch_with_index(client, range, all(), trim, namespace_key, &mut filled);
    let (runner_set_store, runner_sets_by, runner_sets) =
        watch_with_index(client, range, all(), trim, namespace_key, &mut filled);
    let only_claims_of_sets = all().labels(label::RUNNER_SET_NAME);
    let (claim_store, claims_by, claims) =
        watch_with_index(client, range, only_claims_of_sets, trim_claim, claim_keys, &mut filled);
    let (autoscaler_store, autoscalers_by, autoscalers) =
        watch_with_index(client, range, all(), trim, autoscaler_keys, &mut filled);
    let (job_ledger_store, job_ledgers_by, job_ledgers) =
        watch_with_index(client, range, all(), trim, pacer_demand::ledger::owner, &mut filled);
    (
        Watches { runners, pods, sets, deployments, runner_sets, claims, autoscalers, job_ledgers },
        Stores {
            runners: runner_store,
            pods: pod_store,
            sets: set_store,
            deployments: deployment_store,
            runner_sets: runner_set_store,
            claims: claim_store,
            autoscalers: autoscaler_store,
            job_ledgers: job_ledger_store,
            runners_by,
            pods_by,
            sets_by,
            deployments_by,
            runner_sets_by,
            claims_by,
            autoscalers_by,
            job_ledgers_by,
            filled,
        },
    )
}
