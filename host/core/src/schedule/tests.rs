use jiff::fmt::temporal::{DateTimeParser, PiecesOffset};
use jiff::{ToSpan, tz::Offset};
use proptest::prelude::*;

use super::*;

const FREQUENCIES: [Frequency; 4] = [Frequency::Daily, Frequency::Weekly, Frequency::Monthly, Frequency::Yearly];

/// A moment in the offset it is written with.
fn zoned(text: &str) -> Zoned {
    let pieces = DateTimeParser::new().parse_pieces(text).unwrap();
    let offset = match pieces.offset() {
        Some(PiecesOffset::Numeric(offset)) => offset.offset(),
        _ => Offset::UTC,
    };
    let clock = pieces.date().to_datetime(pieces.time().unwrap());
    offset.to_timestamp(clock).unwrap().to_zoned(TimeZone::fixed(offset))
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn entry(frequency: Option<Frequency>, start: &str, end: &str) -> Override {
    Override { start: zoned(start), end: at(end), frequency, until: None, min_replicas: Some(3), time_zone: None }
}

fn period(start: &str, end: &str) -> Period {
    Period { start: at(start), end: at(end) }
}

/// Where the clock goes from 02:00 to 03:00 on 2026-03-08 and from 02:00 back to 01:00 on 2026-11-01.
fn new_york() -> TimeZone {
    TimeZone::posix("EST5EDT,M3.2.0,M11.1.0").unwrap()
}

/// Starts of what holds and what comes, of one override.
fn starts(entry: &Override, now: Timestamp) -> (Option<Timestamp>, Option<Timestamp>) {
    let schedule = evaluate(std::slice::from_ref(entry), now).unwrap();
    (schedule.active.map(|(_, period)| period.start), schedule.upcoming.map(|(_, period)| period.start))
}

/// The periods of one override that begin after `now`, or hold then, found by waiting for each next change.
fn periods(entry: &Override, mut now: Timestamp, count: usize) -> Vec<Period> {
    let mut found = Vec::new();
    while found.len() < count {
        let schedule = evaluate(std::slice::from_ref(entry), now).unwrap();
        if let Some((_, period)) = schedule.active
            && found.last() != Some(&period)
        {
            found.push(period);
        }
        let Some(next) = schedule.next_change else { break };
        now = next;
    }
    found
}

/// arc-behaviour 9.3, and rows of the same table for the other frequencies.
#[test]
fn override_is_that_of_arc_when_schedules_repeat() {
    use Frequency::{Daily, Monthly, Weekly, Yearly};
    let day = |date: &str| at(&format!("{date}T00:00:00+09:00"));
    let two_days = ("2021-05-01", "2021-05-03");
    let one_day = ("2021-05-01", "2021-05-02");
    let until = Some("2022-05-01");
    let cases = [
        (two_days, None, None, "2021-04-30T23:59:59", None, Some("2021-05-01")),
        (two_days, None, None, "2021-05-01T00:00:00", Some("2021-05-01"), None),
        (two_days, None, None, "2021-05-02T23:59:59", Some("2021-05-01"), None),
        (two_days, None, None, "2021-05-03T00:00:00", None, None),
        (two_days, Some(Weekly), until, "2021-04-30T23:59:59", None, Some("2021-05-01")),
        (two_days, Some(Weekly), until, "2021-05-01T00:00:00", Some("2021-05-01"), Some("2021-05-08")),
        (two_days, Some(Weekly), until, "2021-05-02T23:59:59", Some("2021-05-01"), Some("2021-05-08")),
        (two_days, Some(Weekly), until, "2021-05-03T00:00:00", None, Some("2021-05-08")),
        (two_days, Some(Weekly), until, "2021-05-07T23:59:59", None, Some("2021-05-08")),
        (two_days, Some(Weekly), until, "2021-05-08T00:00:00", Some("2021-05-08"), Some("2021-05-15")),
        (two_days, Some(Weekly), until, "2021-05-09T23:59:59", Some("2021-05-08"), Some("2021-05-15")),
        (two_days, Some(Weekly), until, "2021-05-10T00:00:00", None, Some("2021-05-15")),
        (two_days, Some(Weekly), until, "2022-04-29T23:59:59", None, Some("2022-04-30")),
        (two_days, Some(Weekly), until, "2022-04-30T00:00:00", Some("2022-04-30"), None),
        (two_days, Some(Weekly), until, "2022-05-01T23:59:59", Some("2022-04-30"), None),
        (two_days, Some(Weekly), until, "2022-05-02T00:00:00", None, None),
        (two_days, Some(Weekly), None, "2021-05-08T00:00:00", Some("2021-05-08"), Some("2021-05-15")),
        (two_days, Some(Monthly), until, "2021-04-30T23:59:59", None, Some("2021-05-01")),
        (two_days, Some(Monthly), until, "2021-05-03T00:00:00", None, Some("2021-06-01")),
        (two_days, Some(Monthly), until, "2022-02-02T23:59:59", Some("2022-02-01"), Some("2022-03-01")),
        (two_days, Some(Monthly), until, "2022-05-01T00:00:00", Some("2022-05-01"), None),
        (two_days, Some(Yearly), until, "2021-05-01T00:00:00", Some("2021-05-01"), Some("2022-05-01")),
        (two_days, Some(Yearly), until, "2022-05-02T23:59:59", Some("2022-05-01"), None),
        (two_days, Some(Yearly), None, "2031-05-03T00:00:00", None, Some("2032-05-01")),
        (one_day, Some(Daily), until, "2021-05-01T23:59:59", Some("2021-05-01"), Some("2021-05-02")),
        (one_day, Some(Daily), until, "2022-05-01T00:00:00", Some("2022-05-01"), None),
        (one_day, Some(Daily), until, "2022-05-02T00:00:00", None, None),
    ];
    for ((start, end), frequency, until, now, active, upcoming) in cases {
        let written = |date: &str| format!("{date}T00:00:00+09:00");
        let entry = Override { until: until.map(day), ..entry(frequency, &written(start), &written(end)) };
        let name = format!("{frequency:?} until {until:?} at {now}");
        assert_eq!(starts(&entry, at(&format!("{now}+09:00"))), (active.map(day), upcoming.map(day)), "{name}");
    }
}

#[test]
fn until_means_the_start_and_only_of_what_repeats() {
    let daily = |until| Override {
        until: Some(at(until)),
        ..entry(Some(Frequency::Daily), "2026-01-01T08:00:00Z", "2026-01-01T10:00:00Z")
    };
    assert_eq!(starts(&daily("2026-01-03T08:00:00Z"), at("2026-01-03T09:59:59Z")).0, Some(at("2026-01-03T08:00:00Z")));
    assert_eq!(starts(&daily("2026-01-03T07:59:59Z"), at("2026-01-02T12:00:00Z")), (None, None));
    assert_eq!(starts(&daily("2025-12-31T08:00:00Z"), at("2025-12-30T00:00:00Z")), (None, None), "before it began");
    let once = Override { frequency: None, ..daily("2025-12-31T08:00:00Z") };
    assert_eq!(starts(&once, at("2026-01-01T09:00:00Z")).0, Some(at("2026-01-01T08:00:00Z")));
}

/// A wall clock in `+09:00` and one in UTC disagree about which day of the month it is.
#[test]
fn the_offset_as_written_counts() {
    let monthly = entry(Some(Frequency::Monthly), "2021-05-01T00:00:00+09:00", "2021-05-02T00:00:00+09:00");
    let february = period("2022-02-01T00:00:00+09:00", "2022-02-02T00:00:00+09:00");
    assert_eq!(evaluate(&[monthly], at("2022-01-31T16:00:00Z")).unwrap().active, Some((0, february)));
}

#[test]
fn months_without_the_day_are_skipped() {
    let on = |start, end| periods(&entry(Some(Frequency::Monthly), start, end), at("2026-01-01T00:00:00Z"), 5);
    let dates = |found: Vec<Period>| found.iter().map(|period| period.start.to_string()[..10].to_owned()).collect::<Vec<_>>();
    assert_eq!(
        dates(on("2025-12-31T06:00:00Z", "2025-12-31T08:00:00Z")),
        ["2026-01-31", "2026-03-31", "2026-05-31", "2026-07-31", "2026-08-31"]
    );
    assert_eq!(
        dates(on("2025-12-30T06:00:00Z", "2025-12-30T08:00:00Z")),
        ["2026-01-30", "2026-03-30", "2026-04-30", "2026-05-30", "2026-06-30"]
    );
}

#[test]
fn leap_days_come_in_leap_years_only() {
    let leap = entry(Some(Frequency::Yearly), "2092-02-29T00:00:00Z", "2092-03-01T00:00:00Z");
    let found = periods(&leap, at("2092-01-01T00:00:00Z"), 4);
    let years: Vec<i16> = found.iter().map(|period| Offset::UTC.to_datetime(period.start).year()).collect();
    assert_eq!(years, [2092, 2096, 2104, 2108], "2100 is none");
    assert!(found.iter().all(|period| period.end.duration_since(period.start) == SignedDuration::from_hours(24)));
}

/// An occurrence of the full length of a long month ends where the next one begins; between those that are further apart it ends in its time.
#[test]
fn the_next_occurrence_takes_over() {
    let monthly = entry(Some(Frequency::Monthly), "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z");
    assert_eq!(
        periods(&monthly, at("2026-01-15T00:00:00Z"), 3),
        [
            period("2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"),
            period("2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"),
            period("2026-03-01T00:00:00Z", "2026-04-01T00:00:00Z"),
        ]
    );
    let last_day = entry(Some(Frequency::Monthly), "2026-01-31T00:00:00Z", "2026-03-03T00:00:00Z");
    assert_eq!(
        periods(&last_day, at("2026-01-15T00:00:00Z"), 2),
        [period("2026-01-31T00:00:00Z", "2026-03-03T00:00:00Z"), period("2026-03-31T00:00:00Z", "2026-05-01T00:00:00Z")]
    );
    let schedule = evaluate(&[monthly], at("2026-02-10T00:00:00Z")).unwrap();
    assert_eq!(schedule.upcoming, Some((0, period("2026-03-01T00:00:00Z", "2026-04-01T00:00:00Z"))));
}

#[test]
fn override_is_refused_when_it_is_longer_than_its_repetition() {
    for (frequency, most, more) in [
        (Frequency::Daily, "2026-01-02T00:00:00Z", "2026-01-02T00:00:01Z"),
        (Frequency::Weekly, "2026-01-08T00:00:00Z", "2026-01-08T00:00:01Z"),
        (Frequency::Monthly, "2026-02-01T00:00:00Z", "2026-02-01T00:00:01Z"),
        (Frequency::Yearly, "2027-01-02T00:00:00Z", "2027-01-02T00:00:01Z"),
    ] {
        let good = entry(Some(frequency), "2026-01-01T00:00:00Z", most);
        let bad = entry(Some(frequency), "2026-01-01T00:00:00Z", more);
        for now in ["2020-02-01T00:00:00Z", "2026-01-15T00:00:00Z", "2026-02-15T00:00:00Z"] {
            assert!(evaluate(std::slice::from_ref(&good), at(now)).is_ok(), "{frequency} at {now}");
            let error = evaluate(&[good.clone(), bad.clone()], at(now)).unwrap_err();
            assert_eq!((error.index, error.frequency), (1, frequency), "{frequency} at {now}");
        }
    }
    let once = entry(None, "2026-01-01T00:00:00Z", "2036-01-01T00:00:00Z");
    assert_eq!(starts(&once, at("2030-01-01T00:00:00Z")).0, Some(at("2026-01-01T00:00:00Z")));
    let error =
        evaluate(&[entry(Some(Frequency::Daily), "2026-01-01T00:00:00Z", "2026-01-02T06:00:00Z")], at("2026-01-01T00:00:00Z"));
    assert_eq!(
        error.unwrap_err().to_string(),
        "scheduledOverrides[0] lasts 30h, longer than the 24h of its frequency Daily: move its endTime or let it repeat less often"
    );
}

#[test]
fn what_ends_before_it_starts_never_holds_and_is_not_announced() {
    for frequency in [None, Some(Frequency::Daily), Some(Frequency::Yearly)] {
        for end in ["2026-01-01T08:00:00Z", "2026-01-01T07:00:00Z", "2020-01-01T00:00:00Z"] {
            let inverted = entry(frequency, "2026-01-01T08:00:00Z", end);
            for now in ["2025-12-31T00:00:00Z", "2026-01-01T07:30:00Z", "2026-06-01T08:00:00Z"] {
                assert_eq!(
                    evaluate(std::slice::from_ref(&inverted), at(now)),
                    Ok(Schedule::default()),
                    "{frequency:?} {end} {now}"
                );
            }
        }
    }
}

#[test]
fn with_a_time_zone_it_repeats_on_that_clock() {
    let office = Override {
        time_zone: Some(new_york()),
        ..entry(Some(Frequency::Daily), "2026-01-05T08:00:00-05:00", "2026-01-05T18:00:00-05:00")
    };
    let summer = period("2026-07-01T08:00:00-04:00", "2026-07-01T18:00:00-04:00");
    assert_eq!(evaluate(std::slice::from_ref(&office), at("2026-07-01T12:00:00Z")).unwrap().active, Some((0, summer)));
    let fixed = Override { time_zone: None, ..office.clone() };
    let late = period("2026-07-01T13:00:00Z", "2026-07-01T23:00:00Z");
    assert_eq!(evaluate(&[fixed], at("2026-07-01T13:00:00Z")).unwrap().active, Some((0, late)));

    let elsewhere = Override { start: zoned("2026-01-05T14:00:00+01:00"), ..office };
    assert_eq!(starts(&elsewhere, at("2026-07-01T12:00:00Z")).0, Some(summer.start), "the offset written only names the moment");
}

/// The night of 8 March has 23 hours, that of 1 November 25.
#[test]
fn nights_in_which_the_clock_is_changed() {
    let nightly = |start: &str, end: &str| Override {
        time_zone: Some(new_york()),
        ..entry(Some(Frequency::Daily), &format!("2026-01-01T{start}-05:00"), &format!("2026-01-0{end}-05:00"))
    };
    let spring = at("2026-03-08T05:00:00Z");
    let autumn = at("2026-11-01T04:00:00Z");
    let march = |from: &str, to: &str| period(&format!("2026-03-08T{from}Z"), &format!("2026-03-08T{to}Z"));
    let november = |from: &str, to: &str| period(&format!("2026-11-01T{from}Z"), &format!("2026-11-01T{to}Z"));
    for (name, start, end, from, expected) in [
        ("ends by the clock", "00:00:00", "1T06:00:00", spring, march("05:00:00", "10:00:00")),
        ("ends by the clock", "00:00:00", "1T06:00:00", autumn, november("04:00:00", "11:00:00")),
        ("begins when the clock jumps", "02:30:00", "1T06:00:00", spring, march("07:00:00", "10:00:00")),
        ("ends when the clock jumps", "00:00:00", "1T02:30:00", spring, march("05:00:00", "07:00:00")),
        ("begins the first time", "01:30:00", "1T03:00:00", autumn, november("05:30:00", "08:00:00")),
        ("ends the first time", "00:00:00", "1T01:30:00", autumn, november("04:00:00", "05:30:00")),
        ("inside the doubled hour", "01:10:00", "1T01:40:00", autumn, november("05:10:00", "05:40:00")),
    ] {
        assert_eq!(periods(&nightly(start, end), from, 1), [expected], "{name}: {start} to {end}");
    }
    let skipped = periods(&nightly("02:10:00", "1T02:50:00"), spring, 1);
    assert_eq!(skipped, [period("2026-03-09T06:10:00Z", "2026-03-09T06:50:00Z")], "there is no such time on that day");
    // What lasts until the other begins does so in these nights too, and a full day leaves no gap.
    let full = periods(&nightly("02:30:00", "2T02:30:00"), at("2026-03-06T12:00:00Z"), 4);
    assert!(full.windows(2).all(|pair| pair[0].end == pair[1].start), "{full:?}");
}

/// The clock is put forward by a whole day, as Samoa did at the end of 29 December 2011.
#[test]
fn a_zone_may_skip_a_day() {
    let daily = Override {
        time_zone: Some(TimeZone::posix("<-10>10<+14>-14,J364/0,J200/0").unwrap()),
        ..entry(Some(Frequency::Daily), "2011-12-01T08:00:00-10:00", "2011-12-01T12:00:00-10:00")
    };
    assert_eq!(
        periods(&daily, at("2011-12-29T00:00:00-10:00"), 2),
        [
            period("2011-12-29T08:00:00-10:00", "2011-12-29T12:00:00-10:00"),
            period("2011-12-31T08:00:00+14:00", "2011-12-31T12:00:00+14:00"),
        ]
    );
}

#[test]
fn the_first_that_holds_counts_and_the_earliest_that_comes() {
    let list = [
        Override { min_replicas: Some(1), ..entry(Some(Frequency::Weekly), "2026-01-05T08:00:00Z", "2026-01-05T18:00:00Z") },
        Override { min_replicas: None, ..entry(Some(Frequency::Daily), "2026-01-01T09:00:00Z", "2026-01-01T10:00:00Z") },
        Override { min_replicas: Some(7), ..entry(None, "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z") },
        Override { min_replicas: Some(8), ..entry(Some(Frequency::Daily), "2026-01-01T09:00:00Z", "2026-01-01T11:00:00Z") },
    ];
    let look = |now| {
        let schedule = evaluate(&list, at(now)).unwrap();
        (
            schedule.active.map(|(index, _)| index),
            schedule.min_replicas(&list),
            schedule.upcoming.map(|(index, _)| index),
            schedule.next_change,
        )
    };
    assert_eq!(look("2026-01-05T09:30:00Z"), (Some(0), Some(1), Some(1), Some(at("2026-01-05T18:00:00Z"))));
    assert_eq!(look("2026-01-06T09:30:00Z"), (Some(1), None, Some(1), Some(at("2026-01-06T10:00:00Z"))));
    assert_eq!(look("2026-01-06T10:30:00Z"), (Some(2), Some(7), Some(1), Some(at("2026-01-07T09:00:00Z"))));
    assert_eq!(look("2025-12-31T00:00:00Z"), (None, None, Some(2), Some(at("2026-01-01T00:00:00Z"))));
    assert_eq!(evaluate(&[], at("2026-01-01T00:00:00Z")), Ok(Schedule::default()));
}

#[test]
fn summary_names_the_next_change_when_overrides_are_set() {
    let weekend = Override {
        min_replicas: Some(0),
        ..entry(Some(Frequency::Weekly), "2021-05-01T00:00:00+00:00", "2021-05-03T00:00:00+00:00")
    };
    let silent = Override { min_replicas: None, ..weekend.clone() };
    let tokyo = Override { min_replicas: Some(4), ..entry(None, "2021-05-06T09:00:00+09:00", "2021-05-07T09:00:00+09:00") };
    let follows = Override { min_replicas: Some(5), ..entry(None, "2021-05-03T00:00:00Z", "2021-05-04T00:00:00Z") };
    let inside = Override { min_replicas: Some(6), ..entry(None, "2021-05-02T06:00:00Z", "2021-05-02T07:00:00Z") };
    let sunday = "2021-05-02T00:00:00Z";
    let wednesday = "2021-05-05T00:00:00Z";
    for (name, list, now, min, expected) in [
        ("ends first", vec![weekend.clone()], sunday, Some(2), Some("min=2 time=2021-05-03 00:00:00 +0000 UTC")),
        ("without a minimum of its own", vec![weekend.clone()], sunday, None, Some("min=1 time=2021-05-03 00:00:00 +0000 UTC")),
        ("comes", vec![weekend.clone()], wednesday, Some(2), Some("min=0 time=2021-05-08 00:00:00 +0000 UTC")),
        ("comes without a minimum", vec![silent], wednesday, Some(2), None),
        ("in UTC", vec![weekend.clone(), tokyo], wednesday, Some(2), Some("min=4 time=2021-05-06 00:00:00 +0000 UTC")),
        ("one follows the other", vec![weekend.clone(), follows], sunday, Some(2), None),
        ("one within the other", vec![weekend, inside], sunday, Some(2), Some("min=6 time=2021-05-02 06:00:00 +0000 UTC")),
        ("nothing", vec![], sunday, Some(2), None),
    ] {
        let summary = evaluate(&list, at(now)).unwrap().summary(&list, min);
        assert_eq!(summary.as_deref(), expected, "{name}");
    }
}

fn any_zone() -> impl Strategy<Value = Option<TimeZone>> {
    prop_oneof![
        3 => Just(None),
        2 => Just(Some(new_york())),
        1 => Just(Some(TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap())),
        // Half an hour, in the southern summer.
        1 => Just(Some(TimeZone::posix("<+1030>-10:30<+11>-11,M10.1.0,M4.1.0").unwrap())),
    ]
}

prop_compose! {
    /// An override of 2026 within its frequency's length.
    fn any_override()(
        frequency in proptest::option::of(proptest::sample::select(&FREQUENCIES[..])),
        start in 0..366 * 24 * 60_i64,
        permille in 0..1000_i64,
        until in proptest::option::of(0..3 * 366 * 24 * 60_i64),
        offset in -14..=14_i8,
        min_replicas in proptest::option::of(0..10_u32),
        time_zone in any_zone(),
    ) -> Override {
        let moment = |minutes: i64| at("2026-01-01T00:00:00Z") + minutes.minutes();
        // The wall clock may be put forward meanwhile, by an hour at most.
        let most = frequency.map_or(9000, |frequency| frequency.longest().as_hours()) - 1;
        let length = most * 60 * permille / 1000;
        Override {
            start: moment(start).to_zoned(TimeZone::fixed(jiff::tz::offset(offset))),
            end: moment(start + length),
            frequency,
            until: until.map(moment),
            min_replicas,
            time_zone,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    /// Any numbers at all: an answer or an error, and what is answered makes sense.
    #[test]
    fn evaluation_never_panics_when_overrides_are_arbitrary(
        moments in proptest::collection::vec(any::<(i64, i64, i64)>(), 1..4),
        frequency in proptest::option::of(proptest::sample::select(&FREQUENCIES[..])),
        offset in -93_599..=93_599_i32,
        time_zone in any_zone(),
        now: i64,
    ) {
        let span = i128::from(Timestamp::MAX.as_second()) - i128::from(Timestamp::MIN.as_second());
        let moment = |raw: i64| {
            let second = i128::from(raw).rem_euclid(span + 1) + i128::from(Timestamp::MIN.as_second());
            Timestamp::from_second(i64::try_from(second).unwrap()).unwrap()
        };
        let list: Vec<Override> = moments
            .iter()
            .map(|&(start, end, until)| Override {
                start: moment(start).to_zoned(TimeZone::fixed(Offset::from_seconds(offset).unwrap())),
                end: if end % 2 == 0 { moment(end) } else { moment(start).saturating_add(SignedDuration::from_mins(end % 100_000)).unwrap() },
                frequency,
                until: (until % 2 == 0).then(|| moment(until)),
                min_replicas: None,
                time_zone: time_zone.clone(),
            })
            .collect();
        let now = moment(now);
        if let Ok(schedule) = evaluate(&list, now) {
            prop_assert!(schedule.active.is_none_or(|(_, period)| period.contains(now)));
            prop_assert!(schedule.upcoming.is_none_or(|(_, period)| period.start > now && period.start < period.end));
            prop_assert!(schedule.next_change.is_none_or(|next| next > now));
        }
    }

    /// The answer stays until the next change, and is another one then.
    #[test]
    fn the_next_change_is_the_next_change(
        list in proptest::collection::vec(any_override(), 0..5),
        minutes in -100_000..2_000_000_i64,
        permille in 0..1000_i64,
    ) {
        let mut now = at("2026-01-01T00:00:00Z") + minutes.minutes();
        for _ in 0..20 {
            let schedule = evaluate(&list, now).unwrap();
            prop_assert!(schedule.active.is_none_or(|(_, period)| period.contains(now)));
            let Some(next) = schedule.next_change else { break };
            prop_assert!(next > now);
            let answer = |now| evaluate(&list, now).map(|schedule| (schedule.active, schedule.upcoming)).unwrap();
            let before = (schedule.active, schedule.upcoming);
            let between = now + SignedDuration::from_secs(next.duration_since(now).as_secs() / 1000 * permille);
            prop_assert_eq!(answer(between), before);
            prop_assert_eq!(answer(next - 1.nanosecond()), before);
            prop_assert_ne!(answer(next), before);
            now = next;
        }
    }

    /// Against a search without arithmetic on periods: go back minute by minute until the clock shows the start.
    #[test]
    fn what_holds_is_what_a_look_at_the_clock_finds(entry in any_override(), minutes in 0..700_000_i64) {
        let entry = Override { time_zone: None, until: None, ..entry };
        let now = at("2026-01-01T00:00:00Z") + minutes.minutes();
        let zone = entry.start.time_zone();
        let first = entry.start.datetime();
        let begins = |moment: Timestamp| {
            let clock = zone.to_datetime(moment);
            let day = match entry.frequency {
                None => clock.date() == first.date(),
                Some(Frequency::Daily) => true,
                Some(Frequency::Weekly) => clock.weekday() == first.weekday(),
                Some(Frequency::Monthly) => clock.day() == first.day(),
                Some(Frequency::Yearly) => clock.day() == first.day() && clock.month() == first.month(),
            };
            day && clock.time() == first.time()
        };
        let length = entry.end.duration_since(entry.start.timestamp());
        let expected = (0..length.as_mins())
            .map(|back| now - back.minutes())
            .take_while(|moment| *moment >= entry.start.timestamp())
            .find(|moment| begins(*moment));
        prop_assert_eq!(starts(&entry, now).0, expected);
    }
}
