//! The HorizontalRunnerAutoscaler controller: from demand to `spec.replicas` of its target.
//!
//! ```text
//! target -> schedule -> witnesses (ledger, queues, fleet) -> metric -> capacity policy -> decision -> target -> status
//! ```
//!
//! Everything that can change the answer wakes it: the autoscaler itself, its target, a webhook (by the ledger in the status), a listing of
//! GitHub's queue, a runner that finished, and the moment at which a reservation, a schedule or a delay ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt};
use pacer_api::{HorizontalRunnerAutoscaler, job_ledger};
use pacer_core::autoscale::{self, Bounds, Decision, Demand as Wanted, Ramp};
use pacer_core::demand;
use pacer_core::ledger::{Ledger, State};
use pacer_policy::record::Change;
use serde_json::json;

use crate::context::Context;
use crate::error::Error;
use crate::observe::Clock;
use crate::receipts::{Draft, Owner};
use crate::target::Target;

mod finding;
mod fleet;
mod memo;
mod metric;
mod plan;
mod problem;
mod queue;
mod report;
mod spec;

pub use memo::{AutoscalerMemo, MetricGauges};
pub use problem::Problem;

/// Passes over an autoscaler while webhooks come in: a burst of them becomes a few passes, a single one does not wait.
const PACE: Duration = Duration::from_millis(50);

/// A number is lowered at most this often: nothing waits for it, since runners that finished are not replaced meanwhile. One that is lower
/// and yet more than there are is not held up: a job waits for the difference.
const LOWER_PACE: Duration = Duration::from_secs(1);

/// Brings the target of one autoscaler to the number that demand asks for.
///
/// # Errors
///
/// When the API server or GitHub did not do their part; tried again with back-off.
pub async fn reconcile(autoscaler: Arc<HorizontalRunnerAutoscaler>, ctx: Arc<Context>) -> Result<Action, Error> {
    if autoscaler.meta().deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let clock = Clock::read();
    let uid = autoscaler.uid().unwrap_or_default();
    if let Some(wait) = ctx.memory.autoscaler(&uid, |memo| memo.passes.too_soon(PACE, clock.instant)) {
        return Ok(Action::requeue(wait));
    }
    let outcome = match spec::read(&autoscaler, &ctx, clock.now) {
        Ok(spec) => match step(&autoscaler, &ctx, &spec, clock).await? {
            Ok(outcome) => outcome,
            Err(problem) => report::Outcome::Problem(problem),
        },
        Err(problem) => report::Outcome::Problem(problem),
    };
    let next = outcome.next(clock.now).unwrap_or(ctx.settings.sync_period).min(ctx.settings.sync_period);
    let later = report::write(&autoscaler, &ctx, &outcome, clock).await?;
    Ok(Action::requeue(next.min(later).max(Duration::from_millis(1))))
}

async fn step(
    autoscaler: &HorizontalRunnerAutoscaler,
    ctx: &Context,
    spec: &spec::Spec,
    clock: Clock,
) -> Result<Result<report::Outcome, Problem>, Error> {
    let uid = autoscaler.uid().unwrap_or_default();
    let status = autoscaler.status.clone().unwrap_or_default();
    let ledger = job_ledger::read(&status.ledger);
    let github = match spec::github(ctx, autoscaler, &spec.target).await {
        Ok(github) => Some(github),
        Err(error) if spec.polls() => return Ok(Err(Problem::GitHub(error.to_string()))),
        Err(_) => None,
    };
    let queues = queue::read(ctx, &uid, spec, github.as_ref(), &ledger);
    let fleet = fleet::look(ctx, &spec.target);
    fleet.tell(ctx, &uid, &ledger).await;
    let max = spec.bounds.max;
    let heard = ctx.memory.autoscaler(&uid, |memo| {
        let life = spec.life;
        let heard = demand::hear(&ledger, &queues.listings, &fleet.witness, |id| memo.counted_since(id), life, clock.now);
        memo.count_within(&heard, max, clock.now);
        heard
    });
    observe(ctx, &uid, spec, &ledger, &queues, &fleet, &heard, clock.now);
    let target = ObjectRef::from_obj(autoscaler);
    finding::act(ctx, &target, &heard.findings, &ledger, github.as_ref(), spec.life).await?;

    let metric = match metric::suggest(ctx, autoscaler, spec, &fleet, &queues, &heard).await {
        Ok(metric) => metric,
        Err(problem) => return Ok(Err(problem)),
    };
    let counted = metric.jobs_counted.then_some(&heard);
    let plan = plan::ask(ctx, autoscaler, spec, &fleet, counted, github.as_ref(), clock).await;
    let recent = ctx.memory.autoscaler(&uid, |memo| memo.raises(clock.now));
    let previous = status.desired_replicas.and_then(|replicas| u32::try_from(replicas).ok());
    let wanted = Wanted {
        bounds: spec.bounds,
        override_min: spec.override_min,
        metric: metric.suggestion,
        jobs_added_to_min: spec.has_trigger,
        planned: plan.planned,
        jobs: plan.jobs,
        spec_reserved: autoscaler.spec.reserved(clock.now),
        ceiling: plan.ceiling,
        previous,
        live: fleet.live.unwrap_or_else(|| previous.unwrap_or_default()),
        last_scale_out: status.last_successful_scale_out_time.as_ref().map(|time| time.0),
        delay: spec.delay,
        ramp: Ramp { per_minute: ctx.settings.ramp, recent: &recent },
        now: clock.now,
    };
    let mut decision = autoscale::decide(&wanted);
    if let (true, Some(previous)) = (metric.incomplete, previous) {
        // What GitHub did not tell cannot be a reason to give runners up.
        decision.desired = decision.desired.max(previous.min(spec.bounds.max));
    }
    ctx.memory.autoscaler(&uid, |memo| memo.raised(decision.raised, clock.now));
    let later = apply(ctx, autoscaler, spec, &fleet, &decision, clock).await?;
    let later = later.and_then(|wait| clock.now.checked_add(wait).ok());
    let change = Change {
        from: previous.unwrap_or_else(|| spec.target.replicas()),
        to: decision.desired,
        reason: decision.reason.to_string(),
    };
    if plan.news || previous != Some(decision.desired) {
        ctx.receipts.leave(Draft::capacity(Owner::target(&spec.target), plan.evaluation, change, clock.now));
    }
    let ends = [later, heard.next, plan.next, decision.next, spec.next_change, spec_reservation_end(autoscaler, clock.now)];
    let waiting = heard.jobs.values().filter(|job| job.state == State::Queued).map(|job| job.queued).min();
    ctx.memory.autoscaler(&uid, |memo| memo.waiting_since = waiting);
    Ok(Ok(report::Outcome::Decided {
        decision,
        next: ends.into_iter().flatten().min(),
        summary: spec.summary.clone(),
        trouble: metric.trouble.or(queues.trouble),
    }))
}

/// Takes note of what policies are told of the pool's past.
#[expect(clippy::too_many_arguments, reason = "that many witnesses are heard")]
fn observe(
    ctx: &Context,
    uid: &str,
    spec: &spec::Spec,
    ledger: &Ledger,
    queues: &queue::Queues,
    fleet: &fleet::Fleet,
    heard: &demand::Demand,
    now: Timestamp,
) {
    let took = ctx.memory.autoscaler(uid, |memo| memo.running.follow(heard, ledger, &queues.listings, &fleet.witness));
    let listed = queues.listings.iter().flat_map(|listing| &listing.jobs).map(|job| (job.id, job.queued_at));
    let jobs = ledger.all().map(|(id, job)| (id, job.queued)).chain(listed);
    ctx.memory.pool(spec.target.uid(), |memo| {
        took.into_iter().for_each(|seconds| memo.runs.add(seconds));
        memo.arrivals.hear(jobs, now);
        memo.bounds = Some(Bounds { min: spec.override_min.unwrap_or(spec.bounds.min), ..spec.bounds });
    });
}

/// When the next of the spec's reservations ends.
fn spec_reservation_end(autoscaler: &HorizontalRunnerAutoscaler, now: Timestamp) -> Option<Timestamp> {
    let ends = autoscaler.spec.capacity_reservations.iter().flatten().filter_map(|entry| entry.expiration_time.as_ref());
    ends.map(|end| end.0).filter(|end| *end > now).min()
}

/// Sets the target's number. With it goes `effectiveTime`: runners that finish later were part of the number, and are replaced only when it is
/// set again.
async fn apply(
    ctx: &Context,
    autoscaler: &HorizontalRunnerAutoscaler,
    spec: &spec::Spec,
    fleet: &fleet::Fleet,
    decision: &Decision,
    clock: Clock,
) -> Result<Option<Duration>, Error> {
    let target = &spec.target;
    let uid = autoscaler.uid().unwrap_or_default();
    let seen = target.meta().resource_version.clone();
    let (told, last, accounted) = ctx.memory.autoscaler(&uid, |memo| {
        (memo.applied == Some((seen.clone(), decision.desired)), memo.effective, memo.accounted == Some(fleet.finished()))
    });
    let pause = left(LOWER_PACE, last.map(|(_, sent)| sent), clock.instant);
    let short = fleet.live.is_some_and(|live| live < decision.desired) && fleet.finished_unaccounted > 0;
    // A set takes note a moment after it was told.
    let under_way = pause.filter(|_| short && accounted);
    let short = short && under_way.is_none();
    let current = target.replicas();
    if (current == decision.desired && !short) || told {
        return Ok(under_way);
    }
    if decision.desired < current && !short && pause.is_some() {
        return Ok(pause);
    }
    let mut fields = json!({"replicas": decision.desired});
    if target.config().is_ephemeral() {
        let effective = effective_time(target, last.map(|(effective, _)| effective), clock.now);
        fleet.announce(ctx, effective);
        ctx.memory.autoscaler(&uid, |memo| memo.effective = Some((effective, clock.instant)));
        if let Some(fields) = fields.as_object_mut() {
            fields.insert("effectiveTime".to_owned(), json!(effective.to_string()));
        }
    }
    target.patch(&ctx.client, &json!({"spec": fields})).await?;
    ctx.memory.autoscaler(&uid, |memo| {
        memo.applied = Some((seen, decision.desired));
        memo.accounted = Some(fleet.finished());
    });
    tracing::info!(
        autoscaler = autoscaler.name_any(),
        namespace = autoscaler.namespace(),
        target = %target.reference(),
        replicas = decision.desired,
        reason = %decision.reason,
        "replicas set"
    );
    Ok(None)
}

/// Now, in whole seconds as the field has them, and always later than before: a set sees by it that the number is new.
fn effective_time(target: &Target, last: Option<Timestamp>, now: Timestamp) -> Timestamp {
    let second = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let before = target.effective_time().map(|time| time.0).max(last);
    match before {
        Some(before) if before >= second => before.checked_add(SignedDuration::from_secs(1)).unwrap_or(before),
        _ => second,
    }
}

/// How much of a pace is left.
fn left(pace: Duration, since: Option<Instant>, now: Instant) -> Option<Duration> {
    since.and_then(|since| pace.checked_sub(now.saturating_duration_since(since))).filter(|left| !left.is_zero())
}
