//! Taking a runner down, one step per reconcile: [`pacer_core::stop`] decides, this acts.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Resource, ResourceExt};
use pacer_api::Runner;
use pacer_api::names::finalizer;
use pacer_core::phase;
use pacer_core::stop::{self, PodDeletion, Step, WaitReason};
use pacer_github::Removal;
use pacer_github::roster::Haste;
use serde_json::json;

use super::{linked, report};
use crate::access::{Access, NEXT_TURN};
use crate::context::Context;
use crate::error::{Error, gone_is_fine, made_as_seen};
use crate::events::Reason;
use crate::inherited;
use crate::observe::{Clock, Observed};

/// Takes the next steps until one has to be waited for.
pub(super) async fn step(
    runner: &Runner,
    ctx: &Context,
    access: Result<Access, Error>,
    mut observed: Observed,
    clock: Clock,
) -> Result<Action, Error> {
    if observed.facts.left_for_good() && !observed.facts.unregistered {
        // Remembered, since no listing will be newer than the deletion of its pod.
        ctx.memory.runner(&observed.facts.uid, |memo| memo.unregistered = true);
        observed.facts.unregistered = true;
    }
    let step = stop::next(&observed.facts, observed.refused_busy, &ctx.settings.stop, clock.now);
    let turn = match (&step, &access) {
        (Step::Unregister { .. }, Ok(access)) => match access.turn() {
            None => return Ok(Action::requeue(NEXT_TURN)),
            turn => turn,
        },
        _ => None,
    };
    let step = match (step, &access) {
        (Step::Unregister { id }, Ok(access)) => match unregister(ctx, access, id).await? {
            Removal::Removed | Removal::Absent => {
                tracing::info!(runner = %observed.facts.name, namespace = runner.namespace(), id, "runner unregistered");
                ctx.memory.runner(&observed.facts.uid, |memo| memo.unregistered = true);
                observed.facts.unregistered = true;
                stop::next(&observed.facts, None, &ctx.settings.stop, clock.now)
            }
            Removal::Busy { message } => {
                let first = ctx.memory.runner(&observed.facts.uid, |memo| memo.refused_busy.replace(clock.instant).is_none());
                if first {
                    let note = format!("GitHub keeps the runner until its job is done: {message}");
                    ctx.events.publish(Reason::RunnerDraining, &runner.object_ref(&()), None, &note).await;
                }
                Step::Wait { why: WaitReason::Draining, recheck: stop::BUSY_RETRY }
            }
        },
        (step, _) => step,
    };
    drop(turn);
    act(runner, ctx, access, &observed, step, clock).await
}

/// Asks GitHub to remove a registration.
///
/// # Errors
///
/// When GitHub's answer says neither that it is gone nor that it is busy.
pub(crate) async fn unregister(ctx: &Context, access: &Access, id: u64) -> Result<Removal, Error> {
    if !ctx.fence.holds() {
        return Err(crate::fence::NotLeader.into());
    }
    Ok(access.github().remove_runner(access.scope(), id).await?)
}

async fn act(
    runner: &Runner,
    ctx: &Context,
    access: Result<Access, Error>,
    observed: &Observed,
    step: Step,
    clock: Clock,
) -> Result<Action, Error> {
    match step {
        Step::Release => {
            linked::remove(runner, ctx).await?;
            release(ctx, runner).await?;
            ctx.memory.runner(&observed.facts.uid, |memo| memo.released = runner.resource_version());
            Ok(Action::await_change())
        }
        Step::DeletePod(how) => {
            delete_pod(ctx, runner, observed, how).await?;
            if how == PodDeletion::Force {
                let note = format!("Forcefully deleted pod '{}': its node no longer answers for it", observed.facts.name);
                ctx.events.publish(Reason::PodDeleted, &runner.object_ref(&()), None, &note).await;
            }
            Ok(Action::requeue(Duration::from_secs(5)))
        }
        Step::FreePod => {
            if let Some(pod) =
                ctx.stores.pods.get(&ObjectRef::new(&runner.name_any()).within(&runner.namespace().unwrap_or_default()))
            {
                inherited::free(ctx, &pod).await?;
            }
            Ok(Action::requeue(Duration::from_secs(5)))
        }
        Step::Wait { why, recheck } => {
            if let Ok(access) = &access {
                match why {
                    WaitReason::ListingUnknown | WaitReason::Finishing => {
                        access.await_listing(&observed.facts.name, Haste::Removal);
                    }
                    WaitReason::Registering => access.await_listing(&observed.facts.name, Haste::Registration),
                    WaitReason::Draining | WaitReason::PodTerminating => {}
                }
            }
            // A pod that ends in its own time is no news; a wait for anything else is.
            if !matches!(why, WaitReason::PodTerminating | WaitReason::Finishing) {
                let assessment = phase::assess(&observed.facts, clock.now);
                let note = waiting(why, access.as_ref().err(), observed);
                report::stopping(runner, ctx, observed, &assessment, why, &note, clock).await?;
            }
            Ok(Action::requeue(recheck.min(ctx.settings.sync_period)))
        }
        Step::Unregister { id } => {
            // Only without credentials: with them the step was taken above.
            let note = match access {
                Err(error) => format!(
                    "runner {id} can't be removed from GitHub: {error}; give the credentials back, or take the finalizer away by hand and remove the runner in GitHub's settings"
                ),
                Ok(_) => format!("runner {id} is to be removed from GitHub"),
            };
            let assessment = phase::assess(&observed.facts, clock.now);
            report::stopping(runner, ctx, observed, &assessment, WaitReason::ListingUnknown, &note, clock).await?;
            Ok(Action::requeue(ctx.settings.sync_period))
        }
    }
}

fn waiting(why: WaitReason, credentials: Option<&Error>, observed: &Observed) -> String {
    let name = &observed.facts.name;
    match (why, credentials) {
        (_, Some(error)) => format!("waiting for GitHub: {error}"),
        (WaitReason::Draining, _) => format!("{name} runs a job; it is removed as soon as the job is done"),
        (WaitReason::Registering, _) => {
            format!("{name} has started and may register any moment; it is removed as soon as GitHub lists it")
        }
        (WaitReason::ListingUnknown, _) => format!("waiting for a listing from GitHub that says whether {name} is registered"),
        (WaitReason::Finishing, _) => format!("{name} has done its job and removes itself from GitHub"),
        (WaitReason::PodTerminating, _) => format!("the pod of {name} takes its time to end"),
    }
}

/// Deletes the pod of a Runner as it was observed, once.
///
/// # Errors
///
/// When the API server refuses for any reason but that it is gone or another one by now.
pub(crate) async fn delete_pod(ctx: &Context, runner: &Runner, observed: &Observed, how: PodDeletion) -> Result<(), Error> {
    let Some(pod) = &observed.facts.pod else { return Ok(()) };
    let pods: Api<Pod> = Api::namespaced(ctx.client.clone(), &runner.namespace().unwrap_or_default());
    let asked = (pod.resource_version.clone(), how);
    if ctx.memory.runner(&observed.facts.uid, |memo| memo.pod_deleted.as_ref() == Some(&asked)) {
        return Ok(());
    }
    let unchanged = (how == PodDeletion::IfUnchanged).then(|| pod.resource_version.clone());
    let params = DeleteParams {
        grace_period_seconds: (how == PodDeletion::Force).then_some(0),
        preconditions: Some(Preconditions { uid: Some(pod.uid.clone()), resource_version: unchanged }),
        ..DeleteParams::default()
    };
    // Where it changed or was replaced since, the step is decided anew.
    if made_as_seen(pods.delete(&runner.name_any(), &params).await)? {
        ctx.memory.runner(&observed.facts.uid, |memo| memo.pod_deleted = Some(asked));
    }
    Ok(())
}

/// Takes the finalizer away; others stay, they are not ours.
async fn release(ctx: &Context, runner: &Runner) -> Result<(), Error> {
    let left: Vec<&String> = runner.finalizers().iter().filter(|name| *name != finalizer::RUNNER).collect();
    let patch = json!({"metadata": {"resourceVersion": runner.resource_version(), "finalizers": left}});
    gone_is_fine(ctx.runners(runner).patch_metadata(&runner.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await)?;
    Ok(())
}
