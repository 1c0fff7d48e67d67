use proptest::prelude::*;

use super::*;
use crate::facts::{Disruption, Refusal};

const NOW: i64 = 1_000_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn ago_s(seconds: i64) -> Timestamp {
    at(NOW - seconds)
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Made 1000 s ago, bound to a node, its container running for 900 s and ready for 890 s.
fn running_pod() -> PodFacts {
    PodFacts {
        uid: Some("pod".into()),
        created: ago_s(1000),
        phase: PodPhase::Running,
        node: Some("node-1".into()),
        ready_since: Some(ago_s(890)),
        container: Container::Running { since: Some(ago_s(900)) },
        ..PodFacts::default()
    }
}

fn pending_pod() -> PodFacts {
    PodFacts { phase: PodPhase::Pending, ready_since: None, container: Container::Unreported, ..running_pod() }
}

fn waiting(reason: &str) -> PodFacts {
    PodFacts { container: Container::Waiting { reason: reason.into(), message: String::new() }, ..pending_pod() }
}

/// Its container ended 60 s ago.
fn terminated(exit_code: i32, reason: &str, message: &str) -> Container {
    Container::Terminated {
        exit_code,
        reason: reason.into(),
        message: message.into(),
        started: Some(ago_s(900)),
        finished: Some(ago_s(60)),
    }
}

fn ended_pod(phase: PodPhase, exit_code: i32) -> PodFacts {
    PodFacts { phase, ready_since: None, container: terminated(exit_code, "", ""), ..running_pod() }
}

/// Failed as a whole, without a word about its container.
fn failed_pod(reason: &str) -> PodFacts {
    PodFacts {
        phase: PodPhase::Failed,
        ready_since: None,
        container: Container::Unreported,
        reason: reason.into(),
        ..running_pod()
    }
}

/// An ephemeral runner that registered with id 7 and runs in this pod.
fn runner(pod: PodFacts) -> RunnerFacts {
    RunnerFacts {
        name: "r".into(),
        created: ago_s(1010),
        current: true,
        ephemeral: true,
        known_id: Some(7),
        had_pod: true,
        pod: Some(pod),
        ..RunnerFacts::default()
    }
}

fn unregistered(pod: PodFacts) -> RunnerFacts {
    RunnerFacts { known_id: None, remote: Remote::Absent { since: secs(1000) }, ..runner(pod) }
}

fn without(had_pod: bool, remote: Remote) -> RunnerFacts {
    RunnerFacts { pod: None, had_pod, remote, ..runner(running_pod()) }
}

const IDLE: Remote = Remote::Online { id: 7, flag: Flag::Idle(Duration::from_secs(40)) };
const BUSY: Remote = Remote::Online { id: 7, flag: Flag::Busy };
const OFFLINE: Remote = Remote::Offline { id: 7, busy: false, since: Duration::from_secs(50) };
const OFFLINE_BUSY: Remote = Remote::Offline { id: 7, busy: true, since: Duration::from_secs(50) };
const ABSENT: Remote = Remote::Absent { since: Duration::from_secs(30) };

fn listed(remote: Remote) -> RunnerFacts {
    RunnerFacts { remote, ..runner(running_pod()) }
}

/// The vectors of arc-behaviour 9.9, and the stricter ones.
#[test]
fn a_runner_that_keeps_waiting_hurries_no_listing() {
    let started = |seconds| PodFacts { container: Container::Running { since: Some(ago_s(seconds)) }, ..running_pod() };
    let over = |seconds| {
        let container = Container::Terminated {
            exit_code: 1,
            reason: String::new(),
            message: String::new(),
            started: Some(ago_s(800)),
            finished: Some(ago_s(seconds)),
        };
        RunnerFacts { known_id: Some(7), ..unregistered(PodFacts { container, ..running_pod() }) }
    };
    for (what, facts, expected) in [
        ("starting", unregistered(started(59)), true),
        ("starting for ever", unregistered(started(60)), false),
        ("ended", over(59), true),
        ("ended long ago", over(60), false),
        ("kept for somebody to look at", RunnerFacts { quarantined: true, ..over(1) }, false),
    ] {
        let wanted = |told_by| wants_listing(&facts, &assess(&facts, at(NOW)), told_by, at(NOW));
        assert_eq!(wanted(ToldBy::Listings), expected.then_some(Duration::ZERO), "{what}");
        assert_eq!(wanted(ToldBy::Events).is_some(), expected, "{what}");
    }
}

#[test]
fn a_listing_waits_for_the_event_that_says_the_same() {
    for (seconds, expected) in [(0, 20), (4, 16), (20, 0), (59, 0)] {
        let container = Container::Running { since: Some(ago_s(seconds)) };
        let facts = unregistered(PodFacts { container, ..running_pod() });
        let wanted = wants_listing(&facts, &assess(&facts, at(NOW)), ToldBy::Events, at(NOW));
        assert_eq!(wanted, Some(Duration::from_secs(expected)), "{seconds} s after its start");
    }
}

#[test]
fn stopped() {
    let cases = [
        ("succeeded", PodFacts { phase: PodPhase::Succeeded, ..PodFacts::default() }, true),
        ("failed", PodFacts { phase: PodPhase::Failed, ..PodFacts::default() }, true),
        ("running, runner container ended with 1", ended_pod(PodPhase::Running, 1), true),
        ("running, runner container ended with 0", ended_pod(PodPhase::Running, 0), true),
        // Only the `runner` container makes facts: an ended docker container leaves this one running.
        ("running, only docker ended", running_pod(), false),
        ("deleted before any node took it", PodFacts { node: None, deleting: Some(at(NOW)), ..pending_pod() }, true),
        ("pending", PodFacts { node: None, ..pending_pod() }, false),
        ("unknown", PodFacts { phase: PodPhase::Unknown, ..PodFacts::default() }, false),
        // Stricter than ARC: once a node has it, the kubelet may have started it and not said so yet.
        ("deleted after a node took it", PodFacts { deleting: Some(at(NOW)), ..pending_pod() }, false),
        ("deleted while its image is pulled", PodFacts { deleting: Some(at(NOW)), ..waiting("ErrImagePull") }, false),
        // Wider than ARC: a sidecar whose image can't be pulled keeps the pod pending for ever.
        ("pending for a sidecar, runner container ended", ended_pod(PodPhase::Pending, 1), true),
        ("node silent, runner container ended", ended_pod(PodPhase::Unknown, 0), true),
    ];
    for (name, pod, expected) in cases {
        assert_eq!(pod.stopped(), expected, "{name}");
    }
}

#[test]
fn only_pods_that_certainly_have_not_started_count_as_unstarted() {
    let cases = [
        ("pending, unreported", pending_pod(), false),
        ("pending, pulling", waiting("ContainerCreating"), false),
        ("pending for a sidecar, runner container runs", PodFacts { phase: PodPhase::Pending, ..running_pod() }, true),
        ("running, unreported", PodFacts { container: Container::Unreported, ..running_pod() }, true),
        ("unknown, unreported", PodFacts { phase: PodPhase::Unknown, ..pending_pod() }, true),
        ("succeeded", ended_pod(PodPhase::Succeeded, 0), true),
    ];
    for (name, pod, expected) in cases {
        assert_eq!(pod.may_have_started(), expected, "{name}");
    }
}

#[test]
fn runners_without_trouble() {
    let idle = Phase::Idle(secs(40));
    let young = PodFacts { ready_since: Some(ago_s(29)), ..running_pod() };
    let booting = PodFacts { ready_since: None, container: Container::Running { since: Some(ago_s(299)) }, ..running_pod() };
    let cases = [
        ("idle", listed(IDLE), idle),
        ("busy", listed(BUSY), Phase::Busy),
        ("busy and out of contact", listed(OFFLINE_BUSY), Phase::Busy),
        (
            "an event tells of a job that GitHub does not",
            RunnerFacts { reports_job: Some(ago_s(6000)), ..listed(IDLE) },
            Phase::Busy,
        ),
        ("an event tells of a job, no contact", RunnerFacts { reports_job: Some(ago_s(6000)), ..listed(OFFLINE) }, Phase::Busy),
        ("an event tells of a job, not listed", RunnerFacts { reports_job: Some(ago_s(6000)), ..listed(ABSENT) }, Phase::Busy),
        ("the hook reports a job that GitHub does not", RunnerFacts { hook_reports_job: true, ..listed(IDLE) }, Phase::Busy),
        ("the hook reports a job, no contact", RunnerFacts { hook_reports_job: true, ..listed(OFFLINE) }, Phase::Busy),
        ("the hook reports a job, not listed", RunnerFacts { hook_reports_job: true, ..listed(ABSENT) }, Phase::Busy),
        ("the hook is silent, GitHub is not", listed(BUSY), Phase::Busy),
        ("registered, no listing that proves anything", listed(Remote::Unknown), Phase::Busy),
        ("never seen, no listing", RunnerFacts { known_id: None, ..listed(Remote::Unknown) }, Phase::Starting),
        ("ready for less than the grace", unregistered(young), Phase::Starting),
        ("not ready for less than the grace", unregistered(booting), Phase::Starting),
        ("no pod yet", RunnerFacts { known_id: None, ..without(false, Remote::Unknown) }, Phase::Pending),
        ("young and pending", unregistered(PodFacts { created: ago_s(299), ..waiting("ContainerCreating") }), Phase::Pending),
        // The kubelet is late with its report: what GitHub has contact with runs.
        ("pending, connected", RunnerFacts { remote: IDLE, ..runner(pending_pod()) }, idle),
        ("pending, busy", RunnerFacts { remote: BUSY, ..runner(waiting("ContainerCreating")) }, Phase::Busy),
        ("leaving", RunnerFacts { deleting: Some(at(NOW)), ..listed(BUSY) }, Phase::Stopping),
        ("leaving, ended", RunnerFacts { deleting: Some(at(NOW)), ..runner(ended_pod(PodPhase::Failed, 1)) }, Phase::Stopping),
        ("leaving, no pod", RunnerFacts { deleting: Some(at(NOW)), ..without(true, ABSENT) }, Phase::Stopping),
    ];
    for (name, facts, phase) in cases {
        assert_eq!(assess(&facts, at(NOW)), Assessment { phase, trouble: None }, "{name}");
    }
}

/// Situation and cause of a runner in trouble, its phase, and for how many seconds it has been in that.
type Expected = (Phase, Situation, Cause, i64);

fn check(cases: impl IntoIterator<Item = (&'static str, RunnerFacts, Expected)>) {
    for (name, facts, (phase, situation, cause, since)) in cases {
        let assessment = assess(&facts, at(NOW));
        let trouble = assessment.trouble.unwrap_or_else(|| panic!("{name}: no trouble"));
        assert_eq!((assessment.phase, trouble.situation, trouble.cause), (phase, situation, cause), "{name}");
        assert_eq!(at(NOW).duration_since(trouble.since).as_secs(), since, "{name}: since");
        assert!(!trouble.message.is_empty() || situation == Situation::Ended, "{name}: says nothing");
    }
}

fn siblings_register(runner: RunnerFacts) -> RunnerFacts {
    RunnerFacts { siblings_register: true, ..runner }
}

#[test]
fn ended_runners() {
    let ended = |pod| runner(pod);
    let dead = |cause, since| (Phase::Dead, Situation::Ended, cause, since);
    let with = |phase, code, reason: &str, message: &str| {
        runner(PodFacts { container: terminated(code, reason, message), ..ended_pod(phase, code) })
    };
    let old = "Runner version v2.300.0 is deprecated and cannot receive messages.";
    check([
        ("job done", ended(ended_pod(PodPhase::Succeeded, 0)), dead(Cause::Completed, 60)),
        ("job done, sidecar still runs", ended(ended_pod(PodPhase::Running, 0)), dead(Cause::Completed, 60)),
        ("job done, sidecar failed", ended(ended_pod(PodPhase::Failed, 0)), dead(Cause::Completed, 60)),
        (
            "succeeded, container unreported",
            ended(PodFacts { phase: PodPhase::Succeeded, reason: String::new(), ..failed_pod("") }),
            dead(Cause::Completed, 1000),
        ),
        ("exit 0 without registering", unregistered(ended_pod(PodPhase::Succeeded, 0)), dead(Cause::UnregisteredExit, 60)),
        (
            "exit 0 between two listings",
            siblings_register(unregistered(ended_pod(PodPhase::Succeeded, 0))),
            dead(Cause::Completed, 60),
        ),
        (
            "persistent, exit 0 between two listings",
            RunnerFacts { ephemeral: false, ..siblings_register(unregistered(ended_pod(PodPhase::Succeeded, 0))) },
            dead(Cause::UnregisteredExit, 60),
        ),
        ("exit 1 between two listings", siblings_register(unregistered(ended_pod(PodPhase::Failed, 1))), dead(Cause::Exit, 60)),
        ("exit 1", ended(ended_pod(PodPhase::Failed, 1)), dead(Cause::Exit, 60)),
        ("exit 1 in a pending pod", ended(ended_pod(PodPhase::Pending, 1)), dead(Cause::Exit, 60)),
        ("exit 7", ended(ended_pod(PodPhase::Failed, 7)), dead(Cause::DeprecatedVersion, 60)),
        ("refused by GitHub, masked exit", with(PodPhase::Succeeded, 0, "Completed", old), dead(Cause::DeprecatedVersion, 60)),
        ("out of memory", with(PodPhase::Failed, 137, "OOMKilled", ""), dead(Cause::OomKilled, 60)),
        ("out of memory, pod goes on", with(PodPhase::Running, 137, "OOMKilled", ""), dead(Cause::OomKilled, 60)),
        ("evicted", ended(failed_pod("Evicted")), dead(Cause::Evicted, 1000)),
        (
            "evicted with an exit code",
            ended(PodFacts { reason: "Evicted".into(), ..ended_pod(PodPhase::Failed, 137) }),
            dead(Cause::Evicted, 60),
        ),
        ("preempted by the kubelet", ended(failed_pod("Preempting")), dead(Cause::Evicted, 1000)),
        ("orderly node shutdown", ended(failed_pod("Terminated")), dead(Cause::Evicted, 1000)),
        ("node lost, says the pod", ended(failed_pod("NodeLost")), dead(Cause::NodeLost, 1000)),
        ("failed, nothing says why", ended(failed_pod("")), dead(Cause::Unknown, 1000)),
        ("failed, GitHub lost contact", RunnerFacts { remote: OFFLINE, ..ended(failed_pod("")) }, dead(Cause::Unknown, 50)),
        (
            "node gone under a running pod",
            listed_on(PodFacts { node_gone: true, silent_since: Some(ago_s(70)), ready_since: None, ..running_pod() }, BUSY),
            dead(Cause::NodeLost, 70),
        ),
        (
            "node gone under a pending pod",
            unregistered(PodFacts { node_gone: true, ..pending_pod() }),
            dead(Cause::NodeLost, 1000),
        ),
        // What was reported before the node vanished explains it better.
        (
            "job done, then node gone",
            ended(PodFacts { node_gone: true, ..ended_pod(PodPhase::Succeeded, 0) }),
            dead(Cause::Completed, 60),
        ),
        (
            "pod being deleted",
            listed_on(PodFacts { deleting: Some(ago_s(5)), ..running_pod() }, BUSY),
            dead(Cause::PodDeleted, 5),
        ),
        (
            "pod being deleted, its grace not over",
            listed_on(PodFacts { deleting: Some(at(NOW + 30)), ..running_pod() }, IDLE),
            dead(Cause::PodDeleted, 0),
        ),
        (
            "deleted while idle, it ended by itself",
            ended(PodFacts { deletion_asked: Some(ago_s(60)), ..ended_pod(PodPhase::Succeeded, 0) }),
            dead(Cause::PodDeleted, 60),
        ),
        (
            "deleted while it had a job, which it finished",
            RunnerFacts {
                had_job: true,
                ..ended(PodFacts { deletion_asked: Some(ago_s(70)), ..ended_pod(PodPhase::Succeeded, 0) })
            },
            dead(Cause::Completed, 60),
        ),
        (
            "deleted after its end",
            ended(PodFacts { deletion_asked: Some(ago_s(59)), ..ended_pod(PodPhase::Succeeded, 0) }),
            dead(Cause::Completed, 60),
        ),
        (
            "deleted before any node took it",
            unregistered(PodFacts { node: None, deleting: Some(ago_s(5)), ..pending_pod() }),
            dead(Cause::PodDeleted, 5),
        ),
    ]);
}

#[test]
fn pod_that_failed_before_its_runner_started_is_a_failed_start() {
    let refused = |reason: &str| PodFacts { never_started: true, ..failed_pod(reason) };
    let with = |pod, change: fn(&mut RunnerFacts)| {
        let mut facts = RunnerFacts { remote: Remote::Unknown, ..unregistered(pod) };
        change(&mut facts);
        facts
    };
    let as_is: fn(&mut RunnerFacts) = |_| {};
    for (what, facts, expected) in [
        ("no room", with(refused("OutOfcpu"), as_is), Cause::NeverStarted),
        ("no reason", with(refused(""), as_is), Cause::NeverStarted),
        ("node short of memory", with(refused("Evicted"), as_is), Cause::NeverStarted),
        ("node shutting down", with(refused("Terminated"), as_is), Cause::NeverStarted),
        ("made room for a critical pod", with(refused("Preempting"), as_is), Cause::NeverStarted),
        (
            "registered ahead of its agent",
            with(refused("OutOfpods"), |it| (it.awaited, it.known_id) = (true, Some(7))),
            Cause::NeverStarted,
        ),
        ("was registered", with(refused("Evicted"), |it| it.known_id = Some(7)), Cause::Evicted),
        ("had a job", with(refused("Evicted"), |it| it.had_job = true), Cause::Evicted),
        ("its node is gone", with(PodFacts { node_gone: true, ..refused("") }, as_is), Cause::NodeLost),
        ("somebody deleted it", with(PodFacts { deleting: Some(ago_s(5)), ..refused("") }, as_is), Cause::PodDeleted),
        ("it had started", with(failed_pod("Evicted"), as_is), Cause::Evicted),
        (
            "evicted while it was starting",
            with(PodFacts { disruption: Some(Disruption::Evicted), ..refused("Evicted") }, as_is),
            Cause::Evicted,
        ),
        ("lost with its node", with(PodFacts { disruption: Some(Disruption::NodeLost), ..refused("") }, as_is), Cause::NodeLost),
    ] {
        let trouble = assess(&facts, at(NOW)).trouble.map(|trouble| (trouble.situation, trouble.cause));
        assert_eq!(trouble, Some((Situation::Ended, expected)), "{what}");
    }
    let pod = PodFacts { message: "Pod was rejected".into(), ..refused("OutOfcpu") };
    let trouble = assess(&with(pod, as_is), at(NOW)).trouble.unwrap();
    assert_eq!(trouble.message, "OutOfcpu: Pod was rejected");
}

fn listed_on(pod: PodFacts, remote: Remote) -> RunnerFacts {
    RunnerFacts { remote, ..runner(pod) }
}

#[test]
fn runners_without_a_pod() {
    let missing = |cause, since| (Phase::Dead, Situation::PodMissing, cause, since);
    let refused = |by| RunnerFacts {
        known_id: None,
        refusal: Some(Refusal { by, message: "forbidden: …".into(), since: ago_s(20) }),
        ..without(false, Remote::Unknown)
    };
    check([
        ("pod gone, registered", without(true, IDLE), missing(Cause::PodDeleted, 0)),
        ("pod gone, offline", without(true, OFFLINE), missing(Cause::PodDeleted, 50)),
        ("pod cleaned away after its job", RunnerFacts { had_job: true, ..without(true, ABSENT) }, missing(Cause::Completed, 30)),
        ("pod gone, unregistered itself without a job", without(true, ABSENT), missing(Cause::PodDeleted, 30)),
        (
            "persistent, pod gone",
            RunnerFacts { ephemeral: false, had_job: true, ..without(true, ABSENT) },
            missing(Cause::PodDeleted, 30),
        ),
        ("pod gone, never registered", RunnerFacts { known_id: None, ..without(true, ABSENT) }, missing(Cause::PodDeleted, 30)),
        ("quota used up", refused(Refuser::Quota), (Phase::Pending, Situation::NotStarting, Cause::Quota, 20)),
        ("no token", refused(Refuser::Credentials), (Phase::Pending, Situation::NotStarting, Cause::BadCredentials, 20)),
        ("pod refused", refused(Refuser::Pod), (Phase::Pending, Situation::NotStarting, Cause::ConfigError, 20)),
    ]);
}

#[test]
fn runners_that_do_not_start() {
    let not = |cause| (Phase::Pending, Situation::NotStarting, cause, 1000);
    let unschedulable = PodFacts { node: None, unschedulable: Some((ago_s(90), "0/3 nodes".into())), ..pending_pod() };
    let mut cases = vec![
        ("no node takes it", unregistered(unschedulable), (Phase::Pending, Situation::NotStarting, Cause::Unschedulable, 90)),
        // Nothing says why: only time does (mounts that hang, nodes that do not report).
        ("unreported for long", unregistered(pending_pod()), not(Cause::Unknown)),
        ("creating for long", unregistered(waiting("ContainerCreating")), not(Cause::Unknown)),
        (
            "on a silent node",
            unregistered(PodFacts { silent_since: Some(ago_s(80)), ..waiting("ContainerCreating") }),
            not(Cause::NodeLost),
        ),
        (
            "runs and does not get ready",
            unregistered(PodFacts { ready_since: None, ..running_pod() }),
            (Phase::Starting, Situation::NotStarting, Cause::Unknown, 900),
        ),
    ];
    for reason in ["ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"] {
        cases.push((reason, unregistered(waiting(reason)), not(Cause::ImagePull)));
    }
    for reason in ["CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CrashLoopBackOff"] {
        cases.push((reason, unregistered(waiting(reason)), not(Cause::ConfigError)));
    }
    check(cases);
}

#[test]
fn runners_that_github_misses() {
    let silent = |remote| listed_on(PodFacts { silent_since: Some(ago_s(80)), ..running_pod() }, remote);
    let ready = PodFacts { ready_since: Some(ago_s(30)), ..running_pod() };
    check([
        ("offline", listed(OFFLINE), (Phase::Offline, Situation::Offline, Cause::Unknown, 50)),
        ("offline on a silent node", silent(OFFLINE), (Phase::Offline, Situation::Offline, Cause::NodeLost, 50)),
        ("no longer listed", listed(ABSENT), (Phase::Dead, Situation::Unregistered, Cause::Unknown, 30)),
        ("no longer listed, silent node", silent(ABSENT), (Phase::Dead, Situation::Unregistered, Cause::NodeLost, 30)),
        ("never listed", unregistered(ready), (Phase::Starting, Situation::NeverRegistered, Cause::Unknown, 30)),
    ]);
}

#[test]
fn runner_registered_just_in_time_starts_until_its_agent_is_seen() {
    let awaited = |facts| RunnerFacts { awaited: true, ..facts };
    for (remote, expected) in [(OFFLINE, Phase::Starting), (Remote::Unknown, Phase::Starting), (IDLE, Phase::Idle(secs(40)))] {
        assert_eq!(assess(&awaited(listed(remote)), at(NOW)).phase, expected, "{remote:?}");
    }
    let ready = PodFacts { ready_since: Some(ago_s(30)), ..running_pod() };
    check([
        (
            "its agent never comes",
            awaited(listed_on(ready, OFFLINE)),
            (Phase::Starting, Situation::NeverRegistered, Cause::Unknown, 30),
        ),
        ("somebody removed it", awaited(listed(ABSENT)), (Phase::Dead, Situation::Unregistered, Cause::Unknown, 30)),
    ]);
    // An image that does not know what to do with its configuration ends well, and did no job.
    let ended = |facts: RunnerFacts| assess(&facts, at(NOW)).trouble.map(|trouble| trouble.cause);
    let over = listed_on(ended_pod(PodPhase::Succeeded, 0), ABSENT);
    assert_eq!(ended(over.clone()), Some(Cause::Completed));
    assert_eq!(ended(awaited(over)), Some(Cause::UnregisteredExit));
}

#[test]
fn words_of_the_contract_are_distinct() {
    use std::collections::HashSet;
    let situations = [
        Situation::Ended,
        Situation::NeverRegistered,
        Situation::NotStarting,
        Situation::Offline,
        Situation::Unregistered,
        Situation::PodMissing,
    ];
    assert_eq!(situations.map(Situation::as_str).into_iter().collect::<HashSet<_>>().len(), situations.len());
    assert_eq!(CAUSES.map(Cause::as_str).into_iter().collect::<HashSet<_>>().len(), CAUSES.len());
}

const CAUSES: [Cause; 14] = [
    Cause::Completed,
    Cause::Exit,
    Cause::UnregisteredExit,
    Cause::NeverStarted,
    Cause::Evicted,
    Cause::OomKilled,
    Cause::NodeLost,
    Cause::ImagePull,
    Cause::Quota,
    Cause::Unschedulable,
    Cause::DeprecatedVersion,
    Cause::ConfigError,
    Cause::PodDeleted,
    Cause::Unknown,
];

#[test]
fn messages_say_reason_and_text_once() {
    let cases = [
        ("OOMKilled", "limit 2Gi", "OOMKilled: limit 2Gi"),
        ("OOMKilled", "", "OOMKilled"),
        ("", "limit 2Gi\n", "limit 2Gi"),
        ("", "", ""),
    ];
    for (reason, message, expected) in cases {
        let facts = runner(PodFacts { container: terminated(137, reason, message), ..ended_pod(PodPhase::Failed, 137) });
        let trouble = assess(&facts, at(NOW)).trouble.unwrap();
        assert_eq!((trouble.message.as_str(), trouble.exit_code), (expected, Some(137)));
    }
}

fn any_container() -> impl Strategy<Value = Container> {
    let reason = proptest::sample::select(vec!["", "ErrImagePull", "OOMKilled", "ContainerCreating", "Error"]);
    (0..4_u8, reason, 0..9_i32, proptest::option::of(0..2000_i64)).prop_map(|(kind, reason, exit_code, time)| match kind {
        0 => Container::Unreported,
        1 => Container::Waiting { reason: reason.into(), message: String::new() },
        2 => Container::Running { since: time.map(ago_s) },
        _ => Container::Terminated {
            exit_code,
            reason: reason.into(),
            message: String::new(),
            started: None,
            finished: time.map(ago_s),
        },
    })
}

fn any_pod() -> impl Strategy<Value = PodFacts> {
    let phase = proptest::sample::select(vec![
        PodPhase::Pending,
        PodPhase::Running,
        PodPhase::Running,
        PodPhase::Succeeded,
        PodPhase::Failed,
        PodPhase::Unknown,
    ]);
    let time = |from| proptest::option::weighted(0.3, from..2000_i64);
    let reason = proptest::sample::select(vec!["", "", "Evicted", "NodeLost", "Terminated"]);
    (phase, any_container(), any::<(bool, bool)>(), (time(-100), time(0), time(0)), time(0), reason).prop_map(
        |(phase, container, (node, node_gone), (deleting, ready, silent), unschedulable, reason)| PodFacts {
            uid: Some("pod".into()),
            created: ago_s(1500),
            phase,
            node: node.then(|| "node".into()),
            node_gone: node && node_gone,
            deleting: deleting.map(ago_s),
            ready_since: ready.map(ago_s),
            silent_since: silent.map(ago_s),
            unschedulable: unschedulable.map(|since| (ago_s(since), "full".into())),
            container,
            reason: reason.into(),
            ..PodFacts::default()
        },
    )
}

#[test]
fn listings_outlast_a_hook_that_lost_its_voice() {
    let idle_for = |idle| RunnerFacts { hook_reports_job: true, ..listed(Remote::Online { id: 7, flag: Flag::Idle(idle) }) };
    let phase = |facts| assess(&facts, at(NOW)).phase;
    assert_eq!(phase(idle_for(secs(599))), Phase::Busy);
    assert_eq!(phase(idle_for(secs(600))), Phase::Idle(secs(600)));
    let told = RunnerFacts { reports_job: Some(ago_s(6000)), ..idle_for(secs(6000)) };
    assert_eq!(phase(told), Phase::Busy, "an event about a job ends with an event");
}

#[test]
fn a_registration_needs_no_agent() {
    let alone = |facts| RunnerFacts { registration_only: true, ephemeral: false, ..facts };
    let done = || runner(ended_pod(PodPhase::Succeeded, 0));
    let fresh = |facts| RunnerFacts { known_id: None, ..facts };
    for (name, facts, phase) in [
        ("registered, its pod has ended", RunnerFacts { remote: OFFLINE, ..done() }, Phase::Offline),
        ("registered, its pod is gone", without(true, OFFLINE), Phase::Offline),
        ("registered, no listing yet", fresh(done()), Phase::Starting),
        ("registered, no listing after a restart", without(true, Remote::Unknown), Phase::Starting),
        ("registering", fresh(listed(Remote::Unknown)), Phase::Starting),
        ("not begun", fresh(without(false, Remote::Unknown)), Phase::Pending),
    ] {
        assert_eq!(assess(&alone(facts), at(NOW)), Assessment { phase, trouble: None }, "{name}");
    }
    for (name, facts, situation) in [
        ("ended, and a listing lacks it", fresh(RunnerFacts { remote: ABSENT, ..done() }), Situation::Ended),
        ("failed", fresh(runner(ended_pod(PodPhase::Failed, 2))), Situation::Ended),
        ("GitHub no longer knows it", without(true, ABSENT), Situation::PodMissing),
    ] {
        let assessment = assess(&alone(facts), at(NOW));
        assert_eq!(
            (assessment.phase, assessment.trouble.map(|trouble| trouble.situation)),
            (Phase::Dead, Some(situation)),
            "{name}"
        );
    }
    let leaving = alone(RunnerFacts { deleting: Some(at(NOW)), ..without(true, OFFLINE) });
    assert_eq!(assess(&leaving, at(NOW)).phase, Phase::Stopping);
}

fn any_remote() -> impl Strategy<Value = Remote> {
    (0..5_u8, any::<bool>(), 0..2000_u64).prop_map(|(kind, busy, lasting)| match kind {
        0 => Remote::Unknown,
        1 => Remote::Absent { since: secs(lasting) },
        2 => Remote::Offline { id: 7, busy, since: secs(lasting) },
        3 => Remote::Online { id: 7, flag: Flag::Stale },
        _ => Remote::Online { id: 7, flag: Flag::of(busy, secs(lasting)) },
    })
}

fn any_runner() -> impl Strategy<Value = RunnerFacts> {
    let pod = proptest::option::weighted(0.85, any_pod());
    (pod, any_remote(), any::<[bool; 5]>(), proptest::bool::weighted(0.1)).prop_map(
        |(pod, remote, [had_pod, known, ephemeral, reports_job, hook_reports_job], deleting)| RunnerFacts {
            created: ago_s(1510),
            ephemeral,
            reports_job: reports_job.then(|| ago_s(1000)),
            hook_reports_job,
            had_pod: had_pod || pod.is_some(),
            known_id: known.then_some(7),
            deleting: deleting.then(|| at(NOW)),
            pod,
            remote,
            ..RunnerFacts::default()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn idle_is_proved(facts in any_runner()) {
        if let Phase::Idle(idle) = assess(&facts, at(NOW)).phase {
            prop_assert_eq!(facts.remote, Remote::Online { id: 7, flag: Flag::Idle(idle) });
            prop_assert!(!facts.says_busy(at(NOW)) && facts.deleting.is_none());
            let pod = facts.pod.unwrap();
            prop_assert!(!pod.stopped() && !pod.node_gone && pod.deleting.is_none());
        }
    }

    #[test]
    fn a_job_in_a_live_pod_is_busy_or_leaving(facts in any_runner()) {
        let busy = facts.says_busy(at(NOW)) && facts.pod.as_ref().is_some_and(PodFacts::may_have_started)
            || matches!(facts.remote, Remote::Online { flag: Flag::Busy | Flag::Stale, .. });
        let live = facts.pod.as_ref().is_some_and(|pod| !pod.stopped() && !pod.node_gone && pod.deleting.is_none());
        if busy && live {
            let expected = if facts.deleting.is_some() { Phase::Stopping } else { Phase::Busy };
            prop_assert_eq!(assess(&facts, at(NOW)).phase, expected);
        }
    }

    /// Waiting times are counted from `since`: it may not be in the future, nor before the runner, and it must let them end.
    #[test]
    fn trouble_stands_still(facts in any_runner()) {
        let assessment = assess(&facts, at(NOW));
        prop_assert!(assessment.phase != Phase::Dead || assessment.trouble.is_some());
        if let Some(trouble) = assessment.trouble {
            prop_assert!(trouble.since <= at(NOW), "{trouble:?}");
            let unseen = facts.pod.is_none() && matches!(facts.remote, Remote::Unknown | Remote::Online { .. });
            let graceful = facts.pod.as_ref().is_some_and(|pod| pod.deleting.is_some_and(|at_| at_ > at(NOW)));
            if !unseen && !graceful {
                let later = assess(&older(&facts, 25), at(NOW + 25)).trouble.unwrap();
                prop_assert_eq!((later.situation, later.cause, later.since), (trouble.situation, trouble.cause, trouble.since));
            }
        }
    }
}

/// The same world so many seconds later.
fn older(facts: &RunnerFacts, seconds: u64) -> RunnerFacts {
    let more = secs(seconds);
    let remote = match facts.remote {
        Remote::Unknown => Remote::Unknown,
        Remote::Absent { since } => Remote::Absent { since: since + more },
        Remote::Offline { id, busy, since } => Remote::Offline { id, busy, since: since + more },
        Remote::Online { id, flag: Flag::Idle(idle) } => Remote::Online { id, flag: Flag::Idle(idle + more) },
        online @ Remote::Online { .. } => online,
    };
    RunnerFacts { remote, ..facts.clone() }
}
