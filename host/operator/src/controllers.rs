//! The controllers: wires them, starts them, feeds them, stops them.
//!
//! Each kind is watched once. A change goes into the kind's store, to the kind's controller, and wakes what depends on it; the controllers
//! de-duplicate and bound how much runs at once.

use std::collections::HashMap;
use std::fmt::Debug;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt};
use kube::runtime::Controller;
use kube::runtime::controller::{Action, Config};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Resource, ResourceExt};
use pacer_cluster::clock::Clock;
use pacer_cluster::fence::Fence;
use pacer_cluster::object::Uid;
use pacer_cluster::seed::Seed;
use pacer_demand::ledger::Ledgers;
use pacer_demand::redelivery::Redelivery;
use pacer_github::queues::{QueueNews, Queues};
use pacer_policyset::PolicySets;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::access::{Accesses, RunnerListNews};
use crate::account::Accounts;
use crate::arc::abandoned::Abandoned;
use crate::arc::statefulset::StatefulSets;
use crate::autoscaler::{AutoscalerMemo, AutoscalerMemory, Autoscalers, DemandReports, DemandSources, Estimator, Reporting};
use crate::claim::Claims;
use crate::cluster::Cluster;
use crate::decisions::Decisions;
use crate::deployment::{TargetMemory, Targets};
use crate::ended::EndedPods;
use crate::error::Error;
use crate::just_in_time::Configurations;
use crate::metrics::Metrics;
use crate::origin::origins;
use crate::published::{FleetSummary, JobHistory, Owned, Published};
use crate::removal::Removals;
use crate::replicaset::{JobRecovery, Losses, ReplicaSetMemory, ReplicaSets, RunnersOfSets};
use crate::runner::{RunnerMemory, Runners, Supplies, Told};
use crate::settings::Settings;
use crate::standing::Standings;
use crate::stores::Stores;
use crate::token::Tokens;
use crate::usage::ShardUsage;
use crate::wake::{Alarms, stream};
use crate::watches::Watches;
use crate::{orphan, policies, tenancy};

mod dispatch;
mod housekeeping;

/// What GitHub's listings have to say, by kind.
pub struct News {
    /// Runners to look at because of a new runner list.
    pub runner_lists: mpsc::Receiver<RunnerListNews>,
    /// Repositories whose job lists have changed, or began or ceased to fail.
    pub queues: mpsc::Receiver<QueueNews>,
}

/// What the controllers are made from.
pub struct Parts {
    /// The API server, the stores of the watches, and who is told of changes.
    pub cluster: Cluster,
    /// GitHub, per credentials.
    pub github: Arc<Accesses>,
    /// Service accounts of runners.
    pub accounts: Accounts,
    /// Demand, in JobLedgers.
    pub ledgers: Arc<Ledgers>,
    /// GitHub's job lists.
    pub queues: Arc<Queues>,
    /// Asks the policies, and keeps receipts of what they decide.
    pub decisions: Decisions,
    /// What the controller of RunnerReplicaSets will say of its fleets.
    pub summaries: Owned<Uid, FleetSummary>,
    /// What the controller of autoscalers will say of the jobs of pools.
    pub history: Owned<Uid, JobHistory>,
    /// Settings from flags and the environment, the same for all controllers.
    pub settings: Arc<Settings>,
    /// Metrics of this process, in which the controllers count.
    pub metrics: Arc<Metrics>,
    /// Holds while this process may change anything.
    pub fence: Fence,
}

/// All controllers. Only the wiring sees more than one of them.
pub struct Operator {
    cluster: Cluster,
    github: Arc<Accesses>,
    settings: Arc<Settings>,
    supplies: Arc<Supplies>,
    runners: Arc<Runners>,
    sets: Arc<ReplicaSets>,
    targets: Arc<Targets>,
    autoscalers: Arc<Autoscalers>,
    abandoned: Abandoned,
    policies: Arc<PolicySets>,
    runtime: Arc<Runtime>,
}

/// What all controllers run with.
struct Runtime {
    stores: Stores,
    metrics: Arc<Metrics>,
    concurrency: u16,
    failures: Failures,
    fence: Fence,
}

impl Operator {
    /// Wires the controllers: who says what to whom is in [`crate::published`].
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let Parts { cluster, github, accounts, ledgers, queues, decisions, summaries, history, settings, metrics, fence } = parts;
        let removals = Arc::new(Removals::new(cluster.client.clone(), fence.clone()));
        let supplies = Arc::new(Supplies {
            tokens: Tokens::new(cluster.client.clone(), fence.clone()),
            configurations: Configurations::new(cluster.client.clone()),
            accounts,
            claims: Claims::new(cluster.clone(), removals.clone(), settings.clone()),
        });
        let demand = DemandReports::new(history);
        let legacy = StatefulSets::new(cluster.clone());
        let usage = ShardUsage::new(metrics.usage().clone(), settings.share.map_or(0, |share| share.shard));
        let told = Told { jobs: demand.jobs.reader(), pools: demand.history.reader() };
        let runners = Runners {
            memory: RunnerMemory::new(&cluster, &settings, told, removals.clone(), usage.clone()),
            cluster: cluster.clone(),
            github: github.clone(),
            supplies: supplies.clone(),
            decisions: decisions.clone(),
            settings: settings.clone(),
        };
        let (observer, statuses) = (runners.memory.observer.clone(), runners.memory.statuses.clone());
        let standings = runners.memory.standings.clone();
        let known = observer.known.clone();
        let abandoned = Abandoned {
            client: cluster.client.clone(),
            observer: observer.clone(),
            github: github.clone(),
            settings: settings.clone(),
        };
        let sets = ReplicaSets {
            memory: ReplicaSetMemory::new(summaries, demand.accepted.reader(), demand.history.reader(), legacy.adopted()),
            cluster: cluster.clone(),
            github: github.clone(),
            decisions: decisions.clone(),
            settings: settings.clone(),
            runners: RunnersOfSets { observer, statuses, standings: standings.clone(), usage, seed: Seed::default() },
            losses: Losses { ledgers: ledgers.clone(), ended: EndedPods::default(), counted: metrics.lost_jobs().clone() },
            recovery: settings.recovery.map(|budget| JobRecovery { fence: fence.clone(), budget }),
        };
        let fleets = sets.reports();
        let targets = Targets {
            memory: TargetMemory::new(fleets.summaries.clone(), removals),
            cluster: cluster.clone(),
            policies: decisions.policies.clone(),
            supplies: supplies.clone(),
            legacy,
            settings: settings.clone(),
        };
        let policies = decisions.policies.clone();
        let autoscalers = Autoscalers {
            memory: AutoscalerMemory::new(
                demand,
                fleets,
                known,
                Estimator { standings, errors: metrics.estimate_errors().clone() },
            ),
            cluster: cluster.clone(),
            github: github.clone(),
            demand: DemandSources { ledgers, queues },
            decisions,
            settings: settings.clone(),
            reporting: Reporting::new(fence.clone()),
        };
        let (stores, concurrency) = (cluster.stores.clone(), settings.concurrency);
        Self {
            cluster,
            github,
            settings,
            supplies,
            runners: Arc::new(runners),
            sets: Arc::new(sets),
            targets: Arc::new(targets),
            autoscalers: Arc::new(autoscalers),
            abandoned,
            policies,
            runtime: Arc::new(Runtime { stores, metrics, concurrency, failures: Failures::default(), fence }),
        }
    }

    /// What the pods of runners need; metrics count its claims.
    #[must_use]
    pub fn supplies(&self) -> Arc<Supplies> {
        self.supplies.clone()
    }

    /// What is remembered about autoscalers, for metrics.
    #[must_use]
    pub fn autoscalers(&self) -> Published<Uid, AutoscalerMemo> {
        self.autoscalers.memory.memos.reader()
    }

    /// Where runners stand, for those who watch.
    #[must_use]
    pub fn standings(&self) -> Arc<Standings> {
        self.runners.memory.standings.clone()
    }

    /// Runs everything until `stop` or until an essential part ends, which is an error.
    ///
    /// # Errors
    ///
    /// Which part ended.
    pub async fn run(
        self: Arc<Self>,
        watches: Watches,
        alarms: Alarms,
        news: News,
        stop: CancellationToken,
    ) -> Result<(), EndedEarly> {
        let open = Arc::new(AtomicBool::new(false));
        let mut tasks = Tasks { running: JoinSet::new(), stop: stop.clone() };
        self.start_watches(&mut tasks, watches, &open);
        tasks.until_stop("the runner lists", dispatch::runner_lists(news.runner_lists, self.cluster.clone()));
        tasks.until_stop("the job lists", dispatch::job_lists(news.queues, self.autoscalers.clone()));
        tasks.essential(
            "the policy sets",
            policies::run(self.policies.clone(), self.cluster.clone(), self.settings.clone(), stop.clone()),
        );
        let (tenancies, cluster, settings) = (self.github.tenancies().clone(), self.cluster.clone(), self.settings.clone());
        tasks.until_stop("the tenancy", async move {
            let (client, events) = (cluster.client.clone(), cluster.events.clone());
            let serves = |namespace: &str| settings.serves(namespace);
            tenancy::follow(tenancies, client, events, serves, || dispatch::everything(&cluster)).await;
        });
        let operator = self.clone();
        tasks.until_stop("housekeeping", async move {
            if operator.cluster.stores.full().await {
                policies::prime(&operator.policies, &operator.cluster.stores).await;
                open.store(true, Ordering::Release);
                dispatch::everything(&operator.cluster).await;
                operator.keep_house().await;
            }
        });
        let operator = self.clone();
        tasks.until_stop("the search for orphans", async move {
            let cluster = &operator.cluster;
            orphan::search(&cluster.client, &cluster.stores, operator.settings.sync_period).await;
        });
        let operator = self.clone();
        tasks.until_stop("the reports of jobs that wait", async move {
            // A watch that has ended before ends the process.
            if !operator.cluster.stores.full().await {
                return std::future::pending().await;
            }
            operator.autoscalers.report_waiting().await;
        });
        let operator = self.clone();
        let redelivery = Redelivery::new(
            self.settings.redelivery.clone(),
            self.runtime.fence.clone(),
            self.runtime.metrics.redelivery().clone(),
        );
        tasks.until_stop("the search for missed webhooks", async move {
            let stores = &operator.cluster.stores;
            // A watch that has ended before ends the process.
            if !stores.full().await {
                return std::future::pending().await;
            }
            redelivery.run(|| origins(stores, &operator.github)).await;
        });
        let operator = self.clone();
        tasks.until_stop("the search for abandoned pods", async move { operator.abandoned.search().await });
        self.start_controllers(&mut tasks, alarms);
        let mut early = None;
        while let Some(ended) = tasks.running.join_next().await {
            if !stop.is_cancelled() {
                early = Some(ended.unwrap_or("a part that panicked"));
                stop.cancel();
            }
        }
        early.map_or(Ok(()), |part| Err(EndedEarly(part)))
    }

    fn start_watches(&self, tasks: &mut Tasks, watches: Watches, open: &Arc<AtomicBool>) {
        let parts = || (self.cluster.clone(), open.clone());
        let (cluster, gate) = parts();
        tasks.until_stop("the watch on Runners", dispatch::pump(watches.runners, cluster, gate, dispatch::runner));
        let (cluster, gate) = parts();
        let ended = self.sets.losses.ended.clone();
        let pod = move |cluster: Cluster, pod| {
            ended.note(&cluster.stores, &pod, Clock::read());
            dispatch::pod(cluster, pod)
        };
        tasks.until_stop("the watch on pods", dispatch::pump(watches.pods, cluster, gate, pod));
        let (cluster, gate) = parts();
        tasks.until_stop("the watch on RunnerReplicaSets", dispatch::pump(watches.sets, cluster, gate, dispatch::set));
        let (cluster, gate) = parts();
        tasks.until_stop(
            "the watch on RunnerDeployments",
            dispatch::pump(watches.deployments, cluster, gate, dispatch::deployment),
        );
        let (cluster, gate) = parts();
        tasks.until_stop("the watch on RunnerSets", dispatch::pump(watches.runner_sets, cluster, gate, dispatch::runner_set));
        let (cluster, gate) = parts();
        // Claims are looked up when a runner needs one; that one changed is nobody's concern.
        let nobody = |_, _| std::future::ready(());
        tasks.until_stop("the watch on claims", dispatch::pump(watches.claims, cluster, gate, nobody));
        let (cluster, gate) = parts();
        tasks.until_stop(
            "the watch on HorizontalRunnerAutoscalers",
            dispatch::pump(watches.autoscalers, cluster, gate, dispatch::autoscaler),
        );
        let (cluster, gate) = parts();
        let ledgers = self.sets.losses.ledgers.clone();
        let job_ledger = move |cluster: Cluster, ledger| {
            ledgers.notice(&ledger);
            dispatch::job_ledger(cluster, ledger)
        };
        tasks.until_stop("the watch on JobLedgers", dispatch::pump(watches.job_ledgers, cluster, gate, job_ledger));
    }

    fn start_controllers(&self, tasks: &mut Tasks, alarms: Alarms) {
        let Stores { runners, sets, deployments, runner_sets, autoscalers, .. } = self.cluster.stores.clone();
        let (runtime, stop) = (&self.runtime, tasks.stop.clone());
        let all = self.runners.clone();
        let reconcile = move |runner| {
            let all = all.clone();
            async move { all.reconcile(runner).await }
        };
        let work = runtime.clone().control(runners, stream(alarms.runners), stop.clone(), reconcile);
        tasks.essential("the Runner controller", work);
        let all = self.sets.clone();
        let reconcile = move |set| {
            let all = all.clone();
            async move { all.reconcile(set).await }
        };
        let work = runtime.clone().control(sets, stream(alarms.sets), stop.clone(), reconcile);
        tasks.essential("the RunnerReplicaSet controller", work);
        let all = self.targets.clone();
        let reconcile = move |deployment| {
            let all = all.clone();
            async move { all.reconcile_deployment(deployment).await }
        };
        let work = runtime.clone().control(deployments, stream(alarms.deployments), stop.clone(), reconcile);
        tasks.essential("the RunnerDeployment controller", work);
        let all = self.targets.clone();
        let reconcile = move |set| {
            let all = all.clone();
            async move { all.reconcile_runner_set(set).await }
        };
        let work = runtime.clone().control(runner_sets, stream(alarms.runner_sets), stop.clone(), reconcile);
        tasks.essential("the RunnerSet controller", work);
        let all = self.autoscalers.clone();
        let reconcile = move |autoscaler| {
            let all = all.clone();
            async move { all.reconcile(autoscaler).await }
        };
        let work = runtime.clone().control(autoscalers, stream(alarms.autoscalers), stop, reconcile);
        tasks.essential("the HorizontalRunnerAutoscaler controller", work);
    }
}

/// Essential parts that run.
struct Tasks {
    running: JoinSet<&'static str>,
    stop: CancellationToken,
}

impl Tasks {
    /// A part that ends by itself when it is told to stop, as a reconcile does.
    fn essential(&mut self, part: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        let work: BoxFuture<'static, ()> = work.boxed();
        self.running.spawn(async move {
            work.await;
            part
        });
    }

    /// A part that is cut off in the middle, as a watch may be.
    fn until_stop(&mut self, part: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.essential(part, async move {
            stop.run_until_cancelled(work).await;
        });
    }
}

/// A part that must not end has ended.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("{0} ended although nobody asked it to")]
pub struct EndedEarly(&'static str);

/// Failed reconciles in a row, by object. A Runner that was created again under its name is another one.
#[derive(Debug, Default)]
struct Failures(Mutex<HashMap<Uid, u32>>);

impl Failures {
    /// Counts one and says how many it are.
    fn add(&self, object: Uid) -> u32 {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = failures.entry(object).or_default();
        *count = count.saturating_add(1);
        *count
    }

    /// Forgets those of objects that are gone.
    fn retain(&self, exists: impl Fn(&Uid) -> bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|object, _| exists(object));
    }

    /// Forgets the failures of an object whose reconcile succeeded.
    fn reset(&self, object: &Uid) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(object);
    }
}

impl Runtime {
    async fn control<K, F, Fut>(
        self: Arc<Self>,
        store: Store<K>,
        alarms: impl Stream<Item = ObjectRef<K>> + Send + 'static,
        stop: CancellationToken,
        reconcile: F,
    ) where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
        F: Fn(Arc<K>) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<Action, Error>> + Send + 'static,
    {
        // Whoever wakes it, and however early: with a store that is not full, what exists looks as if it were gone.
        let stores = self.stores.clone();
        let full = futures::stream::once(async move { stores.full().await }).filter_map(|_| std::future::ready(None));
        let alarms = full.chain(alarms);
        Controller::for_stream(futures::stream::pending(), store)
            .with_config(Config::default().concurrency(self.concurrency))
            .reconcile_on(alarms)
            .graceful_shutdown_on(stop.cancelled_owned())
            .run(
                move |object: Arc<K>, runtime: Arc<Self>| {
                    let reconcile = reconcile.clone();
                    async move {
                        let uid = Uid::of(&*object)?;
                        let result = match reconcile(object).await {
                            // A call has to wait for its turn at GitHub, which is no failure.
                            Err(error) if let Some(wait) = error.deferral() => Ok(Action::requeue(wait)),
                            result => result,
                        };
                        if result.is_ok() {
                            runtime.failures.reset(&uid);
                        }
                        runtime.metrics.reconciled(&K::kind(&()), result.is_ok());
                        result
                    }
                },
                |object: Arc<K>, error: &Error, runtime: Arc<Self>| {
                    let failures = Uid::of(&*object).map_or(u32::MAX, |uid| runtime.failures.add(uid));
                    let wait = error.retry_after(failures);
                    tracing::warn!(
                        kind = %K::kind(&()),
                        namespace = object.namespace(),
                        name = object.name_any(),
                        %error,
                        failures,
                        retry_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
                        "reconcile failed"
                    );
                    Action::requeue(wait)
                },
                self,
            )
            .for_each(|result| async move {
                match result {
                    // Woken for an object that is gone by now.
                    Err(kube::runtime::controller::Error::ObjectNotFound(_)) | Ok(_) => {}
                    Err(kube::runtime::controller::Error::ReconcilerFailed(..)) => {}
                    Err(error) => tracing::warn!(%error, "watch failed, trying again"),
                }
            })
            .await;
    }
}
