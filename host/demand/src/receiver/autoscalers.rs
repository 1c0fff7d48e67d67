//! Autoscalers and what they scale, as watches show them.

use std::sync::{Arc, PoisonError, RwLock};

use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use kube::core::ObjectMeta;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use pacer_api::autoscaler::{ProvedScope, ScaleTargetKind};
use pacer_api::condition::{ConditionType, Verdict};
use pacer_api::pod_settings::PodSettings;
use pacer_api::{HorizontalRunnerAutoscaler, JobLedger, RunnerConfig, RunnerDeployment, RunnerPodSpec, RunnerSet};
use pacer_cluster::index::Index;
use pacer_cluster::object::Uid;
use pacer_cluster::watch::{Changes, Filled, trim, warn_of_failure, watch, watch_with_index};
use pacer_core::scope::{Scope, ScopeError};
use pacer_core::target::{Candidate, Platform};

use super::full_name;
use crate::ledger;

/// For how long the proof of a scope is expected soon. The first listing takes a second or two, an operator that starts has to get the
/// lease first, and one that was killed leaves it behind for 15 s. After that the proof may never come, and GitHub's page of deliveries
/// should not show failures for ever.
const PROOF_TIME: SignedDuration = SignedDuration::from_secs(60);

/// What watches show of them: the receiver's own, or those of the operator that acts in the same process.
#[derive(Clone)]
pub struct Stores {
    /// All autoscalers that are watched, with a trigger or without.
    pub autoscalers: Store<HorizontalRunnerAutoscaler>,
    /// RunnerDeployments, which autoscalers may scale.
    pub deployments: Store<RunnerDeployment>,
    /// RunnerSets, which autoscalers may scale.
    pub runner_sets: Store<RunnerSet>,
    /// Their jobs, by their UID.
    pub job_ledgers: Index<JobLedger, Uid>,
    /// Whether each of them has been filled.
    pub filled: Filled,
}

/// Autoscalers, from the stores that are read now.
pub struct Autoscalers {
    stores: RwLock<Arc<Stores>>,
    proof: Proof,
}

/// Which autoscalers get jobs only once the operator has proved their scope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Proof {
    /// Those whose runners have credentials of their own.
    #[default]
    OfOwnCredentials,
    /// All: a tenancy file says who may use the operator's credentials where.
    OfAll,
}

/// The watches that fill the stores, not yet running.
pub struct Watches {
    autoscalers: Changes<HorizontalRunnerAutoscaler>,
    deployments: Changes<RunnerDeployment>,
    runner_sets: Changes<RunnerSet>,
    job_ledgers: Changes<JobLedger>,
}

/// Prepares the watches and their stores. Any number of replicas may have them: nothing is written here.
#[must_use]
pub fn watches(client: &Client, namespace: Option<&str>, proof: Proof) -> (Watches, Autoscalers) {
    let mut filled = Filled::default();
    let all = watcher::Config::default();
    let (autoscaler_store, autoscalers) = watch(client, namespace, all.clone(), trim, &mut filled);
    let (deployment_store, deployments) = watch(client, namespace, all.clone(), trim_deployment, &mut filled);
    let (runner_set_store, runner_sets) = watch(client, namespace, all.clone(), trim_runner_set, &mut filled);
    let (_, job_ledgers_by, job_ledgers) = watch_with_index(client, namespace, all, trim, ledger::owner, &mut filled);
    let stores = Stores {
        autoscalers: autoscaler_store,
        deployments: deployment_store,
        runner_sets: runner_set_store,
        job_ledgers: job_ledgers_by,
        filled,
    };
    (Watches { autoscalers, deployments, runner_sets, job_ledgers }, Autoscalers::new(stores, proof))
}

impl Watches {
    /// Drives the watches for as long as it is polled. Ends when one of them does, which it must not.
    pub async fn run(self) {
        tokio::select! {
            () = drive(self.job_ledgers) => {}
            () = drive(self.autoscalers) => {}
            () = drive(self.deployments) => {}
            () = drive(self.runner_sets) => {}
        }
    }
}

async fn drive<K: kube::Resource<DynamicType = ()>>(changes: Changes<K>) {
    changes
        .for_each(|change| async move {
            if let Err(error) = change {
                warn_of_failure::<K>(&error);
            }
        })
        .await;
}

/// Autoscalers that jobs may go to, and what is wrong with others.
pub(super) struct Pool {
    pub(super) members: Vec<Member>,
    /// Their scopes are about to be proved or refused.
    pub(super) pending: Vec<Member>,
    /// For each autoscaler that gets no jobs, its name and what is wrong with it.
    pub(super) broken: Vec<String>,
}

/// Whether the runners of an autoscaler may be where their spec says, which whoever writes the spec may claim of any repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Proved,
    /// The operator has not said yet, and is expected to.
    Pending,
    Unproved,
}

/// The scale target of an autoscaler.
enum Target {
    Deployment(Arc<RunnerDeployment>),
    RunnerSet(Arc<RunnerSet>),
}

impl Target {
    fn config(&self) -> &RunnerConfig {
        match self {
            Self::Deployment(deployment) => &deployment.spec.template.spec.config,
            Self::RunnerSet(set) => &set.spec.config,
        }
    }

    /// The platform whose labels its runners have.
    fn platform(&self) -> Platform {
        match self {
            Self::Deployment(deployment) => deployment.spec.template.platform(),
            Self::RunnerSet(set) => set.spec.platform(),
        }
    }
}

/// An autoscaler and its scale target.
pub(super) struct Member {
    pub(super) autoscaler: Arc<HorizontalRunnerAutoscaler>,
    target: Target,
    scope: Scope,
}

/// Why an autoscaler takes no jobs although it has triggers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Broken {
    #[error("of its scaleUpTriggers exactly one may be there, with githubEvent.workflowJob")]
    Trigger,
    #[error("spec.scaleTargetRef names nothing")]
    NoName,
    #[error("{0:?} {1} does not exist")]
    NoTarget(ScaleTargetKind, String),
    #[error("its target's spec: {0}")]
    Scope(#[from] ScopeError),
    #[error("its scope is not proved: see its condition ScopeProved, or that of the operator that should write it")]
    Unproved,
    #[error("its trigger's duration: {0}")]
    Duration(#[from] pacer_api::duration::DurationError),
}

impl Autoscalers {
    fn new(stores: Stores, proof: Proof) -> Self {
        Self { stores: RwLock::new(Arc::new(stores)), proof }
    }

    fn stores(&self) -> Arc<Stores> {
        Arc::clone(&self.stores.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// These stores are read from now on.
    pub(super) fn read_from(&self, stores: Stores) {
        *self.stores.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(stores);
    }

    /// Waits until every store holds what the API server has. False when a watch ended before.
    pub(super) async fn full(&self) -> bool {
        loop {
            let stores = self.stores();
            if stores.filled.wait().await {
                return true;
            }
            // The watches of these stores end as well once others are read.
            if Arc::ptr_eq(&stores, &self.stores()) {
                return false;
            }
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.stores().filled.is_complete()
    }

    /// Whether the stores are filled, and what none of them can hold.
    pub(super) fn filled(&self) -> Filled {
        self.stores().filled.clone()
    }

    /// Jobs of autoscalers, by their UID.
    #[must_use]
    pub fn job_ledgers(&self) -> Index<JobLedger, Uid> {
        self.stores().job_ledgers.clone()
    }

    /// All there are, whether jobs may go to them or not.
    pub(super) fn all(&self) -> Vec<Arc<HorizontalRunnerAutoscaler>> {
        self.stores().autoscalers.state()
    }

    /// The autoscaler that has the job, of those in whose ledgers it is: the oldest, should there be several.
    pub(super) fn knowing(&self, job: u64, ledgers: &[Uid]) -> Option<Arc<HorizontalRunnerAutoscaler>> {
        let earlier = i64::try_from(job).ok()?;
        let has = |autoscaler: &HorizontalRunnerAutoscaler| {
            let entries = autoscaler.status.iter().flat_map(|status| &status.ledger);
            let is_in_ledger =
                autoscaler.metadata.uid.as_deref().is_some_and(|uid| ledgers.iter().any(|one| one.as_str() == uid));
            autoscaler.metadata.deletion_timestamp.is_none()
                && (is_in_ledger || entries.flat_map(|entry| &entry.jobs).any(|id| *id == earlier))
        };
        let knowing = self.stores().autoscalers.state_filter(has);
        knowing.into_iter().min_by_key(|autoscaler| (created(autoscaler), autoscaler.namespace(), autoscaler.name_any()))
    }

    /// Whether its runners take one job after the other.
    pub(super) fn is_lasting(&self, autoscaler: &HorizontalRunnerAutoscaler) -> bool {
        self.stores().target(autoscaler).is_ok_and(|(target, _)| !target.config().is_ephemeral())
    }

    /// Every autoscaler with a workflowJob trigger whose target is there. What is wrong with one of them concerns no other.
    pub(super) fn pool(&self, now: Timestamp) -> Pool {
        let mut pool = Pool { members: Vec::new(), pending: Vec::new(), broken: Vec::new() };
        let stores = self.stores();
        for autoscaler in stores.autoscalers.state() {
            let is_triggered = autoscaler.spec.scale_up_triggers.as_ref().is_some_and(|triggers| !triggers.is_empty());
            if !is_triggered || autoscaler.metadata.deletion_timestamp.is_some() {
                continue;
            }
            match stores.target(&autoscaler) {
                Ok((target, scope)) => match self.standing(&autoscaler, &target, now) {
                    Standing::Proved => pool.members.push(Member { autoscaler, target, scope }),
                    Standing::Pending => pool.pending.push(Member { autoscaler, target, scope }),
                    Standing::Unproved => pool.broken.push(format!("{}: {}", full_name(&autoscaler), Broken::Unproved)),
                },
                Err(broken) => pool.broken.push(format!("{}: {broken}", full_name(&autoscaler))),
            }
        }
        pool
    }

    fn standing(&self, autoscaler: &HorizontalRunnerAutoscaler, target: &Target, now: Timestamp) -> Standing {
        let config = target.config();
        let needed = self.proof == Proof::OfAll || config.credentials_secret().is_some();
        if !needed || proof(autoscaler).is_some_and(|proved| proved.is_of(config)) {
            return Standing::Proved;
        }
        let mut conditions = autoscaler.status.iter().flat_map(|status| &status.conditions);
        let since = match conditions.find(|condition| condition.type_ == ConditionType::ScopeProved.as_str()) {
            None => created(autoscaler),
            Some(said) if said.status == Verdict::False.as_str() => return Standing::Unproved,
            // It was about another scope: the target has been edited, and the operator has not looked since.
            Some(said) if said.status == Verdict::True.as_str() => return Standing::Pending,
            Some(said) => said.last_transition_time.0,
        };
        if now.duration_since(since) < PROOF_TIME { Standing::Pending } else { Standing::Unproved }
    }
}

impl Stores {
    fn target(&self, autoscaler: &HorizontalRunnerAutoscaler) -> Result<(Target, Scope), Broken> {
        autoscaler.spec.workflow_job_trigger().ok_or(Broken::Trigger)?.duration_or_default()?;
        let name = autoscaler.spec.target_name().ok_or(Broken::NoName)?;
        let namespace = autoscaler.namespace().unwrap_or_default();
        let kind = autoscaler.spec.target_kind();
        let target = match kind {
            ScaleTargetKind::RunnerDeployment => {
                self.deployments.get(&ObjectRef::new(name).within(&namespace)).map(Target::Deployment)
            }
            ScaleTargetKind::RunnerSet => self.runner_sets.get(&ObjectRef::new(name).within(&namespace)).map(Target::RunnerSet),
        };
        let target = target.ok_or_else(|| Broken::NoTarget(kind, name.to_owned()))?;
        let scope = target.config().scope()?;
        Ok((target, scope))
    }
}

fn proof(autoscaler: &HorizontalRunnerAutoscaler) -> Option<&ProvedScope> {
    autoscaler.status.as_ref()?.proved_scope.as_ref()
}

impl Member {
    /// Whether a job of the repository at this URL may be its runners'.
    pub(super) fn is_at(&self, repository: Option<&str>) -> bool {
        self.target.config().credentials_secret().is_none()
            || proof(&self.autoscaler).is_some_and(|proved| proved.is_at(repository))
    }

    /// What the search has to know.
    pub(super) fn candidate<'a>(&'a self, common_labels: &'a [String]) -> Candidate<'a> {
        let meta = &self.autoscaler.metadata;
        let config = self.target.config();
        Candidate {
            namespace: meta.namespace.as_deref().unwrap_or_default(),
            name: meta.name.as_deref().unwrap_or_default(),
            created: created(&self.autoscaler),
            scope: self.scope.clone(),
            group: config.group.as_deref(),
            labels: config.labels.iter().flatten().chain(common_labels).map(String::as_str).collect(),
            platform: self.target.platform(),
        }
    }
}

fn created(autoscaler: &HorizontalRunnerAutoscaler) -> Timestamp {
    autoscaler.metadata.creation_timestamp.as_ref().map_or(Timestamp::MAX, |time| time.0)
}

/// Drops what the search does not read: most of a template is the pod's.
fn trim_deployment(deployment: &mut RunnerDeployment) {
    trim(deployment);
    deployment.status = None;
    let pod = &mut deployment.spec.template.spec.pod;
    let settings = PodSettings { os: pod.settings.os.clone(), ..PodSettings::default() };
    *pod = Arc::new(RunnerPodSpec { node_selector: pod.node_selector.clone(), settings, ..RunnerPodSpec::default() });
}

/// The same for RunnerSets.
fn trim_runner_set(set: &mut RunnerSet) {
    trim(set);
    set.status = None;
    set.spec.stateful.volume_claim_templates = None;
    let template = &mut set.spec.stateful.template;
    // Runners that are registered just in time have other labels.
    let annotations = template.metadata.take().and_then(|metadata| metadata.annotations);
    template.metadata = annotations.map(|annotations| ObjectMeta { annotations: Some(annotations), ..ObjectMeta::default() });
    if let Some(spec) = &mut template.spec {
        let (node_selector, os) = (spec.node_selector.take(), spec.os.take());
        *spec = k8s_openapi::api::core::v1::PodSpec { node_selector, os, ..Default::default() };
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::reflector;
    use kube::runtime::watcher::Event;
    use pacer_core::target::{Architecture, OperatingSystem};
    use serde_json::{Value, json};

    use super::*;

    fn store<K>(objects: Vec<Value>) -> Store<K>
    where
        K: kube::Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned + 'static,
    {
        let (store, mut writer) = reflector::store();
        for object in objects {
            writer.apply_watcher_event(&Event::Apply(serde_json::from_value(object).unwrap()));
        }
        store
    }

    fn autoscalers(autoscalers: Vec<Value>, deployments: Vec<Value>, runner_sets: Vec<Value>) -> Autoscalers {
        let stores = Stores {
            autoscalers: store(autoscalers),
            deployments: store(deployments),
            runner_sets: store(runner_sets),
            job_ledgers: Index::default(),
            filled: Filled::default(),
        };
        Autoscalers::new(stores, Proof::OfOwnCredentials)
    }

    fn object(kind: &str, name: &str, spec: Value) -> Value {
        let metadata = json!({"name": name, "namespace": "ci", "creationTimestamp": "2024-01-01T00:00:00Z"});
        let mut object = json!({"apiVersion": "actions.summerwind.dev/v1alpha1", "kind": kind, "metadata": metadata});
        object["spec"] = spec;
        object
    }

    fn autoscaler(name: &str, kind: &str, target: &str, triggers: Value) -> Value {
        let mut spec = json!({"scaleTargetRef": {"kind": kind, "name": target}});
        spec["scaleUpTriggers"] = triggers;
        object("HorizontalRunnerAutoscaler", name, spec)
    }

    /// Long after the objects were made.
    fn now() -> Timestamp {
        "2024-06-01T00:00:00Z".parse().unwrap()
    }

    fn trigger() -> Value {
        json!([{"githubEvent": {"workflowJob": {}}, "duration": "30m"}])
    }

    #[tokio::test]
    async fn other_stores_that_are_full_count_when_its_own_end_before_they_are_filled() {
        for others in [true, false] {
            let all = autoscalers(vec![], vec![], vec![]);
            let (own_watch, is_filled) = tokio::sync::watch::channel(false);
            let mut filled = Filled::default();
            filled.also(is_filled);
            all.read_from(Stores { filled, ..Stores::clone(&all.stores()) });
            let full = all.full();
            tokio::pin!(full);
            assert!(futures::poll!(&mut full).is_pending());
            if others {
                all.read_from(Stores { filled: Filled::default(), ..Stores::clone(&all.stores()) });
            }
            drop(own_watch);
            assert_eq!(full.await, others);
        }
    }

    #[test]
    fn broken_autoscaler_does_not_affect_others() {
        let web = object(
            "RunnerDeployment",
            "web",
            json!({"template": {"spec": {
                "organization": "acme", "labels": ["web"], "group": "Big", "nodeSelector": {"kubernetes.io/arch": "arm64"},
            }}}),
        );
        let nowhere = object("RunnerDeployment", "nowhere", json!({"template": {"spec": {"repository": "acme"}}}));
        let set =
            object("RunnerSet", "set", json!({"repository": "acme/app", "serviceName": "", "selector": {}, "template": {}}));
        let mut going = autoscaler("going", "RunnerDeployment", "web", trigger());
        going["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
        let two = json!([trigger()[0], trigger()[0]]);
        let all = autoscalers(
            vec![
                autoscaler("good", "RunnerDeployment", "web", trigger()),
                autoscaler("set", "RunnerSet", "set", trigger()),
                autoscaler("pull", "RunnerDeployment", "web", json!([])),
                autoscaler("two", "RunnerDeployment", "web", two),
                autoscaler("push", "RunnerDeployment", "web", json!([{"githubEvent": {"push": {}}}])),
                autoscaler("soon", "RunnerDeployment", "web", json!([{"githubEvent": {"workflowJob": {}}, "duration": "soon"}])),
                autoscaler("gone", "RunnerDeployment", "gone", trigger()),
                autoscaler("lost", "RunnerDeployment", "nowhere", trigger()),
                autoscaler("nothing", "RunnerDeployment", "", trigger()),
                going,
            ],
            vec![web, nowhere],
            vec![set],
        );
        let mut pool = all.pool(now());
        pool.members.sort_by_key(|member| member.autoscaler.name_any());
        let common = ["common".to_owned()];
        let candidates: Vec<_> = pool.members.iter().map(|member| member.candidate(&common)).collect();
        let [good, set] = candidates.as_slice() else { panic!("{candidates:?}") };
        let arm = Platform { os: None, architecture: Some(Architecture::Arm64) };
        assert_eq!((good.name, good.group, good.platform), ("good", Some("Big"), arm));
        assert_eq!((good.labels.as_slice(), &good.scope), (["web", "common"].as_slice(), &Scope::Organization("acme".into())));
        assert_eq!((set.name, set.platform), ("set", Platform::default()));
        pool.broken.sort();
        let names: Vec<&str> = pool.broken.iter().filter_map(|text| text.split(':').next()).collect();
        assert_eq!(names, ["ci/gone", "ci/lost", "ci/nothing", "ci/push", "ci/soon", "ci/two"], "{:?}", pool.broken);
        assert_eq!(pool.broken.first().unwrap(), "ci/gone: RunnerDeployment gone does not exist");
    }

    #[test]
    fn own_credentials_count_once_they_have_proved_their_scope_and_all_do_under_a_tenancy() {
        let target = |name: &str, secret: Option<&str>| {
            let from = secret.map(|name| json!({"secretRef": {"name": name}}));
            let spec = json!({"repository": "acme/app", "githubAPICredentialsFrom": from});
            object("RunnerDeployment", name, json!({"template": {"spec": spec}}))
        };
        let scaled = |name: &str, proved: Option<Value>| {
            let trigger = json!([{"githubEvent": {"workflowJob": {}}}]);
            let mut autoscaler = autoscaler(name, "RunnerDeployment", name, trigger);
            autoscaler["status"] = json!({"provedScope": proved});
            autoscaler
        };
        let own = |scope: &str| Some(json!({"scope": scope, "secret": "own"}));
        let mut all = autoscalers(
            vec![
                scaled("operators", None),
                scaled("allowed", Some(json!({"scope": "repos/acme/app"}))),
                scaled("claimed", None),
                scaled("moved", own("repos/thief/app")),
                scaled("proved", own("repos/acme/app")),
            ],
            vec![
                target("operators", None),
                target("allowed", None),
                target("claimed", Some("own")),
                target("moved", Some("own")),
                target("proved", Some("own")),
            ],
            vec![],
        );
        let names = |all: &Autoscalers| {
            let mut names: Vec<String> = all.pool(now()).members.iter().map(|member| member.autoscaler.name_any()).collect();
            names.sort();
            names
        };
        assert_eq!(names(&all), ["allowed", "operators", "proved"]);
        all.proof = Proof::OfAll;
        assert_eq!(names(&all), ["allowed", "proved"]);
    }

    #[test]
    fn proof_is_pending_until_the_operator_refuses_or_its_time_is_over() {
        let moment = |text: &str| text.parse::<Timestamp>().unwrap();
        let said = |status: &str| {
            let at = "2024-01-01T00:01:00Z";
            json!([{"type": "ScopeProved", "status": status, "reason": "R", "message": "", "lastTransitionTime": at}])
        };
        let elsewhere = json!({"scope": "repos/acme/other", "secret": "own"});
        for (status, at, pending) in [
            (json!({}), "2024-01-01T00:00:59Z", true),
            (json!({}), "2024-01-01T00:01:00Z", false),
            (json!({"conditions": said("Unknown")}), "2024-01-01T00:01:59Z", true),
            (json!({"conditions": said("Unknown")}), "2024-01-01T00:02:00Z", false),
            (json!({"conditions": said("False")}), "2024-01-01T00:01:01Z", false),
            (json!({"conditions": said("True"), "provedScope": elsewhere}), "2024-01-01T00:01:01Z", true),
        ] {
            let from = json!({"secretRef": {"name": "own"}});
            let spec = json!({"repository": "acme/app", "githubAPICredentialsFrom": from});
            let mut scaled = autoscaler("own", "RunnerDeployment", "own", trigger());
            scaled["status"] = status.clone();
            let target = object("RunnerDeployment", "own", json!({"template": {"spec": spec}}));
            let pool = autoscalers(vec![scaled], vec![target], vec![]).pool(moment(at));
            let counts = (pool.members.len(), pool.pending.len(), pool.broken.len());
            assert_eq!(counts, (0, usize::from(pending), usize::from(!pending)), "{status} {at}");
        }
    }

    #[test]
    fn known_job_belongs_to_the_ledger_that_has_it() {
        let with = |name: &str, jobs: &[i64]| {
            let mut autoscaler = autoscaler(name, "RunnerDeployment", "none", json!([]));
            autoscaler["metadata"]["uid"] = json!(format!("uid-{name}"));
            let times = "2024-01-01T00:00:00Z";
            autoscaler["status"] = json!({"ledger": [{"state": "Queued", "since": times, "expires": times, "jobs": jobs}]});
            autoscaler
        };
        let all = autoscalers(vec![with("b", &[1, 2]), with("a", &[2, 3]), with("c", &[])], vec![], vec![]);
        let none: &[&str] = &[];
        for (job, ledgers, expected) in [
            (1, none, Some("b")),
            (2, none, Some("a")),
            (3, none, Some("a")),
            (4, none, None),
            (u64::MAX, none, None),
            (4, &["uid-c"], Some("c")),
            (4, &["uid-c", "uid-b"], Some("b")),
            (4, &["uid-gone"], None),
        ] {
            let ledgers: Vec<Uid> = ledgers.iter().filter_map(|uid| Uid::new(uid)).collect();
            assert_eq!(all.knowing(job, &ledgers).map(|one| one.name_any()).as_deref(), expected, "{job} {ledgers:?}");
        }
    }

    #[test]
    fn trimmed_deployment_keeps_what_the_search_reads() {
        let mut deployment: RunnerDeployment = serde_json::from_value(object("RunnerDeployment", "web", json!({"template": {"spec": {
            "organization": "acme", "labels": ["web"], "nodeSelector": {"kubernetes.io/arch": "amd64"}, "os": {"name": "windows"},
            "env": [{"name": "A"}],
        }}})))
        .unwrap();
        trim_deployment(&mut deployment);
        let target = Target::Deployment(Arc::new(deployment));
        let windows = Platform { os: Some(OperatingSystem::Windows), architecture: Some(Architecture::X64) };
        assert_eq!(target.platform(), windows);
        assert_eq!(target.config().labels.as_deref(), Some(["web".to_owned()].as_slice()));
    }

    #[test]
    fn trimmed_runner_set_keeps_what_the_search_reads() {
        let mut set: RunnerSet = serde_json::from_value(object(
            "RunnerSet",
            "web",
            json!({
                "repository": "acme/app", "serviceName": "", "selector": {}, "template": {
                    "metadata": {"annotations": {"actions.summerwind.dev/just-in-time": "true"}, "labels": {"app": "ci"}},
                    "spec": {"containers": [], "os": {"name": "windows"}},
                },
            }),
        ))
        .unwrap();
        trim_runner_set(&mut set);
        let target = Target::RunnerSet(Arc::new(set));
        let windows = Platform { os: Some(OperatingSystem::Windows), architecture: Some(Architecture::X64) };
        assert_eq!(target.platform(), windows, "its runners are registered for X64");
    }
}
