//! What can be set, and what it means once it is read.

use pacer_policy_sdk::lifecycle::Problem;
use serde::Deserialize;

use crate::zone::{Local, Zone};

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

const DAY: u32 = 86_400;

/// JSON Schema of [`Settings`].
pub(crate) const SCHEMA: &str = include_str!("settings.schema.json");

/// Hours and how many runners they have.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    /// IANA name, offset from UTC, or POSIX rule.
    pub(crate) time_zone: String,
    /// If windows overlap, the highest minimum and the highest maximum apply.
    pub(crate) windows: Vec<Window>,
    /// Outside all windows.
    pub(crate) otherwise: Bounds,
}

/// Hours of some weekdays.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Window {
    /// `mon` to `sun`, or ranges such as `mon-fri`; every day when left out.
    #[serde(default)]
    days: Vec<String>,
    /// `HH:MM`.
    from: String,
    /// `HH:MM` up to `24:00`; before `from` when the window ends on the next day.
    to: String,
    #[serde(default)]
    min: Option<u32>,
    #[serde(default)]
    max: Option<u32>,
}

/// How many runners there may be.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Bounds {
    /// At least; the autoscaler's minimum when left out.
    pub(crate) min: Option<u32>,
    /// At most; the autoscaler's maximum when left out.
    pub(crate) max: Option<u32>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { time_zone: "UTC".to_owned(), windows: Vec::new(), otherwise: Bounds::default() }
    }
}

impl Settings {
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if Zone::parse(&self.time_zone).is_none() {
            let message =
                format!("`{}` is no time zone: use a name such as Europe/Berlin, or an offset such as +01:00", self.time_zone);
            problems.push(Problem::new("timeZone", message));
        }
        for (index, window) in self.windows.iter().enumerate() {
            let mut tell =
                |field: &str, message: String| problems.push(Problem::new(format!("windows[{index}]{field}"), message));
            for (place, days) in window.days.iter().enumerate() {
                if weekdays(days).is_none() {
                    tell(
                        &format!(".days[{place}]"),
                        format!("`{days}` is no weekday: use mon to sun, or a range such as mon-fri"),
                    );
                }
            }
            for (field, text) in [(".from", &window.from), (".to", &window.to)] {
                if time(text).is_none() {
                    tell(field, format!("`{text}` is no time: use 00:00 to 24:00"));
                }
            }
            if window.from == window.to {
                tell(".to", "is `from` as well: a whole day is 00:00 to 24:00".to_owned());
            }
            if let Some((min, max)) = window.min.zip(window.max).filter(|(min, max)| min > max) {
                tell(".max", format!("is {max}, less than the minimum of {min}"));
            }
        }
        if let Some((min, max)) = self.otherwise.min.zip(self.otherwise.max).filter(|(min, max)| min > max) {
            problems.push(Problem::new("otherwise.max", format!("is {max}, less than the minimum of {min}")));
        }
        problems
    }

    /// What holds at that moment, and the seconds until that may change.
    pub(crate) fn at(&self, now: Local) -> (Bounds, bool, u32) {
        let open: Vec<&Window> = self.windows.iter().filter(|window| window.contains(now)).collect();
        let bounds = match open.is_empty() {
            true => self.otherwise,
            false => Bounds {
                min: open.iter().filter_map(|window| window.min).max(),
                // One window without a maximum leaves it to the autoscaler.
                max: open.iter().map(|window| window.max).try_fold(0, |most, max| max.map(|max| most.max(max))),
            },
        };
        let borders = self.windows.iter().flat_map(|window| [time(&window.from), time(&window.to)]).flatten();
        let until = borders.map(|border| (border % DAY + DAY - now.second - 1) % DAY + 1).min();
        (bounds, !open.is_empty(), until.unwrap_or(DAY))
    }
}

impl Window {
    fn contains(&self, now: Local) -> bool {
        let (Some(from), Some(to)) = (time(&self.from), time(&self.to)) else { return false };
        let on = |weekday: u32| {
            self.days.is_empty() || self.days.iter().filter_map(|days| weekdays(days)).any(|days| days.contains(weekday))
        };
        if from < to {
            return on(now.weekday) && (from..to).contains(&now.second);
        }
        // It belongs to the day on which it begins.
        on(now.weekday) && now.second >= from || on((now.weekday + 6) % 7) && now.second < to
    }
}

/// First and last weekday, 0 is Monday.
struct Weekdays(u32, u32);

impl Weekdays {
    fn contains(&self, weekday: u32) -> bool {
        let Self(first, last) = *self;
        if first <= last { (first..=last).contains(&weekday) } else { weekday >= first || weekday <= last }
    }
}

fn weekdays(text: &str) -> Option<Weekdays> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let index = |text: &str| DAYS.iter().position(|day| text == *day).and_then(|index| u32::try_from(index).ok());
    Some(Weekdays(index(first)?, index(last)?))
}

/// Seconds after midnight.
fn time(text: &str) -> Option<u32> {
    let (hours, minutes) = text.split_once(':')?;
    let number = |text: &str| {
        if text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse::<u32>().ok() } else { None }
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    (minutes < 60 && hours * 60 + minutes <= 24 * 60).then_some(hours * 3_600 + minutes * 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(json: &str) -> Settings {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn windows_over_midnight_belong_to_the_day_they_begin_on() {
        let night = settings(r#"{"windows":[{"days":["fri"],"from":"22:00","to":"06:00","min":3}]}"#);
        for (weekday, hour, open) in [(4, 21, false), (4, 22, true), (5, 5, true), (5, 6, false), (5, 22, false), (4, 5, false)] {
            assert_eq!(night.at(Local { weekday, second: hour * 3_600 }).1, open, "day {weekday}, {hour} h");
        }
    }

    #[test]
    fn the_highest_counts_where_windows_overlap() {
        let both = settings(
            r#"{"windows":[{"from":"08:00","to":"18:00","min":2,"max":10},{"days":["sat-mon"],"from":"12:00","to":"24:00","min":5,"max":8}],"otherwise":{"max":1}}"#,
        );
        let at = |weekday, hour: u32| both.at(Local { weekday, second: hour * 3_600 }).0;
        assert_eq!(at(0, 13), Bounds { min: Some(5), max: Some(10) });
        assert_eq!(at(2, 13), Bounds { min: Some(2), max: Some(10) });
        assert_eq!(at(6, 23), Bounds { min: Some(5), max: Some(8) });
        assert_eq!(at(2, 23), Bounds { min: None, max: Some(1) });
    }

    #[test]
    fn the_next_border_is_known() {
        let day = settings(r#"{"windows":[{"from":"08:00","to":"18:00"}]}"#);
        for (second, until) in [(0, 28_800), (28_799, 1), (28_800, 36_000), (64_800, 50_400), (86_399, 28_801)] {
            assert_eq!(day.at(Local { weekday: 0, second }).2, until, "{second}");
        }
        assert_eq!(settings("{}").at(Local { weekday: 0, second: 0 }).2, DAY);
    }

    #[test]
    fn mistakes_have_a_place() {
        let wrong = settings(
            r#"{"timeZone":"Berlin","windows":[{"days":["mon","monday"],"from":"8:00","to":"25:00"},{"from":"08:00","to":"08:00","min":2,"max":1}],"otherwise":{"min":3,"max":2}}"#,
        );
        let paths: Vec<String> = wrong.problems().into_iter().map(|problem| problem.path).collect();
        let expected = [
            "timeZone",
            "windows[0].days[1]",
            "windows[0].from",
            "windows[0].to",
            "windows[1].to",
            "windows[1].max",
            "otherwise.max",
        ];
        assert_eq!(paths, expected);
    }
}
