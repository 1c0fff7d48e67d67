use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::fleet::{self, Fleet, Member, Plan, ScaleDown};
use crate::phase::Phase;

/// A set whose members are all online and idle, and whose spec has been followed.
fn settled(wanted: u32) -> Set {
    Set { busy: 0, ..busy(wanted, wanted) }
}

/// A set that is to have `wanted` and has this many, all of them busy.
fn busy(wanted: u32, alive: u32) -> Set {
    Set { wanted, alive, online: alive, busy: alive, present: alive, leaving: 0, observed: true, asked: 0 }
}

/// As [`settled`], with so many pods that are about to be gone.
fn leaving(wanted: u32, leaving: u32) -> Set {
    Set { leaving, present: wanted + leaving, ..settled(wanted) }
}

fn starting(wanted: u32, online: u32) -> Set {
    Set { online, ..settled(wanted) }
}

fn step(newest: u32, old: &[u32]) -> Rollout {
    Rollout { newest, old: old.to_vec(), delete: Vec::new(), complete: false }
}

/// Vectors of arc-behaviour 9.9 (ARC doubles the fleet and then empties the old sets at once), and the rules of ours.
#[test]
fn step_is_planned_when_sets_are_in_any_state() {
    let fresh = Set { observed: true, ..Set::default() };
    let uncounted = |wanted| Set { wanted, alive: wanted, present: u32::MAX, ..Set::default() };
    let cases = [
        ("a new set gets the surge", 100, 10, fresh, vec![settled(100)], step(10, &[100])),
        ("newest not online: old ones stay", 100, 10, starting(10, 0), vec![settled(100)], step(10, &[100])),
        ("old ones go as new ones come online", 100, 10, starting(10, 4), vec![settled(100)], step(10, &[96])),
        ("and make room", 100, 10, settled(10), vec![settled(90)], step(20, &[90])),
        ("a set that grew is not scaled down again", 100, 10, starting(20, 0), vec![settled(100)], step(20, &[100])),
        ("busy ones are waited for", 120, 12, settled(112), vec![busy(8, 20)], step(112, &[8])),
        ("all online: old ones to none", 100, 10, settled(100), vec![busy(5, 5)], step(100, &[0])),
        ("scaled up", 200, 20, settled(50), vec![settled(50)], step(170, &[50])),
        ("scaled down", 20, 2, settled(50), vec![settled(50)], step(20, &[0])),
        ("scaled to none", 0, 1, settled(50), vec![settled(50)], step(0, &[0])),
        ("nothing wanted, one busy", 0, 1, fresh, vec![busy(0, 1)], step(0, &[0])),
        ("old ones finished by themselves", 10, 1, settled(1), vec![busy(10, 7)], step(4, &[7])),
        ("the oldest goes first", 10, 1, settled(4), vec![settled(4), settled(4)], step(4, &[2, 4])),
        (
            "long jobs and idle ones do not fill the surge between them",
            100,
            10,
            fresh,
            vec![busy(10, 20), settled(90)],
            step(0, &[10, 80]),
        ),
        // A template that never came online must not hold the place of its correction.
        ("a broken set goes before a good one", 100, 10, fresh, vec![settled(100), starting(10, 0)], step(0, &[100, 0])),
        ("then there is room", 100, 10, fresh, vec![settled(100), Set { present: 10, ..fresh }], step(10, &[100, 0])),
        ("pods that end take room", 100, 10, settled(10), vec![leaving(90, 10)], step(10, &[90])),
        ("until they are gone, one by one", 100, 10, settled(10), vec![leaving(90, 9)], step(11, &[90])),
        ("those of the new template too", 100, 10, leaving(10, 4), vec![settled(90)], step(16, &[90])),
        ("more of them than the surge has room for", 100, 10, settled(30), vec![leaving(70, 40)], step(30, &[70])),
        ("what starts is kept while nothing is online", 50, 5, fresh, vec![starting(50, 0)], step(5, &[50])),
        ("a change that the old set has not followed", 10, 1, fresh, vec![Set { wanted: 10, ..fresh }], step(10, &[0])),
        (
            "it may still grow: no room is seen",
            10,
            1,
            fresh,
            vec![Set { observed: false, wanted: 10, ..settled(2) }],
            step(1, &[2]),
        ),
        // After a restart nobody has counted: sets stay as they are.
        ("uncounted old sets", 100, 10, settled(40), vec![uncounted(30), uncounted(40)], step(40, &[30, 40])),
        ("uncounted newest set", 100, 10, uncounted(40), vec![settled(70)], step(40, &[70])),
        (
            "uncounted, size unknown",
            100,
            10,
            settled(40),
            vec![Set { alive: u32::MAX, ..uncounted(60) }, Set { alive: u32::MAX, ..uncounted(0) }],
            step(40, &[60, 0]),
        ),
        (
            "numbers at their limits",
            u32::MAX,
            u32::MAX,
            fresh,
            vec![settled(u32::MAX - 1), settled(5)],
            step(0, &[u32::MAX - 5, 5]),
        ),
    ];
    for (name, desired, surge, newest, old, expected) in cases {
        assert_eq!(plan(desired, surge, newest, &old), expected, "{name}");
    }
}

#[test]
fn a_rollout_is_complete_without_old_sets() {
    for (desired, newest) in [(3, Set::default()), (0, settled(5)), (5, settled(5)), (2, settled(5))] {
        assert_eq!(plan(desired, 1, newest, &[]), Rollout { complete: true, ..step(desired, &[]) }, "{desired} {newest:?}");
    }
}

#[test]
fn pods_that_end_hold_nobody_up_when_nothing_is_rolled_out() {
    assert_eq!(plan(50, 5, leaving(10, 30), &[]), Rollout { complete: true, ..step(50, &[]) });
}

#[test]
fn pod_counts_until_it_hangs_when_it_ends() {
    let now = Timestamp::from_second(1_000).unwrap();
    let at = |second: i64| Timestamp::from_second(second).unwrap();
    let deleted = |second: i64| Some(PodFacts { deleting: Some(at(second)), ..PodFacts::default() });
    for (what, pod, expected) in [
        ("no pod", None, None),
        ("nobody has asked for its deletion", Some(PodFacts::default()), Some(Leaving::Ends { hangs_at: None })),
        ("within its grace period", deleted(1_010), Some(Leaving::Ends { hangs_at: Some(at(1_040)) })),
        ("its grace period is over", deleted(971), Some(Leaving::Ends { hangs_at: Some(at(1_001)) })),
        ("long over", deleted(970), Some(Leaving::Hangs)),
    ] {
        assert_eq!(Leaving::of(pod.as_ref(), now), expected, "{what}");
    }
    let never = PodFacts { deleting: Some(Timestamp::MAX), ..PodFacts::default() };
    assert_eq!(Leaving::of(Some(&never), now), Some(Leaving::Ends { hangs_at: None }));
}

#[test]
fn only_empty_and_observed_sets_are_deleted() {
    let empty = Set { observed: true, ..Set::default() };
    let old = [
        empty,
        Set { observed: false, ..empty },
        Set { present: 1, ..empty },
        Set { present: u32::MAX, ..empty },
        Set { wanted: 1, ..empty },
        settled(1),
        empty,
    ];
    let rollout = plan(3, 1, settled(3), &old);
    assert_eq!((rollout.delete, rollout.complete), (vec![0, 6], false));
}

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// What a runner is born to.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Idles,
    /// Comes online, gets a job, finishes it.
    Works,
    /// Gets a job that never ends.
    Stuck,
    /// Its template is broken: its container never starts.
    Broken,
    /// Idles; its pod does not go when it is deleted.
    Hangs,
}

/// A RunnerReplicaSet that is scaled up and down by [`fleet::plan`].
#[derive(Debug)]
struct Runners {
    wanted: u32,
    /// Wanted when it last looked, and what it saw then.
    seen: Option<(u32, Set)>,
    members: Vec<(Phase, Fate)>,
    fate: Fate,
    /// Its owner has moved on: it makes no more runners.
    superseded: bool,
    deleted: bool,
}

const IDLE: Phase = Phase::Idle(Duration::from_secs(60));

impl Runners {
    fn new(wanted: u32, fate: Fate) -> Self {
        Self { wanted, seen: None, members: Vec::new(), fate, superseded: false, deleted: false }
    }

    fn count(&self, which: impl Fn(Phase) -> bool) -> u32 {
        u32::try_from(self.members.iter().filter(|(phase, _)| which(*phase)).count()).unwrap()
    }

    fn alive(&self) -> u32 {
        self.count(|phase| phase != Phase::Stopping)
    }

    fn online(&self) -> u32 {
        self.count(Phase::is_online)
    }

    /// Pods that end and will be gone.
    fn leaving(&self) -> u32 {
        let ends = |member: &&(Phase, Fate)| member.0 == Phase::Stopping && member.1 != Fate::Hangs;
        u32::try_from(self.members.iter().filter(ends).count()).unwrap()
    }

    /// What the deployment knows: the last look, and whether it was at the present spec.
    fn described(&self) -> Set {
        match self.seen {
            None => Set { wanted: self.wanted, alive: self.wanted, present: u32::MAX, ..Set::default() },
            Some((at, set)) => Set { wanted: self.wanted, observed: at == self.wanted, ..set },
        }
    }

    fn reconcile(&mut self, dice: &mut Dice) {
        let members: Vec<Member> =
            self.members.iter().map(|(phase, _)| Member { phase: *phase, current: true, age: 1 }).collect();
        let plan = fleet::plan(&Fleet { desired: self.wanted, members: &members, in_flight: 0, finished: 0, surge: 1 });
        match plan {
            Plan::Settled | Plan::Held { .. } | Plan::Full { .. } => {}
            Plan::Create(_) if self.superseded => {}
            Plan::Create(number) => {
                // Most idle: a fleet in which all are always busy has no capacity to keep.
                for _ in 0..number {
                    let fate = if self.fate == Fate::Works && dice.roll(4) > 0 { Fate::Idles } else { self.fate };
                    self.members.push((Phase::Pending, fate));
                }
            }
            Plan::ScaleDown(ScaleDown { dead, unstarted, ask, .. }) => {
                for index in dead.into_iter().chain(unstarted) {
                    self.members[index].0 = Phase::Stopping;
                }
                let idle = self.members.iter_mut().filter(|(phase, _)| *phase == IDLE);
                for member in idle.take(ask as usize) {
                    member.0 = Phase::Stopping;
                }
            }
        }
        let (alive, online) = (self.alive(), self.online());
        let busy = self.count(|phase| phase == Phase::Busy);
        let (leaving, present) = (self.leaving(), u32::try_from(self.members.len()).unwrap());
        self.seen =
            Some((self.wanted, Set { wanted: self.wanted, alive, online, busy, leaving, present, observed: true, asked: 0 }));
    }

    fn evolve(&mut self, dice: &mut Dice) {
        for (phase, fate) in &mut self.members {
            let lucky = dice.roll(3) == 0;
            *phase = match (*phase, *fate) {
                (Phase::Pending, Fate::Broken) => Phase::Pending,
                (Phase::Pending, _) if lucky => Phase::Starting,
                (Phase::Starting, _) if lucky => IDLE,
                (IDLE, Fate::Works | Fate::Stuck) if lucky => Phase::Busy,
                (Phase::Busy, Fate::Works) if dice.roll(8) == 0 => Phase::Dead,
                // The restart decision.
                (Phase::Dead, _) if lucky => Phase::Stopping,
                (phase, _) => phase,
            };
        }
        self.members.retain(|(phase, fate)| *phase != Phase::Stopping || *fate == Fate::Hangs || dice.roll(2) == 0);
    }
}

struct Deployment {
    desired: u32,
    surge: u32,
    /// Oldest first; the last one is the newest.
    sets: Vec<Runners>,
    dice: Dice,
    /// Most pods that may be there: those that were when something was last changed, or the surge.
    most: u32,
    /// How much of what is wanted has been online and was to stay, and was not used up by jobs.
    reached: u32,
}

impl Deployment {
    fn new(desired: u32, surge: u32, fate: Fate, seed: u64) -> Self {
        Self { desired, surge, sets: vec![Runners::new(desired, fate)], dice: Dice(seed), most: 0, reached: 0 }
    }

    fn alive(&self) -> u32 {
        self.sets.iter().map(Runners::alive).sum()
    }

    /// What is there or has been ordered.
    fn ordered(&self) -> u32 {
        self.sets.iter().map(|set| set.alive().max(set.wanted) + set.leaving()).sum()
    }

    /// Pods that are there, but for those that runners of the newest template leave behind when a job is done, and those that hang.
    fn pods(&self) -> u32 {
        let old = self.sets.iter().rev().skip(1);
        self.alive() + old.map(Runners::leaving).sum::<u32>()
    }

    fn capacity(&self) -> u32 {
        self.sets.iter().map(Runners::online).sum()
    }

    /// What is online and stays so when every set has followed its number.
    fn kept(&self) -> u32 {
        let busy = |set: &Runners| set.count(|phase| phase == Phase::Busy);
        self.sets.iter().map(|set| set.online().min(set.wanted).max(busy(set))).sum()
    }

    /// What jobs used up since the sets were last looked at: a plan counts on it.
    fn used_unseen(&self) -> u32 {
        let seen = |set: &Runners| set.seen.map_or(0, |(_, seen)| seen.online);
        self.sets.iter().map(|set| seen(set).saturating_sub(set.online())).sum()
    }

    fn scale(&mut self, desired: u32) {
        self.reached = self.reached.min(desired);
        self.desired = desired;
        self.most = self.ordered();
    }

    /// As the deployment's reconcile makes the set of a new template.
    fn roll_out(&mut self, fate: Fate) {
        self.most = self.ordered();
        self.sets.iter_mut().for_each(|set| set.superseded = true);
        self.sets.push(Runners::new(0, fate));
    }

    fn reconcile(&mut self) -> Result<Rollout, TestCaseError> {
        let described: Vec<Set> = self.sets.iter().map(Runners::described).collect();
        let (newest, old) = described.split_last().unwrap();
        let rollout = plan(self.desired, self.surge, *newest, old);
        prop_assert!(rollout.newest <= self.desired);
        prop_assert_eq!(rollout.old.len(), old.len());
        for (share, set) in rollout.old.iter().zip(&self.sets) {
            prop_assert!(*share <= set.wanted, "an old set grows");
        }
        for index in &rollout.delete {
            prop_assert!(
                self.sets[*index].members.is_empty() && self.sets[*index].wanted == 0,
                "a set is deleted with its runners"
            );
            self.sets[*index].deleted = true;
        }
        let shares = rollout.old.iter().chain(std::iter::once(&rollout.newest));
        for (set, share) in self.sets.iter_mut().zip(shares) {
            set.wanted = *share;
        }
        self.reached = self.reached.min(self.kept().max(self.reached.saturating_sub(self.used_unseen())));
        self.sets.retain(|set| !set.deleted);
        Ok(rollout)
    }

    /// Each part of the world moves or does not; order and delays are chance.
    fn tick(&mut self) -> Result<Rollout, TestCaseError> {
        for index in 0..self.sets.len() {
            let before = self.kept();
            self.sets[index].evolve(&mut self.dice);
            if self.kept() < before {
                // Jobs took it: what is left is what must be kept.
                self.reached = self.reached.min(self.kept());
            }
            if self.dice.roll(2) == 0 {
                let before = self.capacity();
                self.sets[index].reconcile(&mut self.dice);
                let after = self.capacity();
                // Capacity is only given up beyond what is wanted.
                let floor = before.min(self.reached.saturating_sub(self.surge));
                prop_assert!(after >= floor, "{before} to {after} online of {}", self.desired);
            }
        }
        let rollout = if self.dice.roll(2) == 0 { Some(self.reconcile()?) } else { None };
        let limit = (self.desired + self.surge).max(self.most);
        prop_assert!(self.pods() <= limit, "{} pods, {limit} allowed: {:?}", self.pods(), self.sets);
        if self.kept() >= self.desired {
            self.reached = self.desired;
        }
        Ok(rollout.unwrap_or_default())
    }

    fn ticks(&mut self, count: u32) -> Result<(), TestCaseError> {
        for _ in 0..count {
            self.tick()?;
        }
        Ok(())
    }

    /// Until only the newest set is left, or jobs that never end hold the rest up and nothing moves any more.
    fn converge(&mut self) -> Result<(), TestCaseError> {
        let mut quiet = 0;
        let mut before = Vec::new();
        for _ in 0..4000 {
            self.tick()?;
            let newest = self.sets.last().unwrap();
            if self.sets.len() == 1 && newest.online() == self.desired && newest.alive() == self.desired {
                return Ok(());
            }
            let now: Vec<_> = self.sets.iter().map(|set| (set.wanted, set.online(), set.members.len())).collect();
            quiet = if now == before { quiet + 1 } else { 0 };
            before = now;
            if quiet > 100 && self.stuck() > 0 && newest.online() == newest.alive() {
                return Ok(());
            }
        }
        Err(TestCaseError::fail(format!("no end: {:?}", self.sets)))
    }

    /// Runners whose jobs never end.
    fn stuck(&self) -> u32 {
        let members = self.sets.iter().flat_map(|set| &set.members);
        u32::try_from(members.filter(|member| **member == (Phase::Busy, Fate::Stuck)).count()).unwrap()
    }
}

#[test]
fn rollout_keeps_busy_runners_when_a_hundred_are_idle_and_twenty_busy() {
    let mut world = Deployment::new(120, 12, Fate::Idles, 1);
    world.converge().unwrap();
    for member in world.sets[0].members.iter_mut().take(20) {
        *member = (Phase::Busy, Fate::Stuck);
    }
    world.roll_out(Fate::Idles);
    world.converge().unwrap();
    let [old, newest] = &world.sets[..] else { panic!("{:?}", world.sets) };
    assert_eq!((old.alive(), newest.online()), (20, 112));
    // Their jobs end.
    world.sets[0].members.iter_mut().for_each(|member| member.1 = Fate::Works);
    world.converge().unwrap();
    assert_eq!((world.sets.len(), world.alive()), (1, 120));
}

#[test]
fn rollout_goes_on_when_pods_hang() {
    let mut world = Deployment::new(20, 2, Fate::Idles, 3);
    world.converge().unwrap();
    // More than the surge.
    for member in world.sets[0].members.iter_mut().take(5) {
        member.1 = Fate::Hangs;
    }
    world.roll_out(Fate::Idles);
    world.ticks(600).unwrap();
    let [old, newest] = &world.sets[..] else { panic!("{:?}", world.sets) };
    assert_eq!((old.alive(), old.members.len(), newest.online()), (0, 5, 20));
}

#[test]
fn a_broken_template_costs_no_capacity_and_can_be_corrected() {
    let mut world = Deployment::new(20, 2, Fate::Idles, 2);
    world.converge().unwrap();
    world.roll_out(Fate::Broken);
    world.ticks(300).unwrap();
    assert_eq!((world.sets[0].online(), world.sets[1].alive()), (20, 2));
    world.roll_out(Fate::Idles);
    world.converge().unwrap();
    assert_eq!((world.sets.len(), world.alive()), (1, 20));
}

fn any_fate() -> impl Strategy<Value = Fate> {
    proptest::sample::select(vec![Fate::Idles, Fate::Works, Fate::Works, Fate::Stuck])
}

/// Two runners of the newest set were at work when the plan counted on them, and gone when the old set followed it.
#[test]
fn rollout_gives_up_what_it_planned_when_jobs_end_meanwhile() {
    let mut world = Deployment::new(20, 1, Fate::Works, 17_596_135_351_853_036_867);
    world.ticks(9).unwrap();
    world.roll_out(Fate::Works);
    world.ticks(23).unwrap();
    world.scale(5);
    world.sets.iter_mut().for_each(|set| set.fate = Fate::Idles);
    world.converge().unwrap();
    assert_eq!((world.sets.len(), world.alive()), (1, 5));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    /// A rollout, and perhaps a second one or a change of size in its middle: bounded in size and capacity at every step, and it ends.
    #[test]
    fn rollout_reaches_its_end_when_steps_are_repeated(
        (desired, surge, seed) in (0..25_u32, 1..6_u32, any::<u64>()),
        first in any_fate(),
        second in prop_oneof![4 => any_fate(), 1 => Just(Fate::Broken)],
        third in proptest::option::of(prop_oneof![Just(Fate::Idles), Just(Fate::Works)]),
        resize in proptest::option::of(0..25_u32),
        (before, between, after) in (0..80_u32, 0..40_u32, 0..40_u32),
    ) {
        let mut world = Deployment::new(desired, surge, first, seed);
        world.ticks(before)?;
        world.roll_out(second);
        world.ticks(between)?;
        if let Some(desired) = resize {
            world.scale(desired);
            world.ticks(after)?;
        }
        if third.is_some() || second == Fate::Broken {
            world.roll_out(third.unwrap_or(Fate::Idles));
        }
        // Work runs out, or the fleet would never rest.
        for set in &mut world.sets {
            if set.fate == Fate::Works {
                set.fate = Fate::Idles;
            }
        }
        world.converge()?;
        // All that is left of the old is at work, and the new has all the room there is.
        let (newest, old) = world.sets.split_last().unwrap();
        let left: u32 = old.iter().map(Runners::alive).sum();
        prop_assert!(old.iter().all(|set| set.alive() == set.count(|phase| phase == Phase::Busy)), "{:?}", world.sets);
        prop_assert!(newest.wanted >= world.desired.min((world.desired + world.surge).saturating_sub(left)), "{:?}", world.sets);
        // And once every job ends, all is new.
        for member in world.sets.iter_mut().flat_map(|set| &mut set.members) {
            if member.0 == Phase::Busy {
                member.1 = Fate::Works;
            }
        }
        for set in &mut world.sets {
            set.fate = Fate::Idles;
        }
        world.converge()?;
        prop_assert_eq!((world.sets.len(), world.alive()), (1, world.desired));
    }

    /// Whatever the sets look like: no old set grows, nothing exceeds what is wanted, and only the empty are deleted.
    #[test]
    fn step_keeps_online_runners_when_sets_are_arbitrary(
        desired in 0..50_u32,
        surge in 1..10_u32,
        sets in proptest::collection::vec((0..40_u32, 0..40_u32, (0..40_u32, 0..20_u32), (0..5_u32, 0..5_u32), any::<bool>()), 1..6),
    ) {
        let sets: Vec<Set> = sets
            .into_iter()
            .map(|(wanted, alive, (online, busy), (leaving, hanging), observed)| {
                let online = online.min(alive);
                Set { wanted, alive, online, busy: busy.min(online), leaving, present: alive + leaving + hanging, observed, asked: 0 }
            })
            .collect();
        let (newest, old) = sets.split_last().unwrap();
        let rollout = plan(desired, surge, *newest, old);
        prop_assert!(rollout.newest <= desired && rollout.newest >= newest.wanted.min(desired));
        // It grows only into room that no pod takes.
        let taken: u32 = old.iter().map(|set| set.alive + set.leaving).sum::<u32>() + newest.leaving;
        let grows = !old.is_empty() && rollout.newest > newest.wanted;
        prop_assert!(!grows || rollout.newest + taken <= desired + surge, "{} beside {taken} pods", rollout.newest);
        prop_assert!(rollout.old.iter().zip(old).all(|(share, set)| *share <= set.wanted.min(set.alive)));
        prop_assert!(rollout.old.iter().sum::<u32>() <= desired.saturating_sub(newest.online.min(rollout.newest)));
        prop_assert_eq!(rollout.complete, old.is_empty());
        for index in rollout.delete {
            prop_assert!(old[index].present == 0 && old[index].wanted == 0 && old[index].observed && rollout.old[index] == 0);
        }
        // What is online stays online, as far as it is wanted.
        let online: u32 = old.iter().zip(&rollout.old).map(|(set, share)| set.online.min(*share).max(set.busy)).sum::<u32>() + newest.online;
        let before: u32 = old.iter().map(|set| set.online.min(set.wanted).max(set.busy)).sum::<u32>() + newest.online;
        prop_assert!(online >= before.min(desired), "{before} to {online} online of {desired}");
    }
}

#[test]
fn first_set_of_a_template_leaves_room_for_what_older_ones_may_make() {
    let stale = |observed| Set { wanted: 7, alive: 2, observed, ..settled(2) };
    // Raised, and not followed yet: its runners are on their way.
    assert_eq!(first(7, 2, &[stale(false)]), 2);
    assert_eq!(first(7, 2, &[stale(true)]), 7);
    // The watch shows the number before it was raised.
    assert_eq!(first(7, 2, &[Set { asked: 7, ..settled(2) }]), 2);
    assert_eq!(first(7, 2, &[]), 7);
    assert_eq!(plan(7, 2, settled(1), &[Set { asked: 7, ..settled(2) }]).newest, 2);
    // What was asked for before it was lowered is over once the watch shows that.
    assert_eq!(plan(7, 2, settled(1), &[Set { asked: 0, ..settled(2) }]).newest, 7);
}

#[test]
fn number_that_was_sent_counts_until_the_watch_shows_it_or_a_minute_has_passed() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let mut asked = Asked::default();
    assert_eq!(asked.most(&"set", 1, at(0)), 0);
    asked.note("set", 1, 7, at(0));
    // Lowered at once: it may have followed the number before meanwhile.
    asked.note("set", 1, 2, at(1));
    assert_eq!(asked.most(&"set", 1, at(2)), 7);
    assert_eq!(asked.most(&"set", 2, at(2)), 0);
    assert_eq!(asked.most(&"other", 1, at(2)), 0);
    assert_eq!(asked.most(&"set", 1, at(61)), 0);
    asked.note("set", 2, 3, at(61));
    assert_eq!(asked.most(&"set", 2, at(62)), 3);
}
