use proptest::prelude::*;

use super::*;
use crate::facts::{Container, FLAG_PATIENCE, PodFacts, PodPhase, Worker};

#[path = "tests/evidence.rs"]
mod evidence;

const NOW: i64 = 2_000_000;
const DAY: i64 = 24 * 3600;

const LIMITS: StopLimits = StopLimits {
    drain: Duration::from_secs(5 * 24 * 3600),
    registration: Duration::from_secs(600),
    linger: Duration::from_secs(60),
    confirmation: Duration::ZERO,
};

const IDLE: Remote = Remote::Online { id: 7, flag: Flag::Idle(FLAG_PATIENCE) };
const BUSY: Remote = Remote::Online { id: 7, flag: Flag::Busy };
const OFFLINE: Remote = Remote::Offline { id: 7, busy: false, since: Duration::from_secs(50) };
const OFFLINE_BUSY: Remote = Remote::Offline { id: 7, busy: true, since: Duration::from_secs(50) };
const ABSENT: Remote = Remote::Absent { since: Duration::from_secs(30) };

const ASK: Step = Step::Unregister { id: 7 };
const DELETE: Step = Step::DeletePod(PodDeletion::Graceful);
const PATIENT: Step = Step::DeletePod(PodDeletion::Patient);
const UNCHANGED: Step = Step::DeletePod(PodDeletion::IfUnchanged);
const FORCE: Step = Step::DeletePod(PodDeletion::Force);
const DRAINING: Step = wait(WaitReason::Draining, 30);
const REGISTERING: Step = wait(WaitReason::Registering, 5);
const LISTING: Step = wait(WaitReason::ListingUnknown, 5);
const TERMINATING: Step = wait(WaitReason::PodTerminating, 60);
const LEAVING: Step = wait(WaitReason::Leaving, 60);

const fn wait(why: WaitReason, seconds: u64) -> Step {
    Step::Wait { why, recheck: Duration::from_secs(seconds) }
}

fn ago(seconds: i64) -> Timestamp {
    Timestamp::from_second(NOW - seconds).unwrap()
}

fn running() -> PodFacts {
    PodFacts {
        created: ago(1000),
        phase: PodPhase::Running,
        node: Some("node-1".into()),
        ready_since: Some(ago(590)),
        container: Container::Running { since: Some(ago(599)) },
        ..PodFacts::default()
    }
}

fn pending() -> PodFacts {
    PodFacts { phase: PodPhase::Pending, ready_since: None, container: Container::Unreported, ..running() }
}

fn ended() -> PodFacts {
    PodFacts { phase: PodPhase::Succeeded, ready_since: None, ..exited(0) }
}

fn exited(exit_code: i32) -> PodFacts {
    let container = Container::Terminated {
        exit_code,
        reason: String::new(),
        message: String::new(),
        started: None,
        finished: Some(ago(10)),
    };
    PodFacts { container, ..running() }
}

fn deleted(pod: PodFacts, seconds_ago: i64) -> PodFacts {
    PodFacts { deleting: Some(ago(seconds_ago)), ..pod }
}

fn known(pod: impl Into<Option<PodFacts>>, remote: Remote) -> RunnerFacts {
    RunnerFacts {
        created: ago(1010),
        ephemeral: true,
        had_pod: true,
        deleting: Some(ago(20)),
        known_id: Some(7),
        pod: pod.into(),
        remote,
        ..RunnerFacts::default()
    }
}

fn unknown(pod: impl Into<Option<PodFacts>>, remote: Remote) -> RunnerFacts {
    RunnerFacts { known_id: remote.id(), ..known(pod, remote) }
}

fn removed(facts: RunnerFacts) -> RunnerFacts {
    RunnerFacts { unregistered: Some(Duration::from_secs(60)), ..facts }
}

fn check(cases: impl IntoIterator<Item = (&'static str, RunnerFacts, Option<u64>, Step)>) {
    for (name, facts, refused, expected) in cases {
        let step = next(&facts, refused.map(Duration::from_secs), &LIMITS, ago(0));
        assert_eq!(step, expected, "{name}");
    }
}

#[test]
fn registration_that_was_made_ahead_is_removed_though_no_listing_shows_it() {
    let awaited = |facts| RunnerFacts { awaited: true, had_pod: false, ..facts };
    check([
        ("no pod, an old listing", awaited(known(None, ABSENT)), None, ASK),
        ("no pod, no listing", awaited(known(None, Remote::Unknown)), None, ASK),
        ("its pod never started", awaited(known(pending(), OFFLINE)), None, ASK),
        ("removed", removed(awaited(known(None, ABSENT))), None, Step::Release),
        ("its agent was seen and is gone", known(None, ABSENT), None, Step::Release),
    ]);
}

/// arc-behaviour 2.9 by row. Rows 10, 11 and 14 (rate limit, 403, anything else) are answers after which the step is simply asked again:
/// they never make `unregistered` true, see the simulation below.
#[test]
fn rows_of_the_graceful_stop() {
    let late = PodFacts { ready_since: Some(ago(600)), ..running() };
    check([
        ("1 unregistered", removed(known(running(), IDLE)), None, PATIENT),
        ("1 unregistered, a listing still says busy", removed(known(running(), BUSY)), Some(1), PATIENT),
        ("2 no id, running", unknown(running(), ABSENT), None, REGISTERING),
        ("2 no id, running, not ready", unknown(PodFacts { ready_since: None, ..running() }, ABSENT), None, REGISTERING),
        ("3 no id, pending", unknown(pending(), ABSENT), None, UNCHANGED),
        ("3 no id, pending, no listing", unknown(pending(), Remote::Unknown), None, UNCHANGED),
        ("4 no id, stopped", unknown(ended(), ABSENT), None, DELETE),
        ("5 no id, ready-timed-out", unknown(late, ABSENT), None, DELETE),
        // Stricter: a stopped pod whose registration is still listed leaves it at GitHub, so it is removed first.
        ("6 id, stopped, listed", known(ended(), OFFLINE), None, ASK),
        ("6 id, stopped, listed as busy", known(ended(), BUSY), None, ASK),
        ("6 id, stopped, no longer listed", known(ended(), ABSENT), None, DELETE),
        ("6 id, stopped, no listing", RunnerFacts { ephemeral: false, ..known(ended(), Remote::Unknown) }, None, ASK),
        // It has most likely removed itself.
        ("6 id, stopped, ephemeral, no listing", known(ended(), Remote::Unknown), None, wait(WaitReason::Finishing, 10)),
        ("7 told to be busy", known(running(), IDLE), Some(0), DRAINING),
        ("7 told to be busy, almost due", known(running(), IDLE), Some(29), DRAINING),
        ("8 told to be busy, then stopped and gone", known(ended(), ABSENT), Some(1), DELETE),
        ("8 told to be busy, then stopped", known(ended(), OFFLINE), Some(1), DRAINING),
        ("9 removed", removed(known(pending(), ABSENT)), None, UNCHANGED),
        // Stricter: an exit code of the container ends no registration; GitHub is asked until the runner is unregistered.
        ("12 busy, container has an exit code", known(exited(1), BUSY), Some(5), DRAINING),
        ("12 busy, container has an exit code, due", known(exited(1), BUSY), Some(30), ASK),
        ("13 busy", known(running(), BUSY), None, DRAINING),
        ("13 busy long ago, idle now", known(running(), IDLE), Some(30), ASK),
    ]);
}

#[test]
fn stricter_rules() {
    let unready =
        |started| PodFacts { ready_since: None, container: Container::Running { since: Some(ago(started)) }, ..running() };
    let gone = |pod: PodFacts| PodFacts { node_gone: true, silent_since: Some(ago(90)), ..pod };
    let hooked = |facts| RunnerFacts { hook_reports_job: true, ..facts };
    let never = |remote| RunnerFacts { had_pod: false, ..unknown(None, remote) };
    check([
        ("idle: unregister before anything", known(running(), IDLE), None, ASK),
        ("offline: the same", known(running(), OFFLINE), None, ASK),
        ("busy and out of contact: its job may go on", known(running(), OFFLINE_BUSY), None, DRAINING),
        ("no listing: asked by id", known(running(), Remote::Unknown), None, ASK),
        ("no listing, no id", unknown(running(), Remote::Unknown), None, LISTING),
        (
            "no listing, no id, stopped: it may have registered unseen",
            RunnerFacts { ephemeral: false, ..unknown(ended(), Remote::Unknown) },
            None,
            LISTING,
        ),
        ("no listing, no id, no pod", unknown(None, Remote::Unknown), None, LISTING),
        ("no pod ever", never(Remote::Unknown), None, Step::Release),
        ("no pod ever, but listed", never(IDLE), None, ASK),
        // A listing is a picture of the past: with a live agent only GitHub's answer counts.
        ("no longer listed, pod runs", known(running(), ABSENT), None, ASK),
        ("no longer listed, pod runs, refused", known(running(), ABSENT), Some(3), DRAINING),
        ("not listed, its hook reports a job", hooked(unknown(running(), ABSENT)), None, DRAINING),
        ("not listed, its hook reports a job, late", hooked(unknown(unready(4000), ABSENT)), None, DRAINING),
        ("listed as idle, its hook reports a job", hooked(known(running(), IDLE)), None, DRAINING),
        // ARC would wait for ever.
        ("not ready for as long as registering may take", unknown(unready(600), ABSENT), None, DELETE),
        ("not ready, not as long", unknown(unready(599), ABSENT), None, REGISTERING),
        ("registered while pending is reported", known(pending(), IDLE), None, ASK),
        ("busy while pending is reported", known(pending(), BUSY), None, DRAINING),
        ("no pod, not listed", known(None, ABSENT), None, Step::Release),
        ("no pod, listed", known(None, OFFLINE), None, ASK),
        ("no pod, listed as busy", known(None, OFFLINE_BUSY), None, ASK),
        ("no pod, refused", known(None, OFFLINE_BUSY), Some(3), DRAINING),
        ("no pod, unregistered", removed(known(None, OFFLINE_BUSY)), Some(3), Step::Release),
        // Nobody is left to finish a job or to honour a grace period.
        ("node gone, busy", known(gone(running()), BUSY), None, FORCE),
        ("node gone, refused", known(gone(running()), BUSY), Some(1), FORCE),
        ("node gone, never registered", unknown(gone(running()), ABSENT), None, FORCE),
        ("node gone, pending", unknown(gone(pending()), ABSENT), None, FORCE),
    ]);
}

/// A process that has just begun does not know what the one before it saw.
#[test]
fn runner_without_a_pod_waits_for_a_second_listing_of_its_scope() {
    let unlisted = |facts: RunnerFacts| RunnerFacts { scope_barely_listed: true, ..facts };
    let never = RunnerFacts { had_pod: false, ..unknown(None, Remote::Unknown) };
    let refused = RunnerFacts { github_refuses: true, ..unlisted(never.clone()) };
    let overdue = RunnerFacts { deleting: Some(ago(5 * DAY + 1)), ..unlisted(never.clone()) };
    for (what, facts, expected) in [
        ("listings came, and none is of use now", never.clone(), Step::Release),
        ("none has come", unlisted(never), LISTING),
        ("none will come", refused, Step::Release),
        ("it is overdue", overdue, Step::Release),
        ("the only one lacks it", unlisted(RunnerFacts { had_pod: false, ..unknown(None, ABSENT) }), LISTING),
        ("the only one lacks one that was known", unlisted(RunnerFacts { pod: None, ..known(ended(), ABSENT) }), LISTING),
        (
            "the only one lacks it, and it is overdue",
            unlisted(RunnerFacts { deleting: Some(ago(5 * DAY + 1)), ..unknown(None, ABSENT) }),
            Step::Release,
        ),
        ("a second one lacks it", RunnerFacts { had_pod: false, ..unknown(None, ABSENT) }, Step::Release),
    ] {
        assert_eq!(next(&facts, None, &LIMITS, ago(0)), expected, "{what}");
    }
}

/// An ephemeral runner that ended removes itself with its job: the next listing says so for all, before GitHub is asked for each.
#[test]
fn pods_that_linger_are_deleted_by_force() {
    const LOST: Remote = Remote::Offline { id: 7, busy: false, since: crate::facts::FLAG_PATIENCE };
    const LOST_BUSY: Remote = Remote::Offline { id: 7, busy: true, since: Duration::from_secs(400) };
    let last_seen = || PodFacts { worker: Worker::Running, silent_since: Some(ago(90)), ..running() };
    let future = |pod| deleted(pod, -30);
    check([
        ("within its grace", removed(known(future(running()), ABSENT)), None, TERMINATING),
        ("just over its grace", removed(known(deleted(running(), 59), ABSENT)), None, TERMINATING),
        ("stuck", removed(known(deleted(running(), 60), ABSENT)), None, FORCE),
        ("stuck, ended", known(deleted(ended(), 60), ABSENT), None, FORCE),
        ("stuck, never started", unknown(deleted(pending(), 60), ABSENT), None, FORCE),
        // Force is no way around GitHub: on a silent node the job may go on.
        ("somebody deleted it under its job", known(future(running()), BUSY), None, DRAINING),
        ("stuck with a job on a silent node", known(deleted(running(), 4000), OFFLINE_BUSY), None, DRAINING),
        ("stuck, idle", known(deleted(running(), 4000), OFFLINE), None, ASK),
        ("a worker was seen before its node fell silent", known(deleted(last_seen(), 80), OFFLINE), None, DRAINING),
        ("the same, and GitHub has counted it as lost for long enough", known(deleted(last_seen(), 80), LOST), None, ASK),
        ("the same, and GitHub counts it as busy", known(deleted(last_seen(), 4000), LOST_BUSY), None, DRAINING),
        (
            "the same, and its node reports",
            known(deleted(PodFacts { silent_since: None, ..last_seen() }, 80), LOST),
            None,
            DRAINING,
        ),
    ]);
    let at_once = StopLimits { linger: Duration::ZERO, ..LIMITS };
    let pod = future(running());
    assert!(matches!(next(&removed(known(pod, ABSENT)), None, &at_once, ago(0)), Step::Wait { .. }), "the grace itself is kept");
}

#[test]
fn a_pod_that_arc_made_is_released_when_nothing_holds_it_up() {
    let held = |pod| PodFacts { held: true, ..pod };
    let going = |pod| held(deleted(pod, -30));
    check([
        ("unregistered", removed(known(held(running()), IDLE)), None, PATIENT),
        ("never started", unknown(held(pending()), ABSENT), None, UNCHANGED),
        ("going", removed(known(going(running()), ABSENT)), None, Step::FreePod),
        ("going, ended", known(going(ended()), ABSENT), None, Step::FreePod),
        ("going, never started", unknown(going(pending()), ABSENT), None, Step::FreePod),
        ("stuck in deletion since before", known(held(deleted(ended(), 4000)), ABSENT), None, Step::FreePod),
        ("deleted under its job", known(going(running()), BUSY), None, DRAINING),
        ("deleted while registered", known(going(running()), IDLE), None, ASK),
        ("not listed yet", unknown(going(running()), ABSENT), None, REGISTERING),
        ("its node is gone", known(PodFacts { node_gone: true, ..held(running()) }, OFFLINE_BUSY), None, FORCE),
        ("forced", known(PodFacts { node_gone: true, ..going(running()) }, OFFLINE_BUSY), None, Step::FreePod),
    ]);
}

#[test]
fn the_deadline_ends_every_wait() {
    let late = |facts, by: i64| RunnerFacts { deleting: Some(ago(5 * DAY + by)), ..facts };
    check([
        ("a second before", late(known(running(), BUSY), -1), None, DRAINING),
        ("GitHub is asked once more", late(known(running(), BUSY), 0), None, ASK),
        ("a refusal from before counts while it is fresh", late(known(running(), BUSY), 5), Some(10), DELETE),
        ("an old refusal does not", late(known(running(), BUSY), 5), Some(100), ASK),
        ("refused since", late(known(running(), BUSY), 40), Some(35), DELETE),
        ("refused since, no listing", late(known(running(), Remote::Unknown), 40), Some(35), DELETE),
        ("calls that fail hold it for a quarter of an hour", late(known(running(), IDLE), 899), None, ASK),
        ("and no longer", late(known(running(), IDLE), 900), None, DELETE),
        ("no listing, no id", late(unknown(running(), Remote::Unknown), 0), None, DELETE),
        ("registering", late(unknown(running(), ABSENT), 0), None, DELETE),
        ("pod gone, GitHub still refuses", late(known(None, OFFLINE_BUSY), 100), Some(10), DRAINING),
        ("pod gone, to be asked again", late(known(None, OFFLINE_BUSY), 100), Some(30), ASK),
        ("pod gone, the registration is left behind", late(known(None, OFFLINE_BUSY), 900), Some(10), Step::Release),
        ("pod gone, no listing, no id", late(unknown(None, Remote::Unknown), 0), None, Step::Release),
        ("pod on its way", late(known(deleted(running(), 10), BUSY), 40), Some(35), TERMINATING),
        ("pod stuck", late(known(deleted(running(), 70), BUSY), 40), Some(35), FORCE),
    ]);
}

#[test]
fn words_are_distinct() {
    let words = [
        WaitReason::Draining,
        WaitReason::Finishing,
        WaitReason::Registering,
        WaitReason::ListingUnknown,
        WaitReason::Confirming,
        WaitReason::Leaving,
        WaitReason::PodTerminating,
    ]
    .map(WaitReason::as_str);
    assert_eq!(words.into_iter().collect::<std::collections::HashSet<_>>().len(), 7);
}

/// What the agent in the pod does, in seconds since the removal was asked for.
#[derive(Clone, Copy, Debug)]
struct Agent {
    /// Its container starts; never if none (a pod that no node takes).
    starts: Option<i64>,
    /// It registers so long after its start; never if none.
    registers: Option<i64>,
    /// A job begins and ends, if it is still registered by then; `i64::MAX` is a job that never ends.
    job: Option<(i64, i64)>,
    /// It exits after its job.
    ephemeral: bool,
    /// The kubelet answers; if not, only force removes the pod, and GitHub loses contact.
    silent_from: Option<i64>,
    /// The node's object vanishes.
    node_gone_from: Option<i64>,
    /// An exit leaves the registration listed (a kill that gives no time to remove it).
    leaks: bool,
    /// ARC made its pod, with finalizers.
    inherited: bool,
    /// The kubelet looks for its worker process.
    watched: bool,
}

/// What GitHub's API does.
#[derive(Clone, Copy, Debug)]
struct Service {
    /// Until then removals are answered with 403, 429 or 5xx.
    removals_fail_until: i64,
    /// Until then there is no listing that proves anything.
    listings_fail_until: i64,
    /// Listings lag by so much in their busy flag (and in nothing else).
    flag_lags: i64,
    /// Removals go by that flag.
    trusts_flag: bool,
}

const PLAIN: Agent = Agent {
    starts: Some(-900),
    registers: Some(5),
    job: None,
    ephemeral: true,
    silent_from: None,
    node_gone_from: None,
    leaks: false,
    inherited: false,
    watched: false,
};

const HEALTHY: Service =
    Service { removals_fail_until: i64::MIN, listings_fail_until: i64::MIN, flag_lags: 0, trusts_flag: false };

/// A job shows in the pod's status so long after its beginning: the probe's period, and the way to the operator.
const POD_LAGS: i64 = 6;

const GRACE: i64 = 30;

struct World {
    agent: Agent,
    service: Service,
    time: i64,
    known_id: bool,
    /// GitHub took the registration away.
    removed: Option<i64>,
    /// It did so under a job that neither its flag nor the pod showed yet.
    unseen: bool,
    refused: Option<i64>,
    /// Deletion timestamp of the pod.
    pod_deleting: Option<i64>,
    pod_gone: bool,
    /// Finalizers are on the pod.
    held: bool,
    /// Nothing but finalizers keeps the pod's object.
    over: bool,
    deletion_asked: Option<i64>,
    asked: u32,
    trace: Vec<(i64, Step)>,
}

impl World {
    fn new(agent: Agent, service: Service) -> Self {
        // The operator has seen the listing of a runner that registered before.
        let known_id = registered_at(&agent).is_some_and(|at| at < -60);
        Self {
            agent,
            service,
            time: 0,
            known_id,
            removed: None,
            unseen: false,
            refused: None,
            pod_deleting: None,
            pod_gone: false,
            held: agent.inherited,
            over: false,
            deletion_asked: None,
            asked: 0,
            trace: Vec::new(),
        }
    }

    fn started(&self) -> bool {
        self.agent.starts.is_some_and(|at| at <= self.time)
    }

    /// Whether a process runs, seen from beside it.
    fn lives(&self) -> bool {
        let job_done = self.agent.ephemeral && self.job().is_some_and(|(_, end)| end <= self.time);
        let killed = !self.silent() && self.pod_deleting.is_some_and(|at| at <= self.time);
        self.started() && !job_done && !killed && !self.node_gone() && !self.pod_gone
    }

    fn silent(&self) -> bool {
        self.agent.silent_from.is_some_and(|at| at <= self.time)
    }

    fn node_gone(&self) -> bool {
        self.agent.node_gone_from.is_some_and(|at| at <= self.time)
    }

    /// The job that it really got: none begins before it is registered or after it is removed.
    fn job(&self) -> Option<(i64, i64)> {
        let registered = registered_at(&self.agent)?;
        self.agent.job.filter(|(begin, _)| *begin >= registered && self.removed.is_none_or(|removed| *begin < removed))
    }

    fn busy_at(&self, time: i64) -> bool {
        self.job().is_some_and(|(begin, end)| begin <= time && time < end)
    }

    /// GitHub gives up a job ten minutes after it lost contact.
    fn busy_at_github(&self, time: i64) -> bool {
        let lost = [self.agent.silent_from, self.agent.node_gone_from, self.deletion_asked].into_iter().flatten().min();
        self.busy_at(time) && lost.is_none_or(|lost| time < lost.saturating_add(600))
    }

    /// For how long the listings have said that it is idle; it was long before the simulation begins.
    fn idle(&self) -> Duration {
        let since = self.job().map_or(i64::from(i32::MIN), |(begin, end)| {
            let (begin, end) = (begin + self.service.flag_lags, end.saturating_add(self.service.flag_lags));
            if self.time < begin { i64::from(i32::MIN) } else { end }
        });
        Duration::from_secs(u64::try_from(self.time.saturating_sub(since)).unwrap_or_default())
    }

    fn registered(&self) -> bool {
        let exited = !self.lives() && !self.agent.leaks && !self.silent() && !self.node_gone();
        registered_at(&self.agent).is_some_and(|at| at <= self.time) && self.removed.is_none() && !exited
    }

    fn facts(&mut self) -> RunnerFacts {
        let remote = if self.time < self.service.listings_fail_until {
            Remote::Unknown
        } else if !self.registered() {
            Remote::Absent { since: Duration::from_secs(1) }
        } else if self.silent() || !self.lives() {
            Remote::Offline { id: 7, busy: self.busy_at_github(self.time - self.service.flag_lags), since: Duration::ZERO }
        } else {
            let flag = Flag::of(self.busy_at_github(self.time - self.service.flag_lags), self.idle());
            Remote::Online { id: 7, flag }
        };
        self.known_id |= remote.id().is_some();
        RunnerFacts {
            ephemeral: self.agent.ephemeral,
            had_pod: true,
            deleting: Some(self.at(0)),
            known_id: self.known_id.then_some(7),
            pod: (!self.pod_gone).then(|| self.pod()),
            remote,
            unlisted_since: self.time < self.service.listings_fail_until,
            unregistered: self.removed.map(|at| Duration::from_secs((self.time - at).unsigned_abs())),
            ..RunnerFacts::default()
        }
    }

    fn pod(&self) -> PodFacts {
        let starts = self.agent.starts.filter(|at| *at <= self.time).map(|at| self.at(at));
        let exited = self.started() && !self.lives() && !self.silent() && !self.node_gone();
        let (phase, container) = match starts {
            None => (PodPhase::Pending, Container::Unreported),
            Some(_) if exited => (
                PodPhase::Succeeded,
                Container::Terminated {
                    exit_code: 0,
                    reason: String::new(),
                    message: String::new(),
                    started: None,
                    finished: self
                        .job()
                        .filter(|(_, end)| self.agent.ephemeral && *end <= self.time)
                        .map(|(_, end)| self.at(end)),
                },
            ),
            Some(_) => (PodPhase::Running, Container::Running { since: starts }),
        };
        PodFacts {
            created: self.at(-1000),
            phase,
            node: Some("node".into()),
            node_gone: self.node_gone(),
            deleting: self.pod_deleting.map(|at| self.at(at)),
            held: self.held,
            ready_since: starts.filter(|_| !exited && !self.silent()),
            container,
            worker: match self.agent.watched && self.lives() && !self.silent() {
                false => Worker::Unknown,
                true if self.busy_at(self.time - POD_LAGS) => Worker::Running,
                true => Worker::Absent { since: None },
            },
            ..PodFacts::default()
        }
    }

    fn at(&self, second: i64) -> Timestamp {
        Timestamp::from_second(NOW + second).unwrap()
    }

    /// One look, what it leads to, and the time until the next.
    fn step(&mut self, limits: &StopLimits) -> Result<bool, TestCaseError> {
        // What the kubelet has finished is gone from the API server.
        if !self.silent() && !self.node_gone() && self.pod_deleting.is_some_and(|at| at <= self.time) {
            self.remove();
        }
        let facts = self.facts();
        let refused = self.refused.map(|at| Duration::from_secs((self.time - at).unsigned_abs()));
        let step = next(&facts, refused, limits, self.at(self.time));
        self.trace.push((self.time, step));
        let pause = match step {
            Step::Unregister { id } => {
                prop_assert_eq!(id, 7);
                self.asked += 1;
                if self.time < self.service.removals_fail_until {
                    10
                } else if self.registered() && self.refuses() {
                    self.refused = Some(self.time);
                    // Something wakes the operator early, or nothing does.
                    if self.asked.is_multiple_of(2) { 30 } else { 7 }
                } else {
                    // The agent cancels a job whose registration is gone. One that has just begun can be seen by nobody.
                    let visible = self.lives() && self.busy_at(self.time) && self.busy_at(self.time - POD_LAGS) && !self.silent();
                    let spared = !self.agent.watched || self.overdue(limits) || self.node_gone();
                    prop_assert!(spared || !visible, "removed under its job: {:?}", self.trace);
                    self.unseen = self.busy_at(self.time) && !visible;
                    self.removed = Some(self.time);
                    0
                }
            }
            Step::DeletePod(how) => {
                self.allowed(how, limits)?;
                self.deletion_asked.get_or_insert(self.time);
                match how {
                    PodDeletion::Force => self.remove(),
                    PodDeletion::Graceful | PodDeletion::Patient => {
                        self.pod_deleting.get_or_insert(self.time + GRACE);
                    }
                    // Nothing to stop: the API server takes it away, unless the agent has started in the meantime.
                    PodDeletion::IfUnchanged if !self.started() => self.remove(),
                    PodDeletion::IfUnchanged => {}
                }
                1
            }
            Step::FreePod => {
                prop_assert!(self.held && self.pod_deleting.is_some(), "nothing to free: {:?}", self.trace);
                self.allowed(PodDeletion::Graceful, limits)?;
                self.held = false;
                self.pod_gone = self.over;
                1
            }
            Step::Wait { recheck, .. } => i64::try_from(recheck.as_secs()).unwrap(),
            Step::Release => {
                prop_assert!(self.pod_gone, "released with its pod");
                prop_assert!(!self.registered() || self.overdue(limits), "released with its registration");
                return Ok(true);
            }
        };
        self.time += pause;
        Ok(false)
    }

    fn refuses(&self) -> bool {
        self.busy_at_github(if self.service.trusts_flag { self.time - self.service.flag_lags } else { self.time })
    }

    /// The API server has no reason to keep the pod but its finalizers.
    fn remove(&mut self) {
        self.over = true;
        self.pod_deleting.get_or_insert(self.time);
        self.pod_gone = !self.held;
    }

    fn overdue(&self, limits: &StopLimits) -> bool {
        u64::try_from(self.time).unwrap() >= limits.drain.as_secs()
    }

    /// No job is ended, and no registration is left to a pod that goes, before the deadline or the node's end.
    fn allowed(&self, how: PodDeletion, limits: &StopLimits) -> Result<(), TestCaseError> {
        if self.node_gone() || self.overdue(limits) {
            return Ok(());
        }
        prop_assert!(!self.registered(), "pod deleted while registered: {:?}", self.trace);
        let known = self.agent.watched || !self.service.trusts_flag;
        // GitHub took the registration away under a job that nobody could see, and the node says nothing of it either.
        let known = known && !(self.unseen && self.silent());
        prop_assert!(!(known && self.lives() && self.busy_at_github(self.time)), "job killed: {:?}", self.trace);
        prop_assert!(how != PodDeletion::IfUnchanged || !self.started(), "taken for unstarted: {:?}", self.trace);
        Ok(())
    }

    /// Runs to the end.
    fn run(mut self, limits: &StopLimits) -> Result<Self, TestCaseError> {
        let patience = i64::try_from(limits.drain.as_secs()).unwrap() + 900 + 120 + GRACE;
        while !self.step(limits)? {
            prop_assert!(self.time <= patience, "still not released after {patience} s: {:?}", self.trace.last());
        }
        Ok(self)
    }

    fn simulated(agent: Agent, service: Service) -> Self {
        Self::new(agent, service).run(&LIMITS).unwrap()
    }

    /// The steps without repetitions.
    fn steps(&self) -> Vec<Step> {
        let mut steps: Vec<Step> = self.trace.iter().map(|(_, step)| *step).collect();
        steps.dedup();
        steps
    }
}

fn registered_at(agent: &Agent) -> Option<i64> {
    Some(agent.starts? + agent.registers?)
}

#[test]
fn whole_stops() {
    let busy = Agent { job: Some((-100, 1000)), ..PLAIN };
    let cases = [
        ("idle", PLAIN, HEALTHY, vec![ASK, LEAVING, PATIENT, TERMINATING, Step::Release]),
        ("busy, then done and gone", busy, HEALTHY, vec![DRAINING, DELETE, TERMINATING, Step::Release]),
        (
            "persistent: unregistered after its job",
            Agent { ephemeral: false, ..busy },
            HEALTHY,
            vec![DRAINING, wait(WaitReason::Confirming, 70), ASK, LEAVING, PATIENT, TERMINATING, Step::Release],
        ),
        (
            "422 while the flag says idle",
            Agent { job: Some((-100, 50)), ephemeral: false, ..PLAIN },
            Service { flag_lags: 200, ..HEALTHY },
            vec![ASK, DRAINING, ASK, LEAVING, PATIENT, TERMINATING, Step::Release],
        ),
        (
            "never registers",
            Agent { starts: Some(-100), registers: None, ..PLAIN },
            HEALTHY,
            vec![REGISTERING, DELETE, TERMINATING, Step::Release],
        ),
        (
            "registers in the middle",
            Agent { starts: Some(-10), registers: Some(20), ..PLAIN },
            HEALTHY,
            vec![REGISTERING, ASK, LEAVING, PATIENT, TERMINATING, Step::Release],
        ),
        ("pod pending", Agent { starts: None, registers: None, ..PLAIN }, HEALTHY, vec![UNCHANGED, Step::Release]),
        (
            "node gone under a job: GitHub takes its time to see it",
            Agent { node_gone_from: Some(0), ..busy },
            HEALTHY,
            vec![FORCE, ASK, DRAINING, ASK, DRAINING],
        ),
        (
            "node silent under a job",
            Agent { silent_from: Some(0), ephemeral: false, ..busy },
            HEALTHY,
            vec![DRAINING, ASK, LEAVING, PATIENT, TERMINATING, FORCE, Step::Release],
        ),
        (
            "no listing, known by id",
            PLAIN,
            Service { listings_fail_until: 10_000, ..HEALTHY },
            vec![ASK, LEAVING, PATIENT, TERMINATING, Step::Release],
        ),
        (
            "no listing, never seen",
            Agent { starts: Some(-50), ..PLAIN },
            Service { listings_fail_until: 300, ..HEALTHY },
            vec![LISTING, ASK, LEAVING, PATIENT, TERMINATING, Step::Release],
        ),
        (
            "403 and 5xx are asked again",
            PLAIN,
            Service { removals_fail_until: 3600, ..HEALTHY },
            vec![ASK, LEAVING, PATIENT, TERMINATING, Step::Release],
        ),
        (
            "killed without removing itself",
            Agent { job: Some((-100, 20)), leaks: true, ..PLAIN },
            HEALTHY,
            vec![DRAINING, ASK, DELETE, TERMINATING, Step::Release],
        ),
        (
            "made by ARC",
            Agent { inherited: true, ..busy },
            HEALTHY,
            vec![DRAINING, DELETE, Step::FreePod, TERMINATING, Step::Release],
        ),
    ];
    for (name, agent, service, expected) in cases {
        let steps = World::simulated(agent, service).steps();
        assert_eq!(steps.get(..expected.len()), Some(&expected[..]), "{name}: {steps:?}");
        assert_eq!(steps.last(), Some(&Step::Release), "{name}");
    }
}

#[test]
fn a_job_that_never_ends_ends_at_the_deadline() {
    let world = World::simulated(Agent { job: Some((-100, i64::MAX)), leaks: true, ..PLAIN }, HEALTHY);
    let deletion = world.deletion_asked.unwrap();
    assert!((5 * DAY..5 * DAY + 60).contains(&deletion), "{deletion}");
    // Its flag is believed until then, after that GitHub has a last word, and more of them while only the object waits.
    assert!(world.asked <= 31, "{}", world.asked);
    assert!(world.removed.is_some(), "GitHub let it go once it had lost contact");
}

#[test]
fn a_service_that_fails_for_ever_holds_nothing_for_ever() {
    let world = World::simulated(PLAIN, Service { removals_fail_until: i64::MAX, ..HEALTHY });
    assert_eq!(world.removed, None);
    assert!((5 * DAY + 900..5 * DAY + 930).contains(&world.deletion_asked.unwrap()), "{:?}", world.deletion_asked);
}

#[test]
fn a_busy_runner_is_not_asked_about() {
    let world = World::simulated(Agent { job: Some((-100, 4 * DAY)), ..PLAIN }, HEALTHY);
    assert_eq!(world.asked, 0, "the flag of a fresh listing is enough");
}

fn any_agent() -> impl Strategy<Value = Agent> {
    let job = proptest::option::of((-500..3000_i64, prop_oneof![4 => 1..5000_i64, 1 => Just(i64::MAX / 2)]));
    (
        proptest::option::weighted(0.9, -900..200_i64),
        proptest::option::weighted(0.8, 1..500_i64),
        job,
        any::<(bool, bool, bool, bool)>(),
        proptest::option::weighted(0.2, -100..4000_i64),
        proptest::option::weighted(0.2, -100..4000_i64),
    )
        .prop_map(|(starts, registers, job, (ephemeral, leaks, inherited, watched), silent_from, node_gone_from)| Agent {
            starts,
            registers,
            job: job.map(|(begin, lasts)| (begin, begin + lasts)),
            ephemeral,
            silent_from,
            node_gone_from,
            leaks,
            inherited,
            watched,
        })
}

fn any_service() -> impl Strategy<Value = Service> {
    let until = || prop_oneof![3 => Just(i64::MIN), 3 => 0..3000_i64, 1 => Just(i64::MAX)];
    (until(), until(), prop_oneof![Just(0_i64), 0..600_i64], any::<bool>()).prop_map(
        |(removals_fail_until, listings_fail_until, flag_lags, trusts_flag)| Service {
            removals_fail_until,
            listings_fail_until,
            flag_lags,
            trusts_flag,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    /// Whatever the agent, the node and GitHub do: no job is killed and no registration left behind before the deadline (checked at every
    /// step), and the stop ends.
    #[test]
    fn every_stop_is_safe_and_ends(agent in any_agent(), service in any_service(), drain in 600..20_000_u64) {
        World::new(agent, service).run(&StopLimits {
            drain: Duration::from_secs(drain),
            confirmation: Duration::from_secs(10),
            ..LIMITS
        })?;
    }
}
