use proptest::prelude::*;

use super::*;

const GET: Cost = Cost { points: 1, creations: 0 };
const DELETE: Cost = Cost { points: 5, creations: 0 };
const POST: Cost = Cost { points: 5, creations: 1 };

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Makes as many calls at once as may be made, each answered at once.
fn burst(allowance: &mut Allowance<u32>, purpose: Purpose, cost: Cost, now: Duration) -> u32 {
    let mut calls = 0;
    while let Ok(grant) = allowance.ask(10_000 + calls, purpose, cost, now) {
        allowance.answered(grant, now);
        calls += 1;
    }
    allowance.waiting.clear();
    calls
}

#[test]
fn each_purpose_finds_its_share_whatever_the_others_took() {
    for (first, cost, then) in [
        (Purpose::Start, POST, [(Purpose::Listing, GET, 120), (Purpose::Removal, DELETE, 12)]),
        (Purpose::Listing, GET, [(Purpose::Start, POST, 12), (Purpose::Removal, DELETE, 12)]),
        (Purpose::Removal, DELETE, [(Purpose::Start, POST, 12), (Purpose::Listing, GET, 120)]),
    ] {
        let mut allowance = Allowance::default();
        burst(&mut allowance, first, cost, seconds(0));
        for (purpose, cost, share) in then {
            assert!(burst(&mut allowance, purpose, cost, seconds(1)) >= share, "{first:?}, then {purpose:?}");
        }
    }
}

#[test]
fn one_purpose_alone_uses_what_nothing_is_kept_of() {
    for (purpose, cost, calls) in [(Purpose::Start, POST, 65), (Purpose::Listing, GET, 720), (Purpose::Removal, DELETE, 132)] {
        let mut allowance = Allowance::default();
        assert_eq!(burst(&mut allowance, purpose, cost, seconds(0)), calls, "{purpose:?}");
        assert_eq!(burst(&mut allowance, purpose, cost, Duration::from_millis(59_900)), 0, "{purpose:?}");
        assert_eq!(burst(&mut allowance, purpose, cost, seconds(60)), calls, "{purpose:?}");
    }
}

#[test]
fn reports_use_a_small_part_and_keep_nobody_waiting_who_starts_a_job() {
    for (cost, calls) in [(GET, 60), (POST, 10), (DELETE, 12)] {
        let mut allowance = Allowance::default();
        assert_eq!(burst(&mut allowance, Purpose::Report, cost, seconds(0)), calls);
        assert!(burst(&mut allowance, Purpose::Start, POST, seconds(1)) >= 55);
        assert_eq!(burst(&mut allowance, Purpose::Report, cost, seconds(60)), calls);
    }
    for (other, cost) in [(Purpose::Start, POST), (Purpose::Listing, GET), (Purpose::Removal, DELETE)] {
        let mut allowance = Allowance::default();
        burst(&mut allowance, other, cost, seconds(0));
        assert_eq!(burst(&mut allowance, Purpose::Report, POST, seconds(1)), 0, "what {other:?} left is kept for others");
    }
    let mut allowance = Allowance::default();
    allowance.share(100);
    assert!(burst(&mut allowance, Purpose::Report, POST, seconds(0)) > 0);
}

#[test]
fn processes_that_share_an_account_have_the_same_part_of_its_minute() {
    for sharers in [1, 2, 3, 10] {
        let most = |purpose, cost| {
            let mut allowance = Allowance::default();
            allowance.share(sharers);
            burst(&mut allowance, purpose, cost, seconds(0))
        };
        let (starts, listings, removals) =
            (most(Purpose::Start, POST), most(Purpose::Listing, GET), most(Purpose::Removal, DELETE));
        assert!(starts * sharers <= 75 && listings * sharers <= 840 && removals * sharers * 5 <= 840, "{sharers}");
        assert!(starts * sharers >= 40 && listings * sharers >= 600 && removals * sharers >= 90, "{sharers}");
    }
    let mut allowance = Allowance::default();
    assert_eq!(burst(&mut allowance, Purpose::Listing, GET, seconds(0)), 720);
    allowance.share(2);
    assert_eq!(burst(&mut allowance, Purpose::Listing, GET, seconds(30)), 0, "what was used before counts");
    assert!(burst(&mut allowance, Purpose::Listing, GET, seconds(60)) <= 420);
    allowance.share(1);
    assert_eq!(burst(&mut allowance, Purpose::Listing, GET, seconds(120)), 720, "the others are gone");
}

#[test]
fn a_call_counts_until_a_minute_after_its_answer() {
    let mut allowance = Allowance::default();
    let grants: Vec<Grant> = (0..132).map(|who| allowance.ask(who, Purpose::Removal, DELETE, seconds(0)).unwrap()).collect();
    assert!(allowance.ask(200, Purpose::Removal, DELETE, seconds(100)).is_err(), "all are in flight");
    grants.into_iter().for_each(|grant| allowance.answered(grant, seconds(100)));
    assert_eq!(allowance.ask(200, Purpose::Removal, DELETE, seconds(101)), Err(seconds(59)));
    assert!(allowance.ask(200, Purpose::Removal, DELETE, seconds(160)).is_ok());
}

#[test]
fn the_urgent_go_first_and_then_whoever_came_first() {
    let mut allowance = Allowance::default();
    burst(&mut allowance, Purpose::Removal, DELETE, seconds(0));
    burst(&mut allowance, Purpose::Listing, GET, seconds(0));
    let at = seconds(1);
    for who in 0..3 {
        assert_eq!(allowance.ask(who, Purpose::Removal, DELETE, at), Err(seconds(59)));
    }
    let pages = Cost { points: 720, creations: 0 };
    assert_eq!(allowance.ask(9, Purpose::Listing, pages, at), Err(seconds(59)));
    // The listing leaves 60 for removals, so that all three fit behind it, and thirteen would not.
    let later = seconds(60);
    assert!((0..12).all(|who| allowance.ask(who, Purpose::Removal, DELETE, later).is_ok()));
    assert!(allowance.ask(12, Purpose::Removal, DELETE, later).is_err(), "there is room, but not behind the listing");
    assert!(allowance.ask(9, Purpose::Listing, pages, later).is_ok());
}

#[test]
fn a_place_lapses_when_nobody_comes_back() {
    let mut allowance = Allowance::default();
    burst(&mut allowance, Purpose::Removal, DELETE, seconds(0));
    let all = Cost { points: 660, creations: 0 };
    assert_eq!(allowance.ask(1, Purpose::Removal, all, seconds(0)), Err(seconds(60)));
    assert!(allowance.ask(2, Purpose::Removal, DELETE, seconds(61)).is_err(), "the other may still come");
    assert!(allowance.ask(2, Purpose::Removal, DELETE, seconds(91)).is_ok());
}

#[test]
fn a_call_that_no_minute_holds_goes_alone() {
    let huge = Cost { points: 5_000, creations: 0 };
    let mut allowance = Allowance::default();
    let grant = allowance.ask(1, Purpose::Listing, huge, seconds(0)).unwrap();
    allowance.answered(grant, seconds(3));
    assert_eq!(burst(&mut allowance, Purpose::Listing, GET, seconds(4)), 0);
    assert!(allowance.ask(2, Purpose::Listing, huge, seconds(63)).is_ok());
}

#[test]
fn those_who_wait_are_bounded_and_the_others_get_an_answer_too() {
    let mut allowance = Allowance::default();
    burst(&mut allowance, Purpose::Removal, DELETE, seconds(0));
    for who in 0..5_000 {
        assert!(allowance.ask(who, Purpose::Removal, DELETE, seconds(0)).is_err());
    }
    assert_eq!(allowance.waiting.len(), WAITING);
}

/// Calls that come back when they were told to, each answered after `takes`. Gives when each was made, in the order in which they were, and
/// how often they asked in all.
fn follow(count: u32, takes: Duration) -> (Vec<(u32, Duration)>, usize) {
    let mut allowance = Allowance::default();
    let mut alarms: BTreeMap<(Duration, u32), ()> = (0..count).map(|who| ((Duration::ZERO, who), ())).collect();
    let mut flights: VecDeque<(Duration, Grant)> = VecDeque::new();
    let (mut made, mut asked) = (Vec::new(), 0);
    while let Some(((now, who), ())) = alarms.pop_first() {
        while flights.front().is_some_and(|(at, _)| *at <= now) {
            let Some((at, grant)) = flights.pop_front() else { break };
            allowance.answered(grant, at);
        }
        asked += 1;
        match allowance.ask(who, Purpose::Removal, DELETE, now) {
            Ok(grant) => {
                made.push((who, now));
                flights.push_back((now + takes, grant));
            }
            Err(wait) => drop(alarms.insert((now + wait, who), ())),
        }
    }
    (made, asked)
}

#[test]
fn a_thousand_removals_go_in_their_order_at_the_pace_of_the_limit() {
    let (made, asked) = follow(1_000, Duration::from_millis(300));
    assert!(made.iter().map(|(who, _)| *who).eq(0..1_000));
    // 132 in a minute and what it takes to be answered: the eighth minute is the last.
    let took = made.last().unwrap().1;
    assert!((seconds(7 * 60)..seconds(8 * 60)).contains(&took), "{took:?}");
    assert!(asked <= 1_000 * 10, "{asked}");
}

proptest! {
    /// GitHub sees each call at some time between its sending and its answer, and counts by minutes that begin whenever it likes.
    #[test]
    fn no_minute_of_github_holds_more_than_allowed(
        calls in proptest::collection::vec((0_usize..4, 0_u64..400, 0_u64..20_000, 0.0..1.0_f64, 1_u32..40), 1..600),
    ) {
        let mut allowance = Allowance::default();
        let (mut now, mut flights, mut seen) = (Duration::ZERO, Vec::<(Duration, Grant)>::new(), Vec::new());
        for (who, (purpose, pause, takes, share, pages)) in calls.into_iter().enumerate() {
            now += Duration::from_millis(pause);
            let (over, left): (Vec<_>, Vec<_>) = flights.into_iter().partition(|(at, _)| *at <= now);
            flights = left;
            let mut over = over;
            over.sort_by_key(|(at, _)| *at);
            over.into_iter().for_each(|(at, grant)| allowance.answered(grant, at));
            let purpose = Purpose::ALL[purpose];
            let cost = match purpose {
                Purpose::Start => POST,
                Purpose::Listing => Cost { points: pages, creations: 0 },
                Purpose::Removal => DELETE,
                Purpose::Report => POST,
            };
            if let Ok(grant) = allowance.ask(who, purpose, cost, now) {
                let takes = Duration::from_millis(takes);
                seen.push((now + takes.mul_f64(share), cost));
                flights.push((now + takes, grant));
            }
        }
        for (from, _) in &seen {
            let minute = || seen.iter().filter(|(at, _)| at >= from && *at < *from + MINUTE).map(|(_, cost)| cost);
            prop_assert!(minute().map(|cost| cost.points).sum::<u32>() <= 900);
            prop_assert!(minute().map(|cost| cost.creations).sum::<u32>() <= 80);
        }
    }

    #[test]
    fn no_sequence_of_calls_makes_it_panic(
        calls in proptest::collection::vec((0_usize..4, any::<u32>(), any::<u32>(), any::<u32>(), any::<bool>()), 0..60),
    ) {
        let mut allowance = Allowance::default();
        let mut now = Duration::ZERO;
        for (purpose, points, creations, pause, answered) in calls {
            now += Duration::from_millis(u64::from(pause));
            if let Ok(grant) = allowance.ask(points % 7, Purpose::ALL[purpose], Cost { points, creations }, now)
                && answered
            {
                allowance.answered(grant, now);
            }
        }
        prop_assert!(allowance.waiting.len() <= WAITING);
    }
}
