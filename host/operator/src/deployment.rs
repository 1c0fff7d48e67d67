//! The RunnerDeployment controller: one RunnerReplicaSet per template, and the way from one to the next.
//!
//! ```text
//! sets -> newest (adopt | create) -> rollout -> apply -> status
//! ```

use std::sync::Arc;
use std::time::Duration;

use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Status;
use kube::runtime::controller::Action;
use kube::{Resource, ResourceExt};
use pacer_api::condition::{self, ConditionType, Statement, Verdict};
use pacer_api::names::{annotation, label};
use pacer_api::{RunnerDeployment, RunnerReplicaSet, RunnerTemplate};
use pacer_core::rollout::{self, Rollout, Set};
use serde_json::json;

use crate::context::Context;
use crate::error::{Error, gone_is_fine, status};
use crate::events::Reason;
use crate::memory::{Said, Summary};
use crate::observe::Clock;
use crate::{policies, template};

/// Brings one deployment a step further.
///
/// # Errors
///
/// When the API server did not do its part; tried again with back-off.
pub async fn reconcile(deployment: Arc<RunnerDeployment>, ctx: Arc<Context>) -> Result<Action, Error> {
    if deployment.meta().deletion_timestamp.is_some() {
        // Its sets and runners are deleted by the garbage collector; each runner drains on its own.
        return Ok(Action::await_change());
    }
    let clock = Clock::read();
    let template = template::of_deployment(&deployment, &ctx.settings.common_labels);
    let desired = deployment.spec.replicas_or_default();
    let mut sets = ctx.stores.sets_of(&deployment.uid().unwrap_or_default());
    sets.sort_by_key(|set| (set.metadata.creation_timestamp.clone().map(|time| time.0), set.name_any()));
    let Some(newest) = newest(&sets, &template) else {
        if !lives(&deployment, &ctx).await? {
            return Ok(Action::requeue(ctx.settings.sync_period));
        }
        let surge = deployment.spec.max_surge_or_default(desired);
        let alive =
            sets.iter().map(|set| summary(&ctx, set).map_or(u32::MAX, |summary| summary.alive)).fold(0, u32::saturating_add);
        let first = if sets.is_empty() { desired } else { desired.min(desired.saturating_add(surge).saturating_sub(alive)) };
        create(&deployment, &ctx, &template, first).await?;
        return Ok(Action::requeue(ctx.settings.sync_period));
    };
    let old: Vec<Arc<RunnerReplicaSet>> = sets.iter().filter(|set| set.uid() != newest.uid()).cloned().collect();
    let rollout = plan(&deployment, &ctx, desired, &newest, &old);
    apply(&deployment, &ctx, &newest, &old, &rollout).await?;
    let status = report(&deployment, &ctx, &newest, &old, &rollout, clock).await?;
    let next = if rollout.complete { ctx.settings.sync_period } else { Duration::from_secs(5).min(ctx.settings.sync_period) };
    Ok(Action::requeue(next.min(status)))
}

/// The set of this template: by its revision label, or, for sets that ARC made with a hash of its own, by the template's meaning. Among
/// several the newest.
fn newest(sets: &[Arc<RunnerReplicaSet>], template: &RunnerTemplate) -> Option<Arc<RunnerReplicaSet>> {
    let revision = template.revision();
    let meaning = template.meaning();
    let alive = || sets.iter().rev().filter(|set| set.meta().deletion_timestamp.is_none());
    alive()
        .find(|set| set.labels().get(label::RUNNER_TEMPLATE_HASH) == Some(&revision))
        .or_else(|| alive().find(|set| set.spec.template.meaning() == meaning))
        .cloned()
}

/// Whether the deployment is still there and is to stay. Asked before a set is made, which happens once per template: a deployment that was
/// deleted while its watch was interrupted would get a new set each time that the garbage collector deletes the last one.
async fn lives(deployment: &RunnerDeployment, ctx: &Context) -> Result<bool, Error> {
    let (namespace, name) = (deployment.namespace().unwrap_or_default(), deployment.name_any());
    let live = ctx.live::<RunnerDeployment>(&namespace, &name, &deployment.uid().unwrap_or_default()).await?;
    let lives = live.is_some_and(|live| live.deletion_timestamp.is_none());
    if !lives {
        tracing::info!(namespace, name, "no set made: the RunnerDeployment was deleted, its watch has not shown that yet");
    }
    Ok(lives)
}

fn summary(ctx: &Context, set: &RunnerReplicaSet) -> Option<Summary> {
    ctx.memory.set(&set.uid().unwrap_or_default(), |memo| memo.summary.clone())
}

fn plan(
    deployment: &RunnerDeployment,
    ctx: &Context,
    desired: u32,
    newest: &RunnerReplicaSet,
    old: &[Arc<RunnerReplicaSet>],
) -> Rollout {
    let describe = |set: &RunnerReplicaSet| {
        let summary = summary(ctx, set);
        let wanted = set.spec.replicas_or_default();
        let leaving = set.meta().deletion_timestamp.is_some();
        Set {
            wanted,
            // Nobody has counted it yet: nothing new is made on the guess that there is room, unless it is going anyway.
            alive: summary.as_ref().map_or(if leaving { wanted } else { u32::MAX }, |summary| summary.alive),
            online: summary.as_ref().map_or(0, |summary| summary.online),
            busy: summary.as_ref().map_or(0, |summary| summary.busy),
            present: summary.as_ref().map_or(u32::MAX, |summary| summary.present),
            observed: summary.is_some_and(|summary| Some(summary.generation) == set.metadata.generation),
        }
    };
    let sets: Vec<Set> = old.iter().map(|set| describe(set)).collect();
    rollout::plan(desired, deployment.spec.max_surge_or_default(desired), describe(newest), &sets)
}

async fn create(deployment: &RunnerDeployment, ctx: &Context, template: &RunnerTemplate, replicas: u32) -> Result<(), Error> {
    let set = template::replica_set(deployment, template, replicas);
    match ctx.sets(deployment).create(&PostParams::default(), &set).await {
        Ok(made) => {
            let note = format!("created runnerreplicaset '{}' with {replicas} replicas", set.name_any());
            let about = Some(made.object_ref(&()));
            ctx.events.publish(Reason::RunnerReplicaSetCreated, &deployment.object_ref(&()), about, &note).await;
            Ok(())
        }
        // The watch is late: the name is a function of the template.
        Err(error) if status(&error).is_some_and(Status::is_already_exists) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn apply(
    deployment: &RunnerDeployment,
    ctx: &Context,
    newest: &RunnerReplicaSet,
    old: &[Arc<RunnerReplicaSet>],
    rollout: &Rollout,
) -> Result<(), Error> {
    let replicas = i32::try_from(rollout.newest).unwrap_or(i32::MAX);
    if newest.spec.replicas != Some(replicas) || newest.spec.effective_time != deployment.spec.effective_time {
        let patch = json!({"spec": {"replicas": replicas, "effectiveTime": deployment.spec.effective_time}});
        scale(ctx, newest, &patch).await?;
    }
    for (set, wanted) in old.iter().zip(&rollout.old) {
        if set.spec.replicas_or_default() != *wanted && set.meta().deletion_timestamp.is_none() {
            scale(ctx, set, &json!({"spec": {"replicas": wanted}})).await?;
        }
    }
    for set in rollout.delete.iter().filter_map(|index| old.get(*index)) {
        let unchanged = DeleteParams {
            preconditions: Some(Preconditions { uid: set.uid(), resource_version: set.resource_version() }),
            ..DeleteParams::default()
        };
        match ctx.sets(deployment).delete(&set.name_any(), &unchanged).await {
            Ok(_) => {
                let note = format!("deleted runnerreplicaset '{}': it is empty", set.name_any());
                let about = Some(set.object_ref(&()));
                ctx.events.publish(Reason::RunnerReplicaSetDeleted, &deployment.object_ref(&()), about, &note).await;
            }
            Err(error) if status(&error).is_some_and(|answer| answer.is_not_found() || answer.is_conflict()) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

async fn scale(ctx: &Context, set: &RunnerReplicaSet, patch: &serde_json::Value) -> Result<(), Error> {
    gone_is_fine(ctx.sets(set).patch(&set.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await)?;
    Ok(())
}

/// Writes the status if it differs, at most once a second. Returns when to look again for a write that is held back.
async fn report(
    deployment: &RunnerDeployment,
    ctx: &Context,
    newest: &RunnerReplicaSet,
    old: &[Arc<RunnerReplicaSet>],
    rollout: &Rollout,
    clock: Clock,
) -> Result<Duration, Error> {
    let before = deployment.status.clone().unwrap_or_default();
    let mut after = before.clone();
    let sets = || std::iter::once(newest).chain(old.iter().map(Arc::as_ref));
    let sum = |count: fn(&pacer_api::RunnerReplicaSetStatus) -> i32| {
        sets().filter_map(|set| set.status.as_ref()).map(count).fold(0_i32, i32::saturating_add)
    };
    let desired = deployment.spec.replicas_or_default();
    let available = sum(|status| status.available_replicas);
    after.available_replicas = Some(available);
    // ARC reports the same number twice.
    after.ready_replicas = Some(available);
    after.updated_replicas = newest.status.as_ref().and_then(|status| status.replicas).or(Some(0));
    after.desired_replicas = i32::try_from(desired).ok();
    after.replicas = Some(sum(|status| status.replicas.unwrap_or_default()));
    after.observed_generation = deployment.metadata.generation;
    after.selector = Some(format!("{}={}", label::RUNNER_DEPLOYMENT_NAME, deployment.name_any()));
    after.revision = Some(template::revision(newest));
    let online = sets().filter_map(|set| summary(ctx, set)).map(|summary| summary.online).fold(0, u32::saturating_add);
    let (verdict, reason, message) = match (rollout.complete, online >= desired) {
        (true, true) => (true, "AllOnline", "as many runners as wanted are registered".to_owned()),
        (true, false) => {
            (false, "Starting", "runners are starting; see the RunnerReplicaSet's conditions if this does not end".to_owned())
        }
        (false, _) => (
            false,
            "RollingOut",
            format!("moving to revision {}; runners that are busy finish their jobs", template::revision(newest)),
        ),
    };
    let statement = Statement {
        type_: ConditionType::Ready,
        verdict: Verdict::from(verdict),
        reason,
        message: &message,
        generation: deployment.metadata.generation,
    };
    condition::put(&mut after.conditions, &statement, clock.now);
    let asked = deployment.annotations().get(annotation::POLICIES).map(String::as_str);
    let (namespace, generation) = (deployment.namespace().unwrap_or_default(), deployment.metadata.generation);
    policies::condition::put(&mut after.conditions, &ctx.policies, &namespace, asked, generation, clock.now);
    if after == before {
        return Ok(ctx.settings.sync_period);
    }
    let (uid, version) = (deployment.uid().unwrap_or_default(), deployment.resource_version());
    let value = serde_json::to_value(&after).unwrap_or_default();
    let hold = |said: &Said| said.hold(version.as_deref(), &value, clock.instant, ctx.settings.sync_period);
    if let Some(wait) = ctx.memory.deployment(&uid, |memo| memo.status.as_ref().and_then(hold)) {
        return Ok(wait);
    }
    let patch = Patch::Merge(json!({ "status": value }));
    gone_is_fine(ctx.deployments(deployment).patch_status(&deployment.name_any(), &PatchParams::default(), &patch).await)?;
    ctx.memory.deployment(&uid, |memo| memo.status = Some(Said { version, value, at: clock.instant }));
    Ok(ctx.settings.sync_period)
}
