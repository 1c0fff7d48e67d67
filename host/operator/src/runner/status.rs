//! The status of a Runner: ARC's fields for people, ours for the next operator that starts.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::core::Status;
use kube::{Api, Client, ResourceExt};
use pacer_api::condition::{self, ConditionType, Statement, Verdict};
use pacer_api::{Runner, RunnerStatus};
use pacer_cluster::answer::{ignore_not_found, status};
use pacer_cluster::clock::Clock;
use pacer_cluster::object::Uid;
use pacer_core::at_work::{self, Turned, Work};
use pacer_core::facts::{PodFacts, PodPhase, Refuser, Worker};
use pacer_core::phase::{self, Assessment, Phase};
use pacer_core::stop::WaitReason;
use serde_json::{Value, json};

use super::Subject;
use crate::error::Error;
use crate::observe::Observed;
use crate::published::Owned;
use crate::settings::{PHASE_DELAY, QUIET_START, Settings};

/// A set removes a finished runner at once; its last phase is written only if that takes longer.
const ENDED_DELAY: Duration = Duration::from_secs(5);

/// A status that was written, and the resource version of the Runner it was computed from.
#[derive(Clone, Debug)]
pub(super) struct WrittenStatus {
    version: Option<String>,
    status: RunnerStatus,
}

/// Writes the statuses of Runners.
pub(crate) struct RunnerStatuses {
    client: Client,
    settings: Arc<Settings>,
    written: Owned<Uid, Option<Box<WrittenStatus>>>,
    turned: Owned<Uid, Turned>,
}

/// Reason of a Runner that may not register, since another one has its name at the same place.
const NAME_TAKEN: &str = "NameTaken";

impl RunnerStatuses {
    /// None written yet.
    pub(crate) fn new(client: Client, settings: Arc<Settings>) -> Self {
        Self { client, settings, written: Owned::default(), turned: Owned::default() }
    }

    /// Forgets what was written about a Runner.
    pub(super) fn forget(&self, runner: &Uid) {
        self.written.remove(runner);
        self.turned.remove(runner);
    }

    /// Forgets what was written about Runners that do not exist.
    pub(super) fn retain(&self, exists: impl Fn(&Uid) -> bool) {
        self.written.retain(|runner, _| exists(runner));
        self.turned.retain(|runner, _| exists(runner));
    }

    /// Writes the status if it differs. Returns when to go on with a part that is held back.
    pub(super) async fn write(
        &self,
        of: Subject<'_>,
        observed: &Observed,
        assessment: &Assessment,
        refused: Option<(&str, &str)>,
        job_queued: bool,
    ) -> Result<Duration, Error> {
        let old = self.last_written(of);
        let turned = self.turned(of, observed, assessment, &old);
        if let Some(wait) = hold_back(of, observed, assessment, refused, (&old, job_queued)) {
            return Ok(wait);
        }
        let mut new = mirror(of, observed, assessment, (&old, turned.as_ref()));
        let pod_refused = observed.facts.refusal.as_ref().map(|refusal| match refusal.by {
            Refuser::Pod | Refuser::Quota => ("PodRefused", refusal.message.as_str()),
            Refuser::Tenancy => ("QuotaExceeded", refusal.message.as_str()),
            Refuser::Namesake => (NAME_TAKEN, refusal.message.as_str()),
            Refuser::Credentials => ("CredentialsRefused", refusal.message.as_str()),
        });
        let rival = observed.rival.as_deref().map(taken);
        let rival = rival.as_deref().map(|message| (NAME_TAKEN, message));
        match refused.or(pod_refused).or(rival) {
            Some((reason, message)) => put(&mut new, of, (ConditionType::Accepted, false), reason, message),
            None => {
                condition::remove(&mut new.conditions, ConditionType::Accepted);
            }
        }
        let (ready, reason, message) = readiness(assessment);
        put(&mut new, of, (ConditionType::Ready, ready), reason, &message);
        let ready_since = condition::find(&new.conditions, ConditionType::Ready);
        new.state_since = ready_since.map(|condition| condition.last_transition_time.clone()).max(new.state_since);
        // What else there is to say does not wait, and takes this along.
        let but_for_work =
            RunnerStatus { busy: old.busy, job: old.job.clone(), state_since: old.state_since.clone(), ..new.clone() };
        if self.is_said(&but_for_work, &old) {
            if let Some(wait) = turned.and_then(|turned| turned.waits(of.clock.now)) {
                return Ok(wait.unsigned_abs());
            }
            // Of an operator before this one, which did not say this. A whole fleet of idle ones is not written to for that.
            let by_older = old.state_since.is_none() && condition::holds(&old.conditions, ConditionType::Ready);
            if by_older && new.busy != Some(true) {
                return Ok(self.settings.sync_period);
            }
        }
        self.send(of, &old, new).await?;
        Ok(self.settings.sync_period)
    }

    /// Since when it works, or not, other than its status says.
    fn turned(&self, of: Subject<'_>, observed: &Observed, assessment: &Assessment, old: &RunnerStatus) -> Option<Turned> {
        let work = work(of, observed, assessment, old);
        let before = self.turned.read(of.uid, Turned::clone);
        let turned = Turned::follow(before.as_ref(), &work, &said(old), of.clock.now);
        match turned.clone() {
            Some(turned) => self.turned.set(of.uid, turned),
            None => self.turned.remove(of.uid),
        }
        turned
    }

    /// Says why the removal of a runner waits.
    pub(super) async fn write_stopping(
        &self,
        of: Subject<'_>,
        observed: &Observed,
        why: WaitReason,
        message: &str,
    ) -> Result<(), Error> {
        let old = self.last_written(of);
        let assessment = phase::assess(&observed.facts, of.clock.now);
        let turned = self.turned(of, observed, &assessment, &old);
        let mut new = mirror(of, observed, &assessment, (&old, turned.as_ref()));
        put(&mut new, of, (ConditionType::Stopping, true), why.as_str(), message);
        self.send(of, &old, new).await
    }

    /// Marks a runner as kept for evidence.
    pub(crate) async fn quarantine(&self, runner: &Arc<Runner>, message: &str, clock: Clock) -> Result<(), Error> {
        let of = Subject { runner, uid: &Uid::of(&**runner)?, clock };
        let old = self.last_written(of);
        let mut new = old.clone();
        put(&mut new, of, (ConditionType::Quarantined, true), "PolicyVerdict", message);
        self.send(of, &old, new).await
    }

    /// The status as it was written last, by this process if the watch does not show that yet: computed from the older one, the times in it
    /// would differ and it would be written twice.
    fn last_written(&self, of: Subject<'_>) -> RunnerStatus {
        let written = self.written.get(of.uid).filter(|written| written.version == of.runner.resource_version());
        written.map(|written| written.status).or_else(|| of.runner.status.clone()).unwrap_or_default()
    }

    /// With the in-pod hook, phase and message are the hook's as soon as it has spoken.
    fn is_hooked(&self, old: &RunnerStatus) -> bool {
        self.settings.pod.status_hook && has_phase(old)
    }

    /// Whether a status that was made from the old one says nothing new. The node comes with what is written anyway: a write of its own it is not worth.
    fn is_said(&self, new: &RunnerStatus, old: &RunnerStatus) -> bool {
        let mut owned = RunnerStatus { node_name: old.node_name.clone(), ..new.clone() };
        if self.is_hooked(old) {
            (owned.phase, owned.message) = (old.phase.clone(), old.message.clone());
        }
        owned == *old
    }

    /// Patches what this controller owns, unless that was written already.
    async fn send(&self, of: Subject<'_>, old: &RunnerStatus, new: RunnerStatus) -> Result<(), Error> {
        if self.is_said(&new, old) {
            return Ok(());
        }
        let hook = self.settings.pod.status_hook;
        let hooked = self.is_hooked(old);
        let value = owned(&new, hooked);
        let mut patch = json!({ "status": value });
        if let (true, Some(fields)) = (hook && !hooked, patch.as_object_mut()) {
            // It may have spoken just now. A merge patch that names a version is refused then, and what the hook wrote stays.
            fields.insert("metadata".to_owned(), json!({ "resourceVersion": of.runner.resource_version() }));
        }
        let runners: Api<Runner> = Api::namespaced(self.client.clone(), &of.runner.namespace().unwrap_or_default());
        match runners.patch_status(&of.runner.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await {
            // The watch shows what it wrote, and then the rest is written.
            Err(error) if hook && status(&error).is_some_and(Status::is_conflict) => return Ok(()),
            other => ignore_not_found(other)?,
        }
        let written = Box::new(WrittenStatus { version: of.runner.resource_version(), status: new });
        self.written.set(of.uid, Some(written));
        Ok(())
    }
}

/// Most runners come online soon and most finished ones are removed at once: no write for a state that is about to pass.
fn hold_back(
    of: Subject<'_>,
    observed: &Observed,
    assessment: &Assessment,
    refused: Option<(&str, &str)>,
    (old, job_queued): (&RunnerStatus, bool),
) -> Option<Duration> {
    let (runner, clock) = (of.runner, of.clock);
    if refused.is_some() || observed.facts.refusal.is_some() {
        return None;
    }
    let left = |limit: Duration, since: jiff::Timestamp| {
        let age = Duration::try_from(clock.now.duration_since(since)).unwrap_or_default();
        limit.checked_sub(age).filter(|left| !left.is_zero())
    };
    let patience = if assessment.trouble.is_some() { PHASE_DELAY } else { QUIET_START };
    match assessment.phase {
        // Its set is about to delete it.
        _ if observed.facts.unregistered.is_some() => Some(ENDED_DELAY),
        Phase::Pending | Phase::Starting if is_unsaid(old) => left(patience, observed.facts.created),
        // GitHub may list it before the watch shows that its pod is ready.
        Phase::Idle(_) | Phase::Busy if is_unsaid(old) && !is_ready(observed) => left(patience, observed.facts.created),
        // It says with the same write that it works.
        phase @ (Phase::Idle(_) | Phase::Busy) if is_unsaid(old) => {
            at_work::awaits_job(&observed.facts, phase, job_queued, clock.now).map(jiff::SignedDuration::unsigned_abs)
        }
        Phase::Dead if runner.metadata.owner_references.as_ref().is_some_and(|owners| !owners.is_empty()) => {
            left(ENDED_DELAY, assessment.trouble.as_ref().map_or(clock.now, |trouble| trouble.since))
        }
        _ => None,
    }
}

/// Nothing was written yet about this pod: the phase, if any, is the one that the CustomResourceDefinition gives to a Runner without one. A
/// refusal that was written is no such nothing: it has to be removed. What the hook says before a job is not said by this controller.
fn is_unsaid(status: &RunnerStatus) -> bool {
    let by_hook = status.conditions.is_empty() && matches!(status.phase.as_deref(), Some("Registering" | "Idle"));
    let refused = condition::find(&status.conditions, ConditionType::Accepted).is_some();
    (!has_phase(status) || by_hook) && !refused
}

/// Whether somebody said a phase of its pod.
fn has_phase(status: &RunnerStatus) -> bool {
    status.phase.as_deref().is_some_and(|phase| phase != RunnerStatus::CREATED)
}

/// A pod that is not ready because its runner works is as good as a ready one.
fn is_ready(observed: &Observed) -> bool {
    observed.facts.pod.as_ref().is_some_and(|pod| pod.ready_since.is_some() || pod.worker == Worker::Running)
}

/// What its status says of its job.
fn said(status: &RunnerStatus) -> Work {
    Work { busy: status.busy, job: status.job.as_deref().map(Arc::from) }
}

/// What it works on by now.
fn work(of: Subject<'_>, observed: &Observed, assessment: &Assessment, old: &RunnerStatus) -> Work {
    let pod = observed.facts.pod.as_ref().and_then(|pod| pod.uid.as_ref());
    let said = if pod == old.pod_uid.as_ref() { said(old) } else { Work::default() };
    Work::of(&observed.facts, assessment.phase, observed.job.clone(), &said, of.clock.now)
}

fn mirror(
    of: Subject<'_>,
    observed: &Observed,
    assessment: &Assessment,
    (old, turned): (&RunnerStatus, Option<&Turned>),
) -> RunnerStatus {
    let facts = &observed.facts;
    let pod = facts.pod.as_ref();
    let mut new = old.clone();
    new.phase = Some(pod.map_or(RunnerStatus::CREATED, phase_word).to_owned());
    new.ready = Some(is_ready(observed));
    let trouble = assessment.trouble.as_ref();
    new.reason = trouble
        .map(|trouble| trouble.cause.as_str().to_owned())
        .or_else(|| pod.map(|pod| pod.reason.clone()))
        .filter(|text| !text.is_empty());
    new.message = trouble
        .map(|trouble| trouble.message.clone())
        .or_else(|| pod.map(|pod| pod.message.clone()))
        .filter(|text| !text.is_empty());
    // An id that was known ahead says nothing of the agent.
    new.runner_id = facts.known_id.filter(|_| !facts.awaited).and_then(|id| i64::try_from(id).ok()).or(old.runner_id);
    if new.runner_id.is_some() && new.registered_at.is_none() {
        new.registered_at = Some(Time(of.clock.now));
    }
    let same_pod = pod.is_some_and(|pod| pod.uid == old.pod_uid);
    new.node_name = pod.and_then(|pod| pod.node.clone()).or(old.node_name.clone().filter(|_| same_pod));
    new.pod_uid = pod.and_then(|pod| pod.uid.clone()).or_else(|| old.pod_uid.clone());
    new.observed_generation = of.runner.metadata.generation;
    if let Some(turned) = turned {
        let Work { busy, job } = turned.to();
        (new.busy, new.job, new.state_since) = (*busy, job.as_deref().map(str::to_owned), Some(Time(turned.since())));
    }
    new
}

/// What a Runner is told whose name another one has.
pub(super) fn taken(rival: &str) -> String {
    format!(
        "Runner {rival} has the same name and registers at the same place, where GitHub knows runners by their names alone: it keeps the \
         registration; delete one of them, or give this one another name"
    )
}

fn phase_word(pod: &PodFacts) -> &'static str {
    match pod.phase {
        PodPhase::Pending => "Pending",
        PodPhase::Running => "Running",
        PodPhase::Succeeded => "Succeeded",
        PodPhase::Failed => "Failed",
        PodPhase::Unknown => "Unknown",
    }
}

fn readiness(assessment: &Assessment) -> (bool, &'static str, String) {
    if let Some(trouble) = &assessment.trouble {
        let mut message = trouble.message.clone();
        message.truncate(message.floor_char_boundary(512));
        return (false, "InTrouble", format!("{}: {message}", trouble.situation.as_str()));
    }
    match assessment.phase {
        Phase::Idle(_) | Phase::Busy => (true, "Registered", "registered at GitHub".to_owned()),
        // Without trouble only one that is not meant to connect.
        Phase::Offline => (true, "Registered", "registered at GitHub, and no more than that".to_owned()),
        Phase::Stopping => (false, "Stopping", "being removed".to_owned()),
        _ => (false, "Starting", "not registered at GitHub yet".to_owned()),
    }
}

fn put(status: &mut RunnerStatus, of: Subject<'_>, (type_, holds): (ConditionType, bool), reason: &str, message: &str) {
    let generation = of.runner.metadata.generation;
    let statement = Statement { type_, verdict: Verdict::from(holds), reason, message, generation };
    condition::put(&mut status.conditions, &statement, of.clock.now);
}

/// The fields this controller owns, absent ones as null so that a merge patch removes them.
fn owned(status: &RunnerStatus, hooked: bool) -> Value {
    let mut value = json!({
        "ready": status.ready,
        "reason": status.reason,
        "runnerId": status.runner_id,
        "registeredAt": status.registered_at,
        "podUid": status.pod_uid,
        "nodeName": status.node_name,
        "busy": status.busy,
        "job": status.job,
        "stateSince": status.state_since,
        "observedGeneration": status.observed_generation,
        "conditions": status.conditions,
    });
    if let (false, Some(fields)) = (hooked, value.as_object_mut()) {
        fields.insert("phase".to_owned(), json!(status.phase));
        fields.insert("message".to_owned(), json!(status.message));
    }
    value
}

/// Whether the condition `Accepted` of a Runner says this already.
pub(super) fn says_refused(runner: &Runner, message: &str) -> bool {
    let conditions = runner.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    condition::find(conditions, ConditionType::Accepted).is_some_and(|accepted| accepted.message == message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn say(status: &mut RunnerStatus, type_: ConditionType, holds: bool, reason: &str) {
        let statement =
            Statement { type_, verdict: Verdict::from(holds), reason, message: "of the pod before", generation: None };
        condition::put(&mut status.conditions, &statement, jiff::Timestamp::UNIX_EPOCH);
    }

    #[test]
    fn refusal_is_news_when_its_text_is() {
        let mut runner = Runner::new("r", pacer_api::RunnerSpec::default());
        assert!(!says_refused(&runner, "of the pod before"));
        say(runner.status.get_or_insert_default(), ConditionType::Accepted, false, "PodRefused");
        assert!(says_refused(&runner, "of the pod before"));
        assert!(!says_refused(&runner, "another"));
    }

    #[test]
    fn the_default_phase_says_nothing_and_a_refusal_does() {
        let fresh = RunnerStatus::default();
        let created = RunnerStatus { phase: Some(RunnerStatus::CREATED.to_owned()), ..RunnerStatus::default() };
        let mut again = created.clone();
        say(&mut again, ConditionType::Ready, true, "Registered");
        let mut refused = created.clone();
        say(&mut refused, ConditionType::Accepted, false, "PodRefused");
        let pending = RunnerStatus { phase: Some("Pending".to_owned()), ..RunnerStatus::default() };
        let hooked = RunnerStatus { phase: Some("Registering".to_owned()), ..RunnerStatus::default() };
        let unsaid = [&fresh, &created, &again, &hooked, &refused, &pending].map(is_unsaid);
        assert_eq!(unsaid, [true, true, true, true, false, false]);
    }
}
