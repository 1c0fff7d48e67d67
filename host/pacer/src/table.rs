//! Figures and columns as people read them.

/// `1,234,567`.
pub(crate) fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `741 bytes`, `41.5 KiB`, `1.2 MiB`.
pub(crate) fn bytes(count: usize) -> String {
    #[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
    let size = count as f64;
    match count {
        0..1_024 => format!("{count} bytes"),
        1_024..1_048_576 => format!("{:.1} KiB", size / 1_024.0),
        _ => format!("{:.1} MiB", size / 1_048_576.0),
    }
}

/// `part` of `whole` in per cent; `< 0.1` rather than a zero that is none.
#[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
pub(crate) fn percent(part: u64, whole: u64) -> String {
    let share = part as f64 * 100.0 / whole.max(1) as f64;
    if part > 0 && share < 0.1 { "< 0.1 %".to_owned() } else { format!("{share:.1} %") }
}

/// Rows with their columns under each other: the first to the left, the others to the right.
pub(crate) fn right(rows: &[Vec<String>]) -> String {
    aligned(rows, |column, width, cell| if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") })
}

/// Rows with all of their columns to the left.
pub(crate) fn left(rows: &[Vec<String>]) -> String {
    aligned(rows, |_, width, cell| format!("{cell:<width$}"))
}

fn aligned(rows: &[Vec<String>], pad: impl Fn(usize, usize, &str) -> String) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| pad(column, *width, cell));
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(number), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([741, 42_496, 1_300_000].map(bytes), ["741 bytes", "41.5 KiB", "1.2 MiB"]);
        assert_eq!(
            [(0, 10), (1, 10_000), (1, 3), (1, 0)].map(|(part, whole)| percent(part, whole)),
            ["0.0 %", "< 0.1 %", "33.3 %", "100.0 %"]
        );
    }

    #[test]
    fn columns() {
        let rows = [vec!["a".into(), "10".into()], vec!["bcd".into(), "5".into()]];
        assert_eq!(right(&rows), "a    10\nbcd   5\n");
        assert_eq!(left(&rows), "a    10\nbcd  5\n");
    }
}
