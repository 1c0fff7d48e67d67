use proptest::prelude::*;

use super::*;

fn rules(fields: &Fields<'_>) -> Rules {
    Rules::parse(fields).unwrap()
}

fn suggest(fields: &Fields<'_>, before: u32, busy: u32) -> u32 {
    rules(fields).suggest(&Count { before, busy, terminating_busy: 0, registered: before }).replicas
}

/// arc-behaviour 9.9.
#[test]
fn suggestion_is_that_of_arc_when_runners_are_busy() {
    let defaults = Fields::default();
    for (before, busy, expected) in [
        (10, 8, 13),
        (10, 7, 10),
        (10, 3, 10),
        (10, 2, 7),
        (1, 1, 2),
        (1, 0, 0),
        (0, 0, 0),
        (10, 10, 13),
        (10, 0, 7),
        (3, 3, 4),
        (2, 0, 1),
    ] {
        assert_eq!(suggest(&defaults, before, busy), expected, "{busy} of {before}");
    }
    let steps = Fields { scale_up_adjustment: Some(2), scale_down_adjustment: Some(1), ..defaults };
    for (before, busy, expected) in [(10, 8, 12), (10, 2, 9), (10, 5, 10), (1, 0, 0), (0, 0, 0)] {
        assert_eq!(suggest(&steps, before, busy), expected, "{busy} of {before}");
    }
    let leaving = Count { before: 10, busy: 6, terminating_busy: 2, registered: 10 };
    assert_eq!(rules(&defaults).suggest(&leaving).replicas, 13);
}

/// Where binary floats give another number.
#[test]
fn decimals_are_exact() {
    for (factor, before, busy, expected) in
        [("1.1", 100, 100, 110), ("1.3", 10, 10, 13), ("1.15", 100, 100, 115), ("1.0000001", 1, 1, 2)]
    {
        let fields = Fields { scale_up_factor: Some(factor), ..Fields::default() };
        assert_eq!(suggest(&fields, before, busy), expected, "{before} times {factor}, up");
    }
    for (factor, before, expected) in [("0.29", 100, 29), ("0.7", 10, 7), ("0.57", 100, 57), ("0.9999999", 1, 0)] {
        let fields = Fields { scale_down_factor: Some(factor), ..Fields::default() };
        assert_eq!(suggest(&fields, before, 0), expected, "{before} times {factor}, down");
    }
    for (threshold, before, busy, grows) in
        [("0.1", 10, 1, true), ("0.7", 10, 7, true), ("0.3333", 3, 1, true), ("0.3334", 3, 1, false)]
    {
        let fields = Fields { scale_up_threshold: Some(threshold), scale_down_threshold: Some("0"), ..Fields::default() };
        assert_eq!(suggest(&fields, before, busy) > before, grows, "{busy} of {before} against {threshold}");
    }
}

#[test]
fn suggestion_counts_runners_to_be_removed_when_no_others_are_there() {
    let defaults = rules(&Fields::default());
    let steps = rules(&Fields { scale_up_adjustment: Some(2), scale_up_threshold: Some("1.5"), ..Fields::default() });
    let none = Count::default();
    assert_eq!(defaults.suggest(&none).replicas, 0);
    assert_eq!(steps.suggest(&none).replicas, 0);
    let leaving = Count { terminating_busy: 1, ..none };
    assert_eq!(defaults.suggest(&leaving).replicas, 0);
    assert_eq!(steps.suggest(&leaving).replicas, 2);
}

#[test]
fn reason_names_counts_and_thresholds_when_runners_are_busy() {
    let defaults = rules(&Fields::default());
    for (before, busy, terminating_busy, registered, expected) in [
        (10, 8, 0, 10, "8 of 10 busy, at or above 0.8: 10 -> 13"),
        (10, 2, 0, 10, "2 of 10 busy, below 0.3: 10 -> 7"),
        (10, 5, 0, 9, "5 of 10 busy (9 registered), neither below 0.3 nor at 0.8 or above: 10 -> 10"),
        (10, 6, 2, 10, "8 of 10 busy (2 of them to be removed), at or above 0.8: 10 -> 13"),
        (10, 6, 2, 8, "8 of 10 busy (2 of them to be removed, 8 registered), at or above 0.8: 10 -> 13"),
        (0, 0, 0, 0, "0 of 0 busy, neither below 0.3 nor at 0.8 or above: 0 -> 0"),
    ] {
        assert_eq!(defaults.suggest(&Count { before, busy, terminating_busy, registered }).what, expected);
    }
}

#[test]
fn field_is_named_when_it_makes_no_sense() {
    let none = Fields::default();
    for (fields, expected) in [
        (
            Fields { scale_up_threshold: Some("most"), ..none },
            "spec.metrics[].scaleUpThreshold is \"most\", which is no decimal number such as 0.8",
        ),
        (
            Fields { scale_down_threshold: Some("0,3"), ..none },
            "spec.metrics[].scaleDownThreshold is \"0,3\", which is no decimal number such as 0.8",
        ),
        (
            Fields { scale_up_factor: Some("1.00000000000000000000000000001"), ..none },
            "spec.metrics[].scaleUpFactor is \"1.00000000000000000000000000001\", which has more than 28 digits",
        ),
        (
            Fields { scale_down_factor: Some("NaN"), scale_down_adjustment: Some(1), ..none },
            "spec.metrics[].scaleDownFactor is \"NaN\", which is no decimal number such as 0.8",
        ),
        (Fields { scale_up_adjustment: Some(-2), ..none }, "spec.metrics[].scaleUpAdjustment is -2: it must not be negative"),
        (
            Fields { scale_down_adjustment: Some(-1), scale_down_factor: Some("0.5"), ..none },
            "spec.metrics[].scaleDownAdjustment is -1: it must not be negative",
        ),
        (
            Fields { scale_up_adjustment: Some(2), scale_up_factor: Some("1.5"), ..none },
            "spec.metrics[].scaleUpFactor and spec.metrics[].scaleUpAdjustment exclude each other: remove one of them",
        ),
        (
            Fields { scale_down_adjustment: Some(2), scale_down_factor: Some("0.5"), ..none },
            "spec.metrics[].scaleDownFactor and spec.metrics[].scaleDownAdjustment exclude each other: remove one of them",
        ),
    ] {
        assert_eq!(Rules::parse(&fields).unwrap_err().to_string(), expected);
    }
    let empty = Fields { scale_up_factor: Some(""), scale_up_adjustment: Some(0), scale_down_threshold: Some(""), ..none };
    assert_eq!(rules(&empty), rules(&none), "empty and 0 are absent");
}

#[test]
fn decimal_is_shown_shortest_when_written_in_any_form() {
    for (text, expected) in [
        ("0.8", "0.8"),
        (".5", "0.5"),
        ("5.", "5"),
        ("+1.30", "1.3"),
        ("-0.05", "-0.05"),
        ("0", "0"),
        ("-0.000", "0"),
        ("007.250", "7.25"),
        ("13e-1", "1.3"),
        ("1.2E2", "120"),
        ("1e28", "too long"),
        ("1e27", "1000000000000000000000000000"),
        ("1e-28", "0.0000000000000000000000000001"),
        ("1e-29", "too long"),
        ("0e999999999", "0"),
        ("1e999999999", "too long"),
        ("100000000000000000000000000000e-29", "1"),
    ] {
        let shown = match text.parse::<Decimal>() {
            Ok(decimal) => decimal.to_string(),
            Err(DecimalError::TooManyDigits) => "too long".to_owned(),
            Err(DecimalError::Malformed) => "malformed".to_owned(),
        };
        assert_eq!(shown, expected, "{text}");
    }
    for text in ["", ".", "-", "+-1", "1.2.3", "0x1p-2", "1_000", "inf", " 1", "1 ", "1e", "e5", "1e1.5", "１"] {
        assert_eq!(text.parse::<Decimal>(), Err(DecimalError::Malformed), "{text:?}");
    }
}

fn any_number() -> impl Strategy<Value = String> {
    prop_oneof!["-?[0-9]{0,14}\\.?[0-9]{0,14}", "[0-9]{1,3}e-?[0-9]{1,2}", "0\\.[0-9]{1,2}"]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) })]

    #[test]
    fn suggestion_never_panics_when_fields_and_counts_are_arbitrary(
        thresholds in (".*", any_number()),
        factors in (any_number(), any_number()),
        counts: (u32, u32, u32, u32),
        adjustment in proptest::option::of(any::<i32>()),
    ) {
        let fields = Fields {
            scale_up_threshold: Some(&thresholds.1),
            scale_down_threshold: Some(&thresholds.0),
            scale_up_factor: Some(&factors.0),
            scale_down_factor: Some(&factors.1),
            scale_up_adjustment: adjustment,
            scale_down_adjustment: None,
        };
        let (before, busy, terminating_busy, registered) = counts;
        for fields in [fields, Fields { scale_down_threshold: None, scale_up_adjustment: None, ..fields }] {
            if let Ok(rules) = Rules::parse(&fields) {
                let suggestion = rules.suggest(&Count { before, busy, terminating_busy, registered });
                let end = format!("{before} -> {}", suggestion.replicas);
                prop_assert!(suggestion.what.ends_with(&end), "{suggestion:?}");
            }
        }
    }

    /// With thresholds in order, factors on their sides of 1 and busier runners, a fleet never gets a smaller number.
    #[test]
    fn suggestion_never_falls_when_more_runners_are_busy(before in 0..1000_u32, busy in 0..1000_u32, more in 0..1000_u32) {
        prop_assert!(suggest(&Fields::default(), before, busy) <= suggest(&Fields::default(), before, busy + more));
    }

    /// A decimal that is shown reads as the same one.
    #[test]
    fn decimal_reads_the_same_when_shown(text in any_number()) {
        if let Ok(decimal) = text.parse::<Decimal>() {
            prop_assert_eq!(decimal.to_string().parse::<Decimal>(), Ok(decimal));
        }
    }
}
