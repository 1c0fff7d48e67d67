//! When a scheduled override of an autoscaler holds, what comes next, and when that changes.
//!
//! The rules are ARC's (arc-behaviour 3.5), with these differences:
//!
//! - An override repeats on the wall clock of the UTC offset that its start was written with, or of the IANA time zone it names. ARC takes
//!   the zone of its own process, so that midnight in `+09:00` on the first of a month repeats on another day.
//! - A time that such a clock shows twice (the hour is turned back) means the first of the two; one that it skips means the moment of the skip.
//!   Neighbouring overrides thus neither overlap nor leave a gap. An occurrence that is skipped as a whole does not take place.
//! - Whether an override lasts too long to repeat does not depend on the day it is looked at: a month counts 31 days and a year 366. Where the
//!   next occurrence begins earlier than that, it takes over. ARC refuses an override of 30 days in February only.
//! - What comes next is known however far away it is. ARC sees one day, week, month or year ahead.
//! - An override that ends before it starts is not announced either. Like in ARC it never holds.

use std::fmt;

use jiff::civil::{Date, DateTime};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Span, Timestamp, Zoned};

/// A time with a minimum of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    /// When it begins the first time, in the offset it was written with.
    pub start: Zoned,
    /// When it ends the first time; this moment is outside.
    pub end: Timestamp,
    /// How it repeats; none means once.
    pub frequency: Option<Frequency>,
    /// Last moment at which it may begin; without effect on one that does not repeat.
    pub until: Option<Timestamp>,
    /// Fewest runners meanwhile; none leaves the autoscaler's own minimum in force.
    pub min_replicas: Option<u32>,
    /// On whose clock it repeats; none means the offset of `start`.
    pub time_zone: Option<TimeZone>,
}

/// How often an override repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Frequency {
    /// Every day at the same time.
    Daily,
    /// Every week on the same weekday.
    Weekly,
    /// Every month on the same day; months without that day are skipped.
    Monthly,
    /// Every year on the same day; years without that day are skipped.
    Yearly,
}

/// From `start` until `end`, which is outside. Never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Period {
    /// First moment.
    pub start: Timestamp,
    /// First moment after it.
    pub end: Timestamp,
}

impl Period {
    /// Whether a moment lies inside.
    #[must_use]
    pub fn contains(self, moment: Timestamp) -> bool {
        self.start <= moment && moment < self.end
    }
}

/// What the overrides of an autoscaler amount to at a moment. Overrides are named by their index in the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// The first override in the list that holds.
    pub active: Option<(usize, Period)>,
    /// The occurrence that begins next, whichever override it is of; of several at once the first in the list.
    pub upcoming: Option<(usize, Period)>,
    /// When `active` or `upcoming` is something else for the first time; none when never.
    pub next_change: Option<Timestamp>,
}

/// An override lasts longer than the time after which it begins again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "scheduledOverrides[{index}] lasts {length:#}, longer than the {:#} of its frequency {frequency}: move its endTime or let it repeat \
     less often",
    frequency.longest()
)]
pub struct ScheduleError {
    /// Index of the override in the list `scheduledOverrides`.
    pub index: usize,
    /// How often it is to repeat.
    pub frequency: Frequency,
    /// How long it lasts on the wall clock on which it repeats.
    pub length: SignedDuration,
}

/// Looks at every override.
///
/// # Errors
///
/// When one lasts longer than the time after which it begins again; nothing is decided then.
pub fn evaluate(overrides: &[Override], now: Timestamp) -> Result<Schedule, ScheduleError> {
    let mut schedule = Schedule::default();
    for (index, entry) in overrides.iter().enumerate() {
        let around = entry.around(now).map_err(|TooLong { frequency, length }| ScheduleError { index, frequency, length })?;
        schedule.active = schedule.active.or(around.current.map(|period| (index, period)));
        if let Some(next) = around.next
            && schedule.upcoming.is_none_or(|(_, upcoming)| next.start < upcoming.start)
        {
            schedule.upcoming = Some((index, next));
        }
    }
    // Before these two nothing begins, and what holds goes on.
    let ends = schedule.active.map(|(_, period)| period.end);
    let begins = schedule.upcoming.map(|(_, period)| period.start);
    schedule.next_change = ends.into_iter().chain(begins).min();
    Ok(schedule)
}

impl Schedule {
    /// The minimum that the override in force sets; none when none holds or it sets none. Later overrides are not asked then.
    #[must_use]
    pub fn min_replicas(&self, overrides: &[Override]) -> Option<u32> {
        self.active.and_then(|(index, _)| overrides.get(index)).and_then(|entry| entry.min_replicas)
    }

    /// The text of `status.scheduledOverridesSummary`: which minimum comes into force when. None when the field is to be absent.
    ///
    /// `overrides` are those that were evaluated, `min_replicas` is the autoscaler's own.
    #[must_use]
    pub fn summary(&self, overrides: &[Override], min_replicas: Option<u32>) -> Option<String> {
        let ends = self.active.map(|(_, period)| period.end);
        let begins = self.upcoming.map(|(_, period)| period.start);
        match (ends, begins) {
            (Some(end), None) => Some(line(min_replicas.unwrap_or(1), end)),
            (Some(end), Some(start)) if end < start => Some(line(min_replicas.unwrap_or(1), end)),
            (Some(end), Some(start)) if end == start => None,
            (_, Some(start)) => {
                let (index, _) = self.upcoming?;
                Some(line(overrides.get(index)?.min_replicas?, start))
            }
            (None, None) => None,
        }
    }
}

/// In Go's default format of times, which is what readers of the column know.
fn line(min: u32, time: Timestamp) -> String {
    format!("min={min} time={}", time.strftime("%Y-%m-%d %H:%M:%S +0000 UTC"))
}

/// How many periods before and after the one of `now` can matter: an occurrence reaches into a month without that day from the month before,
/// and 29 February stays away for eight years around 1900 and 2100.
const BEFORE: i64 = 2;
const AFTER: i64 = 9;

struct Around {
    current: Option<Period>,
    next: Option<Period>,
}

struct TooLong {
    frequency: Frequency,
    length: SignedDuration,
}

impl Override {
    fn around(&self, now: Timestamp) -> Result<Around, TooLong> {
        let periods = match self.frequency {
            None => vec![self.first()],
            Some(frequency) => self.occurrences(frequency, now)?,
        };
        // An occurrence ends where the next one begins at the latest.
        let starts = periods.iter().skip(1).map(|period| Some(period.start)).chain([None]);
        let periods = periods
            .iter()
            .zip(starts)
            .map(|(period, next)| Period { end: next.map_or(period.end, |next| period.end.min(next)), ..*period })
            .filter(|period| period.start < period.end);
        let mut around = Around { current: None, next: None };
        for period in periods {
            if period.start > now {
                around.next = Some(period);
                break;
            }
            around.current = Some(period).filter(|period| period.contains(now));
        }
        Ok(around)
    }

    fn first(&self) -> Period {
        Period { start: self.start.timestamp(), end: self.end }
    }

    /// All occurrences near `now` in order of time; some may be empty.
    fn occurrences(&self, frequency: Frequency, now: Timestamp) -> Result<Vec<Period>, TooLong> {
        let zone = self.time_zone.as_ref().unwrap_or(self.start.time_zone());
        let first = zone.to_datetime(self.start.timestamp());
        let length = zone.to_datetime(self.end).duration_since(first);
        if length > frequency.longest() {
            return Err(TooLong { frequency, length });
        }
        let occurrence = |index: i64| {
            if index == 0 {
                return Some(self.first());
            }
            let start = frequency.date(first.date(), index)?.to_datetime(first.time());
            let end = start.checked_add(length).unwrap_or(DateTime::MAX);
            Some(Period { start: moment(zone, start)?, end: moment(zone, end).unwrap_or(Timestamp::MAX) })
        };
        let at = frequency.index(first.date(), zone.to_datetime(now).date()).max(0);
        let near = at.saturating_sub(BEFORE).max(0)..=at.saturating_add(AFTER);
        let in_time = |period: &Period| self.until.is_none_or(|until| period.start <= until);
        Ok(near.filter_map(occurrence).filter(in_time).collect())
    }
}

/// First moment at which a clock of the zone shows this time or a later one.
fn moment(zone: &TimeZone, shown: DateTime) -> Option<Timestamp> {
    let ambiguous = zone.to_ambiguous_timestamp(shown);
    match ambiguous.offset() {
        AmbiguousOffset::Gap { before, .. } => {
            // The clock was put forward at or before the moment at which it would have shown the time.
            let after = before.to_timestamp(shown).ok()?.checked_add(SignedDuration::from_nanos(1)).ok()?;
            zone.preceding(after).next().map(|transition| transition.timestamp())
        }
        AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Fold { .. } => ambiguous.earlier().ok(),
    }
}

impl Frequency {
    /// Longest time between two periods that follow one another.
    fn longest(self) -> SignedDuration {
        SignedDuration::from_hours(match self {
            Self::Daily => 24,
            Self::Weekly => 7 * 24,
            Self::Monthly => 31 * 24,
            Self::Yearly => 366 * 24,
        })
    }

    /// The date so many periods after `first`; none when there is no such date.
    fn date(self, first: Date, index: i64) -> Option<Date> {
        let days = |count| first.checked_add(Span::new().try_days(count).ok()?).ok();
        let date = |year, month| Date::new(i16::try_from(year).ok()?, i8::try_from(month).ok()?, first.day()).ok();
        match self {
            Self::Daily => days(index),
            Self::Weekly => days(index.saturating_mul(7)),
            Self::Monthly => {
                let months = month_number(first).saturating_add(index);
                date(months.div_euclid(12), months.rem_euclid(12).saturating_add(1))
            }
            Self::Yearly => date(i64::from(first.year()).saturating_add(index), i64::from(first.month())),
        }
    }

    /// How many periods after that of `first` the one of `date` is; negative before.
    fn index(self, first: Date, date: Date) -> i64 {
        let days = date.duration_since(first).as_hours().div_euclid(24);
        match self {
            Self::Daily => days,
            Self::Weekly => days.div_euclid(7),
            Self::Monthly => month_number(date).saturating_sub(month_number(first)),
            Self::Yearly => i64::from(date.year()).saturating_sub(i64::from(first.year())),
        }
    }
}

/// Months since January of year 0.
fn month_number(date: Date) -> i64 {
    i64::from(date.year()).saturating_mul(12).saturating_add(i64::from(date.month())).saturating_sub(1)
}

impl fmt::Display for Frequency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Daily => "Daily",
            Self::Weekly => "Weekly",
            Self::Monthly => "Monthly",
            Self::Yearly => "Yearly",
        })
    }
}

#[cfg(test)]
#[path = "schedule/tests.rs"]
mod tests;
