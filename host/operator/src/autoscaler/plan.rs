//! Asks the capacity policy which reservations shall exist.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use kube::{Resource, ResourceExt};
use pacer_api::HorizontalRunnerAutoscaler;
use pacer_core::demand::Demand;
use pacer_core::ledger::{Job as LedgerJob, State};
use pacer_core::policy::{ApiBudget, CapacityPlan, CapacityRequest, Job, Pool, Reservation};
use pacer_core::scale_down::since;
use pacer_github::GitHub;
use pacer_policy::Evaluation;

use super::fleet::Fleet;
use super::spec::Spec;
use crate::context::Context;
use crate::memory::Past;
use crate::observe::Clock;
use crate::pool::api_budget;

/// The contract's attribute: how long a reservation for a queued job lasts, in seconds.
const LIFE: &str = "reservation-seconds";

/// What the policy answered, as numbers.
#[derive(Debug)]
pub(super) struct Planned {
    /// Runners that are to exist now.
    pub(super) planned: u32,
    /// Jobs they are for.
    pub(super) jobs: u32,
    /// Lower maximum.
    pub(super) ceiling: Option<u32>,
    /// When to ask again.
    pub(super) next: Option<Timestamp>,
    /// The answer holds other reservations than the one before, or is that of another policy because the first failed.
    pub(super) news: bool,
    /// The answer itself, for the receipt.
    pub(super) evaluation: Evaluation<CapacityPlan>,
}

/// Asks. Without jobs, reservations and triggers there is nothing the policy of somebody who scales by percentage could add, yet it is asked:
/// spare capacity and office hours are its business as well. Jobs are `heard` of where they count for it.
pub(super) async fn ask(
    ctx: &Context,
    autoscaler: &HorizontalRunnerAutoscaler,
    spec: &Spec,
    fleet: &Fleet,
    heard: Option<&Demand>,
    github: Option<&GitHub>,
    clock: Clock,
) -> Planned {
    let uid = autoscaler.uid().unwrap_or_default();
    let (held, scaled) = ctx.memory.autoscaler(&uid, |memo| (memo.reservations.clone(), memo.scaled));
    let scope = spec.target.config().scope().ok();
    let budget = github.zip(scope).and_then(|(github, scope)| github.budget(&scope)).as_ref().map(api_budget);
    let past = ctx.memory.pool(spec.target.uid(), |memo| memo.past(clock.now));
    let request = CapacityRequest {
        now: seconds(clock.now),
        settings: String::new(),
        pool: pool(autoscaler, spec, fleet, scaled, budget, past, clock.now),
        jobs: heard.iter().flat_map(|heard| &heard.jobs).map(|(id, job)| of_job(*id, job, clock.now)).collect(),
        reservations: held.iter().filter_map(|(made, reservation)| aged(reservation, *made, clock.now)).collect(),
        attributes: vec![(LIFE.to_owned(), spec.life.as_secs().to_string())],
    };
    let generation = ctx.generation_of_autoscaler(autoscaler, &spec.target);
    let evaluation = generation.capacity(request).await;
    // It is asked at every pass, and seldom says something new.
    let news = evaluation.receipt.fault().is_some() || differs(&evaluation.answer.reservations, &held);
    if news {
        ctx.note(&evaluation, &autoscaler.object_ref(&())).await;
    }
    let plan = &evaluation.answer;
    let in_force = plan.reservations.iter().filter(|reservation| reservation.effective <= 0 && reservation.expires > 0);
    let (planned, jobs) = in_force.fold((0_u32, 0_u32), |(planned, jobs), reservation| {
        let count = u32::try_from(reservation.jobs.len()).unwrap_or(u32::MAX);
        (planned.saturating_add(reservation.replicas), jobs.saturating_add(count))
    });
    let begins =
        plan.reservations.iter().filter_map(|reservation| u32::try_from(reservation.effective).ok()).filter(|wait| *wait > 0);
    let ends = plan.reservations.iter().map(|reservation| reservation.expires);
    let next = begins.chain(ends).chain(plan.look_again).min();
    ctx.memory.autoscaler(&uid, |memo| {
        memo.reservations = plan.reservations.iter().map(|reservation| (clock.now, reservation.clone())).collect();
    });
    Planned {
        planned,
        jobs,
        ceiling: plan.ceiling,
        next: next.and_then(|wait| clock.now.checked_add(SignedDuration::from_secs(i64::from(wait))).ok()),
        news,
        evaluation,
    }
}

/// Whether the reservations are others than before.
fn differs(now: &[Reservation], before: &[(Timestamp, Reservation)]) -> bool {
    let key = |reservation: &Reservation| (reservation.id.clone(), reservation.replicas);
    let ids = |list: &mut dyn Iterator<Item = &Reservation>| list.map(key).collect::<BTreeSet<_>>();
    ids(&mut now.iter()) != ids(&mut before.iter().map(|(_, reservation)| reservation))
}

fn pool(
    autoscaler: &HorizontalRunnerAutoscaler,
    spec: &Spec,
    fleet: &Fleet,
    scaled: (Option<Timestamp>, Option<Timestamp>),
    budget: Option<ApiBudget>,
    past: Past,
    now: Timestamp,
) -> Pool {
    let target = &spec.target;
    let config = target.config();
    Pool {
        namespace: autoscaler.namespace().unwrap_or_default(),
        name: target.name().to_owned(),
        kind: target.kind().as_str().to_owned(),
        labels: config.labels().to_vec(),
        min_replicas: Some(spec.override_min.unwrap_or(spec.bounds.min)),
        max_replicas: Some(spec.bounds.max),
        desired: target.replicas(),
        counts: fleet.counts.clone(),
        last_scale_up: scaled.0.map(|at| since(at, now)),
        last_scale_down: scaled.1.map(|at| since(at, now)),
        revision: target.revision().unwrap_or_default().to_owned(),
        ephemeral: config.is_ephemeral(),
        budget,
        start_time: past.start_time,
        run_time: past.run_time,
        arrivals: past.arrivals,
        attributes: fleet.no_room.attributes(now),
    }
}

fn of_job(id: u64, job: &LedgerJob, now: Timestamp) -> Job {
    Job {
        id,
        state: match job.state {
            State::Queued => "queued",
            State::InProgress => "in-progress",
            State::Completed => "completed",
        }
        .to_owned(),
        queued: since(job.queued, now),
        started: (job.state == State::InProgress).then(|| since(job.since, now)),
        repository: job.about.repository.to_string(),
        workflow: job.about.workflow.to_string(),
        labels: job.about.labels.iter().map(ToString::to_string).collect(),
        attempt: job.about.attempt,
        runner: job.runner.as_ref().map(ToString::to_string),
        attributes: Vec::new(),
    }
}

/// A reservation as it stands now; none when it has expired.
fn aged(reservation: &Reservation, made: Timestamp, now: Timestamp) -> Option<Reservation> {
    let age = since(made, now);
    let expires = reservation.expires.checked_sub(age).filter(|left| *left > 0)?;
    let effective = reservation.effective.saturating_sub_unsigned(age);
    Some(Reservation { effective, expires, ..reservation.clone() })
}

fn seconds(now: Timestamp) -> f64 {
    now.as_duration().as_secs_f64()
}
