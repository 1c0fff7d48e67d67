//! Local time of a zone, from the rule in force: standard and summer offset and when they change.
//!
//! `zones.txt` has the rules by IANA names, as the time zone database gives them for the future (POSIX `TZ` strings; the names that share one
//! are on its line). History is of no use here. A rule can be given instead of a name, should a country have changed its law since.

const ZONES: &str = include_str!("zones.txt");

const DAY: i64 = 86_400;

/// Offsets from UTC over the year.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Zone {
    /// Seconds east of Greenwich.
    standard: i64,
    summer: Option<Summer>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Summer {
    offset: i64,
    begins: Change,
    ends: Change,
}

/// For instance the last Sunday of March at 2:00, on the clock that is in force before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Change {
    month: i64,
    /// 1 to 5, where 5 is the last one.
    week: i64,
    /// 0 is Sunday.
    weekday: i64,
    /// Seconds after midnight, possibly of another day.
    time: i64,
}

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
        if text.starts_with(['+', '-']) {
            let (sign, hours) = if let Some(rest) = text.strip_prefix('-') { (-1, rest) } else { (1, text.get(1..)?) };
            let offset = clock(hours).filter(|offset| *offset <= 14 * 3_600)?;
            return Some(Self { standard: sign * offset, summer: None });
        }
        let named = ZONES.lines().find_map(|line| {
            let (rule, names) = line.split_once(' ')?;
            names.split(' ').any(|name| name == text).then_some(rule)
        });
        rule(named.unwrap_or(text))
    }

    /// The time there at `now`, in Unix seconds.
    pub(crate) fn local(&self, now: i64) -> Local {
        let local = now.saturating_add(self.offset(now));
        // 1970-01-01 was a Thursday.
        let weekday = (local.div_euclid(DAY) + 3).rem_euclid(7);
        Local { weekday: u32::try_from(weekday).unwrap_or(0), second: u32::try_from(local.rem_euclid(DAY)).unwrap_or(0) }
    }

    fn offset(&self, now: i64) -> i64 {
        let Some(summer) = self.summer else { return self.standard };
        let year = year_of(now.saturating_add(self.standard).div_euclid(DAY));
        let begins = summer.begins.in_year(year) - self.standard;
        let ends = summer.ends.in_year(year) - summer.offset;
        let is_summer = if begins < ends { (begins..ends).contains(&now) } else { !(ends..begins).contains(&now) };
        if is_summer { summer.offset } else { self.standard }
    }
}

impl Change {
    /// Seconds since 1970 on the local clock.
    fn in_year(&self, year: i64) -> i64 {
        let first = days_before(year, self.month);
        // 1970-01-01 was a Thursday, which is day 4 here.
        let to_weekday = (self.weekday - (first + 4)).rem_euclid(7);
        let mut day = first + to_weekday + (self.week - 1) * 7;
        let next_month = if self.month == 12 { days_before(year + 1, 1) } else { days_before(year, self.month + 1) };
        if day >= next_month {
            day -= 7;
        }
        day * DAY + self.time
    }
}

/// Days from 1970-01-01 to the first of a month; years begin in March for the counting.
fn days_before(year: i64, month: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn year_of(day: i64) -> i64 {
    let from_march = day + 719_468;
    let (era, of_era) = (from_march.div_euclid(146_097), from_march.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    // January and February end the year that began in March.
    era * 400 + year + i64::from(of_year >= 306)
}

fn rule(text: &str) -> Option<Zone> {
    let (standard, rest) = offset(name(text)?)?;
    if rest.is_empty() {
        return Some(Zone { standard, summer: None });
    }
    let (summer, changes) = name(rest)?.split_once(',')?;
    let offset = if summer.is_empty() { standard + 3_600 } else { offset(summer).filter(|(_, rest)| rest.is_empty())?.0 };
    let (begins, ends) = changes.split_once(',')?;
    Some(Zone { standard, summer: Some(Summer { offset, begins: change(begins)?, ends: change(ends)? }) })
}

/// What follows an abbreviation such as `CET` or `<+03>`.
fn name(text: &str) -> Option<&str> {
    if let Some(quoted) = text.strip_prefix('<') {
        return quoted.split_once('>').map(|(_, rest)| rest);
    }
    let end = text.find(|letter: char| !letter.is_ascii_alphabetic()).unwrap_or(text.len());
    if end < 3 { None } else { text.get(end..) }
}

/// Hours west of Greenwich, which is how rules count, as seconds east; and what follows.
fn offset(text: &str) -> Option<(i64, &str)> {
    let end = text.find(|letter: char| !(letter.is_ascii_digit() || "+-:".contains(letter))).unwrap_or(text.len());
    let (hours, rest) = (text.get(..end)?, text.get(end..)?);
    signed(hours).map(|west| (-west, rest))
}

/// `M3.5.0/2`: the rules of the database have no other form.
fn change(text: &str) -> Option<Change> {
    let (date, time) = text.split_once('/').unwrap_or((text, "2"));
    let mut numbers = date.strip_prefix('M')?.split('.').map(|number| number.parse::<i64>().ok());
    let (month, week, weekday) = (numbers.next()??, numbers.next()??, numbers.next()??);
    let sound = (1..=12).contains(&month) && (1..=5).contains(&week) && (0..=6).contains(&weekday) && numbers.next().is_none();
    sound.then_some(Change { month, week, weekday, time: signed(time)? })
}

fn signed(text: &str) -> Option<i64> {
    match text.strip_prefix('-') {
        Some(text) => clock(text).map(|seconds| -seconds),
        None => clock(text.strip_prefix('+').unwrap_or(text)),
    }
}

/// `7`, `07:30`, `0730` or `167`, in seconds.
fn clock(text: &str) -> Option<i64> {
    let (hours, minutes) = match text.split_once(':') {
        Some(parts) => parts,
        None if text.len() == 4 => text.split_at_checked(2)?,
        None => (text, "0"),
    };
    let number = |text: &str| if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse::<i64>().ok() } else { None };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    (hours <= 167 && minutes < 60).then_some(hours * 3_600 + minutes * 60)
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
        for (zone, begins, ends) in
            [("Europe/Berlin", 1_774_746_000, 1_792_890_000), ("America/New_York", 1_772_953_200, 1_793_512_800)]
        {
            let rule = Zone::parse(zone).unwrap();
            let summer = rule.standard + 3_600;
            for (now, offset) in [(begins - 1, rule.standard), (begins, summer), (ends - 1, summer), (ends, rule.standard)] {
                assert_eq!(rule.offset(now), offset, "{zone} at {now}");
            }
        }
        // South of the equator summer spans the new year: it ends 2026-04-05 and begins 2026-10-04, both 16:00 UTC the day before.
        let sydney = Zone::parse("Australia/Sydney").unwrap();
        for (now, hours) in [(1_775_318_399, 11), (1_775_318_400, 10), (1_791_043_199, 10), (1_791_043_200, 11)] {
            assert_eq!(sydney.offset(now), hours * 3_600, "{now}");
        }
    }

    #[test]
    fn every_zone_of_the_table_can_be_used() {
        let names = ZONES.lines().flat_map(|line| line.split(' ').skip(1));
        let mut count = 0;
        for name in names {
            let zone = Zone::parse(name).unwrap_or_else(|| panic!("{name}"));
            assert!((-12 * 3_600..=14 * 3_600).contains(&zone.standard), "{name}");
            for day in 0..366 {
                assert!(zone.local(1_767_225_600 + day * DAY).weekday < 7, "{name}");
            }
            count += 1;
        }
        assert!(count > 500, "{count}");
    }

    #[test]
    fn nonsense_is_no_zone() {
        for text in [
            "",
            "Berlin",
            "Europe/Nowhere",
            "+25:00",
            "+1:60",
            "C-1",
            "CETS",
            "CET-1CEST",
            "CET-1CEST,J60,J300",
            "CET-1CEST,M13.1.0,M10.5.0",
        ] {
            assert_eq!(Zone::parse(text), None, "{text}");
        }
    }
}
