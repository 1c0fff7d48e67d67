//! Two operators side by side: the figures of each, from runs that took turns.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::figure::{Figure, Unit, aligned, number};

/// How much more a figure may be than before.
const MORE: f64 = 0.05;

/// One figure of both.
#[derive(Debug, PartialEq)]
struct Row {
    scene: String,
    name: String,
    unit: Unit,
    /// None where only the other one has it.
    before: Option<f64>,
    now: Option<f64>,
}

impl Row {
    /// By how much it is more than before, as a share.
    fn more(&self) -> Option<f64> {
        let (before, now) = (self.before?, self.now?);
        (before > 0.0).then(|| now / before - 1.0)
    }

    /// Whether it is more than it may be. What the last shown decimals differ by is nothing.
    fn is_worse(&self) -> bool {
        let (Some(before), Some(now)) = (self.before, self.now) else { return self.before.is_some() };
        let nothing = match self.unit {
            Unit::Seconds => 0.05,
            Unit::Mebibytes => 0.5,
            Unit::Count => 0.01,
        };
        now > before * (1.0 + MORE) + nothing
    }

    fn cells(&self) -> Vec<String> {
        let shown = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| number(value, self.unit));
        let more = self.more().map(|more| format!("{:+.0} %", 100.0 * more)).unwrap_or_default();
        let verdict = if self.is_worse() { "WORSE" } else { "" };
        vec![self.scene.clone(), self.name.clone(), shown(self.before), shown(self.now), more, verdict.to_owned()]
    }
}

/// The table of both, and whether a figure is more than 5 % above what it was. Of several runs the lowest value of each figure counts: what else the
/// machine did only adds to it.
///
/// # Errors
///
/// When a file does not hold figures.
pub(crate) fn compare(before: &[PathBuf], now: &[PathBuf]) -> Result<(String, bool)> {
    let rows = rows(&read(before)?, &read(now)?);
    let head = ["scene", "figure", "before", "now", "more by", ""].map(str::to_owned).to_vec();
    let cells: Vec<Vec<String>> = std::iter::once(head).chain(rows.iter().map(Row::cells)).collect();
    Ok((aligned(&cells), rows.iter().any(Row::is_worse)))
}

fn read(files: &[PathBuf]) -> Result<Vec<Figure>> {
    let figures = |file: &Path| -> Result<Vec<Figure>> {
        let open = File::open(file).with_context(|| format!("opening {}", file.display()))?;
        serde_json::from_reader(BufReader::new(open)).with_context(|| format!("reading {}", file.display()))
    };
    Ok(files.iter().map(|file| figures(file)).collect::<Result<Vec<_>>>()?.concat())
}

/// In the order in which the new ones were measured, those that are missing last.
fn rows(before: &[Figure], now: &[Figure]) -> Vec<Row> {
    let lowest = |figures: &[Figure]| {
        let mut lowest: BTreeMap<(String, String), f64> = BTreeMap::new();
        for figure in figures {
            let value = lowest.entry((figure.scene.clone(), figure.name.clone())).or_insert(f64::INFINITY);
            *value = value.min(figure.value);
        }
        lowest
    };
    let (least_before, least_now) = (lowest(before), lowest(now));
    let mut rows: Vec<Row> = Vec::new();
    for figure in now.iter().chain(before) {
        if rows.iter().any(|row| (&row.scene, &row.name) == (&figure.scene, &figure.name)) {
            continue;
        }
        let key = (figure.scene.clone(), figure.name.clone());
        let (before, now) = (least_before.get(&key).copied(), least_now.get(&key).copied());
        rows.push(Row { scene: key.0, name: key.1, unit: figure.unit, before, now });
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(name: &str, value: f64, unit: Unit) -> Figure {
        Figure { scene: "burst".to_owned(), name: name.to_owned(), value, unit, at_most: None }
    }

    #[test]
    fn figures_of_two_operators_are_compared_by_the_lowest_of_each() {
        let before = [
            figure("writes", 6.0, Unit::Count),
            figure("time", 2.0, Unit::Seconds),
            figure("time", 1.0, Unit::Seconds),
            figure("gone", 1.0, Unit::Count),
            figure("memory", 50.0, Unit::Mebibytes),
        ];
        let now = [
            figure("writes", 6.4, Unit::Count),
            figure("time", 1.09, Unit::Seconds),
            figure("memory", 53.1, Unit::Mebibytes),
            figure("memory", 52.9, Unit::Mebibytes),
            figure("new", 9.0, Unit::Count),
        ];
        let rows = rows(&before, &now);
        let found: Vec<_> = rows.iter().map(|row| (row.name.as_str(), row.before, row.now, row.is_worse())).collect();
        let expected = [
            ("writes", Some(6.0), Some(6.4), true),
            ("time", Some(1.0), Some(1.09), false),
            ("memory", Some(50.0), Some(52.9), false),
            ("new", None, Some(9.0), false),
            ("gone", Some(1.0), None, true),
        ];
        assert_eq!(found, expected);
        assert_eq!(rows[0].cells(), ["burst", "writes", "6", "6.40", "+7 %", "WORSE"]);
    }
}
