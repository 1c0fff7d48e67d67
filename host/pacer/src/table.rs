//! Figures and columns as people read them.

/// Widest column, in characters: the longest namespace and name of an object have fewer. A cell that is longer sticks out, and no other cell is
/// padded for it.
const WIDEST: usize = 320;

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
    aligned(rows, |column| if column == 0 { Side::Left } else { Side::Right })
}

/// Rows with all of their columns to the left.
pub(crate) fn left(rows: &[Vec<String>]) -> String {
    aligned(rows, |_| Side::Left)
}

/// Where a column has its cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

fn aligned(rows: &[Vec<String>], side: impl Fn(usize) -> Side) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let wide = |cell: &String| cell.chars().count().min(WIDEST);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(wide).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            if column > 0 {
                line.push_str("  ");
            }
            // The padding of the standard library panics above 65,535.
            let padding = " ".repeat(width.saturating_sub(cell.chars().count()));
            match side(column) {
                Side::Left => line.extend([cell.as_str(), padding.as_str()]),
                Side::Right => line.extend([padding.as_str(), cell.as_str()]),
            }
        }
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

    #[test]
    fn a_huge_cell_sticks_out_and_pads_no_other() {
        let huge = "x".repeat(70_000);
        let rows = [vec!["a".into(), huge.clone(), "b".into()], vec!["c".into(), "d".into(), "e".into()]];
        for text in [left(&rows), right(&rows)] {
            let (first, second) = text.trim_end().split_once('\n').unwrap();
            assert_eq!(first, format!("a  {huge}  b"));
            assert_eq!(second.chars().count(), 3 + WIDEST + 3, "{second:?}");
        }
        assert!(right(&rows).ends_with("  d  e\n") && left(&rows).contains("\nc  d  "));
    }
}
