//! The RunnerReplicaSet controller: as many runners of one template as are wanted.
//!
//! ```text
//! survey -> restart decisions -> plan -> create | give up -> status
//! ```
//!
//! Runners belong to a set by ownerReference; its selector is for people and for `kubectl scale` (a selector that matches nothing made ARC
//! create without end).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use kube::api::PostParams;
use kube::runtime::controller::Action;
use kube::{Resource, ResourceExt};
use pacer_api::autoscaler::ScaleTargetKind;
use pacer_api::{Runner, RunnerReplicaSet};
use pacer_core::facts::RunnerFacts;
use pacer_core::fleet::{self, Fleet, Member, Plan};
use pacer_core::phase::{Assessment, Cause, Phase, assess};
use pacer_core::restart::{self as core_restart, Remedy};
use pacer_core::room::NoRoom;
use pacer_core::scale_down;
use pacer_policy::Generation;

use crate::access::Access;
use crate::context::Context;
use crate::deployment::inherit;
use crate::error::{Error, status};
use crate::events::Reason;
use crate::judge::{self, Judged};
use crate::memory::{IN_FLIGHT, Past, Summary};
use crate::observe::Clock;
use crate::receipts::Owner;
use crate::settings::{FAN_OUT, PACE_PER_RUNNER, SET_PACE};
use crate::target::{Target, owner_of};
use crate::{pool, runner, template};

mod report;
mod shrink;

/// ARC's delay before finished ephemeral runners are replaced although the demand has not been renewed.
const REPLACEMENT_HOLD: SignedDuration = SignedDuration::from_mins(10);

/// How long a set whose process has just started waits for its autoscaler's word on runners that are missing.
const UNSEEN: Duration = Duration::from_secs(10);

/// Everything known about a set at one moment.
pub(crate) struct Survey {
    /// Its Runner objects, in the order of `members`.
    pub(crate) runners: Vec<Arc<Runner>>,
    /// Facts and opinion about each.
    pub(crate) members: Vec<(RunnerFacts, Assessment)>,
    /// Creations that the watch has not shown.
    pub(crate) in_flight: u32,
    /// Failed attempts in a row.
    pub(crate) attempts: u32,
    /// Last increase and decrease.
    pub(crate) scaled: (Option<Timestamp>, Option<Timestamp>),
}

/// Brings one set a step further.
///
/// # Errors
///
/// When the API server or GitHub did not do their part; tried again with back-off.
pub async fn reconcile(set: Arc<RunnerReplicaSet>, ctx: Arc<Context>) -> Result<Action, Error> {
    if set.meta().deletion_timestamp.is_some() {
        // Its runners are deleted by the garbage collector and drain on their own.
        return Ok(Action::await_change());
    }
    let clock = Clock::read();
    let wait = ctx.memory.set(&set.uid().unwrap_or_default(), |memo| {
        let runners = memo.summary.as_ref().map_or(0, |summary| summary.present);
        let interval = (PACE_PER_RUNNER * runners).clamp(*SET_PACE.start(), *SET_PACE.end());
        memo.passes.too_soon(interval, clock.instant)
    });
    if let Some(wait) = wait {
        return Ok(Action::requeue(wait));
    }
    let generation = ctx.generation_of(&set);
    let access = ctx.access_of(&set.namespace().unwrap_or_default(), &set.spec.template.spec.config).await;
    let mut survey = survey(&set, &ctx, access.as_ref().ok(), clock).await?;
    let mut next = ctx.settings.sync_period;
    next = next.min(restarts(&set, &ctx, &generation, access.as_ref().ok(), &mut survey, clock).await?);
    let mut failed = None;
    match plan(&set, &ctx, &survey, clock) {
        Plan::Settled | Plan::Held { .. } => {}
        Plan::Create(_) if access.is_err() || superseded(&set, &ctx) || inherits(&set, &ctx) || is_gone(&set, &ctx) => {}
        Plan::Create(count) => failed = create(&set, &ctx, &mut survey, count, clock).await.err(),
        Plan::Shrink(plan) => {
            let access = access.as_ref().ok();
            next = next.min(shrink::carry_out(&set, &ctx, &generation, access, &mut survey, &plan, clock).await?);
        }
    }
    next = next.min(report::write(&set, &ctx, &survey, GitHubTrouble::of(&access).as_ref(), clock).await?);
    summarize(&set, &ctx, &survey).await;
    match failed {
        Some(error) => Err(error),
        None => Ok(Action::requeue(next)),
    }
}

/// Whose past is that of a set.
fn pool_uid(set: &RunnerReplicaSet) -> &str {
    owner_of(set).map(|(uid, _)| uid).or(set.metadata.uid.as_deref()).unwrap_or_default()
}

/// What policies are told of a set beside how it is now.
fn past(set: &RunnerReplicaSet, ctx: &Context, now: Timestamp) -> Past {
    let past = ctx.memory.pool(pool_uid(set), |memo| memo.past(now));
    // Those of an autoscaler that is gone hold no more.
    let scaled = owner_of(set).is_some_and(|(_, target)| ctx.stores.is_scaled(&target));
    Past { bounds: past.bounds.filter(|_| scaled), ..past }
}

/// Why GitHub can't be used for a set.
struct GitHubTrouble {
    reason: &'static str,
    message: String,
}

impl GitHubTrouble {
    fn of(access: &Result<Access, Error>) -> Option<Self> {
        match access {
            Err(error) => Some(Self { reason: "SettingsRefused", message: error.to_string() }),
            Ok(access) => access.outage().map(|outage| Self {
                reason: if outage.refused { "CredentialsRefused" } else { "GitHubUnavailable" },
                message: outage.message,
            }),
        }
    }
}

async fn survey(set: &RunnerReplicaSet, ctx: &Context, access: Option<&Access>, clock: Clock) -> Result<Survey, Error> {
    let uid = set.uid().unwrap_or_default();
    let runners = ctx.stores.runners_of(&uid);
    let mut members = Vec::with_capacity(runners.len());
    let mut started = Vec::new();
    for runner in &runners {
        let facts = runner::observe(ctx, runner, access, clock).await?.facts;
        let assessment = assess(&facts, clock.now);
        let online = assessment.phase.is_online();
        if ctx.memory.runner(&facts.uid, |memo| memo.has_started(online, facts.was_registered())) {
            started.extend(facts.pod.as_ref().map(|pod| scale_down::since(pod.created, clock.now)));
        }
        members.push((facts, assessment));
    }
    if !started.is_empty() {
        ctx.memory.pool(pool_uid(set), |memo| started.into_iter().for_each(|seconds| memo.starts.add(seconds)));
    }
    let status = set.status.as_ref();
    Ok(ctx.memory.set(&uid, |memo| {
        let seen: BTreeSet<&str> = members.iter().map(|(facts, _)| facts.name.as_str()).collect();
        memo.in_flight
            .retain(|name, since| !seen.contains(name.as_str()) && clock.instant.saturating_duration_since(*since) < IN_FLIGHT);
        let online: BTreeSet<String> = members
            .iter()
            .filter(|(facts, assessment)| facts.current && assessment.phase.is_online())
            .map(|(facts, _)| facts.name.clone())
            .collect();
        let came_online = memo.online.as_ref().is_some_and(|before| online.iter().any(|name| !before.contains(name)));
        memo.online = Some(online);
        let stored = memo.attempts.or_else(|| status.and_then(|status| status.failed_attempts)).unwrap_or_default();
        let attempts = if came_online { 0 } else { stored };
        memo.attempts = Some(attempts);
        let time = |memo: Option<Timestamp>, stored: Option<Timestamp>| memo.or(stored);
        Survey {
            in_flight: u32::try_from(memo.in_flight.len()).unwrap_or(u32::MAX),
            attempts,
            scaled: (
                time(memo.scaled_up, status.and_then(|status| status.last_scale_up_time.as_ref()).map(|time| time.0)),
                time(memo.scaled_down, status.and_then(|status| status.last_scale_down_time.as_ref()).map(|time| time.0)),
            ),
            runners,
            members,
        }
    }))
}

/// Asks about runners in trouble and lets go of those that are to be replaced. Returns when the next one is due.
async fn restarts(
    set: &RunnerReplicaSet,
    ctx: &Context,
    generation: &Generation,
    access: Option<&Access>,
    survey: &mut Survey,
    clock: Clock,
) -> Result<Duration, Error> {
    let past = past(set, ctx, clock.now);
    let pool = pool::of_set(set, &survey.members, access.and_then(Access::budget), survey.scaled, past, clock.now);
    let about = (&set.object_ref(&()), Owner::set(set));
    let judged = judge::judge(ctx, generation, pool, &survey.members, about, false, survey.attempts, clock).await;
    let mut next = ctx.settings.sync_period;
    let mut replaced: Vec<&Judged> = Vec::new();
    for verdict in &judged {
        match verdict.remedy {
            Remedy::Wait { recheck } => next = next.min(recheck),
            Remedy::Replace | Remedy::Recreate => replaced.push(verdict),
            Remedy::Quarantine => {
                if let Some(runner) = survey.runners.get(verdict.member) {
                    runner::quarantine(runner, ctx, &verdict.reason, clock).await?;
                    let about = Some(runner.object_ref(&()));
                    ctx.events.publish(Reason::RunnerQuarantined, &set.object_ref(&()), about, &verdict.reason).await;
                }
            }
        }
    }
    let causes: Vec<_> = replaced
        .iter()
        .filter_map(|verdict| survey.members.get(verdict.member))
        .filter_map(|(_, assessment)| assessment.trouble.as_ref().map(|trouble| trouble.cause))
        .collect();
    let gone: Vec<usize> = replaced.iter().map(|verdict| verdict.member).collect();
    let surprising = causes.iter().any(|cause| *cause != Cause::Completed);
    if let (true, Some(first)) = (surprising, replaced.first()) {
        let name = survey.members.get(first.member).map(|(facts, _)| facts.name.clone()).unwrap_or_default();
        let others = match gone.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        let note = format!("replaced runner {name}{others}: {}; policy {}", first.reason, first.policy);
        // Events that relate to nobody are merged, and the first one's note would stand for all.
        let about = survey.runners.get(first.member).map(|runner| runner.object_ref(&()));
        ctx.events.publish(Reason::RunnerReplaced, &set.object_ref(&()), about, &note).await;
    }
    for verdict in &replaced {
        let name = survey.members.get(verdict.member).map(|(facts, _)| facts.name.as_str()).unwrap_or_default();
        tracing::info!(runner = name, reason = verdict.reason, policy = verdict.policy, "runner given up");
    }
    survey.attempts = core_restart::attempts(survey.attempts, false, causes);
    let finished: Vec<String> = replaced
        .iter()
        .filter_map(|verdict| survey.members.get(verdict.member))
        .filter(|(facts, assessment)| {
            facts.ephemeral && assessment.trouble.as_ref().is_some_and(|trouble| has_finished(trouble.cause))
        })
        .map(|(facts, _)| facts.name.clone())
        .collect();
    let count = u64::try_from(finished.len()).unwrap_or(u64::MAX);
    // Named before they are counted; see `autoscaler::fleet::look`.
    if let (Some((_, target)), false) = (owner_of(set), finished.is_empty()) {
        ctx.memory.ended(target, finished, clock.now);
    }
    ctx.memory.set(&set.uid().unwrap_or_default(), |memo| {
        memo.attempts = Some(survey.attempts);
        memo.finished = memo.finished.saturating_add(count);
    });
    let_go(ctx, survey, &gone, clock).await?;
    Ok(next)
}

/// Deletes Runner objects and counts them out.
pub(crate) async fn let_go(ctx: &Context, survey: &mut Survey, gone: &[usize], clock: Clock) -> Result<(), Error> {
    let chosen: Vec<(String, String, String)> = gone
        .iter()
        .filter_map(|index| survey.runners.get(*index))
        .map(|runner| (runner.namespace().unwrap_or_default(), runner.name_any(), runner.uid().unwrap_or_default()))
        .collect();
    let results: Vec<Result<(), kube::Error>> = stream::iter(chosen)
        .map(|(namespace, name, uid)| async move { runner::let_go(ctx, &namespace, &name, &uid, clock).await })
        .buffered(FAN_OUT)
        .collect()
        .await;
    for (index, result) in gone.iter().zip(&results) {
        if let (Ok(()), Some((_, assessment))) = (result, survey.members.get_mut(*index)) {
            *assessment = Assessment { phase: Phase::Stopping, trouble: None };
        }
    }
    results.into_iter().collect::<Result<(), _>>().map_err(Error::from)
}

/// Whether its owner has moved on to another template. Such a set makes no more runners: the owner has not come to lower its number yet, or
/// it would have nothing to make.
fn superseded(set: &RunnerReplicaSet, ctx: &Context) -> bool {
    let Some(target) = ctx.stores.target_of(set) else { return false };
    let wanted = target.template(&ctx.settings.common_labels);
    template::revision(set) != wanted.revision() && set.spec.template.meaning() != wanted.meaning()
}

/// Whether runners that ARC left are yet to be taken over by its RunnerSet: they are among those that are wanted.
fn inherits(set: &RunnerReplicaSet, ctx: &Context) -> bool {
    let Some((_, target)) = owner_of(set).filter(|(_, target)| target.kind == ScaleTargetKind::RunnerSet) else { return false };
    !inherit::pods(&ctx.stores, &target.namespace, &target.name).is_empty()
}

/// Whether a status could not be written because the set is gone. Its runners are deleted one after the other then, and each would be replaced
/// for as long as the watch does not show why.
fn is_gone(set: &RunnerReplicaSet, ctx: &Context) -> bool {
    ctx.memory.set(&set.uid().unwrap_or_default(), |memo| memo.gone)
}

fn plan(set: &RunnerReplicaSet, ctx: &Context, survey: &Survey, clock: Clock) -> Plan {
    let members: Vec<Member> = survey
        .members
        .iter()
        .map(|(facts, assessment)| Member {
            phase: assessment.phase,
            current: facts.current,
            age: scale_down::since(facts.created, clock.now),
        })
        .collect();
    let desired = set.spec.replicas_or_default();
    fleet::plan(&Fleet {
        desired,
        members: &members,
        in_flight: survey.in_flight,
        finished: finished(set, ctx, survey, clock),
        surge: desired.div_ceil(10).max(1),
    })
}

/// Whether an ephemeral runner that ended so most likely did its job. One that ended well without being seen at GitHub may have been quicker
/// than the listings; where it did nothing, its job still waits and asks for another runner.
fn has_finished(cause: Cause) -> bool {
    matches!(cause, Cause::Completed | Cause::UnregisteredExit)
}

/// How many finished ephemeral runners are not replaced (arc-behaviour 2.7 A): the wanted number was set at `effectiveTime`, when their jobs
/// were not over. Whoever sets the number sets it again; where nobody does, because the autoscaler is gone, the hold ends as ARC's does.
fn finished(set: &RunnerReplicaSet, ctx: &Context, survey: &Survey, clock: Clock) -> u32 {
    let Some(effective) = set.spec.effective_time.as_ref().map(|time| time.0) else { return 0 };
    if !set.spec.template.spec.config.is_ephemeral() {
        return 0;
    }
    let newest = || survey.members.iter().map(|(facts, _)| facts.created).max();
    let met = survey.scaled.0.or_else(newest).filter(|met| *met > effective);
    let scaled = owner_of(set).is_some_and(|(_, target)| ctx.stores.is_scaled(&target));
    if !scaled && met.is_none_or(|met| clock.now.duration_since(met) >= REPLACEMENT_HOLD) {
        return 0;
    }
    let missing = u64::from(set.spec.replicas_or_default().saturating_sub(alive(survey)));
    ctx.memory.set(&set.uid().unwrap_or_default(), |memo| {
        if memo.demand.is_none() && memo.announced.is_empty() && survey.scaled.0.is_some() {
            // The set had runners before this process started. Those that are missing may have finished unseen: the autoscaler knows.
            memo.finished = memo.finished.saturating_add(missing);
            memo.demand = Some((effective, memo.finished.saturating_sub(missing)));
            memo.unseen_until = clock.instant.checked_add(UNSEEN);
        }
        if memo.unseen_until.is_some_and(|until| until <= clock.instant) {
            memo.unseen_until = None;
            memo.demand = Some((effective, memo.finished));
        }
        u32::try_from(memo.finished_since(effective)).unwrap_or(u32::MAX)
    })
}

/// Runners that exist and are not on their way out.
fn alive(survey: &Survey) -> u32 {
    let alive = survey.members.iter().filter(|(_, assessment)| assessment.phase != Phase::Stopping).count();
    u32::try_from(alive).unwrap_or(u32::MAX).saturating_add(survey.in_flight)
}

async fn create(set: &RunnerReplicaSet, ctx: &Context, survey: &mut Survey, count: u32, clock: Clock) -> Result<(), Error> {
    let uid = set.uid().unwrap_or_default();
    let name = set.name_any();
    let target = ctx.stores.target_of(set);
    let runners: Vec<Runner> = (0..count).map(|_| named(set, target.as_ref(), ctx)).collect();
    let api = ctx.runners(set);
    let api = &api;
    let created: Vec<Result<Runner, kube::Error>> = stream::iter(runners)
        .map(|runner| {
            let uid = &uid;
            async move {
                // Remembered before it is sent: an answer that is lost may still mean a runner.
                let name = runner.name_any();
                ctx.memory.set(uid, |memo| memo.in_flight.insert(name.clone(), clock.instant));
                let result = api.create(&PostParams::default(), &runner).await;
                if let Err(error) = &result
                    && status(error).is_some()
                {
                    ctx.memory.set(uid, |memo| memo.in_flight.remove(&name));
                }
                result
            }
        })
        .buffer_unordered(FAN_OUT)
        .collect()
        .await;
    let made = u32::try_from(created.iter().filter(|result| result.is_ok()).count()).unwrap_or(u32::MAX);
    survey.in_flight = survey.in_flight.saturating_add(made);
    if made > 0 {
        tracing::info!(
            set = name,
            namespace = set.namespace(),
            created = made,
            wanted = set.spec.replicas_or_default(),
            "runners created"
        );
        let note = format!("created {made} runners; {} are wanted", set.spec.replicas_or_default());
        // Related to one of them, or the note of an earlier increase would stand for this one.
        let about = created.iter().find_map(|result| result.as_ref().ok()).map(|runner| runner.object_ref(&()));
        ctx.events.publish(Reason::RunnersCreated, &set.object_ref(&()), about, &note).await;
    }
    created.into_iter().try_for_each(|result| result.map(drop))?;
    // Only a complete increase counts as meeting the demand; see `holds_replacements`.
    survey.scaled.0 = Some(clock.now);
    ctx.memory.set(&uid, |memo| memo.scaled_up = Some(clock.now));
    Ok(())
}

/// A Runner of a set under a fresh name: one of a RunnerSet is named like the pod of a StatefulSet.
fn named(set: &RunnerReplicaSet, target: Option<&Target>, ctx: &Context) -> Runner {
    match target {
        Some(Target::Set(owner)) => {
            let ordinal = owner.spec.ordinal();
            let name = pacer_core::name::stateful_runner(&owner.name_any(), ctx.random(), ordinal);
            template::runner(set, name, Some(ordinal))
        }
        _ => template::runner(set, pacer_core::name::runner(&set.name_any(), ctx.random()), None),
    }
}

/// Tells the owner what it needs to go on with a rollout.
async fn summarize(set: &RunnerReplicaSet, ctx: &Context, survey: &Survey) {
    let count = |wanted: &dyn Fn(&(RunnerFacts, Assessment)) -> bool| {
        u32::try_from(survey.members.iter().filter(|member| wanted(member)).count()).unwrap_or(u32::MAX)
    };
    let summary = Summary {
        generation: set.metadata.generation.unwrap_or_default(),
        alive: alive(survey),
        online: count(&|(_, assessment)| assessment.phase.is_online()),
        busy: count(&|(_, assessment)| assessment.phase == Phase::Busy),
        running: count(&|(facts, assessment)| {
            assessment.phase.is_alive() && facts.pod.as_ref().is_some_and(|pod| pod.may_have_started())
        }),
        present: u32::try_from(survey.members.len()).unwrap_or(u32::MAX).saturating_add(survey.in_flight),
        counts: pool::counts(survey.members.iter().map(|(_, assessment)| assessment.phase)),
        no_room: NoRoom::among(survey.members.iter().map(|(_, assessment)| assessment)),
        finished: 0,
    };
    let changed = ctx.memory.set(&set.uid().unwrap_or_default(), |memo| {
        let summary = Some(Summary { finished: memo.finished, ..summary });
        let changed = memo.summary != summary;
        memo.summary = summary;
        changed
    });
    if let (true, Some((_, target))) = (changed, owner_of(set)) {
        ctx.wake.target(&target).await;
        ctx.wake_autoscalers_of(&target).await;
    }
}
