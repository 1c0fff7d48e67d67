//! The Runner controller: one Runner, one pod, one registration.
//!
//! ```text
//! observe -> finalizer | stop | create account, token and pod | restart (stand-alone only) -> status
//! ```

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Status;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Resource, ResourceExt};
use pacer_api::Runner;
use pacer_api::names::finalizer;
use pacer_core::facts::{Refusal, Refuser};
use pacer_core::phase::{self, Assessment, Cause, Phase};
use pacer_core::stop::PodDeletion;
use pacer_github::roster::Haste;
use serde_json::json;

use crate::access::{Access, NEXT_TURN};
use crate::account::AccountError;
use crate::claim::{self, Secured};
use crate::context::Context;
use crate::deployment::inherit;
use crate::error::{Error, made_as_seen, status};
use crate::events::Reason;
use crate::observe::{self, Clock, Observed};
use crate::pod::{self, GeneratedAccess, PodInput};
use crate::settings::PHASE_DELAY;
use crate::token::Tokens;

mod linked;
mod report;
mod restart;
mod stop;

pub(crate) use report::quarantine;
pub(crate) use stop::{delete_pod, unregister};

/// Brings one Runner a step further.
///
/// # Errors
///
/// When the API server or GitHub did not do their part; tried again with back-off.
pub async fn reconcile(runner: Arc<Runner>, ctx: Arc<Context>) -> Result<Action, Error> {
    let clock = Clock::read();
    let access = ctx.access(&runner).await;
    let observed = observe(&ctx, &runner, access.as_ref().ok(), clock).await?;
    let deleting = observed.facts.deleting.is_some();
    if deleting && !runner.finalizers().iter().any(|name| name == finalizer::RUNNER) {
        ctx.memory.forget_runner(&observed.facts.uid);
        return Ok(Action::await_change());
    }
    if deleting
        && ctx.memory.runner(&observed.facts.uid, |memo| memo.released.is_some() && memo.released == runner.resource_version())
    {
        // Done; the watch is late to show it.
        return Ok(Action::requeue(ctx.settings.sync_period));
    }
    if deleting {
        return stop::step(&runner, &ctx, access, observed, clock).await;
    }
    let access = match access {
        Ok(access) => access,
        Err(error) => return refuse(&runner, &ctx, observed, &error, clock).await,
    };
    if !runner.finalizers().iter().any(|name| name == finalizer::RUNNER) {
        add_finalizer(&ctx, &runner).await?;
    }
    if pod::is_leftover(&runner) {
        return remove_leftover(&runner, &ctx).await;
    }
    let assessment = phase::assess(&observed.facts, clock.now);
    let step = match (&observed.facts.pod, assessment.phase) {
        (None, Phase::Pending) if !observed.pod_in_flight => create_pod(&runner, &ctx, &access, clock).await,
        _ => watch(&runner, &ctx, &access, &observed, &assessment, clock).await,
    };
    // A step that failed, at GitHub for instance, is no reason to say nothing about the runner.
    let (next, failed) = step.map_or_else(|error| (ctx.settings.sync_period, Some(error)), |next| (next, None));
    // Refusals and new pods change what is known.
    let observed = observe(&ctx, &runner, Some(&access), clock).await?;
    let assessment = phase::assess(&observed.facts, clock.now);
    let next = match restart::stand_alone(&runner, &ctx, &access, &observed, &assessment, clock).await? {
        Some(wait) => next.min(wait),
        None => next,
    };
    let status = report::write(&runner, &ctx, &observed, &assessment, None, clock).await?;
    match failed {
        Some(error) => Err(error),
        None => Ok(Action::requeue(next.min(status).min(ctx.settings.sync_period))),
    }
}

/// Facts about a Runner from the stores.
pub(crate) async fn observe(ctx: &Context, runner: &Runner, access: Option<&Access>, clock: Clock) -> Result<Observed, Error> {
    let (namespace, name) = (runner.namespace().unwrap_or_default(), runner.name_any());
    let pod = ctx.stores.pods.get(&ObjectRef::new(&name).within(&namespace));
    if let Some(pod) = &pod {
        look_for_node(ctx, runner, pod).await?;
    }
    let view = access.and_then(Access::view);
    let set = ctx.stores.set_of(runner);
    let sources = observe::Sources {
        pod: pod.as_deref(),
        roster: view.as_deref(),
        set: set.as_deref(),
        hooked: ctx.settings.pod.status_hook,
    };
    Ok(observe::runner(runner, sources, &ctx.memory, clock))
}

/// Its finalizer is there by now, so that its registration goes as well.
async fn remove_leftover(runner: &Runner, ctx: &Context) -> Result<Action, Error> {
    let note =
        "removed: it only held a registration for an ARC before 0.21; registrationOnlyAtZero of the RunnerDeployment keeps one";
    delete(ctx, &runner.namespace().unwrap_or_default(), &runner.name_any(), &runner.uid().unwrap_or_default()).await?;
    ctx.events.publish(Reason::RunnerRemoved, &runner.object_ref(&()), None, note).await;
    Ok(Action::requeue(ctx.settings.sync_period))
}

/// Asks for the node of a pod that stopped reporting or does not end: only a node that is gone ends a job without a word from GitHub.
async fn look_for_node(ctx: &Context, runner: &Runner, pod: &Pod) -> Result<(), Error> {
    let facts = observe::pod_facts(pod, false);
    let overdue = facts.deleting.is_some_and(|deleting| jiff::Timestamp::now() > deleting);
    let Some(node) = facts.node.as_deref().filter(|_| overdue || facts.silent_since.is_some()) else { return Ok(()) };
    let nodes: Api<Node> = Api::all(ctx.client.clone());
    let gone = match nodes.get_metadata_opt(node).await {
        Ok(node) => node.is_none(),
        // An installation for one namespace may come without the right to read nodes: then no node is ever known to be gone, and only the
        // pod's own deadline counts.
        Err(error) if status(&error).is_some_and(Status::is_forbidden) => false,
        Err(error) => return Err(error.into()),
    };
    ctx.memory.runner(&runner.uid().unwrap_or_default(), |memo| memo.node_gone = gone);
    Ok(())
}

async fn add_finalizer(ctx: &Context, runner: &Runner) -> Result<(), Error> {
    let mut finalizers = runner.finalizers().to_vec();
    finalizers.push(finalizer::RUNNER.to_owned());
    let patch = json!({"metadata": {"resourceVersion": runner.resource_version(), "finalizers": finalizers}});
    ctx.runners(runner).patch_metadata(&runner.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await?;
    Ok(())
}

/// The Runner can't be served with its settings: says so, and leaves what runs alone.
async fn refuse(runner: &Runner, ctx: &Context, observed: Observed, error: &Error, clock: Clock) -> Result<Action, Error> {
    let assessment = phase::assess(&observed.facts, clock.now);
    report::write(runner, ctx, &observed, &assessment, Some(&error.to_string()), clock).await?;
    ctx.events.publish(Reason::GitHubUnavailable, &runner.object_ref(&()), None, &error.to_string()).await;
    Ok(Action::requeue(ctx.settings.sync_period))
}

/// ARC's pod is about to be this Runner's; the watch shows it, and this is only for the case that something came between.
const HANDOVER: Duration = Duration::from_secs(2);

async fn create_pod(runner: &Runner, ctx: &Context, access: &Access, clock: Clock) -> Result<Duration, Error> {
    let namespace = runner.namespace().unwrap_or_default();
    let uid = runner.uid().unwrap_or_default();
    if let Some(wait) = refused_lately(ctx, &uid, clock) {
        return Ok(wait);
    }
    let namesake = ctx.stores.pods.get(&ObjectRef::new(&runner.name_any()).within(&namespace));
    if namesake.is_some_and(|pod| inherit::awaits_runner(&pod)) {
        return Ok(HANDOVER);
    }
    let token = match ctx.tokens.ensure(&namespace, access, clock.now).await {
        Ok(Some(token)) => token,
        Ok(None) => return Ok(NEXT_TURN),
        Err(error) => {
            let note = format!("no registration token for {}: {error}", access.scope());
            ctx.events.publish(Reason::FailedUpdateRegistrationToken, &runner.object_ref(&()), None, &note).await;
            return match &error {
                // Somebody has to change something, and asking on and on may get the credentials blocked.
                Error::GitHub(refused) if !refused.is_transient() => {
                    let message = format!("no registration token for {}: {refused:#}", access.scope());
                    ctx.memory.runner(&uid, |memo| refusal(memo, Refuser::Credentials, message, clock));
                    Ok(REFUSAL_RETRY)
                }
                _ => Err(error),
            };
        }
    };
    let account = match account(runner, ctx).await {
        Ok(account) => account,
        Err(AccountError::Kube(error)) => return Err(Error::Kube(error)),
        Err(error) => {
            let message = error.to_string();
            ctx.events.publish(Reason::PodRefused, &runner.object_ref(&()), None, &message).await;
            ctx.memory.runner(&uid, |memo| refusal(memo, Refuser::Pod, message, clock));
            return Ok(REFUSAL_RETRY);
        }
    };
    let claims = match claim::secure(ctx, runner, clock).await? {
        Secured::Ready(claims) => claims,
        Secured::Later(wait) => return Ok(wait),
        Secured::Refused(by, message) => {
            ctx.events.publish(Reason::PodRefused, &runner.object_ref(&()), None, &message).await;
            ctx.memory.runner(&uid, |memo| refusal(memo, by, message, clock));
            return Ok(REFUSAL_RETRY);
        }
    };
    let input = PodInput { runner, defaults: &ctx.settings.pod, token: &token, account: account.as_deref(), claims: &claims };
    let plan = match pod::build(&input) {
        Ok(plan) => plan,
        Err(error) => {
            let message = error.to_string();
            ctx.events.publish(Reason::PodRefused, &runner.object_ref(&()), None, &message).await;
            ctx.memory.runner(&uid, |memo| refusal(memo, Refuser::Pod, message, clock));
            return Ok(ctx.settings.sync_period);
        }
    };
    for warning in &plan.warnings {
        ctx.events.publish(Reason::SpecIgnored, &runner.object_ref(&()), None, &warning.to_string()).await;
    }
    let pods: Api<Pod> = Api::namespaced(ctx.client.clone(), &namespace);
    match pods.create(&PostParams::default(), &plan.pod).await {
        Ok(_) => {
            ctx.memory.runner(&uid, |memo| (memo.pod_created, memo.made_here) = (Some(clock.instant), true));
            Ok(ctx.settings.sync_period)
        }
        Err(error) => match status(&error) {
            // Made by an earlier try whose answer was lost, or the watch is late.
            Some(answer) if answer.is_already_exists() => {
                ctx.memory.runner(&uid, |memo| memo.pod_created = Some(clock.instant));
                Ok(crate::memory::IN_FLIGHT)
            }
            Some(answer) if answer.is_forbidden() || answer.is_invalid() => {
                if let Some(account) = &account {
                    // Perhaps it is not there any more.
                    ctx.accounts.doubt(&namespace, account).await;
                }
                let by = if answer.message.contains("exceeded quota") { Refuser::Quota } else { Refuser::Pod };
                let message = answer.message.clone();
                ctx.events.publish(Reason::PodRefused, &runner.object_ref(&()), None, &message).await;
                ctx.memory.runner(&uid, |memo| refusal(memo, by, message, clock));
                Ok(REFUSAL_RETRY)
            }
            _ => Err(error.into()),
        },
    }
}

/// Makes the service account of a runner that needs one. Returns its name.
async fn account(runner: &Runner, ctx: &Context) -> Result<Option<String>, AccountError> {
    // One that only registers talks to nobody but GitHub.
    let access = GeneratedAccess::of(&runner.spec, ctx.settings.pod.status_hook).filter(|_| !pod::is_registration_only(runner));
    let Some(access) = access else { return Ok(None) };
    ctx.accounts.ensure(runner, access, ctx.stores.shared_account_of(runner).as_ref()).await.map(Some)
}

/// A pod that was refused is tried again after this.
const REFUSAL_RETRY: Duration = Duration::from_secs(10);

fn refused_lately(ctx: &Context, uid: &str, clock: Clock) -> Option<Duration> {
    let tried = ctx.memory.runner(uid, |memo| memo.refused)?;
    REFUSAL_RETRY.checked_sub(clock.instant.saturating_duration_since(tried)).filter(|left| !left.is_zero())
}

fn refusal(memo: &mut crate::memory::RunnerMemo, by: Refuser, message: String, clock: Clock) {
    // The first one stays the beginning of the trouble.
    let since = memo.refusal.as_ref().map_or(clock.now, |refusal| refusal.since);
    memo.refused = Some(clock.instant);
    memo.refusal = Some(Refusal { by, message, since });
}

/// A Runner whose pod exists or existed: hurries the listing while it is needed, keeps the token fresh until the container has started.
async fn watch(
    runner: &Runner,
    ctx: &Context,
    access: &Access,
    observed: &Observed,
    assessment: &Assessment,
    clock: Clock,
) -> Result<Duration, Error> {
    match assessment.phase {
        Phase::Starting => access.await_listing(&observed.facts.name, Haste::Registration),
        // Online, but the listing is older than the pod's last change.
        Phase::Busy if awaits_proof(observed, access) => access.await_listing(&observed.facts.name, Haste::JobEnd),
        Phase::Dead => access.await_listing(&observed.facts.name, Haste::Removal),
        Phase::Offline if has_only_to_go(observed) => {
            stop::delete_pod(ctx, runner, observed, PodDeletion::Graceful).await?;
        }
        Phase::Pending => {
            if let Some(wait) = claim::reach(ctx, runner, observed, clock).await? {
                return Ok(wait);
            }
            let namespace = runner.namespace().unwrap_or_default();
            if assessment.trouble.as_ref().is_some_and(|trouble| trouble.cause == Cause::ConfigError) {
                // Perhaps the Secret with the token is not there any more.
                ctx.tokens.doubt(&namespace, &Tokens::source(access).name).await;
            }
            ctx.tokens.ensure(&namespace, access, clock.now).await?;
        }
        _ => {}
    }
    let young = PHASE_DELAY.checked_sub(age(observed, clock)).filter(|left| !left.is_zero());
    Ok(young.unwrap_or(ctx.settings.sync_period))
}

/// A pod that was there to register its runner, and has.
fn has_only_to_go(observed: &Observed) -> bool {
    let over = observed.facts.pod.as_ref().is_some_and(|pod| pod.stopped() && pod.deleting.is_none());
    observed.facts.registration_only && over
}

/// GitHub lists it without a job, in a listing too old to be believed.
fn awaits_proof(observed: &Observed, access: &Access) -> bool {
    access.view().and_then(|view| view.get(&observed.facts.name).map(|entry| entry.online && !entry.busy)).unwrap_or(false)
}

fn age(observed: &Observed, clock: Clock) -> Duration {
    Duration::try_from(clock.now.duration_since(observed.facts.created)).unwrap_or_default()
}

/// Deletes a Runner object that was observed with this UID, and remembers that until the watch shows it.
///
/// # Errors
///
/// As [`delete`].
pub(crate) async fn let_go(ctx: &Context, namespace: &str, name: &str, uid: &str, clock: Clock) -> Result<(), kube::Error> {
    delete(ctx, namespace, name, uid).await?;
    ctx.memory.runner(uid, |memo| memo.let_go = Some(clock.now));
    Ok(())
}

/// Deletes a Runner object that was observed with this UID.
///
/// # Errors
///
/// When the API server refuses for any reason but that it is gone or another one by now.
pub(crate) async fn delete(ctx: &Context, namespace: &str, name: &str, uid: &str) -> Result<(), kube::Error> {
    let runners: Api<Runner> = Api::namespaced(ctx.client.clone(), namespace);
    let only_this = DeleteParams {
        preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
        ..DeleteParams::default()
    };
    made_as_seen(runners.delete(name, &only_this).await).map(drop)
}
