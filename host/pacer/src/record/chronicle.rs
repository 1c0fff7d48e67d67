//! From objects as they are to records of what happened.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use pacer_api::autoscaler::{ScaleTargetKind, ScaleUpTrigger, ScheduledOverride};
use pacer_api::condition::{self, ConditionType, Verdict};
use pacer_api::names::{annotation, label};
use pacer_api::runner_set::ClaimRetention;
use pacer_api::{HorizontalRunnerAutoscaler, JobLedger, Runner};
use pacer_cluster::watch::Range;
use pacer_core::ledger::State;
use pacer_core::phase::Cause;
use pacer_core::room;
use pacer_core::schedule::{self, Override};
use pacer_operator::target::{Target, TargetRef};
use pacer_policy::{Chosen, Decision, NO_SETTINGS};
use pacer_policyset::PolicySets;
use pacer_trace::surroundings::Room;
use pacer_trace::{About, End, History, PoolKind, PoolName, PoolSettings, Record, What};

/// Jobs that are remembered, beyond those in ledgers: the oldest that are over go first.
const REMEMBERED: usize = 100_000;

/// A step that is seen so soon after the second in which it was made was seen as it happened.
const LIVE: SignedDuration = SignedDuration::from_secs(3);

/// The last moment of a second.
const WITHIN: SignedDuration = SignedDuration::from_millis(999);

/// How often it is told at most how many runners of a pool have no room, while some have none.
const ROOM: SignedDuration = SignedDuration::from_secs(10);

/// Longest message of the cluster that is told, in characters.
const MESSAGE: usize = 300;

/// Settings of the operator that its objects do not tell.
#[derive(Clone, Debug)]
pub(crate) struct Defaults {
    pub(crate) idle_confirmation: Option<Duration>,
    pub(crate) scale_down_delay: Duration,
    /// Labels of all runners.
    pub(crate) labels: Vec<Arc<str>>,
    /// Most runners by which the number of a pool is raised within a minute; as many as are wanted when absent.
    pub(crate) ramp: Option<NonZeroU32>,
    /// The policies that decide, where the recorder is in the process that asks them.
    pub(crate) policies: Option<Arc<PolicySets>>,
}

impl Defaults {
    /// The policy that plans the capacity of a pool which asks for this set, where that is not the shipped one as it is.
    fn capacity_policy(&self, pool: &str, set: Option<&str>) -> Option<Arc<str>> {
        let generation = self.policies.as_ref()?.generation_for(PoolName::of(pool).namespace, set);
        let assignment = generation.assignment(Decision::Capacity);
        match assignment.chosen {
            Chosen::Shipped | Chosen::Native if *assignment.settings == *NO_SETTINGS => None,
            Chosen::Shipped | Chosen::Native | Chosen::Policy(_) => Some(Arc::from(assignment.policy())),
        }
    }
}

#[derive(Debug)]
struct Autoscaler {
    pool: Arc<str>,
    spec: PoolSettings,
    overrides: Vec<Override>,
    desired: Option<u32>,
}

impl Autoscaler {
    /// The minimum in force: that of the override that holds, or its own.
    fn min(&self, now: Timestamp) -> u32 {
        let schedule = schedule::evaluate(&self.overrides, now).ok();
        schedule.and_then(|schedule| schedule.min_replicas(&self.overrides)).unwrap_or(self.spec.min)
    }
}

#[derive(Clone, Debug)]
struct KnownRunner {
    pool: Arc<str>,
    created: Timestamp,
    registered: bool,
    worked: bool,
    node: Option<Arc<str>>,
    /// What the cluster says while it has no room for its pod.
    without_room: Option<Arc<str>>,
}

/// What was recorded so far.
#[derive(Debug)]
pub(super) struct Chronicle {
    defaults: Defaults,
    /// By `namespace/name`.
    autoscalers: BTreeMap<String, Autoscaler>,
    targets: BTreeMap<Arc<str>, PoolSettings>,
    /// As they were recorded.
    pools: BTreeMap<Arc<str>, PoolSettings>,
    /// When a pool's number was lowered last.
    lowered: BTreeMap<Arc<str>, Timestamp>,
    jobs: BTreeMap<u64, State>,
    /// Runners that exist, by name.
    runners: BTreeMap<Arc<str>, KnownRunner>,
    /// What was recorded of the room for a pool, and when.
    rooms: BTreeMap<Arc<str>, (Timestamp, Room)>,
    /// Pools for whose runners there may be more or less room than was recorded.
    stirred: BTreeSet<Arc<str>>,
    news: Vec<Record>,
}

impl Chronicle {
    pub(super) fn new(defaults: Defaults) -> Self {
        Self {
            defaults,
            autoscalers: BTreeMap::new(),
            targets: BTreeMap::new(),
            pools: BTreeMap::new(),
            lowered: BTreeMap::new(),
            jobs: BTreeMap::new(),
            runners: BTreeMap::new(),
            rooms: BTreeMap::new(),
            stirred: BTreeSet::new(),
            news: Vec::new(),
        }
    }

    /// Goes on after what a trace holds of the namespaces that are watched now: of the others nobody can tell what still exists.
    pub(super) fn resumed(defaults: Defaults, history: &History, watched: Range<'_>) -> Self {
        let mut chronicle = Self::new(defaults);
        for (id, job) in &history.jobs {
            let state = match (job.completed, job.started) {
                (Some(_), _) => State::Completed,
                (None, Some(_)) => State::InProgress,
                (None, None) => State::Queued,
            };
            chronicle.jobs.insert(*id, state);
        }
        let worked: BTreeSet<&Arc<str>> = history.jobs.values().filter_map(|job| job.runner.as_ref()).collect();
        for (name, life) in history.runners.iter().filter(|(_, life)| life.ended.is_none()) {
            let (registered, worked) = (life.registered.is_some(), worked.contains(name));
            let (pool, created, node) = (life.pool.clone(), life.created, life.node.clone());
            let known = KnownRunner { pool, created, registered, worked, node, without_room: None };
            chronicle.runners.insert(name.clone(), known);
        }
        for (name, pool) in &history.pools {
            if let Some((_, settings)) = pool.settings.last() {
                chronicle.pools.insert(name.clone(), settings.clone());
            }
        }
        for (pool, told) in &history.surroundings.room {
            chronicle.rooms.extend(told.last().map(|last| (pool.clone(), last.clone())));
        }
        let is_watched = |pool: &Arc<str>| watched.has(PoolName::of(pool).namespace);
        chronicle.pools.retain(|pool, _| is_watched(pool));
        chronicle.rooms.retain(|pool, _| is_watched(pool));
        chronicle.runners.retain(|_, known| is_watched(&known.pool));
        chronicle
    }

    /// What is to be written.
    pub(super) fn news(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.news)
    }

    /// The same, learned just now. Before what happened earlier stands a checkpoint, which says that nobody knew of it until then.
    pub(super) fn learned(&mut self, now: Timestamp) -> Vec<Record> {
        let news = self.news();
        let is_late = news.iter().any(|record| now.duration_since(record.at) >= LIVE);
        is_late.then_some(Record { at: now, what: What::Checkpoint {} }).into_iter().chain(news).collect()
    }

    fn say(&mut self, at: Timestamp, what: What) {
        self.news.push(Record { at, what });
    }

    pub(super) fn target(&mut self, target: &Target, now: Timestamp) {
        let (config, replicas) = (target.config(), target.replicas());
        let pool = named(&target.reference());
        let set = match target {
            Target::Set(set) => Some(set),
            Target::Deployment(_) => None,
        };
        let settings = PoolSettings {
            pool: pool.clone(),
            labels: config.labels().iter().map(|label| Arc::from(label.as_str())).chain(self.defaults.labels.clone()).collect(),
            ephemeral: config.is_ephemeral(),
            min: replicas,
            max: replicas,
            replicas,
            policies: target.policies().cloned(),
            scope: config.scope().ok().map(|scope| Arc::from(scope.to_string())),
            volumes: set.map_or(0, |set| {
                u32::try_from(set.spec.stateful.volume_claim_templates.iter().flatten().count()).unwrap_or(u32::MAX)
            }),
            surplus_volumes_deleted: set.is_some_and(|set| set.spec.claims_when_scaled() == ClaimRetention::Delete),
            ..PoolSettings::default()
        };
        self.targets.insert(pool.clone(), settings);
        self.settings(&pool, now);
    }

    pub(super) fn autoscaler(&mut self, autoscaler: &HorizontalRunnerAutoscaler, now: Timestamp) {
        let namespace = autoscaler.namespace().unwrap_or_default();
        let Some(target) = TargetRef::of(autoscaler) else { return };
        let pool = named(&target);
        let spec = &autoscaler.spec;
        let trigger = spec.workflow_job_trigger();
        let life = trigger.and_then(|trigger| trigger.duration_or_default().ok()).unwrap_or(ScaleUpTrigger::DEFAULT_DURATION);
        let delay = spec.scale_down_delay_seconds_after_scale_out.and_then(|seconds| u64::try_from(seconds).ok());
        let status = autoscaler.status.as_ref();
        let desired = status.and_then(|status| status.desired_replicas).and_then(|number| u32::try_from(number).ok());
        let conditions = status.map(|status| status.conditions.as_slice()).unwrap_or_default();
        let accepted = condition::find(conditions, ConditionType::Accepted);
        let mut unrecorded = Vec::new();
        for (field, given) in [
            ("metrics", spec.metrics.as_ref().is_some_and(|all| !all.is_empty())),
            ("capacityReservations", spec.capacity_reservations.as_ref().is_some_and(|all| !all.is_empty())),
        ] {
            if given {
                unrecorded.push(field.to_owned());
            }
        }
        let settings = PoolSettings {
            pool: pool.clone(),
            // As the operator reads them: a negative minimum counts as 1, a negative maximum as 0.
            min: spec.min_replicas.map_or(0, |min| u32::try_from(min).unwrap_or(1)),
            max: spec.max_replicas.map_or(0, |max| u32::try_from(max).unwrap_or(0)),
            scale_down_delay_seconds: delay.unwrap_or(self.defaults.scale_down_delay.as_secs()),
            job_life_seconds: life.as_secs(),
            webhooks: trigger.is_some(),
            idle_confirmation_seconds: self.defaults.idle_confirmation.map(|time| time.as_secs()),
            policies: autoscaler.annotations().get(annotation::POLICIES).cloned(),
            ramp_per_minute: self.defaults.ramp,
            refused: accepted.is_some_and(|accepted| accepted.status == Verdict::False.as_str()),
            unrecorded,
            ..PoolSettings::default()
        };
        let key = format!("{namespace}/{}", autoscaler.name_any());
        // The operator lowers nothing, and keeps the number, where one of them makes no sense.
        let overrides = spec.scheduled_overrides.iter().flatten().map(ScheduledOverride::read).collect::<Result<Vec<_>, _>>();
        let overrides = overrides.unwrap_or_default();
        let before = self.autoscalers.insert(key, Autoscaler { pool: pool.clone(), spec: settings, overrides, desired });
        self.settings(&pool, now);
        // What it decides first is a change from the number that the target had.
        let had = || self.pools.get(&pool).map(|settings| settings.replicas);
        if let (Some(from), Some(to)) = (before.and_then(|before| before.desired.or_else(had)), desired)
            && from != to
        {
            let scaling = condition::find(conditions, ConditionType::Scaling);
            let why = scaling.map(|condition| condition.message.clone()).unwrap_or_default();
            if to < from {
                self.lowered.insert(pool.clone(), now);
            }
            self.say(now, What::Decision { pool, from, to, why });
        }
    }

    /// Records which scheduled overrides have begun or ended, for no object changes then; and how much room there is now, so that a hundred pods
    /// that find none are not told one by one.
    pub(super) fn time_passes(&mut self, now: Timestamp) {
        for pool in std::mem::take(&mut self.stirred) {
            self.room(pool, now);
        }
        let scheduled = self.autoscalers.values().filter(|autoscaler| !autoscaler.overrides.is_empty());
        let pools: Vec<Arc<str>> = scheduled.map(|autoscaler| autoscaler.pool.clone()).collect();
        pools.iter().for_each(|pool| self.settings(pool, now));
    }

    /// Records which policies plan capacity from now on.
    pub(super) fn policies_changed(&mut self, now: Timestamp) {
        let pools: BTreeSet<Arc<str>> = self.autoscalers.values().map(|autoscaler| autoscaler.pool.clone()).collect();
        pools.iter().for_each(|pool| self.settings(pool, now));
    }

    /// Without its autoscaler a pool keeps its number.
    pub(super) fn autoscaler_gone(&mut self, key: &str, now: Timestamp) {
        if let Some(gone) = self.autoscalers.remove(key) {
            self.settings(&gone.pool, now);
        }
    }

    /// These autoscalers exist, each `namespace/name`, and no others.
    pub(super) fn autoscalers_are(&mut self, listed: &BTreeSet<String>, now: Timestamp) {
        let gone: Vec<String> = self.autoscalers.keys().filter(|key| !listed.contains(*key)).cloned().collect();
        gone.iter().for_each(|key| self.autoscaler_gone(key, now));
    }

    /// These pools of a kind exist, and no others of that kind.
    pub(super) fn targets_are(&mut self, kind: PoolKind, listed: &BTreeSet<String>, now: Timestamp) {
        let is_gone = |pool: &Arc<str>| PoolName::of(pool).kind == kind && !listed.contains(pool.as_ref());
        let gone: Vec<Arc<str>> = self.pools.keys().filter(|pool| is_gone(pool)).cloned().collect();
        gone.into_iter().for_each(|pool| self.pool_gone(pool, now));
    }

    pub(super) fn target_gone(&mut self, target: &TargetRef, now: Timestamp) {
        self.pool_gone(named(target), now);
    }

    /// Nothing is wanted any more of a pool that is gone, and nobody decides about it.
    fn pool_gone(&mut self, pool: Arc<str>, now: Timestamp) {
        self.targets.remove(&pool);
        self.lowered.remove(&pool);
        let Some(known) = self.pools.remove(&pool) else { return };
        let gone = PoolSettings { pool, labels: known.labels.clone(), ephemeral: known.ephemeral, ..PoolSettings::default() };
        // A trace that is continued may contain this already.
        if gone != known {
            self.say(now, What::Pool(gone));
        }
    }

    /// Records what is in force for a pool, if that is news. Its number alone is none.
    fn settings(&mut self, pool: &Arc<str>, now: Timestamp) {
        let Some(of_target) = self.targets.get(pool) else { return };
        let settings = match self.autoscalers.values().find(|autoscaler| autoscaler.pool == *pool) {
            Some(autoscaler) => {
                let policies = autoscaler.spec.policies.clone().or_else(|| of_target.policies.clone());
                PoolSettings {
                    min: autoscaler.min(now),
                    labels: of_target.labels.clone(),
                    ephemeral: of_target.ephemeral,
                    replicas: of_target.replicas,
                    scope: of_target.scope.clone(),
                    volumes: of_target.volumes,
                    surplus_volumes_deleted: of_target.surplus_volumes_deleted,
                    capacity_policy: self.defaults.capacity_policy(pool, policies.as_deref()),
                    policies,
                    ..autoscaler.spec.clone()
                }
            }
            None => of_target.clone(),
        };
        let known = self.pools.get(pool).map(|known| PoolSettings { replicas: settings.replicas, ..known.clone() });
        if known.as_ref() != Some(&settings) {
            self.pools.insert(pool.clone(), settings.clone());
            self.say(now, What::Pool(settings));
        }
    }

    pub(super) fn jobs(&mut self, ledger: &JobLedger, now: Timestamp) {
        let key = format!("{}/{}", ledger.namespace().unwrap_or_default(), ledger.spec.autoscaler);
        let pool = self.autoscalers.get(&key).map(|autoscaler| autoscaler.pool.clone());
        for (id, job) in ledger.spec.all() {
            let known = self.jobs.get(&id).copied();
            if known.is_some_and(|known| known >= job.state) {
                continue;
            }
            let runner = job.runner.clone();
            if known.is_none() {
                let about = About {
                    repository: job.about.repository.clone(),
                    workflow: job.about.workflow.clone(),
                    labels: job.about.labels.clone(),
                    attempt: job.about.attempt,
                    pool: pool.clone(),
                };
                let at = if job.state == State::Queued { exact(job.queued, now) } else { job.queued };
                self.say(at, What::JobQueued { job: id, about });
            }
            match job.state {
                State::Queued => {}
                State::InProgress => {
                    let at = exact(job.since, now);
                    self.say(at, What::JobStarted { job: id, runner: runner.clone() });
                    self.work(runner, at);
                }
                State::Completed => {
                    if let (Some(runner), true) = (&runner, known != Some(State::InProgress)) {
                        self.say(job.since, What::JobAssigned { job: id, runner: runner.clone() });
                    }
                    self.say(exact(job.since, now), What::JobCompleted { job: id });
                    if let Some(known) = runner.as_ref().and_then(|runner| self.runners.get_mut(runner)) {
                        known.worked = true;
                    }
                }
            }
            self.jobs.insert(id, job.state);
        }
        while self.jobs.len() > REMEMBERED {
            let Some(oldest) = self.jobs.iter().find(|(_, state)| **state == State::Completed).map(|(id, _)| *id) else { break };
            self.jobs.remove(&oldest);
        }
    }

    /// A runner has a job.
    fn work(&mut self, runner: Option<Arc<str>>, at: Timestamp) {
        let Some(runner) = runner else { return };
        let Some(known) = self.runners.get_mut(&runner) else { return };
        known.worked = true;
        self.say(at, What::RunnerBusy { runner });
    }

    pub(super) fn runner(&mut self, runner: &Runner, now: Timestamp) {
        let Some(of) = target_of(runner) else { return };
        if runner.annotations().contains_key(annotation::REGISTRATION_ONLY) {
            return;
        }
        let name: Arc<str> = Arc::from(runner.name_any());
        let created = runner.metadata.creation_timestamp.as_ref().map_or(now, |time| exact(time.0, now));
        if !self.runners.contains_key(&name) {
            let pool = named(&of);
            let known =
                KnownRunner { pool: pool.clone(), created, registered: false, worked: false, node: None, without_room: None };
            self.runners.insert(name.clone(), known);
            self.say(created, What::RunnerCreated { runner: name.clone(), pool });
        }
        self.place(&name, runner, now);
        let registered = runner.status.as_ref().and_then(|status| status.registered_at.as_ref());
        if let (Some(registered), Some(known)) = (registered, self.runners.get_mut(&name))
            && !known.registered
        {
            known.registered = true;
            self.say(exact(registered.0, now), What::RunnerRegistered { runner: name });
        }
    }

    /// The node of its pod, or that there is none for it.
    fn place(&mut self, name: &Arc<str>, runner: &Runner, now: Timestamp) {
        let (Some(known), Some(status)) = (self.runners.get_mut(name), runner.status.as_ref()) else { return };
        let reason = status.reason.as_deref().filter(|reason| is_lack_of_room(reason));
        let without_room = reason.map(|_| Arc::from(status.message.as_deref().unwrap_or_default()));
        if known.without_room != without_room {
            known.without_room = without_room;
            self.stirred.insert(known.pool.clone());
        }
        let node = status.node_name.as_deref().filter(|node| !node.is_empty());
        if let Some(node) = node.filter(|node| known.node.as_deref() != Some(node)) {
            let node: Arc<str> = Arc::from(node);
            known.node = Some(node.clone());
            self.say(now, What::RunnerPlaced { runner: name.clone(), node });
        }
    }

    /// Records how much room there is for a pool's runners, if that is news; how many wait, at most every ten seconds.
    fn room(&mut self, pool: Arc<str>, now: Timestamp) {
        let of_pool = self.runners.values().filter(|known| known.pool == pool);
        let messages: Vec<&Arc<str>> = of_pool.filter_map(|known| known.without_room.as_ref()).collect();
        let lacking: BTreeSet<&str> = messages.iter().flat_map(|message| room::lacking(message)).collect();
        let message = messages.first().map(|message| message.chars().take(MESSAGE).collect()).unwrap_or_default();
        let waiting = u32::try_from(messages.len()).unwrap_or(u32::MAX);
        let fresh = Room { pool: pool.clone(), waiting, lacking: lacking.into_iter().map(Arc::from).collect(), message };
        match self.rooms.get(&pool) {
            None if waiting == 0 => return,
            Some((_, told)) if (told.waiting, &told.lacking) == (waiting, &fresh.lacking) => return,
            Some((at, told)) if told.waiting > 0 && waiting > 0 && now.duration_since(*at) < ROOM => {
                self.stirred.insert(pool);
                return;
            }
            _ => {}
        }
        self.rooms.insert(pool, (now, fresh.clone()));
        self.say(now, What::Room(fresh));
    }

    /// Nodes of the runners that exist.
    pub(super) fn nodes(&self) -> BTreeSet<Arc<str>> {
        self.runners.values().filter_map(|known| known.node.clone()).collect()
    }

    pub(super) fn runner_gone(&mut self, name: &str, now: Timestamp) {
        let Some((name, known)) = self.runners.remove_entry(name) else { return };
        if known.without_room.is_some() {
            self.stirred.insert(known.pool.clone());
        }
        let lowered = self.lowered.get(&known.pool).is_some_and(|lowered| *lowered > known.created);
        let why = match (known.worked, known.registered) {
            (true, _) => End::Finished,
            (false, true) => End::Removed,
            // It may have been given up because fewer are wanted.
            (false, false) if lowered => End::Unknown,
            (false, false) => End::Failed,
        };
        self.say(now, What::RunnerEnded { runner: name, why });
    }

    /// These runners exist, and no others.
    pub(super) fn runners_are(&mut self, listed: &BTreeSet<String>, now: Timestamp) {
        let gone: Vec<Arc<str>> = self.runners.keys().filter(|name| !listed.contains(name.as_ref())).cloned().collect();
        gone.iter().for_each(|name| self.runner_gone(name, now));
        // What was recorded before a gap may be so no longer.
        self.stirred.extend(self.rooms.keys().cloned());
    }
}

/// What a pool is called in a trace.
pub(super) fn named(target: &TargetRef) -> Arc<str> {
    let kind = match target.kind {
        ScaleTargetKind::RunnerDeployment => PoolKind::RunnerDeployment,
        ScaleTargetKind::RunnerSet => PoolKind::RunnerSet,
    };
    Arc::from(PoolName { kind, namespace: &target.namespace, name: &target.name }.to_string())
}

/// What a runner was made for, as its labels say.
pub(super) fn target_of(runner: &Runner) -> Option<TargetRef> {
    let labels = runner.labels();
    let deployment = labels.get(label::RUNNER_DEPLOYMENT_NAME).map(|name| (ScaleTargetKind::RunnerDeployment, name));
    let set = || labels.get(label::RUNNER_SET_NAME).map(|name| (ScaleTargetKind::RunnerSet, name));
    let (kind, name) = deployment.or_else(set)?;
    Some(TargetRef { kind, namespace: runner.namespace().unwrap_or_default(), name: name.clone() })
}

/// Whether a word of a Runner's status says that the cluster has no room for its pod.
fn is_lack_of_room(reason: &str) -> bool {
    [Cause::Unschedulable, Cause::Quota].iter().any(|cause| cause.as_str() == reason)
}

/// A moment that an object tells by its second, as exactly as known: when it was seen, where it was seen as it happened, and not after the second
/// that was told.
fn exact(told: Timestamp, now: Timestamp) -> Timestamp {
    let ago = now.duration_since(told);
    if (SignedDuration::ZERO..LIVE).contains(&ago) { told.saturating_add(ago.min(WITHIN)).unwrap_or(now) } else { told }
}

#[cfg(test)]
mod tests {
    use pacer_api::{RunnerDeployment, RunnerSet};
    use serde_json::json;

    use super::super::fixture;
    use super::*;

    fn chronicle() -> Chronicle {
        Chronicle::new(Defaults { labels: vec!["all".into()], ..fixture::defaults() })
    }

    fn kinds(chronicle: &mut Chronicle) -> Vec<String> {
        let kind = |record: Record| serde_json::to_value(record).unwrap()["kind"].as_str().unwrap().to_owned();
        chronicle.news().into_iter().map(kind).collect()
    }

    fn scene() -> Chronicle {
        let mut chronicle = chronicle();
        let deployment: RunnerDeployment = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "ci"},
            "spec": {"replicas": 2, "template": {"spec": {"repository": "acme/app", "labels": ["web"]}}},
        }))
        .unwrap();
        chronicle.target(&Target::Deployment(deployment.into()), Timestamp::UNIX_EPOCH);
        chronicle
    }

    #[test]
    fn runner_set_is_a_pool_beside_the_deployment_of_its_name() {
        let mut chronicle = scene();
        let set: RunnerSet = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "ci"},
            "spec": {
                "replicas": 1, "repository": "acme/app", "labels": ["cached"], "ephemeral": true,
                "selector": {"matchLabels": {"app": "web"}}, "serviceName": "web", "template": {"metadata": {"labels": {"app": "web"}}},
            },
        }))
        .unwrap();
        let set = Target::Set(set.into());
        let mut scaler = autoscaler(3);
        scaler.spec.scale_target_ref.as_mut().unwrap().kind = Some(ScaleTargetKind::RunnerSet);
        let mut runner = runner(false);
        runner.metadata.labels = Some([("runnerset-name".to_owned(), "web".to_owned())].into());
        chronicle.target(&set, Timestamp::UNIX_EPOCH);
        chronicle.autoscaler(&scaler, Timestamp::UNIX_EPOCH);
        chronicle.runner(&runner, Timestamp::UNIX_EPOCH);
        let told: Vec<(String, u32)> = chronicle
            .news()
            .into_iter()
            .filter_map(|record| match record.what {
                What::Pool(settings) => Some((format!("{} {}", settings.pool, settings.labels.join(",")), settings.max)),
                What::RunnerCreated { runner, pool } => Some((format!("{runner} of {pool}"), 0)),
                _ => None,
            })
            .collect();
        let expected = [
            ("ci/web web,all", 2),
            ("ci/runnerset/web cached,all", 1),
            ("ci/runnerset/web cached,all", 9),
            ("web-a of ci/runnerset/web", 0),
        ];
        assert_eq!(told, expected.map(|(pool, max)| (pool.to_owned(), max)));
        chronicle.target_gone(&set.reference(), Timestamp::UNIX_EPOCH);
        chronicle.autoscaler(&autoscaler(4), Timestamp::UNIX_EPOCH);
        let news = chronicle.news();
        let [Record { what: What::Pool(gone), .. }, Record { what: What::Pool(other), .. }, ..] = news.as_slice() else {
            panic!("{news:?}")
        };
        assert_eq!((gone.pool.as_ref(), gone.max, gone.is_autoscaled()), ("ci/runnerset/web", 0, false));
        assert_eq!((other.pool.as_ref(), other.max), ("ci/web", 9), "the autoscaler has another target by now");
    }

    fn autoscaler(desired: u32) -> HorizontalRunnerAutoscaler {
        serde_json::from_value(json!({
            "metadata": {"name": "scaler", "namespace": "ci"},
            "spec": {
                "scaleTargetRef": {"name": "web"}, "minReplicas": 1, "maxReplicas": 9, "metrics": [{"type": "x"}],
                "scaleUpTriggers": [{"githubEvent": {"workflowJob": {}}, "duration": "30m"}],
            },
            "status": {"desiredReplicas": desired},
        }))
        .unwrap()
    }

    fn ledger(fields: &serde_json::Value) -> JobLedger {
        serde_json::from_value(json!({
            "metadata": {"name": "scaler-0", "namespace": "ci"},
            "spec": {
                "autoscaler": "scaler",
                "workflows": {"w": {"repository": "acme/app", "name": "build", "labels": ["web"]}},
                "jobs": {"7": fields},
            },
        }))
        .unwrap()
    }

    fn runner(registered: bool) -> Runner {
        let status = if registered { json!({"registeredAt": "2026-01-01T00:00:20Z"}) } else { json!({}) };
        serde_json::from_value(json!({
            "metadata": {
                "name": "web-a", "namespace": "ci", "creationTimestamp": "2026-01-01T00:00:10Z",
                "labels": {"runner-deployment-name": "web"},
            },
            "spec": {"repository": "acme/app"}, "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn what_happens_is_told_once() {
        let now = Timestamp::now();
        let mut chronicle = scene();
        chronicle.autoscaler(&autoscaler(1), now);
        chronicle.autoscaler(&autoscaler(1), now);
        chronicle.autoscaler(&autoscaler(3), now);
        assert_eq!(kinds(&mut chronicle), ["pool", "pool", "decision"]);
        let settings = chronicle.pools["ci/web"].clone();
        assert_eq!((settings.min, settings.max, settings.job_life_seconds, settings.webhooks), (1, 9, 1_800, true));
        assert_eq!((settings.unrecorded, settings.labels), (vec!["metrics".to_owned()], vec!["web".into(), "all".into()]));
        chronicle.runner(&runner(false), now);
        chronicle.runner(&runner(true), now);
        chronicle.runner(&runner(true), now);
        assert_eq!(kinds(&mut chronicle), ["runner-created", "runner-registered"]);
        let queued = json!({"workflow": "w", "queued": "2026-01-01T00:00:05Z"});
        let started =
            json!({"workflow": "w", "queued": "2026-01-01T00:00:05Z", "started": "2026-01-01T00:00:21Z", "runner": "web-a"});
        let ended =
            json!({"workflow": "w", "queued": "2026-01-01T00:00:05Z", "ended": "2026-01-01T00:01:21Z", "runner": "web-a"});
        for fields in [&queued, &queued, &started, &ended, &started, &ended] {
            chronicle.jobs(&ledger(fields), now);
        }
        chronicle.runner_gone("web-a", now);
        chronicle.runner_gone("web-a", now);
        assert_eq!(kinds(&mut chronicle), ["job-queued", "job-started", "runner-busy", "job-completed", "runner-ended"]);
    }

    #[test]
    fn where_a_runner_is_and_what_there_is_no_room_for_is_told_when_it_changes() {
        let start = Timestamp::from_second(1_800_000_000).unwrap();
        let at = |seconds| start + SignedDuration::from_secs(seconds);
        let mut chronicle = scene();
        let named = |name: &str, status: serde_json::Value| {
            let mut runner = runner(false);
            runner.metadata.name = Some(name.to_owned());
            runner.status = serde_json::from_value(status).unwrap();
            runner
        };
        let stuck = json!({"reason": "unschedulable", "message": "0/3 nodes are available: 3 Insufficient cpu."});
        let refused = json!({"reason": "quota", "message": "exceeded quota: team"});
        let placed = json!({"nodeName": "n-1"});
        let mut told = |second: i64, runners: &[(&str, &serde_json::Value)], gone: &[&str]| {
            runners.iter().for_each(|(name, status)| chronicle.runner(&named(name, (*status).clone()), at(second)));
            gone.iter().for_each(|name| chronicle.runner_gone(name, at(second)));
            chronicle.time_passes(at(second));
            let tell = |record: Record| match record.what {
                What::RunnerPlaced { runner, node } => Some(format!("{runner} on {node}")),
                What::Room(room) => Some(format!("{} {}", room.waiting, room.lacking.join(" "))),
                _ => None,
            };
            chronicle.news().into_iter().filter_map(tell).collect::<Vec<_>>()
        };
        assert_eq!(told(0, &[("a", &stuck), ("b", &stuck)], &[]), ["2 cpu"]);
        assert_eq!(told(1, &[("a", &stuck), ("c", &stuck)], &[]), [""; 0], "the number alone is told every ten seconds");
        assert_eq!(told(10, &[("a", &placed)], &[]), ["a on n-1"], "as many as before");
        assert_eq!(told(11, &[("a", &placed), ("b", &refused)], &[]), ["2 cpu quota"]);
        assert_eq!(told(12, &[("b", &placed)], &["c"]), ["b on n-1", "0 "]);
        assert_eq!(chronicle.nodes(), BTreeSet::from(["n-1".into()]));

        chronicle.runner(&named("d", stuck.clone()), at(20));
        chronicle.time_passes(at(20));
        let trace = pacer_trace::Trace { header: pacer_trace::Header::new(start), records: chronicle.news() };
        let mut again = Chronicle::resumed(chronicle.defaults.clone(), &History::of(&trace), Range::default());
        again.runners_are(&BTreeSet::new(), at(30));
        again.time_passes(at(30));
        let last = again.news().pop().unwrap().what;
        assert!(matches!(&last, What::Room(Room { waiting: 0, .. })), "there is room again since the gap: {last:?}");
    }

    #[test]
    fn the_minimum_of_a_scheduled_override_is_recorded_while_it_holds() {
        let mut chronicle = scene();
        let mut scheduled = autoscaler(1);
        scheduled.spec.scheduled_overrides = serde_json::from_value(json!([
            {"startTime": "2026-01-01T08:00:00Z", "endTime": "2026-01-01T18:00:00Z", "minReplicas": 5, "recurrenceRule": {"frequency": "Daily"}},
        ]))
        .unwrap();
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        chronicle.autoscaler(&scheduled, at("2026-01-02T07:00:00Z"));
        let _before = chronicle.news();
        let mut minimum = |now: &str| {
            chronicle.time_passes(at(now));
            let told = |record: Record| match record.what {
                What::Pool(settings) => Some((record.at.to_string(), settings.min)),
                _ => None,
            };
            chronicle.news().into_iter().filter_map(told).collect::<Vec<_>>()
        };
        assert!(minimum("2026-01-02T07:59:59Z").is_empty());
        assert_eq!(minimum("2026-01-02T08:00:00Z"), [("2026-01-02T08:00:00Z".to_owned(), 5)]);
        assert!(minimum("2026-01-02T17:59:59Z").is_empty());
        assert_eq!(minimum("2026-01-02T18:00:00Z"), [("2026-01-02T18:00:00Z".to_owned(), 1)]);
        assert!(minimum("2026-01-03T00:00:00Z").is_empty());
    }

    #[test]
    fn a_moment_is_as_exact_as_known() {
        let told = Timestamp::from_second(1_000).unwrap();
        let after = |milliseconds| told + SignedDuration::from_millis(milliseconds);
        for (seen, expected) in [(0, 0), (400, 400), (999, 999), (1_400, 999), (2_900, 999), (3_000, 0), (-5, 0)] {
            assert_eq!(exact(told, after(seen)), after(expected), "seen after {seen} ms");
        }
    }

    #[test]
    fn a_job_whose_start_nobody_saw_is_not_taken_for_one_that_was_called_off() {
        let mut chronicle = scene();
        let fields =
            json!({"workflow": "w", "queued": "2026-01-01T00:00:05Z", "ended": "2026-01-01T00:01:21Z", "runner": "web-a"});
        chronicle.jobs(&ledger(&fields), Timestamp::now());
        assert_eq!(kinds(&mut chronicle), ["pool", "job-queued", "job-assigned", "job-completed"]);
    }

    #[test]
    fn a_runner_that_vanished_unseen_is_gone_when_all_are_listed() {
        let now = Timestamp::now();
        let mut chronicle = scene();
        chronicle.runner(&runner(true), now);
        chronicle.runners_are(&BTreeSet::from(["web-a".to_owned()]), now);
        assert_eq!(kinds(&mut chronicle).len(), 3);
        chronicle.runners_are(&BTreeSet::new(), now);
        assert_eq!(chronicle.news()[0].what, What::RunnerEnded { runner: "web-a".into(), why: End::Removed });
    }

    #[test]
    fn a_recorder_that_goes_on_tells_nothing_again() {
        let now = Timestamp::now();
        let mut chronicle = scene();
        chronicle.autoscaler(&autoscaler(1), now);
        chronicle.runner(&runner(true), now);
        let started =
            json!({"workflow": "w", "queued": "2026-01-01T00:00:05Z", "started": "2026-01-01T00:00:21Z", "runner": "web-a"});
        chronicle.jobs(&ledger(&started), now);
        let trace = pacer_trace::Trace { header: pacer_trace::Header::new(now), records: chronicle.news() };
        let mut again = Chronicle::resumed(chronicle.defaults.clone(), &History::of(&trace), Range::default());
        again.targets.clone_from(&chronicle.targets);
        again.autoscaler(&autoscaler(1), now);
        again.runner(&runner(true), now);
        again.jobs(&ledger(&started), now);
        assert_eq!(kinds(&mut again), Vec::<String>::new());
    }

    #[test]
    fn a_pool_that_was_gone_before_the_recorder_stopped_is_not_told_again() {
        let now = Timestamp::now();
        let mut chronicle = scene();
        chronicle.targets_are(PoolKind::RunnerDeployment, &BTreeSet::new(), now);
        let trace = pacer_trace::Trace { header: pacer_trace::Header::new(now), records: chronicle.news() };
        assert_eq!(trace.records.len(), 2, "it was there, and is gone");
        let mut again = Chronicle::resumed(chronicle.defaults.clone(), &History::of(&trace), Range::default());
        again.targets_are(PoolKind::RunnerDeployment, &BTreeSet::new(), now);
        assert_eq!(kinds(&mut again), Vec::<String>::new());
    }
}
