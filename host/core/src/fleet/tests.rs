use std::time::Duration;

use proptest::prelude::*;

use super::*;

const IDLE: Phase = Phase::Idle(Duration::from_secs(60));
use Phase::{Busy, Dead, Offline, Pending, Starting, Stopping};

/// Current members, oldest first.
fn members(phases: &[Phase]) -> Vec<Member> {
    mixed(&phases.iter().map(|phase| (*phase, true)).collect::<Vec<_>>())
}

fn mixed(phases: &[(Phase, bool)]) -> Vec<Member> {
    let ages = (1..=phases.len()).rev().map(|age| u32::try_from(age).unwrap());
    phases.iter().zip(ages).map(|(&(phase, current), age)| Member { phase, current, age }).collect()
}

fn of(count: usize, phase: Phase, current: bool) -> Vec<(Phase, bool)> {
    vec![(phase, current); count]
}

fn fleet(desired: u32, members: &[Member]) -> Fleet<'_> {
    Fleet { desired, members, in_flight: 0, finished: 0, surge: 1 }
}

fn ask(ask: u32) -> Plan {
    Plan::ScaleDown(ScaleDown { ask, ..ScaleDown::default() })
}

fn unstarted(indices: &[usize]) -> Plan {
    Plan::ScaleDown(ScaleDown { unstarted: indices.to_vec(), ..ScaleDown::default() })
}

#[test]
fn namespace_bounds_what_is_made_and_nothing_else() {
    let table = [
        (Plan::Create(3), None, Plan::Create(3)),
        (Plan::Create(3), Some(5), Plan::Create(3)),
        (Plan::Create(3), Some(2), Plan::Create(2)),
        (Plan::Create(3), Some(0), Plan::Full { missing: 3 }),
        (Plan::Settled, Some(0), Plan::Settled),
        (Plan::Held { missing: 1 }, Some(0), Plan::Held { missing: 1 }),
        (ask(2), Some(0), ask(2)),
    ];
    for (plan, room, expected) in table {
        assert_eq!(plan.clone().within(room), expected, "{plan:?} within {room:?}");
    }
}

#[test]
fn number_with_too_many_digits_is_made_batch_by_batch() {
    for (plan, expected) in [
        (Plan::Create(BATCH), (Plan::Create(BATCH), true)),
        (Plan::Create(BATCH + 1), (Plan::Create(BATCH), false)),
        (Plan::Create(u32::MAX), (Plan::Create(BATCH), false)),
        (Plan::Held { missing: u32::MAX }, (Plan::Held { missing: u32::MAX }, true)),
        (ask(BATCH + 1), (ask(BATCH + 1), true)),
    ] {
        assert_eq!(plan.batch(), expected);
    }
}

fn outdated(dead: &[usize], unstarted: &[usize], ask: u32) -> Plan {
    Plan::ScaleDown(ScaleDown { dead: dead.to_vec(), unstarted: unstarted.to_vec(), ask, outdated_only: true })
}

/// Owner sync of ARC, vectors S of arc-behaviour 9.9; owners oldest first. ARC says which owner goes; here the plan says how many idle ones
/// the policy may choose, and only idle ones.
#[test]
fn plan_is_that_of_arc_unless_a_runner_could_be_busy() {
    let cases = [
        ("S1", members(&[]), 3, Plan::Create(3)),
        ("S2", members(&[IDLE, Pending]), 3, Plan::Create(1)),
        // ARC deletes the completed owner here. We keep its place until the restart decision has let it go, then it is S4.
        ("S3", members(&[Dead, IDLE]), 2, Plan::Settled),
        ("S3, unregistered", members(&[Stopping, IDLE]), 2, Plan::Create(1)),
        ("S4", members(&[IDLE]), 2, Plan::Create(1)),
        ("S8", members(&[IDLE]), 2, Plan::Create(1)),
        // ARC stops the oldest without looking, which kills or waits for busy ones.
        ("S9", members(&[IDLE, IDLE, IDLE]), 1, ask(2)),
        ("S9, one busy", members(&[Busy, IDLE, IDLE]), 1, ask(2)),
        ("S9, two busy", members(&[Busy, IDLE, Busy]), 1, ask(1)),
        ("S9, all busy", members(&[Busy, Busy, Busy]), 1, Plan::Settled),
        ("S10", members(&[IDLE, IDLE]), 0, ask(2)),
        ("S11", members(&[IDLE, Pending]), 1, unstarted(&[1])),
        // ARC leaves pending ones alone until they run. What has not started is cheapest to give up.
        ("S12", members(&[Pending, Pending]), 1, unstarted(&[1])),
        ("S13", members(&[Pending, Pending]), 0, unstarted(&[1, 0])),
        // The two annotations of a removal in ARC are one phase here; its place is free at once.
        ("S19", members(&[Stopping]), 1, Plan::Create(1)),
        ("S20", members(&[Stopping]), 0, Plan::Settled),
        // ARC deletes runners of an old template plainly, busy or not, and all at once.
        ("S23", mixed(&[(IDLE, false), (IDLE, true)]), 1, outdated(&[], &[], 1)),
        ("S23, old one busy", mixed(&[(Busy, false), (IDLE, true)]), 1, Plan::Settled),
        ("S24", mixed(&[(IDLE, false), (IDLE, true)]), 2, Plan::Create(1)),
    ];
    for (name, members, desired, expected) in cases {
        assert_eq!(plan(&fleet(desired, &members)), expected, "{name}");
    }
}

/// ARC's rule 2.7 A, whose own vectors are about times: the operator turns them into `finished`.
#[test]
fn finished_runners_are_not_replaced_while_held() {
    let members = members(&[IDLE]);
    let held = |desired| plan(&Fleet { finished: u32::MAX, ..fleet(desired, &members) });
    assert_eq!(held(3), Plan::Held { missing: 2 });
    assert_eq!(plan(&Fleet { finished: 1, ..fleet(3, &members) }), Plan::Create(1), "the other one is wanted anew");
    assert_eq!(held(1), Plan::Settled);
    assert_eq!(held(0), ask(1), "a hold holds creations only");
    let old = mixed(&[(IDLE, false)]);
    let exchange = plan(&Fleet { finished: u32::MAX, ..fleet(1, &old) });
    assert_eq!(exchange, Plan::Create(1), "one of the new template stands in for no finished runner");
}

#[test]
fn plan_creates_or_removes_when_the_number_differs() {
    let cases = [
        ("nothing to do", members(&[IDLE, Busy, Starting, Offline, Pending, Dead]), 6, Plan::Settled),
        ("the dead hold their place", members(&[Dead, Dead]), 2, Plan::Settled),
        (
            "the dead go first, then the newest unstarted, then idle ones",
            members(&[IDLE, Pending, Dead, Pending, IDLE]),
            1,
            Plan::ScaleDown(ScaleDown { dead: vec![2], unstarted: vec![3, 1], ask: 1, outdated_only: false }),
        ),
        (
            "no more than the surplus",
            members(&[Dead, Dead, Dead]),
            2,
            Plan::ScaleDown(ScaleDown { dead: vec![0], ..ScaleDown::default() }),
        ),
        ("starting, offline and busy ones are left alone", members(&[Starting, Offline, Busy]), 0, Plan::Settled),
        // Those online are worth more than those that may come.
        ("an idle one does not go for a starting one", members(&[IDLE, Starting]), 1, Plan::Settled),
        ("nor for an offline one", members(&[IDLE, Offline, Offline]), 1, Plan::Settled),
        ("but beside them", members(&[IDLE, IDLE, Offline, Offline]), 1, ask(1)),
        ("down to nothing", members(&[IDLE, IDLE, Starting]), 0, ask(2)),
    ];
    for (name, members, desired, expected) in cases {
        assert_eq!(plan(&fleet(desired, &members)), expected, "{name}");
    }
}

#[test]
fn creations_under_way_count() {
    let members = members(&[IDLE]);
    let with = |in_flight, desired| plan(&Fleet { in_flight, ..fleet(desired, &members) });
    assert_eq!(with(2, 3), Plan::Settled);
    assert_eq!(with(2, 5), Plan::Create(2));
    assert_eq!(with(u32::MAX, 5), Plan::Settled);
}

#[test]
fn plan_asks_for_idle_runners_when_thirty_of_a_hundred_are_busy() {
    let all = mixed(&[of(30, Busy, true), of(70, IDLE, true)].concat());
    assert_eq!(plan(&fleet(40, &all)), ask(60), "in one step, and no busy one");
}

#[test]
fn outdated_members_are_exchanged_within_the_surge() {
    let all = |parts: &[Vec<(Phase, bool)>]| mixed(&parts.concat());
    let cases = [
        ("new ones first", all(&[of(100, IDLE, false)]), Plan::Create(10)),
        ("none goes before they are online", all(&[of(100, IDLE, false), of(10, Starting, true)]), Plan::Settled),
        ("as many as are online", all(&[of(100, IDLE, false), of(4, IDLE, true), of(6, Starting, true)]), outdated(&[], &[], 4)),
        (
            "those gone before do not count again",
            all(&[of(96, IDLE, false), of(4, IDLE, true), of(6, Starting, true)]),
            Plan::Create(4),
        ),
        (
            "what has not started goes at once",
            all(&[of(99, IDLE, false), of(1, Pending, false), of(10, Starting, true)]),
            outdated(&[], &[99], 0),
        ),
        (
            "so does what is over",
            all(&[of(99, IDLE, false), of(1, Dead, false), of(10, Starting, true)]),
            outdated(&[99], &[], 0),
        ),
        ("busy ones finish", all(&[of(20, Busy, false), of(90, IDLE, true)]), Plan::Settled),
        ("one finished", all(&[of(19, Busy, false), of(90, IDLE, true)]), Plan::Create(1)),
        ("scaled down meanwhile", all(&[of(60, IDLE, false), of(60, IDLE, true)]), outdated(&[], &[], 20)),
        ("scaled down, only busy old ones", all(&[of(60, Busy, false), of(60, IDLE, true)]), ask(10)),
    ];
    for (name, members, expected) in cases {
        assert_eq!(plan(&Fleet { surge: 10, ..fleet(100, &members) }), expected, "{name}");
    }
    let one = mixed(&[(IDLE, false)]);
    assert_eq!(plan(&Fleet { surge: 0, ..fleet(1, &one) }), Plan::Create(1), "a surge of none moves all the same");
    assert_eq!(plan(&Fleet { surge: u32::MAX, ..fleet(1, &one) }), Plan::Create(1));
}

/// A pseudo-random generator: the same seed rolls the same numbers.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn one_in(&mut self, sides: u64) -> bool {
        self.roll(sides) == 0
    }
}

/// A set whose runners live: they start, register, get jobs, finish and die.
struct Model {
    desired: u32,
    surge: u32,
    members: Vec<Member>,
    in_flight: u32,
    dice: Dice,
    /// Its busy members never finish.
    stuck_jobs: bool,
}

impl Model {
    fn plan(&self, finished: u32) -> Plan {
        plan(&Fleet { desired: self.desired, members: &self.members, in_flight: self.in_flight, finished, surge: self.surge })
    }

    fn total(&self) -> u32 {
        count(self.members.iter().filter(|member| member.phase != Stopping)) + self.in_flight
    }

    /// Checks a plan against the members it was made for.
    fn check(&self, plan: &Plan, finished: u32) -> Result<(), TestCaseError> {
        let total = self.total();
        let outdated = || self.members.iter().filter(|member| !member.current && member.phase != Stopping);
        match plan {
            Plan::Settled | Plan::Full { .. } => {}
            Plan::Held { missing } => prop_assert!(*missing > 0 && *missing <= finished && total + missing == self.desired),
            Plan::Create(number) => {
                let limit = self.desired + if outdated().count() > 0 { self.surge.max(1) } else { 0 };
                prop_assert!(*number > 0 && total + number <= limit, "{total} + {number} > {limit}");
                let held = (self.desired.saturating_sub(total)).min(finished);
                prop_assert!(outdated().count() > 0 || *number == self.desired - total - held);
            }
            Plan::ScaleDown(plan) => {
                let ScaleDown { dead, unstarted, ask, outdated_only } = plan;
                let number = dead.len() + unstarted.len() + *ask as usize;
                prop_assert!(number > 0 && total - u32::try_from(number).unwrap() >= self.desired);
                prop_assert!(dead.iter().all(|index| self.members[*index].phase == Dead));
                prop_assert!(unstarted.iter().all(|index| self.members[*index].phase == Pending));
                prop_assert!(!outdated_only || dead.iter().chain(unstarted).all(|index| !self.members[*index].current));
                prop_assert!(*ask as usize <= self.may_go(*outdated_only).len());
                let mut distinct: Vec<&usize> = dead.iter().chain(unstarted).collect();
                distinct.sort();
                distinct.dedup();
                prop_assert_eq!(distinct.len(), dead.len() + unstarted.len());
                // Idle ones leave only what is wanted online; outdated ones that are out of contact count until they are unregistered.
                let online = count(self.members.iter().filter(|member| member.phase.is_online()));
                let lame = count(outdated().filter(|member| !member.phase.is_online()));
                let held = if *outdated_only { online + lame } else { online };
                prop_assert!(*ask == 0 || held - ask >= self.desired, "{online} online, {ask} asked");
            }
        }
        Ok(())
    }

    fn may_go(&self, outdated_only: bool) -> Vec<usize> {
        let idle = |member: &Member| matches!(member.phase, Phase::Idle(_)) && !(outdated_only && member.current);
        self.members.iter().enumerate().filter(|(_, member)| idle(member)).map(|(index, _)| index).collect()
    }

    fn act(&mut self, plan: Plan) {
        match plan {
            Plan::Settled | Plan::Held { .. } | Plan::Full { .. } => {}
            Plan::Create(number) => self.in_flight += number,
            Plan::ScaleDown(ScaleDown { dead, unstarted, ask, outdated_only }) => {
                for index in dead.into_iter().chain(unstarted) {
                    self.members[index].phase = Stopping;
                }
                for _ in 0..ask {
                    let candidates = self.may_go(outdated_only);
                    let pick = usize::try_from(self.dice.roll(candidates.len() as u64)).unwrap();
                    // A job may have come in between: GitHub refuses.
                    let refused = !self.stuck_jobs && self.dice.one_in(8);
                    self.members[candidates[pick]].phase = if refused { Busy } else { Stopping };
                }
            }
        }
    }

    /// Time passes; `busy_world` gives out jobs and lets runners fail.
    fn evolve(&mut self, busy_world: bool) {
        for _ in 0..self.in_flight {
            if self.dice.one_in(2) {
                self.in_flight -= 1;
                self.members.push(Member { phase: Pending, current: true, age: 0 });
            }
        }
        for index in 0..self.members.len() {
            let (first, second) = (self.dice.roll(10), self.dice.roll(10));
            let member = &mut self.members[index];
            member.age += 1;
            member.phase = match member.phase {
                Pending if first < 5 => Starting,
                Starting if busy_world && first == 0 => Dead,
                Starting if first < 5 => IDLE,
                Phase::Idle(_) if busy_world && first < 2 => Busy,
                Phase::Idle(_) if busy_world && first == 9 => Offline,
                // Ephemeral: its end is its job's end.
                Busy if !self.stuck_jobs && first < 3 => Dead,
                // The restart decision: it comes back or is replaced.
                Offline => {
                    if second < 5 {
                        IDLE
                    } else {
                        Dead
                    }
                }
                Dead if second < 5 => Stopping,
                phase => phase,
            };
        }
        let mut members = std::mem::take(&mut self.members);
        members.retain(|member| member.phase != Stopping || !self.dice.one_in(3));
        self.members = members;
    }

    fn step(&mut self, busy_world: bool, finished: u32) -> Result<Plan, TestCaseError> {
        self.evolve(busy_world);
        let plan = self.plan(finished);
        self.check(&plan, finished)?;
        let before = self.total();
        self.act(plan.clone());
        let limit = self.desired + self.surge.max(1);
        prop_assert!(self.total() <= before.max(limit), "{} of {}", self.total(), limit);
        Ok(plan)
    }
}

fn any_member() -> impl Strategy<Value = Member> {
    let phase = proptest::sample::select(vec![IDLE, IDLE, Busy, Pending, Starting, Offline, Dead, Stopping]);
    (phase, proptest::bool::weighted(0.6), 0..100_u32).prop_map(|(phase, current, age)| Member { phase, current, age })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    /// Any plan for any fleet: what it takes is there to be taken.
    #[test]
    fn every_plan_is_sound(
        members in proptest::collection::vec(any_member(), 0..40),
        (desired, surge, in_flight, finished) in (0..40_u32, 0..6_u32, 0..5_u32, 0..6_u32),
    ) {
        let model = Model { desired, surge, members, in_flight, dice: Dice(0), stuck_jobs: false };
        model.check(&model.plan(finished), finished)?;
    }

    /// In a world that comes to rest the plans do too: no member is outdated but busy ones, and nobody is missing or too many.
    #[test]
    fn plans_reach_a_fixed_point(
        members in proptest::collection::vec(any_member(), 0..40),
        (desired, then, surge, seed) in (0..40_u32, 0..40_u32, 0..6_u32, any::<u64>()),
        stuck_jobs: bool,
    ) {
        let mut model = Model { desired, surge, members, in_flight: 0, dice: Dice(seed), stuck_jobs };
        for tick in 0..40 {
            model.step(true, if tick % 7 == 3 { 2 } else { 0 })?;
        }
        model.desired = then;
        let mut quiet = 0;
        for _ in 0..1000 {
            let plan = model.step(false, 0)?;
            quiet = if plan == Plan::Settled { quiet + 1 } else { 0 };
        }
        prop_assert!(quiet > 200, "still moving: {:?}", model.members);
        prop_assert_eq!(model.in_flight, 0);
        let busy = count(model.members.iter().filter(|member| member.phase == Busy));
        let old = count(model.members.iter().filter(|member| !member.current));
        prop_assert!(model.members.iter().all(|member| member.phase == Busy || (member.current && member.phase == IDLE)));
        let total = model.total();
        if old == 0 {
            prop_assert_eq!(total, then.max(busy));
        } else {
            // Outdated busy ones are stood in for, as far as the surge reaches.
            prop_assert!(stuck_jobs && total >= then.max(busy) && total <= (then + surge.max(1)).max(busy));
            prop_assert!(total == then + surge.max(1) || total == then + old || total == busy, "{total} of {then}, {old} old");
        }
    }
}
