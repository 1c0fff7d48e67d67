//! The status of a Runner: ARC's fields for people, ours for the next operator that starts.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use kube::core::Status;
use pacer_api::condition::{self, ConditionType, Statement, Verdict};
use pacer_api::{Runner, RunnerStatus};
use pacer_core::facts::{PodFacts, PodPhase, Refuser};
use pacer_core::phase::{Assessment, Phase};
use pacer_core::stop::WaitReason;
use serde_json::{Value, json};

use crate::context::Context;
use crate::error::{Error, gone_is_fine, status};
use crate::observe::{Clock, Observed};
use crate::settings::{PHASE_DELAY, QUIET_START};

/// A set removes a finished runner at once; its last phase is written only if that takes longer.
const ENDED_DELAY: Duration = Duration::from_secs(5);

/// Writes the status if it differs. Returns when to look again for a part that is held back.
///
/// # Errors
///
/// When the API server refuses.
pub(super) async fn write(
    runner: &Runner,
    ctx: &Context,
    observed: &Observed,
    assessment: &Assessment,
    refused: Option<&str>,
    clock: Clock,
) -> Result<Duration, Error> {
    let old = last_said(runner, ctx);
    if let Some(wait) = hold_back(runner, observed, assessment, refused, &old, clock) {
        return Ok(wait);
    }
    let mut new = mirror(runner, observed, assessment, &old, clock);
    let generation = runner.metadata.generation;
    match refused {
        Some(message) => put(&mut new, ConditionType::Accepted, false, "SettingsRefused", message, generation, clock),
        None => match &observed.facts.refusal {
            Some(refusal) => {
                let reason = match refusal.by {
                    Refuser::Pod | Refuser::Quota => "PodRefused",
                    Refuser::Credentials => "CredentialsRefused",
                };
                put(&mut new, ConditionType::Accepted, false, reason, &refusal.message, generation, clock);
            }
            None => {
                condition::remove(&mut new.conditions, ConditionType::Accepted);
            }
        },
    }
    let (ready, reason, message) = readiness(assessment);
    put(&mut new, ConditionType::Ready, ready, reason, &message, generation, clock);
    send(runner, ctx, &old, &new).await?;
    Ok(ctx.settings.sync_period)
}

/// Says why the removal of a runner waits.
///
/// # Errors
///
/// When the API server refuses.
pub(super) async fn stopping(
    runner: &Runner,
    ctx: &Context,
    observed: &Observed,
    assessment: &Assessment,
    why: WaitReason,
    message: &str,
    clock: Clock,
) -> Result<(), Error> {
    let old = last_said(runner, ctx);
    let mut new = mirror(runner, observed, assessment, &old, clock);
    put(&mut new, ConditionType::Stopping, true, why.as_str(), message, runner.metadata.generation, clock);
    send(runner, ctx, &old, &new).await
}

/// Marks a runner as kept for evidence.
///
/// # Errors
///
/// When the API server refuses.
pub(crate) async fn quarantine(runner: &Runner, ctx: &Context, message: &str, clock: Clock) -> Result<(), Error> {
    let old = last_said(runner, ctx);
    let mut new = old.clone();
    put(&mut new, ConditionType::Quarantined, true, "PolicyVerdict", message, runner.metadata.generation, clock);
    send(runner, ctx, &old, &new).await
}

/// Most runners come online soon and most finished ones are removed at once: no write for a state that is about to pass.
fn hold_back(
    runner: &Runner,
    observed: &Observed,
    assessment: &Assessment,
    refused: Option<&str>,
    old: &RunnerStatus,
    clock: Clock,
) -> Option<Duration> {
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
        _ if observed.facts.unregistered => Some(ENDED_DELAY),
        Phase::Pending | Phase::Starting if is_unsaid(old) => left(patience, observed.facts.created),
        // GitHub may list it before the watch shows that its pod is ready.
        Phase::Idle(_) | Phase::Busy if is_unsaid(old) && !is_ready(observed) => left(patience, observed.facts.created),
        Phase::Dead if runner.metadata.owner_references.as_ref().is_some_and(|owners| !owners.is_empty()) => {
            left(ENDED_DELAY, assessment.trouble.as_ref().map_or(clock.now, |trouble| trouble.since))
        }
        _ => None,
    }
}

/// Nothing was written yet about this pod: the phase, if any, is the one that the CustomResourceDefinition gives to a Runner without one. A
/// refusal that was written is no such nothing: it has to be taken back. What the hook says before a job is not said by this controller.
fn is_unsaid(status: &RunnerStatus) -> bool {
    let by_hook = status.conditions.is_empty() && matches!(status.phase.as_deref(), Some("Registering" | "Idle"));
    let refused = status.conditions.iter().any(|condition| condition.type_ == ConditionType::Accepted.as_str());
    (!has_phase(status) || by_hook) && !refused
}

/// Whether somebody said a phase of its pod.
fn has_phase(status: &RunnerStatus) -> bool {
    status.phase.as_deref().is_some_and(|phase| phase != RunnerStatus::CREATED)
}

fn is_ready(observed: &Observed) -> bool {
    observed.facts.pod.as_ref().is_some_and(|pod| pod.ready_since.is_some())
}

fn mirror(runner: &Runner, observed: &Observed, assessment: &Assessment, old: &RunnerStatus, clock: Clock) -> RunnerStatus {
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
    new.runner_id = facts.known_id.and_then(|id| i64::try_from(id).ok()).or(old.runner_id);
    if new.runner_id.is_some() && new.registered_at.is_none() {
        new.registered_at = Some(Time(clock.now));
    }
    new.pod_uid = pod.map(|pod| pod.uid.clone()).or_else(|| old.pod_uid.clone());
    new.observed_generation = runner.metadata.generation;
    new
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

fn put(
    status: &mut RunnerStatus,
    type_: ConditionType,
    verdict: bool,
    reason: &str,
    message: &str,
    generation: Option<i64>,
    clock: Clock,
) {
    let statement = Statement { type_, verdict: Verdict::from(verdict), reason, message, generation };
    condition::put(&mut status.conditions, &statement, clock.now);
}

/// Patches what this controller owns, unless that was said already.
async fn send(runner: &Runner, ctx: &Context, old: &RunnerStatus, new: &RunnerStatus) -> Result<(), Error> {
    // With the in-pod hook, phase and message are the hook's as soon as it has spoken.
    let hook = ctx.settings.pod.status_hook;
    let hooked = hook && has_phase(old);
    let value = owned(new, hooked);
    if value == owned(old, hooked) {
        return Ok(());
    }
    let mut patch = json!({ "status": value });
    if let (true, Some(fields)) = (hook && !hooked, patch.as_object_mut()) {
        // It may have spoken just now. A merge patch that names a version is refused then, and what the hook said stays.
        fields.insert("metadata".to_owned(), json!({ "resourceVersion": runner.resource_version() }));
    }
    let patch = Patch::Merge(patch);
    match ctx.runners(runner).patch_status(&runner.name_any(), &PatchParams::default(), &patch).await {
        // The watch shows what it said, and then the rest is written.
        Err(error) if hook && status(&error).is_some_and(Status::is_conflict) => return Ok(()),
        other => gone_is_fine(other)?,
    }
    let said = Box::new((runner.resource_version(), new.clone()));
    ctx.memory.runner(&runner.uid().unwrap_or_default(), |memo| memo.status = Some(said));
    Ok(())
}

/// The status as it was written last, by this process if the watch does not show that yet: computed from the older one, the times in it
/// would differ and it would be written twice.
fn last_said(runner: &Runner, ctx: &Context) -> RunnerStatus {
    let version = runner.resource_version();
    let said = ctx.memory.runner(&runner.uid().unwrap_or_default(), |memo| {
        memo.status.take_if(|said| said.0 != version);
        memo.status.as_ref().map(|said| said.1.clone())
    });
    said.or_else(|| runner.status.clone()).unwrap_or_default()
}

/// The fields this controller owns, absent ones as null so that a merge patch removes them.
fn owned(status: &RunnerStatus, hooked: bool) -> Value {
    let mut value = json!({
        "ready": status.ready,
        "reason": status.reason,
        "runnerId": status.runner_id,
        "registeredAt": status.registered_at,
        "podUid": status.pod_uid,
        "observedGeneration": status.observed_generation,
        "conditions": status.conditions,
    });
    if let (false, Some(fields)) = (hooked, value.as_object_mut()) {
        fields.insert("phase".to_owned(), json!(status.phase));
        fields.insert("message".to_owned(), json!(status.message));
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_phase_says_nothing_and_a_refusal_does() {
        let clock = Clock::read();
        let fresh = RunnerStatus::default();
        let created = RunnerStatus { phase: Some(RunnerStatus::CREATED.to_owned()), ..RunnerStatus::default() };
        let mut again = created.clone();
        put(&mut again, ConditionType::Ready, true, "Registered", "of the pod before", None, clock);
        let mut refused = created.clone();
        put(&mut refused, ConditionType::Accepted, false, "PodRefused", "exceeded quota", None, clock);
        let pending = RunnerStatus { phase: Some("Pending".to_owned()), ..RunnerStatus::default() };
        let hooked = RunnerStatus { phase: Some("Registering".to_owned()), ..RunnerStatus::default() };
        let unsaid = [&fresh, &created, &again, &hooked, &refused, &pending].map(is_unsaid);
        assert_eq!(unsaid, [true, true, true, true, false, false]);
    }
}
