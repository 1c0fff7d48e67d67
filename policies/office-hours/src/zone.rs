//! Local time of a zone, from the rule in force: standard and summer offset and when they change.
//!
//! `zones.txt` has the rules by IANA names, as the time zone database gives them for the future (POSIX `TZ` strings; the names that share one
//! are on its line). History is of no use here. A rule can be given instead of a name, should a country have changed its law since.

use jiff::Timestamp;
use jiff::tz::{Offset, TimeZone};

const ZONES: &str = include_str!("zones.txt");

/// Offsets from UTC over the year.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Zone(TimeZone);

/// A moment on the clock on the wall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Local {
    /// 0 is Monday.
    pub(crate) weekday: u32,
    /// Seconds since midnight.
    pub(crate) second: u32,
}

impl Zone {
    /// From an IANA name (`Europe/Berlin`), an offset (`+05:30`), or a rule (`CET-1CEST,M3.5.0,M10.5.0/3`).
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if let Some(hours) = text.strip_prefix(['+', '-']) {
            let seconds = clock(hours).filter(|seconds| *seconds <= 14 * 3_600)?;
            let offset = Offset::from_seconds(if text.starts_with('-') { -seconds } else { seconds }).ok()?;
            return Some(Self(TimeZone::fixed(offset)));
        }
        let named = ZONES.lines().find_map(|line| {
            let (rule, names) = line.split_once(' ')?;
            names.split(' ').any(|name| name == text).then_some(rule)
        });
        TimeZone::posix(named.unwrap_or(text)).ok().map(Self)
    }

    /// The time there at `now`, in Unix seconds. Beyond the year 9999 the clock stands still.
    pub(crate) fn local(&self, now: i64) -> Local {
        let moment = Timestamp::from_second(now).unwrap_or(if now < 0 { Timestamp::MIN } else { Timestamp::MAX });
        let local = self.0.to_datetime(moment);
        let second = u32::from(local.hour().unsigned_abs()) * 3_600
            + u32::from(local.minute().unsigned_abs()) * 60
            + u32::from(local.second().unsigned_abs());
        Local { weekday: u32::from(local.weekday().to_monday_zero_offset().unsigned_abs()), second }
    }
}

/// `7`, `07:30` or `0730`, in seconds.
fn clock(text: &str) -> Option<i32> {
    let (hours, minutes) = match text.split_once(':') {
        Some(parts) => parts,
        None if text.len() == 4 => text.split_at_checked(2)?,
        None => (text, "0"),
    };
    let number = |text: &str| if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse::<i32>().ok() } else { None };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    (hours <= 24 && minutes < 60).then_some(hours * 3_600 + minutes * 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Weekday (0 is Monday), hour and minute.
    fn at(zone: &str, now: i64) -> (u32, u32, u32) {
        let local = Zone::parse(zone).unwrap().local(now);
        (local.weekday, local.second / 3_600, local.second / 60 % 60)
    }

    #[test]
    fn local_times() {
        // 2026-11-22 was a Sunday.
        let noon = 1_795_348_800;
        for (zone, weekday, hour, minute) in [
            ("UTC", 6, 12, 0),
            ("Europe/Berlin", 6, 13, 0),
            ("Europe/London", 6, 12, 0),
            ("America/New_York", 6, 7, 0),
            ("Asia/Kolkata", 6, 17, 30),
            ("Australia/Sydney", 6, 23, 0),
            ("Pacific/Auckland", 0, 1, 0),
            ("Pacific/Chatham", 0, 1, 45),
            ("America/Sao_Paulo", 6, 9, 0),
            ("+05:30", 6, 17, 30),
            ("-0330", 6, 8, 30),
            ("XYZ-1", 6, 13, 0),
        ] {
            assert_eq!(at(zone, noon), (weekday, hour, minute), "{zone}");
        }
    }

    #[test]
    fn summer_begins_and_ends_to_the_second() {
        // 2026-03-29 and 2026-10-25 at 01:00 UTC in Europe; 2026-03-08 and 2026-11-01 in New York.
        for (zone, moment, before, after) in [
            ("Europe/Berlin", 1_774_746_000, 1, 3),
            ("Europe/Berlin", 1_792_890_000, 2, 2),
            ("America/New_York", 1_772_953_200, 1, 3),
            ("America/New_York", 1_793_512_800, 1, 1),
        ] {
            assert_eq!((at(zone, moment - 1), at(zone, moment)), ((6, before, 59), (6, after, 0)), "{zone} at {moment}");
        }
        // South of the equator summer spans the new year: it ends 2026-04-05 and begins 2026-10-04, both 16:00 UTC the day before.
        for (now, hour, minute) in [(1_775_318_399, 2, 59), (1_775_318_400, 2, 0), (1_791_043_199, 1, 59), (1_791_043_200, 3, 0)]
        {
            assert_eq!(at("Australia/Sydney", now), (6, hour, minute), "{now}");
        }
    }

    #[test]
    fn every_zone_of_the_table_can_be_used() {
        let names = ZONES.lines().flat_map(|line| line.split(' ').skip(1));
        let mut count = 0;
        for name in names {
            let zone = Zone::parse(name).unwrap_or_else(|| panic!("{name}"));
            for day in 0..366 {
                assert!(zone.local(1_767_225_600 + day * 86_400).weekday < 7, "{name}");
            }
            count += 1;
        }
        assert!(count > 500, "{count}");
    }

    #[test]
    fn nonsense_is_no_zone() {
        for text in ["", "Berlin", "Europe/Nowhere", "+25:00", "+1:60", "C-1", "CETS", "CET-1CEST", "CET-1CEST,M13.1.0,M10.5.0"] {
            assert!(Zone::parse(text).is_none(), "{text}");
        }
    }
}
