//! One run of a script: everything happens, the checks look, faults end, the fleet comes to rest, and is deleted.

use crate::agenda::Event;
use crate::clock::{At, Clock, MINUTE, SECOND};
use crate::draw::Draw;
use crate::invariant::{Invariant, Violation};
use crate::object::RunnerId;
use crate::operator::{Halt, Operator};
use crate::outside::{GRACE, Node, Outside};
use crate::rules::Rules;
use crate::script::{Operation, Refusal, Script};

/// How long the fleet may take to come to rest after the last fault, beside its jobs. GitHub keeps a lost runner busy for ten minutes, a runner
/// may be offline for ten, and places are filled again after five at most.
const REST: At = 40 * MINUTE;

/// For so long an unchanged fleet must not be changed.
const STILL: At = 3 * MINUTE;

/// How long a deleted fleet may take until nothing of it is left.
const GONE: At = 30 * MINUTE;

/// More events than any run has.
const EVENTS: u64 = 3_000_000;

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What did not hold.
    pub violation: Option<Violation>,
    /// Jobs that there were.
    pub jobs: usize,
    /// Jobs that were killed with their registration, before anybody could know of them.
    pub unlucky: u32,
    /// Runner objects that the operator made.
    pub made: u32,
    /// The most points that a minute had.
    pub points: u32,
    /// Virtual milliseconds that the run lasted.
    pub lasted: At,
    /// What happened, a line for each note; empty unless the run was traced.
    pub trace: Vec<String>,
}

struct World<'a> {
    script: &'a Script,
    rules: Rules,
    outside: Outside,
    operator: Option<Operator>,
    events: u64,
    deaths: u64,
}

/// Runs a script until its fleet is deleted, or an invariant does not hold; `traced` notes what happens.
#[must_use]
pub fn run(script: &Script, rules: Rules, traced: bool) -> Outcome {
    let outside = Outside::new(script.setting, Draw::new(script.seed), traced);
    let mut world = World { script, rules, outside, operator: None, events: 0, deaths: 0 };
    world.play();
    let outside = &mut world.outside;
    Outcome {
        violation: outside.checks.violation.clone(),
        jobs: outside.jobs.len(),
        unlucky: outside.checks.unlucky,
        made: outside.checks.made,
        points: outside.github.most_points,
        lasted: outside.clock.at,
        trace: outside.take_trace(),
    }
}

impl World<'_> {
    fn play(&mut self) {
        for (index, (at, _)) in self.script.steps.iter().enumerate() {
            self.outside.plan(*at, Event::Step(index));
        }
        self.outside.plan(0, Event::Boot);
        let end = self.script.end();
        self.until(end);
        self.outside.faults.crash = None;
        self.come_to_rest();
        self.count_runners();
        self.stay_still();
        self.go();
    }

    fn failed(&self) -> bool {
        self.outside.checks.violation.is_some()
    }

    /// Lets everything happen up to a moment.
    fn until(&mut self, end: At) {
        while !self.failed() {
            let Some((at, event)) = self.outside.agenda.take() else { break };
            if at > end {
                self.outside.agenda.plan(at, event);
                break;
            }
            self.events += 1;
            if self.events > EVENTS {
                self.outside.violated(Invariant::HotLoop, || format!("{EVENTS} events"));
            }
            self.outside.clock = Clock::at(at);
            self.happen(event);
        }
        if !self.failed() {
            self.outside.clock = Clock::at(end.max(self.outside.clock.at));
        }
    }

    /// Waits for rest: what is not over by then never will be.
    fn come_to_rest(&mut self) {
        let begin = self.outside.clock.at;
        let work: At = self.outside.jobs.iter().filter(|job| job.over.is_none()).map(|job| job.lasts + 20 * SECOND).sum();
        let deadline = begin + REST + work;
        let mut since = None;
        while !self.failed() {
            let now = self.outside.clock.at;
            match self.unrest() {
                None if since.is_some_and(|since| now >= since + MINUTE) => return,
                None => since = since.or(Some(now)),
                Some(what) if now >= deadline => {
                    self.outside.violated(Invariant::Convergence, || what);
                }
                Some(_) => since = None,
            }
            self.until(now + 20 * SECOND);
        }
    }

    /// One runner for each job, beside the minimum. Webhooks that are a minute late cost some.
    fn count_runners(&mut self) {
        let (made, jobs) = (u64::from(self.outside.checks.made), self.outside.jobs.len() as u64);
        let min = self.outside.setting.autoscaler.map_or(0, |scaler| u64::from(scaler.min));
        if self.script.is_calm() && made > jobs + jobs / 3 + min + 2 && !self.failed() {
            self.outside.violated(Invariant::Surplus, || format!("{made} runners made for {jobs} jobs and a minimum of {min}"));
        }
    }

    /// An unchanged world causes no writes.
    fn stay_still(&mut self) {
        let (begin, writes) = (self.outside.clock.at, self.outside.checks.writes);
        self.until(begin + STILL);
        let written = self.outside.checks.writes - writes;
        if written > 0 && !self.failed() {
            self.outside.violated(Invariant::Convergence, || format!("{written} writes in an unchanged world"));
        }
    }

    /// The fleet is deleted.
    fn go(&mut self) {
        if self.failed() {
            return;
        }
        self.outside.note(|| "the deployment is deleted".to_owned());
        self.outside.put_target(None);
        let begin = self.outside.clock.at;
        self.outside.plan(begin + 2 * SECOND, Event::Collect);
        while !self.failed() {
            let now = self.outside.clock.at;
            match self.left() {
                None => return,
                Some(what) if now >= begin + GONE => self.outside.violated(Invariant::Leak, || what),
                Some(_) => {}
            }
            self.until(now + 20 * SECOND);
        }
    }

    /// What is not as it should be, when nothing disturbs any more.
    fn unrest(&mut self) -> Option<String> {
        let now = self.outside.clock.at;
        let registered = self.outside.github.registered(now);
        let outside = &self.outside;
        let target = outside.targets.truth(())?;
        let decides = outside.scalers.truth(()).is_some_and(|scaler| scaler.valid);
        let wanted = outside.setting.autoscaler.filter(|_| decides).map_or(target.replicas, |scaler| scaler.min);
        if target.replicas != wanted {
            return Some(format!("{} runners are asked for, {wanted} are needed", target.replicas));
        }
        if let Some(job) = outside.jobs.iter().position(|job| job.over.is_none())
            && (wanted > 0 || decides)
        {
            return Some(format!("job {job} is not over: {:?}", outside.jobs.get(job)));
        }
        if outside.sets.all().count() != 1 {
            return Some(format!("there are sets {:?}", outside.sets.all().map(|(id, _)| id).collect::<Vec<_>>()));
        }
        let runners: Vec<RunnerId> = outside.runners.all().map(|(id, _)| id).collect();
        if u32::try_from(runners.len()) != Ok(wanted) || outside.alive() != wanted {
            return Some(format!("there are runners {runners:?}, {wanted} are wanted"));
        }
        let kept = |id: &RunnerId| runners.contains(id) || outside.checks.left_behind.contains(id);
        if let Some(stranger) = registered.iter().find(|id| !kept(id)) {
            return Some(format!("r{stranger} is registered, and is no runner"));
        }
        let idle = |id: RunnerId| outside.life_of(id).is_some_and(|(_, life)| life.runs() && life.registered.is_some());
        if let Some(lame) = runners.iter().find(|id| !idle(**id)) {
            return Some(format!("r{lame} does not run, or is not registered"));
        }
        let pods: Vec<RunnerId> = outside.pods.all().map(|(id, _)| id).collect();
        (pods != runners).then(|| format!("there are pods {pods:?} of runners {runners:?}"))
    }

    /// What is left of a fleet that was deleted.
    fn left(&mut self) -> Option<String> {
        let now = self.outside.clock.at;
        let registered = self.outside.github.registered(now);
        let outside = &self.outside;
        if let Some((id, runner)) = outside.runners.all().next() {
            return Some(format!("r{id} is left: {runner:?}"));
        }
        if let Some((id, _)) = outside.pods.all().next() {
            return Some(format!("the pod of r{id} is left"));
        }
        if let Some((id, _)) = outside.sets.all().next() {
            return Some(format!("set {id} is left"));
        }
        let stranger = registered.iter().find(|id| !outside.checks.left_behind.contains(id));
        stranger.map(|id| format!("the registration of r{id} is left at GitHub"))
    }

    fn happen(&mut self, event: Event) {
        let outside = &mut self.outside;
        match event {
            Event::Step(index) => {
                if let Some((_, operation)) = self.script.steps.get(index).copied() {
                    self.step(operation);
                }
            }
            Event::Boot => self.boot(),
            Event::Shown(kind) => {
                if let Some(operator) = &mut self.operator {
                    operator.shown(outside, kind);
                }
            }
            Event::Reconcile(_) | Event::List | Event::Listed | Event::ListJobs | Event::OtherRemoval(_) => self.operate(event),
            Event::Collect => self.collect(),
            Event::Assign => outside.assign(),
            Event::Life(uid, stage) => outside.live(uid, stage),
            Event::JobEnd(job, uid) => outside.job_ends(job, uid),
            Event::Webhook(job, state) => outside.receive(job, state),
            Event::NodeUnknown(node) => outside.node_unknown(node),
            Event::NodeGone(node) => {
                if let Some(node) = outside.nodes.get_mut(node as usize) {
                    node.gone = true;
                    let due = outside.clock.at + MINUTE;
                    outside.plan(due, Event::Collect);
                }
            }
            Event::NodeBack(node) => outside.node_back(node),
            Event::Valid => {
                if let Some(scaler) = outside.scalers.truth(()).copied() {
                    outside.put_scaler(crate::object::Scaler { valid: true, ..scaler });
                }
            }
        }
    }

    fn operate(&mut self, event: Event) {
        let Some(operator) = &mut self.operator else { return };
        let outside = &mut self.outside;
        let done = match event {
            Event::Reconcile(key) => operator.reconcile(outside, key),
            Event::List => operator.list(outside),
            Event::Listed => {
                operator.listed(outside);
                Ok(())
            }
            Event::ListJobs => operator.list_jobs(outside),
            Event::OtherRemoval(number) => operator.remove_other(outside, number),
            _ => Ok(()),
        };
        if done == Err(Halt::Died) {
            outside.note(|| "the operator dies".to_owned());
            self.operator = None;
            self.deaths += 1;
            let due = outside.clock.at + outside.draw.between("boot", self.deaths, 0, (SECOND, 20 * SECOND));
            outside.plan(due, Event::Boot);
        }
    }

    fn boot(&mut self) {
        if self.operator.is_none() {
            self.outside.checks.booted = self.outside.clock.at;
            self.operator = Some(Operator::start(self.rules, &mut self.outside));
            let others = self.outside.others;
            if others > 0 {
                let at = self.outside.clock.at;
                self.outside.plan(at + SECOND, Event::OtherRemoval(others));
            }
        }
    }

    /// The garbage collector deletes what lost its owner.
    fn collect(&mut self) {
        let outside = &mut self.outside;
        if outside.targets.truth(()).is_none() {
            let sets: Vec<u32> = outside.sets.all().map(|(id, _)| id).collect();
            sets.into_iter().for_each(|id| outside.put_set(id, None));
        }
        outside.collect_pods();
        let orphans = outside.runners.all().filter(|(_, runner)| outside.sets.truth(runner.set).is_none());
        let orphans: Vec<RunnerId> = orphans.map(|(id, _)| id).collect();
        orphans.into_iter().for_each(|id| outside.mark_deleted(id));
        let pods = outside.pods.all().filter(|(id, pod)| pod.deleting.is_none() && outside.runners.truth(*id).is_none());
        let pods: Vec<RunnerId> = pods.map(|(id, _)| id).collect();
        pods.into_iter().for_each(|id| outside.take_pod(id, GRACE));
    }

    fn step(&mut self, operation: Operation) {
        let outside = &mut self.outside;
        let at = outside.clock.at;
        outside.note(|| format!("-- {operation}"));
        let until = operation.until(at);
        match operation {
            Operation::Jobs(count, lasts) => outside.queue_jobs(count, lasts),
            Operation::Scale(replicas) => {
                if let Some(target) = outside.targets.truth(()).copied() {
                    outside.checks.wanted = outside.checks.wanted.max(replicas);
                    outside.put_target(Some(crate::object::Target { replicas, ..target }));
                }
            }
            Operation::Template => {
                if let Some(target) = outside.targets.truth(()).copied() {
                    outside.put_target(Some(crate::object::Target { revision: target.revision + 1, ..target }));
                }
            }
            Operation::DeleteRunner => {
                if let Some(id) = self.pick(|_, _| true) {
                    self.outside.mark_deleted(id);
                }
            }
            Operation::DeletePod => {
                if let Some(id) = self.pick(|outside, id| outside.pods.truth(id).is_some()) {
                    self.outside.take_pod(id, 30 * SECOND);
                }
            }
            Operation::Invalid(_) => {
                if let Some(scaler) = outside.scalers.truth(()).copied() {
                    outside.put_scaler(crate::object::Scaler { valid: false, ..scaler });
                    if until > at {
                        outside.plan(until, Event::Valid);
                    }
                }
            }
            Operation::Crash(calls) => outside.faults.crash = Some(calls),
            Operation::Refuse(refusal, _) => {
                outside.faults.refusal = Some((refusal, until));
                if refusal == Refusal::Unauthorized {
                    outside.faults.revoked = Some((at, until));
                }
            }
            Operation::Torn(_) => outside.faults.torn = until,
            Operation::Stall(kind, _) => outside.stall(kind, until),
            Operation::ApiFails(_) => outside.faults.api = until,
            Operation::FlagLate(late, _) => outside.faults.flag = (late, until),
            Operation::FlagDrops(_) => outside.faults.drops.push((at, until)),
            Operation::WebhooksLost(_) => outside.faults.webhooks = until,
            Operation::SlowStarts(_) => outside.faults.slow = until,
            Operation::BadStarts(_) => outside.faults.bad = until,
            Operation::Evict => {
                let id = self.pick(|outside, id| outside.life_of(id).is_some_and(|(_, life)| life.runs()));
                let uid = id.and_then(|id| self.outside.life_of(id).map(|(uid, _)| uid));
                if let Some(uid) = uid {
                    self.outside.evict(uid);
                }
            }
            Operation::NodeLost | Operation::NodeSilent(_) => self.disturb_node(operation, until),
            Operation::OtherRemovals(count) => {
                outside.others += count;
                let others = outside.others;
                outside.plan(at, Event::OtherRemoval(others));
            }
        }
    }

    fn pick(&self, fits: impl Fn(&Outside, RunnerId) -> bool) -> Option<RunnerId> {
        let outside = &self.outside;
        let fitting: Vec<RunnerId> = outside
            .runners
            .all()
            .filter(|(id, runner)| runner.deleting.is_none() && fits(outside, *id))
            .map(|(id, _)| id)
            .collect();
        let index = usize::try_from(outside.draw.bits("victim", outside.clock.at, 0)).unwrap_or_default();
        fitting.get(index % fitting.len().max(1)).copied()
    }

    /// A node with runners on it, where there is one. A lost one is replaced.
    fn disturb_node(&mut self, operation: Operation, until: At) {
        let outside = &mut self.outside;
        let at = outside.clock.at;
        let usable =
            |node: u32| outside.nodes.get(node as usize).is_some_and(|node| node.lost.is_none() && node.silent.is_none());
        let used = outside.pods.all().filter_map(|(_, pod)| pod.node).filter(|node| usable(*node));
        let used: Vec<u32> = used.collect();
        let index = usize::try_from(outside.draw.bits("node-victim", at, 0)).unwrap_or_default();
        let Some(node) = used.get(index % used.len().max(1)).copied() else { return };
        if operation == Operation::NodeLost {
            outside.note(|| format!("node {node} is lost"));
            outside.lose_node(node);
            outside.nodes.push(Node::default());
        } else if let Some(one) = outside.nodes.get_mut(node as usize) {
            one.silent = Some(at);
            outside.note(|| format!("node {node} is silent"));
            outside.plan(at + 40 * SECOND, Event::NodeUnknown(node));
            outside.plan(until, Event::NodeBack(node));
        }
    }
}
