use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_790_000_000 + second).unwrap()
}

fn demand(min: u32, max: u32) -> Demand<'static> {
    Demand {
        bounds: Bounds { min, max },
        override_min: None,
        metric: None,
        jobs_added_to_min: true,
        planned: 0,
        jobs: 0,
        spec_reserved: 0,
        ceiling: None,
        previous: None,
        live: 0,
        last_scale_out: None,
        delay: Duration::from_secs(600),
        ramp: Ramp::default(),
        now: at(0),
    }
}

fn says(replicas: u32) -> Option<Suggestion> {
    Some(Suggestion { replicas, what: format!("{replicas} jobs queued or running") })
}

fn desired(demand: &Demand<'_>) -> u32 {
    decide(demand).desired
}

/// arc-behaviour 9.9, "HRA compute (no metrics)" and "Override".
#[test]
fn desired_is_that_of_arc_when_there_are_no_metrics() {
    for (min, reserved, expected) in [(1, 0, 1), (1, 3, 4), (1, 12, 10), (1, 2, 3), (0, 3, 3), (0, 0, 0)] {
        assert_eq!(
            desired(&Demand { spec_reserved: reserved, ..demand(min, 10) }),
            expected,
            "min {min}, {reserved} in the spec"
        );
        assert_eq!(desired(&Demand { planned: reserved, ..demand(min, 10) }), expected, "min {min}, {reserved} planned");
        let without_trigger = Demand { spec_reserved: reserved, jobs_added_to_min: false, ..demand(min, 10) };
        assert_eq!(desired(&without_trigger), expected, "min {min}, {reserved} in the spec, no trigger");
    }
    let at_five = Demand { previous: Some(5), live: 5, last_scale_out: Some(at(-120)), ..demand(1, 10) };
    let computed = |reserved, demand: &Demand<'static>| desired(&Demand { spec_reserved: reserved, ..demand.clone() });
    assert_eq!(computed(1, &at_five), 5);
    assert_eq!(computed(1, &Demand { delay: Duration::from_secs(60), ..at_five.clone() }), 2);
    assert_eq!(computed(5, &at_five), 6);
    assert_eq!(computed(1, &Demand { previous: None, ..at_five.clone() }), 2);
    assert_eq!(computed(1, &Demand { last_scale_out: None, ..at_five }), 2);

    let lifted = Demand { override_min: Some(20), ..demand(1, 10) };
    assert_eq!(desired(&lifted), 10);
    assert_eq!(desired(&Demand { metric: says(5), ..lifted.clone() }), 20);
    assert_eq!(desired(&Demand { metric: says(25), ..lifted }), 10);
}

/// arc-behaviour 9.2; what the metric suggests is counted elsewhere.
#[test]
fn desired_is_that_of_arc_when_jobs_are_counted() {
    for (name, min, max, suggested, held, expected) in [
        ("0", 2, 3, 0, None, 2),
        ("1", 2, 3, 3, None, 3),
        ("2", 2, 3, 0, Some(3), 3),
        ("3", 2, 2, 0, None, 2),
        ("7", 1, 3, 0, None, 1),
        ("11", 0, 3, 0, None, 0),
        ("12", 2, 10, 5, None, 5),
        ("above the maximum", 2, 3, 5, None, 3),
    ] {
        let demand = Demand {
            metric: says(suggested),
            jobs_added_to_min: false,
            previous: held,
            live: held.unwrap_or(0),
            last_scale_out: held.map(|_| at(0)),
            ..demand(min, max)
        };
        assert_eq!(desired(&demand), expected, "{name}");
    }
}

#[test]
fn bounds_of_the_spec() {
    let new = |min, max| Bounds::new("ci/builders", min, max).map_err(|error| error.to_string());
    assert_eq!(new(Some(1), Some(3)), Ok(Bounds { min: 1, max: 3 }));
    assert_eq!(new(Some(-4), Some(3)), Ok(Bounds { min: 1, max: 3 }));
    assert_eq!(new(Some(0), Some(-1)), Ok(Bounds { min: 0, max: 0 }));
    assert_eq!(new(None, Some(3)), Err("horizontalrunnerautoscaler ci/builders is missing minReplicas".to_owned()));
    assert_eq!(new(Some(1), None), Err("horizontalrunnerautoscaler ci/builders is missing maxReplicas".to_owned()));
    assert_eq!(new(None, None), Err("horizontalrunnerautoscaler ci/builders is missing minReplicas".to_owned()));
}

#[test]
fn jobs_are_added_to_the_base_when_there_are_reservations() {
    let with = |jobs_added_to_min, metric, planned, spec_reserved| {
        desired(&Demand { jobs_added_to_min, metric, planned, spec_reserved, ..demand(2, 50) })
    };
    assert_eq!(with(true, None, 3, 0), 5, "on top of the minimum");
    assert_eq!(with(true, says(4), 3, 0), 7, "on top of the suggestion");
    assert_eq!(with(true, says(0), 3, 0), 5, "a metric that says nothing leaves the word to the minimum");
    assert_eq!(with(false, says(4), 3, 0), 4, "the greater of the two");
    assert_eq!(with(false, says(4), 9, 0), 9);
    assert_eq!(with(false, says(4), 9, 2), 11, "reservations of the spec are always on top");
}

#[test]
fn a_ceiling_only_lowers_and_not_below_the_minimum() {
    let with = |ceiling, planned| desired(&Demand { ceiling: Some(ceiling), planned, ..demand(3, 10) });
    assert_eq!(with(20, 20), 10);
    assert_eq!(with(6, 20), 6);
    assert_eq!(with(6, 1), 4);
    assert_eq!(with(0, 20), 3);
}

#[test]
fn delay_keeps_runners_and_makes_none_when_demand_falls() {
    let fell = |live, planned| Demand { previous: Some(9), live, planned, last_scale_out: Some(at(-60)), ..demand(1, 10) };
    for (live, planned, expected) in [(9, 0, 9), (5, 0, 5), (12, 0, 9), (0, 0, 1), (2, 3, 4), (6, 8, 9)] {
        let decision = decide(&fell(live, planned));
        assert_eq!((decision.desired, decision.computed), (expected, planned + 1), "{live} live, {planned} planned");
        let held = expected > planned + 1;
        assert_eq!(decision.next, held.then(|| at(540)), "{live} live, {planned} planned");
        assert_eq!(decision.raised, (planned + 1).saturating_sub(9.max(live)));
    }
    let over = Demand { now: at(540), ..fell(9, 0) };
    assert_eq!(desired(&over), 1, "the end of the delay is outside");
    assert_eq!(desired(&Demand { now: at(539), ..fell(9, 0) }), 9);
    assert_eq!(desired(&Demand { bounds: Bounds { min: 1, max: 4 }, ..fell(9, 0) }), 4, "a lowered maximum counts at once");
    assert_eq!(desired(&Demand { ceiling: Some(6), ..fell(9, 0) }), 6, "a ceiling too");
    let endless = decide(&Demand { delay: Duration::MAX, ..fell(9, 0) });
    assert_eq!((endless.desired, endless.next), (9, Some(Timestamp::MAX)));
}

#[test]
fn the_ramp_delays_and_does_not_refuse() {
    let recent = [(at(-70), 4), (at(-50), 3), (at(-20), 1), (at(5), 9)];
    let ramp = |per_minute| Ramp { per_minute: NonZeroU32::new(per_minute), recent: &recent };
    let rising = |per_minute, planned| Demand { ramp: ramp(per_minute), previous: Some(10), live: 10, planned, ..demand(0, 100) };
    let decide = |demand: &Demand<'_>| {
        let decision = decide(demand);
        (decision.desired, decision.raised, decision.next)
    };
    assert_eq!(decide(&rising(0, 50)), (50, 40, None), "no limit");
    assert_eq!(decide(&rising(10, 16)), (16, 6, None), "within it");
    assert_eq!(decide(&rising(10, 17)), (16, 6, Some(at(10))), "4 of 10 are used up, 3 of them until 10 s from now");
    assert_eq!(decide(&rising(2, 17)), (10, 0, Some(at(10))), "more than all are used up");
    assert_eq!(decide(&Demand { live: 15, ..rising(2, 17) }), (15, 0, Some(at(10))), "those that exist need not be made");
    assert_eq!(
        decide(&Demand { bounds: Bounds { min: 14, max: 100 }, ..rising(2, 17) }),
        (14, 4, Some(at(10))),
        "the minimum at once"
    );
    assert_eq!(decide(&Demand { previous: None, live: 0, ..rising(5, 17) }), (1, 1, Some(at(10))), "the first decision too");
    let fresh = Demand { ramp: Ramp { recent: &[], ..ramp(5) }, ..rising(5, 17) };
    assert_eq!(decide(&fresh), (15, 5, Some(at(60))), "what is made now is forgotten in a minute");
    assert_eq!(decide(&rising(1, 9)), (9, 0, None), "a way down is no ramp");
}

#[test]
fn reason_is_plain_when_the_number_is_decided() {
    let base = || Demand { jobs: 5, ..demand(2, 10) };
    let recent = [(at(-5), 4)];
    for (demand, expected) in [
        (base(), "minReplicas"),
        (Demand { override_min: Some(4), ..base() }, "minReplicas of a scheduled override"),
        (Demand { metric: says(7), ..base() }, "7 jobs queued or running"),
        (Demand { metric: says(1), ..base() }, "minReplicas"),
        (Demand { planned: 3, ..base() }, "reserved 3 for 5 jobs"),
        (Demand { planned: 1, jobs: 1, ..base() }, "reserved 1 for 1 job"),
        (Demand { spec_reserved: 2, ..base() }, "reserved 2 by spec.capacityReservations"),
        (Demand { planned: 3, spec_reserved: 2, ..base() }, "reserved 3 for 5 jobs and 2 by spec.capacityReservations"),
        (Demand { planned: 3, metric: says(4), ..base() }, "reserved 3 for 5 jobs; 4 jobs queued or running"),
        (Demand { planned: 3, metric: says(4), jobs_added_to_min: false, ..base() }, "4 jobs queued or running"),
        (Demand { planned: 12, ..base() }, "clamped by maxReplicas 10 (wanted 14)"),
        (Demand { planned: 5, ceiling: Some(6), ..base() }, "clamped by the capacity policy's ceiling 6 (wanted 7)"),
        (Demand { planned: 5, ceiling: Some(0), ..base() }, "minReplicas"),
        (
            Demand { previous: Some(7), live: 8, last_scale_out: Some(at(-410)), ..base() },
            "held at 7 by the scale-down delay until 14:16:30Z",
        ),
        (
            Demand { planned: 5, ramp: Ramp { per_minute: NonZeroU32::new(6), recent: &recent }, ..base() },
            "limited to 6 new runners per minute (wanted 7)",
        ),
    ] {
        assert_eq!(decide(&demand).reason.to_string(), expected);
    }
}

fn number() -> impl Strategy<Value = u32> {
    prop_oneof![8 => 0..40_u32, 1 => any::<u32>()]
}

fn moment() -> impl Strategy<Value = Timestamp> {
    prop_oneof![
        8 => (-900..900_i64).prop_map(at),
        1 => proptest::sample::select(&[Timestamp::MIN, Timestamp::MAX][..]),
    ]
}

prop_compose! {
    fn any_demand()(
        (min, max, override_min) in (number(), number(), proptest::option::of(number())),
        metric in proptest::option::of(number()),
        jobs_added_to_min: bool,
        (planned, jobs, spec_reserved) in (number(), number(), number()),
        ceiling in proptest::option::of(number()),
        previous in proptest::option::of(number()),
        live in number(),
        last_scale_out in proptest::option::of(moment()),
        delay in prop_oneof![(0..1200_u64).prop_map(Duration::from_secs), Just(Duration::MAX)],
        now in moment(),
    ) -> Demand<'static> {
        Demand {
            bounds: Bounds { min, max }, override_min, metric: metric.and_then(says), jobs_added_to_min, planned, jobs, spec_reserved, ceiling,
            previous, live, last_scale_out, delay, ramp: Ramp::default(), now,
        }
    }
}

fn any_ramp() -> impl Strategy<Value = (Option<NonZeroU32>, Vec<(Timestamp, u32)>)> {
    (
        proptest::option::of(number().prop_map(|number| NonZeroU32::MIN.saturating_add(number))),
        proptest::collection::vec((moment(), number()), 0..5),
    )
}

fn min(demand: &Demand<'_>) -> u32 {
    demand.override_min.unwrap_or(demand.bounds.min)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    /// `min <= desired <= max`; where an override lifts the one above the other, the number is one of the two.
    #[test]
    fn desired_stays_within_bounds_when_demand_is_arbitrary(demand in any_demand(), (per_minute, recent) in any_ramp()) {
        let demand = Demand { ramp: Ramp { per_minute, recent: &recent }, ..demand };
        let decision = decide(&demand);
        let (min, max) = (min(&demand), demand.bounds.max);
        if min <= max {
            prop_assert!((min..=max).contains(&decision.desired), "{decision:?}");
        } else {
            prop_assert!([min, max].contains(&decision.desired) || per_minute.is_some() && decision.desired < max, "{decision:?}");
        }
    }

    /// A brake works in its own direction only, and only as long as it says.
    #[test]
    fn delay_and_ramp_work_in_their_own_direction_when_both_apply(demand in any_demand(), (per_minute, recent) in any_ramp()) {
        let demand = Demand { ramp: Ramp { per_minute, recent: &recent }, ..demand };
        let decision = decide(&demand);
        let previous = demand.previous.unwrap_or(0);
        prop_assert!(decision.desired <= decision.computed.max(demand.live), "the delay makes no runners: {decision:?}");
        if decision.desired > decision.computed {
            prop_assert!(decision.desired <= previous, "{decision:?}");
        }
        if decision.desired < decision.computed {
            prop_assert!(decision.desired >= previous.max(demand.live), "the limit takes no runners away: {decision:?}");
        }
        prop_assert_eq!(decision.next.is_some(), decision.desired != decision.computed);
        prop_assert!(decision.next.is_none_or(|next| next > demand.now || demand.now == Timestamp::MAX));
        if matches!(decision.reason, Reason::Held { .. }) {
            let later = decide(&Demand { now: decision.next.unwrap(), ..demand });
            prop_assert_eq!(later.desired, decision.computed);
        }
    }

    /// More demand never lowers the number. (A metric that says nothing at all is not less demand: then the minimum has the word.)
    #[test]
    fn desired_never_falls_when_demand_grows(
        demand in any_demand(),
        (per_minute, recent) in any_ramp(),
        (planned, spec_reserved, metric) in (number(), number(), number()),
    ) {
        let bounds = Bounds { max: demand.bounds.max.max(min(&demand)), ..demand.bounds };
        let demand = Demand { bounds, ramp: Ramp { per_minute, recent: &recent }, ..demand };
        let more = Demand {
            planned: demand.planned.saturating_add(planned),
            spec_reserved: demand.spec_reserved.saturating_add(spec_reserved),
            metric: match &demand.metric {
                Some(suggestion) if suggestion.replicas > 0 => says(suggestion.replicas.saturating_add(metric)),
                other => other.clone(),
            },
            ..demand.clone()
        };
        let (less, more) = (decide(&demand), decide(&more));
        prop_assert!(less.computed <= more.computed, "{less:?} {more:?}");
        prop_assert!(less.desired <= more.desired, "{less:?} {more:?}");
    }

    /// Over any course of demand no minute sees more raises than the limit, but for what the minimum asks; and what is wanted is reached.
    #[test]
    fn ramp_bounds_every_minute_when_demand_is_arbitrary(
        per_minute in 1..20_u32,
        steps in proptest::collection::vec((0..45_i64, 0..60_u32, 0..5_u32), 1..40),
    ) {
        let mut raises: VecDeque<(Timestamp, u32)> = VecDeque::new();
        let (mut clock, mut previous) = (0, None);
        let mut look = |clock, planned, min| {
            raises.retain(|(made, _)| made.duration_since(at(clock)).as_secs() > -60);
            let recent: Vec<_> = raises.iter().copied().collect();
            let ramp = Ramp { per_minute: NonZeroU32::new(per_minute), recent: &recent };
            let decision = decide(&Demand { planned, previous, live: previous.unwrap_or(0), ramp, now: at(clock), ..demand(min, 60) });
            raises.push_back((at(clock), decision.raised));
            previous = Some(decision.desired);
            let minute: u32 = raises.iter().map(|(_, count)| count).sum();
            (decision, minute)
        };
        for (pause, planned, min) in steps {
            clock += pause;
            let (decision, minute) = look(clock, planned, min);
            prop_assert!(decision.raised == 0 || minute <= per_minute || decision.desired == min, "{minute} in a minute: {decision:?}");
        }
        for _ in 0..61 {
            clock += 60;
            look(clock, 50, 0);
        }
        prop_assert_eq!(look(clock, 50, 0).0.desired, 50);
    }
}
