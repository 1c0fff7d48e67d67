//! Pools, runners and failures.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use pacer_api::condition::ConditionType;
use pacer_api::names::annotation;
use pacer_api::{HorizontalRunnerAutoscaler, RunnerReplicaSet};
use pacer_cluster::object::Uid;
use pacer_cluster::owner::controller;

use super::ledger::RunningJobs;
use super::{Cause, Counts, Failure, Pool, Reason, Runner, Section, Trouble};
use crate::metrics::Sources;
use crate::pod::is_registration_only;
use crate::standing::{Standing, State};
use crate::stores::Stores;
use crate::target::{Target, TargetRef, owner_of};

/// Key of a pool.
pub(super) fn key(target: &TargetRef) -> String {
    format!("{}/{}/{}", target.kind.as_str(), target.namespace, target.name)
}

/// Which pool the runners of a RunnerReplicaSet belong to: by namespace and name.
pub(super) struct Sets(HashMap<(String, String), String>);

impl Sets {
    pub(super) fn of(stores: &Stores) -> Self {
        let of = |set: &Arc<RunnerReplicaSet>| {
            let (namespace, name) = (set.namespace().unwrap_or_default(), set.name_any());
            let alone = || format!("RunnerReplicaSet/{namespace}/{name}");
            let pool = owner_of(set).map_or_else(alone, |owner| key(&owner.target));
            ((namespace, name), pool)
        };
        Self(stores.sets.state().iter().map(of).collect())
    }

    pub(super) fn pool(&self, namespace: &str, set: Option<&str>) -> Option<String> {
        self.0.get(&(namespace.to_owned(), set?.to_owned())).cloned()
    }
}

/// All runners but registration-only ones.
pub(super) fn runners(sources: &Sources, sets: &Sets, jobs: &RunningJobs) -> Section<Runner> {
    let mut all = sources.stores.runners.state();
    all.retain(|runner| !is_registration_only(runner));
    let runners = all.iter().map(|runner| {
        let told = told(sources, sets, jobs, runner);
        (format!("{}/{}", told.namespace, told.name), Arc::new(told))
    });
    runners.collect()
}

fn told(sources: &Sources, sets: &Sets, jobs: &RunningJobs, runner: &pacer_api::Runner) -> Runner {
    let (namespace, name) = (runner.namespace().unwrap_or_default(), runner.name_any());
    let created = runner.metadata.creation_timestamp.as_ref().map(|time| time.0).unwrap_or_default();
    let leaving = runner.metadata.deletion_timestamp.as_ref().map(|time| time.0);
    // One that nobody has looked at yet.
    let unknown = || Standing {
        state: if leaving.is_some() { State::Stopping } else { State::Pending },
        since: leaving.unwrap_or(created),
        trouble: None,
    };
    let standing = Uid::of(runner).ok().and_then(|uid| sources.standings.of(&uid)).unwrap_or_else(unknown);
    let pod = sources.stores.pod(&namespace, &name);
    let job = jobs.of(&namespace, &name).filter(|_| matches!(standing.state, State::Busy | State::Offline | State::Stopping));
    Runner {
        pool: sets.pool(&namespace, controller::<RunnerReplicaSet>(runner).map(|owner| owner.name)),
        node: pod.and_then(|pod| pod.facts.node.clone()),
        state: standing.state,
        // Its job's event is earlier than the listing that shows it.
        since: job.as_ref().map_or(standing.since, |job| job.since.min(standing.since)),
        created,
        ephemeral: runner.spec.config.is_ephemeral(),
        protected: runner.annotations().get(annotation::PROTECTED).is_some_and(|value| value == "true"),
        job,
        trouble: standing.trouble.map(|trouble| Trouble {
            situation: trouble.situation.as_str().to_owned(),
            cause: trouble.cause.as_str().to_owned(),
            message: trouble.message.clone(),
            since: trouble.since,
        }),
        namespace,
        name,
    }
}

/// Who scales which pool; of several the first by name.
pub(super) fn scalers(stores: &Stores) -> BTreeMap<TargetRef, Arc<HorizontalRunnerAutoscaler>> {
    let mut all = stores.autoscalers.state();
    all.sort_by_key(|one| std::cmp::Reverse(one.name_any()));
    all.into_iter().filter_map(|one| Some((TargetRef::of(&one)?, one))).collect()
}

/// All pools, with their runners counted.
pub(super) fn pools(
    sources: &Sources,
    scalers: &BTreeMap<TargetRef, Arc<HorizontalRunnerAutoscaler>>,
    runners: &Section<Runner>,
) -> Section<Pool> {
    let mut counts: HashMap<&str, Counts> = HashMap::new();
    for runner in runners.values() {
        if let Some(pool) = &runner.pool {
            counts.entry(pool).or_default().add(runner.state);
        }
    }
    let stores = &sources.stores;
    let of_target = |target: &Target| {
        let reference = target.reference();
        let key = key(&reference);
        let counts = counts.get(key.as_str()).copied().unwrap_or_default();
        let (scaler, sets) = (scalers.get(&reference), stores.sets_of(target));
        let bound =
            |field: fn(&HorizontalRunnerAutoscaler) -> Option<i32>| field(scaler?).and_then(|number| u32::try_from(number).ok());
        let memo = scaler.and_then(|scaler| sources.autoscalers.read(&Uid::of(&**scaler).ok()?, |memo| memo.waits().quantiles()));
        let pool = Pool {
            kind: reference.kind.as_str().to_owned(),
            namespace: reference.namespace,
            name: reference.name,
            labels: target.labels_in(sets.iter().map(|set| &**set)).into_iter().map(str::to_owned).collect(),
            min: bound(|scaler| scaler.spec.min_replicas),
            max: bound(|scaler| scaler.spec.max_replicas),
            desired: target.replicas(),
            actual: counts.alive(),
            counts,
            autoscaler: scaler.map(|scaler| scaler.name_any()),
            policies: stores.policy_set_of_target(target),
            limit: scaler.and_then(|scaler| condition(scaler, ConditionType::Scaling)).map(said),
            online_after: memo.flatten(),
        };
        (key, Arc::new(pool))
    };
    let of_set = |set: &Arc<RunnerReplicaSet>| {
        let (namespace, name) = (set.namespace().unwrap_or_default(), set.name_any());
        let key = format!("RunnerReplicaSet/{namespace}/{name}");
        let counts = counts.get(key.as_str()).copied().unwrap_or_default();
        let pool = Pool {
            kind: "RunnerReplicaSet".to_owned(),
            namespace,
            name,
            labels: set.spec.template.spec.config.labels().to_vec(),
            desired: set.spec.replicas_or_default(),
            actual: counts.alive(),
            counts,
            policies: stores.policy_set_of(set),
            ..Pool::default()
        };
        (key, Arc::new(pool))
    };
    let alone = stores.sets.state_filter(|set| owner_of(set).is_none());
    stores.targets().iter().map(of_target).chain(alone.iter().map(of_set)).collect()
}

/// A condition of an autoscaler.
pub(super) fn condition(autoscaler: &HorizontalRunnerAutoscaler, type_: ConditionType) -> Option<&Condition> {
    autoscaler.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == type_.as_str())
}

/// What a condition says.
pub(super) fn said(condition: &Condition) -> Reason {
    Reason { word: condition.reason.clone(), text: condition.message.clone() }
}

impl Counts {
    /// One more in this state.
    pub fn add(&mut self, state: State) {
        let count = match state {
            State::Pending => &mut self.pending,
            State::Starting => &mut self.starting,
            State::Idle => &mut self.idle,
            State::Busy => &mut self.busy,
            State::Offline => &mut self.offline,
            State::Ended => &mut self.ended,
            State::Quarantined => &mut self.quarantined,
            State::Stopping => &mut self.stopping,
        };
        *count = count.saturating_add(1);
    }

    /// Runners that are not on their way out.
    #[must_use]
    pub fn alive(&self) -> u32 {
        [self.pending, self.starting, self.idle, self.busy, self.offline, self.ended, self.quarantined]
            .into_iter()
            .fold(0, u32::saturating_add)
    }
}

/// The newest failures, and all of them by cause.
pub(super) fn failures(sources: &Sources, sets: &Sets, runners: &Section<Runner>) -> (Section<Failure>, Section<Cause>) {
    let failures = sources.standings.failures();
    let told = failures.iter().map(|failure| {
        let told = Failure {
            at: failure.trouble.since,
            namespace: failure.namespace.clone(),
            runner: failure.runner.clone(),
            pool: sets.pool(&failure.namespace, failure.set.as_deref()).unwrap_or_default(),
            situation: failure.trouble.situation.as_str().to_owned(),
            cause: failure.trouble.cause.as_str().to_owned(),
            message: failure.trouble.message.clone(),
        };
        (super::grown(failure.number), Arc::new(told))
    });
    let mut causes: BTreeMap<String, Cause> = BTreeMap::new();
    for (cause, tally) in sources.standings.tallies() {
        let cause = Cause { cause: cause.to_owned(), now: 0, total: tally.total, last: Some(tally.last) };
        causes.insert(cause.cause.clone(), cause);
    }
    for trouble in runners.values().filter_map(|runner| runner.trouble.as_ref()) {
        let none = || Cause { cause: trouble.cause.clone(), now: 0, total: 0, last: None };
        let cause = causes.entry(trouble.cause.clone()).or_insert_with(none);
        cause.now = cause.now.saturating_add(1);
    }
    (told.collect(), causes.into_iter().map(|(key, cause)| (key, Arc::new(cause))).collect())
}
