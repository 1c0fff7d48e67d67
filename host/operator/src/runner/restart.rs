//! Runners that no set owns: nobody replaces them, so their pod is made again under the same name (arc-behaviour 10.3).

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Preconditions};
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Resource, ResourceExt};
use pacer_api::Runner;
use pacer_core::phase::Assessment;
use pacer_core::restart::Remedy;

use super::{linked, report};
use crate::access::Access;
use crate::context::Context;
use crate::error::{Error, gone_is_fine};
use crate::events::Reason;
use crate::inherited;
use crate::judge::{self, Judged};
use crate::observe::{Clock, Observed};
use crate::pool;
use crate::receipts::Owner;

/// Asks the policy about a stand-alone Runner in trouble and follows. Returns when to look again, none when there is nothing to do.
///
/// # Errors
///
/// When the API server refuses.
pub(super) async fn stand_alone(
    runner: &Runner,
    ctx: &Context,
    access: &Access,
    observed: &Observed,
    assessment: &Assessment,
    clock: Clock,
) -> Result<Option<Duration>, Error> {
    // One that a RunnerDeployment keeps for its registration is nobody's to replace, either.
    let owned = runner.owner_references().iter().any(|owner| owner.controller == Some(true));
    if (owned && !observed.facts.registration_only)
        || assessment.trouble.is_none()
        || observed.facts.quarantined
        || observed.pod_in_flight
    {
        return Ok(None);
    }
    let member = [(observed.facts.clone(), assessment.clone())];
    let generation = ctx.policies.generation();
    let attempts = runner.status.as_ref().and_then(|status| status.attempts).unwrap_or_default();
    let about = runner.object_ref(&());
    let pool = pool::of_runner(runner, assessment, access.budget());
    let judged = judge::judge(ctx, &generation, pool, &member, (&about, Owner::runner(runner)), true, attempts, clock).await;
    let Some(Judged { remedy, reason, policy, .. }) = judged.into_iter().next() else { return Ok(None) };
    match remedy {
        Remedy::Wait { recheck } => Ok(Some(recheck)),
        Remedy::Quarantine => {
            report::quarantine(runner, ctx, &reason, clock).await?;
            ctx.events.publish(Reason::RunnerQuarantined, &runner.object_ref(&()), None, &reason).await;
            Ok(None)
        }
        Remedy::Recreate | Remedy::Replace => {
            let note = format!("pod made again: {reason}; policy {policy}");
            recreate(runner, ctx, observed, assessment).await?;
            ctx.events.publish(Reason::PodRecreated, &runner.object_ref(&()), None, &note).await;
            Ok(Some(Duration::from_secs(1)))
        }
    }
}

/// Removes what is left of the old pod; the next reconcile finds none and makes one.
async fn recreate(runner: &Runner, ctx: &Context, observed: &Observed, assessment: &Assessment) -> Result<(), Error> {
    if let Some(pod) = &observed.facts.pod {
        let pods: Api<Pod> = Api::namespaced(ctx.client.clone(), &runner.namespace().unwrap_or_default());
        let only_this = DeleteParams {
            preconditions: Some(Preconditions { uid: Some(pod.uid.clone()), resource_version: None }),
            ..DeleteParams::default()
        };
        gone_is_fine(pods.delete(&runner.name_any(), &only_this).await)?;
        let seen = ctx.stores.pods.get(&ObjectRef::new(&runner.name_any()).within(&runner.namespace().unwrap_or_default()));
        if let Some(seen) = seen.filter(|seen| inherited::is_held(seen)) {
            inherited::free(ctx, &seen).await?;
        }
    }
    linked::remove(runner, ctx).await?;
    let failed = assessment.trouble.as_ref().is_some_and(|trouble| trouble.cause.is_failure());
    let attempts = runner.status.as_ref().and_then(|status| status.attempts).unwrap_or_default();
    let attempts = if failed { attempts.saturating_add(1) } else { 0 };
    // A new pod is a new registration: what was known about the old one must not pass for knowledge about the new one.
    let patch = serde_json::json!({ "status": {
        "runnerId": null, "registeredAt": null, "podUid": null, "phase": null, "reason": null, "message": null, "workflow": null,
        "attempts": attempts,
    }});
    let patch = kube::api::Patch::Merge(patch);
    gone_is_fine(ctx.runners(runner).patch_status(&runner.name_any(), &kube::api::PatchParams::default(), &patch).await)?;
    ctx.memory.forget_runner(&observed.facts.uid);
    Ok(())
}
