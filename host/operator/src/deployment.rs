//! The controller of RunnerDeployments and RunnerSets: one RunnerReplicaSet per template, and the way from one to the next.
//!
//! ```text
//! sets -> newest (adopt | create) -> registration (RunnerDeployment, while empty) or inherit (RunnerSet)
//!   -> rollout -> apply -> claims (RunnerSet) -> status
//! ```

use std::borrow::Borrow;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Status;
use kube::runtime::controller::Action;
use kube::{Api, Resource, ResourceExt};
use pacer_api::names::label;
use pacer_api::{RunnerDeployment, RunnerReplicaSet, RunnerSet, RunnerTemplate};
use pacer_core::rollout::{self, Rollout, Set};
use serde_json::json;

use crate::context::Context;
use crate::error::{Error, gone_is_fine, made_as_seen, status};
use crate::events::Reason;
use crate::memory::Summary;
use crate::observe::Clock;
use crate::target::Target;
use crate::{claim, template};
use report::Progress;

pub(crate) mod inherit;
mod registration;
mod report;

/// Brings one RunnerDeployment a step further.
///
/// # Errors
///
/// When the API server did not do its part; tried again with back-off.
pub async fn reconcile(deployment: Arc<RunnerDeployment>, ctx: Arc<Context>) -> Result<Action, Error> {
    step(&Target::Deployment(deployment), &ctx).await
}

/// Brings one RunnerSet a step further.
///
/// # Errors
///
/// When the API server did not do its part; tried again with back-off.
pub async fn reconcile_runner_set(set: Arc<RunnerSet>, ctx: Arc<Context>) -> Result<Action, Error> {
    step(&Target::Set(set), &ctx).await
}

async fn step(target: &Target, ctx: &Context) -> Result<Action, Error> {
    if target.is_leaving() {
        // Its sets and runners are deleted by the garbage collector; each runner drains on its own.
        return Ok(Action::await_change());
    }
    let clock = Clock::read();
    let template = target.template(&ctx.settings.common_labels);
    let desired = target.replicas();
    let mut sets = ctx.stores.sets_of(target.uid());
    sets.sort_by_key(|set| (set.metadata.creation_timestamp.clone().map(|time| time.0), set.name_any()));
    let Some(newest) = newest(&sets, &template).cloned() else {
        if !lives(target, ctx).await? {
            return Ok(Action::requeue(ctx.settings.sync_period));
        }
        let surge = target.max_surge(desired);
        let alive =
            sets.iter().map(|set| summary(ctx, set).map_or(u32::MAX, |summary| summary.alive)).fold(0, u32::saturating_add);
        let first = if sets.is_empty() { desired } else { desired.min(desired.saturating_add(surge).saturating_sub(alive)) };
        create(target, ctx, &template, first).await?;
        return Ok(Action::requeue(ctx.settings.sync_period));
    };
    if let Target::Set(set) = target {
        let left = inherit::pods(&ctx.stores, target.namespace(), target.name());
        inherit::adopt(ctx, set, &newest, left, clock).await?;
    }
    let old: Vec<Arc<RunnerReplicaSet>> = sets.iter().filter(|set| set.uid() != newest.uid()).cloned().collect();
    let online = online(ctx, &newest, &old);
    let hold_last = match target {
        Target::Deployment(deployment) => {
            registration::keep(deployment, ctx, &template, online, clock).await? && newest.spec.replicas_or_default() > 0
        }
        Target::Set(_) => false,
    };
    let rollout = plan(target, ctx, desired.max(u32::from(hold_last)), &newest, &old);
    apply(target, ctx, &newest, &old, &rollout).await?;
    if let Target::Set(set) = target {
        claim::tend(ctx, set).await?;
    }
    let progress = Progress { rollout, online, hold_last };
    let status = report::write(target, ctx, &newest, &old, &progress, clock).await?;
    let next =
        if progress.rollout.complete { ctx.settings.sync_period } else { Duration::from_secs(5).min(ctx.settings.sync_period) };
    Ok(Action::requeue(next.min(status)))
}

/// The set of this template: by its revision label, or, for sets that ARC made with a hash of its own, by the template's meaning. Among
/// several the newest.
///
/// `sets` are those of one deployment, oldest first.
pub fn newest<'a, S: Borrow<RunnerReplicaSet>>(sets: &'a [S], template: &RunnerTemplate) -> Option<&'a S> {
    let revision = template.revision();
    let meaning = template.meaning();
    let is_alive = |set: &RunnerReplicaSet| set.meta().deletion_timestamp.is_none();
    let alive = || sets.iter().rev().filter(|set| is_alive((*set).borrow()));
    let has_revision = |set: &RunnerReplicaSet| set.labels().get(label::RUNNER_TEMPLATE_HASH) == Some(&revision);
    let means = |set: &RunnerReplicaSet| set.spec.template.meaning() == meaning;
    alive().find(|set| has_revision((*set).borrow())).or_else(|| alive().find(|set| means((*set).borrow())))
}

/// Whether the target is still there and is to stay. Asked before a set is made, which happens once per template: a target that was deleted
/// while its watch was interrupted would get a new set each time that the garbage collector deletes the last one.
async fn lives(target: &Target, ctx: &Context) -> Result<bool, Error> {
    let (namespace, name, uid) = (target.namespace(), target.name(), target.uid());
    let live: Option<ObjectMeta> = match target {
        Target::Deployment(_) => ctx.live::<RunnerDeployment>(namespace, name, uid).await?,
        Target::Set(_) => ctx.live::<RunnerSet>(namespace, name, uid).await?,
    };
    let lives = live.is_some_and(|live| live.deletion_timestamp.is_none());
    if !lives {
        tracing::info!(target = %target.reference(), "no set made: its owner was deleted, the watch has not shown that yet");
    }
    Ok(lives)
}

fn summary(ctx: &Context, set: &RunnerReplicaSet) -> Option<Summary> {
    ctx.memory.set(&set.uid().unwrap_or_default(), |memo| memo.summary.clone())
}

/// Runners of all sets that GitHub can hand a job to.
fn online(ctx: &Context, newest: &RunnerReplicaSet, old: &[Arc<RunnerReplicaSet>]) -> u32 {
    let sets = std::iter::once(newest).chain(old.iter().map(Arc::as_ref));
    sets.filter_map(|set| summary(ctx, set)).map(|summary| summary.online).fold(0, u32::saturating_add)
}

fn plan(target: &Target, ctx: &Context, desired: u32, newest: &RunnerReplicaSet, old: &[Arc<RunnerReplicaSet>]) -> Rollout {
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
    rollout::plan(desired, target.max_surge(desired), describe(newest), &sets)
}

async fn create(target: &Target, ctx: &Context, template: &RunnerTemplate, replicas: u32) -> Result<(), Error> {
    let set = template::replica_set(target, template, replicas);
    match sets(target, ctx).create(&PostParams::default(), &set).await {
        Ok(made) => {
            let note = format!("created runnerreplicaset '{}' with {replicas} replicas", set.name_any());
            let about = Some(made.object_ref(&()));
            ctx.events.publish(Reason::RunnerReplicaSetCreated, &target.object_ref(), about, &note).await;
            Ok(())
        }
        // The watch is late: the name is a function of the template.
        Err(error) if status(&error).is_some_and(Status::is_already_exists) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// RunnerReplicaSets beside a target.
fn sets(target: &Target, ctx: &Context) -> Api<RunnerReplicaSet> {
    Api::namespaced(ctx.client.clone(), target.namespace())
}

async fn apply(
    target: &Target,
    ctx: &Context,
    newest: &RunnerReplicaSet,
    old: &[Arc<RunnerReplicaSet>],
    rollout: &Rollout,
) -> Result<(), Error> {
    let replicas = i32::try_from(rollout.newest).unwrap_or(i32::MAX);
    if newest.spec.replicas != Some(replicas) || newest.spec.effective_time.as_ref() != target.effective_time() {
        let patch = json!({"spec": {"replicas": replicas, "effectiveTime": target.effective_time()}});
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
        if made_as_seen(sets(target, ctx).delete(&set.name_any(), &unchanged).await)? {
            let note = format!("deleted runnerreplicaset '{}': it is empty", set.name_any());
            let about = Some(set.object_ref(&()));
            ctx.events.publish(Reason::RunnerReplicaSetDeleted, &target.object_ref(), about, &note).await;
        }
    }
    Ok(())
}

async fn scale(ctx: &Context, set: &RunnerReplicaSet, patch: &serde_json::Value) -> Result<(), Error> {
    gone_is_fine(ctx.sets(set).patch(&set.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await)?;
    Ok(())
}
