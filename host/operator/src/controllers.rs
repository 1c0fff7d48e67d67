//! Watches and controllers: starts them, feeds them, stops them.
//!
//! Each kind is watched once. A change goes into the kind's store, to the kind's controller, and wakes what depends on it; the controllers
//! de-duplicate and bound how much runs at once.

use std::collections::{BTreeSet, HashSet};
use std::fmt::Debug;
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::core::Status;
use kube::runtime::controller::{Action, Config};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::utils::Backoff;
use kube::runtime::{Controller, WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use pacer_api::autoscaler::ScaleTargetKind;
use pacer_api::names::label;
use pacer_api::{HorizontalRunnerAutoscaler, Runner, RunnerDeployment, RunnerReplicaSet, RunnerSet};
use pacer_github::queues::QueueNews;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::access::{RosterNews, credentials_key};
use crate::context::Context;
use crate::error::{Error, status};
use crate::memory::Alive;
use crate::settings::WATCH_RETRY;
use crate::stores::{CommonParts, Stores, owner, trim, trim_claim, trim_pod};
use crate::target::{Target, TargetRef, owner_of};
use crate::token::Tokens;
use crate::wake::{Alarms, stream};
use crate::{autoscaler, claim, deployment, inherited, orphan, policies, redelivery, replica_set, runner};

/// The watches, not yet running.
pub struct Watches {
    runners: BoxStream<Runner>,
    pods: BoxStream<Pod>,
    sets: BoxStream<RunnerReplicaSet>,
    deployments: BoxStream<RunnerDeployment>,
    runner_sets: BoxStream<RunnerSet>,
    claims: BoxStream<PersistentVolumeClaim>,
    autoscalers: BoxStream<HorizontalRunnerAutoscaler>,
}

pub(crate) type BoxStream<K> = futures::stream::BoxStream<'static, Result<K, watcher::Error>>;

/// Prepares the watches and their stores.
#[must_use]
pub fn watches(client: &Client, namespace: Option<&str>) -> (Watches, Stores) {
    let mut filled = Vec::new();
    let mut common = CommonParts::default();
    let (runner_store, runners) =
        watch(client, namespace, watcher::Config::default(), move |runner| common.trim(runner), &mut filled);
    let only_runner_pods = watcher::Config::default().labels(label::RUNNER_POD);
    let (pod_store, pods) = watch(client, namespace, only_runner_pods, trim_pod, &mut filled);
    let (set_store, sets) = watch(client, namespace, watcher::Config::default(), trim, &mut filled);
    let (deployment_store, deployments) = watch(client, namespace, watcher::Config::default(), trim, &mut filled);
    let (runner_set_store, runner_sets) = watch(client, namespace, watcher::Config::default(), trim, &mut filled);
    let only_claims_of_sets = watcher::Config::default().labels(label::RUNNER_SET_NAME);
    let (claim_store, claims) = watch(client, namespace, only_claims_of_sets, trim_claim, &mut filled);
    let (autoscaler_store, autoscalers) = watch(client, namespace, watcher::Config::default(), trim, &mut filled);
    (
        Watches { runners, pods, sets, deployments, runner_sets, claims, autoscalers },
        Stores {
            runners: runner_store,
            pods: pod_store,
            sets: set_store,
            deployments: deployment_store,
            runner_sets: runner_set_store,
            claims: claim_store,
            autoscalers: autoscaler_store,
            filled,
        },
    )
}

pub(crate) fn watch<K>(
    client: &Client,
    namespace: Option<&str>,
    config: watcher::Config,
    trim: impl FnMut(&mut K) + Send + 'static,
    filled: &mut Vec<tokio::sync::watch::Receiver<bool>>,
) -> (Store<K>, BoxStream<K>)
where
    K: Resource<Scope = kube::core::NamespaceResourceScope> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Default + Eq + Hash + Clone,
{
    let api: Api<K> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let (store, writer) = reflector::store();
    let (is_filled, receiver) = tokio::sync::watch::channel(false);
    filled.push(receiver);
    let events = watcher(api, config).backoff(WatchBackoff::default()).modify(trim).reflect(writer).inspect_ok(move |event| {
        if matches!(event, watcher::Event::InitDone) {
            is_filled.send_replace(true);
        }
    });
    let listed = store.clone();
    (store, changed(events, move || listed.state()).boxed())
}

/// kube's pauses after failures, cut off at [`WATCH_RETRY`].
#[derive(Default)]
struct WatchBackoff(watcher::DefaultBackoff);

impl Iterator for WatchBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.0.next().map(|pause| pause.min(WATCH_RETRY))
    }
}

impl Backoff for WatchBackoff {
    fn reset(&mut self) {
        self.0.reset();
    }
}

/// The objects to look at because of a watch's events.
///
/// What a listing brings is in the store only once the listing is complete, so everything is looked at then: an object whose turn came
/// earlier would not be found, and nobody would ask for it again. What the listing lacks vanished while the watch was interrupted.
fn changed<K, E>(
    events: impl Stream<Item = Result<watcher::Event<K>, E>> + Send,
    stored: impl Fn() -> Vec<Arc<K>> + Send,
) -> impl Stream<Item = Result<K, E>> + Send
where
    K: Resource + Clone + Send + Sync,
    E: Send,
{
    let mut before = Vec::new();
    events
        .map(move |event| match event {
            Err(error) => vec![Err(error)],
            Ok(watcher::Event::Apply(object) | watcher::Event::Delete(object)) => vec![Ok(object)],
            Ok(watcher::Event::Init) => {
                before = stored();
                Vec::new()
            }
            Ok(watcher::Event::InitApply(_)) => Vec::new(),
            Ok(watcher::Event::InitDone) => {
                let now = stored();
                let present: HashSet<_> = now.iter().filter_map(|object| object.uid()).collect();
                let vanished = std::mem::take(&mut before);
                let vanished = vanished.iter().filter(|object| object.uid().is_some_and(|uid| !present.contains(&uid)));
                vanished.chain(&now).map(|object| Ok(K::clone(object))).collect()
            }
        })
        .flat_map(futures::stream::iter)
}

/// What GitHub's listings have to say, by kind.
pub struct News {
    /// Of runners.
    pub rosters: mpsc::Receiver<RosterNews>,
    /// Of jobs.
    pub queues: mpsc::Receiver<QueueNews>,
}

/// Runs everything until `stop` or until an essential part ends, which is an error.
///
/// # Errors
///
/// Which part ended.
pub async fn run(
    ctx: Arc<Context>,
    watches: Watches,
    alarms: Alarms,
    news: News,
    stop: CancellationToken,
) -> Result<(), EndedEarly> {
    let mut tasks = JoinSet::new();
    let mut spawn = |part: &'static str, work: BoxFuture<'static, ()>| {
        tasks.spawn(async move {
            work.await;
            part
        });
    };
    let open = Arc::new(AtomicBool::new(false));
    // Until the operator stops; a watch is cut off in the middle, a reconcile is not.
    let until = |work: BoxFuture<'static, ()>| -> BoxFuture<'static, ()> {
        let stop = stop.clone();
        async move {
            stop.run_until_cancelled(work).await;
        }
        .boxed()
    };
    spawn("the watch on Runners", until(pump(watches.runners, ctx.clone(), open.clone(), wake_for_runner).boxed()));
    spawn("the watch on pods", until(pump(watches.pods, ctx.clone(), open.clone(), wake_for_pod).boxed()));
    spawn("the watch on RunnerReplicaSets", until(pump(watches.sets, ctx.clone(), open.clone(), wake_for_set).boxed()));
    spawn(
        "the watch on RunnerDeployments",
        until(pump(watches.deployments, ctx.clone(), open.clone(), wake_for_deployment).boxed()),
    );
    spawn("the watch on RunnerSets", until(pump(watches.runner_sets, ctx.clone(), open.clone(), wake_for_runner_set).boxed()));
    // Claims are looked up when a runner needs one; that one changed is nobody's concern.
    spawn("the watch on claims", until(pump(watches.claims, ctx.clone(), open.clone(), |_, _| std::future::ready(())).boxed()));
    spawn(
        "the watch on HorizontalRunnerAutoscalers",
        until(pump(watches.autoscalers, ctx.clone(), open.clone(), wake_for_autoscaler).boxed()),
    );
    spawn("the listings", until(pump_rosters(news.rosters, ctx.clone()).boxed()));
    spawn("the job queues", until(pump_queues(news.queues, ctx.clone()).boxed()));
    spawn("the policy sets", policies::run(ctx.clone(), stop.clone()).boxed());
    spawn("housekeeping", until(housekeeping(ctx.clone(), open).boxed()));
    let searching = ctx.clone();
    spawn("the search for orphans", until(async move { orphan::search(&searching).await }.boxed()));
    spawn("the search for missed webhooks", until(redelivery::run(ctx.clone()).boxed()));
    let searching = ctx.clone();
    spawn("the search for abandoned pods", until(async move { inherited::search(&searching).await }.boxed()));
    let stores = ctx.stores.clone();
    spawn(
        "the Runner controller",
        control(stores.runners, stream(alarms.runners), ctx.clone(), stop.clone(), runner::reconcile).boxed(),
    );
    spawn(
        "the RunnerReplicaSet controller",
        control(stores.sets, stream(alarms.sets), ctx.clone(), stop.clone(), replica_set::reconcile).boxed(),
    );
    spawn(
        "the RunnerDeployment controller",
        control(stores.deployments, stream(alarms.deployments), ctx.clone(), stop.clone(), deployment::reconcile).boxed(),
    );
    spawn(
        "the RunnerSet controller",
        control(stores.runner_sets, stream(alarms.runner_sets), ctx.clone(), stop.clone(), deployment::reconcile_runner_set)
            .boxed(),
    );
    spawn(
        "the HorizontalRunnerAutoscaler controller",
        control(stores.autoscalers, stream(alarms.autoscalers), ctx.clone(), stop.clone(), autoscaler::reconcile).boxed(),
    );
    let mut early = None;
    while let Some(ended) = tasks.join_next().await {
        if !stop.is_cancelled() {
            early = Some(ended.unwrap_or("a part that panicked"));
            stop.cancel();
        }
    }
    early.map_or(Ok(()), |part| Err(EndedEarly(part)))
}

/// A part that must not end has ended.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("{0} ended although nobody asked it to")]
pub struct EndedEarly(&'static str);

async fn control<K, F, Fut>(
    store: Store<K>,
    alarms: impl Stream<Item = ObjectRef<K>> + Send + 'static,
    ctx: Arc<Context>,
    stop: CancellationToken,
    reconcile: F,
) where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    F: Fn(Arc<K>, Arc<Context>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<Action, Error>> + Send + 'static,
{
    let concurrency = ctx.settings.concurrency;
    let kind = K::kind(&()).into_owned();
    // Whoever wakes it, and however early: with a store that is not full, what exists looks as if it were gone.
    let stores = ctx.stores.clone();
    let full = futures::stream::once(async move { stores.full().await }).filter_map(|_| std::future::ready(None));
    let alarms = full.chain(alarms);
    Controller::for_stream(futures::stream::pending(), store)
        .with_config(Config::default().concurrency(concurrency))
        .reconcile_on(alarms)
        .graceful_shutdown_on(stop.cancelled_owned())
        .run(
            move |object: Arc<K>, ctx: Arc<Context>| {
                let reconcile = reconcile.clone();
                let kind = K::kind(&()).into_owned();
                async move {
                    let key = key(&*object, &kind);
                    let result = reconcile(object, ctx.clone()).await;
                    if result.is_ok() {
                        ctx.memory.succeeded(&key);
                    }
                    ctx.metrics.reconciled(&kind, result.is_ok());
                    result
                }
            },
            move |object: Arc<K>, error: &Error, ctx: Arc<Context>| {
                let failures = ctx.memory.failed(&key(&*object, &kind));
                let wait = error.retry_after(failures);
                tracing::warn!(
                    kind,
                    namespace = object.namespace(),
                    name = object.name_any(),
                    %error,
                    failures,
                    retry_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
                    "reconcile failed"
                );
                Action::requeue(wait)
            },
            ctx,
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

fn key<K: Resource>(object: &K, kind: &str) -> String {
    format!("{kind}/{}", object.uid().unwrap_or_default())
}

/// Drives one watch. While the operator starts, changes only fill the store; what is in it then is looked at once all stores are full.
async fn pump<K, F, Fut>(mut events: BoxStream<K>, ctx: Arc<Context>, open: Arc<AtomicBool>, wake: F)
where
    K: Resource<DynamicType = ()> + Send + 'static,
    F: Fn(Arc<Context>, K) -> Fut,
    Fut: Future<Output = ()> + Send,
{
    while let Some(event) = events.next().await {
        match event {
            Ok(object) if open.load(Ordering::Acquire) => wake(ctx.clone(), object).await,
            Ok(_) => {}
            Err(error) => tracing::warn!(kind = %K::kind(&()), %error, "watch failed, trying again"),
        }
    }
}

async fn wake_for_runner(ctx: Arc<Context>, runner: Runner) {
    let namespace = runner.namespace().unwrap_or_default();
    ctx.wake.runner(&namespace, &runner.name_any()).await;
    if let Some((_, set)) = owner(&runner, "RunnerReplicaSet") {
        ctx.wake.set(&namespace, set).await;
    }
    if let Some((_, deployment)) = owner(&runner, "RunnerDeployment") {
        let name = deployment.to_owned();
        ctx.wake.target(&TargetRef { kind: ScaleTargetKind::RunnerDeployment, namespace, name }).await;
    }
}

async fn wake_for_pod(ctx: Arc<Context>, pod: Pod) {
    let namespace = pod.namespace().unwrap_or_default();
    match (owner(&pod, "Runner"), pod.labels().get(label::RUNNER_SET_NAME)) {
        (Some((_, runner)), _) => wake_runner(&ctx, &namespace, runner).await,
        // One that ARC made.
        (None, Some(set)) => {
            let target = TargetRef { kind: ScaleTargetKind::RunnerSet, namespace, name: set.clone() };
            ctx.wake.target(&target).await;
        }
        (None, None) => {}
    }
}

async fn wake_for_set(ctx: Arc<Context>, set: RunnerReplicaSet) {
    let namespace = set.namespace().unwrap_or_default();
    ctx.wake.set(&namespace, &set.name_any()).await;
    if let Some((_, target)) = owner_of(&set) {
        ctx.wake.target(&target).await;
    }
}

async fn wake_for_deployment(ctx: Arc<Context>, deployment: RunnerDeployment) {
    wake_for_target(&ctx, &Target::Deployment(Arc::new(deployment))).await;
}

async fn wake_for_runner_set(ctx: Arc<Context>, set: RunnerSet) {
    wake_for_target(&ctx, &Target::Set(Arc::new(set))).await;
}

async fn wake_for_target(ctx: &Context, target: &Target) {
    let target = target.reference();
    ctx.wake.target(&target).await;
    ctx.wake_autoscalers_of(&target).await;
}

async fn wake_for_autoscaler(ctx: Arc<Context>, autoscaler: HorizontalRunnerAutoscaler) {
    ctx.wake.autoscaler(&autoscaler.namespace().unwrap_or_default(), &autoscaler.name_any()).await;
}

async fn wake_runner(ctx: &Context, namespace: &str, name: &str) {
    ctx.wake.runner(namespace, name).await;
    let runner = ctx.stores.runners.get(&ObjectRef::new(name).within(namespace));
    if let Some((_, set)) = runner.as_deref().and_then(|runner| owner(runner, "RunnerReplicaSet")) {
        ctx.wake.set(namespace, set).await;
    }
}

/// Listings that changed wake the runners concerned.
async fn pump_rosters(mut news: mpsc::Receiver<RosterNews>, ctx: Arc<Context>) {
    while let Some(news) = news.recv().await {
        let concerned: Vec<(String, String)> = ctx
            .stores
            .runners
            .state_filter(|runner| news.concerns(&runner.name_any(), &runner.spec.config))
            .into_iter()
            .map(|runner| (runner.namespace().unwrap_or_default(), runner.name_any()))
            .collect();
        for (namespace, name) in concerned {
            wake_runner(&ctx, &namespace, &name).await;
        }
    }
}

/// Queues that changed wake the autoscalers that look at them.
async fn pump_queues(mut news: mpsc::Receiver<QueueNews>, ctx: Arc<Context>) {
    while let Some(news) = news.recv().await {
        for autoscaler in ctx.stores.autoscalers.state() {
            let uid = autoscaler.uid().unwrap_or_default();
            if ctx.memory.autoscaler(&uid, |memo| memo.looks_at(&news.repository)) {
                ctx.wake.autoscaler(&autoscaler.namespace().unwrap_or_default(), &autoscaler.name_any()).await;
            }
        }
    }
}

/// Opens the gate once all stores are full, then keeps order once per sync period: forgets what belongs to objects that are gone, lets go of
/// listings nobody needs, removes unused tokens.
async fn housekeeping(ctx: Arc<Context>, open: Arc<AtomicBool>) {
    if !ctx.stores.full().await {
        return;
    }
    policies::prime(&ctx).await;
    open.store(true, Ordering::Release);
    for target in ctx.stores.targets() {
        ctx.wake.target(&target.reference()).await;
    }
    for set in ctx.stores.sets.state() {
        ctx.wake.set(&set.namespace().unwrap_or_default(), &set.name_any()).await;
    }
    for runner in ctx.stores.runners.state() {
        ctx.wake.runner(&runner.namespace().unwrap_or_default(), &runner.name_any()).await;
    }
    for autoscaler in ctx.stores.autoscalers.state() {
        ctx.wake.autoscaler(&autoscaler.namespace().unwrap_or_default(), &autoscaler.name_any()).await;
    }
    loop {
        tokio::time::sleep(ctx.settings.sync_period.max(Duration::from_secs(1))).await;
        sweep(&ctx).await;
    }
}

async fn sweep(ctx: &Context) {
    sweep_accounts(ctx).await;
    let runners = ctx.stores.runners.state();
    let sets = ctx.stores.sets.state();
    let runner_uids: HashSet<String> = runners.iter().filter_map(|runner| runner.uid()).collect();
    let set_uids: HashSet<String> = sets.iter().filter_map(|set| set.uid()).collect();
    let target_uids: HashSet<String> = ctx.stores.targets().iter().map(|target| target.uid().to_owned()).collect();
    let autoscalers = ctx.stores.autoscalers.state();
    let autoscaler_uids: HashSet<String> = autoscalers.iter().filter_map(|autoscaler| autoscaler.uid()).collect();
    ctx.memory.retain(
        &Alive { runners: &runner_uids, sets: &set_uids, targets: &target_uids, autoscalers: &autoscaler_uids },
        Timestamp::now(),
    );
    claim::sweep(ctx).await;
    ctx.ledgers.retain(|autoscaler| ctx.stores.autoscalers.get(autoscaler).is_some());
    // Which token a runner uses is known without its credentials: those of one tenant must not keep the tokens of the others.
    let token = |runner: &Arc<Runner>| {
        let (namespace, config) = (runner.namespace().unwrap_or_default(), &runner.spec.config);
        let name = Tokens::name(&credentials_key(&namespace, config), &config.scope().ok()?);
        Some((namespace, name))
    };
    let used: BTreeSet<(String, String)> = runners.iter().filter_map(token).collect();
    let mut accesses = Vec::new();
    let mut complete = true;
    for runner in &runners {
        match ctx.access(runner).await {
            Ok(access) => accesses.push(access),
            // Its listing may be needed in a moment.
            Err(Error::Kube(_)) => complete = false,
            Err(_) => {}
        }
    }
    if complete {
        ctx.accesses.retain(&accesses);
    }
    let unused = |namespace: &str, name: &str| used.contains(&(namespace.to_owned(), name.to_owned()));
    if let Err(error) = ctx.tokens.sweep(ctx.settings.namespace.as_deref(), unused).await {
        tracing::warn!(%error, "unused registration tokens not deleted");
    }
}

async fn sweep_accounts(ctx: &Context) {
    let used = ctx.stores.shared_accounts(ctx.settings.pod.status_hook);
    let is_used = |namespace: &str, name: &str| used.contains(&(namespace.to_owned(), name.to_owned()));
    match ctx.accounts.sweep(ctx.settings.namespace.as_deref(), is_used).await {
        Ok(()) => {}
        // An installation may come without the right to make any.
        Err(error) if status(&error).is_some_and(Status::is_forbidden) => tracing::debug!(%error, "accounts not swept"),
        Err(error) => tracing::warn!(%error, "accounts of runners that are gone not deleted"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use kube::runtime::watcher::Event;

    use super::*;

    fn runner(name: &str) -> Runner {
        let mut runner = Runner::default();
        runner.metadata.name = Some(name.to_owned());
        runner.metadata.uid = Some(format!("uid of {name}"));
        runner
    }

    #[tokio::test]
    async fn a_new_listing_shows_what_came_and_went_once_it_is_stored() {
        let stored = Mutex::new(vec![Arc::new(runner("old")), Arc::new(runner("gone"))]);
        let events: [Event<Runner>; 5] = [
            Event::Init,
            Event::InitApply(runner("old")),
            Event::InitApply(runner("new")),
            Event::InitDone,
            Event::Delete(runner("old")),
        ];
        // The store is exchanged before the end of a listing is passed on.
        let events = futures::stream::iter(events).map(|event| {
            if matches!(event, Event::InitDone) {
                *stored.lock().unwrap() = vec![Arc::new(runner("old")), Arc::new(runner("new"))];
            }
            Ok::<_, watcher::Error>(event)
        });
        let seen: Vec<String> =
            changed(events, || stored.lock().unwrap().clone()).map(|object| object.unwrap().name_any()).collect().await;
        assert_eq!(seen, ["gone", "old", "new", "old"]);
    }
}
