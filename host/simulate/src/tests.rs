//! Small worlds and what becomes of their jobs, and the laws of every simulation.

use std::sync::Arc;

use jiff::Timestamp;
use pacer_trace::{About, Header, History, PoolSettings, Record, Trace, What};
use proptest::prelude::*;

use super::*;
use crate::scenario::Start;

/// One job: when it is queued, and how long it runs, in seconds.
pub(crate) type Work = (i64, i64);

pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_000_000_000 + seconds).unwrap()
}

pub(crate) fn settings(min: u32, max: u32, ephemeral: bool, delay: u64) -> PoolSettings {
    PoolSettings {
        pool: "ci/web".into(),
        labels: vec!["web".into()],
        ephemeral,
        min,
        max,
        replicas: min,
        scale_down_delay_seconds: delay,
        job_life_seconds: 600,
        webhooks: true,
        ..PoolSettings::default()
    }
}

fn record(seconds: i64, what: What) -> Record {
    Record { at: at(seconds), what }
}

fn queued(job: u64) -> What {
    let about = About {
        repository: "acme/app".into(),
        workflow: "build".into(),
        labels: Arc::from([Arc::from("self-hosted"), Arc::from("web")]),
        attempt: 1,
        pool: None,
    };
    What::JobQueued { job, about }
}

/// A trace whose jobs took so long, and whose starts took so many seconds; it lasts an hour longer than its last job.
pub(crate) fn trace(settings: PoolSettings, work: &[Work], starts: &[i64]) -> Trace {
    let mut records = vec![record(0, What::Pool(settings))];
    for (index, took) in starts.iter().enumerate() {
        let runner: Arc<str> = Arc::from(format!("sample-{index}"));
        records.push(record(-500, What::RunnerCreated { runner: runner.clone(), pool: "ci/web".into() }));
        records.push(record(-500 + took, What::RunnerRegistered { runner: runner.clone() }));
        records.push(record(-1, What::RunnerEnded { runner, why: pacer_trace::End::Removed }));
    }
    for (job, (queue, runs)) in (1..).zip(work) {
        records.push(record(*queue, queued(job)));
        records.push(record(queue + 5, What::JobStarted { job, runner: None }));
        records.push(record(queue + 5 + runs, What::JobCompleted { job }));
    }
    let last = work.iter().map(|(queue, runs)| queue + runs).max().unwrap_or(0);
    records.push(record(last * 3 + 7_200, What::Checkpoint {}));
    Trace { header: Header::new(at(0)), records }
}

pub(crate) fn scenario(trace: &Trace) -> Scenario {
    Scenario::of(&History::of(trace)).unwrap()
}

fn outcome(trace: &Trace, seed: u64) -> Outcome {
    simulate(&scenario(trace), &Policies::builtin().unwrap(), seed, |_| {})
}

fn story(trace: &Trace, seed: u64) -> Story {
    watch(&scenario(trace), &Policies::builtin().unwrap(), seed, |_| {})
}

#[test]
fn a_burst_gets_one_runner_per_job_and_waits_for_their_start() {
    let work: Vec<Work> = (0..30).map(|index| (10 + index / 10, 60)).collect();
    let outcome = outcome(&trace(settings(0, 100, true, 0), &work, &[8]), 1);
    let total = &outcome.total;
    assert_eq!((total.jobs, total.starts, total.unstarted, total.failed_starts), (30, 30, 0, 0), "{total:?}");
    assert!((8.0..8.5).contains(&total.wait_p50) && (8.0..9.0).contains(&total.wait_max), "{total:?}");
    assert!((total.runner_minutes - 34.0).abs() < 0.5 && total.idle_minutes < 0.1, "{total:?}");
}

#[test]
fn a_maximum_that_binds_makes_jobs_wait_for_each_other() {
    let outcome = outcome(&trace(settings(0, 2, true, 0), &[(10, 100), (10, 100), (10, 100), (10, 100)], &[10]), 1);
    let total = &outcome.total;
    assert_eq!((total.starts, total.unstarted), (4, 0));
    assert!((119.0..123.0).contains(&total.wait_max), "{total:?}");
}

#[test]
fn persistent_runners_are_used_again_and_go_when_the_delay_is_over() {
    let work: Vec<Work> = (0..10).map(|index| (10 + index * 100, 20)).collect();
    let outcome = outcome(&trace(settings(0, 5, false, 300), &work, &[10]), 1);
    let total = &outcome.total;
    // The delay counts from the last increase: jobs that reuse a runner do not prolong it.
    assert_eq!((total.starts, total.removals, total.unstarted), (3, 3, 0), "{total:?}");
    assert!(total.idle_minutes > 10.0, "{total:?}");
}

#[test]
fn start_of_an_idle_runner_does_not_hold_the_delay_of_the_listing() {
    let mut trace = trace(settings(0, 9, true, 0), &[], &[]);
    let mut life = |number: u64, created: i64, registered: Option<i64>, queued_at: i64, started: i64| {
        let runner: Arc<str> = Arc::from(format!("runner-{number}"));
        let made = What::RunnerCreated { runner: runner.clone(), pool: "ci/web".into() };
        trace.records.push(record(created, made));
        trace.records.extend(registered.map(|at| record(at, What::RunnerRegistered { runner: runner.clone() })));
        trace.records.push(record(queued_at, queued(number)));
        trace.records.push(record(started, What::JobStarted { job: number, runner: Some(runner) }));
    };
    // A job waited for the first; the second was listed late, the third not at all; the fourth was faster than the first, although it was listed.
    life(1, 10, Some(30), 9, 13);
    life(2, 20, Some(25), 40, 41);
    life(3, 30, None, 70, 71);
    life(4, 40, Some(42), 90, 91);
    let starts: Vec<_> = scenario(&trace).pools.remove(0).starts.values().collect();
    assert_eq!(starts, [3_000, 3_000, 3_000, 2_000].map(Start::Online));
}

/// Six idle runners, two on each of three nodes, of which three are enough from the tenth minute on: recorded as one that went from each node.
fn spread_over_nodes() -> Trace {
    // The job takes one of the six.
    let minimum = |min| PoolSettings { webhooks: false, ..settings(min, 9, false, 0) };
    let mut trace = trace(minimum(6), &[(30, 10)], &[]);
    for index in 0..6 {
        let runner: Arc<str> = Arc::from(format!("web-{index}"));
        let node = Arc::from(format!("node-{}", index % 3));
        trace.records.push(record(-500, What::RunnerCreated { runner: runner.clone(), pool: "ci/web".into() }));
        trace.records.push(record(-490, What::RunnerRegistered { runner: runner.clone() }));
        trace.records.push(record(-490, What::RunnerPlaced { runner: runner.clone(), node }));
        if index < 3 {
            trace.records.push(record(630, What::RunnerEnded { runner, why: pacer_trace::End::Removed }));
        }
    }
    trace.records.push(record(600, What::Pool(minimum(3))));
    trace
}

#[test]
fn whole_node_is_freed_where_the_policy_is_told_of_nodes_and_that_is_told_of_what_was_recorded_too() {
    let trace = spread_over_nodes();
    let simulated = outcome(&trace, 1).total;
    assert_eq!((simulated.removals, simulated.nodes_freed), (3, 1), "{simulated:?}");
    let history = History::of(&trace);
    let (pools, recorded) = recorded(&history, &scenario(&trace));
    assert_eq!((recorded.removals, recorded.nodes_freed), (3, 0), "{recorded:?}");
    assert_eq!(pools["ci/web"], recorded);
    // Three nodes to the end, or two from the removals on.
    let minutes = (history.ended.as_second() - history.started.as_second()) as f64 / 60.0;
    assert!((recorded.node_minutes - 3.0 * minutes).abs() < 0.1, "{recorded:?}");
    let saved = recorded.node_minutes - simulated.node_minutes;
    assert!((minutes - 12.0..minutes - 10.0).contains(&saved), "{saved} of {minutes}");
}

#[test]
fn nodes_are_no_figure_of_a_trace_without_any() {
    let total = outcome(&trace(settings(0, 2, true, 0), &[(10, 100)], &[10]), 1).total;
    assert_eq!((total.node_minutes, total.nodes_freed), (0.0, 0));
}

fn of_acme(settings: PoolSettings) -> PoolSettings {
    PoolSettings { scope: Some("organization acme".into()), ..settings }
}

/// Jobs of a minute, one every ten.
fn now_and_then() -> Vec<Work> {
    (1..=5).map(|index| (600 * index, 60)).collect()
}

fn minutes(trace: &Trace) -> u64 {
    (History::of(trace).ended.as_second() - at(0).as_second()) as u64 / 60
}

#[test]
fn listings_come_twice_a_minute_where_events_tell_the_rest() {
    let trace = trace(of_acme(settings(0, 5, true, 0)), &now_and_then(), &[10]);
    let minutes = minutes(&trace);
    assert_eq!(outcome(&trace, 1).total.github_calls, 2 * minutes + 1);
}

#[test]
fn listings_are_hurried_for_a_minute_for_a_start_of_which_no_event_tells() {
    let polled = |min| PoolSettings { webhooks: false, ..of_acme(settings(min, 5, false, 0)) };
    let mut trace = trace(polled(0), &now_and_then(), &[10]);
    let minutes = minutes(&trace);
    trace.records.push(record(300, What::Pool(polled(1))));
    let total = outcome(&trace, 1).total;
    // Nine after 1, 1.5, 2.25 seconds and so on, where three would have come; those after them are late by less than half a minute.
    assert_eq!((total.starts, total.github_calls), (1, 2 * minutes + 1 + 6), "{total:?}");
}

#[test]
fn pools_of_a_scope_share_its_listings_and_removals_are_calls() {
    let idle = |min| PoolSettings { webhooks: false, ..of_acme(settings(min, 5, false, 0)) };
    let mut trace = trace(idle(3), &[(30, 10)], &[10]);
    trace.records.push(record(0, What::Pool(PoolSettings { pool: "ci/other".into(), labels: vec!["other".into()], ..idle(0) })));
    trace.records.push(record(600, What::Pool(idle(1))));
    let outcome = outcome(&trace, 1);
    let (web, other) = (&outcome.pools["ci/web"], &outcome.pools["ci/other"]);
    assert_eq!((web.removals, other.removals), (2, 0));
    assert_eq!((web.github_calls, outcome.total.github_calls), (other.github_calls + 2, other.github_calls + 2));
}

#[test]
fn calls_are_counted_as_recorded_and_are_no_figure_without_a_scope() {
    let mut told = trace(of_acme(settings(0, 5, true, 0)), &[(10, 10)], &[10]);
    assert_eq!(outcome(&trace(settings(0, 5, true, 0), &[(10, 10)], &[10]), 1).total.github_calls, 0);
    let of_scope = |scope: &str, listings, pages| pacer_trace::surroundings::ScopeListings {
        scope: scope.into(),
        listings,
        pages,
        ..Default::default()
    };
    for scopes in
        [vec![of_scope("organization acme", 10, 1)], vec![of_scope("organization acme", 5, 2), of_scope("enterprise x", 9, 9)]]
    {
        let listings = pacer_trace::surroundings::Listings { credentials: "default".into(), scopes, more: 0 };
        told.records.push(record(60, What::Listings(listings)));
    }
    // A sample is removed before the trace begins.
    let (_, total) = recorded(&History::of(&told), &scenario(&told));
    assert_eq!((total.removals, total.github_calls), (0, 20));
}

#[test]
fn volume_is_taken_over_by_the_next_runner_unless_it_is_deleted_meanwhile() {
    let with = |surplus_volumes_deleted| PoolSettings { volumes: 2, surplus_volumes_deleted, ..settings(0, 5, true, 0) };
    let used = |settings| {
        let total = outcome(&trace(settings, &now_and_then(), &[10]), 1).total;
        (total.starts, total.volumes_made, total.volumes_reused)
    };
    assert_eq!(used(with(false)), (5, 2, 8));
    assert_eq!(used(with(true)), (5, 10, 0));
    assert_eq!(used(settings(0, 5, true, 0)), (5, 0, 0));
}

#[test]
fn edit_that_is_refused_a_moment_later_was_never_in_force() {
    let waits = |verdict: i64| {
        let mut trace = trace(settings(0, 1, true, 0), &[(10, 300), (10, 300)], &[10]);
        let edit = PoolSettings { refused: false, ..settings(0, 3, true, 0) };
        trace.records.push(record(100, What::Pool(edit.clone())));
        trace.records.push(record(100 + verdict, What::Pool(PoolSettings { refused: true, ..edit })));
        outcome(&trace, 1).total.wait_max
    };
    assert!(waits(1) > 300.0, "{}", waits(1));
    assert!(waits(10) < 120.0, "{}", waits(10));
}

#[test]
fn a_minimum_is_there_before_jobs_come() {
    let outcome = outcome(&trace(settings(3, 5, true, 0), &[(60, 10), (60, 10)], &[20]), 1);
    assert!(outcome.total.wait_max < 0.1, "{:?}", outcome.total);
    assert_eq!(outcome.total.starts, 5, "two are replaced");
}

#[test]
fn failed_starts_are_tried_again_with_growing_pauses() {
    let mut trace = trace(settings(0, 5, true, 0), &[(10, 10)], &[]);
    for (runner, created) in [("failed", 10), ("failed-again", 14)] {
        let runner: Arc<str> = Arc::from(runner);
        trace.records.push(record(created, What::RunnerCreated { runner: runner.clone(), pool: "ci/web".into() }));
        trace.records.push(record(created + 2, What::RunnerEnded { runner, why: pacer_trace::End::Failed }));
    }
    let good: Arc<str> = Arc::from("good");
    trace.records.push(record(30, What::RunnerCreated { runner: good.clone(), pool: "ci/web".into() }));
    trace.records.push(record(33, What::RunnerRegistered { runner: good }));
    for seed in 0..32 {
        let total = outcome(&trace, seed).total;
        assert_eq!((total.failed_starts, total.starts, total.unstarted), (2, 3, 0), "{total:?}");
        // Two starts of two seconds, a good one of three, and what the operator waits after a failure and after a second one.
        assert!((15.0..25.0).contains(&total.wait_max), "{total:?}");
    }
}

#[test]
fn a_job_that_is_called_off_gets_no_runner_and_is_not_counted() {
    let mut trace = trace(settings(0, 1, true, 0), &[(10, 100)], &[5]);
    trace.records.push(record(12, queued(77)));
    trace.records.push(record(60, What::JobCompleted { job: 77 }));
    let outcome = outcome(&trace, 1);
    assert_eq!((outcome.total.jobs, outcome.total.unstarted, outcome.total.starts), (1, 0, 1));
}

#[test]
fn runners_and_jobs_of_before_the_beginning_are_there() {
    let mut trace = trace(PoolSettings { replicas: 2, ..settings(0, 2, true, 600) }, &[(10, 50)], &[5]);
    for name in ["one", "two"] {
        let runner: Arc<str> = Arc::from(name);
        trace.records.push(record(-300, What::RunnerCreated { runner: runner.clone(), pool: "ci/web".into() }));
        trace.records.push(record(-290, What::RunnerRegistered { runner }));
    }
    trace.records.push(record(-190, queued(99)));
    trace.records.push(record(-190, What::JobStarted { job: 99, runner: Some("one".into()) }));
    trace.records.push(record(100, What::JobCompleted { job: 99 }));
    let scenario = scenario(&trace);
    assert_eq!(scenario.jobs(), 1, "waits from before the beginning do not count");
    let outcome = simulate(&scenario, &Policies::builtin().unwrap(), 1, |_| {});
    assert!(outcome.total.wait_max < 0.1, "{:?}", outcome.total);
    assert_eq!(outcome.total.starts, 0);
}

#[test]
fn a_simulated_policy_is_calibrated_when_it_gives_what_was_recorded() {
    let trace = trace(settings(0, 9, true, 0), &[(10, 30), (20, 30)], &[5]);
    let scenario = scenario(&trace);
    let runs = (0..3).map(|seed| simulate(&scenario, &Policies::builtin().unwrap(), seed, |_| {})).collect();
    let contender = Contender { name: "builtin".to_owned(), runs, faults: 0 };
    let measured = recorded(&History::of(&trace), &scenario);
    let calibration = Calibration::of(&contender, &measured, Bound::default());
    let waits: Vec<bool> = calibration.deviations.iter().map(|deviation| deviation.within).collect();
    assert_eq!(waits, [true, true, false], "no runner of these jobs is in the trace: {calibration:?}");
    assert!(!calibration.holds());
    let condition = |text: &str| text.parse::<Condition>();
    assert!(condition("wait.p95 > +10%").unwrap().met(&contender, &contender).is_none());
    assert!(condition("wait.max > 3").unwrap().met(&contender, &contender).unwrap().contains("wait.max of builtin is 5."));
    assert!(condition("runner-minutes < +1").unwrap().met(&contender, &contender).is_some());
    for wrong in ["", "wait.p95", "wait.p90 > 1", "wait.p95 > x", "wait.p95 > +%", "wait.p95 > nan"] {
        assert!(condition(wrong).unwrap_err().to_string().contains("runner-minutes"), "{wrong}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn every_run_keeps_the_laws(
        work in prop::collection::vec((0_i64..900, 0_i64..200), 1..40),
        starts in prop::collection::vec(1_i64..60, 1..5),
        min in 0_u32..4,
        more in 1_u32..8,
        ephemeral in any::<bool>(),
        delay in prop::sample::select(vec![0_u64, 60, 600]),
        seed in any::<u64>(),
    ) {
        let max = min + more;
        let trace = trace(settings(min, max, ephemeral, delay), &work, &starts);
        let outcome = outcome(&trace, seed);
        prop_assert_eq!(&outcome, &super::tests::outcome(&trace, seed), "the same seed");
        let story = story(&trace, seed);
        prop_assert_eq!((outcome.total.jobs, outcome.total.unstarted), (work.len() as u64, 0));
        let mut served = std::collections::BTreeMap::new();
        for (job, started, runner) in &story.started {
            let (queue, _) = work[usize::try_from(*job - 1).unwrap()];
            prop_assert!(*started >= at(queue).as_millisecond(), "job {} started before it was queued", job);
            *served.entry(*runner).or_insert(0_u32) += 1;
        }
        prop_assert_eq!(story.started.len(), work.len(), "each job once");
        if ephemeral {
            prop_assert!(served.values().all(|jobs| *jobs == 1));
        }
        for (_, _, exist, wanted, min, max) in &story.fleets {
            prop_assert!(min <= wanted && wanted <= max);
            // A fleet has no more than its maximum and the surge of an exchange.
            prop_assert!(*exist <= max + max.div_ceil(10).max(1), "{} of {}", exist, max);
        }
        let (_, _, last, ..) = story.fleets.last().unwrap();
        prop_assert!(*last >= min);
        let figures = &outcome.total;
        prop_assert!(figures.idle_minutes <= figures.runner_minutes + 1e-6, "{:?}", figures);
        prop_assert!(figures.wait_p50 <= figures.wait_p95 && figures.wait_p95 <= figures.wait_max);
    }
}
