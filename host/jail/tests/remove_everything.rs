//! An hour of a fleet whose policies want everybody gone, on a clock that the test moves: the scale-down policy names everyone, the capacity
//! policy wants no runner at all, the restart policy replaces whatever it is asked about. The fleet is a model; who may be offered, what an
//! answer may do, how many are wanted and made, and when a runner is renewed are the operator's own functions, and the scale-down policy is a
//! real component.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test whose scene can't be set has failed")]

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use pacer_core::autoscale::{self, Bounds, Demand, Ramp};
use pacer_core::facts::{Container, Flag, PodFacts, PodPhase, Remote, RunnerFacts, Worker};
use pacer_core::fleet::{self, Fleet, Member, Plan};
use pacer_core::phase::{Assessment, Phase, assess};
use pacer_core::policy::{CapacityPlan, CapacityRequest, Job, Pool, Verdict};
use pacer_core::restart::{self, Remedy, RestartLimits};
use pacer_core::{gate, scale_down};
use pacer_policy::{Assignment, Chosen, Counters, Generation, Limits, PolicySet};

mod child;
mod guest;

use guest::Guest;

const MIN: u32 = 4;
const MAX: u32 = 40;
const PER_MINUTE: u32 = 12;
/// GitHub's flag shows a job this late.
const LATE: i64 = 45;
/// GitHub is listed this often.
const LISTED: i64 = 10;
/// A runner that was refused as busy counts as busy for so long; the operator's own time.
const REFUSED: i64 = 60;
/// From the first minute of these ten no start succeeds.
const BROKEN: std::ops::Range<i64> = 2_400..3_000;

/// What is true of a runner, and what the last listing said.
struct Runner {
    name: String,
    created: i64,
    online: i64,
    crashed: Option<i64>,
    job: Option<(i64, i64)>,
    listed_busy: Option<bool>,
    idle_since: i64,
    refused: i64,
}

#[derive(Debug, Default)]
struct Outcome {
    busy_removed: u32,
    known_busy_chosen: u32,
    refused: u32,
    removed: u32,
    below_min: u32,
    beyond_surplus: u32,
    made: Vec<i64>,
    jobs_done: u32,
}

struct World {
    runners: Vec<Runner>,
    queued: u32,
    names: u32,
    chance: u64,
    attempts: u32,
    raises: Vec<(Timestamp, u32)>,
    previous: u32,
    seen: Outcome,
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn ago(now: i64, since: i64) -> Duration {
    Duration::from_secs(u64::try_from(now - since).unwrap_or_default())
}

impl Runner {
    fn facts(&self, now: i64) -> RunnerFacts {
        let online = now >= self.online && self.listed_busy.is_some();
        let container = match self.crashed {
            Some(crashed) => Container::Terminated {
                exit_code: 1,
                reason: "Error".to_owned(),
                message: String::new(),
                started: Some(at(self.created)),
                finished: Some(at(crashed)),
            },
            None => Container::Running { since: Some(at(self.created)) },
        };
        RunnerFacts {
            name: self.name.clone(),
            uid: self.name.clone(),
            created: at(self.created),
            current: true,
            known_id: online.then_some(1),
            had_pod: true,
            pod: Some(PodFacts {
                created: at(self.created),
                phase: if self.crashed.is_some() { PodPhase::Failed } else { PodPhase::Running },
                node: Some(format!("node-{}", self.created % 5)),
                container,
                worker: Worker::Absent { since: None },
                ..PodFacts::default()
            }),
            remote: match self.listed_busy {
                Some(busy) => {
                    let busy = busy || now < self.refused;
                    Remote::Online { id: 1, flag: Flag::of(busy, ago(now, self.idle_since)) }
                }
                None => Remote::Absent { since: ago(now, self.created) },
            },
            ..RunnerFacts::default()
        }
    }
}

impl World {
    fn random(&mut self, below: u64) -> u64 {
        self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.chance >> 33) % below
    }

    /// Jobs come, start and end; GitHub is listed.
    fn live(&mut self, now: i64) {
        if self.random(8) == 0 {
            self.queued += 1;
        }
        for index in 0..self.runners.len() {
            let lasting = 20 + i64::try_from(self.random(240)).unwrap();
            let runner = &mut self.runners[index];
            if runner.job.is_some_and(|(_, end)| end <= now) {
                runner.job = None;
                self.seen.jobs_done += 1;
            }
            if BROKEN.contains(&runner.online) && now >= runner.created + 3 && runner.crashed.is_none() {
                runner.crashed = Some(now);
            }
            if self.queued > 0 && runner.job.is_none() && now >= runner.online && runner.crashed.is_none() {
                runner.job = Some((now, now + lasting));
                self.queued -= 1;
            }
            if now % LISTED == 0 && now >= runner.online && runner.crashed.is_none() {
                let busy = runner.job.is_some_and(|(start, _)| now >= start + LATE);
                if runner.listed_busy != Some(false) && !busy {
                    runner.idle_since = now;
                }
                runner.listed_busy = Some(busy);
            }
        }
    }

    fn members(&self, now: i64) -> Vec<(RunnerFacts, Assessment)> {
        let facts = self.runners.iter().map(|runner| runner.facts(now));
        facts.map(|facts| (facts.clone(), assess(&facts, at(now)))).collect()
    }

    /// For five minutes the capacity policy wants nobody, and for five the shipped one decides.
    async fn desired(&mut self, now: i64, generation: &Generation) -> u32 {
        let job = |id: usize, state: &str| Job { id: id as u64, state: state.to_owned(), ..Job::default() };
        let running = self.runners.iter().filter(|runner| runner.job.is_some()).count();
        let jobs = (0..running).map(|id| job(id, "in-progress"));
        let jobs = jobs.chain((0..self.queued as usize).map(|id| job(1_000 + id, "queued"))).collect();
        let pool = Pool { min_replicas: Some(MIN), max_replicas: Some(MAX), ..Pool::default() };
        let request = CapacityRequest { jobs, pool, now: 1_800_000_000.0, ..CapacityRequest::default() };
        let plan = if now / 300 % 2 == 0 {
            gate::plan(&request, CapacityPlan { ceiling: Some(0), ..CapacityPlan::default() }).unwrap()
        } else {
            generation.capacity(request).await.answer
        };
        let decision = autoscale::decide(&Demand {
            bounds: Bounds { min: MIN, max: MAX },
            override_min: None,
            metric: None,
            jobs_added_to_min: false,
            planned: plan.reservations.iter().map(|held| held.replicas).sum(),
            jobs: 0,
            spec_reserved: 0,
            ceiling: plan.ceiling,
            previous: Some(self.previous),
            live: u32::try_from(self.runners.len()).unwrap(),
            last_scale_out: None,
            delay: Duration::ZERO,
            ramp: Ramp { per_minute: NonZeroU32::new(PER_MINUTE), recent: &self.raises },
            now: at(now),
        });
        self.raises.push((at(now), decision.raised));
        self.raises.retain(|(made, _)| at(now).duration_since(*made).as_secs() < 60);
        self.previous = decision.desired;
        decision.desired
    }

    /// The restart policy replaces all it is asked about, at once.
    fn restarts(&mut self, now: i64) {
        let mut given_up = Vec::new();
        for (index, (_, assessment)) in self.members(now).iter().enumerate() {
            let Some(trouble) = &assessment.trouble else { continue };
            let attempts = self.attempts + u32::from(trouble.cause.is_failure());
            let verdict = Verdict { action: "replace".to_owned(), after: Some(0), ..Verdict::default() };
            let remedy = restart::remedy(Some(&verdict), trouble, false, attempts, &RestartLimits::default(), at(now));
            if remedy == Remedy::Replace {
                given_up.push((index, trouble.cause));
            }
        }
        let online = self.runners.iter().any(|runner| runner.online == now && !BROKEN.contains(&now));
        self.attempts = restart::attempts(self.attempts, online, given_up.iter().map(|(_, cause)| *cause));
        for (index, _) in given_up.into_iter().rev() {
            self.remove(index, now);
        }
    }

    async fn step(&mut self, now: i64, generation: &Generation) {
        self.live(now);
        let desired = self.desired(now, generation).await;
        self.restarts(now);
        let members = self.members(now);
        let counted: Vec<Member> = members
            .iter()
            .map(|(facts, assessment)| Member {
                phase: assessment.phase,
                current: true,
                age: scale_down::since(facts.created, at(now)),
            })
            .collect();
        match fleet::plan(&Fleet { desired, members: &counted, in_flight: 0, finished: 0, surge: 1 }) {
            Plan::Settled | Plan::Held { .. } | Plan::Full { .. } => {}
            Plan::Create(count) => (0..count).for_each(|_| self.make(now)),
            Plan::ScaleDown(plan) => {
                let mut gone: Vec<usize> = plan.dead.iter().chain(&plan.unstarted).copied().collect();
                gone.extend(self.asked(now, generation, &members, plan.ask).await);
                gone.sort_unstable();
                for index in gone.into_iter().rev() {
                    self.remove(index, now);
                }
                self.seen.below_min += u32::from(self.runners.len() < MIN as usize);
            }
        }
    }

    /// Asks the policy, and GitHub about each that it names.
    async fn asked(
        &mut self,
        now: i64,
        generation: &Generation,
        members: &[(RunnerFacts, Assessment)],
        surplus: u32,
    ) -> Vec<usize> {
        let offer = scale_down::offer(members, &BTreeMap::new(), Pool::default(), surplus, Duration::ZERO, false, at(now));
        let Some(offer) = offer else { return Vec::new() };
        let most = offer.request.surplus;
        let evaluation = generation.scale_down(offer.request).await;
        self.seen.beyond_surplus += u32::from(evaluation.answer.len() > most as usize);
        let mut gone = Vec::new();
        for choice in evaluation.answer {
            let index = offer.runners[choice.index as usize];
            let runner = &mut self.runners[index];
            self.seen.known_busy_chosen += u32::from(runner.listed_busy != Some(false) || now < runner.refused);
            if runner.job.is_some() {
                // 422: GitHub knows better than its own listing.
                runner.refused = now + REFUSED;
                self.seen.refused += 1;
            } else {
                gone.push(index);
            }
        }
        gone
    }

    fn make(&mut self, now: i64) {
        self.names += 1;
        self.seen.made.push(now);
        self.runners.push(Runner {
            name: format!("runner-{}", self.names),
            created: now,
            online: now + 5,
            crashed: None,
            job: None,
            listed_busy: None,
            idle_since: now,
            refused: 0,
        });
    }

    fn remove(&mut self, index: usize, now: i64) {
        let runner = self.runners.remove(index);
        self.seen.removed += 1;
        let busy = runner.job.is_some_and(|(_, end)| end > now) && runner.crashed.is_none();
        self.seen.busy_removed += u32::from(busy);
    }
}

/// Names this many candidates, whatever they are: a number that lies at an offset of the request.
fn naming(offset: u32) -> Guest {
    Guest::select(&format!(
        "(block $done (loop $again
            (br_if $done (i32.ge_u (local.get $n) (i32.load offset={offset} (local.get $request))))
            (i32.store (i32.add (i32.const 500000) (i32.mul (local.get $n) (i32.const 20))) (local.get $n))
            (local.set $n (i32.add (local.get $n) (i32.const 1)))
            (br $again)))
        (i32.store (i32.const 4100) (i32.const 500000))
        (i32.store (i32.const 4104) (local.get $n))
        (i32.const 4096)"
    ))
    .memory("(memory (export \"memory\") 16)")
}

async fn an_hour(guest: &Guest) -> (Outcome, Arc<Counters>) {
    let counters = Arc::new(Counters::default());
    let host = child::host(&counters);
    let policy = host.load(guest.component()).await.unwrap();
    let scale_down = Assignment { chosen: Chosen::Policy(policy), limits: Limits::default(), ..Default::default() };
    let generation = host.prepare(PolicySet { scale_down, ..Default::default() }).await.unwrap();
    let mut world = World {
        runners: Vec::new(),
        queued: 0,
        names: 0,
        chance: 42,
        attempts: 0,
        raises: Vec::new(),
        previous: 0,
        seen: Outcome::default(),
    };
    for now in 0..3_600 {
        world.step(now, &generation).await;
        // When starts succeed again, the longest back-off has to pass first.
        if now > 10 && !(BROKEN.start..BROKEN.end + 310).contains(&now) {
            let alive = world.members(now).iter().filter(|(_, assessment)| assessment.phase != Phase::Dead).count();
            assert!(alive >= MIN as usize, "{alive} runners at {now}");
        }
    }
    host.join().await;
    (world.seen, counters)
}

fn most_in_a_minute(made: &[i64]) -> usize {
    let mut by_second: BTreeMap<i64, usize> = BTreeMap::new();
    made.iter().for_each(|second| *by_second.entry(*second).or_default() += 1);
    by_second.keys().map(|start| by_second.range(*start..start + 60).map(|(_, count)| count).sum()).max().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_hour_of_policies_that_want_everybody_gone_harms_nobody() {
    // As many as it may, and everybody that it sees.
    for (guest, oversteps) in [(naming(204), false), (naming(200), true)] {
        let (seen, counters) = an_hour(&guest).await;
        // Runners that can't start are made again by the restart decision, at the pace of its back-off; counted below.
        let wanted: Vec<i64> =
            seen.made.iter().copied().filter(|second| !(BROKEN.start..BROKEN.end + 310).contains(second)).collect();
        let made = most_in_a_minute(&wanted);
        println!("{} removed, {} refused, {} jobs, at most {made} made in a minute", seen.removed, seen.refused, seen.jobs_done);
        assert_eq!((seen.busy_removed, seen.known_busy_chosen), (0, 0), "busy runners");
        assert_eq!((seen.below_min, seen.beyond_surplus), (0, 0), "minimum and surplus");
        // It has to have been an hour in which all of this could have gone wrong.
        assert!(seen.removed > 40 && seen.refused > 10 && seen.jobs_done > 200, "{seen:?}");
        assert!(made <= (PER_MINUTE + MIN) as usize, "{made} in a minute");
        let broken = seen.made.iter().filter(|second| BROKEN.contains(second)).count();
        assert!(broken < 10 * PER_MINUTE as usize, "{broken} starts while none succeeded");
        assert_eq!(counters.faults("invalid-output") > 0, oversteps);
    }
}
