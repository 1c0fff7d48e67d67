//! What anybody says about a job, and what follows for a stop.

use super::*;

fn watched(pod: PodFacts, worker: Worker) -> PodFacts {
    PodFacts { worker, ..pod }
}

/// Whatever GitHub says, and whether or not its id is known.
#[test]
fn no_removal_is_asked_for_under_a_job_that_anybody_knows_of() {
    let absent = |seconds| Worker::Absent { since: Some(ago(seconds)) };
    let event_of = |seconds, facts| RunnerFacts { reports_job: Some(ago(seconds)), ..facts };
    let event = |facts| event_of(1000, facts);
    let hook = |facts| RunnerFacts { hook_reports_job: true, ..facts };
    let at_work = || watched(running(), Worker::Running);
    for remote in [IDLE, OFFLINE, ABSENT, Remote::Unknown] {
        for facts in [known(running(), remote), RunnerFacts { ephemeral: false, ..known(running(), remote) }] {
            check([
                ("an event names it", event(facts.clone()), None, DRAINING),
                ("its hook says so", hook(facts), None, DRAINING),
                ("its pod shows a worker", known(at_work(), remote), None, DRAINING),
                ("its pod shows a worker, no id", RunnerFacts { known_id: None, ..known(at_work(), remote) }, None, DRAINING),
                ("an event, no worker yet", event(known(watched(running(), absent(119)), remote)), None, DRAINING),
                ("an event of just now", event_of(119, known(watched(running(), absent(500)), remote)), None, DRAINING),
                ("an event whose end got lost", event(known(watched(running(), absent(120)), remote)), None, ASK),
                ("a hook whose end got lost", hook(known(watched(running(), absent(120)), remote)), None, ASK),
            ]);
        }
    }
}

/// A job that has just begun shows neither in a listing nor in the pod.
#[test]
fn nothing_may_say_that_it_works_for_the_confirmation_time() {
    let limits = StopLimits { confirmation: Duration::from_secs(10), ..LIMITS };
    let since = |seconds, facts| RunnerFacts { deleting: Some(ago(seconds)), ..facts };
    let idle = || watched(running(), Worker::Absent { since: Some(ago(500)) });
    let over = |seconds, facts| RunnerFacts { job_over: Some(ago(seconds)), ..facts };
    let persistent = |ended, absent| {
        let pod = watched(running(), Worker::Absent { since: Some(ago(absent)) });
        over(ended, RunnerFacts { ephemeral: false, ..since(20, known(pod, IDLE)) })
    };
    let gone = |seconds, pod| RunnerFacts { unregistered: Some(Duration::from_secs(seconds)), ..known(pod, ABSENT) };
    let confirming = |left| wait(WaitReason::Confirming, left);
    let leaving = |left| wait(WaitReason::Leaving, left);
    for (what, facts, expected) in [
        ("just now", since(0, known(idle(), IDLE)), confirming(10)),
        ("almost", since(9, known(idle(), IDLE)), confirming(1)),
        ("long enough", since(10, known(idle(), IDLE)), ASK),
        ("no pod evidence: the same", since(9, known(running(), IDLE)), confirming(1)),
        ("persistent, its last job ended just now", persistent(3, 500), confirming(7)),
        ("persistent, its last worker went just now", persistent(500, 4), confirming(6)),
        ("persistent, its last job ended long enough ago", persistent(10, 10), ASK),
        ("ephemeral, its job ended just now", over(3, since(20, known(idle(), IDLE))), ASK),
        ("ended: nothing can begin", since(0, known(ended(), OFFLINE)), ASK),
        ("no pod", since(0, known(None, OFFLINE)), ASK),
        ("removed a moment ago", gone(0, idle()), leaving(10)),
        ("removed, and no worker since", gone(10, idle()), DELETE),
        ("removed under a job: it may finish", gone(3600, watched(running(), Worker::Running)), DRAINING),
        ("removed, nobody looks", gone(59, running()), leaving(1)),
        ("removed, nobody looks, past the agent's poll", gone(60, running()), PATIENT),
        ("removed, ended", gone(0, ended()), DELETE),
    ] {
        assert_eq!(next(&facts, None, &limits, ago(0)), expected, "{what}");
    }
}

#[test]
fn an_ephemeral_runner_without_a_job_ends_when_github_can_not_be_asked() {
    let idle = || watched(running(), Worker::Absent { since: Some(ago(500)) });
    let at = |seconds, pod: Option<PodFacts>| RunnerFacts {
        github_refuses: true,
        deleting: Some(ago(seconds)),
        ..known(pod, Remote::Unknown)
    };
    check([
        ("its pod is gone, a moment ago", at(59, None), None, ASK),
        ("its pod is gone", at(60, None), None, Step::Release),
        ("listed until lately", RunnerFacts { remote: IDLE, ..at(60, None) }, None, Step::Release),
        ("ended", at(60, Some(ended())), None, DELETE),
        ("idle: it may get a job until it has ended", at(60, Some(idle())), None, PATIENT),
        ("at work", at(60, Some(watched(running(), Worker::Running))), None, DRAINING),
        ("nobody looks", at(60, Some(running())), None, ASK),
        ("persistent", RunnerFacts { ephemeral: false, ..at(60, None) }, None, ASK),
    ]);
}

/// Pods may have as much grace as a job needs. Whoever deletes one of a runner without a job must not leave it there for days.
#[test]
fn a_long_grace_period_is_cut_short_for_a_runner_without_a_job() {
    let going = |pod| deleted(pod, -400_000);
    let idle = || watched(running(), Worker::Absent { since: Some(ago(500)) });
    check([
        ("idle", removed(known(going(idle()), ABSENT)), None, DELETE),
        ("ended", known(going(ended()), ABSENT), None, DELETE),
        ("cut short already", removed(known(deleted(idle(), -30), ABSENT)), None, TERMINATING),
        ("the user chose it", RunnerFacts { own_grace: true, ..removed(known(going(idle()), ABSENT)) }, None, TERMINATING),
        ("at work", removed(known(going(watched(running(), Worker::Running)), ABSENT)), None, TERMINATING),
        ("nobody looks", removed(known(going(running()), ABSENT)), None, TERMINATING),
        (
            "its node is silent",
            removed(known(going(PodFacts { silent_since: Some(ago(90)), ..running() }), ABSENT)),
            None,
            DELETE,
        ),
        ("overdue", RunnerFacts { deleting: Some(ago(6 * DAY)), ..removed(known(going(running()), ABSENT)) }, None, DELETE),
    ]);
}

#[test]
fn a_finished_ephemeral_runner_waits_for_a_listing_before_it_is_removed() {
    let stale = |facts: RunnerFacts| RunnerFacts { unlisted_since: true, ..facts };
    let longer = |seconds| {
        let container = Container::Terminated {
            exit_code: 0,
            reason: String::new(),
            message: String::new(),
            started: None,
            finished: Some(ago(seconds)),
        };
        PodFacts { container, ..ended() }
    };
    let finishing = wait(WaitReason::Finishing, 10);
    let had_job = |facts| RunnerFacts { reports_job: Some(ago(30)), ..facts };
    let table = [
        ("the listing is from before its end", stale(known(ended(), BUSY)), finishing),
        ("no listing", stale(known(ended(), Remote::Unknown)), finishing),
        ("a listing that proves nothing", known(ended(), Remote::Unknown), finishing),
        ("it crashed, and may be gone all the same", stale(known(exited(1), OFFLINE)), finishing),
        ("a listing from after its end has it still", known(ended(), BUSY), ASK),
        ("a listing from after its end has it no more", known(ended(), ABSENT), DELETE),
        ("it had its job, and is listed for a while", had_job(known(ended(), OFFLINE)), wait(WaitReason::Finishing, 65)),
        ("it had its job, and is listed for too long", had_job(known(longer(75), OFFLINE)), ASK),
        ("no listing comes", stale(known(longer(20), BUSY)), ASK),
        ("no listing comes, and none ever came", stale(unknown(longer(20), Remote::Unknown)), LISTING),
        ("it stays registered", stale(RunnerFacts { ephemeral: false, ..known(ended(), BUSY) }), ASK),
        ("it still runs", stale(known(running(), IDLE)), ASK),
        ("its pod is gone", stale(known(None, BUSY)), ASK),
        ("it is overdue", RunnerFacts { deleting: Some(ago(5 * DAY + 1)), ..stale(known(ended(), BUSY)) }, ASK),
    ];
    for (what, facts, expected) in table {
        assert_eq!(next(&facts, None, &LIMITS, ago(0)), expected, "{what}");
    }
}

#[test]
fn only_a_runner_that_ended_and_is_listed_no_more_or_had_its_job_has_left_for_good() {
    let over = |seconds, facts| RunnerFacts { job_over: Some(ago(seconds)), ..facts };
    for (facts, expected) in [
        (known(ended(), ABSENT), true),
        (known(exited(1), ABSENT), true),
        (known(ended(), Remote::Unknown), false),
        (known(ended(), OFFLINE), false),
        (known(running(), ABSENT), false),
        (known(None, ABSENT), false),
        // It ended ten seconds ago.
        (over(11, known(ended(), Remote::Unknown)), true),
        (over(-20, known(ended(), Remote::Unknown)), true),
        (over(-21, known(ended(), Remote::Unknown)), false),
        (over(1000, known(ended(), Remote::Unknown)), true),
        (over(1001, known(ended(), Remote::Unknown)), false),
        (over(11, known(ended(), OFFLINE)), false),
        (RunnerFacts { unlisted_since: true, ..over(11, known(ended(), OFFLINE)) }, true),
        (RunnerFacts { ephemeral: false, ..over(11, known(ended(), Remote::Unknown)) }, false),
        (over(11, known(exited(1), Remote::Unknown)), false),
        (over(11, known(running(), Remote::Unknown)), false),
        (over(11, known(None, Remote::Unknown)), false),
    ] {
        assert_eq!(facts.left_for_good(), expected, "{facts:?}");
    }
}
