//! The operator looks at a pool: what its controllers do, in their order, with the rules of `pacer-core`.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use pacer_core::autoscale::sending::{Number, Sending, SentNumber, effective_time};
use pacer_core::autoscale::{self, Demand, Ramp};
use pacer_core::demand::{self, Finding};
use pacer_core::facts::RunnerFacts;
use pacer_core::fleet::{self, Fleet, Member, Plan, ScaleDown};
use pacer_core::ledger::State;
use pacer_core::phase::{self, Assessment, Cause};
use pacer_core::policy::{CapacityPlan, CapacityRequest, Pool, Reservation, RestartRequest};
use pacer_core::reads::Reads;
use pacer_core::replacement::{Accounted, Replicas};
use pacer_core::reservation::{self, Held, InForce, LIFE};
use pacer_core::restart::{self, Remedy, RestartLimits};
use pacer_core::scale_down::{self, since, unix};
use pacer_policy::record::{Done, Item};
use pacer_policy::{Answer, Inquiry};
use pacer_trace::PoolName;

use super::pool::{Answered, Sent};
use super::{Decided, Numbered, Removed, Run, Told};
use crate::agenda::{Moment, at};
use crate::reaction::Call;

/// Every object is looked at again after this at the latest, as by the operator's default.
const SYNC_PERIOD: Moment = 60_000;

impl Run<'_> {
    pub(super) fn pass(&mut self, pool: usize) {
        let now = self.now;
        if let Some(pool) = self.pools.get_mut(pool) {
            (pool.next_pass, pool.last_pass) = (None, now);
            pool.tidy(now);
        }
        self.restarts(pool);
        self.number(pool);
        self.plan(pool);
        if let Some(pool) = self.pools.get_mut(pool).filter(|pool| pool.settings.surplus_volumes_deleted) {
            pool.volumes.shrink(pool.replicas);
        }
        self.wake(pool, now + SYNC_PERIOD);
    }

    /// What becomes of runners that ended.
    fn restarts(&mut self, index: usize) {
        let now = at(self.now);
        let Some(pool) = self.pools.get_mut(index) else { return };
        if std::mem::take(&mut pool.came_online) {
            pool.attempts = restart::attempts(pool.attempts, true, []);
        }
        pool.next_attempt = None;
        if pool.dead.is_empty() {
            return;
        }
        let (dead, attempts) = (pool.dead.clone(), pool.attempts);
        let troubled: Vec<(usize, &RunnerFacts, _)> = dead
            .iter()
            .filter_map(|id| self.runners.get(*id).map(|runner| (*id, runner)))
            .filter_map(|(id, runner)| Some((id, &runner.facts, runner.assessment.trouble.clone()?)))
            .collect();
        let subjects = troubled.iter().map(|(_, facts, trouble)| {
            let attempt = attempts.saturating_add(u32::from(trouble.cause.is_failure()));
            restart::subject(facts, trouble, attempt, now)
        });
        let request = RestartRequest {
            now: unix(now),
            pool: self.told(index, Told::Set),
            subjects: subjects.collect(),
            ..RestartRequest::default()
        };
        let asked = self.story.is_some().then(|| request.clone());
        let verdicts = self.policies.restart(request);
        let mut gone: Vec<(usize, Cause, bool)> = Vec::new();
        let mut items: Vec<Item> = Vec::new();
        let mut decided: Vec<(Cause, Remedy)> = Vec::new();
        let mut recheck: Option<Duration> = None;
        let mut quarantined = Vec::new();
        for (subject, (id, facts, trouble)) in troubled.iter().enumerate() {
            let verdict = verdicts.iter().find(|verdict| verdict.index as usize == subject);
            let attempt = attempts.saturating_add(u32::from(trouble.cause.is_failure()));
            let remedy = restart::remedy(verdict, trouble, false, attempt, &RestartLimits::default(), now);
            let done = match &remedy {
                Remedy::Wait { recheck: wait, .. } => {
                    recheck = Some(recheck.map_or(*wait, |before| before.min(*wait)));
                    Done::Waits { seconds: scale_down::seconds(*wait) }
                }
                Remedy::Replace | Remedy::Recreate => {
                    gone.push((*id, trouble.cause, facts.ephemeral));
                    Done::Replaced
                }
                Remedy::Quarantine => {
                    quarantined.push(*id);
                    Done::Quarantined
                }
            };
            items.push(Item::new(facts.name.clone(), done));
            decided.push((trouble.cause, remedy));
        }
        let next_attempt = restart::next_attempt(decided.iter().map(|(cause, remedy)| (*cause, remedy)));
        if let Some((story, request)) = self.story.as_mut().zip(asked) {
            let (inquiry, answer) = (Inquiry::Restart(request), Answer::Restart(verdicts));
            story.decided.push(Decided { at: self.now, inquiry, answer, items });
        }
        for id in quarantined {
            self.runner(id, |runner, _| runner.facts.quarantined = true);
            if let Some(pool) = self.pools.get_mut(index) {
                pool.dead.retain(|dead| *dead != id);
            }
        }
        let causes: Vec<Cause> = gone.iter().map(|(_, cause, _)| *cause).collect();
        for (id, cause, ephemeral) in gone {
            let name = self.runners.get(id).map(|runner| runner.name.clone());
            self.delete(id);
            let Some(pool) = self.pools.get_mut(index) else { continue };
            pool.dead.retain(|dead| *dead != id);
            if let (true, true, Some(name)) = (ephemeral, cause.has_finished(), name) {
                pool.fleet.ended.insert(name, now);
                pool.hold.count(1);
                pool.vacant += 1;
            }
        }
        if let Some(pool) = self.pools.get_mut(index) {
            pool.attempts = restart::attempts(pool.attempts, false, causes);
            pool.next_attempt = next_attempt;
        }
        if let Some(wait) = recheck {
            self.wake(index, self.now + milliseconds(wait));
        }
    }

    /// What the autoscaler does.
    pub(super) fn number(&mut self, index: usize) {
        let now = at(self.now);
        let Some(pool) = self.pools.get_mut(index) else { return };
        if pool.settings.refused {
            return;
        }
        let arrived = std::mem::take(&mut pool.arrived);
        if !arrived.is_empty() {
            pool.arrivals.record(arrived, now);
        }
        let demand = demand::assess(&pool.ledger, &[], &pool.fleet, |id| pool.within.since(id), pool.life(), now);
        pool.within.follow(&demand, pool.settings.max, now);
        self.find_out(index, &demand.findings);
        let plan = self.capacity(index, &demand);
        let Some(pool) = self.pools.get_mut(index) else { return };
        let in_force = InForce::of(&plan, now);
        let recent = pool.raises.recent(now);
        let live = u32::try_from(pool.members.len()).unwrap_or(u32::MAX);
        let decision = autoscale::decide(&Demand {
            bounds: pool.bounds(),
            override_min: None,
            metric: None,
            jobs_added_to_min: pool.settings.webhooks,
            planned: in_force.replicas,
            jobs: in_force.jobs,
            spec_reserved: 0,
            ceiling: plan.ceiling,
            previous: Some(pool.number),
            live,
            last_scale_out: pool.last_scale_out,
            delay: Duration::from_secs(pool.settings.scale_down_delay_seconds),
            ramp: Ramp { per_minute: pool.settings.ramp_per_minute, recent: &recent },
            now,
        });
        pool.raises.add(decision.raised, now);
        if let Some(story) = &mut self.story {
            story.numbers.push(Numbered {
                at: self.now,
                pool: index,
                from: pool.number,
                jobs: u32::try_from(demand.jobs.len()).unwrap_or(u32::MAX),
                live,
                raised: pool.last_scale_out,
                plan,
                decision: decision.clone(),
            });
        }
        if decision.desired > pool.number {
            pool.last_scale_out = Timestamp::from_second(now.as_second()).ok();
            pool.raised = Some(now);
        } else if decision.desired < pool.number {
            pool.lowered = Some(now);
        }
        pool.number = decision.desired;
        let next = [demand.next, in_force.next, decision.next].into_iter().flatten().min();
        let later = self.send(index, decision.desired);
        // Past the moment, not just before it.
        let next = next.map(|next| next.as_millisecond() + 1).into_iter().chain(later.map(|wait| self.now + milliseconds(wait)));
        if let Some(next) = next.min() {
            self.wake(index, next);
        }
    }

    /// What the capacity policy answers. One that goes by jobs alone is not asked again while its answer can't be another.
    fn capacity(&mut self, index: usize, demand: &demand::Demand) -> CapacityPlan {
        let now = at(self.now);
        let jobs: Vec<(u64, State)> = demand.jobs.iter().map(|(id, job)| (*id, job.state)).collect();
        let Some(pool) = self.pools.get(index) else { return CapacityPlan::default() };
        let reservations: Vec<Reservation> = pool.held.iter().filter_map(|held| held.at(now)).collect();
        let holds = |answered: &Answered| answered.jobs == jobs && answered.until.is_none_or(|until| now < until);
        if self.policies.go_by_jobs_alone() && pool.answered.as_ref().is_some_and(holds) {
            return CapacityPlan { reservations, ceiling: pool.ceiling, ..CapacityPlan::default() };
        }
        let told = || reservation::told(&demand.jobs, pool.settings.max, &Reads::default(), now);
        let told = pool.settings.webhooks.then(told).unwrap_or_default();
        let life = [(LIFE.to_owned(), pool.settings.job_life_seconds.to_string())];
        let request = CapacityRequest {
            now: unix(now),
            settings: String::new(),
            pool: self.told(index, Told::Autoscaler),
            reservations,
            attributes: life.into_iter().chain(told.attributes()).collect(),
            jobs: told.jobs,
        };
        let plan = self.policies.capacity(request);
        if let Some(pool) = self.pools.get_mut(index) {
            pool.held = Held::all(&plan, now);
            pool.answered = Some(Answered { jobs, until: InForce::of(&plan, now).next });
            pool.ceiling = plan.ceiling;
        }
        plan
    }

    /// What the ledger learns from the other sources. GitHub, when it is asked, knows how its jobs stand.
    fn find_out(&mut self, index: usize, findings: &[Finding]) {
        let now = at(self.now);
        for finding in findings {
            let Some(pool) = self.pools.get_mut(index) else { return };
            let terms = pool.terms();
            match *finding {
                Finding::Over(id) => {
                    pool.ledger.complete(id, now);
                }
                Finding::StillQueued(id) | Finding::Expired(id) => {
                    let over = self.by_id.get(&id).and_then(|job| self.progress.get(*job)).is_none_or(|progress| progress.over);
                    if over {
                        pool.ledger.complete(id, now);
                    } else {
                        pool.ledger.renew(id, &terms, now);
                    }
                }
            }
        }
    }

    /// Sends the number to the target, if it is due. Returns how long it waits, where it does.
    fn send(&mut self, index: usize, desired: u32) -> Option<Duration> {
        let (now, moment) = (at(self.now), self.now);
        let pool = self.pools.get_mut(index)?;
        let finished = pool.hold.finished();
        let accounted = pool.hold.current().filter(|accounted| Some(accounted.effective) == pool.effective);
        let number = Number {
            desired,
            current: pool.replicas,
            live: Some(u32::try_from(pool.members.len()).unwrap_or(u32::MAX)),
            unaccounted: accounted.map_or(0, |accounted| finished.saturating_sub(accounted.finished)),
            // A target shows its new number at once here.
            sent: false,
            finished,
            last: pool.sent.map(|sent| sent.number),
            since_last: pool.sent.map(|sent| Duration::from_millis(u64::try_from(moment - sent.at).unwrap_or_default())),
        };
        match number.sending() {
            Sending::Settled => None,
            Sending::Later(wait) => Some(wait),
            Sending::Now => {
                pool.replicas = desired;
                if pool.settings.ephemeral {
                    let effective = effective_time(pool.effective, now);
                    pool.effective = Some(effective);
                    pool.announced.announce(Accounted { effective, finished });
                    let number = SentNumber::new(pool.sent.as_ref().map(|sent| &sent.number), desired, finished);
                    pool.sent = Some(Sent { at: moment, number });
                }
                None
            }
        }
    }

    /// What the RunnerReplicaSet does. Templates do not change in a trace, so a RunnerDeployment passes its number on as it is.
    fn plan(&mut self, index: usize) {
        let now = at(self.now);
        let elapsed = Duration::from_millis(u64::try_from(self.now - self.scenario.begins).unwrap_or_default());
        let instant = self.epoch.checked_add(elapsed).unwrap_or(self.epoch);
        let Some(pool) = self.pools.get_mut(index) else { return };
        let members: Vec<Member> = pool
            .members
            .iter()
            .filter_map(|id| self.runners.get(*id))
            .map(|runner| Member { phase: runner.assessment.phase, current: true, age: since(runner.facts.created, now) })
            .collect();
        let desired = pool.replicas;
        let replicas = Replicas {
            effective: pool.effective,
            ephemeral: pool.settings.ephemeral,
            autoscaled: true,
            scaled_up: pool.grown,
            newest: pool.newest,
            missing: desired.saturating_sub(u32::try_from(members.len()).unwrap_or(u32::MAX)),
        };
        let finished = pool.hold.held(&replicas, pool.announced.numbers(), now, instant);
        let plan = fleet::plan(&Fleet { desired, members: &members, in_flight: 0, finished, surge: desired.div_ceil(10).max(1) });
        if !matches!(&plan, Plan::ScaleDown(plan) if plan.ask > 0) {
            pool.surplus_since = None;
        }
        match plan.batch().0 {
            Plan::Held { .. } | Plan::Full { .. } => {}
            Plan::Settled => pool.vacant = 0,
            Plan::Create(count) => {
                (pool.grown, pool.newest) = (Some(now), Some(now));
                let vacant = std::mem::take(&mut pool.vacant);
                for created in 0..count {
                    self.create(index, if created < vacant { Call::End } else { Call::Job });
                }
                // The autoscaler is told.
                self.wake(index, self.now);
            }
            Plan::ScaleDown(plan) => self.scale_down(index, &plan),
        }
        if let (Some(story), Some(pool)) = (&mut self.story, self.pools.get(index)) {
            let exist = u32::try_from(pool.members.len()).unwrap_or(u32::MAX);
            story.fleets.push((self.now, index, exist, pool.replicas, pool.settings.min, pool.settings.max));
        }
    }

    /// Runners that are over or never started go; idle ones that the policy names are asked about at GitHub, which knows who has a job.
    fn scale_down(&mut self, index: usize, plan: &ScaleDown) {
        let (now, moment) = (at(self.now), self.now);
        let Some(pool) = self.pools.get(index) else { return };
        let named = plan.dead.iter().chain(&plan.unstarted).filter_map(|member| pool.members.get(*member));
        let mut gone: Vec<usize> = named.copied().collect();
        let (wanted, spare) = (pool.replicas, gone.len());
        if plan.ask > 0 {
            gone.extend(self.choose(index, plan));
        }
        for (place, id) in gone.iter().enumerate() {
            let done = if place < spare { Done::Spare { wanted, ended: place < plan.dead.len() } } else { Done::Removed };
            let name = self.runners.get(*id).map(|runner| runner.name.clone()).unwrap_or_default();
            self.note(|story| story.removed.push(Removed { at: moment, runner: *id, name, done }));
        }
        if let Some(pool) = self.pools.get_mut(index).filter(|_| !gone.is_empty()) {
            pool.shrunk = Some(now);
            pool.dead.retain(|dead| !gone.contains(dead));
        }
        for id in gone {
            self.delete(id);
        }
    }

    /// Idle runners that the policy names and GitHub lets go.
    fn choose(&mut self, index: usize, plan: &ScaleDown) -> Vec<usize> {
        let (now, moment) = (at(self.now), self.now);
        let Some(pool) = self.pools.get_mut(index) else { return Vec::new() };
        let confirmation = pool.confirmation();
        let surplus_since = *pool.surplus_since.get_or_insert(moment);
        let confirmed = surplus_since + milliseconds(confirmation);
        if confirmed > moment {
            self.wake(index, confirmed);
            return Vec::new();
        }
        let mut ids = Vec::new();
        for id in &pool.members {
            let Some(runner) = self.runners.get_mut(*id) else { continue };
            if runner.is_idle() {
                runner.see_idle(moment);
            }
            if scale_down::eligible(&runner.facts, &runner.assessment, confirmation, plan.outdated_only).is_ok() {
                ids.push(*id);
            }
        }
        // Where nodes are known, a policy is told how many runners they have besides.
        if !ids.is_empty() && !self.nodes.are_blank() {
            ids.clone_from(&pool.members);
        }
        let facts = |id: &usize| self.runners.get(*id).map(|runner| (runner.facts.clone(), runner.assessment.clone()));
        let offered: Vec<(RunnerFacts, Assessment)> = ids.iter().filter_map(facts).collect();
        let told = self.told(index, Told::Set);
        let offer = scale_down::offer(&offered, &Default::default(), told, plan.ask, confirmation, plan.outdated_only, now);
        let Some(offer) = offer else {
            self.wake(index, moment + milliseconds(confirmation.max(Duration::from_secs(1))));
            return Vec::new();
        };
        let asked = self.story.is_some().then(|| offer.request.clone());
        let choices = self.policies.scale_down(offer.request);
        let chosen = choices.iter().filter_map(|choice| ids.get(*offer.runners.get(choice.index as usize)?).copied());
        let chosen: Vec<usize> = chosen.collect();
        let mut items: Vec<Item> = Vec::new();
        let leave = |id: &usize| {
            let left = self.github.leave(index, *id);
            let done = if left { Done::Removed } else { Done::Busy { message: "it runs a job".to_owned() } };
            items.extend(self.runners.get(*id).map(|runner| Item::new(runner.name.to_string(), done)));
            left
        };
        let asked_for = chosen.len();
        let (chosen, refused): (Vec<usize>, Vec<usize>) = chosen.into_iter().partition(leave);
        // The listing should show their jobs soon.
        refused.into_iter().for_each(|runner| self.hurry(runner, moment));
        if let Some((story, request)) = self.story.as_mut().zip(asked) {
            let (inquiry, answer) = (Inquiry::ScaleDown(request), Answer::ScaleDown(choices));
            story.decided.push(Decided { at: moment, inquiry, answer, items });
        }
        if let Some(pool) = self.pools.get_mut(index) {
            pool.removals += chosen.len() as u64;
            pool.refused += (asked_for - chosen.len()) as u64;
        }
        chosen
    }

    /// What a policy is told of a pool.
    pub(super) fn told(&self, index: usize, by: Told) -> Pool {
        let Some(pool) = self.pools.get(index) else { return Pool::default() };
        let now = at(self.now);
        let phases = pool.members.iter().filter_map(|id| self.runners.get(*id)).map(|runner| runner.assessment.phase);
        let PoolName { kind, namespace, name } = PoolName::of(&pool.settings.pool);
        let (kind, up, down) = match by {
            Told::Autoscaler => (kind.as_str(), pool.raised, pool.lowered),
            Told::Set => ("RunnerReplicaSet", pool.grown, pool.shrunk),
        };
        Pool {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            kind: kind.to_owned(),
            labels: pool.settings.labels.iter().map(ToString::to_string).collect(),
            min_replicas: Some(pool.settings.min),
            max_replicas: Some(pool.settings.max),
            desired: pool.replicas,
            counts: phase::counts(phases),
            last_scale_up: up.map(|at| since(at, now)),
            last_scale_down: down.map(|at| since(at, now)),
            revision: "1".to_owned(),
            ephemeral: pool.settings.ephemeral,
            budget: None,
            start_time: pool.starts.quantiles(),
            run_time: pool.runs.quantiles(),
            arrivals: pool.arrivals.per_minute(now),
            attributes: Vec::new(),
        }
    }
}

pub(super) fn milliseconds(wait: Duration) -> Moment {
    // Never before the moment is over.
    let wait = SignedDuration::try_from(wait).unwrap_or(SignedDuration::from_hours(24 * 365));
    i64::try_from(wait.as_nanos().div_euclid(1_000_000)).unwrap_or(i64::MAX / 4) + i64::from(wait.subsec_nanos() % 1_000_000 != 0)
}
