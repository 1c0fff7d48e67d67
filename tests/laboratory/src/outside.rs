//! Everything that is not the operator: API server, kubelets, agents, GitHub, and those who use them.

mod api;
mod github;
mod job;
mod life;

use std::collections::BTreeMap;

use pacer_core::facts::Worker;
use pacer_core::ledger::State;

use crate::agenda::{Agenda, Event};
use crate::clock::{At, Clock, SECOND};
use crate::draw::Draw;
use crate::invariant::{Invariant, Violation};
use crate::object::{Jobs, Pod, Runner, RunnerId, Scaler, Set, Target, runner_of};
use crate::script::{Kind, Refusal, Setting};
use crate::stream::Stream;

pub use api::{Broken, GRACE};
pub use github::{GitHub, Listed, Pages, Removal, Unanswered};
pub use job::Job;
pub use life::Life;

/// Nodes that there are.
const NODES: u32 = 3;

/// What goes wrong, and until when.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// How GitHub refuses requests, and until when.
    pub refusal: Option<(Refusal, At)>,
    /// Since when GitHub last refused the credentials, and until when.
    pub revoked: Option<(At, At)>,
    /// Until when listings of runners are torn.
    pub torn: At,
    /// The registration that the last torn listing lacked.
    pub missed: Option<u64>,
    /// Until when changes at the API server fail, or their answers get lost.
    pub api: At,
    /// The flag is late by so much, for jobs that begin before the second time.
    pub flag: (At, At),
    /// When the flag of jobs that run is false.
    pub drops: Vec<(At, At)>,
    /// Until when webhooks are lost.
    pub webhooks: At,
    /// Until when pods start slowly.
    pub slow: At,
    /// Agents do not register.
    pub bad: At,
    /// Calls until the process dies.
    pub crash: Option<u32>,
}

/// What is wrong with a node; by default nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Node {
    /// Its machine is gone since then.
    pub lost: Option<At>,
    /// Its object is gone as well.
    pub gone: bool,
    /// Its kubelet has no contact since then.
    pub silent: Option<At>,
}

/// What the checks need to remember.
#[derive(Clone, Debug, Default)]
pub struct Checks {
    /// The first violation that was found.
    pub violation: Option<Violation>,
    /// The largest number that was ever wanted.
    pub wanted: u32,
    /// How many changes the operator made.
    pub writes: u64,
    /// When the operator changed anything last.
    pub last_write: At,
    /// When the process started last.
    pub booted: At,
    /// Jobs that were killed by what the operator did, although it could not have known.
    pub unlucky: u32,
    /// Registrations that were left to GitHub, which refused the credentials.
    pub left_behind: Vec<RunnerId>,
    /// Runner objects that the operator made.
    pub made: u32,
    /// When a container last ended that had not registered, or was killed.
    pub last_failure: Option<At>,
    /// Since when a set has a runner that is known to have registered.
    pub registering: BTreeMap<u32, At>,
    /// Number of the last name that [`Outside::fresh_name`] gave.
    pub named: u32,
}

/// Everything that is not the operator.
pub struct Outside {
    /// The present moment of the run.
    pub clock: Clock,
    /// Draws from the script's seed what the script does not say.
    pub draw: Draw,
    /// What does not change in the run.
    pub setting: Setting,
    /// What is to happen.
    pub agenda: Agenda,
    /// RunnerDeployments; there is one.
    pub targets: Stream<(), Target>,
    /// RunnerReplicaSets by their number.
    pub sets: Stream<u32, Set>,
    /// Runners by their number.
    pub runners: Stream<RunnerId, Runner>,
    /// Pods by the name that they share with their Runners.
    pub pods: Stream<RunnerId, Pod>,
    /// HorizontalRunnerAutoscalers; there is one at most.
    pub scalers: Stream<(), Scaler>,
    /// The autoscaler's JobLedgers, as one.
    pub ledgers: Stream<(), Jobs>,
    /// Registrations at GitHub, and the requests that count against its limits.
    pub github: GitHub,
    /// What runs in pods, by the pod's UID.
    pub lives: BTreeMap<u32, Life>,
    /// All jobs of the run; the index of a job is its number.
    pub jobs: Vec<Job>,
    /// The nodes of the cluster; the index of a node is its number.
    pub nodes: Vec<Node>,
    /// What goes wrong, and until when.
    pub faults: Faults,
    /// What the checks have found, and what they need to remember.
    pub checks: Checks,
    /// Removals of other fleets that are left.
    pub others: u32,
    versions: u64,
    calls: u64,
    assigning: bool,
    trace: Option<Vec<String>>,
}

impl Outside {
    /// A cluster with a RunnerDeployment in it, and nothing else yet.
    #[must_use]
    pub fn new(setting: Setting, draw: Draw, traced: bool) -> Self {
        let mut outside = Self {
            clock: Clock::at(0),
            draw,
            setting,
            agenda: Agenda::default(),
            targets: Stream::default(),
            sets: Stream::default(),
            runners: Stream::default(),
            pods: Stream::default(),
            scalers: Stream::default(),
            ledgers: Stream::default(),
            github: GitHub::default(),
            lives: BTreeMap::new(),
            jobs: Vec::new(),
            nodes: vec![Node::default(); NODES as usize],
            faults: Faults::default(),
            checks: Checks::default(),
            others: 0,
            versions: 0,
            calls: 0,
            assigning: false,
            trace: traced.then(Vec::new),
        };
        let replicas = match setting.autoscaler {
            Some(scaler) => {
                let valid = Scaler { valid: true, desired: None, last_scale_out: None, version: 0 };
                outside.put_scaler(valid);
                scaler.min
            }
            None => setting.replicas,
        };
        outside.checks.wanted = setting.autoscaler.map_or(replicas, |scaler| scaler.max);
        outside.put_target(Some(Target { replicas, revision: 0, effective: None, version: 0 }));
        outside
    }

    /// Notes what happens, for somebody who reads a failure.
    pub fn note(&mut self, what: impl FnOnce() -> String) {
        let at = self.clock.at;
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>6}.{:03} {}", at / 1_000, at % 1_000, what()));
        }
    }

    /// Takes the notes of the run; empty where it is not traced.
    #[must_use]
    pub fn take_trace(&mut self) -> Vec<String> {
        self.trace.take().unwrap_or_default()
    }

    /// An invariant does not hold. The first one counts.
    pub fn violated(&mut self, invariant: Invariant, what: impl FnOnce() -> String) {
        if self.checks.violation.is_none() {
            let violation = Violation { invariant, at: self.clock.at, what: what() };
            self.note(|| format!("VIOLATION {violation}"));
            self.checks.violation = Some(violation);
        }
    }

    /// Plans an event for a moment, or for now where that has passed.
    pub fn plan(&mut self, at: At, event: Event) {
        self.agenda.plan(at.max(self.clock.at), event);
    }

    /// Draws a delay from now on, in milliseconds.
    fn after(&mut self, what: &str, whom: u64, range: (u64, u64)) -> At {
        self.clock.at + self.draw.between(what, whom, 0, range)
    }

    fn version(&mut self) -> u64 {
        self.versions += 1;
        self.versions
    }

    fn shown(&mut self, kind: Kind, version: u64) -> At {
        self.clock.at + self.draw.between("watch", version, kind as u64, (5, 400))
    }

    /// Writes the RunnerDeployment, or removes it where there is none; the operator's watch shows it later.
    pub fn put_target(&mut self, target: Option<Target>) {
        let version = self.version();
        let shown = self.shown(Kind::Target, version);
        let due = self.targets.write((), target.map(|target| Target { version, ..target }), shown);
        self.plan(due, Event::Shown(Kind::Target));
    }

    /// Writes a RunnerReplicaSet, or removes it where there is none; the operator's watch shows it later.
    pub fn put_set(&mut self, id: u32, set: Option<Set>) {
        let version = self.version();
        let shown = self.shown(Kind::Set, version);
        let due = self.sets.write(id, set.map(|set| Set { version, ..set }), shown);
        self.plan(due, Event::Shown(Kind::Set));
    }

    /// Writes a Runner, or removes it where there is none; the operator's watch shows it later.
    pub fn put_runner(&mut self, id: RunnerId, runner: Option<Runner>) {
        let version = self.version();
        let shown = self.shown(Kind::Runner, version);
        let due = self.runners.write(id, runner.map(|runner| Runner { version, ..runner }), shown);
        self.plan(due, Event::Shown(Kind::Runner));
    }

    /// Writes a pod, or removes it where there is none; the operator's watch shows it later.
    pub fn put_pod(&mut self, id: RunnerId, pod: Option<Pod>) {
        let version = self.version();
        let shown = self.shown(Kind::Pod, version);
        let due = self.pods.write(id, pod.map(|pod| Pod { version, ..pod }), shown);
        self.plan(due, Event::Shown(Kind::Pod));
    }

    /// Writes the HorizontalRunnerAutoscaler; the operator's watch shows it later.
    pub fn put_scaler(&mut self, scaler: Scaler) {
        let version = self.version();
        let shown = self.shown(Kind::Scaler, version);
        let due = self.scalers.write((), Some(Scaler { version, ..scaler }), shown);
        self.plan(due, Event::Shown(Kind::Scaler));
    }

    /// Writes the autoscaler's JobLedgers; the operator's watch shows it later.
    pub fn put_ledger(&mut self, jobs: Jobs) {
        let version = self.version();
        let shown = self.shown(Kind::Ledger, version);
        let due = self.ledgers.write((), Some(Jobs { version, ..jobs }), shown);
        self.plan(due, Event::Shown(Kind::Ledger));
    }

    /// Interrupts the operator's watch of a kind until then.
    pub fn stall(&mut self, kind: Kind, until: At) {
        match kind {
            Kind::Target => self.targets.stall(until),
            Kind::Set => self.sets.stall(until),
            Kind::Runner => self.runners.stall(until),
            Kind::Pod => self.pods.stall(until),
            Kind::Scaler => self.scalers.stall(until),
            Kind::Ledger => self.ledgers.stall(until),
        }
        self.plan(until, Event::Shown(kind));
    }

    /// Runners of which nobody has asked the deletion.
    #[must_use]
    pub fn alive(&self) -> u32 {
        u32::try_from(self.runners.all().filter(|(_, runner)| runner.deleting.is_none()).count()).unwrap_or(u32::MAX)
    }

    /// The life in the pod of a runner, with its UID.
    #[must_use]
    pub fn life_of(&self, runner: RunnerId) -> Option<(u32, &Life)> {
        self.lives.iter().rev().find(|(_, life)| life.runner == runner).map(|(uid, life)| (*uid, life))
    }

    /// The operator's process has been shown something: notes of which jobs it can know from now on.
    ///
    /// A pod says so by itself; an event is in the ledger, and the autoscaler passes it on.
    pub fn note_evidence(&mut self) {
        let at = self.clock.at;
        let ledger = self.ledgers.seen(()).map(|jobs| &jobs.ledger);
        for (uid, life) in &mut self.lives {
            let Some(job) = life.job else { continue };
            if life.shown.is_none() {
                let says_so =
                    |pod: Option<&Pod>| pod.is_some_and(|pod| pod.uid == *uid && pod.facts(false).worker == Worker::Running);
                // A late watch still shows the worker of the job before, which the kubelet has seen to be gone.
                if says_so(self.pods.seen(life.runner)) && says_so(self.pods.truth(life.runner)) {
                    life.shown = Some(at);
                }
            }
            if life.told.is_none() {
                let known = ledger.and_then(|ledger| ledger.get(u64::from(job)));
                let running = known.filter(|known| known.state == State::InProgress);
                if running.and_then(|known| known.runner.as_deref()).and_then(runner_of) == Some(life.runner) {
                    life.told = Some(at);
                }
            }
        }
    }

    /// Since when the operator could have known that a runner works, where it could. What an event says takes a moment to get to all of its
    /// parts.
    #[must_use]
    pub fn evidence(&self, life: &Life) -> Option<&'static str> {
        let node = life.node.and_then(|node| self.nodes.get(node as usize));
        if node.is_some_and(|node| node.lost.is_some()) {
            return None;
        }
        if life.shown.is_some() && node.is_none_or(|node| node.silent.is_none()) {
            return Some("its pod says so");
        }
        life.told.is_some_and(|told| told + 2 * SECOND <= self.clock.at).then_some("an event says so")
    }
}
