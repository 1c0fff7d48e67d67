//! Measured values and what is wanted of them.

use std::fmt::{self, Write as _};
use std::time::Duration;

use pacer_harness::controlplane::ApiCalls;
use serde::{Deserialize, Serialize};

/// What a value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Unit {
    /// Seconds; printed with two decimal places.
    Seconds,
    /// Mebibytes; printed with one decimal place.
    Mebibytes,
    /// Things, possibly per something.
    Count,
}

/// The most a value should be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AtMost {
    /// More is a failure of the benchmark.
    Limit(f64),
    /// More is said and nothing else: it depends on the machine.
    Wish(f64),
}

/// One measured value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figure {
    /// What was done: `200 runners`, `rollout`.
    pub(crate) scene: String,
    /// What was measured in that scene: `60 pods gone`, `pods left`.
    pub(crate) name: String,
    /// The result of the measurement, in `unit`.
    pub(crate) value: f64,
    /// Unit of `value`.
    pub(crate) unit: Unit,
    /// What is wanted of it, if anything is.
    pub(crate) at_most: Option<AtMost>,
}

impl Figure {
    /// Whether the value is more than a hard limit.
    #[must_use]
    pub(crate) fn breaks_a_limit(&self) -> bool {
        matches!(self.at_most, Some(AtMost::Limit(most)) if self.value > most)
    }

    fn wanted(&self) -> String {
        match self.at_most {
            None => String::new(),
            Some(AtMost::Limit(most)) => format!("{} (limit)", number(most, self.unit)),
            Some(AtMost::Wish(most)) => number(most, self.unit),
        }
    }

    /// Whether it is met, and how much of it is used.
    fn verdict(&self) -> String {
        let Some(AtMost::Limit(most) | AtMost::Wish(most)) = self.at_most else { return String::new() };
        let word = if self.value <= most { "met" } else { "MISSED" };
        if most > 0.0 { format!("{word}, {:.0} %", 100.0 * self.value / most) } else { word.to_owned() }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} is {}, wanted at most {}", self.scene, self.name, number(self.value, self.unit), self.wanted())
    }
}

/// A value as people read it.
pub(crate) fn number(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Seconds => format!("{value:.2} s"),
        Unit::Mebibytes => format!("{value:.1} MiB"),
        Unit::Count if value.fract() == 0.0 => format!("{value:.0}"),
        Unit::Count => format!("{value:.2}"),
    }
}

/// Adds the figures of one scene.
#[derive(Debug)]
pub(crate) struct Page<'a> {
    scene: String,
    figures: &'a mut Vec<Figure>,
}

impl<'a> Page<'a> {
    /// Figures of `scene` go to `figures`.
    pub(crate) fn new(scene: String, figures: &'a mut Vec<Figure>) -> Self {
        Self { scene, figures }
    }

    /// A duration, of which seconds are wished.
    pub(crate) fn time(&mut self, name: impl Into<String>, value: Duration, wish: Option<f64>) {
        self.push(name.into(), value.as_secs_f64(), Unit::Seconds, wish.map(AtMost::Wish));
    }

    /// A duration of at most so many seconds.
    pub(crate) fn limited_time(&mut self, name: impl Into<String>, value: Duration, limit: Option<f64>) {
        self.push(name.into(), value.as_secs_f64(), Unit::Seconds, limit.map(AtMost::Limit));
    }

    /// A size in bytes; limit in MiB.
    pub(crate) fn size(&mut self, name: impl Into<String>, bytes: u64, limit: Option<f64>) {
        let mebibytes = exact(bytes) / (1024.0 * 1024.0);
        self.push(name.into(), mebibytes, Unit::Mebibytes, limit.map(AtMost::Limit));
    }

    /// A number of things.
    pub(crate) fn count(&mut self, name: impl Into<String>, value: u64, at_most: Option<AtMost>) {
        self.push(name.into(), exact(value), Unit::Count, at_most);
    }

    /// All writes of a stretch of time that is called `during`, and those of each verb and resource.
    pub(crate) fn writes(&mut self, during: &str, writes: &ApiCalls, at_most: Option<AtMost>) {
        self.count(format!("{during}: writes"), writes.total(), at_most);
        for (verb, resource, count) in writes.iter() {
            self.count(format!("{during}: {verb} {resource}"), count, None);
        }
    }

    /// A number of things per something.
    pub(crate) fn ratio(&mut self, name: impl Into<String>, value: u64, per: u32, at_most: Option<AtMost>) {
        self.push(name.into(), exact(value) / f64::from(per.max(1)), Unit::Count, at_most);
    }

    /// How far one value is from another, and how far it may be.
    pub(crate) fn deviation(&mut self, name: &str, found: f64, expected: f64, limit: Option<f64>) {
        let name = format!("{name} {found:.2} instead of {expected:.2}, off by");
        self.push(name, (found - expected).abs(), Unit::Count, limit.map(AtMost::Limit));
    }

    /// One value as a share of another.
    pub(crate) fn share(&mut self, name: impl Into<String>, value: f64, of: f64, limit: Option<f64>) {
        self.push(name.into(), value / of.max(f64::MIN_POSITIVE), Unit::Count, limit.map(AtMost::Limit));
    }

    fn push(&mut self, name: String, value: f64, unit: Unit, at_most: Option<AtMost>) {
        self.figures.push(Figure { scene: self.scene.clone(), name, value, unit, at_most });
    }
}

/// Everything that is counted here is far below 2^53.
#[expect(clippy::cast_precision_loss, reason = "figures are shown with two decimals")]
fn exact(value: u64) -> f64 {
    value as f64
}

/// All figures as a Markdown table.
#[must_use]
pub(crate) fn table(figures: &[Figure]) -> String {
    let head = ["scene", "figure", "value", "at most", ""].map(str::to_owned).to_vec();
    let cells = figures.iter().map(|figure| {
        vec![figure.scene.clone(), figure.name.clone(), number(figure.value, figure.unit), figure.wanted(), figure.verdict()]
    });
    aligned(&std::iter::once(head).chain(cells).collect::<Vec<_>>())
}

/// Rows of as many cells as a Markdown table; the first is its head.
#[must_use]
pub(crate) fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        line(&mut text, row, &widths);
        if index == 0 {
            line(&mut text, &rule, &widths);
        }
    }
    text
}

fn line(text: &mut String, cells: &[String], widths: &[usize]) {
    for (cell, width) in cells.iter().zip(widths) {
        // Writing to a String cannot fail.
        let _ = write!(text, "| {cell:width$} ");
    }
    text.push_str("|\n");
}

/// The time that so many in a hundred are within.
pub(crate) fn share_of(times: &[Duration], share: usize) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    let at = times.len().saturating_mul(share) / 100;
    times.get(at.min(times.len().saturating_sub(1))).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_wishes_are_told_apart() {
        let mut figures = Vec::new();
        let mut page = Page::new("5 runners".to_owned(), &mut figures);
        page.ratio("writes per life", 31, 5, Some(AtMost::Limit(6.0)));
        page.ratio("writes per life", 30, 5, Some(AtMost::Limit(6.0)));
        page.time("online", Duration::from_millis(2_500), Some(2.0));
        page.size("memory", 3 << 20, None);
        let verdicts: Vec<_> = figures.iter().map(|figure| (figure.verdict(), figure.breaks_a_limit())).collect();
        let verdicts: Vec<_> = verdicts.iter().map(|(said, breaks)| (said.as_str(), *breaks)).collect();
        assert_eq!(verdicts, [("MISSED, 103 %", true), ("met, 100 %", false), ("MISSED, 125 %", false), ("", false)]);
        assert_eq!(figures[0].to_string(), "5 runners: writes per life is 6.20, wanted at most 6 (limit)");
    }

    #[test]
    fn the_table_is_aligned() {
        let mut figures = Vec::new();
        let mut page = Page::new("x".to_owned(), &mut figures);
        page.time("to online", Duration::from_millis(1_234), Some(20.0));
        page.count("leaks", 0, Some(AtMost::Limit(0.0)));
        let expected = "\
| scene | figure    | value  | at most   |          |
| ----- | --------- | ------ | --------- | -------- |
| x     | to online | 1.23 s | 20.00 s   | met, 6 % |
| x     | leaks     | 0      | 0 (limit) | met      |
";
        assert_eq!(table(&figures), expected);
    }
}
