//! A runner of the simulation: the facts about it that the operator would have gathered, and the operator's opinion of them.

use std::sync::Arc;
use std::time::Duration;

use pacer_core::facts::{Container, Flag, PodFacts, PodPhase, Remote, RunnerFacts, Worker};
use pacer_core::phase::{Assessment, Phase, assess};

use crate::agenda::{Moment, at};

#[derive(Debug)]
pub(crate) struct Runner {
    pub(crate) name: Arc<str>,
    pub(crate) pool: usize,
    /// When its object is there: a moment after it was decided upon.
    pub(crate) created: Moment,
    pub(crate) online: Option<Moment>,
    pub(crate) gone: Option<Moment>,
    /// The job that it was given.
    pub(crate) job: Option<usize>,
    /// Since when it has none.
    pub(crate) idle_since: Moment,
    /// Time at work so far.
    pub(crate) worked: Moment,
    pub(crate) busy_since: Option<Moment>,
    /// When it was given its first job.
    pub(crate) first_work: Option<Moment>,
    pub(crate) facts: RunnerFacts,
    pub(crate) assessment: Assessment,
    /// Its place among the members of its pool.
    pub(crate) place: usize,
}

impl Runner {
    /// One that was made now and starts. Traces do not tell when its container started, so it counts as started: a surplus never gives it up.
    pub(crate) fn new(name: Arc<str>, pool: usize, node: Option<Arc<str>>, ephemeral: bool, place: usize, now: Moment) -> Self {
        let pod = PodFacts {
            created: at(now),
            phase: PodPhase::Running,
            node: node.map(|node| node.to_string()),
            container: Container::Running { since: Some(at(now)) },
            // Jobs of a trace are known at once, as where the kubelet looks for the worker process.
            worker: Worker::Absent { since: None },
            ..PodFacts::default()
        };
        let facts = RunnerFacts {
            name: name.to_string(),
            uid: name.to_string(),
            created: at(now),
            current: true,
            ephemeral,
            had_pod: true,
            pod: Some(pod),
            ..RunnerFacts::default()
        };
        let assessment = assess(&facts, at(now));
        Self {
            name,
            pool,
            created: now,
            online: None,
            gone: None,
            job: None,
            idle_since: now,
            worked: 0,
            busy_since: None,
            first_work: None,
            facts,
            assessment,
            place,
        }
    }

    /// It is online and has no job.
    pub(crate) fn idle(&mut self, id: u64, now: Moment) {
        self.online.get_or_insert(now);
        if let Some(since) = self.busy_since.take() {
            self.worked += now - since;
            self.facts.last_job_end = Some(at(now));
        }
        self.idle_since = now;
        self.job = None;
        self.facts.known_id = Some(id);
        self.facts.reports_job = None;
        self.see_idle(now);
    }

    /// The listings of so long say that it is idle.
    pub(crate) fn see_idle(&mut self, now: Moment) {
        let idle = Duration::from_millis(u64::try_from(now - self.idle_since).unwrap_or_default());
        let id = self.facts.known_id.unwrap_or_default();
        self.facts.remote = Remote::Online { id, flag: Flag::Idle(idle) };
        self.assessment = assess(&self.facts, at(now));
    }

    /// GitHub gave it a job.
    pub(crate) fn busy(&mut self, job: usize, now: Moment) {
        self.job = Some(job);
        self.busy_since = Some(now);
        self.first_work.get_or_insert(now);
        let id = self.facts.known_id.unwrap_or_default();
        self.facts.remote = Remote::Online { id, flag: Flag::Busy };
        self.facts.reports_job = Some(at(now));
        self.assessment = assess(&self.facts, at(now));
    }

    /// Its job is over; its container is not yet.
    pub(crate) fn worked_until(&mut self, now: Moment) {
        if let Some(since) = self.busy_since.take() {
            self.worked += now - since;
        }
    }

    /// Its container ended.
    pub(crate) fn stopped(&mut self, exit_code: i32, now: Moment) {
        if let Some(pod) = &mut self.facts.pod {
            pod.phase = if exit_code == 0 { PodPhase::Succeeded } else { PodPhase::Failed };
            pod.container = Container::Terminated {
                exit_code,
                reason: String::new(),
                message: String::new(),
                started: Some(pod.created),
                finished: Some(at(now)),
            };
        }
        self.facts.reports_job = None;
        let registered = self.online.is_some();
        self.facts.remote = if registered { Remote::Absent { since: Duration::ZERO } } else { Remote::Unknown };
        self.assessment = assess(&self.facts, at(now));
    }

    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.assessment.phase, Phase::Idle(_))
    }
}
