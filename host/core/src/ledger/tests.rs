use proptest::prelude::*;

use super::*;

const TERMS: Terms = Terms { queued: Duration::from_secs(600), limit: LIMIT };

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

fn event(id: u64, state: State, second: i64) -> JobEvent {
    let runner = (state != State::Queued).then(|| Arc::from(format!("runner-{id}")));
    JobEvent {
        id,
        state,
        at: at(second),
        queued_at: at(0),
        repository: Arc::from("acme/app"),
        workflow: Arc::from("build"),
        labels: Arc::from([Arc::from("self-hosted")]),
        attempt: 1,
        runner,
        origin: Arc::default(),
    }
}

fn life(id: u64) -> [JobEvent; 3] {
    [event(id, State::Queued, 0), event(id, State::InProgress, 5), event(id, State::Completed, 20)]
}

/// Ids with the runners that have them.
type Members = Vec<(u64, Option<Arc<str>>)>;

impl Ledger {
    /// In groups, as an earlier version wrote them.
    fn groups(&self) -> Vec<Group> {
        let mut groups: BTreeMap<_, Members> = BTreeMap::new();
        for (id, job) in &self.jobs {
            let key = (job.state, job.since, job.queued, job.expires, &job.about);
            groups.entry(key).or_default().push((*id, job.runner.clone()));
        }
        let group = |((state, since, queued, expires, about), jobs): ((State, _, _, _, &Arc<About>), _)| Group {
            state,
            since,
            queued,
            expires,
            about: about.clone(),
            jobs,
        };
        groups.into_iter().map(group).collect()
    }

    /// Drops what is forgotten; returns how much.
    fn sweep(&mut self, now: Timestamp) -> usize {
        let before = self.jobs.len();
        self.jobs.retain(|_, job| !job.is_forgotten(now));
        before - self.jobs.len()
    }
}

#[test]
fn a_late_event_of_a_job_that_is_over_changes_nothing() {
    let mut ledger = Ledger::default();
    let [queued, started, completed] = life(1);
    assert_eq!(ledger.apply(&completed, &TERMS, at(21)), Change::Added);
    let before = ledger.clone();
    assert_eq!(ledger.apply(&queued, &TERMS, at(22)), Change::None);
    assert_eq!(ledger.apply(&started, &TERMS, at(23)), Change::None);
    assert_eq!(ledger, before);
    assert_eq!(ledger.open().count(), 0);
}

#[test]
fn a_repeated_event_does_not_start_the_clock_again() {
    let mut ledger = Ledger::default();
    let [queued, ..] = life(1);
    ledger.apply(&queued, &TERMS, at(0));
    assert_eq!(ledger.apply(&queued, &TERMS, at(300)), Change::None);
    assert_eq!(ledger.expired(at(600)).count(), 1);
}

#[test]
fn a_queued_job_that_github_still_lists_counts_on() {
    let mut ledger = Ledger::default();
    ledger.apply(&life(1)[0], &TERMS, at(0));
    assert!(ledger.renew(1, &TERMS, at(600)));
    assert!(!ledger.renew(1, &TERMS, at(600)));
    assert_eq!(ledger.expired(at(1_199)).count(), 0);
    assert_eq!(ledger.expired(at(1_200)).count(), 1);
}

#[test]
fn a_full_ledger_gives_up_tombstones_before_it_refuses_jobs() {
    let terms = Terms { limit: 2, ..TERMS };
    let mut ledger = Ledger::default();
    ledger.apply(&event(1, State::Completed, 0), &terms, at(0));
    ledger.apply(&event(2, State::Queued, 0), &terms, at(0));
    assert_eq!(ledger.apply(&event(3, State::Queued, 0), &terms, at(0)), Change::Added);
    assert_eq!(ledger.apply(&event(4, State::Queued, 0), &terms, at(0)), Change::Overflow);
    assert_eq!(ledger.apply(&event(2, State::Completed, 9), &terms, at(9)), Change::Advanced, "what is known moves on");
    assert_eq!(ledger.apply(&event(4, State::Queued, 0), &terms, at(9)), Change::Added);
}

#[test]
fn tombstone_ends_when_its_time_is_over() {
    let mut ledger = Ledger::default();
    ledger.apply(&life(1)[0], &TERMS, at(0));
    assert!(ledger.complete(1, at(10)));
    assert!(!ledger.complete(1, at(11)));
    assert_eq!(ledger.sweep(at(309)), 0);
    assert_eq!(ledger.sweep(at(310)), 1);
    assert!(ledger.is_empty());
}

#[test]
fn a_burst_of_one_workflow_is_a_handful_of_groups() {
    let mut ledger = Ledger::default();
    for id in 0..1_000 {
        ledger.apply(&event(id, State::Queued, 0), &TERMS, at(0) + SignedDuration::from_millis(i64::try_from(id * 2).unwrap()));
    }
    assert!(ledger.groups().len() <= 3, "{}", ledger.groups().len());
}

#[test]
fn times_before_the_epoch_are_cut_to_the_second_too() {
    assert_eq!(whole(Timestamp::new(-5, -500_000_000).unwrap()), Timestamp::from_second(-6).unwrap());
    assert_eq!(whole(Timestamp::new(5, 500_000_000).unwrap()), Timestamp::from_second(5).unwrap());
}

/// Events of a few jobs, each any number of times, in any order.
fn shuffled() -> impl Strategy<Value = (Vec<JobEvent>, Vec<JobEvent>)> {
    let picks = prop::collection::vec((0_u64..4, 0_usize..3), 1..24);
    picks.prop_flat_map(|picks| {
        let events: Vec<JobEvent> = picks.into_iter().map(|(id, step)| life(id)[step].clone()).collect();
        let twice: Vec<JobEvent> = events.iter().chain(&events).cloned().collect();
        (Just(events), Just(twice).prop_shuffle())
    })
}

proptest! {
    /// Invariant 1: any permutation and duplication of events gives the same ledger.
    #[test]
    fn order_and_repetition_do_not_matter((events, shuffled) in shuffled()) {
        let take = |events: &[JobEvent]| {
            let mut ledger = Ledger::default();
            for event in events {
                ledger.apply(event, &TERMS, at(30));
            }
            ledger
        };
        prop_assert_eq!(take(&events), take(&shuffled));
    }

    /// Invariant 1: expiry alone drains the ledger, where every open job that expires is forgotten.
    #[test]
    fn ledger_is_empty_when_all_entries_have_expired((events, _) in shuffled(), later in 0_i64..1_000) {
        let mut ledger = Ledger::default();
        for event in &events {
            ledger.apply(event, &TERMS, at(0));
        }
        let end = at(i64::try_from(RUNNING.as_secs()).unwrap() + later);
        let gone: Vec<u64> = ledger.expired(end).map(|(id, _)| id).collect();
        for id in gone {
            ledger.forget(id);
        }
        ledger.sweep(end);
        prop_assert!(ledger.is_empty());
    }

    /// What is written is what is read.
    #[test]
    fn groups_hold_everything((events, _) in shuffled()) {
        let mut ledger = Ledger::default();
        for event in &events {
            ledger.apply(event, &TERMS, at(30));
        }
        prop_assert_eq!(Ledger::from_groups(ledger.groups()), ledger);
    }

    /// More than the limit is never kept.
    #[test]
    fn ledger_stays_within_its_limit_when_jobs_are_arbitrary(ids in prop::collection::vec((0_u64..50, 0_usize..3), 0..100)) {
        let terms = Terms { limit: 10, ..TERMS };
        let mut ledger = Ledger::default();
        for (id, step) in ids {
            ledger.apply(&life(id)[step], &terms, at(0));
            prop_assert!(ledger.len() <= 10);
        }
    }
}

#[test]
fn where_a_job_comes_from_is_put_together_and_is_no_news() {
    let terms = Terms { queued: Duration::from_secs(600), limit: 10 };
    let origin = |branch: &str, event: &str| {
        Arc::new(Origin { run: Some(9), branch: branch.into(), event: event.into(), ..Origin::default() })
    };
    let told = |state, branch: &str, heard: &str| JobEvent { origin: origin(branch, heard), ..event(1, state, 0) };
    let mut ledger = Ledger::default();
    assert_eq!(ledger.apply(&told(State::Queued, "main", ""), &terms, at(1)), Change::Added);
    assert_eq!(ledger.apply(&told(State::Queued, "", "push"), &terms, at(1)), Change::None);
    assert_eq!(ledger.get(1).unwrap().origin, origin("main", ""));
    assert_eq!(ledger.apply(&told(State::InProgress, "other", "push"), &terms, at(1)), Change::Advanced);
    assert_eq!(ledger.get(1).unwrap().origin, origin("main", "push"));
    let other = Job { origin: origin("", "push"), ..ledger.get(1).unwrap().clone() };
    let first = Job { origin: origin("main", ""), state: State::Queued, ..other.clone() };
    for jobs in [[(1, first.clone()), (1, other.clone())], [(1, other), (1, first)]] {
        assert_eq!(Ledger::from_jobs(jobs).get(1).unwrap().origin, origin("main", "push"));
    }
}
