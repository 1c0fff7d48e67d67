//! What the operator changes at the API server.

use crate::agenda::{Event, Stage};
use crate::clock::{At, MINUTE, SECOND};
use crate::invariant::Invariant;
use crate::object::{Jobs, Pod, Runner, RunnerId, Scaler, Set, Target};
use crate::outside::{Life, Outside};
use crate::script::Kind;

/// A call that did not succeed, as far as the caller knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// The process died.
    #[error("the process died")]
    Died,
    /// No answer, or one that says nothing.
    #[error("the API server did not answer")]
    NoAnswer,
    /// There is one of that name.
    #[error("it exists")]
    Exists,
    /// It changed, was replaced or is gone.
    #[error("it is another one by now")]
    Changed,
}

/// What becomes of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Answered,
    AnswerLost,
    Dies,
}

/// The grace period of a runner's pod: as long as a job may take.
pub const GRACE: At = 432_000 * SECOND;

impl Outside {
    /// Whether the process dies at a call: before it, or after it.
    pub(super) fn dies(&mut self) -> Result<Fate, Broken> {
        self.calls += 1;
        match self.faults.crash {
            Some(0) => {
                self.faults.crash = None;
                if self.draw.chance("dies-first", self.calls, 0, 500) { Err(Broken::Died) } else { Ok(Fate::Dies) }
            }
            Some(calls) => {
                self.faults.crash = Some(calls - 1);
                Ok(Fate::Answered)
            }
            None => Ok(Fate::Answered),
        }
    }

    fn change<T>(&mut self, act: impl FnOnce(&mut Self) -> Result<T, Broken>) -> Result<T, Broken> {
        let mut fate = self.dies()?;
        if fate == Fate::Answered && self.clock.at < self.faults.api {
            match self.draw.between("api", self.calls, 0, (0, 2)) {
                0 => return Err(Broken::NoAnswer),
                1 => fate = Fate::AnswerLost,
                _ => {}
            }
        }
        self.checks.writes += 1;
        self.checks.last_write = self.clock.at;
        let done = act(self);
        match fate {
            Fate::Answered => done,
            Fate::AnswerLost => Err(Broken::NoAnswer),
            Fate::Dies => Err(Broken::Died),
        }
    }

    /// Makes a RunnerReplicaSet.
    ///
    /// # Errors
    ///
    /// When one exists, or the call fails.
    pub fn create_set(&mut self, id: u32, set: Set) -> Result<(), Broken> {
        self.change(|outside| {
            if outside.sets.truth(id).is_some() {
                return Err(Broken::Exists);
            }
            outside.note(|| format!("set {id} made with {} of template {}", set.replicas, set.revision));
            outside.put_set(id, Some(set));
            Ok(())
        })
    }

    /// Changes a RunnerReplicaSet.
    ///
    /// # Errors
    ///
    /// When the call fails.
    pub fn change_set(&mut self, id: u32, edit: impl FnOnce(&mut Set)) -> Result<(), Broken> {
        self.change(|outside| {
            let Some(mut set) = outside.sets.truth(id).copied() else { return Ok(()) };
            let before = set;
            edit(&mut set);
            let known_since = outside.checks.registering.get(&id).copied();
            let recently = outside.checks.last_failure.is_some_and(|failed| outside.clock.at < failed + 15 * MINUTE);
            // What the process has seen since it started, and a while ago.
            let sure = known_since.is_some_and(|since| since.max(outside.checks.booted) + 10 * SECOND < outside.clock.at);
            if set.attempts > before.attempts && sure && !recently && outside.checks.booted == 0 {
                outside.violated(Invariant::FailureInvented, || {
                    format!("{} failed attempts of set {id}, and nothing failed", set.attempts)
                });
            }
            set.generation += i64::from((set.replicas, set.effective) != (before.replicas, before.effective));
            if set.replicas != before.replicas {
                outside.note(|| format!("set {id}: {} -> {}", before.replicas, set.replicas));
            }
            outside.put_set(id, Some(set));
            Ok(())
        })
    }

    /// Deletes a RunnerReplicaSet that has not changed since.
    ///
    /// # Errors
    ///
    /// When it has, or the call fails.
    pub fn delete_set(&mut self, id: u32, version: u64) -> Result<(), Broken> {
        self.change(|outside| {
            if outside.sets.truth(id).is_none_or(|set| set.version != version) {
                return Err(Broken::Changed);
            }
            outside.note(|| format!("set {id} deleted"));
            outside.put_set(id, None);
            let due = outside.after("collect", u64::from(id), (SECOND, 20 * SECOND));
            outside.plan(due, Event::Collect);
            Ok(())
        })
    }

    /// Sets the number of the RunnerDeployment.
    ///
    /// # Errors
    ///
    /// When the call fails.
    pub fn change_target(&mut self, edit: impl FnOnce(&mut Target)) -> Result<(), Broken> {
        self.change(|outside| {
            let Some(mut target) = outside.targets.truth(()).copied() else { return Ok(()) };
            let before = target.replicas;
            edit(&mut target);
            outside.note(|| format!("deployment: {before} -> {}", target.replicas));
            if let Some(scaler) = outside.setting.autoscaler
                && outside.scalers.truth(()).is_some_and(|scaler| scaler.valid)
                && !(scaler.min..=scaler.max).contains(&target.replicas)
            {
                outside.violated(Invariant::OutOfBounds, || format!("{} runners are asked for", target.replicas));
            }
            outside.put_target(Some(target));
            Ok(())
        })
    }

    /// Writes the autoscaler's status.
    ///
    /// # Errors
    ///
    /// When the call fails.
    pub fn change_scaler(&mut self, edit: impl FnOnce(&mut Scaler)) -> Result<(), Broken> {
        self.change(|outside| {
            let Some(mut scaler) = outside.scalers.truth(()).copied() else { return Ok(()) };
            edit(&mut scaler);
            outside.put_scaler(scaler);
            Ok(())
        })
    }

    /// Writes the ledger as it was read, and changed.
    ///
    /// # Errors
    ///
    /// When somebody else wrote it meanwhile, or the call fails.
    pub fn change_ledger(&mut self, jobs: Jobs) -> Result<(), Broken> {
        self.change(|outside| {
            if outside.ledgers.truth(()).is_some_and(|truth| truth.version != jobs.version) {
                return Err(Broken::Changed);
            }
            outside.check_ledger(&jobs.ledger);
            outside.put_ledger(jobs);
            Ok(())
        })
    }

    /// A name that no Runner has had.
    pub fn fresh_name(&mut self) -> RunnerId {
        self.checks.named += 1;
        self.checks.named
    }

    /// Makes a Runner under a fresh name.
    ///
    /// # Errors
    ///
    /// When the call fails.
    pub fn create_runner(&mut self, id: RunnerId, set: u32) -> Result<(), Broken> {
        self.change(|outside| {
            let created = outside.clock.at;
            outside.note(|| format!("r{id} made of set {set}"));
            outside.checks.made += 1;
            let runner = Runner { set, created, deleting: None, known_id: None, had_pod: false, version: 0 };
            outside.put_runner(id, Some(runner));
            if outside.sets.truth(set).is_none() {
                let due = outside.after("collect", u64::from(id), (SECOND, 20 * SECOND));
                outside.plan(due, Event::Collect);
            }
            let most = outside.most();
            if outside.alive() > most {
                outside.violated(Invariant::TooManyRunners, || format!("r{id} is one more than {most}"));
            }
            Ok(())
        })
    }

    /// The most runners there may be: what was ever wanted, and the surge of a quarter.
    fn most(&self) -> u32 {
        self.checks.wanted + self.checks.wanted.div_ceil(4).max(1)
    }

    /// Deletes a Runner: its finalizer holds it.
    ///
    /// # Errors
    ///
    /// When the call fails.
    pub fn delete_runner(&mut self, id: RunnerId) -> Result<(), Broken> {
        self.change(|outside| {
            outside.mark_deleted(id);
            Ok(())
        })
    }

    /// Somebody deletes a Runner.
    pub fn mark_deleted(&mut self, id: RunnerId) {
        let at = self.clock.at;
        if let Some(runner) = self.runners.truth(id).copied().filter(|runner| runner.deleting.is_none()) {
            self.note(|| format!("r{id} is to go"));
            self.put_runner(id, Some(Runner { deleting: Some(at), ..runner }));
        }
    }

    /// Writes a Runner's status.
    ///
    /// # Errors
    ///
    /// When the call fails.
    pub fn change_runner(&mut self, id: RunnerId, edit: impl FnOnce(&mut Runner)) -> Result<(), Broken> {
        self.change(|outside| {
            let Some(mut runner) = outside.runners.truth(id).copied() else { return Ok(()) };
            edit(&mut runner);
            if runner.known_id.is_some() {
                let at = outside.clock.at;
                outside.checks.registering.entry(runner.set).or_insert(at);
            }
            outside.put_runner(id, Some(runner));
            Ok(())
        })
    }

    /// Takes a Runner's finalizer away. `refused` says that GitHub could not be asked.
    ///
    /// # Errors
    ///
    /// When the call fails.
    pub fn release_runner(&mut self, id: RunnerId, refused: bool) -> Result<(), Broken> {
        self.change(|outside| {
            if outside.runners.truth(id).is_some_and(|runner| runner.deleting.is_some()) {
                outside.note(|| format!("r{id} released"));
                outside.put_runner(id, None);
                if outside.pods.truth(id).is_some() {
                    let due = outside.after("collect-pod", u64::from(id), (SECOND, 5 * SECOND));
                    outside.plan(due, Event::Collect);
                }
                let revoked = outside.faults.revoked.is_some_and(|(_, until)| outside.clock.at < until + 330 * SECOND);
                if refused && revoked {
                    outside.checks.left_behind.push(id);
                }
            }
            Ok(())
        })
    }

    /// Makes the pod of a Runner.
    ///
    /// # Errors
    ///
    /// When it exists, or the call fails.
    pub fn create_pod(&mut self, id: RunnerId) -> Result<(), Broken> {
        self.change(|outside| {
            if outside.pods.truth(id).is_some() {
                return Err(Broken::Exists);
            }
            let uid = u32::try_from(outside.version()).unwrap_or(u32::MAX);
            if let Some((_, life)) = outside.life_of(id).filter(|(_, life)| life.runs()) {
                let working = life.job.is_some();
                outside.violated(Invariant::Twice, || format!("r{id} gets a second pod, the first one runs (a job: {working})"));
            }
            outside.note(|| format!("pod of r{id} made"));
            let created = outside.clock.at;
            outside.put_pod(
                id,
                Some(Pod {
                    uid,
                    created,
                    node: None,
                    started: None,
                    ended: None,
                    reason: "",
                    ready: None,
                    worker: None,
                    silent: None,
                    deleting: None,
                    version: 0,
                }),
            );
            outside.lives.insert(uid, Life::new(id));
            let due = outside.after("schedule", u64::from(uid), (50, 1_000));
            outside.plan(due, Event::Life(uid, Stage::Scheduled));
            Ok(())
        })
    }

    /// The operator deletes a pod as it was observed, by UID and, where it must not have changed, by version. Without `grace` its own counts.
    ///
    /// # Errors
    ///
    /// When it is another one by now, or the call fails.
    pub fn delete_pod(&mut self, id: RunnerId, uid: u32, unchanged: Option<u64>, grace: Option<At>) -> Result<(), Broken> {
        self.change(|outside| {
            let pod = outside.pods.truth(id).filter(|pod| pod.uid == uid);
            if pod.is_none_or(|pod| unchanged.is_some_and(|version| version != pod.version)) {
                return Err(Broken::Changed);
            }
            outside.note(|| format!("pod of r{id} deleted by the operator, grace {grace:?}"));
            outside.check_pod_deletion(id, uid, grace);
            outside.take_pod(id, grace.unwrap_or(GRACE));
            Ok(())
        })
    }

    /// With a grace period that a job does not fit into, the pod of a runner that works must not be deleted, if the operator could know.
    fn check_pod_deletion(&mut self, id: RunnerId, uid: u32, grace: Option<At>) {
        let Some(life) = self.lives.get(&uid).filter(|life| life.job.is_some() && life.runs()) else { return };
        if grace.is_none() {
            return;
        }
        let node = life.node.and_then(|node| self.nodes.get(node as usize));
        let reports = node.is_none_or(|node| node.lost.is_none() && node.silent.is_none());
        let watched = !self.pods.is_stalled(self.clock.at);
        let what = match self.evidence(life) {
            Some(evidence) => evidence,
            // It waits long enough for the kubelet to find a job that began before it was unregistered.
            None if self.setting.probe && reports && watched && life.registered.is_none() => "its pod would have said so",
            None => return,
        };
        self.violated(Invariant::BusyPodDeleted, || format!("the pod of r{id} is deleted, which works: {what}"));
    }

    /// Whether a watch shows nothing now.
    #[must_use]
    pub fn is_stalled(&self, kind: Kind) -> bool {
        let now = self.clock.at;
        match kind {
            Kind::Target => self.targets.is_stalled(now),
            Kind::Set => self.sets.is_stalled(now),
            Kind::Runner => self.runners.is_stalled(now),
            Kind::Pod => self.pods.is_stalled(now),
            Kind::Scaler => self.scalers.is_stalled(now),
            Kind::Ledger => self.ledgers.is_stalled(now),
        }
    }
}
