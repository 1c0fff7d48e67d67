//! Giving runners up: those that are over, those that never started, and the idle ones that the policy names.
//!
//! An idle runner is unregistered at GitHub first; *busy* ends the attempt, and only then is its object deleted.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt, stream};
use kube::{Resource, ResourceExt};
use pacer_api::RunnerReplicaSet;
use pacer_core::fleet::Shrink;
use pacer_core::scale_down;
use pacer_github::Removal;
use pacer_github::roster::Haste;
use pacer_policy::Generation;
use pacer_policy::record::{Done, Item};

use super::{Survey, let_go, past};
use crate::access::{Access, NEXT_TURN};
use crate::context::Context;
use crate::error::Error;
use crate::events::Reason;
use crate::observe::Clock;
use crate::pool;
use crate::receipts::{Draft, Owner, not_unregistered};
use crate::settings::FAN_OUT;

/// Events per scale-down; the rest is in the log, since every event is a write.
const EVENTS: usize = 3;

/// Carries a plan out. Returns when to look again.
pub(super) async fn carry_out(
    set: &RunnerReplicaSet,
    ctx: &Context,
    generation: &Generation,
    access: Option<&Access>,
    survey: &mut Survey,
    plan: &Shrink,
    clock: Clock,
) -> Result<Duration, Error> {
    let spare = spare(set, survey, plan);
    let mut gone: Vec<usize> = plan.dead.iter().chain(&plan.unstarted).copied().collect();
    let mut drafts = Vec::new();
    if !spare.is_empty() {
        drafts.push(Draft::unasked(Owner::set(set), generation, spare, clock.now));
    }
    let mut next = ctx.settings.sync_period;
    if let (true, Some(access)) = (plan.ask > 0, access) {
        let asked = ask(set, ctx, generation, access, survey, plan, clock).await;
        gone.extend(asked.gone);
        drafts.extend(asked.draft);
        next = next.min(asked.retry);
    }
    if gone.is_empty() {
        drafts.into_iter().for_each(|draft| ctx.receipts.leave(draft));
        return Ok(next);
    }
    survey.scaled.1 = Some(clock.now);
    ctx.memory.set(&set.uid().unwrap_or_default(), |memo| memo.scaled_down = Some(clock.now));
    ctx.receipts.keep(drafts).await;
    let_go(ctx, survey, &gone, clock).await?;
    Ok(next)
}

/// Those that no policy is asked about, because they do nothing.
fn spare(set: &RunnerReplicaSet, survey: &Survey, plan: &Shrink) -> Vec<Item> {
    let wanted = set.spec.replicas_or_default();
    let ended = plan.dead.iter().map(|member| (member, true));
    let named = ended.chain(plan.unstarted.iter().map(|member| (member, false))).filter_map(|(member, ended)| {
        let (facts, _) = survey.members.get(*member)?;
        Some(Item { name: facts.name.clone(), done: Done::Spare { wanted, ended } })
    });
    named.collect()
}

/// What came of asking.
struct Asked {
    /// Who is unregistered.
    gone: Vec<usize>,
    /// When to ask again.
    retry: Duration,
    /// What is to be kept of it.
    draft: Option<Draft>,
}

impl Asked {
    fn nothing(retry: Duration) -> Self {
        Self { gone: Vec::new(), retry, draft: None }
    }
}

/// Asks the policy and GitHub.
async fn ask(
    set: &RunnerReplicaSet,
    ctx: &Context,
    generation: &Generation,
    access: &Access,
    survey: &Survey,
    plan: &Shrink,
    clock: Clock,
) -> Asked {
    let (members, confirmation) = (&survey.members, ctx.settings.idle_confirmation);
    let nodes = match scale_down::has_eligible(members, confirmation, plan.outdated_only) {
        true => ctx.nodes.about(&scale_down::node_names(members)).await,
        false => BTreeMap::new(),
    };
    let Some(turn) = access.turn() else { return Asked::nothing(NEXT_TURN) };
    let pool = pool::of_set(set, members, access.budget(), survey.scaled, past(set, ctx, clock.now), clock.now);
    let Some(offer) = scale_down::offer(members, &nodes, pool, plan.ask, confirmation, plan.outdated_only, clock.now) else {
        // Idle ones there are, but none for long enough: the newest proof is due soon.
        return Asked::nothing(confirmation.max(Duration::from_secs(1)));
    };
    let evaluation = generation.scale_down(offer.request).await;
    ctx.note(&evaluation, &set.object_ref(&())).await;
    let policy = evaluation.receipt.policy.as_str();
    // Owned: the stream below is part of a future that has to be Send for any lifetime.
    let chosen: Vec<(usize, String)> = evaluation
        .answer
        .iter()
        .filter_map(|choice| Some((*offer.runners.get(usize::try_from(choice.index).ok()?)?, choice.reason.clone())))
        .collect();
    let turn = &turn;
    let removals: Vec<(usize, String, Result<Removal, Error>)> = stream::iter(chosen)
        .map(|(member, reason)| async move {
            let removal = unregister(ctx, access, survey, member).await;
            turn.answered();
            (member, reason, removal)
        })
        .buffered(FAN_OUT)
        .collect()
        .await;
    let mut gone = Vec::new();
    let mut items = Vec::with_capacity(removals.len());
    let mut retry = ctx.settings.sync_period;
    for (member, reason, removal) in removals {
        let Some((facts, _)) = survey.members.get(member) else { continue };
        let (runner, reason) = (facts.name.as_str(), reason.as_str());
        let done = match removal {
            Ok(Removal::Removed | Removal::Absent) => {
                ctx.memory.runner(&facts.uid, |memo| memo.unregistered = true);
                tracing::info!(runner, namespace = set.namespace(), reason, policy, verdict = "accepted", "runner removed");
                if let (true, Some(object)) = (gone.len() < EVENTS, survey.runners.get(member)) {
                    let note = format!("removed runner {runner}: {reason}; policy {policy}");
                    ctx.events.publish(Reason::RunnerRemoved, &set.object_ref(&()), Some(object.object_ref(&())), &note).await;
                }
                gone.push(member);
                Done::Removed
            }
            Ok(Removal::Busy { message }) => {
                ctx.memory.runner(&facts.uid, |memo| memo.refused_busy = Some(clock.instant));
                tracing::info!(runner, reason, policy, message, verdict = "dropped: busy", "runner kept");
                access.await_listing(runner, Haste::JobEnd);
                retry = Duration::from_secs(2);
                Done::Busy { message }
            }
            Err(error) => {
                tracing::warn!(runner, %error, verdict = "dropped: not unregistered", "runner kept");
                retry = retry.min(error.retry_after(3));
                not_unregistered(&error)
            }
        };
        items.push(Item { name: facts.name.clone(), done });
    }
    let draft = (!items.is_empty()).then(|| Draft::new(Owner::set(set), &evaluation, items, clock.now));
    Asked { gone, retry, draft }
}

async fn unregister(ctx: &Context, access: &Access, survey: &Survey, member: usize) -> Result<Removal, Error> {
    let id = survey.members.get(member).and_then(|(facts, _)| facts.remote.id());
    let id = id.ok_or(Error::Incomplete("runner", "GitHub id"))?;
    if !ctx.fence.holds() {
        return Err(crate::fence::NotLeader.into());
    }
    Ok(access.github().remove_runner(access.scope(), id).await?)
}
