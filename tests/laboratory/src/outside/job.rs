//! Jobs: who gets them, how they end, and what is told of that.

use std::sync::Arc;

use pacer_core::ledger::{JobEvent, Ledger, State, Terms};

use crate::agenda::{Event, Stage};
use crate::clock::{At, SECOND, wall};
use crate::invariant::Invariant;
use crate::object::{Jobs, RunnerId, name_of, runner_of};
use crate::outside::Outside;
use crate::outside::github::LEASE;
use crate::script::Kind;

/// How long a queued job counts: `scaleUpTriggers[].duration`.
const LIFE: std::time::Duration = std::time::Duration::from_secs(600);

/// A job of the run: when it was queued, began and ended.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// When it was queued.
    pub queued: At,
    /// How long it takes.
    pub lasts: At,
    /// When a runner began it; none before.
    pub began: Option<At>,
    /// Runner that it was given to; it stays when the job is over.
    pub runner: Option<RunnerId>,
    /// When it ended; none before.
    pub over: Option<At>,
    /// From when on GitHub knows that.
    pub known_over: At,
    /// It was cut short.
    pub killed: bool,
}

impl Job {
    /// How far it is, as GitHub has it.
    #[must_use]
    pub fn state(&self, now: At) -> State {
        match (self.began, self.over) {
            (_, Some(_)) if self.known_over <= now => State::Completed,
            (Some(_), _) => State::InProgress,
            (None, _) => State::Queued,
        }
    }
}

impl Outside {
    /// The events of a job, as webhooks and listings have them.
    #[must_use]
    pub fn event(&self, id: u32, state: State) -> Option<JobEvent> {
        let job = self.jobs.get(id as usize)?;
        let at = match state {
            State::Queued => job.queued,
            State::InProgress => job.began?,
            State::Completed => job.known_over.max(job.over?),
        };
        Some(JobEvent {
            id: u64::from(id),
            state,
            at: wall(at),
            queued_at: wall(job.queued),
            repository: Arc::from("o/r"),
            workflow: Arc::from("w"),
            labels: Arc::from([Arc::from("self-hosted")]),
            attempt: 1,
            runner: job.runner.filter(|_| state != State::Queued).map(|runner| Arc::from(name_of(runner))),
            origin: Arc::default(),
        })
    }

    /// Queues so many jobs, each of which takes `lasts` milliseconds.
    pub fn queue_jobs(&mut self, count: u32, lasts: At) {
        let queued = self.clock.at;
        for _ in 0..count {
            let id = u32::try_from(self.jobs.len()).unwrap_or(u32::MAX);
            self.note(|| format!("job {id} queued, takes {lasts} ms"));
            self.jobs.push(Job { queued, lasts, began: None, runner: None, over: None, known_over: 0, killed: false });
            self.tell(id, State::Queued);
            self.assign_soon(u64::from(id));
        }
    }

    /// A webhook is on its way, sometimes twice.
    fn tell(&mut self, id: u32, state: State) {
        if !self.setting.autoscaler.is_some_and(|scaler| scaler.webhooks) || self.clock.at < self.faults.webhooks {
            return;
        }
        let turn = u64::from(id) * 4 + state as u64;
        let late = self.draw.chance("late", turn, 0, 50);
        let due = self.after("webhook", turn, if late { (2 * SECOND, 60 * SECOND) } else { (100, 2 * SECOND) });
        self.plan(due, Event::Webhook(id, state as u8));
        if self.draw.chance("twice", turn, 0, 200) {
            let again = self.after("again", turn, (100, 90 * SECOND));
            self.plan(again, Event::Webhook(id, state as u8));
        }
    }

    /// A webhook is received: it is in the ledger before it is answered.
    pub fn receive(&mut self, id: u32, state: u8) {
        let state = match state {
            0 => State::Queued,
            1 => State::InProgress,
            _ => State::Completed,
        };
        let Some(event) = self.event(id, state) else { return };
        let mut jobs = self.ledgers.truth(()).cloned().unwrap_or_default();
        let terms = Terms { queued: LIFE, limit: 1_000 };
        jobs.ledger.apply(&event, &terms, self.clock.now);
        self.note(|| format!("webhook: job {id} {state:?}"));
        self.put_ledger(jobs);
    }

    /// Jobs are handed out a moment later.
    pub(super) fn assign_soon(&mut self, turn: u64) {
        if !self.assigning {
            self.assigning = true;
            let due = self.after("assign", turn ^ self.clock.at, (300, 2_500));
            self.plan(due, Event::Assign);
        }
    }

    /// GitHub hands jobs to runners that wait.
    pub fn assign(&mut self) {
        self.assigning = false;
        let now = self.clock.at;
        let waiting: Vec<u32> =
            (0_u32..).zip(&self.jobs).filter(|(_, job)| job.began.is_none() && job.over.is_none()).map(|(id, _)| id).collect();
        for id in waiting {
            let free: Vec<(u64, u32)> = self
                .github
                .waiting()
                .into_iter()
                .filter(|(_, uid)| self.lives.get(uid).is_some_and(|life| life.runs() && !life.stopping && life.job.is_none()))
                .collect();
            if free.is_empty() {
                return;
            }
            let pick = usize::try_from(self.draw.bits("pick", u64::from(id), now)).unwrap_or_default() % free.len();
            let Some((registration, uid)) = free.get(pick).copied() else { return };
            self.begin(id, registration, uid);
        }
    }

    fn begin(&mut self, id: u32, registration: u64, uid: u32) {
        let now = self.clock.at;
        let late = if now < self.faults.flag.1 {
            self.faults.flag.0
        } else {
            self.draw.between("flag", u64::from(id), 0, (0, 60 * SECOND))
        };
        let Some(runner) = self.github.begin(registration, id, now, now + late) else { return };
        self.note(|| format!("job {id} begins on r{runner}, flag late by {late} ms"));
        let Some(job) = self.jobs.get_mut(id as usize) else { return };
        (job.began, job.runner) = (Some(now), Some(runner));
        let lasts = job.lasts;
        if let Some(life) = self.lives.get_mut(&uid) {
            (life.job, life.shown, life.told) = (Some(id), None, None);
        }
        self.plan(now + lasts, Event::JobEnd(id, uid));
        self.probe_soon(uid);
        self.tell(id, State::InProgress);
    }

    /// The time of a job is over.
    pub fn job_ends(&mut self, id: u32, uid: u32) {
        if self.lives.get(&uid).is_none_or(|life| life.over || life.job != Some(id)) {
            return;
        }
        self.note(|| format!("job {id} done"));
        self.finish_job(id, false);
        let Some(life) = self.lives.get(&uid).cloned() else { return };
        self.probe_soon(uid);
        let removed = life.registered.is_none();
        let leaving = self.pods.truth(life.runner).is_none_or(|pod| pod.uid != uid || pod.deleting.is_some());
        if self.setting.ephemeral || removed {
            let due = self.after("exit", u64::from(uid), (200, 3_000));
            self.plan(due, Event::Life(uid, Stage::Ended));
        } else if leaving {
            self.terminate(uid);
        } else {
            self.assign_soon(u64::from(uid));
        }
    }

    /// A job ends with its agent alive.
    pub(super) fn finish_job(&mut self, id: u32, killed: bool) {
        let now = self.clock.at;
        let Some(job) = self.jobs.get_mut(id as usize) else { return };
        (job.over, job.known_over, job.killed) = (Some(now), now, killed);
        let released = self.after("release", u64::from(id), (500, 10 * SECOND));
        let ephemeral = self.setting.ephemeral;
        let of_job: Vec<u32> = self.lives.iter().filter(|(_, life)| life.job == Some(id)).map(|(uid, _)| *uid).collect();
        for uid in of_job {
            if let Some(life) = self.lives.get_mut(&uid) {
                life.job = None;
                if let Some(registration) = life.registered {
                    self.github.finish(registration, released, ephemeral);
                    if ephemeral {
                        life.registered = None;
                    }
                }
            }
        }
        self.tell(id, State::Completed);
    }

    /// A job is lost with its agent: GitHub finds out when the lease ends.
    pub(super) fn lose_job(&mut self, id: u32) {
        let now = self.clock.at;
        if let Some(job) = self.jobs.get_mut(id as usize) {
            (job.over, job.known_over, job.killed) = (Some(now), now + LEASE, true);
            if self.setting.autoscaler.is_some_and(|scaler| scaler.webhooks) {
                self.plan(now + LEASE + SECOND, Event::Webhook(id, State::Completed as u8));
            }
        }
    }

    /// No job counts as over that runs on a runner of this fleet, or waits.
    pub(super) fn check_ledger(&mut self, ledger: &Ledger) {
        let wrong = ledger.all().filter(|(_, job)| job.state == State::Completed).find_map(|(id, known)| {
            let id = u32::try_from(id).ok()?;
            let job = self.jobs.get(id as usize).filter(|job| job.over.is_none())?;
            let runner = job.runner.or_else(|| known.runner.as_deref().and_then(runner_of));
            // A runner that is gone has taken its job along.
            runner.is_none_or(|runner| self.runners.truth(runner).is_some()).then_some((id, job.began))
        });
        if let Some((id, began)) = wrong {
            let stalled = self.is_stalled(Kind::Runner);
            self.violated(Invariant::JobDeclaredOver, || {
                format!("job {id} counts as over, and began at {began:?} (watch of runners interrupted: {stalled})")
            });
        }
    }

    /// All that waits or runs, as GitHub's queue has it.
    #[must_use]
    pub fn open_jobs(&self) -> Vec<JobEvent> {
        let now = self.clock.at;
        let open = (0_u32..).zip(&self.jobs).filter(|(_, job)| job.state(now) != State::Completed);
        open.filter_map(|(id, job)| self.event(id, job.state(now))).collect()
    }

    /// The ledger as the operator sees it, to be changed.
    #[must_use]
    pub fn seen_ledger(&self) -> Jobs {
        self.ledgers.seen(()).cloned().unwrap_or_default()
    }
}
