//! What a child can't do, and what becomes of a decision when its process is gone.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test whose scene can't be set has failed")]

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pacer_policy::{Assignment, Chosen, Counters, Fault, IsolationLevel, Limits, PolicySet};

mod child;
mod guest;

use child::jail;
use guest::{Guest, request};

#[test]
fn a_child_gets_nothing_where_seccomp_holds() {
    let isolation = jail().isolation();
    // A machine without seccomp says so; what is said of one with it has to be all that there is.
    assert_ne!(isolation.level, IsolationLevel::None, "{isolation}");
    let possible: Vec<&String> = isolation.missing.iter().filter(|what| what.starts_with("denial of")).collect();
    assert!(possible.is_empty(), "{isolation}");
}

/// What an escape would begin with, by the words of the process that tries it.
const ATTEMPTS: [&str; 9] = [
    "reading a file",
    "listing a directory",
    "reading the operator's environment",
    "reading the operator's memory",
    "copying the operator's memory",
    "tracing the operator",
    "connecting over TCP",
    "executing a program",
    "starting a process",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runner_that_turns_against_the_operator_after_a_decision_gets_nothing() {
    let counters = Arc::new(Counters::default());
    let host = child::host(&counters);
    let policy = host.load(Guest::choosing(&[(0, "a")]).component()).await.unwrap();
    let set = PolicySet {
        scale_down: Assignment { chosen: Chosen::Policy(policy), limits: Limits::default(), ..Default::default() },
        ..Default::default()
    };
    let generation = host.prepare(set).await.unwrap();
    assert_eq!(generation.scale_down(request(4, 2)).await.fault, None);
    let jail = host.jail().unwrap();
    let runners = jail.idle_runners();
    assert_eq!(runners.len(), 1);
    let escape = jail.escape().unwrap();
    assert_eq!(jail.idle_runners(), runners, "the one that answered tried it, and lives");
    let missed: Vec<&&str> = ATTEMPTS.iter().filter(|what| !escape.tried.iter().any(|tried| tried == *what)).collect();
    assert!(missed.is_empty(), "nobody tried {missed:?}");
    assert_eq!(escape.possible, Vec::<String>::new());
    // It goes on as if nothing were.
    assert_eq!(generation.scale_down(request(4, 2)).await.fault, None);
}

/// A value of `/proc/PID/status`.
fn status(process: u32, field: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{field} in {status}")).trim().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runner_is_locked_while_it_waits() {
    let counters = Arc::new(Counters::default());
    let host = child::host(&counters);
    assert!(host.jail().unwrap().idle_runners().is_empty(), "runners are started when they are needed");
    assert_eq!(host.generation().scale_down(request(4, 2)).await.fault, None);
    let runners = host.jail().unwrap().idle_runners();
    assert_eq!(runners.len(), 1);
    // 2 is a filter; new privileges would undo it.
    assert_eq!((status(runners[0], "Seccomp"), status(runners[0], "NoNewPrivs")), ("2".to_owned(), "1".to_owned()));
    assert_eq!(std::fs::read_to_string(format!("/proc/{}/oom_score_adj", runners[0])).unwrap().trim(), "1000");
    let environment = std::fs::read(format!("/proc/{}/environ", runners[0])).unwrap();
    assert_eq!(String::from_utf8_lossy(&environment), "MALLOC_ARENA_MAX=1\0");
    // Another call finds the same one.
    assert_eq!(host.generation().scale_down(request(4, 2)).await.fault, None);
    assert_eq!(host.jail().unwrap().idle_runners(), runners);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runner_that_is_killed_while_it_decides_is_one_fault_and_is_replaced() {
    let counters = Arc::new(Counters::default());
    let host = child::host(&counters);
    let slow = Guest::select("(loop $again (br $again)) unreachable");
    let policy = host.load(slow.component()).await.unwrap();
    let set = PolicySet {
        scale_down: Assignment { chosen: Chosen::Policy(policy), limits: Limits::default(), ..Default::default() },
        ..Default::default()
    };
    let generation = host.prepare(set).await.unwrap();
    // Its runner is there before the call that is disturbed.
    host.generation().scale_down(request(4, 2)).await;
    let [runner] = host.jail().unwrap().idle_runners()[..] else { panic!("one runner waits") };
    let asked = tokio::spawn({
        let generation = Arc::clone(&generation);
        async move { generation.scale_down(request(1_000, 2)).await }
    });
    while !host.jail().unwrap().idle_runners().is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(Command::new("kill").args(["-9", &runner.to_string()]).status().unwrap().success());
    let evaluation = asked.await.unwrap();
    assert!(matches!(&evaluation.fault, Some(Fault::Crash(why)) if why.contains("signal 9")), "{:?}", evaluation.fault);
    // The shipped policy decided, in another process, at once.
    assert_eq!((evaluation.answer.len(), counters.faults("crash"), counters.fallbacks()), (2, 1, 1));
    let [other] = host.jail().unwrap().idle_runners()[..] else { panic!("one runner waits") };
    assert_ne!(other, runner);
}

/// Whether a process has ended with all of its threads. Its first thread may be a zombie before the others are gone.
fn is_over(process: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).map_or(0, Iterator::count);
    let zombie = std::fs::read_to_string(format!("/proc/{process}/stat")).map_or(true, |stat| stat.contains(") Z "));
    threads <= 1 && zombie
}

/// Ends the one runner that waits. Returns when it is over.
async fn end_the_idle_runner(jail: &pacer_policy::Jail) {
    let [runner] = jail.idle_runners()[..] else { panic!("one runner waits") };
    assert!(Command::new("kill").args(["-9", &runner.to_string()]).status().unwrap().success());
    while !is_over(runner) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runner_that_died_while_nobody_asked_is_no_fault() {
    let counters = Arc::new(Counters::default());
    let host = child::host(&counters);
    host.generation().scale_down(request(4, 2)).await;
    end_the_idle_runner(host.jail().unwrap()).await;
    let evaluation = host.generation().scale_down(request(4, 2)).await;
    assert_eq!((evaluation.fault, counters.fallbacks()), (None, 0));
}

/// Longest time from the loss of a runner to the next decision by another one, its start and its locks included.
const REPLACED: Duration = Duration::from_millis(100);

/// How often a runner is lost in one round, and how many rounds there are: other tests, which start processes as well, may take the machine for the
/// whole of one.
const LOSSES: usize = 9;
const ROUNDS: usize = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runner_that_is_lost_is_replaced_within_a_tenth_of_a_second() {
    let counters = Arc::new(Counters::default());
    let host = child::host(&counters);
    host.generation().scale_down(request(4, 2)).await;
    let mut medians = Vec::new();
    for _ in 0..ROUNDS {
        let mut took = Vec::new();
        for _ in 0..LOSSES {
            end_the_idle_runner(host.jail().unwrap()).await;
            let began = Instant::now();
            assert_eq!(host.generation().scale_down(request(4, 2)).await.fault, None);
            took.push(began.elapsed());
        }
        took.sort_unstable();
        println!("replaced and asked in {took:?}");
        medians.push(took[LOSSES / 2]);
        if took[LOSSES / 2] < REPLACED {
            return;
        }
    }
    panic!("the medians of {ROUNDS} rounds are {medians:?}");
}
