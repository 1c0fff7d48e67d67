use proptest::prelude::*;

use super::*;

const LIMITS: Limits = Limits { age: SignedDuration::from_secs(7_200), attempts: 3, batch: 5 };

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn attempt(id: u64, guid: &str, second: i64, status: u16) -> Attempt<'_> {
    Attempt { id, guid, at: at(second), worth: Worth::Urgent, outcome: Outcome::of(status), again: false }
}

fn again(id: u64, guid: &str, second: i64, status: u16) -> Attempt<'_> {
    Attempt { again: true, ..attempt(id, guid, second, status) }
}

fn due(backlog: &Backlog, second: i64) -> Vec<String> {
    backlog.due(&LIMITS, at(second)).into_iter().map(|due| due.guid.to_string()).collect()
}

#[test]
fn delivery_is_taken_failed_or_refused_when_its_status_says_so() {
    for (status, outcome) in [
        (200, Outcome::Taken),
        (202, Outcome::Taken),
        (0, Outcome::Failed),
        (301, Outcome::Failed),
        (401, Outcome::Failed),
        (404, Outcome::Failed),
        (408, Outcome::Failed),
        (413, Outcome::Refused),
        (422, Outcome::Refused),
        (502, Outcome::Failed),
        (503, Outcome::Failed),
    ] {
        assert_eq!(Outcome::of(status), outcome, "{status}");
    }
}

#[test]
fn one_shows_whether_the_receiver_is_back_and_then_the_rest_follows() {
    let mut backlog = Backlog::default();
    let outage: Vec<String> = (0..8).map(|number| format!("e{number}")).collect();
    let attempts: Vec<_> = outage.iter().zip(1..).map(|(guid, id)| attempt(id, guid, 100, 502)).collect();
    backlog.record(&attempts, &LIMITS, at(110));
    assert_eq!(due(&backlog, 110), ["e0"]);
    backlog.asked("e0", at(110));
    assert_eq!(
        due(&backlog, 111),
        ["e1"],
        "the next one, since that is not known to have failed and must not be asked for at once"
    );
    backlog.record(&[again(20, "e0", 111, 200)], &LIMITS, at(112));
    assert_eq!(due(&backlog, 112), ["e1", "e2", "e3", "e4", "e5"], "a batch at a time");
}

/// GitHub delivers again some time after it was asked, and newer events go ahead meanwhile.
#[test]
fn event_that_was_asked_for_is_not_asked_for_again_while_its_attempt_is_under_way() {
    let mut backlog = Backlog::default();
    let failed = [attempt(1, "a", 0, 503), attempt(2, "b", 0, 503), attempt(3, "c", 1, 200)];
    backlog.record(&failed, &LIMITS, at(1));
    assert_eq!(due(&backlog, 2), ["a", "b"]);
    backlog.asked("a", at(2));
    backlog.asked("b", at(2));
    backlog.record(&[again(4, "a", 6, 200), attempt(5, "d", 7, 200)], &LIMITS, at(7));
    assert_eq!(due(&backlog, 7), Vec::<String>::new(), "b is on its way");
    assert_eq!(due(&backlog, 32), ["b"], "it got lost");
    let mut failed_again = backlog.clone();
    failed_again.record(&[again(6, "b", 8, 503), attempt(7, "e", 9, 200)], &LIMITS, at(9));
    assert_eq!(due(&failed_again, 9), ["b"], "it was tried in vain before the receiver came back");
}

#[test]
fn jobs_that_wait_come_first() {
    let mut backlog = Backlog::default();
    let ended = Attempt { worth: Worth::Useful, ..attempt(1, "ended", 90, 502) };
    backlog.record(&[ended, attempt(2, "queued", 100, 502), attempt(3, "fine", 101, 200)], &LIMITS, at(110));
    assert_eq!(due(&backlog, 110), ["queued", "ended"]);
}

#[test]
fn an_event_is_asked_for_so_often_and_no_more() {
    let mut backlog = Backlog::default();
    backlog.record(&[attempt(1, "e", 0, 503)], &LIMITS, at(0));
    let mut asked = Vec::new();
    for second in 0..7_000 {
        for guid in due(&backlog, second) {
            asked.push(second);
            backlog.asked(&guid, at(second));
            backlog.record(&[again(second as u64 + 2, "e", second, 503)], &LIMITS, at(second));
        }
    }
    assert_eq!(asked, [0, 60, 300]);
    assert_eq!(backlog.waiting(&LIMITS), 0);
}

#[test]
fn attempts_of_others_and_of_a_process_before_count() {
    let mut backlog = Backlog::default();
    let listed = [attempt(1, "e", 0, 503), again(2, "e", 1, 503), again(3, "e", 2, 503), again(4, "e", 3, 503)];
    backlog.record(&listed, &LIMITS, at(10));
    assert_eq!((due(&backlog, 7_000), backlog.waiting(&LIMITS)), (Vec::<String>::new(), 0));
}

#[test]
fn what_is_too_old_is_given_up() {
    let mut backlog = Backlog::default();
    backlog.record(&[attempt(1, "old", 0, 502), attempt(2, "young", 5_000, 502)], &LIMITS, at(7_000));
    assert_eq!(backlog.waiting(&LIMITS), 2);
    let recorded = backlog.record(&[], &LIMITS, at(7_201));
    assert_eq!((recorded.given_up, due(&backlog, 7_201)), (1, vec!["young".to_owned()]));
}

#[test]
fn what_the_receiver_will_never_take_is_not_asked_for() {
    let mut backlog = Backlog::default();
    backlog.record(&[attempt(1, "long", 0, 413), attempt(2, "e", 1, 502)], &LIMITS, at(2));
    assert_eq!(due(&backlog, 2), ["e"]);
    backlog.asked("e", at(2));
    let recorded = backlog.record(&[again(3, "e", 3, 422)], &LIMITS, at(4));
    assert_eq!((recorded, backlog.waiting(&LIMITS)), (Recorded { given_up: 1, ..Recorded::default() }, 0));
}

#[test]
fn events_of_no_use_only_show_whether_the_receiver_is_there() {
    let mut backlog = Backlog::default();
    let push = |id, second, status| Attempt { worth: Worth::Nothing, ..attempt(id, "push", second, status) };
    backlog.record(&[attempt(1, "a", 0, 502), attempt(2, "b", 1, 502), push(3, 2, 502)], &LIMITS, at(3));
    assert_eq!(due(&backlog, 3), ["a"]);
    backlog.record(&[push(4, 4, 200)], &LIMITS, at(5));
    assert_eq!((due(&backlog, 5), backlog.since(&LIMITS, at(9_000))), (vec!["a".to_owned(), "b".to_owned()], at(1_800)));
}

#[test]
fn only_what_is_new_is_read() {
    let mut backlog = Backlog::default();
    assert_eq!(backlog.since(&LIMITS, at(10_000)), at(2_800));
    backlog.record(&[attempt(1, "e", 9_000, 200)], &LIMITS, at(10_000));
    assert_eq!(backlog.since(&LIMITS, at(10_000)), at(8_880));
}

#[test]
fn an_outage_beyond_all_bounds_takes_no_more_room() {
    let mut backlog = Backlog::default();
    let names: Vec<String> = (0..BACKLOG + 7).map(|number| format!("{number:06}")).collect();
    let attempts: Vec<_> = names.iter().zip(1..).map(|(guid, id)| attempt(id, guid, 100, 502)).collect();
    let recorded = backlog.record(&attempts, &LIMITS, at(110));
    assert_eq!((recorded.overlooked, backlog.waiting(&LIMITS)), (7, BACKLOG));
}

#[test]
fn addresses_are_compared_by_meaning() {
    for (one, other, same) in [
        ("https://hooks.example.com/arc", "HTTPS://Hooks.Example.com/arc/", true),
        ("https://hooks.example.com", "https://hooks.example.com/", true),
        ("https://hooks.example.com/arc", "https://hooks.example.com/ARC", false),
        ("https://hooks.example.com/", "http://hooks.example.com/", false),
        ("https://hooks.example.com:8443/", "https://hooks.example.com/", false),
        ("https://hooks.example.com/?a=1", "https://hooks.example.com/?a=2", false),
        ("", "https://hooks.example.com/", false),
    ] {
        assert_eq!(same_address(one, other), same, "{one} {other}");
    }
}

fn any_attempts() -> impl Strategy<Value = Vec<(u64, u8, i64, u16, bool)>> {
    let status = prop_oneof![Just(200_u16), Just(0), Just(503), Just(422)];
    proptest::collection::vec((1_u64..60, 0_u8..4, 0_i64..500, status, any::<bool>()), 0..30)
}

fn built<'a>(raw: &[(u64, u8, i64, u16, bool)], names: &'a [String]) -> Vec<Attempt<'a>> {
    raw.iter()
        .map(|(id, guid, second, status, again)| Attempt {
            again: *again,
            ..attempt(*id, &names[usize::from(*guid)], *second, *status)
        })
        .collect()
}

proptest! {
    /// Whatever GitHub lists and however often: never more than so many times, never what is over, never more than a batch.
    #[test]
    fn event_is_never_asked_for_too_often_when_deliveries_are_arbitrary(raw in any_attempts(), turns in 1_i64..40) {
        let names: Vec<String> = (0..4).map(|number| format!("e{number}")).collect();
        let attempts = built(&raw, &names);
        let taken: BTreeSet<&str> = attempts.iter().filter(|one| one.outcome != Outcome::Failed).map(|one| one.guid).collect();
        let mut backlog = Backlog::default();
        let mut counts = BTreeMap::<Arc<str>, u32>::new();
        for turn in 0..turns {
            let now = at(500 + turn * 97);
            backlog.record(&attempts, &LIMITS, now);
            let due = backlog.due(&LIMITS, now);
            prop_assert!(due.len() <= LIMITS.batch);
            for one in due {
                prop_assert!(!taken.contains(&*one.guid));
                backlog.asked(&one.guid, now);
                *counts.entry(one.guid).or_default() += 1;
            }
        }
        prop_assert!(counts.values().all(|count| *count <= LIMITS.attempts), "{:?}", counts);
    }

    #[test]
    fn the_order_of_a_listing_and_its_repetition_make_no_difference(raw in any_attempts(), turn in 0_usize..30) {
        let names: Vec<String> = (0..4).map(|number| format!("e{number}")).collect();
        // Ids are unique at GitHub.
        let mut unique = BTreeMap::new();
        for one in raw {
            unique.insert(one.0, one);
        }
        let raw: Vec<_> = unique.into_values().collect();
        let attempts = built(&raw, &names);
        let mut turned = attempts.clone();
        let middle = turn % attempts.len().max(1);
        turned.rotate_left(middle);
        let (mut one, mut other) = (Backlog::default(), Backlog::default());
        one.record(&attempts, &LIMITS, at(600));
        other.record(&turned, &LIMITS, at(600));
        other.record(&attempts, &LIMITS, at(600));
        prop_assert_eq!(one, other);
    }
}
