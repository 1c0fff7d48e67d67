//! From demand to the target's number: `host/operator/src/autoscaler.rs` and its folder.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use pacer_core::allowance::{Cost, Purpose};
use pacer_core::autoscale::sending::{Number, Sending, SentNumber, effective_time};
use pacer_core::autoscale::{Bounds, Demand as Wanted, Ramp};
use pacer_core::demand::{self, Counted, Demand, Finding};
use pacer_core::gate;
use pacer_core::ledger::{Ledger, State, Terms};
use pacer_core::policy::{CapacityPlan, CapacityRequest, Pool};
use pacer_core::reads::Reads;
use pacer_core::replacement::Accounted;
use pacer_core::reservation::{self, InForce};
use pacer_core::runner_job::RunnerJob;

use super::{Halt, Operator, SYNC};
use crate::agenda::Key;
use crate::clock::{At, Clock, elapsed, moment};
use crate::object::{Scaler, Target, name_of};
use crate::outside::{Broken, Outside, Unanswered};
use crate::rules::Defect;
use crate::script::{Autoscaler, Kind};

/// `scaleUpTriggers[].duration`.
const LIFE: Duration = Duration::from_secs(600);

/// What is remembered about the autoscaler.
#[derive(Clone, Debug, Default)]
pub(super) struct Memo {
    within: Counted,
    /// The target's version that it was computed from, and the number.
    sent: Option<(u64, SentNumber)>,
    effective: Option<(Timestamp, At)>,
}

/// The runners of the target, as far as demand is concerned.
struct Fleet {
    runners: demand::Fleet,
    live: Option<u32>,
    unaccounted: u64,
    sets: Vec<(u32, u64)>,
}

impl Fleet {
    fn finished(&self) -> u64 {
        self.sets.iter().map(|(_, count)| count).sum()
    }
}

impl Operator {
    pub(super) fn reconcile_scaler(&mut self, outside: &mut Outside) -> Result<Option<Duration>, Halt> {
        let (Some(spec), Some(object)) = (outside.setting.autoscaler, outside.scalers.seen(()).copied()) else { return Ok(None) };
        let Some(target) = outside.targets.seen(()).copied() else { return Ok(None) };
        let fleet = self.fleet(outside);
        let Clock { now, .. } = outside.clock;
        let ledger = outside.seen_ledger();
        let life = SignedDuration::try_from(LIFE).unwrap_or(SignedDuration::ZERO);
        let listings: Vec<demand::Listing> = self.queue.iter().cloned().collect();
        let interrupted = outside.is_stalled(Kind::Runner);
        let within = std::mem::take(&mut self.scaler.within);
        let mut demand =
            self.rules.demand(&ledger.ledger, &listings, &fleet.runners, |id| within.since(id), life, (now, interrupted));
        self.scaler.within = within;
        self.tell_runners(outside, &ledger.ledger, &demand);
        if !object.valid {
            demand.findings.retain(|finding| matches!(finding, Finding::Over(_)));
            self.record(outside, &demand)?;
            if !self.rules.has(Defect::InvalidKeepsNothing) {
                self.apply(outside, &target, &fleet, target.replicas)?;
            }
            return Ok(Some(SYNC));
        }
        self.record(outside, &demand)?;
        self.scaler.within.follow(&demand, spec.max, now);
        let (desired, next) = self.decide(outside, &spec, &object, &fleet, &demand, now);
        let later = self.apply(outside, &target, &fleet, desired)?;
        let truth = outside.scalers.truth(()).and_then(|scaler| scaler.desired);
        if object.desired != Some(desired) && truth != Some(desired) {
            let raised = object.desired.is_none_or(|before| before < desired);
            outside.change_scaler(|scaler| {
                scaler.desired = Some(desired);
                if raised {
                    scaler.last_scale_out = Some(now);
                }
            })?;
        }
        let next = next.map(|at| elapsed(outside.clock.at, moment(at) + 1));
        Ok([later, next].into_iter().flatten().min().map_or(Some(SYNC), |wait| Some(wait.min(SYNC))))
    }

    fn fleet(&self, outside: &Outside) -> Fleet {
        let mut fleet = Fleet { runners: demand::Fleet::default(), live: Some(0), unaccounted: 0, sets: Vec::new() };
        for (id, set) in outside.sets.all_seen() {
            let summary = self.summaries.get(&id);
            fleet.live = fleet.live.zip(summary).map(|(live, summary)| live.saturating_add(summary.alive));
            let finished = summary.map_or(0, |summary| summary.finished);
            let accounted =
                summary.and_then(|summary| summary.accounted).filter(|accounted| Some(accounted.effective) == set.effective);
            fleet.unaccounted += accounted.map_or(0, |accounted| finished.saturating_sub(accounted.finished));
            fleet.sets.push((id, finished));
        }
        let sets: BTreeSet<u32> = outside.sets.all_seen().map(|(id, _)| id).collect();
        let objects = outside.runners.all_seen().filter(|(_, runner)| sets.contains(&runner.set));
        let names = objects.map(|(id, _)| Arc::from(name_of(id)));
        let (leaving, present) = names.partition(|name: &Arc<str>| self.finished.contains_key(name));
        fleet.runners = demand::Fleet { present, ended: self.finished.clone(), leaving };
        fleet
    }

    /// Passes on what events and job lists say of single runners.
    fn tell_runners(&mut self, outside: &mut Outside, ledger: &Ledger, demand: &Demand) {
        let named = demand.named(ledger);
        let runners: Vec<(u32, u32)> = outside.runners.all_seen().map(|(id, runner)| (id, runner.set)).collect();
        for (runner, set) in runners {
            let before = self.jobs.get(&runner);
            let jobs = match named.get(name_of(runner).as_str()) {
                Some(jobs) => jobs.as_slice(),
                None if before.is_some_and(|before| demand.has_ended(before)) => &[],
                None => continue,
            };
            let told = RunnerJob::of(before, jobs.iter().copied());
            let changed = before.map(|before| before.working) != Some(told.working);
            self.jobs.insert(runner, told);
            if changed {
                self.wake_now(outside, Key::Set(set));
                self.wake_now(outside, Key::Runner(runner));
            }
        }
    }

    /// Writes what was found out into the ledger. What can't be written now is found again in the next pass.
    fn record(&mut self, outside: &mut Outside, demand: &Demand) -> Result<(), Halt> {
        let now = outside.clock.now;
        let mut jobs = outside.seen_ledger();
        let terms = Terms { queued: LIFE, limit: 1_000 };
        let mut news = false;
        for finding in &demand.findings {
            match finding {
                Finding::Over(id) => news |= jobs.ledger.complete(*id, now),
                Finding::StillQueued(id) => news |= jobs.ledger.renew(*id, &terms, now),
                Finding::Expired(id) => {
                    match self.turn(outside, *id, Purpose::Start, Cost { points: 1, creations: 0 }) {
                        Ok(()) => {}
                        Err(Halt::Died) => return Err(Halt::Died),
                        Err(_) => continue,
                    }
                    match outside.look_up() {
                        Ok(()) => {}
                        Err(Unanswered::Died) => return Err(Halt::Died),
                        Err(Unanswered::Refused(_)) => continue,
                    }
                    let number = u32::try_from(*id).unwrap_or(u32::MAX);
                    let state = outside.jobs.get(number as usize).map(|job| job.state(outside.clock.at));
                    news |= match state {
                        Some(State::Queued) => jobs.ledger.renew(*id, &terms, now),
                        Some(state) => outside.event(number, state).is_some_and(|event| {
                            jobs.ledger.apply(&event, &terms, now);
                            true
                        }),
                        None => jobs.ledger.forget(*id),
                    };
                }
            }
        }
        let forgotten: Vec<u64> = jobs.ledger.all().filter(|(_, job)| job.is_forgotten(now)).map(|(id, _)| id).collect();
        // Tombstones go along with what is written anyway.
        if !news {
            return Ok(());
        }
        for id in forgotten {
            jobs.ledger.forget(id);
        }
        match outside.change_ledger(jobs) {
            Err(Broken::Died) => Err(Halt::Died),
            _ => Ok(()),
        }
    }

    fn decide(
        &mut self,
        outside: &Outside,
        spec: &Autoscaler,
        object: &Scaler,
        fleet: &Fleet,
        demand: &Demand,
        now: Timestamp,
    ) -> (u32, Option<Timestamp>) {
        let request = CapacityRequest {
            pool: Pool { min_replicas: Some(spec.min), max_replicas: Some(spec.max), ..Pool::default() },
            jobs: reservation::told(&demand.jobs, spec.max, &Reads::default(), now).jobs,
            ..CapacityRequest::default()
        };
        let reservations = crate::policy::one_per_job(demand.jobs.keys().copied());
        let plan = gate::plan(&request, CapacityPlan { reservations, ..CapacityPlan::default() }).unwrap_or_default();
        let in_force = InForce::of(&plan, now);
        let previous = object.desired;
        let decision = self.rules.number(&Wanted {
            bounds: Bounds { min: spec.min, max: spec.max },
            override_min: None,
            metric: None,
            jobs_added_to_min: true,
            planned: in_force.replicas,
            jobs: in_force.jobs,
            spec_reserved: 0,
            ceiling: plan.ceiling,
            previous,
            live: fleet.live.unwrap_or_else(|| previous.unwrap_or_default()),
            last_scale_out: object.last_scale_out,
            delay: Duration::from_secs(spec.delay),
            ramp: Ramp::default(),
            now,
        });
        let _ = outside;
        (decision.desired, [demand.next, in_force.next, decision.next].into_iter().flatten().min())
    }

    /// Sends the number, if it is due. Returns how long it waits, where it does.
    fn apply(&mut self, outside: &mut Outside, target: &Target, fleet: &Fleet, desired: u32) -> Result<Option<Duration>, Halt> {
        let Clock { at, now, .. } = outside.clock;
        let finished = fleet.finished();
        let (sent, effective) = (self.scaler.sent, self.scaler.effective);
        let number = Number {
            desired,
            current: target.replicas,
            live: fleet.live,
            unaccounted: fleet.unaccounted,
            sent: sent.is_some_and(|(version, number)| version == target.version && number.desired == desired),
            finished,
            last: sent.map(|(_, number)| number),
            since_last: effective.map(|(_, sent)| elapsed(sent, at)),
        };
        match number.sending() {
            Sending::Settled => return Ok(None),
            Sending::Later(wait) => return Ok(Some(wait)),
            Sending::Now => {}
        }
        let mut time = target.effective;
        if outside.setting.ephemeral {
            let before = target.effective.max(effective.map(|(time, _)| time));
            let next = effective_time(before, now);
            for (set, count) in &fleet.sets {
                self.accepted.entry(*set).or_default().announce(Accounted { effective: next, finished: *count });
            }
            self.scaler.effective = Some((next, at));
            time = Some(next);
        }
        outside.change_target(|target| (target.replicas, target.effective) = (desired, time))?;
        let number = SentNumber::new(sent.as_ref().map(|(_, number)| number), desired, finished);
        self.scaler.sent = Some((target.version, number));
        Ok(None)
    }
}
