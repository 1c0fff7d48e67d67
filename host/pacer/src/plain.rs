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

/// What an error and its causes say, from the outside inwards. Libraries repeat their causes in their own words; each is told once.
pub(crate) fn causes(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        // Around the answer of the API server this one has nothing but the names of its fields.
        if matches!(cause.downcast_ref(), Some(kube::Error::Api(_))) {
            continue;
        }
        let said = cause.to_string();
        if said.is_empty() || text.contains(&said) {
            continue;
        }
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&said);
    }
    text
}

/// A whole text without control characters, apart from those that lay it out: ends of lines and tabs.
pub(crate) fn text(whole: &str) -> Cow<'_, str> {
    let steers = |char: char| char.is_control() && !matches!(char, '\n' | '\t');
    if whole.contains(steers) { Cow::Owned(whole.replace(steers, "")) } else { Cow::Borrowed(whole) }
}

#[cfg(test)]
mod tests {
    use anyhow::{Context as _, anyhow};

    use super::*;

    #[test]
    fn each_cause_of_an_error_is_told_once() {
        let missing = || std::io::Error::new(std::io::ErrorKind::NotFound, "no such file");
        let trace = pacer_trace::file::FileError::Io { path: "week.jsonl".into(), source: missing() };
        assert_eq!(causes(&trace.into()), "week.jsonl: no such file");
        let wrapped = Err::<(), _>(anyhow!("no such file")).context("a.wasm can't be read").context("reading the set");
        assert_eq!(causes(&wrapped.unwrap_err()), "reading the set: a.wasm can't be read: no such file");
        let repeated = Err::<(), _>(missing()).context("no such file, which is needed").unwrap_err();
        assert_eq!(causes(&repeated), "no such file, which is needed");
        let status = kube::core::Status::failure("pods is forbidden: User \"a\" cannot list", "Forbidden").with_code(403);
        let refused = anyhow::Error::from(kube::Error::Api(status.boxed())).context("listing pods");
        assert_eq!(causes(&refused), "listing pods: pods is forbidden: User \"a\" cannot list: Forbidden");
        assert_eq!(causes(&anyhow!("alone")), "alone");
    }

    #[test]
    fn a_field_is_one_line_and_a_text_keeps_its_lines() {
        assert_eq!(line("Active\n\u{1b}[2J  phase\tForged"), "Active [2J phase Forged");
        assert_eq!(line(&"x".repeat(5_000)).len(), 5_000);
        assert_eq!(text("a\tb\r\n\u{1b}[2Jc\u{7f}\u{9b}d\n"), "a\tb\n[2Jcd\n");
        assert!(matches!(text("as it is\n"), Cow::Borrowed("as it is\n")));
    }
}
