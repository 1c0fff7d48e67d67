//! Text from the cluster, as a terminal may have it.
//!
//! Whoever may write to a namespace writes annotations, statuses and receipts there. With control characters these could forge lines of what is printed, or
//! steer the terminal of whoever reads it.

use std::borrow::Cow;

use pacer_core::gate::scrub;

/// A field from the cluster as one line. Nothing of what can be read is cut off.
pub(crate) fn line(field: &str) -> String {
    scrub(field, usize::MAX)
}

/// A whole text without control characters, apart from those that lay it out: ends of lines and tabs.
pub(crate) fn text(whole: &str) -> Cow<'_, str> {
    let steers = |char: char| char.is_control() && !matches!(char, '\n' | '\t');
    if whole.contains(steers) { Cow::Owned(whole.replace(steers, "")) } else { Cow::Borrowed(whole) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_one_line_and_a_text_keeps_its_lines() {
        assert_eq!(line("Active\n\u{1b}[2J  phase\tForged"), "Active [2J phase Forged");
        assert_eq!(line(&"x".repeat(5_000)).len(), 5_000);
        assert_eq!(text("a\tb\r\n\u{1b}[2Jc\u{7f}\u{9b}d\n"), "a\tb\n[2Jcd\n");
        assert!(matches!(text("as it is\n"), Cow::Borrowed("as it is\n")));
    }
}
