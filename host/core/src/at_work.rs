//! What the status of a Runner says of its job, and when.
//!
//! A status is for people. One that is ephemeral has one job, and says so with the write that says that it is online. What changes later is
//! written once it has lasted, so that jobs that are over soon cost no writes.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::facts::{Flag, Remote, RunnerFacts};
use crate::phase::Phase;

/// What changed is written once it has been so for this long.
pub const LASTS: SignedDuration = SignedDuration::from_secs(10);

/// How long the first word about an ephemeral runner waits for its job, where one is queued that GitHub may give it: the event comes within
/// seconds of the runner's registration.
pub const JOB_COMES: SignedDuration = SignedDuration::from_secs(5);

/// Whether a runner works, and on what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Whether it runs a job; none where it can't be connected, or nobody knows.
    pub busy: Option<bool>,
    /// Its job: GitHub's id, or the name that the status hook gave it.
    pub job: Option<Arc<str>>,
}

impl Work {
    /// What facts say. Where they prove neither, it is as was `said` of the same pod.
    #[must_use]
    pub fn of(facts: &RunnerFacts, phase: Phase, job: Option<Arc<str>>, said: &Self, now: Timestamp) -> Self {
        let Some(pod) = facts.pod.as_ref().filter(|pod| !pod.stopped()) else { return Self::default() };
        let is_over = facts.job_over.is_some_and(|over| over >= pod.created);
        let listed_busy = matches!(facts.remote, Remote::Online { flag: Flag::Busy, .. } | Remote::Offline { busy: true, .. });
        let idle = || Self { busy: Some(false), job: None };
        match phase.as_told(facts, now) {
            _ if facts.says_busy(now) => Self { busy: Some(true), job },
            // Whoever has one job and has had it works no more, whatever an older listing says.
            _ if facts.ephemeral && is_over => idle(),
            _ if listed_busy => Self { busy: Some(true), job },
            Phase::Idle(_) => idle(),
            Phase::Pending | Phase::Starting | Phase::Dead => Self::default(),
            Phase::Busy | Phase::Offline | Phase::Stopping if is_over => idle(),
            Phase::Busy | Phase::Offline | Phase::Stopping => said.clone(),
        }
    }
}

/// Since when a runner has worked, or not, other than its status says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turned {
    to: Work,
    since: Timestamp,
}

impl Turned {
    /// None while there is nothing to say. What turns back before it was said has not turned.
    #[must_use]
    pub fn follow(before: Option<&Self>, now_is: &Work, said: &Work, now: Timestamp) -> Option<Self> {
        if now_is == said {
            return None;
        }
        let same = before.filter(|before| before.to == *now_is).map(|before| before.since);
        Some(Self { to: now_is.clone(), since: same.unwrap_or(now) })
    }

    /// What it does by now.
    #[must_use]
    pub fn to(&self) -> &Work {
        &self.to
    }

    /// Since when the runner has done what `to` says.
    #[must_use]
    pub fn since(&self) -> Timestamp {
        self.since
    }

    /// How long it has to last until it is worth a write of its own.
    #[must_use]
    pub fn waits(&self, now: Timestamp) -> Option<SignedDuration> {
        left(LASTS, self.since, now)
    }
}

/// How long the first word about a runner waits for its job: while `queued` jobs of its pool may be given to it. None where it does not.
#[must_use]
pub fn awaits_job(facts: &RunnerFacts, phase: Phase, queued: bool, now: Timestamp) -> Option<SignedDuration> {
    let began = facts.pod.as_ref().map(|pod| pod.ready_since.unwrap_or_else(|| pod.started_at()))?;
    let may_get_one = facts.ephemeral && queued && matches!(phase.as_told(facts, now), Phase::Idle(_));
    if may_get_one { left(JOB_COMES, began, now) } else { None }
}

fn left(limit: SignedDuration, since: Timestamp, now: Timestamp) -> Option<SignedDuration> {
    Some(limit.saturating_sub(now.duration_since(since))).filter(SignedDuration::is_positive)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::facts::{Container, PodFacts, PodPhase, Worker};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn working(job: Option<&str>) -> Work {
        Work { busy: Some(true), job: job.map(Arc::from) }
    }

    fn idle() -> Work {
        Work { busy: Some(false), job: None }
    }

    fn online(busy: bool) -> RunnerFacts {
        let pod =
            PodFacts { phase: PodPhase::Running, container: Container::Running { since: Some(at(0)) }, ..PodFacts::default() };
        let remote = Remote::Online { id: 1, flag: Flag::of(busy, Duration::ZERO) };
        RunnerFacts { ephemeral: true, pod: Some(pod), remote, ..RunnerFacts::default() }
    }

    /// It came online, and no listing is as new as its pod's last change.
    fn listed_before() -> RunnerFacts {
        RunnerFacts { remote: Remote::Online { id: 1, flag: Flag::Stale }, ..online(false) }
    }

    #[test]
    fn a_runner_works_when_anything_says_so_and_does_not_when_that_is_proved() {
        let job: Option<Arc<str>> = Some(Arc::from("7"));
        let listed = online(true);
        let told = RunnerFacts { reports_job: Some(at(5)), ..online(false) };
        let mut seen = online(false);
        if let Some(pod) = &mut seen.pod {
            pod.worker = Worker::Running;
        }
        let hooked = RunnerFacts { hook_reports_job: true, ..online(false) };
        let told_since = RunnerFacts { reports_job: Some(at(5)), ..listed_before() };
        for (what, facts) in
            [("listing", &listed), ("event", &told), ("pod", &seen), ("hook", &hooked), ("event after a listing", &told_since)]
        {
            assert_eq!(Work::of(facts, Phase::Busy, job.clone(), &Work::default(), at(9)), working(Some("7")), "{what}");
        }
        let over = |mut facts: RunnerFacts| {
            if let Some(pod) = &mut facts.pod {
                pod.phase = PodPhase::Succeeded;
            }
            facts
        };
        let quiet = online(false);
        let done = RunnerFacts { job_over: Some(at(7)), ..online(false) };
        let done_but_listed = RunnerFacts { job_over: Some(at(7)), ..online(true) };
        let lasting = |facts: &RunnerFacts| RunnerFacts { ephemeral: false, ..facts.clone() };
        let said = working(Some("7"));
        let before = listed_before();
        for (what, facts, phase, expected) in [
            ("an older listing says idle, which proves nothing", &before, Phase::Busy, idle()),
            ("and it is being removed: as was said", &before, Phase::Stopping, said.clone()),
            ("every listing says idle", &quiet, Phase::Idle(Duration::ZERO), idle()),
            ("nobody knows: as was said", &quiet, Phase::Busy, said.clone()),
            ("an event says that its job is over", &done, Phase::Busy, idle()),
            ("and an older listing that it works, though it has had its only job", &done_but_listed, Phase::Busy, idle()),
            ("one that may have another job by now", &lasting(&done_but_listed), Phase::Busy, working(Some("8"))),
            ("one of several jobs is over", &lasting(&done), Phase::Offline, idle()),
            ("not connected: as was said", &quiet, Phase::Offline, said.clone()),
            ("being removed: as was said", &quiet, Phase::Stopping, said.clone()),
            ("being removed at work", &told, Phase::Stopping, working(Some("8"))),
            ("not registered", &quiet, Phase::Starting, Work::default()),
            ("its pod is over, whatever the listing says", &over(online(true)), Phase::Dead, Work::default()),
            ("no pod", &RunnerFacts::default(), Phase::Pending, Work::default()),
        ] {
            assert_eq!(Work::of(facts, phase, Some(Arc::from("8")), &said, at(9)), expected, "{what}");
        }
    }

    #[test]
    fn what_changed_is_worth_a_write_once_it_has_lasted() {
        let said = idle();
        let mut turned: Option<Turned> = None;
        for (second, now_is, waits) in [
            (0, idle(), None),
            (100, working(None), Some(10)),
            (104, working(None), Some(6)),
            // It goes back untold.
            (105, idle(), None),
            (106, working(Some("1")), Some(10)),
            (111, working(Some("2")), Some(10)),
            (121, working(Some("2")), Some(0)),
        ] {
            turned = Turned::follow(turned.as_ref(), &now_is, &said, at(second));
            let left = turned.as_ref().map(|turned| turned.waits(at(second)).map_or(0, |wait| wait.as_secs()));
            assert_eq!(left, waits, "after {second} s");
        }
        assert_eq!(turned.map(|turned| turned.since()), Some(at(111)), "it turned when it did, not when it is written");
    }

    #[test]
    fn the_first_word_waits_for_a_job_that_is_queued_and_not_for_long() {
        let facts = online(false);
        let lasting = RunnerFacts { ephemeral: false, ..online(false) };
        let told_since = RunnerFacts { reports_job: Some(at(1)), ..listed_before() };
        let idle = Phase::Idle(Duration::ZERO);
        for (what, facts, phase, queued, second, expected) in [
            ("a job is queued", &facts, idle, true, 2, Some(3)),
            ("none is", &facts, idle, false, 2, None),
            ("it has one", &facts, Phase::Busy, true, 2, None),
            ("an older listing says that it has none", &listed_before(), Phase::Busy, true, 2, Some(3)),
            ("and an event since then that it has", &told_since, Phase::Busy, true, 2, None),
            ("it takes more than one", &lasting, idle, true, 2, None),
            ("it did not come", &facts, idle, true, 5, None),
            ("no pod", &RunnerFacts::default(), idle, true, 2, None),
        ] {
            let wait = awaits_job(facts, phase, queued, at(second)).map(|wait| wait.as_secs());
            assert_eq!(wait, expected, "{what}");
        }
    }
}
