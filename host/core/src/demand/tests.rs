use std::collections::BTreeSet;
use std::time::Duration;

use super::*;
use crate::ledger::{LIMIT, Terms};

const LIFE: SignedDuration = SignedDuration::from_secs(600);

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

pub(crate) fn event(id: u64, state: State, second: i64, runner: Option<&str>) -> JobEvent {
    JobEvent {
        id,
        state,
        at: at(second),
        queued_at: at(0),
        repository: Arc::from("acme/app"),
        workflow: Arc::from("build"),
        labels: Arc::from([Arc::from("self-hosted")]),
        attempt: 1,
        runner: runner.map(Arc::from),
        origin: Arc::default(),
    }
}

fn ledger(events: &[JobEvent]) -> Ledger {
    let terms = Terms { queued: Duration::from_secs(600), limit: LIMIT };
    let mut ledger = Ledger::default();
    for event in events {
        ledger.apply(event, &terms, event.at);
    }
    ledger
}

fn fleet(present: &[&str], ended: &[(&str, i64)]) -> Fleet {
    Fleet {
        present: present.iter().copied().map(Arc::from).collect(),
        ended: ended.iter().map(|(name, second)| (Arc::from(*name), at(*second))).collect(),
        leaving: BTreeSet::new(),
    }
}

fn listing(started: i64, jobs: Vec<JobEvent>) -> Listing {
    Listing { repository: Arc::from("acme/app"), started: at(started), covers: Some(at(started)), jobs }
}

fn assessed(ledger: &Ledger, listings: &[Listing], fleet: &Fleet, now: i64) -> Demand {
    assess(ledger, listings, fleet, |_| None, LIFE, at(now))
}

fn open(demand: &Demand) -> Vec<u64> {
    demand.jobs.keys().copied().collect()
}

#[test]
fn jobs_that_no_runner_has_wait_since_the_first_was_queued() {
    let of = |events: &[JobEvent]| assessed(&ledger(events), &[], &fleet(&["a"], &[]), 100).waiting();
    let told = |events: &[JobEvent]| {
        let told = of(events).attributes(at(100));
        told.into_iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
    };
    let late = JobEvent { queued_at: at(40), ..event(2, State::Queued, 40, None) };
    let early = JobEvent { queued_at: at(30), ..event(3, State::Queued, 30, None) };
    let running = event(1, State::InProgress, 10, Some("a"));
    for (events, expected) in [
        (&[][..], "waiting-jobs=0"),
        (std::slice::from_ref(&running), "waiting-jobs=0"),
        (&[running.clone(), late.clone()], "waiting-jobs=1 waiting-seconds=60"),
        (&[running.clone(), late, early], "waiting-jobs=2 waiting-seconds=70"),
    ] {
        assert_eq!(told(events), expected);
    }
}

#[test]
fn job_counts_once_when_ledger_and_listing_have_it() {
    let queued = event(1, State::Queued, 0, None);
    let polled = vec![queued.clone(), event(2, State::Queued, 0, None)];
    let demand = assessed(&ledger(&[queued]), &[listing(30, polled)], &Fleet::default(), 31);
    assert_eq!(open(&demand), [1, 2]);
    assert_eq!(demand.findings, []);
}

#[test]
fn a_runner_that_ended_ended_its_job() {
    let jobs = ledger(&[event(1, State::InProgress, 5, Some("web-a")), event(2, State::InProgress, 5, Some("web-b"))]);
    let demand = assessed(&jobs, &[], &fleet(&["web-b"], &[("web-a", 20)]), 21);
    assert_eq!(open(&demand), [2]);
    assert_eq!(demand.findings, [Finding::Over(1)]);
    assert_eq!(demand.unexplained, 0);
}

#[test]
fn the_end_of_a_job_is_not_written_down_while_its_runner_leaves() {
    let jobs = ledger(&[event(1, State::InProgress, 5, Some("web-a"))]);
    let leaving = Fleet { leaving: ["web-a".into()].into(), ..fleet(&[], &[("web-a", 20)]) };
    let demand = assessed(&jobs, &[], &leaving, 21);
    assert_eq!((open(&demand), demand.findings), (vec![], vec![]));
    let demand = assessed(&jobs, &[listing(30, vec![])], &leaving, 31);
    assert_eq!((open(&demand), demand.findings), (vec![], vec![Finding::Over(1)]), "a listing says so");
    let demand = assessed(&jobs, &[], &fleet(&[], &[("web-a", 20)]), 21);
    assert_eq!((open(&demand), demand.findings), (vec![], vec![Finding::Over(1)]), "it has left");
}

#[test]
fn a_job_that_another_fleet_runs_is_not_wanted_here() {
    let demand = assessed(&ledger(&[event(1, State::InProgress, 5, Some("elsewhere"))]), &[], &fleet(&["web-a"], &[]), 6);
    assert_eq!((open(&demand), demand.findings), (vec![], vec![Finding::Over(1)]));
}

#[test]
fn the_end_of_a_runner_stands_for_the_oldest_job_until_an_event_names_it() {
    let mut first = event(1, State::Queued, 0, None);
    first.queued_at = at(-10);
    let jobs = ledger(&[event(2, State::Queued, 1, None), first]);
    let demand = assessed(&jobs, &[], &fleet(&[], &[("web-a", 20)]), 21);
    assert_eq!((open(&demand), demand.unexplained, demand.next), (vec![2], 1, Some(at(80))));

    // The event came.
    let mut named = jobs.clone();
    let terms = Terms { queued: Duration::from_secs(600), limit: LIMIT };
    named.apply(&event(2, State::Completed, 20, Some("web-a")), &terms, at(22));
    let demand = assessed(&named, &[], &fleet(&[], &[("web-a", 20)]), 22);
    assert_eq!((open(&demand), demand.unexplained), (vec![1], 0));

    // It was lost.
    let demand = assessed(&jobs, &[], &fleet(&[], &[("web-a", 20)]), 80);
    assert_eq!((open(&demand), demand.unexplained), (vec![1, 2], 0));
}

/// It was created long before, waited for an approval, and the queue was read meanwhile.
#[test]
fn a_job_that_no_runner_could_have_until_now_is_not_over_because_an_older_listing_lacks_it() {
    let terms = Terms { queued: Duration::from_secs(600), limit: LIMIT };
    let mut jobs = Ledger::default();
    jobs.apply(&event(1, State::Queued, 0, None), &terms, at(500));
    for (started, expected) in [(300, vec![1]), (499, vec![1]), (509, vec![1]), (511, vec![])] {
        let demand = assessed(&jobs, &[listing(started, vec![])], &Fleet::default(), 520);
        assert_eq!(open(&demand), expected, "begun at {started}");
    }
    // After the life was shortened, nobody knows when its event came.
    let demand = assess(&jobs, &[listing(300, vec![])], &Fleet::default(), |_| None, SignedDuration::from_secs(5), at(521));
    assert_eq!(open(&demand), Vec::<u64>::new());
}

#[test]
fn what_a_complete_listing_lacks_is_over_unless_it_is_too_young() {
    let jobs = ledger(&[event(1, State::Queued, 0, None), event(2, State::Queued, 25, None)]);
    let demand = assessed(&jobs, &[listing(30, vec![])], &Fleet::default(), 31);
    assert_eq!((open(&demand), demand.findings), (vec![2], vec![Finding::Over(1)]));

    for (covers, expected) in [(None, vec![1, 2]), (Some(at(0)), vec![1, 2]), (Some(at(1)), vec![2])] {
        let partial = Listing { covers, ..listing(30, vec![]) };
        assert_eq!(
            open(&assessed(&jobs, &[partial], &Fleet::default(), 31)),
            expected,
            "covers what was queued before {covers:?}"
        );
    }
    let other = Listing { repository: Arc::from("acme/other"), ..listing(30, vec![]) };
    assert_eq!(open(&assessed(&jobs, &[other], &Fleet::default(), 31)), [1, 2]);
}

#[test]
fn a_listing_that_is_late_does_not_bring_back_what_is_over() {
    let jobs = ledger(&[event(1, State::Queued, 0, None), event(1, State::Completed, 20, Some("web-a"))]);
    let demand = assessed(&jobs, &[listing(19, vec![event(1, State::Queued, 0, None)])], &Fleet::default(), 21);
    assert_eq!(open(&demand), Vec::<u64>::new());
}

#[test]
fn a_listing_moves_a_job_on() {
    let jobs = ledger(&[event(1, State::Queued, 0, None), event(2, State::Queued, 0, None)]);
    let polled = vec![event(1, State::InProgress, 9, Some("web-a")), event(2, State::InProgress, 9, Some("elsewhere"))];
    let demand = assessed(&jobs, &[listing(30, polled)], &fleet(&["web-a"], &[]), 31);
    assert_eq!(open(&demand), [1]);
    assert_eq!(demand.jobs[&1].runner.as_deref(), Some("web-a"));
    assert_eq!(demand.findings, [Finding::Over(2)]);
}

#[test]
fn an_expired_job_is_looked_up_or_renewed_and_its_time_starts_within_the_maximum() {
    let jobs = ledger(&[event(1, State::Queued, 0, None)]);
    let demand = assessed(&jobs, &[], &Fleet::default(), 599);
    assert_eq!((demand.findings.as_slice(), demand.next), (&[][..], Some(at(600))));
    assert_eq!(assessed(&jobs, &[], &Fleet::default(), 600).findings, [Finding::Expired(1)]);
    let polled = [listing(590, vec![event(1, State::Queued, 0, None)])];
    assert_eq!(assessed(&jobs, &polled, &Fleet::default(), 600).findings, [Finding::StillQueued(1)]);
    let late = assess(&jobs, &[], &Fleet::default(), |_| Some(at(300)), LIFE, at(700));
    assert_eq!((late.findings.as_slice(), late.next), (&[][..], Some(at(900))));
}

#[test]
fn jobs_in_progress_name_their_runners_whoever_tells_of_them() {
    let jobs = ledger(&[
        event(1, State::InProgress, 5, Some("by-event")),
        event(2, State::Queued, 0, None),
        event(4, State::Completed, 9, Some("done")),
    ]);
    let listed = [
        event(1, State::InProgress, 5, Some("by-event")),
        event(2, State::InProgress, 6, Some("event-lost")),
        event(3, State::InProgress, 7, Some("by-list")),
        // The list is older than the event of the end.
        event(4, State::InProgress, 8, Some("done")),
        event(5, State::InProgress, 8, Some("of-another-fleet")),
    ];
    let own = ["by-event", "event-lost", "by-list", "done"];
    let demand = assessed(&jobs, &[listing(30, listed.into())], &fleet(&own, &[]), 31);
    let named = demand.named(&jobs);
    let job = |runner: &str| RunnerJob::of(None, named.get(runner).into_iter().flatten().copied()).job;
    assert_eq!(own.map(job), [Some(1), Some(2), Some(3), None]);
    assert!(!named.contains_key("of-another-fleet"));
}

#[test]
fn job_that_no_list_has_any_more_is_over_when_the_list_is_newer_than_its_begin() {
    let working = |second: i64| RunnerJob {
        working: Some(at(second)),
        job: Some(1),
        repository: Some(Arc::from("acme/app")),
        ..RunnerJob::default()
    };
    let ended =
        |listings: &[Listing], told: &RunnerJob| assessed(&Ledger::default(), listings, &fleet(&["a"], &[]), 100).has_ended(told);
    let whole = listing(50, Vec::new());
    let partial = Listing { covers: Some(at(20)), ..whole.clone() };
    let of_another = Listing { repository: Arc::from("acme/other"), ..whole.clone() };
    assert!(ended(std::slice::from_ref(&whole), &working(39)));
    for (case, listings, told) in [
        ("the list may be older than the job", vec![whole.clone()], working(40)),
        ("the list is not whole", vec![partial], working(10)),
        ("another list", vec![of_another], working(10)),
        ("no list", vec![], working(10)),
        ("no job", vec![whole], RunnerJob::default()),
    ] {
        assert!(!ended(&listings, &told), "{case}");
    }
}
