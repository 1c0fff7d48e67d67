//! As many runners of one template as are desired: `host/operator/src/replicaset.rs` and its folder.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use pacer_core::facts::RunnerFacts;
use pacer_core::fleet::{Fleet, Member, Plan, ScaleDown};
use pacer_core::gate;
use pacer_core::phase::{Assessment, Cause, Phase, Trouble};
use pacer_core::policy::{RestartRequest, Subject};
use pacer_core::replacement::{Accounted, ReplacementHold, Replicas};
use pacer_core::restart::{self, Registering, Remedy};
use pacer_core::rollout::Leaving;
use pacer_core::scale_down::since;

use super::observe::IN_FLIGHT;
use super::{Halt, Operator, SYNC};
use crate::agenda::Key;
use crate::clock::{At, elapsed, wall};
use crate::object::{RunnerId, Set};
use crate::outside::{Broken, Outside, Removal};
use crate::policy;

/// How long the end of a runner is remembered.
const REMEMBERED: SignedDuration = SignedDuration::from_mins(10);

/// Runners whose turn to be removed comes at about the same time are removed in one pass.
const TURN: Duration = Duration::from_secs(5);

/// What is remembered about one set.
#[derive(Clone, Debug, Default)]
pub(super) struct Memo {
    in_flight: BTreeMap<RunnerId, At>,
    online: Option<BTreeSet<RunnerId>>,
    registered: BTreeSet<RunnerId>,
    registering: Registering,
    attempts: Option<u32>,
    scaled_up: Option<Timestamp>,
    surplus_since: Option<At>,
    hold: ReplacementHold,
}

/// A set as its owner counts it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) generation: i64,
    pub(super) alive: u32,
    pub(super) online: u32,
    pub(super) busy: u32,
    pub(super) leaving: u32,
    pub(super) present: u32,
    pub(super) finished: u64,
    pub(super) accounted: Option<Accounted>,
}

/// The runners of a set.
struct Runners {
    ids: Vec<RunnerId>,
    members: Vec<(RunnerFacts, Assessment)>,
    in_flight: u32,
    attempts: u32,
    scaled_up: Option<Timestamp>,
}

impl Runners {
    fn alive(&self) -> u32 {
        count(self.members.iter().filter(|(_, assessment)| assessment.phase != Phase::Stopping)).saturating_add(self.in_flight)
    }
}

fn count<T>(of: impl Iterator<Item = T>) -> u32 {
    u32::try_from(of.count()).unwrap_or(u32::MAX)
}

impl Operator {
    pub(super) fn reconcile_set(&mut self, outside: &mut Outside, id: u32) -> Result<Option<Duration>, Halt> {
        let Some(set) = outside.sets.seen(id).copied() else {
            self.memos.remove(&id);
            self.summaries.remove(&id);
            return Ok(None);
        };
        let mut runners = self.observe_set(outside, id, &set);
        let mut next = SYNC.min(self.restarts(outside, id, &mut runners)?);
        let plan = self.plan(outside, id, &set, &runners);
        if !matches!(&plan, Plan::ScaleDown(plan) if plan.ask > 0) {
            self.memo(id).surplus_since = None;
        }
        let mut failed = None;
        match plan {
            Plan::Settled | Plan::Held { .. } | Plan::Full { .. } => {}
            Plan::Create(_) if outside.targets.seen(()).is_some_and(|target| target.revision != set.revision) => {}
            Plan::Create(count) => failed = self.create(outside, id, count, &mut runners).err(),
            Plan::ScaleDown(plan) => next = next.min(self.scale_down(outside, id, &mut runners, &plan)?),
        }
        if failed == Some(Halt::Died) {
            return Err(Halt::Died);
        }
        self.write_set_status(outside, id, &set, &runners)?;
        self.publish(outside, id, &set, &runners);
        failed.map_or(Ok(Some(next)), Err)
    }

    fn memo(&mut self, id: u32) -> &mut Memo {
        self.memos.entry(id).or_default()
    }

    fn observe_set(&mut self, outside: &Outside, id: u32, set: &Set) -> Runners {
        let at = outside.clock.at;
        let siblings_register = self.memo(id).registering.holds();
        let objects: Vec<_> =
            outside.runners.all_seen().filter(|(_, runner)| runner.set == id).map(|(id, runner)| (id, *runner)).collect();
        let mut members = Vec::with_capacity(objects.len());
        for (runner, object) in &objects {
            let facts = self.observe(outside, *runner, object).facts;
            let facts = self.rules.facts(RunnerFacts { siblings_register, ..facts });
            let assessment = self.rules.assess(&facts, outside.clock.now);
            members.push((facts, assessment));
        }
        let ids: Vec<RunnerId> = objects.iter().map(|(id, _)| *id).collect();
        let memo = self.memo(id);
        // One that the watch has not shown in time is looked for before it is taken for failed.
        let is_there = |name: &RunnerId| outside.runners.truth(*name).is_some();
        memo.in_flight.retain(|name, since| !ids.contains(name) && (elapsed(*since, at) < IN_FLIGHT || is_there(name)));
        let named = || ids.iter().copied().zip(&members);
        let registered: BTreeSet<RunnerId> = named().filter(|(_, (facts, _))| facts.was_registered()).map(|(id, _)| id).collect();
        if !registered.is_subset(&memo.registered) {
            memo.registering.seen();
        }
        memo.registered = registered;
        let online: BTreeSet<RunnerId> =
            named().filter(|(_, (_, assessment))| assessment.phase.is_online()).map(|(id, _)| id).collect();
        let before = memo.online.replace(online.clone());
        let came_online = before.is_some_and(|before| !online.is_subset(&before));
        let attempts = if came_online { 0 } else { memo.attempts.unwrap_or(set.attempts) };
        memo.attempts = Some(attempts);
        let scaled_up = memo.scaled_up.or(set.scaled_up);
        let in_flight = count(memo.in_flight.keys());
        Runners { ids, members, in_flight, attempts, scaled_up }
    }

    fn restarts(&mut self, outside: &mut Outside, id: u32, runners: &mut Runners) -> Result<Duration, Halt> {
        let Clocks { at, now } = clocks(outside);
        let mut next = SYNC;
        let mut asked: Vec<(usize, Trouble, u32)> = Vec::new();
        let mut request = RestartRequest::default();
        let mut answer = Vec::new();
        for (member, (facts, assessment)) in runners.members.iter().enumerate() {
            let Some(trouble) = assessment.trouble.clone() else { continue };
            let attempt = runners.attempts.saturating_add(u32::from(trouble.cause.is_failure()));
            let age = facts.pod.as_ref().map_or(0, |pod| Self::seconds_since(pod.created, at));
            let lasted = Self::seconds_since(trouble.since, at);
            let index = u32::try_from(asked.len()).unwrap_or(u32::MAX);
            answer.push(policy::restart(index, &trouble, facts.was_registered(), age, lasted, attempt));
            request.subjects.push(Subject { name: facts.name.clone(), ..Subject::default() });
            asked.push((member, trouble, attempt));
        }
        let verdicts = gate::verdicts(&request, answer).unwrap_or_default();
        let mut replaced: Vec<(usize, Cause)> = Vec::new();
        for (index, (member, trouble, attempt)) in (0_u32..).zip(&asked) {
            let verdict = verdicts.iter().find(|verdict| verdict.index == index);
            match self.rules.remedy(verdict, trouble, *attempt, &self.restart, now) {
                Remedy::Wait { recheck, .. } => next = next.min(recheck),
                Remedy::Replace | Remedy::Recreate => replaced.push((*member, trouble.cause)),
                Remedy::Quarantine => {}
            }
        }
        runners.attempts = restart::attempts(runners.attempts, false, replaced.iter().map(|(_, cause)| *cause));
        let mut finished = 0_u64;
        let mut unseen = 0_u32;
        for (member, cause) in &replaced {
            let Some((facts, _)) = runners.members.get(*member) else { continue };
            if facts.ephemeral && cause.has_finished() {
                finished += 1;
                self.finished.insert(Arc::from(facts.name.as_str()), now);
            }
            unseen += u32::from(!facts.was_registered() && *cause == Cause::Completed);
            outside.note(|| format!("{} is replaced: {}", facts.name, cause.as_str()));
        }
        self.finished.retain(|_, at| now.duration_since(*at) < REMEMBERED);
        let attempts = runners.attempts;
        let memo = self.memo(id);
        memo.attempts = Some(attempts);
        memo.hold.count(finished);
        memo.registering.ended_unseen(unseen);
        let gone: Vec<usize> = replaced.into_iter().map(|(member, _)| member).collect();
        self.delete(outside, runners, &gone)?;
        Ok(next)
    }

    /// Deletes Runner objects and counts them out.
    fn delete(&mut self, outside: &mut Outside, runners: &mut Runners, gone: &[usize]) -> Result<(), Halt> {
        let mut failed = None;
        for member in gone {
            let (Some(id), Some((_, assessment))) = (runners.ids.get(*member), runners.members.get_mut(*member)) else {
                continue;
            };
            match outside.delete_runner(*id) {
                Ok(()) => {
                    self.known.entry(*id).or_default().deleted = Some(outside.clock.at);
                    *assessment = Assessment { phase: Phase::Stopping, trouble: None };
                }
                Err(Broken::Died) => return Err(Halt::Died),
                Err(broken) => failed = Some(broken.into()),
            }
            self.wake_now(outside, Key::Runner(*id));
        }
        failed.map_or(Ok(()), Err)
    }

    fn plan(&mut self, outside: &Outside, id: u32, set: &Set, runners: &Runners) -> Plan {
        let now = outside.clock.now;
        let members: Vec<Member> = runners
            .members
            .iter()
            .map(|(facts, assessment)| Member { phase: assessment.phase, current: facts.current, age: since(facts.created, now) })
            .collect();
        let replicas = Replicas {
            effective: set.effective,
            ephemeral: outside.setting.ephemeral,
            autoscaled: outside.setting.autoscaler.is_some(),
            scaled_up: runners.scaled_up,
            newest: runners.members.iter().map(|(facts, _)| facts.created).max(),
            missing: set.replicas.saturating_sub(runners.alive()),
        };
        let announced = self.accepted.get(&id).cloned().unwrap_or_default();
        let rules = self.rules;
        // While templates are exchanged, what is made stands in for no finished runner.
        let exchanged = outside.sets.all_seen().count() > 1;
        let finished = rules.held(&mut self.memo(id).hold, &replicas, announced.numbers(), outside.clock);
        rules.fleet(&Fleet {
            desired: set.replicas,
            members: &members,
            in_flight: runners.in_flight,
            finished: if exchanged { 0 } else { finished },
            surge: set.replicas.div_ceil(10).max(1),
        })
    }

    fn create(&mut self, outside: &mut Outside, set: u32, count: u32, runners: &mut Runners) -> Result<(), Halt> {
        let at = outside.clock.at;
        let mut failed = None;
        for _ in 0..count {
            let id = outside.fresh_name();
            // Remembered before it is sent: an answer that is lost may still mean a runner.
            self.memo(set).in_flight.insert(id, at);
            runners.in_flight += 1;
            match outside.create_runner(id, set) {
                Ok(()) => {}
                Err(Broken::Died) => return Err(Halt::Died),
                Err(broken) => failed = Some(broken.into()),
            }
        }
        if let Some(halt) = failed {
            return Err(halt);
        }
        runners.scaled_up = Some(wall(at));
        self.memo(set).scaled_up = Some(wall(at));
        Ok(())
    }

    fn scale_down(&mut self, outside: &mut Outside, id: u32, runners: &mut Runners, plan: &ScaleDown) -> Result<Duration, Halt> {
        let mut gone: Vec<usize> = plan.dead.iter().chain(&plan.unstarted).copied().collect();
        let mut next = SYNC;
        if plan.ask > 0 {
            next = next.min(self.ask(outside, id, runners, plan, &mut gone)?);
        }
        self.delete(outside, runners, &gone)?;
        Ok(next)
    }

    fn ask(
        &mut self,
        outside: &mut Outside,
        id: u32,
        runners: &Runners,
        plan: &ScaleDown,
        gone: &mut Vec<usize>,
    ) -> Result<Duration, Halt> {
        let Clocks { at, now } = clocks(outside);
        let wanted_since = *self.memo(id).surplus_since.get_or_insert(at);
        let confirmation = self.rules.confirmation;
        if let Some(left) = confirmation.checked_sub(elapsed(wanted_since, at)).filter(|left| !left.is_zero()) {
            return Ok(left);
        }
        let Some(offer) = self.rules.offer(&runners.members, plan.ask, confirmation, plan.outdated_only, now) else {
            return Ok(confirmation.max(Duration::from_secs(1)));
        };
        let wild = outside.setting.wild_policy.then(|| policy::nonsense(outside.draw, at));
        let chosen = wild.and_then(|answer| self.rules.choices(&offer.request, answer));
        let chosen = chosen.or_else(|| self.rules.choices(&offer.request, policy::idlest(&offer.request))).unwrap_or_default();
        let mut retry = SYNC;
        for index in chosen {
            // An index that was never offered names somebody all the same where nobody checks it.
            let offered = offer.runners.get(index as usize).copied();
            let Some(member) = offered.or_else(|| (index as usize).checked_sub(offer.runners.len())) else { continue };
            let Some((facts, _)) = runners.members.get(member) else { continue };
            let (Some(runner), Some(registration)) = (runners.ids.get(member), facts.remote.id()) else { continue };
            match self.unregister(outside, *runner, registration, facts) {
                Ok(Removal::Removed | Removal::Absent) => gone.push(member),
                Ok(Removal::Busy) => {
                    self.lister.hurry(outside, Duration::ZERO);
                    retry = Duration::from_secs(2);
                }
                Err(Halt::Later(wait)) => {
                    retry = retry.min(wait.max(TURN));
                    break;
                }
                Err(Halt::Failed) => retry = retry.min(Duration::from_secs(8)),
                Err(Halt::Died) => return Err(Halt::Died),
            }
        }
        Ok(retry)
    }

    fn write_set_status(&mut self, outside: &mut Outside, id: u32, set: &Set, runners: &Runners) -> Result<(), Halt> {
        let (attempts, scaled_up) = (runners.attempts, runners.scaled_up);
        if (set.attempts, set.scaled_up) == (attempts, scaled_up) {
            return Ok(());
        }
        if outside.sets.truth(id).is_some_and(|truth| (truth.attempts, truth.scaled_up) == (attempts, scaled_up)) {
            return Ok(());
        }
        outside.change_set(id, |set| (set.attempts, set.scaled_up) = (attempts, scaled_up))?;
        Ok(())
    }

    fn publish(&mut self, outside: &mut Outside, id: u32, set: &Set, runners: &Runners) {
        let assessments = || runners.members.iter().map(|(_, assessment)| assessment);
        let now = outside.clock.now;
        let ends = |(facts, assessment): &&(RunnerFacts, Assessment)| {
            assessment.phase == Phase::Stopping && matches!(Leaving::of(facts.pod.as_ref(), now), Some(Leaving::Ends { .. }))
        };
        let leaving = count(runners.members.iter().filter(ends));
        let hold = self.memo(id).hold.clone();
        let summary = Summary {
            generation: set.generation,
            alive: runners.alive(),
            online: count(assessments().filter(|assessment| assessment.phase.is_online())),
            busy: count(assessments().filter(|assessment| assessment.phase == Phase::Busy)),
            leaving,
            present: count(assessments()).saturating_add(runners.in_flight),
            finished: hold.finished(),
            accounted: hold.current(),
        };
        if self.summaries.get(&id) != Some(&summary) {
            self.summaries.insert(id, summary);
            self.wake_now(outside, Key::Target);
            self.wake_now(outside, Key::Scaler);
        }
    }
}

struct Clocks {
    at: At,
    now: Timestamp,
}

fn clocks(outside: &Outside) -> Clocks {
    Clocks { at: outside.clock.at, now: outside.clock.now }
}
