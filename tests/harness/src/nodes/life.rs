//! What became of every runner pod: the stages of its life and when each began.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::sync::Mutex;

use jiff::Timestamp;
use tokio::sync::watch;

use super::lock;
use crate::github::JobId;

/// Where a runner pod is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// Exists, without a node.
    Pending,
    /// Has a node; its containers do not run.
    Starting,
    /// Its containers run; the agent is not registered.
    Running,
    /// The agent is registered and waits for a job.
    Idle,
    /// The agent runs a job.
    Busy,
    /// The runner container has ended for good.
    Ended,
    /// The object is gone.
    Gone,
}

/// The life of one pod. A stage that was entered again keeps its first time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodLife {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod; a later pod may have the same.
    pub name: String,
    /// UID of the pod; no other life has the same.
    pub uid: String,
    /// Its stage now.
    pub stage: Stage,
    /// When each stage was first entered.
    pub since: BTreeMap<Stage, Timestamp>,
    /// The jobs it got, in order.
    pub jobs: Vec<JobId>,
    /// How often its runner container was started.
    pub starts: u32,
}

/// Numbers of pods by stage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    now: BTreeMap<Stage, usize>,
    seen: usize,
}

impl Tally {
    /// How many are in that stage now.
    #[must_use]
    pub fn now(&self, stage: Stage) -> usize {
        self.now.get(&stage).copied().unwrap_or(0)
    }

    /// How many pods there ever were.
    #[must_use]
    pub fn seen(&self) -> usize {
        self.seen
    }

    /// How many exist, in any stage but [`Stage::Gone`].
    #[must_use]
    pub fn present(&self) -> usize {
        self.seen - self.now(Stage::Gone)
    }

    /// How many have a registered agent: idle or busy.
    #[must_use]
    pub fn online(&self) -> usize {
        self.now(Stage::Idle) + self.now(Stage::Busy)
    }
}

/// All lives since the start.
#[derive(Debug)]
pub(super) struct Lives {
    lives: Mutex<HashMap<String, PodLife>>,
    tally: watch::Sender<Tally>,
}

impl Default for Lives {
    fn default() -> Self {
        Self { lives: Mutex::default(), tally: watch::channel(Tally::default()).0 }
    }
}

impl Lives {
    /// A pod that was not known before exists.
    pub(super) fn begin(&self, namespace: &str, name: &str, uid: &str) {
        let mut lives = lock(&self.lives);
        let life = PodLife {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            stage: Stage::Pending,
            since: BTreeMap::from([(Stage::Pending, Timestamp::now())]),
            jobs: Vec::new(),
            starts: 0,
        };
        if lives.insert(uid.to_owned(), life).is_none() {
            self.tally.send_modify(|tally| {
                tally.seen += 1;
                *tally.now.entry(Stage::Pending).or_default() += 1;
            });
        }
    }

    /// A pod enters a stage; nothing follows [`Stage::Gone`].
    pub(super) fn enter(&self, uid: &str, stage: Stage) {
        let mut lives = lock(&self.lives);
        let Some(life) = lives.get_mut(uid).filter(|life| life.stage != Stage::Gone) else { return };
        let before = std::mem::replace(&mut life.stage, stage);
        life.since.entry(stage).or_insert_with(Timestamp::now);
        if before != stage {
            self.tally.send_modify(|tally| {
                if let Some(count) = tally.now.get_mut(&before) {
                    *count -= 1;
                }
                *tally.now.entry(stage).or_default() += 1;
            });
        }
    }

    /// The runner container of a pod starts.
    pub(super) fn start(&self, uid: &str) {
        if let Some(life) = lock(&self.lives).get_mut(uid) {
            life.starts += 1;
        }
        self.enter(uid, Stage::Running);
    }

    /// A pod's agent gets a job.
    pub(super) fn job(&self, uid: &str, job: JobId) {
        if let Some(life) = lock(&self.lives).get_mut(uid) {
            life.jobs.push(job);
        }
        self.enter(uid, Stage::Busy);
    }

    pub(super) fn all(&self) -> Vec<PodLife> {
        let mut all: Vec<_> = lock(&self.lives).values().cloned().collect();
        all.sort_by(|a, b| (a.since.get(&Stage::Pending), &a.name).cmp(&(b.since.get(&Stage::Pending), &b.name)));
        all
    }

    pub(super) fn tally(&self) -> watch::Receiver<Tally> {
        self.tally.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pod_is_in_one_stage() {
        let lives = Lives::default();
        lives.begin("ci", "a", "1");
        lives.begin("ci", "b", "2");
        lives.start("1");
        lives.enter("1", Stage::Idle);
        lives.job("1", JobId(7));
        lives.enter("2", Stage::Gone);
        lives.enter("2", Stage::Ended);
        lives.enter("unknown", Stage::Idle);
        let tally = lives.tally().borrow().clone();
        assert_eq!((tally.seen(), tally.present(), tally.online(), tally.now(Stage::Busy)), (2, 1, 1, 1));
        assert_eq!(tally.now.values().sum::<usize>(), 2);
        let first = lives.all().into_iter().find(|life| life.name == "a").unwrap();
        assert_eq!((first.jobs, first.starts), (vec![JobId(7)], 1));
        assert!(first.since.contains_key(&Stage::Running));
    }
}
