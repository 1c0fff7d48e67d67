//! Pools, their runners and pods, as far as jobs wait for them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::Result;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use kube::ResourceExt;
use pacer_api::names::{RUNNER_CONTAINER, annotation, label};
use pacer_api::{HorizontalRunnerAutoscaler, JobLedger, Runner, RunnerDeployment, RunnerReplicaSet, RunnerSet};
use pacer_core::demand::TOLD;
use pacer_core::estimate::Pace;
use pacer_core::ledger::{Ledger, State};
use pacer_core::phase::Cause;
use pacer_core::recovery::{Rerun, Reruns};
use pacer_core::target::Candidate;
use pacer_core::waiting::{self, Standing};
use pacer_demand::ledger::jobs_known_to;
use pacer_operator::runner_pod;
use pacer_operator::target::{Target, TargetRef, owner_of};
use pacer_operator::waiting as evidence;
use pacer_policy::Record;

use crate::archive::Archive;
use crate::cluster::Cluster;
use crate::plain;

/// What is read of a namespace, or of all, to explain its jobs.
#[derive(Debug, Default)]
pub(super) struct Place {
    pub(super) autoscalers: Vec<HorizontalRunnerAutoscaler>,
    pub(super) job_ledgers: Vec<JobLedger>,
    pub(super) targets: Vec<Target>,
    pub(super) sets: Vec<RunnerReplicaSet>,
    pub(super) runners: Vec<Runner>,
    /// By namespace and name; none where they could not be read.
    pub(super) pods: Option<BTreeMap<(String, String), Pod>>,
    /// Receipts; none where they could not be read.
    pub(super) receipts: Option<Archive>,
    /// A note for each of these two that could not be read.
    pub(super) unread: String,
}

impl Place {
    /// Everything of the namespace, or of all.
    pub(super) async fn read(cluster: &Cluster, all: bool) -> Result<Self> {
        let deployments =
            cluster.list::<RunnerDeployment>(all, "").await?.into_iter().map(|one| Target::Deployment(Arc::new(one)));
        let sets = cluster.list::<RunnerSet>(all, "").await?.into_iter().map(|one| Target::Set(Arc::new(one)));
        let targets = deployments.chain(sets).collect();
        let keyed = |pod: Pod| ((pod.namespace().unwrap_or_default(), pod.name_any()), pod);
        let mut unread = String::new();
        // Whatever the reason is: most of what there is to explain is known without these two.
        let pods = cluster.list::<Pod>(all, label::RUNNER_POD).await;
        let pods = without(&mut unread, pods, "the statuses of the runners are shown instead");
        let receipts = Archive::read_from(cluster, all).await;
        let receipts =
            without(&mut unread, receipts, "pacer does not know how long starts and jobs take, and estimates no start times");
        Ok(Self {
            autoscalers: cluster.list(all, "").await?,
            job_ledgers: cluster.list(all, "").await?,
            targets,
            sets: cluster.list(all, "").await?,
            runners: cluster.list(all, "").await?,
            pods: pods.map(|pods| pods.into_iter().map(keyed).collect()),
            receipts,
            unread,
        })
    }

    /// What could not be looked at.
    pub(super) fn notes(&self) -> String {
        let mut notes = String::new();
        for autoscaler in self.autoscalers.iter().filter(|autoscaler| polled(autoscaler) >= TOLD) {
            notes.push_str(&format!(
                "note: HorizontalRunnerAutoscaler {}/{} knows jobs by polling and tells of the {TOLD} that wait longest; more may wait\n",
                autoscaler.namespace().unwrap_or_default(),
                autoscaler.name_any()
            ));
        }
        notes.push_str(&self.unread);
        notes
    }

    /// How long starts and jobs of a pool take: what the last policy that was asked about it was told. The operator alone has seen them.
    pub(super) fn pace(&self, target: &Target) -> Pace {
        let of = |record: &&Record| {
            let pool = &record.pool;
            (pool.kind.as_str(), pool.namespace.as_str(), pool.name.as_str())
                == (target.kind().as_str(), target.namespace(), target.name())
        };
        let records = self.receipts.iter().flat_map(|archive| &archive.shelves).flat_map(|shelf| &shelf.records);
        let inputs = records.filter(of).filter_map(|record| Some((&record.id, record.input.as_ref()?.pool())));
        let newest = inputs.max_by_key(|(id, _)| *id).map(|(_, pool)| pool);
        let ephemeral = target.config().is_ephemeral();
        newest.map_or(Pace { ephemeral, ..Pace::default() }, |pool| Pace {
            starts: pool.start_time,
            runs: pool.run_time,
            assignments: None,
            ephemeral,
        })
    }

    /// What receipts say of a job that died with its runner, the newest that says anything.
    pub(super) fn death(&self, job: u64) -> Option<(&Record, String)> {
        let records = self.receipts.iter().flat_map(|archive| &archive.shelves).flat_map(|shelf| &shelf.records);
        let told = records.filter_map(|record| Some((record, record.job(job)?)));
        told.max_by(|(one, _), (other, _)| one.id.cmp(&other.id))
    }

    /// A job that is to run again, as the operator keeps it.
    pub(super) fn rerun(&self, job: u64) -> Option<Rerun> {
        let kept = self.sets.iter().filter_map(|set| set.annotations().get(annotation::RERUNS));
        kept.filter_map(|text| serde_json::from_str::<Reruns>(text).ok()).find_map(|reruns| reruns.get(job).cloned())
    }

    /// The jobs that an autoscaler knows.
    pub(super) fn ledger(&self, autoscaler: &HorizontalRunnerAutoscaler) -> Ledger {
        jobs_known_to(autoscaler, &self.job_ledgers)
    }

    /// What an autoscaler scales.
    pub(super) fn target_of(&self, autoscaler: &HorizontalRunnerAutoscaler) -> Option<&Target> {
        let reference = TargetRef::of(autoscaler)?;
        self.targets.iter().find(|target| target.reference() == reference)
    }

    /// The autoscalers that webhooks of jobs may go to. What the operator adds to all runners by --common-runner-labels is in its RunnerReplicaSets.
    pub(super) fn takers(&self) -> Vec<(&HorizontalRunnerAutoscaler, Candidate<'_>)> {
        let taker = |autoscaler: &'_ HorizontalRunnerAutoscaler| {
            autoscaler.spec.workflow_job_trigger()?;
            self.target_of(autoscaler)
        };
        let all = self.autoscalers.iter().filter_map(|autoscaler| {
            let target = taker(autoscaler)?;
            let config = target.config();
            let meta = &autoscaler.metadata;
            let candidate = Candidate {
                namespace: meta.namespace.as_deref().unwrap_or_default(),
                name: meta.name.as_deref().unwrap_or_default(),
                created: meta.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
                scope: config.scope().ok()?,
                group: config.group.as_deref(),
                labels: target.labels_in(&self.sets),
                platform: target.platform(),
            };
            Some((autoscaler, candidate))
        });
        all.collect()
    }

    /// A pool as the rule wants it.
    pub(super) fn pool(&self, target: &Target, autoscaler: Option<&HorizontalRunnerAutoscaler>, now: Timestamp) -> waiting::Pool {
        let uid = target.meta().uid.as_deref().unwrap_or_default();
        let of = |set: &&RunnerReplicaSet| owner_of(set).is_some_and(|owner| owner.uid.to_string() == uid);
        let sets: Vec<&RunnerReplicaSet> = self.sets.iter().filter(of).collect();
        let owners: BTreeSet<String> = sets.iter().filter_map(|set| set.uid()).collect();
        let working: BTreeMap<String, Timestamp> = autoscaler
            .map(|autoscaler| self.ledger(autoscaler))
            .unwrap_or_default()
            .open()
            .filter(|(_, job)| job.state == State::InProgress)
            .filter_map(|(_, job)| Some((job.runner.as_ref()?.to_string(), job.since)))
            .collect();
        let owned = self.runners.iter().filter(|one| one.owner_references().iter().any(|owner| owners.contains(&owner.uid)));
        let mut runners: Vec<waiting::Runner> = owned.map(|runner| self.runner(runner, &working)).collect();
        // Jobs that no webhook told of: their runners are busy all the same.
        let idle: i32 = sets.iter().filter_map(|set| set.status.as_ref()?.idle_replicas).sum();
        let seen = runners.iter_mut().filter(|runner| runner.standing == Standing::Idle);
        seen.skip(usize::try_from(idle).unwrap_or(0)).for_each(|runner| runner.standing = Standing::Busy);
        waiting::Pool {
            wanted: target.replicas(),
            autoscaler: autoscaler.map(evidence::autoscaler),
            runners,
            backoff: evidence::backoff(sets.iter().copied(), now),
            github: evidence::github(target),
            refused: evidence::refused(target),
        }
    }

    fn runner(&self, runner: &Runner, working: &BTreeMap<String, Timestamp>) -> waiting::Runner {
        let key = (runner.namespace().unwrap_or_default(), runner.name_any());
        let pod = self.pods.as_ref().map(|pods| pods.get(&key));
        let works = working.get(&key.1).copied();
        let (standing, since) = standing(runner, pod, works.is_some());
        let since = since.or(works);
        let created = || runner.metadata.creation_timestamp.as_ref().map(|time| time.0);
        waiting::Runner { name: key.1, standing, since: since.or_else(created) }
    }
}

/// What was read. Where it could not be read there is none of it, and a note says why and what follows from that.
fn without<T>(notes: &mut String, read: Result<T>, so: &str) -> Option<T> {
    read.inspect_err(|error| notes.push_str(&format!("note: {}; {so}\n", plain::line(&plain::causes(error))))).ok()
}

/// How many jobs polling alone tells an autoscaler of.
fn polled(autoscaler: &HorizontalRunnerAutoscaler) -> usize {
    autoscaler.status.as_ref().map_or(0, |status| status.polled_jobs.len())
}

/// Where a runner stands, and since when. `pod` is none where pods can't be read, and none inside where there is none.
fn standing(runner: &Runner, pod: Option<Option<&Pod>>, works: bool) -> (Standing, Option<Timestamp>) {
    let status = runner.status.clone().unwrap_or_default();
    let holds = |type_: &str, verdict: &str| {
        let found = status.conditions.iter().find(|one| one.type_ == type_ && one.status == verdict)?;
        Some((found.message.clone(), found.last_transition_time.0))
    };
    let message = || status.message.clone().unwrap_or_default();
    if let Some(deleted) = &runner.metadata.deletion_timestamp {
        return (Standing::Leaving, Some(deleted.0));
    }
    if let Some((message, at)) = holds("Quarantined", "True") {
        return (Standing::Quarantined(message), Some(at));
    }
    if works || status.workflow.as_ref().is_some_and(|job| job.run_id.is_some()) {
        return (Standing::Busy, None);
    }
    if let Some((_, at)) = holds("Ready", "True") {
        return (Standing::Idle, Some(at));
    }
    let failed = status.reason.as_deref().and_then(Cause::of).is_some_and(Cause::is_failure);
    match pod {
        Some(Some(pod)) => match of_pod(pod) {
            (Standing::Leaving, since) if failed && pod.metadata.deletion_timestamp.is_none() => (Standing::Failed, since),
            found => found,
        },
        _ if holds("Accepted", "False").is_some() => {
            holds("Accepted", "False").map_or((Standing::Created, None), |(message, at)| (Standing::Refused(message), Some(at)))
        }
        Some(None) => (Standing::Created, None),
        None => match (status.reason.as_deref(), status.phase.as_deref()) {
            (Some("unschedulable"), _) => (Standing::Unschedulable(message()), None),
            (Some("image-pull"), _) => (Standing::Image(message()), None),
            (Some("quota"), _) => (Standing::Refused(message()), None),
            (_, Some("Running" | "Registering")) => (Standing::Registering, None),
            _ => (Standing::Starting, None),
        },
    }
}

fn of_pod(pod: &Pod) -> (Standing, Option<Timestamp>) {
    let status = pod.status.clone().unwrap_or_default();
    let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let at = |condition: &PodCondition| condition.last_transition_time.as_ref().map(|time| time.0).or(created);
    // The end of its container is the runner's, although a sidecar keeps the pod running.
    if pod.metadata.deletion_timestamp.is_some() || runner_pod::facts(pod).stopped() {
        return (Standing::Leaving, created);
    }
    let conditions = status.conditions.unwrap_or_default();
    let unscheduled = conditions.iter().find(|one| one.type_ == "PodScheduled" && one.status == "False");
    if let Some(condition) = unscheduled {
        return (Standing::Unschedulable(condition.message.clone().unwrap_or_default()), at(condition));
    }
    let container = status.container_statuses.iter().flatten().find(|one| one.name == RUNNER_CONTAINER);
    let state = container.and_then(|container| container.state.clone()).unwrap_or_default();
    if let Some(running) = state.running {
        return (Standing::Registering, running.started_at.map(|time| time.0).or(created));
    }
    // Another container may be what holds the pod.
    let waiting = status.container_statuses.iter().flatten().chain(status.init_container_statuses.iter().flatten());
    let waiting = waiting.filter_map(|one| one.state.as_ref()?.waiting.clone());
    let pulls =
        ["ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable", "ImageInspectError"];
    for waiting in waiting {
        let reason = waiting.reason.unwrap_or_default();
        if pulls.contains(&reason.as_str()) {
            let message =
                waiting.message.filter(|message| !message.is_empty()).map_or_else(String::new, |message| format!(": {message}"));
            return (Standing::Image(format!("{reason}{message}")), created);
        }
    }
    (Standing::Starting, created)
}

#[cfg(test)]
mod tests {
    use anyhow::Error;
    use kube::core::Status;

    use super::*;

    fn runner(text: &str) -> Runner {
        serde_saphyr::from_str(&format!("{{metadata: {{name: web-1, namespace: ci}}, spec: {{}}, status: {text}}}")).unwrap()
    }

    fn pod(text: &str) -> Pod {
        serde_saphyr::from_str(&format!("{{metadata: {{name: web-1}}, status: {text}}}")).unwrap()
    }

    #[test]
    fn what_can_not_be_read_is_noted_with_its_reason() {
        let failed = |code: u16, message: &str, reason: &str| {
            let error = kube::Error::Api(Status::failure(message, reason).with_code(code).boxed());
            Err::<(), _>(Error::from(error).context("listing pods"))
        };
        let mut unread = String::new();
        assert_eq!(without(&mut unread, Ok(1), "nothing follows"), Some(1));
        for read in [
            failed(403, "pods is forbidden: User \"a\" cannot list", "Forbidden"),
            failed(500, "no leader\nnote: forged", "InternalError"),
        ] {
            assert!(without(&mut unread, read, "statuses are told").is_none());
        }
        assert_eq!(
            Place { unread, ..Place::default() }.notes(),
            "note: listing pods: pods is forbidden: User \"a\" cannot list: Forbidden; statuses are told\n\
             note: listing pods: no leader note: forged: InternalError; statuses are told\n"
        );
    }

    #[test]
    fn a_runner_stands_where_its_pod_does_until_it_is_online() {
        let online = "{conditions: [{type: Ready, status: 'True', reason: Registered, message: '', lastTransitionTime: 2026-01-01T00:00:00Z}]}";
        let text = || "0/3 nodes".to_owned();
        for (status, pod, works, expected) in [
            ("{}", "{phase: Pending}", false, Standing::Starting),
            (
                "{}",
                "{phase: Pending, conditions: [{type: PodScheduled, status: 'False', message: 0/3 nodes}]}",
                false,
                Standing::Unschedulable(text()),
            ),
            (
                "{}",
                "{phase: Pending, containerStatuses: [{name: runner, ready: false, restartCount: 0, image: a, imageID: '', state: {waiting: {reason: ErrImagePull, message: not found}}}]}",
                false,
                Standing::Image("ErrImagePull: not found".to_owned()),
            ),
            (
                "{}",
                "{phase: Running, containerStatuses: [{name: runner, ready: true, restartCount: 0, image: a, imageID: '', state: {running: {}}}]}",
                false,
                Standing::Registering,
            ),
            (
                "{reason: exit}",
                "{phase: Running, containerStatuses: [{name: runner, ready: false, restartCount: 0, image: a, imageID: '', state: {terminated: {exitCode: 1}}}, {name: docker, ready: true, restartCount: 0, image: a, imageID: '', state: {running: {}}}]}",
                false,
                Standing::Failed,
            ),
            ("{}", "{phase: Failed}", false, Standing::Leaving),
            ("{reason: completed}", "{phase: Succeeded}", false, Standing::Leaving),
            ("{reason: unregistered-exit}", "{phase: Succeeded}", false, Standing::Failed),
            (online, "{phase: Running}", false, Standing::Idle),
            (online, "{phase: Running}", true, Standing::Busy),
        ] {
            let pod = self::pod(pod);
            assert_eq!(standing(&runner(status), Some(Some(&pod)), works).0, expected, "{status} {pod:?}");
        }
        let refused = "{conditions: [{type: Accepted, status: 'False', reason: PodRefused, message: 0/3 nodes, lastTransitionTime: 2026-01-01T00:00:00Z}]}";
        assert_eq!(standing(&runner(refused), Some(None), false).0, Standing::Refused(text()));
        assert_eq!(standing(&runner("{}"), Some(None), false).0, Standing::Created);
        // Where pods can't be read.
        let said = |status: &str| standing(&runner(status), None, false).0;
        assert_eq!(said("{phase: Pending, reason: unschedulable, message: 0/3 nodes}"), Standing::Unschedulable(text()));
        assert_eq!(said("{phase: Pending, reason: image-pull, message: 0/3 nodes}"), Standing::Image(text()));
        assert_eq!((said("{phase: Running}"), said("{}")), (Standing::Registering, Standing::Starting));
    }
}
