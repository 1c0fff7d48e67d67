use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::ledger::{JobEvent, Origin, Terms};
use crate::reads::{Fact, Reads};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn pod(reason: &str, container: Container) -> PodFacts {
    PodFacts {
        created: at(-600),
        phase: PodPhase::Failed,
        node: Some("n".to_owned()),
        container,
        reason: reason.to_owned(),
        ..PodFacts::default()
    }
}

fn ended(exit_code: i32, reason: &str) -> Container {
    let (reason, message) = (reason.to_owned(), String::new());
    Container::Terminated { exit_code, reason, message, started: Some(at(-500)), finished: Some(at(-10)) }
}

fn running() -> PodFacts {
    PodFacts { phase: PodPhase::Running, ..pod("", Container::Running { since: None }) }
}

fn event(id: u64, state: State, runner: Option<&str>, attempt: u32) -> JobEvent {
    JobEvent {
        id,
        state,
        at: at(-100),
        queued_at: at(-120),
        repository: "acme/app".into(),
        workflow: "CI".into(),
        labels: Arc::from([Arc::from("linux")]),
        attempt,
        runner: runner.map(Arc::from),
        origin: Arc::default(),
    }
}

fn ledger(events: &[JobEvent]) -> Ledger {
    let (mut ledger, terms) = (Ledger::default(), Terms { queued: Duration::from_secs(600), limit: 100 });
    events.iter().for_each(|event| {
        ledger.apply(event, &terms, at(0));
    });
    ledger
}

fn victim(job: u64, attempt: u32) -> Victim {
    let ledger = ledger(&[event(job, State::InProgress, Some("r"), attempt)]);
    let jobs = JobsOf::find(&ledger, &HashMap::from([("r", at(-10))]));
    Victim::of("r", &pod("Evicted", ended(137, "Error")), false, &jobs, at(-10)).unwrap()
}

fn rerun() -> Recovery {
    Recovery { action: "rerun".to_owned(), ..Recovery::default() }
}

#[test]
fn only_what_the_pod_proves_counts() {
    let disrupted = |disruption| PodFacts { disruption: Some(disruption), deleting: Some(at(-5)), ..running() };
    let killed = |pod: PodFacts| PodFacts { container: ended(137, "Error"), ..pod };
    let node_gone = |pod: PodFacts| PodFacts { node_gone: true, ..pod };
    for (case, pod, gone, expected) in [
        ("evicted and killed", pod("Evicted", ended(137, "Error")), false, Some(Proof::Evicted)),
        ("evicted without a word of the container", pod("Evicted", Container::Unreported), false, Some(Proof::Evicted)),
        ("its node was shut down", pod("Terminated", ended(143, "Error")), false, Some(Proof::Evicted)),
        ("preempted by the kubelet", pod("Preempting", ended(137, "Error")), false, Some(Proof::Preempted)),
        ("preempted by the scheduler", killed(disrupted(Disruption::Preempted)), false, Some(Proof::Preempted)),
        ("drained", killed(disrupted(Disruption::Evicted)), false, Some(Proof::Evicted)),
        ("out of memory", pod("", ended(137, "OOMKilled")), false, Some(Proof::OomKilled)),
        ("its node is gone", node_gone(running()), false, Some(Proof::NodeLost)),
        ("collected after its node was gone", disrupted(Disruption::NodeLost), true, Some(Proof::NodeLost)),
        ("still on its way out", disrupted(Disruption::Preempted), false, None),
        ("evicted after the agent had ended by itself", pod("Evicted", ended(0, "Completed")), false, None),
        ("evicted after the agent had failed by itself", pod("Evicted", ended(1, "Error")), false, None),
        (
            "drained, and its agent ended by itself",
            PodFacts { container: ended(0, "Completed"), ..disrupted(Disruption::Evicted) },
            true,
            None,
        ),
        ("its agent had ended before the node went", node_gone(pod("", ended(0, "Completed"))), false, None),
        ("it ended well", PodFacts { phase: PodPhase::Succeeded, ..pod("", ended(0, "Completed")) }, false, None),
        ("it failed", pod("", ended(1, "Error")), false, None),
        ("somebody killed it", pod("", ended(137, "Error")), false, None),
        ("somebody deleted the pod", PodFacts { deleting: Some(at(-5)), ..running() }, true, None),
        (
            "its image is gone",
            PodFacts {
                phase: PodPhase::Pending,
                ..pod("", Container::Waiting { reason: "ErrImagePull".to_owned(), message: String::new() })
            },
            true,
            None,
        ),
        (
            "it never started, and its node is gone",
            node_gone(PodFacts { phase: PodPhase::Pending, ..pod("", Container::Unreported) }),
            true,
            None,
        ),
    ] {
        assert_eq!(proof(&pod, gone), expected, "{case}");
    }
}

#[test]
fn only_the_one_job_that_runs_on_it_died_with_a_runner() {
    let running = event(7, State::InProgress, Some("r"), 1);
    let over = |seconds| JobEvent { at: at(seconds), ..event(7, State::Completed, Some("r"), 1) };
    for (case, events, expected) in [
        ("it runs one", vec![running.clone()], Some(7)),
        ("its job is over", vec![running.clone(), over(-100)], None),
        ("its job was over a second before", vec![running.clone(), over(-11)], None),
        ("its job ended later", vec![running.clone(), over(-10)], Some(7)),
        ("nobody told that its job ran, which ended later", vec![event(7, State::Queued, None, 1), over(300)], Some(7)),
        (
            "its job ended later, and it is said to run another one",
            vec![over(300), event(8, State::InProgress, Some("r"), 1)],
            None,
        ),
        ("its job waits", vec![event(7, State::Queued, None, 1)], None),
        ("another one runs it", vec![event(7, State::InProgress, Some("s"), 1)], None),
        ("it is said to run two", vec![running, event(8, State::InProgress, Some("r"), 1)], None),
    ] {
        let ledger = ledger(&events);
        let jobs = JobsOf::find(&ledger, &HashMap::from([("r", at(-10))]));
        assert_eq!(jobs.get("r").map(|(id, _)| id), expected, "{case}");
        assert!(JobsOf::find(&ledger, &HashMap::new()).get("r").is_none(), "nobody asked");
    }
    let origin = Origin { run: Some(9), branch: "main".into(), ..Origin::default() };
    let mut dead = victim(7, 2);
    dead.known.origin = Arc::new(origin);
    assert!(dead.dead_job(Some(0), &Reads::default(), at(20)).attributes.is_empty());
    let job = dead.dead_job(Some(0), &Reads::from_iter([Fact::Job]), at(20));
    assert_eq!((job.run, job.attributes.first()), (Some(9), Some(&("branch".to_owned(), "main".to_owned()))));
    assert_eq!((job.id, job.attempt, job.recoveries, job.since, job.ran), (7, 2, 1, 30, 90));
    assert_eq!((job.cause.as_str(), job.repository.as_str(), job.runner.as_str()), ("evicted", "acme/app", "r"));
}

#[test]
fn end_that_nobody_noted_was_at_the_latest_now() {
    assert_eq!(died(&running(), at(0)), at(0));
    assert_eq!(died(&PodFacts { silent_since: Some(at(-40)), ..running() }, at(0)), at(-40));
    assert_eq!(died(&pod("Evicted", ended(137, "")), at(0)), at(-10));
}

#[test]
fn budget_refuses_and_says_why() {
    let mut reruns = Reruns::default();
    let budget = Budget { per_run: 1, per_hour: 2 };
    assert_eq!(reruns.admit(&victim(1, 1), &rerun(), &budget, at(0)), Ok(()));
    assert_eq!(reruns.admit(&victim(1, 1), &rerun(), &budget, at(1)), Err(Refused::Known));
    assert_eq!(reruns.admit(&victim(2, 2), &rerun(), &budget, at(1)), Err(Refused::Run { attempts: 2 }));
    assert_eq!(reruns.admit(&victim(3, 1), &rerun(), &budget, at(1)), Ok(()));
    // What is over counts as well.
    reruns.get_mut(1).unwrap().looked(&Next::GiveUp("no".to_owned()), at(2));
    assert_eq!(reruns.admit(&victim(4, 1), &rerun(), &budget, at(3_599)), Err(Refused::Hour { most: 2 }));
    assert_eq!(reruns.admit(&victim(4, 1), &rerun(), &budget, at(3_600)), Ok(()));
    assert_eq!(
        reruns.admit(&victim(5, 1), &rerun(), &Budget { per_hour: 0, ..budget }, at(9_999)),
        Err(Refused::Hour { most: 0 })
    );
}

#[test]
fn waits_as_its_policy_says_and_longer_from_look_to_look() {
    let mut reruns = Reruns::default();
    reruns.admit(&victim(1, 1), &Recovery { after: Some(100), ..rerun() }, &Budget::default(), at(0)).unwrap();
    let rerun = reruns.get_mut(1).unwrap();
    assert_eq!(rerun.wait(at(0)), Duration::from_secs(100));
    let mut now = at(100);
    let mut waits = Vec::new();
    for _ in 0..7 {
        rerun.looked(&Next::Wait, now);
        waits.push(rerun.wait(now).as_secs());
        now = rerun.due;
    }
    assert_eq!(waits, [15, 30, 60, 120, 240, 300, 300]);
}

#[test]
fn what_github_says_decides_what_follows() {
    let mut reruns = Reruns::default();
    reruns.admit(&victim(1, 1), &rerun(), &Budget::default(), at(0)).unwrap();
    let rerun = reruns.get(1).unwrap();
    let job = |ended| Some(JobSeen { run: 9, runner: Some("r".to_owned()), ended });
    let of_job = |seen: Option<JobSeen>| rerun.of_job(seen.as_ref(), at(60));
    assert_eq!(of_job(job(None)), Next::Wait);
    assert_eq!(of_job(job(Some((Ending::Failure, at(590))))), Next::Ask);
    assert!(matches!(of_job(job(Some((Ending::Failure, at(-11))))), Next::GiveUp(why) if why.contains("by itself")));
    assert!(matches!(of_job(job(Some((Ending::Cancelled, at(590))))), Next::GiveUp(why) if why.contains("cancelled")));
    assert!(matches!(of_job(job(Some((Ending::Other, at(590))))), Next::GiveUp(why) if why.contains("did not fail")));
    assert!(matches!(of_job(None), Next::GiveUp(_)));
    let other = JobSeen { run: 9, runner: Some("s".to_owned()), ended: None };
    assert!(matches!(of_job(Some(other)), Next::GiveUp(why) if why.contains("another runner")));
    let run = |attempt, ended| rerun.of_run(Some(&RunSeen { attempt, ended }), at(60));
    assert_eq!(run(1, None), Next::Wait);
    assert_eq!(run(1, Some(Ending::Failure)), Next::Ask);
    assert_eq!(run(2, None), Next::Done);
    assert_eq!(run(2, Some(Ending::Other)), Next::Done);
    assert!(matches!(run(1, Some(Ending::Cancelled)), Next::GiveUp(_)));
    assert!(matches!(rerun.of_run(None, at(60)), Next::GiveUp(_)));
    // A run that goes on for longer than anybody waits.
    assert!(
        matches!(rerun.of_run(Some(&RunSeen { attempt: 1, ended: None }), at(21_600)), Next::GiveUp(why) if why.contains("6 h"))
    );
}

/// GitHub, as far as reruns go.
#[derive(Debug)]
struct GitHub {
    attempt: u32,
    runs: bool,
}

/// What happens at one look.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// The run ends, or has.
    Ends,
    /// Nothing can be read.
    Unreachable,
    /// The process dies before it can keep what it saw.
    DiesBefore,
    /// It dies between its question and GitHub's answer.
    DiesAfter,
    /// GitHub's answer is lost.
    Loses,
    /// The process lives on, and GitHub's answers arrive.
    None,
}

proptest! {
    #[test]
    fn no_job_runs_again_twice(events in proptest::collection::vec(
        prop_oneof![Just(Event::Ends), Just(Event::Unreachable), Just(Event::DiesBefore), Just(Event::DiesAfter), Just(Event::Loses), Just(Event::None)],
        0..40,
    )) {
        let mut kept = Reruns::default();
        kept.admit(&victim(1, 1), &rerun(), &Budget::default(), at(0)).unwrap();
        let mut github = GitHub { attempt: 1, runs: true };
        let mut accepted = 0;
        for event in events {
            if matches!(event, Event::Ends) {
                github.runs = false;
            }
            let Some(next) = kept.next().cloned() else { break };
            let (mut seen, now) = (next.clone(), next.due);
            if matches!(event, Event::Unreachable) {
                seen.unseen(now);
                *kept.get_mut(1).unwrap() = seen;
                continue;
            }
            let job = JobSeen { run: 9, runner: Some("r".to_owned()), ended: (!github.runs || github.attempt > 1).then_some((Ending::Failure, at(600))) };
            let run = RunSeen { attempt: github.attempt, ended: (!github.runs).then_some(Ending::Failure) };
            let step = match seen.of_job(Some(&job), now) {
                Next::Ask => seen.of_run(Some(&run), now),
                other => other,
            };
            seen.looked(&step, now);
            if matches!(event, Event::DiesBefore) {
                continue;
            }
            *kept.get_mut(1).unwrap() = seen;
            if step != Next::Ask {
                continue;
            }
            let reply = if github.runs { Reply::StillRuns } else { Reply::Accepted };
            if reply == Reply::Accepted {
                accepted += 1;
                github = GitHub { attempt: github.attempt + 1, runs: true };
            }
            match event {
                Event::DiesAfter => {}
                Event::Loses => kept.get_mut(1).unwrap().answered(&Reply::Lost("timeout".to_owned()), now),
                _ => kept.get_mut(1).unwrap().answered(&reply, now),
            }
        }
        prop_assert!(accepted <= 1, "accepted {accepted} times");
        prop_assert!(kept.get(1).unwrap().asks <= ASKS);
    }

    #[test]
    fn no_hour_has_more_reruns_than_its_budget(arrivals in proptest::collection::vec((0_i64..40, 1_u32..4), 0..300), per_hour in 0_u32..80) {
        let (mut reruns, budget) = (Reruns::default(), Budget { per_run: 2, per_hour });
        let (mut now, mut admitted) = (0, Vec::new());
        for (id, (pause, attempt)) in (0_u64..).zip(arrivals) {
            now += pause;
            if reruns.admit(&victim(id, attempt), &rerun(), &budget, at(now)).is_ok() {
                prop_assert!(attempt <= 2);
                admitted.push(now);
                if id % 3 == 0 {
                    reruns.get_mut(id).unwrap().looked(&Next::Done, at(now));
                }
            }
            prop_assert!(reruns.iter().count() <= LIMIT);
        }
        for begin in &admitted {
            let within = admitted.iter().filter(|at| (begin..=&(begin + 3_599)).contains(at)).count();
            prop_assert!(within <= usize::try_from(per_hour).unwrap());
        }
    }
}
