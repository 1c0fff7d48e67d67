//! Kubelets and agents: what becomes of a pod.

use crate::agenda::{Event, Stage};
use crate::clock::{At, MINUTE, SECOND};
use crate::object::{Pod, RunnerId};
use crate::outside::Outside;
use crate::script::Cancels;

/// A pod's container and the agent in it.
#[derive(Clone, Debug)]
pub struct Life {
    /// Number of the Runner that the pod belongs to.
    pub runner: RunnerId,
    /// Number of its node; none until it is scheduled.
    pub node: Option<u32>,
    /// When its container started.
    pub started: Option<At>,
    /// Its container has ended, or never will start.
    pub over: bool,
    /// Its agent takes no more jobs: it was told to end.
    pub stopping: bool,
    /// Its registration, as long as GitHub has it.
    pub registered: Option<u64>,
    /// It has registered once.
    pub enrolled: bool,
    /// Number of the job that its agent runs; none without one.
    pub job: Option<u32>,
    /// Since when the operator has been shown that by the pod.
    pub shown: Option<At>,
    /// Since when the operator's ledger has an event that says so.
    pub told: Option<At>,
}

impl Life {
    /// A pod that was just made.
    #[must_use]
    pub fn new(runner: RunnerId) -> Self {
        Self {
            runner,
            node: None,
            started: None,
            over: false,
            stopping: false,
            registered: None,
            enrolled: false,
            job: None,
            shown: None,
            told: None,
        }
    }

    /// Whether its container runs.
    #[must_use]
    pub fn runs(&self) -> bool {
        self.started.is_some() && !self.over
    }
}

/// How often the kubelet looks for a worker process.
const PERIOD: At = 5 * SECOND;

impl Outside {
    /// Whether the kubelet of a pod's node can report.
    fn reports(&self, node: Option<u32>) -> bool {
        let node = node.and_then(|node| self.nodes.get(node as usize));
        node.is_none_or(|node| node.silent.is_none() && node.lost.is_none())
    }

    /// The kubelet writes the status of a pod.
    fn report(&mut self, uid: u32, edit: impl FnOnce(&mut Pod)) {
        let Some(life) = self.lives.get(&uid) else { return };
        let (runner, node) = (life.runner, life.node);
        if !self.reports(node) {
            return;
        }
        let Some(mut pod) = self.pods.truth(runner).filter(|pod| pod.uid == uid).cloned() else { return };
        let before = pod.clone();
        edit(&mut pod);
        if pod != before {
            self.put_pod(runner, Some(pod));
        }
    }

    /// Something happens to a pod.
    pub fn live(&mut self, uid: u32, stage: Stage) {
        let Some(life) = self.lives.get(&uid).cloned() else { return };
        let pod = self.pods.truth(life.runner).filter(|pod| pod.uid == uid).cloned();
        let turn = u64::from(uid);
        match stage {
            Stage::Scheduled => self.schedule(uid, &life, pod),
            Stage::Started if !life.over && life.started.is_none() => self.start(uid, &life, pod.as_ref()),
            Stage::Registered if life.runs() && !life.stopping => self.register(uid, &life),
            Stage::Online if life.runs() && !life.stopping => {
                if let Some(id) = life.registered {
                    self.note(|| format!("r{} online", life.runner));
                    self.github.connect(id);
                    self.assign_soon(turn);
                }
            }
            Stage::Probe if life.runs() => {
                let due = self.after("report", turn ^ self.clock.at, (100, 1_500));
                self.plan(due, Event::Life(uid, Stage::Report));
            }
            Stage::Report if life.runs() && self.setting.probe => {
                let (working, at) = (life.job.is_some(), self.clock.at);
                self.report(uid, |pod| {
                    // One that never was ready proves nothing.
                    match pod.worker {
                        None if working => {}
                        Some((before, _)) if before == working => {}
                        _ => (pod.worker, pod.ready) = (Some((working, at)), Some(at).filter(|_| !working)),
                    }
                });
            }
            Stage::Polled if life.runs() && life.registered.is_none() => self.learn(uid, &life),
            Stage::Ended if life.runs() => self.end(uid, 0),
            Stage::GraceOver if life.runs() && self.reports(life.node) && pod.as_ref().is_some_and(|pod| self.is_due(pod)) => {
                self.note(|| format!("the grace period of r{} is over", life.runner));
                self.kill(uid);
                self.end_pod(uid);
            }
            Stage::Gone if !life.runs() && self.reports(life.node) && pod.is_some_and(|pod| pod.deleting.is_some()) => {
                self.remove_pod(uid);
            }
            _ => {}
        }
    }

    fn is_due(&self, pod: &Pod) -> bool {
        pod.deleting.is_some_and(|deleting| deleting <= self.clock.at)
    }

    fn schedule(&mut self, uid: u32, life: &Life, pod: Option<Pod>) {
        let Some(pod) = pod.filter(|pod| pod.deleting.is_none()) else { return self.remove_pod(uid) };
        let usable = |node: u32| self.nodes.get(node as usize).is_some_and(|node| node.lost.is_none() && node.silent.is_none());
        let first = u32::try_from(self.draw.between("node", u64::from(uid), 0, (0, 2))).unwrap_or_default();
        let count = u32::try_from(self.nodes.len()).unwrap_or(1);
        let Some(node) = (0..count).map(|more| (first + more) % count).find(|node| usable(*node)) else {
            let again = self.clock.at + 10 * SECOND;
            return self.plan(again, Event::Life(uid, Stage::Scheduled));
        };
        if let Some(life) = self.lives.get_mut(&uid) {
            life.node = Some(node);
        }
        self.put_pod(life.runner, Some(Pod { node: Some(node), ..pod }));
        let slow = if self.clock.at < self.faults.slow { (20 * SECOND, 120 * SECOND) } else { (500, 4_000) };
        let due = self.after("start", u64::from(uid), slow);
        self.plan(due, Event::Life(uid, Stage::Started));
    }

    fn start(&mut self, uid: u32, life: &Life, pod: Option<&Pod>) {
        if !self.reports(life.node) {
            // It starts when the node is back, if that comes.
            return;
        }
        if pod.is_none_or(|pod| pod.deleting.is_some()) {
            return self.remove_pod(uid);
        }
        let at = self.clock.at;
        if let Some(life) = self.lives.get_mut(&uid) {
            life.started = Some(at);
        }
        let ready = Some(at).filter(|_| !self.setting.probe);
        self.report(uid, |pod| (pod.started, pod.ready) = (Some(at), ready));
        if at < self.faults.bad {
            let due = self.after("fail", u64::from(uid), (500, 3_000));
            return self.plan(due, Event::Life(uid, Stage::Ended));
        }
        let due = self.after("register", u64::from(uid), (500, 4_000));
        self.plan(due, Event::Life(uid, Stage::Registered));
        // The kubelet looks for the first time as soon as the container runs.
        let probe = self.after("probe", u64::from(uid), (100, 800));
        self.plan(probe, Event::Life(uid, Stage::Probe));
    }

    fn register(&mut self, uid: u32, life: &Life) {
        let turn = u64::from(uid);
        if self.github.refuses(self.clock.at, &self.faults) {
            // The image's entry point masks the code.
            return self.plan(self.clock.at + SECOND, Event::Life(uid, Stage::Ended));
        }
        let visible = self.after("visible", turn, (0, 2_000));
        let id = self.github.register(life.runner, uid, visible);
        self.note(|| format!("r{} registered as {id}", life.runner));
        if let Some(life) = self.lives.get_mut(&uid) {
            (life.registered, life.enrolled) = (Some(id), true);
        }
        let due = self.after("online", turn, (200, 2_000));
        self.plan(due, Event::Life(uid, Stage::Online));
    }

    /// The kubelet looks next after a job began or ended.
    pub(super) fn probe_soon(&mut self, uid: u32) {
        let Some(started) = self.lives.get(&uid).and_then(|life| life.started) else { return };
        let since = self.clock.at.saturating_sub(started);
        let due = started + (since / PERIOD + 1) * PERIOD;
        self.plan(due, Event::Life(uid, Stage::Probe));
    }

    /// The agent learns that it is not registered any more.
    fn learn(&mut self, uid: u32, life: &Life) {
        let cancels = match self.setting.cancels {
            Cancels::Never => false,
            Cancels::Half => self.draw.chance("cancels", u64::from(uid), 0, 500),
            Cancels::Always => true,
        };
        match life.job {
            Some(job) if cancels => {
                self.note(|| format!("r{} cancels job {job}: it is not registered any more", life.runner));
                self.checks.unlucky += 1;
                self.finish_job(job, true);
                self.end(uid, 0);
            }
            // It ends after its job.
            Some(_) => {}
            None => self.end(uid, 0),
        }
    }

    /// A container ends by itself.
    fn end(&mut self, uid: u32, code: i32) {
        let at = self.clock.at;
        let Some(life) = self.lives.get_mut(&uid) else { return };
        life.over = true;
        let (runner, registered, stopping, enrolled) = (life.runner, life.registered, life.stopping, life.enrolled);
        if !enrolled {
            self.checks.last_failure = Some(at);
        }
        self.note(|| format!("the agent of r{runner} ended"));
        if let Some(id) = registered {
            // On its way out it removes itself, unless its token has expired.
            if stopping && self.draw.chance("leaves", u64::from(uid), 0, 500) && !self.github.refuses(at, &self.faults) {
                self.unregister(id);
            } else {
                self.github.disconnect(id, at, false);
            }
        }
        self.report(uid, |pod| pod.ended = Some((at, code)));
        if self.pods.truth(runner).is_some_and(|pod| pod.uid == uid && pod.deleting.is_some()) {
            let due = self.after("gone", u64::from(uid), (100, 2_000));
            self.plan(due, Event::Life(uid, Stage::Gone));
        }
    }

    /// A container is killed, with its job.
    pub fn kill(&mut self, uid: u32) {
        let at = self.clock.at;
        let Some(life) = self.lives.get_mut(&uid).filter(|life| !life.over) else { return };
        life.over = true;
        let (job, registered, runner) = (life.job.take(), life.registered, life.runner);
        self.checks.last_failure = Some(at);
        if let Some(id) = registered {
            self.github.disconnect(id, at, job.is_some());
        }
        if let Some(job) = job {
            self.note(|| format!("job {job} dies with r{runner}"));
            self.lose_job(job);
        }
    }

    /// A pod that was killed is cleaned up.
    fn end_pod(&mut self, uid: u32) {
        let at = self.clock.at;
        self.report(uid, |pod| pod.ended = Some((at, 137)));
        self.plan(at + 200, Event::Life(uid, Stage::Gone));
    }

    /// A pod is evicted.
    pub fn evict(&mut self, uid: u32) {
        let at = self.clock.at;
        self.kill(uid);
        self.report(uid, |pod| (pod.ended, pod.reason) = (Some((at, 137)), "Evicted"));
    }

    pub(super) fn remove_pod(&mut self, uid: u32) {
        let Some(life) = self.lives.get_mut(&uid) else { return };
        let runner = life.runner;
        life.over = true;
        if self.pods.truth(runner).is_some_and(|pod| pod.uid == uid) {
            self.note(|| format!("the pod of r{runner} is gone"));
            self.put_pod(runner, None);
        }
    }

    /// Somebody deletes a pod.
    pub fn take_pod(&mut self, id: RunnerId, grace: At) {
        let Some(pod) = self.pods.truth(id).cloned() else { return };
        let (uid, at) = (pod.uid, self.clock.at);
        let Some(life) = self.lives.get(&uid).cloned() else { return };
        let reports = self.reports(life.node);
        if grace == 0 || pod.node.is_none() {
            // The object goes at once, and the kubelet kills what is left as soon as it hears of that.
            if reports {
                self.kill(uid);
            }
            self.remove_pod_object(id, uid);
            return;
        }
        let until = pod.deleting.map_or(at + grace, |deleting| deleting.min(at + grace));
        self.put_pod(id, Some(Pod { deleting: Some(until), ..pod }));
        if reports {
            self.terminate(uid);
        }
        if grace < 10 * MINUTE {
            self.plan(until, Event::Life(uid, Stage::GraceOver));
        }
    }

    fn remove_pod_object(&mut self, id: RunnerId, uid: u32) {
        if let Some(life) = self.lives.get_mut(&uid).filter(|life| life.started.is_none()) {
            life.over = true;
        }
        self.put_pod(id, None);
    }

    /// The kubelet ends what runs in a pod that is being deleted: its hook waits for the worker first.
    pub(super) fn terminate(&mut self, uid: u32) {
        let Some(life) = self.lives.get_mut(&uid) else { return };
        if !life.runs() {
            let due = self.after("gone", u64::from(uid), (100, 2_000));
            return self.plan(due, Event::Life(uid, Stage::Gone));
        }
        if life.job.is_none() && !life.stopping {
            life.stopping = true;
            let due = self.after("term", u64::from(uid), (500, 10_000));
            self.plan(due, Event::Life(uid, Stage::Ended));
        }
    }

    /// Nothing has been heard of a node for a while: its pods are not ready any more.
    pub fn node_unknown(&mut self, node: u32) {
        if self.reports(Some(node)) {
            return;
        }
        let at = self.clock.at;
        let of_node: Vec<(RunnerId, Pod)> =
            self.pods.all().filter(|(_, pod)| pod.node == Some(node)).map(|(id, pod)| (id, pod.clone())).collect();
        for (id, pod) in of_node.into_iter().filter(|(_, pod)| pod.silent.is_none() && pod.started.is_some()) {
            self.put_pod(id, Some(Pod { silent: Some(at), ..pod }));
        }
    }

    /// A silent node is back: its kubelet catches up. It has gone on looking for worker processes, and reports what it found last.
    pub fn node_back(&mut self, node: u32) {
        let Some(one) = self.nodes.get_mut(node as usize).filter(|one| one.lost.is_none()) else { return };
        one.silent = None;
        let at = self.clock.at;
        let of_node: Vec<u32> = self.lives.iter().filter(|(_, life)| life.node == Some(node)).map(|(uid, _)| *uid).collect();
        for uid in of_node {
            let Some(life) = self.lives.get(&uid).cloned() else { continue };
            let Some(pod) = self.pods.truth(life.runner).filter(|pod| pod.uid == uid).cloned() else {
                self.kill(uid);
                continue;
            };
            let ended = life.over && life.started.is_some();
            let (working, looks) = (life.job.is_some(), self.setting.probe && life.runs());
            self.report(uid, |pod| {
                let was_unready = pod.silent.take().is_some();
                if looks && pod.worker.is_some_and(|(before, _)| before != working || was_unready) {
                    (pod.worker, pod.ready) = (Some((working, at)), Some(at).filter(|_| !working));
                }
                if pod.started.is_none() {
                    pod.started = life.started;
                }
                if ended && pod.ended.is_none() {
                    pod.ended = Some((at, 0));
                }
            });
            if pod.deleting.is_some() {
                self.terminate(uid);
                if self.is_due(&pod) {
                    self.plan(at, Event::Life(uid, Stage::GraceOver));
                }
            }
            if life.started.is_none() && !life.over {
                self.plan(at + SECOND, Event::Life(uid, Stage::Started));
            }
            self.probe_soon(uid);
        }
    }

    /// Pods of nodes that are gone are collected.
    pub fn collect_pods(&mut self) {
        let gone = |node: Option<u32>| node.and_then(|node| self.nodes.get(node as usize)).is_some_and(|node| node.gone);
        let pods: Vec<u32> = self.pods.all().filter(|(_, pod)| gone(pod.node)).map(|(_, pod)| pod.uid).collect();
        pods.into_iter().for_each(|uid| self.remove_pod(uid));
    }

    /// The machine of a node is gone.
    pub fn lose_node(&mut self, node: u32) {
        let at = self.clock.at;
        let Some(one) = self.nodes.get_mut(node as usize).filter(|one| one.lost.is_none()) else { return };
        (one.lost, one.silent) = (Some(at), None);
        let of_node: Vec<u32> = self.lives.iter().filter(|(_, life)| life.node == Some(node)).map(|(uid, _)| *uid).collect();
        of_node.into_iter().for_each(|uid| self.kill(uid));
        self.plan(at + 40 * SECOND, Event::NodeUnknown(node));
        self.plan(at + 75 * SECOND, Event::NodeGone(node));
    }
}
