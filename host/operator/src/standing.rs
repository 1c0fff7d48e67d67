//! Where each runner stands by now, and what went wrong of late: for people who watch. Decisions read neither.
//!
//! Whoever observes a runner to decide about it says here what was found; all of it may be lost at any moment.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use pacer_cluster::object::Uid;
use pacer_core::facts::{PodFacts, RunnerFacts};
use pacer_core::phase::{Assessment, Cause, Phase, Trouble};
use serde::{Deserialize, Serialize};

/// Failures that are remembered; the oldest go first.
const FAILURES: usize = 200;

/// Longest message of the cluster that is remembered, in characters.
const MESSAGE: usize = 300;

/// Where a runner stands, in the words of those who watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Its container has not started.
    Pending,
    /// Started, not registered yet.
    Starting,
    /// Registered, connected, and without a job.
    Idle,
    /// Runs a job, or nobody can tell whether it does.
    Busy,
    /// Registered, not connected, no job.
    Offline,
    /// Over, or about to be after its only job, and not decided on yet.
    Ended,
    /// Kept as it is for people to look at.
    Quarantined,
    /// Its deletion has been asked for.
    Stopping,
}

impl State {
    fn of(facts: &RunnerFacts, phase: Phase, now: Timestamp) -> Self {
        match phase.as_told(facts, now) {
            Phase::Stopping => Self::Stopping,
            _ if facts.quarantined => Self::Quarantined,
            Phase::Pending => Self::Pending,
            Phase::Starting => Self::Starting,
            // It takes no other job, although GitHub lists it until its agent is gone.
            Phase::Idle(_) if facts.ephemeral && facts.had_job => Self::Ended,
            Phase::Idle(_) => Self::Idle,
            Phase::Busy => Self::Busy,
            Phase::Offline => Self::Offline,
            Phase::Dead => Self::Ended,
        }
    }
}

/// Where one runner stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// What it is doing.
    pub state: State,
    /// Since when, as far as this process can tell.
    pub since: Timestamp,
    /// What is wrong, if anything. That it did its job is nothing wrong.
    pub trouble: Option<Arc<Trouble>>,
}

/// Something went wrong with a runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Grows with every failure of this process.
    pub number: u64,
    /// Namespace of the runner.
    pub namespace: String,
    /// Name of the runner.
    pub runner: String,
    /// Its RunnerReplicaSet, if it has one.
    pub set: Option<String>,
    /// What happened, why and since when.
    pub trouble: Arc<Trouble>,
}

/// Failures of one cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many there were since the process began.
    pub total: u64,
    /// When the last one began.
    pub last: Timestamp,
}

/// Whose standing is told.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// UID of the Runner.
    pub uid: &'a Uid,
    /// Namespace of the Runner.
    pub namespace: &'a str,
    /// Its RunnerReplicaSet, if it has one.
    pub set: Option<&'a str>,
}

/// Where all runners stand, and their newest failures.
#[derive(Debug, Default)]
pub struct Standings(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    runners: HashMap<Uid, Standing>,
    failures: VecDeque<Arc<Failure>>,
    tallies: BTreeMap<&'static str, Tally>,
    number: u64,
}

impl Standings {
    /// Where a runner stands; none before it was observed.
    #[must_use]
    pub fn of(&self, runner: &Uid) -> Option<Standing> {
        self.lock().runners.get(runner).cloned()
    }

    /// The newest failures, the oldest first.
    #[must_use]
    pub fn failures(&self) -> Vec<Arc<Failure>> {
        self.lock().failures.iter().cloned().collect()
    }

    /// Failures by cause since the process began.
    #[must_use]
    pub fn tallies(&self) -> BTreeMap<&'static str, Tally> {
        self.lock().tallies.clone()
    }

    /// A runner was observed.
    pub(crate) fn tell(&self, of: Subject<'_>, facts: &RunnerFacts, assessment: &Assessment, now: Timestamp) {
        let state = State::of(facts, assessment.phase, now);
        let trouble = assessment.trouble.as_ref().filter(|trouble| trouble.cause != Cause::Completed);
        let mut inner = self.lock();
        let before = inner.runners.get(of.uid);
        let known = before.and_then(|before| before.trouble.as_ref());
        if before.is_some_and(|before| before.state == state) && is_same(known, trouble) {
            return;
        }
        let since = match before {
            Some(before) if before.state == state => before.since,
            before => began(facts, assessment, now, before.is_none()),
        };
        let is_news = trouble.is_some_and(|trouble| known.is_none_or(|known| known.cause != trouble.cause));
        let trouble = trouble.map(|trouble| Arc::new(bounded(trouble)));
        if let (true, Some(trouble)) = (is_news, &trouble) {
            inner.fail(of, &facts.name, trouble.clone());
        }
        inner.runners.insert(of.uid.clone(), Standing { state, since, trouble });
    }

    /// Forgets runners that do not exist.
    pub(crate) fn retain(&self, exists: impl Fn(&Uid) -> bool) {
        self.lock().runners.retain(|runner, _| exists(runner));
    }

    /// A poisoned lock only means that another reconcile panicked while it told something.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn fail(&mut self, of: Subject<'_>, name: &str, trouble: Arc<Trouble>) {
        self.number = self.number.saturating_add(1);
        let tally = self.tallies.entry(trouble.cause.as_str()).or_default();
        *tally = Tally { total: tally.total.saturating_add(1), last: tally.last.max(trouble.since) };
        if self.failures.len() >= FAILURES {
            self.failures.pop_front();
        }
        self.failures.push_back(Arc::new(Failure {
            number: self.number,
            namespace: of.namespace.to_owned(),
            runner: name.to_owned(),
            set: of.set.map(str::to_owned),
            trouble,
        }));
    }
}

/// When the state that it is in began. Where this process meets it in that state, its objects may tell.
fn began(facts: &RunnerFacts, assessment: &Assessment, now: Timestamp, met: bool) -> Timestamp {
    match (assessment.phase, &assessment.trouble) {
        (Phase::Idle(lasting), _) => {
            let lasting = SignedDuration::try_from(lasting).unwrap_or_default();
            now.checked_sub(lasting).unwrap_or(now)
        }
        (Phase::Dead | Phase::Offline, Some(trouble)) => trouble.since,
        (Phase::Stopping, _) => facts.deleting.map_or(now, |deleting| deleting.min(now)),
        (Phase::Pending, _) if met => facts.created,
        (Phase::Starting, _) if met => facts.pod.as_ref().map_or(now, PodFacts::started_at),
        _ => now,
    }
}

fn is_same(known: Option<&Arc<Trouble>>, trouble: Option<&Trouble>) -> bool {
    let (Some(known), Some(trouble)) = (known, trouble) else { return known.is_none() && trouble.is_none() };
    let said = known.message.strip_suffix('…').unwrap_or(&known.message);
    (known.situation, known.cause, known.since) == (trouble.situation, trouble.cause, trouble.since)
        && trouble.message.starts_with(said)
}

/// Messages may be as long as whoever wrote them likes.
fn bounded(trouble: &Trouble) -> Trouble {
    let message = match trouble.message.char_indices().nth(MESSAGE) {
        Some((end, _)) => format!("{}…", trouble.message.get(..end).unwrap_or_default()),
        None => trouble.message.clone(),
    };
    Trouble { message, ..trouble.clone() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pacer_core::facts::{Flag, Remote};
    use pacer_core::phase::Situation;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn trouble(cause: Cause, since: i64) -> Option<Trouble> {
        let message = "m".repeat(1_000);
        Some(Trouble { situation: Situation::Ended, cause, since: at(since), exit_code: None, message })
    }

    fn told(steps: &[(Phase, Option<Trouble>, i64)]) -> (Standings, Uid) {
        let (standings, uid) = (Standings::default(), Uid::new("u").unwrap());
        let subject = Subject { uid: &uid, namespace: "ci", set: Some("web-1") };
        let facts = RunnerFacts { name: "a".into(), created: at(5), ..RunnerFacts::default() };
        for (phase, trouble, now) in steps {
            let assessment = Assessment { phase: *phase, trouble: trouble.clone() };
            standings.tell(subject, &facts, &assessment, at(*now));
        }
        (standings, uid)
    }

    #[test]
    fn a_state_lasts_from_its_first_observation_or_from_what_objects_tell() {
        let idle = |seconds| Phase::Idle(Duration::from_secs(seconds));
        for (what, steps, state, since) in [
            ("met pending", vec![(Phase::Pending, None, 100)], State::Pending, 5),
            ("starts now", vec![(Phase::Pending, None, 100), (Phase::Starting, None, 110)], State::Starting, 110),
            ("met busy", vec![(Phase::Busy, None, 100), (Phase::Busy, None, 130)], State::Busy, 100),
            ("idle in listings", vec![(idle(30), None, 100), (idle(60), None, 130)], State::Idle, 70),
            (
                "over before it was seen",
                vec![(Phase::Busy, None, 100), (Phase::Dead, trouble(Cause::Exit, 90), 101)],
                State::Ended,
                90,
            ),
        ] {
            let (standings, uid) = told(&steps);
            let standing = standings.of(&uid).unwrap();
            assert_eq!((standing.state, standing.since), (state, at(since)), "{what}");
        }
    }

    #[test]
    fn ephemeral_runner_is_not_idle_when_it_has_had_its_job() {
        for (ephemeral, had_job, expected) in
            [(true, false, State::Idle), (true, true, State::Ended), (false, false, State::Idle), (false, true, State::Idle)]
        {
            let facts = RunnerFacts { ephemeral, had_job, ..RunnerFacts::default() };
            assert_eq!(State::of(&facts, Phase::Idle(Duration::ZERO), at(9)), expected, "{ephemeral} {had_job}");
        }
    }

    #[test]
    fn runner_is_busy_when_somebody_says_so_and_not_while_its_listing_is_old() {
        let listed = |flag| RunnerFacts { remote: Remote::Online { id: 7, flag }, ..RunnerFacts::default() };
        for (what, facts, expected) in [
            ("the listing is older than its pod", listed(Flag::Stale), State::Idle),
            ("and an event tells of a job", RunnerFacts { reports_job: Some(at(8)), ..listed(Flag::Stale) }, State::Busy),
            ("the listing has it busy", listed(Flag::Busy), State::Busy),
        ] {
            assert_eq!(State::of(&facts, Phase::Busy, at(9)), expected, "{what}");
        }
    }

    #[test]
    fn a_failure_is_told_once_and_a_done_job_is_none() {
        let (standings, uid) = told(&[
            (Phase::Dead, trouble(Cause::OomKilled, 90), 100),
            (Phase::Dead, trouble(Cause::OomKilled, 90), 101),
            (Phase::Stopping, None, 102),
        ]);
        assert_eq!(standings.failures().len(), 1);
        assert!(standings.failures()[0].trouble.message.chars().count() <= MESSAGE + 1);
        assert_eq!(standings.tallies()["oom-killed"], Tally { total: 1, last: at(90) });
        assert_eq!(standings.of(&uid).unwrap().state, State::Stopping);
        standings.retain(|_| false);
        assert_eq!(standings.of(&uid), None);
        let (standings, uid) = told(&[(Phase::Dead, trouble(Cause::Completed, 90), 100)]);
        assert_eq!((standings.failures().len(), standings.of(&uid).unwrap().trouble), (0, None));
    }

    #[test]
    fn old_failures_make_room_for_new_ones() {
        let steps: Vec<_> = (0..1_000).map(|n| (Phase::Dead, trouble([Cause::Exit, Cause::Evicted][n % 2], 1), 100)).collect();
        let (standings, _) = told(&steps);
        let failures = standings.failures();
        assert_eq!((failures.len(), failures.last().unwrap().number), (FAILURES, 1_000));
    }
}
